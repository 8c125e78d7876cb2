//! REPAIR: recovers data from the packs, another copy or the workspaces, and reports losses.

use crate::checkpoint::records::CatalogStanding;
use crate::config::Broken;
use crate::handles::Upkeep;
use crate::parts::files::FilesPart;
use crate::rollback::recover::Recovery;
use crate::upkeep::rebuild::Rebuilt;
use crate::upkeep::validate::DamagedPart;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::{CheckpointId, ObjectId, Progress};
use safepoint_store::{Depth, Health};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Result of a repair.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Repair {
    /// Objects that were unreadable at the start.
    pub damaged_objects: u64,
    /// Packs moved to quarantine, with the damaged objects in them.
    pub quarantined: Vec<String>,
    /// Quarantine folder.
    pub quarantine: PathBuf,
    /// Objects stored again from workspaces.
    pub stored_anew: u64,
    /// Workspaces that could not be read, with the reason.
    pub skipped: Vec<String>,
    /// Data still missing or damaged, by checkpoint and path.
    pub lost: Vec<DamagedPart>,
    /// Catalog errors.
    pub errors: Vec<String>,
    /// Checkpoints that can be restored completely.
    pub restorable: Vec<CheckpointId>,
    /// Effect on the catalog.
    pub catalog: Rebuilt,
    /// Crash recovery that ran in the workspaces.
    pub recovered: Recovery,
}

impl Repair {
    /// Returns true if everything can be restored.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.errors.is_empty()
    }
}

impl CheckpointManager {
    /// Rewrites missing and damaged records, and writes pending ones.
    fn renew_records(&self) -> Result<(), Error> {
        let mut lost = Vec::new();
        for (id, record) in self.catalog.records()? {
            if self.store.check(Depth::Deep, record)? != Health::Intact {
                lost.push(id);
            }
        }
        if !lost.is_empty() {
            self.catalog.write::<(), Error>(|transaction| {
                Ok(lost.iter().try_for_each(|id| transaction.renew_record(*id))?)
            })?;
        }
        let _using = self.store.using()?;
        self.write_waiting()
    }

    /// Reads a whole workspace without its cache, and stores missing objects.
    fn store_anew(&self, workspace: &Workspace, progress: &dyn Progress) -> Result<u64, Error> {
        let held = self.hold(workspace)?;
        self.recover_held(workspace, &held.root, progress)?;
        let writer = self.store.writer()?.beyond_limit().among_damage();
        let excludes = self.config_at(Some(&held.root), Broken::PassedOver)?.excludes;
        FilesPart::new(self, &held.root, workspace, excludes).scan_afresh(&writer, progress)?;
        Ok(writer.finish()?.objects)
    }
}

impl Upkeep<'_> {
    /// Rebuilds the index, stores missing and damaged objects again from workspaces, and quarantines damaged
    /// packs.
    ///
    /// # Errors
    /// Fails if store or catalog fail; losses are in the result.
    pub fn repair(&self, progress: &dyn Progress) -> Result<Repair, Error> {
        let mark = self.manager.recovery_mark();
        let mut repair = Repair { quarantine: self.manager.store.quarantine_dir(), ..Repair::default() };
        self.manager.store.rebuild_index()?;
        let report = self.manager.store.validate(Depth::Deep, &|_, _| {})?;
        let damaged: BTreeSet<ObjectId> = report.damaged.iter().filter_map(|damage| damage.object).collect();
        let packs: BTreeSet<&String> = report.damaged.iter().map(|damage| &damage.pack).collect();
        repair.damaged_objects = damaged.len() as u64;
        for id in damaged {
            self.manager.store.forget_damaged(id)?;
        }
        for workspace in self.manager.workspaces().list()? {
            match self.manager.store_anew(&workspace, progress) {
                Ok(objects) => repair.stored_anew += objects,
                Err(error) => repair.skipped.push(format!("{}: {error}", workspace.root_path().display())),
            }
        }
        for pack in packs {
            if self.manager.store.quarantine(pack)?.is_some() {
                repair.quarantined.push(pack.clone());
            }
        }
        repair.catalog.found = self.catalog_standing();
        if repair.catalog.found != CatalogStanding::Known {
            repair.catalog = self.manager.rebuild(progress)?;
            self.accept_catalog()?;
        }
        self.manager.renew_records()?;
        let validation = self.validate(None, Depth::Quick, progress)?;
        repair.lost = validation.damaged;
        repair.errors = validation.errors;
        repair.restorable = validation.restorable;
        repair.recovered = self.manager.recovered_since(mark);
        Ok(repair)
    }
}
