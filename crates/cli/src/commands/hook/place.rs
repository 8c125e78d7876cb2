//! Workspace of an event, and the paths that a tool names in it.

use safepoint::model::RelPath;
use safepoint::{CheckpointManager, Error, Workspace};
use safepoint_agents::HookEvent;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Folder below a project in which Claude Code makes git worktrees for its agents.
const WORKTREES: &str = ".claude/worktrees";

/// Place of an event.
pub(super) enum Found {
    /// A workspace.
    In(Box<Workspace>),
    /// The home directory of the user, or a folder that contains it. Only the user registers it.
    Home,
    /// No workspace and no repository.
    Nowhere,
}

/// Returns the innermost registered workspace around the agent's folder; else the repository, or the project that the agent names.
/// A worktree that the agent made in its project is a workspace of its own. A repository of the home directory, as for dotfiles, is no
/// project.
pub(super) fn workspace(
    manager: &CheckpointManager,
    event: &HookEvent,
    home: Option<&Path>,
) -> Result<Found, Error> {
    let home = home.and_then(|home| home.canonicalize().ok());
    let is_home = |folder: &Path| {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        folder.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(&folder))
    };
    let cwd = event.cwd.as_deref().map(Path::new).filter(|path| path.is_absolute());
    // An agent can outlive its folder.
    let cwd = cwd.and_then(|cwd| cwd.ancestors().find(|folder| folder.is_dir()));
    let repository = cwd.and_then(|cwd| cwd.ancestors().find(|folder| folder.join(".git").exists()));
    let repository = repository.filter(|folder| !is_home(folder));
    let registered =
        |folder: &Path| manager.workspaces().register(folder).map(|workspace| Found::In(Box::new(workspace)));
    if let Some(cwd) = cwd
        && let Some(found) = manager.workspaces().around(cwd)?
    {
        return match repository.filter(|folder| is_worktree(folder, &found)) {
            Some(folder) => registered(folder),
            None => Ok(Found::In(Box::new(found))),
        };
    }
    let project = event.project.as_deref().map(Path::new).filter(|path| path.is_absolute());
    match repository.or(project.filter(|folder| !is_home(folder))) {
        Some(folder) => registered(folder),
        None if cwd.is_some_and(is_home) => Ok(Found::Home),
        None => Ok(Found::Nowhere),
    }
}

/// Returns true for a worktree of an agent below the workspace.
fn is_worktree(folder: &Path, found: &Workspace) -> bool {
    folder != found.root_path() && folder.parent().is_some_and(|above| above.ends_with(WORKTREES))
}

/// Divides the paths that a tool names: those in the workspace, and those outside.
pub(super) fn divided(
    workspace: &Workspace,
    event: &HookEvent,
    paths: &[String],
) -> (Vec<RelPath>, Vec<String>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let cwd = event.cwd.as_deref().map_or_else(|| workspace.root_path().to_owned(), PathBuf::from);
    for path in paths {
        let whole = resolved(&cwd.join(path));
        let below = whole.strip_prefix(workspace.root_path()).ok();
        match below.and_then(|below| RelPath::new(below.as_os_str().as_bytes()).ok()) {
            Some(path) => inside.push(path),
            None => outside.push(path.clone()),
        }
    }
    (inside, outside)
}

/// Returns the path without links and dots in its folders. Its last part need not exist.
fn resolved(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    let Some(existing) = plain.parent().and_then(|folder| folder.ancestors().find(|folder| folder.is_dir()))
    else {
        return plain;
    };
    match (existing.canonicalize(), plain.strip_prefix(existing)) {
        (Ok(folder), Ok(rest)) => folder.join(rest),
        _ => plain,
    }
}
