//! Capabilities of the workspace's file system, probed in Safepoint's own folder.

use crate::linux::{self, Lease};
use crate::root::Root;
use rustix::fd::OwnedFd;
use std::io;

/// Capabilities of a file system. A missing one has a fallback and a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Two entries can be exchanged atomically.
    pub exchange: bool,
    /// An entry can be moved without replacing another.
    pub no_replace: bool,
    /// The kernel reports files open for writing. Probed with our own file, so other users' files may differ:
    /// each displaced file is checked separately. Without it every file may have a writer.
    pub leases: bool,
    /// Names that differ only in case are distinct.
    pub case_matters: bool,
}

impl Default for Capabilities {
    /// Returns the capabilities of ext4, xfs, btrfs and tmpfs.
    fn default() -> Self {
        Self { exchange: true, no_replace: true, leases: true, case_matters: true }
    }
}

pub(crate) const ONE: &[u8] = b"Probe-one";
const ONE_IN_LOWER_CASE: &[u8] = b"probe-one";
pub(crate) const TWO: &[u8] = b"probe-two";

/// A feature that a file system lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lack {
    /// Exchange of two entries in one step.
    Exchange,
    /// Rename that never replaces.
    NoReplace,
    /// Leases, which tell of programs that have a file open.
    Leases,
    /// Names that differ only in case.
    Case,
}

impl Capabilities {
    /// Probes the file system.
    ///
    /// # Errors
    /// Fails if the workspace is not writable.
    pub fn probe(root: &Root) -> io::Result<Self> {
        let own = root.make_own_folder()?;
        let result = try_out(&own);
        for name in [ONE, TWO] {
            if linux::facts_if_any(&own, name)?.is_some() {
                linux::remove_file(&own, name)?;
            }
        }
        root.drop_own_folder()?;
        result
    }

    /// Returns the features that are missing.
    pub fn lacking(&self) -> Vec<Lack> {
        let all = [
            (self.exchange, Lack::Exchange),
            (self.no_replace, Lack::NoReplace),
            (self.leases, Lack::Leases),
            (self.case_matters, Lack::Case),
        ];
        all.into_iter().filter(|(has, _)| !has).map(|(_, lack)| lack).collect()
    }

    /// Returns the common capabilities of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            exchange: self.exchange && other.exchange,
            no_replace: self.no_replace && other.no_replace,
            leases: self.leases && other.leases,
            case_matters: self.case_matters && other.case_matters,
        }
    }
}

fn try_out(own: &OwnedFd) -> io::Result<Capabilities> {
    for name in [ONE, TWO] {
        match linux::create_file(own, name) {
            Ok(_) => {}
            // A killed probe left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let case_matters = linux::facts_if_any(own, ONE_IN_LOWER_CASE)?.is_none();
    let exchange = linux::exchange((own, ONE), (own, TWO)).is_ok();
    let occupied = linux::move_no_replace((own, ONE), (own, TWO));
    let no_replace = occupied.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    let one = linux::open_file(own, ONE)?;
    let leases = linux::try_lease(&one, linux::facts_of(&one)?.uid) == Lease::NoWriter;
    Ok(Capabilities { exchange, no_replace, leases, case_matters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let found = Capabilities::probe(&root).unwrap();
        assert_eq!(found, Capabilities::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_probe_left_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let own = root.make_own_folder().unwrap();
        linux::create_file(&own, ONE).unwrap();
        assert_eq!(Capabilities::probe(&root).unwrap(), Capabilities::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn every_lack_is_told() {
        assert!(Capabilities::default().lacking().is_empty());
        let none = Capabilities { exchange: false, no_replace: false, leases: false, case_matters: false };
        assert_eq!(none.lacking().len(), 4);
        assert_eq!(Capabilities::default().and(none), none);
    }
}
