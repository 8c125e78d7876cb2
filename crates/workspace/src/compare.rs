//! Whether what stands on disk is what a tree says: by content, not by stamps.

use crate::linux::{self, Facts};
use crate::sparse;
use rustix::fd::OwnedFd;
use safepoint_model::content::{Content, Stretch};
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use thiserror::Error;

/// Why a comparison could not be made.
#[derive(Debug, Error)]
pub(crate) enum CompareError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Owner bits that Safepoint itself adds to a directory for as long as it works in it.
const WORK_BITS: u16 = 0o700;

/// A directory entry on disk.
struct Found<'a> {
    dir: &'a OwnedFd,
    name: &'a [u8],
    facts: Facts,
}

/// Whether the entry at this name is the expected one: type, content, target, mode and attributes, as far as they can be kept there; everything below, for a
/// directory, and nothing else. A directory may carry more rights for its owner: a rollback lends itself these.
pub(crate) fn matches(
    source: &dyn ObjectSource,
    dir: &OwnedFd,
    name: &[u8],
    expected: &Entry,
    owners: Owners,
) -> Result<bool, CompareError> {
    let Some(facts) = linux::facts_if_any(dir, name)? else { return Ok(false) };
    let found = Found { dir, name, facts };
    match &expected.node {
        Node::File(content) => file_matches(source, &found, content, &expected.meta, owners),
        Node::Symlink(target) => Ok(found.facts.file_type.is_symlink()
            && owner_matches(&found.facts, &expected.meta, owners)
            && linux::read_link(dir, name)? == *target),
        Node::Directory(tree) => directory_matches(source, &found, *tree, &expected.meta, owners),
    }
}

fn owner_matches(facts: &Facts, meta: &Meta, owners: Owners) -> bool {
    owners == Owners::Ignored || (facts.uid, facts.gid) == (meta.uid, meta.gid)
}

fn file_matches(
    source: &dyn ObjectSource,
    found: &Found<'_>,
    content: &Content,
    meta: &Meta,
    owners: Owners,
) -> Result<bool, CompareError> {
    let Found { dir, name, facts } = found;
    if !facts.file_type.is_file() || facts.size != content.size || !could_match(facts, meta, owners, 0) {
        return Ok(false);
    }
    let fd = linux::open_file(dir, name)?;
    Ok(meta_matches(&fd, facts, meta, owners, 0)? && content_matches(source, fd, content)?)
}

/// Whether something with these facts may have this mode and owner. To know it may take opening it, which may be forbidden.
fn could_match(facts: &Facts, meta: &Meta, owners: Owners, lent: u16) -> bool {
    owner_matches(facts, meta, owners) && (meta.has_acl() || facts.mode | lent == meta.mode | lent)
}

/// Whether something open has this mode, these attributes and, where they count, this owner: all of it, or what of it can be kept there.
fn meta_matches(
    fd: &OwnedFd,
    facts: &Facts,
    expected: &Meta,
    owners: Owners,
    lent: u16,
) -> Result<bool, CompareError> {
    let plain = |meta: &Meta| {
        let mut meta = meta.clone();
        meta.add_owner_bits(lent);
        meta
    };
    let now = plain(&linux::read_meta(fd, facts)?.meta);
    let has = |meta: &Meta| now.same_but_times(&plain(meta), owners);
    Ok(has(expected) || has(&linux::attainable(fd, expected)))
}

/// Whether an open file holds this content to the last byte. Of holes in both nothing is read.
pub(crate) fn content_matches(
    source: &dyn ObjectSource,
    fd: OwnedFd,
    content: &Content,
) -> Result<bool, CompareError> {
    let file = File::from(fd);
    let (mut at, mut buffer) = (0, Vec::new());
    for stretch in content.stretches(source)? {
        match stretch {
            Stretch::Data(piece) => {
                buffer.resize(usize::try_from(piece.size).map_err(io::Error::other)?, 0);
                match file.read_exact_at(&mut buffer, at) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                    other => other?,
                }
                if ObjectId::of(ObjectKind::Chunk, &buffer) != piece.id {
                    return Ok(false);
                }
            }
            Stretch::Hole(size) => {
                if !sparse::is_zero(&file, at..at.saturating_add(size))? {
                    return Ok(false);
                }
            }
        }
        at += stretch.size();
    }
    Ok(linux::facts_of(&file)?.size == at)
}

fn directory_matches(
    source: &dyn ObjectSource,
    found: &Found<'_>,
    tree: ObjectId,
    meta: &Meta,
    owners: Owners,
) -> Result<bool, CompareError> {
    let Found { dir, name, facts } = found;
    if !facts.file_type.is_dir() || !could_match(facts, meta, owners, WORK_BITS) {
        return Ok(false);
    }
    let fd = linux::open_dir(dir, name)?;
    let tree = Tree::load(source, tree)?;
    let listed = linux::list(&fd)?;
    if !meta_matches(&fd, facts, meta, owners, WORK_BITS)?
        || !listed.iter().map(|entry| &entry.name).eq(tree.entries().iter().map(|entry| &entry.name))
    {
        return Ok(false);
    }
    for entry in tree.entries() {
        if !matches(source, &fd, &entry.name, entry, owners)? {
            return Ok(false);
        }
    }
    Ok(true)
}
