//! Index: tracked entries, and a new index for a commit.

use crate::objects::Objects;
use crate::{GitError, GitId, Repository};
use gix_index::entry::{Flags, Mode, Stage};
use std::collections::{HashMap, HashSet};

/// Tracked entries of the index.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    files: HashSet<Vec<u8>>,
    folders: HashSet<Vec<u8>>,
    /// Submodules with their recorded commits.
    pub(crate) submodules: HashMap<Vec<u8>, GitId>,
}

impl Tracked {
    pub(crate) fn new(index: &gix_index::State) -> Self {
        let mut tracked = Self::default();
        for entry in index.entries() {
            let path: &[u8] = entry.path(index);
            for (slash, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                tracked.folders.insert(path[..slash].to_vec());
            }
            match entry.mode {
                Mode::COMMIT => drop(tracked.submodules.insert(path.to_vec(), GitId(entry.id))),
                _ => drop(tracked.files.insert(path.to_vec())),
            }
        }
        tracked
    }

    pub(crate) fn has_file(&self, path: &[u8]) -> bool {
        self.files.contains(path)
    }

    /// Returns true if an entry below this folder, or the folder as a submodule, is tracked.
    pub(crate) fn has_below(&self, path: &[u8]) -> bool {
        self.folders.contains(path) || self.submodules.contains_key(path)
    }
}

/// Flags of an entry that the user sets. The others are of git's own work.
const USER_FLAGS: Flags =
    Flags::STAGE_MASK.union(Flags::ASSUME_VALID).union(Flags::INTENT_TO_ADD).union(Flags::SKIP_WORKTREE);

/// Returns true if two indexes track the same: path, stage, mode and object of each entry. The facts of files that git caches to save time
/// do not count. What cannot be decoded, or refers to another file, is different.
pub fn same_entries(old: &[u8], new: &[u8], object_format: &str) -> bool {
    let hash = match object_format {
        "sha1" => gix_hash::Kind::Sha1,
        "sha256" => gix_hash::Kind::Sha256,
        _ => return false,
    };
    let read = |bytes: &[u8]| {
        let time = gix_index::State::new(hash).timestamp();
        let options = gix_index::decode::Options::default();
        let state = crate::guarded(|| gix_index::State::from_bytes(bytes, time, hash, options)).ok()?.0;
        state.link().is_none().then_some(state)
    };
    let (Some(old), Some(new)) = (read(old), read(new)) else { return false };
    let same = |(one, other): (&gix_index::Entry, &gix_index::Entry)| {
        (one.id, one.mode, one.flags & USER_FLAGS) == (other.id, other.mode, other.flags & USER_FLAGS)
            && one.path(&old) == other.path(&new)
    };
    old.entries().len() == new.entries().len() && old.entries().iter().zip(new.entries()).all(same)
}

impl Repository {
    /// Decodes the index; returns an empty one if it is missing.
    pub(crate) fn index(&self) -> Result<gix_index::State, GitError> {
        if self.own.file(b"index")?.is_none() {
            return Ok(gix_index::State::new(self.hash));
        }
        let path = self.own.at(b"index");
        let read = crate::guarded(|| {
            gix_index::File::at(&path, self.hash, false, gix_index::decode::Options::default())
                .map(|file| file.into_parts().0)
        });
        read.map_err(|what| GitError::damaged(&path, what))
    }

    /// Refuses a sparse checkout: it leaves out files that belong to the commit, so that a capture would be
    /// incomplete.
    pub(crate) fn refuse_sparse(&self, index: &gix_index::State) -> Result<(), GitError> {
        let skipped = |entry: &gix_index::Entry| entry.flags.contains(Flags::SKIP_WORKTREE);
        match index.is_sparse() || index.entries().iter().any(skipped) {
            true => Err(self.unsupported("it is a sparse checkout")),
            false => Ok(()),
        }
    }

    /// Returns the bytes of an index with exactly the entries of a commit. The recorded facts of unchanged
    /// files are copied, so that git need not read them again.
    pub(crate) fn index_of(&self, commit: GitId) -> Result<Vec<u8>, GitError> {
        let objects = Objects::open(self)?;
        let tree = objects.tree_of(commit)?;
        let present = self.index()?;
        self.refuse_sparse(&present)?;
        let made = crate::guarded(|| -> Result<Vec<u8>, String> {
            let mut index = match tree == gix_hash::ObjectId::empty_tree(self.hash) {
                true => gix_index::State::new(self.hash),
                false => gix_index::State::from_tree(&tree, objects.reader(), Default::default())
                    .map_err(|error| error.to_string())?,
            };
            for (entry, path) in index.entries_mut_with_paths() {
                let known = present.entry_by_path_and_stage(path, Stage::Unconflicted);
                if let Some(known) = known.filter(|known| known.id == entry.id && known.mode == entry.mode) {
                    entry.stat = known.stat;
                }
            }
            let mut bytes = Vec::new();
            let options = gix_index::write::Options {
                extensions: gix_index::write::Extensions::None,
                skip_hash: false,
            };
            gix_index::File::from_state(index, self.own.at(b"index"))
                .write_to(&mut bytes, options)
                .map_err(|error| error.to_string())?;
            Ok(bytes)
        });
        made.map_err(|what| self.damaged(what))
    }
}
