//! Interfaces of an object store: a source to read from, a sink to write to.
//!
//! The store implements them; the workspace and the library use them, so that these crates do not depend on
//! each other.

use crate::content::Content;
use crate::{ObjectId, ObjectKind};
use std::io::{self, Read};
use std::ops::Range;
use thiserror::Error;

/// Reason why an object could not be read or stored.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// The object is missing.
    #[error("object {id} is missing")]
    Missing {
        /// Requested object.
        id: ObjectId,
    },
    /// The object does not match its id.
    #[error("object {id} is damaged: {what}")]
    Damaged {
        /// Requested object.
        id: ObjectId,
        /// Description of the damage.
        what: String,
    },
    /// The bytes to be stored could not be read.
    #[error("cannot read the content to be stored")]
    Input(#[source] io::Error),
    /// The user interrupted the operation.
    #[error("interrupted")]
    Interrupted,
    /// The store itself failed.
    #[error("cannot access the object store")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Source of objects. Returned bytes are verified against the id.
pub trait ObjectSource: Sync {
    /// Returns the bytes of an object.
    ///
    /// # Errors
    /// When it is missing, damaged, of another kind, or the store fails.
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError>;
}

/// Sink for objects. No object is committed before the owner of the sink has made it durable.
pub trait ObjectSink: Sync {
    /// Stores these bytes if they are missing.
    ///
    /// # Errors
    /// When the store fails.
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError>;

    /// Stores a directory. `below` are entries that were put just before. If one of them is new, the
    /// directory is new and need not be looked up: no stored directory refers to a missing object.
    ///
    /// # Errors
    /// When the store fails.
    fn put_tree(&self, bytes: &[u8], below: &[ObjectId]) -> Result<ObjectId, ObjectError> {
        let _ = below;
        self.put(ObjectKind::Tree, bytes)
    }

    /// Hints that a stored object may soon be read. The bytes are verified before use.
    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        let _ = (kind, id, bytes);
    }

    /// Stores all bytes of the reader, cut into pieces if long. `size_hint` is the expected length; the
    /// result has the actual one.
    ///
    /// # Errors
    /// When the reader or the store fails.
    fn put_content(&self, size_hint: u64, reader: &mut dyn Read) -> Result<Content, ObjectError>;

    /// Stores a file of this size without reading its holes. The result has the actual length.
    ///
    /// # Errors
    /// When the reader or the store fails.
    fn put_sparse(&self, size: u64, reader: &mut dyn SparseRead) -> Result<Content, ObjectError> {
        self.put_content(size, reader)
    }
}

/// File with known holes.
pub trait SparseRead: Read {
    /// Returns the first range of data at or after an offset, or `None` if only a hole follows.
    ///
    /// # Errors
    /// When the file cannot be queried.
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>>;

    /// Sets the offset of the next read.
    fn go_to(&mut self, at: u64);

    /// Returns true if zeros in data count as a hole because the file had holes before.
    fn keeps_holes(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Object store in memory, for the tests of this crate.
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
