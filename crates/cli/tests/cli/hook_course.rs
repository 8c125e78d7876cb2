//! `hook`: the course of a turn, where events are missing, late, repeated or in another order, and where records are gone.

use crate::hooks::{OTHER, SESSION, call, claude, codex, hook, input, late, run_hook, steps, todos, turn};
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::fs;

fn turns(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(&["list", "--turns", "--json"])["data"]["turns"].as_array().unwrap().clone()
}

/// Numbers and labels, newest first.
fn labels(sandbox: &Sandbox) -> Value {
    turns(sandbox).iter().map(|turn| json!([turn["turn"], turn["label"]])).collect()
}

fn call_of(key: &str, id: &str) -> Value {
    json!({ "prompt_id": key, "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "make" } })
}

#[test]
fn a_turn_whose_first_checkpoint_is_gone_is_closed_and_the_next_prompts_are_turns() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "by hand\n");
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "one" }));
    claude(&sandbox, "PreToolUse", &call("1"));
    sandbox.write("notes.txt", "one\n");
    let before = turns(&sandbox)[0]["before"].as_str().unwrap().to_owned();
    sandbox.run(&["create", "-m", "mine"]);
    let deleted = sandbox.run(&["delete", &before, "--yes"]);
    assert!(deleted.ends_with("--- exit 0\n"), "{deleted}");
    claude(&sandbox, "Stop", &json!({}));
    turn(&sandbox, "two", "notes.txt", "two\n");
    turn(&sandbox, "three", "notes.txt", "three\n");
    assert_eq!(labels(&sandbox), json!([[3, "three"], [2, "two"], [1, "one"]]));
    let all = turns(&sandbox);
    assert_eq!(all[2]["uncovered"], json!(["the checkpoint before it was deleted"]));
    assert!(all.iter().all(|turn| turn["ended"].is_string()), "{all:?}");
    sandbox.run(&["rollback", "--before-turn", "3"]);
    assert_eq!(sandbox.read("notes.txt"), "two\n");
}

#[test]
fn a_failure_at_the_start_of_a_session_opens_no_turn_and_each_prompt_reports_it() {
    let sandbox = Sandbox::with_checkpoint();
    fs::write(sandbox.path("home/config.toml"), "nonsense = [").unwrap();
    sandbox.write("notes.txt", "by hand\n");
    let told = claude(&sandbox, "SessionStart", &json!({ "source": "startup" }));
    assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
    assert_eq!(labels(&sandbox), json!([]));
    for prompt in ["one", "two"] {
        claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": prompt }));
        let told = claude(&sandbox, "PreToolUse", &call(prompt));
        assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
        assert_eq!(
            claude(&sandbox, "PreToolUse", &call(&format!("{prompt} again"))),
            json!({}),
            "once a turn"
        );
    }
    fs::remove_file(sandbox.path("home/config.toml")).unwrap();
    turn(&sandbox, "three", "notes.txt", "three\n");
    assert_eq!(labels(&sandbox), json!([[3, "three"], [2, "two"], [1, "one"]]));
    assert_eq!(turns(&sandbox)[0]["uncovered"], json!([]));
}

#[test]
fn checkpoints_for_agents_never_push_out_what_people_made_nor_those_of_turns() {
    let sandbox = Sandbox::with_checkpoint();
    let config = "[retention]\nkeep_last = 4\nkeep_within = '0s'\nthin_daily_for = '0s'\n";
    fs::write(sandbox.path("home/config.toml"), config).unwrap();
    for label in ["mine 1", "mine 2", "mine 3"] {
        sandbox.write("notes.txt", label);
        let made = sandbox.run(&["create", "-m", label]);
        assert!(made.ends_with("--- exit 0\n"), "{made}");
    }
    claude(&sandbox, "SessionStart", &json!({}));
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "clean up" }));
    for id in 0..8 {
        let command = json!({ "command": format!("rm -f {id}") });
        let risky = json!({ "tool_name": "Bash", "tool_use_id": id.to_string(), "tool_input": command });
        claude(&sandbox, "PreToolUse", &risky);
        sandbox.write("notes.txt", format!("rm {id}"));
    }
    for at in 0..6 {
        let list: Vec<(String, &str)> = (0..6)
            .map(|step| (format!("step {step}"), if step < at { "completed" } else { "pending" }))
            .collect();
        let list: Vec<(&str, &str)> = list.iter().map(|(text, status)| (text.as_str(), *status)).collect();
        todos(&sandbox, "claude", &list);
        sandbox.write("notes.txt", format!("step {at}"));
    }
    claude(&sandbox, "Stop", &json!({}));
    let listed = sandbox.json(&["list", "--json"]);
    let labels: Vec<&str> = listed["data"]["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["label"].as_str())
        .collect();
    for label in ["mine 1", "mine 2", "mine 3"] {
        assert!(labels.contains(&label), "{label}: {labels:?}");
    }
    assert_eq!(turns(&sandbox)[0]["uncovered"], json!([]));
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "mine 3");
}

