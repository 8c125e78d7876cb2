//! APPLY: takes what a plan made in its sandbox over into the project, by the protocol of a rollback: all of it or nothing, with a safety
//! checkpoint, and the plan is closed by the same commit.

use crate::attempts::rooms::OwnRefs;
use crate::checkpoint::create::{CreateOptions, Subject, files_part};
use crate::handles::Plans;
use crate::parts::Nothing;
use crate::parts::part::{Captured, Left, Part, Prepared};
use crate::parts::plan::unchanged;
use crate::rollback::recover::Recovery;
use crate::rollback::{Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanRecord, Transaction};
use safepoint_model::attempt::AttemptState;
use safepoint_model::change::{Delta, deltas, find};
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, Reason};
use safepoint_model::files::FilesDocument;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::run::{Sandbox, SandboxState};
use safepoint_model::plan::spec::SandboxKind;
use safepoint_model::plan::state::PlanState;
use safepoint_model::rollback::Verb;
use safepoint_model::tree::{Entry, Owners};
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectSource, Progress, RelPath, Timestamp};
use safepoint_store::Writer;
use safepoint_workspace::remove_tree;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Handling of concurrent project changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// A project that changed is refused.
    #[default]
    Refused,
    /// Changes without conflict stay, next to the result.
    Kept,
}

/// A plan whose result was taken over.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Applied {
    /// The plan as it is now.
    pub record: PlanRecord,
    /// The checkpoint of the sandbox that was taken over.
    pub result: Option<CheckpointId>,
    /// Changes to the project; none if the plan worked there or changed nothing.
    pub restored: Option<RolledBack>,
    /// The sandbox, where it was kept, and why.
    pub kept: Option<(PathBuf, String)>,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

/// A result that a rollback of the project takes over: that of a plan's sandbox, or of an attempt.
pub(crate) trait TakeOver: Sync {
    /// Kind of part under which its rows are written.
    fn kind(&self) -> PartKind;

    /// Key of that part.
    fn key(&self) -> String;

    /// Label of the safety checkpoint.
    fn label(&self) -> String;

    /// Fits the result to the current state of the project. Returns the root to restore, if it is not that of the result.
    ///
    /// # Errors
    /// Fails if the two do not fit.
    fn fit(&self, writer: &Writer<'_>, now: ObjectId, result: ObjectId) -> Result<Option<Entry>, Error>;

    /// Checks in the transaction of the intent that it may be taken over.
    ///
    /// # Errors
    /// Fails if not.
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error>;

    /// Closes it in the transaction that commits the rollback.
    ///
    /// # Errors
    /// Fails if the catalog refuses.
    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error>;
}

/// A result that is being taken over.
#[derive(Debug)]
pub(crate) struct Taking {
    record: PlanRecord,
    sandbox: Sandbox,
    result: CheckpointId,
    /// Tree of the sandbox when it was made.
    base: ObjectId,
    merge: Merge,
    at: Timestamp,
}

/// The differences between two captured states.
fn between(source: &dyn ObjectSource, old: ObjectId, new: ObjectId) -> Result<Vec<Delta>, ObjectError> {
    let tree = |document| FilesDocument::load(source, document).map(|document| document.tree());
    match (tree(old)?, tree(new)?) {
        (Some(old), Some(new)) => deltas(source, old, new, Owners::Compared),
        _ => Ok(Vec::new()),
    }
}

fn entry_at(
    source: &dyn ObjectSource,
    document: ObjectId,
    path: &RelPath,
) -> Result<Option<Entry>, ObjectError> {
    match FilesDocument::load(source, document)?.tree() {
        Some(tree) => find(source, tree, path),
        None => Ok(None),
    }
}

fn same(source: &dyn ObjectSource, a: Option<&Entry>, b: Option<&Entry>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            (a.meta.mode, &a.meta.xattrs) == (b.meta.mode, &b.meta.xattrs)
                && a.node.same_content(&b.node, source)
        }
        (None, None) => true,
        _ => false,
    }
}

impl Taking {
    pub(crate) fn plan_id(&self) -> &str {
        &self.record.plan.id
    }

