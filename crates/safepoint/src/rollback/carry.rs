//! CARRY OUT: the second half of the protocol, for one folder or for many as one: stage; then intent, apply, publish, settle.
//!
//! All stages come before the one transaction of the intents, all swaps before the one transaction that publishes. Any error before that
//! puts everything back, everywhere.

use super::{Request, RolledBack};
use crate::checkpoint::records::Stored;
use crate::parts::Member;
use crate::parts::part::{Outline, Prepared};
use crate::warning::cause;
use crate::{CheckpointManager, Error, Silent, Warning};
use safepoint_catalog::{CatalogError, FinishFacts, Transaction};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::rollback::{Rescued, Rollback, RollbackState};
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use safepoint_store::Writer;
use safepoint_workspace::{Ended, WorkspaceError};

/// End of a probe's record, if kept.
const PROBE: &str = "a search tried it and put everything back";

/// One folder of a rollback, on its way, with all the parts that belong to it.
pub(crate) struct Going<'p> {
    pub(crate) prepared: Vec<Box<dyn Prepared + 'p>>,
    pub(crate) record: Rollback,
    /// Checkpoint equal or closest to the new state.
    pub(crate) head: CheckpointId,
}

impl Going<'_> {
    /// Changes in the folder.
    pub(crate) fn outline(&self) -> Outline {
        let mut outline = Outline::default();
        self.prepared.iter().filter_map(|prepared| prepared.outline()).for_each(|one| outline.join(one));
        outline
    }

    /// Puts the intent on record, after a check for concurrent changes.
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let steps: Vec<_> = match planted!("intent-without-steps") {
            true => Vec::new(),
            false => self.prepared.iter().flat_map(|prepared| prepared.steps()).cloned().collect(),
        };
        transaction.insert_rollback(&self.record, &steps)?;
        let notes: Vec<_> = self.prepared.iter().filter_map(|prepared| prepared.part_note()).collect();
        Ok(transaction.insert_part_notes(self.record.id, &notes)?)
    }
}

/// Data of the two transactions besides folders.
pub(crate) struct Deed<'a> {
    pub(crate) request: &'a Request<'a>,
    /// The current state, as the checkpoint for an undo.
    pub(crate) safety: &'a Checkpoint,
    /// Objects stored for it.
    pub(crate) stored: &'a Stored,
    /// Parts captured for it.
    pub(crate) members: &'a [Member<'a>],
}

/// Concurrent changes, and remaining work.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) meanwhile: Vec<(WorkspaceId, RelPath)>,
    pub(crate) waiting: Vec<RelPath>,
    pub(crate) warnings: Vec<Warning>,
}

impl CheckpointManager {
    /// STAGE. Writes what is new beside the old, everywhere. Nothing of it stays after an error.
    pub(super) fn stage(
        &self,
        all: &mut [Going<'_>],
        safety: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        for going in all.iter_mut().filter(|_| !planted!("rollback-without-safety")) {
            going.record.safety_checkpoint = Some(safety.id);
        }
        let stage = |Going { prepared, record, .. }: &mut Going<'_>| {
            prepared.iter_mut().try_for_each(|prepared| prepared.stage(record.id, progress))
        };
        let staged = all.iter_mut().try_for_each(stage);
        if staged.is_err() {
            // The stages hold copies only.
            self.clear_away(all, progress);
        }
        staged
    }

