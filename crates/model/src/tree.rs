//! One directory as an object: its entries, sorted by name, in canonical bytes.
//!
//! A tree names its subdirectories' trees, so a directory in which nothing changed costs nothing, and the id of
//! the root speaks for every byte below. Times of directories and links are left out: they change with every
//! edit and nobody restores by them.

use crate::content::{Content, Form};
use crate::path::check_name;
use crate::varint::{self, Reader};
use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSource};

const FORMAT: u8 = 1;
/// Linux keeps a link's target within one page.
const TARGET_BYTES_MAX: usize = 4096;
/// Linux limits a value to 64 KiB and a name to 255 bytes (xattr(7)).
const XATTR_VALUE_BYTES_MAX: usize = 65_536;

const FILE_WHOLE: u8 = 1;
const FILE_PIECES: u8 = 2;
const DIRECTORY: u8 = 3;
const SYMLINK: u8 = 4;

/// One extended attribute: its name with the `user.` prefix, and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// What is kept about an entry beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When a file was last written, in nanoseconds since 1970; zero for directories and links.
    pub mtime_ns: i64,
    /// Extended attributes of `user.*`, sorted by name.
    pub xattrs: Vec<Xattr>,
}

impl Meta {
    /// Whether an entry with this needs nothing done to have `other`'s, times apart.
    /// `owners` says whether owner and group count (only root can give files away).
    pub fn same_but_times(&self, other: &Meta, owners: Owners) -> bool {
        self.mode == other.mode
            && self.xattrs == other.xattrs
            && (owners == Owners::Ignored || (self.uid == other.uid && self.gid == other.gid))
    }
}

/// Whether owner and group are part of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// They are.
    Compared,
    /// They are not.
    Ignored,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File(Content),
    /// A directory, by its tree.
    Directory(ObjectId),
    /// A symbolic link, by its target.
    Symlink(Vec<u8>),
}

impl Node {
    /// Whether both are files, both directories or both links.
    pub fn same_type(&self, other: &Node) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name: bytes, not necessarily UTF-8. Empty for the root of a workspace alone.
    pub name: Vec<u8>,
    /// Mode, owner, time, attributes.
    pub meta: Meta,
    /// Content.
    pub node: Node,
}

/// A directory: entries sorted by name, each name once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    /// A tree of these entries, in whatever order they come.
    ///
    /// # Errors
    /// When a name is not one or comes twice.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, ModelError> {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for entry in &entries {
            check_name(&entry.name)?;
        }
        if entries.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(ModelError::Malformed { what: "tree", why: "a name comes twice" });
        }
        Ok(Self { entries })
    }

    /// The entries, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries, for who wants to change them.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The entry with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }

    /// Reads a tree from where objects are kept.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        Self::decode(&source.get(ObjectKind::Tree, id)?)
            .map_err(|error| ObjectError::Damaged { id, what: error.to_string() })
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.entries.len() * 80);
        out.push(FORMAT);
        for entry in &self.entries {
            encode_entry(&mut out, entry);
        }
        out
    }

    /// The canonical bytes of a tree with this one entry, without making a tree of it.
    pub fn single(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.push(FORMAT);
        encode_entry(&mut out, entry);
        out
    }

    /// Reads canonical bytes; any other bytes are refused, so that a tree has one id.
    ///
    /// # Errors
    /// When the bytes do not follow the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Reader::new(bytes, "tree");
        if reader.byte()? != FORMAT {
            return Err(reader.malformed("its version is unknown"));
        }
        let mut entries: Vec<Entry> = Vec::new();
        while !reader.is_empty() {
            let entry = decode_entry(&mut reader)?;
            if entries.last().is_some_and(|last| last.name >= entry.name) {
                return Err(reader.malformed("its names are not sorted"));
            }
            entries.push(entry);
        }
        reader.finish()?;
        Ok(Self { entries })
    }
}

