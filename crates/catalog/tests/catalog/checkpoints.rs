//! Checkpoints can be read back completely and found by their fields.

use crate::records::{Room, at, checkpoint, here, id, labelled, object, rollback, with_role, workspace};
use proptest::prelude::*;
use safepoint_catalog::{CatalogError, Filter, FinishFacts, Pinned, RoleFilter};
use safepoint_model::checkpoint::{
    Checkpoint, Counters, Kind, PartKind, PartRecord, Phase, Reason, Role, Scope, Totals,
};
use safepoint_model::rollback::RollbackState;
use safepoint_model::{CheckpointId, ObjectId, RollbackId, Timestamp, WorkspaceId};

/// Range of numbers that the catalog can store.
const COUNT: std::ops::RangeInclusive<u64> = 0..=i64::MAX as u64;

fn hash() -> impl Strategy<Value = ObjectId> {
    any::<[u8; 32]>().prop_map(ObjectId::from_bytes)
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(any::<String>())
}

fn word<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn part() -> impl Strategy<Value = PartRecord> {
    (word(PartKind::ALL), any::<String>(), hash()).prop_map(|(kind, key, document)| PartRecord {
        kind,
        key,
        document,
    })
}

prop_compose! {
    fn words()(
        kind in word(Kind::ALL),
        reason in word(Reason::ALL),
        scope in word(Scope::ALL),
        phase in prop::option::of(word(Phase::ALL)),
        role in prop::option::of(word(Role::ALL)),
        [label, plan_id, session_id, sandbox_ref] in [text(), text(), text(), text()],
        [source_tool, decision_id, commit_sha, commit_message] in [text(), text(), text(), text()],
    ) -> Checkpoint {
        Checkpoint {
            kind, reason, scope, phase, role, label, plan_id, session_id, sandbox_ref, source_tool, decision_id,
            commit_sha, commit_message, ..checkpoint(0)
        }
    }
}

prop_compose! {
    fn any_checkpoint()(
        words in words(),
        bits in any::<u128>(),
        workspace in any::<bool>(),
        micros in any::<i64>(),
        step_index in prop::option::of(COUNT),
        (state_hash, state_snapshot, integrity) in (prop::option::of(hash()), prop::option::of(hash()), hash()),
        counters in any::<[u64; 6]>(),
        totals in any::<[u64; 5]>(),
        (tags, warnings) in (any::<Vec<String>>(), any::<Vec<String>>()),
        (pinned, rollback_used) in any::<(bool, bool)>(),
        (rollback_count, size_bytes) in (COUNT, COUNT),
        parent in prop::option::of(any::<u128>()),
        parts in prop::collection::vec(part(), 0..4),
    ) -> Checkpoint {
        let [tasks_completed, decisions_made, files_modified, files_created, tests_passing, tests_failing] = counters;
        let [count, bytes, added, modified, removed] = totals;
        Checkpoint {
            id: CheckpointId::from_bits(bits),
            workspace_id: workspace.then(here),
            created_at: Timestamp::from_micros(micros),
            step_index, state_hash, state_snapshot, integrity, tags, warnings, pinned, rollback_used, rollback_count,
            size_bytes, parts,
            progress: Counters {
                tasks_completed, decisions_made, files_modified, files_created, tests_passing, tests_failing,
            },
            files: Totals { count, bytes, added, modified, removed },
            parent: parent.map(CheckpointId::from_bits),
            ..words
        }
    }
}

#[test]
fn a_checkpoint_reads_back_with_every_field() {
    let room = Room::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&any_checkpoint(), |checkpoint| {
            room.insert(&checkpoint);
            prop_assert_eq!(room.catalog.checkpoint(checkpoint.id).unwrap(), Some(checkpoint.clone()));
            let newest = Filter { role: RoleFilter::Any, limit: Some(1), ..Filter::default() };
            prop_assert_eq!(room.catalog.checkpoints(&newest).unwrap(), vec![checkpoint]);
            Ok(())
        })
        .unwrap();
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
}

#[test]
fn what_is_not_there_is_none() {
    let room = Room::new();
    assert_eq!(room.catalog.checkpoint(id(1)).unwrap(), None);
    assert_eq!(room.catalog.workspace(WorkspaceId::from_bits(77)).unwrap(), None);
    assert_eq!(room.catalog.workspace_at(b"/her").unwrap(), None);
    assert_eq!(room.catalog.rollback(RollbackId::from_bits(1)).unwrap(), None);
    assert!(room.catalog.steps(RollbackId::from_bits(1)).unwrap().is_empty());
}

