//! CARRY OUT: the second half of the protocol, for one folder or for many as one: stage, intent, apply, publish, settle.
//!
//! All stages come before the one transaction of the intents, all swaps before the one transaction that publishes. Any error before that
//! puts everything back, everywhere.

use crate::part::Prepared;
use crate::records::Stored;
use crate::restore::Settling;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{CatalogError, FinishFacts, Transaction};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::rollback::{Rollback, RollbackState};
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use safepoint_workspace::{Ended, WorkspaceError};

/// One folder of a rollback, on its way.
pub(crate) struct Member<'p> {
    pub(crate) prepared: Box<dyn Prepared + 'p>,
    pub(crate) record: Rollback,
    /// What the folder is equal to afterwards, or nearest to.
    pub(crate) head: CheckpointId,
}

/// What the two transactions hold besides the folders.
pub(crate) struct Deed<'a> {
    /// The present, as the checkpoint that an undo goes back to.
    pub(crate) safety: &'a Checkpoint,
    /// What was stored with it.
    pub(crate) stored: &'a Stored,
    pub(crate) intend: &'a dyn Fn(&Transaction<'_>) -> Result<(), Error>,
    pub(crate) publish: &'a dyn Fn(&Transaction<'_>, Timestamp) -> Result<(), Error>,
}

/// What somebody did meanwhile, and what is left to do.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) meanwhile: Vec<(WorkspaceId, RelPath)>,
    pub(crate) waiting: Vec<RelPath>,
    pub(crate) warnings: Vec<String>,
}

