//! Safepoint's home: missing, truncated, of a newer version, or of another user.

use crate::place::{NOBODY, Place, assert_same, is_root, name, skip};
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;

/// Two checkpoints, and an edit that neither has.
fn place() -> (Place, String) {
    let place = Place::new();
    place.write("file", "1");
    place.write("deep/file", "1");
    let id = place.create();
    place.write("file", "2");
    place.create();
    place.write("file", "3");
    (place, id)
}

fn packs(place: &Place) -> Vec<PathBuf> {
    let listed = fs::read_dir(place.path("home/store/packs")).unwrap();
    listed
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some("pack".as_ref()))
        .collect()
}

#[test]
fn a_home_that_is_missing() {
    let (place, id) = place();
    fs::remove_dir_all(place.path("home")).unwrap();
    place.refuses(&["rollback", &id], 10, "no_workspace");
    place.refuses(&["status"], 10, "no_workspace");
    // A new start.
    place.create();
    let then = place.image();
    place.write("file", "4");
    place.rollback("@");
    assert_same(&place.image(), &then);
}

#[test]
fn a_home_that_cannot_be_made() {
    let (place, _) = place();
    for home in ["file/home", "file"] {
        place.refuses(&["--home", home, "create"], 1, "home");
    }
    if !is_root() {
        place.refuses(&["--home", "/proc/home", "create"], 1, "home");
    }
    let long = "x".repeat(300);
    place.refuses(&["--home", &long, "create"], 1, "home");
    // An unusual name works as usual.
    let odd = name(b"caf\xe9 \n");
    let output = place
        .command(&["create", "--kind", "manual"])
        .env("SAFEPOINT_HOME", place.path(odd))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_store_that_is_missing() {
    let (place, id) = place();
    fs::remove_dir_all(place.path("home/store")).unwrap();
    let answer = place.refuses(&["rollback", &id], 13, "missing");
    assert!(answer.errors.contains("Nothing was changed."), "{}", answer.errors);
    let answer = place.run(&["validate", "--deep"]);
    assert_eq!(answer.exit, 13, "{}", answer.errors);
    // The next checkpoint is intact, and a rollback to it works.
    let next = place.create();
    let then = place.image();
    place.write("file", "4");
    place.goes_to_and_fro(&next, &then);
}

#[test]
fn packs_that_are_missing() {
    let (place, id) = place();
    for pack in packs(&place) {
        fs::remove_file(pack).unwrap();
    }
    place.refuses(&["rollback", &id], 13, "missing");
    let next = place.create();
    let then = place.image();
    place.write("file", "4");
    place.goes_to_and_fro(&next, &then);
}

#[test]
fn packs_that_are_cut_short() {
    for keep in [0, 1, 7, 64, 200, 400] {
        let (place, id) = place();
        let then = place.image();
        for pack in packs(&place) {
            let file = fs::File::options().write(true).open(pack).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(length.min(keep)).unwrap();
        }
        let answer = place.run(&["rollback", &id]);
        if answer.exit == 0 {
            assert_eq!(place.read("file"), "1");
        } else {
            assert_eq!(answer.exit, 13, "{}", answer.errors);
            answer.is_a_clear_error();
            assert_same(&place.image(), &then);
        }
        let next = place.create();
        let then = place.image();
        place.write("file", "4");
        place.goes_to_and_fro(&next, &then);
    }
}

#[test]
fn an_index_that_is_missing_or_cut_short() {
    for keep in [None, Some(0), Some(100), Some(5_000)] {
        let (place, id) = place();
        let index = place.path("home/store/index.db");
        match keep {
            None => {
                for suffix in ["", "-wal", "-shm"] {
                    let _ = fs::remove_file(place.path(format!("home/store/index.db{suffix}")));
                }
            }
            Some(keep) => fs::File::options().write(true).open(index).unwrap().set_len(keep).unwrap(),
        }
        // It is a cache: the packs alone rebuild it.
        place.rollback(&id);
        assert_eq!(place.read("file"), "1");
        place.is_whole();
    }
}

fn remove_catalog(place: &Place) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(place.path(format!("home/catalog.db{suffix}")));
    }
}

#[test]
fn a_catalog_that_is_missing() {
    let (place, id) = place();
    remove_catalog(&place);
    // All records are lost, but the remaining data in the store is reported.
    let answer = place.refuses(&["rollback", &id], 10, "no_workspace");
    assert!(answer.errors.contains("catalog.db was lost"), "{}", answer.errors);
    let next = place.create();
    let then = place.image();
    place.write("file", "4");
    place.goes_to_and_fro(&next, &then);
    place.is_whole();
}

