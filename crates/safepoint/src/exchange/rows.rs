//! Formats of `metadata.json`, `files.json` and the state document.

use super::bounded::Bounded;
use super::{ENTRIES_MAX, LayoutError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint_catalog::Workspace;
use safepoint_model::agent::{AgentPathKind, WorkspaceKind};
use safepoint_model::checkpoint::{Counters, Kind, PartKind, Phase, Reason, Role, Scope};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::{Elsewhere, PlaceKind};
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{CheckpointId, RelPath, Timestamp, WorkspaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::path::Path;

/// Maximum number of warnings.
pub(super) const WARNINGS_MAX: usize = 1_000;
/// Maximum length of a label, a warning, a key or a folder name.
pub(super) const TEXT_BYTES_MAX: usize = 4_096;
/// Maximum number of parts.
const PARTS_MAX: usize = 100_000;

/// File of the layout with its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HashRow {
    pub(super) path: RelPath,
    pub(super) size: u64,
    pub(super) blake3: String,
    /// True for a sparse file, hashed by its data (see `holes.rs`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) sparse: bool,
}

impl HashRow {
    pub(super) fn of(path: RelPath, size: u64, hash: &blake3::Hash) -> Self {
        Self { path, size, blake3: hash.to_hex().to_string(), sparse: false }
    }

    /// Returns true if both describe the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.size, self.sparse) == (other.size, other.sparse)
            && blake3::Hash::from_hex(&other.blake3).is_ok_and(|hash| self.is(&hash))
    }

    /// Returns true if this is the hash of the row.
    pub(super) fn is(&self, hash: &blake3::Hash) -> bool {
        blake3::Hash::from_hex(&self.blake3).is_ok_and(|named| named == *hash)
    }
}

/// Part of the checkpoint with its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentRow {
    pub(super) kind: PartKind,
    pub(super) key: String,
    pub(super) path: RelPath,
}

/// Attributes of an entry that a file system may not keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryRow {
    pub(super) path: RelPath,
    #[serde(rename = "type")]
    pub(super) what: What,
    /// Octal digits.
    pub(super) mode: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mtime_ns: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) xattrs: Vec<XattrRow>,
}

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    File,
    Directory,
    Symlink,
}

/// Extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct XattrRow {
    pub(super) name: Raw,
    pub(super) value: Raw,
}

impl EntryRow {
    pub(super) fn of(path: RelPath, entry: &Entry) -> Self {
        let Meta { mode, uid, gid, mtime_ns, xattrs } = &entry.meta;
        let (what, mtime_ns, target) = match &entry.node {
            Node::File(_) => (What::File, Some(*mtime_ns), None),
            Node::Directory(_) => (What::Directory, None, None),
            Node::Symlink(target) => (What::Symlink, None, Some(Raw(target.clone()))),
        };
        let xattr = |(name, value): &(Vec<u8>, Vec<u8>)| XattrRow {
            name: Raw(name.clone()),
            value: Raw(value.clone()),
        };
        let xattrs = xattrs.iter().map(xattr).collect();
        Self { path, what, mode: format!("{mode:04o}"), uid: *uid, gid: *gid, mtime_ns, target, xattrs }
    }

    pub(super) fn meta(&self) -> Result<Meta, LayoutError> {
        let bad = |why: &str| LayoutError::bad(&self.path, why);
        let mode = u16::from_str_radix(&self.mode, 8).map_err(|_| bad("its mode is not octal digits"))?;
        let mtime_ns = match (self.what, self.mtime_ns) {
            (What::File, None) => return Err(bad("it has no mtime_ns")),
            (_, mtime) => mtime.unwrap_or(0),
        };
        let xattrs = self.xattrs.iter().map(|xattr| (xattr.name.0.clone(), xattr.value.0.clone())).collect();
        Ok(Meta { mode, uid: self.uid, gid: self.gid, mtime_ns, xattrs })
    }
}

/// Bytes that are usually text: a JSON string if valid UTF-8, else `{"bytes": "<base64>"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw(pub(super) Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RawJson {
    Text(String),
    Bytes { bytes: String },
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => RawJson::Bytes { bytes: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match RawJson::deserialize(deserializer)? {
            RawJson::Text(text) => text.into_bytes(),
            RawJson::Bytes { bytes } => STANDARD.decode(bytes).map_err(serde::de::Error::custom)?,
        }))
    }
}

/// Fields in every version of `metadata.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Version {
    pub(super) format: u64,
    pub(super) layout: String,
}

