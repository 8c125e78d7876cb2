//! Current workspace, its file system, unfinished work, and the other workspaces.

use super::home::room;
use super::{Check, Health};
use crate::commands::lost;
use crate::context::Surroundings;
use crate::render::terminal::counted;
use crate::render::warning;
use safepoint::model::rollback::RollbackState;
use safepoint::{Capabilities, CheckpointManager, Error, Failure, FailureKind, Workspace};
use std::path::Path;

pub(super) fn checks(surroundings: &Surroundings, manager: &CheckpointManager) -> Vec<Check> {
    let mut checks = Vec::new();
    let here = match surroundings.workspace_if_any(manager) {
        Ok(Some(workspace)) => {
            checks.extend(workspace_checks(manager, &workspace));
            Some(workspace)
        }
        Ok(None) => {
            checks.push(Check::warning(
                "workspace",
                format!("no workspace is registered at or above {}", surroundings.directory.display()),
                "`safepoint create` in a project registers it.",
            ));
            None
        }
        Err(problem) => {
            checks.push(Check::problem(
                "workspace",
                problem.failure.message,
                problem.failure.hints.join(" "),
            ));
            None
        }
    };
    checks.push(configuration(manager, here.as_ref()));
    checks.push(others(manager, here.as_ref()));
    checks
}

fn workspace_checks(manager: &CheckpointManager, workspace: &Workspace) -> Vec<Check> {
    let root = workspace.root_path();
    if !root.is_dir() {
        return vec![
            Check::problem(
                "workspace",
                format!("{} is gone", root.display()),
                format!(
                    "Its checkpoints are safe. Make the folder again (mkdir {}) and roll back.",
                    root.display()
                ),
            ),
            unfinished(manager, workspace),
        ];
    }
    let mut checks = vec![Check::ok("workspace", format!("{} is registered and there", root.display()))];
    let own = own_folder(manager, workspace);
    let is_free = own.status != Health::Problem;
    checks.push(own);
    // The obstacle was just reported.
    if is_free {
        match manager.workspaces().capabilities(workspace) {
            Ok(found) => checks.extend(capabilities(found)),
            Err(error) => checks.push(no_capabilities(&error)),
        }
    }
    checks.push(repository(manager, workspace));
    checks.extend(attempts(manager, root));
    checks.push(room("workspace_space", root));
    checks.push(unfinished(manager, workspace));
    checks
}

/// Checks whether a repository that checkpoints know is still there.
fn repository(manager: &CheckpointManager, workspace: &Workspace) -> Check {
    match manager.lost_repository(workspace) {
        Ok(None) => Check::ok("repository", "no git repository is missing"),
        Ok(Some(lost)) => {
            Check::warning("repository", "the git repository is missing".to_owned(), lost::way_back(&lost))
        }
        Err(error) => Check::failed("repository", &error),
    }
}

/// Checks by which means attempts share the project's files.
fn attempts(manager: &CheckpointManager, root: &Path) -> Option<Check> {
    if !manager.is_writable() {
        return None;
    }
    Some(match manager.attempts().probe(root) {
        Ok((true, _)) => Check::ok("attempts", "attempts are overlays at the project's own path"),
        Ok((false, refused)) => Check::warning(
            "attempts",
            format!("attempts are copies at another path: {}", refused.join("; ")),
            "They work, and cost the time and space of a copy. An overlay needs user namespaces or root.",
        ),
        Err(error) => Check::failed("attempts", &error),
    })
}

/// Checks for foreign files in Safepoint's folder, or under its name.
fn own_folder(manager: &CheckpointManager, workspace: &Workspace) -> Check {
    let name = "own_folder";
    let intruders = match manager.workspaces().intruders(workspace) {
        Ok(intruders) => intruders,
        Err(error) => return Check::failed(name, &error),
    };
    let first = intruders.iter().find(|intruder| intruder.in_the_way).or(intruders.first());
    let Some(first) = first else {
        return Check::ok(name, "nothing stands where rollbacks prepare files (.safepoint)");
    };
    let more = match intruders.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    let hint = format!("Free the way: {}", first.command());
    if first.in_the_way {
        Check::problem(name, format!("{}: {}: no rollback can be done{more}", first.path, first.what), hint)
    } else {
        let why = "it is never captured, and never deleted";
        Check::warning(name, format!("{}: {}: {why}{more}", first.path, first.what), hint)
    }
}