#[test]
fn a_call_whose_hook_was_killed_marks_its_turn_and_the_state_before_it_is_the_last_known_one() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "one" }));
    // The hook before the call never ran.
    sandbox.write("notes.txt", "one\n");
    let told = claude(&sandbox, "PostToolUse", &call("1"));
    assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
    assert_eq!(claude(&sandbox, "PostToolUse", &call("2")), json!({}), "once a turn");
    claude(&sandbox, "PreToolUse", &call("3"));
    claude(&sandbox, "Stop", &json!({}));
    let all = turns(&sandbox);
    assert_eq!(all[0]["uncovered"], json!(["the hook of a call did not finish"]));
    let told = sandbox.run(&["rollback", "--before-turn", "1"]);
    assert!(told.contains("Turn 1 is partly not covered"), "{told}");
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    // One of two calls, of which the other took the checkpoint.
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "two" }));
    claude(&sandbox, "PreToolUse", &call("4"));
    assert_eq!(claude(&sandbox, "PostToolUse", &call("4")), json!({}), "covered");
    let told = claude(&sandbox, "PostToolUse", &call("5"));
    assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
}

#[test]
fn a_turn_is_known_by_the_id_of_its_agent() {
    let sandbox = Sandbox::with_checkpoint();
    let prompt = |key: &str, text: &str| {
        claude(&sandbox, "UserPromptSubmit", &json!({ "prompt_id": key, "prompt": text }));
    };
    let stop = |key: &str| {
        claude(&sandbox, "Stop", &json!({ "prompt_id": key }));
    };
    // A subagent writes after the end of its turn.
    prompt("p1", "ask a subagent");
    claude(&sandbox, "PreToolUse", &call_of("p1", "1"));
    stop("p1");
    let of_subagent = json!({ "prompt_id": "p1", "agent_id": "a1", "agent_type": "helper", "tool_name": "Bash",
        "tool_use_id": "2", "tool_input": { "command": "make" } });
    claude(&sandbox, "PreToolUse", &of_subagent);
    sandbox.write("notes.txt", "by the subagent\n");
    prompt("p1n", "<task-notification> done </task-notification>");
    stop("p1n");
    assert_eq!(labels(&sandbox), json!([[1, "ask a subagent"]]));
    assert_eq!(turns(&sandbox)[0]["files"]["modified"], 1);
    // The agent goes on after the notification.
    claude(&sandbox, "PreToolUse", &call_of("p1n", "3"));
    sandbox.write("after.txt", "x");
    stop("p1n");
    assert_eq!(labels(&sandbox), json!([[1, "ask a subagent"]]));
    // The first call of a turn comes before its prompt, while the turn before is open.
    prompt("p2", "interrupted");
    claude(&sandbox, "PreToolUse", &call_of("p2", "4"));
    sandbox.write("notes.txt", "two\n");
    claude(&sandbox, "PreToolUse", &call_of("p3", "5"));
    prompt("p3", "late prompt");
    sandbox.write("notes.txt", "three\n");
    stop("p2");
    assert!(turns(&sandbox)[0]["ended"].is_null(), "the end of another turn");
    stop("p3");
    prompt("p3", "late prompt");
    let all = json!([[3, "late prompt"], [2, "interrupted"], [1, "ask a subagent"]]);
    assert_eq!(labels(&sandbox), all);
    sandbox.run(&["undo", "--turn", "1"]);
    sandbox.run(&["rollback", "--before-turn", "3"]);
    assert_eq!(sandbox.read("notes.txt"), "two\n");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn a_prompt_that_arrives_in_two_shapes_is_one_turn() {
    let sandbox = Sandbox::with_checkpoint();
    for prompt in ["one", "two"] {
        let camel = json!({ "sessionId": SESSION, "cwd": sandbox.path("project"), "prompt": prompt });
        hook(&sandbox, &["copilot", "userPromptSubmitted"], camel.to_string().as_bytes());
        let mut command = sandbox.command(&["hook", "claude"]);
        command.env("COPILOT_CLI", "1");
        let pascal = input(&sandbox, SESSION, "UserPromptSubmit", &json!({ "prompt": prompt }));
        run_hook(command, pascal.as_bytes());
        let call = json!({ "sessionId": SESSION, "cwd": sandbox.path("project"), "toolName": "bash",
            "toolArgs": { "command": "make" } });
        hook(&sandbox, &["copilot", "preToolUse"], call.to_string().as_bytes());
        sandbox.write("notes.txt", prompt);
        let stop = json!({ "sessionId": SESSION, "cwd": sandbox.path("project") });
        hook(&sandbox, &["copilot", "agentStop"], stop.to_string().as_bytes());
    }
    assert_eq!(labels(&sandbox), json!([[2, "two"], [1, "one"]]));
}

#[test]
fn events_in_any_order_leave_every_turn_exact_or_marked() {
    let events: [(&str, Value); 5] = [
        ("SessionStart", json!({})),
        ("UserPromptSubmit", json!({ "prompt": "one", "prompt_id": "p1" })),
        ("PreToolUse", call_of("p1", "1")),
        ("PostToolUse", call_of("p1", "1")),
        ("Stop", json!({ "prompt_id": "p1" })),
    ];
    for seed in 0..12_usize {
        let sandbox = Sandbox::with_checkpoint();
        let mut left: Vec<usize> = (0..events.len()).collect();
        let mut number = seed;
        while !left.is_empty() {
            let (event, more) = &events[left.remove(number % left.len())];
            number = number / 2 + 1;
            claude(&sandbox, event, more);
        }
        turn(&sandbox, "two", "notes.txt", "two\n");
        let all = turns(&sandbox);
        let named: Vec<&Value> = all.iter().filter(|turn| turn["label"] == "two").collect();
        assert_eq!(named.len(), 1, "{seed}: {all:?}");
        sandbox.run(&["rollback", "--before-turn", &named[0]["turn"].to_string()]);
        assert_eq!(sandbox.read("notes.txt"), "good\n", "{seed}");
    }
}

#[test]
fn steps_of_an_agent_are_kept_whatever_their_texts_are() {
    let sandbox = Sandbox::with_checkpoint();
    let long = "make the whole suite of the integration tests of the shop pass on";
    let (one, two) = (format!("{long} Linux"), format!("{long} macOS"));
    let texts = ["Fix it", "Fix it!", "テストを直す", "Исправить", &one, &two, "Run", "Run"];
    let list = |status: &'static str| texts.iter().map(|text| (*text, status)).collect::<Vec<_>>();
    let mut first = list("pending");
    first[0].1 = "in_progress";
    todos(&sandbox, "claude", &first);
    let names = json!([
        "fix-it",
        "fix-it-2",
        "step",
        "step-2",
        "make-the-whole-suite-of-the-integration",
        "make-the-whole-suite-of-the-integration-2",
        "run",
        "run-2"
    ]);
    let found: Value = steps(&sandbox).as_array().unwrap().iter().map(|step| step[0].clone()).collect();
    assert_eq!(found, names);
    first[0].1 = "completed";
    first[1].1 = "in_progress";
    todos(&sandbox, "claude", &first);
    let states: Value = steps(&sandbox).as_array().unwrap().iter().map(|step| step[1].clone()).collect();
    assert_eq!(
        states,
        json!(["done", "running", "pending", "pending", "pending", "pending", "pending", "pending"])
    );
    // The checkpoint before the first step holds all of them.
    let plan =
        sandbox.json(&["plan", "list", "--json"])["data"]["plans"][0]["id"].as_str().unwrap().to_owned();
    let taken = sandbox.json(&["plan", "checkpoint", "list", &plan, "--json"]);
    let first =
        taken["data"]["checkpoints"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    let back = sandbox.run(&["plan", "rollback", &plan, &first, "--yes"]);
    assert!(back.ends_with("--- exit 0\n"), "{back}");
    assert_eq!(steps(&sandbox).as_array().unwrap().len(), texts.len(), "{back}");
    let mut one = list("pending");
    one[0].1 = "completed";
    todos(&sandbox, "claude", &one);
    assert_eq!(steps(&sandbox)[7][1], "pending", "one of eight is not all");
}

#[test]
fn options_before_and_behind_hook_change_nothing_of_its_answer() {
    let sandbox = Sandbox::with_checkpoint();
    let (home, elsewhere) = (sandbox.path("home"), sandbox.path("elsewhere"));
    let (home, elsewhere) = (home.to_str().unwrap(), elsewhere.to_str().unwrap());
    let lines: [&[&str]; 6] = [
        &["-q", "hook", "claude"],
        &["--json", "-C", "/", "hook", "claude"],
        &["--home", home, "hook", "claude"],
        &["hook", "--home", home, "claude"],
        &["--nonsense", "hook", "claude"],
        &["hook", "claude", "--nonsense"],
    ];
    for (number, line) in lines.iter().enumerate() {
        let more = json!({ "prompt": format!("prompt {number}") });
        let answer =
            run_hook(sandbox.command(line), input(&sandbox, SESSION, "UserPromptSubmit", &more).as_bytes());
        assert_eq!(answer, json!({}), "{line:?}");
        assert_eq!(turns(&sandbox)[0]["label"], format!("prompt {number}"), "{line:?}");
    }
    let more = json!({ "prompt": "in another home" });
    let line = ["--home", elsewhere, "hook", "claude"];
    run_hook(sandbox.command(&line), input(&sandbox, SESSION, "UserPromptSubmit", &more).as_bytes());
    assert_eq!(turns(&sandbox).len(), lines.len());
    let there = sandbox.json(&["--home", elsewhere, "list", "--turns", "--json"]);
    assert_eq!(there["data"]["turns"][0]["label"], "in another home", "{there}");
}

#[test]
fn the_record_of_a_session_follows_it() {
    let sandbox = Sandbox::with_checkpoint();
    let session = || sandbox.json(&["session", "get", SESSION, "--json"])["data"]["session"].clone();
    claude(&sandbox, "SessionStart", &json!({ "source": "startup", "model": "opus" }));
    let known = session();
    assert_eq!(
        (&known["status"], &known["request"]),
        (&json!("initializing"), &json!("session of claude")),
        "{known}"
    );
    assert_eq!(
        (&known["configuration"]["agent"], &known["configuration"]["model"]),
        (&json!("claude"), &json!("opus"))
    );
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    let known = session();
    assert_eq!(
        (&known["status"], &known["request"]),
        (&json!("implementing"), &json!("make the tests pass")),
        "{known}"
    );
    claude(&sandbox, "SessionEnd", &json!({}));
    assert_eq!(session()["status"], "paused");
    claude(&sandbox, "SessionStart", &json!({ "source": "resume" }));
    assert_eq!(session()["status"], "implementing");
    assert_eq!(session()["configuration"]["started"], "resume");
    claude(&sandbox, "SessionEnd", &json!({}));
    // A hook for the start can be missing.
    turn(&sandbox, "go on", "notes.txt", "two\n");
    assert_eq!(
        (&session()["status"], &session()["request"]),
        (&json!("implementing"), &json!("make the tests pass"))
    );
    codex(&sandbox, "SessionStart", &json!({ "source": "fork", "forked_from": SESSION }));
    let fork = sandbox.json(&["session", "get", OTHER, "--json"])["data"]["session"].clone();
    assert_eq!(fork["configuration"]["forked_from"], SESSION, "{fork}");
    // A session that a person completed stays so.
    for status in ["validating", "generating_report", "completed"] {
        let moved = sandbox.run(&["session", "transition", SESSION, status]);
        assert!(moved.ends_with("--- exit 0\n"), "{moved}");
    }
    turn(&sandbox, "once more", "notes.txt", "three\n");
    claude(&sandbox, "SessionEnd", &json!({}));
    assert_eq!(session()["status"], "completed");
}

#[test]
fn numbers_of_turns_are_not_used_again_after_a_repair_builds_a_new_catalog() {
    let sandbox = Sandbox::with_checkpoint();
    for number in ["1", "2", "3"] {
        turn(&sandbox, &format!("prompt {number}"), "notes.txt", number);
    }
    for file in fs::read_dir(sandbox.path("home")).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("catalog.db") {
            fs::remove_file(file.path()).unwrap();
        }
    }
    let repaired = sandbox.run(&["repair"]);
    assert!(repaired.contains("turns of agents from before the repair are not listed"), "{repaired}");
    turn(&sandbox, "prompt 4", "notes.txt", "4");
    assert_eq!(labels(&sandbox), json!([[4, "prompt 4"]]));
}

#[test]
fn a_limit_counts_the_turns_of_the_chosen_session() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "mine", "notes.txt", "1");
    codex(&sandbox, "UserPromptSubmit", &json!({ "prompt": "theirs", "turn_id": "t1" }));
    let listed = sandbox.json(&["list", "--turns", "-n", "1", "--session-id", SESSION, "--json"]);
    assert_eq!(listed["data"]["turns"][0]["label"], "mine", "{listed}");
}

