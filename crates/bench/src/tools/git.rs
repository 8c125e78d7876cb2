//! Git, with settings for speed on large trees and its default `core.fsync`.

use super::{Place, Tool};
use crate::failure::Result;
use crate::measure::Cmd;
use std::path::PathBuf;

const SETTINGS: [(&str, &str); 5] = [
    ("user.name", "bench"),
    ("user.email", "bench@example.org"),
    ("gc.auto", "0"),
    ("core.untrackedCache", "true"),
    ("feature.manyFiles", "true"),
];

pub(crate) struct Git;

fn command(place: &Place, args: &[&str]) -> Cmd {
    place.command(args).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null")
}

impl Tool for Git {
    fn name(&self) -> &'static str {
        "git"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        command(place, &["init", "-q", "."]).output()?;
        for (key, value) in SETTINGS {
            command(place, &["config", key, value]).output()?;
        }
        Ok(())
    }

    fn checkpoint(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![
            command(place, &["add", "-A"]),
            command(place, &["commit", "-q", "--allow-empty", "-m", "checkpoint"]),
        ]
    }

    fn back(&self, place: &Place, _number: u64) -> Vec<Cmd> {
        vec![command(place, &["reset", "-q", "--hard"])]
    }

    fn kept_in(&self, place: &Place) -> Vec<PathBuf> {
        vec![place.tree.join(".git")]
    }

    fn lacks(&self) -> &'static str {
        "empty directories and modes other than executable; flushes nothing; reset neither saves overwritten files nor deletes new ones"
    }
}
