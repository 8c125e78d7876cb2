//! Compares instruction counts of the hot paths with the baseline: prints a table, and fails if a count grew
//! beyond the tolerance.
//!
//! Counts depend on the compiler and the instruction set, so the baseline names both.

use crate::args::Instructions;
use crate::failure::{Failure, Result, Tried};
use crate::report::table::Table;
use crate::report::write_json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Recorded counts.
#[derive(Debug, Serialize, Deserialize)]
struct Baseline {
    /// Compiler and architecture.
    recorded_with: String,
    /// Instructions by benchmark.
    counts: BTreeMap<String, u64>,
}

/// Runs `instructions`.
pub(crate) fn run(args: &Instructions) -> Result<ExitCode> {
    let path = args.baseline.clone().unwrap_or_else(|| own_folder().join("baseline.json"));
    let counts = count()?;
    let recorded_with = compiler()?;
    if args.record {
        write_json(&path, &Baseline { recorded_with, counts })?;
        println!("recorded in {}", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let text = fs::read(&path).tried(|| format!("reading the baseline {}", path.display()))?;
    let baseline: Baseline =
        serde_json::from_slice(&text).tried(|| format!("reading the baseline {}", path.display()))?;
    if baseline.recorded_with != recorded_with {
        eprintln!("the baseline was recorded with {}, this is {recorded_with}", baseline.recorded_with);
    }
    let (table, is_worse) = compare(&baseline.counts, &counts, args.tolerance);
    println!("{}", table.text());
    Ok(if is_worse { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn own_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn compiler() -> Result<String> {
    let output =
        Command::new("rustc").arg("--version").output().tried(|| "running rustc --version".into())?;
    Ok(format!("{} on {}", String::from_utf8_lossy(&output.stdout).trim(), std::env::consts::ARCH))
}

/// Runs the benchmark with a separate output folder for callgrind and reads the counts.
fn count() -> Result<BTreeMap<String, u64>> {
    let home = tempfile::tempdir().tried(|| "making a folder for callgrind's output".into())?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["bench", "-p", "safepoint-bench", "--bench", "instructions"])
        .env("GUNGRAUN_HOME", home.path())
        .current_dir(own_folder())
        .status()
        .tried(|| "running cargo bench --bench instructions".into())?;
    if !status.success() {
        return Err(Failure::new(
            "cargo bench --bench instructions failed; it needs valgrind, and gungraun-runner of the library's version \
             (cargo install gungraun-runner --version 0.20.0)",
        ));
    }
    let mut counts = BTreeMap::new();
    read_counts(home.path(), &mut counts)?;
    match counts.is_empty() {
        true => Err(Failure::new("the benchmark left no callgrind output")),
        false => Ok(counts),
    }
}

/// Sums the counts of callgrind's files below `dir` for each benchmark. The folder of a benchmark has the
/// name of its function and case; a process writes one file, or one per thread.
fn read_counts(dir: &Path, counts: &mut BTreeMap<String, u64>) -> Result<()> {
    for entry in fs::read_dir(dir).tried(|| format!("reading {}", dir.display()))? {
        let path = entry.tried(|| format!("reading {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            read_counts(&path, counts)?;
        } else if name.starts_with("callgrind.") && name.ends_with(".out") {
            let text = fs::read_to_string(&path).tried(|| format!("reading {}", path.display()))?;
            let folder = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            *counts.entry(folder).or_default() += total(&text).unwrap_or(0);
        }
    }
    Ok(())
}

/// Returns the first number after `totals:`, or else after `summary:`: instructions are the first event.
fn total(text: &str) -> Option<u64> {
    let after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    after("totals:").or_else(|| after("summary:"))?.split_whitespace().next()?.parse().ok()
}

/// Returns a table of both, and true if a count grew too much. A recorded benchmark without a count is a
/// failure.
fn compare(
    baseline: &BTreeMap<String, u64>,
    counts: &BTreeMap<String, u64>,
    tolerance: f64,
) -> (Table, bool) {
    let mut table = Table::new("Instructions", &["path", "baseline", "now", "change", ""]);
    let mut is_worse = false;
    let names: std::collections::BTreeSet<&String> = baseline.keys().chain(counts.keys()).collect();
    for name in names {
        let (before, now) = (baseline.get(name), counts.get(name));
        let change =
            before.zip(now).map(|(before, now)| (*now as f64 - *before as f64) * 100.0 / *before as f64);
        let verdict = match change {
            Some(change) if change > tolerance => "WORSE",
            Some(change) if change < -tolerance => "better: record it",
            Some(_) => "",
            None if now.is_none() => "MISSING",
            None => "new: record it",
        };
        is_worse |= matches!(verdict, "WORSE" | "MISSING");
        let shown = |count: Option<&u64>| count.map_or_else(|| "none".into(), u64::to_string);
        let change = change.map_or_else(|| "n/a".into(), |change| format!("{change:+.2} %"));
        table.rows.push(vec![name.clone(), shown(before), shown(now), change, verdict.into()]);
    }
    (table, is_worse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn growth_beyond_the_tolerance_is_worse() {
        let baseline = counts(&[("walk", 1_000), ("plan", 1_000)]);
        let verdict = |of: &[(&str, u64)]| compare(&baseline, &counts(of), 3.0).1;
        assert!(!verdict(&[("walk", 1_030), ("plan", 900)]));
        assert!(verdict(&[("walk", 1_031), ("plan", 1_000)]));
        assert!(verdict(&[("walk", 1_000)]), "a missing benchmark is not an improvement");
        assert!(!verdict(&[("walk", 1_000), ("plan", 1_000), ("new", 5)]));
    }

    #[test]
    fn totals_are_found_in_what_callgrind_writes() {
        assert_eq!(total("events: Ir Dr\nsummary: 12 3\n\ntotals: 45 6\n"), Some(45));
        assert_eq!(total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total("nothing"), None);
    }
}
