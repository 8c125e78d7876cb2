//! Conversations whose states continue their parents: a checkpoint holds all of one, at the cost of what is new.

use crate::bench::{Bench, noise, open, scratch};
use crate::hostile::{edit_json, seal};
use crate::layouts::export;
use safepoint::model::CheckpointId;
use safepoint::model::thread::ThreadValue;
use safepoint::{
    Depth, Error, Failure, Filter, ImportOptions, ListStates, NewState, Settings, Silent, Thoroughness,
    Threads,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Saves a batch without channels after its parent.
pub(crate) fn append(threads: Threads<'_>, id: &str, parent: Option<&str>, body: &[u8]) {
    let state = NewState {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        body: ThreadValue::new("json", body),
        ..NewState::default()
    };
    threads.put("talk", state).unwrap();
}

/// Appends batches with these numbers, the first one after `parent`.
fn talk(threads: Threads<'_>, numbers: std::ops::RangeInclusive<u64>, parent: Option<&str>) {
    let mut parent = parent.map(str::to_owned);
    for number in numbers {
        let id = format!("b{number:03}");
        append(threads, &id, parent.as_deref(), &batch(number));
        parent = Some(id);
    }
}

/// Content of a batch; every seventh is cut into pieces.
fn batch(number: u64) -> Vec<u8> {
    noise(number, if number.is_multiple_of(7) { 9_000 } else { 300 })
}

/// Returns the conversation up to the head, as an SDK reads it.
pub(crate) fn conversation(threads: Threads<'_>) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut next = threads.get("talk", "", None).unwrap();
    while let Some(state) = next {
        next = state.parent.as_deref().map(|parent| {
            threads.get("talk", "", Some(parent)).unwrap().unwrap_or_else(|| panic!("{parent} is missing"))
        });
        found.push((state.id, state.body.bytes));
    }
    found.reverse();
    found
}

fn expected(numbers: std::ops::RangeInclusive<u64>) -> Vec<(String, Vec<u8>)> {
    numbers.map(|number| (format!("b{number:03}"), batch(number))).collect()
}

fn here(bench: &Bench) -> Threads<'_> {
    bench.manager.threads().of(bench.workspace.id)
}

