//! `history`: every rollback, undo, redo and correction, also those that were refused or failed.

use crate::plan::failed;
use crate::plan_run::data;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};

fn entries(sandbox: &Sandbox, keys: &[&str]) -> Vec<Value> {
    let answer = sandbox.json(&["history", "--json"]);
    let history = answer["data"]["history"].as_array().unwrap();
    history.iter().map(|it| keys.iter().map(|key| it[*key].clone()).collect()).collect()
}

#[test]
fn rollbacks_undos_and_redos_are_on_record_with_their_actor() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["history"]), @"
    No rollback, undo, redo or correction is on record.
    --- exit 0
    ");
    sandbox.wreck();
    sandbox.run(&["rollback", "first", "--dry-run"]);
    sandbox.run(&["rollback", "first", "--until", "false"]);
    sandbox.run(&["rollback", "first", "--until", "false", "--in-place"]);
    assert!(entries(&sandbox, &["id"]).is_empty(), "neither dry runs nor probes count");
    sandbox.run(&["rollback", "first"]);
    let undo =
        sandbox.command(&["undo"]).env("USER", "ada").env("SAFEPOINT_AGENT", "claude").output().unwrap();
    assert_eq!(undo.status.code(), Some(0));
    sandbox.run(&["redo"]);
    assert_eq!(
        entries(&sandbox, &["verb", "actor", "strategy", "result"]),
        [
            json!(["redo", "tester", "immediate", "done"]),
            json!(["undo", "ada via claude", "immediate", "done"]),
            json!(["rollback", "tester", "immediate", "done"]),
        ]
    );
    assert_eq!(
        sandbox.json(&["history", "-n", "1", "--json"])["data"]["history"].as_array().unwrap().len(),
        1
    );
    let first = sandbox.json(&["show", "first", "--json"])["data"]["checkpoint"]["id"].clone();
    assert_eq!(entries(&sandbox, &["to"])[2], json!([first]));
}

#[test]
fn corrections_and_refusals_are_on_record() {
    let (sandbox, _) = failed();
    let guidance = ["plan", "correct", "limits", "--mode", "revert", "--guidance", "mind the lock"];
    data(&sandbox, &guidance);
    // The plan is healthy now.
    assert_eq!(sandbox.output(&guidance[..5]).status.code(), Some(12));
    let last = &entries(&sandbox, &["verb", "plan", "strategy", "result", "error"]);
    assert_eq!(
        last[..2],
        [
            json!([
                "correct",
                "limits",
                "revert",
                "refused",
                "plan limits is healthy: no step has failed or was interrupted"
            ]),
            json!(["correct", "limits", "immediate", "done", null]),
        ]
    );
}
