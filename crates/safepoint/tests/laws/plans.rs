//! Plans and files are captured and rolled back together.

use crate::bench::{Bench, assert_same};
use safepoint::model::checkpoint::PartKind;
use safepoint::model::id::DecisionId;
use safepoint::model::plan::correction::StepPlace;
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::spec::{Milestone, Milestones, PlanSpec, StepSpec};
use safepoint::model::plan::state::{PlanState, StepState};
use safepoint::model::{CheckpointId, Span};
use safepoint::{
    CreateOptions, Depth, DryRun, Error, Fix, NewDecision, PlanRecord, Revert, RollbackOptions, Silent,
    Thoroughness,
};
use serde_json::json;

fn step(id: &str, steps: Vec<StepSpec>) -> StepSpec {
    StepSpec { steps, ..StepSpec::new(id) }
}

fn spec(on: &[Milestone]) -> PlanSpec {
    let api = step("api", vec![step("handlers", vec![]), step("docs", vec![])]);
    PlanSpec {
        id: Some("work".to_owned()),
        steps: vec![step("migrate", vec![]), api, step("ship", vec![])],
        checkpoints: Milestones { on: on.iter().copied().collect(), every: None, every_steps: None },
        ..PlanSpec::new("Add rate limiting")
    }
}

fn decide(bench: &Bench, question: &str, parent: Option<DecisionId>) -> DecisionId {
    let new = NewDecision {
        question: question.to_owned(),
        choice: "yes".to_owned(),
        parent,
        ..NewDecision::default()
    };
    bench.manager.plans().decide("work", new).unwrap().1
}

fn run(bench: &Bench, path: &str) {
    bench.manager.plans().start_step("work", path, &Silent).unwrap();
    bench.write(path, "done");
    bench.manager.plans().finish_step("work", path, Some(json!({"step": path})), &Silent).unwrap();
}

fn now(bench: &Bench) -> PlanRecord {
    bench.manager.plans().get("work").unwrap()
}

fn take(bench: &Bench) -> CheckpointId {
    bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint.id
}

fn back(bench: &Bench, to: CheckpointId) -> safepoint::RolledBack {
    bench.manager.plans().rollback("work", to, &RollbackOptions::default(), &Silent).unwrap()
}

#[test]
fn a_rollback_brings_plan_and_files_back_together_and_so_does_its_undo() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    run(&bench, "migrate");
    let first = decide(&bench, "which database?", None);
    bench.manager.plans().set_context("work", "db", Some(json!("postgres"))).unwrap();
    let checkpoint = take(&bench);
    let (then, files) = (now(&bench).plan, bench.image());

    let second = decide(&bench, "which driver?", Some(first));
    run(&bench, "api/handlers");
    bench.manager.plans().set_output("work", "url", json!("http://x")).unwrap();
    bench.manager.plans().start_step("work", "api/docs", &Silent).unwrap();
    bench.write("migrate", "corrupted");
    bench.manager.plans().fail_step("work", "api/docs", "it broke", &Silent).unwrap();
    let (later, later_files) = (now(&bench).plan, bench.image());
    assert_eq!(later.state, PlanState::Failed);

    let restored = back(&bench, checkpoint);
    assert_eq!(now(&bench).plan, then, "every field of the plan is restored");
    assert_same(&bench.image(), &files);
    let record = bench.manager.checkpoints().get(checkpoint).unwrap();
    assert_eq!(bench.manager.plans().at(checkpoint).unwrap(), then);
    assert_eq!(record.step_index, Some(1));
    // Equal states have equal hashes.
    let again = bench.manager.checkpoints().get(take(&bench)).unwrap();
    assert_eq!(again.state_hash, record.state_hash);
    let taken_back = restored.plans[0].1.clone();
    assert_eq!(taken_back.decisions, std::slice::from_ref(&second));
    assert_eq!(taken_back.subplans, ["api"]);
    assert_eq!(taken_back.steps, ["api/docs", "api/handlers"]);
    let notes = bench.manager.plans().notes("work").unwrap();
    let kinds: Vec<&str> = notes.iter().map(|note| note.kind.as_str()).collect();
    assert_eq!(kinds, ["error", "superseded", "invalidated", "rolled_back"], "kept for the record");
    assert_eq!(notes[1].body["decisions"][0]["id"], json!(second));

    bench.undo();
    assert_eq!(now(&bench).plan, later);
    assert_same(&bench.image(), &later_files);
    bench.redo();
    assert_eq!(now(&bench).plan, then);
    assert_same(&bench.image(), &files);
    // A path does not affect the plan.
    bench.undo();
    bench.restore_paths(checkpoint, &["migrate"]);
    assert_eq!(now(&bench).plan, later);
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

