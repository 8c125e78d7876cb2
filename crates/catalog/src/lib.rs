//! Catalog of workspaces, checkpoints, rollbacks, plans, sessions and their history.
//!
//! In: records of the model, in transactions. Out: the same records, found by id, name or filter. One SQLite
//! file contains them, and the only SQL of the domain is here.
//!
//! Invariants:
//! - Related changes are written in one [`Catalog::write`]; a crash leaves all of them or none.
//! - A row refers only to durable objects: the caller stores first and records then.
//! - "Newest" means committed last, independent of the clock.
//! - Every write appends an event; each event has the hash of the previous one ([`Catalog::verify_events`]).
//!   Only the bookkeeping of turns ([`Catalog::write_unflushed`]) appends none.
//! - Values reach SQL only as bound parameters, and SQL is constant text (`&'static str`).
//! - An invalid row is an error that names it, never a panic.

mod agents;
mod attempts;
mod catalog;
mod check;
mod checkpoints;
mod error;
mod events;
mod fields;
mod filter;
mod identity;
mod migrate;
mod notes;
mod open;
mod pages;
mod plans;
mod query;
mod remotes;
mod resolve;
mod rollbacks;
mod runs;
mod sessions;
mod steps;
mod threads;
mod turns;
mod upkeep;
mod workspaces;

pub use catalog::{Catalog, Transaction};
pub use checkpoints::{HeldPart, Pinned};
pub use error::CatalogError;
pub use events::{BrokenEvent, Event, EventCheck};
pub use filter::{Filter, RoleFilter, Summary};
pub use identity::{HistoryHead, Unrecorded, Void};
pub use notes::PartNote;
pub use open::{HeldFile, hold_file, sqlite_version};
pub use pages::{Bucket, OwnCheckpoints, Page, Placed, TurnAt};
pub use plans::{PlanCheckpoint, PlanNote, PlanRecord, PlanSummary};
pub use remotes::{PublishedAt, StoredLine, StoredRemote};
pub use resolve::Resolved;
pub use rollbacks::FinishFacts;
pub use threads::{
    ExistingWrites, StateQuery, StateRow, ThreadEdit, ThreadRow, ThreadRows, ValueRow, WriteRow,
};
pub use turns::{CheckpointTime, PlacedTurn};
pub use upkeep::{Aged, Occasion, Purged};
pub use workspaces::Workspace;
