//! GATHER: the objects of a push. All that its checkpoints reach, but for what the base reaches or kept packs hold.

use super::publishable::Publishable;
use crate::Error;
use crate::upkeep::mark::part_objects;
use safepoint_model::checkpoint::PartRecord;
use safepoint_model::{ObjectId, ObjectSource, plan};
use safepoint_remote::{Reached, beyond_base};
use std::collections::{HashMap, HashSet};

/// Everything that the base of a push reaches: its trees by part, and all other objects.
#[derive(Default)]
pub(super) struct Base {
    trees: HashMap<(String, String), ObjectId>,
    others: HashSet<ObjectId>,
}

fn key_of(part: &PartRecord) -> (String, String) {
    (part.kind.as_str().to_owned(), part.key.clone())
}

impl Base {
    /// Reads what a published checkpoint reaches.
    pub(super) fn of(store: &dyn ObjectSource, published: &Publishable) -> Result<Self, Error> {
        let mut base = Self::default();
        let Publishable { checkpoint, .. } = published;
        base.others.insert(checkpoint.integrity);
        for part in &checkpoint.parts {
            let tree = part_objects(store, part, &mut |id| base.others.insert(id))?;
            base.trees.extend(tree.map(|tree| (key_of(part), tree)));
        }
        if let Some(state) = checkpoint.state_snapshot {
            plan::document::objects(store, state, &mut |id| base.others.insert(id))?;
        }
        Ok(base)
    }
}

/// Adds what a checkpoint reaches beyond the base. `held` are objects of kept packs.
pub(super) fn gather(
    store: &dyn ObjectSource,
    published: &Publishable,
    base: &Base,
    held: &dyn Fn(ObjectId) -> bool,
    found: &mut Reached,
) -> Result<(), Error> {
    let Publishable { checkpoint, .. } = published;
    if !base.others.contains(&checkpoint.integrity) {
        found.add_once(checkpoint.integrity, held);
    }
    let mut trees = Vec::new();
    {
        let mut visit = |id: ObjectId| {
            let is_new = !base.others.contains(&id) && !found.has(id);
            if is_new {
                found.add_once(id, held);
            }
            is_new
        };
        for part in &checkpoint.parts {
            let tree = part_objects(store, part, &mut visit)?;
            trees.extend(tree.map(|tree| (tree, base.trees.get(&key_of(part)).copied())));
        }
        if let Some(state) = checkpoint.state_snapshot {
            plan::document::objects(store, state, &mut visit)?;
        }
    }
    for (tree, base) in trees {
        beyond_base(store, tree, base, held, found)?;
    }
    Ok(())
}
