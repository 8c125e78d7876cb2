//! Events that the recorded streams lack: plans, decisions, Cursor, other spellings.

use safepoint_agents::{
    Caller, CodingAgent, EventError, HookEvent, HookInput, Moment, PlanExtent, PlanReport, ReportedStatus,
};
use serde_json::{Value, json};

fn read(agent: CodingAgent, name: Option<&str>, input: &Value) -> HookEvent {
    let input = HookInput::parse(input.to_string().as_bytes());
    HookEvent::read(&Caller::recognise(agent, |_| None, &input), name, &input).unwrap()
}

/// Returns the steps as (id, text, status).
fn steps(report: Option<PlanReport>) -> Vec<(Option<String>, Option<String>, Option<ReportedStatus>)> {
    report.map_or(vec![], |report| {
        report.steps.into_iter().map(|step| (step.id, step.text, step.status)).collect()
    })
}

fn after(agent: CodingAgent, tool: &str, input: &Value, response: &Value) -> HookEvent {
    let name = if agent == CodingAgent::Gemini { "AfterTool" } else { "PostToolUse" };
    let event = json!({"session_id": "s", "hook_event_name": name, "tool_name": tool, "tool_input": input,
        "tool_response": response});
    read(agent, None, &event)
}

#[test]
fn todo_lists_are_whole_plans() {
    let two = [
        (None, Some("one".to_owned()), Some(ReportedStatus::Completed)),
        (None, Some("two".to_owned()), Some(ReportedStatus::InProgress)),
    ];
    for (agent, tool, key, text) in [
        (CodingAgent::Claude, "TodoWrite", "todos", "content"),
        (CodingAgent::Codex, "update_plan", "plan", "step"),
        (CodingAgent::Gemini, "write_todos", "todos", "description"),
    ] {
        let input =
            json!({key: [{text: "one", "status": "completed"}, {text: "two", "status": "in_progress"}]});
        let event = after(agent, tool, &input, &json!("ok"));
        assert_eq!(event.plan.as_ref().unwrap().extent, PlanExtent::Whole);
        assert_eq!(steps(event.plan), two, "{agent}");
        // An empty list removes all steps.
        assert_eq!(after(agent, tool, &json!({key: []}), &json!("")).plan.unwrap().steps, []);
    }
}

#[test]
fn a_failed_or_planned_tool_reports_no_plan() {
    let input = json!({"todos": [{"content": "one", "status": "pending"}]});
    for name in ["PreToolUse", "PostToolUseFailure"] {
        let event = json!({"hook_event_name": name, "tool_name": "TodoWrite", "tool_input": input});
        assert_eq!(read(CodingAgent::Claude, None, &event).plan, None);
    }
    assert_eq!(after(CodingAgent::Claude, "TodoWrite", &input, &json!({"error": "no"})).plan, None);
}

#[test]
fn tasks_and_goals_are_parts_of_a_plan() {
    let task = json!({"subject": "write tests", "description": "d"});
    let event =
        after(CodingAgent::Claude, "TaskCreate", &task, &json!({"task": {"id": "7", "subject": "w"}}));
    assert_eq!(event.plan.as_ref().unwrap().extent, PlanExtent::Part);
    let created = (Some("7".to_owned()), Some("write tests".to_owned()), Some(ReportedStatus::Pending));
    assert_eq!(steps(event.plan), [created]);
    let update = json!({"taskId": "7", "status": "completed"});
    let event = after(CodingAgent::Claude, "TaskUpdate", &update, &json!({}));
    assert_eq!(steps(event.plan), [(Some("7".to_owned()), None, Some(ReportedStatus::Completed))]);

    let event = after(CodingAgent::Codex, "create_goal", &json!({"objective": "ship"}), &json!(""));
    let goal = Some("goal".to_owned());
    assert_eq!(
        steps(event.plan),
        [(goal.clone(), Some("ship".to_owned()), Some(ReportedStatus::InProgress))]
    );
    let event = after(CodingAgent::Codex, "update_goal", &json!({"status": "complete"}), &json!(""));
    assert_eq!(steps(event.plan), [(goal, None, Some(ReportedStatus::Completed))]);
}

#[test]
fn an_accepted_plan_gives_the_items_of_its_list() {
    let plan = "# Plan\n\nText.\n\n1. Read the code\n   - nested\n2. Write it\n- [x] Done already\n* Last\n1.5 is no item";
    let event = after(CodingAgent::Claude, "ExitPlanMode", &json!({"plan": plan}), &json!({}));
    let texts: Vec<_> =
        steps(event.plan).into_iter().map(|(_, text, status)| (text.unwrap(), status.unwrap())).collect();
    let pending = |text: &str| (text.to_owned(), ReportedStatus::Pending);
    let done = ("Done already".to_owned(), ReportedStatus::Completed);
    assert_eq!(texts, [pending("Read the code"), pending("Write it"), done, pending("Last")]);
}