#[test]
fn a_dry_run_of_a_plan_changes_nothing() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    let checkpoint = take(&bench);
    run(&bench, "migrate");
    let before = (now(&bench), bench.image());
    let options = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let shown = bench.manager.plans().rollback("work", checkpoint, &options, &Silent).unwrap();
    assert_eq!(shown.plans[0].1.steps, ["migrate"]);
    assert_eq!((now(&bench), bench.image()), before);
}

#[test]
fn milestones_take_checkpoints_by_themselves() {
    let bench = Bench::new();
    let on = [Milestone::BeforeStep, Milestone::AfterSubplan, Milestone::OnError];
    bench.manager.plans().create(&bench.workspace, &spec(&on)).unwrap();
    let labels = |moved: safepoint::StepMoved| -> Vec<String> {
        moved.checkpoints.into_iter().map(|created| created.checkpoint.label.unwrap()).collect()
    };
    let start = |path: &str| labels(bench.manager.plans().start_step("work", path, &Silent).unwrap());
    let finish = |path: &str| labels(bench.manager.plans().finish_step("work", path, None, &Silent).unwrap());
    assert_eq!(start("migrate"), ["before migrate"]);
    assert_eq!(finish("migrate"), Vec::<String>::new());
    assert_eq!(start("api/handlers"), ["before api/handlers"]);
    assert_eq!(finish("api/handlers"), Vec::<String>::new());
    start("api/docs");
    assert_eq!(finish("api/docs"), ["after subplan api"]);
    start("ship");
    let failed = bench.manager.plans().fail_step("work", "ship", "no", &Silent).unwrap();
    assert_eq!(labels(failed), ["ship failed"]);
    // The checkpoint before a step shows it as not started.
    let filter = safepoint::Filter { plan_id: Some("work".to_owned()), ..safepoint::Filter::default() };
    let listed = bench.manager.checkpoints().list(&filter).unwrap();
    let before = listed.iter().find(|it| it.label.as_deref() == Some("before ship")).unwrap();
    let then = bench.manager.plans().at(before.id).unwrap();
    assert_eq!(then.steps.last().unwrap().state, StepState::Pending);
    back(&bench, before.id);
    assert_eq!(start("ship"), ["before ship"], "the plan can continue");
}

#[test]
fn milestones_count_steps_and_time() {
    let bench = Bench::new();
    let mut often = spec(&[]);
    often.checkpoints.every_steps = Some(2);
    bench.manager.plans().create(&bench.workspace, &often).unwrap();
    let mut taken = Vec::new();
    for path in ["migrate", "api/handlers", "api/docs", "ship"] {
        bench.manager.plans().start_step("work", path, &Silent).unwrap();
        taken.push(bench.manager.plans().finish_step("work", path, None, &Silent).unwrap().checkpoints.len());
    }
    assert_eq!(taken, [0, 1, 0, 1]);
    let mut hourly = PlanSpec { id: Some("hourly".to_owned()), ..spec(&[]) };
    hourly.checkpoints.every = Some(Span::from_days(1));
    bench.manager.plans().create(&bench.workspace, &hourly).unwrap();
    assert!(bench.manager.plans().start_step("hourly", "migrate", &Silent).unwrap().checkpoints.is_empty());
}

#[test]
fn what_may_not_be_rolled_back_is_refused_and_nothing_changes() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    let other = PlanSpec { id: Some("other".to_owned()), ..spec(&[]) };
    bench.manager.plans().create(&bench.workspace, &other).unwrap();
    let checkpoint = take(&bench);
    let plain = bench.create().id;
    for path in ["migrate", "api/handlers", "api/docs", "ship"] {
        run(&bench, path);
    }
    let refused = |id: &str, to| {
        bench.manager.plans().rollback(id, to, &RollbackOptions::default(), &Silent).unwrap_err()
    };
    assert!(matches!(refused("other", checkpoint), Error::OtherPlan { .. }));
    assert!(matches!(refused("work", plain), Error::OtherPlan { .. }));
    assert!(matches!(refused("nothing", checkpoint), Error::NoPlan { .. }));
    bench.manager.plans().change("work", "applied", |plan| plan.go(PlanState::Applied)).unwrap();
    let before = (now(&bench), bench.image());
    assert!(matches!(refused("work", checkpoint), Error::PlanApplied { .. }));
    assert_eq!((now(&bench), bench.image()), before);
    assert!(matches!(bench.manager.plans().at(plain), Err(Error::NoPlanInCheckpoint { .. })));
    let taken = bench.manager.plans().create(&bench.workspace, &spec(&[]));
    assert!(matches!(taken, Err(Error::Catalog(_))), "{taken:?}");
    let bad = PlanSpec { id: Some("../x".to_owned()), ..spec(&[]) };
    assert!(matches!(bench.manager.plans().create(&bench.workspace, &bad), Err(Error::BadPlanId { .. })));
}

