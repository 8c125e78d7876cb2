//! Contents and their differences as rows: ranges and classes, never HTML.

use crate::desk::{Blob, BlobKind};
use crate::highlight::{self, LINE_CHARS_MAX, Plain, Spans, json_spans};
use serde_json::{Value, json};
use similar::{DiffOp, TextDiff};
use std::time::Duration;

/// Rows of a hunk; a longer one is cut into several.
const HUNK_ROWS_MAX: usize = 1000;
/// Files above this size are compared as binaries.
pub(crate) const COMPARED_BYTES_MAX: u64 = 32 << 20;
/// Time for a comparison; a rougher one follows.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes at the start of a file that show whether it is text.
const SNIFFED_BYTES: usize = 8000;
/// Replaced lines above this length are marked as a whole.
const MARKED_CHARS_MAX: usize = 2000;

/// Media type of a picture, by its first bytes. SVG is none: it may contain scripts.
pub(crate) fn picture(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f', ..] => Some("image/avif"),
        _ => None,
    }
}

/// Kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Image(&'static str),
    Binary,
    Link,
    Directory,
}

impl Kind {
    fn of(blob: &Blob) -> Self {
        match (blob.kind, blob.bytes.as_deref()) {
            (BlobKind::Directory, _) => Kind::Directory,
            (BlobKind::Symlink, _) => Kind::Link,
            (_, None) => Kind::Binary,
            (_, Some(bytes)) => match picture(bytes) {
                Some(media) => Kind::Image(media),
                None if bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0) => Kind::Binary,
                None => Kind::Text,
            },
        }
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Image(_) => "image",
            Kind::Binary => "binary",
            Kind::Link => "link",
            Kind::Directory => "directory",
        }
    }

    fn media(self) -> Option<&'static str> {
        match self {
            Kind::Image(media) => Some(media),
            _ => None,
        }
    }
}

/// Lines of a text, without their ends.
fn lines_of(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    lines
}

/// Page of a file, highlighted.
pub(crate) fn file(path: &[u8], blob: &Blob, from: usize, limit: usize) -> Value {
    let kind = Kind::of(blob);
    let stopped = (blob.kind == BlobKind::File && blob.bytes.is_none()).then_some("size");
    let mut shown = json!({
        "entry": blob.entry, "kind": kind.word(), "media": kind.media(), "lines": null, "total_lines": null,
        "next": null, "highlighted": false, "stopped": stopped,
    });
    let (Kind::Text | Kind::Link, Some(bytes)) = (kind, &blob.bytes) else { return shown };
    let text = String::from_utf8_lossy(bytes);
    let all = lines_of(&text);
    let coloured = match kind {
        Kind::Link => Err(Plain::Unknown),
        _ => highlight::lines(path, &all),
    };
    let none = Spans::new();
    let rows: Value = all
        .iter()
        .enumerate()
        .skip(from)
        .take(limit)
        .map(|(at, line)| {
            let spans = coloured.as_ref().ok().and_then(|all| all.get(at)).unwrap_or(&none);
            json!({ "text": line, "spans": json_spans(spans) })
        })
        .collect();
    shown["lines"] = rows;
    shown["total_lines"] = json!(all.len());
    let next = from.saturating_add(limit);
    shown["next"] = json!((next < all.len()).then_some(next));
    shown["highlighted"] = json!(coloured.is_ok());
    shown["stopped"] = json!(coloured.err().and_then(Plain::word));
    shown
}

/// Choices of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choices {
    /// Equal lines around changes.
    pub(crate) context: usize,
    /// True to leave out changes of white space.
    pub(crate) ignores_space: bool,
    /// First hunk of the page.
    pub(crate) hunk: usize,
    /// Rows of the page, about.
    pub(crate) limit: usize,
}

/// Path and content of one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) blob: Option<&'a Blob>,
}

fn facts(side: Side<'_>) -> Value {
    let Some(blob) = side.blob else { return Value::Null };
    let end = blob.bytes.as_deref().map(|bytes| bytes.is_empty() || bytes.last() == Some(&b'\n'));
    json!({
        "size": blob.size, "hash": blob.entry["hash"], "mode": blob.entry["mode"], "type": blob.entry["type"],
        "media": Kind::of(blob).media(), "final_newline": end,
    })
}

