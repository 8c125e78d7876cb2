//! Which files git leaves alone: `.gitignore`, the deeper the stronger, then `info/exclude`. What is in the user's own configuration
//! is not read: it is outside of the repository.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The name of a file with rules.
pub(crate) const RULES_FILE: &[u8] = b".gitignore";
/// A longer file is not one of rules.
pub(crate) const RULES_BYTES_MAX: u64 = 1024 * 1024;
/// A longer pattern fits no path.
const PATTERN_BYTES_MAX: usize = 4_096;

/// The rules that hold in one folder.
#[derive(Clone, Default)]
pub(crate) struct Ignores(Option<Rc<Layer>>);

struct Layer {
    base_bytes: usize,
    matcher: Gitignore,
    above: Ignores,
}

impl Ignores {
    /// These rules and those of a file that holds from the folder `base` down. What makes no sense is passed over, as git does.
    pub(crate) fn with(&self, base: &[u8], text: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(text).lines().filter(|line| line.len() <= PATTERN_BYTES_MAX) {
            let _ = builder.add_line(None, &plain_braces(line));
        }
        let base_bytes = if base.is_empty() { 0 } else { base.len() + 1 };
        match builder.build() {
            Ok(matcher) => Self(Some(Rc::new(Layer { base_bytes, matcher, above: self.clone() }))),
            Err(_) => self.clone(),
        }
    }

    /// Whether git leaves this alone, going by its name. That a folder above is left alone is for the caller to know.
    pub(crate) fn leave_alone(&self, path: &[u8], is_dir: bool) -> bool {
        let mut next = &self.0;
        while let Some(layer) = next {
            let below = Path::new(OsStr::from_bytes(path.get(layer.base_bytes..).unwrap_or_default()));
            match layer.matcher.matched(below, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = &layer.above.0,
            }
        }
        false
    }
}

/// Braces mean nothing to git. To what reads the patterns here they do, and one call deeper with each.
fn plain_braces(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if matches!(letter, '{' | '}') {
            plain.push('\\');
        }
        plain.push(letter);
        if letter == '\\' {
            plain.extend(letters.next());
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_rules_win_and_braces_are_letters() {
        let top = Ignores::default().with(b"", b"*.log\n/build\na{b,c}d\n\\{e}\n");
        assert!(top.leave_alone(b"x.log", false) && top.leave_alone(b"build", true));
        assert!(!top.leave_alone(b"src/build", true) && !top.leave_alone(b"abd", false));
        assert!(top.leave_alone(b"a{b,c}d", false) && top.leave_alone(b"{e}", false));
        let below = top.with(b"src", b"!keep.log\n/out\n");
        assert!(!below.leave_alone(b"src/keep.log", false) && below.leave_alone(b"src/x.log", false));
        assert!(below.leave_alone(b"src/out", true) && !below.leave_alone(b"src/a/out", true));
    }

    #[test]
    fn braces_without_end_are_no_way_to_end_the_process() {
        let top = Ignores::default().with(b"", format!("{}\nx", "{".repeat(4_000)).as_bytes());
        assert!(top.leave_alone(b"x", false));
    }
}
