//! Laws that detect planted bugs. Each is a short form of another loop or law: few points, few files, the
//! same oracle.

use crate::scene::{Act, Scene};
use crate::world::{World, noise};
use rustix::fs::{FlockOperation, Timespec, Timestamps, flock, utimensat};
use safepoint::model::thread::ThreadValue;
use safepoint::{CheckpointManager, CreateOptions, Depth, Filter, NewState, RoleFilter, Silent};
use safepoint_testkit::{Action, Call, Disk, End, Op, Program, calls, drive, every_cut, kill_at, record};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;
use std::time::{Duration, Instant};

const EIO: i32 = 5;

// ---- Power.

/// Checks that the next checkpoint of the same files is intact, whatever the index claims.
fn goes_on(scene: &Scene) -> Result<(), String> {
    let failed = |error: safepoint::Error| error.to_string();
    let (manager, workspace) = scene.open();
    let next = manager.create(&workspace, &CreateOptions::default(), &Silent).map_err(failed)?.checkpoint;
    let validation = manager.upkeep().validate(Some(&next), Depth::Deep, &Silent).map_err(failed)?;
    if validation.is_valid() { Ok(()) } else { Err(format!("the next one is not whole: {validation:?}")) }
}

fn power(act: Act) {
    let scene = Scene::new(act);
    scene.reset();
    let start = Disk::load(&scene.roots()).unwrap();
    let recording = record(&scene.verb(), &scene.roots()).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    let count = recording.ops.len();
    every_cut(&start, &recording, 0, 7, |cut| {
        // A lost sync shows right after it and at the end; of the rest, every fifth operation is enough.
        let (last_ones, synced) = (count - cut.done < 8, cut.after.is_some_and(Op::is_sync));
        if !(last_ones || synced || cut.done % if act == Act::Create { 2 } else { 5 } == 0) {
            return Ok(());
        }
        cut.image.lay_out()?;
        let broken = |why: String| std::io::Error::other(format!("{cut:?}: {why}"));
        scene.law(cut.last).map_err(broken)?;
        if act == Act::Create { goes_on(&scene).map_err(broken) } else { Ok(()) }
    })
    .unwrap_or_else(|broken| panic!("{}", broken.to_string().chars().take(600).collect::<String>()));
}

#[test]
fn create_after_a_power_cut_is_there_or_not() {
    power(Act::Create);
}

#[test]
fn rollback_after_a_power_cut_is_old_or_new() {
    power(Act::Rollback);
}

#[test]
fn rollback_of_many_files_after_a_power_cut_is_old_or_new() {
    power(Act::RollbackMany);
}

