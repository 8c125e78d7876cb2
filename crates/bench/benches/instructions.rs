//! Instructions of the hot paths, counted by callgrind: independent of the load of the machine.
//!
//! Run it with `cargo bench -p safepoint-bench --bench instructions`; it needs valgrind and
//! `gungraun-runner`. `safepoint-bench instructions` runs it too, and compares the counts with
//! `crates/bench/baseline.json`.
//!
//! Callgrind counts a thread only after it enters the measured function. The walk uses its own threads, so
//! its benchmark counts the whole process and repeats the walk until the setup is a small part.

#![allow(clippy::disallowed_methods, reason = "benchmarks lay out folders")]
#![allow(clippy::expect_used, reason = "a benchmark fails on any error")]
#![allow(missing_docs, reason = "the macros generate undocumented items")]

use gungraun::{
    Callgrind, EntryPoint, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use safepoint_model::content::Content;
use safepoint_model::progress::Silent;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectId, ObjectKind, ObjectSink};
use safepoint_store::Store;
use safepoint_workspace::{
    CacheHead, CacheWriter, Capabilities, CapturedAccess, RollbackPlan, Root, ScanOptions, Snapshot,
    StatCache, plan, scan,
};
use std::fs::{self, File};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FILES: usize = 500;
const WALKS: usize = 200;
const PLANS: usize = 200;

fn text(number: usize, bytes: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut text = Vec::new();
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(format!("w{:x} ", (state >> 33) % 3_000).as_bytes());
    }
    text
}

fn entries() -> Vec<Entry> {
    let entry = |number: usize| Entry {
        name: format!("file{number:05}.txt").into_bytes(),
        meta: Meta { mode: 0o644, uid: 1000, gid: 1000, mtime_ns: number as i64, xattrs: Vec::new() },
        node: Node::File(Content::whole(&number.to_le_bytes())),
    };
    (0..1_000).map(entry).collect()
}

fn tree() -> Tree {
    Tree::new(entries()).expect("valid names")
}

fn tree_bytes() -> Vec<u8> {
    tree().encode()
}

#[library_benchmark]
#[bench::of_1000(tree())]
fn tree_encode(tree: Tree) -> Vec<u8> {
    black_box(tree.encode())
}

#[library_benchmark]
#[bench::of_1000(tree_bytes())]
fn tree_decode(bytes: Vec<u8>) -> Tree {
    black_box(Tree::decode(&bytes).expect("encoded tree decodes"))
}

fn small_files() -> Vec<Vec<u8>> {
    (0..FILES).map(|number| text(number, 200 + number * 13 % 6_000)).collect()
}

#[library_benchmark]
#[bench::of_500(small_files())]
fn hash_small_files(files: Vec<Vec<u8>>) -> Vec<ObjectId> {
    black_box(files.iter().map(|bytes| ObjectId::of(ObjectKind::Chunk, bytes)).collect())
}

/// Store in a temporary folder, which is deleted after the store is dropped.
struct Kept {
    store: Store,
    folder: TempDir,
}

fn empty_store() -> Kept {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(&folder.path().join("store")).expect("a store");
    Kept { store, folder }
}

fn store_and_files() -> (Kept, Vec<Vec<u8>>) {
    (empty_store(), small_files())
}

#[library_benchmark]
#[bench::of_500(store_and_files())]
fn pack_write((kept, files): (Kept, Vec<Vec<u8>>)) -> Kept {
    let writer = kept.store.writer().expect("a writer");
    for bytes in &files {
        writer.put(ObjectKind::Chunk, bytes).expect("an object");
    }
    black_box(writer.finish().expect("durable objects"));
    kept
}

/// Captured folder: root, store, snapshot and cache.
struct Captured {
    kept: Kept,
    root: PathBuf,
    snapshot: Snapshot,
    cache: CacheHead,
}

impl Captured {
    fn blocks(&self) -> PathBuf {
        blocks(&self.kept)
    }
}

fn blocks(kept: &Kept) -> PathBuf {
    kept.folder.path().join("blocks")
}

fn lay_out(root: &Path) {
    for number in 0..FILES {
        let folder = root.join(format!("part{}", number / 50));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("file{number}.txt")), text(number, 600)).expect("a file");
    }
}

fn capture(kept: &Kept, root: &Path) -> (Snapshot, CacheHead) {
    let writer = kept.store.writer().expect("a writer");
    let open = Root::open(root).expect("the folder");
    let next = CacheWriter::anew(File::create(blocks(kept)).expect("a file for the cache"));
    let options = ScanOptions { next: Some(&next), ..ScanOptions::default() };
    let found = scan(&open, &writer, &options, &Silent).expect("a capture");
    writer.finish().expect("durable objects");
    (found.snapshot, found.cache.expect("a first cache").finish(next).expect("a cache"))
}

fn captured() -> Captured {
    let kept = empty_store();
    let root = kept.folder.path().join("work");
    lay_out(&root);
    // Files written in the same clock tick as the capture are not trusted.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (snapshot, cache) = capture(&kept, &root);
    Captured { kept, root, snapshot, cache }
}

#[library_benchmark(config = whole_process())]
#[bench::of_500(captured())]
fn walk_nothing_changed(captured: Captured) -> Captured {
    let root = Root::open(&captured.root).expect("the folder");
    for _ in 0..WALKS {
        let cache = StatCache::new(File::open(captured.blocks()).expect("the cache"), captured.cache);
        let writer = captured.kept.store.writer().expect("a writer");
        let options = ScanOptions { cache: Some(&cache), ..ScanOptions::default() };
        black_box(scan(&root, &writer, &options, &Silent).expect("a capture").count);
    }
    captured
}

fn edited() -> (Captured, Snapshot) {
    let before = captured();
    for number in (0..FILES).step_by(5) {
        let path = before.root.join(format!("part{}/file{number}.txt", number / 50));
        fs::write(path, text(number + 1, 700)).expect("a file");
    }
    let (now, _) = capture(&before.kept, &before.root);
    (before, now)
}

#[library_benchmark(config = whole_process())]
#[bench::of_100(edited())]
fn restore_plan((before, now): (Captured, Snapshot)) -> (Captured, RollbackPlan) {
    let root = Root::open(&before.root).expect("the folder");
    let mut last = RollbackPlan::default();
    for _ in 0..PLANS {
        let writer = before.kept.store.writer().expect("a writer");
        let capabilities = Capabilities::default();
        last = plan(&root, &writer, &now, (&before.snapshot, CapturedAccess::Captured), &capabilities)
            .expect("a plan");
    }
    (before, black_box(last))
}

/// Counts the whole process with one worker thread: the order of several threads is not reproducible.
fn whole_process() -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.env("RAYON_NUM_THREADS", "1").tool(Callgrind::default().entry_point(EntryPoint::None));
    config
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [tree_encode, tree_decode, hash_small_files, pack_write, walk_nothing_changed, restore_plan]
);

main!(library_benchmark_groups = hot_paths);
