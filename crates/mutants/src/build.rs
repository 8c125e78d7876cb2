//! Copy of the sources in which every mutant is a branch, built once with the fast suites.
//!
//! Mutants that the compiler rejects are left out, and the rest is built again until it compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::list::Mutant;
use crate::{Failure, program, rewrite};

/// Suites to run against each mutant, besides the unit tests, with prefixes of their test names: most of
/// `weather` and `crash` takes too long.
const SUITES: [(&str, &[&str]); 6] = [
    ("store", &[""]),
    ("laws", &[""]),
    ("teeth", &[""]),
    ("cli", &[""]),
    ("weather", &["files::", "readonly::"]),
    ("crash", &["ordinary::"]),
];
/// File with the switch.
const PLANTED: &str = "crates/planted/src/lib.rs";
/// Programs started with a clean environment still inherit the mutant.
const INHERIT: &str = r#".env_clear().envs(std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAFEPOINT_MUTANT")))"#;

/// Test program and the working directory of its tests.
pub(crate) struct Suite {
    pub(crate) name: String,
    /// Prefixes of the test names to run.
    pub(crate) tests: &'static [&'static str],
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Suites with all mutants, and the numbers of the mutants that do not build.
pub(crate) struct Built {
    /// Program `safepoint`, which some tests start.
    pub(crate) product: PathBuf,
    pub(crate) suites: Vec<Suite>,
    pub(crate) left_out: BTreeSet<usize>,
}

/// Copies, rewrites and builds the workspace below `scratch`.
pub(crate) fn build(workspace: &Path, scratch: &Path, mutants: &[Mutant]) -> Result<Built, Failure> {
    let tree = scratch.join("tree");
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        by_file.entry(&mutant.file).or_default().push((number, mutant));
    }
    copy(workspace, &tree, |path| path == PLANTED || by_file.contains_key(path))?;
    let planted = fs::read_to_string(workspace.join(PLANTED))?;
    let (product, tests) = planted.split_once("#[cfg(test)]").ok_or("crates/planted has no tests")?;
    write(&tree.join(PLANTED), &format!("{product}{}\n#[cfg(test)]{tests}", include_str!("switch.rs")))?;

    // Skips mutants that an earlier build rejected.
    let known = scratch.join("left-out");
    let names = fs::read_to_string(&known).unwrap_or_default();
    let names: BTreeSet<&str> = names.lines().collect();
    let mut left_out: BTreeSet<usize> =
        (0..mutants.len()).filter(|&number| names.contains(mutants[number].name.as_str())).collect();
    loop {
        for (file, mutants) in &by_file {
            let chosen: Vec<_> =
                mutants.iter().filter(|(number, _)| !left_out.contains(number)).copied().collect();
            let (text, inexpressible) =
                rewrite::rewrite(&fs::read_to_string(workspace.join(file))?, &chosen)?;
            write(&tree.join(file), &text)?;
            left_out.extend(inexpressible);
        }
        let messages = compile(&tree, &scratch.join("build"))?;
        let rejected = rejected(&tree, &messages)?;
        if rejected.is_empty() {
            write(
                &known,
                &left_out.iter().map(|&number| format!("{}\n", mutants[number].name)).collect::<String>(),
            )?;
            let product = messages.iter().filter(|message| message["target"]["name"] == "safepoint");
            let product = product.filter(|message| message["target"]["kind"][0] == "bin");
            let product = product.filter_map(|message| message["executable"].as_str()).next();
            return Ok(Built {
                product: product.ok_or("cargo built no program")?.into(),
                suites: messages.iter().filter_map(suite).collect(),
                left_out,
            });
        }
        println!("{} mutants do not compile: {rejected:?}", rejected.len());
        left_out.extend(rejected);
    }
}

/// Copies all files that git tracks or would add. Unchanged files stay untouched, so that cargo rebuilds only
/// changes.
fn copy(workspace: &Path, tree: &Path, rewritten: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let listed = program("git")
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .current_dir(workspace)
        .output()?;
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let from = workspace.join(path);
        if !from.is_file() || rewritten(path) {
            continue;
        }
        let to = tree.join(path);
        match fs::read_to_string(&from) {
            Ok(text) if path.contains("/tests/") || path.contains("testkit") => {
                write(&to, &text.replace(".env_clear()", INHERIT))?;
            }
            _ => write_bytes(&to, &fs::read(&from)?)?,
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_bytes(path, text.as_bytes())
}

fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, bytes)?)
}

/// Builds the suites; returns cargo's messages.
fn compile(tree: &Path, target: &Path) -> Result<Vec<Value>, Failure> {
    let mut cargo = program("cargo");
    cargo.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json", "--lib"]);
    cargo.args(SUITES.iter().flat_map(|(suite, _)| ["--test", suite]));
    let output = cargo.current_dir(tree).env("CARGO_TARGET_DIR", target).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the mutants named by compiler errors.
fn rejected(tree: &Path, messages: &[Value]) -> Result<BTreeSet<usize>, Failure> {
    let mut rejected = BTreeSet::new();
    for message in messages.iter().filter(|message| message["message"]["level"] == "error") {
        let spans = message["message"]["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else { continue };
        let file = tree.join(span["file_name"].as_str().unwrap_or_default());
        let at = span["byte_start"].as_u64().unwrap_or_default();
        let number = rewrite::switch_before(&fs::read_to_string(file)?, usize::try_from(at)?);
        rejected
            .insert(number.ok_or_else(|| format!("does not compile: {}", message["message"]["rendered"]))?);
    }
    let finished =
        messages.iter().any(|message| message["reason"] == "build-finished" && message["success"] == true);
    if rejected.is_empty() && !finished {
        return Err("cannot build the suites".into());
    }
    Ok(rejected)
}

fn suite(message: &Value) -> Option<Suite> {
    let program = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let name = message["target"]["name"].as_str()?;
    let tests = SUITES.iter().find(|(suite, _)| *suite == name).map_or(&[""] as &[&str], |(_, tests)| tests);
    Some(Suite {
        name: name.to_owned(),
        tests,
        program: program.into(),
        folder: manifest.parent()?.to_owned(),
    })
}
