//! Disk usage of checkpoints and the cap: a tree of 10,000 files, 200 checkpoints of ten edits each, then
//! 1,000 more under a cap. Takes minutes, so it is run by name:
//!
//! `cargo test --release -p safepoint-cli --test growth -- --ignored --nocapture`

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

mod framework;
mod plan;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FILES: u64 = 10_000;
const EDITS: u64 = 10;
const GROWING: u64 = 200;
const CAPPED: u64 = 1_000;

/// Xorshift generator: the same tree and edits in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Returns a line of mostly distinct words: it compresses like source code.
    fn line(&mut self) -> String {
        let words: Vec<String> =
            (0..3 + self.below(8)).map(|_| format!("w{:x}", self.below(3_000))).collect();
        words.join(" ") + "\n"
    }
}

struct Ground {
    folder: TempDir,
    dice: Dice,
}

impl Ground {
    fn new() -> Self {
        let mut ground = Self { folder: tempfile::tempdir().unwrap(), dice: Dice(0x5afe_9017) };
        for number in 0..FILES {
            let path = ground.file(number);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let bytes = 500 + ground.dice.below(19_500) as usize;
            let mut text = String::new();
            while text.len() < bytes {
                text.push_str(&ground.dice.line());
            }
            fs::write(path, text).unwrap();
        }
        ground
    }

    /// Path of a file in one of a hundred folders.
    fn file(&self, number: u64) -> PathBuf {
        let (group, folder) = (number / 1_000, number / 100 % 10);
        self.folder.path().join(format!("project/group{group}/part{folder}/file{}.txt", number % 100))
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Appends a line to some files; returns their new contents.
    fn edit(&mut self) -> Vec<Vec<u8>> {
        (0..EDITS)
            .map(|_| {
                let number = self.dice.below(FILES);
                let (path, line) = (self.file(number), self.dice.line());
                fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(line.as_bytes()).unwrap();
                fs::read(path).unwrap()
            })
            .collect()
    }

    fn run(&self, args: &[&str]) -> (Value, Duration) {
        let begun = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_safepoint"))
            .args(args)
            .arg("--json")
            .env("SAFEPOINT_HOME", self.home())
            .current_dir(self.folder.path().join("project"))
            .output()
            .unwrap();
        (serde_json::from_slice(&output.stdout).unwrap(), begun.elapsed())
    }
}

/// Returns the disk usage of a folder, like du(1). Files deleted concurrently count as nothing.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    let below =
        fs::read_dir(path).map(|entries| entries.flatten().map(|entry| disk_bytes(&entry.path())).sum());
    about.blocks() * 512 + below.unwrap_or(0)
}

fn pack_bytes(home: &Path) -> u64 {
    fs::read_dir(home.join("store/packs")).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

fn kb(bytes: u64) -> String {
    format!("{} kB", bytes / 1_000)
}

fn times(label: &str, mut all: Vec<Duration>) {
    all.sort();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100].as_millis();
    println!("{label}: median {} ms, p99 {} ms, longest {} ms", at(50), at(99), at(100));
}

