//! Captures a folder: one parallel walk by directory handles, reading only what the stat cache cannot vouch for.
//!
//! Comes in: a root, a sink for objects, rules and a cache. Goes out: a [`Snapshot`] whose objects are in the sink,
//! and the bytes of the next cache. A file that changes while it is read is read again; one that will not hold still is
//! captured as it was and said to be unsettled. After the walk every directory is compared again, see `again.rs`. What is left out is
//! listed with the reason.

mod again;
mod assemble;
mod classify;
mod database;
mod file;
mod ruling;
mod walk;

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
use ruling::{Above, Keep};
use rustix::fd::OwnedFd;
use safepoint_model::coverage::{Coverage, Skipped, Why};
use safepoint_model::progress::Activity;
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{ObjectId, ObjectSink, ObjectSource, Progress, RelPath};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Deeper nesting is left out, and said. Each level holds one open directory.
pub(crate) const DEPTH_MAX: usize = 4_000;
/// What a capture is to do.
#[derive(Debug, Default, Clone, Copy)]
pub struct ScanOptions<'a> {
    /// Patterns to leave out, in gitignore's syntax.
    pub excludes: &'a [String],
    /// What the last capture saw.
    pub cache: Option<&'a StatCache>,
    /// Where the next cache is written; nothing where none is wanted.
    pub next: Option<&'a CacheWriter>,
    /// Folders of Safepoint itself that happen to lie in the workspace.
    pub own: &'a [RelPath],
    /// A tree whose paths are captured even where rules leave them out: what a rollback to it would displace.
    pub keep: Option<ObjectId>,
    /// Paths that are captured even where rules leave them out: those that the rollback changed which is undone. Sorted.
    pub covered: &'a [RelPath],
    /// What of the workspace is wanted.
    pub what: What,
    /// What becomes of the files that SQLite keeps beside its databases.
    pub sidecars: Sidecars,
    /// Where copies of large databases go; where nothing is given, such a database is locked until it is read.
    pub copies: Option<&'a dyn DatabaseCopies>,
    /// Which large files are read.
    pub large: LargeFiles<'a>,
}

/// What a capture takes of what SQLite keeps beside a database.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Sidecars {
    /// What belongs to the state: the write-ahead log, and a journal whose writer died.
    #[default]
    Needed,
    /// Everything, because the database is about to be displaced, and all that lies beside it with it.
    All,
}

/// Which files that take [`LARGE_FILE_BYTES`] or more on the disk are read, where the stat cache does not vouch for them.
#[derive(Debug, Default, Clone, Copy)]
pub enum LargeFiles<'a> {
    /// All of them.
    #[default]
    Read,
    /// Those at and below these paths. The others are left out.
    Within(&'a [RelPath]),
    /// Those that are as long as in the tree to keep: of the others their size is enough to tell that they differ.
    InDoubt,
}

/// A file that takes so much on the disk is large.
pub const LARGE_FILE_BYTES: u64 = 16 << 20;

/// What of a workspace a capture is about.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Everything but the folders that git keeps its repositories in.
    #[default]
    Files,
    /// The folder `.git` in the root, all of it and nothing else; rules are not asked.
    Git,
}

/// A workspace at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The root directory; its name is empty.
    pub root: Entry,
    /// What was left out, and why.
    pub coverage: Coverage,
}

impl Snapshot {
    /// The root's tree; nothing when the root is not a directory, which only a hostile record can say.
    pub fn tree(&self) -> Option<ObjectId> {
        match self.root.node {
            Node::Directory(tree) => Some(tree),
            _ => None,
        }
    }
}

/// What a capture found.
pub struct Scan {
    /// The workspace.
    pub snapshot: Snapshot,
    /// Entries below the root.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// The next cache, to be kept once the objects are durable; nothing when the last one is still right.
    pub cache: Option<NextCache>,
    /// Rules that could not be understood.
    pub warnings: Vec<String>,
}

/// Captures the workspace.
///
/// # Errors
/// When the root cannot be read, the sink fails, a pattern makes no sense, or somebody interrupts.
pub fn scan<S: ObjectSink + ObjectSource>(
    root: &Root,
    sink: &S,
    options: &ScanOptions<'_>,
    progress: &dyn Progress,
) -> Result<Scan, WorkspaceError> {
    progress.begin(Activity::Scanning, None);
    let walk = Walk::new(root, sink, options, progress);
    let result = threads::run(|| walk.root(root, options));
    progress.end();
    result
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
    /// Files that will be read again each time, because nothing shows whether they change.
    unproven: AtomicU64,
    large: LargeFiles<'a>,
    progress: &'a dyn Progress,
    clock: Clock,
    /// So far each directory was listed with the inode that `statx` gave.
    lists_own_inode: AtomicBool,
}

