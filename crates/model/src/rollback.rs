//! The record of a rollback: what was asked, what was done to each path, and how it ended.

use crate::checkpoint::{PartKind, word_type};
use crate::tree::{Entry, Node};
use crate::{CheckpointId, ModelError, ObjectId, RelPath, RollbackId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

word_type! {
    /// How a rollback goes about it (R5.2).
    Strategy, "strategy", {
        /// Verify, then everything in one step.
        Immediate = "immediate",
        /// Build beside, check, then the step.
        Staged = "staged",
        /// Only the chosen parts.
        Selective = "selective",
        /// Back one at a time until a check passes.
        Progressive = "progressive",
    }
}

word_type! {
    /// Which verb made the record.
    Verb, "verb", {
        /// Back to a checkpoint.
        Rollback = "rollback",
        /// Takes a rollback back.
        Undo = "undo",
        /// Does one again.
        Redo = "redo",
        /// Takes over what a plan made in its sandbox.
        Apply = "apply",
    }
}

word_type! {
    /// Where it stands. The change to `done` is the commit.
    RollbackState, "rollback state", {
        /// Entries are being exchanged; a crash now means: put the old ones back.
        Applying = "applying",
        /// Committed; displaced files may still wait to be checked and deleted.
        Done = "done",
        /// Committed, and nothing is left to do.
        Settled = "settled",
        /// Put back: the old state is the true one.
        Aborted = "aborted",
        /// Refused before anything was touched.
        Refused = "refused",
    }
}

word_type! {
    /// What was done to a path.
    Action, "action", {
        /// Replaced by what the checkpoint holds.
        Restored = "restored",
        /// Made, because the checkpoint holds it.
        Created = "created",
        /// Taken away, because the checkpoint does not hold it.
        Removed = "removed",
        /// Left, because it holds things that were never captured.
        Kept = "kept",
    }
}

/// One path and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPath {
    /// Where.
    pub path: RelPath,
    /// What.
    pub action: Action,
}

/// An edit that somebody made while the rollback ran, and where it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescued {
    /// Where it was.
    pub path: RelPath,
    /// The checkpoint that holds it now, under the same path.
    #[serde(rename = "checkpoint_or_object")]
    pub checkpoint: CheckpointId,
    /// What was noticed.
    pub why: String,
}

/// One step of APPLY. A list of these, made durable before the first of them, is all that recovery needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The path that changes.
    pub path: RelPath,
    /// What stands there before; nothing when the path is to be made.
    pub old: Option<Expected>,
    /// What stands there after; nothing when the path is to be taken away.
    pub new: Option<Expected>,
    /// How.
    pub how: How,
}

/// How a step changes its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The entry is exchanged with, moved in from, or moved out to the slot of this number.
    Swap {
        /// Number of the slot in the stage folder.
        slot: u64,
    },
    /// Mode, owner and attributes are set on what is there.
    Meta,
}

/// What is expected to stand at a path: enough to recognise it, and to build it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The entry in the canonical bytes of a tree with this one entry; the name is that of the path.
    #[serde(with = "entry_bytes")]
    pub entry: Entry,
}

mod entry_bytes {
    //! An entry inside JSON: base64 of a tree that holds just this entry.
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

/// The whole record of a rollback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// Its name.
    pub id: RollbackId,
    /// The workspace that it changes.
    pub workspace_id: WorkspaceId,
    /// What it is a part of, where it goes together with rollbacks of other workspaces: all of them are done, or none.
    pub together: Option<RollbackId>,
    /// Rollback, undo or redo.
    pub verb: Verb,
    /// The record that an undo or redo answers.
    pub answers: Option<RollbackId>,
    /// The checkpoint that the workspace was at, if it was at one.
    pub from: Option<CheckpointId>,
    /// The checkpoint whose state was asked for.
    pub to: CheckpointId,
    /// The present just before, durable: what "old" means. Nothing when the rollback was refused before it was taken.
    pub safety_checkpoint: Option<CheckpointId>,
    /// How it went about it.
    pub strategy: Strategy,
    /// The kinds of parts that were chosen; empty for all that the checkpoint holds.
    pub parts: Vec<PartKind>,
    /// The paths that were chosen; empty for everything.
    pub paths: Vec<RelPath>,
    /// Where it stands.
    pub state: RollbackState,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Who asked: a user name or a tool.
    pub actor: String,
    /// Files and links that were put back or made.
    pub restored_files_count: u64,
    /// Files and links that were taken away.
    pub removed_files_count: u64,
    /// The document that lists every changed path ([`ChangedPath`]).
    pub changed_paths: Option<ObjectId>,
    /// Edits that were found changed meanwhile.
    pub rescued: Vec<Rescued>,
    /// Why it failed, for one that did.
    pub error: Option<String>,
}

/// The word that describes a node, as people and JSON know it.
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
        let step = Step {
            path: RelPath::new(&b"d/odd \xff"[..]).unwrap(),
            old: None,
            new: Some(Expected { entry }),
            how: How::Swap { slot: 3 },
        };
        let json = serde_json::to_string(&step).unwrap();
        assert_eq!(serde_json::from_str::<Step>(&json).unwrap(), step);
        assert_eq!(serde_json::from_str::<How>("\"meta\"").unwrap(), How::Meta);
    }

    #[test]
    fn hostile_steps_are_refused() {
        for entry in ["!", "AA==", "AQ=="] {
            let json = format!(r#"{{"path":"a","old":{{"entry":"{entry}"}},"new":null,"how":"meta"}}"#);
            assert!(serde_json::from_str::<Step>(&json).is_err(), "{entry}");
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
