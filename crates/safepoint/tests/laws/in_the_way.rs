//! Rollbacks of a folder in which plans run, with the plans inside or outside the checkpoint.

use crate::bench::{Bench, ParsePath, assert_same, unwatched};
use crate::framework::put;
use crate::runner::{Unseen, plan};
use crate::threads::with_files;
use crate::turns::turn;
use safepoint::model::checkpoint::{PartKind, Scope};
use safepoint::model::plan::run::RunOutcome;
use safepoint::model::plan::state::StepState;
use safepoint::{
    CreateOptions, DryRun, Error, Failure, LaterChanges, Merge, PlanFile, Revert, RollbackOptions,
    RunOptions, Search, Silent, Subject, Trial, TryIn, Until,
};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const WAITS: &str = "[[step]]
    id = 'one'
    run = 'echo x > began; while [ ! -e go ]; do sleep 0.02; done; echo x > made'";

fn wait_until(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(30), "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state_of(bench: &Bench, plan: &str, step: &str) -> StepState {
    let plan = bench.manager.plans().get(plan).unwrap().plan;
    plan.steps[plan.find(step).unwrap()].state
}

#[test]
fn a_rollback_under_a_running_plan_is_refused_whatever_the_checkpoint_holds() {
    let bench = Bench::new();
    bench.write("file", "1");
    let before = bench.create();
    let all = bench.manager.create(Subject::Framework, &CreateOptions::default(), &Silent).unwrap();
    plan(&bench, WAITS);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| {
            bench.manager.plans().run("work", &RunOptions::default(), &Unseen, &Silent).unwrap().outcome
        });
        wait_until(|| bench.path("began").exists());
        let options = RollbackOptions::default();
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
        for refused in [
            bench.manager.rollback(&bench.workspace, before.id, &options, &Silent),
            bench.manager.rollback(&bench.workspace, before.id, &dry, &Silent),
            bench.manager.rollback(None, all.checkpoint.id, &options, &Silent),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(&error, Error::PlanRunning { id, .. } if id == "work"), "{error}");
            assert_eq!(Failure::from(&error).code, "plan_live");
        }
        let until = Until {
            command: "true".to_owned(),
            from: Some(before.id),
            search: Search::Stepwise,
            place: TryIn::Workspace,
            plan: None,
        };
        let found = unwatched(|watch| {
            bench.manager.rollback_until(&bench.workspace, &until, &options, watch, &Silent)
        });
        assert!(found.is_err_and(|error| matches!(error, Error::PlanRunning { .. })));
        assert!(bench.path("began").exists());
        bench.write("go", "");
        assert_eq!(run.join().unwrap(), RunOutcome::Done);
    });
    let done = bench.manager.rollback(&bench.workspace, before.id, &RollbackOptions::default(), &Silent);
    assert_eq!(done.unwrap().plans_left, ["work"]);
    assert!(!bench.path("made").exists());
}

#[test]
fn a_checkpoint_of_the_folder_in_the_middle_of_a_plan_brings_the_plan_back_and_so_does_the_undo() {
    let bench = Bench::new();
    plan(&bench, "[[step]]\nid = 'one'\n[[step]]\nid = 'two'");
    bench.manager.plans().start_step("work", "one", &Silent).unwrap();
    bench.write("file", "1");
    let middle = bench.create();
    assert_eq!((middle.count(PartKind::Plan), middle.scope, &middle.plan_id), (1, Scope::Project, &None));
    bench.write("file", "2");
    bench.manager.plans().finish_step("work", "one", None, &Silent).unwrap();
    let state = || state_of(&bench, "work", "one");
    let done = bench.manager.rollback(&bench.workspace, middle.id, &RollbackOptions::default(), &Silent);
    let done = done.unwrap();
    assert_eq!((done.plans.len(), done.plans_left.len()), (1, 0));
    assert_eq!((bench.read("file").as_str(), state()), ("1", StepState::Running));
    bench.manager.undo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!((bench.read("file").as_str(), state()), ("2", StepState::Done));
    // A rollback of the files alone reports the plan.
    let files = RollbackOptions { parts: vec![PartKind::Files], ..RollbackOptions::default() };
    let done = bench.manager.rollback(&bench.workspace, middle.id, &files, &Silent).unwrap();
    assert_eq!((done.plans_left.as_slice(), state()), (&["work".to_owned()][..], StepState::Done));
}

#[test]
fn a_plan_knows_that_its_files_went_back_without_it_until_they_return() {
    let bench = Bench::new();
    bench.write("file", "1");
    let before = bench.create();
    plan(&bench, "[[step]]\nid = 'one'");
    let left = || bench.manager.plans().left_by_files("work").unwrap();
    assert_eq!(left(), None);
    bench.write("file", "2");
    bench.rollback(before.id);
    assert_eq!(left(), Some(before.id));
    bench.undo();
    assert_eq!(left(), None);
    bench.redo();
    assert!(left().is_some());
    // A finished plan is ignored.
    bench
        .manager
        .plans()
        .change("work", "over", |plan| plan.go(safepoint::model::plan::state::PlanState::Cancelled))
        .unwrap();
    bench.write("file", "3");
    let done = bench.manager.rollback(&bench.workspace, before.id, &RollbackOptions::default(), &Silent);
    assert!(done.unwrap().plans_left.is_empty());
    let checkpoint = bench.create();
    assert_eq!(checkpoint.count(PartKind::Plan), 0);
}

