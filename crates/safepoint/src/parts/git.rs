//! Git state as a part of a checkpoint: HEAD, its branch, all refs, the index. Recorded with every checkpoint
//! of a workspace in a repository; restored only if requested by name.
//!
//! The safety checkpoint records each move before it happens, so that recovery and undo can reverse it.

mod lost;
mod same;

pub use lost::LostRepository;
pub(crate) use same::{is_of_repository, same_repository};

use crate::checkpoint::git::in_words;
use crate::parts::files::FilesPart;
use crate::parts::kinds::{FolderBack, FolderNow, Kind, LeftPart};
use crate::parts::part::{Captured, Left, Outline, Part, Prepared, PutBack};
use crate::parts::{Member, Nothing};
use crate::rollback::Request;
use crate::warning::cause;
use crate::{CheckpointManager, Error, GitPlace, Warning};
use safepoint_catalog::Workspace;
use safepoint_git::{Changes, GitError, GitId, Head, Move, Repository, Target, short_name};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord, Totals};
use safepoint_model::content::Content;
use safepoint_model::coverage::Coverage;
use safepoint_model::git::{GitDocument, GitMove, GitRefs, GitTarget, KeptBytes};
use safepoint_model::rollback::{Rollback, RollbackState, SwapStep, Verb};
use safepoint_model::{
    ObjectError, ObjectId, ObjectSink, ObjectSource, Progress, RelPath, RollbackId, WorkspaceId, document,
};
use safepoint_store::Writer;
use safepoint_workspace::{Ended, Finding};

/// Git state that a checkpoint records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitCapture {
    /// Nothing.
    None,
    /// HEAD, its branch, all refs and the index; no objects.
    #[default]
    State,
    /// The same, and the whole git folder if it is in the workspace.
    Full,
}

/// Movement of branch and index to the commit of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitReset {
    /// Branch and index stay.
    #[default]
    No,
    /// Branch and index move; the files stay.
    Mixed,
    /// Branch, index and files move.
    Hard,
}

/// Repository changes of a rollback or preview.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GitMoved {
    /// New branch of HEAD.
    pub branch: Option<String>,
    /// Old commit of HEAD.
    pub from: Option<String>,
    /// New commit of HEAD.
    pub to: Option<String>,
    /// True if the files moved, too.
    pub files: bool,
    /// True if the whole git folder was restored.
    pub folder: bool,
    /// Uncommitted changes that it replaced, counted in words. The safety checkpoint holds them.
    pub uncommitted: Option<String>,
}

/// Git state and git folders, as a kind.
pub(crate) struct GitParts;

impl Kind for GitParts {
    fn capture_folder<'m>(
        &self,
        folder: &FolderNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        let FolderNow { manager, files, git: capture, at, .. } = *folder;
        let whole = GitFolderPart { files: files.git_folder(), capture, replaced: None };
        members.push(Member::new(whole, at, None));
        let state = GitPart { manager, workspace: files.workspace, capture, moving: None };
        members.push(Member::new(state, at, None));
        Ok(())
    }

    fn stays_in(
        &self,
        _: &CheckpointManager,
        request: &Request<'_>,
        folder: &Workspace,
        _: bool,
    ) -> Result<bool, Error> {
        let is_held =
            git_part(&request.to, folder.id).is_some() || folder_part(&request.to, folder.id).is_some();
        Ok(is_held && request.options.parts.contains(&PartKind::Git))
    }

    fn roll_back_folder<'m>(
        &self,
        folder: &mut FolderBack<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        let plan = plan_of_folder(folder)?;
        let FolderBack { manager, request, git: capture, at, .. } = *folder;
        let workspace = folder.files.workspace;
        folder.target = folder.target.filter(|_| plan.as_ref().is_none_or(GitPlan::takes_files));
        let (moving, replaced) = match plan {
            Some(GitPlan::Move(moving)) => (Some(moving), None),
            Some(GitPlan::Folder(document, moved)) => {
                if folder.target.is_none() {
                    folder.record.paths = vec![git_folder()];
                }
                (None, Some((document, moved)))
            }
            None => (None, None),
        };
        let target = replaced.as_ref().map(|(document, _)| *document);
        let whole = GitFolderPart { files: folder.files.git_folder(), capture, replaced };
        members.push(Member::new(whole, at, target));
        // The move itself holds its target.
        let target = moving.is_some().then_some(request.to.integrity);
        members.push(Member::new(GitPart { manager, workspace, capture, moving }, at, target));
        Ok(())
    }

    fn left_by<'m>(
        &self,
        manager: &'m CheckpointManager,
        workspace: &'m Workspace,
        record: &Rollback,
    ) -> Result<Vec<LeftPart<'m>>, Error> {
        if record.state != RollbackState::Applying {
            return Ok(Vec::new());
        }
        let part = GitPart { manager, workspace, capture: GitCapture::None, moving: None };
        Ok(vec![LeftPart { part: Box::new(part), note: Vec::new() }])
    }
}

