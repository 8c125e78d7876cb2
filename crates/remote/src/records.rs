//! Records of a remote: one row per line decides who publishes what.
//!
//! In: requests of one project. Out: accepted or refused, in one transaction each. Every law is tested by one
//! suite, `tests/remote/records.rs`, for every implementation.

use crate::RemoteError;
use crate::document::{LineState, PackInfo};
use crate::name::{Digest, Fence, PackName};
use safepoint_model::{CheckpointId, LineId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Protocol of this program.
pub const PROTOCOL: u32 = 1;
/// Time after the last renewal at which a lease ends, by the clock of the records.
pub const LEASE: Duration = Duration::from_secs(60);

/// Right of a role in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemoteRight {
    /// List and clone.
    Read,
    /// Begin lines and publish to them.
    Publish,
    /// Take over lines of other holders.
    Takeover,
    /// Delete by policy, rebuild, and purge.
    Upkeep,
    /// Add members.
    Admin,
}

impl RemoteRight {
    /// All rights.
    pub const ALL: [RemoteRight; 5] = [
        RemoteRight::Read,
        RemoteRight::Publish,
        RemoteRight::Takeover,
        RemoteRight::Upkeep,
        RemoteRight::Admin,
    ];

    /// Returns the word used in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RemoteRight::Read => "read",
            RemoteRight::Publish => "publish",
            RemoteRight::Takeover => "takeover",
            RemoteRight::Upkeep => "upkeep",
            RemoteRight::Admin => "admin",
        }
    }
}

/// State of the records of a project.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RecordsStatus {
    /// Number of the history of this database: a rebuild raises it.
    pub incarnation: u64,
    /// Supported protocols.
    pub protocols: Vec<u32>,
    /// Time of the server.
    pub now: Timestamp,
    /// Rights of this role.
    pub rights: Vec<RemoteRight>,
    /// True if the project is over its quota.
    pub over_quota: bool,
    /// Version of the server.
    pub server: String,
    /// True if a synchronous standby confirms commits.
    pub synchronous_standby: bool,
    /// True if the server flushes commits (`fsync`, `full_page_writes`).
    pub durable: bool,
    /// Version of the schema.
    pub schema: u32,
}

/// Request for a new line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewLine {
    /// Random id.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan, for the line of a plan.
    pub plan: Option<String>,
    /// Name of this machine and process for people.
    pub holder: String,
    /// Identity of the request: the same one may be sent again.
    pub request: Digest,
}

/// Checkpoint as the records see it: ids may be keyed and fields sealed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// Id.
    pub id: CheckpointId,
    /// Id of the record document, or its keyed hash.
    pub record: Digest,
    /// True if retention must not delete it.
    pub pinned: bool,
    /// Data for lists; sealed if the remote is encrypted.
    pub fields: Value,
}

/// Replacement of a published row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplacedRow {
    /// Line.
    pub line: LineId,
    /// Sequence number.
    pub seq: u64,
    /// Position in its push.
    pub n: u32,
    /// New row.
    pub row: PublishedRow,
}

/// Request to publish.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishCall {
    /// Incarnation that the writer knows.
    pub incarnation: u64,
    /// Line.
    pub line: LineId,
    /// Token of the writer.
    pub token: u64,
    /// Sequence number of the base.
    pub base_seq: u64,
    /// Chain of the base.
    pub base_chain: Digest,
    /// Chain after this push.
    pub chain: Digest,
    /// Identity of the request.
    pub request: Digest,
    /// Reused packs.
    pub kept: Vec<PackName>,
    /// Uploaded packs.
    pub new: Vec<PackInfo>,
    /// True if the packs hold nothing but these checkpoints.
    pub whole: bool,
    /// Rows.
    pub checkpoints: Vec<PublishedRow>,
    /// Replacements of other rows.
    pub replaced: Vec<ReplacedRow>,
}

/// Request to take over a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakeoverCall {
    /// Line.
    pub line: LineId,
    /// Name of this machine and process for people.
    pub holder: String,
    /// Identity of the request.
    pub request: Digest,
    /// Effect of a live lease.
    pub lease: LiveLease,
    /// Takes over only if this is still the chain of the line.
    pub only_chain: Option<Digest>,
}

/// Effect of a live lease on a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveLease {
    /// The takeover is refused.
    Respected,
    /// The holder is fenced at once.
    Broken,
}

