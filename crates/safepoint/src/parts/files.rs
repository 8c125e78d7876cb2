//! Files of a workspace, as a part.

use crate::attempts::capture::Layer;
use crate::home::{CacheDraft, PendingCache};
use crate::parts::databases::Copies;
use crate::parts::git::git_folder;
use crate::parts::layer::LayerBack;
use crate::parts::part::{Captured, Left, Outline, Part, Prepared};
use crate::plans::apply::TakeOver;
use crate::plans::room::PlanRoom;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::change::{Absent, graft};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Role, Totals};
use safepoint_model::coverage::{Coverage, Why};
use safepoint_model::files::FilesDocument;
use safepoint_model::rollback::{Expected, How, SwapStep};
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{
    ObjectError, ObjectId, ObjectSink, ObjectSource, Progress, RelPath, RollbackId, document,
};
use safepoint_planted::planted;
use safepoint_store::Writer;
use safepoint_workspace::{
    CacheWriter, Capabilities, CapturedAccess, Ended, Finding, LargeFiles, Root, Scan, ScanOptions, Settled,
    Sidecars, Snapshot, Stage, StageOptions, StatCache, Times, Waiting, What, database_family, plan, scan,
};

/// Files of a workspace that this process has locked.
pub(crate) struct FilesPart<'m> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) root: &'m Root,
    pub(crate) workspace: &'m Workspace,
    pub(crate) capabilities: Capabilities,
    pub(crate) times: Times,
    /// Patterns to leave out of captures.
    excludes: Vec<String>,
    /// Folders in it that are captured separately.
    pub(crate) leave: Vec<RelPath>,
    /// Sorted paths that the undone rollback changed: rules do not exclude them.
    pub(crate) covered: Vec<RelPath>,
    /// True if another home may have left a mixture of two states.
    pub(crate) is_mixed: bool,
    /// True if the user requested the checkpoint: an empty one then gets a warning.
    pub(crate) is_asked_for: bool,
    /// Content kind.
    pub(crate) what: What,
    /// Treatment of displaced files that may have a writer.
    pub(crate) waiting: Waiting,
    /// Coverage of ACLs and capabilities in the checkpoint to restore.
    pub(crate) access: CapturedAccess,
    /// Paths of a partial rollback, else empty. Other large files are not read for it.
    pub(crate) chosen: Vec<RelPath>,
    /// Paths to leave as they are.
    pub(crate) left: Vec<RelPath>,
    /// Treatment of a chosen path that is in neither state.
    pub(crate) absent: Absent,
    /// Result to take over: it is compared with the whole project.
    pub(crate) taking: Option<&'m dyn TakeOver>,
    pub(crate) thrift: Thrift,
}

impl<'m> FilesPart<'m> {
    pub(crate) fn new(
        manager: &'m CheckpointManager,
        root: &'m Root,
        workspace: &'m Workspace,
        excludes: Vec<String>,
    ) -> Self {
        let capabilities = manager.settings.capabilities;
        Self {
            manager,
            root,
            workspace,
            capabilities,
            times: Times::default(),
            excludes,
            leave: Vec::new(),
            covered: Vec::new(),
            is_mixed: false,
            is_asked_for: false,
            what: What::Files,
            waiting: Waiting::Kept,
            access: CapturedAccess::Captured,
            chosen: Vec::new(),
            left: Vec::new(),
            absent: Absent::Refused,
            taking: None,
            thrift: Thrift::Usual,
        }
    }

    /// Returns the layer that holds its changes, if it is the workspace of an attempt with an overlay.
    fn layer(&self) -> Result<Option<Layer>, Error> {
        match self.what {
            What::Files => self.manager.layer_of(self.workspace),
            What::Git => Ok(None),
        }
    }

    /// Returns its room, if it is the sandbox of a plan and an overlay.
    fn room(&self) -> Result<Option<PlanRoom>, Error> {
        match self.what {
            What::Files => self.manager.room_of_plan(self.workspace),
            What::Git => Ok(None),
        }
    }

