//! Reading of an event: which moment it is, and the fields that all moments have.

use super::json::{Fields, HookInput, cut, whole};
use super::{
    AgentSession, BackgroundTask, Caller, CodingAgent, EventError, EventKey, HookEvent, Moment, Subagent,
    opencode, plan, tools,
};
use serde_json::{Map, Value};

const WORD_BYTES_MAX: usize = 256;
const PROMPT_BYTES_MAX: usize = 64 << 10;
const DESCRIPTION_BYTES_MAX: usize = 1 << 10;
const TASKS_MAX: usize = 100;

/// Starts of prompts that an agent writes to itself.
const NOTIFICATIONS: [&str; 2] = ["<task-notification>", "<system_notification>"];

pub(super) fn event(caller: &Caller, name: Option<&str>, input: &HookInput) -> Result<HookEvent, EventError> {
    let fields = input.fields().map_err(Clone::clone)?;
    let unwrapped: Map<String, Value>;
    let fields = if caller.agent == CodingAgent::Opencode && fields.has("hook") {
        unwrapped = opencode::unwrapped(fields);
        Fields(&unwrapped)
    } else {
        fields
    };
    let own_name = fields.text(&["hook_event_name", "hookEventName", "hookName"]);
    let name = own_name.or(name).filter(|name| !name.is_empty()).ok_or(EventError::Unnamed)?;
    let (session, subagent) = session(caller.agent, fields);
    let mut event = HookEvent {
        agent: caller.agent,
        name: cut(name, WORD_BYTES_MAX).to_owned(),
        session,
        forked_from: fields.name(&["forked_from", "forked_from_id", "parent_session_id"]),
        turn: fields.name(&["prompt_id", "turn_id", "generation_id"]),
        cwd: fields.name(&["cwd"]),
        project: caller.project.clone().or_else(|| project(fields)),
        model: word(fields, &["model"]),
        permission_mode: word(fields, &["permission_mode", "permissionMode", "composer_mode"]),
        subagent,
        moment: Moment::Other,
        plan: None,
        decisions: Vec::new(),
        key: None,
    };
    event.moment = moment(&mut event, fields);
    if matches!(event.moment, Moment::AfterTool { failed: false, .. }) || event.name == "todo.updated" {
        event.plan = plan::report(fields, &event.name);
        event.decisions = plan::decisions(fields);
    }
    event.key = key(&event, input);
    Ok(event)
}

fn word(fields: Fields<'_>, names: &[&str]) -> Option<String> {
    fields.text(names).filter(|text| !text.is_empty()).map(|text| cut(text, WORD_BYTES_MAX).to_owned())
}

fn project(fields: Fields<'_>) -> Option<String> {
    let root = fields.get(&["workspace_roots"]).and_then(|roots| roots.as_array()?.first()?.as_str());
    fields.name(&["project"]).or_else(|| root.and_then(whole))
}

/// Returns the session, and the subagent that the event is about.
///
/// A subagent of Copilot or opencode has a session of its own. Such an event belongs to its parent, and names
/// the own session in the subagent.
fn session(agent: CodingAgent, fields: Fields<'_>) -> (Option<AgentSession>, Option<Subagent>) {
    let of = |names: &[&str]| fields.name(names).map(|id| AgentSession::new(agent, &id));
    let own = of(&["session_id", "sessionId", "conversation_id", "sessionID"]);
    let parent = of(&["parent_session", "parentAgentId", "parent_conversation_id"]);
    let kind = word(fields, &["agent_type", "agentType", "subagent_type"]);
    let id = fields.name(&["agent_id", "agentId", "subagent_id"]);
    if agent == CodingAgent::Opencode {
        let Some(parent) = parent else { return (own, None) };
        let id = own.as_ref().map(|own| own.original.clone());
        return (Some(parent), Some(Subagent { id, kind, session: own }));
    }
    if id.is_none() && parent.is_none() {
        return (own, None);
    }
    let named = id.as_ref().filter(|_| agent == CodingAgent::Copilot).map(|id| AgentSession::new(agent, id));
    (parent.or(own), Some(Subagent { id, kind, session: named }))
}

