//! Missing, moved, forbidden and invalid workspaces.

use crate::disks::Mount;
use crate::place::{Answer, Place, assert_same, is_root, skip};
use safepoint_testkit::TreeImage;
use std::fs;
use std::os::unix::fs::symlink;

fn place() -> (Place, String) {
    let place = Place::new();
    place.write("src/main.rs", "1");
    place.write("notes", "1");
    let id = place.create();
    (place, id)
}

/// Runs a command on the project from outside.
fn from_outside(place: &Place, args: &[&str]) -> Answer {
    let project = place.project();
    let args = [&["--json", "-C", project.to_str().unwrap()], args].concat();
    Answer::of(&args, &place.command(&args).current_dir(place.path("user")).output().unwrap())
}

#[test]
fn a_workspace_that_is_gone() {
    let (place, id) = place();
    let then = place.image();
    fs::remove_dir_all(place.project()).unwrap();
    for args in [
        &["rollback", "@"][..],
        &["create", "--kind", "manual"],
        &["status"],
        &["undo", "--yes"],
        &["diff"],
        &["recover"],
    ] {
        from_outside(&place, args).fails(10, "workspace_gone");
        assert!(!place.project().exists(), "{args:?}");
    }
    let listed = from_outside(&place, &["list"]).succeeds();
    assert_eq!(listed["checkpoints"][0]["id"], id.as_str());
    fs::create_dir(place.project()).unwrap();
    from_outside(&place, &["rollback", "@"]).succeeds();
    assert_same(&place.image(), &then);
}

#[test]
fn a_workspace_that_was_moved() {
    let (place, id) = place();
    place.write("notes", "2");
    let now = place.image();
    let elsewhere = place.path("elsewhere");
    fs::rename(place.project(), &elsewhere).unwrap();
    let there = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        Answer::of(&args, &place.command(&args).current_dir(&elsewhere).output().unwrap())
    };
    there(&["rollback", "@"]).fails(10, "no_workspace");
    there(&["status"]).fails(10, "no_workspace");
    from_outside(&place, &["rollback", "@"]).fails(10, "workspace_gone");
    // A link at the old path is not the workspace: nothing is written through it.
    symlink(&elsewhere, place.project()).unwrap();
    let answer = place.run(&["rollback", &id]);
    answer.fails(10, "no_workspace");
    fs::remove_file(place.project()).unwrap();
    assert_same(&TreeImage::read(&elsewhere, &[]).unwrap(), &now);
    // A new workspace at the new path does not affect the old one.
    there(&["create", "-m", "here now"]).succeeds();
    there(&["rollback", &id]).fails(12, "other_workspace");
    assert_same(&TreeImage::read(&elsewhere, &[]).unwrap(), &now);
    fs::rename(&elsewhere, place.project()).unwrap();
    place.rollback("@");
    assert_eq!(place.read("notes"), "1");
    place.is_whole();
}

#[test]
fn a_workspace_that_is_read_only() {
    let place = Place::ordinary();
    place.shell("mkdir src; echo 1 > src/main.rs; echo 1 > notes");
    let id = place.create();
    place.shell("echo 2 > notes; echo 2 > new; chmod 555 .");
    place.refuses(&["rollback", &id], 12, "obstructed");
    // Status and checkpoints write nothing there.
    place.run(&["status"]).succeeds();
    let later = place.create();
    place.shell("chmod 755 .");
    place.rollback(&id);
    assert_eq!(place.read("notes"), "1\n");
    place.rollback(&later);
    place.shell("chmod 755 .");
}

#[test]
fn a_workspace_on_a_read_only_file_system() {
    let Some(mount) = Mount::memory("4m") else {
        return skip("a_workspace_on_a_read_only_file_system", "it takes the right to mount");
    };
    let place = Place::new();
    let project = mount.path().join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("notes"), "1").unwrap();
    let there = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        Answer::of(&args, &place.command(&args).current_dir(&project).output().unwrap())
    };
    there(&["create", "--kind", "manual"]).succeeds();
    fs::write(project.join("notes"), "2").unwrap();
    let now = TreeImage::read(&project, &[]).unwrap();
    mount.remount("ro");
    there(&["create", "--kind", "manual"]).succeeds();
    there(&["status"]).succeeds();
    there(&["rollback", "@~1"]).fails(12, "obstructed");
    assert_same(&TreeImage::read(&project, &[]).unwrap(), &now);
    mount.remount("rw");
    there(&["rollback", "@~1"]).succeeds();
    assert_eq!(fs::read_to_string(project.join("notes")).unwrap(), "1");
}

