//! CREATE: scan, chunks, trees, the store made durable, one catalog transaction. The last is the commit.

use crate::config::Broken;
use crate::git::GitCommit;
use crate::home::{PendingCache, Vouchers};
use crate::part::{Captured, Part};
use crate::parts::files::FilesPart;
use crate::parts::plan;
use crate::records::Stored;
use crate::sessions::kept_form;
use crate::together::{files_of, is_together};
use crate::upkeep::Tended;
use crate::{CheckpointManager, DryRun, Error};
use safepoint_catalog::{Filter, PlanCheckpoint, PlanRecord, RoleFilter, Transaction, Workspace};
use safepoint_model::change::{self, Delta};
use safepoint_model::checkpoint::{
    Checkpoint, Kind, Manifest, PartKind, PartRecord, Phase, Progress as Counters, Reason, Role, Scope,
    Totals,
};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::Owners;
use safepoint_model::{CheckpointId, ObjectId, ObjectSource, Progress, WorkspaceId, document};
use safepoint_planted::planted;
use safepoint_store::Writer;
use safepoint_workspace::{Access, StatCache, What};

/// What a new checkpoint is to say about itself.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// What a person calls it; where nothing is said, what the workspace's configuration calls it.
    pub label: Option<String>,
    /// Why it exists.
    pub kind: Kind,
    /// What gave the occasion.
    pub reason: Reason,
    /// Where in the work.
    pub phase: Option<Phase>,
    /// The plan that is captured with the files.
    pub plan_id: Option<String>,
    /// The session it belongs to.
    pub session_id: Option<String>,
    /// The tool that asks.
    pub source_tool: Option<String>,
    /// Never prune it.
    pub pinned: bool,
    /// How far the work is.
    pub progress: Counters,
    /// Whether it is worth more to have it at once than to have it as it should be.
    pub urgency: Urgency,
    /// Whether it becomes a commit, too.
    pub git: GitCommit,
}

/// How much a new checkpoint puts up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// What cannot be understood refuses it, and old ones are pruned after it.
    #[default]
    Ordinary,
    /// Settings that cannot be understood are passed over, and nothing is done after it.
    Emergency,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            label: None,
            kind: Kind::Manual,
            reason: Reason::Manual,
            phase: None,
            plan_id: None,
            session_id: None,
            source_tool: None,
            pinned: false,
            progress: Counters::default(),
            urgency: Urgency::Ordinary,
            git: GitCommit::No,
        }
    }
}

impl CreateOptions {
    /// A checkpoint that is taken because something goes wrong.
    pub fn emergency(label: impl Into<String>) -> Self {
        Self {
            label: Some(label.into()),
            kind: Kind::Emergency,
            reason: Reason::ErrorRecovery,
            urgency: Urgency::Emergency,
            ..Self::default()
        }
    }
}

/// A checkpoint that was just made.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its record.
    pub checkpoint: Checkpoint,
    /// What it left out.
    pub coverage: Coverage,
    /// Checkpoints that retention let go after it.
    pub pruned: Vec<CheckpointId>,
    /// What went wrong with that.
    pub warnings: Vec<String>,
    /// What was asked of git and not done.
    pub not_in_git: Vec<String>,
}

/// A checkpoint that is about to be committed: everything but the moment of the commit itself.
pub(crate) struct Draft {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) captured: Captured,
}

impl CheckpointManager {
    /// Takes a checkpoint of a workspace. When this returns, it is durable.
    ///
    /// # Errors
    /// When the workspace is busy or cannot be read, its configuration cannot be understood, or store or catalog fail; there is no
    /// checkpoint then.
    pub fn create(
        &self,
        workspace: &Workspace,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.create_at(workspace, options, None, progress)
    }

    /// The same, where the plan that is captured has to be at this version still.
    pub(crate) fn create_at(
        &self,
        workspace: &Workspace,
        options: &CreateOptions,
        version: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let act = || self.create_once(workspace, options, version, progress);
        let (mut created, mut pruned) = self.within_cap(workspace, DryRun::No, progress, act)?;
        // The workspace and the store are let go by now, as a collection waits for whoever uses them.
        let tended = match options.urgency {
            Urgency::Ordinary => self.tend(workspace, progress),
            Urgency::Emergency => Tended::default(),
        };
        pruned.extend(tended.pruned);
        created.pruned = pruned;
        created.warnings = tended.warnings;
        Ok(created)
    }

