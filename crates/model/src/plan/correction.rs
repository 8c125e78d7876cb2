//! Corrections of a plan that is not healthy: a step in the right place, another command, or a step that is skipped.

use super::happening::Happening;
use super::rule::PlanRule;
use super::spec::StepSpec;
use super::state::{Plan, PlanState, Step, StepState, ancestors, flatten};
use crate::Timestamp;

/// The place of a new step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepPlace {
    /// Before this step.
    Before(String),
    /// After this step and the steps below it.
    After(String),
}

/// Changes to a step. Absent fields stay the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepEdit {
    /// Another title.
    pub title: Option<String>,
    /// Another command.
    pub run: Option<String>,
    /// Another check.
    pub verify: Option<String>,
    /// Another undo command.
    pub undo: Option<String>,
}

impl StepEdit {
    /// Makes the changes.
    pub fn apply(&self, spec: &mut StepSpec) {
        let fields = [
            (&self.title, &mut spec.title),
            (&self.run, &mut spec.run),
            (&self.verify, &mut spec.verify),
            (&self.undo, &mut spec.undo),
        ];
        for (new, field) in fields {
            if new.is_some() {
                field.clone_from(new);
            }
        }
    }
}

impl Plan {
    /// The step that is wrong: the first that failed, else the first that was interrupted. Subplans come after their steps.
    pub fn broken(&self) -> Option<&str> {
        let first = |state: StepState, below: bool| {
            let found = (0..self.steps.len())
                .find(|at| self.steps[*at].state == state && self.has_below(*at) == below);
            found.map(|at| self.steps[at].path.as_str())
        };
        first(StepState::Failed, false)
            .or_else(|| first(StepState::Interrupted, false))
            .or_else(|| first(StepState::Failed, true))
    }

    /// Adds a step before or after another one, beside it. Returns its path.
    ///
    /// # Errors
    /// When the other step is missing, a step has the same path, or the plan is over.
    pub fn insert(&mut self, place: &StepPlace, spec: &StepSpec) -> Result<String, PlanRule> {
        self.not_over()?;
        let (StepPlace::Before(beside) | StepPlace::After(beside)) = place;
        let found = self.find(beside)?;
        let prefix = self.steps[found].parent().map_or_else(String::new, |above| format!("{above}/"));
        let path = format!("{prefix}{}", spec.id);
        if self.find(&path).is_ok() {
            return Err(PlanRule::StepTaken { path });
        }
        let below = self.steps[found + 1..].iter().take_while(|step| step.is_below(beside)).count();
        let at = match place {
            StepPlace::Before(_) => found,
            StepPlace::After(_) => found + 1 + below,
        };
        let mut added = Vec::new();
        flatten(&prefix, std::slice::from_ref(spec), &mut added);
        self.steps.splice(at..at, added);
        self.reopen_above(&path)?;
        Ok(path)
    }

    /// A step that has not ended well gets another command, title or check.
    ///
    /// # Errors
    /// When there is no such step, it is running or done, or the plan is over.
    pub fn edit(&mut self, path: &str, edit: &StepEdit) -> Result<(), PlanRule> {
        let at = self.editable(path)?;
        edit.apply(&mut self.steps[at].spec);
        Ok(())
    }

    /// A step that has not ended well is left out. It counts as done, with the reason.
    ///
    /// # Errors
    /// When there is no such step, it is running or done, steps below it are not done, or the plan is over.
    pub fn skip(&mut self, path: &str, reason: &str, now: Timestamp) -> Result<Vec<Happening>, PlanRule> {
        let at = self.editable(path)?;
        if self.has_below(at) && !self.all_done_below(path) {
            return Err(PlanRule::Subplan { path: path.to_owned() });
        }
        let step = &mut self.steps[at];
        (step.state, step.finished_at) = (StepState::Done, Some(now));
        (step.error, step.skipped) = (None, Some(reason.to_owned()));
        for above in ancestors(path).map(str::to_owned).collect::<Vec<_>>() {
            let above = self.find(&above)?;
            if matches!(self.steps[above].state, StepState::Failed | StepState::Interrupted) {
                self.steps[above].state = StepState::Running;
                self.steps[above].error = None;
            }
        }
        let mut happened = vec![Happening::StepDone { path: path.to_owned() }];
        self.climb_unverified(path, now, &mut happened)?;
        let failed = |step: &Step| step.state == StepState::Failed;
        if self.state == PlanState::Failed && !self.steps.iter().any(failed) {
            self.state = PlanState::Paused;
        }
        Ok(happened)
    }

