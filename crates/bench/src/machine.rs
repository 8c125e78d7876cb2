//! The machine in words: what the figures were measured on.

use crate::failure::{Result, Tried};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// What the figures depend on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor as it calls itself.
    pub(crate) cpu: String,
    /// How many of its threads there are for us.
    pub(crate) cores: usize,
    /// Memory.
    pub(crate) memory_bytes: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The file system that the work was done on.
    pub(crate) file_system: String,
}

impl Machine {
    /// This machine, with the file system of `work`.
    pub(crate) fn this(work: &Path) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let cpu = field(&read("/proc/cpuinfo"), "model name");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        let cores = std::thread::available_parallelism().tried(|| "counting cores".into())?.get();
        Ok(Self {
            cpu: if cpu.is_empty() { "unknown".into() } else { cpu },
            cores,
            memory_bytes: kilobytes * 1024,
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            file_system: file_system(work, &read("/proc/self/mountinfo")),
        })
    }

    /// In one line.
    pub(crate) fn words(&self) -> String {
        format!(
            "{}, {} cores, {:.0} GiB of memory, {}, {}",
            self.cpu,
            self.cores,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
            self.file_system
        )
    }
}

/// The type of the mount that holds `path`: the one with the longest mount point; of several at one point the last, which covers the others.
fn file_system(path: &Path, mountinfo: &str) -> String {
    let mut best: Option<(usize, &str)> = None;
    for line in mountinfo.lines() {
        let Some((mount, rest)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (mount.split(' ').nth(4), rest.split(' ').next()) else { continue };
        if path.starts_with(point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map_or("unknown", |(_, kind)| kind).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_tells_the_file_system() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /work rw shared:1 - xfs /dev/b rw\n";
        assert_eq!(file_system(Path::new("/work/a"), mounts), "xfs");
        assert_eq!(file_system(Path::new("/workshop"), mounts), "ext4");
    }
}
