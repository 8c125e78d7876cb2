//! VALIDATE: whether what a checkpoint needs is there, and whether it is what was written.

use crate::parts::git;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{EventCheck, Filter, RoleFilter};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind};
use safepoint_model::content::Content;
use safepoint_model::files::FilesDocument;
use safepoint_model::outside::OutsideDocument;
use safepoint_model::plan;
use safepoint_model::progress::Activity;
use safepoint_model::session::SessionDocument;
use safepoint_model::tree::Node;
use safepoint_model::{CheckpointId, ObjectError, ObjectId, Progress, RelPath, document};
use safepoint_store::{Depth, Health};
use safepoint_workspace::WorkspaceError;
use std::collections::{HashMap, HashSet};

/// Something that a checkpoint needs and that is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPart {
    /// Which checkpoint cannot be restored whole because of it.
    pub checkpoint: Option<CheckpointId>,
    /// Which path, where it is one path's.
    pub path: Option<RelPath>,
    /// Which object, where it is known.
    pub object: Option<ObjectId>,
    /// What is wrong.
    pub what: String,
}

/// What a validation found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Validation {
    /// How many checkpoints were looked at.
    pub checkpoints: u64,
    /// How many objects.
    pub objects: u64,
    /// How many bytes, as they are stored.
    pub bytes: u64,
    /// Everything that is wrong with objects.
    pub damaged: Vec<DamagedPart>,
    /// Everything that is wrong with the catalog.
    pub errors: Vec<String>,
    /// The checkpoints that can be restored whole.
    pub restorable: Vec<CheckpointId>,
    /// Bytes that a killed writer left unfinished. They never counted; the next checkpoint removes them.
    pub unfinished_bytes: u64,
}

impl Validation {
    /// Whether nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.damaged.is_empty() && self.errors.is_empty()
    }
}

impl CheckpointManager {
    /// Checks one checkpoint, or every one with the whole store and the catalog.
    ///
    /// # Errors
    /// When store or catalog fail as such; damage is in the result.
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
                let _using = self.store.using()?;
                self.validate_one(checkpoint, depth, &mut known, progress, &mut validation)?;
            }
            None => {
                self.validate_store(depth, progress, &mut validation)?;
                // Only now: a collection that runs waits for whoever uses the store, and the look at the store waits for it.
                let _using = self.store.using()?;
                validation.errors.extend(self.catalog.check()?);
                self.validate_records(&mut validation)?;
                let all = Filter { role: RoleFilter::Any, ..Filter::default() };
                for checkpoint in self.catalog.checkpoints(&all)? {
                    // The store has just read every byte, if that was asked for; what is left is whether all is there.
                    self.validate_one(&checkpoint, Depth::Quick, &mut known, progress, &mut validation)?;
                }
            }
        }
        progress.end();
        Ok(validation)
    }

    /// Looks the whole catalog over: its pages, its references and its rows. What is wrong is in the answer, in words; empty
    /// means fine.
    ///
    /// # Errors
    /// When the catalog cannot be read for a reason other than damage.
    pub fn check_catalog(&self) -> Result<Vec<String>, Error> {
        Ok(self.catalog.check()?)
    }

    /// Follows the chain of events from the first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn check_history(&self) -> Result<EventCheck, Error> {
        Ok(self.catalog.verify_events()?)
    }

    /// Sees whether the records that the catalog names are in the store. A checkpoint without its record can still be restored.
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
        let report = self.store.validate(depth, &|done, _| {
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

/// A walk over everything that one checkpoint needs.
struct Check<'a> {
    manager: &'a CheckpointManager,
    id: CheckpointId,
    depth: Depth,
    /// Objects that were looked at already, for this checkpoint or another.
    known: &'a mut HashMap<ObjectId, Health>,
    progress: &'a dyn Progress,
    /// Objects that a look at the whole store found damaged.
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
        // The state of an imported plan that is none here is kept without being a part.
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

    /// A plan with all its pages.
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
            // What could not be read is among what was just looked at.
            Err(_) if self.found.len() > found => Ok(()),
            Err(error) => self.report(None, error),
            Ok(()) => Ok(()),
        }
    }

    /// The state of a repository: the document, its refs, its index.
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

    /// A part of another program: its document, and everything that it keeps.
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

    /// A session: its document alone.
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

    /// One directory. A damaged one is reported once, and what is beside it is still looked at.
    fn tree(&mut self, path: &RelPath, id: ObjectId) -> Result<(), Error> {
        let seen_intact = self.known.get(&id) == Some(&Health::Intact);
        if !self.object(Some(path), id)? {
            return Ok(());
        }
        // Below a tree that was walked without a finding there is nothing new, whoever needs it.
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

    /// Looks at one object; says whether it can be used.
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
