//! Sink that counts the bytes of files while they are read, and stops between two reads when interrupted.

use safepoint_model::content::Content;
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, Progress, SparseRead};
use std::io::{self, Read};
use std::ops::Range;

/// Sink with progress reports.
pub(super) struct Watched<'a, S> {
    pub(super) sink: &'a S,
    pub(super) progress: &'a dyn Progress,
}

impl<S> Watched<'_, S> {
    /// Reports the interrupt in place of the read error that it caused.
    fn stored(&self, stored: Result<Content, ObjectError>, stopped: bool) -> Result<Content, ObjectError> {
        if stopped { Err(ObjectError::Interrupted) } else { stored }
    }
}

impl<S: ObjectSink> ObjectSink for Watched<'_, S> {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        self.sink.put(kind, bytes)
    }

    fn put_tree(&self, bytes: &[u8], below: &[ObjectId]) -> Result<ObjectId, ObjectError> {
        self.sink.put_tree(bytes, below)
    }

    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        self.sink.recall(kind, id, bytes);
    }

    fn put_content(&self, size_hint: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        let mut reader = Reader { reader, progress: self.progress, stopped: false };
        let stored = self.sink.put_content(size_hint, &mut reader);
        self.stored(stored, reader.stopped)
    }

    fn put_sparse(&self, size: u64, reader: &mut dyn SparseRead) -> Result<Content, ObjectError> {
        let mut reader = Reader { reader, progress: self.progress, stopped: false };
        let stored = self.sink.put_sparse(size, &mut reader);
        self.stored(stored, reader.stopped)
    }
}

struct Reader<'r, R: ?Sized> {
    reader: &'r mut R,
    progress: &'r dyn Progress,
    stopped: bool,
}

impl<R: Read + ?Sized> Read for Reader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.interrupted() {
            self.stopped = true;
            // `ErrorKind::Interrupted` would be retried.
            return Err(io::Error::other("interrupted"));
        }
        let came = self.reader.read(buffer)?;
        self.progress.advance(0, came as u64);
        Ok(came)
    }
}

impl<R: SparseRead + ?Sized> SparseRead for Reader<'_, R> {
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        self.reader.data_from(at)
    }

    fn go_to(&mut self, at: u64) {
        self.reader.go_to(at);
    }

    fn keeps_holes(&self) -> bool {
        self.reader.keeps_holes()
    }
}
