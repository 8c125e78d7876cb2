//! Bad input and bad luck: odd file systems, odd files, other owners, deep paths, a full disk. The project is never half of anything.

use crate::histories::matrix;
use crate::world::{Means, User, World};
use safepoint_testkit::blocks::in_own_namespace;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// Runs an edit in an attempt named `a`.
fn edit(world: &World, means: Means, line: &str) -> serde_json::Value {
    let attempt = world.start("a", means);
    let line = format!("cd {}; {line}", world.place(&attempt).display());
    world.answer(&["attempt", "exec", "a", "--", "sh", "-c", &line])
}

pub(crate) fn mount(kind: &str, options: &str, place: &Path) {
    fs::create_dir_all(place).unwrap();
    let mut command = Command::new("mount");
    let status = command.args(["-t", kind, "-o", options, kind]).arg(place).status().unwrap();
    assert!(status.success(), "cannot mount {kind}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Continues as root in a mount namespace of the test's own.
pub(crate) fn alone(test: &str) -> bool {
    if !is_root() {
        eprintln!("left out: a mount needs root");
        return false;
    }
    in_own_namespace(test).unwrap()
}

#[test]
fn random_edits_on_tmpfs_have_the_result_of_a_plain_copy() {
    if !alone("weather::random_edits_on_tmpfs_have_the_result_of_a_plain_copy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    mount("tmpfs", "size=512m", &place);
    matrix(Some(&place), 5);
    assert!(Command::new("umount").arg(&place).status().unwrap().success(), "something is still open");
}

/// A file system of a container: an overlay, which the kernel takes below another overlay, and never above one.
fn container(folder: &Path) -> std::path::PathBuf {
    for name in ["lower", "upper", "work"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", path("lower"), path("upper"), path("work"));
    let place = folder.join("place");
    mount("overlay", &options, &place);
    place
}

#[test]
fn random_edits_on_an_overlay_have_the_result_of_a_plain_copy() {
    if !alone("weather::random_edits_on_an_overlay_have_the_result_of_a_plain_copy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = container(folder.path());
    matrix(Some(&place), 6);
    assert!(Command::new("umount").arg(&place).status().unwrap().success(), "something is still open");
}

#[test]
fn a_project_on_an_overlay_has_its_layer_in_a_home_elsewhere_or_is_copied_with_a_reason() {
    if !alone("weather::a_project_on_an_overlay_has_its_layer_in_a_home_elsewhere_or_is_copied_with_a_reason")
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = container(folder.path());
    for home in [Some(folder.path().join("home")), None] {
        let own = place.join(format!("{}", home.is_some()));
        fs::create_dir(&own).unwrap();
        let mut world = World::at(&own, User::Own);
        let is_elsewhere = home.is_some();
        world.home = home.unwrap_or_else(|| world.home.clone());
        world.write("file", "old\n");
        let answer = world.answer(&["attempt", "start", "b"]);
        let (kind, messages) = (&answer["data"]["attempt"]["kind"], answer["messages"].to_string());
        match is_elsewhere {
            true => assert_eq!(kind, "overlay", "{answer:#}"),
            false => assert!(kind != "overlay" && messages.contains("attempt_is_a_copy"), "{answer:#}"),
        }
        edit(&world, Means::Best, "echo new > file; mkdir made; echo x > made/x");
        world.run(&["attempt", "keep", "a"]);
        assert_eq!((world.read("file").as_str(), world.read("made/x").as_str()), ("new\n", "x\n"));
        world.run(&["undo"]);
        assert_eq!((world.read("file").as_str(), world.rooms()), ("old\n", 0));
    }
}

#[test]
fn a_nested_workspace_is_a_part_of_the_attempt_and_has_attempts_of_its_own() {
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("outer", "1\n");
        world.write("nested/inner", "1\n");
        let nested = world.project().join("nested");
        let inside = |args: &[&str]| -> serde_json::Value {
            let output = world.command(&[&["--json"], args].concat()).current_dir(&nested).output().unwrap();
            serde_json::from_slice(&output.stdout).unwrap()
        };
        world.run(&["create"]);
        assert_eq!(inside(&["init"])["status"], "ok");
        assert_eq!(inside(&["create"])["status"], "ok");
        // An attempt of each at once.
        let copy: &[&str] = if means == Means::Copy { &["--copy"] } else { &[] };
        let own = inside(&[&["attempt", "start", "own"], copy].concat())["data"]["attempt"].clone();
        edit(&world, means, "echo 2 > outer; echo 2 > nested/inner");
        let place = match own["kind"].as_str().unwrap() {
            "overlay" => nested.clone(),
            _ => Path::new(own["room"].as_str().unwrap()).join("tree/nested"),
        };
        let line = format!("cd {}; echo own > made", place.display());
        assert_eq!(inside(&["attempt", "exec", "own", "--", "sh", "-c", &line])["exit_code"], 0);
        assert_eq!((world.read("outer").as_str(), world.read("nested/inner").as_str()), ("1\n", "1\n"));
        assert_eq!(inside(&["attempt", "keep", "own"])["status"], "ok");
        let kept = world.run(&["attempt", "keep", "a"]);
        assert_eq!(kept["changed_in_project"][0], "nested/made", "{kept:#}");
        assert_eq!((world.read("outer").as_str(), world.read("nested/inner").as_str()), ("2\n", "2\n"));
        assert_eq!((world.read("nested/made").as_str(), world.rooms()), ("own\n", 0));
        // Each has its own history.
        assert_eq!(world.run(&["attempt", "list", "--all"])["attempts"].as_array().unwrap().len(), 1);
        assert_eq!(inside(&["attempt", "list", "--all"])["data"]["attempts"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_file_with_two_names_becomes_two_files_where_an_attempt_changes_it() {
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("one", "old\n");
        world.write("apart", "old\n");
        fs::hard_link(world.project().join("one"), world.project().join("two")).unwrap();
        fs::hard_link(world.project().join("apart"), world.project().join("still")).unwrap();
        edit(&world, means, "rm one; echo new > one");
        world.run(&["attempt", "keep", "a"]);
        assert_eq!((world.read("one").as_str(), world.read("two").as_str()), ("new\n", "old\n"));
        let links = |name: &str| fs::metadata(world.project().join(name)).unwrap().nlink();
        assert_eq!((links("one"), links("two"), links("apart")), (1, 1, 2), "{means:?}");
        // Names that the attempt itself links are files, too.
        edit(&world, means, "ln apart third; echo more >> third");
        world.run(&["attempt", "keep", "a"]);
        assert_eq!(world.read("third"), "old\nmore\n");
        assert_eq!(world.run(&["validate", "--deep"])["is_valid"], true);
    }
}

#[test]
fn sockets_and_fifos_stay_where_they_are() {
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("file", "old\n");
        let socket = world.project().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let answer =
            edit(&world, means, "mkfifo fifo; echo new > file; rm -f socket; mkdir made; mkfifo made/fifo");
        assert_eq!(answer["exit_code"], 0, "{answer:#}");
        let kept = world.run(&["attempt", "keep", "a"]);
        assert_eq!(world.read("file"), "new\n", "{kept:#}");
        assert!(fs::symlink_metadata(&socket).is_ok(), "the socket of the project is gone");
        assert!(!world.project().join("fifo").exists() && world.project().join("made").is_dir());
        assert_eq!(world.rooms(), 0);
    }
}

#[test]
fn files_of_other_owners_keep_them() {
    if !is_root() {
        eprintln!("left out: another owner needs root");
        return;
    }
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("theirs", "old\n");
        world.write("folder/theirs", "old\n");
        for name in ["theirs", "folder/theirs", "folder"] {
            chown(world.project().join(name), Some(1234), Some(1235)).unwrap();
        }
        fs::set_permissions(world.project().join("theirs"), fs::Permissions::from_mode(0o600)).unwrap();
        edit(&world, means, "echo more >> theirs; echo more >> folder/theirs; echo own > folder/own");
        world.run(&["attempt", "keep", "a"]);
        let owner = |name: &str| {
            let facts = fs::metadata(world.project().join(name)).unwrap();
            (facts.uid(), facts.gid(), facts.mode() & 0o777)
        };
        assert_eq!(world.read("theirs"), "old\nmore\n");
        assert_eq!((owner("theirs"), owner("folder").0), ((1234, 1235, 0o600), 1234), "{means:?}");
        assert_eq!((owner("folder/theirs").0, owner("folder/own").0), (1234, 0));
    }
}

#[test]
fn files_that_an_ordinary_user_may_not_change_or_read_stop_nothing() {
    if !User::Nobody.is_possible() {
        eprintln!("left out: another user needs root");
        return;
    }
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Nobody);
        world.write("file", "old\n");
        for (name, mode) in [("readable", 0o644), ("secret", 0o600)] {
            let path = world.project().join(name);
            fs::write(&path, "of root\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let line = "echo new > file; echo mine 2>/dev/null >> secret; cat readable > copied";
        let answer = edit(&world, means, line);
        assert_eq!(answer["exit_code"], 0, "{means:?}: {answer:#}");
        if answer["data"]["attempt"]["kind"] != "overlay" {
            // A copy lacks what cannot be read, so the attempt could create it; it is not put over the project's.
            let refused = world.answer(&["attempt", "keep", "a"]);
            assert_eq!(refused["error"]["code"], "obstructed", "{means:?}: {refused:#}");
            assert!(refused.to_string().contains("secret: it could not be read"), "{refused:#}");
            assert_eq!(world.read("file"), "old\n");
            let place = world.place(&world.run(&["attempt", "show", "a"])["attempt"]);
            let secret = place.join("secret").display().to_string();
            world.run(&["attempt", "exec", "a", "--", "rm", &secret]);
        }
        world.run(&["attempt", "keep", "a"]);
        assert_eq!((world.read("file").as_str(), world.read("copied").as_str()), ("new\n", "of root\n"));
        assert_eq!(
            (world.read("secret").as_str(), world.read("readable").as_str()),
            ("of root\n", "of root\n")
        );
        let owner = fs::metadata(world.project().join("readable")).unwrap().uid();
        assert_eq!((owner, world.rooms()), (0, 0), "{means:?}");
    }
}

#[test]
fn paths_longer_than_the_kernel_takes_at_once_are_kept() {
    // 150 folders with names of 40 letters: 6,150 bytes, and the limit of a path is 4,096.
    const GO: &str = "n=0; while [ $n -lt 150 ]; do mkdir -p aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd
        cd -P ./aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd || exit 9; n=$((n+1)); done";
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("file", "old\n");
        world.shell(&format!("{GO}; echo old > bottom; echo gone > removed"), &world.project());
        let answer = edit(&world, means, &format!("{GO}; echo new > bottom; echo made > made; rm removed"));
        assert_eq!(answer["exit_code"], 0, "{means:?}: {answer:#}");
        let check = |line: &str| world.shell(&format!("{GO}; {line}"), &world.project());
        check("test \"$(cat bottom)\" = old && test -e removed && ! test -e made");
        world.run(&["attempt", "keep", "a"]);
        check("test \"$(cat bottom)\" = new && ! test -e removed && test \"$(cat made)\" = made");
        world.run(&["undo"]);
        check("test \"$(cat bottom)\" = old && test -e removed && ! test -e made");
        assert_eq!(world.rooms(), 0);
        // The temporary folder cannot be deleted by path otherwise.
        world.shell("rm -rf aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", &world.project());
    }
}

#[test]
fn a_full_disk_leaves_the_project_and_the_attempt_and_goes_on_with_space() {
    if !alone("weather::a_full_disk_leaves_the_project_and_the_attempt_and_goes_on_with_space") {
        return;
    }
    for means in [Means::Best, Means::Copy] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("place");
        mount("tmpfs", "size=24m", &place);
        let world = World::at(&place, User::Own);
        world.write("file", "old\n");
        let before = world.image(&world.project());
        let answer = edit(&world, means, "echo new > file; head -c 64M /dev/urandom > large");
        assert_ne!(answer["exit_code"], 0, "{answer:#}");
        assert!(world.image(&world.project()).difference(&before).is_empty(), "the project changed");
        let open = world.run(&["attempt", "list"])["attempts"].clone();
        assert_eq!(open[0]["name"], "a", "{open:#}");
        // A keep cannot store what is there, and changes nothing.
        let refused = world.answer(&["attempt", "keep", "a"]);
        assert_ne!(refused["exit_code"], 0, "{refused:#}");
        assert!(world.image(&world.project()).difference(&before).is_empty(), "the project changed");
        let large = world.place(&open[0]).join("large").display().to_string();
        let freed = world.answer(&["attempt", "exec", "a", "--", "rm", &large]);
        assert_eq!(freed["exit_code"], 0, "{freed:#}");
        world.run(&["attempt", "keep", "a"]);
        assert_eq!((world.read("file").as_str(), world.rooms()), ("new\n", 0));
        drop(world);
        assert!(Command::new("umount").arg(&place).status().unwrap().success(), "something is still open");
    }
}
