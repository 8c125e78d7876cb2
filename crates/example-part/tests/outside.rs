//! An external part rolls back with the files, both or neither; a program without its code keeps it.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests set up folders"
)]

use safepoint::model::checkpoint::{Checkpoint, PartKind};
use safepoint::model::outside::OutsideKind;
use safepoint::{
    CheckpointManager, CreateOptions, Depth, Error, Failure, FailureKind, Part, PartProvider,
    RollbackOptions, Settings, Silent, SystemEnvironment, Thoroughness, Warning, Workspace,
};
use safepoint_example_part::{KvParts, PROGRAM};
use safepoint_testkit::{Disk, End, Fail, Program, calls, copy_tree, every_cut, fail_at, kill_at, record};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Project, external file of keys and values, and home.
struct Ground {
    top: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for name in ["live/project", "live/elsewhere"] {
            fs::create_dir_all(top.path().join(name)).unwrap();
        }
        Self { top }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join("live").join(name)
    }

    fn parts(&self) -> KvParts {
        KvParts::new(&self.path("elsewhere")).unwrap()
    }

    /// Opens the home with or without the code of the part.
    fn open(&self, with: bool) -> (CheckpointManager, Workspace) {
        self.open_with(with.then(|| Arc::new(self.parts()) as _))
    }

    fn open_with(&self, provider: Option<Arc<dyn PartProvider>>) -> (CheckpointManager, Workspace) {
        let mut settings = Settings::default();
        settings.parts.extend(provider);
        let environment = Box::new(SystemEnvironment::default());
        let manager = CheckpointManager::open_with(&self.path("home"), settings, environment).unwrap();
        let workspace = manager.workspaces().register(&self.path("project")).unwrap();
        (manager, workspace)
    }

    fn set(&self, value: &str) {
        fs::write(self.path("project/file"), value).unwrap();
        self.parts().set("key", value).unwrap();
    }

    fn state(&self) -> (String, Option<String>) {
        (fs::read_to_string(self.path("project/file")).unwrap(), self.parts().text().unwrap())
    }

    fn create(&self) -> Checkpoint {
        let (manager, workspace) = self.open(true);
        manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint
    }

    fn program(&self, words: &[&str]) -> Program {
        let places = ["home", "project", "elsewhere"].map(|name| self.path(name).into_os_string());
        Program {
            exe: env!("CARGO_BIN_EXE_example-part").into(),
            args: places.into_iter().chain(words.iter().map(Into::into)).collect(),
            env: Vec::new(),
            cwd: self.top.path().to_owned(),
        }
    }

    fn keep(&self, name: &str) {
        let kept = self.top.path().join(name);
        let _ = fs::remove_dir_all(&kept);
        copy_tree(&self.top.path().join("live"), &kept).unwrap();
    }

    fn lay(&self, name: &str) {
        fs::remove_dir_all(self.top.path().join("live")).unwrap();
        copy_tree(&self.top.path().join(name), &self.top.path().join("live")).unwrap();
    }
}

fn kind() -> PartKind {
    "kv.example".parse().unwrap()
}

#[test]
fn a_part_from_outside_goes_back_with_the_files_and_so_does_the_undo() {
    let ground = Ground::new();
    fs::write(ground.path("project/file"), "none").unwrap();
    let nothing = ground.create();
    ground.set("1");
    let one = ground.create();
    assert_eq!(one.count(kind()), 1);
    ground.set("2");
    let (manager, workspace) = ground.open(true);
    let options = RollbackOptions::default();
    let (then, now) = (("1".to_owned(), Some("key=1\n".to_owned())), ground.state());
    let done = manager.rollback(&workspace, one.id, &options, &Silent).unwrap();
    assert_eq!((done.others.len(), ground.state()), (1, then.clone()));
    manager.undo(&workspace, &options, &Silent).unwrap();
    assert_eq!(ground.state(), now);
    // A file that did not exist is removed again.
    manager.rollback(&workspace, nothing.id, &options, &Silent).unwrap();
    assert_eq!(ground.state(), ("none".to_owned(), None));
    manager.undo(&workspace, &options, &Silent).unwrap();
    assert_eq!(ground.state(), now);
    // The part can be chosen or left out.
    let chosen = |kind| RollbackOptions { parts: vec![kind], ..RollbackOptions::default() };
    manager.rollback(&workspace, one.id, &chosen(kind()), &Silent).unwrap();
    assert_eq!(ground.state(), (now.0.clone(), then.1.clone()));
    manager.rollback(&workspace, one.id, &chosen(PartKind::Files), &Silent).unwrap();
    assert_eq!(ground.state(), then);
}

