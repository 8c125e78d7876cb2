//! Edits of JSON files with comments: entries are added at the end of their list, and removed again. All other bytes stay.
//!
//! The parser only locates values. Edits are insertions and deletions in the text, so that comments, order, indentation, line ends and
//! trailing commas stay as they are.

use super::node::{Node, Style, quoted};
use super::splice::{Grown, cut};
use jsonc_parser::ast::{Array, Object, ObjectProp, Value};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, ParseResult, parse_to_ast};

/// Entry of a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Keys that lead to its list or object.
    pub(super) path: Vec<&'static str>,
    /// Its key, or `None` for an element of a list.
    pub(super) key: Option<&'static str>,
    pub(super) value: Node,
}

/// Parsed value of ours: returns true for an entry that `install` made.
pub(super) type IsOurs = fn(&serde_json::Value) -> bool;

/// Path of a list or object that was created.
pub(super) type Made = Vec<String>;

fn parsed(text: &str) -> Result<ParseResult<'_>, String> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: true };
    parse_to_ast(text, &collect, &options).map_err(|error| error.to_string())
}

fn root<'r, 'a>(parsed: &'r ParseResult<'a>) -> Result<&'r Object<'a>, String> {
    parsed.value.as_ref().and_then(Value::as_object).ok_or_else(|| "the file is not a JSON object".to_owned())
}

/// Returns the property of a key. A duplicate key is an error: programs disagree on the one that counts.
fn property<'o, 'a>(object: &'o Object<'a>, key: &str) -> Result<Option<&'o ObjectProp<'a>>, String> {
    let mut found = object.properties.iter().filter(|property| property.name.as_str() == key);
    let first = found.next();
    match found.next() {
        Some(_) => Err(format!("the key {key:?} appears twice")),
        None => Ok(first),
    }
}

fn children(value: &Value<'_>) -> Vec<Range> {
    match value {
        Value::Object(object) => object.properties.iter().map(Ranged::range).collect(),
        Value::Array(array) => array.elements.iter().map(Ranged::range).collect(),
        _ => Vec::new(),
    }
}

/// Converts to the plain type. Depth is limited by the parser.
fn plain(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::StringLit(text) => text.value.as_ref().into(),
        Value::NumberLit(number) => {
            serde_json::from_str(number.value).unwrap_or_else(|_| serde_json::Value::from(number.value))
        }
        Value::BooleanLit(flag) => flag.value.into(),
        Value::NullKeyword(_) => serde_json::Value::Null,
        Value::Array(array) => array.elements.iter().map(plain).collect(),
        Value::Object(object) => object
            .properties
            .iter()
            .map(|property| (property.name.as_str().to_owned(), plain(&property.value)))
            .collect(),
    }
}

/// Parses a file to plain values.
pub(super) fn read(text: &str) -> Result<serde_json::Value, String> {
    let parsed = parsed(text)?;
    root(&parsed)?;
    Ok(parsed.value.as_ref().map(plain).unwrap_or_default())
}

fn style(text: &str) -> Style {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
    let unit = indented.map_or("  ", |line| &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]);
    Style { unit: unit.to_owned(), newline }
}

/// Indentation of the line of an offset.
fn indent(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[line..]
        .find(|letter: char| letter != ' ' && letter != '\t')
        .map_or(text.len(), |end| line + end);
    &text[line..end.min(at)]
}

/// Position of entries in a file.
enum Standing {
    Same,
    /// Present with another value, at this range.
    Other(Range),
    Missing,
}

/// Adds entries. Those that are present stay; those of ours with another value are replaced in place. Returns the containers that were
/// created.
pub(super) fn add(grown: &mut Grown, entries: &[Entry], is_ours: IsOurs) -> Result<Vec<Made>, String> {
    let mut made = Vec::new();
    for entry in entries {
        match standing(&grown.text, entry, is_ours)? {
            Standing::Same => {}
            Standing::Other(range) => {
                let style = style(&grown.text);
                let fresh = entry.value.pretty(&style, indent(&grown.text, range.start));
                grown.text.replace_range(range.start..range.end, &fresh);
                // A replacement is no insertion: the ranges are lost.
                grown.inserted.clear();
            }
            Standing::Missing => append(grown, entry, &mut made)?,
        }
    }
    Ok(made)
}

