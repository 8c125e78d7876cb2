//! Text with the record of inserted ranges: removing them gives the original text, byte for byte.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Text that grows by insertions.
#[derive(Debug, Clone)]
pub(super) struct Grown {
    pub(super) text: String,
    pub(super) inserted: Vec<Inserted>,
}

/// Range of bytes that was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inserted {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Grown {
    pub(super) fn new(text: String) -> Self {
        Self { text, inserted: Vec::new() }
    }

    /// Inserts at an offset.
    pub(super) fn insert(&mut self, at: usize, piece: &str) {
        self.text.insert_str(at, piece);
        let mut inside = false;
        for range in &mut self.inserted {
            if at <= range.start {
                range.start += piece.len();
                range.end += piece.len();
            } else if at < range.end {
                range.end += piece.len();
                inside = true;
            }
        }
        if !inside {
            self.inserted.push(Inserted { start: at, end: at + piece.len() });
        }
    }
}

/// Removes the inserted ranges from `current`, an edited `grown`. Returns `None` if an edit may overlap an insertion: then the ranges are
/// unknown. Edits are located as one window between the common prefix and the common suffix.
pub(super) fn shrink(grown: &str, inserted: &[Inserted], current: &str) -> Option<String> {
    let (old, new) = (grown.as_bytes(), current.as_bytes());
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - prefix;
    let suffix = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for range in inserted {
        if range.end <= prefix {
            cuts.push(range.start..range.end);
        } else if range.start >= old.len() - suffix {
            cuts.push(new.len() - (old.len() - range.start)..new.len() - (old.len() - range.end));
        } else {
            return None;
        }
    }
    Some(cut(current, cuts))
}

/// Removes ranges that do not overlap.
pub(super) fn cut(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| range.start);
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    for range in ranges {
        left.push_str(text.get(at..range.start).unwrap_or_default());
        at = at.max(range.end);
    }
    left.push_str(text.get(at..).unwrap_or_default());
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_are_removed_whatever_was_edited_beside_them() {
        let mut grown = Grown::new("one two three".to_owned());
        grown.insert(3, " AND");
        grown.insert(5, "xx");
        grown.insert(grown.text.len(), " END");
        assert_eq!(grown.text, "one AxxND two three END");
        let shrunk = |current: &str| shrink(&grown.text, &grown.inserted, current);
        assert_eq!(shrunk(&grown.text).as_deref(), Some("one two three"));
        assert_eq!(shrunk("0 one AxxND two three END").as_deref(), Some("0 one two three"));
        assert_eq!(shrunk("one AxxND 2 three END").as_deref(), Some("one 2 three"));
        assert_eq!(shrunk("one AxND two three END"), None);
        assert_eq!(shrunk(""), None);
    }
}
