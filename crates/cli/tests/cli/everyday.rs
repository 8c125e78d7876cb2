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
fn if_changed_adds_nothing_in_any_scope() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("plan.toml", "title = 'Work'\nid = 'work'\n[[step]]\nid = 'a'");
    assert!(sandbox.run(&["plan", "new", "plan.toml"]).ends_with("--- exit 0\n"));
    let memory = sandbox.path("memory");
    std::fs::create_dir(&memory).unwrap();
    std::fs::write(memory.join("notes.md"), "1").unwrap();
    let register = ["agent", "register", "claude", "--memory", memory.to_str().unwrap()];
    assert!(sandbox.run(&register).ends_with("--- exit 0\n"));
    for scope in [
        &["--scope", "framework"][..],
        &["--scope", "workflow", "--plan", "work"],
        &["--scope", "agent", "--agent", "claude"],
    ] {
        let create = |more: &[&str]| {
            let value = sandbox.json(&[&["create", "--json"], scope, more].concat());
            (value["data"]["unchanged"].as_bool().unwrap(), value["data"]["checkpoint"]["id"].clone())
        };
        let (unchanged, _) = create(&["--if-changed"]);
        assert!(!unchanged, "{scope:?}: there is none yet");
        let (unchanged, newest) = create(&[]);
        assert!(!unchanged, "{scope:?}: without the option");
        assert_eq!(create(&["--if-changed"]), (true, newest.clone()), "{scope:?}");
        assert_eq!(create(&["--if-changed", "-m", "label"]), (true, newest.clone()), "{scope:?}");
        sandbox.write("notes.txt", format!("changed for {scope:?}\n"));
        std::fs::write(memory.join("notes.md"), format!("changed for {scope:?}")).unwrap();
        let (unchanged, changed) = create(&["--if-changed"]);
        assert!(!unchanged && changed != newest, "{scope:?}");
    }
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
        (&["diff", "--pick", "--name-only"], "[Jsecond.txt"),
        (&["pin"], "Pinned"),
        (&["delete", "--yes"], "Deleted 1 checkpoint"),
    ] {
        let seen = with_keys(&sandbox, args, "sec\n");
        assert!(seen.contains(said), "{args:?}: {seen}");
    }
    // A terminal that understands lines alone.
    let seen = sandbox.typed(sandbox.command(&["show"]), "1\n");
    assert!(seen.contains("label     first"), "{seen}");
    for args in [&["show"][..], &["pin"], &["unpin"], &["delete"], &["diff", "--pick"]] {
        assert_eq!(sandbox.output(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn without_any_checkpoint_no_hint_advises_to_capture_the_wreck() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", "what is left\n");
    let asks: [&[&str]; 5] =
        [&["rollback"], &["rollback", "@"], &["undo"], &["redo"], &["cat", "@", "notes.txt"]];
    let check = |code: i32, args: &[&str]| {
        let told = sandbox.run(args);
        assert!(told.ends_with(&format!("--- exit {code}\n")), "{args:?}: {told}");
        assert!(!told.contains("safepoint create"), "{args:?}: {told}");
        assert!(told.contains("Write nothing to the folder"), "{args:?}: {told}");
        assert!(told.contains("git fsck --lost-found") && told.contains("Editors keep"), "{args:?}: {told}");
    };
    for args in asks {
        check(10, args);
    }
    // The same in a registered folder; undo and redo then offer `rollback @`.
    sandbox.run(&["init"]);
    check(2, &["rollback"]);
    check(10, &["rollback", "@"]);
    let told = sandbox.run(&["show", "@"]);
    assert!(told.contains("has no checkpoint yet") && told.contains("safepoint create"), "{told}");
}

#[test]
fn a_moved_folder_is_recognised_by_every_command() {
    let sandbox = Sandbox::with_checkpoint();
    let moved = sandbox.path("moved");
    std::fs::rename(sandbox.path("project"), &moved).unwrap();
    for args in [&["status"][..], &["list"], &["rollback", "@"], &["undo"]] {
        let output = sandbox.command(args).current_dir(&moved).output().unwrap();
        let told = sandbox.told(&output);
        assert!(
            told.contains("safepoint workspace move $T/project $T/moved") && told.ends_with("--- exit 10\n"),
            "{args:?}: {told}"
        );
        assert!(!told.contains("Write nothing") && !told.contains("safepoint create"), "{args:?}: {told}");
    }
}

#[test]
fn a_path_that_names_nothing_is_not_called_a_checkpoint() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["rollback", "/etc/passwd"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "/etc/passwd": "/etc/passwd" is outside the workspace $T/project
    Nothing was changed.
    hint: Paths are relative to the current directory, or to the one named with -C.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "src/gone.rs"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "src/gone.rs": no checkpoint is called "src/gone.rs"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    hint: If it is a path of an older checkpoint, name that, too: safepoint rollback @~1 -- src/gone.rs
    --- exit 10
    "#);
}

#[test]
fn hints_name_the_plan_and_the_checkpoint() {
    let (sandbox, _) = crate::plan::failed();
    for args in [
        &["plan", "apply", "limits"][..],
        &["plan", "step", "start", "limits", "nothing"],
        &["plan", "output", "set", "limits", "k", "1"],
        &["plan", "context", "get", "limits", "k"],
        &["cat", "@", "nothing"],
        &["rollback", "@", "--path", "nothing"],
        &["purge", "nothing", "--yes"],
    ] {
        let told = sandbox.run(args);
        let hints: Vec<&str> = told.lines().filter(|line| line.starts_with("hint: ")).collect();
        for placeholder in [" PLAN", " ID", " STEP", " CHECKPOINT"] {
            assert!(!hints.iter().any(|hint| hint.contains(placeholder)), "{args:?}: {told}");
        }
    }
}

#[test]
fn the_hints_of_a_refused_undo_of_paths_are_about_these_paths() {
    let sandbox = Sandbox::new();
    sandbox.write("my notes.txt", "good\n");
    sandbox.write("other.txt", "good\n");
    sandbox.run(&["create", "-m", "first"]);
    sandbox.write("my notes.txt", "bad\n");
    sandbox.write("other.txt", "bad\n");
    sandbox.run(&["rollback", "@"]);
    sandbox.write("my notes.txt", "new work\n");
    let told = sandbox.run(&["undo", "my notes.txt"]);
    assert!(told.contains("safepoint undo --dry-run -- 'my notes.txt'"), "{told}");
    assert!(told.contains("safepoint undo --yes -- 'my notes.txt'"), "{told}");
    assert!(told.ends_with("--- exit 12\n"), "{told}");
    // As pasted, it leaves the other path alone.
    assert!(sandbox.run(&["undo", "--yes", "--", "my notes.txt"]).ends_with("--- exit 0\n"));
    assert_eq!(
        (sandbox.read("my notes.txt").as_str(), sandbox.read("other.txt").as_str()),
        ("bad\n", "good\n")
    );
}

#[test]
fn an_undo_that_finds_nothing_tells_what_the_last_rollback_was_about() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@", "--path", "notes.txt"]);
    assert_snapshot!(sandbox.run(&["undo", "run.sh"]), @"
    --- stderr
    error: cannot undo: the last rollback did not change run.sh
    Nothing was changed.
    hint: Restore it from the newest checkpoint: safepoint rollback @ -- run.sh
    --- exit 10
    ");
    // No path is dropped without a word.
    assert_snapshot!(sandbox.run(&["undo", "notes.txt", "run.sh"]), @"
    --- stderr
    error: cannot undo: the last rollback did not change run.sh
    Nothing was changed.
    hint: Restore it from the newest checkpoint: safepoint rollback @ -- run.sh
    hint: Undo the others: safepoint undo -- notes.txt
    --- exit 10
    ");
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    // Without a checkpoint there is nothing to return to either.
    let empty = Sandbox::new();
    empty.run(&["init"]);
    let told = empty.run(&["undo"]);
    assert!(!told.contains("rollback @") && told.contains("has no checkpoint yet"), "{told}");
}

#[test]
fn the_position_after_a_partial_rollback_is_told_in_words() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "notes.txt"]);
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    1 change since 01KG9YV41GXHKZH4X2XVXK4NAY, the state before the last rollback, 57 seconds ago:
        ~ notes.txt
      The last rollback restored only notes.txt from 01KG9YS9EGCQT0DH2X3200JHAF; all else is as before it.
      Compare with the newest checkpoint: safepoint diff @
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 2 checkpoints here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    let after = &sandbox.json(&["status", "--json"])["data"]["after_partial_rollback"];
    assert_eq!((&after["verb"], &after["paths"][0]), (&"rollback".into(), &"notes.txt".into()));
    let seen = sandbox.terminal(sandbox.command(&["list"])).replace("\n    ", " ");
    assert!(
        seen.contains(
            "@here: the state before the last rollback, which restored only notes.txt from 01KG9YS9"
        ),
        "{seen}"
    );
    // Everything together is the state of a checkpoint again.
    sandbox.run(&["rollback", "first"]);
    assert_eq!(sandbox.json(&["status", "--json"])["data"]["after_partial_rollback"], Value::Null);
    assert!(!sandbox.run(&["status"]).contains("restored only"));
}
