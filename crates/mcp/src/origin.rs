//! Origin of a call: the client, and what it says of the session of its agent.
//!
//! Claude Code names the call of its tool (`claudecode/toolUseId`), Codex the session and the turn (`x-codex-turn-metadata`), both in
//! `_meta`. These come from the client, not from the model. They attribute a checkpoint and permit nothing.

use serde_json::{Map, Value};

/// Field of Claude Code.
const TOOL_USE: &str = "claudecode/toolUseId";
/// Field of Codex: an object, or its text.
const TURN: &str = "x-codex-turn-metadata";
/// Maximum size of an id; a longer one is absent.
const ID_BYTES_MAX: usize = 200;

/// Client of a call, and the session of its agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOrigin {
    /// Name of the client.
    pub client: Option<String>,
    /// Session of the agent, as the client names it.
    pub session: Option<String>,
    /// Id of the agent's tool call.
    pub tool_use: Option<String>,
}

impl CallOrigin {
    /// Reads what the metadata of a request says.
    pub(crate) fn read(client: Option<String>, meta: &Map<String, Value>) -> Self {
        let parsed: Value;
        let turn = match meta.get(TURN) {
            Some(Value::String(text)) => {
                parsed = serde_json::from_str(text).unwrap_or_default();
                &parsed
            }
            Some(other) => other,
            None => &Value::Null,
        };
        let session = ["session_id", "thread_id"].iter().find_map(|name| id(turn.get(name)));
        Self { client, session, tool_use: id(meta.get(TOOL_USE)) }
    }
}

fn id(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    let is_id = !text.is_empty() && text.len() <= ID_BYTES_MAX && !text.chars().any(char::is_control);
    is_id.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_are_read_whole_or_not_at_all() {
        let read = |meta: Value| {
            let origin = CallOrigin::read(None, meta.as_object().unwrap());
            (origin.session, origin.tool_use)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(json!({ TOOL_USE: "toolu_1" })), (None, some("toolu_1")));
        assert_eq!(read(json!({ TURN: { "session_id": "s", "turn_id": "t" } })), (some("s"), None));
        assert_eq!(read(json!({ TURN: "{\"thread_id\":\"s\"}" })), (some("s"), None));
        for odd in [json!(5), json!(""), json!("a\u{1b}b"), json!("x".repeat(300)), json!({})] {
            assert_eq!(read(json!({ TOOL_USE: odd, TURN: odd })), (None, None), "{odd}");
            assert_eq!(read(json!({ TURN: { "session_id": odd } })), (None, None), "{odd}");
        }
        assert_eq!(read(json!({ TURN: "{" })), (None, None));
    }
}
