//! Changes as text: a unified diff for git and patch, or line counts.
//!
//! Bounded: long files and binary files are only named.

use crate::problem::Problem;
use crate::render::output::{Printer, Side};
use crate::render::terminal::{columns, counted, padded};
use safepoint::model::RelPath;
use safepoint::model::change::{Change, ChangeKind};
use safepoint::model::text::is_unsafe;
use safepoint::model::tree::{Entry, Node};
use safepoint::{ChangedLines, ChangedText, Comparison};
use similar::{ChangeTag, TextDiff};
use std::time::Duration;

/// Time limit of a comparison; very different files are compared only roughly.
const PATIENCE: Duration = Duration::from_secs(2);

fn is_directory(entry: Option<&Entry>) -> bool {
    matches!(entry.map(|entry| &entry.node), Some(Node::Directory(_)))
}

/// Line-by-line changes.
pub(crate) struct Patch<'a> {
    pub(crate) comparison: &'a Comparison<'a>,
    pub(crate) out: &'a Printer,
}

impl Patch<'_> {
    pub(crate) fn print(&self) -> Result<(), Problem> {
        let changes = &self.comparison.changes;
        for (at, change) in changes.iter().enumerate() {
            if self.out.is_closed() {
                break;
            }
            let empty = changes.get(at + 1).is_none_or(|next| !next.path.is_within(&change.path));
            self.change(change, empty)?;
        }
        Ok(())
    }

    /// Prints a change. `empty` means that nothing below it follows.
    fn change(&self, change: &Change, empty: bool) -> Result<(), Problem> {
        if change.kind == ChangeKind::Type {
            // Like git: one removal and one addition. Directory contents follow as separate changes.
            let gone = Change { kind: ChangeKind::Removed, new: None, ..change.clone() };
            let come = Change { kind: ChangeKind::Added, old: None, ..change.clone() };
            self.change(&gone, empty)?;
            return self.change(&come, empty);
        }
        let only = change.old.as_ref().or(change.new.as_ref());
        if is_directory(only) && matches!(change.kind, ChangeKind::Added | ChangeKind::Removed) {
            if empty {
                self.title(format!("empty directory {}: {}", change.kind, change.path));
            }
            return Ok(());
        }
        let (old, new) = (side("a", &change.path), side("b", &change.path));
        self.title(format!("diff --git {old} {new}"));
        self.modes(change);
        let old = if change.old.is_some() { old } else { "/dev/null".to_owned() };
        let new = if change.new.is_some() { new } else { "/dev/null".to_owned() };
        match self.comparison.text_of(change)? {
            ChangedText::Nothing => {}
            ChangedText::Binary => self.out.line(format!("Binary files {old} and {new} differ")),
            ChangedText::TooLarge => {
                self.out.line(format!("Files {old} and {new} differ (too large to show)"));
            }
            ChangedText::Text { old: before, new: after } => unified(self.out, (&old, &new), &before, &after),
        }
        Ok(())
    }

    fn title(&self, text: String) {
        self.out.line(self.out.colours.bold(text));
    }

    /// Prints types and permissions like git.
    fn modes(&self, change: &Change) {
        match (&change.old, &change.new) {
            (None, Some(new)) => self.title(format!("new file mode {}", git_mode(new))),
            (Some(old), None) => self.title(format!("deleted file mode {}", git_mode(old))),
            (Some(old), Some(new)) if git_mode(old) != git_mode(new) => {
                self.title(format!("old mode {}", git_mode(old)));
                self.title(format!("new mode {}", git_mode(new)));
            }
            (Some(_), Some(_)) if change.kind == ChangeKind::Mode => {
                self.title("owner or attributes differ".to_owned());
            }
            _ => {}
        }
    }
}

/// Prints the differences of two texts as a unified diff.
pub(crate) fn unified(out: &Printer, (old, new): (&str, &str), before: &str, after: &str) {
    let (before, after) = (lines_of(before), lines_of(after));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&before, &after);
    let unified = diff.unified_diff();
    let mut hunks = unified.iter_hunks().peekable();
    if hunks.peek().is_some() {
        out.line(out.colours.bold(format!("--- {old}")));
        out.line(out.colours.bold(format!("+++ {new}")));
    }
    for hunk in hunks {
        out.line(out.colours.cyan(hunk.header()));
        for change in hunk.iter_changes() {
            line(out, change.tag(), change.value());
        }
    }
}

