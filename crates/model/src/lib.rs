//! Domain types: ids, objects, trees, checkpoints, rollbacks, sessions, and their canonical bytes.
//!
//! No I/O, no clock, no randomness: the same input always gives the same bytes. All decoded input is treated
//! as hostile.

pub mod access;
pub mod agent;
pub mod attempt;
mod bytes;
pub mod change;
pub mod checkpoint;
pub mod content;
pub mod coverage;
pub mod document;
mod error;
pub mod files;
pub mod git;
pub mod hash;
pub mod id;
pub mod object;
pub mod outside;
pub mod path;
pub mod plan;
pub mod progress;
pub mod record;
pub mod reference;
pub mod retention;
pub mod rollback;
pub mod session;
pub mod span;
pub mod text;
pub mod thread;
pub mod time;
pub mod trace;
pub mod tree;
pub mod turn;
mod varint;

/// First bytes of the file `store/format` in every Safepoint home.
pub const STORE_MAGIC: &str = "safepoint store ";

pub use bytes::Bytes;
pub use error::ModelError;
pub use hash::{ObjectId, ObjectKind};
pub use id::{CheckpointId, LineId, RollbackId, WorkspaceId};
pub use object::{ObjectError, ObjectSink, ObjectSource, SparseRead};
pub use path::RelPath;
pub use progress::Progress;
pub use span::Span;
pub use time::Timestamp;
