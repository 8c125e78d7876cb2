//! IMPORT: a folder, read as hostile input, becomes a checkpoint. Everything is read and compared before one transaction says that it is
//! there; until then the store has at most unreferenced objects.

use super::reading::{DOCUMENT, Reading};
use super::rows::{ContentRow, FilesState, State};
use super::{LayoutError, git, path, plan, state_name, take, thread};
use crate::parts::files::keep_document;
use crate::rollback::DryRun;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord, Role, Scope, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::progress::Activity;
use safepoint_model::{
    CheckpointId, ObjectSource, Progress, RelPath, Timestamp, WorkspaceId, change, document,
};
use safepoint_store::Writer;
use std::path::Path;

/// The tool that every import is said to be of.
const SOURCE_TOOL: &str = "import";

/// Overrides of the layout for an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Label; the original one if none.
    pub label: Option<String>,
    /// Never prune it.
    pub pinned: bool,
}

/// A checkpoint that came from a folder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Imported {
    /// Its record. Its warnings tell what was not taken over.
    pub checkpoint: Checkpoint,
    /// Paths the original left out.
    pub coverage: Coverage,
    /// The checkpoint that was exported.
    pub original: CheckpointId,
    /// When that was taken, as the folder says.
    pub original_created_at: Timestamp,
    /// In a checkpoint of several folders: parts not registered on this machine, kept but not restored.
    pub missing: Vec<String>,
    /// Checkpoints that were pruned to make room.
    pub pruned: Vec<CheckpointId>,
    /// Leftovers of those, such as a tag that could not be removed.
    pub warnings: Vec<Warning>,
}

