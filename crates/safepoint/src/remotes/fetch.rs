//! FETCH: brings a published checkpoint into this home; a clone also builds its folder.
//!
//! Packs are downloaded and compared with their names, and every object that the checkpoint reaches with its hash.
//! Objects that it does not reach are not taken: a pack could hold documents that void records of this home. The record
//! may name its own workspace alone. What exists here already (plans, sessions, agents, threads) is not changed.
//! Order: objects durable; the folder of a clone built; one transaction. Before it, nothing is on record.

use super::shape::{self, Downloaded};
use super::{broken, damaged};
use crate::checkpoint::create::memory_parts;
use crate::handles::Remotes;
use crate::manager::canonical;
use crate::parts::files::snapshot;
use crate::rollback::DryRun;
use crate::upkeep::mark::each_object;
use crate::upkeep::rebuild::session_of;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanCheckpoint, PublishedAt, Transaction, Workspace};
use safepoint_model::agent::{Agent, WorkspaceKind};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord};
use safepoint_model::plan::state::Plan;
use safepoint_model::progress::Activity;
use safepoint_model::record::{Kept, Record, RecordedPlan};
use safepoint_model::session::SessionDocument;
use safepoint_model::thread::ThreadKey;
use safepoint_model::turn::Turn;
use safepoint_model::{
    ObjectError, ObjectId, ObjectKind, ObjectSource, Progress, WorkspaceId, document, plan,
};
use safepoint_remote::{PackInfo, PushDocument, Remote, RemoteCheckpoint};
use safepoint_store::{PackTail, PackedObject, Writer};
use safepoint_workspace::{WorkspaceError, build_tree};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Result of a fetch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fetched {
    /// Checkpoint, as it is in this home.
    pub checkpoint: Checkpoint,
    /// True if it was here before.
    pub was_here: bool,
    /// Downloaded bytes.
    pub bytes: u64,
    /// Objects that it needs.
    pub objects: u64,
}

/// Result of a clone.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Cloned {
    /// Fetched checkpoint.
    pub fetched: Fetched,
    /// Registered workspace.
    pub workspace: Workspace,
    /// Plans that arrived with it.
    pub plans: Vec<String>,
    /// Sessions that arrived with it.
    pub sessions: Vec<String>,
    /// Agents that arrived with it.
    pub agents: Vec<String>,
    /// True if the folder of the repository arrived, too.
    pub git_folder: bool,
}

/// Everything that a record brings, read and checked.
struct Arrival {
    checkpoint: Checkpoint,
    name: String,
    plans: Vec<(Plan, RecordedPlan)>,
    sessions: Vec<SessionDocument>,
    agents: Vec<Agent>,
    threads: Vec<(ThreadKey, ObjectId)>,
    turns: Vec<Turn>,
    bytes: u64,
    objects: u64,
}

/// Downloaded packs, and the place of every object in them.
struct Packs {
    files: Vec<File>,
    places: HashMap<ObjectId, (usize, PackedObject)>,
    document: Option<PushDocument>,
    bytes: u64,
}

impl Packs {
    fn frame(&self, id: ObjectId) -> Result<(PackedObject, Vec<u8>), ObjectError> {
        let (file, object) = self.places.get(&id).ok_or(ObjectError::Missing { id })?;
        // The length is that of a file on this disk, checked with its index.
        let len = usize::try_from(object.stored_len()).map_err(|_| ObjectError::Missing { id })?;
        let mut frame = vec![0; len];
        self.files[*file].read_exact_at(&mut frame, object.at()).map_err(ObjectError::Input)?;
        Ok((*object, frame))
    }
}

impl ObjectSource for Packs {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        let (object, frame) = self.frame(id)?;
        if object.kind() != kind {
            return Err(ObjectError::Damaged { id, what: "it is of another kind".to_owned() });
        }
        object.decode(&frame)
    }
}

impl Downloaded for Packs {
    fn is_chunk(&self, id: ObjectId, size: u64) -> bool {
        let object = self.places.get(&id).map(|(_, object)| object);
        object.is_some_and(|object| object.kind() == ObjectKind::Chunk && object.raw_len() == size)
    }
}

