//! Machine: a store with checkpoints of small folders, and the steps of a client that publishes them.

use safepoint_model::content::Content;
use safepoint_model::progress::Silent;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{
    CheckpointId, LineId, ObjectId, ObjectKind, ObjectSink, ObjectSource, WorkspaceId, document,
};
use safepoint_remote::{
    LineState, ListPlan, PackEnd, PackInfo, PackSource, Push, PushDocument, PushedCheckpoint, Reached,
    Remote, RemoteCheckpoint, RemoteError, beyond_base,
};
use safepoint_store::{PackTail, Store};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns an id that no other test uses.
pub(crate) fn fresh() -> u128 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    time << 80 | u128::from(std::process::id()) << 64 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn files(list: &[(&str, &str)]) -> Files {
    list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

/// Folder in memory where there is one: these tests are not about disks.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub(crate) fn scratch() -> std::io::Result<File> {
    tempfile::tempfile()
}

/// Checkpoint of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) id: CheckpointId,
    pub(crate) tree: ObjectId,
    pub(crate) record: ObjectId,
}

/// Push with its files.
pub(crate) struct Pending {
    pub(crate) push: Push,
    pub(crate) files: Vec<File>,
    snapshots: Vec<Snapshot>,
}

impl Pending {
    /// Copies it with the machine that it belongs to.
    pub(crate) fn copy(&self) -> Self {
        let files = self.files.iter().map(|file| file.try_clone().unwrap()).collect();
        Self { push: self.push.clone(), files, snapshots: self.snapshots.clone() }
    }

    pub(crate) fn files(&self) -> Vec<&File> {
        self.files.iter().collect()
    }
}