#[test]
fn an_undo_notes_that_files_returned_only_where_they_had_gone_without_the_plan() {
    let bench = Bench::new();
    let made: Vec<_> = ["1", "2"]
        .map(|content| {
            bench.write("file", content);
            bench.create().id
        })
        .into();
    bench.write("file", "3");
    let safety = bench.rollback(made[1]).safety_checkpoint;
    plan(&bench, "[[step]]\nid = 'one'");
    let left = || bench.manager.plans().left_by_files("work").unwrap();
    let notes = || {
        let notes = bench.manager.plans().notes("work").unwrap();
        notes.into_iter().map(|note| note.kind.to_string()).collect::<Vec<_>>()
    };
    // The plan is younger than the rollback: its files change without it for the first time.
    bench.undo();
    assert_eq!((bench.read("file").as_str(), left()), ("3", safety));
    bench.redo();
    assert_eq!((bench.read("file").as_str(), left()), ("2", None));
    assert_eq!(notes(), ["files_rolled_back", "files_returned"]);
    // Of two rollbacks only one is undone.
    bench.rollback(made[0]);
    bench.rollback(made[1]);
    assert_eq!(left(), Some(made[1]));
    bench.undo();
    assert_eq!((bench.read("file").as_str(), left()), ("1", Some(made[0])));
    bench.undo();
    assert_eq!((bench.read("file").as_str(), left()), ("2", None));
    assert_eq!(notes()[4..], ["files_rolled_back", "files_returned"]);
}

#[test]
fn many_plans_of_a_folder_go_back_together() {
    let bench = Bench::new();
    plan(&bench, "[[step]]\nid = 'one'");
    let spec =
        safepoint::PlanFile::parse(b"title = 'Other'\nid = 'other'\n[[step]]\nid = 'a'", None).unwrap().spec;
    bench.manager.plans().create(&bench.workspace, &spec).unwrap();
    bench.write("file", "1");
    let then = bench.create();
    assert_eq!(then.count(PartKind::Plan), 2);
    for (plan, step) in [("work", "one"), ("other", "a")] {
        bench.manager.plans().start_step(plan, step, &Silent).unwrap();
    }
    bench.rollback(then.id);
    for (plan, step) in [("work", "one"), ("other", "a")] {
        assert_eq!(state_of(&bench, plan, step), StepState::Pending, "{plan}");
    }
}

/// Runs `act` while the plan `work` of a bench runs, then lets the plan end.
fn while_running(bench: &Bench, began: &Path, act: impl FnOnce()) {
    std::thread::scope(|threads| {
        let run = threads.spawn(|| {
            bench.manager.plans().run("work", &RunOptions::default(), &Unseen, &Silent).unwrap().outcome
        });
        wait_until(|| began.exists());
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        fs::write(began.parent().unwrap().join("go"), "").unwrap();
        let outcome = run.join().unwrap();
        acted.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!(outcome, RunOutcome::Done);
    });
}

#[track_caller]
fn assert_refused<T>(verb: &str, result: Result<T, Error>) {
    match result {
        Err(Error::PlanRunning { id, .. }) => assert_eq!(id, "work", "{verb}"),
        Err(error) => panic!("{verb}: {error}"),
        Ok(_) => panic!("{verb} was not refused"),
    }
}

