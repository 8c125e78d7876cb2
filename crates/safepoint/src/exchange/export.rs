//! EXPORT: a checkpoint as a folder. Objects, files, documents, the hash of each; then one rename makes it be there.

mod agents;

use super::fit::plain_key;
use super::naming::{base, candidates, safe};
use super::rows::{AgentRow, ContentRow, EntryRow, FilesState, HashRow, WorkspaceRow, with_lines};
use super::{
    DOCUMENT_BYTES_MAX, ENTRIES, ENTRIES_MAX, FILES, FORMAT, LAYOUT, LIST_BYTES_MAX, LayoutError, METADATA,
    beside, folder_of, folders, git, holes, logs_of, path, state_name, thread,
};
use crate::checkpoint::create::memory_parts;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Catalog, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::content::{Content, Form};
use safepoint_model::files::FilesDocument;
use safepoint_model::outside::OutsideDocument;
use safepoint_model::progress::{Activity, Counted};
use safepoint_model::thread::ThreadDocument;
use safepoint_model::tree::Node;
use safepoint_model::{
    CheckpointId, ModelError, ObjectError, ObjectId, ObjectKind, ObjectSource, Progress, RelPath, change,
    plan,
};
use safepoint_store::Store;
use safepoint_workspace::{Parcel, WorkspaceError};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Layout of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Files as files, everything else as JSON beside them.
    #[default]
    Tree,
}

/// Memory of agents that lies outside of the workspace, in an export of a checkpoint of that workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutsideMemory {
    /// It is left out.
    #[default]
    Omitted,
    /// It is written, too.
    Written,
}

/// A checkpoint that was written as a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Path.
    pub path: PathBuf,
    /// Layout.
    pub layout: Layout,
    /// Checkpoint.
    pub checkpoint: CheckpointId,
    /// Files and links of the workspace that are in it.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Folders outside of the workspace, with the memory of its agents, that were left out.
    pub omitted: u64,
}

impl CheckpointManager {
    /// Writes a checkpoint as a folder of its own into `dir`, which is made where it is missing. Nothing that is there is touched. When
    /// this returns, the folder is whole and durable.
    ///
    /// # Errors
    /// When something of the checkpoint is missing or damaged, the folder cannot be written, or the user interrupts. Nothing is left of
    /// it then.
    pub fn export_checkpoint(
        &self,
        checkpoint: &Checkpoint,
        dir: &Path,
        memory: OutsideMemory,
        progress: &dyn Progress,
    ) -> Result<Exported, Error> {
        let _using = self.store.using()?;
        let written = self.write_layout(checkpoint, dir, memory, progress);
        written.map_err(|error| match error {
            // These concern the checkpoint or the user's interrupt, not the folder.
            Error::Workspace(WorkspaceError::Object(_) | WorkspaceError::Interrupted) => error,
            Error::Workspace(source) => Error::Export { path: dir.to_owned(), source },
            other => other,
        })
    }

    fn write_layout(
        &self,
        checkpoint: &Checkpoint,
        dir: &Path,
        memory: OutsideMemory,
        progress: &dyn Progress,
    ) -> Result<Exported, Error> {
        let workspace = checkpoint.workspace_id.map(|id| self.catalog.workspace(id)).transpose()?.flatten();
        let draft = format!(".unfinished-{}", CheckpointId::from_bits(self.environment.new_id()));
        let parcel = Parcel::begin(dir, checkpoint.scope.as_str(), &draft)?;
        let mut writing = Writing::new(self, &parcel, checkpoint);
        writing.parts(progress)?;
        let outside = memory_parts(checkpoint);
        let omitted = if memory == OutsideMemory::Omitted { outside.len() as u64 } else { 0 };
        for (id, part) in outside.into_iter().filter(|_| memory == OutsideMemory::Written) {
            let root = self.workspaces().get(id)?.root;
            let root = RelPath::new(root.strip_prefix(b"/").unwrap_or(&root))?;
            let tree = FilesDocument::load(&self.store, part.document)?.tree();
            writing.trees.extend(tree.map(|tree| (None, Some(root), tree)));
        }
        writing.agents(progress)?;
        writing.about(workspace.as_ref())?;
        let Writing { files, bytes, .. } = writing;
        if progress.interrupted() {
            return Err(WorkspaceError::Interrupted.into());
        }
        let base = base(checkpoint, workspace.as_ref().map(|workspace| workspace.name.as_str()));
        let path = parcel.finish(candidates(&base, checkpoint))?;
        Ok(Exported { path, layout: Layout::Tree, checkpoint: checkpoint.id, files, bytes, omitted })
    }
}

