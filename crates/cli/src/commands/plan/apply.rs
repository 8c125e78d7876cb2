//! `plan apply`: the result of a plan is taken over, and the plan is closed.

use super::Opened;
use crate::args::plan::ApplyArgs;
use crate::commands::Context;
use crate::commands::recover;
use crate::commands::rollback::{shape, tell};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::model::plan::spec::SandboxKind;
use safepoint::{Applied, DryRun, Merge};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;

pub(crate) fn run(context: &Context, args: &ApplyArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    opened.warn_of_files(context)?;
    let merge = if args.merge { Merge::Kept } else { Merge::Refused };
    let applied = opened
        .manager
        .plans()
        .apply(opened.id(), merge, &context.progress)
        .map_err(|error| context.failed(&opened.manager, &opened.workspace, error.into()))?;
    recover::tell(&context.out, &applied.recovered);
    told(context, &opened, &applied);
    let rollback = applied.restored.as_ref().map(|it| shape(&opened.manager, it, DryRun::No));
    let kept = applied.kept.as_ref().map(|(path, why)| {
        let path: Value = json::bytes(path.as_os_str().as_bytes());
        json!({ "path": path, "why": why })
    });
    opened.renew(applied.record)?;
    Ok(Reply::rolled_back(json!({
        "plan": opened.json(), "rollback": rollback, "result": applied.result, "kept": kept,
    })))
}

fn told(context: &Context, opened: &Opened, applied: &Applied) {
    let out = &context.out;
    let name = out.colours.bold(opened.id());
    match (&applied.restored, &opened.sandbox) {
        (Some(restored), _) => tell(context, &opened.manager, restored, DryRun::No),
        (None, Some(_)) => out.remark("The plan changed nothing in its copy: the project stays as it is."),
        (None, None) => {}
    }
    out.remark(format!("Applied plan {name}: its result stays, and it is not rolled back any more."));
    match (&applied.kept, &opened.sandbox) {
        (Some((path, why)), _) => {
            let path = printable(&path.to_string_lossy());
            out.warn(format!("the sandbox that the plan worked in is kept: {}: {path}", printable(why)));
        }
        (None, Some(sandbox)) if sandbox.kind == SandboxKind::Overlay => {
            out.remark("The overlay that it worked in was removed.");
        }
        (None, Some(_)) => out.remark("The copy that it worked in was removed."),
        (None, None) => {}
    }
}
