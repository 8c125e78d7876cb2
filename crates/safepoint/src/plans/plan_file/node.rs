//! Common tree of both formats: values with their position in the text.

use serde_json::{Map, Number, Value};

/// Value and its byte offset.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// Date or time in TOML; a string in JSON.
    Date(String),
    /// TOML value that JSON cannot represent.
    Unfit {
        found: &'static str,
        why: &'static str,
    },
    List(Vec<Node>),
    /// Entries in text order.
    Table(Vec<Entry>),
}

/// Key, its byte offset, and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) node: Node,
}

impl Node {
    /// Name of its type.
    pub(super) fn type_word(&self) -> &'static str {
        match &self.shape {
            Shape::Null => "null",
            Shape::Bool(_) => "true or false",
            Shape::Number(number) if number.is_f64() => "a number with a point",
            Shape::Number(_) => "a whole number",
            Shape::Text(_) => "a text",
            Shape::Date(_) => "a date or time",
            Shape::Unfit { found, .. } => found,
            Shape::List(_) => "a list",
            Shape::Table(_) => "a table",
        }
    }

    /// Returns the value of the first of these keys in a table.
    pub(super) fn get(&self, keys: &[&str]) -> Option<&Node> {
        let Shape::Table(entries) = &self.shape else { return None };
        entries.iter().find(|entry| keys.contains(&entry.key.as_str())).map(|entry| &entry.node)
    }

    /// Item of a list.
    pub(super) fn item(&self, index: usize) -> Option<&Node> {
        match &self.shape {
            Shape::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Converts to JSON; fails with the unfit node and why.
    pub(super) fn to_json(&self) -> Result<Value, (&Node, &'static str)> {
        Ok(match &self.shape {
            Shape::Null => Value::Null,
            Shape::Bool(value) => Value::Bool(*value),
            Shape::Number(number) => Value::Number(number.clone()),
            Shape::Text(text) | Shape::Date(text) => Value::String(text.clone()),
            Shape::Unfit { why, .. } => return Err((self, why)),
            Shape::List(items) => Value::Array(items.iter().map(Node::to_json).collect::<Result<_, _>>()?),
            Shape::Table(entries) => {
                let pairs = entries.iter().map(|entry| Ok((entry.key.clone(), entry.node.to_json()?)));
                Value::Object(pairs.collect::<Result<Map<_, _>, _>>()?)
            }
        })
    }
}
