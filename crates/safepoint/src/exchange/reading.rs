//! Open layout: the promises of its metadata, and the entries found. Everything is hostile until its hash is
//! compared. Names are checked even then: the author of the layout also chose the hashes.

use super::fit::is_elsewhere;
use super::holes::HashedHoles;
use super::rows::{AgentRow, ContentRow, HashRow, Metadata, TEXT_BYTES_MAX, Version};
use super::{
    AGENTS, CONTENT_BYTES_MAX, COPY_DEPTH_MAX, DOCUMENT_BYTES_MAX, ENTRIES, ENTRIES_MAX, FILES, FORMAT,
    LAYOUT, LIST_BYTES_MAX, LayoutError, MEMORY, METADATA, TASKS, WORKFLOWS, folder_of_copies, path,
    state_name,
};
use crate::Error;
use safepoint_model::checkpoint::Scope;
use safepoint_model::{CheckpointId, Progress, RelPath, Timestamp};
use safepoint_workspace::{Foreign, ForeignEntry, ForeignFile, SmallFile, WorkspaceError};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;

/// Maximum nesting of folders beside `files`, except copies of agent data.
const DOCUMENTS_DEPTH_MAX: usize = 4;
const COPIES_DEPTH_MAX: usize = COPY_DEPTH_MAX + 3;

/// Checks that a folder is a readable layout and returns its scope. Reads only its metadata.
///
/// # Errors
/// Fails if it is no layout, or has another version.
pub fn check_layout(dir: &Path) -> Result<Scope, Error> {
    Ok(Reading::open(dir)?.metadata.scope)
}

/// Open layout.
pub(super) struct Reading {
    folder: Foreign,
    pub(super) metadata: Metadata,
    /// Promised files not found yet.
    hashes: HashMap<RelPath, HashRow>,
    /// Documents compared already.
    asked: HashSet<RelPath>,
    bytes_left: u64,
}

