//! Maintenance: records after a purge, and objects that records need.

use crate::records::{Room, at, checkpoint, here, id, object, rollback};
use safepoint_catalog::{CatalogError, Purged};
use safepoint_model::checkpoint::{PartKind, PartRecord, Totals};
use safepoint_model::rollback::{Rollback, RollbackState};

fn purged(parts: Vec<PartRecord>) -> Purged {
    let files = Totals { count: 2, bytes: 7, ..Totals::default() };
    Purged { integrity: object("new integrity"), parts, files }
}

#[test]
fn a_purged_checkpoint_has_the_new_content_and_all_else_as_before() {
    let room = Room::new();
    let mut before = checkpoint(3);
    before.parts.push(PartRecord { kind: PartKind::Plan, key: "plan".to_owned(), document: object("plan") });
    room.insert(&before);
    room.insert(&checkpoint(4));
    let mut parts = before.parts.clone();
    parts[0].document = object("fewer files");
    let purged = purged(parts);
    room.write(|t| t.purge_checkpoint(id(3), &purged, at(9)));
    before.integrity = purged.integrity;
    before.parts.clone_from(&purged.parts);
    before.files = purged.files;
    assert_eq!(room.catalog.checkpoint(id(3)).unwrap(), Some(before));
    assert_eq!(
        room.catalog.checkpoint(id(4)).unwrap(),
        Some(checkpoint(4)),
        "the same parts, another checkpoint"
    );
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
    let events = room.catalog.events(0, 100).unwrap();
    let last = events.last().unwrap();
    assert_eq!(
        (last.kind.as_str(), last.subject.as_str()),
        ("checkpoint.purged", id(3).to_string().as_str())
    );
}

#[test]
fn what_is_not_there_is_not_purged() {
    let room = Room::new();
    let error = room.refuse(|t| t.purge_checkpoint(id(3), &purged(Vec::new()), at(9)));
    assert!(matches!(error, CatalogError::Missing { what: "checkpoint", .. }), "{error}");
}

#[test]
fn records_need_the_lists_of_what_they_changed() {
    let room = Room::new();
    assert_eq!(room.catalog.objects_of_records().unwrap(), []);
    for number in [3, 4] {
        room.insert(&checkpoint(number));
    }
    let mut first = rollback(1, 3);
    first.changed_paths = Some(object("changed"));
    let without = Rollback { state: RollbackState::Refused, ..rollback(2, 4) };
    room.write(|t| t.insert_rollback(&without, &[]));
    room.write(|t| t.insert_rollback(&first, &[]));
    assert_eq!(room.catalog.objects_of_records().unwrap(), [object("changed")]);
}

#[test]
fn whether_anything_is_old_is_asked_of_an_index_and_not_of_every_record() {
    let room = Room::new();
    for number in 1..=3 {
        room.insert(&checkpoint(number));
    }
    let all = room.catalog.aged(Some(here())).unwrap();
    assert_eq!(all.iter().map(|aged| aged.id).collect::<Vec<_>>(), [id(3), id(2), id(1)], "newest first");
    let one = room.catalog.checkpoint(id(2)).unwrap().unwrap();
    assert_eq!((all[1].created_at, all[1].role, all[1].pinned), (one.created_at, one.role, one.pinned));
    let oldest = all.iter().map(|aged| aged.created_at).min().unwrap();
    let after = safepoint_model::Timestamp::from_micros(oldest.micros() + 1);
    assert!(!room.catalog.has_older(Some(here()), oldest).unwrap());
    assert!(room.catalog.has_older(Some(here()), after).unwrap());
    assert!(!room.catalog.has_older(Some(safepoint_model::WorkspaceId::from_bits(77)), after).unwrap());
    assert!(!room.catalog.has_older(None, after).unwrap() && room.catalog.aged(None).unwrap().is_empty());
    let connection = rusqlite::Connection::open(room.catalog.path()).unwrap();
    let sql =
        "EXPLAIN QUERY PLAN SELECT id FROM checkpoints WHERE workspace_id IS 'w' AND created_at < 1 LIMIT 1";
    let plan: String = connection.query_row(sql, [], |row| row.get("detail")).unwrap();
    assert!(plan.starts_with("SEARCH") && plan.contains("checkpoints_age"), "{plan}");
}
