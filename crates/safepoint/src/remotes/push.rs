//! PUSH: publishes the checkpoints of a workspace that a remote lacks.
//!
//! Order: packs are built and durable in the home; the push is on record; packs are uploaded; one statement publishes;
//! one transaction records it. A kill in between leaves a push on record, which the next one sends again, byte for byte.
//! A line that another writer took over is not used again: the rest goes to a new line, and nothing is lost.

use super::gather::{Base, gather};
use super::publishable::{Outgoing, Publishable, PublishedMemory};
use super::take::{Elsewhere, value};
use crate::checkpoint::records::origin;
use crate::config::Broken;
use crate::handles::Remotes;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PublishedAt, StoredLine, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::progress::Activity;
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, LineId, ObjectError, ObjectId, Progress, RelPath, WorkspaceId};
use safepoint_remote::{
    LineState, ListPlan, PackInfo, PackName, Push, PushDocument, PushedCheckpoint, Reached, Remote,
    RemoteError,
};
use safepoint_store::{PackOut, PackTail};
use safepoint_workspace::Patterns;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Seek;

/// Checkpoints of one push.
const BATCH: u64 = 200;
/// Turns of agents that travel with a checkpoint, and newer ones that are looked at for them.
const TURNS_MAX: usize = 20;
const TURNS_LOOKED_AT: u64 = 1_000;
/// Times that a line is begun or taken again in one call.
const LINES_MAX: u32 = 3;

/// Options of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushOptions {
    /// Name of this machine, for people.
    pub holder: String,
    /// Memory of agents outside of the workspace.
    pub memory: PublishedMemory,
    /// Extent.
    pub extent: PushExtent,
}

impl PushOptions {
    /// Creates options for all checkpoints, without memory of agents outside of the workspace.
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), memory: PublishedMemory::Inside, extent: PushExtent::All }
    }
}

/// Extent of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PushExtent {
    /// Purges, and every checkpoint that the remote lacks.
    #[default]
    All,
    /// Purges alone.
    Purges,
}

/// Result of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// Published checkpoints, oldest first.
    pub published: Vec<PublishedAt>,
    /// Uploaded packs.
    pub packs: u64,
    /// Bytes of these packs.
    pub bytes: u64,
    /// Line that another writer took over; the checkpoints went to a new one.
    pub fenced: Option<LineId>,
    /// Paths that the configuration keeps out of published checkpoints.
    pub excluded: BTreeSet<RelPath>,
    /// Published checkpoints that were replaced by ones without purged paths.
    pub purged: u64,
    /// Packs that were deleted because they held purged content.
    pub purged_packs: u64,
    /// True if the role may not carry out a purge that is on record.
    pub purge_refused: bool,
}

/// Push on record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) push: Push,
    /// Published checkpoints, and their manifests as they are published.
    pub(super) checkpoints: Vec<(CheckpointId, ObjectId)>,
    /// Paths that they lack.
    #[serde(default)]
    pub(super) excluded: BTreeSet<RelPath>,
    /// Packs to be deleted once the push is published, since they hold purged content.
    #[serde(default)]
    pub(super) purged: Vec<PackName>,
    /// Purges that the push carries out.
    #[serde(default)]
    pub(super) purges: Vec<i64>,
}

/// One call of `push`.
pub(super) struct Pushing<'p> {
    pub(super) manager: &'p CheckpointManager,
    pub(super) remote: &'p Remote,
    pub(super) name: &'p str,
    pub(super) workspace: &'p Workspace,
    pub(super) options: &'p PushOptions,
    pub(super) exclude: Patterns,
    pub(super) progress: &'p dyn Progress,
    pub(super) pushed: Pushed,
    /// Rounds of a purge, and packs that rows of others listed in an earlier one.
    pub(super) rounds: u32,
    pub(super) still_listed: Vec<PackName>,
}

