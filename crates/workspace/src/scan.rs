//! Captures a folder: one parallel walk by directory handles, reading only what the stat cache cannot vouch for.
//!
//! Comes in: a root, a sink for objects, rules and a cache. Goes out: a [`Snapshot`] whose objects are in the sink,
//! and the bytes of the next cache. A file that changes while it is read is read again; one that will not hold still is
//! captured as it was and said to be unsettled. After the walk every directory is compared again, see `again.rs`. What is left out is
//! listed with the reason.

mod again;
mod assemble;
mod database;
mod file;

use crate::cache::{CacheWriter, CachedDir, CachedEntry, NextCache, Place, StatCache};
use crate::error::WorkspaceError;
use crate::homes;
use crate::linux::{self, Attributes, Facts, Names};
use crate::root::{OWN_FOLDER, Root};
use crate::rules::{RULES_BYTES_MAX, RULES_FILE, Rules};
use crate::sqlite::{self, DatabaseCopies};
use crate::threads;
use again::{Clock, Seen, Stamp};
use database::{Family, Waiting};
use file::FileRead;
pub(crate) use file::is_out_of_handles;
use rayon::prelude::*;
use rustix::fd::OwnedFd;
use safepoint_model::content::Content;
use safepoint_model::coverage::{Coverage, Skipped, Why};
use safepoint_model::progress::Activity;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSink, ObjectSource, Progress, RelPath};
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Deeper nesting is left out, and said. Each level holds one open directory.
pub(crate) const DEPTH_MAX: usize = 4_000;
/// The first bytes of a `CACHEDIR.TAG` (bford.info/cachedir).
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The folder of a repository.
const GIT_FOLDER: &[u8] = b".git";

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

/// The directory of the tree to keep that answers to the one being walked. Read only when a rule leaves something out, which in
/// most directories none does.
struct Keep<'a> {
    above: Above<'a>,
    tree: OnceLock<Option<Tree>>,
}

/// Where a directory of the tree to keep is found.
enum Above<'a> {
    /// It is the root's.
    Root(Option<ObjectId>),
    Below(&'a Keep<'a>, &'a [u8]),
}

impl<'a> Keep<'a> {
    fn new(above: Above<'a>) -> Self {
        Self { above, tree: OnceLock::new() }
    }

    fn tree(&self, source: &dyn ObjectSource) -> Result<Option<&Tree>, ObjectError> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree.as_ref());
        }
        let id = match self.above {
            Above::Root(id) => id,
            Above::Below(above, name) => match above.entry(source, name)?.map(|entry| &entry.node) {
                Some(Node::Directory(tree)) => Some(*tree),
                _ => None,
            },
        };
        let tree = id.map(|id| Tree::load(source, id)).transpose()?;
        Ok(self.tree.get_or_init(|| tree).as_ref())
    }

    fn entry(&self, source: &dyn ObjectSource, name: &[u8]) -> Result<Option<&Entry>, ObjectError> {
        Ok(self.tree(source)?.and_then(|tree| tree.get(name)))
    }
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

/// A directory that is open, and was listed.
struct Opened {
    fd: OwnedFd,
    facts: Facts,
    /// A time from before the facts.
    looked_at_ns: i64,
    names: Names,
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

