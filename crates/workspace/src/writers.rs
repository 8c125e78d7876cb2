//! Proofs that a displaced file has no writer any more, from the best to the last.
//!
//! 1. A read lease, per file (`linux/lease.rs`). On overlayfs it does not detect mappings: there `/proc` must
//!    show none.
//! 2. Every process of the system was inspected, and none has it open (`linux/processes.rs`). A process that
//!    started after the rollback counts as older, because it may have inherited a descriptor.
//! 3. The file waited in an earlier boot, on a local file system: every process of that boot has ended.
//!
//! Without a proof the file may have a writer, and stays. When it first stays, the id of the boot is recorded
//! as the name of an empty file in the stage, with a checksum, so that the record is complete or missing. If
//! it is lost or damaged, the current boot takes its place, and the file waits for one more boot.

use crate::linux::{self, Facts, FileSystem, Lease};
use rustix::fd::OwnedFd;
use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Retries and pause: a starting program holds its parent's open files until it runs.
const PATIENCE: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);

const BOOT: &str = "boot-";
const SUM_DIGITS: usize = 16;

/// Treatment of a displaced file that may have a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Kept until it has no writer.
    #[default]
    Kept,
    /// Stored, and may be deleted.
    Released,
}

/// Knowledge about writers of a stage's files.
pub(crate) struct Writers {
    /// True if leases are tried.
    leases: bool,
    file_system: FileSystem,
    /// Boot in which an entry of the stage was first found waiting.
    waits_since: Option<[u8; 16]>,
    boot: Option<[u8; 16]>,
    open: OnceLock<Option<HashSet<u64>>>,
    mapped: OnceLock<bool>,
    /// True if a file without any proof was found.
    in_doubt: AtomicBool,
    /// Remaining retries.
    patience: AtomicU32,
}

impl Writers {
    /// Reads the record in a stage.
    pub(crate) fn of(stage: &OwnedFd, names: &[linux::Listed], leases: bool) -> Self {
        let waits_since = names.iter().find_map(|listed| boot_in(&listed.name));
        let file_system = linux::file_system(stage);
        let (boot, open, mapped) = (linux::boot_id(), OnceLock::new(), OnceLock::new());
        let (in_doubt, patience) = (AtomicBool::new(false), AtomicU32::new(PATIENCE));
        Self { leases, file_system, waits_since, boot, open, mapped, in_doubt, patience }
    }

    /// Returns true if a displaced file may still have a writer.
    pub(crate) fn may_write(&self, file: &OwnedFd, facts: &Facts) -> bool {
        match self.lease(file, facts.uid) {
            Lease::NoWriter => self.file_system.hides_mappings && self.is_mapped(),
            Lease::Writer => true,
            Lease::Unknown => {
                let may = !self.is_later_boot() && !self.is_open_nowhere(facts);
                self.in_doubt.fetch_or(may, Ordering::Relaxed);
                may
            }
        }
    }

