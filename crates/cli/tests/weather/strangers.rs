//! Homes of other users, links inside a home, and homes inside a workspace.

use crate::place::{Answer, NOBODY, Place, assert_same, is_root, skip};
use safepoint_testkit::TreeImage;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

fn place() -> (Place, String) {
    let place = Place::new();
    place.write("file", "1");
    let id = place.create();
    place.write("file", "2");
    (place, id)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Gives a folder and its contents to a user.
fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), user));
    }
}

/// Runs a command as root.
fn as_root(place: &Place, args: &[&str]) -> Answer {
    let args = [&["--json"], args].concat();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_safepoint"));
    command.args(&args).env_clear().current_dir(place.project());
    command.env("HOME", place.path("user")).env("USER", "root").env("NO_COLOR", "1");
    if let Some(file) = std::env::var_os("LLVM_PROFILE_FILE") {
        command.env("LLVM_PROFILE_FILE", file);
    }
    Answer::of(&args, &command.output().unwrap())
}

#[test]
fn a_link_inside_a_home_is_not_followed() {
    for name in ["store", "store/packs", "cache", "runs", "scratch", "sandboxes"] {
        let (place, id) = place();
        let inside = place.path("home").join(name);
        let outside = place.path("outside");
        match inside.exists() {
            true => fs::rename(&inside, &outside).unwrap(),
            false => fs::create_dir(&outside).unwrap(),
        }
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&outside, &inside).unwrap();
        let (then, now) = (TreeImage::read(&outside, &[]).unwrap(), place.image());
        place.write(".safepoint.toml", "");
        fs::remove_file(place.file(".safepoint.toml")).unwrap();
        for args in [
            &["create", "--kind", "manual"][..],
            &["rollback", id.as_str(), "--verify", "true", "--yes"],
            &["status"],
            &["gc"],
        ] {
            let answer = place.run(args);
            eprintln!("{name} is a link, {args:?}: exit {} {}", answer.exit, answer.errors);
            assert_same(&TreeImage::read(&outside, &[]).unwrap(), &then);
            assert_eq!(mode(&outside), 0o755, "{name} {args:?}");
            if name.starts_with("store") {
                assert_eq!((answer.exit, answer.is_a_clear_error()), (1, "store"), "{name}");
                assert_same(&place.image(), &now);
            }
        }
    }
}

#[test]
fn a_file_of_a_home_that_is_a_link_is_not_followed() {
    for (name, code) in [
        ("catalog.db", "catalog"),
        ("catalog.db-wal", "catalog"),
        ("catalog.db-shm", "catalog"),
        ("store/format", "store"),
        ("store/index.db", "store"),
        ("store/index.db-wal", "store"),
        ("store/using-0", "store"),
        ("store/collect", "store"),
    ] {
        let (place, _) = place();
        let inside = place.path("home").join(name);
        let outside = place.path("outside");
        match inside.exists() {
            true => fs::rename(&inside, &outside).unwrap(),
            false => fs::write(&outside, "").unwrap(),
        }
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&outside, &inside).unwrap();
        let then = fs::read(&outside).unwrap();
        for args in [&["create", "--kind", "manual"][..], &["status"], &["gc"], &["validate"]] {
            let answer = place.run(args);
            eprintln!("{name} is a link, {args:?}: exit {} {}", answer.exit, answer.errors);
            assert_eq!(fs::read(&outside).unwrap(), then, "{name} {args:?}");
            assert_eq!(mode(&outside), 0o644, "{name} {args:?}");
            assert_eq!((answer.exit, answer.is_a_clear_error()), (1, code), "{name} {args:?}");
        }
    }
}

/// An attack that was found: root uses the home of a user, who controls its contents.
#[test]
fn root_does_not_write_through_the_home_of_a_user() {
    if !is_root() {
        return skip("root_does_not_write_through_the_home_of_a_user", "only root can be somebody else");
    }
    let place = Place::new();
    place.write("file", "1");
    let home = place.path("user/.local/share/safepoint");
    fs::create_dir_all(&home).unwrap();
    let target = place.path("target");
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&target, home.join("store")).unwrap();
    give(&place.path("user"), NOBODY);
    for args in [&["create", "--kind", "manual"][..], &["init"], &["gc"], &["doctor"]] {
        as_root(&place, args);
        assert_eq!(mode(&target), 0o755, "{args:?}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{args:?}");
    }
    as_root(&place, &["create", "--kind", "manual"]).fails(12, "home_owner");
    // Not even where that was allowed.
    let named = home.to_str().unwrap();
    as_root(&place, &["--home", named, "--allow-other-owner", "create"]).fails(1, "store");
    assert_eq!((mode(&target), fs::read_dir(&target).unwrap().count()), (0o755, 0));
}

