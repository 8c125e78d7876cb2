//! Writes a captured tree as a commit: blobs, trees and the commit are durable before a ref names them.
//!
//! The captured bytes are written unchanged: no filter or line-ending rule applies. Like `git add -A`, it
//! takes untracked files, skips ignored ones, and keeps the commits of submodules.

use crate::ignores::{Ignores, RULES_BYTES_MAX, RULES_FILE};
use crate::index::Tracked;
use crate::objects::{Objects, TreeEntry};
use crate::{GitError, GitId, Repository};
use gix_hash::ObjectId as Oid;
use gix_object::Kind;
use gix_object::tree::EntryKind;
use safepoint_model::content::{Content, Form};
use safepoint_model::tree::{Entry, Node, Tree};
use safepoint_model::{ObjectId, ObjectSource, Progress, RelPath};

/// Executable by the owner: the only mode bit that git keeps.
const EXECUTABLE: u16 = 0o100;

/// Requested commit.
pub struct Wanted<'a> {
    /// Source of captured objects.
    pub source: &'a dyn ObjectSource,
    /// Captured tree of the folder from which the repository was found.
    pub tree: ObjectId,
    /// Commit message.
    pub message: &'a str,
    /// Commit time, in seconds since 1970.
    pub seconds: i64,
    /// A tree that HEAD's commit already has.
    pub unchanged: Unchanged,
}

/// Treatment of a captured tree that equals the tree of HEAD's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchanged {
    /// Writes an empty commit.
    Committed,
    /// Returns HEAD's commit.
    Head,
}

/// Written commit. No ref names it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Id of the commit.
    pub commit: GitId,
    /// Message of HEAD's commit, if that is the commit and none was written.
    pub of_head: Option<String>,
    /// Paths left out because git refuses their names.
    pub refused: Vec<RelPath>,
    /// Files left out because they are too long for git, which stores every zero of their holes.
    pub holes: Vec<RelPath>,
    /// Number of files and folders left out because git ignores them.
    pub ignored: u64,
}

impl Repository {
    /// Writes a captured tree as a commit with HEAD's commit as parent. Branch, index and HEAD do not change,
    /// and no ref names it.
    ///
    /// # Errors
    /// When the repository or the objects cannot be read, or it cannot be written. Unreferenced objects may
    /// remain.
    pub fn commit(&self, wanted: &Wanted<'_>, progress: &dyn Progress) -> Result<Committed, GitError> {
        let index = self.index()?;
        self.refuse_sparse(&index)?;
        let parent = self.head()?.commit();
        let objects = Objects::open(self)?;
        let mut writing = Writing {
            repository: self,
            objects: &objects,
            source: wanted.source,
            tracked: Tracked::new(&index),
            refused: Vec::new(),
            holes: Vec::new(),
            ignored: 0,
            progress,
        };
        let (ignores, all_ignored) = self.ignores_above()?;
        let tree = writing.tree(wanted.tree, self.prefix(), &ignores, all_ignored)?;
        let whole = match parent {
            Some(parent) => Some(objects.tree_of(parent)?),
            None => None,
        };
        let names: Vec<&[u8]> = self.prefix().names().collect();
        let tree = match writing.graft(whole, &names, tree)? {
            Some(tree) => tree,
            None => objects.put_tree(Vec::new())?,
        };
        let (refused, holes, ignored) = (writing.refused, writing.holes, writing.ignored);
        if let Some(commit) = parent.filter(|_| wanted.unchanged == Unchanged::Head && whole == Some(tree)) {
            let of_head = Some(objects.message_of(commit)?);
            return Ok(Committed { commit, of_head, refused, holes, ignored });
        }
        let text = self.commit_text(tree, parent, wanted);
        let commit = GitId(objects.put(Kind::Commit, text.as_bytes())?);
        objects.finish()?;
        Ok(Committed { commit, of_head: None, refused, holes, ignored })
    }