impl Remotes<'_> {
    /// Brings a published checkpoint of a workspace of this home into this home. Files do not change: roll back to it then.
    ///
    /// # Errors
    /// [`Error::NoWorkspaceHere`] if this home does not have the workspace; [`Error::Remote`] if something is missing or damaged.
    pub fn fetch(
        &self,
        (name, remote): (&str, &Remote),
        found: &RemoteCheckpoint,
        progress: &dyn Progress,
    ) -> Result<Fetched, Error> {
        if let Some(fetched) = self.here(found)? {
            return Ok(fetched);
        }
        let manager = self.manager;
        if manager.catalog.workspace(found.workspace)?.is_none() {
            return Err(Error::NoWorkspaceHere { workspace: found.workspace });
        }
        let arrival = self.receive(remote, found, progress)?;
        manager.catalog.write(|transaction| manager.land(transaction, (name, found), &arrival, None))?;
        manager.write_waiting()?;
        self.fetched(&arrival)
    }

    /// Builds a published checkpoint in a folder that is empty or does not exist yet, and registers the folder as its
    /// workspace, with plan, session, agents and threads.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; [`Error::WorkspaceHere`] if this home has the workspace already; [`Error::Remote`] if something is missing or
    /// damaged. Nothing is registered then.
    pub fn clone_to(
        &self,
        (name, remote): (&str, &Remote),
        found: &RemoteCheckpoint,
        to: &Path,
        progress: &dyn Progress,
    ) -> Result<Cloned, Error> {
        let manager = self.manager;
        self.can_clone(found, to)?;
        if let Some(known) = self.left_aside(found, to)? {
            return self.move_in(found, &known, to);
        }
        let arrival = self.receive(remote, found, progress)?;
        let aside = aside(found, to).filter(|_| to.symlink_metadata().is_err());
        if let Some(aside) = aside.as_deref().filter(|aside| aside.symlink_metadata().is_ok()) {
            // A clone that was killed left it; no name of another program ends with the id of this workspace.
            safepoint_workspace::remove_tree(aside)?;
        }
        let git_folder = self.build(&arrival, aside.as_deref().unwrap_or(to), progress)?;
        let root = match (&aside, to.file_name()) {
            (Some(aside), Some(name)) => canonical(aside)?.with_file_name(name),
            _ => canonical(to)?,
        };
        manager
            .catalog
            .write(|transaction| manager.land(transaction, (name, found), &arrival, Some(&root)))?;
        manager.write_waiting()?;
        if aside.is_some() {
            self.move_in(found, &manager.workspaces().get(found.workspace)?, to)?;
        }
        Ok(Cloned {
            fetched: self.fetched(&arrival)?,
            workspace: manager.workspaces().get(found.workspace)?,
            plans: arrival.plans.iter().map(|(plan, _)| plan.id.clone()).collect(),
            sessions: arrival.sessions.iter().map(|session| session.id.to_uuid()).collect(),
            agents: arrival.agents.iter().map(|agent| agent.name.clone()).collect(),
            git_folder,
        })
    }

    /// Returns the workspace whose folder an earlier clone registered, and did not move to its name before it was killed.
    fn left_aside(&self, found: &RemoteCheckpoint, to: &Path) -> Result<Option<Workspace>, Error> {
        let known = self.manager.catalog.workspace(found.workspace)?;
        let is_aside = aside(found, to).is_some_and(|aside| aside.is_dir());
        Ok(known.filter(|known| {
            is_aside && to.symlink_metadata().is_err() && known.root_path().symlink_metadata().is_err()
        }))
    }

    /// Moves a folder that is built and registered to its name.
    fn move_in(&self, found: &RemoteCheckpoint, known: &Workspace, to: &Path) -> Result<Cloned, Error> {
        let failed = |source| Error::Export {
            path: to.to_owned(),
            source: WorkspaceError::MakeCopy { path: to.to_owned(), source },
        };
        let aside = aside(found, to).ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?;
        let above = File::open(aside.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let (from, to) = (aside.file_name().unwrap_or_default(), to.file_name().unwrap_or_default());
        rustix::fs::renameat_with(&above, from, &above, to, flags).map_err(|error| failed(error.into()))?;
        above.sync_all().map_err(failed)?;
        let checkpoint = self.manager.checkpoints().get(known.head.unwrap_or(found.id))?;
        let keys = |kind: PartKind| -> Vec<String> {
            let parts = checkpoint.parts.iter().filter(|part| part.kind == kind);
            parts.map(|part| part.key.clone()).collect()
        };
        Ok(Cloned {
            plans: keys(PartKind::Plan),
            sessions: keys(PartKind::Session),
            agents: keys(PartKind::Agent),
            git_folder: checkpoint.parts.iter().any(|part| part.kind == PartKind::GitFolder),
            workspace: known.clone(),
            fetched: Fetched { checkpoint, was_here: true, bytes: 0, objects: 0 },
        })
    }

    /// Fails if a checkpoint cannot be cloned into a folder of this machine.
    pub(super) fn can_clone(&self, found: &RemoteCheckpoint, to: &Path) -> Result<(), Error> {
        if std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::NotEmpty { path: to.to_owned() });
        }
        match self.manager.catalog.workspace(found.workspace)? {
            Some(_) if self.left_aside(found, to)?.is_some() => Ok(()),
            Some(known) => Err(Error::WorkspaceHere { path: known.root_path().to_owned() }),
            None => Ok(()),
        }
    }

    /// Reads every object of a published checkpoint from its packs, and keeps nothing.
    ///
    /// # Errors
    /// When something is missing or damaged.
    pub fn check(
        &self,
        remote: &Remote,
        found: &RemoteCheckpoint,
        progress: &dyn Progress,
    ) -> Result<u64, Error> {
        let packs = self.download(remote, &found.packs, progress)?;
        let checkpoint = checkpoint_of(remote, found, &packs)?.checkpoint;
        let mut needed = Vec::new();
        let mut seen = HashSet::new();
        reach(&packs, &checkpoint, progress, &mut |id| {
            let is_new = seen.insert(id);
            if is_new {
                needed.push(id);
            }
            is_new
        })?;
        for id in &needed {
            let (object, frame) = packs.frame(*id).map_err(|error| broken("a pack", &error))?;
            object.decode(&frame).map_err(|error| broken("a pack", &error))?;
        }
        Ok(needed.len() as u64)
    }

    /// Returns the checkpoint if it is here.
    fn here(&self, found: &RemoteCheckpoint) -> Result<Option<Fetched>, Error> {
        let checkpoint = self.manager.catalog.checkpoint(found.id)?;
        Ok(checkpoint.map(|checkpoint| Fetched { checkpoint, was_here: true, bytes: 0, objects: 0 }))
    }

    fn fetched(&self, arrival: &Arrival) -> Result<Fetched, Error> {
        let checkpoint = self.manager.checkpoints().get(arrival.checkpoint.id)?;
        Ok(Fetched { checkpoint, was_here: false, bytes: arrival.bytes, objects: arrival.objects })
    }

    /// Builds the files, and the folder of the repository if it was captured.
    fn build(&self, arrival: &Arrival, to: &Path, progress: &dyn Progress) -> Result<bool, Error> {
        let store = &self.manager.store;
        let own = arrival.checkpoint.workspace_id.map(|id| id.to_string()).unwrap_or_default();
        let part = |kind| arrival.checkpoint.parts.iter().find(|part| part.kind == kind && part.key == own);
        let no_files = || Error::NoFiles { checkpoint: arrival.checkpoint.id };
        let write = |part: &PartRecord, to: &Path| {
            let root = snapshot(store, part.document)?.root;
            build_tree(&store.measurer(), &root, to, progress).map_err(|source| match source {
                source @ safepoint_workspace::WorkspaceError::Verify { .. } => source.into(),
                source => Error::Export { path: to.to_owned(), source },
            })
        };
        write(part(PartKind::Files).ok_or_else(no_files)?, to)?;
        match part(PartKind::GitFolder) {
            Some(folder) => write(folder, &to.join(".git")).map(|()| true),
            None => Ok(false),
        }
    }

    /// Downloads packs, and reads their indexes.
    fn download(&self, remote: &Remote, packs: &[PackInfo], progress: &dyn Progress) -> Result<Packs, Error> {
        let scratch = || self.manager.home.scratch_file();
        let failed = |source| Error::Home { path: self.manager.home().to_owned(), source };
        let mut found = Packs { files: Vec::new(), places: HashMap::new(), document: None, bytes: 0 };
        progress.begin(Activity::Downloading, Some(packs.len() as u64));
        progress.expect(packs.iter().map(|pack| pack.bytes).sum());
        for pack in packs {
            if progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
            let what = format!("the pack {}", pack.name);
            let mut file = scratch().map_err(failed)?;
            let len = remote.download(pack, &mut file, &scratch, progress)?;
            let read_at = |at: u64, len: u64| -> Result<Vec<u8>, Error> {
                let mut bytes = vec![0; usize::try_from(len).map_err(|_| damaged(&*what, "it is too long"))?];
                file.read_exact_at(&mut bytes, at).map_err(failed)?;
                Ok(bytes)
            };
            let tail = PackTail::open(len, &read_at)?.map_err(|why| damaged(&*what, why))?;
            found.document = match tail.last_document() {
                Some(last) => {
                    let frame = read_at(last.at(), last.stored_len())?;
                    PushDocument::read(&last.decode(&frame).map_err(|error| broken(&what, &error))?)
                }
                None => None,
            };
            for object in tail.objects() {
                if object.at().saturating_add(object.stored_len()) > len {
                    return Err(damaged(&*what, "its index has impossible numbers"));
                }
                found.places.insert(object.id(), (found.files.len(), *object));
            }
            found.files.push(file);
            found.bytes += len;
            progress.advance(1, 0);
        }
        progress.end();
        Ok(found)
    }

    /// Downloads a checkpoint and stores its objects, durable. Nothing is on record yet.
    fn receive(
        &self,
        remote: &Remote,
        found: &RemoteCheckpoint,
        progress: &dyn Progress,
    ) -> Result<Arrival, Error> {
        let manager = self.manager;
        let _using = manager.store.using()?;
        let packs = self.download(remote, &found.packs, progress)?;
        let record = checkpoint_of(remote, found, &packs)?;
        let known = manager.catalog.workspace(found.workspace)?.map(|workspace| workspace.id);
        let (mut arrival, _) =
            manager.within_cap(known, DryRun::No, progress, || manager.arrive(&record, &packs, progress))?;
        arrival.bytes = packs.bytes;
        Ok(arrival)
    }
}

