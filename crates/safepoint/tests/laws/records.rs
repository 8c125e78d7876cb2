//! Records of checkpoints, rollbacks and differences, and queries on them.

use crate::bench::{Bench, ParsePath, open};
use safepoint::model::change::ChangeKind;
use safepoint::model::checkpoint::{Kind, Phase, Reason, Role, Scope};
use safepoint::model::rollback::{RollbackState, Strategy, Verb};
use safepoint::{Against, CreateOptions, Error, Filter, RoleFilter, Settings, Silent};
use std::fs;

#[test]
fn a_checkpoint_says_everything_that_it_was_told() {
    let bench = Bench::new();
    bench.write("a", "12345");
    let mut options = CreateOptions {
        label: Some("first".to_owned()),
        kind: Kind::Workflow,
        reason: Reason::PhaseComplete,
        phase: Some(Phase::Validate),
        session_id: Some("session".to_owned()),
        source_tool: Some("tool".to_owned()),
        pinned: true,
        ..CreateOptions::default()
    };
    options.progress.set("tests_passing", 42).unwrap();
    let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap().checkpoint;
    // A fresh process finds the same.
    let read =
        open(&bench.home(), Settings::default()).checkpoints().find(Some(&bench.workspace), "first").unwrap();
    assert_eq!(read, created);
    assert_eq!((read.scope, read.phase, read.pinned), (Scope::Project, Some(Phase::Validate), true));
    assert_eq!((read.files.count, read.files.bytes, read.files.added), (1, 5, 1));
    assert_eq!(read.progress.tests_passing, 42);
    assert!(read.size_bytes > 0 && read.parent.is_none() && read.role.is_none());
    bench.write("a", "123456");
    bench.write("b", "1");
    let second = bench.create();
    assert_eq!((second.files.added, second.files.modified, second.files.removed), (1, 1, 0));
    assert_eq!(second.parent, Some(created.id));
    fs::remove_file(bench.path("b")).unwrap();
    assert_eq!(bench.create().files.removed, 1);
}

#[test]
fn the_same_state_costs_nothing_again() {
    let bench = Bench::new();
    for number in 0..50 {
        bench.write(&format!("d{}/f{number}", number % 5), format!("content {number}"));
    }
    assert!(bench.create().size_bytes > 0);
    assert_eq!(bench.create().size_bytes, 0);
    // The stat cache is only a cache.
    fs::remove_dir_all(bench.home().join("cache")).unwrap();
    assert_eq!(bench.create().size_bytes, 0);
}

#[test]
fn a_rollback_is_on_record_and_counted() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let restored = bench.rollback(checkpoint.id);
    let record = bench.manager.rollbacks(&bench.workspace).unwrap().pop().unwrap();
    assert_eq!(&record, restored.record());
    assert_eq!(
        (record.verb, record.strategy, record.state),
        (Verb::Rollback, Strategy::Immediate, RollbackState::Settled)
    );
    assert_eq!(
        (record.from, record.to, record.actor.as_str()),
        (Some(checkpoint.id), checkpoint.id, "tester")
    );
    assert_eq!((record.restored_files_count, record.removed_files_count), (1, 0));
    assert_eq!(bench.manager.changed_paths(&record).unwrap(), restored.outline().paths);
    let used = bench.manager.checkpoints().get(checkpoint.id).unwrap();
    assert_eq!((used.rollback_used, used.rollback_count), (true, 1));
    let safety = bench.manager.checkpoints().get(record.safety_checkpoint.unwrap()).unwrap();
    assert_eq!(
        (safety.role, safety.kind, safety.reason),
        (Some(Role::Safety), Kind::Automatic, Reason::PreRiskyOperation)
    );
    assert_eq!(bench.manager.workspaces().get(bench.workspace.id).unwrap().head, Some(checkpoint.id));
    // `@` is the last requested checkpoint, not a safety checkpoint.
    assert_eq!(bench.manager.checkpoints().find(Some(&bench.workspace), "@").unwrap().id, checkpoint.id);
    let undone = bench.undo().record().clone();
    assert_eq!((undone.verb, undone.answers), (Verb::Undo, Some(record.id)));
    let redone = bench.redo().record().clone();
    assert_eq!((redone.verb, redone.answers), (Verb::Redo, Some(undone.id)));
}