    fn create_once(
        &self,
        workspace: &Workspace,
        options: &CreateOptions,
        version: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let held = self.hold(workspace)?;
        let recovery = self.recover_held(workspace, &held.root, progress)?;
        let is_mixed = !recovery.foreign.is_empty();
        let broken = match options.urgency {
            Urgency::Ordinary => {
                recovery.refuse_foreign(workspace)?;
                Broken::Refused
            }
            Urgency::Emergency => Broken::PassedOver,
        };
        let config = self.config_at(Some(&held.root), broken)?;
        let mut part = FilesPart::new(self, &held.root, workspace, config.excludes);
        part.is_mixed = is_mixed;
        let writer = self.store.writer()?;
        // Read before the files are, and checked once more by the commit: so it holds for all the time between.
        let plan = options.plan_id.as_ref().map(|id| self.plan(id)).transpose()?;
        if let Some(plan) =
            plan.as_ref().filter(|plan| version.is_some_and(|version| version != plan.version))
        {
            return Err(Error::PlanChanged { id: plan.plan.id.clone() });
        }
        let mut draft = self.draft(workspace, &part, None, options, &writer, progress)?;
        if let Some(plan) = &plan {
            self.add_plan(&mut draft.checkpoint, plan, &writer)?;
        }
        let mut noted = self.note_git(&part, config.git, None, &writer, progress)?;
        noted.add_to(&mut draft.checkpoint, &writer)?;
        self.note_session(&mut draft.checkpoint, &writer)?;
        draft.checkpoint.label = draft.checkpoint.label.or(config.label);
        draft.checkpoint.warnings.extend(config.passed_over);
        draft.checkpoint.warnings.extend(self.emptied(workspace.id, draft.captured.totals)?);
        let plans: Vec<&PlanRecord> = plan.iter().collect();
        let commit = |checkpoint: &Checkpoint, stored: &Stored| {
            self.catalog.write::<(), Error>(|transaction| {
                transaction.insert_checkpoint(checkpoint)?;
                stored.note(transaction)?;
                if let Some(plan) = &plan {
                    link_plan(transaction, checkpoint, plan)?;
                }
                Ok(transaction.set_head(workspace.id, checkpoint.id)?)
            })
        };
        if planted!("create-commits-before-it-is-durable") {
            commit(&draft.checkpoint, &Stored::default())?;
            writer.finish()?;
        } else {
            let stored = self.finish_with_record(writer, &mut draft.checkpoint, &plans)?;
            commit(&draft.checkpoint, &stored)?;
        }
        self.keep_cache(&draft.checkpoint, &mut draft.captured.cache);
        self.keep_cache(&draft.checkpoint, &mut noted.cache);
        let not_in_git = self.commit_to_git(workspace, options.git, &mut draft.checkpoint, progress);
        Ok(Created {
            checkpoint: draft.checkpoint,
            coverage: draft.captured.coverage,
            pruned: Vec::new(),
            warnings: Vec::new(),
            not_in_git,
        })
    }

