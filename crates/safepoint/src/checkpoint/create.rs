//! CREATE: scan, chunks, trees, the store made durable, one catalog transaction. The last is the commit.

use crate::checkpoint::git::GitCommit;
use crate::checkpoint::records::Stored;
use crate::config::{Broken, SessionCommits};
use crate::folders::{files_of, is_together};
use crate::home::{PendingCache, Vouchers};
use crate::manager::Held;
use crate::parts::git::{GitCapture, is_of_repository, same_repository};
use crate::parts::kinds::{FolderNow, KINDS, RecordsNow};
use crate::parts::session::{is_session, same_session};
use crate::parts::thread::{Captures, is_thread};
use crate::parts::{Member, seal};
use crate::places::Place;
use crate::rollback::recover::Recovery;
use crate::sessions::kept_form;
use crate::threads::save::PreparedSave;
use crate::upkeep::Tended;
use crate::{CheckpointManager, DryRun, Error, Warning};
use safepoint_catalog::{Filter, PlanRecord, RoleFilter, Workspace};
use safepoint_model::agent::{AgentRecord, WorkspaceKind};
use safepoint_model::change::{self, Delta};
use safepoint_model::checkpoint::{
    Checkpoint, Counters, Kind, PartKind, PartRecord, Phase, Reason, Role, Scope, Totals,
};
use safepoint_model::coverage::{Coverage, Why};
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::Owners;
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, ObjectSource, Progress, RollbackId, WorkspaceId};
use safepoint_planted::planted;
use safepoint_workspace::{CapturedAccess, StatCache, What, WorkspaceError};
use std::collections::BTreeMap;

/// Properties of a new checkpoint.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Label; that of the workspace's configuration if `None`.
    pub label: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// Reason to record.
    pub reason: Reason,
    /// Phase of work.
    pub phase: Option<Phase>,
    /// The plan that is captured with the files.
    pub plan_id: Option<String>,
    /// The session it belongs to.
    pub session_id: Option<String>,
    /// The tool that asks.
    pub source_tool: Option<String>,
    /// Never prune it.
    pub pinned: bool,
    /// Progress counters.
    pub progress: Counters,
    /// Urgency: speed over completeness, or the reverse.
    pub urgency: Urgency,
    /// Creation of a git commit.
    pub git: GitCommit,
    /// Warnings that are kept with it.
    pub warnings: Vec<String>,
    /// Result where the position of the workspace holds the same state already.
    pub unchanged: IfUnchanged,
}

/// Result of a checkpoint whose state is that of the position of its workspace; of a plan, an agent or everything, that of their newest
/// checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfUnchanged {
    /// One more checkpoint.
    #[default]
    Added,
    /// The checkpoint that holds the state already, unless it is a safety or rescue checkpoint.
    Reused,
    /// The same, of whichever session it is. The state of the session does not count.
    ReusedOfAnySession,
}

/// Fault tolerance of a new checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// Invalid settings refuse it, and old checkpoints are pruned after it.
    #[default]
    Ordinary,
    /// Invalid settings are ignored, and no checkpoint is pruned after it.
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
            unchanged: IfUnchanged::Added,
            warnings: Vec::new(),
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

/// Scope of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One workspace.
    Workspace(WorkspaceId),
    /// One agent: what is registered of it, with its files.
    Agent(String),
    /// Every agent, every active plan, every workspace, and Safepoint's own settings.
    Framework,
}

impl From<&Workspace> for Subject {
    fn from(workspace: &Workspace) -> Self {
        Subject::Workspace(workspace.id)
    }
}

impl From<&Subject> for Subject {
    fn from(subject: &Subject) -> Self {
        subject.clone()
    }
}

impl Subject {
    fn scope(&self) -> Scope {
        match self {
            Subject::Workspace(_) => Scope::Project,
            Subject::Agent(_) => Scope::Agent,
            Subject::Framework => Scope::Framework,
        }
    }

