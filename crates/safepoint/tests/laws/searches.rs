//! Searches for the newest good state: the view of a probe, and its clean-up.

use crate::bench::{Bench, assert_same, unwatched};
use crate::runner::{plan, run};
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::{Rollback, RollbackState, Strategy};
use safepoint::{
    CreateOptions, DryRun, Filter, Progressed, RoleFilter, RollbackOptions, Search, Silent, TryIn, Until,
};
use safepoint_testkit::TreeImage;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

const BOTH: [Search; 2] = [Search::Stepwise, Search::Bisect];

fn until(command: &str, search: Search) -> Until {
    Until { command: command.to_owned(), from: None, search, place: TryIn::Copy, plan: None }
}

fn search(bench: &Bench, until: &Until) -> Progressed {
    let options = RollbackOptions::default();
    unwatched(|watch| {
        bench.manager.rollback_until(&bench.workspace, until, &options, watch, &Silent).unwrap()
    })
}

/// Formats all records. A search that finds nothing is one refused attempt, which is counted apart.
fn records(bench: &Bench) -> String {
    let manager = &bench.manager;
    let checkpoints =
        manager.checkpoints().list(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap();
    let mut rollbacks = manager.rollbacks(&bench.workspace).unwrap();
    rollbacks.retain(|record| record.state != RollbackState::Refused);
    let head = manager.workspaces().get(bench.workspace.id).unwrap().head;
    let plans: Vec<_> = ["work"].iter().filter_map(|id| manager.plans().get(id).ok()).collect();
    let notes = manager.plans().notes("work").ok();
    format!("{checkpoints:#?}\n{rollbacks:#?}\n{head:?}\n{plans:#?}\n{notes:#?}")
}

/// Searches on record that found nothing.
fn refused(bench: &Bench) -> usize {
    let records = bench.manager.rollbacks(&bench.workspace).unwrap();
    let of_search = |record: &&Rollback| {
        (record.state, record.strategy) == (RollbackState::Refused, Strategy::Progressive)
    };
    records.iter().filter(of_search).count()
}

/// Folder outside home and project.
fn outside(bench: &Bench) -> PathBuf {
    let path = bench.root().parent().unwrap().join("outside");
    fs::create_dir_all(&path).unwrap();
    path
}

/// Checkpoints 0 to 5, good below 3, and a bad current state.
fn history(bench: &Bench) -> Vec<Checkpoint> {
    let made = (0..6)
        .map(|number| {
            bench.write("number", number.to_string());
            bench.write("state", if number < 3 { "good" } else { "bad" });
            bench.create()
        })
        .collect();
    bench.write("number", "present");
    made
}

#[test]
fn a_search_runs_no_undo_command_and_records_nothing_for_its_probes() {
    let bench = Bench::new();
    let mark = outside(&bench).join("mark");
    plan(
        &bench,
        &format!(
            "[[step]]
             id = 'one'
             run = 'echo one > file'
             undo = 'echo undone >> {}'
             [[step]]
             id = 'two'
             run = 'echo two > file'",
            mark.display()
        ),
    );
    run(&bench);
    let (before, image) = (records(&bench), bench.image());
    for search_by in BOTH {
        let found = search(&bench, &until("false", search_by));
        assert!(found.restored.is_none() && !found.tried.is_empty());
        assert!(!mark.exists(), "an undo command ran for a probe");
        assert_eq!(records(&bench), before);
        assert_same(&bench.image(), &image);
    }
    assert_eq!(refused(&bench), BOTH.len(), "one record for each search, none for a probe");
    // The result is a rollback like any other: its undo commands run, and it is one record.
    let count = bench.manager.rollbacks(&bench.workspace).unwrap().len();
    let found = search(&bench, &until("test ! -e file", Search::Stepwise));
    assert_eq!(found.restored.unwrap().undone.len(), 1);
    assert_eq!(fs::read_to_string(&mark).unwrap(), "undone\n");
    assert_eq!(bench.manager.rollbacks(&bench.workspace).unwrap().len(), count + 1);
}

#[test]
fn one_undo_after_a_search_returns_to_where_the_user_was() {
    for search_by in BOTH {
        let bench = Bench::new();
        let made = history(&bench);
        let before = bench.image();
        let found = search(&bench, &until("echo x >> tried; grep -q good state", search_by));
        assert_eq!(found.restored.unwrap().record().to, made[2].id);
        assert_eq!(bench.read("number"), "2");
        assert!(!bench.path("tried").exists());
        assert_eq!(bench.manager.rollbacks(&bench.workspace).unwrap().len(), 1);
        bench.undo();
        assert_same(&bench.image(), &before);
    }
}

#[test]
fn the_workspace_is_untouched_while_a_search_runs() {
    let bench = Bench::new();
    history(&bench);
    bench.write("deep/er/file", "x");
    let log = outside(&bench).join("log");
    let look = format!(
        "cd {} && find . -printf '%p %i %m %s %T@ %C@\\n' | sort | sha256sum",
        bench.root().display()
    );
    let command = format!("({look}) >> {}; cat number >> tried; false", log.display());
    for search_by in BOTH {
        search(&bench, &until(&command, search_by));
    }
    let seen = fs::read_to_string(&log).unwrap();
    let first = seen.lines().next().unwrap();
    assert!(seen.lines().count() >= 8 && seen.lines().all(|line| line == first), "{seen}");
    assert_eq!(fs::read_dir(bench.home().join("scratch")).unwrap().count(), 0, "the copy is gone");
}

/// Copies the state that a probe sees to a separate folder, then wrecks it.
fn photograph(bench: &Bench) -> (PathBuf, String) {
    let album = outside(bench).join("album");
    fs::create_dir_all(&album).unwrap();
    let command = format!(
        "chmod -R u+rwX . 2>/dev/null; cp -a . {0}/${{SAFEPOINT_CHECKPOINT_ID:-current}} && {{
             rm -rf src build/old .git/refs; mkdir -p src build; echo x > src/new; echo y >> build/out;
             echo z > number; chmod 600 keep; ln -sf nowhere link; rm -f gone; mkdir gone; echo w > gone/x;
             printf 1 > same; echo h > .git/HEAD; mkdir made; echo m > made/it; }}; false",
        album.display()
    );
    (album, command)
}

