//! Closed pipes and Ctrl-C.

use crate::place::{Answer, Place, assert_same};
use rustix::process::{Pid, Signal, kill_process};
use safepoint_testkit::TreeImage;
use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn many(place: &Place, files: usize, text: &str) {
    for number in 0..files {
        place.write(format!("dir {}/file {number}", number % 30), format!("{text} {number}"));
    }
}

#[test]
fn a_broken_pipe() {
    let place = Place::new();
    many(&place, 2_000, "one");
    place.write("large", "a line of text\n".repeat(200_000));
    let first = place.create();
    let then = place.image();
    many(&place, 2_000, "two");
    let mut count = 1;
    // The reader ends after a few bytes, or before any.
    for (bytes, args) in [
        (4, &["cat", "@", "large"][..]),
        (0, &["cat", "@", "large"]),
        (4, &["show", "@", "--files"]),
        (0, &["show", "@", "--files", "--json"]),
        (4, &["diff"]),
        (0, &["list"]),
        (0, &["status"]),
        (0, &["create", "--kind", "manual"]),
        (0, &["--json", "create", "--kind", "manual"]),
    ] {
        let mut child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut vec![0; bytes]).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.as_str()), (Some(0), ""), "{args:?}");
        count += usize::from(args.contains(&"create"));
        assert_eq!(place.labels().len(), count, "{args:?}");
    }
    // The operation is completed, even without a reader.
    let mut child =
        place.command(&["rollback", &first]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_same(&place.image(), &then);
}

#[test]
fn a_standard_output_that_is_closed() {
    let place = Place::new();
    place.write("file", "1");
    let program = env!("CARGO_BIN_EXE_safepoint");
    let home = place.path("home");
    let run = |args: &str| {
        place.shell(&format!("exec {program} --home {} {args} >&- 2>&- <&-", home.display()));
    };
    run("create");
    place.write("file", "2");
    run("rollback @");
    assert_eq!(place.read("file"), "1");
    run("undo");
    assert_eq!(place.read("file"), "2");
    place.is_whole();
}

/// Runs a command and sends Ctrl-C after a while.
fn interrupted(place: &Place, args: &[&str], after: Duration) -> Answer {
    let args = [&["--json"], args].concat();
    let child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    // It is not reaped yet, so the process id is still its own.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    Answer::of(&args, &child.wait_with_output().unwrap())
}

/// Returns delays spread over the duration of a command.
fn delays(whole: Duration) -> impl Iterator<Item = Duration> {
    const POINTS: u32 = 16;
    (0..POINTS).map(move |point| whole * point / (POINTS - 2))
}

#[track_caller]
fn is_old_or_new(answer: &Answer) -> bool {
    assert!([0, 130].contains(&answer.exit), "{} {}", answer.exit, answer.errors);
    if answer.exit == 130 && answer.json.is_object() {
        answer.fails(130, "interrupted");
    }
    answer.exit == 0
}

#[test]
fn ctrl_c_at_any_moment_of_a_create() {
    let place = Place::new();
    place.write("first", "1");
    place.create();
    many(&place, 3_000, "0");
    let began = Instant::now();
    place.create();
    let whole = began.elapsed();
    let (mut taken, mut left) = (2, 0);
    for (round, delay) in delays(whole).enumerate() {
        many(&place, 3_000, &format!("round {round}"));
        let now = place.image();
        let done = is_old_or_new(&interrupted(&place, &["create", "--kind", "manual"], delay));
        taken += usize::from(done);
        left += usize::from(!done);
        assert_eq!(place.labels().len(), taken, "it exists exactly if reported");
        assert_same(&place.image(), &now);
    }
    eprintln!("Ctrl-C during create, spread over {whole:?}: {left} stopped, {} done", taken - 2);
    place.is_whole();
    let id = place.create();
    let then = place.image();
    many(&place, 10, "later");
    place.goes_to_and_fro(&id, &then);
}

#[test]
fn ctrl_c_at_any_moment_of_a_rollback() {
    let place = Place::new();
    let mut states: Vec<(String, TreeImage)> = Vec::new();
    for text in ["one", "two"] {
        many(&place, 2_000, text);
        place.write(format!("only in {text}/file"), text);
        states.push((place.create(), place.image()));
        fs::remove_dir_all(place.file(format!("only in {text}"))).unwrap();
    }
    place.rollback(&states[0].0);
    let began = Instant::now();
    place.rollback(&states[1].0);
    let whole = began.elapsed();
    let (mut at, mut stopped) = (1, 0);
    for delay in delays(whole) {
        let answer = interrupted(&place, &["rollback", &states[1 - at].0], delay);
        match is_old_or_new(&answer) {
            true => at = 1 - at,
            false => stopped += 1,
        }
        assert_same(&place.image(), &states[at].1);
    }
    eprintln!("Ctrl-C during rollback, spread over {whole:?}: {stopped} of 16 stopped");
    let recovered = place.run(&["recover"]);
    recovered.succeeds();
    place.rollback(&states[1 - at].0);
    assert_same(&place.image(), &states[1 - at].1);
    place.is_whole();
}
