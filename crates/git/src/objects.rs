//! Objects of a repository: read from packs and loose files, written as loose files.

use crate::folder::Folder;
use crate::{GitError, GitId, Repository};
use gix_hash::ObjectId;
use gix_object::{Exists, Find, Kind, WriteTo};
use gix_zlib::Compression;
use gix_zlib::stream::deflate;
use safepoint_model::content::{Content, Form};
use safepoint_model::{ObjectKind, ObjectSource};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};

/// Maximum number of new objects that are synced one by one; for more, one sync of the file system is
/// cheaper.
const SYNCED_SINGLY: u64 = 16;
/// A hostile repository may claim an object of any size.
const OBJECT_BYTES_MAX: usize = 1 << 30;

/// Objects of one repository.
pub(crate) struct Objects<'r> {
    repository: &'r Repository,
    reader: gix_odb::Handle,
    folder: Folder,
    written: Cell<u64>,
    folders: RefCell<BTreeSet<Vec<u8>>>,
}

/// Refuses a FIFO, a socket or a device in the place of an object file, also behind a link: the object reader
/// would open it and block forever.
fn refuse_special(folder: &Folder, name: &[u8]) -> Result<(), GitError> {
    match std::fs::metadata(folder.at(name)) {
        Ok(facts) if !(facts.is_file() || facts.is_dir()) => {
            Err(GitError::damaged(&folder.at(name), "it is not a file"))
        }
        _ => Ok(()),
    }
}

/// Entry of a git tree.
pub(crate) type TreeEntry = gix_object::tree::Entry;

impl<'r> Objects<'r> {
    pub(crate) fn open(repository: &'r Repository) -> Result<Self, GitError> {
        let folder = repository.common.below(b"objects")?;
        let folder = folder.ok_or_else(|| repository.damaged("its object folder is missing"))?;
        refuse_special(&folder, b"info/alternates")?;
        if let Some(packs) = folder.below(b"pack")? {
            packs.names()?.iter().try_for_each(|(name, _)| refuse_special(&packs, name))?;
        }
        let options = gix_odb::store::init::Options {
            alloc_limit_bytes: Some(OBJECT_BYTES_MAX),
            current_dir: Some("/".into()),
            ..Default::default()
        };
        let mut reader = gix_odb::at_opts(folder.path(), repository.hash, None, options)
            .map_err(GitError::read(folder.path()))?;
        // A missing object is written only by us: rereading the packs would cost time for every new object.
        reader.refresh_never();
        Ok(Self { repository, reader, folder, written: Cell::default(), folders: RefCell::default() })
    }

    pub(crate) fn reader(&self) -> &gix_odb::Handle {
        &self.reader
    }

    pub(crate) fn exists(&self, id: &ObjectId) -> bool {
        crate::guarded(|| Ok::<_, String>(self.reader.exists(id))).unwrap_or(false)
    }

    fn get(&self, kind: Kind, id: &ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        let mut bytes = Vec::new();
        let hex = id.to_string();
        let (above, name) = hex.split_at(2);
        refuse_special(&self.folder, format!("{above}/{name}").as_bytes())?;
        let found = crate::guarded(|| {
            self.reader
                .try_find(id, &mut bytes)
                .map(|found| found.map(|data| (data.kind, data.data.to_vec())))
        });
        match found.map_err(|what| self.repository.damaged(format!("object {id}: {what}")))? {
            Some((found, bytes)) if found == kind => Ok(Some(bytes)),
            Some(_) => Err(self.repository.damaged(format!("object {id} is not a {kind}"))),
            None => Ok(None),
        }
    }

    /// Returns the tree of a commit.
    pub(crate) fn tree_of(&self, commit: GitId) -> Result<ObjectId, GitError> {
        let missing = || GitError::NoCommit { id: commit.to_string() };
        let bytes = self.get(Kind::Commit, &commit.0)?.ok_or_else(missing)?;
        let tree = crate::guarded(|| {
            gix_object::CommitRef::from_bytes(&bytes, self.repository.hash).map(|commit| commit.tree())
        });
        tree.map_err(|what| self.repository.damaged(format!("commit {commit}: {what}")))
    }

    /// Returns the message of a commit.
    pub(crate) fn message_of(&self, commit: GitId) -> Result<String, GitError> {
        let missing = || GitError::NoCommit { id: commit.to_string() };
        let bytes = self.get(Kind::Commit, &commit.0)?.ok_or_else(missing)?;
        let message = crate::guarded(|| {
            gix_object::CommitRef::from_bytes(&bytes, self.repository.hash)
                .map(|commit| String::from_utf8_lossy(commit.message).into_owned())
        });
        message.map_err(|what| self.repository.damaged(format!("commit {commit}: {what}")))
    }

