//! The stat cache of a workspace: what each entry was when its content was last read.
//!
//! Comes in: the bytes of a cache file, and during a walk one directory at a time. Goes out: for each entry whose
//! facts are unchanged, the tree entry that it had. It is a cache: losing it loses time only, and a file whose checksum
//! does not match is as good as none. The file is read whole and used in place, not parsed.
//!
//! Layout: magic, token, offset of the root's block, blocks, BLAKE3 of all before. A block is one directory:
//! its tree's id and the number of its entries, then per entry the facts, the offset of its block if it is a directory, two lengths,
//! its name, and the entry in a tree's encoding.

use crate::linux::Facts;
use safepoint_model::ObjectId;
use safepoint_model::tree::{Entry, Node, Tree};

const MAGIC: &[u8; 8] = b"SFPTSTA1";
const HASH_BYTES: usize = 32;
const HEAD_BYTES: usize = MAGIC.len() + HASH_BYTES + 8;
/// ino, size, mtime, ctime.
const FACTS_BYTES: usize = 32;

/// A cache as it was read.
#[derive(Debug)]
pub struct StatCache {
    bytes: Vec<u8>,
}

impl StatCache {
    /// Takes the bytes of a cache file, if they are one that was written with this token and not damaged since.
    /// The token stands for everything outside the workspace that the cache depends on: the store, above all.
    pub fn new(bytes: Vec<u8>, token: &[u8; 32]) -> Option<Self> {
        let body = bytes.len().checked_sub(HASH_BYTES)?;
        let intact = body >= HEAD_BYTES
            && bytes.starts_with(MAGIC)
            && &bytes[MAGIC.len()..MAGIC.len() + HASH_BYTES] == token
            && blake3::hash(&bytes[..body]).as_bytes()[..] == bytes[body..];
        intact.then_some(Self { bytes })
    }

    pub(crate) fn root(&self) -> Option<CachedDir<'_>> {
        self.block(number(&self.bytes, HEAD_BYTES - 8)?)
    }

    fn block(&self, offset: u64) -> Option<CachedDir<'_>> {
        let at = usize::try_from(offset).ok()?;
        let mut tree = [0u8; HASH_BYTES];
        tree.copy_from_slice(self.bytes.get(at..at + HASH_BYTES)?);
        let at = at + HASH_BYTES;
        let count = number(&self.bytes, at)?;
        Some(CachedDir { cache: self, tree: ObjectId::from_bytes(tree), left: count, at: at + 8 })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let raw: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(raw))
}

/// One directory of the cache, read from front to back along with the real one.
#[derive(Clone)]
pub(crate) struct CachedDir<'a> {
    cache: &'a StatCache,
    /// The tree that the directory had.
    pub(crate) tree: ObjectId,
    left: u64,
    at: usize,
}

impl CachedDir<'_> {
    /// How many entries are left; before the first is taken, how many there are.
    pub(crate) fn count(&self) -> u64 {
        self.left
    }
}

/// One entry of the cache.
pub(crate) struct CachedEntry<'a> {
    pub(crate) name: &'a [u8],
    facts: [u64; 4],
    entry_bytes: &'a [u8],
    block: u64,
    cache: &'a StatCache,
}

impl<'a> Iterator for CachedDir<'a> {
    type Item = CachedEntry<'a>;

    fn next(&mut self) -> Option<CachedEntry<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let bytes = &self.cache.bytes;
        let mut facts = [0u64; 4];
        for (slot, fact) in facts.iter_mut().enumerate() {
            *fact = number(bytes, self.at + 8 * slot)?;
        }
        let block = number(bytes, self.at + FACTS_BYTES)?;
        let lengths = number(bytes, self.at + FACTS_BYTES + 8)?;
        let (name_len, entry_len) = ((lengths & 0xffff) as usize, (lengths >> 16) as usize);
        let name_at = self.at + FACTS_BYTES + 16;
        let name = bytes.get(name_at..name_at + name_len)?;
        let entry_bytes = bytes.get(name_at + name_len..name_at + name_len + entry_len)?;
        self.at = name_at + name_len + entry_len;
        Some(CachedEntry { name, facts, entry_bytes, block, cache: self.cache })
    }
}

fn packed(facts: &Facts) -> [u64; 4] {
    [facts.ino, facts.size, facts.mtime_ns.cast_unsigned(), facts.ctime_ns.cast_unsigned()]
}

impl<'a> CachedEntry<'a> {
    /// The entry as it was, if nothing about it changed since. A change of mode, owner or attributes also moves ctime.
    pub(crate) fn hit(&self, facts: &Facts) -> Option<Entry> {
        if self.facts != packed(facts) {
            return None;
        }
        let mut entries = Tree::decode(self.entry_bytes).ok()?.into_entries();
        let entry = entries.pop()?;
        let same_type = match entry.node {
            Node::File(_) => facts.file_type.is_file(),
            Node::Directory(_) => facts.file_type.is_dir(),
            Node::Symlink(_) => facts.file_type.is_symlink(),
        };
        (same_type
            && entry.meta.mode == facts.mode
            && entry.meta.uid == facts.uid
            && entry.meta.gid == facts.gid)
            .then_some(entry)
    }

