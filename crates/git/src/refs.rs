//! Branches, tags and HEAD: read from loose files and `packed-refs`, written under git's own locks.

use crate::folder::Folder;
use crate::{GitError, GitId, Repository};
use rustix::fs::FileType;
use safepoint_model::RelPath;
use std::collections::BTreeMap;

/// Maximum length of a ref file, which has one line.
const REF_BYTES_MAX: u64 = 8 * 1024;
const PACKED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum nesting of ref names; a hostile repository could nest them without end.
const DEPTH_MAX: usize = 64;

/// State of HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// On a branch with commits.
    Branch {
        /// Full name, such as `refs/heads/main`.
        name: RelPath,
        /// Commit.
        commit: GitId,
    },
    /// On a branch without a commit.
    Unborn {
        /// Full name.
        name: RelPath,
    },
    /// At a commit, on no branch.
    Detached {
        /// Commit.
        commit: GitId,
    },
}

impl Head {
    /// Returns the branch, if any.
    pub fn branch(&self) -> Option<&RelPath> {
        match self {
            Head::Branch { name, .. } | Head::Unborn { name } => Some(name),
            Head::Detached { .. } => None,
        }
    }

    /// Returns the commit, if any.
    pub fn commit(&self) -> Option<GitId> {
        match self {
            Head::Branch { commit, .. } | Head::Detached { commit } => Some(*commit),
            Head::Unborn { .. } => None,
        }
    }
}

/// Target of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Object.
    Id(GitId),
    /// Another ref.
    Symbolic(RelPath),
}

/// Returns the short name of a branch.
pub fn short_name(name: &RelPath) -> String {
    let text = name.to_string();
    text.strip_prefix("refs/heads/").map_or(text.clone(), str::to_owned)
}

impl Repository {
    /// Returns the state of HEAD.
    ///
    /// # Errors
    /// When it cannot be read or is invalid.
    pub fn head(&self) -> Result<Head, GitError> {
        let found = self.loose(&self.own, b"HEAD")?;
        match found.ok_or_else(|| self.damaged("HEAD is missing"))? {
            Target::Id(commit) => Ok(Head::Detached { commit }),
            Target::Symbolic(name) if !name.as_bytes().starts_with(b"refs/heads/") => {
                Err(self.damaged(format!("HEAD names {name}, which is not a branch")))
            }
            Target::Symbolic(name) => match self.find(&name)? {
                Some(Target::Id(commit)) => Ok(Head::Branch { name, commit }),
                Some(Target::Symbolic(_)) => Err(self.unsupported("its branch is a symbolic ref")),
                None => Ok(Head::Unborn { name }),
            },
        }
    }

    /// Returns every ref with its target, sorted by name.
    ///
    /// # Errors
    /// When one cannot be read or is invalid.
    pub fn refs(&self) -> Result<BTreeMap<RelPath, Target>, GitError> {
        let mut all: BTreeMap<RelPath, Target> =
            self.packed()?.into_iter().map(|(name, id)| (name, Target::Id(id))).collect();
        for folder in self.places() {
            self.collect(folder, b"refs", 0, &mut all)?;
        }
        Ok(all)
    }

    /// Returns both folders, the worktree's last: its refs take precedence.
    fn places(&self) -> impl Iterator<Item = &Folder> {
        let own = (self.own.path() != self.common.path()).then_some(&self.own);
        std::iter::once(&self.common).chain(own)
    }

