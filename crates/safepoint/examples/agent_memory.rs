//! Registers an agent with its memory, takes a checkpoint of everything, and brings back the memory alone.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example sets up a folder and tells what it did"
)]

use safepoint::model::checkpoint::PartKind;
use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Silent, Subject};
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let (home, project, agent) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let notes = agent.path().join("notes.md");
    fs::write(&notes, "the tests need a database\n")?;
    fs::write(project.path().join("main.rs"), "one")?;

    let manager = CheckpointManager::open(home.path())?;
    manager.workspaces().register(project.path())?;
    manager.agents().register("coder", &[], &[agent.path().to_owned()])?;
    let all = manager.create(Subject::Framework, &CreateOptions::default(), &Silent)?.checkpoint;

    fs::write(&notes, "")?;
    fs::write(project.path().join("main.rs"), "two")?;
    let options = RollbackOptions { parts: vec![PartKind::Agent], ..RollbackOptions::default() };
    let done = manager.rollback(None, all.id, &options, &Silent)?;
    println!("agents that went back: {}", done.agents.join(", "));
    assert_eq!(fs::read_to_string(&notes)?, "the tests need a database\n");
    assert_eq!(fs::read_to_string(project.path().join("main.rs"))?, "two");
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().unwrap();
}
