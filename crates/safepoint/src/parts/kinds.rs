//! The kinds of parts in one list: what each adds to a checkpoint, to a rollback and to a recovery.
//!
//! The verbs loop over [`KINDS`] and know none of them by name. Files are not in the list: every folder has them, and the other kinds
//! come with a folder or with the catalog.

use crate::parts::Member;
use crate::parts::agent::AgentParts;
use crate::parts::files::FilesPart;
use crate::parts::git::{GitCapture, GitParts};
use crate::parts::outside::OutsideParts;
use crate::parts::part::Part;
use crate::parts::plan::PlanParts;
use crate::parts::session::SessionParts;
use crate::parts::thread::{Captures, ThreadParts};
use crate::rollback::scene::Scene;
use crate::rollback::{LeftAlone, Request, RollbackOptions};
use crate::{CheckpointManager, Error, GitReset, Warning};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::agent::{AgentRecord, WorkspaceKind};
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::rollback::Rollback;
use safepoint_model::{ObjectId, Progress, RollbackId};

/// Every kind but files, in the order in which parts are captured and rolled back.
pub(crate) static KINDS: [&dyn Kind; 6] =
    [&GitParts, &OutsideParts, &PlanParts, &SessionParts, &ThreadParts, &AgentParts];

/// One folder of a new checkpoint.
pub(crate) struct FolderNow<'f, 'm> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) files: &'f FilesPart<'m>,
    /// Extent of the git state.
    pub(crate) git: GitCapture,
    /// True if the folder is a project of the checkpoint, and not the memory of an agent.
    pub(crate) is_project: bool,
    /// Place among the folders.
    pub(crate) at: usize,
}

/// Rows of the catalog that belong to a new checkpoint.
pub(crate) struct RecordsNow<'f, 'm> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) plans: &'f [PlanRecord],
    /// Number of plans, from the first, that the checkpoint is of.
    pub(crate) own_plans: usize,
    pub(crate) session: Option<&'f str>,
    pub(crate) agents: &'f [AgentRecord],
    /// Threads that belong to it.
    pub(crate) threads: Captures<'m>,
}

/// One folder of a rollback.
pub(crate) struct FolderBack<'f, 'm> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) request: &'m Request<'m>,
    pub(crate) files: FilesPart<'m>,
    /// Target of the files; `None` if they stay. A kind that restores the files itself clears it.
    pub(crate) target: Option<ObjectId>,
    /// Extent of the git state.
    pub(crate) git: GitCapture,
    pub(crate) record: &'f mut Rollback,
    /// Place among the folders.
    pub(crate) at: usize,
    pub(crate) progress: &'m dyn Progress,
    pub(crate) warnings: &'f mut Vec<Warning>,
}

/// Rows of the catalog in a rollback.
pub(crate) struct RecordsBack<'f, 'm> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) request: &'f Request<'m>,
    pub(crate) scene: &'f Scene,
    pub(crate) rollback: RollbackId,
}

/// A part that an interrupted rollback included, and its note.
pub(crate) struct LeftPart<'m> {
    pub(crate) part: Box<dyn Part + 'm>,
    pub(crate) note: Vec<u8>,
}

/// A kind of part. A method that a kind leaves out adds nothing.
pub(crate) trait Kind: Sync {
    /// Adds the parts of one folder to a new checkpoint.
    fn capture_folder<'m>(
        &self,
        _folder: &FolderNow<'_, 'm>,
        _members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Adds the parts of the catalog to a new checkpoint.
    fn capture_records<'m>(
        &self,
        _records: &RecordsNow<'_, 'm>,
        _members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Removes from a target what may not be rolled back now, and returns it.
    fn leave_alone(
        &self,
        _manager: &CheckpointManager,
        _options: &RollbackOptions,
        _target: &mut Checkpoint,
    ) -> Result<Vec<LeftAlone>, Error> {
        Ok(Vec::new())
    }

    /// Returns true if chosen parts of this kind need a folder whose files stay. `is_first` is true until a folder is needed.
    fn stays_in(
        &self,
        _manager: &CheckpointManager,
        _request: &Request<'_>,
        _folder: &Workspace,
        _is_first: bool,
    ) -> Result<bool, Error> {
        Ok(false)
    }

    /// Finds the rows of the catalog that a rollback restores, each with its target.
    fn find_records(
        &self,
        _manager: &CheckpointManager,
        _request: &Request<'_>,
        _scene: &mut Scene,
        _warnings: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Adds the parts of one folder to a rollback.
    fn roll_back_folder<'m>(
        &self,
        _folder: &mut FolderBack<'_, 'm>,
        _members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Adds the rows of the catalog to a rollback.
    fn roll_back_records<'m>(&self, _records: &RecordsBack<'_, 'm>, _members: &mut Vec<Member<'m>>) {}

    /// Returns the parts of an interrupted rollback that have something to undo or to settle outside of the files.
    fn left_by<'m>(
        &self,
        _manager: &'m CheckpointManager,
        _folder: &'m Workspace,
        _record: &Rollback,
    ) -> Result<Vec<LeftPart<'m>>, Error> {
        Ok(Vec::new())
    }
}

/// Kind by which the files of a folder are chosen: the memory of an agent belongs to the agent.
pub(crate) fn chosen_as(folder: WorkspaceKind) -> PartKind {
    match folder {
        WorkspaceKind::Project | WorkspaceKind::Attempt => PartKind::Files,
        WorkspaceKind::Agent => PartKind::Agent,
    }
}

impl RollbackOptions {
    /// Returns true if parts of this kind are restored. Paths choose files; git must be named.
    pub(crate) fn wants(&self, kind: PartKind) -> bool {
        let named = self.parts.contains(&kind);
        match kind {
            PartKind::Files => {
                self.git != GitReset::Mixed && (self.parts.is_empty() || named || !self.paths.is_empty())
            }
            PartKind::Git => named || self.git != GitReset::No,
            PartKind::GitFolder => self.parts.contains(&PartKind::Git),
            _ => named || (self.parts.is_empty() && self.paths.is_empty() && self.git != GitReset::Mixed),
        }
    }

    /// Chosen kinds, as the record of the rollback has them.
    pub(crate) fn chosen(&self) -> Vec<PartKind> {
        match self.git {
            GitReset::Mixed => vec![PartKind::Git],
            GitReset::No | GitReset::Hard => self.parts.clone(),
        }
    }
}
