//! Checkpoints of sessions in a git repository (R7.3, R7.4).

use super::{Repository, exit, text};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

const ID: &str = "0190f3a0-0000-7000-8000-000000000001";

fn create(repository: &Repository, more: &[&str]) -> Value {
    let args = [&["create", "--session-id", ID, "--json"], more].concat();
    let answer = repository.sandbox.json(&args);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    answer["data"]["checkpoint"].clone()
}

/// Takes a checkpoint by the tool of MCP, within a session. Returns true if it was taken.
fn mcp_checkpoint(repository: &Repository) -> bool {
    let mut server = repository.sandbox.command(&["mcp"]);
    server.env("SAFEPOINT_SESSION_ID", ID).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = server.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut send = |line: &str| writeln!(input, "{line}").unwrap();
    send(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    answers.next().unwrap().unwrap();
    send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    send(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"checkpoint","arguments":{"label":"by mcp"}}}"#,
    );
    let is_answer = |line: &String| line.contains("\"id\":2");
    let answer = answers.map_while(Result::ok).find(is_answer).unwrap_or_default();
    drop(input);
    child.wait().unwrap();
    answer.contains("checkpoint") && !answer.contains("\"isError\":true")
}

fn tags(repository: &Repository) -> Vec<String> {
    repository.git(&["tag"]).lines().map(str::to_owned).collect()
}

#[test]
fn a_checkpoint_of_a_session_is_a_commit_and_a_tag() {
    let Some(repository) = Repository::new() else { return };
    repository.sandbox.write("a", "2\n");
    repository.sandbox.write("untracked", "u\n");
    repository.git(&["add", "a"]);
    let before = repository.place();
    let checkpoint = create(&repository, &["-m", "two"]);
    assert_eq!(repository.place(), before);
    let (sha, tag) = (text(&checkpoint["commit_sha"]), text(&checkpoint["tags"][0]));
    assert_eq!(tags(&repository), [tag]);
    assert_eq!(repository.git(&["rev-parse", &format!("refs/tags/{tag}")]), sha);
    assert_eq!(repository.git(&["show", &format!("{sha}:untracked")]), "u");
    repository.is_sound();
}

#[test]
fn a_clean_tree_is_tagged_at_head() {
    let Some(repository) = Repository::new() else { return };
    let head = repository.git(&["rev-parse", "HEAD"]);
    let checkpoint = create(&repository, &["-m", "clean"]);
    assert_eq!((text(&checkpoint["commit_sha"]), text(&checkpoint["commit_message"])), (&*head, "one"));
    assert_eq!(tags(&repository), [format!("checkpoint-{}", text(&checkpoint["id"]))]);
    // By name, `--git` makes a commit of its own.
    assert_ne!(text(&repository.create(&[])["commit_sha"]), head);
}

#[test]
fn nothing_else_makes_commits() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    sandbox.write("plan.toml", "title = 'x'\nid = 'x'\n[[step]]\nid = 'a'\nrun = 'true'\n");
    sandbox.run(&["plan", "new", "plan.toml"]);
    for args in [
        &["create"][..],
        &["run", "--", "true"],
        &["emergency"],
        &["plan", "checkpoint", "create", "x"],
        &["plan", "run", "x"],
        &["create", "--scope", "workflow", "--plan", "x", "--session-id", ID],
        &["create", "--scope", "framework", "--session-id", ID],
    ] {
        let output = sandbox.command(args).env("SAFEPOINT_SESSION_ID", ID).output().unwrap();
        assert_eq!(exit(&output), 0, "{args:?}: {output:?}");
        assert!(tags(&repository).is_empty(), "{args:?}");
    }
    let before = sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len();
    for event in ["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"] {
        let text = format!(
            "{{\"hook_event_name\": \"{event}\", \"session_id\": \"{ID}\", \"cwd\": {:?}, \"prompt\": \"go\", \
             \"tool_name\": \"Bash\", \"tool_input\": {{\"command\": \"rm -rf x\"}}}}",
            sandbox.path("project")
        );
        sandbox.write("a", event);
        let mut hook = sandbox.command(&["hook", "claude"]);
        hook.env("SAFEPOINT_SESSION_ID", ID).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = hook.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(tags(&repository).is_empty(), "{event}");
    }
    let after = sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len();
    assert!(after > before, "the hooks took checkpoints");
    assert!(mcp_checkpoint(&repository), "the tool of MCP took one");
    assert!(tags(&repository).is_empty());
    assert_eq!(exit(&sandbox.output(&["rollback", "@~1"])), 0);
    assert!(tags(&repository).is_empty());
    fs::write(sandbox.path("home/config.toml"), "[sessions]\ncommit = false\n").unwrap();
    assert_eq!(create(&repository, &[])["commit_sha"], Value::Null);
    assert!(tags(&repository).is_empty());
}

