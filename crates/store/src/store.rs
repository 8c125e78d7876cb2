//! The store: opening it, and reading from it.
//!
//! In: a folder, and names of objects. Out: bytes that have these names, or what is wrong.
//! The index is believed for speed only. Where it is wrong the packs are asked, and the index is put right.

use crate::frame::{self, Codec};
use crate::index::{Index, Place};
use crate::open::{self, index_error};
use crate::pack;
use crate::survey::Survey;
use crate::{StoreError, Writer, linux, recover};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many packs stay open; a process has about a thousand files in all.
const OPEN_FILES_MAX: usize = 64;

/// How thorough a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything that should be there is there.
    Quick,
    /// Every byte is read, decompressed and hashed.
    Deep,
}

/// What may be done with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Everything.
    #[default]
    Write,
    /// Reading alone: no file and no folder is made, changed or flushed.
    Read,
}

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It can be read, as far as the check went.
    Intact,
    /// It is not there.
    Missing,
    /// It is there and cannot be read.
    Damaged(String),
}

/// How large things may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A pack that has reached this length is not appended to any more.
    pub pack_bytes: u64,
    /// All packs together; nothing where there is no limit.
    pub bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pack_bytes: crate::PACK_BYTES_MAX, bytes: None }
    }
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The length of all packs.
    pub pack_bytes: u64,
    /// How many packs there are.
    pub packs: u64,
    /// How many objects are in them.
    pub objects: u64,
}

/// A folder that keeps bytes by their hash. Many threads and many processes may use the same one at once.
pub struct Store {
    dir: PathBuf,
    access: Access,
    limits: Mutex<Limits>,
    index: Arc<Mutex<Slot>>,
    files: Mutex<HashMap<String, Arc<File>>>,
    pub(crate) surveyed: Mutex<Option<Arc<Survey>>>,
}

/// How long the last look at how much room there is holds.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The index, while it is open. One that keeps others out is open only while it is needed.
pub(crate) struct Slot {
    index: Option<Index>,
    looked: Instant,
    users: usize,
}

impl Slot {
    /// The index, opened again where it is closed or where there is no room any more for the one that is open.
    fn ready(&mut self, dir: &Path, access: Access) -> Result<&mut Index, StoreError> {
        if access == Access::Write && self.looked.elapsed() > LOOK_AGAIN {
            self.looked = Instant::now();
            let is_shared = self.index.as_ref().is_some_and(|index| !index.is_alone());
            if is_shared && linux::is_tight(dir) {
                self.index = None;
            }
        }
        let index = match (self.index.take(), access) {
            (Some(index), _) => index,
            (None, Access::Write) => open::open_index(dir)?,
            (None, Access::Read) => open::index_to_read(dir)?,
        };
        Ok(self.index.insert(index))
    }

    /// Lets others have the index where nothing here needs it any more.
    fn rest(&mut self) {
        if self.users == 0 && self.index.as_ref().is_some_and(Index::is_alone) {
            self.index = None;
        }
    }

    pub(crate) fn enter(&mut self) {
        self.users += 1;
    }

    pub(crate) fn leave(&mut self) {
        self.users = self.users.saturating_sub(1);
        self.rest();
    }
}

/// What asking for an object gave.
pub(crate) enum Answer {
    Bytes(ObjectKind, Vec<u8>),
    Missing,
    Damaged(String),
}

impl Answer {
    /// The bytes, if they are what was asked for.
    pub(crate) fn of_kind(self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        match self {
            Answer::Bytes(stored, bytes) if stored == kind => Ok(bytes),
            Answer::Bytes(..) => Err(ObjectError::Damaged { id, what: "it is of another kind".to_owned() }),
            Answer::Missing => Err(ObjectError::Missing { id }),
            Answer::Damaged(what) => Err(ObjectError::Damaged { id, what }),
        }
    }
}

/// So often the index may be taken away while a store is opened.
const OPEN_TRIES: usize = 50;