    /// Does what is staged, all of it or nothing. `beside` runs while the folders change.
    pub(crate) fn carry_out(
        &self,
        all: &mut [Going<'_>],
        deed: &Deed<'_>,
        beside: impl FnOnce() + Send,
        progress: &dyn Progress,
    ) -> Result<Carried, Error> {
        if planted!("intent-after-swaps") {
            apply(all, progress)?;
        }
        let intent = self.intend(all, deed);
        let done = intent.and_then(|()| {
            std::thread::scope(|threads| {
                threads.spawn(beside);
                self.apply_and_publish(all, deed, progress)
            })
        });
        let mut carried = match done {
            Ok(meanwhile) => Carried { meanwhile, ..Carried::default() },
            Err(error) => return Err(self.abort(all, error, progress)),
        };
        self.settle(all, &mut carried, progress);
        Ok(carried)
    }

    /// INTENT. From here on the records say that work is under way, and recovery knows every step of it.
    fn intend(&self, all: &[Going<'_>], deed: &Deed<'_>) -> Result<(), Error> {
        self.catalog.write_ahead::<(), Error>(|transaction| {
            let mut prepared = all.iter().flat_map(|going| &going.prepared);
            prepared.try_for_each(|prepared| prepared.intend(transaction))?;
            if !planted!("rollback-without-safety") {
                transaction.insert_checkpoint(deed.safety)?;
                deed.stored.note(transaction)?;
            }
            deed.members.iter().try_for_each(|member| member.part.commit(transaction, deed.safety))?;
            all.iter().try_for_each(|going| going.intend(transaction))
        })
    }

    /// APPLY, SYNC, verify, PUBLISH.
    fn apply_and_publish(
        &self,
        all: &mut [Going<'_>],
        deed: &Deed<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<(WorkspaceId, RelPath)>, Error> {
        for Going { record, .. } in all.iter() {
            assert!(record.state == RollbackState::Applying, "rollback {} was never intended", record.id);
            let has_safety = record.safety_checkpoint == Some(deed.safety.id);
            assert!(has_safety || planted!("rollback-without-safety"), "rollback {} has no undo", record.id);
        }
        let meanwhile = if planted!("intent-after-swaps") { Vec::new() } else { apply(all, progress)? };
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            for Going { prepared, record, head } in all.iter() {
                let facts = FinishFacts {
                    restored_files_count: Some(record.restored_files_count),
                    removed_files_count: Some(record.removed_files_count),
                    changed_paths: record.changed_paths,
                    error: None,
                };
                prepared.iter().try_for_each(|prepared| prepared.publish(transaction))?;
                transaction.finish_rollback(record.id, RollbackState::Done, at, &facts)?;
                transaction.set_head(record.workspace_id, *head)?;
            }
            self.count_rolled_back(transaction, deed.request, all, at)
        })?;
        Ok(meanwhile)
    }

    /// Puts a rollback that changes nothing on record, in one transaction. A workspace that went back whole is at the target afterwards.
    pub(crate) fn record_idle(
        &self,
        all: &mut [Going<'_>],
        request: &Request<'_>,
        done: &mut RolledBack,
    ) -> Result<(), Error> {
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            for Going { record, head, .. } in all.iter() {
                transaction.insert_rollback(record, &[])?;
                for state in [RollbackState::Done, RollbackState::Settled] {
                    transaction.finish_rollback(record.id, state, at, &FinishFacts::default())?;
                }
                if *head == request.to.id {
                    transaction.set_head(record.workspace_id, *head)?;
                }
            }
            self.count_rolled_back(transaction, request, all, at)
        })?;
        for (folder, Going { record, .. }) in done.folders.iter_mut().zip(all) {
            (record.state, record.finished_at) = (RollbackState::Settled, Some(at));
            folder.record = record.clone();
        }
        done.verified = true;
        Ok(())
    }

    /// Puts what is staged in place, runs `look`, and puts everything back. Recovery does the same after a crash. No record of it stays, unless
    /// an edit was rescued or something waits.
    pub(crate) fn try_out(
        &self,
        all: &mut [Going<'_>],
        deed: &Deed<'_>,
        look: &mut dyn FnMut() -> Result<(), Error>,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let looked = self.intend(all, deed).and_then(|()| {
            apply(all, progress)?;
            look()
        });
        let why = looked.as_ref().err().map_or_else(|| PROBE.to_owned(), ToString::to_string);
        // An interrupt undoes everything.
        if self.put_back(all, &why)? && self.clear_away(all, &Silent) {
            self.forget_probe(all, deed.safety.id);
        }
        looked
    }

    /// Takes a probe off the record. That it stays there costs a record.
    fn forget_probe(&self, all: &[Going<'_>], safety: CheckpointId) {
        let at = self.environment.now();
        let forgotten = self.catalog.write::<(), CatalogError>(|transaction| {
            all.iter().try_for_each(|going| transaction.forget_rollback(going.record.id, at))
        });
        let _ = forgotten.map_err(Error::from).and_then(|()| self.forget(&[safety]));
    }

    /// Puts everything back, everywhere, and says so on record.
    fn abort(&self, all: &mut [Going<'_>], cause: Error, progress: &dyn Progress) -> Error {
        match self.put_back(all, &cause.to_string()) {
            Err(unfinished) => return unfinished,
            Ok(true) => {}
            Ok(false) => {
                // The intent itself is what failed.
                let records: Vec<Rollback> = all.iter().map(|going| going.record.clone()).collect();
                self.note_refusal(&records, &cause);
            }
        }
        self.clear_away(all, progress);
        Error::RolledBackHalfway { rollback: first_of(all), source: Box::new(cause) }
    }

    /// The way back of all folders, and their end on record. Says whether their intents were on record.
    fn put_back(&self, all: &mut [Going<'_>], why: &str) -> Result<bool, Error> {
        let mut unfinished = None;
        for Going { prepared, record, .. } in all.iter_mut() {
            if planted!("abort-without-the-way-back") {
                continue;
            }
            // The last that was put in place is the first that goes.
            for prepared in prepared.iter_mut().rev() {
                if let Err(error) = prepared.undo() {
                    unfinished.get_or_insert((record.id, error));
                }
            }
        }
        if let Some((rollback, error)) = unfinished {
            return Err(Error::Unfinished { rollback, source: Box::new(error) });
        }
        let first = first_of(all);
        let facts = FinishFacts { error: Some(why.to_owned()), ..FinishFacts::default() };
        let at = self.environment.now();
        let mut begun = true;
        let aborted = self.catalog.write::<(), CatalogError>(|transaction| {
            begun = transaction.rollback(first)?.is_some();
            for Going { record, .. } in all.iter().filter(|_| begun) {
                transaction.finish_rollback(record.id, RollbackState::Aborted, at, &facts)?;
            }
            Ok(())
        });
        match aborted {
            Ok(()) => Ok(begun),
            Err(error) => Err(Error::Unfinished { rollback: first, source: Box::new(error.into()) }),
        }
    }

    /// Deletes what was staged and is not wanted. What cannot be cleared away now, the next command clears away. Says whether nothing is left
    /// and nothing was found.
    fn clear_away(&self, all: &mut [Going<'_>], progress: &dyn Progress) -> bool {
        let mut clear = true;
        for Going { prepared, record, .. } in all {
            let settled = self.settle_once(record, prepared, Ended::Undone, progress);
            let is_clear =
                |it: &Settling| it.rescued.is_empty() && it.waiting.is_empty() && it.warnings.is_empty();
            clear &= settled.is_ok_and(|settling| is_clear(&settling));
        }
        clear
    }

    /// SETTLE. The rollback is done; what goes wrong here is told and left to the next command.
    fn settle(&self, all: &mut [Going<'_>], carried: &mut Carried, progress: &dyn Progress) {
        for Going { prepared, record, .. } in all.iter_mut() {
            match self.settle_once(record, prepared, Ended::Done, progress) {
                Ok(Settling { waiting, warnings, .. }) => {
                    carried.waiting.extend(waiting);
                    carried.warnings.extend(warnings);
                }
                Err(error) => {
                    carried.warnings.push(Warning::DisplacedKept { why: cause(error) });
                }
            }
            if let Ok(Some(settled)) = self.catalog.rollback(record.id) {
                let is_published = matches!(settled.state, RollbackState::Done | RollbackState::Settled);
                debug_assert!(is_published, "rollback {} is {:?}", record.id, settled.state);
                *record = settled;
            }
        }
    }

    /// Checks displaced files, keeps edited ones, and deletes the rest.
    pub(crate) fn settle_once(
        &self,
        record: &Rollback,
        prepared: &mut [Box<dyn Prepared + '_>],
        ended: Ended,
        progress: &dyn Progress,
    ) -> Result<Settling, Error> {
        let writer: Writer<'_> = self.store.writer()?.beyond_limit();
        let mut findings = Vec::new();
        for prepared in prepared.iter_mut() {
            findings.extend(prepared.settle(ended, &writer, progress)?);
        }
        let mut settling = Settling::default();
        let early = if planted!("settle-deletes-before-the-record") { Some(clear(prepared)?) } else { None };
        if !planted!("settle-keeps-no-record") {
            self.keep_rescued(record, findings, writer, &mut settling)?;
        }
        let complete = early.map_or_else(|| clear(prepared), Ok)?;
        if complete && ended == Ended::Done && record.state != RollbackState::Settled {
            let at = self.environment.now();
            self.catalog.write(|transaction| {
                transaction.finish_rollback(record.id, RollbackState::Settled, at, &FinishFacts::default())
            })?;
        }
        Ok(settling)
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

/// Result of settling.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    pub(crate) rescued: Vec<Rescued>,
    pub(crate) waiting: Vec<RelPath>,
    pub(crate) warnings: Vec<Warning>,
}

/// The record that stands for all folders.
fn first_of(all: &[Going<'_>]) -> RollbackId {
    all.first().map_or(RollbackId::from_bits(0), |going| going.record.id)
}

/// Replaces the old with the new, everywhere. Returns concurrently changed paths.
fn apply(all: &mut [Going<'_>], progress: &dyn Progress) -> Result<Vec<(WorkspaceId, RelPath)>, Error> {
    let mut meanwhile = Vec::new();
    for Going { prepared, record, .. } in all {
        for prepared in prepared {
            let paths = prepared.apply(progress)?;
            meanwhile.extend(paths.into_iter().map(|path| (record.workspace_id, path)));
        }
    }
    Ok(meanwhile)
}

/// Deletes what settling allowed. Says whether nothing is left.
pub(crate) fn clear(prepared: &mut [Box<dyn Prepared + '_>]) -> Result<bool, Error> {
    let mut complete = true;
    for prepared in prepared {
        complete &= prepared.clear()?;
    }
    Ok(complete)
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