    /// The directory's block, also when the directory itself changed.
    pub(crate) fn directory(&self) -> Option<CachedDir<'a>> {
        if self.block == 0 { None } else { self.cache.block(self.block) }
    }
}

/// One directory of the next cache, with the directories below it.
#[derive(Default)]
pub(crate) struct Block {
    records: Vec<u8>,
    count: u64,
    /// Where in `records` the offset of a child's block has to go.
    children: Vec<(usize, Block)>,
    tree: Option<ObjectId>,
}

impl Block {
    /// Notes an entry. One that cannot be trusted next time is noted with facts that never match.
    pub(crate) fn note(&mut self, entry: &Entry, facts: &Facts, trusted: bool, child: Option<Block>) {
        let facts = if trusted { packed(facts) } else { [u64::MAX; 4] };
        for fact in facts {
            self.records.extend_from_slice(&fact.to_le_bytes());
        }
        if let Some(child) = child {
            self.children.push((self.records.len(), child));
        }
        self.records.extend_from_slice(&0u64.to_le_bytes());
        let encoded = Tree::single(entry);
        let lengths = entry.name.len() as u64 | ((encoded.len() as u64) << 16);
        self.records.extend_from_slice(&lengths.to_le_bytes());
        self.records.extend_from_slice(&entry.name);
        self.records.extend_from_slice(&encoded);
        self.count += 1;
    }

    pub(crate) fn set_tree(&mut self, tree: ObjectId) {
        self.tree = Some(tree);
    }

    /// The bytes of the whole cache.
    pub(crate) fn into_file(self, token: &[u8; 32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 << 16);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(token);
        out.extend_from_slice(&0u64.to_le_bytes());
        let root = self.write(&mut out);
        out[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&root.to_le_bytes());
        let hash = blake3::hash(&out);
        out.extend_from_slice(hash.as_bytes());
        out
    }

    fn write(mut self, out: &mut Vec<u8>) -> u64 {
        for (at, child) in std::mem::take(&mut self.children) {
            let offset = child.write(out);
            self.records[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
        let offset = out.len() as u64;
        let tree = self.tree.unwrap_or_else(|| ObjectId::from_bytes([0; HASH_BYTES]));
        out.extend_from_slice(tree.as_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.records);
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use safepoint_model::content::Content;
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
            mtime_ns: -4,
            ctime_ns: 5,
            place: (0, 0, 0),
        }
    }

    fn entry(name: &str) -> Entry {
        let meta = Meta { mode: 0o644, uid: 1, gid: 2, ..Meta::default() };
        Entry { name: name.into(), meta, node: Node::File(Content::whole(b"abc")) }
    }

    fn sample() -> Vec<u8> {
        let (mut root, mut child) = (Block::default(), Block::default());
        child.note(&entry("inside"), &facts(7), true, None);
        child.set_tree(ObjectId::from_bytes([9; 32]));
        let mut dir = entry("dir");
        dir.node = Node::Directory(ObjectId::from_bytes([9; 32]));
        root.note(&dir, &Facts { file_type: FileType::Directory, ..facts(1) }, true, Some(child));
        root.note(&entry("racy"), &facts(2), false, None);
        root.note(&entry("settled"), &facts(3), true, None);
        root.into_file(&[1; 32])
    }

    #[test]
    fn what_was_noted_is_found_and_the_racy_is_not_trusted() {
        let cache = StatCache::new(sample(), &[1; 32]).unwrap();
        let entries: Vec<_> = cache.root().unwrap().collect();
        assert_eq!(entries.len(), 3);
        let below = entries[0].directory().unwrap();
        assert_eq!(below.tree, ObjectId::from_bytes([9; 32]));
        assert_eq!(below.clone().next().unwrap().hit(&facts(7)).unwrap(), entry("inside"));
        assert!(entries[1].hit(&facts(2)).is_none());
        assert_eq!(entries[2].hit(&facts(3)).unwrap(), entry("settled"));
        assert!(entries[2].directory().is_none());
    }

    #[test]
    fn any_changed_fact_is_a_miss() {
        let cache = StatCache::new(sample(), &[1; 32]).unwrap();
        let settled = cache.root().unwrap().nth(2).unwrap();
        let good = facts(3);
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
            assert!(settled.hit(&changed).is_none(), "{changed:?}");
        }
    }

    #[test]
    fn a_damaged_or_foreign_cache_is_none() {
        let good = sample();
        assert!(StatCache::new(good.clone(), &[2; 32]).is_none());
        assert!(StatCache::new(Vec::new(), &[1; 32]).is_none());
        assert!(StatCache::new(good[..good.len() - 1].to_vec(), &[1; 32]).is_none());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(StatCache::new(bad, &[1; 32]).is_none(), "byte {at}");
        }
    }
}
