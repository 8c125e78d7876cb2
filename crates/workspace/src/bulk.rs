//! Rough size of a folder before its first capture: one walk without reads, with the rules of a capture.
//!
//! Input: a root and limits. Output: `None` if the folder is below the limits, else its size and the folders that
//! may be worth leaving out. The walk ends at a multiple of the limits, so that it never takes long.

use crate::error::WorkspaceError;
use crate::homes;
use crate::linux;
use crate::root::{OWN_FOLDER, Root};
use crate::rules::{RULES_BYTES_MAX, RULES_FILE, Rules};
use crate::scan::{DEPTH_MAX, is_cache, join, read_start};
use crate::sparse;
use safepoint_model::{Progress, RelPath};
use std::collections::BTreeMap;

/// Names of folders that tools can make again.
const MADE_AGAIN: [&str; 20] = [
    ".cache",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".nox",
    ".nuxt",
    ".parcel-cache",
    ".pytest_cache",
    ".ruff_cache",
    ".terraform",
    ".tox",
    ".turbo",
    ".venv",
    "__pycache__",
    "bower_components",
    "build",
    "dist",
    "node_modules",
    "target",
    "venv",
];

/// The walk stops at this multiple of the limit of files.
const STOP_FACTOR: u64 = 10;
/// Maximum number of folders to offer.
const FOLDERS_MAX: usize = 8;

/// Size from which a first capture is worth a question.
#[derive(Debug, Clone, Copy)]
pub struct BulkLimits {
    /// Number of entries.
    pub entries: u64,
    /// Bytes in files, without holes.
    pub bytes: u64,
}

impl Default for BulkLimits {
    fn default() -> Self {
        Self { entries: 100_000, bytes: 2_000_000_000 }
    }
}

/// Rough size of a large folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bulk {
    /// Number of entries that a capture would hold.
    pub entries: u64,
    /// Bytes in files, without holes.
    pub bytes: u64,
    /// False if the walk ended early, so that the numbers are lower bounds.
    pub is_complete: bool,
    /// Folders that could be left out, largest first.
    pub folders: Vec<BulkyFolder>,
}

/// Folder, or all folders of a name, and their size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkyFolder {
    /// Pattern for `.safepointignore`.
    pub pattern: String,
    /// Number of entries.
    pub entries: u64,
    /// Bytes in files, without holes.
    pub bytes: u64,
}

/// Measures a folder, if it is large.
///
/// # Errors
/// Fails if a pattern is invalid or the run is interrupted. Entries that cannot be read are skipped.
pub fn bulk(
    root: &Root,
    excludes: &[String],
    own: &[RelPath],
    limits: BulkLimits,
    progress: &dyn Progress,
) -> Result<Option<Bulk>, WorkspaceError> {
    let mut walk = Walk { root, own, entries: 0, bytes: 0, groups: BTreeMap::new() };
    let rules = Rules::configured(excludes)?;
    let mut waiting = vec![Waiting { path: RelPath::root(), depth: 0, rules, group: None }];
    let mut is_complete = true;
    while let Some(next) = waiting.pop() {
        if progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        if walk.entries >= limits.entries.saturating_mul(STOP_FACTOR) {
            is_complete = false;
            break;
        }
        walk.directory(next, &mut waiting)?;
    }
    let Walk { entries, bytes, groups, .. } = walk;
    if entries < limits.entries && bytes < limits.bytes {
        return Ok(None);
    }
    let folders = worth_offering(groups, entries, bytes);
    Ok(Some(Bulk { entries, bytes, is_complete, folders }))
}

/// Directory to walk.
struct Waiting {
    path: RelPath,
    depth: usize,
    rules: Rules,
    /// Pattern of the folder that it belongs to.
    group: Option<String>,
}

struct Walk<'a> {
    root: &'a Root,
    own: &'a [RelPath],
    entries: u64,
    bytes: u64,
    /// Entries and bytes by pattern.
    groups: BTreeMap<String, (u64, u64)>,
}

