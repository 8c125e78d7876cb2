//! Prune, gc, purge and repair, killed at every state-changing system call, with concurrent captures. Every
//! checkpoint listed afterwards restores exactly.

use safepoint::{
    CheckpointManager, CreateOptions, Depth, Filter, RoleFilter, RollbackOptions, Silent, Workspace,
};
use safepoint_testkit::{End, Program, TreeImage, copy_tree, kill_at};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Home with two workspaces: one with old checkpoints, and one with concurrent captures.
pub(crate) struct Yard {
    folder: PathBuf,
    /// Deletes a temporary folder on drop.
    _temporary: Option<tempfile::TempDir>,
    /// Valid contents of each checkpoint. After a purge, its content without the path is valid, too.
    images: BTreeMap<String, Vec<TreeImage>>,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

impl Yard {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let temporary =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut yard = Self::at(temporary.path());
        yard._temporary = Some(temporary);
        for name in ["home", "old", "busy"] {
            copy_tree(&yard.path(name), &yard.path(&format!("{name}.before"))).unwrap();
        }
        yard
    }

    /// Yard in this folder, which may be a mount point.
    pub(crate) fn at(folder: &Path) -> Self {
        let mut yard = Self { folder: folder.to_owned(), _temporary: None, images: BTreeMap::new() };
        let manager = CheckpointManager::open(&yard.path("home")).unwrap();
        for name in ["old", "busy"] {
            fs::create_dir(yard.path(name)).unwrap();
            let workspace = manager.workspaces().register(&yard.path(name)).unwrap();
            for round in 0..if name == "old" { 10 } else { 6u64 } {
                let seed = if name == "old" { round } else { 20 + round };
                fs::write(yard.path(name).join("big"), noise(seed, 30_000)).unwrap();
                fs::write(yard.path(name).join("small"), round.to_string()).unwrap();
                fs::write(yard.path(name).join("secret"), noise(100, 500)).unwrap();
                let made = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap();
                let whole = yard.image(name);
                let mut purged = whole.clone();
                purged.0.retain(|path, _| path.as_slice() != b"secret");
                yard.images.insert(made.checkpoint.id.to_string(), vec![whole, purged]);
            }
        }
        let old = manager.workspaces().around(&yard.path("old")).unwrap().unwrap();
        let all =
            manager.checkpoints().list(&Filter { workspace: Some(old.id), ..Filter::default() }).unwrap();
        // Half of the store is dead now, which is enough for a collection.
        manager.checkpoints().delete(&all[2..].iter().map(|old| old.id).collect::<Vec<_>>()).unwrap();
        yard
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn image(&self, name: &str) -> TreeImage {
        TreeImage::read(&self.path(name), &[".safepoint"]).unwrap()
    }

    fn reset(&self) {
        for name in ["home", "old", "busy"] {
            fs::remove_dir_all(self.path(name)).unwrap();
            copy_tree(&self.path(&format!("{name}.before")), &self.path(name)).unwrap();
        }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("SAFEPOINT_HOME".into(), self.path("home").into()),
            ("HOME".into(), self.folder.clone().into()),
            ("RAYON_NUM_THREADS".into(), "1".into()),
            ("LLVM_PROFILE_FILE".into(), "/dev/null".into()),
        ]
    }

    pub(crate) fn program(&self, args: &[&str]) -> Program {
        let exe = PathBuf::from(env!("CARGO_BIN_EXE_safepoint"));
        let args = args.iter().map(OsString::from).collect();
        Program { exe, args, env: self.environment(), cwd: self.path("old") }
    }

    /// Captures the content of the deleted checkpoints in the other workspace: it is stored, but still
    /// unreferenced.
    fn capture(&self, round: u64) -> (String, TreeImage) {
        let deleted = if round % 4 < 2 { 0 } else { 2 };
        fs::write(self.path("busy").join("big"), noise(deleted, 30_000)).unwrap();
        let image = self.image("busy");
        let output = Command::new(env!("CARGO_BIN_EXE_safepoint"))
            .args(["create", "-q", "--kind", "manual"])
            .envs(self.environment())
            .current_dir(self.path("busy"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap().trim().to_owned(), image)
    }

    /// Checks the law: everything is valid, and every listed checkpoint restores exactly. Returns their
    /// number.
    pub(crate) fn law(&self, captured: Option<&(String, TreeImage)>) -> usize {
        let manager = CheckpointManager::open(&self.path("home")).unwrap();
        let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
        assert!(validation.is_valid(), "{validation:?}");
        let mut count = 0;
        for name in ["old", "busy"] {
            let workspace = manager.workspaces().around(&self.path(name)).unwrap().unwrap();
            let filter =
                Filter { workspace: Some(workspace.id), role: RoleFilter::Asked, ..Filter::default() };
            let listed = manager.checkpoints().list(&filter).unwrap();
            let is_listed = |id: &str| listed.iter().any(|it| it.id.to_string() == id);
            assert!(name == "old" || captured.is_none_or(|it| is_listed(&it.0)), "checkpoint lost");
            for checkpoint in listed {
                self.restores(&manager, &workspace, checkpoint.id, name, captured);
                count += 1;
            }
        }
        count
    }

    fn restores(
        &self,
        manager: &CheckpointManager,
        workspace: &Workspace,
        id: safepoint::model::CheckpointId,
        name: &str,
        captured: Option<&(String, TreeImage)>,
    ) {
        // The current files must not help.
        for entry in fs::read_dir(self.path(name)).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        manager.rollback(workspace, id, &RollbackOptions::default(), &Silent).unwrap();
        let now = self.image(name);
        let known = self.images.get(&id.to_string());
        let fits = known.is_some_and(|images| images.contains(&now))
            || captured.is_some_and(|captured| id.to_string() == captured.0 && now == captured.1);
        assert!(fits, "checkpoint {id} of {name} differs");
    }
}

fn killed_everywhere(what: &str, args: &[&str]) {
    let yard = Yard::new();
    let (mut points, mut restored) = (0, 0);
    for point in 1.. {
        yard.reset();
        let (end, captured) = std::thread::scope(|threads| {
            let capture = threads.spawn(|| yard.capture(point));
            let end = kill_at(&yard.program(args), point).unwrap();
            (end, capture.join().unwrap())
        });
        restored += yard.law(Some(&captured));
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "{end:?}");
            break;
        }
        points += 1;
        // It can be finished and repeated.
        if point % 8 == 1 {
            yard.reset();
            // Without a concurrent capture there may be fewer calls.
            let end = kill_at(&yard.program(args), point).unwrap();
            assert!(matches!(end, End::Killed { .. }) || end.is_success(), "{end:?}");
            for _ in 0..2 {
                let (_, end) = safepoint_testkit::calls(&yard.program(&["gc"])).unwrap();
                assert!(end.is_success(), "{end:?}");
            }
            restored += yard.law(Some(&yard.capture(point)));
        }
    }
    eprintln!(
        "kill -9: {what}: {points} points, captures beside it: {restored} checkpoints restored exactly"
    );
    assert!(points > 20, "{points}");
}

