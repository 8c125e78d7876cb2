//! Comparison of two captures of a repository by what a user can tell apart. Git's own work, such as times in the index, is no change, and
//! neither is a tag of a checkpoint.

use super::bytes_of;
use crate::Error;
use safepoint_git::same_entries;
use safepoint_model::change;
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::files::FilesDocument;
use safepoint_model::git::{GitDocument, GitRefs, KeptBytes};
use safepoint_model::tree::{Node, Owners, Tree};
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectSource, RelPath, document};
use std::collections::HashSet;

/// Returns true if two parts hold the same of a repository, as far as a user can tell: HEAD, operation, refs without the tags of
/// checkpoints, and the entries of the index. What cannot be read is different.
pub(crate) fn same_repository(source: &dyn ObjectSource, old: &PartRecord, new: &PartRecord) -> bool {
    match (old.kind, new.kind) {
        (PartKind::Git, PartKind::Git) => same_state(source, old, new).unwrap_or(false),
        (PartKind::GitFolder, PartKind::GitFolder) => same_folder(source, old, new).unwrap_or(false),
        _ => false,
    }
}

fn same_state(source: &dyn ObjectSource, old: &PartRecord, new: &PartRecord) -> Result<bool, ObjectError> {
    let (old, new) = (GitDocument::load(source, old.document)?, GitDocument::load(source, new.document)?);
    let refs = |document: &GitDocument| -> Result<GitRefs, ObjectError> {
        let mut refs: GitRefs = document::load(source, document.refs)?;
        refs.retain(|(name, _)| !is_own_tag(name));
        Ok(refs)
    };
    let bytes = |kept: Option<KeptBytes>| kept.map(|kept| bytes_of(source, kept)).transpose();
    let same_index = match (bytes(old.index)?, bytes(new.index)?) {
        (None, None) => true,
        (Some(one), Some(other)) => one == other || same_entries(&one, &other, &new.object_format),
        _ => false,
    };
    Ok(same_index
        && (&old.object_format, &old.head, &old.commit) == (&new.object_format, &new.head, &new.commit)
        && (&old.operation, &old.moves) == (&new.operation, &new.moves)
        && refs(&old)? == refs(&new)?)
}

/// Objects, packed refs and the index are what the state of the repository tells: a tag of a checkpoint changes them, too.
fn same_folder(source: &dyn ObjectSource, old: &PartRecord, new: &PartRecord) -> Result<bool, ObjectError> {
    let tree = |part: &PartRecord| FilesDocument::load(source, part.document).map(|document| document.tree());
    let (Some(old), Some(new)) = (tree(old)?, tree(new)?) else { return Ok(false) };
    let deltas = change::deltas(source, old, new, Owners::Compared)?;
    let changed = change::changes(source, &deltas)?;
    Ok(changed.iter().all(|change| {
        let names: Vec<&[u8]> = change.path.names().collect();
        match names.as_slice() {
            [b".git", b"objects", ..] | [b".git", b"index" | b"packed-refs"] => true,
            [b".git", rest @ ..] => RelPath::new(rest.join(&b"/"[..])).is_ok_and(|name| is_own_tag(&name)),
            _ => false,
        }
    }))
}

/// Returns true if all of these chunks belong to the repository that was captured.
pub(crate) fn is_of_repository(
    source: &dyn ObjectSource,
    captured: &Checkpoint,
    mut chunks: HashSet<ObjectId>,
) -> Result<bool, Error> {
    let is_git = |part: &&PartRecord| matches!(part.kind, PartKind::Git | PartKind::GitFolder);
    for part in captured.parts.iter().filter(is_git) {
        let (mut contents, mut trees) = (Vec::new(), Vec::new());
        if part.kind == PartKind::Git {
            contents.extend(GitDocument::load(source, part.document)?.contents());
        } else {
            trees.extend(FilesDocument::load(source, part.document)?.tree());
        }
        while !chunks.is_empty()
            && let Some(tree) = trees.pop()
        {
            for entry in Tree::load(source, tree)?.entries() {
                match &entry.node {
                    Node::File(content) => contents.push(*content),
                    Node::Directory(tree) => trees.push(*tree),
                    Node::Symlink(_) => {}
                }
            }
        }
        for content in contents {
            for piece in content.chunks(source)? {
                chunks.remove(&piece.id);
            }
        }
    }
    Ok(chunks.is_empty())
}

/// Returns true for the tag of a checkpoint.
fn is_own_tag(name: &RelPath) -> bool {
    let tag = name.as_bytes().strip_prefix(b"refs/tags/checkpoint-");
    let id = tag.and_then(|id| std::str::from_utf8(id).ok()).map(str::parse::<CheckpointId>);
    id.is_some_and(|id| id.is_ok())
}
