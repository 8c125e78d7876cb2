//! Searches on other file systems, without space, and by an ordinary user.

use crate::disks::{Mount, lift_the_cap};
use crate::place::{Place, assert_same, noise, skip};
use safepoint_testkit::TreeImage;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Makes a good and a bad checkpoint, and an uncaptured file.
fn scene(place: &Place, ignored_bytes: usize, home: &[&str]) {
    if home.is_empty() {
        place.run(&["init"]).succeeds();
        lift_the_cap(&place.path("home"));
    }
    place.write(".safepointignore", "large\n");
    place.write("large", noise(7, ignored_bytes));
    for state in ["good", "bad"] {
        place.write("state", state);
        place.run(&[home, &["create", "--kind", "manual"]].concat()).succeeds();
    }
    place.write("state", "present");
}

/// Number of search folders beside the project.
fn beside(place: &Place) -> usize {
    let names = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".safepoint-search-")).count()
}

#[test]
fn a_search_without_room_for_a_copy_names_the_way_without_one() {
    let Some(mount) = Mount::memory("64m") else {
        return skip(
            "a_search_without_room_for_a_copy_names_the_way_without_one",
            "it takes the right to mount",
        );
    };
    let place = Place::at(&mount.path());
    scene(&place, 40 << 20, &[]);
    let check = ["rollback", "--until", "grep -q good state && test -s large"];
    let answer = place.refuses(&[&check[..], &["--copy"]].concat(), 1, "no_room_to_try");
    assert!(answer.errors.contains("--in-place"), "{}", answer.errors);
    assert_eq!(fs::read_dir(place.path("home/scratch")).unwrap().count(), 0);
    place.run(&[&check[..], &["--in-place"]].concat()).succeeds();
    assert_eq!(place.read("state"), "good");
}

#[test]
fn a_search_where_content_is_shared_takes_no_room() {
    let Some(mount) = Mount::of("btrfs", 320 << 20) else {
        return skip(
            "a_search_where_content_is_shared_takes_no_room",
            "it takes mkfs.btrfs and the right to mount",
        );
    };
    let place = Place::at(&mount.path());
    scene(&place, 150 << 20, &[]);
    place.run(&["rollback", "--until", "grep -q good state && test -s large", "--copy"]).succeeds();
    assert_eq!(place.read("state"), "good");
}

#[test]
fn a_search_on_another_file_system_than_the_home_copies_beside_the_workspace() {
    let name = "a_search_on_another_file_system_than_the_home_copies_beside_the_workspace";
    let Some(mount) = Mount::memory("64m") else { return skip(name, "it takes the right to mount") };
    let (place, away) = (Place::at(&mount.path()), tempfile::tempdir().unwrap());
    let home = ["--home", away.path().to_str().unwrap()];
    scene(&place, 1 << 20, &home);
    let seen = away.path().join("../seen");
    let seen = seen.to_str().unwrap();
    let before = place.image();
    let search = |check: &str| place.run(&[&home[..], &["rollback", "--until", check, "--copy"]].concat());
    search(&format!("pwd >> {seen}; false")).fails(1, "none_passed");
    let pwd = fs::read_to_string(seen).unwrap();
    fs::remove_file(seen).unwrap();
    assert!(pwd.lines().all(|line| Path::new(line).starts_with(mount.path())), "{pwd}");
    assert_same(&place.image(), &before);
    assert_eq!((beside(&place), fs::read_dir(away.path().join("scratch")).unwrap().count()), (0, 0));
    // The next command cleans up after a killed one.
    let check = format!("touch {seen}; sleep 3");
    let mut child = place
        .command(&[&home[..], &["rollback", "--until", &check, "--copy"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !Path::new(seen).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(seen).unwrap();
    assert_eq!(beside(&place), 1);
    place.run(&[&home[..], &["status"]].concat()).succeeds();
    assert_eq!((beside(&place), fs::read_dir(away.path().join("scratch")).unwrap().count()), (0, 0));
    assert_same(&place.image(), &before);
}

#[test]
fn a_search_copies_folders_that_forbid_to_write_in_them() {
    let place = Place::ordinary();
    let mut made = Vec::new();
    for number in 0..3 {
        place.shell(&format!(
            "chmod -R u+w . ; mkdir -p closed/deep; echo {number} > closed/deep/file; echo {number} > closed/only{number};
             rm -f closed/only$(({number} - 1)); chmod 555 closed closed/deep; chmod 44{number} closed/deep/file"
        ));
        made.push((place.create(), place.image()));
    }
    place.shell("chmod 755 closed; echo now > closed/now; chmod 555 closed");
    let before = place.image();
    // In a copy, and in an overlay where the machine allows one.
    for (at, means) in [&["--copy"][..], &[]].into_iter().enumerate() {
        let album = place.path(format!("user/album{at}"));
        place.shell(&format!("mkdir -p {0}; chmod 777 {0}", album.display()));
        let check = format!(
            "cp -a . {}/${{SAFEPOINT_CHECKPOINT_ID:-current}}; chmod -R u+w .; rm -rf closed; mkdir closed; chmod 500 closed; false",
            album.display()
        );
        place.run(&[&["rollback", "--until", &check][..], means].concat()).fails(1, "none_passed");
        assert_same(&place.image(), &before);
        for (id, image) in &made {
            assert_same(&TreeImage::read(&album.join(id), &[]).unwrap(), image);
        }
    }
    assert_eq!(fs::read_dir(place.path("home/scratch")).unwrap().count(), 0);
    place.shell("chmod -R u+w . ../user");
}
