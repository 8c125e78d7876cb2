//! Files with holes: stored and compared by their data.

use crate::linux::{self, Facts};
use rustix::fd::OwnedFd;
use safepoint_model::content::{Content, HOLE_BYTES};
use safepoint_model::{ObjectError, ObjectSink, SparseRead};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Returns true if a file has a large hole; shorter ones are read as zeros.
pub(crate) fn is_sparse(facts: &Facts) -> bool {
    facts.disk_bytes.saturating_add(HOLE_BYTES) <= facts.size
}

/// Stores the content of an open file.
pub(crate) fn put_file(sink: &dyn ObjectSink, file: &File, facts: &Facts) -> Result<Content, ObjectError> {
    let mut reader = SparseFile { file, at: 0 };
    match is_sparse(facts) {
        true => sink.put_sparse(facts.size, &mut reader),
        false => sink.put_content(facts.size, &mut { file }),
    }
}

/// Open file whose holes are skipped.
pub(crate) struct SparseFile<'f> {
    pub(crate) file: &'f File,
    pub(crate) at: u64,
}

impl Read for SparseFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let came = self.file.read_at(buffer, self.at)?;
        self.at += came as u64;
        Ok(came)
    }
}

impl SparseRead for SparseFile<'_> {
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        linux::data_from(self.file, at)
    }

    fn go_to(&mut self, at: u64) {
        self.at = at;
    }
}

/// Returns true if a range of an open file is zero; reads only its data.
pub(crate) fn is_zero(file: &File, range: Range<u64>) -> io::Result<bool> {
    let mut buffer = vec![0; 64 * 1024];
    let mut at = range.start;
    while let Some(data) = linux::data_from(file, at)?.filter(|data| data.start < range.end) {
        at = data.start;
        let end = data.end.min(range.end);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let came = file.read_at(&mut buffer[..len], at)?;
            if came == 0 || buffer[..came].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += came as u64;
        }
    }
    Ok(true)
}

/// Stores the content of an open file and returns the file.
pub(crate) fn put_fd(
    sink: &dyn ObjectSink,
    fd: OwnedFd,
    facts: &Facts,
) -> (Result<Content, ObjectError>, OwnedFd) {
    let file = File::from(fd);
    (put_file(sink, &file, facts), file.into())
}
