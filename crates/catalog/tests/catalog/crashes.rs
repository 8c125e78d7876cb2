//! A killed writer leaves whole transactions and no stale lock.

use crate::records::{Room, checkpoint, here};
use safepoint_catalog::{Catalog, CatalogError, Filter};
use safepoint_model::checkpoint::Checkpoint;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const FOLDER: &str = "SAFEPOINT_TEST_CATALOG";
const FIRST: &str = "SAFEPOINT_TEST_FIRST";

/// Child process: writes until it is killed. Does nothing when run as a test.
#[test]
#[allow(clippy::disallowed_methods, reason = "the parent passes the path in the environment")]
fn write_until_killed() {
    let (Ok(path), Ok(first)) = (std::env::var(FOLDER), std::env::var(FIRST)) else { return };
    let catalog = Catalog::open(Path::new(&path)).unwrap();
    for number in first.parse::<u128>().unwrap().. {
        let written: Result<(), CatalogError> = catalog.write(|t| {
            let parent = t.head(here())?;
            let record = Checkpoint { parent, ..checkpoint(number) };
            t.insert_checkpoint(&record)?;
            t.set_head(here(), record.id)
        });
        written.unwrap();
    }
}

#[allow(clippy::disallowed_methods, reason = "the test kills its own child process")]
fn writer(path: &Path, first: u128) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::write_until_killed"])
        .env(FOLDER, path)
        .env(FIRST, first.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_writers_leave_whole_transactions() {
    let room = Room::new();
    let mut before = 0;
    for round in 1..=6u128 {
        let mut writers = [1, 2].map(|half| writer(&room.path(), round * 2_000_000 + half * 1_000_000));
        sleep(Duration::from_millis(60 + 17 * round as u64));
        for child in &mut writers {
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        }
        // A new connection, as in the next process.
        let catalog = Catalog::open(&room.path()).unwrap();
        let all = catalog.checkpoints(&Filter::default()).unwrap();
        assert_eq!(catalog.workspace(here()).unwrap().unwrap().head, all.first().map(|one| one.id));
        assert!(all.windows(2).all(|pair| pair[0].parent == Some(pair[1].id)));
        assert_eq!(catalog.verify_events().unwrap().whole, 1 + all.len() as u64);
        assert_eq!(catalog.check().unwrap(), Vec::<String>::new());
        before = all.len().max(before);
    }
    assert!(before > 0, "the writers wrote nothing");
}
