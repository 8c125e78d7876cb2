//! Todo lists and decisions that agents report, as a plan with steps.

use safepoint::model::plan::spec::{PlanSpec, StepSpec, is_slug};
use safepoint::model::plan::state::{PlanState, StepState};
use safepoint::{CheckpointManager, Error, NewDecision, PlanRecord, Progress, Workspace};
use safepoint_agents::{PlanReport, ReportedDecision, ReportedStatus, ReportedStep, one_line};

/// Plans of one session: after a list is done, the next one is a new plan.
const PLANS_MAX: usize = 100;
/// Steps of one list that are taken over.
const STEPS_MAX: usize = 200;
const TITLE_LETTERS_MAX: usize = 80;
const SLUG_LETTERS_MAX: usize = 40;

/// A list of an agent in a workspace.
pub(super) struct Reported<'a> {
    pub(super) manager: &'a CheckpointManager,
    pub(super) workspace: &'a Workspace,
    pub(super) agent: &'a str,
    pub(super) session: &'a str,
    pub(super) progress: &'a dyn Progress,
}

impl Reported<'_> {
    /// Takes over new steps, started steps and completed steps. A step that cannot move stays as it is.
    pub(super) fn take(
        &self,
        plan: Option<&PlanReport>,
        decisions: &[ReportedDecision],
    ) -> Result<(), Error> {
        let steps = plan.map_or(&[][..], |plan| &plan.steps);
        if steps.is_empty() && decisions.is_empty() {
            return Ok(());
        }
        let Some(record) = self.open(steps)? else { return Ok(()) };
        let id = record.plan.id.clone();
        for step in steps.iter().take(STEPS_MAX) {
            self.step(&id, step)?;
        }
        for decision in decisions {
            let question = one_line(&decision.question, TITLE_LETTERS_MAX * 2);
            let choice = one_line(&decision.answer, TITLE_LETTERS_MAX * 2);
            let _ =
                self.manager.plans().decide(&id, NewDecision { question, choice, ..NewDecision::default() });
        }
        Ok(())
    }

    /// The plan that the list belongs to. A list with steps that are not done opens a new one after the last.
    fn open(&self, steps: &[ReportedStep]) -> Result<Option<PlanRecord>, Error> {
        let short: String = self.session.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        let is_new = steps.iter().any(|step| step.status != Some(ReportedStatus::Completed));
        for number in 1..=PLANS_MAX {
            let id = match number {
                1 => format!("{}-{short}", self.agent),
                _ => format!("{}-{short}-{number}", self.agent),
            };
            match self.manager.plans().get(&id) {
                Ok(record) if !is_done(record.plan.state) => return Ok(Some(record)),
                // The same list is often reported once more after its last step.
                Ok(_) if !is_new => return Ok(None),
                Ok(_) => {}
                Err(Error::NoPlan { .. }) => {
                    let title = format!("todo list of {}", self.agent);
                    let spec = PlanSpec { id: Some(id), ..PlanSpec::new(title) };
                    return self.manager.plans().create(self.workspace, &spec).map(Some);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn step(&self, id: &str, step: &ReportedStep) -> Result<(), Error> {
        let plans = self.manager.plans();
        let name = step.id.as_deref().or(step.text.as_deref()).map(slug).unwrap_or_default();
        if !is_slug(&name) {
            return Ok(());
        }
        let record = plans.get(id)?;
        let state = match record.plan.steps.iter().find(|known| known.path == name) {
            Some(known) => known.state,
            None => {
                let title = step.text.as_deref().map(|text| one_line(text, TITLE_LETTERS_MAX));
                plans.append_step(id, None, &StepSpec { id: name.clone(), title, ..StepSpec::default() })?;
                StepState::Pending
            }
        };
        let starts = matches!(step.status, Some(ReportedStatus::InProgress | ReportedStatus::Completed));
        if starts && state == StepState::Pending {
            plans.start_step(id, &name, self.progress)?;
        }
        if step.status == Some(ReportedStatus::Completed) && state != StepState::Done {
            plans.finish_step(id, &name, None, self.progress)?;
        }
        Ok(())
    }
}

fn is_done(state: PlanState) -> bool {
    state == PlanState::Done || state.is_over()
}

/// A name for a step, made of its text: small letters, digits and hyphens.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => slug.push(letter),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
        if slug.len() >= SLUG_LETTERS_MAX {
            break;
        }
    }
    slug.trim_end_matches('-').to_owned()
}
