//! The program `safepoint`. Its faces stand side by side: `cli` for the terminal; others join here.

mod checks;
mod cli;
mod context;
mod json;
mod problem;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
