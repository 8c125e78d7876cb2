//! Where bytes are kept by their hash: append-only packs, and an index that says where each object is.
//!
//! In: objects, as a [`Writer`] takes them. Out: the same bytes, checked against their name on every read.
//! The layout on disk is in `docs/format.md`. What always holds:
//!
//! - Nothing that counts is ever overwritten; packs only grow, and only a tail that never counted is cut off.
//! - An object counts after [`Writer::finish`]: written, read back, decompressed, hashed, and made durable.
//! - Every byte of a pack is under a hash. One damaged byte costs one object at most, never its neighbours.
//! - The index is a cache. It never names an object that is not durable, and the packs alone rebuild it.
//! - After a crash at any instant, everything that was finished reads back, with no manual step.

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
mod using;
mod validate;
mod weigh;
mod writer;

pub use collect::{Collected, Collecting, Fate, Outcome};
pub use error::StoreError;
pub use keeper::{Mark, MarkWriter};
pub use measure::Measurer;
pub use store::{Access, Depth, Health, Limits, Store, Usage};
pub use using::{Collector, Using};
pub use validate::{Damage, Report};
pub use writer::{Writer, Written};

/// The largest object that is kept; a larger one is refused.
pub const OBJECT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A pack that has reached this length is not appended to any more.
pub const PACK_BYTES_MAX: u64 = 64 * 1024 * 1024;
