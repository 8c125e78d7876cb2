//! Forge: published packs whose hashes are right and whose content is hostile.
//!
//! In: the pack of a push. Out: the same pack with an object replaced, and with every object that names it, up to the push
//! document; under its own name in the folder, and in the records.

use crate::world::{World, postgres};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint_model::{ObjectId, ObjectKind, ObjectSink};
use safepoint_store::{PackTail, Store};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs;

pub(crate) struct Forge<'w> {
    world: &'w World,
    name: String,
    /// In the order of the pack; the last is the push document.
    pub(crate) objects: Vec<(ObjectId, ObjectKind, Vec<u8>)>,
    /// Record of the newest checkpoint, as the row names it and as it is now.
    records: [String; 2],
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> bool {
    let found: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, part)| *part == old).map(|(at, _)| at).collect();
    for at in &found {
        bytes[*at..*at + old.len()].copy_from_slice(new);
    }
    !found.is_empty()
}

/// Replaces an id in entries that documents have in base64, of the same length.
fn replace_encoded(bytes: &mut [u8], old: ObjectId, new: ObjectId) -> bool {
    let (mut at, mut found) = (0, false);
    while let Some(len) = bytes[at..].iter().position(|byte| *byte == b'"') {
        if let Ok(mut entry) = STANDARD.decode(&bytes[at..at + len])
            && replace(&mut entry, old.as_bytes(), new.as_bytes())
        {
            bytes[at..at + len].copy_from_slice(STANDARD.encode(entry).as_bytes());
            found = true;
        }
        at += len + 1;
    }
    found
}

/// Objects that are larger name no other.
const NAMING_BYTES_MAX: usize = 1 << 20;

impl<'w> Forge<'w> {
    /// Reads the only pack of the only push, for its newest checkpoint.
    pub(crate) fn of(world: &'w World) -> Self {
        let sql = "SELECT name FROM safepoint.packs; SELECT record FROM safepoint.checkpoints ORDER BY n DESC LIMIT 1";
        let told = postgres().unwrap().sql(&world.database, sql).unwrap();
        let (name, record) = told.split_once('\n').unwrap();
        let path = world.path("bytes").join(name);
        let bytes = fs::read(&path).unwrap();
        let part = |at: u64, len: u64| bytes[at as usize..(at + len) as usize].to_vec();
        let read_at = |at: u64, len: u64| Ok::<_, ()>(part(at, len));
        let tail = PackTail::open(bytes.len() as u64, &read_at).unwrap().unwrap();
        let object = |it: &safepoint_store::PackedObject| {
            (it.id(), it.kind(), it.decode(&part(it.at(), it.stored_len())).unwrap())
        };
        let objects = tail.objects().iter().map(object).collect();
        Self { world, name: name.to_owned(), objects, records: [record.to_owned(), record.to_owned()] }
    }

    fn position(&self, wanted: impl Fn(ObjectKind, &[u8]) -> bool) -> usize {
        self.objects.iter().position(|(_, kind, bytes)| wanted(*kind, bytes)).unwrap()
    }

    /// Tree of the folder `src`: the one with this name in it.
    pub(crate) fn tree_with(&self, name: &str) -> usize {
        let has = |bytes: &[u8]| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        self.position(|kind, bytes| kind == ObjectKind::Tree && has(bytes))
    }

    /// Document with this text.
    pub(crate) fn document_with(&self, text: &str) -> usize {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        self.position(|kind, bytes| kind == ObjectKind::Document && has(bytes))
    }

    /// Record of the newest checkpoint.
    pub(crate) fn record(&self) -> usize {
        self.objects.iter().position(|(id, ..)| id.to_string() == self.records[1]).unwrap()
    }

    pub(crate) fn json(&self, at: usize) -> Value {
        serde_json::from_slice(&self.objects[at].2).unwrap()
    }

    /// Adds an object that others may name.
    pub(crate) fn add(&mut self, kind: ObjectKind, bytes: Vec<u8>) -> ObjectId {
        let id = ObjectId::of(kind, &bytes);
        self.objects.insert(0, (id, kind, bytes));
        id
    }

    /// Replaces an object, and its id in all that name it.
    pub(crate) fn set(&mut self, at: usize, bytes: Vec<u8>) {
        let mut renamed = VecDeque::from([self.rename(at, bytes)]);
        while let Some((old, new)) = renamed.pop_front() {
            for at in 0..self.objects.len() {
                if self.objects[at].2.len() > NAMING_BYTES_MAX {
                    continue;
                }
                let mut bytes = self.objects[at].2.clone();
                let text = replace(&mut bytes, old.to_string().as_bytes(), new.to_string().as_bytes());
                let encoded = replace_encoded(&mut bytes, old, new);
                if replace(&mut bytes, old.as_bytes(), new.as_bytes()) || text || encoded {
                    renamed.push_back(self.rename(at, bytes));
                }
            }
        }
    }

    fn rename(&mut self, at: usize, bytes: Vec<u8>) -> (ObjectId, ObjectId) {
        let (old, kind, _) = self.objects[at];
        let new = ObjectId::of(kind, &bytes);
        self.objects[at] = (new, kind, bytes);
        if self.records[1] == old.to_string() {
            self.records[1] = new.to_string();
        }
        (old, new)
    }

    /// The pack as it is uploaded.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let writer = store.writer().unwrap();
        let (last, others) = self.objects.split_last().unwrap();
        for (id, kind, bytes) in others {
            assert_eq!(writer.put(*kind, bytes).unwrap(), *id);
        }
        writer.finish().unwrap();
        let mut out = store.pack_out(tempfile::tempfile().unwrap(), folder.path()).unwrap();
        others.iter().for_each(|(id, ..)| out.add(*id).unwrap());
        out.add_document(&last.2).unwrap();
        let mut packed = out.finish().unwrap();
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut packed.file).unwrap();
        std::io::Read::read_to_end(&mut packed.file, &mut bytes).unwrap();
        bytes
    }

    /// Puts a pack under its own name in the place of the published one.
    pub(crate) fn publish(&self, packed: &[u8]) {
        let (prefix, _) = self.name.split_once('-').unwrap();
        let name = format!("{prefix}-{}.pack", blake3::hash(packed).to_hex());
        fs::write(self.world.path("bytes").join(&name), packed).unwrap();
        let (bytes, objects, [old, new]) = (packed.len(), self.objects.len(), &self.records);
        let sql = format!(
            "UPDATE safepoint.packs SET name = '{name}', bytes = {bytes}, objects = {objects};
             UPDATE safepoint.checkpoints SET record = '{new}' WHERE record = '{old}'"
        );
        postgres().unwrap().sql(&self.world.database, &sql).unwrap();
    }
}
