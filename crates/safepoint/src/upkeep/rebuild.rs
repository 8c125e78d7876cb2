//! REBUILD: restores catalog rows from the records in the packs.
//!
//! Input: every record and tombstone of the store. Output: rows, in one transaction. Existing rows stay;
//! records of deleted checkpoints, and those from before a purge, do not count.

use crate::checkpoint::records::CatalogStanding;
use crate::home::Home;
use crate::threads::recall::Recall;
use crate::threads::room::Room;
use crate::threads::save::Saves;
use crate::upkeep::mark::each_object;
use crate::{CheckpointManager, Environment, Error, Settings};
use safepoint_catalog::{Catalog, CatalogError, PlanCheckpoint, Transaction, Workspace, hold_file};
use safepoint_model::agent::Agent;
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, Role};
use safepoint_model::plan::state::Plan;
use safepoint_model::record::{Kept, Record, RecordedWorkspace};
use safepoint_model::session::{Session, SessionDocument};
use safepoint_model::thread::{ThreadDocument, ThreadKey};
use safepoint_model::{CheckpointId, ObjectId, Progress, RelPath, WorkspaceId, document, plan};
use safepoint_store::{Mark, Store};
use safepoint_workspace::{Lock, Root};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Effect of a repair on the catalog.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Catalog before the repair.
    pub found: CatalogStanding,
    /// Restored checkpoints.
    pub restored: Vec<CheckpointId>,
    /// Checkpoints not restored because directories or documents are missing.
    pub incomplete: Vec<CheckpointId>,
    /// Records that only a newer program can read.
    pub unknown_records: u64,
    /// Facts that the records do not hold, as messages.
    pub unknown: Vec<String>,
    /// Path of the damaged catalog, if it was replaced.
    pub kept_aside: Option<PathBuf>,
}

/// Facts that no record holds.
const UNKNOWN: [&str; 4] = [
    "rollbacks from before the repair cannot be undone; roll back to their safety checkpoints instead",
    "runs of plans that were not finished, and changes of plans, sessions and agents after their last checkpoint, are not known",
    "turns of agents from before the repair are not listed; their checkpoints are, and their numbers are not used again",
    "a checkpoint that was deleted just before is back where its tombstone was lost; delete it again",
];

/// Records and tombstones of a store.
#[derive(Default)]
struct Found {
    /// Records by checkpoint, with the object if it is in a pack.
    records: HashMap<CheckpointId, (Record, Option<ObjectId>)>,
    deleted: HashSet<CheckpointId>,
    purged: HashSet<(CheckpointId, ObjectId)>,
    unknown: u64,
}

impl Found {
    fn add(&mut self, kept: Kept, object: Option<ObjectId>) {
        match kept {
            Kept::Record(record) => {
                let known = self.records.get(&record.checkpoint.id);
                if known.is_none_or(|(known, _)| known.catalog.written() < record.catalog.written()) {
                    self.records.insert(record.checkpoint.id, (*record, object));
                }
            }
            Kept::Tombstone(tombstone) => {
                self.deleted.extend(tombstone.deleted);
                self.purged.extend(tombstone.purged.iter().map(|purged| (purged.id, purged.integrity)));
            }
            Kept::Unknown => self.unknown += 1,
        }
    }

    fn is_void(&self, checkpoint: &Checkpoint) -> bool {
        self.deleted.contains(&checkpoint.id) || self.purged.contains(&(checkpoint.id, checkpoint.integrity))
    }
}

