//! Import of a layout's files into the store: the folder and `files.json` must match entry by entry.

use super::holes::HashedHoles;
use super::reading::{Hashed, Reading, check_sorted, listed};
use super::rows::{Entries, EntryRow, HashRow, What};
use super::{DEPTH_MAX, ENTRIES, FORMAT, LIST_BYTES_MAX, LayoutError, path};
use crate::Error;
use safepoint_model::access;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectError, ObjectKind, ObjectSink, Progress, RelPath};
use safepoint_workspace::{Foreign, ForeignEntry, ForeignFile, OWN_FOLDER, WorkspaceError};
use std::collections::HashMap;

/// Set-user-ID and set-group-ID bits.
const SPECIAL_BITS: u16 = 0o6000;

/// Stored files of a layout.
pub(super) struct Taken {
    /// Root entry, without a name.
    pub(super) root: Entry,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Files that lost set-ID bits or capabilities.
    pub(super) disarmed: u64,
}

/// Directory in progress.
struct Level {
    folder: Foreign,
    path: RelPath,
    row: EntryRow,
    names: std::vec::IntoIter<Vec<u8>>,
    entries: Vec<Entry>,
}

/// Imports everything at and below these folders of the layout, which contain all its files.
pub(super) fn take(
    reading: &mut Reading,
    roots: &[RelPath],
    sink: &dyn ObjectSink,
    progress: &dyn Progress,
) -> Result<Vec<Taken>, Error> {
    let list = path(ENTRIES);
    let Entries { format, entries } = reading.document(&list, LIST_BYTES_MAX)?;
    if format != FORMAT {
        return Err(LayoutError::bad(&list, "it is of another version than metadata.json").into());
    }
    check_sorted(&list, entries.0.iter().map(|row| &row.path))?;
    let rows = entries.0.into_iter().map(|row| (row.path.clone(), row)).collect();
    let mut taking = Taking { reading, rows, sink, progress, count: 0, bytes: 0, disarmed: 0 };
    let mut all = Vec::new();
    for at in roots {
        (taking.count, taking.bytes, taking.disarmed) = (0, 0, 0);
        let root = taking.all(at)?;
        all.push(Taken { root, count: taking.count, bytes: taking.bytes, disarmed: taking.disarmed });
    }
    match taking.rows.into_keys().min() {
        Some(path) => Err(LayoutError::bad(&path, "files.json lists it, but it is missing").into()),
        None => Ok(all),
    }
}

struct Taking<'a> {
    reading: &'a mut Reading,
    /// Listed entries not found yet.
    rows: HashMap<RelPath, EntryRow>,
    sink: &'a dyn ObjectSink,
    progress: &'a dyn Progress,
    count: u64,
    bytes: u64,
    disarmed: u64,
}

