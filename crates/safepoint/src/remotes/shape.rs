//! SHAPE: checks of a downloaded tree before anything is built of it.
//!
//! Every hash may be right, and the tree a lie: a file of another size than its chunks, or made of objects that are none.
//! And a tree may name one folder many times. As objects it is small, as folders it is endless: 40 levels that name the level
//! below twice are a million million folders. So a tree must not expand to more than its document says, nor be deeper than
//! any capture.

use super::{broken, damaged};
use crate::Error;
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::{Node, Tree};
use safepoint_model::{ObjectId, ObjectSource};
use safepoint_workspace::DEPTH_MAX;
use std::collections::HashMap;

/// Entries and levels of a folder, with all below it.
#[derive(Debug, Clone, Copy, Default)]
struct Expanded {
    count: u64,
    levels: usize,
}

impl Expanded {
    fn add(&mut self, below: Expanded) {
        self.count = self.count.saturating_add(below.count);
        self.levels = self.levels.max(below.levels + 1);
    }
}

/// Folder whose subfolders are still to be added.
struct Open {
    id: ObjectId,
    expanded: Expanded,
    below: Vec<ObjectId>,
}

/// Downloaded objects: their content, and whether one is a chunk of this size.
pub(super) trait Downloaded: ObjectSource {
    fn is_chunk(&self, id: ObjectId, size: u64) -> bool;
}

impl Open {
    fn load(source: &impl Downloaded, id: ObjectId) -> Result<Self, Error> {
        let tree = Tree::load(source, id).map_err(|error| broken("a pack", &error))?;
        let entries = tree.entries();
        for entry in entries {
            if let Node::File(content) = &entry.node {
                let pieces = content.chunks(source).map_err(|error| broken("a pack", &error))?;
                if !pieces.iter().all(|piece| source.is_chunk(piece.id, piece.size)) {
                    return Err(damaged(format!("tree {id}"), "a file has another size than its chunks"));
                }
            }
        }
        let below = entries.iter().filter_map(|entry| match entry.node {
            Node::Directory(below) => Some(below),
            _ => None,
        });
        let expanded = Expanded { count: entries.len() as u64, levels: 0 };
        Ok(Self { id, expanded, below: below.collect() })
    }
}

/// Checks the tree of a downloaded files document.
///
/// # Errors
/// When a file is not what its entry says, or the tree expands to more entries than the document
/// says, or is too deep.
pub(super) fn check(source: &impl Downloaded, document: ObjectId) -> Result<(), Error> {
    let files = FilesDocument::load(source, document).map_err(|error| broken("a pack", &error))?;
    let Some(root) = files.tree() else { return Ok(()) };
    let expanded = expand(source, root)?;
    match expanded.count > files.count {
        true => Err(damaged(format!("tree {root}"), "it has more entries than its document says")),
        false => Ok(()),
    }
}

/// Adds up each folder once, without recursion.
fn expand(source: &impl Downloaded, root: ObjectId) -> Result<Expanded, Error> {
    let too_deep = || damaged(format!("tree {root}"), "its folders are too deep");
    let mut done: HashMap<ObjectId, Expanded> = HashMap::new();
    let mut open = vec![Open::load(source, root)?];
    loop {
        let levels = open.len();
        let Some(last) = open.last_mut() else { return Ok(Expanded::default()) };
        let Some(next) = last.below.last().copied() else {
            let (id, expanded) = (last.id, last.expanded);
            open.pop();
            if open.is_empty() {
                return Ok(expanded);
            }
            done.insert(id, expanded);
            continue;
        };
        match done.get(&next) {
            Some(below) if levels + below.levels > DEPTH_MAX => return Err(too_deep()),
            Some(below) => {
                last.expanded.add(*below);
                last.below.pop();
            }
            None if levels > DEPTH_MAX => return Err(too_deep()),
            None => open.push(Open::load(source, next)?),
        }
    }
}
