//! Pending changes and their dependencies: turns a choice among them into one that a disk could hold.

use std::collections::HashMap;
use std::ffi::OsStr;

use super::state::State;
use crate::op::{FileId, Op, Slot};

/// Change, with facts from the moment it was made.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) op: Op,
    /// Folder that it removed or replaced.
    removes: Option<FileId>,
    /// Files that gained or lost a name.
    subjects: Vec<FileId>,
    moves_folder: bool,
}

impl Pending {
    pub(crate) fn new(op: &Op, now: &State) -> Pending {
        let slots = op.slots();
        let mut subjects: Vec<FileId> = slots.iter().filter_map(|slot| now.at(slot)).collect();
        match op {
            Op::Create { file, .. } | Op::Symlink { file, .. } | Op::Link { file, .. } => {
                subjects.push(*file);
            }
            Op::Mkdir { dir, .. } => subjects.push(*dir),
            _ => {}
        }
        let removed = match op {
            Op::Rmdir { at } | Op::Rename { to: at, .. } => now.at(at),
            _ => None,
        };
        let moves = matches!(op, Op::Rename { .. } | Op::Exchange { .. });
        Pending {
            op: op.clone(),
            removes: removed.filter(|id| now.is_dir(*id)),
            moves_folder: moves && subjects.iter().any(|id| now.is_dir(*id)),
            subjects,
        }
    }

    /// Returns true for data or attributes of this file.
    pub(crate) fn is_of(&self, id: FileId) -> bool {
        matches!(&self.op, Op::Inode { file, .. } if *file == id)
    }

    pub(crate) fn is_data(&self) -> bool {
        matches!(&self.op, Op::Inode { change, .. } if change.is_data())
    }

    pub(crate) fn is_name(&self) -> bool {
        !matches!(&self.op, Op::Inode { .. })
    }

    pub(crate) fn is_data_of(&self, id: FileId) -> bool {
        match &self.op {
            Op::Inode { file, change, .. } => *file == id && change.is_data(),
            _ => false,
        }
    }

    /// Returns true for a name in this folder.
    pub(crate) fn is_in(&self, dir: FileId) -> bool {
        self.op.slots().iter().any(|slot| slot.dir == dir)
    }

    /// Returns true for a name of this file.
    pub(crate) fn names(&self, file: FileId) -> bool {
        self.subjects.contains(&file)
    }

    pub(crate) fn is_on(&self, dev: u64) -> bool {
        match &self.op {
            Op::Inode { file, .. } => file.dev == dev,
            op => op.slots().iter().any(|slot| slot.dir.dev == dev),
        }
    }
}

/// Returns, for each change, the earlier ones it directly depends on.
fn needs(all: &[Pending]) -> Vec<Vec<usize>> {
    let mut by_name: HashMap<(FileId, &OsStr), usize> = HashMap::new();
    let mut by_folder: HashMap<FileId, Vec<usize>> = HashMap::new();
    let mut made: HashMap<FileId, usize> = HashMap::new();
    let mut last_move = None;
    let mut needs = Vec::with_capacity(all.len());
    for (i, p) in all.iter().enumerate() {
        let mut mine = Vec::new();
        for Slot { dir, name, .. } in p.op.slots() {
            // The previous change depends on those before it.
            mine.extend(by_name.insert((*dir, name.as_os_str()), i));
            mine.extend(made.get(dir));
            by_folder.entry(*dir).or_default().push(i);
        }
        if let Some(inside) = p.removes.and_then(|dir| by_folder.get(&dir)) {
            mine.extend(inside);
        }
        if p.moves_folder {
            mine.extend(last_move.replace(i));
        }
        if let Op::Mkdir { dir, .. } = &p.op {
            made.insert(*dir, i);
        }
        mine.retain(|j| *j != i);
        needs.push(mine);
    }
    needs
}

/// Adds the dependencies of the chosen changes.
pub(crate) fn with_needed(all: &[Pending], keep: &mut [bool]) {
    for (i, needs) in needs(all).iter().enumerate().rev() {
        if keep[i] {
            needs.iter().for_each(|j| keep[*j] = true);
        }
    }
}

/// Removes changes that depend on one that is not chosen.
pub(crate) fn without_orphaned(all: &[Pending], keep: &mut [bool]) {
    for (i, needs) in needs(all).iter().enumerate() {
        keep[i] &= needs.iter().all(|j| keep[*j]);
    }
}

/// Pseudo-random numbers, the same for the same seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