    /// Returns HEAD's commit in the same form. `None` before the first commit.
    ///
    /// # Errors
    /// When the repository or the commit cannot be read.
    pub fn committed_head(&self) -> Result<Option<Committed>, GitError> {
        let Some(commit) = self.head()?.commit() else { return Ok(None) };
        let of_head = Some(Objects::open(self)?.message_of(commit)?);
        Ok(Some(Committed { commit, of_head, refused: Vec::new(), holes: Vec::new(), ignored: 0 }))
    }

    fn commit_text(&self, tree: Oid, parent: Option<GitId>, wanted: &Wanted<'_>) -> String {
        let (who, when) = (&self.identity, wanted.seconds);
        let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
        let message = wanted.message.replace('\0', "").trim().to_owned();
        format!("tree {tree}\n{parent}author {who} {when} +0000\ncommitter {who} {when} +0000\n\n{message}\n")
    }

    /// Returns the ignore rules of the folders above the captured one, and true if they ignore all of it.
    fn ignores_above(&self) -> Result<(Ignores, bool), GitError> {
        let mut ignores = self.ignores_of_repository()?;
        let top = crate::folder::Folder::open(self.top())?;
        let (mut at, mut all_ignored) = (RelPath::root(), false);
        for name in self.prefix().names() {
            let file = at.join(RULES_FILE).map_err(|error| self.damaged(error))?;
            let text = top.read(file.as_bytes(), RULES_BYTES_MAX).ok().flatten();
            ignores = text.map_or(ignores.clone(), |text| ignores.with(at.as_bytes(), &text));
            at = at.join(name).map_err(|error| self.damaged(error))?;
            all_ignored = all_ignored || ignores.leave_alone(at.as_bytes(), true);
        }
        Ok((ignores, all_ignored))
    }

    /// Returns the rules of `info/exclude`.
    pub(crate) fn ignores_of_repository(&self) -> Result<Ignores, GitError> {
        let text = self.common.read(b"info/exclude", RULES_BYTES_MAX)?.unwrap_or_default();
        Ok(Ignores::default().with(b"", &text))
    }

    /// Returns the commit that a submodule's files are at, or `None` if it cannot be determined.
    pub(crate) fn submodule_head(&self, path: &[u8]) -> Option<GitId> {
        use std::os::unix::ffi::OsStrExt;
        let folder = self.top().join(std::ffi::OsStr::from_bytes(path));
        let submodule = Repository::around(&folder).ok().flatten()?;
        let own = submodule.prefix().is_root() && submodule.hash == self.hash;
        own.then(|| submodule.head().ok()?.commit()).flatten()
    }
}

struct Writing<'a> {
    repository: &'a Repository,
    objects: &'a Objects<'a>,
    source: &'a dyn ObjectSource,
    tracked: Tracked,
    refused: Vec<RelPath>,
    holes: Vec<RelPath>,
    ignored: u64,
    progress: &'a dyn Progress,
}

