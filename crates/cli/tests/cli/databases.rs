//! SQLite databases that this process has open while the command runs.

use crate::sandbox::Sandbox;
use rusqlite::Connection;
use std::fs;

fn database(sandbox: &Sandbox, mode: &str) -> Connection {
    let connection = Connection::open(sandbox.path("project/data")).unwrap();
    let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t (x); INSERT INTO t VALUES (1)");
    connection.execute_batch(&sql).unwrap();
    connection
}

fn rows(path: &std::path::Path) -> u64 {
    let connection = Connection::open(path).unwrap();
    let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_open_database_is_captured_and_one_that_cannot_be_locked_ends_with_3() {
    for mode in ["wal", "delete"] {
        let sandbox = Sandbox::new();
        let connection = database(&sandbox, mode);
        let created = sandbox.output(&["create", "--json"]);
        assert_eq!(created.status.code(), Some(0));
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; INSERT INTO t VALUES (2)").unwrap();
        let created = sandbox.output(&["create", "--json"]);
        assert_eq!(created.status.code(), Some(3), "{created:?}");
        let told: serde_json::Value = serde_json::from_slice(&created.stdout).unwrap();
        let checkpoint = &told["data"]["checkpoint"];
        assert_eq!(checkpoint["coverage"]["unsettled"][0], "data", "{told}");
        let warning = checkpoint["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("cannot read data consistently: another program keeps it locked"),
            "{warning}"
        );
    }
}

#[test]
fn a_rollback_under_an_open_connection_says_so() {
    let sandbox = Sandbox::new();
    let connection = database(&sandbox, "wal");
    assert_eq!(sandbox.output(&["create", "-m", "one"]).status.code(), Some(0));
    connection.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    let told = sandbox.run(&["rollback", "one"]);
    assert!(told.contains("data is or may be open for writing in another program"), "{told}");
    assert!(told.ends_with("--- exit 3\n"), "{told}");
    // It still uses the old file.
    connection.execute_batch("INSERT INTO t VALUES (3)").unwrap();
    fs::create_dir(sandbox.path("copy")).unwrap();
    for name in ["data", "data-wal"] {
        fs::copy(sandbox.path("project").join(name), sandbox.path("copy").join(name)).unwrap();
    }
    assert_eq!(rows(&sandbox.path("copy/data")), 1);
    drop(connection);
    let told = (0..100).map(|_| sandbox.run(&["recover"])).find(|told| !told.contains("may be open"));
    assert!(told.unwrap().contains("data-wal: changed during the rollback; that version is kept"));
    assert_eq!(rows(&sandbox.path("project/data")), 1);
}

#[test]
fn the_program_copies_a_database_when_it_is_started_for_that() {
    let sandbox = Sandbox::new();
    let connection = database(&sandbox, "wal");
    let copy = sandbox.path("copy");
    assert_eq!(sandbox.output(&["--copy-database", "./data", copy.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(rows(&copy), 1);
    assert!(sandbox.path("project/data-wal").exists(), "the log stays");
    drop(connection);
    let missing = sandbox.output(&["--copy-database", "./nothing", copy.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(!sandbox.path("project/nothing").exists());
}
