//! `plan correct`: back to the last clean checkpoint, to before a decision, or one more step.

use crate::plan::{failed, planned};
use crate::plan_run::data;
use insta::assert_snapshot;
use serde_json::json;
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