#[test]
fn sudo_with_the_home_of_a_user_is_refused_with_what_to_do() {
    if !is_root() {
        return skip(
            "sudo_with_the_home_of_a_user_is_refused_with_what_to_do",
            "only root can be somebody else",
        );
    }
    let place = Place::ordinary();
    place.shell("echo 1 > file");
    let home = place.path("user/.local/share/safepoint");
    let mut command = place.command(&["--json", "create"]);
    assert!(command.env_remove("SAFEPOINT_HOME").output().unwrap().status.success());
    let before = TreeImage::read(&home, &[]).unwrap();
    for args in [&["create", "--kind", "manual"][..], &["rollback", "@"], &["gc"], &["init"]] {
        let answer = as_root(&place, args);
        answer.fails(12, "home_owner");
        let hints = answer.json["error"]["hints"].to_string();
        assert!(hints.contains(&format!("sudo -u '#{NOBODY}' safepoint")), "{hints}");
        assert!(hints.contains("--allow-other-owner"), "{hints}");
        assert_same(&TreeImage::read(&home, &[]).unwrap(), &before);
    }
    // Reading writes nothing.
    as_root(&place, &["list"]).succeeds();
    assert_same(&TreeImage::read(&home, &[]).unwrap(), &before);
}

/// A container volume belongs to its creator.
#[test]
fn a_home_of_another_owner_is_used_where_it_is_named_and_allowed() {
    if !is_root() {
        return skip(
            "a_home_of_another_owner_is_used_where_it_is_named_and_allowed",
            "only root can be somebody else",
        );
    }
    let place = Place::ordinary();
    place.shell("echo 1 > file");
    let id = place.create();
    place.shell("echo 2 > file");
    let home = place.path("home");
    let named = home.to_str().unwrap();
    as_root(&place, &["--home", named, "create"]).fails(12, "home_owner");
    as_root(&place, &["--allow-other-owner", "create"]).fails(2, "usage");
    as_root(&place, &["--home", named, "--allow-other-owner", "create"]).succeeds();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_safepoint"));
    command.args(["--json", "--allow-other-owner", "create"]).env_clear().current_dir(place.project());
    command.env("HOME", "/root").env("SAFEPOINT_HOME", &home);
    Answer::of(&["create", "--kind", "manual"], &command.output().unwrap()).succeeds();
    // The owner can go on: nothing in it has become root's.
    for entry in fs::read_dir(&home).unwrap().chain(fs::read_dir(home.join("store")).unwrap()) {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), NOBODY, "{:?}", entry.path());
    }
    place.shell("echo 3 > file");
    place.create();
    place.rollback(&id);
    assert_eq!(place.read("file"), "1\n");
    place.is_whole();
    // A new home there belongs to its creator, and a home of root is not used by others without an option.
    fs::create_dir(place.path("volume")).unwrap();
    fs::set_permissions(place.path("volume"), fs::Permissions::from_mode(0o777)).unwrap();
    let volume = place.path("volume");
    place.run(&["--home", volume.to_str().unwrap(), "create"]).fails(12, "home_owner");
    place.run(&["--home", volume.to_str().unwrap(), "--allow-other-owner", "create"]).succeeds();
}

#[test]
fn a_level_of_a_home_that_belongs_to_a_third_is_refused() {
    if !is_root() {
        return skip(
            "a_level_of_a_home_that_belongs_to_a_third_is_refused",
            "only root can make files of somebody else",
        );
    }
    for (name, code) in [("store", "store"), ("store/packs", "store"), ("catalog.db", "catalog")] {
        let (place, _) = place();
        let path = place.path("home").join(name);
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        place.refuses(&["create", "--kind", "manual"], 1, code);
        assert_eq!(mode(&path), 0o777, "{name}");
    }
}

