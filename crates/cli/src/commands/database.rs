//! What this program does when a capture of it starts it: copies one SQLite database, and nothing else. No command for people.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The option that asks for it, followed by the two paths.
pub(crate) const COPY: &str = "--copy-database";

/// How a capture starts it; nothing where this program does not know where it lies.
pub(crate) fn helper() -> Vec<OsString> {
    match std::env::current_exe() {
        Ok(program) => vec![program.into_os_string(), COPY.into()],
        Err(_) => Vec::new(),
    }
}

/// Copies a database. Whoever started it sees by the exit code whether that was done.
pub(super) fn copy(from: &OsStr, to: &OsStr) -> ExitCode {
    match safepoint::back_up_database(Path::new(from), Path::new(to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