/// Imported fields of `metadata.json`. Its git, session, pin and rollback fields describe another machine.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) id: CheckpointId,
    pub(super) created_at: Timestamp,
    pub(super) label: Option<String>,
    pub(super) kind: Kind,
    pub(super) reason: Reason,
    pub(super) scope: Scope,
    pub(super) phase: Option<Phase>,
    pub(super) role: Option<Role>,
    pub(super) progress: Counters,
    pub(super) warnings: Bounded<String, WARNINGS_MAX>,
    pub(super) contents: Bounded<ContentRow, PARTS_MAX>,
    pub(super) hashes: Bounded<HashRow, ENTRIES_MAX>,
}

/// `files.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    pub(super) format: u32,
    pub(super) entries: Bounded<EntryRow, ENTRIES_MAX>,
}

/// Imported fields of the state document.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) files: Bounded<FilesState, PARTS_MAX>,
    #[serde(default)]
    pub(super) agents: Bounded<AgentRow, PARTS_MAX>,
}

/// Agent in the state document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentRow {
    pub(super) name: String,
    pub(super) copies: Vec<CopyRow>,
}

/// Second copy of an agent's file or folder, for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CopyRow {
    pub(super) kind: AgentPathKind,
    /// Path of the copy.
    pub(super) path: RelPath,
    /// Path of the restored original; none if only this copy exists: it is not restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<RelPath>,
}

/// Files of one workspace in the state document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilesState {
    pub(super) key: String,
    /// Original workspace.
    #[serde(default)]
    pub(super) workspace: Option<WorkspaceRow>,
    pub(super) path: RelPath,
    /// Informational and untrusted.
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) coverage: Coverage,
}

/// Workspace on the original machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceRow {
    id: WorkspaceId,
    name: String,
    root: Raw,
    #[serde(default)]
    kind: PlaceKind,
}

impl WorkspaceRow {
    /// Describes a local workspace; `home` is Safepoint's home.
    pub(super) fn of(workspace: &Workspace, home: &Path) -> Self {
        let kind = match workspace.kind {
            WorkspaceKind::Project | WorkspaceKind::Attempt => PlaceKind::Project,
            WorkspaceKind::Agent if workspace.root_path() == home => PlaceKind::Home,
            WorkspaceKind::Agent => PlaceKind::Agent,
        };
        let (id, name) = (workspace.id, workspace.name.clone());
        Self { id, name, root: Raw(workspace.root.clone()), kind }
    }

    /// Row of an imported workspace.
    pub(super) fn elsewhere(id: WorkspaceId, place: &Elsewhere) -> Self {
        let root = Raw([b"/", place.root.as_bytes()].concat());
        Self { id, name: place.name.clone(), root, kind: place.kind }
    }

    /// Validates the row and returns its place.
    pub(super) fn place(&self, file: &RelPath) -> Result<Elsewhere, LayoutError> {
        let bad =
            || LayoutError::bad(file, "the folder of its files has no absolute path, or too long a name");
        let below = self.root.0.strip_prefix(b"/").ok_or_else(bad)?;
        let root = RelPath::new(below).map_err(|_| bad())?;
        if self.name.len() > TEXT_BYTES_MAX || below.len() > TEXT_BYTES_MAX {
            return Err(bad());
        }
        Ok(Elsewhere { name: self.name.clone(), root, kind: self.kind })
    }
}

/// Formats a document: fields, then a list with one line per item.
pub(super) fn with_lines<T: Serialize>(
    fields: &Value,
    key: &str,
    items: &[T],
) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(fields)?;
    // Without the closing brace, which is on its own line.
    text.truncate(text.len().saturating_sub(2));
    text.extend_from_slice(format!(",\n  \"{key}\": [").as_bytes());
    for (at, item) in items.iter().enumerate() {
        text.extend_from_slice(if at == 0 { b"\n    " } else { b",\n    " });
        serde_json::to_writer(&mut text, item)?;
    }
    text.extend_from_slice(b"\n  ]\n}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_has_a_line_for_each_item() {
        let text = with_lines(&json!({ "a": 1 }), "list", &[json!({ "b": [2] }), json!(3)]).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&text),
            "{\n  \"a\": 1,\n  \"list\": [\n    {\"b\":[2]},\n    3\n  ]\n}\n"
        );
        let empty = with_lines::<u8>(&json!({ "a": 1 }), "list", &[]).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&empty).unwrap(), json!({ "a": 1, "list": [] }));
    }

    #[test]
    fn every_byte_of_a_target_and_an_attribute_comes_back() {
        for bytes in [&b"../outside"[..], b"\xff\x00", b""] {
            let json = serde_json::to_string(&Raw(bytes.to_vec())).unwrap();
            assert_eq!(serde_json::from_str::<Raw>(&json).unwrap().0, bytes);
        }
        assert!(serde_json::from_str::<Raw>(r#"{"bytes":"!"}"#).is_err());
    }
}
