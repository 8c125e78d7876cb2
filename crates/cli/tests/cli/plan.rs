//! `plan`: externally driven, step by step, and rolled back.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::Stdio;

const PLAN: &str = r#"
title = "Add rate limiting"
id = "limits"

[[step]]
id = "migrate"
title = "A table for the counters"

[[step]]
id = "api"

[[step.step]]
id = "handlers"

[[step.step]]
id = "docs"

[[step]]
id = "ship"
"#;
/// Project with a plan.
pub(crate) fn planned() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox.write("plan.toml", PLAN);
    assert_eq!(sandbox.output(&["plan", "new", "plan.toml"]).status.code(), Some(0));
    sandbox
}

/// Plan with one step done, a decision made, and a failed second step.
pub(crate) fn failed() -> (Sandbox, String) {
    let sandbox = planned();
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    sandbox.write("table.sql", "CREATE TABLE counters;\n");
    sandbox.run(&["plan", "step", "finish", "limits", "migrate", "--output", "{\"tables\": 1}"]);
    let decide =
        ["plan", "decide", "limits", "--question", "Where are the counters?", "--choice", "postgres"];
    let made = sandbox.output(&[&decide[..], &["--why", "It is there.", "--step", "migrate", "-q"]].concat());
    let decision = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    sandbox.run(&["plan", "context", "set", "limits", "database", "\"postgres\""]);
    sandbox.run(&["plan", "step", "start", "limits", "api/handlers"]);
    let decide = ["plan", "decide", "limits", "--question", "Which window?", "--choice", "sliding"];
    sandbox.run(&[&decide[..], &["--parent", &decision, "--alternative", "fixed"]].concat());
    sandbox.write("main.rs", "fn main() { limit() }\n");
    fs::remove_file(sandbox.path("project/table.sql")).unwrap();
    sandbox.run(&["plan", "step", "fail", "limits", "api/handlers", "--error", "2 tests fail"]);
    (sandbox, decision)
}

#[test]
fn new_from_a_file() {
    let sandbox = Sandbox::new();
    sandbox.write("plan.toml", PLAN);
    assert_snapshot!(sandbox.run(&["plan", "new", "plan.toml"]), @r#"
    New plan limits "Add rate limiting", ready
      [ ] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
    Begin with: safepoint plan step start limits migrate
    --- stderr
    Registered $T/project as a workspace.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "new", "plan.toml"]), @"
    --- stderr
    error: cannot record the plan: plan limits already exists in the catalog
    Nothing was changed.
    hint: Choose another id, or leave it out to get one.
    --- exit 12
    ");
    assert_snapshot!(sandbox.run(&["plan", "new", "plan.toml", "--id", "other", "--title", "Once more", "-q"]), @"
    other
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "list"]), @"
    PLAN    STATE  CHANGED        TITLE
    other   ready  1 minute ago   Once more
    limits  ready  2 minutes ago  Add rate limiting
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "list", "-q"]), @"
    other   ready  2 minutes ago  Once more
    limits  ready  3 minutes ago  Add rate limiting
    --- exit 0
    ");
}

