//! Borg: archives in a repository beside the tree, extracted in place. Unencrypted, with Safepoint's
//! compression.

use super::{Place, Tool};
use crate::failure::Result;
use crate::measure::Cmd;
use std::path::PathBuf;

pub(crate) struct Borg;

fn command(place: &Place, args: &[&str]) -> Cmd {
    place
        .command(args)
        .env("BORG_REPO", place.store.join("repository"))
        .env("BORG_BASE_DIR", &place.home)
        .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
        .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
}

impl Tool for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        command(place, &["init", "-e", "none"]).output().map(drop)
    }

    fn checkpoint(&self, place: &Place, number: u64) -> Vec<Cmd> {
        vec![command(place, &["create", "--compression", "zstd,3", &format!("::c{number}"), "."])]
    }

    fn back(&self, place: &Place, number: u64) -> Vec<Cmd> {
        vec![command(place, &["extract", &format!("::c{number}")])]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.store.join("repository")]
    }

    fn lacks(&self) -> &'static str {
        "extracts in place, file by file: a crash leaves a mixture; does not save overwritten files; does not delete new files"
    }
}
