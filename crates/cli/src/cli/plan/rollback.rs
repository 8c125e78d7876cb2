//! `plan rollback`: a plan and its files go back together. Without a checkpoint it lists them.

use super::{Opened, checkpoint};
use crate::cli::Context;
use crate::cli::args::plan::PlanRollbackArgs;
use crate::cli::output::Reply;
use crate::cli::rollback::{plain_options, shape, tell};
use crate::json;
use crate::problem::Problem;
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &PlanRollbackArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    let Some(given) = &args.checkpoint else { return choose(context, &opened) };
    let to = checkpoint::find(&opened, given)?;
    context.recover_first(&opened.manager, &opened.workspace)?;
    let options = plain_options(args.dry_run, args.keep_times);
    let id = opened.record.plan.id.clone();
    let restored = opened
        .manager
        .rollback_plan(&id, to.id, &options, &context.progress)
        .map_err(|error| context.surroundings.explain_gone(&opened.workspace, error.into()))?;
    tell(&context.out, &opened.manager, &restored, options.dry_run);
    opened.record = opened.manager.plan(&id)?;
    let rollback = shape(&opened.manager, &restored, options.dry_run);
    Ok(Reply::done(json!({ "plan": opened.json(), "rollback": rollback })))
}

fn choose(context: &Context, opened: &Opened) -> Result<Reply, Problem> {
    let checkpoints = checkpoint::all(opened)?;
    checkpoint::table(&context.out, &checkpoints);
    let id = &opened.record.plan.id;
    context.out.remark(if checkpoints.is_empty() {
        format!("There is nothing to roll back to yet. Take one: safepoint plan checkpoint create {id}")
    } else {
        format!("Choose one: safepoint plan rollback {id} CHECKPOINT (add --dry-run to see what it would do)")
    });
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    Ok(Reply::done(json!({ "plan": opened.json(), "rollback": null, "checkpoints": list })))
}