#[test]
fn new_in_other_ways() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["plan", "new", "--title", "By hand"]), @r#"
    New plan 01kg9ys9egcqt0dh2x3200jhaf "By hand", draft
    Add a step: safepoint plan step add 01kg9ys9egcqt0dh2x3200jhaf STEP
    --- stderr
    Registered $T/project as a workspace.
    --- exit 0
    "#);
    let mut command = sandbox.command(&["plan", "new", "-", "-q"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"title": "From an agent", "id": "agent"}"#).unwrap();
    assert_snapshot!(sandbox.told(&child.wait_with_output().unwrap()), @"
    agent
    --- exit 0
    ");
    sandbox.write(
        "copy.toml",
        "title = 'In a copy'\nid = 'copy'\n[sandbox]\nkind = 'copy'\n[[step]]\nid = 'one'\n",
    );
    assert_snapshot!(sandbox.run(&["plan", "new", "copy.toml"]), @r#"
    New plan copy "In a copy", ready
      [ ] one
    Begin with: safepoint plan step start copy one
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "apply", "copy"]), @r#"
    --- stderr
    error: cannot apply plan "copy": the plan is ready and cannot become applied
    Nothing was changed.
    hint: `safepoint plan show copy` shows where it is.
    --- exit 12
    "#);
    let inside = sandbox.json(&["plan", "show", "copy", "--json"]);
    assert_eq!(inside["data"]["plan"]["sandbox"], json!({"kind": "copy", "path": null, "state": "none"}));
    assert_snapshot!(sandbox.run(&["plan", "list"]), @"
    PLAN                        STATE  CHANGED        TITLE
    copy                        ready  3 minutes ago  In a copy
    agent                       draft  4 minutes ago  From an agent
    01kg9ys9egcqt0dh2x3200jhaf  draft  4 minutes ago  By hand
    --- exit 0
    ");
}

#[test]
fn what_is_no_plan_is_told_with_its_place() {
    let sandbox = Sandbox::new();
    sandbox.write("plan.toml", "titel = 'x'\n[[step]]\nid = 'a b'\n");
    assert_snapshot!(sandbox.run(&["plan", "new", "plan.toml"]), @"
    --- stderr
    error: cannot record the plan: `title`, line 1, column 1, is missing: every plan has one
    Nothing was changed.
    hint: Fix the line that the message names, and try again.
    hint: Also: unknown key `titel`, line 1, column 1: did you mean `title`?
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["plan", "new", "missing.toml"]), @"
    --- stderr
    error: cannot record the plan: cannot read missing.toml
      because: No such file or directory (os error 2)
    Nothing was changed.
    hint: Name a file that you may read, or - for standard input.
    --- exit 1
    ");
    assert_snapshot!(sandbox.run(&["plan", "new"]), @"
    --- stderr
    error: the following required arguments were not provided:
      --title <TITLE>

    Usage: safepoint plan new --title <TITLE> [FILE]

    For more information, try '--help'.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["plan", "new", "--title", "X", "--id", "../x"]), @r#"
    --- stderr
    error: cannot record the plan: "../x" is not an id of a plan: small letters, digits, dots, dashes and underscores, at most 64
    Nothing was changed.
    hint: Leave the id out to get one.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "new", "--title", " "]), @"
    --- stderr
    error: cannot record the plan: `title`: the title is empty
    Nothing was changed.
    hint: docs/plan-files.md lists the rules.
    --- exit 2
    ");
    sandbox.write("long.toml", vec![b'#'; 1024 * 1024 + 1]);
    assert_snapshot!(sandbox.run(&["plan", "new", "long.toml"]), @"
    --- stderr
    error: cannot record the plan: the plan file is longer than 1048576 bytes
    Nothing was changed.
    hint: Fix the line that the message names, and try again.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["plan", "list"]), @"
    --- stderr
    error: cannot list plans: no workspace is registered at or above $T/project
    hint: Run `safepoint create` or `safepoint init` in the project's folder first.
    --- exit 10
    ");
    sandbox.run(&["init"]);
    assert_snapshot!(sandbox.run(&["plan", "list"]), @"
    There are no plans yet. Make one: safepoint plan new plan.toml
    --- exit 0
    ");
}