/// Rows that a rebuild writes in its transaction.
#[derive(Default)]
struct Work {
    /// Records in commit order.
    records: Vec<(Record, Option<ObjectId>)>,
    /// All checkpoints from the first restored one on, in commit order.
    order: Vec<CheckpointId>,
    /// Catalog workspace of each recorded workspace.
    homes: HashMap<WorkspaceId, WorkspaceId>,
    workspaces: BTreeMap<WorkspaceId, RecordedWorkspace>,
    plans: BTreeMap<String, (Plan, WorkspaceId, u64)>,
    sessions: BTreeMap<String, SessionDocument>,
    /// Document of each thread in the newest checkpoint that holds it.
    threads: BTreeMap<ThreadKey, ObjectId>,
    agents: BTreeMap<String, Agent>,
    /// The workspace that each agent was bound to last.
    bindings: BTreeMap<String, WorkspaceId>,
}

impl CheckpointManager {
    /// Opens a home for repair. A catalog that cannot be opened, or has damaged pages, is kept aside and
    /// replaced by one built from the records.
    ///
    /// # Errors
    /// As [`CheckpointManager::open_with`], except for catalog damage; or the new catalog cannot be created.
    pub fn open_for_repair(
        home: &Path,
        settings: Settings,
        environment: Box<dyn Environment>,
        progress: &dyn Progress,
    ) -> Result<(Self, Rebuilt), Error> {
        let place = Home::open(home, settings.access, settings.home_owner)?;
        let store = Store::open(&place.store())?;
        if !is_damaged(&place.catalog())? {
            let manager = Self::assemble(place, store, settings, environment)?;
            return Ok((manager, Rebuilt::default()));
        }
        // No process may collect by, or commit to, a catalog that is being replaced.
        let collector = store.hold_collector()?;
        let held = hold_file(&place.catalog());
        let draft = place.draft_catalog().map_err(|source| Error::Home { path: home.to_owned(), source })?;
        let builder = Self {
            catalog: Catalog::open(&draft)?,
            home: place,
            store,
            environment,
            settings,
            standing: Mutex::new(CatalogStanding::New),
            recovered: Mutex::default(),
            saves: Saves::default(),
            recall: Recall::default(),
            room: Room::default(),
            chunk_bytes: AtomicU64::default(),
            inside: Vec::new(),
            _scratch: None,
        };
        let generation = builder.store.mark()?.map_or(0, |mark| mark.generation) + 1;
        builder.catalog.write::<(), Error>(|transaction| Ok(transaction.set_generation(generation)?))?;
        let mut rebuilt = builder.rebuild(progress)?;
        builder.catalog.empty_log()?;
        let Self { home: place, store, catalog, environment, settings, standing, recovered, .. } = builder;
        // SQLite shares what it knows of a log between connections to one file: the draft is closed before it gets another name.
        drop(catalog);
        let kept = place.swap_catalog(&draft);
        drop(held);
        rebuilt.kept_aside = Some(kept.map_err(|source| Error::Home { path: home.to_owned(), source })?);
        let catalog = Catalog::open(&place.catalog())?;
        let manager = Self {
            home: place,
            store,
            catalog,
            environment,
            settings,
            standing,
            recovered,
            saves: Saves::default(),
            recall: Recall::default(),
            room: Room::default(),
            chunk_bytes: AtomicU64::default(),
            inside: Vec::new(),
            _scratch: None,
        };
        manager.upkeep().accept_catalog()?;
        drop(collector);
        Ok((manager, rebuilt))
    }