    /// Returns its git folder, complete, as a part.
    pub(crate) fn git_folder(&self) -> FilesPart<'m> {
        let FilesPart { manager, root, workspace, capabilities, times, waiting, access, .. } = *self;
        let (chosen, absent) = (vec![git_folder()], Absent::Fine);
        let part = FilesPart::new(manager, root, workspace, Vec::new());
        FilesPart { capabilities, times, waiting, access, chosen, absent, what: What::Git, ..part }
    }

    /// Scans the workspace with the last cache. Reports only the size of large files whose size differs from
    /// `keep`.
    pub(crate) fn look<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        keep: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Scan, Error> {
        let cache = self.manager.trusted_cache(self.workspace.id, self.what)?;
        self.scan_with((cache.as_ref(), None), sink, keep, (Sidecars::Needed, LargeFiles::InDoubt), progress)
    }

    /// Reads the workspace into a sink with the last cache.
    pub(crate) fn scan<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        keep: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Scan, Error> {
        let cache = self.manager.trusted_cache(self.workspace.id, self.what)?;
        self.scan_with((cache.as_ref(), None), sink, keep, (Sidecars::Needed, LargeFiles::Read), progress)
    }

    /// Reads the workspace before a rollback to `target`, including everything it would displace.
    pub(crate) fn scan_before<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        target: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Scan, Error> {
        let cache = self.manager.trusted_cache(self.workspace.id, self.what)?;
        let wanted = (Sidecars::All, LargeFiles::Read);
        self.scan_with((cache.as_ref(), None), sink, target, wanted, progress)
    }

    /// Reads the whole workspace into a sink, without a cache.
    pub(crate) fn scan_afresh<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        progress: &dyn Progress,
    ) -> Result<Scan, Error> {
        self.scan_with((None, None), sink, None, (Sidecars::Needed, LargeFiles::Read), progress)
    }

    /// Returns the root of the folder after a rollback: the chosen paths as in the target, all others as now.
    pub(crate) fn chosen_root<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        now: &Snapshot,
        target: &Snapshot,
    ) -> Result<Entry, Error> {
        let mut root = target.root.clone();
        if let (false, Some(base), Some(donor)) = (self.chosen.is_empty(), now.tree(), target.tree()) {
            let mut paths = self.chosen.clone();
            for path in &self.chosen {
                paths.extend(database_family(sink, &[base, donor], path)?);
            }
            let grafted = graft(sink, base, donor, &paths, self.absent)?;
            root = Entry { node: Node::Directory(grafted), ..now.root.clone() };
        }
        self.without_left(sink, now, root)
    }

    /// Returns a root with the paths that stay as they are now.
    fn without_left<S: ObjectSink + ObjectSource>(
        &self,
        sink: &S,
        now: &Snapshot,
        mut root: Entry,
    ) -> Result<Entry, Error> {
        if let (false, Some(donor), Node::Directory(base)) = (self.left.is_empty(), now.tree(), &root.node) {
            root.node = Node::Directory(graft(sink, *base, donor, &self.left, Absent::Fine)?);
        }
        Ok(root)
    }

    fn scan_with<S: ObjectSink + ObjectSource>(
        &self,
        (cache, next): (Option<&StatCache>, Option<&CacheWriter>),
        sink: &S,
        keep: Option<ObjectId>,
        (sidecars, large): (Sidecars, LargeFiles<'_>),
        progress: &dyn Progress,
    ) -> Result<Scan, Error> {
        let mut own = self.manager.own_folders(self.root);
        own.extend(self.leave.iter().cloned());
        let Self { manager: CheckpointManager { home, settings, environment, .. }, .. } = self;
        let (held_max, helper, environment) =
            (settings.database_hold, &*settings.database_helper, environment.as_ref());
        let copies = Copies { home, held_max, helper, environment };
        let (excludes, own, what, copies) = (&*self.excludes, &*own, self.what, Some(&copies as _));
        let covered = &*self.covered;
        let layer = None;
        let options =
            ScanOptions { excludes, cache, next, own, keep, covered, what, sidecars, copies, large, layer };
        let mut scan = match self.layer()? {
            Some(layer) => layer.scan(sink, &ScanOptions { cache: None, next: None, ..options }, progress)?,
            None => scan(self.root, sink, &options, progress)?,
        };
        if self.is_mixed {
            // The scan may contain a mixture of two states.
            scan.snapshot.coverage.unsettled.insert(0, RelPath::root());
            scan.warnings
                .push("another Safepoint home began a rollback here and did not finish it".to_owned());
        }
        Ok(scan)
    }
}

