//! The file is private, refused if foreign, and recognised if damaged.

use crate::records::{Room, at, checkpoint, id};
use safepoint_catalog::{Catalog, CatalogError};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test makes the file public")]
fn the_files_are_for_their_owner_alone() {
    let room = Room::new();
    let beside = |name: &str| room.folder.path().join(format!("catalog.db{name}"));
    for name in ["", "-wal", "-shm"] {
        assert_eq!(mode(&beside(name)), 0o600, "{name}");
    }
    fs::set_permissions(beside(""), Permissions::from_mode(0o664)).unwrap();
    Catalog::open(&room.path()).unwrap();
    assert_eq!(mode(&beside("")), 0o600);
}

#[test]
fn what_was_written_is_there_when_opened_again() {
    let room = Room::new();
    assert_eq!(room.catalog.path(), room.path());
    room.insert(&checkpoint(1));
    let Room { folder, catalog } = room;
    drop(catalog);
    let again = Catalog::open(&folder.path().join("catalog.db")).unwrap();
    assert_eq!(again.checkpoint(id(1)).unwrap(), Some(checkpoint(1)));
}

#[test]
fn a_newer_schema_is_refused() {
    let room = Room::new();
    room.raw().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = Catalog::open(&room.path()).unwrap_err();
    assert!(matches!(error, CatalogError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("99"));
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    for sql in [
        "CREATE TABLE theirs (x)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 5; CREATE TABLE theirs (x)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.db");
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let error = Catalog::open(&path).unwrap_err();
        assert!(matches!(error, CatalogError::Foreign { .. }), "{sql}: {error}");
        let raw = rusqlite::Connection::open(&path).unwrap();
        let tables: i64 = raw
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name <> 'theirs'", (), |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 0, "{sql}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Catalog::open(&folder.path().join("no/catalog.db")).unwrap_err();
    assert!(matches!(error, CatalogError::Create { .. }), "{error}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test creates the blocking folder")]
fn what_is_not_a_file_is_refused_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("catalog.db");
    fs::create_dir(&in_the_way).unwrap();
    fs::set_permissions(&in_the_way, Permissions::from_mode(0o755)).unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&in_the_way, &link).unwrap();
    for path in [&in_the_way, &link] {
        let error = Catalog::open(path).unwrap_err();
        assert!(matches!(error, CatalogError::Create { .. }), "{error}");
        assert_eq!(mode(&in_the_way), 0o755);
    }
}

#[test]
fn a_name_like_a_uri_is_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file:x?mode=memory");
    Catalog::open(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn the_log_stays_short_also_when_each_command_is_a_process_of_its_own() {
    let room = Room::new();
    let Room { folder, catalog } = room;
    let path = catalog.path().to_owned();
    drop(catalog);
    let log = folder.path().join("catalog.db-wal");
    let mut longest = 0;
    for number in 1..=60 {
        // Opened again each time, as by a command: no state of an earlier connection remains.
        let catalog = Catalog::open(&path).unwrap();
        let note = serde_json::json!("x".repeat(100_000));
        catalog.write(|t| t.append_event(at(number), "test", "x", &note)).unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    assert!(longest < 2 << 20, "{longest}");
    assert_eq!(Catalog::open(&path).unwrap().verify_events().unwrap().broken, None);
}

#[test]
fn between_two_transactions_that_belong_together_the_log_is_left_as_it_is() {
    let Room { folder, catalog } = Room::new();
    let log_bytes = || std::fs::metadata(folder.path().join("catalog.db-wal")).unwrap().len();
    let note = serde_json::json!("x".repeat(2 << 20));
    catalog.write_ahead(|t| t.append_event(at(1), "test", "x", &note)).unwrap();
    assert!(log_bytes() > 2 << 20);
    catalog.write(|t| t.append_event(at(2), "test", "x", &serde_json::json!("y"))).unwrap();
    assert_eq!(log_bytes(), 0);
    assert_eq!(catalog.verify_events().unwrap().broken, None);
}
