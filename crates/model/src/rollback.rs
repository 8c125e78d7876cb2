//! Record of a rollback: the request, the action on each path, and the result.

use crate::checkpoint::{PartKind, word_type};
use crate::tree::{Entry, Node};
use crate::{CheckpointId, ModelError, ObjectId, RelPath, RollbackId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

word_type! {
    /// Strategy of a rollback (R5.2).
    Strategy, "strategy", {
        /// Verify, then change everything in one step.
        Immediate = "immediate",
        /// Build beside the workspace, check, then switch.
        Staged = "staged",
        /// Only the chosen parts.
        Selective = "selective",
        /// One checkpoint further back at a time until a check passes.
        Progressive = "progressive",
    }
}

word_type! {
    /// Verb that created the record.
    Verb, "verb", {
        /// Restores a checkpoint.
        Rollback = "rollback",
        /// Undoes a rollback.
        Undo = "undo",
        /// Repeats an undone rollback.
        Redo = "redo",
        /// Applies the result of a plan's sandbox.
        Apply = "apply",
    }
}

word_type! {
    /// State of a rollback. The change to `done` is the commit.
    RollbackState, "rollback state", {
        /// Entries are being exchanged; after a crash the old ones are restored.
        Applying = "applying",
        /// Committed; displaced files may still wait to be checked and deleted.
        Done = "done",
        /// Committed and complete.
        Settled = "settled",
        /// Undone: the old state is valid.
        Aborted = "aborted",
        /// Refused before any change.
        Refused = "refused",
    }
}

word_type! {
    /// Action on a path.
    Action, "action", {
        /// Replaced by the content of the checkpoint.
        Restored = "restored",
        /// Created from the checkpoint.
        Created = "created",
        /// Removed, because the checkpoint does not contain it.
        Removed = "removed",
        /// Kept, because it contains entries that were never captured.
        Kept = "kept",
    }
}

/// Path and the action on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPath {
    /// Changed path.
    pub path: RelPath,
    /// Action on the path.
    pub action: Action,
}

/// Edit made during the rollback, and its rescued copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescued {
    /// Original path.
    pub path: RelPath,
    /// Checkpoint that contains it, under the same path.
    #[serde(rename = "checkpoint_or_object")]
    pub checkpoint: CheckpointId,
    /// Observed difference.
    pub why: String,
}

/// Step of APPLY. A list of steps, durable before the first one runs, is all that recovery needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapStep {
    /// Path that changes.
    pub path: RelPath,
    /// Entry before, or `None` if the path is to be created.
    pub old: Option<Expected>,
    /// Entry after, or `None` if the path is to be removed.
    pub new: Option<Expected>,
    /// Method of the change.
    pub how: How,
}

/// Method of changing a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The entry is exchanged with, moved in from, or moved out to this slot.
    Swap {
        /// Number of the slot in the stage folder.
        slot: u64,
    },
    /// Mode, owner and attributes are set on the existing entry.
    Meta,
}

/// Expected entry at a path: enough to recognise and to rebuild it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Entry, encoded as a tree with one entry; its name is that of the path.
    #[serde(with = "entry_bytes")]
    pub entry: Entry,
}

