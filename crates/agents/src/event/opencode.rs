//! Events of opencode's plugin, brought into the shape that other agents write.
//!
//! The plugin writes `{"hook", "input", "output", "directory", "worktree", "parent"}`: the name of the hook,
//! its two arguments, the folders, and the parent of a child session. Bus events come as the hook `event`.

use super::json::Fields;
use serde_json::{Map, Value};

/// Returns the fields of a wrapped event.
pub(super) fn unwrapped(wrapper: Fields<'_>) -> Map<String, Value> {
    let empty = Map::new();
    let inner = |of: Fields<'_>, name: &str| of.inner(name).map(|fields| fields.0.clone());
    let input = inner(wrapper, "input").unwrap_or_default();
    let output = inner(wrapper, "output").unwrap_or_default();
    let (input, output) = (Fields(&input), Fields(&output));
    let is_bus = wrapper.text(&["hook"]) == Some("event");
    let properties = input.inner("properties").unwrap_or(Fields(&empty));
    let info = properties.inner("info").unwrap_or(Fields(&empty));
    let model = [input, info].iter().find_map(|fields| {
        let model = fields.inner("model")?;
        model.get(&["modelID", "id"])
    });
    let of_session = is_session(input);
    let parent = wrapper.get(&["parent", "parentID"]).or(info.get(&["parentID"]).filter(|_| of_session));
    let session = input.get(&["sessionID"]).or(properties.get(&["sessionID"]));
    let fields = [
        ("hook_event_name", if is_bus { input.get(&["type"]) } else { wrapper.get(&["hook"]) }),
        ("session_id", session.or(info.get(&["id"]).filter(|_| of_session))),
        (
            "cwd",
            wrapper
                .get(&["cwd", "directory"])
                .or(input.get(&["cwd", "directory"]))
                .or(info.get(&["directory"])),
        ),
        ("project", wrapper.get(&["worktree"]).or(input.get(&["worktree"]))),
        ("model", model),
        ("parent_session", parent),
        ("agent_type", input.get(&["agent"]).or(info.get(&["agent"])).or(wrapper.get(&["agent"]))),
        ("tool_name", input.get(&["tool"])),
        ("tool_use_id", input.get(&["callID"])),
        ("tool_input", output.get(&["args"]).or(input.get(&["args"]))),
        ("tool_response", wrapper.get(&["output"])),
        ("todos", properties.get(&["todos"])),
    ];
    let mut flat: Map<String, Value> =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.clone()))).collect();
    if let Some(Value::Array(parts)) = output.get(&["parts"]) {
        flat.insert("prompt".to_owned(), prompt(parts).into());
    }
    flat
}

/// Returns true for a bus event about a session, whose `info` is the session's.
fn is_session(input: Fields<'_>) -> bool {
    input.text(&["type"]).is_some_and(|name| name.starts_with("session."))
}

/// Joins the text parts of a message. A synthetic part is not by the user.
fn prompt(parts: &[Value]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Value::String(text) => text.strip_prefix("text:"),
        Value::Object(part) if part.get("synthetic") != Some(&Value::Bool(true)) => {
            part.get("text")?.as_str()
        }
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
