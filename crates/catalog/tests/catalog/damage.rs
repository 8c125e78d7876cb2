//! Damage is detected and named, never a panic.

use crate::records::{HERE, Room, at, checkpoint, here, id, path, rollback, step, workspace};
use crate::sessions::session;
use safepoint_catalog::{Catalog, CatalogError, Filter, FinishFacts};
use safepoint_model::rollback::{Rescued, RollbackState};
use safepoint_model::{RollbackId, WorkspaceId};
use std::fs;

fn full_room() -> Room {
    let room = Room::new();
    room.insert(&checkpoint(1));
    let found = Rescued { path: path(b"a"), checkpoint: id(1), why: "edited".to_owned() };
    room.write(|t| {
        t.insert_session(&session(1))?;
        t.insert_rollback(&rollback(1, 1), &[step(1)])?;
        t.add_rescued(RollbackId::from_bits(1), &[found], at(1))
    });
    room
}

/// Reads all records, and returns the first error.
fn read_all(catalog: &Catalog) -> Result<(), CatalogError> {
    catalog.workspaces()?;
    catalog.workspace(WorkspaceId::from_bits(HERE))?;
    catalog.checkpoint(id(1))?;
    catalog.summary(&Filter::default())?;
    catalog.rollback(RollbackId::from_bits(1))?;
    catalog.rollbacks(here())?;
    catalog.sessions(None, None)?;
    catalog.steps(RollbackId::from_bits(1))?;
    catalog.events(0, 100)?;
    Ok(())
}

#[test]
fn a_row_that_cannot_be_understood_is_named() {
    let (word, hash, number) = ("'nonsense'", "x'00'", "-1");
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("workspaces", &[("name", "CAST(x'ff' AS TEXT)"), ("created_at", "9223372036854775807")]),
        (
            "checkpoints",
            &[
                ("kind", word),
                ("reason", word),
                ("scope", word),
                ("phase", word),
                ("role", word),
                ("step_index", number),
                ("state_hash", hash),
                ("state_snapshot", hash),
                ("progress", "'{\"other\": 1}'"),
                ("tags", "'{}'"),
                ("pinned", "2"),
                ("rollback_used", number),
                ("rollback_count", number),
                ("size_bytes", number),
                ("files", "''"),
                ("parent", word),
                ("integrity", hash),
                ("warnings", "'[1]'"),
                ("label", "CAST(x'ff' AS TEXT)"),
                ("created_at", "-9223372036854775807"),
            ],
        ),
        ("checkpoint_parts", &[("kind", word), ("document", hash)]),
        (
            "rollbacks",
            &[
                ("verb", word),
                ("answers", word),
                ("from_checkpoint", word),
                ("to_checkpoint", word),
                ("safety_checkpoint", word),
                ("strategy", word),
                ("paths", "'[\"../x\"]'"),
                ("state", word),
                ("finished_at", "9223372036854775807"),
                ("restored_files_count", number),
                ("changed_paths", hash),
            ],
        ),
        (
            "sessions",
            &[
                ("id", word),
                ("request", "CAST(x'ff' AS TEXT)"),
                ("status", word),
                ("status", "'paused'"),
                ("paused_from", word),
                ("paused_from", "'planning'"),
                ("configuration", "'[]'"),
                ("git_context", "'1'"),
                ("tasks_completed", number),
                ("error_recoveries", number),
                ("created_at", "9223372036854775807"),
                ("finished_at", "9223372036854775807"),
            ],
        ),
        ("rescued", &[("path", "x'2f'"), ("checkpoint_id", word)]),
        ("rollback_steps", &[("step", "'{}'"), ("step", "CAST(x'ff' AS TEXT)")]),
        ("events", &[("payload", "'{'"), ("previous", hash), ("hash", hash)]),
    ];
    for (table, columns) in cases {
        for (column, value) in *columns {
            let room = full_room();
            let raw = room.raw();
            raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; UPDATE {table} SET {column} = {value}"))
                .unwrap();
            let error = read_all(&room.catalog).unwrap_err();
            assert!(error.is_damaged() && error.to_string().contains(column), "{table}.{column}: {error}");
            if *table != "rollback_steps" {
                assert!(!room.catalog.check().unwrap().is_empty(), "{table}.{column}");
            }
        }
    }
}

#[test]
fn ids_that_are_none_are_named() {
    for table in ["workspaces", "checkpoints", "rollbacks"] {
        for value in ["'nonsense'", "CAST(x'ff' AS TEXT)"] {
            let room = full_room();
            let sql = format!("PRAGMA foreign_keys = OFF; UPDATE {table} SET id = {value}");
            room.raw().execute_batch(&sql).unwrap();
            let problems = room.catalog.check().unwrap();
            assert!(!problems.is_empty(), "{table} {value}");
        }
    }
}

#[test]
fn a_reference_to_nothing_is_found() {
    let room = full_room();
    room.raw().execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM workspaces").unwrap();
    let problems = room.catalog.check().unwrap();
    assert!(problems.iter().any(|line| line.contains("not in workspaces")), "{problems:?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test damages its own file")]
fn a_file_that_is_no_database_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("catalog.db");
    fs::write(&file, vec![b'x'; 8192]).unwrap();
    let error = Catalog::open(&file).unwrap_err();
    assert!(error.is_damaged(), "{error}");
    assert_eq!(fs::read(&file).unwrap(), vec![b'x'; 8192]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test damages its own file")]
fn every_page_that_is_overwritten_is_noticed_or_harmless() {
    let room = full_room();
    for number in 2..40 {
        room.insert(&checkpoint(number));
    }
    room.raw().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let whole = fs::read(room.path()).unwrap();
    let Room { folder, catalog } = room;
    drop(catalog);
    let mut noticed = 0;
    let pages = whole.len() / 4096;
    for page in 0..pages {
        let file = folder.path().join(format!("damaged-{page}.db"));
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&file, bytes).unwrap();
        let found = Catalog::open(&file).and_then(|catalog| catalog.check());
        match found {
            Ok(problems) => noticed += usize::from(!problems.is_empty()),
            Err(error) => {
                assert!(error.is_damaged(), "page {page}: {error:?}");
                noticed += 1;
            }
        }
    }
    assert!(pages > 20 && noticed == pages, "{noticed} of {pages}");
}

#[test]
fn a_table_that_is_gone_is_an_error_of_the_attempt() {
    for table in [
        "workspaces",
        "checkpoints",
        "checkpoint_parts",
        "rollbacks",
        "rollback_steps",
        "rescued",
        "events",
        "event_head",
    ] {
        let room = full_room();
        let raw = room.raw();
        raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; DROP TABLE {table}")).unwrap();
        let read = read_all(&room.catalog);
        assert!(table == "event_head" || matches!(read, Err(CatalogError::Read { .. })), "{table}");
        let checked = room.catalog.check();
        assert!(checked.is_err() || table == "rollback_steps", "{table}: {checked:?}");
        let written = room.catalog.write(|t| {
            t.register_workspace(&workspace(9, b"/nine"))?;
            t.insert_checkpoint(&checkpoint(9))?;
            t.finish_rollback(RollbackId::from_bits(1), RollbackState::Done, at(1), &FinishFacts::default())?;
            t.insert_rollback(&rollback(9, 9), &[step(1)])
        });
        assert!(written.is_err(), "{table}");
    }
}