    fn lease(&self, file: &OwnedFd, owner: u32) -> Lease {
        if !self.leases {
            return Lease::Unknown;
        }
        loop {
            let one_less = |left: u32| left.checked_sub(1);
            match linux::try_lease(file, owner) {
                Lease::Writer
                    if self.patience.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() =>
                {
                    std::thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    fn is_later_boot(&self) -> bool {
        let differs = |(then, now): ([u8; 16], [u8; 16])| then != now;
        self.file_system.is_local && self.waits_since.zip(self.boot).is_some_and(differs)
    }

    fn is_open_nowhere(&self, facts: &Facts) -> bool {
        let open = || self.open.get_or_init(linux::written_inodes).as_ref();
        self.file_system.is_local && open().is_some_and(|open| !open.contains(&facts.ino))
    }

    fn is_mapped(&self) -> bool {
        *self.mapped.get_or_init(linux::displaced_is_mapped)
    }

    /// Durably records the boot in which an entry without proof was first found waiting.
    pub(crate) fn record(&self, stage: &OwnedFd) -> io::Result<()> {
        if !self.in_doubt.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (None, Some(boot)) = (self.waits_since, self.boot) else { return Ok(()) };
        match linux::create_file(stage, boot_name(boot).as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        linux::sync(stage)
    }
}

/// Returns true if a name in a stage is the record of a boot.
pub(crate) fn is_record(name: &[u8]) -> bool {
    boot_in(name).is_some()
}

fn boot_in(name: &[u8]) -> Option<[u8; 16]> {
    let digits = std::str::from_utf8(name).ok()?.strip_prefix(BOOT)?.get(..32)?;
    let boot = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    (boot_name(boot).as_bytes() == name).then_some(boot)
}

fn boot_name(boot: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(boot));
    let sum = blake3::hash(digits.as_bytes()).to_hex();
    format!("{BOOT}{digits}-{}", &sum[..SUM_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn writers(folder: &std::path::Path, leases: bool) -> (OwnedFd, Writers) {
        let stage: OwnedFd = fs::File::open(folder).unwrap().into();
        let names = linux::list(&stage).unwrap();
        let writers = Writers::of(&stage, &names, leases);
        (stage, writers)
    }

    fn may_write(folder: &std::path::Path, writers: &Writers) -> bool {
        let file: OwnedFd = fs::File::open(folder.join("0")).unwrap().into();
        writers.may_write(&file, &linux::facts_of(&file).unwrap())
    }

    /// Simulates an unreadable `/proc`.
    fn blind(writers: Writers) -> Writers {
        writers.open.set(None).unwrap();
        writers
    }

    #[test]
    fn a_lease_that_is_refused_means_that_there_may_be_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0"), "").unwrap();
        let (_, with) = writers(folder.path(), true);
        assert!(!may_write(folder.path(), &with));
        let (_, without) = writers(folder.path(), false);
        assert!(may_write(folder.path(), &blind(without)));
    }

    #[test]
    fn a_writer_that_ends_at_once_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0"), "").unwrap();
        let (_, writers) = writers(folder.path(), true);
        let held = fs::OpenOptions::new().write(true).open(folder.path().join("0")).unwrap();
        std::thread::scope(|threads| {
            let asked = threads.spawn(|| may_write(folder.path(), &writers));
            while writers.patience.load(Ordering::Relaxed) == PATIENCE {
                std::thread::yield_now();
            }
            drop(held);
            // The result depends on the scheduling of this thread.
            let _ = asked.join().unwrap();
        });
        assert!(!may_write(folder.path(), &writers));
        let _held = fs::OpenOptions::new().write(true).open(folder.path().join("0")).unwrap();
        writers.patience.store(0, Ordering::Relaxed);
        assert!(may_write(folder.path(), &writers));
    }

    #[test]
    fn a_later_boot_ends_the_waiting_and_the_same_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0"), "").unwrap();
        let (stage, first) = writers(folder.path(), false);
        let first = blind(first);
        first.record(&stage).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no file waits yet");
        assert!(may_write(folder.path(), &first));
        first.record(&stage).unwrap();
        let names = || -> Vec<String> {
            let names = fs::read_dir(folder.path()).unwrap();
            names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(names().iter().filter(|name| is_record(name.as_bytes())).count(), 1, "{:?}", names());
        let (stage, again) = writers(folder.path(), false);
        let again = blind(again);
        assert!(may_write(folder.path(), &again));
        again.record(&stage).unwrap();
        assert_eq!(names().len(), 2, "the first record stays");
        let later = Writers { boot: Some([7; 16]), ..again };
        assert!(!may_write(folder.path(), &later));
        let elsewhere = Writers { file_system: FileSystem::default(), ..later };
        assert!(may_write(folder.path(), &elsewhere), "processes of other machines may have it open");
        let unknown = Writers { boot: None, file_system: linux::file_system(&stage), ..elsewhere };
        assert!(may_write(folder.path(), &unknown));
    }

    #[test]
    fn a_record_that_is_not_ours_counts_for_nothing() {
        let good = boot_name([9; 16]);
        assert_eq!(boot_in(good.as_bytes()), Some([9; 16]));
        let mut wrong = good.clone().into_bytes();
        for at in 0..wrong.len() {
            wrong[at] ^= 1;
            assert_eq!(boot_in(&wrong), None, "byte {at}");
            wrong[at] ^= 1;
        }
        for name in
            ["", "boot-", "boot-x", &good[..good.len() - 1], &format!("{good}0"), &good.to_uppercase()]
        {
            assert!(!is_record(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_file_that_a_process_has_open_waits_and_another_does_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0"), "").unwrap();
        let (stage, writers) = writers(folder.path(), false);
        let inode = linux::facts_at(&stage, b"0").unwrap().ino;
        writers.open.set(Some(HashSet::from([inode]))).unwrap();
        assert!(may_write(folder.path(), &writers));
        let closed = Writers { open: OnceLock::from(Some(HashSet::new())), ..writers };
        assert!(!may_write(folder.path(), &closed));
    }
}
