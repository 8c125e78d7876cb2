//! `session`: from the request to the report, with its counters; and command lines of programs.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const ID: &str = "0193a6b4-8000-7000-8000-000000000001";

/// Project and a recorded session.
fn with_session() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    let made = sandbox.json(&["session", "create", "Add rate limiting", "--session-id", ID, "--json"]);
    assert_eq!(made["data"]["session"]["session_id"], ID);
    sandbox
}

fn session(sandbox: &Sandbox) -> Value {
    sandbox.json(&["session", "get", ID, "--json"])["data"]["session"].clone()
}

/// Returns the counters, without durations.
fn counted(sandbox: &Sandbox) -> Value {
    let mut counted = session(sandbox)["statistics"].clone();
    counted.as_object_mut().unwrap().remove("duration_ms").unwrap();
    counted
}

/// Runs a command for the session of the environment.
fn within(sandbox: &Sandbox, args: &[&str]) {
    let output = sandbox.command(args).env("SAFEPOINT_SESSION_ID", ID).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the exit code, message and first hint of a failure.
fn refused(sandbox: &Sandbox, args: &[&str]) -> (i64, String, String) {
    let answer = sandbox.json(&[args, &["--json"]].concat());
    let error = &answer["error"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (answer["exit_code"].as_i64().unwrap(), text(&error["message"]), text(&error["hints"][0]))
}

#[test]
fn from_the_request_to_the_end() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["session", "list"]), @r#"
    There are no sessions yet. Make one: safepoint session create "what is asked for"
    --- exit 0
    "#);
    let create = ["session", "create", "Add rate limiting", "--configuration", "{\"rate\": 100}"];
    assert_snapshot!(sandbox.run(&create), @r#"
    New session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting", initializing
    Checkpoints of it: safepoint create --session-id 019c13ed-8860-05e5-910a-2dec89025cc1
    Or for all that follows: export SAFEPOINT_SESSION_ID=019c13ed-8860-05e5-910a-2dec89025cc1
    --- exit 0
    "#);
    let listed = sandbox.json(&["session", "list", "--json"]);
    let id = listed["data"]["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    assert_snapshot!(sandbox.run(&["session", "transition", &id, "planning"]), @r#"
    Session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting" is planning now
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["session", "transition", &id, "paused"]), @r#"
    Session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting" is paused now
    It goes on with: safepoint session transition 019c13ed-8860-05e5-910a-2dec89025cc1 planning
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["session", "transition", &id, "implementing"]), @r#"
    --- stderr
    error: cannot make session "019c13ed-8860-05e5-910a-2dec89025cc1" implementing: session 019c13ed-8860-05e5-910a-2dec89025cc1 is paused and cannot become implementing
    Nothing was changed.
    hint: `safepoint session get 019c13ed-8860-05e5-910a-2dec89025cc1` shows where it is.
    hint: From paused it can become planning, failed.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["session", "get", &id]), @"
    Session 019c13ed-8860-05e5-910a-2dec89025cc1
      request       Add rate limiting
      status        paused, from planning
      created       2026-01-31 12:01:01Z, 4 minutes ago
      changed       2026-01-31 12:04:00Z, 2 minutes ago
      lasts         4 min 59 s
      tasks         0 done, 0 failed
      decisions     0
      checkpoints   0
      recoveries    0 rollbacks
      configuration rate = 100
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["session", "update", &id, "request=Add rate limiting per user"]), @r#"
    Changed session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting per user"
    --- exit 0
    "#);
    sandbox.run(&["session", "create", "Something else"]);
    assert_snapshot!(sandbox.run(&["session", "list"]), @"
    SESSION                               STATUS        CHANGED         REQUEST
    019c13f3-f100-a9e8-9e56-51b0ef953636  initializing  59 seconds ago  Something else
    019c13ed-8860-05e5-910a-2dec89025cc1  paused        2 minutes ago   Add rate limiting per user
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["session", "list", "--status", "validating"]), @"
    No session fits what you asked for.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["session", "transition", &id, "failed"]), @r#"
    Session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting per user" is failed now
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["session", "get", &id]), @"
    Session 019c13ed-8860-05e5-910a-2dec89025cc1
      request       Add rate limiting per user
      status        failed
      created       2026-01-31 12:01:01Z, 10 minutes ago
      changed       2026-01-31 12:11:00Z, 1 minute ago
      finished      2026-01-31 12:11:00Z, 1 minute ago, after 9 min 59 s
      tasks         0 done, 0 failed
      decisions     0
      checkpoints   0
      recoveries    0 rollbacks
      configuration rate = 100
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["session", "delete", &id]), @r#"
    --- stderr
    error: cannot delete session "019c13ed-8860-05e5-910a-2dec89025cc1": cannot ask for confirmation: no terminal
    Nothing was changed.
    hint: Confirm with --yes.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["session", "delete", &id, "--yes"]), @r#"
    Deleted session 019c13ed-8860-05e5-910a-2dec89025cc1 "Add rate limiting per user"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["session", "get", &id]), @r#"
    --- stderr
    error: cannot show session "019c13ed-8860-05e5-910a-2dec89025cc1": there is no session 019c13ed-8860-05e5-910a-2dec89025cc1 on record
    hint: `safepoint session list` shows the sessions. A checkpoint may name one that is on no record.
    --- exit 10
    "#);
}