fn line(out: &Printer, tag: ChangeTag, text: &str) {
    let body = text.strip_suffix('\n').unwrap_or(text);
    out.content_line(
        match tag {
            ChangeTag::Equal => Side::Both,
            ChangeTag::Delete => Side::Old,
            ChangeTag::Insert => Side::New,
        },
        body,
    );
    if !text.ends_with('\n') {
        out.line("\\ No newline at end of file");
    }
}

/// Splits lines like diff and patch: a carriage return is part of the line.
fn lines_of(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Formats a path like git: quoted with C escapes if it has unusual characters.
fn side(prefix: &str, path: &RelPath) -> String {
    let odd = |letter: char| is_unsafe(letter) || matches!(letter, '"' | '\\');
    match std::str::from_utf8(path.as_bytes()) {
        Ok(text) if !text.contains(odd) => format!("{prefix}/{text}"),
        _ => {
            let escaped: String = path.as_bytes().iter().map(|byte| escaped(*byte)).collect();
            format!("\"{prefix}/{escaped}\"")
        }
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b'\n' => "\\n".to_owned(),
        b'\t' => "\\t".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

fn git_mode(entry: &Entry) -> String {
    match entry.node {
        Node::File(_) => format!("100{:03o}", entry.meta.mode),
        Node::Directory(_) => format!("040{:03o}", entry.meta.mode),
        Node::Symlink(_) => "120000".to_owned(),
    }
}

/// Added and removed lines by path.
pub(crate) struct Stat {
    rows: Vec<(String, Lines)>,
}

enum Lines {
    Counted(ChangedLines),
    Said(&'static str),
}

impl Stat {
    pub(crate) fn new(comparison: &Comparison<'_>) -> Result<Self, Problem> {
        let mut rows = Vec::new();
        for change in &comparison.changes {
            let only = change.old.as_ref().or(change.new.as_ref());
            if is_directory(only) && matches!(change.kind, ChangeKind::Added | ChangeKind::Removed) {
                continue;
            }
            let lines = match comparison.text_of(change)? {
                ChangedText::Nothing => Lines::Said("mode"),
                ChangedText::Binary => Lines::Said("binary"),
                ChangedText::TooLarge => Lines::Said("too large to count"),
                ChangedText::Text { old, new } => Lines::Counted(ChangedLines::between(&old, &new)),
            };
            rows.push((change.path.to_string(), lines));
        }
        Ok(Self { rows })
    }

    pub(crate) fn print(&self, out: &Printer) {
        let width = self.rows.iter().map(|(path, _)| columns(path)).max().unwrap_or(0);
        let (mut all_added, mut all_removed) = (0, 0);
        for (path, lines) in &self.rows {
            let said = match lines {
                Lines::Said(said) => (*said).to_owned(),
                Lines::Counted(ChangedLines { added, removed }) => {
                    all_added += added;
                    all_removed += removed;
                    let (plus, minus) = bar(*added, *removed);
                    format!("{} {}{}", added + removed, out.colours.green(plus), out.colours.red(minus))
                }
            };
            out.line(format!(" {} | {said}", padded(path, width)).trim_end());
        }
        if !self.rows.is_empty() {
            let files = counted(self.rows.len() as u64, "file", "files");
            let added = counted(all_added, "line", "lines");
            out.line(format!(" {files} changed, {added} added, {all_removed} removed"));
        }
    }
}

/// Bar of at most 40 signs.
fn bar(added: u64, removed: u64) -> (String, String) {
    const SIGNS_MAX: u64 = 40;
    let all = added + removed;
    let signs = |count: u64| if all <= SIGNS_MAX { count } else { (count * SIGNS_MAX).div_ceil(all) };
    let repeat = |sign: &str, count| sign.repeat(usize::try_from(signs(count)).unwrap_or(0));
    (repeat("+", added), repeat("-", removed))
}
