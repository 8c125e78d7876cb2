//! `import`: creates a checkpoint in the current workspace from a folder of `export`.

use crate::args::layout::ImportArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, moment, printable, size};
use crate::render::warning;
use crate::{commands::create, commands::show};
use safepoint::model::checkpoint::Scope;
use safepoint::{ImportOptions, Layout, check_layout};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<Reply, Problem> {
    let out = &context.out;
    let folder = context.surroundings.directory.join(&args.folder);
    let folder = folder.canonicalize().unwrap_or(folder);
    let manager = context.surroundings.open(None)?;
    let options =
        ImportOptions { label: args.label.clone().filter(|label| !label.is_empty()), pinned: args.pin };
    // Checked before a workspace is registered for it.
    let (workspace, mut imported) = match check_layout(&folder)? {
        Scope::Project | Scope::Workflow => {
            let workspace = create::workspace(context, &manager)?;
            let imported = manager.import(&workspace, &folder, &options, &context.progress)?;
            (Some(workspace), imported)
        }
        Scope::Agent | Scope::Framework => {
            (None, manager.import(None, &folder, &options, &context.progress)?)
        }
    };
    if workspace.is_none() {
        // Skipped files beside an agent's files are irrelevant.
        imported.coverage.skipped.retain(create::is_lack);
    }
    let checkpoint = &imported.checkpoint;
    if out.quiet {
        out.line(checkpoint.id);
    } else {
        let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
        let label = label.unwrap_or_default();
        let scope = match workspace {
            Some(_) => String::new(),
            None => format!(" of scope {}", checkpoint.scope),
        };
        out.line(format!("Imported {}{label}{scope}", out.colours.bold(checkpoint.id)));
        if let Some(parts) = show::parts(checkpoint) {
            out.line(format!("  {parts}"));
        }
        let held = counted(checkpoint.files.count, "file or folder", "files and folders");
        let stored = format!("{} new in the store", size(checkpoint.size_bytes));
        out.line(format!("  {held}, {}; {stored}", size(checkpoint.files.bytes)));
        out.line(format!("  it was {}, taken {}", imported.original, moment(checkpoint.created_at)));
        let unmoved = match workspace {
            Some(_) => "The workspace is as it was",
            None => "All folders are as they were",
        };
        out.remark(match imported.missing.is_empty() {
            true => format!("{unmoved}. Roll back to it: safepoint rollback {}", checkpoint.id),
            false => format!("{unmoved}."),
        });
    }
    for warning in checkpoint.warnings.iter().chain(&imported.missing) {
        out.warn(printable(warning));
    }
    warning::warn(out, &imported.warnings);
    Ok(Reply::done(json!({
        "checkpoint": json::checkpoint_with_coverage(checkpoint, &imported.coverage),
        "workspace": workspace.as_ref().map(json::workspace),
        "import": {
            "path": json::bytes(folder.as_os_str().as_bytes()),
            "layout": Layout::Tree,
            "original": imported.original,
            "original_created_at": imported.original_created_at,
            "missing": imported.missing,
        },
        "pruned": imported.pruned,
    })))
}
