//! Program for the testkit's own tests, for calls that shells cannot make. Input: a command and a folder;
//! output: files in that folder.

#![allow(clippy::disallowed_methods, reason = "a program to be traced")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, RenameFlags, fallocate, renameat2};
use nix::libc::{O_DSYNC, O_TMPFILE};

fn main() -> io::Result<()> {
    let args: Vec<_> = std::env::args().collect();
    let word = args.get(1).map(String::as_str);
    let dir = Path::new(args.get(2).map_or(".", String::as_str));
    match word {
        Some("threads") => threads(dir, args.get(3).and_then(|n| n.parse().ok()).unwrap_or(4)),
        Some("exchange") => exchange(dir),
        Some("odd") => odd(dir),
        Some("forever") => loop {
            std::thread::park();
        },
        _ => Err(io::Error::other("expected: threads, exchange, odd or forever")),
    }
}

/// Runs several threads; each writes, syncs and renames a file.
fn threads(dir: &Path, count: usize) -> io::Result<()> {
    std::thread::scope(|s| {
        let all: Vec<_> = (0..count).map(|n| s.spawn(move || one_file(dir, n))).collect();
        let mut ended = all.into_iter().map(|t| t.join());
        ended.try_for_each(|r| r.unwrap_or_else(|_| Err(io::Error::other("panic"))))
    })
}

fn one_file(dir: &Path, n: usize) -> io::Result<()> {
    let part = dir.join(format!("f{n}.part"));
    let mut file = File::create(&part)?;
    for line in 0..3 {
        file.write_all(format!("thread {n} line {line}\n").as_bytes())?;
    }
    file.sync_all()?;
    fs::rename(&part, dir.join(format!("f{n}")))?;
    File::open(dir)?.sync_all()
}

/// Exchanges the folders `a` and `b`, durably.
fn exchange(dir: &Path) -> io::Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE)?;
    File::open(dir)?.sync_all()
}

/// Makes one of each rarely used call.
fn odd(dir: &Path) -> io::Result<()> {
    descriptors(dir)?;
    contents(dir)?;
    // Not every file system has them.
    let _ = xattr::set(dir.join("next"), "user.note", b"n");
    let _ = xattr::set(dir.join("next"), "user.other", b"o");
    let _ = xattr::remove(dir.join("next"), "user.other");
    Ok(())
}

fn descriptors(dir: &Path) -> io::Result<()> {
    // Writes follow the descriptor across a rename and an unlink.
    let mut file = File::create(dir.join("one"))?;
    file.write_all(b"before ")?;
    fs::rename(dir.join("one"), dir.join("two"))?;
    let gathered = file.write_vectored(&[IoSlice::new(b"and "), IoSlice::new(b"after")])?;
    assert_eq!(gathered, 9);
    file.write_all_at(b"BE", 0)?;
    file.seek(SeekFrom::Start(20))?;
    file.write_all(b"beyond")?;
    fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode(0o640))?;
    fs::hard_link(dir.join("two"), dir.join("hard"))?;
    fs::remove_file(dir.join("two"))?;
    file.write_all(b"!")?;

    // The inode number is likely to be reused.
    let gone = File::create(dir.join("gone"))?;
    gone.write_all_at(b"gone", 0)?;
    drop(gone);
    fs::remove_file(dir.join("gone"))?;
    fs::write(dir.join("next"), "next")?;

    let nameless = OpenOptions::new().write(true).custom_flags(O_TMPFILE).mode(0o600).open(dir)?;
    nameless.write_all_at(b"had no name", 0)?;
    let link = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    nix::unistd::linkat(AT_FDCWD, link.as_str(), AT_FDCWD, &dir.join("named"), follow)?;

    Ok(())
}

fn contents(dir: &Path) -> io::Result<()> {
    fs::copy(dir.join("hard"), dir.join("copy"))?;
    let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
    log.write_all(b"line 1\n")?;
    fallocate(&log, FallocateFlags::empty(), 0, 100)?;
    log.write_all(b"line 2\n")?;
    log.set_len(105)?;
    // Linux appends here, regardless of the offset.
    fs::write(dir.join("more"), "first ")?;
    let more = OpenOptions::new().append(true).open(dir.join("more"))?;
    more.write_all_at(b"second", 0)?;
    let mut options = OpenOptions::new();
    let synced = options.write(true).create(true).custom_flags(O_DSYNC).open(dir.join("synced"))?;
    synced.write_all_at(b"at once", 0)?;
    std::os::unix::fs::symlink("log", dir.join("link"))?;
    // Through the symlink: the file is truncated, not the link.
    OpenOptions::new().write(true).truncate(true).open(dir.join("link"))?.write_all_at(b"x", 3)?;
    Ok(())
}

fn mode(bits: u32) -> fs::Permissions {
    fs::Permissions::from_mode(bits)
}
