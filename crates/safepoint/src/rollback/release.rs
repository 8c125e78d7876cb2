//! RELEASE: gives up displaced files that wait for writers. They are stored, then deleted; what a program writes after that is lost.
//!
//! Two steps, so that the user is asked in between with everything stored. What changed since the first is stored again by the second.

use crate::handles::Upkeep;
use crate::parts::files::FilesPart;
use crate::parts::part::Prepared;
use crate::rollback::carry::{Settling, clear};
use crate::rollback::recover::Recovery;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{FinishFacts, Workspace};
use safepoint_model::rollback::{Rollback, RollbackState};
use safepoint_model::{Progress, RollbackId};
use safepoint_workspace::{Ended, Finding, Root, Stage, Waiting};

/// Displaced files that wait, stored.
#[derive(Debug)]
pub struct WaitingStored {
    /// Earlier recovery, waiting files, and the rescue checkpoints that store them.
    pub recovery: Recovery,
    /// Stored files, by rollback.
    stored: Vec<(RollbackId, Vec<Finding>)>,
}

impl CheckpointManager {
    fn releasing<'m>(&'m self, workspace: &'m Workspace, root: &'m Root) -> Result<FilesPart<'m>, Error> {
        let mut part = FilesPart::new(self, root, workspace, Vec::new());
        part.capabilities = self.probe(root)?;
        part.waiting = Waiting::Released;
        Ok(part)
    }

    /// Rollbacks that have ended and whose stage is still there.
    fn waiting_rollbacks(&self, root: &Root) -> Result<Vec<(Rollback, Ended)>, Error> {
        let mut found = Vec::new();
        for id in Stage::leftovers(root)?.1 {
            let Some(record) = self.catalog.rollback(id)? else { continue };
            match record.state {
                RollbackState::Done | RollbackState::Settled => found.push((record, Ended::Done)),
                RollbackState::Aborted => found.push((record, Ended::Undone)),
                RollbackState::Applying | RollbackState::Refused => {}
            }
        }
        Ok(found)
    }

    /// Puts on record what is found in a stage and is not known yet. Gives all that was found.
    fn store_found(
        &self,
        record: &Rollback,
        prepared: &mut [Box<dyn Prepared + '_>],
        ended: Ended,
        known: &[Finding],
        progress: &dyn Progress,
    ) -> Result<(Vec<Finding>, Settling), Error> {
        let writer = self.store.writer()?.beyond_limit();
        let mut findings = Vec::new();
        for prepared in prepared {
            findings.extend(prepared.settle(ended, &writer, progress)?);
        }
        let fresh = findings.iter().filter(|finding| !known.contains(finding)).cloned().collect();
        let mut settling = Settling::default();
        self.keep_rescued(record, fresh, writer, &mut settling)?;
        Ok((findings, settling))
    }
}

impl Upkeep<'_> {
    /// Stores displaced files that wait for their writers, as rescue checkpoints. Nothing is deleted yet.
    ///
    /// # Errors
    /// When they cannot be read or stored.
    pub fn store_waiting(
        &self,
        workspace: &Workspace,
        progress: &dyn Progress,
    ) -> Result<WaitingStored, Error> {
        let held = self.manager.hold(workspace)?;
        let mut recovery = self.manager.recover_held(workspace, &held.root, progress)?;
        let mut stored = Vec::new();
        if !recovery.waiting.is_empty() {
            let part = self.manager.releasing(workspace, &held.root)?;
            for (record, ended) in self.manager.waiting_rollbacks(&held.root)? {
                let mut prepared = self.manager.resume(&part, &[], &record)?;
                let (findings, settling) =
                    self.manager.store_found(&record, &mut prepared, ended, &[], progress)?;
                recovery.add(settling);
                stored.push((record.id, findings));
            }
        }
        Ok(WaitingStored { recovery, stored })
    }

    /// Deletes what [`Upkeep::store_waiting`] stored. What changed since, or waits since, is stored first.
    ///
    /// # Errors
    /// When something cannot be stored or deleted; it waits on then.
    pub fn release(
        &self,
        workspace: &Workspace,
        stored: WaitingStored,
        progress: &dyn Progress,
    ) -> Result<Recovery, Error> {
        let held = self.manager.hold(workspace)?;
        let before = self.manager.recover_held(workspace, &held.root, progress)?;
        let WaitingStored { mut recovery, stored } = stored;
        recovery.undone.extend(before.undone);
        recovery.settled.extend(before.settled);
        recovery.rescued.extend(before.rescued);
        recovery.waiting.clear();
        let part = self.manager.releasing(workspace, &held.root)?;
        for (record, ended) in self.manager.waiting_rollbacks(&held.root)? {
            let known = stored.iter().find(|(id, _)| *id == record.id).map_or(&[][..], |(_, known)| known);
            let mut prepared = self.manager.resume(&part, &[], &record)?;
            let (findings, settling) =
                self.manager.store_found(&record, &mut prepared, ended, known, progress)?;
            let complete = clear(&mut prepared)?;
            recovery.add(settling);
            recovery.released.extend(findings.into_iter().filter_map(|finding| match finding {
                Finding::Rescued { path, .. } => Some(path),
                _ => None,
            }));
            if complete && ended == Ended::Done && record.state != RollbackState::Settled {
                let at = self.manager.environment.now();
                let facts = FinishFacts::default();
                self.manager.catalog.write(|transaction| {
                    transaction.finish_rollback(record.id, RollbackState::Settled, at, &facts)
                })?;
                recovery.settled.push(record.id);
            }
        }
        Ok(recovery)
    }
}