#[test]
fn every_verb_is_refused_under_a_running_plan() {
    let bench = with_files();
    let manager = &bench.manager;
    let other = PlanFile::parse(b"title = 'Other'\nid = 'other'\n[[step]]\nid = 'a'", None).unwrap().spec;
    manager.plans().create(&bench.workspace, &other).unwrap();
    let of_other =
        manager.plans().checkpoint("other", &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
    manager.plans().start_step("other", "a", &Silent).unwrap();
    manager.plans().fail_step("other", "a", "broken", &Silent).unwrap();
    let copied =
        b"title = 'C'\nid = 'copied'\n[sandbox]\nkind = 'copy'\n[[step]]\nid = 'a'\nrun = 'echo x > copied'";
    let copied = PlanFile::parse(copied, None).unwrap().spec;
    manager.plans().create(&bench.workspace, &copied).unwrap();
    manager.plans().run("copied", &RunOptions::default(), &Unseen, &Silent).unwrap();
    turn(&bench, "0193a6b4-8000-7000-8000-000000000001", "add", || bench.write("of_turn", "1"));
    let first = bench.create();
    // One rollback can be undone, and one redone.
    for content in ["2", "3"] {
        bench.write("file", content);
        bench.rollback(first.id);
    }
    bench.undo();
    plan(&bench, WAITS);
    let state = manager.threads().of(bench.workspace.id);
    while_running(&bench, &bench.path("began"), || {
        let before = bench.image();
        let options = RollbackOptions { later_changes: LaterChanges::Replaced, ..RollbackOptions::default() };
        let at = &bench.workspace;
        assert_refused("undo", manager.undo(at, &options, &Silent));
        assert_refused("redo", manager.redo(at, &options, &Silent));
        let trial = Trial { command: None, agreed: &mut |_| true, printed: &mut |_| () };
        assert_refused("staged", manager.rollback_staged(at, first.id, &options, trial, &Silent));
        assert_refused("turn undo", manager.turns().undo(at, 1, &options, &Silent));
        assert_refused("thread rollback", state.rollback("t", ("", "s1"), &options, &Silent));
        assert_refused("plan rollback", manager.plans().rollback("other", of_other, &options, &Silent));
        let revert = Revert::default();
        assert_refused("correct", manager.plans().correct_by_revert("other", &revert, &options, &Silent));
        assert_refused("apply", manager.plans().apply("copied", Merge::Kept, &Silent));
        assert_same(&bench.image(), &before);
    });
}

#[test]
fn a_plan_in_a_workspace_inside_or_around_the_folder_is_in_the_way() {
    for plan_is_inside in [true, false] {
        let bench = Bench::new();
        bench.write("sub/file", "1");
        let inner = bench.manager.workspaces().register(&bench.path("sub")).unwrap();
        let (of_plan, at) = match plan_is_inside {
            true => (&inner, &bench.workspace),
            false => (&bench.workspace, &inner),
        };
        let before = bench.manager.create(at, &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
        let spec =
            PlanFile::parse(format!("title = 'W'\nid = 'work'\n{WAITS}").as_bytes(), None).unwrap().spec;
        bench.manager.plans().create(of_plan, &spec).unwrap();
        bench.write("sub/file", "2");
        bench.write("beside", "2");
        let options = RollbackOptions::default();
        let began = of_plan.root_path().join("began");
        while_running(&bench, &began, || {
            assert_refused("rollback", bench.manager.rollback(at, before, &options, &Silent));
            assert_eq!(bench.read("sub/file"), "2");
            if plan_is_inside {
                // Paths outside of the plan's folder are not in its way.
                let paths = vec!["beside".parse_path()];
                let beside = bench.manager.create(at, &CreateOptions::default(), &Silent).unwrap();
                bench.write("beside", "3");
                let options = RollbackOptions { paths, ..RollbackOptions::default() };
                let done = bench.manager.rollback(at, beside.checkpoint.id, &options, &Silent).unwrap();
                assert_eq!((bench.read("beside"), done.plans_left.len()), ("2".to_owned(), 0));
            }
        });
        // An idle plan is left and reported, and so is its undo.
        let done = bench.manager.rollback(at, before, &options, &Silent).unwrap();
        assert_eq!(
            (bench.read("sub/file").as_str(), done.plans_left.as_slice()),
            ("1", &["work".to_owned()][..])
        );
        // A finished plan stays as its files are, until it is opened again.
        assert_eq!(bench.manager.plans().left_by_files("work").unwrap(), Some(before));
        let options = RollbackOptions { later_changes: LaterChanges::Replaced, ..options };
        bench.manager.undo(at, &options, &Silent).unwrap();
        assert_eq!(bench.manager.plans().left_by_files("work").unwrap(), None);
    }
}

#[test]
fn a_plan_that_works_in_the_memory_of_an_agent_is_in_the_way() {
    let bench = Bench::new();
    bench.write("file", "1");
    let memory = bench.root().parent().unwrap().join("memory");
    put(memory.join("notes/today.md"), "1");
    bench.manager.agents().register_at("claude", &[], std::slice::from_ref(&memory), &bench.root()).unwrap();
    let before = bench.create().id;
    let notes = bench.manager.workspaces().register(&memory.join("notes")).unwrap();
    let spec = PlanFile::parse(format!("title = 'W'\nid = 'work'\n{WAITS}").as_bytes(), None).unwrap().spec;
    bench.manager.plans().create(&notes, &spec).unwrap();
    put(memory.join("notes/today.md"), "2");
    let options = RollbackOptions::default();
    while_running(&bench, &memory.join("notes/began"), || {
        assert_refused("rollback", bench.manager.rollback(&bench.workspace, before, &options, &Silent));
        let files = RollbackOptions { parts: vec![PartKind::Files], ..RollbackOptions::default() };
        bench.manager.rollback(&bench.workspace, before, &files, &Silent).unwrap();
    });
    assert_eq!(fs::read_to_string(memory.join("notes/today.md")).unwrap(), "2");
}

#[test]
fn a_plan_driven_from_outside_is_never_live() {
    let bench = Bench::new();
    bench.write("file", "1");
    let before = bench.create();
    plan(&bench, "[[step]]\nid = 'one'");
    bench.manager.plans().start_step("work", "one", &Silent).unwrap();
    assert!(!bench.manager.plans().is_running("work").unwrap());
    bench.write("file", "2");
    let done = bench.rollback(before.id);
    assert_eq!((bench.read("file").as_str(), done.plans_left.as_slice()), ("1", &["work".to_owned()][..]));
    assert_eq!(state_of(&bench, "work", "one"), StepState::Running);
}
