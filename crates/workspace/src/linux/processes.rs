//! Finds processes that may write to a file, and the id of this boot, from `/proc` (proc(5)).
//!
//! The result is a proof only if every process is visible and inspectable: in the initial PID namespace, with
//! CAP_SYS_PTRACE. In a container, outside processes are invisible and may have the same files open.
//! Everything that cannot be ruled out counts as a writer: a process that cannot be inspected, descriptors in
//! flight through a socket or registered with io_uring, and the kernel's NFS server and loop devices.
//!
//! The file must be unreachable by name before the scan. A process that starts during the scan is inspected
//! too, because it may have inherited a descriptor. All processes are inspected twice: the second pass sees a
//! descriptor that one process handed to another during the first.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Initial PID namespace (`PROC_PID_INIT_INO` in the kernel's `proc_ns.h`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Kernel thread (`PF_KTHREAD` in the kernel's `sched.h`): it has no descriptors and no mappings.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Maximum number of rounds in which processes may start during a pass.
const ROUNDS_MAX: usize = 20;

/// Returns the id of this boot, unique among boots.
pub(crate) fn boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().split('-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

/// Returns the inodes of files open for writing or mapped as shared, or `None` if not every process can be
/// inspected.
pub(crate) fn written_inodes() -> Option<HashSet<u64>> {
    if !sees_all_processes() || kernel_may_write() {
        return None;
    }
    let mut inodes = HashSet::new();
    for _ in 0..2 {
        add_all(Path::new("/proc"), &mut inodes).ok()?;
    }
    Some(inodes)
}

/// Returns true if an inspectable process has a displaced file mapped as shared. Other processes may have
/// one, too.
pub(crate) fn displaced_is_mapped() -> bool {
    let is_displaced = |line: &[u8]| {
        let rights = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        rights.ends_with(b"s") && line.windows(OWN.len()).any(|part| part == OWN)
    };
    let mapped = |process: PathBuf| {
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        maps.split(|byte| *byte == b'\n').any(is_displaced)
    };
    numbered(Path::new("/proc")).is_ok_and(|processes| processes.into_iter().any(mapped))
}

fn sees_all_processes() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new(FIRST_NAMESPACE))
}

/// Returns true if the kernel may have a displaced file open, which no process shows.
fn kernel_may_write() -> bool {
    let is_displaced = |device: fs::DirEntry| {
        let backing = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        backing.windows(OWN.len()).any(|part| part == OWN)
    };
    Path::new("/proc/net/rpc/nfsd").exists()
        || fs::read_dir("/sys/block")
            .map_or(true, |mut devices| devices.any(|it| it.map_or(true, is_displaced)))
}

/// Part of the path of every displaced file.
const OWN: &[u8] = b"/.safepoint/";

/// Inspects every process, including those that start during the scan.
fn add_all(proc: &Path, inodes: &mut HashSet<u64>) -> io::Result<()> {
    let mut seen = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        let before = seen.len();
        for folder in numbered(proc)? {
            if let Some(since) = started(&folder)
                && seen.insert((folder.clone(), since))
            {
                add_process(&folder, inodes)?;
            }
        }
        if seen.len() == before {
            return Ok(());
        }
    }
    Err(io::Error::other("processes keep starting"))
}

/// Returns the folders with numeric names.
fn numbered(above: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(above)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            found.push(above.join(name));
        }
    }
    Ok(found)
}

/// Returns the start time of a process in ticks since boot; `None` for an ended process or a kernel thread.
fn started(folder: &Path) -> Option<u64> {
    let stat = fs::read(folder.join("stat")).ok()?;
    // The program name may contain any byte; it ends at the last parenthesis.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
    let field = |at: usize| fields.split_ascii_whitespace().nth(at)?.parse::<u64>().ok();
    if field(6)? & KERNEL_THREAD == 0 { field(19) } else { None }
}