    /// Checks that the project is unchanged since the sandbox, or differs only where the result does not.
    fn check(&self, source: &dyn ObjectSource, project: ObjectId, result: ObjectId) -> Result<(), Error> {
        let mut theirs = Vec::new();
        for delta in between(source, self.base, project)? {
            let path = delta.path();
            let (there, here) = (entry_at(source, project, path)?, entry_at(source, result, path)?);
            if !same(source, there.as_ref(), here.as_ref()) {
                theirs.push(path.clone());
            }
        }
        if theirs.is_empty() {
            return Ok(());
        }
        let id = self.plan_id().to_owned();
        if self.merge == Merge::Refused {
            return Err(Error::ProjectChanged { id, paths: theirs });
        }
        let ours = between(source, self.base, result)?;
        let meets =
            |path: &RelPath| ours.iter().any(|our| our.path().is_within(path) || path.is_within(our.path()));
        let paths: Vec<RelPath> = theirs.into_iter().filter(meets).collect();
        if paths.is_empty() { Ok(()) } else { Err(Error::ApplyConflict { id, paths }) }
    }
}

impl TakeOver for Taking {
    fn kind(&self) -> PartKind {
        PartKind::Plan
    }

    fn key(&self) -> String {
        self.plan_id().to_owned()
    }

    fn label(&self) -> String {
        format!("before plan {} is applied", self.plan_id())
    }

    fn fit(&self, writer: &Writer<'_>, now: ObjectId, result: ObjectId) -> Result<Option<Entry>, Error> {
        self.check(writer, now, result).map(|()| None)
    }

    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        unchanged(transaction, &self.record)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.intend(transaction)?;
        let mut plan = self.record.plan.clone();
        plan.go(PlanState::Applied)?;
        transaction.save_plan(&plan, "applied", self.at)?;
        transaction.set_sandbox_state(&self.sandbox.id, SandboxState::Applied)?;
        if let (SandboxKind::Overlay, Ok(attempt)) = (self.sandbox.kind, self.sandbox.id.parse()) {
            transaction.close_attempt(attempt, AttemptState::Kept, self.at)?;
        }
        let body = json!({ "result": self.result });
        Ok(transaction.note_plan(&plan.id, PlanNoteKind::Applied, &body, self.at)?)
    }
}

/// The result to apply, as a part: the same commit closes it.
pub(crate) struct TakingPart<'m>(pub(crate) &'m dyn TakeOver);

impl Part for TakingPart<'_> {
    fn kind(&self) -> PartKind {
        self.0.kind()
    }

    fn key(&self) -> String {
        self.0.key()
    }

    /// An undo brings the project back, and the plan stays applied.
    fn capture(&self, _: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        Ok(Captured::default())
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        _: ObjectId,
        _: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(TakingRows(self.0)))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

/// The rows of what is taken over.
struct TakingRows<'m>(&'m dyn TakeOver);

impl Prepared for TakingRows<'_> {
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.0.intend(transaction)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.0.publish(transaction)
    }
}

impl CheckpointManager {
    fn take_over(
        &self,
        taking: &Taking,
        result: Checkpoint,
        paths: Vec<RelPath>,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let options = RollbackOptions { paths, ..RollbackOptions::default() };
        let request = Request::new(Verb::Apply, Some(taking.record.workspace_id), result, &options);
        self.roll_back(&Request { taking: Some(taking), ..request }, progress)
    }

    /// Deletes a sandbox whose result is in the project. What no checkpoint holds and the project has not stays, and is told.
    fn clear_sandbox(&self, record: &PlanRecord, sandbox: &Sandbox) -> Option<(PathBuf, String)> {
        let project = self.workspaces().get(record.workspace_id).ok()?;
        let attempt = self.attempt_of_sandbox(sandbox).ok()?;
        let why = if let Some(attempt) = attempt {
            self.remove_room(&attempt, OwnRefs::Kept)
        } else if git_refs(&sandbox.path) != git_refs(project.root_path()) {
            Some("its .git has what that of the project has not".to_owned())
        } else {
            remove_tree(&sandbox.path).err().map(|error| error.to_string())
        };
        let state = if why.is_some() { SandboxState::Kept } else { SandboxState::Removed };
        // That it is not on record costs one more look the next time.
        let _ = self.catalog.write(|transaction| transaction.set_sandbox_state(&sandbox.id, state));
        match (why, sandbox.path.parent()) {
            (Some(why), _) => Some((sandbox.path.clone(), why)),
            (None, folder) => {
                folder.into_iter().for_each(crate::home::Home::drop_empty);
                None
            }
        }
    }