#[test]
fn newest_is_by_commit_order_even_when_the_clock_goes_back() {
    let room = Room::new();
    for (number, micros) in [(5, 300), (9, 200), (1, 100)] {
        room.insert(&Checkpoint { created_at: at(micros), ..checkpoint(number) });
    }
    let ids: Vec<_> =
        room.catalog.checkpoints(&Filter::default()).unwrap().into_iter().map(|found| found.id).collect();
    assert_eq!(ids, [id(1), id(9), id(5)]);
}

#[test]
fn the_order_survives_the_deletion_of_the_newest() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    room.insert(&checkpoint(2));
    room.write(|transaction| transaction.delete_checkpoint(id(2), at(9)));
    room.insert(&checkpoint(3));
    let seq: i64 = room.raw().query_row("SELECT max(seq) FROM checkpoints", (), |row| row.get(0)).unwrap();
    assert_eq!(seq, 3);
}

#[test]
fn a_filter_chooses_by_every_field() {
    let room = Room::new();
    room.write(|transaction| transaction.register_workspace(&workspace(2, b"/there")));
    let there = WorkspaceId::from_bits(2);
    let plain = checkpoint(1);
    let special = Checkpoint {
        workspace_id: Some(there),
        plan_id: Some("p%".to_owned()),
        session_id: Some("s".to_owned()),
        kind: Kind::Emergency,
        reason: Reason::SafeState,
        scope: Scope::Workflow,
        ..checkpoint(2)
    };
    let safety = with_role(3, Role::Safety);
    for one in [&plain, &special, &safety] {
        room.insert(one);
    }
    let all = Filter { role: RoleFilter::Any, ..Filter::default() };
    for (filter, expected) in [
        (Filter::default(), vec![2, 1]),
        (all.clone(), vec![3, 2, 1]),
        (Filter { role: RoleFilter::Only(Role::Safety), ..all.clone() }, vec![3]),
        (Filter { role: RoleFilter::Only(Role::Rescue), ..all.clone() }, vec![]),
        (Filter { workspace: Some(there), ..all.clone() }, vec![2]),
        (Filter { plan_id: Some("p%".to_owned()), ..all.clone() }, vec![2]),
        (Filter { plan_id: Some("p_".to_owned()), ..all.clone() }, vec![]),
        (Filter { session_id: Some("s".to_owned()), ..all.clone() }, vec![2]),
        (Filter { kind: Some(Kind::Emergency), ..all.clone() }, vec![2]),
        (Filter { reason: Some(Reason::SafeState), ..all.clone() }, vec![2]),
        (Filter { scope: Some(Scope::Workflow), ..all.clone() }, vec![2]),
        (Filter { limit: Some(2), ..all.clone() }, vec![3, 2]),
        (Filter { limit: Some(0), ..all.clone() }, vec![]),
    ] {
        let found = room.catalog.checkpoints(&filter).unwrap();
        assert_eq!(found.iter().map(|one| one.id.bits()).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(room.catalog.write(|t| t.checkpoints(&filter)).unwrap(), found);
    }
    let beyond = Filter { limit: Some(u64::MAX), ..Filter::default() };
    assert!(matches!(room.catalog.checkpoints(&beyond), Err(CatalogError::Value { .. })));
}

#[test]
fn a_summary_counts_what_the_filter_chooses() {
    let room = Room::new();
    let empty = serde_json::to_value(room.catalog.summary(&Filter::default()).unwrap()).unwrap();
    assert_eq!(
        empty,
        serde_json::json!({
            "total_checkpoints": 0, "checkpoints_by_kind": {}, "checkpoints_by_reason": {},
            "checkpoints_used_for_rollback": 0, "safety_checkpoints": 0, "latest_checkpoint": null,
        })
    );
    room.insert(&checkpoint(1));
    room.insert(&Checkpoint { kind: Kind::Automatic, reason: Reason::SafeState, ..checkpoint(2) });
    room.insert(&checkpoint(3));
    room.insert(&with_role(4, Role::Safety));
    room.write(|transaction| {
        transaction.count_rollback(id(1))?;
        transaction.count_rollback(id(1))
    });
    let summary = room.catalog.summary(&Filter { limit: Some(1), ..Filter::default() }).unwrap();
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["total_checkpoints"], 3);
    assert_eq!(json["checkpoints_by_kind"], serde_json::json!({ "manual": 2, "automatic": 1 }));
    assert_eq!(json["checkpoints_by_reason"], serde_json::json!({ "manual": 2, "safe_state": 1 }));
    assert_eq!(json["checkpoints_used_for_rollback"], 1);
    assert_eq!(json["safety_checkpoints"], 1);
    assert_eq!(json["latest_checkpoint"]["id"], id(3).to_string());
    let used = room.catalog.checkpoint(id(1)).unwrap().unwrap();
    assert!(used.rollback_used && used.rollback_count == 2);
    let of_plan = Filter { plan_id: Some("p".to_owned()), ..Filter::default() };
    assert_eq!(room.catalog.summary(&of_plan).unwrap().total_checkpoints, 0);
}