/// Folder beside the target in which a clone is built.
fn aside(found: &RemoteCheckpoint, to: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name()?);
    name.push(format!(".clone-{}", found.workspace));
    Some(to.with_file_name(name))
}

/// Visits what a checkpoint needs; a missing or damaged object is a failure of the remote.
fn reach(
    packs: &Packs,
    checkpoint: &Checkpoint,
    progress: &dyn Progress,
    visit: &mut dyn FnMut(ObjectId) -> bool,
) -> Result<(), Error> {
    each_object(packs, checkpoint, progress, visit).map_err(|error| match error {
        Error::Object(ObjectError::Interrupted) => ObjectError::Interrupted.into(),
        Error::Object(source) => broken("a pack", &source),
        other => other,
    })
}

/// Reads and checks the record of a published checkpoint.
fn checkpoint_of(remote: &Remote, found: &RemoteCheckpoint, packs: &Packs) -> Result<Record, Error> {
    let what = format!("checkpoint {}", found.id);
    let push =
        packs.document.as_ref().ok_or_else(|| damaged(&*what, "its last pack has no push document"))?;
    let id = push.record_of(found.id).ok_or_else(|| damaged(&*what, "its push does not name it"))?;
    if remote.record_key(id) != found.record {
        return Err(damaged(&*what, "its row names another record"));
    }
    let bytes = packs.get(ObjectKind::Document, id).map_err(|error| broken(&what, &error))?;
    let Some(Kept::Record(mut record)) = Kept::read(&bytes) else {
        return Err(damaged(&*what, "its record has an unsupported format"));
    };
    if record.checkpoint.id != found.id || record.checkpoint.workspace_id != Some(found.workspace) {
        return Err(damaged(&*what, "its record is that of another checkpoint"));
    }
    let manifest: Manifest =
        document::load(packs, record.checkpoint.integrity).map_err(|error| broken(&what, &error))?;
    let own = found.workspace.to_string();
    for part in &manifest.parts {
        let is_own = match part.kind {
            // Another folder is memory of an agent; only a home that knows the folder as that takes it.
            PartKind::Files => part.key == own || part.key.parse::<WorkspaceId>().is_ok(),
            PartKind::Git | PartKind::GitFolder => part.key == own,
            PartKind::Thread => ThreadKey::from_part_key(&part.key)
                .is_some_and(|key| key.workspace.is_none_or(|workspace| workspace == found.workspace)),
            PartKind::Plan | PartKind::Session | PartKind::Agent | PartKind::Outside(_) => true,
        };
        if !is_own {
            return Err(damaged(
                &*what,
                format!("its part {} {:?} is of another workspace", part.kind, part.key),
            ));
        }
    }
    // Memory goes with the files of the workspace, never in their place.
    let mut files = manifest.parts.iter().filter(|part| part.kind == PartKind::Files).peekable();
    if files.peek().is_some() && files.all(|part| part.key != own) {
        return Err(damaged(&*what, "its files are of another workspace"));
    }
    let checkpoint = &mut record.checkpoint;
    checkpoint.parts = manifest.parts;
    (checkpoint.role, checkpoint.rollback_used, checkpoint.rollback_count) = (None, false, 0);
    Ok(*record)
}

