//! Disk usage, the effect of a collection, and the cap.

use crate::bench::{Bench, assert_same, noise, open};
use safepoint::model::Span;
use safepoint::model::retention::Policy;
use safepoint::model::thread::ThreadValue;
use safepoint::{
    Capped, Collected, CreateOptions, Depth, DryRun, Error, Failure, FailureKind, Filter, Need, NewState,
    NewWrite, NewWrites, Outcome, Pinned, Progress, RollbackOptions, Settings, Silent, Thoroughness, Warning,
};
use std::fs;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Interrupts after a number of checks.
struct StopsAfter(AtomicU64);

impl Progress for StopsAfter {
    fn interrupted(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// Changes a stored byte of this content.
pub(crate) fn damage(bench: &Bench, content: &[u8]) {
    let pack = fs::read_dir(bench.home().join("store/packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
}

fn assert_valid(bench: &Bench) {
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

fn only_the_last(keep_last: u64) -> Settings {
    let policy = Policy { keep_last, keep_within: Span::ZERO, thin_daily_for: Span::ZERO };
    Settings { retention: Some(policy), ..Settings::default() }
}

#[test]
fn after_a_thorough_collection_nothing_counts_as_dead() {
    let bench = Bench::new();
    let mut made = Vec::new();
    for number in 0..12u64 {
        bench.write("changing", noise(number, 5_000));
        bench.write(&format!("dir-{number}/small"), number.to_string());
        made.push(bench.create().id);
    }
    // Records of rollbacks reference objects, too.
    bench.rollback(made[3]);
    bench.undo();
    assert_eq!(bench.manager.upkeep().space(&Silent).unwrap().dead_bytes, 0, "everything is needed");
    bench.manager.checkpoints().delete(&made[..6]).unwrap();
    let dead = bench.manager.upkeep().space(&Silent).unwrap().dead_bytes;
    assert!(dead > 25_000, "{dead}");
    let collected = bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert_eq!((collected.outcome, collected.dead_bytes), (Outcome::Done, 0));
    assert!(
        (dead..dead + 3_000).contains(&collected.freed_bytes),
        "{dead} dead, segments merged: {collected:?}"
    );
    assert_eq!(bench.manager.upkeep().space(&Silent).unwrap().dead_bytes, 0);
    assert_eq!(
        bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap(),
        Collected::default()
    );
    assert_valid(&bench);
}

#[test]
fn a_damaged_checkpoint_is_counted_as_far_as_it_can_be_read_and_said() {
    let bench = Bench::new();
    bench.write("shared", noise(1, 50_000));
    let whole = bench.create();
    bench.write("a-name-that-is-nowhere-else", noise(2, 70_000));
    let broken = bench.create();
    // The name is only in the tree, not in the list of omissions.
    damage(&bench, b"a-name-that-is-nowhere-else");
    let manager = open(&bench.home(), Settings::default());
    let space = manager.upkeep().space(&Silent).unwrap();
    let of = |id| space.checkpoints.iter().find(|it| it.checkpoint.id == id).unwrap();
    assert!(of(broken.id).damaged && !of(whole.id).damaged);
    assert!(of(broken.id).frees_bytes < 70_000, "the entries below are unknown");
    // Its references are unknown, so nothing is freed until it is deleted.
    let error = manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap_err();
    assert!(matches!(error, Error::CannotCollect { checkpoint, .. } if checkpoint == broken.id), "{error}");
    manager.checkpoints().delete(&[broken.id]).unwrap();
    let collected = manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert_eq!((collected.outcome, collected.packs_left), (Outcome::Done, 0));
    assert!(collected.freed_bytes > 70_000);
    assert_valid(&bench);
}

#[test]
fn collecting_that_is_interrupted_anywhere_loses_nothing() {
    let bench = Bench::new();
    let mut kept = Vec::new();
    for number in 0..3u64 {
        bench.write("dir/file", noise(number, 20_000));
        let checkpoint = bench.create().id;
        kept.push((checkpoint, bench.image()));
    }
    let (gone, _) = kept.remove(1);
    bench.manager.checkpoints().delete(&[gone]).unwrap();
    let (mut by_mark, mut stopped) = (0, 0);
    for asked in 0.. {
        match bench.manager.upkeep().collect(Thoroughness::Everything, &StopsAfter(AtomicU64::new(asked))) {
            Err(error) => {
                assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
                by_mark += 1;
            }
            Ok(collected) if collected.outcome == Outcome::Stopped => {
                assert_eq!(collected.packs, 0);
                stopped += 1;
            }
            Ok(collected) => {
                assert_eq!(collected.outcome, Outcome::Done);
                assert!(collected.freed_bytes > 19_000);
                break;
            }
        }
        assert_valid(&bench);
    }
    assert!(by_mark > 0 && stopped > 0, "{by_mark} {stopped}");
    for (id, image) in kept {
        bench.rollback(id);
        assert_same(&bench.image(), &image);
    }
    let error = bench.manager.upkeep().space(&StopsAfter(AtomicU64::new(0))).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted);
}

#[test]
fn when_many_were_deleted_the_next_checkpoint_frees_their_space() {
    let bench = Bench::with(only_the_last(1));
    for number in 0..40u64 {
        bench.write("file", noise(number, 20_000));
        bench.create();
    }
    let bytes = bench.manager.upkeep().usage().unwrap().pack_bytes;
    assert!(bytes < 15 * 20_000, "{bytes}: not collected");
    assert!(bytes > 5 * 20_000, "{bytes}: collected after each");
    assert_eq!(bench.manager.checkpoints().list(&Filter::default()).unwrap().len(), 1);
    assert_valid(&bench);
}

#[test]
fn where_nothing_may_go_the_cap_refuses_and_says_by_how_much() {
    let cap = 8 << 20;
    let bench = Bench::with(Settings { cap_bytes: Some(cap), ..Settings::default() });
    let create = || bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent);
    let mut made = Vec::new();
    let error = loop {
        assert!(made.len() < 20, "the cap was never reached");
        bench.write("file", noise(made.len() as u64, 1_000_000));
        match create() {
            Ok(created) => made.push(created.checkpoint.id),
            Err(error) => break error,
        }
    };
    let Error::Capped(capped) = &error else { panic!("{error:?}") };
    let Capped { needed_bytes, free_bytes, over_bytes, cap_bytes, ref deletable, frees_bytes, .. } = **capped;
    // Records may have grown past the last of the free bytes.
    let is_over =
        if free_bytes > 0 { over_bytes == needed_bytes - free_bytes } else { over_bytes >= needed_bytes };
    assert!(is_over && over_bytes < 1_100_000, "{error}: {over_bytes} over");
    assert!((1_000_000..1_100_000).contains(&needed_bytes), "all that is needed: {error}");
    assert_eq!(cap_bytes, cap);
    let failure = Failure::from(&error);
    assert_eq!((failure.code, failure.kind, failure.hints.len()), ("capped", FailureKind::Failed, 3));
    let [id] = deletable[..] else { panic!("{deletable:?}") };
    assert!(id == made[0] && frees_bytes > over_bytes, "the oldest that frees as much is named");
    assert!(failure.hints[1].contains(&format!("safepoint delete {id} && safepoint gc")), "{failure:?}");
    assert!(
        failure.hints[2].contains(&bench.home().join("config.toml").display().to_string()),
        "{failure:?}"
    );
    assert_eq!(
        bench.manager.checkpoints().list(&Filter::default()).unwrap().len(),
        made.len(),
        "none was pruned for it"
    );
    assert_valid(&bench);
    // A deletion makes room automatically.
    bench.manager.checkpoints().delete(&made[..2]).unwrap();
    create().unwrap();
    assert_valid(&bench);
}

/// State with one value, which nothing else has.
fn state(number: u64, bytes: usize) -> NewState {
    NewState {
        id: format!("s{number:06}"),
        parent: None,
        channels: [("value".to_owned(), number.to_string())].into(),
        values: [("value".to_owned(), Some(ThreadValue::new("raw", noise(number, bytes))))].into(),
        ..NewState::default()
    }
}

#[test]
fn the_cap_refuses_saves_of_every_size() {
    let cap = 16 << 20;
    for (bytes, with_files) in [(30_000, false), (1_500, false), (400_000, false), (30_000, true)] {
        let bench = Bench::with(Settings { cap_bytes: Some(cap), ..Settings::default() });
        let threads = bench.manager.threads().of(bench.workspace.id);
        let save = |number: u64| match with_files {
            true => {
                bench.write("file", number.to_string());
                let options = CreateOptions { pinned: true, ..CreateOptions::default() };
                threads.put_with_files("t", state(number, bytes), &options, &Silent).map(drop)
            }
            false => threads.put("t", state(number, bytes)),
        };
        let mut saved = 0;
        let error = loop {
            assert!(saved * bytes as u64 <= cap, "{bytes}: the cap was never reached");
            match save(saved) {
                Ok(()) => saved += 1,
                Err(error) => break error,
            }
        };
        let Error::Capped(capped) = &error else { panic!("{error:?}") };
        assert_eq!(capped.cap_bytes, cap);
        assert!(capped.needed_bytes > 0 && capped.free_bytes < cap / 4, "{capped:?}");
        let failure = Failure::from(&error);
        assert_eq!((failure.code, failure.hints.len()), ("capped", 3), "{failure:?}");
        assert!(failure.hints.iter().any(|hint| hint.contains("safepoint gc")), "{failure:?}");
        assert!(saved * bytes as u64 > cap / 4, "{bytes}: refused after {saved}");
        let home = bench.manager.upkeep().space(&Silent).unwrap().home_bytes;
        assert!(home <= cap, "{bytes}: {home} bytes");
        assert_eq!(threads.get("t", "", None).unwrap().unwrap().id, format!("s{:06}", saved - 1));
        assert_eq!(threads.get("t", "", Some(&format!("s{saved:06}"))).unwrap(), None);
        assert_valid(&bench);
    }
}

#[test]
fn writes_of_a_task_count_under_the_cap_and_deleted_threads_make_room() {
    let bench = Bench::with(Settings { cap_bytes: Some(16 << 20), ..Settings::default() });
    let threads = bench.manager.threads();
    threads.put("t", state(0, 10)).unwrap();
    let write = |number: u64| {
        let value = ThreadValue::new("raw", noise(number, 40_000));
        let writes = vec![NewWrite { index: 0, channel: "value".into(), value }];
        let (state, task_id) = ("s000000".to_owned(), number.to_string());
        threads.put_writes("t", NewWrites { state, task_id, writes, ..NewWrites::default() })
    };
    let mut number = 0;
    let error = loop {
        assert!(number < 1_000, "the cap was never reached");
        match write(number) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(Failure::from(&error).code, "capped");
    threads.delete("t").unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    write(number).unwrap();
    assert_valid(&bench);
}

#[test]
fn a_build_that_is_interrupted_leaves_nothing() {
    let bench = Bench::new();
    bench.write("first", noise(1, 3_000_000));
    bench.write("folder/second", noise(2, 3_000_000));
    let checkpoint = bench.create();
    let to = bench.root().with_file_name("built");
    let mut stopped = 0;
    for checks in 0.. {
        match bench.manager.build(&checkpoint, &to, &StopsAfter(AtomicU64::new(checks))) {
            Ok(built) => {
                assert_eq!(built.files, 2);
                break;
            }
            Err(error) => {
                assert_eq!(Failure::from(&error).code, "interrupted");
                assert!(!to.exists(), "after {checks} checks: {:?}", fs::read_dir(&to).map(Iterator::count));
                stopped += 1;
            }
        }
    }
    assert!(stopped > 3, "{stopped}");
}

#[test]
fn a_rollback_at_the_cap_never_offers_to_delete_its_target() {
    let bench = Bench::with(Settings { cap_bytes: Some(8 << 20), ..Settings::default() });
    let made = fill(&bench, 1_000_000);
    for to in [made[0], *made.last().unwrap()] {
        bench.write("file", noise(1_000, 3_000_000));
        let options = RollbackOptions::default();
        let error = bench.manager.rollback(&bench.workspace, to, &options, &Silent).unwrap_err();
        let Error::Capped(capped) = &error else { panic!("{error:?}") };
        assert!(capped.deletable.iter().all(|id| *id != to), "{capped:?}");
    }
}

#[test]
fn a_refusal_at_the_cap_names_deletions_that_suffice_and_spares_the_next_undo() {
    let bench = Bench::with(Settings { cap_bytes: Some(16 << 20), ..Settings::default() });
    let made = fill(&bench, 1_000_000);
    // The safety checkpoint of a rollback is the cheapest one to delete, and an undo needs it.
    bench.write("file", noise(500, 400_000));
    bench.rollback(made[3]);
    let safety =
        bench.manager.rollbacks(&bench.workspace).unwrap().last().unwrap().safety_checkpoint.unwrap();
    bench.write("file", noise(501, 5_000_000));
    let create = || bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent);
    let Error::Capped(capped) = create().unwrap_err() else { panic!("not capped") };
    assert_eq!(capped.need, Need::Measured);
    assert!((5_000_000..5_200_000).contains(&capped.needed_bytes), "{capped:?}");
    assert!(capped.suffices() && capped.deletable.len() > 1 && capped.pinned.is_empty(), "{capped:?}");
    assert!(!capped.deletable.contains(&safety) && !capped.deletable.contains(&made[3]), "{capped:?}");
    bench.manager.checkpoints().delete(&capped.deletable).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    create().unwrap();
    assert_valid(&bench);
}

#[test]
fn a_refusal_at_the_cap_offers_pinned_checkpoints_last_and_else_a_larger_cap() {
    let bench = Bench::with(Settings { cap_bytes: Some(8 << 20), ..Settings::default() });
    let made = fill(&bench, 1_000_000);
    for id in &made {
        bench.manager.checkpoints().pin(*id, Pinned::Yes).unwrap();
    }
    let create = || bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent);
    let error = create().unwrap_err();
    let Error::Capped(capped) = &error else { panic!("{error:?}") };
    assert_eq!((&capped.deletable, &capped.pinned), (&vec![made[0]], &vec![made[0]]));
    let (id, hints) = (made[0], Failure::from(&error).hints);
    let command = format!("safepoint unpin {id} && safepoint delete {id} && safepoint gc --thorough");
    assert!(hints[1].ends_with(&command), "{hints:?}");
    // More than all of them hold: no deletion is named.
    bench.write("file", noise(900, 20_000_000));
    let error = create().unwrap_err();
    let hints = Failure::from(&error).hints;
    assert!(hints.iter().all(|hint| !hint.contains("delete")), "{hints:?}");
    assert!(hints[1].contains("raise the cap: cap = \"2"), "{hints:?}");
}

/// Takes checkpoints of one changing file until the cap refuses the next one. Returns their ids.
fn fill(bench: &Bench, bytes: usize) -> Vec<safepoint::model::CheckpointId> {
    let mut made = Vec::new();
    loop {
        assert!(made.len() < 100, "the cap was never reached");
        bench.write("file", noise(made.len() as u64, bytes));
        match bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent) {
            Ok(created) => made.push(created.checkpoint.id),
            Err(error) => {
                assert_eq!(Failure::from(&error).code, "capped");
                return made;
            }
        }
    }
}

#[test]
fn a_full_store_still_takes_emergency_and_safety_checkpoints() {
    let cap = 16 << 20;
    let bench = Bench::with(Settings { cap_bytes: Some(cap), ..Settings::default() });
    let made = fill(&bench, 400_000);
    let emergency = CreateOptions::emergency("now".to_owned());
    let image = bench.image();
    let kept = bench.manager.create(&bench.workspace, &emergency, &Silent).unwrap().checkpoint.id;
    bench.write("file", noise(77, 400_000));
    let changed = bench.image();
    bench.rollback(made[0]);
    bench.undo();
    assert_same(&bench.image(), &changed);
    bench.rollback(kept);
    assert_same(&bench.image(), &image);
    assert!(bench.manager.upkeep().space(&Silent).unwrap().home_bytes <= cap);
    assert_valid(&bench);
}

#[test]
fn a_rollback_of_one_small_path_needs_space_for_that_path_only() {
    let bench = Bench::with(Settings { cap_bytes: Some(16 << 20), ..Settings::default() });
    bench.write("notes", "good");
    let made = fill(&bench, 400_000);
    bench.write("notes", "bad");
    for number in 0..8 {
        bench.write(&format!("new/{number}"), noise(200 + number, 1_000_000));
    }
    let before = bench.image();
    let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).code, "capped");
    let done = bench.restore_paths(made[0], &["notes"]);
    assert_eq!(bench.read("notes"), "good");
    assert_eq!(done.folders[0].outline.paths.len(), 1);
    assert_eq!(
        bench.manager.checkpoints().list(&Filter::default()).unwrap().len(),
        made.len(),
        "none was pruned for it"
    );
    bench.undo();
    assert_same(&bench.image(), &before);
    assert_valid(&bench);
}

