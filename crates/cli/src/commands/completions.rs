//! `completions`: a script for the shell. Those for bash, zsh and fish ask this program for the candidates; others come from the table of
//! flags.

use crate::args::{Arguments, CompletionsArgs};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;
use std::io::Write;

pub(crate) fn run(context: &Context, args: &CompletionsArgs) -> Result<Reply, Problem> {
    let script = match args.shell {
        Shell::Bash => include_bytes!("completions/safepoint.bash").to_vec(),
        Shell::Zsh => include_bytes!("completions/safepoint.zsh").to_vec(),
        Shell::Fish => include_bytes!("completions/safepoint.fish").to_vec(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut Arguments::command(), "safepoint", &mut script);
            script
        }
    };
    if !context.out.is_json() {
        // Errors are reported at the end.
        let _ = context.out.bytes().write_all(&script);
    }
    Ok(Reply::done(json!({ "script": String::from_utf8_lossy(&script) })))
}
