//! Turns of agents.

use crate::bench::{Bench, assert_same, open};
use safepoint::model::turn::Turn;
use safepoint::{Error, Filter, LaterChanges, NewTurn, RollbackOptions, Settings, Silent, TurnSide};
use std::fs;

fn prompt(session: &str, text: &str) -> NewTurn {
    NewTurn {
        agent: "claude".to_owned(),
        session_id: session.to_owned(),
        prompt: text.to_owned(),
        ..NewTurn::default()
    }
}

const ONE: &str = "0193a6b4-8000-7000-8000-000000000001";
const TWO: &str = "0193a6b4-8000-7000-8000-000000000002";

/// One whole turn: prompt, first changing call, change, end.
fn turn(bench: &Bench, session: &str, text: &str, change: impl FnOnce()) -> Turn {
    let turns = bench.manager.turns();
    let new = prompt(session, text);
    turns.begin(&bench.workspace, &new, &Silent).unwrap();
    turns.cover(&bench.workspace, &new, None, &Silent).unwrap();
    change();
    turns.end(&bench.workspace, session, &Silent).unwrap().unwrap()
}

#[test]
fn every_turn_goes_back_exactly_to_before_and_to_after_it() {
    let bench = Bench::new();
    bench.write("notes.txt", "good\n");
    let mut images = vec![bench.image()];
    for number in 1..=3 {
        let ended = turn(&bench, ONE, &format!("prompt {number}"), || {
            bench.write("notes.txt", format!("turn {number}\n"));
            bench.write(&format!("new-{number}.txt"), "new\n");
        });
        assert_eq!((ended.number, ended.changes), (number, Some([1, 1, 0])));
        images.push(bench.image());
    }
    for (number, side) in
        [(2, TurnSide::Before), (3, TurnSide::After), (1, TurnSide::Before), (1, TurnSide::After)]
    {
        let to = bench.manager.turns().checkpoint(&bench.workspace, number, side).unwrap();
        bench.rollback(to.id);
        let at = usize::try_from(number).unwrap() - usize::from(side == TurnSide::Before);
        assert_same(&bench.image(), &images[at]);
    }
    let error = bench.manager.turns().get(&bench.workspace, 9).unwrap_err();
    assert!(matches!(error, Error::NoTurn { number: 9 }), "{error}");
}

#[test]
fn a_turn_without_changes_adds_no_checkpoint_and_keeps_its_number() {
    let bench = Bench::new();
    bench.write("notes.txt", "good\n");
    bench.create();
    let count = || bench.manager.checkpoints().list(&Filter::default()).unwrap().len();
    let before = count();
    let ended = turn(&bench, ONE, "look around", || {});
    assert_eq!((ended.number, ended.changes), (1, Some([0; 3])));
    assert_eq!(count(), before);
    assert_eq!(turn(&bench, TWO, "again", || bench.write("a", "a")).number, 2);
}