/// Line in a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RemoteLine {
    /// Line.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan.
    pub plan: Option<String>,
    /// Current token.
    pub token: u64,
    /// Sequence number of the head.
    pub seq: u64,
    /// Newest checkpoint.
    pub head: Option<CheckpointId>,
    /// Holder of the lease.
    pub holder: Option<String>,
    /// Last renewal.
    pub renewed_at: Option<Timestamp>,
    /// True while the lease is live.
    pub live: bool,
}

/// Published checkpoint.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RemoteCheckpoint {
    /// Line.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan of the line.
    pub plan: Option<String>,
    /// Sequence number of its push.
    pub seq: u64,
    /// Position in its push.
    pub n: u32,
    /// Id.
    pub id: CheckpointId,
    /// Id of the record document, or its keyed hash.
    pub record: Digest,
    /// True if its packs hold nothing but its push.
    pub whole: bool,
    /// True if retention of the remote does not delete it.
    pub pinned: bool,
    /// Data for lists.
    pub fields: Value,
    /// Time of publication.
    pub published_at: Timestamp,
    /// List of packs. Empty in lists of checkpoints.
    #[serde(default)]
    pub packs: Vec<PackInfo>,
}

/// Selection of published checkpoints, newest first by line and sequence number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RemoteFilter {
    /// Of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Of this line.
    pub line: Option<LineId>,
    /// Of lines of this plan.
    pub plan: Option<String>,
    /// Only those whose packs hold nothing else.
    pub only_whole: bool,
    /// Only the newest of each line.
    pub only_heads: bool,
    /// After this position of the previous page.
    pub after: Option<(LineId, u64, u32)>,
    /// Maximum count; 0 for 1,000.
    pub limit: u32,
}

impl RemoteFilter {
    /// Selects the newest checkpoint of each line of a workspace.
    pub fn heads(workspace: WorkspaceId) -> Self {
        Self { workspace: Some(workspace), only_heads: true, ..Self::default() }
    }

    /// Selects checkpoints of a workspace whose packs hold nothing else.
    pub fn whole(workspace: WorkspaceId) -> Self {
        Self { workspace: Some(workspace), only_whole: true, ..Self::default() }
    }
}

/// Answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// Sequence number of the head.
    pub seq: u64,
    /// Incarnation of the remote.
    pub incarnation: u64,
}

/// Policy: the checkpoints that the remote keeps. The newest of each line and pinned ones are always kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RemotePolicy {
    /// Newest checkpoints of each line.
    pub keep_last: u32,
    /// Age in days up to which one checkpoint per line and hour is kept.
    pub hourly_days: u32,
    /// Age in days up to which one checkpoint per line and day is kept.
    pub daily_days: u32,
    /// Maximum size of all packs of the project.
    pub quota_bytes: Option<u64>,
}

impl Default for RemotePolicy {
    fn default() -> Self {
        Self { keep_last: 100, hourly_days: 7, daily_days: 30, quota_bytes: None }
    }
}

/// Packs that no row listed at one moment, and the lines at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Candidates {
    pub(crate) packs: Vec<i64>,
    pub(crate) lines: BTreeMap<LineId, u64>,
}

impl Candidates {
    /// Returns the number of packs.
    pub fn len(&self) -> usize {
        self.packs.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }
}

/// Tables of a project, for the rows that a rebuild restores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestoredPush {
    /// Line.
    pub line: LineId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Key of the plan.
    pub plan: Option<String>,
    /// Token of the push.
    pub token: u64,
    /// Sequence number.
    pub seq: u64,
    /// Chain after the push.
    pub chain: Digest,
    /// List of packs.
    pub packs: Vec<PackInfo>,
    /// True if its packs hold nothing else.
    pub whole: bool,
    /// Rows.
    pub checkpoints: Vec<PublishedRow>,
    /// Replacements of earlier rows.
    pub replaced: Vec<ReplacedRow>,
}

/// Result of restoring rows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Restored {
    /// Restored checkpoints.
    pub checkpoints: u64,
    /// Pushes that were not restored, because another push has their place.
    pub conflicts: Vec<(LineId, u64)>,
}

/// Member of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberGrant {
    /// Role of the database.
    pub role: String,
    /// Rights.
    pub rights: Vec<RemoteRight>,
    /// The only line that the role may publish to.
    pub line: Option<LineId>,
}

/// Records of one project.
pub trait RemoteRecords: Send + Sync {
    /// Returns the state of the project.
    ///
    /// # Errors
    /// When the records cannot be reached or used.
    fn status(&self) -> Result<RecordsStatus, RemoteError>;

    /// Begins a line. The same request again has the same result.
    ///
    /// # Errors
    /// When the records refuse it, or cannot be reached.
    fn begin_line(&self, line: &NewLine) -> Result<LineState, RemoteError>;

