//! Mode, owner, times and extended attributes of something open, set without following a link.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use safepoint_model::tree::{Meta, Owners, Xattr};
use std::ffi::{CStr, CString};
use std::io;

const PREFIX: &[u8] = b"user.";

/// The way to something open that also works when it was opened with `O_PATH`, which most calls refuse.
fn through_proc(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The extended attributes of `user.*`, sorted. None where the file system has none.
pub(crate) fn read_xattrs(file: &OwnedFd) -> io::Result<Vec<Xattr>> {
    let mut names = Vec::new();
    loop {
        let size = match rustix::fs::flistxattr_query(file) {
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(size) => size,
            Err(error) => return Err(error.into()),
        };
        names.resize(size, 0u8);
        match rustix::fs::flistxattr(file, &mut names[..]) {
            Ok(size) => {
                names.truncate(size);
                break;
            }
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut found = Vec::new();
    for name in
        names.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    {
        if name.to_bytes().starts_with(PREFIX)
            && let Some(value) = read_xattr(file, name)?
        {
            found.push((name.to_bytes().to_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}

/// The same of something that was opened with `O_PATH`, which cannot be asked directly.
pub(crate) fn read_xattrs_by_path(file: &OwnedFd) -> io::Result<Vec<Xattr>> {
    match rustix::fs::open(
        through_proc(file),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK,
        Mode::empty(),
    ) {
        Ok(readable) => read_xattrs(&readable),
        // Without the right to read it, its attributes cannot be read either (xattr(7)), and could not be captured.
        Err(Errno::ACCESS) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// One value; nothing when it went away meanwhile.
fn read_xattr(file: &OwnedFd, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0u8; 256];
    loop {
        match rustix::fs::fgetxattr(file, name, &mut value[..]) {
            Ok(size) => {
                value.truncate(size);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) if value.len() < 65_536 => value.resize(65_536, 0),
            Err(Errno::NODATA) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sets the permission bits of something open, even of something that may not be read.
pub(crate) fn set_mode(file: &OwnedFd, mode: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(u32::from(mode));
    match rustix::fs::fchmod(file, mode) {
        // It was opened with `O_PATH`.
        Err(Errno::BADF) => Ok(rustix::fs::chmod(through_proc(file), mode)?),
        other => Ok(other?),
    }
}

/// Makes owner, attributes and mode of something open those of `meta`. It must not be a link.
/// `now` is what it has at present, so that only what differs is touched.
pub(crate) fn set_meta(file: &OwnedFd, now: &Meta, meta: &Meta, owners: Owners) -> io::Result<()> {
    if owners == Owners::Compared && (now.uid, now.gid) != (meta.uid, meta.gid) {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::chownat(file.as_fd(), "", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH)?;
    }
    if now.xattrs != meta.xattrs {
        set_xattrs(file, &now.xattrs, &meta.xattrs)?;
    }
    // Last, because a change of owner clears the set-uid bit, and a mode without write hinders the rest.
    set_mode(file, meta.mode)
}

/// Gives a symbolic link itself to its owner.
pub(crate) fn set_link_owner(dir: &OwnedFd, name: &[u8], meta: &Meta) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?)
}

fn set_xattrs(file: &OwnedFd, now: &[Xattr], wanted: &[Xattr]) -> io::Result<()> {
    let path = through_proc(file);
    for (name, value) in wanted.iter().filter(|xattr| !now.contains(xattr)) {
        rustix::fs::setxattr(
            path.as_str(),
            CString::new(name.clone())?.as_c_str(),
            value,
            XattrFlags::empty(),
        )?;
    }
    for (name, _) in now.iter().filter(|(name, _)| !wanted.iter().any(|(wanted, _)| wanted == name)) {
        match rustix::fs::removexattr(path.as_str(), CString::new(name.clone())?.as_c_str()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets when a file was last written.
pub(crate) fn set_times_to(file: impl AsFd, mtime_ns: i64) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &times(mtime_ns))?)
}

/// Sets when a symbolic link itself was made.
pub(crate) fn set_link_times_to(dir: &OwnedFd, name: &[u8], mtime_ns: i64) -> io::Result<()> {
    Ok(rustix::fs::utimensat(dir, name, &times(mtime_ns), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?)
}

fn times(mtime_ns: i64) -> Timestamps {
    let time =
        Timespec { tv_sec: mtime_ns.div_euclid(1_000_000_000), tv_nsec: mtime_ns.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn attributes_read_back_also_large_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file: OwnedFd = File::create(folder.path().join("f")).unwrap().into();
        assert_eq!(read_xattrs(&file).unwrap(), vec![]);
        let small = (b"user.a".to_vec(), b"1".to_vec());
        let large = (b"user.b".to_vec(), vec![7u8; 2000]);
        let meta = |xattrs: &[&Xattr]| Meta {
            mode: 0o4640,
            xattrs: xattrs.iter().map(|x| (*x).clone()).collect(),
            ..Meta::default()
        };
        set_meta(&file, &meta(&[]), &meta(&[&small, &large]), Owners::Ignored).unwrap();
        assert_eq!(read_xattrs(&file).unwrap(), vec![small.clone(), large.clone()]);
        set_meta(&file, &meta(&[&small, &large]), &meta(&[&large]), Owners::Ignored).unwrap();
        assert_eq!(read_xattrs(&file).unwrap(), vec![large]);
        assert_eq!(super::super::facts_of(&file).unwrap().mode, 0o4640);
        // Taking away what is already gone is no failure.
        set_meta(&file, &meta(&[&small]), &meta(&[]), Owners::Ignored).unwrap();
    }

    #[test]
    fn times_before_1970_are_times_too() {
        let folder = tempfile::tempdir().unwrap();
        let file: OwnedFd = File::create(folder.path().join("f")).unwrap().into();
        for mtime in [-1_500_000_000, 1_700_000_000_123_456_789] {
            set_times_to(&file, mtime).unwrap();
            assert_eq!(super::super::facts_of(&file).unwrap().mtime_ns, mtime);
        }
    }
}
