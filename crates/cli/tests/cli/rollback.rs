//! Rollback, undo and redo from the command line.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;

#[test]
fn without_an_id_it_lists_and_says_how_to_choose() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["rollback"]), @"
    CHECKPOINT                  WHEN            KIND    CHANGED   STORED  LABEL
    01KG9YS9EGCQT0DH2X3200JHAF  57 seconds ago  manual  +6 ~0 -0  SIZE  first
    --- stderr
    error: cannot roll back: no checkpoint is named
    Nothing was changed.
    hint: Return to the newest, and see first what it does: safepoint rollback @ --dry-run
    --- exit 2
    ");
    assert_eq!(sandbox.json(&["rollback", "--json"])["data"]["checkpoints"].as_array().unwrap().len(), 1);
    let other = Sandbox::new();
    other.run(&["init"]);
    assert_snapshot!(other.run(&["rollback"]), @"
    --- stderr
    error: cannot roll back: no checkpoint is named
    Nothing was changed.
    hint: Safepoint has no copy of these files. Write nothing to the folder until they are found elsewhere.
    hint: If git tracks them: git status; git stash list; git fsck --lost-found
    hint: Editors keep local histories, and an open editor can undo.
    --- exit 2
    ");
}

#[test]
fn there_and_back_again() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["rollback", "first", "--dry-run"]), @r#"
    Would roll back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      2 files restored, 1 file removed; a dry run: nothing was changed
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert_snapshot!(sandbox.run(&["rollback", "first"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 1 minute ago
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert_snapshot!(sandbox.run(&["rollback", "first"]), @r#"
    Nothing differs from 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 2 minutes ago.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["undo", "--dry-run"]), @"
    Nothing differs from what was there just before the last rollback.
    --- exit 0
    ");
    sandbox.run(&["undo"]);
    assert_snapshot!(sandbox.run(&["undo"]), @"
    Undid the last rollback: everything is as just before it
      2 files restored, 1 file removed, read back and verified, in N ms
        + junk.log  created
        ~ notes.txt  restored
        - src/main.rs  removed
    Do it again with: safepoint redo
    --- exit 0
    ");
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert_snapshot!(sandbox.run(&["redo", "--dry-run"]), @"
    Would redo the rollback that was undone
      2 files restored, 1 file removed; a dry run: nothing was changed
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["redo"]), @"
    Redid the rollback that was undone: everything is as after it
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- exit 0
    ");
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert_eq!(sandbox.run(&["undo", "-q"]), "--- exit 0\n");
}

#[test]
fn chosen_paths_alone_come_back() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["rollback", "@", "--path", "./src/", "--path", "junk.log", "--part", "files"]), @r#"
    Rolled back the chosen paths to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      1 file restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        + src/main.rs  created
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert!(sandbox.path("project/src/main.rs").exists() && !sandbox.path("project/junk.log").exists());
    assert_snapshot!(sandbox.run(&["undo"]), @"
    Undid the last rollback: the chosen paths are as just before it
      1 file restored, 1 file removed, read back and verified, in N ms
        + junk.log  created
        - src/main.rs  removed
    Do it again with: safepoint redo
    --- exit 0
    ");
    sandbox.run(&["rollback", "@", "--strategy", "selective", "--path", "."]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn the_spellings_of_programs_work() {
    let sandbox = Sandbox::with_checkpoint();
    let session = "01932b7c-8f00-1234-5678-9abcdef01122";
    let created = sandbox.json(&[
        "create",
        "--session-id",
        session,
        "--description",
        "d",
        "--phase",
        "plan",
        "--checkpoint-type",
        "phase_complete",
        "--json",
    ]);
    let id = created["data"]["checkpoint"]["id"].as_str().unwrap();
    let uuid = created["data"]["checkpoint"]["uuid"].as_str().unwrap();
    let listed = sandbox.json(&["list", "--session-id", session, "--output", "json"]);
    assert_eq!(listed["data"]["checkpoints"].as_array().unwrap().len(), 1);
    assert_snapshot!(sandbox.run(&["list", "--session-id", session, "--output", "pretty"]), @"
    CHECKPOINT                  WHEN          KIND    CHANGED   STORED  LABEL
    01KG9YV2300QJS22HDXJ4G4Q61  1 minute ago  manual  +0 ~0 -0  SIZE  d
    --- exit 0
    ");
    let got = sandbox.json(&["get", "--session-id", session, "--checkpoint-id", uuid, "--json"]);
    assert_eq!((got["command"].as_str(), got["data"]["checkpoint"]["id"].as_str()), (Some("show"), Some(id)));
    sandbox.wreck();
    let form = ["rollback", "--session-id", session, "--checkpoint-id", id, "--json"];
    assert_eq!(sandbox.json(&form)["error"]["code"], "no_git_state", "that form is about git");
    let back = sandbox.json(&["rollback", "--checkpoint-id", id, "--json"]);
    assert_eq!(back["data"]["rollback"]["to"], id);
    assert_snapshot!(sandbox.run(&["get", "--session-id", session, "--checkpoint-id", "first"]), @r#"
    --- stderr
    error: cannot show checkpoint "first": no checkpoint is called "first"
    hint: `safepoint list` shows the checkpoints of this workspace.
    hint: There is one of this name, in another session or in none.
    --- exit 10
    "#);
}

#[test]
fn recorded_times_come_back_where_asked_for() {
    let sandbox = Sandbox::with_checkpoint();
    let notes = sandbox.path("project/notes.txt");
    let before = fs::metadata(&notes).unwrap().modified().unwrap();
    sandbox.wreck();
    sandbox.run(&["rollback", "@", "--keep-times", "--strategy", "immediate"]);
    assert_eq!(fs::metadata(&notes).unwrap().modified().unwrap(), before);
    sandbox.run(&["undo"]);
    sandbox.run(&["redo"]);
    assert_ne!(fs::metadata(&notes).unwrap().modified().unwrap(), before);
}

#[test]
fn a_file_system_that_can_do_less_is_told_about() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let mut command = sandbox.command(&["rollback", "@"]);
    let output = command.env("SAFEPOINT_TEST_WITHOUT", "exchange,noreplace,else").output().unwrap();
    assert_snapshot!(sandbox.told(&output), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- stderr
    warning: this file system cannot exchange two files atomically: a file is briefly missing during a rollback; recovery after a crash is not affected
    warning: this file system cannot rename without replacing: a file that another program creates at the moment of a rollback could be replaced
    --- exit 0
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn long_lists_are_cut_for_people() {
    let sandbox = Sandbox::with_checkpoint();
    for number in 0..30 {
        sandbox.write(&format!("junk{number:02}"), "");
    }
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      0 files restored, 30 files removed, read back and verified, in N ms
        - junk00  removed
        - junk01  removed
        - junk02  removed
        - junk03  removed
        - junk04  removed
        - junk05  removed
        - junk06  removed
        - junk07  removed
        - junk08  removed
        - junk09  removed
        - junk10  removed
        - junk11  removed
        and 18 more; --json shows all
    Undo it with: safepoint undo
    --- exit 0
    "#);
}

#[test]
fn a_folder_with_things_that_were_never_captured_is_kept() {
    let sandbox = Sandbox::new();
    sandbox.write(".safepointignore", "*.log\n");
    sandbox.run(&["create"]);
    sandbox.write("new/taken", "1");
    sandbox.write("new/never.log", "1");
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF, taken 57 seconds ago
      0 files restored, 1 file removed, read back and verified, in N ms
        = new  kept: it holds things that were never captured
        - new/taken  removed
    Undo it with: safepoint undo
    --- exit 0
    ");
    assert!(sandbox.path("project/new/never.log").exists() && !sandbox.path("project/new/taken").exists());
    sandbox.run(&["undo"]);
    assert_snapshot!(sandbox.run(&["undo", "--dry-run"]), @"
    --- stderr
    error: cannot undo: there is no rollback to undo
    Nothing was changed.
    hint: Return to the newest checkpoint: safepoint rollback @
    --- exit 10
    ");
    sandbox.run(&["redo"]);
    sandbox.run(&["undo"]);
    sandbox.run(&["rollback", "@", "--path", "new/taken", "--path", "new", "--path", "new/"]);
    assert_snapshot!(sandbox.run(&["undo", "--dry-run"]), @"
    Would undo the last rollback
      1 file restored, 0 files removed; a dry run: nothing was changed
        + new/taken  created
    --- exit 0
    ");
}
