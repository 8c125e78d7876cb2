//! `plan`: driven from outside, step by step, and taken back.

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

/// A project with a plan in it.
fn planned() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox.write("plan.toml", PLAN);
    assert_eq!(sandbox.output(&["plan", "new", "plan.toml"]).status.code(), Some(0));
    sandbox
}

/// The first step is done, a decision made, the second step failed.
fn failed() -> (Sandbox, String) {
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
    error: cannot record the plan: there is a plan limits in the catalog already
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
    hint: `safepoint plan show PLAN` shows where it is.
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
    hint: Mend the file and try again; docs/plan-files.md lists every key.
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
    hint: Mend the file and try again; docs/plan-files.md lists every key.
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
    error: cannot start step "api/docs": step api/docs cannot begin before migrate is done
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(step("start", "handlers"), @r#"
    --- stderr
    error: cannot start step "handlers": the plan has no step "handlers"; did you mean "api/handlers"?
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows its steps.
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
    hint: `safepoint plan show PLAN` shows where it is.
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
    error: cannot start step "ship": the plan is applied: nothing changes any more
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows where it is.
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
    error: cannot set "key": a value nests at most 32 deep
    Nothing was changed.
    hint: docs/plan-files.md lists the rules.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "set", "limits", "", "1"]), @r#"
    --- stderr
    error: cannot set "": a key is a text without NUL, and not empty
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
    error: cannot add step "bench": the plan has a step api/bench already
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(add(&["more", "--below", "api/bench"]), @r#"
    --- stderr
    error: cannot add step "more": `run` in step `api/bench`: a step runs a command or has steps of its own, not both
    Nothing was changed.
    hint: docs/plan-files.md lists the rules; a step is put below another one with --below.
    --- exit 2
    "#);
    assert_snapshot!(add(&["a/b"]), @r#"
    --- stderr
    error: cannot add step "a/b": `id` in step `#1`: a name has 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begins with a letter or a digit
    Nothing was changed.
    hint: docs/plan-files.md lists the rules; a step is put below another one with --below.
    --- exit 2
    "#);
    assert_snapshot!(add(&["a", "--below", "nothing"]), @r#"
    --- stderr
    error: cannot add step "a": the plan has no step "nothing"
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows its steps.
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
    hint: `safepoint plan show PLAN` shows what it knows.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "context", "get", "limits", "rate"]), @r#"
    --- stderr
    error: cannot get "rate": plan limits knows nothing under "rate"
    hint: `safepoint plan show PLAN` shows what it knows.
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
    hint: `safepoint plan tree PLAN` shows its decisions.
    --- exit 10
    ");
    assert_snapshot!(sandbox.run(&[&decide[..], &["--step", "nothing"]].concat()), @r#"
    --- stderr
    error: cannot record the decision: the plan has no step "nothing"
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows its steps.
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
    // What came back is superseded no more.
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
    2026-01-31 12:08:04Z  rollback 01KG9Z7W80N7M9WNJHP3QSADHP, taken back: api/handlers
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
fn checkpoints_of_a_plan() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "list", "limits"]), @"
    There are no checkpoints of this plan yet. Take one: safepoint plan checkpoint create limits
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits"]), @"
    There is nothing to roll back to yet. Take one: safepoint plan checkpoint create limits
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good", "--pin"]), @r#"
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD "good"
      2 files and folders, 217 B; SIZE new in the store, N ms
      the first of this workspace
    --- exit 0
    "#);
    sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good"]);
    sandbox.run(&["create", "-m", "files alone"]);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "list", "limits"]), @"
    CHECKPOINT                  WHEN           KIND    DONE  STATE     LABEL
    01KG9Z0HW054A6WWZ3EBH372PA  1 minute ago   manual     0  2351be18  good
    01KG9YYQ9053R1T2RMWKDG33ZD  2 minutes ago  manual     0  2351be18  good (pinned)
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "good"]), @r#"
    --- stderr
    error: cannot show checkpoint "good": "good" names several checkpoints
    hint: Type more of the id.
    hint: It could be 01KG9Z0HW054A6WWZ3EBH372PA, 01KG9YYQ9053R1T2RMWKDG33ZD.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "@~1"]), @"
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD
      label     good
      created   2026-01-31 12:03:01Z, 4 minutes ago
      kind      manual, reason manual
      scope     workflow
      plan      limits, 0 steps done
      holds     2 files and folders, 217 B
      changed   +2 ~0 -0
      stored    SIZE new in the store
      pinned    yes: it is never pruned
      uuid      019c13ef-5d20-28f0-1d0b-14e4db018fed
      integrity <hash>
    The plan was ready
      [ ] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "@~2"]), @r#"
    --- stderr
    error: cannot show checkpoint "@~2": no checkpoint is called "@~2"
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "files alone"]), @r#"
    --- stderr
    error: cannot show checkpoint "files alone": checkpoint 01KG9Z2CF08QE660SV1JHRKGTT is not one of plan limits
    hint: `safepoint plan checkpoint list PLAN` shows the checkpoints of the plan.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "files alone"]), @r#"
    --- stderr
    error: cannot roll plan "limits" back to checkpoint "files alone": checkpoint 01KG9Z2CF08QE660SV1JHRKGTT is not one of plan limits
    Nothing was changed.
    hint: `safepoint plan checkpoint list PLAN` shows the checkpoints of the plan.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "delete", "limits", "@"]), @"
    --- stderr
    error: cannot delete: this cannot be taken back, and there is no terminal to ask on
    Nothing was changed.
    hint: If you mean it, say so with --yes.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "delete", "limits", "@~1", "@~1", "--yes"]), @"
    Deleted 1 checkpoint:
      01KG9YYQ9053R1T2RMWKDG33ZD  9 minutes ago  good (pinned)
    Free the space that only they took: safepoint gc
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "create", "nothing"]), @r#"
    --- stderr
    error: cannot take a checkpoint of plan "nothing": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["list", "--plan", "limits"]), @"
    CHECKPOINT                  WHEN            KIND    CHANGED   STORED  LABEL
    01KG9Z0HW054A6WWZ3EBH372PA  10 minutes ago  manual  +0 ~0 -0  SIZE  good
    --- exit 0
    ");
}

