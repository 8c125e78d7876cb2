//! What can go wrong with a folder.

use safepoint_model::coverage::Skipped;
use safepoint_model::text::is_unsafe;
use safepoint_model::{ObjectError, RelPath};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A failed attempt on a workspace.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The folder cannot be opened.
    #[error("cannot open the workspace {path}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else works on it.
    #[error("another Safepoint is at work in {path}", path = path.display())]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// An entry cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: RelPath,
        /// Why.
        source: io::Error,
    },
    /// New content cannot be written beside the workspace.
    #[error("cannot prepare {path}")]
    Stage {
        /// What it was for.
        path: RelPath,
        /// Why.
        source: io::Error,
    },
    /// A path cannot be changed.
    #[error("cannot put {path} in place")]
    Swap {
        /// Which.
        path: RelPath,
        /// Why.
        source: io::Error,
    },
    /// What was written cannot be made durable.
    #[error("cannot make the workspace durable")]
    Sync(#[source] io::Error),
    /// A path does not hold what was put there.
    #[error("{path} does not hold what was written to it")]
    Verify {
        /// Which.
        path: RelPath,
    },
    /// A path cannot be put back.
    #[error("cannot put {path} back")]
    PutBack {
        /// Which.
        path: RelPath,
        /// Why.
        source: io::Error,
    },
    /// A path cannot be copied.
    #[error("cannot copy {path}")]
    Copy {
        /// Which.
        path: RelPath,
        /// Why.
        source: io::Error,
    },
    /// The folder of a copy cannot be made.
    #[error("cannot make the folder {path}", path = path.display())]
    MakeCopy {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder of a copy cannot be deleted.
    #[error("cannot delete the folder {path}", path = path.display())]
    RemoveCopy {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file system has too little room.
    #[error("{needed_bytes} bytes are needed beside the workspace and {free_bytes} are free")]
    Space {
        /// What it takes.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// Things stand in the way that are never touched.
    #[error("{} paths stand in the way; the first is {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    Obstructed(Vec<Obstacle>),
    /// Somebody asked to stop, and nothing had changed yet.
    #[error("interrupted")]
    Interrupted,
    /// The place that keeps objects failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The ignore rules cannot be understood.
    #[error("the exclude pattern {pattern:?} cannot be understood: {why}")]
    Pattern {
        /// Which.
        pattern: String,
        /// Why.
        why: String,
    },
}

/// One path that stands in the way of a rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Something that was never captured stands where the checkpoint holds something.
    NotCaptured(Skipped),
    /// The directory above may not be written.
    ReadOnly(RelPath),
    /// Two names of the checkpoint are one name on this file system.
    SameName(RelPath, RelPath),
    /// Something that is not Safepoint's stands where its own folder has to be.
    NotOurs(Intruder),
}

/// Something that has a name of Safepoint's own folder, or lies in it, and is not Safepoint's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intruder {
    /// The workspace.
    pub root: PathBuf,
    /// Where in it.
    pub path: RelPath,
    /// What it is, for people.
    pub what: &'static str,
    /// Whether a rollback cannot work beside it.
    pub in_the_way: bool,
}

impl Intruder {
    /// The command that frees the way. Nothing is lost by it.
    pub fn command(&self) -> String {
        let from = self.root.join(OsStr::from_bytes(self.path.as_bytes()));
        let name = self.path.split_last().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let name = [name.strip_prefix(b".").unwrap_or(&name), b".aside"].concat();
        let to = self.root.join(OsStr::from_bytes(&name));
        format!("mv -n -- {} {}", for_shell(&from), for_shell(&to))
    }
}

/// A path as it is typed in a shell. What is not plain text is written as `$'...'` (POSIX.1-2024, quoting).
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
            Obstacle::ReadOnly(path) => write!(f, "{path}: the directory may not be written"),
            Obstacle::SameName(one, two) => {
                write!(f, "{one} and {two}: this file system does not tell the two names apart")
            }
            Obstacle::NotOurs(intruder) => {
                let Intruder { path, what, .. } = intruder;
                write!(
                    f,
                    "{path}: {what}, and Safepoint needs the name; free it with: {}",
                    intruder.command()
                )
            }
        }
    }
}

/// Whether an error of the system says that the disk, or the user's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl WorkspaceError {
    /// Whether a file may not become so long (`ulimit -f`, or the file system).
    pub fn is_too_long(&self) -> bool {
        match self {
            WorkspaceError::Stage { source, .. }
            | WorkspaceError::Copy { source, .. }
            | WorkspaceError::MakeCopy { source, .. } => source.kind() == io::ErrorKind::FileTooLarge,
            _ => false,
        }
    }

    /// Whether a full disk is the cause.
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
