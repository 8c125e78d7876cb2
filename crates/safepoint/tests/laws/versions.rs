//! Pages of the timeline, versions of a path, search in every version, and previews that are bound to a state.

use crate::bench::Bench;
use safepoint::model::RelPath;
use safepoint::{
    DryRun, Error, GoodReason, Letters, OwnCheckpoints, Page, RollbackOptions, Silent, TextFound, TextSearch,
    VersionChange,
};
use std::fs;
use std::ops::ControlFlow;

fn search(text: &str, path: &str, letters: Letters) -> TextSearch {
    TextSearch { text: text.to_owned(), path: RelPath::new(path).unwrap(), letters }
}

fn found(bench: &Bench, search: &TextSearch) -> Vec<TextFound> {
    let mut all = Vec::new();
    let mut each = |found| {
        all.push(found);
        ControlFlow::Continue(())
    };
    bench.manager.checkpoints().search(&bench.workspace, search, &mut each, &Silent).unwrap();
    all
}

#[test]
fn a_rollback_happens_in_the_state_that_was_shown_or_not_at_all() {
    let bench = Bench::new();
    bench.write("a", "old");
    let to = bench.create().id;
    bench.write("a", "new");
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let shown = bench.manager.rollback(&bench.workspace, to, &dry, &Silent).unwrap().present;
    let again = bench.manager.rollback(&bench.workspace, to, &dry, &Silent).unwrap().present;
    assert_eq!(shown, again, "a preview changes nothing that is compared");
    let bound = RollbackOptions { expect_present: Some(shown), ..RollbackOptions::default() };
    for change in [("a", "newer"), ("b", "b")] {
        bench.write(change.0, change.1);
        let refused = bench.manager.rollback(&bench.workspace, to, &bound, &Silent);
        assert!(matches!(refused, Err(Error::StalePreview)), "{refused:?}");
        assert_eq!(bench.read(change.0), change.1);
    }
    bench.write("a", "new");
    fs::remove_file(bench.path("b")).unwrap();
    let fresh = bench.manager.rollback(&bench.workspace, to, &dry, &Silent).unwrap().present;
    let bound = RollbackOptions { expect_present: Some(fresh), ..RollbackOptions::default() };
    bench.manager.rollback(&bench.workspace, to, &bound, &Silent).unwrap();
    assert_eq!(bench.read("a"), "old");
}

#[test]
fn pages_hold_every_checkpoint_once_and_the_strip_counts_them() {
    let bench = Bench::new();
    let mut ids = Vec::new();
    for at in 0..10 {
        bench.write("a", at.to_string());
        ids.insert(0, bench.create().id);
    }
    bench.rollback(ids[9]);
    let checkpoints = bench.manager.checkpoints();
    let own = OwnCheckpoints::LeftOut;
    let mut page = Page { own, ..Page::first(bench.workspace.id, 4) };
    assert_eq!(checkpoints.page_total(&page).unwrap(), 10);
    let mut seen = Vec::new();
    loop {
        let rows = checkpoints.page(&page).unwrap();
        let Some(last) = rows.last() else { break };
        page.before = Some(last.seq);
        seen.extend(rows.iter().map(|row| row.checkpoint.id));
    }
    assert_eq!(seen, ids);
    let all = Page::first(bench.workspace.id, 100);
    assert_eq!(checkpoints.page_total(&all).unwrap(), 11, "with the safety checkpoint");
    let strip = checkpoints.strip(&bench.workspace, 3).unwrap();
    assert_eq!((strip.len(), strip.iter().map(|bucket| bucket.checkpoints).sum::<u64>()), (3, 11));
    assert!(strip.is_sorted_by(|one, other| one.last < other.first));
    let good = checkpoints.last_good(&bench.workspace).unwrap().unwrap();
    assert_eq!(good, (ids[9], GoodReason::Position));
    checkpoints.pin(ids[3], safepoint::Pinned::Yes).unwrap();
    assert_eq!(checkpoints.last_good(&bench.workspace).unwrap().unwrap(), (ids[3], GoodReason::Pinned));
}

#[test]
fn the_history_of_a_path_has_each_state_once() {
    let bench = Bench::new();
    bench.write("other", "x");
    bench.create();
    for text in ["one", "one", "two"] {
        bench.write("dir/a", text);
        bench.write("other", format!("{text}{}", bench.path("dir").display()));
        bench.create();
    }
    fs::remove_file(bench.path("dir/a")).unwrap();
    bench.create();
    let path = RelPath::new("dir/a").unwrap();
    let checkpoints = bench.manager.checkpoints();
    let whole = checkpoints.history(&bench.workspace, &path, None, 100).unwrap();
    let changes: Vec<_> = whole.versions.iter().map(|version| version.change).collect();
    assert_eq!(changes, [VersionChange::Removed, VersionChange::Modified, VersionChange::Added]);
    assert_eq!(whole.next, None);
    // In pages it is the same.
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = checkpoints.history(&bench.workspace, &path, before, 1).unwrap();
        paged.extend(page.versions);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole.versions);
}