/// Difference of one file.
pub(crate) fn compare(old: Side<'_>, new: Side<'_>, choices: Choices) -> Value {
    let kinds: Vec<Kind> = [old, new].iter().filter_map(|side| side.blob).map(Kind::of).collect();
    let is_text = kinds.iter().all(|kind| matches!(kind, Kind::Text | Kind::Link)) && !kinds.is_empty();
    let is_image = kinds.iter().any(|kind| matches!(kind, Kind::Image(_)));
    let is_too_large = [old, new]
        .iter()
        .any(|side| side.blob.is_some_and(|blob| blob.kind == BlobKind::File && blob.bytes.is_none()));
    let mut shown = json!({
        "old": facts(old), "new": facts(new),
        "kind": if is_image { "image" } else { "binary" }, "hunks": [], "added": 0, "removed": 0,
        "total_old": null, "total_new": null, "next": null, "highlighted": false,
        "stopped": is_too_large.then_some("size"),
    });
    if !is_text {
        return shown;
    }
    let bytes = |side: Side<'_>| side.blob.and_then(|blob| blob.bytes.clone()).unwrap_or_default();
    let (old_bytes, new_bytes) = (bytes(old), bytes(new));
    let (old_text, new_text) = (String::from_utf8_lossy(&old_bytes), String::from_utf8_lossy(&new_bytes));
    let text = Texts::new((old.path, &old_text), (new.path, &new_text));
    text.show(&mut shown, choices, old_bytes == new_bytes);
    shown
}

/// Both sides of a comparison, cut into lines.
struct Texts<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    old_spans: Result<Vec<Spans>, Plain>,
    new_spans: Result<Vec<Spans>, Plain>,
}

impl<'a> Texts<'a> {
    fn new(old: (&[u8], &'a str), new: (&[u8], &'a str)) -> Self {
        let (old_lines, new_lines) = (lines_of(old.1), lines_of(new.1));
        let (old_spans, new_spans) =
            (highlight::lines(old.0, &old_lines), highlight::lines(new.0, &new_lines));
        Self { old: old_lines, new: new_lines, old_spans, new_spans }
    }

    fn show(&self, shown: &mut Value, choices: Choices, is_same: bool) {
        let squeezed = |lines: &[&str]| -> Vec<String> {
            lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let (old, new) = match choices.ignores_space {
            true => (squeezed(&self.old), squeezed(&self.new)),
            false => (Vec::new(), Vec::new()),
        };
        let (old, new): (Vec<&str>, Vec<&str>) = match choices.ignores_space {
            true => (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect()),
            false => (self.old.clone(), self.new.clone()),
        };
        let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&old, &new);
        let (mut added, mut removed) = (0, 0);
        for op in diff.ops() {
            if !matches!(op, DiffOp::Equal { .. }) {
                removed += op.old_range().len();
                added += op.new_range().len();
            }
        }
        let groups: Vec<_> = diff.grouped_ops(choices.context).into_iter().flat_map(cut).collect();
        let (mut hunks, mut rows_so_far, mut next) = (Vec::new(), 0, None);
        for (at, group) in groups.iter().enumerate().skip(choices.hunk) {
            if rows_so_far >= choices.limit {
                next = Some(at);
                break;
            }
            let hunk = self.hunk(group);
            rows_so_far += hunk["rows"].as_array().map_or(0, Vec::len);
            hunks.push(hunk);
        }
        let plain = [&self.old_spans, &self.new_spans].into_iter().filter_map(|side| side.as_ref().err());
        shown["kind"] = json!(if is_same { "same" } else { "text" });
        shown["hunks"] = json!(hunks);
        (shown["added"], shown["removed"]) = (json!(added), json!(removed));
        (shown["total_old"], shown["total_new"]) = (json!(self.old.len()), json!(self.new.len()));
        shown["next"] = json!(next);
        shown["highlighted"] = json!(self.old_spans.is_ok() && self.new_spans.is_ok());
        shown["stopped"] = json!(plain.copied().find_map(Plain::word));
    }

    fn hunk(&self, group: &[DiffOp]) -> Value {
        let mut rows = Vec::new();
        for op in group {
            let (old, new) = (op.old_range(), op.new_range());
            let both = old.len().min(new.len());
            let is_equal = matches!(op, DiffOp::Equal { .. });
            for at in 0..both {
                rows.push(self.row(Some(old.start + at), Some(new.start + at), is_equal));
            }
            rows.extend((old.start + both..old.end).map(|at| self.row(Some(at), None, false)));
            rows.extend((new.start + both..new.end).map(|at| self.row(None, Some(at), false)));
        }
        let (first, last) = (group.first(), group.last());
        let bounds = |range: fn(&DiffOp) -> std::ops::Range<usize>| {
            let start = first.map_or(0, |op| range(op).start);
            (start, last.map_or(0, |op| range(op).end) - start)
        };
        let (old, new) = (bounds(DiffOp::old_range), bounds(DiffOp::new_range));
        json!({
            "old_start": old.0 + usize::from(old.1 > 0), "old_lines": old.1,
            "new_start": new.0 + usize::from(new.1 > 0), "new_lines": new.1, "rows": rows,
        })
    }

