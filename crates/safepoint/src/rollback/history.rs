//! HISTORY: every rollback, undo, redo and correction of a workspace, with those that were refused or failed.

use crate::folders::is_together;
use crate::rollback::{Request, RollbackOptions};
use crate::{CheckpointManager, DryRun, Error};
use safepoint_catalog::{PlanNote, PlanRecord, Workspace};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::rollback::{Rollback, RollbackState, Verb};
use safepoint_model::{CheckpointId, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// One entry of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened {
    /// Id of the rollback; of a correction without one, the plan and the number of the attempt or of the refusal.
    pub id: String,
    /// `rollback`, `undo`, `redo`, `apply` or `correct`.
    pub verb: &'static str,
    /// The plan that was corrected.
    pub plan: Option<String>,
    /// The user and, where known, the agent.
    pub actor: String,
    /// When it began.
    pub at: Timestamp,
    /// The checkpoint that the workspace was at.
    pub from: Option<CheckpointId>,
    /// The checkpoint that it went to, or would have.
    pub to: Option<CheckpointId>,
    /// The strategy of a rollback, or the mode of a correction.
    pub strategy: String,
    /// `done`, `failed`, `refused` or `unfinished`.
    pub result: &'static str,
    /// Reason of refusal or failure.
    pub error: Option<String>,
}

impl CheckpointManager {
    /// The history of a workspace and of the sandboxes of its plans, newest first. Without a workspace: rollbacks of several folders,
    /// each once.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn history<'w>(&self, at: impl Into<Option<&'w Workspace>>) -> Result<Vec<Happened>, Error> {
        match at.into() {
            Some(workspace) => self.history_of_one(workspace),
            None => self.history_of_many(),
        }
    }

    fn history_of_many(&self) -> Result<Vec<Happened>, Error> {
        let mut all = BTreeMap::new();
        for workspace in self.catalog.workspaces()? {
            for record in self.catalog.rollbacks(workspace.id)? {
                let Some(together) = record.together else { continue };
                let target = self.catalog.checkpoint(record.to)?;
                // The records of a workspace and of the memory of its agents share an id, too.
                if target.is_none_or(|target| is_together(&target)) {
                    let entry = || Happened {
                        id: together.to_string(),
                        from: None,
                        ..rolled_back(&record, &BTreeMap::new())
                    };
                    all.entry(together).or_insert_with(entry);
                }
            }
        }
        let mut happened: Vec<Happened> = all.into_values().collect();
        happened.sort_by_key(|it| std::cmp::Reverse(it.at));
        Ok(happened)
    }

    fn history_of_one(&self, workspace: &Workspace) -> Result<Vec<Happened>, Error> {
        let mut places = BTreeSet::from([workspace.id]);
        let (mut corrections, mut happened) = (BTreeMap::new(), Vec::new());
        for plan in self.catalog.plans(Some(workspace.id))? {
            let record = self.plans().get(&plan.id)?;
            places.extend(self.place_of(&record).ok().map(|place| place.id));
            for note in self.catalog.plan_notes(&plan.id)? {
                match note.body["rollback"].as_str() {
                    Some(rollback) if note.kind == PlanNoteKind::Correction => {
                        corrections.insert(rollback.to_owned(), plan.id.clone());
                    }
                    _ => happened.extend(corrected(&plan.id, &note)),
                }
            }
        }
        for place in places {
            let records = self.catalog.rollbacks(place)?;
            happened.extend(records.iter().map(|record| rolled_back(record, &corrections)));
        }
        happened.sort_by_key(|it| it.at);
        happened.reverse();
        Ok(happened)
    }

    /// Puts on record that a correction of a plan was refused.
    pub(crate) fn note_refused_correction(&self, plan: &str, mode: &str, error: &Error) {
        let body = json!({ "mode": mode, "error": error.to_string(), "actor": self.environment.actor() });
        let at = self.environment.now();
        let _ = self.catalog.write::<(), Error>(|transaction| {
            Ok(transaction.note_plan(plan, PlanNoteKind::CorrectionRefused, &body, at)?)
        });
    }

    /// Puts on record that the caller of the library refused a rollback, such as one that a checkpoint without git state cannot serve. A
    /// preview is not recorded.
    pub fn note_refused_rollback<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        to: &Checkpoint,
        options: &RollbackOptions,
        error: &Error,
    ) {
        if options.dry_run == DryRun::Yes {
            return;
        }
        let at = at.into().map(|workspace| workspace.id);
        let request = Request::new(Verb::Rollback, at, to.clone(), options);
        self.note_refusal(&self.records_of(&request).unwrap_or_default(), error);
    }

    /// Puts on record that a rollback of a plan was refused before it began.
    pub(crate) fn note_refused_plan(
        &self,
        plan: &PlanRecord,
        to: &Checkpoint,
        options: &RollbackOptions,
        error: &Error,
    ) {
        let place = self.place_of(plan).or_else(|_| self.workspaces().get(plan.workspace_id));
        if let Ok(place) = place {
            self.note_refused_rollback(&place, to, options, error);
        }
    }
}

fn rolled_back(record: &Rollback, corrections: &BTreeMap<String, String>) -> Happened {
    let plan = corrections.get(&record.id.to_string()).cloned();
    Happened {
        id: record.id.to_string(),
        verb: if plan.is_some() { "correct" } else { record.verb.as_str() },
        plan,
        actor: record.actor.clone(),
        at: record.created_at,
        from: record.from,
        to: Some(record.to),
        strategy: record.strategy.as_str().to_owned(),
        result: match record.state {
            RollbackState::Done | RollbackState::Settled => "done",
            RollbackState::Aborted => "failed",
            RollbackState::Refused => "refused",
            RollbackState::Applying => "unfinished",
        },
        error: record.error.clone(),
    }
}

/// A correction that no rollback stands for: a step was added or changed, or it was refused.
fn corrected(plan: &str, note: &PlanNote) -> Option<Happened> {
    let text = |key: &str| note.body[key].as_str().map(str::to_owned);
    let result = match note.kind.as_str() {
        "correction" => "done",
        "correction_refused" => "refused",
        _ => return None,
    };
    let number = match &note.body["attempt"] {
        Value::Number(number) => number.to_string(),
        _ => format!("refused-{}", note.number),
    };
    Some(Happened {
        id: format!("{plan}#{number}"),
        verb: "correct",
        plan: Some(plan.to_owned()),
        actor: text("actor").unwrap_or_else(|| "unknown".to_owned()),
        at: note.at,
        from: None,
        to: text("checkpoint").and_then(|id| id.parse().ok()),
        strategy: text("mode").unwrap_or_default(),
        result,
        error: text("error"),
    })
}
