//! Crash states built by hand: cases that a loop over system calls cannot reach.

use crate::bench::{Bench, ParsePath, assert_same, open, unwatched};
use crate::framework::{World, assert_all};
use crate::runner::Unseen;
use crate::turns::turn;
use safepoint::model::rollback::{Rescued, RollbackState, Verb};
use safepoint::model::{CheckpointId, RelPath, RollbackId};
use safepoint::{
    Against, CheckpointManager, CreateOptions, DryRun, LaterChanges, Merge, PlanFile, Recovery, Revert,
    RollbackOptions, RunOptions, Search, Settings, Silent, StagedEnd, Subject, Trial, TryIn, Until, Warning,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_stage_that_never_came_to_its_intent_is_swept_away() {
    let bench = Bench::new();
    bench.write("a", "1");
    bench.create();
    let stage = bench.path(&format!(".safepoint/stage-{}", RollbackId::from_bits(9)));
    fs::create_dir_all(stage.join("0/deep")).unwrap();
    fs::write(stage.join("0/deep/copy"), "x").unwrap();
    fs::set_permissions(stage.join("0"), fs::Permissions::from_mode(0o500)).unwrap();
    assert!(bench.manager.recover(&bench.workspace, &Silent).unwrap().is_empty());
    assert!(!bench.path(".safepoint").exists());
}

#[test]
fn what_an_unknown_rollback_displaced_is_never_deleted() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    let stage = bench.path(&format!(".safepoint/apply-{}", RollbackId::from_bits(9)));
    fs::create_dir_all(&stage).unwrap();
    fs::write(stage.join("0"), "somebody's only copy").unwrap();
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
    assert_eq!(recovery.foreign, [RollbackId::from_bits(9)]);
    bench.write("a", "2");
    let refused =
        bench.manager.rollback(&bench.workspace, checkpoint.id, &RollbackOptions::default(), &Silent);
    assert!(matches!(refused, Err(safepoint::Error::ForeignRollback { .. })), "{refused:?}");
    assert_eq!(bench.read("a"), "2");
    assert_eq!(fs::read_to_string(stage.join("0")).unwrap(), "somebody's only copy");
}

/// Reverts the commit of a rollback in the catalog, so that it is in progress.
fn reopen_as_applying(bench: &Bench, id: RollbackId) {
    let sql = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    let changed =
        sql.execute("UPDATE rollbacks SET state = 'applying' WHERE id = ?1", [id.to_string()]).unwrap();
    assert_eq!(changed, 1);
}

#[test]
fn a_rollback_whose_stage_was_deleted_is_undone_from_objects() {
    let bench = Bench::new();
    bench.write("changed", "1");
    bench.write("dir/gone", "1");
    let checkpoint = bench.create();
    bench.write("changed", "2");
    bench.write("new/file", "2");
    fs::remove_dir_all(bench.path("dir")).unwrap();
    let before = bench.image();
    let restored = bench.rollback(checkpoint.id);
    // As if killed before the commit, with .safepoint deleted afterwards.
    reopen_as_applying(&bench, restored.record().id);
    let fresh = open(&bench.home(), Settings::default());
    let recovery = fresh.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!(recovery.undone, [restored.record().id]);
    assert_same(&bench.image(), &before);
    let record = fresh.rollbacks(&bench.workspace).unwrap().pop().unwrap();
    assert_eq!((record.state, record.verb), (RollbackState::Aborted, Verb::Rollback));
    assert!(fresh.recover(&bench.workspace, &Silent).unwrap().is_empty());
}

