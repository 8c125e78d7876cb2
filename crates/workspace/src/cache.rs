//! Stat cache of a workspace: the facts of each entry when its content was last read.
//!
//! Input: a file of blocks and the position of the root block; during a walk, one directory at a time.
//! Output: the old tree entry of each entry whose facts are unchanged. Losing the cache costs only time, and
//! a damaged block counts as missing.
//!
//! Each block describes one directory. A reference to a block contains its offset, length and hash, so the
//! root reference authenticates the whole cache. Each block is read and checked when the walk reaches its
//! directory. Blocks never change. The next cache appends blocks for changed directories, up to the root, and
//! starts a new file once more bytes are dead than live.
//!
//! A block holds the tree id of the directory and the number of entries. Each entry has its facts, two
//! lengths, the reference to its block if it is a directory, its name, and the entry in tree encoding.

use crate::Root;
use crate::linux::{Facts, facts_at, open_dir, open_file};
use rustix::buffer::spare_capacity;
use rustix::fs::FileType;
use rustix::io::Errno;
use safepoint_model::ObjectId;
use safepoint_model::content::{Content, Form, WHOLE_BYTES_MAX};
use safepoint_model::tree::{Entry, Node, Tree};
use safepoint_planted::planted;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

const TREE_BYTES: usize = 32;
const SUM_BYTES: usize = 16;
const HEAD_BYTES: usize = TREE_BYTES + 8;
/// Inode, size, both times; type and mode, owner, group.
const FACTS_BYTES: usize = 4 * 8 + 3 * 4;
const PLACE_BYTES: usize = 8 + 4 + SUM_BYTES;
/// Bit of the lengths that marks a block reference.
const HAS_BLOCK: u64 = 1 << 63;
/// Size of the write buffer.
const BUFFER_BYTES: usize = 1 << 20;
/// Dead bytes that are always allowed.
const SLACK_BYTES: u64 = 1 << 20;

/// Position and hash of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    offset: u64,
    len: u32,
    sum: [u8; SUM_BYTES],
}

impl Place {
    /// Returns the size of the block in the file.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.len)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.sum);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let sum = rest.first_chunk::<SUM_BYTES>()?;
        Some(Self { offset: u64::from_le_bytes(*offset), len: u32::from_le_bytes(*len), sum: *sum })
    }
}

/// Entries that are compared to recognise a folder.
const COMPARED_MAX: u32 = 1024;

/// Result of comparing a folder with a cache.
#[derive(Default)]
struct Evidence {
    /// Entries that are the same.
    same: u64,
    /// Entries that could be told apart.
    all: u64,
}

/// Returns true if a file has the size, modification time and, where it is small, the bytes of the cached one.
fn same_content(cached: &CachedEntry<'_>, facts: &Facts, folder: BorrowedFd<'_>) -> bool {
    let Some(Entry { meta, node: Node::File(content), .. }) = cached.entry() else { return false };
    if (content.size, meta.mtime_ns) != (facts.size, facts.mtime_ns) {
        return false;
    }
    if content.form != Form::Whole || content.size > WHOLE_BYTES_MAX {
        return true;
    }
    let mut bytes = Vec::new();
    let read = open_file(folder, cached.name)
        .and_then(|file| File::from(file).take(WHOLE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.is_ok() && Content::whole(&bytes) == content
}

fn sum_of(block: &[u8]) -> [u8; SUM_BYTES] {
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&blake3::hash(block).as_bytes()[..SUM_BYTES]);
    sum
}

/// Root reference and sizes of a file of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHead {
    root: Place,
    /// Offset of the next block.
    end: u64,
    /// Live bytes in the file.
    live: u64,
}

impl fmt::Display for CacheHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { offset, len, sum } = self.root;
        let sum = u128::from_le_bytes(sum);
        write!(f, "{offset} {len} {sum} {} {}", self.end, self.live)
    }
}

/// Error for a text that is no cache head.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid stat cache head")]
pub struct NoCacheHead;

impl FromStr for CacheHead {
    type Err = NoCacheHead;