#[test]
fn an_open_turn_is_called_open() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "go" }));
    claude(&sandbox, "PreToolUse", &call("1"));
    sandbox.write("notes.txt", "open\n");
    for line in [["rollback", "--turn", "1"], ["undo", "--turn", "1"]] {
        let told = sandbox.run(&line);
        assert!(told.contains("turn 1 is not over") && told.contains("--before-turn 1"), "{told}");
    }
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn an_event_without_a_session_is_covered() {
    let sandbox = Sandbox::with_checkpoint();
    let event = |name: &str, more: Value| {
        let mut event = json!({ "cwd": sandbox.path("project"), "hook_event_name": name });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hook(&sandbox, &["claude"], event.to_string().as_bytes())
    };
    event("UserPromptSubmit", json!({ "prompt": "nameless" }));
    event("PreToolUse", call("1"));
    sandbox.write("notes.txt", "one\n");
    event("Stop", json!({}));
    assert_eq!(labels(&sandbox), json!([[1, "nameless"]]));
    sandbox.run(&["undo", "--turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn a_folder_that_is_not_covered_is_reported_once_by_every_agent() {
    let project = |sandbox: &Sandbox| {
        fs::create_dir(sandbox.path("bare")).unwrap();
        sandbox.path("bare")
    };
    for agent in ["claude", "copilot", "opencode", "cursor"] {
        let sandbox = Sandbox::with_checkpoint();
        let folder = project(&sandbox);
        let mut told = Vec::new();
        for number in 0..3 {
            for at in ["start", "prompt"] {
                let (words, event): (&[&str], Value) = match (agent, at) {
                    ("claude", "start") => (&["claude"], json!({ "hook_event_name": "SessionStart" })),
                    ("claude", _) => (&["claude"], json!({ "hook_event_name": "UserPromptSubmit" })),
                    ("copilot", "start") => (&["copilot", "sessionStart"], json!({})),
                    ("copilot", _) => (&["copilot", "userPromptSubmitted"], json!({})),
                    ("cursor", "start") => (&["cursor"], json!({ "hook_event_name": "sessionStart" })),
                    ("cursor", _) => (&["cursor"], json!({ "hook_event_name": "beforeSubmitPrompt" })),
                    (_, "start") => {
                        (&["opencode"], json!({ "hook": "event", "input": { "type": "session.created" } }))
                    }
                    _ => {
                        (&["opencode"], json!({ "hook": "chat.message", "input": { "sessionID": "ses_1" } }))
                    }
                };
                let more = json!({ "session_id": "s1", "sessionId": "s1", "conversation_id": "s1", "cwd": folder,
                    "directory": folder, "prompt": number.to_string() });
                let mut event = event;
                for (name, value) in more.as_object().unwrap() {
                    event.as_object_mut().unwrap().entry(name.clone()).or_insert(value.clone());
                }
                if let Some(input) = event.get_mut("input").and_then(Value::as_object_mut) {
                    input.insert("properties".to_owned(), json!({ "sessionID": "ses_1" }));
                }
                told.push(hook(&sandbox, words, event.to_string().as_bytes()).to_string());
            }
        }
        let said = told.iter().filter(|answer| answer.contains("safepoint init")).count();
        assert_eq!(said, 1, "{agent}: {told:?}");
    }
}

#[test]
fn a_damaged_home_is_reported_at_each_prompt_and_a_missed_turn_to_agents_that_show_nothing() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "SessionStart", &json!({}));
    fs::rename(sandbox.path("home"), sandbox.path("aside")).unwrap();
    fs::write(sandbox.path("home"), "no folder").unwrap();
    let told = claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "one" }));
    assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
    assert_eq!(claude(&sandbox, "PreToolUse", &call("1")), json!({}));
    fs::remove_file(sandbox.path("home")).unwrap();
    fs::rename(sandbox.path("aside"), sandbox.path("home")).unwrap();
    // Copilot shows no message: its model passes it on at the next prompt.
    let copilot = |event: &str, more: Value| {
        let mut input = json!({ "sessionId": OTHER, "cwd": sandbox.path("project") });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut command = sandbox.command(&["hook", "copilot", event]);
        if event == "preToolUse" {
            command.env("SAFEPOINT_TEST_HOOK_MS", "0");
        }
        run_hook(command, input.to_string().as_bytes())
    };
    copilot("userPromptSubmitted", json!({ "prompt": "one" }));
    sandbox.write("notes.txt", "x");
    copilot("preToolUse", json!({ "toolName": "bash", "toolArgs": { "command": "make" } }));
    copilot("agentStop", json!({}));
    let told = copilot("userPromptSubmitted", json!({ "prompt": "two" }));
    assert!(told["additionalContext"].as_str().unwrap_or_default().contains("not covered"), "{told}");
    copilot("agentStop", json!({}));
    assert_eq!(copilot("userPromptSubmitted", json!({ "prompt": "three" })), json!({}), "once");
}

