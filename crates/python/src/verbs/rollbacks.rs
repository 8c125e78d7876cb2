//! Rollback, undo and redo.

use super::{read, workspace};
use crate::failure::Refusal;
use crate::shapes;
use safepoint::{
    CheckpointManager, DryRun, FailedUndo, GitReset, LaterChanges, Missing, Progress, RollbackOptions, Times,
};
use safepoint_model::RelPath;
use safepoint_model::checkpoint::PartKind;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Git {
    #[default]
    No,
    Mixed,
    Hard,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Effects {
    #[default]
    Undone,
    SkippedIfFailing,
    Left,
}

/// Options of a rollback, undo or redo. Absent ones are those of the library.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    paths: Vec<RelPath>,
    leave: Vec<RelPath>,
    parts: Vec<PartKind>,
    dry_run: bool,
    keep_times: bool,
    replace_changes: bool,
    recreate_sandbox: bool,
    git: Git,
    effects: Effects,
}

impl From<Options> for RollbackOptions {
    fn from(given: Options) -> Self {
        RollbackOptions {
            paths: outermost(given.paths),
            leave: given.leave,
            parts: given.parts,
            dry_run: if given.dry_run { DryRun::Yes } else { DryRun::No },
            times: if given.keep_times { Times::Recorded } else { Times::Present },
            later_changes: match given.replace_changes {
                true => LaterChanges::Replaced,
                false => LaterChanges::Refused,
            },
            missing_sandbox: match given.recreate_sandbox {
                true => Missing::MadeAgain,
                false => Missing::Refused,
            },
            git: match given.git {
                Git::No => GitReset::No,
                Git::Mixed => GitReset::Mixed,
                Git::Hard => GitReset::Hard,
            },
            failed_undo: match given.effects {
                Effects::Undone => FailedUndo::Stops,
                Effects::SkippedIfFailing => FailedUndo::IsSkipped,
                Effects::Left => FailedUndo::NoneRuns,
            },
            ..RollbackOptions::default()
        }
    }
}

/// The paths without those that lie in another one.
fn outermost(mut paths: Vec<RelPath>) -> Vec<RelPath> {
    paths.sort();
    let mut chosen: Vec<RelPath> = Vec::new();
    for path in paths {
        if !chosen.iter().any(|above| path.is_within(above)) {
            chosen.push(path);
        }
    }
    chosen
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    workspace: String,
    to: String,
    options: Options,
}

pub(super) fn rollback(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Rollback { workspace: id, to, options } = read(arguments)?;
    let workspace = workspace(manager, &id)?;
    let to = manager.checkpoints().find(Some(&workspace), &to)?.id;
    Ok(shapes::rolled_back(&manager.rollback(&workspace, to, &options.into(), progress)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    workspace: String,
    options: Options,
}

pub(super) fn undo(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Answer { workspace: id, options } = read(arguments)?;
    let workspace = workspace(manager, &id)?;
    let options: RollbackOptions = options.into();
    let done = manager.undo(&workspace, &options, progress)?;
    Ok(shapes::rolled_back(&done))
}

pub(super) fn redo(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Answer { workspace: id, options } = read(arguments)?;
    let done = manager.redo(&workspace(manager, &id)?, &options.into(), progress)?;
    Ok(shapes::rolled_back(&done))
}
