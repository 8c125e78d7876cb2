//! Folders that cannot be workspaces: homes of Safepoint and virtual file systems.

use crate::linux::{self, Names};
use rustix::fd::AsFd;
use safepoint_model::STORE_MAGIC;
use std::io::Read;
use std::path::Path;

const STORE: &[u8] = b"store";
const FORMAT: &[u8] = b"format";
/// Sandboxes of plans: workspaces in a home that are not part of its data.
const SANDBOXES: &str = "sandboxes";
/// A store under construction has one or two names.
const NAMES_MAX: usize = 16;

/// Returns true if a directory with these names is a home of Safepoint: it has `store/format` or a draft of
/// that file.
pub(crate) fn is_home(dir: impl AsFd, names: &Names) -> bool {
    names.find(STORE).is_some() && has_format(dir)
}

fn has_format(dir: impl AsFd) -> bool {
    let Ok(store) = linux::open_dir(dir, STORE) else { return false };
    if says_so(&store, FORMAT) {
        return true;
    }
    let Ok(Some(names)) = linux::list_up_to(&store, NAMES_MAX) else { return false };
    let is_draft = |name: &[u8]| name.strip_prefix(FORMAT).is_some_and(|rest| rest.starts_with(b"."));
    names.iter().any(|entry| is_draft(&entry.name) && says_so(&store, &entry.name))
}

fn says_so(store: impl AsFd, name: &[u8]) -> bool {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut start = Vec::new();
        let fd = linux::open_file(store, name)?;
        if linux::facts_of(&fd)?.file_type.is_file() {
            std::fs::File::from(fd).take(STORE_MAGIC.len() as u64).read_to_end(&mut start)?;
        }
        Ok(start)
    };
    read().is_ok_and(|start| start == STORE_MAGIC.as_bytes())
}

/// Returns true if a folder is a home of Safepoint or lies in one, unless it is a sandbox.
pub fn is_in_a_home(path: &Path) -> bool {
    path.ancestors().any(|above| {
        let is_sandbox = path.strip_prefix(above.join(SANDBOXES)).is_ok_and(|below| below.iter().count() > 1);
        !is_sandbox && linux::open_folder(above).is_ok_and(|dir| has_format(&dir))
    })
}

/// Returns true if a folder, or its nearest existing parent, is on a virtual file system. Files there can be
/// endless, block, or have side effects when opened.
pub fn is_made_up(path: &Path) -> bool {
    path.ancestors()
        .find_map(|above| rustix::fs::statfs(above).ok())
        .is_some_and(|facts| MADE_UP.contains(&u32::try_from(facts.f_type & 0xffff_ffff).unwrap_or(0)))
}

/// proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, bpf, pstore, efivarfs, configfs, fusectl, devpts, mqueue, binfmt_misc,
/// selinuxfs, nsfs, pipefs, sockfs (linux/magic.h).
const MADE_UP: [u32; 19] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0x6265_6570,
    0x6573_5543,
    0x1cd1,
    0x1980_0202,
    0x4249_4e4d,
    0xf97c_ff8c,
    0x6e73_6673,
    0x5049_5045,
    0x534f_434b,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_home_is_known_by_its_format_and_a_sandbox_in_it_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        for below in ["store/packs", "sandboxes/plan/shop/src", "sandboxes/plan", "cache"] {
            fs::create_dir_all(path.join(below)).unwrap();
        }
        assert!(!is_in_a_home(&path.join("store/packs")));
        fs::write(path.join("store/format.x"), "safepoint store 1\n").unwrap();
        assert!(is_in_a_home(&path), "a home under construction");
        fs::rename(path.join("store/format.x"), path.join("store/format")).unwrap();
        for inside in ["", "store", "store/packs", "sandboxes", "sandboxes/plan", "cache"] {
            assert!(is_in_a_home(&path.join(inside)), "{inside}");
        }
        for sandbox in ["sandboxes/plan/shop", "sandboxes/plan/shop/src"] {
            assert!(!is_in_a_home(&path.join(sandbox)), "{sandbox}");
        }
        fs::write(path.join("store/format"), "png").unwrap();
        assert!(!is_in_a_home(&path));
    }

    #[test]
    fn what_the_kernel_makes_up_is_told_from_what_is_on_a_disk() {
        for path in ["/proc", "/proc/self/fd", "/proc/nothing/there", "/sys"] {
            assert!(is_made_up(Path::new(path)), "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_made_up(folder.path()));
    }
}