#[test]
fn without_a_word_the_cap_is_a_part_of_the_disk_and_never_huge() {
    let bench = Bench::new();
    let usual = bench.manager.upkeep().cap().unwrap();
    assert!(usual.cap_bytes > 0 && usual.cap_bytes <= 10 << 30, "{usual:?}");
    assert!(usual.headroom_bytes > 0 && usual.headroom_bytes <= usual.cap_bytes / 2);
    fs::write(bench.home().join("config.toml"), "[store]\ncap = \"3 GiB\"\n").unwrap();
    assert_eq!(open(&bench.home(), Settings::default()).upkeep().cap().unwrap().cap_bytes, 3 << 30);
    let given = Settings { cap_bytes: Some(1 << 20), ..Settings::default() };
    assert_eq!(
        open(&bench.home(), given).upkeep().cap().unwrap().cap_bytes,
        1 << 20,
        "settings of the caller win"
    );
}

#[test]
fn a_checkpoint_is_taken_even_where_no_space_can_be_freed() {
    let bench = Bench::with(only_the_last(1));
    bench.write("a-name-that-is-nowhere-else", "kept");
    let options = CreateOptions { pinned: true, ..CreateOptions::default() };
    bench.manager.create(&bench.workspace, &options, &Silent).unwrap();
    fs::remove_file(bench.path("a-name-that-is-nowhere-else")).unwrap();
    damage(&bench, b"a-name-that-is-nowhere-else");
    let manager = open(&bench.home(), only_the_last(1));
    let mut warned = 0;
    for number in 0..40u32 {
        bench.write("file", number.to_string());
        let created = manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
        let told = created.warnings.iter().filter(|warning| matches!(warning, Warning::SpaceNotFreed { .. }));
        warned += told.count();
    }
    assert!(warned > 0);
    assert_eq!(
        manager.checkpoints().list(&Filter::default()).unwrap().len(),
        2,
        "the last and the pinned checkpoint"
    );
}

