//! Opens the folder of a store, its format file and its index.
//!
//! In: the path of a store. Out: an existing, private folder of a known format, and a working index. If the
//! process is killed in between, the next open repeats or skips each step.

use crate::index::{Index, Locking};
use crate::linux::Locked;
use crate::pack::PACK_HEAD_BYTES;
use crate::{StoreError, linux, recover};
use rusqlite::ffi::SQLITE_FULL;
use rustix::fs::FileType;
use safepoint_model::STORE_MAGIC;
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: u64 = 1;
const FORMAT_FILE: &str = "format";

pub(crate) fn packs_dir(dir: &Path) -> PathBuf {
    dir.join("packs")
}

pub(crate) fn pack_path(dir: &Path, name: &str) -> PathBuf {
    packs_dir(dir).join(linux::pack_file(name))
}

pub(crate) fn list_packs(dir: &Path) -> Result<Vec<(String, u64)>, StoreError> {
    let path = packs_dir(dir);
    linux::list_packs(&path).map_err(|source| StoreError::ListPacks { path, source })
}

pub(crate) fn index_path(dir: &Path) -> PathBuf {
    dir.join("index.db")
}

pub(crate) fn index_error(dir: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, SystemIoFailure};
    // SQLite reports a full disk only if a write met it; a failed flush, creation or mapping is an "I/O
    // error".
    let unclear = matches!(source.sqlite_error_code(), Some(CannotOpen | SystemIoFailure));
    let source = match unclear && linux::is_full(dir) {
        true => {
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(SQLITE_FULL), Some(source.to_string()))
        }
        false => source,
    };
    StoreError::Index { path: index_path(dir), source }
}

/// Files of the store that are opened by name, besides the packs.
const FILES: [&str; 10] = [
    FORMAT_FILE,
    "index.db",
    "index.db-wal",
    "index.db-shm",
    "index.db-journal",
    "epoch",
    "collect",
    "using-0",
    "using-1",
    "retired",
];

/// Refuses a file of the store that is a link, a FIFO or another type, or has a foreign owner. Runs before
/// any file is opened.
fn check_levels(dir: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    for folder in [dir.to_owned(), packs_dir(dir)] {
        linux::check_level(&folder, FileType::Directory, dir).map_err(failed)?;
    }
    FILES
        .iter()
        .try_for_each(|name| linux::check_level(&dir.join(name), FileType::RegularFile, dir))
        .map_err(failed)
}

/// Checks the format and the files of a read-only store.
pub(crate) fn look(dir: &Path) -> Result<(), StoreError> {
    check_levels(dir)?;
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    let path = dir.join(FORMAT_FILE);
    match linux::read_small(&path).map_err(failed)? {
        Some(text) => check_format(dir, &path, &text),
        None => Err(failed(io::ErrorKind::NotFound.into())),
    }
}

/// Creates the missing parts of the folder; refuses a folder that is not private to us.
pub(crate) fn prepare(dir: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    check_levels(dir)?;
    linux::make_dir(dir).map_err(failed)?;
    let handle = linux::open_dir(dir).map_err(failed)?;
    linux::make_private(&handle)
        .map_err(|source| StoreError::MakePrivate { path: dir.to_owned(), source })?;
    let path = dir.join(FORMAT_FILE);
    match linux::read_small(&path).map_err(failed)? {
        Some(text) => check_format(dir, &path, &text)?,
        None => {
            let text = format!("{STORE_MAGIC}{FORMAT}\n");
            linux::put_file(dir, FORMAT_FILE, text.as_bytes()).map_err(failed)?;
        }
    }
    linux::make_dir(&packs_dir(dir)).map_err(failed)
}

fn check_format(dir: &Path, path: &Path, text: &str) -> Result<(), StoreError> {
    let number = text.strip_prefix(STORE_MAGIC).and_then(|rest| rest.strip_suffix('\n'));
    match number.and_then(|number| number.parse::<u64>().ok()) {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => {
            Err(StoreError::NewerFormat { path: dir.to_owned(), found, known: FORMAT })
        }
        _ => Err(StoreError::NotAStore { path: path.to_owned() }),
    }
}