fn encode_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(match &entry.node {
        Node::File(Content { form: Form::Whole, .. }) => FILE_WHOLE,
        Node::File(Content { form: Form::Pieces, .. }) => FILE_PIECES,
        Node::Directory(_) => DIRECTORY,
        Node::Symlink(_) => SYMLINK,
    });
    varint::put_bytes(out, &entry.name);
    varint::put(out, u64::from(entry.meta.mode));
    varint::put(out, u64::from(entry.meta.uid));
    varint::put(out, u64::from(entry.meta.gid));
    varint::put(out, entry.meta.xattrs.len() as u64);
    for (name, value) in &entry.meta.xattrs {
        varint::put_bytes(out, name);
        varint::put_bytes(out, value);
    }
    match &entry.node {
        Node::File(content) => {
            varint::put_signed(out, entry.meta.mtime_ns);
            varint::put(out, content.size);
            out.extend_from_slice(content.id.as_bytes());
        }
        Node::Directory(id) => out.extend_from_slice(id.as_bytes()),
        Node::Symlink(target) => varint::put_bytes(out, target),
    }
}

fn decode_entry(reader: &mut Reader<'_>) -> Result<Entry, ModelError> {
    let kind = reader.byte()?;
    let name = reader.bytes(crate::path::NAME_BYTES_MAX)?.to_vec();
    check_name(&name)?;
    let mut meta = decode_meta(reader)?;
    let node = match kind {
        FILE_WHOLE | FILE_PIECES => {
            meta.mtime_ns = reader.signed()?;
            let size = reader.number()?;
            let form = if kind == FILE_WHOLE { Form::Whole } else { Form::Pieces };
            Node::File(Content { size, form, id: ObjectId::from_bytes(reader.hash()?) })
        }
        DIRECTORY => Node::Directory(ObjectId::from_bytes(reader.hash()?)),
        SYMLINK => Node::Symlink(decode_target(reader)?),
        _ => return Err(reader.malformed("an entry has an unknown type")),
    };
    Ok(Entry { name, meta, node })
}

fn decode_target(reader: &mut Reader<'_>) -> Result<Vec<u8>, ModelError> {
    let target = reader.bytes(TARGET_BYTES_MAX)?;
    if target.is_empty() || target.contains(&0) {
        return Err(reader.malformed("a link has an impossible target"));
    }
    Ok(target.to_vec())
}

