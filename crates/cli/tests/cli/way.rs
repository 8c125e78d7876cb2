//! Rollback is never blocked: names that Safepoint needs and other programs took, mounts over captured
//! folders, empty folders.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command in a hint, as if the user pasted it.
fn paste(told: &str, root: &Path) {
    let command = told.split("move it with: ").nth(1).and_then(|rest| rest.lines().next());
    assert!(command.is_some(), "no command in {told}");
    let command = command.unwrap_or_default().replace("$T", root.to_str().unwrap());
    assert!(Command::new("sh").arg("-c").arg(command).status().unwrap().success());
}

#[test]
fn a_name_that_others_took_is_named_with_the_command_that_frees_it() {
    let outside = tempfile::tempdir().unwrap();
    for kind in ["file", "link", "dangling", "folder link", "fifo"] {
        let sandbox = Sandbox::with_checkpoint();
        let own = sandbox.path("project/.safepoint");
        match kind {
            "file" => fs::write(&own, "mine\n").unwrap(),
            "link" => symlink("notes.txt", &own).unwrap(),
            "dangling" => symlink("nowhere", &own).unwrap(),
            "folder link" => symlink(outside.path(), &own).unwrap(),
            _ => assert!(Command::new("mkfifo").arg(&own).status().unwrap().success()),
        }
        sandbox.wreck();
        // Everything else works, and keeps it.
        for args in [&["status"][..], &["diff"], &["create"], &["list"], &["recover"], &["validate", "@"]] {
            let told = sandbox.run(args);
            assert!(told.ends_with("--- exit 0\n"), "{kind}: {args:?}: {told}");
        }
        for args in [&["rollback", "first", "--dry-run"][..], &["rollback", "first"]] {
            let told = sandbox.run(args);
            assert!(told.ends_with("--- exit 12\n"), "{kind}: {args:?}: {told}");
            assert!(told.contains("Nothing was changed."), "{kind}: {told}");
        }
        let doctor = sandbox.run(&["doctor"]);
        assert!(
            doctor.contains("problem  own_folder") && doctor.ends_with("--- exit 3\n"),
            "{kind}: {doctor}"
        );
        assert_eq!(sandbox.read("notes.txt"), "bad\n", "{kind}");
        paste(&sandbox.run(&["rollback", "first"]), &sandbox.path(""));
        let done = sandbox.json(&["rollback", "first", "--json"]);
        assert_eq!(done["exit_code"], 0, "{kind}: {done}");
        assert_eq!(sandbox.read("notes.txt"), "good\n", "{kind}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{kind}");
        if kind == "file" {
            assert_eq!(sandbox.run(&["cat", "@", ".safepoint"]), "mine\n--- exit 0\n");
            let safety = done["data"]["rollback"]["safety_checkpoint"].as_str().unwrap();
            assert_eq!(sandbox.run(&["cat", safety, "safepoint.aside"]), "mine\n--- exit 0\n");
        }
    }
    let sandbox = Sandbox::with_checkpoint();
    fs::write(sandbox.path("project/.safepoint"), "mine\n").unwrap();
    let told = sandbox.run(&["rollback", "@"]);
    let named = ".safepoint: a file that is not Safepoint's, and Safepoint needs the name; move it with: mv -n -- $T/project/.safepoint $T/project/safepoint.aside\n";
    assert!(told.contains(named), "{told}");
}

