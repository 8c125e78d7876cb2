//! Bytes in a folder, such as a mounted disk: for tests, and for teams with a file server.
//!
//! An upload is a draft that is flushed and then linked under its name, which fails if the name exists: no
//! reader sees half of it, and nothing is overwritten.

#![allow(clippy::disallowed_methods, reason = "the folder of a remote is written here alone")]

use crate::RemoteError;
use crate::bytes::{ConditionalPut, ListedObject, RemoteBytes};
use safepoint_model::Progress;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK_BYTES: usize = 256 * 1024;
const DRAFTS: &str = "drafts";

/// Folder with packs.
pub struct FolderBytes {
    root: PathBuf,
}

impl FolderBytes {
    /// Uses a folder, which is created with the first upload.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates a folder and flushes its name into the folder above, for each missing level.
    fn make(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(above) = folder.parent() {
            self.make(above)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        folder.parent().map_or(Ok(()), sync)
    }

    fn write(
        &self,
        draft: &Path,
        path: &Path,
        file: &File,
        bytes: u64,
        progress: &dyn Progress,
    ) -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        let mut block = vec![0; BLOCK_BYTES];
        let mut at = 0;
        while at < bytes {
            let len = block.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            file.read_exact_at(&mut block[..len], at)?;
            out.write_all(&block[..len])?;
            progress.advance(0, len as u64);
            at += len as u64;
        }
        out.sync_all()?;
        match fs::hard_link(draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                must_be_equal(draft, path)?;
                // The upload that made it may have died before this.
                File::open(path)?.sync_all()?;
            }
            other => other?,
        }
        path.parent().map_or(Ok(()), sync)
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn must_be_equal(draft: &Path, path: &Path) -> io::Result<()> {
    let (mut one, mut two) = (File::open(draft)?, File::open(path)?);
    let (mut ours, mut theirs) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let other = || io::Error::other("another object has its name");
    if one.metadata()?.len() != two.metadata()?.len() {
        return Err(other());
    }
    loop {
        let read = one.read(&mut ours)?;
        if read == 0 {
            return Ok(());
        }
        two.read_exact(&mut theirs[..read])?;
        if ours[..read] != theirs[..read] {
            return Err(other());
        }
    }
}

fn failed(attempt: &str, error: io::Error) -> RemoteError {
    let source = Box::new(io::Error::from(error.kind()));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RemoteError::Full { source },
        io::ErrorKind::PermissionDenied => RemoteError::Denied { attempt: attempt.to_owned(), source },
        _ => RemoteError::Server { attempt: attempt.to_owned(), source: Box::new(error) },
    }
}

fn random_name() -> io::Result<String> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_le_bytes(nonce)))
}

impl RemoteBytes for FolderBytes {
    fn put(&self, name: &str, file: &File, bytes: u64, progress: &dyn Progress) -> Result<(), RemoteError> {
        let act = || {
            let path = self.path(name);
            let drafts = self.root.join(DRAFTS);
            self.make(&drafts)?;
            path.parent().map_or(Ok(()), |folder| self.make(folder))?;
            let draft = drafts.join(random_name()?);
            let written = self.write(&draft, &path, file, bytes, progress);
            let removed = fs::remove_file(&draft);
            written.and(removed)
        };
        act().map_err(|error| failed("upload a pack", error))
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let act = || {
            let file = File::open(self.path(name))?;
            let end = range.end.min(file.metadata()?.len());
            let mut bytes =
                vec![0; usize::try_from(end.saturating_sub(range.start)).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        };
        act().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => RemoteError::NoPack { pack: name.to_owned() },
            _ => failed("read a pack", error),
        })
    }

    fn download(&self, name: &str, out: &mut dyn Write, progress: &dyn Progress) -> Result<u64, RemoteError> {
        let mut file = File::open(self.path(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RemoteError::NoPack { pack: name.to_owned() },
            _ => failed("read a pack", error),
        })?;
        let bytes = io::copy(&mut file, out).map_err(|error| failed("read a pack", error))?;
        progress.advance(0, bytes);
        Ok(bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, RemoteError> {
        let mut found = Vec::new();
        let mut folders = vec![prefix.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.path(&folder)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| failed("list packs", error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| failed("list packs", error))?;
                let metadata = entry.metadata().map_err(|error| failed("list packs", error))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                match metadata.is_dir() {
                    true => folders.push(name),
                    false => found.push(ListedObject { name, bytes: metadata.len() }),
                }
            }
        }
        found.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(found)
    }

    fn delete(&self, names: &[String]) -> Result<(), RemoteError> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("delete a pack", error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn probe(&self) -> Result<ConditionalPut, RemoteError> {
        let act = || {
            let folder = self.root.join("probe");
            self.make(&folder)?;
            let path = folder.join(random_name()?);
            let mut file =
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(b"safepoint")?;
            file.sync_all()?;
            let again = fs::hard_link(&path, &path);
            fs::remove_file(&path)?;
            Ok(again.is_err())
        };
        match act().map_err(|error: io::Error| failed("check the folder", error))? {
            true => Ok(ConditionalPut::Obeyed),
            false => Ok(ConditionalPut::Ignored),
        }
    }
}