#[test]
fn there_and_back() {
    let (sandbox, _) = failed();
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is failed, 1 of 4 steps done
      [x] migrate  A table for the counters
      [!] api  failed
          [!] handlers  failed: 2 tests fail
          [ ] docs
      [ ] ship
      next      api/handlers
      decisions 2; `safepoint plan tree limits` shows them
      knows     database = "postgres"
      works in  $T/project
      changed   2026-01-31 12:07:00Z, 1 minute ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits"]), @"
    CHECKPOINT                  WHEN           KIND       DONE  STATE     LABEL
    01KG9Z62M8VWA67JZ1WHCK43EQ  1 minute ago   emergency     1  a338ff8f  api/handlers failed
    01KG9Z2CF08QE660SV1JHRKGTT  3 minutes ago  workflow      1  c7f9d69e  before api/handlers
    01KG9YV2300QJS22HDXJ4G4Q61  7 minutes ago  workflow      0  2351be18  before migrate
    Choose one: safepoint plan rollback limits CHECKPOINT (add --dry-run to see what it would do)
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "before api/handlers", "--dry-run"]), @r#"
    Would roll back to 01KG9Z2CF08QE660SV1JHRKGTT "before api/handlers", taken 4 minutes ago
      2 files put back, 0 files removed; a dry run: nothing was changed
      plan limits would be running again; 1 decision superseded; 1 subplan invalidated; step taken back: api/handlers
      no undo command, so what it did outside of the files would stay: api/handlers
        ~ main.rs  restored
        + table.sql  put back
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "before api/handlers"]), @r#"
    Rolled back to 01KG9Z2CF08QE660SV1JHRKGTT "before api/handlers", taken 5 minutes ago
      2 files put back, 0 files removed, read back and verified, in N ms
      plan limits is running again; 1 decision superseded; 1 subplan invalidated; step taken back: api/handlers
      no undo command, so what it did outside of the files stays: api/handlers
        ~ main.rs  restored
        + table.sql  put back
    Take it back with: safepoint undo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is running, 1 of 4 steps done
      [x] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
      next      api/handlers
      decisions 1; `safepoint plan tree limits` shows them
      knows     database = "postgres"
      works in  $T/project
      changed   2026-01-31 12:11:04Z, 56 seconds ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["undo"]), @"
    Undid the last rollback: everything is as just before it
      1 file put back, 1 file removed, read back and verified, in N ms
      plan limits is failed again
        ~ main.rs  restored
        - table.sql  removed
    Do it again with: safepoint redo
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["redo"]), @"
    Redid the rollback that was undone: everything is as after it
      2 files put back, 0 files removed, read back and verified, in N ms
      plan limits is running again; 1 decision superseded; 1 subplan invalidated; step taken back: api/handlers
      no undo command, so what it did outside of the files stays: api/handlers
        ~ main.rs  restored
        + table.sql  put back
    Take it back with: safepoint undo
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "@"]), @r#"
    Rolled back to 01KG9Z62M8VWA67JZ1WHCK43EQ "api/handlers failed", taken 7 minutes ago
      1 file put back, 1 file removed, read back and verified, in N ms
      plan limits is failed again
        ~ main.rs  restored
        - table.sql  removed
    Take it back with: safepoint undo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "nothing", "@"]), @r#"
    --- stderr
    error: cannot roll plan "nothing" back to checkpoint "@": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn where_only_the_plan_differs_it_is_rolled_back_all_the_same() {
    let sandbox = planned();
    sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good"]);
    sandbox.run(&["plan", "context", "set", "limits", "key", "1"]);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "good"]), @r#"
    Rolled back to 01KG9YV2300QJS22HDXJ4G4Q61 "good", taken 1 minute ago
      0 files put back, 0 files removed, read back and verified, in N ms
      plan limits is ready again
    Take it back with: safepoint undo
    --- exit 0
    "#);
    let knows = || sandbox.json(&["plan", "show", "limits", "--json"])["data"]["plan"]["context"].clone();
    assert_eq!(knows(), json!({}));
    sandbox.run(&["undo"]);
    assert_eq!(knows(), json!({"key": 1}));
}

