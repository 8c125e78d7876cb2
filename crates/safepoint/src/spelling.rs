//! Suggestions for misspelled words, and safe display of untrusted text.

/// Maximum length shown and compared.
pub(crate) const SHOWN_CHARS_MAX: usize = 60;

/// Returns the most similar known word, if any.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: String = word.chars().take(SHOWN_CHARS_MAX).collect();
    let distance = |known: &str| strsim::damerau_levenshtein(&word, known);
    // Half of the letters must match.
    let alike = known.iter().copied().filter(|known| distance(known) * 2 <= known.chars().count());
    alike.min_by_key(|known| distance(known))
}

/// Escapes and shortens untrusted text to one line of a message.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_one_that_is_like_it() {
        // `risky` is as distant, but too short.
        assert_eq!(nearest("retry", &["risky", "retries"]), Some("retries"));
        assert_eq!(nearest("zzz", &["title", "id"]), None);
        assert_eq!(nearest(&"title".repeat(100_000), &["title"]), None);
        assert_eq!(printable("a\n\u{1b}"), "a\\n\\u{1b}");
        assert_eq!(printable(&"x".repeat(61)), format!("{}...", "x".repeat(60)));
    }
}
