//! Content-addressed object store: append-only packs, and an index of object positions.
//!
//! In: objects, through a [`Writer`]. Out: the same bytes, verified against their hash on every read. The
//! layout on disk is in `docs/format.md`. Invariants:
//!
//! - Committed bytes are never overwritten; packs only grow, and only an uncommitted tail is cut off.
//! - An object is committed by [`Writer::finish`]: written, read back, decompressed, hashed, and made
//!   durable.
//! - Every byte of a pack is covered by a hash. One damaged byte costs at most one object.
//! - The index is a cache. It never names an object that is not durable, and the packs alone rebuild it.
//! - After a crash at any point, every committed object can be read, with no manual step.

mod append;
mod collect;
mod content;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod keeper;
mod linux;
mod measure;
mod open;
mod pack;
mod recover;
mod segment;
mod store;
mod survey;
mod transfer;
mod using;
mod validate;
mod weigh;
mod writer;

pub use collect::{Collected, Collecting, Fate, Outcome};
pub use error::StoreError;
pub use keeper::{Mark, MarkWriter};
pub use measure::Measurer;
pub use store::{Depth, Health, Limits, Store, StoreAccess, Usage};
pub use transfer::{PackOut, PackTail, PackedFile, PackedObject};
pub use using::{Collector, Using};
pub use validate::{Damage, Report};
pub use writer::{Writer, Written};

/// Maximum size of an object; larger ones are refused.
pub const OBJECT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Length at which a pack is full.
pub const PACK_BYTES_MAX: u64 = 64 * 1024 * 1024;
