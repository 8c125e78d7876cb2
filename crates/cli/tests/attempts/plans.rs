//! A plan in an attempt: its steps, checkpoints and rollbacks are those of the attempt, and the project stays as it is until the keep.

use crate::world::{Means, User, World};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs a command of Safepoint in the attempt `a`, at its place.
fn inside(world: &World, place: &str, words: &str) -> Value {
    let line = format!("cd {place}; {} {words}", world.program.display());
    world.answer(&["attempt", "exec", "a", "--", "sh", "-c", &line])
}

#[test]
fn a_plan_in_an_attempt_is_run_killed_resumed_rolled_back_and_kept() {
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("file", "old\n");
        let go = world.folder.join("go");
        let plan = world.folder.join("plan.toml");
        let text = format!(
            "title = 'Edit'\nid = 'edit'\n[[step]]\nid = 'one'\nrun = 'echo one > file; mkdir made; echo x > made/x'\n\
             [[step]]\nid = 'two'\nrun = 'test -e {} || exec sleep 600; echo two >> file'\n",
            go.display()
        );
        fs::write(&plan, text).unwrap();
        let before = world.image(&world.project());
        let attempt = world.start("a", means);
        let place = world.place(&attempt).display().to_string();
        assert_eq!(inside(&world, &place, &format!("plan new {} -q", plan.display()))["exit_code"], 0);
        // Killed while the second step runs.
        let line = format!("cd {place}; exec {} plan run edit", world.program.display());
        let mut command = world.command(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = || world.run(&["attempt", "show", "a"])["attempt"]["processes"].clone();
        let since = Instant::now();
        while !running().as_array().unwrap().iter().any(|process| process["name"] == "sleep") {
            assert!(since.elapsed() < Duration::from_secs(60), "the step did not start: {}", running());
            std::thread::sleep(Duration::from_millis(20));
        }
        for process in running().as_array().unwrap() {
            let pid = i32::try_from(process["pid"].as_i64().unwrap()).unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.wait().unwrap();
        assert!(
            world.image(&world.project()).difference(&before).is_empty(),
            "{means:?}: the project changed"
        );
        // It goes on in another process, and its rollback is one of the attempt.
        fs::write(&go, "").unwrap();
        let resumed = inside(&world, &place, "plan resume edit --interrupted rerun");
        assert_eq!(resumed["exit_code"], 0, "{means:?}: {resumed:#}");
        let program = world.program.display();
        let line = format!(
            "-q rollback 'before one' --path file && test \"$(cat file)\" = old && {program} -q undo && grep -q two file"
        );
        assert_eq!(inside(&world, &place, &line)["exit_code"], 0, "{means:?}");
        assert!(
            world.image(&world.project()).difference(&before).is_empty(),
            "{means:?}: the project changed"
        );
        assert_eq!(
            world.run(&["plan", "list"])["plans"],
            serde_json::json!([]),
            "it is no plan of the project"
        );
        world.run(&["attempt", "keep", "a"]);
        assert_eq!((world.read("file").as_str(), world.read("made/x").as_str()), ("one\ntwo\n", "x\n"));
        assert_eq!(world.rooms(), 0);
        fs::remove_file(&go).unwrap();
    }
}
