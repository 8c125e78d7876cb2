//! Test bench: a home, a project and a manager, in memory if possible.

use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{
    CheckpointManager, CreateOptions, LaterChanges, RollbackOptions, RolledBack, SearchWatch, Settings,
    Silent, SystemEnvironment, Workspace,
};
use safepoint_testkit::TreeImage;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Bench {
    folder: tempfile::TempDir,
    pub(crate) manager: CheckpointManager,
    pub(crate) workspace: Workspace,
}

/// Temporary folder; in memory if possible, because these laws are not about disks.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let folder = scratch();
        fs::create_dir(folder.path().join("project")).unwrap();
        let manager = open(&folder.path().join("home"), settings);
        let workspace = manager.workspaces().register(&folder.path().join("project")).unwrap();
        Self { folder, manager, workspace }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file and creates its parents.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn create(&self) -> Checkpoint {
        self.manager.create(&self.workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint
    }

    pub(crate) fn rollback(&self, to: CheckpointId) -> RolledBack {
        self.manager.rollback(&self.workspace, to, &RollbackOptions::default(), &Silent).unwrap()
    }

    pub(crate) fn restore_paths(&self, to: CheckpointId, paths: &[&str]) -> RolledBack {
        let paths = paths.iter().map(|path| path.parse_path()).collect();
        let options = RollbackOptions { paths, ..RollbackOptions::default() };
        self.manager.rollback(&self.workspace, to, &options, &Silent).unwrap()
    }

    /// Undoes the last rollback, whatever changed since.
    pub(crate) fn undo(&self) -> RolledBack {
        let later_changes = LaterChanges::Replaced;
        let options = RollbackOptions { later_changes, ..RollbackOptions::default() };
        self.manager.undo(&self.workspace, &options, &Silent).unwrap()
    }

    /// Recovers until nothing is pending.
    pub(crate) fn settle(&self) -> safepoint::Recovery {
        settle(&self.manager, &self.workspace)
    }

    /// Releases all pending files.
    pub(crate) fn release(&self) -> safepoint::Recovery {
        let stored = self.manager.upkeep().store_waiting(&self.workspace, &Silent).unwrap();
        let released = self.manager.upkeep().release(&self.workspace, stored, &Silent).unwrap();
        assert!(released.waiting.is_empty(), "{released:?}");
        released
    }

    /// Redoes the last undo, whatever changed since.
    pub(crate) fn redo(&self) -> RolledBack {
        let later_changes = LaterChanges::Replaced;
        let options = RollbackOptions { later_changes, ..RollbackOptions::default() };
        self.manager.redo(&self.workspace, &options, &Silent).unwrap()
    }

    /// Reads the project with a plain walk.
    pub(crate) fn image(&self) -> TreeImage {
        TreeImage::read(&self.root(), &[".git"]).unwrap()
    }
}

/// Recovers until nothing is pending. A program started by another test holds open files until its exec.
pub(crate) fn settle(manager: &CheckpointManager, workspace: &Workspace) -> safepoint::Recovery {
    for _ in 0..200 {
        let recovery = manager.recover(workspace, &Silent).unwrap();
        if recovery.waiting.is_empty() {
            return recovery;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("a file stays pending")
}

/// Runs a search without watching its results.
pub(crate) fn unwatched<T>(act: impl FnOnce(&mut SearchWatch<'_>) -> T) -> T {
    act(&mut SearchWatch { printed: &mut |_| (), probed: &mut |_| () })
}

pub(crate) fn open(home: &Path, settings: Settings) -> CheckpointManager {
    let environment = SystemEnvironment { actor: "tester".to_owned() };
    CheckpointManager::open_with(home, settings, Box::new(environment)).unwrap()
}

/// Returns incompressible bytes that depend on the seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}

/// Fails with the difference instead of two whole trees.
#[track_caller]
pub(crate) fn assert_same(now: &TreeImage, expected: &TreeImage) {
    let difference = now.difference(expected);
    assert!(difference.is_empty(), "{difference:#?}");
}

pub(crate) trait ParsePath {
    fn parse_path(&self) -> safepoint::model::RelPath;
}

impl ParsePath for &str {
    fn parse_path(&self) -> safepoint::model::RelPath {
        safepoint::model::RelPath::new(*self).unwrap()
    }
}