impl Writing<'_> {
    /// Writes one folder. Returns `None` if git would store nothing of it.
    fn tree(
        &mut self,
        tree: ObjectId,
        path: &RelPath,
        above: &Ignores,
        ignored: bool,
    ) -> Result<Option<Oid>, GitError> {
        if self.progress.interrupted() {
            return Err(GitError::Interrupted);
        }
        let tree = Tree::load(self.source, tree)?;
        let ignores = self.rules(&tree, path, above)?;
        let mut entries = Vec::new();
        for entry in tree.entries() {
            let below = path.join(&entry.name).map_err(|error| self.repository.damaged(error))?;
            if is_refused(entry) {
                // The `.git` of a submodule or a worktree is not content.
                if entry.name != b".git" {
                    self.refused.push(below);
                }
                continue;
            }
            let is_dir = matches!(entry.node, Node::Directory(_));
            let alone = ignored || ignores.leave_alone(below.as_bytes(), is_dir);
            let known = match is_dir {
                true => self.tracked.has_below(below.as_bytes()),
                false => self.tracked.has_file(below.as_bytes()),
            };
            if alone && !known {
                self.ignored += 1;
                continue;
            }
            if let Some((kind, oid)) = self.entry(entry, &below, &ignores, alone)? {
                entries.push(TreeEntry { mode: kind.into(), filename: entry.name.clone().into(), oid });
            }
        }
        match entries.is_empty() {
            true => Ok(None),
            false => self.objects.put_tree(entries).map(Some),
        }
    }

    fn entry(
        &mut self,
        entry: &Entry,
        path: &RelPath,
        ignores: &Ignores,
        ignored: bool,
    ) -> Result<Option<(EntryKind, Oid)>, GitError> {
        match &entry.node {
            Node::Directory(tree) => {
                if let Some(recorded) = self.tracked.submodules.get(path.as_bytes()) {
                    let at = self.repository.submodule_head(path.as_bytes()).unwrap_or(*recorded);
                    return Ok(Some((EntryKind::Commit, at.0)));
                }
                let tree = self.tree(*tree, path, ignores, ignored)?;
                Ok(tree.map(|tree| (EntryKind::Tree, tree)))
            }
            Node::File(_) if is_mostly_holes(entry) => {
                self.holes.push(path.clone());
                Ok(None)
            }
            Node::File(content) => {
                let blob = self.objects.put_content(self.source, content)?;
                self.progress.advance(1, content.size);
                let executable = entry.meta.mode & EXECUTABLE != 0;
                Ok(Some((if executable { EntryKind::BlobExecutable } else { EntryKind::Blob }, blob)))
            }
            Node::Symlink(target) => Ok(Some((EntryKind::Link, self.objects.put(Kind::Blob, target)?))),
        }
    }

    /// Returns the captured ignore rules of a folder.
    fn rules(&self, tree: &Tree, path: &RelPath, above: &Ignores) -> Result<Ignores, GitError> {
        match tree.get(RULES_FILE).map(|entry| &entry.node) {
            Some(Node::File(content)) if content.size <= RULES_BYTES_MAX => {
                let mut text = Vec::new();
                content.read::<GitError>(self.source, &mut |bytes| {
                    text.extend_from_slice(bytes);
                    Ok(())
                })?;
                Ok(above.with(path.as_bytes(), &text))
            }
            _ => Ok(above.clone()),
        }
    }

    /// Replaces one folder of another tree by a tree.
    fn graft(&self, whole: Option<Oid>, names: &[&[u8]], tree: Option<Oid>) -> Result<Option<Oid>, GitError> {
        let Some((name, rest)) = names.split_first() else { return Ok(tree) };
        let mut entries = match whole {
            Some(whole) => self.objects.entries(&whole)?,
            None => Vec::new(),
        };
        let there = entries.iter().position(|entry| entry.filename == **name);
        let there = there.map(|at| entries.remove(at)).filter(|entry| entry.mode.is_tree());
        if let Some(oid) = self.graft(there.map(|entry| entry.oid), rest, tree)? {
            entries.push(TreeEntry { mode: EntryKind::Tree.into(), filename: name.to_vec().into(), oid });
        }
        match entries.is_empty() {
            true => Ok(None),
            false => self.objects.put_tree(entries).map(Some),
        }
    }
}

/// Returns true if a sparse file is too long for git, which stores every zero.
fn is_mostly_holes(entry: &Entry) -> bool {
    const BYTES_MAX: u64 = 16 << 30;
    matches!(entry.node, Node::File(Content { form: Form::Sparse, size, .. }) if size > BYTES_MAX)
}

/// Returns true for a name that git refuses: one that some file system could take for `.git` (git's
/// `verify_path`).
fn is_refused(entry: &Entry) -> bool {
    /// HFS+ ignores these characters.
    fn unseen(letter: char) -> bool {
        matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
    }
    let text: String = String::from_utf8_lossy(&entry.name)
        .chars()
        .filter(|letter| !unseen(*letter))
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let link = matches!(entry.node, Node::Symlink(_));
    text.split('\\').any(|piece| {
        let piece = piece.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
        matches!(piece, ".git" | "git~1") || (link && matches!(piece, ".gitmodules" | "gitmod~1"))
    })
}