#[test]
fn steps_begin_and_end() {
    let sandbox = planned();
    let step = |verb: &str, step: &str| sandbox.run(&["plan", "step", verb, "limits", step]);
    assert_snapshot!(step("start", "api/docs"), @r#"
    --- stderr
    error: cannot start step "api/docs": step api/docs cannot start before migrate is done
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(step("start", "handlers"), @r#"
    --- stderr
    error: cannot start step "handlers": the plan has no step "handlers"; did you mean "api/handlers"?
    Nothing was changed.
    hint: `safepoint plan show limits` shows its steps.
    --- exit 10
    "#);
    assert_snapshot!(step("start", "migrate"), @r#"
    Step migrate started
      checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD "before migrate"
    --- exit 0
    "#);
    assert_snapshot!(step("start", "migrate"), @r#"
    --- stderr
    error: cannot start step "migrate": step migrate is running and cannot become running
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(step("finish", "migrate"), @"
    Step migrate done
    --- exit 0
    ");
    assert_snapshot!(step("start", "api/handlers"), @r#"
    Step api/handlers started
      subplan api begins
      checkpoint 01KG9Z47206DPBTS55V6PYZR00 "before api/handlers"
    --- exit 0
    "#);
    assert_snapshot!(step("fail", "api/handlers"), @r#"
    Step api/handlers failed
      checkpoint 01KG9Z62M8VWA67JZ1WHCK43EQ "api/handlers failed"
    --- exit 0
    "#);
    assert_snapshot!(step("start", "api/handlers"), @r#"
    Step api/handlers started
      checkpoint 01KG9Z7W80N7M9WNJHP3QSADHP "before api/handlers"
    --- exit 0
    "#);
    assert_snapshot!(step("finish", "api/handlers"), @"
    Step api/handlers done
    --- exit 0
    ");
    step("start", "api/docs");
    assert_snapshot!(step("finish", "api/docs"), @r#"
    Step api/docs done
      subplan api is done
      checkpoint 01KG9ZDDZGQDPN1XB4FMHR0C4X "after subplan api"
    --- exit 0
    "#);
    step("start", "ship");
    assert_snapshot!(step("finish", "ship"), @"
    Step ship done
      every step of the plan is done
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "apply", "limits"]), @"
    Applied plan limits: its result stays, and it is not rolled back any more.
    --- exit 0
    ");
    assert_snapshot!(step("start", "ship"), @r#"
    --- stderr
    error: cannot start step "ship": the plan is applied and cannot change
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "before ship"]), @r#"
    --- stderr
    error: cannot roll plan "limits" back to checkpoint "before ship": plan limits has been applied and is not rolled back any more
    Nothing was changed.
    hint: Roll the files back alone with --part files, or begin a new plan.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "before ship", "--part", "files"]), @r#"
    Nothing differs from 01KG9ZF6M07EY98FZSZJCXX3R3 "before ship", taken 4 minutes ago.
    --- exit 0
    "#);
}

#[test]
fn a_value_that_is_no_json_changes_nothing() {
    let sandbox = planned();
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    assert_snapshot!(sandbox.run(&["plan", "step", "finish", "limits", "migrate", "--output", "done"]), @r#"
    --- stderr
    error: cannot finish step "migrate": the output is not JSON: expected value at line 1 column 1
    Nothing was changed.
    hint: Texts stand in double quotes inside of those of the shell, as in '"done"'.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "set", "limits", "key", "{"]), @r#"
    --- stderr
    error: cannot set "key": the value is not JSON: EOF while parsing an object at line 1 column 1
    Nothing was changed.
    hint: Texts stand in double quotes inside of those of the shell, as in '"done"'.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "output", "set", "limits", "key", "1 2"]), @r#"
    --- stderr
    error: cannot set output "key": the value is not JSON: trailing characters at line 1 column 3
    Nothing was changed.
    hint: Texts stand in double quotes inside of those of the shell, as in '"done"'.
    --- exit 2
    "#);
    let deep = "[".repeat(40) + &"]".repeat(40);
    assert_snapshot!(sandbox.run(&["plan", "context", "set", "limits", "key", &deep]), @r#"
    --- stderr
    error: cannot set "key": values may nest at most 32 levels deep
    Nothing was changed.
    hint: docs/plan-files.md lists the rules.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "set", "limits", "", "1"]), @r#"
    --- stderr
    error: cannot set "": a key must not be empty or contain NUL
    Nothing was changed.
    hint: docs/plan-files.md lists the rules.
    --- exit 2
    "#);
}

#[test]
fn steps_are_added() {
    let sandbox = planned();
    let add = |args: &[&str]| sandbox.run(&[&["plan", "step", "add", "limits"], args].concat());
    assert_snapshot!(add(&["tell", "--title", "Tell people"]), @"
    Added step tell
    --- exit 0
    ");
    assert_snapshot!(add(&["bench", "--below", "api", "--run", "make bench"]), @"
    Added step api/bench
    --- exit 0
    ");
    assert_snapshot!(add(&["bench", "--below", "api"]), @r#"
    --- stderr
    error: cannot add step "bench": the plan already has step api/bench
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(add(&["more", "--below", "api/bench"]), @r#"
    --- stderr
    error: cannot add step "more": `run` in step `api/bench`: a step runs a command or contains steps, not both
    Nothing was changed.
    hint: docs/plan-files.md lists the rules; a step is put below another one with --below.
    --- exit 2
    "#);
    assert_snapshot!(add(&["a/b"]), @r#"
    --- stderr
    error: cannot add step "a/b": `id` in step `#1`: a name must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit
    Nothing was changed.
    hint: docs/plan-files.md lists the rules; a step is put below another one with --below.
    --- exit 2
    "#);
    assert_snapshot!(add(&["a", "--below", "nothing"]), @r#"
    --- stderr
    error: cannot add step "a": the plan has no step "nothing"
    Nothing was changed.
    hint: `safepoint plan show limits` shows its steps.
    --- exit 10
    "#);
    assert_snapshot!(add(&["a", "--run", " "]), @r#"
    --- stderr
    error: cannot add step "a": `run` in step `a`: the command is empty
    Nothing was changed.
    hint: docs/plan-files.md lists the rules; a step is put below another one with --below.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is ready, 0 of 6 steps done
      [ ] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
          [ ] bench
      [ ] ship
      [ ] tell  Tell people
      next      migrate
      works in  $T/project
      changed   2026-01-31 12:02:00Z, 6 minutes ago
    --- exit 0
    "#);
}

#[test]
fn what_a_plan_knows_and_gives() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "context", "set", "limits", "rate", "-100"]), @"
    rate = -100
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "context", "get", "limits", "rate"]), @"
    -100
    --- exit 0
    ");
    assert_snapshot!(sandbox.json_text(&["plan", "context", "get", "limits", "rate", "--json"]), @r#"
    {
      "command": "plan context get",
      "data": {
        "key": "rate",
        "value": -100
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:03:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.run(&["plan", "output", "set", "limits", "url", "\"http://x\""]), @r#"
    url = "http://x"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is ready, 0 of 4 steps done
      [ ] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
      next      migrate
      knows     rate = -100
      gave      url = "http://x"
      works in  $T/project
      changed   2026-01-31 12:04:00Z, 1 minute ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "unset", "limits", "rate"]), @"
    Forgot rate
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "context", "unset", "limits", "rate"]), @r#"
    --- stderr
    error: cannot forget "rate": plan limits knows nothing under "rate"
    Nothing was changed.
    hint: `safepoint plan show limits` shows what it knows.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "get", "limits", "rate"]), @r#"
    --- stderr
    error: cannot get "rate": plan limits knows nothing under "rate"
    hint: `safepoint plan show limits` shows what it knows.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "output", "set", "nothing", "url", "1"]), @r#"
    --- stderr
    error: cannot set output "url": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn decisions_make_a_tree() {
    let (sandbox, first) = failed();
    assert_snapshot!(sandbox.run(&["plan", "tree", "limits"]), @r#"
    Plan limits "Add rate limiting" is failed
      [x] migrate  A table for the counters
      [!] api  failed
          [!] handlers  failed: 2 tests fail
          [ ] docs
      [ ] ship
    Decisions
      01KG9YYQ9053R1T2RMWKDG33ZD  Where are the counters? postgres (step migrate)
        because: It is there.
        01KG9Z47206DPBTS55V6PYZR00  Which window? sliding
    --- exit 0
    "#);
    let decide = ["plan", "decide", "limits", "--question", "q", "--choice", "c"];
    assert_snapshot!(sandbox.run(&[&decide[..], &["--parent", "nothing"]].concat()), @"
    --- stderr
    error: cannot record the decision: the plan has no decision nothing
    Nothing was changed.
    hint: `safepoint plan tree limits` shows its decisions.
    --- exit 10
    ");
    assert_snapshot!(sandbox.run(&[&decide[..], &["--step", "nothing"]].concat()), @r#"
    --- stderr
    error: cannot record the decision: the plan has no step "nothing"
    Nothing was changed.
    hint: `safepoint plan show limits` shows its steps.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&[&decide[..], &["--depends-on", &first]].concat()), @"
    Decision 01KG9ZDC10QDPN1XB4FMHR0C4X: q c
    --- exit 0
    ");
    sandbox.run(&["plan", "rollback", "limits", "before api/handlers"]);
    assert_snapshot!(sandbox.run(&["plan", "tree", "limits", "--show-superseded"]), @r#"
    Plan limits "Add rate limiting" is running
      [x] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
    Decisions
      01KG9YYQ9053R1T2RMWKDG33ZD  Where are the counters? postgres (step migrate)
        because: It is there.
        01KG9Z47206DPBTS55V6PYZR00  Which window? sliding  superseded by rollback 01KG9ZF6M07EY98FZSZJCXX3R3
      01KG9ZDC10QDPN1XB4FMHR0C4X  q c  superseded by rollback 01KG9ZF6M07EY98FZSZJCXX3R3
    --- exit 0
    "#);
    // Restored decisions are not superseded.
    sandbox.run(&["undo"]);
    let tree = sandbox.json(&["plan", "tree", "limits", "--show-superseded", "--json"]);
    let decisions = tree["data"]["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 3);
    assert!(decisions.iter().all(|made| made["superseded_by"].is_null()), "{tree:#}");
}

#[test]
fn a_long_chain_of_decisions_is_drawn() {
    let sandbox = planned();
    let mut parent = String::new();
    for number in 0..30 {
        let question = format!("question {number}");
        let mut args = vec!["plan", "decide", "limits", "-q", "--question", &question, "--choice", "yes"];
        if !parent.is_empty() {
            args.extend(["--parent", &parent]);
        }
        parent = String::from_utf8(sandbox.output(&args).stdout).unwrap().trim().to_owned();
    }
    let told = sandbox.run(&["plan", "tree", "limits"]);
    assert!(told.contains(&format!("{}{parent}  question 29 yes", "  ".repeat(25))), "{told}");
}

#[test]
fn what_happened_is_told_in_order() {
    let (sandbox, _) = failed();
    sandbox.run(&["plan", "rollback", "limits", "before api/handlers"]);
    assert_snapshot!(sandbox.run(&["plan", "log", "limits"]), @r#"
    2026-01-31 12:01:01Z  checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before migrate"
    2026-01-31 12:05:01Z  checkpoint 01KG9Z2CF08QE660SV1JHRKGTT "before api/handlers"
    2026-01-31 12:07:00Z  step api/handlers failed: 2 tests fail
    2026-01-31 12:07:02Z  checkpoint 01KG9Z62M8VWA67JZ1WHCK43EQ "api/handlers failed"
    2026-01-31 12:08:03Z  checkpoint 01KG9Z7Y6GF00V0S1T9RAYCZG1 "before rollback to 01KG9Z2CF08QE660SV1JHRKGTT"
    2026-01-31 12:08:04Z  decisions superseded: sliding
    2026-01-31 12:08:04Z  subplans invalidated: api
    2026-01-31 12:08:04Z  rollback 01KG9Z7W80N7M9WNJHP3QSADHP, steps undone: api/handlers
    --- exit 0
    "#);
    let log = sandbox.json(&["plan", "log", "limits", "--json"]);
    let kinds: Vec<&Value> =
        log["data"]["log"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(
        kinds,
        [
            "checkpoint",
            "checkpoint",
            "error",
            "checkpoint",
            "checkpoint",
            "superseded",
            "invalidated",
            "rolled_back",
        ]
    );
    sandbox.run(&["plan", "new", "--title", "Empty", "--id", "empty"]);
    assert_snapshot!(sandbox.run(&["plan", "log", "empty"]), @"
    Nothing went wrong yet, and no checkpoint was taken.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "log", "nothing"]), @r#"
    --- stderr
    error: cannot tell what happened to plan "nothing": there is no plan "nothing"
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn milestones_are_flags_and_defaults() {
    let sandbox = Sandbox::with_checkpoint();
    let new = |id: &str, more: &[&str]| {
        let args = [&["plan", "new", "--title", "T", "--id", id, "--json"], more].concat();
        sandbox.json(&args)["data"]["plan"]["checkpoints"].clone()
    };
    assert_eq!(
        new("flags", &["--milestones", "before_risky, on_error", "--every", "10m", "--every-steps", "3"]),
        serde_json::json!({ "on": ["before_risky", "on_error"], "every": "10m", "every_steps": 3 })
    );
    let none = serde_json::json!({ "on": [], "every": null, "every_steps": null });
    assert_eq!(new("none", &["--milestones", ""]), none);
    assert_eq!(
        sandbox.output(&["plan", "new", "--title", "T", "--milestones", "often"]).status.code(),
        Some(2)
    );
    let config = "[plans]\nmilestones = ['after_step']\nevery = '1h'\nevery_steps = 2\n";
    fs::write(sandbox.path("home/config.toml"), config).unwrap();
    assert_eq!(
        new("default", &[]),
        serde_json::json!({ "on": ["after_step"], "every": "1h", "every_steps": 2 })
    );
    sandbox.write("own.toml", "title = 'T'\nid = 'own'\n[checkpoints]\non = []\n");
    let own = sandbox.json(&["plan", "new", "own.toml", "--json"])["data"]["plan"]["checkpoints"].clone();
    assert_eq!(own, none, "the file says when");
    fs::write(sandbox.path("home/config.toml"), "[plans]\nmilestones = ['often']\n").unwrap();
    assert_eq!(
        sandbox.json(&["plan", "new", "--title", "T", "--json"])["error"]["code"],
        "bad_configuration"
    );
}

#[test]
fn a_plan_that_is_driven_takes_checkpoints_by_time_between_steps() {
    let sandbox = Sandbox::new();
    sandbox.run(&["plan", "new", "--title", "T", "--id", "work", "--milestones", "", "--every", "3m"]);
    sandbox.run(&["plan", "step", "add", "work", "a"]);
    sandbox.run(&["plan", "step", "start", "work", "a"]);
    let count = || {
        sandbox.json(&["plan", "checkpoint", "list", "work", "--json"])["data"]["checkpoints"]
            .as_array()
            .unwrap()
            .len()
    };
    // Each command comes a minute after the one before.
    let before = count();
    for _ in 0..4 {
        sandbox.run(&["plan", "context", "set", "work", "k", "1"]);
    }
    assert!(count() > before);
}
