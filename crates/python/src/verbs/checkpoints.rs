//! Checkpoints: creation, lists, contents, pins, deletion.

use super::{read, workspace};
use crate::failure::Refusal;
use crate::shapes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::{
    CheckpointManager, CreateOptions, Filter, GitCommit, IfUnchanged, Pinned, Progress, RoleFilter, Tags,
};
use safepoint_model::checkpoint::{Counters, Kind, Phase, Reason};
use safepoint_model::{CheckpointId, RelPath};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Commit {
    No,
    Tag,
    Branch,
    Session,
    Head,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Unchanged {
    #[default]
    Added,
    Reused,
    ReusedOfAnySession,
}

/// Options of a checkpoint. Absent ones are those of the library.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    label: Option<String>,
    kind: Option<Kind>,
    reason: Option<Reason>,
    phase: Option<Phase>,
    plan: Option<String>,
    session: Option<String>,
    tool: Option<String>,
    #[serde(default)]
    pinned: bool,
    progress: Option<Counters>,
    git: Option<Commit>,
    #[serde(default)]
    unchanged: Unchanged,
    #[serde(default)]
    warnings: Vec<String>,
}

impl From<Options> for CreateOptions {
    fn from(given: Options) -> Self {
        let usual = CreateOptions::default();
        CreateOptions {
            label: given.label,
            kind: given.kind.unwrap_or(usual.kind),
            reason: given.reason.unwrap_or(usual.reason),
            phase: given.phase,
            plan_id: given.plan,
            session_id: given.session,
            source_tool: given.tool,
            pinned: given.pinned,
            progress: given.progress.unwrap_or_default(),
            git: match given.git {
                None | Some(Commit::No) => GitCommit::No,
                Some(Commit::Tag) => GitCommit::Tag,
                Some(Commit::Branch) => GitCommit::Branch,
                Some(Commit::Session) => GitCommit::Session,
                Some(Commit::Head) => GitCommit::Head,
            },
            unchanged: match given.unchanged {
                Unchanged::Added => IfUnchanged::Added,
                Unchanged::Reused => IfUnchanged::Reused,
                Unchanged::ReusedOfAnySession => IfUnchanged::ReusedOfAnySession,
            },
            warnings: given.warnings,
            ..usual
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    workspace: String,
    options: Options,
}

pub(super) fn create(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Create { workspace: id, options } = read(arguments)?;
    let created = manager.create(&workspace(manager, &id)?, &options.into(), progress)?;
    Ok(shapes::created(&created))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Find {
    workspace: Option<String>,
    reference: String,
}

pub(super) fn find(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Find { workspace: id, reference } = read(arguments)?;
    let at = id.map(|id| workspace(manager, &id)).transpose()?;
    Ok(shapes::checkpoint(&manager.checkpoints().find(at.as_ref(), &reference)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Roles {
    Asked,
    Any,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    workspace: Option<String>,
    plan: Option<String>,
    session: Option<String>,
    kind: Option<Kind>,
    limit: Option<u64>,
    roles: Option<Roles>,
}

impl TryFrom<Which> for Filter {
    type Error = Refusal;

    fn try_from(which: Which) -> Result<Self, Refusal> {
        Ok(Filter {
            workspace: which.workspace.map(|id| id.parse()).transpose()?,
            plan_id: which.plan,
            session_id: which.session,
            kind: which.kind,
            limit: which.limit,
            role: match which.roles {
                None | Some(Roles::Asked) => RoleFilter::Asked,
                Some(Roles::Any) => RoleFilter::Any,
            },
            ..Filter::default()
        })
    }
}

pub(super) fn list(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let which: Which = read(arguments)?;
    Ok(shapes::checkpoints(&manager.checkpoints().list(&which.try_into()?)?))
}

pub(super) fn summary(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let which: Which = read(arguments)?;
    Ok(shapes::summary(&manager.checkpoints().summary(&which.try_into()?)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    checkpoint: CheckpointId,
}

pub(super) fn entries(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { checkpoint } = read(arguments)?;
    let checkpoint = manager.checkpoints().get(checkpoint)?;
    Ok(manager.checkpoints().entries(&checkpoint)?.iter().map(shapes::entry).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cat {
    checkpoint: CheckpointId,
    path: RelPath,
}

pub(super) fn cat(manager: &CheckpointManager, arguments: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    let Cat { checkpoint, path } = read(arguments)?;
    let checkpoint = manager.checkpoints().get(checkpoint)?;
    let mut content = Vec::new();
    manager.checkpoints().cat(&checkpoint, &path, &mut content)?;
    Ok(json!({ "bytes": STANDARD.encode(content) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    checkpoint: CheckpointId,
    pinned: bool,
}

pub(super) fn pin(manager: &CheckpointManager, arguments: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    let Pin { checkpoint, pinned } = read(arguments)?;
    let pinned = if pinned { Pinned::Yes } else { Pinned::No };
    Ok(shapes::checkpoint(&manager.checkpoints().pin(checkpoint, pinned)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    checkpoints: Vec<CheckpointId>,
    keep_tags: bool,
}

pub(super) fn delete(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Delete { checkpoints, keep_tags } = read(arguments)?;
    let tags = if keep_tags { Tags::Kept } else { Tags::Removed };
    let left = manager.checkpoints().delete_with(&checkpoints, tags)?;
    Ok(left.iter().map(safepoint::Warning::code).collect())
}
