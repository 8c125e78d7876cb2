//! SETTLE: checks displaced entries before they are deleted.
//!
//! A displaced file is deleted only if no process can write to it (`writers.rs` has the proofs) and its bytes
//! are those of the safety checkpoint. Anything else is a concurrent edit by another process: it is captured
//! into the sink and reported. A file that is, or may be, open for writing waits for the next check.

use crate::compare::{self, CompareError};
use crate::error::WorkspaceError;
use crate::linux::{self, Facts};
use crate::plan::owners;
use crate::sparse;
use crate::stage::{Stage, remove_tree};
use crate::threads;
use crate::writers::{Waiting, Writers, is_record};
use rayon::prelude::*;
use rustix::fd::OwnedFd;
use safepoint_model::progress::Activity;
use safepoint_model::rollback::{How, SwapStep};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectKind, ObjectSink, ObjectSource, Progress, RelPath};
use safepoint_planted::planted;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Unexpected content of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Edit, now in the sink.
    Rescued {
        /// Original path in the workspace.
        path: RelPath,
        /// Captured entry.
        entry: Entry,
        /// Description for users.
        why: String,
    },
    /// A program has it open for writing, or may have; it stays until the next check.
    Busy {
        /// Original path in the workspace.
        path: RelPath,
    },
    /// Entry that can be neither stored nor deleted; it stays in the stage.
    Stuck {
        /// Original path in the workspace.
        path: RelPath,
        /// Reason.
        why: String,
    },
}

/// Result of checking a stage.
#[derive(Debug, Default)]
pub struct Settled {
    /// Unexpected entries.
    pub findings: Vec<Finding>,
    /// Slots to delete once the findings are recorded.
    clear: Vec<Vec<u8>>,
    /// Number of slots that stay.
    staying: usize,
}

impl Settled {
    /// Adds the findings of one slot.
    fn take(&mut self, slot: Vec<u8>, mut findings: Vec<Finding>) {
        if findings.iter().all(|finding| matches!(finding, Finding::Rescued { .. })) {
            self.clear.push(slot);
        } else {
            // A slot that stays is checked again and would report its edits twice.
            findings.retain(|finding| !matches!(finding, Finding::Rescued { .. }));
            self.staying += 1;
        }
        self.findings.extend(findings);
    }

    /// Returns true if no slot has to stay.
    pub fn is_complete(&self) -> bool {
        self.staying == 0
    }
}

/// Outcome of the rollback, which determines the expected content of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Completed: slots hold the old content.
    Done,
    /// Undone: slots hold the new content as staged.
    Undone,
}

impl Stage<'_> {
    /// Checks every slot without deleting. With [`Waiting::Released`], files that may have a writer are
    /// captured as they are.
    ///
    /// # Errors
    /// Fails if the stage cannot be read or the sink fails.
    pub fn inspect<S: ObjectSink + ObjectSource + Sync>(
        &self,
        steps: &[SwapStep],
        (ended, waiting): (Ended, Waiting),
        store: &S,
        progress: &dyn Progress,
    ) -> Result<Settled, WorkspaceError> {
        let failed = |source| WorkspaceError::Read { path: RelPath::root(), source };
        let by_slot: BTreeMap<u64, &SwapStep> = steps
            .iter()
            .filter_map(|step| match step.how {
                How::Swap { slot } => Some((slot, step)),
                How::Meta => None,
            })
            .collect();
        let mut listed = linux::list(&linux::open_dir(&self.fd, b".").map_err(failed)?).map_err(failed)?;
        let writers = &Writers::of(&self.fd, &listed, self.capabilities.leases);
        listed.retain(|slot| !is_record(&slot.name));
        progress.begin(Activity::Settling, Some(listed.len() as u64));
        let look = |slot: &linux::Listed| {
            let step = parse_slot(&slot.name).and_then(|(number, kind)| Some((*by_slot.get(&number)?, kind)));
            let (path, expected) = match step {
                Some((step, kind)) => (step.path.clone(), expected_in(step, kind, ended)),
                // Not a slot name: another program put it there, and it is kept under that name.
                None => (RelPath::new(slot.name.clone()).unwrap_or_default(), None),
            };
            let mut look = Look { store, writers, waiting, findings: Vec::new() };
            let looked = look.entry(&self.fd, &slot.name, &path, expected.as_ref());
            progress.advance(1, 0);
            match looked {
                Ok(()) => Ok((slot.name.clone(), look.findings)),
                Err(CompareError::Io(source)) => Err(WorkspaceError::Read { path, source }),
                Err(CompareError::Object(error)) => Err(error.into()),
            }
        };
        let looked: Result<Vec<_>, _> = threads::run(|| listed.par_iter().map(look).collect());
        progress.end();
        let mut settled = Settled::default();
        looked?.into_iter().for_each(|(slot, findings)| settled.take(slot, findings));
        if waiting == Waiting::Kept {
            writers.record(&self.fd).map_err(failed)?;
        }
        Ok(settled)
    }

    /// Deletes the checked slots, and the stage itself if none has to stay. The findings must be recorded
    /// first.
    ///
    /// # Errors
    /// Fails if an entry cannot be deleted; the next recovery tries again.
    pub fn clear(self, settled: &Settled) -> Result<(), WorkspaceError> {
        if settled.is_complete() {
            return self.discard();
        }
        let failed = |source| WorkspaceError::Stage { path: RelPath::root(), source };
        settled.clear.iter().try_for_each(|slot| remove_tree(&self.fd, slot)).map_err(failed)
    }
}

