//! Cost of checkpoints of a large plan: 1,000 steps and 10,000 decisions, 1,000 checkpoints with one change
//! between them.

use safepoint::model::id::DecisionId;
use safepoint::model::plan::spec::{Milestones, PlanSpec, StepSpec};
use safepoint::{CheckpointManager, CreateOptions, NewDecision, Silent};
use std::fs;
use std::time::{Duration, Instant};

const STEPS: usize = 1_000;
const DECISIONS: usize = 10_000;
const CHECKPOINTS: usize = 1_000;

fn decision(number: usize) -> NewDecision {
    NewDecision {
        question: format!("Question {number}: which of the ways that there are is the one to take here?"),
        choice: format!("way {}", number % 7),
        alternatives: vec!["another way".to_owned(), "a third one".to_owned()],
        rationale: Some(format!("It was measured {number} times and was never worse than the others.")),
        ..NewDecision::default()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed<T>(act: impl FnOnce() -> T) -> Duration {
    let since = Instant::now();
    act();
    since.elapsed()
}

#[test]
#[ignore = "takes minutes"]
fn a_checkpoint_of_a_large_plan_costs_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    fs::create_dir(&project).unwrap();
    fs::write(project.join("file"), "text").unwrap();
    let manager = CheckpointManager::open(&home).unwrap();
    let workspace = manager.workspaces().register(&project).unwrap();
    let steps = (0..STEPS)
        .map(|number| StepSpec {
            title: Some(format!("Step number {number} of a plan with many")),
            run: Some(format!("make part-{number}")),
            ..StepSpec::new(format!("s{number}"))
        })
        .collect();
    let spec = PlanSpec {
        id: Some("large".to_owned()),
        steps,
        checkpoints: Milestones::none(),
        ..PlanSpec::new("Large")
    };
    manager.plans().create(&workspace, &spec).unwrap();
    // In one transaction: the setup is not measured.
    manager
        .plans()
        .change("large", "test", |plan| {
            for number in 0..DECISIONS {
                let new = decision(number);
                plan.decide(safepoint::model::plan::state::Decision {
                    id: DecisionId::from_bits(number as u128),
                    question: new.question,
                    choice: new.choice,
                    alternatives: new.alternatives,
                    rationale: new.rationale,
                    parent: number.checked_sub(1).map(|before| DecisionId::from_bits(before as u128)),
                    depends_on: Vec::new(),
                    step: None,
                    made_at: safepoint::model::Timestamp::from_micros(number as i64),
                })?;
            }
            Ok(())
        })
        .unwrap();
    let options = CreateOptions::default();
    let files_only = || timed(|| manager.create(&workspace, &options, &Silent).unwrap());
    let with_plan = || timed(|| manager.plans().checkpoint("large", &options, &Silent).unwrap());
    let first = with_plan();
    let (mut plain, mut planned, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    let before = manager.upkeep().usage().unwrap().pack_bytes;
    for number in 0..CHECKPOINTS {
        changes.push(timed(|| match number % 2 {
            0 => drop(manager.plans().decide("large", decision(DECISIONS + number)).unwrap()),
            _ => drop(manager.plans().set_context("large", "round", Some(number.into())).unwrap()),
        }));
        planned.push(with_plan());
        if number % 10 == 0 {
            plain.push(files_only());
        }
    }
    let grown = manager.upkeep().usage().unwrap().pack_bytes - before;
    let size = serde_json::to_vec(&manager.plans().get("large").unwrap().plan).unwrap().len();
    println!("the plan as JSON: {} kB", size / 1000);
    println!("first checkpoint with it: {first:.1?}");
    println!(
        "median of {CHECKPOINTS} checkpoints with the plan, one change between each two: {:.1?}",
        median(planned.clone())
    );
    println!("median of files alone: {:.1?}", median(plain.clone()));
    println!("median of a change of the plan: {:.1?}", median(changes));
    println!("the packs grew by {} kB: {} bytes each", grown / 1000, grown / CHECKPOINTS as u64);
    let over = median(planned).saturating_sub(median(plain));
    assert!(over < Duration::from_millis(100), "{over:?}");
    assert!(grown / (CHECKPOINTS as u64) < 100_000, "{grown}");
}
