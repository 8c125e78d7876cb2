//! The kinds of parts there are, one file each.

pub(crate) mod agent;
pub(crate) mod databases;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod kinds;
pub(crate) mod layer;
pub(crate) mod outside;
pub(crate) mod part;
pub(crate) mod plan;
pub(crate) mod session;
pub(crate) mod thread;

use crate::parts::part::{Captured, Part, Prepared};
use crate::places::Place;
use crate::{CheckpointManager, Error};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartRecord};
use safepoint_model::trace::{self, TraceLevel};
use safepoint_model::{ObjectId, Progress, document};
use safepoint_store::Writer;
use safepoint_workspace::WorkspaceError;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A part with nothing to restore.
pub(crate) struct Nothing;

impl Prepared for Nothing {}

/// A part of a checkpoint that is being made, or of a rollback.
pub(crate) struct Member<'m> {
    pub(crate) part: Box<dyn Part + 'm>,
    /// The folder that it belongs to, by its place among the folders.
    pub(crate) folder: usize,
    /// The document that it is restored to; `None` if it is only captured.
    pub(crate) target: Option<ObjectId>,
    /// Captured state.
    pub(crate) captured: Captured,
}

impl<'m> Member<'m> {
    pub(crate) fn new(part: impl Part + 'm, folder: usize, target: Option<ObjectId>) -> Self {
        Self { part: Box::new(part), folder, target, captured: Captured::default() }
    }

    /// Its manifest record; `None` if nothing was kept.
    fn record(&self) -> Option<PartRecord> {
        let document = self.captured.document?;
        Some(PartRecord { kind: self.part.kind(), key: self.part.key(), document })
    }
}

impl CheckpointManager {
    /// Captures every part into the writer, those of several folders side by side.
    pub(crate) fn capture(
        &self,
        members: &mut [Member<'_>],
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let folders = members.iter().map(|member| member.folder).max().map_or(0, |last| last + 1);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(folders);
        let one = |member: &mut Member<'_>| -> Result<(), Error> {
            let _span = trace::span("part", TraceLevel::Debug, || {
                format!("capture {} {}", member.part.kind(), member.part.key())
            });
            member.captured = member.part.capture(writer, member.target, progress)?;
            Ok(())
        };
        if threads <= 1 {
            return members.iter_mut().try_for_each(one);
        }
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let slots: Vec<Mutex<&mut Member<'_>>> = members.iter_mut().map(Mutex::new).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let captured = match slot.lock() {
                            Ok(mut member) => one(&mut member),
                            Err(_) => Err(WorkspaceError::Interrupted.into()),
                        };
                        if let (Err(error), Ok(mut failed)) = (captured, failed.lock()) {
                            failed.get_or_insert(error);
                        }
                    }
                });
            }
        });
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}

/// Seals what was captured into a checkpoint: one manifest of all parts, and what they say about it.
pub(crate) fn seal(
    checkpoint: &mut Checkpoint,
    members: &[Member<'_>],
    places: &[Place],
    writer: &Writer<'_>,
) -> Result<(), Error> {
    let manifest = Manifest::new(members.iter().filter_map(Member::record).collect());
    checkpoint.integrity = document::store(writer, &manifest)?;
    checkpoint.parts = manifest.parts;
    for member in members {
        // The files of a workspace are those of its folder, and not the memory of its agents.
        let is_counted = checkpoint.workspace_id.is_none() || member.folder == 0;
        if is_counted {
            let totals = &member.captured.totals;
            checkpoint.files.count += totals.count;
            checkpoint.files.bytes += totals.bytes;
            checkpoint.files.added += totals.added;
            checkpoint.files.modified += totals.modified;
            checkpoint.files.removed += totals.removed;
        }
        let warnings = member.captured.warnings.iter();
        // Of several folders it is said which one.
        let is_alone = is_counted && checkpoint.workspace_id.is_some();
        checkpoint.warnings.extend(warnings.map(|warning| match is_alone {
            true => warning.clone(),
            false => format!("{}: {warning}", places[member.folder].workspace.root_path().display()),
        }));
        member.part.describe(checkpoint);
    }
    let (files, progress) = (checkpoint.files, &mut checkpoint.progress);
    if (progress.files_created, progress.files_modified) == (0, 0) {
        (progress.files_created, progress.files_modified) = (files.added, files.modified);
    }
    Ok(())
}
