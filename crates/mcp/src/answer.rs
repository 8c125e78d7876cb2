//! Results of tools: structured content within limits, and the same as text.

use crate::desk::{Answer, Desk};
use rmcp::model::{CallToolResult, ContentBlock};
use safepoint::Failure;
use safepoint::model::text::is_unsafe;
use serde_json::{Map, Value, json};

/// Maximum rows of a list; the rest is counted.
pub(crate) const LIST_MAX: usize = 100;
/// Maximum rows of a list of checkpoints.
pub(crate) const ROWS_MAX: usize = 50;
/// Maximum size of a patch.
pub(crate) const PATCH_BYTES_MAX: usize = 32 << 10;
/// Maximum size of any other text.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;
/// Nesting beyond which a value is left out.
const DEPTH_MAX: usize = 32;

/// Result of a tool: the data of the command, its exit code, failure and messages.
pub(crate) fn result(answer: Answer) -> CallToolResult {
    let mut fields = match answer.data {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.insert("exit_code".to_owned(), json!(answer.exit_code));
    if !answer.messages.is_empty() {
        fields.insert("messages".to_owned(), json!(answer.messages));
    }
    let failed = answer.error.is_some();
    if let Some(error) = answer.error {
        fields.insert("error".to_owned(), json!(error));
    }
    let mut value = Value::Object(fields);
    limit(&mut value, 0);
    let text = ContentBlock::text(text(&value));
    let mut result =
        if failed { CallToolResult::error(vec![text]) } else { CallToolResult::success(vec![text]) };
    result.structured_content = Some(value);
    result
}

/// Answer of a failure that the protocol part found.
pub(crate) fn failed(desk: &dyn Desk, failure: Failure) -> Answer {
    let exit_code = desk.exit_code(&failure);
    Answer { exit_code, data: Value::Null, error: Some(failure), messages: Vec::new() }
}

/// Cuts long lists and texts; `x_total` has the full length of a list `x`.
fn limit(value: &mut Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            let mut totals = Vec::new();
            for (key, field) in fields.iter_mut() {
                match field {
                    Value::Array(rows) if rows.len() > LIST_MAX => {
                        totals.push((format!("{key}_total"), json!(rows.len())));
                        rows.truncate(LIST_MAX);
                    }
                    Value::String(text) => {
                        let max = if key == "patch" { PATCH_BYTES_MAX } else { TEXT_BYTES_MAX };
                        cut(text, max);
                    }
                    _ => {}
                }
                limit(field, depth + 1);
            }
            for (key, total) in totals {
                fields.entry(key).or_insert(total);
            }
        }
        Value::Array(_) if depth > DEPTH_MAX => *value = Value::Null,
        Value::Array(rows) => {
            for row in rows.iter_mut() {
                if let Value::String(text) = row {
                    cut(text, TEXT_BYTES_MAX);
                }
                limit(row, depth + 1);
            }
        }
        _ => {}
    }
}

/// Cuts a text at a character boundary.
pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
    }
}

/// JSON with unsafe characters escaped, cut at the limit.
pub(crate) fn text(value: &Value) -> String {
    let mut safe = harmless(&value.to_string());
    if safe.len() > TEXT_BYTES_MAX {
        cut(&mut safe, TEXT_BYTES_MAX);
        safe.push_str("... (cut; the structured content has more)");
    }
    safe
}

/// Escapes characters that control a terminal or hide text, as in JSON strings.
pub(crate) fn harmless(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_unsafe(letter) {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// Adds `read_again` and `steps_taken_back` to the data of a rollback.
pub(crate) fn with_consequences(mut answer: Answer) -> Answer {
    let rollback = &answer.data["rollback"];
    let folders = rollback["together"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lists = folders.iter().chain([rollback]).filter_map(|folder| folder["changed_paths"].as_array());
    let changed = lists.flatten().filter(|row| row["action"] == "restored" || row["action"] == "created");
    let read_again: Vec<Value> = changed.map(|row| row["path"].clone()).collect();
    let steps = match &rollback["plan"]["steps_taken_back"] {
        Value::Array(steps) => steps.clone(),
        _ => Vec::new(),
    };
    if let Value::Object(fields) = &mut answer.data {
        fields.insert("steps_taken_back".to_owned(), json!(steps));
        fields.insert("read_again".to_owned(), json!(read_again));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let answer = Answer {
            exit_code: 0,
            data: json!({ "a": { "b": vec![1; 250] }, "text": "\u{e9}".repeat(9000), "patch": "p".repeat(40_000) }),
            error: None,
            messages: Vec::new(),
        };
        let value = result(answer).structured_content.unwrap();
        assert_eq!((value["a"]["b"].as_array().unwrap().len(), &value["a"]["b_total"]), (100, &json!(250)));
        assert_eq!(value["text"].as_str().unwrap().len(), 8 << 10);
        assert_eq!(value["patch"].as_str().unwrap().len(), 32 << 10);
    }

    #[test]
    fn text_has_no_character_that_controls_a_terminal() {
        let shown = text(&json!({ "label": "a\u{1b}[2J\u{202e}b\u{9b}31m" }));
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["label"], "a\u{1b}[2J\u{202e}b\u{9b}31m");
    }
}
