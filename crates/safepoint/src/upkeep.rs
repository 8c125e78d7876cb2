//! UPKEEP: pins, deletes, prunes and collects checkpoints, and keeps the store within its cap.

pub(crate) mod capped;
pub(crate) mod mark;
pub(crate) mod purge;
pub(crate) mod rebuild;
pub(crate) mod repair;
pub(crate) mod space;
pub(crate) mod validate;

use crate::checkpoint::git::Tags;
use crate::checkpoint::records::Tombstones;
use crate::config::Broken;
use crate::handles::{Checkpoints, Upkeep};
use crate::rollback::DryRun;
use crate::rollback::undo::next_answers;
use crate::upkeep::capped::Refused;
use crate::upkeep::mark::Marker;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{CatalogError, Filter, Occasion, Pinned, RoleFilter, Workspace};
use safepoint_model::attempt::AttemptState;
use safepoint_model::checkpoint::{Checkpoint, Scope};
use safepoint_model::progress::Activity;
use safepoint_model::retention::{Candidate, Needed, Policy, RetentionVerdict, decide};
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, Progress, Span, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use safepoint_store::{Collected, Collecting, Limits, Outcome, PACK_BYTES_MAX, StoreError};
use safepoint_workspace::Root;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Use of the cap, in percent, from which on each checkpoint warns.
const NEAR_CAP_PERCENT: u64 = 80;
const GIB: u64 = 1 << 30;
/// Default cap of the store.
const CAP_BYTES_DEFAULT: u64 = 10 * GIB;
/// Divisor of the disk size.
const CAP_PART_OF_DISK: u64 = 10;
/// Checkpoints that were not published and are pruned before the next look at the space.
const UNPUBLISHED_AT_ONCE: usize = 8;
const PACK_BYTES_MIN: u64 = 512 * 1024;
/// Number of deleted checkpoints that triggers a collection.
const DELETED_WORTH_COLLECTING: u64 = 32;
/// Dead percentage at which a pack is rewritten: less is not worth it.
const DEAD_PERCENT_USUAL: u64 = 30;
/// Age after which an open turn keeps its first checkpoint no longer: its agent is gone.
const OPEN_TURN_KEPT: Span = Span::from_days(7);
/// Time that a collection waits for earlier captures and readers.
const PATIENCE: Duration = Duration::from_secs(30);

/// Thoroughness of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thoroughness {
    /// Only worthwhile packs.
    #[default]
    Usual,
    /// Everything unreferenced, at any cost.
    Everything,
}

/// Checkpoint with its retention verdict.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Judged {
    /// Checkpoint.
    pub checkpoint: Checkpoint,
    /// Verdict and its reason.
    pub verdict: RetentionVerdict,
    /// The scope whose own policy says so; nothing where it is the one for all.
    pub policy_of: Option<Scope>,
    /// Leftovers of a deleted checkpoint, with the reason, such as a tag that could not be removed.
    pub warning: Option<Warning>,
}

/// Maximum disk usage of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Maximum size.
    pub cap_bytes: u64,
    /// Part reserved for recovery and collection; checkpoints may not use it.
    pub headroom_bytes: u64,
    /// Part reserved for safety and emergency checkpoints; others may not use it.
    pub reserve_bytes: u64,
}

impl Cap {
    fn new(cap_bytes: u64) -> Self {
        let headroom_bytes = (cap_bytes / 16).max(2 * pack_bytes(cap_bytes)).min(cap_bytes / 2);
        let reserve_bytes = (cap_bytes / 16).min((cap_bytes - headroom_bytes) / 2);
        Self { cap_bytes, headroom_bytes, reserve_bytes }
    }
}

fn pack_bytes(cap_bytes: u64) -> u64 {
    (cap_bytes / 32).clamp(PACK_BYTES_MIN, PACK_BYTES_MAX)
}