fn assert_valid(bench: &Bench) {
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

/// Deletes the thread with all of its states, and collects what nothing needs.
fn erase(bench: &Bench) {
    assert!(here(bench).delete("talk").unwrap());
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
}

#[test]
fn a_deleted_conversation_is_whole_after_a_rollback() {
    let bench = Bench::new();
    talk(here(&bench), 1..=40, None);
    let first = bench.create().id;
    talk(here(&bench), 41..=45, Some("b040"));
    let second = bench.create().id;
    for (to, last) in [(first, 40), (second, 45)] {
        erase(&bench);
        bench.rollback(to);
        assert_eq!(conversation(here(&bench)), expected(1..=last));
        assert_valid(&bench);
    }
    // States that are there already are not inserted again.
    bench.rollback(first);
    assert_eq!(here(&bench).list(&ListStates::default()).unwrap().states.len(), 45);
}

#[test]
fn removed_batches_come_back_with_a_rollback() {
    let bench = Bench::new();
    talk(here(&bench), 1..=12, None);
    let made = bench.create().id;
    let gone: Vec<String> = [2, 3, 7, 11].map(|number| format!("b{number:03}")).into();
    here(&bench).remove("talk", "", &gone, safepoint::Removal::Deleted).unwrap();
    bench.rollback(made);
    assert_eq!(conversation(here(&bench)), expected(1..=12));
    // A batch that was replaced under its id is the old one again.
    append(here(&bench), "b005", Some("b004"), b"other");
    here(&bench).move_head("talk", "", "b012").unwrap();
    let replaced = bench.create().id;
    bench.rollback(made);
    assert_eq!(conversation(here(&bench)), expected(1..=12));
    bench.rollback(replaced);
    assert_eq!(conversation(here(&bench))[4].1, b"other");
}

#[test]
fn branches_of_a_conversation_are_whole() {
    let bench = Bench::new();
    talk(here(&bench), 1..=30, None);
    let trunk = bench.create().id;
    here(&bench).move_head("talk", "", "b004").unwrap();
    append(here(&bench), "x5", Some("b004"), b"x5");
    append(here(&bench), "x6", Some("x5"), b"x6");
    let branch = bench.create().id;
    erase(&bench);
    bench.rollback(branch);
    let mut other = expected(1..=4);
    other.extend([("x5".into(), b"x5".to_vec()), ("x6".into(), b"x6".to_vec())]);
    assert_eq!(conversation(here(&bench)), other);
    bench.rollback(trunk);
    assert_eq!(conversation(here(&bench)), expected(1..=30));
}

#[test]
fn a_checkpoint_costs_what_is_new_in_a_conversation() {
    let bench = Bench::new();
    bench.write("file", "content");
    talk(here(&bench), 1..=5, None);
    bench.create();
    let bytes = || bench.manager.upkeep().usage().unwrap().pack_bytes;
    let cost = |numbers: std::ops::RangeInclusive<u64>| {
        let before = bytes();
        let last = format!("b{:03}", numbers.start() - 1);
        talk(here(&bench), numbers, Some(&last));
        bench.create();
        bytes() - before
    };
    let short = cost(6..=6);
    cost(7..=301);
    let long = cost(302..=302);
    assert!(long < short + 500 && long < 5_000, "{short} then {long}");
    erase(&bench);
    let last = bench.manager.checkpoints().list(&Filter::default()).unwrap()[0].id;
    bench.rollback(last);
    assert_eq!(conversation(here(&bench)), expected(1..=302));
}

#[test]
fn collecting_keeps_the_conversations_of_the_checkpoints_that_stay() {
    let bench = Bench::new();
    talk(here(&bench), 1..=10, None);
    let first = bench.create().id;
    talk(here(&bench), 11..=14, Some("b010"));
    let second = bench.create().id;
    bench.manager.checkpoints().delete(&[first]).unwrap();
    erase(&bench);
    bench.rollback(second);
    assert_eq!(conversation(here(&bench)), expected(1..=14));
    assert_valid(&bench);
}

#[test]
fn a_checkpoint_after_a_deleted_one_names_no_collected_object() {
    let bench = Bench::new();
    // Large values are in packs of their own, and the small documents in others.
    talk(here(&bench), 1..=3, None);
    append(here(&bench), "large", Some("b003"), &noise(99, 400_000));
    for at in 0..6 {
        bench.write("file", noise(at, 30_000));
        let made = bench.create().id;
        bench.manager.checkpoints().delete(&[made]).unwrap();
        bench.manager.upkeep().collect(Thoroughness::Usual, &Silent).unwrap();
        assert_valid(&bench);
    }
    bench.create();
    assert_valid(&bench);
}

#[test]
fn a_lost_catalog_gets_whole_conversations_back() {
    let bench = Bench::new();
    talk(here(&bench), 1..=20, None);
    bench.create();
    let home = bench.home();
    for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = fs::remove_file(home.join(file));
    }
    fs::write(home.join("catalog.db"), vec![7; 8192]).unwrap();
    let environment = Box::new(safepoint::SystemEnvironment::default());
    let (manager, _) =
        safepoint::CheckpointManager::open_for_repair(&home, Settings::default(), environment, &Silent)
            .unwrap();
    assert_eq!(conversation(manager.threads().of(bench.workspace.id)), expected(1..=20));
}

#[test]
fn an_exported_conversation_is_whole_elsewhere() {
    let bench = Bench::new();
    talk(here(&bench), 1..=20, None);
    let checkpoint = bench.create();
    let folder = scratch();
    let dir = export(&bench, &checkpoint, folder.path());
    let other = Bench::new();
    let import = |dir: &Path| -> Result<CheckpointId, Error> {
        let options = ImportOptions::default();
        Ok(other.manager.import(Some(&other.workspace), dir, &options, &Silent)?.checkpoint.id)
    };
    other.rollback(import(&dir).unwrap());
    assert_eq!(conversation(here(&other)), expected(1..=20));
    assert_valid(&other);
}

#[test]
fn a_missing_ancestor_is_damage_that_a_validation_names() {
    let bench = Bench::new();
    append(here(&bench), "one", None, b"a-text-that-is-nowhere-else");
    append(here(&bench), "two", Some("one"), b"two");
    let made = bench.create().id;
    crate::space::damage(&bench, b"a-text-that-is-nowhere-else");
    let manager = open(&bench.home(), Settings::default());
    let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.damaged.iter().any(|part| part.checkpoint == Some(made)), "{validation:?}");
}

/// Layout of a conversation of three batches, and its bench.
fn layout() -> (Bench, tempfile::TempDir, PathBuf) {
    let bench = Bench::new();
    talk(here(&bench), 1..=3, None);
    let checkpoint = bench.create();
    let folder = scratch();
    let dir = export(&bench, &checkpoint, folder.path());
    (bench, folder, dir)
}

