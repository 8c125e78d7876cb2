//! One table from errors to what every face shows: a code, a kind, the message, its causes, and what to do next.

use crate::Error;
use crate::config::ConfigError;
use crate::error::{NamedCandidate, Wish};
use crate::exchange::{LayoutError, quoted};
use crate::upkeep::capped::Capped;
use safepoint_catalog::CatalogError;
use safepoint_git::GitError;
use safepoint_model::change::GraftError;
use safepoint_model::plan::state::{PlanRule, PlanState};
use safepoint_model::rollback::Verb;
use safepoint_model::session::SessionRule;
use safepoint_model::{Bytes, CheckpointId, ModelError, ObjectError};
use safepoint_remote::RemoteError;
use safepoint_store::StoreError;
use safepoint_workspace::WorkspaceError;
use serde::Serialize;
use std::error::Error as StdError;
use std::path::Path;

/// Kind of failure. Faces map it to exit codes and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It did not work, and nothing changed.
    Failed,
    /// Invalid arguments.
    Usage,
    /// No such workspace, checkpoint or path.
    NotFound,
    /// Another process holds it.
    Busy,
    /// A guard or something in the way says no.
    Conflict,
    /// Data on disk is not what was written.
    Damaged,
    /// The user asked to stop.
    Interrupted,
    /// A defect of Safepoint.
    Internal,
}

/// A failure as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// A stable name for programs.
    pub code: &'static str,
    /// Its kind.
    pub kind: FailureKind,
    /// One sentence.
    pub message: String,
    /// Causes, nearest first.
    pub causes: Vec<String>,
    /// Next steps.
    pub hints: Vec<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let (code, kind, hints) = classify(error);
        Failure {
            code,
            kind,
            message: error.to_string(),
            causes: causes(error),
            hints: hints.iter().map(|hint| placed(error, hint)).chain(details(error)).collect(),
        }
    }
}

fn causes(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // A transparent error says the same as what it wraps.
        if causes.last() != Some(&text) && text != error.to_string() {
            causes.push(text);
        }
        next = cause.source();
    }
    causes
}

