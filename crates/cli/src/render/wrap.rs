//! Sentences broken at words for a terminal. A command is never broken: what is pasted must be whole.

use crate::render::terminal::columns;

/// Indent of continued lines.
const INDENT: usize = 4;
/// Ends of a command within a sentence.
const ENDS: [char; 4] = [';', ',', '.', ')'];

/// Lines of a text that fit this many columns, except for words and commands that are longer. The indent of the text is kept.
pub(crate) fn wrapped(text: &str, columns_max: usize) -> Vec<String> {
    if visible(text) <= columns_max {
        return vec![text.to_owned()];
    }
    let lead = text.len() - text.trim_start_matches(' ').len();
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(lead);
    let mut is_empty = true;
    for word in words(text.trim_start_matches(' ')) {
        if !is_empty && visible(&line) + 1 + visible(&word) > columns_max {
            // A long command begins further left, if it is whole there.
            let fits = lead + INDENT + visible(&word) <= columns_max;
            let next = if fits { lead + INDENT } else { INDENT };
            lines.push(std::mem::replace(&mut line, " ".repeat(next)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Words; a command, and whatever stands in backticks, is one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open: Option<char> = None;
    for word in text.split(' ') {
        match (open, words.last_mut()) {
            (Some(_), Some(last)) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        open = match open {
            Some('`') if word.contains('`') => None,
            Some('s') if word.ends_with(ENDS) => None,
            Some(kind) => Some(kind),
            None if word.matches('`').count() % 2 == 1 => Some('`'),
            None if word == "safepoint" => Some('s'),
            None => None,
        };
    }
    words
}

/// Columns of a text without its colours.
fn visible(text: &str) -> usize {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    columns(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_at_words_and_commands_are_whole() {
        let text = "  store: 12 checkpoints here; 3 MB for all workspaces in /home/ada";
        assert_eq!(
            wrapped(text, 40),
            ["  store: 12 checkpoints here; 3 MB for", "      all workspaces in /home/ada"]
        );
        let text = "hint: Undo anyway: safepoint undo --yes -- notes.txt";
        assert_eq!(wrapped(text, 40), ["hint: Undo anyway:", "    safepoint undo --yes -- notes.txt"]);
        let text = "check with: safepoint recover; delete it with: safepoint recover --release";
        assert_eq!(
            wrapped(text, 44),
            ["check with: safepoint recover; delete it", "    with: safepoint recover --release"]
        );
        let text = "one `safepoint list --all-roles` shows them";
        assert_eq!(wrapped(text, 30), ["one", "    `safepoint list --all-roles`", "    shows them"]);
        assert_eq!(wrapped("short", 5), ["short"]);
        let text = "          hint: Undo it: safepoint undo --yes";
        assert_eq!(wrapped(text, 30), ["          hint: Undo it:", "    safepoint undo --yes"]);
    }

    #[test]
    fn colours_take_no_columns() {
        assert_eq!(visible("\u{1b}[33mwarning:\u{1b}[0m x"), 10);
        assert_eq!(wrapped("\u{1b}[33mab\u{1b}[0m cd", 5), ["\u{1b}[33mab\u{1b}[0m cd"]);
    }
}
