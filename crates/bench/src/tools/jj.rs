//! Jujutsu on its git backend.

use super::{Place, Tool};
use crate::failure::{Result, Tried};
use crate::measure::Cmd;
use std::path::PathBuf;

/// Zero: no size limit for files.
const CONFIGURATION: &str = "[user]\nname = \"bench\"\nemail = \"bench@example.org\"\n\n[snapshot]\nmax-new-file-size = 0\n\n\
                             [ui]\npaginate = \"never\"\n";

pub(crate) struct Jj;

fn command(place: &Place, args: &[&str]) -> Cmd {
    place
        .command(args)
        .env("JJ_CONFIG", place.home.join("jj.toml"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
}

impl Tool for Jj {
    fn name(&self) -> &'static str {
        "jj"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let path = place.home.join("jj.toml");
        std::fs::write(&path, CONFIGURATION).tried(|| format!("writing {}", path.display()))?;
        command(place, &["git", "init", "--quiet", "--no-colocate"]).output().map(drop)
    }

    fn checkpoint(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["commit", "--quiet", "-m", "checkpoint"])]
    }

    fn back(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["restore", "--quiet"])]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.tree.join(".jj")]
    }

    fn lacks(&self) -> &'static str {
        "empty directories and modes other than executable; flushes its records, not the files that it restores"
    }
}
