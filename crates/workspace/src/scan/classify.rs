//! Classifies one name of a directory by its facts, the rules and the cache.

use super::{Folder, Here, Item, Known, LARGE_FILE_BYTES, LargeFiles, Walk, What, file, join};
use crate::cache::CachedEntry;
use crate::error::WorkspaceError;
use crate::linux::{self, Facts};
use crate::root::OWN_FOLDER;
use crate::sqlite;
use safepoint_model::RelPath;
use safepoint_model::content::Content;
use safepoint_model::coverage::Why;
use safepoint_model::tree::{Entry, Meta, Node};
use std::io;

/// Folder of a git repository.
const GIT_FOLDER: &[u8] = b".git";

impl Walk<'_> {
    /// Checks one name and decides the work it needs.
    pub(super) fn classify<'c>(
        &self,
        here: &Here<'_>,
        name: &[u8],
        cached: Option<CachedEntry<'c>>,
    ) -> Result<Item<'c>, WorkspaceError> {
        let facts = match linux::facts_if_any(&here.fd, name) {
            Ok(Some(facts)) => facts,
            Ok(None) => return Ok(Item::Gone),
            Err(_) => return Ok(Item::left_out(name, Why::Unreadable)),
        };
        let kind = facts.file_type;
        let is_git = kind.is_dir() && name == GIT_FOLDER;
        match (self.what, here.depth) {
            (What::Git, 0) if !is_git => return Ok(Item::Gone),
            (What::Git, 0) => {}
            _ if is_git => return Ok(Item::left_out(name, Why::Git)),
            _ => {}
        }
        let is_own = name == OWN_FOLDER.as_bytes()
            || (!self.own.is_empty() && self.own.contains(&join(&here.path, name)?));
        if kind.is_dir() && is_own {
            return Ok(Item::left_out(name, Why::OwnFolder));
        }
        if self.layer.is_some() && is_whiteout(here, name, &facts) {
            return Ok(Item::left_out(name, Why::Whiteout));
        }
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            return Ok(Item::left_out(name, Why::SpecialFile));
        }
        if facts.place != self.place {
            return Ok(Item::left_out(name, Why::MountPoint));
        }
        let ruled_out = here.only_kept
            || (!here.rules.is_empty() && here.rules.leave_out(&join(&here.path, name)?, kind.is_dir()));
        if ruled_out
            && here.keep.entry(self.source, name)?.is_none()
            && !self.covers(&join(&here.path, name)?)
        {
            return Ok(Item::left_out(name, Why::Ignored));
        }
        if kind.is_dir() {
            let block = cached.and_then(|cached| cached.block());
            let folder = Folder { name: name.to_vec(), facts, cached, block, only_kept: ruled_out };
            return Ok(Item::Directory(Box::new(folder)));
        }
        match cached.filter(|cached| cached.is_hit(&facts)) {
            Some(cached) => {
                let file_bytes = if kind.is_file() { facts.size } else { 0 };
                let mark = self.clock.mark(&facts, true);
                Ok(Item::Known(Known { cached, is_file: kind.is_file(), file_bytes, mark }))
            }
            None if kind.is_symlink() => Ok(self.link(here, name.to_vec(), facts)),
            None => self.unknown_file(here, name.to_vec(), facts),
        }
    }

    /// Classifies a file without a cache hit.
    fn unknown_file<'c>(
        &self,
        here: &Here<'_>,
        name: Vec<u8>,
        facts: Facts,
    ) -> Result<Item<'c>, WorkspaceError> {
        let is_small = facts.disk_bytes < LARGE_FILE_BYTES && !matches!(self.large, LargeFiles::Only(_));
        if is_small || matches!(self.large, LargeFiles::Read) {
            return Ok(Item::File { name, facts });
        }
        // A database is captured with its sidecar files.
        let beside = sqlite::SIDECARS.iter().any(|ending| name.ends_with(ending));
        if beside || sqlite::is_database_at(&here.fd, &name) {
            return Ok(Item::File { name, facts });
        }
        match self.large {
            LargeFiles::Read => Ok(Item::File { name, facts }),
            LargeFiles::Within(chosen) | LargeFiles::Only(chosen) => {
                let path = join(&here.path, &name)?;
                match chosen.iter().any(|chosen| path.is_within(chosen)) {
                    true => Ok(Item::File { name, facts }),
                    false => Ok(Item::LeftOut(name, Why::NotChosen)),
                }
            }
            LargeFiles::InDoubt => match here.keep.entry(self.source, &name)?.map(|entry| &entry.node) {
                Some(Node::File(content)) if content.size == facts.size => Ok(Item::File { name, facts }),
                _ => Ok(self.unread_file(here, name, facts)),
            },
        }
    }

    /// Returns an item with the size of a file, without reading it.
    fn unread_file<'c>(&self, here: &Here<'_>, name: Vec<u8>, facts: Facts) -> Item<'c> {
        let look = || {
            let fd = linux::open_file(&here.fd, &name)?;
            let facts = linux::facts_of(&fd)?;
            Ok::<_, io::Error>((facts, linux::read_meta(&fd, &facts)?.meta))
        };
        match look() {
            Ok((facts, meta)) if facts.file_type.is_file() => {
                let node = Node::File(Content::unread(facts.size));
                Item::held(Entry { name, meta, node }, facts, false, (None, false))
            }
            // Reading it reports the error.
            _ => Item::File { name, facts },
        }
    }

    /// Returns true if the rollback to undo changed this path or one below it.
    pub(super) fn covers(&self, path: &RelPath) -> bool {
        let from = |bytes: &[u8]| self.covered.partition_point(|covered| covered.as_bytes() < bytes);
        let is_within = |at: usize| self.covered.get(at).is_some_and(|covered| covered.is_within(path));
        // Other names may sort between a folder and its entries: `a`, `a-b`, `a/b`.
        !self.covered.is_empty()
            && (is_within(from(path.as_bytes())) || is_within(from(&[path.as_bytes(), b"/"].concat())))
    }

    fn link<'c>(&self, here: &Here<'_>, name: Vec<u8>, facts: Facts) -> Item<'c> {
        let started = file::now_ns();
        match linux::read_link(&here.fd, &name) {
            Ok(target) => {
                let meta = Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, ..Meta::default() };
                let entry = Entry { name, meta, node: Node::Symlink(target) };
                Item::held(entry, facts, file::is_old_enough(&facts, started), (None, false))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Item::Gone,
            Err(_) => Item::LeftOut(name, Why::Unreadable),
        }
    }
}

/// Returns true if an entry of a layer stands for a deleted name.
fn is_whiteout(here: &Here<'_>, name: &[u8], facts: &Facts) -> bool {
    facts.is_whiteout
        || facts.file_type.is_file()
            && facts.size == 0
            && linux::open_path(&here.fd, name).is_ok_and(|file| linux::is_whiteout_file(&file))
}

/// Finds renamed directories: a new name with the inode of a name that is gone keeps its cached content if
/// its facts match. The directory itself counts as new.
pub(super) fn find_renamed(items: &mut [Item<'_>], mut gone: Vec<CachedEntry<'_>>) {
    if gone.is_empty() {
        return;
    }
    gone.sort_by_key(CachedEntry::inode);
    for item in items {
        if let Item::Directory(folder) = item
            && folder.cached.is_none()
            && let Ok(at) = gone.binary_search_by_key(&folder.facts.ino, CachedEntry::inode)
        {
            folder.block = gone[at].block();
        }
    }
}

impl Item<'_> {
    fn left_out(name: &[u8], why: Why) -> Self {
        Item::LeftOut(name.to_vec(), why)
    }
}
