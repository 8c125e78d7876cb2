//! Reading and writing the settings files of agents.
//!
//! A write is atomic: a temporary file beside the target, made durable, renamed over it. After a crash the file is old or new; a temporary
//! file named `.NAME.safepoint-PID` may be left, which the next change of the file deletes.

#![allow(clippy::disallowed_methods, reason = "this module writes the settings files of agents")]

use super::InstallError;
use rustix::process::{Pid, test_kill_process};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of a settings file.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// File as found.
#[derive(Debug)]
pub(super) struct Found {
    /// Path without links.
    pub(super) path: PathBuf,
    /// Content, or `None` if missing.
    pub(super) text: Option<String>,
}

fn refused(path: &Path, reason: &'static str) -> InstallError {
    InstallError::Refused { path: path.to_owned(), reason }
}

fn unreadable(path: &Path, source: io::Error) -> InstallError {
    InstallError::Read { path: path.to_owned(), source }
}

/// Reads a settings file. Links are followed to a regular file of the same user; below `within`, if given.
pub(super) fn read(path: &Path, within: Option<&Path>) -> Result<Found, InstallError> {
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                return Err(refused(path, "it is a link to a missing file"));
            }
            let real = future_path(path);
            inside(&real, path, within)?;
            return Ok(Found { path: real, text: None });
        }
        Err(error) => return Err(unreadable(path, error)),
    };
    inside(&real, path, within)?;
    let file = OpenOptions::new()
        .read(true)
        // A FIFO must not block.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&real)
        .map_err(|error| unreadable(path, error))?;
    let facts = file.metadata().map_err(|error| unreadable(path, error))?;
    if !facts.is_file() {
        return Err(refused(path, "it is not a regular file"));
    }
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused(path, "it belongs to another user"));
    }
    if facts.len() > FILE_BYTES_MAX {
        return Err(refused(path, "it is larger than 32 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(path, "it is not UTF-8 text"))?;
    Ok(Found { path: real, text: Some(text) })
}

/// Refuses a file that may not be replaced.
pub(super) fn writable(path: &Path) -> Result<(), InstallError> {
    match fs::metadata(path) {
        Ok(facts) if facts.mode() & 0o200 == 0 => Err(refused(path, "it is read-only")),
        _ => Ok(()),
    }
}

/// Path without links of a missing file. The record of a file has the same path before and after its creation.
fn future_path(path: &Path) -> PathBuf {
    let real = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    real.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?)))
        .unwrap_or_else(|| path.to_owned())
}

/// A project may come from others: its links must not lead out of it.
fn inside(real: &Path, path: &Path, within: Option<&Path>) -> Result<(), InstallError> {
    // A missing project has no links.
    match within.and_then(|folder| folder.canonicalize().ok()) {
        Some(folder) if !real.starts_with(&folder) => Err(refused(path, "it is a link out of the project")),
        _ => Ok(()),
    }
}

/// Missing folders above a file, outermost first.
pub(super) fn missing_folders(path: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|above| !above.exists()).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Replaces a file, or creates it with its folders. Refuses if the content is no longer `expected`.
pub(super) fn write(path: &Path, expected: Option<&str>, text: &str) -> Result<(), InstallError> {
    write_as(path, expected, text, (0o666, 0o777))
}

/// The same, with the modes of a new file and of new folders, before the umask.
fn write_as(path: &Path, expected: Option<&str>, text: &str, new: (u32, u32)) -> Result<(), InstallError> {
    let failed = |source| InstallError::Write { path: path.to_owned(), source };
    let mode = fs::metadata(path).ok().map(|facts| facts.permissions().mode() & 0o7777);
    for folder in missing_folders(path) {
        DirBuilder::new().mode(new.1).create(&folder).map_err(failed)?;
    }
    let temporary = temporary(path);
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode.map_or(new.0, |_| 0o600))
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        if let Some(mode) = mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        file.sync_all()
    };
    let result = written().map_err(failed).and_then(|()| {
        same(path, expected)?;
        fs::rename(&temporary, path).map_err(failed)
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
        return result;
    }
    sync_folder(path).map_err(failed)
}

/// Name of temporary files, without the process.
fn temporary_prefix(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(".{name}.safepoint-")
}

fn temporary(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}{}", temporary_prefix(path), std::process::id()))
}

/// Deletes temporary files of processes that are gone. A process of another container may seem gone: its rename then fails, and its target
/// stays as it was.
pub(super) fn sweep(path: &Path) {
    let prefix = temporary_prefix(path);
    let Some(Ok(entries)) = path.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let process = entry.file_name().to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        let gone = process
            .and_then(Pid::from_raw)
            .is_some_and(|process| test_kill_process(process) == Err(rustix::io::Errno::SRCH));
        if gone {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn same(path: &Path, expected: Option<&str>) -> Result<(), InstallError> {
    let current = match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unreadable(path, error)),
    };
    match current.as_deref() == expected.map(str::as_bytes) {
        true => Ok(()),
        false => Err(InstallError::Busy { path: path.to_owned() }),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Deletes a file whose content is `expected`.
pub(super) fn remove(path: &Path, expected: &str) -> Result<(), InstallError> {
    same(path, Some(expected))?;
    let failed = |source| InstallError::Write { path: path.to_owned(), source };
    fs::remove_file(path).and_then(|()| sync_folder(path)).map_err(failed)
}

/// Deletes folders that are empty, innermost first.
pub(super) fn remove_empty(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        // A folder that is in use stays.
        let _ = fs::remove_dir(folder);
    }
}

/// Reads a file of Safepoint's home.
pub(super) fn read_own(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// Replaces a file of Safepoint's home.
pub(super) fn write_own(path: &Path, text: &str) -> Result<(), InstallError> {
    sweep(path);
    let expected = read_own(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    write_as(path, expected.as_deref(), text, (0o600, 0o700))
}

/// Deletes a file of Safepoint's home.
pub(super) fn remove_own(path: &Path) -> Result<(), InstallError> {
    sweep(path);
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}