#[test]
fn each_probe_is_exactly_what_the_rollback_would_give_whatever_the_check_did_before() {
    let bench = Bench::new();
    let mut made = Vec::new();
    fs::create_dir_all(bench.path(".git/refs")).unwrap();
    bench.write(".git/HEAD", "ref: refs/heads/main");
    for number in 0..5 {
        bench.write("number", number.to_string());
        bench.write("keep", "always");
        bench.write("same", "0");
        bench.write("src/lib.rs", format!("lib {}", number / 2));
        bench.write("src/deep/mod.rs", format!("mod {number}"));
        let _ = fs::remove_file(bench.path("link"));
        std::os::unix::fs::symlink(format!("target {number}"), bench.path("link")).unwrap();
        if number % 2 == 0 {
            bench.write("gone", "sometimes");
            bench.write("extra/file", format!("extra {number}"));
        } else {
            let _ = fs::remove_file(bench.path("gone"));
            let _ = fs::remove_dir_all(bench.path("extra"));
        }
        // A path excluded in some checkpoints, captured in others, and excluded now.
        bench.write(".safepointignore", if number < 2 { "nothing\n" } else { "build/\n" });
        bench.write("build/out", format!("out {number}"));
        bench.write("build/old", "old");
        let mode = if number == 3 { 0o755 } else { 0o644 };
        fs::set_permissions(bench.path("number"), fs::Permissions::from_mode(mode)).unwrap();
        made.push(bench.create());
    }
    bench.write("number", "present");
    bench.write("src/wip.rs", "work in progress");
    let before = TreeImage::read(&bench.root(), &[]).unwrap();
    let (album, command) = photograph(&bench);
    let found = search(&bench, &until(&command, Search::Stepwise));
    assert!(found.restored.is_none());
    assert_eq!(found.tried.len(), 5, "{:?}", found.tried);
    assert_same(&TreeImage::read(&bench.root(), &[]).unwrap(), &before);
    let seen = |name: &str| TreeImage::read(&album.join(name), &[]).unwrap();
    assert_same(&seen("current"), &before);
    for checkpoint in &made {
        bench.rollback(checkpoint.id);
        let then = TreeImage::read(&bench.root(), &[]).unwrap();
        bench.undo();
        assert_same(&seen(&checkpoint.id.to_string()), &then);
    }
}

