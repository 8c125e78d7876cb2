//! `hook`: events of coding agents, and what can be undone by turn.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const SESSION: &str = "57858edd-f386-4b85-b6ba-76f742d12643";

/// Runs a hook with this input. It must end with 0 and print one JSON object.
fn hook(sandbox: &Sandbox, words: &[&str], input: &[u8]) -> Value {
    let mut command = sandbox.command(&[&["hook"], words].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // An early answer closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer.is_object(), "{answer}");
    answer
}

fn claude(sandbox: &Sandbox, event: &str, more: &Value) -> Value {
    let mut input =
        json!({ "session_id": SESSION, "cwd": sandbox.path("project"), "hook_event_name": event });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    hook(sandbox, &["claude"], input.to_string().as_bytes())
}

/// One turn of Claude Code with a shell command that writes this file.
fn turn(sandbox: &Sandbox, prompt: &str, file: &str, content: &str) {
    claude(sandbox, "UserPromptSubmit", &json!({ "prompt": prompt }));
    let call = json!({ "tool_name": "Bash", "tool_use_id": prompt, "tool_input": { "command": "make" } });
    claude(sandbox, "PreToolUse", &call);
    sandbox.write(file, content);
    claude(sandbox, "Stop", &json!({}));
}

#[test]
fn every_turn_of_an_agent_can_be_undone() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    turn(&sandbox, "and now the docs", "docs.txt", "two\n");
    assert_snapshot!(sandbox.run(&["list", "--turns"]), @"
    turn 2: and now the docs, +1 ~0 -0, 1 command, claude, 2 minutes ago
    turn 1: make the tests pass, +0 ~1 -0, 1 command, claude, 5 minutes ago
    --- exit 0
    ");
    assert_eq!(sandbox.json(&["list", "--turns", "--json"])["data"]["turns"][0]["turn"], 2);
    sandbox.run(&["undo", "--turn", "1"]);
    assert_eq!((sandbox.read("notes.txt"), sandbox.read("docs.txt")), ("good\n".into(), "two\n".into()));
    sandbox.run(&["rollback", "--turn", "1"]);
    assert!(!sandbox.path("project/docs.txt").exists());
    assert_eq!(sandbox.read("notes.txt"), "one\n");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert_snapshot!(sandbox.run(&["rollback", "--turn", "7"]), @"
    --- stderr
    error: cannot roll back: there is no turn 7
    Nothing was changed.
    hint: `safepoint list --turns` shows the turns of the workspace.
    --- exit 10
    ");
}

#[test]
fn undoing_a_turn_names_the_paths_that_changed_since() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    sandbox.write("notes.txt", "by hand\n");
    assert_snapshot!(sandbox.run(&["undo", "--turn", "1"]), @"
    --- stderr
    error: cannot undo: every path that turn 1 changed has changed since: notes.txt
    Nothing was changed.
    hint: Take these paths, too: safepoint undo --turn N --all
    hint: The state now is kept in a safety checkpoint.
    --- exit 12
    ");
    sandbox.run(&["undo", "--turn", "1", "--all"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn the_model_is_told_of_a_rollback_at_its_next_prompt() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    let answer = claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "go on" }));
    let note = answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap();
    assert!(note.contains("make the tests pass") && note.contains("\"notes.txt\""), "{note}");
    let answer = claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "once more" }));
    assert_eq!(answer, json!({}));
}

#[test]
fn a_hook_never_fails_and_always_answers_with_json() {
    let sandbox = Sandbox::with_checkpoint();
    let event = json!({ "session_id": SESSION, "cwd": sandbox.path("project"), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "rm -rf build" } });
    let whole = event.to_string();
    for cut in (0..whole.len()).step_by(37) {
        assert_eq!(hook(&sandbox, &["claude"], &whole.as_bytes()[..cut]), json!({}));
    }
    for words in [&[][..], &["nobody"], &["claude", "--nonsense"], &["copilot"], &["claude", "a", "b"]] {
        hook(&sandbox, words, b"[1]");
    }
    hook(&sandbox, &["claude"], &[b'['; 200_000]);
    std::fs::write(sandbox.path("home/config.toml"), "nonsense = [").unwrap();
    let told = hook(&sandbox, &["claude"], whole.as_bytes());
    assert!(told["systemMessage"].as_str().unwrap().contains("not covered"), "{told}");
    let again = whole.replace("rm -rf build", "rm -rf target");
    assert_eq!(hook(&sandbox, &["claude"], again.as_bytes()), json!({}), "said once");
}

#[test]
fn a_risky_command_has_a_checkpoint_of_its_own() {
    let sandbox = Sandbox::with_checkpoint();
    std::fs::write(sandbox.path("home/config.toml"), "[agents]\nrisky = ['acme wipe', '']\n").unwrap();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "clean up" }));
    for (id, command) in [("1", "make"), ("2", "rm -rf build"), ("3", "sudo acme -v wipe")] {
        let call = json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": command } });
        claude(&sandbox, "PreToolUse", &call);
        sandbox.write("notes.txt", command);
    }
    let told = sandbox.run(&["list"]);
    assert!(told.contains("before rm -rf build") && told.contains("before sudo acme -v wipe"), "{told}");
}

#[test]
fn a_todo_list_of_an_agent_is_a_plan_that_goes_back_with_the_files() {
    let sandbox = Sandbox::with_checkpoint();
    let todo = |first: &str, second: &str| {
        let todos = json!([{ "content": "Fix the tests", "status": first, "activeForm": "Fixing" },
            { "content": "Write docs", "status": second, "activeForm": "Writing" }]);
        let call = json!({ "tool_name": "TodoWrite", "tool_use_id": format!("{first}{second}"),
            "tool_input": { "todos": todos }, "tool_response": { "newTodos": todos } });
        claude(&sandbox, "PostToolUse", &call)
    };
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "make the tests pass" }));
    todo("in_progress", "pending");
    let call = json!({ "tool_name": "Bash", "tool_use_id": "1", "tool_input": { "command": "make" } });
    claude(&sandbox, "PreToolUse", &call);
    sandbox.write("notes.txt", "one\n");
    todo("completed", "in_progress");
    claude(&sandbox, "Stop", &json!({}));
    let shown = sandbox.run(&["plan", "show", "claude-57858edd"]);
    assert!(shown.contains("[x] fix-the-tests") && shown.contains("write-docs"), "{shown}");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    let shown = sandbox.run(&["plan", "show", "claude-57858edd"]);
    assert!(!shown.contains("[x]"), "{shown}");
    for (first, second) in [("in_progress", "pending"), ("completed", "completed")] {
        todo(first, second);
    }
    let shown = sandbox.run(&["plan", "list"]);
    assert!(shown.contains("done"), "{shown}");
}
