//! Disk content after a power cut: from a state of the model to real folders.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::state::{Kind, Node, State};
use crate::op::FileId;

#[derive(Clone)]
struct Entry {
    path: PathBuf,
    id: FileId,
    node: Node,
}

/// Content of the roots after a power cut.
#[derive(Clone)]
pub struct Image {
    roots: Vec<PathBuf>,
    /// Folders before their content; a file with two names appears twice.
    entries: Vec<Entry>,
}

impl fmt::Debug for Image {
    /// Shows names and lengths; contents would hide a test's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_map();
        for Entry { path, node, .. } in &self.entries {
            match &node.kind {
                Kind::File(content) => list.entry(path, &content.bytes.len()),
                Kind::Symlink(target) => list.entry(path, target),
                Kind::Dir(_) => list.entry(path, &"folder"),
            };
        }
        list.finish()
    }
}

impl Image {
    pub(crate) fn new(roots: &[(PathBuf, FileId)], state: &State) -> Image {
        let mut image = Image { roots: Vec::new(), entries: Vec::new() };
        let mut folders = HashSet::new();
        for (path, id) in roots {
            image.roots.push(path.clone());
            image.add(state, path, *id, &mut folders);
        }
        image
    }

    fn add(&mut self, state: &State, path: &Path, id: FileId, folders: &mut HashSet<FileId>) {
        let Some(node) = state.node(id) else { return };
        // A folder has one place; a second one would be a bug of the model.
        if matches!(node.kind, Kind::Dir(_)) && !folders.insert(id) {
            return;
        }
        self.entries.push(Entry { path: path.to_path_buf(), id, node: node.clone() });
        if let Kind::Dir(entries) = &node.kind {
            for (name, id) in entries {
                self.add(state, &path.join(name), *id, folders);
            }
        }
    }

    /// Returns the content of a file in the image, if any.
    pub fn file(&self, path: &Path) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|e| e.path == path)?;
        match &entry.node.kind {
            Kind::File(content) => Some(&content.bytes),
            _ => None,
        }
    }

    /// Returns all paths in the image, including the roots.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().map(|e| e.path.as_path())
    }

    /// Returns a digest that is equal for images that look the same when laid out.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        let mut first = HashMap::new();
        for (i, Entry { path, id, node }) in self.entries.iter().enumerate() {
            field(&mut hash, path.as_os_str().as_bytes());
            let same = *first.entry(*id).or_insert(i);
            field(&mut hash, format!("{same} {:o} {:?}", node.mode, node.mtime).as_bytes());
            for (name, value) in &node.xattrs {
                field(&mut hash, name.as_bytes());
                field(&mut hash, value);
            }
            match &node.kind {
                Kind::File(content) => field(hash.update(b"f"), content.hash()),
                Kind::Symlink(target) => field(hash.update(b"l"), target.as_os_str().as_bytes()),
                Kind::Dir(_) => field(&mut hash, b"d"),
            }
        }
        *hash.finalize().as_bytes()
    }

    /// Empties each root and writes the image to it.
    pub fn lay_out(&self) -> io::Result<()> {
        for root in &self.roots {
            fs::create_dir_all(root)?;
            wipe(root)?;
        }
        let mut first: HashMap<FileId, &Path> = HashMap::new();
        for Entry { path, id, node } in &self.entries {
            match &node.kind {
                Kind::Dir(_) if self.roots.contains(path) => {}
                Kind::Dir(_) => fs::create_dir(path)?,
                _ if first.contains_key(id) => fs::hard_link(first[id], path)?,
                Kind::Symlink(target) => symlink(target, path)?,
                Kind::File(content) => {
                    File::create_new(path)?.write_all(&content.bytes)?;
                }
            }
            first.entry(*id).or_insert(path);
        }
        // From the inside out: a folder may become read-only.
        for Entry { path, node, .. } in self.entries.iter().rev() {
            dress(path, node)?;
        }
        Ok(())
    }
}

fn field(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Sets attributes; the mode last, because it may forbid the others.
fn dress(path: &Path, node: &Node) -> io::Result<()> {
    if matches!(node.kind, Kind::Symlink(_)) {
        return Ok(());
    }
    for (name, value) in &node.xattrs {
        xattr::set(path, name, value)?;
    }
    if let (Kind::File(_), Some((seconds, nanos))) = (&node.kind, node.mtime) {
        let open = File::options().write(true).open(path);
        match open {
            Ok(file) => file.set_times(FileTimes::new().set_modified(time(seconds, nanos)))?,
            // Second name of a file that the first made read-only.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    fs::set_permissions(path, Permissions::from_mode(node.mode))
}

fn time(seconds: i64, nanos: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - whole,
        false => SystemTime::UNIX_EPOCH + whole,
    };
    base + Duration::from_nanos(nanos.unsigned_abs())
}

/// Removes the content of a folder, regardless of modes.
fn wipe(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            wipe(&entry.path())?;
            fs::remove_dir(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