#[test]
fn only_what_differs_changes_between_two_probes() {
    let bench = Bench::new();
    bench.write("same/file", "the same all the time");
    bench.write("once/file", "changed once");
    let old = bench.create();
    for number in 0..4 {
        bench.write("number", number.to_string());
        bench.create();
    }
    bench.write("same/file", "only the current state differs");
    bench.write("once/file", "too");
    let log = outside(&bench).join("log");
    let command = format!("stat -c '%i %Y %Z' same/file once/file >> {}; false", log.display());
    let mut from = until(&command, Search::Stepwise);
    from.from = bench.manager.workspaces().get(bench.workspace.id).unwrap().head;
    search(&bench, &from);
    let seen = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.len(), 10, "{old:?}");
    assert!(lines.chunks(2).all(|pair| pair == &lines[..2]), "{seen}");
}

#[test]
fn a_probe_sees_ignored_files_and_git() {
    let bench = Bench::new();
    bench.write(".safepointignore", "cache/\n");
    bench.write("cache/tool", "a tool");
    bench.write(".git/HEAD", "ref: refs/heads/main");
    history(&bench);
    let found =
        search(&bench, &until("test -e .git/HEAD && test -e cache/tool && grep -q good state", BOTH[0]));
    assert!(found.restored.is_some(), "{:?}", found.tried);
}

#[test]
fn a_current_state_that_passes_leaves_nothing_to_do() {
    let bench = Bench::new();
    history(&bench);
    let before = records(&bench);
    for search_by in BOTH {
        let found = search(&bench, &until("grep -q present number", search_by));
        assert!(found.restored.is_none() && found.tried.is_empty());
        assert_eq!(found.current.as_ref().map(safepoint::Verdict::is_passed), Some(true));
        assert_eq!(records(&bench), before);
    }
    // A given start checkpoint means a rollback at least that far.
    let head = bench.manager.workspaces().get(bench.workspace.id).unwrap().head;
    let found = search(&bench, &Until { from: head, ..until("true", Search::Stepwise) });
    assert_eq!((found.current, found.restored.unwrap().record().to), (None, head.unwrap()));
}

#[test]
fn a_search_for_show_finds_and_changes_nothing() {
    let bench = Bench::new();
    let made = history(&bench);
    let (before, image) = (records(&bench), bench.image());
    let options = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let wanted = until("grep -q good state", Search::Bisect);
    let found = unwatched(|watch| {
        bench.manager.rollback_until(&bench.workspace, &wanted, &options, watch, &Silent).unwrap()
    });
    let shown = found.restored.unwrap();
    assert_eq!((shown.record().to, shown.outline().paths.len()), (made[2].id, 2));
    assert_eq!(records(&bench), before);
    assert_same(&bench.image(), &image);
}

#[test]
fn a_candidate_that_cannot_be_built_is_skipped_and_reported() {
    for search_by in BOTH {
        let bench = Bench::new();
        let mut made = Vec::new();
        for number in 0..5 {
            bench.write("file", crate::bench::noise(number, 40_000));
            bench.write("state", if number < 4 { "good" } else { "bad" });
            made.push(bench.create());
        }
        bench.write("file", "present");
        damage(&bench, 3);
        let found = search(&bench, &until("grep -q good state", search_by));
        assert_eq!(found.restored.unwrap().record().to, made[2].id, "{search_by:?}");
        let skipped: Vec<CheckpointId> =
            found.tried.iter().filter(|check| check.skipped).map(|check| check.checkpoint).collect();
        assert_eq!(skipped, [made[3].id], "{search_by:?} {:?}", found.tried);
    }
}