#[test]
fn collecting_killed_anywhere_loses_nothing() {
    killed_everywhere("gc", &["gc"]);
}

#[test]
fn pruning_killed_anywhere_loses_nothing() {
    killed_everywhere("prune", &["prune", "--keep-last", "1", "--keep-within", "0s"]);
}

#[test]
fn purging_killed_anywhere_loses_nothing_else() {
    killed_everywhere("purge", &["purge", "--yes", "secret"]);
}

#[test]
fn repairing_killed_anywhere_loses_nothing() {
    killed_everywhere("repair", &["repair"]);
}

/// State of a home before the killed command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The catalog was deleted.
    Lost,
    /// The catalog was damaged.
    Damaged,
    /// A program without records wrote it.
    Old,
}

impl Yard {
    fn prepare(&self, before: Before) {
        let home = self.path("home");
        match before {
            Before::Lost => {
                for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
                    fs::remove_file(home.join(name)).unwrap();
                }
            }
            Before::Damaged => fs::write(home.join("catalog.db"), b"not a database".repeat(999)).unwrap(),
            Before::Old => {
                let catalog = rusqlite::Connection::open(home.join("catalog.db")).unwrap();
                catalog.execute_batch("UPDATE checkpoints SET record = NULL").unwrap();
                drop(catalog);
                for name in ["store/later", "store/catalog"] {
                    let _ = fs::remove_file(home.join(name));
                }
            }
        }
    }
}

/// Kills a command everywhere; after a complete run, all checkpoints are listed again and restore exactly.
fn rebuilt_everywhere(what: &str, before: Before, args: &[&str]) {
    let yard = Yard::new();
    let listed = CheckpointManager::open(&yard.path("home"))
        .unwrap()
        .checkpoints()
        .list_ids(&Filter::default())
        .unwrap()
        .len();
    let (mut points, mut restored) = (0, 0);
    for point in 1.. {
        yard.reset();
        yard.prepare(before);
        let end = kill_at(&yard.program(args), point).unwrap();
        let killed = matches!(end, End::Killed { .. });
        assert!(killed || end.is_success(), "{end:?}");
        if point % 3 == 1 || !killed {
            if before == Before::Old {
                // The records alone are sufficient now.
                let (_, end) = safepoint_testkit::calls(&yard.program(args)).unwrap();
                assert!(end.is_success(), "{end:?}");
                yard.prepare(Before::Lost);
            }
            let (_, end) = safepoint_testkit::calls(&yard.program(&["repair"])).unwrap();
            assert!(end.is_success(), "after {point}: {end:?}");
            let manager = CheckpointManager::open(&yard.path("home")).unwrap();
            assert_eq!(manager.upkeep().catalog_standing(), safepoint::CatalogStanding::Known);
            let now = manager.checkpoints().list_ids(&Filter::default()).unwrap().len();
            assert!(now >= listed, "{now} of {listed} after {point}");
            drop(manager);
            restored += yard.law(Some(&yard.capture(point)));
        }
        if !killed {
            break;
        }
        points += 1;
    }
    eprintln!("kill -9: {what}: {points} points, {restored} checkpoints restored exactly");
    assert!(points > 10, "{points}");
}

#[test]
fn rebuilding_killed_anywhere_loses_nothing() {
    rebuilt_everywhere("repair of a lost catalog", Before::Lost, &["repair"]);
    rebuilt_everywhere("repair of a damaged catalog", Before::Damaged, &["repair"]);
}

#[test]
fn upgrading_killed_anywhere_loses_nothing() {
    rebuilt_everywhere("gc after an upgrade", Before::Old, &["gc"]);
}

#[test]
fn a_record_costs_no_flush() {
    let yard = Yard::new();
    let flushes = |args: &[&str]| {
        let (calls, end) = safepoint_testkit::calls(&yard.program(args)).unwrap();
        assert!(end.is_success(), "{end:?}");
        let of = |call: &&safepoint_testkit::Call| ["fsync", "fdatasync", "syncfs"].contains(&call.name);
        calls.iter().filter(of).count()
    };
    flushes(&["create", "-q", "--kind", "manual"]);
    // The catalog's log and its name; and the pack where anything is new. As many as before there were records.
    assert_eq!(flushes(&["create", "-q", "--kind", "manual"]), 2);
    fs::write(yard.path("old").join("small"), "new").unwrap();
    assert_eq!(flushes(&["create", "-q", "--kind", "manual"]), 3);
}
