//! `try`: several at once, checked, compared, the best kept; killed at random moments.

use crate::world::{Chance, User, World};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Words that go to the folder of the project in an attempt, for each means.
const GO: &str = "test -f script || cd \"$PWD\"";

#[test]
fn the_best_of_three_is_kept() {
    let world = World::new(User::Own);
    world.write("script", "1\n");
    let program = world.program.display();
    let line = format!(
        "{GO}; n=$SAFEPOINT_ATTEMPT_NUMBER; echo $n > number; echo line $n; {program} metric accuracy=0.$n -q; test $n != 2"
    );
    let check = "echo '3 passed, 1 failed in 0.1s'; test -s number";
    let args = [
        "try",
        "--attempts",
        "3",
        "--verify",
        check,
        "--best",
        "accuracy",
        "--keep",
        "--",
        "sh",
        "-c",
        &line,
    ];
    let tried = world.run(&args);
    assert_eq!((&tried["kept"], &tried["best"]), (&"try-3".into(), &"try-3".into()), "{tried:#}");
    assert_eq!(world.read("number"), "3\n");
    let attempts = tried["attempts"].as_array().unwrap();
    let field = |at: usize, key: &str| attempts[at][key].clone();
    assert_eq!([field(0, "state"), field(1, "state"), field(2, "state")], ["dropped", "dropped", "kept"]);
    assert_eq!((field(1, "exit_status"), field(1, "verified")), (1.into(), serde_json::Value::Null));
    assert_eq!(field(2, "tests"), serde_json::json!({ "passed": 3, "failed": 1, "skipped": 0 }));
    assert_eq!(field(2, "metrics")["accuracy"], 0.3);
    assert_eq!(world.rooms(), 0);
    world.run(&["undo"]);
    assert!(!world.project().join("number").exists());
}

#[test]
fn a_program_that_is_missing_leaves_no_attempt_open() {
    let world = World::new(User::Own);
    let answer = world.answer(&["try", "--", "no-such-program-here"]);
    assert_ne!(answer["exit_code"], 0);
    let open = world.run(&["attempt", "list"])["attempts"].clone();
    assert_eq!((open, world.rooms()), (serde_json::json!([]), 0));
}

#[test]
fn the_others_end_once_one_passes() {
    let world = World::new(User::Own);
    world.write("script", "1\n");
    let line = "test $SAFEPOINT_ATTEMPT_NUMBER = 2 || exec sleep 600";
    let tried = world.run(&["try", "--attempts", "3", "--until-pass", "--later", "--", "sh", "-c", line]);
    assert_eq!(tried["best"], "try-2");
    assert_eq!(world.run(&["attempt", "list"])["attempts"].as_array().unwrap().len(), 3);
    world.run(&["attempt", "keep", "try-2"]);
}

#[test]
fn a_try_killed_at_any_moment_leaves_an_attempt_that_goes_on_or_nothing() {
    let world = World::new(User::Own);
    for number in 0..200 {
        world.write(&format!("files/{number}"), &format!("{number}\n"));
    }
    // A `try` that is killed before it registered the project would leave nothing to list.
    world.run(&["init"]);
    let before = world.image(&world.project());
    let mut chance = Chance(9);
    let line = "cd files; for n in $(seq 0 150); do echo changed > $n; done";
    for round in 0..12 {
        let name = format!("k{round}");
        let mut command =
            world.command(&["--json", "try", "--name", &name, "--later", "--", "sh", "-c", line]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(400)));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(
            world.image(&world.project()).difference(&before).is_empty(),
            "round {round}: the project changed"
        );
        let all = world.run(&["attempt", "list"])["attempts"].clone();
        if let Some(attempt) = all.as_array().unwrap().iter().find(|attempt| attempt["name"] == name.as_str())
        {
            // It goes on, joins what still runs, and is dropped.
            let place = world.place(attempt);
            let more = format!("cd {}; echo more > more", place.display());
            world.run(&["attempt", "exec", &name, "--", "sh", "-c", &more]);
            let dropped = world.run(&["attempt", "drop", &name])["attempts"][0].clone();
            let output = world.output(&["cat", dropped["result"].as_str().unwrap(), "more"]);
            assert_eq!(output.stdout, b"more\n", "round {round}");
        }
        world.run(&["recover"]);
        assert_eq!(world.rooms(), 0, "round {round}: a room is left");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("safepoint-attempt"), "round {round}: a mount is left");
    }
    assert_eq!(world.run(&["validate", "--deep"])["is_valid"], true);
}