#[test]
fn the_answers_to_a_program() {
    let (sandbox, _) = failed();
    assert_snapshot!(sandbox.json_text(&["plan", "show", "limits", "--json"]), @r#"
    {
      "command": "plan show",
      "data": {
        "plan": {
          "checkpoints": {
            "on": [
              "before_step",
              "after_subplan",
              "on_error"
            ]
          },
          "context": {
            "database": "postgres"
          },
          "created_at": "2026-01-31T12:00:02.000000Z",
          "decisions": [
            {
              "alternatives": [],
              "choice": "postgres",
              "depends_on": [],
              "id": "01KG9YYQ9053R1T2RMWKDG33ZD",
              "made_at": "2026-01-31T12:03:01.000000Z",
              "parent": null,
              "question": "Where are the counters?",
              "rationale": "It is there.",
              "step": "migrate"
            },
            {
              "alternatives": [
                "fixed"
              ],
              "choice": "sliding",
              "depends_on": [],
              "id": "01KG9Z47206DPBTS55V6PYZR00",
              "made_at": "2026-01-31T12:06:01.000000Z",
              "parent": "01KG9YYQ9053R1T2RMWKDG33ZD",
              "question": "Which window?",
              "rationale": null,
              "step": null
            }
          ],
          "id": "limits",
          "outputs": {},
          "sandbox": {
            "kind": "in-place",
            "path": "$T/project",
            "state": "ready"
          },
          "state": "failed",
          "step_index": 1,
          "steps": [
            {
              "attempts": 1,
              "finished_at": "2026-01-31T12:02:00.000000Z",
              "id": "migrate",
              "on_interrupt": "ask",
              "output": {
                "tables": 1
              },
              "path": "migrate",
              "started_at": "2026-01-31T12:01:03.000000Z",
              "state": "done",
              "title": "A table for the counters"
            },
            {
              "attempts": 1,
              "finished_at": "2026-01-31T12:07:00.000000Z",
              "id": "api",
              "on_interrupt": "ask",
              "path": "api",
              "started_at": "2026-01-31T12:05:03.000000Z",
              "state": "failed",
              "steps": [
                {
                  "attempts": 1,
                  "error": "2 tests fail",
                  "finished_at": "2026-01-31T12:07:00.000000Z",
                  "id": "handlers",
                  "on_interrupt": "ask",
                  "path": "api/handlers",
                  "started_at": "2026-01-31T12:05:03.000000Z",
                  "state": "failed",
                  "title": null
                },
                {
                  "attempts": 0,
                  "finished_at": null,
                  "id": "docs",
                  "on_interrupt": "ask",
                  "path": "api/docs",
                  "started_at": null,
                  "state": "pending",
                  "title": null
                }
              ],
              "title": null
            },
            {
              "attempts": 0,
              "finished_at": null,
              "id": "ship",
              "on_interrupt": "ask",
              "path": "ship",
              "started_at": null,
              "state": "pending",
              "title": null
            }
          ],
          "title": "Add rate limiting",
          "updated_at": "2026-01-31T12:07:00.000000Z",
          "version": 7,
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:08:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "list", "--json"]), @r#"
    {
      "command": "plan list",
      "data": {
        "plans": [
          {
            "created_at": "2026-01-31T12:00:02.000000Z",
            "id": "limits",
            "state": "failed",
            "title": "Add rate limiting",
            "updated_at": "2026-01-31T12:07:00.000000Z",
            "workspace_id": "01KG9YS7G0000E485875XHVKDF"
          }
        ]
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:09:00.000000Z"
      },
      "version": 1
    }
    "#);
    let rolled = sandbox.json(&["plan", "rollback", "limits", "before api/handlers", "--json"]);
    let back = json!({"decisions_superseded": 1, "subplans_invalidated": 1, "state": "running"});
    assert_eq!(rolled["data"]["rollback"]["plan"], back);
    let plan = &rolled["data"]["plan"];
    assert_eq!((&plan["state"], &plan["step_index"]), (&json!("running"), &json!(1)));
    let undone = sandbox.json(&["undo", "--json"]);
    assert_eq!(undone["data"]["rollback"]["plan"]["state"], "failed");
    let redone = sandbox.json(&["redo", "--json"]);
    assert_eq!(redone["data"]["rollback"]["plan"]["decisions_superseded"], 1);
    let path = sandbox.json(&["rollback", "api/handlers failed", "--path", "main.rs", "--json"]);
    assert_eq!(path["data"]["rollback"]["plan"], Value::Null);
    let files = sandbox.json(&["rollback", "api/handlers failed", "--part", "files", "--dry-run", "--json"]);
    assert_eq!(files["data"]["rollback"]["strategy"], "selective");
    assert_eq!(files["data"]["rollback"]["plan"], Value::Null);
    let plain = sandbox.json(&["rollback", "api/handlers failed", "--dry-run", "--json"]);
    assert_eq!(plain["data"]["rollback"]["plan"]["state"], "failed");
    assert_snapshot!(sandbox.json_text(&["plan", "show", "nothing", "--json"]), @r#"
    {
      "command": "plan show",
      "data": null,
      "error": {
        "causes": [],
        "code": "no_plan",
        "hints": [
          "`safepoint plan list` shows the plans."
        ],
        "kind": "not_found",
        "message": "there is no plan \"nothing\""
      },
      "exit_code": 10,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:16:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "step", "start", "limits", "ship", "--json"]), @r#"
    {
      "command": "plan step start",
      "data": null,
      "error": {
        "causes": [],
        "code": "plan_rule",
        "hints": [
          "`safepoint plan show PLAN` shows where it is."
        ],
        "kind": "conflict",
        "message": "step ship cannot begin before api is done"
      },
      "exit_code": 12,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:17:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "step", "finish", "limits", "--json"]), @r#"
    {
      "command": "plan step finish",
      "data": null,
      "error": {
        "causes": [],
        "code": "usage",
        "hints": [
          "`safepoint help` lists the commands, and each has `--help`."
        ],
        "kind": "usage",
        "message": "the following required arguments were not provided:\n  <STEP>"
      },
      "exit_code": 2,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:18:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn pause_and_cancel() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "pause", "limits"]), @r#"
    --- stderr
    error: cannot pause plan "limits": the plan is ready and cannot become paused
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows where it is.
    --- exit 12
    "#);
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    assert_snapshot!(sandbox.run(&["plan", "pause", "limits"]), @"
    Paused plan limits: it goes on with its next step.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "cancel", "limits"]), @"
    Cancelled plan limits: a rollback to one of its checkpoints brings it back.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "cancel", "limits"]), @r#"
    --- stderr
    error: cannot cancel plan "limits": the plan is cancelled: nothing changes any more
    Nothing was changed.
    hint: `safepoint plan show PLAN` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "apply", "nothing"]), @r#"
    --- stderr
    error: cannot apply plan "nothing": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn a_step_stays_as_it_is_when_the_checkpoint_after_it_fails() {
    let sandbox = planned();
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    sandbox.write(".safepoint.toml", "odd = 1\n");
    assert_snapshot!(sandbox.run(&["plan", "step", "fail", "limits", "migrate"]), @r#"
    --- stderr
    error: cannot note that step "migrate" failed: unknown key `odd` in .safepoint.toml line 1: known there are label, retention, capture
    hint: Mend the file and try again; docs/configuration.md lists every key.
    hint: Step migrate is failed all the same: only the checkpoint after it was not taken.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "step", "start", "limits", "migrate"]), @r#"
    --- stderr
    error: cannot start step "migrate": unknown key `odd` in .safepoint.toml line 1: known there are label, retention, capture
    Nothing was changed.
    hint: Mend the file and try again; docs/configuration.md lists every key.
    --- exit 2
    "#);
    let shown = sandbox.json(&["plan", "show", "limits", "--json"]);
    assert_eq!(shown["data"]["plan"]["steps"][0]["state"], "failed");
}

