//! Mutation tests with all mutants in one build.
//!
//! cargo-mutants builds the workspace once per mutant. Here each mutant becomes a branch in a copy of the
//! sources below `target/mutants`; the copy is built once, and the variable `SAFEPOINT_MUTANT` enables one
//! mutant, even in programs that tests start. Verdicts are stored in `target/mutants/verdicts.jsonl`: a
//! second run continues, and tries survivors only with new tests.
//!
//! Arguments: the number of mutants to try (default 200), and the seed of their order (default 12).

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a maintainer tool that writes below target/ and starts cargo and tests"
)]

mod build;
mod list;
mod rewrite;
mod trial;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::list::Mutant;
use crate::trial::Verdict;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Line of the verdict file. A verdict is valid while the source file is unchanged.
#[derive(Serialize, Deserialize)]
struct Line {
    mutant: String,
    source: String,
    verdict: Verdict,
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(12), |text| text.parse())?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let scratch = workspace.join("target/mutants");
    fs::create_dir_all(&scratch)?;

    let mutants = list::list(&workspace)?;
    let built = build::build(&workspace, &scratch, &mutants)?;
    println!("{} mutants, {} cannot be built as a branch", mutants.len(), built.left_out.len());
    let chosen: Vec<usize> = list::order(&mutants, seed)
        .into_iter()
        .filter(|number| !built.left_out.contains(number))
        .take(count)
        .collect();

    let file = scratch.join("verdicts.jsonl");
    let mut verdicts = read(&workspace, &file, &mutants)?;
    let tests = trial::first_run(&built, &scratch)?;
    // New mutants come before survivors of earlier runs.
    let (mut open, mut before, mut survivors) = (Vec::new(), HashMap::new(), Vec::new());
    for &number in &chosen {
        match verdicts.get(&number) {
            Some(Verdict::Caught { .. } | Verdict::TimedOut { .. }) => {}
            Some(Verdict::Survived { passed }) => {
                before.insert(number, passed.clone());
                survivors.push(number);
            }
            None => open.push(number),
        }
    }
    open.extend(survivors);
    println!("{} chosen with seed {seed}, {} to try", chosen.len(), open.len());
    let out = Mutex::new(fs::OpenOptions::new().create(true).append(true).open(&file)?);
    trial::try_each(&tests, &open, &before, |number, verdict| {
        let mutant = &mutants[number];
        println!("{number:4} {}: {}", told(&verdict), mutant.name);
        let line = Line { mutant: mutant.name.clone(), source: hash(&workspace, mutant)?, verdict };
        let line = serde_json::to_string(&line)?;
        writeln!(out.lock().map_err(|_| "a thread panicked")?, "{line}")?;
        Ok(())
    })?;
    verdicts = read(&workspace, &file, &mutants)?;
    report(&mutants, &chosen, &verdicts);
    Ok(())
}

/// Reads the verdicts by number; the last verdict of a mutant counts.
fn read(workspace: &Path, file: &Path, mutants: &[Mutant]) -> Result<BTreeMap<usize, Verdict>, Failure> {
    let numbers: HashMap<&str, usize> =
        mutants.iter().enumerate().map(|(number, mutant)| (mutant.name.as_str(), number)).collect();
    let mut verdicts = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let line: Line = serde_json::from_str(line)?;
        if let Some(&number) = numbers.get(line.mutant.as_str())
            && hash(workspace, &mutants[number])? == line.source
        {
            verdicts.insert(number, line.verdict);
        }
    }
    Ok(verdicts)
}

fn hash(workspace: &Path, mutant: &Mutant) -> Result<String, Failure> {
    Ok(blake3::hash(&fs::read(workspace.join(&mutant.file))?).to_hex().to_string())
}

fn told(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Caught { by } => format!("caught by {by}"),
        Verdict::TimedOut { by } => format!("timed out in {by}"),
        Verdict::Survived { passed } => format!("SURVIVED {} tests", passed.len()),
    }
}

fn report(mutants: &[Mutant], chosen: &[usize], verdicts: &BTreeMap<usize, Verdict>) {
    let areas: BTreeSet<&str> = mutants.iter().map(Mutant::area).collect();
    println!("\n{:12} {:>6} {:>6} {:>9} {:>8}", "area", "tried", "caught", "timed out", "survived");
    for area in areas.into_iter().chain(["all"]) {
        let mut counts = [0; 3];
        for number in chosen.iter().filter(|&&number| area == "all" || mutants[number].area() == area) {
            match verdicts.get(number) {
                Some(Verdict::Caught { .. }) => counts[0] += 1,
                Some(Verdict::TimedOut { .. }) => counts[1] += 1,
                Some(Verdict::Survived { .. }) => counts[2] += 1,
                None => {}
            }
        }
        println!(
            "{area:12} {:6} {:6} {:9} {:8}",
            counts.iter().sum::<usize>(),
            counts[0],
            counts[1],
            counts[2]
        );
    }
    for number in chosen {
        if let Some(verdict @ Verdict::Survived { .. }) = verdicts.get(number) {
            println!("{number:4} {}: {}", told(verdict), mutants[*number].name);
        }
    }
}

/// Returns a command in this process's directory and environment, without mutants.
fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command
        .env_remove("SAFEPOINT_MUTANT")
        .env_remove("SAFEPOINT_MUTANTS_REACHED")
        .env_remove("SAFEPOINT_PLANTED");
    command
}
