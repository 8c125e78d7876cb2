//! Nodes from JSON. `serde_json` validates the text; a second walk adds positions and finds
//! duplicate keys.

use super::PlanFormat;
use super::error::{Place, PlanFileError, PlanFileProblem, PlanProblemKind};
use super::node::{Entry, Node, Shape};
use crate::spelling::printable;
use serde::de::IgnoredAny;
use std::collections::HashMap;

/// Maximum nesting, as in `serde_json`.
const DEPTH_MAX: usize = 128;

pub(super) fn parse(text: &str) -> Result<Node, PlanFileError> {
    // `IgnoredAny` skips values without recursion, so this is safe at any depth.
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| {
        let line = text.split_inclusive('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
        // Columns count bytes, and the one before the first is 0.
        let before = line.as_bytes().get(..error.column().saturating_sub(1)).unwrap_or(line.as_bytes());
        let column = 1 + String::from_utf8_lossy(before).chars().count();
        syntax(Place { line: error.line().max(1), column }, &error)
    })?;
    let mut walk = Walk { text, at: 0 };
    walk.node(DEPTH_MAX)
}

fn syntax(place: Place, error: &serde_json::Error) -> PlanFileError {
    let message = error.to_string();
    let why = message.split(" at line ").next().unwrap_or(&message).to_owned();
    PlanFileError::Syntax { format: PlanFormat::Json, place, why }
}

/// Walk over valid JSON.
struct Walk<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Walk<'t> {
    /// Returns the next significant byte. The text is valid, so commas and colons are skipped like spaces.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r' | b',' | b':')) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(b']')
    }

    /// Token from here up to `end`.
    fn token(&mut self, end: usize) -> &'t str {
        let token = self.text.get(self.at..end).unwrap_or_default();
        self.at = end.max(self.at + 1);
        token
    }

    fn node(&mut self, depth_left: usize) -> Result<Node, PlanFileError> {
        let first = self.peek();
        let at = self.at;
        let shape = match first {
            b'{' | b'[' if depth_left == 0 => {
                let why = format!("it nests deeper than {DEPTH_MAX} levels");
                let place = Place::of(self.text, at);
                return Err(PlanFileError::Syntax { format: PlanFormat::Json, place, why });
            }
            b'{' => Shape::Table(self.table(depth_left - 1)?),
            b'[' => Shape::List(self.list(depth_left - 1)?),
            b'"' => Shape::Text(self.string()?),
            b't' => {
                self.token(at + 4);
                Shape::Bool(true)
            }
            b'f' => {
                self.token(at + 5);
                Shape::Bool(false)
            }
            b'n' => {
                self.token(at + 4);
                Shape::Null
            }
            _ => Shape::Number(self.number()?),
        };
        Ok(Node { at, shape })
    }

    fn list(&mut self, depth_left: usize) -> Result<Vec<Node>, PlanFileError> {
        self.at += 1;
        let mut items = Vec::new();
        while self.peek() != b']' {
            items.push(self.node(depth_left)?);
        }
        self.at += 1;
        Ok(items)
    }

    fn table(&mut self, depth_left: usize) -> Result<Vec<Entry>, PlanFileError> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        while self.peek() == b'"' {
            let at = self.at;
            let key = self.string()?;
            if let Some(first) = seen.insert(key.clone(), at) {
                return Err(self.twice(&key, at, first));
            }
            let node = self.node(depth_left)?;
            entries.push(Entry { at, key, node });
        }
        self.at += 1;
        Ok(entries)
    }

    fn twice(&self, key: &str, at: usize, first: usize) -> PlanFileError {
        let (place, first) = (Place::of(self.text, at), Some(Place::of(self.text, first)));
        let kind = PlanProblemKind::Twice { first, why: "it stands there already".to_owned() };
        PlanFileError::Wrong(vec![PlanFileProblem { place, step: None, key: printable(key), kind }])
    }

    fn string(&mut self) -> Result<String, PlanFileError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        self.value(end + 1)
    }

    fn number(&mut self) -> Result<serde_json::Number, PlanFileError> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let length =
            rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
        self.value(self.at + length)
    }

    /// Parses a token. Skipping misses half a surrogate pair and a number out of range.
    fn value<T: serde::de::DeserializeOwned>(&mut self, end: usize) -> Result<T, PlanFileError> {
        let at = self.at;
        let token = self.token(end);
        serde_json::from_str(token).map_err(|error| syntax(Place::of(self.text, at), &error))
    }
}
