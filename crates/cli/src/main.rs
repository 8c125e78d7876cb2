//! The program `safepoint`. Its faces stand side by side: `cli` for the terminal; others join here.

mod args;
mod checks;
mod commands;
mod context;
mod log;
mod problem;
mod render;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main()
}
