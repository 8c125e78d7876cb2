//! Lower limits of the cost for any tool, measured together with the tools.
//!
//! * a bare parallel walk: every directory opened and read, statx(2) on every entry;
//! * read, hash, compress, write: every byte read once, BLAKE3, zstd at the store's level, one file written,
//!   one flush;
//! * one flush of a small file that grew.

use crate::failure::{Result, Tried};
use crate::image::TOOL_FOLDERS;
use rayon::prelude::*;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags, openat, statx};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Compression level of the store.
const LEVEL: i32 = 3;
/// Size of the write buffer.
const WRITE_BYTES: usize = 4 << 20;
/// Piece size for reading a large file.
const PIECE_BYTES: u64 = 1 << 20;

/// Walks a tree; returns the number of entries and the time.
pub(crate) fn walk(root: &Path) -> Result<(u64, f64)> {
    let began = Instant::now();
    let entries = open_folder(CWD, root).and_then(|folder| walk_folder(&folder, true));
    let entries = entries.tried(|| format!("walking {}", root.display()))?;
    Ok((entries, began.elapsed().as_secs_f64()))
}

fn open_folder(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn walk_folder(folder: &OwnedFd, is_root: bool) -> io::Result<u64> {
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let own = is_root && TOOL_FOLDERS.iter().any(|own| name.to_bytes() == own.as_bytes());
        if !own && !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    let mut folders = Vec::new();
    let count = names.len() as u64;
    for name in names {
        let about = statx(folder, &name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        if FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory {
            folders.push(name);
        }
    }
    let below: io::Result<u64> = folders
        .into_par_iter()
        .map(|name| {
            use rustix::fd::AsFd;
            walk_folder(&open_folder(folder.as_fd(), &name)?, false)
        })
        .sum();
    Ok(count + below?)
}

/// Reads, hashes, compresses and writes these files below `root` into one new file `out`. Returns the time
/// and the bytes written.
pub(crate) fn keep(root: &Path, files: &[PathBuf], out: &Path) -> Result<(f64, u64)> {
    let failed = || format!("reading files of {} and writing {}", root.display(), out.display());
    let began = Instant::now();
    let target = Mutex::new(File::create(out).tried(failed)?);
    let kept = files.par_iter().try_fold(Keeper::default, |mut keeper, file| {
        keeper.take(&root.join(file), &target)?;
        Ok::<_, io::Error>(keeper)
    });
    let written = kept
        .map(|keeper| keeper.and_then(|mut keeper| keeper.write(&target).map(|()| keeper.written)))
        .try_reduce(|| 0, |a, b| Ok(a + b))
        .tried(failed)?;
    target.into_inner().unwrap_or_else(PoisonError::into_inner).sync_data().tried(failed)?;
    let took = began.elapsed().as_secs_f64();
    std::fs::remove_file(out).tried(|| format!("removing {}", out.display()))?;
    Ok((took, written))
}

/// Buffers of one thread.
#[derive(Default)]
struct Keeper {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    raw: Vec<u8>,
    packed: Vec<u8>,
    written: u64,
}

impl Keeper {
    fn take(&mut self, path: &Path, target: &Mutex<File>) -> io::Result<()> {
        self.raw.clear();
        File::open(path)?.read_to_end(&mut self.raw)?;
        let raw = std::mem::take(&mut self.raw);
        self.pack(&raw)?;
        self.raw = raw;
        if self.packed.len() >= WRITE_BYTES {
            self.write(target)?;
        }
        Ok(())
    }

    fn pack(&mut self, raw: &[u8]) -> io::Result<()> {
        self.packed.extend_from_slice(blake3::hash(raw).as_bytes());
        let mut compressor = match self.compressor.take() {
            Some(compressor) => compressor,
            None => zstd::bulk::Compressor::new(LEVEL)?,
        };
        self.packed.extend_from_slice(&compressor.compress(raw)?);
        self.compressor = Some(compressor);
        Ok(())
    }

    fn write(&mut self, target: &Mutex<File>) -> io::Result<()> {
        target.lock().unwrap_or_else(PoisonError::into_inner).write_all(&self.packed)?;
        self.written += self.packed.len() as u64;
        self.packed.clear();
        Ok(())
    }
}

/// Reads and hashes a large file in pieces and writes one of them: the cost of one changed byte.
pub(crate) fn keep_one_piece(path: &Path, out: &Path) -> Result<f64> {
    let failed = || format!("reading {} and writing {}", path.display(), out.display());
    let began = Instant::now();
    let file = File::open(path).tried(failed)?;
    let bytes = file.metadata().tried(failed)?.len();
    (0..bytes.div_ceil(PIECE_BYTES))
        .into_par_iter()
        .try_for_each_init(Vec::new, |piece, number| {
            read_piece(&file, number * PIECE_BYTES, bytes, piece)?;
            std::hint::black_box(blake3::hash(piece));
            Ok::<_, io::Error>(())
        })
        .tried(failed)?;
    let mut keeper = Keeper::default();
    let mut piece = Vec::new();
    read_piece(&file, 0, bytes, &mut piece).and_then(|()| keeper.pack(&piece)).tried(failed)?;
    let target = Mutex::new(File::create(out).tried(failed)?);
    keeper.write(&target).tried(failed)?;
    target.into_inner().unwrap_or_else(PoisonError::into_inner).sync_data().tried(failed)?;
    let took = began.elapsed().as_secs_f64();
    std::fs::remove_file(out).tried(|| format!("removing {}", out.display()))?;
    Ok(took)
}

fn read_piece(file: &File, offset: u64, bytes: u64, piece: &mut Vec<u8>) -> io::Result<()> {
    let length = PIECE_BYTES.min(bytes - offset);
    piece.resize(length as usize, 0);
    file.read_exact_at(piece, offset)
}

/// Appends to `files` small files in `dir` and flushes each; returns the time.
pub(crate) fn flush(dir: &Path, files: usize) -> Result<f64> {
    let failed = || format!("appending to files in {}", dir.display());
    let path = |number: usize| dir.join(format!("flushed-{number}"));
    let mut opened = Vec::new();
    for number in 0..files {
        opened.push(OpenOptions::new().create(true).append(true).open(path(number)).tried(failed)?);
    }
    let began = Instant::now();
    for file in &mut opened {
        file.write_all(&[b'x'; 4096]).and_then(|()| file.sync_data()).tried(failed)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_walk_sees_every_entry_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::create_dir_all(folder.path().join(".git/objects")).unwrap();
        fs::write(folder.path().join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink("..", folder.path().join("a/up")).unwrap();
        assert_eq!(walk(folder.path()).unwrap().0, 4);
        assert!(walk(&folder.path().join("none")).unwrap_err().to_string().starts_with("walking"));
    }

    #[test]
    fn what_is_kept_is_written_and_removed_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a".repeat(100_000)).unwrap();
        let out = folder.path().join("out");
        let (_, written) = keep(folder.path(), &["a".into()], &out).unwrap();
        assert!((32..1_000).contains(&written), "{written}");
        keep_one_piece(&folder.path().join("a"), &out).unwrap();
        assert!(!out.exists());
        flush(folder.path(), 2).unwrap();
    }
}
