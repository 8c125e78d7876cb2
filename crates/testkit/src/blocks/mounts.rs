//! Real file systems on images: made, mounted through loop devices, and unmounted whatever happens.
//!
//! All mounts are in a mount namespace of their own: when its last process ends, even by SIGKILL, the kernel unmounts
//! them and frees the loop devices.

use super::Media;
use nix::mount::{MntFlags, umount2};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A file system whose power cuts are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4 with its default options.
    Ext4,
    /// XFS with its default options.
    Xfs,
    /// Btrfs with its default options.
    Btrfs,
}

impl Filesystem {
    /// Its name for `mount -t`.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// Size of an image; the smallest that the tools take without a warning.
    fn image_bytes(self) -> u64 {
        let mebibytes: u64 = match self {
            Filesystem::Ext4 => 64,
            Filesystem::Xfs => 300,
            Filesystem::Btrfs => 128,
        };
        mebibytes << 20
    }

    /// Makes an empty file system on a new image.
    pub fn make(self, image: &Path) -> io::Result<()> {
        File::create(image)?.set_len(self.image_bytes())?;
        let options: &[&str] = match self {
            // Without the lazy initialisation no kernel thread writes at moments of its own.
            Filesystem::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Filesystem::Xfs => &["-q", "-f"],
            Filesystem::Btrfs => &["-q", "-f"],
        };
        run(Command::new(format!("mkfs.{}", self.name())).args(options).arg(image)).map(drop)
    }
}

/// Mounted file systems. Dropping it unmounts them.
#[derive(Debug, Default)]
pub struct Mounts(Vec<PathBuf>);

impl Mounts {
    /// Mounts the first image at the first place, the second at the second.
    pub fn mount(filesystem: Filesystem, images: &[PathBuf], places: &[PathBuf]) -> io::Result<Mounts> {
        let mut mounts = Mounts::default();
        if filesystem == Filesystem::Btrfs {
            // The kernel remembers a newer generation of the same file system, and would refuse an older one.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]))?;
        }
        for (image, place) in images.iter().zip(places) {
            let mut mount = Command::new("mount");
            run(mount.args(["-t", filesystem.name(), "-o", "loop"]).arg(image).arg(place))?;
            mounts.0.push(place.clone());
        }
        Ok(mounts)
    }

    /// Unmounts everything, and reports why it could not.
    pub fn unmount(mut self) -> io::Result<()> {
        while let Some(place) = self.0.pop() {
            unmount(&place)?;
        }
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for place in self.0.iter().rev() {
            if unmount(place).is_err() {
                // Whoever still holds it keeps it alive; nobody else sees it.
                let _ = umount2(place, MntFlags::MNT_DETACH);
            }
        }
    }
}

/// Unmounts; waits for a program that has just ended.
pub(super) fn unmount(place: &Path) -> io::Result<()> {
    for _ in 0..200 {
        match umount2(place, MntFlags::empty()) {
            Err(nix::errno::Errno::EBUSY) => std::thread::sleep(Duration::from_millis(10)),
            ended => return Ok(ended?),
        }
    }
    Err(io::Error::other(format!("cannot unmount {}: it is in use", place.display())))
}

/// Reads the images of unmounted file systems.
impl Media {
    /// Reads each of the images.
    pub fn load_all(images: &[PathBuf]) -> io::Result<Vec<Media>> {
        images.iter().map(|image| Media::load(image)).collect()
    }
}

/// What is missing on this machine for power cuts on this file system, if anything is.
pub fn missing(filesystem: Filesystem) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it needs root, for loop devices and mounts".to_owned());
    }
    if let Some(device) = ["/dev/fuse", "/dev/loop-control"].iter().find(|path| !Path::new(path).exists()) {
        return Some(format!("the kernel has no {device}"));
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.trim() == filesystem.name()) {
        return Some(format!("the kernel has no {}", filesystem.name()));
    }
    let tools = ["unshare", "mount", &format!("mkfs.{}", filesystem.name())].map(str::to_owned);
    let more = (filesystem == Filesystem::Btrfs).then(|| "btrfs".to_owned());
    let absent = |tool: &String| Command::new(tool).arg("--version").output().is_err();
    tools.into_iter().chain(more).find(absent).map(|tool| format!("the program {tool} is not installed"))
}

/// Whether this process has a mount namespace of its own. If not, the test of this name is run again in a process that has one,
/// and must succeed there.
pub fn in_own_namespace(test: &str) -> io::Result<bool> {
    const MARK: &str = "SAFEPOINT_TESTKIT_NAMESPACE";
    if std::env::var_os(MARK).is_some() {
        return Ok(true);
    }
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe()?);
    let ended = again.args(["--include-ignored", "--exact", "--nocapture", test]).env(MARK, "1").status()?;
    match ended.success() {
        true => Ok(false),
        false => Err(io::Error::other(format!("{test} failed in its own mount namespace: {ended}"))),
    }
}

fn run(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{command:?}: {}: {}", output.status, why.trim())))
        }
    }
}