/// Plans the change to the repository of one folder.
fn plan_of_folder(folder: &mut FolderBack<'_, '_>) -> Result<Option<GitPlan>, Error> {
    let FolderBack { manager, request, ref files, progress, .. } = *folder;
    let (workspace, many) = (files.workspace, request.alone().is_none());
    let mut warnings = Vec::new();
    let plan = match manager.plan_git(workspace, request, folder.record.id, progress, &mut warnings) {
        // A repository that reaches beyond its workspace, or is gone, cannot be rolled back with the other folders.
        Err(error @ (Error::PartOfRepository { .. } | Error::NoRepository { .. })) if many => {
            warnings.push(Warning::GitNotMoved { why: cause(error) });
            None
        }
        plan => plan?,
    };
    if plan.is_none() && request.options.wants(PartKind::Plan) && request.verb == Verb::Rollback {
        warnings.extend(manager.git_moved_since(workspace, &request.to));
    }
    let root = workspace.root_path();
    let named = |warning: Warning| if many { warning.in_folder(root.to_owned()) } else { warning };
    folder.warnings.extend(warnings.into_iter().map(named));
    Ok(plan)
}

/// Returns the git state part of a workspace in a checkpoint.
pub(crate) fn git_part(checkpoint: &Checkpoint, workspace: WorkspaceId) -> Option<&PartRecord> {
    part_of(checkpoint, PartKind::Git, workspace)
}

/// Returns the git folder part of a workspace in a checkpoint.
fn folder_part(checkpoint: &Checkpoint, workspace: WorkspaceId) -> Option<&PartRecord> {
    part_of(checkpoint, PartKind::GitFolder, workspace)
}

fn part_of(checkpoint: &Checkpoint, kind: PartKind, workspace: WorkspaceId) -> Option<&PartRecord> {
    let key = workspace.to_string();
    checkpoint.parts.iter().find(|part| part.kind == kind && part.key == key)
}

/// Returns the path of the git folder in its workspace.
pub(crate) fn git_folder() -> RelPath {
    RelPath::new(".git").unwrap_or_default()
}

/// Chosen paths of a recorded rollback. The folder of a repository that was restored alone is on record as a path, and is a part.
pub(crate) fn without_git_folder(mut paths: Vec<RelPath>, parts: &[PartKind]) -> Vec<RelPath> {
    paths.retain(|path| !parts.contains(&PartKind::Git) || *path != git_folder());
    paths
}

/// Objects that a recorded state needs, without the document itself.
pub(crate) fn needed(
    source: &dyn ObjectSource,
    id: ObjectId,
) -> Result<(ObjectId, Vec<Content>), ObjectError> {
    let document = GitDocument::load(source, id)?;
    Ok((document.refs, document.contents().collect()))
}

/// Planned move of a repository.
pub(crate) struct Moving {
    workspace: Workspace,
    a_move: Move,
    /// True if the files move, too.
    pub(crate) files: bool,
    uncommitted: Option<String>,
    why: String,
    seconds: i64,
}

/// Plan of a rollback for the repository of one workspace.
enum GitPlan {
    /// Moves HEAD, branch and index.
    Move(Box<Moving>),
    /// Restores the whole folder from its document; with the old and new HEAD.
    Folder(ObjectId, GitMoved),
}

impl GitPlan {
    /// Returns true if the files move, too.
    fn takes_files(&self) -> bool {
        match self {
            GitPlan::Move(moving) => moving.files,
            GitPlan::Folder(_, moved) => moved.files,
        }
    }
}

