//! PUSH: publishes the checkpoints of a workspace that a remote lacks.
//!
//! Order: packs are built and durable in the home; the push is on record; packs are uploaded; one statement publishes;
//! one transaction records it. A kill in between leaves a push on record, which the next one sends again, byte for byte.
//! A line that another writer took over is not used again: the rest goes to a new line, and nothing is lost.

use super::gather::{Base, Publishable, gather};
use crate::checkpoint::records::origin;
use crate::handles::Remotes;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PublishedAt, StoredLine, Workspace};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::progress::Activity;
use safepoint_model::{CheckpointId, LineId, ObjectError, ObjectId, Progress, WorkspaceId};
use safepoint_remote::{
    LineState, ListPlan, PackInfo, Push, PushDocument, PushedCheckpoint, Reached, Remote, RemoteError,
};
use safepoint_store::{PackOut, PackTail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::io::Seek;

/// Checkpoints of one push.
const BATCH: u64 = 200;
/// Times that a line is begun or taken again in one call.
const LINES_MAX: u32 = 3;

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
}

/// Push on record.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    push: Push,
    /// Published checkpoints, and their manifests on this machine.
    checkpoints: Vec<(CheckpointId, ObjectId)>,
}

/// One call of `push`.
struct Pushing<'p> {
    manager: &'p CheckpointManager,
    remote: &'p Remote,
    name: &'p str,
    workspace: &'p Workspace,
    holder: &'p str,
    progress: &'p dyn Progress,
    pushed: Pushed,
}

