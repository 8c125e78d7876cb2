//! Store: opening and reading.
//!
//! In: a folder, and object ids. Out: bytes with these hashes, or the damage. The index is trusted only for
//! speed. If it is wrong, the packs are searched and the index is repaired.

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
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of open packs; a process may open about a thousand files.
const OPEN_FILES_MAX: usize = 64;

/// Depth of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Checks that every object is present.
    Quick,
    /// Reads, decompresses and hashes every byte.
    Deep,
}

/// Access mode of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreAccess {
    /// Reading and writing.
    #[default]
    Write,
    /// Reading only: no file or folder is created, changed or flushed.
    Read,
}

/// State of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Readable, as far as it was checked.
    Intact,
    /// Not found.
    Missing,
    /// Present but unreadable.
    Damaged(String),
}

/// Size limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Length at which a pack is full.
    pub pack_bytes: u64,
    /// Maximum length of all packs, or `None` for no limit.
    pub bytes: Option<u64>,
    /// Bytes beyond the maximum for writers with [`crate::Writer::from_reserve`].
    pub reserve_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pack_bytes: crate::PACK_BYTES_MAX, bytes: None, reserve_bytes: 0 }
    }
}

/// Size of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Length of all packs.
    pub pack_bytes: u64,
    /// Number of packs.
    pub packs: u64,
    /// Number of objects.
    pub objects: u64,
}

/// Folder with content-addressed objects. Many threads and processes may use it at the same time.
pub struct Store {
    dir: PathBuf,
    access: StoreAccess,
    limits: Mutex<Limits>,
    index: Arc<Mutex<Slot>>,
    files: Mutex<HashMap<String, Arc<File>>>,
    pub(crate) surveyed: Mutex<Option<Arc<Survey>>>,
}

/// Validity of the last free-space check.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Open index. An exclusive one is open only while it is needed.
pub(crate) struct Slot {
    index: Option<Index>,
    looked: Instant,
    users: usize,
}

impl Slot {
    /// Returns the index; reopens it if it is closed, or if free space is too low for a shared one.
    fn ready(&mut self, dir: &Path, access: StoreAccess) -> Result<&mut Index, StoreError> {
        if access == StoreAccess::Write && self.looked.elapsed() > LOOK_AGAIN {
            self.looked = Instant::now();
            let is_shared = self.index.as_ref().is_some_and(|index| !index.is_alone());
            if is_shared && linux::is_tight(dir) {
                self.index = None;
            }
        }
        let index = match (self.index.take(), access) {
            (Some(index), _) => index,
            (None, StoreAccess::Write) => open::open_index(dir)?,
            (None, StoreAccess::Read) => open::index_to_read(dir)?,
        };
        Ok(self.index.insert(index))
    }

    /// Closes an exclusive index that is no longer used here.
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

    #[cfg(test)]
    pub(crate) fn reopen(&mut self, dir: &Path, locking: crate::index::Locking) {
        self.index = None;
        self.index = Index::open(&dir.join("index.db"), locking).unwrap();
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.index.is_some()
    }
}

/// Result of reading an object.
pub(crate) enum Answer {
    Bytes(ObjectKind, Vec<u8>),
    Missing,
    Damaged(String),
}

impl Answer {
    /// Returns the bytes if the object has this kind.
    pub(crate) fn of_kind(self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        match self {
            Answer::Bytes(stored, bytes) if stored == kind => Ok(bytes),
            Answer::Bytes(..) => Err(ObjectError::Damaged { id, what: "it has another kind".to_owned() }),
            Answer::Missing => Err(ObjectError::Missing { id }),
            Answer::Damaged(what) => Err(ObjectError::Damaged { id, what }),
        }
    }
}

/// Number of tries if the index is removed during opening.
const OPEN_TRIES: usize = 50;
/// Pause before another try.
const OPEN_PAUSE: Duration = Duration::from_millis(1);
/// Number of tries to find an object while other processes replace the index.
const LOOK_TRIES: usize = 50;

