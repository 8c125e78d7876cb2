//! External effects of steps are undone by their own commands, or reported.

use crate::bench::{Bench, ParsePath, assert_same};
use crate::runner::{plan, resume, run};
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::run::RunOutcome;
use safepoint::{
    CreateOptions, DryRun, Error, FailedUndo, Failure, FailureKind, NotUndone, NotUndoneReason,
    RollbackOptions, Silent, Undone,
};

/// Plan whose steps leave a mark outside the workspace.
fn scene() -> (Bench, String) {
    let bench = Bench::new();
    let outside = bench.root().parent().unwrap().join("outside").to_str().unwrap().to_owned();
    plan(
        &bench,
        &format!(
            "[[step]]
             id = 'create'
             run = 'echo create >> {outside}; echo made > file'
             undo = 'echo undo create $SAFEPOINT_STEP_ID $(cat file) >> {outside}'
             [[step]]
             id = 'quiet'
             run = 'true'
             [[step]]
             id = 'fill'
             run = 'echo fill >> {outside}; echo filled > file'
             undo = 'echo undo fill $(cat file) >> {outside}'
             [[step]]
             id = 'break'
             run = 'echo broken > file; exit 1'"
        ),
    );
    (bench, outside)
}

fn first(bench: &Bench) -> safepoint::model::CheckpointId {
    bench.manager.plans().checkpoints("work").unwrap().last().unwrap().checkpoint
}

fn undone(step: &str, command: &str, ran: bool) -> Undone {
    Undone { plan: "work".to_owned(), step: step.to_owned(), command: command.to_owned(), ran }
}

#[test]
fn undo_commands_run_newest_first_before_the_files_change_and_each_once() {
    let (bench, outside) = scene();
    assert_eq!(run(&bench).outcome, RunOutcome::Failed);
    let read = || std::fs::read_to_string(&outside).unwrap();
    let options = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let shown = bench.manager.plans().rollback("work", first(&bench), &options, &Silent).unwrap();
    assert_eq!(read(), "create\nfill\n", "a dry run runs nothing");
    assert_eq!(shown.undone.len(), 2);
    let restored =
        bench.manager.plans().rollback("work", first(&bench), &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(read(), "create\nfill\nundo fill broken\nundo create create broken\n");
    let commands: Vec<(&str, bool)> =
        restored.undone.iter().map(|undone| (undone.step.as_str(), undone.ran)).collect();
    assert_eq!(commands, [("fill", true), ("create", true)]);
    let none = |step: &str| {
        let why = NotUndoneReason::NoCommand;
        NotUndone { plan: "work".to_owned(), step: step.to_owned(), why }
    };
    assert_eq!(restored.effects_not_undone, [none("break"), none("quiet")]);
    assert!(!bench.path("file").exists());
    let notes = bench.manager.plans().notes("work").unwrap();
    assert_eq!(notes.iter().filter(|note| note.kind == PlanNoteKind::Undone).count(), 2);
    // There and back again: what was undone once was not done again since.
    let back = bench.undo();
    assert_eq!((back.undone.len(), back.effects_not_undone.len()), (0, 0));
    let again = bench.redo();
    assert!(again.undone.iter().all(|undone| !undone.ran), "{:?}", again.undone);
    assert_eq!(read(), "create\nfill\nundo fill broken\nundo create create broken\n");
    // A repeated effect is undone again.
    resume(&bench);
    bench.manager.plans().rollback("work", first(&bench), &RollbackOptions::default(), &Silent).unwrap();
    assert!(read().ends_with("create\nfill\nundo fill broken\nundo create create broken\n"));
    assert_eq!(read().lines().count(), 8);
}

#[test]
fn an_undo_command_that_fails_stops_the_rollback_with_nothing_else_changed() {
    let bench = Bench::new();
    let outside = bench.root().parent().unwrap().join("outside").to_str().unwrap().to_owned();
    plan(
        &bench,
        &format!(
            "[[step]]
             id = 'one'
             run = 'echo one > file'
             undo = 'echo no way; exit 4'
             [[step]]
             id = 'two'
             run = 'echo two > file'
             undo = 'echo two >> {outside}'
             [[step]]
             id = 'slow'
             run = 'true'
             timeout = '1s'"
        ),
    );
    run(&bench);
    let (before, files) = (bench.manager.plans().get("work").unwrap(), bench.image());
    let to = first(&bench);
    let error = bench.manager.plans().rollback("work", to, &RollbackOptions::default(), &Silent).unwrap_err();
    assert_eq!(error.to_string(), "the undo command of step one failed: exit status 4: no way");
    assert_eq!(Failure::from(&error).kind, FailureKind::Failed);
    assert_eq!(bench.manager.plans().get("work").unwrap(), before);
    assert_same(&bench.image(), &files);
    let options = RollbackOptions { failed_undo: FailedUndo::IsSkipped, ..RollbackOptions::default() };
    let restored = bench.manager.plans().rollback("work", to, &options, &Silent).unwrap();
    assert_eq!(restored.undone, [undone("two", &format!("echo two >> {outside}"), false)]);
    let why: Vec<_> = restored.effects_not_undone.iter().map(|it| it.why.clone()).collect();
    let failed = NotUndoneReason::Failed { how: "exit status 4: no way".to_owned() };
    assert_eq!(why, [NotUndoneReason::NoCommand, failed]);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "two\n", "what had worked was not run twice");
    assert!(!bench.path("file").exists());
}

