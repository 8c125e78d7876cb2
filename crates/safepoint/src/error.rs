//! Errors of the verbs.

use crate::checkpoint::records::CatalogStanding;
use crate::config::ConfigError;
use crate::exchange::LayoutError;
use crate::plans::plan_file::PlanFileError;
use crate::turns::SharedPath;
use crate::upkeep::capped::{Capped, Need};
use safepoint_catalog::CatalogError;
use safepoint_git::GitError;
use safepoint_model::attempt::AttemptState;
use safepoint_model::change::GraftError;
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::plan::clean::NoneClean;
use safepoint_model::plan::state::{PlanRule, PlanState};
use safepoint_model::rollback::Verb;
use safepoint_model::session::SessionRule;
use safepoint_model::{
    Bytes, CheckpointId, LineId, ModelError, ObjectError, RelPath, RollbackId, Timestamp, WorkspaceId,
};
use safepoint_remote::RemoteError;
use safepoint_store::StoreError;
use safepoint_workspace::{RoomProcess, WorkspaceError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Attempt on a plan that is being run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Run it as well.
    Run,
    /// Change it under its runner.
    Change,
}

/// So many paths are named in a sentence.
const PATHS_NAMED: usize = 5;

fn some(paths: &[impl ToString]) -> String {
    let mut named: Vec<String> = paths.iter().take(PATHS_NAMED).map(ToString::to_string).collect();
    if paths.len() > PATHS_NAMED {
        named.push(format!("and {} more", paths.len() - PATHS_NAMED));
    }
    named.join(", ")
}

fn named(processes: &[RoomProcess]) -> String {
    let names: Vec<String> =
        processes.iter().map(|process| format!("{} ({})", process.name, process.pid)).collect();
    some(&names)
}

/// A checkpoint that an ambiguous name could mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCandidate {
    /// Its id.
    pub id: CheckpointId,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Its label.
    pub label: Option<String>,
}

impl From<&Checkpoint> for NamedCandidate {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self { id: checkpoint.id, created_at: checkpoint.created_at, label: checkpoint.label.clone() }
    }
}

