//! Answers to hooks: one JSON object that fits the schema of the agent and the event.
//!
//! An answer never allows or continues anything, and denies a call only if the user chose it. A text for the model goes with prompts alone: after
//! the end of a turn it would start the next one.

use crate::note::{CONTEXT_LETTERS_MAX, quoted_to, shortened};
use crate::{CodingAgent, HookEvent, Moment};
use safepoint_model::text;
use serde_json::{Map, Value, json};

/// Answer that is valid for every agent and every event.
pub const EMPTY_ANSWER: &str = "{}";

const MESSAGE_LETTERS_MAX: usize = 1_000;
/// Part of a message that a model passes on.
const PASSED_LETTERS_MAX: usize = 300;

/// Texts to deliver with an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Message for the person.
    pub message: Option<String>,
    /// Text for the model, such as a [`crate::RollbackNote`].
    pub context: Option<String>,
    /// Reason to deny the call of a tool.
    pub deny: Option<String>,
}

/// Returns true if the agent gives a text in the answer to this event to its model.
pub(crate) fn reaches_model(event: &HookEvent) -> bool {
    let is_prompt = matches!(event.moment, Moment::Prompt { .. });
    is_prompt && event.subagent.is_none() && prompt_events(event.agent).contains(&event.name.as_str())
}

/// Returns true if the agent shows a message with the answer to this event.
pub(crate) fn reaches_person(event: &HookEvent) -> bool {
    match event.agent {
        CodingAgent::Claude | CodingAgent::Gemini => !matches!(event.moment, Moment::SessionEnd { .. }),
        // The schema of Codex is closed, and differs between events.
        CodingAgent::Codex => ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
            .contains(&event.name.as_str()),
        // The plugin shows it as a toast.
        CodingAgent::Opencode => true,
        // Copilot shows none: its model passes it on.
        CodingAgent::Copilot | CodingAgent::Cursor => reaches_model(event),
    }
}

pub(crate) fn answer(event: &HookEvent, reply: &Reply) -> String {
    let message = reply.message.as_deref().filter(|_| event.reaches_person()).map(message);
    let context = reply.context.as_deref().filter(|_| event.reaches_model()).map(context);
    let message = message.filter(|text| !text.is_empty());
    if let Some(reason) = reply.deny.as_deref().filter(|_| matches!(event.moment, Moment::BeforeTool(_))) {
        let reason = if reason.is_empty() { "no checkpoint was taken" } else { reason };
        return denial(event, &self::message(reason)).to_string();
    }
    let context = context.filter(|text| !text.is_empty());
    let mut answer = Map::new();
    let mut put =
        |name: &str, value: Option<Value>| answer.extend(value.map(|value| (name.to_owned(), value)));
    match event.agent {
        CodingAgent::Claude | CodingAgent::Codex | CodingAgent::Gemini => {
            put("systemMessage", message.map(Value::from));
            let specific =
                context.map(|text| json!({"hookEventName": event.name, "additionalContext": text}));
            put("hookSpecificOutput", specific);
        }
        CodingAgent::Copilot => {
            let passed = message.map(|text| {
                let quoted = quoted_to(text.as_bytes(), PASSED_LETTERS_MAX);
                format!("Tell the user this message of Safepoint, which is quoted data: {quoted}")
            });
            let texts: Vec<String> = [passed, context].into_iter().flatten().collect();
            put(
                "additionalContext",
                (!texts.is_empty()).then(|| shortened(&texts.join("\n"), CONTEXT_LETTERS_MAX).into()),
            );
        }
        CodingAgent::Opencode => {
            put("message", message.map(Value::from));
            put("additionalContext", context.map(Value::from));
        }
        CodingAgent::Cursor => {
            put("user_message", message.map(Value::from));
            put("additional_context", context.map(Value::from));
        }
    }
    Value::Object(answer).to_string()
}

/// Returns the answer that denies a call, in the words of the agent.
fn denial(event: &HookEvent, reason: &str) -> Value {
    match event.agent {
        CodingAgent::Claude | CodingAgent::Codex => json!({"hookSpecificOutput": {
            "hookEventName": event.name, "permissionDecision": "deny", "permissionDecisionReason": reason,
        }}),
        CodingAgent::Gemini => json!({"decision": "deny", "reason": reason}),
        CodingAgent::Copilot => json!({"permissionDecision": "deny", "permissionDecisionReason": reason}),
        CodingAgent::Cursor => json!({"permission": "deny", "user_message": reason}),
        CodingAgent::Opencode => json!({"deny": reason}),
    }
}

/// Returns the names of an agent's prompt event, the second for settings of Claude Code that it loads. An event
/// with a name that the agent does not have gets no text, because its schema is not known.
fn prompt_events(agent: CodingAgent) -> &'static [&'static str] {
    match agent {
        CodingAgent::Claude | CodingAgent::Codex => &["UserPromptSubmit"],
        CodingAgent::Gemini => &["BeforeAgent"],
        CodingAgent::Copilot => &["userPromptSubmitted", "UserPromptSubmit"],
        CodingAgent::Opencode => &["chat.message"],
        CodingAgent::Cursor => &["beforeSubmitPrompt", "UserPromptSubmit"],
    }
}

/// Returns a message whose characters cannot control a terminal.
fn message(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(text::printable).collect();
    shortened(&lines.join("\n"), MESSAGE_LETTERS_MAX)
}

fn context(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(text::printable).collect();
    shortened(&lines.join("\n"), CONTEXT_LETTERS_MAX)
}
