//! Plans in a sandbox, and the transfer of their result to the project.

use crate::bench::{Bench, assert_same, open};
use crate::runner::{Unseen, plan, resume, run};
use safepoint::model::CheckpointId;
use safepoint::model::plan::run::{RunOutcome, SandboxState};
use safepoint::model::plan::state::PlanState;
use safepoint::{
    CreateOptions, Error, Failure, FailureKind, Filter, Merge, Missing, RollbackOptions, RunOptions,
    Settings, Silent,
};
use std::fs;
use std::path::PathBuf;

const COPY: &str = "[sandbox]
    kind = 'copy'
    [[step]]
    id = 'edit'
    run = 'echo new > made; echo edited >> kept; rm gone; mkdir -p deep/er; echo x > deep/er/x'
    [[step]]
    id = 'more'
    run = 'echo more >> made'";

fn project() -> Bench {
    let bench = Bench::new();
    for (name, content) in
        [("kept", "kept\n"), ("gone", "gone\n"), ("other", "other\n"), (".git/HEAD", "ref\n")]
    {
        bench.write(name, content);
    }
    plan(&bench, COPY);
    bench
}

fn place(bench: &Bench) -> PathBuf {
    let record = bench.manager.plans().get("work").unwrap();
    bench.manager.plans().sandbox(&record).unwrap().unwrap().path
}

fn apply(bench: &Bench, merge: Merge) -> Result<safepoint::Applied, Error> {
    bench.manager.plans().apply("work", merge, &Silent)
}

fn first(bench: &Bench) -> CheckpointId {
    bench.manager.plans().checkpoints("work").unwrap().last().unwrap().checkpoint
}

#[test]
fn a_copy_leaves_the_project_alone_until_it_is_applied_and_then_lands_whole() {
    let bench = project();
    let before = bench.image();
    assert_eq!(run(&bench).outcome, RunOutcome::Done);
    assert_same(&bench.image(), &before);
    let sandbox = place(&bench);
    assert_eq!(fs::read_to_string(sandbox.join("made")).unwrap(), "new\nmore\n");
    assert_eq!(fs::read_to_string(sandbox.join(".git/HEAD")).unwrap(), "ref\n", "the copy includes .git");
    let checkpoint = bench.manager.checkpoints().get(first(&bench)).unwrap();
    let record = bench.manager.plans().get("work").unwrap();
    assert_eq!(checkpoint.sandbox_ref, record.plan.sandbox.id);

    let applied = apply(&bench, Merge::Refused).unwrap();
    assert_eq!(applied.record.plan.state, PlanState::Applied);
    assert_eq!((applied.kept, sandbox.exists()), (None, false));
    assert_eq!(
        (bench.read("made"), bench.read("kept")),
        ("new\nmore\n".to_owned(), "kept\nedited\n".to_owned())
    );
    assert!(!bench.path("gone").exists() && bench.path("deep/er/x").exists());
    let kept = bench.manager.plans().sandbox(&bench.manager.plans().get("work").unwrap()).unwrap().unwrap();
    assert_eq!(kept.state, SandboxState::Removed);
    for to in [first(&bench), applied.result.unwrap()] {
        let error =
            bench.manager.plans().rollback("work", to, &RollbackOptions::default(), &Silent).unwrap_err();
        assert!(matches!(error, Error::PlanApplied { .. } | Error::SandboxMissing { .. }), "{error}");
        assert_eq!(Failure::from(&error).kind, FailureKind::Conflict);
    }
    // It was a rollback like any other, so it can be undone; the plan stays closed.
    let landed = bench.image();
    bench.undo();
    assert_same(&bench.image(), &before);
    bench.redo();
    assert_same(&bench.image(), &landed);
    assert_eq!(bench.manager.plans().get("work").unwrap().plan.state, PlanState::Applied);
}

#[test]
fn a_rollback_of_the_plan_is_one_of_its_sandbox() {
    let bench = project();
    let before = bench.image();
    run(&bench);
    let back =
        bench.manager.plans().rollback("work", first(&bench), &RollbackOptions::default(), &Silent).unwrap();
    assert!(back.outline().restored > 0);
    assert_same(&bench.image(), &before);
    assert!(!place(&bench).join("made").exists() && place(&bench).join("gone").exists());
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
}