    fn row(&self, old: Option<usize>, new: Option<usize>, is_equal: bool) -> Value {
        let line = |lines: &[&'a str], at: Option<usize>| at.and_then(|at| lines.get(at).copied());
        let (old_text, new_text) = (line(&self.old, old), line(&self.new, new));
        let spans = |all: &Result<Vec<Spans>, Plain>, at: Option<usize>| match (all, at) {
            (Ok(all), Some(at)) => all.get(at).map_or(json!([]), |spans| json_spans(spans)),
            _ => json!([]),
        };
        let (op, marks) = match (old_text, new_text) {
            (Some(_), Some(_)) if is_equal => ("equal", Marks::default()),
            (Some(old), Some(new)) => ("replace", marks(old, new)),
            (Some(_), None) => ("delete", Marks::default()),
            _ => ("insert", Marks::default()),
        };
        // An equal line travels once; with spaces ignored the two may differ.
        let is_one = is_equal && old_text == new_text;
        json!({
            "op": op, "old": old.map(|at| at + 1), "new": new.map(|at| at + 1),
            "old_text": old_text, "new_text": new_text.filter(|_| !is_one),
            "old_spans": spans(&self.old_spans, old),
            "new_spans": if is_one { json!([]) } else { spans(&self.new_spans, new) },
            "old_marks": marks.old, "new_marks": marks.new,
        })
    }
}

/// Rows that an operation is shown in.
fn rows_of(op: &DiffOp) -> usize {
    op.old_range().len().max(op.new_range().len())
}

/// Cuts a hunk into hunks of at most [`HUNK_ROWS_MAX`] rows.
fn cut(group: Vec<DiffOp>) -> Vec<Vec<DiffOp>> {
    let (mut hunks, mut hunk, mut room) = (Vec::new(), Vec::new(), HUNK_ROWS_MAX);
    for op in group {
        let mut left = Some(op);
        while let Some(op) = left.take() {
            let rows = rows_of(&op);
            if rows <= room {
                room -= rows;
                hunk.push(op);
            } else {
                let (first, rest) = split(&op, room);
                hunk.extend((room > 0).then_some(first));
                hunks.push(std::mem::take(&mut hunk));
                (room, left) = (HUNK_ROWS_MAX, Some(rest));
            }
        }
    }
    hunks.extend((!hunk.is_empty()).then_some(hunk));
    hunks
}

/// Splits an operation after this number of rows.
fn split(op: &DiffOp, rows: usize) -> (DiffOp, DiffOp) {
    let (old, new) = (op.old_range(), op.new_range());
    let part = |from: usize, to: usize| {
        let of = |range: &std::ops::Range<usize>| {
            (range.start + from.min(range.len()), to.min(range.len()).saturating_sub(from.min(range.len())))
        };
        let ((old_index, old_len), (new_index, new_len)) = (of(&old), of(&new));
        match (op, old_len, new_len) {
            (DiffOp::Equal { .. }, len, _) => DiffOp::Equal { old_index, new_index, len },
            (_, _, 0) => DiffOp::Delete { old_index, old_len, new_index },
            (_, 0, _) => DiffOp::Insert { old_index, new_index, new_len },
            _ => DiffOp::Replace { old_index, old_len, new_index, new_len },
        }
    };
    (part(0, rows), part(rows, usize::MAX))
}

/// Words and the signs between them.
fn words(line: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words = Vec::new();
    let mut left = line;
    while let Some(first) = left.chars().next() {
        let end = match is_word(first) {
            true => left.find(|letter| !is_word(letter)).unwrap_or(left.len()),
            false => first.len_utf8(),
        };
        let (word, rest) = left.split_at(end);
        words.push(word);
        left = rest;
    }
    words
}

/// Changed ranges of both sides of a replaced line, in UTF-16 code units.
#[derive(Debug, Default, PartialEq, Eq)]
struct Marks {
    old: Vec<[usize; 2]>,
    new: Vec<[usize; 2]>,
}

fn marks(old: &str, new: &str) -> Marks {
    let mut marks = Marks::default();
    if old.len() > MARKED_CHARS_MAX.min(LINE_CHARS_MAX) || new.len() > MARKED_CHARS_MAX {
        return marks;
    }
    let (old, new) = (words(old), words(new));
    let diff = TextDiff::configure().timeout(Duration::from_millis(20)).diff_slices(&old, &new);
    // Lines that have little in common are changed as a whole.
    if diff.ratio() < 0.3 {
        return marks;
    }
    let units = |text: &str| text.encode_utf16().count();
    let (mut old_at, mut new_at) = (0, 0);
    for change in diff.iter_all_changes() {
        let length = units(change.value());
        let push = |ranges: &mut Vec<[usize; 2]>, at: usize| match ranges.last_mut() {
            Some(last) if last[1] == at => last[1] = at + length,
            _ => ranges.push([at, at + length]),
        };
        match change.tag() {
            similar::ChangeTag::Equal => {
                old_at += length;
                new_at += length;
            }
            similar::ChangeTag::Delete => {
                push(&mut marks.old, old_at);
                old_at += length;
            }
            similar::ChangeTag::Insert => {
                push(&mut marks.new, new_at);
                new_at += length;
            }
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(bytes: &[u8]) -> Blob {
        let entry = json!({ "type": "file", "mode": "0644", "size": bytes.len(), "hash": null });
        Blob { kind: BlobKind::File, entry, size: bytes.len() as u64, bytes: Some(bytes.to_vec()) }
    }

    const CHOICES: Choices = Choices { context: 3, ignores_space: false, hunk: 0, limit: 1000 };

    fn between(old: &[u8], new: &[u8], choices: Choices) -> Value {
        let (old, new) = (blob(old), blob(new));
        let side = |blob| Side { path: b"a.rs", blob: Some(blob) };
        compare(side(&old), side(&new), choices)
    }

    #[test]
    fn a_changed_word_is_marked_on_both_sides() {
        let shown = between(b"a\nprintln!(\"hello\")\nb\n", b"a\nprintln!(\"bye\")\nb\n", CHOICES);
        let rows = shown["hunks"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3, "{shown}");
        assert_eq!(rows[1]["op"], "replace");
        assert_eq!(rows[1]["old_marks"], json!([[10, 15]]));
        assert_eq!(rows[1]["new_marks"], json!([[10, 13]]));
        assert_eq!((&rows[0]["new_text"], &rows[0]["old_text"]), (&Value::Null, &json!("a")));
    }

    #[test]
    fn white_space_can_be_ignored() {
        let ignoring = Choices { ignores_space: true, ..CHOICES };
        assert_eq!(between(b"a b\n", b"a   b\n", ignoring)["hunks"], json!([]));
        assert_eq!(between(b"a b\n", b"a   b\n", CHOICES)["hunks"][0]["rows"][0]["op"], "replace");
    }

    #[test]
    fn a_hunk_of_any_length_comes_in_pages_and_loses_no_line() {
        let line = |at: usize| format!("{at}\n");
        let changed = |at: usize| if at.is_multiple_of(7) { line(at) } else { format!("n{at}\n") };
        let old: String = (0..9000).map(line).collect();
        let new: String = (0..12_345).map(changed).collect();
        for (old, new) in [("", new.as_str()), (new.as_str(), ""), (&old, &new), (&new, &old)] {
            let (mut next, mut pages) = (Some(0), 0);
            let (mut olds, mut news): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            while let Some(hunk) = next {
                let limit = 3000;
                let page = between(old.as_bytes(), new.as_bytes(), Choices { hunk, limit, ..CHOICES });
                let rows: Vec<&Value> = page["hunks"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|hunk| hunk["rows"].as_array().unwrap())
                    .collect();
                assert!(rows.len() <= limit + HUNK_ROWS_MAX, "{} rows", rows.len());
                olds.extend(rows.iter().filter_map(|row| row["old"].as_u64()));
                news.extend(rows.iter().filter_map(|row| row["new"].as_u64()));
                next = page["next"].as_u64().map(|next| usize::try_from(next).unwrap());
                pages += 1;
            }
            let all = |text: &str| (1..=text.lines().count() as u64).collect::<Vec<_>>();
            assert_eq!((olds, news), (all(old), all(new)));
            assert!(pages >= 3, "{pages}");
        }
    }

    #[test]
    fn svg_is_text_and_no_picture() {
        let svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
        assert_eq!(picture(svg), None);
        assert_eq!(file(b"a.svg", &blob(svg), 0, 10)["kind"], "text");
        assert_eq!(between(svg, b"<svg/>", CHOICES)["kind"], "text");
    }

    #[test]
    fn hostile_lines_stay_text() {
        let shown = file(b"a.html", &blob(b"<script>alert(1)</script>\xff\n"), 0, 10);
        assert_eq!(shown["lines"][0]["text"], "<script>alert(1)</script>\u{fffd}");
        assert_eq!(file(b"a", &blob(b"a\0b"), 0, 10)["kind"], "binary");
    }

    #[test]
    fn long_differences_come_in_pages() {
        let old: String = (0..1000).map(|at| format!("{at}\n")).collect();
        let new: String =
            (0..1000).map(|at| if at % 20 == 0 { "x\n".to_owned() } else { format!("{at}\n") }).collect();
        let first = between(old.as_bytes(), new.as_bytes(), Choices { limit: 50, ..CHOICES });
        let next = usize::try_from(first["next"].as_u64().unwrap()).unwrap();
        assert_eq!(first["hunks"].as_array().unwrap().len(), next);
        let rest = between(old.as_bytes(), new.as_bytes(), Choices { hunk: next, ..CHOICES });
        assert_eq!(rest["hunks"].as_array().unwrap().len() + next, 50);
    }
}