#[test]
fn rescued_edits_can_be_taken_out_one_by_one_only() {
    let bench = Bench::new();
    bench.write("a", "1");
    bench.write("keep", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let mut open_file = fs::OpenOptions::new().append(true).open(bench.path("a")).unwrap();
    let restored = bench.rollback(checkpoint.id);
    assert_eq!(restored.waiting.len(), 1, "{restored:?}");
    assert_eq!(restored.record().state, RollbackState::Done);
    std::io::Write::write_all(&mut open_file, b" and more").unwrap();
    // Still open, so it is pending.
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!((recovery.waiting.len(), recovery.rescued.len()), (1, 0));
    drop(open_file);
    let recovery = bench.settle();
    assert_eq!(recovery.rescued.len(), 1, "{recovery:?}");
    let rescue = recovery.rescued[0].checkpoint;
    let mut out = Vec::new();
    let checkpoint = bench.manager.checkpoints().get(rescue).unwrap();
    bench.manager.checkpoints().cat(&checkpoint, &recovery.rescued[0].path, &mut out).unwrap();
    assert_eq!(out, b"2 and more");
    assert!(!bench.path(".safepoint").exists());
    let whole = bench.manager.rollback(&bench.workspace, rescue, &RollbackOptions::default(), &Silent);
    assert!(matches!(whole, Err(safepoint::Error::OnlyRescued { .. })));
    bench.restore_paths(rescue, &["a"]);
    assert_eq!((bench.read("a").as_str(), bench.read("keep").as_str()), ("2 and more", "1"));
}

#[test]
fn a_missing_safety_checkpoint_says_so() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let safety = bench.rollback(checkpoint.id).record().safety_checkpoint.unwrap();
    let sql = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    sql.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    sql.execute("DELETE FROM checkpoints WHERE id = ?1", [safety.to_string()]).unwrap();
    let error = bench.manager.undo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(
        matches!(&error, safepoint::Error::NoCheckpoint { reference } if reference.parse::<CheckpointId>().is_ok()),
        "{error}"
    );
}

#[test]
fn nothing_in_a_stage_is_deleted_before_it_is_stored() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("d/held", "2");
    let held = fs::OpenOptions::new().append(true).open(bench.path("d/held")).unwrap();
    let id = bench.rollback(checkpoint.id).record().id;
    let stage = bench.path(&format!(".safepoint/apply-{id}"));
    let slot = fs::read_dir(&stage).unwrap().next().unwrap().unwrap().path();
    // A program continues to work in the displaced folder.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        slot.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    fs::create_dir(slot.join("made")).unwrap();
    fs::write(slot.join("made/x"), "in a new folder").unwrap();
    std::os::unix::fs::symlink("target", slot.join("made/link")).unwrap();
    fs::write(slot.join("loose"), "a new file").unwrap();
    fs::write(stage.join("stray"), "not even in a slot").unwrap();
    fs::set_permissions(slot.join("made"), fs::Permissions::from_mode(0o300)).unwrap();
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!(recovery.waiting.len(), 1, "{recovery:?}");
    drop(held);
    let recovery = bench.settle();
    assert!(
        recovery.warnings.iter().any(|warning| matches!(warning, Warning::DisplacedStuck { .. })),
        "{recovery:?}"
    );
    assert!(slot.join("loose").exists(), "what stays, stays whole");
    fs::remove_file(slot.join("fifo")).unwrap();
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    let text = |path: &str| {
        let rescued = recovery.rescued.iter().find(|it| path.starts_with(&it.path.to_string())).unwrap();
        let checkpoint = bench.manager.checkpoints().get(rescued.checkpoint).unwrap();
        let mut out = Vec::new();
        bench
            .manager
            .checkpoints()
            .cat(&checkpoint, &safepoint::model::RelPath::new(path).unwrap(), &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(text("d/made/x"), "in a new folder");
    assert_eq!(text("d/made/link"), "target");
    assert_eq!(text("d/loose"), "a new file");
    assert!(!bench.path(".safepoint").exists());
}

#[test]
fn a_stray_file_in_a_stage_is_rescued_under_its_name() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let held = fs::OpenOptions::new().append(true).open(bench.path("a")).unwrap();
    let id = bench.rollback(checkpoint.id).record().id;
    fs::write(bench.path(&format!(".safepoint/apply-{id}/stray.txt")), "kept").unwrap();
    drop(held);
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!(recovery.rescued.len(), 1, "{recovery:?}");
    let rescue = bench.manager.checkpoints().get(recovery.rescued[0].checkpoint).unwrap();
    let mut out = Vec::new();
    bench.manager.checkpoints().cat(&rescue, &recovery.rescued[0].path, &mut out).unwrap();
    assert_eq!(out, b"kept");
}

#[test]
fn a_settled_or_refused_rollback_leaves_nothing_to_trip_over() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let id = bench.rollback(checkpoint.id).record().id;
    // The disk lost the deletion of the stage.
    let stage = bench.path(&format!(".safepoint/apply-{id}"));
    fs::create_dir_all(&stage).unwrap();
    fs::write(stage.join("0"), "2").unwrap();
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert!(recovery.is_empty() && !bench.path(".safepoint").exists(), "{recovery:?}");
}