impl CheckpointManager {
    /// Stores the objects of a checkpoint and reads what its parts bring.
    fn arrive(&self, record: &Record, packs: &Packs, progress: &dyn Progress) -> Result<Arrival, Error> {
        let workspace = record.checkpoint.workspace_id;
        let writer = self.store.writer()?;
        let (mut seen, mut failed) = (HashSet::new(), None);
        reach(packs, &record.checkpoint, progress, &mut |id| {
            if failed.is_some() || !seen.insert(id) {
                return false;
            }
            let adopted = packs.frame(id).and_then(|(object, frame)| writer.adopt(&object, &frame));
            failed = adopted.err();
            failed.is_none()
        })?;
        match failed {
            Some(error @ (ObjectError::Missing { .. } | ObjectError::Damaged { .. })) => {
                return Err(broken("a pack", &error));
            }
            Some(error) => return Err(error.into()),
            None => {}
        }
        for part in &record.checkpoint.parts {
            if matches!(part.kind, PartKind::Files | PartKind::GitFolder) {
                shape::check(packs, part.document)?;
            }
        }
        let mut checkpoint = record.checkpoint.clone();
        self.leave_strange_memory(&mut checkpoint, &writer)?;
        checkpoint.size_bytes = writer.stored_bytes()?;
        writer.finish()?;
        let recorded = workspace.and_then(|id| record.workspaces.iter().find(|it| it.id == id));
        let name = recorded.map_or_else(|| "workspace".to_owned(), |it| it.name.clone());
        let (plans, sessions) = (Vec::new(), Vec::new());
        let (agents, threads) = (Vec::new(), Vec::new());
        let objects = seen.len() as u64;
        let turns = record.turns.clone();
        let mut arrival =
            Arrival { checkpoint, name, plans, sessions, agents, threads, turns, bytes: 0, objects };
        for part in &record.checkpoint.parts {
            self.read_part(record, part, &mut arrival)?;
        }
        Ok(arrival)
    }

