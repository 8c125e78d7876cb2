//! What a rollback will do, as a value that can be shown before anything is done.
//!
//! Comes in: the present and the target, both as snapshots. Goes out: a list of steps in the order in which they are
//! to be done, or the list of obstacles. Only what the present snapshot holds is ever taken away; what was never captured,
//! then or now, is not touched.

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
use safepoint_model::rollback::{Action, ChangedPath, Expected, How, Step};
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSource, RelPath};
use safepoint_planted::planted;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// A path that changes at once: what is there, and what will be.
type Swap = (RelPath, Option<Entry>, Option<Entry>);

/// The rights that work in a directory takes.
const WORK_BITS: u16 = 0o700;

/// What a rollback will do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order in which they are to be done.
    pub steps: Vec<Step>,
    /// Every path that changes, for people.
    pub paths: Vec<ChangedPath>,
    /// Files and links that are put back or made.
    pub restored: u64,
    /// Files and links that are taken away.
    pub removed: u64,
    /// Bytes that have to be written beside the workspace first.
    pub stage_bytes: u64,
    /// ACLs and capabilities that cannot be put back here, in users' words.
    pub warnings: Vec<String>,
    /// Paths of the target that stay as they are: nothing of them is touched, and all else is put back.
    pub blocked: Vec<Blocked>,
}

/// A path of the target that a rollback leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Which, with everything below it.
    pub path: RelPath,
    /// Why, for people.
    pub why: String,
}

/// Whether owner and group are put back: only root can give files away.
pub(crate) fn owners() -> Owners {
    if linux::is_root() { Owners::Compared } else { Owners::Ignored }
}

/// Whether a target knows about ACLs and capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// What it does not have was not there.
    Captured,
    /// It was taken before they were captured: what is there now stays.
    Unknown,
}