/// Returns true if every entry is present as given.
pub(super) fn has_all(text: &str, entries: &[Entry], is_ours: IsOurs) -> Result<bool, String> {
    for entry in entries {
        if !matches!(standing(text, entry, is_ours)?, Standing::Same) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn standing(text: &str, entry: &Entry, is_ours: IsOurs) -> Result<Standing, String> {
    let parsed = parsed(text)?;
    let wanted = entry.value.to_value();
    let mut object = root(&parsed)?;
    let last = entry.path.len() - 1;
    for (depth, key) in entry.path.iter().enumerate() {
        let Some(found) = property(object, key)? else { return Ok(Standing::Missing) };
        match (&found.value, entry.key) {
            (Value::Object(below), key) if depth < last || key.is_some() => object = below,
            (Value::Array(list), None) if depth == last => return in_list(list, &wanted, is_ours),
            (Value::Object(_) | Value::Array(_), _) | (_, _) => {
                return Err(wrong_type(&entry.path[..=depth]));
            }
        }
    }
    let Some(key) = entry.key else { return Ok(Standing::Missing) };
    match property(object, key)? {
        None => Ok(Standing::Missing),
        Some(found) if plain(&found.value) == wanted => Ok(Standing::Same),
        Some(found) if is_ours(&plain(&found.value)) => Ok(Standing::Other(found.value.range())),
        Some(_) => Err(format!("it has another entry {key:?} in {:?}", entry.path.join("."))),
    }
}

fn in_list(list: &Array<'_>, wanted: &serde_json::Value, is_ours: IsOurs) -> Result<Standing, String> {
    let mut other = None;
    for element in &list.elements {
        let value = plain(element);
        if value == *wanted {
            return Ok(Standing::Same);
        }
        if is_ours(&value) {
            other = Some(element.range());
        }
    }
    Ok(other.map_or(Standing::Missing, Standing::Other))
}

fn wrong_type(path: &[&str]) -> String {
    format!("{:?} has an unexpected type", path.join("."))
}

/// Appends an entry, with the containers that lead to it.
fn append(grown: &mut Grown, entry: &Entry, made: &mut Vec<Made>) -> Result<(), String> {
    let text = grown.text.clone();
    let parsed = parsed(&text)?;
    let mut container = parsed.value.as_ref().ok_or("the file is empty")?;
    let mut known = 0;
    for key in &entry.path {
        let Value::Object(object) = container else { return Err(wrong_type(&entry.path[..known])) };
        let Some(found) = property(object, key)? else { break };
        container = &found.value;
        known += 1;
    }
    let mut value = match entry.key {
        Some(key) => Node::Map(vec![(key.to_owned(), entry.value.clone())]),
        None => Node::List(vec![entry.value.clone()]),
    };
    let mut key = None;
    for depth in (known..entry.path.len()).rev() {
        made.push(entry.path[..=depth].iter().map(|key| (*key).to_owned()).collect());
        if depth > known {
            value = Node::Map(vec![(entry.path[depth].to_owned(), value)]);
        } else {
            key = Some(entry.path[depth]);
        }
    }
    if known == entry.path.len() {
        key = entry.key;
        value = entry.value.clone();
    }
    insert_last(grown, &parsed, container, key, &value);
    Ok(())
}

/// Inserts a value at the end of a container.
fn insert_last(
    grown: &mut Grown,
    parsed: &ParseResult<'_>,
    container: &Value<'_>,
    key: Option<&str>,
    value: &Node,
) {
    let text = grown.text.clone();
    let range = container.range();
    let close = range.end - 1;
    let inner = &text[range.start + 1..close];
    let at = range.start + 1 + inner.trim_end().len();
    let last = children(container).last().copied();
    let trailing_comma = last.and_then(|last| comma_between(parsed, last.end, close));
    let one_line = if last.is_some() { !inner.contains('\n') } else { !text.trim_end().contains('\n') };
    let style = style(&text);
    let base = indent(&text, range.start).to_owned();
    let own = match last {
        // The indentation of a sibling that begins its line.
        Some(last) if text[..last.start].trim_end_matches([' ', '\t']).ends_with('\n') => {
            indent(&text, last.start).to_owned()
        }
        _ => format!("{base}{}", style.unit),
    };
    let printed = if one_line { value.inline() } else { value.pretty(&style, &own) };
    let item = key.map_or(printed.clone(), |key| format!("{}: {printed}", quoted(key)));
    let comma = if trailing_comma.is_some() { "," } else { "" };
    let piece = if one_line {
        let space = if last.is_some() { " " } else { "" };
        format!("{space}{item}{comma}")
    } else {
        let end =
            if text[at..close].contains('\n') { String::new() } else { format!("{}{base}", style.newline) };
        format!("{}{own}{item}{comma}{end}", style.newline)
    };
    grown.insert(at, &piece);
    if let (Some(last), None) = (last, trailing_comma) {
        grown.insert(last.end, ",");
    }
}

fn tokens<'r, 'a>(parsed: &'r ParseResult<'a>) -> &'r [TokenAndRange<'a>] {
    parsed.tokens.as_deref().unwrap_or_default()
}

/// Returns the first comma in a range.
fn comma_between(parsed: &ParseResult<'_>, start: usize, end: usize) -> Option<Range> {
    let tokens = tokens(parsed);
    let from = tokens.partition_point(|token| token.range.start < start);
    let mut within = tokens[from..].iter().take_while(|token| token.range.start < end);
    within.find(|token| token.token == Token::Comma).map(|token| token.range)
}

/// Removes every entry of ours in the lists and objects at `paths`, and containers that become empty. `made` limits these to the given
/// ones; `None` removes all empty ones.
pub(super) fn remove(
    text: &str,
    entries: &[Entry],
    is_ours: IsOurs,
    made: Option<&[Made]>,
) -> Result<String, String> {
    let mut text = text.to_owned();
    loop {
        let parsed = parsed(&text)?;
        root(&parsed)?;
        let document = parsed.value.as_ref().ok_or("the file is empty")?;
        let mut ranges = None;
        for entry in entries {
            if let Some(found) = cut_of(&parsed, &text, document, entry, is_ours, made)? {
                ranges = Some(found);
                break;
            }
        }
        match ranges {
            None => return Ok(text),
            Some(ranges) => text = cut(&text, ranges),
        }
    }
}

/// Ranges to delete for the first match of an entry.
fn cut_of(
    parsed: &ParseResult<'_>,
    text: &str,
    document: &Value<'_>,
    entry: &Entry,
    is_ours: IsOurs,
    made: Option<&[Made]>,
) -> Result<Option<Vec<std::ops::Range<usize>>>, String> {
    // Containers down to it, each with the index of its child.
    let mut way: Vec<(&Value<'_>, usize)> = Vec::new();
    let mut container = document;
    for key in &entry.path {
        let Value::Object(object) = container else { return Ok(None) };
        if property(object, key)?.is_none() {
            return Ok(None);
        }
        let index = object.properties.iter().position(|property| property.name.as_str() == *key).unwrap_or(0);
        way.push((container, index));
        container = &object.properties[index].value;
    }
    let index = match (container, entry.key) {
        (Value::Array(list), None) => list.elements.iter().position(|element| is_ours(&plain(element))),
        (Value::Object(object), Some(key)) => object
            .properties
            .iter()
            .position(|property| property.name.as_str() == key && is_ours(&plain(&property.value))),
        _ => None,
    };
    let inner = match (index, container) {
        (Some(index), _) => (container, index),
        (None, Value::Array(list)) => match inner_of(list, is_ours) {
            Some(inner) => return Ok(Some(child_ranges(parsed, text, inner.0, inner.1))),
            None => return Ok(None),
        },
        (None, _) => return Ok(None),
    };
    way.push(inner);
    let mut depth = way.len() - 1;
    // A container with no other child goes with it, if it may.
    while depth > 0 && children(way[depth].0).len() == 1 && may_remove(&entry.path[..depth], made) {
        depth -= 1;
    }
    let (container, index) = way[depth];
    Ok(Some(child_ranges(parsed, text, container, index)))
}

fn may_remove(path: &[&str], made: Option<&[Made]>) -> bool {
    made.is_none_or(|made| made.iter().any(|made| made.iter().map(String::as_str).eq(path.iter().copied())))
}

/// Entry of ours inside of a group that holds others, too.
fn inner_of<'v, 'a>(list: &'v Array<'a>, is_ours: IsOurs) -> Option<(&'v Value<'a>, usize)> {
    list.elements.iter().find_map(|group| {
        let hooks =
            &group.as_object()?.properties.iter().find(|property| property.name.as_str() == "hooks")?.value;
        let index = hooks.as_array()?.elements.iter().position(|hook| is_ours(&plain(hook)))?;
        Some((hooks, index))
    })
}

/// Ranges of a child: its text, the blanks before it, and one comma.
fn child_ranges(
    parsed: &ParseResult<'_>,
    text: &str,
    container: &Value<'_>,
    index: usize,
) -> Vec<std::ops::Range<usize>> {
    let children = children(container);
    let (child, outer) = (children[index], container.range());
    let before = text[..child.start].trim_end().len();
    let next = children.get(index + 1).map_or(outer.end - 1, |next| next.start);
    let after = comma_between(parsed, child.end, next);
    let previous = index.checked_sub(1).map(|previous| children[previous]);
    let mut ranges = Vec::new();
    let mut start = before;
    // Text after a line comment must stay on its line.
    if text[..before].rfind('\n').map_or(&text[..before], |line| &text[line..before]).contains("//")
        && !text[before..child.start].contains('\n')
    {
        start = child.start;
    }
    match (after, previous) {
        (Some(comma), _) => {
            let blanks = if before == child.start {
                text[comma.end..next].len() - text[comma.end..next].trim_start().len()
            } else {
                0
            };
            if text[child.end..comma.start].trim().is_empty() {
                ranges.push(start..comma.end + blanks);
            } else {
                ranges.extend([start..child.end, comma.start..comma.end]);
            }
        }
        (None, Some(previous)) => match comma_between(parsed, previous.end, child.start) {
            Some(comma) if comma.end < start => ranges.extend([comma.start..comma.end, start..child.end]),
            Some(comma) => ranges.push(comma.start..child.end),
            None => ranges.push(start..child.end),
        },
        (None, None) => ranges.push(start..child.end),
    }
    ranges
}
