//! Rollbacks that are staged first, and rollbacks that search for a good state.

use crate::bench::{Bench, ParsePath, assert_same, unwatched};
use crate::runner::plan;
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::{Checkpoint, PartKind};
use safepoint::model::rollback::Strategy;
use safepoint::{
    DryRun, Error, Failure, FailureKind, Progress, Progressed, RollbackOptions, Search, SearchWatch, Silent,
    Staged, StagedEnd, Trial, TryIn, Until, Verdict,
};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

fn staged(bench: &Bench, to: CheckpointId, command: Option<&str>, yes: bool) -> (StagedEnd, Vec<String>) {
    let (mut seen, mut text) = (Vec::new(), Vec::new());
    let mut agreed = |staged: &Staged| {
        seen.push(staged.outline.outline().paths.iter().map(|it| it.path.to_string()).collect::<String>());
        yes
    };
    let mut printed = |bytes: &[u8]| text.extend_from_slice(bytes);
    let trial = Trial { command, agreed: &mut agreed, printed: &mut printed };
    let end = bench
        .manager
        .rollback_staged(&bench.workspace, to, &RollbackOptions::default(), trial, &Silent)
        .unwrap();
    seen.push(String::from_utf8(text).unwrap());
    (end, seen)
}

#[test]
fn a_staged_rollback_is_tried_beside_the_workspace_and_done_when_all_agree() {
    let bench = Bench::new();
    bench.write("file", "good");
    fs::create_dir(bench.path("empty")).unwrap();
    let (then, image) = (bench.create(), bench.image());
    bench.write("file", "bad");
    bench.write("new", "x");
    let before = bench.image();
    // The command sees the target in a separate folder, and its changes there are discarded.
    let command =
        "cat file; [ ! -e new ] && [ -d empty ] && echo $SAFEPOINT_CHECKPOINT_ID && touch made && rm file";
    let (end, seen) = staged(&bench, then.id, Some(command), false);
    let StagedEnd::Left(left) = end else { panic!("{end:?}") };
    assert!(left.check.unwrap().is_passed());
    assert_eq!(seen, ["filenew".to_owned(), format!("good{}\n", then.id)]);
    assert_same(&bench.image(), &before);
    assert_eq!(fs::read_dir(bench.home().join("scratch")).unwrap().count(), 0, "leftovers");
    let (end, _) = staged(&bench, then.id, Some(command), true);
    let StagedEnd::Done(restored, _) = end else { panic!("{end:?}") };
    assert_eq!(restored.record().strategy, Strategy::Staged);
    assert_same(&bench.image(), &image);
    bench.undo();
    assert_same(&bench.image(), &before);
}

#[test]
fn a_staged_rollback_of_a_selection_is_checked_as_the_folder_would_be() {
    const PATHS: [&str; 5] = ["file", "dir/a", "dir/b", "gone", "new"];
    let bench = Bench::new();
    plan(&bench, "[[step]]\nid = 'one'");
    PATHS[..4].iter().for_each(|path| bench.write(path, "then"));
    let then = bench.create();
    bench.manager.plans().start_step("work", "one", &Silent).unwrap();
    PATHS.iter().for_each(|path| bench.write(path, "now"));
    fs::remove_file(bench.path("gone")).unwrap();
    let before = bench.image();
    let paths = |paths: &[&str]| paths.iter().map(|path| path.parse_path()).collect::<Vec<_>>();
    let plain = RollbackOptions::default;
    let rows = [
        (
            RollbackOptions { paths: paths(&["file", "gone"]), ..plain() },
            ["then", "now", "now", "then", "now"],
        ),
        (RollbackOptions { paths: paths(&["dir", "new"]), ..plain() }, ["now", "then", "then", "", ""]),
        (RollbackOptions { leave: paths(&["dir", "new"]), ..plain() }, ["then", "now", "now", "then", "now"]),
        (RollbackOptions { parts: vec![PartKind::Files], ..plain() }, ["then", "then", "then", "then", ""]),
        (RollbackOptions { parts: vec![PartKind::Plan], ..plain() }, ["now", "now", "now", "", "now"]),
    ];
    let command = format!("for path in {}; do echo \"$(cat $path 2>/dev/null)\"; done", PATHS.join(" "));
    for (options, wanted) in rows {
        let mut text = Vec::new();
        let mut printed = |bytes: &[u8]| text.extend_from_slice(bytes);
        let trial = Trial { command: Some(&command), agreed: &mut |_| true, printed: &mut printed };
        let end = bench.manager.rollback_staged(&bench.workspace, then.id, &options, trial, &Silent).unwrap();
        assert!(matches!(end, StagedEnd::Done(..)), "{end:?}");
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted, "{options:?}");
        let real = PATHS.map(|path| fs::read_to_string(bench.path(path)).unwrap_or_default());
        assert_eq!(real, wanted, "{options:?}");
        bench.undo();
        assert_same(&bench.image(), &before);
    }
    assert_eq!(fs::read_dir(bench.home().join("scratch")).unwrap().count(), 0, "leftovers");
}

