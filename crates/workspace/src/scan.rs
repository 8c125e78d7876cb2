//! Captures a folder: one parallel walk by directory handles that reads only files without a stat cache hit.
//!
//! Input: a root, an object sink, rules and a cache. Output: a [`Snapshot`] whose objects are in the sink,
//! and the next cache. A file that changes during the read is read again; one that keeps changing is captured
//! as read and reported as unsettled. After the walk every directory is compared again, see `again.rs`.
//! Entries left out are listed with reasons.

mod again;
mod assemble;
mod classify;
mod database;
mod file;
mod layer;
mod ruling;
mod walk;
mod watched;

use crate::cache::{CacheWriter, CachedDir, CachedEntry, NextCache, Place, StatCache};
use crate::error::WorkspaceError;
use crate::linux::{self, Attributes, Facts};
use crate::root::Root;
use crate::rules::Rules;
use crate::sqlite::DatabaseCopies;
use crate::threads;
use again::{Clock, Seen, Stamp};
use database::Family;
pub(crate) use database::{Held as DatabaseLocks, Waiting};
pub(crate) use file::is_out_of_handles;
pub use layer::LayerBase;
use ruling::{Above, Keep};
pub(crate) use ruling::{is_cache, read_start};
use rustix::fd::OwnedFd;
use safepoint_model::coverage::{Coverage, Skipped, Why};
use safepoint_model::progress::Activity;
use safepoint_model::trace::{self, TraceLevel};
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{ObjectId, ObjectSink, ObjectSource, Progress, RelPath};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use watched::Watched;

/// Maximum depth; deeper entries are left out and reported. Each level holds one open directory.
pub const DEPTH_MAX: usize = 4_000;
/// Options of a capture.
#[derive(Debug, Default, Clone, Copy)]
pub struct ScanOptions<'a> {
    /// Patterns to leave out, in gitignore's syntax.
    pub excludes: &'a [String],
    /// Cache of the last capture.
    pub cache: Option<&'a StatCache>,
    /// Writer of the next cache; `None` writes no cache.
    pub next: Option<&'a CacheWriter>,
    /// Safepoint's own folders that lie in the workspace.
    pub own: &'a [RelPath],
    /// Tree whose paths are captured even if rules leave them out: a rollback to it would displace them.
    pub keep: Option<ObjectId>,
    /// Paths captured even if rules leave them out: those changed by the rollback to undo. Sorted.
    pub covered: &'a [RelPath],
    /// Part of the workspace to capture.
    pub what: What,
    /// Treatment of SQLite sidecar files.
    pub sidecars: Sidecars,
    /// Storage for copies of large databases; with `None`, a large database stays locked until it is read.
    pub copies: Option<&'a dyn DatabaseCopies>,
    /// Large files to read.
    pub large: LargeFiles<'a>,
    /// State below an overlay's upper directory, if the root is one: the result is that state with the layer on it.
    pub layer: Option<LayerBase<'a>>,
}

/// SQLite sidecar files to capture.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Sidecars {
    /// Files that belong to the state: the write-ahead log, and a journal whose writer died.
    #[default]
    Needed,
    /// All of them, because the database is about to be displaced with them.
    All,
}

/// Files of at least [`LARGE_FILE_BYTES`] on disk to read when the stat cache has no hit.
#[derive(Debug, Default, Clone, Copy)]
pub enum LargeFiles<'a> {
    /// All of them.
    #[default]
    Read,
    /// Files at and below these paths; others are left out.
    Within(&'a [RelPath]),
    /// Files of any size at and below these paths; others are left out.
    Only(&'a [RelPath]),
    /// Files with the same length as in the tree to keep; a different size proves a difference without
    /// reading.
    InDoubt,
}

/// Minimum disk size of a large file.
pub const LARGE_FILE_BYTES: u64 = 16 << 20;

/// Part of a workspace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Everything except git directories.
    #[default]
    Files,
    /// Folder `.git` in the root, complete; rules are ignored.
    Git,
}

/// State of a workspace at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Root directory; its name is empty.
    pub root: Entry,
    /// Entries left out, with reasons.
    pub coverage: Coverage,
}

impl Snapshot {
    /// Returns the root tree; `None` if the root is not a directory, which only a hostile record contains.
    pub fn tree(&self) -> Option<ObjectId> {
        match self.root.node {
            Node::Directory(tree) => Some(tree),
            _ => None,
        }
    }
}

/// Result of a capture.
pub struct Scan {
    /// State of the workspace.
    pub snapshot: Snapshot,
    /// Entries below the root.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Next cache, to be saved once the objects are durable; `None` if the last one is still valid.
    pub cache: Option<NextCache>,
    /// Invalid rules.
    pub warnings: Vec<String>,
}

