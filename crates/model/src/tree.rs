//! Tree: a directory as an object, with its entries sorted by name, in canonical bytes.
//!
//! A tree refers to the trees of its subdirectories, so an unchanged directory costs nothing, and the id of
//! the root covers every byte below. Times of directories and links are left out: they change with every edit
//! and are not restored.

use crate::access::{self, Acl};
use crate::content::{Content, Form};
use crate::path::check_name;
use crate::varint::{self, Reader};
use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSource};

const FORMAT: u8 = 1;
/// Version of a tree with an ACL, a capability or holes in an entry. No other tree has it.
const FORMAT_EXTENDED: u8 = 2;
/// Maximum length of a link target: one page on Linux.
const TARGET_BYTES_MAX: usize = 4096;
/// Linux limits a value to 64 KiB and a name to 255 bytes (xattr(7)).
const XATTR_VALUE_BYTES_MAX: usize = 65_536;

const USER: &[u8] = b"user.";

const FILE_WHOLE: u8 = 1;
const FILE_PIECES: u8 = 2;
const DIRECTORY: u8 = 3;
const SYMLINK: u8 = 4;
const FILE_SPARSE: u8 = 5;

/// Extended attribute: its name with its prefix, and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Metadata of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time of a file in nanoseconds since 1970; zero for directories and links.
    pub mtime_ns: i64,
    /// Extended attributes of `user.*`, ACLs and capabilities (see [`access`]), sorted by name. With an ACL,
    /// the nine lowest bits of the mode are those of the ACL.
    pub xattrs: Vec<Xattr>,
}

impl Meta {
    /// Returns the value of an attribute.
    pub fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        self.xattrs.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_slice())
    }

    /// Returns the access ACL, if any.
    pub fn acl(&self) -> Option<Acl> {
        self.xattr(access::ACCESS).and_then(Acl::parse)
    }

    /// Returns true if it has an access ACL or a default ACL.
    pub fn has_acl(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| is_acl(name))
    }

    /// Returns true if it has file capabilities.
    pub fn has_capability(&self) -> bool {
        self.xattr(access::CAPABILITY).is_some()
    }

    /// Returns a copy for targets without ACLs: the mode grants no more access than the ACL.
    #[must_use]
    pub fn without_acls(&self) -> Meta {
        let mut plain = self.clone();
        if let Some(acl) = self.acl() {
            plain.mode = self.mode & 0o7000 | acl.plain_bits();
        }
        plain.xattrs.retain(|(name, _)| !is_acl(name));
        plain
    }

    /// Returns a copy for targets without capabilities.
    #[must_use]
    pub fn without_capability(&self) -> Meta {
        let mut plain = self.clone();
        plain.xattrs.retain(|(name, _)| name != access::CAPABILITY);
        plain
    }

    /// Copies the ACLs and capabilities of another entry if its own are unknown. Such a mode has the ACL mask
    /// in place of the group bits, and so agrees with the ACL.
    pub fn adopt_access(&mut self, other: &Meta) {
        if self.has_acl() || self.has_capability() {
            return;
        }
        let taken = other.xattrs.iter().filter(|(name, _)| !name.starts_with(USER)).cloned();
        self.xattrs.extend(taken);
        self.xattrs.sort();
        for (_, value) in self.xattrs.iter_mut().filter(|(name, _)| name == access::ACCESS) {
            access::set_mode_bits(value, self.mode);
        }
    }

    /// Adds these owner permissions (`0o700` at most) to the mode and to the ACL.
    pub fn add_owner_bits(&mut self, bits: u16) {
        self.mode |= bits;
        for (_, value) in self.xattrs.iter_mut().filter(|(name, _)| name == access::ACCESS) {
            access::add_owner_bits(value, bits >> 6);
        }
    }

    /// Returns true if the metadata equals `other`, except for times. `owners` selects whether owner and
    /// group are compared (only root can change owners).
    pub fn same_but_times(&self, other: &Meta, owners: Owners) -> bool {
        self.mode == other.mode
            && self.xattrs == other.xattrs
            && (owners == Owners::Ignored || (self.uid == other.uid && self.gid == other.gid))
    }
}