#[test]
fn a_late_hook_of_a_call_is_not_undone_by_the_end_of_its_turn() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "be quick" }));
    sandbox.write("notes.txt", "by hand\n");
    late(&sandbox, "claude", "PreToolUse", &call("1"));
    sandbox.write("notes.txt", "one\n");
    late(&sandbox, "claude", "Stop", &json!({}));
    // Nothing could be captured: the turn is closed all the same by the next prompt.
    let told = late(&sandbox, "claude", "UserPromptSubmit", &json!({ "prompt": "next" }));
    assert!(told["systemMessage"].as_str().unwrap().contains("turn before is not covered"), "{told}");
    assert_eq!(labels(&sandbox), json!([[2, "next"], [1, "be quick"]]));
    assert!(turns(&sandbox)[1]["ended"].is_string());
}

/// Recorded events of a real agent, as its hooks got them: arguments, variables and input. Their folder is the project.
fn recorded(sandbox: &Sandbox, agent: &str) -> Vec<(Vec<String>, Value, String)> {
    let file = format!("{}/../agents/tests/streams/{agent}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(file)
        .unwrap()
        .replace("/home/dev/shop", sandbox.path("project").to_str().unwrap());
    let events = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let named = line["event"].as_str().map(str::to_owned);
        let words = ["hook".to_owned(), agent.to_owned()].into_iter().chain(named).collect();
        let mut input = line["stdin"].clone();
        if agent == "opencode" {
            // The plugin adds these to each event.
            let (folder, child) = (sandbox.path("project"), "ses_e1e3f94aaffeeol8ln6PhKuG9X");
            let is_of_child = input.to_string().contains(&format!("\"sessionID\":\"{child}\""));
            let fields = input.as_object_mut().unwrap();
            fields.entry("directory").or_insert(json!(folder));
            if is_of_child {
                fields.entry("parent").or_insert("ses_e1e3fbd9affeL9XYcSFb3uYxBh".into());
            }
        }
        (words, line["env"].clone(), input.to_string())
    });
    events.collect()
}

