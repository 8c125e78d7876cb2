//! Todos of Copilot CLI, which it keeps with SQL statements in a table `todos`.
//!
//! Only the statements that it writes are understood: rows of literals inserted, and `status` or `title` set
//! for given ids. Everything else reports nothing.

use super::plan::{ReportedStatus, ReportedStep, step_text};

const TOKENS_MAX: usize = 20_000;
const STEPS_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Unquoted word, in lower case.
    Word(String),
    Text(String),
    Sign(char),
}

/// Returns the steps that statements add or change.
pub(super) fn todos(query: &str) -> Vec<ReportedStep> {
    let tokens = tokens(query);
    let statements = tokens.split(|token| *token == Token::Sign(';'));
    statements.flat_map(|statement| statement_steps(statement).unwrap_or_default()).take(STEPS_MAX).collect()
}

fn tokens(query: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        if found.len() == TOKENS_MAX {
            break;
        }
        let (token, after) = match first {
            '\'' | '"' | '`' => quoted(rest, first),
            _ if rest.starts_with("--") => (None, rest.split_once('\n').map_or("", |(_, after)| after)),
            _ if is_word(first) => {
                let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                (Some(Token::Word(rest[..end].to_ascii_lowercase())), &rest[end..])
            }
            _ => (Some(Token::Sign(first)), &rest[first.len_utf8()..]),
        };
        found.extend(token);
        rest = after.trim_start();
    }
    found
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || "_.".contains(letter)
}

/// Reads a quoted text, in which a doubled quote is a quote.
fn quoted(text: &str, quote: char) -> (Option<Token>, &str) {
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            content.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            content.push(quote);
        } else {
            let token =
                if quote == '\'' { Token::Text(content) } else { Token::Word(content.to_lowercase()) };
            return (Some(token), &text[at + quote.len_utf8()..]);
        }
    }
    (None, "")
}

fn statement_steps(statement: &[Token]) -> Option<Vec<ReportedStep>> {
    let word = |at: usize| match statement.get(at) {
        Some(Token::Word(word)) => word.as_str(),
        _ => "",
    };
    match word(0) {
        "insert" | "replace" => {
            let into = statement.iter().position(|token| *token == Token::Word("into".to_owned()))?;
            (word(into + 1) == "todos").then(|| inserted(&statement[into + 2..]))
        }
        "update" if word(1) == "todos" && word(2) == "set" => updated(&statement[3..]),
        "delete" if word(1) == "from" && word(2) == "todos" => {
            let gone =
                |id| ReportedStep { id: Some(id), text: None, status: Some(ReportedStatus::Cancelled) };
            Some(ids(&statement[3..]).into_iter().map(gone).collect())
        }
        _ => None,
    }
}

/// Reads `(id, title, status) VALUES ('a', 'b', 'pending'), ...`.
fn inserted(tokens: &[Token]) -> Vec<ReportedStep> {
    let mut groups = tokens.split(|token| *token == Token::Sign('('));
    let names: Vec<&Token> = match groups.nth(1) {
        Some(names) => names.iter().take_while(|token| **token != Token::Sign(')')).collect(),
        None => return Vec::new(),
    };
    let names: Vec<&Token> = names.into_iter().filter(|token| **token != Token::Sign(',')).collect();
    let rows = groups.map(|row| {
        let row = row.split(|token| *token == Token::Sign(')')).next().unwrap_or_default();
        let values: Vec<&[Token]> = row.split(|token| *token == Token::Sign(',')).collect();
        let value = |name: &str| {
            let at = names.iter().position(|column| **column == Token::Word(name.to_owned()))?;
            literal(values.get(at)?)
        };
        let status =
            value("status").map_or(Some(ReportedStatus::Pending), |word| ReportedStatus::parse(&word));
        ReportedStep { id: value("id"), text: value("title").and_then(|text| step_text(&text)), status }
    });
    rows.filter(|step| step.id.is_some() || step.text.is_some()).take(STEPS_MAX).collect()
}

fn literal(tokens: &[Token]) -> Option<String> {
    match tokens {
        [Token::Text(text)] => Some(text.clone()),
        [Token::Word(number)] if number.bytes().all(|byte| byte.is_ascii_digit()) => Some(number.clone()),
        _ => None,
    }
}

/// Reads `status = 'done', title = 'b' WHERE id = 'a'`.
fn updated(tokens: &[Token]) -> Option<Vec<ReportedStep>> {
    let at = tokens.iter().position(|token| *token == Token::Word("where".to_owned()))?;
    let (assignments, condition) = tokens.split_at(at);
    let value = |name: &str| {
        assignments.split(|token| *token == Token::Sign(',')).find_map(|assignment| match assignment {
            [Token::Word(column), Token::Sign('='), value @ ..] if column == name => literal(value),
            _ => None,
        })
    };
    let status = value("status").and_then(|word| ReportedStatus::parse(&word));
    let text = value("title").and_then(|text| step_text(&text));
    if status.is_none() && text.is_none() {
        return None;
    }
    let step = |id| ReportedStep { id: Some(id), text: text.clone(), status };
    Some(ids(condition).into_iter().map(step).collect())
}

/// Reads the ids of `WHERE id = 'a'` and `WHERE id IN ('a', 'b')`; any other condition names none.
fn ids(condition: &[Token]) -> Vec<String> {
    match condition {
        [Token::Word(word), Token::Word(id), Token::Sign('='), value @ ..]
            if word == "where" && id == "id" =>
        {
            literal(value).into_iter().collect()
        }
        [
            Token::Word(word),
            Token::Word(id),
            Token::Word(of),
            Token::Sign('('),
            list @ ..,
            Token::Sign(')'),
        ] if word == "where" && id == "id" && of == "in" => {
            list.split(|token| *token == Token::Sign(',')).filter_map(literal).take(STEPS_MAX).collect()
        }
        _ => Vec::new(),
    }
}