type Row = (&'static str, FailureKind, &'static [&'static str]);

/// The table; `docs/errors.md` is its other copy, and a test compares the two.
#[allow(clippy::too_many_lines, reason = "a table of one row per error; the compiler reports a missing one")]
fn classify(error: &Error) -> Row {
    use FailureKind::{Busy, Conflict, Damaged, Failed, NotFound, Usage};
    match error {
        Error::Home { .. } => {
            ("home", Failed, &["Name a folder that you may write with --home or SAFEPOINT_HOME."])
        }
        Error::HomeOwner { .. } => ("home_owner", Conflict, &["Nothing was written there."]),
        Error::ReadOnlyHome { .. } => (
            "read_only_home",
            Failed,
            &[
                "Nothing is lost. Build a checkpoint in another folder: safepoint rollback @ --to ../restored",
                "Or name a home that you may write with --home or SAFEPOINT_HOME.",
            ],
        ),
        Error::NotEmpty { .. } => {
            ("not_empty", Conflict, &["Name a folder that is empty or does not exist yet."])
        }
        Error::RefusedRoot { .. } => (
            "refused_root",
            Conflict,
            &["Name the project's own folder with -C, or use `safepoint init --force` if you mean it."],
        ),
        Error::OtherCatalog { .. } => (
            "other_catalog",
            Conflict,
            &[
                "`safepoint repair` brings back the checkpoints that the catalog does not list.",
                "`safepoint gc --accept-catalog` deletes them for good.",
            ],
        ),
        Error::StillThere { .. } => (
            "still_there",
            Conflict,
            &["Move the folder itself first, or register the other folder with `safepoint init`."],
        ),
        Error::HasCheckpoints { .. } => (
            "has_checkpoints",
            Conflict,
            &["Its own checkpoints stay, and are named by their ids: safepoint list --all"],
        ),
        Error::NoWorkspace { .. } => (
            "no_workspace",
            NotFound,
            &["Run `safepoint create` or `safepoint init` in the project's folder first."],
        ),
        Error::NoCheckpoint { .. } => {
            ("no_checkpoint", NotFound, &["`safepoint list` shows the checkpoints of this workspace."])
        }
        Error::Ambiguous { .. } => ("ambiguous", Usage, &["Choose one of them by its id:"]),
        Error::OtherWorkspace { .. } => {
            ("other_workspace", Conflict, &["Go to that workspace, or name its folder with -C."])
        }
        Error::NoFiles { .. } => {
            ("no_files", Conflict, &["Choose another one; `safepoint list` shows the checkpoints."])
        }
        Error::OnlyRescued { .. } => (
            "only_rescued",
            Conflict,
            &[
                "`safepoint show ID --files` lists them; `safepoint cat` prints one, `safepoint rollback ID --path` restores it.",
            ],
        ),
        Error::NoPath { .. } => ("no_path", NotFound, &["`safepoint show ID --files` lists what is in it."]),
        Error::NotAFile { .. } => {
            ("not_a_file", Usage, &["`safepoint show ID --files` lists what is in it."])
        }
        Error::StalePreview => {
            ("stale_preview", Conflict, &["Look at a new preview, then confirm that one."])
        }
        Error::ChangedDuringUndo { .. } => (
            "changed_during_undo",
            Conflict,
            &["Undo commands that ran are not repeated. Look at a new preview, then confirm that one."],
        ),
        Error::NothingToUndo | Error::NotInLastRollback { .. } => {
            ("nothing_to_undo", NotFound, &["Return to the newest checkpoint: safepoint rollback @"])
        }
        Error::ChangedSinceRollback { verb: Verb::Redo, .. } => (
            "changed_since_rollback",
            Conflict,
            &[
                "Show what a redo does: safepoint redo --dry-run",
                "Redo anyway, and keep the current state in a safety checkpoint: safepoint redo --yes",
            ],
        ),
        Error::ChangedSinceRollback { .. } => (
            "changed_since_rollback",
            Conflict,
            &[
                "Show what an undo does: safepoint undo --dry-run",
                "Undo anyway, and keep the current state in a safety checkpoint: safepoint undo --yes",
            ],
        ),
        Error::NothingToRedo => {
            ("nothing_to_redo", NotFound, &["Only an undo can be redone, and only until the next rollback."])
        }
        Error::Capped(_) => ("capped", Failed, &["See what takes the space: safepoint usage"]),
        Error::NoPlan { .. } => ("no_plan", NotFound, &["`safepoint plan list` shows the plans."]),
        Error::BadPlanId { .. } => ("bad_plan_id", Usage, &["Leave the id out to get one."]),
        Error::NoPlanInCheckpoint { .. } => {
            ("no_plan", NotFound, &["`safepoint plan checkpoint list PLAN` shows those that hold one."])
        }
        Error::OtherPlan { .. } => (
            "other_plan",
            Conflict,
            &["`safepoint plan checkpoint list PLAN` shows the checkpoints of the plan."],
        ),
        Error::PlanApplied { .. } => {
            ("plan_applied", Conflict, &["Roll the files back alone with --part files, or begin a new plan."])
        }
        Error::PlanHealthy { .. } => ("plan_healthy", Conflict, &[]),
        Error::SessionChanged { .. } => {
            ("session_changed", Busy, &["Stop what drives the session, then try again."])
        }
        Error::PlanChanged { .. } => ("plan_changed", Busy, &["Stop what drives the plan, then try again."]),
        Error::NoneClean { .. } => (
            "none_clean",
            NotFound,
            &[
                "`safepoint plan checkpoint list PLAN` shows what there is; `plan rollback` goes to any of them.",
            ],
        ),
        Error::PlanRunning { wish: Wish::Run, .. } => (
            "plan_running",
            Busy,
            &["Wait until it has ended, or end it with Ctrl-C or `safepoint plan pause PLAN`."],
        ),
        Error::PlanRunning { wish: Wish::Change, .. } => (
            "plan_live",
            Conflict,
            &[
                "End the run first: Ctrl-C where it runs, or `safepoint plan pause PLAN` and wait for its step.",
            ],
        ),
        Error::SandboxMissing { .. } => (
            "sandbox_missing",
            Conflict,
            &[
                "Make it again from its newest checkpoint: safepoint plan rollback PLAN @ --recreate-sandbox",
                "`safepoint plan checkpoint list PLAN` shows the checkpoints.",
            ],
        ),
        Error::NotReady { state: PlanState::Draft, .. } => (
            "not_ready",
            Conflict,
            &["It has no steps yet: safepoint plan step add PLAN first --run \"make test\""],
        ),
        Error::NotReady { state: PlanState::Ready, .. } => {
            ("not_ready", Conflict, &["It has not begun: safepoint plan run PLAN"])
        }
        Error::NotReady { .. } => ("not_ready", Conflict, &["It has begun: safepoint plan resume PLAN"]),
        Error::StepInterrupted { .. } => (
            "step_interrupted",
            Conflict,
            &["`verify`, `idempotent` or `on_interrupted` in the plan file answers beforehand."],
        ),
        Error::UndoFailed { .. } => (
            "undo_failed",
            Failed,
            &[
                "Neither files nor plan were changed. Fix the cause and try again: undo commands that worked are not run twice.",
                "Or go on without it: --skip-failed-undo reports it as not undone.",
            ],
        ),
        Error::ProjectChanged { .. } => (
            "project_changed",
            Conflict,
            &["Take over what does not conflict with: safepoint plan apply PLAN --merge"],
        ),
        Error::ApplyConflict { .. } => (
            "apply_conflict",
            Conflict,
            &["Make both the same at these paths, in the project or in the sandbox, then try again."],
        ),
        Error::NoAttempt { .. } => ("no_attempt", NotFound, &["`safepoint attempt list` shows the names."]),
        Error::AttemptClosed { .. } => (
            "attempt_closed",
            Conflict,
            &[
                "Its result is a checkpoint: `safepoint attempt show NAME` names it. Start another attempt to go on.",
            ],
        ),
        Error::AttemptExists { .. } => (
            "attempt_exists",
            Conflict,
            &["Choose another name, or keep or drop the one that is open: `safepoint attempt list`"],
        ),
        Error::AttemptConflict { .. } => (
            "attempt_conflict",
            Conflict,
            &[
                "Make both the same at these paths, in the project or in the attempt, then keep again.",
                "See both sides: safepoint attempt diff NAME",
            ],
        ),
        Error::InsideAttempt { .. } => {
            ("inside_attempt", Conflict, &["Leave the attempt (exit its shell) and run the command there."])
        }
        Error::AttemptOfPlan { .. } => (
            "attempt_of_plan",
            Conflict,
            &[
                "The plan decides about it: `safepoint plan apply` takes its result over, `safepoint plan cancel` ends it.",
            ],
        ),
        Error::SearchInOverlay { .. } => (
            "search_in_overlay",
            Conflict,
            &[
                "`safepoint plan checkpoint list` shows the checkpoints; `--verify` tries a single one of them.",
            ],
        ),
        Error::RoomInUse { .. } => {
            ("room_in_use", Conflict, &["Nothing was changed. End these processes, then try again."])
        }
        Error::HomeInProject { .. } => (
            "home_in_project",
            Conflict,
            &["Move the home elsewhere and name it with --home or SAFEPOINT_HOME."],
        ),
        Error::Room { .. } => (
            "room",
            Failed,
            &[
                "`safepoint doctor` shows what this machine allows. `safepoint try --copy` needs no namespace.",
            ],
        ),
        Error::RoomMissing { .. } => (
            "room_missing",
            NotFound,
            &[
                "Its checkpoints still exist: `safepoint attempt show NAME`. Drop it: safepoint attempt drop NAME",
            ],
        ),
        Error::Plan(PlanRule::NoStep { .. }) => {
            ("no_step", NotFound, &["`safepoint plan show PLAN` shows its steps."])
        }
        Error::Plan(PlanRule::NoDecision { .. }) => {
            ("no_decision", NotFound, &["`safepoint plan tree PLAN` shows its decisions."])
        }
        Error::Plan(_) => ("plan_rule", Conflict, &["`safepoint plan show PLAN` shows where it is."]),
        Error::NoSession { .. } => (
            "no_session",
            NotFound,
            &["`safepoint session list` shows the sessions. A checkpoint may name one that is on no record."],
        ),
        Error::NoTurn { .. } => {
            ("no_turn", NotFound, &["`safepoint list --turns` shows the turns of the workspace."])
        }
        Error::TurnNotCovered { .. } => {
            ("turn_not_covered", NotFound, &["`safepoint list` shows the checkpoints that there are."])
        }
        Error::TurnOpen { .. } => (
            "turn_open",
            Conflict,
            &[
                "`safepoint list --turns` shows when it is over.",
                "The state before it: safepoint rollback --before-turn N",
            ],
        ),
        Error::TurnOvertaken { .. } => (
            "turn_overtaken",
            Conflict,
            &[
                "Take these paths, too: safepoint undo --turn N --all",
                "The state now is kept in a safety checkpoint.",
            ],
        ),
        Error::TurnBusy => ("turn_busy", Busy, &["Try again in a moment."]),
        Error::Session(SessionRule::Transition { .. }) => {
            ("session_rule", Conflict, &["`safepoint session get ID` shows where it is."])
        }
        Error::NoPurge { .. } => {
            ("no_purge", NotFound, &["`safepoint show @ --files` lists what is in a checkpoint."])
        }
        Error::PurgeRoot => (
            "purge_root",
            Usage,
            &["Name files or folders in it. `safepoint delete` deletes whole checkpoints."],
        ),
        Error::NoThread { .. } => {
            ("no_thread", NotFound, &["`safepoint show @ --json` names the threads of a checkpoint."])
        }
        Error::NoState { .. } => ("no_state", NotFound, &["The list of the thread's states has their ids."]),
        Error::StateWithoutFiles { pruned: false, .. } => {
            ("no_files_of_state", NotFound, &["Roll back to a state that was saved with files."])
        }
        Error::StateWithoutFiles { pruned: true, .. } => {
            ("files_pruned", NotFound, &["Pin the checkpoints of states that must keep their files."])
        }
        Error::ThreadChanged { .. } => {
            ("thread_changed", Busy, &["Stop what saves to the thread, then try again."])
        }
        Error::NoAgent { .. } => {
            ("no_agent", NotFound, &["`safepoint agent list` shows the agents that are registered."])
        }
        Error::GoesTogether { .. } => (
            "goes_together",
            Conflict,
            &["Roll all of it back: safepoint rollback ID; or choose paths of this workspace with --path."],
        ),
        Error::CheckFailed { .. } => ("check_failed", Failed, &[]),
        Error::NonePassed { .. } => ("none_passed", Failed, &["Check that the command can pass."]),
        Error::NoRoomToTry { .. } => (
            "no_room_to_try",
            Failed,
            &["Free some space, or try candidates in the workspace itself: add --in-place"],
        ),
        Error::NoPart { .. } => ("no_part", NotFound, &["`safepoint show ID` shows what it holds."]),
        Error::UnknownPart { .. } => (
            "unknown_part",
            Conflict,
            &[
                "Run that program in this workspace: it undoes the rollback. Until then nothing here is changed.",
            ],
        ),
        Error::Part { .. } => ("part", Failed, &["See the cause."]),
        Error::AnsweredMeanwhile { .. } => {
            ("busy", Busy, &["Try again: `safepoint status` shows the last rollback."])
        }
        Error::NotWhole { .. } => ("damaged", Damaged, DAMAGED),
        Error::CannotCollect { .. } => (
            "cannot_collect",
            Damaged,
            &[
                "`safepoint repair` repairs what can be repaired; a checkpoint that stays damaged can be deleted.",
            ],
        ),
        Error::NoRepository { .. } => {
            ("no_repository", Conflict, &["`git init` makes one; without --git a checkpoint needs none."])
        }
        Error::PartOfRepository { .. } => (
            "part_of_repository",
            Conflict,
            &["Branch and index are moved only where the workspace is the whole repository."],
        ),
        Error::Elsewhere { .. } => (
            "elsewhere",
            Conflict,
            &[
                "Register what is missing, or put what differs right, then import its folder again. `--part` goes back to a part of it.",
            ],
        ),
        Error::NoGitState { .. } => (
            "no_git_state",
            Conflict,
            &["Choose a checkpoint that was taken while the workspace was in a repository."],
        ),
        Error::Git(error) => classify_git(error),
        Error::RolledBackHalfway { source, .. } => {
            let (_, kind, hints) = classify(source);
            ("rollback_failed", kind, hints)
        }
        Error::Unfinished { .. } => (
            "unfinished",
            Failed,
            &[
                "Fix the cause, then run `safepoint recover`: it goes on where this stopped. Nothing is lost: what was displaced is kept in .safepoint.",
            ],
        ),
        Error::ForeignRollback { .. } => (
            "foreign_rollback",
            Conflict,
            &[
                "Until the home that began it finishes it, the folder may be half old and half new.",
                "If that home is lost: safepoint emergency keeps the folder as it is. Then move .safepoint elsewhere; it holds what was displaced.",
            ],
        ),
        Error::Export { source, .. } => match classify_workspace(source) {
            ("workspace", ..) => ("not_written", Failed, &["Name a folder that you may write."]),
            other => other,
        },
        Error::Layout(error) => classify_layout(error),
        Error::Config(error) => classify_config(error),
        Error::PlanFile(_) => ("bad_plan", Usage, &["Fix the line that the message names, and try again."]),
        Error::Workspace(error) => classify_workspace(error),
        Error::Store(error) => classify_store(error),
        Error::Catalog(error) => classify_catalog(error),
        Error::Object(error) => classify_object(error),
        Error::Model(error) => ("bad_input", Usage, how_to_write(error)),
        Error::Graft(GraftError::Nowhere { .. }) => {
            ("no_path", NotFound, &["`safepoint show ID --files` lists what is in it."])
        }
        Error::Graft(GraftError::Blocked { .. }) => {
            ("blocked_path", Conflict, &["Choose the path that is in the way as well."])
        }
        Error::Graft(GraftError::Object(error)) => classify_object(error),
        Error::Graft(GraftError::Model(_)) => ("damaged", Damaged, DAMAGED),
        Error::Remote(error) => classify_remote(error),
        Error::NoRemote { .. } => (
            "no_remote",
            NotFound,
            &[
                "`safepoint remote list` shows the remotes; `safepoint remote add --help` shows how to add one.",
            ],
        ),
        Error::SeveralRemotes { .. } => ("several_remotes", Usage, &["Name one of them."]),
        Error::RemoteBusy { .. } => ("remote_busy", Busy, &["Wait until it has finished, then try again."]),
        Error::NotPublished { .. } => (
            "not_published",
            NotFound,
            &["`safepoint remote status` shows the workspaces on the remote and their newest checkpoints."],
        ),
        Error::SeveralPublished { .. } => ("several_published", Usage, &["Name one of them by its id."]),
        Error::NoWorkspaceHere { .. } => (
            "no_workspace_here",
            NotFound,
            &["`safepoint clone` builds it in a new folder and registers it."],
        ),
        Error::WorkspaceHere { .. } => (
            "workspace_here",
            Conflict,
            &[
                "Bring the checkpoint into that workspace: `safepoint fetch`, then roll back to it there.",
                "Or clone with another home: --home ../other-home",
            ],
        ),
        Error::PlanElsewhere { .. } => (
            "plan_elsewhere",
            Conflict,
            &[
                "Nothing was run. To bring it back: safepoint plan takeover PLAN --remote REMOTE DIR, with a home of its own (--home DIR)",
            ],
        ),
        Error::LeaseUnanswered { .. } => (
            "lease_unanswered",
            Failed,
            &[
                "Another machine may take the plan over. Go on when the remote answers: safepoint plan resume PLAN",
            ],
        ),
        Error::PlanHere { .. } => ("plan_here", Conflict, &["Clone with another home: --home ../other-home"]),
    }
}

fn classify_remote(error: &RemoteError) -> Row {
    use FailureKind::{Busy, Conflict, Damaged, Failed, Interrupted, NotFound, Usage};
    match error {
        RemoteError::Address { .. } | RemoteError::ProjectName { .. } => {
            ("remote_address", Usage, &["`safepoint remote add --help` shows the forms of addresses."])
        }
        RemoteError::SecretInAddress { .. } => (
            "secret_in_address",
            Usage,
            &[
                "Nothing was stored. Keep the password in ~/.pgpass, and keys in the environment or in ~/.aws/credentials.",
            ],
        ),
        RemoteError::Credentials { .. } => {
            ("remote_credentials", Failed, &["Correct the file that the message names, then try again."])
        }
        RemoteError::Unreachable { .. } => (
            "unreachable",
            Failed,
            &["Nothing is lost: checkpoints are here and are published by the next `safepoint push`."],
        ),
        RemoteError::Denied { .. } => (
            "remote_denied",
            Failed,
            &["Check the credentials and the rights of the role. Nothing is lost: all checkpoints are here."],
        ),
        RemoteError::NotInitialized | RemoteError::NoProject { .. } => (
            "remote_not_initialized",
            Conflict,
            &["The owner of the remote sets it up with `safepoint remote init`."],
        ),
        RemoteError::NotEmpty { .. } => (
            "remote_not_empty",
            Conflict,
            &["Choose another project, or an empty folder or bucket for the bytes."],
        ),
        RemoteError::ProtocolTooOld { .. } => ("newer_format", Failed, &["Use a newer Safepoint."]),
        RemoteError::ProtocolTooNew { .. } => (
            "remote_too_old",
            Conflict,
            &["The owner of the remote updates it with `safepoint remote init`."],
        ),
        RemoteError::Fenced { .. } => {
            ("fenced", Conflict, &["Nothing is lost: the next `safepoint push` publishes to a new line."])
        }
        RemoteError::Live { .. } => (
            "lease_live",
            Busy,
            &[
                "Wait until the lease ends, then try again; `plan takeover --force` fences the holder at once.",
            ],
        ),
        RemoteError::Gone { .. } => ("packs_gone", Busy, &["Try again: the objects are sent once more."]),
        RemoteError::Behind { .. } => (
            "remote_behind",
            Damaged,
            &[
                "The database lost commits. Its owner restores them from the packs with `safepoint remote rebuild`; until then nothing is published.",
            ],
        ),
        RemoteError::NoLine { .. } | RemoteError::NoCheckpoint { .. } => (
            "not_published",
            NotFound,
            &["`safepoint remote status` shows the workspaces on the remote and their newest checkpoints."],
        ),
        RemoteError::OverQuota { .. } => (
            "over_quota",
            Failed,
            &[
                "Nothing is lost: all checkpoints are here. The owner of the remote raises the quota or deletes checkpoints.",
            ],
        ),
        RemoteError::Full { .. } => (
            "remote_full",
            Failed,
            &["Nothing is lost: all checkpoints are here. Free space on the remote, then push again."],
        ),
        RemoteError::NoPack { .. } | RemoteError::Damaged { .. } => (
            "remote_damaged",
            Damaged,
            &["Nothing here was changed. Choose another checkpoint of the remote; tell its owner."],
        ),
        RemoteError::Sealed { .. } => {
            ("remote_sealed", Conflict, &["Add the remote with the identity file of the project: --identity"])
        }
        RemoteError::Interrupted => ("interrupted", Interrupted, &["Run it again when you like."]),
        RemoteError::Local { .. } => {
            ("home", Failed, &["Name a folder that you may write with --home or SAFEPOINT_HOME."])
        }
        RemoteError::StillListed { .. }
        | RemoteError::TooManyPacks { .. }
        | RemoteError::Server { .. }
        | RemoteError::Migrate { .. }
        | RemoteError::Runtime(_) => {
            ("remote", Failed, &["See the cause. Nothing is lost: all checkpoints are here."])
        }
        _ => ("remote", Failed, &["See the cause. Nothing is lost: all checkpoints are here."]),
    }
}

fn classify_git(error: &GitError) -> Row {
    use FailureKind::{Busy, Conflict, Damaged, Failed, Interrupted, NotFound};
    match error {
        GitError::Object(error) => classify_object(error),
        GitError::Interrupted => ("interrupted", Interrupted, &["Run it again when you like."]),
        GitError::UnderWay { .. } => {
            ("git_under_way", Conflict, &["Finish it or abort it with git first, then try again."])
        }
        GitError::Locked { .. } => (
            "git_locked",
            Busy,
            &["Wait until it has finished. If none runs, a git that died left the file: delete it."],
        ),
        GitError::Moved { .. } => {
            ("git_moved", Busy, &["Stop what works in the repository, then try again."])
        }
        GitError::NoCommit { .. } => (
            "commit_gone",
            NotFound,
            &[
                "Git collects commits that no ref names. The files are in the checkpoint: roll back without git.",
            ],
        ),
        GitError::Damaged { .. } => ("git_damaged", Damaged, &["`git fsck` says more."]),
        GitError::Bare { .. }
        | GitError::Unsupported { .. }
        | GitError::Stranger { .. }
        | GitError::TagTaken { .. }
        | GitError::Detached
        | GitError::Elsewhere { .. } => {
            ("git_refused", Conflict, &["Everything but git works there: leave the option for git out."])
        }
        GitError::Read { .. } | GitError::Write { .. } => ("git", Failed, FIX),
    }
}

fn classify_layout(error: &LayoutError) -> Row {
    use FailureKind::{Conflict, Damaged, Failed, NotFound};
    match error {
        LayoutError::Open { .. } => (
            "no_layout",
            NotFound,
            &["Name the folder that `safepoint export` wrote, and that you may read."],
        ),
        LayoutError::NotALayout { .. } => (
            "no_layout",
            NotFound,
            &["Name the folder that `safepoint export` printed: the one with metadata.json in it."],
        ),
        LayoutError::Version { .. } => ("newer_format", Failed, NEWER),
        LayoutError::Read { .. } => ("unreadable", Failed, FIX),
        LayoutError::Bad { .. } => (
            "bad_layout",
            Damaged,
            &["The folder was changed, or it was not copied completely. Export it again where it came from."],
        ),
        LayoutError::Scope { .. } | LayoutError::Workspaces { .. } => (
            "not_importable",
            Conflict,
            &[
                "`safepoint import` reads every scope; docs/layouts.md tells what can be imported, and as what.",
            ],
        ),
        LayoutError::TooLarge { .. } => {
            ("layout_too_large", Failed, &["A backup of Safepoint's home holds checkpoints of any size."])
        }
    }
}

fn classify_config(error: &ConfigError) -> Row {
    match error {
        ConfigError::Read { .. } => {
            ("unreadable", FailureKind::Failed, &["Check the permissions of the file, or move it away."])
        }
        ConfigError::HomeOnly { .. } => (
            "bad_configuration",
            FailureKind::Failed,
            &["Take it out of there; if you want it, put it into config.toml in Safepoint's home."],
        ),
        _ => (
            "bad_configuration",
            FailureKind::Failed,
            &["Fix the line that the message names, and try again."],
        ),
    }
}

const FULL: &[&str] = &["The disk is full. Free some space and try again; nothing was lost."];
const DAMAGED: &[&str] =
    &["`safepoint validate --deep` shows what is damaged and which checkpoints are still whole."];

const FIX: &[&str] = &["Fix the cause, then try again."];
const FIX_HOME: &[&str] = &[
    "Fix the cause, then try again. If Safepoint's home is not yours, name another one with --home or SAFEPOINT_HOME.",
];

/// Hints at valid input.
fn how_to_write(error: &ModelError) -> &'static [&'static str] {
    match error {
        ModelError::Reference { .. } => {
            &["`safepoint list` shows the checkpoints; @ is the newest one, and @~1 the one before it."]
        }
        ModelError::Word { .. } => &["Use one of these words."],
        ModelError::Path { .. } => &["Name a path inside the workspace."],
        ModelError::Id { .. } => &["Example: `7d9f3c1e-5b1a-4c0e-9f3a-0c1d2e3f4a5b`"],
        _ => &["Correct the value, then try again."],
    }
}

fn classify_workspace(error: &WorkspaceError) -> Row {
    use FailureKind::{Busy, Conflict, Damaged, Failed, Interrupted, Usage};
    match error {
        WorkspaceError::Object(error) => classify_object(error),
        error if error.is_too_long() => ("file_too_large", Failed, TOO_LONG),
        error if error.is_full() => ("disk_full", Failed, FULL),
        WorkspaceError::Open { .. } => {
            ("workspace_gone", FailureKind::NotFound, &["Is the folder still there, and may you read it?"])
        }
        WorkspaceError::Busy { .. } => ("busy", Busy, &["Wait until it has finished, then try again."]),
        WorkspaceError::Obstructed(_) => {
            ("obstructed", Conflict, &["Move what is in the way, or choose other paths with --path."])
        }
        WorkspaceError::Verify { .. } => {
            ("verify", Damaged, &["The disk did not keep what was written. Check it before you go on."])
        }
        WorkspaceError::Interrupted => ("interrupted", Interrupted, &["Run it again when you like."]),
        WorkspaceError::Pattern { .. } => {
            ("bad_pattern", Usage, &["Patterns are written as in a .gitignore."])
        }
        WorkspaceError::Read { .. }
        | WorkspaceError::Stage { .. }
        | WorkspaceError::Swap { .. }
        | WorkspaceError::Sync(_)
        | WorkspaceError::PutBack { .. }
        | WorkspaceError::Copy { .. }
        | WorkspaceError::MakeCopy { .. }
        | WorkspaceError::RemoveCopy { .. }
        | WorkspaceError::Space { .. } => ("workspace", Failed, FIX),
    }
}

/// An example of a home that is not the one at hand.
fn own_home(path: &Path) -> &'static str {
    match (rustix::process::geteuid().is_root(), path.starts_with("/root")) {
        (true, true) => "/var/lib/safepoint",
        (true, false) => "/root/.local/share/safepoint",
        (false, _) => "~/.safepoint",
    }
}