impl Store {
    /// Opens the store in this folder, and creates it if missing. Adds rows for segments that a crash left
    /// unindexed, and rebuilds a lost index.
    ///
    /// # Errors
    /// When the folder cannot be used, or has a newer format.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = &Self::place(dir)?;
        open::prepare(dir)?;
        let path = open::index_path(dir);
        let mut tries = 1..OPEN_TRIES;
        loop {
            let before = linux::identity(&path);
            match Self::open_fresh_index(dir) {
                // Another process removed the index during opening. It is a cache: the next try creates it
                // again. A new file may have the number of the old one, so a file that cannot be opened
                // is tried again, too.
                Err(StoreError::Index { source, .. })
                    if (linux::identity(&path).is_none_or(|now| Some(now) != before)
                        || source.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen))
                        && tries.next().is_some() =>
                {
                    thread::sleep(OPEN_PAUSE);
                }
                index => return Ok(Self::with(dir, StoreAccess::Write, index?)),
            }
        }
    }

    /// Opens the index and adds rows for everything in the packs.
    fn open_fresh_index(dir: &Path) -> Result<Index, StoreError> {
        let mut index = open::open_index(dir)?;
        match recover::refresh(dir, &mut index) {
            Err(error) if error.is_corrupt_index() => open::replace_index(dir, &index),
            other => other.map(|_| index),
        }
    }

    /// Opens the store in this folder read-only. Nothing is written; a missing, damaged or outdated index is
    /// rebuilt in memory.
    ///
    /// # Errors
    /// When the store is missing, unreadable, or has a newer format.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        let dir = &Self::place(dir)?;
        open::look(dir)?;
        Ok(Self::with(dir, StoreAccess::Read, open::index_to_read(dir)?))
    }

    fn place(dir: &Path) -> Result<PathBuf, StoreError> {
        linux::canonical(dir).map_err(|source| StoreError::Open { path: dir.to_owned(), source })
    }

    fn with(dir: &Path, access: StoreAccess, index: Index) -> Self {
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

    /// Sets the size limits.
    pub fn limit(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Size limits.
    pub fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the disk that contains the store.
    ///
    /// # Errors
    /// When the file system cannot be queried.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        linux::disk_bytes(&self.dir).map_err(|source| StoreError::Open { path: self.dir.clone(), source })
    }

    /// Returns the length of all packs.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn pack_bytes(&self) -> Result<u64, StoreError> {
        Ok(open::list_packs(&self.dir)?.iter().map(|(_, len)| len).sum())
    }

    /// Returns a writer for one capture. It takes no lock before the first write.
    ///
    /// # Errors
    /// When the index fails, or the store is open read-only.
    pub fn writer(&self) -> Result<Writer<'_>, StoreError> {
        if self.access == StoreAccess::Read {
            return Err(StoreError::ReadOnly { path: self.dir.clone() });
        }
        self.follow_index()?;
        Ok(Writer::new(self, self.with_index(|index| index.is_empty())?))
    }

    /// Returns true if the index names the object.
    ///
    /// # Errors
    /// When the index fails.
    pub fn contains(&self, id: ObjectId) -> Result<bool, StoreError> {
        self.with_index(|index| index.contains(id))
    }

    /// Returns the length of the object in its pack.
    ///
    /// # Errors
    /// When the index fails.
    pub fn stored_bytes(&self, id: ObjectId) -> Result<Option<u64>, StoreError> {
        let place = self.with_index(|index| index.find(id))?;
        Ok(place.map(|place| place.shape.stored_len.into()))
    }

    /// Returns true if any pack contains the object, even if the index does not name it.
    ///
    /// # Errors
    /// When the index or a pack fails.
    pub fn lies_in_a_pack(&self, id: ObjectId) -> Result<bool, StoreError> {
        Ok(self.locate(id)?.is_some())
    }

    /// Returns true if the store has no objects.
    ///
    /// # Errors
    /// When the index fails.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        self.with_index(|index| index.is_empty())
    }

    /// Visits every readable document.
    ///
    /// # Errors
    /// When the index fails; an unreadable document is skipped.
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

    /// Returns the state of an object.
    ///
    /// # Errors
    /// When the store itself fails; damage is a result, not an error.
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

    /// Removes a damaged object from the index, so that the next capture with its bytes stores them again. A
    /// readable object stays. Returns true if it was removed.
    ///
    /// # Errors
    /// When the store itself fails.
    pub fn forget_damaged(&self, id: ObjectId) -> Result<bool, StoreError> {
        match self.read(id)? {
            Answer::Damaged(_) => self.with_index(|index| index.forget(id)),
            Answer::Bytes(..) | Answer::Missing => Ok(false),
        }
    }

    /// Returns the names and lengths of all packs. While each is present and no shorter, all committed
    /// objects are present: packs only grow.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn pack_lengths(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut packs = open::list_packs(&self.dir)?;
        packs.sort();
        Ok(packs)
    }

    /// Returns the size of the store.
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

    pub(crate) fn access(&self) -> StoreAccess {
        self.access
    }

    pub(crate) fn slot(&self) -> Arc<Mutex<Slot>> {
        self.index.clone()
    }

    fn lock_slot(&self) -> MutexGuard<'_, Slot> {
        // No operation leaves the index partly changed: SQLite rolls back.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the index as it is.
    fn try_index<T>(&self, act: impl FnOnce(&mut Index) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slot = self.lock_slot();
        let result = slot.ready(&self.dir, self.access).and_then(act);
        slot.rest();
        result
    }

    /// Runs `act` on the index, and again after a rebuild if the index is corrupt.
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

    /// Adds rows for all unindexed segments.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        if self.access == StoreAccess::Read {
            // An index built in memory already covers the packs.
            return if self.try_index(|index| Ok(index.is_in_memory()))? { Ok(()) } else { self.heal() };
        }
        match self.try_index(|index| recover::refresh(&self.dir, index)) {
            Err(error) if error.is_corrupt_index() => self.heal(),
            other => other,
        }
    }

    /// Reopens the index if its file was replaced.
    pub(crate) fn follow_index(&self) -> Result<(), StoreError> {
        if self.access == StoreAccess::Read {
            return Ok(());
        }
        let stale = !self.try_index(|index| Ok(index.is_current(&open::index_path(&self.dir))))?;
        if stale { self.heal() } else { Ok(()) }
    }

    /// Repairs the index from the packs.
    fn heal(&self) -> Result<(), StoreError> {
        let mut slot = self.lock_slot();
        let index = match (self.access, slot.index.take()) {
            (StoreAccess::Read, _) => open::index_in_memory(&self.dir)?,
            (StoreAccess::Write, Some(old)) => open::replace_index(&self.dir, &old)?,
            (StoreAccess::Write, None) => {
                let old = open::open_index(&self.dir)?;
                open::replace_index(&self.dir, &old)?
            }
        };
        slot.index = Some(index);
        slot.rest();
        Ok(())
    }

    /// Drops the open file of a deleted pack.
    pub(crate) fn close(&self, name: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the open file of a pack.
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

    /// Returns the position of an object from the index, or from the packs if the index lacks it.
    fn locate(&self, id: ObjectId) -> Result<Option<Place>, StoreError> {
        if let Some(place) = self.with_index(|index| index.find(id))? {
            return Ok(Some(place));
        }
        // Rare: the object is missing, or another process is replacing the index.
        for _ in 0..LOOK_TRIES {
            self.follow_index()?;
            self.refresh()?;
            // First the survey: it lists what the index lacks, and another process may add that at any moment.
            let survey = self.survey()?;
            let place = self.with_index(|index| index.find(id))?;
            let place = place.or_else(|| survey.places(id).first().cloned());
            if place.is_some() || self.has_index(survey.index()) {
                return Ok(place);
            }
        }
        Ok(None)
    }

    /// Returns true if the index is still this file.
    fn has_index(&self, identity: Option<(u64, u64)>) -> bool {
        self.access == StoreAccess::Read || identity == linux::identity(&open::index_path(&self.dir))
    }

    /// Returns the bytes of an object from its indexed position, or from any other copy in the packs.
    pub(crate) fn read(&self, id: ObjectId) -> Result<Answer, StoreError> {
        let first = self.with_index(|index| index.find(id))?;
        let mut answer = self.read_at(first.as_ref())?;
        if let Answer::Bytes(..) = answer {
            return Ok(answer);
        }
        // Rare: the index is outdated, wrong or replaced, or the object is damaged and may have a second
        // copy.
        for _ in 0..LOOK_TRIES {
            self.follow_index()?;
            self.refresh()?;
            // First the survey: it lists what the index lacks, and another process may add that at any moment.
            let survey = self.survey()?;
            let second = self.with_index(|index| index.find(id))?;
            for place in second.iter().chain(survey.places(id)).filter(|place| Some(*place) != first.as_ref())
            {
                answer = self.read_at(Some(place))?;
                if let Answer::Bytes(..) = answer {
                    if self.access == StoreAccess::Write {
                        self.with_index(|index| index.replace(place))?;
                    }
                    return Ok(answer);
                }
            }
            if self.has_index(survey.index()) {
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

    /// Returns the object at a position, or its damage.
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

/// Returns true if a read failed because the bytes are lost, not because of this process.
fn is_loss(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
