//! Laws of attempts: what stays apart, what is merged, what is refused, what is ended.

use crate::world::{Means, User, World};
use std::fs;
use std::time::{Duration, Instant};

/// An attempt named `a`, with an edit of each side.
fn with_edits(base: &str, in_attempt: &str, in_project: &str) -> World {
    let world = World::new(User::Own);
    world.write("text", base);
    world.write("other", "other\n");
    world.start("a", Means::Best);
    let line = format!("printf '{in_attempt}' > text; mkdir made; echo new > made/file");
    world.run(&[
        "attempt",
        "exec",
        "a",
        "--",
        "sh",
        "-c",
        &line.replace("printf", &format!("cd {}; printf", place(&world))),
    ]);
    world.write("text", in_project);
    world.write("theirs", "theirs\n");
    world
}

fn place(world: &World) -> String {
    let attempt = world.run(&["attempt", "show", "a"])["attempt"].clone();
    world.place(&attempt).display().to_string()
}

#[test]
fn changes_of_both_sides_are_merged_line_by_line() {
    let world = with_edits("1\n2\n3\n4\n5\n6\n", "one\\n2\\n3\\n4\\n5\\n6\\n", "1\n2\n3\n4\n5\nsix\n");
    let kept = world.run(&["attempt", "keep", "a"]);
    assert_eq!(world.read("text"), "one\n2\n3\n4\n5\nsix\n");
    assert_eq!((world.read("made/file").as_str(), world.read("theirs").as_str()), ("new\n", "theirs\n"));
    assert_eq!((&kept["merged"][0], &kept["changed_in_project"][0]), (&"text".into(), &"theirs".into()));
    // A later edit of the merged file is not lost.
    world.write("text", "later\n");
    let refused = world.answer(&["undo"]);
    assert_eq!(refused["error"]["code"], "changed_since_rollback", "{refused:#}");
    world.write("text", "one\n2\n3\n4\n5\nsix\n");
    world.run(&["undo"]);
    assert_eq!(world.read("text"), "1\n2\n3\n4\n5\nsix\n");
    assert!(!world.project().join("made").exists());
    world.run(&["redo"]);
    assert_eq!(world.read("text"), "one\n2\n3\n4\n5\nsix\n");
}

#[test]
fn a_conflict_changes_nothing_and_names_the_paths() {
    let world = with_edits("1\n", "ours\\n", "theirs\n");
    let before = world.image(&world.project());
    let answer = world.answer(&["attempt", "keep", "a"]);
    assert_eq!((&answer["error"]["code"], &answer["exit_code"]), (&"attempt_conflict".into(), &12.into()));
    assert!(answer["error"]["message"].as_str().unwrap().ends_with("both changed: text"), "{answer:#}");
    assert!(world.image(&world.project()).difference(&before).is_empty());
    // It can go on: with the same text on both sides it is kept.
    world.write("text", "ours\n");
    world.run(&["attempt", "keep", "a"]);
    assert_eq!((world.read("text").as_str(), world.read("made/file").as_str()), ("ours\n", "new\n"));
}

#[test]
fn times_below_a_deleted_folder_are_no_conflict() {
    let world = World::new(User::Own);
    for name in ["ours/deep/file", "theirs/deep/file", "edited/deep/file"] {
        world.write(name, "old\n");
    }
    world.start("a", Means::Copy);
    let line = format!("cd {}; rm -r ours edited; touch theirs/deep/file", place(&world));
    world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    world.shell("touch ours/deep/file; rm -r theirs; echo new > edited/deep/file", &world.project());
    let refused = world.answer(&["attempt", "keep", "a"]);
    assert!(refused["error"]["message"].as_str().unwrap().ends_with("both changed: edited"), "{refused:#}");
    world.write("edited/deep/file", "old\n");
    world.run(&["attempt", "keep", "a"]);
    for name in ["ours", "theirs", "edited"] {
        assert!(!world.project().join(name).exists(), "{name}");
    }
}