/// Extent of the safety checkpoint of a selective rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thrift {
    /// Everything but large files outside of the chosen paths.
    Usual,
    /// The chosen paths and what needs no new space, because the cap is reached.
    ChosenOnly,
}

/// Workspace state of a document.
pub(crate) fn snapshot(source: &dyn ObjectSource, document: ObjectId) -> Result<Snapshot, ObjectError> {
    let document = FilesDocument::load(source, document)?;
    Ok(Snapshot { root: document.root_entry(), coverage: document.coverage(source)? })
}

/// Stores the document of a workspace state.
pub(crate) fn keep_document(
    sink: &dyn ObjectSink,
    root: &Entry,
    coverage: &Coverage,
    count: u64,
    bytes: u64,
) -> Result<ObjectId, ObjectError> {
    let coverage = document::store(sink, coverage)?;
    let root = Expected { entry: root.clone() };
    let document =
        FilesDocument { format: FilesDocument::FORMAT, root, count, bytes, coverage, elsewhere: None };
    document::store(sink, &document)
}

/// Returns the warnings about a capture.
fn warnings(scan: &Scan) -> Vec<String> {
    let coverage = &scan.snapshot.coverage;
    let unreadable = coverage
        .skipped
        .iter()
        .filter(|skipped| matches!(skipped.why, Why::Unreadable | Why::TooDeep | Why::NotChosen));
    let mut warnings = scan.warnings.clone();
    warnings.extend(
        unreadable.map(|skipped| format!("{} is not in the checkpoint: {}", skipped.path, skipped.why)),
    );
    warnings
        .extend(coverage.unsettled.iter().map(|path| format!("{path} changed all the while it was read")));
    warnings
}

impl Part for FilesPart<'_> {
    fn kind(&self) -> PartKind {
        match self.what {
            What::Files => PartKind::Files,
            What::Git => PartKind::GitFolder,
        }
    }

    fn key(&self) -> String {
        self.workspace.id.to_string()
    }

    fn capture(
        &self,
        writer: &Writer<'_>,
        target: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error> {
        let target = target.map(|target| FilesDocument::load(writer, target)).transpose()?;
        self.manager.note_access_captured()?;
        let sidecars = if target.is_some() { Sidecars::All } else { Sidecars::Needed };
        let last = self.manager.trusted_cache(self.workspace.id, self.what)?;
        let is_layer = self.workspace.kind == WorkspaceKind::Attempt;
        let draft = (!is_layer)
            .then(|| self.manager.home.draft_cache(self.workspace.id, self.what, last.as_ref()))
            .flatten();
        let caches = (last.as_ref(), draft.as_ref().and_then(CacheDraft::writer));
        let keep = target.and_then(|target| target.tree());
        let all = self.chosen.is_empty() || self.taking.is_some() || self.what == What::Git;
        let large = match (all, self.thrift) {
            (true, _) => LargeFiles::Read,
            (false, Thrift::Usual) => LargeFiles::Within(&self.chosen),
            (false, Thrift::ChosenOnly) => LargeFiles::Only(&self.chosen),
        };
        let scan = self.scan_with(caches, writer, keep, (sidecars, large), progress)?;
        let Snapshot { root, coverage } = &scan.snapshot;
        let document = keep_document(writer, root, coverage, scan.count, scan.bytes)?;
        let mut captured = Captured {
            document: Some(document),
            totals: Totals { count: scan.count, bytes: scan.bytes, ..Totals::default() },
            warnings: warnings(&scan),
            coverage: coverage.clone(),
            cache: draft.zip(scan.cache).map(|(draft, next)| PendingCache { draft, next }),
        };
        if self.what == What::Files {
            let id = self.workspace.id;
            let before = self.manager.files_before(self.manager.workspaces().get(id)?.head, id)?;
            self.manager.count_changes(before, document, writer, &mut captured.totals)?;
            if self.is_asked_for {
                captured.warnings.extend(self.manager.emptied(id, captured.totals)?);
            }
        }
        Ok(captured)
    }

    /// Makes the checkpoint the workspace's head.
    fn commit(&self, transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
        // A safety checkpoint does not move the head.
        match checkpoint.role {
            Some(Role::Safety) => Ok(()),
            _ => Ok(transaction.set_head(self.workspace.id, checkpoint.id)?),
        }
    }

    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let now_document = now.unwrap_or(target);
        let fitted = match self.taking {
            Some(taking) => taking.fit(writer, now_document, target)?,
            None => None,
        };
        let now = snapshot(writer, now_document)?;
        let mut target = snapshot(writer, target)?;
        target.root = match fitted {
            Some(root) => self.without_left(writer, &now, root)?,
            None => self.chosen_root(writer, &now, &target)?,
        };
        let room = self.room()?;
        let layer = room.as_ref().map(|room| Root::open_layer(&room.folder.layer())).transpose()?;
        let root = layer.as_ref().unwrap_or(self.root);
        let plan = plan(root, writer, &now, (&target, self.access), &self.capabilities)?;
        let outline = Outline {
            restored: plan.restored,
            removed: plan.removed,
            paths: plan.paths,
            blocked: plan.blocked,
            lost: plan.lost,
        };
        if let Some(room) = room {
            return Ok(Box::new(LayerBack::new(self, room, (plan.steps, outline), now.tree())));
        }
        Ok(Box::new(FilesRollback { part: self, steps: plan.steps, outline, stage: None, settled: None }))
    }

    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        let Left { rollback, steps, .. } = left;
        if let Some(room) = self.room()? {
            return Ok(Box::new(LayerBack::left(self, room, rollback)));
        }
        let stage = Some(Stage::reopen(self.root, rollback, self.capabilities)?);
        Ok(Box::new(FilesRollback { part: self, steps, outline: Outline::default(), stage, settled: None }))
    }
}

