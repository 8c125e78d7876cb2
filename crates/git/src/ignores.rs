//! Ignore rules of git: `.gitignore`, deeper files first, then `info/exclude`. The user's configuration is
//! not read: it is outside the repository.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// Name of a file with rules.
pub(crate) const RULES_FILE: &[u8] = b".gitignore";
/// Maximum length of a rules file.
pub(crate) const RULES_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum length of a pattern that can match a path.
const PATTERN_BYTES_MAX: usize = 4_096;

/// Rules that apply in one folder.
#[derive(Clone, Default)]
pub(crate) struct Ignores(Option<Rc<Layer>>);

struct Layer {
    base_bytes: usize,
    matcher: Gitignore,
    above: Ignores,
}

impl Ignores {
    /// Adds the rules of a file that applies from the folder `base` down. Invalid patterns are ignored, as in
    /// git.
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

    /// Returns true if git ignores this path by its name. The caller checks the folders above.
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

/// Escapes braces, which git takes literally. The pattern parser here would recurse for each.
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
