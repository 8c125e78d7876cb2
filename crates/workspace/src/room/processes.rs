//! Processes in a room, also those that outlived its command: those in its namespace, or, of a copy, those that a command left there.

use super::mounts::parse;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Process in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomProcess {
    /// Process id.
    pub pid: i32,
    /// Name of its program, shortened by the kernel.
    pub name: String,
}

/// Returns the processes in the rooms of these attempts, each with the attempt. Processes of other users are not seen.
pub fn room_processes(is_wanted: &dyn Fn(&str) -> bool) -> Vec<(String, RoomProcess)> {
    let mut known: HashMap<PathBuf, Option<String>> = HashMap::new();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let path = entry.path();
        let Ok(space) = fs::read_link(path.join("ns/mnt")) else { continue };
        let attempt = known.entry(space).or_insert_with(|| {
            let mounted = parse(&fs::read(path.join("mountinfo")).unwrap_or_default());
            mounted.iter().rev().find_map(|mount| mount.attempt().map(str::to_owned))
        });
        if let Some(attempt) = attempt
            && is_wanted(attempt)
            && !is_over(pid)
        {
            found.push((attempt.clone(), RoomProcess { pid, name: name_of(&path) }));
        }
    }
    found
}

/// Returns the processes with all of these variables in their environment that have their temporary folder, current directory or an open
/// file below a folder. This process and those that it was started from are left out.
///
/// A shell or an editor that a user opened in the folder has not the variables.
pub fn marked_processes(marks: &[OsString], folder: &Path) -> Vec<RoomProcess> {
    let own = lineage();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(pid) = pid.filter(|pid| !own.contains(pid)) else { continue };
        let path = entry.path();
        // Those of other users cannot be read.
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        if marks.iter().all(|mark| variables.contains(&mark.as_bytes()))
            && (has_temporary_folder(&variables, folder) || is_at(&path, folder))
            && !is_over(pid)
        {
            found.push(RoomProcess { pid, name: name_of(&path) });
        }
    }
    found
}

fn has_temporary_folder(variables: &[&[u8]], folder: &Path) -> bool {
    let mut values = variables.iter().filter_map(|variable| variable.strip_prefix(b"TMPDIR="));
    values.any(|value| Path::new(OsStr::from_bytes(value)).starts_with(folder))
}

/// Returns true if a process has its current directory or an open file below a folder.
fn is_at(process: &Path, folder: &Path) -> bool {
    let is_below = |link: PathBuf| fs::read_link(link).is_ok_and(|path| path.starts_with(folder));
    is_below(process.join("cwd"))
        || fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|open| is_below(open.path()))
}

/// Returns this process, its parent, and so on.
fn lineage() -> Vec<i32> {
    let mut pids = vec![i32::try_from(std::process::id()).unwrap_or(0)];
    while let Some(parent) = pids.last().copied().and_then(parent_of).filter(|pid| !pids.contains(pid)) {
        pids.push(parent);
    }
    pids
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok().filter(|pid| *pid > 0)
}

fn name_of(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned()
}

/// Returns true for a process that ended and was not waited for.
fn is_over(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
