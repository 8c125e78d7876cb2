//! Undo and redo cover the changes of a rollback, whatever the rules exclude now.

use crate::bench::{Bench, ParsePath, assert_same, open};
use crate::framework::{World, assert_all, put};
use safepoint::model::CheckpointId;
use safepoint::model::rollback::{RollbackState, Verb};
use safepoint::{CreateOptions, Error, IfUnchanged, RollbackOptions, Settings, Silent, Subject};
use safepoint_testkit::TreeImage;
use std::fs;

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";

/// Undoes, redoes and undoes again, and compares each state.
#[track_caller]
fn to_and_fro(bench: &Bench, before: &TreeImage) {
    let after = bench.image();
    for _ in 0..2 {
        // Nothing changed since, and nothing seems to have.
        bench.manager.undo(&bench.workspace, &RollbackOptions::default(), &Silent).unwrap();
        assert_same(&bench.image(), before);
        bench.redo();
        assert_same(&bench.image(), &after);
    }
    bench.undo();
    assert_same(&bench.image(), before);
}

/// Tests rules, written by `hide`, that exclude restored paths.
fn hidden_by(hide: impl Fn(&Bench)) {
    for paths in [&[][..], &["src"], &["src/deep", "src/main.rs"]] {
        let bench = Bench::new();
        for name in ["src/main.rs", "src/deep/er/lib.rs", "top.rs", "other/x"] {
            bench.write(name, name);
        }
        let checkpoint = bench.create();
        fs::remove_dir_all(bench.path("src")).unwrap();
        fs::create_dir(bench.path("src")).unwrap();
        fs::remove_file(bench.path("top.rs")).unwrap();
        hide(&bench);
        let before = bench.image();
        bench.restore_paths(checkpoint.id, paths);
        to_and_fro(&bench, &before);
    }
}

#[test]
fn undo_is_exact_where_a_tag_of_a_cache_hides_what_came_back() {
    hidden_by(|bench| bench.write("src/CACHEDIR.TAG", TAG));
}

#[test]
fn undo_is_exact_where_an_ignore_file_hides_what_came_back() {
    hidden_by(|bench| bench.write("src/.safepointignore", "*\n"));
    hidden_by(|bench| bench.write(".safepointignore", "*\n"));
    hidden_by(|bench| bench.write(".safepointignore", "src\ntop.rs\n"));
    hidden_by(|bench| bench.write(".safepointignore", "deep/er\n*.rs\n"));
}

#[test]
fn undo_is_exact_where_the_configuration_hides_what_came_back() {
    hidden_by(|bench| {
        fs::write(bench.home().join("config.toml"), "[capture]\nexcludes = ['src/*', 'top.rs']\n").unwrap();
    });
    hidden_by(|bench| bench.write(".safepoint.toml", "[capture]\nexcludes = ['/*']\n"));
}

#[test]
fn undo_is_exact_where_rules_came_after_the_rollback() {
    let bench = Bench::new();
    bench.write("src/deep/main.rs", "1");
    bench.write("src/lib.rs", "1");
    let checkpoint = bench.create();
    fs::remove_dir_all(bench.path("src")).unwrap();
    bench.rollback(checkpoint.id);
    // A tag in a restored folder was never captured, so it stays with its folder. Everything else is removed.
    bench.write("src/deep/CACHEDIR.TAG", TAG);
    fs::write(bench.home().join("config.toml"), "[capture]\nexcludes = ['*.rs']\n").unwrap();
    bench.undo();
    assert!(!bench.path("src/lib.rs").exists() && !bench.path("src/deep/main.rs").exists());
    assert_eq!(bench.read("src/deep/CACHEDIR.TAG"), TAG);
    bench.redo();
    assert_eq!((bench.read("src/lib.rs"), bench.read("src/deep/main.rs")), ("1".to_owned(), "1".to_owned()));
}