/// A plan with a subplan, driven to a failure; each command is a process of its own.
#[test]
fn the_whole_story() {
    let sandbox = planned();
    let ok = |args: &[&str]| {
        let answer = sandbox.json(&[args, &["--json"]].concat());
        assert_eq!(answer["status"], "ok", "{answer:#}");
        answer["data"].clone()
    };
    ok(&["plan", "step", "start", "limits", "migrate"]);
    sandbox.write("table.sql", "CREATE TABLE counters;\n");
    ok(&["plan", "step", "finish", "limits", "migrate"]);
    let made = ok(&["plan", "decide", "limits", "--question", "Where?", "--choice", "postgres"]);
    let first = made["decision"]["id"].as_str().unwrap().to_owned();
    let started = ok(&["plan", "step", "start", "limits", "api/handlers"]);
    let taken = &started["checkpoints"][0];
    assert_eq!((&taken["label"], &taken["step_index"]), (&json!("before api/handlers"), &json!(1)));
    let then = ok(&["plan", "checkpoint", "show", "limits", "before api/handlers"])["state"].clone();
    assert_eq!(then["decisions"][0]["id"], json!(first));

    ok(&["plan", "decide", "limits", "--question", "How?", "--choice", "sliding", "--parent", &first]);
    sandbox.write("handlers.rs", "fn limit() {}\n");
    ok(&["plan", "step", "finish", "limits", "api/handlers", "--output", "{\"files\": 1}"]);
    ok(&["plan", "step", "start", "limits", "api/docs"]);
    sandbox.write("main.rs", "garbage");
    fs::remove_file(sandbox.path("project/table.sql")).unwrap();
    let failed = ok(&["plan", "step", "fail", "limits", "api/docs", "--error", "all is broken"]);
    assert_eq!(failed["plan"]["state"], "failed");
    let broken = failed["checkpoints"][0]["state_hash"].clone();

    let listed = ok(&["plan", "checkpoint", "list", "limits"]);
    let labels: Vec<&Value> =
        listed["checkpoints"].as_array().unwrap().iter().map(|it| &it["label"]).collect();
    assert_eq!(labels, ["api/docs failed", "before api/docs", "before api/handlers", "before migrate"]);
    let rolled = ok(&["plan", "rollback", "limits", "before api/handlers"]);
    let back = json!({"decisions_superseded": 1, "subplans_invalidated": 1, "state": "running"});
    assert_eq!(rolled["rollback"]["plan"], back);
    let again = ok(&["plan", "checkpoint", "create", "limits", "-m", "again"]);
    assert_eq!(again["checkpoint"]["state_hash"], taken["state_hash"], "the same state has the same hash");
    assert_eq!(again["checkpoint"]["files"]["modified"], 0);
    assert_eq!(ok(&["plan", "checkpoint", "show", "limits", "again"])["state"], then);
    assert_eq!(ok(&["diff", "before api/handlers"])["changes"], json!([]));
    assert_eq!(sandbox.read("main.rs"), "fn main() {}\n");
    assert_eq!(sandbox.read("table.sql"), "CREATE TABLE counters;\n");
    assert!(!sandbox.path("project/handlers.rs").exists());

    ok(&["undo"]);
    assert_eq!(sandbox.read("main.rs"), "garbage");
    assert_eq!(sandbox.read("handlers.rs"), "fn limit() {}\n");
    let undone = ok(&["plan", "checkpoint", "create", "limits", "-m", "undone"]);
    assert_eq!(undone["checkpoint"]["state_hash"], broken);
    ok(&["redo"]);
    for step in ["api/handlers", "api/docs", "ship"] {
        ok(&["plan", "step", "start", "limits", step]);
        ok(&["plan", "step", "finish", "limits", step]);
    }
    assert_eq!(ok(&["plan", "apply", "limits"])["plan"]["state"], "applied");
    let refused = sandbox.json(&["plan", "rollback", "limits", "before ship", "--json"]);
    assert_eq!((&refused["exit_code"], &refused["error"]["code"]), (&json!(12), &json!("plan_applied")));
    assert_eq!(ok(&["validate", "--deep"])["is_valid"], true);
}

