//! Escaping of untrusted text: names, labels and messages cannot control a terminal or imitate other text.
//!
//! This is the only list of characters that are never printed verbatim. All text for people is escaped with
//! it.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Returns true if a character controls a terminal, reorders the text around it, or is invisible.
///
/// These are the C0 and C1 controls and DEL; the bidirectional controls (Unicode Standard Annex #9);
/// zero-width characters; line separators; and tag characters.
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Returns the text with every unsafe character escaped, such as `\n` or `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    // Writing into a string cannot fail.
    let _ = write_printable(&mut safe, text.as_bytes());
    Cow::Owned(safe)
}

/// Writes bytes as [`printable`] text; a byte that is not UTF-8 becomes `\xe9`.
///
/// # Errors
/// When the destination fails.
pub fn write_printable(to: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if is_unsafe(letter) {
                write!(to, "{}", letter.escape_default())?;
            } else {
                to.write_char(letter)?;
            }
        }
        chunk.invalid().iter().try_for_each(|byte| write!(to, "\\x{byte:02x}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_or_hides_is_spelled_out() {
        let letters = (0..0x20).chain(0x7f..=0x9f).chain(0x200b..=0x200f).chain(0x2028..=0x202e);
        let letters = letters.chain(0x2060..=0x2064).chain(0x2066..=0x2069).chain([0x61c, 0xfeff]);
        for letter in letters.filter_map(char::from_u32) {
            let shown = printable(&format!("a{letter}b")).into_owned();
            assert!(
                shown.starts_with("a\\") && shown.is_ascii() && !shown.contains(char::is_control),
                "{shown:?}"
            );
        }
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
        assert!(matches!(printable("caf\u{e9} \u{1f600} \u{5d0}"), Cow::Borrowed(_)));
        let mut safe = String::new();
        write_printable(&mut safe, b"caf\xe9 \x9b2J").unwrap();
        assert_eq!(safe, "caf\\xe9 \\x9b2J");
    }
}