impl CheckpointManager {
    /// Creates a checkpoint from a folder that [`CheckpointManager::export_checkpoint`] wrote: one of a workspace into that workspace, one
    /// of an agent or of everything into none. Changes only the catalog and the store; the position of the workspace stays.
    ///
    /// # Errors
    /// Fails if the folder differs from its metadata, its scope does not fit, or store or catalog fail; no checkpoint is created then.
    pub fn import<'w>(
        &self,
        into: impl Into<Option<&'w Workspace>>,
        dir: &Path,
        options: &ImportOptions,
        progress: &dyn Progress,
    ) -> Result<Imported, Error> {
        let into = into.into();
        let act = || {
            progress.begin(Activity::Scanning, None);
            let imported = self.import_once(into, dir, options, progress);
            progress.end();
            imported
        };
        let (imported, room) =
            self.within_cap(into.map(|workspace| workspace.id), DryRun::No, progress, act)?;
        Ok(Imported { pruned: room.pruned, warnings: room.warnings, ..imported })
    }

    fn import_once(
        &self,
        into: Option<&Workspace>,
        dir: &Path,
        options: &ImportOptions,
        progress: &dyn Progress,
    ) -> Result<Imported, Error> {
        let _using = self.store.using()?;
        let reading = Reading::open(dir)?;
        progress.expect(reading.promised_bytes());
        let scope = reading.metadata.scope;
        // The files of an agent are not a state of the project, also if they are one folder: a rollback would replace the project by them.
        if matches!(scope, Scope::Project | Scope::Workflow) != into.is_some() {
            return Err(LayoutError::Scope { scope }.into());
        }
        let writer = self.store.writer()?;
        let checkpoint = self.described(into.map(|workspace| workspace.id), &reading, options);
        match into {
            Some(workspace) => self.import_one(workspace, reading, checkpoint, writer, progress),
            None => self.import_several(reading, checkpoint, writer, progress),
        }
    }

    /// Imports a checkpoint of one workspace.
    fn import_one(
        &self,
        workspace: &Workspace,
        mut reading: Reading,
        mut checkpoint: Checkpoint,
        writer: Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Imported, Error> {
        let coverage = self.import_files(workspace, &mut reading, &mut checkpoint, &writer, progress)?;
        self.import_plan(workspace, &mut reading, &mut checkpoint, &writer)?;
        let states: Vec<ContentRow> = rows_of(&reading, PartKind::Git);
        match states.as_slice() {
            [] => {}
            [row] => {
                let part = git::take(&mut reading, row, workspace.id.to_string(), &writer)?;
                checkpoint.parts.push(part);
            }
            [_, row, ..] => {
                return Err(LayoutError::bad(&row.path, "one workspace is in one repository").into());
            }
        }
        for row in rows_of(&reading, PartKind::Thread) {
            checkpoint.parts.push(thread::take(&mut reading, &row, workspace.id, &writer)?);
        }
        let original = reading.close(progress)?;
        self.keep_import(original, checkpoint, coverage, writer)
    }

    /// Makes a checkpoint of what was read whole.
    pub(super) fn keep_import(
        &self,
        (original, original_created_at): (CheckpointId, Timestamp),
        mut checkpoint: Checkpoint,
        coverage: Coverage,
        writer: Writer<'_>,
    ) -> Result<Imported, Error> {
        let manifest = Manifest::new(std::mem::take(&mut checkpoint.parts));
        checkpoint.integrity = document::store(&writer, &manifest)?;
        checkpoint.parts = manifest.parts;
        let stored = self.finish_with_record(writer, &mut checkpoint, &[])?;
        self.catalog.write::<(), Error>(|transaction| {
            transaction.insert_checkpoint(&checkpoint)?;
            stored.note(transaction)
        })?;
        let (missing, pruned) = (Vec::new(), Vec::new());
        let warnings = Vec::new();
        Ok(Imported { checkpoint, coverage, original, original_created_at, missing, pruned, warnings })
    }

    /// A record with what the metadata says, as far as it is about the checkpoint and not about the place where it was.
    pub(super) fn described(
        &self,
        workspace: Option<WorkspaceId>,
        reading: &Reading,
        options: &ImportOptions,
    ) -> Checkpoint {
        let metadata = &reading.metadata;
        // Fields about the content are set once it was read.
        let mut checkpoint = self.blank(workspace);
        let now = checkpoint.created_at;
        checkpoint.created_at = metadata.created_at.min(now);
        checkpoint.label = options.label.clone().or_else(|| metadata.label.clone());
        checkpoint.label = checkpoint.label.filter(|label| !label.is_empty());
        checkpoint.kind = metadata.kind;
        checkpoint.reason = metadata.reason;
        checkpoint.phase = metadata.phase;
        checkpoint.progress = metadata.progress;
        // A checkpoint of a few rescued files still cannot restore a whole workspace.
        checkpoint.role = metadata.role.filter(|role| *role == Role::Rescue);
        checkpoint.source_tool = Some(SOURCE_TOOL.to_owned());
        checkpoint.pinned = options.pinned;
        checkpoint.warnings = metadata.warnings.0.clone();
        if metadata.created_at > now {
            checkpoint
                .warnings
                .push(format!("it says that it was taken later than now: {}", metadata.created_at));
        }
        for ContentRow { kind, key, .. } in &metadata.contents.0 {
            let agent = *kind == PartKind::Agent && workspace.is_some();
            let thread = *kind == PartKind::Thread && workspace.is_none();
            if agent
                || thread
                || matches!(kind, PartKind::Session | PartKind::GitFolder | PartKind::Outside(_))
            {
                checkpoint.warnings.push(format!("its part {kind} {key:?} was not taken over"));
            }
        }
        checkpoint
    }

    fn import_files(
        &self,
        workspace: &Workspace,
        reading: &mut Reading,
        checkpoint: &mut Checkpoint,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Coverage, Error> {
        let rows = rows_of(reading, PartKind::Files);
        let [row] = rows.as_slice() else { return Err(LayoutError::Workspaces { found: rows.len() }.into()) };
        let about = path(&state_name(reading.metadata.scope));
        let state: State = reading.document(&about, DOCUMENT)?;
        reading.check_copies(&state.agents.0)?;
        let coverage = coverage_of(state.files.0, row, &about)?.coverage;
        if row.path != path(super::FILES) {
            return Err(LayoutError::bad(&row.path, "the files of one workspace are in `files`").into());
        }
        let taken = take::take(reading, std::slice::from_ref(&row.path), writer, progress)?;
        let [taken] = taken.as_slice() else { return Err(LayoutError::Workspaces { found: 0 }.into()) };
        check_coverage(writer, taken, &coverage, &about)?;
        checkpoint.warnings.extend(disarmed(taken.disarmed));
        let document = keep_document(writer, &taken.root, &coverage, taken.count, taken.bytes)?;
        checkpoint.files =
            Totals { count: taken.count, bytes: taken.bytes, added: taken.count, ..Totals::default() };
        checkpoint.parts.push(PartRecord { kind: PartKind::Files, key: workspace.id.to_string(), document });
        Ok(coverage)
    }

    /// The plan comes back as a part where it is one of this workspace. Else it is kept, and the checkpoint is one of files alone.
    fn import_plan(
        &self,
        workspace: &Workspace,
        reading: &mut Reading,
        checkpoint: &mut Checkpoint,
        writer: &Writer<'_>,
    ) -> Result<(), Error> {
        for row in rows_of(reading, PartKind::Plan) {
            let (plan, document) = plan::take(reading, &row, writer)?;
            let is_of_it = reading.metadata.scope == Scope::Workflow;
            if is_of_it {
                checkpoint.state_hash = Some(document);
                checkpoint.state_snapshot = Some(document);
            }
            match self.fitting_plan(&[workspace.id], &plan)? {
                Ok(record) => {
                    if is_of_it {
                        checkpoint.scope = Scope::Workflow;
                        checkpoint.sandbox_ref = record.plan.sandbox.id;
                        checkpoint.step_index = Some(plan.step_index());
                        checkpoint.plan_id = Some(plan.id.clone());
                    }
                    checkpoint.parts.push(PartRecord { kind: PartKind::Plan, key: plan.id, document });
                }
                Err(why) if is_of_it => {
                    checkpoint
                        .warnings
                        .push(format!("{why}: its state is kept, and a rollback puts the files back alone"));
                }
                Err(why) => checkpoint.warnings.push(format!("{why}: it was not taken over")),
            }
        }
        Ok(())
    }
}

/// The parts of one kind.
pub(super) fn rows_of(reading: &Reading, kind: PartKind) -> Vec<ContentRow> {
    reading.contents().into_iter().filter(|row| row.kind == kind).collect()
}

/// Returns the state document's entry for the files of one folder.
pub(super) fn coverage_of(
    states: impl IntoIterator<Item = FilesState>,
    row: &ContentRow,
    about: &RelPath,
) -> Result<FilesState, LayoutError> {
    let mut states = states.into_iter();
    let state = states.find(|state| state.key == row.key && state.path == row.path);
    let state =
        state.ok_or_else(|| LayoutError::bad(about, "it does not say what was left out of the files"))?;
    let Coverage { skipped, unsettled } = state.coverage;
    Ok(FilesState { coverage: Coverage { skipped: sorted(skipped), unsettled: sorted(unsettled) }, ..state })
}

/// Warning about files that lost special mode bits.
pub(super) fn disarmed(count: u64) -> Option<String> {
    (count > 0).then(|| format!("{count} of its files do not run with the rights of their owner any more"))
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// Skipped paths must be absent.
pub(super) fn check_coverage(
    source: &dyn ObjectSource,
    taken: &take::Taken,
    coverage: &Coverage,
    about: &RelPath,
) -> Result<(), Error> {
    let safepoint_model::tree::Node::Directory(tree) = taken.root.node else { return Ok(()) };
    for skipped in &coverage.skipped {
        if skipped.path.is_root() || change::find(source, tree, &skipped.path)?.is_some() {
            let why = format!("{} is said to be left out, and is there", skipped.path);
            return Err(LayoutError::bad(about, why).into());
        }
    }
    Ok(())
}
