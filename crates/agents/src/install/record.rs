//! Records of changed files, in `agents/` of Safepoint's home: each holds the file before and after, so that `uninstall` restores it.
//!
//! A record is durable before its file changes. After a crash between the two, the file is as before.

use super::json::Made;
use super::splice::Inserted;
use super::{InstallError, file};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    pub(super) path: PathBuf,
    /// Content before, or `None` for a new file.
    pub(super) original: Option<String>,
    /// Content after.
    pub(super) installed: String,
    /// Inserted ranges of `installed`; empty if unknown.
    pub(super) inserted: Vec<Inserted>,
    /// Lists and objects that were created.
    pub(super) made: Vec<Made>,
    /// Folders that were created, outermost first.
    pub(super) folders: Vec<PathBuf>,
}

const FORMAT: u32 = 1;

impl Record {
    pub(super) fn new(path: &Path, original: Option<String>, installed: String) -> Self {
        Self {
            format: FORMAT,
            path: path.to_owned(),
            original,
            installed,
            inserted: Vec::new(),
            made: Vec::new(),
            folders: Vec::new(),
        }
    }

    fn place(keep: &Path, path: &Path) -> PathBuf {
        let name = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
        keep.join("agents").join(format!("{}.json", &name[..32]))
    }

    /// Loads the record of a file. A damaged one counts as missing: the entries themselves tell what to remove.
    pub(super) fn load(keep: &Path, path: &Path) -> Result<Option<Self>, InstallError> {
        let Some(bytes) = file::read_own(&Self::place(keep, path))? else { return Ok(None) };
        let record: Option<Self> = serde_json::from_slice(&bytes).ok();
        Ok(record.filter(|record| record.format == FORMAT && record.path == path && record.is_sound()))
    }

    fn is_sound(&self) -> bool {
        let text = &self.installed;
        self.inserted.iter().all(|range| {
            range.start <= range.end && text.is_char_boundary(range.start) && text.is_char_boundary(range.end)
        })
    }

    pub(super) fn save(&self, keep: &Path) -> Result<(), InstallError> {
        let path = Self::place(keep, &self.path);
        let text = serde_json::to_string(self)
            .map_err(|error| InstallError::Write { path: path.clone(), source: error.into() })?;
        file::write_own(&path, &text)
    }

    pub(super) fn forget(keep: &Path, path: &Path) -> Result<(), InstallError> {
        file::remove_own(&Self::place(keep, path))
    }
}
