//! Sessions: events are counted automatically, once, and only for their own session.

use crate::bench::{Bench, open};
use crate::runner::{Unseen, plan, run};
use safepoint::model::checkpoint::{Kind, Reason};
use safepoint::model::id::SessionId;
use safepoint::model::plan::spec::StepSpec;
use safepoint::model::session::{Session, SessionChange, SessionRule, SessionStatus, Statistics};
use safepoint::{
    CreateOptions, DryRun, Error, Failure, Filter, Fix, Interrupted, NewDecision, NewSession, Revert,
    RollbackOptions, RunOptions, Settings, Silent,
};
use serde_json::json;

fn id() -> SessionId {
    SessionId::from_bits(0x0193_2b7c_8f00_1234_5678_9abc_def0_1122)
}

fn new(request: &str) -> NewSession {
    NewSession { request: request.to_owned(), id: Some(id()), ..NewSession::default() }
}

/// Creates a bench whose manager works for a recorded session.
fn bench() -> Bench {
    let bench = Bench::with(Settings { session_id: Some(id().to_string()), ..Settings::default() });
    bench.manager.sessions().create(new("Add rate limiting")).unwrap();
    bench
}

fn counted(bench: &Bench) -> Statistics {
    bench.manager.sessions().get(id()).unwrap().statistics
}

fn decide(bench: &Bench) {
    let decision = NewDecision { question: "Which?".into(), choice: "This".into(), ..NewDecision::default() };
    bench.manager.plans().decide("work", decision).unwrap();
}

#[test]
fn a_session_lives_until_it_is_deleted_and_survives_a_restart() {
    let bench = bench();
    let made = bench.manager.sessions().get(id()).unwrap();
    assert_eq!((made.status, made.request.as_str()), (SessionStatus::Initializing, "Add rate limiting"));
    let again = open(&bench.home(), Settings::default());
    assert_eq!(again.sessions().get(id()).unwrap(), made);
    let key = SessionChange::ConfigurationKey { path: vec!["rate".into()], value: json!(100) };
    let changed = again.sessions().update(id(), vec![SessionChange::Request("Else".into()), key]).unwrap();
    assert_eq!((changed.request.as_str(), &changed.configuration["rate"]), ("Else", &json!(100)));
    for status in [
        SessionStatus::Planning,
        SessionStatus::Paused,
        SessionStatus::Planning,
        SessionStatus::GeneratingTasks,
        SessionStatus::Implementing,
        SessionStatus::Validating,
        SessionStatus::GeneratingReport,
        SessionStatus::Completed,
    ] {
        assert_eq!(again.sessions().transition(id(), status).unwrap().status, status);
    }
    let over = bench.manager.sessions().get(id()).unwrap();
    assert_eq!(over.duration_micros(over.created_at), over.duration_micros(made.created_at));
    let checkpoint = bench.create();
    let deleted = again.sessions().delete(id()).unwrap();
    assert_eq!(deleted.statistics.checkpoints_created, 1);
    assert!(matches!(bench.manager.sessions().get(id()), Err(Error::NoSession { .. })));
    assert_eq!(bench.manager.checkpoints().get(checkpoint.id).unwrap().session_id, Some(id().to_uuid()));
    assert_eq!(bench.manager.upkeep().check_history().unwrap().broken, None);
}

#[test]
fn what_may_not_be_is_refused_and_changes_nothing() {
    let bench = bench();
    let before = bench.manager.sessions().get(id()).unwrap();
    let error = bench.manager.sessions().transition(id(), SessionStatus::Completed).unwrap_err();
    assert!(matches!(error, Error::Session(SessionRule::Transition { .. })), "{error}");
    let failure = Failure::from(&error);
    assert_eq!(
        (failure.code, failure.hints[1].as_str()),
        ("session_rule", "From initializing it can become planning, failed, paused.")
    );
    let taken = bench.manager.sessions().create(new("Again")).unwrap_err();
    assert_eq!(Failure::from(&taken).code, "taken");
    // The first change is valid, the second is not: neither is made.
    let changes = vec![SessionChange::Request("Else".into()), SessionChange::Request(" ".into())];
    let bad = bench.manager.sessions().update(id(), changes).unwrap_err();
    assert_eq!(Failure::from(&bad).code, "bad_input");
    let empty = bench.manager.sessions().create(NewSession { id: None, ..new("") }).unwrap_err();
    assert_eq!(Failure::from(&empty).code, "bad_input");
    assert_eq!(bench.manager.sessions().get(id()).unwrap(), before);
    let other = SessionId::from_bits(1);
    for error in [
        bench.manager.sessions().get(other).unwrap_err(),
        bench.manager.sessions().update(other, Vec::new()).unwrap_err(),
        bench.manager.sessions().transition(other, SessionStatus::Planning).unwrap_err(),
        bench.manager.sessions().delete(other).unwrap_err(),
        bench.manager.sessions().export(other).unwrap_err(),
    ] {
        assert_eq!(Failure::from(&error).code, "no_session");
    }
    bench.manager.sessions().transition(id(), SessionStatus::Failed).unwrap();
    let error = bench.manager.sessions().transition(id(), SessionStatus::Planning).unwrap_err();
    assert_eq!(Failure::from(&error).hints[1], "It is failed: that is final.");
}

