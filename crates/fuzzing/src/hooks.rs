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
    let reply = Reply { message: Some(text.to_owned()), context: Some(text.to_owned()), deny: None };
    let denied = event.answer(&Reply { deny: Some(text.to_owned()), ..reply.clone() });
    let is_denied =
        serde_json::from_str::<Value>(&denied).is_ok_and(|answer| answer.to_string().contains("deny"));
    let is_call = matches!(event.moment, Moment::BeforeTool(_));
    assert!(is_denied == is_call || text.contains("deny"), "{denied}");
    let answer = event.answer(&reply);
    assert!(!answer.contains(char::is_control));
    let Ok(Value::Object(fields)) = serde_json::from_str(&answer) else { panic!("{answer}") };
    let to_model = ["hookSpecificOutput", "additionalContext", "additional_context"];
    let to_person = ["systemMessage", "user_message", "message"];
    assert!(
        fields.keys().all(|name| to_model.contains(&name.as_str()) || to_person.contains(&name.as_str())),
        "{answer}"
    );
    let has_context = fields.keys().any(|name| to_model.contains(&name.as_str()));
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
