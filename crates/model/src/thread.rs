//! Threads: conversations of agents as immutable states, with movable heads and pending writes.
//!
//! Values of a thread are opaque bytes with the name of their encoding. Names come from other programs and are
//! checked before they reach a table.

use crate::content::Content;
use crate::git::KeptBytes;
use crate::{
    CheckpointId, ModelError, ObjectError, ObjectId, ObjectSource, Timestamp, WorkspaceId, document,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a name.
pub const THREAD_NAME_BYTES_MAX: usize = 512;
/// Maximum length of a value.
pub const THREAD_VALUE_BYTES_MAX: usize = 256 << 20;
/// Maximum length of the metadata of a state, as JSON.
pub const THREAD_METADATA_BYTES_MAX: usize = 1 << 20;

/// Checks a name: at most 512 bytes, without NUL.
///
/// # Errors
/// When it violates a rule.
pub fn check_name(what: &'static str, name: &str) -> Result<(), ModelError> {
    let why = if name.len() > THREAD_NAME_BYTES_MAX {
        format!("it has {} bytes, and at most {THREAD_NAME_BYTES_MAX} are allowed", name.len())
    } else if name.contains('\0') {
        "it contains a NUL character".to_owned()
    } else {
        return Ok(());
    };
    Err(ModelError::Value { what, why })
}

/// Checks a name that must not be empty, such as the id of a thread or of a state.
///
/// # Errors
/// When it violates a rule.
pub fn check_id(what: &'static str, id: &str) -> Result<(), ModelError> {
    match id.is_empty() {
        true => Err(ModelError::Value { what, why: "it is empty".to_owned() }),
        false => check_name(what, id),
    }
}

/// Owner of a thread and its id there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// Workspace that it is bound to, or `None` if it belongs to the home.
    pub workspace: Option<WorkspaceId>,
    /// Id that the program gave it.
    pub id: String,
}

impl ThreadKey {
    /// Creates a key.
    ///
    /// # Errors
    /// When the id is empty, too long or contains NUL.
    pub fn new(workspace: Option<WorkspaceId>, id: &str) -> Result<Self, ModelError> {
        check_id("thread id", id)?;
        Ok(Self { workspace, id: id.to_owned() })
    }

    /// Returns the key of its part in a checkpoint.
    pub fn part_key(&self) -> String {
        let workspace = self.workspace.map(|id| id.to_string()).unwrap_or_default();
        format!("{workspace}:{}", self.id)
    }

    /// Parses the key of a part.
    pub fn from_part_key(key: &str) -> Option<Self> {
        let (workspace, id) = key.split_once(':')?;
        let workspace = match workspace {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        Self::new(workspace, id).ok()
    }
}

/// Opaque value: bytes, and the name of their encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadValue {
    /// Name of the encoding.
    pub encoding: String,
    /// Encoded bytes.
    pub bytes: Vec<u8>,
}

impl ThreadValue {
    /// Creates a value.
    pub fn new(encoding: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { encoding: encoding.into(), bytes: bytes.into() }
    }
}

/// Value of a channel in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelState {
    /// Version of the channel.
    pub version: String,
    /// Value, or `None` if the channel is empty or values were not requested.
    pub value: Option<ThreadValue>,
}

/// Pending write of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWrite {
    /// Task.
    pub task_id: String,
    /// Position among the writes of the task.
    pub index: i64,
    /// Channel.
    pub channel: String,
    /// Value.
    pub value: ThreadValue,
    /// Path of the task in its graph.
    pub task_path: String,
}