#[test]
fn pins_are_set_and_taken() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    for (pinned, expected) in [(Pinned::Yes, true), (Pinned::No, false)] {
        room.write(|transaction| transaction.set_pinned(id(1), pinned, at(1)));
        assert_eq!(room.catalog.checkpoint(id(1)).unwrap().unwrap().pinned, expected);
    }
}

#[test]
fn what_is_not_on_record_cannot_be_changed() {
    let room = Room::new();
    let nobody = WorkspaceId::from_bits(77);
    room.insert(&checkpoint(1));
    for error in [
        room.refuse(|t| t.set_pinned(id(2), Pinned::Yes, at(1))),
        room.refuse(|t| t.count_rollback(id(2))),
        room.refuse(|t| t.delete_checkpoint(id(2), at(1))),
        room.refuse(|t| t.set_head(here(), id(2))),
        room.refuse(|t| t.set_head(nobody, id(1))),
        room.refuse(|t| t.head(nobody)),
        room.refuse(|t| t.remove_workspace(nobody, at(1))),
        room.refuse(|t| t.add_rescued(RollbackId::from_bits(1), &[], at(1))),
        room.refuse(|t| {
            t.finish_rollback(RollbackId::from_bits(1), RollbackState::Done, at(1), &FinishFacts::default())
        }),
        room.refuse(|t| t.insert_rollback(&rollback(1, 2), &[])),
    ] {
        assert!(matches!(error, CatalogError::Missing { .. }), "{error}");
    }
}

#[test]
fn an_id_is_used_once_and_a_workspace_must_be_on_record() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    for bad in
        [labelled(1, "again"), Checkpoint { workspace_id: Some(WorkspaceId::from_bits(77)), ..checkpoint(2) }]
    {
        assert!(matches!(room.refuse(|t| t.insert_checkpoint(&bad)), CatalogError::Write { .. }));
    }
    let too_many = Checkpoint { size_bytes: u64::MAX, ..checkpoint(3) };
    assert!(matches!(room.refuse(|t| t.insert_checkpoint(&too_many)), CatalogError::Value { .. }));
    assert_eq!(room.catalog.checkpoint(id(1)).unwrap().unwrap().label, None);
}

#[test]
fn a_deleted_checkpoint_leaves_no_head_and_no_parts() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    room.insert(&Checkpoint { parent: Some(id(1)), ..checkpoint(2) });
    room.write(|t| t.set_head(here(), id(1)));
    assert_eq!(room.write(|t| t.head(here())), Some(id(1)));
    room.write(|t| t.delete_checkpoint(id(1), at(5)));
    assert_eq!(room.catalog.workspace(here()).unwrap().unwrap().head, None);
    assert_eq!(room.catalog.checkpoint(id(1)).unwrap(), None);
    assert_eq!(room.catalog.checkpoint(id(2)).unwrap().unwrap().parent, Some(id(1)));
    let parts: i64 =
        room.raw().query_row("SELECT count(*) FROM checkpoint_parts", (), |row| row.get(0)).unwrap();
    assert_eq!(parts, 1);
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
}

#[test]
fn an_edited_checkpoint_contradicts_the_history() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    room.raw().execute("UPDATE checkpoints SET integrity = ?1", [object("other").as_bytes()]).unwrap();
    let problems = room.catalog.check().unwrap();
    assert!(problems.len() == 1 && problems[0].contains(&id(1).to_string()), "{problems:?}");
}