/// Adds the files of all threads: each may have its own descriptors.
fn add_process(process: &Path, inodes: &mut HashSet<u64>) -> io::Result<()> {
    let threads = match numbered(&process.join("task")) {
        Err(error) if has_ended(&error) => return Ok(()),
        other => other?,
    };
    for thread in threads {
        match add_descriptors(&thread, inodes).and_then(|()| add_mappings(&thread, inodes)) {
            Err(error) if !has_ended(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn add_descriptors(thread: &Path, inodes: &mut HashSet<u64>) -> io::Result<()> {
    for entry in fs::read_dir(thread.join("fdinfo"))? {
        let name = entry?.file_name();
        let info = match fs::read_to_string(thread.join("fdinfo").join(&name)) {
            // It was just closed.
            Err(error) if has_ended(&error) => continue,
            other => other?,
        };
        let number = |key: &str, radix: u32| {
            let value = info.lines().find_map(|line| line.strip_prefix(key))?.trim();
            u64::from_str_radix(value, radix).ok()
        };
        if number("scm_fds:", 10).unwrap_or(0) > 0 || number("UserFiles:", 10).unwrap_or(0) > 0 {
            return Err(io::Error::other("descriptors are in flight to another process"));
        }
        let flags = number("flags:", 8).unwrap_or(u64::MAX);
        let writes = flags & (libc::O_ACCMODE as u64) != libc::O_RDONLY as u64;
        // Sockets and pipes have inodes too; their links are not paths.
        let is_file = || match fs::read_link(thread.join("fd").join(&name)) {
            Err(error) if has_ended(&error) => Ok(false),
            link => Ok::<bool, io::Error>(link?.is_absolute()),
        };
        if writes && is_file()? {
            // Kernels before 5.14 do not report it.
            let inode =
                number("ino:", 10).ok_or_else(|| io::Error::other("the kernel does not report inodes"))?;
            inodes.insert(inode);
        }
    }
    Ok(())
}

/// Adds shared mappings; only these reach the file. A read-only mapping may become writable. Only inodes are
/// compared, because on some file systems the device in `maps` differs from stat(2).
fn add_mappings(thread: &Path, inodes: &mut HashSet<u64>) -> io::Result<()> {
    let maps = fs::read(thread.join("maps"))?;
    for line in String::from_utf8_lossy(&maps).lines() {
        let mut fields = line.split_ascii_whitespace();
        let is_shared = fields.nth(1).is_some_and(|rights| rights.ends_with('s'));
        inodes.extend(fields.nth(2).and_then(|inode| inode.parse::<u64>().ok()).filter(|_| is_shared));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_open_descriptor_is_seen_and_its_end_too() {
        if written_inodes().is_none() {
            eprintln!("SKIPPED: needs permission to inspect every process, outside of containers");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let writer = File::create(&path).unwrap();
        let inode = writer.metadata().unwrap().ino();
        assert!(written_inodes().is_none_or(|inodes| inodes.contains(&inode)));
        drop(writer);
        // A program that another test starts concurrently may hold the file until it runs.
        assert!((0..200).any(|_| written_inodes().is_some_and(|inodes| !inodes.contains(&inode))));
    }

    /// Process as `/proc` shows it, with one descriptor and one mapping.
    fn shown(info: &str, maps: &str) -> io::Result<HashSet<u64>> {
        let folder = tempfile::tempdir().unwrap();
        let thread = folder.path().join("7/task/7");
        fs::create_dir_all(thread.join("fdinfo")).unwrap();
        fs::create_dir_all(thread.join("fd")).unwrap();
        fs::write(
            folder.path().join("7/stat"),
            "7 (a) b) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 99 0\n",
        )
        .unwrap();
        fs::write(thread.join("fdinfo/3"), info).unwrap();
        std::os::unix::fs::symlink("/some/file", thread.join("fd/3")).unwrap();
        fs::write(thread.join("maps"), maps).unwrap();
        let mut inodes = HashSet::new();
        add_all(folder.path(), &mut inodes).map(|()| inodes)
    }

    #[test]
    fn writers_and_shared_mappings_are_listed() {
        let found = |info: &str, maps: &str| {
            let mut found: Vec<u64> = shown(info, maps).unwrap().into_iter().collect();
            found.sort_unstable();
            found
        };
        let maps = "1-2 rw-p 0 fe:00 1 /x\n2-3 rw-s 0 fe:00 2 /x\n3-4 r--s 0 fe:00 3 /x\n4-5 rw-s 0 00:01 4 /dev/zero (deleted)\n";
        assert_eq!(found("flags:\t0100002\nino:\t9\n", maps), [2, 3, 4, 9]);
        assert_eq!(found("flags:\t0102001\nino:\t9\n", ""), [9]);
        assert_eq!(found("flags:\t0100000\nino:\t9\n", ""), [0u64; 0]);
    }

    #[test]
    fn whatever_cannot_be_inspected_is_no_proof() {
        assert!(shown("flags:\t02\nino:\t1\nscm_fds: 1\n", "").is_err());
        assert!(shown("flags:\t02\nino:\t1\nUserFiles:\t2\n", "").is_err());
        assert!(shown("flags:\t02\n", "").is_err());
        if !super::super::is_root() {
            assert_eq!(written_inodes(), None, "other users' processes cannot be inspected");
        }
    }

    #[test]
    fn a_boot_has_an_id() {
        assert!(boot_id().is_some_and(|id| id != [0; 16]));
        assert_eq!(boot_id(), boot_id());
    }
}
