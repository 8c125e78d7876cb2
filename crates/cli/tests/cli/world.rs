//! External conditions: pipes, signals, full disks, missing folders, damage.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use regex_lite::Regex;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let sandbox = Sandbox::new();
    sandbox.write("large", "a line of text\n".repeat(400_000));
    for number in 0..3000 {
        sandbox.write(&format!("many/{number}"), "");
    }
    sandbox.run(&["create"]);
    for args in [&["cat", "@", "large"][..], &["show", "@", "--files"], &["show", "@", "--files", "--json"]] {
        let mut child = sandbox.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).ok();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}

#[test]
fn an_output_that_is_full_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = sandbox.command(&["list"]).stdout(full).output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    --- stderr
    error: cannot list checkpoints: cannot write the output
      because: No space left on device (os error 28)
    hint: What was asked for may be done: `safepoint status` and `safepoint list` show it.
    --- exit 1
    ");
}

#[test]
fn a_home_that_cannot_be_used() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "");
    assert_snapshot!(sandbox.run(&["--home", "file/home", "create"]), @"
    --- stderr
    error: cannot take a checkpoint: cannot use Safepoint's home $T/project/file/home
      because: Not a directory (os error 20)
    Nothing was changed.
    hint: Name a folder that you may write with --home or SAFEPOINT_HOME.
    --- exit 1
    ");
    let nowhere =
        sandbox.command(&["create"]).env_remove("SAFEPOINT_HOME").env_remove("HOME").output().unwrap();
    assert_snapshot!(sandbox.told(&nowhere), @"
    --- stderr
    error: cannot take a checkpoint: cannot determine the Safepoint home directory: HOME is not set
    Nothing was changed.
    hint: Name a folder with --home or SAFEPOINT_HOME.
    --- exit 2
    ");
}

#[test]
fn the_home_is_where_the_environment_says() {
    let sandbox = Sandbox::new();
    sandbox.command(&["create"]).env_remove("SAFEPOINT_HOME").output().unwrap();
    assert!(sandbox.path("user/.local/share/safepoint/catalog.db").exists());
    let data = sandbox.path("data");
    let mut command = sandbox.command(&["create"]);
    command.env_remove("SAFEPOINT_HOME").env_remove("USER").env("XDG_DATA_HOME", &data).output().unwrap();
    assert!(data.join("safepoint/catalog.db").exists());
    sandbox.run(&["--home", "../third", "create"]);
    assert!(sandbox.path("third/catalog.db").exists());
}

#[test]
fn a_workspace_that_is_gone_keeps_its_checkpoints() {
    let sandbox = Sandbox::with_checkpoint();
    let project = sandbox.path("project");
    fs::remove_dir_all(&project).unwrap();
    let gone = |args: &[&str]| {
        let mut command = sandbox.command(&[&["-C", project.to_str().unwrap()], args].concat());
        sandbox.told(&command.current_dir(sandbox.path("user")).output().unwrap())
    };
    assert_snapshot!(gone(&["list"]), @"
    CHECKPOINT                  WHEN            KIND    CHANGED   STORED  LABEL
    01KG9YS9EGCQT0DH2X3200JHAF  57 seconds ago  manual  +6 ~0 -0  SIZE  first
    --- exit 0
    ");
    assert_eq!(gone(&["cat", "@", "notes.txt"]), "good\n--- exit 0\n");
    assert_snapshot!(gone(&["rollback", "@"]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "@": cannot open the workspace $T/project
      because: No such file or directory (os error 2)
    Nothing was changed.
    hint: Is the folder still there, and may you read it?
    hint: If it was moved, go there and run: safepoint workspace move $T/project .
    hint: If it was deleted, its checkpoints are safe in $T/home: mkdir -p $T/project && safepoint -C $T/project rollback @
    --- exit 10
    "#);
    assert_snapshot!(gone(&["status"]), @"
    --- stderr
    error: cannot show the status: cannot open the workspace $T/project
      because: No such file or directory (os error 2)
    hint: Is the folder still there, and may you read it?
    hint: If it was moved, go there and run: safepoint workspace move $T/project .
    hint: If it was deleted, its checkpoints are safe in $T/home: mkdir -p $T/project && safepoint -C $T/project rollback @
    --- exit 10
    ");
    fs::create_dir(&project).unwrap();
    gone(&["rollback", "@"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn a_folder_that_was_moved_is_recognised_and_its_checkpoints_follow() {
    let sandbox = Sandbox::with_checkpoint();
    let (old, new) = (sandbox.path("project"), sandbox.path("renamed"));
    fs::rename(&old, &new).unwrap();
    let at = |args: &[&str]| {
        sandbox.told(&sandbox.command(args).current_dir(&new).env("PWD", &new).output().unwrap())
    };
    let created = at(&["create"]);
    assert!(
        created.contains("this folder seems to be $T/project, moved; to continue with its checkpoints: safepoint workspace forget $T/renamed && safepoint workspace move $T/project $T/renamed"),
        "{created}"
    );
    // It is registered as new and has its own checkpoint, which is not discarded silently. The printed commands work.
    assert_snapshot!(at(&["workspace", "move", "../project", "."]), @r#"
    --- stderr
    error: cannot move workspace "../project": cannot move the workspace: $T/renamed is registered and has checkpoints
    Nothing was changed.
    hint: Its own checkpoints stay, and are named by their ids: safepoint list --all
    hint: Continue with those of the old one: safepoint workspace forget $T/renamed && safepoint workspace move $T/project $T/renamed
    --- exit 12
    "#);
    at(&["workspace", "forget", "."]);
    assert_snapshot!(at(&["workspace", "move", "../project", "."]), @"
    Moved $T/project to $T/renamed, with 1 checkpoint.
    --- exit 0
    ");
    fs::write(new.join("notes.txt"), "bad").unwrap();
    assert!(at(&["rollback", "first"]).ends_with("exit 0\n"));
    assert_eq!(fs::read_to_string(new.join("notes.txt")).unwrap(), "good\n");
    assert_snapshot!(at(&["workspace", "move", ".", "../elsewhere"]), @r#"
    --- stderr
    error: cannot move workspace ".": cannot open the workspace $T/elsewhere
      because: No such file or directory (os error 2)
    Nothing was changed.
    hint: Is the folder still there, and may you read it?
    --- exit 10
    "#);
}

#[test]
fn another_folder_with_the_same_names_is_not_taken_for_one_that_was_moved() {
    let sandbox = Sandbox::new();
    let fill = |folder: &str, content: &str| {
        fs::create_dir_all(sandbox.path(folder).join("src")).unwrap();
        fs::write(sandbox.path(folder).join("Cargo.toml"), content).unwrap();
        fs::write(sandbox.path(folder).join("src/main.rs"), content).unwrap();
    };
    fill("project", "one");
    assert_eq!(sandbox.output(&["create", "-m", "first"]).status.code(), Some(0));
    // File systems give the inodes of deleted files to new ones.
    fs::remove_dir_all(sandbox.path("project")).unwrap();
    fill("other", "two");
    let other = sandbox.path("other");
    let told =
        sandbox.told(&sandbox.command(&["status"]).current_dir(&other).env("PWD", &other).output().unwrap());
    assert!(!told.contains("moved") && told.ends_with("--- exit 10\n"), "{told}");
}

#[test]
fn a_moved_folder_is_recognised_by_its_content_and_printed_paths_are_quoted() {
    let sandbox = Sandbox::with_checkpoint();
    let (old, new) = (sandbox.path("project"), sandbox.path("new place"));
    // As `mv` between file systems does.
    assert!(std::process::Command::new("cp").arg("-a").args([&old, &new]).status().unwrap().success());
    fs::remove_dir_all(&old).unwrap();
    let at = |args: &[&str]| {
        sandbox.told(&sandbox.command(args).current_dir(&new).env("PWD", &new).output().unwrap())
    };
    let wanted =
        "safepoint workspace forget '$T/new place' && safepoint workspace move $T/project '$T/new place'";
    let told = at(&["create"]);
    assert!(told.contains(wanted), "{told}");
    let told = at(&["workspace", "move", "../project", "."]);
    assert!(told.contains(wanted), "{told}");
    assert!(at(&["workspace", "forget", "."]).ends_with("exit 0\n"));
    assert!(at(&["workspace", "move", "../project", "."]).ends_with("exit 0\n"));
    assert!(at(&["list"]).contains("first"));
    let told = at(&["workspace", "forget", "../nowhere"]);
    assert!(told.contains("safepoint workspace list") && !told.contains("safepoint create"), "{told}");
}

#[test]
fn a_copy_of_a_folder_is_not_taken_for_the_folder() {
    let sandbox = Sandbox::with_checkpoint();
    let copy = sandbox.path("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("notes.txt"), "good\n").unwrap();
    fs::remove_dir_all(sandbox.path("project")).unwrap();
    let told =
        sandbox.told(&sandbox.command(&["create"]).current_dir(&copy).env("PWD", &copy).output().unwrap());
    assert!(told.contains("Registered") && !told.contains("moved"), "{told}");
}

#[test]
fn a_forgotten_folder_keeps_its_checkpoints_and_comes_back_with_them() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["workspace", "list"]), @"
    $T/project  1 checkpoint
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["workspace", "forget", "."]), @"
    Forgot $T/project. Its files and 1 checkpoint stay.
    Register it again: safepoint init $T/project
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["workspace", "list"]), @"
    No folder is registered. Register this one: safepoint init
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["workspace", "forget", "."]), @r#"
    --- stderr
    error: cannot forget workspace ".": $T/project is not registered
    Nothing was changed.
    hint: Show the registered folders: safepoint workspace list
    --- exit 10
    "#);
    sandbox.run(&["init"]);
    assert!(sandbox.run(&["list"]).contains("first"));
}

#[test]
fn a_current_directory_that_was_deleted_is_known_by_its_name() {
    let sandbox = Sandbox::with_checkpoint();
    let project = sandbox.path("project");
    let script = format!(
        "rm -rf {0}; exec {1} --home {2} list --json",
        project.display(),
        env!("CARGO_BIN_EXE_safepoint"),
        sandbox.path("home").display()
    );
    let output =
        Command::new("sh").arg("-c").arg(script).current_dir(&project).env("PWD", &project).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["data"]["checkpoints"][0]["label"], "first");
    let output = Command::new("sh")
        .args([
            "-c",
            "mkdir x && cd x && rmdir ../x && unset PWD && exec \"$0\" list",
            env!("CARGO_BIN_EXE_safepoint"),
        ])
        .current_dir(sandbox.path("user"))
        .output()
        .unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    --- stderr
    error: cannot list checkpoints: the current directory is gone
    hint: Go to a folder that exists, or name one with -C.
    --- exit 2
    ");
}

#[test]
fn damage_is_found_named_and_has_its_own_exit_code() {
    let sandbox = Sandbox::with_checkpoint();
    let packs = sandbox.path("home/store/packs");
    let pack = fs::read_dir(packs).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(5).position(|window| window == b"good\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let output = sandbox.output(&["validate", "--deep"]);
    let told = sandbox.told(&output);
    assert!(told.starts_with("Damaged: ") && told.ends_with("--- exit 13\n"), "{told}");
    assert!(
        told.contains("notes.txt") && told.contains("0 of 1 checkpoint can still be restored whole."),
        "{told}"
    );
    sandbox.run(&["create", "-m", "second"]);
    let told = sandbox.run(&["validate", "--deep"]);
    assert_snapshot!(Regex::new(r"pack \w{26}").unwrap().replace(&told, "pack ID"), @"
    Damaged: 3 problems (2 checkpoints, 10 objects, SIZE)
        object 8aa6049c102e: pack ID: its bytes do not have its hash
        notes.txt: its bytes are not what was written (in 2 checkpoints)
    0 of 2 checkpoints can still be restored whole.
    Repair the damage: safepoint repair
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    Tests: not known, because no test command is configured.
    --- exit 13
    ");
    let value = sandbox.json(&["validate", "--deep", "--json"]);
    assert_eq!((&value["status"], &value["data"]["is_valid"]), (&"error".into(), &false.into()));
    assert_eq!((&value["error"]["code"], &value["error"]["kind"]), (&"damaged".into(), &"damaged".into()));
    assert!(value["data"]["damaged"].as_array().unwrap().iter().any(|damage| damage["path"] == "notes.txt"));
    sandbox.write("notes.txt", "bad");
    let told = sandbox.run(&["rollback", "@"]);
    assert!(told.contains("Nothing was changed.") && told.ends_with("--- exit 13\n"), "{told}");
    assert_eq!(sandbox.read("notes.txt"), "bad");
}

#[test]
fn what_cannot_be_read_makes_a_checkpoint_done_in_part() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("secret", "x");
    fs::set_permissions(sandbox.path("project/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(sandbox.path("project/secret")).is_ok() {
        return; // Root reads everything.
    }
    assert_snapshot!(sandbox.run(&["create", "-q"]), @"
    01KG9YV2300QJS22HDXJ4G4Q61
    --- stderr
    warning: secret is not in the checkpoint: it could not be read
    --- exit 3
    ");
}

#[test]
fn a_busy_workspace_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    let folder = fs::File::open(sandbox.path("project")).unwrap();
    folder.lock().unwrap();
    let output = sandbox.command(&["create"]).env("SAFEPOINT_TEST_LOCK_WAIT_MS", "50").output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    --- stderr
    error: cannot take a checkpoint: another Safepoint process is using $T/project
    Nothing was changed.
    hint: Wait until it has finished, then try again.
    --- exit 11
    ");
}

#[test]
fn a_wish_to_stop_is_heard_before_anything_changes() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    for (signal, args) in [("INT", &["rollback", "@"][..]), ("TERM", &["create", "-m", "never"])] {
        // While another process locks the workspace the command waits, so the signal arrives in time.
        let folder = fs::File::open(sandbox.path("project")).unwrap();
        folder.lock().unwrap();
        let child = sandbox.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until_caught(child.id());
        for _ in 0..2 {
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        }
        drop(folder);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", sandbox.told(&output));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("interrupted") && errors.contains("Nothing was changed."), "{errors}");
    }
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert_eq!(sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len(), 1);
}

/// Waits until a process handles SIGTERM, the 15th bit of the kernel's mask.
fn wait_until_caught(id: u32) {
    loop {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        if u64::from_str_radix(caught, 16).unwrap() >> 14 & 1 == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn what_a_program_still_writes_into_a_displaced_file_is_kept() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let mut junk = fs::OpenOptions::new().append(true).open(sandbox.path("project/junk.log")).unwrap();
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- stderr
    warning: junk.log is or may be open for writing in another program; its displaced version is kept in .safepoint
    warning: check again with: safepoint recover; store and delete it with: safepoint recover --release
    --- exit 3
    "#);
    junk.write_all(b"written late\n").unwrap();
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    Covered: everything is in 01KG9YS9EGCQT0DH2X3200JHAF "first", 1 minute ago.
      left out:
        .git  git's own folder
        .safepoint  Safepoint's own folder
      workspace: project in $T/project
      store: 2 checkpoints here; SIZE for all workspaces in $T/home
    --- stderr
    junk.log is or may be open for writing in another program; its displaced version is kept in .safepoint
    check again with: safepoint recover; store and delete it with: safepoint recover --release
    --- exit 0
    "#);
    drop(junk);
    // A program started by another test may hold the file until its exec, so this retries.
    let told = (0..100).map(|_| sandbox.run(&["recover"])).find(|told| !told.contains("may be open"));
    assert_snapshot!(told.unwrap(), @"
    Rollback 01KG9YV2300QJS22HDXJ4G4Q61 was done; what it left behind is cleared away.
    --- stderr
    warning: junk.log: changed during the rollback; that version is kept: safepoint cat 01KG9YYQ9053R1T2RMWKDG33ZD junk.log
    --- exit 0
    ");
    let kept = sandbox.json(&["list", "--json"])["data"]["checkpoints"][0].clone();
    assert_eq!(kept["role"], "rescue");
    let id = kept["id"].as_str().unwrap();
    assert_eq!(sandbox.run(&["cat", id, "junk.log"]), "junk\nwritten late\n--- exit 0\n");
    assert_snapshot!(sandbox.run(&["rollback", id]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "01KG9YYQ9053R1T2RMWKDG33ZD": checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD holds only files that were rescued, not a whole workspace
    Nothing was changed.
    hint: `safepoint show 01KG9YYQ9053R1T2RMWKDG33ZD --files` lists them; `safepoint cat` prints one, `safepoint rollback 01KG9YYQ9053R1T2RMWKDG33ZD --path` restores it.
    --- exit 12
    "#);
}
