//! Working folders: copies of a tree, and their size on disk.
//!
//! A copy leaves out version control folders and ignore files, so that every tool has the same work. Modes,
//! links and times are kept. The original is only read.

use crate::failure::{Failure, Result, Tried};
use crate::image::TOOL_FOLDERS;
use rayon::prelude::*;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Files that make tools ignore or change other files.
const RULES: [&str; 5] = [".gitignore", ".gitattributes", ".gitmodules", ".ignore", ".safepointignore"];

/// Working folder, removed at the end.
pub(crate) struct Ground {
    folder: TempDir,
}

impl Ground {
    /// Creates a folder in `dir`, by default in `/var/tmp`: that is on disk, while `/tmp` is often in memory.
    pub(crate) fn new(dir: Option<&Path>) -> Result<Self> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => [PathBuf::from("/var/tmp")]
                .into_iter()
                .find(|dir| dir.is_dir())
                .unwrap_or_else(std::env::temp_dir),
        };
        fs::create_dir_all(&dir).tried(|| format!("making {}", dir.display()))?;
        let dir = dir.canonicalize().tried(|| format!("finding {}", dir.display()))?;
        let folder = tempfile::Builder::new()
            .prefix("safepoint-bench-")
            .tempdir_in(&dir)
            .tried(|| format!("making a folder in {}", dir.display()))?;
        Ok(Self { folder })
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Copies a tree.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).tried(|| format!("making {}", to.display()))?;
    let entries = fs::read_dir(from).tried(|| format!("reading {}", from.display()))?;
    let entries: Vec<_> =
        entries.collect::<std::io::Result<_>>().tried(|| format!("reading {}", from.display()))?;
    entries.into_par_iter().try_for_each(|entry| {
        let name = entry.file_name();
        if TOOL_FOLDERS.iter().chain(&RULES).any(|left_out| name == **left_out) {
            return Ok(());
        }
        let (source, target) = (entry.path(), to.join(&name));
        let kind = entry.file_type().tried(|| format!("looking at {}", source.display()))?;
        if kind.is_dir() {
            copy_tree(&source, &target)
        } else if kind.is_symlink() {
            fs::read_link(&source)
                .and_then(|leads| symlink(leads, &target))
                .tried(|| format!("copying the link {}", source.display()))
        } else if kind.is_file() {
            copy_file(&source, &target).tried(|| format!("copying {}", source.display()))
        } else {
            Ok(())
        }
    })?;
    let mode = fs::metadata(from).tried(|| format!("looking at {}", from.display()))?.permissions();
    fs::set_permissions(to, mode).tried(|| format!("setting the mode of {}", to.display()))
}

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    let modified = fs::metadata(from)?.modified()?;
    File::open(to)?.set_times(FileTimes::new().set_modified(modified))
}

/// Returns the size on disk, as du(1) counts it; 0 if the path is missing.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    let below = fs::read_dir(path)
        .map(|entries| entries.flatten().map(|entry| disk_bytes(&entry.path())).sum::<u64>());
    about.blocks() * 512 + below.unwrap_or(0)
}

/// Removes a tool's folder, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("removing {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_copy_is_the_same_without_what_tools_left() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b/.git")).unwrap();
        fs::write(from.join("a/run"), "x").unwrap();
        fs::set_permissions(from.join("a/run"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("a/run", from.join("link")).unwrap();
        copy_tree(&from, &to).unwrap();
        fs::remove_dir(from.join("a/b/.git")).unwrap();
        let before = Image::read(&from).unwrap();
        assert_eq!(before, Image::read(&to).unwrap());
        fs::write(from.join(".gitignore"), "a").unwrap();
        remove(&to).unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(before, Image::read(&to).unwrap());
    }
}
