use super::node::Node;
use super::*;
use safepoint_model::Span;
use safepoint_model::checkpoint::Phase;
use safepoint_model::document;
use safepoint_model::plan::spec::{Milestone, Milestones, OnInterrupt, SandboxKind, StepSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

mod random;

fn parse(text: &str) -> Result<PlanSpec, String> {
    PlanFile::parse(text.as_bytes(), None).map(|file| file.spec).map_err(|error| all(&error).join("\n"))
}

/// Returns all problems.
fn all(error: &PlanFileError) -> Vec<String> {
    let others = error.others().iter().map(ToString::to_string);
    [error.to_string()].into_iter().chain(others).collect()
}

fn node(text: &str) -> Result<Node, PlanFileError> {
    if text.trim_start().starts_with('{') { json::parse(text) } else { toml::parse(text) }
}

fn schema() -> jsonschema::Validator {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../../docs/schemas/plan-file.json")).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::options().offline().build(&schema).unwrap()
}

/// Text of each example by name.
fn examples() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn the_example_of_the_documentation_is_understood() {
    let spec = parse(&examples()["rate-limiting.toml"]).unwrap();
    let mut expected = PlanSpec::new("Add rate limiting");
    expected.checkpoints.every = Some(Span::from_seconds(600));
    let command = |text: &str| Some(text.to_owned());
    let below = |id: &str, run: &str| StepSpec { run: command(run), ..StepSpec::new(id) };
    expected.steps = vec![
        StepSpec {
            run: command("make migrate"),
            verify: command("make test-db"),
            undo: command("make migrate-down"),
            risky: true,
            timeout: Some(Span::from_seconds(300)),
            retries: 2,
            ..StepSpec::new("migrate")
        },
        StepSpec {
            steps: vec![below("handlers", "make handlers"), below("docs", "make docs")],
            ..StepSpec::new("api")
        },
    ];
    assert_eq!(spec, expected);
}

#[test]
fn every_key_is_understood() {
    let spec = parse(&examples()["every-key.toml"]).unwrap();
    assert_eq!((spec.id.as_deref(), spec.sandbox), (Some("payments.v2"), SandboxKind::Copy));
    assert_eq!(spec.checkpoints.on.len(), 6);
    assert!(!spec.checkpoints.has(Milestone::BeforeStep));
    assert_eq!(spec.checkpoints.every_steps, Some(5));
    assert_eq!(spec.context["limits"], json!({"requests": 100, "burst": 1.5}));
    assert_eq!(spec.context["deadline"], json!("2026-03-01"));
    let prepare = &spec.steps[0];
    assert_eq!((prepare.parallel, prepare.phase, prepare.steps.len()), (Some(2), Some(Phase::Plan), 2));
    let schema = &prepare.steps[1];
    assert_eq!((schema.on_interrupt, schema.env.len()), (OnInterrupt::Fail, 2));
    assert_eq!(schema.env["RUST_BACKTRACE"], "1");
    assert_eq!(spec.steps[1].run, None);
    let none = parse(&examples()["no-checkpoints.toml"]).unwrap();
    assert_eq!((none.checkpoints, none.steps.len()), (Milestones::none(), 2));
}

#[test]
fn every_example_fits_the_schema_and_the_parser() {
    let schema = schema();
    assert!(examples().len() >= 4);
    for (name, text) in examples() {
        let file = PlanFile::parse(text.as_bytes(), None).unwrap();
        assert_eq!(file.format == PlanFormat::Json, name.ends_with(".json"), "{name}");
        let value = node(&text).unwrap().to_json().unwrap();
        let wrong: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert_eq!(wrong, [""; 0], "{name}");
        // The stored form of a plan is a valid plan file.
        let canonical = document::encode(&file.spec).unwrap();
        assert_eq!(PlanFile::parse(&canonical, None).unwrap().spec, file.spec, "{name}");
        assert!(schema.is_valid(&serde_json::from_slice(&canonical).unwrap()), "{name}");
    }
}

/// Verdict of the schema.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Schema {
    Refuses,
    CannotSay,
    /// The text is not a tree of values.
    NeverSees,
}
use Schema::{CannotSay, NeverSees, Refuses};

const SLUG: &str = "a name must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit";