impl CheckpointManager {
    /// Removes checkpoints from the catalog.
    pub(crate) fn forget(&self, ids: &[CheckpointId]) -> Result<(), Error> {
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            Ok(ids.iter().try_for_each(|id| transaction.delete_checkpoint(*id, at))?)
        })?;
        self.note_deleted(ids);
        Ok(())
    }

    fn prune_judged(
        &self,
        workspace: Option<&Workspace>,
        policies: &Policies,
        dry_run: DryRun,
    ) -> Result<Vec<Judged>, Error> {
        let id = workspace.map(|workspace| workspace.id);
        let filter = Filter { workspace: id, role: RoleFilter::Any, ..Filter::default() };
        let checkpoints = self.catalog.checkpoints(&filter)?;
        let mut verdicts: HashMap<CheckpointId, (RetentionVerdict, Option<Scope>)> = self
            .verdicts(workspace, policies)?
            .into_iter()
            .map(|(id, verdict, scope)| (id, (verdict, scope)))
            .collect();
        let mut judged: Vec<Judged> = checkpoints
            .into_iter()
            .filter_map(|checkpoint| {
                let (verdict, policy_of) = verdicts.remove(&checkpoint.id)?;
                Some(Judged { checkpoint, verdict, policy_of, warning: None })
            })
            .collect();
        if dry_run == DryRun::No {
            for judged in judged.iter_mut().filter(|judged| !judged.verdict.is_keep()) {
                judged.warning = self.drop_pruned(judged.checkpoint.id)?;
            }
        }
        Ok(judged)
    }

    /// Deletes the checkpoints that retention does not keep. Runs after each
    /// checkpoint, so it must be cheap if none is old enough.
    fn prune_unseen(&self, workspace: Option<&Workspace>, policies: &Policies) -> Result<Tended, Error> {
        let within = policies.all().map(|policy| policy.keep_within.micros()).min().unwrap_or(u64::MAX);
        let within = i64::try_from(within).unwrap_or(i64::MAX);
        let young = Timestamp::from_micros(self.environment.now().micros().saturating_sub(within));
        if !self.catalog.has_older(workspace.map(|workspace| workspace.id), young)? {
            return Ok(Tended::default());
        }
        let drop = |(id, verdict, _): Said| (!verdict.is_keep()).then_some(id);
        let mut tended = Tended {
            pruned: self.verdicts(workspace, policies)?.into_iter().filter_map(drop).collect(),
            warnings: Vec::new(),
        };
        for id in &tended.pruned {
            tended.warnings.extend(self.drop_pruned(*id)?);
        }
        Ok(tended)
    }

    /// Returns the verdict for each checkpoint, newest first. Each scope with its own policy is judged
    /// separately, and so is each plan.
    fn verdicts(&self, workspace: Option<&Workspace>, policies: &Policies) -> Result<Vec<Said>, Error> {
        let mut needed = self.needed_by_all(workspace)?;
        for id in workspace.map_or(Ok(Vec::new()), |workspace| self.waiting_for_push(workspace))? {
            needed.entry(id).or_insert(Needed::Unpublished);
        }
        self.verdicts_for(workspace, policies, &needed)
    }

    fn needed_by_all(&self, workspace: Option<&Workspace>) -> Result<HashMap<CheckpointId, Needed>, Error> {
        let Some(workspace) = workspace else {
            let mut needed = HashMap::new();
            for workspace in self.catalog.workspaces()? {
                needed.extend(self.needed(&workspace)?);
            }
            return Ok(needed);
        };
        self.needed(workspace)
    }

    /// Checkpoints that remotes lack, where the configuration has them published without being asked.
    fn waiting_for_push(&self, workspace: &Workspace) -> Result<Vec<CheckpointId>, Error> {
        let mut waiting = Vec::new();
        if !self.catalog.has_remote_line(workspace.id)?
            || !self.config_at(None, Broken::PassedOver)?.remote.publishes()
        {
            return Ok(waiting);
        }
        for remote in self.catalog.remotes()? {
            if self.catalog.remote_line(&remote.name, workspace.id)?.is_some() {
                waiting.extend(self.catalog.unpublished_ids(&remote.name, workspace.id)?);
            }
        }
        Ok(waiting)
    }

    /// Deletes the oldest checkpoints that retention does not keep, and that wait for a push. Returns their number.
    fn prune_unpublished(&self, progress: &dyn Progress) -> Result<u64, Error> {
        let mut doomed = Vec::new();
        for workspace in self.catalog.workspaces()? {
            let waiting = self.waiting_for_push(&workspace)?;
            let policies = self.upkeep().policies(Some(&workspace))?;
            let needed = self.needed_by_all(Some(&workspace))?;
            let said = self.verdicts_for(Some(&workspace), &policies, &needed)?;
            doomed.extend(
                said.into_iter().filter(|(id, verdict, _)| !verdict.is_keep() && waiting.contains(id)),
            );
        }
        doomed.sort_unstable_by_key(|(id, ..)| *id);
        let before = self.store.pack_bytes()?;
        let mut count = 0;
        for some in doomed.chunks(UNPUBLISHED_AT_ONCE) {
            for (id, ..) in some {
                self.drop_pruned(*id)?;
                count += 1;
            }
            self.upkeep().collect(Thoroughness::Everything, progress)?;
            if self.store.pack_bytes()? < before {
                break;
            }
        }
        Ok(count)
    }

    fn verdicts_for(
        &self,
        workspace: Option<&Workspace>,
        policies: &Policies,
        needed: &HashMap<CheckpointId, Needed>,
    ) -> Result<Vec<Said>, Error> {
        let now = self.environment.now();
        let mut groups: BTreeMap<(Option<Scope>, Option<String>, Occasion), Vec<Candidate>> = BTreeMap::new();
        for aged in self.catalog.aged(workspace.map(|workspace| workspace.id))? {
            let own = policies.of.contains_key(&aged.scope).then_some(aged.scope);
            let plan = aged.plan_id.filter(|_| own == Some(Scope::Workflow));
            // Checkpoints of agents are judged apart: they never displace what people made.
            groups.entry((own, plan, aged.occasion)).or_default().push(Candidate {
                id: aged.id,
                created_at: aged.created_at,
                role: aged.role,
                pinned: aged.pinned,
                needed: needed.get(&aged.id).copied(),
            });
        }
        let judged = groups.iter().flat_map(|((scope, ..), candidates)| {
            let policy = scope.and_then(|scope| policies.of.get(&scope)).unwrap_or(&policies.general);
            decide(candidates, policy, now).into_iter().map(|(id, verdict)| (id, verdict, *scope))
        });
        Ok(judged.collect())
    }

    /// Deletes a pruned checkpoint. Succeeds if it is already gone or newly needed. A tag whose repository is missing or locked stays, with a
    /// warning.
    fn drop_pruned(&self, id: CheckpointId) -> Result<Option<Warning>, Error> {
        let at = self.environment.now();
        let dropped = self.catalog.write(|transaction| match transaction.checkpoint(id)? {
            Some(checkpoint) if !checkpoint.pinned || planted!("prune-takes-what-is-pinned") => {
                transaction.delete_checkpoint(id, at)?;
                Ok(Some(checkpoint))
            }
            _ => Ok(None),
        });
        match dropped {
            Err(CatalogError::Needed { .. }) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(dropped) => {
                self.note_deleted(&[id]);
                Ok(dropped.and_then(|checkpoint| self.untag(&checkpoint)))
            }
        }
    }

    /// Needs of unfinished work and the next undo or redo.
    pub(crate) fn needed(&self, workspace: &Workspace) -> Result<HashMap<CheckpointId, Needed>, Error> {
        let mut needed = HashMap::new();
        let history = self.catalog.rollbacks(workspace.id)?;
        for answered in next_answers(&history) {
            needed.extend(answered.safety_checkpoint.map(|id| (id, Needed::Undo(answered.id))));
        }
        for rollback in self.catalog.unfinished(workspace.id)? {
            let why = Needed::UnfinishedRollback(rollback.id);
            let rescued = rollback.rescued.iter().map(|rescued| rescued.checkpoint);
            let named = [rollback.from, Some(rollback.to), rollback.safety_checkpoint];
            needed.extend(named.into_iter().flatten().chain(rescued).map(|id| (id, why)));
        }
        let now = self.environment.now().micros();
        let is_live =
            |turn: &Turn| now.saturating_sub(turn.opened_at.micros()) < OPEN_TURN_KEPT.micros().cast_signed();
        let open = self.catalog.open_turns(workspace.id)?.into_iter().filter(is_live);
        needed.extend(open.filter_map(|turn| Some((turn.before?, Needed::OpenTurn(turn.number)))));
        needed.extend(self.workspaces().get(workspace.id)?.head.map(|id| (id, Needed::Head)));
        if let Some(attempt) =
            self.catalog.attempt_at(workspace.id)?.filter(|it| it.state == AttemptState::Open)
        {
            needed.extend(
                [Some(attempt.base), attempt.result].into_iter().flatten().map(|id| (id, Needed::Attempt)),
            );
        }
        for plan in self.plans_at_work(workspace)? {
            needed.extend(self.newest_clean(&plan)?.map(|id| (id, Needed::LastClean)));
            needed.extend(
                self.plans()
                    .sandbox(&self.plans().get(&plan)?)?
                    .map(|sandbox| (sandbox.base, Needed::SandboxBase)),
            );
        }
        Ok(needed)
    }

    /// Returns the open plans that use this workspace, directly or as their sandbox.
    fn plans_at_work(&self, workspace: &Workspace) -> Result<Vec<String>, Error> {
        let own = self.catalog.plans(Some(workspace.id))?;
        let own = own.into_iter().filter(|plan| !plan.state.is_over()).map(|plan| plan.id);
        let here = self.catalog.plan_of_sandbox(workspace.id)?;
        let here = here.map(|id| self.plans().get(&id)).transpose()?;
        let here = here.filter(|record| !record.plan.state.is_over()).map(|record| record.plan.id);
        Ok(own.chain(here).collect())
    }

    /// Prunes after a checkpoint, and sometimes collects. A failure is reported and never fails the
    /// checkpoint.
    pub(crate) fn tend(&self, workspace: Option<WorkspaceId>, progress: &dyn Progress) -> Tended {
        let mut tended = Tended::default();
        match self.prune_old(workspace) {
            Ok(pruned) => tended.join(pruned),
            Err(error) => tended.warnings.push(Warning::NotPruned { why: cause(error) }),
        }
        if let Err(error) = self.expire_threads() {
            tended.warnings.push(Warning::NotPruned { why: cause(error) });
        }
        let worth = self.catalog.deleted_since_gc().is_ok_and(|deleted| deleted >= DELETED_WORTH_COLLECTING);
        if worth && let Err(error) = self.upkeep().collect(Thoroughness::Usual, progress) {
            tended.warnings.push(Warning::SpaceNotFreed { why: cause(error) });
        }
        tended.warnings.extend(self.near_cap());
        tended
    }

    /// Returns a warning if the packs take most of what they may.
    fn near_cap(&self) -> Option<Warning> {
        let (used_bytes, allowed_bytes) = (self.store.pack_bytes().ok()?, self.store.limits().bytes?);
        let near = used_bytes.saturating_mul(100) >= allowed_bytes.saturating_mul(NEAR_CAP_PERCENT);
        near.then_some(Warning::NearCap { used_bytes, allowed_bytes })
    }

    /// Prunes old checkpoints of a workspace, or of several folders.
    fn prune_old(&self, workspace: Option<WorkspaceId>) -> Result<Tended, Error> {
        let workspace = workspace.map(|id| self.workspaces().get(id)).transpose()?;
        let policies = self.upkeep().policies(workspace.as_ref())?;
        let mut pruned = self.prune_unseen(workspace.as_ref(), &policies)?;
        // A removed sandbox gets no more checkpoints; nor does a closed attempt.
        let attempts = workspace.as_ref().map(|workspace| self.catalog.attempts(workspace.id)).transpose()?;
        for attempt in attempts.into_iter().flatten().filter(|attempt| attempt.state != AttemptState::Open) {
            pruned.join(self.prune_unseen(Some(&self.workspaces().get(attempt.place_id)?), &policies)?);
        }
        let sandboxes = workspace.map(|workspace| self.catalog.sandboxes(workspace.id)).transpose()?;
        for (_, sandbox) in sandboxes.into_iter().flatten() {
            pruned.join(self.prune_unseen(Some(&self.workspaces().get(sandbox.workspace_id)?), &policies)?);
        }
        Ok(pruned)
    }

    /// Updates the size limit of the store, which depends on the rest of the home.
    pub(crate) fn renew_limits(&self) -> Result<(), Error> {
        let cap = self.upkeep().cap()?;
        let pack_total = self.store.pack_bytes()?;
        let others = self.home.disk_bytes()?.saturating_sub(pack_total).saturating_add(self.layers_bytes()?);
        let all = cap.cap_bytes.saturating_sub(cap.headroom_bytes).saturating_sub(others);
        let reserve_bytes = cap.reserve_bytes.min(all);
        let (pack_bytes, bytes) = (pack_bytes(cap.cap_bytes), Some(all - reserve_bytes));
        self.store.limit(Limits { pack_bytes, bytes, reserve_bytes });
        Ok(())
    }

    /// Runs `act`. If it hits the cap, makes room and runs it once more. Also returns the checkpoints pruned
    /// for it. A dry run makes no room.
    pub(crate) fn within_cap<T>(
        &self,
        first: Option<WorkspaceId>,
        dry_run: DryRun,
        progress: &dyn Progress,
        mut act: impl FnMut() -> Result<T, Error>,
    ) -> Result<(T, Tended), Error> {
        self.renew_limits()?;
        let refused = Refused { workspace: first, target: None };
        match act() {
            Err(error) if cap_hit(&error).is_some() => {
                let pruned = self.make_room_for(error, refused, dry_run, progress)?;
                Ok((act().map_err(|error| self.capped(error, refused, progress))?, pruned))
            }
            other => Ok((other?, Tended::default())),
        }
    }

    /// Makes room after `error`, starting with the workspace of the refusal. Returns the pruned checkpoints.
    ///
    /// # Errors
    /// Fails if no room can be made, or in a dry run.
    pub(crate) fn make_room_for(
        &self,
        error: Error,
        refused: Refused,
        dry_run: DryRun,
        progress: &dyn Progress,
    ) -> Result<Tended, Error> {
        if dry_run == DryRun::Yes {
            return Err(self.capped(error, refused, progress));
        }
        let before = self.store.pack_bytes()?;
        let pruned = self.make_room(refused.workspace, progress);
        if self.store.pack_bytes()? >= before {
            return Err(self.capped(error, refused, progress));
        }
        self.renew_limits()?;
        Ok(pruned)
    }

    /// Prunes all workspaces and collects. Ignores failures: they only make less room.
    pub(crate) fn make_room(&self, first: Option<WorkspaceId>, progress: &dyn Progress) -> Tended {
        let mut pruned = Tended::default();
        let mut workspaces = self.catalog.workspaces().unwrap_or_default();
        workspaces.sort_by_key(|other| Some(other.id) != first);
        for workspace in workspaces {
            let gone = self
                .upkeep()
                .policies(Some(&workspace))
                .and_then(|policies| self.prune_unseen(Some(&workspace), &policies));
            pruned.join(gone.unwrap_or_default());
        }
        let gone = self.upkeep().policies(None).and_then(|policies| self.prune_unseen(None, &policies));
        pruned.join(gone.unwrap_or_default());
        let before = self.store.pack_bytes().ok();
        let _ = self.upkeep().collect(Thoroughness::Everything, progress);
        if self.store.pack_bytes().ok() >= before {
            let count = self.prune_unpublished(progress).unwrap_or(0);
            pruned.warnings.extend((count > 0).then_some(Warning::PrunedUnpublished { count }));
        }
        pruned
    }
}