#[test]
fn the_first_checkpoint_after_a_power_cut_is_there_or_not() {
    let world = World::new();
    world.write("file", noise(1, 5_000));
    world.run(&["init"]);
    let roots = [world.path("home"), world.path("project")];
    let start = Disk::load(&roots).unwrap();
    let recording = record(&world.program(&["create", "--kind", "manual"]), &roots).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    every_cut(&start, &recording, 0, 7, |cut| {
        if !cut.last {
            return Ok(());
        }
        cut.image.lay_out()?;
        let whole = world.is_whole();
        if whole { Ok(()) } else { Err(std::io::Error::other(format!("{:?}: it is not whole", cut.how))) }
    })
    .unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn recovery_after_a_power_cut_is_old_or_new() {
    let scene = Scene::new(Act::Rollback);
    scene.reset();
    let swaps = swaps(&calls(&scene.verb()).unwrap().0);
    scene.reset();
    let end = kill_at(&scene.verb(), swaps.last().unwrap() + 1).unwrap();
    assert!(matches!(end, End::Killed { .. }), "{end:?}");
    let start = Disk::load(&scene.roots()).unwrap();
    let recording = record(&scene.recovery(), &scene.roots()).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    let cut = every_cut(&start, &recording, 0, 7, |cut| {
        cut.image.lay_out()?;
        scene.law(false).map(drop).map_err(|why| std::io::Error::other(format!("{:?}: {why}", cut.how)))
    });
    cut.unwrap_or_else(|broken| panic!("{}", broken.to_string().chars().take(600).collect::<String>()));
}

/// Kills a capture after it wrote to a pack and before the sync, and lists what the next command does.
#[test]
fn a_tail_of_a_killed_writer_is_durable_before_it_is_indexed() {
    let world = World::new();
    world.write("file", noise(1, 5_000));
    world.run(&["create"]);
    world.write("file", noise(2, 5_000));
    let is_sync_of_pack = |call: &Call| call.name.contains("sync") && call.detail.contains(".pack");
    let end =
        drive(
            &world.program(&["create"]),
            |call| {
                if is_sync_of_pack(call) { Action::Kill } else { Action::Go }
            },
        );
    assert!(matches!(end.unwrap(), End::Killed { .. }));
    let (calls, end) = calls(&world.program(&["validate"])).unwrap();
    assert!(matches!(end, End::Exited { .. }), "{end:?}");
    let synced = calls.iter().position(is_sync_of_pack);
    let indexed =
        calls.iter().position(|call| call.name.contains("write") && call.detail.contains("index.db-wal"));
    let (Some(synced), Some(indexed)) = (synced, indexed) else {
        panic!("{synced:?} {indexed:?} {calls:#?}")
    };
    assert!(synced < indexed, "indexed at {indexed}, durable at {synced}");
}

// ---- Kills and faults.

/// Calls that exchange or rename entries.
fn swaps(calls: &[Call]) -> Vec<u64> {
    calls.iter().filter(|call| is_swap(call)).map(|call| call.index).collect()
}

fn killed(act: Act, step: usize) {
    let scene = Scene::new(act);
    scene.reset();
    let points = calls(&scene.verb()).unwrap().0.len() as u64;
    for point in (1..=points + 1).rev().step_by(step) {
        scene.reset();
        let end = kill_at(&scene.verb(), point).unwrap();
        let done = !matches!(end, End::Killed { .. });
        assert!(!done || end.is_success(), "{end:?}");
        scene.law(done).unwrap_or_else(|broken| panic!("killed at {end:?}: {broken}"));
    }
}

#[test]
fn create_killed_anywhere_is_there_or_not() {
    killed(Act::Create, 2);
}

#[test]
fn a_state_killed_anywhere_is_there_with_its_files_or_not() {
    killed(Act::SaveState, 4);
}

#[test]
fn rollback_of_a_conversation_killed_anywhere_is_old_or_new() {
    killed(Act::RollbackThread, 8);
}

#[test]
fn rollback_killed_anywhere_is_old_or_new() {
    killed(Act::Rollback, 3);
}

/// Fails the call with this number, from zero, among the selected ones. Returns the exit code and the failed
/// call, if any. Call order alone varies between runs, because a separate thread writes the cache.
fn fail_one(program: &Program, meant: fn(&Call) -> bool, number: usize) -> (i32, Option<Call>) {
    let (mut seen, mut failed) = (0, None);
    let end = drive(program, |call| {
        if !meant(call) {
            return Action::Go;
        }
        seen += 1;
        if seen != number + 1 {
            return Action::Go;
        }
        failed = Some(call.clone());
        Action::Fail(EIO)
    });
    let End::Exited { code, .. } = end.unwrap() else { panic!("it was killed") };
    (code, failed)
}

fn is_swap(call: &Call) -> bool {
    call.name.starts_with("rename") && !call.detail.contains("robe-") && !call.detail.contains("stage-")
}

/// Returns true unless it syncs the index, a cache.
fn is_sync(call: &Call) -> bool {
    call.name.contains("sync") && !call.detail.contains("index.db")
}

#[test]
fn a_rollback_that_fails_halfway_puts_everything_back() {
    let scene = Scene::new(Act::Rollback);
    for number in 0.. {
        scene.reset();
        let (code, failed) = fail_one(&scene.verb(), is_swap, number);
        let Some(call) = failed else { return assert!(number > 3, "{number}") };
        let is_new = scene.law(code == 0).unwrap_or_else(|broken| panic!("{call}: {broken}"));
        assert_eq!(is_new, code == 0, "{call}");
    }
}

#[test]
fn a_failed_sync_is_never_success() {
    for act in [Act::Create, Act::Rollback] {
        let scene = Scene::new(act);
        for number in 0.. {
            scene.reset();
            let (code, failed) = fail_one(&scene.verb(), is_sync, number);
            let Some(call) = failed else {
                assert!(number > 1, "{number}");
                break;
            };
            let is_new = scene.law(code == 0).unwrap_or_else(|broken| panic!("{call}: {broken}"));
            // After the commit the catalog settles the record and moves its log: the command is still done.
            let of_catalog = call.detail.contains("catalog.db") || call.detail.ends_with("home\"");
            assert!(code != 0 || (of_catalog && is_new), "{call} failed, but the command succeeded");
        }
    }
}

#[test]
fn after_a_failed_sync_the_next_checkpoint_is_whole() {
    let world = World::new();
    world.write("file", noise(1, 5_000));
    world.create();
    world.write("file", noise(2, 5_000));
    let sync = |call: &Call| call.name == "fdatasync" && call.detail.contains(".pack");
    let mut failed = false;
    let end = drive(&world.program(&["create", "--kind", "manual"]), |call| {
        let now = sync(call) && !failed;
        failed |= now;
        if now { Action::Fail(EIO) } else { Action::Go }
    });
    let End::Exited { code, .. } = end.unwrap() else { panic!("it was killed") };
    assert!(failed && code != 0, "exit {code}");
    world.create();
    world.check_whole();
}

// ---- The store and the catalog.

#[test]
fn a_flipped_byte_is_never_given_out() {
    let world = World::new();
    let good = noise(3, 600);
    world.write("file", &good);
    world.create();
    let pack = fs::read_dir(world.path("home/store/packs")).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&pack).unwrap();
    // Incompressible content is stored literally.
    let at = bytes.windows(good.len()).position(|window| window == good).expect("stored literally");
    for offset in [0, good.len() / 2, good.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at + offset] ^= 1;
        fs::write(&pack, &damaged).unwrap();
        let output = world.output(&["cat", "@", "file"]);
        assert!(!output.status.success(), "wrong byte {offset} was returned");
        assert_ne!(world.code(&["validate", "@", "--deep"]), 0);
    }
}