#[test]
fn a_part_from_outside_killed_anywhere_is_old_or_new_with_the_files() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id.to_string();
    ground.set("2");
    let (old, new) = (ground.state(), ("1".to_owned(), Some("key=1\n".to_owned())));
    ground.keep("begin");
    let (mut olds, mut news, mut point) = (0, 0, 0);
    loop {
        point += 1;
        ground.lay("begin");
        let end = kill_at(&ground.program(&["rollback", &one]), point).unwrap();
        let done = !matches!(end, End::Killed { .. });
        assert!(!done || end.is_success(), "{end:?}");
        // The recovery is killed once as well, each time at another point.
        let _ = kill_at(&ground.program(&["recover"]), 1 + point % 23).unwrap();
        let recovered = kill_at(&ground.program(&["recover"]), u64::MAX).unwrap();
        assert!(recovered.is_success(), "killed at {end:?}: {recovered:?}");
        let state = ground.state();
        assert!(state == old || state == new, "killed at {end:?}: {state:?}");
        assert!(!done || state == new);
        *(if state == new { &mut news } else { &mut olds }) += 1;
        if done {
            break;
        }
    }
    eprintln!("kill -9 with an external part: {point} points, {olds} old, {news} new, 0 mixtures");
    assert!(olds > 10 && news > 1);
}

#[test]
fn a_program_without_the_code_keeps_the_part_and_puts_the_rest_back() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create();
    ground.set("2");
    ground.create();
    let (manager, workspace) = ground.open(false);
    // Collected, validated and exported like any other part.
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(manager.upkeep().validate(Some(&one), Depth::Deep, &Silent).unwrap().is_valid());
    let out = ground.path("out");
    let exported = manager.export_checkpoint(&one, &out, safepoint::OutsideMemory::Omitted, &Silent).unwrap();
    let below = fs::read_dir(exported.path.join("task_tool_state")).unwrap().flatten();
    let names: Vec<String> = below.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("kv.example") && name.ends_with(".0.bin")), "{names:?}");
    let done = manager.rollback(&workspace, one.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(ground.state(), ("1".to_owned(), Some("key=1\nkey=2\n".to_owned())));
    let named = |warning: &Warning| matches!(warning, Warning::PartNotRegistered { program, .. } if program == PROGRAM);
    assert!(done.warnings.iter().any(named), "{:?}", done.warnings);
    // A program with the code still has the whole part.
    let (manager, workspace) = ground.open(true);
    manager.rollback(&workspace, one.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(ground.state().1, Some("key=1\n".to_owned()));
}

#[test]
fn an_interrupted_rollback_is_not_recovered_without_the_code_of_its_part() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id.to_string();
    ground.set("2");
    let old = ground.state();
    ground.keep("begin");
    let mut refused = 0;
    for point in 1.. {
        ground.lay("begin");
        let end = kill_at(&ground.program(&["rollback", &one]), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            break;
        }
        let (manager, workspace) = ground.open(false);
        let before = ground.state();
        if let Err(error) = manager.recover(&workspace, &Silent) {
            let failure = Failure::from(&error);
            assert_eq!((failure.code, failure.kind), ("unknown_part", FailureKind::Conflict), "{error}");
            assert!(error.to_string().contains(PROGRAM), "{error}");
            assert_eq!(ground.state(), before, "nothing was changed");
            drop(manager);
            assert!(kill_at(&ground.program(&["recover"]), u64::MAX).unwrap().is_success());
            assert_eq!(ground.state(), old);
            refused += 1;
        }
    }
    assert!(refused > 3, "{refused}");
}

/// Recovers with the code of the part, and returns the state afterwards.
fn recovered(ground: &Ground) -> (String, Option<String>) {
    let (manager, workspace) = ground.open(true);
    manager.recover(&workspace, &Silent).unwrap();
    assert!(manager.recover(&workspace, &Silent).unwrap().is_empty());
    ground.state()
}

#[test]
fn after_a_power_cut_the_part_and_the_files_are_old_or_new() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id.to_string();
    let new = ground.state();
    ground.set("2");
    let old = ground.state();
    let roots = ["home", "project", "elsewhere"].map(|name| ground.path(name));
    let start = Disk::load(&roots).unwrap();
    let recording = record(&ground.program(&["rollback", &one]), &roots).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    let mut counts = [0, 0];
    every_cut(&start, &recording, 1, 7, |cut| {
        cut.image.lay_out()?;
        let state = recovered(&ground);
        let is_new = state == new;
        assert!(is_new || state == old, "after {} operations, {:?}: {state:?}", cut.done, cut.how);
        assert!(is_new || !cut.last, "a rollback that was reported is lost, {:?}", cut.how);
        counts[usize::from(is_new)] += 1;
        Ok(())
    })
    .unwrap();
    eprintln!("power cut with a part from outside: {} states old, {} new, 0 mixtures", counts[0], counts[1]);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn with_any_call_failing_the_part_and_the_files_are_old_or_new() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id.to_string();
    let new = ground.state();
    ground.set("2");
    let old = ground.state();
    ground.keep("begin");
    let program = ground.program(&["rollback", &one]);
    let points = calls(&program).unwrap().0.len() as u64;
    let mut refused = 0;
    for point in 1..=points {
        for (errno, how) in [(ENOSPC, Fail::Once), (EIO, Fail::Forever)] {
            ground.lay("begin");
            let end = fail_at(&program, point, errno, how).unwrap();
            let End::Exited { code, stderr, .. } = &end else { panic!("point {point}: {end:?}") };
            let told = String::from_utf8_lossy(stderr);
            assert!(!told.contains("panicked"), "point {point}, error {errno}: {told}");
            let state = recovered(&ground);
            let is_new = state == new;
            assert!(is_new || state == old, "point {point} of {points}, error {errno}: {state:?}");
            assert!(is_new || *code != 0, "point {point}, error {errno}: a success that was none");
            refused += u64::from(*code != 0);
        }
    }
    eprintln!("faults with a part from outside: {points} points, {refused} ended in an error, 0 mixtures");
    assert!(refused > points / 2, "{refused}");
}

