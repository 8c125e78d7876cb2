//! Documents: canonical JSON of every shape that checkpoints store.

use safepoint_model::agent::Agent;
use safepoint_model::checkpoint::{Checkpoint, Manifest};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::FilesDocument;
use safepoint_model::git::GitDocument;
use safepoint_model::plan::state::Plan;
use safepoint_model::session::SessionDocument;
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource, RelPath, document, plan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Checks that decoded values have one encoding, which decodes to the same value. The first byte chooses the
/// shape. Cyclic pages of a plan terminate.
pub fn documents(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    match shape % 10 {
        0 => canonical::<Manifest>(bytes),
        1 => canonical::<FilesDocument>(bytes),
        2 => canonical::<Coverage>(bytes),
        3 => canonical::<SessionDocument>(bytes),
        4 => canonical::<GitDocument>(bytes),
        5 => canonical::<Agent>(bytes),
        6 => canonical::<Plan>(bytes),
        7 => canonical::<Checkpoint>(bytes),
        8 => canonical::<Vec<RelPath>>(bytes),
        _ => pages(bytes),
    }
}

fn canonical<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(value) = document::decode::<T>(bytes) else { return };
    let encoded = document::encode(&value).expect("a decoded value encodes");
    let again: T = document::decode(&encoded).expect("an encoded value decodes");
    assert_eq!(again, value);
    assert_eq!(document::encode(&again).expect("the second encoding succeeds"), encoded);
}

/// Objects by the first byte of their id, so that any page can refer to any page, even to itself.
struct Pages<'a>(Vec<&'a [u8]>);

impl ObjectSource for Pages<'_> {
    fn get(&self, _: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        Ok(self.0[usize::from(id.as_bytes()[0]) % self.0.len()].to_vec())
    }
}

fn pages(bytes: &[u8]) {
    let pages = Pages(bytes.split(|byte| *byte == b'\n').collect());
    let first = ObjectId::from_bytes([0; 32]);
    let mut seen = std::collections::HashSet::new();
    let _ = plan::document::objects(&pages, first, &mut |id| seen.insert(id));
    if let Ok(plan) = plan::document::load(&pages, first) {
        assert!(plan.steps.len() <= plan::spec::STEPS_MAX + 64);
    }
}
