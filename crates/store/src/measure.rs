//! Sink that names content without storing it, for comparing the current state.
//!
//! In: objects, as for a [`Writer`](crate::Writer). Out: the same ids. Trees, lists and documents stay in
//! memory for comparison; chunks are hashed and dropped. Other objects are read from the store.

use crate::segment::ENTRY_BYTES;
use crate::{Store, content, frame};
use safepoint_model::content::Content;
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, SparseRead};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sink that stores nothing on disk.
pub struct Measurer<'s> {
    store: &'s Store,
    memory: Mutex<HashMap<ObjectId, (ObjectKind, Vec<u8>)>>,
    /// Objects that the store lacks, and the bytes that they would take, if they are counted.
    missing: Option<Mutex<(HashSet<ObjectId>, u64)>>,
}

impl Store {
    /// Returns a sink that writes nothing.
    pub fn measurer(&self) -> Measurer<'_> {
        Measurer { store: self, memory: Mutex::default(), missing: None }
    }
}

impl Measurer<'_> {
    /// Counts the bytes of objects that the store lacks, as it would compress them.
    #[must_use]
    pub fn counting(self) -> Self {
        Self { missing: Some(Mutex::default()), ..self }
    }

    /// Bytes that a writer would have added. Zero if they are not counted.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.as_ref().map_or(0, |missing| missing.lock().unwrap_or_else(PoisonError::into_inner).1)
    }

    fn count(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) -> Result<(), ObjectError> {
        let Some(missing) = &self.missing else { return Ok(()) };
        let failed = |error: crate::StoreError| ObjectError::Store(Box::new(error));
        if self.store.contains(id).map_err(failed)? {
            return Ok(());
        }
        let stored =
            frame::encode(kind, id, bytes, |shape, _| u64::from(shape.stored_len)).map_err(failed)?;
        let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.0.insert(id) {
            missing.1 += stored + ENTRY_BYTES as u64;
        }
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<ObjectId, (ObjectKind, Vec<u8>)>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectSink for Measurer<'_> {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        let id = ObjectId::of(kind, bytes);
        self.count(kind, id, bytes)?;
        if kind != ObjectKind::Chunk {
            self.memory().insert(id, (kind, bytes.to_vec()));
        }
        Ok(id)
    }

    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        if ObjectId::of(kind, bytes) == id {
            self.memory().insert(id, (kind, bytes.to_vec()));
        }
    }

    fn put_content(&self, size_hint: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        content::put(self, size_hint, reader)
    }

    fn put_sparse(&self, size: u64, reader: &mut dyn SparseRead) -> Result<Content, ObjectError> {
        content::put_sparse(self, size, reader)
    }
}

impl ObjectSource for Measurer<'_> {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        if let Some((stored, bytes)) = self.memory().get(&id)
            && *stored == kind
        {
            return Ok(bytes.clone());
        }
        self.store.get(kind, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_about_an_object_is_believed_only_if_it_is_true() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let id = ObjectId::of(ObjectKind::Tree, b"tree");
        let (measurer, writer) = (store.measurer(), store.writer().unwrap());
        for told in [&b"a lie"[..], b"tree"] {
            measurer.recall(ObjectKind::Tree, id, told);
            writer.recall(ObjectKind::Tree, id, told);
            let is_true = told == b"tree";
            assert_eq!(measurer.get(ObjectKind::Tree, id).is_ok_and(|bytes| bytes == told), is_true);
            assert_eq!(writer.get(ObjectKind::Tree, id).is_ok_and(|bytes| bytes == told), is_true);
        }
        assert_eq!(writer.finish().unwrap().objects, 0, "nothing was stored");
    }

    #[test]
    fn a_measurer_names_as_a_writer_does_and_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let large: Vec<u8> = (0..700_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let measurer = store.measurer();
        let measured = measurer.put_content(0, &mut &large[..]).unwrap();
        let tree = measurer.put(ObjectKind::Tree, b"tree").unwrap();
        assert!(measurer.get(ObjectKind::Pieces, measured.id).is_ok());
        assert_eq!(measurer.get(ObjectKind::Tree, tree).unwrap(), b"tree");
        assert!(measurer.get(ObjectKind::Document, tree).is_err());
        assert_eq!(store.usage().unwrap().objects, 0);
        let writer = store.writer().unwrap();
        assert_eq!(writer.put_content(0, &mut &large[..]).unwrap(), measured);
        let counted = store.measurer().counting();
        counted.put_content(0, &mut &large[..]).unwrap();
        let written = writer.finish().unwrap();
        let near = counted.missing_bytes().abs_diff(written.stored_bytes);
        assert!(near < 10_000, "{} for {}", counted.missing_bytes(), written.stored_bytes);
        let nothing = store.measurer().counting();
        nothing.put_content(0, &mut &large[..]).unwrap();
        assert_eq!(nothing.missing_bytes(), 0, "the store has it");
        assert!(measurer.get(ObjectKind::Chunk, measured.chunks(&store).unwrap()[0].id).is_ok());
    }
}