#[test]
fn no_undo_command_runs_where_that_is_asked_and_each_is_named() {
    let (bench, outside) = scene();
    run(&bench);
    let before = std::fs::read_to_string(&outside).unwrap_or_default();
    let options = RollbackOptions { failed_undo: FailedUndo::NoneRuns, ..RollbackOptions::default() };
    let restored = bench.manager.plans().rollback("work", first(&bench), &options, &Silent).unwrap();
    assert_eq!((restored.undone.len(), std::fs::read_to_string(&outside).unwrap_or_default()), (0, before));
    let said = |it: &NotUndone| it.why == NotUndoneReason::NotRun;
    assert!(restored.effects_not_undone.iter().any(said), "{:?}", restored.effects_not_undone);
}

#[test]
fn nothing_is_taken_back_for_a_rollback_that_cannot_be() {
    let (bench, outside) = scene();
    run(&bench);
    let to = first(&bench);
    // An uncaptured entry blocks a file of the checkpoint.
    bench.write("taken", "");
    let taken =
        bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
    resume(&bench);
    std::fs::remove_file(bench.path("taken")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("taken")).unwrap();
    let read = || std::fs::read_to_string(&outside).unwrap();
    let before = read();
    bench.manager.plans().start_step("work", "break", &Silent).unwrap();
    let error =
        bench.manager.plans().rollback("work", taken, &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, Error::Workspace(_)), "{error}");
    assert_eq!(read(), before);
    bench.manager.plans().rollback("work", to, &RollbackOptions::default(), &Silent).unwrap();
    assert_ne!(read(), before);
}

#[test]
fn a_confirmed_rollback_changes_no_path_that_was_not_shown_after_its_undo_commands() {
    let bench = Bench::new();
    let (root, name) = (bench.root(), "notes");
    bench.write("shown", "old");
    plan(
        &bench,
        &format!(
            "[[step]]
             id = 'one'
             run = 'echo new > shown'
             undo = 'if [ -e go ]; then rm go; echo an agent > {name}; fi; echo undone >> shown'
             [[step]]
             id = 'break'
             run = 'exit 1'"
        ),
    );
    assert_eq!(run(&bench).outcome, RunOutcome::Failed);
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let plans = bench.manager.plans();
    let bound = |leave: &str| {
        let leave = vec![leave.parse_path()];
        let dry = RollbackOptions { leave: leave.clone(), ..dry.clone() };
        let shown = plans.rollback("work", first(&bench), &dry, &Silent).unwrap().present;
        RollbackOptions { leave, expect_present: Some(shown), ..RollbackOptions::default() }
    };
    bench.write("go", "x");
    let refused = plans.rollback("work", first(&bench), &bound("go"), &Silent);
    assert!(
        matches!(&refused, Err(Error::ChangedDuringUndo { path }) if path.to_string() == name),
        "{refused:?}"
    );
    assert_eq!(
        (bench.read(name), bench.read("shown")),
        ("an agent\n".to_owned(), "new\nundone\n".to_owned())
    );
    assert!(root.join(name).exists());
    // The command is not run again, and the new preview shows the path.
    let done = plans.rollback("work", first(&bench), &bound("go"), &Silent).unwrap();
    assert!(done.undone.iter().all(|undone| !undone.ran), "{:?}", done.undone);
    assert_eq!(bench.read("shown"), "old");
    assert!(!root.join(name).exists());
}
