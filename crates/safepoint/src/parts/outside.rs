//! Parts that another program provides through [`Settings::parts`](crate::Settings::parts).
//!
//! Without that program's code, its parts stay in checkpoints: their documents name their contents. A
//! rollback skips them and reports it; an interrupted rollback that included them is not recovered without
//! them.

use crate::parts::Member;
use crate::parts::kinds::{FolderBack, FolderNow, Kind, LeftPart};
use crate::parts::part::{Captured, Left, Note, Outline, Part, Prepared, PutBack};
use crate::rollback::Request;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{PartNote, Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::outside::{OutsideDocument, OutsideKind};
use safepoint_model::rollback::{Rollback, RollbackState};
use safepoint_model::{ObjectId, Progress, RelPath, RollbackId};
use safepoint_store::Writer;
use safepoint_workspace::{Ended, Finding};
use std::fmt;
use std::path::Path;

/// Provider of a kind of part from another program.
///
/// The document of such a part is an [`OutsideDocument`], so that its contents are kept and checked even
/// without the program. A missing part is captured, too, so that an undo can remove it again.
pub trait PartProvider: fmt::Debug + Send + Sync {
    /// Name of the kind.
    fn kind(&self) -> OutsideKind;

    /// Returns the parts of this kind in a folder. Names are short, without control characters.
    ///
    /// # Errors
    /// Fails if the listing fails; then no checkpoint is created.
    fn find(&self, folder: &Path) -> Result<Vec<String>, Error>;

    /// Opens a part, even if it is missing.
    ///
    /// # Errors
    /// Fails if the name is unknown.
    fn open(&self, folder: &Path, name: &str) -> Result<Box<dyn Part>, Error>;
}

/// Parts of other programs, as a kind.
pub(crate) struct OutsideParts;

impl Kind for OutsideParts {
    fn capture_folder<'m>(
        &self,
        folder: &FolderNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        if folder.is_project {
            let found = folder.manager.outside_found(folder.files.workspace)?;
            members.extend(found.into_iter().map(|part| Member::new(part, folder.at, None)));
        }
        Ok(())
    }

    fn roll_back_folder<'m>(
        &self,
        folder: &mut FolderBack<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        let Request { to, options, .. } = folder.request;
        let wants = |kind| options.wants(kind);
        let parts = folder.manager.outside_to_go_back(folder.files.workspace, to, wants, folder.warnings)?;
        members.extend(parts.into_iter().map(|(part, target)| Member::new(part, folder.at, target)));
        Ok(())
    }

    fn left_by<'m>(
        &self,
        manager: &'m CheckpointManager,
        folder: &'m Workspace,
        record: &Rollback,
    ) -> Result<Vec<LeftPart<'m>>, Error> {
        match manager.outside_left(folder, record) {
            // The rollback is done, so nothing waits for a program that is missing.
            Err(Error::UnknownPart { .. }) if record.state != RollbackState::Applying => Ok(Vec::new()),
            left => left,
        }
    }
}

/// Part of another program, with its key in checkpoints.
pub(crate) struct OutsidePart {
    inner: Box<dyn Part>,
    kind: OutsideKind,
    key: String,
}

/// Returns the key of a part: its workspace and its name there.
fn key_of(workspace: &Workspace, name: &str) -> String {
    format!("{}:{name}", workspace.id)
}

fn name_of<'k>(workspace: &Workspace, key: &'k str) -> Option<&'k str> {
    key.strip_prefix(&workspace.id.to_string())?.strip_prefix(':')
}

impl CheckpointManager {
    fn provider(&self, kind: PartKind) -> Option<&dyn PartProvider> {
        let PartKind::Outside(kind) = kind else { return None };
        self.settings.parts.iter().find(|provider| provider.kind() == kind).map(AsRef::as_ref)
    }

    fn open_outside(
        &self,
        provider: &dyn PartProvider,
        workspace: &Workspace,
        name: &str,
    ) -> Result<OutsidePart, Error> {
        let inner = provider.open(workspace.root_path(), name)?;
        Ok(OutsidePart { inner, kind: provider.kind(), key: key_of(workspace, name) })
    }

