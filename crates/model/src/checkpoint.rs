//! The record of a checkpoint (R1.1), and the words that it may use.

use crate::outside::OutsideKind;
use crate::{CheckpointId, ModelError, ObjectId, Timestamp, WorkspaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
            /// Every word, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word itself.
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
    /// Why a checkpoint exists (R1.3).
    Kind, "kind", {
        /// Taken by itself, before a major operation.
        Automatic = "automatic",
        /// Asked for.
        Manual = "manual",
        /// A milestone of a plan.
        Workflow = "workflow",
        /// State preservation when something is going wrong.
        Emergency = "emergency",
    }
}

word_type! {
    /// What gave the occasion (R1.4).
    Reason, "reason", {
        /// A phase ended.
        PhaseComplete = "phase_complete",
        /// A group of tasks ended.
        TaskGroupComplete = "task_group_complete",
        /// The state is known to be good.
        SafeState = "safe_state",
        /// Something risky comes next.
        PreRiskyOperation = "pre_risky_operation",
        /// Something went wrong.
        ErrorRecovery = "error_recovery",
        /// Somebody asked.
        Manual = "manual",
    }
}

word_type! {
    /// Where in the work it was taken (R1.5).
    Phase, "phase", {
        /// Planning.
        Plan = "plan",
        /// Cutting the work into tasks.
        GenerateTasks = "generate_tasks",
        /// Doing it.
        Implement = "implement",
        /// Checking it.
        Validate = "validate",
        /// Tidying up.
        Cleanup = "cleanup",
    }
}

word_type! {
    /// Which parts it holds (R1.6).
    Scope, "scope", {
        /// The whole installation.
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
    /// What a checkpoint was made for by Safepoint itself; nothing for one that a user or an agent asked for.
    Role, "role", {
        /// The present, just before a rollback.
        Safety = "safety",
        /// Edits that were found changed while a rollback ran.
        Rescue = "rescue",
    }
}

/// What can be in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartKind {
    /// The files of a workspace.
    Files,
    /// The state of a plan.
    Plan,
    /// An agent's configuration and memory.
    Agent,
    /// A session.
    Session,
    /// A git repository's refs and index.
    Git,
    /// All of a git repository's folder.
    GitFolder,
    /// What another program brings.
    Outside(OutsideKind),
}

impl PartKind {
    /// Every kind that is known here, in the order of the documentation.
    pub const ALL: &'static [PartKind] = &[
        PartKind::Files,
        PartKind::Plan,
        PartKind::Agent,
        PartKind::Session,
        PartKind::Git,
        PartKind::GitFolder,
    ];

    /// The word itself.
    pub fn as_str(&self) -> &str {
        match self {
            PartKind::Files => "files",
            PartKind::Plan => "plan",
            PartKind::Agent => "agent",
            PartKind::Session => "session",
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

/// How far the work was: six counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Progress {
    /// Tasks that are done.
    pub tasks_completed: u64,
    /// Decisions that were made.
    pub decisions_made: u64,
    /// Files that were changed.
    pub files_modified: u64,
    /// Files that were made.
    pub files_created: u64,
    /// Tests that pass.
    pub tests_passing: u64,
    /// Tests that fail.
    pub tests_failing: u64,
}

impl Progress {
    /// Sets a counter by its name.
    ///
    /// # Errors
    /// When no counter has this name.
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

/// What a checkpoint holds and how that differs from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Files, links and directories.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Not in the parent.
    pub added: u64,
    /// Different in the parent.
    pub modified: u64,
    /// Only in the parent.
    pub removed: u64,
}

/// One captured part: what it is of, and the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// What kind of thing.
    pub kind: PartKind,
    /// Which one: a workspace's id, a plan's id, an agent's name.
    pub key: String,
    /// The document that describes it.
    pub document: ObjectId,
}

/// The record of a checkpoint, with every field of R1.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its name.
    pub id: CheckpointId,
    /// The workspace it was taken in.
    pub workspace_id: Option<WorkspaceId>,
    /// When.
    pub created_at: Timestamp,
    /// What a person called it.
    pub label: Option<String>,
    /// Why it exists.
    pub kind: Kind,
    /// What gave the occasion.
    pub reason: Reason,
    /// Which parts it holds.
    pub scope: Scope,
    /// Where in the work it was taken.
    pub phase: Option<Phase>,
    /// What Safepoint itself made it for.
    pub role: Option<Role>,
    /// The plan it belongs to.
    pub plan_id: Option<String>,
    /// The session it belongs to.
    pub session_id: Option<String>,
    /// The step of the plan it was taken at.
    pub step_index: Option<u64>,
    /// Hash of the plan's state.
    pub state_hash: Option<ObjectId>,
    /// The document with the plan's state, stored as an object.
    pub state_snapshot: Option<ObjectId>,
    /// How far the work was.
    pub progress: Progress,
    /// The sandbox it was taken in.
    pub sandbox_ref: Option<String>,
    /// The tool that asked for it.
    pub source_tool: Option<String>,
    /// The decision it was taken at.
    pub decision_id: Option<String>,
    /// The commit that it also is.
    pub commit_sha: Option<String>,
    /// That commit's message.
    pub commit_message: Option<String>,
    /// Tags of that commit.
    pub tags: Vec<String>,
    /// Never pruned.
    pub pinned: bool,
    /// Whether a rollback ever went back to it.
    pub rollback_used: bool,
    /// How many did.
    pub rollback_count: u64,
    /// What it added to the store.
    pub size_bytes: u64,
    /// What it holds.
    pub files: Totals,
    /// The checkpoint that the workspace was at before.
    pub parent: Option<CheckpointId>,
    /// The object that speaks for all of it: the list of its parts.
    pub integrity: ObjectId,
    /// The parts.
    pub parts: Vec<PartRecord>,
    /// What validation had to say when it was taken (R2.4).
    pub warnings: Vec<String>,
}

impl Checkpoint {
    /// How many parts of a kind it holds.
    pub fn count(&self, kind: PartKind) -> usize {
        self.parts.iter().filter(|part| part.kind == kind).count()
    }
}

/// The object behind [`Checkpoint::integrity`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this document.
    pub format: u32,
    /// The parts, sorted by kind and key.
    pub parts: Vec<PartRecord>,
}

impl Manifest {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// The manifest of these parts, in whatever order they come.
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
        let mut progress = Progress::default();
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
