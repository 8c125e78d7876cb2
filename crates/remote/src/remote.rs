//! Remote: records and bytes of one project, together.
//!
//! In: pushes whose packs are files. Out: published checkpoints. The order is the protocol: every PUT is
//! answered, then the one statement that publishes. A crash in between leaves uploads that no row names;
//! the same push again completes it.

use crate::RemoteError;
use crate::address::{BytesPlace, BytesUrl, RecordsUrl};
use crate::bytes::RemoteBytes;
use crate::document::{LineState, PackInfo, Push, PushDocument, PushedCheckpoint};
use crate::environment::RemoteEnvironment;
use crate::folder::FolderBytes;
use crate::name::{Digest, Fence, PackName, ProjectName};
use crate::objects::ObjectBytes;
use crate::postgres::PostgresRecords;
use crate::postgres::link::Patience;
use crate::records::{
    LiveLease, NewLine, PublishCall, PublishedRow, RecordsStatus, RemoteCheckpoint, RemoteFilter, RemoteLine,
    RemoteRecords, Renewal, ReplacedRow, TakeoverCall,
};
use crate::runtime::Network;
use crate::seal::Seal;
use safepoint_model::{CheckpointId, LineId, ObjectId, Progress, WorkspaceId};
use safepoint_planted::planted;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Records and bytes of a project.
pub struct Remote {
    pub(crate) project: ProjectName,
    pub(crate) records: Box<dyn RemoteRecords>,
    pub(crate) bytes: Box<dyn RemoteBytes>,
    pub(crate) seal: Option<Seal>,
}

/// Places and keys of a remote.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Project.
    pub project: ProjectName,
    /// Address of the records.
    pub records: RecordsUrl,
    /// Address of the bytes.
    pub bytes: BytesUrl,
    /// Keys, if the remote is encrypted.
    pub seal: Option<Seal>,
    /// Limit of time for all attempts of one request to the records.
    pub patience: Duration,
}

impl RemoteOptions {
    /// Creates options without encryption.
    pub fn new(project: ProjectName, records: RecordsUrl, bytes: BytesUrl) -> Self {
        Self { project, records, bytes, seal: None, patience: Duration::from_secs(30) }
    }
}

/// Treatment of packs of a project that has no records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingPacks {
    /// The project is not created.
    Refused,
    /// The project is created; a rebuild restores its records.
    Expected,
}

/// Random access to the plain bytes of a pack.
pub trait PackSource {
    /// Returns the length.
    fn bytes(&self) -> u64;

    /// Returns `len` bytes from `at` on.
    ///
    /// # Errors
    /// When the pack cannot be read.
    fn read_at(&self, at: u64, len: u64) -> Result<Vec<u8>, RemoteError>;
}

/// Creator of an empty file for the plain bytes of an encrypted pack.
pub type Scratch<'a> = &'a dyn Fn() -> io::Result<File>;

impl Remote {
    /// Opens a remote. Nothing is sent before the first request.
    ///
    /// # Errors
    /// When an address or a file with credentials cannot be used.
    pub fn open(options: &RemoteOptions, environment: &RemoteEnvironment) -> Result<Self, RemoteError> {
        let network = Network::start()?;
        let RemoteOptions { project, records, bytes, seal, patience } = options;
        let limits = Patience { statement: *patience, all: *patience };
        let records =
            PostgresRecords::open_with(records, project.clone(), environment, network.clone(), limits)?;
        let bytes: Box<dyn RemoteBytes> = match &bytes.place {
            BytesPlace::Folder(folder) => Box::new(FolderBytes::new(folder)),
            _ => Box::new(ObjectBytes::open_with(bytes, environment, network)?),
        };
        Ok(Self::from_parts(project.clone(), Box::new(records), bytes, seal.clone()))
    }

