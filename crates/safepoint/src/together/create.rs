//! One checkpoint of many folders, with one commit.

use super::{Place, Whole};
use crate::config::Broken;
use crate::create::{CreateOptions, Urgency};
use crate::manager::Held;
use crate::part::{Captured, Part};
use crate::parts::git::Noted;
use crate::{CheckpointManager, DryRun, Error};
use safepoint_model::agent::{AgentRecord, WorkspaceKind};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord, Scope, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::{CheckpointId, Progress, RollbackId, WorkspaceId, document};
use safepoint_store::Writer;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A checkpoint of many folders that was just made.
#[derive(Debug, Clone)]
pub struct CreatedTogether {
    /// Its record.
    pub checkpoint: Checkpoint,
    /// What it left out of each folder.
    pub coverage: Vec<(WorkspaceId, Coverage)>,
    /// How many folders, plans and agents it holds.
    pub counts: Counts,
    /// Checkpoints that retention let go after it.
    pub pruned: Vec<CheckpointId>,
}

/// How many things a checkpoint holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Folders.
    pub places: usize,
    /// Plans.
    pub plans: usize,
    /// Agents.
    pub agents: usize,
}

impl CheckpointManager {
    /// Takes a checkpoint of an agent, or of everything. When this returns, it is durable.
    ///
    /// # Errors
    /// When there is no such agent, a folder is busy or cannot be read, or store or catalog fail; there is no checkpoint then.
    pub fn create_together(
        &self,
        whole: &Whole,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<CreatedTogether, Error> {
        let Some(any) = self.catalog.workspaces()?.into_iter().next() else {
            return self.create_whole(whole, options, progress);
        };
        let act = || self.create_whole(whole, options, progress);
        let (mut created, mut pruned) = self.within_cap(&any, DryRun::No, progress, act)?;
        pruned.extend(self.tend_together());
        created.pruned = pruned;
        Ok(created)
    }

    fn create_whole(
        &self,
        whole: &Whole,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<CreatedTogether, Error> {
        let agents = self.agents_of(whole)?;
        let places = self.places(whole, &agents)?;
        let held = self.hold_all(&places.all, progress)?;
        let writer = self.store.writer()?;
        let before = Before { targets: &[], answers: None };
        let mut captured =
            self.capture_all(&places.all, &held, &before, options.urgency, &writer, progress)?;
        let mut parts: Vec<PartRecord> = places
            .all
            .iter()
            .zip(&captured)
            .map(|(place, captured)| PartRecord {
                kind: PartKind::Files,
                key: place.workspace.id.to_string(),
                document: captured.document,
            })
            .collect();
        let plans = if *whole == Whole::Framework { self.active_plans()? } else { Vec::new() };
        for record in &plans {
            parts.push(crate::parts::plan::capture(&writer, &record.plan)?);
        }
        for record in &agents {
            let document = document::store(&writer, &record.agent)?;
            parts.push(PartRecord { kind: PartKind::Agent, key: record.agent.name.clone(), document });
        }
        let mut notes = Vec::new();
        for (place, held) in places.all.iter().zip(&held) {
            notes.push(self.note_git_of(place, held, &writer, progress)?);
        }
        let mut checkpoint = self.blank_whole(whole, &writer, parts)?;
        notes.iter().try_for_each(|noted| noted.add_to(&mut checkpoint, &writer))?;
        checkpoint.label = options.label.clone();
        (checkpoint.kind, checkpoint.reason, checkpoint.phase) =
            (options.kind, options.reason, options.phase);
        checkpoint.session_id = options.session_id.clone().or_else(|| self.settings.session_id.clone());
        checkpoint.source_tool = options.source_tool.clone();
        (checkpoint.pinned, checkpoint.progress) = (options.pinned, options.progress);
        checkpoint.files = totals(&captured);
        checkpoint.warnings.extend(captured.iter().flat_map(|captured| captured.warnings.clone()));
        for (place, captured) in places.all.iter().zip(&captured) {
            let root = place.workspace.root_path().display();
            let emptied = self.emptied(place.workspace.id, captured.totals)?;
            checkpoint.warnings.extend(emptied.map(|warning| format!("{root}: {warning}")));
        }
        checkpoint
            .warnings
            .extend(places.missing.iter().map(|path| format!("{} is not there", path.display())));
        let stored = self.finish_with_record(writer, &mut checkpoint, &plans.iter().collect::<Vec<_>>())?;
        self.catalog.write::<(), Error>(|transaction| {
            transaction.insert_checkpoint(&checkpoint)?;
            stored.note(transaction)?;
            for record in &plans {
                crate::parts::plan::unchanged(transaction, record)?;
            }
            for place in &places.all {
                transaction.set_head(place.workspace.id, checkpoint.id)?;
            }
            Ok(())
        })?;
        for (captured, noted) in captured.iter_mut().zip(&mut notes) {
            self.keep_cache(&checkpoint, &mut captured.cache);
            self.keep_cache(&checkpoint, &mut noted.cache);
        }
        let counts = Counts { places: places.all.len(), plans: plans.len(), agents: agents.len() };
        let coverage = places.all.iter().map(|place| place.workspace.id);
        let coverage = coverage.zip(captured.into_iter().map(|captured| captured.coverage)).collect();
        Ok(CreatedTogether { checkpoint, coverage, counts, pruned: Vec::new() })
    }

    /// The state of the repository around a folder. Settings that cannot be understood were refused before, or are passed over.
    fn note_git_of(
        &self,
        place: &Place,
        held: &Held,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Noted, Error> {
        if place.workspace.kind == WorkspaceKind::Agent {
            return Ok(Noted::default());
        }
        let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
        let root = place.workspace.root_path().display();
        let mut noted =
            self.note_git(&place.part(self, held, Vec::new()), config.git, None, writer, progress)?;
        noted.warnings = noted.warnings.iter().map(|warning| format!("{root}: {warning}")).collect();
        Ok(noted)
    }

    pub(super) fn agents_of(&self, whole: &Whole) -> Result<Vec<AgentRecord>, Error> {
        match whole {
            Whole::Agent(name) => Ok(vec![self.agent(name)?]),
            Whole::Framework => self.agents(),
        }
    }

    /// Every plan that is not over.
    fn active_plans(&self) -> Result<Vec<safepoint_catalog::PlanRecord>, Error> {
        let plans = self.catalog.plans(None)?;
        plans.iter().filter(|plan| !plan.state.is_over()).map(|plan| self.plan(&plan.id)).collect()
    }

    /// A record of many folders with nothing in it but what every one has.
    pub(super) fn blank_whole(
        &self,
        whole: &Whole,
        writer: &Writer<'_>,
        parts: Vec<PartRecord>,
    ) -> Result<Checkpoint, Error> {
        let manifest = Manifest::new(parts);
        let integrity = document::store(writer, &manifest)?;
        let scope = match whole {
            Whole::Agent(_) => Scope::Agent,
            Whole::Framework => Scope::Framework,
        };
        Ok(Checkpoint { workspace_id: None, scope, ..self.blank_of(None, integrity, manifest.parts) })
    }

    /// Takes all folders for this process, in their order, and puts in order what a crash left in them.
    pub(super) fn hold_all(&self, places: &[Place], progress: &dyn Progress) -> Result<Vec<Held>, Error> {
        let mut held = Vec::new();
        for place in places {
            let one = self.hold(&place.workspace)?;
            self.recover_held(&place.workspace, &one.root, progress)?.refuse_foreign(&place.workspace)?;
            held.push(one);
        }
        Ok(held)
    }

    /// Captures all folders, side by side.
    pub(super) fn capture_all(
        &self,
        places: &[Place],
        held: &[Held],
        before: &Before<'_>,
        urgency: Urgency,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Captured>, Error> {
        let broken = if urgency == Urgency::Ordinary { Broken::Refused } else { Broken::PassedOver };
        let one = |at: usize| -> Result<Captured, Error> {
            let config = self.config_at(Some(&held[at].root), broken)?;
            let mut part = places[at].part(self, &held[at], config.excludes);
            part.covered = self.covered(places[at].workspace.id, before.answers)?;
            part.capture(writer, before.targets.get(at).and_then(Option::as_ref), progress)
        };
        let results: Vec<Mutex<Option<Result<Captured, Error>>>> =
            places.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(places.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(slot) = results.get(at) else { break };
                        let captured = one(at);
                        if let Ok(mut slot) = slot.lock() {
                            *slot = Some(captured);
                        }
                    }
                });
            }
        });
        let taken = results.into_iter().map(|slot| slot.into_inner().ok().flatten());
        taken
            .map(|captured| {
                captured.unwrap_or_else(|| Err(safepoint_workspace::WorkspaceError::Interrupted.into()))
            })
            .collect()
    }
}

/// What a capture comes before.
pub(super) struct Before<'a> {
    /// The states that a rollback is about to go to.
    pub(super) targets: &'a [Option<PartRecord>],
    /// The rollback that it answers.
    pub(super) answers: Option<RollbackId>,
}

fn totals(captured: &[Captured]) -> Totals {
    let mut sum = Totals::default();
    for Captured { totals, .. } in captured {
        sum.count += totals.count;
        sum.bytes += totals.bytes;
    }
    sum
}
