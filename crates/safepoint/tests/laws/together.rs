//! Concurrent processes on one workspace and on one store.

use crate::bench::{Bench, assert_same, open, scratch};
use safepoint::{CreateOptions, RollbackOptions, Settings, Silent};
use safepoint_testkit::TreeImage;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn many_on_one_workspace_take_turns_and_nothing_is_half() {
    let bench = Bench::new();
    for number in 0..30 {
        bench.write(&format!("f{number}"), "A");
    }
    let all_a = bench.create();
    for number in 0..30 {
        bench.write(&format!("f{number}"), "B");
    }
    let all_b = bench.create();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (bench, done) = (&bench, &done);
            scope.spawn(move || {
                let manager = open(&bench.home(), Settings::default());
                for round in 0..8 {
                    if (worker + round) % 3 == 0 {
                        let taken =
                            manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
                        assert!(is_uniform(&manager, &taken.checkpoint), "the checkpoint is a mixture");
                    } else {
                        let to = if (worker + round) % 2 == 0 { all_a.id } else { all_b.id };
                        manager.rollback(&bench.workspace, to, &RollbackOptions::default(), &Silent).unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 32);
    let contents: std::collections::BTreeSet<String> =
        (0..30).map(|n| bench.read(&format!("f{n}"))).collect();
    assert_eq!(contents.len(), 1, "all A or all B");
    assert!(bench.manager.upkeep().validate(None, safepoint::Depth::Deep, &Silent).unwrap().is_valid());
}

/// Returns true if all files of a checkpoint are the same object: all A or all B.
fn is_uniform(
    manager: &safepoint::CheckpointManager,
    checkpoint: &safepoint::model::checkpoint::Checkpoint,
) -> bool {
    let entries = manager.checkpoints().entries(checkpoint).unwrap();
    entries.windows(2).all(|pair| pair[0].entry.node == pair[1].entry.node)
}

#[test]
fn many_workspaces_share_one_store() {
    let folder = scratch();
    let home = folder.path().join("home");
    drop(open(&home, Settings::default()));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (folder, home) = (folder.path(), &home);
            scope.spawn(move || {
                let project = folder.join(format!("project{worker}"));
                fs::create_dir(&project).unwrap();
                let manager = open(home, Settings::default());
                let workspace = manager.workspaces().register(&project).unwrap();
                for round in 0..6 {
                    for file in 0..20 {
                        fs::write(project.join(format!("f{file}")), format!("shared {file} {}", round % 3))
                            .unwrap();
                    }
                    fs::write(project.join("own"), format!("{worker} {round}")).unwrap();
                    let taken = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap();
                    let image = TreeImage::read(&project, &[]).unwrap();
                    fs::remove_file(project.join("own")).unwrap();
                    fs::write(project.join("f1"), "spoilt").unwrap();
                    manager
                        .rollback(&workspace, taken.checkpoint.id, &RollbackOptions::default(), &Silent)
                        .unwrap();
                    assert_same(&TreeImage::read(&project, &[]).unwrap(), &image);
                }
            });
        }
    });
    let manager = open(&home, Settings::default());
    let validation = manager.upkeep().validate(None, safepoint::Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    assert_eq!(validation.checkpoints, 4 * 6 * 2);
}