/// State of a thread: one immutable snapshot of its channels.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadState {
    /// Thread.
    pub thread: ThreadKey,
    /// Namespace.
    pub namespace: String,
    /// Id in the namespace.
    pub id: String,
    /// Id of the state that it follows.
    pub parent: Option<String>,
    /// Run that saved it.
    pub run_id: Option<String>,
    /// Metadata, as JSON.
    pub metadata: Map<String, Value>,
    /// The state without its channel values.
    pub body: ThreadValue,
    /// Channels, by name.
    pub channels: BTreeMap<String, ChannelState>,
    /// Pending writes, in the order of task and index.
    pub writes: Vec<PendingWrite>,
    /// Checkpoint with the files of this state.
    pub files: Option<CheckpointId>,
    /// True if that checkpoint was deleted since.
    pub files_pruned: bool,
    /// True if it is kept for later states alone, and not listed.
    pub hidden: bool,
    /// True if it is the head of its namespace.
    pub is_head: bool,
    /// Time of the save.
    pub created_at: Timestamp,
}

/// Thread without its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Owner and id.
    pub key: ThreadKey,
    /// Serializer of its values; another one is refused.
    pub serializer: Option<String>,
    /// Number of changes.
    pub version: u64,
    /// Time of the first save.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time to live after the last change, in microseconds.
    pub ttl_micros: Option<u64>,
}

/// Value in the document of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptValue {
    /// Name of the encoding.
    pub encoding: String,
    /// Bytes.
    pub content: KeptBytes,
}

impl KeptValue {
    /// Loads the bytes.
    ///
    /// # Errors
    /// When they are missing, damaged or too long.
    pub fn load(&self, source: &dyn ObjectSource) -> Result<ThreadValue, ObjectError> {
        let content = Content::from(self.content);
        if content.size > THREAD_VALUE_BYTES_MAX as u64 {
            let what = format!("a value of {} bytes is too long", content.size);
            return Err(ObjectError::Damaged { id: content.id, what });
        }
        let mut bytes = Vec::new();
        content.read::<ObjectError>(source, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(ThreadValue { encoding: self.encoding.clone(), bytes })
    }
}

/// Channel in the document of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptChannel {
    /// Version.
    pub version: String,
    /// Value, or `None` if the channel is empty.
    pub value: Option<KeptValue>,
}

/// Pending write in the document of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptWrite {
    /// Task.
    pub task_id: String,
    /// Position among the writes of the task.
    pub index: i64,
    /// Channel.
    pub channel: String,
    /// Value.
    pub value: KeptValue,
    /// Path of the task in its graph.
    pub task_path: String,
}

/// State in the document of a thread: the head of a namespace with the writes for it, or an ancestor of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptState {
    /// Namespace.
    pub namespace: String,
    /// Id of the state.
    pub id: String,
    /// Id of the state that it follows.
    pub parent: Option<String>,
    /// Run that saved it.
    pub run_id: Option<String>,
    /// Metadata.
    pub metadata: Map<String, Value>,
    /// The state without its channel values.
    pub body: KeptValue,
    /// Channels, by name.
    pub channels: BTreeMap<String, KeptChannel>,
    /// Checkpoint with the files of the state, unless that is the checkpoint with this document.
    pub files: Option<CheckpointId>,
    /// Time of the save.
    pub created_at: Timestamp,
    /// Pending writes; none for an ancestor.
    pub writes: Vec<KeptWrite>,
    /// Parent, as the document of a [`KeptAncestor`], if readers of this state need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<ObjectId>,
}

impl KeptState {
    /// Returns all contents that it names.
    pub fn contents(&self) -> Vec<Content> {
        let values = self.channels.values().filter_map(|channel| channel.value.as_ref());
        let values =
            [&self.body].into_iter().chain(values).chain(self.writes.iter().map(|write| &write.value));
        values.map(|value| Content::from(value.content)).collect()
    }

    fn check(&self) -> Result<(), ModelError> {
        check_name("namespace", &self.namespace)?;
        check_id("state id", &self.id)?;
        check_name("encoding", &self.body.encoding)?;
        for (channel, kept) in &self.channels {
            check_name("channel", channel)?;
            check_name("version", &kept.version)?;
        }
        for write in &self.writes {
            check_name("task id", &write.task_id)?;
            check_name("channel", &write.channel)?;
            check_name("task path", &write.task_path)?;
        }
        Ok(())
    }
}

