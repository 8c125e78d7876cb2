//! `remote migrate`, `upkeep` and `rebuild`: care of a whole remote, for its owner.

use super::{open, options, shape};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable, size};
use crate::render::{consent, exit};
use safepoint::remote::{Remote, UpkeepOptions};
use safepoint::{CheckpointManager, Error};
use serde_json::json;

pub(super) fn migrate(context: &Context, manager: &CheckpointManager, name: &str) -> Result<Reply, Problem> {
    let stored = manager.remotes().get(Some(name))?;
    let environment = context.surroundings.remote_environment();
    let applied = Remote::migrate(&options(manager, &stored)?, &environment).map_err(Error::from)?;
    let migrations = counted(applied as u64, "migration", "migrations");
    context.out.line(format!("{name} is up to date: {migrations}."));
    Ok(Reply::done(json!({ "remote": shape(&stored), "migrations": applied })))
}

pub(super) fn upkeep(context: &Context, manager: &CheckpointManager, name: &str) -> Result<Reply, Problem> {
    let (stored, remote) = open(context, manager, Some(name))?;
    let out = &context.out;
    let report = manager.remotes().upkeep(&remote, &UpkeepOptions::default(), &context.progress)?;
    let deleted = counted(report.checkpoints, "checkpoint", "checkpoints");
    let packs = counted(report.deleted, "pack", "packs");
    out.line(format!("Deleted {deleted} and {packs}; {} remain.", size(report.live_bytes)));
    let condemned = report.condemned + report.orphans;
    if condemned > 0 {
        let packs = counted(condemned, "unused pack is", "unused packs are");
        out.line(format!("  {packs} deleted after 7 days"));
    }
    let damage = report.checked.as_ref().and_then(|(_, damage)| damage.as_deref());
    match (&report.checked, damage) {
        (Some(_), None) => out.line("  one random checkpoint was read whole"),
        (Some((id, _)), Some(why)) => {
            out.warn_as(
                "remote_damaged",
                format!("push {} of line {} is damaged: {}", id.1, id.0, printable(why)),
            );
        }
        (None, _) => {}
    }
    let data = json!({
        "remote": shape(&stored),
        "checkpoints": report.checkpoints,
        "condemned": report.condemned,
        "orphans": report.orphans,
        "deleted": report.deleted,
        "live_bytes": report.live_bytes,
        "checked": report.checked.as_ref().map(|((line, seq, n), damage)| {
            json!({ "line": line, "seq": seq, "n": n, "damage": damage })
        }),
    });
    let exit = if damage.is_some() { exit::IN_PART } else { exit::DONE };
    Ok(Reply { data, exit, failure: None })
}

pub(super) fn rebuild(context: &Context, manager: &CheckpointManager, name: &str) -> Result<Reply, Problem> {
    let (stored, remote) = open(context, manager, Some(name))?;
    let question = format!(
        "Rebuild the records of project {} from its packs? Deleted checkpoints may return.",
        stored.project
    );
    consent::ask(context, &question)?;
    let report = manager.remotes().rebuild(&remote, &context.progress)?;
    let out = &context.out;
    let restored = counted(report.restored, "checkpoint", "checkpoints");
    let packs = counted(report.packs, "pack", "packs");
    out.line(format!("Restored {restored} from {packs}; incarnation {}.", report.incarnation));
    if report.incomplete > 0 {
        let pushes = counted(report.incomplete, "push lacks", "pushes lack");
        out.line(format!("  {pushes} packs and was skipped"));
    }
    for (pack, why) in &report.unreadable {
        out.warn_as("remote_damaged", format!("cannot read {pack}: {}", printable(why)));
    }
    let unreadable: Vec<_> =
        report.unreadable.iter().map(|(pack, why)| json!({ "pack": pack, "why": why })).collect();
    let exit = if unreadable.is_empty() { exit::DONE } else { exit::IN_PART };
    let data = json!({
        "remote": shape(&stored),
        "incarnation": report.incarnation,
        "packs": report.packs,
        "restored": report.restored,
        "incomplete": report.incomplete,
        "lines": report.lines,
        "unreadable": unreadable,
    });
    Ok(Reply { data, exit, failure: None })
}
