//! Entries left out by `.safepointignore` and by the configuration: gitignore's syntax and precedence.
//!
//! Exclusions of the configuration are final, because any program in a workspace can write a
//! `.safepointignore`. Otherwise rules of a deeper directory override those above; within a file the last
//! match wins; `!` includes again.

use crate::error::WorkspaceError;
use crate::root::{Root, SmallFile};
use crate::scan::join;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};
use safepoint_model::RelPath;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Name of the rules file.
pub(crate) const RULES_FILE: &[u8] = b".safepointignore";
/// Maximum size of a rules file.
pub(crate) const RULES_BYTES_MAX: u64 = 1024 * 1024;

/// A longer pattern matches no path that a system call takes.
const PATTERN_BYTES_MAX: usize = 4_096;
/// The pattern parser recurses on each brace. Endless braces would crash the process, and any program in a
/// workspace can write them.
const BRACES_MAX: usize = 100;

/// Adds a line of a file, or returns its error.
fn add(builder: &mut GitignoreBuilder, line: &str) -> Result<(), String> {
    if line.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has at most {PATTERN_BYTES_MAX} bytes"));
    }
    if line.bytes().filter(|byte| *byte == b'{').count() > BRACES_MAX {
        return Err(format!("a pattern has at most {BRACES_MAX} braces"));
    }
    builder.add_line(None, line).map(|_| ()).map_err(|error| error.to_string())
}

/// Checks that patterns in gitignore's syntax are valid.
///
/// # Errors
/// Returns [`WorkspaceError::Pattern`] for an invalid pattern.
pub fn check_patterns(patterns: &[String]) -> Result<(), WorkspaceError> {
    Rules::configured(patterns).map(|_| ())
}

/// Patterns of a configuration, in gitignore's syntax; the last match wins.
#[derive(Clone, Default)]
pub struct Patterns(Rules);

impl Patterns {
    /// Reads patterns.
    ///
    /// # Errors
    /// Returns [`WorkspaceError::Pattern`] for an invalid pattern.
    pub fn new(patterns: &[String]) -> Result<Self, WorkspaceError> {
        Rules::configured(patterns).map(Self)
    }

    /// Returns true if there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if they leave a path out.
    pub fn leave_out(&self, path: &RelPath, is_directory: bool) -> bool {
        self.0.leave_out(path, is_directory)
    }
}

/// Appends patterns to the `.safepointignore` at the root, in one write. A link of that name is refused.
///
/// # Errors
/// Fails if a pattern is invalid or the file cannot be written.
pub fn leave_out_too(root: &Root, patterns: &[String]) -> Result<(), WorkspaceError> {
    check_patterns(patterns)?;
    let path = join(&RelPath::root(), RULES_FILE)?;
    let failed = |source: io::Error| WorkspaceError::Swap { path: path.clone(), source };
    let last = match root.read_small(".safepointignore", RULES_BYTES_MAX).map_err(failed)? {
        SmallFile::Bytes(bytes) => bytes.last().copied(),
        _ => None,
    };
    let gap = if last.is_some_and(|last| last != b'\n') { "\n" } else { "" };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root.fd(), RULES_FILE, flags, Mode::from_raw_mode(0o644));
    let mut file = File::from(fd.map_err(|error| failed(error.into()))?);
    file.write_all(format!("{gap}{}\n", patterns.join("\n")).as_bytes()).map_err(failed)
}

/// Rules in effect in a directory.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    configured: Option<Arc<Gitignore>>,
    files: Option<Arc<Layer>>,
}

/// Rules of one file, linked to those of the files above it.
struct Layer {
    base_bytes: usize,
    matcher: Gitignore,
    above: Option<Arc<Layer>>,
}

