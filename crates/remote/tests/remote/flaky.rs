//! Object store whose uploads are lost at times, or their answers.

use crate::histories::Numbers;
use safepoint_model::Progress;
use safepoint_remote::{ConditionalPut, ListedObject, RemoteBytes, RemoteError};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A real object store behind a bad network. Everything but uploads passes.
pub(crate) struct FlakyBytes<B> {
    bytes: B,
    numbers: Mutex<Numbers>,
    is_on: Arc<AtomicBool>,
}

impl<B> FlakyBytes<B> {
    /// Returns the store, and the switch that makes it reliable.
    pub(crate) fn new(bytes: B, numbers: Numbers) -> (Self, Arc<AtomicBool>) {
        let is_on = Arc::new(AtomicBool::new(true));
        (Self { bytes, numbers: Mutex::new(numbers), is_on: is_on.clone() }, is_on)
    }
}

fn lost() -> RemoteError {
    RemoteError::Unreachable { what: "bytes", source: Box::new(io::Error::other("lost")) }
}

impl<B: RemoteBytes> RemoteBytes for FlakyBytes<B> {
    fn put(&self, name: &str, file: &File, bytes: u64, progress: &dyn Progress) -> Result<(), RemoteError> {
        let chance = self.numbers.lock().unwrap().below(16);
        if chance == 0 && self.is_on.load(Ordering::SeqCst) {
            return Err(lost());
        }
        self.bytes.put(name, file, bytes, progress)?;
        if chance == 1 && self.is_on.load(Ordering::SeqCst) {
            return Err(lost());
        }
        Ok(())
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        self.bytes.get(name, range)
    }

    fn download(&self, name: &str, out: &mut dyn Write, progress: &dyn Progress) -> Result<u64, RemoteError> {
        self.bytes.download(name, out, progress)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, RemoteError> {
        self.bytes.list(prefix)
    }

    fn delete(&self, names: &[String]) -> Result<(), RemoteError> {
        self.bytes.delete(names)
    }

    fn probe(&self) -> Result<ConditionalPut, RemoteError> {
        self.bytes.probe()
    }
}
