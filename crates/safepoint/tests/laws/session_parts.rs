//! Sessions as parts of a checkpoint: rolled back with the files or not at all; counters never decrease.

use crate::bench::{Bench, open, scratch};
use crate::layouts::export;
use safepoint::model::checkpoint::{Checkpoint, PartKind};
use safepoint::model::id::SessionId;
use safepoint::model::session::{Session, SessionChange, SessionStatus};
use safepoint::{
    Activity, CheckpointManager, CreateOptions, Depth, DryRun, Error, Failure, ImportOptions, NewSession,
    Progress, RollbackOptions, SessionBack, Settings, Silent, Subject, Warning,
};
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

fn id() -> SessionId {
    SessionId::from_bits(0x0193_2b7c_8f00_1234_5678_9abc_def0_1122)
}

fn settings() -> Settings {
    Settings { session_id: Some(id().to_string()), ..Settings::default() }
}

/// Creates a bench for a session in planning.
fn bench() -> Bench {
    let bench = Bench::with(settings());
    let new = NewSession { request: "Add rate limiting".to_owned(), id: Some(id()), ..NewSession::default() };
    bench.manager.sessions().create(new).unwrap();
    set(&bench.manager, "model", json!("large"));
    bench.manager.sessions().transition(id(), SessionStatus::Planning).unwrap();
    bench.write("file", "good");
    bench
}

fn set(manager: &CheckpointManager, key: &str, value: Value) {
    let change = SessionChange::ConfigurationKey { path: vec![key.to_owned()], value };
    manager.sessions().update(id(), vec![change]).unwrap();
}

fn session(bench: &Bench) -> Session {
    bench.manager.sessions().get(id()).unwrap()
}

/// Continues the work with errors.
fn go_wrong(bench: &Bench) {
    bench.write("file", "bad");
    bench.manager.sessions().transition(id(), SessionStatus::GeneratingTasks).unwrap();
    bench.manager.sessions().transition(id(), SessionStatus::Failed).unwrap();
    set(&bench.manager, "model", json!("small"));
    let changes = vec![
        SessionChange::Request("Something else".into()),
        SessionChange::GitContext(Some(Default::default())),
    ];
    bench.manager.sessions().update(id(), changes).unwrap();
}

/// Restorable state of a session.
fn said(session: &Session) -> (String, SessionStatus, Option<SessionStatus>, Value, Value, bool) {
    (
        session.request.clone(),
        session.status,
        session.paused_from,
        json!(session.configuration),
        json!(session.git_context),
        session.finished_at.is_some(),
    )
}

fn part(kind: PartKind) -> RollbackOptions {
    RollbackOptions { parts: vec![kind], ..RollbackOptions::default() }
}

fn events(bench: &Bench) -> Vec<(String, Value)> {
    let catalog = safepoint_catalog::Catalog::open(&bench.home().join("catalog.db")).unwrap();
    let events = catalog.events(0, 10_000).unwrap();
    let of_session = events.into_iter().filter(|event| event.kind == "session.rolled_back");
    of_session.map(|event| (event.subject, event.payload)).collect()
}

#[test]
fn a_session_goes_back_with_the_files_and_so_does_the_undo() {
    let bench = bench();
    let then = session(&bench);
    let checkpoint = bench.create();
    let kept = bench.manager.checkpoints().session_of(&checkpoint).unwrap().unwrap();
    assert_eq!((kept.id, kept.status, &kept.request), (id(), SessionStatus::Planning, &then.request));
    assert_eq!(kept.statistics, then.statistics);
    go_wrong(&bench);
    let later = session(&bench);
    // A dry run changes nothing.
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let shown = bench.manager.rollback(&bench.workspace, checkpoint.id, &dry, &Silent).unwrap();
    let back = SessionBack { id: id(), from: SessionStatus::Failed, to: SessionStatus::Planning };
    assert_eq!((shown.sessions.first().copied(), session(&bench)), (Some(back), later.clone()));
    let restored = bench.rollback(checkpoint.id);
    assert_eq!(restored.sessions.first().copied(), Some(back));
    let now = session(&bench);
    assert_eq!((said(&now), bench.read("file").as_str()), (said(&then), "good"));
    // History stays: its start and all counters, including that of the rollback.
    assert_eq!(now.created_at, then.created_at);
    assert!(now.updated_at > later.updated_at);
    assert_eq!(now.statistics.checkpoints_created, later.statistics.checkpoints_created + 1);
    assert_eq!(now.statistics.error_recoveries, 1);
    let written = events(&bench);
    assert_eq!((written.len(), written[0].0.as_str()), (1, id().to_uuid().as_str()));
    assert_eq!((&written[0].1["from"], &written[0].1["to"]), (&json!("failed"), &json!("planning")));
    assert_eq!(written[0].1["rollback"], json!(restored.record().id));
    // It can continue, and the undo also reverts that change.
    bench.manager.sessions().transition(id(), SessionStatus::GeneratingTasks).unwrap();
    let undone = bench.undo();
    assert_eq!(undone.sessions.first().copied().unwrap().to, SessionStatus::Failed);
    assert_eq!((said(&session(&bench)), bench.read("file").as_str()), (said(&later), "bad"));
    bench.redo();
    assert_eq!(session(&bench).status, SessionStatus::GeneratingTasks);
    assert_eq!(session(&bench).statistics.error_recoveries, 3);
    assert_eq!(events(&bench).len(), 3);
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    assert_eq!(bench.manager.upkeep().check_history().unwrap().broken, None);
}

