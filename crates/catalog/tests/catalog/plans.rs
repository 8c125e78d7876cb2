//! Plans are read back unchanged, and only changed rows are written.

use crate::records::{Room, at, checkpoint, here, id};
use safepoint_catalog::{CatalogError, PlanCheckpoint};
use safepoint_model::id::DecisionId;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::spec::{PlanSpec, StepSpec};
use safepoint_model::plan::state::{Decision, Plan, PlanState};
use serde_json::json;

pub(crate) fn plan(id: &str) -> Plan {
    let steps =
        vec![StepSpec::new("one"), StepSpec { steps: vec![StepSpec::new("sub")], ..StepSpec::new("two") }];
    let mut plan = Plan::new(id.to_owned(), &PlanSpec { steps, ..PlanSpec::new("A plan") });
    plan.context.insert("key".to_owned(), json!({"a": [1, null]}));
    plan
}

fn decision(number: u128) -> Decision {
    Decision {
        id: DecisionId::from_bits(number),
        question: "q".to_owned(),
        choice: "c".to_owned(),
        alternatives: Vec::new(),
        rationale: Some("because".to_owned()),
        parent: None,
        depends_on: Vec::new(),
        step: Some("one".to_owned()),
        made_at: at(1),
    }
}

#[test]
fn a_plan_comes_back_as_it_was_saved() {
    let room = Room::new();
    let mut plan = plan("p");
    room.write(|t| t.insert_plan(&plan, here(), at(1)));
    let record = room.catalog.plan("p").unwrap().unwrap();
    assert_eq!((&record.plan, record.version, record.workspace_id), (&plan, 0, here()));
    plan.start("one", at(2)).unwrap();
    plan.decide(decision(1)).unwrap();
    plan.decide(decision(2)).unwrap();
    plan.outputs.insert("out".to_owned(), json!(7));
    assert_eq!(room.write(|t| t.save_plan(&plan, "started", at(2))), 1);
    assert_eq!(room.catalog.plan("p").unwrap().unwrap().plan, plan);
    // Back to fewer rows of each kind, as after a rollback.
    plan.decisions.truncate(1);
    plan.steps.truncate(1);
    plan.context.clear();
    plan.outputs.clear();
    assert_eq!(room.write(|t| t.save_plan(&plan, "rolled back", at(3))), 2);
    let record = room.catalog.plan("p").unwrap().unwrap();
    assert_eq!((record.plan, record.updated_at), (plan, at(3)));
    assert_eq!(room.catalog.plan("other").unwrap(), None);
    assert!(room.catalog.check().unwrap().is_empty());
}

#[test]
fn plans_are_listed_newest_first_and_by_workspace() {
    let room = Room::new();
    for id in ["a", "b"] {
        room.write(|t| t.insert_plan(&plan(id), here(), at(1)));
    }
    let listed: Vec<String> = room.catalog.plans(Some(here())).unwrap().into_iter().map(|it| it.id).collect();
    assert_eq!(listed, ["b", "a"]);
    assert_eq!(room.catalog.plans(None).unwrap().len(), 2);
    assert_eq!(room.catalog.plans(None).unwrap()[0].state, PlanState::Ready);
    let other = safepoint_model::WorkspaceId::from_bits(77);
    assert!(room.catalog.plans(Some(other)).unwrap().is_empty());
}

#[test]
fn notes_and_checkpoints_keep_the_version_of_their_plan() {
    let room = Room::new();
    let plan = plan("p");
    room.write(|t| t.insert_plan(&plan, here(), at(1)));
    room.write(|t| t.note_plan("p", PlanNoteKind::Error, &json!({"step": "one"}), at(1)));
    room.write(|t| t.save_plan(&plan, "x", at(2)));
    room.write(|t| t.note_plan("p", PlanNoteKind::Superseded, &json!(["d"]), at(2)));
    let notes = room.catalog.plan_notes("p").unwrap();
    let told: Vec<_> = notes.iter().map(|note| (note.number, note.kind.as_str(), note.version)).collect();
    assert_eq!(told, [(0, "error", 0), (1, "superseded", 1)]);
    for number in 1..=2 {
        room.insert(&checkpoint(number));
        let link = PlanCheckpoint { checkpoint: id(number), version: number as u64, healthy: number == 1 };
        room.write(|t| t.link_plan_checkpoint("p", &link));
    }
    let links = room.catalog.plan_checkpoints("p").unwrap();
    assert_eq!(
        links.iter().map(|it| (it.checkpoint, it.healthy)).collect::<Vec<_>>(),
        [(id(2), false), (id(1), true)]
    );
    room.write(|t| t.delete_checkpoint(id(2), at(3)));
    assert_eq!(room.catalog.plan_checkpoints("p").unwrap().len(), 1);
}

#[test]
fn what_is_not_on_record_is_refused() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    let link = PlanCheckpoint { checkpoint: id(1), version: 1, healthy: true };
    for error in [
        room.refuse(|t| t.save_plan(&plan("p"), "x", at(1))),
        room.refuse(|t| t.note_plan("p", PlanNoteKind::Error, &json!(null), at(1))),
        room.refuse(|t| t.link_plan_checkpoint("p", &link)),
        room.refuse(|t| t.insert_plan(&plan("p"), safepoint_model::WorkspaceId::from_bits(77), at(1))),
    ] {
        assert!(matches!(error, CatalogError::Missing { .. }), "{error:?}");
    }
    room.write(|t| t.insert_plan(&plan("p"), here(), at(1)));
    assert!(matches!(room.refuse(|t| t.insert_plan(&plan("p"), here(), at(1))), CatalogError::Taken { .. }));
}
