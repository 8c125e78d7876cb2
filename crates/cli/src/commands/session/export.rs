//! `session export`: the log of a session, to standard output or into a file of its own.
//!
//! A file is there whole or not at all, and one that is there already stays unless it may be replaced.

use crate::args::session::ExportArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, json_text, printable};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Handling of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Stays,
    Replaced,
}

pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<Reply, Problem> {
    let log = context.surroundings.open(None)?.sessions().export(args.session.id.parse()?)?;
    let shape = json::session::log(&log);
    let text = format!("{shape:#}\n");
    let text = json_text(&text);
    let Some(file) = &args.file else {
        if !context.out.is_json() {
            // Errors are reported at the end.
            let _ = context.out.bytes().write_all(text.as_bytes());
        }
        return Ok(Reply::done(json!({ "log": shape, "file": null })));
    };
    let path = context.surroundings.directory.join(file);
    let existing = if args.force { Existing::Replaced } else { Existing::Stays };
    write(&path, text.as_bytes(), existing).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Problem::exists(&path),
        _ => Problem::not_written(&path, &error),
    })?;
    let count = counted(log.summary.total_checkpoints, "checkpoint", "checkpoints");
    context.out.remark(format!("Wrote the log with {count} to {}", printable(&path.to_string_lossy())));
    Ok(Reply::done(json!({ "log": shape, "file": json::bytes(path.as_os_str().as_encoded_bytes()) })))
}

/// Written beside its place, made durable, and only then moved there.
fn write(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".safepoint-export-").permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let moved = match existing {
        Existing::Stays => file.persist_noclobber(path),
        Existing::Replaced => file.persist(path),
    };
    moved.map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