    /// Removes memory of agents whose folders this home does not know: a rollback could not restore it.
    fn leave_strange_memory(&self, checkpoint: &mut Checkpoint, writer: &Writer<'_>) -> Result<(), Error> {
        let mut strange = HashSet::new();
        for (id, part) in memory_parts(checkpoint) {
            let known = self.catalog.workspace(id)?;
            if known.is_none_or(|known| known.kind != WorkspaceKind::Agent) {
                strange.insert(part.key.clone());
            }
        }
        if strange.is_empty() {
            return Ok(());
        }
        checkpoint.parts.retain(|part| part.kind != PartKind::Files || !strange.contains(&part.key));
        checkpoint.integrity = document::store(writer, &Manifest::new(checkpoint.parts.clone()))?;
        checkpoint
            .warnings
            .push("memory of agents was not taken: this home does not have its folder".to_owned());
        Ok(())
    }

    fn read_part(&self, record: &Record, part: &PartRecord, arrival: &mut Arrival) -> Result<(), Error> {
        let refused = |why: &str| damaged(format!("part {} {:?}", part.kind, part.key), why);
        match part.kind {
            PartKind::Plan => {
                let state: Plan = plan::document::load(&self.store, part.document)?;
                let about = record.plans.iter().find(|plan| plan.id == part.key);
                let about = about.filter(|about| Some(about.workspace_id) == record.checkpoint.workspace_id);
                let about = about.ok_or_else(|| refused("its record does not describe it"))?;
                if state.id != part.key {
                    return Err(refused("it is another plan"));
                }
                if let Some(known) = self.catalog.plan(&state.id)?
                    && known.workspace_id != about.workspace_id
                {
                    return Err(Error::PlanHere { id: state.id });
                }
                arrival.plans.push((state, about.clone()));
            }
            PartKind::Session => {
                arrival.sessions.push(SessionDocument::load(&self.store, part.document)?);
            }
            PartKind::Agent => arrival.agents.push(Agent::load(&self.store, part.document)?),
            PartKind::Thread => {
                arrival.threads.extend(ThreadKey::from_part_key(&part.key).map(|key| (key, part.document)));
            }
            PartKind::Files | PartKind::Git | PartKind::GitFolder | PartKind::Outside(_) => {}
        }
        Ok(())
    }