#[test]
fn a_workspace_that_is_a_file() {
    let (place, _) = place();
    let before = place.image();
    // A file in a workspace selects that workspace; elsewhere it is invalid.
    place.run(&["-C", "notes", "create"]).succeeds();
    fs::write(place.path("lone"), "a file").unwrap();
    for args in [
        &["-C", "../lone", "create"][..],
        &["-C", "../lone", "status"],
        &["-C", "../lone", "rollback", "@"],
        &["init", "../lone"],
        &["init", "notes"],
        &["-C", "../lone/x", "create"],
    ] {
        let answer = place.run(args);
        assert!([2, 10].contains(&answer.exit), "{} {}", answer.what, answer.errors);
        answer.is_a_clear_error();
        assert_same(&place.image(), &before);
    }
    // Also a folder that became a file.
    let project = place.project();
    fs::rename(&project, place.path("aside")).unwrap();
    fs::write(&project, "a file").unwrap();
    from_outside(&place, &["rollback", "@"]).fails(10, "workspace_gone");
    assert_eq!(fs::read_to_string(&project).unwrap(), "a file");
}

#[test]
fn the_root_of_the_system_is_no_workspace() {
    let place = Place::new();
    place.refuses(&["-C", "/", "create"], 12, "refused_root");
    place.refuses(&["init", "/"], 12, "refused_root");
    place.refuses(&["-C", "/", "rollback", "@"], 10, "no_workspace");
    assert!(!std::path::Path::new("/.safepoint").exists());
}

#[test]
fn the_home_directory_is_no_workspace() {
    let place = Place::new();
    let home = place.path("user");
    let home = home.to_str().unwrap();
    place.refuses(&["-C", home, "create"], 12, "refused_root");
    place.refuses(&["init", home], 12, "refused_root");
    // Neither another name of the same folder, nor Safepoint's home.
    symlink(home, place.path("link")).unwrap();
    place.refuses(&["-C", place.path("link").to_str().unwrap(), "create"], 12, "refused_root");
    place.refuses(&["-C", place.path("home").to_str().unwrap(), "create"], 12, "refused_root");
    place.run(&["-C", home, "init", "--force"]).succeeds();
}

#[test]
fn a_workspace_nested_in_another() {
    let (place, outer) = place();
    place.write("inner/file", "1");
    place.write("inner/deep/file", "1");
    place.run(&["init", "inner"]).succeeds();
    let inner = |args: &[&str]| place.run(&[&["-C", "inner"], args].concat()).succeeds();
    inner(&["create", "-m", "inner"]);
    place.write("inner/file", "2");
    let both = place.create();
    let then = place.image();
    place.write("notes", "3");
    place.write("inner/file", "3");
    // The inner one restores its own files.
    inner(&["rollback", "@"]);
    assert_eq!((place.read("inner/file"), place.read("notes")), ("1".to_owned(), "3".to_owned()));
    // The outer one contains the inner files, too; both stay separate workspaces.
    place.goes_to_and_fro(&both, &then);
    assert_eq!(place.read("inner/file"), "2");
    inner(&["rollback", "@"]);
    assert_eq!(place.read("inner/file"), "1");
    let refused = place.run(&["-C", "inner", "rollback", &outer]);
    refused.fails(12, "other_workspace");
    // A rollback to an earlier time removes the inner folder, and the undo restores it.
    place.rollback(&outer);
    assert!(!place.file("inner").exists());
    place.run(&["undo", "--yes"]).succeeds();
    inner(&["status"]);
    assert_eq!(place.read("inner/file"), "1");
    place.is_whole();
}

#[test]
fn a_folder_without_permission() {
    let place = Place::ordinary();
    place.shell("mkdir shut; echo 1 > shut/file; echo 1 > open; chmod 000 shut");
    if !is_root() && fs::read_dir(place.file("shut")).is_ok() {
        return skip("a_folder_without_permission", "this user may read everything");
    }
    let answer = place.run(&["-C", "shut", "create"]);
    assert!([1, 10].contains(&answer.exit), "{} {}", answer.exit, answer.errors);
    answer.is_a_clear_error();
    place.shell("chmod 755 shut");
    assert_eq!(place.read("shut/file"), "1\n");
}
