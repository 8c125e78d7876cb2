//! Todo lists and decisions that agents report, as a plan with steps.

use safepoint::model::ObjectId;
use safepoint::model::hash::ObjectKind;
use safepoint::model::plan::spec::{PlanSpec, StepSpec, is_slug};
use safepoint::model::plan::state::{PlanState, StepState};
use safepoint::{CheckpointManager, Error, NewDecision, PlanRecord, Progress, Workspace};
use safepoint_agents::{
    PlanExtent, PlanReport, ReportedDecision, ReportedStatus, ReportedStep, Subagent, one_line,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};

/// Plans of one session: after a list is done, the next one is a new plan.
const PLANS_MAX: usize = 100;
/// Steps of one list that are taken over: as many as an event holds.
const STEPS_MAX: usize = 500;
const TITLE_LETTERS_MAX: usize = 80;
const SLUG_LETTERS_MAX: usize = 40;
/// Name of a step whose text has no letter for one.
const NAMELESS: &str = "step";
/// Key of a plan's context for the names of the steps by what the agent calls them: its id, else the hash of its text.
const NAMES: &str = "names";
const HASH_LETTERS: usize = 16;
/// Key of a plan's context for the names of the steps in the last whole list. Steps that others added are not in it.
const LISTED: &str = "listed";

/// A list of an agent in a workspace.
pub(super) struct Reported<'a> {
    pub(super) manager: &'a CheckpointManager,
    pub(super) workspace: &'a Workspace,
    pub(super) agent: &'a str,
    pub(super) session: &'a str,
    /// Author of the list, if it is a subagent with a list of its own.
    pub(super) subagent: Option<&'a Subagent>,
    pub(super) progress: &'a dyn Progress,
}