/// What an answer holds, with plans and checkpoints by their names.
fn brief(sandbox: &Sandbox, line: &str) -> String {
    fn named(value: &mut Value) {
        match value {
            Value::Object(fields) if fields.contains_key("step_index") => {
                *value = match fields.get("label") {
                    Some(label) => json!(format!("checkpoint {} at step {}", label, fields["step_index"])),
                    None => json!(format!("plan {} {}", fields["id"], fields["state"])),
                };
            }
            Value::Object(fields) if fields.contains_key("milestones") => {
                *value = json!(format!("state of plan {} {}", fields["id"], fields["state"]));
            }
            Value::Object(fields) => fields.values_mut().for_each(named),
            Value::Array(items) => items.iter_mut().for_each(named),
            _ => {}
        }
    }
    let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
    let mut answer = sandbox.json(&args);
    let error = answer["error"]["code"].as_str().unwrap_or("done").to_owned();
    named(&mut answer["data"]);
    let exit = &answer["exit_code"];
    format!("{}: exit {exit}, {error}, {}\n", answer["command"].as_str().unwrap(), answer["data"])
}

#[test]
fn every_subcommand_answers_programs() {
    let sandbox = planned();
    let mut told = String::new();
    for line in [
        "plan new --title Other --id other",
        "plan step start limits migrate",
        "plan step finish limits migrate --output 1",
        "plan decide limits --question a --choice b --step migrate",
        "plan context set limits key [1]",
        "plan context get limits key",
        "plan context unset limits key",
        "plan output set limits key true",
        "plan step add limits more --below api",
        "plan checkpoint create limits -m good",
        "plan decide limits --question c --choice d",
        "plan step start limits api/handlers",
        "plan step fail limits api/handlers --error no",
        "plan checkpoint list limits",
        "plan checkpoint show limits good",
        "plan rollback limits",
        "plan rollback limits good --dry-run",
        "plan tree limits",
        "plan log limits",
        "plan checkpoint delete limits @ --yes",
        "plan step start limits api/handlers",
        "plan pause limits",
        "plan cancel other",
    ] {
        told.push_str(&brief(&sandbox, line));
    }
    assert_snapshot!(told, @r#"
    plan new: exit 0, done, {"plan":"plan \"other\" \"draft\""}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before migrate\" at step 0"],"plan":"plan \"limits\" \"running\"","step":"migrate"}
    plan step finish: exit 0, done, {"checkpoints":[],"plan":"plan \"limits\" \"running\"","step":"migrate"}
    plan decide: exit 0, done, {"decision":{"alternatives":[],"choice":"b","depends_on":[],"id":"01KG9Z0HW054A6WWZ3EBH372PA","made_at":"2026-01-31T12:04:01.000000Z","parent":null,"question":"a","rationale":null,"step":"migrate"},"plan":"plan \"limits\" \"running\""}
    plan context set: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\"","value":[1]}
    plan context get: exit 0, done, {"key":"key","value":[1]}
    plan context unset: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\""}
    plan output set: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\"","value":true}
    plan step add: exit 0, done, {"plan":"plan \"limits\" \"running\"","step":"api/more"}
    plan checkpoint create: exit 0, done, {"checkpoint":"checkpoint \"good\" at step 1","pruned":[]}
    plan decide: exit 0, done, {"decision":{"alternatives":[],"choice":"d","depends_on":[],"id":"01KG9ZDC10QDPN1XB4FMHR0C4X","made_at":"2026-01-31T12:11:01.000000Z","parent":null,"question":"c","rationale":null,"step":null},"plan":"plan \"limits\" \"running\""}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before api/handlers\" at step 1"],"plan":"plan \"limits\" \"running\"","step":"api/handlers"}
    plan step fail: exit 0, done, {"checkpoints":["checkpoint \"api/handlers failed\" at step 1"],"plan":"plan \"limits\" \"failed\"","step":"api/handlers"}
    plan checkpoint list: exit 0, done, {"checkpoints":["checkpoint \"api/handlers failed\" at step 1","checkpoint \"before api/handlers\" at step 1","checkpoint \"good\" at step 1","checkpoint \"before migrate\" at step 0"]}
    plan checkpoint show: exit 0, done, {"checkpoint":"checkpoint \"good\" at step 1","state":"state of plan \"limits\" \"running\""}
    plan rollback: exit 0, done, {"checkpoints":["checkpoint \"api/handlers failed\" at step 1","checkpoint \"before api/handlers\" at step 1","checkpoint \"good\" at step 1","checkpoint \"before migrate\" at step 0"],"plan":"plan \"limits\" \"failed\"","rollback":null}
    plan rollback: exit 0, done, {"plan":"plan \"limits\" \"failed\"","rollback":{"answers":null,"changed_meanwhile":[],"changed_paths":[],"dry_run":true,"effects_not_undone":[{"step":"api/handlers","why":"it has no undo command"}],"from":"01KG9ZH268G78W9JHQPZWAV2QZ","git":null,"id":null,"paths":[],"plan":{"decisions_superseded":1,"state":"running","subplans_invalidated":1},"removed_files_count":0,"rescued":[],"restored_files_count":0,"safety_checkpoint":null,"strategy":"immediate","to":"01KG9ZBHE00NWGH1RJQT55GBYA","undone":[],"verb":"rollback","verified":false,"waiting":[]}}
    plan tree: exit 0, done, {"decisions":[{"alternatives":[],"choice":"b","depends_on":[],"depth":0,"id":"01KG9Z0HW054A6WWZ3EBH372PA","made_at":"2026-01-31T12:04:01.000000Z","parent":null,"question":"a","rationale":null,"step":"migrate","superseded_by":null},{"alternatives":[],"choice":"d","depends_on":[],"depth":0,"id":"01KG9ZDC10QDPN1XB4FMHR0C4X","made_at":"2026-01-31T12:11:01.000000Z","parent":null,"question":"c","rationale":null,"step":null,"superseded_by":null}],"plan":"plan \"limits\" \"failed\""}
    plan log: exit 0, done, {"log":[{"at":"2026-01-31T12:02:01.000000Z","checkpoint":"checkpoint \"before migrate\" at step 0","kind":"checkpoint","note":null,"version":0},{"at":"2026-01-31T12:10:01.000000Z","checkpoint":"checkpoint \"good\" at step 1","kind":"checkpoint","note":null,"version":7},{"at":"2026-01-31T12:12:01.000000Z","checkpoint":"checkpoint \"before api/handlers\" at step 1","kind":"checkpoint","note":null,"version":8},{"at":"2026-01-31T12:13:00.000000Z","checkpoint":null,"kind":"error","note":{"error":"no","log":null,"step":"api/handlers"},"version":10},{"at":"2026-01-31T12:13:02.000000Z","checkpoint":"checkpoint \"api/handlers failed\" at step 1","kind":"checkpoint","note":null,"version":10}]}
    plan checkpoint delete: exit 0, done, {"deleted":["checkpoint \"api/handlers failed\" at step 1"]}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before api/handlers\" at step 1"],"plan":"plan \"limits\" \"running\"","step":"api/handlers"}
    plan pause: exit 0, done, {"plan":"plan \"limits\" \"paused\""}
    plan cancel: exit 0, done, {"plan":"plan \"other\" \"cancelled\""}
    "#);
}

