//! Nodes from TOML. The parser bounds the nesting.

use super::PlanFormat;
use super::error::{Place, PlanFileError, PlanFileProblem, PlanProblemKind};
use super::node::{Entry, Node, Shape};
use crate::spelling::printable;
use serde_json::Number;
use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue, Error};

pub(super) fn parse(text: &str) -> Result<Node, PlanFileError> {
    match DeTable::parse(text) {
        Ok(table) => Ok(Node { at: table.span().start, shape: Shape::Table(entries(table.into_inner())) }),
        Err(error) => Err(refused(text, &error)),
    }
}

fn refused(text: &str, error: &Error) -> PlanFileError {
    let at = error.span().map_or(0, |span| span.start);
    let place = Place::of(text, at);
    let key = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    let rest = text.get(at + key.len()..).unwrap_or_default().trim_start();
    let is_key = !key.is_empty() && rest.starts_with(['=', '.', ']']);
    if let Some(first) = is_key.then(|| first_of(text, at, key)).flatten() {
        let first = Some(Place::of(text, first));
        let why = "it stands there already".to_owned();
        let kind = PlanProblemKind::Twice { first, why };
        return PlanFileError::Wrong(vec![PlanFileProblem { place, step: None, key: printable(key), kind }]);
    }
    PlanFileError::Syntax { format: PlanFormat::Toml, place, why: error.message().replace('\n', ", ") }
}

/// Returns the offset of the key that a later one repeats: the last equal key before it that has the same
/// line prefix or shares the line (an inline table). For a table opened twice the parser keeps the later
/// position, so its header line is searched.
fn first_of(text: &str, at: usize, key: &str) -> Option<usize> {
    let line_start = |at: usize| text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let lead = |at: usize| text.get(line_start(at)..at).map(str::trim_start);
    let mut found = Vec::new();
    keys_before(&DeTable::parse_recoverable(text).0.into_inner(), at, &mut found);
    let same_place = |start| lead(start) == lead(at) || line_start(start) == line_start(at);
    let of_keys = found
        .into_iter()
        .filter(|(start, end)| text.get(*start..*end) == Some(key) && same_place(*start))
        .map(|(start, _)| start);
    of_keys.max().or_else(|| header_before(text, line_start(at)))
}

/// Previous header of the table that this line opens again.
fn header_before(text: &str, line_start: usize) -> Option<usize> {
    let name = |line: &str| {
        let line = line.trim_start();
        let name = line.trim_start_matches('[');
        (name.len() < line.len()).then(|| name.split(']').next().unwrap_or_default().trim().to_owned())
    };
    let (before, after) = text.split_at_checked(line_start)?;
    let repeated = name(after.lines().next()?)?;
    let line = before.split_inclusive('\n').rev().find(|line| name(line).as_ref() == Some(&repeated))?;
    let start = line.as_ptr().addr() - text.as_ptr().addr();
    Some(start + line.find(&repeated)?)
}

fn keys_before(table: &DeTable<'_>, at: usize, found: &mut Vec<(usize, usize)>) {
    for (key, value) in table {
        let span = key.span();
        if span.start < at {
            found.push((span.start, span.end));
        }
        in_value(value.get_ref(), at, found);
    }
}

fn in_value(value: &DeValue<'_>, at: usize, found: &mut Vec<(usize, usize)>) {
    match value {
        DeValue::Table(table) => keys_before(table, at, found),
        DeValue::Array(items) => items.iter().for_each(|item| in_value(item.get_ref(), at, found)),
        _ => {}
    }
}

fn entries(table: DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            at: key.span().start,
            key: key.into_inner().into_owned(),
            node: node(value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    let at = value.span().start;
    let shape = match value.into_inner() {
        DeValue::String(text) => Shape::Text(text.into_owned()),
        DeValue::Integer(number) => whole(&number),
        DeValue::Float(number) => float(&number),
        DeValue::Boolean(value) => Shape::Bool(value),
        DeValue::Datetime(date) => Shape::Date(date.to_string()),
        DeValue::Array(items) => Shape::List(items.into_iter().map(node).collect()),
        DeValue::Table(table) => Shape::Table(entries(table)),
    };
    Node { at, shape }
}

fn whole(number: &DeInteger<'_>) -> Shape {
    let (digits, radix) = (number.as_str(), number.radix());
    let small = i64::from_str_radix(digits, radix).map(Number::from);
    match small.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from)) {
        Ok(number) => Shape::Number(number),
        Err(_) => Shape::Unfit { found: "a whole number", why: "the number is too large" },
    }
}

fn float(number: &DeFloat<'_>) -> Shape {
    match number.as_str().parse().ok().and_then(Number::from_f64) {
        Some(number) => Shape::Number(number),
        None => Shape::Unfit { found: "a number with a point", why: "there is no such number in JSON" },
    }
}