#[test]
fn with_quiet_the_id_is_all() {
    let sandbox = Sandbox::new();
    let made = String::from_utf8(sandbox.output(&["session", "create", "-q", "Work"]).stdout).unwrap();
    let got = sandbox.json(&["session", "get", made.trim(), "--json"]);
    assert_eq!((got["data"]["session"]["session_id"].as_str(), made.len()), (Some(made.trim()), 37));
}

#[test]
fn an_answer_for_programs() {
    let sandbox = with_session();
    let mut session = session(&sandbox);
    assert!(session["statistics"]["duration_ms"].as_u64().unwrap() > 0);
    session["statistics"]["duration_ms"] = json!(0);
    let at = session["created_at"].clone();
    assert_eq!(
        session,
        json!({
            "session_id": ID,
            "request": "Add rate limiting",
            "status": "initializing",
            "paused_from": null,
            "statistics": {
                "tasks_completed": 0, "tasks_failed": 0, "decisions_made": 0, "checkpoints_created": 0,
                "error_recoveries": 0, "duration_ms": 0,
            },
            "configuration": {},
            "recorded": true,
            "git_context": null,
            "created_at": at, "updated_at": at, "finished_at": null,
        })
    );
}

#[test]
fn what_happens_is_counted_by_itself() {
    let sandbox = with_session();
    sandbox.write(
        "plan.toml",
        "title = 'Work'\nid = 'work'\n[checkpoints]\non = []\n[[step]]\nid = 'a'\n[[step]]\nid = 'b'\n",
    );
    sandbox.write("notes.txt", "changed\n");
    for line in [
        "create",
        "plan new plan.toml",
        "plan step start work a",
        "plan step finish work a",
        "plan step start work b",
        "plan decide work --question Which --choice this",
        "plan step fail work b",
        "rollback first --path notes.txt",
        "undo",
        "run -- true",
    ] {
        within(&sandbox, &line.split(' ').collect::<Vec<_>>());
    }
    let expected = json!({
        "tasks_completed": 1, "tasks_failed": 1, "decisions_made": 1, "checkpoints_created": 4, "error_recoveries": 2,
    });
    assert_eq!(counted(&sandbox), expected);
    // Without the variable nothing belongs to the session, and an invalid id does not block a rollback.
    sandbox.run(&["create"]);
    let odd = sandbox.command(&["rollback", "first"]).env("SAFEPOINT_SESSION_ID", "../x").output().unwrap();
    assert_eq!(odd.status.code(), Some(0));
    assert_eq!(counted(&sandbox), expected);
}