impl Reading {
    pub(super) fn open(dir: &Path) -> Result<Self, LayoutError> {
        let opened = std::fs::canonicalize(dir).and_then(|dir| Foreign::open(&dir));
        let folder = opened.map_err(|source| LayoutError::Open { path: dir.to_owned(), source })?;
        let name = path(METADATA);
        let found = folder.entry(METADATA.as_bytes()).map_err(LayoutError::read(&name))?;
        let Some(entry) = found else { return Err(LayoutError::NotALayout { path: dir.to_owned() }) };
        let bytes = whole(file_of(entry, &name)?, &name, LIST_BYTES_MAX)?;
        let version: Version = parse(&name, &bytes)?;
        if version.layout != LAYOUT {
            return Err(LayoutError::bad(
                &name,
                format!("the layout {:?} is not known here", version.layout),
            ));
        }
        if version.format != u64::from(FORMAT) {
            return Err(LayoutError::Version { found: version.format, known: FORMAT });
        }
        let mut metadata: Metadata = parse(&name, &bytes)?;
        let texts = metadata.label.iter().chain(&metadata.warnings.0);
        if texts.into_iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(LayoutError::bad(&name, "its label or a warning is longer than 4,096 bytes"));
        }
        let mut known = HashSet::new();
        for ContentRow { kind, key, .. } in &metadata.contents.0 {
            if key.is_empty() || key.len() > TEXT_BYTES_MAX || is_elsewhere(key) {
                return Err(LayoutError::bad(&name, format!("the key of a part of kind {kind} is none")));
            }
            if !known.insert((*kind, key.as_str())) {
                return Err(LayoutError::bad(&name, format!("its part {kind} {key:?} comes twice")));
            }
        }
        let rows = std::mem::take(&mut metadata.hashes.0);
        check_sorted(&name, rows.iter().map(|row| &row.path))?;
        if let Some(row) = rows.iter().find(|row| blake3::Hash::from_hex(&row.blake3).is_err()) {
            return Err(LayoutError::bad(&name, format!("the hash of {} is not one", row.path)));
        }
        let hashes = rows.into_iter().map(|row| (row.path.clone(), row)).collect();
        Ok(Self { folder, metadata, hashes, asked: HashSet::new(), bytes_left: CONTENT_BYTES_MAX })
    }

    /// Parts of the checkpoint, as the metadata lists them.
    pub(super) fn contents(&self) -> Vec<ContentRow> {
        self.metadata.contents.0.clone()
    }

    /// Returns the size of all promised files.
    pub(super) fn promised_bytes(&self) -> u64 {
        self.hashes.values().fold(0, |bytes, row| bytes.saturating_add(row.size))
    }

    /// Returns the promised hash of a file, once per file. Holes do not count against the size limit of a
    /// layout.
    pub(super) fn promised(&mut self, file: &RelPath, disk_bytes: u64) -> Result<HashRow, LayoutError> {
        let row = self.hashes.remove(file);
        let row = row.ok_or_else(|| LayoutError::bad(file, "metadata.json does not list it"))?;
        let bytes = if row.sparse { row.size.min(disk_bytes) } else { row.size };
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => return Err(LayoutError::bad(file, "with it the layout holds more than 1 TiB")),
        }
        Ok(row)
    }

    /// Checks that the copies beside the agents equal the files that a rollback restores. A reader of one
    /// must not get the other. Call before the first promise is taken.
    pub(super) fn check_copies(&self, agents: &[AgentRow]) -> Result<(), LayoutError> {
        let documents: HashSet<&RelPath> = self.metadata.contents.0.iter().map(|row| &row.path).collect();
        let mut copies = HashMap::new();
        // Of a workspace, memory outside of it may lie with its agents alone. It is compared with its hash, and not taken over.
        let of_one = matches!(self.metadata.scope, Scope::Project | Scope::Workflow);
        let mut counts: HashMap<&RelPath, u64> = HashMap::new();
        for copy in agents.iter().flat_map(|agent| &agent.copies) {
            let names: Vec<&[u8]> = copy.path.names().collect();
            let placed = names.len() == 3 && names[0] == folder_of_copies(copy.kind).as_bytes();
            let known = copy.of.as_ref().map_or(of_one, |of| of.is_within(&path(FILES)));
            if !placed || !known || documents.contains(&copy.path) {
                return Err(LayoutError::bad(&copy.path, "it is no place for what belongs to an agent"));
            }
            if copies.insert(&copy.path, &copy.of).is_some() {
                return Err(LayoutError::bad(&copy.path, "it comes twice"));
            }
            counts.extend(copy.of.as_ref().map(|of| (of, 0)));
        }
        let mut matched: HashMap<&RelPath, u64> = HashMap::new();
        for file in self.hashes.keys() {
            let first = file.names().next().unwrap_or_default();
            if first == FILES.as_bytes() {
                for above in at_and_above(file) {
                    if let Some((above, count)) =
                        counts.get_key_value(&above).map(|(above, count)| (*above, *count))
                        && depth_below(file, above) <= COPY_DEPTH_MAX
                    {
                        counts.insert(above, count + 1);
                    }
                }
            } else if (first == AGENTS.as_bytes() || first == MEMORY.as_bytes()) && !documents.contains(file)
            {
                let whose = at_and_above(file).find_map(|above| copies.get_key_value(&above));
                let Some((copy, of)) = whose else {
                    return Err(LayoutError::bad(file, "it belongs to no agent that the layout tells of"));
                };
                let Some(of) = of else { continue };
                let rest = &file.as_bytes()[copy.as_bytes().len()..];
                let original = RelPath::new([of.as_bytes(), rest].concat()).unwrap_or_default();
                let same = |row: &HashRow| self.hashes.get(file).is_some_and(|it| it.is_same(row));
                if !self.hashes.get(&original).is_some_and(same) {
                    return Err(LayoutError::bad(file, format!("it is another content than {original}")));
                }
                *matched.entry(copy).or_default() += 1;
            }
        }
        for (copy, of) in copies.into_iter().filter_map(|(copy, of)| Some((copy, of.as_ref()?))) {
            if matched.get(copy).copied().unwrap_or(0) != counts.get(of).copied().unwrap_or(0) {
                return Err(LayoutError::bad(copy, format!("it has not the same files as {of}")));
            }
        }
        Ok(())
    }

    /// Names in a folder of the layout.
    pub(super) fn names(&self, at: &RelPath, names_max: usize) -> Result<Vec<Vec<u8>>, LayoutError> {
        listed(&self.folder(at)?, at, names_max)
    }

    /// Opens a folder of the layout.
    pub(super) fn folder(&self, at: &RelPath) -> Result<Foreign, LayoutError> {
        match self.entry(at)? {
            ForeignEntry::Folder(folder) => Ok(folder),
            other => Err(not_a("folder", at, &other)),
        }
    }

    fn entry(&self, at: &RelPath) -> Result<ForeignEntry, LayoutError> {
        let (mut here, mut so_far) = (None::<ForeignEntry>, RelPath::root());
        for name in at.names() {
            let above = match &here {
                None => &self.folder,
                Some(ForeignEntry::Folder(folder)) => folder,
                Some(other) => return Err(not_a("folder", &so_far, other)),
            };
            let found = above.entry(name).map_err(LayoutError::read(at))?;
            here = Some(found.ok_or_else(|| LayoutError::bad(at, "it is missing"))?);
            so_far = so_far.join(name).map_err(|error| LayoutError::bad(at, error.to_string()))?;
        }
        here.ok_or_else(|| LayoutError::bad(at, "it is the layout itself"))
    }

    /// Reads a file and compares its hash.
    pub(super) fn bytes(&mut self, file: &RelPath, bytes_max: u64) -> Result<Vec<u8>, LayoutError> {
        let row = self.promised(file, u64::MAX)?;
        let bytes = whole(file_of(self.entry(file)?, file)?, file, bytes_max)?;
        if bytes.len() as u64 != row.size || !row.is(&blake3::hash(&bytes)) {
            return Err(not_as_promised(file));
        }
        self.asked.insert(file.clone());
        Ok(bytes)
    }

    /// Reads a document.
    pub(super) fn document<T: DeserializeOwned>(
        &mut self,
        file: &RelPath,
        bytes_max: u64,
    ) -> Result<T, LayoutError> {
        let bytes = self.bytes(file, bytes_max)?;
        parse(file, &bytes)
    }

    /// Checks everything not checked yet. Returns the original checkpoint and its time.
    pub(super) fn close(mut self, progress: &dyn Progress) -> Result<(CheckpointId, Timestamp), Error> {
        self.check_others(progress)?;
        let original = (self.metadata.id, self.metadata.created_at);
        self.finish()?;
        Ok(original)
    }

    /// Compares the remaining files, except `files`, and refuses unknown entries.
    /// layout.
    fn check_others(&mut self, progress: &dyn Progress) -> Result<(), Error> {
        let state = state_name(self.metadata.scope);
        let known = [METADATA, ENTRIES, FILES, state.as_str(), TASKS, MEMORY, AGENTS, WORKFLOWS];
        let mut waiting = Vec::new();
        for name in listed(&self.folder, &RelPath::root(), known.len())? {
            let at = RelPath::root().join(&name)?;
            if !known.iter().any(|known| known.as_bytes() == name) {
                return Err(LayoutError::bad(&at, "it is not part of a layout").into());
            }
            match name.as_slice() {
                name if name == METADATA.as_bytes() || name == FILES.as_bytes() => {}
                _ => waiting.push((at, 0)),
            }
        }
        while let Some((at, depth)) = waiting.pop() {
            if progress.interrupted() {
                return Err(WorkspaceError::Interrupted.into());
            }
            match self.entry(&at)? {
                ForeignEntry::Folder(_) if depth >= depth_max(&at) => {
                    return Err(LayoutError::bad(&at, "it is nested too deeply").into());
                }
                ForeignEntry::Folder(folder) => {
                    for name in listed(&folder, &at, ENTRIES_MAX)? {
                        waiting.push((at.join(&name)?, depth + 1));
                    }
                }
                // Requested documents were compared then.
                ForeignEntry::File(_) if self.asked.contains(&at) => {}
                ForeignEntry::File(file) => {
                    let row = self.promised(&at, file.disk_bytes())?;
                    if row.sparse {
                        HashedHoles::new(file, &row, progress).check(&at)?;
                        continue;
                    }
                    let mut hashed = Hashed::new(file, &row, progress);
                    let copied = io::copy(&mut hashed, &mut io::sink());
                    copied.map_err(|source| hashed.explain(&at, source))?;
                    hashed.finish(&at)?;
                }
                other => return Err(not_a("file", &at, &other).into()),
            }
        }
        Ok(())
    }

    /// Fails if a promised file was not found.
    fn finish(self) -> Result<(), LayoutError> {
        match self.hashes.into_keys().min() {
            Some(file) => Err(LayoutError::bad(&file, "metadata.json lists it, but it is missing")),
            None => Ok(()),
        }
    }
}

