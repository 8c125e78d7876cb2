//! Crowd: several concurrent processes on one home with random operations, some killed at random. Afterwards
//! everything is intact, and each worker's expectations hold.

use safepoint::{CheckpointManager, Depth, Filter, Pinned, RoleFilter, RollbackOptions, Silent};
use safepoint_testkit::TreeImage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Total number of operations; ten thousand with SAFEPOINT_PROOF=full.
fn operations() -> u64 {
    if std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full") { 10_000 } else { 400 }
}

const WORKERS: u64 = 4;

/// Outcomes of operations.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    /// Killed deliberately by SIGKILL.
    killed: AtomicU64,
    /// Refused for a valid reason, such as a lock of another process.
    refused: AtomicU64,
}

/// Reproducible random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// Worker with its own workspace that knows the content of each of its checkpoints.
struct Worker<'a> {
    home: &'a Path,
    project: PathBuf,
    dice: Dice,
    known: BTreeMap<String, TreeImage>,
    counts: &'a Counts,
}

/// End of an operation.
enum Ended {
    Done(String),
    Killed,
    Refused,
}

impl Worker<'_> {
    fn spawn(&self, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_safepoint"))
            .args(args)
            .env("SAFEPOINT_HOME", self.home)
            .env("HOME", self.project.parent().unwrap())
            .env("LLVM_PROFILE_FILE", "/dev/null")
            .current_dir(&self.project)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the program; kills it after a while, one time in four.
    fn operate(&mut self, args: &[&str]) -> Ended {
        let mut child = self.spawn(args);
        let doomed = self.dice.roll(4) == 0;
        if doomed {
            std::thread::sleep(Duration::from_micros(self.dice.roll(40_000)));
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0 | 3) => {
                self.counts.done.fetch_add(1, Ordering::Relaxed);
                Ended::Done(String::from_utf8_lossy(&output.stdout).trim().to_owned())
            }
            None if doomed => {
                self.counts.killed.fetch_add(1, Ordering::Relaxed);
                Ended::Killed
            }
            // Nothing to undo, a checkpoint deleted by another operation, or a busy home.
            Some(10..=12) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                Ended::Refused
            }
            code => panic!("{args:?} ended with {code:?}: {said}"),
        }
    }

    fn edit(&mut self) {
        for _ in 0..=self.dice.roll(4) {
            let name = self.project.join(format!("d{}/f{}", self.dice.roll(3), self.dice.roll(6)));
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            match self.dice.roll(5) {
                0 => drop(fs::remove_file(&name)),
                _ => {
                    // Few contents, shared by all, so that one worker deletes what another is about to need.
                    let content =
                        vec![b'a' + self.dice.roll(8) as u8; 200 + 3_000 * self.dice.roll(4) as usize];
                    fs::write(&name, content).unwrap();
                }
            }
        }
    }

    fn image(&self) -> TreeImage {
        TreeImage::read(&self.project, &[".safepoint"]).unwrap()
    }

    /// Recovers after a kill and checks that the state is an allowed one.
    fn settle(&mut self, allowed: &[TreeImage]) {
        let output = self.spawn(&["recover", "-q"]).wait_with_output().unwrap();
        assert!(output.status.success(), "recover: {}", String::from_utf8_lossy(&output.stderr));
        let now = self.image();
        assert!(allowed.contains(&now), "a mixture: {:#?}", now.difference(&allowed[0]));
    }

    fn step(&mut self) {
        let pick = |known: &BTreeMap<String, TreeImage>, at: u64| {
            known.iter().nth(at as usize % known.len().max(1)).map(|(id, image)| (id.clone(), image.clone()))
        };
        let at = self.dice.roll(1_000);
        match (self.dice.roll(12), pick(&self.known, at)) {
            (0..=4, _) => {
                self.edit();
                let image = self.image();
                if let Ended::Done(id) = self.operate(&["create", "-q", "--kind", "manual"]) {
                    self.known.insert(id, image);
                }
            }
            (5..=6, Some((id, image))) => {
                let before = self.image();
                match self.operate(&["rollback", &id, "-q"]) {
                    Ended::Done(_) => assert_eq!(self.image(), image),
                    Ended::Killed => self.settle(&[before, image]),
                    Ended::Refused => assert_eq!(self.image(), before),
                }
            }
            (7, _) => {
                let before = self.image();
                if let Ended::Killed = self.operate(&["undo", "--yes", "-q"]) {
                    // Either nothing happened, or what was there before the last rollback is back; the database knows which.
                    let output = self.spawn(&["recover", "-q"]).wait_with_output().unwrap();
                    assert!(output.status.success());
                }
                drop(before);
            }
            (8, Some((id, _))) => match self.operate(&["delete", &id, "--yes", "-q"]) {
                Ended::Done(_) | Ended::Killed => drop(self.known.remove(&id)),
                Ended::Refused => {}
            },
            (9, _) => drop(self.operate(&["prune", "--keep-last", "6", "--keep-within", "0s", "-q"])),
            (10, _) => drop(self.operate(&["gc", "-q"])),
            _ => drop(self.operate(&["status", "-q"])),
        }
    }
}

#[test]
fn a_crowd_of_processes_with_random_kills_loses_nothing() {
    let folder =
        tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let home = folder.path().join("home");
    let (counts, each) = (Counts::default(), operations() / WORKERS);
    let projects: Vec<(PathBuf, BTreeMap<String, TreeImage>)> = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (home, counts) = (&home, &counts);
                let project = folder.path().join(format!("project{number}"));
                fs::create_dir(&project).unwrap();
                threads.spawn(move || {
                    let mut worker =
                        Worker { home, project, dice: Dice(number), known: BTreeMap::new(), counts };
                    for _ in 0..each {
                        worker.step();
                    }
                    (worker.project, worker.known)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let manager = CheckpointManager::open(&home).unwrap();
    for workspace in manager.workspaces().list().unwrap() {
        manager.recover(&workspace, &Silent).unwrap();
    }
    let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    let mut restored = 0;
    for (project, known) in projects {
        let workspace = manager.workspaces().around(&project).unwrap().unwrap();
        let filter = Filter { workspace: Some(workspace.id), role: RoleFilter::Any, ..Filter::default() };
        for checkpoint in manager.checkpoints().list(&filter).unwrap() {
            manager.checkpoints().pin(checkpoint.id, Pinned::Yes).unwrap();
            manager.rollback(&workspace, checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
            if let Some(image) = known.get(&checkpoint.id.to_string()) {
                let now = TreeImage::read(&project, &[".safepoint"]).unwrap();
                assert_eq!(now.difference(image), Vec::<String>::new(), "{}", checkpoint.id);
            }
            restored += 1;
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    eprintln!(
        "a crowd of {WORKERS}: {} operations done, {} killed on purpose, {} refused with a reason, 0 failed; {restored} checkpoints restored exactly afterwards",
        count(&counts.done),
        count(&counts.killed),
        count(&counts.refused),
    );
    assert!(count(&counts.done) > operations() / 4 && count(&counts.killed) > operations() / 20);
}
