//! Replays every input in `fuzz/corpus` with the fuzz targets, so that found bugs stay fixed.

#![allow(clippy::disallowed_methods, reason = "tests read the corpus")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use safepoint_fuzzing::TARGETS;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum memory of the process, for any input.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Returns the inputs of a target, by name.
fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = corpus().join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn every_input_of_the_corpus_keeps_the_laws() {
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() >= 3, "{name} has {} inputs", inputs.len());
        for input in &inputs {
            let bytes = fs::read(input).unwrap();
            let kept = std::panic::catch_unwind(|| target(&bytes));
            assert!(kept.is_ok(), "{} breaks a law", input.display());
        }
        eprintln!("{name}: {} inputs", inputs.len());
    }
    assert!(peak_bytes() < MEMORY_BYTES_MAX, "{} bytes", peak_bytes());
}

/// Mutates inputs of the corpus at random, without a fuzzer. `SAFEPOINT_PROOF=full` tries a hundred times as
/// many.
#[test]
fn changed_inputs_keep_the_laws() {
    let is_full = std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full");
    for (name, target) in TARGETS {
        let corpus: Vec<Vec<u8>> = inputs(name).iter().map(|input| fs::read(input).unwrap()).collect();
        let slow = ["packs", "imports"].contains(&name);
        let rounds = if slow { 60 } else { 2_000 } * if is_full { 100 } else { 1 };
        let mut dice = Dice(name.len() as u64);
        for round in 0..rounds {
            let mut bytes = corpus[dice.below(corpus.len())].clone();
            for _ in 0..=dice.below(4) {
                change(&mut bytes, &corpus, &mut dice);
            }
            let kept = std::panic::catch_unwind(|| target(&bytes));
            if kept.is_err() {
                let found = std::env::temp_dir().join(format!("safepoint-{name}-{round}"));
                fs::write(&found, &bytes).unwrap();
                panic!("{name}: a mutated input breaks a law; it is in {}", found.display());
            }
        }
        eprintln!("{name}: {rounds} mutated inputs");
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let len = dice.below(24).min(bytes.len() - at);
    match dice.below(5) {
        0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'/', b'.'][dice.below(9)],
        2 => drop(bytes.drain(at..at + len)),
        3 => {
            let again = bytes[at..at + len].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let other = &corpus[dice.below(corpus.len())];
            let from = dice.below(other.len() + 1);
            let len = dice.below(48).min(other.len() - from);
            bytes.splice(at..at, other[from..from + len].iter().copied());
        }
    }
}

#[test]
fn real_exports_are_imported() {
    let is_seed =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"seed-"));
    let inputs = inputs("imports");
    let seeds: Vec<&PathBuf> = inputs.iter().filter(is_seed).collect();
    assert!(seeds.len() >= 3);
    for seed in seeds {
        assert!(safepoint_fuzzing::import(&fs::read(seed).unwrap()), "{}", seed.display());
    }
}

#[test]
fn the_empty_input_keeps_every_law() {
    for (_, target) in TARGETS {
        target(&[]);
    }
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus_and_nothing_else_has() {
    let names = |folder: PathBuf| {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let mut expected: Vec<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(names(corpus()), expected);
    assert_eq!(names(corpus().join("../fuzz_targets")), expected);
}

/// Returns the peak memory of this process.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}