impl Rules {
    /// Builds the rules of the configuration, which apply from the root down.
    pub(crate) fn configured(patterns: &[String]) -> Result<Self, WorkspaceError> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let refused = |pattern: &str, why| WorkspaceError::Pattern { pattern: pattern.to_owned(), why };
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            add(&mut builder, pattern).map_err(|why| refused(pattern, why))?;
        }
        let matcher = builder.build().map_err(|error| refused(&patterns.join(", "), error.to_string()))?;
        Ok(Self { configured: Some(Arc::new(matcher)), files: None })
    }

    /// Adds the rules of a file in the directory `base`. Invalid lines are skipped and returned.
    pub(crate) fn with_file(&self, base: &RelPath, text: &[u8]) -> (Self, Vec<String>) {
        let mut builder = GitignoreBuilder::new("");
        let mut problems = Vec::new();
        for line in String::from_utf8_lossy(text).lines() {
            if let Err(error) = add(&mut builder, line) {
                problems.push(format!("{base}/.safepointignore: {error}"));
            }
        }
        let base_bytes = if base.is_root() { 0 } else { base.as_bytes().len() + 1 };
        let built =
            builder.build().inspect_err(|error| problems.push(format!("{base}/.safepointignore: {error}")));
        let Ok(matcher) = built else { return (self.clone(), problems) };
        let files = Some(Arc::new(Layer { base_bytes, matcher, above: self.files.clone() }));
        (Self { configured: self.configured.clone(), files }, problems)
    }

    /// Returns true if there are no rules, so that paths need not be built.
    pub(crate) fn is_empty(&self) -> bool {
        self.configured.is_none() && self.files.is_none()
    }

    /// Returns true if this entry is left out.
    pub(crate) fn leave_out(&self, path: &RelPath, is_dir: bool) -> bool {
        let whole = Path::new(OsStr::from_bytes(path.as_bytes()));
        if self.configured.as_ref().is_some_and(|matcher| matcher.matched(whole, is_dir).is_ignore()) {
            return true;
        }
        let mut layer = &self.files;
        while let Some(here) = layer {
            let below = Path::new(OsStr::from_bytes(&path.as_bytes()[here.base_bytes..]));
            match here.matcher.matched(below, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => layer = &here.above,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn the_deeper_rule_and_the_later_line_win() {
        let (root, problems) =
            Rules::default().with_file(&RelPath::root(), b"# note\n*.log\nbuild/\n/only-here\n");
        assert!(problems.is_empty());
        let (deep, _) = root.with_file(&path("keep"), b"!*.log\n/x\n");
        assert!(root.leave_out(&path("a/b.log"), false));
        assert!(root.leave_out(&path("a/build"), true));
        assert!(!root.leave_out(&path("a/build"), false));
        assert!(root.leave_out(&path("only-here"), false));
        assert!(!root.leave_out(&path("a/only-here"), false));
        assert!(!deep.leave_out(&path("keep/a.log"), false));
        assert!(deep.leave_out(&path("keep/x"), false));
        assert!(!deep.leave_out(&path("keep/y/x"), false));
    }

    #[test]
    fn what_the_configuration_leaves_out_no_file_brings_back() {
        let configured = Rules::configured(&["*.pem".to_owned(), "!public.pem".to_owned()]).unwrap();
        let (rules, _) = configured.with_file(&RelPath::root(), b"!*.pem\n!secret.pem\nother\n");
        let (deep, _) = rules.with_file(&path("deep"), b"!*\n");
        for rules in [&configured, &rules, &deep] {
            assert!(rules.leave_out(&path("deep/secret.pem"), false));
            assert!(!rules.leave_out(&path("deep/public.pem"), false));
        }
        assert!(rules.leave_out(&path("other"), false));
        assert!(!deep.leave_out(&path("deep/other"), false));
    }

    #[test]
    fn no_rules_leave_nothing_out() {
        let rules = Rules::configured(&[]).unwrap();
        assert!(rules.is_empty());
        assert!(!rules.leave_out(&path("a"), false));
    }

    #[test]
    fn braces_without_end_are_told_and_the_rest_holds() {
        for depth in [101, 2_000, 400_000] {
            let braces = format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
            assert!(
                matches!(check_patterns(std::slice::from_ref(&braces)), Err(WorkspaceError::Pattern { .. })),
                "{depth}"
            );
            let text = format!("{braces}\nb\n");
            let (rules, problems) = Rules::default().with_file(&RelPath::root(), text.as_bytes());
            assert_eq!(problems.len(), 1);
            assert!(problems[0].len() < 10_000);
            assert!(rules.leave_out(&path("b"), false));
        }
        let braces = format!("{}a{}", "{".repeat(100), "}".repeat(100));
        assert!(Rules::configured(&[braces]).unwrap().leave_out(&path("a"), false));
    }

    #[test]
    fn nonsense_is_told_and_the_rest_holds() {
        let (rules, problems) = Rules::default().with_file(&RelPath::root(), b"a[z-a]\nb\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(rules.leave_out(&path("b"), false));
        assert!(matches!(Rules::configured(&["a[z-a]".to_owned()]), Err(WorkspaceError::Pattern { .. })));
    }
}