impl Checkpoints<'_> {
    /// Pins a checkpoint, so that it is never pruned, or unpins it.
    ///
    /// # Errors
    /// Fails if it is missing, or the catalog fails.
    pub fn pin(&self, id: CheckpointId, pinned: Pinned) -> Result<Checkpoint, Error> {
        let at = self.manager.environment.now();
        let checkpoint = self.manager.catalog.write(|transaction| {
            transaction.set_pinned(id, pinned, at)?;
            transaction.checkpoint(id)?.ok_or(Error::NoCheckpoint { reference: id.to_string() })
        })?;
        self.manager.note_changed(id);
        Ok(checkpoint)
    }

    /// Deletes all given checkpoints or none, with their tags. The next collection frees their space.
    /// [`Checkpoints::delete_with`] can keep the tags, and reports tags that it could not remove.
    ///
    /// # Errors
    /// Fails if one is missing or needed by unfinished work, or the catalog fails. Nothing is deleted then.
    pub fn delete(&self, ids: &[CheckpointId]) -> Result<(), Error> {
        self.delete_with(ids, Tags::Removed).map(drop)
    }
}

impl Upkeep<'_> {
    /// Applies retention policies to a workspace's checkpoints; without a workspace to those of agents and of everything, which belong
    /// to none. Deletes those not kept, unless in a dry run.
    ///
    /// # Errors
    /// Fails if the catalog fails.
    pub fn prune<'w>(
        &self,
        workspace: impl Into<Option<&'w Workspace>>,
        policies: &Policies,
        dry_run: DryRun,
    ) -> Result<Vec<Judged>, Error> {
        self.manager.prune_judged(workspace.into(), policies, dry_run)
    }

    /// Policies for a workspace, or the general policies.
    ///
    /// # Errors
    /// Fails if the configuration cannot be read.
    pub fn policies(&self, workspace: Option<&Workspace>) -> Result<Policies, Error> {
        if let Some(policy) = self.manager.settings.retention {
            return Ok(policy.into());
        }
        // A workspace whose folder is gone still has checkpoints.
        let root = workspace.and_then(|workspace| Root::open(workspace.root_path()).ok());
        let config = self.manager.config_at(root.as_ref(), Broken::PassedOver)?;
        Ok(Policies { general: config.retention, of: config.retention_of })
    }

    /// Frees the space of unreferenced objects.
    ///
    /// # Errors
    /// [`Error::CannotCollect`] if a damaged checkpoint hides its references; also fails if store or catalog
    /// fail.
    pub fn collect(&self, how: Thoroughness, progress: &dyn Progress) -> Result<Collected, Error> {
        self.manager.must_know_catalog()?;
        // Rooms of closed attempts only cost space, so a failure waits for the next command.
        let _ = self.manager.sweep_rooms();
        progress.begin(Activity::Collecting, None);
        self.manager.settle_chunks()?;
        self.manager.write_records(Tombstones::Left)?;
        // New packs get the size that suits the cap. If the cap is unknown, the collection still runs.
        let _ = self.manager.renew_limits();
        let collecting = Collecting {
            dead_percent: if how == Thoroughness::Everything { 0 } else { DEAD_PERCENT_USUAL },
            patience: PATIENCE,
            stop: &|| progress.interrupted(),
        };
        let mut marker = Marker::new(self.manager, progress);
        let collected = self.manager.store.collect(&collecting, &mut |live| {
            // A catalog that was replaced concurrently must not decide what is dead.
            self.manager.must_know_catalog()?;
            marker.mark(live)
        });
        progress.end();
        let mut collected = collected?;
        if collected.outcome == Outcome::Done {
            let at = self.manager.environment.now();
            let mut gone = Vec::new();
            for record in self.manager.catalog.stale_records()? {
                if !self.manager.store.lies_in_a_pack(record)? {
                    gone.push(record);
                }
            }
            let dead_tombstones = self.manager.catalog.write::<bool, Error>(|transaction| {
                transaction.note_collected(collected.freed_bytes, at)?;
                Ok(transaction.forget_stale(&gone)?)
            })?;
            // Tombstones of deleted records are dead only now.
            if dead_tombstones && how == Thoroughness::Everything {
                let more = self.manager.store.collect(&collecting, &mut |live| {
                    self.manager.must_know_catalog()?;
                    Marker::new(self.manager, progress).mark(live)
                })?;
                collected.freed_bytes += more.freed_bytes;
                collected.objects += more.objects;
                collected.packs_left += more.packs_left;
            }
        }
        Ok(collected)
    }

    /// Returns the cap of this home.
    ///
    /// # Errors
    /// Fails if the configuration is invalid, or the disk size is unavailable.
    pub fn cap(&self) -> Result<Cap, Error> {
        let given = match self.manager.settings.cap_bytes {
            Some(cap) => Some(cap),
            None => self.manager.config(None)?.cap_bytes,
        };
        let cap_bytes = match given {
            Some(cap) => cap,
            None => CAP_BYTES_DEFAULT.min(self.manager.store.disk_bytes()? / CAP_PART_OF_DISK),
        };
        Ok(Cap::new(cap_bytes))
    }
}