#[test]
fn recorded_streams_of_the_real_agents_give_a_turn_for_each_prompt() {
    let is_shell = |words: &[String], input: &str| {
        let before = ["\"PreToolUse\"", "\"BeforeTool\"", "\"tool.execute.before\""];
        let is_before =
            words.iter().any(|word| word == "preToolUse") || before.iter().any(|name| input.contains(name));
        is_before && ["\"Bash\"", "\"bash\"", "\"run_shell_command\""].iter().any(|tool| input.contains(tool))
    };
    for (agent, prompts) in [("claude", 1), ("codex", 2), ("copilot", 1), ("gemini", 1), ("opencode", 1)] {
        let sandbox = Sandbox::with_checkpoint();
        for (number, (words, env, input)) in recorded(&sandbox, agent).iter().enumerate() {
            let mut command = sandbox.command(words);
            for (name, value) in env.as_object().unwrap() {
                command.env(name, value.as_str().unwrap_or_default());
            }
            let answer = run_hook(command, input.as_bytes());
            assert_eq!(answer, json!({}), "{agent}: {input}");
            if is_shell(words, input) {
                sandbox.write("notes.txt", format!("call {number}"));
            }
        }
        let all = turns(&sandbox);
        assert_eq!(all.len(), prompts, "{agent}: {all:#?}");
        assert!(all.iter().all(|turn| turn["ended"].is_string() && turn["label"] != ""), "{agent}: {all:#?}");
        sandbox.run(&["rollback", "--before-turn", "1"]);
        assert_eq!(sandbox.read("notes.txt"), "good\n", "{agent}");
    }
}