#[test]
fn what_others_do_while_a_rollback_is_undone_is_respected() {
    let bench = Bench::new();
    bench.write("changed", "1");
    bench.write("dir/gone", "1");
    let checkpoint = bench.create();
    bench.write("changed", "2");
    bench.write("new", "2");
    fs::remove_dir_all(bench.path("dir")).unwrap();
    let restored = bench.rollback(checkpoint.id);
    reopen_as_applying(&bench, restored.record().id);
    // Between crash and recovery, the user edits a restored file and creates a removed one.
    bench.write("changed", "edited after the crash");
    bench.write("new", "made after the crash");
    bench.write("dir/gone", "edited too");
    let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!(recovery.undone.len(), 1);
    assert_eq!(bench.read("changed"), "2");
    let rescued: Vec<String> = recovery.rescued.iter().map(|it| it.path.to_string()).collect();
    assert!(rescued.contains(&"changed".to_owned()), "{rescued:?}");
    assert!(rescued.contains(&"dir/gone".to_owned()), "{rescued:?}");
}

#[test]
fn a_folder_that_is_no_folder_any_more_does_not_stop_the_recovery() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    for replacement in ["nothing", "a file", "a link"] {
        let bench = Bench::new();
        let outside = crate::bench::scratch();
        fs::write(outside.path().join("changed"), "alive").unwrap();
        bench.write("changed", "1");
        bench.write("dir/changed", "1");
        bench.write("dir/gone", "1");
        bench.write("dir/mode", "1");
        let checkpoint = bench.create();
        bench.write("changed", "2");
        bench.write("dir/changed", "2");
        fs::remove_file(bench.path("dir/gone")).unwrap();
        fs::set_permissions(bench.path("dir/mode"), fs::Permissions::from_mode(0o600)).unwrap();
        let restored = bench.rollback(checkpoint.id);
        reopen_as_applying(&bench, restored.record().id);
        // Between crash and recovery.
        fs::remove_dir_all(bench.path("dir")).unwrap();
        match replacement {
            "a file" => bench.write("dir", "a file"),
            "a link" => symlink(outside.path(), bench.path("dir")).unwrap(),
            _ => {}
        }
        let recovery = bench.manager.recover(&bench.workspace, &Silent).unwrap();
        assert_eq!(recovery.undone, [restored.record().id], "{replacement}");
        assert_eq!(bench.read("changed"), "2");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.path().join("changed")).unwrap(), "alive");
        // Everything can still be restored.
        bench.rollback(checkpoint.id);
        assert_eq!(bench.read("dir/gone"), "1");
    }
}

#[test]
fn what_is_written_between_storing_and_deleting_is_stored_again() {
    use std::io::Write;
    let bench = Bench::new();
    bench.write("log", "0");
    bench.write("still", "0");
    let checkpoint = bench.create();
    bench.write("log", "1");
    bench.write("still", "1");
    let open = |name: &str| fs::OpenOptions::new().append(true).open(bench.path(name)).unwrap();
    let (mut log, still) = (open("log"), open("still"));
    let restored = bench.rollback(checkpoint.id);
    assert_eq!(restored.waiting.len(), 2, "{restored:?}");
    log.write_all(b"2").unwrap();
    let stored = bench.manager.upkeep().store_waiting(&bench.workspace, &Silent).unwrap();
    assert_eq!((stored.recovery.waiting.len(), stored.recovery.rescued.len()), (2, 2), "{stored:?}");
    assert!(bench.path(".safepoint").exists(), "nothing is deleted without consent");
    log.write_all(b"3").unwrap();
    let released = bench.manager.upkeep().release(&bench.workspace, stored, &Silent).unwrap();
    assert_eq!((released.waiting.len(), released.released.len()), (0, 2), "{released:?}");
    let kept = |path: &str| -> Vec<String> {
        let of_path = released.rescued.iter().filter(|rescued| rescued.path.to_string() == path);
        of_path
            .map(|rescued| {
                let checkpoint = bench.manager.checkpoints().get(rescued.checkpoint).unwrap();
                let mut out = Vec::new();
                bench.manager.checkpoints().cat(&checkpoint, &rescued.path, &mut out).unwrap();
                String::from_utf8(out).unwrap()
            })
            .collect()
    };
    assert_eq!((kept("log"), kept("still")), (vec!["12".into(), "123".into()], vec!["1".into()]));
    assert!(!bench.path(".safepoint").exists());
    assert_eq!(
        bench.manager.rollbacks(&bench.workspace).unwrap().pop().unwrap().state,
        RollbackState::Settled
    );
    drop((log, still));
    assert!(bench.manager.recover(&bench.workspace, &Silent).unwrap().is_empty());
}

