//! Sessions, as programs read them.

use super::{checkpoint, set, summary, value};
use safepoint::model::Timestamp;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::session::Session;
use safepoint::{SessionLog, Summary};
use serde_json::{Value, json};

/// A session whole. Until it is over, it lasts until `now`.
pub(crate) fn session(session: &Session, now: Timestamp) -> Value {
    let mut statistics = value(session.statistics);
    set(&mut statistics, "duration_ms", json!(session.duration_micros(now) / 1000));
    json!({
        "session_id": session.id.to_uuid(),
        "recorded": session.is_recorded(),
        "request": session.request,
        "status": session.status,
        "paused_from": session.paused_from,
        "statistics": statistics,
        "configuration": session.configuration,
        "git_context": session.git_context,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "finished_at": session.finished_at,
    })
}

/// The log of a session: its record, with its checkpoints, newest first, and sums over them.
pub(crate) fn log(log: &SessionLog) -> Value {
    let mut fields = session(&log.session, log.generated_at);
    set(&mut fields, "generated_at", json!(log.generated_at));
    set(&mut fields, "checkpoints", log.checkpoints.iter().map(logged).collect());
    set(&mut fields, "summary", summed(&log.summary));
    fields
}

/// A checkpoint with the names that readers of such logs know beside ours.
fn logged(record: &Checkpoint) -> Value {
    let mut fields = checkpoint(record);
    set(&mut fields, "checkpoint_id", json!(record.id.to_uuid()));
    set(&mut fields, "timestamp", json!(record.created_at));
    set(&mut fields, "description", json!(record.label.as_deref().unwrap_or_default()));
    set(&mut fields, "checkpoint_type", json!(record.reason));
    fields
}

/// The sums in those names: the latest checkpoint is its commit.
fn summed(sums: &Summary) -> Value {
    let mut fields = summary(sums);
    let latest = sums.latest_checkpoint.as_deref();
    set(&mut fields, "checkpoints_by_type", json!(sums.checkpoints_by_reason));
    set(&mut fields, "latest_checkpoint", json!(latest.and_then(|latest| latest.commit_sha.as_ref())));
    set(&mut fields, "latest_checkpoint_id", json!(latest.map(|latest| latest.id)));
    fields
}