#[test]
fn parts_go_back_alone() {
    let bench = bench();
    let (then, checkpoint) = (session(&bench), bench.create());
    go_wrong(&bench);
    let later = session(&bench);
    // The files without the session: neither the rollback nor its undo changes it.
    bench.manager.rollback(&bench.workspace, checkpoint.id, &part(PartKind::Files), &Silent).unwrap();
    assert_eq!((said(&session(&bench)), bench.read("file").as_str()), (said(&later), "good"));
    set(&bench.manager, "model", json!("other"));
    bench.undo();
    assert_eq!(
        (session(&bench).configuration["model"].clone(), bench.read("file").as_str()),
        (json!("other"), "bad")
    );
    bench.restore_paths(checkpoint.id, &["file"]);
    assert_eq!(session(&bench).status, SessionStatus::Failed);
    bench.undo();
    // The session without the files, and its undo, too.
    let restored =
        bench.manager.rollback(&bench.workspace, checkpoint.id, &part(PartKind::Session), &Silent).unwrap();
    assert!(restored.outline().paths.is_empty());
    assert_eq!((said(&session(&bench)), bench.read("file").as_str()), (said(&then), "bad"));
    // The workspace's head did not move.
    assert_eq!(
        bench.manager.workspaces().get(bench.workspace.id).unwrap().head,
        restored.record().safety_checkpoint
    );
    bench.write("file", "newer");
    bench.undo();
    assert_eq!((session(&bench).status, bench.read("file").as_str()), (SessionStatus::Failed, "newer"));
    bench.redo();
    assert_eq!((said(&session(&bench)), bench.read("file").as_str()), (said(&then), "newer"));
    // A repetition changes and reports nothing.
    let count = events(&bench).len();
    let again =
        bench.manager.rollback(&bench.workspace, checkpoint.id, &part(PartKind::Session), &Silent).unwrap();
    assert_eq!((again.sessions.first().copied(), events(&bench).len()), (None, count));
}

#[test]
fn an_undo_of_a_plan_alone_leaves_the_files() {
    let bench = Bench::new();
    bench.write("file", "good");
    crate::runner::plan(&bench, "[[step]]\nid = 'one'");
    let then =
        bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint;
    bench.manager.plans().start_step("work", "one", &Silent).unwrap();
    bench.manager.plans().rollback("work", then.id, &part(PartKind::Plan), &Silent).unwrap();
    bench.write("file", "newer");
    bench.undo();
    assert_eq!(bench.read("file"), "newer");
}

/// Changes the session when an activity starts.
struct Meddler {
    manager: CheckpointManager,
    when: Activity,
    done: AtomicBool,
}

impl Progress for Meddler {
    fn begin(&self, activity: Activity, _: Option<u64>) {
        if activity == self.when && !self.done.swap(true, Ordering::Relaxed) {
            set(&self.manager, "meddled", json!(true));
        }
    }
}

#[test]
fn files_and_session_go_back_both_or_neither() {
    for when in [Activity::Staging, Activity::Verifying] {
        let bench = bench();
        let checkpoint = bench.create();
        go_wrong(&bench);
        let manager = open(&bench.home(), settings());
        let meddler = Meddler { manager, when, done: AtomicBool::new(false) };
        let options = RollbackOptions::default();
        let error = bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &meddler).unwrap_err();
        let failure = Failure::from(&error);
        let told = format!("{} {}", failure.message, failure.causes.join(" "));
        assert!(told.contains("changed concurrently"), "{told}");
        let now = session(&bench);
        assert_eq!((now.status, bench.read("file").as_str()), (SessionStatus::Failed, "bad"), "{when:?}");
        assert_eq!((&now.configuration["meddled"], now.statistics.error_recoveries), (&json!(true), 0));
        assert!(events(&bench).is_empty());
        // An obstacle of the files also blocks the session.
        fs::remove_file(bench.path("file")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(bench.path("file")).unwrap();
        bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap_err();
        assert_eq!(session(&bench).status, SessionStatus::Failed);
    }
}