    /// The one workspace that it is, where it is one.
    fn alone(&self) -> Option<WorkspaceId> {
        match self {
            Subject::Workspace(id) => Some(*id),
            Subject::Agent(_) | Subject::Framework => None,
        }
    }
}

/// So often the plans of a folder may go on while it is captured. After that it is captured without them.
const TRIES: usize = 4;

/// Handling of the plans that work in a folder and the agents bound to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Companions {
    Taken,
    Left,
}

/// Content of a new checkpoint besides its options.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// Version that the plan must still have.
    version: Option<u64>,
    /// State that becomes the head of its thread.
    saving: Option<&'a PreparedSave>,
}

impl<'a> Wanted<'a> {
    /// Threads to capture. A checkpoint of a plan holds the plan and its files.
    fn threads(self, subject: &Subject, options: &CreateOptions, companions: Companions) -> Captures<'a> {
        match (self.saving, companions, subject) {
            (Some(saving), ..) => Captures::Saving(saving),
            (None, Companions::Left, _) => Captures::Nothing,
            (None, Companions::Taken, Subject::Framework) => Captures::Everything,
            (None, Companions::Taken, Subject::Workspace(id)) if options.plan_id.is_none() => {
                Captures::Of(*id)
            }
            (None, Companions::Taken, _) => Captures::Nothing,
        }
    }
}

/// A checkpoint that was just made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Created {
    /// Its record.
    pub checkpoint: Checkpoint,
    /// Paths left out. For several folders: only unintended ones.
    pub coverage: Coverage,
    /// Checkpoints that retention let go after it.
    pub pruned: Vec<CheckpointId>,
    /// Warnings from pruning.
    pub warnings: Vec<Warning>,
    /// Git requests not carried out.
    pub not_in_git: Vec<Warning>,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
    /// True if nothing was added: the checkpoint is an older one that holds the same state.
    pub unchanged: bool,
}

impl Created {
    /// An older checkpoint that holds the same state.
    fn reused(checkpoint: Checkpoint, recovered: Recovery) -> Self {
        Self {
            checkpoint,
            coverage: Coverage::default(),
            pruned: Vec::new(),
            warnings: Vec::new(),
            not_in_git: Vec::new(),
            recovered,
            unchanged: true,
        }
    }
}

impl CheckpointManager {
    /// Takes a checkpoint of a workspace, of an agent, or of everything. When this returns, it is durable.
    ///
    /// # Errors
    /// When there is no such agent, a folder is busy or cannot be read, its configuration cannot be understood, or store or catalog fail;
    /// there is no checkpoint then.
    pub fn create(
        &self,
        subject: impl Into<Subject>,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.create_at(&subject.into(), options, None, progress)
    }

    /// Takes a checkpoint of a workspace whose commit makes a saved state the head of its thread.
    pub(crate) fn create_for_state(
        &self,
        workspace: WorkspaceId,
        options: &CreateOptions,
        saving: &PreparedSave,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let wanted = Wanted { version: None, saving: Some(saving) };
        self.create_wanted(&Subject::Workspace(workspace), options, wanted, progress)
    }

    /// The same, where the plan that is captured has to be at this version still.
    pub(crate) fn create_at(
        &self,
        subject: &Subject,
        options: &CreateOptions,
        version: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.create_wanted(subject, options, Wanted { version, saving: None }, progress)
    }

