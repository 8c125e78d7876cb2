//! Sessions, as programs read them.

use super::{checkpoint, set, summary, value};
use safepoint::SessionLog;
use safepoint::model::Timestamp;
use safepoint::model::session::Session;
use serde_json::{Value, json};

/// A session whole. Until it is over, it lasts until `now`.
pub(crate) fn session(session: &Session, now: Timestamp) -> Value {
    let mut statistics = value(session.statistics);
    set(&mut statistics, "duration_ms", json!(session.duration_micros(now) / 1000));
    json!({
        "session_id": session.id.to_uuid(),
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
    set(&mut fields, "checkpoints", log.checkpoints.iter().map(checkpoint).collect());
    set(&mut fields, "summary", summary(&log.summary));
    fields
}
