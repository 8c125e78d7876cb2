//! REMOTES: checkpoints that outlive the machine. Joins store and catalog with the protocol of `safepoint-remote`.
//!
//! In: configured addresses, and a connection that the program opened with its credentials. Out: published checkpoints,
//! or checkpoints of others in this home. Addresses and states of lines are in the catalog; credentials are nowhere.
//! Data of a remote is hostile: every object is compared with its hash, and a record reaches only its own workspace.

mod care;
pub(crate) mod fetch;
pub(crate) mod gather;
pub(crate) mod lease;
pub(crate) mod leaving;
pub(crate) mod publishable;
mod purge;
pub(crate) mod push;
mod shape;
pub(crate) mod soon;
pub(crate) mod take;

use crate::Error;
use crate::handles::Remotes;
use safepoint_catalog::{PublishedAt, StoredRemote, Workspace};
use safepoint_model::plan::spec::is_slug;
use safepoint_model::{CheckpointId, LineId, ModelError, ObjectError, RelPath, WorkspaceId};
use safepoint_remote::{
    BytesUrl, ProjectName, RecordsUrl, Remote, RemoteCheckpoint, RemoteEnvironment, RemoteError,
    RemoteFilter, RemoteLine, RemoteOptions, Seal,
};
use serde_json::Value;
use std::path::PathBuf;

/// Maximum number of unpublished checkpoints that are counted.
const COUNTED_MAX: u64 = 1_000_000;
/// Rows in a page of a list.
const PAGE: u32 = 1_000;
/// Shortest part of an id that names a checkpoint or a workspace.
const LETTERS_MIN: usize = 4;

/// Addresses of a new remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRemote {
    /// Name.
    pub name: String,
    /// Address of the records.
    pub records: RecordsUrl,
    /// Address of the bytes.
    pub bytes: BytesUrl,
    /// Project.
    pub project: ProjectName,
    /// File with the age identity, if the remote is encrypted.
    pub identity: Option<PathBuf>,
}

/// Position of a workspace on a remote, as this machine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineStanding {
    /// Line that the workspace publishes to; `None` before the first push.
    pub line: Option<LineId>,
    /// Sequence number of the last push.
    pub seq: u64,
    /// Published checkpoints of the workspace that are also here, oldest first.
    pub published: Vec<PublishedAt>,
    /// Number of checkpoints that are still to be published.
    pub unpublished: u64,
    /// True if a push was begun and not completed.
    pub pending: bool,
    /// Purged paths that published checkpoints may still hold: the next push delivers the purge.
    pub purges: Vec<RelPath>,
}

