//! Record of a checkpoint (R1.1), and its enumerations.

use crate::outside::OutsideKind;
use crate::{CheckpointId, ModelError, ObjectId, Timestamp, WorkspaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

macro_rules! word_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All values, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// Returns the text form.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ModelError;

            fn from_str(text: &str) -> Result<Self, ModelError> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| ModelError::Word {
                    what: $what,
                    given: text.to_owned(),
                    allowed: [$($word),+].join(", "),
                })
            }
        }
    };
}
pub(crate) use word_type;

word_type! {
    /// Origin of a checkpoint (R1.3).
    Kind, "kind", {
        /// Taken automatically before a major operation.
        Automatic = "automatic",
        /// Taken on request.
        Manual = "manual",
        /// Milestone of a plan.
        Workflow = "workflow",
        /// Emergency backup while an error is developing.
        Emergency = "emergency",
    }
}

word_type! {
    /// Reason to record a checkpoint (R1.4).
    Reason, "reason", {
        /// End of a phase.
        PhaseComplete = "phase_complete",
        /// End of a group of tasks.
        TaskGroupComplete = "task_group_complete",
        /// Known good state.
        SafeState = "safe_state",
        /// Before a risky operation.
        PreRiskyOperation = "pre_risky_operation",
        /// After an error.
        ErrorRecovery = "error_recovery",
        /// Request by the user or an agent.
        Manual = "manual",
    }
}

word_type! {
    /// Phase of the work (R1.5).
    Phase, "phase", {
        /// Planning.
        Plan = "plan",
        /// Splitting the work into tasks.
        GenerateTasks = "generate_tasks",
        /// Implementation.
        Implement = "implement",
        /// Validation.
        Validate = "validate",
        /// Cleanup.
        Cleanup = "cleanup",
    }
}

word_type! {
    /// Scope of the captured parts (R1.6).
    Scope, "scope", {
        /// Whole installation.
        Framework = "framework",
        /// One workspace.
        Project = "project",
        /// One agent.
        Agent = "agent",
        /// One plan.
        Workflow = "workflow",
    }
}

word_type! {
    /// Purpose of a checkpoint that Safepoint made for itself.
    Role, "role", {
        /// Current state just before a rollback.
        Safety = "safety",
        /// Edits detected during a rollback.
        Rescue = "rescue",
    }
}

/// Kind of part in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartKind {
    /// Files of a workspace.
    Files,
    /// State of a plan.
    Plan,
    /// Configuration and memory of an agent.
    Agent,
    /// Session.
    Session,
    /// Thread of a conversation.
    Thread,
    /// Refs and index of a git repository.
    Git,
    /// Whole folder of a git repository.
    GitFolder,
    /// Part of another program.
    Outside(OutsideKind),
}

impl PartKind {
    /// All built-in kinds, in the order of the documentation.
    pub const ALL: &'static [PartKind] = &[
        PartKind::Files,
        PartKind::Plan,
        PartKind::Agent,
        PartKind::Session,
        PartKind::Thread,
        PartKind::Git,
        PartKind::GitFolder,
    ];

    /// Returns the text form.
    pub fn as_str(&self) -> &str {
        match self {
            PartKind::Files => "files",
            PartKind::Plan => "plan",
            PartKind::Agent => "agent",
            PartKind::Session => "session",
            PartKind::Thread => "thread",
            PartKind::Git => "git",
            PartKind::GitFolder => "git_folder",
            PartKind::Outside(kind) => kind.as_str(),
        }
    }
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PartKind {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        if text.contains('.') {
            return Ok(PartKind::Outside(text.parse()?));
        }
        let words = || Self::ALL.iter().map(PartKind::as_str).collect::<Vec<_>>().join(", ");
        Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| ModelError::Word {
            what: "part",
            given: text.to_owned(),
            allowed: words(),
        })
    }
}

impl Serialize for PartKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PartKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Progress of the work: six counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counters {
    /// Completed tasks.
    pub tasks_completed: u64,
    /// Decisions made.
    pub decisions_made: u64,
    /// Modified files.
    pub files_modified: u64,
    /// Created files.
    pub files_created: u64,
    /// Passing tests.
    pub tests_passing: u64,
    /// Failing tests.
    pub tests_failing: u64,
}

impl Counters {
    /// Sets a counter by name.
    ///
    /// # Errors
    /// When the name is unknown.
    pub fn set(&mut self, counter: &str, value: u64) -> Result<(), ModelError> {
        let field = match counter {
            "tasks_completed" => &mut self.tasks_completed,
            "decisions_made" => &mut self.decisions_made,
            "files_modified" => &mut self.files_modified,
            "files_created" => &mut self.files_created,
            "tests_passing" => &mut self.tests_passing,
            "tests_failing" => &mut self.tests_failing,
            _ => {
                return Err(ModelError::Word {
                    what: "counter",
                    given: counter.to_owned(),
                    allowed: "tasks_completed, decisions_made, files_modified, files_created, tests_passing, tests_failing".to_owned(),
                });
            }
        };
        *field = value;
        Ok(())
    }
}

