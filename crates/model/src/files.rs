//! Document of a part with the files of a workspace.

use crate::coverage::Coverage;
use crate::rollback::Expected;
use crate::tree::{Entry, Node};
use crate::{ObjectError, ObjectId, ObjectSource, RelPath, document};
use serde::{Deserialize, Serialize};

/// Purpose of the folder of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// Folder of a project.
    #[default]
    Project,
    /// Configuration or memory of an agent.
    Agent,
    /// Safepoint's own home.
    Home,
}

/// Folder on another machine, as recorded by an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Name for people.
    pub name: String,
    /// Original path from the file system root.
    pub root: RelPath,
    /// Purpose.
    pub kind: PlaceKind,
}

/// Content of the document: the root directory, and the id of the coverage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesDocument {
    /// Version of this document.
    pub format: u32,
    /// Root directory: its tree, mode and attributes. The name is unused.
    pub root: Expected,
    /// Entries below it.
    pub count: u64,
    /// Bytes in its files.
    pub bytes: u64,
    /// Document with the coverage; separate because it rarely changes.
    pub coverage: ObjectId,
    /// Original folder, if the files were imported from another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

impl FilesDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Loads the document and checks it without reading further objects.
    ///
    /// # Errors
    /// When it is missing, damaged, of a newer version, or its root is not a directory.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        if document.format != Self::FORMAT {
            return Err(ObjectError::Damaged {
                id,
                what: format!("its format {} is unsupported", document.format),
            });
        }
        if document.tree().is_none() {
            return Err(ObjectError::Damaged { id, what: "its root is not a directory".to_owned() });
        }
        Ok(document)
    }

    /// Returns the tree of the root.
    pub fn tree(&self) -> Option<ObjectId> {
        match self.root.entry.node {
            Node::Directory(tree) => Some(tree),
            _ => None,
        }
    }

    /// Returns the root as an entry without a name.
    pub fn root_entry(&self) -> Entry {
        Entry { name: Vec::new(), ..self.root.entry.clone() }
    }

    /// Loads the coverage.
    ///
    /// # Errors
    /// When its document is missing or damaged.
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
        // An absent field takes no space, so that files of a local folder keep their id.
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