    fn collect(
        &self,
        folder: &Folder,
        above: &[u8],
        depth: usize,
        all: &mut BTreeMap<RelPath, Target>,
    ) -> Result<(), GitError> {
        let Some(here) = folder.below(above)? else { return Ok(()) };
        if depth > DEPTH_MAX {
            return Err(self.damaged("its refs are nested too deeply"));
        }
        for (name, kind) in here.names()? {
            let full = [above, b"/", name.as_slice()].concat();
            match kind {
                FileType::Directory => self.collect(folder, &full, depth + 1, all)?,
                // A leftover lock of a dead git process is not a ref.
                FileType::RegularFile if !name.ends_with(b".lock") => {
                    let path = RelPath::new(full.as_slice()).map_err(|error| self.damaged(error))?;
                    all.extend(self.loose(folder, &full)?.map(|target| (path, target)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the target of a ref, or `None` if it is missing.
    pub(crate) fn find(&self, name: &RelPath) -> Result<Option<Target>, GitError> {
        match self.loose(&self.common, name.as_bytes())? {
            Some(target) => Ok(Some(target)),
            None => Ok(self.packed()?.remove(name).map(Target::Id)),
        }
    }

    fn loose(&self, folder: &Folder, name: &[u8]) -> Result<Option<Target>, GitError> {
        let Some(bytes) = folder.read(name, REF_BYTES_MAX)? else { return Ok(None) };
        let line = bytes.trim_ascii_end();
        let wrong = || GitError::damaged(&folder.at(name), "it is not a valid ref");
        if let Some(other) = line.strip_prefix(b"ref:") {
            let other = RelPath::new(other.trim_ascii_start()).map_err(|_| wrong())?;
            return Ok(Some(Target::Symbolic(other)));
        }
        Ok(Some(Target::Id(self.id(line).ok_or_else(wrong)?)))
    }

    fn id(&self, hex: &[u8]) -> Option<GitId> {
        let id = gix_hash::ObjectId::from_hex(hex).ok()?;
        (id.kind() == self.hash).then_some(GitId(id))
    }

    fn packed(&self) -> Result<BTreeMap<RelPath, GitId>, GitError> {
        let bytes = self.common.read(b"packed-refs", PACKED_BYTES_MAX)?.unwrap_or_default();
        let mut all = BTreeMap::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !is_remark(line)) {
            let parsed = line
                .iter()
                .position(|byte| *byte == b' ')
                .and_then(|space| Some((RelPath::new(&line[space + 1..]).ok()?, self.id(&line[..space])?)));
            let (name, id) = parsed.ok_or_else(|| self.damaged("a line of packed-refs is invalid"))?;
            all.insert(name, id);
        }
        Ok(all)
    }

    /// Sets a ref to an object if it has the expected target. `None` means no ref.
    pub(crate) fn set_ref(
        &self,
        name: &RelPath,
        old: Option<GitId>,
        new: Option<GitId>,
    ) -> Result<(), GitError> {
        let file = name.as_bytes();
        self.common.make_above(file)?;
        let lock = self.common.lock(file, &ref_bytes(new))?;
        if self.find(name)? != old.map(Target::Id) {
            return Err(GitError::Moved { name: name.to_string() });
        }
        match new {
            Some(_) => lock.commit(),
            None => {
                self.drop_packed(name)?;
                self.common.remove(file).map_err(GitError::write(self.common.at(file)))
            }
        }
    }

    /// Sets HEAD to a branch or a commit if it has the expected target.
    pub(crate) fn set_head(&self, old: &Target, new: &Target) -> Result<(), GitError> {
        let lock = self.own.lock(b"HEAD", &head_bytes(new))?;
        if self.loose(&self.own, b"HEAD")?.as_ref() != Some(old) {
            return Err(GitError::Moved { name: "HEAD".to_owned() });
        }
        lock.commit()
    }

    /// Removes a ref from `packed-refs`.
    fn drop_packed(&self, name: &RelPath) -> Result<(), GitError> {
        if !self.packed()?.contains_key(name) {
            return Ok(());
        }
        let bytes = self.common.read(b"packed-refs", PACKED_BYTES_MAX)?.unwrap_or_default();
        let mut kept = Vec::with_capacity(bytes.len());
        let mut dropping = false;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let named = line.trim_ascii_end();
            // The line after a tag has its peeled target, and is removed with it.
            dropping = match is_remark(named) {
                true => dropping && named.starts_with(b"^"),
                false => {
                    named.ends_with(name.as_bytes())
                        && named.len() == self.hash.len_in_hex() + 1 + name.as_bytes().len()
                }
            };
            if !dropping {
                kept.extend_from_slice(line);
            }
        }
        let lock = self.common.lock(b"packed-refs", &kept)?;
        match self.common.read(b"packed-refs", PACKED_BYTES_MAX)?.as_deref() == Some(bytes.as_slice()) {
            true => lock.commit(),
            false => Err(GitError::Moved { name: "packed-refs".to_owned() }),
        }
    }

    /// Creates a tag for a commit if the name is unused.
    ///
    /// # Errors
    /// When the tag names another object, or it cannot be written.
    pub fn tag(&self, tag: &str, commit: GitId) -> Result<(), GitError> {
        let name = tag_name(tag).ok_or_else(|| self.damaged(format!("{tag:?} is not a valid tag name")))?;
        match self.find(&name)? {
            Some(Target::Id(there)) if there == commit => Ok(()),
            Some(_) => Err(GitError::TagTaken { name: tag.to_owned() }),
            None => self.set_ref(&name, None, Some(commit)),
        }
    }

    /// Removes a tag if it names this commit. Returns true if it existed.
    ///
    /// # Errors
    /// When it names another object, or cannot be removed.
    pub fn remove_tag(&self, tag: &str, commit: GitId) -> Result<bool, GitError> {
        let Some(name) = tag_name(tag) else { return Ok(false) };
        match self.find(&name)? {
            None => Ok(false),
            Some(Target::Id(there)) if there == commit => {
                self.set_ref(&name, Some(commit), None).map(|()| true)
            }
            Some(_) => Err(GitError::TagTaken { name: tag.to_owned() }),
        }
    }

    /// Returns true if another worktree is on this branch.
    pub(crate) fn elsewhere(&self, branch: &RelPath) -> Result<bool, GitError> {
        let line = [b"ref: ", branch.as_bytes()].concat();
        let is_there = |folder: &Folder, name: &[u8]| -> Result<bool, GitError> {
            Ok(folder.read(name, REF_BYTES_MAX)?.is_some_and(|head| head.trim_ascii_end() == line))
        };
        if self.own.path() != self.common.path() && is_there(&self.common, b"HEAD")? {
            return Ok(true);
        }
        let Some(worktrees) = self.common.below(b"worktrees")? else { return Ok(false) };
        for (name, _) in worktrees.names()? {
            if worktrees.at(&name) != self.own.path()
                && is_there(&worktrees, &[&name, &b"/HEAD"[..]].concat())?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Content of the lock of a ref that is to be removed.
pub(crate) const GOING: &[u8] = b"safepoint takes it away\n";

/// Returns the file content of a ref to a commit, or the lock content of a ref to be removed.
pub(crate) fn ref_bytes(commit: Option<GitId>) -> Vec<u8> {
    commit.map_or_else(|| GOING.to_vec(), |commit| format!("{commit}\n").into_bytes())
}

/// Returns the file content of HEAD.
pub(crate) fn head_bytes(target: &Target) -> Vec<u8> {
    match target {
        Target::Id(commit) => ref_bytes(Some(*commit)),
        Target::Symbolic(name) => [b"ref: ", name.as_bytes(), b"\n"].concat(),
    }
}

fn is_remark(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#") || line.starts_with(b"^")
}

/// Returns the full name of a tag. Our tags have letters, digits and dashes.
fn tag_name(tag: &str) -> Option<RelPath> {
    let plain = !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    RelPath::new(format!("refs/tags/{tag}")).ok().filter(|_| plain && !tag.starts_with('-'))
}