    /// Captures the present into the writer and fills in its record. `target` is where a rollback is about to go.
    pub(crate) fn draft(
        &self,
        workspace: &Workspace,
        part: &dyn Part,
        target: Option<&PartRecord>,
        options: &CreateOptions,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Draft, Error> {
        let mut captured = part.capture(writer, target, progress)?;
        let record = PartRecord { kind: part.kind(), key: part.key(), document: captured.document };
        let manifest = Manifest::new(vec![record]);
        let integrity = document::store(writer, &manifest)?;
        let parent = self.workspace(workspace.id)?.head;
        let before = self.files_before(parent, workspace.id)?;
        self.count_changes(before, captured.document, writer, &mut captured.totals)?;
        let mut checkpoint = self.blank(workspace, integrity, manifest.parts);
        checkpoint.label = options.label.clone();
        checkpoint.kind = options.kind;
        checkpoint.reason = options.reason;
        checkpoint.phase = options.phase;
        checkpoint.session_id =
            options.session_id.as_ref().or(self.settings.session_id.as_ref()).map(|id| kept_form(id));
        checkpoint.source_tool = options.source_tool.clone();
        checkpoint.pinned = options.pinned;
        checkpoint.progress = options.progress;
        checkpoint.files = captured.totals;
        checkpoint.parent = parent;
        checkpoint.warnings = captured.warnings.clone();
        Ok(Draft { checkpoint, captured })
    }

    /// A warning where a capture holds nothing of a workspace that had files before: then something is wrong with the folder, or all of it
    /// was deleted.
    pub(crate) fn emptied(&self, workspace: WorkspaceId, totals: Totals) -> Result<Option<String>, Error> {
        if totals.count > 0 {
            return Ok(None);
        }
        let filter = Filter { workspace: Some(workspace), role: RoleFilter::Any, ..Filter::default() };
        let full = self.catalog.checkpoints(&filter)?.into_iter().find(|before| before.files.count > 0);
        Ok(full.map(|full| {
            format!(
                "this checkpoint holds no files: the folder is empty, and had {} in checkpoint {}; to get them back: safepoint rollback {}",
                full.files.count, full.id, full.id
            )
        }))
    }

    /// Adds a plan to a checkpoint that is about to be committed.
    pub(crate) fn add_plan(
        &self,
        checkpoint: &mut Checkpoint,
        record: &PlanRecord,
        writer: &Writer<'_>,
    ) -> Result<(), Error> {
        if Some(self.place_of(record)?.id) != checkpoint.workspace_id {
            return Err(Error::OtherPlan { checkpoint: checkpoint.id, id: record.plan.id.clone() });
        }
        let part = plan::capture(writer, &record.plan)?;
        checkpoint.plan_id = Some(record.plan.id.clone());
        checkpoint.scope = Scope::Workflow;
        checkpoint.sandbox_ref = record.plan.sandbox.id.clone();
        checkpoint.step_index = Some(record.plan.step_index());
        // The same plan gives the same document, so that its name is the hash of the state.
        checkpoint.state_hash = Some(part.document);
        checkpoint.state_snapshot = Some(part.document);
        let mut parts = checkpoint.parts.clone();
        parts.push(part);
        let manifest = Manifest::new(parts);
        checkpoint.integrity = document::store(writer, &manifest)?;
        checkpoint.parts = manifest.parts;
        Ok(())
    }

    /// A record with nothing in it but what every one has.
    pub(crate) fn blank(
        &self,
        workspace: &Workspace,
        integrity: ObjectId,
        parts: Vec<PartRecord>,
    ) -> Checkpoint {
        self.blank_of(Some(workspace.id), integrity, parts)
    }

    /// The same, where it may be one of many folders.
    pub(crate) fn blank_of(
        &self,
        workspace_id: Option<WorkspaceId>,
        integrity: ObjectId,
        parts: Vec<PartRecord>,
    ) -> Checkpoint {
        Checkpoint {
            id: CheckpointId::from_bits(self.environment.new_id()),
            workspace_id,
            created_at: self.environment.now(),
            label: None,
            kind: Kind::Automatic,
            reason: Reason::SafeState,
            scope: Scope::Project,
            phase: None,
            role: None::<Role>,
            plan_id: None,
            session_id: None,
            step_index: None,
            state_hash: None,
            state_snapshot: None,
            progress: Counters::default(),
            sandbox_ref: None,
            source_tool: None,
            decision_id: None,
            commit_sha: None,
            commit_message: None,
            tags: Vec::new(),
            pinned: false,
            rollback_used: false,
            rollback_count: 0,
            size_bytes: 0,
            files: Totals::default(),
            parent: None,
            integrity,
            parts,
            warnings: Vec::new(),
        }
    }

    /// What a workspace was when it was last captured, which may have been together with others.
    fn files_before(
        &self,
        parent: Option<CheckpointId>,
        workspace: WorkspaceId,
    ) -> Result<Option<ObjectId>, Error> {
        let parent = parent.map(|id| self.catalog.checkpoint(id)).transpose()?.flatten();
        Ok(parent.and_then(|parent| {
            let part = if is_together(&parent) { files_of(&parent, workspace) } else { files_part(&parent) };
            part.map(|part| part.document)
        }))
    }

    /// Counts what changed since before. What cannot be read any more counts as nothing.
    fn count_changes(
        &self,
        before: Option<ObjectId>,
        now: ObjectId,
        source: &dyn ObjectSource,
        totals: &mut Totals,
    ) -> Result<(), Error> {
        let tree_of =
            |document| FilesDocument::load(source, document).ok().and_then(|document| document.tree());
        let before = before.and_then(tree_of);
        let (Some(before), Some(now)) = (before, tree_of(now)) else {
            totals.added = totals.count;
            return Ok(());
        };
        let Ok(deltas) = change::deltas(source, before, now, Owners::Compared) else {
            totals.added = totals.count;
            return Ok(());
        };
        for delta in &deltas {
            let spelled_out = match delta {
                Delta::Meta { .. } => 1,
                delta => change::changes(source, std::slice::from_ref(delta))?.len() as u64,
            };
            match delta {
                Delta::Added { .. } => totals.added += spelled_out,
                Delta::Removed { .. } => totals.removed += spelled_out,
                Delta::Replaced { .. } | Delta::Meta { .. } => totals.modified += 1,
            }
        }
        Ok(())
    }

    /// Notes, before the first capture with ACLs and capabilities, which checkpoints were taken without.
    pub(crate) fn note_access_captured(&self) -> Result<(), Error> {
        if self.home.last_without_access().is_none() {
            self.home.note_last_without_access(self.catalog.checkpoint_order(None)?.unwrap_or(0));
        }
        Ok(())
    }

    /// Whether a checkpoint knows about ACLs and capabilities. A tree without any has the same bytes whether there were none or
    /// nobody looked, so that this is told by when it was taken.
    pub(crate) fn access_of(&self, checkpoint: CheckpointId) -> Result<Access, Error> {
        let order = self.catalog.checkpoint_order(Some(checkpoint))?;
        Ok(match (order, self.home.last_without_access()) {
            (Some(order), Some(last)) if order > last => Access::Captured,
            _ => Access::Unknown,
        })
    }

    /// Keeps the next stat cache, once the checkpoint is on record. Losing it costs time only, so a failure is not one.
    pub(crate) fn keep_cache(&self, checkpoint: &Checkpoint, cache: &mut Option<PendingCache>) {
        if let Some(PendingCache { draft, next }) = cache.take()
            && let Ok(packs) = self.store.pack_lengths()
        {
            let vouchers = Vouchers { checkpoint: checkpoint.id, integrity: checkpoint.integrity, packs };
            let _ = draft.keep(next, &vouchers);
        }
    }

    /// The stat cache, as long as everything that it vouches for is still stored: the checkpoint that it came with is on record as it
    /// was, and no pack is gone but those that were emptied into others.
    pub(crate) fn trusted_cache(
        &self,
        workspace: WorkspaceId,
        what: What,
    ) -> Result<Option<StatCache>, Error> {
        let Some((vouchers, cache)) = self.home.read_cache(workspace, what) else { return Ok(None) };
        let checkpoint = self.catalog.checkpoint(vouchers.checkpoint)?;
        if checkpoint.is_none_or(|checkpoint| checkpoint.integrity != vouchers.integrity) {
            return Ok(None);
        }
        let (there, mut retired) = (self.store.pack_lengths()?, None);
        for (pack, len) in &vouchers.packs {
            match there.binary_search_by(|(name, _)| name.cmp(pack)) {
                Ok(at) if there[at].1 >= *len => continue,
                Ok(_) => return Ok(None),
                Err(_) => {}
            }
            let retired = retired.get_or_insert_with(|| self.store.retired().unwrap_or_default());
            if !retired.contains(pack) {
                return Ok(None);
            }
        }
        Ok(Some(cache))
    }
}

/// Notes at which version of its plan a checkpoint was taken. A plan that changed since is another state than the one that was kept.
pub(crate) fn link_plan(
    transaction: &Transaction<'_>,
    checkpoint: &Checkpoint,
    record: &PlanRecord,
) -> Result<(), Error> {
    let id = &record.plan.id;
    let now = transaction.plan_version(id)?;
    if now != record.version {
        return Err(Error::PlanChanged { id: id.clone() });
    }
    let link = PlanCheckpoint { checkpoint: checkpoint.id, version: now, healthy: record.plan.is_healthy() };
    Ok(transaction.link_plan_checkpoint(id, &link)?)
}

/// The part of a checkpoint of one workspace that holds its files.
pub(crate) fn files_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    if is_together(checkpoint) {
        return None;
    }
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Files)
}