/// Works out how to get from `now` to `target`.
///
/// # Errors
/// [`WorkspaceError::Obstructed`] when something that may not be touched is in the way, [`WorkspaceError::Space`] when there
/// is too little room, or when a tree cannot be read. Nothing has changed then.
pub fn plan(
    root: &Root,
    source: &dyn ObjectSource,
    now: &Snapshot,
    (target, access): (&Snapshot, Access),
    capabilities: &Capabilities,
) -> Result<Plan, WorkspaceError> {
    let (now_tree, target_tree) = (tree_of(now)?, tree_of(target)?);
    let mut target_root = target.root.clone();
    if access == Access::Unknown {
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
        if let (Access::Unknown, Delta::Meta { old, new, .. } | Delta::Replaced { old, new, .. }) =
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
    /// What is really to be done, once everything that is not ours to touch is left out.
    effective: Vec<Delta>,
    /// Files beside SQLite databases that the target does not have: they go with what they belong to.
    sidecars: Vec<(RelPath, Entry)>,
    /// Databases of which something is replaced.
    databases: BTreeSet<RelPath>,
    /// Directories that stay because of what is in them.
    kept: Vec<RelPath>,
    /// What stays because it cannot be touched, while the rest goes on.
    blocked: Vec<Blocked>,
    obstacles: Vec<Obstacle>,
    limits: Limits,
    lost: Lost,
}

/// What cannot be put back in this workspace, by this process.
pub(crate) struct Limits {
    /// The file system keeps ACLs.
    acls: bool,
    /// This process may give capabilities to programs.
    capabilities: bool,
}

impl Limits {
    pub(crate) fn of(root: &Root) -> Self {
        let acls = linux::open_dir(root.fd(), b".").is_ok_and(|fd| linux::keeps_acls(&fd));
        Self { acls, capabilities: linux::may_set_capabilities() }
    }

    /// As much of `wanted` as can be put back.
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

/// Paths that do not get back what they had.
#[derive(Default)]
struct Lost {
    acls: BTreeSet<RelPath>,
    foreign: BTreeSet<RelPath>,
    capabilities: BTreeSet<RelPath>,
}

impl Lost {
    /// Takes in what of an entry cannot be put back.
    fn note(&mut self, path: &RelPath, wanted: &Meta, limits: &Limits) {
        if wanted.has_acl() && !limits.acls {
            self.acls.insert(path.clone());
        }
        if wanted.has_capability() && !limits.capabilities {
            self.capabilities.insert(path.clone());
        }
    }

    fn warnings(&self) -> Vec<String> {
        let told = |paths: &BTreeSet<RelPath>, what: &str, why: &str| {
            let first = paths.first()?;
            let more = match paths.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Some(format!("cannot put back the {what} of {first}{more}: {why}"))
        };
        let acls = told(
            &self.acls,
            "ACL",
            "this file system keeps none; the group gets no more access than the ACL gave it",
        );
        let foreign = told(&self.foreign, "ACL", "the file belongs to another user; it stays as it is");
        let capabilities = told(
            &self.capabilities,
            "capabilities",
            "this takes root (CAP_SETFCAP); run `setcap` again, or roll back as root",
        );
        [acls, foreign, capabilities].into_iter().flatten().collect()
    }
}

impl Planner<'_> {
    /// Takes a difference in, as far as it may be acted on.
    fn admit(&mut self, delta: Delta) -> Result<(), WorkspaceError> {
        match &delta {
            // What stands there now stays: `Root::check_own_folder` looks at it.
            Delta::Removed { path, .. } | Delta::Replaced { path, .. } | Delta::Meta { path, .. }
                if *path == own_path() =>
            {
                return Ok(());
            }
            Delta::Added { path, .. } if *path == own_path() => {
                let why = "Safepoint itself needs this name; `safepoint cat` writes out what the checkpoint holds under it";
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
                // It lives by its own rules; the rest can go back all the same.
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

    /// Whether a file lies beside a SQLite database, here or in the target, and has the name of one of its own.
    fn is_sidecar(&self, path: &RelPath, entry: &Entry) -> Result<bool, ObjectError> {
        let (Node::File(_), Some(base)) = (&entry.node, sqlite::base_path(path)) else { return Ok(false) };
        Ok(sqlite::has_database(self.source, self.now_tree, &base)?
            || sqlite::has_database(self.source, self.target_tree, &base)?)
    }

    /// Decides what becomes of the files beside SQLite databases. A log, a journal or an index beside a database of another moment damages it when it is
    /// opened next. So they go wherever the database or its log is replaced, also what a program makes there until then. Where neither is, a
    /// program may be at work with them, and they stay: an empty log says the same as none.
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
            // A program that goes on with the old log would move it into the database.
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

    /// Puts the swaps of databases last, each with those of the files beside it. The database is the first of them: what a program makes beside
    /// the old one until then is displaced, too, and is found in its slot later.
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

    /// Whether a mount stands in the way of a path: then this path stays, and the rest goes on. Whatever else was never captured is an
    /// obstacle to the whole.
    fn is_mounted(&mut self, path: &RelPath, in_the_way: Option<Skipped>) -> bool {
        match in_the_way {
            Some(Skipped { path: at, why: Why::MountPoint }) => {
                let why = match at == *path {
                    true => Why::MountPoint.to_string(),
                    false => format!("{at} is in it, and {}", Why::MountPoint),
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

    /// Whether something of a difference in mode, owner or attributes can be put back. What cannot be is noted.
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
        // A capability that may not be set may not be taken away either, but a new file has none.
        let (old, wanted) = match new.meta.has_capability() && !self.limits.capabilities {
            true => (Cow::Owned(old.meta.without_capability()), wanted),
            false => (Cow::Borrowed(&old.meta), wanted),
        };
        !old.same_but_times(&wanted, owners())
    }

    /// Whether a file has a capability that it is to lose and that this process may not take from it: it is replaced instead.
    fn keeps_capability(&self, old: &Entry, new: &Entry) -> bool {
        !self.limits.capabilities && old.meta.has_capability() && !new.meta.has_capability()
    }

    /// Whether the root itself changes.
    fn root_changes(&mut self) -> bool {
        let (now, target) = (self.now.root.clone(), self.target_root.clone());
        !now.meta.same_but_times(&target.meta, owners()) && self.can_change(&RelPath::root(), &now, &target)
    }

    /// A directory goes as a whole, unless it holds something that was never captured: then what was captured goes, and the
    /// directory stays.
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

    /// Two names of one directory that this file system takes for one.
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

    /// Rights first, then what goes, what is replaced and what is made, and the final modes last: a directory may end up
    /// forbidding what was just done in it.
    fn steps(&mut self) -> Result<Vec<Step>, WorkspaceError> {
        let lent = self.rights_to_lend()?;
        let root_changes = self.root_changes();
        let mut steps: Vec<Step> =
            lent.iter().map(|(path, (old, lent))| meta_step(path, old, lent)).collect();
        let mut finals: BTreeMap<RelPath, Step> =
            lent.iter().map(|(path, (old, lent))| (path.clone(), meta_step(path, lent, old))).collect();
        let (mut removed, mut replaced, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for delta in &self.effective {
            match delta {
                Delta::Removed { path, old } => {
                    // It leaves as it is; no mode has to be put right at its old place.
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
            steps.push(Step { path, old: old.map(expected), new: new.map(expected), how });
        }
        // Deepest first: a directory that loses the right to be entered must be the last of its line.
        steps.extend(finals.into_values().rev());
        Ok(steps)
    }

    /// Directories in which something changes place and whose mode forbids it although they are ours: what they are, and what
    /// they are for as long as the rollback works in them.
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
            // Moving a directory elsewhere rewrites its `..`, which takes the right to write in it.
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

    /// Root may do everything, except on a file system that is mounted read-only.
    fn check_writable_root(&mut self) {
        if !self.effective.is_empty() && !self.may_write(&RelPath::root()) {
            self.obstacles.push(Obstacle::ReadOnly(RelPath::root()));
        }
    }

    /// Whether a file has other names, which would get its new mode too: one may be in the workspace and due to keep its own,
    /// another may lie outside. Such a file is replaced instead.
    fn is_shared(&self, path: &RelPath) -> bool {
        let Some((above, name)) = path.split_last() else { return false };
        let facts =
            linux::open_dir_at(self.root.fd(), &above).and_then(|above| linux::facts_at(&above, name));
        facts.is_ok_and(|facts| facts.names > 1)
    }

    fn may_write(&self, path: &RelPath) -> bool {
        let open = |path: &RelPath| -> io::Result<OwnedFd> { linux::open_dir_at(self.root.fd(), path) };
        open(path).is_ok_and(|fd| linux::may_write(&fd))
    }

    fn present(&self, path: &RelPath) -> Result<Option<Entry>, ObjectError> {
        if path.is_root() {
            return Ok(Some(self.now.root.clone()));
        }
        change::find(self.source, self.now_tree, path)
    }

    /// Whether there is room for all that has to be written first.
    fn check_space(&self, plan: &Plan) -> Result<(), WorkspaceError> {
        let free_bytes = linux::free_bytes(self.root.fd())
            .map_err(|source| WorkspaceError::Read { path: RelPath::root(), source })?;
        if plan.stage_bytes <= free_bytes {
            return Ok(());
        }
        // Perhaps much of it are holes. To know takes reading the lists of pieces, so it is looked at only now.
        let needed_bytes = plan.stage_bytes.saturating_sub(self.hole_bytes()?);
        if needed_bytes > free_bytes {
            return Err(WorkspaceError::Space { needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// How much of what is to be written are holes, or zeros in pieces of the same length, which are never written.
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

    /// Every path that changes, and the counts.
    fn report(&mut self) -> Result<Plan, WorkspaceError> {
        let mut plan = Plan::default();
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
        plan.warnings = self.lost.warnings();
        Ok(plan)
    }
}

/// The content that a change puts in place.
fn written(change: &Change) -> Option<&Content> {
    match &change.new {
        Some(Entry { node: Node::File(content), .. }) if change.kind != ChangeKind::Mode => Some(content),
        _ => None,
    }
}

fn expected(entry: Entry) -> Expected {
    Expected { entry }
}

fn meta_step(path: &RelPath, old: &Entry, new: &Entry) -> Step {
    Step {
        path: path.clone(),
        old: Some(expected(old.clone())),
        new: Some(expected(new.clone())),
        how: How::Meta,
    }
}

/// A directory must be one that we may write in for as long as it has to be moved.
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

fn final_mode(path: &RelPath, new: &Entry) -> Option<(RelPath, Step)> {
    needs_work_bits(new).then(|| (path.clone(), meta_step(path, &workable(new), new)))
}
