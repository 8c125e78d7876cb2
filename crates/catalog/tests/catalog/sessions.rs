//! Sessions are recorded, and counted in the transaction of each change.

use crate::records::{Room, at, checkpoint, id, with_role};
use safepoint_catalog::{CatalogError, Filter, RoleFilter, Summary};
use safepoint_model::checkpoint::{Checkpoint, Kind, Reason, Role};
use safepoint_model::id::SessionId;
use safepoint_model::session::{Session, SessionChange, SessionCount, SessionStatus};
use serde_json::{Map, json};

pub(crate) fn session(bits: u128) -> Session {
    Session::new(SessionId::from_bits(bits), "Add rate limiting".to_owned(), at(0))
}

fn of_session(number: u128, session: &str) -> Checkpoint {
    Checkpoint { session_id: Some(session.to_owned()), ..checkpoint(number) }
}

#[test]
fn a_session_comes_back_as_it_went_in() {
    let room = Room::new();
    let mut whole = session(1);
    whole.request = "'; DROP TABLE sessions; --\n\u{1b}[31m \u{202e}".to_owned();
    whole.configuration = json!({ "a": { "b": [1, null, "x"] } }).as_object().unwrap().clone();
    whole.git_context = Some(Map::new());
    whole.statistics.tasks_failed = 3;
    whole.go(SessionStatus::Paused, at(4)).unwrap();
    for session in [&whole, &session(2)] {
        room.write(|t| t.insert_session(session));
        assert_eq!(room.catalog.session(session.id).unwrap().as_ref(), Some(session));
    }
    assert_eq!(room.catalog.session(SessionId::from_bits(9)).unwrap(), None);
    let error = room.refuse(|t| t.insert_session(&whole));
    assert_eq!(error.to_string(), format!("session {} already exists in the catalog", whole.id.to_uuid()));
    assert_eq!(room.catalog.check().unwrap(), [""; 0]);
}

#[test]
fn sessions_are_listed_newest_first() {
    let room = Room::new();
    for bits in [3, 1, 2] {
        let mut session = session(bits);
        if bits != 1 {
            session.go(SessionStatus::Planning, at(1)).unwrap();
        }
        room.write(|t| t.insert_session(&session));
    }
    let listed = |status, limit| -> Vec<u128> {
        room.catalog.sessions(status, limit).unwrap().iter().map(|session| session.id.bits()).collect()
    };
    assert_eq!(listed(None, None), [2, 1, 3]);
    assert_eq!(listed(Some(SessionStatus::Planning), None), [2, 3]);
    assert_eq!(listed(Some(SessionStatus::Planning), Some(1)), [2]);
    assert_eq!(listed(Some(SessionStatus::Failed), None), [0; 0]);
    assert_eq!(listed(None, Some(0)), [0; 0]);
    assert!(matches!(room.catalog.sessions(None, Some(u64::MAX)), Err(CatalogError::Value { .. })));
}

#[test]
fn changes_are_kept_and_told() {
    let room = Room::new();
    let mut session = session(1);
    room.write(|t| t.insert_session(&session));
    session.change(SessionChange::Request("Something else".to_owned()), at(2)).unwrap();
    room.write(|t| t.update_session(&session, "request"));
    session.go(SessionStatus::Planning, at(3)).unwrap();
    room.write(|t| t.transition_session(&session, SessionStatus::Initializing));
    assert_eq!(room.catalog.session(session.id).unwrap().as_ref(), Some(&session));
    room.write(|t| t.count_session(&session.id.to_uuid(), SessionCount::Decision, at(4)));
    room.write(|t| t.delete_session(session.id, at(5)));
    assert_eq!(room.catalog.session(session.id).unwrap(), None);
    let uuid = session.id.to_uuid();
    let told: Vec<_> =
        room.catalog.events(0, 99).unwrap().into_iter().filter(|it| it.subject == uuid).collect();
    let told: Vec<_> =
        told.iter().map(|event| (event.kind.as_str(), event.at, event.payload.clone())).collect();
    assert_eq!(
        told,
        [
            ("session.created", at(0), json!({ "request": "Add rate limiting", "status": "initializing" })),
            ("session.updated", at(2), json!({ "what": "request" })),
            ("session.transition", at(3), json!({ "from": "initializing", "to": "planning" })),
            ("session.counted", at(4), json!({ "what": "decision" })),
            ("session.deleted", at(5), json!({})),
        ]
    );
    for error in [
        room.refuse(|t| t.update_session(&session, "request")),
        room.refuse(|t| t.transition_session(&session, SessionStatus::Initializing)),
        room.refuse(|t| t.delete_session(session.id, at(6))),
    ] {
        assert!(matches!(error, CatalogError::Missing { what: "session", .. }), "{error}");
    }
}

