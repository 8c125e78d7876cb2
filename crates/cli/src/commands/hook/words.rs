//! Command line of `hook`: read without rules, because a refusal could deny the agent's call.

use crate::args::Global;
use std::ffi::OsString;
use std::path::{Path, absolute};

/// Options of every command that have a value.
const WITH_VALUE: [&str; 3] = ["-C", "--color", "--home"];

/// A hook as it was called.
#[derive(Debug, Default)]
pub(crate) struct Called {
    /// The options that decide where the home is.
    pub(crate) global: Global,
    /// The words after `hook`: the agent, and the event.
    pub(crate) words: Vec<OsString>,
}

impl Called {
    /// Reads the command line of the process. None if it is another command, or a wish for help. Unknown options are ignored.
    pub(crate) fn read(typed: &[OsString]) -> Option<Self> {
        let mut called = Self::default();
        let mut is_hook = false;
        let mut words = typed.iter().skip(1);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--help" | "-h") => return None,
                Some("--allow-other-owner") => called.global.allow_other_owner = true,
                Some(name) if WITH_VALUE.contains(&name) => {
                    let value = words.next();
                    if name == "--home" {
                        called.global.home = value.and_then(|path| absolute(path).ok());
                    }
                }
                Some(option) if option.starts_with('-') => {
                    if let Some(path) = option.strip_prefix("--home=") {
                        called.global.home = absolute(Path::new(path)).ok();
                    }
                }
                Some("hook") if !is_hook => is_hook = true,
                _ if is_hook => called.words.push(word.clone()),
                _ => return None,
            }
        }
        is_hook.then_some(called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(Vec<String>, Option<String>)> {
        let typed: Vec<OsString> =
            ["safepoint"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let called = Called::read(&typed)?;
        let words = called.words.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        Some((words, called.global.home.map(|home| home.to_str().unwrap().to_owned())))
    }

    #[test]
    fn options_stand_anywhere_and_are_no_agent() {
        let copilot = || vec!["copilot".to_owned(), "preToolUse".to_owned()];
        for line in [
            "--home /h hook copilot preToolUse",
            "--home=/h hook copilot preToolUse",
            "hook --home /h copilot -q preToolUse --nonsense",
            "-q -C /x --json --nonsense hook copilot --home /h --color never preToolUse",
        ] {
            assert_eq!(read(line), Some((copilot(), Some("/h".to_owned()))), "{line}");
        }
        assert_eq!(read("hook"), Some((Vec::new(), None)));
        for other in ["create hook", "-C hook list", "hook --help", "--help hook claude", "--home hook"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