#[test]
fn sessions_without_an_id_get_one() {
    let bench = Bench::new();
    let make = |request: &str| -> Session {
        bench.manager.sessions().create(NewSession { id: None, ..new(request) }).unwrap()
    };
    let (first, second) = (make("One"), make("Two"));
    assert_ne!(first.id, second.id);
    assert_eq!(bench.manager.sessions().list(None, None).unwrap(), [second.clone(), first]);
    assert_eq!(bench.manager.sessions().list(Some(SessionStatus::Initializing), Some(1)).unwrap(), [second]);
    assert_eq!(bench.manager.sessions().list(Some(SessionStatus::Paused), None).unwrap(), []);
}

#[test]
fn checkpoints_count_for_their_session_whichever_form_its_id_has() {
    let bench = bench();
    bench.create();
    for session_id in [id().to_uuid(), id().to_uuid().to_uppercase(), id().to_string()] {
        let options = CreateOptions { session_id: Some(session_id), ..CreateOptions::default() };
        let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap();
        assert_eq!(created.checkpoint.session_id, Some(id().to_uuid()));
    }
    assert_eq!(counted(&bench), Statistics { checkpoints_created: 4, ..Statistics::default() });
    // An unregistered session is valid, but counts nothing.
    let options = CreateOptions { session_id: Some("nobody's".into()), ..CreateOptions::default() };
    let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap();
    assert_eq!(created.checkpoint.session_id.as_deref(), Some("nobody's"));
    assert_eq!(counted(&bench).checkpoints_created, 4);
}

#[test]
fn a_session_that_is_registered_late_has_its_checkpoints() {
    let bench = Bench::with(Settings { session_id: Some(id().to_uuid()), ..Settings::default() });
    bench.create();
    bench.create();
    let session = bench.manager.sessions().create(new("Late")).unwrap();
    assert_eq!(session.statistics.checkpoints_created, 2);
    assert_eq!(bench.manager.sessions().get(id()).unwrap(), session);
    bench.create();
    assert_eq!(counted(&bench).checkpoints_created, 3);
}

#[test]
fn a_rollback_that_was_done_counts_and_no_other_does() {
    let bench = bench();
    bench.write("a", "1");
    let first = bench.create().id;
    bench.write("a", "2");
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    bench.manager.rollback(&bench.workspace, first, &dry, &Silent).unwrap();
    assert!(bench.manager.redo(&bench.workspace, &RollbackOptions::default(), &Silent).is_err());
    assert_eq!(counted(&bench), Statistics { checkpoints_created: 1, ..Statistics::default() });
    bench.rollback(first);
    bench.undo();
    bench.redo();
    // Each took a safety checkpoint, too.
    let expected = Statistics { checkpoints_created: 4, error_recoveries: 3, ..Statistics::default() };
    assert_eq!(counted(&bench), expected);
    // A manager without a session counts for none.
    let other = open(&bench.home(), Settings::default());
    other.undo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(counted(&bench), expected);
}

