//! Whether what stands on disk is what a tree says: by content, not by stamps.

use crate::linux::{self, Facts};
use rustix::fd::OwnedFd;
use safepoint_model::content::Content;
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource};
use std::fs::File;
use std::io::{self, Read};
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

/// Whether the entry at this name is the expected one: type, content, target, mode and attributes; everything below, for a
/// directory, and nothing else. A directory may carry more rights for its owner: a rollback lends itself these.
pub(crate) fn matches(
    source: &dyn ObjectSource,
    dir: &OwnedFd,
    name: &[u8],
    expected: &Entry,
    owners: Owners,
) -> Result<bool, CompareError> {
    let Some(facts) = linux::facts_if_any(dir, name)? else { return Ok(false) };
    match &expected.node {
        Node::File(content) => file_matches(source, dir, name, &facts, content, &expected.meta, owners),
        Node::Symlink(target) => Ok(facts.file_type.is_symlink()
            && owner_matches(&facts, &expected.meta, owners)
            && linux::read_link(dir, name)? == *target),
        Node::Directory(tree) => directory_matches(source, dir, name, &facts, *tree, &expected.meta, owners),
    }
}

fn owner_matches(facts: &Facts, meta: &Meta, owners: Owners) -> bool {
    owners == Owners::Ignored || (facts.uid, facts.gid) == (meta.uid, meta.gid)
}

fn file_matches(
    source: &dyn ObjectSource,
    dir: &OwnedFd,
    name: &[u8],
    facts: &Facts,
    content: &Content,
    meta: &Meta,
    owners: Owners,
) -> Result<bool, CompareError> {
    if !facts.file_type.is_file()
        || facts.size != content.size
        || facts.mode != meta.mode
        || !owner_matches(facts, meta, owners)
    {
        return Ok(false);
    }
    let fd = linux::open_file(dir, name)?;
    Ok(linux::read_xattrs(&fd)? == meta.xattrs && content_matches(source, fd, content)?)
}

/// Whether an open file holds this content to the last byte.
pub(crate) fn content_matches(
    source: &dyn ObjectSource,
    fd: OwnedFd,
    content: &Content,
) -> Result<bool, CompareError> {
    let mut file = File::from(fd);
    let mut buffer = Vec::new();
    for piece in content.pieces(source)? {
        buffer.resize(usize::try_from(piece.size).map_err(io::Error::other)?, 0);
        match file.read_exact(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        if ObjectId::of(ObjectKind::Chunk, &buffer) != piece.id {
            return Ok(false);
        }
    }
    Ok(file.read(&mut [0u8; 1])? == 0)
}

fn directory_matches(
    source: &dyn ObjectSource,
    dir: &OwnedFd,
    name: &[u8],
    facts: &Facts,
    tree: ObjectId,
    meta: &Meta,
    owners: Owners,
) -> Result<bool, CompareError> {
    if !facts.file_type.is_dir()
        || facts.mode | WORK_BITS != meta.mode | WORK_BITS
        || !owner_matches(facts, meta, owners)
    {
        return Ok(false);
    }
    let fd = linux::open_dir(dir, name)?;
    let tree = Tree::load(source, tree)?;
    let listed = linux::list(&fd)?;
    if linux::read_xattrs(&fd)? != meta.xattrs
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
