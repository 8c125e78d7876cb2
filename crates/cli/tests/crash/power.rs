//! Power cuts on a simulated disk that loses unsynced data, at every operation of every command.

use crate::scene::{Act, Scene};
use safepoint_testkit::{Disk, Op, Recording, every_cut, record};
use std::cell::Cell;

/// Random crash states at each point, beside the systematic ones.
const RANDOM_STATES: u32 = 4;

fn recorded(scene: &Scene) -> (Disk, Recording) {
    scene.reset();
    let start = Disk::load(&scene.roots()).unwrap();
    let recording = record(&scene.verb(), &scene.roots()).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    (start, recording)
}

/// Cuts the power everywhere; returns the number of states that held, or the first violation.
fn cut_everywhere(scene: &Scene, start: &Disk, recording: &Recording) -> Result<(usize, u64, u64), String> {
    let (old, new) = (Cell::new(0), Cell::new(0));
    let states = every_cut(start, recording, RANDOM_STATES, 7, |cut| {
        cut.image.lay_out()?;
        let outcome = scene.law(cut.last).map_err(|broken| {
            std::io::Error::other(format!(
                "after {} operations, the last being {:?}, {:?}: {broken}",
                cut.done, cut.after, cut.how
            ))
        })?;
        let count = if outcome { &new } else { &old };
        count.set(count.get() + 1);
        Ok(())
    });
    states.map(|states| (states, old.get(), new.get())).map_err(|error| error.to_string())
}

fn check(act: Act) {
    let scene = Scene::new(act);
    let (start, recording) = recorded(&scene);
    let (states, old, new) =
        cut_everywhere(&scene, &start, &recording).unwrap_or_else(|broken| panic!("{broken}"));
    let operations = recording.ops.len();
    eprintln!(
        "power cut: {act:?}: {operations} operations, {states} states: {old} old, {new} new, 0 mixtures"
    );
    assert!(old > 0 && new > 0);
}

#[test]
fn create_after_a_power_cut_is_there_or_not() {
    check(Act::Create);
}

#[test]
fn a_migration_after_a_power_cut_is_done_or_not() {
    check(Act::Migrate);
}

#[test]
fn rollback_after_a_power_cut_is_old_or_new() {
    check(Act::Rollback);
}

#[test]
fn rollback_of_many_files_after_a_power_cut_is_old_or_new() {
    check(Act::RollbackMany);
}

#[test]
fn undo_after_a_power_cut_is_old_or_new() {
    check(Act::Undo);
}

#[test]
fn branch_index_and_files_after_a_power_cut_are_all_old_or_all_new() {
    check(Act::HardReset);
}

#[test]
fn a_repository_with_its_files_after_a_power_cut_is_all_old_or_all_new() {
    check(Act::RollbackWithRepository);
}

#[test]
fn a_repository_after_a_power_cut_is_all_old_or_all_new() {
    check(Act::RollbackRepository);
}

#[test]
fn rollback_of_a_conversation_after_a_power_cut_is_old_or_new_with_its_files() {
    check(Act::RollbackThread);
}

#[test]
fn a_saved_state_after_a_power_cut_is_there_with_its_files_or_not() {
    check(Act::SaveState);
}

#[test]
fn rollback_of_a_plan_after_a_power_cut_is_old_or_new_with_its_files() {
    check(Act::RollbackPlan);
}

#[test]
fn the_result_of_a_plan_after_a_power_cut_is_there_or_not() {
    check(Act::ApplyPlan);
}

#[test]
fn rollback_with_bound_memory_after_a_power_cut_is_old_or_new() {
    check(Act::RollbackBound);
}

#[test]
fn rollback_of_everything_after_a_power_cut_is_old_or_new_everywhere() {
    check(Act::RollbackTogether);
}

/// Omits each sync in turn and checks which are detected: a suite that detects none would prove nothing.
#[test]
fn a_left_out_sync_is_caught() {
    let mut report = Vec::new();
    for act in [Act::Create, Act::Rollback, Act::RollbackMany] {
        let scene = Scene::new(act);
        let (start, recording) = recorded(&scene);
        let syncs: Vec<Op> = recording.ops.iter().filter(|op| op.is_sync()).cloned().collect();
        for (number, sync) in syncs.iter().enumerate() {
            // With many files only syncfs matters; the other syncs are the same as with few.
            if act == Act::RollbackMany && !matches!(sync, Op::Syncfs { .. }) {
                continue;
            }
            let planted = recording.without_sync(number).unwrap();
            let caught = cut_everywhere(&scene, &start, &planted).is_err();
            report.push((act, describe(sync), caught));
        }
    }
    for (act, sync, caught) in &report {
        eprintln!("left out in {act:?}: {sync}: {}", if *caught { "caught" } else { "not needed here" });
    }
    let caught = |act: Act, what: &str| {
        report.iter().any(|(a, sync, caught)| *a == act && sync.contains(what) && *caught)
    };
    assert!(caught(Act::Create, ".pack"), "a checkpoint whose pack was not synced");
    assert!(caught(Act::Create, "catalog.db-wal"), "a checkpoint whose commit was not synced");
    assert!(caught(Act::Rollback, "catalog.db-wal"), "a rollback whose intent or commit was not synced");
    assert!(caught(Act::Rollback, "/project"), "a rollback whose files were not synced");
    let all_syncfs_caught =
        report.iter().filter(|(_, sync, _)| sync.starts_with("syncfs")).all(|(_, _, caught)| *caught);
    assert!(all_syncfs_caught, "a rollback of many files that was not synced");
}

/// In the model, as on real file systems, a sync of either folder keeps a move; so all of them must be
/// omitted.
#[test]
fn leaving_out_all_syncs_of_folders_after_the_swaps_is_caught() {
    let scene = Scene::new(Act::Rollback);
    let (start, recording) = recorded(&scene);
    let of_swaps = |op: &Op| match op {
        Op::Fsync { path, .. } => {
            path.ends_with("project")
                || path.ends_with("src")
                || path.ends_with(".safepoint")
                || path.to_string_lossy().contains("apply-")
        }
        _ => false,
    };
    let planted = recording.without(of_swaps);
    assert!(planted.ops.len() + 4 <= recording.ops.len());
    assert!(cut_everywhere(&scene, &start, &planted).is_err(), "a loss of unsynced names must be detected");
}

fn describe(op: &Op) -> String {
    match op {
        Op::Fsync { path, .. } => format!("fsync {}", path.display()),
        Op::Fdatasync { path, .. } => format!("fdatasync {}", path.display()),
        Op::Syncfs { path, .. } => format!("syncfs {}", path.display()),
        other => format!("{other:?}"),
    }
}
