//! Notes about rollbacks for the model of a session.

use safepoint::model::RelPath;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::plan::state::StepState;
use safepoint::model::rollback::Rollback;
use safepoint::{CheckpointManager, Error, Extent, Progress, TouchedTurn, Workspace};
use safepoint_agents::RollbackNote;

/// Returns the note about rollbacks, oldest first; none if there are none, or if they cancel each other out.
pub(super) fn note(
    manager: &CheckpointManager,
    workspace: &Workspace,
    rollbacks: &[Rollback],
    progress: &dyn Progress,
) -> Result<Option<String>, Error> {
    if rollbacks.is_empty() {
        return Ok(None);
    }
    let effects = manager.turns().effects(workspace, rollbacks, progress)?;
    let mut files: Vec<RelPath> = Vec::new();
    let mut steps: Vec<String> = Vec::new();
    for rollback in &effects.rollbacks {
        files.extend(manager.changed_paths(rollback)?.into_iter().map(|changed| changed.path));
        steps.extend(lost_steps(manager, rollback));
    }
    if effects.rollbacks.is_empty() {
        return Ok(None);
    }
    files.sort();
    files.dedup();
    steps.sort();
    steps.dedup();
    let named = |touched: &TouchedTurn| (touched.turn.number, touched.turn.prompt.clone());
    let of =
        |extent: Extent| effects.undone.iter().filter(move |touched| touched.extent == extent).map(named);
    let note = RollbackNote {
        target: effects.target.unwrap_or_default(),
        turns: of(Extent::Whole).collect(),
        partly: of(Extent::Part).collect(),
        restored: effects.restored.iter().map(named).collect(),
        steps,
        files,
        guidance: effects.guidance,
    };
    Ok(Some(note.text()))
}

/// Titles of steps that were done before a rollback and are not done after it.
fn lost_steps(manager: &CheckpointManager, rollback: &Rollback) -> Vec<String> {
    let Some(safety) = rollback.safety_checkpoint else { return Vec::new() };
    let Ok(before) = manager.checkpoints().get(safety) else { return Vec::new() };
    let plans = before.parts.iter().filter(|part| part.kind == PartKind::Plan);
    let lost = plans.filter_map(|part| {
        let old = manager.plans().held(safety, &part.key).ok()?;
        let new = manager.plans().held(rollback.to, &part.key).ok()?;
        let is_done =
            |path: &str| new.steps.iter().any(|step| step.path == path && step.state == StepState::Done);
        let steps = old.steps.iter().filter(|step| step.state == StepState::Done && !is_done(&step.path));
        Some(
            steps
                .map(|step| step.spec.title.clone().unwrap_or_else(|| step.path.clone()))
                .collect::<Vec<_>>(),
        )
    });
    lost.flatten().collect()
}