    fn from_str(text: &str) -> Result<Self, NoCacheHead> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(NoCacheHead);
        let (offset, len, sum, end, live) = (word()?, word()?, word()?, word()?, word()?);
        let number = |word: &str| word.parse::<u64>().map_err(|_| NoCacheHead);
        let sum = sum.parse::<u128>().map_err(|_| NoCacheHead)?.to_le_bytes();
        let len = len.parse().map_err(|_| NoCacheHead)?;
        let root = Place { offset: number(offset)?, len, sum };
        Ok(Self { root, end: number(end)?, live: number(live)? })
    }
}

/// Stat cache that the last capture left.
#[derive(Debug)]
pub struct StatCache {
    file: File,
    head: CacheHead,
}

impl StatCache {
    /// Opens the cache in a file of blocks.
    pub fn new(file: File, head: CacheHead) -> Self {
        Self { file, head }
    }

    /// Returns true if more of the file is dead than live.
    pub fn is_worn(&self) -> bool {
        self.head.end > 2 * self.head.live + SLACK_BYTES
    }

    /// Returns true if a folder holds the files that this cache was made of: at least half of the entries are there, unchanged since the
    /// capture (inode, size and times), or with the same content and modification time. A folder that was moved with `mv` keeps both; an
    /// inode alone proves nothing, because a file system gives that of a deleted file to a new one.
    pub fn describes(&self, folder: &Root) -> bool {
        let Some(cached) = self.root() else { return false };
        let mut left = COMPARED_MAX;
        let evidence = self.compare(&cached, folder.fd(), &mut left);
        evidence.same > 0 && 2 * evidence.same >= evidence.all
    }

    fn compare(&self, cached: &CachedDir, folder: BorrowedFd<'_>, left: &mut u32) -> Evidence {
        let mut evidence = Evidence::default();
        for entry in cached.entries() {
            if *left == 0 {
                break;
            }
            *left -= 1;
            let same = match facts_at(folder, entry.name) {
                Err(_) => Some(false),
                Ok(facts) if entry.is_hit(&facts) => Some(true),
                Ok(facts) => match (entry.block().and_then(|place| self.block(place)), facts.file_type) {
                    (Some(below), FileType::Directory) => {
                        open_dir(folder, entry.name).map_or(Some(false), |dir| {
                            let below = self.compare(&below, dir.as_fd(), left);
                            (below.all > 0).then_some(2 * below.same >= below.all)
                        })
                    }
                    (None, FileType::RegularFile) => Some(same_content(&entry, &facts, folder)),
                    // Links and empty folders are alike everywhere.
                    (None, FileType::Directory | FileType::Symlink) => None,
                    _ => Some(false),
                },
            };
            evidence.all += u64::from(same.is_some());
            evidence.same += u64::from(same == Some(true));
        }
        evidence
    }

    pub(crate) fn root(&self) -> Option<CachedDir> {
        self.block(self.head.root)
    }

    /// Returns the block of a directory if its hash matches.
    pub(crate) fn block(&self, place: Place) -> Option<CachedDir> {
        let end = place.offset.checked_add(u64::from(place.len))?;
        if end > self.head.end || (place.len as usize) < HEAD_BYTES {
            return None;
        }
        let bytes = self.read(place)?;
        (sum_of(&bytes) == place.sum).then_some(CachedDir { place, bytes })
    }

    /// Reads into uninitialized memory: zeroing all blocks would take a twentieth of an unchanged walk.
    fn read(&self, place: Place) -> Option<Vec<u8>> {
        let len = place.len as usize;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = place.offset.checked_add(bytes.len() as u64)?;
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => return None,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        bytes.truncate(len);
        Some(bytes)
    }
}

/// Directory in the cache.
pub(crate) struct CachedDir {
    pub(crate) place: Place,
    bytes: Vec<u8>,
}

impl CachedDir {
    /// Returns the tree id of the directory.
    pub(crate) fn tree(&self) -> ObjectId {
        let mut tree = [0; TREE_BYTES];
        tree.copy_from_slice(&self.bytes[..TREE_BYTES]);
        ObjectId::from_bytes(tree)
    }

