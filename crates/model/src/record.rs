//! The record of a checkpoint as a document in the packs, from which the catalog's rows can be rebuilt; and the tombstone, which
//! says that a record counts no more.
//!
//! Both name their type, so that a scan of the packs finds them without the catalog. Unknown keys are ignored; a document of a newer
//! format is counted and left alone.

use crate::agent::WorkspaceKind;
use crate::checkpoint::Checkpoint;
use crate::{CheckpointId, ModelError, ObjectId, RelPath, Timestamp, WorkspaceId, document};
use serde::{Deserialize, Serialize};

const RECORD: &str = "safepoint.record";
const TOMBSTONE: &str = "safepoint.tombstone";
/// Canonical JSON sorts its keys, and both documents begin with this one.
const BEGINNING: &[u8] = br#"{"catalog":{"#;

/// The catalog that a document was written for, and when in its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Identity of the catalog.
    pub id: String,
    /// Number of the catalog among those of this store: a new, older or rebuilt one has a higher number.
    pub generation: u64,
    /// Last event of the catalog when the document was written.
    pub seq: u64,
    /// Place of the checkpoint in the order of commits: it was committed after this event.
    pub order: u64,
}

impl Origin {
    /// Sorts documents of one checkpoint: the last one counts.
    pub fn written(&self) -> (u64, u64) {
        (self.generation, self.seq)
    }

    /// Sorts checkpoints in the order of commits.
    pub fn committed(&self) -> (u64, u64) {
        (self.generation, self.order)
    }
}

/// A registered folder, as far as a record keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWorkspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Its folder, from the root of the system on.
    pub root: RelPath,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: WorkspaceKind,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// A plan that a checkpoint holds, as far as its part does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPlan {
    /// Its id.
    pub id: String,
    /// The workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Its version when the checkpoint was taken.
    pub version: u64,
    /// Whether it was healthy.
    pub healthy: bool,
}

/// The record of a checkpoint. Its session and its agents are parts, which the checkpoint lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Type of this document.
    #[serde(rename = "type")]
    tag: String,
    /// Version of this document.
    pub format: u32,
    /// The catalog that it was written for.
    pub catalog: Origin,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its workspace, and those that its parts name.
    pub workspaces: Vec<RecordedWorkspace>,
    /// Its plans.
    #[serde(default)]
    pub plans: Vec<RecordedPlan>,
}

impl Record {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// A record of today's format.
    pub fn new(
        catalog: Origin,
        checkpoint: Checkpoint,
        workspaces: Vec<RecordedWorkspace>,
        plans: Vec<RecordedPlan>,
    ) -> Self {
        Self { tag: RECORD.to_owned(), format: Self::FORMAT, catalog, checkpoint, workspaces, plans }
    }

    /// Its canonical bytes.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        document::encode(self)
    }
}

/// What a checkpoint held before paths were purged from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedContent {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Its manifest before the purge.
    pub integrity: ObjectId,
}

/// Voids records: those of deleted checkpoints, and those of checkpoints with content from before a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Type of this document.
    #[serde(rename = "type")]
    tag: String,
    /// Version of this document.
    pub format: u32,
    /// The catalog that it was written for.
    pub catalog: Origin,
    /// Checkpoints that were deleted.
    pub deleted: Vec<CheckpointId>,
    /// Contents that were purged.
    pub purged: Vec<PurgedContent>,
}

impl Tombstone {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// A tombstone of today's format.
    pub fn new(catalog: Origin, deleted: Vec<CheckpointId>, purged: Vec<PurgedContent>) -> Self {
        Self { tag: TOMBSTONE.to_owned(), format: Self::FORMAT, catalog, deleted, purged }
    }

    /// Its canonical bytes.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        document::encode(self)
    }
}

/// A document that is about the catalog.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// The record of a checkpoint.
    Record(Box<Record>),
    /// A tombstone.
    Tombstone(Tombstone),
    /// One of the two in a format that this program does not know.
    Unknown,
}

#[derive(Deserialize)]
struct Tag {
    #[serde(rename = "type")]
    tag: String,
    format: u32,
}

impl Kept {
    /// Reads a document; nothing where it is about something else.
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
    use crate::checkpoint::{Kind, Progress, Reason, Scope, Totals};
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
            progress: Progress::default(),
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