    /// Publishes, in one statement. The same request again has the same result.
    ///
    /// # Errors
    /// [`RemoteError::Fenced`], [`RemoteError::Gone`], [`RemoteError::Behind`], [`RemoteError::OverQuota`]: nothing was
    /// published. [`RemoteError::Unreachable`]: unknown; send the same request again.
    fn publish(&self, call: &PublishCall) -> Result<(), RemoteError>;

    /// Renews a lease.
    ///
    /// # Errors
    /// [`RemoteError::Fenced`], or the records cannot be reached.
    fn renew(&self, fence: Fence) -> Result<Renewal, RemoteError>;

    /// Ends a lease early, so that a takeover need not wait. The token stays valid.
    ///
    /// # Errors
    /// When the records cannot be reached. A lease of another holder stays.
    fn release(&self, fence: Fence) -> Result<(), RemoteError>;

    /// Takes a line over: raises its token and returns its head, which is final for older tokens.
    ///
    /// # Errors
    /// [`RemoteError::Live`], [`RemoteError::Fenced`] if the chain is not the expected one, or the records cannot be reached.
    fn take_over(&self, call: &TakeoverCall) -> Result<LineState, RemoteError>;

    /// Lists lines.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn lines(
        &self,
        workspace: Option<WorkspaceId>,
        plan: Option<&str>,
    ) -> Result<Vec<RemoteLine>, RemoteError>;

    /// Lists checkpoints, without their packs.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn checkpoints(&self, filter: &RemoteFilter) -> Result<Vec<RemoteCheckpoint>, RemoteError>;

    /// Returns the newest row of a checkpoint with its packs.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn checkpoint(&self, id: CheckpointId) -> Result<Option<RemoteCheckpoint>, RemoteError>;

    /// Returns a random checkpoint with its packs.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn random_checkpoint(&self) -> Result<Option<RemoteCheckpoint>, RemoteError>;

    /// Returns the policy of the project.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn policy(&self) -> Result<RemotePolicy, RemoteError>;

    /// Sets the policy of the project.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn set_policy(&self, policy: &RemotePolicy) -> Result<(), RemoteError>;

    /// Deletes rows by the policy of the project, and returns their number.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn delete_by_policy(&self) -> Result<u64, RemoteError>;

    /// Deletes checkpoints by id, and returns their number. The newest of each line stays.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn delete(&self, checkpoints: &[CheckpointId]) -> Result<u64, RemoteError>;

    /// Returns packs that no row lists.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn candidates(&self) -> Result<Candidates, RemoteError>;

    /// Condemns the candidates that no row has listed since, under the exclusive lock. Returns their number.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn condemn(&self, candidates: &Candidates) -> Result<u64, RemoteError>;

    /// Condemns packs at once, without grace, after a purge.
    ///
    /// # Errors
    /// [`RemoteError::StillListed`] if a row lists any of them; then none is condemned.
    fn condemn_now(&self, packs: &[PackName]) -> Result<(), RemoteError>;

    /// Returns packs that were condemned longer ago than `grace`, at most `limit`.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn due(&self, grace: Duration, limit: u32) -> Result<Vec<PackName>, RemoteError>;

    /// Notes that packs are deleted from the object store.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn note_gone(&self, packs: &[PackName]) -> Result<(), RemoteError>;

    /// Raises the token of lines that were silent for so long, and returns every superseded token that may
    /// have left uploads.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn superseded(&self, silent: Duration) -> Result<Vec<Fence>, RemoteError>;

    /// Condemns uploads under a superseded token that no row names. `late` after the takeover, or after the
    /// last refused push under the token, it is not returned again. Returns the number of uploads.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn note_orphans(&self, fence: Fence, found: &[PackInfo], late: Duration) -> Result<u64, RemoteError>;

    /// Measures the project, updates its quota mark, and returns the bytes of its live packs.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn measure(&self) -> Result<u64, RemoteError>;

    /// Starts a rebuild: the incarnation becomes higher than both its own and `after`.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn begin_rebuild(&self, after: u64) -> Result<u64, RemoteError>;

    /// Restores rows of pushes that are missing; tokens are lifted into the incarnation.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn restore(&self, incarnation: u64, pushes: &[RestoredPush]) -> Result<Restored, RemoteError>;

    /// Returns the names of all packs that are not deleted.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn live_packs(&self) -> Result<Vec<PackName>, RemoteError>;

    /// Adds a member of the project, or changes its rights.
    ///
    /// # Errors
    /// When the records cannot be reached.
    fn set_member(&self, member: &MemberGrant) -> Result<(), RemoteError>;
}
