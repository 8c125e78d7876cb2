//! Hints that fit the command: they name its plan or checkpoint, and none advises to capture a damaged folder.

use crate::args::Command;
use crate::problem::{Problem, Topic};
use crate::render::terminal::for_shell;
use safepoint::ConfigFile;
use std::path::Path;

/// The problem, with hints that fit the command.
pub(crate) fn fitting(command: &Command, mut problem: Problem) -> Problem {
    if command.goes_back() && problem.topic == Some(Topic::NoCheckpointYet) {
        problem = without_copy(problem);
    }
    for (placeholder, name) in command.placeholders() {
        let Some(name) = name else { continue };
        let name = for_shell(&name);
        for hint in &mut problem.failure.hints {
            *hint = filled(hint, placeholder, &name);
        }
    }
    problem
}

/// The problem with hints for files that are in no checkpoint. A checkpoint of a damaged folder is none of them.
pub(crate) fn without_copy(mut problem: Problem) -> Problem {
    problem.failure.hints = elsewhere().map(str::to_owned).into();
    problem
}

/// The problem of a configuration file, with its path: that in the home, or the nearest one above the directory.
pub(crate) fn with_file(problem: Problem, home: &Path, directory: &Path) -> Problem {
    let path = match problem.topic {
        Some(Topic::Configuration(ConfigFile::Home)) => Some(home.join("config.toml")),
        Some(Topic::Configuration(ConfigFile::Workspace)) => {
            let mut above = directory.ancestors().map(|folder| folder.join(".safepoint.toml"));
            above.find(|path| path.symlink_metadata().is_ok())
        }
        _ => None,
    };
    match path {
        Some(path) => problem.hint(format!("The file: {}", for_shell(&path.to_string_lossy()))),
        None => problem,
    }
}

/// Other places that may have the files.
pub(crate) fn elsewhere() -> [&'static str; 3] {
    [
        "Safepoint has no copy of these files. Write nothing to the folder until they are found elsewhere.",
        "If git tracks them: git status; git stash list; git fsck --lost-found",
        "Editors keep local histories, and an open editor can undo.",
    ]
}

/// The hint with `name` for each placeholder that is a word of its own.
fn filled(hint: &str, placeholder: &str, name: &str) -> String {
    let word = |text: &str| match text.strip_prefix(placeholder) {
        Some(rest) if !rest.starts_with(|letter: char| letter.is_alphanumeric()) => format!("{name}{rest}"),
        _ => text.to_owned(),
    };
    hint.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_placeholders() {
        assert_eq!(filled("`safepoint plan show PLAN` shows", "PLAN", "p"), "`safepoint plan show p` shows");
        assert_eq!(filled("safepoint plan resume PLAN", "PLAN", "p"), "safepoint plan resume p");
        assert_eq!(filled("SAFEPOINT_PLAN_ID, IDS and id", "ID", "x"), "SAFEPOINT_PLAN_ID, IDS and id");
    }
}
