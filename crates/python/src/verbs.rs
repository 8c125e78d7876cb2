//! The verbs that Python may call, one row each.

mod attempts;
mod checkpoints;
mod plans;
mod rollbacks;
mod threads;
mod workspaces;

use crate::failure::Refusal;
use safepoint::{CheckpointManager, Progress, Workspace};
use safepoint_model::WorkspaceId;
use serde::de::DeserializeOwned;
use serde_json::Value;
pub(crate) use threads::Beside;

/// A verb: arguments in, result out.
pub(crate) type Verb = fn(&CheckpointManager, Value, &dyn Progress) -> Result<Value, Refusal>;

/// A verb with values beside its JSON: those of the arguments come in, and those of the result go out.
pub(crate) type WideVerb =
    fn(&CheckpointManager, Value, &mut Beside, &dyn Progress) -> Result<Value, Refusal>;

/// Verbs with values beside their JSON.
pub(crate) const WIDE: &[(&str, WideVerb)] = &[
    ("thread_get", threads::get),
    ("thread_put", threads::put),
    ("thread_put_writes", threads::put_writes),
    ("thread_list", threads::list),
    ("thread_rollback", threads::rollback),
];

/// Returns the names of all verbs.
pub(crate) fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).chain(WIDE.iter().map(|(name, _)| *name)).collect()
}

/// Returns true if a call is one read or one transaction: it never captures a folder, and cannot be interrupted.
pub(crate) fn is_short(verb: &str, arguments: &Value) -> bool {
    match verb {
        "thread_get" | "thread_put_writes" | "thread_list" => true,
        "thread_put" => arguments.get("capture").is_some_and(Value::is_null),
        _ => false,
    }
}

/// All verbs.
pub(crate) const TABLE: &[(&str, Verb)] = &[
    ("register", workspaces::register),
    ("workspace", workspaces::show),
    ("around", workspaces::around),
    ("status", workspaces::status),
    ("survey", workspaces::survey),
    ("diff", workspaces::diff),
    ("recover", workspaces::recover),
    ("git_status", workspaces::git_status),
    ("validate", workspaces::validate),
    ("create", checkpoints::create),
    ("find", checkpoints::find),
    ("list", checkpoints::list),
    ("summary", checkpoints::summary),
    ("entries", checkpoints::entries),
    ("cat", checkpoints::cat),
    ("pin", checkpoints::pin),
    ("delete", checkpoints::delete),
    ("rollback", rollbacks::rollback),
    ("undo", rollbacks::undo),
    ("redo", rollbacks::redo),
    ("attempt_start", attempts::start),
    ("attempt_list", attempts::list),
    ("attempt_show", attempts::show),
    ("attempt_compare", attempts::compare),
    ("attempt_diff", attempts::diff),
    ("attempt_command", attempts::command),
    ("attempt_entered", attempts::entered),
    ("attempt_finish", attempts::finish),
    ("attempt_keep", attempts::keep),
    ("attempt_drop", attempts::drop),
    ("metrics", attempts::metrics),
    ("plan_create", plans::create),
    ("plan", plans::show),
    ("plan_list", plans::list),
    ("plan_move", plans::move_step),
    ("plan_decide", plans::make_decision),
    ("plan_checkpoint", plans::checkpoint),
    ("plan_state", plans::state),
    ("plan_rollback", plans::rollback),
    ("plan_prune", plans::prune),
    ("plan_revert", plans::revert),
    ("plan_append", plans::append),
    ("threads", threads::all),
    ("thread_delete", threads::delete),
    ("thread_delete_runs", threads::delete_runs),
    ("thread_remove", threads::remove),
    ("thread_prune", threads::prune),
    ("thread_copy", threads::copy),
    ("thread_move_head", threads::move_head),
    ("thread_expire", threads::expire),
    #[cfg(debug_assertions)]
    ("panic", panics),
];

/// A defect on purpose, for the tests of debug builds.
#[cfg(debug_assertions)]
#[allow(clippy::panic, reason = "that is its purpose")]
fn panics(_: &CheckpointManager, _: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    panic!("on purpose");
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, Refusal> {
    Ok(serde_json::from_value(arguments)?)
}

fn workspace(manager: &CheckpointManager, id: &str) -> Result<Workspace, Refusal> {
    Ok(manager.workspaces().get(id.parse::<WorkspaceId>()?)?)
}