    /// Walks one directory, whose stamp is from before it was listed; the inner error says why it is left out as a whole.
    fn directory(
        &self,
        mut here: Here<'_>,
        names: &Names,
        stamp: Stamp,
    ) -> Result<Result<Seen, Why>, WorkspaceError> {
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        // Whatever it holds: what is acknowledged there must not vanish with a rollback here.
        if here.depth > 0 && self.what == What::Files && homes::is_home(&here.fd, names) {
            return Ok(Err(Why::OtherHome));
        }
        let mut found = Found::default();
        let ruling = match self.rule(&mut here, names, &mut found)? {
            Ok(ruling) => ruling,
            Err(why) => return Ok(Err(why)),
        };
        let last = here.cached.take();
        let mut cached = last.as_ref().map(CachedDir::entries);
        let mut items = Vec::with_capacity(names.len());
        let mut ahead: Option<CachedEntry<'_>> = None;
        let mut gone = Vec::new();
        for name in names.iter() {
            // Both lists are sorted, so one pass over each is enough.
            while ahead.as_ref().is_none_or(|ahead| ahead.name < name) {
                gone.extend(ahead.take().filter(CachedEntry::is_directory));
                match cached.as_mut().and_then(Iterator::next) {
                    Some(next) => ahead = Some(next),
                    None => break,
                }
            }
            let matching = ahead.take_if(|ahead| ahead.name == name);
            items.push(self.classify(&here, name, matching)?);
        }
        gone.extend(ahead.into_iter().chain(cached.into_iter().flatten()).filter(CachedEntry::is_directory));
        find_renamed(&mut items, gone);
        let beside = database::beside_others(names);
        if !beside.is_empty() {
            self.gather(&here, &mut items, &beside)?;
        }
        let outcomes = self.work(&here, items)?;
        let tree = self.collect(&here, outcomes, last.as_ref(), &mut found)?;
        Ok(Ok(Seen::new(tree, stamp, ruling, found)))
    }

    /// What holds in the directory by what is in it; the inner error says why it is left out as a whole.
    fn rule(
        &self,
        here: &mut Here<'_>,
        names: &Names,
        found: &mut Found,
    ) -> Result<Result<Ruling, Why>, WorkspaceError> {
        let outer = here.only_kept;
        if here.depth > 0 && self.what == What::Files && self.is_cache(here, names) && !here.only_kept {
            if here.keep.tree(self.source)?.is_none() && !self.covers(&here.path) {
                return Ok(Err(Why::CacheDirectory));
            }
            here.only_kept = true;
        }
        let file = self.read_rules(here, names, found);
        Ok(Ok(Ruling { only_kept: (outer, here.only_kept), file }))
    }

    /// Does what is left to do for the items: in parallel where there is more than one thing to do.
    fn work<'c>(&self, here: &Here<'_>, items: Vec<Item<'c>>) -> Result<Vec<Outcome<'c>>, WorkspaceError> {
        let busy =
            |item: &&Item<'_>| matches!(item, Item::File { .. } | Item::Directory(_) | Item::Family(_));
        if items.iter().filter(busy).count() > 1 {
            items.into_par_iter().map(|item| self.finish(here, item)).collect()
        } else {
            items.into_iter().map(|item| self.finish(here, item)).collect()
        }
    }

    fn is_cache(&self, here: &Here<'_>, names: &Names) -> bool {
        let tag: &[u8] = b"CACHEDIR.TAG";
        names.find(tag).is_some()
            && read_start(&here.fd, tag, CACHE_SIGNATURE.len() as u64)
                .is_ok_and(|start| start == CACHE_SIGNATURE)
    }

    /// Adds the rules of the directory's own file, if it has one.
    fn read_rules(&self, here: &mut Here<'_>, names: &Names, found: &mut Found) -> Option<Box<RulesFile>> {
        if self.what == What::Git || names.find(RULES_FILE).is_none() {
            return None;
        }
        let facts = linux::facts_at(&here.fd, RULES_FILE).ok();
        match read_start(&here.fd, RULES_FILE, RULES_BYTES_MAX) {
            Ok(text) => {
                let (rules, problems) = here.rules.with_file(&here.path, &text);
                here.rules = rules;
                found.notes.warnings.extend(problems);
            }
            Err(error) => found.notes.warnings.push(format!("{}/.safepointignore: {error}", here.path)),
        }
        Some(Box::new(RulesFile { facts, rules: here.rules.clone() }))
    }

