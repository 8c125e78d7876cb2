//! `plan correct`: rollback to the last clean checkpoint or before a decision, or one more step.

use crate::plan::{failed, planned};
use crate::plan_run::data;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;

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

/// A plan whose second step fails.
fn broken() -> Sandbox {
    let sandbox = Sandbox::new();
    let steps = "[[step]]\nid = 'a'\nrun = 'echo a >> log'\n[[step]]\nid = 'b'\nrun = 'test -e fixed && echo b >> log'\n\
                 [[step]]\nid = 'c'\nrun = 'echo c >> log'";
    sandbox.write("plan.toml", format!("title = 'Some work'\nid = 'work'\n{steps}\n"));
    sandbox.run(&["plan", "new", "plan.toml"]);
    assert_eq!(sandbox.output(&["plan", "run", "work"]).status.code(), Some(1));
    sandbox
}

#[test]
fn a_step_is_added_before_the_failed_one_and_the_plan_goes_through() {
    let sandbox = broken();
    let add = ["plan", "correct", "work", "--mode", "append", "--step", "Fix it", "--run", "touch fixed"];
    let shown = data(&sandbox, &[&add[..], &["--dry-run"]].concat());
    assert_eq!(
        (&shown["correction"]["step"], &shown["correction"]["attempt"]),
        (&json!("fix-it"), &Value::Null)
    );
    let added = data(&sandbox, &add);
    assert_eq!(
        (&added["correction"]["step"], &added["correction"]["attempt"]),
        (&json!("fix-it"), &json!(1))
    );
    let order: Vec<&str> =
        added["plan"]["steps"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(order, ["a", "fix-it", "b", "c"]);
    let last = [
        "plan",
        "correct",
        "work",
        "--mode",
        "append",
        "--step",
        "Last",
        "--run",
        "echo last >> log",
        "--after",
        "c",
    ];
    assert_eq!(data(&sandbox, &last)["correction"]["attempt"], 2);
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("log"), "a\nb\nc\nlast\n");
}

#[test]
fn a_failed_step_is_retried_with_another_command_skipped_or_edited() {
    let sandbox = broken();
    let retry = ["plan", "correct", "work", "--mode", "retry", "--run", "echo other >> log"];
    assert_eq!(data(&sandbox, &retry)["correction"]["step"], "b");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("log"), "a\nother\nc\n");

    let sandbox = broken();
    let skip = ["plan", "correct", "work", "--mode", "skip", "--reason", "done by hand"];
    let skipped = data(&sandbox, &skip);
    assert_eq!(
        (&skipped["correction"]["reason"], &skipped["plan"]["state"]),
        (&json!("done by hand"), &json!("paused"))
    );
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("log"), "a\nc\n");
    assert!(sandbox.run(&["plan", "show", "work"]).contains("[x] b  skipped: done by hand"));
    let log = sandbox.run(&["plan", "log", "work"]);
    assert!(log.contains("corrected: step b is skipped: done by hand"), "{log}");

    let sandbox = broken();
    let edit =
        ["plan", "correct", "work", "--mode", "edit", "--run", "echo edited >> log", "--step", "Better"];
    assert_eq!(data(&sandbox, &edit)["plan"]["steps"][1]["title"], "Better");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
}

#[test]
fn a_healthy_plan_is_not_corrected() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "correct", "limits", "--mode", "append", "--step", "More"]), @r#"
    --- stderr
    error: cannot correct plan "limits": plan limits is healthy: no step has failed or was interrupted
    Nothing was changed.
    hint: To go on: safepoint plan resume limits
    hint: To add a step: safepoint plan step add limits check --run "make test"
    --- exit 12
    "#);
}

#[test]
fn what_cannot_be_corrected_says_why() {
    let sandbox = broken();
    for wrong in [
        &["--mode", "append"][..],
        &["--mode", "revert", "--step", "x"],
        &["--mode", "append", "--step", "x", "--decision", "y"],
        &["--mode", "append", "--step", "x", "--at", "b"],
        &["--mode", "append", "--step", "x", "--before", "nowhere"],
        &["--mode", "revert", "--decision", "nothing"],
        &["--mode", "retry"],
        &["--mode", "skip"],
        &["--mode", "edit"],
        &["--mode", "skip", "--reason", "x", "--at", "a"],
        &["--mode", "skip", "--reason", "x", "--run", "y"],
        &["--mode", "edit", "--run", "x", "--after", "b"],
    ] {
        let output = sandbox.output(&[&["plan", "correct", "work"], wrong].concat());
        assert!(matches!(output.status.code(), Some(2 | 10 | 12)), "{wrong:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("hint:"), "{wrong:?}");
    }
}
