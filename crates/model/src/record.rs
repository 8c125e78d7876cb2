//! Record of a checkpoint as a document in the packs, from which the catalog's rows can be rebuilt; and the
//! tombstone, which voids records.
//!
//! Both name their type, so that a scan of the packs finds them without the catalog. Unknown keys are
//! ignored; a document of a newer format is counted and not changed.

use crate::agent::WorkspaceKind;
use crate::checkpoint::Checkpoint;
use crate::turn::Turn;
use crate::{CheckpointId, ModelError, ObjectId, RelPath, Timestamp, WorkspaceId, document};
use serde::{Deserialize, Serialize};

const RECORD: &str = "safepoint.record";
const TOMBSTONE: &str = "safepoint.tombstone";
/// Canonical JSON sorts its keys, and both documents begin with this one.
const BEGINNING: &[u8] = br#"{"catalog":{"#;

/// Catalog that a document was written for, and the position in its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Identity of the catalog.
    pub id: String,
    /// Number of the catalog among those of this store: a new, restored or rebuilt one has a higher number.
    pub generation: u64,
    /// Last event of the catalog when the document was written.
    pub seq: u64,
    /// Position of the checkpoint in commit order: it was committed after this event.
    pub order: u64,
}

impl Origin {
    /// Returns the sort key of documents of one checkpoint: the last one is valid.
    pub fn written(&self) -> (u64, u64) {
        (self.generation, self.seq)
    }

    /// Returns the sort key of checkpoints in commit order.
    pub fn committed(&self) -> (u64, u64) {
        (self.generation, self.order)
    }
}

/// Registered folder, as stored in a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWorkspace {
    /// Id.
    pub id: WorkspaceId,
    /// Folder, from the file system root.
    pub root: RelPath,
    /// Name.
    pub name: String,
    /// Purpose.
    pub kind: WorkspaceKind,
    /// Time of registration.
    pub created_at: Timestamp,
}

/// Plan in a checkpoint, with the fields that its part lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPlan {
    /// Id.
    pub id: String,
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Version when the checkpoint was taken.
    pub version: u64,
    /// True if it was healthy.
    pub healthy: bool,
}

/// Record of a checkpoint. Its session and its agents are parts, which the checkpoint lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Type of this document.
    #[serde(rename = "type")]
    tag: String,
    /// Version of this document.
    pub format: u32,
    /// Catalog that it was written for.
    pub catalog: Origin,
    /// Checkpoint.
    pub checkpoint: Checkpoint,
    /// Its workspace, and those that its parts name.
    pub workspaces: Vec<RecordedWorkspace>,
    /// Plans.
    #[serde(default)]
    pub plans: Vec<RecordedPlan>,
    /// Turns of agents up to the checkpoint, oldest first. Only in published records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
}

impl Record {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates a record of the current format.
    pub fn new(
        catalog: Origin,
        checkpoint: Checkpoint,
        workspaces: Vec<RecordedWorkspace>,
        plans: Vec<RecordedPlan>,
    ) -> Self {
        let turns = Vec::new();
        Self { tag: RECORD.to_owned(), format: Self::FORMAT, catalog, checkpoint, workspaces, plans, turns }
    }

    /// Returns the canonical bytes.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        document::encode(self)
    }
}

/// Content of a checkpoint before paths were purged from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedContent {
    /// Checkpoint.
    pub id: CheckpointId,
    /// Manifest before the purge.
    pub integrity: ObjectId,
}

/// Voids records: those of deleted checkpoints, and those with content from before a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Type of this document.
    #[serde(rename = "type")]
    tag: String,
    /// Version of this document.
    pub format: u32,
    /// Catalog that it was written for.
    pub catalog: Origin,
    /// Deleted checkpoints.
    pub deleted: Vec<CheckpointId>,
    /// Purged contents.
    pub purged: Vec<PurgedContent>,
}

