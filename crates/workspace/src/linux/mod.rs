//! Linux-specific calls: directory handles, `statx`, renames, attributes, syncs.
//!
//! Input: an open directory and names below it. No function here takes a path that the kernel may resolve
//! through a symbolic link, `..` or another mount: `openat2(2)` with BENEATH and NO_SYMLINKS ensures it.

mod attributes;
mod lease;
pub(crate) mod ofd;
mod processes;

pub(crate) use attributes::{
    Attributes, attainable, drop_acls, hide_lower, hides_lower, is_whiteout_file, is_written_by, keeps_acls,
    may_set_capabilities, read_meta, read_meta_by_path, set_link_owner, set_link_times_to, set_meta,
    set_mode, set_times_to, set_writer,
};
pub(crate) use lease::{Lease, try_lease, write_back};
pub(crate) use processes::{boot_id, displaced_is_mapped, written_inodes};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use safepoint_model::RelPath;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Facts of an entry from `statx`: enough to detect a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) file_type: FileType,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) ino: u64,
    /// Number of hard links.
    pub(crate) names: u32,
    pub(crate) size: u64,
    /// Bytes on disk: less than the size if the file has holes.
    pub(crate) disk_bytes: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    /// Creation time, or 0 if the file system keeps none. Distinguishes a reused inode number.
    pub(crate) born_ns: i64,
    /// Device (major, minor) and mount id: constant inside a workspace.
    pub(crate) place: (u32, u32, u64),
    /// True for the character device 0/0, by which the upper directory of an overlay hides a deleted name.
    pub(crate) is_whiteout: bool,
}

impl Facts {
    /// Returns true if a file with these facts has the same bytes as one with the other's.
    pub(crate) fn same_file_state(&self, other: &Facts) -> bool {
        (self.ino, self.size, self.mtime_ns, self.ctime_ns)
            == (other.ino, other.size, other.mtime_ns, other.ctime_ns)
    }
}

fn nanoseconds(time: rustix::fs::StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}

fn statx(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> io::Result<Facts> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | StatxFlags::BTIME;
    let raw = rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, mask)?;
    Ok(Facts {
        file_type: FileType::from_raw_mode(u32::from(raw.stx_mode)),
        mode: raw.stx_mode & 0o7777,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        ino: raw.stx_ino,
        names: raw.stx_nlink,
        size: raw.stx_size,
        disk_bytes: raw.stx_blocks.saturating_mul(512),
        mtime_ns: nanoseconds(raw.stx_mtime),
        ctime_ns: nanoseconds(raw.stx_ctime),
        born_ns: if raw.stx_mask & StatxFlags::BTIME.bits() == 0 { 0 } else { nanoseconds(raw.stx_btime) },
        place: (raw.stx_dev_major, raw.stx_dev_minor, raw.stx_mnt_id),
        is_whiteout: FileType::from_raw_mode(u32::from(raw.stx_mode)).is_char_device()
            && (raw.stx_rdev_major, raw.stx_rdev_minor) == (0, 0),
    })
}

/// Asks the file system to spread new subdirectories over emptier parts of the disk (`chattr +T`).
///
/// ext4 puts new files near their directory and skips inodes freed in the last minutes. A second rollback
/// soon after the first frees and creates thousands, and would take several times as long. File systems
/// without this flag lose nothing.
pub(crate) fn spread_below(dir: &OwnedFd) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(dir) {
        let _ = rustix::fs::ioctl_setflags(dir, flags | rustix::fs::IFlags::TOPDIR);
    }
}