impl Walk<'_> {
    fn directory(&mut self, here: Waiting, waiting: &mut Vec<Waiting>) -> Result<(), WorkspaceError> {
        let Waiting { path, depth, mut rules, group } = here;
        let Ok(fd) = linux::open_dir_at(self.root.fd(), &path) else { return Ok(()) };
        let Ok(names) = linux::names(&fd) else { return Ok(()) };
        if depth > 0 && (homes::is_home(&fd, &names) || is_cache(&fd, &names)) {
            return Ok(());
        }
        if names.find(RULES_FILE).is_some()
            && let Ok(text) = read_start(&fd, RULES_FILE, RULES_BYTES_MAX)
        {
            rules = rules.with_file(&path, &text).0;
        }
        for name in names.iter() {
            let Ok(Some(facts)) = linux::facts_if_any(&fd, name) else { continue };
            let (kind, below) = (facts.file_type, join(&path, name)?);
            let is_own = name == OWN_FOLDER.as_bytes() || name == b".git" || self.own.contains(&below);
            if (kind.is_dir() && is_own)
                || !(kind.is_dir() || kind.is_file() || kind.is_symlink())
                || facts.place != self.root.place()
                || (!rules.is_empty() && rules.leave_out(&below, kind.is_dir()))
            {
                continue;
            }
            let group = match &group {
                // A folder of folders that tools can make again.
                Some(group) if !group.starts_with('/') => Some(group.clone()),
                group => group_of(name, depth, kind.is_dir()).or_else(|| group.clone()),
            };
            let bytes = match kind.is_file() {
                true if sparse::is_sparse(&facts) => facts.disk_bytes,
                true => facts.size,
                false => 0,
            };
            self.entries += 1;
            self.bytes += bytes;
            if let Some(group) = &group {
                let sum = self.groups.entry(group.clone()).or_default();
                *sum = (sum.0 + 1, sum.1 + bytes);
            }
            if kind.is_dir() && depth < DEPTH_MAX {
                waiting.push(Waiting { path: below, depth: depth + 1, rules: rules.clone(), group });
            }
        }
        Ok(())
    }
}

/// Returns the pattern of a folder that could be left out. A pattern contains no special characters.
fn group_of(name: &[u8], depth: usize, is_dir: bool) -> Option<String> {
    let name = std::str::from_utf8(name).ok().filter(|_| is_dir)?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    match MADE_AGAIN.binary_search(&name) {
        Ok(_) => Some(format!("{name}/")),
        Err(_) if depth == 0 && name.chars().all(plain) => Some(format!("/{name}/")),
        Err(_) => None,
    }
}

/// Selects folders that tools can make again with at least a hundredth of everything, and others with a fifth.
fn worth_offering(groups: BTreeMap<String, (u64, u64)>, entries: u64, bytes: u64) -> Vec<BulkyFolder> {
    let is_worth = |pattern: &str, sum: (u64, u64)| {
        let part = if pattern.starts_with('/') { 5 } else { 100 };
        sum.0.saturating_mul(part) >= entries || sum.1.saturating_mul(part) >= bytes.max(1)
    };
    let mut folders: Vec<BulkyFolder> = groups
        .into_iter()
        .filter(|(pattern, sum)| is_worth(pattern, *sum))
        .map(|(pattern, (entries, bytes))| BulkyFolder { pattern, entries, bytes })
        .collect();
    folders.sort_by_key(|folder| std::cmp::Reverse((folder.bytes, folder.entries)));
    folders.truncate(FOLDERS_MAX);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::progress::Silent;
    use std::fs;

    fn measured(dir: &std::path::Path, entries: u64, bytes: u64) -> Option<Bulk> {
        let root = Root::open(dir).unwrap();
        bulk(&root, &["/out".to_owned()], &[], BulkLimits { entries, bytes }, &Silent).unwrap()
    }

    fn write(dir: &std::path::Path, name: &str, bytes: usize) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![1; bytes]).unwrap();
    }

    #[test]
    fn names_are_sorted() {
        assert!(MADE_AGAIN.is_sorted());
    }

    #[test]
    fn a_large_folder_is_measured_with_the_rules_of_a_capture() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "src/main", 10);
        write(dir, "web/node_modules/a/b", 100);
        write(dir, "web/node_modules/a/node_modules/c", 100);
        write(dir, "data/x", 1_000);
        write(dir, "odd*name/x", 5_000);
        write(dir, "out/x", 100_000);
        write(dir, "ignored/x", 100_000);
        write(dir, ".git/x", 100_000);
        write(dir, "cache/x", 100_000);
        fs::write(dir.join("cache/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55").unwrap();
        fs::write(dir.join(".safepointignore"), "ignored\n").unwrap();
        assert_eq!(measured(dir, 1_000, 100_000), None);
        let bulk = measured(dir, 10, 1_000_000).unwrap();
        // The cache folder itself is listed before its tag is seen.
        assert_eq!((bulk.entries, bulk.bytes), (14, 6_210 + "ignored\n".len() as u64));
        assert!(bulk.is_complete);
        let found: Vec<_> = bulk
            .folders
            .iter()
            .map(|folder| (folder.pattern.as_str(), folder.entries, folder.bytes))
            .collect();
        assert_eq!(found, [("node_modules/", 5, 200)]);
        let bulk = measured(dir, 1, 1).unwrap();
        assert!(!bulk.is_complete, "the walk ends at ten times the limit");
    }
}