#[test]
fn the_command_lines_of_programs_work_as_they_are_written() {
    let sandbox = with_session();
    let run = |line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        let output = sandbox.output(&args);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let create =
        format!("create --session-id {ID} --description D --phase plan --checkpoint-type phase_complete");
    run(&create);
    let listed: Value = serde_json::from_str(&run(&format!("list --session-id {ID} --output json"))).unwrap();
    let found = &listed["data"]["checkpoints"][0];
    assert_eq!(
        json!([found["session_id"], found["label"], found["phase"], found["reason"]]),
        json!([ID, "D", "plan", "phase_complete"])
    );
    let (id, uuid) = (found["id"].as_str().unwrap(), found["uuid"].as_str().unwrap());
    assert!(run(&format!("list --session-id {ID} --output pretty")).contains(id));
    for name in [id, uuid] {
        assert!(run(&format!("get --session-id {ID} --checkpoint-id {name}")).contains(id));
    }
    sandbox.wreck();
    // That form is about git: without a repository it names the command for the files.
    let form = ["rollback", "--session-id", ID, "--checkpoint-id", uuid];
    let (code, message, _) = refused(&sandbox, &form);
    assert_eq!((code, message), (12, format!("checkpoint {id} holds no state of git")));
    assert!(sandbox.run(&form).contains(&format!("hint: Restore the files alone: safepoint rollback {id}")));
    assert!(run(&format!("rollback {id} --session-id {ID}")).contains("Rolled back"));
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    let expected = json!({
        "tasks_completed": 0, "tasks_failed": 0, "decisions_made": 0, "checkpoints_created": 2, "error_recoveries": 1,
    });
    assert_eq!(counted(&sandbox), expected);
    run("validate");
    // A checkpoint of another session does not belong to this one.
    let other = sandbox.json(&["create", "--json"])["data"]["checkpoint"]["id"].clone();
    let other = other.as_str().unwrap();
    let (code, message, _) = refused(&sandbox, &["delete", "--session-id", ID, "--checkpoint-id", other]);
    assert_eq!((code, message), (10, format!("no checkpoint is called {other:?}")));
    assert!(
        run(&format!("delete --session-id {ID} --checkpoint-id {uuid} --keep-tag"))
            .contains("Deleted 1 checkpoint")
    );
    run(&create);
    let newest = sandbox.json(&["show", "@", "--json"])["data"]["checkpoint"]["id"].clone();
    run(&format!("delete --session-id {ID} --checkpoint-id {}", newest.as_str().unwrap()));
    // Without a full id it needs a confirmation.
    run(&create);
    let (code, _, hint) = refused(&sandbox, &["delete", "--session-id", ID, "--checkpoint-id", "@"]);
    assert_eq!((code, hint.as_str()), (2, "Confirm with --yes."));
}

#[test]
fn what_is_needed_for_a_session_need_not_be_on_record() {
    let sandbox = Sandbox::with_checkpoint();
    let created = sandbox.json(&["create", "--session-id", ID, "--json"]);
    assert_eq!(created["data"]["checkpoint"]["session_id"], ID);
    // It can be shown and exported all the same.
    let shown = session(&sandbox);
    assert_eq!((&shown["recorded"], &shown["request"]), (&json!(false), &json!("")));
    assert_eq!(shown["statistics"]["checkpoints_created"], 1);
    let log = sandbox.json(&["session", "export", ID, "--json"])["data"]["log"].clone();
    assert_eq!(log["summary"]["total_checkpoints"], 1);
    assert!(sandbox.run(&["session", "get", ID]).contains("only checkpoints name this session"));
    let unknown = "0193a6b4-8000-7000-8000-000000000009";
    let (code, message, _) = refused(&sandbox, &["session", "get", unknown]);
    assert_eq!((code, message), (10, format!("there is no session {unknown} on record")));
    sandbox.run(&["session", "create", "Late", "--session-id", ID]);
    assert_eq!(counted(&sandbox)["checkpoints_created"], 1);
}

