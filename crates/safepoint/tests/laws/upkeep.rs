//! Deletion, pruning, collection, purge, repair, and the cap.

use crate::bench::{Bench, assert_same, noise, open};
use safepoint::Warning;
use safepoint::model::plan::state::PlanState;
use safepoint::model::retention::Policy;
use safepoint::model::{RelPath, Span};
use safepoint::{
    CreateOptions, Depth, DryRun, Error, Filter, Outcome, Pinned, RoleFilter, RollbackOptions, Settings,
    Silent, Thoroughness,
};
use std::fs;

fn strict() -> Policy {
    Policy { keep_last: 3, keep_within: Span::from_seconds(0), thin_daily_for: Span::from_seconds(0) }
}

fn assert_valid(bench: &Bench) {
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

fn store_bytes(bench: &Bench) -> u64 {
    bench.manager.upkeep().usage().unwrap().pack_bytes
}

#[test]
fn collecting_frees_what_no_checkpoint_needs_and_nothing_else() {
    let bench = Bench::new();
    bench.write("kept", noise(1, 300_000));
    bench.write("dir/also", "small");
    let kept = bench.create();
    let image = bench.image();
    bench.write("gone", noise(2, 3_000_000));
    let gone = bench.create();
    fs::remove_file(bench.path("gone")).unwrap();
    let last = bench.create();
    let full = store_bytes(&bench);

    let nothing = bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert_eq!((nothing.packs, nothing.freed_bytes), (0, 0), "everything is needed");
    bench.manager.checkpoints().delete(&[gone.id]).unwrap();
    let collected = bench.manager.upkeep().collect(Thoroughness::Usual, &Silent).unwrap();
    assert_eq!(collected.outcome, Outcome::Done);
    assert!(collected.freed_bytes > 2_900_000, "{collected:?}");
    assert!(store_bytes(&bench) + 2_900_000 < full);
    assert_valid(&bench);
    for checkpoint in [kept.id, last.id] {
        bench.rollback(checkpoint);
        assert_same(&bench.image(), &image);
    }
    assert!(matches!(bench.manager.checkpoints().get(gone.id), Err(Error::NoCheckpoint { .. })));
    // The stat cache is still valid: nothing is read again, and no object that it vouches for is missing.
    let again = bench.create();
    assert_eq!(again.files.modified + again.files.added + again.files.removed, 0);
    bench.write("gone", noise(2, 3_000_000));
    bench.create();
    assert_valid(&bench);
}

#[test]
fn a_cache_does_not_vouch_for_what_was_deleted() {
    let bench = Bench::new();
    bench.write("file", noise(3, 500_000));
    let only = bench.create();
    bench.manager.checkpoints().delete(&[only.id]).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let image = bench.image();
    let next = bench.create();
    assert_valid(&bench);
    fs::remove_file(bench.path("file")).unwrap();
    bench.rollback(next.id);
    assert_same(&bench.image(), &image);
}

#[test]
fn retention_drops_what_may_go_and_says_why() {
    let settings = Settings { retention: Some(strict()), ..Settings::default() };
    let bench = Bench::with(settings);
    let mut made = Vec::new();
    for number in 0..6u32 {
        bench.write("file", number.to_string());
        let options = CreateOptions { pinned: number == 0, ..CreateOptions::default() };
        made.push(bench.manager.create(&bench.workspace, &options, &Silent).unwrap());
    }
    let left: Vec<_> =
        bench.manager.checkpoints().list(&Filter::default()).unwrap().iter().map(|it| it.id).collect();
    let expected: Vec<_> = [5, 4, 3, 0].iter().map(|at: &usize| made[*at].checkpoint.id).collect();
    assert_eq!(left, expected, "the last three and the pinned checkpoint");
    assert_eq!(made[5].pruned, [made[2].checkpoint.id]);
    let shown = bench
        .manager
        .upkeep()
        .prune(&bench.workspace, &Policy { keep_last: 1, ..strict() }.into(), DryRun::Yes)
        .unwrap();
    let kept: Vec<bool> = shown.iter().map(|judged| judged.verdict.is_keep()).collect();
    assert_eq!(kept, [true, false, false, true]);
    assert!(shown.iter().all(|judged| !judged.verdict.to_string().is_empty()));
    assert_eq!(
        bench.manager.checkpoints().list(&Filter::default()).unwrap().len(),
        4,
        "a dry run deletes nothing"
    );
    bench.manager.checkpoints().pin(made[0].checkpoint.id, Pinned::No).unwrap();
    bench
        .manager
        .upkeep()
        .prune(&bench.workspace, &Policy { keep_last: 1, ..strict() }.into(), DryRun::No)
        .unwrap();
    assert_eq!(bench.manager.checkpoints().list(&Filter::default()).unwrap().len(), 1);
    assert_valid(&bench);
}

#[test]
fn the_last_rollback_can_be_undone_whatever_retention_says() {
    let settings = Settings { retention: Some(Policy { keep_last: 1, ..strict() }), ..Settings::default() };
    let bench = Bench::with(settings);
    bench.write("file", "one");
    let one = bench.create();
    bench.write("file", "two");
    bench.manager.checkpoints().pin(one.id, Pinned::Yes).unwrap();
    bench.rollback(one.id);
    bench.write("other", "more");
    bench.create();
    bench
        .manager
        .upkeep()
        .prune(&bench.workspace, &Policy { keep_last: 0, ..strict() }.into(), DryRun::No)
        .unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    bench.undo();
    assert_eq!(bench.read("file"), "two");
    assert_valid(&bench);
}

#[test]
fn the_cap_holds_and_old_checkpoints_make_room() {
    let cap = 12 << 20;
    let settings = Settings {
        cap_bytes: Some(cap),
        retention: Some(Policy { keep_last: 2, ..strict() }),
        ..Settings::default()
    };
    let bench = Bench::with(settings);
    for number in 0..30u64 {
        bench.write("file", noise(number, 1_500_000));
        bench.create();
        let used = bench.manager.upkeep().space(&Silent).unwrap().home_bytes;
        assert!(used <= cap, "{used} after {number}");
    }
    assert_valid(&bench);
    let image = bench.image();
    let before = bench
        .manager
        .checkpoints()
        .list(&Filter { role: RoleFilter::Any, ..Filter::default() })
        .unwrap()
        .len();
    // A file that does not fit is refused with the excess, and nothing changes.
    bench.write("huge", noise(99, 20_000_000));
    let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap_err();
    let Error::Capped(capped) = &error else { panic!("{error:?}") };
    assert!(capped.needed_bytes > 0 && capped.over_bytes > 0 && capped.cap_bytes == cap, "{error}");
    assert!(bench.manager.upkeep().space(&Silent).unwrap().home_bytes <= cap);
    fs::remove_file(bench.path("huge")).unwrap();
    assert_same(&bench.image(), &image);
    let all =
        bench.manager.checkpoints().list(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap();
    assert!(all.len() <= before);
    fs::remove_file(bench.path("file")).unwrap();
    bench.rollback(all[0].id);
    assert_same(&bench.image(), &image);
    assert_valid(&bench);
}

#[test]
fn a_store_near_its_cap_warns_before_it_is_full() {
    let bench = Bench::with(Settings { cap_bytes: Some(12 << 20), retention: None, ..Settings::default() });
    let warns = |number: u64| {
        bench.write(&format!("file {number}"), noise(number, 1_000_000));
        let created = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
        let near = created.warnings.iter().find(|warning| matches!(warning, Warning::NearCap { .. }));
        near.map(|warning| warning.code())
    };
    assert_eq!(warns(0), None);
    let first = (1..11).find(|number| warns(*number) == Some("near_cap"));
    assert!(first.is_some_and(|number| number > 3), "{first:?}");
}

#[test]
fn what_was_pruned_to_make_room_is_told_and_a_dry_run_prunes_nothing() {
    let settings = |cap| Settings {
        cap_bytes: Some(cap),
        retention: Some(Policy { keep_last: 2, ..strict() }),
        ..Settings::default()
    };
    let mut bench = Bench::with(Settings { retention: None, ..settings(64 << 20) });
    for number in 0..8u64 {
        bench.write("file", noise(number, 1_500_000));
        bench.create();
    }
    bench.manager = open(&bench.path("../home"), settings(10 << 20));
    let count = |bench: &Bench| {
        bench
            .manager
            .checkpoints()
            .list(&Filter { role: RoleFilter::Any, ..Filter::default() })
            .unwrap()
            .len()
    };
    bench.write("file", noise(99, 1_500_000));
    let first = bench.manager.checkpoints().list(&Filter::default()).unwrap()[1].id;
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let _ = bench.manager.rollback(&bench.workspace, first, &dry, &Silent);
    assert_eq!(count(&bench), 8);
    let created = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
    assert_eq!(created.pruned.len(), 9 - count(&bench), "the report lists the pruned ones");
    assert_valid(&bench);
}

#[test]
fn a_purged_path_is_in_no_checkpoint_and_no_byte_of_it_in_the_store() {
    const CANARY: &[u8] = b"canary-7f3a-do-not-keep-this-anywhere";
    let bench = Bench::new();
    bench.write("secrets/key", CANARY);
    bench.write("secrets/other", "fine");
    bench.write("code", "fn main() {}");
    let one = bench.create();
    bench.write("code", "fn main() { 1 }");
    let two = bench.create();
    bench.rollback(one.id);
    assert!(grep(&bench.home(), CANARY), "the search finds existing bytes");
    let path = RelPath::new("secrets/key").unwrap();
    let report =
        bench.manager.upkeep().purge(&bench.workspace, std::slice::from_ref(&path), &Silent).unwrap();
    assert_eq!(report.checkpoints.len(), 3, "two and the safety checkpoint");
    assert!(!grep(&bench.home(), CANARY), "the home still contains the bytes");
    assert_valid(&bench);
    // The workspace still has it, and a rollback neither restores nor removes it.
    assert_eq!(fs::read(bench.path("secrets/key")).unwrap(), CANARY);
    bench.rollback(two.id);
    assert_eq!(fs::read(bench.path("secrets/key")).unwrap(), CANARY);
    assert_eq!(bench.read("code"), "fn main() { 1 }");
    let totals = bench.manager.checkpoints().get(two.id).unwrap().files;
    assert_eq!(totals.count, two.files.count - 1);
    let again = bench.manager.upkeep().purge(&bench.workspace, &[RelPath::new("nothing").unwrap()], &Silent);
    assert!(matches!(again, Err(Error::NoPurge { .. })));
}

fn grep(dir: &std::path::Path, needle: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => grep(&path, needle),
            false => fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle),
        }
    })
}

