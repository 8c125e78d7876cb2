//! `hook`: notes to agents about rollbacks hold true facts only, and none is lost.

use crate::hooks::{SESSION, call, claude, codex, input, run_hook, todos, turn};
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

/// Note that a prompt of Claude Code brings; empty if there is none.
fn note(sandbox: &Sandbox, prompt: &str) -> String {
    text(&claude(sandbox, "UserPromptSubmit", &json!({ "prompt": prompt })))
}

fn text(answer: &Value) -> String {
    answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default().to_owned()
}

/// The line of a note that begins so, without the beginning.
fn line<'n>(note: &'n str, start: &str) -> Option<&'n str> {
    note.lines().find_map(|line| line.strip_prefix(start))
}

#[test]
fn a_note_names_no_turn_that_was_made_after_the_rollback() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "one", "notes.txt", "1");
    turn(&sandbox, "two", "notes.txt", "2");
    sandbox.run(&["rollback", "--before-turn", "2"]);
    codex(&sandbox, "UserPromptSubmit", &json!({ "prompt": "other", "turn_id": "t1" }));
    codex(&sandbox, "PreToolUse", &call("c1"));
    sandbox.write("other.txt", "x");
    codex(&sandbox, "Stop", &json!({ "turn_id": "t1" }));
    let told = note(&sandbox, "go on");
    assert_eq!(line(&told, "Undone: "), Some("turn 2 \"two\"."), "{told}");
}

#[test]
fn a_rollback_that_was_undone_is_no_news() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "one", "notes.txt", "1");
    turn(&sandbox, "two", "notes.txt", "2");
    sandbox.run(&["rollback", "--before-turn", "2"]);
    sandbox.run(&["undo"]);
    assert_eq!(note(&sandbox, "go on"), "");
    // If the model was told of the rollback, it is told of the undo.
    sandbox.run(&["rollback", "--before-turn", "2"]);
    let told = note(&sandbox, "and");
    assert_eq!(line(&told, "Undone: "), Some("turn 2 \"two\"."), "{told}");
    sandbox.run(&["undo", "--yes"]);
    let told = note(&sandbox, "on");
    assert_eq!(
        (line(&told, "Restored: "), line(&told, "Undone: ")),
        (Some("turn 2 \"two\"."), None),
        "{told}"
    );
    assert!(!told.contains("before rollback to"), "no name of a safety checkpoint: {told}");
}

#[test]
fn a_rollback_of_chosen_paths_names_the_turns_that_changed_them() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "one", "a.txt", "1");
    turn(&sandbox, "two", "b.txt", "2");
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "three" }));
    claude(&sandbox, "PreToolUse", &call("3"));
    sandbox.write("b.txt", "3");
    sandbox.write("c.txt", "3");
    claude(&sandbox, "Stop", &json!({}));
    codex(&sandbox, "UserPromptSubmit", &json!({ "prompt": "other", "turn_id": "t1" }));
    codex(&sandbox, "PreToolUse", &call("c1"));
    sandbox.write("z.txt", "x");
    codex(&sandbox, "Stop", &json!({ "turn_id": "t1" }));
    let done = sandbox.run(&["rollback", "--before-turn", "3", "b.txt"]);
    assert!(!done.contains("other sessions"), "z.txt stays: {done}");
    let told = note(&sandbox, "go on");
    assert_eq!(
        (line(&told, "Undone: "), line(&told, "Undone in part: ")),
        (None, Some("turn 3 \"three\".")),
        "{told}"
    );
    sandbox.run(&["undo", "--turn", "1"]);
    let told = note(&sandbox, "and on");
    assert_eq!(
        (line(&told, "Undone: "), line(&told, "Undone in part: ")),
        (Some("turn 1 \"one\"."), None),
        "{told}"
    );
}

#[test]
fn an_interrupted_turn_is_named_and_a_turn_without_a_prompt_has_no_empty_label() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "one", "notes.txt", "1");
    claude(&sandbox, "PreToolUse", &call("2"));
    sandbox.write("notes.txt", "2");
    sandbox.run(&["rollback", "--before-turn", "2"]);
    let told = note(&sandbox, "go on");
    assert_eq!(line(&told, "Undone: "), Some("turn 2."), "{told}");
}

#[test]
fn a_note_waits_in_its_workspace() {
    let sandbox = Sandbox::with_checkpoint();
    fs::create_dir_all(sandbox.path("second/.git")).unwrap();
    let elsewhere = |prompt: &str| {
        let more = json!({ "prompt": prompt, "cwd": sandbox.path("second") });
        text(&claude(&sandbox, "UserPromptSubmit", &more))
    };
    turn(&sandbox, "one", "notes.txt", "1");
    elsewhere("two");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(elsewhere("three"), "");
    assert!(note(&sandbox, "four").contains("turn 1 \"one\""));
    assert_eq!(note(&sandbox, "five"), "");
}

#[test]
fn a_note_that_no_agent_could_read_waits_for_the_next_prompt() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "one", "notes.txt", "1");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    // The agent is gone when the hook answers.
    let mut command = sandbox.command(&["hook", "claude"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let event = input(&sandbox, SESSION, "UserPromptSubmit", &json!({ "prompt": "unheard" }));
    let mut child = command.stdin(Stdio::piped()).stdout(writer).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), event.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Its time is over before it answers.
    let mut command = sandbox.command(&["hook", "claude"]);
    command.env("SAFEPOINT_TEST_HOOK_MS", "0");
    let event = input(&sandbox, SESSION, "UserPromptSubmit", &json!({ "prompt": "late" }));
    let late = text(&run_hook(command, event.as_bytes()));
    let told = note(&sandbox, "heard");
    assert!(late.contains("turn 1 \"one\"") || told.contains("turn 1 \"one\""), "{told}");
    assert_eq!(note(&sandbox, "again"), "");
}

#[test]
fn guidance_of_a_correction_is_in_the_note() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "one" }));
    todos(&sandbox, "claude", &[("build", "in_progress"), ("test", "pending")]);
    claude(&sandbox, "PreToolUse", &call("1"));
    sandbox.write("notes.txt", "wrong\n");
    todos(&sandbox, "claude", &[("build", "completed"), ("test", "in_progress")]);
    claude(&sandbox, "Stop", &json!({}));
    let plan =
        sandbox.json(&["plan", "list", "--json"])["data"]["plans"][0]["id"].as_str().unwrap().to_owned();
    let failed = sandbox.run(&["plan", "step", "fail", &plan, "test", "--error", "it breaks"]);
    assert!(failed.ends_with("--- exit 0\n"), "{failed}");
    let corrected =
        sandbox.run(&["plan", "correct", &plan, "--mode", "revert", "--guidance", "use cmake <b>"]);
    assert!(corrected.ends_with("--- exit 0\n"), "{corrected}");
    let told = note(&sandbox, "go on");
    let guidance = line(&told, "The user's guidance for the next attempt: ");
    assert_eq!(guidance, Some("\"use cmake \\u003cb\\u003e\"."), "{told}");
}
