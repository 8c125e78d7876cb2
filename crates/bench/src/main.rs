//! Measures Safepoint beside other tools and beside the least that any tool must do, how costs grow, and how many
//! instructions the hot paths take.
//!
//! In: a tree (or the shape of one to make), and the tools that are installed. Out: tables on standard output, and
//! on demand JSON, Markdown and plots. The tree is copied, never touched. `docs/benchmarks.md` says what is measured and why.

#![allow(clippy::disallowed_methods, reason = "benchmarks lay out folders and start programs")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are what it is for")]

mod args;
mod compare;
mod edits;
mod failure;
mod fit;
mod generate;
mod ground;
mod image;
mod instructions;
mod limits;
mod machine;
mod measure;
mod numbers;
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

/// Exit 0: measured, and every check passed. 1: measured, and a check failed. 2: could not be measured.
fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Compare(args) => compare::run(&args),
        Command::Scaling(args) => scaling::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Measured { command } => measure::run_measured(&command),
    }
}
