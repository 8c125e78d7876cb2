//! Git integration: finds the repository of a folder, reads its state, writes captured trees as commits and
//! tags, and moves branch and index. It never runs `git` or anything that a repository names: no hook, no
//! filter, no signing, no included configuration.
//!
//! The content of a `.git` is treated as hostile. It is written only through open folders below it, so that
//! no link leads a write out of the repository, and only under git's own locks. Depends on the model's
//! objects, but not on the store, the catalog or the workspace.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests set up folders"))]

mod changes;
mod commit;
mod error;
mod folder;
mod id;
mod ignores;
mod index;
mod moves;
mod objects;
mod refs;
mod repository;
mod state;

pub use changes::Changes;
pub use commit::{Committed, Unchanged, Wanted};
pub use error::GitError;
pub use id::{GitId, NoGitId};
pub use index::same_entries;
pub use moves::Move;
pub use refs::{Head, Target, short_name};
pub use repository::Repository;
pub use state::Operation;

/// Runs a decoder on untrusted bytes; a panic becomes an error.
fn guarded<T, E: ToString>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("it cannot be decoded".to_owned()),
    }
}

#[cfg(test)]
mod tests;