/// Damages the content of `file` in the checkpoint with this number.
fn damage(bench: &Bench, number: u64) {
    let wanted = crate::bench::noise(number, 40_000);
    let mut hits = 0;
    for pack in fs::read_dir(bench.home().join("store/packs")).unwrap().flatten() {
        let mut bytes = fs::read(pack.path()).unwrap();
        let at = bytes.windows(64).position(|window| window == &wanted[1000..1064]);
        if let Some(at) = at {
            bytes[at] ^= 1;
            fs::write(pack.path(), bytes).unwrap();
            hits += 1;
        }
    }
    assert_eq!(hits, 1);
}

#[test]
fn an_edit_during_a_search_is_in_the_safety_checkpoint_of_its_rollback() {
    let bench = Bench::new();
    history(&bench);
    let command = format!("echo edited > {}; grep -q good state", bench.path("edit").display());
    let found = search(&bench, &until(&command, Search::Stepwise));
    assert!(found.restored.is_some() && !bench.path("edit").exists());
    bench.undo();
    assert_eq!((bench.read("edit").as_str(), bench.read("number").as_str()), ("edited\n", "present"));
}

#[test]
fn what_a_dead_search_left_is_swept_by_the_next_command() {
    let bench = Bench::new();
    bench.write("file", "x");
    let left = bench.home().join("scratch/01KG9YS9EGCQT0DH2X3200JHAF");
    fs::create_dir_all(left.join("project/closed")).unwrap();
    fs::write(left.join("project/closed/file"), "x").unwrap();
    fs::set_permissions(left.join("project/closed"), fs::Permissions::from_mode(0o500)).unwrap();
    bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
    assert!(!left.exists());
    assert!(fs::metadata(bench.path("file")).unwrap().size() == 1);
}

fn in_place(command: &str, search: Search) -> Until {
    Until { place: TryIn::Workspace, ..until(command, search) }
}

#[test]
fn a_search_in_place_is_one_record_and_one_undo() {
    for search_by in BOTH {
        let bench = Bench::new();
        let made = history(&bench);
        let before = bench.image();
        let kept = |bench: &Bench| {
            bench
                .manager
                .checkpoints()
                .list(&Filter { role: RoleFilter::Any, ..Filter::default() })
                .unwrap()
                .len()
        };
        // The check needs the path of the project.
        let command = format!("test \"$PWD\" = {} && grep -q good state", bench.root().display());
        let found = search(&bench, &in_place(&command, search_by));
        assert_eq!(found.restored.unwrap().record().to, made[2].id);
        assert_eq!((bench.read("number").as_str(), kept(&bench)), ("2", 7), "one safety checkpoint");
        assert_eq!(bench.manager.rollbacks(&bench.workspace).unwrap().len(), 1);
        bench.undo();
        assert_same(&bench.image(), &before);
    }
}

#[test]
fn a_search_in_place_that_finds_nothing_is_one_refused_record_and_runs_no_undo_command() {
    let bench = Bench::new();
    let mark = outside(&bench).join("mark");
    plan(
        &bench,
        &format!("[[step]]\nid = 'one'\nrun = 'echo one > file'\nundo = 'echo x >> {}'", mark.display()),
    );
    run(&bench);
    let (before, image) = (records(&bench), bench.image());
    for search_by in BOTH {
        assert!(search(&bench, &in_place("false", search_by)).restored.is_none());
        assert!(!mark.exists(), "an undo command ran for a probe");
        assert_eq!(records(&bench), before);
        assert_same(&bench.image(), &image);
        assert!(!bench.path(".safepoint").exists());
    }
    assert_eq!(refused(&bench), BOTH.len());
}

