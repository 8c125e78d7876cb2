//! Moves of branch, HEAD and index to another commit, or back. Files are not touched.
//!
//! A move is a value with the old and the new state. It can be stored before it is executed, and undone after
//! a crash at any point: each of the three is checked separately.

use crate::objects::Objects;
use crate::refs::{GOING, head_bytes, ref_bytes};
use crate::{GitError, GitId, Head, Repository, Target};
use safepoint_model::RelPath;

/// Old and new state of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Target of HEAD before and after.
    pub head: (Target, Target),
    /// Branch whose commit changes, and its commits before and after; `None` for no branch.
    pub branch: Option<(RelPath, Option<GitId>, Option<GitId>)>,
    /// Index before and after, as bytes; `None` for no index.
    pub index: (Option<Vec<u8>>, Option<Vec<u8>>),
    /// Commit of HEAD before and after, for the reflog.
    pub commits: (Option<GitId>, Option<GitId>),
}

fn target(head: &Head) -> Target {
    match head {
        Head::Branch { name, .. } | Head::Unborn { name } => Target::Symbolic(name.clone()),
        Head::Detached { commit } => Target::Id(*commit),
    }
}

impl Repository {
    /// Plans the move of the current branch, or of a detached HEAD, and of the index to a commit.
    ///
    /// # Errors
    /// When a git operation is in progress, or the commit is missing.
    pub fn plan_reset(&self, commit: GitId) -> Result<Move, GitError> {
        self.refuse_under_way()?;
        let head = self.head()?;
        let index = (self.index_bytes()?, Some(self.index_of(commit)?));
        let (now, commits) = (target(&head), (head.commit(), Some(commit)));
        Ok(match head.branch() {
            Some(name) => {
                let branch = Some((name.clone(), head.commit(), Some(commit)));
                Move { head: (now.clone(), now), branch, index, commits }
            }
            None => Move { head: (now, Target::Id(commit)), branch: None, index, commits },
        })
    }

    /// Plans the return of HEAD, its branch and the index to an earlier state.
    ///
    /// # Errors
    /// When a git operation is in progress, the commit is missing, or another worktree is on the branch.
    pub fn plan_return(&self, then: &Head, index: Option<Vec<u8>>) -> Result<Move, GitError> {
        self.refuse_under_way()?;
        self.refuse_sparse(&self.index()?)?;
        if let Some(commit) = then.commit() {
            Objects::open(self)?.tree_of(commit)?;
        }
        let branch = match then.branch() {
            Some(name) => {
                let now = match self.find(name)? {
                    Some(Target::Symbolic(_)) => {
                        return Err(self.unsupported("its branch is a symbolic ref"));
                    }
                    Some(Target::Id(id)) => Some(id),
                    None => None,
                };
                let elsewhere = self.elsewhere(name)?;
                if elsewhere {
                    return Err(GitError::Elsewhere { name: crate::short_name(name) });
                }
                Some((name.clone(), now, then.commit()))
            }
            None => None,
        };
        let now = self.head()?;
        let (head, commits) = ((target(&now), target(then)), (now.commit(), then.commit()));
        Ok(Move { head, branch, index: (self.index_bytes()?, index), commits })
    }

    /// Plans the undo of an executed move. Returns `None` if HEAD or the branch was moved since. The index
    /// may have changed.
    ///
    /// # Errors
    /// When a git operation is in progress, a commit is missing, or another worktree is on the branch.
    pub fn plan_undo(&self, done: &Move) -> Result<Option<Move>, GitError> {
        self.refuse_under_way()?;
        let now = self.head()?;
        let branch = match &done.branch {
            Some((name, _, new)) if self.find(name)? != new.map(Target::Id) => return Ok(None),
            Some((name, old, new)) => Some((name.clone(), *new, *old)),
            None => None,
        };
        if target(&now) != done.head.1 {
            return Ok(None);
        }
        let there = match (&done.head.0, &branch) {
            (Target::Id(id), _) => Some(*id),
            (Target::Symbolic(name), Some((moved, _, old))) if name == moved => *old,
            (Target::Symbolic(name), _) => match self.find(name)? {
                Some(Target::Id(id)) => Some(id),
                _ => None,
            },
        };
        let objects = Objects::open(self)?;
        for commit in [there, branch.as_ref().and_then(|(_, _, old)| *old)].into_iter().flatten() {
            objects.tree_of(commit)?;
        }
        if let (Target::Symbolic(name), true) = (&done.head.0, done.head.0 != done.head.1)
            && self.elsewhere(name)?
        {
            return Err(GitError::Elsewhere { name: crate::short_name(name) });
        }
        Ok(Some(Move {
            head: (done.head.1.clone(), done.head.0.clone()),
            branch,
            index: (self.index_bytes()?, done.index.0.clone()),
            commits: (now.commit(), there),
        }))
    }

