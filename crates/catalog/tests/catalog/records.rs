//! Test records: small, complete and reproducible.

use safepoint_catalog::{Catalog, CatalogError, Transaction, Workspace};
use safepoint_model::checkpoint::{
    Checkpoint, Counters, Kind, PartKind, PartRecord, Reason, Role, Scope, Totals,
};
use safepoint_model::content::Content;
use safepoint_model::rollback::{Expected, How, Rollback, RollbackState, Strategy, SwapStep, Verb};
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, RelPath, RollbackId, Timestamp, WorkspaceId};
use std::path::PathBuf;
use tempfile::TempDir;

/// Catalog in a temporary folder, with one workspace.
pub(crate) struct Room {
    pub(crate) folder: TempDir,
    pub(crate) catalog: Catalog,
}

pub(crate) const HERE: u128 = 1;

impl Room {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("catalog.db")).unwrap();
        let room = Self { folder, catalog };
        room.write(|transaction| transaction.register_workspace(&workspace(HERE, b"/here")));
        room
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("catalog.db")
    }

    #[track_caller]
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, CatalogError>) -> T {
        self.catalog.write(work).unwrap()
    }

    #[track_caller]
    pub(crate) fn refuse<T: std::fmt::Debug>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, CatalogError>,
    ) -> CatalogError {
        self.catalog.write(work).unwrap_err()
    }

    #[track_caller]
    pub(crate) fn insert(&self, checkpoint: &Checkpoint) {
        self.write(|transaction| transaction.insert_checkpoint(checkpoint));
    }

    /// Opens a second connection that bypasses all guards.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        let raw = rusqlite::Connection::open(self.path()).unwrap();
        // Hundreds of edits without a power cut: no flush for each.
        raw.pragma_update(None, "synchronous", "OFF").unwrap();
        raw
    }
}

pub(crate) fn here() -> WorkspaceId {
    WorkspaceId::from_bits(HERE)
}

pub(crate) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_763_193_600_000_000 + micros)
}

pub(crate) fn object(text: &str) -> ObjectId {
    ObjectId::of(ObjectKind::Document, text.as_bytes())
}

pub(crate) fn workspace(bits: u128, root: &[u8]) -> Workspace {
    Workspace {
        id: WorkspaceId::from_bits(bits),
        root: root.to_vec(),
        name: "project".to_owned(),
        created_at: at(0),
        head: None,
        removed_at: None,
        kind: safepoint_model::agent::WorkspaceKind::Project,
    }
}

/// Returns the id whose text begins with zeros and ends with the number.
pub(crate) fn id(number: u128) -> CheckpointId {
    CheckpointId::from_bits(number)
}

pub(crate) fn checkpoint(number: u128) -> Checkpoint {
    Checkpoint {
        id: id(number),
        workspace_id: Some(here()),
        created_at: at(number as i64),
        label: None,
        kind: Kind::Manual,
        reason: Reason::Manual,
        scope: Scope::Project,
        phase: None,
        role: None,
        plan_id: None,
        session_id: None,
        step_index: None,
        state_hash: None,
        state_snapshot: None,
        progress: Counters::default(),
        sandbox_ref: None,
        source_tool: None,
        decision_id: None,
        commit_sha: None,
        commit_message: None,
        tags: Vec::new(),
        pinned: false,
        rollback_used: false,
        rollback_count: 0,
        size_bytes: 10,
        files: Totals::default(),
        parent: None,
        integrity: object("integrity"),
        parts: vec![PartRecord { kind: PartKind::Files, key: here().to_string(), document: object("files") }],
        warnings: Vec::new(),
        metrics: std::collections::BTreeMap::new(),
    }
}

pub(crate) fn labelled(number: u128, label: &str) -> Checkpoint {
    Checkpoint { label: Some(label.to_owned()), ..checkpoint(number) }
}

pub(crate) fn with_role(number: u128, role: Role) -> Checkpoint {
    Checkpoint { role: Some(role), ..checkpoint(number) }
}

pub(crate) fn rollback(number: u128, to: u128) -> Rollback {
    Rollback {
        id: RollbackId::from_bits(number),
        workspace_id: here(),
        together: None,
        verb: Verb::Rollback,
        answers: None,
        from: None,
        to: id(to),
        safety_checkpoint: None,
        strategy: Strategy::Immediate,
        paths: Vec::new(),
        state: RollbackState::Applying,
        created_at: at(0),
        finished_at: None,
        actor: "somebody".to_owned(),
        restored_files_count: 0,
        removed_files_count: 0,
        changed_paths: None,
        parts: Vec::new(),
        rescued: Vec::new(),
        error: None,
    }
}

pub(crate) fn path(bytes: &[u8]) -> RelPath {
    RelPath::new(bytes).unwrap()
}

pub(crate) fn step(number: u64) -> SwapStep {
    let name = format!("file-{number:06}.rs");
    let entry = |content: &str| Expected {
        entry: Entry {
            name: name.clone().into_bytes(),
            meta: Meta {
                mode: 0o644,
                uid: 1000,
                gid: 1000,
                mtime_ns: 1_763_193_600_000_000_000,
                xattrs: vec![],
            },
            node: Node::File(Content::whole(content.as_bytes())),
        },
    };
    SwapStep {
        path: path(format!("crates/some/folder/{name}").as_bytes()),
        old: Some(entry("old")),
        new: Some(entry(&name)),
        how: How::Swap { slot: number },
    }
}
