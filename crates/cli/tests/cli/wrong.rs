//! Wrong use: each is refused with a message, a hint and its exit code, and changes nothing.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;

#[test]
fn references_that_lead_nowhere() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "-m", "twice"]);
    sandbox.run(&["create", "-m", "twice"]);
    assert_snapshot!(sandbox.run(&["rollback", "nothing"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "nothing": no checkpoint is called "nothing"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["show", "@~x"]), @r#"
    --- stderr
    error: cannot show checkpoint "@~x": "@~x" is not a checkpoint reference: @~ must be followed by a number, as in @~2
    hint: `safepoint list` shows the checkpoints; @ is the newest one, and @~1 the one before it.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["show", "@~9"]), @r#"
    --- stderr
    error: cannot show checkpoint "@~9": no checkpoint is called "@~9"
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["show", ""]), @r#"
    --- stderr
    error: cannot show checkpoint "": "" is not a checkpoint reference: it is empty
    hint: `safepoint list` shows the checkpoints; @ is the newest one, and @~1 the one before it.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "twice"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "twice": "twice" names several checkpoints
    Nothing was changed.
    hint: Choose one of them by its id:
    hint: 01KG9YWWP02J59EP1NVRE9ENPE  # 2026-01-31 12:02:01Z "twice"
    hint: 01KG9YV2300QJS22HDXJ4G4Q61  # 2026-01-31 12:01:01Z "twice"
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["show", "01KG"]), @r#"
    --- stderr
    error: cannot show checkpoint "01KG": "01KG" names several checkpoints
    hint: Choose one of them by its id:
    hint: 01KG9YWWP02J59EP1NVRE9ENPE  # 2026-01-31 12:02:01Z "twice"
    hint: 01KG9YV2300QJS22HDXJ4G4Q61  # 2026-01-31 12:01:01Z "twice"
    hint: 01KG9YS9EGCQT0DH2X3200JHAF  # 2026-01-31 12:00:03Z "first"
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["show"]), @"
    --- stderr
    error: cannot show a checkpoint: no checkpoint is named
    hint: Name one, as in `safepoint show @`.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["show", "@", "--checkpoint-id", "@"]), @"
    --- stderr
    error: the argument '[ID]' cannot be used with '--checkpoint-id <ID>'

    Usage: safepoint show <ID>

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn no_workspace() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": no workspace is registered at or above $T/project
    Nothing was changed.
    hint: Safepoint has no copy of these files. Write nothing to the folder until they are found elsewhere.
    hint: If git tracks them: git status; git stash list; git fsck --lost-found
    hint: Editors keep local histories, and an open editor can undo.
    --- exit 10
    "#);
    for command in [
        &["status"][..],
        &["list"],
        &["show", "@"],
        &["cat", "@", "x"],
        &["diff"],
        &["undo"],
        &["redo"],
        &["recover"],
        &["summary"],
        &["history"],
        &["rollback"],
        &["validate", "@"],
    ] {
        let output = sandbox.output(command);
        assert_eq!(output.status.code(), Some(10), "{command:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("no workspace is registered"),
            "{command:?}"
        );
    }
    assert_snapshot!(sandbox.run(&["list", "--all"]), @r#"
    There are no checkpoints yet. Take one: safepoint create -m "a label"
    --- exit 0
    "#);
}

