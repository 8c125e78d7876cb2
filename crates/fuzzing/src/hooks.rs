//! Input by agents: hook events and shell commands.

use safepoint_agents::{
    Caller, CodingAgent, HookEvent, HookInput, Moment, Reply, RollbackNote, one_line, risk,
};
use safepoint_model::text::is_unsafe;
use serde_json::Value;

const NAMES: [&str; 4] = ["preToolUse", "postToolUse", "userPromptSubmitted", "agentStop"];

/// Checks that any event is read or refused, that its answer is one JSON object with the fields of its agent
/// alone, and that any shell text has a risk or none.
pub fn hooks(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let choice = usize::from(*choice);
    let argument = CodingAgent::ALL[choice % CodingAgent::ALL.len()];
    let name = NAMES[choice / CodingAgent::ALL.len() % NAMES.len()];
    let text = String::from_utf8_lossy(bytes);
    commands(&text);
    note(&text);
    let input = HookInput::parse(bytes);
    let caller = Caller::recognise(argument, |_| None, &input);
    match HookEvent::read(&caller, Some(name), &input) {
        Err(error) => assert!(error.to_string().starts_with("cannot read the event")),
        Ok(event) => answered(&event, &text),
    }
}

fn answered(event: &HookEvent, text: &str) {
    let reply = Reply { message: Some(text.to_owned()), context: Some(text.to_owned()) };
    let answer = event.answer(&reply);
    assert!(!answer.contains(char::is_control));
    let Ok(Value::Object(fields)) = serde_json::from_str(&answer) else { panic!("{answer}") };
    let known =
        ["systemMessage", "hookSpecificOutput", "additionalContext", "additional_context", "user_message"];
    assert!(fields.keys().all(|name| known.contains(&name.as_str())), "{answer}");
    let has_context = fields.keys().any(|name| !["systemMessage", "user_message"].contains(&name.as_str()));
    assert!(!has_context || matches!(event.moment, Moment::Prompt { .. }), "{answer}");
    assert!(answer.chars().count() < 8 * 2_600);
    if let Moment::BeforeTool(call) | Moment::AfterTool { call, .. } = &event.moment {
        call.command.iter().for_each(|command| commands(command));
    }
}

fn commands(text: &str) {
    let Some(risk) = risk(text, &[]) else { return };
    assert!(risk.label.starts_with("before ") && !risk.label.chars().any(is_unsafe), "{:?}", risk.label);
    assert!(risk.label.chars().count() <= 67);
}

fn note(text: &str) {
    let steps = text.split(',').map(str::to_owned).collect();
    let note = RollbackNote { target: one_line(text, 60), steps, ..RollbackNote::default() };
    let note = note.text();
    assert!(note.chars().count() <= 1_500 && note.matches('"').count().is_multiple_of(2), "{note}");
    assert!(!note.chars().any(|letter| letter != '\n' && is_unsafe(letter)) && !note.contains(['<', '`']));
}