/// A verb that failed. Unless it says otherwise, nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Safepoint's own folder cannot be used.
    #[error("cannot use Safepoint's home {}", path.display())]
    Home {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Safepoint's own folder belongs to another user.
    #[error("cannot use Safepoint's home {}: it belongs to user {uid}", path.display())]
    HomeOwner {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Safepoint's own folder cannot be written.
    #[error("cannot write Safepoint's home {}", path.display())]
    ReadOnlyHome {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder to build a checkpoint in is not empty.
    #[error("cannot build the checkpoint in {}: the folder is not empty", path.display())]
    NotEmpty {
        /// The path.
        path: PathBuf,
    },
    /// The folder is not one to take checkpoints of.
    #[error("{} is not taken as a workspace: {why}", path.display())]
    RefusedRoot {
        /// The path.
        path: PathBuf,
        /// The cause.
        why: &'static str,
    },
    /// The store belongs to another catalog, or to a later state of this one.
    #[error("cannot delete objects by this catalog: {}", match standing {
        CatalogStanding::Older => "it is an older copy, and the store holds checkpoints that it does not list",
        _ => "it is a new one, and the store holds checkpoints that it does not list",
    })]
    OtherCatalog {
        /// The standing of the catalog.
        standing: CatalogStanding,
    },
    /// The folder of a workspace that is to be moved exists.
    #[error("cannot move the workspace: its folder {} still exists", path.display())]
    StillThere {
        /// The old folder.
        path: PathBuf,
    },
    /// The folder to which a workspace is to be moved is a workspace with checkpoints.
    #[error("cannot move the workspace: {} is registered and has checkpoints", path.display())]
    HasCheckpoints {
        /// The old folder.
        old: PathBuf,
        /// The new folder.
        path: PathBuf,
    },
    /// No workspace is registered around this folder.
    #[error("no workspace is registered at or above {}", path.display())]
    NoWorkspace {
        /// The path.
        path: PathBuf,
    },
    /// Nothing has this name.
    #[error("no checkpoint is called {reference:?}")]
    NoCheckpoint {
        /// The name as typed.
        reference: String,
    },
    /// Several have it.
    #[error("{reference:?} names several checkpoints")]
    Ambiguous {
        /// The name as typed.
        reference: String,
        /// Some of them, newest first.
        candidates: Vec<NamedCandidate>,
    },
    /// The checkpoint is one of another workspace.
    #[error("checkpoint {checkpoint} belongs to another workspace")]
    OtherWorkspace {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint holds nothing of this workspace's files.
    #[error("checkpoint {checkpoint} holds no files of this workspace")]
    NoFiles {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint holds rescued files alone.
    #[error("checkpoint {checkpoint} holds only files that were rescued, not a whole workspace")]
    OnlyRescued {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The path is not in the checkpoint.
    #[error("{path} is not in checkpoint {checkpoint}")]
    NoPath {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The path.
        path: RelPath,
    },
    /// The path is there and is not a file.
    #[error("{path} is not a file in checkpoint {checkpoint}")]
    NotAFile {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The path.
        path: RelPath,
    },
    /// The current state is another one than a preview showed.
    #[error("the current state changed since the preview")]
    StalePreview,
    /// After the undo commands of steps a rollback would change a path that its preview did not show.
    #[error("{path} changed after the preview, during the undo commands; no file was rolled back")]
    ChangedDuringUndo {
        /// First such path.
        path: RelPath,
    },
    /// There is no rollback to take back.
    #[error("there is no rollback to undo")]
    NothingToUndo,
    /// The last rollback was about other paths.
    #[error("the last rollback did not change {}", some(paths))]
    NotInLastRollback {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// An undo or redo would discard changes that are newer than the last rollback, undo or redo.
    #[error("files changed since the last {}: {}", if *verb == Verb::Redo { "undo" } else { "rollback" }, some(paths))]
    ChangedSinceRollback {
        /// The refused action.
        verb: Verb,
        /// The paths that differ from what the last rollback left.
        paths: Vec<RelPath>,
    },
    /// There is no undo to take back.
    #[error("there is nothing to redo")]
    NothingToRedo,
    /// The home may not become larger.
    #[error(
        "the cap of {} is reached: {}{} are needed and {} are free",
        Bytes(.0.cap_bytes),
        if .0.need == Need::AtLeast { "at least " } else { "" },
        Bytes(.0.needed_bytes),
        Bytes(.0.free_bytes)
    )]
    Capped(Box<Capped>),
    /// No checkpoint holds what was to be purged.
    #[error("no checkpoint of this workspace holds {}", paths.iter().map(|path| format!("\"{path}\"")).collect::<Vec<_>>().join(" or "))]
    NoPurge {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// All of a workspace was to be purged.
    #[error("a whole workspace cannot be purged, only what is in it")]
    PurgeRoot,
    /// A checkpoint is damaged, so that what it needs is not known and nothing may be deleted.
    #[error("nothing can be freed while checkpoint {checkpoint} is damaged: what it needs is not known")]
    CannotCollect {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The damage.
        source: ObjectError,
    },
    /// Something of a checkpoint is damaged, so that it is not gone back to.
    #[error("checkpoint {checkpoint} is not whole: {what}")]
    NotWhole {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The problem.
        what: String,
    },
    /// No agent has this name.
    #[error("there is no agent {name:?}")]
    NoAgent {
        /// The name.
        name: String,
    },
    /// A checkpoint of several folders cannot be rolled back in one of them.
    #[error("checkpoint {checkpoint} spans several folders and must be rolled back as a whole")]
    GoesTogether {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// An imported checkpoint contains parts that are not registered on this machine.
    #[error("checkpoint {checkpoint} contains parts that are not registered on this machine: {}", what.join(", "))]
    Elsewhere {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The problems.
        what: Vec<String>,
        /// Commands that register the missing parts, where one command does.
        commands: Vec<String>,
    },
    /// The user's command fails in the target state.
    #[error("the check does not pass in checkpoint {checkpoint}: {why}")]
    CheckFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The command.
        command: String,
        /// The cause.
        why: String,
    },
    /// The user's command passes in none of the states.
    #[error("the check passes in none of the checkpoints ({tried} tried)")]
    NonePassed {
        /// The number of tried checkpoints.
        tried: usize,
    },
    /// There is too little space for a copy in which candidates could be tried.
    #[error(
        "cannot copy the workspace to {path}: the copy needs {}, {} are free",
        Bytes(*needed_bytes),
        Bytes(*free_bytes),
        path = path.display()
    )]
    NoRoomToTry {
        /// Folder that the copy would go to.
        path: PathBuf,
        /// Bytes that the copy takes.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// The checkpoint holds nothing of that kind.
    #[error("checkpoint {checkpoint} holds no part {part}")]
    NoPart {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The part.
        part: PartKind,
    },
    /// No plan has this id.
    #[error("there is no plan {id:?}")]
    NoPlan {
        /// The id.
        id: String,
    },
    /// The text is not a valid plan id.
    #[error("{id:?} is not an id of a plan: small letters, digits, dots, dashes and underscores, at most 64")]
    BadPlanId {
        /// The id.
        id: String,
    },
    /// The checkpoint holds no plan.
    #[error("checkpoint {checkpoint} holds no plan")]
    NoPlanInCheckpoint {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A rollback that a crash cut short includes a part that another program brings.
    #[error("rollback {rollback} was cut short, and {program} is needed to put {kind} back")]
    UnknownPart {
        /// The rollback.
        rollback: RollbackId,
        /// The kind of the part.
        kind: PartKind,
        /// The program that has the code.
        program: String,
    },
    /// A part that another program brings failed.
    #[error("{what}")]
    Part {
        /// The problem.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another command answered the rollback first.
    #[error("rollback {rollback} was undone or redone by another command at the same time")]
    AnsweredMeanwhile {
        /// The rollback.
        rollback: RollbackId,
    },
    /// The checkpoint is one of another plan, or of none.
    #[error("checkpoint {checkpoint} is not one of plan {id}")]
    OtherPlan {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The id.
        id: String,
    },
    /// The plan was applied, so it cannot be rolled back.
    #[error("plan {id} has been applied and is not rolled back any more")]
    PlanApplied {
        /// The id.
        id: String,
    },
    /// Nothing is wrong with the plan.
    #[error("plan {id} is healthy: no step has failed or was interrupted")]
    PlanHealthy {
        /// The id.
        id: String,
    },
    /// Another process changed the plan during its capture or rollback.
    #[error("plan {id} changed concurrently")]
    PlanChanged {
        /// The id.
        id: String,
    },
    /// Another process changed the session during its rollback.
    #[error("session {id} changed concurrently")]
    SessionChanged {
        /// The id.
        id: String,
    },
    /// A runner holds the plan.
    #[error("plan {id} is being run{}", pid.map_or_else(String::new, |pid| format!(" by process {pid}")))]
    PlanRunning {
        /// The id.
        id: String,
        /// By whom, as far as is known.
        pid: Option<u32>,
        /// The attempt.
        wish: Wish,
    },
    /// The sandbox of the plan is missing.
    #[error("the sandbox of plan {id} is missing: {}", path.display())]
    SandboxMissing {
        /// The id.
        id: String,
        /// The path.
        path: PathBuf,
    },
    /// The plan has already begun.
    #[error("plan {id} is {state}")]
    NotReady {
        /// The id.
        id: String,
        /// Its state.
        state: PlanState,
    },
    /// A step was interrupted; its progress is unknown.
    #[error("step {} was interrupted; its progress is unknown", steps.join(", "))]
    StepInterrupted {
        /// The id.
        id: String,
        /// The steps.
        steps: Vec<String>,
    },
    /// The undo command of a step failed.
    #[error("the undo command of step {step} failed: {why}")]
    UndoFailed {
        /// The step.
        step: String,
        /// The cause.
        why: String,
    },
    /// The project is not what the sandbox was made from.
    #[error("the project changed since the sandbox of plan {id} was made: {}", some(paths))]
    ProjectChanged {
        /// The id.
        id: String,
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// No attempt of the project has this name.
    #[error("no attempt is called {name:?}")]
    NoAttempt {
        /// The name as typed.
        name: String,
    },
    /// The attempt was kept or dropped.
    #[error("the attempt {name} is closed: it was {state}")]
    AttemptClosed {
        /// Its name.
        name: String,
        /// Its state.
        state: AttemptState,
    },
    /// An open attempt has this name.
    #[error("an open attempt is called {name} already")]
    AttemptExists {
        /// The name.
        name: String,
    },
    /// The project and the attempt changed the same paths in ways that cannot be merged.
    #[error("the project and the attempt {name} both changed: {}", some(paths))]
    AttemptConflict {
        /// Name of the attempt.
        name: String,
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// The command concerns the project, and this process is inside an attempt.
    #[error("this process is inside the attempt {name}, and cannot change the project")]
    InsideAttempt {
        /// Name or id of the attempt.
        name: String,
    },
    /// The attempt is the sandbox of an open plan.
    #[error("the attempt {name} is the sandbox of plan {plan}")]
    AttemptOfPlan {
        /// Name of the attempt.
        name: String,
        /// The plan.
        plan: String,
    },
    /// The sandbox of a plan is an overlay, in which a search cannot try checkpoints.
    #[error("cannot search in the sandbox {name}: it is an overlay")]
    SearchInOverlay {
        /// Name of the attempt that the sandbox is.
        name: String,
    },
    /// A process is in the sandbox of a plan, whose files are to change.
    #[error("cannot change the files of the sandbox {name} while processes run in it: {}", named(processes))]
    RoomInUse {
        /// Name of the attempt that the sandbox is.
        name: String,
        /// The processes.
        processes: Vec<RoomProcess>,
    },
    /// Safepoint's home lies in the project, and would be part of the attempt.
    #[error("cannot start an attempt: Safepoint's home {} lies in the project", home.display())]
    HomeInProject {
        /// The home.
        home: PathBuf,
    },
    /// A process could not enter the room of an attempt.
    #[error("cannot enter the attempt {name}: cannot {step}")]
    Room {
        /// Name of the attempt.
        name: String,
        /// Attempted operation.
        step: String,
        /// The cause.
        source: io::Error,
    },
    /// The folder of an attempt's room is missing.
    #[error("the room of the attempt {name} is missing: {}", path.display())]
    RoomMissing {
        /// Name of the attempt.
        name: String,
        /// The folder.
        path: PathBuf,
    },
    /// Project and sandbox changed the same thing in different ways.
    #[error("the project and the sandbox of plan {id} both changed: {}", some(paths))]
    ApplyConflict {
        /// The id.
        id: String,
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// There is no clean checkpoint to go back to.
    #[error("plan {id} has no clean checkpoint")]
    NoneClean {
        /// The id.
        id: String,
        /// The cause.
        source: NoneClean,
    },
    /// A rule of the plan says no.
    #[error(transparent)]
    Plan(#[from] PlanRule),
    /// No session has this id.
    #[error("there is no session {id} on record")]
    NoSession {
        /// The id.
        id: String,
    },
    /// No thread has this id.
    #[error("there is no thread {id:?}")]
    NoThread {
        /// The id.
        id: String,
    },
    /// The thread has no state with this id.
    #[error("there is no state {id:?} in thread {thread:?}")]
    NoState {
        /// The thread.
        thread: String,
        /// The id.
        id: String,
    },
    /// The state cannot restore files.
    #[error("state {id:?} has no files: {}", if *pruned { "their checkpoint was deleted" } else { "it was saved without" })]
    StateWithoutFiles {
        /// The state.
        id: String,
        /// True if it had files once.
        pruned: bool,
    },
    /// Another process saved to the thread while it was being rolled back.
    #[error("thread {id:?} changed meanwhile")]
    ThreadChanged {
        /// The id.
        id: String,
    },
    /// The workspace has no turn with this number.
    #[error("there is no turn {number}")]
    NoTurn {
        /// The number.
        number: u64,
    },
    /// The checkpoint of a turn is missing: it was not taken, or it was pruned.
    #[error("turn {number} has no checkpoint there: none was taken, or it was pruned")]
    TurnNotCovered {
        /// The number of the turn.
        number: u64,
    },
    /// A turn is not over, so that it has no checkpoint there yet.
    #[error("turn {number} is not over: it has no checkpoint there yet")]
    TurnOpen {
        /// The number of the turn.
        number: u64,
    },
    /// Every path that a turn changed was changed by another turn, too, or has changed since.
    #[error("every path that turn {number} changed has changed since: {}", some(paths))]
    TurnOvertaken {
        /// The number of the turn.
        number: u64,
        /// The paths.
        paths: Vec<SharedPath>,
    },
    /// Another hook works on the turns of the workspace for too long.
    #[error("another hook of the workspace is not done")]
    TurnBusy,
    /// A rule of sessions says no.
    #[error(transparent)]
    Session(#[from] SessionRule),
    /// The workspace is in no git repository.
    #[error("{} is not in a git repository", path.display())]
    NoRepository {
        /// The path.
        path: PathBuf,
    },
    /// The workspace is only a part of the repository.
    #[error("the workspace is only a part of the repository at {}", top.display())]
    PartOfRepository {
        /// The top folder of the repository.
        top: PathBuf,
    },
    /// The checkpoint says nothing about a repository.
    #[error("checkpoint {checkpoint} holds no state of git")]
    NoGitState {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The repository failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A rollback failed, and everything was restored.
    #[error("rollback {rollback} failed and was undone")]
    RolledBackHalfway {
        /// The rollback.
        rollback: RollbackId,
        /// The cause.
        source: Box<Error>,
    },
    /// A rollback failed, and so did its undo.
    #[error("rollback {rollback} failed, and not everything is restored yet")]
    Unfinished {
        /// The rollback.
        rollback: RollbackId,
        /// The cause.
        source: Box<Error>,
    },
    /// Another home began a rollback in the workspace and did not finish it.
    #[error(
        "cannot use {}: another Safepoint home began a rollback in it and did not finish (.safepoint/apply-{rollback})",
        path.display()
    )]
    ForeignRollback {
        /// The workspace.
        path: PathBuf,
        /// The rollback.
        rollback: RollbackId,
    },
    /// A checkpoint cannot be written as a folder. Nothing is left of it.
    #[error("cannot write the export into {}", path.display())]
    Export {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: WorkspaceError,
    },
    /// A folder cannot be imported, or a checkpoint cannot be laid out as one.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A plan file is no plan.
    #[error(transparent)]
    PlanFile(#[from] PlanFileError),
    /// The folder failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// An object is missing or damaged.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A value from outside is not what it must be.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A chosen path cannot be put back alone.
    #[error(transparent)]
    Graft(#[from] GraftError),
    /// The remote failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// No remote is configured, or none with this name.
    #[error("{}", match name {
        Some(name) => format!("no remote is called {name:?}"),
        None => "no remote is configured".to_owned(),
    })]
    NoRemote {
        /// Name as typed.
        name: Option<String>,
    },
    /// Several remotes are configured, and none was named.
    #[error("several remotes are configured: {}", names.join(", "))]
    SeveralRemotes {
        /// Their names.
        names: Vec<String>,
    },
    /// Another process publishes the workspace to the remote.
    #[error("another process publishes this workspace to remote {name:?}")]
    RemoteBusy {
        /// Name of the remote.
        name: String,
    },
    /// Nothing on the remote has this name.
    #[error("nothing on the remote is called {name:?}")]
    NotPublished {
        /// Name as typed.
        name: String,
    },
    /// Several workspaces or checkpoints on the remote have this name.
    #[error("{name:?} names several on the remote: {}", some(ids))]
    SeveralPublished {
        /// Name as typed.
        name: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// This home does not have the workspace of a published checkpoint.
    #[error("this home does not have workspace {workspace}")]
    NoWorkspaceHere {
        /// Workspace.
        workspace: WorkspaceId,
    },
    /// This home has the workspace of a published checkpoint, or another one in the folder.
    #[error("this home already has a workspace at {}", path.display())]
    WorkspaceHere {
        /// Its folder.
        path: PathBuf,
    },
    /// Another machine took the line over on which this one published a plan.
    #[error("plan {id} went on elsewhere: {holder} took line {line} on remote {name:?} over")]
    PlanElsewhere {
        /// Id.
        id: String,
        /// New holder.
        holder: String,
        /// Name of the remote.
        name: String,
        /// Line.
        line: LineId,
    },
    /// Renewals of a lease were not answered in time.
    #[error("remote {name:?} did not answer in time to renew the lease of line {line}")]
    LeaseUnanswered {
        /// Name of the remote.
        name: String,
        /// Line.
        line: LineId,
    },
    /// A plan of another workspace has the id of a fetched one.
    #[error("cannot fetch plan {id}: another workspace of this home has a plan with this id")]
    PlanHere {
        /// Id.
        id: String,
    },
}
