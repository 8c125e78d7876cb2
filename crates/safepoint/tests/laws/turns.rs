//! Turns of agents.

use crate::bench::{Bench, ParsePath, assert_same, open};
use safepoint::model::turn::Turn;
use safepoint::{
    ChangingCall, Error, Filter, LaterChanges, NewTurn, RollbackOptions, Settings, Silent, TurnSide,
};
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
pub(crate) fn turn(bench: &Bench, session: &str, text: &str, change: impl FnOnce()) -> Turn {
    let turns = bench.manager.turns();
    let new = prompt(session, text);
    turns.begin(&bench.workspace, &new, &Silent).unwrap();
    turns.cover(&bench.workspace, &new, &ChangingCall::default(), &Silent).unwrap();
    change();
    turns.end(&bench.workspace, session, None, &Silent).unwrap().unwrap()
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
    turns.cover(&bench.workspace, &first, &ChangingCall::default(), &Silent).unwrap();
    bench.write("notes.txt", "interrupted\n");
    turns.begin(&bench.workspace, &prompt(ONE, "second"), &Silent).unwrap();
    let listed = turns.list(&bench.workspace, None).unwrap();
    assert_eq!(listed.iter().map(|turn| turn.closed_at.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(listed[1].changes, Some([0, 1, 0]));
    assert!(turns.end(&bench.workspace, TWO, None, &Silent).unwrap().is_none());
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
                    let call = ChangingCall::default();
                    let turn = manager.turns().cover(workspace, new, &call, &Silent).unwrap();
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
    let ended = bench.manager.turns().end(&bench.workspace, ONE, None, &Silent).unwrap().unwrap();
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
    assert_eq!(undone.left.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shared (turn 2, claude)"]);
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
    assert_eq!(turns.untold(&bench.workspace, TWO).unwrap().len(), 1, "it is over, and can be resumed");
    let told = turns.untold(&bench.workspace, ONE).unwrap();
    assert_eq!(told.iter().map(|rollback| rollback.id).collect::<Vec<_>>(), [done.id]);
    turns.told(ONE, &[done.id]).unwrap();
    assert!(turns.untold(&bench.workspace, ONE).unwrap().is_empty());
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

/// Names what a call of a tool is about to write, and writes it.
fn write(bench: &Bench, session: &str, name: &str, content: &str) {
    let call =
        ChangingCall { paths: vec![name.parse_path()], tool: "Write".to_owned(), ..ChangingCall::default() };
    bench.manager.turns().cover(&bench.workspace, &prompt(session, ""), &call, &Silent).unwrap();
    bench.write(name, content);
}

/// Two agents whose turns overlap: turn 1 of session ONE ends while turn 2 of session TWO is open, or after it.
fn overlapping(bench: &Bench, shell: impl FnOnce()) {
    let turns = bench.manager.turns();
    for name in ["one", "two", "both", "shell"] {
        bench.write(name, "old\n");
    }
    turns.begin(&bench.workspace, &prompt(ONE, "first"), &Silent).unwrap();
    write(bench, ONE, "one", "one\n");
    turns.begin(&bench.workspace, &prompt(TWO, "second"), &Silent).unwrap();
    write(bench, TWO, "two", "two\n");
    write(bench, TWO, "new/two", "two\n");
    write(bench, ONE, "both", "one\n");
    write(bench, TWO, "both", "two\n");
    shell();
}

#[test]
fn undoing_a_turn_leaves_the_work_of_an_agent_beside_it() {
    for two_ends_first in [true, false] {
        let bench = Bench::new();
        let turns = bench.manager.turns();
        overlapping(&bench, || ());
        let sessions = if two_ends_first { [TWO, ONE] } else { [ONE, TWO] };
        let ended =
            sessions.map(|session| turns.end(&bench.workspace, session, None, &Silent).unwrap().unwrap());
        let one = ended.iter().find(|turn| turn.number == 1).unwrap();
        assert_eq!((one.changes, one.tools.as_slice()), (Some([0, 2, 0]), &["Write".to_owned()][..]));
        let undo = |later_changes| {
            let options = RollbackOptions { later_changes, ..RollbackOptions::default() };
            turns.undo(&bench.workspace, 1, &options, &Silent).unwrap()
        };
        let undone = undo(LaterChanges::Refused);
        assert_eq!(
            undone.left.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["both (turn 2, claude)"]
        );
        let read = || ["one", "two", "both", "new/two"].map(|name| bench.read(name));
        assert_eq!(read(), ["old\n", "two\n", "two\n", "two\n"]);
        assert!(undo(LaterChanges::Replaced).left.is_empty());
        assert_eq!(read(), ["old\n", "two\n", "old\n", "two\n"], "the other agent's files stay, even then");
    }
}

#[test]
fn a_path_that_either_of_two_agents_changed_is_left_and_named() {
    let bench = Bench::new();
    let turns = bench.manager.turns();
    overlapping(&bench, || bench.write("shell", "by a command\n"));
    for session in [ONE, TWO] {
        turns.end(&bench.workspace, session, None, &Silent).unwrap();
    }
    let options = RollbackOptions::default();
    let undone = turns.undo(&bench.workspace, 1, &options, &Silent).unwrap();
    let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
    assert_eq!(left, ["both (turn 2, claude)", "shell (turn 2, claude)"]);
    assert_eq!(bench.read("shell"), "by a command\n");
    let others = turns.work_of_others(&bench.workspace, 1, TurnSide::Before, &Silent).unwrap();
    let named: Vec<String> = others[0].paths.iter().map(ToString::to_string).collect();
    assert_eq!((others.len(), others[0].turn.number), (1, 2));
    assert!(["two", "new/two", "both"].iter().all(|path| named.contains(&(*path).to_owned())), "{named:?}");
    assert!(!named.contains(&"one".to_owned()), "{named:?}");
}

#[test]
fn undoing_a_turn_ignores_files_of_it_that_are_gone() {
    let bench = Bench::new();
    bench.write("kept", "old\n");
    turn(&bench, ONE, "make", || {
        bench.write("kept", "new\n");
        bench.write("made", "new\n");
        bench.write("folder/made", "new\n");
    });
    fs::remove_file(bench.path("made")).unwrap();
    fs::remove_dir_all(bench.path("folder")).unwrap();
    for later_changes in [LaterChanges::Refused, LaterChanges::Replaced] {
        let options = RollbackOptions { later_changes, ..RollbackOptions::default() };
        let undone = bench.manager.turns().undo(&bench.workspace, 1, &options, &Silent).unwrap();
        assert!(undone.left.is_empty(), "{:?}", undone.left);
        assert_eq!(bench.read("kept"), "old\n");
        bench.write("kept", "new\n");
    }
}

#[test]
fn a_rollback_between_two_turns_is_not_work_of_the_second() {
    let bench = Bench::new();
    bench.write("price", "19");
    bench.write("other", "x");
    let good = bench.create().id;
    turn(&bench, ONE, "clean up", || {
        bench.write("price", "7");
        bench.write("other", "y");
    });
    bench.rollback(good);
    let second = turn(&bench, TWO, "again", || bench.write("other", "z"));
    let error =
        bench.manager.turns().undo(&bench.workspace, 1, &RollbackOptions::default(), &Silent).unwrap_err();
    let Error::TurnOvertaken { paths, .. } = error else { panic!("{error}") };
    let by: Vec<_> = paths.iter().map(|it| (it.path.to_string(), it.turn.as_ref().map(|by| by.0))).collect();
    assert_eq!(by, [("other".to_owned(), Some(second.number)), ("price".to_owned(), None)]);
}

/// Turns that come after those that are asked about.
const LATER: u64 = 105;

#[test]
fn turns_of_long_ago_are_attributed_and_named_like_new_ones() {
    let bench = Bench::new();
    let turns = bench.manager.turns();
    bench.write("mine", "old\n");
    overlapping(&bench, || bench.write("shell", "by a command\n"));
    write(&bench, ONE, "mine", "one\n");
    let ended =
        [ONE, TWO].map(|session| turns.end(&bench.workspace, session, None, &Silent).unwrap().unwrap());
    turn(&bench, ONE, "third", || bench.write("mine", "three\n"));
    for number in 0..LATER {
        turn(&bench, TWO, "later", || bench.write("later", format!("{number}\n")));
    }
    let undone = turns.undo(&bench.workspace, 1, &RollbackOptions::default(), &Silent).unwrap();
    let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
    assert_eq!(left, ["both (turn 2, claude)", "mine (turn 3, claude)", "shell (turn 2, claude)"]);
    let read = ["one", "two", "both", "mine", "new/two"].map(|name| bench.read(name));
    assert_eq!(read, ["old\n", "two\n", "two\n", "three\n", "two\n"]);
    bench.undo();
    let others = turns.work_of_others(&bench.workspace, 1, TurnSide::Before, &Silent).unwrap();
    assert_eq!(others.len() as u64, 1 + LATER);
    assert_eq!(others.last().unwrap().turn.number, 2);
    let done = bench.rollback(ended[0].before.unwrap());
    let effects = turns.effects(&bench.workspace, &[done.record().clone()], &Silent).unwrap();
    let numbers: Vec<u64> = effects.undone.iter().map(|touched| touched.turn.number).collect();
    assert_eq!(numbers, (1..=3 + LATER).collect::<Vec<_>>());
}

#[test]
fn a_turn_that_was_closed_without_a_checkpoint_claims_nothing_after_it() {
    let bench = Bench::new();
    let turns = bench.manager.turns();
    bench.write("shared", "old\n");
    turns.begin(&bench.workspace, &prompt(TWO, "lost"), &Silent).unwrap();
    write(&bench, TWO, "shared", "lost\n");
    let config = bench.home().join("config.toml");
    fs::write(&config, "nonsense = [").unwrap();
    let next = turns.begin(&bench.workspace, &prompt(TWO, "next"), &Silent).unwrap();
    assert!(next.earlier.is_some());
    fs::remove_file(config).unwrap();
    turns.end(&bench.workspace, TWO, None, &Silent).unwrap();
    let mine = turn(&bench, ONE, "mine", || {
        bench.write("shared", "mine\n");
        bench.write("other", "mine\n");
    });
    assert_eq!(mine.changes, Some([1, 1, 0]));
    let undone = turns.undo(&bench.workspace, mine.number, &RollbackOptions::default(), &Silent).unwrap();
    assert!(undone.left.is_empty(), "{:?}", undone.left);
    assert_eq!((bench.read("shared"), bench.path("other").exists()), ("lost\n".to_owned(), false));
}
