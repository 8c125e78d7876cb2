//! Takes a checkpoint, lets something go wrong, rolls back, and undoes the rollback.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example sets up a folder and tells what it did"
)]

use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Silent};
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let file = project.path().join("main.rs");
    fs::write(&file, "fn main() {}\n")?;

    let manager = CheckpointManager::open(home.path())?;
    let workspace = manager.workspaces().register(project.path())?;
    let options = CreateOptions { label: Some("it works".to_owned()), ..CreateOptions::default() };
    let good = manager.create(&workspace, &options, &Silent)?.checkpoint;

    fs::write(&file, "fn main() { oops")?;
    let done = manager.rollback(&workspace, good.id, &RollbackOptions::default(), &Silent)?;
    println!("{} file restored, verified: {}", done.outline().restored, done.verified);
    assert_eq!(fs::read_to_string(&file)?, "fn main() {}\n");

    manager.undo(&workspace, &RollbackOptions::default(), &Silent)?;
    assert_eq!(fs::read_to_string(&file)?, "fn main() { oops");
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().unwrap();
}
