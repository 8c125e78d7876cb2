//! Symbolic links: captured as data, never followed.

use crate::place::{Place, assert_same};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use safepoint_testkit::TreeImage;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Folder outside the project, with names that are also in it. Nothing in it may ever change.
fn canary(place: &Place) -> TreeImage {
    let outside = place.path("canary");
    for name in ["file", "only here", "deep/file"] {
        fs::create_dir_all(outside.join("deep")).unwrap();
        fs::write(outside.join(name), "alive").unwrap();
    }
    TreeImage::read(&outside, &[]).unwrap()
}

#[test]
fn links_that_point_out() {
    let place = Place::new();
    let alive = canary(&place);
    place.write("file", "1");
    symlink(place.path("canary"), place.file("absolute")).unwrap();
    symlink("../canary", place.file("relative")).unwrap();
    symlink("../canary/file", place.file("to a file")).unwrap();
    symlink("/", place.file("root")).unwrap();
    symlink("nowhere", place.file("dangling")).unwrap();
    let id = place.create();
    let then = place.image();
    // Folders replace links, and links replace files.
    for name in ["absolute", "relative", "to a file", "root", "dangling"] {
        fs::remove_file(place.file(name)).unwrap();
        place.write(format!("{name}/file"), "a folder now");
    }
    fs::remove_file(place.file("file")).unwrap();
    symlink("../canary/file", place.file("file")).unwrap();
    place.goes_to_and_fro(&id, &then);
    // A typed path does not lead through a link either.
    place.refuses(&["rollback", &id, "--path", "relative/file"], 10, "no_path");
    place.refuses(&["cat", &id, "relative/file"], 10, "no_path");
    assert_same(&TreeImage::read(&place.path("canary"), &[]).unwrap(), &alive);
}

#[test]
fn links_that_loop() {
    let place = Place::new();
    symlink("self", place.file("self")).unwrap();
    symlink("b", place.file("a")).unwrap();
    symlink("a", place.file("b")).unwrap();
    place.write("deep/file", "1");
    symlink("..", place.file("deep/up")).unwrap();
    symlink(".", place.file("deep/here")).unwrap();
    let id = place.create();
    let then = place.image();
    for name in ["self", "a", "deep/up"] {
        fs::remove_file(place.file(name)).unwrap();
    }
    place.write("deep/file", "2");
    symlink("deep/up/deep", place.file("new")).unwrap();
    place.goes_to_and_fro(&id, &then);
}

#[test]
fn a_link_in_place_of_a_directory_before_the_rollback() {
    let place = Place::new();
    let alive = canary(&place);
    place.write("dir/file", "1");
    place.write("dir/deep/file", "1");
    let id = place.create();
    let then = place.image();
    fs::rename(place.file("dir"), place.path("aside")).unwrap();
    symlink("../canary", place.file("dir")).unwrap();
    // Nothing below a link is captured: it is neither read nor written.
    place.refuses(&["rollback", &id, "--path", "dir/file"], 12, "blocked_path");
    place.goes_to_and_fro(&id, &then);
    assert_same(&TreeImage::read(&place.path("canary"), &[]).unwrap(), &alive);
}

/// Creates two states of a project with nested folders, and links to the canary outside.
fn two_states(place: &Place) -> Vec<(String, TreeImage)> {
    let mut states = Vec::new();
    for state in ["one", "two"] {
        for name in ["dir/file", "dir/deep/file", "still"] {
            place.write(name, state);
        }
        for number in 0..40 {
            place.write(format!("dir/{state} {number}"), state);
            place.write(format!("dir/deep/changes {number}"), state);
        }
        states.push((place.create(), place.image()));
        fs::remove_dir_all(place.file("dir")).unwrap();
    }
    place.rollback(&states[0].0);
    states
}

/// Exchanges this path of the project repeatedly with a link to an outside folder, while rollbacks run.
fn under_attack(path: &str, pause_micros_max: u64) {
    let place = Place::new();
    let alive = canary(&place);
    let states = two_states(&place);
    let link = place.path("link");
    symlink(place.path("canary"), &link).unwrap();
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let ends = std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut pause = 1;
            while !done.load(Ordering::Relaxed) {
                // While the rollback has the directory moved away, there is nothing to exchange.
                if renameat_with(CWD, place.file(path), CWD, &link, RenameFlags::EXCHANGE).is_ok() {
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
                pause = pause * 7 % 1_009;
                if pause_micros_max > 0 {
                    std::thread::sleep(std::time::Duration::from_micros(pause * pause_micros_max / 1_009));
                }
            }
        });
        let mut ends = BTreeMap::new();
        for round in 0..20 {
            let answer = place.run(&["rollback", &states[round % 2].0]);
            // Whatever it met: a defined exit code with a message.
            assert!([0, 1, 3, 10, 12].contains(&answer.exit), "{} {}", answer.exit, answer.errors);
            let code = match answer.exit {
                0 | 3 => "done",
                _ => answer.is_a_clear_error(),
            };
            *ends.entry(code.to_owned()).or_insert(0) += 1;
            assert_same(&TreeImage::read(&place.path("canary"), &[]).unwrap(), &alive);
        }
        done.store(true, Ordering::Relaxed);
        ends
    });
    let swaps = swaps.load(Ordering::Relaxed);
    eprintln!("{path} swapped {swaps} times; the rollbacks ended with {ends:?}");
    assert!(swaps > 20, "{swaps}");
    if path == ".safepoint" && fs::read_link(place.file(path)).is_ok() {
        // An unfinished rollback names its obstacle; it does not remove it unasked, and the displaced entry
        // is restored by hand.
        let answer = place.run(&["recover"]);
        if answer.exit != 0 {
            let code = answer.is_a_clear_error();
            assert!(["workspace", "obstructed"].contains(&code), "{code}: {}", answer.errors);
            assert!(answer.errors.contains(".safepoint"), "{}", answer.errors);
        }
        assert!(fs::read_link(place.file(path)).is_ok());
        renameat_with(CWD, place.file(path), CWD, &link, RenameFlags::EXCHANGE).unwrap();
    }
    // Afterwards, in any state: everything can be restored, and nothing was written outside.
    place.run(&["recover"]).succeeds();
    for (id, then) in &states {
        place.rollback(id);
        assert_same(&place.image(), then);
    }
    place.is_whole();
    assert_same(&TreeImage::read(&place.path("canary"), &[]).unwrap(), &alive);
}

#[test]
fn a_directory_that_is_swapped_with_a_link_while_rollbacks_run() {
    under_attack("dir", 3_000);
    under_attack("dir", 0);
}

#[test]
fn a_directory_far_below_that_is_swapped_with_a_link_while_rollbacks_run() {
    under_attack("dir/deep", 3_000);
    under_attack("dir/deep", 0);
}

/// A link in Safepoint's own folder is not followed either.
#[test]
fn the_own_folder_that_is_swapped_with_a_link_while_rollbacks_run() {
    under_attack(".safepoint", 0);
}
