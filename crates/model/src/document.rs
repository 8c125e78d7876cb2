//! Canonical JSON: the unique encoding of a value, so that equal values have equal bytes.
//!
//! Keys are sorted, there is no white space, and numbers are formatted by `serde_json`.

use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the canonical bytes of a value.
///
/// # Errors
/// When the value has no JSON form (a map whose keys are not strings).
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, ModelError> {
    let no_json = |_| ModelError::Malformed { what: "document", why: "the value has no JSON form" };
    // Through a `Value`, because its maps are sorted by key.
    let value = serde_json::to_value(value).map_err(no_json)?;
    serde_json::to_vec(&value).map_err(no_json)
}

/// Decodes a document.
///
/// # Errors
/// When the bytes are not JSON of this shape.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ModelError> {
    serde_json::from_slice(bytes)
        .map_err(|_| ModelError::Malformed { what: "document", why: "it is not JSON of the expected shape" })
}

/// Stores a value as a document.
///
/// # Errors
/// When it has no JSON form, or the sink fails.
pub fn store<T: Serialize>(sink: &dyn ObjectSink, value: &T) -> Result<ObjectId, ObjectError> {
    let bytes = encode(value).map_err(|error| ObjectError::Store(Box::new(error)))?;
    sink.put(ObjectKind::Document, &bytes)
}

/// Loads a value from a document.
///
/// # Errors
/// When it is missing, damaged or of another shape.
pub fn load<T: DeserializeOwned>(source: &dyn ObjectSource, id: ObjectId) -> Result<T, ObjectError> {
    decode(&source.get(ObjectKind::Document, id)?)
        .map_err(|error| ObjectError::Damaged { id, what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Memory;
    use serde_json::json;
    use std::collections::HashMap;

    #[test]
    fn equal_values_have_equal_bytes() {
        let bytes = encode(&json!({"b": [1, 2.5, null], "a": {"z": true, "y": "ü"}})).unwrap();
        assert_eq!(bytes, r#"{"a":{"y":"ü","z":true},"b":[1,2.5,null]}"#.as_bytes());
    }

    #[test]
    fn what_has_no_json_form_is_refused() {
        let strange: HashMap<Vec<u8>, u8> = HashMap::from([(vec![1], 1)]);
        assert!(encode(&strange).is_err());
        assert!(matches!(store(&Memory::default(), &strange), Err(ObjectError::Store(_))));
    }

    #[test]
    fn a_document_reads_back_and_another_shape_is_damage() {
        let memory = Memory::default();
        let id = store(&memory, &vec![1, 2, 3]).unwrap();
        assert_eq!(load::<Vec<u8>>(&memory, id).unwrap(), vec![1, 2, 3]);
        assert!(matches!(load::<String>(&memory, id), Err(ObjectError::Damaged { .. })));
    }
}
