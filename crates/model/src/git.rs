//! The document of a part that notes the state of a git repository, and what a rollback moved in it.

use crate::content::{Content, Form};
use crate::{ObjectError, ObjectId, ObjectSource, RelPath, document};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a ref names: an object, or another ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitTarget {
    /// An object, by its name in hexadecimal digits.
    Id(String),
    /// Another ref, by its full name.
    Ref(RelPath),
}

/// Every ref with what it names. A document of its own, because it seldom changes.
pub type GitRefs = Vec<(RelPath, GitTarget)>;

/// Bytes that are kept as the content of a file would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBytes {
    /// How many.
    pub size: u64,
    /// Whether they are cut into pieces.
    pub pieces: bool,
    /// The chunk or the list of pieces.
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

/// What stands in the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDocument {
    /// Version of this document.
    pub format: u32,
    /// How objects are named there: `sha1` or `sha256`.
    pub object_format: String,
    /// What HEAD names.
    pub head: GitTarget,
    /// The commit that HEAD is at; nothing before the first one.
    pub commit: Option<String>,
    /// The document with all refs.
    pub refs: ObjectId,
    /// The index, byte for byte; nothing where there was none.
    pub index: Option<KeptBytes>,
    /// What was under way: `merge`, `rebase` and so on.
    pub operation: Option<String>,
    /// In a safety checkpoint, what its rollback moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<GitMove>,
}

/// What a rollback moves in a repository, from where to where: enough to take it back after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitMove {
    /// What HEAD names before and after.
    pub head: (GitTarget, GitTarget),
    /// The branch whose commit changes, and its commits before and after.
    pub branch: Option<(RelPath, Option<String>, Option<String>)>,
    /// The index before and after.
    pub index: (Option<KeptBytes>, Option<KeptBytes>),
    /// Whether the files went along.
    pub files: bool,
}

impl GitDocument {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// Reads the document.
    ///
    /// # Errors
    /// When it is missing, damaged, or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        match document.format {
            Self::FORMAT => Ok(document),
            other => Err(ObjectError::Damaged { id, what: format!("its format {other} is not known") }),
        }
    }

    /// The branch that HEAD was on.
    pub fn branch(&self) -> Option<&RelPath> {
        match &self.head {
            GitTarget::Ref(name) => Some(name),
            GitTarget::Id(_) => None,
        }
    }

    /// The contents that it needs beside the document with the refs.
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
