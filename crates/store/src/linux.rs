//! The one place that touches the disk: folders, files, kernel locks, flushes, random names.
//!
//! In: paths and open files. Out: what the kernel said. Everything made here is private to the user.
//! A lock belongs to an open file and ends with it, so a crash leaves no stale lock behind.
#![allow(clippy::disallowed_methods, reason = "the store owns its folder and writes nowhere else")]

use rustix::fs::{Advice, FlockOperation, Mode, OFlags};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
const PACK_SUFFIX: &str = ".pack";

/// Makes the folder and what is missing above it. One that is there already stays as it is.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => Ok(()),
    }
}

/// Closes the folder to everyone else.
pub(crate) fn make_private(dir: &File) -> io::Result<()> {
    if dir.metadata()?.mode() & 0o077 != 0 {
        rustix::fs::fchmod(dir, Mode::from_raw_mode(PRIVATE_DIR))?;
    }
    Ok(())
}

/// Opens a folder, to lock it or to flush it.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::CLOEXEC).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// Opens a file of the store for reading. A symbolic link is not one of them.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

/// Opens a file of the store for reading and writing.
pub(crate) fn open_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

/// Makes a file that was not there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Opens a file that is there for its lock alone.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE)
        .custom_flags(flags)
        .open(path)
}

/// Puts a small file in place, whole or not at all.
pub(crate) fn put_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = dir.join(format!("{name}.{}", new_name()?));
    let file = create(&draft)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    fs::rename(&draft, dir.join(name))?;
    sync_dir(dir)
}

/// The text of a small file, or nothing where there is none.
pub(crate) fn read_small(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file that is a cache.
pub(crate) fn remove_cache(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file, durably. That it is gone already is no failure.
pub(crate) fn remove(dir: &Path, name: &str) -> io::Result<()> {
    remove_cache(&dir.join(name))?;
    sync_dir(dir)
}

/// Moves a file into a folder beside it, which is made where it is missing.
pub(crate) fn move_into(dir: &Path, name: &str, to: &Path) -> io::Result<()> {
    make_dir(to)?;
    fs::rename(dir.join(name), to.join(name))?;
    sync_dir(to)?;
    sync_dir(dir)
}

/// Whether the open file is still the one with the name: what was deleted or moved while its lock was waited for is not.
pub(crate) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(identity(path) == Some((open.dev(), open.ino())))
}

/// What tells one file from another that has taken its name.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// How long a file is, if it is there.
pub(crate) fn len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.len())
}

/// A file whose exclusive lock we hold.
pub(crate) struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a program that is just being started has a copy of our open file until its `exec`.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// A file whose lock we share with others.
pub(crate) struct Shared(File);

impl Drop for Shared {
    fn drop(&mut self) {
        // As for `Locked`.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes a shared lock if nobody holds the exclusive one.
pub(crate) fn try_lock_shared(file: File) -> io::Result<Option<Shared>> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(Shared(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the exclusive lock if nobody holds it.
pub(crate) fn try_lock(file: File) -> io::Result<Option<Locked>> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Locked(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the exclusive lock, waiting for it.
pub(crate) fn lock(file: File) -> io::Result<Locked> {
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(|()| Locked(file))?),
        }
    }
}

/// How large the file system is that holds a folder.
pub(crate) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(path)?;
    Ok(facts.f_blocks.saturating_mul(facts.f_frsize))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    open_dir(path)?.sync_all()
}

/// Asks the kernel to forget the clean pages from here on, so that the next read comes from the disk:
/// after a failed flush the page cache may hold bytes that the disk never got.
pub(crate) fn drop_cache(file: &File, from: u64) {
    // Only advice: where it is not followed, the read is as good as any other.
    let _ = rustix::fs::fadvise(file, from, None::<NonZeroU64>, Advice::DontNeed);
}

/// The packs in a folder, newest first, with their lengths.
pub(crate) fn list_packs(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(name) =
            entry.file_name().to_str().and_then(|name| name.strip_suffix(PACK_SUFFIX)).map(String::from)
        else {
            continue;
        };
        let meta = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if meta.is_file() {
            packs.push((name, meta.len()));
        }
    }
    packs.sort_unstable_by(|a, b| b.cmp(a));
    Ok(packs)
}

/// The file name of a pack.
pub(crate) fn pack_file(name: &str) -> String {
    format!("{name}{PACK_SUFFIX}")
}

/// A name that nobody has yet, later than the names before it: a ULID.
pub(crate) fn new_name() -> io::Result<String> {
    let mut random = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut random[6..], rustix::rand::GetRandomFlags::empty())?;
    if filled != random.len() - 6 {
        return Err(io::Error::other("the kernel gave too little randomness"));
    }
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let bits = (millis << 80) | u128::from_be_bytes(random);
    Ok(ulid::Ulid::from(bits).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ulids_and_differ() {
        let (one, two) = (new_name().unwrap(), new_name().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 26);
        assert_eq!(one[..6], two[..6]);
    }

    #[test]
    fn a_lock_keeps_a_second_open_file_out_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let first = create(&path).unwrap();
        assert!(create(&path).is_err());
        let copy = first.try_clone().unwrap();
        let open = || open_write(&path).unwrap();
        let held = try_lock(first).unwrap().unwrap();
        assert!(try_lock(open()).unwrap().is_none());
        drop(held);
        let held = lock(open()).unwrap();
        assert!(try_lock(copy).unwrap().is_none(), "a copy of the open file does not keep the lock");
        assert!(held.metadata().is_ok());
    }

    #[test]
    fn only_packs_are_listed_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.pack", "b.pack", "b.pack.old", "c"] {
            create(&dir.path().join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("d.pack")).unwrap();
        let names: Vec<_> = list_packs(dir.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(list_packs(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_symbolic_link_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        assert!(open_read(&dir.path().join("link")).is_err());
        assert!(open_write(&dir.path().join("link")).is_err());
    }
}