pub(crate) struct Machine {
    folder: TempDir,
    pub(crate) store: Store,
    pub(crate) workspace: WorkspaceId,
    pub(crate) state: Option<LineState>,
    /// Head of the line.
    pub(crate) base: Option<Snapshot>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::of(WorkspaceId::from_bits(fresh()))
    }

    pub(crate) fn of(workspace: WorkspaceId) -> Self {
        let folder = self::folder();
        let store = Store::open(&folder.path().join("store")).unwrap();
        Self { folder, store, workspace, state: None, base: None }
    }

    /// Copies the machine, as a snapshot of a virtual machine does.
    pub(crate) fn copy(&self) -> Self {
        let folder = self::folder();
        safepoint_testkit::copy_tree(&self.folder.path().join("store"), &folder.path().join("store"))
            .unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        Self { folder, store, workspace: self.workspace, state: self.state.clone(), base: self.base.clone() }
    }

    pub(crate) fn snapshot(&self, files: &Files) -> Snapshot {
        let writer = self.store.writer().unwrap();
        let tree = put_tree(&writer, files, "");
        let id = CheckpointId::from_bits(fresh());
        let record = document::store(&writer, &json!({ "id": id, "tree": tree })).unwrap();
        writer.finish().unwrap();
        Snapshot { id, tree, record }
    }

    pub(crate) fn begin(&mut self, remote: &Remote) -> Result<(), RemoteError> {
        if self.state.is_none() {
            let line = LineId::from_bits(fresh());
            self.state = Some(remote.begin_line(line, self.workspace, None, "machine")?);
        }
        Ok(())
    }

    /// Builds a push of these checkpoints on the head of the line.
    pub(crate) fn build(
        &self,
        remote: &Remote,
        snapshots: &[Snapshot],
        plan: Option<ListPlan>,
    ) -> Result<Pending, RemoteError> {
        let state = self.state.as_ref().unwrap();
        let mut document = PushDocument::new(state);
        let plan = plan.unwrap_or_else(|| ListPlan::of(&state.packs, None));
        let base = self.base.as_ref().map(|base| base.tree);
        let (kept, base) = match plan {
            ListPlan::Append => (state.packs.clone(), base),
            ListPlan::Compact(kept) => (kept, None),
            ListPlan::Whole => (Vec::new(), None),
        };
        document.whole = kept.is_empty();
        let held: HashSet<ObjectId> = match base {
            Some(_) => HashSet::new(),
            None => kept.iter().flat_map(|pack| ids_of(remote, pack)).collect(),
        };
        document.kept = kept;
        let held = |id: ObjectId| held.contains(&id);
        let mut found = Reached::default();
        for snapshot in snapshots {
            beyond_base(&self.store, snapshot.tree, base, &held, &mut found).unwrap();
            found.add_once(snapshot.record, &held);
        }
        document.checkpoints = snapshots
            .iter()
            .map(|it| PushedCheckpoint {
                id: it.id,
                record: it.record,
                pinned: false,
                fields: json!({"label": "a secret label"}),
            })
            .collect();
        self.pack(remote, document, found.into_objects(), snapshots)
    }

    /// Writes the packs of a push: the last one with the document.
    pub(crate) fn pack(
        &self,
        remote: &Remote,
        document: PushDocument,
        objects: Vec<ObjectId>,
        snapshots: &[Snapshot],
    ) -> Result<Pending, RemoteError> {
        let mut document = document;
        let mut files = Vec::new();
        let path = self.folder.path().join("pack");
        let mut out = self.store.pack_out(tempfile::tempfile().unwrap(), &path).unwrap();
        for id in objects {
            if out.is_full() {
                let fresh = self.store.pack_out(tempfile::tempfile().unwrap(), &path).unwrap();
                let full = std::mem::replace(&mut out, fresh).finish().unwrap();
                let (file, pack) = self.finish(remote, &document, full.file, full.objects)?;
                document.earlier.push(pack);
                files.push(file);
            }
            out.add(id).unwrap();
        }
        out.add_document(&document.encode().unwrap()).unwrap();
        let last = out.finish().unwrap();
        let (file, pack) = self.finish(remote, &document, last.file, last.objects)?;
        files.push(file);
        Ok(Pending { push: remote.prepare(document, pack)?, files, snapshots: snapshots.to_vec() })
    }

    fn finish(
        &self,
        remote: &Remote,
        document: &PushDocument,
        mut plain: File,
        objects: u64,
    ) -> Result<(File, PackInfo), RemoteError> {
        std::io::Seek::rewind(&mut plain).unwrap();
        let path = self.folder.path().join(format!("push-{:032x}", fresh()));
        let mut out = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let pack = remote.finish_pack(document, &mut plain, objects, (&mut out, &path))?;
        Ok((out, pack))
    }

    /// Sends a push, and remembers it.
    pub(crate) fn send(&mut self, remote: &Remote, pending: &Pending) -> Result<(), RemoteError> {
        let state = remote.push(&pending.push, &pending.files(), &Silent)?;
        self.remember(state, pending);
        Ok(())
    }

    pub(crate) fn remember(&mut self, state: LineState, pending: &Pending) {
        self.state = Some(state);
        self.base = pending.snapshots.last().cloned().or(self.base.take());
    }

    /// Takes the line over again, after a rebuild or a silence. A push that was refused may be its head.
    pub(crate) fn regain(&mut self, remote: &Remote, pending: Option<&Pending>) -> Result<(), RemoteError> {
        let state = self.state.clone().unwrap();
        let taken = match (remote.regain(&state, "machine", fresh()), pending) {
            (Err(RemoteError::Fenced { .. }), Some(pending)) => {
                let taken = remote.regain(&pending.push.state(), "machine", fresh())?;
                self.base = pending.snapshots.last().cloned();
                taken
            }
            (taken, _) => taken?,
        };
        self.state = Some(taken);
        Ok(())
    }

    /// Publishes one checkpoint of these files.
    pub(crate) fn publish(&mut self, remote: &Remote, files: &Files) -> Result<Snapshot, RemoteError> {
        self.begin(remote)?;
        let snapshot = self.snapshot(files);
        let pending = self.build(remote, std::slice::from_ref(&snapshot), None)?;
        match self.send(remote, &pending) {
            // What the base has is being deleted: everything is sent again.
            Err(RemoteError::Gone { .. }) => {
                let pending = self.build(remote, std::slice::from_ref(&snapshot), Some(ListPlan::Whole))?;
                self.send(remote, &pending)?;
            }
            other => other?,
        }
        Ok(snapshot)
    }
}

fn put_tree(sink: &dyn ObjectSink, files: &Files, prefix: &str) -> ObjectId {
    let mut entries = Vec::new();
    let mut names: BTreeMap<&str, bool> = BTreeMap::new();
    for path in files.keys() {
        let Some(rest) = path.strip_prefix(prefix) else { continue };
        match rest.split_once('/') {
            Some((folder, _)) => names.insert(folder, true),
            None => names.insert(rest, false),
        };
    }
    for (name, is_folder) in names {
        let path = format!("{prefix}{name}");
        let node = match is_folder {
            true => Node::Directory(put_tree(sink, files, &format!("{path}/"))),
            false => {
                let bytes = &files[&path];
                Node::File(sink.put_content(bytes.len() as u64, &mut bytes.as_slice()).unwrap())
            }
        };
        entries.push(Entry {
            name: name.as_bytes().to_vec(),
            meta: Meta { mode: 0o644, ..Meta::default() },
            node,
        });
    }
    sink.put(ObjectKind::Tree, &Tree::new(entries).unwrap().encode()).unwrap()
}

