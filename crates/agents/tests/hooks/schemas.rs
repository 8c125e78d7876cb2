//! Schemas of the answers that the agents accept, written from their documentation and packages.

use jsonschema::Validator;
use safepoint_agents::{CodingAgent, HookEvent, Moment};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Schemas are closed, so that nothing but these fields is ever written.
fn closed(properties: &Value) -> Validator {
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    jsonschema::validator_for(&schema).unwrap()
}

fn text(letters_max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": letters_max})
}

fn specific(event: &str) -> Value {
    json!({
        "type": "object",
        "properties": {"hookEventName": {"const": event}, "additionalContext": text(1_500)},
        "required": ["hookEventName", "additionalContext"],
        "additionalProperties": false,
    })
}

struct Schemas {
    empty: Validator,
    message: Validator,
    claude_prompt: Validator,
    gemini_prompt: Validator,
    copilot_prompt: Validator,
    opencode: Validator,
    opencode_prompt: Validator,
    cursor_prompt: Validator,
}

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| Schemas {
    empty: closed(&json!({})),
    message: closed(&json!({"systemMessage": text(1_000)})),
    claude_prompt: closed(
        &json!({"systemMessage": text(1_000), "hookSpecificOutput": specific("UserPromptSubmit")}),
    ),
    gemini_prompt: closed(
        &json!({"systemMessage": text(1_000), "hookSpecificOutput": specific("BeforeAgent")}),
    ),
    copilot_prompt: closed(&json!({"additionalContext": text(1_500)})),
    opencode: closed(&json!({"message": text(1_000)})),
    opencode_prompt: closed(&json!({"message": text(1_000), "additionalContext": text(1_500)})),
    cursor_prompt: closed(&json!({"user_message": text(1_000), "additional_context": text(1_500)})),
});

/// Returns the schema of the answer to an event.
fn schema(event: &HookEvent) -> &'static Validator {
    let is_prompt = matches!(event.moment, Moment::Prompt { .. }) && event.reaches_model();
    // Events of Codex whose answer can have a message; the others take an empty object alone.
    let codex = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"];
    match event.agent {
        CodingAgent::Codex if !codex.contains(&event.name.as_str()) => &SCHEMAS.empty,
        CodingAgent::Claude | CodingAgent::Codex if is_prompt => &SCHEMAS.claude_prompt,
        CodingAgent::Gemini if is_prompt => &SCHEMAS.gemini_prompt,
        CodingAgent::Copilot if is_prompt => &SCHEMAS.copilot_prompt,
        CodingAgent::Opencode if is_prompt => &SCHEMAS.opencode_prompt,
        CodingAgent::Opencode => &SCHEMAS.opencode,
        CodingAgent::Cursor if is_prompt => &SCHEMAS.cursor_prompt,
        CodingAgent::Copilot | CodingAgent::Cursor => &SCHEMAS.empty,
        _ => &SCHEMAS.message,
    }
}

/// Checks an answer: valid JSON of the schema, in one line, without characters that act on a terminal.
pub(crate) fn check(event: &HookEvent, answer: &str) {
    let value: Value = serde_json::from_str(answer).unwrap();
    if let Err(error) = schema(event).validate(&value) {
        panic!("{} {}: {answer}: {error}", event.agent, event.name);
    }
    assert!(!answer.contains(char::is_control), "{answer:?}");
}

/// Checks an answer that denies a call: the decision in the words of the agent, its reason, and nothing else.
pub(crate) fn check_denial(event: &HookEvent, answer: &str) {
    let deny = json!({"const": "deny"});
    let properties = match event.agent {
        CodingAgent::Claude | CodingAgent::Codex => json!({"hookSpecificOutput": {
            "type": "object",
            "properties": {
                "hookEventName": {"const": event.name},
                "permissionDecision": deny,
                "permissionDecisionReason": text(1_000),
            },
            "required": ["hookEventName", "permissionDecision", "permissionDecisionReason"],
            "additionalProperties": false,
        }}),
        CodingAgent::Gemini => json!({"decision": deny, "reason": text(1_000)}),
        CodingAgent::Copilot => json!({"permissionDecision": deny, "permissionDecisionReason": text(1_000)}),
        CodingAgent::Cursor => json!({"permission": deny, "user_message": text(1_000)}),
        CodingAgent::Opencode => json!({"deny": text(1_000)}),
    };
    let value: Value = serde_json::from_str(answer).unwrap();
    let fields = properties.as_object().unwrap();
    assert_eq!(value.as_object().unwrap().len(), fields.len(), "{answer}");
    if let Err(error) = closed(&properties).validate(&value) {
        panic!("{} {}: {answer}: {error}", event.agent, event.name);
    }
    assert!(!answer.contains(char::is_control), "{answer:?}");
}
