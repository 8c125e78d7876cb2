//! Read-only homes: everything in them can still be read, and restored elsewhere.

use crate::disks::Mount;
use crate::place::{Answer, Place, assert_same, is_root, skip};
use safepoint_testkit::TreeImage;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes two checkpoints and an edit that neither has; returns the first state.
fn filled(place: &Place) -> (String, TreeImage) {
    place.write("file", "1\n");
    place.write("deep/er/file", "deep\n");
    place.shell("ln -s file link; chmod 640 file; mkdir empty");
    let id = place.create();
    let then = place.image();
    place.write("file", "2\n");
    place.run(&["create", "-m", "second"]).succeeds();
    place.write("file", "3\n");
    (id, then)
}

/// Runs all read-only commands, and restores into another folder.
#[track_caller]
fn gives_everything_back(place: &Place, home: &Path, id: &str, then: &TreeImage) {
    let before = contents(home);
    let run = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        let mut command = place.command(&args);
        Answer::of(&args, &command.env("SAFEPOINT_HOME", home).output().unwrap())
    };
    let now = place.image();
    assert_eq!(run(&["list"]).succeeds()["checkpoints"].as_array().unwrap().len(), 2);
    assert_eq!(run(&["status"]).succeeds()["verdict"], "changed");
    assert_eq!(run(&["diff"]).succeeds()["changes"].as_array().unwrap().len(), 1);
    run(&["diff", id, "@"]).succeeds();
    run(&["show", id, "--files"]).succeeds();
    run(&["summary"]).succeeds();
    run(&["usage"]).succeeds();
    assert_eq!(run(&["validate"]).succeeds()["is_valid"], true);
    assert_eq!(run(&["validate", "--deep"]).succeeds()["is_valid"], true);
    assert_eq!(run(&["validate", id]).succeeds()["is_valid"], true);
    let mut cat = place.command(&["cat", id, "file"]);
    assert_eq!(cat.env("SAFEPOINT_HOME", home).output().unwrap().stdout, b"1\n");
    let exports = place.path("user/exports");
    run(&["export", id, exports.to_str().unwrap()]).succeeds();
    fs::remove_dir_all(&exports).unwrap();
    let to = place.path("user/then");
    let built = run(&["rollback", id, "--to", to.to_str().unwrap()]).succeeds();
    assert_eq!(built["built"]["files"], 3, "{built:#}");
    assert_same(&TreeImage::read(&to, &[]).unwrap(), then);
    run(&["rollback", id, "--to", to.to_str().unwrap()]).fails(12, "not_empty");
    fs::remove_dir_all(&to).unwrap();
    for args in [
        &["create", "--kind", "manual"][..],
        &["rollback", id],
        &["undo", "--yes"],
        &["gc"],
        &["pin", id],
        &["repair"],
    ] {
        let answer = run(args);
        eprintln!("{args:?}: {}", answer.errors);
        let code = answer.is_a_clear_error();
        assert!(["read_only_home", "home_owner"].contains(&code), "{args:?} {}", answer.errors);
        if code == "read_only_home" {
            assert!(answer.errors.contains("cannot write"), "{}", answer.errors);
            assert!(answer.errors.contains("--to"), "{}", answer.errors);
        }
    }
    assert_same(&place.image(), &now);
    assert_eq!(contents(home), before, "the home is unchanged");
}