/// A layout on its way.
struct Writing<'a> {
    catalog: &'a Catalog,
    home: &'a Path,
    store: &'a Store,
    parcel: &'a Parcel,
    checkpoint: &'a Checkpoint,
    hashes: Vec<HashRow>,
    entries: Vec<EntryRow>,
    contents: Vec<ContentRow>,
    states: Vec<FilesState>,
    plans: Vec<Value>,
    agents: Vec<AgentRow>,
    /// For each folder: path of its files in the layout, path on the system, and tree. Memory outside of a workspace
    /// lies with its agents alone.
    trees: Vec<(Option<RelPath>, Option<RelPath>, ObjectId)>,
    names: BTreeSet<RelPath>,
    files: u64,
    bytes: u64,
}

impl<'a> Writing<'a> {
    fn new(manager: &'a CheckpointManager, parcel: &'a Parcel, checkpoint: &'a Checkpoint) -> Self {
        Self {
            catalog: &manager.catalog,
            home: manager.home(),
            store: &manager.store,
            parcel,
            checkpoint,
            hashes: Vec::new(),
            entries: Vec::new(),
            contents: Vec::new(),
            states: Vec::new(),
            plans: Vec::new(),
            agents: Vec::new(),
            trees: Vec::new(),
            names: BTreeSet::new(),
            files: 0,
            bytes: 0,
        }
    }

    /// Everything that the checkpoint holds.
    fn parts(&mut self, progress: &dyn Progress) -> Result<(), Error> {
        let checkpoint = self.checkpoint;
        for folder in folders(checkpoint.scope) {
            self.parcel.folder(&path(folder))?;
        }
        let outside: Vec<&PartRecord> = memory_parts(checkpoint).into_iter().map(|(_, part)| part).collect();
        let is_files = |part: &&PartRecord| part.kind == PartKind::Files && !outside.contains(part);
        let several = checkpoint.parts.iter().filter(is_files).count() > 1;
        if several {
            self.parcel.folder(&path(FILES))?;
        }
        for part in checkpoint.parts.iter().filter(|part| !outside.contains(part)) {
            match part.kind {
                PartKind::Files if several => {
                    let at = self.free(FILES, &safe(plain_key(&part.key)), "")?;
                    self.tree(part, at, progress)?;
                }
                PartKind::Files => self.tree(part, path(FILES), progress)?,
                PartKind::Plan => self.plan(plain_key(&part.key), part.document)?,
                PartKind::Git => self.git(part)?,
                PartKind::Agent | PartKind::Session => self.other(part)?,
                PartKind::Thread => self.thread(part)?,
                PartKind::Outside(_) => self.outside(part)?,
                // A repository goes elsewhere as git does it: by a clone.
                PartKind::GitFolder => {}
            }
        }
        // A plan that came by an import and was not one here is no part, and is kept all the same.
        let is_part = |state: &ObjectId| checkpoint.parts.iter().any(|part| part.document == *state);
        if let Some(state) = checkpoint.state_snapshot.filter(|state| !is_part(state)) {
            let id = plan::document::load(self.store, state)?.id;
            self.plan(&id, state)?;
        }
        Ok(())
    }

    /// The files of a workspace, and what they alone cannot say.
    fn tree(&mut self, part: &PartRecord, at: RelPath, progress: &dyn Progress) -> Result<(), Error> {
        let document = FilesDocument::load(self.store, part.document)?;
        let (root, coverage) = (document.root_entry(), document.coverage(self.store)?);
        self.parcel.tree(&at, self.store, &root, progress)?;
        self.entries.push(EntryRow::of(at.clone(), &root));
        let (store, count) = (self.store, self.entries.len());
        let before = self.bytes;
        if let Some(tree) = document.tree() {
            progress.begin(Activity::Checking, None);
            progress.expect(document.bytes);
            let counted = Counted { source: store, progress };
            let walked = change::walk::<Error>(store, &RelPath::root(), tree, &mut |below, entry| {
                if progress.interrupted() {
                    return Err(WorkspaceError::Interrupted.into());
                }
                let path = RelPath::new([at.as_bytes(), b"/", below.as_bytes()].concat())?;
                let size = match &entry.node {
                    Node::File(content) => {
                        self.hashes.push(hash_of(&counted, path.clone(), content)?);
                        content.size
                    }
                    _ => 0,
                };
                self.files += u64::from(!matches!(entry.node, Node::Directory(_)));
                self.bytes += size;
                progress.advance(1, 0);
                if self.entries.len() >= ENTRIES_MAX {
                    return Err(LayoutError::TooLarge { what: "it has more than 2,000,000 entries" }.into());
                }
                self.entries.push(EntryRow::of(path, entry));
                Ok(())
            });
            progress.end();
            walked?;
        }
        let key = plain_key(&part.key);
        // A key that is no id of a workspace, or of one that is not on record any more, says enough by itself.
        let workspace = match (key.parse(), &document.elsewhere) {
            (Ok(id), Some(place)) => Some(WorkspaceRow::elsewhere(id, place)),
            (Ok(id), None) => {
                self.catalog.workspace(id)?.map(|workspace| WorkspaceRow::of(&workspace, self.home))
            }
            (Err(_), _) => None,
        };
        let place = workspace.as_ref().and_then(|row| row.place(&at).ok());
        self.trees
            .extend(document.tree().map(|tree| (Some(at.clone()), place.map(|place| place.root), tree)));
        self.states.push(FilesState {
            key: key.to_owned(),
            workspace,
            path: at.clone(),
            count: (self.entries.len() - count) as u64,
            bytes: self.bytes - before,
            coverage,
        });
        self.contents.push(ContentRow { kind: part.kind, key: key.to_owned(), path: at });
        Ok(())
    }

