//! Threads: states never change, heads move, and a conversation goes back with the files or not at all.

use crate::bench::{Bench, noise, open, scratch};
use crate::layouts::export;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::thread::{ThreadState, ThreadValue};
use safepoint::{
    CreateOptions, Depth, DryRun, Error, ExistingWrites, Failure, FailureKind, Filter, IfUnchanged,
    ImportOptions, KeepStates, ListStates, ListedStates, ListedValues, NewState, NewWrite, NewWrites,
    Removal, RollbackOptions, Settings, Silent, Thoroughness, Threads,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// State with one channel of messages and one that never changes.
fn state(id: &str, parent: Option<&str>, messages: &[u8]) -> NewState {
    let constant = parent.is_none().then(|| ("constant".to_owned(), Some(value(b"always"))));
    let messages = ("messages".to_owned(), Some(value(messages)));
    NewState {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        metadata: metadata(json!({ "source": "loop", "step": id.len() })),
        body: ThreadValue::new("json", format!("{{\"id\":\"{id}\"}}")),
        channels: [("constant", "1"), ("messages", id)].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        values: constant.into_iter().chain([messages]).collect(),
        ..NewState::default()
    }
}

fn value(bytes: &[u8]) -> ThreadValue {
    ThreadValue::new("bytes", bytes)
}

fn metadata(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("no object") };
    map
}

fn messages(state: &ThreadState) -> Vec<u8> {
    assert_eq!(state.channels["constant"].value, Some(value(b"always")), "{}", state.id);
    state.channels["messages"].value.clone().unwrap().bytes
}

fn head(threads: Threads<'_>) -> ThreadState {
    threads.get("t", "", None).unwrap().unwrap()
}

fn writes(task: &str, bytes: &[u8]) -> NewWrites {
    let write = NewWrite { index: 0, channel: "messages".to_owned(), value: value(bytes) };
    NewWrites { state: "s2".into(), task_id: task.into(), writes: vec![write], ..NewWrites::default() }
}

/// Thread with two states, each with files.
pub(crate) fn with_files() -> Bench {
    let bench = Bench::new();
    for (id, parent, content) in [("s1", None, "one"), ("s2", Some("s1"), "two")] {
        bench.write("file", content);
        let threads = bench.manager.threads().of(bench.workspace.id);
        let state = state(id, parent, content.as_bytes());
        threads.put_with_files("t", state, &CreateOptions::default(), &Silent).unwrap();
    }
    bench
}

#[test]
fn a_saved_state_reads_back_with_values_of_its_ancestors() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    assert_eq!(threads.get("t", "", None).unwrap(), None);
    let sizes = [0, 1, 2048, 2049, 70_000, 300_000];
    let mut parent = None;
    for (at, size) in sizes.into_iter().enumerate() {
        let id = format!("s{at}");
        threads.put("t", state(&id, parent.as_deref(), &noise(7, size))).unwrap();
        parent = Some(id);
    }
    for (at, size) in sizes.into_iter().enumerate() {
        let found = threads.get("t", "", Some(&format!("s{at}"))).unwrap().unwrap();
        assert_eq!(messages(&found), noise(7, size));
        assert_eq!(found.is_head, at == 5);
        assert_eq!(found.body.bytes, format!("{{\"id\":\"s{at}\"}}").into_bytes());
    }
    let reopened = open(&bench.home(), Settings::default());
    assert_eq!(messages(&head(reopened.threads())), noise(7, 300_000));
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn a_growing_conversation_stores_what_is_new() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let all = noise(3, 400_000);
    let mut parent = None;
    for step in 1..=400 {
        let id = format!("s{step:04}");
        threads.put("t", state(&id, parent.as_deref(), &all[..step * 1000])).unwrap();
        parent = Some(id);
    }
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let packs = bench.manager.upkeep().usage().unwrap().pack_bytes;
    // The values add up to 80 MB.
    assert!(packs < 3_000_000, "{packs} bytes");
    for step in [1, 2, 63, 64, 65, 200, 399, 400] {
        let found = threads.get("t", "", Some(&format!("s{step:04}"))).unwrap().unwrap();
        assert_eq!(messages(&found), &all[..step * 1000], "step {step}");
    }
}

/// Values of the messages, with the count of a list before them, as encoders write it.
fn counted(all: &[u8], step: usize) -> Vec<u8> {
    [&[0xdc, (step >> 8) as u8, step as u8], &all[..step * 1000]].concat()
}

