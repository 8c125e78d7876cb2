//! Handles: the methods of the manager on one subject each, such as plans.

use crate::manager::CheckpointManager;
use safepoint_model::WorkspaceId;

/// Folders that have checkpoints: registering, finding, moving and forgetting them.
#[derive(Clone, Copy)]
pub struct Workspaces<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Recorded checkpoints: finding, listing and reading them; pinning and deleting their records.
#[derive(Clone, Copy)]
pub struct Checkpoints<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Plans: their records, steps, runs, corrections and rollback.
#[derive(Clone, Copy)]
pub struct Plans<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Sessions of agents.
#[derive(Clone, Copy)]
pub struct Sessions<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Registered agents with their configuration and memory.
#[derive(Clone, Copy)]
pub struct Agents<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Threads of conversations: those of the home, or those that are bound to one workspace.
#[derive(Clone, Copy)]
pub struct Threads<'m> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) workspace: Option<WorkspaceId>,
}

/// Turns of agents: one prompt each, with the checkpoints around the work for it.
#[derive(Clone, Copy)]
pub struct Turns<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Attempts: work on a project in rooms of their own, kept whole or dropped.
#[derive(Clone, Copy)]
pub struct Attempts<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Remotes: places where checkpoints are published and fetched from.
#[derive(Clone, Copy)]
pub struct Remotes<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

/// Care of the store and the catalog: validation, repair, retention and space.
#[derive(Clone, Copy)]
pub struct Upkeep<'m> {
    pub(crate) manager: &'m CheckpointManager,
}

impl CheckpointManager {
    /// Opens the handle: folders that have checkpoints.
    pub fn workspaces(&self) -> Workspaces<'_> {
        Workspaces { manager: self }
    }

    /// Opens the handle: recorded checkpoints.
    pub fn checkpoints(&self) -> Checkpoints<'_> {
        Checkpoints { manager: self }
    }

    /// Opens the handle: remotes.
    pub fn remotes(&self) -> Remotes<'_> {
        Remotes { manager: self }
    }

    /// Opens the handle: plans.
    pub fn plans(&self) -> Plans<'_> {
        Plans { manager: self }
    }

    /// Opens the handle: sessions of agents.
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions { manager: self }
    }

    /// Opens the handle: registered agents with their configuration and memory.
    pub fn agents(&self) -> Agents<'_> {
        Agents { manager: self }
    }

    /// Opens the handle: threads of conversations that belong to the home. [`Threads::of`] gives those of a workspace.
    pub fn threads(&self) -> Threads<'_> {
        Threads { manager: self, workspace: None }
    }

    /// Opens the handle: turns of agents.
    pub fn turns(&self) -> Turns<'_> {
        Turns { manager: self }
    }

    /// Opens the handle: attempts.
    pub fn attempts(&self) -> Attempts<'_> {
        Attempts { manager: self }
    }

    /// Opens the handle: care of the store and the catalog.
    pub fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { manager: self }
    }
}