#[test]
fn a_prompt_closes_the_turn_that_is_still_open() {
    let bench = Bench::new();
    let turns = bench.manager.turns();
    bench.write("notes.txt", "good\n");
    let first = prompt(ONE, "first");
    turns.begin(&bench.workspace, &first, &Silent).unwrap();
    turns.cover(&bench.workspace, &first, None, &Silent).unwrap();
    bench.write("notes.txt", "interrupted\n");
    turns.begin(&bench.workspace, &prompt(ONE, "second"), &Silent).unwrap();
    let listed = turns.list(&bench.workspace, None).unwrap();
    assert_eq!(listed.iter().map(|turn| turn.closed_at.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(listed[1].changes, Some([0, 1, 0]));
    assert!(turns.end(&bench.workspace, TWO, &Silent).unwrap().is_none());
}

#[test]
fn parallel_calls_of_a_turn_share_one_checkpoint() {
    let bench = Bench::new();
    bench.write("notes.txt", "good\n");
    let new = prompt(ONE, "in parallel");
    bench.manager.turns().begin(&bench.workspace, &new, &Silent).unwrap();
    let home = bench.home();
    let covered: Vec<Turn> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let (home, new, workspace) = (home.clone(), &new, &bench.workspace);
                let file = bench.path(&format!("by-{number}"));
                scope.spawn(move || {
                    let manager = open(&home, Settings::default());
                    let turn = manager.turns().cover(workspace, new, None, &Silent).unwrap();
                    // The tool of this call writes as soon as its hook returned.
                    fs::write(file, "x").unwrap();
                    turn
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(covered.iter().all(|turn| turn.before == covered[0].before && turn.before.is_some()));
    let before = bench.manager.checkpoints().get(covered[0].before.unwrap()).unwrap();
    let held = bench.manager.checkpoints().entries(&before).unwrap();
    assert_eq!(held.len(), 1);
    let ended = bench.manager.turns().end(&bench.workspace, ONE, &Silent).unwrap().unwrap();
    assert_eq!((ended.commands, ended.changes), (6, Some([6, 0, 0])));
}

#[test]
fn undoing_a_turn_leaves_what_changed_since() {
    let bench = Bench::new();
    for name in ["mine", "shared", "theirs"] {
        bench.write(name, "old\n");
    }
    turn(&bench, ONE, "first", || {
        bench.write("mine", "one\n");
        bench.write("shared", "one\n");
        bench.write("folder/new", "one\n");
    });
    turn(&bench, TWO, "second", || {
        bench.write("shared", "two\n");
        bench.write("theirs", "two\n");
        bench.write("folder/other", "two\n");
    });
    let undo = |later_changes| {
        let options = RollbackOptions { later_changes, ..RollbackOptions::default() };
        bench.manager.turns().undo(&bench.workspace, 1, &options, &Silent).unwrap()
    };
    let undone = undo(LaterChanges::Refused);
    assert_eq!(undone.left.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shared"]);
    assert_eq!(
        (bench.read("mine"), bench.read("shared"), bench.read("theirs")),
        ("old\n".into(), "two\n".into(), "two\n".into())
    );
    assert!(!bench.path("folder/new").exists() && bench.path("folder/other").exists());
    bench.undo();
    assert_eq!(bench.read("mine"), "one\n");
    let undone = undo(LaterChanges::Replaced);
    assert_eq!((undone.left.len(), bench.read("shared")), (0, "old\n".into()));
}

#[test]
fn every_recent_session_is_told_once_of_each_rollback() {
    let bench = Bench::new();
    let turns = bench.manager.turns();
    bench.write("notes.txt", "good\n");
    let ended = turn(&bench, ONE, "break it", || bench.write("notes.txt", "bad\n"));
    assert!(turns.saw(&bench.workspace, ONE, "claude", Some("one"), false).unwrap());
    assert!(!turns.saw(&bench.workspace, ONE, "claude", Some("one"), false).unwrap());
    turns.saw(&bench.workspace, TWO, "codex", Some("two"), true).unwrap();
    let done = bench.rollback(ended.before.unwrap());
    assert_eq!(turns.take_notes(&bench.workspace, TWO).unwrap().len(), 1, "it is over, and can be resumed");
    let told = turns.take_notes(&bench.workspace, ONE).unwrap();
    assert_eq!(told.iter().map(|rollback| rollback.id).collect::<Vec<_>>(), [done.id]);
    assert!(turns.take_notes(&bench.workspace, ONE).unwrap().is_empty());
    assert!(turns.last_seen("claude").unwrap().is_some() && turns.last_seen("gemini").unwrap().is_none());
}

#[test]
fn turns_never_push_out_what_people_made() {
    let bench = Bench::new();
    let config = "[retention]\nkeep_last = 2\nkeep_within = \"0s\"\nthin_daily_for = \"0s\"\n";
    fs::write(bench.home().join("config.toml"), config).unwrap();
    bench.write("notes.txt", "good\n");
    let mine = bench.create();
    for number in 0..6 {
        turn(&bench, ONE, "work", || bench.write("notes.txt", format!("{number}\n")));
    }
    let policies = bench.manager.upkeep().policies(Some(&bench.workspace)).unwrap();
    bench.manager.upkeep().prune(&bench.workspace, &policies, safepoint::DryRun::No).unwrap();
    bench.manager.checkpoints().get(mine.id).unwrap();
    let left = bench.manager.checkpoints().list(&Filter::default()).unwrap().len();
    assert!(left <= 4, "{left} are left");
    let error = bench.manager.turns().checkpoint(&bench.workspace, 1, TurnSide::After).unwrap_err();
    assert!(matches!(error, Error::TurnNotCovered { number: 1 }), "{error}");
}