    /// The full state of a plan, and what its steps printed.
    fn plan(&mut self, id: &str, document: ObjectId) -> Result<(), Error> {
        let state = plan::document::load(self.store, document)?;
        let folder = folder_of(self.checkpoint.scope, PartKind::Plan);
        let at = self.free(folder, &safe(id), ".json")?;
        self.document(&at, &state)?;
        let logs: BTreeSet<ObjectId> = state.steps.iter().filter_map(|step| step.log).collect();
        if !logs.is_empty() {
            self.parcel.folder(&logs_of(&at))?;
        }
        for log in logs {
            let bytes = self.store.get(ObjectKind::Chunk, log)?;
            self.file(logs_of(&at).join(format!("{log}.txt").as_bytes())?, &bytes, DOCUMENT_BYTES_MAX)?;
        }
        self.plans.push(json!({
            "id": id,
            "title": state.title,
            "state": state.state,
            "step_index": state.step_index(),
            "path": at,
        }));
        self.contents.push(ContentRow { kind: PartKind::Plan, key: id.to_owned(), path: at });
        Ok(())
    }

    /// Any other part: its document as it is.
    fn other(&mut self, part: &PartRecord) -> Result<(), Error> {
        let bytes = self.store.get(ObjectKind::Document, part.document)?;
        let at = self.place_of(part)?;
        self.file(at, &bytes, DOCUMENT_BYTES_MAX)
    }

    /// A part of another program: its document, and everything that it keeps.
    fn outside(&mut self, part: &PartRecord) -> Result<(), Error> {
        let document = OutsideDocument::load(self.store, part.document)?;
        let bytes = self.store.get(ObjectKind::Document, part.document)?;
        let at = self.place_of(part)?;
        self.file(at.clone(), &bytes, DOCUMENT_BYTES_MAX)?;
        for number in 0..document.contents.len() {
            let content = document.read(self.store, number)?;
            self.file(beside(&at, &format!(".{number}.bin")), &content, LIST_BYTES_MAX)?;
        }
        Ok(())
    }

