//! Effects of rollbacks on turns: which lost their work, and which got it back.
//!
//! A turn stands in a checkpoint if the checkpoint at its end is that one or an ancestor of it. So turns made after a rollback are
//! never counted, whatever their ids and times. Where retention deleted the ancestors that would decide, no turn is named.

use super::TurnWork;
use crate::handles::Turns;
use crate::rollback::RolledBack;
use crate::{Against, Error};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::Role;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::rollback::{Action, Rollback, RollbackState, Verb};
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId};
use std::collections::{BTreeSet, HashMap};

/// Undos of undos that are followed.
const ANSWERS_MAX: usize = 100;

/// Extent to which the work of a turn is undone or restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every path.
    Whole,
    /// Some paths.
    Part,
}

/// Turn whose work a rollback undid or restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedTurn {
    /// The turn.
    pub turn: Turn,
    /// Extent.
    pub extent: Extent,
}

/// Effects of one or more rollbacks of a workspace.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RollbackEffects {
    /// Rollbacks that count, oldest first: those that another one of them took back are left out.
    pub rollbacks: Vec<Rollback>,
    /// Turns whose work is undone, by number.
    pub undone: Vec<TouchedTurn>,
    /// Turns whose work is there again, by number.
    pub restored: Vec<TouchedTurn>,
    /// Label of the checkpoint that all of the workspace was rolled back to last.
    pub target: Option<String>,
    /// Guidance that was given with corrections of plans.
    pub guidance: Vec<String>,
}

impl Turns<'_> {
    /// Returns the effects of rollbacks, given oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn effects(
        &self,
        workspace: &Workspace,
        rollbacks: &[Rollback],
        progress: &dyn Progress,
    ) -> Result<RollbackEffects, Error> {
        let counted = standing(rollbacks);
        let Some(last) = counted.last() else { return Ok(RollbackEffects::default()) };
        let history = History::read(self, workspace, progress)?;
        let (mut undone, mut restored) = (Vec::new(), Vec::new());
        for rollback in &counted {
            let effect = history.effect(rollback, 0)?;
            move_turns(effect.undone, &mut restored, &mut undone);
            move_turns(effect.restored, &mut undone, &mut restored);
        }
        undone.sort_by_key(|touched| touched.turn.number);
        restored.sort_by_key(|touched| touched.turn.number);
        // With chosen paths, the workspace is not in the state of the checkpoint.
        let target = match last.paths.is_empty() {
            true => self.manager.checkpoints().get(last.to).ok(),
            false => None,
        };
        let target = target.filter(|checkpoint| checkpoint.role != Some(Role::Safety));
        let guidance = self.guidance(workspace, &counted)?;
        let target = target.and_then(|checkpoint| checkpoint.label);
        Ok(RollbackEffects { rollbacks: counted, undone, restored, target, guidance })
    }

    /// Returns the turns whose work a rollback undid in a workspace, newest first, with those of their paths that it changed; for a
    /// preview, those that it would.
    ///
    /// # Errors
    /// When the catalog or a checkpoint cannot be read.
    pub fn undone_by(
        &self,
        workspace: &Workspace,
        done: &RolledBack,
        progress: &dyn Progress,
    ) -> Result<Vec<TurnWork>, Error> {
        let folder = done.folders.iter().find(|folder| folder.record.workspace_id == workspace.id);
        let Some(folder) = folder else { return Ok(Vec::new()) };
        let changed = folder.outline.paths.iter().filter(|changed| changed.action != Action::Kept);
        let changed: BTreeSet<RelPath> = changed.map(|changed| changed.path.clone()).collect();
        if changed.is_empty() || self.list(workspace, Some(1))?.is_empty() {
            return Ok(Vec::new());
        }
        // The changed paths are compared here, whichever were chosen.
        let record = Rollback { paths: Vec::new(), ..folder.record.clone() };
        let touched = History::read(self, workspace, progress)?.effect(&record, 0)?.undone;
        let turns: Vec<Turn> = touched.into_iter().map(|touched| touched.turn).collect();
        let mut works = self.work_of(workspace, &turns, progress)?;
        works.iter_mut().for_each(|work| work.paths.retain(|path| is_hit(&changed, path)));
        // No checkpoint has the changes of an open turn: they are what no other turn made.
        let known: BTreeSet<RelPath> = works.iter().flat_map(|work| work.paths.iter().cloned()).collect();
        for turn in turns.into_iter().filter(|turn| turn.after.is_none()) {
            let rest = changed.difference(&known).cloned();
            match works.iter().position(|work| work.turn.number == turn.number) {
                Some(at) => works[at].paths.extend(rest),
                None => works.push(TurnWork { paths: rest.collect(), turn }),
            }
        }
        works.retain(|work| !work.paths.is_empty());
        works.sort_by_key(|work| std::cmp::Reverse(work.turn.number));
        Ok(works)
    }

    /// Guidance of the corrections that made these rollbacks.
    fn guidance(&self, workspace: &Workspace, rollbacks: &[Rollback]) -> Result<Vec<String>, Error> {
        let ids: BTreeSet<String> = rollbacks.iter().map(|rollback| rollback.id.to_string()).collect();
        let mut found = Vec::new();
        for plan in self.manager.catalog.plans(Some(workspace.id))? {
            for note in self.manager.catalog.plan_notes(&plan.id)? {
                let is_of = note.kind == PlanNoteKind::Correction
                    && note.body["rollback"].as_str().is_some_and(|id| ids.contains(id));
                found.extend(note.body["guidance"].as_str().filter(|_| is_of).map(str::to_owned));
            }
        }
        Ok(found)
    }
}