impl Remotes<'_> {
    /// Publishes every checkpoint of a workspace that the remote lacks, oldest first. May be called again after any
    /// error or crash: it goes on where the last call stopped.
    ///
    /// # Errors
    /// [`Error::Remote`], or store or catalog fail. What was published before stays published.
    pub fn push(
        &self,
        (name, remote): (&str, &Remote),
        workspace: &Workspace,
        options: &PushOptions,
        progress: &dyn Progress,
    ) -> Result<Pushed, Error> {
        let manager = self.manager;
        let wait = manager.settings.lock_wait;
        let failed = |source| Error::Home { path: manager.home().to_owned(), source };
        let lock = manager.home.lock_line(name, workspace.id, wait).map_err(failed)?;
        let _lock = lock.ok_or_else(|| Error::RemoteBusy { name: name.to_owned() })?;
        let pushed = Pushed::default();
        let exclude = Patterns::new(&manager.config_at(None, Broken::PassedOver)?.remote.exclude)?;
        let (rounds, still_listed) = (0, Vec::new());
        let mut pushing = Pushing {
            manager,
            remote,
            name,
            workspace,
            options,
            exclude,
            progress,
            pushed,
            rounds,
            still_listed,
        };
        progress.begin(Activity::Uploading, None);
        let result = pushing.run();
        progress.end();
        result.map(|()| pushing.pushed)
    }
}

