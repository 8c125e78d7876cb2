//! Runs and sandboxes are recorded, and the base of a sandbox is not deleted.

use crate::plans::plan;
use crate::records::{Room, at, checkpoint, here, id, object};
use safepoint_catalog::CatalogError;
use safepoint_model::id::RunId;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::run::{Run, RunOutcome, Sandbox, SandboxState};
use safepoint_model::plan::spec::SandboxKind;
use safepoint_model::plan::state::PlanState;
use serde_json::json;

fn run(number: u128) -> Run {
    Run { id: RunId::from_bits(number), pid: 77, started_at: at(1), ended_at: None, outcome: None }
}

fn sandbox() -> Sandbox {
    Sandbox {
        id: "s".to_owned(),
        kind: SandboxKind::Copy,
        path: "/home/sandboxes/p/shop".into(),
        workspace_id: here(),
        base: id(1),
        state: SandboxState::Ready,
        created_at: at(2),
    }
}

#[test]
fn a_run_is_on_record_and_ends_once() {
    let room = Room::new();
    room.write(|t| t.insert_plan(&plan("p"), here(), at(1)));
    assert_eq!(room.catalog.last_run("p").unwrap(), None);
    // The last one is the one inserted last, whatever its id.
    for id in [9, 2] {
        room.write(|t| t.insert_run("p", &run(id)));
    }
    assert_eq!(room.catalog.runs("p").unwrap(), [run(9), run(2)]);
    assert_eq!(room.catalog.last_run("p").unwrap(), Some(run(2)));
    room.write(|t| t.end_run("p", RunId::from_bits(2), RunOutcome::Done, at(5)));
    room.write(|t| t.end_run("p", RunId::from_bits(2), RunOutcome::Killed, at(6)));
    let ended = Run { ended_at: Some(at(5)), outcome: Some(RunOutcome::Done), ..run(2) };
    assert_eq!(room.catalog.last_run("p").unwrap(), Some(ended));
    let error = room.refuse(|t| t.insert_run("nobody", &run(3)));
    assert!(matches!(error, CatalogError::Missing { .. }), "{error}");
}

#[test]
fn what_a_sandbox_was_made_from_stays_as_long_as_it_is_worked_in() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    let mut plan = plan("p");
    room.write(|t| t.insert_plan(&plan, here(), at(1)));
    room.write(|t| t.insert_sandbox("p", &sandbox()));
    assert_eq!(room.catalog.sandbox("s").unwrap(), Some(sandbox()));
    assert_eq!(room.catalog.sandbox("t").unwrap(), None);
    assert_eq!(room.catalog.sandboxes(here()).unwrap(), [("p".to_owned(), sandbox())]);
    assert_eq!(room.catalog.sandboxes(safepoint_model::WorkspaceId::from_bits(9)).unwrap(), []);
    assert_eq!(room.catalog.plan_of_sandbox(here()).unwrap().as_deref(), Some("p"));
    let error = room.refuse(|t| t.delete_checkpoint(id(1), at(3)));
    assert!(matches!(error, CatalogError::SandboxBase { .. }), "{error}");
    room.write(|t| t.set_sandbox_state("s", SandboxState::Applied));
    room.write(|t| t.delete_checkpoint(id(1), at(3)));
    // The same holds when the plan is cancelled.
    room.insert(&checkpoint(2));
    room.write(|t| t.insert_sandbox("p", &Sandbox { id: "u".to_owned(), base: id(2), ..sandbox() }));
    plan.go(PlanState::Cancelled).unwrap();
    room.write(|t| t.save_plan(&plan, "cancelled", at(4)));
    room.write(|t| t.delete_checkpoint(id(2), at(5)));
    for error in [
        room.refuse(|t| t.insert_sandbox("nobody", &sandbox())),
        room.refuse(|t| t.set_sandbox_state("nobody", SandboxState::Applied)),
    ] {
        assert!(matches!(error, CatalogError::Missing { .. }), "{error}");
    }
}

#[test]
fn what_steps_printed_is_needed_by_their_plan() {
    let room = Room::new();
    let mut plan = plan("p");
    plan.steps[0].log = Some(object("printed"));
    room.write(|t| t.insert_plan(&plan, here(), at(1)));
    room.write(|t| t.note_plan("p", PlanNoteKind::Attempt, &json!({ "log": object("before") }), at(2)));
    room.write(|t| t.note_plan("p", PlanNoteKind::Error, &json!({ "x": 1 }), at(2)));
    let mut found = room.catalog.objects_of_records().unwrap();
    found.sort();
    let mut expected = [object("printed"), object("before")];
    expected.sort();
    assert_eq!(found, expected);
}
