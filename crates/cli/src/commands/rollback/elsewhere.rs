//! `rollback --to`: builds the files of a checkpoint in another folder. Neither workspace nor home is written.

use crate::args::RollbackArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, for_shell, printable, size};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn run(context: &Context, args: &RollbackArgs, to: &Path) -> Result<Reply, Problem> {
    let words = args.words.iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.chain(args.checkpoint_id.clone()).collect();
    let one = || {
        let example = format!("safepoint rollback @ --to {}", for_shell(&to.to_string_lossy()));
        Problem::usage("--to takes one checkpoint or turn", &format!("Name it, as in: {example}"))
    };
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let given = match (super::turns::named(args), &words[..]) {
        (None, [given]) => given.clone(),
        (Some((number, side)), []) => {
            let workspace = context.surroundings.workspace(&manager)?;
            manager.turns().checkpoint(&workspace, number, side)?.id.to_string()
        }
        _ => return Err(one()),
    };
    let session = args.session_id.as_deref();
    let checkpoint = context.checkpoint(&manager, workspace.as_ref(), &given, session)?;
    let folder = context.surroundings.absolute(to);
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