#[test]
fn a_project_that_changed_is_refused_or_merged_where_nothing_conflicts() {
    let bench = project();
    run(&bench);
    bench.write("other", "theirs\n");
    bench.write("theirs/new", "theirs\n");
    let error = apply(&bench, Merge::Refused).unwrap_err();
    assert!(matches!(&error, Error::ProjectChanged { paths, .. } if paths.len() == 2), "{error}");
    assert_eq!(
        error.to_string(),
        "the project changed since the sandbox of plan work was made: other, theirs"
    );
    assert_eq!(bench.manager.plans().get("work").unwrap().plan.state, PlanState::Done);
    assert!(!bench.path("made").exists());
    // The same change on both sides is no conflict; different ones are.
    bench.write("made", "new\nmore\n");
    fs::remove_file(bench.path("gone")).unwrap();
    bench.write("kept", "mine\n");
    let image = bench.image();
    let error = apply(&bench, Merge::Kept).unwrap_err();
    assert_eq!(error.to_string(), "the project and the sandbox of plan work both changed: kept");
    assert_eq!(Failure::from(&error).kind, FailureKind::Conflict);
    assert_same(&bench.image(), &image);
    fs::write(place(&bench).join("kept"), "mine\n").unwrap();
    let applied = apply(&bench, Merge::Kept).unwrap();
    assert_eq!(applied.record.plan.state, PlanState::Applied);
    assert_eq!((bench.read("other"), bench.read("kept")), ("theirs\n".to_owned(), "mine\n".to_owned()));
    assert!(bench.path("theirs/new").exists() && bench.path("deep/er/x").exists());
}

#[test]
fn what_is_below_a_folder_that_the_other_side_took_away_is_a_conflict() {
    let bench = project();
    bench.write("folder/a", "a");
    bench.write("folder/b", "b");
    let file = safepoint::PlanFile::parse(
        b"title = 'X'\nid = 'drop'\n[sandbox]\nkind = 'copy'\n[[step]]\nid = 'a'\nrun = 'rm -r folder'",
        None,
    );
    bench.manager.plans().create(&bench.workspace, &file.unwrap().spec).unwrap();
    bench.manager.plans().run("drop", &RunOptions::default(), &Unseen, &Silent).unwrap();
    bench.write("folder/a", "theirs");
    let error = bench.manager.plans().apply("drop", Merge::Kept, &Silent).unwrap_err();
    assert!(matches!(&error, Error::ApplyConflict { .. }), "{error}");
    assert_eq!(bench.read("folder/a"), "theirs");
}

#[test]
fn a_sandbox_that_is_gone_is_told_also_to_a_fresh_process_and_made_again_from_a_checkpoint() {
    let bench = project();
    run(&bench);
    let (sandbox, checkpoint) = (place(&bench), first(&bench));
    fs::remove_dir_all(&sandbox).unwrap();
    let fresh = open(&bench.home(), Settings::default());
    let options = RollbackOptions::default();
    let error = fresh.plans().rollback("work", checkpoint, &options, &Silent).unwrap_err();
    assert!(matches!(&error, Error::SandboxMissing { path, .. } if *path == sandbox), "{error}");
    let failure = Failure::from(&error);
    assert!(failure.hints[0].contains("--recreate-sandbox"), "{failure:?}");
    for error in [
        fresh.plans().checkpoint("work", &CreateOptions::default(), &Silent).map(drop).unwrap_err(),
        fresh.plans().apply("work", Merge::Refused, &Silent).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::SandboxMissing { .. }), "{error}");
    }
    let again = RollbackOptions { missing_sandbox: Missing::MadeAgain, ..options };
    let show = RollbackOptions { dry_run: safepoint::DryRun::Yes, ..again.clone() };
    fresh.plans().rollback("work", checkpoint, &show, &Silent).unwrap();
    assert!(!sandbox.exists(), "a dry run creates nothing");
    fresh.plans().rollback("work", checkpoint, &again, &Silent).unwrap();
    assert_eq!(fs::read_to_string(sandbox.join("gone")).unwrap(), "gone\n");
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    apply(&bench, Merge::Refused).unwrap();
    assert_eq!(bench.read("made"), "new\nmore\n");
}

