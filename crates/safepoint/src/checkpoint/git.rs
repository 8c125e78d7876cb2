//! GIT: a checkpoint as a commit and a tag, and what the repository around a workspace says about itself.
//!
//! The checkpoint comes first and is durable before anything of a repository is touched: whatever goes wrong with the commit is
//! told, and the checkpoint is there all the same.

use crate::checkpoint::create::files_part;
use crate::handles::Checkpoints;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::Workspace;
use safepoint_git::{Changes, GitError, GitId, Head, Repository, Unchanged, Wanted, short_name};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::files::FilesDocument;
use safepoint_model::{CheckpointId, Progress};

/// Creation of a commit from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitCommit {
    /// It does not.
    #[default]
    No,
    /// It does, with a tag that names it. Branch, index and HEAD stay as they are.
    Tag,
    /// It does, and the branch and the index move to it.
    Branch,
    /// As [`GitCommit::Tag`] in a repository, unless the configuration turns it off. A clean tree is tagged at HEAD.
    Session,
    /// HEAD's commit is tagged, whatever the files are. Before the first commit as [`GitCommit::Tag`].
    Head,
}

/// Handling of the tags of deleted checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tags {
    /// They go too.
    #[default]
    Removed,
    /// They stay.
    Kept,
}

/// Status of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GitStatus {
    /// State of HEAD: `branch`, `detached`, or `unborn` before the first commit.
    pub state: &'static str,
    /// The branch, without `refs/heads/`.
    pub branch: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// Git operation: `merge`, `rebase` and so on.
    pub operation: Option<&'static str>,
    /// Uncommitted changes.
    pub changes: Changes,
}

/// The name of a checkpoint's tag.
fn tag_of(id: CheckpointId) -> String {
    format!("checkpoint-{id}")
}

impl CheckpointManager {
    /// The repository that a workspace is in.
    pub(crate) fn repository(workspace: &Workspace) -> Result<Repository, Error> {
        let path = workspace.root_path();
        Repository::around(path)?.ok_or_else(|| Error::NoRepository { path: path.to_owned() })
    }