#[test]
fn a_search_may_begin_with_a_safety_checkpoint() {
    for search in [Search::Stepwise, Search::Bisect] {
        let (bench, made) = history(4);
        let safety = bench.rollback(made[9].id).safety_checkpoint.unwrap();
        // A newer safety checkpoint is no candidate.
        bench.rollback(made[8].id);
        let found = until(&bench, search, Some(safety));
        assert_eq!(found.restored.unwrap().record().to, made[3].id, "{search:?}");
        if search == Search::Stepwise {
            assert_eq!((found.tried.len(), found.tried[0].checkpoint), (8, safety));
        }
    }
}

#[test]
fn a_search_without_checkpoints_tries_the_current_state() {
    for place in [TryIn::Copy, TryIn::Workspace] {
        for search in [Search::Stepwise, Search::Bisect] {
            let bench = Bench::new();
            bench.write("state", "good");
            for (command, passes) in [("grep -q good state", true), ("grep -q bad state", false)] {
                let until = Until { command: command.to_owned(), from: None, search, place, plan: None };
                let options = RollbackOptions::default();
                let found = unwatched(|watch| {
                    bench.manager.rollback_until(&bench.workspace, &until, &options, watch, &Silent).unwrap()
                });
                let current = found.current.as_ref().map(Verdict::is_passed);
                assert_eq!((current, found.tried.len()), (Some(passes), 0), "{command} {place:?}");
                assert!(found.restored.is_none());
            }
            assert!(bench.manager.rollbacks(&bench.workspace).unwrap().is_empty());
        }
    }
}

#[test]
fn a_staged_rollback_whose_command_fails_changes_nothing() {
    let bench = Bench::new();
    bench.write("file", "good");
    let then = bench.create();
    bench.write("file", "bad");
    let (end, seen) = staged(&bench, then.id, Some("echo no; exit 3"), true);
    let StagedEnd::Left(left) = end else { panic!("{end:?}") };
    assert_eq!(left.check.unwrap().failure.as_deref(), Some("exit status 3: no"));
    assert_eq!((seen.len(), bench.read("file").as_str()), (1, "bad"), "no prompt");
    let mut agreed = |_: &Staged| true;
    let trial = Trial { command: None, agreed: &mut agreed, printed: &mut |_| () };
    let options = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let end = bench.manager.rollback_staged(&bench.workspace, then.id, &options, trial, &Silent).unwrap();
    assert!(matches!(end, StagedEnd::Left(_)), "a dry run ends earlier");
}