#[test]
fn of_many_that_start_a_step_one_does_and_every_checkpoint_before_it_is_from_before() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[Milestone::BeforeStep])).unwrap();
    let started: Vec<bool> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| {
                let home = bench.home();
                scope.spawn(move || {
                    let manager = safepoint::CheckpointManager::open(&home).unwrap();
                    manager.plans().start_step("work", "migrate", &Silent).is_ok()
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(started.iter().filter(|started| **started).count(), 1, "{started:?}");
    let filter = safepoint::Filter { plan_id: Some("work".to_owned()), ..safepoint::Filter::default() };
    for before in bench.manager.checkpoints().list(&filter).unwrap() {
        assert_eq!(bench.manager.plans().at(before.id).unwrap().steps[0].state, StepState::Pending);
    }
}

#[test]
fn the_files_alone_go_back_and_the_plan_stays_as_it_is() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    let checkpoint = take(&bench);
    let files = bench.image();
    for path in ["migrate", "api/handlers", "api/docs", "ship"] {
        run(&bench, path);
    }
    bench.manager.plans().change("work", "applied", |plan| plan.go(PlanState::Applied)).unwrap();
    let (later, later_files) = (now(&bench), bench.image());
    let options = RollbackOptions { parts: vec![PartKind::Files], ..RollbackOptions::default() };
    let restored = bench.manager.rollback(&bench.workspace, checkpoint, &options, &Silent).unwrap();
    assert!(restored.plans.is_empty());
    assert_eq!(now(&bench), later);
    assert_same(&bench.image(), &files);
    bench.undo();
    assert_eq!(now(&bench), later);
    assert_same(&bench.image(), &later_files);
}

#[test]
fn collecting_keeps_what_plans_need() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    for number in 0..200 {
        decide(&bench, &format!("question {number}"), None);
    }
    let checkpoint = take(&bench);
    let then = now(&bench).plan;
    decide(&bench, "one more", None);
    let gone = take(&bench);
    bench.manager.checkpoints().delete(&[gone]).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    back(&bench, checkpoint);
    assert_eq!(now(&bench).plan, then);
}

fn fail(bench: &Bench, path: &str) {
    bench.manager.plans().start_step("work", path, &Silent).unwrap();
    bench.write("broken", path);
    bench.manager.plans().fail_step("work", path, "it broke", &Silent).unwrap();
}

#[test]
fn correct_goes_back_to_the_last_clean_checkpoint() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    let early = take(&bench);
    run(&bench, "migrate");
    let clean = take(&bench);
    let (then, files) = (now(&bench).plan, bench.image());
    fail(&bench, "api/handlers");
    take(&bench);
    assert_eq!(bench.manager.plans().last_clean("work").unwrap(), clean);

    let revert = Revert { guidance: Some("mind the lock".to_owned()), ..Revert::default() };
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let before = (now(&bench), bench.image());
    assert_eq!(
        bench.manager.plans().correct_by_revert("work", &revert, &dry, &Silent).unwrap().checkpoint,
        Some(clean)
    );
    assert_eq!((now(&bench), bench.image()), before);

    let corrected = bench
        .manager
        .plans()
        .correct_by_revert("work", &revert, &RollbackOptions::default(), &Silent)
        .unwrap();
    assert_eq!((corrected.attempt, corrected.checkpoint), (1, Some(clean)));
    assert_same(&bench.image(), &files);
    let mut plan = now(&bench).plan;
    let said = plan.decisions.pop().unwrap();
    assert_eq!((plan, said.choice.as_str()), (then, "mind the lock"));
    // That resolves the error: the next one counts.
    run(&bench, "api/handlers");
    let later = take(&bench);
    fail(&bench, "api/docs");
    assert_eq!(bench.manager.plans().last_clean("work").unwrap(), later);
    let again = Revert::default();
    let corrected = bench
        .manager
        .plans()
        .correct_by_revert("work", &again, &RollbackOptions::default(), &Silent)
        .unwrap();
    assert_eq!((corrected.attempt, corrected.checkpoint), (2, Some(later)));
    // It is a rollback like any other.
    bench.undo();
    assert!(!now(&bench).plan.is_healthy());
    bench.manager.checkpoints().delete(&[early, clean, later]).unwrap();
    assert!(matches!(bench.manager.plans().last_clean("work"), Err(Error::NoneClean { .. })));
}