    /// Creates or updates the schema, and the project if it is missing. Returns the number of applied
    /// migrations. Connects directly, not through a pooler.
    ///
    /// # Errors
    /// [`RemoteError::NotEmpty`] if the object store has packs of a project that the records lack, unless they are
    /// expected: then run [`Remote::rebuild`] next.
    pub fn init(
        options: &RemoteOptions,
        environment: &RemoteEnvironment,
        packs: ExistingPacks,
    ) -> Result<usize, RemoteError> {
        let remote = Self::open(options, environment)?;
        let records = PostgresRecords::open(&options.records, options.project.clone(), environment)?;
        let applied = records.migrate()?;
        if !matches!(remote.status(), Err(RemoteError::NoProject { .. })) {
            return Ok(applied);
        }
        if packs == ExistingPacks::Refused && !remote.bytes.list(&format!("{}/", options.project))?.is_empty()
        {
            return Err(RemoteError::NotEmpty { project: options.project.to_string() });
        }
        records.create_project()?;
        Ok(applied)
    }

    /// Updates the schema, and returns the number of applied migrations.
    ///
    /// # Errors
    /// When the role lacks a right, or a migration fails; then the schema is unchanged.
    pub fn migrate(options: &RemoteOptions, environment: &RemoteEnvironment) -> Result<usize, RemoteError> {
        PostgresRecords::open(&options.records, options.project.clone(), environment)?.migrate()
    }

    /// Combines the two halves.
    pub fn from_parts(
        project: ProjectName,
        records: Box<dyn RemoteRecords>,
        bytes: Box<dyn RemoteBytes>,
        seal: Option<Seal>,
    ) -> Self {
        Self { project, records, bytes, seal }
    }

    /// Project.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }

    /// Records, for rights, policies and members.
    pub fn records(&self) -> &dyn RemoteRecords {
        &*self.records
    }

    /// Object store, for checks.
    pub fn bytes(&self) -> &dyn RemoteBytes {
        &*self.bytes
    }

    /// Returns the state of the records.
    ///
    /// # Errors
    /// When they cannot be reached or used.
    pub fn status(&self) -> Result<RecordsStatus, RemoteError> {
        self.records.status()
    }

    /// Returns the key under which the records know a plan: its id, or a keyed hash.
    pub fn plan_key(&self, plan: &str) -> String {
        self.seal.as_ref().map_or_else(|| plan.to_owned(), |seal| seal.keyed_text(plan))
    }

    /// Returns the id under which the records know a record document.
    pub fn record_key(&self, record: ObjectId) -> Digest {
        let plain = Digest::from_bytes(*record.as_bytes());
        self.seal.as_ref().map_or(plain, |seal| seal.keyed(plain))
    }

    /// Begins a line for a workspace, or for a plan in it. `line` is a new random id; the same call again
    /// has the same result.
    ///
    /// # Errors
    /// When the records refuse it, or cannot be reached.
    pub fn begin_line(
        &self,
        line: LineId,
        workspace: WorkspaceId,
        plan: Option<&str>,
        holder: &str,
    ) -> Result<LineState, RemoteError> {
        let request = Digest::from_bytes(blake3::hash(format!("begin {line}").as_bytes()).into());
        let plan = plan.map(|plan| self.plan_key(plan));
        self.records.begin_line(&NewLine { line, workspace, plan, holder: holder.to_owned(), request })
    }

