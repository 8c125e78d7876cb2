//! All system calls of the store: folders, files, kernel locks, flushes, random names.
//!
//! In: paths and open files. Out: kernel results. Everything created here is private to the user. A lock
//! belongs to an open file and ends with it, so a crash leaves no stale lock.
#![allow(clippy::disallowed_methods, reason = "the store owns its folder and writes nowhere else")]

use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
const PACK_SUFFIX: &str = ".pack";
/// Maximum length of a small file of the store.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Minimum free space for mapping a file whose pages a full disk could refuse.
const HEADROOM_BYTES: u64 = 64 << 20;
/// Maximum space that a commit of the index may need.
const PROBE_BYTES: usize = 64 << 10;

/// Opens a path without symbolic links: the kernel refuses a link in any component (openat2(2)). A FIFO does
/// not block.
fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(CWD, path, flags, Mode::from_raw_mode(mode), resolve) {
            // The kernel asks for a retry after a concurrent rename (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) => return Err(io::Error::other("its path contains a symbolic link")),
            other => return Ok(File::from(other?)),
        }
    }
}

/// Opens a path that must be a regular file.
fn open_file(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let file = open(path, flags, mode)?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        other => Err(io::Error::other(format!("it is {}", in_words(other)))),
    }
}

fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a folder",
        FileType::RegularFile => "a file",
        FileType::Fifo => "a FIFO",
        _ => "a socket or a device",
    }
}

/// Returns the canonical path of a store folder, in which only the last component may be a link.
pub(crate) fn canonical(dir: &Path) -> io::Result<PathBuf> {
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(above), dir.file_name()) {
        (Ok(above), Some(name)) => Ok(above.join(name)),
        // Missing parents are created with it.
        _ => std::path::absolute(dir),
    }
}

/// Refuses a file of another type or owner. A missing file is accepted.
///
/// Allowed owners are the current user, the owner of the folder around the store, and root.
pub(crate) fn check_level(path: &Path, kind: FileType, store: &Path) -> io::Result<()> {
    let Some(found) = lstat(path)? else { return Ok(()) };
    let found_kind = FileType::from_raw_mode(found.st_mode);
    if found_kind != kind {
        return Err(io::Error::other(format!("{} is {}", path.display(), in_words(found_kind))));
    }
    let around = store.parent().map(lstat).transpose()?.flatten().map(|stat| stat.st_uid);
    if found.st_uid != geteuid().as_raw() && found.st_uid != 0 && Some(found.st_uid) != around {
        let what = format!("{} belongs to user {}", path.display(), found.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

fn lstat(path: &Path) -> io::Result<Option<Stat>> {
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates the folder and its missing parents. An existing folder is not changed.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    match lstat(path)?.map(|found| FileType::from_raw_mode(found.st_mode)) {
        Some(FileType::Directory) => return Ok(()),
        Some(other) => return Err(io::Error::other(format!("it is {}", in_words(other)))),
        None => {}
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let (Some(above), Some(name)) = (above, path.file_name()) else {
        return DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path);
    };
    if !above.is_dir() {
        DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(above)?;
    }
    let above = open_dir(above)?;
    match mkdirat(&above, name, Mode::from_raw_mode(PRIVATE_DIR)) {
        Ok(()) => hand_over(&open_dir(path)?, &above)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    above.sync_all()
}

/// Changes the owner of a file that root created to the owner of its folder, so that the store stays usable
/// for its owner.
fn hand_over(made: &File, above: &File) -> io::Result<()> {
    if geteuid().is_root() {
        let above = fstat(above)?;
        if above.st_uid != 0 {
            rustix::fs::fchown(
                made,
                Some(rustix::fs::Uid::from_raw(above.st_uid)),
                Some(rustix::fs::Gid::from_raw(above.st_gid)),
            )?;
        }
    }
    Ok(())
}

/// Removes the permissions of other users. A folder of another owner must at least not be writable by others.
pub(crate) fn make_private(dir: &File) -> io::Result<()> {
    let mode = dir.metadata()?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    match rustix::fs::fchmod(dir, Mode::from_raw_mode(PRIVATE_DIR)) {
        Err(Errno::PERM | Errno::ROFS) if mode & 0o022 == 0 => Ok(()),
        other => Ok(other?),
    }
}

/// Opens a folder for locking or flushing.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// Opens a regular file of the store for reading; refuses a symbolic link.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    open_file(path, OFlags::RDONLY, 0)
}

/// Opens a regular file of the store for reading and writing.
pub(crate) fn open_write(path: &Path) -> io::Result<File> {
    open_file(path, OFlags::RDWR, 0)
}

/// Creates a new file.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let file = open_file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, PRIVATE_FILE)?;
    given_to_owner(file, path)
}

/// Opens or creates a file that is used only for its lock.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    match open_file(path, OFlags::RDWR, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = open_file(path, OFlags::RDWR | OFlags::CREATE, PRIVATE_FILE)?;
            given_to_owner(file, path)
        }
        other => other,
    }
}