/// HEAD, branch, refs and index of a workspace's repository, as a part.
pub(crate) struct GitPart<'m> {
    pub(crate) manager: &'m CheckpointManager,
    pub(crate) workspace: &'m Workspace,
    pub(crate) capture: GitCapture,
    /// Planned move of a rollback.
    pub(crate) moving: Option<Box<Moving>>,
}

impl Part for GitPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::Git
    }

    fn key(&self) -> String {
        self.workspace.id.to_string()
    }

    /// An unreadable state is only a warning.
    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        let mut captured = Captured::default();
        if self.capture == GitCapture::None && self.moving.is_none() {
            return Ok(captured);
        }
        let read = match Repository::around(self.workspace.root_path()) {
            Ok(Some(repository)) => read_state(&repository).map(|state| (repository, state)),
            // The repository of another folder does not describe this one.
            Ok(None) | Err(GitError::Stranger { .. } | GitError::Bare { .. }) => return Ok(captured),
            Err(error) => Err(error),
        };
        match read {
            Ok((repository, state)) => {
                captured.document = Some(keep_state(writer, &repository, state, self.moving.as_deref())?);
            }
            Err(error) => {
                let why = in_words(&error.into());
                captured.warnings.push(format!("the state of git is not noted: {why}"));
            }
        }
        Ok(captured)
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        _: ObjectId,
        _: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(match &self.moving {
            Some(moving) => Box::new(GitRollback { moving }),
            None => Box::new(Nothing),
        })
    }

    /// The safety checkpoint of the rollback records the moves.
    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        let record = self.manager.catalog.rollback(left.rollback)?;
        let safety = record.and_then(|record| record.safety_checkpoint);
        let safety = safety.map(|id| self.manager.checkpoints().get(id)).transpose()?;
        let moves = safety.map(|safety| self.manager.moves_of(&safety, self.workspace.id)).transpose()?;
        Ok(match moves.flatten() {
            Some(moves) => Box::new(GitTakenUp { manager: self.manager, workspace: self.workspace, moves }),
            None => Box::new(Nothing),
        })
    }
}

/// Move of branch, HEAD and index in progress.
struct GitRollback<'p> {
    moving: &'p Moving,
}

impl Prepared for GitRollback<'_> {
    fn put_back(&self) -> Option<PutBack> {
        Some(PutBack::Git(self.moving.moved()))
    }

    fn apply(&mut self, _: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        let Moving { workspace, a_move, why, seconds, .. } = self.moving;
        CheckpointManager::repository(workspace)?.carry_out(a_move, why, *seconds)?;
        Ok(Vec::new())
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        CheckpointManager::repository(&self.moving.workspace)?.take_back(&self.moving.a_move)?;
        Ok(Vec::new())
    }
}

/// Move interrupted by a crash.
struct GitTakenUp<'p> {
    manager: &'p CheckpointManager,
    workspace: &'p Workspace,
    moves: GitMove,
}

impl Prepared for GitTakenUp<'_> {
    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        let back = CheckpointManager::repository(self.workspace)
            .and_then(|repository| Ok(repository.take_back(&read_move(&self.manager.store, &self.moves)?)?));
        match back {
            Ok(left) => Ok(left_by_others(left).into_iter().collect()),
            Err(error) if matches!(error, Error::Git(GitError::Locked { .. } | GitError::Write { .. })) => {
                Err(error)
            }
            Err(error) => Ok(vec![Warning::GitNotMoved { why: cause(error) }]),
        }
    }
}

/// Whole git folder of a workspace, as a part.
pub(crate) struct GitFolderPart<'m> {
    pub(crate) files: FilesPart<'m>,
    pub(crate) capture: GitCapture,
    /// Target document of a rollback, with the old and new HEAD.
    pub(crate) replaced: Option<(ObjectId, GitMoved)>,
}