#[test]
fn a_grown_list_is_kept_as_its_difference_and_chains_are_short() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let all = noise(11, 200_000);
    let mut parent = None;
    for step in 1..=200 {
        let id = format!("s{step:04}");
        threads.put("t", state(&id, parent.as_deref(), &counted(&all, step))).unwrap();
        parent = Some(id);
    }
    let connection = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let deltas = "FROM thread_value WHERE base IS NOT NULL AND bytes IS NOT NULL";
    assert!(number(&format!("SELECT count(*) {deltas}")) >= 190);
    assert!(number(&format!("SELECT max(length(bytes)) {deltas}")) < 1100, "a message and its steps");
    assert!(number("SELECT max(depth) FROM thread_value") <= 64);
    // A reader without anything in memory, from every point of a chain.
    for step in [1, 2, 3, 63, 64, 65, 66, 129, 130, 199, 200] {
        let cold = open(&bench.home(), Settings::default());
        let found = cold.threads().get("t", "", Some(&format!("s{step:04}"))).unwrap().unwrap();
        assert_eq!(messages(&found), counted(&all, step), "step {step}");
    }
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    // The states that a chain begins with can go.
    threads.prune("t", KeepStates { last: 3, hidden_ancestors: 0 }).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    for step in [198, 199, 200] {
        let cold = open(&bench.home(), Settings::default());
        let found = cold.threads().get("t", "", Some(&format!("s{step:04}"))).unwrap().unwrap();
        assert_eq!(messages(&found), counted(&all, step), "step {step}");
    }
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn values_in_memory_are_those_of_the_rows_whatever_other_processes_do() {
    let bench = Bench::new();
    let other = open(&bench.home(), Settings::default());
    let (here, there) = (bench.manager.threads(), other.threads());
    let all = noise(12, 100_000);
    here.put("t", state("s1", None, &all[..50_000])).unwrap();
    assert_eq!(messages(&head(there)), all[..50_000]);
    // Each saves after the other, so that neither knows the last value.
    for (step, threads) in [(2, there), (3, here), (4, there), (5, here)] {
        let (id, parent) = (format!("s{step}"), format!("s{}", step - 1));
        threads.put("t", state(&id, Some(&parent), &all[..50_000 + step * 1000])).unwrap();
        for reader in [here, there] {
            assert_eq!(messages(&head(reader)), all[..50_000 + step * 1000], "step {step}");
        }
    }
    // The numbers of deleted rows are used again.
    there.delete("t").unwrap();
    assert_eq!(here.get("t", "", None).unwrap(), None);
    there.put("t", state("s1", None, &all[1000..60_000])).unwrap();
    assert_eq!(messages(&head(here)), all[1000..60_000]);
    here.put("t", state("s2", Some("s1"), &all[1000..61_000])).unwrap();
    assert_eq!(messages(&head(there)), all[1000..61_000]);
    there.erase("t", &Silent).unwrap();
    assert_eq!(here.get("t", "", None).unwrap(), None);
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn the_head_is_what_was_saved_last_and_not_the_largest_id() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    threads.put("t", state("s9", None, b"nine")).unwrap();
    threads.put("t", state("s1", Some("s9"), b"one")).unwrap();
    assert_eq!(head(threads).id, "s1");
    threads.move_head("t", "", "s9").unwrap();
    assert_eq!(head(threads).id, "s9");
    let ids: Vec<_> =
        threads.list(&ListStates::default()).unwrap().states.into_iter().map(|it| it.id).collect();
    assert_eq!(ids, ["s9", "s1"]);
    assert!(matches!(threads.move_head("t", "", "none"), Err(Error::NoState { .. })));
    assert!(matches!(threads.move_head("none", "", "s1"), Err(Error::NoThread { .. })));
}

#[test]
fn writes_of_a_task_stay_or_are_replaced_as_asked_and_may_come_before_their_state() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    threads.put_writes("t", writes("b", b"first")).unwrap();
    threads.put_writes("t", writes("a", &noise(1, 9000))).unwrap();
    threads.put("t", state("s2", None, b"x")).unwrap();
    threads.put_writes("t", writes("b", b"second")).unwrap();
    let found = |task: usize| head(threads).writes[task].value.bytes.clone();
    assert_eq!((found(0), found(1)), (noise(1, 9000), b"first".to_vec()));
    let replaced = NewWrites { existing: ExistingWrites::Replaced, ..writes("b", b"third") };
    threads.put_writes("t", replaced).unwrap();
    assert_eq!(found(1), b"third");
}