#[test]
fn a_file_that_only_the_project_changed_is_not_taken_back() {
    let world = World::new(User::Own);
    world.write("a", "old\n");
    world.write("b", "old\n");
    world.start("a", Means::Best);
    let line = format!("cd {}; echo new > b", place(&world));
    world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    world.write("a", "newer\n");
    // The mount may show the edit; the result has the base.
    let shown = world.run(&["attempt", "show", "a"])["attempt"].clone();
    assert_eq!(shown["changes"]["modified"], 1);
    world.run(&["attempt", "keep", "a"]);
    assert_eq!((world.read("a").as_str(), world.read("b").as_str()), ("newer\n", "new\n"));
}

#[test]
fn safepoint_inside_works_on_the_attempts_own_line() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    world.run(&["create", "-m", "first"]);
    let before = world.run(&["list"])["checkpoints"].as_array().unwrap().len();
    world.start("a", Means::Best);
    let program = world.program.display();
    let line = format!(
        "set -e; echo one > file; {program} create -m one -q; echo two > file; {program} create -m two -q
         {program} metric accuracy=0.5 -q; {program} rollback one -q; test \"$(cat file)\" = one
         {program} undo -q; test \"$(cat file)\" = two; {program} diff one --stat; {program} status -q
         mkdir deep; cd deep; {program} diff --name-only; ! {program} attempt start b
         env -u SAFEPOINT_ATTEMPT {program} list > ../listed"
    );
    let answer = world.answer(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert_eq!(answer["data"]["attempt"]["metrics"]["accuracy"], 0.5);
    assert_eq!(world.run(&["list"])["checkpoints"].as_array().unwrap().len(), before, "the project's line");
    assert_eq!(world.read("file"), "old\n");
    assert!(!world.project().join(".safepoint").exists());
    world.run(&["attempt", "keep", "a"]);
    assert_eq!(world.read("file"), "two\n");
    let listed = world.read("listed");
    assert!(listed.contains("one") && listed.contains("two") && !listed.contains("first"), "{listed}");
}

#[test]
fn a_process_that_outlives_its_command_is_named_and_ended() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    world.start("a", Means::Best);
    // Until its `execve` the child has the name of the shell.
    let line = "sleep 300 < /dev/null > /dev/null 2>&1 &
        until read name < /proc/$!/comm && test \"$name\" = sleep; do sleep 0.01; done; echo $! > pid";
    let answer = world.run(&["attempt", "exec", "a", "--", "setsid", "sh", "-c", line]);
    let processes = answer["attempt"]["processes"].as_array().unwrap();
    assert_eq!((processes.len(), &processes[0]["name"]), (1, &"sleep".into()));
    // A second command joins the same namespace.
    let joined =
        world.answer(&["attempt", "exec", "a", "--", "sh", "-c", "test -s pid && echo more >> file"]);
    assert_eq!(joined["exit_code"], 0, "{joined:#}");
    let pid = processes[0]["pid"].as_i64().unwrap();
    world.run(&["attempt", "drop", "a"]);
    let since = Instant::now();
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(since.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((world.rooms(), world.read("file").as_str()), (0, "old\n"));
}

#[test]
fn what_was_dropped_is_in_a_checkpoint() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    world.start("a", Means::Best);
    let line = format!("cd {}; echo new > file", place(&world));
    world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    let dropped = world.run(&["attempt", "drop", "a"])["attempts"][0].clone();
    let output = world.output(&["cat", dropped["result"].as_str().unwrap(), "file"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "new\n");
    assert_eq!(world.answer(&["attempt", "keep", "a"])["error"]["code"], "attempt_closed");
}