fn given_to_owner(file: File, path: &Path) -> io::Result<File> {
    if geteuid().is_root()
        && let Some(above) = path.parent()
    {
        hand_over(&file, &open_dir(above)?)?;
    }
    Ok(file)
}

/// Opens a lock file in a read-only store. Returns `None` if it is missing.
pub(crate) fn open_if_any(path: &Path) -> io::Result<Option<File>> {
    match open_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Replaces a small file atomically.
pub(crate) fn put_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = format!("{name}.{}", new_name()?);
    let file = create(&dir.join(&draft))?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    let dir = open_dir(dir)?;
    renameat(&dir, &draft, &dir, name)?;
    dir.sync_all()
}

/// Returns the text of a small file, or `None` if it is missing.
pub(crate) fn read_small(path: &Path) -> io::Result<Option<String>> {
    let Some(file) = open_if_any(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(SMALL_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Removes a cache file.
pub(crate) fn remove_cache(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    match unlinkat(open_dir(above)?, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes a file durably. A missing file is not an error.
pub(crate) fn remove(dir: &Path, name: &str) -> io::Result<()> {
    remove_cache(&dir.join(name))?;
    sync_dir(dir)
}

/// Moves a file into a sibling folder, which is created if missing.
pub(crate) fn move_into(dir: &Path, name: &str, to: &Path) -> io::Result<()> {
    make_dir(to)?;
    let (from, into) = (open_dir(dir)?, open_dir(to)?);
    renameat(&from, name, &into, name)?;
    into.sync_all()?;
    from.sync_all()
}

/// Returns true if free space is so low that writing to a mapped page could fail, which kills the process
/// (SIGBUS).
pub(crate) fn is_tight(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < HEADROOM_BYTES)
}

/// Returns true if writes to a folder fail because the disk or the user's quota is full. Tests it with an
/// unnamed file.
pub(crate) fn is_full(dir: &Path) -> bool {
    let mode = Mode::from_raw_mode(PRIVATE_FILE);
    let tried = || -> io::Result<()> {
        let file =
            File::from(rustix::fs::openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)?);
        file.write_all_at(&[1; PROBE_BYTES], 0)?;
        file.sync_all()
    };
    let full = [Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
    tried().is_err_and(|error| error.raw_os_error().is_some_and(|raw| full.contains(&raw)))
}

/// Returns true if the path still refers to the open file; false if it was deleted or moved before its lock
/// was acquired.
pub(crate) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(identity(path) == Some((open.dev(), open.ino())))
}

/// Returns the device and inode number of a file.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Returns the length of a file, or `None` if it is missing.
pub(crate) fn len(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|meta| meta.len())
}

/// File with an exclusive lock.
pub(crate) struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a child process holds a copy of the open file until its `exec`.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// File with a shared lock.
pub(crate) struct Shared(File);

impl Drop for Shared {
    fn drop(&mut self) {
        // As for `Locked`.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes a shared lock if no process holds the exclusive lock.
pub(crate) fn try_lock_shared(file: File) -> io::Result<Option<Shared>> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(Shared(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the exclusive lock if it is free.
pub(crate) fn try_lock(file: File) -> io::Result<Option<Locked>> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Locked(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the exclusive lock.
pub(crate) fn lock(file: File) -> io::Result<Locked> {
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(|()| Locked(file))?),
        }
    }
}

/// Returns the size of the file system that contains a folder.
pub(crate) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(path)?;
    Ok(facts.f_blocks.saturating_mul(facts.f_frsize))
}

/// Makes the directory entries of a folder durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    open_dir(path)?.sync_all()
}

/// Asks the kernel to drop clean pages from this offset, so that the next read comes from the disk: after a
/// failed flush the page cache may hold bytes that never reached it.
pub(crate) fn drop_cache(file: &File, from: u64) {
    // Advisory: if it is ignored, the read is an ordinary one.
    let _ = rustix::fs::fadvise(file, from, None::<NonZeroU64>, Advice::DontNeed);
}

/// Returns the packs in a folder with their lengths, newest first.
pub(crate) fn list_packs(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut packs = Vec::new();
    let handle = open_dir(dir)?;
    for entry in Dir::read_from(&handle)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pack) = name.to_str().ok().and_then(|name| name.strip_suffix(PACK_SUFFIX)) else { continue };
        let stat = match statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            packs.push((pack.to_owned(), u64::try_from(stat.st_size).unwrap_or(0)));
        }
    }
    packs.sort_unstable_by(|a, b| b.cmp(a));
    Ok(packs)
}

/// Returns the file name of a pack.
pub(crate) fn pack_file(name: &str) -> String {
    format!("{name}{PACK_SUFFIX}")
}

/// Returns a new ULID, which sorts after all earlier names.
pub(crate) fn new_name() -> io::Result<String> {
    let mut random = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut random[6..], rustix::rand::GetRandomFlags::empty())?;
    if filled != random.len() - 6 {
        return Err(io::Error::other("the kernel returned too few random bytes"));
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