/// Role of a slot name in its step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    Main,
    Old,
    Extra,
    Rebuilt,
}

fn parse_slot(name: &[u8]) -> Option<(u64, SlotKind)> {
    let name = std::str::from_utf8(name).ok()?;
    let (number, kind) = match name.split_once('.') {
        None => (name, SlotKind::Main),
        Some((number, "old")) => (number, SlotKind::Old),
        Some((number, "extra")) => (number, SlotKind::Extra),
        Some((number, "rebuilt")) => (number, SlotKind::Rebuilt),
        Some(_) => return None,
    };
    Some((number.parse().ok()?, kind))
}

/// Returns the expected content of a slot.
fn expected_in(step: &SwapStep, kind: SlotKind, ended: Ended) -> Option<Entry> {
    let of =
        |expected: &Option<safepoint_model::rollback::Expected>| expected.as_ref().map(|it| it.entry.clone());
    match (kind, ended) {
        (SlotKind::Main, Ended::Undone) => of(&step.new),
        (SlotKind::Main | SlotKind::Old, Ended::Done) | (SlotKind::Old | SlotKind::Rebuilt, _) => {
            of(&step.old)
        }
        (SlotKind::Extra, _) => None,
    }
}

struct Look<'a, S> {
    store: &'a S,
    writers: &'a Writers,
    waiting: Waiting,
    findings: Vec<Finding>,
}