#[test]
fn a_catalog_that_is_cut_short() {
    for (keep, with_log) in
        [0, 1, 99, 100, 1_000, 4_096, 8_192, 20_000].into_iter().flat_map(|it| [(it, true), (it, false)])
    {
        let (place, id) = place();
        let before = place.image();
        let catalog = place.path("home/catalog.db");
        if !with_log {
            // Everything in the one file, as after a copy.
            let connection = rusqlite::Connection::open(&catalog).unwrap();
            let _: i64 =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).unwrap();
        }
        let file = fs::File::options().write(true).open(&catalog).unwrap();
        let length = file.metadata().unwrap().len();
        if keep >= length {
            continue;
        }
        file.set_len(keep).unwrap();
        let answer = place.run(&["rollback", &id]);
        eprintln!(
            "catalog cut to {keep} of {length}, log {with_log}: exit {} {}",
            answer.exit, answer.errors
        );
        match answer.exit {
            // The log had everything.
            0 => assert_eq!(place.read("file"), "1"),
            // SQLite treats a file without a whole page as new, as if it were missing; see above.
            10 => {
                assert!(keep < 512 && !with_log);
                answer.fails(10, "no_workspace");
                assert!(answer.errors.contains("catalog.db was lost"), "{}", answer.errors);
            }
            _ => {
                answer.fails(13, "catalog_damaged");
                assert_same(&place.image(), &before);
                // It stays an error until the user acts on it: nothing is silently begun anew.
                place.refuses(&["create", "--kind", "manual"], 13, "catalog_damaged");
                place.refuses(&["list"], 13, "catalog_damaged");
            }
        }
    }
}

#[test]
fn a_catalog_that_is_something_else() {
    let (place, id) = place();
    remove_catalog(&place);
    fs::write(place.path("home/catalog.db"), "This is not a database. ".repeat(500)).unwrap();
    place.refuses(&["rollback", &id], 13, "catalog_damaged");
    assert!(fs::read_to_string(place.path("home/catalog.db")).unwrap().starts_with("This is not"));
    fs::remove_file(place.path("home/catalog.db")).unwrap();
    fs::create_dir(place.path("home/catalog.db")).unwrap();
    let answer = place.run(&["rollback", &id]);
    assert!([1, 13].contains(&answer.exit), "{}", answer.errors);
    answer.is_a_clear_error();
    // A database of another program.
    fs::remove_dir(place.path("home/catalog.db")).unwrap();
    let other = rusqlite::Connection::open(place.path("home/catalog.db")).unwrap();
    other.execute_batch("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')").unwrap();
    drop(other);
    let answer = place.run(&["create", "--kind", "manual"]);
    assert!([1, 13].contains(&answer.exit), "{}", answer.errors);
    answer.is_a_clear_error();
    let other = rusqlite::Connection::open(place.path("home/catalog.db")).unwrap();
    let count: i64 = other.query_row("SELECT count(*) FROM bookmarks", (), |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_store_of_a_newer_version() {
    let (place, id) = place();
    let format = place.path("home/store/format");
    let ours = fs::read_to_string(&format).unwrap();
    fs::write(&format, "safepoint store 999\n").unwrap();
    for args in [&["rollback", id.as_str()][..], &["create", "--kind", "manual"], &["status"], &["validate"]]
    {
        place.refuses(args, 1, "newer_format");
    }
    for nonsense in ["", "something else\n", "safepoint store x\n"] {
        fs::write(&format, nonsense).unwrap();
        place.refuses(&["rollback", &id], 13, "not_a_store");
    }
    fs::write(&format, ours).unwrap();
    place.rollback(&id);
    assert_eq!(place.read("file"), "1");
    place.is_whole();
}

#[test]
fn a_catalog_of_a_newer_version() {
    let (place, id) = place();
    let version = |number: i64| {
        let catalog = rusqlite::Connection::open(place.path("home/catalog.db")).unwrap();
        let before: i64 = catalog.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
        catalog.pragma_update(None, "user_version", number).unwrap();
        before
    };
    let ours = version(999);
    for args in [&["rollback", id.as_str()][..], &["create", "--kind", "manual"], &["status"], &["list"]] {
        place.refuses(args, 1, "newer_format");
    }
    version(ours);
    place.rollback(&id);
    assert_eq!(place.read("file"), "1");
}

#[test]
fn a_home_of_somebody_else() {
    if !is_root() {
        return skip("a_home_of_somebody_else", "only root can make files of somebody else");
    }
    let place = Place::ordinary();
    place.shell("echo 1 > file");
    let id = place.create();
    place.shell("echo 2 > file");
    let now = place.image();
    for (path, looking) in [
        ("home", Some("home_owner")),
        ("home/store", Some("store")),
        ("home/catalog.db", Some("catalog")),
        ("home/store/format", Some("store")),
        ("home/store/packs", Some("store")),
        // The packs alone are sufficient to read.
        ("home/store/index.db", None),
    ] {
        chown(place.path(path), Some(0), Some(0)).unwrap();
        for args in [&["rollback", id.as_str()][..], &["create", "--kind", "manual"], &["status"]] {
            let answer = place.run(args);
            eprintln!("{path} is root's, {args:?}: exit {} {}", answer.exit, answer.errors);
            match (path, args) {
                (_, ["status"]) if looking.is_none() => assert_eq!(answer.exit, 0, "{}", answer.errors),
                (_, ["status"]) => assert_eq!(Some(answer.is_a_clear_error()), looking, "{path}"),
                ("home", _) => answer.fails(12, "home_owner"),
                ("home/store/format", _) => answer.fails(1, "store"),
                _ => answer.fails(1, "read_only_home"),
            }
            assert_same(&place.image(), &now);
        }
        chown(place.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // An unreadable pack is not a missing one.
    for pack in packs(&place) {
        chown(pack, Some(0), Some(0)).unwrap();
    }
    let answer = place.run(&["rollback", &id]);
    eprintln!("packs are root's: exit {} {}", answer.exit, answer.errors);
    answer.fails(1, "store");
    assert_same(&place.image(), &now);
    for pack in packs(&place) {
        chown(pack, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    place.rollback(&id);
    assert_eq!(place.read("file"), "1\n");
    place.is_whole();
}