/// Captures the workspace.
///
/// # Errors
/// Fails if the root cannot be read, the sink fails, a pattern is invalid, or the run is interrupted.
pub fn scan<S: ObjectSink + ObjectSource>(
    root: &Root,
    sink: &S,
    options: &ScanOptions<'_>,
    progress: &dyn Progress,
) -> Result<Scan, WorkspaceError> {
    let _span = trace::span("workspace", TraceLevel::Debug, || format!("scan {}", root.path().display()));
    progress.begin(Activity::Scanning, None);
    let watched = Watched { sink, progress };
    let walk = Walk::new(root, (&watched, sink), options, progress);
    let result = threads::run(|| walk.root(root, options));
    progress.end();
    match options.layer {
        Some(base) => Ok(layer::upon(sink, &base, result?)?),
        None => result.map(|walked| walked.scan),
    }
}

/// Result of a walk. Marks of a layer are empty for any other folder.
struct Walked {
    scan: Scan,
    /// Directories that hide what is below them.
    opaque: Vec<RelPath>,
}

struct Walk<'a> {
    sink: &'a dyn ObjectSink,
    source: &'a dyn ObjectSource,
    place: (u32, u32, u64),
    own: &'a [RelPath],
    covered: &'a [RelPath],
    what: What,
    cache: Option<&'a StatCache>,
    next: Option<&'a CacheWriter>,
    sidecars: Sidecars,
    copies: Option<&'a dyn DatabaseCopies>,
    waiting: Waiting,
    /// Files that every capture reads again, because no proof shows them unchanged.
    unproven: AtomicU64,
    large: LargeFiles<'a>,
    layer: Option<LayerBase<'a>>,
    progress: &'a dyn Progress,
    clock: Clock,
    /// True while every listing gave the inode of `statx`.
    lists_own_inode: AtomicBool,
}

/// Context of a directory.
struct Here<'a> {
    fd: OwnedFd,
    path: RelPath,
    depth: usize,
    rules: Rules,
    /// Entries captured regardless of rules.
    keep: Keep<'a>,
    /// Its counterpart below a layer.
    below: Keep<'a>,
    /// A rule leaves out the directory itself: only kept entries are captured.
    only_kept: bool,
    cached: Option<CachedDir>,
    /// Time before any of its entries was checked.
    started_ns: i64,
    /// True if part of it was read and counted before.
    is_counted: bool,
}

/// Result of a directory, without its subdirectories' content.
#[derive(Default)]
struct Found {
    count: u64,
    bytes: u64,
    notes: Notes,
    /// Block in the next cache.
    block: Option<Place>,
    /// Bytes of that block and all blocks below it.
    block_bytes: u64,
    /// True if an entry differs from the cache.
    fresh: bool,
    /// Subdirectories.
    below: Vec<Seen>,
    /// Mark of each entry, in order.
    marks: Vec<again::Mark>,
}

/// Reports about a directory.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    skipped: Vec<Skipped>,
    unsettled: Vec<RelPath>,
    warnings: Vec<String>,
    /// Directories of a layer that hide what is below them.
    opaque: Vec<RelPath>,
}

/// Classified entry.
enum Item<'a> {
    /// Deleted concurrently.
    Gone,
    LeftOut(Vec<u8>, Why),
    Known(Known<'a>),
    /// File to read.
    File {
        name: Vec<u8>,
        facts: Facts,
    },
    /// Entry that needs no reading: a link, a file wanted only by size, or an entry read before.
    Held(Box<Done>),
    /// Directory to walk.
    Directory(Box<Folder<'a>>),
    /// File with possible sidecar files.
    Family(Box<Family<'a>>),
}

/// Entry that matches the cache. Most do, so it is small.
#[derive(Clone, Copy)]
struct Known<'a> {
    cached: CachedEntry<'a>,
    is_file: bool,
    /// Zero for a link.
    file_bytes: u64,
    mark: again::Mark,
}

/// Directory to walk.
struct Folder<'a> {
    name: Vec<u8>,
    facts: Facts,
    cached: Option<CachedEntry<'a>>,
    /// Block of the directory in the cache, possibly under another name.
    block: Option<Place>,
    only_kept: bool,
}

/// Finished item.
struct Done {
    entry: Entry,
    facts: Facts,
    trusted: bool,
    unsettled: bool,
    below: Option<Seen>,
    fresh: bool,
    /// True if an ACL or a capability cannot be stored.
    odd: bool,
}