/// Returns true if a path, or a folder around it, is among these.
fn is_hit(changed: &BTreeSet<RelPath>, path: &RelPath) -> bool {
    let mut next = Some(path.clone());
    while let Some(path) = next {
        if changed.contains(&path) {
            return true;
        }
        next = path.split_last().map(|(above, _)| above);
    }
    false
}

/// Rollbacks that were done and that none of the others took back.
fn standing(rollbacks: &[Rollback]) -> Vec<Rollback> {
    let mut counted: Vec<Rollback> = Vec::new();
    for rollback in rollbacks {
        if !matches!(rollback.state, RollbackState::Done | RollbackState::Settled) {
            continue;
        }
        let answered = rollback.answers.and_then(|id| counted.iter().position(|known| known.id == id));
        match answered {
            Some(at) if counted[at].paths == rollback.paths => drop(counted.remove(at)),
            _ => counted.push(rollback.clone()),
        }
    }
    counted
}

/// Takes turns out of one list; those that it lacks are added to the other.
fn move_turns(turns: Vec<TouchedTurn>, from: &mut Vec<TouchedTurn>, to: &mut Vec<TouchedTurn>) {
    for touched in turns {
        let number = touched.turn.number;
        match from.iter().position(|known| known.turn.number == number) {
            Some(at) => drop(from.remove(at)),
            None if to.iter().any(|known| known.turn.number == number) => {}
            None => to.push(touched),
        }
    }
}

#[derive(Default)]
struct Effect {
    undone: Vec<TouchedTurn>,
    restored: Vec<TouchedTurn>,
}

/// Turns and checkpoints of a workspace.
struct History<'a> {
    turns: &'a Turns<'a>,
    workspace: &'a Workspace,
    progress: &'a dyn Progress,
    rollbacks: HashMap<RollbackId, Rollback>,
    parents: HashMap<CheckpointId, Option<CheckpointId>>,
}

/// Ancestors of a checkpoint, beginning with itself.
struct Lineage {
    ids: Vec<CheckpointId>,
    /// True if it reaches the first checkpoint of the workspace.
    is_complete: bool,
}

impl<'a> History<'a> {
    fn read(
        turns: &'a Turns<'a>,
        workspace: &'a Workspace,
        progress: &'a dyn Progress,
    ) -> Result<Self, Error> {
        let parents = turns.manager.catalog.checkpoint_parents(workspace.id)?;
        let rollbacks = turns.manager.rollbacks(workspace)?;
        Ok(Self {
            turns,
            workspace,
            progress,
            rollbacks: rollbacks.into_iter().map(|rollback| (rollback.id, rollback)).collect(),
            parents: parents.into_iter().collect(),
        })
    }

    fn lineage(&self, of: Option<CheckpointId>) -> Lineage {
        let mut ids: Vec<CheckpointId> = Vec::new();
        let mut next = of;
        while let Some(id) = next {
            ids.push(id);
            match self.parents.get(&id) {
                // A parent is older. A ring would be damage.
                Some(parent) if ids.len() <= self.parents.len() => next = *parent,
                _ => return Lineage { ids, is_complete: false },
            }
        }
        Lineage { ids, is_complete: true }
    }

