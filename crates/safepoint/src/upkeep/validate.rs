//! VALIDATE: checks that everything a checkpoint needs exists and is intact.

use crate::handles::Upkeep;
use crate::parts::git;
use crate::threads::chain::{Visit, each_ancestor};
use crate::threads::trim::check_values;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{EventCheck, Filter, RoleFilter};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind};
use safepoint_model::content::Content;
use safepoint_model::files::FilesDocument;
use safepoint_model::outside::OutsideDocument;
use safepoint_model::plan;
use safepoint_model::progress::Activity;
use safepoint_model::session::SessionDocument;
use safepoint_model::thread::ThreadDocument;
use safepoint_model::tree::Node;
use safepoint_model::{CheckpointId, ObjectError, ObjectId, Progress, RelPath, document};
use safepoint_store::{Depth, Health};
use safepoint_workspace::WorkspaceError;
use std::collections::{HashMap, HashSet};

/// Missing or damaged data of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPart {
    /// Checkpoint that cannot be restored completely.
    pub checkpoint: Option<CheckpointId>,
    /// Affected path, if there is one.
    pub path: Option<RelPath>,
    /// Affected object, if known.
    pub object: Option<ObjectId>,
    /// Damage.
    pub what: String,
}

/// Result of a validation.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Validation {
    /// Checkpoints checked.
    pub checkpoints: u64,
    /// Objects checked.
    pub objects: u64,
    /// Stored bytes checked.
    pub bytes: u64,
    /// Damaged objects.
    pub damaged: Vec<DamagedPart>,
    /// Catalog errors.
    pub errors: Vec<String>,
    /// Checkpoints that can be restored completely.
    pub restorable: Vec<CheckpointId>,
    /// Bytes of a killed writer. They were never committed; the next checkpoint removes them.
    pub unfinished_bytes: u64,
}

impl Validation {
    /// Returns true if valid.
    pub fn is_valid(&self) -> bool {
        self.damaged.is_empty() && self.errors.is_empty()
    }
}

impl CheckpointManager {
    /// Checks that the records named by the catalog are in the store. A checkpoint without its record can
    /// still be restored.
    fn validate_records(&self, validation: &mut Validation) -> Result<(), Error> {
        let broken: HashSet<ObjectId> =
            validation.damaged.iter().filter_map(|damage| damage.object).collect();
        for (id, record) in self.catalog.records()? {
            let what = match self.store.check(Depth::Quick, record)? {
                Health::Intact if !broken.contains(&record) => continue,
                Health::Missing => "its record is missing".to_owned(),
                Health::Intact | Health::Damaged(_) => "its record is damaged".to_owned(),
            };
            let (checkpoint, path, object) = (Some(id), None, Some(record));
            validation.damaged.push(DamagedPart { checkpoint, path, object, what });
        }
        Ok(())
    }

    fn validate_store(
        &self,
        depth: Depth,
        progress: &dyn Progress,
        validation: &mut Validation,
    ) -> Result<(), Error> {
        let last = std::cell::Cell::new(0);
        let report = self.store.validate(depth, &|done, total| {
            if last.get() == 0 {
                progress.expect(total);
            }
            progress.advance(0, done.saturating_sub(last.replace(done)));
        })?;
        validation.objects = report.objects;
        validation.bytes = report.bytes;
        validation.unfinished_bytes = report.unfinished_bytes;
        validation.damaged.extend(report.damaged.into_iter().map(|damage| DamagedPart {
            checkpoint: None,
            path: None,
            object: damage.object,
            what: format!("pack {}: {}", damage.pack, damage.what),
        }));
        Ok(())
    }

    /// Checks that every value of a thread can be read.
    fn validate_threads(&self, validation: &mut Validation) -> Result<(), Error> {
        let (bad, packed) = self.read_values(check_values)?;
        validation.errors.extend(bad);
        for id in packed {
            let what = match self.store.check(Depth::Quick, id)? {
                Health::Intact => continue,
                Health::Missing => "a piece of a thread is missing".to_owned(),
                Health::Damaged(why) => format!("a piece of a thread is damaged: {why}"),
            };
            let (checkpoint, path, object) = (None, None, Some(id));
            validation.damaged.push(DamagedPart { checkpoint, path, object, what });
        }
        Ok(())
    }

    fn validate_one(
        &self,
        checkpoint: &Checkpoint,
        depth: Depth,
        known: &mut HashMap<ObjectId, Health>,
        progress: &dyn Progress,
        validation: &mut Validation,
    ) -> Result<(), Error> {
        let damaged_objects: HashSet<ObjectId> =
            validation.damaged.iter().filter_map(|damage| damage.object).collect();
        let mut check = Check {
            manager: self,
            id: checkpoint.id,
            depth,
            known,
            progress,
            damaged_objects,
            found: Vec::new(),
            counts: (0, 0),
        };
        check.checkpoint(checkpoint)?;
        let Check { found, counts, .. } = check;
        validation.checkpoints += 1;
        if depth == Depth::Deep || validation.objects == 0 {
            validation.objects += counts.0;
            validation.bytes += counts.1;
        }
        if found.is_empty() {
            validation.restorable.push(checkpoint.id);
        }
        validation.damaged.extend(found);
        Ok(())
    }
}