#[test]
fn a_rescue_counts_what_it_holds() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let mut open_file = fs::OpenOptions::new().append(true).open(bench.path("a")).unwrap();
    bench.rollback(checkpoint.id);
    std::io::Write::write_all(&mut open_file, b" and more").unwrap();
    drop(open_file);
    let recovery = bench.settle();
    let rescue = bench.manager.checkpoints().get(recovery.rescued[0].checkpoint).unwrap();
    assert_eq!((rescue.files.count, rescue.files.bytes, rescue.files.added), (1, 10, 1));
}

#[test]
fn a_rollback_of_many_folders_is_recovered_in_all_of_them_by_the_first_command() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    world.disaster();
    let later = world.everything();
    let options = RollbackOptions::default();
    let restored = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    let ids: BTreeSet<RollbackId> = restored.folders.iter().map(|folder| folder.record.id).collect();
    assert!(ids.len() > 3, "{ids:?}");
    ids.iter().for_each(|id| reopen_as_applying(&world.bench, *id));
    let recovery = manager.recover(&world.others[0], &Silent).unwrap();
    assert_eq!(recovery.undone.iter().copied().collect::<BTreeSet<_>>(), ids);
    assert_all(&world.everything(), &later);
    assert!(manager.recover(&world.bench.workspace, &Silent).unwrap().is_empty());
}

#[test]
fn a_recovery_that_did_anything_is_not_empty() {
    let id = RollbackId::from_bits(1);
    let path = || RelPath::new("a").unwrap();
    let rescued = Rescued { path: path(), checkpoint: CheckpointId::from_bits(1), why: String::new() };
    let with = |change: &dyn Fn(&mut Recovery)| {
        let mut recovery = Recovery::default();
        change(&mut recovery);
        recovery
    };
    let all = [
        with(&|it| it.undone.push(id)),
        with(&|it| it.settled.push(id)),
        with(&|it| it.rescued.push(rescued.clone())),
        with(&|it| it.waiting.push(path())),
        with(&|it| it.released.push(path())),
        with(&|it| it.foreign.push(id)),
        with(&|it| it.warnings.push(Warning::HalfDone)),
    ];
    all.iter().for_each(|recovery| assert!(!recovery.is_empty(), "{recovery:?}"));
    assert!(Recovery::default().is_empty());
}

#[test]
fn a_rollback_counts_as_settled_once_nothing_waits_and_nothing_is_stuck() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("d/held", "2");
    let held = fs::OpenOptions::new().append(true).open(bench.path("d/held")).unwrap();
    let id = bench.rollback(checkpoint.id).id;
    let waiting = bench.manager.recover(&bench.workspace, &Silent).unwrap();
    assert_eq!((waiting.settled.len(), waiting.waiting.len()), (0, 1), "{waiting:?}");
    let slot = fs::read_dir(bench.path(&format!(".safepoint/apply-{id}"))).unwrap().next().unwrap().unwrap();
    let fifo = slot.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    drop(held);
    let stuck = bench.settle();
    assert_eq!((stuck.settled.len(), stuck.warnings.len()), (0, 1), "{stuck:?}");
    fs::remove_file(fifo).unwrap();
    let settled = bench.settle();
    assert_eq!((settled.settled, settled.warnings), (vec![id], vec![]));
}

#[test]
fn how_an_undone_or_refused_rollback_ended_is_on_record() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let id = bench.rollback(checkpoint.id).id;
    reopen_as_applying(&bench, id);
    bench.manager.recover(&bench.workspace, &Silent).unwrap();
    let last = || bench.manager.rollbacks(&bench.workspace).unwrap().pop().unwrap();
    assert_eq!(last().error.as_deref(), Some("the process ended half-way"));
    fs::remove_file(bench.path("a")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("a")).unwrap();
    let options = RollbackOptions::default();
    bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap_err();
    let refused = last();
    assert_eq!((refused.state, refused.safety_checkpoint), (RollbackState::Refused, None));
    assert!(refused.finished_at.is_some() && refused.error.is_some(), "{refused:?}");
    // A dry run is not recorded.
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..options };
    bench.manager.rollback(&bench.workspace, checkpoint.id, &dry, &Silent).unwrap_err();
    assert_eq!(last().id, refused.id);
}