#[test]
fn a_filter_binds_keys_and_values() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    for (id, filter) in [
        ("s1", json!({ "source": "input", "step": -1, "x' OR 1=1 --": "y" })),
        ("s2", json!({ "source": "loop", "step": 0, "writes": { "b": [1, 2], "a": null } })),
        ("s3", json!({ "source": "loop", "step": 1, "flag": true, "none": null })),
    ] {
        threads.put("t", NewState { metadata: metadata(filter), ..state(id, None, b"") }).unwrap();
    }
    let ids = |filter: Value| -> Vec<String> {
        let wanted = ListStates { metadata: metadata(filter), ..ListStates::default() };
        threads.list(&wanted).unwrap().states.into_iter().map(|state| state.id).collect()
    };
    assert_eq!(ids(json!({})), ["s3", "s2", "s1"]);
    assert_eq!(ids(json!({ "source": "loop" })), ["s3", "s2"]);
    assert_eq!(ids(json!({ "source": "loop", "step": 1 })), ["s3"]);
    assert_eq!(ids(json!({ "step": 1.0 })), ["s3"]);
    assert_eq!(ids(json!({ "step": "1" })), Vec::<String>::new());
    assert_eq!(ids(json!({ "writes": { "a": null, "b": [1, 2] } })), ["s2"]);
    assert_eq!(ids(json!({ "flag": true })), ["s3"]);
    assert_eq!(ids(json!({ "flag": 1 })), Vec::<String>::new());
    assert_eq!(ids(json!({ "none": null })), ["s3"]);
    assert_eq!(ids(json!({ "x' OR 1=1 --": "y" })), ["s1"]);
    for hostile in ["') OR 1=1 --", "$.source", "source') IS NOT NULL OR ('", "\"", "%", "a.b"] {
        assert_eq!(ids(json!({ hostile: "x" })), Vec::<String>::new(), "{hostile}");
        assert_eq!(ids(json!({ "source": hostile })), Vec::<String>::new(), "{hostile}");
    }
}

#[test]
fn pages_give_every_state_once() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    for at in 0..23 {
        for thread in ["t", "u"] {
            threads.put(thread, state(&format!("s{at:02}"), None, b"")).unwrap();
        }
    }
    let mut wanted = ListStates { limit: Some(7), ..ListStates::default() };
    let mut seen = Vec::new();
    loop {
        let page = threads.list(&wanted).unwrap();
        seen.extend(page.states.iter().map(|state| (state.id.clone(), state.thread.id.clone())));
        let Some(next) = page.next else { break };
        // A save between two pages does not disturb them.
        threads.put("t", state(&format!("z{}", seen.len()), None, b"")).unwrap();
        wanted.after = Some(next);
    }
    assert_eq!(seen.len(), 46);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 46);
    let before = ListStates { thread: Some("t".into()), before: Some("s02".into()), ..ListStates::default() };
    let ids: Vec<_> = threads.list(&before).unwrap().states.into_iter().map(|state| state.id).collect();
    assert_eq!(ids, ["s01", "s00"]);
    let bad = ListStates { after: Some("nonsense".into()), ..ListStates::default() };
    assert_eq!(Failure::from(&threads.list(&bad).unwrap_err()).kind, FailureKind::Usage);
}

#[test]
fn hostile_names_are_usage_errors_and_store_nothing() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let long = "x".repeat(513);
    for bad in ["a\0b", long.as_str()] {
        let usage = |result: Result<(), Error>| {
            let failure = Failure::from(&result.unwrap_err());
            assert_eq!(failure.kind, FailureKind::Usage, "{failure:?}");
        };
        usage(threads.put(bad, state("s", None, b"")));
        usage(threads.put("t", state(bad, None, b"")));
        usage(threads.put("t", NewState { namespace: bad.into(), ..state("s", None, b"") }));
        usage(threads.put("t", NewState { run_id: Some(bad.into()), ..state("s", None, b"") }));
        usage(threads.put_writes("t", NewWrites { task_id: bad.into(), ..writes("a", b"") }));
        usage(threads.get(bad, "", None).map(drop));
        let named = BTreeMap::from([(bad.to_owned(), "1".to_owned())]);
        usage(
            threads
                .put("t", NewState { channels: named, ..NewState { id: "s".into(), ..NewState::default() } }),
        );
    }
    assert!(threads.threads().unwrap().is_empty());
    let odd = "'; DROP TABLE thread; -- \u{1f980}\n";
    threads.put(odd, state(odd, None, b"kept")).unwrap();
    assert_eq!(messages(&threads.get(odd, "", Some(odd)).unwrap().unwrap()), b"kept");
}

#[test]
fn a_thread_of_another_serializer_is_refused() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let with = |serializer: &str| NewState { serializer: Some(serializer.into()), ..state("s", None, b"") };
    threads.put("t", with("python")).unwrap();
    threads.put("t", state("s", None, b"")).unwrap();
    let error = threads.put("t", with("javascript")).unwrap_err();
    assert!(error.to_string().contains("serializer"), "{error}");
}