    /// Finishes a pack: encrypts it if the remote is encrypted, and names it. `plain` is a pack of the store
    /// with one segment; the finished file is what gets uploaded, and must be kept until it is published.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn finish_pack(
        &self,
        document: &PushDocument,
        plain: &mut dyn Read,
        objects: u64,
        (out, path): (&mut File, &Path),
    ) -> Result<PackInfo, RemoteError> {
        let local = |source| RemoteError::Local { path: path.to_owned(), source };
        match &self.seal {
            Some(seal) => seal.encrypt(plain, out).map_err(local)?,
            None => io::copy(plain, out).map(|_| ()).map_err(local)?,
        }
        out.flush().map_err(local)?;
        let (hash, bytes) = hash_of(out).map_err(local)?;
        let PushDocument { project, line, token, seq, .. } = document;
        let hash = if planted!("remote-reused-name") { Digest::NONE } else { hash };
        let name = PackName { project: project.clone(), line: *line, token: *token, seq: *seq, hash };
        Ok(PackInfo { name, bytes, objects })
    }

    /// Creates the push of a document whose packs are finished. `last` holds the document.
    ///
    /// # Errors
    /// When the list is too long.
    pub fn prepare(&self, document: PushDocument, last: PackInfo) -> Result<Push, RemoteError> {
        let packs = document.kept.len() + document.earlier.len() + 1;
        if packs > PushDocument::PACKS_MAX {
            return Err(RemoteError::TooManyPacks { packs, max: PushDocument::PACKS_MAX });
        }
        Push::new(document, last, self.seal.as_ref())
            .map_err(|error| RemoteError::damaged("the push", error.to_string()))
    }

    /// Uploads the packs of a push, publishes it, and returns the new state of the line. `files` are the
    /// finished packs in the order of [`Push::new`]. May be called again with the same push after any error or crash.
    ///
    /// # Errors
    /// See [`RemoteRecords::publish`]; or an upload failed.
    pub fn push(
        &self,
        push: &Push,
        files: &[&File],
        progress: &dyn Progress,
    ) -> Result<LineState, RemoteError> {
        if planted!("remote-publish-before-put") {
            self.publish(push)?;
            self.upload(push, files, progress)?;
            return Ok(push.state());
        }
        self.upload(push, files, progress)?;
        self.publish(push)?;
        Ok(push.state())
    }

    fn upload(&self, push: &Push, files: &[&File], progress: &dyn Progress) -> Result<(), RemoteError> {
        if files.len() != push.new.len() {
            return Err(RemoteError::damaged("the push", "the number of its files is wrong"));
        }
        for (pack, file) in push.new.iter().zip(files) {
            if progress.interrupted() {
                return Err(RemoteError::Interrupted);
            }
            let name = pack.name.to_string();
            let mut reader: &File = file;
            let (hash, bytes) = hash_of(&mut reader)
                .map_err(|error| RemoteError::damaged(name.clone(), error.to_string()))?;
            if (hash != pack.name.hash && !planted!("remote-reused-name")) || bytes != pack.bytes {
                return Err(RemoteError::damaged(
                    format!("the file of the pack {name}"),
                    "it has other bytes",
                ));
            }
            self.bytes.put(&name, file, bytes, progress)?;
        }
        Ok(())
    }

    fn row(&self, checkpoint: &PushedCheckpoint) -> Result<PublishedRow, RemoteError> {
        let fields = match &self.seal {
            Some(seal) => seal.seal_fields(&checkpoint.fields)?,
            None => checkpoint.fields.clone(),
        };
        let record = self.record_key(checkpoint.record);
        Ok(PublishedRow { id: checkpoint.id, record, pinned: checkpoint.pinned, fields })
    }

    /// Returns the rows of a push as the records see them.
    pub(crate) fn rows(
        &self,
        document: &PushDocument,
    ) -> Result<(Vec<PublishedRow>, Vec<ReplacedRow>), RemoteError> {
        let rows =
            document.checkpoints.iter().map(|checkpoint| self.row(checkpoint)).collect::<Result<_, _>>()?;
        let replaced = document.replaced.iter().map(|replaced| {
            let row = self.row(&replaced.checkpoint)?;
            Ok(ReplacedRow { line: replaced.line, seq: replaced.seq, n: replaced.n, row })
        });
        Ok((rows, replaced.collect::<Result<_, RemoteError>>()?))
    }

    fn publish(&self, push: &Push) -> Result<(), RemoteError> {
        let document = &push.document;
        let (checkpoints, replaced) = self.rows(document)?;
        self.records.publish(&PublishCall {
            incarnation: document.incarnation,
            line: document.line,
            token: document.token,
            base_seq: document.seq.saturating_sub(1),
            base_chain: document.before,
            chain: push.chain,
            request: push.request,
            kept: document.kept.iter().map(|pack| pack.name.clone()).collect(),
            new: push.new.clone(),
            whole: document.whole,
            checkpoints,
            replaced,
        })
    }

    /// Renews the lease of a line.
    ///
    /// # Errors
    /// [`RemoteError::Fenced`], or the records cannot be reached.
    pub fn renew(&self, state: &LineState) -> Result<Renewal, RemoteError> {
        self.records.renew(Fence { line: state.line, token: state.token })
    }

    /// Ends a lease early.
    ///
    /// # Errors
    /// When the records cannot be reached.
    pub fn release(&self, state: &LineState) -> Result<(), RemoteError> {
        self.records.release(Fence { line: state.line, token: state.token })
    }

    /// Takes over a line. `nonce` is random; the same call again has the same result.
    ///
    /// # Errors
    /// [`RemoteError::Live`], or the records cannot be reached.
    pub fn take_over(
        &self,
        line: LineId,
        holder: &str,
        nonce: u128,
        lease: LiveLease,
    ) -> Result<LineState, RemoteError> {
        let request = takeover_request(line, nonce);
        let holder = holder.to_owned();
        self.records.take_over(&TakeoverCall { line, holder, request, lease, only_chain: None })
    }

    /// Takes a line over again whose token was superseded, if its head is still the one that this writer
    /// published and no other writer holds it: after a rebuild, or a long silence.
    ///
    /// # Errors
    /// [`RemoteError::Fenced`] if another writer went on; [`RemoteError::Live`]; or the records cannot be reached.
    pub fn regain(&self, state: &LineState, holder: &str, nonce: u128) -> Result<LineState, RemoteError> {
        let request = takeover_request(state.line, nonce);
        self.records.take_over(&TakeoverCall {
            line: state.line,
            holder: holder.to_owned(),
            request,
            lease: LiveLease::Respected,
            only_chain: Some(state.chain),
        })
    }

    /// Lists lines.
    ///
    /// # Errors
    /// When the records cannot be reached.
    pub fn lines(
        &self,
        workspace: Option<WorkspaceId>,
        plan: Option<&str>,
    ) -> Result<Vec<RemoteLine>, RemoteError> {
        let plan = plan.map(|plan| self.plan_key(plan));
        self.records.lines(workspace, plan.as_deref())
    }

    /// Lists checkpoints, without their packs.
    ///
    /// # Errors
    /// When the records cannot be reached, or fields cannot be decrypted.
    pub fn checkpoints(&self, filter: &RemoteFilter) -> Result<Vec<RemoteCheckpoint>, RemoteError> {
        let plan = filter.plan.as_deref().map(|plan| self.plan_key(plan));
        let found = self.records.checkpoints(&RemoteFilter { plan, ..filter.clone() })?;
        found.into_iter().map(|checkpoint| self.opened(checkpoint)).collect()
    }

    /// Returns a checkpoint with its packs.
    ///
    /// # Errors
    /// [`RemoteError::NoCheckpoint`], or the records cannot be reached.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<RemoteCheckpoint, RemoteError> {
        let found = self.records.checkpoint(id)?.ok_or(RemoteError::NoCheckpoint { checkpoint: id })?;
        self.opened(found)
    }

    pub(crate) fn opened(&self, checkpoint: RemoteCheckpoint) -> Result<RemoteCheckpoint, RemoteError> {
        match &self.seal {
            Some(seal) => {
                Ok(RemoteCheckpoint { fields: seal.open_fields(&checkpoint.fields)?, ..checkpoint })
            }
            None => Ok(checkpoint),
        }
    }

    /// Writes the plain bytes of a pack to an empty file, after checking the hash of the download.
    ///
    /// # Errors
    /// When the pack is missing or damaged, or the file cannot be written.
    pub fn download(
        &self,
        pack: &PackInfo,
        out: &mut File,
        scratch: Scratch<'_>,
        progress: &dyn Progress,
    ) -> Result<u64, RemoteError> {
        let name = pack.name.to_string();
        let Some(seal) = &self.seal else { return self.fetch(pack, &name, out, progress) };
        let local = |source| RemoteError::Local { path: "a temporary file".into(), source };
        let mut sealed = scratch().map_err(local)?;
        self.fetch(pack, &name, &mut sealed, progress)?;
        sealed.rewind().map_err(local)?;
        seal.decrypt(&format!("the pack {name}"), &mut sealed, out)
    }

    fn fetch(
        &self,
        pack: &PackInfo,
        name: &str,
        out: &mut File,
        progress: &dyn Progress,
    ) -> Result<u64, RemoteError> {
        let mut hashing = Hashing { out, hasher: blake3::Hasher::new() };
        let bytes = self.bytes.download(name, &mut hashing, progress)?;
        let hash = Digest::from_bytes(hashing.hasher.finalize().into());
        if (hash != pack.name.hash && !planted!("remote-reused-name")) || bytes != pack.bytes {
            return Err(RemoteError::damaged(format!("the pack {name}"), "its bytes do not have its hash"));
        }
        Ok(bytes)
    }

    /// Opens a pack for reading parts of it. An encrypted one is downloaded to a scratch file. Bytes are not
    /// verified: every object must be checked against its id.
    ///
    /// # Errors
    /// When an encrypted pack cannot be downloaded or decrypted.
    pub fn open_pack(
        &self,
        pack: &PackInfo,
        scratch: Scratch<'_>,
    ) -> Result<Box<dyn PackSource + '_>, RemoteError> {
        if self.seal.is_none() {
            let (name, bytes) = (pack.name.to_string(), pack.bytes);
            return Ok(Box::new(Ranged { bytes_of: &*self.bytes, name, bytes }));
        }
        let mut plain =
            scratch().map_err(|source| RemoteError::Local { path: "a temporary file".into(), source })?;
        let bytes = self.download(pack, &mut plain, scratch, &safepoint_model::progress::Silent)?;
        Ok(Box::new(Unsealed { file: plain, name: pack.name.to_string(), bytes }))
    }
}

