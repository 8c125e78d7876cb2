//! Remote of Safepoint: records in PostgreSQL, packs in an object store.
//!
//! In: packs and push documents of this machine. Out: published checkpoints, and the packs of others.
//! Invariants:
//!
//! - A checkpoint is published by one statement, after all its packs are uploaded and answered.
//! - A line has one writer at a time: the token and the sequence number of its row decide.
//! - No name of a pack is used twice. A late or repeated request changes nothing else.
//! - The list of packs of a checkpoint is closed: it holds every object that the checkpoint reaches.
//! - Blocking outside, async inside. No secret is in an address, an error or a log.
//!
//! The protocol is in `docs/format.md`, its reasons in `docs/decisions/0023-remote.md`.

mod address;
mod bytes;
mod document;
mod environment;
mod error;
mod folder;
mod lease;
mod list;
mod name;
mod objects;
mod postgres;
mod rebuild;
mod records;
mod remote;
mod runtime;
mod seal;
mod tls;
mod upkeep;

pub use address::{BytesUrl, RecordsUrl};
pub use bytes::{ConditionalPut, ListedObject, PART_BYTES, RemoteBytes};
pub use document::{LineState, PackInfo, Push, PushDocument, PushedCheckpoint, ReplacedCheckpoint};
pub use environment::RemoteEnvironment;
pub use error::{RemoteError, RemoteSource};
pub use folder::FolderBytes;
pub use lease::{BootTime, LeaseWatch, RENEW_AFTER, STOP_AFTER};
pub use list::{ListPlan, Reached, SMALL_PACK_BYTES, SMALL_PACKS_MAX, beyond_base};
pub use name::{Digest, Fence, PackName, ProjectName};
pub use objects::ObjectBytes;
pub use postgres::{PostgresRecords, records_schema, roles_sql};
pub use rebuild::{PackEnd, ReadDocument, RebuildReport};
pub use records::{
    Candidates, LEASE, LiveLease, MemberGrant, NewLine, PROTOCOL, PublishCall, PublishedRow, RecordsStatus,
    RemoteCheckpoint, RemoteFilter, RemoteLine, RemotePolicy, RemoteRecords, RemoteRight, Renewal,
    ReplacedRow, Restored, RestoredPush, TakeoverCall,
};
pub use remote::{ExistingPacks, PackSource, Remote, RemoteOptions, Scratch};
pub use seal::{NewSeal, Seal};
pub use upkeep::{CloneCheck, RemoteCheckpointId, UpkeepOptions, UpkeepReport};