#[test]
fn threads_of_workspaces_and_of_the_home_are_apart() {
    let bench = Bench::new();
    let (home, here) = (bench.manager.threads(), bench.manager.threads().of(bench.workspace.id));
    home.put("t", state("s", None, b"home")).unwrap();
    here.put("t", state("s", None, b"here")).unwrap();
    assert_eq!((messages(&head(home)), messages(&head(here))), (b"home".to_vec(), b"here".to_vec()));
    assert!(here.delete("t").unwrap() && !here.delete("t").unwrap());
    assert_eq!(here.get("t", "", None).unwrap(), None);
    assert_eq!(messages(&head(home)), b"home");
    let nowhere = bench.manager.threads().of(safepoint::model::WorkspaceId::from_bits(1));
    assert!(matches!(nowhere.put("t", state("s", None, b"")), Err(Error::NoWorkspace { .. })));
}

#[test]
fn a_rollback_moves_files_and_head_and_an_undo_moves_both_back() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    threads.put_writes("t", writes("a", b"pending")).unwrap();
    let checkpoint = threads.get("t", "", Some("s1")).unwrap().unwrap().files.unwrap();
    let done = bench.rollback(checkpoint);
    assert_eq!((bench.read("file"), messages(&head(threads))), ("one".into(), b"one".to_vec()));
    assert_eq!(done.threads[0].heads[""], (Some("s2".into()), Some("s1".into())));
    assert_eq!(threads.list(&ListStates::default()).unwrap().states.len(), 2, "no state is deleted");
    bench.undo();
    assert_eq!((bench.read("file"), messages(&head(threads))), ("two".into(), b"two".to_vec()));
    assert_eq!(head(threads).writes[0].value.bytes, b"pending");
    bench.redo();
    assert_eq!((bench.read("file"), messages(&head(threads))), ("one".into(), b"one".to_vec()));
}

#[test]
fn a_rollback_restores_the_writes_of_the_head() {
    let bench = Bench::new();
    let threads = bench.manager.threads().of(bench.workspace.id);
    threads.put("t", state("s2", None, b"x")).unwrap();
    threads.put_writes("t", writes("a", b"before")).unwrap();
    bench.write("file", "one");
    let checkpoint = bench.create();
    threads.put_writes("t", writes("b", b"after")).unwrap();
    let tasks = || head(threads).writes.into_iter().map(|write| write.task_id).collect::<Vec<_>>();
    bench.rollback(checkpoint.id);
    assert_eq!(tasks(), ["a"]);
    bench.undo();
    assert_eq!(tasks(), ["a", "b"]);
}

#[test]
fn a_rollback_to_a_state_leaves_other_threads() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    threads.put("other", state("o1", None, b"")).unwrap();
    bench.write("file", "three");
    bench.create();
    threads.put("other", state("o2", Some("o1"), b"")).unwrap();
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let told = threads.rollback("t", ("", "s1"), &dry, &Silent).unwrap();
    assert_eq!((told.threads.len(), bench.read("file")), (1, "three".to_owned()));
    assert_eq!(head(threads).id, "s2");
    threads.rollback("t", ("", "s1"), &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!((bench.read("file"), head(threads).id), ("one".to_owned(), "s1".to_owned()));
    assert_eq!(threads.get("other", "", None).unwrap().unwrap().id, "o2");
    bench.undo();
    assert_eq!((bench.read("file"), head(threads).id), ("three".to_owned(), "s2".to_owned()));
    assert_eq!(threads.get("other", "", None).unwrap().unwrap().id, "o2");
    let error = threads.rollback("other", ("", "o1"), &RollbackOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, Error::StateWithoutFiles { pruned: false, .. }), "{error}");
}

#[test]
fn a_part_alone_goes_back_and_leaves_the_files() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    let checkpoint = threads.get("t", "", Some("s1")).unwrap().unwrap().files.unwrap();
    let options = RollbackOptions { parts: vec![PartKind::Thread], ..RollbackOptions::default() };
    bench.manager.rollback(&bench.workspace, checkpoint, &options, &Silent).unwrap();
    assert_eq!((bench.read("file"), head(threads).id), ("two".to_owned(), "s1".to_owned()));
    bench.undo();
    assert_eq!((bench.read("file"), head(threads).id), ("two".to_owned(), "s2".to_owned()));
    let empty = Bench::new();
    let checkpoint = empty.create();
    let error = empty.manager.rollback(&empty.workspace, checkpoint.id, &options, &Silent).unwrap_err();
    assert!(matches!(error, Error::NoPart { part: PartKind::Thread, .. }), "{error}");
}

