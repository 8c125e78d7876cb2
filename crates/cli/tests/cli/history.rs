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
    sandbox.run(&["rollback", "first", "--until", "false", "--dry-run"]);
    sandbox.run(&["rollback", "first", "--verify", "false", "--dry-run", "--yes"]);
    assert!(entries(&sandbox, &["id"]).is_empty(), "dry runs do not count");
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

#[test]
fn refused_corrections_have_ids_of_their_own() {
    let (sandbox, _) = failed();
    data(&sandbox, &["plan", "correct", "limits", "--mode", "revert"]);
    for _ in 0..2 {
        assert_eq!(
            sandbox.output(&["plan", "correct", "limits", "--mode", "revert"]).status.code(),
            Some(12)
        );
    }
    let ids = entries(&sandbox, &["id"]);
    assert!(ids[0] != ids[1] && ids[0][0].as_str().unwrap().starts_with("limits#refused-"), "{ids:?}");
}

#[test]
fn rollbacks_that_a_check_refused_are_on_record_and_probes_are_not() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("second.txt", "second\n");
    sandbox.run(&["create", "-m", "second"]);
    sandbox.wreck();
    for (args, code) in [
        (&["rollback", "first", "--verify", "false", "--yes"][..], 1),
        (&["rollback", "--until", "false"], 1),
        (&["rollback", "first", "--until", "false", "--in-place"], 1),
    ] {
        assert_eq!(sandbox.output(args).status.code(), Some(code), "{args:?}");
    }
    let id = |label: &str| sandbox.json(&["show", label, "--json"])["data"]["checkpoint"]["id"].clone();
    let (first, second) = (id("first"), id("second"));
    assert_eq!(
        entries(&sandbox, &["verb", "strategy", "to", "result"]),
        [
            json!(["rollback", "progressive", first, "refused"]),
            json!(["rollback", "progressive", second, "refused"]),
            json!(["rollback", "staged", first, "refused"]),
        ]
    );
    let errors = entries(&sandbox, &["error"]);
    assert!(errors[0][0].as_str().unwrap().contains("passes in none"), "{errors:?}");
    assert!(errors[2][0].as_str().unwrap().contains("the check does not pass"), "{errors:?}");
    // A check that passes in the current state refuses nothing.
    assert_eq!(sandbox.output(&["rollback", "--until", "true"]).status.code(), Some(0));
    assert_eq!(entries(&sandbox, &["id"]).len(), 3);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
}

#[test]
fn the_actor_is_known_without_an_environment() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let output = sandbox.command(&["rollback", "@"]).env_remove("USER").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let actor = entries(&sandbox, &["actor"])[0][0].as_str().unwrap().to_owned();
    let id = std::process::Command::new("id").arg("-un").output().unwrap();
    let name = String::from_utf8(id.stdout).unwrap().trim().to_owned();
    let number = format!("uid {}", rustix::process::geteuid().as_raw());
    assert!(actor == name || actor == number, "{actor}");
}
