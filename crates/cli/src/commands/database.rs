//! Helper process that a capture starts: copies one SQLite database, and nothing else. No command for people.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The option that asks for it, followed by the two paths.
pub(crate) const COPY: &str = "--copy-database";

/// Command line of the helper; empty if this program's path is unknown.
pub(crate) fn helper() -> Vec<OsString> {
    match std::env::current_exe() {
        Ok(program) => vec![program.into_os_string(), COPY.into()],
        Err(_) => Vec::new(),
    }
}

/// Copies a database. The exit code reports success.
pub(super) fn copy(from: &OsStr, to: &OsStr) -> ExitCode {
    match safepoint::back_up_database(Path::new(from), Path::new(to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