/// Opens the index; creates an empty one if it is missing, corrupt, or of another schema version.
pub(crate) fn open_index(dir: &Path) -> Result<Index, StoreError> {
    match try_index(dir)? {
        Some(index) => Ok(index),
        None => {
            let _only_one = lock_dir(dir)?;
            match try_index(dir)? {
                Some(index) => Ok(index),
                None => new_index(dir),
            }
        }
    }
}

/// Replaces an index that is corrupt or whose file is missing.
pub(crate) fn replace_index(dir: &Path, old: &Index) -> Result<Index, StoreError> {
    let only_one = lock_dir(dir)?;
    // Another process may have replaced it already; that index must be kept.
    let mut index = match old.is_current(&index_path(dir)) {
        true => new_index(dir)?,
        false => match try_index(dir)? {
            Some(index) => index,
            None => new_index(dir)?,
        },
    };
    drop(only_one);
    recover::refresh(dir, &mut index)?;
    Ok(index)
}

/// Returns the sharing mode: exclusive if a page of a mapped file might not be available.
fn locking(dir: &Path) -> Locking {
    if linux::is_tight(dir) { Locking::Alone } else { Locking::Shared }
}

/// Returns an index for a read-only store: the existing one if it covers all packs, or one in memory built
/// from the packs.
pub(crate) fn index_to_read(dir: &Path) -> Result<Index, StoreError> {
    let packs = list_packs(dir)?;
    // Without these two files, SQLite would have to create them.
    let is_there = |suffix: &str| linux::identity(&dir.join(format!("index.db{suffix}"))).is_some();
    if is_there("-wal")
        && is_there("-shm")
        && let Ok(Some(index)) = Index::open(&index_path(dir), Locking::ReadOnly)
        && let Ok(known) = index.packs()
        && packs.iter().all(|(name, len)| {
            let indexed = known.iter().find(|(known, _)| known == name).map(|(_, indexed)| *indexed);
            *len == indexed.unwrap_or(PACK_HEAD_BYTES) || *len < PACK_HEAD_BYTES
        })
    {
        return Ok(index);
    }
    index_in_memory(dir)
}

/// Builds an index in memory from the packs alone.
pub(crate) fn index_in_memory(dir: &Path) -> Result<Index, StoreError> {
    let mut index = Index::in_memory().map_err(|source| index_error(dir, source))?;
    for (name, _) in list_packs(dir)? {
        let path = pack_path(dir, &name);
        let rows = linux::open_read(&path)
            .and_then(|file| recover::rows_to_read(&name, &file))
            .map_err(|source| StoreError::ReadPack { path, source })?;
        if let Some(rows) = rows {
            index.record(&[rows]).map_err(|source| index_error(dir, source))?;
        }
    }
    Ok(index)
}

fn try_index(dir: &Path) -> Result<Option<Index>, StoreError> {
    let path = index_path(dir);
    if linux::identity(&path).is_none() {
        return Ok(None);
    }
    match Index::open(&path, locking(dir)).map_err(|source| index_error(dir, source)) {
        Err(error) if error.is_corrupt_index() => Ok(None),
        other => other,
    }
}

fn new_index(dir: &Path) -> Result<Index, StoreError> {
    let path = index_path(dir);
    let failed = |source| StoreError::Open { path: path.clone(), source };
    for suffix in ["", "-wal", "-shm"] {
        linux::remove_cache(&dir.join(format!("index.db{suffix}"))).map_err(failed)?;
    }
    linux::create(&path).map_err(failed)?;
    Index::create(&path, locking(dir)).map_err(|source| index_error(dir, source))?;
    let index = Index::open(&path, locking(dir)).map_err(|source| index_error(dir, source))?;
    index.ok_or_else(|| failed(io::Error::other("a new index has no schema")))
}

/// Keeps other processes from replacing the index until it is dropped.
fn lock_dir(dir: &Path) -> Result<Locked, StoreError> {
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    linux::open_dir(dir).and_then(linux::lock).map_err(failed)
}