/// Rollback of a workspace's files in progress.
struct FilesRollback<'p> {
    part: &'p FilesPart<'p>,
    steps: Vec<SwapStep>,
    outline: Outline,
    stage: Option<Stage<'p>>,
    settled: Option<Settled>,
}

impl Prepared for FilesRollback<'_> {
    fn outline(&self) -> Option<&Outline> {
        Some(&self.outline)
    }

    fn steps(&self) -> &[SwapStep] {
        &self.steps
    }

    fn give_steps(&mut self) -> Vec<SwapStep> {
        std::mem::take(&mut self.steps)
    }

    fn take_steps(&mut self, steps: Vec<SwapStep>) {
        let first = self.steps.len() as u64;
        let moved = |how| match how {
            How::Swap { slot } => How::Swap { slot: first + slot },
            How::Meta => How::Meta,
        };
        self.steps.extend(steps.into_iter().map(|step| SwapStep { how: moved(step.how), ..step }));
    }

    fn stage(&mut self, id: RollbackId, progress: &dyn Progress) -> Result<(), Error> {
        if !self.steps.is_empty() {
            let options = StageOptions { capabilities: self.part.capabilities, times: self.part.times };
            let store = &self.part.manager.store;
            self.stage = Some(Stage::build(self.part.root, id, &self.steps, options, store, progress)?);
        }
        Ok(())
    }

    fn apply(&mut self, progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        let Some(stage) = &mut self.stage else { return Ok(Vec::new()) };
        stage.arm()?;
        stage.apply(&self.steps)?;
        if !planted!("publish-before-sync") {
            stage.sync(&self.steps)?;
        }
        let meanwhile = stage.verify(&self.steps, &self.part.manager.store, progress)?;
        Ok(meanwhile.into_iter().map(|meanwhile| meanwhile.path).collect())
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        if let Some(stage) = &self.stage {
            stage.undo(&self.steps, &self.part.manager.store)?;
        }
        Ok(Vec::new())
    }

    fn settle(
        &mut self,
        ended: Ended,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        let Some(stage) = &self.stage else { return Ok(Vec::new()) };
        if planted!("publish-before-sync") {
            stage.sync(&self.steps)?;
        }
        let settled = stage.inspect(&self.steps, (ended, self.part.waiting), writer, progress)?;
        let findings = settled.findings.clone();
        self.settled = Some(settled);
        Ok(findings)
    }

    fn clear(&mut self) -> Result<bool, Error> {
        let (Some(stage), Some(settled)) = (self.stage.take(), self.settled.take()) else { return Ok(true) };
        stage.clear(&settled)?;
        Ok(settled.is_complete())
    }
}