#[test]
fn repair_brings_back_what_the_workspace_still_has_and_names_what_is_lost() {
    let bench = Bench::new();
    bench.write("still-there", noise(1, 100_000));
    bench.write("lost/for-good", noise(2, 100_000));
    bench.write("fine", "fine");
    let one = bench.create();
    fs::remove_file(bench.path("lost/for-good")).unwrap();
    // Changes a byte in the middle of each of the two large objects.
    let pack = fs::read_dir(bench.home().join("store/packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    for seed in [1, 2] {
        let part = &noise(seed, 100_000)[50_000..50_032];
        let at = bytes.windows(32).position(|window| window == part).unwrap();
        bytes[at] ^= 1;
    }
    fs::write(&pack, bytes).unwrap();
    assert!(!bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    assert!(matches!(
        bench
            .manager
            .upkeep()
            .repair(&Silent)
            .map(|repair| (repair.damaged_objects, repair.quarantined.len())),
        Ok((2, 1))
    ));
    let repair = bench.manager.upkeep().repair(&Silent).unwrap();
    let lost: Vec<String> =
        repair.lost.iter().filter_map(|lost| Some(lost.path.as_ref()?.to_string())).collect();
    assert_eq!(lost, ["lost/for-good"]);
    assert!(repair.quarantine.join(pack.file_name().unwrap()).exists());
    // Repaired content can be restored; lost content is refused before any change.
    fs::remove_file(bench.path("still-there")).unwrap();
    bench.restore_paths(one.id, &["still-there", "fine"]);
    assert_eq!(fs::read(bench.path("still-there")).unwrap(), noise(1, 100_000));
    let before = bench.image();
    assert!(bench.manager.rollback(&bench.workspace, one.id, &Default::default(), &Silent).is_err());
    assert_same(&bench.image(), &before);
    // Nothing that a damaged checkpoint may need is collected; a file without its bytes does not block.
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    bench.manager.checkpoints().delete(&[one.id]).unwrap();
    bench.create();
    assert!(
        bench.manager.upkeep().repair(&Silent).unwrap().is_whole()
            || bench
                .manager
                .checkpoints()
                .list(&Filter { role: RoleFilter::Any, ..Filter::default() })
                .unwrap()
                .len()
                > 1
    );
}

#[test]
fn collecting_goes_on_while_others_capture() {
    let bench = Bench::new();
    let (stop, began) = (std::sync::atomic::AtomicBool::new(false), std::time::Instant::now());
    let (mut made, mut collections) = (Vec::new(), 0);
    std::thread::scope(|threads| {
        let collector = threads.spawn(|| {
            let manager = open(&bench.home(), Settings::default());
            let mut done = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && began.elapsed().as_secs() < 60 {
                let collected = manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
                done += u64::from(collected.outcome == Outcome::Done);
            }
            done
        });
        for round in 0..60u64 {
            // The same few contents recur, so that captures often need objects that were just condemned.
            bench.write("a", noise(round % 3, 40_000));
            bench.write("b", noise(round % 5, 60_000));
            let checkpoint = bench.create();
            made.push((checkpoint.id, bench.image()));
            if made.len() > 2 {
                let (old, _) = made.remove(0);
                bench.manager.checkpoints().delete(&[old]).unwrap();
            }
            assert_valid(&bench);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        collections = collector.join().unwrap();
    });
    assert!(collections > 3, "{collections}");
    assert_valid(&bench);
    for (id, image) in made {
        bench.rollback(id);
        assert_same(&bench.image(), &image);
    }
}

#[test]
fn space_says_what_deleting_would_free() {
    let bench = Bench::new();
    bench.write("shared", noise(1, 200_000));
    bench.write("first", noise(2, 300_000));
    let one = bench.create();
    fs::remove_file(bench.path("first")).unwrap();
    bench.write("second", noise(3, 400_000));
    let two = bench.create();
    let space = bench.manager.upkeep().space(&Silent).unwrap();
    let frees = |id| space.checkpoints.iter().find(|it| it.checkpoint.id == id).unwrap().frees_bytes;
    assert!((300_000..310_000).contains(&frees(one.id)), "{}", frees(one.id));
    assert!((400_000..410_000).contains(&frees(two.id)), "{}", frees(two.id));
    assert!((200_000..210_000).contains(&space.shared_bytes), "{}", space.shared_bytes);
    assert_eq!(space.workspaces.len(), 1);
    assert!(space.workspaces[0].frees_bytes > 900_000 && space.home_bytes > 900_000);
    bench.manager.checkpoints().delete(&[one.id]).unwrap();
    let dead = bench.manager.upkeep().space(&Silent).unwrap().dead_bytes;
    assert!((300_000..320_000).contains(&dead), "{dead}");
}

#[test]
fn the_last_clean_checkpoint_of_a_plan_stays_until_the_plan_is_over() {
    let bench = Bench::new();
    let manager = &bench.manager;
    crate::runner::plan(&bench, "[[step]]\nid = 'one'");
    bench.write("a", "1");
    manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap();
    bench.write("a", "2");
    bench.create();
    let clean = manager.plans().last_clean("work").unwrap();
    let nothing = Policy { keep_last: 0, ..strict() };
    let is_kept = || {
        let judged = manager.upkeep().prune(&bench.workspace, &nothing.into(), DryRun::Yes).unwrap();
        judged.iter().find(|judged| judged.checkpoint.id == clean).unwrap().verdict.is_keep()
    };
    assert!(is_kept());
    manager.plans().change("work", "cancelled", |plan| plan.go(PlanState::Cancelled)).unwrap();
    assert!(!is_kept());
}

#[test]
fn what_is_pinned_while_retention_deletes_stays() {
    let bench = Bench::new();
    for number in 0..4 {
        bench.write("a", number.to_string());
        bench.create();
    }
    let sql = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    sql.execute_batch(
        "CREATE TRIGGER pin_the_rest AFTER DELETE ON checkpoints BEGIN UPDATE checkpoints SET pinned = 1; END",
    )
    .unwrap();
    let nothing = Policy { keep_last: 0, ..strict() };
    let judged = bench.manager.upkeep().prune(&bench.workspace, &nothing.into(), DryRun::No).unwrap();
    assert_eq!(judged.iter().filter(|judged| !judged.verdict.is_keep()).count(), 3);
    assert_eq!(
        bench.manager.checkpoints().list(&Filter::default()).unwrap().len(),
        3,
        "only the first was deleted"
    );
}