#[test]
fn undo_is_exact_where_the_rollback_brings_or_takes_the_rules() {
    // The rules return with the files that they exclude.
    let bench = Bench::new();
    bench.write("kept.log", "1");
    let first = bench.create();
    bench.write(".safepointignore", "*.log\nbuild\n");
    let second = bench.create();
    bench.write("new.log", "never captured");
    bench.write("build/x", "never captured");
    fs::remove_file(bench.path("kept.log")).unwrap();
    let before = bench.image();
    bench.rollback(first.id);
    assert_eq!(bench.read("kept.log"), "1");
    assert!(!bench.path(".safepointignore").exists());
    to_and_fro(&bench, &before);
    // And the reverse.
    fs::remove_file(bench.path(".safepointignore")).unwrap();
    bench.write("kept.log", "2");
    let before = bench.image();
    bench.rollback(second.id);
    to_and_fro(&bench, &before);
}

#[test]
fn what_rules_hide_and_no_rollback_changed_is_left_alone_by_an_undo() {
    let bench = Bench::new();
    bench.write("src/a", "1");
    let checkpoint = bench.create();
    fs::remove_file(bench.path("src/a")).unwrap();
    bench.write("src/CACHEDIR.TAG", TAG);
    bench.rollback(checkpoint.id);
    bench.write("src/other", "the cache's own");
    bench.write("src/a-b", "the cache's own");
    bench.undo();
    assert!(!bench.path("src/a").exists());
    assert_eq!((bench.read("src/other"), bench.read("src/a-b")).0, "the cache's own");
    assert_eq!(bench.read("src/a-b"), "the cache's own");
}

#[test]
fn undo_of_many_folders_is_exact_where_rules_hide_what_came_back() {
    let world = World::new();
    let nested = world.others[1].root_path().to_owned();
    put(nested.join("src/deep/a"), "1");
    world.bench.write("src/b", "1");
    put(world.agents.join("memory/src/c"), "1");
    let created = world.create(&Subject::Framework);
    for folder in [nested.join("src"), world.bench.path("src"), world.agents.join("memory/src")] {
        fs::remove_dir_all(&folder).unwrap();
        put(folder.join("CACHEDIR.TAG"), TAG);
    }
    put(nested.join(".safepointignore"), "*\n");
    world.disaster();
    let before = world.everything();
    let (manager, options) = (&world.bench.manager, RollbackOptions::default());
    manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    let after = world.everything();
    assert_eq!(fs::read_to_string(nested.join("src/deep/a")).unwrap(), "1");
    for _ in 0..2 {
        manager.undo(&world.bench.workspace, &options, &Silent).unwrap();
        assert_all(&world.everything(), &before);
        manager.redo(&world.bench.workspace, &options, &Silent).unwrap();
        assert_all(&world.everything(), &after);
    }
}

/// Reproducible random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

