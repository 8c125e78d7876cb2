//! Plan runner killed at random moments: finished steps are not repeated, and the rest is reported.
//!
//! A separate suite: it starts programs all the time, and a starting program holds all open files.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use safepoint::model::plan::state::{PlanState, StepState};
use safepoint::{CheckpointManager, Depth, PlanFile, Silent};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Number of kills with SAFEPOINT_PROOF=full.
const MOMENTS_FULL: u64 = 200;
const MOMENTS: u64 = 60;
const STEPS: usize = 6;

/// Steps that append a line to a file, some nested and two parallel.
fn plan() -> String {
    let mut text = "title = 'Lines'\nid = 'lines'\n".to_owned();
    let run = |number: usize| format!("run = 'sleep 0.00{number}; echo {number} >> lines'\n");
    for number in 0..STEPS - 2 {
        text.push_str(&format!("[[step]]\nid = 's{number}'\n{}", run(number)));
    }
    text.push_str("[[step]]\nid = 'sub'\nparallel = 2\nverify = 'test -s lines'\n");
    for number in STEPS - 2..STEPS {
        text.push_str(&format!("[[step.step]]\nid = 's{number}'\n{}", run(number)));
    }
    text
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
    command
        .args(args)
        .current_dir(folder.join("project"))
        .env("SAFEPOINT_HOME", folder.join("home"))
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn resume(folder: &Path, how: &[&str]) -> Output {
    let args: Vec<&str> = ["--json", "plan", "resume", "lines"].iter().chain(how).copied().collect();
    command(folder, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

fn lines(folder: &Path) -> Vec<usize> {
    let text = fs::read_to_string(folder.join("project/lines")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Returns the next number of a reproducible random series.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn a_runner_killed_at_any_moment_does_nothing_twice_and_says_what_it_does_not_know() {
    let memory = Path::new("/dev/shm");
    let (mut seed, mut longest) = (0x5afe_u64, Duration::from_millis(400));
    let (mut interrupted, mut finished, mut between) = (0, 0, 0);
    let full = std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full");
    let moments = if full { MOMENTS_FULL } else { MOMENTS };
    for moment in 0..moments {
        let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let scratch = scratch.unwrap();
        let folder = scratch.path();
        fs::create_dir(folder.join("project")).unwrap();
        let manager = CheckpointManager::open(&folder.join("home")).unwrap();
        let workspace = manager.workspaces().register(&folder.join("project")).unwrap();
        let spec = PlanFile::parse(plan().as_bytes(), None).unwrap().spec;
        manager.plans().create(&workspace, &spec).unwrap();

        let since = Instant::now();
        let mut runner = command(folder, &["plan", "run", "lines"]).spawn().unwrap();
        let micros = u64::try_from(longest.as_micros()).unwrap();
        let kill_after = Duration::from_micros(next(&mut seed) % micros);
        while since.elapsed() < kill_after && runner.try_wait().unwrap().is_none() {
            sleep(Duration::from_micros(200));
        }
        let ended = runner.try_wait().unwrap().is_some();
        if ended {
            // The kills are spread over the duration of a run.
            longest = longest.min(since.elapsed());
        }
        runner.kill().unwrap();
        runner.wait().unwrap();

        let state = manager.plans().get("lines").unwrap().plan.state;
        if state == PlanState::Ready {
            // It had not started.
            assert_eq!(lines(folder), Vec::<usize>::new(), "moment {moment}");
            let run = command(folder, &["plan", "run", "lines"]).status().unwrap();
            assert!(run.success());
        } else {
            let first = resume(folder, &[]);
            let told = String::from_utf8_lossy(&first.stdout).into_owned();
            match first.status.code() {
                Some(0) if ended => finished += 1,
                Some(0) => between += 1,
                Some(12) => {
                    interrupted += 1;
                    assert!(told.contains("step_interrupted"), "moment {moment}: {told}");
                    // The user reports its progress. Two parallel steps may differ: then each is reported
                    // separately.
                    let plan = manager.plans().get("lines").unwrap().plan;
                    let open: Vec<String> = plan
                        .steps
                        .iter()
                        .filter(|step| step.state == StepState::Interrupted && step.spec.run.is_some())
                        .map(|step| step.path.clone())
                        .collect();
                    assert!(!open.is_empty());
                    for path in open {
                        assert!(told.contains(&path), "moment {moment}: {path} in {told}");
                        let number: usize = path.rsplit('s').next().unwrap().parse().unwrap();
                        if lines(folder).contains(&number) {
                            manager.plans().finish_step("lines", &path, None, &Silent).unwrap();
                        }
                    }
                    let second = resume(folder, &["--interrupted", "rerun"]);
                    let told = String::from_utf8_lossy(&second.stdout).into_owned();
                    assert_eq!(second.status.code(), Some(0), "moment {moment}: {told}");
                }
                other => panic!("moment {moment}: exit {other:?}: {told}"),
            }
        }
        let mut found = lines(folder);
        found.sort_unstable();
        assert_eq!(found, (0..STEPS).collect::<Vec<_>>(), "moment {moment}: each line must occur once");
        assert_eq!(manager.plans().get("lines").unwrap().plan.state, PlanState::Done, "moment {moment}");
        let validation = manager.upkeep().validate(None, Depth::Quick, &Silent).unwrap();
        assert!(validation.is_valid(), "moment {moment}: {:?}", validation.errors);
    }
    eprintln!(
        "runner killed at {moments} moments: {interrupted} times a step was interrupted and said so, {between} times it was \
         between steps, {finished} times it had ended; every line was there exactly once"
    );
    assert!(interrupted > 10 && between > 0, "the kills must hit both cases");
}

#[test]
fn a_rollback_ends_what_a_dead_runner_left_of_a_plan_that_the_checkpoint_does_not_hold() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let file = folder.join("project/lines");
    fs::create_dir(folder.join("project")).unwrap();
    fs::write(&file, "").unwrap();
    let manager = CheckpointManager::open(&folder.join("home")).unwrap();
    let workspace = manager.workspaces().register(&folder.join("project")).unwrap();
    let before =
        manager.create(&workspace, &safepoint::CreateOptions::default(), &Silent).unwrap().checkpoint;
    let text = "title = 'Lines'\nid = 'lines'\n[[step]]\nid = 'a'\nrun = 'while :; do echo 1 >> lines; sleep 0.01; done'";
    let spec = PlanFile::parse(text.as_bytes(), None).unwrap().spec;
    manager.plans().create(&workspace, &spec).unwrap();
    let mut runner = command(folder, &["plan", "run", "lines"]).spawn().unwrap();
    let since = Instant::now();
    while lines(folder).is_empty() {
        assert!(since.elapsed() < Duration::from_secs(30), "the step does not write");
        sleep(Duration::from_millis(5));
    }
    runner.kill().unwrap();
    runner.wait().unwrap();
    let count = lines(folder).len();
    while lines(folder).len() == count {
        assert!(since.elapsed() < Duration::from_secs(30), "the step ended with its runner");
        sleep(Duration::from_millis(5));
    }
    let mut rollback = command(folder, &["--json", "rollback", &before.id.to_string()]);
    let rolled_back = rollback.stdout(Stdio::piped()).output().unwrap();
    let told = String::from_utf8_lossy(&rolled_back.stdout).into_owned();
    assert_eq!(rolled_back.status.code(), Some(0), "{told}");
    assert!(told.contains("leftovers_ended"), "{told}");
    assert_eq!(lines(folder), Vec::<usize>::new());
    sleep(Duration::from_millis(200));
    assert_eq!(lines(folder), Vec::<usize>::new(), "the step goes on");
    let plan = manager.plans().get("lines").unwrap().plan;
    assert_eq!(plan.steps[0].state, StepState::Interrupted);
}
