//! Export and import under faults: full and read-only disks, concurrent runs, kills, and ordinary users.

use crate::disks::{Mount, drain, fill, lift_the_cap};
use crate::place::{NOBODY, Place, assert_same, is_root, noise, skip};
use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn furnish(place: &Place) {
    for number in 0..30 {
        place.write(format!("many/{number}"), noise(number, 4_000));
    }
    place.write("large", noise(99, 300_000));
}

fn names(dir: &std::path::Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn folder(answer: &Value) -> PathBuf {
    answer["export"]["path"].as_str().unwrap().into()
}

#[test]
fn an_export_onto_a_full_disk_is_whole_or_gone() {
    let Some(mount) = Mount::memory("4m") else {
        return skip("an_export_onto_a_full_disk_is_whole_or_gone", "it takes the right to mount");
    };
    let place = Place::new();
    furnish(&place);
    let id = place.create();
    let (out, filler) = (mount.path().join("out"), mount.path().join("filler"));
    let (mut done, mut full) = (0, 0);
    for spare in (0..48).map(|step| step * 16 * 1024) {
        fill(&filler, spare);
        let answer = place.run(&["export", &id, out.to_str().unwrap()]);
        drain(&filler);
        if answer.exit == 0 {
            let path = folder(&answer.succeeds());
            assert_same(&TreeImage::read(&path.join("files"), &[]).unwrap(), &place.image());
            place.run(&["import", path.to_str().unwrap()]).succeeds();
            fs::remove_dir_all(&out).unwrap();
            done += 1;
        } else {
            answer.fails(1, "disk_full");
            full += 1;
        }
        assert_eq!(names(&mount.path()), BTreeSet::new(), "{spare} spare: leftovers");
    }
    eprintln!("exports onto a full disk: {done} whole, {full} gone");
    assert!(done > 0 && full > 0);
}

#[test]
fn an_import_into_a_full_home_makes_no_checkpoint() {
    let Some(mount) = Mount::memory("12m") else {
        return skip("an_import_into_a_full_home_makes_no_checkpoint", "it takes the right to mount");
    };
    let (giver, place) = (Place::new(), Place::at(&mount.path()));
    furnish(&giver);
    let path =
        folder(&giver.run(&["export", &giver.create(), giver.path("out").to_str().unwrap()]).succeeds());
    place.create();
    lift_the_cap(&place.path("home"));
    let filler = mount.path().join("filler");
    let (mut done, mut full, mut expected) = (0, 0, 1);
    for spare in (0..24).map(|step| step * 32 * 1024) {
        fill(&filler, spare);
        let answer = place.run(&["import", path.to_str().unwrap()]);
        drain(&filler);
        if answer.exit == 0 {
            done += 1;
            expected += 1;
            // So that the next one must be stored again.
            let id = answer.succeeds()["checkpoint"]["id"].as_str().unwrap().to_owned();
            place.run(&["--yes", "delete", &id]).succeeds();
            place.run(&["gc", "--thorough"]).succeeds();
            expected -= 1;
        } else {
            answer.fails(1, "disk_full");
            full += 1;
        }
        assert_eq!(place.labels().len(), expected, "{spare} spare");
        place.is_whole();
    }
    eprintln!("imports into a full home: {done} done, {full} refused");
    assert!(done > 0 && full > 0);
}

#[test]
fn an_export_onto_a_disk_that_is_read_only() {
    let Some(mount) = Mount::memory("4m") else {
        return skip("an_export_onto_a_disk_that_is_read_only", "it takes the right to mount");
    };
    let place = Place::new();
    place.write("file", "1");
    let id = place.create();
    mount.remount("ro");
    let out = mount.path().join("out");
    for dir in [out, mount.path()] {
        place.run(&["export", &id, dir.to_str().unwrap()]).fails(1, "not_written");
    }
    mount.remount("rw");
    assert_eq!(names(&mount.path()), BTreeSet::new());
}

#[test]
fn somebody_who_is_not_root_gets_the_same_back() {
    let place = Place::ordinary();
    furnish(&place);
    place.write("read-only/file", "1");
    place.write("tool", "#!/bin/sh\n");
    if is_root() {
        chown(place.file("tool"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(place.file("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(place.file("read-only"), fs::Permissions::from_mode(0o555)).unwrap();
    let to_and_fro = || {
        let created = place.run(&["create", "--kind", "manual"]).succeeds()["checkpoint"].clone();
        let id = created["id"].as_str().unwrap().to_owned();
        let path = folder(&place.run(&["export", &id, place.path("out").to_str().unwrap()]).succeeds());
        (id, created, place.run(&["import", path.to_str().unwrap()]).succeeds()["checkpoint"].clone())
    };
    // Most files are root's here: the list records the owners, as the user cannot change them.
    let (id, created, imported) = to_and_fro();
    assert_eq!(imported["integrity"], created["integrity"]);
    assert_eq!(imported["warnings"], serde_json::json!([]));
    if is_root() {
        // A set-user-ID file of root: an import by another user drops the bit.
        place.write("roots", "#!/bin/sh\n");
        fs::set_permissions(place.file("roots"), fs::Permissions::from_mode(0o4755)).unwrap();
        let (_, _, imported) = to_and_fro();
        assert!(imported["warnings"][0].as_str().unwrap().contains("rights of their owner"), "{imported:#}");
        let entries = place.run(&["show", imported["id"].as_str().unwrap(), "--files"]).succeeds();
        let mode = |name: &str| {
            let entries = entries["entries"].as_array().unwrap();
            entries.iter().find(|entry| entry["path"] == name).unwrap()["mode"].clone()
        };
        assert_eq!((mode("roots"), mode("tool")), ("0755".into(), "4755".into()));
    }
    // A read-only folder is reported.
    fs::create_dir(place.path("closed")).unwrap();
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    place.run(&["export", &id, place.path("closed").to_str().unwrap()]).fails(1, "not_written");
    assert_eq!(names(&place.path("closed")), BTreeSet::new());
}

#[test]
fn four_processes_export_the_same_second_into_one_folder() {
    let place = Place::new();
    furnish(&place);
    let id = place.create();
    let out = place.path("out");
    let export = || {
        let path = out.to_str().unwrap();
        (0..5).map(|_| folder(&place.run(&["export", &id, path]).succeeds())).collect::<Vec<_>>()
    };
    let paths: BTreeSet<PathBuf> = std::thread::scope(|scope| {
        let processes: Vec<_> = (0..4).map(|_| scope.spawn(export)).collect();
        processes.into_iter().flat_map(|process| process.join().unwrap()).collect()
    });
    assert_eq!((paths.len(), names(&out.join("project")).len()), (20, 20));
    let image = place.image();
    for path in &paths {
        assert_same(&TreeImage::read(&path.join("files"), &[]).unwrap(), &image);
    }
    place.run(&["import", paths.last().unwrap().to_str().unwrap()]).succeeds();
}

#[test]
fn an_export_that_is_killed_never_looks_whole() {
    let place = Place::new();
    furnish(&place);
    place.write("larger", noise(7, 20_000_000));
    let id = place.create();
    let out = place.path("out");
    let (mut whole, mut killed, mut nameless) = (0, 0, 0);
    for wait in 0..30 {
        let args = ["export", &id, out.to_str().unwrap()];
        let mut child = place.command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait * 6));
        child.kill().unwrap();
        child.wait().unwrap();
        for name in names(&out.join("project")) {
            let path = out.join("project").join(&name);
            if name.starts_with(".unfinished-") {
                killed += 1;
                // Between the last byte and the rename, everything exists.
                let answer = place.run(&["import", path.to_str().unwrap()]);
                if answer.exit == 0 {
                    nameless += 1;
                } else {
                    answer.is_a_clear_error();
                }
            } else {
                whole += 1;
                place.run(&["import", path.to_str().unwrap()]).succeeds();
            }
            fs::remove_dir_all(path).unwrap();
        }
    }
    eprintln!("exports that were killed: {killed} unfinished ({nameless} but for the name), {whole} whole");
    assert!(killed > 0, "none was killed during the run");
}

#[test]
fn an_export_that_is_stopped_leaves_nothing() {
    let place = Place::new();
    furnish(&place);
    place.write("larger", noise(7, 20_000_000));
    let id = place.create();
    let out = place.path("new/out");
    let args = ["--json", "export", &id, out.to_str().unwrap()];
    // Measures the duration of one run.
    let since = Instant::now();
    assert!(place.command(&args).output().unwrap().status.success());
    let whole = since.elapsed();
    fs::remove_dir_all(place.path("new")).unwrap();
    let mut stopped = 0;
    for wait in 0..60 {
        let mut command = place.command(&args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(whole * (wait % 30) / 30);
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => fs::remove_dir_all(place.path("new")).unwrap(),
            Some(130) => {
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(told.contains(": interrupted\nNothing was changed."), "{told}");
                stopped += 1;
            }
            // Before it listened.
            None => {}
            other => panic!("{other:?} {}", String::from_utf8_lossy(&output.stdout)),
        }
        assert!(
            !place.path("new").exists(),
            "{:?}: {:?}",
            output.status,
            names(&place.path("new/out/project"))
        );
    }
    eprintln!("exports that were stopped: {stopped}");
    assert!(stopped > 0, "none was stopped during the run");
}