impl Remotes<'_> {
    /// Publishes every checkpoint of a workspace that the remote lacks, oldest first. May be called again after any
    /// error or crash: it goes on where the last call stopped. `holder` names this machine for people.
    ///
    /// # Errors
    /// [`Error::Remote`], or store or catalog fail. What was published before stays published.
    pub fn push(
        &self,
        (name, remote): (&str, &Remote),
        workspace: &Workspace,
        holder: &str,
        progress: &dyn Progress,
    ) -> Result<Pushed, Error> {
        let manager = self.manager;
        let wait = manager.settings.lock_wait;
        let failed = |source| Error::Home { path: manager.home().to_owned(), source };
        let lock = manager.home.lock_line(name, workspace.id, wait).map_err(failed)?;
        let _lock = lock.ok_or_else(|| Error::RemoteBusy { name: name.to_owned() })?;
        let pushed = Pushed::default();
        let mut pushing = Pushing { manager, remote, name, workspace, holder, progress, pushed };
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
                if self.batch()?.is_empty() {
                    return Ok(());
                }
                self.begin(None)?;
                continue;
            };
            let Some(state) = self.state(&mut line)? else { continue };
            let pending =
                line.pending.clone().and_then(|pending| serde_json::from_value::<Pending>(pending).ok());
            let Some(pending) = pending else {
                let batch = self.batch()?;
                if batch.is_empty() {
                    // A push that was killed at its end left its packs.
                    self.manager.home.clear_outbox(self.name, self.workspace.id);
                    return Ok(());
                }
                self.prepare(&line, &state, &batch, whole)?;
                continue;
            };
            match self.send(&pending) {
                Ok(state) => {
                    whole = false;
                    self.commit(&pending, &state)?;
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

    fn key(&self) -> (&str, WorkspaceId) {
        (self.name, self.workspace.id)
    }

    fn stored(&self) -> Result<Option<StoredLine>, Error> {
        Ok(self.manager.catalog.remote_line(self.name, self.workspace.id)?)
    }

    fn batch(&self) -> Result<Vec<Checkpoint>, Error> {
        Ok(self.manager.catalog.unpublished(self.name, self.workspace.id, BATCH)?)
    }

    fn set(&self, line: &StoredLine) -> Result<(), Error> {
        let (name, workspace) = self.key();
        self.manager
            .catalog
            .write::<(), Error>(|transaction| Ok(transaction.set_remote_line(name, workspace, line)?))
    }

    /// Chooses the id of a line, and records it before the remote hears of it: the same request may be sent again.
    fn begin(&mut self, fenced: Option<LineId>) -> Result<(), Error> {
        self.pushed.fenced = self.pushed.fenced.or(fenced);
        let line = LineId::from_bits(self.manager.environment.new_id());
        self.set(&StoredLine { line, state: None, base: None, pending: None })
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
        let state = self.remote.begin_line(line.line, self.workspace.id, None, self.holder)?;
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
        let batch: Vec<Publishable> =
            batch.iter().map(|checkpoint| self.manager.publishable(checkpoint)).collect::<Result<_, _>>()?;
        let (plan, base) = self.base(line, plan)?;
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
            gather(&self.manager.store, published, &base, &held, &mut found)?;
        }
        let mut document = PushDocument::new(state);
        document.whole = kept.is_empty();
        document.kept = kept;
        let pending = self.pack(document, found.into_objects(), &batch)?;
        self.set(&StoredLine { pending: Some(value(&pending)?), ..line.clone() })
    }

    /// Reads what the base reaches. Without a usable base everything is sent that kept packs do not hold.
    fn base(&self, line: &StoredLine, plan: ListPlan) -> Result<(ListPlan, Option<Base>), Error> {
        if plan != ListPlan::Append {
            return Ok((plan, None));
        }
        let Some((id, content)) = line.base else { return Ok((ListPlan::Whole, None)) };
        // It was deleted here, or paths were purged from it.
        let Some(checkpoint) = self.manager.catalog.checkpoint(id)?.filter(|it| it.integrity == content)
        else {
            return Ok((ListPlan::Whole, None));
        };
        let published = self.manager.publishable(&checkpoint);
        let base = published.and_then(|published| Base::of(&self.manager.store, &published));
        Ok(base.map_or((ListPlan::Whole, None), |base| (plan, Some(base))))
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
        objects: Vec<ObjectId>,
        batch: &[Publishable],
    ) -> Result<Pending, Error> {
        let store = &self.manager.store;
        let (name, workspace) = self.key();
        self.manager.home.clear_outbox(name, workspace);
        let path = self.manager.home().join("outbox");
        let scratch = || self.manager.home.scratch_file().map_err(|source| self.local(source));
        let mut out = store.pack_out(scratch()?, &path)?;
        for id in objects {
            if out.is_full() {
                let full = std::mem::replace(&mut out, store.pack_out(scratch()?, &path)?);
                let pack = self.finish(&document, full)?;
                document.earlier.push(pack);
            }
            out.add(id)?;
            self.progress.advance(1, 0);
            if self.progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
        }
        let head = self.manager.catalog.head()?;
        for (order, published) in (0u64..).zip(batch) {
            if let Some(manifest) = &published.manifest {
                out.add_document(manifest)?;
            }
            let checkpoint = &published.checkpoint;
            let plans = self.manager.plans_of(checkpoint)?;
            let bytes = self.manager.record(checkpoint, origin(&head, head.seq + order), plans)?;
            let record = out.add_document(&bytes)?;
            let (id, pinned, fields) = (checkpoint.id, checkpoint.pinned, self.fields(checkpoint));
            document.checkpoints.push(PushedCheckpoint { id, record, pinned, fields });
        }
        out.add_document(&document.encode()?)?;
        let last = self.finish(&document, out)?;
        let push = self.remote.prepare(document, last)?;
        self.progress.expect(push.new.iter().map(|pack| pack.bytes).sum());
        let local = |id: CheckpointId| -> Result<(CheckpointId, ObjectId), Error> {
            let checkpoint = self.manager.catalog.checkpoint(id)?;
            Ok((id, checkpoint.map_or(ObjectId::from_bytes([0; 32]), |it| it.integrity)))
        };
        let checkpoints =
            push.document.checkpoints.iter().map(|it| local(it.id)).collect::<Result<_, _>>()?;
        Ok(Pending { push, checkpoints })
    }

    /// Fields of a row, for lists.
    fn fields(&self, checkpoint: &Checkpoint) -> Value {
        json!({
            "workspace": self.workspace.name,
            "created_at": checkpoint.created_at,
            "label": checkpoint.label,
            "kind": checkpoint.kind,
            "reason": checkpoint.reason,
            "scope": checkpoint.scope,
            "plan_id": checkpoint.plan_id,
            "session_id": checkpoint.session_id,
            "files": { "count": checkpoint.files.count, "bytes": checkpoint.files.bytes },
            "holder": self.holder,
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
    fn without_files(&self, pending: &Pending) -> Result<LineState, Error> {
        let state = pending.push.state();
        let lines = self.remote.lines(Some(self.workspace.id), None)?;
        let is_head = lines.iter().any(|line| {
            (line.line, line.seq, line.head) == (state.line, state.seq, state.head)
                && line.token == state.token
        });
        match is_head {
            true => Ok(state),
            // Nothing was published, or another writer went on; both end at this error, which starts anew.
            false => Err(RemoteError::Gone { line: state.line, packs: Vec::new() }.into()),
        }
    }

    /// Records what was published.
    fn commit(&mut self, pending: &Pending, state: &LineState) -> Result<(), Error> {
        let at = self.manager.environment.now();
        let (line, seq) = (state.line, state.seq);
        let published: Vec<PublishedAt> = pending
            .checkpoints
            .iter()
            .map(|(checkpoint, _)| PublishedAt { checkpoint: *checkpoint, line, seq })
            .collect();
        let base = pending.checkpoints.last().copied();
        let stored = StoredLine { line, state: Some(value(state)?), base, pending: None };
        let (name, workspace) = self.key();
        self.manager.catalog.write::<(), Error>(|transaction| {
            transaction.set_remote_line(name, workspace, &stored)?;
            Ok(transaction.note_published(name, &published, at)?)
        })?;
        self.manager.home.clear_outbox(name, workspace);
        self.pushed.published.extend(published);
        Ok(())
    }

    /// Takes the line again if this machine was its last writer; else begins a new one.
    fn regain(&mut self, line: &StoredLine, state: &LineState, pending: &Pending) -> Result<(), Error> {
        let nonce = self.manager.environment.new_id();
        match self.remote.regain(state, self.holder, nonce) {
            Ok(taken) => {
                let state = Some(value(&taken)?);
                return self.set(&StoredLine { state, pending: None, ..line.clone() });
            }
            Err(RemoteError::Fenced { .. } | RemoteError::Live { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        // The push itself may be the head: its answer was lost, and then its token was superseded.
        match self.remote.regain(&pending.push.state(), self.holder, nonce) {
            Ok(taken) => self.commit(pending, &taken),
            Err(RemoteError::Fenced { .. } | RemoteError::Live { .. } | RemoteError::NoLine { .. }) => {
                self.begin(Some(line.line))
            }
            Err(other) => Err(other.into()),
        }
    }
}

fn value<T: Serialize>(it: &T) -> Result<Value, Error> {
    serde_json::to_value(it).map_err(|error| ObjectError::Store(Box::new(error)).into())
}
