//! Checkpoints and rollbacks of many folders: what is asked, and what is told.

use crate::cli::Context;
use crate::cli::create::is_whole;
use crate::cli::exit;
use crate::cli::output::{Printer, Reply};
use crate::cli::recover;
use crate::cli::rollback;
use crate::cli::terminal::{counted, printable, size};
use crate::json;
use crate::problem::Problem;
use safepoint::model::WorkspaceId;
use safepoint::model::coverage::Coverage;
use safepoint::model::rollback::Verb;
use safepoint::{
    CheckpointManager, CreateOptions, CreatedTogether, DryRun, GitMoved, RestoredTogether, Whole,
};
use serde_json::{Value, json};

/// Takes a checkpoint of an agent or of everything.
pub(crate) fn create(context: &Context, whole: &Whole, options: &CreateOptions) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(options.source_tool.as_deref())?;
    let created = manager.create_together(whole, options, &context.progress)?;
    tell_created(&context.out, &created);
    let coverage = joined(created.coverage.iter().map(|(_, coverage)| coverage));
    let data = json!({
        "checkpoint": json::checkpoint_with_coverage(&created.checkpoint, &coverage),
        "workspace": null,
        "pruned": created.pruned,
    });
    let exit = if is_whole(&coverage) { exit::DONE } else { exit::IN_PART };
    Ok(Reply { data, exit, failure: None })
}

/// What was left out, of all folders.
pub(super) fn joined<'c>(each: impl Iterator<Item = &'c Coverage>) -> Coverage {
    let mut all = Coverage::default();
    for coverage in each {
        // What is not the agent's is not ours to tell about.
        let told = coverage.skipped.iter().filter(|skipped| crate::cli::create::is_lack(skipped));
        all.skipped.extend(told.cloned());
        all.unsettled.extend(coverage.unsettled.iter().cloned());
    }
    all
}

fn tell_created(out: &Printer, created: &CreatedTogether) {
    let checkpoint = &created.checkpoint;
    if out.quiet {
        out.line(checkpoint.id);
    } else {
        let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
        let name = out.colours.bold(checkpoint.id);
        out.line(format!("Checkpoint {name}{} of scope {}", label.unwrap_or_default(), checkpoint.scope));
        let counts = created.counts;
        out.line(format!(
            "  {}, {}, {}",
            counted(counts.places as u64, "folder", "folders"),
            counted(counts.plans as u64, "plan", "plans"),
            counted(counts.agents as u64, "agent", "agents")
        ));
        let held = counted(checkpoint.files.count, "file or folder", "files and folders");
        let stored = format!("{} new in the store, {} ms", size(checkpoint.size_bytes), out.elapsed_ms());
        out.line(format!("  {held}, {}; {stored}", size(checkpoint.files.bytes)));
    }
    checkpoint.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    if !created.pruned.is_empty() {
        out.note(format!(
            "{} pruned",
            counted(created.pruned.len() as u64, "old checkpoint", "old checkpoints")
        ));
    }
}

/// Tells what a rollback of many folders did, or would do.
pub(crate) fn answer(
    context: &Context,
    manager: &CheckpointManager,
    verb: Verb,
    restored: &RestoredTogether,
    dry_run: DryRun,
) -> Result<Reply, Problem> {
    tell(context, manager, verb, restored, dry_run)?;
    Ok(Reply::rolled_back(json!({ "rollback": shape(restored, verb, dry_run) })))
}

/// For people.
pub(super) fn tell(
    context: &Context,
    manager: &CheckpointManager,
    verb: Verb,
    restored: &RestoredTogether,
    dry_run: DryRun,
) -> Result<(), Problem> {
    let out = &context.out;
    if !out.quiet {
        let would = if dry_run == DryRun::Yes { "Would go" } else { "Went" };
        out.line(format!("{would} back together to {} ({verb})", out.colours.bold(restored.to)));
        for (record, outline) in &restored.places {
            let place = manager.workspace(record.workspace_id)?;
            let root = printable(&place.root_path().to_string_lossy());
            let counts = format!("{} put back, {} removed", outline.restored, outline.removed);
            out.line(format!("  {root}  {}", out.colours.dim(counts)));
        }
        let listed = |what: &str, names: &[String]| {
            if !names.is_empty() {
                out.line(format!("  {what} put back: {}", names.join(", ")));
            }
        };
        listed("plans", &restored.plans);
        listed("agents", &restored.agents);
        for (id, moved) in &restored.git {
            let root = manager.workspace(*id)?.root_path().to_string_lossy().into_owned();
            out.line(format!("  {}  {}", printable(&root), rollback::git_line(moved)));
        }
        rollback::effects(out, &restored.undone, &restored.effects_not_undone, dry_run);
        match dry_run {
            DryRun::Yes => out.line("  a dry run: nothing was changed"),
            DryRun::No => out.line(format!("  read back and verified, in {} ms", out.elapsed_ms())),
        }
    }
    rollback::effects_left(out, &restored.effects_not_undone);
    restored.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    for (record, outline) in &restored.places {
        let place = manager.workspace(record.workspace_id)?.root_path().to_string_lossy().into_owned();
        for blocked in &outline.blocked {
            out.warn(format!("{}: {}", printable(&place), rollback::stays(blocked)));
        }
    }
    for (id, path) in &restored.changed_meanwhile {
        let root = manager.workspace(*id)?.root_path().to_string_lossy().into_owned();
        let place = printable(&root);
        out.warn(format!(
            "{place}: {path} was changed by another program meanwhile and is as that program made it"
        ));
    }
    recover::waiting(&restored.waiting, |text| out.warn(text));
    if dry_run == DryRun::No {
        out.remark(match verb {
            Verb::Undo => "Do it again with: safepoint redo",
            _ => "Take it back, all of it, with: safepoint undo",
        });
    }
    Ok(())
}

/// The same for programs.
pub(super) fn shape(restored: &RestoredTogether, verb: Verb, dry_run: DryRun) -> Value {
    let sum = |count: fn(&safepoint::Outline) -> u64| -> u64 {
        restored.places.iter().map(|(_, outline)| count(outline)).sum()
    };
    let places: Vec<Value> = restored
        .places
        .iter()
        .map(|(record, outline)| {
            json!({
                "id": record.id,
                "workspace_id": record.workspace_id,
                "restored_files_count": outline.restored,
                "removed_files_count": outline.removed,
                "changed_paths": outline.paths,
                "blocked": outline.blocked,
                "rescued": record.rescued,
            })
        })
        .collect();
    json!({
        "id": restored.id,
        "verb": verb,
        "to": restored.to,
        "safety_checkpoint": restored.safety_checkpoint,
        "dry_run": dry_run == DryRun::Yes,
        "restored_files_count": sum(|outline| outline.restored),
        "removed_files_count": sum(|outline| outline.removed),
        "together": places,
        "plans": restored.plans,
        "agents": restored.agents,
        "git": restored.git.iter().map(|(id, moved)| in_folder(*id, moved)).collect::<Value>(),
        "undone": restored.undone,
        "effects_not_undone": restored.effects_not_undone,
        "verified": restored.verified,
        "waiting": restored.waiting,
    })
}

fn in_folder(workspace: WorkspaceId, moved: &GitMoved) -> Value {
    let mut told = json::git_moved(moved);
    told["workspace_id"] = json!(workspace);
    told
}