#[test]
fn a_search_finds_each_content_once_in_its_newest_checkpoint() {
    let bench = Bench::new();
    bench.write("a.txt", "first\nneedle one\n");
    bench.write("bin", b"needle\0");
    bench.create();
    bench.write("b.txt", "x\n");
    let middle = bench.create().id;
    bench.write("a.txt", "needle two\nneedle\n");
    let newest = bench.create().id;
    let all = found(&bench, &search("needle", "", Letters::Exact));
    let rows: Vec<_> = all.iter().map(|it| (it.checkpoint, it.line, it.matches)).collect();
    assert_eq!(rows, [(newest, 1, 2), (middle, 2, 1)], "{all:?}");
    assert!(found(&bench, &search("NEEDLE", "", Letters::Exact)).is_empty());
    assert_eq!(found(&bench, &search("NEEDLE", "a.txt", Letters::AnyCase)).len(), 2);
    assert!(found(&bench, &search("needle", "b.txt", Letters::Exact)).is_empty());
    let line = search("needle one", "a.txt", Letters::Exact);
    let one =
        bench.manager.checkpoints().newest_with_line(&bench.workspace, &line, &Silent).unwrap().unwrap();
    assert_eq!((one.checkpoint, one.line), (middle, 2));
}

#[test]
fn a_folder_is_listed_without_the_others() {
    let bench = Bench::new();
    bench.write("dir/sub/a", "a");
    bench.write("dir/b", "b");
    let checkpoint = bench.create();
    let names = |path: &str| -> Vec<Vec<u8>> {
        let entries = bench.manager.checkpoints().folder(&checkpoint, &RelPath::new(path).unwrap()).unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!((names(""), names("dir")), (vec![b"dir".to_vec()], vec![b"b".to_vec(), b"sub".to_vec()]));
    for nowhere in ["dir/b", "nothing", "dir/sub/a/x"] {
        let refused = bench.manager.checkpoints().folder(&checkpoint, &RelPath::new(nowhere).unwrap());
        assert!(matches!(refused, Err(Error::NoPath { .. })), "{nowhere}");
    }
}

#[test]
fn a_state_that_a_rollback_put_in_place_is_not_work_of_the_next_checkpoint() {
    let bench = Bench::new();
    bench.write("a", "19");
    bench.write("b", "x");
    let good = bench.create().id;
    bench.write("a", "7");
    bench.create();
    bench.rollback(good);
    bench.write("b", "y");
    bench.create();
    let changes = |path: &str| -> Vec<VersionChange> {
        let path = RelPath::new(path).unwrap();
        let history = bench.manager.checkpoints().history(&bench.workspace, &path, None, 100).unwrap();
        history.versions.iter().map(|version| version.change).collect()
    };
    use VersionChange::{Modified, Present, RolledBack};
    assert_eq!(changes("a"), [RolledBack, Modified, Present]);
    assert_eq!(changes("b"), [Modified, Present]);
    bench.write("a", "8");
    bench.create();
    bench.restore_paths(good, &["a"]);
    bench.write("b", "z");
    bench.create();
    assert_eq!(changes("a"), [RolledBack, Modified, RolledBack, Modified, Present]);
    assert_eq!(changes("b"), [Modified, Modified, Present]);
}

#[test]
fn damage_is_counted_and_hides_nothing_that_is_whole() {
    let bench = Bench::new();
    bench.write("whole.txt", "needle in a whole file\n");
    bench.create();
    let before = packs(&bench);
    // It cannot be compressed: most new bytes are its own.
    bench.write("hurt.txt", crate::bench::noise(7, 200_000));
    bench.create();
    for (pack, long) in packs(&bench) {
        let old = before.get(&pack).copied().unwrap_or(0);
        let mut bytes = fs::read(&pack).unwrap();
        let middle = (old + long) / 2;
        if long > old + 100_000 {
            bytes[middle - 8..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
            fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            fs::write(&pack, bytes).unwrap();
        }
    }
    let manager = crate::bench::open(&bench.home(), safepoint::Settings::default());
    let wanted = search("needle in a whole", "", Letters::Exact);
    let mut paths = Vec::new();
    let mut each = |found: TextFound| {
        paths.push(found.path.to_string());
        ControlFlow::Continue(())
    };
    let unreadable = manager.checkpoints().search(&bench.workspace, &wanted, &mut each, &Silent).unwrap();
    assert_eq!(paths, ["whole.txt"]);
    assert!(unreadable > 0);
    let line = manager.checkpoints().newest_with_line(
        &bench.workspace,
        &search("never", "", Letters::Exact),
        &Silent,
    );
    assert!(line.is_err(), "a state that cannot be read may have the line: {line:?}");
}

/// Lengths of the packs.
fn packs(bench: &Bench) -> std::collections::HashMap<std::path::PathBuf, usize> {
    let entries = fs::read_dir(bench.home().join("store/packs")).unwrap();
    let long = |path: std::path::PathBuf| (path.clone(), fs::read(path).unwrap().len());
    entries.map(|entry| long(entry.unwrap().path())).collect()
}