const TOO_LONG: &[&str] =
    &["Raise the limit and try again: ulimit -f unlimited; `ulimit -f` shows what it is now."];

fn classify_store(error: &StoreError) -> Row {
    use FailureKind::{Busy, Damaged, Failed};
    match error {
        error if error.is_too_long() => ("file_too_large", Failed, TOO_LONG),
        error if error.is_full() => ("disk_full", Failed, FULL),
        error if error.is_busy() => {
            ("busy", Busy, &["Wait until the other Safepoint has finished, then try again."])
        }
        StoreError::NewerFormat { .. } => ("newer_format", Failed, NEWER),
        StoreError::NotAStore { .. } => {
            ("not_a_store", Damaged, &["Name another home with --home, or put the right file back."])
        }
        _ => ("store", Failed, FIX_HOME),
    }
}

const NEWER: &[&str] = &["A newer Safepoint wrote this. Use that one, or update this one."];

fn classify_catalog(error: &CatalogError) -> Row {
    use FailureKind::{Busy, Conflict, Damaged, Failed};
    match error {
        error if error.is_busy() => {
            ("busy", Busy, &["Wait until the other Safepoint has finished, then try again."])
        }
        error if error.is_too_long() => ("file_too_large", Failed, TOO_LONG),
        error if error.is_full() => ("disk_full", Failed, FULL),
        error if error.is_damaged() => (
            "catalog_damaged",
            Damaged,
            &[
                "`safepoint repair` keeps it aside and rebuilds the catalog from the store. `safepoint emergency` works until then.",
            ],
        ),
        CatalogError::Newer { .. } => ("newer_format", Failed, NEWER),
        CatalogError::Replaced { .. } => (
            "catalog_replaced",
            Busy,
            &["Run the same command again: it uses the catalog that is there now."],
        ),
        CatalogError::Needed { .. } | CatalogError::Unfinished { .. } => {
            ("needed", Conflict, &["Run `safepoint recover` first."])
        }
        CatalogError::SandboxBase { .. } => {
            ("needed", Conflict, &["Apply or cancel the plan first: `safepoint plan list --all` shows it."])
        }
        CatalogError::AttemptNeeds { .. } => {
            ("needed", Conflict, &["Keep or drop the attempt first: `safepoint attempt list` shows it."])
        }
        CatalogError::Taken { .. } => {
            ("taken", Conflict, &["Choose another id, or leave it out to get one."])
        }
        _ => ("catalog", Failed, FIX_HOME),
    }
}

