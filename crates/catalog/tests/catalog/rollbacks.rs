//! Rollbacks move through their states in one direction, and keep their recovery data.

use crate::records::{Room, at, checkpoint, here, id, object, path, rollback, step, with_role, workspace};
use safepoint_catalog::{CatalogError, FinishFacts};
use safepoint_model::checkpoint::{PartKind, Role};
use safepoint_model::rollback::{Rescued, Rollback, RollbackState, Strategy, Verb};
use safepoint_model::{RollbackId, WorkspaceId};

fn rescued(name: &[u8]) -> Rescued {
    Rescued { path: path(name), checkpoint: id(2), why: "changed during the rollback".to_owned() }
}

fn room() -> Room {
    let room = Room::new();
    room.insert(&checkpoint(1));
    room.insert(&with_role(2, Role::Safety));
    room
}

fn finish(room: &Room, id: RollbackId, state: RollbackState) -> Result<(), CatalogError> {
    room.catalog.write(|t| t.finish_rollback(id, state, at(7), &FinishFacts::default()))
}

/// Creates a rollback in this state.
fn in_state(room: &Room, number: u128, state: RollbackState) -> RollbackId {
    let born = if state == RollbackState::Refused { state } else { RollbackState::Applying };
    let record = Rollback { state: born, ..rollback(number, 1) };
    room.write(|t| t.insert_rollback(&record, &[]));
    let way: &[RollbackState] = match state {
        RollbackState::Applying | RollbackState::Refused => &[],
        RollbackState::Done => &[RollbackState::Done],
        RollbackState::Settled => &[RollbackState::Done, RollbackState::Settled],
        RollbackState::Aborted => &[RollbackState::Aborted],
    };
    for next in way {
        finish(room, record.id, *next).unwrap();
    }
    record.id
}

#[test]
fn a_rollback_reads_back_with_every_field() {
    let room = room();
    let whole = Rollback {
        verb: Verb::Undo,
        answers: Some(RollbackId::from_bits(5)),
        from: Some(id(2)),
        safety_checkpoint: Some(id(2)),
        strategy: Strategy::Selective,
        parts: vec![PartKind::Plan, PartKind::Files],
        paths: vec![path(b"a"), path(b"odd \xff/name"), path(b"")],
        state: RollbackState::Applying,
        finished_at: Some(at(3)),
        actor: "tool '; --".to_owned(),
        restored_files_count: 3,
        removed_files_count: 4,
        changed_paths: Some(object("changed")),
        rescued: vec![rescued(b"b"), rescued(b"odd \xff")],
        error: Some("why".to_owned()),
        ..rollback(9, 1)
    };
    let steps: Vec<_> = (0..5).map(step).collect();
    room.write(|t| t.insert_rollback(&whole, &steps));
    assert_eq!(room.catalog.rollback(whole.id).unwrap(), Some(whole.clone()));
    assert_eq!(room.write(|t| t.rollback(whole.id)), Some(whole.clone()));
    assert_eq!(room.catalog.steps(whole.id).unwrap(), steps);
    assert_eq!(room.write(|t| t.steps(whole.id)), steps);
    let plain = Rollback { state: RollbackState::Refused, ..rollback(3, 1) };
    room.write(|t| t.insert_rollback(&plain, &[]));
    assert_eq!(room.catalog.rollback(plain.id).unwrap(), Some(plain.clone()));
    assert_eq!(room.catalog.rollbacks(here()).unwrap(), [whole.clone(), plain.clone()]);
    assert_eq!(room.write(|t| t.rollbacks(here())), [whole, plain]);
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
}

#[test]
fn only_legal_changes_of_state_happen() {
    use RollbackState::{Aborted, Applying, Done, Settled};
    let legal = [(Applying, Done), (Applying, Aborted), (Done, Settled)];
    for from in RollbackState::ALL.iter().copied() {
        for to in RollbackState::ALL.iter().copied() {
            let room = room();
            let id = in_state(&room, 1, from);
            let moved = finish(&room, id, to);
            let now = room.catalog.rollback(id).unwrap().unwrap().state;
            match legal.contains(&(from, to)) {
                true => assert!(moved.is_ok() && now == to, "{from} to {to}"),
                false => {
                    let error = moved.unwrap_err();
                    assert!(
                        matches!(error, CatalogError::Transition { from: Some(f), to: t, .. } if f == from && t == to)
                    );
                    assert_eq!(now, from);
                }
            }
        }
    }
}

