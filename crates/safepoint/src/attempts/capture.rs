//! FINISH: the state of an attempt as a checkpoint on its own line. Of an overlay it is the layer upon the base.

use super::keep::still_open;
use super::rooms::processes_of;
use crate::checkpoint::create::files_part;
use crate::config::Broken;
use crate::handles::Attempts;
use crate::parts::files::FilesPart;
use crate::parts::part::{Captured, Left, Part, Prepared};
use crate::parts::{Member, Nothing, seal};
use crate::places::Place;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::attempt::{Attempt, AttemptKind, AttemptRun};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::FilesDocument;
use safepoint_model::rollback::RollbackState;
use safepoint_model::{ObjectId, ObjectSink, ObjectSource, Progress};
use safepoint_store::Writer;
use safepoint_workspace::{LayerBase, RoomProcess, Root, Scan, ScanOptions, WorkspaceError, scan};
use std::path::PathBuf;

/// An attempt whose state was captured.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttemptFinished {
    /// Its record.
    pub attempt: Attempt,
    /// Checkpoint of its state.
    pub result: Checkpoint,
    /// Differences between its base and that checkpoint.
    pub changes: Totals,
    /// Processes that outlived its command.
    pub processes: Vec<RoomProcess>,
}

/// Layer of an attempt, with the state below it.
pub(crate) struct Layer {
    folder: PathBuf,
    base: FilesDocument,
    coverage: Coverage,
}

impl Layer {
    /// Reads the layer upon its base.
    pub(crate) fn scan<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        options: &ScanOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Scan, WorkspaceError> {
        let Some(tree) = self.base.tree() else {
            return Err(WorkspaceError::Interrupted);
        };
        let base =
            LayerBase { tree, coverage: &self.coverage, count: self.base.count, bytes: self.base.bytes };
        let root = Root::open(&self.folder)?;
        scan(&root, sink, &ScanOptions { layer: Some(base), ..*options }, progress)
    }
}

/// Files that another part captured, as those of an attempt's workspace.
pub(super) struct Given {
    pub(super) workspace: Workspace,
}

impl Part for Given {
    fn kind(&self) -> PartKind {
        PartKind::Files
    }

    fn key(&self) -> String {
        self.workspace.id.to_string()
    }

    fn capture(&self, _: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        Ok(Captured::default())
    }