impl Remotes<'_> {
    /// Stores the addresses of a remote. Nothing is sent.
    ///
    /// # Errors
    /// When the name is invalid or taken, or the catalog fails.
    pub fn add(&self, new: &NewRemote) -> Result<StoredRemote, Error> {
        if !is_slug(&new.name) {
            let why = format!(
                "{:?} must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit",
                new.name
            );
            return Err(ModelError::Value { what: "name of the remote", why }.into());
        }
        let remote = StoredRemote {
            name: new.name.clone(),
            project: new.project.to_string(),
            records: new.records.to_string(),
            bytes: new.bytes.to_string(),
            identity: new.identity.clone(),
            added_at: self.manager.environment.now(),
        };
        self.manager.catalog.write::<(), Error>(|transaction| Ok(transaction.insert_remote(&remote)?))?;
        Ok(remote)
    }

    /// Returns all remotes by name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self) -> Result<Vec<StoredRemote>, Error> {
        Ok(self.manager.catalog.remotes()?)
    }

    /// Returns the remote with this name; without a name the only one.
    ///
    /// # Errors
    /// [`Error::NoRemote`], [`Error::SeveralRemotes`], or the catalog cannot be read.
    pub fn get(&self, name: Option<&str>) -> Result<StoredRemote, Error> {
        if let Some(name) = name {
            let missing = || Error::NoRemote { name: Some(name.to_owned()) };
            return self.manager.catalog.remote(name)?.ok_or_else(missing);
        }
        let mut all = self.list()?;
        match all.len() {
            0 => Err(Error::NoRemote { name: None }),
            1 => Ok(all.remove(0)),
            _ => Err(Error::SeveralRemotes { names: all.into_iter().map(|remote| remote.name).collect() }),
        }
    }

    /// Forgets a remote, and what was published to it. The remote itself is unchanged.
    ///
    /// # Errors
    /// [`Error::NoRemote`], or the catalog fails.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.get(Some(name))?;
        for workspace in self.manager.workspaces().list()? {
            self.manager.home.clear_outbox(name, workspace.id);
        }
        let at = self.manager.environment.now();
        self.manager.catalog.write(|transaction| Ok(transaction.remove_remote(name, at)?))
    }

    /// Returns the options to open a remote with. `identity` is the content of its identity file.
    ///
    /// # Errors
    /// When an address or the identity cannot be used.
    pub fn options(&self, stored: &StoredRemote, identity: Option<&str>) -> Result<RemoteOptions, Error> {
        let (records, bytes, project) =
            (stored.records.parse()?, stored.bytes.parse()?, stored.project.parse()?);
        let mut options = RemoteOptions::new(project, records, bytes);
        options.seal = identity.map(|text| Seal::read(text, &[])).transpose()?;
        Ok(options)
    }

    /// Opens a remote. Nothing is sent before the first request.
    ///
    /// # Errors
    /// When an address or a file with credentials cannot be used.
    pub fn open(&self, options: &RemoteOptions, environment: &RemoteEnvironment) -> Result<Remote, Error> {
        Ok(Remote::open(options, environment)?)
    }

    /// Returns the position of a workspace on a remote, as this machine knows it. Nothing is sent.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn standing(&self, name: &str, workspace: &Workspace) -> Result<LineStanding, Error> {
        let catalog = &self.manager.catalog;
        let stored = catalog.remote_line(name, workspace.id)?;
        let state = stored.as_ref().and_then(|line| line.state.as_ref());
        Ok(LineStanding {
            line: stored.as_ref().filter(|line| line.state.is_some()).map(|line| line.line),
            seq: state.and_then(|state| state.get("seq")).and_then(Value::as_u64).unwrap_or(0),
            published: catalog.published(name, workspace.id)?,
            unpublished: catalog.unpublished(name, workspace.id, COUNTED_MAX)?.len() as u64,
            pending: stored.as_ref().is_some_and(|line| line.pending.is_some()),
            purges: catalog
                .remote_purges(name, workspace.id)?
                .into_iter()
                .flat_map(|(_, paths)| paths)
                .collect(),
        })
    }

    /// Returns the published checkpoints of a workspace, or of all, in the order of their publication, newest first.
    ///
    /// # Errors
    /// When the remote cannot be reached.
    pub fn published(
        &self,
        remote: &Remote,
        workspace: Option<&Workspace>,
    ) -> Result<Vec<RemoteCheckpoint>, Error> {
        let mut all = all_of(remote, workspace.map(|workspace| workspace.id))?;
        all.sort_by_key(|it| std::cmp::Reverse((it.published_at, it.line, it.seq, it.n)));
        Ok(all)
    }

    /// Returns the newest checkpoint of each line.
    ///
    /// # Errors
    /// When the remote cannot be reached.
    pub fn heads(&self, remote: &Remote) -> Result<Vec<RemoteCheckpoint>, Error> {
        heads(remote, None)
    }

    /// Finds a published checkpoint by `WORKSPACE[@CHECKPOINT]`: a name or an id of the workspace, and an id or a label of the checkpoint.
    /// Without a checkpoint it is the one that was published last.
    ///
    /// # Errors
    /// When none or several fit, or the remote cannot be reached.
    pub fn find(&self, remote: &Remote, text: &str) -> Result<RemoteCheckpoint, Error> {
        let (workspace, wanted) = match text.rsplit_once('@') {
            Some((workspace, wanted)) if !wanted.is_empty() => (workspace, Some(wanted)),
            Some((workspace, _)) => (workspace, None),
            None => (text, None),
        };
        let heads = heads(remote, None)?;
        let workspace = one_workspace(&heads, workspace)?;
        let id = match wanted {
            Some(wanted) => one_checkpoint(&all_of(remote, Some(workspace))?, wanted)?,
            None => {
                let own = heads.iter().filter(|head| head.workspace == workspace);
                let newest = own.max_by_key(|head| (head.published_at, head.seq));
                newest.map(|head| head.id).ok_or_else(|| not_published(text))?
            }
        };
        Ok(remote.checkpoint(id)?)
    }

    /// Returns the checkpoint of a workspace that was published last to a line that this home does not publish to, or to this line; with
    /// its line.
    ///
    /// # Errors
    /// When the remote cannot be reached.
    pub fn newest_elsewhere(
        &self,
        (name, remote): (&str, &Remote),
        workspace: &Workspace,
        line: Option<LineId>,
    ) -> Result<Option<(RemoteCheckpoint, Option<RemoteLine>)>, Error> {
        let own = self.manager.catalog.remote_line(name, workspace.id)?.map(|stored| stored.line);
        let heads = heads(remote, Some(workspace.id))?;
        let wanted = |head: &&RemoteCheckpoint| match line {
            Some(line) => head.line == line,
            None => own != Some(head.line),
        };
        let newest = heads.iter().filter(wanted).max_by_key(|head| (head.published_at, head.seq));
        let Some(newest) = newest else { return Ok(None) };
        let lines = remote.lines(Some(workspace.id), None)?;
        let line = lines.into_iter().find(|line| line.line == newest.line);
        Ok(Some((remote.checkpoint(newest.id)?, line)))
    }
}