fn classify_object(error: &ObjectError) -> Row {
    use FailureKind::{Damaged, Failed, Interrupted};
    match error {
        ObjectError::Missing { .. } => ("missing", Damaged, DAMAGED),
        ObjectError::Damaged { .. } => ("damaged", Damaged, DAMAGED),
        ObjectError::Input(_) => ("unreadable", Failed, FIX),
        ObjectError::Interrupted => ("interrupted", Interrupted, &["Run it again when you like."]),
        ObjectError::Store(source) => match source.downcast_ref::<StoreError>() {
            Some(error) => classify_store(error),
            None => ("store", Failed, FIX_HOME),
        },
    }
}

/// A line that can be pasted: the id, and a comment for the shell.
fn candidate(candidate: &NamedCandidate) -> String {
    let time: String = candidate.created_at.to_string().chars().take(19).collect();
    let label = candidate.label.as_ref().map(|label| format!(" \"{label}\"")).unwrap_or_default();
    format!("{}  # {}Z{label}", candidate.id, time.replace('T', " "))
}

/// A hint of the table, with the names that the error holds in place of the words PLAN, ID, NAME and N.
fn placed(error: &Error, hint: &str) -> String {
    let (word, name) = match error {
        Error::AttemptClosed { name, .. }
        | Error::AttemptConflict { name, .. }
        | Error::RoomMissing { name, .. } => (" NAME", quoted(Path::new(name))),
        Error::OtherPlan { id, .. }
        | Error::NoneClean { id, .. }
        | Error::PlanRunning { id, .. }
        | Error::SandboxMissing { id, .. }
        | Error::NotReady { id, .. }
        | Error::ProjectChanged { id, .. } => (" PLAN", id.clone()),
        Error::NoPath { checkpoint, .. }
        | Error::NotAFile { checkpoint, .. }
        | Error::OnlyRescued { checkpoint }
        | Error::GoesTogether { checkpoint }
        | Error::NoPart { checkpoint, .. } => (" ID", checkpoint.to_string()),
        Error::TurnOvertaken { number, .. } | Error::TurnOpen { number } => (" N", number.to_string()),
        _ => return hint.to_owned(),
    };
    hint.replace(word, &format!(" {name}"))
}