    /// Opens a home with a damaged catalog for an emergency checkpoint. The checkpoint goes into a temporary
    /// catalog; its record is in the store, from which `repair` restores it.
    ///
    /// # Errors
    /// As [`CheckpointManager::open_with`].
    pub fn open_beside_catalog(
        home: &Path,
        settings: Settings,
        environment: Box<dyn Environment>,
    ) -> Result<Self, Error> {
        let place = Home::open(home, settings.access, settings.home_owner)?;
        let store = Store::open(&place.store())?;
        let failed = |source| Error::Home { path: home.to_owned(), source };
        let scratch =
            place.make_scratch(&format!("catalog-{:032x}", environment.new_id())).map_err(failed)?;
        let catalog = Catalog::open(&scratch.path().join("catalog.db"))?;
        let last = store.mark()?;
        let generation = last.as_ref().map_or(1, |mark| mark.generation) + 1;
        catalog.write::<(), Error>(|transaction| Ok(transaction.set_generation(generation)?))?;
        // The next catalog lacks this checkpoint until a repair.
        let id = last.map_or_else(|| "unknown".to_owned(), |mark| mark.id);
        store.set_mark(&Mark { id, generation, seq: 0, hash: [0; 32] })?;
        let standing = Mutex::new(CatalogStanding::New);
        let (recovered, _scratch) = (Mutex::default(), Some(scratch));
        let (saves, chunk_bytes) = (Saves::default(), AtomicU64::default());
        Ok(Self {
            home: place,
            store,
            catalog,
            environment,
            settings,
            standing,
            recovered,
            saves,
            recall: Recall::default(),
            room: Room::default(),
            chunk_bytes,
            inside: Vec::new(),
            _scratch,
        })
    }

    /// Restores missing rows from the records, in one transaction.
    pub(crate) fn rebuild(&self, progress: &dyn Progress) -> Result<Rebuilt, Error> {
        let _using = self.store.using()?;
        let mut rebuilt = Rebuilt { found: self.upkeep().catalog_standing(), ..Rebuilt::default() };
        let found = self.find_records()?;
        rebuilt.unknown_records = found.unknown;
        let work = self.plan_rebuild(&found, progress, &mut rebuilt)?;
        if !work.records.is_empty() {
            let _merged = self.hold_merged(&work)?;
            self.home.forget_last_without_access();
            self.catalog.write(|transaction| self.carry_rebuild(transaction, &work))?;
            // A concurrent capture may have recorded it again.
            self.home.forget_last_without_access();
            rebuilt.restored = work.records.iter().map(|(record, _)| record.checkpoint.id).collect();
            rebuilt.unknown = UNKNOWN.iter().map(|text| (*text).to_owned()).collect();
        }
        Ok(rebuilt)
    }

    /// Locks the folders whose workspace is merged into another, so that no capture uses the old one.
    fn hold_merged(&self, work: &Work) -> Result<Vec<(Root, Lock)>, Error> {
        let mut held = Vec::new();
        for recorded in work.workspaces.values().filter(|it| work.homes.get(&it.id) == Some(&it.id)) {
            let now = self.catalog.workspace_at(&[b"/", recorded.root.as_bytes()].concat())?;
            if let Some(now) = now.filter(|now| now.id != recorded.id)
                && let Ok(root) = Root::open(now.root_path())
            {
                let lock = root.lock(self.settings.lock_wait)?;
                held.push((root, lock));
            }
        }
        Ok(held)
    }

    fn find_records(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        self.store.documents(|id, bytes| {
            if let Some(kept) = Kept::read(bytes) {
                found.add(kept, Some(id));
            }
        })?;
        for document in self.store.kept_for_later()? {
            if let Some(kept) = Kept::read(&document) {
                found.add(kept, None);
            }
        }
        for (id, integrity) in self.catalog.tombstones()? {
            match integrity {
                None => drop(found.deleted.insert(id)),
                Some(integrity) => drop(found.purged.insert((id, integrity))),
            }
        }
        Ok(found)
    }

