//! Description of the machine.

use crate::failure::{Result, Tried};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Properties that the figures depend on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor model.
    pub(crate) cpu: String,
    /// Available hardware threads.
    pub(crate) cores: usize,
    /// Bytes of memory.
    pub(crate) memory_bytes: u64,
    /// Kernel release.
    pub(crate) kernel: String,
    /// File system of the working folder.
    pub(crate) file_system: String,
}

impl Machine {
    /// Describes this machine, with the file system of `work`.
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

    /// Formats the description in one line.
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

/// Returns the type of the mount that contains `path`: the longest mount point; of several at the same point
/// the last, which covers the others.
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
