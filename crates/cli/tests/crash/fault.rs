//! Every state-changing call fails, once or permanently. The command may fail, but never leaves a mixture,
//! and never reports false success.

use crate::is_full;
use crate::scene::{Act, Scene};
use safepoint_testkit::{End, Fail, calls, fail_at};

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

fn check(act: Act) {
    let mut scene = Scene::new(act);
    scene.profiled = true;
    scene.reset();
    let points = calls(&scene.verb()).unwrap().0.len() as u64;
    let (mut tried, mut refused) = (0u64, 0u64);
    for point in (1..=points).step_by(crate::stride(act)) {
        for (errno, how) in failures(act) {
            scene.reset();
            let end = fail_at(&scene.verb(), point, errno, how).unwrap();
            let End::Exited { code, stderr, .. } = &end else {
                panic!("point {point}, error {errno}: {end:?}")
            };
            let said = String::from_utf8_lossy(stderr);
            assert!(!said.contains("panicked") && *code != 70, "point {point}, error {errno}: {said}");
            assert!(
                *code == 0 || said.contains("error:") || act == Act::SaveState,
                "point {point}, error {errno}, exit {code}: {said}"
            );
            let done = scene.reported_success(*code);
            scene.law(done).unwrap_or_else(|broken| {
                panic!("point {point} of {points}, error {errno}, exit {code}: {broken}\n{said}")
            });
            tried += 1;
            refused += u64::from(!done);
        }
    }
    eprintln!(
        "faults: {act:?}: {points} points, {tried} failures injected, {refused} ended in an error, 0 mixtures"
    );
    assert!(refused > tried / 4);
}

/// Returns the failures to inject at each point. Commands with the protocol of a rollback get two of them,
/// unless all are requested.
fn failures(act: Act) -> Vec<(i32, Fail)> {
    let all = vec![
        (ENOSPC, Fail::Once),
        (EIO, Fail::Forever),
        (EIO, Fail::Once),
        (EACCES, Fail::Once),
        (ENOSPC, Fail::Forever),
    ];
    let few = !matches!(act, Act::Create | Act::Rollback | Act::Undo) && !is_full();
    all.into_iter().take(if few { 2 } else { 5 }).collect()
}

#[test]
fn create_with_any_call_failing_is_there_or_not() {
    check(Act::Create);
}

#[test]
fn rollback_with_any_call_failing_is_old_or_new() {
    check(Act::Rollback);
}

#[test]
fn search_in_an_overlay_with_any_call_failing_is_old_or_new_without_a_room_a_mount_or_a_probe() {
    if !Scene::new(Act::SearchInOverlay).has_overlay() {
        return eprintln!("left out: this machine gives no overlay");
    }
    check(Act::SearchInOverlay);
}

#[test]
fn search_in_place_with_any_call_failing_is_old_or_new() {
    check(Act::SearchInPlace);
}

#[test]
fn undo_with_any_call_failing_is_old_or_new() {
    check(Act::Undo);
}

#[test]
fn branch_index_and_files_with_any_call_failing_are_all_old_or_all_new() {
    check(Act::HardReset);
}

#[test]
fn a_repository_with_its_files_with_any_call_failing_is_all_old_or_all_new() {
    check(Act::RollbackWithRepository);
}

#[test]
fn a_repository_with_any_call_failing_is_all_old_or_all_new() {
    check(Act::RollbackRepository);
}

#[test]
fn rollback_of_a_conversation_with_any_call_failing_is_old_or_new_with_its_files() {
    check(Act::RollbackThread);
}

#[test]
fn a_state_whose_save_has_any_call_failing_is_there_with_its_files_or_not() {
    check(Act::SaveState);
}

#[test]
fn rollback_of_a_plan_with_any_call_failing_is_old_or_new_with_its_files() {
    check(Act::RollbackPlan);
}

#[test]
fn the_result_of_a_plan_with_any_call_failing_is_there_or_not() {
    check(Act::ApplyPlan);
}

#[test]
fn rollback_with_bound_memory_with_any_call_failing_is_old_or_new() {
    check(Act::RollbackBound);
}

#[test]
fn rollback_of_everything_with_any_call_failing_is_old_or_new_everywhere() {
    check(Act::RollbackTogether);
}
