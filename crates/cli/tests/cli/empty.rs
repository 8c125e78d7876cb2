//! Empty values. `--path "$VARIABLE"` with an empty variable must not mean the whole workspace.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;

#[test]
fn an_empty_path_is_an_error_and_changes_nothing() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["rollback", "@", "--path", ""]), @"
    --- stderr
    error: invalid value '' for '--path <PATH>': a path cannot be empty; `.` is this folder

    For more information, try '--help'.
    --- exit 2
    ");
    for args in [
        &["rollback", "@", "--path", "", "--json"][..],
        &["rollback", "@", "--path="],
        &["rollback", "@", "--path", "src", "--path", ""],
        &["purge", "", "--yes"],
        &["purge", "notes.txt", "", "--yes"],
        &["diff", "@", "--", ""],
        &["cat", "@", ""],
        &["export", "@", ""],
        &["import", ""],
        &["init", ""],
        &["man", ""],
        &["-C", "", "status"],
        &["--home", "", "status"],
        &["agent", "register", "odd", "--config", ""],
        &["agent", "register", "odd", "--memory", ""],
        &["plan", "new", ""],
        &["session", "export", "01KG9YS9EGCQT0DH2X3200JHAF", ""],
    ] {
        let output = sandbox.output(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", sandbox.told(&output));
    }
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert!(sandbox.path("project/junk.log").exists());
    assert_eq!(sandbox.run(&["cat", "@", "notes.txt"]), "good\n--- exit 0\n", "nothing was purged");
}

#[test]
fn an_empty_name_is_an_error() {
    let sandbox = Sandbox::with_checkpoint();
    for args in [
        &["show", ""][..],
        &["show", "--checkpoint-id", ""],
        &["show", "@", "--session-id", ""],
        &["diff", ""],
        &["diff", "@", ""],
        &["rollback", ""],
        &["cat", "", "notes.txt"],
        &["export", "", "../out"],
        &["delete", "", "--yes"],
        &["pin", ""],
        &["validate", ""],
        &["create", "--plan", ""],
        &["create", "--scope", "agent", "--agent", ""],
        &["create", "--session-id", ""],
        &["create", "--source-tool", ""],
        &["list", "--plan", ""],
        &["list", "--session-id", ""],
        &["plan", "show", ""],
        &["plan", "run", ""],
        &["plan", "new", "--title", "x", "--id", ""],
        &["plan", "new", "--title", ""],
        &["plan", "log", "x", ""],
        &["plan", "step", "start", "x", ""],
        &["plan", "rollback", "x", ""],
        &["plan", "context", "set", "x", "", "1"],
        &["session", "get", ""],
        &["session", "create", ""],
        &["agent", "show", ""],
        &["agent", "register", ""],
    ] {
        let output = sandbox.output(args);
        let told = sandbox.told(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
    }
    // An empty label is ignored: a checkpoint matters more than its label.
    assert!(sandbox.run(&["create", "-m", ""]).contains("--- exit 0"));
}

#[test]
fn a_name_of_spaces_is_a_name() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(" ", "one\n");
    sandbox.write("\u{3000}", "one\n");
    sandbox.run(&["create"]);
    sandbox.write(" ", "two\n");
    sandbox.write("notes.txt", "changed\n");
    assert_eq!(sandbox.run(&["cat", "@", " "]), "one\n--- exit 0\n");
    assert!(sandbox.run(&["rollback", "@", "--path", " "]).contains("--- exit 0"));
    assert_eq!((sandbox.read(" "), sandbox.read("notes.txt")), ("one\n".to_owned(), "changed\n".to_owned()));
    fs::remove_file(sandbox.path("project").join(" ")).unwrap();
    assert!(sandbox.run(&["rollback", "@", "--path", "\u{3000}"]).contains("--- exit 0"));
}