#[test]
fn the_base_of_an_open_attempt_is_never_deleted() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    let attempt = world.start("a", Means::Best);
    let base = attempt["base"].as_str().unwrap();
    assert_eq!(world.answer(&["--yes", "delete", base])["error"]["code"], "needed");
    world.run(&["prune", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s"]);
    world.run(&["gc", "--thorough"]);
    world.run(&["attempt", "keep", "a"]);
}

#[test]
fn caches_and_ignored_files_stay_out_of_the_result() {
    let world = World::new(User::Own);
    world.write("src/main", "1\n");
    world.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    world.write("target/old", "1\n");
    world.write(".safepointignore", "*.log\n");
    world.write("a.log", "1\n");
    world.start("a", Means::Best);
    let line = format!(
        "cd {}; echo 2 > target/new; echo 2 > a.log; echo 2 > src/b.log; echo 2 > src/main",
        place(&world)
    );
    world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    let shown = world.run(&["attempt", "show", "a"])["attempt"].clone();
    assert_eq!(shown["changes"], serde_json::json!({ "added": 0, "modified": 1, "removed": 0 }));
    world.run(&["attempt", "keep", "a"]);
    assert_eq!((world.read("src/main").as_str(), world.read("a.log").as_str()), ("2\n", "1\n"));
    assert!(!world.project().join("target/new").exists());
}

#[test]
fn the_rest_of_the_file_system_can_be_read_only() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    let outside = world.folder.join("outside");
    fs::create_dir_all(outside.join("open")).unwrap();
    world.start("a", Means::Best);
    let open = outside.join("open").display().to_string();
    let line = format!(
        "echo new > file && echo t > $TMPDIR/t && echo o > {open}/o && ! echo bad > {}/bad",
        outside.display()
    );
    let args =
        ["attempt", "exec", "a", "--outside", "read-only", "--writable", &open, "--", "sh", "-c", &line];
    let answer = world.answer(&args);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert!(outside.join("open/o").exists() && !outside.join("bad").exists());
    world.run(&["attempt", "keep", "a"]);
    assert_eq!(world.read("file"), "new\n");
}

