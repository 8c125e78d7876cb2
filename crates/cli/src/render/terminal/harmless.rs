//! Sanitization of untrusted text: none of it acts on a terminal or in a shell.

use super::Colours;
use safepoint::model::text;
use std::borrow::Cow;

/// Sanitizes text: escapes terminal control characters.
pub(crate) fn printable(text: &str) -> String {
    text::printable(text).into_owned()
}

/// Sanitizes bytes.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    // Writing to a string cannot fail.
    let _ = text::write_printable(&mut safe, bytes);
    safe
}

/// Sanitizes a printed line: keeps only our own colours, if on. Every line that Safepoint prints passes
/// through here, so that a command that prints untrusted text does no harm.
pub(crate) fn one_line(line: &str, colours: Colours) -> Cow<'_, str> {
    if !line.chars().any(text::is_unsafe) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len() + 8);
    let (mut rest, mut painted) = (line, false);
    while let Some(at) = rest.find(text::is_unsafe) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let style = PALETTE.iter().find(|style| colours.on && rest.starts_with(**style));
        let length = style.map_or_else(|| rest.chars().next().map_or(0, char::len_utf8), |style| style.len());
        let (piece, after) = rest.split_at(length);
        match style {
            Some(style) => {
                painted = *style != RESET;
                safe.push_str(piece);
            }
            None => safe.push_str(&text::printable(piece)),
        }
        rest = after;
    }
    safe.push_str(rest);
    if painted {
        safe.push_str(RESET);
    }
    Cow::Owned(safe)
}

const RESET: &str = "\u{1b}[0m";
/// Escape sequences of [`Colours`]; a test compares them.
const PALETTE: [&str; 8] =
    [RESET, "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[34m", "\u{1b}[36m"];

/// Sanitizes file content for a terminal: keeps lines and tabs, escapes other unsafe characters.
pub(crate) fn content(bytes: &[u8]) -> String {
    let pieces = bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\t'));
    let shown = pieces.map(|piece| match piece.split_last() {
        Some((end @ (b'\n' | b'\t'), before)) => printable_bytes(before) + &char::from(*end).to_string(),
        _ => printable_bytes(piece),
    });
    shown.collect()
}

/// Escapes unsafe characters in JSON strings as `\u`: same value, but harmless on a terminal.
pub(crate) fn json_text(json: &str) -> Cow<'_, str> {
    // Outside strings JSON is ASCII, and its only control characters are newlines.
    let odd = |letter: char| letter != '\n' && text::is_unsafe(letter);
    if !json.chars().any(odd) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 8);
    for letter in json.chars() {
        if odd(letter) {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

/// Sanitizes a line of another program: keeps only colours, if on, and drops other escape sequences. Of a
/// line overwritten by carriage returns, the last state stays.
pub(crate) fn harmless(line: &[u8], colours: Colours) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    let last = text.rsplit('\r').find(|piece| !piece.is_empty()).unwrap_or_default();
    let mut safe = String::with_capacity(last.len());
    let mut painted = false;
    let mut rest = last;
    while let Some(letter) = rest.chars().next() {
        let (sequence, after) = match letter {
            '\u{1b}' => escape_sequence(rest),
            _ => rest.split_at(letter.len_utf8()),
        };
        match letter {
            '\u{1b}' if colours.on && is_colour(sequence) => {
                painted = true;
                safe.push_str(sequence);
            }
            '\u{1b}' => {}
            '\t' => safe.push_str("    "),
            _ => safe.push_str(&printable(sequence)),
        }
        rest = after;
    }
    if painted {
        safe.push_str("\u{1b}[0m");
    }
    safe
}

/// Splits off a leading escape sequence (ECMA-48, and xterm's for titles and similar).
fn escape_sequence(text: &str) -> (&str, &str) {
    let mut letters = text.char_indices().skip(1);
    let end = match letters.next() {
        Some((_, '[')) => letters.find(|(_, letter)| ('\u{40}'..='\u{7e}').contains(letter)),
        Some((_, ']' | 'P' | 'X' | '^' | '_')) => letters
            .find(|(at, letter)| *letter == '\u{7}' || text[..*at].ends_with('\u{1b}') && *letter == '\\'),
        other => other,
    };
    match end {
        Some((at, letter)) => text.split_at(at + letter.len_utf8()),
        None => (text, ""),
    }
}

/// Returns true if a sequence only sets colours and similar attributes.
fn is_colour(sequence: &str) -> bool {
    let inside = sequence.strip_prefix("\u{1b}[").and_then(|rest| rest.strip_suffix('m'));
    inside.is_some_and(|inside| {
        inside.chars().all(|letter| letter.is_ascii_digit() || letter == ';' || letter == ':')
    })
}

/// Quotes a word for a shell.
pub(crate) fn for_shell(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+@%:,=".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", printable(word).replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_only_colours_of_our_own() {
        let (on, off) = (Colours { on: true }, Colours { on: false });
        for painted in [
            on.bold("x"),
            on.dim("x"),
            on.red("x"),
            on.green("x"),
            on.yellow("x"),
            on.blue("x"),
            on.cyan("x"),
        ] {
            assert_eq!(one_line(&painted, on), painted, "a colour is missing from the palette");
        }
        assert_eq!(one_line("a\u{1b}[31mb\u{1b}[8mc", on), "a\u{1b}[31mb\\u{1b}[8mc\u{1b}[0m");
        assert_eq!(one_line("a\u{1b}[31mb\n\u{202e}", off), "a\\u{1b}[31mb\\n\\u{202e}");
        assert_eq!(content(b"a\tb\n\x1b[2J\r\n\x9b"), "a\tb\n\\u{1b}[2J\\r\n\\x9b");
        let odd = serde_json::json!({ "a\u{202e}": "\u{7f}\u{9b}\u{e0001}\n" });
        let text = format!("{odd:#}");
        assert_eq!(json_text(&text), "{\n  \"a\\u202e\": \"\\u007f\\u009b\\udb40\\udc01\\n\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json_text(&text)).unwrap(), odd);
    }

    #[test]
    fn text_of_others_cannot_act_on_a_terminal() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        let (on, off) = (Colours { on: true }, Colours { on: false });
        assert_eq!(
            harmless(b"a\x1b[1;31mred\x1b[2J\x1b]0;title\x07b\x1bcd\n", on),
            "a\u{1b}[1;31mredbd\u{1b}[0m"
        );
        assert_eq!(harmless(b"a\x1b[31mred\x1b[0m\xff\tb\x9b1\x08", off), "ared\u{fffd}    b\u{fffd}1\\u{8}");
        assert_eq!(harmless(b"10%\r50%\r100%\r\n", on), "100%");
        assert_eq!(harmless(b"\x1b[", on), "");
        assert_eq!(harmless("\u{9b}2J \u{1b}]0;x\u{1b}\\y".as_bytes(), on), "\\u{9b}2J y");
        assert_eq!([for_shell("/a/b-c"), for_shell("it's"), for_shell("")], ["/a/b-c", "'it'\\''s'", "''"]);
    }
}
