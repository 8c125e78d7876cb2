//! Syntax trees of shell text: the simple commands and redirections in it.

use super::commands::{Judged, judge};
use super::{RiskKind, RiskPattern};
use tree_sitter::{Node, Parser, Tree};

/// Maximum length of a text that is parsed. The time of a parse can grow with the square of the length: 32 KiB of
/// `a=(` take 5 s.
const PARSED_BYTES_MAX: usize = 16 << 10;
/// Maximum length of all parsed texts: the text itself, and texts that run inside of it.
const ALL_BYTES_MAX: usize = 2 * PARSED_BYTES_MAX;
/// Maximum depth of texts that run texts, such as `bash -c "bash -c ..."`.
const TEXTS_DEEP_MAX: usize = 6;

/// Word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Text without quotes. If it is not known, as written.
    pub(super) text: String,
    /// False if the shell computes the word.
    pub(super) is_known: bool,
}

/// Risk at a place of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: RiskKind,
    /// Shell text of the place.
    pub(super) text: String,
}

/// Returns the gravest risk of a text, the first of several. Of a long text only the start is parsed, and the
/// rest counts as not understood.
pub(super) fn gravest(text: &str, patterns: &[RiskPattern]) -> Option<Found> {
    let mut search = Search { patterns, found: None, texts: vec![(text.to_owned(), 0)] };
    let mut left = ALL_BYTES_MAX;
    while let Some((text, depth)) = search.texts.pop() {
        let start = &text[..text.floor_char_boundary(PARSED_BYTES_MAX)];
        if depth > TEXTS_DEEP_MAX || start.len() > left {
            search.add(RiskKind::Unknown, start);
            break;
        }
        left -= start.len();
        match parse(start) {
            Some(tree) => search.walk(&tree, start, depth),
            None => search.add(RiskKind::Unknown, start),
        }
        if start.len() < text.len() {
            search.add(RiskKind::Unknown, start);
        }
    }
    search.found
}

fn parse(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    parser.parse(ascii(text), None)
}

/// Returns the text with each byte beyond ASCII replaced by a letter, so that all offsets stay. For bash both are
/// parts of words. The scanner of tree-sitter-bash 0.25 passes the letter after a brace to `isdigit`, which reads
/// outside of its table (C11 7.4) and can end the process.
fn ascii(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if byte.is_ascii() { byte } else { b'x' }).collect()
}

struct Search<'a> {
    patterns: &'a [RiskPattern],
    found: Option<Found>,
    /// Texts to parse, with their depth.
    texts: Vec<(String, usize)>,
}

impl Search<'_> {
    fn add(&mut self, kind: RiskKind, text: &str) {
        if self.found.as_ref().is_none_or(|found| kind < found.kind) {
            self.found = Some(Found { kind, text: text.to_owned() });
        }
    }

    /// Returns true if no graver risk can follow.
    fn is_decided(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.kind == RiskKind::Delete)
    }

    /// Visits every node in order. The cursor keeps the path, so that depth costs no stack.
    fn walk(&mut self, tree: &Tree, source: &str, depth: usize) {
        let mut cursor = tree.walk();
        while !self.is_decided() {
            self.visit(cursor.node(), source, depth);
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    if tree.root_node().has_error() {
                        self.add(RiskKind::Unknown, source);
                    }
                    return;
                }
            }
        }
    }

    fn visit(&mut self, node: Node<'_>, source: &str, depth: usize) {
        match node.kind() {
            "command" => self.command(node, source, depth),
            "file_redirect" if overwrites(node, source) => {
                self.add(RiskKind::Overwrite, first_line(text(statement(node), source)));
            }
            _ => {}
        }
    }

    fn command(&mut self, node: Node<'_>, source: &str, depth: usize) {
        let words = words(node, source);
        for judged in judge(&words, self.patterns) {
            match judged {
                Judged::Harmless => {}
                Judged::Risky(kind) => self.add(kind, &joined(text(node, source))),
                Judged::Runs(inner) => self.texts.push((inner, depth + 1)),
                Judged::RunsInput => match given_input(node, source) {
                    Some(inner) => self.texts.push((inner, depth + 1)),
                    None => self.add(RiskKind::Unknown, &joined(text(node, source))),
                },
            }
        }
    }
}

/// Returns the text of a node. The parser reads ASCII, so a node may begin or end inside of a letter.
fn text<'a>(node: Node<'_>, source: &'a str) -> &'a str {
    let range = node.byte_range();
    source
        .get(source.floor_char_boundary(range.start)..source.ceil_char_boundary(range.end))
        .unwrap_or_default()
}

