//! `export`: a checkpoint as a folder that others can read.

use crate::args::layout::{ExportArgs, LayoutForm};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable, size};
use safepoint::OutsideMemory;
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<Reply, Problem> {
    // There is one so far; another one is another arm.
    let LayoutForm::Tree = args.layout;
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let checkpoint = context.checkpoint(&manager, workspace.as_ref(), &args.id, None)?;
    let folder = context.surroundings.directory.join(&args.folder);
    let memory = if args.with_memory { OutsideMemory::Written } else { OutsideMemory::Omitted };
    let exported = manager.export_checkpoint(&checkpoint, &folder, memory, &context.progress)?;
    // As short as it can be said.
    let path = exported.path.canonicalize().unwrap_or(exported.path);
    if out.quiet && !out.is_json() {
        // Byte for byte, for the script that asked, except on a terminal. What goes wrong is told at the end.
        let _ = out.bytes().write_all(&[path.as_os_str().as_bytes(), b"\n"].concat());
    } else {
        let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
        out.line(format!("Exported {}{}", out.colours.bold(checkpoint.id), label.unwrap_or_default()));
        out.line(format!("  {}, {}", counted(exported.files, "file", "files"), size(exported.bytes)));
        out.line(format!("  {}", printable(&path.display().to_string())));
        if exported.omitted > 0 {
            out.remark("Memory of its agents outside of the workspace is not in it; --with-memory adds it.");
        }
    }
    Ok(Reply::done(json!({
        "export": {
            "path": json::bytes(path.as_os_str().as_bytes()),
            "layout": exported.layout,
            "checkpoint": exported.checkpoint,
            "files": exported.files,
            "bytes": exported.bytes,
            "omitted": exported.omitted,
        },
    })))
}