    /// Current parts of other programs in a workspace.
    fn outside_found(&self, workspace: &Workspace) -> Result<Vec<OutsidePart>, Error> {
        let mut parts = Vec::new();
        for provider in &self.settings.parts {
            for name in provider.find(workspace.root_path())? {
                parts.push(self.open_outside(provider.as_ref(), workspace, &name)?);
            }
        }
        Ok(parts)
    }

    /// Returns the parts of other programs that a rollback captures, each with its target document. Warns
    /// about parts whose program is missing.
    fn outside_to_go_back(
        &self,
        workspace: &Workspace,
        to: &Checkpoint,
        wants: impl Fn(PartKind) -> bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<(OutsidePart, Option<ObjectId>)>, Error> {
        let mut going = Vec::new();
        for PartRecord { kind, key, document } in &to.parts {
            let (PartKind::Outside(_), Some(name)) = (kind, name_of(workspace, key)) else { continue };
            match self.provider(*kind) {
                Some(provider) => {
                    let part = self.open_outside(provider, workspace, name)?;
                    going.push((part, wants(*kind).then_some(*document)));
                }
                None if wants(*kind) => {
                    let program = OutsideDocument::load(&self.store, *document)?.program;
                    warnings.push(Warning::PartNotRegistered { kind: *kind, name: name.to_owned(), program });
                }
                None => {}
            }
        }
        for part in self.outside_found(workspace)? {
            if !going.iter().any(|(known, _)| (known.kind, &known.key) == (part.kind, &part.key)) {
                going.push((part, None));
            }
        }
        Ok(going)
    }

    /// Returns the parts of other programs in a recorded rollback, each with its note.
    ///
    /// # Errors
    /// [`Error::UnknownPart`] if the code of a part is missing.
    fn outside_left<'m>(&self, workspace: &Workspace, record: &Rollback) -> Result<Vec<LeftPart<'m>>, Error> {
        let mut parts = Vec::new();
        for PartNote { kind, key, program, note } in self.catalog.part_notes(record.id)? {
            let unknown = Error::UnknownPart { rollback: record.id, kind, program };
            let (Some(provider), Some(name)) = (self.provider(kind), name_of(workspace, &key)) else {
                return Err(unknown);
            };
            let part = Box::new(self.open_outside(provider, workspace, name)?);
            parts.push(LeftPart { part, note });
        }
        Ok(parts)
    }
}

impl Part for OutsidePart {
    fn kind(&self) -> PartKind {
        PartKind::Outside(self.kind)
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn capture(
        &self,
        writer: &Writer<'_>,
        target: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error> {
        let mut captured = self.inner.capture(writer, target, progress)?;
        // The next collection would delete contents that only the program can list.
        if let Some(document) = captured.document {
            OutsideDocument::load(writer, document)?;
        }
        // Totals count only the files of the workspace.
        captured.totals = safepoint_model::checkpoint::Totals::default();
        Ok(captured)
    }

    fn commit(&self, transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.inner.commit(transaction, checkpoint)
    }

    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(OutsidePrepared { inner: self.inner.prepare(now, target, writer)?, part: self }))
    }

    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(OutsidePrepared { inner: self.inner.resume(left)?, part: self }))
    }
}

/// Rollback in progress of a part of another program.
struct OutsidePrepared<'p> {
    inner: Box<dyn Prepared + 'p>,
    part: &'p OutsidePart,
}

impl Prepared for OutsidePrepared<'_> {
    fn outline(&self) -> Option<&Outline> {
        None
    }

    fn put_back(&self) -> Option<PutBack> {
        Some(PutBack::Outside { kind: self.part.kind(), key: self.part.key() })
    }

    fn note(&self) -> Option<Note> {
        self.inner.note()
    }

    fn part_note(&self) -> Option<PartNote> {
        let Note { program, bytes } = self.inner.note()?;
        Some(PartNote { kind: self.part.kind(), key: self.part.key(), program, note: bytes })
    }

    fn stage(&mut self, rollback: RollbackId, progress: &dyn Progress) -> Result<(), Error> {
        self.inner.stage(rollback, progress)
    }

    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.inner.intend(transaction)
    }

    fn apply(&mut self, progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        self.inner.apply(progress)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.inner.publish(transaction)
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        self.inner.undo()
    }

    fn settle(
        &mut self,
        ended: Ended,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        self.inner.settle(ended, writer, progress)
    }

    fn clear(&mut self) -> Result<bool, Error> {
        self.inner.clear()
    }
}