impl Pushing<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let (mut whole, mut lines) = (false, 0);
        loop {
            let Some(mut line) = self.stored()? else {
                if self.batch()?.is_empty() && self.purges()?.is_empty() {
                    return Ok(());
                }
                self.begin(None)?;
                continue;
            };
            let Some(state) = self.state(&mut line)? else { continue };
            let pending =
                line.pending.clone().and_then(|pending| serde_json::from_value::<Pending>(pending).ok());
            let purges = self.purges()?;
            let pending = match pending {
                // It may hold purged content, and must not be sent.
                Some(pending) if pending.purged.is_empty() && !purges.is_empty() => {
                    self.withdraw(&line, &pending)?;
                    continue;
                }
                Some(pending) => pending,
                None if !purges.is_empty() => {
                    self.prepare_purge(&line, &state, &purges)?;
                    continue;
                }
                None => {
                    let batch = self.batch()?;
                    if batch.is_empty() {
                        // A push that was killed at its end left its packs.
                        self.manager.home.clear_outbox(self.name, self.workspace.id);
                        return Ok(());
                    }
                    self.prepare(&line, &state, &batch, whole)?;
                    continue;
                }
            };
            match self.send(&pending) {
                Ok(state) => {
                    whole = false;
                    let pending = self.delete_purged(pending)?;
                    self.commit(&pending, &state)?;
                }
                Err(Error::Remote(RemoteError::Denied { .. })) if !pending.purged.is_empty() => {
                    self.give_up_purge(&line)?;
                }
                // What the base has is being deleted: everything is sent again.
                Err(Error::Remote(RemoteError::Gone { .. })) if !whole => {
                    whole = true;
                    self.set(&StoredLine { pending: None, ..line })?;
                }
                Err(Error::Remote(RemoteError::Fenced { .. })) if lines < LINES_MAX => {
                    lines += 1;
                    self.regain(&line, &state, &pending)?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    pub(super) fn key(&self) -> (&str, WorkspaceId) {
        (self.name, self.workspace.id)
    }

    fn stored(&self) -> Result<Option<StoredLine>, Error> {
        Ok(self.manager.catalog.remote_line(self.name, self.workspace.id)?)
    }

    fn batch(&self) -> Result<Vec<Checkpoint>, Error> {
        if self.options.extent == PushExtent::Purges {
            return Ok(Vec::new());
        }
        Ok(self.manager.catalog.unpublished(self.name, self.workspace.id, BATCH)?)
    }

    pub(super) fn set(&self, line: &StoredLine) -> Result<(), Error> {
        let (name, workspace) = self.key();
        self.manager
            .catalog
            .write::<(), Error>(|transaction| Ok(transaction.set_remote_line(name, workspace, line)?))
    }

    /// Chooses the id of a line, and records it before the remote hears of it: the same request may be sent again.
    fn begin(&mut self, fenced: Option<LineId>) -> Result<(), Error> {
        self.pushed.fenced = self.pushed.fenced.or(fenced);
        let line = LineId::from_bits(self.manager.environment.new_id());
        let stored = StoredLine { line, state: None, base: None, pending: None };
        let ((name, workspace), at) = (self.key(), self.manager.environment.now());
        self.manager.catalog.write::<(), Error>(|transaction| {
            if let Some(fenced) = fenced {
                transaction.leave_line(name, workspace, fenced, at)?;
            }
            Ok(transaction.set_remote_line(name, workspace, &stored)?)
        })
    }

    /// Returns the state of a line, which is begun on the remote if it is new. `None` if it must be read again.
    fn state(&mut self, line: &mut StoredLine) -> Result<Option<LineState>, Error> {
        if let Some(state) = &line.state {
            let state: Option<LineState> = serde_json::from_value(state.clone()).ok();
            // A state that cannot be read was written by a newer program: the line is left to it.
            return match state {
                Some(state) => Ok(Some(state)),
                None => self.begin(Some(line.line)).map(|()| None),
            };
        }
        let state = self.remote.begin_line(line.line, self.workspace.id, None, &self.options.holder)?;
        line.state = Some(value(&state)?);
        self.set(line)?;
        Ok(Some(state))
    }

    /// Builds the packs of a push, and puts the push on record.
    fn prepare(
        &self,
        line: &StoredLine,
        state: &LineState,
        batch: &[Checkpoint],
        whole: bool,
    ) -> Result<(), Error> {
        let _using = self.manager.store.using()?;
        // Pieces of threads may still be in the catalog alone.
        self.manager.settle_chunks()?;
        let plan = if whole { ListPlan::Whole } else { ListPlan::of(&state.packs, None) };
        let outgoing = Outgoing::new(&self.manager.store, &self.exclude);
        let publishable = |checkpoint| self.manager.publishable(checkpoint, &outgoing, self.options.memory);
        let batch: Vec<Publishable> = batch.iter().map(publishable).collect::<Result<_, _>>()?;
        let (plan, base) = self.base(line, plan, &outgoing)?;
        let kept = match plan {
            ListPlan::Append => state.packs.clone(),
            ListPlan::Compact(kept) => kept,
            ListPlan::Whole => Vec::new(),
        };
        let held: HashSet<ObjectId> = match &base {
            Some(_) => HashSet::new(),
            None => self.held(&kept)?,
        };
        let (held, base) = (|id: ObjectId| held.contains(&id), base.unwrap_or_default());
        let mut found = Reached::default();
        for published in &batch {
            if self.progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
            gather(&outgoing, published, &base, &held, &mut found)?;
        }
        let mut document = PushDocument::new(state);
        document.whole = kept.is_empty();
        document.kept = kept;
        let pending = self.pack(document, (found.into_objects(), &outgoing), &batch)?;
        self.set(&StoredLine { pending: Some(value(&pending)?), ..line.clone() })
    }

    /// Reads what the base reaches. Without a usable base everything is sent that kept packs do not hold.
    fn base(
        &self,
        line: &StoredLine,
        plan: ListPlan,
        outgoing: &Outgoing<'_>,
    ) -> Result<(ListPlan, Option<Base>), Error> {
        if plan != ListPlan::Append {
            return Ok((plan, None));
        }
        let Some((id, content)) = line.base else { return Ok((ListPlan::Whole, None)) };
        let Some(checkpoint) = self.manager.catalog.checkpoint(id)? else {
            return Ok((ListPlan::Whole, None));
        };
        // It was deleted here, paths were purged from it, or others are excluded by now.
        let published = self.manager.publishable(&checkpoint, outgoing, self.options.memory);
        let base = published.and_then(|published| {
            let is_same = published.checkpoint.integrity == content;
            Ok(if is_same { Some(Base::of(outgoing, &published)?) } else { None })
        });
        Ok(base.ok().flatten().map_or((ListPlan::Whole, None), |base| (plan, Some(base))))
    }

    /// Ids of all objects of packs on the remote, by their indexes.
    fn held(&self, kept: &[PackInfo]) -> Result<HashSet<ObjectId>, Error> {
        let mut held = HashSet::new();
        let scratch = || self.manager.home.scratch_file();
        for pack in kept {
            let source = self.remote.open_pack(pack, &scratch)?;
            let tail = PackTail::open(source.bytes(), &|at, len| source.read_at(at, len))?;
            let tail = tail.map_err(|why| super::damaged(format!("the pack {}", pack.name), why))?;
            held.extend(tail.objects().iter().map(safepoint_store::PackedObject::id));
        }
        Ok(held)
    }

    /// Writes the packs of a push. The last one has the records, and the document at its end.
    fn pack(
        &self,
        mut document: PushDocument,
        (objects, outgoing): (Vec<ObjectId>, &Outgoing<'_>),
        batch: &[Publishable],
    ) -> Result<Pending, Error> {
        let mut out = self.write_objects(&mut document, objects, outgoing)?;
        let (name, workspace) = self.key();
        let left = self.manager.catalog.left_lines(name, workspace)?.first().copied();
        for (order, published) in (0u64..).zip(batch) {
            let checkpoint = &published.checkpoint;
            let record = self.write_record(&mut out, checkpoint, order)?;
            let (id, pinned, fields) = (checkpoint.id, checkpoint.pinned, self.fields(checkpoint, left));
            document.checkpoints.push(PushedCheckpoint { id, record, pinned, fields });
        }
        let push = self.close(document, out)?;
        let checkpoints = batch.iter().map(|it| (it.checkpoint.id, it.checkpoint.integrity)).collect();
        let excluded = batch.iter().flat_map(|it| it.left_out.iter().cloned()).collect();
        Ok(Pending { push, checkpoints, excluded, purged: Vec::new(), purges: Vec::new() })
    }

    /// Writes objects to packs; those that are full are finished.
    pub(super) fn write_objects(
        &self,
        document: &mut PushDocument,
        objects: Vec<ObjectId>,
        outgoing: &Outgoing<'_>,
    ) -> Result<PackOut<'_>, Error> {
        let store = &self.manager.store;
        let (name, workspace) = self.key();
        self.manager.home.clear_outbox(name, workspace);
        let path = self.manager.home().join("outbox");
        let scratch = || self.manager.home.scratch_file().map_err(|source| self.local(source));
        let mut out = store.pack_out(scratch()?, &path)?;
        for id in objects {
            if out.is_full() {
                let full = std::mem::replace(&mut out, store.pack_out(scratch()?, &path)?);
                let pack = self.finish(document, full)?;
                document.earlier.push(pack);
            }
            if let Some((kind, bytes)) = outgoing.own_bytes(id) {
                out.add_bytes(kind, &bytes)?;
            } else {
                out.add(id)?;
            }
            self.progress.advance(1, 0);
            if self.progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
        }
        Ok(out)
    }

    /// Adds the record of a checkpoint. `order` is its place in the push.
    pub(super) fn write_record(
        &self,
        out: &mut PackOut<'_>,
        checkpoint: &Checkpoint,
        order: u64,
    ) -> Result<ObjectId, Error> {
        let head = self.manager.catalog.head()?;
        let plans = self.manager.plans_of(checkpoint)?;
        let (origin, turns) = (origin(&head, head.seq + order), self.turns(checkpoint)?);
        let bytes = self.manager.record_with(checkpoint, origin, plans, turns)?;
        Ok(out.add_document(&bytes)?)
    }

    /// Last turns of agents up to a checkpoint, oldest first.
    fn turns(&self, checkpoint: &Checkpoint) -> Result<Vec<Turn>, Error> {
        let all = self.manager.catalog.turns(self.workspace.id, None, Some(TURNS_LOOKED_AT))?;
        let is_before = |turn: &Turn| {
            let is_of = [turn.before, turn.after].contains(&Some(checkpoint.id));
            is_of || turn.opened_at <= checkpoint.created_at
        };
        let mut turns: Vec<Turn> = all.into_iter().filter(is_before).take(TURNS_MAX).collect();
        turns.reverse();
        Ok(turns)
    }

    /// Finishes the last pack of a push, with its document.
    pub(super) fn close(&self, document: PushDocument, mut out: PackOut<'_>) -> Result<Push, Error> {
        out.add_document(&document.encode()?)?;
        let last = self.finish(&document, out)?;
        let push = self.remote.prepare(document, last)?;
        self.progress.expect(push.new.iter().map(|pack| pack.bytes).sum());
        Ok(push)
    }

    /// Fields of a row, for lists and takeovers.
    fn fields(&self, checkpoint: &Checkpoint, left: Option<LineId>) -> Value {
        let plans = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Plan);
        json!({
            "workspace": self.workspace.name,
            "created_at": checkpoint.created_at,
            "label": checkpoint.label,
            "kind": checkpoint.kind,
            "reason": checkpoint.reason,
            "scope": checkpoint.scope,
            "plan_id": checkpoint.plan_id,
            "plans": plans.map(|part| part.key.as_str()).collect::<Vec<_>>(),
            "left": left,
            "session_id": checkpoint.session_id,
            "files": { "count": checkpoint.files.count, "bytes": checkpoint.files.bytes },
            "holder": &self.options.holder,
        })
    }

    fn finish(&self, document: &PushDocument, out: PackOut<'_>) -> Result<PackInfo, Error> {
        let key = self.key();
        let mut plain = out.finish()?;
        plain.file.rewind().map_err(|source| self.local(source))?;
        let (mut draft, path) =
            self.manager.home.draft_pack(key.0, key.1).map_err(|source| self.local(source))?;
        let target = (&mut draft, path.as_path());
        let pack = self.remote.finish_pack(document, &mut plain.file, plain.objects, target)?;
        let name = pack.name.hash.to_string();
        self.manager.home.keep_pack(&draft, &name, key).map_err(|source| self.local(source))?;
        Ok(pack)
    }

    fn local(&self, source: std::io::Error) -> Error {
        Error::Home { path: self.manager.home().to_owned(), source }
    }

    /// Uploads and publishes.
    fn send(&mut self, pending: &Pending) -> Result<LineState, Error> {
        let open = |pack: &PackInfo| {
            self.manager.home.open_pack(&pack.name.hash.to_string(), self.name, self.workspace.id)
        };
        let files = pending.push.new.iter().map(open).collect::<Result<Vec<File>, _>>();
        let Ok(files) = files else { return self.without_files(pending) };
        let sent = self.remote.push(&pending.push, &files.iter().collect::<Vec<_>>(), self.progress)?;
        self.pushed.packs += pending.push.new.len() as u64;
        self.pushed.bytes += pending.push.new.iter().map(|pack| pack.bytes).sum::<u64>();
        Ok(sent)
    }

    /// Finds out what became of a push whose packs are gone from the home.
    pub(super) fn without_files(&self, pending: &Pending) -> Result<LineState, Error> {
        let state = pending.push.state();
        let lines = self.remote.lines(Some(self.workspace.id), None)?;
        let is_head = lines.iter().any(|line| {
            // A purge has no head of its own.
            let is_same = state.head.is_none() || line.head == state.head;
            (line.line, line.seq, line.token) == (state.line, state.seq, state.token) && is_same
        });
        match is_head {
            true => Ok(state),
            // Nothing was published, or another writer went on; both end at this error, which starts anew.
            false => Err(RemoteError::Gone { line: state.line, packs: Vec::new() }.into()),
        }
    }

    /// Records what was published.
    pub(super) fn commit(&mut self, pending: &Pending, state: &LineState) -> Result<(), Error> {
        let at = self.manager.environment.now();
        let (line, seq) = (state.line, state.seq);
        let published: Vec<PublishedAt> = pending
            .checkpoints
            .iter()
            .map(|(checkpoint, _)| PublishedAt { checkpoint: *checkpoint, line, seq })
            .collect();
        // A purge publishes nothing: its head stays what it was.
        let base = pending.checkpoints.last().copied();
        let is_purge = pending.push.document.checkpoints.is_empty();
        let published = if is_purge { Vec::new() } else { published };
        let mut state = state.clone();
        if is_purge && let Some(before) = self.stored()?.and_then(|line| line.state) {
            state.head = serde_json::from_value::<LineState>(before).ok().and_then(|before| before.head);
        }
        let state = &state;
        let stored = StoredLine { line, state: Some(value(state)?), base, pending: None };
        let (name, workspace) = self.key();
        self.manager.catalog.write::<(), Error>(|transaction| {
            transaction.set_remote_line(name, workspace, &stored)?;
            transaction.end_remote_purges(&pending.purges)?;
            Ok(transaction.note_published(name, &published, at)?)
        })?;
        self.manager.home.clear_outbox(name, workspace);
        self.pushed.published.extend(published);
        self.pushed.excluded.extend(pending.excluded.iter().cloned());
        Ok(())
    }

    /// Takes the line again if this machine was its last writer; else begins a new one.
    fn regain(&mut self, line: &StoredLine, state: &LineState, pending: &Pending) -> Result<(), Error> {
        let Self { manager, name, remote, workspace, .. } = *self;
        let elsewhere = Elsewhere { manager, name, remote, workspace };
        if let Some(taken) = elsewhere.regain(state, &self.options.holder)? {
            let state = Some(value(&taken)?);
            return self.set(&StoredLine { state, pending: None, ..line.clone() });
        }
        // The push itself may be the head: its answer was lost, and then its token was superseded.
        match elsewhere.regain(&pending.push.state(), &self.options.holder)? {
            Some(taken) => self.commit(pending, &taken),
            None => self.begin(Some(line.line)),
        }
    }
}