/// Joins the lines that a backslash continues.
fn joined(text: &str) -> String {
    text.replace("\\\n", " ")
}

/// Returns the statement of a redirection. After a here document's mark it belongs to the document.
fn statement(redirect: Node<'_>) -> Node<'_> {
    let parent = redirect.parent().unwrap_or(redirect);
    if parent.kind() == "heredoc_redirect" { parent.parent().unwrap_or(parent) } else { parent }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the words of a command, the program first.
fn words(command: Node<'_>, source: &str) -> Vec<Word> {
    let mut cursor = command.walk();
    let mut words = Vec::new();
    if !cursor.goto_first_child() {
        return words;
    }
    loop {
        match cursor.field_name() {
            Some("name") => {
                let name = cursor.node();
                words.push(word(name.named_child(0).unwrap_or(name), source));
            }
            Some("argument") => words.push(word(cursor.node(), source)),
            _ => {}
        }
        if !cursor.goto_next_sibling() {
            return words;
        }
    }
}

fn word(node: Node<'_>, source: &str) -> Word {
    if node.kind() != "concatenation" {
        return piece(node, source);
    }
    let mut joined = Word { text: String::new(), is_known: true };
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        let piece = piece(child, source);
        joined.text.push_str(&piece.text);
        joined.is_known &= piece.is_known;
    }
    joined
}

/// Returns a word without parts.
fn piece(node: Node<'_>, source: &str) -> Word {
    let written = text(node, source);
    let known = |text: String| Word { text, is_known: true };
    let unknown = || Word { text: written.to_owned(), is_known: false };
    // In a partial tree the closing quote can be missing.
    let inside = |open: &str, close: char| written.strip_prefix(open)?.strip_suffix(close);
    match node.kind() {
        "word" | "number" | "==" | "=~" => known(unescaped(written, |_| true)),
        "raw_string" => inside("'", '\'').map_or_else(unknown, |inner| known(inner.to_owned())),
        "string" => {
            let mut cursor = node.walk();
            let is_plain = node.named_children(&mut cursor).all(|child| child.kind() == "string_content");
            let inner = inside("\"", '"').filter(|_| is_plain);
            inner.map_or_else(unknown, |inner| known(unescaped(inner, |letter| "\\\"$`\n".contains(letter))))
        }
        "ansi_c_string" if !written.contains('\\') => {
            inside("$'", '\'').map_or_else(unknown, |inner| known(inner.to_owned()))
        }
        _ => unknown(),
    }
}

/// Removes the backslashes before characters that they quote.
fn unescaped(text: &str, quotes: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letters.peek() {
            Some(next) if letter == '\\' && quotes(*next) => {
                plain.extend(letters.next().filter(|next| *next != '\n'));
            }
            _ => plain.push(letter),
        }
    }
    plain
}

/// Returns true for a redirection that empties a file.
fn overwrites(redirect: Node<'_>, source: &str) -> bool {
    let mut cursor = redirect.walk();
    let operator = redirect.children(&mut cursor).map(|child| child.kind());
    if !operator.into_iter().any(|kind| [">", ">|", "&>", ">&"].contains(&kind)) {
        return false;
    }
    let Some(destination) = redirect.child_by_field_name("destination") else { return true };
    let target = word(destination, source);
    let is_descriptor = target.text == "-" || target.text.bytes().all(|byte| byte.is_ascii_digit());
    !(target.is_known && (is_descriptor || target.text.starts_with("/dev/")))
}

/// Returns the text that a here document or a here string gives to a command.
fn given_input(command: Node<'_>, source: &str) -> Option<String> {
    let statement = command.parent().filter(|parent| parent.kind() == "redirected_statement");
    let holders = [Some(command), statement];
    for holder in holders.into_iter().flatten() {
        let mut cursor = holder.walk();
        for child in holder.children(&mut cursor) {
            match child.kind() {
                "heredoc_redirect" => {
                    let mut parts = child.walk();
                    let body = child.children(&mut parts).find(|part| part.kind() == "heredoc_body")?;
                    return Some(text(body, source).to_owned());
                }
                "herestring_redirect" => {
                    let given =
                        child.named_child(child.named_child_count().checked_sub(1)?.try_into().ok()?)?;
                    return Some(word(given, source)).filter(|word| word.is_known).map(|word| word.text);
                }
                _ => {}
            }
        }
    }
    None
}