impl Reported<'_> {
    /// Takes over new, started, completed, cancelled and removed steps. A step that cannot move stays as it is.
    pub(super) fn take(
        &self,
        plan: Option<&PlanReport>,
        decisions: &[ReportedDecision],
    ) -> Result<(), Error> {
        let steps = plan.map_or(&[][..], |plan| &plan.steps);
        let is_whole = plan.is_some_and(|plan| plan.extent == PlanExtent::Whole) && self.subagent.is_none();
        let is_empty = steps.is_empty() && decisions.is_empty();
        if is_empty && !is_whole {
            return Ok(());
        }
        let Some(record) = self.open(steps, is_empty)? else { return Ok(()) };
        let id = record.plan.id.clone();
        // All steps are added before the first one starts: its checkpoint holds the whole list.
        let named = self.add_missing(&record, steps)?;
        if is_whole {
            self.remove_missing(&record, &named)?;
        }
        for (name, step) in &named {
            self.step(&id, name, step)?;
        }
        for decision in decisions {
            let question = one_line(&decision.question, TITLE_LETTERS_MAX * 2);
            let choice = one_line(&decision.answer, TITLE_LETTERS_MAX * 2);
            let _ =
                self.manager.plans().decide(&id, NewDecision { question, choice, ..NewDecision::default() });
        }
        Ok(())
    }

    /// Names the steps of a list and adds those that the plan lacks. A step is known by its id, else by its whole text, and the
    /// second of two equal texts by its place among them.
    fn add_missing<'s>(
        &self,
        record: &PlanRecord,
        steps: &'s [ReportedStep],
    ) -> Result<Vec<(String, &'s ReportedStep)>, Error> {
        let (plans, id) = (self.manager.plans(), &record.plan.id);
        let known = record.plan.context.get(NAMES).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut names = known.clone();
        let mut taken: BTreeSet<String> = record.plan.steps.iter().map(|step| step.path.clone()).collect();
        let is_mapped = |names: &Map<String, Value>, name: &str| names.values().any(|known| known == name);
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut named = Vec::new();
        for step in steps.iter().take(STEPS_MAX) {
            let Some(called) = step.id.as_deref().or(step.text.as_deref()) else { continue };
            let count = seen.entry(format!("{} {called}", step.id.is_some())).or_default();
            *count += 1;
            let hash = ObjectId::of(
                ObjectKind::Document,
                format!("{} {count} {called}", step.id.is_some()).as_bytes(),
            );
            let key: String = hash.to_string().chars().take(HASH_LETTERS).collect();
            let name = match names.get(&key).and_then(Value::as_str).filter(|name| taken.contains(*name)) {
                Some(name) => name.to_owned(),
                // A cancelled step that never was in the plan stays out of it.
                None if step.status == Some(ReportedStatus::Cancelled) => continue,
                None => {
                    let plain = slug(called);
                    // A step of this name that no list named was added by hand, and is the same.
                    let is_adopted = taken.contains(&plain) && !is_mapped(&names, &plain);
                    let name = if is_adopted { plain } else { free(&plain, &taken) };
                    if !is_adopted {
                        let title = step.text.as_deref().map(|text| one_line(text, TITLE_LETTERS_MAX));
                        let spec = StepSpec { id: name.clone(), title, ..StepSpec::default() };
                        plans.append_step(id, None, &spec)?;
                    }
                    taken.insert(name.clone());
                    names.insert(key, name.clone().into());
                    name
                }
            };
            named.push((name, step));
        }
        if names != known {
            plans.set_context(id, NAMES, Some(Value::Object(names)))?;
        }
        Ok(named)
    }

    /// Leaves out the steps of the last whole list that this one lacks.
    fn remove_missing(&self, record: &PlanRecord, named: &[(String, &ReportedStep)]) -> Result<(), Error> {
        let (plans, id) = (self.manager.plans(), &record.plan.id);
        let listed = record.plan.context.get(LISTED).and_then(Value::as_array);
        let before: Vec<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
        let now: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        if before == now {
            return Ok(());
        }
        for gone in before.iter().filter(|before| !now.contains(before)) {
            // A step that is done stays so.
            let _ = plans.skip_step(id, gone, &format!("removed by {}", self.agent));
        }
        plans.set_context(id, LISTED, Some(json!(now))).map(|_| ())
    }

    /// The plan that the list belongs to. A list with steps that are not done opens a new one after the last, an empty one none.
    fn open(&self, steps: &[ReportedStep], is_empty: bool) -> Result<Option<PlanRecord>, Error> {
        let short: String = self.session.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        let is_over = |step: &ReportedStep| {
            matches!(step.status, Some(ReportedStatus::Completed | ReportedStatus::Cancelled))
        };
        let is_new = !steps.iter().all(is_over);
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
                Err(Error::NoPlan { .. }) if is_empty => return Ok(None),
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

    fn step(&self, id: &str, name: &str, step: &ReportedStep) -> Result<(), Error> {
        let plans = self.manager.plans();
        let record = plans.get(id)?;
        let Some(state) = record.plan.steps.iter().find(|known| known.path == name).map(|known| known.state)
        else {
            return Ok(());
        };
        if step.status == Some(ReportedStatus::Cancelled) && state != StepState::Done {
            plans.skip_step(id, name, &format!("cancelled by {}", self.agent))?;
        }
        // A blocked step stays as it is: pending, or started.
        let starts = matches!(step.status, Some(ReportedStatus::InProgress | ReportedStatus::Completed));
        if starts && state == StepState::Pending {
            plans.start_step(id, name, self.progress)?;
        }
        if step.status == Some(ReportedStatus::Completed) && state != StepState::Done {
            plans.finish_step(id, name, None, self.progress)?;
        }
        Ok(())
    }
}

fn is_done(state: PlanState) -> bool {
    state == PlanState::Done || state.is_over()
}

/// The name, or with a number behind it if it is taken.
fn free(name: &str, taken: &BTreeSet<String>) -> String {
    let name = if is_slug(name) { name } else { NAMELESS };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
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