impl<S: ObjectSink + ObjectSource> Look<'_, S> {
    /// Compares one entry with the expected one and captures differences.
    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        expected: Option<&Entry>,
    ) -> Result<(), CompareError> {
        let Some(facts) = linux::facts_if_any(dir, name)? else { return Ok(()) };
        if facts.file_type.is_dir() {
            return self.directory(dir, name, path, expected);
        }
        if planted!("settle-does-not-compare") {
            return Ok(());
        }
        if facts.file_type.is_file()
            && self.may_have_writer(dir, name, &facts)?
            && !planted!("settle-ignores-writers")
        {
            match self.waiting {
                Waiting::Kept => self.findings.push(Finding::Busy { path: path.clone() }),
                Waiting::Released => {
                    self.rescue(dir, name, path, "released while a program may have it open")?;
                }
            }
            return Ok(());
        }
        if let Some(expected) = expected
            && compare::matches(self.store, dir, name, expected, owners())?
        {
            return Ok(());
        }
        self.rescue(dir, name, path, noticed(expected))
    }

    fn may_have_writer(&self, dir: &OwnedFd, name: &[u8], facts: &Facts) -> io::Result<bool> {
        match linux::open_file(dir, name) {
            // It can be neither compared nor stored, so it stays in any case.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            fd => Ok(self.writers.may_write(&fd?, facts)),
        }
    }

    fn directory(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        expected: Option<&Entry>,
    ) -> Result<(), CompareError> {
        let tree = match expected.map(|expected| &expected.node) {
            Some(Node::Directory(tree)) => Tree::load(self.store, *tree)?,
            // A directory that another program created is kept even if it is empty.
            _ => return self.rescue(dir, name, path, noticed(expected)),
        };
        let fd = open_for_look(dir, name)?;
        for entry in linux::list(&fd)? {
            let below = path.join(&entry.name).map_err(io::Error::other)?;
            self.entry(&fd, &entry.name, &below, tree.get(&entry.name))?;
        }
        Ok(())
    }

    fn rescue(&mut self, dir: &OwnedFd, name: &[u8], path: &RelPath, why: &str) -> Result<(), CompareError> {
        let Self { store, writers, waiting, .. } = *self;
        let mut capture = Capture { store, writers, waiting, path, obstacles: Vec::new() };
        match capture.entry(dir, name)? {
            Some(mut entry) if capture.obstacles.is_empty() => {
                entry.name = path.split_last().map_or_else(|| name.to_vec(), |(_, name)| name.to_vec());
                self.findings.push(Finding::Rescued { path: path.clone(), entry, why: why.to_owned() });
            }
            _ => self.findings.extend(capture.obstacles),
        }
        Ok(())
    }
}

/// Description of an unexpected entry.
fn noticed(expected: Option<&Entry>) -> &'static str {
    match expected {
        Some(_) => "changed during the rollback",
        None => "created during the rollback",
    }
}

/// Opens a directory of the stage, adding read permission if it is missing.
fn open_for_look(dir: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    match linux::open_dir(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let path = linux::open_path(dir, name)?;
            let mode = linux::facts_of(&path)?.mode;
            linux::set_mode(&path, mode | 0o700)?;
            linux::open_dir(dir, name)
        }
        other => other,
    }
}

/// Stores an entry with everything below it.
struct Capture<'a, S> {
    store: &'a S,
    writers: &'a Writers,
    waiting: Waiting,
    path: &'a RelPath,
    obstacles: Vec<Finding>,
}

impl<S: ObjectSink + ObjectSource> Capture<'_, S> {
    fn entry(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<Option<Entry>, CompareError> {
        let facts = linux::facts_at(dir, name)?;
        let mut meta =
            Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, mtime_ns: 0, xattrs: Vec::new() };
        let node = if facts.file_type.is_symlink() {
            Node::Symlink(linux::read_link(dir, name)?)
        } else if facts.file_type.is_dir() {
            let fd = open_for_look(dir, name)?;
            meta = linux::read_meta(&fd, &facts)?.meta;
            let mut entries = Vec::new();
            for child in linux::list(&fd)? {
                entries.extend(self.entry(&fd, &child.name)?);
            }
            let tree = Tree::new(entries).map_err(io::Error::other)?;
            Node::Directory(self.store.put(ObjectKind::Tree, &tree.encode())?)
        } else if facts.file_type.is_file() {
            let fd = match linux::open_file(dir, name) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return self.stuck("it is not readable");
                }
                other => other?,
            };
            let facts = linux::facts_of(&fd)?;
            meta = linux::read_meta(&fd, &facts)?.meta;
            if self.waiting == Waiting::Kept && self.writers.may_write(&fd, &facts) {
                self.obstacles.push(Finding::Busy { path: self.path.clone() });
                return Ok(None);
            }
            Node::File(sparse::put_file(self.store, &File::from(fd), &facts)?)
        } else {
            return self.stuck("it is a socket, FIFO or device, which cannot be stored");
        };
        Ok(Some(Entry { name: name.to_vec(), meta, node }))
    }

    fn stuck(&mut self, why: &str) -> Result<Option<Entry>, CompareError> {
        self.obstacles.push(Finding::Stuck { path: self.path.clone(), why: why.to_owned() });
        Ok(None)
    }
}