#[test]
fn steps_and_decisions_count_when_a_plan_is_driven_from_outside() {
    let bench = bench();
    plan(&bench, "[checkpoints]\non = []\n[[step]]\nid = 'a'\n[[step]]\nid = 'b'\n[[step.step]]\nid = 'c'\n");
    let before = bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap();
    bench.manager.plans().start_step("work", "a", &Silent).unwrap();
    bench.manager.plans().finish_step("work", "a", None, &Silent).unwrap();
    assert!(bench.manager.plans().finish_step("work", "a", None, &Silent).is_err());
    bench.manager.plans().start_step("work", "b/c", &Silent).unwrap();
    bench.manager.plans().fail_step("work", "b/c", "no", &Silent).unwrap();
    bench.manager.plans().start_step("work", "b/c", &Silent).unwrap();
    // It is the last of its subplan, which ends with it and is no task itself.
    bench.manager.plans().finish_step("work", "b/c", None, &Silent).unwrap();
    decide(&bench);
    let expected = Statistics {
        tasks_completed: 2,
        tasks_failed: 1,
        decisions_made: 1,
        checkpoints_created: 1,
        error_recoveries: 0,
    };
    assert_eq!(counted(&bench), expected);
    // Undone tasks still count as done.
    bench
        .manager
        .plans()
        .rollback("work", before.checkpoint.id, &RollbackOptions::default(), &Silent)
        .unwrap();
    bench.manager.plans().start_step("work", "a", &Silent).unwrap();
    bench.manager.plans().fail_step("work", "a", "no", &Silent).unwrap();
    let revert = Revert { guidance: Some("mind the lock".into()), ..Revert::default() };
    bench.manager.plans().correct_by_revert("work", &revert, &RollbackOptions::default(), &Silent).unwrap();
    bench.manager.plans().start_step("work", "a", &Silent).unwrap();
    bench.manager.plans().fail_step("work", "a", "no", &Silent).unwrap();
    let fix = Fix::Append { spec: StepSpec::new("d"), place: None };
    bench.manager.plans().correct_in_place("work", &fix, Some("and this"), DryRun::No).unwrap();
    let skip = Fix::Skip { step: None, reason: "not needed".into() };
    bench.manager.plans().correct_in_place("work", &skip, None, DryRun::No).unwrap();
    let expected = Statistics {
        tasks_completed: 3,
        tasks_failed: 3,
        decisions_made: 3,
        checkpoints_created: 3,
        error_recoveries: 2,
    };
    assert_eq!(counted(&bench), expected);
}

#[test]
fn steps_count_when_a_plan_is_run() {
    let bench = bench();
    plan(
        &bench,
        "[checkpoints]\non = []\n[[step]]\nid = 'a'\nrun = 'true'\n[[step]]\nid = 'b'\nverify = 'test -e ok'\n[[step.step]]\nid = 'c'\nrun = 'true'\n[[step]]\nid = 'd'\nrun = 'test -e ok'\n",
    );
    run(&bench);
    // Two are done, and the check of the subplan fails.
    let expected = Statistics { tasks_completed: 2, tasks_failed: 1, ..Statistics::default() };
    assert_eq!(counted(&bench), expected);
    bench.write("ok", "");
    let options = RunOptions { interrupted: Some(Interrupted::Rerun), ..RunOptions::default() };
    bench.manager.plans().resume("work", &options, &Unseen, &Silent).unwrap();
    assert_eq!(counted(&bench).tasks_completed, 3);
    assert_eq!(counted(&bench).tasks_failed, 1);
}

#[test]
fn a_log_holds_the_checkpoints_of_the_session_and_sums_over_them() {
    let bench = bench();
    let empty = bench.manager.sessions().export(id()).unwrap();
    assert_eq!((empty.checkpoints.len(), empty.summary.latest_checkpoint), (0, None));
    let options = |session: Option<String>, reason| CreateOptions {
        session_id: session,
        kind: Kind::Workflow,
        reason,
        ..CreateOptions::default()
    };
    let take = |options: &CreateOptions| {
        bench.manager.create(&bench.workspace, options, &Silent).unwrap().checkpoint.id
    };
    let first = take(&options(None, Reason::PhaseComplete));
    let second = take(&options(None, Reason::SafeState));
    take(&options(Some(SessionId::from_bits(5).to_uuid()), Reason::SafeState));
    bench.write("new", "1");
    bench.rollback(first);
    let log = bench.manager.sessions().export(id()).unwrap();
    let ids: Vec<_> = log.checkpoints.iter().map(|checkpoint| checkpoint.id).collect();
    assert_eq!((ids, log.summary.safety_checkpoints), (vec![second, first], 1));
    let filter = Filter { session_id: Some(id().to_uuid()), ..Filter::default() };
    assert_eq!(log.summary, bench.manager.checkpoints().summary(&filter).unwrap());
    assert_eq!(log.summary.checkpoints_used_for_rollback, 1);
    assert_eq!(log.session, bench.manager.sessions().get(id()).unwrap());
    assert!(log.generated_at >= log.session.updated_at);
}