impl CheckpointManager {
    /// Does what is prepared, all of it or nothing. `beside` runs while the folders change.
    pub(crate) fn carry_out(
        &self,
        members: &mut [Member<'_>],
        deed: &Deed<'_>,
        beside: impl FnOnce() + Send,
        progress: &dyn Progress,
    ) -> Result<Carried, Error> {
        for at in 0..members.len() {
            let Member { prepared, record, .. } = &mut members[at];
            if let Err(error) = prepared.stage(record.id, progress) {
                // The others hold copies only.
                self.clear_away(&mut members[..at], progress);
                return Err(error);
            }
        }
        for member in members.iter_mut().filter(|_| !planted!("rollback-without-safety")) {
            member.record.safety_checkpoint = Some(deed.safety.id);
        }
        if planted!("intent-after-swaps") {
            for member in members.iter_mut() {
                member.prepared.apply(progress)?;
            }
        }
        // INTENT. From here on the records say that work is under way, and recovery knows every step of it.
        let intent = self.catalog.write_ahead::<(), Error>(|transaction| {
            members.iter().try_for_each(|member| member.prepared.intend(transaction))?;
            if !planted!("rollback-without-safety") {
                transaction.insert_checkpoint(deed.safety)?;
                deed.stored.note(transaction)?;
            }
            (deed.intend)(transaction)?;
            for member in members.iter() {
                let steps = member.prepared.steps();
                let steps = if planted!("intent-without-steps") { &[] } else { steps };
                transaction.insert_rollback(&member.record, steps)?;
            }
            Ok(())
        });
        let done = intent.and_then(|()| {
            std::thread::scope(|threads| {
                threads.spawn(beside);
                self.apply_and_publish(members, deed, progress)
            })
        });
        let mut carried = match done {
            Ok(meanwhile) => Carried { meanwhile, ..Carried::default() },
            Err(error) => return Err(self.abort(members, error, progress)),
        };
        self.settle(members, &mut carried, progress);
        Ok(carried)
    }

    /// APPLY, SYNC, verify, PUBLISH.
    fn apply_and_publish(
        &self,
        members: &mut [Member<'_>],
        deed: &Deed<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<(WorkspaceId, RelPath)>, Error> {
        let mut meanwhile = Vec::new();
        for Member { prepared, record, .. } in members.iter_mut() {
            let paths = if planted!("intent-after-swaps") { Vec::new() } else { prepared.apply(progress)? };
            meanwhile.extend(paths.into_iter().map(|path| (record.workspace_id, path)));
        }
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            for Member { prepared, record, head } in members.iter() {
                let facts = FinishFacts {
                    restored_files_count: Some(record.restored_files_count),
                    removed_files_count: Some(record.removed_files_count),
                    changed_paths: record.changed_paths,
                    error: None,
                };
                prepared.publish(transaction)?;
                transaction.finish_rollback(record.id, RollbackState::Done, at, &facts)?;
                transaction.set_head(record.workspace_id, *head)?;
            }
            (deed.publish)(transaction, at)
        })?;
        Ok(meanwhile)
    }

    /// Puts everything back, everywhere, and says so on record.
    fn abort(&self, members: &mut [Member<'_>], cause: Error, progress: &dyn Progress) -> Error {
        let mut unfinished = None;
        for Member { prepared, record, .. } in members.iter_mut() {
            if planted!("abort-without-the-way-back") {
                continue;
            }
            if let Err(error) = prepared.undo() {
                unfinished.get_or_insert((record.id, error));
            }
        }
        if let Some((rollback, error)) = unfinished {
            return Error::Unfinished { rollback, source: Box::new(error) };
        }
        let first = members.first().map_or(RollbackId::from_bits(0), |member| member.record.id);
        let facts = FinishFacts { error: Some(cause.to_string()), ..FinishFacts::default() };
        let at = self.environment.now();
        let mut begun = true;
        let aborted = self.catalog.write::<(), CatalogError>(|transaction| {
            begun = transaction.rollback(first)?.is_some();
            for Member { record, .. } in members.iter().filter(|_| begun) {
                transaction.finish_rollback(record.id, RollbackState::Aborted, at, &facts)?;
            }
            Ok(())
        });
        if let Err(error) = aborted {
            return Error::Unfinished { rollback: first, source: Box::new(error.into()) };
        }
        if !begun {
            // The intent itself is what failed.
            let records: Vec<Rollback> = members.iter().map(|member| member.record.clone()).collect();
            self.note_refusal(&records, &cause);
        }
        self.clear_away(members, progress);
        Error::RolledBackHalfway { rollback: first, source: Box::new(cause) }
    }

    /// Deletes what was staged and is not wanted. What cannot be cleared away now, the next command clears away.
    fn clear_away(&self, members: &mut [Member<'_>], progress: &dyn Progress) {
        for Member { prepared, record, .. } in members {
            let _ = self.settle_once(record, &mut **prepared, Ended::Undone, progress);
        }
    }

    /// SETTLE. The rollback is done; what goes wrong here is told and left to the next command.
    fn settle(&self, members: &mut [Member<'_>], carried: &mut Carried, progress: &dyn Progress) {
        for Member { prepared, record, .. } in members.iter_mut() {
            match self.settle_once(record, &mut **prepared, Ended::Done, progress) {
                Ok(Settling { waiting, warnings, .. }) => {
                    carried.waiting.extend(waiting);
                    carried.warnings.extend(warnings);
                }
                Err(error) => {
                    let still = format!("what was displaced is still kept in .safepoint: {error}");
                    carried.warnings.push(still);
                }
            }
            if let Ok(Some(settled)) = self.catalog.rollback(record.id) {
                *record = settled;
            }
        }
    }

    /// A rollback that was refused before anything changed is on record too. That the records fail must not hide why.
    pub(crate) fn note_refusal(&self, records: &[Rollback], error: &Error) {
        let on_record = matches!(error, Error::RolledBackHalfway { .. } | Error::Unfinished { .. });
        let no_attempt = matches!(error, Error::Workspace(WorkspaceError::Interrupted));
        if on_record || no_attempt {
            return;
        }
        let at = self.environment.now();
        let _ = self.catalog.write::<(), CatalogError>(|transaction| {
            records
                .iter()
                .try_for_each(|record| transaction.insert_rollback(&refused(record, at, error), &[]))
        });
    }
}

/// The record of a rollback that did not begin.
fn refused(record: &Rollback, at: Timestamp, why: &Error) -> Rollback {
    Rollback {
        state: RollbackState::Refused,
        finished_at: Some(at),
        error: Some(why.to_string()),
        safety_checkpoint: None,
        // It may not be durable, and nothing changed.
        changed_paths: None,
        ..record.clone()
    }
}
