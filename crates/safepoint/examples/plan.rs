//! Drives a plan from outside: a step goes wrong, and plan and files go back together.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example sets up a folder and tells what it did"
)]

use safepoint::{CheckpointManager, PlanFile, RollbackOptions, Silent};
use std::error::Error;
use std::fs;

const PLAN: &str = "
title = 'Add a limit'
id = 'limits'
[[step]]
id = 'schema'
[[step]]
id = 'code'
";

fn main() -> Result<(), Box<dyn Error>> {
    let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let manager = CheckpointManager::open(home.path())?;
    let workspace = manager.workspaces().register(project.path())?;
    manager.plans().create(&workspace, &PlanFile::parse(PLAN.as_bytes(), None)?.spec)?;

    manager.plans().start_step("limits", "schema", &Silent)?;
    fs::write(project.path().join("schema.sql"), "create table limits (n int);\n")?;
    manager.plans().finish_step("limits", "schema", None, &Silent)?;
    let good =
        manager.plans().checkpoint("limits", &safepoint::CreateOptions::default(), &Silent)?.checkpoint;

    manager.plans().start_step("limits", "code", &Silent)?;
    fs::remove_file(project.path().join("schema.sql"))?;
    manager.plans().fail_step("limits", "code", "it deleted the schema", &Silent)?;

    let done = manager.plans().rollback("limits", good.id, &RollbackOptions::default(), &Silent)?;
    println!("taken back: {:?}", done.plans);
    assert!(project.path().join("schema.sql").exists());
    assert_eq!(manager.plans().get("limits")?.plan.step_index(), 1);
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().unwrap();
}
