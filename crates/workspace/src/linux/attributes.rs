//! Mode, owner, times, ACLs, capabilities and extended attributes of an open entry, set without following
//! links.

use super::Facts;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use safepoint_model::access::{self, Acl};
use safepoint_model::tree::{Meta, Owners, Xattr};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::sync::OnceLock;

/// Prefix of attributes that every user may set.
const USER: &[u8] = b"user.";
/// Prefix of an overlay's own attributes, which describe its layer and not the file.
const OVERLAY: &[u8] = b"user.overlay.";
/// Marks of a directory that hides the one below it, by root and by an ordinary user.
const OPAQUE: [&CStr; 2] = [c"trusted.overlay.opaque", c"user.overlay.opaque"];
/// Id of the rollback that wrote an upper directory. The kernel hides it from the overlay, as all names with this beginning.
const WRITER: [&CStr; 2] = [c"trusted.overlay.safepoint", c"user.overlay.safepoint"];
/// Marks of an empty file that stands for a deleted name.
const WHITEOUT: [&CStr; 2] = [c"trusted.overlay.whiteout", c"user.overlay.whiteout"];
/// Capability to set file capabilities (capabilities(7)).
const CAP_SETFCAP: u32 = 31;

/// Path of an open entry that also works for `O_PATH` handles, which most calls refuse.
fn through_proc(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Metadata of an entry as a tree stores it.
pub(crate) struct Attributes {
    pub(crate) meta: Meta,
    /// True if an ACL or a capability has a form that trees do not store.
    pub(crate) odd: bool,
}

/// Reads the metadata of a file or directory open for reading.
pub(crate) fn read_meta(file: &OwnedFd, facts: &Facts) -> io::Result<Attributes> {
    Ok(kept(read_xattrs(file)?, facts))
}

/// Reads the metadata of an `O_PATH` handle. `user.*` attributes require read permission (xattr(7)).
pub(crate) fn read_meta_by_path(file: &OwnedFd, facts: &Facts) -> io::Result<Attributes> {
    let path = through_proc(file);
    let list = |names: &mut [u8]| match names.is_empty() {
        true => rustix::fs::listxattr_query(path.as_str()),
        false => rustix::fs::listxattr(path.as_str(), names),
    };
    let get = |name: &CStr, value: &mut [u8]| match rustix::fs::getxattr(path.as_str(), name, value) {
        Err(Errno::ACCESS) => Err(Errno::NODATA),
        other => other,
    };
    Ok(kept(collect_xattrs(&list, &get)?, facts))
}

fn kept(mut xattrs: Vec<Xattr>, facts: &Facts) -> Attributes {
    let found = xattrs.len();
    xattrs.retain(|(name, value)| match name.as_slice() {
        access::ACCESS => Acl::parse(value).is_some_and(Acl::is_extended),
        access::DEFAULT => facts.file_type.is_dir() && Acl::parse(value).is_some(),
        access::CAPABILITY => facts.file_type.is_file() && access::is_capability(value),
        _ => true,
    });
    let odd = xattrs.len() < found;
    let mtime_ns = if facts.file_type.is_file() { facts.mtime_ns } else { 0 };
    let mut meta = Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, mtime_ns, xattrs };
    // The mode was read at another moment. The kernel uses the ACL.
    if let Some(acl) = meta.acl() {
        meta.mode = meta.mode & 0o7000 | acl.mode_bits();
    }
    Attributes { meta, odd }
}

/// Returns the stored extended attributes, sorted; empty if the file system has none.
fn read_xattrs(file: &OwnedFd) -> io::Result<Vec<Xattr>> {
    let list = |names: &mut [u8]| match names.is_empty() {
        true => rustix::fs::flistxattr_query(file),
        false => rustix::fs::flistxattr(file, names),
    };
    let get = |name: &CStr, value: &mut [u8]| rustix::fs::fgetxattr(file, name, value);
    collect_xattrs(&list, &get)
}

/// Fills a buffer, or returns the length of the list if the buffer is empty.
type List<'a> = &'a dyn Fn(&mut [u8]) -> rustix::io::Result<usize>;
type Get<'a> = &'a dyn Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>;

