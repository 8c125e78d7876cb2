//! Safepoint's own folder: the store, the catalog, and the stat cache of each workspace. Private to its owner.

#![allow(clippy::disallowed_methods, reason = "this module owns the home folder")]

use crate::Error;
use safepoint_model::{ObjectId, ObjectKind, WorkspaceId};
use safepoint_workspace::{NextCache, StatCache};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder, and what is where in it.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
}

impl Home {
    /// Opens the folder, making it where it is missing and closing it to others where it is open to them.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Home { path: path.to_owned(), source };
        make_private_dir(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(crate) fn catalog(&self) -> PathBuf {
        self.path.join("catalog.db")
    }

    fn cache_path(&self, workspace: WorkspaceId) -> PathBuf {
        self.path.join("cache").join(format!("{workspace}.stat"))
    }

    /// A workspace's stat cache, if there is one and every pack that it relies on is still there and no shorter. What it vouches for
    /// was stored when it was written; a pack that is gone or was cut short since may have held some of it.
    pub(crate) fn read_cache(
        &self,
        workspace: WorkspaceId,
        packs_now: &[(String, u64)],
    ) -> Option<StatCache> {
        let mut bytes = fs::read(self.cache_path(workspace)).ok()?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let token = cache_token(&bytes[..end]);
        let listed = std::str::from_utf8(&bytes[..end]).ok()?;
        let is_there = |line: &str| {
            let (name, len) = line.split_once(' ')?;
            let found = packs_now.binary_search_by(|pack| pack.0.as_str().cmp(name)).ok()?;
            (packs_now[found].1 >= len.parse().ok()?).then_some(())
        };
        let all_there = listed.lines().all(|line| is_there(line).is_some());
        if !all_there {
            return None;
        }
        bytes.drain(..=end);
        StatCache::new(bytes, &token)
    }

    /// Keeps a stat cache, with the packs that hold what it vouches for. It is a cache: it is not made durable, and a failure costs
    /// time only.
    pub(crate) fn write_cache(
        &self,
        workspace: WorkspaceId,
        packs: &[(String, u64)],
        cache: NextCache,
    ) -> io::Result<()> {
        let packs: Vec<String> = packs.iter().map(|(name, len)| format!("{name} {len}")).collect();
        let packs = packs.join("\n");
        let bytes = cache.into_bytes(&cache_token(packs.as_bytes()));
        let path = self.cache_path(workspace);
        make_private_dir(&self.path.join("cache"))?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(packs.as_bytes())?;
        file.write_all(&[0])?;
        file.write_all(&bytes)?;
        fs::rename(fresh, path)
    }
}

/// What ties a cache to the packs it relies on.
fn cache_token(packs: &[u8]) -> [u8; 32] {
    *ObjectId::of(ObjectKind::Document, packs).as_bytes()
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, Permissions::from_mode(0o700))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_private_even_where_it_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        Home::open(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let home = Home::open(&path).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_is_not_a_home() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Home::open(file.path()), Err(Error::Home { .. })));
    }

    #[test]
    fn a_cache_without_its_packs_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let id = WorkspaceId::from_bits(1);
        let packs = [("a".to_owned(), 10), ("b".to_owned(), 20), ("c".to_owned(), 30)];
        assert!(home.read_cache(id, &packs).is_none());
        let workspace = tempfile::tempdir().unwrap();
        let root = safepoint_workspace::Root::open(workspace.path()).unwrap();
        let store = safepoint_store::Store::open(&home.store()).unwrap();
        let options = safepoint_workspace::ScanOptions::default();
        let scan = safepoint_workspace::scan(&root, &store.measurer(), &options, &crate::Silent).unwrap();
        home.write_cache(id, &packs[..2], scan.cache.unwrap()).unwrap();
        assert!(home.read_cache(id, &packs).is_some());
        assert!(home.read_cache(id, &packs[..1]).is_none());
        assert!(home.read_cache(id, &[packs[0].clone(), ("b".to_owned(), 21)]).is_some());
        assert!(home.read_cache(id, &[packs[0].clone(), ("b".to_owned(), 19)]).is_none());
    }
}
