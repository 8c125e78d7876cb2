//! `emergency`: a checkpoint that is worth more now than a better one later.

use crate::args::EmergencyArgs;
use crate::commands::create::{is_whole, tell, workspace};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::{commands::Context, commands::recover, render::exit};
use safepoint::{CheckpointManager, CreateOptions};
use serde_json::json;

pub(crate) fn run(context: &Context, args: &EmergencyArgs) -> Result<Reply, Problem> {
    match context.surroundings.open(None).and_then(|manager| take(context, args, &manager)) {
        Err(problem) if problem.failure.code == "catalog_damaged" => {
            let manager = context.surroundings.open_beside_catalog()?;
            let reply = take(context, args, &manager)?;
            context.out.warn(
                "the catalog is damaged: the checkpoint is in the store and not listed yet. `safepoint repair` brings it in",
            );
            Ok(reply)
        }
        other => other,
    }
}

fn take(context: &Context, args: &EmergencyArgs, manager: &CheckpointManager) -> Result<Reply, Problem> {
    let workspace = workspace(context, manager)?;
    let label = args.message.clone().filter(|text| !text.is_empty());
    let mut options = CreateOptions::emergency(label.unwrap_or_else(|| "emergency".to_owned()));
    options.session_id = context.surroundings.session(None)?;
    let created = manager
        .create(&workspace, &options, &context.progress)
        .map_err(|error| context.failed(manager, &workspace, error.into()))?;
    recover::tell(&context.out, &created.recovered);
    tell(&context.out, &created);
    let data = json!({
        "checkpoint": json::checkpoint_with_coverage(&created.checkpoint, &created.coverage),
        "workspace": json::workspace(&workspace),
    });
    let exit = if is_whole(&created.coverage) { exit::DONE } else { exit::IN_PART };
    Ok(Reply { data, exit, failure: None })
}