/// Returns the newest checkpoint of each line, or of each line of a workspace. After a purge the head of a line is older than its last
/// push, and the list of heads lacks it.
fn heads(remote: &Remote, workspace: Option<WorkspaceId>) -> Result<Vec<RemoteCheckpoint>, Error> {
    let mut filter = RemoteFilter::default();
    (filter.only_heads, filter.workspace) = (true, workspace);
    let mut heads = remote.checkpoints(&filter)?;
    for line in remote.lines(workspace, None)? {
        let Some(head) = line.head.filter(|_| !heads.iter().any(|head| head.line == line.line)) else {
            continue;
        };
        match remote.checkpoint(head) {
            Ok(found) => heads.push(found),
            Err(RemoteError::NoCheckpoint { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(heads)
}

/// Returns every published checkpoint, or those of a workspace.
fn all_of(remote: &Remote, workspace: Option<WorkspaceId>) -> Result<Vec<RemoteCheckpoint>, Error> {
    let mut all: Vec<RemoteCheckpoint> = Vec::new();
    loop {
        let mut filter = RemoteFilter::default();
        (filter.workspace, filter.limit) = (workspace, PAGE);
        filter.after = all.last().map(|last| (last.line, last.seq, last.n));
        let page = remote.checkpoints(&filter)?;
        let is_last = page.len() < PAGE as usize;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Returns a text field of a published checkpoint.
fn field<'c>(checkpoint: &'c RemoteCheckpoint, name: &str) -> Option<&'c str> {
    checkpoint.fields.get(name).and_then(Value::as_str)
}

fn not_published(name: &str) -> Error {
    Error::NotPublished { name: name.to_owned() }
}

fn begins(id: &str, text: &str) -> bool {
    text.len() >= LETTERS_MIN && id.starts_with(&text.to_ascii_uppercase())
}

fn one_workspace(heads: &[RemoteCheckpoint], text: &str) -> Result<WorkspaceId, Error> {
    let named = heads.iter().filter(|head| {
        let id = head.workspace.to_string();
        field(head, "workspace") == Some(text) || head.workspace.to_uuid() == text || begins(&id, text)
    });
    let mut found: Vec<WorkspaceId> = named.map(|head| head.workspace).collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Err(not_published(text)),
        [one] => Ok(*one),
        several => Err(Error::SeveralPublished {
            name: text.to_owned(),
            ids: several.iter().map(ToString::to_string).collect(),
        }),
    }
}

fn one_checkpoint(all: &[RemoteCheckpoint], text: &str) -> Result<CheckpointId, Error> {
    let fits = |it: &&RemoteCheckpoint| begins(&it.id.to_string(), text) || it.id.to_uuid() == text;
    let mut found: Vec<CheckpointId> = all.iter().filter(fits).map(|it| it.id).collect();
    if found.is_empty() {
        let labelled = all.iter().filter(|it| field(it, "label") == Some(text));
        found =
            labelled.max_by_key(|it| (it.published_at, it.seq, it.n)).map(|it| it.id).into_iter().collect();
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Err(not_published(text)),
        [one] => Ok(*one),
        several => Err(Error::SeveralPublished {
            name: text.to_owned(),
            ids: several.iter().map(ToString::to_string).collect(),
        }),
    }
}

/// Converts a failure of a pack to one of the remote.
pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Error {
    RemoteError::Damaged { what: what.into(), why: why.into() }.into()
}

/// Converts a failure of an object of a remote.
pub(crate) fn broken(what: &str, error: &ObjectError) -> Error {
    damaged(what, error.to_string())
}
