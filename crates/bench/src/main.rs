//! Measures Safepoint against other tools and lower limits, the growth of its costs, and the instructions of
//! its hot paths.
//!
//! Input: a tree (or a shape to generate), and the installed tools. Output: tables on standard output,
//! optionally JSON, Markdown and plots. The tree is copied, never changed. `docs/benchmarks.md` describes the
//! measurements and their reasons.

#![allow(clippy::disallowed_methods, reason = "benchmarks lay out folders and start programs")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the program prints figures")]

mod args;
mod attempts;
mod compare;
mod edits;
mod failure;
mod fit;
mod fleet;
mod generate;
mod ground;
mod hooks;
mod image;
mod instructions;
mod limits;
mod machine;
mod measure;
mod numbers;
mod remote;
mod report;
mod scaling;
mod tools;
mod works;

use args::{Args, Command};
use clap::Parser;
use failure::Result;
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Args::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Returns exit code 0 if every check passed, 1 if a check failed, 2 if measuring failed.
fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Compare(args) => compare::run(&args),
        Command::Scaling(args) => scaling::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Hooks(args) => hooks::run(&args),
        Command::Attempts(args) => attempts::run(&args),
        Command::Edit(args) => attempts::edit(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Remote(args) => remote::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Measured { command } => measure::run_measured(&command),
    }
}
