//! `fetch` and `clone`: published checkpoints in this home.

use super::open;
use crate::args::plan::TakeoverArgs;
use crate::args::remote::{CloneArgs, FetchArgs, PullArgs};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, for_shell, printable, size};
use safepoint::model::LineId;
use safepoint::model::checkpoint::PartKind;
use safepoint::remote::{LiveLease, RemoteCheckpoint};
use safepoint::{CheckpointManager, Cloned, Error, Fetched, TakePlan};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;

pub(crate) fn fetch(context: &Context, args: &FetchArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let (stored, remote) = open(context, &manager, Some(&args.remote))?;
    let found = manager.remotes().find(&remote, &args.what)?;
    let fetched = manager.remotes().fetch((&stored.name, &remote), &found, &context.progress)?;
    let out = &context.out;
    let id = fetched.checkpoint.id;
    if out.quiet && !out.is_json() {
        out.line(id);
    } else {
        match fetched.was_here {
            true => out.line(format!("{} is already here.", out.colours.bold(id))),
            false => out.line(format!("Fetched {}{}", out.colours.bold(id), label(&fetched))),
        }
        if !fetched.was_here {
            let objects = counted(fetched.objects, "object", "objects");
            out.line(format!("  {objects}, {} downloaded", size(fetched.bytes)));
        }
        out.remark(format!("The workspace is as it was. Roll back to it: safepoint rollback {id}"));
    }
    Ok(Reply::done(json!({
        "remote": stored.name,
        "line": found.line,
        "seq": found.seq,
        "fetched": shape(&manager, &fetched),
    })))
}

/// Brings the newest checkpoint of the other lines of this workspace here.
pub(crate) fn pull(context: &Context, args: &PullArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let (stored, remote) = open(context, &manager, args.remote.name.as_deref())?;
    let (out, name) = (&context.out, stored.name.as_str());
    let line = args.line.as_deref().map(str::parse::<LineId>).transpose()?;
    let found = manager.remotes().newest_elsewhere((name, &remote), &workspace, line)?;
    let Some((found, line)) = found else {
        if args.line.is_some() {
            return Err(Error::NotPublished { name: args.line.clone().unwrap_or_default() }.into());
        }
        out.line(format!("No other machine has published this workspace to {name}."));
        return Ok(Reply::done(
            json!({ "remote": name, "line": null, "seq": null, "holder": null, "fetched": null }),
        ));
    };
    let fetched = manager.remotes().fetch((name, &remote), &found, &context.progress)?;
    let id = fetched.checkpoint.id;
    let holder = line.and_then(|line| line.holder);
    if out.quiet && !out.is_json() {
        out.line(id);
    } else {
        let from = holder.as_deref().map(|holder| format!(" of {}", printable(holder))).unwrap_or_default();
        match fetched.was_here {
            true => out.line(format!("Nothing new: {}{} is here.", out.colours.bold(id), label(&fetched))),
            false => {
                out.line(format!(
                    "Pulled {}{} from line {}{from}",
                    out.colours.bold(id),
                    label(&fetched),
                    found.line
                ));
                let objects = counted(fetched.objects, "object", "objects");
                out.line(format!("  {objects}, {} downloaded", size(fetched.bytes)));
            }
        }
        out.remark(format!("The workspace is as it was. Roll back to it: safepoint rollback {id}"));
    }
    Ok(Reply::done(json!({
        "remote": name,
        "line": found.line,
        "seq": found.seq,
        "holder": holder,
        "fetched": shape(&manager, &fetched),
    })))
}

pub(crate) fn clone(context: &Context, args: &CloneArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let (stored, remote) = open(context, &manager, Some(&args.what.remote))?;
    let found = manager.remotes().find(&remote, &args.what.what)?;
    let folder = context.surroundings.absolute(&args.folder);
    let cloned = manager.remotes().clone_to((&stored.name, &remote), &found, &folder, &context.progress)?;
    let data = told_clone(context, &manager, (&stored.name, &found), &cloned);
    Ok(Reply::done(data))
}

