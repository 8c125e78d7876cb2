//! Power cuts on real file systems: from disk images and a program to the disks that a cut may leave.
//!
//! [`Recorder`] serves images as files over FUSE. A loop device turns each into a disk, the kernel mounts a
//! real file system on it, and every write, discard and flush that reaches the disk is an [`Event`], in one
//! order over all disks. [`cuts`] lists the states that a power cut may leave, [`Cut::media`] builds one of
//! them.
//!
//! Model of a disk: a flush makes durable everything that arrived at this disk before it. Any subset of the
//! rest may have arrived, in any order; a block of 4096 bytes arrives whole or not at all.
//!
//! Needs root, for loop devices and mounts.

mod cut;
mod fuse;
mod media;
mod mounts;

pub use cut::{Cut, cuts};
pub use fuse::Recorder;
pub use media::Media;
pub use mounts::{Filesystem, Mounts, in_own_namespace, missing};

/// Size of the unit that is written atomically.
pub const BLOCK_BYTES: usize = 4096;

/// Request that reached a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes at a position.
    Write {
        /// Number of the disk.
        disk: usize,
        /// Position of the first byte.
        offset: u64,
        /// Content.
        bytes: Vec<u8>,
    },
    /// Zeros at a position: a discard, or a request to write zeros.
    Zero {
        /// Number of the disk.
        disk: usize,
        /// Position of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Makes everything that reached this disk before it durable.
    Flush {
        /// Number of the disk.
        disk: usize,
    },
}

impl Event {
    /// Returns the number of the disk that received the request.
    pub fn disk(&self) -> usize {
        match self {
            Event::Write { disk, .. } | Event::Zero { disk, .. } | Event::Flush { disk } => *disk,
        }
    }

    /// Returns true for a flush.
    pub fn is_flush(&self) -> bool {
        matches!(self, Event::Flush { .. })
    }
}