#[test]
fn checkpoints_count_with_their_transaction() {
    let room = Room::new();
    room.write(|t| t.insert_session(&session(1)));
    let uuid = session(1).id.to_uuid();
    let made = || room.catalog.session(session(1).id).unwrap().unwrap().statistics.checkpoints_created;
    room.insert(&of_session(1, &uuid));
    assert_eq!(made(), 1);
    // Of another session, of none, and of an unregistered one.
    room.insert(&of_session(2, &SessionId::from_bits(2).to_uuid()));
    room.insert(&checkpoint(3));
    room.insert(&of_session(4, "../../etc/passwd"));
    assert_eq!(made(), 1);
    // A refused change is not counted.
    room.refuse(|t| {
        t.insert_checkpoint(&of_session(5, &uuid))?;
        Err::<(), _>(CatalogError::Nested { path: "x".into() })
    });
    assert_eq!(made(), 1);
    room.insert(&Checkpoint { session_id: Some(uuid.clone()), ..with_role(6, Role::Safety) });
    assert_eq!(made(), 2);
    let session = room.catalog.session(session(1).id).unwrap().unwrap();
    assert_eq!(session.updated_at, at(6));
    // A deleted checkpoint stays counted, and checkpoints of a deleted session still name it.
    room.write(|t| t.delete_checkpoint(id(6), at(7)));
    assert_eq!(made(), 2);
    room.write(|t| t.delete_session(session.id, at(8)));
    assert_eq!(room.catalog.checkpoint(id(1)).unwrap().unwrap().session_id, Some(uuid));
}

#[test]
fn counting_for_nobody_does_nothing() {
    let room = Room::new();
    room.write(|t| t.insert_session(&session(1)));
    let events = room.catalog.verify_events().unwrap().whole;
    let other = SessionId::from_bits(2);
    for id in [&*other.to_uuid(), "", "x", "1' OR '1'='1"] {
        room.write(|t| t.count_session(id, SessionCount::TaskDone, at(1)));
    }
    assert_eq!(room.catalog.session(session(1).id).unwrap(), Some(session(1)));
    assert_eq!(room.catalog.verify_events().unwrap().whole, events);
}

#[test]
fn each_thing_is_counted_in_its_own_column() {
    let room = Room::new();
    let mut expected = session(1);
    room.write(|t| t.insert_session(&expected));
    for what in [
        SessionCount::TaskDone,
        SessionCount::TaskFailed,
        SessionCount::Decision,
        SessionCount::Checkpoint,
        SessionCount::Recovery,
    ] {
        expected.count(what, at(2));
        // In either form of the id.
        room.write(|t| t.count_session(&expected.id.to_string(), what, at(2)));
        assert_eq!(room.catalog.session(expected.id).unwrap().as_ref(), Some(&expected));
    }
}

#[test]
fn sums_over_a_list_are_those_of_the_catalog() {
    let room = Room::new();
    room.write(|t| t.insert_session(&session(1)));
    let uuid = session(1).id.to_uuid();
    let filter = Filter { session_id: Some(uuid.clone()), role: RoleFilter::Any, ..Filter::default() };
    let same = || {
        let (found, list) = room.catalog.session_with(session(1).id, &filter).unwrap().unwrap();
        assert_eq!(found.statistics.checkpoints_created, list.len() as u64);
        assert_eq!(Summary::of(&list), room.catalog.summary(&filter).unwrap());
        list.len()
    };
    assert_eq!(same(), 0);
    for number in 1..7 {
        let mut one = of_session(number, &uuid);
        (one.kind, one.reason) = match number % 3 {
            0 => (Kind::Workflow, Reason::PhaseComplete),
            1 => (Kind::Manual, Reason::SafeState),
            _ => (Kind::Automatic, Reason::SafeState),
        };
        one.rollback_used = number % 2 == 0;
        room.insert(&one);
    }
    room.insert(&checkpoint(9));
    assert_eq!(same(), 6);
    assert_eq!(room.catalog.session_with(SessionId::from_bits(5), &filter).unwrap(), None);
}
