//! A write is atomic.

use crate::records::{Room, at, checkpoint, here, id, rollback, step, workspace};
use safepoint_catalog::{CatalogError, Filter};
use safepoint_model::{RollbackId, WorkspaceId};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Debug)]
enum Ours {
    Catalog(CatalogError),
    Changed,
}

impl From<CatalogError> for Ours {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

fn everything(room: &Room) -> (usize, usize, usize, u64) {
    (
        room.catalog.checkpoints(&Filter::default()).unwrap().len(),
        room.catalog.rollbacks(here()).unwrap().len(),
        room.catalog.steps(RollbackId::from_bits(1)).unwrap().len(),
        room.catalog.verify_events().unwrap().whole,
    )
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    let room = Room::new();
    let before = everything(&room);
    let result: Result<(), Ours> = room.catalog.write(|t| {
        t.insert_checkpoint(&checkpoint(1))?;
        t.set_head(here(), id(1))?;
        t.insert_rollback(&rollback(1, 1), &[step(1)])?;
        assert_eq!(t.checkpoint(id(1))?.map(|found| found.id), Some(id(1)));
        Err(Ours::Changed)
    });
    assert!(matches!(result, Err(Ours::Changed)));
    assert_eq!(everything(&room), before);
    assert_eq!(room.catalog.workspace(here()).unwrap().unwrap().head, None);
    let result: Result<(), Ours> = room.catalog.write(|t| Ok(t.count_rollback(id(1))?));
    assert!(matches!(result, Err(Ours::Catalog(CatalogError::Missing { .. }))));
}

#[test]
fn a_panic_leaves_nothing_and_the_catalog_usable() {
    let room = Room::new();
    let before = everything(&room);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        room.write(|t| -> Result<(), CatalogError> {
            t.insert_checkpoint(&checkpoint(1))?;
            panic!("on purpose");
        });
    }));
    assert!(outcome.is_err());
    assert_eq!(everything(&room), before);
    room.insert(&checkpoint(1));
}

#[test]
fn the_catalog_refuses_from_inside_its_own_transaction() {
    let room = Room::new();
    let error = room.refuse(|_| room.catalog.checkpoint(id(1)));
    assert!(matches!(error, CatalogError::Nested { .. }), "{error}");
    let error = room.refuse(|_| room.catalog.write(|t| t.insert_checkpoint(&checkpoint(1))));
    assert!(matches!(error, CatalogError::Nested { .. }), "{error}");
    room.insert(&checkpoint(1));
}

#[test]
fn a_folder_is_registered_once_while_it_is_live() {
    let room = Room::new();
    let again = workspace(2, b"/here");
    let error = room.refuse(|t| t.register_workspace(&again));
    assert!(matches!(error, CatalogError::Registered { id, .. } if id == here()), "{error}");
    assert!(error.to_string().contains("/here"));
    room.write(|t| t.remove_workspace(here(), at(4)));
    assert_eq!(room.catalog.workspace_at(b"/here").unwrap(), None);
    assert_eq!(room.catalog.workspace(here()).unwrap().unwrap().removed_at, Some(at(4)));
    room.write(|t| t.register_workspace(&again));
    assert_eq!(room.catalog.workspace_at(b"/here").unwrap(), Some(again.clone()));
    assert_eq!(room.write(|t| t.workspace_at(b"/here")), Some(again.clone()));
    assert_eq!(room.write(|t| t.workspace(again.id)), Some(again.clone()));
    assert_eq!(room.catalog.workspaces().unwrap(), [again]);
}

#[test]
fn a_root_is_bytes() {
    let room = Room::new();
    let odd = workspace(3, b"/odd \xff\n'%");
    room.write(|t| t.register_workspace(&odd));
    assert_eq!(room.catalog.workspace_at(&odd.root).unwrap(), Some(odd.clone()));
    assert_eq!(room.catalog.workspace(WorkspaceId::from_bits(3)).unwrap(), Some(odd));
}
