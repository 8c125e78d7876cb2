//! `rollback --until`: the output of a search, and the leftovers of a killed one.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Checkpoints "number 0" to "number 3", and a current state of 9.
fn numbers() -> Sandbox {
    let sandbox = Sandbox::new();
    for number in 0..4 {
        sandbox.write("number", number.to_string());
        sandbox.run(&["create", "-m", &format!("number {number}")]);
    }
    sandbox.write("number", "9");
    sandbox
}

fn data(sandbox: &Sandbox, args: &[&str]) -> Value {
    sandbox.json(&[args, &["--json"]].concat())["data"].clone()
}

/// Returns every path below a folder with its inode, times and mode.
fn stamps(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let times = (facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec());
        found.push(format!("{} {} {:?} {}", path.display(), facts.ino(), times, facts.mode()));
        if facts.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

fn scratch(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.path("home/scratch")).map_or(0, Iterator::count)
}

/// Starts a search and waits until its check has started.
fn begun(sandbox: &Sandbox, args: &[&str]) -> Child {
    let mark = sandbox.path("mark");
    let check = format!("echo touched > number; echo x > new; touch {}; sleep 5", mark.display());
    let command = [&["rollback", "number 2", "--until", &check], args].concat();
    let child = sandbox.command(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !mark.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(mark).unwrap();
    child
}

#[test]
fn a_search_goes_back_to_the_newest_that_passes_and_one_undo_returns() {
    let sandbox = numbers();
    let check = "test $(cat number) -le 1";
    assert_snapshot!(sandbox.run(&["rollback", "--until", check, "--dry-run"]), @r#"
      current state               fails (exit status 1)
      01KG9YYQ9053R1T2RMWKDG33ZD  fails (exit status 1)
      01KG9YWWP02J59EP1NVRE9ENPE  fails (exit status 1)
      01KG9YV2300QJS22HDXJ4G4Q61  passes
    Would roll back to 01KG9YV2300QJS22HDXJ4G4Q61 "number 1", taken 2 minutes ago
      1 file restored, 0 files removed; a dry run: nothing was changed
        ~ number  restored
    --- exit 0
    "#);
    assert_eq!(sandbox.read("number"), "9");
    assert_snapshot!(sandbox.run(&["rollback", "--until", check]), @r#"
      current state               fails (exit status 1)
      01KG9YYQ9053R1T2RMWKDG33ZD  fails (exit status 1)
      01KG9YWWP02J59EP1NVRE9ENPE  fails (exit status 1)
      01KG9YV2300QJS22HDXJ4G4Q61  passes
    Rolled back to 01KG9YV2300QJS22HDXJ4G4Q61 "number 1", taken 3 minutes ago
      1 file restored, 0 files removed, read back and verified, in N ms
        ~ number  restored
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_eq!(sandbox.read("number"), "1");
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("number"), "9");
    assert_eq!(sandbox.output(&["undo"]).status.code(), Some(10), "the search was one record");
    let told = data(&sandbox, &["rollback", "--until", check, "--bisect", "--copy"]);
    assert_eq!(told["rollback"]["strategy"], "progressive");
    assert_eq!((&told["tried_in"], &told["left_out"]), (&json!("copy"), &json!([])));
    assert_eq!(told["current"], json!({ "passed": false, "failure": "exit status 1" }));
    assert_eq!(sandbox.read("number"), "1");
}

#[test]
fn a_search_that_finds_nothing_says_so_and_changes_nothing() {
    let sandbox = numbers();
    let before = stamps(&sandbox.path("project"));
    assert_snapshot!(sandbox.run(&["rollback", "number 2", "--until", "false"]), @"
      01KG9YWWP02J59EP1NVRE9ENPE  fails (exit status 1)
      01KG9YV2300QJS22HDXJ4G4Q61  fails (exit status 1)
      01KG9YS9EGCQT0DH2X3200JHAF  fails (exit status 1)
    --- stderr
    error: cannot roll back: the check passes in none of the checkpoints (3 tried)
    Nothing was changed.
    hint: Check that the command can pass.
    --- exit 1
    ");
    assert_snapshot!(sandbox.run(&["rollback", "--until", "grep -q 9 number"]), @"
      current state               passes
    The check passes in the current state: nothing to roll back.
    --- exit 0
    ");
    assert_eq!(stamps(&sandbox.path("project")), before);
    assert_eq!(sandbox.output(&["undo"]).status.code(), Some(10), "there is nothing to undo");
}

#[test]
fn a_search_in_place_runs_where_the_project_is() {
    let sandbox = numbers();
    let check = format!("test $PWD = {} && test $(cat number) -le 1", sandbox.path("project").display());
    let told = data(&sandbox, &["rollback", "--until", &check, "--in-place"]);
    assert_eq!(told["check_changed_files"], false);
    assert_eq!((&told["tried_in"], sandbox.read("number").as_str()), (&json!("workspace"), "1"));
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("number"), "9");
    assert_eq!(sandbox.output(&["undo"]).status.code(), Some(10), "the search was one record");
}

#[test]
fn a_kill_during_a_search_leaves_the_workspace_untouched_and_the_next_command_sweeps_the_copy() {
    let sandbox = numbers();
    let before = stamps(&sandbox.path("project"));
    let kept = data(&sandbox, &["list"]);
    let mut child = begun(&sandbox, &["--copy"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(stamps(&sandbox.path("project")), before);
    assert_eq!(scratch(&sandbox), 1, "the copy still exists");
    assert_eq!(sandbox.output(&["status"]).status.code(), Some(0));
    assert_eq!(scratch(&sandbox), 0, "the next command deleted it");
    assert_eq!(stamps(&sandbox.path("project")), before);
    assert_eq!(data(&sandbox, &["list"])["checkpoints"], kept["checkpoints"]);
    assert_eq!(sandbox.output(&["undo"]).status.code(), Some(10));
}

#[test]
fn who_interrupts_a_search_has_everything_as_it_was() {
    for place in [&[][..], &["--copy"], &["--in-place"]] {
        let sandbox = numbers();
        let child = begun(&sandbox, place);
        Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", sandbox.told(&output));
        assert_eq!((sandbox.read("number").as_str(), scratch(&sandbox)), ("9", 0));
        assert!(!sandbox.path("project/new").exists(), "the files of the check are gone, too");
    }
}

/// After the next command, every file that the search replaced is restored. Other files that the check wrote
/// stay, and the state before it is a checkpoint.
#[test]
fn a_kill_during_a_search_in_place_is_put_right_by_the_next_command() {
    let sandbox = numbers();
    let mut child = begun(&sandbox, &["--in-place"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sandbox.read("number"), "touched\n", "the probe is still in place");
    assert_eq!(sandbox.output(&["status"]).status.code(), Some(0));
    assert_eq!(sandbox.read("number"), "9", "recovery restored it");
    assert!(!sandbox.path("project/.safepoint").exists());
    assert_eq!(sandbox.output(&["undo"]).status.code(), Some(10), "there is nothing to undo");
    assert_eq!(sandbox.read("new"), "x\n", "the files of the check stay");
    let all = data(&sandbox, &["list", "--all"]);
    let labels = all["checkpoints"].as_array().unwrap().iter().map(|it| it["label"].as_str().unwrap());
    let before = labels.filter(|label| *label == "before a search in place").count();
    assert!(before >= 1, "{all:#}");
}

#[test]
fn what_a_check_changed_in_place_is_reported() {
    let sandbox = numbers();
    assert_snapshot!(sandbox.run(&["rollback", "number 0", "--until", "echo x > new; false", "--in-place"]), @"
      01KG9YS9EGCQT0DH2X3200JHAF  fails (exit status 1)
    --- stderr
    warning: the check changed files in the workspace; a rollback restored them
    error: cannot roll back: the check passes in none of the checkpoints (1 tried)
    Nothing was changed.
    hint: Check that the command can pass.
    --- exit 1
    ");
    assert!(!sandbox.path("project/new").exists());
    sandbox.run(&["undo"]);
    assert_eq!((sandbox.read("new").as_str(), sandbox.read("number").as_str()), ("x\n", "9"));
}