    /// Returns the number of entries.
    pub(crate) fn count(&self) -> u64 {
        number(&self.bytes, TREE_BYTES).unwrap_or(0)
    }

    /// Returns the entries, sorted by name.
    pub(crate) fn entries(&self) -> CachedEntries<'_> {
        CachedEntries { bytes: &self.bytes, at: HEAD_BYTES, left: self.count() }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let raw: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(raw))
}

/// Iterator over cached entries, read front to back in step with the real directory.
pub(crate) struct CachedEntries<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u64,
}

/// Entry in the cache.
#[derive(Clone, Copy)]
pub(crate) struct CachedEntry<'a> {
    pub(crate) name: &'a [u8],
    facts: &'a [u8; FACTS_BYTES],
    entry_bytes: &'a [u8],
    /// Encoded reference to its block.
    block: Option<&'a [u8; PLACE_BYTES]>,
}

impl<'a> Iterator for CachedEntries<'a> {
    type Item = CachedEntry<'a>;

    fn next(&mut self) -> Option<CachedEntry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut take = |len: usize| {
            let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
            self.at += len;
            Some(taken)
        };
        let facts = take(FACTS_BYTES)?.first_chunk()?;
        let lengths = number(take(8)?, 0)?;
        let block = if lengths & HAS_BLOCK == 0 { None } else { Some(take(PLACE_BYTES)?.first_chunk()?) };
        let lengths = lengths & !HAS_BLOCK;
        let name = take((lengths & 0xffff) as usize)?;
        let entry_bytes = take((lengths >> 16) as usize)?;
        Some(CachedEntry { name, facts, entry_bytes, block })
    }
}

fn packed(facts: &Facts) -> [u8; FACTS_BYTES] {
    let kind = match facts.file_type {
        FileType::RegularFile => 1u32,
        FileType::Directory => 2,
        FileType::Symlink => 3,
        _ => 0,
    };
    let mut out = [0; FACTS_BYTES];
    let wide = [facts.ino, facts.size, facts.mtime_ns.cast_unsigned(), facts.ctime_ns.cast_unsigned()];
    for (slot, fact) in out.chunks_exact_mut(8).zip(wide) {
        slot.copy_from_slice(&fact.to_le_bytes());
    }
    let narrow = [kind << 16 | u32::from(facts.mode), facts.uid, facts.gid];
    for (slot, fact) in out[32..].chunks_exact_mut(4).zip(narrow) {
        slot.copy_from_slice(&fact.to_le_bytes());
    }
    out
}

impl CachedEntry<'_> {
    /// Returns true if the entry is unchanged. A change of mode, owner or attributes also changes ctime.
    pub(crate) fn is_hit(&self, facts: &Facts) -> bool {
        let now = packed(facts);
        if planted!("cache-ignores-the-change-time") {
            return self.facts[..24] == now[..24] && self.facts[32..] == now[32..];
        }
        *self.facts == now || planted!("cache-believes-anything")
    }

    /// Decodes the cached entry.
    pub(crate) fn entry(&self) -> Option<Entry> {
        Tree::decode(self.entry_bytes).ok()?.into_entries().pop()
    }

    /// Returns true if the entry is a directory with a block in the cache.
    pub(crate) fn is_directory(&self) -> bool {
        self.block.is_some()
    }

    /// Inode, or `u64::MAX` if untrusted.
    pub(crate) fn inode(&self) -> u64 {
        number(self.facts, 0).unwrap_or(u64::MAX)
    }

    /// Returns the block reference of a directory, even if the directory itself changed.
    pub(crate) fn block(&self) -> Option<Place> {
        self.block.and_then(|place| Place::read(place))
    }
}

/// Directory of the next cache.
pub(crate) struct Block {
    bytes: Vec<u8>,
    count: u64,
}