impl Part for GitFolderPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::GitFolder
    }

    fn key(&self) -> String {
        self.files.key()
    }

    fn capture(
        &self,
        writer: &Writer<'_>,
        _: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error> {
        if self.capture != GitCapture::Full && self.replaced.is_none() {
            return Ok(Captured::default());
        }
        let mut captured = self.files.capture(writer, None, progress)?;
        // An undo must empty a folder that a rollback fills.
        if captured.totals.count == 0 && self.replaced.is_none() {
            captured.document = None;
            if matches!(Repository::around(self.files.workspace.root_path()), Ok(Some(_))) {
                let elsewhere =
                    "the repository's folder is not in the workspace: its state is noted, and no more";
                captured.warnings.push(elsewhere.to_owned());
            }
        }
        // Totals count only the files of the workspace.
        captured.totals = Totals::default();
        captured.coverage = Coverage::default();
        Ok(captured)
    }

    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let files = self.files.prepare(now, target, writer)?;
        let moved = self.replaced.as_ref().map(|(_, moved)| moved.clone());
        Ok(Box::new(GitFolderRollback { files, moved }))
    }

    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        self.files.resume(left)
    }
}

/// Rollback of a git folder: a files rollback that reports its effect on git.
struct GitFolderRollback<'p> {
    files: Box<dyn Prepared + 'p>,
    moved: Option<GitMoved>,
}

impl Prepared for GitFolderRollback<'_> {
    fn outline(&self) -> Option<&Outline> {
        self.files.outline()
    }

    fn put_back(&self) -> Option<PutBack> {
        self.moved.clone().map(PutBack::Git)
    }

    fn steps(&self) -> &[SwapStep] {
        self.files.steps()
    }

    fn give_steps(&mut self) -> Vec<SwapStep> {
        self.files.give_steps()
    }

    fn stage(&mut self, rollback: RollbackId, progress: &dyn Progress) -> Result<(), Error> {
        self.files.stage(rollback, progress)
    }

    fn apply(&mut self, progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        self.files.apply(progress)
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        self.files.undo()
    }

    fn settle(
        &mut self,
        ended: Ended,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        self.files.settle(ended, writer, progress)
    }

    fn clear(&mut self) -> Result<bool, Error> {
        self.files.clear()
    }
}

impl Moving {
    fn moved(&self) -> GitMoved {
        let (from, to) = self.a_move.commits;
        let branch = match &self.a_move.head.1 {
            Target::Symbolic(name) => Some(short_name(name)),
            Target::Id(_) => None,
        };
        let hex = |id: Option<GitId>| id.map(|id| id.to_string());
        let uncommitted = self.uncommitted.clone();
        GitMoved { branch, from: hex(from), to: hex(to), files: self.files, folder: false, uncommitted }
    }
}

