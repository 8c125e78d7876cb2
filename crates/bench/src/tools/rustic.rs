//! rustic: restic's format, written in Rust.

use super::{Place, Tool};
use crate::failure::Result;
use crate::measure::Cmd;
use std::path::PathBuf;

pub(crate) struct Rustic;

fn command(place: &Place, args: &[&str]) -> Cmd {
    place
        .command(args)
        .env("RUSTIC_REPOSITORY", place.store.join("repository"))
        .env("RUSTIC_PASSWORD", "bench")
        .env("RUSTIC_CACHE_DIR", place.home.join("cache"))
        .env("RUSTIC_NO_PROGRESS", "true")
        .env("RUSTIC_LOG_LEVEL", "error")
}

impl Tool for Rustic {
    fn name(&self) -> &'static str {
        "rustic"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        command(place, &["init"]).output().map(drop)
    }

    fn checkpoint(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["backup", "--as-path", "/", "."])]
    }

    fn back(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["restore", "--delete", "latest", "."])]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.store.join("repository")]
    }

    fn lacks(&self) -> &'static str {
        "restores in place, file by file: a crash leaves a mixture; does not save overwritten files"
    }
}
