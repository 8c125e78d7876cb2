//! A repository that a workspace had and that is missing: reported by every command that reads the workspace, with the way back.

use crate::problem::Problem;
use crate::render::output::Printer;
use crate::render::warning::{self, from_state};
use safepoint::{CheckpointManager, LostRepository, Warning, Workspace};

/// Looks for it, and warns.
pub(crate) fn report(
    out: &Printer,
    manager: &CheckpointManager,
    workspace: &Workspace,
) -> Option<LostRepository> {
    let lost = find(manager, workspace)?;
    warning::warn(out, &[Warning::RepositoryMissing(lost.clone())]);
    Some(lost)
}

/// Looks for it. What cannot be read is reported by others.
pub(crate) fn find(manager: &CheckpointManager, workspace: &Workspace) -> Option<LostRepository> {
    manager.lost_repository(workspace).ok().flatten()
}

/// The command or the steps that bring it back.
pub(crate) fn way_back(lost: &LostRepository) -> String {
    match lost.whole {
        Some(whole) => format!("Restore the repository: safepoint rollback {whole} --part git"),
        None => format!("To get the repository back, {}", from_state(lost)),
    }
}

/// The problem of a missing repository, with the way back in place of the advice to make a new one.
pub(crate) fn explained(manager: &CheckpointManager, workspace: &Workspace, mut problem: Problem) -> Problem {
    if problem.failure.code == "no_repository"
        && let Some(lost) = find(manager, workspace)
    {
        problem.failure.hints.retain(|hint| !hint.contains("git init"));
        problem.failure.hints.insert(0, way_back(&lost));
    }
    problem
}
