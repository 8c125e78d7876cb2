//! `plan checkpoint`: checkpoints that hold a plan and its files.

use super::Opened;
use crate::args::plan::{
    CheckpointCommand, CheckpointCreateArgs, CheckpointDeleteArgs, CheckpointShowArgs, PlanArgs,
};
use crate::commands::create::{is_whole, left_out, tell, test};
use crate::commands::list::folded;
use crate::commands::naming::{LABEL_LETTERS_MIN, Naming};
use crate::commands::recover;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, shortened};
use crate::{
    commands::Context, commands::delete, commands::rows, commands::show, commands::when, render::exit,
};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::reference::Reference;
use safepoint::{CreateOptions, Error, Filter, NamedCandidate, RoleFilter};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, command: &CheckpointCommand) -> Result<Reply, Problem> {
    match command {
        CheckpointCommand::Create(args) => create(context, args),
        CheckpointCommand::List(args) => list(context, args),
        CheckpointCommand::Show(args) => show(context, args),
        CheckpointCommand::Delete(args) => delete(context, args),
    }
}

fn create(context: &Context, args: &CheckpointCreateArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    let mut options = CreateOptions {
        label: args.label.clone().filter(|label| !label.is_empty()),
        session_id: context.surroundings.session(None)?,
        pinned: args.pin,
        ..CreateOptions::default()
    };
    let place = opened.manager.plans().workspace(&opened.manager.plans().get(&args.plan.plan)?)?;
    let passing = test(context, &opened.manager, &place, &mut options)?;
    let created = opened
        .manager
        .plans()
        .checkpoint(&args.plan.plan, &options, &context.progress)
        .map_err(|error| opened.explain(context, error))?;
    recover::tell(&context.out, &created.recovered);
    tell(&context.out, &created);
    let fields = json::checkpoint_with_coverage(&created.checkpoint, &created.coverage);
    let data = json!({
        "checkpoint": json::with_state(fields, &opened.manager, &created.checkpoint),
        "pruned": created.pruned,
        "tests_passing": passing,
    });
    let exit = if is_whole(&created.coverage) { exit::DONE } else { exit::IN_PART };
    Ok(Reply { data, exit, failure: None })
}

/// The checkpoints of a plan, newest first.
pub(crate) fn all(opened: &Opened) -> Result<Vec<Checkpoint>, Problem> {
    let plan_id = Some(opened.record.plan.id.clone());
    Ok(opened.manager.checkpoints().list(&Filter { plan_id, role: RoleFilter::Any, ..Filter::default() })?)
}

fn list(context: &Context, args: &PlanArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan)?;
    let checkpoints = all(&opened)?;
    let shown = folded(checkpoints.clone(), opened.place.head);
    let naming = Naming::among(&context.out, &opened.manager, Some(&opened.workspace), &shown)?;
    table(&context.out, naming, &shown, Numbers::No);
    tell_hidden(context, &opened, checkpoints.len() - shown.len());
    if checkpoints.is_empty() {
        let create = format!("safepoint plan checkpoint create {}", opened.record.plan.id);
        context.out.remark(format!("There are no checkpoints of this plan yet. Take one: {create}"));
    }
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    Ok(Reply::done(json!({ "checkpoints": list })))
}

/// Reports the safety checkpoints that a table leaves out, as `list` does.
pub(crate) fn tell_hidden(context: &Context, opened: &Opened, hidden: usize) {
    if hidden > 0 {
        let count = counted(hidden as u64, "safety checkpoint is", "safety checkpoints are");
        let all = format!("safepoint list --plan {} --all-roles", opened.record.plan.id);
        context.out.remark(format!("{count} not shown: {all}"));
    }
}

/// Letters of a state's hash that people get to see: enough to tell two of them apart.
const HASH_LETTERS: usize = 8;

/// Presence of row numbers to choose by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    No,
    Yes,
}

