//! Plan of a rollback: a value that can be shown before anything changes.
//!
//! Input: snapshots of the current state and the target. Output: the steps in order, or the list of
//! obstacles. A step removes only entries of the current snapshot; entries that were never captured, then or
//! now, are not touched.

use crate::error::{Obstacle, WorkspaceError};
use crate::linux;
use crate::probe::Capabilities;
use crate::root::{Root, own_path};
use crate::scan::Snapshot;
use crate::sqlite;
use rustix::fd::OwnedFd;
use safepoint_model::access;
use safepoint_model::change::{self, Change, ChangeKind, Delta};
use safepoint_model::content::{Content, HOLE_BYTES, Stretch, with_holes};
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::rollback::{Action, ChangedPath, Expected, How, SwapStep};
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSource, RelPath};
use safepoint_planted::planted;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// Path to swap, with its old and new entry.
type Swap = (RelPath, Option<Entry>, Option<Entry>);

/// Rights needed to work in a directory.
const WORK_BITS: u16 = 0o700;

/// Plan of a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollbackPlan {
    /// Steps in order of execution.
    pub steps: Vec<SwapStep>,
    /// Every path that changes, for users.
    pub paths: Vec<ChangedPath>,
    /// Files and links that are restored or created.
    pub restored: u64,
    /// Files and links that are removed.
    pub removed: u64,
    /// Bytes to stage beside the workspace first.
    pub stage_bytes: u64,
    /// ACLs and capabilities that cannot be restored here.
    pub lost: Vec<LostAccess>,
    /// Paths of the target that stay unchanged; everything else is restored.
    pub blocked: Vec<Blocked>,
}

/// Path of the target that a rollback leaves unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Path; includes everything below it.
    pub path: RelPath,
    /// Reason, for users.
    pub why: String,
}

/// Returns the treatment of owner and group: only root can restore them.
pub(crate) fn owners() -> Owners {
    if linux::is_root() { Owners::Compared } else { Owners::Ignored }
}

/// Knowledge of a target about ACLs and capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturedAccess {
    /// Missing ACLs and capabilities did not exist.
    Captured,
    /// Taken before they were captured: the current ones stay.
    Unknown,
}

/// Computes the steps from `now` to `target`.
///
/// # Errors
/// Returns [`WorkspaceError::Obstructed`] if an untouchable entry blocks the way and
/// [`WorkspaceError::Space`] if the disk has too little space. Fails if a tree cannot be read. Nothing has
/// changed then.
pub fn plan(
    root: &Root,
    source: &dyn ObjectSource,
    now: &Snapshot,
    (target, access): (&Snapshot, CapturedAccess),
    capabilities: &Capabilities,
) -> Result<RollbackPlan, WorkspaceError> {
    let (now_tree, target_tree) = (tree_of(now)?, tree_of(target)?);
    let mut target_root = target.root.clone();
    if access == CapturedAccess::Unknown {
        target_root.meta.adopt_access(&now.root.meta);
    }
    let mut planner = Planner {
        root,
        source,
        now,
        target,
        target_root,
        now_tree,
        target_tree,
        effective: Vec::new(),
        sidecars: Vec::new(),
        databases: BTreeSet::new(),
        kept: Vec::new(),
        blocked: Vec::new(),
        obstacles: Vec::new(),
        limits: Limits::of(root),
        lost: Lost::default(),
    };
    for mut delta in change::deltas(source, now_tree, target_tree, owners())? {
        if let (CapturedAccess::Unknown, Delta::Meta { old, new, .. } | Delta::Replaced { old, new, .. }) =
            (access, &mut delta)
            && old.node.same_type(&new.node)
        {
            new.meta.adopt_access(&old.meta);
        }
        planner.admit(delta)?;
    }
    planner.admit_sidecars()?;
    if !capabilities.case_matters {
        planner.check_case(target_tree)?;
    }
    let steps = planner.steps()?;
    if !planner.obstacles.is_empty() {
        return Err(WorkspaceError::Obstructed(planner.obstacles));
    }
    let mut plan = planner.report()?;
    plan.steps = steps;
    plan.blocked = planner.blocked.clone();
    planner.check_space(&plan)?;
    Ok(plan)
}

fn tree_of(snapshot: &Snapshot) -> Result<ObjectId, WorkspaceError> {
    let wrong = || ObjectError::Store("the root of a snapshot is not a directory".into());
    Ok(snapshot.tree().ok_or_else(wrong)?)
}