impl Tombstone {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates a tombstone of the current format.
    pub fn new(catalog: Origin, deleted: Vec<CheckpointId>, purged: Vec<PurgedContent>) -> Self {
        Self { tag: TOMBSTONE.to_owned(), format: Self::FORMAT, catalog, deleted, purged }
    }

    /// Returns the canonical bytes.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        document::encode(self)
    }
}

/// Document about the catalog.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// Record of a checkpoint.
    Record(Box<Record>),
    /// Tombstone.
    Tombstone(Tombstone),
    /// Either of them in an unsupported format.
    Unknown,
}

#[derive(Deserialize)]
struct Tag {
    #[serde(rename = "type")]
    tag: String,
    format: u32,
}

impl Kept {
    /// Parses a document. Returns `None` if it is of another type.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(BEGINNING) {
            return None;
        }
        let Tag { tag, format } = document::decode(bytes).ok()?;
        let read = match (tag.as_str(), format) {
            (RECORD, Record::FORMAT) => document::decode(bytes).map(|it| Kept::Record(Box::new(it))),
            (TOMBSTONE, Tombstone::FORMAT) => document::decode(bytes).map(Kept::Tombstone),
            (RECORD | TOMBSTONE, _) => Ok(Kept::Unknown),
            _ => return None,
        };
        Some(read.unwrap_or(Kept::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;
    use crate::checkpoint::{Counters, Kind, Reason, Scope, Totals};
    use serde_json::{Value, json};

    fn origin() -> Origin {
        Origin { id: "c".to_owned(), generation: 1, seq: 7, order: 6 }
    }

    fn record() -> Record {
        let checkpoint = Checkpoint {
            id: CheckpointId::from_bits(5),
            workspace_id: Some(WorkspaceId::from_bits(6)),
            created_at: Timestamp::from_micros(1_763_193_601_000_123),
            label: Some("ü \n".to_owned()),
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
            tags: vec!["t".to_owned()],
            pinned: true,
            rollback_used: false,
            rollback_count: 0,
            size_bytes: 9,
            files: Totals::default(),
            parent: None,
            integrity: ObjectId::of(ObjectKind::Document, b"x"),
            parts: Vec::new(),
            warnings: Vec::new(),
            metrics: std::collections::BTreeMap::new(),
        };
        let workspace = RecordedWorkspace {
            id: WorkspaceId::from_bits(6),
            root: RelPath::new(&b"home/odd \xff"[..]).unwrap(),
            name: "odd".to_owned(),
            kind: WorkspaceKind::Project,
            created_at: Timestamp::from_micros(1),
        };
        Record::new(origin(), checkpoint, vec![workspace], Vec::new())
    }

    #[test]
    fn a_record_and_a_tombstone_read_back_as_they_were() {
        let record = record();
        assert_eq!(Kept::read(&record.encode().unwrap()), Some(Kept::Record(Box::new(record.clone()))));
        let integrity = record.checkpoint.integrity;
        let purged = vec![PurgedContent { id: record.checkpoint.id, integrity }];
        let tombstone = Tombstone::new(origin(), vec![record.checkpoint.id], purged);
        assert_eq!(Kept::read(&tombstone.encode().unwrap()), Some(Kept::Tombstone(tombstone)));
    }

    #[test]
    fn unknown_keys_are_ignored_and_a_newer_format_is_left_alone() {
        let mut value: Value = serde_json::from_slice(&record().encode().unwrap()).unwrap();
        value["events"] = json!([1, 2]);
        value["checkpoint"]["mood"] = json!("good");
        let bytes = document::encode(&value).unwrap();
        assert_eq!(Kept::read(&bytes), Some(Kept::Record(Box::new(record()))));
        value["format"] = json!(2);
        assert_eq!(Kept::read(&document::encode(&value).unwrap()), Some(Kept::Unknown));
    }

    #[test]
    fn other_documents_are_none() {
        for other in
            [&b""[..], b"{}", b"[1]", br#"{"catalog":{}}"#, br#"{"catalog":{},"format":1,"type":"x"}"#]
        {
            assert_eq!(Kept::read(other), None);
        }
    }
}
