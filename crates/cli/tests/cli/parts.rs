//! Parts of other programs, seen by the binary, which has no code of theirs.

use crate::sandbox::Sandbox;
use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Settings, Silent, SystemEnvironment};
use safepoint_example_part::{KvParts, PROGRAM};
use std::fs;
use std::sync::Arc;

#[test]
fn an_unfinished_rollback_with_a_part_of_another_program_is_refused() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("elsewhere");
    fs::create_dir(&folder).unwrap();
    let parts = KvParts::new(&folder).unwrap();
    let settings = Settings { parts: vec![Arc::new(KvParts::new(&folder).unwrap())], ..Settings::default() };
    let environment = Box::new(SystemEnvironment::default());
    let manager = CheckpointManager::open_with(&sandbox.path("home"), settings, environment).unwrap();
    let workspace = manager.workspaces().register(&sandbox.path("project")).unwrap();
    parts.set("key", "1").unwrap();
    sandbox.write("file", "1");
    let one = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
    parts.set("key", "2").unwrap();
    sandbox.write("file", "2");
    let done = manager.rollback(&workspace, one, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(done.others.len(), 1);
    drop(manager);
    // As after a kill before the commit.
    let sql = rusqlite::Connection::open(sandbox.path("home/catalog.db")).unwrap();
    sql.execute("UPDATE rollbacks SET state = 'applying' WHERE id = ?1", [done.id.to_string()]).unwrap();
    for command in [&["create"][..], &["rollback", "@"], &["undo"], &["status"], &["diff"], &["recover"]] {
        let told = sandbox.run(command);
        assert!(told.contains(PROGRAM) && told.contains("--- exit 12"), "{command:?}: {told}");
        assert_eq!((sandbox.read("file").as_str(), parts.text().unwrap().as_deref()), ("1", Some("key=1\n")));
    }
    // What needs no recovery works.
    assert!(sandbox.run(&["list"]).contains("--- exit 0"));
}