#[test]
fn a_sandbox_with_commits_of_its_own_is_kept_and_told() {
    let bench = project();
    run(&bench);
    let sandbox = place(&bench);
    fs::create_dir_all(sandbox.join(".git/refs/heads")).unwrap();
    fs::write(sandbox.join(".git/refs/heads/main"), "abc\n").unwrap();
    let (path, why) = apply(&bench, Merge::Refused).unwrap().kept.unwrap();
    assert_eq!((path, sandbox.exists()), (sandbox, true));
    assert!(why.contains(".git"), "{why}");
    bench.create();
    assert!(place(&bench).exists(), "later commands keep it");
    assert!(!bench.path(".git/refs").exists(), "the project's .git is unchanged");
}

#[test]
fn a_plan_that_changed_nothing_is_applied_too() {
    let bench = Bench::new();
    bench.write("a", "a");
    plan(&bench, "[sandbox]\nkind = 'copy'\n[[step]]\nid = 'look'\nrun = 'cat a'");
    run(&bench);
    let applied = apply(&bench, Merge::Refused).unwrap();
    assert!(applied.restored.is_none());
    assert_eq!(applied.record.plan.state, PlanState::Applied);
}

#[test]
fn a_plan_is_applied_when_it_is_done_and_not_before() {
    let bench = project();
    assert!(matches!(apply(&bench, Merge::Refused), Err(Error::Plan(_))));
    assert!(!bench.home().join("sandboxes").exists(), "nothing was copied for it");
    bench.manager.plans().start_step("work", "edit", &Silent).unwrap();
    assert!(place(&bench).join("gone").exists(), "an external driver finds the copy");
    assert!(matches!(apply(&bench, Merge::Refused), Err(Error::Plan(_))));
}

#[test]
fn what_a_sandbox_was_made_from_is_not_deleted_under_it() {
    let bench = project();
    run(&bench);
    let record = bench.manager.plans().get("work").unwrap();
    let base = bench.manager.plans().sandbox(&record).unwrap().unwrap().base;
    let error = bench.manager.checkpoints().delete(&[base]).unwrap_err();
    assert_eq!(Failure::from(&error).code, "needed");
    assert!(bench.manager.checkpoints().list(&Filter::default()).unwrap().iter().any(|it| it.id == base));
    apply(&bench, Merge::Refused).unwrap();
    bench.manager.checkpoints().delete(&[base]).unwrap();
}

#[test]
fn retention_keeps_what_plans_need_and_prunes_the_rest_also_of_sandboxes_that_are_gone() {
    let policy = safepoint::model::retention::Policy {
        keep_last: 1,
        keep_within: safepoint::model::Span::ZERO,
        thin_daily_for: safepoint::model::Span::ZERO,
    };
    let bench = Bench::with(Settings { retention: Some(policy), ..Settings::default() });
    bench.write("gone", "x");
    bench.write("kept", "x");
    plan(&bench, &format!("{COPY}\n[[step]]\nid = 'bad'\nrun = 'exit 1'\n[[step]]\nid = 'last'"));
    run(&bench);
    for _ in 0..4 {
        resume(&bench);
    }
    let record = bench.manager.plans().get("work").unwrap();
    let sandbox = bench.manager.plans().sandbox(&record).unwrap().unwrap();
    let clean = bench.manager.plans().last_clean("work").unwrap();
    let of_place = Filter { workspace: Some(sandbox.workspace_id), ..Filter::default() };
    let left: Vec<CheckpointId> =
        bench.manager.checkpoints().list(&of_place).unwrap().iter().map(|it| it.id).collect();
    assert!(left.contains(&clean) && left.contains(&sandbox.base), "{left:?}");
    assert_eq!(left.len(), 3, "those and the newest: {left:?}");
    for step in ["bad", "last"] {
        bench.manager.plans().start_step("work", step, &Silent).unwrap();
        bench.manager.plans().finish_step("work", step, None, &Silent).unwrap();
    }
    apply(&bench, Merge::Refused).unwrap();
    bench.create();
    let left = bench.manager.checkpoints().list(&of_place).unwrap();
    assert_eq!(left.len(), 1, "the newest stays: {left:?}");
}