#[test]
fn many_programs_with_the_part_at_once_leave_a_whole_state() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id;
    let done = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        for worker in 0..4 {
            let (ground, done) = (&ground, &done);
            threads.spawn(move || {
                for round in 0..6 {
                    let value = format!("{worker}.{round}");
                    let id = one.to_string();
                    let words: &[&str] = match (worker + round) % 3 {
                        0 => &["create"],
                        1 => &["rollback", &id],
                        _ => &["set", "key", &value],
                    };
                    let program = ground.program(words);
                    // A busy workspace and a file that changed concurrently are errors that change nothing.
                    let ended =
                        std::process::Command::new(&program.exe).args(&program.args).output().unwrap();
                    done.fetch_add(u32::from(ended.status.success()), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert!(done.into_inner() >= 8, "too few commands worked");
    let text = recovered(&ground).1.unwrap();
    // Each `set` appends a line.
    assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with("key=")), "{text:?}");
    let (manager, workspace) = ground.open(true);
    manager.rollback(&workspace, one, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(ground.state(), ("1".to_owned(), Some("key=1\n".to_owned())));
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

/// The code of the part, where the part itself cannot be opened.
#[derive(Debug)]
struct Unopenable;

impl PartProvider for Unopenable {
    fn kind(&self) -> OutsideKind {
        "kv.example".parse().unwrap()
    }

    fn find(&self, _: &Path) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Path, name: &str) -> Result<Box<dyn Part>, Error> {
        let source = Box::new(std::io::Error::other("permission denied"));
        Err(Error::Part { what: format!("cannot open {name:?}"), source })
    }
}

#[test]
fn a_rollback_is_not_settled_while_its_part_cannot_be_opened() {
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create().id.to_string();
    ground.set("2");
    ground.keep("begin");
    let mut published = 0;
    for point in 1.. {
        ground.lay("begin");
        let end = kill_at(&ground.program(&["rollback", &one]), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            break;
        }
        let (manager, workspace) = ground.open_with(Some(Arc::new(Unopenable)));
        match manager.recover(&workspace, &Silent) {
            Ok(recovery) => assert!(recovery.settled.is_empty(), "killed at {end:?}: {recovery:?}"),
            Err(error) => {
                assert!(matches!(error, Error::Part { .. }), "killed at {end:?}: {error}");
                drop(manager);
                assert!(kill_at(&ground.program(&["recover"]), u64::MAX).unwrap().is_success());
                published += u32::from(ground.state().0 == "1");
            }
        }
    }
    assert!(published > 0, "no kill fell between the commit and the end");
}

#[test]
fn the_lock_keeps_others_out_while_the_file_goes_back() {
    // Two concurrent programs: in any order, no line is lost or partial.
    let ground = Ground::new();
    ground.set("1");
    let one = ground.create();
    let (manager, workspace) = ground.open(true);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for number in 0..50 {
                ground.parts().set("other", &number.to_string()).unwrap();
            }
        });
        let (mut rounds, mut worked) = (0, 0);
        // A rollback fails if the file changes between its capture and its lock; nothing has changed then.
        while rounds < 10 || (worked == 0 && rounds < 1_000) {
            match manager.rollback(&workspace, one.id, &RollbackOptions::default(), &Silent) {
                Ok(done) => {
                    assert!(done.verified, "{done:?}");
                    worked += 1;
                }
                Err(Error::RolledBackHalfway { source, .. }) => {
                    assert!(matches!(*source, Error::Part { .. }), "{source}");
                }
                Err(error) => assert!(matches!(error, Error::Part { .. }), "{error}"),
            }
            rounds += 1;
        }
        writer.join().unwrap();
        assert!(worked > 0, "none of {rounds} rollbacks worked");
    });
    let text = ground.parts().text().unwrap().unwrap();
    assert!(text.starts_with("key=1\n") && text.ends_with('\n'), "{text}");
    assert!(text.lines().all(|line| line.contains('=')), "{text}");
}

#[test]
fn a_name_that_the_program_does_not_know_is_refused() {
    let ground = Ground::new();
    let Err(error) = ground.parts().open(Path::new("/"), "other") else {
        panic!("an unknown part was opened")
    };
    assert!(error.to_string().contains("other"), "{error}");
}
