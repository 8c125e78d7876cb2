//! Real file systems on images: created, mounted through loop devices, and always unmounted.
//!
//! All mounts are in a separate mount namespace: when its last process ends, even by SIGKILL, the kernel
//! unmounts them and frees the loop devices.

use super::Media;
use nix::mount::{MntFlags, umount2};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// File system to test with power cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4 with default options.
    Ext4,
    /// XFS with default options.
    Xfs,
    /// Btrfs with default options.
    Btrfs,
}

impl Filesystem {
    /// Returns its name for `mount -t`.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// Returns the image size; the smallest that the tools accept without a warning.
    fn image_bytes(self) -> u64 {
        let mebibytes: u64 = match self {
            Filesystem::Ext4 => 64,
            Filesystem::Xfs => 300,
            Filesystem::Btrfs => 128,
        };
        mebibytes << 20
    }

    /// Creates an empty file system on a new image.
    pub fn make(self, image: &Path) -> io::Result<()> {
        File::create(image)?.set_len(self.image_bytes())?;
        let options: &[&str] = match self {
            // Without lazy initialization no kernel thread writes at arbitrary times.
            Filesystem::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Filesystem::Xfs => &["-q", "-f"],
            Filesystem::Btrfs => &["-q", "-f"],
        };
        run(Command::new(format!("mkfs.{}", self.name())).args(options).arg(image)).map(drop)
    }
}

/// Mounted file systems, unmounted on drop.
#[derive(Debug, Default)]
pub struct Mounts(Vec<PathBuf>);

impl Mounts {
    /// Mounts each image at the place with the same position.
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

    /// Unmounts everything and reports errors.
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
                // A process that still uses it keeps it alive; no other process sees it.
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

impl Media {
    /// Reads the images of unmounted file systems.
    pub fn load_all(images: &[PathBuf]) -> io::Result<Vec<Media>> {
        images.iter().map(|image| Media::load(image)).collect()
    }
}

/// Returns the missing requirement for power cuts on this file system, if any.
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

/// Returns true if this process has a separate mount namespace. Otherwise runs the named test again in a
/// process that has one, and requires its success.
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
