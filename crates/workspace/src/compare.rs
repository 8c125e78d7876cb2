//! Compares entries on disk with a tree by content, not by timestamps.

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

/// Reason that a comparison failed.
#[derive(Debug, Error)]
pub(crate) enum CompareError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Owner bits that Safepoint adds to a directory while it works in it.
const WORK_BITS: u16 = 0o700;

/// Directory entry on disk.
struct Found<'a> {
    dir: &'a OwnedFd,
    name: &'a [u8],
    facts: Facts,
}

/// Returns true if the entry equals the expected one: type, content, target, mode and attributes, as far as
/// the file system keeps them. A directory must match recursively, without extra entries. It may have more
/// owner rights, which a rollback adds temporarily.
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

/// Returns true if mode and owner may match. An exact answer requires opening the entry, which may be
/// forbidden.
fn could_match(facts: &Facts, meta: &Meta, owners: Owners, lent: u16) -> bool {
    owner_matches(facts, meta, owners) && (meta.has_acl() || facts.mode | lent == meta.mode | lent)
}

/// Returns true if an open entry has this mode, these attributes and, if compared, this owner, as far as the
/// file system keeps them.
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

/// Returns true if an open file has exactly this content. Holes present in both are not read.
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