impl Block {
    pub(crate) fn new(entries: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + entries * 160);
        bytes.resize(HEAD_BYTES, 0);
        Self { bytes, count: 0 }
    }

    /// Records an entry. An untrusted entry gets facts that never match.
    pub(crate) fn note(&mut self, entry: &Entry, facts: &Facts, trusted: bool, block: Option<Place>) {
        let facts = if trusted { packed(facts) } else { [u8::MAX; FACTS_BYTES] };
        self.record(&entry.name, &facts, &Tree::single(entry), block);
    }

    /// Copies an entry from the old cache.
    pub(crate) fn copy(&mut self, entry: &CachedEntry<'_>) {
        self.record(entry.name, entry.facts, entry.entry_bytes, entry.block());
    }

    fn record(&mut self, name: &[u8], facts: &[u8], entry: &[u8], block: Option<Place>) {
        self.bytes.extend_from_slice(facts);
        let flag = if block.is_some() { HAS_BLOCK } else { 0 };
        let lengths = name.len() as u64 | ((entry.len() as u64) << 16) | flag;
        self.bytes.extend_from_slice(&lengths.to_le_bytes());
        if let Some(block) = block {
            block.write(&mut self.bytes);
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(entry);
        self.count += 1;
    }

    fn into_bytes(mut self, tree: ObjectId) -> Vec<u8> {
        self.bytes[..TREE_BYTES].copy_from_slice(tree.as_bytes());
        self.bytes[TREE_BYTES..HEAD_BYTES].copy_from_slice(&self.count.to_le_bytes());
        self.bytes
    }
}

/// Writer of the next cache, shared by many threads.
#[derive(Debug)]
pub struct CacheWriter {
    pending: Mutex<Pending>,
    /// True if this writer appends to the blocks of the last cache.
    pub(crate) continues: bool,
}

#[derive(Debug)]
struct Pending {
    file: File,
    /// File offset of the buffer.
    at: u64,
    buffer: Vec<u8>,
    /// First write error; it invalidates the next cache.
    broken: Option<io::Error>,
}

impl CacheWriter {
    /// Starts a cache in an empty file.
    pub fn anew(file: File) -> Self {
        Self::at(file, 0, false)
    }

    /// Appends changes to the file of `cache`. `file` is the same file, open for writing.
    pub fn after(file: File, cache: &StatCache) -> Self {
        Self::at(file, cache.head.end, true)
    }

    fn at(file: File, at: u64, continues: bool) -> Self {
        let pending = Pending { file, at, buffer: Vec::new(), broken: None };
        Self { pending: Mutex::new(pending), continues }
    }

    /// Appends a block and returns its reference.
    pub(crate) fn append(&self, block: Block, tree: ObjectId) -> Option<Place> {
        let bytes = block.into_bytes(tree);
        let (len, sum) = (u32::try_from(bytes.len()).ok()?, sum_of(&bytes));
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = pending.at + pending.buffer.len() as u64;
        pending.buffer.extend_from_slice(&bytes);
        if pending.buffer.len() >= BUFFER_BYTES {
            pending.flush();
        }
        Some(Place { offset, len, sum })
    }

    fn finish(self, root: Place, live: u64) -> io::Result<CacheHead> {
        let mut pending = self.pending.into_inner().unwrap_or_else(PoisonError::into_inner);
        pending.flush();
        match pending.broken {
            Some(error) => Err(error),
            None => Ok(CacheHead { root, end: pending.at, live }),
        }
    }
}

impl Pending {
    fn flush(&mut self) {
        match self.file.write_all_at(&self.buffer, self.at) {
            Ok(()) => self.at += self.buffer.len() as u64,
            Err(error) => self.broken = Some(error),
        }
        self.buffer.clear();
    }
}

/// Stat cache for the next capture; all its blocks are appended.
#[derive(Debug, Clone, Copy)]
pub struct NextCache {
    pub(crate) root: Place,
    pub(crate) live: u64,
}

