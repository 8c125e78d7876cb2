//! What can be wrong with a file of settings. Each error names the file and, where there is one, the line.

use std::fmt;
use std::io;
use thiserror::Error;

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFile {
    /// `config.toml` in Safepoint's home: the user's own.
    Home,
    /// `.safepoint.toml` at the root of a workspace: whatever works there can write it.
    Workspace,
}

impl ConfigFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            ConfigFile::Home => "config.toml",
            ConfigFile::Workspace => ".safepoint.toml",
        }
    }
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a file of settings is not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nobody knows this key.
    #[error("unknown key `{key}` in {file} line {line}: {}", advice(nearest.as_deref(), known))]
    UnknownKey {
        /// Where.
        file: ConfigFile,
        /// Where in it, counted from one.
        line: usize,
        /// The key, made printable.
        key: String,
        /// The known one that is most like it, if one is like it.
        nearest: Option<String>,
        /// The ones that are known there.
        known: String,
    },
    /// A key whose place is the user's own file.
    #[error(
        "`{key}` in {file} line {line} is refused: commands and limits are taken from config.toml in Safepoint's home alone, \
         because whatever works in the workspace can write this file"
    )]
    HomeOnly {
        /// Where.
        file: ConfigFile,
        /// Where in it.
        line: usize,
        /// The key.
        key: String,
    },
    /// A value of another type.
    #[error("`{key}` in {file} line {line} is {found}: expected {expected}")]
    WrongType {
        /// Where.
        file: ConfigFile,
        /// Where in it.
        line: usize,
        /// The key.
        key: String,
        /// What it is.
        found: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A value that means nothing.
    #[error("`{key}` in {file} line {line}: {why}")]
    WrongValue {
        /// Where.
        file: ConfigFile,
        /// Where in it.
        line: usize,
        /// The key.
        key: String,
        /// The rule that it breaks.
        why: String,
    },
    /// It is not TOML.
    #[error("{file} line {line} is not TOML: {why}")]
    Syntax {
        /// Where.
        file: ConfigFile,
        /// Where in it.
        line: usize,
        /// The rule that it breaks.
        why: String,
    },
    /// Something else has the file's name.
    #[error("{file} is not a regular file; a link is not followed")]
    NotAFile {
        /// Where.
        file: ConfigFile,
    },
    /// It is too long.
    #[error("{file} is longer than {bytes_max} bytes")]
    TooLong {
        /// Where.
        file: ConfigFile,
        /// How long it may be.
        bytes_max: u64,
    },
    /// It is not text.
    #[error("{file} is not UTF-8")]
    NotUtf8 {
        /// Where.
        file: ConfigFile,
    },
    /// The system does not give it.
    #[error("cannot read {file}")]
    Read {
        /// Where.
        file: ConfigFile,
        /// Why.
        source: io::Error,
    },
}

fn advice(nearest: Option<&str>, known: &str) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known there are {known}"),
    }
}
