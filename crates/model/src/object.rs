//! The two sides of any place that keeps objects: a source to read from, a sink to write to.
//!
//! The store implements them; the workspace and the library use them, and so the rooms need not know each other.

use crate::content::Content;
use crate::{ObjectId, ObjectKind};
use std::io::{self, Read};
use std::ops::Range;
use thiserror::Error;

/// Why an object could not be read or kept.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// Nothing has this name.
    #[error("object {id} is missing")]
    Missing {
        /// What was asked for.
        id: ObjectId,
    },
    /// Something is there, and it is not what its name says.
    #[error("object {id} is damaged: {what}")]
    Damaged {
        /// What was asked for.
        id: ObjectId,
        /// What is wrong with it.
        what: String,
    },
    /// The bytes that were to be kept could not be read.
    #[error("cannot read the content that was to be stored")]
    Input(#[source] io::Error),
    /// The place itself failed.
    #[error("the object store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A place to read objects from. What it returns has been checked against the name.
pub trait ObjectSource: Sync {
    /// The bytes of an object.
    ///
    /// # Errors
    /// When it is missing, damaged, of another kind, or the place fails.
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError>;
}

/// A place to keep objects in. Nothing counts as kept before the owner of the sink has made it durable.
pub trait ObjectSink: Sync {
    /// Keeps these bytes, once, however often they are given.
    ///
    /// # Errors
    /// When the place fails.
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError>;

    /// Keeps a directory. `below` are things it leads to that were put just now. Where one of them is new the directory is new, as
    /// nothing is kept that leads to what is not there: nobody needs to look whether it is.
    ///
    /// # Errors
    /// When the place fails.
    fn put_tree(&self, bytes: &[u8], below: &[ObjectId]) -> Result<ObjectId, ObjectError> {
        let _ = below;
        self.put(ObjectKind::Tree, bytes)
    }

    /// Is told what an object is that is kept already, as it may be asked for soon. What is told is not believed before it is checked.
    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        let _ = (kind, id, bytes);
    }

    /// Keeps everything that the reader gives, cut into pieces where it is long.
    /// `size_hint` is what the caller expects; the result says what really came.
    ///
    /// # Errors
    /// When the reader or the place fails.
    fn put_content(&self, size_hint: u64, reader: &mut dyn Read) -> Result<Content, ObjectError>;

    /// Keeps a file of this size whose holes need not be read. The result says what really came.
    ///
    /// # Errors
    /// When the reader or the place fails.
    fn put_sparse(&self, size: u64, reader: &mut dyn SparseRead) -> Result<Content, ObjectError> {
        self.put_content(size, reader)
    }
}

/// A file that knows where its holes are.
pub trait SparseRead: Read {
    /// The first stretch of data at or after an offset; nothing where only a hole follows.
    ///
    /// # Errors
    /// When the file cannot be asked.
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>>;

    /// Makes the next reading begin at an offset.
    fn go_to(&mut self, at: u64);

    /// Whether zeros count as a hole even where they are data: it had holes once.
    fn keeps_holes(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! A map in memory, for the tests of this crate.
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[derive(Default)]
    pub(crate) struct Memory(Mutex<BTreeMap<ObjectId, (ObjectKind, Vec<u8>)>>);

    impl ObjectSource for Memory {
        fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
            match self.0.lock().unwrap().get(&id) {
                Some((stored, bytes)) if *stored == kind => Ok(bytes.clone()),
                Some(_) => Err(ObjectError::Damaged { id, what: "another kind".into() }),
                None => Err(ObjectError::Missing { id }),
            }
        }
    }

    impl ObjectSink for Memory {
        fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
            let id = ObjectId::of(kind, bytes);
            self.0.lock().unwrap().insert(id, (kind, bytes.to_vec()));
            Ok(id)
        }

        fn put_content(&self, _: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map_err(ObjectError::Input)?;
            self.put(ObjectKind::Chunk, &bytes)?;
            Ok(Content::whole(&bytes))
        }
    }

    #[test]
    fn an_object_of_another_kind_is_not_given_out() {
        let memory = Memory::default();
        let id = memory.put(ObjectKind::Chunk, b"x").unwrap();
        assert_eq!(memory.get(ObjectKind::Chunk, id).unwrap(), b"x");
        assert!(matches!(memory.get(ObjectKind::Tree, id), Err(ObjectError::Damaged { .. })));
        let other = ObjectId::of(ObjectKind::Chunk, b"y");
        assert!(matches!(memory.get(ObjectKind::Chunk, other), Err(ObjectError::Missing { .. })));
    }
}
