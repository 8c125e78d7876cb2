//! `plan new`: a plan from a file, from standard input, or an empty one.

use super::{Opened, titled};
use crate::args::plan::NewArgs;
use crate::commands::Context;
use crate::commands::create::workspace;
use crate::problem::Problem;
use crate::render::output::Reply;
use safepoint::model::plan::spec::{Milestone, Milestones, PlanSpec, is_slug};
use safepoint::model::plan::state::Plan;
use safepoint::{PLAN_FILE_BYTES_MAX, PlanFile};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) fn run(context: &Context, args: &NewArgs) -> Result<Reply, Problem> {
    let (mut spec, has_checkpoints) = match &args.file {
        Some(file) => {
            let file = PlanFile::parse(&read(context, file)?, None).map_err(safepoint::Error::from)?;
            (file.spec, file.has_checkpoints)
        }
        None => (PlanSpec::new(""), false),
    };
    if let Some(title) = &args.title {
        spec.title.clone_from(title);
    }
    spec.id = args.id.clone().or(spec.id);
    // Told before a workspace is registered for it.
    if let Some(id) = spec.id.as_ref().filter(|id| !is_slug(id)) {
        return Err(safepoint::Error::BadPlanId { id: id.clone() }.into());
    }
    let manager = context.surroundings.open(None)?;
    if !has_checkpoints {
        spec.checkpoints = manager.config(None)?.milestones;
    }
    milestones(args, &mut spec.checkpoints)?;
    super::keeps_the_rules(&PlanSpec { id: None, ..spec.clone() }, "docs/plan-files.md lists the rules.")?;
    let workspace = workspace(context, &manager)?;
    let record = manager.plans().create(&workspace, &spec)?;
    let out = &context.out;
    if out.quiet {
        out.line(&record.plan.id);
    } else {
        out.line(format!("New plan {}, {}", titled(context, &record), record.plan.state));
        super::look::steps(out, &record.plan);
        out.line(how_to_begin(&record.plan));
    }
    let opened = Opened::of(manager, record)?;
    Ok(Reply::done(json!({ "plan": opened.json() })))
}

/// The moments of checkpoints, as typed.
fn milestones(args: &NewArgs, milestones: &mut Milestones) -> Result<(), Problem> {
    if let Some(list) = &args.milestones {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        milestones.on = words.map(str::parse::<Milestone>).collect::<Result<_, _>>()?;
    }
    milestones.every = args.every.or(milestones.every);
    milestones.every_steps = args.every_steps.or(milestones.every_steps);
    Ok(())
}

/// A plan with commands is run; in one without, the user reports progress.
fn how_to_begin(plan: &Plan) -> String {
    let id = &plan.id;
    match plan.next().first() {
        Some(_) if plan.steps.iter().any(|step| step.spec.run.is_some()) => {
            format!("Run it with: safepoint plan run {id}")
        }
        Some(first) => format!("Begin with: safepoint plan step start {id} {first}"),
        None => format!("Add a step: safepoint plan step add {id} STEP"),
    }
}

/// The bytes of a plan file; of one that is too long no more than shows that.
fn read(context: &Context, file: &Path) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => all(io::stdin(), &mut bytes),
        false => {
            let whole = context.surroundings.directory.join(file);
            File::open(whole).and_then(|opened| all(opened, &mut bytes))
        }
    };
    match read {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Problem::unreadable(file, &error)),
    }
}

fn all(source: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    source.take(PLAN_FILE_BYTES_MAX as u64 + 1).read_to_end(bytes).map(|_| ())
}