#[test]
fn a_rollback_puts_pruned_and_deleted_heads_back() {
    for deleted in [false, true] {
        let bench = with_files();
        let threads = bench.manager.threads().of(bench.workspace.id);
        let checkpoint = threads.get("t", "", Some("s1")).unwrap().unwrap().files.unwrap();
        if deleted {
            threads.delete("t").unwrap();
        } else {
            assert_eq!(threads.prune("t", KeepStates::default()).unwrap(), 1);
        }
        bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
        bench.rollback(checkpoint);
        assert_eq!((bench.read("file"), messages(&head(threads))), ("one".into(), b"one".to_vec()));
        assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
        bench.undo();
        assert_eq!(
            threads.get("t", "", None).unwrap().map(|head| head.id),
            (!deleted).then(|| "s2".to_owned())
        );
    }
}

#[test]
fn a_failed_checkpoint_saves_no_state() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    bench.write(".safepoint.toml", "nonsense = {");
    let state_of = state;
    let state = state("s3", Some("s2"), b"three");
    threads.put_with_files("t", state, &CreateOptions::default(), &Silent).unwrap_err();
    assert_eq!(head(threads).id, "s2");
    assert_eq!(threads.list(&ListStates::default()).unwrap().states.len(), 2);
    assert_eq!(threads.get("t", "", Some("s3")).unwrap(), None, "not by its id, either");
    let rows = |table: &str| -> u64 {
        let connection = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("thread_state"), rows("thread_value")), (2, 5), "nothing of it is left to be collected");
    // A state whose replacement fails stays as it was.
    let again = state_of("s2", Some("s1"), b"other");
    threads.put_with_files("t", again, &CreateOptions::default(), &Silent).unwrap_err();
    assert_eq!(messages(&head(threads)), b"two");
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn a_list_can_omit_values_and_name_heads_alone() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    for (thread, id, parent) in [("t", "s1", None), ("t", "s2", Some("s1")), ("u", "s1", None)] {
        threads.put(thread, state(id, parent, &noise(1, 9000))).unwrap();
    }
    threads.put("t", NewState { namespace: "sub".into(), ..state("s1", None, b"") }).unwrap();
    threads.put_writes("t", writes("a", b"pending")).unwrap();
    let listed = |wanted: ListStates| -> Vec<ThreadState> { threads.list(&wanted).unwrap().states };
    let names = |states: &[ThreadState]| -> Vec<String> {
        states.iter().map(|it| format!("{}/{}/{}", it.thread.id, it.namespace, it.id)).collect()
    };
    let bare = ListStates { values: ListedValues::Omitted, ..ListStates::default() };
    let heads = listed(ListStates { which: ListedStates::Heads, ..bare.clone() });
    assert_eq!(names(&heads), ["t//s2", "t/sub/s1", "u//s1"]);
    let one = ListStates { which: ListedStates::Heads, thread: Some("t".into()), ..bare.clone() };
    assert_eq!(names(&listed(one)), ["t//s2", "t/sub/s1"]);
    assert_eq!(names(&listed(ListStates { id: Some("s1".into()), ..bare.clone() })).len(), 3);
    let state = &listed(bare)[0];
    assert_eq!(state.channels["messages"].version, "s2");
    assert_eq!((&state.channels["messages"].value, &state.body), (&None, &ThreadValue::default()));
    let write = &state.writes[0];
    assert_eq!(
        (write.task_id.as_str(), write.channel.as_str(), &write.value.bytes[..]),
        ("a", "messages", &b""[..])
    );
    // Nothing is read that a list without values does not show.
    let connection = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    connection.execute_batch("UPDATE thread_value SET hash = X'00'").unwrap();
    assert_eq!(listed(ListStates { values: ListedValues::Omitted, ..ListStates::default() }).len(), 4);
    threads.list(&ListStates::default()).unwrap_err();
}

