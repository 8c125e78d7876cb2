//! Walk: from an open directory to the capture of it and everything below.

use super::again::{Seen, Stamp};
use super::classify::find_renamed;
use super::file::{self, FileRead};
use super::ruling::{Above, Keep};
use super::{
    DEPTH_MAX, Done, Folder, Found, Here, Item, Outcome, Walk, What, database, is_out_of_handles, join,
    unreadable,
};
use crate::cache::{CachedDir, CachedEntry};
use crate::error::WorkspaceError;
use crate::homes;
use crate::linux::{self, Attributes, Facts, Names};
use crate::sparse;
use rayon::prelude::*;
use rustix::fd::OwnedFd;
use safepoint_model::coverage::Why;
use safepoint_model::tree::{Entry, Node};
use std::io;
use std::sync::atomic::Ordering;

/// Open and listed directory.
pub(super) struct Opened {
    fd: OwnedFd,
    pub(super) facts: Facts,
    /// Time before the facts.
    pub(super) looked_at_ns: i64,
    pub(super) names: Names,
}

impl Walk<'_> {
    /// Walks one directory. `stamp` is from before the listing; the inner error is the reason to leave the
    /// directory out.
    pub(super) fn directory(
        &self,
        mut here: Here<'_>,
        names: &Names,
        stamp: Stamp,
    ) -> Result<Result<Seen, Why>, WorkspaceError> {
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        // Regardless of content: a rollback here must not remove data acknowledged in that home.
        if here.depth > 0 && self.what == What::Files && homes::is_home(&here.fd, names) {
            return Ok(Err(Why::OtherHome));
        }
        let mut found = Found::default();
        let ruling = match self.rule(&mut here, names, &mut found)? {
            Ok(ruling) => ruling,
            Err(why) => return Ok(Err(why)),
        };
        let last = here.cached.take();
        let mut cached = last.as_ref().map(CachedDir::entries);
        let mut items = Vec::with_capacity(names.len());
        let mut ahead: Option<CachedEntry<'_>> = None;
        let mut gone = Vec::new();
        for name in names.iter() {
            // Both lists are sorted, so one pass is enough.
            while ahead.as_ref().is_none_or(|ahead| ahead.name < name) {
                gone.extend(ahead.take().filter(CachedEntry::is_directory));
                match cached.as_mut().and_then(Iterator::next) {
                    Some(next) => ahead = Some(next),
                    None => break,
                }
            }
            let matching = ahead.take_if(|ahead| ahead.name == name);
            items.push(self.classify(&here, name, matching)?);
        }
        gone.extend(ahead.into_iter().chain(cached.into_iter().flatten()).filter(CachedEntry::is_directory));
        find_renamed(&mut items, gone);
        let beside = database::beside_others(names);
        if !beside.is_empty() {
            self.gather(&here, &mut items, &beside)?;
        }
        self.expect(&items);
        let outcomes = self.work(&here, items)?;
        let tree = self.collect(&here, outcomes, last.as_ref(), &mut found)?;
        Ok(Ok(Seen::new(tree, stamp, ruling, found)))
    }

    /// Reports the bytes of the files to read, without holes.
    fn expect(&self, items: &[Item<'_>]) {
        let bytes = |item: &Item<'_>| match item {
            Item::File { facts, .. } if sparse::is_sparse(facts) => facts.disk_bytes,
            Item::File { facts, .. } => facts.size,
            _ => 0,
        };
        let total = items.iter().map(bytes).sum();
        if total > 0 {
            self.progress.expect(total);
        }
    }

    /// Finishes the items, in parallel if there are several.
    pub(super) fn work<'c>(
        &self,
        here: &Here<'_>,
        items: Vec<Item<'c>>,
    ) -> Result<Vec<Outcome<'c>>, WorkspaceError> {
        let busy =
            |item: &&Item<'_>| matches!(item, Item::File { .. } | Item::Directory(_) | Item::Family(_));
        if items.iter().filter(busy).count() > 1 {
            items.into_par_iter().map(|item| self.finish(here, item)).collect()
        } else {
            items.into_iter().map(|item| self.finish(here, item)).collect()
        }
    }

    pub(super) fn finish<'c>(&self, here: &Here<'_>, item: Item<'c>) -> Result<Outcome<'c>, WorkspaceError> {
        match item {
            Item::Gone => Ok(Outcome::Gone),
            Item::LeftOut(name, why) => Ok(Outcome::LeftOut(name, why)),
            Item::Known(known) => Ok(Outcome::Known(known)),
            Item::File { name, .. } => self.file(here, name),
            Item::Family(family) => self.family(here, *family),
            Item::Held(done) => Ok(Outcome::Done(done)),
            Item::Directory(folder) => self.subdirectory(here, *folder),
        }
    }

    fn file<'c>(&self, here: &Here<'_>, name: Vec<u8>) -> Result<Outcome<'c>, WorkspaceError> {
        match file::read(self.sink, &here.fd, &name)? {
            FileRead::Gone => Ok(Outcome::Gone),
            FileRead::Unreadable => Ok(Outcome::LeftOut(name, Why::Unreadable)),
            FileRead::Database => self.database(here, &name),
            // It was replaced during the check: check the new entry once.
            FileRead::AnotherType => match self.classify(here, &name, None)? {
                Item::File { .. } => Ok(Outcome::LeftOut(name, Why::Unreadable)),
                item => self.finish(here, item),
            },
            FileRead::Read { content, meta, facts, trusted, settled, unproven, odd } => {
                self.unproven.fetch_add(u64::from(unproven), Ordering::Relaxed);
                let entry = Entry { name, meta, node: Node::File(content) };
                Ok(Outcome::Done(Box::new(Done {
                    entry,
                    facts,
                    trusted,
                    unsettled: !settled,
                    below: None,
                    fresh: true,
                    odd,
                })))
            }
        }
    }

    /// Opens and lists a directory. The facts are from before the listing and belong to the open directory:
    /// another one may have taken the name since it was classified.
    ///
    /// The listing contains the inode, which saves a `statx` per directory. Equal inodes suffice: either it
    /// is the same directory, or the classified one is deleted, and no later check confuses the two.
    pub(super) fn open_listed(
        &self,
        here: &Here<'_>,
        folder: &Folder<'_>,
        started_ns: i64,
    ) -> io::Result<Opened> {
        if self.lists_own_inode.load(Ordering::Relaxed) {
            let fd = linux::open_dir(&here.fd, &folder.name)?;
            let names = linux::names(&fd)?;
            if names.own_inode == Some(folder.facts.ino) {
                return Ok(Opened { fd, facts: folder.facts, looked_at_ns: here.started_ns, names });
            }
            // Another directory, or a file system with other inodes in listings.
            self.lists_own_inode.store(false, Ordering::Relaxed);
        }
        let fd = linux::open_dir(&here.fd, &folder.name)?;
        let facts = linux::facts_of(&fd)?;
        let names = linux::names(&fd)?;
        Ok(Opened { fd, facts, looked_at_ns: started_ns, names })
    }

    fn subdirectory<'c>(&self, here: &Here<'_>, folder: Folder<'c>) -> Result<Outcome<'c>, WorkspaceError> {
        if here.depth >= DEPTH_MAX {
            return Ok(Outcome::LeftOut(folder.name, Why::TooDeep));
        }
        let started_ns = file::now_ns();
        let Opened { fd, facts, looked_at_ns, names } = match self.open_listed(here, &folder, started_ns) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Outcome::Gone),
            Err(error) if is_out_of_handles(&error) => {
                return Err(unreadable(&join(&here.path, &folder.name)?, error));
            }
            Err(_) => return Ok(Outcome::LeftOut(folder.name, Why::Unreadable)),
        };
        let Folder { name, cached, block, only_kept, .. } = folder;
        let known = cached.filter(|cached| cached.is_hit(&facts)).and_then(|cached| cached.entry());
        let fresh_meta = known.is_none();
        let Attributes { meta, odd } = match known {
            Some(entry) => Attributes { meta: entry.meta, odd: false },
            None => match linux::read_meta(&fd, &facts) {
                Ok(read) => read,
                Err(_) => return Ok(Outcome::LeftOut(name, Why::Unreadable)),
            },
        };
        let below = Here {
            fd,
            path: join(&here.path, &name)?,
            depth: here.depth + 1,
            rules: here.rules.clone(),
            keep: Keep::new(Above::Below(&here.keep, &name)),
            below: Keep::new(Above::Below(&here.below, &name)),
            only_kept,
            cached: block.and_then(|block| self.cache?.block(block)),
            started_ns,
            is_counted: false,
        };
        match self.directory(below, &names, Stamp::new(&self.clock, &facts, looked_at_ns))? {
            Err(why) => Ok(Outcome::LeftOut(name, why)),
            Ok(mut below) => {
                below.name = name.as_slice().into();
                let entry = Entry { name, meta, node: Node::Directory(below.tree) };
                let trusted = file::is_old_enough(&facts, looked_at_ns);
                let fresh = fresh_meta || below.fresh;
                Ok(Outcome::Done(Box::new(Done {
                    entry,
                    facts,
                    trusted,
                    unsettled: false,
                    below: Some(below),
                    fresh,
                    odd,
                })))
            }
        }
    }
}