#[test]
fn a_home_directory_that_is_a_repository_is_not_covered_and_reported_once() {
    let sandbox = Sandbox::with_checkpoint();
    let home = sandbox.path("user");
    for folder in [".git", "notes", "shop/.git"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    let workspaces = || {
        let listed = sandbox.json(&["workspace", "list", "--json"]);
        listed["data"]["workspaces"].as_array().unwrap().len()
    };
    // A call is denied only if a checkpoint of it failed.
    fs::write(sandbox.path("home/config.toml"), "[agents]\nfail_closed = true\n").unwrap();
    let at = |session: &str, folder: &str, event: &str, id: &str| {
        let folder = home.join(folder);
        let more = json!({ "cwd": folder, "prompt": id, "tool_name": "Bash", "tool_use_id": id,
            "tool_input": { "command": "make" } });
        hook(&sandbox, &["claude"], input(&sandbox, session, event, &more).as_bytes())
    };
    let told = at(SESSION, "", "UserPromptSubmit", "one");
    assert!(told["systemMessage"].as_str().unwrap().contains("the home directory is not covered"), "{told}");
    for session in [SESSION, OTHER] {
        assert_eq!(at(session, "", "UserPromptSubmit", "two"), json!({}), "said once");
        assert_eq!(at(session, "", "PreToolUse", "three"), json!({}));
    }
    let told = at(SESSION, "notes", "UserPromptSubmit", "four");
    assert!(told["systemMessage"].as_str().unwrap().contains("this folder is not covered"), "{told}");
    assert_eq!(at(SESSION, "notes", "UserPromptSubmit", "five"), json!({}), "said once");
    assert_eq!(at(SESSION, "notes", "PreToolUse", "six"), json!({}));
    assert_eq!(workspaces(), 1, "only the project of the sandbox");
    // A project in it is covered.
    assert_eq!(at(SESSION, "shop", "UserPromptSubmit", "seven"), json!({}));
    assert_eq!(at(SESSION, "shop", "PreToolUse", "eight"), json!({}));
    assert_eq!(workspaces(), 2);
}
