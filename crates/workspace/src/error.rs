//! Errors of folder operations.

use safepoint_model::coverage::Skipped;
use safepoint_model::text::is_unsafe;
use safepoint_model::{Bytes, ObjectError, RelPath};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Failed operation on a workspace.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The folder cannot be opened.
    #[error("cannot open the workspace {path}", path = path.display())]
    Open {
        /// Path of the workspace.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another Safepoint process holds the lock.
    #[error("another Safepoint process is using {path}", path = path.display())]
    Busy {
        /// Path of the workspace.
        path: PathBuf,
    },
    /// An entry cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path in the workspace.
        path: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// New content cannot be staged beside the workspace.
    #[error("cannot prepare {path}")]
    Stage {
        /// Path that it is for.
        path: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// A path cannot be changed.
    #[error("cannot replace {path}")]
    Swap {
        /// Path in the workspace.
        path: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// Written data cannot be synced.
    #[error("cannot sync the workspace")]
    Sync(#[source] io::Error),
    /// A path does not have the content written to it.
    #[error("cannot verify {path}: its content differs from the written content")]
    Verify {
        /// Path in the workspace.
        path: RelPath,
    },
    /// A path cannot be restored to its old state.
    #[error("cannot restore {path}")]
    PutBack {
        /// Path in the workspace.
        path: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// A path cannot be copied.
    #[error("cannot copy {path}")]
    Copy {
        /// Path in the workspace.
        path: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// The folder of a copy cannot be created.
    #[error("cannot create the folder {path}", path = path.display())]
    MakeCopy {
        /// Path of the copy.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The folder of a copy cannot be deleted.
    #[error("cannot delete the folder {path}", path = path.display())]
    RemoveCopy {
        /// Path of the copy.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file system has too little free space.
    #[error("too little disk space: {} are needed and {} are free", Bytes(*needed_bytes), Bytes(*free_bytes))]
    Space {
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// Entries that Safepoint never touches block the operation.
    #[error("{} the rollback; the first is {}", if .0.len() == 1 { "1 path blocks".to_owned() } else { format!("{} paths block", .0.len()) }, .0.first().map(ToString::to_string).unwrap_or_default())]
    Obstructed(Vec<Obstacle>),
    /// The user interrupted the operation before any change.
    #[error("interrupted")]
    Interrupted,
    /// The object store failed.
    #[error(transparent)]
    Object(ObjectError),
    /// An ignore pattern is invalid.
    #[error("invalid exclude pattern {pattern:?}: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Reason.
        why: String,
    },
}

impl From<ObjectError> for WorkspaceError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Interrupted => Self::Interrupted,
            error => Self::Object(error),
        }
    }
}

/// Path that blocks a rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// An entry that was never captured occupies a path of the checkpoint.
    NotCaptured(Skipped),
    /// The parent directory is not writable.
    ReadOnly(RelPath),
    /// Two names of the checkpoint are the same name on this file system.
    SameName(RelPath, RelPath),
    /// A foreign entry occupies the place of Safepoint's own folder.
    NotOurs(Intruder),
}

/// Foreign entry that has the name of Safepoint's own folder or lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intruder {
    /// Workspace.
    pub root: PathBuf,
    /// Path in the workspace.
    pub path: RelPath,
    /// Description for users.
    pub what: &'static str,
    /// True if it blocks a rollback.
    pub in_the_way: bool,
}

impl Intruder {
    /// Returns the shell command that moves the entry aside; it loses no data.
    pub fn command(&self) -> String {
        let from = self.root.join(OsStr::from_bytes(self.path.as_bytes()));
        let name = self.path.split_last().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let name = [name.strip_prefix(b".").unwrap_or(&name), b".aside"].concat();
        let to = self.root.join(OsStr::from_bytes(&name));
        format!("mv -n -- {} {}", for_shell(&from), for_shell(&to))
    }
}

/// Quotes a path for a shell. Unsafe text becomes `$'...'` (POSIX.1-2024, quoting).
fn for_shell(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@%:,=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return path.display().to_string();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_unsafe) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let spelled = |byte: &u8| match byte {
                b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\{byte:03o}"),
            };
            format!("$'{}'", bytes.iter().map(spelled).collect::<String>())
        }
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Obstacle::NotCaptured(skipped) => write!(f, "{}: {}", skipped.path, skipped.why),
            Obstacle::ReadOnly(path) => write!(f, "{path}: the directory is not writable"),
            Obstacle::SameName(one, two) => {
                write!(f, "{one} and {two}: these names are the same on this file system")
            }
            Obstacle::NotOurs(intruder) => {
                let Intruder { path, what, .. } = intruder;
                write!(
                    f,
                    "{path}: {what}, and Safepoint needs the name; move it with: {}",
                    intruder.command()
                )
            }
        }
    }
}

/// Returns true if the disk or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl WorkspaceError {
    /// Returns true if a file exceeds the maximum length (`ulimit -f` or the file system).
    pub fn is_too_long(&self) -> bool {
        match self {
            WorkspaceError::Stage { source, .. }
            | WorkspaceError::Copy { source, .. }
            | WorkspaceError::MakeCopy { source, .. } => source.kind() == io::ErrorKind::FileTooLarge,
            _ => false,
        }
    }

    /// Returns true if a full disk is the cause.
    pub fn is_full(&self) -> bool {
        match self {
            WorkspaceError::Stage { source, .. }
            | WorkspaceError::Swap { source, .. }
            | WorkspaceError::Copy { source, .. }
            | WorkspaceError::MakeCopy { source, .. } => is_full(source),
            WorkspaceError::Sync(source) => is_full(source),
            WorkspaceError::Space { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_words_for_people() {
        let full = WorkspaceError::Space { needed_bytes: 1_200_000, free_bytes: 196_608 };
        assert_eq!(full.to_string(), "too little disk space: 1.2 MB are needed and 197 kB are free");
        assert!(WorkspaceError::Obstructed(Vec::new()).to_string().starts_with("0 paths block the rollback"));
    }

    #[test]
    fn the_command_that_frees_the_way_can_be_pasted() {
        let command = |root: &[u8], path: &str| {
            let root = PathBuf::from(OsStr::from_bytes(root));
            let path = RelPath::new(path).unwrap();
            Intruder { root, path, what: "a file", in_the_way: true }.command()
        };
        assert_eq!(command(b"/p", ".safepoint"), "mv -n -- /p/.safepoint /p/safepoint.aside");
        assert_eq!(
            command(b"/it's", ".safepoint/a b"),
            "mv -n -- '/it'\\''s/.safepoint/a b' '/it'\\''s/a b.aside'"
        );
        assert_eq!(
            command(b"/\xff\x1b'", ".safepoint"),
            "mv -n -- $'/\\377\\033\\'/.safepoint' $'/\\377\\033\\'/safepoint.aside'"
        );
    }
}
