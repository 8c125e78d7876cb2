//! Highlighting: ranges and classes for the lines of a text, within a deadline.

use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

/// Time for one text. Some grammars take very long on odd files.
const PATIENCE: Duration = Duration::from_millis(700);
/// Lines above this length are plain.
pub(crate) const LINE_CHARS_MAX: usize = 16_000;
/// Texts above this size are plain.
pub(crate) const TEXT_BYTES_MAX: usize = 2 << 20;

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// Scopes and the classes of the page, the more exact first.
static CLASSES: LazyLock<Vec<(Scope, &'static str)>> = LazyLock::new(|| {
    [
        ("comment", "comment"),
        ("constant.character.escape", "escape"),
        ("constant.numeric", "number"),
        ("constant", "constant"),
        ("string", "string"),
        ("entity.name.function", "function"),
        ("support.function", "function"),
        ("entity.name.tag", "tag"),
        ("entity.other.attribute-name", "attribute"),
        ("entity.name", "type"),
        ("storage.type", "keyword"),
        ("storage", "keyword"),
        ("keyword.operator", "operator"),
        ("keyword", "keyword"),
        ("support.type", "type"),
        ("support.class", "type"),
        ("variable.function", "function"),
        ("variable.parameter", "parameter"),
        ("markup.heading", "heading"),
        ("markup.bold", "strong"),
        ("markup.italic", "emphasis"),
    ]
    .into_iter()
    .filter_map(|(scope, class)| Some((Scope::new(scope).ok()?, class)))
    .collect()
});

/// Reason for plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    Size,
    LineLength,
    Deadline,
    /// No grammar fits; nothing was given up.
    Unknown,
}

impl Plain {
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Plain::Size => Some("size"),
            Plain::LineLength => Some("line_length"),
            Plain::Deadline => Some("deadline"),
            Plain::Unknown => None,
        }
    }
}

/// Ranges of one line: from, to, class; in UTF-16 code units, as the page counts.
pub(crate) type Spans = Vec<(usize, usize, &'static str)>;

pub(crate) fn json_spans(spans: &[(usize, usize, &'static str)]) -> Value {
    spans.iter().map(|(from, to, class)| json!([from, to, class])).collect()
}

/// Highlights lines. `path` names the grammar.
pub(crate) fn lines(path: &[u8], lines: &[&str]) -> Result<Vec<Spans>, Plain> {
    if lines.iter().map(|line| line.len() + 1).sum::<usize>() > TEXT_BYTES_MAX {
        return Err(Plain::Size);
    }
    if lines.iter().any(|line| line.len() > LINE_CHARS_MAX) {
        return Err(Plain::LineLength);
    }
    let syntax = grammar(path, lines.first().copied().unwrap_or("")).ok_or(Plain::Unknown)?;
    within(syntax, lines, Instant::now() + PATIENCE)
}

fn within(syntax: &SyntaxReference, lines: &[&str], deadline: Instant) -> Result<Vec<Spans>, Plain> {
    let (mut state, mut stack) = (ParseState::new(syntax), ScopeStack::new());
    let mut all = Vec::with_capacity(lines.len());
    for line in lines {
        if Instant::now() >= deadline {
            return Err(Plain::Deadline);
        }
        all.push(one(&mut state, &mut stack, line)?);
    }
    Ok(all)
}

fn one(state: &mut ParseState, stack: &mut ScopeStack, line: &str) -> Result<Spans, Plain> {
    let with_end = format!("{line}\n");
    let ops = state.parse_line(&with_end, &SYNTAXES).map_err(|_| Plain::Unknown)?;
    let (mut spans, mut at, mut at_utf16): (Spans, usize, usize) = (Vec::new(), 0, 0);
    let mut until = |to: usize, stack: &ScopeStack| {
        let to = to.min(line.len());
        let Some(piece) = line.get(at..to).filter(|piece| !piece.is_empty()) else { return };
        let to_utf16 = at_utf16 + piece.encode_utf16().count();
        if let Some(class) = class(stack) {
            match spans.last_mut() {
                Some((_, end, last)) if *end == at_utf16 && *last == class => *end = to_utf16,
                _ => spans.push((at_utf16, to_utf16, class)),
            }
        }
        (at, at_utf16) = (to, to_utf16);
    };
    for (place, op) in &ops {
        until(*place, stack);
        stack.apply(op).map_err(|_| Plain::Unknown)?;
    }
    until(line.len(), stack);
    Ok(spans)
}

fn class(stack: &ScopeStack) -> Option<&'static str> {
    stack.as_slice().iter().rev().find_map(|scope| {
        CLASSES.iter().find(|(known, _)| known.is_prefix_of(*scope)).map(|(_, class)| *class)
    })
}

fn grammar(path: &[u8], first: &str) -> Option<&'static SyntaxReference> {
    let path = String::from_utf8_lossy(path);
    let name = path.rsplit('/').next().unwrap_or("");
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let found = SYNTAXES
        .find_syntax_by_extension(name)
        .or_else(|| extension.and_then(|extension| SYNTAXES.find_syntax_by_extension(extension)))
        .or_else(|| SYNTAXES.find_syntax_by_first_line(first));
    found.filter(|syntax| syntax.name != "Plain Text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_as_the_page_counts() {
        let spans = lines(b"a.rs", &["let x = \"\u{1f600}\"; // e", "fn a() {}"]).unwrap();
        let comment = spans[0].iter().find(|(_, _, class)| *class == "comment").unwrap();
        // The emoji has two units.
        assert_eq!((comment.0, comment.1), (14, 18), "{spans:?}");
        assert!(
            spans[1].iter().any(|(from, to, class)| (*from, *to, *class) == (3, 4, "function")),
            "{spans:?}"
        );
    }

    #[test]
    fn odd_texts_are_plain_in_time() {
        let long = "x".repeat(LINE_CHARS_MAX + 1);
        assert_eq!(lines(b"a.rs", &[long.as_str()]), Err(Plain::LineLength));
        assert_eq!(lines(b"a.unknown", &["x"]), Err(Plain::Unknown));
        let syntax = SYNTAXES.find_syntax_by_extension("rs").unwrap();
        assert_eq!(within(syntax, &["let"], Instant::now()), Err(Plain::Deadline));
        let many = vec!["let"; TEXT_BYTES_MAX / 3];
        assert_eq!(lines(b"a.rs", &many), Err(Plain::Size));
    }
}