impl Taking<'_> {
    /// Walks without recursion, because the layout's author chooses the depth.
    fn all(&mut self, at: &RelPath) -> Result<Entry, Error> {
        let folder = self.reading.folder(at)?;
        let mut levels = vec![self.level(at.clone(), folder)?];
        while let Some(level) = levels.last_mut() {
            if self.progress.interrupted() {
                return Err(WorkspaceError::Interrupted.into());
            }
            let Some(name) = level.names.next() else {
                let done = levels.pop().map(|level| self.directory(level)).transpose()?;
                match (done, levels.last_mut()) {
                    (Some(entry), Some(above)) => above.entries.push(entry),
                    (Some(entry), None) => return Ok(Entry { name: Vec::new(), ..entry }),
                    (None, _) => break,
                }
                continue;
            };
            let path = level.path.join(&name)?;
            let found = level.folder.entry(&name).map_err(LayoutError::read(&path))?;
            self.count += 1;
            match found.ok_or_else(|| LayoutError::bad(&path, "it went away while it was read"))? {
                ForeignEntry::Folder(folder) => {
                    check_folder(&path, &name, levels.len())?;
                    let level = self.level(path, folder)?;
                    levels.push(level);
                }
                ForeignEntry::File(file) => level.entries.push(self.file(&path, name, file)?),
                ForeignEntry::Link(target) => level.entries.push(self.link(&path, name, target)?),
                ForeignEntry::Other => {
                    return Err(LayoutError::bad(&path, "it is a FIFO, a socket or a device").into());
                }
            }
        }
        Err(LayoutError::bad(at, "it is missing").into())
    }

    fn row(&mut self, path: &RelPath, what: What) -> Result<EntryRow, LayoutError> {
        let row = self.rows.remove(path);
        let row = row.ok_or_else(|| LayoutError::bad(path, "files.json does not list it"))?;
        if row.what != what {
            return Err(LayoutError::bad(path, "it is another thing than files.json says"));
        }
        if row.target.is_some() != (what == What::Symlink) {
            return Err(LayoutError::bad(path, "a link has a target in files.json, and nothing else has"));
        }
        Ok(row)
    }

    fn level(&mut self, path: RelPath, folder: Foreign) -> Result<Level, LayoutError> {
        let row = self.row(&path, What::Directory)?;
        let names = listed(&folder, &path, self.rows.len())?.into_iter();
        Ok(Level { folder, path, row, names, entries: Vec::new() })
    }

    /// Stores a completely read directory.
    fn directory(&mut self, level: Level) -> Result<Entry, Error> {
        let bad = |error: safepoint_model::ModelError| LayoutError::bad(&level.path, error.to_string());
        let bytes = Tree::new(level.entries).map_err(bad)?.encode();
        // A mode or attribute that no tree may have would count as damage later.
        Tree::decode(&bytes).map_err(bad)?;
        let tree = self.sink.put(ObjectKind::Tree, &bytes)?;
        let name = level.path.split_last().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let entry = Entry { name, meta: level.row.meta()?, node: Node::Directory(tree) };
        // The parent checks its entries; the root has no parent.
        Tree::decode(&Tree::single(&entry)).map_err(bad)?;
        self.progress.advance(1, 0);
        Ok(entry)
    }

    fn file(&mut self, path: &RelPath, name: Vec<u8>, file: ForeignFile) -> Result<Entry, Error> {
        let row = self.row(path, What::File)?;
        let mut meta = row.meta()?;
        if meta.mode & SPECIAL_BITS != 0 && !is_armed(&file, &meta) {
            meta.mode &= !SPECIAL_BITS;
            self.disarmed += 1;
        }
        // An invalid capability is refused with the directory.
        let capability = meta.xattr(access::CAPABILITY);
        if capability.is_some_and(access::is_capability) && !gives_capability(&file, &meta) {
            meta = meta.without_capability();
            self.disarmed += 1;
        }
        let promised = self.reading.promised(path, file.disk_bytes())?;
        if promised.sparse {
            return self.sparse_file(path, (name, meta), file, &promised);
        }
        let mut hashed = Hashed::new(file, &promised, self.progress);
        let content = match self.sink.put_content(promised.size, &mut hashed) {
            Ok(content) => content,
            Err(ObjectError::Input(source)) => return Err(hashed.explain(path, source)),
            Err(error) => return Err(error.into()),
        };
        hashed.finish(path)?;
        self.bytes = self.bytes.saturating_add(content.size);
        self.progress.advance(1, 0);
        Ok(Entry { name, meta, node: Node::File(content) })
    }

    /// Imports a sparse file. Holes lost in transfer are restored.
    fn sparse_file(
        &mut self,
        path: &RelPath,
        (name, meta): (Vec<u8>, Meta),
        file: ForeignFile,
        promised: &HashRow,
    ) -> Result<Entry, Error> {
        let mut hashed = HashedHoles::new(file, promised, self.progress);
        let content = match self.sink.put_sparse(promised.size, &mut hashed) {
            Ok(content) => content,
            Err(ObjectError::Input(source)) => return Err(hashed.explain(path, source)),
            Err(error) => return Err(error.into()),
        };
        hashed.finish(path)?;
        self.bytes = self.bytes.saturating_add(content.size);
        self.progress.advance(1, 0);
        Ok(Entry { name, meta, node: Node::File(content) })
    }

    fn link(&mut self, path: &RelPath, name: Vec<u8>, target: Vec<u8>) -> Result<Entry, Error> {
        let row = self.row(path, What::Symlink)?;
        if row.target.as_ref().is_none_or(|listed| listed.0 != target) {
            return Err(LayoutError::bad(path, "it leads elsewhere than files.json says").into());
        }
        self.progress.advance(1, 0);
        Ok(Entry { name, meta: row.meta()?, node: Node::Symlink(target) })
    }
}

/// Refuses folders that no capture includes: a rollback would write where captures never look.
fn check_folder(path: &RelPath, name: &[u8], depth: usize) -> Result<(), LayoutError> {
    if name.eq_ignore_ascii_case(b".git") {
        return Err(LayoutError::bad(path, "git's own folder is never part of a checkpoint"));
    }
    if name.eq_ignore_ascii_case(OWN_FOLDER.as_bytes()) {
        return Err(LayoutError::bad(path, "Safepoint's own folder is never part of a checkpoint"));
    }
    if depth > DEPTH_MAX {
        return Err(LayoutError::bad(path, "it is nested too deeply"));
    }
    Ok(())
}

/// Returns true if the file on disk already has the row's capabilities and owner. A row alone is not trusted.
fn gives_capability(file: &ForeignFile, meta: &Meta) -> bool {
    is_own(file)
        && file.owner() == (meta.uid, meta.gid)
        && file.capability().as_deref() == meta.xattr(access::CAPABILITY)
}

/// Returns true for root and the owner.
fn is_own(file: &ForeignFile) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || file.owner().0 == user.as_raw()
}

/// Returns true if the file on disk already has the set-ID bits and the owner of its row. A row alone is not
/// trusted: a rollback would lend the rights of its user to any file in the layout.
fn is_armed(file: &ForeignFile, meta: &Meta) -> bool {
    is_own(file)
        && file.mode() & SPECIAL_BITS == meta.mode & SPECIAL_BITS
        && file.owner() == (meta.uid, meta.gid)
}
