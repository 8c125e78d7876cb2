//! Folders: registration, and the current state beside a checkpoint.

use super::{read, workspace};
use crate::failure::Refusal;
use crate::shapes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::{Against, CheckpointManager, Depth, Error, Progress};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Path of any bytes.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AnyPath {
    Text(String),
    Raw { bytes: String },
}

impl AnyPath {
    pub(super) fn bytes(self) -> Result<Vec<u8>, Refusal> {
        match self {
            AnyPath::Text(text) => Ok(text.into_bytes()),
            AnyPath::Raw { bytes } => {
                STANDARD.decode(bytes).map_err(|error| Refusal::usage(format!("invalid path: {error}")))
            }
        }
    }

    pub(super) fn path(self) -> Result<PathBuf, Refusal> {
        Ok(PathBuf::from(OsString::from_vec(self.bytes()?)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Homes {
    Refused,
    Taken,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    path: AnyPath,
    unusual: Homes,
}

pub(super) fn register(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Register { path, unusual } = read(arguments)?;
    let path = path.path()?;
    let found = match unusual {
        Homes::Refused => manager.workspaces().register(&path)?,
        Homes::Taken => manager.workspaces().register_anyway(&path)?,
    };
    Ok(shapes::workspace(&found))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Around {
    path: AnyPath,
}

pub(super) fn around(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Around { path } = read(arguments)?;
    let path = path.path()?;
    let found = manager.workspaces().around(&path)?.ok_or(Error::NoWorkspace { path })?;
    Ok(shapes::workspace(&found))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    workspace: String,
}

pub(super) fn show(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id } = read(arguments)?;
    Ok(shapes::workspace(&workspace(manager, &id)?))
}

pub(super) fn status(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id } = read(arguments)?;
    let status = manager.status(&workspace(manager, &id)?, progress)?;
    Ok(json!({
        "base": status.base.as_ref().map(shapes::checkpoint),
        "changes": shapes::changes(&status.changes),
        "coverage": status.coverage,
        "warnings": status.warnings,
        "recovered": shapes::recovery(&status.recovery),
    }))
}

pub(super) fn survey(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id } = read(arguments)?;
    let survey = manager.survey(&workspace(manager, &id)?, progress)?;
    Ok(json!({ "count": survey.count, "bytes": survey.bytes, "coverage": survey.coverage }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    workspace: String,
    old: String,
    new: Option<String>,
}

pub(super) fn diff(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Diff { workspace: id, old, new } = read(arguments)?;
    let workspace = workspace(manager, &id)?;
    let find = |reference: &str| manager.checkpoints().find(Some(&workspace), reference);
    let old = find(&old)?;
    let new = match new {
        Some(new) => Against::Checkpoint(Box::new(find(&new)?)),
        None => Against::Present,
    };
    let comparison = manager.diff(&workspace, &old, &new, progress)?;
    Ok(shapes::changes(&comparison.changes))
}

pub(super) fn recover(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id } = read(arguments)?;
    Ok(shapes::recovery(&manager.recover(&workspace(manager, &id)?, progress)?))
}

pub(super) fn git_status(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { workspace: id } = read(arguments)?;
    let status = manager.git_status(&workspace(manager, &id)?, progress)?;
    Ok(status.map_or(Value::Null, |git| {
        json!({
            "state": git.state, "branch": git.branch, "commit": git.commit, "operation": git.operation,
            "has_uncommitted_changes": !git.changes.is_empty(),
        })
    }))
}

pub(super) fn validate(
    manager: &CheckpointManager,
    _: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let found = manager.upkeep().validate(None, Depth::Quick, progress)?;
    Ok(json!({
        "is_valid": found.is_valid(),
        "checkpoints": found.checkpoints,
        "damaged": found.damaged.iter().map(|part| part.what.to_string()).collect::<Vec<_>>(),
    }))
}
