//! Attempts: work in rooms of their own, compared, kept or dropped. Python starts the commands itself.

use super::workspaces::AnyPath;
use super::{read, workspace};
use crate::failure::Refusal;
use crate::shapes;
use safepoint::model::attempt::{Attempt, AttemptRun, AttemptState};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{
    Against, AttemptShown, Better, CheckpointManager, DryRun, KeepAttempt, Others, Outside, Progress,
    Sharing, StartAttempt, Workspace, test_counts,
};
use safepoint_model::{CheckpointId, ObjectId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    workspace: String,
    name: Option<String>,
    copy: bool,
}

pub(super) fn start(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Start { workspace: id, name, copy } = read(arguments)?;
    let project = workspace(manager, &id)?;
    let sharing = if copy { Sharing::Copy } else { Sharing::Best };
    let started = manager.attempts().start(&project, &StartAttempt { name, sharing }, progress)?;
    let mut fields = shapes::attempt(&manager.attempts().show(&project, &started.attempt)?);
    fields["refused"] = json!(started.refused);
    Ok(fields)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All {
    workspace: String,
    all: bool,
}

pub(super) fn list(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let All { workspace: id, all } = read(arguments)?;
    let shown = manager.attempts().list(&workspace(manager, &id)?)?;
    let wanted = shown.iter().filter(|shown| all || shown.attempt.state == AttemptState::Open);
    Ok(wanted.map(shapes::attempt).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    workspace: String,
    name: String,
}

fn find(manager: &CheckpointManager, id: &str, name: &str) -> Result<(Workspace, Attempt), Refusal> {
    let project = workspace(manager, id)?;
    let attempt = manager.attempts().find(&project, name)?;
    Ok((project, attempt))
}

pub(super) fn show(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id, name } = read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    Ok(shapes::attempt(&manager.attempts().show(&project, &attempt)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    workspace: String,
    best: Option<String>,
    lowest: bool,
}

pub(super) fn compare(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Compare { workspace: id, best, lowest } = read(arguments)?;
    let mut shown = manager.attempts().list(&workspace(manager, &id)?)?;
    shown.retain(|shown| shown.attempt.state == AttemptState::Open);
    let better = if lowest { Better::Lower } else { Better::Higher };
    let best = best.and_then(|metric| AttemptShown::best(&shown, &metric, better));
    let best = best.map(|best| best.attempt.name.clone());
    let mut rows = Vec::new();
    for one in &shown {
        let mut fields = shapes::attempt(one);
        let lines = manager.attempts().lines(one, progress)?;
        fields["lines"] = json!(lines.map(|lines| [lines.added, lines.removed]));
        rows.push(fields);
    }
    Ok(json!({ "attempts": rows, "best": best }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    workspace: String,
    name: String,
    other: Option<String>,
}

/// Returns the newest checkpoint of an attempt.
fn newest(manager: &CheckpointManager, attempt: &Attempt) -> Result<Checkpoint, Refusal> {
    Ok(manager.checkpoints().get(attempt.result.unwrap_or(attempt.base))?)
}

pub(super) fn diff(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Diff { workspace: id, name, other } = read(arguments)?;
    let (_, attempt) = find(manager, &id, &name)?;
    let (old, new) = match other {
        Some(other) => (newest(manager, &attempt)?, newest(manager, &find(manager, &id, &other)?.1)?),
        None => (manager.checkpoints().get(attempt.base)?, newest(manager, &attempt)?),
    };
    let place = manager.workspaces().get(attempt.place_id)?;
    let comparison = manager.diff(&place, &old, &Against::Checkpoint(Box::new(new)), progress)?;
    Ok(shapes::changes(&comparison.changes))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    workspace: String,
    name: String,
    words: Vec<AnyPath>,
    directory: AnyPath,
    /// Folders that stay writable, if the rest of the file system is to be read-only.
    writable: Option<Vec<AnyPath>>,
}

/// Prepares the command that runs a program in an attempt: words, variables and directory.
pub(super) fn command(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Command { workspace: id, name, words, directory, writable } = read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    let words: Vec<OsString> =
        words.into_iter().map(|word| word.path().map(Into::into)).collect::<Result<_, _>>()?;
    let outside = match writable {
        None => Outside::Real,
        Some(writable) => {
            let mut paths = writable.into_iter().map(AnyPath::path).collect::<Result<Vec<_>, _>>()?;
            // The calls of Safepoint work inside.
            paths.push(manager.home().to_owned());
            Outside::ReadOnly(paths)
        }
    };
    let directory = directory.path()?;
    let prepared = manager.attempts().command(&project, &attempt, &words, (&directory, outside))?;
    let bytes = |text: &OsStr| shapes::bytes(text.as_bytes());
    let words: Vec<Value> =
        [prepared.get_program()].into_iter().chain(prepared.get_args()).map(bytes).collect();
    let variables: Map<String, Value> = prepared
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), bytes(value?))))
        .collect();
    let directory = prepared.get_current_dir().map(|directory| bytes(directory.as_os_str()));
    Ok(json!({ "words": words, "variables": variables, "directory": directory }))
}

/// Checks that the last command of an attempt could enter its room.
pub(super) fn entered(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id, name } = read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    match manager.attempts().refused(&project, &attempt) {
        Some(error) => Err(error.into()),
        None => Ok(Value::Null),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    workspace: String,
    name: String,
    command: Vec<String>,
    exit_status: Option<i32>,
    verified: Option<bool>,
    /// Output of the check.
    output: Option<String>,
    milliseconds: Option<u64>,
}

pub(super) fn finish(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Finish { workspace: id, name, command, exit_status, verified, output, milliseconds } =
        read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    let tests = output.as_deref().and_then(test_counts);
    let run = AttemptRun { command, exit_status, verified, tests, milliseconds };
    let finished = manager.attempts().finish(&project, &attempt, &run, progress)?;
    Ok(shapes::attempt(&manager.attempts().show(&project, &finished.attempt)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OtherAttempts {
    Drop,
    Open,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keep {
    workspace: String,
    name: String,
    others: OtherAttempts,
    dry_run: bool,
    /// Result and state of the project in a preview.
    expect: Option<(CheckpointId, ObjectId)>,
}

pub(super) fn keep(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Keep { workspace: id, name, others, dry_run, expect } = read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    let others = match others {
        OtherAttempts::Drop => Others::Dropped,
        OtherAttempts::Open => Others::Open,
    };
    let dry_run = if dry_run { DryRun::Yes } else { DryRun::No };
    let kept =
        manager.attempts().keep(&project, &attempt, &KeepAttempt { others, dry_run, expect }, progress)?;
    let shown = manager.attempts().show(&project, &kept.attempt)?;
    let left = kept.left.iter().map(|(room, why)| json!([shapes::bytes(room.as_os_str().as_bytes()), why]));
    Ok(json!({
        "attempt": shapes::attempt(&shown),
        "result": kept.result.id,
        "present": kept.restored.as_ref().map_or(ObjectId::from_bytes([0; 32]), |restored| restored.present),
        "rollback": kept.restored.as_ref().map(shapes::rolled_back),
        "merged": kept.merged,
        "changed_in_project": kept.changed_in_project,
        "dropped": kept.dropped,
        "ended": shapes::processes(&kept.ended),
        "left": left.collect::<Vec<_>>(),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drop {
    workspace: String,
    name: String,
    delete_commits: bool,
}

pub(super) fn drop(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Drop { workspace: id, name, delete_commits } = read(arguments)?;
    let (project, attempt) = find(manager, &id, &name)?;
    let attempt = match delete_commits && attempt.state != AttemptState::Open {
        true => attempt,
        false => manager.attempts().drop(&project, &attempt, progress)?.0,
    };
    if delete_commits {
        manager.attempts().delete_room(&attempt)?;
    }
    Ok(shapes::attempt(&manager.attempts().show(&project, &attempt)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    workspace: String,
    metrics: BTreeMap<String, f64>,
}

/// Notes metrics for the next checkpoint.
pub(super) fn metrics(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Metrics { workspace: id, metrics } = read(arguments)?;
    let metrics: Vec<(String, f64)> = metrics.into_iter().collect();
    manager.attempts().note_metrics(workspace(manager, &id)?.id, &metrics)?;
    Ok(Value::Null)
}
