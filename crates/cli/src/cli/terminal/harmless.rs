//! What others wrote, made harmless: nothing of it acts on a terminal or in a shell.

use super::Colours;

/// Text of others, made harmless: what would act on a terminal is spelled out.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            safe.extend(letter.escape_default());
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// Bytes of others, made harmless.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        safe.push_str(&printable(chunk.valid()));
        safe.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    safe
}

/// One line that another program printed, made harmless: of what acts on a terminal only colours stay, where they are wanted. Of a line
/// that was written over again and again the last state stays.
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

/// Splits off the escape sequence that the text begins with (ECMA-48, and xterm's for titles and the like).
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

/// Whether a sequence does nothing but choose colours and the like.
fn is_colour(sequence: &str) -> bool {
    let inside = sequence.strip_prefix("\u{1b}[").and_then(|rest| rest.strip_suffix('m'));
    inside.is_some_and(|inside| {
        inside.chars().all(|letter| letter.is_ascii_digit() || letter == ';' || letter == ':')
    })
}

/// A word as it is typed in a shell.
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
