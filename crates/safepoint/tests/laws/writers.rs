//! Editors write during rollbacks: no acknowledged byte is lost. It is in the tree, in a checkpoint (a safety
//! checkpoint holds the state before the rollback), or rescued.

use crate::bench::Bench;
use safepoint::model::tree::Node;
use safepoint::{Filter, RoleFilter, RollbackOptions, Silent};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns a line of a writer: unique, and long enough to be found.
fn line(writer: &str, number: u64) -> String {
    format!("<{writer}:{number:06}>")
}

const LINES: u64 = 1500;
const FILE_BYTES: u64 = 24 * LINES;

/// Acknowledged lines in order.
type Told = Mutex<Vec<String>>;

fn in_place(path: &Path, number: u64, told: &Told) {
    let text = line("in-place", number);
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return };
    // Each line has its own offset, so that later lines do not overwrite earlier ones.
    if file.write_all_at(text.as_bytes(), number * 24).is_ok() {
        told.lock().unwrap().push(text);
    }
}

fn truncate_and_write(path: &Path, number: u64, told: &Told) {
    let text = line("truncate", number);
    // The writer overwrites its own file: only the last line, or a displaced one, must survive.
    if fs::write(path, &text).is_ok() {
        told.lock().unwrap().push(text);
    }
}

fn atomic_rename(path: &Path, number: u64, told: &Told) {
    let text = line("rename", number);
    let fresh = path.with_extension("fresh");
    if fs::write(&fresh, &text).is_ok() && fs::rename(&fresh, path).is_ok() {
        told.lock().unwrap().push(text);
    }
}

fn append_held(held: &mut Option<File>, path: &Path, number: u64, told: &Told) {
    let text = line("append", number);
    if held.is_none() || number.is_multiple_of(40) {
        *held = OpenOptions::new().append(true).open(path).ok();
    }
    if let Some(file) = held
        && file.write_all(text.as_bytes()).is_ok()
    {
        told.lock().unwrap().push(text);
    }
}

/// Writes twenty lines through one shared mapping: stores without system calls.
#[allow(unsafe_code, reason = "a mapping is what is to be tested; nobody in this process shrinks the file")]
fn mapped(path: &Path, numbers: std::ops::Range<u64>, told: &Told) {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    if file.metadata().is_ok_and(|metadata| metadata.len() < FILE_BYTES) {
        return;
    }
    // SAFETY: the file is long enough, and a rollback replaces files but never shortens one.
    let Ok(mut area) = (unsafe { memmap2::MmapMut::map_mut(&file) }) else { return };
    drop(file);
    for number in numbers {
        let text = line("mmap", number);
        let at = (number * 24) as usize;
        area[at..at + text.len()].copy_from_slice(text.as_bytes());
        told.lock().unwrap().push(text);
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Returns every surviving line: in the tree, in a checkpoint, or rescued.
fn everything(bench: &Bench) -> HashSet<String> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for entry in fs::read_dir(bench.root()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            all.extend(fs::read(path).unwrap());
        }
    }
    let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
    for checkpoint in bench.manager.checkpoints().list(&filter).unwrap() {
        for listed in bench.manager.checkpoints().entries(&checkpoint).unwrap() {
            if let Node::File(content) = listed.entry.node
                && seen.insert(content.id)
            {
                bench.manager.checkpoints().cat(&checkpoint, &listed.path, &mut all).unwrap();
            }
        }
    }
    let lines = all.split(|byte| *byte == b'<').filter_map(|rest| {
        let end = rest.iter().position(|byte| *byte == b'>')?;
        Some(format!("<{}>", String::from_utf8_lossy(&rest[..end])))
    });
    lines.collect()
}

#[test]
fn no_byte_that_a_writer_was_told_was_written_is_lost() {
    let bench = Bench::new();
    let blank = " ".repeat(FILE_BYTES as usize);
    for name in ["in-place", "append", "mmap"] {
        bench.write(name, &blank);
    }
    bench.write("truncate", "nothing yet");
    bench.write("rename", "nothing yet");
    let start = bench.create();
    let told: Told = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let each = |writer: &(dyn Fn(u64) + Sync)| {
        for number in (0..LINES).take_while(|_| !stop.load(Ordering::Relaxed)) {
            writer(number);
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    };
    let mut rollbacks = 0u64;
    std::thread::scope(|scope| {
        scope.spawn(|| each(&|number| in_place(&bench.path("in-place"), number, &told)));
        scope.spawn(|| each(&|number| truncate_and_write(&bench.path("truncate"), number, &told)));
        scope.spawn(|| each(&|number| atomic_rename(&bench.path("rename"), number, &told)));
        scope.spawn(|| {
            each(&|number| {
                HELD.with_borrow_mut(|held| append_held(held, &bench.path("append"), number, &told));
            });
        });
        scope.spawn(|| {
            each(&|number| {
                if number.is_multiple_of(20) {
                    mapped(&bench.path("mmap"), number..number + 20, &told);
                }
            });
        });
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_secs(3) {
            bench.manager.rollback(&bench.workspace, start.id, &RollbackOptions::default(), &Silent).unwrap();
            rollbacks += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    // All writers have ended, so every displaced file settles.
    bench.settle();
    bench.create();
    let all = everything(&bench);
    let told = told.into_inner().unwrap();
    let mapped = told.iter().filter(|text| text.starts_with("<mmap")).count();
    let last: HashSet<&String> = ["<truncate:", "<rename:"]
        .iter()
        .filter_map(|prefix| told.iter().rfind(|text| text.starts_with(prefix)))
        .collect();
    let lost = told.iter().filter(|text| is_owed(text, &last) && !all.contains(*text)).collect::<Vec<_>>();
    eprintln!(
        "writers: {} lines in {rollbacks} rollbacks, {} of them through a mapping; {} lost",
        told.len(),
        mapped,
        lost.len()
    );
    assert!(lost.is_empty(), "{lost:?}");
    assert!(rollbacks > 3 && told.len() > 500);
}

thread_local! {
    static HELD: std::cell::RefCell<Option<File>> = const { std::cell::RefCell::new(None) };
}

/// Returns true unless the writer itself overwrote the line.
fn is_owed(text: &String, last: &HashSet<&String>) -> bool {
    let destroys_its_own = text.starts_with("<truncate:") || text.starts_with("<rename:");
    !destroys_its_own || last.contains(text)
}