/// Returns the facts of an entry, without following a link.
pub(crate) fn facts_at(dir: impl AsFd, name: &[u8]) -> io::Result<Facts> {
    statx(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns the facts of an entry, or `None` if it is missing.
pub(crate) fn facts_if_any(dir: impl AsFd, name: &[u8]) -> io::Result<Option<Facts>> {
    match facts_at(dir, name) {
        Ok(facts) => Ok(Some(facts)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the facts of an open entry.
pub(crate) fn facts_of(file: impl AsFd) -> io::Result<Facts> {
    statx(file.as_fd(), b"", AtFlags::EMPTY_PATH)
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn open(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    loop {
        let opened = rustix::fs::openat2(
            dir,
            name,
            flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            mode,
            BENEATH | ResolveFlags::NO_XDEV,
        );
        match opened {
            // The kernel asks for a retry after a concurrent rename (openat2(2)).
            Err(Errno::AGAIN) => {}
            other => return Ok(other?),
        }
    }
}

/// Opens a folder by its path. The last name must not be a link.
pub(crate) fn open_folder(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a subdirectory for listing.
pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(dir.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a file for reading. Does not block on a FIFO that replaced the file.
pub(crate) fn open_file(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(dir.as_fd(), name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
}

/// Opens an entry without read permission: enough to change its attributes.
pub(crate) fn open_path(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(dir.as_fd(), name, OFlags::PATH, Mode::empty())
}

/// Opens a subdirectory for lookups, which needs no permission to list it.
pub(crate) fn open_place(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(dir.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

/// Creates a new file that only its owner can read and write.
pub(crate) fn create_file(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(dir.as_fd(), name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)
}

/// Opens a directory at a path below `root`, of any length.
///
/// `PATH_MAX` limits one call, so a long path is walked in stretches.
pub(crate) fn open_dir_at(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
    const STRETCH_BYTES_MAX: usize = 3_000;
    let mut here: Option<OwnedFd> = None;
    let mut stretch: Vec<u8> = Vec::new();
    for name in path.names() {
        if stretch.len() + name.len() > STRETCH_BYTES_MAX {
            here = Some(open_dir(here.as_ref().map_or(root, |fd| fd.as_fd()), &stretch)?);
            stretch.clear();
        }
        if !stretch.is_empty() {
            stretch.push(b'/');
        }
        stretch.extend_from_slice(name);
    }
    match (here, stretch.is_empty()) {
        (Some(here), true) => Ok(here),
        (here, false) => open_dir(here.as_ref().map_or(root, |fd| fd.as_fd()), &stretch),
        (None, true) => open_dir(root, b"."),
    }
}

/// Name in a directory.
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
}

/// Sorted names of a directory, in one allocation.
#[derive(Default)]
pub(crate) struct Names {
    /// Inode of the directory itself as listed. On some file systems it differs from `statx`.
    pub(crate) own_inode: Option<u64>,
    bytes: Vec<u8>,
    /// Start and end of each name in the bytes.
    spans: Vec<(usize, usize)>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| &self.bytes[span.0..span.1])
    }

    /// Returns the position of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.spans.binary_search_by(|span| self.bytes[span.0..span.1].cmp(name)).ok()
    }
}

/// Lists a directory, from the position of its handle.
pub(crate) fn names(dir: impl AsFd) -> io::Result<Names> {
    Ok(names_up_to(dir, usize::MAX)?.unwrap_or_default())
}

/// As above, or `None` if there are more than `names_max` names.
fn names_up_to(dir: impl AsFd, names_max: usize) -> io::Result<Option<Names>> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut entries = rustix::fs::RawDir::new(dir.as_fd(), &mut buffer);
    let (mut bytes, mut spans) = (Vec::with_capacity(512), Vec::with_capacity(32));
    let mut own_inode = None;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." => own_inode = Some(entry.ino()),
            b".." => {}
            _ if spans.len() == names_max => return Ok(None),
            name => {
                let start = bytes.len();
                bytes.extend_from_slice(name);
                spans.push((start, bytes.len()));
            }
        }
    }
    let name = |span: &(usize, usize)| &bytes[span.0..span.1];
    spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    // A name deleted and created again during the listing can appear twice.
    spans.dedup_by(|a, b| name(a) == name(b));
    Ok(Some(Names { own_inode, bytes, spans }))
}

/// Returns the sorted names of a directory as owned values.
pub(crate) fn list(dir: impl AsFd) -> io::Result<Vec<Listed>> {
    Ok(list_up_to(dir, usize::MAX)?.unwrap_or_default())
}

/// As above, or `None` if there are more than `names_max` names.
pub(crate) fn list_up_to(dir: impl AsFd, names_max: usize) -> io::Result<Option<Vec<Listed>>> {
    let owned = |names: Names| names.iter().map(|name| Listed { name: name.to_vec() }).collect();
    Ok(names_up_to(dir, names_max)?.map(owned))
}

/// Returns the first data range at or after an offset, or `None` (lseek(2), `SEEK_DATA`).
pub(crate) fn data_from(file: impl AsFd, at: u64) -> io::Result<Option<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let data =
        seek(&file, SeekFrom::Data(at)).and_then(|start| Ok(start..seek(&file, SeekFrom::Hole(start))?));
    match data {
        Err(Errno::NXIO) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Returns the target of a symbolic link.
pub(crate) fn read_link(dir: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes())
}

pub(crate) fn make_link(dir: impl AsFd, name: &[u8], target: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, dir, name)?)
}

/// Creates a directory that only its owner can use.
pub(crate) fn make_dir(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(dir, name, Mode::RWXU)?)
}

pub(crate) fn remove_file(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

pub(crate) fn remove_dir(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// Exchanges two entries atomically.
pub(crate) fn exchange(a: (&OwnedFd, &[u8]), b: (&OwnedFd, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(a.0, a.1, b.0, b.1, RenameFlags::EXCHANGE)?)
}

/// Moves an entry atomically; fails if the new name exists.
pub(crate) fn move_no_replace(from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE)?)
}

/// Fallback for file systems without `RENAME_NOREPLACE`: creates a second link, then removes the first. A
/// directory cannot be linked: it is renamed after a check, and a newcomer in between is lost only if it is
/// an empty directory.
pub(crate) fn move_no_replace_by_link(from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> io::Result<()> {
    if facts_at(from.0, from.1)?.file_type.is_dir() {
        if facts_if_any(to.0, to.1)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        return Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?);
    }
    match rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()) {
        Ok(()) => remove_file(from.0, from.1),
        // No hard links either (FAT): only the check before the rename protects.
        Err(Errno::PERM | Errno::OPNOTSUPP) if facts_if_any(to.0, to.1)?.is_none() => {
            Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes one file or directory durable. A failure is final: the kernel may have dropped the pages.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Makes everything on the file system of this directory durable.
pub(crate) fn sync_all(dir: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(dir)?)
}

/// Guarantees of a file system type (statfs(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileSystem {
    /// A store through a mapping sets a new mtime if the page was written back before it.
    pub(crate) stamps_stores: bool,
    /// Only processes of this kernel can have its files open. False if unknown.
    pub(crate) is_local: bool,
    /// A lease does not detect a mapping whose descriptor was closed: overlayfs maps the lower file but
    /// checks its own.
    pub(crate) hides_mappings: bool,
}

/// Returns the guarantees of the file system of an open entry.
pub(crate) fn file_system(file: impl AsFd) -> FileSystem {
    const EXT: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683e;
    const TMPFS: u32 = 0x0102_1994;
    const F2FS: u32 = 0xf2f5_2010;
    const ZFS: u32 = 0x2fc1_2fc1;
    const BCACHEFS: u32 = 0xca45_1a4e;
    const OVERLAYFS: u32 = 0x794c_7630;
    // The type of this field depends on the architecture.
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
    let kind = rustix::fs::fstatfs(file).map_or(0, |stat| stat.f_type as u32);
    let stamps_stores = matches!(kind, EXT | XFS | BTRFS);
    let is_local = stamps_stores || matches!(kind, TMPFS | F2FS | ZFS | BCACHEFS);
    FileSystem { stamps_stores, is_local, hides_mappings: kind == OVERLAYFS }
}

/// Free bytes on the file system of this directory.
pub(crate) fn free_bytes(dir: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(dir)?;
    // A file system that reports no size has no limit.
    if stat.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

const SECOND_NS: i64 = 1_000_000_000;
/// Coarsest timestamps, those of FAT: even seconds.
const COARSEST_NS: i64 = 2 * SECOND_NS;
/// A clock that stands still for longer is taken for broken.
const STANDSTILL_MAX: Duration = Duration::from_secs(5);

/// Current time as the kernel stamps files (`ktime_get_coarse_real_ts64`).
pub(crate) fn coarse_now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(SECOND_NS).saturating_add(now.tv_nsec)
}

/// Waits until a further change would get another timestamp.
pub(crate) fn wait_for_tick(newest_ns: i64) {
    wait_for_clock(newest_ns, coarse_now_ns);
}

/// Waits by the clock of file timestamps alone: the machine may be paused while it stands still. Ends early
/// only if that clock stands still for [`STANDSTILL_MAX`].
fn wait_for_clock(newest_ns: i64, now_ns: impl Fn() -> i64) {
    let (tick_ns, longest_ns) = match newest_ns % SECOND_NS {
        0 => (COARSEST_NS, COARSEST_NS),
        _ => (0, 50_000_000),
    };
    let mut last_ns = now_ns();
    // A timestamp of another machine's clock may be in the future.
    let until_ns = newest_ns.saturating_add(tick_ns).min(last_ns.saturating_add(longest_ns));
    let mut moved = Instant::now();
    while last_ns <= until_ns && moved.elapsed() < STANDSTILL_MAX {
        std::thread::sleep(Duration::from_millis(1));
        let now_ns = now_ns();
        if now_ns != last_ns {
            (last_ns, moved) = (now_ns, Instant::now());
        }
    }
}

/// Returns true if this process may create and remove names in a directory.
pub(crate) fn may_write(dir: impl AsFd) -> bool {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(dir, ".", access, AtFlags::EACCESS).is_ok()
}

/// Returns true if this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_clock_that_stands_still_is_waited_for() {
        let begun = Instant::now();
        let clock = || if begun.elapsed() < Duration::from_millis(200) { 1_001 } else { 2_001 };
        wait_for_clock(1_001, clock);
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }

    #[test]
    fn a_timestamp_of_the_future_is_waited_for_briefly() {
        let readings = Cell::new(0);
        let clock = || {
            readings.set(readings.get() + 1);
            readings.get() * 4_000_000 + 1
        };
        wait_for_clock(3_600 * SECOND_NS + 1, clock);
        assert!(readings.get() < 20, "{}", readings.get());
    }

    #[test]
    fn a_whole_second_is_waited_out() {
        let readings = Cell::new(0);
        let clock = || {
            readings.set(readings.get() + 1);
            SECOND_NS + readings.get() * SECOND_NS / 4
        };
        wait_for_clock(SECOND_NS, clock);
        assert!(clock() > 3 * SECOND_NS);
    }
}
