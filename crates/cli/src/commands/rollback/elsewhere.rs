//! `rollback --to`: builds the files of a checkpoint in another folder. Neither workspace nor home is written.

use crate::args::RollbackArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable, size};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn run(context: &Context, args: &RollbackArgs, to: &Path) -> Result<Reply, Problem> {
    let words = args.words.iter().map(|word| word.to_string_lossy().into_owned());
    let [given] = &words.chain(args.checkpoint_id.clone()).collect::<Vec<_>>()[..] else {
        return Err(Problem::usage(
            "--to takes one checkpoint",
            "Name it, as in `safepoint rollback @ --to DIR`.",
        ));
    };
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let session = args.session_id.as_deref();
    let checkpoint = context.checkpoint(&manager, workspace.as_ref(), given, session)?;
    let folder = context.surroundings.directory.join(to);
    let built = manager.build(&checkpoint, &folder, &context.progress)?;
    let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
    out.line(format!("Built {}{}", out.colours.bold(checkpoint.id), label.unwrap_or_default()));
    out.line(format!(
        "  {}, {}, read back and verified",
        counted(built.files, "file", "files"),
        size(built.bytes)
    ));
    for folder in &built.folders {
        out.line(format!("  {}", printable(&folder.display().to_string())));
    }
    let folders: Value =
        built.folders.iter().map(|folder| json::bytes(folder.as_os_str().as_bytes())).collect();
    Ok(Reply::done(json!({
        "rollback": null,
        "built": {
            "checkpoint": checkpoint.id,
            "folders": folders,
            "files": built.files,
            "bytes": built.bytes,
        },
    })))
}
