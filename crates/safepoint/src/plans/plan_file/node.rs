//! What both notations become: values that know their place in the text.

use serde_json::{Map, Number, Value};

/// A value, and the byte where it begins.
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
    /// TOML's dates and times. JSON has none: there they are texts.
    Date(String),
    /// What TOML can write and JSON cannot hold.
    Unfit {
        found: &'static str,
        why: &'static str,
    },
    List(Vec<Node>),
    /// In the order of the text.
    Table(Vec<Entry>),
}

/// A key, the byte where it begins, and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) node: Node,
}

impl Node {
    /// What it is, in words.
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

    /// The value under the first of these keys, where this is a table.
    pub(super) fn get(&self, keys: &[&str]) -> Option<&Node> {
        let Shape::Table(entries) = &self.shape else { return None };
        entries.iter().find(|entry| keys.contains(&entry.key.as_str())).map(|entry| &entry.node)
    }

    /// One of a list.
    pub(super) fn item(&self, index: usize) -> Option<&Node> {
        match &self.shape {
            Shape::List(items) => items.get(index),
            _ => None,
        }
    }

    /// As JSON; or the node that has no such form, and why.
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