/// Maximum nesting of a folder beside `files`.
fn depth_max(at: &RelPath) -> usize {
    match at.names().next() {
        Some(first) if first == AGENTS.as_bytes() || first == MEMORY.as_bytes() => COPIES_DEPTH_MAX,
        _ => DOCUMENTS_DEPTH_MAX,
    }
}

/// Returns a path and its ancestors, without the layout itself.
fn at_and_above(file: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(Some(file.clone()), |path| path.split_last().map(|(above, _)| above))
        .filter(|path| !path.is_root())
}

/// Returns the number of names of a path below an ancestor.
fn depth_below(file: &RelPath, above: &RelPath) -> usize {
    file.names().count() - above.names().count()
}

/// File that is hashed during the read, so that stored and compared bytes are the same.
pub(super) struct Hashed<'a> {
    file: io::Take<ForeignFile>,
    row: &'a HashRow,
    hash: blake3::Hasher,
    read: u64,
    progress: &'a dyn Progress,
    interrupted: bool,
}

impl<'a> Hashed<'a> {
    pub(super) fn new(file: ForeignFile, row: &'a HashRow, progress: &'a dyn Progress) -> Self {
        // One extra byte detects a longer file, even one that grows concurrently.
        let file = file.take(row.size.saturating_add(1));
        Self { file, row, hash: blake3::Hasher::new(), read: 0, progress, interrupted: false }
    }