/// Returns the file of a thread with this end.
fn file_of_thread(layout: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(layout.join("task_tool_state")).unwrap().map(|entry| entry.unwrap().path());
    let found = files.filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("thread_") && name.ends_with(end)
    });
    found.min().unwrap_or_else(|| panic!("{end} is missing"))
}

#[test]
fn a_hostile_layout_of_a_conversation_is_refused() {
    type Spoil = fn(&Path);
    type Spoils<'a> = dyn Fn(&Path) + 'a;
    let list = |edit: fn(&mut Vec<Value>)| {
        move |layout: &Path| {
            edit_json(&file_of_thread(layout, ".ancestors.json"), |value| {
                edit(value.as_array_mut().unwrap());
            });
        }
    };
    let head = |edit: fn(&mut Value)| {
        move |layout: &Path| {
            let names = |path: &Path| !path.to_str().unwrap().ends_with(".ancestors.json");
            let path =
                fs::read_dir(layout.join("task_tool_state")).unwrap().map(|entry| entry.unwrap().path());
            let mut path = path.filter(|path| path.extension().is_some_and(|it| it == "json") && names(path));
            edit_json(&path.next().unwrap(), |value| edit(&mut value["heads"][0]));
        }
    };
    let missing: Spoil = |layout| fs::remove_file(file_of_thread(layout, ".ancestors.json")).unwrap();
    let other_bytes: Spoil = |layout| fs::write(file_of_thread(layout, ".0.bin"), b"other").unwrap();
    let endless: Spoil = |layout| {
        let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        fs::write(file_of_thread(layout, ".ancestors.json"), nested).unwrap();
    };
    let spoiled: Vec<(&str, Box<Spoils<'_>>)> = vec![
        ("does not list it", Box::new(missing)),
        ("not the value that the document names", Box::new(other_bytes)),
        ("cannot be understood", Box::new(endless)),
        ("names one that does not come before it", Box::new(list(|list| list.reverse()))),
        ("names one that does not come before it", Box::new(list(|list| drop(list.remove(0))))),
        ("an ancestor of a head is missing", Box::new(list(|list| drop(list.pop())))),
        (
            "lists an ancestor that no state names",
            Box::new(list(|list| {
                let mut other = list[0].clone();
                other["state"]["id"] = json!("other");
                list.insert(0, other);
            })),
        ),
        (
            "an ancestor of a head is missing",
            Box::new(list(|list| {
                list[1]["state"]["metadata"] = json!({ "changed": true });
            })),
        ),
        ("is unsupported", Box::new(list(|list| list[0]["format"] = json!(2)))),
        ("it contains a NUL character", Box::new(list(|list| list[0]["state"]["id"] = json!("a\0b")))),
        ("it is empty", Box::new(list(|list| list[0]["state"]["id"] = json!("")))),
        (
            "it has pending writes",
            Box::new(list(|list| {
                let body = list[0]["state"]["body"].clone();
                list[0]["state"]["writes"] = json!([
                    { "task_id": "a", "index": 0, "channel": "c", "value": body, "task_path": "" }
                ]);
            })),
        ),
        ("cannot be understood", Box::new(list(|list| list[0]["state"]["more"] = json!(1)))),
        (
            "an ancestor of a head is missing",
            Box::new(head(|head| {
                head["earlier"] = json!("0".repeat(64));
            })),
        ),
        ("it contains a NUL character", Box::new(head(|head| head["namespace"] = json!("\0")))),
        (
            "it is not the value that the document names",
            Box::new(head(|head| {
                head["body"]["content"]["size"] = json!(u64::MAX);
            })),
        ),
    ];
    let other = Bench::new();
    for (words, spoil) in spoiled {
        let (_bench, _folder, dir) = layout();
        spoil(&dir);
        if words != "does not list it" {
            seal(&dir);
        }
        let options = ImportOptions::default();
        let error = other.manager.import(Some(&other.workspace), &dir, &options, &Silent).unwrap_err();
        let failure = Failure::from(&error);
        let told = format!("{} {}", failure.message, failure.causes.join(" "));
        assert_eq!(failure.code, "bad_layout", "{words}: {told}");
        if words != "does not list it" {
            assert!(told.contains(words), "{told:?} lacks {words:?}");
        }
        assert!(other.manager.checkpoints().list(&Filter::default()).unwrap().is_empty(), "{words}");
    }
}