/// Returns true while a process runs that is no zombie.
fn runs(pid: i64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Leaves a process in an attempt. Returns its id.
fn leave_process(world: &World, attempt: &str) -> i64 {
    let line = "sleep 300 < /dev/null > /dev/null 2>&1 &
        until read name < /proc/$!/comm && test \"$name\" = sleep; do sleep 0.01; done";
    let answer = world.run(&["attempt", "exec", attempt, "--", "setsid", "sh", "-c", line]);
    let processes = answer["attempt"]["processes"].as_array().unwrap();
    assert_eq!((processes.len(), &processes[0]["name"]), (1, &"sleep".into()), "{answer:#}");
    processes[0]["pid"].as_i64().unwrap()
}

fn ends(pid: i64) {
    let since = Instant::now();
    while runs(pid) {
        assert!(since.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_process_that_a_command_left_in_a_copy_is_named_and_ended() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    world.start("a", Means::Copy);
    let place = place(&world);
    let pid = leave_process(&world, "a");
    // The shell of a user in the folder is none of the attempt.
    let mut own = world.program(std::path::Path::new("sleep"), &["300"]).current_dir(&place).spawn().unwrap();
    let shown = world.run(&["attempt", "show", "a"])["attempt"]["processes"].clone();
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown:#}");
    world.run(&["attempt", "drop", "a"]);
    ends(pid);
    let is_running = own.try_wait().unwrap().is_none();
    own.kill().unwrap();
    own.wait().unwrap();
    assert!(is_running, "a process of the user was ended");
    assert_eq!(world.rooms(), 0);
}

#[test]
fn a_refused_keep_ends_no_process() {
    let means = [Means::Best, Means::Copy];
    for means in means {
        let world = World::new(User::Own);
        world.write("text", "1\n");
        for name in ["a", "b"] {
            world.start(name, means);
        }
        let line = format!("cd {}; echo ours > text", place(&world));
        world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
        world.write("text", "theirs\n");
        let pids = [leave_process(&world, "a"), leave_process(&world, "b")];
        let refused = world.answer(&["attempt", "keep", "a"]);
        assert_eq!(refused["error"]["code"], "attempt_conflict", "{refused:#}");
        assert!(pids.into_iter().all(runs), "{means:?}: a process was ended");
        world.write("text", "ours\n");
        let kept = world.run(&["attempt", "keep", "a"]);
        assert_eq!(kept["ended"].as_array().unwrap().len(), 2, "{kept:#}");
        pids.into_iter().for_each(ends);
        assert_eq!(world.rooms(), 0);
    }
}

#[test]
fn a_command_that_comes_while_its_attempt_is_dropped_does_not_run() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    let attempt = world.start("a", Means::Best);
    // It ignores the request to end, so that the drop takes a while.
    let (ready, ran) = (world.folder.join("ready"), world.folder.join("ran"));
    let stubborn = format!("trap '' TERM; echo > {}; while :; do sleep 1; done", ready.display());
    let mut stubborn =
        world.command(&["attempt", "exec", "a", "--", "setsid", "sh", "-c", &stubborn]).spawn().unwrap();
    let since = Instant::now();
    while !ready.exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "the command did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut dropping = world.command(&["attempt", "drop", "a"]).spawn().unwrap();
    let locked = || {
        let lock = std::path::Path::new(attempt["room"].as_str().unwrap()).join("lock");
        let file = fs::File::open(lock).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    };
    while !locked() {
        assert!(since.elapsed() < Duration::from_secs(60), "the drop did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let line = format!("echo > {}; echo late > late", ran.display());
    let answer = world.answer(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
    assert_eq!(answer["error"]["code"], "attempt_closed", "{answer:#}");
    assert!(dropping.wait().unwrap().success() && !ran.exists());
    stubborn.wait().unwrap();
    assert_eq!(world.rooms(), 0);
}

#[test]
fn a_command_that_joins_others_has_the_access_that_it_asks_for() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    if !world.has_overlay() {
        eprintln!("left out: this machine gives no overlay");
        return;
    }
    world.start("a", Means::Best);
    let pid = leave_process(&world, "a");
    let bad = world.folder.join("bad");
    let write = format!("echo new >> file && ! echo bad > {}", bad.display());
    let read_only = |line: &str| {
        world.answer(&["attempt", "exec", "a", "--outside", "read-only", "--", "sh", "-c", line])
    };
    let answer = read_only(&write);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert!(!bad.exists());
    // The others keep theirs.
    let real = format!("echo more >> file && echo good > {}", bad.display());
    let answer = world.answer(&["attempt", "exec", "a", "--", "sh", "-c", &real]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert!(bad.exists());
    // With none but closed namespaces, more access is refused.
    let left = "sleep 300 < /dev/null > /dev/null 2>&1 & echo $! > left";
    assert_eq!(read_only(&format!("setsid sh -c '{left}'"))["exit_code"], 0);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    ends(pid);
    let refused = world.answer(&["attempt", "exec", "a", "--", "true"]);
    assert_eq!(refused["error"]["code"], "room", "{refused:#}");
    assert_eq!(read_only("echo again >> file")["exit_code"], 0);
    world.run(&["attempt", "keep", "a"]);
    assert_eq!(world.read("file"), "old\nnew\nmore\nagain\n");
}

#[test]
fn a_copy_refuses_a_read_only_file_system() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    let args = ["try", "--copy", "--outside", "read-only", "--attempts", "2", "--later", "--", "true"];
    let refused = world.answer(&args);
    assert_eq!(refused["error"]["code"], "room", "{refused:#}");
    let open = world.run(&["attempt", "list"])["attempts"].clone();
    assert_eq!((open, world.rooms()), (serde_json::json!([]), 0));
}

/// Commits the whole folder with git.
const COMMIT: &str = "git add -A && git -c user.name=a -c user.email=a@b commit -qm work";

#[test]
fn a_room_stays_only_for_refs_of_its_own_and_goes_with_consent() {
    for means in [Means::Best, Means::Copy] {
        let world = World::new(User::Own);
        world.write("file", "old\n");
        world.shell(&format!("git init -q . && {COMMIT}"), &world.project());
        for name in ["a", "b"] {
            world.start(name, means);
        }
        // A commit of the project alone is none of the attempts; nor are packed refs.
        world.write("file", "new\n");
        world.shell(COMMIT, &world.project());
        let attempts = world.run(&["attempt", "list"])["attempts"].clone();
        let places: Vec<String> = (0..2).map(|at| world.place(&attempts[at]).display().to_string()).collect();
        let line = format!("cd {}; git pack-refs --all", places[0]);
        world.run(&["attempt", "exec", "a", "--", "sh", "-c", &line]);
        world.run(&["attempt", "drop", "a"]);
        assert_eq!(world.rooms(), 1, "{means:?}");
        let line = format!("cd {}; echo more > more; {COMMIT}", places[1]);
        world.run(&["attempt", "exec", "b", "--", "sh", "-c", &line]);
        let answer = world.answer(&["attempt", "drop", "b"]);
        let told = answer["messages"].to_string();
        assert!(told.contains("safepoint attempt drop 2 --delete-commits"), "{means:?}: {answer:#}");
        world.run(&["recover"]);
        assert_eq!(world.rooms(), 1, "{means:?}: the commit is deleted");
        world.run(&["attempt", "drop", "2", "--delete-commits"]);
        assert_eq!(world.rooms(), 0, "{means:?}");
    }
}

#[test]
fn usage_shows_layers_and_copies_and_gc_deletes_rooms_that_were_left() {
    let world = World::new(User::Own);
    world.write("file", "old\n");
    world.shell(&format!("git init -q . && {COMMIT}"), &world.project());
    let overlay = world.start("layer", Means::Best)["kind"] == "overlay";
    let copy = world.start("copy", Means::Copy);
    for name in ["layer", "copy"] {
        world.run(&["attempt", "exec", name, "--", "sh", "-c", "seq 50000 > large"]);
    }
    let space = world.run(&["usage"])["attempts"].clone();
    assert_eq!(space["rooms"], 2, "{space:#}");
    assert!(space["copy_bytes"].as_u64().unwrap() > 200_000, "{space:#}");
    assert_eq!(space["layer_bytes"].as_u64().unwrap() > 200_000, overlay, "{space:#}");
    let told = String::from_utf8(world.output(&["usage"]).stdout).unwrap();
    assert!(told.contains("in copies of attempts") && told.contains("2 attempts"), "{told}");
    assert!(!told.contains("home/attempts"), "{told}");
    let line = format!("cd {}; {COMMIT}", world.place(&copy).display());
    world.run(&["attempt", "exec", "copy", "--", "sh", "-c", &line]);
    for name in ["layer", "copy"] {
        world.run(&["attempt", "drop", name]);
    }
    assert_eq!(world.rooms(), 1, "the commit is deleted");
    fs::remove_dir_all(world.place(&copy).join(".git")).unwrap();
    world.run(&["gc"]);
    assert_eq!(world.rooms(), 0);
}

#[test]
fn the_table_has_lines_and_metrics() {
    let world = World::new(User::Own);
    world.write("file", "1\n2\n");
    let place = |attempt: &serde_json::Value| world.place(attempt).display().to_string();
    let program = world.program.display();
    for (name, number) in [("one", 1), ("two", 2)] {
        let attempt = world.start(name, Means::Best);
        let line = format!(
            "cd {}; echo 3 > file; seq {number} > made; {program} metric score={number} -q",
            place(&attempt)
        );
        world.run(&["attempt", "exec", name, "--", "sh", "-c", &line]);
    }
    for command in ["list", "compare"] {
        let told = String::from_utf8(world.output(&["attempt", command]).stdout).unwrap();
        let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((lines[0][6], lines[0].last()), ("LINES", Some(&"score")), "{told}");
        assert!(told.contains("+2 -2") && told.contains("+3 -2"), "{told}");
        assert_eq!((lines[1].last(), lines[2].last()), (Some(&"1"), Some(&"2")), "{told}");
    }
}