#[test]
fn the_store_stays_within_its_cap() {
    let world = World::new();
    world.write("file", noise(1, 1_000));
    world.create();
    fs::write(world.path("home/config.toml"), "[store]\ncap = \"4MiB\"\n").unwrap();
    world.write("file", noise(2, 8 << 20));
    let answer = world.json(&["create", "--kind", "manual"]);
    assert_eq!(answer["error"]["code"], "capped", "{answer}");
}

#[test]
fn the_history_is_a_chain() {
    let world = World::new();
    for round in 0..3 {
        world.write("file", round.to_string());
        world.create();
    }
    let doctor = world.json(&["doctor"]);
    let check = |check: &&serde_json::Value| check["name"] == "history";
    let history = doctor["data"]["checks"].as_array().unwrap().iter().find(check).unwrap();
    assert_eq!(history["status"], "ok", "{history}");
}

#[test]
fn an_edited_history_is_noticed() {
    let world = World::new();
    world.write("file", "1");
    world.create();
    let catalog = rusqlite::Connection::open(world.path("home/catalog.db")).unwrap();
    assert_eq!(catalog.execute("UPDATE events SET at = at + 1 WHERE seq = 2", ()).unwrap(), 1);
    drop(catalog);
    assert_ne!(world.code(&["doctor"]), 0);
}

#[test]
fn the_head_follows_every_checkpoint_and_rollback() {
    let world = World::new();
    let head = || {
        let manager = CheckpointManager::open(&world.path("home")).unwrap();
        let workspace = manager.workspaces().around(&world.path("project")).unwrap().unwrap();
        workspace.head.map(|id| id.to_string())
    };
    world.write("file", "1");
    let first = world.create();
    assert_eq!(head(), Some(first.clone()));
    world.write("file", "2");
    let second = world.create();
    assert_eq!(head(), Some(second));
    world.run(&["rollback", &first]);
    assert_eq!(head(), Some(first));
}