    fn plan_rebuild(
        &self,
        found: &Found,
        progress: &dyn Progress,
        rebuilt: &mut Rebuilt,
    ) -> Result<Work, Error> {
        let mut all: Vec<(Record, Option<ObjectId>)> = found
            .records
            .values()
            .filter(|(record, _)| !found.is_void(&record.checkpoint))
            .cloned()
            .collect();
        all.sort_by_key(|(record, _)| (record.catalog.committed(), record.checkpoint.id));
        let mut work = Work::default();
        // Older multi-folder checkpoints name the first workspace of a folder.
        let mut by_root: HashMap<RelPath, WorkspaceId> = HashMap::new();
        for workspace in all.iter().flat_map(|(record, _)| &record.workspaces) {
            let home = *by_root.entry(workspace.root.clone()).or_insert(workspace.id);
            work.homes.insert(workspace.id, home);
            work.workspaces.entry(workspace.id).or_insert_with(|| workspace.clone());
        }
        for (record, object) in all {
            if progress.interrupted() {
                return Err(safepoint_workspace::WorkspaceError::Interrupted.into());
            }
            if self.catalog.checkpoint(record.checkpoint.id)?.is_some() {
                if !work.records.is_empty() {
                    work.order.push(record.checkpoint.id);
                }
                continue;
            }
            match self.load_parts(&record, progress, &mut work) {
                Ok(checkpoint) => {
                    let mut record = record;
                    record.checkpoint = checkpoint;
                    work.order.push(record.checkpoint.id);
                    work.records.push((record, object));
                }
                Err(Error::Object(_)) => rebuilt.incomplete.push(record.checkpoint.id),
                Err(other) => return Err(other),
            }
        }
        Ok(work)
    }

    /// Loads plans, sessions and agents of a checkpoint, and checks that no directory or document is missing.
    fn load_parts(
        &self,
        record: &Record,
        progress: &dyn Progress,
        work: &mut Work,
    ) -> Result<Checkpoint, Error> {
        let mut checkpoint = record.checkpoint.clone();
        let manifest: Manifest = document::load(&self.store, checkpoint.integrity)?;
        checkpoint.parts = manifest.parts;
        let mut seen = HashSet::new();
        each_object(&self.store, &checkpoint, progress, &mut |id| seen.insert(id))?;
        for part in &checkpoint.parts {
            match part.kind {
                PartKind::Plan => {
                    let Some(about) = record.plans.iter().find(|plan| plan.id == part.key) else { continue };
                    let state: Plan = plan::document::load(&self.store, part.document)?;
                    work.plans.insert(part.key.clone(), (state, about.workspace_id, about.version));
                }
                PartKind::Session => {
                    let session = SessionDocument::load(&self.store, part.document)?;
                    work.sessions.insert(session.id.to_uuid(), session);
                }
                PartKind::Agent => {
                    let agent = Agent::load(&self.store, part.document)?;
                    // A checkpoint of a workspace holds the agents that are bound to it.
                    let bound = checkpoint.workspace_id;
                    work.bindings.extend(bound.map(|workspace| (agent.name.clone(), workspace)));
                    work.agents.insert(agent.name.clone(), agent);
                }
                PartKind::Thread => {
                    ThreadDocument::load(&self.store, part.document)?;
                    let key = ThreadKey::from_part_key(&part.key);
                    work.threads.extend(key.map(|key| (key, part.document)));
                }
                PartKind::Files | PartKind::Git | PartKind::GitFolder | PartKind::Outside(_) => {}
            }
        }
        Ok(checkpoint)
    }

