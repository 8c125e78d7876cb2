//! restic: snapshots in a repository beside the tree, restored in place.

use super::{Place, Tool};
use crate::failure::Result;
use crate::measure::Cmd;
use std::path::PathBuf;

pub(crate) struct Restic;

fn command(place: &Place, args: &[&str]) -> Cmd {
    place
        .command(args)
        .env("RESTIC_REPOSITORY", place.store.join("repository"))
        .env("RESTIC_PASSWORD", "bench")
        .env("RESTIC_CACHE_DIR", place.home.join("cache"))
}

/// Since 0.17 restore skips unchanged files and can delete new ones; older versions write everything again.
fn restore_flags(place: &Place) -> Vec<&'static str> {
    let help = command(place, &["restore", "--help"]).output().unwrap_or_default();
    let has = |flag: &str| help.contains(flag);
    let overwrite: &[&str] = if has("--overwrite") { &["--overwrite", "if-changed"] } else { &[] };
    let delete: &[&str] = if has("--delete ") { &["--delete"] } else { &[] };
    [overwrite, delete].concat()
}

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        command(place, &["init", "-q"]).output().map(drop)
    }

    fn checkpoint(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["backup", "-q", "."])]
    }

    fn back(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        let args = [&["restore", "latest", "-q", "--target", "."], restore_flags(place).as_slice()].concat();
        vec![command(place, &args)]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.store.join("repository")]
    }

    fn lacks(&self) -> &'static str {
        "restores in place, file by file: a crash leaves a mixture; does not save overwritten files; before 0.17 does not delete new files"
    }
}
