//! Safepoint: the real program, as users run it.

use super::{Place, Tool};
use crate::failure::{Result, Tried};
use crate::measure::Cmd;
use std::path::PathBuf;

/// Program name.
pub(crate) const NAME: &str = "safepoint";

/// Keeps all checkpoints, and ignores a repository around the benchmark folder.
const CONFIGURATION: &str =
    "[retention]\nkeep_last = 1000000\nkeep_within = \"52w\"\n\n[capture]\ngit = \"none\"\n";

pub(crate) struct Safepoint;

/// Returns a Safepoint command.
pub(crate) fn command(place: &Place, args: &[&str]) -> Cmd {
    place.command(args).env("SAFEPOINT_HOME", &place.store)
}

impl Tool for Safepoint {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let path = place.store.join("config.toml");
        std::fs::write(&path, CONFIGURATION).tried(|| format!("writing {}", path.display()))?;
        command(place, &["init", "-q", "."]).output().map(drop)
    }

    fn checkpoint(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["create", "-q"])]
    }

    fn back(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["rollback", "-q", "@"])]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.store.clone()]
    }

    fn lacks(&self) -> &'static str {
        ""
    }
}
