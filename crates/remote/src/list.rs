//! List of packs of a checkpoint: closed, short, and with few small packs.
//!
//! Closed: every object that the checkpoint reaches lies in a pack of the list. By induction it stays so if
//! a push sends all that the base does not *reach*, or that its kept packs do not *hold*.

use crate::bytes::PART_BYTES;
use crate::document::{PackInfo, PushDocument};
use safepoint_model::tree::{Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSource};
use safepoint_planted::planted;
use std::collections::{BTreeMap, HashSet};

/// Number of small packs that are replaced by one.
pub const SMALL_PACKS_MAX: usize = 16;
/// Length below which a pack is small.
pub const SMALL_PACK_BYTES: u64 = PART_BYTES;
/// New packs of one push that always fit in its list.
const NEW_PACKS: usize = 64;

/// Packs of the base that the next push keeps in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListPlan {
    /// All: the push sends what the base does not reach.
    Append,
    /// Only these: the push sends everything reached that they do not hold, which their indexes tell.
    Compact(Vec<PackInfo>),
    /// None: the push sends everything reached, and is `whole`.
    Whole,
}

impl ListPlan {
    /// Chooses what becomes of the list of the base. `whole_bytes` is the size of everything reached, if known.
    pub fn of(base: &[PackInfo], whole_bytes: Option<u64>) -> Self {
        let listed: u64 = base.iter().map(|pack| pack.bytes).sum();
        // More than half of the listed bytes are no longer reached.
        let is_stale = whole_bytes.is_some_and(|whole| listed > 2 * whole + PART_BYTES);
        let (large, small): (Vec<_>, Vec<_>) =
            base.iter().cloned().partition(|pack| pack.bytes >= SMALL_PACK_BYTES);
        match () {
            () if base.is_empty() || is_stale || large.len() + NEW_PACKS > PushDocument::PACKS_MAX => {
                ListPlan::Whole
            }
            () if small.len() >= SMALL_PACKS_MAX && large.is_empty() => ListPlan::Whole,
            () if small.len() >= SMALL_PACKS_MAX => ListPlan::Compact(large),
            () => ListPlan::Append,
        }
    }
}

/// Adds to `found` what `new` reaches and `base` does not, in an order in which parents follow children.
///
/// Entries are compared by name: a subtree that moved is found again. `held` are objects of kept packs: they
/// are not added, but what they name is visited, as it may lie elsewhere.
///
/// # Errors
/// When a tree or a list of pieces is missing or damaged.
pub fn beyond_base(
    source: &dyn ObjectSource,
    new: ObjectId,
    base: Option<ObjectId>,
    held: &dyn Fn(ObjectId) -> bool,
    found: &mut Reached,
) -> Result<(), ObjectError> {
    let mut work = vec![Visit::Enter(new, base)];
    while let Some(visit) = work.pop() {
        let (tree, base) = match visit {
            Visit::Leave(tree) => {
                found.add(tree, held);
                continue;
            }
            Visit::Enter(tree, base) => (tree, base),
        };
        if Some(tree) == base || !found.seen.insert(tree) {
            continue;
        }
        if planted!("remote-leaves-out-by-pack") && held(tree) {
            continue;
        }
        let loaded = Tree::load(source, tree)?;
        let before = base.map(|base| Tree::load(source, base)).transpose()?;
        let names: BTreeMap<_, _> = before
            .iter()
            .flat_map(|tree| tree.entries().iter().map(|entry| (entry.name.clone(), &entry.node)))
            .collect();
        work.push(Visit::Leave(tree));
        for entry in loaded.entries() {
            let old = names.get(&entry.name);
            match &entry.node {
                Node::Directory(below) => {
                    let base = match old {
                        Some(Node::Directory(base)) => Some(*base),
                        _ => None,
                    };
                    work.push(Visit::Enter(*below, base));
                }
                Node::File(content) => {
                    let same = matches!(old, Some(Node::File(old)) if old.id == content.id);
                    if !same && found.seen.insert(content.id) {
                        // A list of pieces comes after its pieces.
                        if content.form != safepoint_model::content::Form::Whole {
                            for piece in content.chunks(source)? {
                                found.add_once(piece.id, held);
                            }
                        }
                        found.add(content.id, held);
                    }
                }
                Node::Symlink(_) => {}
            }
        }
    }
    Ok(())
}

enum Visit {
    Enter(ObjectId, Option<ObjectId>),
    Leave(ObjectId),
}

/// Objects to be sent, each once, in order.
#[derive(Debug, Default)]
pub struct Reached {
    seen: HashSet<ObjectId>,
    objects: Vec<ObjectId>,
}

impl Reached {
    /// Adds an object without children, such as a document.
    pub fn add_once(&mut self, id: ObjectId, held: &dyn Fn(ObjectId) -> bool) {
        if self.seen.insert(id) {
            self.add(id, held);
        }
    }

    fn add(&mut self, id: ObjectId, held: &dyn Fn(ObjectId) -> bool) {
        if !held(id) {
            self.objects.push(id);
        }
    }

    /// Returns the objects.
    pub fn into_objects(self) -> Vec<ObjectId> {
        self.objects
    }

    /// Returns true if the object was found before.
    pub fn has(&self, id: ObjectId) -> bool {
        self.seen.contains(&id)
    }
}
