//! MARK: collects the objects that any record needs.

use crate::parts::git;
use crate::threads::chain::{Visit, each_ancestor};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, RoleFilter};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord};
use safepoint_model::content::{Content, Form};
use safepoint_model::files::FilesDocument;
use safepoint_model::outside::OutsideDocument;
use safepoint_model::plan;
use safepoint_model::thread::ThreadDocument;
use safepoint_model::tree::{Node, Tree};
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectSource, Progress, document};
use safepoint_planted::planted;
use safepoint_workspace::WorkspaceError;
use std::collections::HashSet;

/// Visitor of needed objects; visits each checkpoint once.
pub(crate) struct Marker<'m> {
    manager: &'m CheckpointManager,
    progress: &'m dyn Progress,
    done: HashSet<(CheckpointId, ObjectId)>,
}

impl<'m> Marker<'m> {
    pub(crate) fn new(manager: &'m CheckpointManager, progress: &'m dyn Progress) -> Self {
        Self { manager, progress, done: HashSet::new() }
    }

    /// Adds the objects of records, and of checkpoints new since the last call.
    pub(crate) fn mark(&mut self, live: &mut HashSet<ObjectId>) -> Result<(), Error> {
        let all = Filter { role: RoleFilter::Any, ..Filter::default() };
        for checkpoint in self.manager.catalog.checkpoints(&all)? {
            if planted!("mark-skips-safety") && checkpoint.role.is_some() {
                continue;
            }
            if self.done.insert((checkpoint.id, checkpoint.integrity)) {
                each_object(&self.manager.store, &checkpoint, self.progress, &mut |id| live.insert(id))
                    .map_err(|error| match error {
                        Error::Object(source) => Error::CannotCollect { checkpoint: checkpoint.id, source },
                        other => other,
                    })?;
            }
        }
        if !planted!("mark-skips-records") {
            live.extend(self.manager.catalog.objects_of_records()?);
        }
        Ok(())
    }
}

/// Visits every object that a checkpoint needs. Skips the children of an object if `visit` returns false.
///
/// # Errors
/// Fails if an object with children is missing or damaged, or on interrupt.
pub(crate) fn each_object(
    store: &dyn ObjectSource,
    checkpoint: &Checkpoint,
    progress: &dyn Progress,
    visit: &mut dyn FnMut(ObjectId) -> bool,
) -> Result<(), Error> {
    if !visit(checkpoint.integrity) {
        return Ok(());
    }
    let manifest: Manifest = document::load(store, checkpoint.integrity)?;
    let mut trees = Vec::new();
    for part in &manifest.parts {
        trees.extend(part_objects(store, part, visit)?);
    }
    // The state of an imported plan that does not exist here is kept outside the parts.
    if let Some(state) = checkpoint.state_snapshot {
        plan::document::objects(store, state, visit)?;
    }
    while let Some(tree) = trees.pop() {
        if progress.interrupted() {
            return Err(WorkspaceError::Interrupted.into());
        }
        if !visit(tree) {
            continue;
        }
        let tree = Tree::load(store, tree)?;
        progress.advance(tree.entries().len() as u64, 0);
        for entry in tree.entries() {
            match &entry.node {
                Node::Directory(below) => trees.push(*below),
                Node::File(content) => content_objects(store, content, visit)?,
                Node::Symlink(_) => {}
            }
        }
    }
    Ok(())
}

/// Visits the objects of a part, and returns its tree, which is not visited.
///
/// # Errors
/// Fails if an object with children is missing or damaged.
pub(crate) fn part_objects(
    store: &dyn ObjectSource,
    part: &PartRecord,
    visit: &mut dyn FnMut(ObjectId) -> bool,
) -> Result<Option<ObjectId>, ObjectError> {
    if part.kind == PartKind::Plan {
        plan::document::objects(store, part.document, visit)?;
    } else if part.kind == PartKind::Git {
        if visit(part.document) {
            let (refs, contents) = git::needed(store, part.document)?;
            visit(refs);
            contents.iter().try_for_each(|content| content_objects(store, content, visit))?;
        }
    } else if matches!(part.kind, PartKind::Outside(_)) {
        if visit(part.document) {
            let document = OutsideDocument::load(store, part.document)?;
            let contents = document.contents.into_iter().map(Content::from);
            contents.into_iter().try_for_each(|content| content_objects(store, &content, visit))?;
        }
    } else if part.kind == PartKind::Thread {
        if visit(part.document) {
            let document = ThreadDocument::load(store, part.document)?;
            let contents = document.contents();
            contents.iter().try_for_each(|content| content_objects(store, content, visit))?;
            each_ancestor::<ObjectError>(&document, store, &mut |step| match step {
                Visit::Document(id) => Ok(!planted!("mark-skips-ancestors") && visit(id)),
                Visit::State(state) => {
                    let contents = state.contents();
                    contents.iter().try_for_each(|content| content_objects(store, content, visit))?;
                    Ok(true)
                }
            })?;
        }
    } else if visit(part.document) && matches!(part.kind, PartKind::Files | PartKind::GitFolder) {
        let files = FilesDocument::load(store, part.document)?;
        if !planted!("mark-skips-coverage") {
            visit(files.coverage);
        }
        return Ok(files.tree());
    }
    Ok(None)
}

fn content_objects(
    store: &dyn ObjectSource,
    content: &Content,
    visit: &mut dyn FnMut(ObjectId) -> bool,
) -> Result<(), ObjectError> {
    if visit(content.id) && content.form != Form::Whole && !planted!("mark-skips-pieces") {
        for piece in content.chunks(store)? {
            visit(piece.id);
        }
    }
    Ok(())
}