    /// Looks at one name and decides what it takes.
    fn classify<'c>(
        &self,
        here: &Here<'_>,
        name: &[u8],
        cached: Option<CachedEntry<'c>>,
    ) -> Result<Item<'c>, WorkspaceError> {
        let facts = match linux::facts_if_any(&here.fd, name) {
            Ok(Some(facts)) => facts,
            Ok(None) => return Ok(Item::Gone),
            Err(_) => return Ok(Item::left_out(name, Why::Unreadable)),
        };
        let kind = facts.file_type;
        let is_git = kind.is_dir() && name == GIT_FOLDER;
        match (self.what, here.depth) {
            (What::Git, 0) if !is_git => return Ok(Item::Gone),
            (What::Git, 0) => {}
            _ if is_git => return Ok(Item::left_out(name, Why::Git)),
            _ => {}
        }
        let is_own = name == OWN_FOLDER.as_bytes()
            || (!self.own.is_empty() && self.own.contains(&join(&here.path, name)?));
        if kind.is_dir() && is_own {
            return Ok(Item::left_out(name, Why::OwnFolder));
        }
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            return Ok(Item::left_out(name, Why::SpecialFile));
        }
        if facts.place != self.place {
            return Ok(Item::left_out(name, Why::MountPoint));
        }
        let ruled_out = here.only_kept
            || (!here.rules.is_empty() && here.rules.leave_out(&join(&here.path, name)?, kind.is_dir()));
        if ruled_out
            && here.keep.entry(self.source, name)?.is_none()
            && !self.covers(&join(&here.path, name)?)
        {
            return Ok(Item::left_out(name, Why::Ignored));
        }
        if kind.is_dir() {
            let block = cached.and_then(|cached| cached.block());
            let folder = Folder { name: name.to_vec(), facts, cached, block, only_kept: ruled_out };
            return Ok(Item::Directory(Box::new(folder)));
        }
        match cached.filter(|cached| cached.is_hit(&facts)) {
            Some(cached) => {
                let file_bytes = if kind.is_file() { facts.size } else { 0 };
                let mark = self.clock.mark(&facts, true);
                Ok(Item::Known(Known { cached, is_file: kind.is_file(), file_bytes, mark }))
            }
            None if kind.is_symlink() => Ok(self.link(here, name.to_vec(), facts)),
            None => self.unknown_file(here, name.to_vec(), facts),
        }
    }

    /// A file that the cache does not vouch for.
    fn unknown_file<'c>(
        &self,
        here: &Here<'_>,
        name: Vec<u8>,
        facts: Facts,
    ) -> Result<Item<'c>, WorkspaceError> {
        if facts.disk_bytes < LARGE_FILE_BYTES || matches!(self.large, LargeFiles::Read) {
            return Ok(Item::File { name, facts });
        }
        // A database goes with what lies beside it.
        let beside = sqlite::SIDECARS.iter().any(|ending| name.ends_with(ending));
        if beside || sqlite::is_database_at(&here.fd, &name) {
            return Ok(Item::File { name, facts });
        }
        match self.large {
            LargeFiles::Read => Ok(Item::File { name, facts }),
            LargeFiles::Within(chosen) => {
                let path = join(&here.path, &name)?;
                match chosen.iter().any(|chosen| path.is_within(chosen)) {
                    true => Ok(Item::File { name, facts }),
                    false => Ok(Item::LeftOut(name, Why::NotChosen)),
                }
            }
            LargeFiles::InDoubt => match here.keep.entry(self.source, &name)?.map(|entry| &entry.node) {
                Some(Node::File(content)) if content.size == facts.size => Ok(Item::File { name, facts }),
                _ => Ok(self.unread_file(here, name, facts)),
            },
        }
    }

    /// A file of which only the size is told.
    fn unread_file<'c>(&self, here: &Here<'_>, name: Vec<u8>, facts: Facts) -> Item<'c> {
        let look = || {
            let fd = linux::open_file(&here.fd, &name)?;
            let facts = linux::facts_of(&fd)?;
            Ok::<_, io::Error>((facts, linux::read_meta(&fd, &facts)?.meta))
        };
        match look() {
            Ok((facts, meta)) if facts.file_type.is_file() => {
                let node = Node::File(Content::unread(facts.size));
                Item::held(Entry { name, meta, node }, facts, false, (None, false))
            }
            // Reading it tells what is the matter.
            _ => Item::File { name, facts },
        }
    }

    /// Whether the rollback that is undone changed this path, or one below it.
    fn covers(&self, path: &RelPath) -> bool {
        let from = |bytes: &[u8]| self.covered.partition_point(|covered| covered.as_bytes() < bytes);
        let is_within = |at: usize| self.covered.get(at).is_some_and(|covered| covered.is_within(path));
        // Other names may stand between a folder and what is in it: `a`, `a-b`, `a/b`.
        !self.covered.is_empty()
            && (is_within(from(path.as_bytes())) || is_within(from(&[path.as_bytes(), b"/"].concat())))
    }

    fn link<'c>(&self, here: &Here<'_>, name: Vec<u8>, facts: Facts) -> Item<'c> {
        let started = file::now_ns();
        match linux::read_link(&here.fd, &name) {
            Ok(target) => {
                let meta = Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, ..Meta::default() };
                let entry = Entry { name, meta, node: Node::Symlink(target) };
                Item::held(entry, facts, file::is_old_enough(&facts, started), (None, false))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Item::Gone,
            Err(_) => Item::LeftOut(name, Why::Unreadable),
        }
    }

    fn finish<'c>(&self, here: &Here<'_>, item: Item<'c>) -> Result<Outcome<'c>, WorkspaceError> {
        match item {
            Item::Gone => Ok(Outcome::Gone),
            Item::LeftOut(name, why) => Ok(Outcome::LeftOut(name, why)),
            Item::Known(known) => Ok(Outcome::Known(known)),
            Item::File { name, .. } => self.file(here, name),
            Item::Family(family) => self.family(here, *family),
            Item::Held(done) => Ok(Outcome::Done(done)),
            Item::Directory(folder) => self.subdirectory(here, *folder),
        }
    }

    fn file<'c>(&self, here: &Here<'_>, name: Vec<u8>) -> Result<Outcome<'c>, WorkspaceError> {
        match file::read(self.sink, &here.fd, &name)? {
            FileRead::Gone => Ok(Outcome::Gone),
            FileRead::Unreadable => Ok(Outcome::LeftOut(name, Why::Unreadable)),
            FileRead::Database => self.database(here, &name),
            // Replaced while we looked: look once more, at what it is now.
            FileRead::AnotherType => match self.classify(here, &name, None)? {
                Item::File { .. } => Ok(Outcome::LeftOut(name, Why::Unreadable)),
                item => self.finish(here, item),
            },
            FileRead::Read { content, meta, facts, trusted, settled, unproven, odd } => {
                self.unproven.fetch_add(u64::from(unproven), Ordering::Relaxed);
                let entry = Entry { name, meta, node: Node::File(content) };
                Ok(Outcome::Done(Box::new(Done {
                    entry,
                    facts,
                    trusted,
                    unsettled: !settled,
                    below: None,
                    fresh: true,
                    odd,
                })))
            }
        }
    }

    /// Opens and lists a directory. Its facts are from before the listing, and of the directory that is open: another one may have taken
    /// the name since it was classified.
    ///
    /// The listing tells the inode, which saves a look at each directory. Equal inodes are enough: either it is the same directory, or the
    /// one that was classified is gone for good, and then no later look takes the one that is open for it.
    fn open_listed(&self, here: &Here<'_>, folder: &Folder<'_>, started_ns: i64) -> io::Result<Opened> {
        if self.lists_own_inode.load(Ordering::Relaxed) {
            let fd = linux::open_dir(&here.fd, &folder.name)?;
            let names = linux::names(&fd)?;
            if names.own_inode == Some(folder.facts.ino) {
                return Ok(Opened { fd, facts: folder.facts, looked_at_ns: here.started_ns, names });
            }
            // Either another directory, or a file system that gives other inodes in listings.
            self.lists_own_inode.store(false, Ordering::Relaxed);
        }
        let fd = linux::open_dir(&here.fd, &folder.name)?;
        let facts = linux::facts_of(&fd)?;
        let names = linux::names(&fd)?;
        Ok(Opened { fd, facts, looked_at_ns: started_ns, names })
    }

    fn subdirectory<'c>(&self, here: &Here<'_>, folder: Folder<'c>) -> Result<Outcome<'c>, WorkspaceError> {
        if here.depth >= DEPTH_MAX {
            return Ok(Outcome::LeftOut(folder.name, Why::TooDeep));
        }
        let started_ns = file::now_ns();
        let Opened { fd, facts, looked_at_ns, names } = match self.open_listed(here, &folder, started_ns) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Outcome::Gone),
            Err(error) if is_out_of_handles(&error) => {
                return Err(unreadable(&join(&here.path, &folder.name)?, error));
            }
            Err(_) => return Ok(Outcome::LeftOut(folder.name, Why::Unreadable)),
        };
        let Folder { name, cached, block, only_kept, .. } = folder;
        let known = cached.filter(|cached| cached.is_hit(&facts)).and_then(|cached| cached.entry());
        let fresh_meta = known.is_none();
        let Attributes { meta, odd } = match known {
            Some(entry) => Attributes { meta: entry.meta, odd: false },
            None => match linux::read_meta(&fd, &facts) {
                Ok(read) => read,
                Err(_) => return Ok(Outcome::LeftOut(name, Why::Unreadable)),
            },
        };
        let below = Here {
            fd,
            path: join(&here.path, &name)?,
            depth: here.depth + 1,
            rules: here.rules.clone(),
            keep: Keep::new(Above::Below(&here.keep, &name)),
            only_kept,
            cached: block.and_then(|block| self.cache?.block(block)),
            started_ns,
            is_counted: false,
        };
        match self.directory(below, &names, Stamp::new(&self.clock, &facts, looked_at_ns))? {
            Err(why) => Ok(Outcome::LeftOut(name, why)),
            Ok(mut below) => {
                below.name = name.as_slice().into();
                let entry = Entry { name, meta, node: Node::Directory(below.tree) };
                let trusted = file::is_old_enough(&facts, looked_at_ns);
                let fresh = fresh_meta || below.fresh;
                Ok(Outcome::Done(Box::new(Done {
                    entry,
                    facts,
                    trusted,
                    unsettled: false,
                    below: Some(below),
                    fresh,
                    odd,
                })))
            }
        }
    }
}

