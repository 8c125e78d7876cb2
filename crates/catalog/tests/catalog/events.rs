//! The history names every change and reveals every edit.

use crate::records::{Room, at, checkpoint, here, id, path, rollback};
use safepoint_catalog::{FinishFacts, Pinned};
use safepoint_model::rollback::{Rescued, Rollback, RollbackState};

/// Two checkpoints, two rollbacks: one event of every kind.
fn busy_room() -> Room {
    let room = Room::new();
    room.insert(&checkpoint(1));
    room.insert(&checkpoint(2));
    let first = rollback(1, 1);
    let none = FinishFacts::default();
    let found = Rescued { path: path(b"a"), checkpoint: id(2), why: "edited".to_owned() };
    room.write(|t| {
        t.insert_rollback(&first, &[])?;
        t.finish_rollback(first.id, RollbackState::Done, at(1), &none)?;
        t.add_rescued(first.id, &[found], at(2))?;
        t.finish_rollback(first.id, RollbackState::Settled, at(3), &none)?;
        let second = rollback(2, 1);
        t.insert_rollback(&second, &[])?;
        t.finish_rollback(second.id, RollbackState::Aborted, at(4), &none)?;
        t.insert_rollback(&Rollback { state: RollbackState::Refused, ..rollback(3, 1) }, &[])?;
        t.set_pinned(id(1), Pinned::Yes, at(5))?;
        t.set_pinned(id(1), Pinned::No, at(6))?;
        t.delete_checkpoint(id(2), at(7))?;
        t.remove_workspace(here(), at(8))?;
        t.append_event(at(9), "plan.started", "my plan", &serde_json::json!({ "steps": 3 }))
    });
    room
}

const COUNT: u64 = 15;

#[test]
fn everything_that_happens_is_an_event() {
    let room = busy_room();
    let events = room.catalog.events(0, 100).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "workspace.registered",
            "checkpoint.created",
            "checkpoint.created",
            "rollback.began",
            "rollback.done",
            "rollback.rescued",
            "rollback.settled",
            "rollback.began",
            "rollback.aborted",
            "rollback.refused",
            "checkpoint.pinned",
            "checkpoint.unpinned",
            "checkpoint.deleted",
            "workspace.removed",
            "plan.started",
        ]
    );
    assert!((1u64..).zip(&events).all(|(seq, event)| event.seq == seq));
    assert!(events.windows(2).all(|pair| pair[0].hash == pair[1].previous));
    assert_eq!(events[0].previous, [0; 32]);
    let last = &events[14];
    assert_eq!((last.at, last.subject.as_str(), &last.payload["steps"]), (at(9), "my plan", &3.into()));
    assert_eq!(room.catalog.events(13, 100).unwrap(), events[13..]);
    assert_eq!(room.catalog.events(3, 2).unwrap(), events[3..5]);
    let check = room.catalog.verify_events().unwrap();
    assert_eq!((check.whole, check.broken), (COUNT, None));
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
}

/// Applies one edit that bypasses all guards, and expects verification to stop at this event.
#[track_caller]
fn noticed(room: &Room, first_broken: Option<u64>, sql: &str) {
    let raw = room.raw();
    raw.execute_batch("BEGIN").unwrap();
    raw.execute_batch(sql).unwrap();
    raw.execute_batch("COMMIT").unwrap();
    let check = room.catalog.verify_events().unwrap();
    let broken = check.broken.unwrap_or_else(|| panic!("unseen: {sql}"));
    if let Some(seq) = first_broken {
        assert_eq!(broken.seq, seq, "{sql}");
        assert_eq!(check.whole, seq - 1);
    }
    assert!(room.catalog.check().unwrap().iter().any(|line| line.starts_with("event ")), "{sql}");
}

/// Runs each edit on a copy of the events, and restores them.
fn each_alone(edits: impl IntoIterator<Item = (Option<u64>, String)>) {
    let room = busy_room();
    let raw = room.raw();
    raw.execute_batch(
        "CREATE TABLE kept AS SELECT * FROM events; CREATE TABLE kept_head AS SELECT * FROM event_head",
    )
    .unwrap();
    for (first_broken, sql) in edits {
        noticed(&room, first_broken, &sql);
        raw.execute_batch(
            "DELETE FROM events; INSERT INTO events SELECT * FROM kept;
             DELETE FROM event_head; INSERT INTO event_head SELECT * FROM kept_head",
        )
        .unwrap();
        assert_eq!(room.catalog.verify_events().unwrap().broken, None, "{sql}");
    }
}

#[test]
fn every_single_edit_is_noticed() {
    let edits = [
        "at = at + 1",
        "kind = kind || ' '",
        "subject = ''",
        "payload = replace(payload, '{', '{ ')",
        "previous = zeroblob(31)",
        "hash = zeroblob(32)",
        "kind = substr(kind, 1, length(kind) - 1), subject = substr(kind, -1) || subject",
        "kind = CAST(x'ff' AS TEXT)",
    ];
    each_alone((1..=COUNT).flat_map(|seq| {
        edits.map(|edit| (Some(seq), format!("UPDATE events SET {edit} WHERE seq = {seq}")))
    }));
}

#[test]
fn every_deletion_is_noticed() {
    each_alone((1..=COUNT).map(|seq| (Some(seq), format!("DELETE FROM events WHERE seq = {seq}"))));
    // Closing the gap afterwards does not hide it.
    each_alone((1..COUNT).map(|seq| {
        let close = "UPDATE events SET seq = -seq WHERE seq > 0; UPDATE events SET seq = row FROM
            (SELECT seq AS old, row_number() OVER (ORDER BY seq DESC) AS row FROM events) WHERE seq = old";
        (Some(seq), format!("DELETE FROM events WHERE seq = {seq}; {close}"))
    }));
}

#[test]
fn every_swap_is_noticed() {
    let pairs = (1..=COUNT).flat_map(|a| (a + 1..=COUNT).map(move |b| (a, b)));
    each_alone(pairs.map(|(a, b)| {
        let sql = format!(
            "UPDATE events SET seq = -1 WHERE seq = {a}; UPDATE events SET seq = {a} WHERE seq = {b};
             UPDATE events SET seq = {b} WHERE seq = -1"
        );
        (Some(a), sql)
    }));
}

#[test]
fn an_event_that_was_slipped_in_and_a_false_end_are_noticed() {
    each_alone(
        [
            "INSERT INTO events SELECT 16, at, kind, subject, payload, hash, hash FROM events WHERE seq = 15",
            "INSERT INTO events SELECT -1, at, kind, subject, payload, hash, hash FROM events WHERE seq = 15",
            "UPDATE event_head SET seq = 14",
            "UPDATE event_head SET seq = 16",
            "UPDATE event_head SET hash = zeroblob(32)",
            "UPDATE event_head SET hash = x''",
            "DELETE FROM event_head",
            "DELETE FROM events",
        ]
        .map(|sql| (None, sql.to_owned())),
    );
}

#[test]
fn without_its_end_the_history_is_not_continued() {
    let room = Room::new();
    room.raw().execute_batch("DELETE FROM event_head").unwrap();
    assert!(room.refuse(|t| t.insert_checkpoint(&checkpoint(1))).is_damaged());
    assert_eq!(room.catalog.checkpoint(id(1)).unwrap(), None);
}