#[allow(clippy::too_many_lines, reason = "a table of one row per mistake")]
fn bad_files() -> Vec<(&'static str, String, Schema)> {
    let plan_id = format!("`id`, line 2, column 6: {SLUG}");
    let step_id = format!("`id` in step `#1`, line 3, column 6: {SLUG}");
    let rows: Vec<(&str, &str, Schema)> = vec![
        // Keys.
        ("", "`title`, line 1, column 1, is missing: every plan has one", Refuses),
        ("titel = 'x'\ntitle = 'x'", "unknown key `titel`, line 1, column 1: did you mean `title`?", Refuses),
        (
            "title = 'x'\nzzz = 1",
            "unknown key `zzz`, line 2, column 1: known there are title, id, sandbox, checkpoints, on_interrupted, steps, context",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'migrate'\nretry = 2",
            "unknown key `retry` in step `migrate`, line 4, column 1: did you mean `retries`?",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\n[[step.step]]\nid = 'b'\n  command = 'make'",
            "unknown key `command` in step `a/b`, line 6, column 3: did you mean `run`?",
            Refuses,
        ),
        (
            "title = 'x'\n[sandbox]\nknid = 'copy'",
            "unknown key `sandbox.knid`, line 3, column 1: did you mean `kind`?",
            Refuses,
        ),
        (
            "[sandbox]\nkind = 'copy'\ntitle = 'x'",
            "`title`, line 1, column 1, is missing: every plan has one\n\
             unknown key `sandbox.title`, line 3, column 1: did you mean `title`?",
            Refuses,
        ),
        (
            "title = 'x'\nevery = '5m'",
            "unknown key `every`, line 2, column 1: did you mean `checkpoints.every`?",
            Refuses,
        ),
        ("title = 'x'\nrun = 'x'", "unknown key `run`, line 2, column 1: did you mean `step.run`?", Refuses),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nsandbox = 'copy'",
            "`sandbox` in step `a`, line 4, column 1: it belongs to the plan, above its first step; a step has none",
            Refuses,
        ),
        (
            "title = 'x'\n\"\\u001b[31m\\n\" = 1",
            "unknown key `\\u{1b}[31m\\n`, line 2, column 1: known there are title, id, sandbox, checkpoints, on_interrupted, steps, context",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nrun = 'x'",
            "`id` in step `#1`, line 2, column 1, is missing: a step has a name, such as \"migrate\"",
            Refuses,
        ),
        // Types.
        ("title = 5", "`title`, line 1, column 9, is a whole number: expected a text", Refuses),
        (
            "title = 'x'\nsandbox = 'copy'",
            "`sandbox`, line 2, column 11, is a text: expected a table with a `kind`",
            Refuses,
        ),
        (
            "title = 'x'\n[step]\nid = 'a'",
            "`step`, line 2, column 1, is a table: expected a list of steps, each a table: [[step]] in TOML, \"steps\": [{...}] in JSON",
            Refuses,
        ),
        (
            "title = 'x'\nsteps = ['make']",
            "`steps` in step `#1`, line 2, column 10, is a text: expected a list of steps, each a table: [[step]] in TOML, \"steps\": [{...}] in JSON",
            Refuses,
        ),
        (
            "title = 'x'\ncheckpoints.on = 'before_step'",
            "`checkpoints.on`, line 2, column 18, is a text: expected a list of milestones, such as [\"before_step\"]",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nretries = '2'\nrisky = 'yes'\nrun = ['make']",
            "`retries` in step `a`, line 4, column 11, is a text: expected a whole number\n\
             `risky` in step `a`, line 5, column 9, is a text: expected true or false\n\
             `run` in step `a`, line 6, column 7, is a list: expected a command as a text, such as \"make test\"",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nenv = { PORT = 80 }\nretries = 1.5",
            "`env.PORT` in step `a`, line 4, column 16, is a whole number: expected a text; a number stands in quotes\n\
             `retries` in step `a`, line 5, column 11, is a number with a point: expected a whole number",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\ntimeout = 30",
            "`timeout` in step `a`, line 4, column 11, is a whole number: expected a length of time such as \"10m\"",
            Refuses,
        ),
        (
            "{\"title\": \"ü\", \"context\": [], \"steps\": [{\"id\": \"a\", \"undo\": null}], \"id\": {}}",
            "`context`, line 1, column 27, is a list: expected a table of keys and values\n\
             `undo` in step `a`, line 1, column 61, is null: expected a command as a text, such as \"make test\"\n\
             `id`, line 1, column 75, is an object: expected a text",
            Refuses,
        ),
        // Words.
        (
            "title = 'x'\n[sandbox]\nkind = 'in_place'",
            "`sandbox.kind`, line 3, column 8: \"in_place\" is none of in-place, copy, overlay; did you mean \"in-place\"?",
            Refuses,
        ),
        (
            "title = 'x'\n[checkpoints]\non = ['on_error',\n  'before_steps']",
            "`checkpoints.on`, line 4, column 3: \"before_steps\" is none of before_step, after_step, before_risky, before_subplan, after_subplan, on_error, phase_complete; did you mean \"before_step\"?",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\non_interrupt = 'explode'\nphase = 'implementation'",
            "`on_interrupt` in step `a`, line 4, column 16: \"explode\" is none of rerun, fail, done, ask\n\
             `phase` in step `a`, line 5, column 9: \"implementation\" is none of plan, generate_tasks, implement, validate, cleanup",
            Refuses,
        ),
        // Values.
        (
            "title = 'x'\n[[step]]\nid = 'a'\nretries = -1\ntimeout = '5 m'",
            "`retries` in step `a`, line 4, column 11: a number from 0 to 4294967295 is expected\n\
             `timeout` in step `a`, line 5, column 11: \"5 m\" is not a duration: the units are s, m, h, d and w; expected a value such as 30s, 90m, 36h, 7d or 2w",
            Refuses,
        ),
        (
            "title = 'x'\ncheckpoints = { every = '0s', every_steps = 0 }",
            "`checkpoints.every`, line 2, column 25: must be at least 1s\n\
             `checkpoints.every_steps`, line 2, column 45: must be at least 1",
            Refuses,
        ),
        (
            "title = 'x'\ncheckpoints.every_steps = 99999999999999999999",
            "`checkpoints.every_steps`, line 2, column 27: a number from 0 to 18446744073709551615 is expected",
            NeverSees,
        ),
        (
            "title = 'x'\ncontext.a = [1, nan]\n",
            "`context.a`, line 2, column 17: there is no such number in JSON",
            NeverSees,
        ),
        ("title = '  '\n", "`title`, line 1, column 9: the title is empty", Refuses),
        ("title = 'x'\nid = 'My Plan'", &plan_id, Refuses),
        ("title = 'x'\n[[step]]\nid = 'a/b'", &step_id, Refuses),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nrun = \"a\\u0000b\"\nverify = ''",
            "`run` in step `a`, line 4, column 7: text must not contain NUL\n\
             `verify` in step `a`, line 5, column 10: the command is empty",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nrun = 'x'\n[[step.step]]\nid = 'b'",
            "`run` in step `a`, line 4, column 7: a step runs a command or contains steps, not both",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nparallel = 2",
            "`parallel` in step `a`, line 4, column 12: only a step that contains steps can run them in parallel",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nparallel = 0\n[[step.step]]\nid = 'b'",
            "`parallel` in step `a`, line 4, column 12: must be at least 1",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\n[step.env]\nSAFEPOINT_HOME = '/'\n1A = 'x'",
            "`env.SAFEPOINT_HOME` in step `a`, line 5, column 18: variables that begin with SAFEPOINT_ are reserved\n\
             `env.1A` in step `a`, line 6, column 6: a variable name has letters, digits and `_`, and does not begin with a digit",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\ntimeout = '99999999w'",
            "`timeout` in step `a`, line 4, column 11: \"99999999w\" is not a duration: it is longer than ten thousand years; expected a value such as 30s, 90m, 36h, 7d or 2w",
            CannotSay,
        ),
        // Duplicates.
        (
            "title = 'x'\n[[step]]\nid = 'a'\n[[step.step]]\nid = 'b'\n[[step.step]]\nid = 'b'",
            "`id` in step `a/b`, line 7, column 6: a sibling step has the same name, line 5, column 6",
            CannotSay,
        ),
        (
            "title = 'x'\nsteps = []\n[[step]]\nid = 'a'",
            "`step`, line 3, column 3: it means the same as `steps`, which stands there already, line 2, column 1",
            Refuses,
        ),
        (
            "title = 'x'\ncheckpoints.on = ['on_error', 'on_error']",
            "`checkpoints.on`, line 2, column 31: \"on_error\" stands there already, line 2, column 19",
            Refuses,
        ),
        (
            "title = 'x'\n[[step]]\nid = 'a'\nrun = 'x'\nenv.run = 'y'\n  run = 'z'",
            "`run`, line 6, column 3: it stands there already, line 4, column 1",
            NeverSees,
        ),
        (
            "title = 'x'\n[sandbox]\nkind = 'copy'\n[ sandbox ]\n",
            "`sandbox`, line 4, column 3: it stands there already, line 2, column 2",
            NeverSees,
        ),
        (
            "title = 'x'\ncontext = { a = 1, b = 2, a = 3 }",
            "`a`, line 2, column 27: it stands there already, line 2, column 13",
            NeverSees,
        ),
        (
            "{\"title\": \"x\",\n \"title\": \"y\"}",
            "`title`, line 2, column 2: it stands there already, line 1, column 2",
            NeverSees,
        ),
        // Syntax errors.
        (
            "title = x",
            "the plan file is not TOML, line 1, column 9: string values must be quoted, expected literal string",
            NeverSees,
        ),
        (
            "{\"title\": \"x\",}",
            "the plan file is not JSON, line 1, column 15: key must be a string",
            NeverSees,
        ),
        ("{\n  \"ä\": 1 2}", "the plan file is not JSON, line 2, column 10: expected `,` or `}`", NeverSees),
        (
            "{\"title\": \"\\ud800\"}",
            "the plan file is not JSON, line 1, column 11: unexpected end of hex escape",
            NeverSees,
        ),
        (
            "{\"title\": 1e999}",
            "the plan file is not JSON, line 1, column 11: number out of range",
            NeverSees,
        ),
        ("{", "the plan file is not JSON, line 1, column 1: EOF while parsing an object", NeverSees),
    ];
    rows.into_iter().map(|(text, said, schema)| (text, said.to_owned(), schema)).collect()
}