    fn editable(&self, path: &str) -> Result<usize, PlanRule> {
        self.not_over()?;
        let at = self.find(path)?;
        match self.steps[at].state {
            from @ (StepState::Running | StepState::Done) => {
                Err(PlanRule::StepTransition { path: path.to_owned(), from, to: StepState::Pending })
            }
            _ => Ok(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::spec::PlanSpec;

    fn now() -> Timestamp {
        Timestamp::from_micros(1)
    }

    fn failed() -> Plan {
        let api = StepSpec { steps: vec![StepSpec::new("x"), StepSpec::new("y")], ..StepSpec::new("api") };
        let steps = vec![StepSpec::new("a"), api, StepSpec::new("z")];
        let mut plan = Plan::new("p".to_owned(), &PlanSpec { steps, ..PlanSpec::new("Plan") });
        plan.start("a", now()).unwrap();
        plan.finish("a", None, now()).unwrap();
        plan.start("api/x", now()).unwrap();
        plan.fail("api/x", "no", now()).unwrap();
        plan
    }

    fn paths(plan: &Plan) -> Vec<&str> {
        plan.steps.iter().map(|step| step.path.as_str()).collect()
    }

    #[test]
    fn a_step_is_inserted_beside_another_one_and_runs_first() {
        let mut plan = failed();
        assert_eq!(plan.broken(), Some("api/x"));
        let fix = StepSpec::new("fix");
        assert_eq!(plan.insert(&StepPlace::Before("api/x".into()), &fix).unwrap(), "api/fix");
        assert_eq!(paths(&plan), ["a", "api", "api/fix", "api/x", "api/y", "z"]);
        assert_eq!(plan.next(), ["api/fix"]);
        assert!(plan.insert(&StepPlace::After("api/x".into()), &fix).is_err());
        assert_eq!(plan.insert(&StepPlace::After("api".into()), &fix).unwrap(), "fix");
        assert_eq!(paths(&plan), ["a", "api", "api/fix", "api/x", "api/y", "fix", "z"]);
        assert!(plan.insert(&StepPlace::Before("nowhere".into()), &fix).is_err());
    }

    #[test]
    fn a_step_that_is_skipped_lets_the_next_one_begin() {
        let mut plan = failed();
        assert!(plan.skip("api", "why", now()).is_err());
        assert!(plan.skip("a", "why", now()).is_err());
        plan.skip("api/x", "not needed", now()).unwrap();
        assert!(plan.is_healthy());
        assert_eq!((plan.state, plan.next()), (PlanState::Paused, vec!["api/y"]));
        assert_eq!(plan.steps[2].skipped.as_deref(), Some("not needed"));
        plan.start("api/y", now()).unwrap();
        plan.fail("api/y", "no", now()).unwrap();
        plan.skip("api/y", "neither", now()).unwrap();
        assert_eq!(plan.next(), ["z"]);
    }

    #[test]
    fn an_edit_changes_what_it_names() {
        let mut plan = failed();
        let edit = StepEdit { run: Some("true".to_owned()), ..StepEdit::default() };
        plan.edit("api/x", &edit).unwrap();
        assert_eq!((plan.steps[2].spec.run.as_deref(), plan.next()), (Some("true"), vec!["api/x"]));
        assert!(plan.edit("a", &edit).is_err());
    }
}