#[test]
fn what_a_check_changes_in_place_is_put_back_and_can_be_had_again() {
    for search_by in BOTH {
        let bench = Bench::new();
        bench.write("lock", "the same in all states");
        let made = history(&bench);
        let before = bench.image();
        let seen = outside(&bench).join("seen");
        let command = format!(
            "cat lock number >> {}; echo wrecked > lock; echo w > number; echo x >> tried; grep -q good state",
            seen.display()
        );
        let found = search(&bench, &in_place(&command, search_by));
        assert_eq!(found.restored.unwrap().record().to, made[2].id);
        let seen = fs::read_to_string(&seen).unwrap();
        assert!(!seen.contains("wrecked") && !seen.contains('w'), "each probe is exact: {seen}");
        bench.undo();
        assert_same(&bench.image(), &before);
        // A separate rollback displaced the edits, so they can be restored.
        bench.undo();
        assert_eq!(bench.read("lock"), "wrecked\n");
    }
}

/// Numbers from a seed.
struct Dice(std::vec::IntoIter<u8>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(crate::bench::noise(seed, 20_000).into_iter())
    }

    fn roll(&mut self, sides: usize) -> usize {
        usize::from(self.0.next().unwrap()) % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const NAMES: [&str; 8] = ["a", "d", "d/a", "d/e", "d/e/f", "x.log", "d/x.log", "keep"];
const RULES: [&str; 6] = ["", "*.log\n", "d/\n", "d/e/\n", "a\n", "*.log\nd/e\n"];

/// Script with changes of a folder.
fn changes(dice: &mut Dice, count: usize) -> String {
    let mut script = String::new();
    for _ in 0..count {
        let (name, other) = (dice.pick(&NAMES), dice.pick(&NAMES));
        let number = dice.roll(5);
        script.push_str(&match dice.roll(9) {
            0 | 1 => format!("rm -rf {name}"),
            2 => format!("mkdir -p {name}"),
            3 => format!("rm -rf {name}; ln -s {other} {name}"),
            4 => format!("chmod 6{number}5 {name}"),
            5 => format!("mv {name} {other}"),
            _ => format!("rm -rf {name}; mkdir -p $(dirname {name}); echo {number} > {name}"),
        });
        script.push_str(" 2>/dev/null\n");
    }
    script
}

#[test]
fn each_probe_of_random_histories_is_exactly_what_the_rollback_would_give() {
    let (mut compared, mut skipped) = (0, 0);
    let seeds = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8);
    for seed in 1..=seeds {
        let bench = Bench::new();
        let mut dice = Dice::new(seed);
        let shell = |script: &str| {
            let _ = std::process::Command::new("sh").args(["-c", script]).current_dir(bench.root()).output();
        };
        for _ in 0..6 {
            bench.write(".safepointignore", dice.pick(&RULES));
            shell(&changes(&mut dice, 8));
            bench.create();
        }
        bench.write(".safepointignore", dice.pick(&RULES));
        shell(&changes(&mut dice, 8));
        let before = TreeImage::read(&bench.root(), &[]).unwrap();
        let album = outside(&bench);
        let command = format!(
            "cp -a . {}/${{SAFEPOINT_CHECKPOINT_ID:-current}}\n{}false",
            album.display(),
            changes(&mut dice, 10)
        );
        let found = search(&bench, &until(&command, Search::Stepwise));
        assert_same(&TreeImage::read(&bench.root(), &[]).unwrap(), &before);
        assert_same(&TreeImage::read(&album.join("current"), &[]).unwrap(), &before);
        for check in &found.tried {
            let options = RollbackOptions::default();
            let real = bench.manager.rollback(&bench.workspace, check.checkpoint, &options, &Silent);
            assert_eq!(check.skipped, real.is_err(), "{seed} {check:?} {real:?}");
            if real.is_err() {
                skipped += 1;
                continue;
            }
            let then = TreeImage::read(&bench.root(), &[]).unwrap();
            bench.undo();
            assert_same(&TreeImage::read(&bench.root(), &[]).unwrap(), &before);
            let seen = TreeImage::read(&album.join(check.checkpoint.to_string()), &[]).unwrap();
            let difference = seen.difference(&then);
            assert!(difference.is_empty(), "seed {seed}, {}: {difference:#?}", check.checkpoint);
            compared += 1;
        }
    }
    assert!(compared > 24, "{compared} compared, {skipped} skipped");
}