#[test]
fn counts_are_reported_from_outside() {
    let sandbox = with_session();
    let set = ["session", "update", ID, "tasks_completed=5", "tasks_failed=+2", "decisions_made=1", "--json"];
    let answer = sandbox.json(&set);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    sandbox.run(&["session", "update", ID, "tasks_completed=+1"]);
    let counted = counted(&sandbox);
    assert_eq!(
        json!([counted["tasks_completed"], counted["tasks_failed"], counted["decisions_made"]]),
        json!([6, 2, 1])
    );
    for wrong in ["tasks_completed=-1", "tasks_failed=x", "decisions_made=++1", "checkpoints_created=1"] {
        assert_eq!(refused(&sandbox, &["session", "update", ID, wrong]).0, 2, "{wrong}");
    }
}

#[test]
fn what_can_be_set_is_set() {
    let sandbox = with_session();
    let set = [
        "request=A=B",
        "configuration={\"old\": 1}",
        "configuration.limits.rate=100",
        "configuration.model=\"large\"",
        "git_context={\"branch\": \"main\"}",
    ];
    let answer = sandbox.json(&[&["session", "update", ID, "--json"][..], &set].concat());
    let session = &answer["data"]["session"];
    assert_eq!(session["request"], "A=B");
    assert_eq!(session["configuration"], json!({ "old": 1, "limits": { "rate": 100 }, "model": "large" }));
    assert_eq!(session["git_context"], json!({ "branch": "main" }));
    sandbox.run(&["session", "update", ID, "git_context=null"]);
    assert_eq!(self::session(&sandbox)["git_context"], Value::Null);
    let ulid = "01JEKB9000E008000000000001";
    assert_eq!(sandbox.json(&["session", "get", ulid, "--json"])["data"]["session"]["session_id"], ID);
}