#[test]
fn what_an_unfinished_rollback_needs_is_not_deleted() {
    let scene = Scene::new(Act::Rollback);
    scene.reset();
    let swap = swaps(&calls(&scene.verb()).unwrap().0)[1];
    scene.reset();
    assert!(matches!(kill_at(&scene.verb(), swap).unwrap(), End::Killed { .. }));
    let (manager, workspace) = scene.open();
    let record = manager.rollbacks(&workspace).unwrap().pop().unwrap();
    for needed in [record.safety_checkpoint.unwrap(), record.to] {
        assert!(manager.checkpoints().delete(&[needed]).is_err(), "{needed} was deleted");
    }
    drop(manager);
    scene.law(false).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn an_applied_plan_is_not_rolled_back() {
    let world = World::new();
    world.write("file", "1");
    // Without a sandbox: a missing one would also be a reason.
    let plan = "title = \"t\"\nid = \"p\"\n[[step]]\nid = \"a\"\nrun = \"echo 2 > file\"\n";
    world.write("../plan.toml", plan);
    world.run(&["plan", "new", "../plan.toml"]);
    world.run(&["plan", "checkpoint", "create", "p", "-m", "before"]);
    world.run(&["plan", "run", "p"]);
    world.run(&["plan", "apply", "p"]);
    assert_eq!(world.read("file"), "2\n");
    assert_ne!(world.code(&["plan", "rollback", "p", "before", "--yes"]), 0);
    assert_eq!(world.read("file"), "2\n");
}

// ---- A capture.

#[test]
fn an_edit_is_captured() {
    let world = World::new();
    world.write("file", "one\n");
    world.create();
    std::thread::sleep(Duration::from_millis(80));
    world.create();
    world.write("file", "another\n");
    world.create();
    assert_eq!(world.run(&["cat", "@", "file"]), "another\n");
}

#[test]
fn an_edit_with_the_old_time_is_captured() {
    let world = World::new();
    world.write("file", "one\n");
    let path = world.path("project/file");
    let before = fs::metadata(&path).unwrap();
    std::thread::sleep(Duration::from_millis(80));
    world.create();
    fs::write(&path, "two\n").unwrap();
    let old = Timespec { tv_sec: before.mtime(), tv_nsec: before.mtime_nsec() };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    world.create();
    assert_eq!(world.run(&["cat", "@", "file"]), "two\n");
}

#[test]
fn a_file_that_never_holds_still_is_unsettled() {
    let world = World::new();
    world.write("large", noise(1, 24 << 20));
    let file = File::options().write(true).open(world.path("project/large")).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    let code = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u64;
            while !is_over() {
                round += 1;
                file.write_all_at(&round.to_le_bytes(), 1000).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let code = world.code(&["create", "--kind", "manual"]);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        code
    });
    assert_eq!(code, 3, "a concurrent change was not reported");
}