#[test]
fn an_update_of_an_old_state_is_one_commit_with_its_files() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    bench.write("file", "three");
    let history = bench.manager.rollbacks(&bench.workspace).unwrap().len();
    let update = |options: &RollbackOptions| {
        threads.rollback_and_put("t", ("", "s1"), state("s9", Some("s1"), b"nine"), options, &Silent)
    };
    let told = update(&RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() }).unwrap();
    assert_eq!(told.threads[0].heads[""], (Some("s2".into()), Some("s9".into())));
    assert_eq!((bench.read("file"), head(threads).id), ("three".to_owned(), "s2".to_owned()));
    assert_eq!(threads.get("t", "", Some("s9")).unwrap(), None);
    update(&RollbackOptions::default()).unwrap();
    assert_eq!((bench.read("file"), messages(&head(threads))), ("one".to_owned(), b"nine".to_vec()));
    assert_eq!(bench.manager.rollbacks(&bench.workspace).unwrap().len(), history + 1);
    let files = threads.get("t", "", Some("s1")).unwrap().unwrap().files;
    assert_eq!((head(threads).files, head(threads).parent.as_deref()), (files, Some("s1")));
    bench.undo();
    assert_eq!((bench.read("file"), head(threads).id), ("three".to_owned(), "s2".to_owned()));
    bench.redo();
    assert_eq!((bench.read("file"), messages(&head(threads))), ("one".to_owned(), b"nine".to_vec()));
    let chosen = RollbackOptions { parts: vec![PartKind::Files], ..RollbackOptions::default() };
    assert_eq!(Failure::from(&update(&chosen).unwrap_err()).kind, FailureKind::Usage);
    // Without files to go back to, nothing is saved.
    threads.put("t", state("bare", Some("s9"), b"bare")).unwrap();
    let other = state("s10", Some("bare"), b"ten");
    let options = RollbackOptions::default();
    let error = threads.rollback_and_put("t", ("", "bare"), other, &options, &Silent).unwrap_err();
    assert!(matches!(error, Error::StateWithoutFiles { .. }), "{error}");
    assert_eq!((head(threads).id, threads.get("t", "", Some("s10")).unwrap()), ("bare".to_owned(), None));
}

/// Returns true if a file of the home has this text.
fn lies_in_home(bench: &Bench, text: &[u8]) -> bool {
    let mut folders = vec![bench.home()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path).unwrap().windows(text.len()).any(|window| window == text) {
                return true;
            }
        }
    }
    false
}

#[test]
fn an_erased_thread_is_in_no_checkpoint_and_in_no_file() {
    let secret = b"a-secret-that-is-nowhere-else";
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    let long = [noise(3, 30_000), secret.to_vec(), noise(4, 30_000)].concat();
    threads.put("t", state("s3", Some("s2"), secret)).unwrap();
    threads.put("t", state("s4", Some("s3"), &long)).unwrap();
    threads.put("other", state("o1", None, b"kept")).unwrap();
    bench.write("file", "three");
    let checkpoint = bench.create();
    threads.put("t", state("s5", Some("s4"), b"five")).unwrap();
    bench.rollback(checkpoint.id);
    assert!(lies_in_home(&bench, secret), "the test looks at the right place");
    let erased = threads.erase("t", &Silent).unwrap();
    assert!(erased.deleted && erased.checkpoints.contains(&checkpoint.id), "{erased:?}");
    assert_eq!(threads.get("t", "", None).unwrap(), None);
    assert!(!lies_in_home(&bench, secret));
    for checkpoint in bench.manager.checkpoints().list(&Filter::default()).unwrap() {
        assert!(checkpoint.parts.iter().all(|part| !part.key.ends_with(":t")), "{checkpoint:?}");
    }
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    // Files and the other thread still go back, and a new thread of this id stays.
    threads.put("t", state("n1", None, b"new")).unwrap();
    threads.put("other", state("o2", Some("o1"), b"changed")).unwrap();
    bench.write("file", "four");
    bench.rollback(checkpoint.id);
    assert_eq!(bench.read("file"), "three");
    assert_eq!(
        (head(threads).id, threads.get("other", "", None).unwrap().unwrap().id),
        ("n1".into(), "o1".into())
    );
    assert!(!threads.erase("none", &Silent).unwrap().deleted);
}