    /// Reason of a failed read.
    pub(super) fn explain(&self, at: &RelPath, source: io::Error) -> Error {
        match self.interrupted {
            true => WorkspaceError::Interrupted.into(),
            false => LayoutError::Read { file: at.clone(), source }.into(),
        }
    }

    /// Checks that the bytes read match the promise.
    pub(super) fn finish(self, at: &RelPath) -> Result<(), LayoutError> {
        match self.read == self.row.size && self.row.is(&self.hash.finalize()) {
            true => Ok(()),
            false => Err(not_as_promised(at)),
        }
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.interrupted() {
            self.interrupted = true;
            return Err(io::Error::other("interrupted"));
        }
        let came = self.file.read(buffer)?;
        self.hash.update(&buffer[..came]);
        self.read += came as u64;
        self.progress.advance(0, came as u64);
        Ok(came)
    }
}

pub(super) fn not_as_promised(file: &RelPath) -> LayoutError {
    LayoutError::bad(file, "its bytes are not those that metadata.json lists")
}

/// Returns the error for an entry of the wrong type.
fn not_a(wanted: &str, at: &RelPath, found: &ForeignEntry) -> LayoutError {
    let found = match found {
        ForeignEntry::File(_) => "a file",
        ForeignEntry::Folder(_) => "a folder",
        ForeignEntry::Link(_) => "a link, and none is followed",
        ForeignEntry::Other => "a FIFO, a socket or a device",
    };
    LayoutError::bad(at, format!("it is to be a {wanted} and is {found}"))
}

fn file_of(entry: ForeignEntry, at: &RelPath) -> Result<ForeignFile, LayoutError> {
    match entry {
        ForeignEntry::File(file) => Ok(file),
        other => Err(not_a("file", at, &other)),
    }
}

fn whole(file: ForeignFile, at: &RelPath, bytes_max: u64) -> Result<Vec<u8>, LayoutError> {
    match SmallFile::read(file, bytes_max).map_err(LayoutError::read(at))? {
        SmallFile::Bytes(bytes) => Ok(bytes),
        _ => Err(LayoutError::bad(at, format!("it is longer than {bytes_max} bytes"))),
    }
}

/// Lists a folder, or fails above the maximum.
pub(super) fn listed(folder: &Foreign, at: &RelPath, names_max: usize) -> Result<Vec<Vec<u8>>, LayoutError> {
    let names = folder.names(names_max).map_err(LayoutError::read(at))?;
    names.ok_or_else(|| LayoutError::bad(at, "more is in it than is listed"))
}

fn parse<T: DeserializeOwned>(file: &RelPath, bytes: &[u8]) -> Result<T, LayoutError> {
    serde_json::from_slice(bytes)
        .map_err(|error| LayoutError::bad(file, format!("it cannot be understood: {error}")))
}

/// Checks that a list is sorted by path without duplicates.
pub(super) fn check_sorted<'p>(
    file: &RelPath,
    paths: impl Iterator<Item = &'p RelPath>,
) -> Result<(), LayoutError> {
    let mut last: Option<&RelPath> = None;
    for path in paths {
        if last.is_some_and(|last| last >= path) {
            return Err(LayoutError::bad(file, format!("{path} comes twice or is not in its place")));
        }
        last = Some(path);
    }
    Ok(())
}

/// Size limit of documents.
pub(super) const DOCUMENT: u64 = DOCUMENT_BYTES_MAX;
