//! Everyday behaviour: undo, paths as arguments, a history without noise, and the position of the workspace.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;

fn list(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().clone()
}

#[test]
fn undo_refuses_to_discard_later_changes_unless_it_is_confirmed() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    sandbox.write("notes.txt", "new work\n");
    assert_snapshot!(sandbox.run(&["undo"]), @"
    --- stderr
    error: cannot undo: files changed since the last rollback: notes.txt
    Nothing was changed.
    hint: Show what an undo does: safepoint undo --dry-run
    hint: Undo anyway, and keep the current state in a safety checkpoint: safepoint undo --yes
    --- exit 12
    ");
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
    let seen = sandbox.typed(sandbox.command(&["undo"]), "n\n");
    assert!(seen.contains("notes.txt") && seen.contains("[y/N]"), "{seen}");
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
    assert!(sandbox.run(&["undo", "--dry-run"]).ends_with("--- exit 0\n"));
    assert!(sandbox.run(&["undo", "--yes"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    // The new work is kept.
    sandbox.run(&["redo"]);
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
}

#[test]
fn redo_refuses_to_discard_later_changes_unless_it_is_confirmed() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    sandbox.run(&["undo"]);
    sandbox.write("notes.txt", "new work\n");
    assert_snapshot!(sandbox.run(&["redo"]), @"
    --- stderr
    error: cannot redo: files changed since the last undo: notes.txt
    Nothing was changed.
    hint: Show what a redo does: safepoint redo --dry-run
    hint: Redo anyway, and keep the current state in a safety checkpoint: safepoint redo --yes
    --- exit 12
    ");
    let value = sandbox.json(&["redo", "--json"]);
    assert_eq!(value["error"]["code"], "changed_since_rollback", "{value}");
    let seen = sandbox.typed(sandbox.command(&["redo"]), "n\n");
    assert!(seen.contains("notes.txt") && seen.contains("Redo anyway?"), "{seen}");
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
    assert!(sandbox.run(&["redo", "--dry-run"]).ends_with("--- exit 0\n"));
    assert!(sandbox.run(&["redo", "--yes"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    // The new work is kept.
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
}

#[test]
fn undo_of_chosen_paths_heeds_changes_of_those_paths_alone() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@", "--path", "notes.txt"]);
    sandbox.write("other.txt", "new work\n");
    assert!(sandbox.run(&["undo"]).ends_with("--- exit 0\n"));
    assert_eq!(
        (sandbox.read("notes.txt").as_str(), sandbox.read("other.txt").as_str()),
        ("bad\n", "new work\n")
    );
}

#[test]
fn undo_with_nothing_to_undo_offers_the_newest_checkpoint() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let told = sandbox.run(&["undo"]);
    assert!(told.contains("safepoint rollback @") && told.ends_with("--- exit 10\n"), "{told}");
}

#[test]
fn an_argument_that_names_no_checkpoint_is_a_path() {
    let sandbox = Sandbox::with_checkpoint();
    let back = |args: &[&str]| {
        sandbox.wreck_all();
        let told = sandbox.run(args);
        assert!(told.ends_with("--- exit 0\n"), "{args:?}: {told}");
        assert_eq!(sandbox.read("notes.txt"), "good\n", "{args:?}");
        assert!(!sandbox.path("project/src/main.rs").exists(), "{args:?}");
    };
    back(&["rollback", "notes.txt"]);
    back(&["rollback", "@", "notes.txt"]);
    back(&["rollback", "first", "notes.txt", "junk.log"]);
    back(&["rollback", "--path", "notes.txt"]);
    back(&["rollback", "--", "notes.txt"]);
    back(&["rollback", "@", "--", "notes.txt"]);
    back(&["rollback", "--checkpoint-id", "@", "notes.txt"]);
    // A path that only the checkpoint holds.
    assert!(sandbox.run(&["rollback", "src/main.rs"]).ends_with("--- exit 0\n"));
    assert!(sandbox.path("project/src/main.rs").exists());
    let told = sandbox.run(&["rollback", "frist"]);
    assert!(told.ends_with("--- exit 10\n"), "{told}");
    let told = sandbox.run(&["rollback", "notes.txt", "frist"]);
    assert!(!told.ends_with("--- exit 0\n"), "{told}");
}

#[test]
fn an_argument_that_names_a_checkpoint_and_a_path_is_refused_with_both_spellings() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("first", "a file\n");
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["rollback", "first"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "first": "first" names both a checkpoint and a path
    Nothing was changed.
    hint: The checkpoint: safepoint rollback --checkpoint-id first
    hint: The path: safepoint rollback -- first
    --- exit 2
    "#);
    assert!(sandbox.run(&["rollback", "--checkpoint-id", "first", "--dry-run"]).contains("notes.txt"));
    assert!(!sandbox.run(&["rollback", "--dry-run", "--", "first"]).contains("notes.txt"));
}

#[test]
fn undo_of_a_path_is_a_record_that_can_be_undone() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    let told = sandbox.run(&["undo", "notes.txt"]);
    assert!(told.ends_with("--- exit 0\n"), "{told}");
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert!(!sandbox.path("project/junk.log").exists());
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert!(sandbox.path("project/junk.log").exists());
    // A path that the rollback was not about has nothing to undo.
    sandbox.run(&["rollback", "@", "--path", "notes.txt"]);
    let told = sandbox.run(&["undo", "run.sh"]);
    assert!(told.ends_with("--- exit 10\n"), "{told}");
}

#[test]
fn rollback_without_a_checkpoint_lists_and_fails() {
    let sandbox = Sandbox::with_checkpoint();
    let told = sandbox.run(&["rollback"]);
    assert!(told.contains("01KG9YS9EGCQT0DH2X3200JHAF") && told.ends_with("--- exit 2\n"), "{told}");
    let value = sandbox.json(&["rollback", "--json"]);
    assert_eq!(
        (&value["error"]["kind"], value["data"]["checkpoints"].as_array().unwrap().len()),
        (&"usage".into(), 1)
    );
}

#[test]
fn plain_create_adds_nothing_when_nothing_changed() {
    let sandbox = Sandbox::with_checkpoint();
    let create = |args: &[&str]| {
        let value = sandbox.json(&[&["create", "--json"], args].concat());
        (value["data"]["unchanged"].as_bool().unwrap(), value["data"]["checkpoint"]["label"].clone())
    };
    assert_eq!(create(&[]), (true, "first".into()));
    assert_snapshot!(sandbox.run(&["create"]), @r#"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF "first"
      nothing changed since it was taken: no checkpoint was added
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["create", "-q"]), @"
    01KG9YS9EGCQT0DH2X3200JHAF
    --- exit 0
    ");
    assert_eq!(create(&["-m", "first again", "--if-changed"]), (true, "first".into()));
    let session = "01932b7c-8f00-1234-5678-9abcdef01122";
    for args in [
        &["-m", "x"][..],
        &["x"],
        &["--pin"],
        &["--phase", "plan"],
        &["--reason", "manual"],
        &["--kind", "manual"],
        &["--counter", "tests_passing=1"],
        &["--session-id", session],
    ] {
        assert!(!create(args).0, "{args:?}");
    }
    let count = list(&sandbox).len();
    assert_eq!(count, 9);
    sandbox.write("notes.txt", "changed\n");
    assert!(!create(&[]).0);
    // After a rollback the position is the checkpoint that it went to.
    sandbox.run(&["rollback", "first"]);
    assert_eq!(create(&[]), (true, "first".into()));
    // A mode is part of the state, and a rollback of a path leads to no checkpoint that a user made.
    sandbox.wreck();
    sandbox.run(&["rollback", "first", "--path", "notes.txt"]);
    assert!(!create(&[]).0);
}

#[test]
fn a_rollback_that_changes_nothing_takes_no_safety_checkpoint_and_is_undone_first() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    let before = list(&sandbox).len();
    let value = sandbox.json(&["rollback", "@", "--json"]);
    assert_eq!(
        (&value["status"], &value["data"]["rollback"]["safety_checkpoint"]),
        (&"ok".into(), &Value::Null)
    );
    assert_eq!(list(&sandbox).len(), before);
    let records =
        sandbox.json(&["list", "--graph", "--json"])["data"]["rollbacks"].as_array().unwrap().clone();
    assert_eq!((records.len(), &records[1]["state"]), (2, &"settled".into()));
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n", "nothing older is undone");
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert!(sandbox.run(&["recover"]).contains("Nothing was left"));
}

#[test]
fn lists_fold_safety_checkpoints_away_and_programs_get_them() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    assert_snapshot!(sandbox.run(&["list"]), @"
    CHECKPOINT                  WHEN          KIND    CHANGED   STORED  LABEL
    01KG9YS9EGCQT0DH2X3200JHAF  1 minute ago  manual  +6 ~0 -0  SIZE  first
    1 safety checkpoint is not shown: safepoint list --all-roles
    --- exit 0
    ");
    assert!(sandbox.run(&["list", "--all-roles"]).contains("(safety)"));
    assert_eq!(list(&sandbox).len(), 2);
}

#[test]
fn status_diff_and_list_agree_on_the_position() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("second.txt", "second\n");
    sandbox.run(&["create", "-m", "second"]);
    sandbox.run(&["rollback", "first"]);
    sandbox.write("notes.txt", "new work\n");
    let here = sandbox.json(&["list", "--json"])["data"]["head"].clone();
    assert_eq!(sandbox.json(&["show", "@here", "--json"])["data"]["checkpoint"]["id"], here);
    assert_eq!(sandbox.json(&["status", "--json"])["data"]["base"]["id"], here);
    let diff = sandbox.json(&["diff", "--json"]);
    assert_eq!(diff["data"]["from"], here);
    assert_eq!(diff["data"]["changes"], sandbox.json(&["status", "--json"])["data"]["changes"]);
    let seen = sandbox.terminal(sandbox.command(&["list"]));
    let marked = seen.lines().find(|line| line.starts_with('*')).unwrap();
    assert!(marked.contains("first") && seen.contains("* @here: the position of the workspace"), "{seen}");
    let help = sandbox.run(&["rollback", "-h"]).replace("\n", " ");
    assert!(help.contains("@ is the newest checkpoint; @here is the position"), "{help}");
}

/// A command on a terminal that understands keys.
fn with_keys(sandbox: &Sandbox, args: &[&str], keys: &'static str) -> String {
    let mut command = sandbox.command(args);
    command.env("TERM", "xterm");
    sandbox.typed(command, keys)
}

#[test]
fn a_checkpoint_is_chosen_on_a_terminal() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("second.txt", "second\n");
    sandbox.run(&["create", "-m", "second"]);
    sandbox.wreck();
    // Filtered, previewed, and declined.
    let seen = with_keys(&sandbox, &["rollback"], "fir\nn\n");
    assert!(seen.contains("Filter: fir") && seen.contains("+ second.txt"), "{seen}");
    assert!(seen.contains("Would roll back to") && seen.contains("Roll back to this? [y/N]"), "{seen}");
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    // The second row, by an arrow.
    let seen = with_keys(&sandbox, &["rollback"], "\u{1b}[B\ny\n");
    assert!(seen.contains("Rolled back to"), "{seen}");
    assert!(!sandbox.path("project/second.txt").exists());
    // Esc cancels, and a filter that fits nothing chooses nothing.
    let seen = with_keys(&sandbox, &["rollback"], "zzz\n\u{1b}");
    assert!(seen.contains("no checkpoint was chosen"), "{seen}");
    for (args, said) in [
        (&["show"][..], "label     second"),
        (&["pin"], "Pinned"),
        (&["delete", "--yes"], "Deleted 1 checkpoint"),
    ] {
        let seen = with_keys(&sandbox, args, "sec\n");
        assert!(seen.contains(said), "{args:?}: {seen}");
    }
    // A terminal that understands lines alone.
    let seen = sandbox.typed(sandbox.command(&["show"]), "1\n");
    assert!(seen.contains("label     first"), "{seen}");
    for args in [&["show"][..], &["pin"], &["unpin"], &["delete"]] {
        assert_eq!(sandbox.output(args).status.code(), Some(2), "{args:?}");
    }
}