#[test]
fn what_lies_in_the_own_folder_and_is_not_ours_stops_no_rollback_and_stays() {
    let id = "01KG9YS9EGCQT0DH2X3200JHAF";
    let sandbox = Sandbox::with_checkpoint();
    let own = sandbox.path("project/.safepoint");
    fs::create_dir_all(own.join(".gitignore/inside")).unwrap();
    fs::write(own.join("notes"), "mine\n").unwrap();
    fs::write(own.join(format!("stage-{id}")), "mine\n").unwrap();
    symlink("/", own.join(format!("apply-{id}"))).unwrap();
    sandbox.wreck();
    for args in [&["status"][..], &["create"], &["rollback", "first"], &["undo"], &["redo"], &["recover"]] {
        let told = sandbox.run(args);
        assert!(told.ends_with("--- exit 0\n"), "{args:?}: {told}");
    }
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    let mut left: Vec<String> =
        fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [".gitignore", &format!("apply-{id}"), "notes", &format!("stage-{id}")]);
    let doctor = sandbox.run(&["doctor"]);
    assert!(doctor.contains("warning  own_folder") && doctor.contains("; 3 more"), "{doctor}");
    assert!(doctor.contains("mv -n -- ") && doctor.ends_with("--- exit 0\n"), "{doctor}");
    // A foreign file is not removed with the folder.
    let sandbox = Sandbox::with_checkpoint();
    fs::create_dir(sandbox.path("project/.safepoint")).unwrap();
    sandbox.write(".safepoint/.gitignore", "mine\n");
    sandbox.wreck();
    assert!(sandbox.run(&["rollback", "@"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.read(".safepoint/.gitignore"), "mine\n");
}

#[test]
fn a_probe_never_takes_the_place_of_what_is_not_ours() {
    for name in ["Probe-one", "probe-two"] {
        let sandbox = Sandbox::with_checkpoint();
        sandbox.write(&format!(".safepoint/{name}"), "mine\n");
        sandbox.wreck();
        let told = sandbox.run(&["rollback", "@"]);
        assert!(told.ends_with("--- exit 12\n"), "{told}");
        assert_eq!(sandbox.read(&format!(".safepoint/{name}")), "mine\n");
        paste(&told, &sandbox.path(""));
        assert!(sandbox.run(&["rollback", "@"]).ends_with("--- exit 0\n"));
    }
}

#[test]
fn a_checkpoint_that_holds_such_a_name_is_put_back_but_for_it() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepoint", "mine\n");
    sandbox.run(&["create", "-m", "odd"]);
    fs::remove_file(sandbox.path("project/.safepoint")).unwrap();
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["rollback", "odd"]), @r#"
    Rolled back to 01KG9YV2300QJS22HDXJ4G4Q61 "odd", taken 59 seconds ago
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- stderr
    warning: .safepoint is not restored and stays as it is: Safepoint uses this name; `safepoint cat` prints the file from the checkpoint
    --- exit 3
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert!(!sandbox.path("project/.safepoint").exists());
    assert_eq!(sandbox.run(&["cat", "odd", ".safepoint"]), "mine\n--- exit 0\n");
    assert!(sandbox.run(&["undo"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
}

/// Another file system, mounted until drop.
struct Mount(PathBuf);

impl Mount {
    fn over(path: &Path, what: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(what).arg(path).output().ok()?;
        mounted.status.success().then(|| Self(path.to_owned()))
    }

    fn memory(path: &Path) -> Option<Self> {
        Self::over(path, &["-t", "tmpfs", "tmpfs"])
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_mount_over_a_captured_folder_blocks_that_folder_and_not_the_rest() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.write("src/main.rs", "bad\n");
    let Some(mount) = Mount::memory(&sandbox.path("project/src")) else {
        return eprintln!("skipped: a mount over a captured folder: it takes the right to mount");
    };
    sandbox.write("src/theirs", "theirs\n");
    let dry = sandbox.run(&["rollback", "first", "--dry-run"]);
    assert!(dry.ends_with("--- exit 3\n") && sandbox.read("notes.txt") == "bad\n", "{dry}");
    assert_snapshot!(sandbox.run(&["rollback", "first"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 1 minute ago
      1 file restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
    Undo it with: safepoint undo
    --- stderr
    warning: src is not restored and stays as it is: another file system is mounted on it
    --- exit 3
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert!(!sandbox.path("project/junk.log").exists());
    assert_eq!(sandbox.read("src/theirs"), "theirs\n", "the mounted files are unchanged");
    let answer = sandbox.json(&["rollback", "first", "--json"]);
    assert_eq!(
        (&answer["exit_code"], &answer["data"]["rollback"]["blocked"][0]["path"]),
        (&3.into(), &"src".into())
    );
    let chosen = sandbox.run(&["rollback", "first", "--path", "src"]);
    assert!(chosen.ends_with("--- exit 3\n"), "{chosen}");
    assert!(sandbox.run(&["undo"]).contains("--- exit 0"));
    drop(mount);
    assert_eq!(sandbox.read("src/main.rs"), "bad\n");
    assert!(sandbox.run(&["rollback", "first"]).ends_with("--- exit 0\n"));
    assert!(sandbox.read("src/main.rs").contains("one"));
}

#[test]
fn a_mount_over_a_file_or_in_a_folder_that_was_a_file_blocks_that_path_alone() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("which", "a file\n");
    sandbox.run(&["create", "-m", "second"]);
    fs::remove_file(sandbox.path("project/which")).unwrap();
    fs::create_dir_all(sandbox.path("project/which/deep")).unwrap();
    sandbox.write("which/more", "new\n");
    sandbox.wreck();
    let theirs = sandbox.path("theirs");
    fs::write(&theirs, "theirs\n").unwrap();
    let run = sandbox.path("project/run.sh");
    let file = Mount::over(&run, &["--bind", theirs.to_str().unwrap()]);
    let folder = Mount::memory(&sandbox.path("project/which/deep"));
    if file.is_none() || folder.is_none() {
        return eprintln!("skipped: a mount over a file: it takes the right to mount");
    }
    let answer = sandbox.json(&["rollback", "second", "--json"]);
    let blocked: Vec<&str> = answer["data"]["rollback"]["blocked"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!((answer["exit_code"].as_u64(), blocked), (Some(3), vec!["run.sh", "which"]), "{answer}");
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert_eq!(sandbox.read("run.sh"), "theirs\n");
    assert_eq!(sandbox.read("which/more"), "new\n", "a folder with a mount stays complete");
}

#[test]
fn a_mount_over_the_own_folder_is_named() {
    let sandbox = Sandbox::with_checkpoint();
    let own = sandbox.path("project/.safepoint");
    fs::create_dir(&own).unwrap();
    let Some(_mount) = Mount::memory(&own) else {
        return eprintln!("skipped: a mount over the own folder: it takes the right to mount");
    };
    sandbox.wreck();
    let told = sandbox.run(&["rollback", "@"]);
    assert!(
        told.contains("another file system is mounted on it") && told.ends_with("--- exit 12\n"),
        "{told}"
    );
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
}

#[test]
fn a_checkpoint_of_nothing_warns_where_there_were_files() {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&["create"]);
    assert!(!first.contains("warning"), "a folder that was always empty: {first}");
    let sandbox = Sandbox::with_checkpoint();
    fs::rename(sandbox.path("project"), sandbox.path("moved")).unwrap();
    fs::create_dir(sandbox.path("project")).unwrap();
    assert_snapshot!(sandbox.run(&["create", "-m", "nothing"]), @r#"
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "nothing"
      0 files and folders, 0 B; SIZE new in the store, N ms
      since the last one: +0 ~0 -6
    --- stderr
    warning: this checkpoint holds no files: the folder is empty, and had 6 in checkpoint 01KG9YS9EGCQT0DH2X3200JHAF; to get them back: safepoint rollback 01KG9YS9EGCQT0DH2X3200JHAF
    --- exit 0
    "#);
    let again = sandbox.run(&["create"]);
    assert!(again.contains("this checkpoint holds no files"), "{again}");
    let whole = sandbox.run(&["create", "--scope", "framework"]);
    assert!(whole.contains("this checkpoint holds no files"), "{whole}");
    assert!(sandbox.run(&["show", "nothing"]).contains("this checkpoint holds no files"));
    assert!(sandbox.run(&["rollback", "first"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}
