//! Remembers who, when and why: workspaces, checkpoints, rollbacks, plans, sessions and the history of what happened.
//!
//! In come records of the model, in transactions; out come the same records, found by id, name or filter.
//! One SQLite file holds them, and the only SQL of the domain is here.
//!
//! Always true:
//! - What must be true together is written in one [`Catalog::write`]; a crash leaves all of it or nothing.
//! - A row points only at objects that are already durable: the caller stores first and records then.
//! - "Newest" means committed last, whatever the clock said.
//! - Every write appends an event; each event carries the hash of the one before ([`Catalog::verify_events`]).
//! - Values reach SQL as bound parameters only, and SQL is constant text (`&'static str`).
//! - A row that cannot be understood is an error that names it, never a panic.

mod agents;
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
mod plans;
mod query;
mod resolve;
mod rollbacks;
mod runs;
mod sessions;
mod steps;
mod upkeep;
mod workspaces;

pub use catalog::{Catalog, Transaction};
pub use checkpoints::Pinned;
pub use error::CatalogError;
pub use events::{BrokenEvent, Event, EventCheck};
pub use filter::{Filter, RoleFilter, Summary};
pub use identity::{Head, Unrecorded, Void};
pub use notes::PartNote;
pub use open::{HeldFile, hold_file, sqlite_version};
pub use plans::{PlanCheckpoint, PlanNote, PlanRecord, PlanSummary};
pub use resolve::Resolved;
pub use rollbacks::FinishFacts;
pub use upkeep::{Aged, Purged};
pub use workspaces::Workspace;
