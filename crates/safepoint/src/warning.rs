//! Warnings: facts that users should know although a verb succeeded. The faces turn them into sentences and hints.

use crate::{Error, Failure, LostRepository};
use safepoint_model::checkpoint::PartKind;
use safepoint_model::id::SessionId;
use safepoint_model::{RelPath, RollbackId};
use safepoint_workspace::{Lack, LostAccess};
use std::path::PathBuf;

/// A fact that users should know although a verb succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Old checkpoints were pruned to make room under the cap.
    PrunedForRoom {
        /// The number of pruned checkpoints.
        count: u64,
    },
    /// Old checkpoints that no remote has were pruned to make room under the cap, oldest first.
    PrunedUnpublished {
        /// The number of pruned checkpoints.
        count: u64,
    },
    /// The store is nearly as large as it may become.
    NearCap {
        /// Length of all packs.
        used_bytes: u64,
        /// Maximum length of all packs.
        allowed_bytes: u64,
    },
    /// Old checkpoints could not be pruned.
    NotPruned {
        /// The cause.
        why: Failure,
    },
    /// The space of deleted checkpoints could not be freed.
    SpaceNotFreed {
        /// The cause.
        why: Failure,
    },
    /// Processes of a dead run were ended.
    LeftoversEnded {
        /// The number of processes.
        count: u64,
    },
    /// Displaced files are still in the workspace's own folder.
    DisplacedKept {
        /// The cause.
        why: Failure,
    },
    /// One displaced entry could not be inspected or deleted and is kept.
    DisplacedStuck {
        /// Its path before the rollback.
        path: RelPath,
        /// The cause, as the file system reported it.
        why: String,
    },
    /// Another home began a rollback in this workspace and did not finish it.
    ForeignRollback {
        /// The rollback.
        rollback: RollbackId,
    },
    /// A rollback is half done, and the home cannot be written.
    HalfDone,
    /// Another folder of the same rollback could not be recovered.
    FolderNotRecovered {
        /// The folder.
        root: PathBuf,
        /// The cause.
        why: Failure,
    },
    /// Another program moved refs; they stay.
    GitMovedByOthers {
        /// The names of the refs.
        refs: Vec<String>,
    },
    /// The repository is not rolled back.
    GitNotMoved {
        /// The cause.
        why: Failure,
    },
    /// The repository moved after the rollback that is undone, and stays as it is.
    GitMovedSinceRollback,
    /// HEAD is elsewhere than at the time of the checkpoint, and stays there.
    GitMovedSinceCheckpoint {
        /// The place of HEAD in the checkpoint.
        then: GitPlace,
        /// The place of HEAD now.
        now: GitPlace,
    },
    /// The repository that the workspace had is missing.
    RepositoryMissing(LostRepository),
    /// The checkpoint is kept, and no commit was made of it.
    NotCommitted {
        /// The cause.
        why: Failure,
    },
    /// The commit is made and tagged, and the branch was not moved.
    BranchNotMoved {
        /// The cause.
        why: Failure,
    },
    /// Paths are not in the commit, since git refuses their names.
    NamesNotCommitted {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// Paths are not in the commit, since git would store every zero of their holes.
    HolesNotCommitted {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// Tags of a deleted checkpoint are still in the repository.
    TagsNotRemoved {
        /// The tags.
        tags: Vec<String>,
        /// The cause.
        why: Failure,
    },
    /// The session of the checkpoint is not rolled back, since the caller works for another one.
    OtherSession {
        /// The session of the checkpoint.
        session: SessionId,
    },
    /// The session of the checkpoint is not on record any more.
    SessionMissing {
        /// The session of the checkpoint.
        session: SessionId,
    },
    /// The code of a part is not registered in this program, so the part stays as it is.
    PartNotRegistered {
        /// The kind of the part.
        kind: PartKind,
        /// The name of the part.
        name: String,
        /// The program that brings the code.
        program: String,
    },
    /// A part of another program reports it in its own words.
    FromPart {
        /// The sentence.
        text: String,
    },
    /// The workspace's settings cannot be used and are ignored.
    SettingsIgnored {
        /// The message of the reader of the settings.
        why: String,
    },
    /// The file system of a workspace lacks a feature.
    FileSystemLacks(Lack),
    /// Access rights that cannot be restored.
    AccessNotRestored(LostAccess),
    /// The disk is nearly full; an emergency checkpoint was taken.
    LowDiskSpace,
    /// Commands were ended, since another machine has the plan or could get it.
    LeaseLost {
        /// Name of the remote.
        remote: String,
        /// The cause.
        why: Failure,
    },
    /// The emergency checkpoint of a stopped run could not be taken.
    NoEmergencyCheckpoint {
        /// The cause.
        why: Failure,
    },
    /// The warning is about one of several folders.
    InFolder {
        /// The folder.
        root: PathBuf,
        /// The warning.
        warning: Box<Warning>,
    },
}

/// The place of HEAD in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GitPlace {
    /// A branch and its commit.
    Branch {
        /// The short name.
        name: String,
        /// The short id of the commit.
        commit: String,
    },
    /// A branch without a commit.
    Unborn {
        /// The short name.
        name: String,
    },
    /// A commit without a branch.
    Detached {
        /// The short id of the commit.
        commit: String,
    },
}