/// Totals of a checkpoint, and its differences from the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of files, links and directories.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Entries missing in the parent.
    pub added: u64,
    /// Entries that differ in the parent.
    pub modified: u64,
    /// Entries only in the parent.
    pub removed: u64,
}

/// Captured part: its kind, its key and its document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Kind of part.
    pub kind: PartKind,
    /// Key: a workspace id, a plan id or an agent name.
    pub key: String,
    /// Document that describes it.
    pub document: ObjectId,
}

/// Record of a checkpoint, with every field of R1.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Workspace that it was taken in.
    pub workspace_id: Option<WorkspaceId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Label given by the user.
    pub label: Option<String>,
    /// Origin.
    pub kind: Kind,
    /// Reason to record it.
    pub reason: Reason,
    /// Scope of its parts.
    pub scope: Scope,
    /// Phase of the work.
    pub phase: Option<Phase>,
    /// Purpose, if Safepoint made it for itself.
    pub role: Option<Role>,
    /// Plan that it belongs to.
    pub plan_id: Option<String>,
    /// Session that it belongs to.
    pub session_id: Option<String>,
    /// Step of the plan at that time.
    pub step_index: Option<u64>,
    /// Hash of the plan's state.
    pub state_hash: Option<ObjectId>,
    /// Object with the plan's state.
    pub state_snapshot: Option<ObjectId>,
    /// Progress of the work.
    pub progress: Counters,
    /// Sandbox that it was taken in.
    pub sandbox_ref: Option<String>,
    /// Tool that requested it.
    pub source_tool: Option<String>,
    /// Decision at which it was taken.
    pub decision_id: Option<String>,
    /// Equivalent git commit.
    pub commit_sha: Option<String>,
    /// Message of that commit.
    pub commit_message: Option<String>,
    /// Tags of that commit.
    pub tags: Vec<String>,
    /// True if it is never pruned.
    pub pinned: bool,
    /// True if a rollback ever restored it.
    pub rollback_used: bool,
    /// Number of rollbacks to it.
    pub rollback_count: u64,
    /// Bytes that it added to the store.
    pub size_bytes: u64,
    /// Totals of the files in it.
    pub files: Totals,
    /// Previous checkpoint of the workspace.
    pub parent: Option<CheckpointId>,
    /// Object that covers all of it: the manifest.
    pub integrity: ObjectId,
    /// Captured parts.
    pub parts: Vec<PartRecord>,
    /// Warnings of the validation at creation (R2.4).
    pub warnings: Vec<String>,
    /// Numbers that the work reported before it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

impl Checkpoint {
    /// Returns the number of parts of a kind.
    pub fn count(&self, kind: PartKind) -> usize {
        self.parts.iter().filter(|part| part.kind == kind).count()
    }
}

/// Object behind [`Checkpoint::integrity`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this document.
    pub format: u32,
    /// Parts, sorted by kind and key.
    pub parts: Vec<PartRecord>,
}

impl Manifest {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates the manifest of these parts, in any order.
    pub fn new(mut parts: Vec<PartRecord>) -> Self {
        parts.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        Self { format: Self::FORMAT, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;

    #[test]
    fn every_word_reads_back_and_others_are_refused_with_the_list() {
        fn words<T: FromStr<Err = ModelError> + fmt::Display + PartialEq + fmt::Debug + Copy>(all: &[T]) {
            for word in all {
                assert_eq!(&word.to_string().parse::<T>().unwrap(), word);
            }
            let error = "nonsense".parse::<T>().unwrap_err().to_string();
            assert!(error.contains("expected one of") && error.contains(&all[0].to_string()), "{error}");
        }
        words(Kind::ALL);
        words(Reason::ALL);
        words(Phase::ALL);
        words(Scope::ALL);
        words(Role::ALL);
        words(PartKind::ALL);
    }

    #[test]
    fn json_uses_the_same_words() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
    }

    #[test]
    fn counters_are_set_by_name() {
        let mut progress = Counters::default();
        for (at, name) in [
            "tasks_completed",
            "decisions_made",
            "files_modified",
            "files_created",
            "tests_passing",
            "tests_failing",
        ]
        .iter()
        .enumerate()
        {
            progress.set(name, at as u64 + 1).unwrap();
        }
        assert_eq!(serde_json::to_value(progress).unwrap()["tests_failing"], 6);
        assert!(progress.set("tests", 1).is_err());
    }

    #[test]
    fn a_manifest_is_the_same_for_any_order_of_parts() {
        let part = |key: &str| PartRecord {
            kind: PartKind::Files,
            key: key.to_owned(),
            document: ObjectId::of(ObjectKind::Document, b""),
        };
        assert_eq!(Manifest::new(vec![part("a"), part("b")]), Manifest::new(vec![part("b"), part("a")]));
    }
}