    /// Writes the rows of a fetched checkpoint. With a folder, it also registers the workspace, whose position it becomes.
    fn land(
        &self,
        transaction: &Transaction<'_>,
        (name, found): (&str, &RemoteCheckpoint),
        arrival: &Arrival,
        root: Option<&PathBuf>,
    ) -> Result<(), Error> {
        let at = self.environment.now();
        let checkpoint = &arrival.checkpoint;
        let workspace: WorkspaceId = found.workspace;
        if let Some(root) = root {
            if transaction.workspace(workspace)?.is_some()
                || transaction.workspace_at(root.as_os_str().as_bytes())?.is_some()
            {
                return Err(Error::WorkspaceHere { path: root.clone() });
            }
            let folder = root.file_name().map(|name| name.to_string_lossy().into_owned());
            transaction.register_workspace(&Workspace {
                id: workspace,
                root: root.as_os_str().as_bytes().to_vec(),
                name: folder.unwrap_or_else(|| arrival.name.clone()),
                created_at: at,
                head: None,
                removed_at: None,
                kind: WorkspaceKind::Project,
            })?;
        }
        for (state, about) in &arrival.plans {
            if transaction.plan(&state.id)?.is_none() {
                transaction.insert_plan(state, workspace, at)?;
                transaction.raise_plan_version(&state.id, about.version)?;
            }
        }
        for session in &arrival.sessions {
            if transaction.session(session.id)?.is_none() {
                transaction.insert_session(&session_of(session))?;
            }
        }
        for agent in &arrival.agents {
            if transaction.agent(&agent.name)?.is_none() {
                transaction.save_agent(agent, "fetched", at)?;
            }
        }
        for (key, document) in &arrival.threads {
            self.restore_thread(transaction, key, *document)?;
        }
        for turn in arrival.turns.iter().filter(|turn| turn.workspace_id == workspace) {
            // One that was open is over: its agent works on another machine.
            let closed_at = turn.closed_at.or(Some(checkpoint.created_at));
            transaction.restore_turn(&Turn { closed_at, ..turn.clone() })?;
        }
        transaction.restore_checkpoint(checkpoint)?;
        for (_, about) in
            arrival.plans.iter().filter(|(plan, _)| checkpoint.plan_id.as_ref() == Some(&plan.id))
        {
            let (version, healthy) = (about.version, about.healthy);
            let link = PlanCheckpoint { checkpoint: checkpoint.id, version, healthy };
            transaction.link_plan_checkpoint(&about.id, &link)?;
        }
        if root.is_some() {
            transaction.set_head(workspace, checkpoint.id)?;
        }
        let published = PublishedAt { checkpoint: checkpoint.id, line: found.line, seq: found.seq };
        transaction.note_published(name, &[published], at)?;
        let payload = json!({ "remote": name, "line": found.line, "seq": found.seq });
        Ok(transaction.append_event(at, "checkpoint.fetched", &checkpoint.id.to_string(), &payload)?)
    }
}