fn collect_xattrs(list: List<'_>, get: Get<'_>) -> io::Result<Vec<Xattr>> {
    let mut names = Vec::new();
    loop {
        let size = match list(&mut []) {
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(size) => size,
            Err(error) => return Err(error.into()),
        };
        names.resize(size, 0u8);
        match list(&mut names) {
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
        if is_kept(name.to_bytes())
            && let Some(value) = read_xattr(get, name)?
        {
            found.push((name.to_bytes().to_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}

fn is_kept(name: &[u8]) -> bool {
    name.starts_with(USER) && !name.starts_with(OVERLAY)
        || matches!(name, access::ACCESS | access::DEFAULT | access::CAPABILITY)
}

/// Reads one value; `None` if it was deleted concurrently.
fn read_xattr(get: Get<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0u8; 256];
    loop {
        match get(name, &mut value) {
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

/// Returns true if a directory of an overlay's upper directory hides the one below it.
pub(crate) fn hides_lower(dir: &OwnedFd) -> bool {
    let mut value = [0u8; 4];
    OPAQUE.iter().any(|name| {
        let len = rustix::fs::fgetxattr(dir, *name, &mut value[..]).unwrap_or(0);
        value[..len] == *b"y"
    })
}

/// Marks a directory of an upper directory: it hides the one below it.
pub(crate) fn hide_lower(dir: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(dir, OPAQUE[usize::from(!super::is_root())], b"y", XattrFlags::empty())?)
}

/// Notes in an upper directory the rollback that wrote it.
pub(crate) fn set_writer(layer: &OwnedFd, rollback: &str) -> io::Result<()> {
    let name = WRITER[usize::from(!super::is_root())];
    Ok(rustix::fs::fsetxattr(layer, name, rollback.as_bytes(), XattrFlags::empty())?)
}

/// Returns true if this rollback wrote an upper directory.
pub(crate) fn is_written_by(layer: &OwnedFd, rollback: &str) -> io::Result<bool> {
    let mut value = [0u8; 64];
    for name in WRITER {
        match rustix::fs::fgetxattr(layer, name, &mut value[..]) {
            Ok(len) if value[..len] == *rollback.as_bytes() => return Ok(true),
            // Only root reads the first one.
            Ok(_) | Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP | Errno::RANGE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Returns true if an empty file stands for a deleted name. Newer kernels read such marks; other programs make them.
pub(crate) fn is_whiteout_file(file: &OwnedFd) -> bool {
    let path = through_proc(file);
    WHITEOUT.iter().any(|name| rustix::fs::getxattr_query(path.as_str(), *name).is_ok())
}

/// Returns true if the file system of an open entry keeps ACLs.
pub(crate) fn keeps_acls(file: &OwnedFd) -> bool {
    keeps(file, access::ACCESS)
}

fn keeps(file: &OwnedFd, name: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    let asked = rustix::fs::getxattr_query(through_proc(file), name.as_c_str());
    !matches!(asked, Err(Errno::OPNOTSUPP))
}

/// Returns true if this process may set file capabilities.
pub(crate) fn may_set_capabilities() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        match effective.map(|digits| u64::from_str_radix(digits.trim(), 16)) {
            Some(Ok(capabilities)) => capabilities >> CAP_SETFCAP & 1 == 1,
            _ => rustix::process::geteuid().is_root(),
        }
    })
}

/// Returns the settable part of `wanted`: no ACLs if the file system keeps none, no capabilities if this
/// process may not set them.
pub(crate) fn attainable<'m>(file: &OwnedFd, wanted: &'m Meta) -> Cow<'m, Meta> {
    let mut meta = Cow::Borrowed(wanted);
    if wanted.has_acl() && !keeps_acls(file) {
        meta = Cow::Owned(meta.without_acls());
    }
    if wanted.has_capability() && !(may_set_capabilities() && keeps(file, access::CAPABILITY)) {
        meta = Cow::Owned(meta.without_capability());
    }
    meta
}

/// Removes inherited ACLs from a new directory, so that entries created in it inherit none.
pub(crate) fn drop_acls(dir: &OwnedFd) -> io::Result<()> {
    if let Ok(0) | Err(Errno::OPNOTSUPP) = rustix::fs::flistxattr_query(dir) {
        return Ok(());
    }
    for name in [access::DEFAULT, access::ACCESS] {
        match rustix::fs::fremovexattr(dir, CString::new(name)?.as_c_str()) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets the permission bits of an open entry, even without read permission.
pub(crate) fn set_mode(file: &OwnedFd, mode: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(u32::from(mode));
    match rustix::fs::fchmod(file, mode) {
        // It was opened with `O_PATH`.
        Err(Errno::BADF) => Ok(rustix::fs::chmod(through_proc(file), mode)?),
        other => Ok(other?),
    }
}

/// Sets owner, attributes and mode of an open entry to those of `meta`, as far as the file system keeps them.
/// The entry must not be a link. Only values that differ from `now`, the current metadata, are set.
pub(crate) fn set_meta(file: &OwnedFd, now: &Meta, meta: &Meta, owners: Owners) -> io::Result<()> {
    let given_away = owners == Owners::Compared && (now.uid, now.gid) != (meta.uid, meta.gid);
    if given_away {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::chownat(file.as_fd(), "", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH)?;
    }
    let meta = &*attainable(file, meta);
    let path = through_proc(file);
    let user = |meta: &Meta| -> Vec<Xattr> {
        meta.xattrs.iter().filter(|(name, _)| name.starts_with(USER)).cloned().collect()
    };
    if now.xattrs != meta.xattrs {
        set_xattrs(&path, &user(now), &user(meta))?;
        change_xattr(&path, access::DEFAULT, now, meta)?;
    }
    // Mode and ACL in one step: a mode alone would briefly give the group the rights of the mask. An ACL is
    // removed by setting one that equals the mode.
    match (now.xattr(access::ACCESS), meta.xattr(access::ACCESS)) {
        (Some(now), Some(wanted)) if now == wanted => {}
        (_, Some(wanted)) => set_xattr(&path, access::ACCESS, wanted)?,
        (Some(_), None) => set_xattr(&path, access::ACCESS, &access::minimal(meta.mode))?,
        (None, None) => {}
    }
    // Late, because a change of owner clears the set-uid bit, and a mode without write blocks the other
    // calls.
    set_mode(file, meta.mode)?;
    // Last, because a change of owner clears capabilities. A process that may not set capabilities may not
    // remove them either.
    if given_away && let Some(wanted) = meta.xattr(access::CAPABILITY) {
        return set_xattr(&path, access::CAPABILITY, wanted);
    }
    if may_set_capabilities() { change_xattr(&path, access::CAPABILITY, now, meta) } else { Ok(()) }
}

/// Sets the owner of a symbolic link itself.
pub(crate) fn set_link_owner(dir: &OwnedFd, name: &[u8], meta: &Meta) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?)
}

fn set_xattrs(path: &str, now: &[Xattr], wanted: &[Xattr]) -> io::Result<()> {
    for (name, value) in wanted.iter().filter(|xattr| !now.contains(xattr)) {
        set_xattr(path, name, value)?;
    }
    for (name, _) in now.iter().filter(|(name, _)| !wanted.iter().any(|(wanted, _)| wanted == name)) {
        remove_xattr(path, name)?;
    }
    Ok(())
}

/// Sets or removes one attribute.
fn change_xattr(path: &str, name: &[u8], now: &Meta, wanted: &Meta) -> io::Result<()> {
    match (now.xattr(name), wanted.xattr(name)) {
        (now, wanted) if now == wanted => Ok(()),
        (_, Some(value)) => set_xattr(path, name, value),
        (_, None) => remove_xattr(path, name),
    }
}

fn set_xattr(path: &str, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, CString::new(name)?.as_c_str(), value, XattrFlags::empty())?)
}

fn remove_xattr(path: &str, name: &[u8]) -> io::Result<()> {
    match rustix::fs::removexattr(path, CString::new(name)?.as_c_str()) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sets the modification time of a file.
pub(crate) fn set_times_to(file: impl AsFd, mtime_ns: i64) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &times(mtime_ns))?)
}

/// Sets the modification time of a symbolic link itself.
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
        // Removing a missing attribute is no failure.
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