#[test]
fn outside_a_repository_and_with_a_repository_that_is_read_only_a_session_has_its_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    fs::write(repository.path(".git/refs/tags"), "").unwrap_err();
    fs::remove_dir(repository.path(".git/refs/tags")).unwrap();
    fs::write(repository.path(".git/refs/tags"), "no folder").unwrap();
    let answer = sandbox.json(&["create", "--session-id", ID, "--json"]);
    assert_eq!(
        (answer["exit_code"].as_i64(), &answer["data"]["checkpoint"]["commit_sha"]),
        (Some(0), &Value::Null)
    );
    assert!(answer["messages"].to_string().contains("no commit was made of it"), "{answer:#}");
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    assert_eq!(create(&repository, &[])["commit_sha"], Value::Null);
}

#[test]
fn prune_and_delete_remove_the_tags() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let mut made = Vec::new();
    for state in ["2\n", "3\n", "4\n"] {
        sandbox.write("a", state);
        made.push(text(&create(&repository, &[])["id"]).to_owned());
    }
    repository.git(&["tag", "mine"]);
    assert_eq!(exit(&sandbox.output(&["delete", &made[0], "--yes"])), 0);
    assert_eq!(
        tags(&repository),
        [format!("checkpoint-{}", made[1]), format!("checkpoint-{}", made[2]), "mine".into()]
    );
    let prune = ["prune", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s"];
    assert_eq!(exit(&sandbox.output(&prune)), 0);
    assert_eq!(tags(&repository), [format!("checkpoint-{}", made[2]), "mine".into()]);
}

#[test]
fn a_tag_that_prune_cannot_remove_is_reported() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    for state in ["2\n", "3\n", "4\n"] {
        sandbox.write("a", state);
        create(&repository, &[]);
    }
    let tagged = tags(&repository);
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    let prune = ["prune", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s", "--json"];
    let answer = sandbox.json(&prune);
    let left: Vec<&Value> =
        answer["messages"].as_array().unwrap().iter().filter(|it| it["code"] == "tags_not_removed").collect();
    assert_eq!((&answer["status"], left.len()), (&"ok".into(), 2), "{answer:#}");
    assert!(tagged[..2].iter().all(|tag| left.iter().any(|it| text(&it["text"]).contains(tag))), "{left:#?}");
    // So is one that the next checkpoint prunes.
    fs::write(
        sandbox.path("home/config.toml"),
        "[retention]\nkeep_last = 1\nkeep_within = \"0s\"\nthin_daily_for = \"0s\"\n",
    )
    .unwrap();
    sandbox.write("a", "5\n");
    let answer = sandbox.json(&["create", "-m", "five", "--json"]);
    assert!(answer["messages"].to_string().contains("tags_not_removed"), "{answer:#}");
}

#[test]
fn the_form_for_programs_keeps_the_files_whatever_the_checkpoint_is() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let first = repository.git(&["rev-parse", "HEAD"]);
    // Taken without a commit: the commit of HEAD is noted.
    let plain = sandbox.command(&["create", "--json"]).env("SAFEPOINT_SESSION_ID", ID).output().unwrap();
    let plain: Value = serde_json::from_slice(&plain.stdout).unwrap();
    let plain = text(&plain["data"]["checkpoint"]["id"]).to_owned();
    sandbox.write("a", "2\n");
    let with_commit = create(&repository, &[]);
    repository.git(&["commit", "-q", "-a", "-m", "two"]);
    sandbox.write("a", "3\n");
    for (id, sha) in [(&*plain, &*first), (text(&with_commit["id"]), text(&with_commit["commit_sha"]))] {
        let answer = sandbox.json(&["rollback", "--session-id", ID, "--checkpoint-id", id, "--json"]);
        assert_eq!(answer["exit_code"], 0, "{answer:#}");
        assert_eq!(
            (repository.git(&["rev-parse", "main"]), sandbox.read("a")),
            (sha.to_owned(), "3\n".to_owned())
        );
        assert_eq!(repository.git(&["status", "--porcelain"]), " M a");
    }
    // By name, whatever the form is.
    assert_eq!(exit(&sandbox.output(&["rollback", &plain, "--mixed"])), 0);
    assert_eq!((repository.git(&["rev-parse", "main"]), sandbox.read("a")), (first, "3\n".to_owned()));
    // A checkpoint that is named is its files, also within a session.
    let place = repository.place();
    let back =
        sandbox.command(&["rollback", text(&with_commit["id"])]).env("SAFEPOINT_SESSION_ID", ID).output();
    assert_eq!(exit(&back.unwrap()), 0);
    assert_eq!((repository.place(), sandbox.read("a")), (place, "2\n".to_owned()));
}