impl Warning {
    /// Returns the stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PrunedForRoom { .. } => "pruned_for_room",
            Self::PrunedUnpublished { .. } => "pruned_unpublished",
            Self::NearCap { .. } => "near_cap",
            Self::NotPruned { .. } => "not_pruned",
            Self::SpaceNotFreed { .. } => "space_not_freed",
            Self::LeftoversEnded { .. } => "leftovers_ended",
            Self::DisplacedKept { .. } => "displaced_kept",
            Self::DisplacedStuck { .. } => "displaced_stuck",
            Self::ForeignRollback { .. } => "foreign_rollback",
            Self::HalfDone => "half_done",
            Self::FolderNotRecovered { .. } => "folder_not_recovered",
            Self::GitMovedByOthers { .. } => "git_moved_by_others",
            Self::GitNotMoved { .. } => "git_not_moved",
            Self::GitMovedSinceRollback => "git_moved_since_rollback",
            Self::GitMovedSinceCheckpoint { .. } => "git_moved_since_checkpoint",
            Self::RepositoryMissing(_) => "repository_missing",
            Self::NotCommitted { .. } => "not_committed",
            Self::BranchNotMoved { .. } => "branch_not_moved",
            Self::NamesNotCommitted { .. } => "names_not_committed",
            Self::HolesNotCommitted { .. } => "holes_not_committed",
            Self::TagsNotRemoved { .. } => "tags_not_removed",
            Self::OtherSession { .. } => "other_session",
            Self::SessionMissing { .. } => "session_missing",
            Self::PartNotRegistered { .. } => "part_not_registered",
            Self::FromPart { .. } => "from_part",
            Self::SettingsIgnored { .. } => "settings_ignored",
            Self::FileSystemLacks(Lack::Exchange) => "no_exchange",
            Self::FileSystemLacks(Lack::NoReplace) => "no_exclusive_rename",
            Self::FileSystemLacks(Lack::Leases) => "no_leases",
            Self::FileSystemLacks(Lack::Case) => "case_insensitive",
            Self::AccessNotRestored(_) => "access_not_restored",
            Self::LowDiskSpace => "low_disk_space",
            Self::LeaseLost { .. } => "lease_lost",
            Self::NoEmergencyCheckpoint { .. } => "no_emergency_checkpoint",
            Self::InFolder { warning, .. } => warning.code(),
        }
    }

    /// Names the folder that the warning is about.
    pub(crate) fn in_folder(self, root: PathBuf) -> Self {
        Self::InFolder { root, warning: Box::new(self) }
    }
}

/// The cause of a warning, as data.
pub(crate) fn cause(error: impl Into<Error>) -> Failure {
    Failure::from(&error.into())
}