    fn create_wanted(
        &self,
        subject: &Subject,
        options: &CreateOptions,
        wanted: Wanted<'_>,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let mut tries = 0;
        let is_urgent = options.urgency == Urgency::Emergency && subject.alone().is_some();
        // A first attempt may recover and then fail; the one that succeeds reports for all.
        let mut recovered = Recovery::default();
        let act = || loop {
            tries += 1;
            let companions = if tries < TRIES { Companions::Taken } else { Companions::Left };
            match self.create_once(subject, options, (wanted, companions), &mut recovered, progress) {
                // A plan in the folder changed concurrently.
                Err(Error::PlanChanged { id }) if tries < TRIES && options.plan_id.as_ref() != Some(&id) => {}
                // In an emergency the files count: whatever is wrong with plans and memory does not stop them.
                Err(_) if tries < TRIES && is_urgent && !progress.interrupted() => tries = TRIES - 1,
                other => break other,
            }
        };
        let (mut created, room) = self.within_cap(subject.alone(), DryRun::No, progress, act)?;
        // The folders and the store are released by now, as a collection waits for their users.
        let tended = match options.urgency {
            _ if created.unchanged => Tended::default(),
            Urgency::Ordinary => self.tend(subject.alone(), progress),
            Urgency::Emergency => Tended::default(),
        };
        created.recovered = recovered;
        created.pruned = room.pruned;
        created.pruned.extend(tended.pruned);
        created.warnings.extend(room.warnings.into_iter().chain(tended.warnings));
        if !created.unchanged {
            self.publish_soon(subject.alone());
        }
        Ok(created)
    }