impl Store {
    /// Opens the store in this folder, and makes it where there is none. Finds again what a crash left without
    /// a row in the index, and builds the index anew where it is lost.
    ///
    /// # Errors
    /// When the folder cannot be used, or holds a newer format.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = &Self::place(dir)?;
        open::prepare(dir)?;
        let path = open::index_path(dir);
        let mut tries = 1..OPEN_TRIES;
        loop {
            let before = linux::identity(&path);
            match Self::open_fresh_index(dir) {
                // Somebody took the index away while it was opened. It is a cache: the next try makes it again.
                Err(StoreError::Index { .. })
                    if linux::identity(&path).is_none_or(|now| Some(now) != before)
                        && tries.next().is_some() => {}
                index => return Ok(Self::with(dir, Access::Write, index?)),
            }
        }
    }

    /// The index, with a row for everything that the packs hold.
    fn open_fresh_index(dir: &Path) -> Result<Index, StoreError> {
        let mut index = open::open_index(dir)?;
        match recover::refresh(dir, &mut index) {
            Err(error) if error.is_corrupt_index() => open::replace_index(dir, &index),
            other => other.map(|_| index),
        }
    }

    /// Opens the store in this folder for reading alone. Nothing is written, wherever it lies; an index that is missing, damaged or
    /// behind is built in memory.
    ///
    /// # Errors
    /// When there is no store, it may not be read, or it holds a newer format.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        let dir = &Self::place(dir)?;
        open::look(dir)?;
        Ok(Self::with(dir, Access::Read, open::index_to_read(dir)?))
    }

    fn place(dir: &Path) -> Result<PathBuf, StoreError> {
        linux::canonical(dir).map_err(|source| StoreError::Open { path: dir.to_owned(), source })
    }

    fn with(dir: &Path, access: Access, index: Index) -> Self {
        let mut slot = Slot { index: Some(index), looked: Instant::now(), users: 0 };
        slot.rest();
        Self {
            dir: dir.to_owned(),
            access,
            limits: Mutex::default(),
            index: Arc::new(Mutex::new(slot)),
            files: Mutex::default(),
            surveyed: Mutex::default(),
        }
    }

    /// Sets how large things may become from now on.
    pub fn limit(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// How large things may become.
    pub fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How large the disk is on which the store lies.
    ///
    /// # Errors
    /// When the disk cannot be asked.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        linux::disk_bytes(&self.dir).map_err(|source| StoreError::Open { path: self.dir.clone(), source })
    }

    /// The length of all packs.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn pack_bytes(&self) -> Result<u64, StoreError> {
        Ok(open::list_packs(&self.dir)?.iter().map(|(_, len)| len).sum())
    }

    /// A writer for one capture. It takes no lock before it has something to write.
    ///
    /// # Errors
    /// When the index fails, or the store was opened for reading alone.
    pub fn writer(&self) -> Result<Writer<'_>, StoreError> {
        if self.access == Access::Read {
            return Err(StoreError::ReadOnly { path: self.dir.clone() });
        }
        self.follow_index()?;
        Ok(Writer::new(self, self.with_index(|index| index.is_empty())?))
    }

    /// Whether the object is stored, as the index says.
    ///
    /// # Errors
    /// When the index fails.
    pub fn contains(&self, id: ObjectId) -> Result<bool, StoreError> {
        self.with_index(|index| index.contains(id))
    }

    /// How many bytes the object takes in its pack.
    ///
    /// # Errors
    /// When the index fails.
    pub fn stored_bytes(&self, id: ObjectId) -> Result<Option<u64>, StoreError> {
        let place = self.with_index(|index| index.find(id))?;
        Ok(place.map(|place| place.shape.stored_len.into()))
    }

    /// Whether any pack holds the object, whether or not the index leads to it.
    ///
    /// # Errors
    /// When the index or a pack fails.
    pub fn lies_in_a_pack(&self, id: ObjectId) -> Result<bool, StoreError> {
        Ok(self.locate(id)?.is_some())
    }

    /// Whether it holds no object at all.
    ///
    /// # Errors
    /// When the index fails.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        self.with_index(|index| index.is_empty())
    }

    /// Shows every document that can be read.
    ///
    /// # Errors
    /// When the index fails; a document that cannot be read is skipped.
    pub fn documents(&self, mut visit: impl FnMut(ObjectId, &[u8])) -> Result<(), StoreError> {
        let mut ids = Vec::new();
        self.with_index(|index| {
            ids.clear();
            index.each(|place| {
                if place.shape.kind == ObjectKind::Document {
                    ids.push(place.shape.id);
                }
            })
        })?;
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Answer::Bytes(ObjectKind::Document, bytes) = self.read(id)? {
                visit(id, &bytes);
            }
        }
        Ok(())
    }

    /// How an object is.
    ///
    /// # Errors
    /// When the store itself fails; damage is not a failure of the store but the answer.
    pub fn check(&self, depth: Depth, id: ObjectId) -> Result<Health, StoreError> {
        match depth {
            Depth::Deep => Ok(match self.read(id)? {
                Answer::Bytes(..) => Health::Intact,
                Answer::Missing => Health::Missing,
                Answer::Damaged(what) => Health::Damaged(what),
            }),
            Depth::Quick => {
                let Some(place) = self.locate(id)? else { return Ok(Health::Missing) };
                let end = place.at.saturating_add(place.shape.stored_len.into());
                Ok(match self.file(&place.pack).and_then(|file| Ok(file.metadata()?.len())) {
                    Ok(len) if len >= end => Health::Intact,
                    Ok(_) => Health::Damaged("its pack is too short".to_owned()),
                    Err(error) => Health::Damaged(format!("its pack cannot be opened: {error}")),
                })
            }
        }
    }

    /// Takes a damaged object out of the index, so that the next one who has its bytes stores them anew.
    /// An object that can be read stays. The result says whether it went.
    ///
    /// # Errors
    /// When the store itself fails.
    pub fn forget_damaged(&self, id: ObjectId) -> Result<bool, StoreError> {
        match self.read(id)? {
            Answer::Damaged(_) => self.with_index(|index| index.forget(id)),
            Answer::Bytes(..) | Answer::Missing => Ok(false),
        }
    }

    /// The names of all packs, and how long each is. As long as each of them is there and no shorter, everything that counted
    /// still counts: packs only grow.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn pack_lengths(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut packs = open::list_packs(&self.dir)?;
        packs.sort();
        Ok(packs)
    }

    /// How much the store holds.
    ///
    /// # Errors
    /// When the packs cannot be listed, or the index fails.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let packs = open::list_packs(&self.dir)?;
        Ok(Usage {
            pack_bytes: packs.iter().map(|(_, len)| len).sum(),
            packs: packs.len() as u64,
            objects: self.with_index(|index| index.count())?,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pack_path(&self, name: &str) -> PathBuf {
        open::pack_path(&self.dir, name)
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn slot(&self) -> Arc<Mutex<Slot>> {
        self.index.clone()
    }

    fn lock_slot(&self) -> MutexGuard<'_, Slot> {
        // No operation leaves the index half changed: SQLite rolls back.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the index as it is.
    fn try_index<T>(&self, act: impl FnOnce(&mut Index) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slot = self.lock_slot();
        let result = slot.ready(&self.dir, self.access).and_then(act);
        slot.rest();
        result
    }

    /// Does something with the index, and once more after building it anew where it proves to be corrupt.
    pub(crate) fn with_index<T>(
        &self,
        mut act: impl FnMut(&mut Index) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut act = |index: &mut Index| act(index).map_err(|source| index_error(&self.dir, source));
        match self.try_index(&mut act) {
            Err(error) if error.is_corrupt_index() => {
                self.heal()?;
                self.try_index(act)
            }
            other => other,
        }
    }

    /// Brings the index up to what the packs hold.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        if self.access == Access::Read {
            // What the packs alone filled knows all that they hold.
            return if self.try_index(|index| Ok(index.is_in_memory()))? { Ok(()) } else { self.heal() };
        }
        match self.try_index(|index| recover::refresh(&self.dir, index)) {
            Err(error) if error.is_corrupt_index() => self.heal(),
            other => other,
        }
    }

    /// Takes up the index that has the name now, where another has taken the place of ours.
    pub(crate) fn follow_index(&self) -> Result<(), StoreError> {
        if self.access == Access::Read {
            return Ok(());
        }
        let stale = !self.try_index(|index| Ok(index.is_current(&open::index_path(&self.dir))))?;
        if stale { self.heal() } else { Ok(()) }
    }

    /// Makes the index good again, from the packs.
    fn heal(&self) -> Result<(), StoreError> {
        let mut slot = self.lock_slot();
        let index = match (self.access, slot.index.take()) {
            (Access::Read, _) => open::index_in_memory(&self.dir)?,
            (Access::Write, Some(old)) => open::replace_index(&self.dir, &old)?,
            (Access::Write, None) => {
                let old = open::open_index(&self.dir)?;
                open::replace_index(&self.dir, &old)?
            }
        };
        slot.index = Some(index);
        slot.rest();
        Ok(())
    }

    /// Forgets the open file of a pack that is gone.
    pub(crate) fn close(&self, name: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The open file of a pack.
    pub(crate) fn file(&self, name: &str) -> io::Result<Arc<File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(name) {
            return Ok(file.clone());
        }
        let file = Arc::new(linux::open_read(&self.pack_path(name))?);
        if files.len() >= OPEN_FILES_MAX {
            files.clear();
        }
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    /// Where an object is, as the index says, or the packs where it does not.
    fn locate(&self, id: ObjectId) -> Result<Option<Place>, StoreError> {
        if let Some(place) = self.with_index(|index| index.find(id))? {
            return Ok(Some(place));
        }
        // Rare: it is missing, or another process is just replacing the index.
        self.follow_index()?;
        self.refresh()?;
        match self.with_index(|index| index.find(id))? {
            Some(place) => Ok(Some(place)),
            None => Ok(self.survey()?.places(id).first().cloned()),
        }
    }

    /// The bytes of an object, from where the index says, or from anywhere else in the packs.
    pub(crate) fn read(&self, id: ObjectId) -> Result<Answer, StoreError> {
        let first = self.with_index(|index| index.find(id))?;
        let mut answer = self.read_at(first.as_ref())?;
        if let Answer::Bytes(..) = answer {
            return Ok(answer);
        }
        // Rare: the index is behind, wrong or replaced, or the object is damaged and may have a second copy.
        self.follow_index()?;
        self.refresh()?;
        let second = self.with_index(|index| index.find(id))?;
        let survey = self.survey()?;
        for place in second.iter().chain(survey.places(id)).filter(|place| Some(*place) != first.as_ref()) {
            answer = self.read_at(Some(place))?;
            if let Answer::Bytes(..) = answer {
                if self.access == Access::Write {
                    self.with_index(|index| index.replace(place))?;
                }
                break;
            }
        }
        Ok(answer)
    }

    fn read_at(&self, place: Option<&Place>) -> Result<Answer, StoreError> {
        let Some(place) = place else { return Ok(Answer::Missing) };
        Ok(match self.read_place(place)? {
            Ok(bytes) => Answer::Bytes(place.shape.kind, bytes),
            Err(what) => Answer::Damaged(what),
        })
    }

    /// The object at a place, or what is wrong with it.
    pub(crate) fn read_place(&self, place: &Place) -> Result<Result<Vec<u8>, String>, StoreError> {
        if !place.shape.is_plausible() {
            return Ok(Err("its lengths are impossible".to_owned()));
        }
        let mut frame = Vec::new();
        let read = self
            .file(&place.pack)
            .and_then(|file| pack::read_frame(&file, place.at, place.shape.stored_len, &mut frame));
        match read {
            Ok(()) => {}
            Err(error) if is_loss(&error) => return Ok(Err(format!("it cannot be read: {error}"))),
            Err(source) => return Err(StoreError::ReadPack { path: self.pack_path(&place.pack), source }),
        }
        let mut scratch = Vec::new();
        Ok(match frame::decode(&place.shape, &frame, &mut scratch) {
            Ok(_) if place.shape.codec == Codec::Raw => Ok(frame),
            Ok(_) => Ok(scratch),
            Err(what) => Err(what.to_owned()),
        })
    }
}

impl ObjectSource for Store {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        self.read(id)?.of_kind(kind, id)
    }
}

/// Whether a read failed because the bytes are gone, and not because of us.
fn is_loss(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
