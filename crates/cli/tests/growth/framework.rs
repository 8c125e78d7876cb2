//! Cost of a checkpoint of everything: 50 workspaces of 1,000 files, 20 agents and 30 plans.

use safepoint::model::checkpoint::PartKind;
use safepoint::model::plan::spec::{Milestones, PlanSpec, StepSpec};
use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Silent, Subject};
use std::fs;
use std::time::{Duration, Instant};

const WORKSPACES: usize = 50;
const FILES: usize = 1_000;
const AGENTS: usize = 20;
const PLANS: usize = 30;

#[test]
#[ignore = "takes minutes"]
fn a_checkpoint_of_everything_is_quick_and_quicker_when_little_changed() {
    let folder = tempfile::tempdir().unwrap();
    let manager = CheckpointManager::open(&folder.path().join("home")).unwrap();
    let mut workspaces = Vec::new();
    for number in 0..WORKSPACES {
        let root = folder.path().join(format!("project-{number}"));
        for file in 0..FILES {
            let path = root.join(format!("src/{}/file-{file}.rs", file % 20));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!("// {number} {file}\n").repeat(40 + file % 200);
            fs::write(path, text).unwrap();
        }
        workspaces.push(manager.workspaces().register(&root).unwrap());
    }
    for number in 0..AGENTS {
        let home = folder.path().join(format!("agents/a{number}"));
        fs::create_dir_all(home.join("memory")).unwrap();
        for note in 0..20 {
            fs::write(home.join(format!("memory/{note}.md")), format!("note {number} {note}")).unwrap();
        }
        fs::write(home.join("settings.json"), "{}").unwrap();
        let (config, memory) = (home.join("settings.json"), home.join("memory"));
        manager.agents().register(&format!("a{number}"), &[config], &[memory]).unwrap();
    }
    for (number, workspace) in workspaces.iter().enumerate().take(PLANS) {
        let spec = PlanSpec {
            id: Some(format!("p{number}")),
            steps: (0..20).map(|step| StepSpec::new(format!("s{step}"))).collect(),
            checkpoints: Milestones::none(),
            ..PlanSpec::new("Plan")
        };
        manager.plans().create(workspace, &spec).unwrap();
    }
    let take = || {
        let since = Instant::now();
        let created = manager.create(&Subject::Framework, &CreateOptions::default(), &Silent).unwrap();
        (created, since.elapsed())
    };
    let (first, cold) = take();
    println!(
        "from nothing: {} folders, {} files and folders in {cold:.2?}",
        first.checkpoint.count(PartKind::Files),
        first.checkpoint.files.count
    );
    assert_eq!(
        (first.checkpoint.count(PartKind::Plan), first.checkpoint.count(PartKind::Agent)),
        (PLANS, AGENTS)
    );
    let mut warm = Vec::new();
    for round in 0..5 {
        for (number, workspace) in workspaces.iter().enumerate().step_by(5) {
            fs::write(workspace.root_path().join(format!("src/0/new-{round}-{number}")), "new").unwrap();
        }
        warm.push(take().1);
    }
    println!("when ten files are new: {warm:.2?}");
    let since = Instant::now();
    let restored = manager.rollback(None, first.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    let back: u64 = restored.folders.iter().map(|it| it.outline.restored + it.outline.removed).sum();
    println!("rolled back {back} paths in {} folders in {:.2?}", restored.folders.len(), since.elapsed());
    assert!(cold < Duration::from_secs(10), "{cold:?}");
    warm.sort();
    assert!(warm[2] < Duration::from_secs(1), "{warm:?}");
}