#[test]
fn a_workspace_that_another_process_holds_is_busy() {
    let world = World::new();
    world.write("file", "one\n");
    world.create();
    let held = File::open(world.path("project")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    for args in [&["create", "--kind", "manual"][..], &["rollback", "@"]] {
        assert_eq!(world.code(args), 11, "{args:?}");
    }
}

// ---- The protocol of a rollback.

/// Prepares a rollback that restores `file` ("good") and the deleted `gone`.
fn wrecked() -> World {
    let world = World::new();
    world.write("file", "good\n");
    world.write("gone", "gone\n");
    world.create();
    world.write("file", "bad\n");
    fs::remove_file(world.path("project/gone")).unwrap();
    world
}

/// Runs a rollback; calls `meddle` once, right before the first swap whose detail contains this text.
fn meddled(world: &World, text: &str, meddle: impl Fn() + Sync) -> (i32, String) {
    let mut done = false;
    let end = drive(&world.program(&["rollback", "@"]), |call| {
        if is_swap(call) && call.detail.contains(text) && !done {
            done = true;
            meddle();
        }
        Action::Go
    });
    let End::Exited { code, stdout, stderr } = end.unwrap() else { panic!("it was killed") };
    assert!(done, "the call was not seen");
    (code, String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// Returns the files in the active stage.
fn slots(world: &World) -> Vec<std::path::PathBuf> {
    let own = world.path("project/.safepoint");
    let stages = fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
    let stages = stages.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("apply-"));
    stages.flat_map(|stage| fs::read_dir(stage).unwrap().map(|entry| entry.unwrap().path())).collect()
}

#[test]
fn a_disk_that_changes_what_was_staged_is_noticed() {
    let world = wrecked();
    let (code, told) = meddled(&world, "EXCHANGE", || {
        for slot in slots(&world) {
            if fs::read(&slot).unwrap() == b"good\n" {
                let before = fs::metadata(&slot).unwrap();
                fs::write(&slot, "evil\n").unwrap();
                let old = Timespec { tv_sec: before.mtime(), tv_nsec: before.mtime_nsec() };
                let times = Timestamps { last_access: old, last_modification: old };
                utimensat(rustix::fs::CWD, &slot, &times, rustix::fs::AtFlags::empty()).unwrap();
            }
        }
    });
    assert_ne!(code, 0, "{told}");
    assert_eq!(world.read("file"), "bad\n", "{told}");
}

/// Returns true if these bytes are in the workspace or in a checkpoint.
fn is_kept(world: &World, bytes: &str) -> bool {
    world.output(&["recover"]);
    let project = fs::read_dir(world.path("project")).unwrap().map(|entry| entry.unwrap().path());
    if project.filter(|path| path.is_file()).any(|path| fs::read(path).unwrap() == bytes.as_bytes()) {
        return true;
    }
    let manager = CheckpointManager::open(&world.path("home")).unwrap();
    let all = manager.checkpoints().list(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap();
    all.iter().any(|checkpoint| {
        let id = checkpoint.id.to_string();
        ["file", "gone"].iter().any(|name| world.output(&["cat", &id, name]).stdout == bytes.as_bytes())
    })
}

#[test]
fn a_file_that_appears_in_the_instant_of_the_swap_is_kept() {
    let world = wrecked();
    let (code, told) = meddled(&world, "gone", || world.write("gone", "mine\n"));
    assert_eq!(code, 0, "{told}");
    assert!(is_kept(&world, "mine\n"), "{told}");
}

#[test]
fn an_edit_in_the_instant_of_the_swap_is_rescued() {
    let world = wrecked();
    let (code, told) = meddled(&world, "EXCHANGE", || world.write("file", "mine\n"));
    assert_eq!((code, world.read("file").as_str()), (0, "good\n"), "{told}");
    assert!(is_kept(&world, "mine\n"), "{told}");
}

#[test]
fn an_edit_after_the_swap_stays_and_is_reported() {
    let world = wrecked();
    let (mut swapped, mut edited) = (false, false);
    let end = drive(&world.program(&["rollback", "@", "--json"]), |call| {
        if swapped && !edited && call.name == "fsync" {
            edited = true;
            world.write("file", "mine\n");
        }
        swapped |= is_swap(call) && call.detail.contains("EXCHANGE");
        Action::Go
    });
    let End::Exited { stdout, .. } = end.unwrap() else { panic!("it was killed") };
    let answer: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    assert!(edited, "{answer}");
    assert_eq!(answer["data"]["rollback"]["changed_meanwhile"], serde_json::json!(["file"]), "{answer}");
    assert_eq!(world.read("file"), "mine\n");
}

#[test]
fn an_edit_that_is_rescued_survives_a_kill_anywhere() {
    for later in (0..60).step_by(2) {
        let world = wrecked();
        let mut edited_at = None;
        let end = drive(&world.program(&["rollback", "@"]), |call| {
            let probe = call.detail.contains("robe-");
            if edited_at.is_none()
                && call.name.starts_with("rename")
                && call.detail.contains("EXCHANGE")
                && !probe
            {
                edited_at = Some(call.index);
                world.write("file", "mine\n");
            }
            if edited_at.is_some_and(|at| call.index == at + 1 + later) { Action::Kill } else { Action::Go }
        });
        let end = end.unwrap();
        assert!(is_kept(&world, "mine\n"), "killed {later} calls after the edit: {end:?}");
        if !matches!(end, End::Killed { .. }) {
            assert!(later > 10, "{end:?}");
            return;
        }
    }
}

#[test]
fn what_is_written_into_a_displaced_file_is_kept() {
    let world = wrecked();
    let mut open = File::options().append(true).open(world.path("project/file")).unwrap();
    world.output(&["rollback", "@"]);
    open.write_all(b"and more\n").unwrap();
    drop(open);
    assert!(is_kept(&world, "bad\nand more\n"));
}

#[test]
fn what_was_never_captured_is_not_touched() {
    let world = World::new();
    world.write(".safepointignore", "*.log\n");
    world.write("file", "1");
    world.create();
    world.write("new/file", "2");
    world.write("new/keep.log", "mine\n");
    world.output(&["rollback", "@"]);
    assert_eq!(world.read("new/keep.log"), "mine\n");
    assert!(!world.path("project/new/file").exists());
}

#[test]
fn what_was_never_captured_is_not_replaced() {
    let world = World::new();
    world.write("thing", "captured\n");
    world.create();
    fs::remove_file(world.path("project/thing")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("project/thing"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    world.write("other", "x");
    assert_ne!(world.code(&["rollback", "@"]), 0);
    assert!(fs::symlink_metadata(world.path("project/thing")).is_ok_and(|meta| !meta.is_file()));
    assert_eq!(world.read("other"), "x");
}

#[test]
fn every_rollback_can_be_undone() {
    let world = wrecked();
    world.run(&["rollback", "@"]);
    assert_eq!(world.read("gone"), "gone\n");
    world.run(&["undo", "--yes"]);
    assert_eq!(world.read("file"), "bad\n");
    assert!(!world.path("project/gone").exists());
    world.run(&["redo", "--yes"]);
    assert_eq!(world.read("file"), "good\n");
}

#[test]
fn a_stage_that_is_not_known_is_left_alone() {
    let world = wrecked();
    world.write(".safepoint/apply-01KG9YS9EGCQT0DH2X3200JHAF/0", "mine\n");
    for args in [&["recover"][..], &["create", "--kind", "manual"], &["status"]] {
        world.output(args);
    }
    assert_eq!(world.read(".safepoint/apply-01KG9YS9EGCQT0DH2X3200JHAF/0"), "mine\n");
}

// ---- Collecting and retention.

/// Creates and deletes a checkpoint of unique bytes, so that they are dead.
fn with_dead_bytes() -> (World, Vec<u8>) {
    let world = World::new();
    let dead = noise(9, 200_000);
    world.write("file", &dead);
    let doomed = world.create();
    world.write("file", noise(10, 1_000));
    world.create();
    world.run(&["delete", &doomed, "--yes"]);
    (world, dead)
}

/// Captures the stored dead bytes, and collects while the capture is about to commit. Returns true if the
/// collection ended within this time, before the capture went on.
fn capture_beside_collecting(wait: Duration) -> (World, bool) {
    let (world, dead) = with_dead_bytes();
    world.write("file", &dead);
    let (go, ended) = (world.path("go"), world.path("ended"));
    // The tracer waits for every child of this process, so files signal the progress of the collection.
    let collect = world.program(&["gc", "--thorough"]);
    let script = "until [ -e \"$1\" ]; do sleep 0.02; done; \"$3\" gc --thorough; touch \"$2\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh"]).args([&go, &ended, &collect.exe]).current_dir(&collect.cwd);
    shell.envs(collect.env.clone()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let mut ended_first = None;
    let end = drive(&world.program(&["create", "--kind", "manual"]), |call| {
        // The objects are durable; what comes next is the commit.
        if call.name.contains("write") && call.detail.contains("catalog.db-wal") && ended_first.is_none() {
            File::create(&go).unwrap();
            ended_first = Some(appears(&ended, wait));
        }
        Action::Go
    });
    let end = end.unwrap();
    assert!(end.is_success(), "{end:?}");
    let ended_first = ended_first.expect("the commit was seen");
    assert!(appears(&ended, Duration::from_secs(50)), "the collection never ended");
    // The tracer may have reaped it already.
    let _ = shell.wait();
    (world, ended_first)
}

/// Returns true if a file appears within this time.
fn appears(path: &std::path::Path, wait: Duration) -> bool {
    let until = Instant::now() + wait;
    while !path.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    path.exists()
}

#[test]
fn a_capture_that_is_under_way_keeps_what_it_found() {
    let (world, ended_first) = capture_beside_collecting(Duration::from_millis(1500));
    assert!(!ended_first, "the collection did not wait");
    world.check_whole();
}

#[test]
fn a_capture_that_ends_while_collecting_waits_keeps_what_it_found() {
    let (world, _) = capture_beside_collecting(Duration::from_millis(1500));
    world.check_whole();
}

#[test]
fn collecting_killed_anywhere_loses_nothing() {
    let (world, _) = with_dead_bytes();
    for name in ["home", "project"] {
        safepoint_testkit::copy_tree(&world.path(name), &world.path(&format!("{name}.before"))).unwrap();
    }
    for point in (1..200).step_by(2) {
        for name in ["home", "project"] {
            fs::remove_dir_all(world.path(name)).unwrap();
            safepoint_testkit::copy_tree(&world.path(&format!("{name}.before")), &world.path(name)).unwrap();
        }
        let end = kill_at(&world.program(&["gc", "--thorough"]), point).unwrap();
        world.check_whole();
        if !matches!(end, End::Killed { .. }) {
            assert!(point > 20 && end.is_success(), "{end:?}");
            return;
        }
    }
}

#[test]
fn an_undo_works_after_collecting() {
    let world = wrecked();
    world.write("file", noise(4, 100_000));
    world.run(&["rollback", "@"]);
    world.run(&["gc", "--thorough"]);
    world.run(&["undo", "--yes"]);
    assert_eq!(fs::read(world.path("project/file")).unwrap(), noise(4, 100_000));
}

#[test]
fn large_files_survive_collecting() {
    let world = World::new();
    world.write("large", noise(5, 6 << 20));
    world.create();
    world.write("large", noise(6, 6 << 20));
    let doomed = world.create();
    world.write("large", noise(5, 6 << 20));
    world.create();
    world.run(&["delete", &doomed, "--yes"]);
    world.run(&["gc", "--thorough"]);
    world.check_whole();
}

/// Saves a batch of a conversation that continues the one before.
fn say(world: &World, number: usize) {
    let manager = CheckpointManager::open(&world.path("home")).unwrap();
    let workspace = manager.workspaces().around(&world.path("project")).unwrap().unwrap();
    let state = NewState {
        id: number.to_string(),
        parent: (number > 0).then(|| (number - 1).to_string()),
        body: ThreadValue::new("text", format!("batch {number}")),
        ..NewState::default()
    };
    manager.threads().of(workspace.id).put("talk", state).unwrap();
}

#[test]
fn conversations_are_whole_after_collecting() {
    let world = World::new();
    world.write("file", "one");
    let doomed = world.create();
    (0..4).for_each(|number| say(&world, number));
    world.create();
    world.run(&["delete", &doomed, "--yes"]);
    world.run(&["gc", "--thorough"]);
    world.check_whole();
}

#[test]
fn what_a_rollback_changed_is_known_after_collecting() {
    let world = wrecked();
    world.run(&["rollback", "@"]);
    world.write("more", noise(7, 50_000));
    let doomed = world.create();
    world.run(&["delete", &doomed, "--yes"]);
    let manager = CheckpointManager::open(&world.path("home")).unwrap();
    let workspace = manager.workspaces().around(&world.path("project")).unwrap().unwrap();
    let record = manager.rollbacks(&workspace).unwrap().pop().unwrap();
    drop(manager);
    world.run(&["gc", "--thorough"]);
    let manager = CheckpointManager::open(&world.path("home")).unwrap();
    let changed = manager.changed_paths(&record).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(changed.len(), 2);
}

#[test]
fn checkpoints_are_whole_after_collecting() {
    let (world, _) = with_dead_bytes();
    world.run(&["gc", "--thorough"]);
    world.check_whole();
    world.run(&["rollback", "@"]);
}

/// Returns true if a checkpoint is still listed.
fn is_listed(world: &World, id: &str) -> bool {
    let listed = world.json(&["list", "--all"]);
    listed["data"]["checkpoints"].as_array().unwrap().iter().any(|checkpoint| checkpoint["id"] == id)
}

const NOTHING_KEPT: [&str; 7] =
    ["prune", "--keep-last", "0", "--keep-within", "0s", "--thin-daily-for", "0s"];

#[test]
fn what_is_pinned_is_not_pruned() {
    let world = World::new();
    let mut ids = Vec::new();
    for round in 0..3 {
        world.write("file", round.to_string());
        ids.push(world.create());
    }
    world.run(&["pin", &ids[0]]);
    world.run(&NOTHING_KEPT);
    assert!(is_listed(&world, &ids[0]), "the pinned checkpoint was pruned");
    assert!(!is_listed(&world, &ids[1]), "nothing was pruned");
}

#[test]
fn the_newest_is_not_pruned() {
    let world = World::new();
    world.write("file", "1");
    let first = world.create();
    world.write("file", "2");
    let second = world.create();
    // The first is the workspace's head, so that only its age protects the second.
    world.run(&["rollback", &first]);
    world.run(&NOTHING_KEPT);
    assert!(is_listed(&world, &second), "the newest checkpoint was pruned");
}

#[test]
fn an_undo_works_after_pruning() {
    let world = wrecked();
    world.run(&["rollback", "@"]);
    world.write("file", "again\n");
    world.run(&["rollback", "@"]);
    // Its safety checkpoint is newer than the one that the next undo needs.
    world.run(&["undo", "--yes"]);
    assert_eq!(world.read("file"), "again\n");
    world.run(&NOTHING_KEPT);
    world.run(&["undo", "--yes"]);
    assert_eq!(world.read("file"), "bad\n");
}
