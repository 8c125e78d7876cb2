//! Mounts of rooms that this process sees (proc_pid_mountinfo(5)).

use super::{SOURCE, TREE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Room that this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomMount {
    /// Id of its attempt.
    pub attempt: String,
    /// Path of the project, where the overlay is mounted.
    pub project: PathBuf,
    /// The same folder in the room.
    pub tree: PathBuf,
}

/// Mount of a namespace.
pub(super) struct Mounted {
    pub(super) point: PathBuf,
    pub(super) options: String,
    pub(super) kind: String,
    pub(super) source: String,
}

/// Returns the mounts in the text of a `mountinfo`.
pub(super) fn parse(text: &[u8]) -> Vec<Mounted> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Mounted {
        point: PathBuf::from(OsString::from_vec(unescaped(fields.get(4)?))),
        options: text(fields.get(5)?),
        kind: text(fields.get(dash + 1)?),
        source: text(fields.get(dash + 2)?),
    })
}

/// Decodes spaces, tabs, line ends and backslashes, which the kernel writes in octal.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

impl Mounted {
    /// Returns the attempt whose room is mounted here.
    pub(super) fn attempt(&self) -> Option<&str> {
        self.source.strip_prefix(SOURCE).filter(|_| self.kind == "overlay")
    }
}

/// Returns the rooms that this process is in, the outermost first. A process outside of any sees none.
pub fn room_mounts() -> Vec<RoomMount> {
    std::fs::read("/proc/self/mountinfo").map_or_else(|_| Vec::new(), |text| rooms(&parse(&text)))
}

fn rooms(mounted: &[Mounted]) -> Vec<RoomMount> {
    let mut found: Vec<RoomMount> = Vec::new();
    for tree in mounted {
        let Some(attempt) = tree.attempt().filter(|_| is_tree(&tree.point)) else { continue };
        let project = mounted
            .iter()
            .find(|other| other.attempt() == Some(attempt) && other.point != tree.point)
            .map(|other| other.point.clone());
        if let Some(project) = project {
            found.push(RoomMount { attempt: attempt.to_owned(), project, tree: tree.point.clone() });
        }
    }
    found
}

/// Returns true if a mount point lies in a room.
fn is_tree(point: &Path) -> bool {
    point.parent().and_then(Path::file_name).is_some_and(|name| name == TREE)
        && point.ancestors().nth(2).is_some_and(|room| room.join(super::LOCK).symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_odd_letters() {
        let text = b"65 43 0:39 / /tmp/a\\040b\\134c rw,relatime shared:7 - overlay safepoint-attempt:X rw,lowerdir=l\n\
            1 2 0:1 / / rw - ext4 /dev/vda rw\nnonsense\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].point, Path::new("/tmp/a b\\c"));
        assert_eq!(found[0].attempt(), Some("X"));
        assert_eq!((found[1].attempt(), found[1].kind.as_str()), (None, "ext4"));
    }

    #[test]
    fn a_source_of_another_kind_of_file_system_is_no_room() {
        let found = parse(b"1 2 0:1 / /p rw - tmpfs safepoint-attempt:X rw\n");
        assert_eq!(found[0].attempt(), None);
    }
}