#[test]
fn a_rollback_is_born_applying_or_refused() {
    let room = room();
    for state in [RollbackState::Done, RollbackState::Settled, RollbackState::Aborted] {
        let error = room.refuse(|t| t.insert_rollback(&Rollback { state, ..rollback(1, 1) }, &[]));
        assert!(matches!(error, CatalogError::Transition { from: None, .. }), "{error}");
    }
    assert!(room.catalog.rollbacks(here()).unwrap().is_empty());
}

#[test]
fn unfinished_is_applying_or_not_settled() {
    let room = room();
    for (number, state) in (1u128..).zip([
        RollbackState::Refused,
        RollbackState::Done,
        RollbackState::Settled,
        RollbackState::Aborted,
        RollbackState::Applying,
    ]) {
        in_state(&room, number, state);
    }
    let numbers: Vec<_> =
        room.catalog.unfinished(here()).unwrap().iter().map(|found| found.id.bits()).collect();
    assert_eq!(numbers, [2, 5]);
    assert_eq!(room.write(|t| t.unfinished(here())).len(), 2);
    assert!(room.catalog.unfinished(WorkspaceId::from_bits(77)).unwrap().is_empty());
}

#[test]
fn a_workspace_has_one_intent_at_a_time() {
    let room = room();
    room.write(|t| t.register_workspace(&workspace(2, b"/there")));
    let first = in_state(&room, 1, RollbackState::Applying);
    let error = room.refuse(|t| t.insert_rollback(&rollback(2, 1), &[]));
    assert!(matches!(error, CatalogError::Unfinished { rollback, .. } if rollback == first), "{error}");
    let there = Rollback { workspace_id: WorkspaceId::from_bits(2), ..rollback(3, 1) };
    room.write(|t| t.insert_rollback(&there, &[]));
    finish(&room, first, RollbackState::Done).unwrap();
    room.write(|t| t.insert_rollback(&rollback(2, 1), &[]));
}

#[test]
fn an_intent_needs_its_checkpoints_and_a_refusal_does_not() {
    let room = room();
    let lost_safety = Rollback { safety_checkpoint: Some(id(99)), ..rollback(1, 1) };
    for bad in [rollback(1, 99), lost_safety] {
        assert!(matches!(room.refuse(|t| t.insert_rollback(&bad, &[])), CatalogError::Missing { .. }));
    }
    room.write(|t| t.insert_rollback(&Rollback { state: RollbackState::Refused, ..rollback(1, 99) }, &[]));
}

#[test]
fn finishing_records_what_is_known_and_settling_changes_nothing_else() {
    let room = room();
    let id = in_state(&room, 1, RollbackState::Applying);
    let facts = FinishFacts {
        restored_files_count: Some(5),
        removed_files_count: Some(6),
        changed_paths: Some(object("changed")),
        error: None,
    };
    room.write(|t| t.finish_rollback(id, RollbackState::Done, at(8), &facts));
    let done = room.catalog.rollback(id).unwrap().unwrap();
    assert_eq!((done.restored_files_count, done.removed_files_count), (5, 6));
    assert_eq!((done.finished_at, done.changed_paths), (Some(at(8)), Some(object("changed"))));
    room.write(|t| t.finish_rollback(id, RollbackState::Settled, at(9), &FinishFacts::default()));
    let settled = room.catalog.rollback(id).unwrap().unwrap();
    assert_eq!(settled, Rollback { state: RollbackState::Settled, ..done });

    let failed = in_state(&room, 2, RollbackState::Applying);
    let facts = FinishFacts { error: Some("disk full".to_owned()), ..FinishFacts::default() };
    room.write(|t| t.finish_rollback(failed, RollbackState::Aborted, at(8), &facts));
    assert_eq!(room.catalog.rollback(failed).unwrap().unwrap().error.as_deref(), Some("disk full"));
}

#[test]
fn rescued_edits_add_up_in_order() {
    let room = room();
    let id = in_state(&room, 1, RollbackState::Done);
    room.write(|t| t.add_rescued(id, &[rescued(b"a"), rescued(b"b")], at(1)));
    room.write(|t| t.add_rescued(id, &[rescued(b"odd \xff")], at(2)));
    let expected = [rescued(b"a"), rescued(b"b"), rescued(b"odd \xff")];
    assert_eq!(room.catalog.rollback(id).unwrap().unwrap().rescued, expected);
}

