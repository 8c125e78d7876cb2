//! Bounded reading of JSON: any bytes give a value of limited size, or an error.
//!
//! Long texts are cut at a character boundary, deep and numerous values are dropped. So an event of 64 MB
//! with nested arrays costs one pass over its bytes and little memory.

use super::EventError;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Maximum size of an event. Callers read one byte more at most, to detect longer ones.
pub const INPUT_BYTES_MAX: usize = 64 << 20;
/// Maximum size of one text; the rest is cut.
pub(crate) const TEXT_BYTES_MAX: usize = 256 << 10;
/// Maximum size of an id or a path; a longer one is absent, because a cut one would name another thing.
const NAME_BYTES_MAX: usize = 4 << 10;
const KEY_BYTES_MAX: usize = 1 << 10;
const DEPTH_MAX: usize = 24;
/// Maximum number of values in a field of the event.
const VALUES_MAX: usize = 20_000;
const KEYS_MAX: usize = 1_000;

/// Input of a hook, parsed once.
#[derive(Debug)]
pub struct HookInput {
    parsed: Result<Map<String, Value>, EventError>,
    hash: blake3::Hash,
}

impl HookInput {
    /// Parses the bytes that an agent wrote to the hook. Never fails: an error shows when the event is read.
    pub fn parse(bytes: &[u8]) -> Self {
        if bytes.len() > INPUT_BYTES_MAX {
            return Self { parsed: Err(EventError::TooLarge), hash: blake3::hash(&[]) };
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Self { parsed: object(bytes), hash: blake3::hash(bytes) }
    }

    pub(crate) fn fields(&self) -> Result<Fields<'_>, &EventError> {
        self.parsed.as_ref().map(Fields)
    }

    pub(crate) fn hash(&self) -> blake3::Hash {
        self.hash
    }
}

/// Parses an object.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, EventError> {
    // JavaScript cuts texts between the halves of a surrogate pair, and writes such a half as an escape that
    // no UTF-8 text can hold.
    let value = bounded(bytes).or_else(|error| repaired(bytes).map_or(Err(error), |bytes| bounded(&bytes)));
    match value {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(EventError::NotAnObject),
        Err(error) => Err(EventError::Json { line: error.line(), column: error.column() }),
    }
}

fn bounded(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let left = Cell::new(VALUES_MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Bounded { left: &left, depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Returns the bytes with half surrogate pairs and bytes that are not UTF-8 replaced, if there are any.
fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let mut bytes = text.clone().into_owned().into_bytes();
    let mut changed = matches!(text, std::borrow::Cow::Owned(_));
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(&bytes, at) {
            Some(0xd800..=0xdbff) if matches!(unit(&bytes, at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                changed = true;
                at += 6;
            }
            _ => at += 2,
        }
    }
    changed.then_some(bytes)
}

/// Returns the UTF-16 unit of the escape at a position.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits
        .iter()
        .try_fold(0u16, |unit, digit| Some(unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?))
}

/// Cuts a text at a character boundary.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[derive(Clone, Copy)]
struct Bounded<'a> {
    left: &'a Cell<usize>,
    depth: usize,
}

impl Bounded<'_> {
    fn take(self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    fn inner(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > DEPTH_MAX || !self.take() {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(cut(text, TEXT_BYTES_MAX).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let has_room = self.left.get() > 0;
            let Some(value) = elements.next_element_seed(self.inner())? else { break };
            if has_room {
                list.push(value);
            }
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Bounded { left: &Cell::new(1), depth: 0 })? {
            let Value::String(key) = key else { return Err(A::Error::custom("a key is not a text")) };
            // A field of the event has its own room, so that a large one pushes no other out.
            if self.depth == 0 {
                self.left.set(VALUES_MAX);
            }
            let has_room = self.left.get() > 0 && map.len() < KEYS_MAX && key.len() <= KEY_BYTES_MAX;
            let value = entries.next_value_seed(self.inner())?;
            if has_room {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

/// Fields of an object, read with their possible names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub(crate) fn has(self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the first of the fields that exists.
    pub(crate) fn get(self, names: &[&str]) -> Option<&'a Value> {
        names.iter().find_map(|name| self.0.get(*name).filter(|value| !value.is_null()))
    }

    /// Returns the first of the fields that is a text.
    pub(crate) fn text(self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| self.0.get(*name)?.as_str())
    }

    /// Returns an id or a path: whole, or absent.
    pub(crate) fn name(self, names: &[&str]) -> Option<String> {
        self.text(names).and_then(whole)
    }

    /// Returns the object in a field.
    pub(crate) fn inner(self, name: &str) -> Option<Fields<'a>> {
        self.0.get(name)?.as_object().map(Fields)
    }
}

/// Returns an id or a path if it can be one.
pub(crate) fn whole(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0')).then(|| text.to_owned())
}
