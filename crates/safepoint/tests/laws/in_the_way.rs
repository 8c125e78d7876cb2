//! Rollbacks of a folder in which plans run, with the plans inside or outside the checkpoint.

use crate::bench::{Bench, unwatched};
use crate::runner::{Unseen, plan};
use safepoint::model::checkpoint::{PartKind, Scope};
use safepoint::model::plan::run::RunOutcome;
use safepoint::model::plan::state::StepState;
use safepoint::{
    CreateOptions, DryRun, Error, Failure, RollbackOptions, RunOptions, Search, Silent, Subject, TryIn, Until,
};
use std::time::{Duration, Instant};

const WAITS: &str = "[[step]]
    id = 'one'
    run = 'echo x > began; while [ ! -e go ]; do sleep 0.02; done; echo x > made'";

fn wait_for(bench: &Bench, name: &str) {
    let since = Instant::now();
    while !bench.path(name).exists() {
        assert!(since.elapsed() < Duration::from_secs(30), "{name} does not appear");
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
        wait_for(&bench, "began");
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