enum Outcome<'a> {
    Gone,
    LeftOut(Vec<u8>, Why),
    Known(Known<'a>),
    Done(Box<Done>),
    Several(Vec<Outcome<'a>>),
    /// Message for the user.
    Told(String),
}

impl<'a> Walk<'a> {
    fn new(
        root: &Root,
        (sink, source): (&'a dyn ObjectSink, &'a dyn ObjectSource),
        options: &ScanOptions<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        let ScanOptions { own, covered, what, cache, next, sidecars, copies, large, layer, .. } = *options;
        Self {
            sink,
            source,
            place: root.place(),
            own,
            covered,
            what,
            cache,
            next,
            sidecars,
            copies,
            waiting: Waiting::default(),
            unproven: AtomicU64::new(0),
            large,
            layer,
            progress,
            clock: Clock::start(),
            lists_own_inode: AtomicBool::new(true),
        }
    }
}

impl Walk<'_> {
    fn root(&self, root: &Root, options: &ScanOptions<'_>) -> Result<Walked, WorkspaceError> {
        let failed = |source| WorkspaceError::Read { path: RelPath::root(), source };
        let started_ns = file::now_ns();
        let fd = linux::open_dir(root.fd(), b".").map_err(failed)?;
        let facts = linux::facts_of(&fd).map_err(failed)?;
        let Attributes { meta, odd } = linux::read_meta(&fd, &facts).map_err(failed)?;
        let keep = Keep::new(Above::Root(options.keep));
        let rules = Rules::configured(options.excludes)?;
        let cached = options.cache.and_then(StatCache::root);
        let stamp = Stamp::new(&self.clock, &facts, started_ns);
        let here = Here {
            fd,
            path: RelPath::root(),
            depth: 0,
            rules: rules.clone(),
            keep,
            below: self.below_root(),
            only_kept: false,
            cached,
            started_ns,
            is_counted: false,
        };
        let names = linux::names(&here.fd).map_err(failed)?;
        let mut seen = match self.directory(here, &names, stamp)? {
            Ok(seen) => seen,
            Err(why) => return Err(failed(io::Error::other(why.to_string()))),
        };
        seen.meta = Some(Box::new(meta));
        self.compare_again(root, options, &rules, &mut seen)?;
        let cache = self.next_cache(&seen);
        let meta = seen.meta.take().map(|meta| *meta).unwrap_or_default();
        let root = Entry { name: Vec::new(), meta, node: Node::Directory(seen.tree) };
        let (count, bytes, mut notes) = seen.sum_up();
        notes.warnings.extend(reading_again(self.unproven.load(Ordering::Relaxed)));
        notes.warnings.extend(odd.then(|| told_odd(&RelPath::root())));
        notes.skipped.sort();
        notes.unsettled.sort();
        notes.unsettled.dedup();
        let coverage = Coverage { skipped: notes.skipped, unsettled: notes.unsettled };
        let scan =
            Scan { snapshot: Snapshot { root, coverage }, count, bytes, cache, warnings: notes.warnings };
        Ok(Walked { scan, opaque: notes.opaque })
    }

    /// Returns the counterpart of the root below a layer.
    fn below_root<'b>(&self) -> Keep<'b> {
        Keep::new(Above::Root(self.layer.map(|layer| layer.tree)))
    }

    /// Returns the next cache; `None` if the last one is still valid.
    fn next_cache(&self, seen: &Seen) -> Option<NextCache> {
        let wanted = seen.fresh || !self.next?.continues;
        let root = seen.block.filter(|_| wanted)?;
        Some(NextCache { root, live: seen.block_bytes })
    }
}

/// Returns the message about files that every capture reads again.
fn reading_again(files: u64) -> Option<String> {
    let them = if files == 1 { "1 file" } else { &format!("{files} files") };
    let why = "of other users, or on a file system without leases";
    (files > 0).then(|| {
        format!("cannot rule out that programs write to {them} ({why}): every checkpoint reads them again")
    })
}

impl Found {
    /// Records the directory's block.
    fn keep_block(&mut self, block: Option<Place>) {
        self.block = block;
        self.block_bytes += block.map_or(0, Place::bytes);
    }
}

/// Returns the message about an ACL or capability that is not captured.
fn told_odd(path: &RelPath) -> String {
    format!("{path}: its ACL or capability has an unknown format and is not captured")
}

fn unreadable(path: &RelPath, source: io::Error) -> WorkspaceError {
    WorkspaceError::Read { path: path.clone(), source }
}

/// Joins a name from a listing; the model validates it.
pub(crate) fn join(above: &RelPath, name: &[u8]) -> Result<RelPath, WorkspaceError> {
    above.join(name).map_err(|error| unreadable(above, io::Error::other(error)))
}

#[cfg(test)]
mod tests;