#[test]
fn each_bad_file_is_refused_with_its_place_and_what_was_meant() {
    let differing: Vec<_> = bad_files()
        .into_iter()
        .map(|(text, said, _)| (text, parse(text).unwrap_err(), said))
        .filter(|(_, found, said)| found != said)
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn the_schema_refuses_what_the_parser_refuses() {
    let validator = schema();
    for (text, _, expected) in bad_files() {
        let value = node(text).ok().and_then(|node| node.to_json().ok());
        let found = match value {
            None => NeverSees,
            Some(value) if validator.is_valid(&value) => CannotSay,
            Some(_) => Refuses,
        };
        assert_eq!(found, expected, "{text}");
    }
    assert!(bad_files().iter().filter(|(_, _, schema)| *schema == Refuses).count() >= 25);
}

#[test]
fn too_large_and_not_text_are_refused() {
    let exactly = format!("title = 'x'\n#{}", "y".repeat(PLAN_FILE_BYTES_MAX - 13));
    assert_eq!(exactly.len(), PLAN_FILE_BYTES_MAX);
    parse(&exactly).unwrap();
    assert_eq!(parse(&format!("{exactly}y")).unwrap_err(), "the plan file is longer than 1048576 bytes");
    let not_text = PlanFile::parse(b"title = 'x'\n# \xc3\xa4\xff", None).unwrap_err();
    assert_eq!(not_text.to_string(), "the plan file is not UTF-8, line 2, column 4");
}

#[test]
fn the_format_is_seen_or_asked_for() {
    let format = |text: &str| PlanFile::parse(text.as_bytes(), None).unwrap().format;
    assert_eq!(format("\u{feff} \n{\"title\": \"x\"}"), PlanFormat::Json);
    assert_eq!(format("\u{feff}title = 'x'"), PlanFormat::Toml);
    let asked = |text: &str, format| PlanFile::parse(text.as_bytes(), Some(format)).unwrap_err().to_string();
    assert_eq!(
        asked("[]", PlanFormat::Json),
        "`plan`, line 1, column 1, is a list: expected an object with a title and steps"
    );
    assert!(asked("title = 'x'", PlanFormat::Json).starts_with("the plan file is not JSON, line 1"));
    assert!(asked("{}", PlanFormat::Toml).starts_with("the plan file is not TOML, line 1"));
    let singular = "{\"title\": \"x\", \"step\": [{\"id\": \"a\", \"step\": [{\"id\": \"b\"}]}]}";
    assert_eq!(parse(singular).unwrap().steps[0].steps[0].id, "b");
}

#[test]
fn hostile_files_are_refused_quickly_and_without_a_crash() {
    let megabyte = PLAN_FILE_BYTES_MAX - 64;
    let json_steps = |levels: usize| {
        format!(
            "{{\"title\":\"x\",\"steps\":{}[]{}}}",
            "[{\"id\":\"a\",\"steps\":".repeat(levels),
            "}]".repeat(levels)
        )
    };
    let toml_steps = |levels: usize| {
        let mut text = "title = 'x'\n".to_owned();
        for level in 1..=levels {
            writeln!(text, "[[{}]]\nid = 'a'", vec!["step"; level].join(".")).unwrap();
        }
        text
    };
    let mut names = String::from("{\"title\":\"x\",\"steps\":[");
    (0..40_000).for_each(|_| names.push_str("{\"id\":\"a\",\"odd\":1},"));
    let unknown: String = (0..60_000).map(|at| format!("k{at} = 1\n")).collect();
    let twice = format!("{unknown}k0 = 2");
    let wide = format!("title = 'x'\n{}", "[[step]]\nid='a'\n".repeat(60_000));
    for text in [
        "[".repeat(megabyte),
        format!("a = {}", "[".repeat(megabyte)),
        format!("a = {}", "{a=".repeat(megabyte / 3)),
        format!("{} = 1", vec!["a"; megabyte / 2].join(".")),
        format!("[{}]", vec!["a"; megabyte / 2].join(".")),
        format!("{{\"a\":{}", "[".repeat(megabyte)),
        format!("{{\"a\":{}{}}}", "[".repeat(megabyte / 2), "]".repeat(megabyte / 2)),
        "{\"a\":".repeat(megabyte / 5),
        format!("{{\"title\":\"x\",\"context\":{{\"a\":{}{}}}}}", "[".repeat(60), "]".repeat(60)),
        format!("title = 'x'\ncontext.a = {}{}", "[".repeat(40), "]".repeat(40)),
        json_steps(49),
        json_steps(63),
        json_steps(10_000),
        toml_steps(49),
        toml_steps(100),
        format!("{}null]}}", names),
        unknown,
        twice,
        wide,
        format!("title = 'x'\nid = '{}'", "y".repeat(megabyte - 64)),
        format!("{} = 1", "y".repeat(megabyte)),
        format!("title = 'x'\nsandbox.kind = '{}'", "y".repeat(megabyte - 64)),
    ] {
        let begin: String = text.chars().take(60).collect();
        let start = Instant::now();
        let error = PlanFile::parse(text.as_bytes(), None).unwrap_err();
        assert!(all(&error).len() <= 100 && all(&error).iter().all(|said| said.len() < 700), "{begin}");
        assert!(start.elapsed() < Duration::from_secs(20), "{begin}: {:?}", start.elapsed());
    }
    parse(&json_steps(48)).unwrap();
    parse(&toml_steps(48)).unwrap();
    assert!(parse(&toml_steps(49)).unwrap_err().contains("steps may nest at most 48 levels deep"));
    assert!(parse(&json_steps(49)).unwrap_err().contains("steps may nest at most 48 levels deep"));
}

#[test]
fn a_plan_has_a_choice_for_its_interrupted_steps_and_a_step_another() {
    let text = "title = 'x'\non_interrupted = 'fail'\n[[step]]\nid = 'a'\n[[step]]\nid = 'b'\non_interrupted = 'done'\n[[step]]\nid = 'c'\n[[step.step]]\nid = 'd'";
    let spec = parse(text).unwrap();
    let choices: Vec<OnInterrupt> = spec.steps.iter().map(|step| step.on_interrupt).collect();
    assert_eq!(choices, [OnInterrupt::Fail, OnInterrupt::Done, OnInterrupt::Fail]);
    assert_eq!(spec.steps[2].steps[0].on_interrupt, OnInterrupt::Fail);
    // In JSON it may stand behind the steps.
    let spec =
        parse("{\"title\": \"x\", \"steps\": [{\"id\": \"a\"}], \"on_interrupted\": \"rerun\"}").unwrap();
    assert_eq!(spec.steps[0].on_interrupt, OnInterrupt::Rerun);
    let error = parse("title = 'x'\non_interrupted = 'explode'").unwrap_err();
    assert!(error.contains("is none of rerun, fail, done, ask"), "{error}");
}

#[test]
fn the_page_about_plan_files_knows_every_key_and_its_examples_are_understood() {
    let page = include_str!("../../../../../docs/plan-files.md");
    let sections = [
        ("", reading::OF_PLAN),
        ("sandbox.", reading::OF_SANDBOX),
        ("checkpoints.", reading::OF_CHECKPOINTS),
        ("step.", reading::OF_STEP),
    ];
    for (section, keys) in sections {
        for key in keys {
            assert!(page.contains(&format!("| `{section}{key}` |")), "{section}{key} is undocumented");
        }
    }
    let words = Milestone::ALL.iter().map(|word| word.as_str());
    let words = words.chain(OnInterrupt::ALL.iter().map(|word| word.as_str()));
    for word in words.chain(SandboxKind::ALL.iter().map(|word| word.as_str())) {
        assert!(page.contains(&format!("`{word}`")), "{word} is undocumented");
    }
    let mut seen = 0;
    for fence in ["```toml\n", "```json\n"] {
        for example in page.split(fence).skip(1).filter_map(|rest| rest.split("```").next()) {
            parse(example).unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
    for name in examples().keys() {
        assert!(page.contains(&format!("(plans/{name})")), "{name} is not linked");
    }
}