/// Returns every file of a home with its bytes.
fn contents(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fn below(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => below(&path, found),
                false => found.push((path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = Vec::new();
    below(home, &mut found);
    found.sort();
    found
}

fn chmod(place: &Place, mode: &str) {
    place.shell(&format!("chmod -R {mode} '{}'", place.path("home").display()));
}

#[test]
fn a_home_without_the_right_to_write_gives_everything_back() {
    let place = Place::ordinary();
    let (id, then) = filled_by_shell(&place);
    chmod(&place, "a-w");
    gives_everything_back(&place, &place.path("home"), &id, &then);
    chmod(&place, "u+w");
    place.rollback(&id);
    assert_same(&place.image(), &then);
}

/// Creates the same as `filled` through the program's user.
fn filled_by_shell(place: &Place) -> (String, TreeImage) {
    place.shell(
        "echo 1 > file; mkdir -p deep/er empty; echo deep > deep/er/file; ln -s file link; chmod 640 file",
    );
    let id = place.create();
    let then = place.image();
    place.shell("echo 2 > file");
    place.run(&["create", "-m", "second"]).succeeds();
    place.shell("echo 3 > file");
    (id, then)
}

#[test]
fn a_home_of_another_user_that_may_be_read_gives_everything_back() {
    if !is_root() {
        return skip(
            "a_home_of_another_user_that_may_be_read_gives_everything_back",
            "only root can make files of somebody else",
        );
    }
    let place = Place::ordinary();
    let (id, then) = filled_by_shell(&place);
    let home = place.path("home");
    let given = Command::new("chown").args(["-R", "0:0"]).arg(&home).status().unwrap();
    assert!(given.success());
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(&home).status().unwrap();
    assert!(opened.success());
    gives_everything_back(&place, &home, &id, &then);
}

#[test]
fn a_home_on_a_read_only_file_system_gives_everything_back() {
    let name = "a_home_on_a_read_only_file_system_gives_everything_back";
    // With all side files of SQLite; after a copy without the shared memory; with everything in one file.
    for without in [&[][..], &["-shm"], &["-shm", "-wal"]] {
        let Some(mount) = Mount::ext4(64 << 20) else {
            return skip(name, "it takes mkfs.ext4 and the right to mount");
        };
        let place = Place::new();
        let (id, then) = filled(&place);
        if without.contains(&"-wal") {
            for database in ["catalog.db", "store/index.db"] {
                let connection = rusqlite::Connection::open(place.path("home").join(database)).unwrap();
                let _: i64 =
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).unwrap();
            }
        } else {
            assert!(fs::metadata(place.path("home/catalog.db-wal")).unwrap().len() > 0);
        }
        let home = mount.path().join("home");
        let copied = Command::new("cp").arg("-a").arg(place.path("home")).arg(&home).status().unwrap();
        assert!(copied.success());
        for suffix in without {
            for database in ["catalog.db", "store/index.db"] {
                let _ = fs::remove_file(home.join(format!("{database}{suffix}")));
            }
        }
        mount.remount("ro");
        eprintln!("without {without:?}");
        gives_everything_back(&place, &home, &id, &then);
    }
}

/// SQLite's immutable mode would show an old state here: the other mount is written.
#[test]
fn a_home_that_is_mounted_read_only_beside_its_writer_shows_what_is_written() {
    let name = "a_home_that_is_mounted_read_only_beside_its_writer_shows_what_is_written";
    let place = Place::new();
    let (_, _) = filled(&place);
    let Some(bound) = Mount::read_only_view(&place.path("home")) else {
        return skip(name, "it takes the right to mount");
    };
    for count in 3..6 {
        place.create();
        let mut list = place.command(&["--json", "list"]);
        let listed = Answer::of(&["list"], &list.env("SAFEPOINT_HOME", bound.path()).output().unwrap());
        assert_eq!(listed.succeeds()["checkpoints"].as_array().unwrap().len(), count);
    }
}

/// A user with write access recovers the home; a reader is told that the workspace may be a mixture.
#[test]
fn a_rollback_that_is_half_done_is_reported_where_it_cannot_be_undone() {
    let name = "a_rollback_that_is_half_done_is_reported_where_it_cannot_be_undone";
    let place = Place::new();
    let (id, _) = filled(&place);
    place.run(&["rollback", &id, "--yes"]).succeeds();
    let Some(bound) = Mount::read_only_view(&place.path("home")) else {
        return skip(name, "it takes the right to mount");
    };
    let reported = |command: &str| {
        let mut looking = place.command(&["--json", command]);
        let answer = looking.env("SAFEPOINT_HOME", bound.path()).output().unwrap();
        String::from_utf8_lossy(&answer.stdout).contains("is half done")
    };
    assert!(!reported("status"));
    let catalog = rusqlite::Connection::open(place.path("home/catalog.db")).unwrap();
    assert_eq!(catalog.execute("UPDATE rollbacks SET state = 'applying'", ()).unwrap(), 1);
    drop(catalog);
    assert!(reported("status") && reported("diff"));
}

/// After a crash: the newest checkpoint is only in the packs and in the catalog's log, not in the index.
#[test]
fn a_read_only_home_whose_index_is_lost_or_behind_gives_everything_back() {
    let name = "a_read_only_home_whose_index_is_lost_or_behind_gives_everything_back";
    for lost in [true, false] {
        let Some(mount) = Mount::ext4(64 << 20) else {
            return skip(name, "it takes mkfs.ext4 and the right to mount");
        };
        let place = Place::new();
        place.write("other", "0");
        place.create();
        let index = place.path("home/store/index.db");
        let old = ["", "-wal"].map(|suffix| fs::read(format!("{}{suffix}", index.display())).unwrap());
        fs::remove_file(place.file("other")).unwrap();
        let first = place.run(&["list"]).succeeds()["checkpoints"][0]["id"].as_str().unwrap().to_owned();
        let (id, then) = filled(&place);
        place.run(&["delete", &first, "--yes"]).succeeds();
        for (suffix, bytes) in ["", "-wal"].into_iter().zip(old) {
            fs::write(format!("{}{suffix}", index.display()), bytes).unwrap();
        }
        let _ = fs::remove_file(place.path("home/store/index.db-shm"));
        if lost {
            fs::remove_file(&index).unwrap();
        }
        let home = mount.path().join("home");
        assert!(Command::new("cp").arg("-a").arg(place.path("home")).arg(&home).status().unwrap().success());
        mount.remount("ro");
        gives_everything_back(&place, &home, &id, &then);
    }
}

#[test]
fn a_checkpoint_is_built_in_a_new_or_an_empty_folder_and_nowhere_else() {
    let place = Place::new();
    let (id, then) = filled(&place);
    let now = place.image();
    fs::create_dir(place.path("empty")).unwrap();
    for (to, from) in [("new", "project"), ("far/away/new", "user"), ("empty", "user")] {
        let folder = place.path(to);
        let args = ["--json", "rollback", &id, "--to", folder.to_str().unwrap()];
        // From anywhere: on another machine the workspace may not even exist.
        let output = place.command(&args).current_dir(place.path(from)).output().unwrap();
        Answer::of(&args, &output).succeeds();
        assert_same(&TreeImage::read(&folder, &[]).unwrap(), &then);
        Answer::of(&args, &place.command(&args).output().unwrap()).fails(12, "not_empty");
    }
    place.run(&["rollback", &id, "--to", "file"]).is_a_clear_error();
    place.run(&["rollback", &id, "--to", "../link", "--path", "file"]).fails(2, "usage");
    assert_same(&place.image(), &now);
    // Damage leaves no partial result.
    for pack in fs::read_dir(place.path("home/store/packs")).unwrap() {
        fs::write(pack.unwrap().path(), "").unwrap();
    }
    for to in ["newer", "emptied"] {
        if to == "emptied" {
            fs::create_dir(place.path(to)).unwrap();
        }
        let answer = place.run(&["rollback", &id, "--to", place.path(to).to_str().unwrap()]);
        assert_eq!(answer.exit, 13, "{}", answer.errors);
        assert_eq!(fs::read_dir(place.path(to)).map_or(0, Iterator::count), 0);
    }
}