#[test]
fn a_hard_reset_keeps_uncommitted_work_in_the_safety_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let checkpoint = create(&repository, &[]);
    let id = text(&checkpoint["id"]);
    sandbox.write("a", "staged\n");
    repository.git(&["add", "a"]);
    sandbox.write("a", "work\n");
    sandbox.write("untracked", "u\n");
    let before = (repository.place(), repository.git(&["status", "--porcelain"]));
    let hard = ["rollback", "--session-id", ID, "--checkpoint-id", id, "--hard-reset"];
    let text = sandbox.run(&hard);
    assert!(
        text.contains("uncommitted changes (1 staged, 1 modified, 1 untracked) are in the safety checkpoint"),
        "{text}"
    );
    assert_eq!(
        (sandbox.read("a"), repository.git(&["status", "--porcelain"])),
        ("1\n".into(), String::new())
    );
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!((repository.place(), repository.git(&["status", "--porcelain"])), before);
    assert_eq!((sandbox.read("a"), sandbox.read("untracked")), ("work\n".into(), "u\n".into()));
    assert_eq!(exit(&sandbox.output(&[&hard[..], &["--discard-uncommitted"]].concat())), 0);
    // Without a repository, it names the command for the files.
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    let answer = sandbox.json(&[&hard[..5], &["--json"]].concat());
    assert_eq!(answer["exit_code"], 12, "{answer:#}");
    assert!(answer["error"]["hints"].to_string().contains(&format!("safepoint rollback {id}")), "{answer:#}");
}

#[test]
fn a_session_notes_where_git_is_and_its_log_names_the_commit() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let made = sandbox.json(&["session", "create", "Add limits", "--session-id", ID, "--json"]);
    let context = &made["data"]["session"]["git_context"];
    assert_eq!(
        (text(&context["branch"]), text(&context["commit"])),
        ("main", &*repository.git(&["rev-parse", "HEAD"]))
    );
    sandbox.write("a", "2\n");
    let checkpoint = create(&repository, &["-m", "two"]);
    let log = sandbox.json(&["session", "export", ID, "--json"])["data"]["log"].clone();
    assert_eq!(log["summary"]["latest_checkpoint"], checkpoint["commit_sha"]);
    assert_eq!(log["checkpoints"][0]["tags"], checkpoint["tags"]);
}

#[test]
fn the_form_for_programs_stays_mixed_where_the_default_strategy_is_spelled_out() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let checkpoint = create(&repository, &[]);
    let (id, sha) = (text(&checkpoint["id"]), text(&checkpoint["commit_sha"]));
    repository.git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    sandbox.write("a", "work\n");
    sandbox.write("untracked", "u\n");
    let mixed = ["rollback", "--session-id", ID, "--checkpoint-id", id];
    let immediate = [&mixed[..], &["--strategy", "immediate"]].concat();
    assert_eq!(exit(&sandbox.output(&immediate)), 0);
    assert_eq!((sandbox.read("a"), sandbox.read("untracked")), ("work\n".into(), "u\n".into()));
    assert_eq!(repository.git(&["rev-parse", "main"]), sha);
    // A strategy that tries files has nothing to try, and its hint restores them by that strategy.
    for more in [&["--verify", "make test"][..], &["--until", "make test"], &["--strategy", "staged"]] {
        let told = sandbox.run(&[&mixed[..], more].concat());
        assert!(told.ends_with("--- exit 2\n") && told.contains("keeps the files"), "{more:?}: {told}");
        assert!(told.contains(&format!("safepoint rollback {id} {}", more[0])), "{more:?}: {told}");
    }
    assert_eq!((sandbox.read("a"), sandbox.read("untracked")), ("work\n".into(), "u\n".into()));
    let help = sandbox.run(&["rollback", "--help"]).replace('\n', " ");
    assert!(help.contains("--session-id with --checkpoint-id moves git and keeps the files"), "{help}");
}