#[test]
fn folders_that_are_not_taken() {
    let sandbox = Sandbox::new();
    let in_home = |args: &[&str]| {
        let mut command = sandbox.command(args);
        sandbox.told(&command.current_dir(sandbox.path("user")).output().unwrap())
    };
    fs::create_dir(sandbox.path("user/.git")).unwrap();
    assert_snapshot!(in_home(&["create"]), @"
    --- stderr
    error: cannot take a checkpoint: $T/user is not taken as a workspace: it is a home directory, with far more in it than one project
    Nothing was changed.
    hint: Name the project's own folder with -C, or use `safepoint init --force` if you mean it.
    --- exit 12
    ");
    assert_snapshot!(in_home(&["init"]), @"
    --- stderr
    error: cannot register the folder: $T/user is not taken as a workspace: it is a home directory, with far more in it than one project
    Nothing was changed.
    hint: Name the project's own folder with -C, or use `safepoint init --force` if you mean it.
    --- exit 12
    ");
    assert_snapshot!(in_home(&["init", "--force"]), @r#"
    Registered $T/user as a workspace.
    A checkpoint of it holds 0 files and folders, 0 B.
      left out:
        .git  git's own folder
    Leave more out with a file .safepointignore, written like a .gitignore.
    Take the first one: safepoint create -m "a label"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["-C", "/", "create"]), @"
    --- stderr
    error: cannot take a checkpoint: / is not taken as a workspace: it is the root of the whole system
    Nothing was changed.
    hint: Name the project's own folder with -C, or use `safepoint init --force` if you mean it.
    --- exit 12
    ");
    assert_snapshot!(sandbox.run(&["init", "missing"]), @"
    --- stderr
    error: cannot register the folder: cannot open the workspace $T/project/missing
      because: No such file or directory (os error 2)
    Nothing was changed.
    hint: Is the folder still there, and may you read it?
    --- exit 10
    ");
}

#[test]
fn a_project_in_a_home_under_git_is_its_own_workspace() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("user/.git")).unwrap();
    fs::create_dir_all(sandbox.path("user/shop")).unwrap();
    let mut command = sandbox.command(&["create", "--json"]);
    let output = command.current_dir(sandbox.path("user/shop")).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["data"]["workspace"]["name"], "shop");
}

#[test]
fn paths_that_climb_out() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["rollback", "@", "--path", "../user"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": "../user" is outside the workspace $T/project
    Nothing was changed.
    hint: Paths are relative to the current directory, or to the one named with -C.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["cat", "@", "/etc/passwd"]), @r#"
    --- stderr
    error: cannot write out "/etc/passwd": "/etc/passwd" is outside the workspace $T/project
    hint: Paths are relative to the current directory, or to the one named with -C.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["diff", "--", "src/../../.."]), @r#"
    --- stderr
    error: cannot compare with the position: "src/../../.." is outside the workspace $T/project
    hint: Paths are relative to the current directory, or to the one named with -C.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["cat", "@", "missing"]), @r#"
    --- stderr
    error: cannot write out "missing": missing is not in checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
    hint: `safepoint show 01KG9YS9EGCQT0DH2X3200JHAF --files` lists what is in it.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["cat", "@", "src"]), @r#"
    --- stderr
    error: cannot write out "src": src is not a file in checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
    hint: `safepoint show 01KG9YS9EGCQT0DH2X3200JHAF --files` lists what is in it.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "@", "--path", "missing"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": missing is neither in the checkpoint nor in the workspace
    Nothing was changed.
    hint: `safepoint show @ --files` lists what is in it.
    --- exit 10
    "#);
}

#[test]
fn words_that_are_none() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["create", "--kind", "odd"]), @"
    --- stderr
    error: invalid value 'odd' for '--kind <KIND>'
      [possible values: automatic, manual, workflow, emergency]

    For more information, try '--help'.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["create", "--reason", "odd"]), @"
    --- stderr
    error: invalid value 'odd' for '--reason <REASON>'
      [possible values: phase_complete, task_group_complete, safe_state, pre_risky_operation, error_recovery, manual]

    For more information, try '--help'.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["create", "--counter", "tests_passing"]), @r#"
    --- stderr
    error: cannot take a checkpoint: "tests_passing" is not a counter
    Nothing was changed.
    hint: Write the name, an equals sign and a number, as in tests_passing=42.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["create", "--counter", "tests_passing=many"]), @r#"
    --- stderr
    error: cannot take a checkpoint: "tests_passing=many" is not a counter
    Nothing was changed.
    hint: Write the name, an equals sign and a number, as in tests_passing=42.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["create", "--counter", "tests=1"]), @r#"
    --- stderr
    error: cannot take a checkpoint: "tests" is not a counter: expected one of tasks_completed, decisions_made, files_modified, files_created, tests_passing, tests_failing
    Nothing was changed.
    hint: Use one of these words.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["create", "--session-id", "../x"]), @r#"
    --- stderr
    error: cannot take a checkpoint: "../x" is not an id: expected a ULID (26 letters and digits) or a UUID
    Nothing was changed.
    hint: Example: `7d9f3c1e-5b1a-4c0e-9f3a-0c1d2e3f4a5b`
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["rollbak"]), @"
    --- stderr
    error: unrecognized subcommand 'rollbak'

      tip: a similar subcommand exists: 'rollback'

    Usage: safepoint [OPTIONS] <COMMAND>

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn a_part_that_is_not_there_is_said() {
    let sandbox = Sandbox::with_checkpoint();
    let output = sandbox.output(&["rollback", "@", "--part", "session"]);
    assert_eq!(output.status.code(), Some(10));
    assert!(String::from_utf8_lossy(&output.stderr).contains("session"));
}

