//! `rollback --until` in an overlay and in a copy: the check sees what a rollback to the candidate would give, and the workspace stays
//! as it is, whatever the check does.

use crate::histories::script;
use crate::world::{Chance, Means, User, World};
use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Checkpoints of a history.
const CHECKPOINTS: u64 = 5;

/// Means, each with the words that ask for it and its name in the answer.
fn both(world: &World) -> Vec<(Means, Vec<&'static str>, &'static str)> {
    let copy = (Means::Copy, vec!["--copy"], "copy");
    match world.has_overlay() {
        true => vec![(Means::Best, vec![], "overlay"), copy],
        false => {
            eprintln!("left out: this machine gives no overlay");
            vec![copy]
        }
    }
}

fn search(world: &World, check: &str, words: &[&str]) -> Value {
    world.answer(&[&["rollback", "--until", check][..], words].concat())
}

/// The tree, and the time of every change in it: a search does not even touch the workspace.
fn untouched(world: &World) -> (TreeImage, String) {
    let line = "find . -path ./.safepoint -prune -o -printf '%p %i %T@ %C@\\n' | sort";
    let output = world.program(Path::new("/bin/sh"), &["-c", line]).output().unwrap();
    (world.image(&world.project()), String::from_utf8(output.stdout).unwrap())
}

fn each_probe_is_what_a_rollback_gives(user: User, seed: u64) {
    let world = World::new(user);
    let mut chance = Chance(seed);
    world.write(".safepointignore", "*.log\nbuilt/\n");
    let mut ids = Vec::new();
    for round in 0..CHECKPOINTS {
        world.shell(&script(&mut chance), &world.project());
        world.shell(&format!("echo {round} > round; echo {round} > own.log"), &world.project());
        ids.push(world.run(&["create"])["checkpoint"]["id"].as_str().unwrap().to_owned());
    }
    // Not captured: it stays as it is in every state.
    world.shell("mkdir -p built d0/built; echo now | tee built/out d0/built/out > own.log", &world.project());
    world.shell(&script(&mut chance), &world.project());
    for (_, words, name) in both(&world) {
        // The undo of a rollback gives files other times.
        let before = untouched(&world);
        let seen = world.folder.join(format!("seen-{name}"));
        fs::create_dir(&seen).unwrap();
        world.own(&seen);
        // The check keeps what it finds, and then changes everything that it can.
        let check = format!(
            "to={}/${{SAFEPOINT_CHECKPOINT_ID:-current}}; mkdir $to && cp -a . $to/tree && rm -rf $to/tree/.safepoint
             {}
             rm -rf built round; echo changed > round; exit 1",
            seen.display(),
            script(&mut chance)
        );
        let answer = search(&world, &check, &words);
        assert_eq!(answer["error"]["code"], "none_passed", "seed {seed}: {answer:#}");
        assert_eq!(answer["data"]["tried_in"], name);
        let after = untouched(&world);
        assert!(after.0.difference(&before.0).is_empty(), "seed {seed}, {name}: the workspace changed");
        assert_eq!(after.1, before.1, "seed {seed}, {name}: the workspace was touched");
        assert_eq!(world.rooms(), 0, "seed {seed}, {name}: a room is left");
        assert!(
            world.image(&seen.join("current/tree")).difference(&before.0).is_empty(),
            "seed {seed}, {name}"
        );
        for id in &ids {
            let answer = world.answer(&["rollback", id]);
            let tree = seen.join(id).join("tree");
            if answer["status"] != "ok" {
                assert!(!tree.exists(), "seed {seed}, {name}: {id} was tried, and its rollback is refused");
                continue;
            }
            let difference = world.image(&tree).difference(&world.image(&world.project()));
            assert!(difference.is_empty(), "seed {seed}, {name}, {id}: {difference:#?}");
            // A rollback that changed nothing is undone like any other.
            world.run(&["undo"]);
        }
        assert!(world.image(&world.project()).difference(&before.0).is_empty(), "seed {seed}: undo");
        world.shell(&format!("chmod -R u+rwX {0}; rm -rf {0}", seen.display()), &world.folder);
    }
}

#[test]
fn each_candidate_of_a_search_is_what_a_rollback_gives_in_overlay_and_copy() {
    for seed in 1..3 {
        each_probe_is_what_a_rollback_gives(User::Own, seed);
    }
    if User::Nobody.is_possible() {
        each_probe_is_what_a_rollback_gives(User::Nobody, 3);
    }
}

/// Five checkpoints of a file with a number; the current one is the highest.
fn numbers() -> World {
    let world = World::new(User::Own);
    for number in 1..=5 {
        world.write("number", &format!("{number}\n"));
        world.run(&["create"]);
    }
    world.write("number", "9\n");
    world
}