/// Starts `try` with commands that never end, and interrupts it once each has written its file. Returns the answer.
fn interrupted_try(world: &World, attempts: u64, choice: &str) -> serde_json::Value {
    world.write("script", "1\n");
    let ready = world.folder.join("ready");
    fs::create_dir(&ready).unwrap();
    world.own(&ready);
    let line = format!(
        "{GO}; echo made > made; echo > {}/$SAFEPOINT_ATTEMPT_NUMBER; while :; do sleep 0.1; done",
        ready.display()
    );
    let count = attempts.to_string();
    let args = ["--json", "try", "--attempts", &count, choice, "--", "sh", "-c", &line];
    let child = world.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while fs::read_dir(&ready).unwrap().count() < attempts as usize {
        assert!(since.elapsed() < Duration::from_secs(60), "the commands did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_interrupted_try_keeps_and_drops_nothing() {
    for (attempts, choice) in [(1, "--discard"), (2, "--discard"), (2, "--keep")] {
        let world = World::new(User::Own);
        let answer = interrupted_try(&world, attempts, choice);
        let told = &answer["messages"];
        let is_told = told.as_array().unwrap().iter().any(|message| message["code"] == "interrupted");
        assert!(is_told && answer["exit_code"] != 0, "{attempts} {choice}: {answer:#}");
        assert_eq!(answer["data"]["kept"], serde_json::Value::Null);
        let open = world.run(&["attempt", "list"])["attempts"].clone();
        assert_eq!(open.as_array().unwrap().len() as u64, attempts, "{choice}");
        assert_eq!(open[0]["changes"]["added"], 1, "{open:#}");
        assert!(!world.project().join("made").exists());
    }
}

#[test]
fn the_others_stay_open_where_the_keep_is_refused() {
    let world = World::new(User::Own);
    world.write("script", "1\n");
    // The project changes the same file while the attempts run.
    let go = world.folder.join("go");
    let line = format!(
        "{GO}; echo $SAFEPOINT_ATTEMPT > made; test $SAFEPOINT_ATTEMPT_NUMBER = 2 || exit 1
         until test -e {}; do sleep 0.05; done",
        go.display()
    );
    let mut command = world.command(&["--json", "try", "--attempts", "3", "--keep", "--", "sh", "-c", &line]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    // Each start registers its attempt before the next begins, and the commands run after the last.
    while world.rooms() < 3 || world.run(&["attempt", "list"])["attempts"].as_array().unwrap().len() < 3 {
        assert!(since.elapsed() < Duration::from_secs(60), "the attempts did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    world.write("made", "of the project\n");
    fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["error"]["code"], "attempt_conflict", "{answer:#}");
    assert_eq!(world.run(&["attempt", "list"])["attempts"].as_array().unwrap().len(), 3);
    assert_eq!(world.read("made"), "of the project\n");
}

#[test]
fn attempts_that_ran_nothing_are_dropped_where_a_later_one_cannot_start() {
    let world = World::new(User::Own);
    world.write("script", "1\n");
    world.run(&["attempt", "start", "x-3"]);
    let answer = world.answer(&["try", "--name", "x", "--attempts", "3", "--", "true"]);
    assert_eq!(answer["error"]["code"], "attempt_exists", "{answer:#}");
    assert!(answer["error"]["hints"].to_string().contains("x-1 x-2"), "{answer:#}");
    let open = world.run(&["attempt", "list"])["attempts"].clone();
    assert_eq!((open.as_array().unwrap().len(), &open[0]["name"]), (1, &"x-3".into()));
    assert_eq!(world.rooms(), 1);
}
