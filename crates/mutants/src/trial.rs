//! Runs the tests that reach each mutant and looks for a failure.
//!
//! Every test runs in a separate process. A first run of all tests, without a mutant, records the time of
//! each and the mutants it reaches; a test that does not reach a mutant cannot notice it.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::build::{Built, Suite};
use crate::{Failure, program};

/// Number of concurrent tests.
const WORKERS: usize = 2;
/// Runs the whole table of planted bugs, which takes minutes.
const SKIPPED: &str = "every_planted_bug_is_noticed";
/// A test that takes longer without a mutant is left out.
const LONGEST: Duration = Duration::from_secs(60);

/// Test of a suite.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Test {
    /// Suite and name, `laws::undoing::a_law`.
    pub(crate) name: String,
    /// Hash of the programs of the first run.
    build: String,
    program: PathBuf,
    folder: PathBuf,
    filter: String,
    takes: Duration,
    pub(crate) reaches: BTreeSet<usize>,
}

/// Result of one test run.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Result of the tests for a mutant.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Caught { by: String },
    TimedOut { by: String },
    Survived { passed: BTreeSet<String> },
}

/// Runs each test once without a mutant, unless the same build did. Tests that fail twice are left out and
/// printed.
pub(crate) fn first_run(built: &Built, scratch: &Path) -> Result<Vec<Test>, Failure> {
    let file = scratch.join("tests.json");
    let known: Vec<Test> = serde_json::from_slice(&fs::read(&file).unwrap_or_default()).unwrap_or_default();
    let known: HashMap<(&str, &str), &Test> =
        known.iter().map(|test| ((test.name.as_str(), test.build.as_str()), test)).collect();
    let mut tests = Vec::new();
    for suite in &built.suites {
        let build = build_of(built, suite)?;
        let all = listed(suite, &[])?;
        let ignored = listed(suite, &["--ignored"])?;
        let is_chosen = |name: &str| suite.tests.iter().any(|start| name.starts_with(start));
        let chosen = all.difference(&ignored).filter(|name| is_chosen(name) && !name.contains(SKIPPED));
        for filter in chosen {
            tests.push(Test {
                name: format!("{}::{filter}", suite.name),
                build: build.clone(),
                program: suite.program.clone(),
                folder: suite.folder.clone(),
                filter: filter.clone(),
                takes: LONGEST,
                reaches: BTreeSet::new(),
            });
        }
    }
    let (done, fresh): (Vec<Test>, Vec<Test>) =
        tests.into_iter().partition(|test| known.contains_key(&(test.name.as_str(), test.build.as_str())));
    let done = done
        .into_iter()
        .filter_map(|test| known.get(&(test.name.as_str(), test.build.as_str())).map(|&test| test.clone()));
    let done = Mutex::new(done.collect::<Vec<Test>>());
    println!("{} tests to run for the first time", fresh.len());
    each(fresh.len(), |worker, at| {
        let notes = scratch.join(format!("reached-{worker}"));
        let (mut end, mut test) = measured(&fresh[at], &notes, worker)?;
        if end == End::Failed {
            (end, test) = measured(&fresh[at], &notes, worker)?;
        }
        match end {
            End::Passed => lock(&done).push(test),
            End::Failed => println!("left out, fails without a mutant: {}", test.name),
            End::TimedOut => println!("left out, takes over {} s: {}", LONGEST.as_secs(), test.name),
        }
        Ok(())
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Fast tests that reach few mutants come first.
    done.sort_by_key(|test| test.takes.as_micros() * test.reaches.len() as u128);
    fs::write(&file, serde_json::to_vec(&done)?)?;
    let takes: Duration = done.iter().map(|test| test.takes).sum();
    println!("{} tests pass without a mutant; they take {} s in sequence", done.len(), takes.as_secs());
    Ok(done)
}

/// Returns the result of a test without a mutant, and the test with its time and the mutants that it reaches.
fn measured(test: &Test, notes: &Path, worker: usize) -> Result<(End, Test), Failure> {
    // Some tests start programs as another user.
    fs::write(notes, "")?;
    fs::set_permissions(notes, fs::Permissions::from_mode(0o666))?;
    let began = Instant::now();
    let end = run(test, ("SAFEPOINT_MUTANTS_REACHED", &notes.to_string_lossy()), LONGEST, &folder(worker))?;
    let takes = began.elapsed();
    let reaches = fs::read_to_string(notes).unwrap_or_default();
    let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    Ok((end, Test { takes, reaches, ..test.clone() }))
}

fn build_of(built: &Built, suite: &Suite) -> Result<String, Failure> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&fs::read(&built.product)?).update(&fs::read(&suite.program)?);
    Ok(hasher.finalize().to_hex().to_string())
}