#[test]
fn statements_on_copilots_table_are_steps() {
    let steps_of = |query: &str| {
        let event = json!({"sessionId": "s", "toolName": "sql", "toolArgs": {"query": query},
            "toolResult": {"resultType": "success"}});
        steps(read(CodingAgent::Copilot, Some("postToolUse"), &event).plan)
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        steps_of(
            "INSERT OR REPLACE INTO todos (id, title, status) VALUES ('a', 'it''s; (one)', 'done'), (2, 'two', 'pending');"
        ),
        [
            (text("a"), text("it's; (one)"), Some(ReportedStatus::Completed)),
            (text("2"), text("two"), Some(ReportedStatus::Pending)),
        ]
    );
    assert_eq!(
        steps_of(
            "-- next\nUPDATE todos SET status = 'in_progress' WHERE id = 'a'; update \"todos\" set title='x' where id in ('b', 'c')"
        ),
        [
            (text("a"), None, Some(ReportedStatus::InProgress)),
            (text("b"), text("x"), None),
            (text("c"), text("x"), None),
        ]
    );
    assert_eq!(
        steps_of("DELETE FROM todos WHERE id = 'a'"),
        [(text("a"), None, Some(ReportedStatus::Cancelled))]
    );
    for other in [
        "SELECT * FROM todos",
        "INSERT INTO notes (id) VALUES ('a')",
        "UPDATE todos SET status = 'done'",
        "UPDATE todos SET status = lower('X') WHERE id = 'a'",
        "INSERT INTO todos",
        "INSERT INTO todos (id, title) SELECT id, title FROM old",
        "'",
    ] {
        assert_eq!(steps_of(other), [], "{other}");
    }
}

#[test]
fn answers_to_questions_are_decisions() {
    let input = json!({"questions": [{"question": "Which store?"}]});
    let response = json!({"answers": {"Which store?": "SQLite", "Which modes?": ["a", "b"], "x": 1}});
    let event = after(CodingAgent::Claude, "AskUserQuestion", &input, &response);
    let decisions: Vec<_> =
        event.decisions.iter().map(|it| (it.question.as_str(), it.answer.as_str())).collect();
    assert_eq!(decisions, [("Which modes?", "a, b"), ("Which store?", "SQLite")]);
}

#[test]
fn events_of_cursor_are_read_also_through_the_file_of_claude() {
    let base = json!({"conversation_id": "c1", "generation_id": "g1", "cursor_version": "3.0",
        "workspace_roots": ["/home/dev/shop", "/other"], "model": "m"});
    let with = |name: &str, more: Value| {
        let mut event = base.clone();
        let map = event.as_object_mut().unwrap();
        map.insert("hook_event_name".to_owned(), name.into());
        map.extend(more.as_object().unwrap().clone());
        read(CodingAgent::Claude, None, &event)
    };
    let prompt = with("beforeSubmitPrompt", json!({"prompt": "go"}));
    assert_eq!((prompt.agent, prompt.turn.as_deref()), (CodingAgent::Cursor, Some("g1")));
    assert_eq!(prompt.session.as_ref().map(|session| session.original.as_str()), Some("c1"));
    assert_eq!(prompt.project.as_deref(), Some("/home/dev/shop"));
    assert!(matches!(&prompt.moment, Moment::Prompt { text, opens_turn: true } if text == "go"));

    let tool =
        json!({"tool_name": "Shell", "tool_input": {"command": "rm x"}, "tool_use_id": "t1", "cwd": "/a"});
    let Moment::BeforeTool(call) = with("preToolUse", tool).moment else { panic!() };
    assert_eq!((call.command.as_deref(), call.id.as_deref()), (Some("rm x"), Some("t1")));
    let Moment::BeforeTool(call) = with("beforeShellExecution", json!({"command": "ls"})).moment else {
        panic!()
    };
    assert_eq!((call.tool.as_str(), call.command.as_deref()), ("Shell", Some("ls")));
    let stop = with("stop", json!({"status": "aborted", "loop_count": 0}));
    assert!(matches!(stop.moment, Moment::TurnEnd { interrupted: true, .. }));
    assert_eq!(with("preCompact", json!({})).moment, Moment::Compaction);
    let started = with("subagentStart", json!({"subagent_type": "explore"}));
    assert_eq!(started.moment, Moment::SubagentStart);
    assert_eq!(started.subagent.unwrap().kind.as_deref(), Some("explore"));
}