/// Prints checkpoints of a plan: how many steps were done, and which state it was.
pub(crate) fn table(out: &Printer, naming: Naming, checkpoints: &[Checkpoint], numbers: Numbers) {
    if checkpoints.is_empty() {
        return;
    }
    let now = Surroundings::now();
    let kind = |it: &Checkpoint| it.role.map_or_else(|| it.kind.to_string(), |role| format!("({role})"));
    let when =
        checkpoints.iter().map(|it| ago(now, it.created_at).len()).max().unwrap_or(0).max("WHEN".len());
    let kinds = checkpoints.iter().map(|it| kind(it).len()).max().unwrap_or(0).max("KIND".len());
    let id = naming.id_letters().max("CHECKPOINT".len());
    let number = |row: usize| match (numbers, row) {
        (Numbers::No, _) => String::new(),
        (Numbers::Yes, 0) => "     ".to_owned(),
        (Numbers::Yes, row) => format!("{row:>3}  "),
    };
    let start = format!("{}{:id$}  ", number(0), "CHECKPOINT");
    let facts = |when_text: &str, kind: &str, done: &str, state: &str| {
        format!("{when_text:when$}  {kind:kinds$}  {done:>4}  {state:HASH_LETTERS$}  ")
    };
    let titles = facts("WHEN", "KIND", "DONE", "STATE");
    // On a narrow terminal labels say more than the rest does.
    let shows_facts = naming.left_after(start.len() + titles.len()) >= LABEL_LETTERS_MIN;
    let titles = if shows_facts { titles } else { String::new() };
    out.remark(out.colours.dim(format!("{start}{titles}LABEL")));
    let label_max = naming.left_after(start.len() + titles.len());
    for (row, it) in (1..).zip(checkpoints) {
        let state: String = it.state_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let state: String = state.chars().take(HASH_LETTERS).collect();
        let done = it.step_index.unwrap_or(0).to_string();
        let facts = match shows_facts {
            true => facts(&ago(now, it.created_at), &kind(it), &done, &state),
            false => String::new(),
        };
        let label = shortened(&naming.label(it), label_max);
        let pad = " ".repeat(id - naming.id_letters() + 2);
        let name = out.colours.bold(naming.id(it.id));
        out.line(format!("{}{name}{pad}{facts}{label}", number(row)).trim_end());
    }
}

/// The checkpoint of the plan that was named. `@` and labels are the plan's own.
pub(crate) fn find(opened: &Opened, given: &str) -> Result<Checkpoint, Problem> {
    let none = || Error::NoCheckpoint { reference: given.to_owned() };
    let own = all(opened)?;
    let id = &opened.record.plan.id;
    match given.parse::<Reference>()? {
        Reference::Newest { back } => {
            let back = usize::try_from(back).map_err(|_| none())?;
            Ok(own.into_iter().filter(|it| it.role.is_none()).nth(back).ok_or_else(none)?)
        }
        Reference::Name { text, .. } if own.iter().any(|it| it.label.as_deref() == Some(&text)) => {
            let mut same: Vec<Checkpoint> =
                own.into_iter().filter(|it| it.label.as_deref() == Some(&text)).collect();
            match (same.pop(), same.as_slice()) {
                (Some(only), []) => Ok(only),
                (last, newer) => {
                    let candidates = newer.iter().chain(&last).map(NamedCandidate::from).collect();
                    Err(Error::Ambiguous { reference: given.to_owned(), candidates }.into())
                }
            }
        }
        _ => {
            let found = match opened.manager.checkpoints().find(Some(&opened.place), given) {
                Err(error @ Error::NoCheckpoint { .. }) => match rows::named(&opened.manager, given)? {
                    Some(found) => found,
                    None => when::among(own, given, error)?,
                },
                found => found?,
            };
            match found.plan_id.as_ref() == Some(id) {
                true => Ok(found),
                false => Err(Error::OtherPlan { checkpoint: found.id, id: id.clone() }.into()),
            }
        }
    }
}

fn show(context: &Context, args: &CheckpointShowArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    let checkpoint = find(&opened, &args.checkpoint)?;
    let coverage = opened.manager.checkpoints().coverage(&checkpoint)?;
    let plan = opened.manager.plans().at(checkpoint.id)?;
    let out = &context.out;
    show::facts(out, &checkpoint);
    left_out(out, &coverage, &RelPath::to_string);
    out.line(format!("The plan was {}", plan.state));
    super::look::steps(out, &plan);
    let shown = json::checkpoint_with_coverage(&checkpoint, &coverage);
    let shown = json::with_state(shown, &opened.manager, &checkpoint);
    Ok(Reply::done(json!({ "checkpoint": shown, "state": plan })))
}

fn delete(context: &Context, args: &CheckpointDeleteArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    let mut chosen: Vec<Checkpoint> = Vec::new();
    for given in &args.checkpoints {
        let checkpoint = find(&opened, given)?;
        if !chosen.iter().any(|other| other.id == checkpoint.id) {
            chosen.push(checkpoint);
        }
    }
    delete::these(context, &opened.manager, &chosen)
}