#[test]
fn wrong_uses() {
    let sandbox = with_session();
    let before = session(&sandbox);
    let what = "What can be set: request=TEXT, configuration=JSON, configuration.KEY=JSON, git_context=JSON, \
                tasks_completed=NUMBER, tasks_failed=NUMBER, decisions_made=NUMBER.";
    let shell = "Texts stand in double quotes inside of those of the shell, as in '\"done\"'.";
    for (change, message, hint) in [
        ("color=red", "\"color\" cannot be set", what),
        ("request", "\"request\" is not KEY=VALUE", what),
        ("session_id=x", "\"session_id\" cannot be set", what),
        ("configuration.=1", "\"configuration.\" has an empty name in it", what),
        ("configuration.a..b=1", "\"configuration.a..b\" has an empty name in it", what),
        (
            "status=failed",
            "the status is not set, it goes from one to the next",
            "Use `safepoint session transition ID STATUS`.",
        ),
        ("configuration.a=large", "configuration.a is not JSON: expected value at line 1 column 1", shell),
        (
            "configuration=1",
            "configuration is no object",
            "Objects are written as in '{\"branch\": \"main\"}'.",
        ),
        (
            "configuration=null",
            "configuration is no object",
            "Objects are written as in '{\"branch\": \"main\"}'.",
        ),
        ("git_context=[]", "git_context is no object", "Objects are written as in '{\"branch\": \"main\"}'."),
        ("request=", "invalid request: it is empty", "Correct the value, then try again."),
    ] {
        let expected = (2, message.to_owned(), hint.replace(" ID ", &format!(" {ID} ")));
        assert_eq!(refused(&sandbox, &["session", "update", ID, "configuration.ok=1", change]), expected);
    }
    assert_snapshot!(sandbox.run(&["session", "transition", ID, "completed"]), @r#"
    --- stderr
    error: cannot make session "0193a6b4-8000-7000-8000-000000000001" completed: session 0193a6b4-8000-7000-8000-000000000001 is initializing and cannot become completed
    Nothing was changed.
    hint: `safepoint session get 0193a6b4-8000-7000-8000-000000000001` shows where it is.
    hint: From initializing it can become planning, failed, paused.
    --- exit 12
    "#);
    let again = ["session", "create", "Again", "--session-id", ID];
    let (code, message, _) = refused(&sandbox, &again);
    assert_eq!((code, message), (12, format!("session {ID} already exists in the catalog")));
    for (args, code) in [
        (&["session", "create", ""][..], 2),
        (&["session", "create", "  "], 2),
        (&["session", "create", "a", "--git-context", "x"], 2),
        (&["session", "create", "a", "--configuration", "[1]"], 2),
        (&["session", "transition", ID, "sleeping"], 2),
        (&["session", "list", "-n", "-1"], 2),
        (&["session", "update", ID], 2),
        (&["session", "export", ID, "--force"], 2),
        (&["session"], 2),
        (&["delete"], 2),
        (&["delete", "--session-id", "x", "--checkpoint-id", "@"], 2),
        (&["session", "transition", "0193a6b4-8000-7000-8000-000000000009", "planning"], 10),
    ] {
        assert_eq!(sandbox.output(args).status.code(), Some(code), "{args:?}");
    }
    assert_eq!(session(&sandbox)["request"], before["request"]);
    assert_eq!(session(&sandbox)["configuration"], json!({}));
}

#[test]
fn input_of_enemies_is_data() {
    let sandbox = with_session();
    for id in ["../../etc/passwd", "/", "' OR '1'='1", "0193a6b4-8000-7000-8000-00000000000g", "@", "é", ""]
    {
        for command in ["get", "delete", "export"] {
            let (code, message, _) = refused(&sandbox, &["session", command, id]);
            assert_eq!(code, 2, "{command} {id}");
            assert!(message.contains("is not an id"), "{message}");
        }
    }
    let giant = "x".repeat(100_000);
    let (code, message, _) = refused(&sandbox, &["session", "create", &giant]);
    assert_eq!((code, message.as_str()), (2, "invalid request: it has 100000 bytes; the maximum is 65536"));
    let deep = format!("configuration.{}=1", vec!["a"; 200].join("."));
    let (code, message, _) = refused(&sandbox, &["session", "update", ID, &deep]);
    assert_eq!(
        (code, message.as_str()),
        (2, "invalid configuration: values may nest at most 32 levels deep")
    );
    let evil = "red \u{1b}[31m\nline'; DROP TABLE sessions; --";
    sandbox.run(&["session", "update", ID, &format!("request={evil}"), "configuration.k\u{7}=\"\\u001b\""]);
    assert_eq!(session(&sandbox)["request"], evil);
    for args in
        [&["session", "get", ID][..], &["session", "list"], &["session", "transition", ID, "planning"]]
    {
        let told = sandbox.run(args);
        assert!(told.contains("red \\u{1b}[31m\\nline"), "{told}");
        assert!(!told.contains('\u{1b}') && !told.contains('\u{7}'), "{told}");
    }
}

#[test]
fn the_list_fits_on_a_terminal() {
    let sandbox = with_session();
    sandbox.run(&["session", "update", ID, &format!("request={}", "long ".repeat(100))]);
    sandbox.columns.set(100);
    let seen = sandbox.terminal(sandbox.command(&["session", "list"]));
    assert!(seen.lines().all(|line| line.chars().count() <= 100), "{seen}");
    assert!(seen.contains('…'), "{seen}");
    let told = sandbox.run(&["session", "list"]);
    assert!(told.lines().all(|line| line.chars().count() < 300), "{told}");
}

#[test]
fn deleting_asks() {
    let sandbox = with_session();
    sandbox.run(&["create", "--session-id", ID]);
    assert_snapshot!(sandbox.typed(sandbox.command(&["session", "delete", ID]), "n\n"), @r#"
    n
    Delete session 0193a6b4-8000-7000-8000-000000000001 "Add rate limiting"? Its
        checkpoints stay. This cannot be undone. [y/N] error: cannot delete session "0193a6b4-8000-7000-8000-000000000001": not
        confirmed
    Nothing was changed.
    hint: Answer y to go on, or give --yes.
    "#);
    assert_eq!(counted(&sandbox)["checkpoints_created"], 1);
    assert_snapshot!(sandbox.typed(sandbox.command(&["session", "delete", ID]), "y\n"), @r#"
    y
    Delete session 0193a6b4-8000-7000-8000-000000000001 "Add rate limiting"? Its
        checkpoints stay. This cannot be undone. [y/N] Deleted session 0193a6b4-8000-7000-8000-000000000001 "Add rate limiting"; its
        checkpoints stay
    "#);
    let left = sandbox.json(&["list", "--session-id", ID, "--json"]);
    assert_eq!(left["data"]["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn the_log_is_what_is_on_record() {
    let sandbox = with_session();
    let take = |reason: &str| {
        sandbox.json(&["create", "--session-id", ID, "--kind", "workflow", "--reason", reason, "--json"])["data"]
            ["checkpoint"]["id"]
            .clone()
    };
    let (first, second) = (take("phase_complete"), take("safe_state"));
    let text = sandbox.output(&["session", "export", ID]).stdout;
    let log: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&log["session_id"], &log["request"]), (&json!(ID), &json!("Add rate limiting")));
    assert_eq!(
        (&log["status"], &log["statistics"]["checkpoints_created"]),
        (&json!("initializing"), &json!(2))
    );
    assert!(log["generated_at"].is_string());
    let ids: Value = log["checkpoints"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, json!([second, first]));
    let newest = &log["checkpoints"][0];
    assert_eq!(
        json!([
            newest["checkpoint_id"],
            newest["timestamp"],
            newest["description"],
            newest["checkpoint_type"]
        ]),
        json!([newest["uuid"], newest["created_at"], "", "safe_state"])
    );
    assert!(newest["progress"].is_object() && newest["tags"].is_array() && newest["commit_sha"].is_null());
    let summary = &log["summary"];
    assert_eq!(
        (&summary["total_checkpoints"], &summary["latest_checkpoint_id"], &summary["latest_checkpoint"]),
        (&json!(2), &second, &Value::Null)
    );
    assert_eq!(summary["checkpoints_by_type"], json!({ "phase_complete": 1, "safe_state": 1 }));
    assert_eq!(summary["checkpoints_by_kind"], json!({ "workflow": 2 }));
    assert_eq!(summary["checkpoints_by_reason"], json!({ "phase_complete": 1, "safe_state": 1 }));
    assert_eq!(summary["checkpoints_used_for_rollback"], 0);
    let same = sandbox.json(&["summary", "--session-id", ID, "--json"])["data"]["summary"].clone();
    assert_eq!(same["checkpoints_by_reason"], summary["checkpoints_by_reason"]);
    // What Safepoint makes for itself is counted apart.
    sandbox.write("notes.txt", "late");
    sandbox.run(&["rollback", first.as_str().unwrap(), "--session-id", ID]);
    let log = sandbox.json(&["session", "export", ID, "--json"])["data"]["log"].clone();
    let summary = &log["summary"];
    assert_eq!(
        json!([
            summary["total_checkpoints"],
            summary["safety_checkpoints"],
            summary["checkpoints_used_for_rollback"]
        ]),
        json!([2, 1, 1])
    );
    assert_eq!(log["checkpoints"].as_array().unwrap().len(), 2);
}

#[test]
fn a_file_is_never_overwritten_silently() {
    let sandbox = with_session();
    let log = sandbox.path("project/log.json");
    assert_snapshot!(sandbox.run(&["session", "export", ID, "log.json"]), @"
    Wrote the log with 0 checkpoints to $T/project/log.json
    --- exit 0
    ");
    let written: Value = serde_json::from_slice(&fs::read(&log).unwrap()).unwrap();
    assert_eq!(written["session_id"], ID);
    fs::write(&log, "mine").unwrap();
    assert_snapshot!(sandbox.run(&["session", "export", ID, "log.json"]), @r#"
    --- stderr
    error: cannot export session "0193a6b4-8000-7000-8000-000000000001": $T/project/log.json is there already
    hint: Name another file, or replace this one with --force.
    --- exit 12
    "#);
    assert_eq!(fs::read(&log).unwrap(), b"mine");
    std::os::unix::fs::symlink("nowhere", sandbox.path("project/dangling")).unwrap();
    assert_eq!(sandbox.output(&["session", "export", ID, "dangling"]).status.code(), Some(12));
    assert_eq!(sandbox.output(&["session", "export", ID, "log.json", "--force"]).status.code(), Some(0));
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&log).unwrap()).unwrap()["session_id"], ID);
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o600, 0o600);
    for place in ["missing/log.json", "src"] {
        let (code, message, _) = refused(&sandbox, &["session", "export", ID, place, "--force"]);
        assert_eq!(
            (code, message),
            (1, format!("cannot write {}", sandbox.path("project").join(place).display()))
        );
    }
    // A failed export leaves nothing.
    let names = fs::read_dir(sandbox.path("project")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".safepoint-export")));
}

