//! Recorded streams of the real agents, read into events: one table per agent.

use safepoint_agents::{Caller, CodingAgent, HookEvent, HookInput, Moment, PlanExtent, Reply, ToolCall};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Recorded event.
pub(crate) struct Recorded {
    pub(crate) agent: CodingAgent,
    /// Name on the command line.
    pub(crate) name: Option<String>,
    pub(crate) env: Value,
    pub(crate) stdin: Value,
}

impl Recorded {
    pub(crate) fn read(&self, argument: CodingAgent) -> HookEvent {
        let input = HookInput::parse(self.stdin.to_string().as_bytes());
        let variable = |name: &str| self.env.get(name).and_then(Value::as_str).map(str::to_owned);
        let caller = Caller::recognise(argument, variable, &input);
        HookEvent::read(&caller, self.name.as_deref(), &input).unwrap()
    }
}

/// Returns the recorded events of an agent.
pub(crate) fn recorded(agent: CodingAgent) -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/streams/{agent}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let name = line.get("event").and_then(Value::as_str).map(str::to_owned);
        Recorded { agent, name, env: line["env"].take(), stdin: line["stdin"].take() }
    });
    lines.collect()
}

/// Agents that were recorded.
pub(crate) const RECORDED: [CodingAgent; 5] = [
    CodingAgent::Claude,
    CodingAgent::Codex,
    CodingAgent::Gemini,
    CodingAgent::Copilot,
    CodingAgent::Opencode,
];

fn called(call: &ToolCall) -> String {
    let mut text = format!("{} {:?}", call.tool, call.effect);
    text.extend(call.id.as_ref().map(|id| format!(" {id}")));
    text.extend(call.command.as_ref().map(|command| format!(" `{command}`")));
    text.extend(call.paths.iter().map(|path| format!(" {path}")));
    text
}

fn detail(moment: &Moment) -> String {
    match moment {
        Moment::SessionStart { source } => format!("{source:?}"),
        Moment::SessionEnd { reason } => format!("{reason:?}"),
        Moment::Prompt { text, opens_turn } => {
            format!("{:?} opens_turn={opens_turn}", text.chars().take(40).collect::<String>())
        }
        Moment::BeforeTool(call) => called(call),
        Moment::AfterTool { call, failed } => format!("{} failed={failed}", called(call)),
        Moment::TurnEnd { background, interrupted } => {
            let tasks: Vec<_> = background.iter().map(|task| (&task.id, &task.kind)).collect();
            format!("background={tasks:?} interrupted={interrupted}")
        }
        _ => String::new(),
    }
}

fn row(event: &HookEvent) -> String {
    let short = |text: &str| text.chars().take(12).collect::<String>();
    let session = event.session.as_ref().map_or("-".to_owned(), |session| short(&session.original));
    let turn = event.turn.as_deref().map_or("-".to_owned(), short);
    let mut row = format!("{} | {} | {session} | {turn}", event.name, event.moment.word());
    for cell in [&event.cwd, &event.project, &event.model, &event.permission_mode] {
        row.push_str(&format!(" | {}", cell.as_deref().unwrap_or("-")));
    }
    row.push_str(&format!(" | {}", detail(&event.moment)));
    if let Some(subagent) = &event.subagent {
        let session = subagent.session.as_ref().map(|session| short(&session.original));
        row.push_str(&format!(
            " | subagent {:?} {:?} {session:?}",
            subagent.id.as_deref().map(short),
            subagent.kind
        ));
    }
    if let Some(plan) = &event.plan {
        let extent = if plan.extent == PlanExtent::Whole { "whole" } else { "part" };
        row.push_str(&format!(" | plan {extent}"));
        let steps = plan.steps.iter();
        steps.for_each(|step| row.push_str(&format!(" [{:?} {:?} {:?}]", step.id, step.text, step.status)));
    }
    let tells = (event.reaches_model(), event.reaches_person());
    row.push_str(if event.key.is_some() { " | key" } else { "" });
    row.push_str(match tells {
        (true, true) => " | model, person",
        (true, false) => " | model",
        (false, true) => " | person",
        (false, false) => "",
    });
    row
}

fn table(agent: CodingAgent) -> String {
    let events: Vec<HookEvent> = recorded(agent).iter().map(|recorded| recorded.read(agent)).collect();
    assert!(events.iter().all(|event| event.agent == agent));
    events.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn recorded_events_of_claude_are_read() {
    insta::assert_snapshot!(table(CodingAgent::Claude));
}

#[test]
fn recorded_events_of_codex_are_read() {
    insta::assert_snapshot!(table(CodingAgent::Codex));
}

#[test]
fn recorded_events_of_gemini_are_read() {
    insta::assert_snapshot!(table(CodingAgent::Gemini));
}

#[test]
fn recorded_events_of_copilot_are_read() {
    insta::assert_snapshot!(table(CodingAgent::Copilot));
}

#[test]
fn recorded_events_of_opencode_are_read() {
    insta::assert_snapshot!(table(CodingAgent::Opencode));
}

/// Copilot and Cursor load the file of Claude Code, so that the command line names the wrong agent.
#[test]
fn the_caller_is_recognised_when_the_command_line_names_claude() {
    for agent in [CodingAgent::Claude, CodingAgent::Codex, CodingAgent::Gemini, CodingAgent::Copilot] {
        for recorded in recorded(agent) {
            // The first event of Codex has no turn; without a variable nothing tells it apart.
            let is_ambiguous = agent == CodingAgent::Codex && recorded.stdin.get("turn_id").is_none();
            let read = recorded.read(CodingAgent::Claude).agent;
            assert!(read == agent || is_ambiguous, "{read} {}", recorded.stdin);
        }
    }
}

/// A program that an agent starts inherits the agent's variables.
#[test]
fn an_agent_inside_of_another_is_recognised() {
    let both = serde_json::json!({"CLAUDECODE": "1", "COPILOT_CLI": "1", "GEMINI_SESSION_ID": "other"});
    for agent in RECORDED {
        for mut recorded in recorded(agent) {
            recorded.env = both.clone();
            assert_eq!(recorded.read(agent).agent, agent, "{}", recorded.stdin);
        }
    }
}

#[test]
fn a_second_delivery_has_the_same_key_and_other_events_have_other_keys() {
    for agent in RECORDED {
        let mut seen = BTreeSet::new();
        let mut inputs = BTreeSet::new();
        for recorded in recorded(agent) {
            let (first, second) = (recorded.read(agent), recorded.read(agent));
            assert_eq!(first, second);
            let Some(key) = first.key else { continue };
            let is_new = inputs.insert(recorded.stdin.to_string());
            // A recorded stream has an event twice, by two settings files.
            assert_eq!(seen.insert(key.to_string()), is_new, "{}", recorded.stdin);
        }
        assert!(!seen.is_empty());
    }
}

#[test]
fn no_answer_to_a_recorded_event_lets_the_model_read_outside_of_prompts() {
    let reply = Reply { message: Some("m".to_owned()), context: Some("secret".to_owned()), deny: None };
    for recorded in RECORDED.into_iter().flat_map(recorded) {
        let event = recorded.read(recorded.agent);
        let is_prompt = matches!(event.moment, Moment::Prompt { .. }) && event.subagent.is_none();
        assert_eq!(event.answer(&reply).contains("secret"), is_prompt, "{}", event.name);
    }
}