impl NextCache {
    /// Writes the remaining blocks and returns the head.
    ///
    /// # Errors
    /// Fails if a block cannot be written; then there is no next cache.
    pub fn finish(self, writer: CacheWriter) -> io::Result<CacheHead> {
        writer.finish(self.root, self.live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::tree::Meta;

    fn facts(ino: u64) -> Facts {
        let file_type = FileType::RegularFile;
        Facts {
            file_type,
            mode: 0o644,
            uid: 1,
            gid: 2,
            ino,
            names: 1,
            size: 3,
            disk_bytes: 0,
            mtime_ns: -4,
            ctime_ns: 5,
            born_ns: 6,
            place: (0, 0, 0),
            is_whiteout: false,
        }
    }

    fn entry(name: &str) -> Entry {
        let meta = Meta { mode: 0o644, uid: 1, gid: 2, ..Meta::default() };
        Entry { name: name.into(), meta, node: Node::File(Content::whole(b"abc")) }
    }

    fn tree(number: u8) -> ObjectId {
        ObjectId::from_bytes([number; 32])
    }

    /// Writes a cache of a root with one directory.
    fn sample(writer: CacheWriter) -> CacheHead {
        let mut child = Block::new(1);
        child.note(&entry("inside"), &facts(7), true, None);
        let child = writer.append(child, tree(9)).unwrap();
        let mut root = Block::new(3);
        let mut dir = entry("dir");
        dir.node = Node::Directory(tree(9));
        root.note(&dir, &Facts { file_type: FileType::Directory, ..facts(1) }, true, Some(child));
        root.note(&entry("racy"), &facts(2), false, None);
        root.note(&entry("settled"), &facts(3), true, None);
        let root = writer.append(root, tree(8)).unwrap();
        let live = u64::from(root.len) + u64::from(child.len);
        NextCache { root, live }.finish(writer).unwrap()
    }

    fn file() -> File {
        tempfile::tempfile().unwrap()
    }

    fn cache() -> StatCache {
        let file = file();
        let head = sample(CacheWriter::anew(file.try_clone().unwrap()));
        StatCache::new(file, head)
    }

    #[test]
    fn what_was_noted_is_found_and_the_racy_is_not_trusted() {
        let cache = cache();
        let root = cache.root().unwrap();
        assert_eq!((root.tree(), root.count()), (tree(8), 3));
        let entries: Vec<_> = root.entries().collect();
        assert_eq!(entries.len(), 3);
        let below = cache.block(entries[0].block().unwrap()).unwrap();
        assert_eq!(below.tree(), tree(9));
        let inside = below.entries().next().unwrap();
        assert!(inside.is_hit(&facts(7)));
        assert_eq!(inside.entry().unwrap(), entry("inside"));
        assert!(!entries[1].is_hit(&facts(2)));
        assert_eq!(entries[2].entry().unwrap(), entry("settled"));
        assert!(entries[2].block().is_none());
    }

    /// Entries that changed shortly before a capture have no recorded inode, and names alone prove nothing.
    #[test]
    fn a_folder_is_recognised_by_content_and_never_by_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("racy");
        let write = |content: &[u8], mtime: i64| {
            std::fs::write(&path, content).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(mtime.unsigned_abs());
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            Root::open(folder.path()).unwrap()
        };
        let cache_of = |inode: u64, trusted: bool| {
            let file = file();
            let writer = CacheWriter::anew(file.try_clone().unwrap());
            let mut block = Block::new(1);
            let mut kept = entry("racy");
            kept.meta.mtime_ns = 5_000;
            block.note(&kept, &facts(inode), trusted, None);
            let root = writer.append(block, tree(1)).unwrap();
            let head = NextCache { root, live: u64::from(root.len) }.finish(writer).unwrap();
            StatCache::new(file, head)
        };
        let cache = cache_of(1, false);
        assert!(cache.describes(&write(b"abc", 5_000)), "the same content and time");
        assert!(!cache.describes(&write(b"abd", 5_000)), "another content");
        assert!(!cache.describes(&write(b"abc", 6_000)), "written again, as by a checkout");
        assert!(!cache.describes(&write(b"abcd", 5_000)), "another size");
        // A file system gives the inode of a deleted file to a new one.
        let root = write(b"xyz", 6_000);
        let inode = facts_at(root.fd(), b"racy").unwrap().ino;
        assert!(!cache_of(inode, true).describes(&root), "an inode alone");
    }

    #[test]
    fn any_changed_fact_is_a_miss() {
        let cache = cache();
        let root = cache.root().unwrap();
        let settled = root.entries().nth(2).unwrap();
        let good = facts(3);
        assert!(settled.is_hit(&good));
        for changed in [
            Facts { ino: 4, ..good },
            Facts { size: 4, ..good },
            Facts { mtime_ns: 4, ..good },
            Facts { ctime_ns: 4, ..good },
            Facts { mode: 0o600, ..good },
            Facts { uid: 4, ..good },
            Facts { gid: 4, ..good },
            Facts { file_type: FileType::Symlink, ..good },
        ] {
            assert!(!settled.is_hit(&changed), "{changed:?}");
        }
    }

    #[test]
    fn a_damaged_block_is_none_and_so_is_one_that_is_not_there() {
        let StatCache { file, head } = cache();
        let all = {
            let mut all = vec![0; head.end as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        let is_whole = |file: &File| {
            let cache = StatCache::new(file.try_clone().unwrap(), head);
            let root = cache.root();
            let place = root.and_then(|root| root.entries().next()?.block());
            place.and_then(|place| cache.block(place)).is_some()
        };
        assert!(is_whole(&file));
        for at in 0..all.len() as u64 {
            file.write_all_at(&[all[at as usize] ^ 1], at).unwrap();
            assert!(!is_whole(&file), "byte {at}");
            file.write_all_at(&[all[at as usize]], at).unwrap();
        }
        file.set_len(head.end - 1).unwrap();
        assert!(!is_whole(&file));
        let cache = StatCache::new(file, head);
        for place in [
            Place { offset: u64::MAX, ..head.root },
            Place { offset: head.end, ..head.root },
            Place { len: 8, ..head.root },
        ] {
            assert!(cache.block(place).is_none(), "{place:?}");
        }
    }

    #[test]
    fn the_next_one_goes_on_behind_the_last_until_that_is_worn() {
        let mut cache = cache();
        let mut times = 0;
        while !cache.is_worn() {
            let file = cache.file.try_clone().unwrap();
            let writer = CacheWriter::after(file, &cache);
            let mut root = Block::new(1);
            let old = cache.root().unwrap();
            old.entries().for_each(|entry| root.copy(&entry));
            root.note(&entry(&"z".repeat(200)), &facts(times), true, None);
            let root = writer.append(root, tree(7)).unwrap();
            let head = NextCache { root, live: cache.head.live }.finish(writer).unwrap();
            cache = StatCache::new(cache.file, head);
            let root = cache.root().unwrap();
            let kept = cache.block(root.entries().next().unwrap().block().unwrap()).unwrap();
            assert!(kept.entries().next().unwrap().is_hit(&facts(7)), "unchanged blocks stay in place");
            times += 1;
        }
        assert!(times > 10, "{times}");
    }

    #[test]
    fn what_cannot_be_written_is_no_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read-only");
        File::create(&path).unwrap();
        let writer = CacheWriter::anew(File::open(&path).unwrap());
        let mut block = Block::new(1);
        block.note(&entry("a"), &facts(1), true, None);
        let root = writer.append(block, tree(1)).unwrap();
        assert!(NextCache { root, live: 1 }.finish(writer).is_err());
    }

    #[test]
    fn a_head_is_read_as_it_is_written_and_nothing_else_is() {
        let head = cache().head;
        let text = head.to_string();
        assert_eq!(text.parse(), Ok(head));
        for wrong in ["", "1 2 3 4", "1 2 3 4 x", "x 2 3 4 5", "1 99999999999 3 4 5", "1 2 -3 4 5"] {
            assert_eq!(wrong.parse::<CacheHead>(), Err(NoCacheHead), "{wrong}");
        }
    }
}
