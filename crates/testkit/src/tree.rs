//! Folder as a value, to compare and hash; and a plain copy of a folder, the oracle that is independent of
//! checkpoints.
//!
//! Compared: kinds, permission bits, contents, symlink targets, `user.*` attributes. Ignored: times, owners,
//! hard links.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, FileType, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag};

/// Kind and content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    File {
        size: u64,
        blake3: [u8; 32],
    },
    Dir,
    Symlink(PathBuf),
    Fifo,
    /// Sockets and devices.
    Other,
}

/// Entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub content: Content,
    /// Permission bits, `07777`; 0777 for a symlink.
    pub mode: u32,
    /// `user.*` attributes.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

/// Content of a folder by relative path; the folder itself is the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TreeImage(pub BTreeMap<Vec<u8>, Node>);

impl TreeImage {
    /// Reads `dir`, except entries with a name in `skip`, at any depth.
    pub fn read(dir: &Path, skip: &[&str]) -> io::Result<TreeImage> {
        let mut nodes = BTreeMap::new();
        walk(dir, skip, &mut |path, meta| {
            let relative = path.strip_prefix(dir).map_err(io::Error::other)?;
            let node = read_node(path, meta)?;
            nodes.insert(relative.as_os_str().as_bytes().to_vec(), node);
            Ok(())
        })?;
        Ok(TreeImage(nodes))
    }

    /// Returns a hash of the tree.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        for (path, node) in &self.0 {
            // Debug escapes, so different trees have different texts.
            hash.update(format!("{path:?} {node:?}\n").as_bytes());
        }
        *hash.finalize().as_bytes()
    }

    /// Returns the differences from `other`, one per line; empty if equal.
    pub fn difference(&self, other: &TreeImage) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, node) in &self.0 {
            let name = String::from_utf8_lossy(path);
            match other.0.get(path) {
                None => lines.push(format!("- {name}: {}", show(node))),
                Some(theirs) if theirs != node => {
                    lines.push(format!("! {name}: {} became {}", show(node), show(theirs)));
                }
                Some(_) => {}
            }
        }
        for (path, node) in other.0.iter().filter(|(path, _)| !self.0.contains_key(*path)) {
            lines.push(format!("+ {}: {}", String::from_utf8_lossy(path), show(node)));
        }
        lines
    }
}

fn show(node: &Node) -> String {
    let what = match &node.content {
        Content::File { size, blake3 } => {
            format!("file of {size} ({:02x}{:02x}{:02x}{:02x})", blake3[0], blake3[1], blake3[2], blake3[3])
        }
        Content::Dir => "folder".to_owned(),
        Content::Symlink(target) => format!("symlink to {target:?}"),
        Content::Fifo => "fifo".to_owned(),
        Content::Other => "socket or device".to_owned(),
    };
    match node.xattrs.is_empty() {
        true => format!("{what} {:o}", node.mode),
        false => format!("{what} {:o} {:?}", node.mode, node.xattrs),
    }
}

/// Visits a folder and everything below, folders first.
fn walk(
    path: &Path,
    skip: &[&str],
    visit: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    visit(path, &meta)?;
    if !meta.is_dir() {
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if !skip.iter().any(|name| entry.file_name() == **name) {
            walk(&entry.path(), skip, visit)?;
        }
    }
    Ok(())
}

fn read_node(path: &Path, meta: &Metadata) -> io::Result<Node> {
    let kind: FileType = meta.file_type();
    let content = if kind.is_file() {
        let data = fs::read(path)?;
        Content::File { size: data.len() as u64, blake3: *blake3::hash(&data).as_bytes() }
    } else if kind.is_dir() {
        Content::Dir
    } else if kind.is_symlink() {
        Content::Symlink(fs::read_link(path)?)
    } else if kind.is_fifo() {
        Content::Fifo
    } else {
        Content::Other
    };
    Ok(Node { content, mode: meta.mode() & 0o7777, xattrs: user_xattrs(path)? })
}

/// Returns the `user.*` attributes of an entry; none if unsupported.
pub(crate) fn user_xattrs(path: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let names = match xattr::list(path) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(found),
        other => other?,
    };
    for name in names.filter(|n| n.as_bytes().starts_with(b"user.")) {
        if let Some(value) = xattr::get(path, &name)? {
            found.insert(name, value);
        }
    }
    Ok(found)
}

/// Copies the folder `from` to `to`, which must not exist.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders = Vec::new();
    // Hard links stay hard links.
    let mut first_names: HashMap<u64, PathBuf> = HashMap::new();
    walk(from, &[], &mut |path, meta| {
        let relative = path.strip_prefix(from).map_err(io::Error::other)?;
        let target = match relative.as_os_str().is_empty() {
            true => to.to_path_buf(),
            false => to.join(relative),
        };
        let kind = meta.file_type();
        if kind.is_dir() {
            fs::create_dir(&target)?;
            folders.push((path.to_path_buf(), target, meta.mode() & 0o7777));
            return Ok(());
        }
        if meta.nlink() > 1 {
            match first_names.entry(meta.ino()) {
                Entry::Occupied(first) => return fs::hard_link(first.get(), &target),
                Entry::Vacant(vacant) => drop(vacant.insert(target.clone())),
            }
        }
        if kind.is_symlink() {
            return symlink(fs::read_link(path)?, &target);
        }
        if kind.is_fifo() {
            nix::unistd::mkfifo(&target, Mode::S_IRUSR | Mode::S_IWUSR)?;
        } else if kind.is_char_device() && meta.rdev() == 0 {
            // A whiteout of an overlay.
            nix::sys::stat::mknod(&target, SFlag::S_IFCHR, Mode::empty(), 0)?;
        } else if kind.is_file() {
            fs::write(&target, fs::read(path)?)?;
        } else {
            return Err(io::Error::other(format!("cannot copy {path:?}")));
        }
        dress(path, &target, meta.mode() & 0o7777)
    })?;
    // Last and from the inside out: a folder may be read-only.
    folders.iter().rev().try_for_each(|(path, target, mode)| dress(path, target, *mode))
}

fn dress(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    for (name, value) in user_xattrs(from)? {
        xattr::set(to, name, &value)?;
    }
    fs::set_permissions(to, Permissions::from_mode(mode))
}
