//! The plan of a layout: whether it is the state of a plan that is there, so that a rollback can put it back.

use super::reading::{DOCUMENT, Reading};
use super::rows::ContentRow;
use super::{LayoutError, logs_of};
use crate::{CheckpointManager, Error};
use safepoint_catalog::PlanRecord;
use safepoint_model::plan::document;
use safepoint_model::plan::state::Plan;
use safepoint_model::{ObjectId, ObjectKind, ObjectSink, WorkspaceId};
use std::collections::HashSet;

/// Reads the plan, and keeps it with what its steps printed.
pub(super) fn take(
    reading: &mut Reading,
    row: &ContentRow,
    sink: &dyn ObjectSink,
) -> Result<(Plan, ObjectId), Error> {
    let plan: Plan = reading.document(&row.path, DOCUMENT)?;
    if plan.format != Plan::FORMAT || plan.id != row.key {
        return Err(LayoutError::bad(&row.path, "it is not the plan that metadata.json lists").into());
    }
    let mut kept = HashSet::new();
    for log in plan.steps.iter().filter_map(|step| step.log).filter(|log| kept.insert(*log)) {
        let file = logs_of(&row.path).join(format!("{log}.txt").as_bytes())?;
        let bytes = reading.bytes(&file, DOCUMENT)?;
        if sink.put(ObjectKind::Chunk, &bytes)? != log {
            return Err(LayoutError::bad(&file, "it is not what the step printed").into());
        }
    }
    let document = document::store(sink, &plan)?;
    Ok((plan, document))
}

impl CheckpointManager {
    /// The plan in one of these workspaces whose state this is; else why it is none.
    pub(super) fn fitting_plan(
        &self,
        workspaces: &[WorkspaceId],
        then: &Plan,
    ) -> Result<Result<PlanRecord, String>, Error> {
        let Some(record) = self.catalog.plan(&then.id)? else {
            return Ok(Err(format!("there is no plan {:?} here", then.id)));
        };
        let why = if !workspaces.contains(&self.place_of(&record)?.id) {
            "works in another workspace"
        } else if then.state.is_over() || record.plan.sandbox != then.sandbox {
            "is another one here"
        } else if !is_made_of(then, &record.plan) {
            "has other steps here, and an import brings no commands"
        } else {
            return Ok(Ok(record));
        };
        Ok(Err(format!("plan {:?} {why}", then.id)))
    }
}

/// Returns true if each step of a plan equals one of another plan, in the same order, with its parent present; and no decision
/// comes twice. So nothing is ever run that was not in the plan before.
fn is_made_of(then: &Plan, now: &Plan) -> bool {
    let mut rest = now.steps.iter();
    let mut paths = HashSet::new();
    for step in &then.steps {
        let above = step.parent().is_none_or(|above| paths.contains(above));
        let known = rest.any(|known| known.path == step.path && known.spec == step.spec);
        if !above || !known {
            return false;
        }
        paths.insert(step.path.as_str());
    }
    let mut decisions = HashSet::new();
    then.decisions.iter().all(|decision| decisions.insert(decision.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::plan::spec::{PlanSpec, StepSpec};

    fn plan(steps: &[(&str, Option<&str>)]) -> Plan {
        let step =
            |(id, run): &(&str, Option<&str>)| StepSpec { run: run.map(str::to_owned), ..StepSpec::new(*id) };
        let spec = PlanSpec { steps: steps.iter().map(step).collect(), ..PlanSpec::new("Plan") };
        Plan::new("plan".to_owned(), &spec)
    }

    #[test]
    fn no_step_comes_in_that_was_not_there() {
        let now = plan(&[("a", Some("make a")), ("b", None), ("c", None)]);
        assert!(is_made_of(&now, &now));
        assert!(is_made_of(&plan(&[("a", Some("make a")), ("c", None)]), &now));
        assert!(is_made_of(&plan(&[]), &now));
        for strange in [
            plan(&[("a", Some("rm -rf /"))]),
            plan(&[("b", Some("x"))]),
            plan(&[("b", None), ("a", Some("make a"))]),
            plan(&[("b", None), ("b", None)]),
            plan(&[("d", None)]),
        ] {
            assert!(!is_made_of(&strange, &now), "{strange:?}");
        }
        let mut orphan = now.clone();
        orphan.steps[0].path = "x/a".to_owned();
        assert!(!is_made_of(&orphan, &orphan));
    }
}
