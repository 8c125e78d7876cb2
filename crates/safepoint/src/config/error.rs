//! Configuration errors. Each error names the file and, if known, the line.

use std::fmt;
use std::io;
use thiserror::Error;

/// Configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFile {
    /// `config.toml` in Safepoint's home, owned by the user.
    Home,
    /// `.safepoint.toml` at the root of a workspace, writable by any process there.
    Workspace,
}

impl ConfigFile {
    /// File name.
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

/// Reason to reject a configuration file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key is unknown.
    #[error("unknown key `{key}` in {file} line {line}: {}", advice(nearest.as_deref(), known))]
    UnknownKey {
        /// File.
        file: ConfigFile,
        /// Line, counted from one.
        line: usize,
        /// Key, made printable.
        key: String,
        /// Most similar known key, if any.
        nearest: Option<String>,
        /// Known keys at this position.
        known: String,
    },
    /// The key is allowed only in the user's file.
    #[error(
        "`{key}` in {file} line {line} is refused: commands and limits are taken from config.toml in Safepoint's home alone, \
         because whatever works in the workspace can write this file"
    )]
    HomeOnly {
        /// File.
        file: ConfigFile,
        /// Line.
        line: usize,
        /// Key.
        key: String,
    },
    /// The value has the wrong type.
    #[error("`{key}` in {file} line {line} is {found}: expected {expected}")]
    WrongType {
        /// File.
        file: ConfigFile,
        /// Line.
        line: usize,
        /// Key.
        key: String,
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
    },
    /// The value is invalid.
    #[error("`{key}` in {file} line {line}: {why}")]
    WrongValue {
        /// File.
        file: ConfigFile,
        /// Line.
        line: usize,
        /// Key.
        key: String,
        /// Rule that it breaks.
        why: String,
    },
    /// The text is not TOML.
    #[error("{file} line {line} is not TOML: {why}")]
    Syntax {
        /// File.
        file: ConfigFile,
        /// Line.
        line: usize,
        /// Rule that it breaks.
        why: String,
    },
    /// The path is not a regular file.
    #[error("{file} is not a regular file; a link is not followed")]
    NotAFile {
        /// File.
        file: ConfigFile,
    },
    /// The file is too long.
    #[error("{file} is longer than {bytes_max} bytes")]
    TooLong {
        /// File.
        file: ConfigFile,
        /// Maximum length.
        bytes_max: u64,
    },
    /// The file is not UTF-8.
    #[error("{file} is not UTF-8")]
    NotUtf8 {
        /// File.
        file: ConfigFile,
    },
    /// The file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// File.
        file: ConfigFile,
        /// Cause.
        source: io::Error,
    },
}

impl ConfigError {
    /// Returns the file that is wrong.
    pub fn file(&self) -> ConfigFile {
        match self {
            Self::UnknownKey { file, .. }
            | Self::HomeOnly { file, .. }
            | Self::WrongType { file, .. }
            | Self::WrongValue { file, .. }
            | Self::Syntax { file, .. }
            | Self::NotAFile { file, .. }
            | Self::TooLong { file, .. }
            | Self::NotUtf8 { file, .. }
            | Self::Read { file, .. } => *file,
        }
    }
}

fn advice(nearest: Option<&str>, known: &str) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known there are {known}"),
    }
}