#[test]
fn correct_of_a_decision_takes_back_what_depends_on_it_and_nothing_else() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    let kept = decide(&bench, "language?", None);
    take(&bench);
    let wrong = decide(&bench, "database?", None);
    let follows = decide(&bench, "driver?", Some(wrong));
    let independent = decide(&bench, "licence?", Some(kept));
    run(&bench, "migrate");
    take(&bench);
    let revert = Revert { decision: Some(wrong), guidance: Some("take the other one".to_owned()) };
    bench.manager.plans().correct_by_revert("work", &revert, &RollbackOptions::default(), &Silent).unwrap();
    let plan = now(&bench).plan;
    let ids: Vec<_> = plan.decisions.iter().map(|it| it.id).collect();
    assert_eq!(ids[..2], [kept, independent]);
    assert_eq!(plan.decisions[2].choice, "take the other one");
    assert_eq!(plan.steps[0].state, StepState::Pending);
    let notes = bench.manager.plans().notes("work").unwrap();
    let superseded = notes.iter().find(|note| note.kind == PlanNoteKind::Superseded).unwrap();
    let gone: Vec<_> =
        superseded.body["decisions"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(gone, [json!(wrong), json!(follows)]);
    let unknown = Revert { decision: Some(DecisionId::from_bits(0)), ..Revert::default() };
    let refused =
        bench.manager.plans().correct_by_revert("work", &unknown, &RollbackOptions::default(), &Silent);
    assert!(matches!(refused, Err(Error::Plan(_))));
}

#[test]
fn correct_by_append_adds_a_step_and_changes_nothing_that_is_done() {
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    run(&bench, "migrate");
    let spec = StepSpec { run: Some("make fix".to_owned()), ..StepSpec::new("fix") };
    let fix = Fix::Append { spec, place: None };
    let correct =
        |fix: &Fix| bench.manager.plans().correct_in_place("work", fix, Some("because"), DryRun::No);
    assert!(matches!(correct(&fix), Err(Error::PlanHealthy { .. })));
    fail(&bench, "api/handlers");
    let before = now(&bench).plan;
    let shown = bench.manager.plans().correct_in_place("work", &fix, None, DryRun::Yes).unwrap();
    assert_eq!((shown.step.as_deref(), &now(&bench).plan), (Some("api/fix"), &before));
    let corrected = correct(&fix).unwrap();
    assert_eq!((corrected.attempt, corrected.step.as_deref()), (1, Some("api/fix")));
    let after = now(&bench).plan;
    let kept: Vec<_> = after.steps.iter().filter(|step| step.path != "api/fix").cloned().collect();
    assert_eq!(kept, before.steps);
    assert_eq!(after.next(), ["api/fix"]);
    assert_eq!(after.decisions[0].choice, "because");
    assert!(correct(&fix).is_err());
    let last = StepPlace::After("ship".to_owned());
    let more = Fix::Append { spec: StepSpec::new("more"), place: Some(last) };
    assert_eq!(correct(&more).map(|done| (done.attempt, done.step)).unwrap(), (2, Some("more".to_owned())));
}

#[test]
fn a_plan_that_changed_while_it_was_captured_is_not_captured_half() {
    // The stored and the recorded state agree: the checkpoint names the version that it holds.
    let bench = Bench::new();
    bench.manager.plans().create(&bench.workspace, &spec(&[])).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..40 {
                decide(&bench, &format!("{number}"), None);
            }
        });
        for _ in 0..10 {
            match bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent) {
                Ok(_) | Err(Error::PlanChanged { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let last = take(&bench);
    assert_eq!(bench.manager.plans().at(last).unwrap(), now(&bench).plan);
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}
