//! Mutants that cargo-mutants finds in the files of `.cargo/mutants.toml`, ordered by a seed.

use std::path::Path;

use serde::Deserialize;

use crate::{Failure, program};

/// Mutant, as `cargo mutants --list --json` describes it.
#[derive(Clone, Deserialize)]
pub(crate) struct Mutant {
    /// Place and change, in one line.
    pub(crate) name: String,
    /// Source file, relative to the workspace.
    pub(crate) file: String,
    pub(crate) genre: String,
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

/// Part of a source file that a mutant replaces.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
    pub(crate) end: Place,
}

/// Line and column, both from 1.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Mutant {
    /// Returns the area of the product that the file belongs to.
    pub(crate) fn area(&self) -> &'static str {
        match self.file.rsplit('/').next().unwrap_or_default() {
            "rollback.rs" | "carry.rs" | "scene.rs" | "stage.rs" | "swap.rs" => "protocol",
            "recover.rs" => "recovery",
            "rescue.rs" | "settle.rs" => "settling",
            _ => "collecting",
        }
    }
}

/// Lists all mutants of the workspace. A mutant's number is its position in the list.
pub(crate) fn list(workspace: &Path) -> Result<Vec<Mutant>, Failure> {
    let output = program("cargo").args(["mutants", "--list", "--json"]).current_dir(workspace).output()?;
    if !output.status.success() {
        return Err(format!("cannot list mutants: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the numbers of the mutants in the order of the seed. The relative order is stable when mutants are
/// added or removed.
pub(crate) fn order(mutants: &[Mutant], seed: u64) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..mutants.len()).collect();
    numbers.sort_by_cached_key(|&number| {
        *blake3::hash(format!("{seed} {}", mutants[number].name).as_bytes()).as_bytes()
    });
    numbers
}