fn get_tree(
    source: &dyn ObjectSource,
    tree: ObjectId,
    prefix: &str,
    files: &mut Files,
) -> Result<(), String> {
    let tree = Tree::load(source, tree).map_err(|error| error.to_string())?;
    for entry in tree.entries() {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        match &entry.node {
            Node::Directory(below) => get_tree(source, *below, &format!("{path}/"), files)?,
            Node::File(content) => {
                files.insert(path, content_bytes(source, content)?);
            }
            Node::Symlink(_) => {}
        }
    }
    Ok(())
}

fn content_bytes(source: &dyn ObjectSource, content: &Content) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    content
        .read(source, &mut |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok::<_, safepoint_model::ObjectError>(())
        })
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn tail(source: &dyn PackSource) -> Result<PackTail, RemoteError> {
    let wrong = |why: &str| RemoteError::Damaged { what: "a pack".to_owned(), why: why.to_owned() };
    PackTail::open(source.bytes(), &|at, len| source.read_at(at, len))?.map_err(wrong)
}

/// Ids of the objects of a pack, by its index.
pub(crate) fn ids_of(remote: &Remote, pack: &PackInfo) -> Vec<ObjectId> {
    let source = remote.open_pack(pack, &scratch).unwrap();
    let len = PackTail::len_for(pack.objects);
    let tail = source.read_at(source.bytes() - len, len).unwrap();
    let tail = PackTail::read(source.bytes(), &tail).unwrap();
    tail.objects().iter().map(safepoint_store::PackedObject::id).collect()
}

/// Reads the end of a pack, for a rebuild.
pub(crate) fn read_end(source: &dyn PackSource) -> Result<PackEnd, RemoteError> {
    let tail = tail(source)?;
    let document = tail.last_document().map(|object| {
        let frame = source.read_at(object.at(), object.stored_len())?;
        object
            .decode(&frame)
            .map_err(|error| RemoteError::Damaged { what: "a pack".to_owned(), why: error.to_string() })
    });
    Ok(PackEnd { objects: tail.objects().len() as u64, document: document.transpose()? })
}

/// Clones a checkpoint into an empty store, from the packs of its list alone.
pub(crate) fn clone(remote: &Remote, checkpoint: &RemoteCheckpoint) -> Result<Files, String> {
    let folder = self::folder();
    let (files, _) = clone_into(remote, checkpoint, folder.path())?;
    Ok(files)
}

pub(crate) fn clone_into(
    remote: &Remote,
    checkpoint: &RemoteCheckpoint,
    folder: &Path,
) -> Result<(Files, Snapshot), String> {
    let text = |error: RemoteError| error.to_string();
    let store = Store::open(folder).map_err(|error| error.to_string())?;
    let writer = store.writer().unwrap();
    let mut last = None;
    for pack in &checkpoint.packs {
        let mut file = tempfile::tempfile().unwrap();
        remote.download(pack, &mut file, &scratch, &Silent).map_err(text)?;
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let read_at =
            |at: u64, len: u64| Ok::<_, RemoteError>(bytes[at as usize..(at + len) as usize].to_vec());
        let tail = PackTail::open(bytes.len() as u64, &read_at).map_err(text)??;
        for object in tail.objects() {
            let frame = &bytes[object.at() as usize..(object.at() + object.stored_len()) as usize];
            writer.adopt(object, frame).map_err(|error| error.to_string())?;
            if Some(object) == tail.last_document() {
                last = Some(object.decode(frame).map_err(|error| error.to_string())?);
            }
        }
    }
    writer.finish().map_err(|error| error.to_string())?;
    let push =
        PushDocument::read(&last.ok_or("the list is empty")?).ok_or("the last pack has no push document")?;
    let record = push.record_of(checkpoint.id).ok_or("the push document does not name the checkpoint")?;
    if remote.record_key(record) != checkpoint.record {
        return Err("the row names another record".to_owned());
    }
    let bytes = store.get(ObjectKind::Document, record).map_err(|error| error.to_string())?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let tree: ObjectId = value["tree"].as_str().unwrap().parse().unwrap();
    let mut files = Files::new();
    get_tree(&store, tree, "", &mut files)?;
    Ok((files, Snapshot { id: checkpoint.id, tree, record }))
}
