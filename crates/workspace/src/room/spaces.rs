//! Namespaces of a room, each with the access of its processes to the rest of the file system.
//!
//! A layer can be mounted in one namespace only. So a later command joins the processes of an earlier one; if it is to have less access,
//! it leaves them again with a copy of their mounts. More access cannot be got back. The file `spaces` of the room has a record for each
//! namespace that was made since the room was last empty. It is written under the room's lock.

#![allow(clippy::disallowed_methods, reason = "this module keeps a file of the room")]

use super::enter::{Failed, Outside, RoomEntry};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File with the namespaces of a room.
const SPACES: &str = "spaces";

/// Process whose namespace a command joins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fitting {
    pub(super) pid: i32,
    /// True if the rest of the file system is to be made read-only in a copy of the namespace.
    pub(super) is_to_be_closed: bool,
}

/// Forgets the namespaces of earlier processes and notes that of this one.
pub(super) fn begin(entry: &RoomEntry) -> Result<(), Failed> {
    let _ = fs::remove_file(entry.room.path().join(SPACES));
    note(entry)
}

/// Notes the namespace of this process.
pub(super) fn note(entry: &RoomEntry) -> Result<(), Failed> {
    let failed = |error| ("note the namespace of the command", error);
    let space = fs::metadata("/proc/self/ns/mnt").map_err(failed)?.ino();
    let path = entry.room.path().join(SPACES);
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    file.write_all(&record(space, &entry.outside)).map_err(failed)
}

/// Returns the process to join, if one has the wanted access or more.
pub(super) fn fitting(entry: &RoomEntry, pids: &[i32]) -> Option<Fitting> {
    let noted = read(&fs::read(entry.room.path().join(SPACES)).unwrap_or_default());
    let known: Vec<(i32, Option<Outside>)> = pids.iter().map(|pid| (*pid, of(*pid, &noted))).collect();
    choose(&entry.outside, &known)
}

fn of(pid: i32, noted: &[(u64, Outside)]) -> Option<Outside> {
    let space = fs::metadata(format!("/proc/{pid}/ns/mnt")).ok()?.ino();
    // The kernel uses a number again; the last record is true.
    noted.iter().rev().find(|(other, _)| *other == space).map(|(_, outside)| outside.clone())
}

fn choose(wanted: &Outside, known: &[(i32, Option<Outside>)]) -> Option<Fitting> {
    let with = |access: &Outside| known.iter().find(|(_, outside)| outside.as_ref() == Some(access));
    if let Some((pid, _)) = with(wanted) {
        return Some(Fitting { pid: *pid, is_to_be_closed: false });
    }
    let is_to_be_closed = *wanted != Outside::Real;
    // A namespace without a record was made by a command inside, such as a sandbox.
    let unknown = || known.first().filter(|_| known.iter().all(|(_, outside)| outside.is_none()));
    let open = with(&Outside::Real).filter(|_| is_to_be_closed).or_else(unknown);
    open.map(|(pid, _)| Fitting { pid: *pid, is_to_be_closed })
}

/// Fields that end with a zero byte: number, access, number of folders, folders.
fn record(space: u64, outside: &Outside) -> Vec<u8> {
    let (word, writable) = match outside {
        Outside::Real => ("real", &[][..]),
        Outside::ReadOnly(writable) => ("read-only", writable.as_slice()),
    };
    let mut bytes = format!("{space}\0{word}\0{}\0", writable.len()).into_bytes();
    for path in writable {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes
}

/// Reads records. What follows a broken one is ignored.
fn read(bytes: &[u8]) -> Vec<(u64, Outside)> {
    let mut fields = bytes.split(|byte| *byte == 0);
    let mut noted = Vec::new();
    while let Some(one) = read_one(&mut fields) {
        noted.push(one);
    }
    noted
}

fn read_one<'b>(fields: &mut impl Iterator<Item = &'b [u8]>) -> Option<(u64, Outside)> {
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (space, word, count) = (text()?.parse().ok()?, text()?, text()?.parse::<usize>().ok()?);
    let path = |bytes: &[u8]| -> PathBuf { Path::new(OsStr::from_bytes(bytes)).to_owned() };
    let writable: Vec<PathBuf> = fields.take(count).map(path).collect();
    match word {
        "real" => Some((space, Outside::Real)),
        "read-only" if writable.len() == count => Some((space, Outside::ReadOnly(writable))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_broken_one_ends_the_list() {
        let all = [
            (1, Outside::Real),
            (2, Outside::ReadOnly(vec!["/a b\n".into(), "/c".into()])),
            (3, Outside::ReadOnly(Vec::new())),
        ];
        let mut bytes: Vec<u8> = all.iter().flat_map(|(space, outside)| record(*space, outside)).collect();
        assert_eq!(read(&bytes), all);
        bytes.extend_from_slice(b"4\0read-only\09\0/d");
        assert_eq!(read(&bytes), all);
        assert!(read(b"").is_empty() && read(b"x\0real\x000\0").is_empty());
    }

    #[test]
    fn a_command_joins_the_same_access_or_one_that_it_can_close() {
        let read_only = || Outside::ReadOnly(vec!["/a".into()]);
        let (real, closed, nested) = ((1, Some(Outside::Real)), (2, Some(read_only())), (3, None));
        let fit = |pid, is_to_be_closed| Some(Fitting { pid, is_to_be_closed });
        let all = [nested.clone(), closed.clone(), real.clone()];
        assert_eq!(choose(&Outside::Real, &all), fit(1, false));
        assert_eq!(choose(&read_only(), &all), fit(2, false));
        assert_eq!(choose(&Outside::ReadOnly(Vec::new()), &all), fit(1, true));
        assert_eq!(choose(&Outside::Real, std::slice::from_ref(&closed)), None);
        assert_eq!(choose(&Outside::ReadOnly(Vec::new()), &[closed]), None);
        assert_eq!(choose(&read_only(), &[real]), fit(1, true));
        assert_eq!(choose(&Outside::Real, std::slice::from_ref(&nested)), fit(3, false));
        assert_eq!(choose(&read_only(), &[nested]), fit(3, true));
    }
}