    /// Deletes the sandboxes of a project whose plan was applied by a process that did not come to it.
    pub(crate) fn sweep_sandboxes(&self, project: safepoint_model::WorkspaceId) -> Result<(), Error> {
        for (plan, sandbox) in self.catalog.sandboxes(project)? {
            if sandbox.state == SandboxState::Applied {
                self.clear_sandbox(&self.plans().get(&plan)?, &sandbox);
            }
        }
        Ok(())
    }
}

impl Plans<'_> {
    /// Takes the result of a plan that is done over into the project, and closes the plan.
    ///
    /// # Errors
    /// When the plan is not done, is being run, or its sandbox is missing; [`Error::ProjectChanged`] and [`Error::ApplyConflict`] when
    /// the project is not what the sandbox was made from; or as [`CheckpointManager::rollback`]. Project and plan are as they were then.
    pub fn apply(&self, id: &str, merge: Merge, progress: &dyn Progress) -> Result<Applied, Error> {
        let mark = self.manager.recovery_mark();
        let _lock = self.manager.hold_plan(id)?;
        let record = self.get(id)?;
        record.plan.clone().go(PlanState::Applied)?;
        self.manager.recover_plan(id, progress)?;
        let recovered = || self.manager.recovered_since(mark);
        let Some(sandbox) = self.sandbox(&record)? else {
            let at = self.manager.environment.now();
            let record = self.manager.catalog.write::<_, Error>(|transaction| {
                unchanged(transaction, &record)?;
                let mut record = record.clone();
                record.plan.go(PlanState::Applied)?;
                record.version = transaction.save_plan(&record.plan, "applied", at)?;
                record.updated_at = at;
                transaction.note_plan(id, PlanNoteKind::Applied, &json!({ "result": null }), at)?;
                Ok(record)
            })?;
            return Ok(Applied { record, result: None, restored: None, kept: None, recovered: recovered() });
        };
        let place = self.workspace(&record)?;
        let _still = self.manager.still_rooms(std::iter::once(&place))?;
        let options = CreateOptions {
            label: Some(format!("result of plan {id}")),
            kind: Kind::Workflow,
            reason: Reason::PhaseComplete,
            plan_id: Some(id.to_owned()),
            ..CreateOptions::default()
        };
        let result = self
            .manager
            .create_at(&Subject::from(&place), &options, Some(record.version), progress)?
            .checkpoint;
        let document = |checkpoint| {
            files_part(checkpoint)
                .map(|part| part.document)
                .ok_or(Error::NoFiles { checkpoint: checkpoint.id })
        };
        let (base, made) = (document(&self.manager.checkpoints().get(sandbox.base)?)?, document(&result)?);
        let using = self.manager.store.using()?;
        let paths: Vec<RelPath> =
            between(&self.manager.store, base, made)?.iter().map(|delta| delta.path().clone()).collect();
        drop(using);
        let (at, result_id) = (self.manager.environment.now(), result.id);
        let taking = Taking { record, sandbox, result: result_id, base, merge, at };
        let restored = match paths.is_empty() {
            true => {
                self.manager.catalog.write::<(), Error>(|transaction| taking.publish(transaction))?;
                None
            }
            false => Some(self.manager.take_over(&taking, result, paths, progress)?),
        };
        let kept = self.manager.clear_sandbox(&taking.record, &taking.sandbox);
        Ok(Applied { record: self.get(id)?, result: Some(result_id), restored, kept, recovered: recovered() })
    }
}

/// Returns the refs in a folder's `.git`: enough to detect a commit, stash or tag.
pub(crate) fn git_refs(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let git = folder.join(".git");
    let mut refs = BTreeMap::new();
    let mut look = vec![git.join("HEAD"), git.join("packed-refs"), git.join("refs")];
    while let Some(path) = look.pop() {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let below = fs::read_dir(&path).into_iter().flatten().flatten();
                look.extend(below.map(|entry| entry.path()));
            }
            Ok(metadata) if metadata.is_file() => {
                let name = path.strip_prefix(&git).unwrap_or(&path).to_owned();
                refs.insert(name, fs::read(&path).unwrap_or_default());
            }
            _ => {}
        }
    }
    refs
}