    fn refuse_under_way(&self) -> Result<(), GitError> {
        match self.operation()? {
            Some(operation) => Err(GitError::UnderWay { operation }),
            None => Ok(()),
        }
    }

    /// Executes a move if HEAD, branch and index are in its old state.
    ///
    /// # Errors
    /// When they changed concurrently, another git process is running, or writing fails. The move may be
    /// partly done: call [`Repository::take_back`].
    pub fn carry_out(&self, a_move: &Move, why: &str, seconds: i64) -> Result<(), GitError> {
        let lock = self.own.lock(b"index", a_move.index.1.as_deref().unwrap_or(GOING))?;
        if self.index_bytes()? != a_move.index.0 {
            return Err(GitError::Moved { name: "the index".to_owned() });
        }
        if let Some((name, old, new)) = a_move.branch.as_ref().filter(|(_, old, new)| old != new) {
            self.set_ref(name, *old, *new)?;
        }
        if a_move.head.0 != a_move.head.1 {
            self.set_head(&a_move.head.0, &a_move.head.1)?;
        }
        match a_move.index.1 {
            Some(_) => lock.commit()?,
            None => self.remove_index()?,
        }
        self.note(a_move, why, seconds)
    }

    /// Undoes a move, however much of it was done. Returns the names that are in neither state because
    /// another program moved them; they stay.
    ///
    /// # Errors
    /// When it cannot be written; it can be retried.
    pub fn take_back(&self, a_move: &Move) -> Result<Vec<String>, GitError> {
        self.clear_locks(a_move)?;
        let mut left = Vec::new();
        let head = target(&self.head()?);
        if head == a_move.head.1 && a_move.head.0 != a_move.head.1 {
            self.set_head(&a_move.head.1, &a_move.head.0)?;
        } else if head != a_move.head.0 {
            left.push("HEAD".to_owned());
        }
        if let Some((name, old, new)) = &a_move.branch {
            let now = self.find(name)?;
            if now == new.map(Target::Id) && old != new {
                self.set_ref(name, *new, *old)?;
            } else if now != old.map(Target::Id) {
                left.push(crate::short_name(name));
            }
        }
        let index = self.index_bytes()?;
        if index == a_move.index.1 && a_move.index.0 != a_move.index.1 {
            match &a_move.index.0 {
                Some(bytes) => self.own.lock(b"index", bytes)?.commit()?,
                None => self.remove_index()?,
            }
        } else if index != a_move.index.0 {
            left.push("the index".to_owned());
        }
        Ok(left)
    }

    /// Removes the locks that this move left when it was interrupted.
    fn clear_locks(&self, a_move: &Move) -> Result<(), GitError> {
        let (old, new) = (head_bytes(&a_move.head.0), head_bytes(&a_move.head.1));
        self.own.clear_lock(b"HEAD", &[&old, &new])?;
        let (old, new) = (a_move.index.0.as_deref(), a_move.index.1.as_deref());
        self.own.clear_lock(b"index", &[old.unwrap_or(GOING), new.unwrap_or(GOING)])?;
        match &a_move.branch {
            Some((name, old, new)) => {
                self.common.clear_lock(name.as_bytes(), &[&ref_bytes(*old), &ref_bytes(*new)])
            }
            None => Ok(()),
        }
    }

    fn remove_index(&self) -> Result<(), GitError> {
        self.own.remove(b"index").map_err(GitError::write(self.own.at(b"index")))
    }

    /// Records the move in git's reflog.
    fn note(&self, a_move: &Move, why: &str, seconds: i64) -> Result<(), GitError> {
        let (old, new) = a_move.commits;
        let hex =
            |id: Option<GitId>| id.map_or_else(|| GitId(self.hash.null()).to_string(), |id| id.to_string());
        let why = why.replace(|letter: char| letter.is_control(), " ");
        let line = |old, new| format!("{} {} {} {seconds} +0000\t{why}\n", hex(old), hex(new), self.identity);
        self.own.append(b"logs/HEAD", line(old, new).as_bytes())?;
        match &a_move.branch {
            Some((name, old, new)) => {
                self.common.append(&[b"logs/", name.as_bytes()].concat(), line(*old, *new).as_bytes())
            }
            None => Ok(()),
        }
    }
}