#[test]
fn an_unchanged_repository_and_session_add_no_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let unchanged = |args: &[&str], session: bool| {
        let mut command = sandbox.command(&[args, &["--json"]].concat());
        if session {
            command.env("SAFEPOINT_SESSION_ID", ID);
        }
        let answer: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        answer["data"]["unchanged"].as_bool().unwrap_or_else(|| panic!("{answer:#}"))
    };
    let named = ["create", "--session-id", ID, "--if-changed"];
    assert!(!unchanged(&named, false));
    for _ in 0..3 {
        assert!(unchanged(&named, false), "its own tag is no change");
    }
    assert_eq!(tags(&repository).len(), 1);
    // Git renews the times in its index without a change of what is tracked.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(repository.path("a")).unwrap().set_modified(later).unwrap();
    let index = fs::read(repository.path(".git/index")).unwrap();
    repository.git(&["status"]);
    assert_ne!(fs::read(repository.path(".git/index")).unwrap(), index, "the index was refreshed");
    assert!(unchanged(&named, false));
    // A session on record counts its checkpoints, which is no change of it.
    sandbox.run(&["session", "create", "Add limits", "--session-id", ID]);
    assert!(!unchanged(&["create"], true), "the session is captured now");
    assert!(unchanged(&["create"], true) && unchanged(&["create", "--if-changed"], true));
    // What matters adds one each: a staged file, a tag, a branch, a status of the session.
    fs::set_permissions(repository.path("a"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    repository.git(&["update-index", "--chmod=+x", "a"]);
    assert!(!unchanged(&["create"], true));
    repository.git(&["tag", "checkpoint-of-mine"]);
    assert!(!unchanged(&["create"], true));
    repository.git(&["branch", "aside"]);
    assert!(!unchanged(&["create"], true));
    sandbox.run(&["session", "transition", ID, "planning"]);
    assert!(!unchanged(&["create"], true));
    assert!(unchanged(&["create"], true));
}

#[test]
fn an_unchanged_repository_that_is_captured_whole_adds_no_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    fs::create_dir_all(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
    let unchanged = || {
        let args = ["create", "--session-id", ID, "--if-changed", "--json"];
        sandbox.json(&args)["data"]["unchanged"].clone()
    };
    assert_eq!((unchanged(), unchanged(), unchanged()), (json!(false), json!(true), json!(true)));
    repository.git(&["config", "user.name", "else"]);
    assert_eq!((unchanged(), unchanged()), (json!(false), json!(true)));
}

#[test]
fn a_session_named_by_its_checkpoints_alone_has_its_git_context() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    fs::create_dir_all(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/config.toml"), "[sessions]\ncommit = false\n").unwrap();
    let head = repository.git(&["rev-parse", "HEAD"]);
    create(&repository, &["-m", "one"]);
    repository.git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    create(&repository, &["-m", "two"]);
    let log = sandbox.json(&["session", "export", ID, "--json"])["data"]["log"].clone();
    let top = sandbox.path("project");
    assert_eq!(log["git_context"], json!({ "branch": "main", "commit": head, "top": top }), "as it began");
    assert_eq!(log["recorded"], false);
}

#[test]
fn refusals_of_the_command_line_are_on_record() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    let checkpoint = create(&repository, &["-m", "no state"]);
    fs::rename(sandbox.path("away"), repository.path(".git")).unwrap();
    let id = text(&checkpoint["id"]);
    assert_eq!(exit(&sandbox.output(&["rollback", id, "--hard-reset"])), 12);
    assert_eq!(exit(&sandbox.output(&["rollback", "--session-id", ID, "--checkpoint-id", id])), 12);
    assert_eq!(exit(&sandbox.output(&["rollback", id, "--hard-reset", "--dry-run"])), 12);
    let history = sandbox.json(&["history", "--json"])["data"]["history"].clone();
    let results: Vec<&Value> = history.as_array().unwrap().iter().map(|it| &it["result"]).collect();
    assert_eq!(results, ["refused", "refused"], "{history:#}");
    assert!(text(&history[0]["error"]).contains("holds no state of git") && text(&history[0]["to"]) == id);
}
