//! The document of a part that holds the files of a workspace.

use crate::coverage::Coverage;
use crate::rollback::Expected;
use crate::tree::{Entry, Node};
use crate::{ObjectError, ObjectId, ObjectSource, RelPath, document};
use serde::{Deserialize, Serialize};

/// What the folder of a part was there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// Somebody works there.
    #[default]
    Project,
    /// An agent's configuration or memory lies there.
    Agent,
    /// Safepoint's own home.
    Home,
}

/// A folder that is none here: what an import keeps of the place where its files were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// What people called it.
    pub name: String,
    /// Where it was, from the root of the system on.
    pub root: RelPath,
    /// What it was for.
    pub kind: PlaceKind,
}

/// What stands in the document: the root directory, and where the coverage is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesDocument {
    /// Version of this document.
    pub format: u32,
    /// The root directory: its tree, its mode, its attributes. The name says nothing.
    pub root: Expected,
    /// Entries below it.
    pub count: u64,
    /// Bytes in its files.
    pub bytes: u64,
    /// The document with the coverage, apart because it seldom changes.
    pub coverage: ObjectId,
    /// The folder, where it is none here and the files came by an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

impl FilesDocument {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// Reads the document and checks what can be checked without reading further.
    ///
    /// # Errors
    /// When it is missing, damaged, of a newer version, or its root is not a directory.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        if document.format != Self::FORMAT {
            return Err(ObjectError::Damaged {
                id,
                what: format!("its format {} is not known", document.format),
            });
        }
        if document.tree().is_none() {
            return Err(ObjectError::Damaged { id, what: "its root is not a directory".to_owned() });
        }
        Ok(document)
    }

    /// The root's tree.
    pub fn tree(&self) -> Option<ObjectId> {
        match self.root.entry.node {
            Node::Directory(tree) => Some(tree),
            _ => None,
        }
    }

    /// The root as an entry without a name.
    pub fn root_entry(&self) -> Entry {
        Entry { name: Vec::new(), ..self.root.entry.clone() }
    }

    /// What was left out.
    ///
    /// # Errors
    /// When the document with it is missing or damaged.
    pub fn coverage(&self, source: &dyn ObjectSource) -> Result<Coverage, ObjectError> {
        document::load(source, self.coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::object::tests::Memory;
    use crate::tree::Meta;

    fn with_root(node: Node, format: u32) -> FilesDocument {
        let entry = Entry { name: Vec::new(), meta: Meta { mode: 0o750, ..Meta::default() }, node };
        let coverage = ObjectId::from_bytes([1; 32]);
        FilesDocument { format, root: Expected { entry }, count: 3, bytes: 9, coverage, elsewhere: None }
    }

    #[test]
    fn a_document_reads_back_and_a_strange_one_is_damage() {
        let memory = Memory::default();
        let tree = ObjectId::from_bytes([2; 32]);
        let keep = |document: &FilesDocument| document::store(&memory, document).unwrap();
        let good = FilesDocument::load(&memory, keep(&with_root(Node::Directory(tree), 1))).unwrap();
        assert_eq!((good.tree(), good.root_entry().meta.mode), (Some(tree), 0o750));
        assert!(good.root_entry().name.is_empty());
        for bad in [with_root(Node::Directory(tree), 2), with_root(Node::File(Content::whole(b"")), 1)] {
            let error = FilesDocument::load(&memory, keep(&bad)).unwrap_err();
            assert!(matches!(error, ObjectError::Damaged { .. }), "{error}");
        }
        assert!(good.coverage(&memory).is_err());
        // What is not said takes no room, so that files of a folder that is here have the name that they always had.
        let place = Elsewhere {
            name: "shop".to_owned(),
            root: RelPath::new("srv/shop").unwrap(),
            kind: PlaceKind::Agent,
        };
        let away = FilesDocument { elsewhere: Some(place), ..good.clone() };
        assert_eq!(FilesDocument::load(&memory, keep(&away)).unwrap(), away);
        assert!(!String::from_utf8(document::encode(&good).unwrap()).unwrap().contains("elsewhere"));
    }
}
