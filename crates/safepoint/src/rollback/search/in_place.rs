//! Candidates in the folders themselves, for checks that need their paths.
//!
//! A probe is a rollback that is undone instead of published: its intent is on record while the check runs, so that recovery undoes
//! it after a crash. Other changes by a check are undone at the end, by a rollback to the state in which the search began;
//! that one is on record, because it may displace an edit of the user's.

use super::{RunCheck, Scoped, Seat, Stand, TryIn};
use crate::config::Broken;
use crate::folders::files_of;
use crate::manager::Held;
use crate::parts::agent::AgentPart;
use crate::parts::files::snapshot;
use crate::parts::{Member, seal};
use crate::rollback::strategy::Verdict;
use crate::rollback::{Request, RollbackOptions};
use crate::{CheckpointManager, Error, Silent};
use safepoint_model::Progress;
use safepoint_model::change::deltas;
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, Reason, Role};
use safepoint_model::rollback::{Strategy, Verb};
use safepoint_model::tree::Owners;

/// Folders in which candidates are tried.
pub(super) struct InPlace<'m> {
    manager: &'m CheckpointManager,
    scope: Scoped,
    /// Parts to restore for a probe: files, and nothing that is on record.
    options: RollbackOptions,
    /// The state in which the search began.
    began: Checkpoint,
}

impl<'m> InPlace<'m> {
    /// Keeps what the folders are.
    pub(super) fn begin(
        manager: &'m CheckpointManager,
        scope: Scoped,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let parts = match scope.at {
            Some(_) => vec![PartKind::Files],
            // The folders of agents go with these.
            None => vec![PartKind::Files, PartKind::Agent],
        };
        let strategy = Some(Strategy::Progressive);
        let options = RollbackOptions { parts, times: options.times, strategy, ..RollbackOptions::default() };
        let (held, _) = manager.hold_all(&scope.places, progress)?;
        let began = keep(manager, &scope, &held, progress)?;
        drop(held);
        Ok(Self { manager, scope, options, began })
    }

    /// True if a check changed the state from before the search.
    fn is_changed(&self) -> Result<bool, Error> {
        let (held, _) = self.manager.hold_all(&self.scope.places, &Silent)?;
        for (place, held) in self.scope.places.iter().zip(&held) {
            let Some(part) = files_of(&self.began, place.workspace.id) else { continue };
            let before = snapshot(&self.manager.store, part.document)?;
            let config = self.manager.config_at(Some(&held.root), Broken::PassedOver)?;
            let measurer = self.manager.store.measurer();
            let part = place.part(self.manager, held, config.excludes);
            let now = part.scan(&measurer, before.tree(), &Silent)?.snapshot;
            if let (Some(before), Some(now)) = (before.tree(), now.tree())
                && !deltas(&measurer, before, now, Owners::Compared)?.is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Puts a checkpoint of the folders on record.
fn keep(
    manager: &CheckpointManager,
    scope: &Scoped,
    held: &[Held],
    progress: &dyn Progress,
) -> Result<Checkpoint, Error> {
    let mut members = Vec::new();
    for (at, (place, held)) in scope.places.iter().zip(held).enumerate() {
        held.root.check_own_folder()?;
        let config = manager.config_at(Some(&held.root), Broken::PassedOver)?;
        members.push(Member::new(place.part(manager, held, config.excludes), at, None));
    }
    let mut names: Vec<&str> = scope.agents.iter().map(|agent| agent.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        // They say what of their folders is theirs. One that is not registered any more must not come back.
        if let Some(now) = manager.catalog.agent(name)? {
            members.push(Member::new(AgentPart { manager, now: now.agent, bind: None }, 0, None));
        }
    }
    let writer = manager.store.writer()?;
    manager.capture(&mut members, &writer, progress)?;
    let mut began = manager.blank(scope.at);
    began.scope = scope.scope;
    began.label = Some("before a search in place".to_owned());
    (began.kind, began.reason) = (Kind::Automatic, Reason::PreRiskyOperation);
    began.role = Some(Role::Safety);
    seal(&mut began, &members, &scope.places, &writer)?;
    let stored = manager.finish_with_record(writer, &mut began, &[])?;
    manager.catalog.write::<(), Error>(|transaction| {
        transaction.insert_checkpoint(&began)?;
        stored.note(transaction)
    })?;
    Ok(began)
}

impl Stand for InPlace<'_> {
    fn current(&mut self, check: RunCheck<'_>, _: &dyn Progress) -> Result<Verdict, Error> {
        let here = self.scope.here.root_path();
        check(&Seat { directory: here, target: here, through: &[] })
    }

    fn place(&self) -> TryIn {
        TryIn::Workspace
    }

    fn candidate(
        &mut self,
        to: &Checkpoint,
        check: RunCheck<'_>,
        progress: &dyn Progress,
    ) -> Result<Verdict, Error> {
        let request = Request::new(Verb::Rollback, self.scope.at, to.clone(), &self.options);
        let here = self.scope.here.root_path();
        let mut verdict = None;
        let mut look = || {
            verdict = Some(check(&Seat { directory: here, target: here, through: &[] })?);
            Ok(())
        };
        self.manager.probe_state(&request, &mut look, progress)?;
        verdict.ok_or(Error::NoFiles { checkpoint: to.id })
    }

    fn finish(self: Box<Self>) -> Result<bool, Error> {
        // A failed undo of a probe is retried when the folders are held.
        let changed = self.is_changed()?;
        let Self { manager, scope, options, began } = *self;
        match changed {
            true => {
                let at = scope.at.map(|at| manager.workspaces().get(at)).transpose()?;
                manager.rollback(at.as_ref(), began.id, &options, &Silent)?;
            }
            false => manager.forget(&[began.id])?,
        }
        Ok(changed)
    }
}
