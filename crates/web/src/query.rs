//! Queries of addresses and fields of JSON bodies, checked.

use crate::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Fields of a query, as bytes.
pub(crate) struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    /// Reads a query. An unknown or repeated field is refused.
    pub(crate) fn read(text: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        for piece in text.unwrap_or("").split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            if !known.contains(&name) {
                return Err(Problem::usage("the query has an unknown field"));
            }
            if fields.iter().any(|(other, _)| other == name) {
                return Err(Problem::usage(format!("{name} is given twice")));
            }
            fields.push((name.to_owned(), decoded(value)?));
        }
        Ok(Self(fields))
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        let text = self.bytes(name).map(String::from_utf8).transpose();
        text.map_err(|_| Problem::usage(format!("{name} is not UTF-8")))
    }

    pub(crate) fn needed(&self, name: &str) -> Result<String, Problem> {
        self.text(name)?.ok_or_else(|| Problem::usage(format!("{name} is missing")))
    }

    pub(crate) fn needed_bytes(&self, name: &str) -> Result<Vec<u8>, Problem> {
        self.bytes(name).ok_or_else(|| Problem::usage(format!("{name} is missing")))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // A larger number would not fit into the catalog.
        let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
        number.map(Some).ok_or_else(|| Problem::usage(format!("{name} is not a number")))
    }

    pub(crate) fn limit(&self, otherwise: u64, max: u64) -> Result<u64, Problem> {
        match self.number("limit")?.unwrap_or(otherwise) {
            limit if (1..=max).contains(&limit) => Ok(limit),
            _ => Err(Problem::usage(format!("limit is not from 1 to {max}"))),
        }
    }

    pub(crate) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], otherwise: T) -> Result<T, Problem> {
        match self.text(name)? {
            None => Ok(otherwise),
            Some(given) => {
                let found = words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
                found.ok_or_else(|| Problem::usage(format!("{name} is no known word")))
            }
        }
    }
}

/// Decodes percent signs. `+` is a plus sign: paths contain them.
fn decoded(text: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(left.next()), digit(left.next())) else {
            return Err(Problem::usage("the query has a percent sign without two digits"));
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
    }
    Ok(bytes)
}

/// Segments of a path, decoded.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let text =
        |piece| String::from_utf8(decoded(piece)?).map_err(|_| Problem::usage("the address is not UTF-8"));
    path.split('/').filter(|piece| !piece.is_empty()).map(text).collect()
}

/// Fields of a JSON object.
pub(crate) struct Fields(serde_json::Map<String, Value>);

impl Fields {
    /// Takes an object. An unknown field is refused.
    pub(crate) fn read(value: Value, known: &[&str]) -> Result<Self, Problem> {
        let Value::Object(fields) = value else { return Err(Problem::usage("the body is not an object")) };
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(_) => Err(Problem::usage("the body has an unknown field")),
            None => Ok(Self(fields)),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Problem::usage(format!("{name} is not a text"))),
        }
    }

    pub(crate) fn needed(&self, name: &str) -> Result<String, Problem> {
        self.text(name)?.ok_or_else(|| Problem::usage(format!("{name} is missing")))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let fits = |number: &u64| i64::try_from(*number).is_ok();
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(fits) {
                Some(number) => Ok(Some(number)),
                None => Err(Problem::usage(format!("{name} is not a number"))),
            },
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            Some(Value::Bool(flag)) => Ok(*flag),
            _ => Err(Problem::usage(format!("{name} is neither true nor false"))),
        }
    }

    pub(crate) fn texts(&self, name: &str, max: usize) -> Result<Vec<String>, Problem> {
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).ok_or_else(|| Problem::usage(format!("{name} has no text")))
        };
        self.list(name, max)?.iter().map(text).collect()
    }

    pub(crate) fn paths(&self, name: &str, max: usize) -> Result<Vec<Vec<u8>>, Problem> {
        self.list(name, max)?.iter().map(|value| path(name, value)).collect()
    }

    pub(crate) fn path(&self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        self.get(name).map(|value| path(name, value)).transpose()
    }

    fn list(&self, name: &str, max: usize) -> Result<&[Value], Problem> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= max => Ok(list),
            Some(_) => Err(Problem::usage(format!("{name} is not a list of at most {max}"))),
        }
    }

    pub(crate) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], otherwise: T) -> Result<T, Problem> {
        match self.text(name)? {
            None => Ok(otherwise),
            Some(given) => {
                let found = words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
                found.ok_or_else(|| Problem::usage(format!("{name} is no known word")))
            }
        }
    }
}

/// Path as a text, or as bytes in base64.
fn path(name: &str, value: &Value) -> Result<Vec<u8>, Problem> {
    let bytes = match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(fields) if fields.len() == 1 => {
            fields.get("bytes").and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok())
        }
        _ => None,
    };
    bytes.ok_or_else(|| Problem::usage(format!("{name} is not a path")))
}
