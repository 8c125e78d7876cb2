//! Opening: the folder, its format, its index.
//!
//! In: the path of a store. Out: a folder that is there, private and of a known format, and an index that works.
//! Killed in between, the next one to open goes on: every step is done again, or found done.

use crate::index::Index;
use crate::linux::Locked;
use crate::{StoreError, linux, recover};
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: u64 = 1;
const FORMAT_FILE: &str = "format";
const FORMAT_PREFIX: &str = "safepoint store ";

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
    StoreError::Index { path: index_path(dir), source }
}

/// Makes what is missing of the folder, and refuses one that is not ours to read.
pub(crate) fn prepare(dir: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    linux::make_dir(dir).map_err(failed)?;
    let handle = linux::open_dir(dir).map_err(failed)?;
    linux::make_private(&handle)
        .map_err(|source| StoreError::MakePrivate { path: dir.to_owned(), source })?;
    let path = dir.join(FORMAT_FILE);
    match linux::read_small(&path).map_err(failed)? {
        Some(text) => check_format(dir, &path, &text)?,
        None => {
            let text = format!("{FORMAT_PREFIX}{FORMAT}\n");
            linux::put_file(dir, FORMAT_FILE, text.as_bytes()).map_err(failed)?;
        }
    }
    linux::make_dir(&packs_dir(dir)).map_err(failed)
}

fn check_format(dir: &Path, path: &Path, text: &str) -> Result<(), StoreError> {
    let number = text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.strip_suffix('\n'));
    match number.and_then(|number| number.parse::<u64>().ok()) {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => {
            Err(StoreError::NewerFormat { path: dir.to_owned(), found, known: FORMAT })
        }
        _ => Err(StoreError::NotAStore { path: path.to_owned() }),
    }
}

/// Opens the index, or an empty one where it is missing, corrupt, or of another schema.
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

/// An index in the place of one that was found corrupt, or whose file is gone.
pub(crate) fn replace_index(dir: &Path, old: &Index) -> Result<Index, StoreError> {
    let only_one = lock_dir(dir)?;
    // Someone else may have done it already; theirs is not to be thrown away again.
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

fn try_index(dir: &Path) -> Result<Option<Index>, StoreError> {
    let path = index_path(dir);
    if linux::identity(&path).is_none() {
        return Ok(None);
    }
    match Index::open(&path).map_err(|source| index_error(dir, source)) {
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
    Index::create(&path).map_err(|source| index_error(dir, source))?;
    let index = Index::open(&path).map_err(|source| index_error(dir, source))?;
    index.ok_or_else(|| failed(io::Error::other("a new index has no schema")))
}

/// Keeps every other process from replacing the index, until it is dropped.
fn lock_dir(dir: &Path) -> Result<Locked, StoreError> {
    let failed = |source| StoreError::Open { path: dir.to_owned(), source };
    linux::open_dir(dir).and_then(linux::lock).map_err(failed)
}