#[test]
fn equal_files_are_one_checkpoint_and_the_state_still_goes_back_alone() {
    let bench = Bench::new();
    let threads = bench.manager.threads().of(bench.workspace.id);
    bench.write("file", "one");
    let options = CreateOptions { unchanged: IfUnchanged::ReusedOfAnySession, ..CreateOptions::default() };
    let save = |id: &str, parent| {
        threads.put_with_files("t", state(id, parent, id.as_bytes()), &options, &Silent).unwrap()
    };
    let (first, second) = (save("s1", None), save("s2", Some("s1")));
    assert!(!first.unchanged && second.unchanged);
    assert_eq!(head(threads).files, Some(first.checkpoint.id));
    bench.write("file", "two");
    save("s3", Some("s2"));
    threads.rollback("t", ("", "s2"), &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!((bench.read("file"), head(threads).id), ("one".to_owned(), "s2".to_owned()));
}

#[test]
fn removed_states_move_the_head_to_the_nearest_ancestor() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let save = |id: &str, parent: Option<&str>, run: &str| {
        let state = NewState { run_id: Some(run.into()), ..state(id, parent, &noise(5, 90_000)) };
        threads.put("t", state).unwrap();
    };
    save("s1", None, "r1");
    save("s2", Some("s1"), "r2");
    save("x", Some("s1"), "r3");
    save("s3", Some("s2"), "r2");
    assert_eq!(threads.delete_runs(&["r2".into(), "none".into()]).unwrap(), 2);
    assert_eq!(head(threads).id, "s1");
    let hidden = threads.remove("t", "", &["s1".to_owned()], Removal::Hidden).unwrap();
    assert_eq!((hidden, head(threads).id), (1, "x".to_owned()));
    assert!(threads.get("t", "", Some("s1")).unwrap().unwrap().hidden);
    assert_eq!(threads.list(&ListStates::default()).unwrap().states.len(), 1);
    assert_eq!(threads.remove("t", "", &["x".to_owned()], Removal::Deleted).unwrap(), 1);
    assert_eq!(threads.get("t", "", None).unwrap(), None);
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn pruning_keeps_heads_and_hides_what_they_are_derived_from() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let all = noise(9, 50_000);
    let mut parent: Option<String> = None;
    for step in 1..=9 {
        let id = format!("s{step}");
        threads.put("t", state(&id, parent.as_deref(), &all[..step * 5000])).unwrap();
        parent = Some(id);
    }
    threads.put("t", NewState { namespace: "sub".into(), ..state("a", None, b"") }).unwrap();
    assert_eq!(threads.prune("t", KeepStates { last: 2, hidden_ancestors: 3 }).unwrap(), 7);
    let ids: Vec<_> =
        threads.list(&ListStates::default()).unwrap().states.into_iter().map(|it| it.id).collect();
    assert_eq!(ids, ["s9", "s8", "a"]);
    for (id, expected) in [("s7", true), ("s5", true), ("s4", false), ("s1", false)] {
        assert_eq!(threads.get("t", "", Some(id)).unwrap().is_some(), expected, "{id}");
    }
    assert_eq!(messages(&head(threads)), &all[..45_000]);
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn a_copy_is_equal_and_apart() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let all = noise(4, 80_000);
    threads.put("t", state("s1", None, &all[..60_000])).unwrap();
    threads.put("t", state("s2", Some("s1"), &all)).unwrap();
    threads.put_writes("t", writes("a", &noise(2, 5000))).unwrap();
    threads.copy("t", "copy").unwrap();
    let plain = |thread: &str| -> Vec<_> {
        let wanted = ListStates { thread: Some(thread.into()), ..ListStates::default() };
        let states = threads.list(&wanted).unwrap().states.into_iter();
        states
            .map(|it| (it.id, it.parent, it.metadata, it.body, it.channels, it.writes, it.is_head))
            .collect()
    };
    assert_eq!(plain("t"), plain("copy"));
    threads.delete("t").unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert_eq!(messages(&threads.get("copy", "", None).unwrap().unwrap()), all);
    assert!(matches!(threads.copy("t", "x"), Err(Error::NoThread { .. })));
}

#[test]
fn a_thread_goes_when_its_time_is_over() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    let with = |ttl| NewState { ttl: Some(ttl), ..state("s", None, b"") };
    threads.put("short", with(Duration::ZERO)).unwrap();
    threads.put("long", with(Duration::from_secs(3600))).unwrap();
    threads.put("ever", with(Duration::MAX)).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(threads.expire().unwrap(), 1);
    let ids: Vec<_> = threads.threads().unwrap().into_iter().map(|thread| thread.key.id).collect();
    assert_eq!(ids, ["ever", "long"]);
}

#[test]
fn a_lost_catalog_gets_the_heads_back() {
    let bench = with_files();
    bench.create();
    let home = bench.home();
    for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(home.join(file));
    }
    std::fs::write(home.join("catalog.db"), vec![7; 8192]).unwrap();
    let environment = Box::new(safepoint::SystemEnvironment::default());
    let (manager, _) =
        safepoint::CheckpointManager::open_for_repair(&home, Settings::default(), environment, &Silent)
            .unwrap();
    let threads = manager.threads().of(bench.workspace.id);
    assert_eq!(messages(&head(threads)), b"two");
}