struct Planner<'a> {
    root: &'a Root,
    source: &'a dyn ObjectSource,
    now: &'a Snapshot,
    target: &'a Snapshot,
    target_root: Entry,
    now_tree: ObjectId,
    target_tree: ObjectId,
    /// Differences to act on, without untouchable entries.
    effective: Vec<Delta>,
    /// Sidecar files of SQLite databases that the target lacks; their database decides about them.
    sidecars: Vec<(RelPath, Entry)>,
    /// Databases with a replaced part.
    databases: BTreeSet<RelPath>,
    /// Directories kept because of their content.
    kept: Vec<RelPath>,
    /// Untouchable paths that do not stop the rollback.
    blocked: Vec<Blocked>,
    obstacles: Vec<Obstacle>,
    limits: Limits,
    lost: Lost,
}

/// Metadata that this process can restore in this workspace.
pub(crate) struct Limits {
    /// The file system keeps ACLs.
    acls: bool,
    /// This process may set file capabilities.
    capabilities: bool,
}

impl Limits {
    pub(crate) fn of(root: &Root) -> Self {
        let acls = linux::open_dir(root.fd(), b".").is_ok_and(|fd| linux::keeps_acls(&fd));
        Self { acls, capabilities: linux::may_set_capabilities() }
    }

    /// Returns the restorable part of `wanted`.
    pub(crate) fn attainable<'m>(&self, wanted: &'m Meta) -> Cow<'m, Meta> {
        let mut meta = Cow::Borrowed(wanted);
        if !self.acls && wanted.has_acl() {
            meta = Cow::Owned(meta.without_acls());
        }
        if !self.capabilities && wanted.has_capability() {
            meta = Cow::Owned(meta.without_capability());
        }
        meta
    }
}

/// Access rights that a rollback cannot restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAccess {
    /// The kind of rights.
    pub kind: LostAccessKind,
    /// The first path.
    pub first: RelPath,
    /// The number of other paths.
    pub more: u64,
}

/// The kind of access rights that a rollback cannot restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostAccessKind {
    /// ACLs, on a file system without them.
    Acl,
    /// ACLs of files that belong to other users.
    AclOfOthers,
    /// Capabilities, which only root may set.
    Capabilities,
}

/// Paths that lose metadata.
#[derive(Default)]
struct Lost {
    acls: BTreeSet<RelPath>,
    foreign: BTreeSet<RelPath>,
    capabilities: BTreeSet<RelPath>,
}

impl Lost {
    /// Records the metadata of an entry that cannot be restored.
    fn note(&mut self, path: &RelPath, wanted: &Meta, limits: &Limits) {
        if wanted.has_acl() && !limits.acls {
            self.acls.insert(path.clone());
        }
        if wanted.has_capability() && !limits.capabilities {
            self.capabilities.insert(path.clone());
        }
    }