mod entry_bytes {
    //! Serializes an entry in JSON: base64 of a tree with this one entry.
    use crate::tree::{Entry, Tree};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error, ser};

    pub(super) fn serialize<S: Serializer>(entry: &Entry, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = entry.clone();
        if entry.name.is_empty() {
            entry.name = b"root".to_vec();
        }
        let tree = Tree::new(vec![entry]).map_err(ser::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(tree.encode()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Entry, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        let mut entries = Tree::decode(&bytes).map_err(D::Error::custom)?.into_entries();
        match (entries.pop(), entries.is_empty()) {
            (Some(entry), true) => Ok(entry),
            _ => Err(D::Error::custom("expected one entry")),
        }
    }
}

/// Record of a rollback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// Id of the rollback.
    pub id: RollbackId,
    /// Workspace that it changes.
    pub workspace_id: WorkspaceId,
    /// Id of the multi-folder rollback that it belongs to; either all of its rollbacks are done, or none.
    pub together: Option<RollbackId>,
    /// Rollback, undo or redo.
    pub verb: Verb,
    /// Record that an undo or redo refers to.
    pub answers: Option<RollbackId>,
    /// Checkpoint that the workspace was at, if any.
    pub from: Option<CheckpointId>,
    /// Requested checkpoint.
    pub to: CheckpointId,
    /// Checkpoint of the state just before: the old state. `None` if the rollback was refused before it was
    /// taken.
    pub safety_checkpoint: Option<CheckpointId>,
    /// Strategy used.
    pub strategy: Strategy,
    /// Chosen kinds of parts; empty for all in the checkpoint.
    pub parts: Vec<PartKind>,
    /// Chosen paths; empty for all.
    pub paths: Vec<RelPath>,
    /// State.
    pub state: RollbackState,
    /// Start time.
    pub created_at: Timestamp,
    /// End time.
    pub finished_at: Option<Timestamp>,
    /// User or tool that requested it.
    pub actor: String,
    /// Number of files and links restored or created.
    pub restored_files_count: u64,
    /// Number of files and links removed.
    pub removed_files_count: u64,
    /// Document that lists every changed path ([`ChangedPath`]).
    pub changed_paths: Option<ObjectId>,
    /// Edits detected during the rollback.
    pub rescued: Vec<Rescued>,
    /// Error, if it failed.
    pub error: Option<String>,
}

/// Returns the word for a node, as used in output and JSON.
pub fn type_word(node: &Node) -> &'static str {
    match node {
        Node::File(_) => "file",
        Node::Directory(_) => "directory",
        Node::Symlink(_) => "symlink",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::tree::Meta;

    #[test]
    fn a_step_reads_back_from_json() {
        let entry = Entry {
            name: b"odd \xff".to_vec(),
            meta: Meta { mode: 0o4755, xattrs: vec![(b"user.k".to_vec(), vec![0, 1])], ..Meta::default() },
            node: Node::File(Content::whole(b"x")),
        };
        let step = SwapStep {
            path: RelPath::new(&b"d/odd \xff"[..]).unwrap(),
            old: None,
            new: Some(Expected { entry }),
            how: How::Swap { slot: 3 },
        };
        let json = serde_json::to_string(&step).unwrap();
        assert_eq!(serde_json::from_str::<SwapStep>(&json).unwrap(), step);
        assert_eq!(serde_json::from_str::<How>("\"meta\"").unwrap(), How::Meta);
    }

    #[test]
    fn hostile_steps_are_refused() {
        for entry in ["!", "AA==", "AQ=="] {
            let json = format!(r#"{{"path":"a","old":{{"entry":"{entry}"}},"new":null,"how":"meta"}}"#);
            assert!(serde_json::from_str::<SwapStep>(&json).is_err(), "{entry}");
        }
    }

    #[test]
    fn every_word_reads_back() {
        for word in Strategy::ALL {
            assert_eq!(word.as_str().parse::<Strategy>().unwrap(), *word);
        }
        for word in Verb::ALL {
            assert_eq!(word.as_str().parse::<Verb>().unwrap(), *word);
        }
        for word in RollbackState::ALL {
            assert_eq!(word.as_str().parse::<RollbackState>().unwrap(), *word);
        }
        for word in Action::ALL {
            assert_eq!(word.as_str().parse::<Action>().unwrap(), *word);
        }
        assert!("sideways".parse::<Strategy>().is_err());
    }

    #[test]
    fn nodes_have_words() {
        assert_eq!(type_word(&Node::File(Content::whole(b""))), "file");
        assert_eq!(type_word(&Node::Directory(ObjectId::from_bytes([0; 32]))), "directory");
        assert_eq!(type_word(&Node::Symlink(vec![b'a'])), "symlink");
    }
}
