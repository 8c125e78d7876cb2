//! Folder as a value, to check what a tool restored: names, types, contents, modes.
//!
//! Times, owners and attributes are ignored, because not every tool keeps them. Tools' own folders are left
//! out.

use crate::failure::{Result, Tried};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders that tools keep at the root of a tree.
pub(crate) const TOOL_FOLDERS: [&str; 4] = [".git", ".jj", ".hg", ".safepoint"];

/// Entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// Length and hash of a file.
    File(u64, [u8; 32]),
    /// Directory.
    Directory,
    /// Target of a link.
    Link(PathBuf),
    /// Any other type.
    Other,
}

/// Everything below a folder, by relative path, with its mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Image(BTreeMap<PathBuf, (u32, Node)>);

impl Image {
    /// Reads a folder, including all content.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut found = Vec::new();
        list(root, Path::new(""), &mut found)?;
        let nodes: Vec<_> = found
            .into_par_iter()
            .map(|(path, mode, node)| match node {
                Node::File(bytes, _) => {
                    let hash = hash(&root.join(&path))?;
                    Ok((path, (mode, Node::File(bytes, hash))))
                }
                other => Ok((path, (mode, other))),
            })
            .collect::<Result<_>>()?;
        Ok(Self(nodes.into_iter().collect()))
    }

    /// Returns the regular files, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.below(Path::new(""))
    }

    /// Returns the regular files below a folder.
    pub(crate) fn below(&self, folder: &Path) -> Vec<PathBuf> {
        let of = self.0.iter().filter(|(path, (_, node))| {
            matches!(node, Node::File(..)) && (folder.as_os_str().is_empty() || path.starts_with(folder))
        });
        of.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the number of directories.
    pub(crate) fn directories(&self) -> usize {
        self.0.values().filter(|(_, node)| *node == Node::Directory).count()
    }

    /// Returns the bytes in files.
    pub(crate) fn bytes(&self) -> u64 {
        let length = |(_, node): &(u32, Node)| if let Node::File(bytes, _) = node { *bytes } else { 0 };
        self.0.values().map(length).sum()
    }

    /// Returns the top-level folders, those with most files first.
    pub(crate) fn folders(&self) -> Vec<(PathBuf, usize)> {
        let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for file in self.files() {
            let mut parts = file.components();
            if let (Some(first), Some(_)) = (parts.next(), parts.next()) {
                *counts.entry(first.as_os_str().into()).or_default() += 1;
            }
        }
        let mut folders: Vec<_> = counts.into_iter().collect();
        folders.sort_by_key(|(name, files)| (std::cmp::Reverse(*files), name.clone()));
        folders
    }

    /// Returns the differences from `other`, one per line.
    pub(crate) fn difference(&self, other: &Image) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, node) in &self.0 {
            match other.0.get(path) {
                None => lines.push(format!("{} is missing", path.display())),
                Some(theirs) if theirs != node => lines.push(format!("{} differs", path.display())),
                Some(_) => {}
            }
        }
        let added = other.0.keys().filter(|path| !self.0.contains_key(*path));
        lines.extend(added.map(|path| format!("{} is unexpected", path.display())));
        lines
    }
}

fn list(root: &Path, below: &Path, found: &mut Vec<(PathBuf, u32, Node)>) -> Result<()> {
    let folder = root.join(below);
    let entries = fs::read_dir(&folder).tried(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry.tried(|| format!("reading {}", folder.display()))?;
        let name = entry.file_name();
        if below.as_os_str().is_empty() && TOOL_FOLDERS.iter().any(|own| name == **own) {
            continue;
        }
        let path = below.join(&name);
        let about = entry.metadata().tried(|| format!("looking at {}", entry.path().display()))?;
        let kind = about.file_type();
        let node = if kind.is_file() {
            Node::File(about.len(), [0; 32])
        } else if kind.is_symlink() {
            Node::Link(fs::read_link(entry.path()).tried(|| format!("reading {}", entry.path().display()))?)
        } else if kind.is_dir() {
            list(root, &path, found)?;
            Node::Directory
        } else {
            Node::Other
        };
        found.push((path, about.mode() & 0o7777, node));
    }
    Ok(())
}

fn hash(path: &Path) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    File::open(path)
        .and_then(|file| hasher.update_reader(file).map(|_| ()))
        .tried(|| format!("reading {}", path.display()))?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn every_kind_of_difference_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("d")).unwrap();
        for name in ["d/same", "content", "mode", "gone"] {
            fs::write(at(name), name).unwrap();
        }
        let before = Image::read(folder.path()).unwrap();
        assert!(before.difference(&before).is_empty());
        fs::write(at("content"), "CONTENT").unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("new"), "").unwrap();
        fs::create_dir(at(".git")).unwrap();
        let after = Image::read(folder.path()).unwrap();
        let lines = before.difference(&after);
        assert_eq!(lines, ["content differs", "gone is missing", "mode differs", "new is unexpected"]);
        assert_eq!(before.folders(), [(PathBuf::from("d"), 1)]);
    }
}
