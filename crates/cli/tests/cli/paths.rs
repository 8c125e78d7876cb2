//! Paths as people see and type them: relative to the current directory.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

/// Output of a command in a folder of the project.
fn below(sandbox: &Sandbox, folder: &str, args: &[&str]) -> String {
    let mut command = sandbox.command(args);
    sandbox.told(&command.current_dir(sandbox.path("project").join(folder)).output().unwrap())
}

#[test]
fn status_shows_paths_as_rollback_takes_them() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.write("src/new/file", "");
    let seen = below(&sandbox, "src", &["status"]);
    assert_snapshot!(seen, @r#"
    5 changes since 01KG9YS9EGCQT0DH2X3200JHAF "first", 57 seconds ago, not in a checkpoint:
        + ../junk.log
        ~ ../notes.txt
        - main.rs
        + new/ and 1 below it
      left out:
        ../.git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    assert_snapshot!(below(&sandbox, "src/new", &["status"]), @r#"
    5 changes since 01KG9YS9EGCQT0DH2X3200JHAF "first", 1 minute ago, not in a checkpoint:
        + ../../junk.log
        ~ ../../notes.txt
        - ../main.rs
        + ./ and 1 below it
      left out:
        ../../.git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    let typed = |sign: &str| {
        let row = seen.lines().find_map(|row| row.trim_start().strip_prefix(sign)).unwrap();
        row.to_owned()
    };
    for sign in ["~ ", "- "] {
        let told = below(&sandbox, "src", &["rollback", "@", "--path", &typed(sign)]);
        assert!(told.ends_with("--- exit 0\n"), "{told}");
    }
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert!(sandbox.path("project/src/main.rs").exists());
    // Programs get paths from the root of the workspace, wherever they ask.
    sandbox.write("notes.txt", "bad\n");
    let mut command = sandbox.command(&["status", "--json"]);
    let output = command.current_dir(sandbox.path("project/src")).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let changes = value["data"]["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["path"] == "notes.txt"), "{value}");
}

#[test]
fn a_diff_of_a_path_that_neither_side_has_reports_it() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["diff", "--", "notes.text"]), @r#"
    --- stderr
    error: cannot compare with the position: "notes.text" is in neither 01KG9YS9EGCQT0DH2X3200JHAF nor the current state
    hint: List the paths of a checkpoint: safepoint show 01KG9YS9EGCQT0DH2X3200JHAF --files
    --- exit 10
    "#);
    assert_snapshot!(below(&sandbox, "src", &["diff", "first", "@", "--", "main.rs", "notes.txt"]), @r#"
    --- stderr
    error: cannot compare with checkpoint "first": "notes.txt" is in neither 01KG9YS9EGCQT0DH2X3200JHAF nor 01KG9YS9EGCQT0DH2X3200JHAF
    hint: Paths are relative to the current directory; from here it is ../notes.txt
    hint: List the paths of a checkpoint: safepoint show 01KG9YS9EGCQT0DH2X3200JHAF --files
    --- exit 10
    "#);
    let value = sandbox.json(&["diff", "--json", "--", "typo"]);
    assert_eq!((&value["error"]["code"], &value["exit_code"]), (&"no_path".into(), &10.into()), "{value}");
    // Paths that one side has are not mistyped: removed, new, or left out.
    sandbox.wreck();
    for path in ["src/main.rs", "junk.log", ".git", ".", "src"] {
        let told = sandbox.run(&["diff", "--name-only", "--", path]);
        assert!(told.ends_with("--- exit 0\n"), "{path}: {told}");
    }
}