#[test]
fn what_an_unfinished_rollback_needs_is_not_pruned() {
    let bench = Bench::new();
    bench.write("file", "one");
    let one = bench.create();
    bench.write("file", "two");
    bench.write("other", "two");
    let two = bench.create();
    // While a program writes to a displaced file, the rollback is unfinished.
    let writer = fs::OpenOptions::new().append(true).open(bench.path("other")).unwrap();
    bench.rollback(one.id);
    for _ in 0..3 {
        bench.write("file", "more");
        bench.create();
    }
    let nothing = Policy { keep_last: 0, keep_within: Span::ZERO, thin_daily_for: Span::ZERO };
    let judged = bench.manager.upkeep().prune(&bench.workspace, &nothing.into(), DryRun::No).unwrap();
    let kept = |id| {
        let of = judged.iter().find(|judged| judged.checkpoint.id == id).unwrap();
        if of.verdict.is_keep() { of.verdict.to_string() } else { "it may go".to_owned() }
    };
    assert!(kept(one.id).starts_with("needed by the unfinished rollback"), "{judged:?}");
    assert!(kept(two.id).starts_with("needed by the unfinished rollback"), "{judged:?}");
    drop(writer);
    bench.manager.recover(&bench.workspace, &Silent).unwrap();
    bench.manager.upkeep().prune(&bench.workspace, &nothing.into(), DryRun::No).unwrap();
    assert!(matches!(bench.manager.checkpoints().get(one.id), Err(Error::NoCheckpoint { .. })));
    bench.undo();
    assert_valid(&bench);
}