/// Comparison of owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Compared.
    Compared,
    /// Ignored.
    Ignored,
}

/// Content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Regular file.
    File(Content),
    /// Directory, by its tree.
    Directory(ObjectId),
    /// Symbolic link, by its target.
    Symlink(Vec<u8>),
}

fn is_acl(name: &[u8]) -> bool {
    name == access::ACCESS || name == access::DEFAULT
}

impl Node {
    /// Returns true if both are files, both directories or both links.
    pub fn same_type(&self, other: &Node) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns true if both are equal; a file with holes equals one with zeros in their place. A file whose
    /// list of pieces cannot be read equals only itself.
    pub fn same_content(&self, other: &Node, source: &dyn ObjectSource) -> bool {
        match (self, other) {
            (Node::File(one), Node::File(other)) => one.same_bytes(other, source).unwrap_or(false),
            _ => self == other,
        }
    }
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name: bytes, not necessarily UTF-8. Empty only for the root of a workspace.
    pub name: Vec<u8>,
    /// Mode, owner, time, attributes.
    pub meta: Meta,
    /// Content.
    pub node: Node,
}

impl Entry {
    /// Returns true if only version 2 of a tree can contain it.
    fn is_extended(&self) -> bool {
        matches!(self.node, Node::File(Content { form: Form::Sparse, .. }))
            || self.meta.xattrs.iter().any(|(name, _)| !name.starts_with(USER))
    }
}

/// Directory: entries sorted by name, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    /// Creates a tree of these entries, in any order.
    ///
    /// # Errors
    /// When a name is invalid or occurs twice.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, ModelError> {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for entry in &entries {
            check_name(&entry.name)?;
        }
        if entries.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(ModelError::Malformed { what: "tree", why: "a name occurs twice" });
        }
        Ok(Self { entries })
    }

    /// Returns the entries, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entries by value.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Returns the entry with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }

    /// Loads a tree.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        Self::decode(&source.get(ObjectKind::Tree, id)?)
            .map_err(|error| ObjectError::Damaged { id, what: error.to_string() })
    }

    /// Returns the canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.entries.len() * 80);
        out.push(format_of(self.entries.iter().any(Entry::is_extended)));
        for entry in &self.entries {
            encode_entry(&mut out, entry);
        }
        out
    }

    /// Returns the canonical bytes of a tree with this one entry, without building the tree.
    pub fn single(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.push(format_of(entry.is_extended()));
        encode_entry(&mut out, entry);
        out
    }

    /// Decodes canonical bytes; all others are refused, so that a tree has one id.
    ///
    /// # Errors
    /// When the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Reader::new(bytes, "tree");
        let format = reader.byte()?;
        if !matches!(format, FORMAT | FORMAT_EXTENDED) {
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
        if format_of(entries.iter().any(Entry::is_extended)) != format {
            return Err(reader.malformed("its version does not match its entries"));
        }
        reader.finish()?;
        Ok(Self { entries })
    }
}

fn format_of(extended: bool) -> u8 {
    if extended { FORMAT_EXTENDED } else { FORMAT }
}

fn encode_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(match &entry.node {
        Node::File(Content { form: Form::Whole, .. }) => FILE_WHOLE,
        Node::File(Content { form: Form::Pieces, .. }) => FILE_PIECES,
        Node::File(Content { form: Form::Sparse, .. }) => FILE_SPARSE,
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
        FILE_WHOLE | FILE_PIECES | FILE_SPARSE => {
            meta.mtime_ns = reader.signed()?;
            let size = reader.number()?;
            let form = match kind {
                FILE_WHOLE => Form::Whole,
                FILE_PIECES => Form::Pieces,
                _ => Form::Sparse,
            };
            Node::File(Content { size, form, id: ObjectId::from_bytes(reader.hash()?) })
        }
        DIRECTORY => Node::Directory(ObjectId::from_bytes(reader.hash()?)),
        SYMLINK => Node::Symlink(decode_target(reader)?),
        _ => return Err(reader.malformed("an entry has an unknown type")),
    };
    check_access(reader, &meta, &node)?;
    Ok(Entry { name, meta, node })
}

