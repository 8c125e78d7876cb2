//! `purge`: permanently removes paths from every checkpoint.

use crate::args::PurgeArgs;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable};
use crate::{
    commands::Context, commands::gc, commands::recover, commands::remote, render::consent, render::exit,
};
use safepoint::model::RelPath;
use safepoint::{Outcome, Thoroughness};
use serde_json::json;

pub(crate) fn run(context: &Context, args: &PurgeArgs) -> Result<Reply, Problem> {
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let paths: Vec<RelPath> = args
        .paths
        .iter()
        .map(|path| context.surroundings.path_in(&workspace, path))
        .collect::<Result<_, _>>()?;
    let named = paths.iter().map(|path| format!("\"{path}\"")).collect::<Vec<_>>().join(", ");
    let question = format!(
        "Take {named} out of every checkpoint of {}? This cannot be undone.",
        printable(&workspace.root_path().display().to_string())
    );
    consent::ask(context, &question)?;
    let report = manager.upkeep().purge(&workspace, &paths, &context.progress);
    let report = report.map_err(|error| context.failed(&manager, &workspace, error.into()))?;
    recover::tell(out, &report.recovered);
    let count = counted(report.checkpoints.len() as u64, "checkpoint", "checkpoints");
    out.line(format!("Took {named} out of {count}."));
    gc::tell(out, &report.collected, Thoroughness::Everything);
    out.remark("The workspace is not changed. Keep it out of the next checkpoint with .safepointignore.");
    let freed = report.collected.outcome == Outcome::Done && report.collected.packs_left == 0;
    if !freed {
        out.warn("no checkpoint leads to them any more, but bytes may still be in the store: run `safepoint gc --thorough`, and before it `safepoint repair` where something is damaged");
    }
    let (mut remotes, mut is_everywhere) = (Vec::new(), true);
    for name in &report.remotes {
        let purged = remote::purge(context, &manager, &workspace, name);
        let pushed = purged.as_ref().ok().cloned().unwrap_or_default();
        match &purged {
            Ok(pushed) if pushed.purged > 0 => remote::tell(context, name, pushed),
            Ok(pushed) if pushed.purge_refused => {
                is_everywhere = false;
                remote::tell(context, name, pushed);
            }
            Ok(_) => {}
            Err(problem) => {
                is_everywhere = false;
                let why = printable(&problem.failure.message);
                let told = format!(
                    "checkpoints on remote {name} still have it, until `safepoint push {name}`: {why}"
                );
                out.warn_as("purge_pending", told);
            }
        }
        let error = purged.err().map(|problem| problem.failure.message);
        let (checkpoints, packs) = (pushed.purged, pushed.purged_packs);
        remotes.push(json!({ "remote": name, "checkpoints": checkpoints, "packs": packs, "pending": error.is_some() || pushed.purge_refused, "error": error }));
    }
    let exit = if freed && is_everywhere { exit::DONE } else { exit::IN_PART };
    let data = json!({
        "paths": paths,
        "checkpoints": report.checkpoints,
        "remotes": remotes,
        "collected": gc::value(&report.collected),
    });
    Ok(Reply { data, exit, failure: None })
}