#[test]
fn undo_of_any_rollback_of_a_history_with_rules_is_exact() {
    let rounds = if std::env::var_os("SAFEPOINT_PROOF").is_some() { 400 } else { 40 };
    let folders = ["src", "src/deep", "lib", "lib/a", "."];
    let names = ["a", "b.log", "c.rs", "deep"];
    let rules = ["*\n", "*.log\n", "deep\n", "/a\n", "!*.log\n", "src\n", "lib/*\n", "**/a\n"];
    let mut undone = 0;
    for seed in 0..rounds {
        let mut dice = Dice(seed * 7 + 1);
        let bench = Bench::with(Settings::default());
        let mut checkpoints: Vec<CheckpointId> = Vec::new();
        for step in 0..40 {
            let path = format!("{}/{}", dice.pick(&folders), dice.pick(&names));
            match dice.roll(10) {
                0..=2 => {
                    let _ = fs::create_dir_all(bench.path(&path).parent().unwrap());
                    let _ = fs::write(bench.path(&path), format!("{seed} {step}"));
                }
                3 => {
                    let _ = fs::remove_file(bench.path(&path));
                    let _ = fs::remove_dir_all(bench.path(&path));
                }
                4 => {
                    let file = bench.path(dice.pick(&folders)).join(".safepointignore");
                    let _ = match dice.roll(3) {
                        0 => fs::remove_file(file),
                        _ => fs::write(file, dice.pick(&rules)),
                    };
                }
                5 => {
                    let file = bench.path(dice.pick(&folders)).join("CACHEDIR.TAG");
                    let _ = if dice.roll(2) == 0 { fs::remove_file(file) } else { fs::write(file, TAG) };
                }
                6 => {
                    let excludes = dice.pick(&["", "'*.rs'", "'lib'", "'/src/*', '!/src/deep'"]);
                    let text = format!("[capture]\nexcludes = [{excludes}]\n");
                    fs::write(bench.home().join("config.toml"), text).unwrap();
                }
                7 => checkpoints.push(bench.create().id),
                _ if !checkpoints.is_empty() => {
                    let to = checkpoints[dice.roll(checkpoints.len())];
                    let paths = match dice.roll(2) {
                        0 => Vec::new(),
                        _ => vec![safepoint::model::RelPath::new(path.trim_start_matches("./")).unwrap()],
                    };
                    let options = RollbackOptions { paths, ..RollbackOptions::default() };
                    let before = bench.image();
                    // An uncaptured entry may block it; then nothing changed.
                    if bench.manager.rollback(&bench.workspace, to, &options, &Silent).is_err() {
                        assert_same(&bench.image(), &before);
                        continue;
                    }
                    let after = bench.image();
                    bench.undo();
                    assert_same(&bench.image(), &before);
                    if dice.roll(2) == 0 {
                        bench.redo();
                        assert_same(&bench.image(), &after);
                    }
                    undone += 1;
                }
                _ => {}
            }
        }
    }
    println!("undone: {undone} rollbacks of histories with rules, all exact");
    assert!(undone > 3 * rounds, "{undone}");
}

#[test]
fn an_undo_refuses_to_replace_what_changed_since_the_last_rollback() {
    let bench = Bench::new();
    bench.write("a", "1");
    bench.write("b", "1");
    let first = bench.create();
    bench.write("a", "2");
    bench.restore_paths(first.id, &["a"]);
    let undo = || bench.manager.undo(&bench.workspace, &RollbackOptions::default(), &Silent);
    bench.write("a", "3");
    let error = undo().unwrap_err();
    assert!(
        matches!(&error, Error::ChangedSinceRollback { paths, .. } if paths.iter().map(ToString::to_string).eq(["a"])),
        "{error}"
    );
    assert_eq!(bench.read("a"), "3");
    // What the rollback was not about may change.
    bench.write("a", "1");
    bench.write("b", "2");
    undo().unwrap();
    assert_eq!((bench.read("a"), bench.read("b")), ("2".to_owned(), "2".to_owned()));
    // Changes that an undo brought back are not newer than it: undo works at any depth.
    bench.rollback(first.id);
    bench.write("a", "4");
    bench.rollback(first.id);
    undo().unwrap();
    assert_eq!(bench.read("a"), "4");
    undo().unwrap();
    assert_eq!((bench.read("a"), bench.read("b")), ("2".to_owned(), "2".to_owned()));
    // So does redo.
    let redo = || bench.manager.redo(&bench.workspace, &RollbackOptions::default(), &Silent);
    bench.write("a", "5");
    let error = redo().unwrap_err();
    assert!(
        matches!(&error, Error::ChangedSinceRollback { verb: Verb::Redo, paths } if paths.iter().map(ToString::to_string).eq(["a"])),
        "{error}"
    );
    assert_eq!(bench.read("a"), "5");
    bench.write("a", "2");
    redo().unwrap();
    redo().unwrap();
    assert_eq!((bench.read("a"), bench.read("b")), ("1".to_owned(), "1".to_owned()));
}

#[test]
fn folders_that_a_chosen_path_needs_are_no_later_change() {
    let bench = Bench::new();
    bench.write("deep/down/file", "1");
    let first = bench.create();
    fs::remove_dir_all(bench.path("deep")).unwrap();
    let options = RollbackOptions::default();
    bench.restore_paths(first.id, &["deep/down/file"]);
    for _ in 0..2 {
        bench.manager.undo(&bench.workspace, &options, &Silent).unwrap();
        assert!(!bench.path("deep").exists());
        bench.manager.redo(&bench.workspace, &options, &Silent).unwrap();
        assert_eq!(bench.read("deep/down/file"), "1");
    }
}