    /// Looks at the repository around a workspace; nothing where there is none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn git_status(
        &self,
        workspace: &Workspace,
        progress: &dyn Progress,
    ) -> Result<Option<GitStatus>, Error> {
        let Some(repository) = Repository::around(workspace.root_path())? else { return Ok(None) };
        let head = repository.head()?;
        Ok(Some(GitStatus {
            state: match head {
                Head::Branch { .. } => "branch",
                Head::Unborn { .. } => "unborn",
                Head::Detached { .. } => "detached",
            },
            branch: head.branch().map(short_name),
            commit: head.commit().map(|commit| commit.to_string()),
            operation: repository.operation()?.map(safepoint_git::Operation::as_str),
            changes: repository.changes(progress)?,
        }))
    }

    /// Makes a checkpoint that is on record a commit, too. Says what was not done of what was asked for.
    pub(crate) fn commit_to_git(
        &self,
        workspace: &Workspace,
        how: GitCommit,
        checkpoint: &mut Checkpoint,
        progress: &dyn Progress,
    ) -> Vec<Warning> {
        if how == GitCommit::No {
            return Vec::new();
        }
        let mut missing = Vec::new();
        match self.commit_and_tag(workspace, how, checkpoint, progress) {
            Ok((repository, commit, left_out)) => {
                missing.extend(left_out);
                let moved = match how {
                    GitCommit::Branch => self.move_branch(&repository, checkpoint, commit),
                    _ => Ok(()),
                };
                missing.extend(moved.err().map(|error| Warning::BranchNotMoved { why: cause(error) }));
            }
            Err(error) => missing.push(Warning::NotCommitted { why: cause(error) }),
        }
        missing
    }

    /// Makes a checkpoint of a session a commit, where it is in a repository. Returns warnings: none of it was asked for by name.
    pub(crate) fn commit_session(
        &self,
        workspace: &Workspace,
        checkpoint: &mut Checkpoint,
        progress: &dyn Progress,
    ) -> Vec<Warning> {
        match Repository::around(workspace.root_path()) {
            Ok(Some(_)) => self.commit_to_git(workspace, GitCommit::Session, checkpoint, progress),
            // A repository that cannot be read is in the warnings of the checkpoint.
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    fn commit_and_tag(
        &self,
        workspace: &Workspace,
        how: GitCommit,
        checkpoint: &mut Checkpoint,
        progress: &dyn Progress,
    ) -> Result<(Repository, GitId, Option<Warning>), Error> {
        let none = || Error::NoFiles { checkpoint: checkpoint.id };
        let files = FilesDocument::load(&self.store, files_part(checkpoint).ok_or_else(none)?.document)?;
        let repository = Self::repository(workspace)?;
        let said = checkpoint.label.clone().unwrap_or_else(|| format!("checkpoint {}", checkpoint.id));
        let wanted = Wanted {
            source: &self.store,
            tree: files.tree().ok_or_else(none)?,
            message: &format!("{}\n\nSafepoint-Checkpoint: {}", said.trim(), checkpoint.id),
            seconds: checkpoint.created_at.micros().div_euclid(1_000_000),
            unchanged: if how == GitCommit::Session { Unchanged::Head } else { Unchanged::Committed },
        };
        let head = if how == GitCommit::Head { repository.committed_head()? } else { None };
        let made = match head {
            Some(head) => head,
            None => repository.commit(&wanted, progress)?,
        };
        let said = made.of_head.as_deref().map_or(said, |message| message.trim().to_owned());
        let tag = tag_of(checkpoint.id);
        repository.tag(&tag, made.commit)?;
        let (sha, at) = (made.commit.to_string(), self.environment.now());
        let noted = self.catalog.write::<(), Error>(|transaction| {
            Ok(transaction.set_commit(checkpoint.id, &sha, &said, std::slice::from_ref(&tag), at)?)
        });
        if let Err(error) = noted {
            // A tag that no record names would stay for good.
            let _ = repository.remove_tag(&tag, made.commit);
            return Err(error);
        }
        self.note_changed(checkpoint.id);
        checkpoint.commit_sha = Some(sha);
        checkpoint.commit_message = Some(said);
        checkpoint.tags = vec![tag];
        let left_out = match (made.refused, made.holes) {
            (refused, _) if !refused.is_empty() => Some(Warning::NamesNotCommitted { paths: refused }),
            (_, holes) if !holes.is_empty() => Some(Warning::HolesNotCommitted { paths: holes }),
            _ => None,
        };
        Ok((repository, made.commit, left_out))
    }

    fn move_branch(
        &self,
        repository: &Repository,
        checkpoint: &Checkpoint,
        commit: GitId,
    ) -> Result<(), Error> {
        if repository.head()?.branch().is_none() {
            return Err(GitError::Detached.into());
        }
        let there = repository.plan_reset(commit)?;
        let (why, seconds) = (format!("safepoint: checkpoint {}", checkpoint.id), self.seconds());
        if let Err(error) = repository.carry_out(&there, &why, seconds) {
            repository.take_back(&there)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Current time in Unix seconds.
    pub(crate) fn seconds(&self) -> i64 {
        self.environment.now().micros().div_euclid(1_000_000)
    }

    /// Removes the tags of a checkpoint that was deleted. Returns a warning where that fails.
    pub(crate) fn untag(&self, checkpoint: &Checkpoint) -> Option<Warning> {
        if checkpoint.tags.is_empty() {
            return None;
        }
        let error = self.remove_tags(checkpoint).err()?;
        Some(Warning::TagsNotRemoved { tags: checkpoint.tags.clone(), why: cause(error) })
    }

    fn remove_tags(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let workspace = checkpoint.workspace_id.map(|id| self.workspaces().get(id)).transpose()?;
        let sha = checkpoint.commit_sha.as_deref().and_then(|sha| sha.parse().ok());
        let (Some(workspace), Some(commit)) = (workspace, sha) else { return Ok(()) };
        let repository = Self::repository(&workspace)?;
        for tag in &checkpoint.tags {
            repository.remove_tag(tag, commit)?;
        }
        Ok(())
    }
}

impl Checkpoints<'_> {
    /// Deletes checkpoints as [`Checkpoints::delete`] does, and says what became of their tags: what it tells could not be
    /// taken away.
    ///
    /// # Errors
    /// As [`Checkpoints::delete`].
    pub fn delete_with(&self, ids: &[CheckpointId], tags: Tags) -> Result<Vec<Warning>, Error> {
        let mut tagged = Vec::new();
        for id in ids {
            tagged.extend(
                self.manager.catalog.checkpoint(*id)?.filter(|checkpoint| !checkpoint.tags.is_empty()),
            );
        }
        self.manager.forget(ids)?;
        match tags {
            Tags::Kept => Ok(Vec::new()),
            Tags::Removed => {
                Ok(tagged.iter().filter_map(|checkpoint| self.manager.untag(checkpoint)).collect())
            }
        }
    }
}

/// An error and what lies behind it, in one line.
pub(crate) fn in_words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