/// Hints that name the thing at hand.
fn details(error: &Error) -> Vec<String> {
    match error {
        Error::Ambiguous { candidates, .. } => candidates.iter().map(candidate).collect(),
        Error::Workspace(WorkspaceError::Obstructed(obstacles)) => {
            obstacles.iter().take(10).map(|obstacle| format!("In the way: {obstacle}")).collect()
        }
        Error::HasCheckpoints { old, path } => {
            let (old, new) = (quoted(old), quoted(path));
            vec![format!(
                "Continue with those of the old one: safepoint workspace forget {new} && safepoint workspace move {old} {new}"
            )]
        }
        Error::HomeOwner { path, uid } => vec![
            format!("Run it as the owner: sudo -u '#{uid}' safepoint"),
            format!("Or name a home of your own: --home {}", own_home(path)),
            format!("Or, if it is a volume of a container: --home {} --allow-other-owner", path.display()),
        ],
        Error::CheckFailed { command, .. } => vec![format!(
            "Choose another checkpoint, or let it be found: safepoint rollback --until {}",
            quoted(Path::new(command))
        )],
        Error::ForeignRollback { path, .. } => vec![format!(
            "Finish it with the home that began it, named with --home or SAFEPOINT_HOME: safepoint -C {} recover",
            quoted(path)
        )],
        Error::StepInterrupted { id, .. } => vec![
            format!("Run it again: safepoint plan resume {id} --interrupted rerun"),
            format!("Or count it as done: safepoint plan resume {id} --interrupted done"),
            format!("Or count it as failed: safepoint plan resume {id} --interrupted fail"),
        ],
        Error::PlanHealthy { id } => vec![
            format!("To go on: safepoint plan resume {id}"),
            format!("To add a step: safepoint plan step add {id} check --run \"make test\""),
        ],
        Error::PlanFile(error) => {
            error.others().iter().take(10).map(|problem| format!("Also: {problem}")).collect()
        }
        Error::Session(SessionRule::Transition { from, allowed, .. }) => vec![match allowed.as_slice() {
            [] => format!("It is {from}: that is final."),
            allowed => {
                let words: Vec<&str> = allowed.iter().map(|word| word.as_str()).collect();
                format!("From {from} it can become {}.", words.join(", "))
            }
        }],
        Error::Elsewhere { commands, .. } => {
            commands.iter().take(10).map(|command| format!("Register it: {command}")).collect()
        }
        Error::Capped(capped) => room_for(capped),
        Error::RolledBackHalfway { source, .. } => details(source),
        _ => Vec::new(),
    }
}