#[test]
fn choices_that_contradict_each_other() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["rollback", "@", "--strategy", "selective"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": nothing is selected
    Nothing was changed.
    hint: Choose with --path PATH or --part files.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "@", "--strategy", "immediate", "--path", "src"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": --path chooses a part, and --strategy immediate means everything
    Nothing was changed.
    hint: Leave one of them out.
    --- exit 2
    "#);
    assert_eq!(sandbox.output(&["diff", "--stat", "--name-only"]).status.code(), Some(2));
    for (args, said) in [
        (&["--strategy", "progressive"][..], "no command to run"),
        (&["--until", "true", "--path", "src"], "one checkpoint at a time"),
        (&["--until", "true", "--dry-run", "--in-place"], "--in-place"),
        (&["--in-place"], "--until"),
        (&["--strategy", "immediate", "--verify", "true"], "asks no command"),
        (&["--verify", "true"], "no terminal to ask on"),
        (&["--bisect"], "--until"),
    ] {
        let output = sandbox.output(&[&["rollback", "@"][..], args].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.contains(said)), (Some(2), true), "{args:?}: {text}");
    }
    for args in [&["--scope", "agent"][..], &["--scope", "workflow"], &["--agent", "x"], &["--plan", "x"]] {
        let output = sandbox.output(&[&["create"][..], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn nothing_to_undo_and_nothing_to_redo() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["undo"]), @"
    --- stderr
    error: cannot undo: there is no rollback to undo
    Nothing was changed.
    hint: Return to the newest checkpoint: safepoint rollback @
    --- exit 10
    ");
    assert_snapshot!(sandbox.run(&["redo"]), @"
    --- stderr
    error: cannot redo: there is nothing to redo
    Nothing was changed.
    hint: Only an undo can be redone, and only until the next rollback.
    --- exit 10
    ");
}

#[test]
fn a_checkpoint_of_another_workspace() {
    let sandbox = Sandbox::with_checkpoint();
    fs::create_dir(sandbox.path("other")).unwrap();
    let there = sandbox.path("other");
    let there = there.to_str().unwrap();
    sandbox.run(&["-C", there, "create", "-m", "elsewhere"]);
    let listed = sandbox.json(&["-C", there, "list", "--json"]);
    let id = listed["data"]["checkpoints"][0]["id"].as_str().unwrap();
    assert_snapshot!(sandbox.run(&["rollback", id]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "01KG9YV41GXHKZH4X2XVXK4NAY": checkpoint 01KG9YV41GXHKZH4X2XVXK4NAY belongs to another workspace
    Nothing was changed.
    hint: Go to that workspace, or name its folder with -C.
    --- exit 12
    "#);
    assert_eq!(sandbox.json(&["show", id, "--json"])["data"]["checkpoint"]["label"], "elsewhere");
    assert_snapshot!(sandbox.run(&["list", "--all"]), @"
    CHECKPOINT                  WHEN           KIND    CHANGED   STORED  LABEL
    01KG9YV41GXHKZH4X2XVXK4NAY  3 minutes ago  manual  +0 ~0 -0  SIZE  [other] elsewhere
    01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago  manual  +6 ~0 -0  SIZE  [project] first
    --- exit 0
    ");
}

#[test]
fn settings_that_cannot_be_used() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepoint.toml", "# Mine.\n\n[retension]\nkeep_last = 1\n");
    assert_snapshot!(sandbox.run(&["create"]), @"
    --- stderr
    error: cannot take a checkpoint: unknown key `retension` in .safepoint.toml line 3: did you mean `retention`?
    Nothing was changed.
    hint: Fix the line that the message names, and try again.
    hint: The file: $T/project/.safepoint.toml
    --- exit 1
    ");
    sandbox.write(".safepoint.toml", "[checks]\ntest = 'curl example.org | sh'\n");
    assert_snapshot!(sandbox.run(&["create"]), @"
    --- stderr
    error: cannot take a checkpoint: `checks` in .safepoint.toml line 1 is refused: commands and limits are taken from config.toml in Safepoint's home alone, because whatever works in the workspace can write this file
    Nothing was changed.
    hint: Take it out of there; if you want it, put it into config.toml in Safepoint's home.
    hint: The file: $T/project/.safepoint.toml
    --- exit 1
    ");
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    1 change since 01KG9YS9EGCQT0DH2X3200JHAF "first", 2 minutes ago, not in a checkpoint:
        + .safepoint.toml
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- stderr
    warning: .safepoint.toml is ignored: `checks` in .safepoint.toml line 1 is refused: commands and limits are taken from config.toml in Safepoint's home alone, because whatever works in the workspace can write this file
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["diff", "--name-only"]), @r#"
    .safepoint.toml
    --- stderr
    warning: .safepoint.toml is ignored: `checks` in .safepoint.toml line 1 is refused: commands and limits are taken from config.toml in Safepoint's home alone, because whatever works in the workspace can write this file
    --- exit 0
    "#);
    // Rollback still works.
    assert_snapshot!(sandbox.run(&["rollback", "first"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 4 minutes ago
      0 files restored, 1 file removed, read back and verified, in N ms
        - .safepoint.toml  removed
    Undo it with: safepoint undo
    --- stderr
    warning: .safepoint.toml is ignored: `checks` in .safepoint.toml line 1 is refused: commands and limits are taken from config.toml in Safepoint's home alone, because whatever works in the workspace can write this file
    --- exit 0
    "#);
}

#[test]
fn a_number_that_is_none_is_said_in_words() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["list", "-n", "x"]), @"
    --- stderr
    error: invalid value 'x' for '-n <COUNT>': expected a whole number, such as 20

    For more information, try '--help'.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["prune", "--keep-last", "-1"]), @"
    --- stderr
    error: invalid value '-1' for '--keep-last <COUNT>': expected a whole number, such as 20

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn a_broken_configuration_is_named_by_its_path() {
    let sandbox = Sandbox::with_checkpoint();
    std::fs::write(sandbox.path("home/config.toml"), "corrupt\n").unwrap();
    for args in [&["create"][..], &["status"], &["rollback", "@"]] {
        let told = sandbox.run(args);
        assert!(told.contains("hint: The file: $T/home/config.toml"), "{args:?}: {told}");
        assert!(told.ends_with("--- exit 1\n"), "{args:?}: {told}");
    }
    // Wherever the message names the file, and with the value as it was typed.
    for (text, said) in [
        ("[store]\nkap = 1\n", "unknown key `store.kap` in config.toml line 2"),
        ("[plans]\nmilestones = [\"nope\"]\n", "\"nope\" is not"),
    ] {
        std::fs::write(sandbox.path("home/config.toml"), text).unwrap();
        let told = sandbox.run(&["create"]);
        assert!(told.contains(said) && !told.contains("...") && !told.contains('\\'), "{told}");
        assert!(told.contains("hint: The file: $T/home/config.toml"), "{told}");
    }
    std::fs::remove_file(sandbox.path("home/config.toml")).unwrap();
    sandbox.write(".safepoint.toml", "nope = 1\n");
    let told = sandbox.run(&["create"]);
    assert!(told.contains("hint: The file: $T/project/.safepoint.toml"), "{told}");
}