/// Checks that ACLs and capabilities are on allowed types, valid for the kernel, and consistent with the
/// mode.
fn check_access(reader: &Reader<'_>, meta: &Meta, node: &Node) -> Result<(), ModelError> {
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| !name.starts_with(USER)) {
        let is_sound = match (name.as_slice(), node) {
            (access::ACCESS, Node::File(_) | Node::Directory(_)) => {
                Acl::parse(value).is_some_and(|acl| acl.is_extended() && acl.mode_bits() == meta.mode & 0o777)
            }
            (access::DEFAULT, Node::Directory(_)) => Acl::parse(value).is_some(),
            (access::CAPABILITY, Node::File(_)) => access::is_capability(value),
            _ => return Err(reader.malformed("an attribute is unsupported")),
        };
        if !is_sound {
            return Err(reader.malformed("an ACL or a capability is invalid"));
        }
    }
    Ok(())
}

fn decode_target(reader: &mut Reader<'_>) -> Result<Vec<u8>, ModelError> {
    let target = reader.bytes(TARGET_BYTES_MAX)?;
    if target.is_empty() || target.contains(&0) {
        return Err(reader.malformed("a link has an invalid target"));
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
        if name.contains(&0) {
            return Err(reader.malformed("an attribute has an invalid name"));
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

    /// Tree with every feature of version 2.
    fn extended() -> Tree {
        let mut entries = sample().into_entries();
        let acl = |name: &[u8]| (name.to_vec(), access::tests::sample());
        let mut shared = file("shared", b"1");
        (shared.meta.mode, shared.meta.xattrs) = (0o2670, vec![acl(access::ACCESS)]);
        let mut program = file("program", b"1");
        let mut capability = vec![0; 20];
        (capability[0], capability[3]) = (1, 2);
        program.meta.xattrs = vec![(access::CAPABILITY.to_vec(), capability)];
        let mut folder = file("folder", b"");
        folder.meta.mtime_ns = 0;
        folder.meta.mode = 0o670;
        folder.meta.xattrs = vec![acl(access::ACCESS), acl(access::DEFAULT), (b"user.a".to_vec(), vec![])];
        folder.node = Node::Directory(ObjectId::of(ObjectKind::Tree, b"t"));
        let mut sparse = file("sparse", b"");
        let id = ObjectId::of(ObjectKind::Pieces, b"s");
        sparse.node = Node::File(Content { size: 15 << 40, form: Form::Sparse, id });
        entries.extend([shared, program, folder, sparse]);
        Tree::new(entries).unwrap()
    }

    #[test]
    fn the_second_version_is_for_acls_capabilities_and_holes_alone() {
        assert_eq!(sample().encode()[0], FORMAT);
        let bytes = extended().encode();
        assert_eq!(bytes[0], FORMAT_EXTENDED);
        assert_eq!(Tree::decode(&bytes).unwrap(), extended());
        assert!(Tree::decode(&[&[FORMAT][..], &bytes[1..]].concat()).is_err());
        let plain = sample().encode();
        assert!(Tree::decode(&[&[FORMAT_EXTENDED][..], &plain[1..]].concat()).is_err());
        assert!(Tree::decode(&[FORMAT_EXTENDED]).is_err());
        let plain_names = sample();
        for entry in extended().entries() {
            let alone = Tree::new(vec![entry.clone()]).unwrap();
            let format = if plain_names.get(&entry.name).is_some() { FORMAT } else { FORMAT_EXTENDED };
            assert_eq!(alone.encode()[0], format, "{entry:?}");
            assert_eq!(Tree::single(entry), alone.encode());
            assert_eq!(Tree::decode(&alone.encode()).unwrap(), alone);
        }
        let id = ObjectId::of(ObjectKind::Tree, &bytes);
        assert_eq!(id.to_string(), "de0d35894539556f4c41e6c88ee7e537fa9728b74d2902c7eec5188e0d43c5b9");
    }

    #[test]
    fn acls_and_capabilities_that_make_no_sense_are_refused() {
        let refused = |name: &str, change: &dyn Fn(&mut Entry)| {
            let mut entry = extended().get(name.as_bytes()).unwrap().clone();
            assert!(Tree::decode(&Tree::single(&entry)).is_ok());
            change(&mut entry);
            assert!(Tree::decode(&Tree::single(&entry)).is_err(), "{entry:?}");
        };
        refused("shared", &|entry| entry.meta.mode = 0o640);
        refused("shared", &|entry| entry.meta.xattrs[0].1.truncate(3));
        refused("shared", &|entry| entry.meta.xattrs[0].1 = access::minimal(0o670));
        refused("shared", &|entry| entry.meta.xattrs[0].0 = access::DEFAULT.to_vec());
        refused("shared", &|entry| entry.meta.xattrs[0].0 = b"system.other".to_vec());
        refused("shared", &|entry| entry.meta.xattrs[0].0 = b"trusted.overlay.opaque".to_vec());
        refused("shared", &|entry| entry.node = Node::Symlink(b"target".to_vec()));
        refused("folder", &|entry| entry.meta.xattrs[1].1[4] = 9);
        refused("folder", &|entry| entry.meta.xattrs.swap(0, 1));
        refused("program", &|entry| entry.meta.xattrs[0].1.push(0));
        refused("program", &|entry| entry.node = Node::Directory(ObjectId::of(ObjectKind::Tree, b"t")));
    }

    #[test]
    fn without_its_acl_nothing_is_more_open_and_lent_rights_agree_with_it() {
        let mut meta = extended().get(b"folder").unwrap().meta.clone();
        let plain = meta.without_acls();
        assert_eq!((plain.mode, plain.xattrs.len()), (0o640, 1));
        assert_eq!(extended().get(b"program").unwrap().meta.without_capability().xattrs, vec![]);
        meta.add_owner_bits(0o700);
        assert_eq!((meta.mode, meta.acl().unwrap().mode_bits()), (0o770, 0o770));
        let mut old = Meta { mode: 0o651, ..file("a", b"").meta };
        old.adopt_access(&meta);
        assert_eq!((old.acl().unwrap().mode_bits(), old.acl().unwrap().plain_bits()), (0o651, 0o641));
        assert_eq!(old.xattrs.len(), 2);
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
        fn one_changed_byte_never_goes_unseen(at in 0usize..4000, bit in 0u8..8) {
            for whole in [sample(), extended()] {
                let mut bytes = whole.encode();
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                if let Ok(tree) = Tree::decode(&bytes) {
                    prop_assert_eq!(&tree.encode(), &bytes);
                    prop_assert_ne!(tree, whole);
                }
            }
        }

        #[test]
        fn any_choice_of_entries_reads_back_under_the_version_that_it_takes(chosen in prop::collection::vec(any::<bool>(), 10)) {
            let all = extended().into_entries().into_iter().zip(chosen);
            let some: Vec<Entry> = all.filter_map(|(entry, taken)| taken.then_some(entry)).collect();
            let tree = Tree::new(some).unwrap();
            let bytes = tree.encode();
            prop_assert_eq!(bytes[0] == FORMAT_EXTENDED, tree.entries().iter().any(Entry::is_extended));
            prop_assert_eq!(Tree::decode(&bytes).unwrap(), tree);
        }
    }
}