#[test]
fn a_staged_rollback_to_something_damaged_is_refused_before_anything_is_tried() {
    let bench = Bench::new();
    bench.write("file", crate::bench::noise(1, 50_000));
    let then = bench.create();
    bench.write("file", "now");
    for pack in fs::read_dir(bench.home().join("store/packs")).unwrap().flatten() {
        let mut bytes = fs::read(pack.path()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(pack.path(), bytes).unwrap();
    }
    let mut agreed = |_: &Staged| panic!("unexpected prompt");
    let trial = Trial { command: Some("true"), agreed: &mut agreed, printed: &mut |_| () };
    let options = RollbackOptions::default();
    let error =
        bench.manager.rollback_staged(&bench.workspace, then.id, &options, trial, &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Damaged, "{error}");
    assert_eq!(bench.read("file"), "now");
}

/// States 0 to 9, good below `good`.
fn history(good: usize) -> (Bench, Vec<Checkpoint>) {
    let bench = Bench::new();
    let made = (0..10)
        .map(|number| {
            bench.write("number", number.to_string());
            bench.write("state", if number < good { "good" } else { "bad" });
            bench.create()
        })
        .collect();
    bench.write("number", "present");
    (bench, made)
}

fn until(bench: &Bench, search: Search, from: Option<CheckpointId>) -> Progressed {
    let command = "echo x >> tried; grep -q good state".to_owned();
    let until = Until { command, from, search, place: TryIn::Copy, plan: None };
    let options = RollbackOptions::default();
    unwatched(|watch| {
        bench.manager.rollback_until(&bench.workspace, &until, &options, watch, &Silent).unwrap()
    })
}

#[test]
fn a_progressive_rollback_stops_at_the_newest_good_state() {
    for good in [1, 4, 10] {
        for search in [Search::Stepwise, Search::Bisect] {
            let (bench, made) = history(good);
            let found = until(&bench, search, Some(made[9].id));
            let restored = found.restored.unwrap();
            assert_eq!(restored.record().to, made[good - 1].id, "{good} {search:?}");
            assert_eq!(restored.record().strategy, Strategy::Progressive);
            assert_eq!(bench.read("number"), (good - 1).to_string());
            let tries = found.tried.len();
            match search {
                Search::Stepwise => assert_eq!(tries, 11 - good),
                Search::Bisect => assert!(tries <= 5, "{tries}"),
            }
            bench.undo();
            assert_eq!(bench.read("number"), "present");
        }
    }
}

#[test]
fn a_progressive_rollback_that_finds_nothing_leaves_everything_as_it_was() {
    for search in [Search::Stepwise, Search::Bisect] {
        let (bench, made) = history(0);
        let before = bench.image();
        let found = until(&bench, search, None);
        assert!(found.restored.is_none());
        assert_eq!(found.tried.len(), if search == Search::Bisect { 1 } else { 10 });
        assert_same(&bench.image(), &before);
        let some = until(&bench, search, Some(made[2].id));
        assert_eq!(some.tried.len(), if search == Search::Bisect { 1 } else { 3 });
        assert_same(&bench.image(), &before);
    }
    let bench = Bench::new();
    assert!(until(&bench, Search::Bisect, None).restored.is_none(), "no candidate");
    let (other, _) = history(1);
    let elsewhere = Until {
        command: "true".to_owned(),
        from: Some(CheckpointId::from_bits(1)),
        search: Search::Stepwise,
        place: TryIn::Copy,
        plan: None,
    };
    let options = RollbackOptions::default();
    let error = unwatched(|watch| {
        other.manager.rollback_until(&other.workspace, &elsewhere, &options, watch, &Silent)
    });
    assert!(matches!(error, Err(Error::OtherWorkspace { .. })));
}

#[test]
fn who_stops_a_progressive_rollback_has_everything_as_it_was() {
    struct Stopped(AtomicBool);
    impl Progress for Stopped {
        fn interrupted(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }
    for place in [TryIn::Copy, TryIn::Workspace] {
        let (bench, made) = history(0);
        let before = bench.image();
        let stopped = Stopped(AtomicBool::new(false));
        let command = "echo x > state; echo y > new; echo begun; sleep 60".to_owned();
        let wanted = Until { command, from: Some(made[5].id), search: Search::Stepwise, place, plan: None };
        let options = RollbackOptions::default();
        let mut watch = SearchWatch {
            printed: &mut |_: &[u8]| stopped.0.store(true, Ordering::SeqCst),
            probed: &mut |_| panic!("unexpected probe"),
        };
        let error = bench
            .manager
            .rollback_until(&bench.workspace, &wanted, &options, &mut watch, &stopped)
            .unwrap_err();
        assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
        assert_same(&bench.image(), &before);
    }
}