    /// A thread: its document, the ancestors of its heads, and each of their values.
    fn thread(&mut self, part: &PartRecord) -> Result<(), Error> {
        let document = ThreadDocument::load(self.store, part.document)?;
        let bytes = self.store.get(ObjectKind::Document, part.document)?;
        let at = self.place_of(part)?;
        self.file(at.clone(), &bytes, DOCUMENT_BYTES_MAX)?;
        let ancestors = thread::ancestors_of(&document, self.store)?;
        if !ancestors.is_empty() {
            let text = serde_json::to_vec(&ancestors).map_err(no_json)?;
            self.file(beside(&at, thread::ANCESTORS), &text, LIST_BYTES_MAX)?;
        }
        for (number, content) in thread::contents_of(&document, &ancestors).into_iter().enumerate() {
            let mut bytes = Vec::new();
            content.read::<ObjectError>(self.store, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            self.file(thread::content_path(&at, number), &bytes, LIST_BYTES_MAX)?;
        }
        Ok(())
    }

    /// The state of a repository: its document, all refs, and the index byte for byte.
    fn git(&mut self, part: &PartRecord) -> Result<(), Error> {
        let state = git::load(self.store, part.document)?;
        let at = self.place_of(part)?;
        self.file(at.clone(), &state.document, DOCUMENT_BYTES_MAX)?;
        self.file(beside(&at, git::REFS), &state.refs, LIST_BYTES_MAX)?;
        match state.index {
            Some(index) => self.file(beside(&at, git::INDEX), &index, LIST_BYTES_MAX),
            None => Ok(()),
        }
    }

    /// Returns the path of a part's document, and lists it.
    fn place_of(&mut self, part: &PartRecord) -> Result<RelPath, Error> {
        let key = plain_key(&part.key);
        let name = match part.kind {
            PartKind::Session | PartKind::Thread | PartKind::Git | PartKind::Outside(_) => {
                format!("{}_{}", part.kind, safe(key))
            }
            _ => safe(key),
        };
        let at = self.free(folder_of(self.checkpoint.scope, part.kind), &name, ".json")?;
        self.contents.push(ContentRow { kind: part.kind, key: key.to_owned(), path: at.clone() });
        Ok(at)
    }

    /// A name in a folder that no other part has: two keys may look the same once they are safe.
    fn free(&mut self, folder: &str, name: &str, ending: &str) -> Result<RelPath, ModelError> {
        let mut number = 1;
        loop {
            let numbered = if number == 1 { String::new() } else { format!("_{number}") };
            let at = path(folder).join(format!("{name}{numbered}{ending}").as_bytes())?;
            // Upper and lower case may be one name where the folder is taken to.
            let seen = RelPath::new(at.as_bytes().to_ascii_lowercase())?;
            if self.names.insert(seen) {
                return Ok(at);
            }
            number += 1;
        }
    }

    /// Writes the state document.
    fn about(&mut self, workspace: Option<&Workspace>) -> Result<(), Error> {
        let checkpoint = self.checkpoint;
        let state = json!({
            "format": FORMAT,
            "scope": checkpoint.scope,
            "phase": checkpoint.phase,
            "progress": checkpoint.progress,
            "workspace": workspace.map(|workspace| WorkspaceRow::of(workspace, self.home)),
            "files": self.states,
            "plans": self.plans,
            "agents": self.agents,
        });
        self.document(&path(&state_name(checkpoint.scope)), &state)?;
        if !self.states.is_empty() {
            self.entries.sort_by(|a, b| a.path.cmp(&b.path));
            let text = with_lines(&json!({ "format": FORMAT }), "entries", &self.entries);
            self.file(path(ENTRIES), &text.map_err(no_json)?, LIST_BYTES_MAX)?;
        }
        if self.hashes.len() > ENTRIES_MAX {
            return Err(LayoutError::TooLarge { what: "it has more than 2,000,000 files" }.into());
        }
        self.hashes.sort_by(|a, b| a.path.cmp(&b.path));
        let mut fields = json!({
            "format": FORMAT,
            "layout": LAYOUT,
            "program": concat!("safepoint ", env!("CARGO_PKG_VERSION")),
            "uuid": checkpoint.id.to_uuid(),
            "contents": self.contents,
        });
        let record = serde_json::to_value(checkpoint).map_err(no_json)?;
        if let (Value::Object(fields), Value::Object(record)) = (&mut fields, record) {
            fields.extend(record);
        }
        let text = with_lines(&fields, "hashes", &self.hashes).map_err(no_json)?;
        within(text.len(), LIST_BYTES_MAX)?;
        Ok(self.parcel.file(&path(METADATA), &text)?)
    }

    fn document<T: Serialize>(&mut self, at: &RelPath, value: &T) -> Result<(), Error> {
        let mut text = serde_json::to_vec_pretty(value).map_err(no_json)?;
        text.push(b'\n');
        self.file(at.clone(), &text, DOCUMENT_BYTES_MAX)
    }

    /// Writes a file, and notes its hash.
    fn file(&mut self, at: RelPath, bytes: &[u8], bytes_max: u64) -> Result<(), Error> {
        within(bytes.len(), bytes_max)?;
        self.parcel.file(&at, bytes)?;
        self.hashes.push(HashRow::of(at, bytes.len() as u64, &blake3::hash(bytes)));
        Ok(())
    }
}

/// Rejects documents too long to import.
fn within(bytes: usize, bytes_max: u64) -> Result<(), LayoutError> {
    match bytes as u64 > bytes_max {
        true => Err(LayoutError::TooLarge { what: "a document is longer than an import reads" }),
        false => Ok(()),
    }
}

fn no_json(error: serde_json::Error) -> ObjectError {
    ObjectError::Store(Box::new(error))
}

/// The hash of a file's bytes alone, as `b3sum` gives it; of a file with holes that of its data.
fn hash_of(source: &dyn ObjectSource, path: RelPath, content: &Content) -> Result<HashRow, Error> {
    if content.form == Form::Sparse {
        return holes::row_of(source, path, content, None);
    }
    let mut hash = blake3::Hasher::new();
    crate::checkpoint::find::write_content(source, content, &mut hash)?;
    Ok(HashRow::of(path, content.size, &hash.finalize()))
}
