//! Part of a checkpoint defined outside Safepoint: a file of keys and values, anywhere on the disk, with a
//! lock beside it.
//!
//! It shows everything that such a part needs. Add [`KvParts`] to [`safepoint::Settings::parts`]; then each
//! checkpoint of a workspace includes the file, and a rollback restores it with the files of the workspace:
//! both or neither, even through a crash.

#![allow(clippy::disallowed_methods, reason = "this program owns its file")]

use safepoint::model::checkpoint::PartKind;
use safepoint::model::outside::{OutsideDocument, OutsideKind};
use safepoint::model::{ModelError, ObjectId, ObjectSink, RelPath, RollbackId};
use safepoint::{Captured, Error, Left, Note, Part, PartProvider, Prepared, Progress, Warning, Writer};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Name of the program for users. Messages show it if its code is missing.
pub const PROGRAM: &str = "the example with keys and values";
/// Name of the file.
const NAME: &str = "settings";

/// Folder of the file.
#[derive(Debug, Clone)]
pub struct KvParts {
    kind: OutsideKind,
    folder: PathBuf,
}

impl KvParts {
    /// Creates the part for a file of keys and values in this folder.
    ///
    /// # Errors
    /// Never fails: the name of the kind is valid.
    pub fn new(folder: &Path) -> Result<Self, ModelError> {
        Ok(Self { kind: "kv.example".parse()?, folder: folder.to_owned() })
    }

    /// Sets a key under the lock, as any cooperating program would.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let part = self.part();
        let _lock = part.lock()?;
        let mut text = part.read()?.unwrap_or_default();
        text.extend_from_slice(format!("{key}={value}\n").as_bytes());
        part.write(Some(&text))
    }

    /// Returns the content of the file; `None` if it is missing.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn text(&self) -> io::Result<Option<String>> {
        Ok(self.part().read()?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn part(&self) -> KvPart {
        KvPart { kind: self.kind, path: self.folder.join(format!("{NAME}.kv")) }
    }
}

impl PartProvider for KvParts {
    fn kind(&self) -> OutsideKind {
        self.kind
    }

    fn find(&self, _: &Path) -> Result<Vec<String>, Error> {
        Ok(vec![NAME.to_owned()])
    }

    fn open(&self, _: &Path, name: &str) -> Result<Box<dyn Part>, Error> {
        match name {
            NAME => Ok(Box::new(self.part())),
            other => {
                let why = io::Error::new(io::ErrorKind::NotFound, "file of keys and values not found");
                Err(failed(&format!("cannot open {other:?}"), why))
            }
        }
    }
}

fn failed(what: &str, source: io::Error) -> Error {
    Error::Part { what: what.to_owned(), source: Box::new(source) }
}

/// The file.
#[derive(Debug, Clone)]
struct KvPart {
    kind: OutsideKind,
    path: PathBuf,
}

impl KvPart {
    /// Takes the lock that every writer of the file takes first.
    fn lock(&self) -> io::Result<File> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path.with_extension("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes or removes the file atomically and durably.
    fn write(&self, bytes: Option<&[u8]>) -> io::Result<()> {
        match bytes {
            Some(bytes) => {
                self.stage(bytes)?;
                fs::rename(self.path.with_extension("new"), &self.path)?;
            }
            None => remove(&self.path)?,
        }
        self.sync_folder()
    }

    fn stage(&self, bytes: &[u8]) -> io::Result<()> {
        let mut new = File::create(self.path.with_extension("new"))?;
        new.write_all(bytes)?;
        new.sync_all()
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn error(&self, what: &str) -> impl Fn(io::Error) -> Error {
        let what = format!("cannot {what} {}", self.path.display());
        move |source| failed(&what, source)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Part for KvPart {
    fn kind(&self) -> PartKind {
        PartKind::Outside(self.kind)
    }

    fn key(&self) -> String {
        NAME.to_owned()
    }

    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        let _lock = self.lock().map_err(self.error("lock"))?;
        let bytes = self.read().map_err(self.error("read"))?;
        let contents = match &bytes {
            Some(bytes) => vec![writer.put_content(bytes.len() as u64, &mut bytes.as_slice())?],
            None => Vec::new(),
        };
        let document = OutsideDocument::new(PROGRAM, contents, json!({ "is_there": bytes.is_some() }));
        Ok(Captured::document(document.store(writer)?))
    }

    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let then = |id: ObjectId| -> Result<Option<Vec<u8>>, Error> {
            let document = OutsideDocument::load(writer, id)?;
            Ok((!document.contents.is_empty()).then(|| document.read(writer, 0)).transpose()?)
        };
        let (old, new) = (now.map(then).transpose()?.flatten(), then(target)?);
        let lock = self.lock().map_err(self.error("lock"))?;
        Ok(Box::new(KvRollback { part: self, old, new, _lock: lock }))
    }

    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        let old = match left.note.split_first() {
            Some((1, bytes)) => Some(bytes.to_vec()),
            _ => None,
        };
        let lock = self.lock().map_err(self.error("lock"))?;
        Ok(Box::new(KvRollback { part: self, old, new: None, _lock: lock }))
    }
}

/// Running rollback of the file. The lock excludes writers.
struct KvRollback<'p> {
    part: &'p KvPart,
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
    _lock: File,
}

impl Prepared for KvRollback<'_> {
    fn note(&self) -> Option<Note> {
        let mut bytes = vec![u8::from(self.old.is_some())];
        bytes.extend(self.old.iter().flatten());
        Some(Note { program: PROGRAM.to_owned(), bytes })
    }

    fn stage(&mut self, _: RollbackId, _: &dyn Progress) -> Result<(), Error> {
        // Another program may have written between the capture and the lock.
        if self.part.read().map_err(self.part.error("read"))? != self.old {
            return Err(self.part.error("roll back")(io::Error::other("it changed concurrently; try again")));
        }
        self.new.iter().try_for_each(|bytes| self.part.stage(bytes)).map_err(self.part.error("write"))
    }

    fn apply(&mut self, _: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        self.part.write(self.new.as_deref()).map_err(self.part.error("write"))?;
        Ok(Vec::new())
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        self.part.write(self.old.as_deref()).map_err(self.part.error("restore"))?;
        Ok(Vec::new())
    }

    fn clear(&mut self) -> Result<bool, Error> {
        remove(&self.part.path.with_extension("new")).map_err(self.part.error("clean up beside"))?;
        Ok(true)
    }
}