#[test]
fn a_session_goes_back_with_the_rest_or_alone() {
    let sandbox = with_session();
    sandbox.run(&["session", "transition", ID, "planning"]);
    let made = sandbox.json(&["create", "--session-id", ID, "-m", "planned", "--json"]);
    let parts: Vec<&str> = made["data"]["checkpoint"]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["kind"].as_str().unwrap())
        .collect();
    assert_eq!(parts, ["files", "session"]);
    assert_snapshot!(sandbox.run(&["show", "planned"]), @r#"
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD
      label     planned
      created   2026-01-31 12:03:01Z, 59 seconds ago
      kind      manual, reason manual
      scope     project
      session   0193a6b4-8000-7000-8000-000000000001
      holds     6 files and folders, 50 B
      changed   +0 ~0 -0
      stored    SIZE new in the store
      parent    01KG9YS9EGCQT0DH2X3200JHAF
      uuid      019c13ef-5d20-28f0-1d0b-14e4db018fed
      integrity <hash>
      keeps     the record of its session, planning
      left out:
        .git  git's own folder
    --- exit 0
    "#);
    sandbox.run(&["session", "transition", ID, "failed"]);
    sandbox.run(&["session", "update", ID, "configuration.model=\"small\""]);
    sandbox.write("notes.txt", "bad");
    assert_snapshot!(sandbox.run(&["rollback", "planned", "--part", "session", "--dry-run"]), @r#"
    Would roll back to 01KG9YYQ9053R1T2RMWKDG33ZD "planned", taken 3 minutes ago
      0 files restored, 0 files removed; a dry run: nothing was changed
      session 0193a6b4-8000-7000-8000-000000000001 would be planning again, from failed
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "planned", "--part", "session"]), @r#"
    Rolled back to 01KG9YYQ9053R1T2RMWKDG33ZD "planned", taken 4 minutes ago
      0 files restored, 0 files removed, read back and verified, in N ms
      session 0193a6b4-8000-7000-8000-000000000001 is planning again, from failed
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "bad");
    assert_snapshot!(sandbox.run(&["undo"]), @r#"
    Undid the last rollback: everything is as just before it
      0 files restored, 0 files removed, read back and verified, in N ms
      session 0193a6b4-8000-7000-8000-000000000001 is failed again, from planning
    Do it again with: safepoint redo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "planned"]), @r#"
    Rolled back to 01KG9YYQ9053R1T2RMWKDG33ZD "planned", taken 6 minutes ago
      1 file restored, 0 files removed, read back and verified, in N ms
      session 0193a6b4-8000-7000-8000-000000000001 is planning again, from failed
        ~ notes.txt  restored
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert_eq!(
        (&session(&sandbox)["status"], &session(&sandbox)["configuration"]),
        (&json!("planning"), &json!({}))
    );
    let answer = sandbox.json(&["undo", "--json"]);
    assert_eq!(
        answer["data"]["rollback"]["session"],
        json!({ "session_id": ID, "from": "planning", "to": "failed" })
    );
    // Also if only the configuration differs.
    sandbox.run(&["rollback", "planned", "--part", "session"]);
    sandbox.run(&["session", "update", ID, "configuration.model=\"small\""]);
    let told = sandbox.run(&["rollback", "planned", "--part", "session"]);
    assert!(told.contains(&format!("session {ID} is as it was, planning")), "{told}");
}