#[test]
#[ignore = "takes minutes"]
fn growth_is_what_changed_and_the_cap_holds() {
    let mut ground = Ground::new();
    let home = ground.home();
    let (_, took) = ground.run(&["create", "--kind", "manual"]);
    let (first_disk, first_packs) = (disk_bytes(&home), pack_bytes(&home));
    println!(
        "first checkpoint of {FILES} files: {} ms; packs {}, home {}",
        took.as_millis(),
        kb(first_packs),
        kb(first_disk)
    );

    let (mut raw, mut compressed, mut took) = (0, 0, Vec::new());
    for _ in 0..GROWING {
        for content in ground.edit() {
            raw += content.len() as u64;
            compressed += zstd::bulk::compress(&content, 3).unwrap().len() as u64;
        }
        let (answer, time) = ground.run(&["create", "--kind", "manual"]);
        assert_eq!(answer["status"], "ok", "{answer:#}");
        took.push(time);
    }
    let (disk, packs) = (disk_bytes(&home), pack_bytes(&home));
    let (growth, pack_growth) = (disk - first_disk, packs - first_packs);
    println!(
        "{GROWING} checkpoints of {EDITS} edits: the edited files hold {}, {} compressed",
        kb(raw),
        kb(compressed)
    );
    println!(
        "the packs grew by {}, the home by {} ({})",
        kb(pack_growth),
        kb(growth),
        Parts::of(&home).said()
    );
    times("time of a checkpoint", took);
    assert!(pack_growth < 3 * compressed, "much more was stored than changed");

    let cap = first_disk + growth / 2;
    let settings = format!(
        "[store]\ncap = {cap}\n[retention]\nkeep_last = 20\nkeep_within = \"0s\"\nthin_daily_for = \"0s\"\n"
    );
    fs::write(home.join("config.toml"), settings).unwrap();
    let (mut largest, mut refused, mut pruned, mut took) = (0, 0, 0, Vec::new());
    let mut watch = Watch::begin(&home);
    for number in 0..CAPPED {
        ground.edit();
        let (answer, time) = ground.run(&["create", "--kind", "manual"]);
        took.push(time);
        match answer["error"]["code"].as_str() {
            None => pruned += answer["data"]["pruned"].as_array().unwrap().len(),
            Some("capped") => refused += 1,
            Some(_) => panic!("{answer:#}"),
        }
        let now = disk_bytes(&home);
        assert!(now <= cap, "after {number}: {now} of {cap}");
        largest = largest.max(now);
        if number == 0 {
            // The home was larger than the cap until now.
            let seen = std::mem::replace(&mut watch, Watch::begin(&home)).end();
            println!("while the first made room: at most {} seen ({})", kb(seen.all()), seen.said());
        }
    }
    println!("{CAPPED} checkpoints under a cap of {}: {refused} refused, {pruned} pruned", kb(cap));
    println!("the home after each: at most {}", kb(largest));
    let seen = watch.end();
    println!("at any moment: at most {} seen ({})", kb(seen.all()), seen.said());
    // The files are not read at one instant: a pack may be seen under two names.
    assert!(seen.all() <= cap + cap / 32, "{} of {cap}", seen.all());
    times("time of a checkpoint", took);
    let (answer, time) = ground.run(&["validate", "--deep"]);
    assert_eq!(answer["data"]["is_valid"], true, "{answer:#}");
    println!("validate --deep: {} in {} ms", answer["data"]["checked"], time.as_millis());
    assert_eq!(refused, 0);
}

/// Disk usage of a home by part.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    packs: u64,
    index: u64,
    catalog: u64,
    rest: u64,
}

impl Parts {
    fn of(home: &Path) -> Self {
        let database = |path: PathBuf| -> u64 {
            let beside = |end: &str| disk_bytes(Path::new(&format!("{}{end}", path.display())));
            beside("") + beside("-wal") + beside("-shm")
        };
        let packs = disk_bytes(&home.join("store/packs"));
        let (index, catalog) = (database(home.join("store/index.db")), database(home.join("catalog.db")));
        let rest = disk_bytes(home).saturating_sub(packs + index + catalog);
        Self { packs, index, catalog, rest }
    }

    fn all(self) -> u64 {
        self.packs + self.index + self.catalog + self.rest
    }

    fn said(self) -> String {
        let Self { packs, index, catalog, rest } = self;
        format!("packs {}, index {}, catalog {}, rest {}", kb(packs), kb(index), kb(catalog), kb(rest))
    }
}

/// Monitors the size of the home.
struct Watch {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Parts>,
}

impl Watch {
    fn begin(home: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (home, seen_over) = (home.to_owned(), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut largest = Parts::default();
            while !seen_over.load(Ordering::Relaxed) {
                let now = Parts::of(&home);
                if now.all() > largest.all() {
                    largest = now;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            largest
        });
        Self { over, thread }
    }

    fn end(self) -> Parts {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