impl Upkeep<'_> {
    /// Checks one checkpoint, or all checkpoints with the whole store and the catalog.
    ///
    /// # Errors
    /// Fails if store or catalog fail; damage is in the result.
    pub fn validate(
        &self,
        checkpoint: Option<&Checkpoint>,
        depth: Depth,
        progress: &dyn Progress,
    ) -> Result<Validation, Error> {
        let mut validation = Validation::default();
        let mut known = HashMap::new();
        progress.begin(Activity::Checking, None);
        match checkpoint {
            Some(checkpoint) => {
                let _using = self.manager.store.using()?;
                self.manager.validate_one(checkpoint, depth, &mut known, progress, &mut validation)?;
            }
            None => {
                self.manager.validate_store(depth, progress, &mut validation)?;
                // Taken only now: a running collection waits for users of the store, and the store check
                // waits for it.
                let _using = self.manager.store.using()?;
                validation.errors.extend(self.manager.catalog.check()?);
                self.manager.validate_records(&mut validation)?;
                self.manager.validate_threads(&mut validation)?;
                let all = Filter { role: RoleFilter::Any, ..Filter::default() };
                for checkpoint in self.manager.catalog.checkpoints(&all)? {
                    // The store check has just read every byte if requested; only presence is left to check.
                    self.manager.validate_one(
                        &checkpoint,
                        Depth::Quick,
                        &mut known,
                        progress,
                        &mut validation,
                    )?;
                }
            }
        }
        progress.end();
        Ok(validation)
    }

    /// Checks the whole catalog: pages, references and rows. Returns the errors as messages.
    ///
    /// # Errors
    /// Fails if the catalog cannot be read for a reason other than damage.
    pub fn check_catalog(&self) -> Result<Vec<String>, Error> {
        Ok(self.manager.catalog.check()?)
    }

    /// Verifies the event chain from the start.
    ///
    /// # Errors
    /// Fails if the catalog cannot be read.
    pub fn check_history(&self) -> Result<EventCheck, Error> {
        Ok(self.manager.catalog.verify_events()?)
    }
}

/// Walk over everything that one checkpoint needs.
struct Check<'a> {
    manager: &'a CheckpointManager,
    id: CheckpointId,
    depth: Depth,
    /// Objects checked already, for this checkpoint or another.
    known: &'a mut HashMap<ObjectId, Health>,
    progress: &'a dyn Progress,
    /// Objects that the store check found damaged.
    damaged_objects: HashSet<ObjectId>,
    found: Vec<DamagedPart>,
    counts: (u64, u64),
}