/// Home of another project inside this one.
#[test]
fn another_home_inside_a_workspace_is_never_captured_nor_rolled_back() {
    let (place, id) = place();
    let inner = place.file("tools/home");
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("data"), "1").unwrap();
    let there = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        let mut command = place.command(&args);
        command.current_dir(&other).env("SAFEPOINT_HOME", &inner);
        Answer::of(&args, &command.output().unwrap())
    };
    there(&["create", "-m", "one"]).succeeds();
    let created = place.run(&["create", "--kind", "manual"]).succeeds();
    let skipped = created["checkpoint"]["coverage"]["skipped"].clone();
    let skipped = if skipped.is_null() { created["coverage"]["skipped"].clone() } else { skipped };
    assert!(
        skipped.as_array().unwrap().iter().any(|it| it["path"] == "tools/home" && it["why"] == "other_home"),
        "{created:#}"
    );
    let later = created["checkpoint"]["id"].as_str().unwrap();
    // Acknowledged there after our checkpoint.
    there(&["create", "-m", "two"]).succeeds();
    let before = TreeImage::read(&inner, &[]).unwrap();
    for to in [later, &id, later] {
        place.rollback(to);
        assert_same(&TreeImage::read(&inner, &[]).unwrap(), &before);
    }
    place.run(&["undo", "--yes"]).succeeds();
    let listed = there(&["list"]).succeeds();
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(there(&["validate", "--deep"]).succeeds()["is_valid"], true);
}

#[test]
fn a_folder_that_became_a_home_since_is_left_as_it_is() {
    let place = Place::new();
    place.write("file", "1");
    place.write("tools/home/notes", "a plain folder");
    let id = place.create();
    fs::remove_file(place.file("tools/home/notes")).unwrap();
    place.write("file", "2");
    let inner = place.file("tools/home");
    let there = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        let mut command = place.command(&args);
        command.current_dir(place.path("user")).env("SAFEPOINT_HOME", &inner);
        Answer::of(&args, &command.output().unwrap())
    };
    fs::write(place.path("user/data"), "1").unwrap();
    there(&["init", "--force"]).succeeds();
    there(&["create", "--kind", "manual"]).succeeds();
    let before = TreeImage::read(&inner, &[]).unwrap();
    let back = place.rollback(&id);
    assert_eq!(place.read("file"), "1", "other files are rolled back");
    assert_same(&TreeImage::read(&inner, &[]).unwrap(), &before);
    let kept = back["rollback"]["changed_paths"]
        .as_array()
        .unwrap()
        .iter()
        .any(|it| it["path"] == "tools/home" && it["action"] == "kept");
    assert!(kept, "{back:#}");
    place.run(&["undo", "--yes"]).succeeds();
    assert_eq!(place.read("file"), "2");
    assert_same(&TreeImage::read(&inner, &[]).unwrap(), &before);
}

/// Killed during its creation: the store's format file is still missing.
#[test]
fn a_home_that_is_being_made_inside_a_workspace_is_not_captured() {
    let place = Place::new();
    place.write("file", "1");
    place.write("home/store/format.01KG9YS9V3Q8N0T4B5C6D7E8F9", "safepoint store 1\n");
    let created = place.run(&["create", "--kind", "manual"]).succeeds();
    assert!(created.to_string().contains("other_home"), "{created:#}");
    // A folder that only resembles a home is captured.
    let place = Place::new();
    place.write("home/store/format", "png\n");
    place.write("home/catalog.db", "x");
    let created = place.run(&["create", "--kind", "manual"]).succeeds();
    assert!(!created.to_string().contains("other_home"), "{created:#}");
    fs::remove_dir_all(place.file("home")).unwrap();
    place.rollback("@");
    assert_eq!(place.read("home/store/format"), "png\n");
}

#[test]
fn a_workspace_inside_a_home_is_refused() {
    let (place, _) = place();
    for home in ["home", "another"] {
        let home = place.path(home);
        let mut make = place.command(&["create", "--kind", "manual"]);
        assert!(make.env("SAFEPOINT_HOME", &home).output().unwrap().status.success());
        let inside = home.join("store/packs");
        fs::create_dir(home.join("mine")).unwrap();
        for folder in [home.clone(), inside, home.join("mine")] {
            let folder = folder.to_str().unwrap().to_owned();
            place.refuses(&["-C", &folder, "create"], 12, "refused_root");
            place.refuses(&["init", &folder], 12, "refused_root");
            place.refuses(&["init", "--force", &folder], 12, "refused_root");
        }
    }
}

/// A folder with other files does not become a home by a typing error, and its mode stays.
#[test]
fn a_folder_full_of_other_things_is_not_made_a_home() {
    let (place, _) = place();
    let folder = place.path("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter"), "x").unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    place.refuses(&["--home", folder.to_str().unwrap(), "create"], 1, "home");
    assert_eq!(mode(&folder), 0o755);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    // With only a configuration file it may become one.
    fs::remove_file(folder.join("letter")).unwrap();
    fs::write(folder.join("config.toml"), "").unwrap();
    place.run(&["--home", folder.to_str().unwrap(), "create"]).succeeds();
    assert_eq!(mode(&folder), 0o700);
}
