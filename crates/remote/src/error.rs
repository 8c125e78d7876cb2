//! Failures of a remote, each named for the attempt.
//!
//! Texts never contain a credential: sources that may hold one are reduced to their kind before they get
//! here.

use safepoint_model::{CheckpointId, LineId};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Underlying failure of a server or a library.
pub type RemoteSource = Box<dyn std::error::Error + Send + Sync>;

/// Failure of an operation on a remote.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The address is malformed or unsupported.
    #[error("cannot use the address of the {what}: {why}")]
    Address {
        /// `records` or `bytes`.
        what: &'static str,
        /// Reason.
        why: String,
    },
    /// The address contains a password or a key.
    #[error("cannot use the address of the {what}: it contains a secret")]
    SecretInAddress {
        /// `records` or `bytes`.
        what: &'static str,
    },
    /// The name of a project is invalid.
    #[error(
        "cannot use the project name `{given}`: it must have 1 to 63 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or digit"
    )]
    ProjectName {
        /// Rejected text.
        given: String,
    },
    /// A file with credentials could not be read.
    #[error("cannot read the credentials in {}: {why}", path.display())]
    Credentials {
        /// File.
        path: PathBuf,
        /// Reason; never content of the file.
        why: String,
    },
    /// A server could not be reached, or its answer was lost.
    #[error("cannot reach the {what} of the remote")]
    Unreachable {
        /// `records` or `bytes`.
        what: &'static str,
        /// Underlying failure.
        source: RemoteSource,
    },
    /// A server refused the credentials, or the role lacks a right.
    #[error("cannot {attempt}: permission denied")]
    Denied {
        /// Refused operation.
        attempt: String,
        /// Underlying failure.
        source: RemoteSource,
    },
    /// The database has no schema of Safepoint.
    #[error("cannot use the records of the remote: they are not initialized")]
    NotInitialized,
    /// The project does not exist, or the role is no member of it.
    #[error("cannot find the project `{project}` on the remote")]
    NoProject {
        /// Project.
        project: String,
    },
    /// The folder of the project has packs that no record names.
    #[error("cannot initialize the project `{project}`: the object store already has packs of it")]
    NotEmpty {
        /// Project.
        project: String,
    },
    /// The remote no longer supports the protocol of this program.
    #[error(
        "cannot use the remote: it supports protocols from {supported_from} on; this program has {known}"
    )]
    ProtocolTooOld {
        /// Protocol of this program.
        known: u32,
        /// Oldest protocol that the remote supports.
        supported_from: u32,
    },
    /// The remote does not support the protocol of this program yet.
    #[error("cannot use the remote: it supports protocols up to {supported_to}; this program needs {known}")]
    ProtocolTooNew {
        /// Protocol of this program.
        known: u32,
        /// Newest protocol that the remote supports.
        supported_to: u32,
    },
    /// Another writer has the line: nothing was published, and this line must not be used again.
    #[error("cannot publish to line {line}: another writer took it over")]
    Fenced {
        /// Line.
        line: LineId,
        /// Current token of the line.
        token: u64,
        /// Sequence number of its head.
        seq: u64,
    },
    /// A pack that the push reuses is condemned or deleted. The objects must be sent again.
    #[error("cannot publish to line {line}: {} packs that it reuses are being deleted", packs.len())]
    Gone {
        /// Line.
        line: LineId,
        /// Names of the packs.
        packs: Vec<String>,
    },
    /// The remote knows less of the line than this machine: commits were lost.
    #[error(
        "cannot use line {line}: the remote is at {found_seq}, but {remembered_seq} was published; it was restored from an older copy"
    )]
    Behind {
        /// Line.
        line: LineId,
        /// Sequence number that this machine remembers.
        remembered_seq: u64,
        /// Sequence number of the remote.
        found_seq: u64,
        /// Incarnation of the remote.
        incarnation: u64,
    },
    /// The lease of the line has not expired.
    #[error("cannot take over line {line}: {holder} holds it for another {} s", left.as_secs())]
    Live {
        /// Line.
        line: LineId,
        /// Holder of the lease.
        holder: String,
        /// Time until the lease ends.
        left: Duration,
    },
    /// The line does not exist.
    #[error("cannot find line {line} on the remote")]
    NoLine {
        /// Line.
        line: LineId,
    },
    /// The checkpoint does not exist.
    #[error("cannot find checkpoint {checkpoint} on the remote")]
    NoCheckpoint {
        /// Checkpoint.
        checkpoint: CheckpointId,
    },
    /// The project exceeds its quota.
    #[error("cannot publish to the project `{project}`: it is over its quota")]
    OverQuota {
        /// Project.
        project: String,
    },
    /// The object store has no space left.
    #[error("cannot upload a pack: the object store is full")]
    Full {
        /// Underlying failure.
        source: RemoteSource,
    },
    /// A pack is missing.
    #[error("cannot find the pack {pack} in the object store")]
    NoPack {
        /// Name.
        pack: String,
    },
    /// Bytes from a server do not match their hash, or are malformed.
    #[error("cannot use {what}: {why}")]
    Damaged {
        /// Damaged item.
        what: String,
        /// Description of the damage.
        why: String,
    },
    /// A pack cannot be decrypted with the identities of this machine.
    #[error("cannot decrypt {what}: no identity on this machine fits")]
    Sealed {
        /// Item.
        what: String,
    },
    /// A row or pack is still in use.
    #[error("cannot delete {} packs at once: checkpoints still list them", packs.len())]
    StillListed {
        /// Names of the packs.
        packs: Vec<String>,
    },
    /// A push would list too many packs.
    #[error("cannot publish: the list has {packs} packs, and at most {max} are allowed")]
    TooManyPacks {
        /// Length of the list.
        packs: usize,
        /// Maximum.
        max: usize,
    },
    /// A request to a server failed.
    #[error("cannot {attempt}")]
    Server {
        /// Operation.
        attempt: String,
        /// Underlying failure.
        source: RemoteSource,
    },
    /// A migration failed; the schema is unchanged.
    #[error("cannot migrate the records of the remote")]
    Migrate {
        /// Underlying failure.
        source: RemoteSource,
    },
    /// A file of this machine could not be read or written.
    #[error("cannot use {}", path.display())]
    Local {
        /// File.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The runtime for network requests could not be started.
    #[error("cannot start the network runtime")]
    Runtime(#[source] io::Error),
    /// The user interrupted the operation.
    #[error("interrupted")]
    Interrupted,
}

impl RemoteError {
    /// Returns true if the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), why: why.into() }
    }
}
