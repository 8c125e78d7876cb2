//! Obstacles are reported, and then nothing has changed.

use crate::bench::{Bench, ParsePath, assert_same};
use safepoint::model::rollback::RollbackState;
use safepoint::{Error, Failure, FailureKind, RollbackOptions, Settings, Silent};
use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

fn refused(bench: &Bench, to: safepoint::model::CheckpointId, options: &RollbackOptions) -> Failure {
    let before = bench.image();
    let error = bench.manager.rollback(&bench.workspace, to, options, &Silent).unwrap_err();
    assert_same(&bench.image(), &before);
    Failure::from(&error)
}

#[test]
fn a_socket_in_the_way_is_not_displaced() {
    let bench = Bench::new();
    bench.write("a", "1");
    bench.write("dir", "a file");
    let checkpoint = bench.create();
    fs::remove_file(bench.path("a")).unwrap();
    let _socket = UnixListener::bind(bench.path("a")).unwrap();
    let failure = refused(&bench, checkpoint.id, &RollbackOptions::default());
    assert_eq!((failure.code, failure.kind), ("obstructed", FailureKind::Conflict));
    assert!(failure.hints.iter().any(|hint| hint.contains("In the way: a: a socket")), "{failure:?}");
    // A failed rollback is recorded, too.
    let record = bench.manager.rollbacks(&bench.workspace).unwrap().pop().unwrap();
    assert_eq!((record.state, record.safety_checkpoint), (RollbackState::Refused, None));
    assert!(record.error.is_some());
    // The rest can still be chosen.
    bench.write("dir", "edited");
    bench.restore_paths(checkpoint.id, &["dir"]);
    assert_eq!(bench.read("dir"), "a file");
}

#[test]
fn a_directory_with_a_repository_in_it_is_not_replaced_by_a_file() {
    let bench = Bench::new();
    bench.write("x", "a file");
    let checkpoint = bench.create();
    fs::remove_file(bench.path("x")).unwrap();
    bench.write("x/.git/HEAD", "precious");
    assert_eq!(refused(&bench, checkpoint.id, &RollbackOptions::default()).code, "obstructed");
    assert_eq!(bench.read("x/.git/HEAD"), "precious");
}

#[test]
fn paths_that_are_nowhere_or_blocked_are_refused() {
    let bench = Bench::new();
    bench.write("d/x", "1");
    let checkpoint = bench.create();
    fs::remove_dir_all(bench.path("d")).unwrap();
    bench.write("d", "a file now");
    let only = |path: &str| RollbackOptions { paths: vec![path.parse_path()], ..RollbackOptions::default() };
    assert_eq!(refused(&bench, checkpoint.id, &only("nothing")).code, "no_path");
    assert_eq!(refused(&bench, checkpoint.id, &only("d/x")).code, "blocked_path");
}

#[test]
fn only_what_belongs_here_is_restored_here() {
    let (bench, other) = (Bench::new(), Bench::new());
    bench.write("a", "1");
    let checkpoint = bench.create();
    let foreign = bench.manager.workspaces().register(&other.root()).unwrap();
    let error =
        bench.manager.rollback(&foreign, checkpoint.id, &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, Error::OtherWorkspace { .. }));
    assert_eq!(Failure::from(&error).kind, FailureKind::Conflict);
    let nobody = safepoint::model::CheckpointId::from_bits(7);
    let error =
        bench.manager.rollback(&bench.workspace, nobody, &RollbackOptions::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).code, "no_checkpoint");
}

#[test]
fn nothing_to_undo_and_nothing_to_redo_are_said() {
    let bench = Bench::new();
    let undo = bench.manager.undo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(matches!(undo, Error::NothingToUndo));
    let redo = bench.manager.redo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(matches!(redo, Error::NothingToRedo));
    for error in [undo, redo] {
        assert_eq!(Failure::from(&error).kind, FailureKind::NotFound);
    }
}

#[test]
fn the_root_of_the_system_and_refused_folders_are_no_workspaces() {
    let bench = Bench::new();
    let error = bench.manager.workspaces().register("/".as_ref()).unwrap_err();
    assert!(matches!(error, Error::RefusedRoot { .. }), "{error}");
    assert!(matches!(bench.manager.workspaces().register(&bench.home()), Err(Error::RefusedRoot { .. })));
    let home_dir = crate::bench::scratch();
    let refused_roots = vec![home_dir.path().canonicalize().unwrap()];
    let strict = Bench::with(Settings { refused_roots, ..Settings::default() });
    assert!(matches!(strict.manager.workspaces().register(home_dir.path()), Err(Error::RefusedRoot { .. })));
    strict.manager.workspaces().register_anyway(home_dir.path()).unwrap();
    assert_eq!(
        Failure::from(&bench.manager.workspaces().register(&bench.path("nothing")).unwrap_err()).code,
        "workspace_gone"
    );
}

#[test]
fn a_busy_workspace_is_said_to_be_busy() {
    let bench = Bench::with(Settings { lock_wait: Duration::from_millis(30), ..Settings::default() });
    let root = safepoint_workspace::Root::open(&bench.root()).unwrap();
    let _lock = root.lock(Duration::ZERO).unwrap();
    let error = bench.manager.create(&bench.workspace, &Default::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Busy);
}

#[test]
fn an_interrupt_before_the_intent_changes_nothing() {
    struct Stop;
    impl safepoint::Progress for Stop {
        fn interrupted(&self) -> bool {
            true
        }
    }
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let error = bench
        .manager
        .rollback(&bench.workspace, checkpoint.id, &RollbackOptions::default(), &Stop)
        .unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted);
    assert_eq!(bench.read("a"), "2");
    assert!(bench.manager.rollbacks(&bench.workspace).unwrap().is_empty());
}

#[test]
fn a_dry_run_tells_everything_and_does_nothing() {
    let bench = Bench::new();
    bench.write("changed", "1");
    bench.write("gone/x", "1");
    let checkpoint = bench.create();
    bench.write("changed", "2");
    bench.write("new", "2");
    fs::remove_dir_all(bench.path("gone")).unwrap();
    let before = bench.image();
    let options = RollbackOptions { dry_run: safepoint::DryRun::Yes, ..RollbackOptions::default() };
    let usage = bench.manager.upkeep().usage().unwrap();
    let shown = bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap();
    assert_same(&bench.image(), &before);
    assert_eq!(bench.manager.upkeep().usage().unwrap().objects, usage.objects);
    assert!(!shown.verified && bench.manager.rollbacks(&bench.workspace).unwrap().is_empty());
    let done = bench.rollback(checkpoint.id);
    assert_eq!(shown.outline(), done.outline());
    let told: Vec<String> =
        done.outline().paths.iter().map(|it| format!("{} {}", it.action, it.path)).collect();
    assert_eq!(told, ["restored changed", "created gone", "created gone/x", "removed new"]);
    assert_eq!((done.outline().restored, done.outline().removed), (2, 1));
}

#[test]
fn a_workspace_that_is_gone_is_said_to_be_gone() {
    let bench = Bench::new();
    bench.create();
    fs::remove_dir_all(bench.root()).unwrap();
    let error = bench.manager.create(&bench.workspace, &Default::default(), &Silent).unwrap_err();
    let failure = Failure::from(&error);
    assert_eq!((failure.code, failure.kind), ("workspace_gone", FailureKind::NotFound));
    assert!(!failure.causes.is_empty());
}