/// Returns the name without separators, in lower case: agents spell the same event in several ways.
fn squashed(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

fn moment(event: &mut HookEvent, fields: Fields<'_>) -> Moment {
    let name = squashed(&event.name);
    match name.as_str() {
        "sessioncreated" if event.subagent.is_some() => Moment::SubagentStart,
        "sessionstart" | "sessioncreated" => Moment::SessionStart { source: word(fields, &["source"]) },
        "sessionend" | "sessiondeleted" | "dispose" => {
            Moment::SessionEnd { reason: word(fields, &["reason"]) }
        }
        "userpromptsubmit" | "userpromptsubmitted" | "beforesubmitprompt" | "beforeagent" | "chatmessage" => {
            prompt(event, fields)
        }
        "pretooluse" | "beforetool" | "toolexecutebefore" | "beforeshellexecution" | "beforemcpexecution" => {
            before_tool(event, fields)
        }
        "posttooluse" | "posttoolusefailure" | "aftertool" | "toolexecuteafter" => {
            after_tool(event, fields, name == "posttoolusefailure")
        }
        // With a subagent the event is the end of that subagent, not of the turn.
        "stop" | "stopfailure" | "interrupt" | "agentstop" | "afteragent" | "sessionidle"
            if event.subagent.is_some() =>
        {
            Moment::SubagentEnd
        }
        "stop" | "agentstop" | "afteragent" | "sessionidle" => turn_end(fields, is_interrupted(fields)),
        "stopfailure" | "interrupt" => turn_end(fields, true),
        "subagentstart" | "subagentstop" => {
            event.subagent.get_or_insert_with(|| subagent(fields));
            if name == "subagentstart" { Moment::SubagentStart } else { Moment::SubagentEnd }
        }
        "precompact" | "experimentalsessioncompacting" | "sessioncompacted" => Moment::Compaction,
        _ => Moment::Other,
    }
}

/// Returns a subagent without an id.
fn subagent(fields: Fields<'_>) -> Subagent {
    let kind = word(fields, &["agent_type", "agentType", "subagent_type", "agent_name", "agentName"]);
    Subagent { id: None, kind, session: None }
}

fn prompt(event: &HookEvent, fields: Fields<'_>) -> Moment {
    let text = fields.text(&["prompt"]).unwrap_or_default();
    let is_notification = NOTIFICATIONS.iter().any(|start| text.trim_start().starts_with(start));
    let opens_turn = !is_notification && event.subagent.is_none();
    Moment::Prompt { text: cut(text, PROMPT_BYTES_MAX).to_owned(), opens_turn }
}

fn before_tool(event: &mut HookEvent, fields: Fields<'_>) -> Moment {
    if let Some(started) = gemini_subagent(event, fields) {
        event.subagent = Some(started);
        return Moment::SubagentStart;
    }
    Moment::BeforeTool(tools::call(event.agent, fields))
}

fn after_tool(event: &mut HookEvent, fields: Fields<'_>, failed: bool) -> Moment {
    if let Some(ended) = gemini_subagent(event, fields) {
        event.subagent = Some(ended);
        return Moment::SubagentEnd;
    }
    let failed = failed || tools::reports_failure(fields);
    Moment::AfterTool { call: tools::call(event.agent, fields), failed }
}

/// Returns the subagent that a call of Gemini runs. Its own calls come between the two events of this call.
fn gemini_subagent(event: &HookEvent, fields: Fields<'_>) -> Option<Subagent> {
    if event.agent != CodingAgent::Gemini || fields.text(&["tool_name"]) != Some("invoke_agent") {
        return None;
    }
    let kind = fields.inner("tool_input").and_then(|input| word(input, &["agent_name"]));
    Some(Subagent { id: None, kind, session: None })
}

fn turn_end(fields: Fields<'_>, interrupted: bool) -> Moment {
    let tasks = fields.get(&["background_tasks"]).and_then(Value::as_array);
    let running = tasks.into_iter().flatten().filter_map(|task| {
        let task = Fields(task.as_object()?);
        let is_over = matches!(task.text(&["status"]), Some("completed" | "failed" | "killed" | "stopped"));
        let description = task.text(&["description"]).map(|text| cut(text, DESCRIPTION_BYTES_MAX).to_owned());
        let kind = word(task, &["agent_type", "type"]);
        (!is_over).then(|| BackgroundTask { id: task.name(&["id"]), kind, description })
    });
    Moment::TurnEnd { background: running.take(TASKS_MAX).collect(), interrupted }
}

fn is_interrupted(fields: Fields<'_>) -> bool {
    let ends = ["aborted", "interrupted", "cancelled", "error"];
    fields.text(&["status", "stopReason"]).is_some_and(|status| ends.contains(&status))
}

fn key(event: &HookEvent, input: &HookInput) -> Option<EventKey> {
    let call = match &event.moment {
        Moment::BeforeTool(call) | Moment::AfterTool { call, .. } => call.id.as_deref(),
        Moment::Prompt { .. } => None,
        _ => return None,
    };
    Some(EventKey::new(event.session.as_ref(), &event.moment, call, input.hash()))
}
