use super::*;
use std::time::Duration;

fn home(text: &str) -> Result<HomeConfig, String> {
    Config::parse_home(text).map_err(|error| error.to_string())
}

fn workspace(text: &str) -> Result<WorkspaceConfig, String> {
    Config::parse_workspace(text).map_err(|error| error.to_string())
}

fn bytes(text: &str) -> SmallFile {
    SmallFile::Bytes(text.as_bytes().to_vec())
}

#[test]
fn every_key_of_the_home_is_read() {
    let config = home(
        r#"
        [retention]
        keep_last = 5
        keep_within = "2w"
        thin_daily_for = "90d"
        [retention_agent]
        keep_within = "1d"
        [store]
        cap = "10GiB"
        [capture]
        excludes = ["*.log", "/build/"]
        [checks]
        test = "cargo test"
        test_timeout = "90s"
        "#,
    )
    .unwrap();
    let retention = RetentionConfig {
        keep_last: Some(5),
        keep_within: Some(Span::from_days(14)),
        thin_daily_for: Some(Span::from_days(90)),
    };
    assert_eq!(
        config,
        HomeConfig {
            retention,
            retention_of: [(
                Scope::Agent,
                RetentionConfig { keep_within: Some(Span::from_days(1)), ..Default::default() }
            )]
            .into_iter()
            .collect(),
            cap_bytes: Some(10 << 30),
            excludes: vec!["*.log".to_owned(), "/build/".to_owned()],
            git: None,
            test: Some("cargo test".to_owned()),
            test_timeout: Some(Span::from_seconds(90)),
            ..HomeConfig::default()
        }
    );
    assert_eq!(home("store.cap = 1_000").unwrap().cap_bytes, Some(1_000));
    assert_eq!(home("store = { cap = 0xff }").unwrap().cap_bytes, Some(255));
    assert_eq!(home("").unwrap(), HomeConfig::default());
}

#[test]
fn every_key_of_a_workspace_is_read() {
    let config =
        workspace("label = \"work\"\nretention.keep_last = 500\n[capture]\nexcludes = ['*.o']\n").unwrap();
    assert_eq!(config.label.as_deref(), Some("work"));
    assert_eq!(config.retention.keep_last, Some(500));
    assert_eq!(config.excludes, ["*.o"]);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    for (text, said) in [
        ("\n\n[retension]\n", "unknown key `retension` in .safepoint.toml line 3: did you mean `retention`?"),
        (
            "[retention]\nkeep_lats = 3\n",
            "unknown key `retention.keep_lats` in .safepoint.toml line 2: did you mean `keep_last`?",
        ),
        ("lable = 'x'", "unknown key `lable` in .safepoint.toml line 1: did you mean `label`?"),
        // In the wrong table.
        (
            "excludes = ['x']",
            "unknown key `excludes` in .safepoint.toml line 1: did you mean `capture.excludes`?",
        ),
        (
            "[retention]\nlabel = 'x'",
            "unknown key `retention.label` in .safepoint.toml line 2: did you mean `label`?",
        ),
        // No match.
        ("zzz = 1", "unknown key `zzz` in .safepoint.toml line 1: known there are label, retention, capture"),
        (
            "[capture]\n\"\\u001b[31m\\n\" = 1",
            "unknown key `capture.\\u{1b}[31m\\n` in .safepoint.toml line 2: known there are excludes, git",
        ),
        // The first wrong line is reported.
        (
            "z = 1\na = 1\n",
            "unknown key `z` in .safepoint.toml line 1: known there are label, retention, capture",
        ),
    ] {
        assert_eq!(workspace(text).unwrap_err(), said);
    }
    let long = format!("{} = 1", "k".repeat(50_000));
    assert!(workspace(&long).unwrap_err().len() < 200);
    let said = home("[check]\n").unwrap_err();
    assert_eq!(said, "unknown key `check` in config.toml line 1: did you mean `checks`?");
    assert!(home("label = 'x'").unwrap_err().contains("unknown key `label` in config.toml line 1"));
}

