//! A rollback is killed, and another home is used: a mixture of old and new is never taken for a state.

use crate::scene::{Act, Scene};
use safepoint_testkit::{End, TreeImage, kill_at};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn image(project: &Path) -> TreeImage {
    TreeImage::read(project, &[]).unwrap()
}

/// Runs the program in the project, with another home than the scene's.
fn other(scene: &Scene, home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
    command.args(args).current_dir(scene.project()).env_clear().env("HOME", home.parent().unwrap());
    command.env("SAFEPOINT_HOME", home).output().unwrap()
}

fn is_armed(project: &Path) -> bool {
    let own = fs::read_dir(project.join(".safepoint")).into_iter().flatten();
    own.flatten().any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"apply-"))
}

/// Kills a rollback or undo at every fifth call; then the other home tries everything.
fn another_home_is_refused(act: Act) {
    let scene = Scene::new(act);
    let elsewhere = tempfile::tempdir().unwrap();
    let home = elsewhere.path().join("home");
    // The other home has a past here: a checkpoint, a rollback that can be undone and an undo that can be redone.
    for args in
        [&["create", "--kind", "manual"][..], &["rollback", "@"], &["undo", "--yes"], &["rollback", "@"]]
    {
        fs::write(scene.project().join("of the other"), args[0]).unwrap();
        assert!(other(&scene, &home, args).status.success(), "{args:?}");
    }
    scene.reset();
    let old = image(&scene.project());
    let (mut armed, mut mixed) = (0, 0);
    for point in (1..).step_by(5) {
        scene.reset();
        let end = kill_at(&scene.verb(), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            break;
        }
        if !is_armed(&scene.project()) {
            continue;
        }
        let left = image(&scene.project());
        for args in [
            &["create", "--kind", "manual"][..],
            &["rollback", "@"],
            &["rollback", "@", "--path", "src"],
            &["undo", "--yes"],
            &["redo"],
            &["status"],
            &["diff", "@"],
            &["recover"],
            &["create", "--scope", "framework"],
        ] {
            let output = other(&scene, &home, args);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_ne!(output.status.code(), Some(0), "{args:?} after {end:?}: {told}");
            assert!(
                told.contains("another home") || told.contains("another Safepoint home"),
                "{args:?}: {told}"
            );
            assert!(image(&scene.project()).difference(&left).is_empty(), "{args:?} after {end:?}");
        }
        // An emergency checkpoint is still created, but not reported as complete.
        let output = other(&scene, &home, &["emergency"]);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        armed += 1;
        mixed += u64::from(
            !TreeImage::read(&scene.project(), &[".safepoint"]).unwrap().difference(&old).is_empty(),
        );
        scene.law(false).unwrap_or_else(|broken| panic!("after {end:?} and another home: {broken}"));
    }
    eprintln!(
        "another home: {act:?}: {armed} kills with work unfinished, {mixed} of them not the old state; all refused"
    );
    assert!(armed > 3 && mixed > 1, "{armed} {mixed}");
}

#[test]
fn a_second_home_is_refused_where_a_rollback_of_the_first_was_killed() {
    another_home_is_refused(Act::Rollback);
}

#[test]
fn a_second_home_is_refused_where_an_undo_of_the_first_was_killed() {
    another_home_is_refused(Act::Undo);
}
