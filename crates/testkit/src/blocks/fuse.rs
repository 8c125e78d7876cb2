//! FUSE server with one file per disk, which records every request that would reach a disk.
//!
//! It answers requests one at a time, so their order is the order of the log: when a flush arrives, earlier
//! requests have been answered. Protocol of the kernel: `include/uapi/linux/fuse.h`.

use super::mounts::unmount;
use super::{Event, Media};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const ROOT: u64 = 1;
/// Node of disk 0; the others follow.
const FIRST_DISK: u64 = 2;
const HEADER_BYTES: usize = 40;
/// Maximum size of one write.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Cache time of the kernel, in seconds.
const VALID: u64 = 86_400;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;

const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;

/// Serves disks and records requests to them.
pub struct Recorder {
    folder: PathBuf,
    count: usize,
    events: Arc<Mutex<Vec<Event>>>,
    server: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Serves disks with this content, in an existing folder.
    pub fn start(folder: &Path, disks: Vec<Media>) -> io::Result<Recorder> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount(Some("testkit"), folder, Some("fuse"), MsFlags::MS_NODEV, Some(options.as_str()))?;
        let (count, events) = (disks.len(), Arc::default());
        let mut server = Server { device, disks, events: Arc::clone(&events) };
        let server = std::thread::spawn(move || server.serve());
        Ok(Recorder { folder: folder.to_owned(), count, events, server: Some(server) })
    }

    /// Returns the files for loop devices.
    pub fn images(&self) -> Vec<PathBuf> {
        (0..self.count).map(|disk| self.folder.join(disk.to_string())).collect()
    }

    /// Returns the number of requests so far.
    pub fn position(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Stops the server and returns the recorded requests. The disks must be unmounted.
    pub fn finish(mut self) -> io::Result<Vec<Event>> {
        self.stop()?;
        Ok(std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn stop(&mut self) -> io::Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        unmount(&self.folder)?;
        server.join().map_err(|_| io::Error::other("the FUSE server panicked"))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

struct Server {
    device: File,
    disks: Vec<Media>,
    events: Arc<Mutex<Vec<Event>>>,
}

/// Reply, or `None` for no reply.
type Answer = Option<Result<Vec<u8>, Errno>>;

impl Server {
    /// Serves until it is unmounted, which the kernel reports as ENODEV.
    fn serve(&mut self) {
        let mut buffer = vec![0; WRITE_BYTES_MAX as usize + 4096];
        loop {
            let len = match self.device.read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let request = Request(&buffer[..len]);
            let Some(answer) = self.answer(&request) else { continue };
            let (error, body) = answer.map_or_else(|errno| (-(errno as i32), Vec::new()), |body| (0, body));
            let mut reply = Reply::default();
            reply.word(16 + body.len() as u32).word(error.cast_unsigned()).long(request.unique());
            reply.0.extend(body);
            // A cancelled request needs no reply.
            let _ = self.device.write(&reply.0);
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Answer {
        Some(match request.opcode() {
            INIT => Ok(init()),
            LOOKUP => self.lookup(request),
            GETATTR | SETATTR => {
                Ok(Reply::default().long(VALID).long(0).attributes(self, request.node()).0.clone())
            }
            OPEN => Ok(Reply::default().long(0).long(0).0.clone()),
            READ => self.on_disk(request).map(|disk| {
                let (offset, len) = (request.long(8), request.word(16) as usize);
                self.disks[disk].read(offset, len)
            }),
            WRITE => self.on_disk(request).map(|disk| self.write(disk, request)),
            FALLOCATE => self.on_disk(request).map(|disk| {
                let (offset, len) = (request.long(8), request.long(16));
                self.happened(Event::Zero { disk, offset, len });
                Vec::new()
            }),
            FSYNC => self.on_disk(request).map(|disk| {
                self.happened(Event::Flush { disk });
                Vec::new()
            }),
            STATFS => Ok(vec![0; 80]),
            RELEASE | FLUSH => Ok(Vec::new()),
            FORGET | BATCH_FORGET | INTERRUPT => return None,
            _ => Err(Errno::ENOSYS),
        })
    }

    fn on_disk(&self, request: &Request<'_>) -> Result<usize, Errno> {
        let disk = request.node().checked_sub(FIRST_DISK).ok_or(Errno::EISDIR)? as usize;
        (disk < self.disks.len()).then_some(disk).ok_or(Errno::ENOENT)
    }

    fn lookup(&self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let name = String::from_utf8_lossy(request.body()).trim_end_matches('\0').to_owned();
        let disk = name.parse::<usize>().ok().filter(|disk| *disk < self.disks.len()).ok_or(Errno::ENOENT)?;
        let node = FIRST_DISK + disk as u64;
        let mut reply = Reply::default();
        reply.long(node).long(0).long(VALID).long(VALID).long(0).attributes(self, node);
        Ok(reply.0)
    }

    fn write(&mut self, disk: usize, request: &Request<'_>) -> Vec<u8> {
        let (offset, len) = (request.long(8), request.word(16));
        let bytes = request.body()[40..40 + len as usize].to_vec();
        self.happened(Event::Write { disk, offset, bytes });
        Reply::default().word(len).word(0).0.clone()
    }

    fn happened(&mut self, event: Event) {
        self.disks[event.disk()].apply(&event);
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

fn init() -> Vec<u8> {
    let mut reply = Reply::default();
    // Version 7.31, no read-ahead; 16 background requests; time in nanoseconds.
    reply.word(7).word(31).word(0).word(ASYNC_READ | BIG_WRITES | MAX_PAGES);
    reply.word(16 | 12 << 16).word(WRITE_BYTES_MAX).word(1).word(WRITE_BYTES_MAX / 4096);
    for _ in 0..8 {
        reply.word(0);
    }
    reply.0
}

/// Request of the kernel: a header, then the body of the operation.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn opcode(&self) -> u32 {
        u32::from_ne_bytes(self.bytes(4))
    }

    fn unique(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(8))
    }

    fn node(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(16))
    }

    fn body(&self) -> &[u8] {
        self.0.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// Reads a word of the body.
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(HEADER_BYTES + at))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(HEADER_BYTES + at))
    }

    fn bytes<const COUNT: usize>(&self, at: usize) -> [u8; COUNT] {
        let found = self.0.get(at..at + COUNT).and_then(|bytes| bytes.try_into().ok());
        found.unwrap_or([0; COUNT])
    }
}

#[derive(Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn attributes(&mut self, server: &Server, node: u64) -> &mut Self {
        let disk = server.disks.get(node.wrapping_sub(FIRST_DISK) as usize);
        let size = disk.map_or(0, Media::len);
        let mode = if node == ROOT { 0o040_700 } else { 0o100_600 };
        // Number, size, blocks; three times, in seconds; and their fractions.
        self.long(node).long(size).long(size / 512).long(0).long(0).long(0).word(0).word(0).word(0);
        // Mode, links, user, group, device, block size, flags.
        self.word(mode).word(1).word(0).word(0).word(0).word(4096).word(0)
    }
}