#[test]
fn a_child_session_of_opencode_is_a_subagent_of_its_parent() {
    let event = json!({"hook": "event", "parent": "ses_1", "directory": "/home/dev/shop",
        "input": {"type": "session.idle", "properties": {"sessionID": "ses_2"}}});
    let event = read(CodingAgent::Opencode, None, &event);
    assert_eq!(event.moment, Moment::SubagentEnd);
    assert_eq!(event.session.unwrap().original, "ses_1");
    assert_eq!(event.subagent.unwrap().id.as_deref(), Some("ses_2"));
    assert_eq!(event.cwd.as_deref(), Some("/home/dev/shop"));

    let parts = json!([{"type": "text", "text": "go"}, {"type": "text", "text": "x", "synthetic": true}]);
    let event = json!({"hook": "chat.message", "input": {"sessionID": "ses_1"}, "output": {"parts": parts}});
    let Moment::Prompt { text, opens_turn } = read(CodingAgent::Opencode, None, &event).moment else {
        panic!()
    };
    assert_eq!((text.as_str(), opens_turn), ("go", true));
}

#[test]
fn notifications_open_no_turn() {
    for text in ["<task-notification>\n<task-id>a", "  <system_notification>x"] {
        let event = json!({"hook_event_name": "UserPromptSubmit", "prompt": text});
        let event = read(CodingAgent::Claude, None, &event);
        assert!(matches!(event.moment, Moment::Prompt { opens_turn: false, .. }));
        assert!(event.reaches_model());
    }
}

#[test]
fn an_interrupted_turn_of_codex_ends_and_takes_an_empty_answer() {
    let event = json!({"session_id": "s", "turn_id": "t", "hook_event_name": "Interrupt"});
    let event = read(CodingAgent::Codex, None, &event);
    assert!(matches!(event.moment, Moment::TurnEnd { interrupted: true, .. }));
    assert!(!event.reaches_person());
}

/// A turn can end twice in the same words, when another hook lets it go on. A subagent can be resumed.
#[test]
fn the_end_of_a_turn_or_subagent_has_no_key() {
    for name in ["Stop", "SubagentStop", "SubagentStart", "SessionStart"] {
        let event = json!({"session_id": "s", "prompt_id": "p", "hook_event_name": name, "agent_id": "a"});
        assert_eq!(read(CodingAgent::Claude, None, &event).key, None);
    }
}

#[test]
fn arguments_in_a_text_are_read() {
    let event = json!({"sessionId": "s", "toolName": "bash", "toolArgs": "{\"command\": \"rm x\"}"});
    let Moment::BeforeTool(call) = read(CodingAgent::Copilot, Some("preToolUse"), &event).moment else {
        panic!()
    };
    assert_eq!(call.command.as_deref(), Some("rm x"));
    let event = json!({"hook_event_name": "PreToolUse", "tool_name": "shell",
        "tool_input": {"command": ["bash", "-lc", "rm 'a b'"]}});
    let Moment::BeforeTool(call) = read(CodingAgent::Codex, None, &event).moment else { panic!() };
    assert_eq!(call.command.as_deref(), Some(r"bash -lc 'rm '\''a b'\'''"));
}

#[test]
fn the_paths_of_a_patch_are_named() {
    let patch = "*** Begin Patch\n*** Update File: a.rs\n*** Move to: b.rs\n@@\n-*** Add File: no\n*** Delete File: c d.txt\n*** End Patch";
    let event = json!({"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}});
    let Moment::BeforeTool(call) = read(CodingAgent::Codex, None, &event).moment else { panic!() };
    assert_eq!(
        (call.paths.as_slice(), call.command),
        (&["a.rs", "b.rs", "c d.txt"].map(str::to_owned)[..], None)
    );
}

#[test]
fn an_input_without_an_event_is_an_error() {
    let read = |bytes: &[u8]| {
        let input = HookInput::parse(bytes);
        HookEvent::read(&Caller::recognise(CodingAgent::Claude, |_| None, &input), None, &input).unwrap_err()
    };
    assert_eq!(read(b""), EventError::Json { line: 1, column: 0 });
    assert_eq!(read(b"[]"), EventError::NotAnObject);
    assert_eq!(read(b"{}"), EventError::Unnamed);
    assert_eq!(read(b"{} {}"), EventError::Json { line: 1, column: 4 });
    assert!(read(b"{").to_string().starts_with("cannot read the event: invalid JSON"));
}