    /// Ancestors that each of two lineages has alone.
    fn parted(old: &Lineage, new: &Lineage) -> (Vec<CheckpointId>, Vec<CheckpointId>) {
        let of_new: BTreeSet<_> = new.ids.iter().collect();
        match old.ids.iter().position(|id| of_new.contains(id)) {
            Some(at) => {
                let joint = old.ids[at];
                let gained = new.ids.iter().take_while(|id| **id != joint).copied().collect();
                (old.ids[..at].to_vec(), gained)
            }
            None if old.is_complete && new.is_complete => (old.ids.clone(), new.ids.clone()),
            None => (Vec::new(), Vec::new()),
        }
    }

    fn effect(&self, rollback: &Rollback, depth: usize) -> Result<Effect, Error> {
        let answered = rollback.answers.and_then(|id| self.rollbacks.get(&id));
        if matches!(rollback.verb, Verb::Undo | Verb::Redo)
            && let Some(answered) = answered.filter(|_| depth < ANSWERS_MAX)
        {
            let Effect { undone, restored } = self.effect(answered, depth + 1)?;
            return Ok(Effect { undone: restored, restored: undone });
        }
        let old = self.lineage(rollback.safety_checkpoint.or(rollback.from));
        let (lost, gained) = Self::parted(&old, &self.lineage(Some(rollback.to)));
        let touched: Vec<CheckpointId> = lost.iter().chain(&gained).chain([&rollback.to]).copied().collect();
        let turns = self.turns.manager.catalog.turns_with(self.workspace.id, &touched)?;
        let set = |ids: &[CheckpointId]| -> BTreeSet<CheckpointId> { ids.iter().copied().collect() };
        let (old, lost, gained) = (set(&old.ids), set(&lost), set(&gained));
        let mut effect = Effect::default();
        for turn in &turns {
            let ended_in =
                |ids: &BTreeSet<CheckpointId>| turn.after.is_some_and(|after| ids.contains(&after));
            let has_changed = turn.changes != Some([0; 3]);
            if (ended_in(&lost) && has_changed) || Self::is_cut(turn, rollback, (&old, &lost)) {
                effect.undone.extend(self.touched(turn, rollback)?);
            } else if ended_in(&gained) && has_changed {
                effect.restored.extend(self.touched(turn, rollback)?);
            }
        }
        Ok(effect)
    }

    /// Returns true for a turn that was not over at the rollback, which undid what it had done so far.
    fn is_cut(
        turn: &Turn,
        rollback: &Rollback,
        (old, lost): (&BTreeSet<CheckpointId>, &BTreeSet<CheckpointId>),
    ) -> bool {
        let ended_before = turn.closed_at.is_some_and(|at| at < rollback.created_at)
            || turn.after.is_some_and(|after| old.contains(&after) && after != rollback.to);
        let began = turn.before.is_some_and(|before| lost.contains(&before) || before == rollback.to);
        turn.commands > 0 && began && !ended_before && turn.opened_at < rollback.created_at
    }

    /// Returns the turn with the extent to which a rollback touched it; none if of its paths none was chosen.
    fn touched(&self, turn: &Turn, rollback: &Rollback) -> Result<Option<TouchedTurn>, Error> {
        let of = |extent| Some(TouchedTurn { turn: turn.clone(), extent });
        if rollback.paths.is_empty() {
            return Ok(of(Extent::Whole));
        }
        let (Some(before), Some(after)) = (turn.before, turn.after) else { return Ok(None) };
        let checkpoints = self.turns.manager.checkpoints();
        let (Ok(before), Ok(after)) = (checkpoints.get(before), checkpoints.get(after)) else {
            return Ok(None);
        };
        let against = Against::Checkpoint(Box::new(after));
        let changes = self.turns.manager.diff(self.workspace, &before, &against, self.progress)?.changes;
        let changed = self.turns.manager.changed_paths(rollback)?;
        let changed: BTreeSet<RelPath> = changed.into_iter().map(|changed| changed.path).collect();
        let hit = changes.iter().filter(|change| changed.contains(&change.path)).count();
        Ok(match hit {
            0 => None,
            hit if hit == changes.len() => of(Extent::Whole),
            _ => of(Extent::Part),
        })
    }
}