/// What decided which entries of a directory are captured.
#[derive(PartialEq)]
struct Ruling {
    /// Only what is kept is captured: by what is above, and by what is in it.
    only_kept: (bool, bool),
    file: Option<Box<RulesFile>>,
}

impl Ruling {
    /// The rules inside, where these hold outside.
    fn rules<'r>(&'r self, outside: &'r Rules) -> &'r Rules {
        self.file.as_ref().map_or(outside, |file| &file.rules)
    }
}

/// The file of rules in a directory, and the rules that hold with it.
struct RulesFile {
    facts: Option<Facts>,
    rules: Rules,
}

impl PartialEq for RulesFile {
    fn eq(&self, other: &Self) -> bool {
        self.facts.is_some() && self.facts == other.facts
    }
}

/// A directory that the cache does not have under its name may be one that it has under a name that is gone: what is in it is known
/// then, as long as its own facts agree. The directory itself counts as new.
fn find_renamed(items: &mut [Item<'_>], mut gone: Vec<CachedEntry<'_>>) {
    if gone.is_empty() {
        return;
    }
    gone.sort_by_key(CachedEntry::inode);
    for item in items {
        if let Item::Directory(folder) = item
            && folder.cached.is_none()
            && let Ok(at) = gone.binary_search_by_key(&folder.facts.ino, CachedEntry::inode)
        {
            folder.block = gone[at].block();
        }
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

impl Item<'_> {
    fn left_out(name: &[u8], why: Why) -> Self {
        Item::LeftOut(name.to_vec(), why)
    }
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

/// The first bytes of a regular file.
fn read_start(dir: &OwnedFd, name: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    let fd = linux::open_file(dir, name)?;
    if !linux::facts_of(&fd)?.file_type.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut start = Vec::new();
    std::fs::File::from(fd).take(bytes_max).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests;