/// Returns true if readers of a state need its parent, too: the state has no channels of its own.
pub fn needs_parent<V>(parent: Option<&str>, channels: &BTreeMap<String, V>) -> bool {
    parent.is_some() && channels.is_empty()
}

/// Document of an ancestor that a head needs. It names the one before it, so that checkpoints share all but the new ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptAncestor {
    /// Version of this document.
    pub format: u32,
    /// State.
    pub state: KeptState,
}

impl KeptAncestor {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates the document of a state.
    pub fn new(state: KeptState) -> Self {
        Self { format: Self::FORMAT, state }
    }

    /// Loads the document and checks its names.
    ///
    /// # Errors
    /// When it is missing, damaged or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        document.check().map_err(|error| ObjectError::Damaged { id, what: error.to_string() })?;
        Ok(document)
    }

    /// Checks its version and its names.
    ///
    /// # Errors
    /// When a rule is violated.
    pub fn check(&self) -> Result<(), ModelError> {
        let bad = |why: String| Err(ModelError::Value { what: "ancestor in a thread", why });
        if self.format != Self::FORMAT {
            return bad(format!("its version {} is unsupported", self.format));
        }
        if !self.state.writes.is_empty() {
            return bad("it has pending writes".to_owned());
        }
        self.state.check()
    }
}

/// Document of a thread in a checkpoint: the head of each namespace, with the ancestors that it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadDocument {
    /// Version of this document.
    pub format: u32,
    /// Id of the thread.
    pub id: String,
    /// Serializer of its values.
    pub serializer: Option<String>,
    /// Time of the first save.
    pub created_at: Timestamp,
    /// Heads, sorted by namespace; none if the thread did not exist.
    pub heads: Vec<KeptState>,
}

impl ThreadDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Loads the document and checks its names.
    ///
    /// # Errors
    /// When it is missing, damaged or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        document.check().map_err(|error| ObjectError::Damaged { id, what: error.to_string() })?;
        Ok(document)
    }

    /// Checks its version and its names.
    ///
    /// # Errors
    /// When a rule is violated.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.format != Self::FORMAT {
            let why = format!("its version {} is unsupported", self.format);
            return Err(ModelError::Value { what: "thread document", why });
        }
        check_id("thread id", &self.id)?;
        self.heads.iter().try_for_each(KeptState::check)?;
        let sorted = self.heads.windows(2).all(|pair| pair[0].namespace < pair[1].namespace);
        match sorted {
            true => Ok(()),
            false => {
                Err(ModelError::Value { what: "thread document", why: "its heads are not sorted".to_owned() })
            }
        }
    }

    /// Returns all contents that it names. Those of ancestors are in their own documents.
    pub fn contents(&self) -> Vec<Content> {
        self.heads.iter().flat_map(KeptState::contents).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_nul_or_above_512_bytes_is_refused() {
        let long = "x".repeat(THREAD_NAME_BYTES_MAX + 1);
        for bad in ["", "a\0b", &long] {
            assert!(ThreadKey::new(None, bad).is_err(), "{bad:?}");
        }
        let long = "x".repeat(THREAD_NAME_BYTES_MAX);
        for good in ["1", "a/b:c", "'; DROP TABLE thread", "🦀", &long] {
            assert!(ThreadKey::new(None, good).is_ok(), "{good:?}");
        }
        assert!(check_name("namespace", "").is_ok());
    }

    #[test]
    fn a_part_key_reads_back() {
        for workspace in [None, Some(WorkspaceId::from_bits(7))] {
            for id in ["1", "a:b", ":"] {
                let key = ThreadKey::new(workspace, id).unwrap();
                assert_eq!(ThreadKey::from_part_key(&key.part_key()), Some(key));
            }
        }
        assert_eq!(ThreadKey::from_part_key("nonsense:x"), None);
        assert_eq!(ThreadKey::from_part_key("x"), None);
    }
}