#[test]
fn an_exported_thread_can_be_imported_elsewhere() {
    let bench = with_files();
    let threads = bench.manager.threads().of(bench.workspace.id);
    threads.put("t", state("s3", Some("s2"), &noise(8, 100_000))).unwrap();
    threads.put_writes("t", NewWrites { state: "s3".into(), ..writes("a", b"pending") }).unwrap();
    let checkpoint = bench.create();
    let folder = scratch();
    let dir = export(&bench, &checkpoint, folder.path());
    let other = Bench::new();
    let imported =
        other.manager.import(Some(&other.workspace), &dir, &ImportOptions::default(), &Silent).unwrap();
    other.rollback(imported.checkpoint.id);
    let there = other.manager.threads().of(other.workspace.id);
    assert_eq!(messages_only(&head(there)), noise(8, 100_000));
    assert_eq!(head(there).writes[0].value.bytes, b"pending");
}

fn messages_only(state: &ThreadState) -> Vec<u8> {
    state.channels["messages"].value.clone().unwrap().bytes
}

#[test]
fn a_damaged_row_is_damage_and_never_a_panic() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    threads.put("t", state("s1", None, &noise(6, 30_000))).unwrap();
    threads.put("t", state("s2", Some("s1"), &noise(6, 40_000))).unwrap();
    threads.put_writes("t", writes("a", b"pending")).unwrap();
    let path = bench.home().join("catalog.db");
    let intact = head(threads);
    for (table, column, bad) in [
        ("thread_value", "pieces", "X'01'"),
        ("thread_value", "pieces", "X'02'"),
        ("thread_value", "size", "-1"),
        ("thread_value", "size", "9223372036854775807"),
        ("thread_value", "hash", "X'00'"),
        ("thread_value", "bytes", "X'017B'"),
        ("thread_value", "base", "seq"),
        ("thread_value", "base", "1"),
        ("thread_value", "base", "NULL"),
        ("thread_value", "bytes", "X'00'"),
        ("thread_value", "bytes", "X'0001FF7F'"),
        ("thread_value", "shared", "1000000"),
        ("thread_chunk", "bytes", "X'01'"),
        ("thread_chunk", "bytes", "X''"),
        ("thread_chunk", "id", "randomblob(32)"),
        ("thread_state", "metadata", "'['"),
        ("thread_state", "channels", "'{\"messages\":1}'"),
        ("thread_state", "channels", "'{\"messages\":[\"v\",999]}'"),
        ("thread_state", "files", "'nonsense'"),
        ("thread_state", "created_at", "9223372036854775807"),
        ("thread", "workspace_id", "'nonsense'"),
        ("thread", "id", "char(0)"),
    ] {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        let set =
            format!("UPDATE {table} SET {column} = {bad} WHERE {column} IS NOT NULL OR '{column}' = 'base'");
        let saved = format!("CREATE TEMP TABLE saved AS SELECT rowid AS at, * FROM {table}");
        connection.execute_batch(&saved).unwrap();
        connection.execute_batch(&set).unwrap();
        // One with values in memory, and one that reads all from the disk.
        let cold = open(&bench.home(), Settings::default());
        for found in [threads.get("t", "", None), cold.threads().get("t", "", None)] {
            if let Ok(Some(found)) = &found {
                assert_eq!(*found, intact, "{table}.{column} = {bad}");
            }
            if let Err(error) = &found {
                let kind = Failure::from(error).kind;
                assert_eq!(kind, FailureKind::Damaged, "{table}.{column} = {bad}: {error}");
            }
        }
        let _ = threads.list(&ListStates::default());
        let _ = bench.manager.upkeep().validate(None, Depth::Quick, &Silent);
        let restore = format!(
            "UPDATE {table} SET {column} = (SELECT {column} FROM saved WHERE at = {table}.rowid); DROP TABLE saved"
        );
        connection.execute_batch(&restore).unwrap();
        assert_eq!(head(threads), intact, "{table}.{column} = {bad}");
    }
}

#[test]
fn saves_of_many_callers_share_transactions_and_lose_nothing() {
    let bench = Bench::new();
    let threads = bench.manager.threads();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            scope.spawn(move || {
                for at in 0..25 {
                    let id = format!("s{at:02}");
                    threads.put(&format!("t{caller}"), state(&id, None, &noise(caller, 3000))).unwrap();
                }
            });
        }
        // One caller that always fails must not harm the others.
        scope.spawn(move || {
            threads.put("bad", NewState { serializer: Some("a".into()), ..state("s", None, b"") }).unwrap();
            for _ in 0..25 {
                let other = NewState { serializer: Some("b".into()), ..state("s", None, b"") };
                threads.put("bad", other).unwrap_err();
            }
        });
    });
    assert_eq!(threads.list(&ListStates::default()).unwrap().states.len(), 201);
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}