#[test]
fn a_checkpoint_that_an_unfinished_rollback_needs_stays() {
    for role in 0..4 {
        let room = room();
        room.insert(&checkpoint(3));
        let needed = id(3);
        let mut record = rollback(1, 1);
        match role {
            0 => record.to = needed,
            1 => record.from = Some(needed),
            2 => record.safety_checkpoint = Some(needed),
            _ => record.rescued = vec![Rescued { checkpoint: needed, ..rescued(b"a") }],
        }
        room.write(|t| t.insert_rollback(&record, &[]));
        let refused = |room: &Room| {
            let error = room.refuse(|t| t.delete_checkpoint(needed, at(1)));
            assert!(
                matches!(error, CatalogError::Needed { rollback, .. } if rollback == record.id),
                "{error}"
            );
        };
        refused(&room);
        finish(&room, record.id, RollbackState::Done).unwrap();
        refused(&room);
        finish(&room, record.id, RollbackState::Settled).unwrap();
        room.write(|t| t.delete_checkpoint(needed, at(1)));
        assert_eq!(room.catalog.rollback(record.id).unwrap().unwrap().to, record.to);
    }
}

#[test]
fn steps_go_with_a_collection_once_a_later_rollback_has_settled() {
    let room = room();
    let (first, second) = (rollback(1, 1), rollback(2, 1));
    room.write(|t| t.insert_rollback(&first, &[step(0), step(1)]));
    let left = |room: &Room, id| {
        room.write(|t| t.note_collected(1, at(1)));
        room.catalog.steps(id).unwrap().len()
    };
    for next in [RollbackState::Done, RollbackState::Settled] {
        assert_eq!(left(&room, first.id), 2);
        finish(&room, first.id, next).unwrap();
    }
    assert_eq!(left(&room, first.id), 2, "a power cut may still bring its stage back");
    room.write(|t| t.insert_rollback(&second, &[step(0)]));
    for next in [RollbackState::Done, RollbackState::Settled] {
        assert_eq!(left(&room, first.id), 2);
        finish(&room, second.id, next).unwrap();
    }
    assert_eq!((left(&room, first.id), left(&room, second.id)), (0, 1));
    assert!(room.catalog.rollback(first.id).unwrap().is_some());
}

#[test]
fn what_was_deleted_is_counted_until_it_is_collected() {
    let room = room();
    room.insert(&checkpoint(3));
    room.write(|t| t.delete_checkpoint(id(3), at(1)));
    assert_eq!(room.catalog.deleted_since_gc().unwrap(), 1);
    room.write(|t| t.note_collected(1, at(1)));
    assert_eq!(room.catalog.deleted_since_gc().unwrap(), 0);
}

#[test]
fn a_rollback_that_was_put_back_can_be_taken_off_the_record_and_no_other() {
    let room = room();
    let forget = |id| room.catalog.write(|t| t.forget_rollback(id, at(8)));
    let aborted = Rollback { state: RollbackState::Applying, ..rollback(1, 1) };
    room.write(|t| t.insert_rollback(&aborted, &[step(0), step(1)]));
    finish(&room, aborted.id, RollbackState::Aborted).unwrap();
    forget(aborted.id).unwrap();
    assert_eq!(room.catalog.rollback(aborted.id).unwrap(), None);
    assert!(room.catalog.steps(aborted.id).unwrap().is_empty());
    assert!(forget(aborted.id).is_err(), "it no longer exists");
    // A rollback with a rescued edit names its origin.
    let kept = Rollback { state: RollbackState::Applying, rescued: vec![rescued(b"b")], ..rollback(2, 1) };
    room.write(|t| t.insert_rollback(&kept, &[]));
    finish(&room, kept.id, RollbackState::Aborted).unwrap();
    forget(kept.id).unwrap();
    assert!(room.catalog.rollback(kept.id).unwrap().is_some());
    let others =
        [RollbackState::Refused, RollbackState::Done, RollbackState::Settled, RollbackState::Applying];
    for (number, state) in (3..).zip(others) {
        let id = in_state(&room, number, state);
        assert!(matches!(forget(id), Err(CatalogError::Transition { .. })), "{state}");
    }
}