#[test]
fn every_subcommand_fails_for_programs() {
    let sandbox = planned();
    let mut told = String::new();
    for line in [
        "plan new plan.toml",
        "plan show none",
        "plan tree none",
        "plan log none",
        "plan step start limits none",
        "plan step finish limits migrate",
        "plan step fail limits migrate",
        "plan step add limits migrate",
        "plan decide limits --question a --choice b --parent none",
        "plan context set limits key {",
        "plan context get limits key",
        "plan context unset limits key",
        "plan output set limits key {",
        "plan checkpoint create none",
        "plan checkpoint list none",
        "plan checkpoint show limits @",
        "plan checkpoint delete limits @",
        "plan rollback limits none",
        "plan pause limits",
        "plan cancel none",
        "plan apply limits",
    ] {
        told.push_str(&brief(&sandbox, line));
    }
    assert_snapshot!(told, @"
    plan new: exit 12, taken, null
    plan show: exit 10, no_plan, null
    plan tree: exit 10, no_plan, null
    plan log: exit 10, no_plan, null
    plan step start: exit 10, no_step, null
    plan step finish: exit 12, plan_rule, null
    plan step fail: exit 12, plan_rule, null
    plan step add: exit 12, plan_rule, null
    plan decide: exit 10, no_decision, null
    plan context set: exit 2, usage, null
    plan context get: exit 10, no_key, null
    plan context unset: exit 10, no_key, null
    plan output set: exit 2, usage, null
    plan checkpoint create: exit 10, no_plan, null
    plan checkpoint list: exit 10, no_plan, null
    plan checkpoint show: exit 10, no_checkpoint, null
    plan checkpoint delete: exit 10, no_checkpoint, null
    plan rollback: exit 10, no_checkpoint, null
    plan pause: exit 12, plan_rule, null
    plan cancel: exit 10, no_plan, null
    plan apply: exit 12, plan_rule, null
    ");
}

#[test]
fn a_plan_that_is_paused_can_still_be_finished() {
    let sandbox = Sandbox::new();
    sandbox.run(&["plan", "new", "--title", "One", "--id", "one"]);
    sandbox.run(&["plan", "step", "add", "one", "only"]);
    sandbox.run(&["plan", "step", "start", "one", "only"]);
    sandbox.run(&["plan", "pause", "one"]);
    assert_snapshot!(sandbox.run(&["plan", "step", "finish", "one", "only"]), @"
    Step only done
      every step of the plan is done
    --- exit 0
    ");
}

fn data(sandbox: &Sandbox, args: &[&str]) -> Value {
    let output = sandbox.output(&[args, &["--json"]].concat());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["status"], "ok", "{answer:#}");
    answer["data"].clone()
}

#[test]
fn correct_goes_back_to_the_last_clean_checkpoint_with_the_files() {
    let (sandbox, _) = failed();
    let shown = data(&sandbox, &["plan", "correct", "limits", "--mode", "revert", "--dry-run"]);
    assert_eq!(shown["plan"]["state"], "failed", "a dry run changes nothing");
    let done =
        data(&sandbox, &["plan", "correct", "limits", "--mode", "revert", "--guidance", "keep the table"]);
    assert_eq!(done["correction"]["checkpoint"], shown["correction"]["checkpoint"]);
    assert_eq!(done["correction"]["attempt"], 1);
    assert_eq!(done["plan"]["state"], "running");
    assert_eq!(done["rollback"]["verified"], true);
    let last = done["plan"]["decisions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["choice"], "keep the table");
    assert_eq!(fs::read_to_string(sandbox.path("project/main.rs")).unwrap(), "fn main() {}\n");
    assert!(sandbox.path("project/table.sql").exists());
    // One more step, and nothing that is done changes.
    let added = data(
        &sandbox,
        &["plan", "correct", "limits", "--mode", "append", "--step", "Mend the table", "--run", "make mend"],
    );
    assert_eq!(
        (&added["correction"]["step"], &added["correction"]["attempt"]),
        (&json!("mend-the-table"), &json!(2))
    );
    sandbox.run(&["undo"]);
    assert_eq!(data(&sandbox, &["plan", "show", "limits"])["plan"]["state"], "failed");
}

#[test]
fn correct_of_a_decision_keeps_the_others() {
    let (sandbox, decision) = failed();
    let done = data(&sandbox, &["plan", "correct", "limits", "--mode", "revert", "--decision", &decision]);
    assert_eq!(done["plan"]["decisions"], json!([]), "both depended on it");
    assert_eq!(done["rollback"]["plan"]["decisions_superseded"], 2);
}

#[test]
fn what_cannot_be_corrected_says_why() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "correct", "limits", "--mode", "revert"]), @r#"
    --- stderr
    error: cannot correct plan "limits": plan limits has no clean checkpoint to go back to
      because: the plan has no checkpoint
    Nothing was changed.
    hint: `safepoint plan checkpoint list PLAN` shows what there is; `plan rollback` goes to any of them.
    --- exit 10
    "#);
    for wrong in [
        &["--mode", "append"][..],
        &["--mode", "revert", "--step", "x"],
        &["--mode", "append", "--step", "x", "--decision", "y"],
        &["--mode", "revert", "--decision", "nothing"],
    ] {
        let output = sandbox.output(&[&["plan", "correct", "limits"], wrong].concat());
        assert!(matches!(output.status.code(), Some(2 | 10)), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("hint:"), "{wrong:?}");
    }
}