fn decode_meta(reader: &mut Reader<'_>) -> Result<Meta, ModelError> {
    let mode = match u16::try_from(reader.number()?) {
        Ok(mode) if mode <= 0o7777 => mode,
        _ => return Err(reader.malformed("a mode has more than 12 bits")),
    };
    let mut owner = || -> Result<u32, ModelError> {
        u32::try_from(reader.number()?).map_err(|_| reader.malformed("an owner is too large"))
    };
    let (uid, gid) = (owner()?, owner()?);
    let mut xattrs: Vec<Xattr> = Vec::new();
    for _ in 0..reader.number()? {
        let name = reader.bytes(crate::path::NAME_BYTES_MAX)?.to_vec();
        if !name.starts_with(b"user.") || name.contains(&0) {
            return Err(reader.malformed("an attribute is not one of user.*"));
        }
        if xattrs.last().is_some_and(|last| last.0 >= name) {
            return Err(reader.malformed("its attributes are not sorted"));
        }
        xattrs.push((name, reader.bytes(XATTR_VALUE_BYTES_MAX)?.to_vec()));
    }
    Ok(Meta { mode, uid, gid, mtime_ns: 0, xattrs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Memory;
    use proptest::prelude::*;

    pub(crate) fn file(name: &str, bytes: &[u8]) -> Entry {
        let meta = Meta { mode: 0o644, uid: 1000, gid: 100, mtime_ns: -5, xattrs: vec![] };
        Entry { name: name.into(), meta, node: Node::File(Content::whole(bytes)) }
    }

    fn sample() -> Tree {
        let mut large = file("large", b"");
        large.node = Node::File(Content {
            size: 1 << 40,
            form: Form::Pieces,
            id: ObjectId::of(ObjectKind::Pieces, b"p"),
        });
        let mut marked = file("marked", b"x");
        marked.meta.xattrs = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![0, 255])];
        let mut dir = file("dir", b"");
        dir.meta.mtime_ns = 0;
        dir.node = Node::Directory(ObjectId::of(ObjectKind::Tree, b"t"));
        let mut link = file("link", b"");
        link.meta.mtime_ns = 0;
        link.node = Node::Symlink(b"../outside".to_vec());
        Tree::new(vec![file("b", b"2"), large, marked, dir, link, file("a", b"1")]).unwrap()
    }

    #[test]
    fn a_tree_reads_back_and_sorts_itself() {
        let tree = sample();
        assert_eq!(Tree::decode(&tree.encode()).unwrap(), tree);
        assert_eq!(tree.entries()[0].name, b"a");
        assert_eq!(tree.get(b"link").unwrap().name, b"link");
        assert!(tree.get(b"nothing").is_none());
        assert_eq!(Tree::default().encode(), vec![FORMAT]);
        let one = tree.entries()[0].clone();
        assert_eq!(Tree::single(&one), Tree::new(vec![one]).unwrap().encode());
    }

    #[test]
    fn the_id_of_a_tree_is_fixed_forever() {
        let id = ObjectId::of(ObjectKind::Tree, &sample().encode());
        assert_eq!(id.to_string(), "b6d209d6ef1d81e461e4c761e07d46d225b2ca2d4ce98ffb41b40d94b58358ce");
    }

    #[test]
    fn two_entries_of_one_name_are_refused() {
        assert!(Tree::new(vec![file("a", b""), file("a", b"")]).is_err());
        assert!(Tree::new(vec![file("..", b"")]).is_err());
        let twice = [&[FORMAT][..], &sample().encode()[1..], &sample().encode()[1..]].concat();
        assert!(Tree::decode(&twice).is_err());
    }

    #[test]
    fn every_cut_of_a_tree_is_refused_or_another_tree() {
        let bytes = sample().encode();
        for end in 0..bytes.len() {
            if let Ok(tree) = Tree::decode(&bytes[..end]) {
                assert_eq!(tree.encode(), &bytes[..end]);
                assert_ne!(tree, sample());
            }
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let refused = |change: &dyn Fn(&mut Entry)| {
            let mut entry = file("f", b"1");
            change(&mut entry);
            let mut bytes = vec![FORMAT];
            encode_entry(&mut bytes, &entry);
            assert!(Tree::decode(&bytes).is_err(), "{entry:?}");
        };
        refused(&|entry| entry.meta.mode = 0o10000);
        refused(&|entry| entry.meta.xattrs = vec![(b"security.x".to_vec(), vec![])]);
        refused(&|entry| entry.meta.xattrs = vec![(b"user.a\0".to_vec(), vec![])]);
        refused(&|entry| {
            entry.meta.xattrs = vec![(b"user.b".to_vec(), vec![]), (b"user.a".to_vec(), vec![])];
        });
        refused(&|entry| entry.node = Node::Symlink(vec![]));
        refused(&|entry| entry.node = Node::Symlink(b"a\0b".to_vec()));
        refused(&|entry| entry.node = Node::Symlink(vec![b'a'; 5000]));
        assert!(Tree::decode(&[9]).is_err());
        assert!(Tree::decode(&[FORMAT, 7, 1, b'a', 0, 0, 0, 0]).is_err());
        assert!(Tree::decode(&[FORMAT, 3, 1, b'a', 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0]).is_err());
    }

    #[test]
    fn a_damaged_tree_is_named() {
        let memory = Memory::default();
        let id = crate::ObjectSink::put(&memory, ObjectKind::Tree, b"\x09").unwrap();
        assert!(matches!(Tree::load(&memory, id), Err(ObjectError::Damaged { .. })));
    }

    #[test]
    fn times_do_not_count_and_owners_only_where_asked() {
        let one = file("a", b"").meta;
        let mut two = one.clone();
        two.mtime_ns = 9;
        assert!(one.same_but_times(&two, Owners::Compared));
        two.uid = 0;
        assert!(!one.same_but_times(&two, Owners::Compared));
        assert!(one.same_but_times(&two, Owners::Ignored));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_what_encodes_to_them(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(tree) = Tree::decode(&bytes) {
                prop_assert_eq!(tree.encode(), bytes);
            }
        }

        #[test]
        fn one_changed_byte_never_goes_unseen(at in 0usize..400, bit in 0u8..8) {
            let mut bytes = sample().encode();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(tree) = Tree::decode(&bytes) {
                prop_assert_ne!(tree, sample());
            }
        }
    }
}
