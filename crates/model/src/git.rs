//! Document of a part with the state of a git repository, and with the changes of a rollback to it.

use crate::content::{Content, Form};
use crate::{ObjectError, ObjectId, ObjectSource, RelPath, document};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Target of a ref: an object or another ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitTarget {
    /// Object, by its hexadecimal id.
    Id(String),
    /// Another ref, by its full name.
    Ref(RelPath),
}

/// All refs with their targets. A separate document, because it rarely changes.
pub type GitRefs = Vec<(RelPath, GitTarget)>;

/// Bytes stored like the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBytes {
    /// Length.
    pub size: u64,
    /// True if they are cut into pieces.
    pub pieces: bool,
    /// Chunk or list of pieces.
    pub id: ObjectId,
}

impl From<Content> for KeptBytes {
    fn from(content: Content) -> Self {
        Self { size: content.size, pieces: content.form == Form::Pieces, id: content.id }
    }
}

impl From<KeptBytes> for Content {
    fn from(kept: KeptBytes) -> Self {
        let form = if kept.pieces { Form::Pieces } else { Form::Whole };
        Self { size: kept.size, form, id: kept.id }
    }
}

/// Content of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDocument {
    /// Version of this document.
    pub format: u32,
    /// Hash algorithm of the repository: `sha1` or `sha256`.
    pub object_format: String,
    /// Target of HEAD.
    pub head: GitTarget,
    /// Commit of HEAD, or `None` before the first commit.
    pub commit: Option<String>,
    /// Document with all refs.
    pub refs: ObjectId,
    /// Index, byte for byte, or `None` if it was missing.
    pub index: Option<KeptBytes>,
    /// Operation in progress: `merge`, `rebase` and so on.
    pub operation: Option<String>,
    /// In a safety checkpoint, the changes of its rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<GitMove>,
}

/// Changes of a rollback to a repository, old and new: enough to undo them after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitMove {
    /// Target of HEAD before and after.
    pub head: (GitTarget, GitTarget),
    /// Branch whose commit changes, and its commits before and after.
    pub branch: Option<(RelPath, Option<String>, Option<String>)>,
    /// Index before and after.
    pub index: (Option<KeptBytes>, Option<KeptBytes>),
    /// True if the files were rolled back, too.
    pub files: bool,
}

impl GitDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Loads the document.
    ///
    /// # Errors
    /// When it is missing, damaged, or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        match document.format {
            Self::FORMAT => Ok(document),
            other => Err(ObjectError::Damaged { id, what: format!("its format {other} is unsupported") }),
        }
    }

    /// Returns the branch that HEAD was on.
    pub fn branch(&self) -> Option<&RelPath> {
        match &self.head {
            GitTarget::Ref(name) => Some(name),
            GitTarget::Id(_) => None,
        }
    }

    /// Returns the required contents besides the document with the refs.
    pub fn contents(&self) -> impl Iterator<Item = Content> {
        let moved = self.moves.as_ref().map(|moves| [moves.index.0, moves.index.1]);
        let all = [self.index].into_iter().chain(moved.into_iter().flatten()).flatten();
        let each: BTreeMap<ObjectId, KeptBytes> = all.map(|kept| (kept.id, kept)).collect();
        each.into_values().map(Content::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;
    use crate::object::tests::Memory;

    fn sample() -> GitDocument {
        let name = RelPath::new("refs/heads/main").unwrap();
        let kept = |bytes: &[u8]| KeptBytes::from(Content::whole(bytes));
        GitDocument {
            format: GitDocument::FORMAT,
            object_format: "sha1".to_owned(),
            head: GitTarget::Ref(name.clone()),
            commit: Some("ab".repeat(20)),
            refs: ObjectId::of(ObjectKind::Document, b"[]"),
            index: Some(kept(b"old")),
            operation: None,
            moves: Some(GitMove {
                head: (GitTarget::Ref(name.clone()), GitTarget::Ref(name.clone())),
                branch: Some((name, Some("ab".repeat(20)), None)),
                index: (Some(kept(b"old")), Some(kept(b"new"))),
                files: true,
            }),
        }
    }

    #[test]
    fn a_document_reads_back_and_names_what_it_needs_once() {
        let memory = Memory::default();
        let document = sample();
        let id = document::store(&memory, &document).unwrap();
        assert_eq!(GitDocument::load(&memory, id).unwrap(), document);
        let mut needed: Vec<u64> = document.contents().map(|content| content.size).collect();
        needed.sort_unstable();
        assert_eq!(needed, [3, 3]);
        assert_eq!(document.branch().unwrap().to_string(), "refs/heads/main");
        let detached = GitDocument { head: GitTarget::Id("cd".repeat(20)), moves: None, ..document };
        assert!(detached.branch().is_none() && detached.contents().count() == 1);
    }

    #[test]
    fn a_newer_document_is_not_guessed_at() {
        let memory = Memory::default();
        let id = document::store(&memory, &GitDocument { format: 2, ..sample() }).unwrap();
        assert!(matches!(GitDocument::load(&memory, id), Err(ObjectError::Damaged { .. })));
    }
}