#[test]
fn a_value_of_another_type_is_refused_with_its_line() {
    for (text, said) in [
        (
            "[retention]\nkeep_last = \"5\"",
            "`retention.keep_last` in config.toml line 2 is a text: expected a whole number",
        ),
        ("[retention]\nkeep_last = 5.0", "is a number with a point: expected a whole number"),
        ("[retention]\nkeep_last = -1", "`retention.keep_last` in config.toml line 2: a number from 0"),
        ("[retention]\nkeep_within = 7", "is a whole number: expected a length of time such as \"7d\""),
        ("[retention]\nkeep_within = \"7 days\"", "line 2: \"7 days\" is not a duration"),
        ("[retention]\nkeep_within = 2026-01-01", "is a date or time"),
        ("retention = 3", "`retention` in config.toml line 1 is no table: expected a table"),
        ("[[retention]]\nkeep_last = 3", "`retention` in config.toml line 1 is no table"),
        ("[capture]\nexcludes = \"*.log\"", "is a text: expected a list of texts"),
        ("[capture]\nexcludes = [\n'a',\n3]", "`capture.excludes` in config.toml line 4 is a whole number"),
        ("[capture]\nexcludes = [\n'a',\n'a[z-a]']", "line 4: \"a[z-a]\" is no pattern"),
        (&format!("[capture]\nexcludes = ['{}{}']", "{".repeat(20_000), "}".repeat(20_000)), "line 2: \"{{{"),
        ("[store]\ncap = \"lots\"", "`store.cap` in config.toml line 2: \"lots\" is no number of bytes"),
        ("[store]\ncap = true", "is true or false: expected a number of bytes"),
        ("[store]\ncap = {}", "is a table: expected a number of bytes"),
        ("[store]\ncap = 0", "nothing at all could be kept"),
        ("[checks]\ntest = [\"cargo\", \"test\"]", "is a list: expected a command as a text"),
        ("[checks]\ntest = ' '", "the command is empty"),
        ("[checks]\ntest = \"a\\u0000\"", "holds no NUL"),
        ("[checks]\ntest_timeout = '0s'", "some time must be left"),
        ("a = \n", "config.toml line 1 is not TOML: "),
        ("[store]\ncap = 1\ncap = 2\n", "config.toml line 3 is not TOML: duplicate key"),
    ] {
        let found = home(text).unwrap_err();
        assert!(found.contains(said), "{text:?}: {found}");
    }
    for (label, said) in [("", "is empty"), ("a\\nb", "one line"), (&"x".repeat(201), "at most 200")] {
        let found = workspace(&format!("label = \"{label}\"")).unwrap_err();
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn a_workspace_names_no_command_and_no_limit() {
    for text in [
        "[checks]\ntest = 'rm -rf ~'",
        "[store]\ncap = 1",
        "checks.test = 'x'",
        "test = 'x'",
        "run = 'x'",
        "[hooks]\nafter = 'x'",
        "[retention]\ncap = 5",
    ] {
        let said = workspace(text).unwrap_err();
        assert!(
            said.contains("is refused") && said.contains("config.toml in Safepoint's home alone"),
            "{said}"
        );
        assert!(said.contains("whatever works in the workspace can write this file"), "{said}");
    }
}

#[test]
fn nesting_without_end_is_an_error_and_no_crash() {
    for text in [
        "[".repeat(60_000),
        format!("a = {}", "[".repeat(60_000)),
        format!("{} = 1", vec!["a"; 30_000].join(".")),
    ] {
        assert!(workspace(&text).is_err());
    }
}

#[test]
fn a_workspace_may_keep_more_and_never_less() {
    let text = "[retention]\nkeep_last = 1\nkeep_within = '30d'\nthin_daily_for = '1d'";
    let config = Config { workspace: workspace(text).unwrap(), ..Config::default() };
    let effective = config.effective();
    assert_eq!(
        effective.retention,
        Policy { keep_last: 100, keep_within: Span::from_days(30), thin_daily_for: Span::from_days(30) }
    );
    assert_eq!(
        effective.warnings,
        [
            "retention.keep_last = 1 in .safepoint.toml would keep less than your own configuration: 100 holds",
            "retention.thin_daily_for = 1d in .safepoint.toml would keep less than your own configuration: 30d holds",
        ]
    );
    // Only the user may go below the default; a workspace may then ask for more.
    let less = home("[retention]\nkeep_last = 0\nkeep_within = '1h'\nthin_daily_for = '1d'").unwrap();
    let config = Config { home: less, ..config };
    let effective = config.effective();
    assert_eq!(
        effective.retention,
        Policy { keep_last: 1, keep_within: Span::from_days(30), thin_daily_for: Span::from_days(1) }
    );
    assert!(effective.warnings.is_empty());
}

#[test]
fn silence_means_the_defaults() {
    let effective = Config::default().effective();
    assert_eq!(effective, Effective::default());
    assert_eq!(effective.retention, Policy::DEFAULT);
    let test = Config { home: home("checks.test = 'make test'").unwrap(), ..Config::default() }
        .effective()
        .test
        .unwrap();
    assert_eq!((test.line.as_str(), Duration::from(test.timeout)), ("make test", Duration::from_secs(600)));
}

#[test]
fn what_the_user_leaves_out_stays_out() {
    let own = ["*.tmp".to_owned()];
    let home = bytes("capture.excludes = ['*.pem']");
    let workspace = bytes("capture.excludes = ['!*.pem']");
    let effective = load(home, Ok(workspace), &own, Broken::Refused).unwrap();
    assert_eq!(effective.excludes, ["!*.pem", "*.pem", "*.tmp"]);
}

#[test]
fn a_broken_workspace_file_is_refused_or_passed_over_and_said() {
    let read = ConfigError::Read { file: ConfigFile::Workspace, source: std::io::ErrorKind::Other.into() };
    let cases = [
        (Ok(SmallFile::NotAFile), "not a regular file"),
        (Ok(SmallFile::TooLong), "longer than 65536 bytes"),
        (Ok(SmallFile::Bytes(vec![0xff])), "not UTF-8"),
        (Ok(bytes("x")), "not TOML"),
        (Err(read), "cannot read .safepoint.toml"),
    ];
    for (file, said) in cases {
        let home = || bytes("store.cap = 5\ncapture.excludes = ['a']");
        let again = match &file {
            Ok(file) => Ok(file.clone()),
            Err(_) => Err(ConfigError::NotUtf8 { file: ConfigFile::Workspace }),
        };
        let effective = load(home(), again, &[], Broken::PassedOver).unwrap();
        assert_eq!((effective.cap_bytes, effective.excludes.len()), (Some(5), 1));
        assert!(effective.passed_over.unwrap().starts_with(".safepoint.toml is ignored: "));
        let error = load(home(), file, &[], Broken::Refused).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    // An error in the user's file is fatal.
    assert!(load(bytes("x"), Ok(SmallFile::Missing), &[], Broken::PassedOver).is_err());
}

#[test]
fn what_is_noted_of_git_is_said_by_either_file_and_the_users_own_counts_more() {
    let git = |of_home: &str, of_workspace: &str| {
        let config = Config { home: home(of_home).unwrap(), workspace: workspace(of_workspace).unwrap() };
        config.effective().git
    };
    let (none, state) = ("[capture]\ngit = 'none'", "[capture]\ngit = 'state'");
    assert_eq!(git("", ""), GitCapture::State);
    assert_eq!((git(none, ""), git("", none)), (GitCapture::None, GitCapture::None));
    assert_eq!((git(none, state), git(state, none)), (GitCapture::None, GitCapture::State));
    assert_eq!(git("[capture]\ngit = 'full'", none), GitCapture::Full);
    for (value, said) in [("'x'", "it is \"none\", \"state\" or"), ("1", "a text")] {
        let error = home(&format!("[capture]\ngit = {value}")).unwrap_err().to_string();
        assert!(error.contains(said) || error.contains("expected"), "{error}");
    }
}

#[test]
fn the_page_about_configuration_knows_every_key_and_its_examples_are_understood() {
    let page = include_str!("../../../../docs/configuration.md");
    for (section, below) in super::reading::IN_HOME.iter().chain(super::reading::IN_WORKSPACE) {
        let keys = below.iter().map(|key| format!("| `{section}.{key}` |"));
        let keys: Vec<String> =
            if below.is_empty() { vec![format!("| `{section}` |")] } else { keys.collect() };
        keys.iter().for_each(|key| assert!(page.contains(key), "{key} is undocumented"));
    }
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [of_home, of_workspace] = examples[..] else { panic!("{examples:?}") };
    let config = Config { home: home(of_home).unwrap(), workspace: workspace(of_workspace).unwrap() };
    assert_eq!(config.effective().retention.keep_last, 500);
    let policy = Policy::DEFAULT;
    let default = [
        policy.keep_last.to_string(),
        format!("\"{}\"", policy.keep_within),
        format!("\"{}\"", policy.thin_daily_for),
    ];
    for (key, default) in super::reading::IN_HOME[0].1.iter().zip(default) {
        assert!(page.contains(&format!("| `retention.{key}` | both | `{default}` |")), "{key}");
    }
}