fn no_capabilities(error: &Error) -> Check {
    let failure = Failure::from(error);
    if failure.kind == FailureKind::Busy {
        return Check::warning("file_system", failure.message, "Ask again when it has finished.");
    }
    Check::failed("file_system", error)
}

/// Returns a check for each file system feature that rollback uses.
fn capabilities(found: Capabilities) -> Vec<Check> {
    let all = Capabilities::default();
    let words = [
        ("exchange", Capabilities { exchange: found.exchange, ..all }, "two files are exchanged in one step"),
        (
            "no_replace",
            Capabilities { no_replace: found.no_replace, ..all },
            "a move replaces nothing that is there",
        ),
        ("leases", Capabilities { leases: found.leases, ..all }, "the kernel tells who has your files open"),
        (
            "case",
            Capabilities { case_matters: found.case_matters, ..all },
            "names that differ only in case are two names",
        ),
    ];
    let hint = "A rollback goes another way. ext4, xfs, btrfs and tmpfs can do it.";
    words
        .into_iter()
        .map(|(name, alone, words)| match alone.lacking().first() {
            None => Check::ok(name, words),
            Some(lack) => Check::warning(name, warning::lacks(*lack), hint),
        })
        .collect()
}

/// Checks the configuration of the home and an existing workspace.
fn configuration(manager: &CheckpointManager, here: Option<&Workspace>) -> Check {
    let here = here.filter(|here| here.root_path().is_dir());
    match manager.config(here) {
        Ok(_) => Check::ok("configuration", "every setting is understood"),
        Err(error) => Check::failed("configuration", &error),
    }
}

fn unfinished(manager: &CheckpointManager, workspace: &Workspace) -> Check {
    let records = match manager.rollbacks(workspace) {
        Ok(records) => records,
        Err(error) => return Check::failed("unfinished", &error),
    };
    let in_state = |state: RollbackState| records.iter().rev().find(|record| record.state == state);
    if let Some(record) = in_state(RollbackState::Applying) {
        return Check::problem(
            "unfinished",
            format!("rollback {} was cut short, or is still at work", record.id),
            "`safepoint recover` restores the state before it; the next command would do so too.",
        );
    }
    if let Some(record) = in_state(RollbackState::Done) {
        return Check::warning(
            "unfinished",
            format!("rollback {} is done; files that it displaced still wait to be looked at", record.id),
            "`safepoint recover` looks at them; a program that has one open has to close it first.",
        );
    }
    Check::ok("unfinished", "nothing was left half done")
}

/// Workspaces without a folder.
fn others(manager: &CheckpointManager, here: Option<&Workspace>) -> Check {
    let all = match manager.workspaces().list() {
        Ok(all) => all,
        Err(error) => return Check::failed("other_workspaces", &error),
    };
    let others: Vec<&Workspace> =
        all.iter().filter(|other| here.is_none_or(|here| here.id != other.id)).collect();
    let gone: Vec<String> = others
        .iter()
        .filter(|other| !other.root_path().is_dir())
        .map(|other| other.root_path().display().to_string())
        .collect();
    let count = counted(others.len() as u64, "other workspace", "other workspaces");
    if others.is_empty() {
        return Check::ok("other_workspaces", "there are no others");
    }
    if gone.is_empty() {
        return Check::ok("other_workspaces", format!("{count}, none of them gone"));
    }
    Check::warning(
        "other_workspaces",
        format!("{} of {count} gone: {}", gone.len(), gone.join(", ")),
        "Was a folder deleted or moved? Its checkpoints are safe: make it again and roll back, if you want it.",
    )
}
