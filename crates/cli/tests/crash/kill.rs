//! SIGKILL at every state-changing system call, and again at every one of the following recovery.

use crate::is_full;
use crate::scene::{Act, Scene};
use safepoint_testkit::{End, kill_at};

/// Number of tries of a loop.
#[derive(Default)]
struct Tried {
    points: u64,
    in_recovery: u64,
    old: u64,
    new: u64,
}

fn killed_everywhere(scene: &Scene) -> Tried {
    let mut tried = Tried::default();
    for point in (1..).step_by(crate::stride(scene.act)) {
        scene.reset();
        let end = kill_at(&scene.verb(), point).unwrap();
        let done = !matches!(end, End::Killed { .. });
        assert!(!done || end.is_success(), "{end:?}");
        scene.keep("killed");
        recover_killed_everywhere(scene, point, &end, &mut tried);
        scene.lay("killed");
        let is_new = scene.law(done).unwrap_or_else(|broken| panic!("killed at {end:?}: {broken}"));
        *(if is_new { &mut tried.new } else { &mut tried.old }) += 1;
        if done {
            break;
        }
        tried.points += 1;
        if tried.points % 16 == 0 {
            scene.goes_on();
        }
    }
    tried
}

/// Kills the recovery at its calls, too; the result must still be old or new. Neighbouring points of the
/// command leave similar work, so each takes another share of the recovery's points; with
/// SAFEPOINT_PROOF=full each takes all.
fn recover_killed_everywhere(scene: &Scene, verb_point: u64, first: &End, tried: &mut Tried) {
    let shares = if is_full() { 1 } else { 19 };
    for point in (1 + verb_point % shares..).step_by(shares as usize) {
        scene.lay("killed");
        let end = kill_at(&scene.recovery(), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "killed at {first:?}, then recovery: {end:?}");
            return;
        }
        scene
            .law(false)
            .unwrap_or_else(|broken| panic!("killed at {first:?}, then in recovery at {end:?}: {broken}"));
        tried.in_recovery += 1;
    }
}

fn check(act: Act, without: &'static str) {
    let scene = Scene::without(act, without);
    let tried = killed_everywhere(&scene);
    eprintln!(
        "kill -9: {act:?} {without}: {} points, and {} in the recoveries that followed: {} old, {} new, 0 mixtures",
        tried.points, tried.in_recovery, tried.old, tried.new
    );
    assert!(tried.points > 10 && tried.old > 0 && tried.new > 0, "the loop must see both outcomes");
}

#[test]
fn create_killed_anywhere_is_there_or_not() {
    check(Act::Create, "");
}

#[test]
fn a_migration_killed_anywhere_is_done_or_not() {
    check(Act::Migrate, "");
}

#[test]
fn search_killed_anywhere_is_old_or_new() {
    check(Act::Search, "");
}

#[test]
fn search_in_an_overlay_killed_anywhere_is_old_or_new_without_a_room_a_mount_or_a_probe() {
    if !Scene::new(Act::SearchInOverlay).has_overlay() {
        return eprintln!("left out: this machine gives no overlay");
    }
    check(Act::SearchInOverlay, "");
}

#[test]
fn search_in_place_killed_anywhere_is_old_or_new() {
    check(Act::SearchInPlace, "");
}

#[test]
fn rollback_killed_anywhere_is_old_or_new() {
    check(Act::Rollback, "");
}

#[test]
fn rollback_of_a_plan_killed_anywhere_is_old_or_new_with_its_files() {
    check(Act::RollbackPlan, "");
}

#[test]
fn rollback_of_a_conversation_killed_anywhere_is_old_or_new_with_its_files() {
    check(Act::RollbackThread, "");
}

#[test]
fn a_state_whose_save_is_killed_anywhere_is_there_with_its_files_or_not() {
    check(Act::SaveState, "");
}

#[test]
fn correction_of_a_plan_killed_anywhere_is_old_or_new_with_its_files() {
    check(Act::CorrectPlan, "");
}

#[test]
fn the_result_of_a_plan_whose_taking_over_is_killed_anywhere_is_there_or_not() {
    check(Act::ApplyPlan, "");
}

#[test]
fn the_result_of_an_attempt_whose_keep_is_killed_anywhere_is_there_or_not() {
    check(Act::KeepAttempt, "");
}

#[test]
fn rollback_with_bound_memory_killed_anywhere_is_old_or_new() {
    check(Act::RollbackBound, "");
}

#[test]
fn rollback_of_everything_killed_anywhere_is_old_or_new_everywhere() {
    check(Act::RollbackTogether, "");
}

#[test]
fn branch_index_and_files_killed_anywhere_are_all_old_or_all_new() {
    check(Act::HardReset, "");
}

#[test]
fn a_repository_with_its_files_killed_anywhere_is_all_old_or_all_new() {
    check(Act::RollbackWithRepository, "");
}

#[test]
fn a_repository_whose_return_is_killed_anywhere_is_all_old_or_all_new() {
    check(Act::RollbackRepository, "");
}

#[test]
fn undo_killed_anywhere_is_old_or_new() {
    check(Act::Undo, "");
}

#[test]
fn rollback_without_exchange_killed_anywhere_is_old_or_new() {
    check(Act::Rollback, "exchange,noreplace");
}

#[test]
fn recover_tells_what_it_undid() {
    let mut scene = Scene::new(Act::Rollback);
    scene.reset();
    let calls = safepoint_testkit::calls(&scene.verb()).unwrap().0;
    let first_swap =
        calls.iter().find(|call| call.detail.contains("EXCHANGE") && !call.detail.contains("robe")).unwrap();
    scene.reset();
    assert!(matches!(kill_at(&scene.verb(), first_swap.index + 1).unwrap(), End::Killed { .. }));
    scene.profiled = true;
    let (_, end) = safepoint_testkit::calls(&scene.recovery()).unwrap();
    let End::Exited { code: 0, stdout, .. } = end else { panic!("{end:?}") };
    let said = String::from_utf8_lossy(&stdout);
    assert!(said.contains("ndone") || said.contains("ndid"), "{said}");
    assert!(!said.contains("Nothing was left"), "{said}");
    assert!(!scene.law(false).unwrap());
}