    /// Returns the entries of a tree.
    pub(crate) fn entries(&self, tree: &ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        if *tree == ObjectId::empty_tree(self.repository.hash) {
            return Ok(Vec::new());
        }
        let bytes = self.get(Kind::Tree, tree)?;
        let bytes = bytes.ok_or_else(|| self.repository.damaged(format!("tree {tree} is missing")))?;
        let read = crate::guarded(|| {
            gix_object::TreeRef::from_bytes(&bytes, self.repository.hash).map(|tree| tree.to_owned().entries)
        });
        read.map_err(|what| self.repository.damaged(format!("tree {tree}: {what}")))
    }

    /// Stores an object.
    pub(crate) fn put(&self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let id = gix_object::compute_hash(self.repository.hash, kind, bytes)
            .map_err(|error| self.repository.damaged(error))?;
        if !self.exists(&id) {
            self.write(kind, bytes.len() as u64, &id, |out| {
                out.write_all(bytes).map_err(GitError::write(self.folder.path()))
            })?;
        }
        Ok(id)
    }

    /// Stores a tree of these entries.
    pub(crate) fn put_tree(&self, mut entries: Vec<TreeEntry>) -> Result<ObjectId, GitError> {
        entries.sort();
        let mut bytes = Vec::new();
        gix_object::Tree { entries }.write_to(&mut bytes).map_err(|error| self.repository.damaged(error))?;
        self.put(Kind::Tree, &bytes)
    }

    /// Stores the content of a captured file in bounded memory.
    pub(crate) fn put_content(
        &self,
        source: &dyn ObjectSource,
        content: &Content,
    ) -> Result<ObjectId, GitError> {
        if content.form == Form::Whole {
            return self.put(Kind::Blob, &source.get(ObjectKind::Chunk, content.id)?);
        }
        let mut hasher = gix_hash::hasher(self.repository.hash);
        hasher.update(&gix_object::encode::loose_header(Kind::Blob, content.size));
        content.read::<GitError>(source, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        let id = hasher.try_finalize().map_err(|error| self.repository.damaged(error))?;
        if !self.exists(&id) {
            self.write(Kind::Blob, content.size, &id, |out| {
                content.read::<GitError>(source, &mut |bytes| {
                    out.write_all(bytes).map_err(GitError::write(self.folder.path()))
                })
            })?;
        }
        Ok(id)
    }

    /// Writes a loose object: first under a name that git treats as temporary, then under its own.
    fn write(
        &self,
        kind: Kind,
        size: u64,
        id: &ObjectId,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        let count = self.written.replace(self.written.get() + 1);
        let unfinished = format!("tmp_obj_safepoint-{}-{count}", std::process::id()).into_bytes();
        let failed = |error| GitError::write(self.folder.at(&unfinished))(error);
        let file = self.folder.create(&unfinished, 0o444).map_err(failed)?;
        let written = self.write_into(file, kind, size, count, fill).and_then(|()| {
            let hex = id.to_hex().to_string();
            let (folder, name) = hex.as_bytes().split_at(2);
            let name = [folder, b"/", name].concat();
            self.folder.make_above(&name)?;
            self.folder.rename(&unfinished, &name).map_err(GitError::write(self.folder.at(&name)))?;
            self.folders.borrow_mut().insert(name);
            Ok(())
        });
        if written.is_err() {
            let _ = self.folder.remove(&unfinished);
        }
        written
    }

    fn write_into(
        &self,
        file: File,
        kind: Kind,
        size: u64,
        count: u64,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        let failed = |error: io::Error| GitError::write(self.folder.path())(error);
        let mut out = deflate::Write::new(file, Compression::BEST_SPEED);
        out.write_all(&gix_object::encode::loose_header(kind, size)).map_err(failed)?;
        fill(&mut out)?;
        out.flush().map_err(failed)?;
        if count < SYNCED_SINGLY {
            out.into_inner().sync_all().map_err(failed)?;
        }
        Ok(())
    }

    /// Makes all written objects durable. Only then may a ref name them.
    pub(crate) fn finish(&self) -> Result<(), GitError> {
        let sync = || -> io::Result<()> {
            if self.written.get() > SYNCED_SINGLY {
                return self.folder.sync_all();
            }
            self.folders.borrow().iter().try_for_each(|name| self.folder.sync_beside(name))
        };
        sync().map_err(GitError::write(self.folder.path()))
    }
}