/// A checkpoint, what is said of it, and the scope whose own policy says so.
type Said = (CheckpointId, RetentionVerdict, Option<Scope>);

/// Retention policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    /// Policy for scopes without their own.
    pub general: Policy,
    /// Policies by scope; plans are judged separately.
    pub of: BTreeMap<Scope, Policy>,
}

impl Policies {
    fn all(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&self.general).chain(self.of.values())
    }
}

impl From<Policy> for Policies {
    fn from(general: Policy) -> Self {
        Self { general, of: BTreeMap::new() }
    }
}

/// Result of the upkeep after a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    pub(crate) pruned: Vec<CheckpointId>,
    pub(crate) warnings: Vec<Warning>,
}

impl Tended {
    fn join(&mut self, other: Self) {
        self.pruned.extend(other.pruned);
        self.warnings.extend(other.warnings);
    }
}

/// Returns the bytes needed, used and allowed if the error's root cause is the cap.
pub(crate) fn cap_hit(error: &Error) -> Option<(u64, u64, u64)> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = match error {
        Error::Store(error) => Some(error),
        other => std::error::Error::source(other),
    };
    while let Some(error) = next {
        if let Some(StoreError::Full { needed_bytes, used_bytes, allowed_bytes }) = error.downcast_ref() {
            return Some((*needed_bytes, *used_bytes, *allowed_bytes));
        }
        next = error.source();
    }
    None
}
