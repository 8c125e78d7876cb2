//! `plan tree`: steps, and decisions below those that led to them.

use super::{Opened, titled};
use crate::args::plan::TreeArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::printable;
use safepoint::PlanNote;
use safepoint::model::id::DecisionId;
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::state::Decision;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Deeper ones are not shifted further.
const INDENT_MAX: usize = 24;

/// A decision, and the rollback that took it back.
struct Made {
    decision: Decision,
    superseded_by: Option<String>,
}

pub(crate) fn run(context: &Context, args: &TreeArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    let (out, plan) = (&context.out, &opened.record.plan);
    let mut made: Vec<Made> = plan
        .decisions
        .iter()
        .map(|decision| Made { decision: decision.clone(), superseded_by: None })
        .collect();
    if args.show_superseded {
        superseded(&opened.manager.plans().notes(&plan.id)?, &mut made);
    }
    let name = titled(context, &opened.record);
    out.line(format!("Plan {name} is {}", plan.state));
    super::look::steps(out, plan);
    let placed = placed(&made);
    if !placed.is_empty() {
        out.line("Decisions");
    }
    placed.iter().for_each(|(depth, made)| line(out, *depth, made));
    let decisions: Value = placed
        .iter()
        .map(|(depth, made)| json::plan::placed(&made.decision, *depth, made.superseded_by.as_deref()))
        .collect();
    Ok(Reply::done(json!({ "plan": opened.json(), "decisions": decisions })))
}

/// Adds what rollbacks took back and nothing brought back since.
fn superseded(notes: &[PlanNote], made: &mut Vec<Made>) {
    let mut known: HashSet<DecisionId> = made.iter().map(|made| made.decision.id).collect();
    // The last rollback that took it back is the one to name.
    for note in notes.iter().rev().filter(|note| note.kind == PlanNoteKind::Superseded) {
        let by = note.body["rollback"].as_str().unwrap_or_default();
        for body in note.body["decisions"].as_array().into_iter().flatten() {
            let Ok(decision) = serde_json::from_value::<Decision>(body.clone()) else { continue };
            if known.insert(decision.id) {
                made.push(Made { decision, superseded_by: Some(by.to_owned()) });
            }
        }
    }
    made.sort_by_key(|made| made.decision.made_at);
}

/// Each followed by those that it led to, with its depth. Walks a stack of its own: chains of decisions may be long.
fn placed(made: &[Made]) -> Vec<(usize, &Made)> {
    let known: HashSet<DecisionId> = made.iter().map(|made| made.decision.id).collect();
    let mut below: HashMap<Option<DecisionId>, Vec<&Made>> = HashMap::new();
    for made in made {
        let parent = made.decision.parent.filter(|parent| known.contains(parent));
        below.entry(parent).or_default().push(made);
    }
    let children = |id: Option<DecisionId>, depth: usize| -> Vec<(usize, &Made)> {
        let of = below.get(&id).map(Vec::as_slice).unwrap_or_default();
        of.iter().rev().map(|made| (depth, *made)).collect()
    };
    let mut open = children(None, 0);
    let mut placed = Vec::new();
    while let Some((depth, made)) = open.pop() {
        placed.push((depth, made));
        open.extend(children(Some(made.decision.id), depth + 1));
    }
    placed
}

fn line(out: &Printer, depth: usize, made: &Made) {
    let Decision { id, question, choice, step, rationale, .. } = &made.decision;
    let indent = "  ".repeat(depth.min(INDENT_MAX) + 1);
    let during = step.as_deref().map(|step| format!(" (step {})", printable(step))).unwrap_or_default();
    let text = format!("{} {}{during}", printable(question), out.colours.bold(printable(choice)));
    let gone = match &made.superseded_by {
        Some(by) => out.colours.yellow(format!("  superseded by rollback {by}")),
        None => String::new(),
    };
    out.line(format!("{indent}{}  {text}{gone}", out.colours.dim(id)));
    if let Some(why) = rationale {
        out.line(format!("{indent}  {}", out.colours.dim(format!("because: {}", printable(why)))));
    }
}