/// Tells what was cloned, to people, and returns its shape.
fn told_clone(
    context: &Context,
    manager: &CheckpointManager,
    (name, found): (&str, &RemoteCheckpoint),
    cloned: &Cloned,
) -> Value {
    let out = &context.out;
    let checkpoint = &cloned.fetched.checkpoint;
    let root = cloned.workspace.root_path();
    if out.quiet && !out.is_json() {
        out.line(printable(&root.to_string_lossy()));
    } else {
        let root = printable(&root.to_string_lossy());
        out.line(format!("Cloned {}{} to {root}", out.colours.bold(checkpoint.id), label(&cloned.fetched)));
        let files = counted(checkpoint.files.count, "file or folder", "files and folders");
        let downloaded = size(cloned.fetched.bytes);
        out.line(format!("  {files}, {}; {downloaded} downloaded", size(checkpoint.files.bytes)));
        for (names, one, several) in [
            (&cloned.plans, "plan", "plans"),
            (&cloned.sessions, "session", "sessions"),
            (&cloned.agents, "agent", "agents"),
        ] {
            if !names.is_empty() {
                let word = if names.len() == 1 { one } else { several };
                out.line(format!("  {word} {}", printable(&names.join(", "))));
            }
        }
        if let [plan, ..] = cloned.plans.as_slice() {
            out.remark(format!("Go on with it: safepoint -C {} plan resume {plan}", for_shell(&root)));
        }
    }
    let missing = not_captured(manager, &cloned.fetched, cloned.git_folder);
    if !missing.is_empty() {
        out.note(format!("Never captured, and not here: {}", printable(&missing.join(", "))));
    }
    json!({
        "remote": name,
        "line": found.line,
        "seq": found.seq,
        "clone": {
            "path": json::bytes(root.as_os_str().as_bytes()),
            "plans": cloned.plans,
            "sessions": cloned.sessions,
            "agents": cloned.agents,
            "git_folder": cloned.git_folder,
            "not_captured": missing,
        },
        "workspace": json::workspace(&cloned.workspace),
        "fetched": shape(manager, &cloned.fetched),
    })
}

/// Takes a plan over from another machine.
pub(crate) fn takeover(context: &Context, args: &TakeoverArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let (stored, remote) = open(context, &manager, Some(&args.remote))?;
    let (plan, name) = (args.plan.plan.as_str(), stored.name.as_str());
    let lease = if args.force { LiveLease::Broken } else { LiveLease::Respected };
    let how = TakePlan { holder: context.surroundings.holder(), lease };
    let folder = context.surroundings.absolute(&args.folder);
    let remotes = manager.remotes();
    let taken = remotes.take_over_plan((name, &remote), plan, &folder, &how, &context.progress)?;
    let out = &context.out;
    if !out.quiet || out.is_json() {
        let from = taken.from.as_deref().map(|from| format!(" from {}", printable(from)));
        out.line(format!("Took over plan {}{}", out.colours.bold(plan), from.unwrap_or_default()));
    }
    let mut data = told_clone(context, &manager, (name, &taken.found), &taken.cloned);
    data["takeover"] = json!({
        "plan": plan,
        "line": taken.fence.line,
        "token": taken.fence.token,
        "fence": taken.fence.to_string(),
        "from": taken.from,
        "forced": args.force,
    });
    Ok(Reply::done(data))
}

/// Paths that the checkpoint left out.
fn not_captured(manager: &CheckpointManager, fetched: &Fetched, git_folder: bool) -> Vec<String> {
    let coverage = manager.checkpoints().coverage(&fetched.checkpoint).unwrap_or_default();
    let is_in_git = fetched.checkpoint.parts.iter().any(|part| part.kind == PartKind::Git);
    let mut missing: Vec<String> = coverage.skipped.iter().map(|skipped| skipped.path.to_string()).collect();
    if is_in_git && !git_folder && !missing.iter().any(|path| path == ".git") {
        missing.push(".git".to_owned());
    }
    missing.retain(|path| !(git_folder && path == ".git"));
    missing
}

fn label(fetched: &Fetched) -> String {
    let label = fetched.checkpoint.label.as_deref();
    label.map(|label| format!(" \"{}\"", printable(label))).unwrap_or_default()
}

fn shape(manager: &CheckpointManager, fetched: &Fetched) -> Value {
    let checkpoint = json::checkpoint(&fetched.checkpoint);
    json!({
        "checkpoint": json::with_state(checkpoint, manager, &fetched.checkpoint),
        "was_here": fetched.was_here,
        "bytes": fetched.bytes,
        "objects": fetched.objects,
    })
}