fn takeover_request(line: LineId, nonce: u128) -> Digest {
    Digest::from_bytes(blake3::hash(format!("takeover {line} {nonce:032x}").as_bytes()).into())
}

struct Hashing<'a> {
    out: &'a mut File,
    hasher: blake3::Hasher,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the hash and the length of a file, from its beginning.
fn hash_of(file: &mut (impl Read + Seek)) -> io::Result<(Digest, u64)> {
    file.rewind()?;
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((Digest::from_bytes(hasher.finalize().into()), bytes));
        }
        hasher.update(&block[..read]);
        bytes += read as u64;
    }
}

struct Ranged<'r> {
    bytes_of: &'r dyn RemoteBytes,
    name: String,
    bytes: u64,
}

impl PackSource for Ranged<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, len: u64) -> Result<Vec<u8>, RemoteError> {
        let bytes = self.bytes_of.get(&self.name, at..at + len)?;
        match bytes.len() as u64 == len {
            true => Ok(bytes),
            false => Err(RemoteError::damaged(format!("the pack {}", self.name), "it is too short")),
        }
    }
}

struct Unsealed {
    file: File,
    name: String,
    bytes: u64,
}

impl PackSource for Unsealed {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, len: u64) -> Result<Vec<u8>, RemoteError> {
        let short = |_| RemoteError::damaged(format!("the pack {}", self.name), "it is too short");
        if at + len > self.bytes {
            return Err(RemoteError::damaged(format!("the pack {}", self.name), "it is too short"));
        }
        let mut bytes =
            vec![0; usize::try_from(len).map_err(|_| RemoteError::damaged("a range", "it is too long"))?];
        self.file.read_exact_at(&mut bytes, at).map_err(short)?;
        Ok(bytes)
    }
}