#[test]
fn a_rollback_that_changes_nothing_is_on_record_without_a_safety_checkpoint() {
    let bench = Bench::new();
    bench.write("a", "1");
    let first = bench.create();
    bench.write("a", "2");
    bench.create();
    bench.rollback(first.id);
    let count = bench.manager.checkpoints().list_ids(&safepoint::Filter::default()).unwrap().len();
    let idle = bench.rollback(first.id);
    assert!(idle.is_empty() && idle.verified && idle.safety_checkpoint.is_none());
    assert_eq!(idle.record().state, RollbackState::Settled);
    assert_eq!(bench.manager.rollbacks(&bench.workspace).unwrap().len(), 2);
    assert_eq!(bench.manager.checkpoints().list_ids(&safepoint::Filter::default()).unwrap().len(), count);
    assert!(bench.undo().is_empty());
    assert_eq!(bench.read("a"), "1");
    bench.undo();
    assert_eq!(bench.read("a"), "2");
    bench.redo();
    assert_eq!(bench.read("a"), "1");
}

#[test]
fn a_state_that_the_position_holds_is_not_added_again_where_that_is_asked_for() {
    let bench = Bench::new();
    bench.write("a", "1");
    let first = bench.create();
    let options = CreateOptions { unchanged: IfUnchanged::Reused, ..CreateOptions::default() };
    let create = || bench.manager.create(&bench.workspace, &options, &Silent).unwrap();
    let again = create();
    assert!(again.unchanged && again.checkpoint.id == first.id);
    // Without the option one is added, and that is the default.
    let second = bench.create();
    assert_ne!(second.id, first.id);
    assert_eq!(create().checkpoint.id, second.id);
    // Times do not count, modes and contents do.
    fs::File::open(bench.path("a")).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert!(create().unchanged);
    fs::set_permissions(bench.path("a"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let third = create();
    assert!(!third.unchanged);
    bench.write("a", "2");
    bench.rollback(third.checkpoint.id);
    assert_eq!(create().checkpoint.id, third.checkpoint.id);
    // A safety checkpoint is no answer.
    bench.write("b", "1");
    bench.write("a", "3");
    bench.restore_paths(first.id, &["a"]);
    assert!(!create().unchanged);
}

#[test]
fn a_position_that_lost_its_content_is_not_reused() {
    let bench = Bench::new();
    bench.write("a", "still there");
    let first = bench.create();
    for entry in fs::read_dir(bench.home().join("store/packs")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let manager = open(&bench.home(), Settings::default());
    let options = CreateOptions { unchanged: IfUnchanged::Reused, ..CreateOptions::default() };
    let created = manager.create(&bench.workspace, &options, &Silent).unwrap();
    assert!(!created.unchanged && created.checkpoint.id != first.id);
    bench.write("a", "lost");
    let options = RollbackOptions::default();
    manager.rollback(&bench.workspace, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(fs::read(bench.path("a")).unwrap(), b"still there");
}

#[test]
fn paths_to_leave_stay_through_a_rollback_and_its_undo() {
    let bench = Bench::new();
    for name in ["notebook", "folder/kept", "file"] {
        bench.write(name, "one");
    }
    let first = bench.create();
    for name in ["notebook", "folder/kept", "folder/new", "file", "fresh"] {
        bench.write(name, "two");
    }
    let leave = ["notebook", "folder", "missing"].map(|path| path.parse_path()).to_vec();
    let options = RollbackOptions { leave, ..RollbackOptions::default() };
    bench.manager.rollback(&bench.workspace, first.id, &options, &Silent).unwrap();
    let now = || ["notebook", "folder/kept", "folder/new", "file"].map(|name| bench.read(name));
    assert_eq!(now(), ["two", "two", "two", "one"]);
    assert!(!bench.path("fresh").exists());
    bench.write("notebook", "three");
    bench.manager.undo(&bench.workspace, &options, &Silent).unwrap();
    assert_eq!(now(), ["three", "two", "two", "two"]);
    assert_eq!(bench.read("fresh"), "two");
}
