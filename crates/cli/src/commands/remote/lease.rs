//! Leases for `plan run` and `plan resume`: the lines of the workspace on its remotes.

use super::open_patiently;
use crate::commands::Context;
use crate::context;
use crate::problem::Problem;
use crate::render::terminal::printable;
use safepoint::{CheckpointManager, Error, LeaseOptions, PlanLease, PlanRecord, StoredRemote};
use std::sync::Arc;
use std::time::Duration;

/// Limit of one renewal.
const PATIENCE: Duration = Duration::from_secs(8);

/// Takes the lease of every line that the plan is published on. A remote that does not answer is a warning.
pub(crate) fn leases(
    context: &Context,
    manager: &CheckpointManager,
    record: &PlanRecord,
) -> Result<Vec<Arc<PlanLease>>, Problem> {
    let workspace = manager.workspaces().get(record.workspace_id)?;
    let mut leases = Vec::new();
    for stored in manager.remotes().list()? {
        if manager.remotes().standing(&stored.name, &workspace)?.line.is_none() {
            continue;
        }
        match lease(context, manager, record, &stored) {
            Ok(Some(lease)) => leases.push(Arc::new(lease)),
            Ok(None) => {}
            Err(problem) if problem.failure.code == "plan_elsewhere" => return Err(problem),
            Err(problem) => not_fenced(context, &stored, &problem.failure.message),
        }
    }
    Ok(leases)
}

fn lease(
    context: &Context,
    manager: &CheckpointManager,
    record: &PlanRecord,
    stored: &StoredRemote,
) -> Result<Option<PlanLease>, Problem> {
    let remote = open_patiently(context, manager, stored, PATIENCE)?;
    let mut how = LeaseOptions::new(context.surroundings.holder());
    if let Some(stop_after) = context::lease_time() {
        (how.renew_after, how.stop_after) = (stop_after * 3 / 8, stop_after);
    }
    let found = manager.remotes().lease((&stored.name, remote), &record.plan.id, &how);
    let Some((lease, failed)) = found.map_err(|error: Error| Problem::from(error))? else { return Ok(None) };
    if let Some(failure) = failed {
        not_fenced(context, stored, &failure.message);
    }
    Ok(Some(lease))
}

fn not_fenced(context: &Context, stored: &StoredRemote, why: &str) {
    context.out.warn_as(
        "not_fenced",
        format!(
            "the lease on remote {} was not renewed; another machine could take the plan over unnoticed: {}",
            stored.name,
            printable(why)
        ),
    );
}
