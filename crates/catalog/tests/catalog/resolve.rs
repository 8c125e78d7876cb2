//! References resolve to the intended checkpoint, or to a list.

use crate::records::{Room, checkpoint, here, id, labelled, with_role, workspace};
use safepoint_catalog::Resolved;
use safepoint_model::checkpoint::{Checkpoint, Role};
use safepoint_model::reference::Reference;
use safepoint_model::{CheckpointId, WorkspaceId};

/// Returns an id that begins with these eight characters, then zeros.
fn id_from(text: &str) -> CheckpointId {
    format!("{text:0<26}").parse().unwrap()
}

fn starting(text: &str) -> Checkpoint {
    Checkpoint { id: id_from(text), ..checkpoint(0) }
}

fn there() -> WorkspaceId {
    WorkspaceId::from_bits(2)
}

fn elsewhere(checkpoint: Checkpoint) -> Checkpoint {
    Checkpoint { workspace_id: Some(there()), ..checkpoint }
}

fn room(checkpoints: &[Checkpoint]) -> Room {
    let room = Room::new();
    room.write(|transaction| {
        transaction.register_workspace(&workspace(2, b"/there"))?;
        checkpoints.iter().try_for_each(|one| transaction.insert_checkpoint(one))
    });
    room
}

/// Returns the ids that a reference resolves to, seen from `here`.
#[track_caller]
fn found(room: &Room, reference: &str) -> Vec<CheckpointId> {
    ids(room, Some(here()), &reference.parse().unwrap())
}

fn ids(room: &Room, from: Option<WorkspaceId>, reference: &Reference) -> Vec<CheckpointId> {
    let resolved = room.catalog.resolve(from, reference).unwrap();
    assert_eq!(room.write(|transaction| transaction.resolve(from, reference)), resolved);
    match resolved {
        Resolved::None => vec![],
        Resolved::One(one) => vec![one.id],
        Resolved::Ambiguous(several) => {
            assert!(several.len() > 1);
            several.into_iter().map(|one| one.id).collect()
        }
    }
}

#[test]
fn newest_skips_safety_rescue_and_other_workspaces() {
    let room = room(&[
        checkpoint(1),
        with_role(2, Role::Safety),
        checkpoint(3),
        with_role(4, Role::Rescue),
        elsewhere(checkpoint(5)),
        with_role(6, Role::Safety),
    ]);
    assert_eq!(found(&room, "@"), [id(3)]);
    assert_eq!(found(&room, "@~1"), [id(1)]);
    assert_eq!(found(&room, "@~2"), []);
    assert_eq!(found(&room, &format!("@~{}", u64::MAX)), []);
    assert_eq!(ids(&room, None, &Reference::Newest { back: 0 }), [id(5)]);
    assert_eq!(ids(&room, None, &Reference::Newest { back: 2 }), [id(1)]);
}

#[test]
fn an_id_is_found_whoever_made_it() {
    let room = room(&[with_role(1, Role::Safety), elsewhere(checkpoint(2))]);
    assert_eq!(found(&room, &id(1).to_string()), [id(1)]);
    assert_eq!(found(&room, &id(2).to_uuid()), [id(2)]);
    assert_eq!(found(&room, &id(3).to_string()), []);
}

#[test]
fn a_beginning_is_looked_for_here_and_then_everywhere() {
    let room = room(&[
        starting("01JBAAAA"),
        starting("01JBAABB"),
        elsewhere(starting("01JBAACC")),
        elsewhere(starting("01JCDDDD")),
        elsewhere(starting("01JCDDEE")),
    ]);
    assert_eq!(found(&room, "01jbaaaa"), [id_from("01JBAAAA")]);
    assert_eq!(found(&room, "01JBAA"), [id_from("01JBAABB"), id_from("01JBAAAA")]);
    assert_eq!(found(&room, "01jbaac"), [id_from("01JBAACC")]);
    assert_eq!(found(&room, "01JC"), [id_from("01JCDDEE"), id_from("01JCDDDD")]);
    assert_eq!(found(&room, "01JZ"), []);
    assert_eq!(found(&room, "ZZZZ"), []);
}

#[test]
fn an_ambiguous_answer_stays_short() {
    let many: Vec<_> = (0..30).map(checkpoint).collect();
    let found = found(&room(&many), "0000");
    assert_eq!(found.len(), 20);
    assert_eq!(found[0], id(29));
}

#[test]
fn a_label_wins_over_the_beginning_of_an_id() {
    let named = Checkpoint { id: id(9), ..labelled(9, "01JBAAAA") };
    let room = room(&[named, starting("01JBAAAA")]);
    assert_eq!(found(&room, "01JBAAAA"), [id(9)]);
    assert_eq!(found(&room, "01jbaaaa"), [id_from("01JBAAAA")]);
}

#[test]
fn labels_are_exact_and_of_this_workspace() {
    let room = room(&[
        labelled(1, "before"),
        labelled(2, "twice"),
        labelled(3, "twice"),
        elsewhere(labelled(4, "before")),
        elsewhere(labelled(5, "theirs")),
        Checkpoint { workspace_id: None, ..labelled(6, "everything") },
        Checkpoint { workspace_id: None, ..labelled(7, "before") },
    ]);
    assert_eq!(found(&room, "before"), [id(1)]);
    assert_eq!(found(&room, "Before"), []);
    assert_eq!(found(&room, "befor"), []);
    assert_eq!(found(&room, "twice"), [id(3), id(2)]);
    assert_eq!(found(&room, "theirs"), []);
    assert_eq!(found(&room, "everything"), [id(6)]);
    assert_eq!(ids(&room, None, &"before".parse().unwrap()), [id(7), id(4), id(1)]);
}

#[test]
fn wildcards_quotes_and_sql_are_data() {
    let odd = ["%", "_", "100%", "a_b", "*", "'; DROP TABLE checkpoints; --", "\u{0}", "ünïcode"];
    let mut all: Vec<_> = (1u128..).zip(odd).map(|(number, label)| labelled(number, label)).collect();
    all.push(labelled(90, "axb"));
    let room = room(&all);
    for (number, label) in (1u128..).zip(odd) {
        assert_eq!(found(&room, label), [id(number)], "{label:?}");
    }
    for prefix in ["%", "0%", "____", "0___", "*", "'"] {
        let reference = Reference::Name { text: "no label".to_owned(), prefix: Some(prefix.to_owned()) };
        assert_eq!(ids(&room, Some(here()), &reference), [], "{prefix:?}");
    }
}