/// Ways to make room under the cap.
fn room_for(capped: &Capped) -> Vec<String> {
    // Bytes in steps that people write.
    let cap = (capped.cap_bytes + capped.over_bytes).div_ceil(1 << 20) + 1;
    let raise = format!("raise the cap: cap = \"{cap} MiB\" below [store] in {}", quoted(&capped.config));
    if capped.deletable.is_empty() || !capped.suffices() {
        return vec![
            format!("No deletion frees {}: {raise}", Bytes(capped.over_bytes)),
            "Or free the space of removed conversations: safepoint gc --thorough".to_owned(),
        ];
    }
    let words = |ids: &[CheckpointId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut commands: Vec<String> =
        words(&capped.pinned).iter().map(|id| format!("safepoint unpin {id}")).collect();
    commands.push(format!("safepoint delete {}", words(&capped.deletable).join(" ")));
    commands.push("safepoint gc --thorough".to_owned());
    vec![format!("Free {}: {}", Bytes(capped.frees_bytes), commands.join(" && ")), format!("Or {raise}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;
    use crate::plans::plan_file::{PlanFile, PlanFileError};
    use safepoint_model::id::SessionId;
    use safepoint_model::session::SessionStatus;
    use safepoint_model::{ModelError, ObjectId, RelPath};
    use std::io;
    use std::path::PathBuf;

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    fn model() -> ModelError {
        ModelError::Id { given: "x".to_owned() }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of one row per error")]
    fn every_sort_of_failure_has_its_code_and_kind() {
        let (path, object) = (PathBuf::from("p"), ObjectId::from_bytes([0; 32]));
        let rel = RelPath::root;
        let checkpoint = safepoint_model::CheckpointId::from_bits(1);
        let rollback = safepoint_model::RollbackId::from_bits(1);
        let store = |error: StoreError| ObjectError::Store(Box::new(error));
        let rows: Vec<(Error, &str, FailureKind)> = vec![
            (Error::Home { path: path.clone(), source: full() }, "home", FailureKind::Failed),
            (Error::Model(model()), "bad_input", FailureKind::Usage),
            (
                ConfigError::NotUtf8 { file: ConfigFile::Home }.into(),
                "bad_configuration",
                FailureKind::Failed,
            ),
            (
                ConfigError::HomeOnly { file: ConfigFile::Workspace, line: 1, key: "checks".to_owned() }
                    .into(),
                "bad_configuration",
                FailureKind::Failed,
            ),
            (Error::NoSession { id: "x".to_owned() }, "no_session", FailureKind::NotFound),
            (Error::StalePreview, "stale_preview", FailureKind::Conflict),
            (
                Error::ChangedDuringUndo { path: RelPath::root() },
                "changed_during_undo",
                FailureKind::Conflict,
            ),
            (Error::NoTurn { number: 1 }, "no_turn", FailureKind::NotFound),
            (Error::TurnNotCovered { number: 1 }, "turn_not_covered", FailureKind::NotFound),
            (Error::TurnOpen { number: 1 }, "turn_open", FailureKind::Conflict),
            (Error::TurnBusy, "turn_busy", FailureKind::Busy),
            (Error::TurnOvertaken { number: 1, paths: Vec::new() }, "turn_overtaken", FailureKind::Conflict),
            (
                SessionRule::Transition {
                    id: SessionId::from_bits(1),
                    from: SessionStatus::Completed,
                    to: SessionStatus::Failed,
                    allowed: Vec::new(),
                }
                .into(),
                "session_rule",
                FailureKind::Conflict,
            ),
            (PlanFileError::TooLarge { bytes_max: 1 }.into(), "bad_plan", FailureKind::Usage),
            (
                ConfigError::Read { file: ConfigFile::Home, source: io::ErrorKind::Other.into() }.into(),
                "unreadable",
                FailureKind::Failed,
            ),
            (Error::Graft(GraftError::Model(model())), "damaged", FailureKind::Damaged),
            (
                Error::Graft(GraftError::Object(ObjectError::Missing { id: object })),
                "missing",
                FailureKind::Damaged,
            ),
            (WorkspaceError::Verify { path: rel() }.into(), "verify", FailureKind::Damaged),
            (WorkspaceError::Sync(full()).into(), "disk_full", FailureKind::Failed),
            (WorkspaceError::Stage { path: rel(), source: full() }.into(), "disk_full", FailureKind::Failed),
            (
                WorkspaceError::Space { needed_bytes: 2, free_bytes: 1 }.into(),
                "disk_full",
                FailureKind::Failed,
            ),
            (
                WorkspaceError::Pattern { pattern: "[".into(), why: "x".into() }.into(),
                "bad_pattern",
                FailureKind::Usage,
            ),
            (
                WorkspaceError::Read { path: rel(), source: io::ErrorKind::Other.into() }.into(),
                "workspace",
                FailureKind::Failed,
            ),
            (
                StoreError::SyncPack { path: path.clone(), source: full() }.into(),
                "disk_full",
                FailureKind::Failed,
            ),
            (
                StoreError::NewerFormat { path: path.clone(), found: 2, known: 1 }.into(),
                "newer_format",
                FailureKind::Failed,
            ),
            (StoreError::NotAStore { path: path.clone() }.into(), "not_a_store", FailureKind::Damaged),
            (StoreError::WriterFailed.into(), "store", FailureKind::Failed),
            (
                CatalogError::Newer { path: path.clone(), found: 2, known: 1 }.into(),
                "newer_format",
                FailureKind::Failed,
            ),
            (CatalogError::Taken { what: "plan", id: "x".to_owned() }.into(), "taken", FailureKind::Conflict),
            (CatalogError::Replaced { path: path.clone() }.into(), "catalog_replaced", FailureKind::Busy),
            (
                Error::OtherCatalog { standing: crate::CatalogStanding::Older },
                "other_catalog",
                FailureKind::Conflict,
            ),
            (CatalogError::Nested { path }.into(), "catalog", FailureKind::Failed),
            (CatalogError::Needed { checkpoint, rollback }.into(), "needed", FailureKind::Conflict),
            (
                CatalogError::SandboxBase { checkpoint, plan: "x".to_owned() }.into(),
                "needed",
                FailureKind::Conflict,
            ),
            (Error::NoFiles { checkpoint }, "no_files", FailureKind::Conflict),
            (Error::NoRepository { path: PathBuf::from("p") }, "no_repository", FailureKind::Conflict),
            (
                Error::PartOfRepository { top: PathBuf::from("p") },
                "part_of_repository",
                FailureKind::Conflict,
            ),
            (Error::PlanHealthy { id: "x".to_owned() }, "plan_healthy", FailureKind::Conflict),
            (Error::NoAttempt { name: "x".to_owned() }, "no_attempt", FailureKind::NotFound),
            (
                Error::AttemptConflict { name: "x".to_owned(), paths: Vec::new() },
                "attempt_conflict",
                FailureKind::Conflict,
            ),
            (
                Error::CheckFailed { checkpoint, command: "make test".to_owned(), why: "no".to_owned() },
                "check_failed",
                FailureKind::Failed,
            ),
            (
                Error::Room { name: "x".to_owned(), step: "mount".to_owned(), source: full() },
                "room",
                FailureKind::Failed,
            ),
            (Error::NoThread { id: "x".to_owned() }, "no_thread", FailureKind::NotFound),
            (
                Error::NoState { thread: "x".to_owned(), id: "y".to_owned() },
                "no_state",
                FailureKind::NotFound,
            ),
            (
                Error::StateWithoutFiles { id: "x".to_owned(), pruned: false },
                "no_files_of_state",
                FailureKind::NotFound,
            ),
            (
                Error::StateWithoutFiles { id: "x".to_owned(), pruned: true },
                "files_pruned",
                FailureKind::NotFound,
            ),
            (Error::ThreadChanged { id: "x".to_owned() }, "thread_changed", FailureKind::Busy),
            (Error::SessionChanged { id: "x".to_owned() }, "session_changed", FailureKind::Busy),
            (
                Error::Elsewhere { checkpoint, what: vec!["x".to_owned()], commands: Vec::new() },
                "elsewhere",
                FailureKind::Conflict,
            ),
            (Error::NoGitState { checkpoint }, "no_git_state", FailureKind::Conflict),
            (Error::NoRemote { name: None }, "no_remote", FailureKind::NotFound),
            (Error::RemoteBusy { name: "x".to_owned() }, "remote_busy", FailureKind::Busy),
            (Error::NotPublished { name: "x".to_owned() }, "not_published", FailureKind::NotFound),
            (RemoteError::NotInitialized.into(), "remote_not_initialized", FailureKind::Conflict),
            (RemoteError::SecretInAddress { what: "bytes" }.into(), "secret_in_address", FailureKind::Usage),
            (RemoteError::NoPack { pack: "x".to_owned() }.into(), "remote_damaged", FailureKind::Damaged),
            (RemoteError::Full { source: "full".into() }.into(), "remote_full", FailureKind::Failed),
            (RemoteError::Interrupted.into(), "interrupted", FailureKind::Interrupted),
            (GitError::Detached.into(), "git_refused", FailureKind::Conflict),
            (GitError::Interrupted.into(), "interrupted", FailureKind::Interrupted),
            (GitError::Moved { name: "x".to_owned() }.into(), "git_moved", FailureKind::Busy),
            (GitError::Locked { path: PathBuf::from("p") }.into(), "git_locked", FailureKind::Busy),
            (GitError::NoCommit { id: "x".to_owned() }.into(), "commit_gone", FailureKind::NotFound),
            (GitError::Write { path: PathBuf::from("p"), source: full() }.into(), "git", FailureKind::Failed),
            (GitError::Object(ObjectError::Missing { id: object }).into(), "missing", FailureKind::Damaged),
            (ObjectError::Input(full()).into(), "unreadable", FailureKind::Failed),
            (ObjectError::Interrupted.into(), "interrupted", FailureKind::Interrupted),
            (store(StoreError::WriterFailed).into(), "store", FailureKind::Failed),
            (ObjectError::Store("odd".into()).into(), "store", FailureKind::Failed),
        ];
        for (error, code, kind) in rows {
            let failure = Failure::from(&error);
            assert_eq!((failure.code, failure.kind), (code, kind), "{error}");
            assert!(!failure.message.is_empty());
            assert!(!failure.hints.is_empty(), "{error}: what to do next?");
        }
    }

    #[test]
    fn hints_name_the_thing_at_hand() {
        let name = || "a b".to_owned();
        let (checkpoint, rollback) = (CheckpointId::from_bits(1), safepoint_model::RollbackId::from_bits(1));
        let command = "cargo test -p 'x'".to_owned();
        let path = PathBuf::from("/srv/shop");
        let rows: [(Error, &str); 5] = [
            (Error::AttemptConflict { name: name(), paths: Vec::new() }, "safepoint attempt diff 'a b'"),
            (Error::RoomMissing { name: name(), path: path.clone() }, "safepoint attempt drop 'a b'"),
            (
                Error::CheckFailed { checkpoint, command, why: String::new() },
                r"safepoint rollback --until 'cargo test -p '\''x'\'''",
            ),
            (Error::ForeignRollback { path, rollback }, "safepoint -C /srv/shop recover"),
            (Error::NoPurge { paths: Vec::new() }, "`safepoint show @ --files`"),
        ];
        for (error, wanted) in rows {
            let hints = Failure::from(&error).hints;
            assert!(hints.iter().any(|hint| hint.contains(wanted)), "{hints:?}");
            let is_placeholder = |word: &str| ["CMD", "DIR", "ID", "NAME", "PLAN"].contains(&word);
            let mut words = hints.iter().flat_map(|hint| hint.split([' ', '`', '.', ',']));
            assert!(!words.any(is_placeholder), "{hints:?}");
        }
    }

    #[test]
    fn what_else_is_wrong_with_a_plan_is_in_the_hints() {
        let error = PlanFile::parse(b"titel = 'x'\nrun = 'y'", None).unwrap_err();
        let failure = Failure::from(&Error::from(error));
        assert_eq!(failure.message, "`title`, line 1, column 1, is missing: every plan has one");
        assert_eq!(
            failure.hints[1..],
            [
                "Also: unknown key `titel`, line 1, column 1: did you mean `title`?",
                "Also: unknown key `run`, line 2, column 1: did you mean `step.run`?",
            ]
        );
        assert!(failure.causes.is_empty());
    }

    #[test]
    fn a_failure_half_way_says_why_and_what_it_met() {
        let rollback = safepoint_model::RollbackId::from_bits(1);
        let source = Box::new(Error::Workspace(WorkspaceError::Sync(full())));
        let failure = Failure::from(&Error::RolledBackHalfway { rollback, source });
        assert_eq!((failure.code, failure.kind), ("rollback_failed", FailureKind::Failed));
        assert!(failure.causes.len() >= 2, "{failure:?}");
        let source = Box::new(Error::NothingToUndo);
        let failure = Failure::from(&Error::Unfinished { rollback, source });
        assert!(failure.hints[0].contains("safepoint recover"));
    }
}