fn listed(suite: &Suite, more: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let output = program(&suite.program)
        .args(["--list", "--format", "terse"])
        .args(more)
        .current_dir(&suite.folder)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Tries mutants by number, and passes each verdict to `note` at once.
pub(crate) fn try_each(
    tests: &[Test],
    numbers: &[usize],
    before: &HashMap<usize, BTreeSet<String>>,
    note: impl Fn(usize, Verdict) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    each(numbers.len(), |worker, at| {
        let number = numbers[at];
        let passed = before.get(&number).cloned().unwrap_or_default();
        let verdict = try_one(tests, number, passed, &folder(worker))?;
        note(number, verdict)
    })
}

/// Runs the tests in order. A failure must repeat, so that a flaky test does not count as a catch.
fn try_one(
    tests: &[Test],
    number: usize,
    mut passed: BTreeSet<String>,
    tmp: &Path,
) -> Result<Verdict, Failure> {
    for test in tests.iter().filter(|test| test.reaches.contains(&number)) {
        if passed.contains(&test.name) {
            continue;
        }
        let limit = 3 * test.takes + Duration::from_secs(45);
        let once = || run(test, ("SAFEPOINT_MUTANT", &number.to_string()), limit, tmp);
        match once()? {
            End::TimedOut => return Ok(Verdict::TimedOut { by: test.name.clone() }),
            End::Failed if once()? != End::Passed => return Ok(Verdict::Caught { by: test.name.clone() }),
            _ => passed.insert(test.name.clone()),
        };
    }
    Ok(Verdict::Survived { passed })
}

/// Returns the folder for a worker's tests: in memory if possible, and outside any git repository.
fn folder(worker: usize) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("safepoint-mutants-{}-{worker}", std::process::id()))
}

/// Runs one test in a separate process group, which is killed at the limit.
fn run(test: &Test, variable: (&str, &str), limit: Duration, tmp: &Path) -> Result<End, Failure> {
    fs::create_dir_all(tmp)?;
    let mut command: Command = program(&test.program);
    command.args(["--exact", &test.filter, "--test-threads=1"]).current_dir(&test.folder).process_group(0);
    command.env(variable.0, variable.1).env("TMPDIR", tmp).env("RUST_BACKTRACE", "0");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let began = Instant::now();
    let end = loop {
        match child.try_wait()? {
            Some(status) if status.success() => break End::Passed,
            Some(_) => break End::Failed,
            None if began.elapsed() > limit => break End::TimedOut,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if let Some(group) = Pid::from_raw(i32::try_from(child.id())?) {
        // The group is empty if the test ended well.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    let _ = program("chmod").args(["-R", "u+rwX"]).arg(tmp).stderr(Stdio::null()).status();
    let _ = fs::remove_dir_all(tmp);
    Ok(end)
}

/// Calls `work` for every number below `count` on a few threads; the first failure ends all of them.
fn each(count: usize, work: impl Fn(usize, usize) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|threads| {
        for worker in 0..WORKERS {
            let (next, failure, work) = (&next, &failure, &work);
            threads.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || lock(failure).is_some() {
                        return;
                    }
                    if let Err(error) = work(worker, at) {
                        *lock(failure) = Some(error);
                    }
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