impl CheckpointManager {
    /// Plans a rollback's changes to the repository; `None` if not requested.
    fn plan_git(
        &self,
        workspace: &Workspace,
        request: &Request<'_>,
        id: RollbackId,
        progress: &dyn Progress,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<GitPlan>, Error> {
        let Request { verb, to, options, .. } = request;
        let by_name = options.parts.contains(&PartKind::Git);
        let folder = folder_part(to, workspace.id).filter(|_| by_name);
        let files = options.wants(PartKind::Files);
        let mut uncommitted = None;
        let (a_move, files) = match verb {
            Verb::Undo | Verb::Redo => match (self.plan_git_answer(workspace, to, warnings)?, folder) {
                (Some(answer), _) => answer,
                (None, Some(folder)) => return Ok(Some(self.plan_folder(workspace, to, folder, files))),
                (None, None) => return Ok(None),
            },
            _ if by_name => {
                if let Some(folder) = folder {
                    return match Self::whole_repository(workspace) {
                        Err(error @ Error::Git(GitError::UnderWay { .. })) => Err(error),
                        // One that is gone, or cannot be read, has nothing that could be lost.
                        _ => Ok(Some(self.plan_folder(workspace, to, folder, files))),
                    };
                }
                let repository = Self::whole_repository(workspace)?;
                let (head, index) = self.noted(to, workspace.id)?;
                uncommitted = counted(&repository.changes(progress)?);
                (repository.plan_return(&head, index)?, files)
            }
            _ if options.git != GitReset::No => {
                let repository = Self::whole_repository(workspace)?;
                let commit = to.commit_sha.as_deref().and_then(|sha| sha.parse().ok());
                let head = match commit {
                    Some(commit) => Head::Detached { commit },
                    None => self.noted(to, workspace.id)?.0,
                };
                uncommitted = counted(&repository.changes(progress)?);
                let a_move = match head.commit() {
                    Some(commit) => repository.plan_reset(commit)?,
                    None => repository.plan_return(&head, None)?,
                };
                (a_move, options.git == GitReset::Hard)
            }
            _ => return Ok(None),
        };
        let why = format!("safepoint: {verb} {id}");
        let workspace = workspace.clone();
        let moving = Moving { workspace, a_move, files, uncommitted, why, seconds: self.seconds() };
        Ok(Some(GitPlan::Move(Box::new(moving))))
    }

    fn plan_folder(
        &self,
        workspace: &Workspace,
        to: &Checkpoint,
        folder: &PartRecord,
        files: bool,
    ) -> GitPlan {
        let then = self.noted(to, workspace.id).ok().map(|(head, _)| head);
        let now = Repository::around(workspace.root_path()).ok().flatten();
        let now = now.and_then(|repository| repository.head().ok());
        let commit = |head: &Option<Head>| Some(head.as_ref()?.commit()?.to_string());
        let branch = then.as_ref().and_then(Head::branch).map(short_name);
        let moved = GitMoved {
            branch,
            from: commit(&now),
            to: commit(&then),
            files,
            folder: true,
            uncommitted: None,
        };
        GitPlan::Folder(folder.document, moved)
    }

    /// The repository, if all of it is the workspace's and no operation is under way in it.
    fn whole_repository(workspace: &Workspace) -> Result<Repository, Error> {
        let repository = Self::repository(workspace)?;
        if !repository.prefix().is_root() {
            return Err(Error::PartOfRepository { top: repository.top().to_owned() });
        }
        match repository.operation()? {
            Some(operation) => Err(GitError::UnderWay { operation }.into()),
            None => Ok(repository),
        }
    }

    /// Returns the recorded HEAD and index of a checkpoint.
    pub(crate) fn noted(
        &self,
        checkpoint: &Checkpoint,
        workspace: WorkspaceId,
    ) -> Result<(Head, Option<Vec<u8>>), Error> {
        let part = git_part(checkpoint, workspace).ok_or(Error::NoGitState { checkpoint: checkpoint.id })?;
        let document = GitDocument::load(&self.store, part.document)?;
        let damaged = |what: &str| ObjectError::Damaged { id: part.document, what: what.to_owned() };
        let commit = document.commit.as_deref().map(str::parse::<GitId>).transpose();
        let commit = commit.map_err(|_| damaged("its commit has no name"))?;
        let head = match (document.head, commit) {
            (GitTarget::Ref(name), Some(commit)) => Head::Branch { name, commit },
            (GitTarget::Ref(name), None) => Head::Unborn { name },
            (GitTarget::Id(_), Some(commit)) => Head::Detached { commit },
            (GitTarget::Id(_), None) => return Err(damaged("HEAD is nowhere").into()),
        };
        Ok((head, document.index.map(|kept| bytes_of(&self.store, kept)).transpose()?))
    }

    /// Plans an undo of the rollback's moves, unless git has moved since.
    fn plan_git_answer(
        &self,
        workspace: &Workspace,
        safety: &Checkpoint,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<(Move, bool)>, Error> {
        let Some(moves) = self.moves_of(safety, workspace.id)? else { return Ok(None) };
        let repository = Self::repository(workspace)?;
        match repository.plan_undo(&read_move(&self.store, &moves)?)? {
            Some(a_move) => Ok(Some((a_move, moves.files))),
            None => {
                warnings.push(Warning::GitMovedSinceRollback);
                Ok(None)
            }
        }
    }

    /// Repository moves of a rollback from its safety checkpoint.
    fn moves_of(&self, safety: &Checkpoint, workspace: WorkspaceId) -> Result<Option<GitMove>, Error> {
        let Some(part) = git_part(safety, workspace) else { return Ok(None) };
        Ok(GitDocument::load(&self.store, part.document)?.moves)
    }

    /// Returns a warning if HEAD is not where it was when the checkpoint was taken.
    pub(crate) fn git_moved_since(&self, workspace: &Workspace, checkpoint: &Checkpoint) -> Option<Warning> {
        let (then, _) = self.noted(checkpoint, workspace.id).ok()?;
        let now = Repository::around(workspace.root_path()).ok()??.head().ok()?;
        (then != now).then(|| Warning::GitMovedSinceCheckpoint { then: place(&then), now: place(&now) })
    }
}

fn left_by_others(refs: Vec<String>) -> Option<Warning> {
    (!refs.is_empty()).then_some(Warning::GitMovedByOthers { refs })
}

fn place(head: &Head) -> GitPlace {
    match head {
        Head::Branch { name, commit } => GitPlace::Branch { name: short_name(name), commit: commit.short() },
        Head::Unborn { name } => GitPlace::Unborn { name: short_name(name) },
        Head::Detached { commit } => GitPlace::Detached { commit: commit.short() },
    }
}

fn counted(changes: &Changes) -> Option<String> {
    let counts =
        [(changes.staged, "staged"), (changes.modified, "modified"), (changes.untracked, "untracked")];
    let named: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    (!changes.is_empty()).then(|| named.join(", "))
}

/// HEAD, refs, index and operation.
type State = (Head, GitRefs, Option<Vec<u8>>, Option<String>);

fn read_state(repository: &Repository) -> Result<State, GitError> {
    let refs = repository.refs()?.into_iter().map(|(name, target)| (name, kept_target(&target))).collect();
    let operation = repository.operation()?.map(|operation| operation.to_string());
    Ok((repository.head()?, refs, repository.index_bytes()?, operation))
}

fn keep_state(
    writer: &Writer<'_>,
    repository: &Repository,
    (head, refs, index, operation): State,
    moving: Option<&Moving>,
) -> Result<ObjectId, Error> {
    let document = GitDocument {
        format: GitDocument::FORMAT,
        object_format: repository.object_format().to_owned(),
        commit: head.commit().map(|commit| commit.to_string()),
        head: match head {
            Head::Branch { name, .. } | Head::Unborn { name } => GitTarget::Ref(name),
            Head::Detached { commit } => GitTarget::Id(commit.to_string()),
        },
        refs: document::store(writer, &refs)?,
        index: keep_bytes(writer, index.as_deref())?,
        operation,
        moves: moving.map(|moving| keep_move(writer, moving)).transpose()?,
    };
    Ok(document::store(writer, &document)?)
}

fn keep_move(writer: &Writer<'_>, moving: &Moving) -> Result<GitMove, Error> {
    let Move { head, branch, index, .. } = &moving.a_move;
    let hex = |id: &Option<GitId>| id.map(|id| id.to_string());
    Ok(GitMove {
        head: (kept_target(&head.0), kept_target(&head.1)),
        branch: branch.as_ref().map(|(name, old, new)| (name.clone(), hex(old), hex(new))),
        index: (keep_bytes(writer, index.0.as_deref())?, keep_bytes(writer, index.1.as_deref())?),
        files: moving.files,
    })
}

fn read_move(source: &dyn ObjectSource, kept: &GitMove) -> Result<Move, Error> {
    let wrong = |_| Error::Git(GitError::NoCommit { id: "without a name".to_owned() });
    let id = |text: &Option<String>| text.as_deref().map(str::parse::<GitId>).transpose().map_err(wrong);
    let target = |kept: &GitTarget| -> Result<Target, Error> {
        Ok(match kept {
            GitTarget::Id(text) => Target::Id(text.parse().map_err(wrong)?),
            GitTarget::Ref(name) => Target::Symbolic(name.clone()),
        })
    };
    let branch = match &kept.branch {
        Some((name, old, new)) => Some((name.clone(), id(old)?, id(new)?)),
        None => None,
    };
    let bytes = |kept: Option<KeptBytes>| kept.map(|kept| bytes_of(source, kept)).transpose();
    Ok(Move {
        head: (target(&kept.head.0)?, target(&kept.head.1)?),
        branch,
        index: (bytes(kept.index.0)?, bytes(kept.index.1)?),
        commits: (None, None),
    })
}

fn kept_target(target: &Target) -> GitTarget {
    match target {
        Target::Id(id) => GitTarget::Id(id.to_string()),
        Target::Symbolic(name) => GitTarget::Ref(name.clone()),
    }
}

fn keep_bytes(writer: &Writer<'_>, bytes: Option<&[u8]>) -> Result<Option<KeptBytes>, Error> {
    let Some(mut bytes) = bytes else { return Ok(None) };
    Ok(Some(writer.put_content(bytes.len() as u64, &mut bytes)?.into()))
}

fn bytes_of(source: &dyn ObjectSource, kept: KeptBytes) -> Result<Vec<u8>, ObjectError> {
    let mut bytes = Vec::new();
    Content::from(kept).read::<ObjectError>(source, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}