/// What holds in one directory.
struct Here<'a> {
    fd: OwnedFd,
    path: RelPath,
    depth: usize,
    rules: Rules,
    /// Entries that are captured whatever the rules say.
    keep: Keep<'a>,
    /// The directory itself is left out by a rule: only what is kept is captured.
    only_kept: bool,
    cached: Option<CachedDir>,
    /// A time from before any of its entries was looked at.
    started_ns: i64,
    /// Some of it was read before and is counted already.
    is_counted: bool,
}

/// What a directory gave, without what is in the directories below.
#[derive(Default)]
struct Found {
    count: u64,
    bytes: u64,
    notes: Notes,
    /// Its block in the next cache.
    block: Option<Place>,
    /// How large that block is, with all those below it.
    block_bytes: u64,
    /// Something is not as the cache had it.
    fresh: bool,
    /// The directories below.
    below: Vec<Seen>,
    /// One for each entry, in their order.
    marks: Vec<again::Mark>,
}

/// What is to be reported about a directory.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    skipped: Vec<Skipped>,
    unsettled: Vec<RelPath>,
    warnings: Vec<String>,
}

/// What became of one name.
enum Item<'a> {
    /// Nothing is there any more.
    Gone,
    LeftOut(Vec<u8>, Why),
    Known(Known<'a>),
    /// A file to be read.
    File {
        name: Vec<u8>,
        facts: Facts,
    },
    /// A link, or a file of which no more is wanted than is known; or what was read before and is still there.
    Held(Box<Done>),
    /// A directory to be walked.
    Directory(Box<Folder<'a>>),
    /// A file and those that have the names of files beside a database of its name.
    Family(Box<Family<'a>>),
}

/// An entry that is as the cache had it. Most are: so it is small.
#[derive(Clone, Copy)]
struct Known<'a> {
    cached: CachedEntry<'a>,
    is_file: bool,
    /// Zero for a link.
    file_bytes: u64,
    mark: again::Mark,
}

/// A directory that is to be walked.
struct Folder<'a> {
    name: Vec<u8>,
    facts: Facts,
    cached: Option<CachedEntry<'a>>,
    /// The block of the directory in the cache, perhaps under another name.
    block: Option<Place>,
    only_kept: bool,
}

/// An item once its work is done.
struct Done {
    entry: Entry,
    facts: Facts,
    trusted: bool,
    unsettled: bool,
    below: Option<Seen>,
    fresh: bool,
    /// An ACL or a capability of it cannot be kept.
    odd: bool,
}

enum Outcome<'a> {
    Gone,
    LeftOut(Vec<u8>, Why),
    Known(Known<'a>),
    Done(Box<Done>),
    Several(Vec<Outcome<'a>>),
    /// Something that the user should know.
    Told(String),
}

impl<'a> Walk<'a> {
    fn new<S: ObjectSink + ObjectSource>(
        root: &Root,
        sink: &'a S,
        options: &ScanOptions<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        let ScanOptions { own, covered, what, cache, next, sidecars, copies, large, .. } = *options;
        Self {
            sink,
            source: sink,
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
            progress,
            clock: Clock::start(),
            lists_own_inode: AtomicBool::new(true),
        }
    }
}

impl Walk<'_> {
    fn root(&self, root: &Root, options: &ScanOptions<'_>) -> Result<Scan, WorkspaceError> {
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
        Ok(Scan { snapshot: Snapshot { root, coverage }, count, bytes, cache, warnings: notes.warnings })
    }

    /// The next cache; nothing where the last one is still right.
    fn next_cache(&self, seen: &Seen) -> Option<NextCache> {
        let wanted = seen.fresh || !self.next?.continues;
        let root = seen.block.filter(|_| wanted)?;
        Some(NextCache { root, live: seen.block_bytes })
    }
}

/// What to tell about files that are read each time.
fn reading_again(files: u64) -> Option<String> {
    let them = if files == 1 { "1 file" } else { &format!("{files} files") };
    let why = "of other users, or on a file system without leases";
    (files > 0).then(|| {
        format!("cannot rule out that programs write to {them} ({why}): every checkpoint reads them again")
    })
}

impl Found {
    /// Notes where the directory's block is.
    fn keep_block(&mut self, block: Option<Place>) {
        self.block = block;
        self.block_bytes += block.map_or(0, Place::bytes);
    }
}

/// What is told about something whose ACL or capability is not captured.
fn told_odd(path: &RelPath) -> String {
    format!("{path}: its ACL or capability is in an unknown form and is not captured")
}

fn unreadable(path: &RelPath, source: io::Error) -> WorkspaceError {
    WorkspaceError::Read { path: path.clone(), source }
}

/// Names from a directory listing are names; the model checks all the same.
pub(crate) fn join(above: &RelPath, name: &[u8]) -> Result<RelPath, WorkspaceError> {
    above.join(name).map_err(|error| unreadable(above, io::Error::other(error)))
}

#[cfg(test)]
mod tests;
