//! Exit codes (design, section 8).

use safepoint::model::RelPath;
use safepoint::{Failure, FailureKind};

/// Success.
pub(crate) const DONE: u8 = 0;
/// Partial success; the problems are listed.
pub(crate) const IN_PART: u8 = 3;

/// Code of a rollback or recovery that left these displaced files pending.
pub(crate) fn of_waiting(waiting: &[RelPath]) -> u8 {
    if waiting.is_empty() { DONE } else { IN_PART }
}

/// Code of a kind of failure.
pub(crate) fn code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Failed => 1,
        FailureKind::Usage => 2,
        FailureKind::NotFound => 10,
        FailureKind::Busy => 11,
        FailureKind::Conflict => 12,
        FailureKind::Damaged => 13,
        FailureKind::Internal => 70,
        FailureKind::Interrupted => 130,
    }
}

/// Failures with a shell exit code: a caller that runs a program through Safepoint sees the shell's code.
const AS_SHELLS: &[(&str, u8)] = &[("command_not_found", 127), ("command_not_started", 126)];

/// Code of a failure.
pub(crate) fn of(failure: &Failure) -> u8 {
    let as_shells = AS_SHELLS.iter().find(|(code, _)| *code == failure.code);
    as_shells.map_or_else(|| code(failure.kind), |(_, exit)| *exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::OWN_CODES;
    use std::collections::BTreeMap;

    const KINDS: [FailureKind; 8] = [
        FailureKind::Failed,
        FailureKind::Usage,
        FailureKind::NotFound,
        FailureKind::Busy,
        FailureKind::Conflict,
        FailureKind::Damaged,
        FailureKind::Internal,
        FailureKind::Interrupted,
    ];

    fn row(kind: FailureKind) -> String {
        let word = serde_json::to_value(kind).unwrap();
        format!("{} {}", word.as_str().unwrap(), code(kind))
    }

    fn own_row(name: &'static str, kind: FailureKind) -> String {
        let failure =
            Failure { code: name, kind, message: String::new(), causes: Vec::new(), hints: Vec::new() };
        row(kind).replace(&code(kind).to_string(), &of(&failure).to_string())
    }

    /// Returns every `"code", Kind` of the library's table, and the command line's own.
    fn in_source() -> BTreeMap<String, String> {
        let mut found: BTreeMap<String, String> =
            OWN_CODES.iter().map(|(code, kind)| ((*code).to_owned(), own_row(code, *kind))).collect();
        let source = include_str!("../../../safepoint/src/failure.rs");
        // Its tests are not part of the table.
        let source = source.split("#[cfg(test)]").next().unwrap_or(source);
        for piece in source.split('(').map(str::trim_start) {
            let Some((code, rest)) = piece.strip_prefix('"').and_then(|piece| piece.split_once("\",")) else {
                continue;
            };
            let rest = rest.trim_start().trim_start_matches("FailureKind::");
            let named = KINDS.into_iter().find(|kind| rest.starts_with(&format!("{kind:?},")));
            match named {
                Some(kind) => found.insert(code.to_owned(), row(kind)),
                None if rest.starts_with("kind,") => found.insert(code.to_owned(), "* *".to_owned()),
                None => continue,
            };
        }
        found
    }

    #[test]
    fn the_page_about_errors_says_what_the_source_says() {
        let page = include_str!("../../../../docs/errors.md");
        let documented: BTreeMap<String, String> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
            .map(|(code, rest)| {
                let cells: Vec<&str> = rest.split(" | ").collect();
                assert!(
                    cells.len() == 4 && cells[2].len() > 9 && cells[3].len() > 9,
                    "{code} is undocumented"
                );
                (code.to_owned(), format!("{} {}", cells[0], cells[1]))
            })
            .collect();
        let source = in_source();
        assert!(source.len() > 30, "{source:?}");
        assert_eq!(documented, source);
    }
}
