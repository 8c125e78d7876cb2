//! `completions`: a script for the shell, from the table of flags.

use crate::args::{Arguments, CompletionsArgs};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use clap::CommandFactory;
use serde_json::json;
use std::io::Write;

pub(crate) fn run(context: &Context, args: &CompletionsArgs) -> Result<Reply, Problem> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "safepoint", &mut script);
    if !context.out.is_json() {
        // Errors are reported at the end.
        let _ = context.out.bytes().write_all(&script);
    }
    Ok(Reply::done(json!({ "script": String::from_utf8_lossy(&script) })))
}
