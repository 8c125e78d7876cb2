//! Files of the recording: from paths and metadata, seen while a thread is stopped, to identities of the
//! model.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::op::{FileId, Slot};

/// Returns true for files that are not modelled: SQLite's shared memory.
pub(crate) fn is_skipped(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"-shm")
}

/// Returns the real paths of the roots, without nested ones.
pub(crate) fn merged_roots(roots: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut all = roots.iter().map(fs::canonicalize).collect::<io::Result<Vec<_>>>()?;
    all.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for root in all {
        if !kept.iter().any(|k| root.starts_with(k)) {
            kept.push(root);
        }
    }
    Ok(kept)
}

struct Inode {
    generation: u32,
    /// False if the number now belongs to an outside file.
    inside: bool,
}

pub(crate) struct Known {
    roots: Vec<PathBuf>,
    inodes: HashMap<(u64, u64), Inode>,
}

impl Known {
    pub(crate) fn load(roots: &[PathBuf]) -> io::Result<Known> {
        let mut known = Known { roots: roots.to_vec(), inodes: HashMap::new() };
        let mut todo = roots.to_vec();
        while let Some(path) = todo.pop() {
            if path.file_name().is_some_and(is_skipped) {
                continue;
            }
            let meta = fs::symlink_metadata(&path)?;
            let inode = Inode { generation: 0, inside: true };
            known.inodes.insert((meta.dev(), meta.ino()), inode);
            if meta.is_dir() {
                for entry in fs::read_dir(&path)? {
                    todo.push(entry?.path());
                }
            }
        }
        Ok(known)
    }

    /// Returns true if a real path lies in a root and is part of the model.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        let skipped = path.file_name().is_some_and(is_skipped);
        !skipped && self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Returns the file with this metadata. The real path guards against a number reused outside the roots.
    pub(crate) fn file(&self, meta: &Metadata, path: &Path) -> Option<FileId> {
        let (dev, ino) = (meta.dev(), meta.ino());
        let inode = self.inodes.get(&(dev, ino)).filter(|i| i.inside)?;
        let id = FileId { dev, ino, generation: inode.generation };
        self.covers(path).then_some(id)
    }

    /// Gives a new file a new identity.
    pub(crate) fn born(&mut self, meta: &Metadata) -> FileId {
        let (dev, ino) = (meta.dev(), meta.ino());
        let inode = self.inodes.entry((dev, ino));
        let inode = inode
            .and_modify(|i| {
                i.generation += 1;
                i.inside = true;
            })
            // Even the first one differs from files present at the start.
            .or_insert(Inode { generation: 1, inside: true });
        FileId { dev, ino, generation: inode.generation }
    }

    /// Records that the number now belongs to an outside file.
    pub(crate) fn forget(&mut self, meta: &Metadata) {
        if let Some(inode) = self.inodes.get_mut(&(meta.dev(), meta.ino())) {
            inode.inside = false;
        }
    }

    /// Returns the slot of a name, or `None` if it is outside.
    pub(crate) fn slot(&self, path: &Path) -> io::Result<Option<Slot>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = fs::canonicalize(parent)?;
        if is_skipped(name) {
            return Ok(None);
        }
        let dir = self.file(&fs::metadata(&parent)?, &parent);
        let path = parent.join(name);
        Ok(dir.map(|dir| Slot { dir, name: name.to_owned(), path }))
    }
}

#[cfg(test)]
mod tests {
    //! Cases that no file system produces on demand.

    use super::*;

    #[test]
    fn a_number_used_again_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("f");
        fs::write(&path, "x").unwrap();
        let mut known = Known::load(&merged_roots(&[dir.path().into()]).unwrap()).unwrap();
        let meta = fs::metadata(&path).unwrap();
        let first = known.file(&meta, &path).unwrap();
        let second = known.born(&meta);
        assert_ne!(first, second);
        assert_eq!(known.file(&meta, &path), Some(second));
        assert_eq!(known.file(&meta, Path::new("/elsewhere/f")), None);
        known.forget(&meta);
        assert_eq!(known.file(&meta, &path), None);
        assert_ne!(known.born(&meta), second);
    }
}