#[test]
fn a_session_is_left_alone_where_it_is_not_meant() {
    let bench = bench();
    let checkpoint = bench.create();
    go_wrong(&bench);
    // A manager of another session does not move this one, unless requested by name.
    let other = Settings { session_id: Some(SessionId::from_bits(9).to_string()), ..Settings::default() };
    let manager = open(&bench.home(), other);
    let options = RollbackOptions::default();
    let restored = manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap();
    assert!(matches!(restored.warnings[0], Warning::OtherSession { .. }), "{:?}", restored.warnings);
    assert_eq!((restored.sessions.first().copied(), session(&bench).status), (None, SessionStatus::Failed));
    manager.rollback(&bench.workspace, checkpoint.id, &part(PartKind::Session), &Silent).unwrap();
    assert_eq!(session(&bench).status, SessionStatus::Planning);
    manager.undo(&bench.workspace, &options, &Silent).unwrap();
    assert_eq!(session(&bench).status, SessionStatus::Failed, "the undo restores the status");
    // A manager without a session uses that of the checkpoint.
    let none = open(&bench.home(), Settings::default());
    none.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(session(&bench).status, SessionStatus::Planning);
    // A deleted session stays deleted.
    bench.manager.sessions().delete(id()).unwrap();
    let restored = bench.rollback(checkpoint.id);
    assert!(matches!(restored.warnings[0], Warning::SessionMissing { .. }), "{:?}", restored.warnings);
    let by_name = part(PartKind::Session);
    let error = bench.manager.rollback(&bench.workspace, checkpoint.id, &by_name, &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).code, "no_session");
    assert!(matches!(bench.manager.sessions().get(id()), Err(Error::NoSession { .. })));
    // An unrecorded session is no part.
    let checkpoint = bench.create();
    assert_eq!(
        (checkpoint.session_id.as_deref(), checkpoint.parts.len()),
        (Some(id().to_uuid().as_str()), 1)
    );
    let error = bench.manager.rollback(&bench.workspace, checkpoint.id, &by_name, &Silent).unwrap_err();
    assert!(matches!(error, Error::NoPart { part: PartKind::Session, .. }), "{error}");
    assert_eq!(bench.manager.checkpoints().session_of(&checkpoint).unwrap(), None);
}

#[test]
fn a_paused_session_is_paused_again_where_it_was() {
    let bench = bench();
    bench.manager.sessions().transition(id(), SessionStatus::Paused).unwrap();
    let checkpoint = bench.create();
    bench.manager.sessions().transition(id(), SessionStatus::Planning).unwrap();
    bench.rollback(checkpoint.id);
    let now = session(&bench);
    assert_eq!((now.status, now.paused_from), (SessionStatus::Paused, Some(SessionStatus::Planning)));
    bench.manager.sessions().transition(id(), SessionStatus::Planning).unwrap();
}

#[test]
fn a_session_goes_back_with_several_folders_and_so_does_the_undo() {
    let bench = bench();
    let created = bench.manager.create(&Subject::Framework, &CreateOptions::default(), &Silent).unwrap();
    assert_eq!(created.checkpoint.count(PartKind::Session), 1);
    let then = session(&bench).status;
    bench.manager.sessions().transition(id(), SessionStatus::Failed).unwrap();
    for options in [RollbackOptions::default(), part(PartKind::Session)] {
        let restored = bench.manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
        assert_eq!((restored.sessions.len(), session(&bench).status), (1, then));
        bench.manager.undo(None, &RollbackOptions::default(), &Silent).unwrap();
        assert_eq!(session(&bench).status, SessionStatus::Failed);
    }
}

#[test]
fn the_record_is_in_an_export_and_no_import_brings_it() {
    let (bench, out) = (bench(), scratch());
    let checkpoint: Checkpoint = bench.create();
    let path = export(&bench, &checkpoint, out.path());
    let file = path.join(format!("task_tool_state/session_{}.json", id().to_uuid()));
    let kept: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!((&kept["status"], &kept["request"]), (&json!("planning"), &json!("Add rate limiting")));
    let options = ImportOptions::default();
    let imported = bench.manager.import(&bench.workspace, &path, &options, &Silent).unwrap().checkpoint;
    assert!(imported.parts.iter().all(|part| part.kind != PartKind::Session));
    assert!(imported.warnings[0].contains("its part session"), "{:?}", imported.warnings);
}