    fn commit(&self, transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
        Ok(transaction.set_head(self.workspace.id, checkpoint.id)?)
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        _: ObjectId,
        _: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

impl CheckpointManager {
    /// Returns the layer of a workspace, if it is that of an attempt with an overlay.
    pub(crate) fn layer_of(&self, workspace: &Workspace) -> Result<Option<Layer>, Error> {
        let Some(room) = self.overlay_room(workspace)? else { return Ok(None) };
        let Some(attempt) = self.catalog.attempt_at(workspace.id)? else { return Ok(None) };
        let base = FilesDocument::load(&self.store, self.files_of_checkpoint(attempt.base)?)?;
        let coverage = base.coverage(&self.store)?;
        Ok(Some(Layer { folder: room.layer(), base, coverage }))
    }

    /// Returns the document with the files of a checkpoint of one workspace.
    pub(crate) fn files_of_checkpoint(&self, id: safepoint_model::CheckpointId) -> Result<ObjectId, Error> {
        let checkpoint = self.checkpoints().get(id)?;
        files_part(&checkpoint).map(|part| part.document).ok_or(Error::NoFiles { checkpoint: id })
    }

    /// Counts the differences between the base of an attempt and a checkpoint of it.
    pub(super) fn changes_of(&self, attempt: &Attempt, result: &Checkpoint) -> Result<Totals, Error> {
        let _using = self.store.using()?;
        let base = self.files_of_checkpoint(attempt.base)?;
        let mut totals = Totals::default();
        if let Some(part) = files_part(result) {
            self.count_changes(Some(base), part.document, &self.store, &mut totals)?;
        }
        Ok(totals)
    }
}

impl Attempts<'_> {
    /// Captures the state of an attempt as a checkpoint on its own line, and notes its last command. A state that is on record
    /// already is not captured twice.
    ///
    /// # Errors
    /// When the attempt is closed or busy, or its layer cannot be read.
    pub fn finish(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        run: &AttemptRun,
        progress: &dyn Progress,
    ) -> Result<AttemptFinished, Error> {
        self.must_be_open(attempt)?;
        let manager = self.manager;
        let act = || self.finish_once(project, attempt, run, progress);
        let (result, _) = manager.within_cap(Some(attempt.place_id), crate::DryRun::No, progress, act)?;
        let attempt = manager
            .catalog
            .attempt(attempt.id)?
            .ok_or_else(|| Error::NoAttempt { name: attempt.name.clone() })?;
        let changes = manager.changes_of(&attempt, &result)?;
        let processes = processes_of(&attempt);
        Ok(AttemptFinished { attempt, result, changes, processes })
    }

    /// Refuses an overlay in which a rollback was killed: its layer may be half old and half new, and only a command inside can put it in
    /// order.
    fn must_be_whole(&self, attempt: &Attempt, place: &Workspace) -> Result<(), Error> {
        let unfinished = self.manager.catalog.unfinished(place.id)?;
        let Some(half) = unfinished.iter().find(|record| record.state == RollbackState::Applying) else {
            return Ok(());
        };
        let name = attempt.name.clone();
        let step =
            format!("read its files before this ran: safepoint attempt exec {name} -- safepoint recover");
        let source = Box::new(Error::Room { name, step, source: std::io::ErrorKind::ResourceBusy.into() });
        Err(Error::Unfinished { rollback: half.id, source })
    }

    fn finish_once(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        run: &AttemptRun,
        progress: &dyn Progress,
    ) -> Result<Checkpoint, Error> {
        let manager = self.manager;
        let place = manager.workspaces().get(attempt.place_id)?;
        let missing = || Error::RoomMissing { name: attempt.name.clone(), path: attempt.room.clone() };
        if !place.root_path().is_dir() {
            return Err(missing());
        }
        let held = manager.hold(&place)?;
        let is_of_plan = manager.room_of_plan(&place)?.is_some();
        match attempt.kind {
            AttemptKind::Overlay if !is_of_plan => self.must_be_whole(attempt, &place)?,
            _ => drop(manager.recover_held(&place, &held.root, progress)?),
        }
        let config = match attempt.kind {
            // The mount point is empty outside of the namespace.
            AttemptKind::Overlay => {
                manager.config_at(Some(&Root::open(project.root_path())?), Broken::PassedOver)?
            }
            _ => manager.config_at(Some(&held.root), Broken::PassedOver)?,
        };
        let writer = manager.store.writer()?;
        let part = FilesPart::new(manager, &held.root, &place, config.excludes);
        let mut captured = part.capture(&writer, None, progress)?;
        let mut cache = captured.cache.take();
        let mut result = manager.blank(Some(place.id));
        result.label = Some("result".to_owned());
        result.parent = place.head;
        result.metrics = manager.catalog.waiting_metrics(place.id)?;
        let before = attempt.result.map(|id| manager.catalog.checkpoint(id)).transpose()?.flatten();
        let at_position = before.filter(|before| place.head == Some(before.id) && result.metrics.is_empty());
        let mut member = Member::new(Given { workspace: place.clone() }, 0, None);
        member.captured = captured;
        if let (Some(before), Some(document)) = (at_position, member.captured.document)
            && files_part(&before).is_some_and(|part| part.document == document)
        {
            manager.catalog.write::<(), Error>(|transaction| {
                still_open(transaction, attempt)?;
                Ok(transaction.update_attempt(attempt.id, run, None)?)
            })?;
            return Ok(before);
        }
        let places = [Place { workspace: place.clone(), only: None, leave: Vec::new() }];
        seal(&mut result, std::slice::from_ref(&member), &places, &writer)?;
        if let Some(tests) = run.tests {
            (result.progress.tests_passing, result.progress.tests_failing) = (tests.passed, tests.failed);
        }
        let stored = manager.finish_with_record(writer, &mut result, &[])?;
        manager.catalog.write::<(), Error>(|transaction| {
            still_open(transaction, attempt)?;
            transaction.insert_checkpoint(&result)?;
            transaction.take_metrics(place.id, &result.metrics)?;
            stored.note(transaction)?;
            member.part.commit(transaction, &result)?;
            Ok(transaction.update_attempt(attempt.id, run, Some(result.id))?)
        })?;
        manager.keep_cache(&result, &mut cache);
        Ok(result)
    }
}