impl Check<'_> {
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if !self.object(None, checkpoint.integrity)? {
            return Ok(());
        }
        let manifest: Manifest = match document::load(&self.manager.store, checkpoint.integrity) {
            Ok(manifest) => manifest,
            Err(error) => return self.report(None, error),
        };
        let mut recorded = checkpoint.parts.clone();
        recorded.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        if manifest.parts != recorded {
            self.found.push(DamagedPart {
                checkpoint: Some(self.id),
                path: None,
                object: Some(checkpoint.integrity),
                what: "the catalog lists other parts than the checkpoint was made of".to_owned(),
            });
        }
        // The state of an imported plan that does not exist here is kept outside the parts.
        let is_part = |state: &ObjectId| manifest.parts.iter().any(|part| part.document == *state);
        if let Some(state) = checkpoint.state_snapshot.filter(|state| !is_part(state)) {
            self.plan(state)?;
        }
        for part in manifest.parts {
            if part.kind == PartKind::Plan {
                self.plan(part.document)?;
            } else if part.kind == PartKind::Git {
                self.git(part.document)?;
            } else if matches!(part.kind, PartKind::Outside(_)) {
                self.outside(part.document)?;
            } else if part.kind == PartKind::Thread {
                self.thread(part.document)?;
            } else if part.kind == PartKind::Session {
                self.session(part.document)?;
            } else if self.object(None, part.document)?
                && matches!(part.kind, PartKind::Files | PartKind::GitFolder)
            {
                self.files(part.document)?;
            }
        }
        Ok(())
    }

    /// Checks a plan with all its pages.
    fn plan(&mut self, id: ObjectId) -> Result<(), Error> {
        let mut needed = Vec::new();
        let walked = plan::document::objects(&self.manager.store, id, &mut |id| {
            needed.push(id);
            true
        });
        let found = self.found.len();
        for id in needed {
            self.object(None, id)?;
        }
        match walked {
            // The unreadable object was just reported.
            Err(_) if self.found.len() > found => Ok(()),
            Err(error) => self.report(None, error),
            Ok(()) => Ok(()),
        }
    }

    /// Checks the git state of a repository: document, refs, index.
    fn git(&mut self, id: ObjectId) -> Result<(), Error> {
        if !self.object(None, id)? {
            return Ok(());
        }
        let (refs, contents) = match git::needed(&self.manager.store, id) {
            Ok(needed) => needed,
            Err(error) => return self.report(None, error),
        };
        self.object(None, refs)?;
        contents.iter().try_for_each(|content| self.content(None, content))
    }

    /// Checks a part of another program: its document and contents.
    fn outside(&mut self, id: ObjectId) -> Result<(), Error> {
        if !self.object(None, id)? {
            return Ok(());
        }
        match OutsideDocument::load(&self.manager.store, id) {
            Ok(document) => {
                let mut contents = document.contents.into_iter().map(Content::from);
                contents.try_for_each(|content| self.content(None, &content))
            }
            Err(error) => self.report(None, error),
        }
    }

    /// Checks a thread: its document, the ancestors of its heads, and their values.
    fn thread(&mut self, id: ObjectId) -> Result<(), Error> {
        if !self.object(None, id)? {
            return Ok(());
        }
        let document = match ThreadDocument::load(&self.manager.store, id) {
            Ok(document) => document,
            Err(error) => return self.report(None, error),
        };
        document.contents().iter().try_for_each(|content| self.content(None, content))?;
        let found = self.found.len();
        let walked = each_ancestor(&document, &self.manager.store, &mut |step| match step {
            Visit::Document(id) => self.object(None, id),
            Visit::State(state) => {
                state.contents().iter().try_for_each(|content| self.content(None, content))?;
                Ok(true)
            }
        });
        match walked {
            // The unreadable object was just reported.
            Err(Error::Object(_)) if self.found.len() > found => Ok(()),
            Err(Error::Object(error)) => self.report(None, error),
            other => other,
        }
    }

    /// Checks the document of a session.
    fn session(&mut self, id: ObjectId) -> Result<(), Error> {
        if !self.object(None, id)? {
            return Ok(());
        }
        match SessionDocument::load(&self.manager.store, id) {
            Ok(_) => Ok(()),
            Err(error) => self.report(None, error),
        }
    }

    fn files(&mut self, id: ObjectId) -> Result<(), Error> {
        let document = match FilesDocument::load(&self.manager.store, id) {
            Ok(document) => document,
            Err(error) => return self.report(None, error),
        };
        self.object(None, document.coverage)?;
        match document.tree() {
            Some(tree) => self.tree(&RelPath::root(), tree),
            None => Ok(()),
        }
    }

    /// Checks one directory. Reports a damaged one once and goes on with its siblings.
    fn tree(&mut self, path: &RelPath, id: ObjectId) -> Result<(), Error> {
        let seen_intact = self.known.get(&id) == Some(&Health::Intact);
        if !self.object(Some(path), id)? {
            return Ok(());
        }
        // Below a tree that was walked without a finding, nothing new can be found.
        if seen_intact
            && self.depth == Depth::Quick
            && self.found.is_empty()
            && self.damaged_objects.is_empty()
        {
            return Ok(());
        }
        let tree = match safepoint_model::tree::Tree::load(&self.manager.store, id) {
            Ok(tree) => tree,
            Err(error) => return self.report(Some(path), error),
        };
        for entry in tree.entries() {
            let below = path.join(&entry.name)?;
            match &entry.node {
                Node::Directory(tree) => self.tree(&below, *tree)?,
                Node::File(content) => self.content(Some(&below), content)?,
                Node::Symlink(_) => {}
            }
        }
        Ok(())
    }

    fn content(&mut self, path: Option<&RelPath>, content: &Content) -> Result<(), Error> {
        self.progress.advance(1, 0);
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted.into());
        }
        if !self.object(path, content.id)? {
            return Ok(());
        }
        match content.chunks(&self.manager.store) {
            Ok(pieces) => {
                for piece in pieces {
                    self.object(path, piece.id)?;
                }
                Ok(())
            }
            Err(error) => self.report(path, error),
        }
    }

    /// Checks an object; returns true if it is usable.
    fn object(&mut self, path: Option<&RelPath>, id: ObjectId) -> Result<bool, Error> {
        let health = match self.known.get(&id) {
            Some(health) => health.clone(),
            None => {
                let health = if self.damaged_objects.contains(&id) {
                    Health::Damaged("its bytes are not what was written".to_owned())
                } else {
                    self.manager.store.check(self.depth, id)?
                };
                self.counts.0 += 1;
                self.counts.1 += self.manager.store.stored_bytes(id)?.unwrap_or(0);
                self.known.insert(id, health.clone());
                health
            }
        };
        let what = match health {
            Health::Intact => return Ok(true),
            Health::Missing => "it is missing".to_owned(),
            Health::Damaged(what) => what,
        };
        self.found.push(DamagedPart {
            checkpoint: Some(self.id),
            path: path.cloned(),
            object: Some(id),
            what,
        });
        Ok(false)
    }

    fn report(&mut self, path: Option<&RelPath>, error: ObjectError) -> Result<(), Error> {
        let (object, what) = match error {
            ObjectError::Missing { id } => (Some(id), "it is missing".to_owned()),
            ObjectError::Damaged { id, what } => (Some(id), what),
            other => return Err(other.into()),
        };
        self.found.push(DamagedPart { checkpoint: Some(self.id), path: path.cloned(), object, what });
        Ok(())
    }
}