#[test]
fn headroom_and_packs_are_as_large_as_suits_the_cap() {
    let of = |cap_bytes| Bench::with(Settings { cap_bytes: Some(cap_bytes), ..Settings::default() });
    for (cap, headroom) in
        [(1 << 20, 512 << 10), (4 << 20, 1 << 20), (64 << 20, 4 << 20), (4 << 30, 256 << 20)]
    {
        assert_eq!(of(cap).manager.upkeep().cap().unwrap().headroom_bytes, headroom, "{cap}");
    }
    let bench = of(64 << 20);
    bench.write("file", noise(1, 5 << 20));
    bench.create();
    // Packs of 2 MiB each.
    let packs = fs::read_dir(bench.home().join("store/packs")).unwrap().count();
    assert!((2..=4).contains(&packs), "{packs}");
    let bench = of(4 << 20);
    bench.write("file", noise(2, 6 << 20));
    let refused = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap_err();
    let Error::Capped(capped) = &refused else { panic!("{refused:?}") };
    let over_bytes = capped.over_bytes;
    assert!(over_bytes > 0, "{refused}");
}

#[test]
fn without_a_word_the_cap_is_a_tenth_of_a_small_disk() {
    let bench = Bench::new();
    let disk = rustix::fs::statvfs(bench.home()).unwrap();
    let tenth = disk.f_blocks * disk.f_frsize / 10;
    assert_eq!(bench.manager.upkeep().cap().unwrap().cap_bytes, tenth.min(10 << 30));
}