    fn create_once(
        &self,
        subject: &Subject,
        options: &CreateOptions,
        (wanted, companions): (Wanted<'_>, Companions),
        recovered: &mut Recovery,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let agents = match (companions, &options.plan_id) {
            (Companions::Taken, None) => self.agents_of(subject)?,
            // A checkpoint of a plan holds the plan and its files.
            _ if subject.alone().is_some() => Vec::new(),
            _ => self.agents_of(subject)?,
        };
        let places = self.places(subject, &agents)?;
        let (held, found) = self.hold_all_for(&places.all, options.urgency, progress)?;
        recovered.join(found.clone());
        let mut writer = self.store.writer()?;
        if options.urgency == Urgency::Emergency {
            writer = writer.from_reserve();
        }
        // Read before the files are, and checked once more by the commit: so it holds for all the time between.
        let mut plans = self.plans_captured_of(subject, options.plan_id.as_deref(), wanted.version)?;
        let named = plans.len();
        if let (Some(alone), Companions::Taken) = (subject.alone(), companions) {
            let others = self.plans_at(alone)?.into_iter();
            plans.extend(others.filter(|plan| options.plan_id.as_ref() != Some(&plan.plan.id)));
        }
        let foreign = &found.foreign;
        let (alone, urgency) = (subject.alone(), options.urgency);
        let ground = Ground { places: &places.all, held: &held, urgency, foreign, alone };
        let mut checkpoint = self.blank_as(subject, options)?;
        for plan in plans.iter().take(named).filter(|_| subject.alone().is_some()) {
            if Some(self.place_of(plan)?.id) != subject.alone() {
                return Err(Error::OtherPlan { checkpoint: checkpoint.id, id: plan.plan.id.clone() });
            }
        }
        let (mut members, config) = self.members_to_capture(&ground)?;
        let own_plans = if subject.alone().is_some() { named } else { 0 };
        let records = RecordsNow {
            manager: self,
            plans: &plans,
            own_plans,
            session: checkpoint.session_id.as_deref(),
            agents: &agents,
            threads: wanted.threads(subject, options, companions),
        };
        KINDS.iter().try_for_each(|kind| kind.capture_records(&records, &mut members))?;
        self.capture(&mut members, &writer, progress)?;
        let caches: Vec<_> = members.iter_mut().map(|member| member.captured.cache.take()).collect();
        seal(&mut checkpoint, &members, &places.all, &writer)?;
        // Equal files of which the store lacks a byte: the checkpoint at the position is damaged, and this one repairs it.
        // New content of a repository, such as a refreshed index, is not that.
        let is_stored = || is_of_repository(&writer, &checkpoint, writer.new_content()?);
        if let Some(same) = self.same_at_position(subject, (options, wanted), &checkpoint, &writer)?
            && (wanted.saving.is_some() || is_stored()?)
        {
            if let Some(saving) = wanted.saving {
                self.save_in_place(saving, same.id)?;
            }
            let coverage = covered_by(&members, subject);
            drop(members);
            return Ok(Created { coverage, ..Created::reused(same, Recovery::default()) });
        }
        checkpoint.label = checkpoint.label.or(config.label);
        checkpoint.warnings.extend(config.passed_over);
        checkpoint
            .warnings
            .extend(places.missing.iter().map(|path| format!("{} is missing", path.display())));
        let commit = |checkpoint: &Checkpoint, stored: &Stored| {
            self.catalog.write::<(), Error>(|transaction| {
                transaction.insert_checkpoint(checkpoint)?;
                if let Some(workspace) = checkpoint.workspace_id {
                    transaction.take_metrics(workspace, &checkpoint.metrics)?;
                }
                stored.note(transaction)?;
                members.iter().try_for_each(|member| member.part.commit(transaction, checkpoint))
            })
        };
        go_on(progress)?;
        if planted!("create-commits-before-it-is-durable") {
            commit(&checkpoint, &Stored::default())?;
            writer.finish()?;
        } else {
            let stored =
                self.finish_with_record(writer, &mut checkpoint, &plans.iter().collect::<Vec<_>>())?;
            // The flush cannot be stopped, and may have taken long. The next collection frees the objects.
            go_on(progress)?;
            commit(&checkpoint, &stored)?;
        }
        caches.into_iter().for_each(|mut cache| self.keep_cache(&checkpoint, &mut cache));
        let coverage = covered_by(&members, subject);
        drop(members);
        let (mut not_in_git, mut warnings) = (Vec::new(), Vec::new());
        if let (Some(place), Some(_)) = (places.all.first(), subject.alone()) {
            match options.git {
                GitCommit::Session if config.session_commit => {
                    warnings = self.commit_session(&place.workspace, &mut checkpoint, progress);
                }
                GitCommit::Session => {}
                how => not_in_git = self.commit_to_git(&place.workspace, how, &mut checkpoint, progress),
            }
        }
        let (pruned, unchanged) = (Vec::new(), false);
        Ok(Created {
            checkpoint,
            coverage,
            pruned,
            warnings,
            not_in_git,
            recovered: Recovery::default(),
            unchanged,
        })
    }

    /// The checkpoint to compare a new one with: that at the position of a workspace; of a plan, an agent or everything, the newest that
    /// was asked for.
    fn last_alike(
        &self,
        subject: &Subject,
        plan_id: Option<&String>,
        position: Option<CheckpointId>,
    ) -> Result<Option<Checkpoint>, Error> {
        let (scope, plan_id) = (Some(subject.scope()), plan_id.cloned());
        let filter = match subject {
            Subject::Workspace(_) if plan_id.is_none() => {
                return Ok(position.map(|id| self.catalog.checkpoint(id)).transpose()?.flatten());
            }
            Subject::Workspace(id) => {
                Filter { workspace: Some(*id), plan_id, limit: Some(1), ..Filter::default() }
            }
            Subject::Framework => Filter { scope, limit: Some(1), ..Filter::default() },
            Subject::Agent(_) => Filter { scope, ..Filter::default() },
        };
        // Checkpoints of the scope of agents are each of one agent.
        let is_of_it = |it: &Checkpoint| match subject {
            Subject::Agent(name) => it.parts.iter().any(|part| part.key == *name),
            Subject::Workspace(_) | Subject::Framework => true,
        };
        Ok(self.catalog.checkpoints(&filter)?.into_iter().find(is_of_it))
    }

    /// Returns the checkpoint that holds the state that was just captured, every part of it.
    fn same_at_position(
        &self,
        subject: &Subject,
        (options, wanted): (&CreateOptions, Wanted<'_>),
        captured: &Checkpoint,
        source: &dyn ObjectSource,
    ) -> Result<Option<Checkpoint>, Error> {
        let has_metrics = !captured.metrics.is_empty() && wanted.saving.is_none();
        if options.unchanged == IfUnchanged::Added || has_metrics {
            return Ok(None);
        }
        let Some(here) = self.last_alike(subject, options.plan_id.as_ref(), captured.parent)? else {
            return Ok(None);
        };
        let asked_for = here.role.is_none()
            && here.workspace_id == captured.workspace_id
            && self.access_of(here.id)? == CapturedAccess::Captured;
        let of_any = options.unchanged == IfUnchanged::ReusedOfAnySession;
        // A state names a checkpoint with the same files, whatever threads that holds.
        let is_save = wanted.saving.is_some();
        let ignored = |part: &PartRecord| of_any && is_session(part) || is_save && is_thread(part);
        let counts = |part: &&PartRecord| !ignored(part);
        let old: Vec<_> = here.parts.iter().filter(counts).collect();
        let new: Vec<_> = captured.parts.iter().filter(counts).collect();
        let same_parts = old.len() == new.len()
            && old.into_iter().zip(new).all(|(old, new)| {
                (old.kind, &old.key) == (new.kind, &new.key)
                    && (old.document == new.document
                        || same_files(source, subject, (old, new))
                        || same_repository(source, old, new)
                        || is_session(old) && same_session(source, old, new))
            });
        let same = asked_for && same_parts && (of_any || here.session_id == captured.session_id);
        Ok(same.then_some(here))
    }

    /// Takes all folders for this process, in their order, and puts in order what a crash left in them.
    fn hold_all_for(
        &self,
        places: &[Place],
        urgency: Urgency,
        progress: &dyn Progress,
    ) -> Result<(Vec<Held>, Recovery), Error> {
        let mut all: Vec<(usize, Held)> = Vec::new();
        let mut recovered = Recovery::default();
        // In the order of their ids, so that two processes never wait for each other.
        let mut ordered: Vec<(usize, &Place)> = places.iter().enumerate().collect();
        ordered.sort_by_key(|(_, place)| place.workspace.id);
        for (at, place) in ordered {
            let held = self.hold(&place.workspace)?;
            let mut one = self.recover_held(&place.workspace, &held.root, progress)?;
            if urgency == Urgency::Ordinary {
                one = one.refuse_foreign(&place.workspace)?;
            }
            recovered.join(one);
            all.push((at, held));
        }
        all.sort_by_key(|(at, _)| *at);
        Ok((all.into_iter().map(|(_, held)| held).collect(), recovered))
    }

    /// The same for what may not go on in a folder that another home left half-way.
    pub(crate) fn hold_all(
        &self,
        places: &[Place],
        progress: &dyn Progress,
    ) -> Result<(Vec<Held>, Recovery), Error> {
        self.hold_all_for(places, Urgency::Ordinary, progress)
    }

    /// The agents that belong to a subject.
    fn agents_of(&self, subject: &Subject) -> Result<Vec<AgentRecord>, Error> {
        match subject {
            Subject::Workspace(id) => self.agents().bound_to(*id),
            Subject::Agent(name) => Ok(vec![self.agents().get(name)?]),
            Subject::Framework => self.agents().list(),
        }
    }

    /// The plans that belong to a subject: of a workspace the one that was named, of everything those that are not over.
    fn plans_captured_of(
        &self,
        subject: &Subject,
        named: Option<&str>,
        version: Option<u64>,
    ) -> Result<Vec<PlanRecord>, Error> {
        if *subject == Subject::Framework {
            let plans = self.catalog.plans(None)?;
            return plans
                .iter()
                .filter(|plan| !plan.state.is_over())
                .map(|plan| self.plans().get(&plan.id))
                .collect();
        }
        let Some(plan) = named.map(|id| self.plans().get(id)).transpose()? else { return Ok(Vec::new()) };
        if version.is_some_and(|version| version != plan.version) {
            return Err(Error::PlanChanged { id: plan.plan.id });
        }
        Ok(vec![plan])
    }

    /// The parts of each folder, its files first.
    fn members_to_capture<'m>(&'m self, ground: &Ground<'m>) -> Result<(Vec<Member<'m>>, Said), Error> {
        let broken = match ground.urgency {
            Urgency::Ordinary => Broken::Refused,
            Urgency::Emergency => Broken::PassedOver,
        };
        let (mut members, mut said) = (Vec::new(), Said::default());
        for (at, (place, held)) in ground.places.iter().zip(ground.held).enumerate() {
            let config = self.config_at(Some(&held.root), broken)?;
            let mut files = place.part(self, held, config.excludes);
            files.is_asked_for = at == 0 || ground.alone.is_none();
            files.is_mixed = !ground.foreign.is_empty();
            said.label = said.label.or(config.label.filter(|_| at == 0 || ground.alone.is_none()));
            said.passed_over.extend(config.passed_over);
            if at == 0 {
                said.session_commit = config.session_commits == SessionCommits::On;
            }
            let is_project =
                place.workspace.kind == WorkspaceKind::Project && (at == 0 || ground.alone.is_none());
            let git = if is_project { config.git } else { GitCapture::None };
            let folder = FolderNow { manager: self, files: &files, git, is_project, at };
            let first = members.len();
            KINDS.iter().try_for_each(|kind| kind.capture_folder(&folder, &mut members))?;
            members.insert(first, Member::new(files, at, None));
        }
        Ok((members, said))
    }

    /// The record of a new checkpoint, as far as it is known before anything is captured.
    fn blank_as(&self, subject: &Subject, options: &CreateOptions) -> Result<Checkpoint, Error> {
        let alone = subject.alone();
        let mut checkpoint = self.blank(alone);
        checkpoint.scope = subject.scope();
        checkpoint.parent =
            alone.map(|id| self.workspaces().get(id)).transpose()?.and_then(|workspace| workspace.head);
        checkpoint.label.clone_from(&options.label);
        (checkpoint.kind, checkpoint.reason, checkpoint.phase) =
            (options.kind, options.reason, options.phase);
        checkpoint.session_id =
            options.session_id.as_ref().or(self.settings.session_id.as_ref()).map(|id| kept_form(id));
        checkpoint.source_tool.clone_from(&options.source_tool);
        (checkpoint.pinned, checkpoint.progress) = (options.pinned, options.progress);
        checkpoint.warnings.clone_from(&options.warnings);
        if let Some(alone) = alone {
            checkpoint.metrics = self.catalog.waiting_metrics(alone)?;
        }
        Ok(checkpoint)
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

    /// A record with nothing in it but what every one has.
    pub(crate) fn blank(&self, workspace_id: Option<WorkspaceId>) -> Checkpoint {
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
            integrity: ObjectId::of(ObjectKind::Document, b""),
            parts: Vec::new(),
            warnings: Vec::new(),
            metrics: BTreeMap::new(),
        }
    }

    /// Files of a workspace at its last capture, which may have included other folders.
    pub(crate) fn files_before(
        &self,
        parent: Option<CheckpointId>,
        workspace: WorkspaceId,
    ) -> Result<Option<ObjectId>, Error> {
        let parent = parent.map(|id| self.catalog.checkpoint(id)).transpose()?.flatten();
        Ok(parent.and_then(|parent| {
            files_of(&parent, workspace).or_else(|| files_part(&parent)).map(|part| part.document)
        }))
    }

    /// Counts what changed since before. What cannot be read any more counts as nothing.
    pub(crate) fn count_changes(
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

    /// Coverage of ACLs and capabilities in a checkpoint. A tree without any has the same bytes whether there were none or
    /// none were read, so that the time of the capture decides.
    pub(crate) fn access_of(&self, checkpoint: CheckpointId) -> Result<CapturedAccess, Error> {
        let order = self.catalog.checkpoint_order(Some(checkpoint))?;
        Ok(match (order, self.home.last_without_access()) {
            (Some(order), Some(last)) if order > last => CapturedAccess::Captured,
            _ => CapturedAccess::Unknown,
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

/// Fails if the user interrupted the operation.
fn go_on(progress: &dyn Progress) -> Result<(), Error> {
    if progress.interrupted() { Err(WorkspaceError::Interrupted.into()) } else { Ok(()) }
}

/// Context of a checkpoint.
struct Ground<'m> {
    places: &'m [Place],
    held: &'m [Held],
    urgency: Urgency,
    /// Rollbacks that another home left half-way there.
    foreign: &'m [RollbackId],
    /// The workspace that it is of; it is the first of the places.
    alone: Option<WorkspaceId>,
}

/// Checkpoint settings of the folders.
#[derive(Default)]
struct Said {
    label: Option<String>,
    passed_over: Vec<String>,
    session_commit: bool,
}

/// Returns true if two file parts hold the same tree and left the same paths out. Times, and Safepoint's own folder, do not count. What
/// cannot be read is different.
fn same_files(source: &dyn ObjectSource, subject: &Subject, (old, new): (&PartRecord, &PartRecord)) -> bool {
    // Of several folders, names beside those of an agent do not count.
    let counts = |why: Why| if subject.alone().is_some() { why != Why::OwnFolder } else { why.is_lack() };
    let read = |part: &PartRecord| {
        let document = FilesDocument::load(source, part.document).ok()?;
        let mut coverage = document.coverage(source).ok()?;
        coverage.skipped.retain(|skipped| counts(skipped.why));
        Some((document, coverage))
    };
    let (true, Some((old, old_coverage)), Some((new, new_coverage))) =
        (old.kind == PartKind::Files, read(old), read(new))
    else {
        return false;
    };
    let (Some(old_tree), Some(new_tree)) = (old.tree(), new.tree()) else { return false };
    let same_root = old.root.entry.meta.same_but_times(&new.root.entry.meta, Owners::Compared);
    let same_tree = || change::deltas(source, old_tree, new_tree, Owners::Compared).map(|it| it.is_empty());
    old_coverage == new_coverage
        && new_coverage.unsettled.is_empty()
        && old.elsewhere == new.elsewhere
        && same_root
        && (old_tree == new_tree || same_tree().unwrap_or(false))
}

/// Paths left out. For several folders only unintended ones: exclusions outside of an agent are not reported.
fn covered_by(members: &[Member<'_>], subject: &Subject) -> Coverage {
    let mut all = Coverage::default();
    for member in members {
        let Coverage { skipped, unsettled } = &member.captured.coverage;
        let is_own = subject.alone().is_some() && member.folder == 0;
        let told = skipped.iter().filter(|skipped| is_own || skipped.why.is_lack());
        all.skipped.extend(told.cloned());
        all.unsettled.extend(unsettled.iter().cloned());
    }
    all
}

/// The part of a checkpoint of one workspace that holds its files.
pub(crate) fn files_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    if is_together(checkpoint) {
        return None;
    }
    let own = checkpoint.workspace_id.and_then(|id| files_of(checkpoint, id));
    // The result of a plan is applied to the project from a checkpoint of its sandbox.
    own.or_else(|| checkpoint.parts.iter().find(|part| part.kind == PartKind::Files))
}

/// The folders outside of a workspace that hold the memory of agents bound to it, in the order of their ids.
pub(crate) fn memory_parts(checkpoint: &Checkpoint) -> Vec<(WorkspaceId, &PartRecord)> {
    let own = files_part(checkpoint);
    let files = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Files && Some(*part) != own);
    let mut folders: Vec<_> = files
        .filter(|_| !is_together(checkpoint))
        .filter_map(|part| Some((part.key.parse().ok()?, part)))
        .collect();
    folders.sort_unstable_by_key(|(id, _)| *id);
    folders
}