    fn carry_rebuild(&self, transaction: &Transaction<'_>, work: &Work) -> Result<(), Error> {
        let at = self.environment.now();
        for workspace in work.workspaces.values() {
            self.restore_workspace(transaction, work, workspace)?;
        }
        for (id, (state, workspace, version)) in &work.plans {
            let workspace = work.homes.get(workspace).copied().unwrap_or(*workspace);
            match transaction.plan(id)? {
                None => transaction.insert_plan(state, workspace, at)?,
                Some(known) if known.version < *version => {
                    transaction.save_plan(state, "repaired", at)?;
                }
                Some(_) => {}
            }
            transaction.raise_plan_version(id, *version)?;
        }
        for session in work.sessions.values() {
            if transaction.session(session.id)?.is_none() {
                transaction.insert_session(&session_of(session))?;
            }
        }
        for agent in work.agents.values() {
            if transaction.agent(&agent.name)?.is_none() {
                transaction.save_agent(agent, "repaired", at)?;
                if let Some(workspace) = work.bindings.get(&agent.name) {
                    let workspace = work.homes.get(workspace).copied().unwrap_or(*workspace);
                    transaction.bind_agent(&agent.name, workspace, at)?;
                }
            }
        }
        for (key, document) in &work.threads {
            let home = |id: &WorkspaceId| work.homes.get(id).copied().unwrap_or(*id);
            let key = ThreadKey { workspace: key.workspace.as_ref().map(home), id: key.id.clone() };
            self.restore_thread(transaction, &key, *document)?;
        }
        let mut heads = BTreeMap::new();
        for (record, object) in &work.records {
            let mut checkpoint = record.checkpoint.clone();
            let home = |id: &WorkspaceId| work.homes.get(id).copied().unwrap_or(*id);
            checkpoint.workspace_id = checkpoint.workspace_id.as_ref().map(home);
            transaction.restore_checkpoint(&checkpoint)?;
            if let (Some(object), true) = (object, checkpoint.workspace_id == record.checkpoint.workspace_id)
            {
                transaction.set_record(&checkpoint, *object)?;
            }
            for plan in record.plans.iter().filter(|plan| checkpoint.plan_id.as_ref() == Some(&plan.id)) {
                let (version, healthy) = (plan.version, plan.healthy);
                let link = PlanCheckpoint { checkpoint: checkpoint.id, version, healthy };
                transaction.link_plan_checkpoint(&plan.id, &link)?;
            }
            if checkpoint.role != Some(Role::Rescue) {
                let files = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Files);
                let ids = files.filter_map(|part| part.key.parse::<WorkspaceId>().ok());
                heads.extend(ids.map(|id| (home(&id), checkpoint.id)));
            }
        }
        work.order.iter().try_for_each(|id| transaction.move_checkpoint_last(*id))?;
        for (workspace, head) in heads {
            if transaction.workspace(workspace)?.is_some_and(|workspace| workspace.head.is_none()) {
                transaction.set_head(workspace, head)?;
            }
        }
        let payload = serde_json::json!({ "restored": work.records.len() });
        Ok(transaction.append_event(at, "catalog.rebuilt", "catalog", &payload)?)
    }

    /// Registers a workspace again. Merges it into the workspace that now has its folder, if any.
    fn restore_workspace(
        &self,
        transaction: &Transaction<'_>,
        work: &Work,
        recorded: &RecordedWorkspace,
    ) -> Result<(), Error> {
        if transaction.workspace(recorded.id)?.is_some() {
            return Ok(());
        }
        let at = self.environment.now();
        let root = [b"/", recorded.root.as_bytes()].concat();
        let is_home = work.homes.get(&recorded.id) == Some(&recorded.id);
        let now = transaction.workspace_at(&root)?;
        if let (Some(now), true) = (&now, is_home) {
            transaction.remove_workspace(now.id, at)?;
        }
        transaction.register_workspace(&Workspace {
            id: recorded.id,
            root,
            name: recorded.name.clone(),
            created_at: recorded.created_at,
            head: None,
            removed_at: (!is_home).then_some(at),
            kind: recorded.kind,
        })?;
        match now {
            Some(now) if is_home => Ok(transaction.merge_workspace(now.id, recorded.id, at)?),
            _ => Ok(()),
        }
    }
}

/// Returns true if the catalog or its pages are damaged.
fn is_damaged(path: &Path) -> Result<bool, Error> {
    match Catalog::open(path).and_then(|catalog| catalog.has_damaged_pages()) {
        Ok(damaged) => Ok(damaged),
        Err(error @ CatalogError::Newer { .. }) => Err(error.into()),
        Err(CatalogError::Foreign { .. }) => Ok(true),
        Err(error) if error.is_damaged() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn session_of(document: &SessionDocument) -> Session {
    let mut session = Session::new(document.id, document.request.clone(), document.created_at);
    session.put_back(document, document.updated_at);
    session.statistics = document.statistics;
    session
}