    /// Returns one fact for each kind that was lost.
    fn facts(&self) -> Vec<LostAccess> {
        let fact = |kind, paths: &BTreeSet<RelPath>| {
            let first = paths.first()?.clone();
            Some(LostAccess { kind, first, more: paths.len() as u64 - 1 })
        };
        let acls = fact(LostAccessKind::Acl, &self.acls);
        let foreign = fact(LostAccessKind::AclOfOthers, &self.foreign);
        [acls, foreign, fact(LostAccessKind::Capabilities, &self.capabilities)]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Planner<'_> {
    /// Adds a difference, as far as it may be acted on.
    fn admit(&mut self, delta: Delta) -> Result<(), WorkspaceError> {
        match &delta {
            // The current entry stays: `Root::check_own_folder` checks it.
            Delta::Removed { path, .. } | Delta::Replaced { path, .. } | Delta::Meta { path, .. }
                if *path == own_path() =>
            {
                return Ok(());
            }
            Delta::Added { path, .. } if *path == own_path() => {
                let why = "Safepoint uses this name; `safepoint cat` prints the file from the checkpoint";
                self.blocked.push(Blocked { path: path.clone(), why: why.to_owned() });
                return Ok(());
            }
            Delta::Removed { path, old } if self.is_sidecar(path, old)? => {
                self.sidecars.push((path.clone(), old.clone()));
                return Ok(());
            }
            Delta::Removed { path, old } => return self.admit_removal(path, old),
            Delta::Added { path, .. } => {
                let in_the_way =
                    self.now.coverage.skipped.iter().find(|skipped| skipped.path == *path).cloned();
                // Another home stays unchanged; everything else can be rolled back.
                if in_the_way.as_ref().is_some_and(|skipped| skipped.why == Why::OtherHome) {
                    self.kept.push(path.clone());
                    return Ok(());
                }
                if self.is_mounted(path, in_the_way) {
                    return Ok(());
                }
            }
            Delta::Replaced { path, old: Entry { node: Node::Directory(_), .. }, .. } => {
                let inside = self.now.coverage.left_out_within(path).next().cloned();
                if self.is_mounted(path, inside) {
                    return Ok(());
                }
            }
            Delta::Meta { path, old, new } if !self.can_change(path, old, new) => return Ok(()),
            Delta::Meta { path, old: old @ Entry { node: Node::File(_), .. }, new }
                if self.is_shared(path) || self.keeps_capability(old, new) =>
            {
                self.effective.push(Delta::Replaced {
                    path: path.clone(),
                    old: old.clone(),
                    new: new.clone(),
                });
                return Ok(());
            }
            Delta::Replaced { .. } | Delta::Meta { .. } => {}
        }
        self.effective.push(delta);
        Ok(())
    }

    /// Returns true if a file has the name of a sidecar of a SQLite database, here or in the target.
    fn is_sidecar(&self, path: &RelPath, entry: &Entry) -> Result<bool, ObjectError> {
        let (Node::File(_), Some(base)) = (&entry.node, sqlite::base_path(path)) else { return Ok(false) };
        Ok(sqlite::has_database(self.source, self.now_tree, &base)?
            || sqlite::has_database(self.source, self.target_tree, &base)?)
    }

    /// Decides about the sidecar files of SQLite databases. A log, journal or index beside a database of
    /// another time damages it on the next open. So sidecars are removed if the database or its log is
    /// replaced, including those that a program creates until then. Otherwise a program may be using them and
    /// they stay: an empty log equals a missing one.
    fn admit_sidecars(&mut self) -> Result<(), WorkspaceError> {
        let sidecars = std::mem::take(&mut self.sidecars);
        let is_log = |path: &RelPath| path.as_bytes().ends_with(sqlite::LOG);
        let has_frames = |entry: &Entry| matches!(entry.node, Node::File(content) if content.size > 0);
        let mut replaced = BTreeSet::new();
        for delta in &self.effective {
            let (path, entries) = match delta {
                Delta::Added { path, new } => (path, [None, Some(new)]),
                Delta::Removed { path, old } => (path, [Some(old), None]),
                Delta::Replaced { path, old, new } => (path, [Some(old), Some(new)]),
                Delta::Meta { .. } => continue,
            };
            for entry in entries.into_iter().flatten() {
                if let Node::File(content) = entry.node
                    && sqlite::is_stored_database(self.source, &content)
                {
                    replaced.insert(path.clone());
                }
                if self.is_sidecar(path, entry)? {
                    replaced.extend(sqlite::base_path(path));
                }
            }
        }
        let logs = sidecars.iter().filter(|(path, entry)| is_log(path) && has_frames(entry));
        replaced.extend(logs.filter_map(|(path, _)| sqlite::base_path(path)));
        for (path, old) in sidecars {
            if sqlite::base_path(&path).is_some_and(|base| replaced.contains(&base)) {
                self.effective.push(Delta::Removed { path, old });
            }
        }
        for base in &replaced {
            let (old, new) = (self.present(base)?, change::find(self.source, self.target_tree, base)?);
            let is_admitted = |delta: &Delta| delta.path() == base && !matches!(delta, Delta::Meta { .. });
            // A program that continues with the old log would copy it into the database.
            if let (
                Some(old @ Entry { node: Node::File(_), .. }),
                Some(new @ Entry { node: Node::File(_), .. }),
            ) = (old, new)
                && !self.effective.iter().any(is_admitted)
            {
                self.effective.retain(|delta| delta.path() != base);
                self.effective.push(Delta::Replaced { path: base.clone(), old, new });
            }
        }
        self.databases = replaced;
        Ok(())
    }

    /// Moves the swaps of databases to the end, each followed by its sidecar files. The database comes first:
    /// a file that a program creates beside the old database until then is displaced, too, and is found in
    /// its slot later.
    fn with_databases(&self, swaps: Vec<Swap>) -> Result<Vec<Swap>, WorkspaceError> {
        let base_of = |path: &RelPath| {
            let base =
                if self.databases.contains(path) { Some(path.clone()) } else { sqlite::base_path(path) };
            base.filter(|base| self.databases.contains(base))
        };
        let (mut swaps, mut of_databases): (Vec<Swap>, Vec<Swap>) =
            swaps.into_iter().partition(|(path, ..)| base_of(path).is_none());
        for base in &self.databases {
            for sidecar in sqlite::SIDECARS {
                let path = sqlite::path_beside(base, sidecar)?;
                if !of_databases.iter().any(|(other, ..)| *other == path) && self.present(&path)?.is_none() {
                    of_databases.push((path, None, None));
                }
            }
        }
        of_databases.sort_by_cached_key(|(path, ..)| (base_of(path), path.clone()));
        swaps.extend(of_databases);
        Ok(swaps)
    }

    /// Returns true if a mount blocks a path: the path stays and the rest continues. Any other uncaptured
    /// entry is an obstacle to the whole rollback.
    fn is_mounted(&mut self, path: &RelPath, in_the_way: Option<Skipped>) -> bool {
        match in_the_way {
            Some(Skipped { path: at, why: Why::MountPoint }) => {
                let why = match at == *path {
                    true => Why::MountPoint.to_string(),
                    false => format!("it contains {at}: {}", Why::MountPoint),
                };
                self.blocked.push(Blocked { path: path.clone(), why });
                true
            }
            other => {
                if !planted!("plan-ignores-obstacles") {
                    self.obstacles.extend(other.map(Obstacle::NotCaptured));
                }
                false
            }
        }
    }

    /// Returns true if any part of a metadata difference can be restored. Records the rest.
    fn can_change(&mut self, path: &RelPath, old: &Entry, new: &Entry) -> bool {
        self.lost.note(path, &new.meta, &self.limits);
        let acls =
            |meta: &Meta| [access::ACCESS, access::DEFAULT].map(|name| meta.xattr(name).map(<[u8]>::to_vec));
        let is_foreign = !linux::is_root() && old.meta.uid != rustix::process::geteuid().as_raw();
        if is_foreign && acls(&old.meta) != acls(&new.meta) {
            self.lost.foreign.insert(path.clone());
            return false;
        }
        let wanted = self.limits.attainable(&new.meta);
        // A capability that may not be set may not be removed either, but a new file has none.
        let (old, wanted) = match new.meta.has_capability() && !self.limits.capabilities {
            true => (Cow::Owned(old.meta.without_capability()), wanted),
            false => (Cow::Borrowed(&old.meta), wanted),
        };
        !old.same_but_times(&wanted, owners())
    }

    /// Returns true if a file must lose a capability that this process may not remove: the file is replaced
    /// instead.
    fn keeps_capability(&self, old: &Entry, new: &Entry) -> bool {
        !self.limits.capabilities && old.meta.has_capability() && !new.meta.has_capability()
    }

    /// Returns true if the root itself changes.
    fn root_changes(&mut self) -> bool {
        let (now, target) = (self.now.root.clone(), self.target_root.clone());
        !now.meta.same_but_times(&target.meta, owners()) && self.can_change(&RelPath::root(), &now, &target)
    }

    /// Removes a directory as a whole. If it contains uncaptured entries, only the captured ones are removed
    /// and the directory stays.
    fn admit_removal(&mut self, path: &RelPath, old: &Entry) -> Result<(), WorkspaceError> {
        if self.target.coverage.leaves_out(path) {
            return Ok(());
        }
        let holds_more = !planted!("plan-removes-what-was-not-captured")
            && self.now.coverage.left_out_within(path).next().is_some();
        match &old.node {
            Node::Directory(tree) if holds_more => {
                for child in Tree::load(self.source, *tree)?.entries() {
                    let path = path.join(&child.name).map_err(|error| ObjectError::Store(Box::new(error)))?;
                    self.admit_removal(&path, child)?;
                }
                self.kept.push(path.clone());
            }
            _ => self.effective.push(Delta::Removed { path: path.clone(), old: old.clone() }),
        }
        Ok(())
    }

    /// Finds two names of a directory that are the same on this file system.
    fn check_case(&mut self, target: ObjectId) -> Result<(), WorkspaceError> {
        let mut seen: HashMap<String, RelPath> = HashMap::new();
        let mut clashes = Vec::new();
        change::walk::<WorkspaceError>(self.source, &RelPath::root(), target, &mut |path, _| {
            let folded = String::from_utf8_lossy(path.as_bytes()).to_lowercase();
            if let Some(other) = seen.insert(folded, path.clone()) {
                clashes.push(Obstacle::SameName(other, path.clone()));
            }
            Ok(())
        })?;
        self.obstacles.extend(clashes);
        Ok(())
    }

    /// Orders the steps: rights first, then removals, replacements and creations, final modes last, because a
    /// mode may forbid changes in its directory.
    fn steps(&mut self) -> Result<Vec<SwapStep>, WorkspaceError> {
        let lent = self.rights_to_lend()?;
        let root_changes = self.root_changes();
        let mut steps: Vec<SwapStep> =
            lent.iter().map(|(path, (old, lent))| meta_step(path, old, lent)).collect();
        let mut finals: BTreeMap<RelPath, SwapStep> =
            lent.iter().map(|(path, (old, lent))| (path.clone(), meta_step(path, lent, old))).collect();
        let (mut removed, mut replaced, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for delta in &self.effective {
            match delta {
                Delta::Removed { path, old } => {
                    // It leaves with its mode; its old path needs none.
                    finals.remove(path);
                    removed.push((path.clone(), Some(old.clone()), None));
                }
                Delta::Replaced { path, old, new } => {
                    finals.remove(path);
                    replaced.push((path.clone(), Some(old.clone()), Some(workable(new))));
                    finals.extend(final_mode(path, new));
                }
                Delta::Added { path, new } => {
                    added.push((path.clone(), None, Some(workable(new))));
                    finals.extend(final_mode(path, new));
                }
                Delta::Meta { path, old, new } => {
                    let now = lent.get(path).map_or(old, |(_, lent)| lent);
                    finals.insert(path.clone(), meta_step(path, now, new));
                }
            }
        }
        if root_changes {
            let (now, target) = (&self.now.root, &self.target_root);
            let now = lent.get(&RelPath::root()).map_or(now, |(_, lent)| lent);
            finals.insert(RelPath::root(), meta_step(&RelPath::root(), now, target));
        }
        let mut swaps: Vec<Swap> = removed.into_iter().chain(replaced).chain(added).collect();
        if !self.databases.is_empty() {
            swaps = self.with_databases(swaps)?;
        }
        for (path, old, new) in swaps {
            let how = How::Swap { slot: steps.len() as u64 };
            steps.push(SwapStep { path, old: old.map(expected), new: new.map(expected), how });
        }
        // Deepest first: a directory that loses the right to be entered must come after its children.
        steps.extend(finals.into_values().rev());
        Ok(steps)
    }

    /// Returns own directories whose mode forbids a needed change: their current entry, and the entry with
    /// rights for the duration of the rollback.
    fn rights_to_lend(&mut self) -> Result<BTreeMap<RelPath, (Entry, Entry)>, WorkspaceError> {
        let mut lent = BTreeMap::new();
        if linux::is_root() {
            self.check_writable_root();
            return Ok(lent);
        }
        let mut directories = BTreeSet::new();
        for delta in &self.effective {
            let (path, moved) = match delta {
                Delta::Removed { path, old } | Delta::Replaced { path, old, .. } => (path, Some(old)),
                Delta::Added { path, .. } => (path, None),
                Delta::Meta { .. } => continue,
            };
            directories.extend(path.split_last().map(|(above, _)| above));
            // Moving a directory rewrites its `..`, which requires write permission in it.
            if matches!(moved, Some(Entry { node: Node::Directory(_), .. })) {
                directories.insert(path.clone());
            }
        }
        for path in directories {
            let Some(entry) = self.present(&path)? else { continue };
            if entry.meta.mode & 0o300 == 0o300 && self.may_write(&path) {
                continue;
            }
            if entry.meta.uid != rustix::process::geteuid().as_raw() || entry.meta.mode & 0o300 == 0o300 {
                self.obstacles.push(Obstacle::ReadOnly(path));
                continue;
            }
            let mut workable = entry.clone();
            workable.meta.add_owner_bits(WORK_BITS);
            lent.insert(path, (entry, workable));
        }
        Ok(lent)
    }

    /// Checks that the file system is writable: a read-only mount stops even root.
    fn check_writable_root(&mut self) {
        if !self.effective.is_empty() && !self.may_write(&RelPath::root()) {
            self.obstacles.push(Obstacle::ReadOnly(RelPath::root()));
        }
    }

    /// Returns true if a file has other names, which would get the new mode too. They may keep their mode, or
    /// lie outside the workspace. Such a file is replaced instead.
    fn is_shared(&self, path: &RelPath) -> bool {
        let Some((above, name)) = path.split_last() else { return false };
        let facts =
            linux::open_dir_at(self.root.fd(), &above).and_then(|above| linux::facts_at(&above, name));
        facts.is_ok_and(|facts| facts.names > 1)
    }

    fn may_write(&self, path: &RelPath) -> bool {
        // A layer is written anew: the rights of its directories do not matter.
        if self.root.is_layer() {
            return true;
        }
        let open = |path: &RelPath| -> io::Result<OwnedFd> { linux::open_dir_at(self.root.fd(), path) };
        open(path).is_ok_and(|fd| linux::may_write(&fd))
    }

    fn present(&self, path: &RelPath) -> Result<Option<Entry>, ObjectError> {
        if path.is_root() {
            return Ok(Some(self.now.root.clone()));
        }
        change::find(self.source, self.now_tree, path)
    }

    /// Checks the free space for all staged data.
    fn check_space(&self, plan: &RollbackPlan) -> Result<(), WorkspaceError> {
        let free_bytes = linux::free_bytes(self.root.fd())
            .map_err(|source| WorkspaceError::Read { path: RelPath::root(), source })?;
        if plan.stage_bytes <= free_bytes {
            return Ok(());
        }
        // Much of it may be holes. To know, the chunk lists must be read; that is done only here.
        let needed_bytes = plan.stage_bytes.saturating_sub(self.hole_bytes()?);
        if needed_bytes > free_bytes {
            return Err(WorkspaceError::Space { needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// Returns the bytes of holes, and of zero chunks of the same length, which are never written.
    fn hole_bytes(&self) -> Result<u64, WorkspaceError> {
        let mut bytes = 0u64;
        for change in change::changes(self.source, &self.effective)? {
            if let Some(content) = written(&change).filter(|content| content.size >= HOLE_BYTES) {
                for stretch in with_holes(content.stretches(self.source)?) {
                    if let Stretch::Hole(size) = stretch {
                        bytes = bytes.saturating_add(size);
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// Reports every changed path and the counts.
    fn report(&mut self) -> Result<RollbackPlan, WorkspaceError> {
        let mut plan = RollbackPlan::default();
        for change in change::changes(self.source, &self.effective)? {
            let is_leaf = |entry: &Option<Entry>| {
                entry.as_ref().is_some_and(|entry| !matches!(entry.node, Node::Directory(_)))
            };
            let action = match change.kind {
                ChangeKind::Added => Action::Created,
                ChangeKind::Removed => Action::Removed,
                ChangeKind::Modified | ChangeKind::Type | ChangeKind::Mode => Action::Restored,
            };
            plan.restored += u64::from(is_leaf(&change.new));
            plan.removed += u64::from(change.new.is_none() && is_leaf(&change.old));
            let written = written(&change).map_or(0, |content| content.size);
            plan.stage_bytes = plan.stage_bytes.saturating_add(written);
            if let Some(new) = &change.new {
                self.lost.note(&change.path, &new.meta, &self.limits);
            }
            plan.paths.push(ChangedPath { path: change.path, action });
        }
        if self.root_changes() {
            plan.paths.push(ChangedPath { path: RelPath::root(), action: Action::Restored });
        }
        plan.paths
            .extend(self.kept.iter().map(|path| ChangedPath { path: path.clone(), action: Action::Kept }));
        plan.paths.sort_by(|a, b| a.path.cmp(&b.path));
        plan.lost = self.lost.facts();
        Ok(plan)
    }
}

/// Returns the content that a change restores.
fn written(change: &Change) -> Option<&Content> {
    match &change.new {
        Some(Entry { node: Node::File(content), .. }) if change.kind != ChangeKind::Mode => Some(content),
        _ => None,
    }
}

fn expected(entry: Entry) -> Expected {
    Expected { entry }
}

fn meta_step(path: &RelPath, old: &Entry, new: &Entry) -> SwapStep {
    SwapStep {
        path: path.clone(),
        old: Some(expected(old.clone())),
        new: Some(expected(new.clone())),
        how: How::Meta,
    }
}

/// Returns true if a directory lacks the owner rights needed to move it.
fn needs_work_bits(entry: &Entry) -> bool {
    matches!(entry.node, Node::Directory(_)) && entry.meta.mode & WORK_BITS != WORK_BITS && !linux::is_root()
}

fn workable(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    if needs_work_bits(&entry) {
        entry.meta.add_owner_bits(WORK_BITS);
    }
    entry
}

fn final_mode(path: &RelPath, new: &Entry) -> Option<(RelPath, SwapStep)> {
    needs_work_bits(new).then(|| (path.clone(), meta_step(path, &workable(new), new)))
}