#[test]
fn both_ways_of_a_search_find_the_same_and_roll_back_once() {
    let world = numbers();
    for (_, words, name) in both(&world) {
        for more in [&[][..], &["--bisect"]] {
            let check = "echo side > effect; test $(cat number) -le 2";
            let answer = search(&world, check, &[&words[..], more].concat());
            assert_eq!(answer["status"], "ok", "{answer:#}");
            assert_eq!(answer["data"]["tried_in"], name);
            assert_eq!(world.read("number"), "2\n");
            assert!(!world.project().join("effect").exists());
            world.run(&["undo"]);
            assert_eq!(world.read("number"), "9\n");
            assert_eq!(world.output(&["undo"]).status.code(), Some(10), "the search was one record");
        }
    }
}

#[test]
fn an_overlay_has_the_path_of_the_workspace_and_a_copy_has_not() {
    let world = numbers();
    for (means, words, _) in both(&world) {
        let here = world.project().display().to_string();
        let check = format!("test \"$PWD\" = {here} && test $(cat {here}/number) -le 3");
        let answer = search(&world, &check, &[&words[..], &["--dry-run"]].concat());
        assert_eq!(answer["status"] == "ok", means == Means::Best, "{answer:#}");
    }
}

#[test]
fn what_a_check_leaves_running_ends_and_does_not_reach_the_next_candidate() {
    let world = numbers();
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    let pids = world.folder.join("pids");
    // Out of the process group, with the folder as its current directory; the next candidate would find its file.
    let check = format!(
        "test ! -e trace || exit 0
         setsid sh -c 'echo $$ >> {}; while :; do echo left > trace; sleep 0.05; done' < /dev/null > /dev/null 2>&1 &
         until test -e trace; do sleep 0.01; done; exit 1",
        pids.display()
    );
    let answer = search(&world, &check, &[]);
    assert_eq!(answer["error"]["code"], "none_passed", "a candidate saw the trace of another: {answer:#}");
    assert!(!world.project().join("trace").exists());
    let pids = fs::read_to_string(&pids).unwrap();
    assert_eq!(pids.lines().count(), 6);
    for pid in pids.lines() {
        let since = Instant::now();
        while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(since.elapsed() < Duration::from_secs(20), "{pid} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(world.rooms(), 0);
}

#[test]
fn a_check_does_not_reach_a_socket_of_the_workspace() {
    let world = numbers();
    let _listener = UnixListener::bind(world.project().join("socket")).unwrap();
    world.shell("mkfifo fifo", &world.project());
    for (_, words, name) in both(&world) {
        let answer = search(&world, "test ! -e socket && test ! -e fifo && test $(cat number) = 4", &words);
        assert_eq!(answer["status"], "ok", "{name}: {answer:#}");
        let left_out = answer["data"]["left_out"].as_array().unwrap();
        let paths: Vec<&str> = left_out.iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["fifo", "socket"], "{name}");
        world.run(&["undo"]);
    }
    assert!(fs::symlink_metadata(world.project().join("socket")).is_ok());
}

#[test]
fn a_search_killed_at_any_moment_leaves_the_workspace_and_nothing_else() {
    let world = numbers();
    for number in 0..100 {
        world.write(&format!("files/{number}"), &format!("{number}\n"));
    }
    let before = untouched(&world);
    let mut chance = Chance(3);
    for round in 0..12 {
        let mut command =
            world.command(&["rollback", "--until", "rm -rf files; sleep 0.05; false", "--dry-run"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(600)));
        let _ = child.kill();
        child.wait().unwrap();
        world.run(&["recover"]);
        let after = untouched(&world);
        assert!(after.0.difference(&before.0).is_empty() && after.1 == before.1, "round {round}");
        assert_eq!(world.rooms(), 0, "round {round}: a room is left");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("safepoint-attempt"), "round {round}: a mount is left");
    }
}

#[test]
fn a_workspace_with_a_mount_in_it_is_tried_in_a_copy() {
    let test = "searches::a_workspace_with_a_mount_in_it_is_tried_in_a_copy";
    if !crate::weather::alone(test) {
        return;
    }
    let world = numbers();
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    let tried_in = || search(&world, "test $(cat number) = 9", &[])["data"]["tried_in"].clone();
    assert_eq!(tried_in(), "overlay");
    crate::weather::mount("tmpfs", "size=1m", &world.project().join("mounted"));
    assert_eq!(tried_in(), "copy");
    let status = std::process::Command::new("umount").arg(world.project().join("mounted")).status().unwrap();
    assert!(status.success());
    assert_eq!(tried_in(), "overlay");
}

#[test]
fn a_database_that_a_program_has_open_is_tried_in_a_copy() {
    let world = numbers();
    let database = rusqlite::Connection::open(world.project().join("rows.db")).unwrap();
    let make = "PRAGMA journal_mode = WAL; CREATE TABLE rows (number); INSERT INTO rows VALUES (1), (2)";
    database.execute_batch(make).unwrap();
    let answer = search(&world, "test -s rows.db && test $(cat number) = 9", &[]);
    assert_eq!(
        (&answer["status"], &answer["data"]["tried_in"]),
        (&"ok".into(), &"copy".into()),
        "{answer:#}"
    );
    database.execute("INSERT INTO rows VALUES (3)", []).unwrap();
    let count: i64 = database.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 3);
}
