//! Push document: the canonical JSON of one push, the last object of its last pack.
//!
//! It holds all that the rows of a push hold, so that the packs alone rebuild the tables. The chain of a
//! line covers it: `BLAKE3("safepoint chain 1\0" + chain before + id of the document)`.

use crate::name::{Digest, PackName, ProjectName};
use crate::seal::Seal;
use safepoint_model::{CheckpointId, LineId, ModelError, ObjectId, ObjectKind, WorkspaceId, document};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const TYPE: &str = "safepoint.push";
const CHAIN_CONTEXT: &[u8] = b"safepoint chain 1\0";

/// Pack in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackInfo {
    /// Name.
    pub name: PackName,
    /// Length of the uploaded bytes.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

/// Checkpoint of a push.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushedCheckpoint {
    /// Id.
    pub id: CheckpointId,
    /// Record document in the packs.
    pub record: ObjectId,
    /// True if retention of the remote must not delete it.
    #[serde(default)]
    pub pinned: bool,
    /// Data for lists, such as label and time.
    pub fields: Value,
}

/// Published checkpoint with new content, after a purge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplacedCheckpoint {
    /// Line of the replaced row.
    pub line: LineId,
    /// Sequence number of the replaced row.
    pub seq: u64,
    /// Position in its push.
    pub n: u32,
    /// New content.
    pub checkpoint: PushedCheckpoint,
}

/// Content of a push.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushDocument {
    /// Type of this document.
    #[serde(rename = "type")]
    tag: String,
    /// Version of this document.
    pub format: u32,
    /// Project.
    pub project: ProjectName,
    /// Line.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan, for the line of a plan.
    pub plan: Option<String>,
    /// Token of the writer.
    pub token: u64,
    /// Sequence number of this push: that of the base, plus one.
    pub seq: u64,
    /// Chain of the base.
    pub before: Digest,
    /// Incarnation of the remote.
    pub incarnation: u64,
    /// Packs of earlier pushes in the list, in order.
    pub kept: Vec<PackInfo>,
    /// New packs of this push, but for the one with this document, which is the last of the list.
    pub earlier: Vec<PackInfo>,
    /// True if the packs of the list hold nothing but these checkpoints.
    pub whole: bool,
    /// Checkpoints, oldest first.
    pub checkpoints: Vec<PushedCheckpoint>,
    /// Replaced checkpoints.
    #[serde(default)]
    pub replaced: Vec<ReplacedCheckpoint>,
}

impl PushDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;
    /// Maximum number of packs in a list.
    pub const PACKS_MAX: usize = 256;

    /// Creates an empty push on top of a line.
    pub fn new(base: &LineState) -> Self {
        Self {
            tag: TYPE.to_owned(),
            format: Self::FORMAT,
            project: base.project.clone(),
            line: base.line,
            workspace: base.workspace,
            plan: base.plan.clone(),
            token: base.token,
            seq: base.seq + 1,
            before: base.chain,
            incarnation: base.incarnation,
            kept: Vec::new(),
            earlier: Vec::new(),
            whole: false,
            checkpoints: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Returns the canonical bytes.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        document::encode(self)
    }

    /// Parses a document. Returns `None` if it is of another type or version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let push: Self = document::decode(bytes).ok()?;
        (push.tag == TYPE && push.format == Self::FORMAT).then_some(push)
    }

    /// Returns the record document of a checkpoint of this push, published or replaced.
    pub fn record_of(&self, id: CheckpointId) -> Option<ObjectId> {
        let replaced = self.replaced.iter().map(|replaced| &replaced.checkpoint);
        self.checkpoints
            .iter()
            .chain(replaced)
            .find(|checkpoint| checkpoint.id == id)
            .map(|found| found.record)
    }

    /// Returns the chain after this push, whose canonical bytes are given.
    pub(crate) fn chain(&self, bytes: &[u8], seal: Option<&Seal>) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(CHAIN_CONTEXT);
        hasher.update(self.before.as_bytes());
        hasher.update(ObjectId::of(ObjectKind::Document, bytes).as_bytes());
        let link = Digest::from_bytes(hasher.finalize().into());
        seal.map_or(link, |seal| seal.keyed(link))
    }
}

/// State of a line, as its writer remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineState {
    /// Project.
    pub project: ProjectName,
    /// Line.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan, for the line of a plan.
    pub plan: Option<String>,
    /// Token of this writer.
    pub token: u64,
    /// Sequence number of the last push; 0 before the first.
    pub seq: u64,
    /// Chain after the last push.
    pub chain: Digest,
    /// Incarnation of the remote.
    pub incarnation: u64,
    /// Newest checkpoint.
    pub head: Option<CheckpointId>,
    /// List of the last push.
    pub packs: Vec<PackInfo>,
}

/// Push that is ready to be sent: it may be stored and sent again, by another process, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// Content.
    pub document: PushDocument,
    /// Chain after this push.
    pub chain: Digest,
    /// Identity of the request.
    pub request: Digest,
    /// New packs; the last one holds the document.
    pub new: Vec<PackInfo>,
}

impl Push {
    /// Returns the list of packs of its checkpoints.
    pub fn list(&self) -> Vec<PackInfo> {
        self.document.kept.iter().chain(&self.new).cloned().collect()
    }

    /// Returns the state of the line after this push.
    pub fn state(&self) -> LineState {
        let document = &self.document;
        LineState {
            project: document.project.clone(),
            line: document.line,
            workspace: document.workspace,
            plan: document.plan.clone(),
            token: document.token,
            seq: document.seq,
            chain: self.chain,
            incarnation: document.incarnation,
            head: document.checkpoints.last().map(|checkpoint| checkpoint.id),
            packs: self.list(),
        }
    }

    /// Creates a push of a document whose packs are finished. `last` is the pack with the document.
    ///
    /// # Errors
    /// When the document has no JSON form.
    pub fn new(document: PushDocument, last: PackInfo, seal: Option<&Seal>) -> Result<Self, ModelError> {
        let bytes = document.encode()?;
        let chain = document.chain(&bytes, seal);
        let request = ObjectId::of(ObjectKind::Document, &bytes);
        let request = Digest::from_bytes(*request.as_bytes());
        let request = seal.map_or(request, |seal| seal.keyed(request));
        let new = document.earlier.iter().cloned().chain([last]).collect();
        Ok(Self { document, chain, request, new })
    }
}
