//! Assembles a directory from the results of its entries: its tree and its block in the next stat cache.

use super::again::Mark;
use super::{Done, Found, Here, Known, Outcome, Walk, join, told_odd, unreadable};
use crate::cache::{Block, CachedDir, Place};
use crate::error::WorkspaceError;
use safepoint_model::coverage::Skipped;
use safepoint_model::tree::{Entry, Node, Tree};
use safepoint_model::{ObjectId, ObjectKind, RelPath};
use std::io;

/// Entry of a directory under assembly.
enum Member<'a> {
    Known(Known<'a>),
    Done(Box<Done>, Option<Place>),
}

impl Member<'_> {
    fn name(&self) -> &[u8] {
        match self {
            Member::Known(known) => known.cached.name,
            Member::Done(done, _) => &done.entry.name,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Member::Known(known) => known.file_bytes,
            Member::Done(done, _) => size_of(&done.entry),
        }
    }

    fn mark(&self, walk: &Walk<'_>) -> Mark {
        match self {
            Member::Known(known) => known.mark,
            Member::Done(done, _) => walk.clock.mark(&done.facts, done.trusted),
        }
    }

    /// Returns the object stored for it in this capture, if any.
    fn put(&self) -> Option<ObjectId> {
        let Member::Done(done, _) = self else { return None };
        match done.entry.node {
            Node::File(content) => Some(content.id),
            Node::Directory(tree) => Some(tree),
            _ => None,
        }
    }

    fn into_entry(self) -> Option<Entry> {
        match self {
            Member::Known(known) => known.cached.entry(),
            Member::Done(done, _) => Some(done.entry),
        }
    }
}

impl Walk<'_> {
    /// Builds the directory's tree from the results of its entries.
    pub(super) fn collect(
        &self,
        here: &Here<'_>,
        outcomes: Vec<Outcome<'_>>,
        last: Option<&CachedDir>,
        found: &mut Found,
    ) -> Result<ObjectId, WorkspaceError> {
        let mut members = Vec::with_capacity(outcomes.len());
        let mut several = false;
        for outcome in outcomes {
            several |= matches!(outcome, Outcome::Several(_));
            add(&here.path, outcome, &mut members, found)?;
        }
        if several {
            members.sort_by(|a, b| a.name().cmp(b.name()));
        }
        let read_bytes = members.iter().map(Member::size).sum();
        if !here.is_counted {
            self.progress.advance(members.len() as u64, 0);
        }
        found.count = members.len() as u64;
        found.bytes = read_bytes;
        found.marks = members.iter().map(|member| member.mark(self)).collect();
        // No fresh entry and an equal count mean the same entries.
        found.fresh |= last.is_none_or(|last| last.count() != members.len() as u64);
        if let Some(last) = last.filter(|_| !found.fresh) {
            let place = match self.next {
                Some(next) if !next.continues => {
                    self.block_of(&members).and_then(|it| next.append(it, last.tree()))
                }
                _ => Some(last.place),
            };
            found.keep_block(place);
            return Ok(last.tree());
        }
        if let Some(last) = last {
            self.recall(last);
        }
        let block = self.block_of(&members);
        let put: Vec<ObjectId> = members.iter().filter_map(Member::put).collect();
        let entries = members.into_iter().map(Member::into_entry).collect::<Option<Vec<Entry>>>();
        let damaged = "its block in the stat cache cannot be read";
        let entries = entries.ok_or_else(|| unreadable(&here.path, io::Error::other(damaged)))?;
        let tree = Tree::new(entries).map_err(|error| unreadable(&here.path, io::Error::other(error)))?;
        let tree = self.sink.put_tree(&tree.encode(), &put)?;
        found.keep_block(block.and_then(|block| self.next?.append(block, tree)));
        Ok(tree)
    }

    /// Hints the sink that the old tree of a changed directory will soon be read, to count changes.
    fn recall(&self, last: &CachedDir) {
        let entries = last.entries().map(|entry| entry.entry()).collect::<Option<Vec<Entry>>>();
        if let Some(Ok(tree)) = entries.map(Tree::new) {
            self.sink.recall(ObjectKind::Tree, last.tree(), &tree.encode());
        }
    }

    /// Builds the directory's block for the next cache.
    fn block_of(&self, members: &[Member<'_>]) -> Option<Block> {
        self.next?;
        let mut block = Block::new(members.len());
        for member in members {
            match member {
                Member::Known(known) => block.copy(&known.cached),
                Member::Done(done, below) => block.note(&done.entry, &done.facts, done.trusted, *below),
            }
        }
        Some(block)
    }
}

/// Adds the result of one name, or of several names that belong together.
fn add<'c>(
    above: &RelPath,
    outcome: Outcome<'c>,
    members: &mut Vec<Member<'c>>,
    found: &mut Found,
) -> Result<(), WorkspaceError> {
    match outcome {
        Outcome::Gone => {}
        Outcome::LeftOut(name, why) => found.notes.skipped.push(Skipped { path: join(above, &name)?, why }),
        Outcome::Known(known) => members.push(Member::Known(known)),
        Outcome::Done(done) => members.push(take(above, done, found)?),
        Outcome::Told(warning) => found.notes.warnings.push(warning),
        Outcome::Several(outcomes) => {
            for outcome in outcomes {
                add(above, outcome, members, found)?;
            }
        }
    }
    Ok(())
}

/// Adds a finished item to its directory.
fn take<'c>(above: &RelPath, mut done: Box<Done>, found: &mut Found) -> Result<Member<'c>, WorkspaceError> {
    // The warning is repeated at each capture, so the entry is read each time.
    done.trusted &= !done.odd;
    if done.odd {
        found.notes.warnings.push(told_odd(&join(above, &done.entry.name)?));
    }
    found.fresh |= done.fresh;
    if done.unsettled {
        found.notes.unsettled.push(join(above, &done.entry.name)?);
    }
    let block = done.below.take().and_then(|below| {
        found.block_bytes += below.block_bytes;
        let block = below.block;
        found.below.push(below);
        block
    });
    Ok(Member::Done(done, block))
}

fn size_of(entry: &Entry) -> u64 {
    match entry.node {
        Node::File(content) => content.size,
        _ => 0,
    }
}
