//! Checkpoints and rollback for the work of AI agents.
//!
//! A checkpoint is a named, immutable set of parts: files, plans, sessions, agents, git state. A rollback
//! restores all parts to a checkpoint, or none, even after a crash. It is a record that can be undone.
//!
//! ```
//! use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Silent};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! std::fs::write(project.path().join("notes.txt"), "good")?;
//!
//! let manager = CheckpointManager::open(home.path())?;
//! let workspace = manager.workspaces().register(project.path())?;
//! let created = manager.create(&workspace, &CreateOptions::default(), &Silent)?;
//!
//! std::fs::remove_file(project.path().join("notes.txt"))?;
//! manager.rollback(&workspace, created.checkpoint.id, &RollbackOptions::default(), &Silent)?;
//! assert_eq!(std::fs::read(project.path().join("notes.txt"))?, b"good");
//!
//! manager.undo(&workspace, &RollbackOptions::default(), &Silent)?;
//! assert!(!project.path().join("notes.txt").exists());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` has longer programs: a rollback and its undo, an externally driven plan, the memory of an
//! agent. To keep your own state in checkpoints, implement [`PartProvider`]; see `crates/example-part`.
//!
//! A process that has a SQLite database in the workspace open must not capture that workspace. Closing a file
//! drops all POSIX locks of the process on it, including those of SQLite
//! ([howtocorrupt](https://sqlite.org/howtocorrupt.html), 2.2). Run the `safepoint` command instead.
//!
//! Only this crate orders effects across the store, catalog and workspace crates. It never prints and never
//! reads the environment.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests set up folders"))]

mod agents;
mod attempts;
mod checkpoint;
mod config;
mod defaults;
mod environment;
mod error;
mod exchange;
mod failure;
mod folders;
mod handles;
mod home;
mod manager;
mod parts;
mod places;
mod plans;
mod process;
mod remotes;
mod rollback;
mod sessions;
mod spelling;
mod threads;
mod turns;
mod upkeep;
mod warning;
mod workspaces;

pub use agents::agent_path;
pub use attempts::capture::AttemptFinished;
pub use attempts::counts::test_counts;
pub use attempts::keep::{AttemptKept, KeepAttempt, Others};
pub use attempts::start::{AttemptStarted, Sharing, StartAttempt};
pub use attempts::{AttemptShown, Better, InAttempt};
pub use checkpoint::compare::{Against, Comparison, Status, Survey};
pub use checkpoint::create::{CreateOptions, Created, IfUnchanged, Subject, Urgency};
pub use checkpoint::find::{Entries, ListedEntry};
pub use checkpoint::git::{GitCommit, GitStatus, Tags};
pub use checkpoint::lines::{ChangedLines, ChangedText};
pub use checkpoint::pages::GoodReason;
pub use checkpoint::records::CatalogStanding;
pub use checkpoint::versions::{Letters, TextFound, TextSearch, Version, VersionChange, Versions};
pub use config::{
    Config, ConfigError, ConfigFile, Durability, Effective, HomeConfig, RemoteConfig, RetentionConfig,
    SessionCommits, TestCommand, WorkspaceConfig,
};
pub use defaults::Defaults;
pub use environment::{Environment, SystemEnvironment};
pub use error::{Error, NamedCandidate, Wish};
pub use exchange::{Exported, ImportOptions, Imported, Layout, LayoutError, OutsideMemory, check_layout};
pub use failure::{Failure, FailureKind};
pub use folders::{HeldFolder, within};
pub use handles::{
    Agents, Attempts, Checkpoints, Plans, Remotes, Sessions, Threads, Turns, Upkeep, Workspaces,
};
pub use home::{Access, HomeOwner, PendingCache};
pub use manager::{CheckpointManager, Settings};
pub use parts::databases::{BackupError, back_up_database};
pub use parts::git::{GitCapture, GitMoved, GitReset, LostRepository};
pub use parts::outside::PartProvider;
pub use parts::part::{Captured, Left, Note, Outline, Part, Prepared, PutBack};
pub use parts::session::SessionBack;
pub use parts::thread::ThreadBack;
pub use plans::apply::{Applied, Merge};
pub use plans::correct::{Corrected, Fix, Revert};
pub use plans::guard::DeadRun;
pub use plans::plan_file::{
    PLAN_FILE_BYTES_MAX, Place, PlanFile, PlanFileError, PlanFileProblem, PlanFormat, PlanProblemKind,
};
pub use plans::runner::{Interrupted, RunEvent, RunObserver, RunOptions, RunReport};
pub use plans::sandbox::Missing;
pub use plans::{NewDecision, StepMoved};
pub use process::{Exit, Job, Stop, run as run_job};
pub use remotes::fetch::{Cloned, Fetched};
pub use remotes::lease::{LeaseOptions, PlanLease};
pub use remotes::leaving::Leaving;
pub use remotes::publishable::PublishedMemory;
pub use remotes::push::{PushExtent, PushOptions, Pushed};
pub use remotes::soon::Publisher;
pub use remotes::take::{PlanTaken, TakePlan};
pub use remotes::{LineStanding, NewRemote};
pub use rollback::build::Built;
pub use rollback::effects::{FailedUndo, NotUndone, NotUndoneReason, Undone};
pub use rollback::history::Happened;
pub use rollback::recover::Recovery;
pub use rollback::release::WaitingStored;
pub use rollback::search::{Probed, Progressed, Search, SearchWatch, TryIn, Until};
pub use rollback::strategy::{Check, Printed, Staged, StagedEnd, Trial, Verdict};
pub use rollback::unusable::FolderProblem;
pub use rollback::{DryRun, FolderRolledBack, LaterChanges, LeftAlone, RollbackOptions, RolledBack, Strict};
pub use sessions::{NewSession, SessionLog};
pub use threads::erase::ThreadErased;
pub use threads::trim::{KeepStates, Removal};
pub use threads::{
    ListStates, ListedStates, ListedValues, NewState, NewWrite, NewWrites, StateKey, StatePage,
};
pub use turns::{
    BegunTurn, ChangingCall, Extent, MissingTurn, NewTurn, RollbackEffects, SeenSession, SessionMoment,
    SharedPath, TouchedTurn, TurnSide, TurnUndone, TurnWork,
};
pub use upkeep::capped::{Capped, Need};
pub use upkeep::purge::PurgeReport;
pub use upkeep::rebuild::Rebuilt;
pub use upkeep::repair::Repair;
pub use upkeep::space::{AttemptSpace, CheckpointSpace, Space, WorkspaceSpace};
pub use upkeep::validate::{DamagedPart, Validation};
pub use upkeep::{Cap, Judged, Policies, Thoroughness};
pub use warning::{GitPlace, Warning};

pub use safepoint_catalog::Transaction;
pub use safepoint_catalog::{
    BrokenEvent, Bucket, Event, EventCheck, ExistingWrites, Filter, OwnCheckpoints, Page, Pinned, Placed,
    PlanCheckpoint, PlanNote, PlanRecord, PlanSummary, PublishedAt, RoleFilter, StoredRemote, Summary,
    TurnAt, Workspace, sqlite_version,
};
pub use safepoint_model as model;
pub use safepoint_model::progress::{Activity, Progress, Silent};
pub use safepoint_remote as remote;
pub use safepoint_store::{Collected, Depth, Outcome, Usage, Writer};
pub use safepoint_workspace::{
    Blocked, Bulk, BulkLimits, BulkyFolder, Capabilities, Ended, Finding, Intruder, Lack, LostAccess,
    LostAccessKind, Notice, Outside, RoomEntry, RoomMount, RoomProcess, Times, enter_room, room_mounts,
};
