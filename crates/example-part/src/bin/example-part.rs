//! Takes checkpoints of a folder together with an external file of keys and values, and rolls back to them:
//! `example-part HOME PROJECT FOLDER create | rollback ID | recover | set KEY VALUE`.

use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Settings, Silent, SystemEnvironment};
use safepoint_example_part::KvParts;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line of the program")]
fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [home, project, folder, verb, rest @ ..] = words.as_slice() else {
        return Err("expected: HOME PROJECT FOLDER VERB".into());
    };
    let parts = KvParts::new(Path::new(folder))?;
    if let ("set", [key, value]) = (*verb, rest) {
        parts.set(key, value)?;
        return Ok(String::new());
    }
    let settings = Settings { parts: vec![Arc::new(parts)], ..Settings::default() };
    let manager =
        CheckpointManager::open_with(Path::new(home), settings, Box::new(SystemEnvironment::default()))?;
    let workspace = manager.workspaces().register(Path::new(project))?;
    match (*verb, rest) {
        ("create", []) => {
            Ok(manager.create(&workspace, &CreateOptions::default(), &Silent)?.checkpoint.id.to_string())
        }
        ("rollback", [id]) => {
            let done = manager.rollback(&workspace, id.parse()?, &RollbackOptions::default(), &Silent)?;
            Ok(format!("{} parts of this program rolled back", done.others.len()))
        }
        ("recover", []) => Ok(format!("{} undone", manager.recover(&workspace, &Silent)?.undone.len())),
        _ => Err("expected: create, rollback ID, recover, or set KEY VALUE".into()),
    }
}
