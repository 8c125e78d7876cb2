//! `import`: a folder that `export` wrote becomes a checkpoint of the workspace around.

use crate::cli::Context;
use crate::cli::args::layout::ImportArgs;
use crate::cli::create;
use crate::cli::output::Reply;
use crate::cli::terminal::{counted, moment, printable, size};
use crate::json;
use crate::problem::Problem;
use safepoint::{ImportOptions, Layout, check_layout};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<Reply, Problem> {
    let out = &context.out;
    let folder = context.surroundings.directory.join(&args.folder);
    let folder = folder.canonicalize().unwrap_or(folder);
    let manager = context.surroundings.open(None)?;
    // Before a workspace is registered for it.
    check_layout(&folder)?;
    let workspace = create::workspace(context, &manager)?;
    let options =
        ImportOptions { label: args.label.clone().filter(|label| !label.is_empty()), pinned: args.pin };
    let imported = manager.import_layout(&workspace, &folder, &options, &context.progress)?;
    let checkpoint = &imported.checkpoint;
    if out.quiet {
        out.line(checkpoint.id);
    } else {
        let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
        out.line(format!("Imported {}{}", out.colours.bold(checkpoint.id), label.unwrap_or_default()));
        let held = counted(checkpoint.files.count, "file or folder", "files and folders");
        let stored = format!("{} new in the store", size(checkpoint.size_bytes));
        out.line(format!("  {held}, {}; {stored}", size(checkpoint.files.bytes)));
        out.line(format!("  it was {}, taken {}", imported.original, moment(checkpoint.created_at)));
        out.remark("The workspace is as it was; `safepoint rollback ID` goes there.");
    }
    for warning in &checkpoint.warnings {
        out.warn(printable(warning));
    }
    Ok(Reply::done(json!({
        "checkpoint": json::checkpoint_with_coverage(checkpoint, &imported.coverage),
        "workspace": json::workspace(&workspace),
        "import": {
            "path": json::bytes(folder.as_os_str().as_bytes()),
            "layout": Layout::Tree,
            "original": imported.original,
            "original_created_at": imported.original_created_at,
        },
        "pruned": imported.pruned,
    })))
}