#[test]
fn undo_and_redo_go_to_any_depth() {
    let bench = Bench::new();
    let mut states = Vec::new();
    for number in 0..5 {
        bench.write("a", format!("{number}"));
        states.push(bench.create().id);
    }
    bench.write("a", "now");
    for id in states.iter().rev() {
        bench.rollback(*id);
    }
    let expected = ["1", "2", "3", "4", "now"];
    for text in expected {
        bench.undo();
        assert_eq!(bench.read("a"), text);
    }
    for text in ["4", "3", "2", "1", "0"] {
        bench.redo();
        assert_eq!(bench.read("a"), text);
    }
    // Later edits are in the safety checkpoint of the undo, and return with the redo.
    bench.write("a", "edited after");
    bench.undo();
    bench.redo();
    assert_eq!(bench.read("a"), "edited after");
}

#[test]
fn an_undo_of_chosen_paths_is_about_these_paths() {
    let bench = Bench::new();
    bench.write("a", "1");
    bench.write("b", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    bench.write("b", "2");
    let restored = bench.restore_paths(checkpoint.id, &["a"]);
    assert_eq!(restored.record().strategy, Strategy::Selective);
    assert_eq!((bench.read("a").as_str(), bench.read("b").as_str()), ("1", "2"));
    bench.write("b", "3");
    bench.undo();
    assert_eq!((bench.read("a").as_str(), bench.read("b").as_str()), ("2", "3"));
}

#[test]
fn a_difference_tells_each_path_and_gives_the_bytes() {
    let bench = Bench::new();
    bench.write("changed", "old\n");
    bench.write("gone", "x");
    std::os::unix::fs::symlink("target", bench.path("link")).unwrap();
    let old = bench.create();
    bench.write("changed", "new\n");
    fs::remove_file(bench.path("gone")).unwrap();
    fs::remove_file(bench.path("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", bench.path("link")).unwrap();
    bench.write("large", vec![7u8; 5000]);
    let check = |against: &Against| {
        let comparison = bench.manager.diff(&bench.workspace, &old, against, &Silent).unwrap();
        let told: Vec<String> =
            comparison.changes.iter().map(|it| format!("{} {}", it.kind, it.path)).collect();
        assert_eq!(told, ["modified changed", "removed gone", "added large", "modified link"]);
        let bytes = |at: usize| {
            let change = &comparison.changes[at];
            (comparison.old_bytes(change, 100).unwrap(), comparison.new_bytes(change, 100).unwrap())
        };
        assert_eq!(bytes(0), (Some(b"old\n".to_vec()), Some(b"new\n".to_vec())));
        assert_eq!(bytes(1), (Some(b"x".to_vec()), None));
        assert_eq!(bytes(2), (None, None), "longer than the limit");
        assert_eq!(bytes(3), (Some(b"target".to_vec()), Some(b"elsewhere".to_vec())));
    };
    let objects = bench.manager.upkeep().usage().unwrap().objects;
    check(&Against::Present);
    assert_eq!(bench.manager.upkeep().usage().unwrap().objects, objects, "a diff stores nothing");
    check(&Against::Checkpoint(Box::new(bench.create())));
}

#[test]
fn the_status_is_about_the_checkpoint_that_one_is_at() {
    let bench = Bench::new();
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    assert!(status.base.is_none() && status.changes.is_empty());
    bench.write("a", "1");
    let first = bench.create();
    bench.write("a", "2");
    bench.create();
    bench.rollback(first.id);
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    assert_eq!(status.base.unwrap().id, first.id);
    assert!(status.changes.is_empty() && status.recovery.is_empty());
    bench.write("b", "1");
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    assert_eq!(status.changes[0].kind, ChangeKind::Added);
    assert!(status.usage.objects > 0);
}

#[test]
fn a_file_can_be_looked_at_as_it_was() {
    let bench = Bench::new();
    let large: Vec<u8> = (0..400_000u32).flat_map(|n| n.to_le_bytes()).collect();
    bench.write("d/large", &large);
    std::os::unix::fs::symlink("target", bench.path("link")).unwrap();
    let checkpoint = bench.create();
    let cat = |path: &str| {
        let mut out = Vec::new();
        bench.manager.checkpoints().cat(&checkpoint, &path.parse_path(), &mut out).map(|()| out)
    };
    assert_eq!(cat("d/large").unwrap(), large);
    assert_eq!(cat("link").unwrap(), b"target");
    assert!(matches!(cat("d"), Err(Error::NotAFile { .. })));
    assert!(matches!(cat("nothing"), Err(Error::NoPath { .. })));
    let listed: Vec<String> = bench
        .manager
        .checkpoints()
        .entries(&checkpoint)
        .unwrap()
        .iter()
        .map(|it| it.path.to_string())
        .collect();
    assert_eq!(listed, ["d", "d/large", "link"]);
    assert!(bench.manager.checkpoints().coverage(&checkpoint).unwrap().skipped.is_empty());
}

#[test]
fn names_find_checkpoints_and_say_when_they_cannot() {
    let bench = Bench::new();
    let first = bench.create();
    let second = bench.create();
    let get = |name: &str| bench.manager.checkpoints().find(Some(&bench.workspace), name);
    assert_eq!(get("@").unwrap().id, second.id);
    assert_eq!(get("@~1").unwrap().id, first.id);
    assert_eq!(get(&first.id.to_uuid()).unwrap().id, first.id);
    assert_eq!(get(&first.id.to_string().to_lowercase()).unwrap().id, first.id);
    let common: String = first.id.to_string().chars().take(6).collect();
    let error = get(&common).unwrap_err();
    assert!(matches!(&error, Error::Ambiguous { candidates, .. } if candidates.len() == 2), "{error}");
    assert!(safepoint::Failure::from(&error).hints.iter().any(|hint| hint.contains(&first.id.to_string())));
    assert!(matches!(get("nothing like it"), Err(Error::NoCheckpoint { .. })));
    assert!(matches!(get("@~9"), Err(Error::NoCheckpoint { .. })));
    assert!(matches!(get("@~x"), Err(Error::Model(_))));
}

#[test]
fn lists_and_summaries_agree() {
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    bench.rollback(checkpoint.id);
    let here = Filter { workspace: Some(bench.workspace.id), ..Filter::default() };
    assert_eq!(bench.manager.checkpoints().list(&here).unwrap().len(), 1);
    let all = Filter { role: RoleFilter::Any, ..here.clone() };
    assert_eq!(bench.manager.checkpoints().list(&all).unwrap().len(), 2);
    let summary = bench.manager.checkpoints().summary(&here).unwrap();
    assert_eq!((summary.total_checkpoints, summary.checkpoints_used_for_rollback), (1, 1));
    assert_eq!(bench.manager.workspaces().list().unwrap().len(), 1);
    assert!(bench.manager.workspaces().capabilities(&bench.workspace).unwrap().exchange);
    let nobody = safepoint::model::WorkspaceId::from_bits(3);
    assert!(matches!(bench.manager.workspaces().get(nobody), Err(Error::NoWorkspace { .. })));
}

#[test]
fn the_workspace_around_a_folder_is_found() {
    let bench = Bench::new();
    bench.write("deep/down/x", "1");
    let around = bench.manager.workspaces().around(&bench.path("deep/down")).unwrap().unwrap();
    assert_eq!(around.id, bench.workspace.id);
    assert!(bench.manager.workspaces().around(&bench.home()).unwrap().is_none());
    assert_eq!(bench.manager.workspaces().register(&bench.root()).unwrap().id, bench.workspace.id);
    assert_eq!(bench.manager.home(), bench.home().canonicalize().unwrap());
}