#[test]
fn a_rescued_file_comes_back_in_folders_that_can_be_used() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("d/held", "2");
    let held = fs::OpenOptions::new().append(true).open(bench.path("d/held")).unwrap();
    bench.rollback(checkpoint.id);
    std::io::Write::write_all(&mut &held, b" and more").unwrap();
    drop(held);
    let rescue = bench.settle().rescued[0].checkpoint;
    assert!(!bench.path("d").exists());
    bench.restore_paths(rescue, &["d/held"]);
    assert_eq!(bench.read("d/held"), "2 and more");
    assert_eq!(fs::metadata(bench.path("d")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_rollback_whose_intent_cannot_be_recorded_changes_nothing_and_is_on_record_as_refused() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let sql = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    sql.execute_batch(
        "CREATE TRIGGER no_intent BEFORE INSERT ON rollbacks WHEN NEW.state = 'applying'
         BEGIN SELECT RAISE(ABORT, 'no intent'); END",
    )
    .unwrap();
    let options = RollbackOptions::default();
    bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap_err();
    assert_eq!(bench.read("a"), "2");
    assert!(!bench.path(".safepoint").exists());
    let record = bench.manager.rollbacks(&bench.workspace).unwrap().pop().unwrap();
    assert_eq!((record.state, record.safety_checkpoint), (RollbackState::Refused, None));
    assert_eq!(record.changed_paths, None);
    sql.execute_batch("DROP TRIGGER no_intent").unwrap();
    bench.rollback(checkpoint.id);
    assert_eq!(bench.read("a"), "1");
}

/// A bench with a rollback that was cut short, for every verb to recover.
struct CutShort {
    bench: Bench,
    /// A manager of another process.
    fresh: CheckpointManager,
    checkpoint: CheckpointId,
    /// A checkpoint of the plan `work`.
    of_plan: CheckpointId,
    rollback: RollbackId,
}

impl CutShort {
    fn new() -> Self {
        let bench = Bench::new();
        let plans = bench.manager.plans();
        for (id, step) in [("work", ""), ("broken", ""), ("over", ""), ("runs", "run = 'true'")] {
            let text =
                format!("title = 'P'\nid = '{id}'\n[checkpoints]\non = []\n[[step]]\nid = 'a'\n{step}");
            plans.create(&bench.workspace, &PlanFile::parse(text.as_bytes(), None).unwrap().spec).unwrap();
        }
        bench.write("a", "1");
        let of_plan = plans.checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
        plans.checkpoint("broken", &CreateOptions::default(), &Silent).unwrap();
        plans.start_step("broken", "a", &Silent).unwrap();
        plans.fail_step("broken", "a", "broken", &Silent).unwrap();
        plans.start_step("over", "a", &Silent).unwrap();
        plans.finish_step("over", "a", None, &Silent).unwrap();
        turn(&bench, "0193a6b4-8000-7000-8000-000000000001", "add", || bench.write("of_turn", "1"));
        let checkpoint = bench.create().id;
        for content in ["2", "3"] {
            bench.write("a", content);
            bench.rollback(checkpoint);
        }
        bench.undo();
        bench.write("a", "4");
        let rollback = bench.rollback(checkpoint).record().id;
        reopen_as_applying(&bench, rollback);
        let fresh = open(&bench.home(), Settings::default());
        Self { bench, fresh, checkpoint, of_plan, rollback }
    }
}

type Verbs = [(&'static str, fn(&CutShort) -> Recovery)];

const REPLACE: fn() -> RollbackOptions =
    || RollbackOptions { later_changes: LaterChanges::Replaced, ..RollbackOptions::default() };

const VERBS: &Verbs = &[
    ("create", |it| {
        it.fresh.create(&it.bench.workspace, &CreateOptions::default(), &Silent).unwrap().recovered
    }),
    ("rollback", |it| {
        it.fresh.rollback(&it.bench.workspace, it.checkpoint, &REPLACE(), &Silent).unwrap().recovered
    }),
    ("preview", |it| {
        let options = RollbackOptions { dry_run: DryRun::Yes, ..REPLACE() };
        it.fresh.rollback(&it.bench.workspace, it.checkpoint, &options, &Silent).unwrap().recovered
    }),
    ("undo", |it| it.fresh.undo(&it.bench.workspace, &REPLACE(), &Silent).unwrap().recovered),
    ("redo", |it| it.fresh.redo(&it.bench.workspace, &REPLACE(), &Silent).unwrap().recovered),
    ("staged", |it| {
        let trial = Trial { command: None, agreed: &mut |_| true, printed: &mut |_| () };
        let end = it.fresh.rollback_staged(&it.bench.workspace, it.checkpoint, &REPLACE(), trial, &Silent);
        let StagedEnd::Done(done, _) = end.unwrap() else { panic!("not done") };
        done.recovered
    }),
    ("staged and declined", |it| {
        let trial = Trial { command: None, agreed: &mut |_| false, printed: &mut |_| () };
        let end = it.fresh.rollback_staged(&it.bench.workspace, it.checkpoint, &REPLACE(), trial, &Silent);
        let StagedEnd::Left(staged) = end.unwrap() else { panic!("done") };
        staged.outline.recovered
    }),
    ("search", |it| searched(it, TryIn::Copy)),
    ("search in place", |it| searched(it, TryIn::Workspace)),
    ("turn undo", |it| {
        it.fresh.turns().undo(&it.bench.workspace, 1, &REPLACE(), &Silent).unwrap().done.recovered
    }),
    ("diff", |it| {
        let checkpoint = it.fresh.checkpoints().get(it.checkpoint).unwrap();
        it.fresh.diff(&it.bench.workspace, &checkpoint, &Against::Present, &Silent).unwrap().recovered
    }),
    ("status", |it| it.fresh.status(&it.bench.workspace, &Silent).unwrap().recovery),
    ("survey", |it| it.fresh.survey(&it.bench.workspace, &Silent).unwrap().recovered),
    ("plan rollback", |it| {
        it.fresh.plans().rollback("work", it.of_plan, &REPLACE(), &Silent).unwrap().recovered
    }),
    ("plan checkpoint", |it| {
        it.fresh.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().recovered
    }),
    ("plan step start", |it| it.fresh.plans().start_step("work", "a", &Silent).unwrap().recovered),
    ("plan run", |it| {
        it.fresh.plans().run("runs", &RunOptions::default(), &Unseen, &Silent).unwrap().recovered
    }),
    ("plan correct", |it| {
        let revert = Revert::default();
        it.fresh.plans().correct_by_revert("broken", &revert, &REPLACE(), &Silent).unwrap().recovered
    }),
    ("plan apply", |it| it.fresh.plans().apply("over", Merge::Refused, &Silent).unwrap().recovered),
    ("purge", |it| {
        let paths = ["of_turn".parse_path()];
        it.fresh.upkeep().purge(&it.bench.workspace, &paths, &Silent).unwrap().recovered
    }),
    ("repair", |it| it.fresh.upkeep().repair(&Silent).unwrap().recovered),
];

fn searched(it: &CutShort, place: TryIn) -> Recovery {
    let command = "test -e a".to_owned();
    let until = Until { command, from: Some(it.checkpoint), search: Search::Stepwise, place, plan: None };
    let found =
        unwatched(|watch| it.fresh.rollback_until(&it.bench.workspace, &until, &REPLACE(), watch, &Silent));
    found.unwrap().recovered
}

#[test]
fn every_verb_reports_the_recovery_before_it() {
    for (name, verb) in VERBS {
        let it = CutShort::new();
        assert_eq!(verb(&it).undone, [it.rollback], "{name}");
    }
}

#[test]
fn a_verb_that_fails_leaves_the_recovery_before_it_to_the_caller() {
    let it = CutShort::new();
    let missing = ["missing".parse_path()];
    it.fresh.upkeep().purge(&it.bench.workspace, &missing, &Silent).unwrap_err();
    assert_eq!(it.fresh.take_recovered().undone, [it.rollback]);
    assert!(it.fresh.take_recovered().is_empty());
}
