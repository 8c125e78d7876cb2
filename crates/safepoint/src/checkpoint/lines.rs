//! Content of changes as text, and the lines that they add and remove. Bounded: large and binary files have no text.

use crate::Error;
use crate::checkpoint::compare::Comparison;
use safepoint_model::change::{Change, ChangeKind};
use safepoint_model::tree::{Entry, Node};
use similar::{ChangeTag, TextDiff};
use std::time::Duration;

/// Maximum size of a file whose text is read.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;
/// Time limit of a comparison; very different files are compared only roughly.
const PATIENCE: Duration = Duration::from_secs(2);

/// Both sides of a change, as far as they are text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedText {
    /// Text of both sides; empty on the side without the file.
    Text {
        /// Text before.
        old: String,
        /// Text afterwards.
        new: String,
    },
    /// One side is no text.
    Binary,
    /// One side is larger than 1 MiB.
    TooLarge,
    /// Directories, and files with equal content.
    Nothing,
}

/// Number of lines that a change adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangedLines {
    /// Added lines.
    pub added: u64,
    /// Removed lines.
    pub removed: u64,
}

fn size(entry: Option<&Entry>) -> u64 {
    match entry.map(|entry| &entry.node) {
        Some(Node::File(content)) => content.size,
        _ => 0,
    }
}

impl Comparison<'_> {
    /// Returns the text of both sides of a change.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, or the file is no longer readable.
    pub fn text_of(&self, change: &Change) -> Result<ChangedText, Error> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let no_content =
            |entry: Option<&Entry>| entry.is_none_or(|entry| matches!(entry.node, Node::Directory(_)));
        if change.kind == ChangeKind::Mode || (no_content(old) && no_content(new)) {
            return Ok(ChangedText::Nothing);
        }
        if size(old).max(size(new)) > TEXT_BYTES_MAX {
            return Ok(ChangedText::TooLarge);
        }
        let old = self.old_bytes(change, TEXT_BYTES_MAX)?.unwrap_or_default();
        let new = self.new_bytes(change, TEXT_BYTES_MAX)?.unwrap_or_default();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        Ok(match (text(old), text(new)) {
            (Some(old), Some(new)) => ChangedText::Text { old, new },
            _ => ChangedText::Binary,
        })
    }

    /// Counts the lines that all changes add and remove. Files that are no text count as nothing.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, or a file is no longer readable.
    pub fn lines(&self) -> Result<ChangedLines, Error> {
        let mut sum = ChangedLines::default();
        for change in &self.changes {
            if let ChangedText::Text { old, new } = self.text_of(change)? {
                let ChangedLines { added, removed } = ChangedLines::between(&old, &new);
                sum = ChangedLines { added: sum.added + added, removed: sum.removed + removed };
            }
        }
        Ok(sum)
    }
}

impl ChangedLines {
    /// Compares two texts line by line. As in diff and patch, a carriage return is part of the line.
    pub fn between(old: &str, new: &str) -> Self {
        let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<&str>>();
        let (old, new) = (lines(old), lines(new));
        let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&old, &new);
        let tagged = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count() as u64;
        Self { added: tagged(ChangeTag::Insert), removed: tagged(ChangeTag::Delete) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_diff_counts_them() {
        let cases =
            [("", "a\nb\n", 2, 0), ("a\nb\n", "a\nc\n", 1, 1), ("a", "a\n", 1, 1), ("a\n", "a\n", 0, 0)];
        for (old, new, added, removed) in cases {
            assert_eq!(ChangedLines::between(old, new), ChangedLines { added, removed }, "{old:?} {new:?}");
        }
    }
}
