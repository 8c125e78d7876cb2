//! `hook`: events of coding agents, and what can be undone by turn.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const SESSION: &str = "57858edd-f386-4b85-b6ba-76f742d12643";
pub(crate) const OTHER: &str = "0193a6b4-8000-7000-8000-000000000002";

pub(crate) fn hook(sandbox: &Sandbox, words: &[&str], input: &[u8]) -> Value {
    run_hook(sandbox.command(&[&["hook"], words].concat()), input)
}

/// Runs a hook with this input. It must end with 0 and print one JSON object.
pub(crate) fn run_hook(mut command: Command, input: &[u8]) -> Value {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // An early answer closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{command:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer.is_object(), "{answer}");
    answer
}

pub(crate) fn claude(sandbox: &Sandbox, event: &str, more: &Value) -> Value {
    hook(sandbox, &["claude"], input(sandbox, SESSION, event, more).as_bytes())
}

/// An event of Codex, in another session.
pub(crate) fn codex(sandbox: &Sandbox, event: &str, more: &Value) -> Value {
    hook(sandbox, &["codex"], input(sandbox, OTHER, event, more).as_bytes())
}

pub(crate) fn input(sandbox: &Sandbox, session: &str, event: &str, more: &Value) -> String {
    let mut input =
        json!({ "session_id": session, "cwd": sandbox.path("project"), "hook_event_name": event });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input.to_string()
}

/// A call of Claude's tool that writes a file.
pub(crate) fn write_call(path: &Path) -> Value {
    json!({ "tool_name": "Write", "tool_use_id": path, "tool_input": { "file_path": path, "content": "x" } })
}

/// One turn of Claude Code with a shell command that writes this file.
pub(crate) fn turn(sandbox: &Sandbox, prompt: &str, file: &str, content: &str) {
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
fn the_state_of_a_turn_can_be_built_in_another_folder() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    sandbox.write("notes.txt", "by hand\n");
    sandbox.run(&["create"]);
    for (option, content) in [("--turn", "one\n"), ("--before-turn", "good\n")] {
        let to = format!("../built{option}");
        let told = sandbox.run(&["rollback", option, "1", "--to", &to]);
        assert!(told.ends_with("--- exit 0\n"), "{told}");
        let built = sandbox.path("project").join(to).join("notes.txt");
        assert_eq!(std::fs::read_to_string(built).unwrap(), content, "{option}");
        // A checkpoint and a turn are two states.
        let told = sandbox.run(&["rollback", "@", option, "1", "--to", "../both"]);
        assert!(
            told.contains("--to takes one checkpoint or turn") && told.ends_with("--- exit 2\n"),
            "{told}"
        );
        assert!(told.contains("hint: Name it, as in: safepoint rollback @ --to ../both\n"), "{told}");
        assert!(!sandbox.path("both").exists());
    }
    assert_eq!(sandbox.read("notes.txt"), "by hand\n");
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
    hint: Take these paths, too: safepoint undo --turn 1 --all
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
fn a_rollback_to_a_checkpoint_names_the_work_of_agents_that_it_undoes() {
    let sandbox = Sandbox::with_checkpoint();
    turn(&sandbox, "make the tests pass", "notes.txt", "one\n");
    codex(&sandbox, "UserPromptSubmit", &json!({ "prompt": "docs", "turn_id": "t1" }));
    codex(&sandbox, "PreToolUse", &call("c1"));
    sandbox.write("docs.txt", "two\n");
    codex(&sandbox, "Stop", &json!({ "turn_id": "t1" }));
    let dry = sandbox.run(&["rollback", "first", "--dry-run"]);
    for wanted in [
        "This would undo work of agents:",
        "    turn 2 (codex): docs: docs.txt\n",
        "    turn 1 (claude): make the tests pass: notes.txt\n",
    ] {
        assert!(dry.contains(wanted), "{wanted}: {dry}");
    }
    assert!(!dry.contains("next prompt"), "{dry}");
    // Chosen paths take back only the turns that changed them.
    let part = sandbox.json(&["rollback", "first", "docs.txt", "--dry-run", "--json"]);
    let turns = json!([{ "turn": 2, "agent": "codex", "paths": ["docs.txt"] }]);
    assert_eq!(part["data"]["other_turns"], turns, "{part:#}");
    let done = sandbox.run(&["rollback", "first"]);
    for wanted in [
        "This undid work of agents:",
        "codex is told at its next prompt.",
        "claude is told at its next prompt.",
        "To open the conversation again: claude --resume",
    ] {
        assert!(done.contains(wanted), "{wanted}: {done}");
    }
    // Nothing is left of them to undo.
    sandbox.write("notes.txt", "by hand\n");
    let again = sandbox.json(&["rollback", "first", "--json"]);
    assert_eq!(again["data"]["other_turns"], Value::Null, "{again:#}");
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

/// A hook whose budget is over at once.
pub(crate) fn late(sandbox: &Sandbox, agent: &str, event: &str, more: &Value) -> Value {
    let mut command = sandbox.command(&["hook", agent]);
    command.env("SAFEPOINT_TEST_HOOK_MS", "0");
    run_hook(command, input(sandbox, SESSION, event, more).as_bytes())
}

pub(crate) fn call(id: &str) -> Value {
    json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "make" } })
}

#[test]
fn a_hook_whose_time_is_over_reports_it_once_and_lets_the_call_go_on() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "be quick" }));
    sandbox.write("notes.txt", "one\n");
    let told = late(&sandbox, "claude", "PreToolUse", &call("1"));
    assert!(told["systemMessage"].as_str().unwrap().contains("this turn is not covered"), "{told}");
    assert_eq!(late(&sandbox, "claude", "PreToolUse", &call("2")), json!({}));
    let turn = &sandbox.json(&["list", "--turns", "--json"])["data"]["turns"][0];
    assert_eq!(turn["uncovered"].as_array().unwrap().len(), 1, "{turn}");
    claude(&sandbox, "Stop", &json!({}));
    assert!(sandbox.run(&["list", "--turns"]).contains("partly not covered"));
}

#[test]
fn with_fail_closed_a_call_that_cannot_be_covered_is_denied_in_the_words_of_the_agent() {
    let sandbox = Sandbox::with_checkpoint();
    for config in ["[agents]\nfail_closed = true\n", "nonsense = [\n[agents]\nfail_closed = true\n"] {
        std::fs::write(sandbox.path("home/config.toml"), config).unwrap();
        sandbox.write("notes.txt", config);
        let told = late(&sandbox, "claude", "PreToolUse", &call(config));
        assert_eq!(told["hookSpecificOutput"]["permissionDecision"], "deny", "{told}");
        let told = late(
            &sandbox,
            "gemini",
            "BeforeTool",
            &json!({ "tool_name": "write_file", "tool_input": { "content": config } }),
        );
        assert_eq!(told["decision"], "deny", "{told}");
    }
    std::fs::write(sandbox.path("home/config.toml"), "[agents]\nfail_closed = true\n").unwrap();
    assert_eq!(claude(&sandbox, "PreToolUse", &call("fine")), json!({}), "covered calls go on");
    assert_eq!(late(&sandbox, "claude", "Stop", &json!({}))["hookSpecificOutput"], Value::Null);
    std::fs::write(sandbox.path("home/config.toml"), "[agents]\nfail_closed = false\n").unwrap();
    assert_eq!(late(&sandbox, "claude", "PreToolUse", &call("open"))["hookSpecificOutput"], Value::Null);
}

#[test]
fn a_hook_answers_where_there_is_no_home_no_folder_and_no_input() {
    let sandbox = Sandbox::with_checkpoint();
    let event = input(&sandbox, SESSION, "PreToolUse", &call("1"));
    let without = |names: &[&str]| {
        let mut command = sandbox.command(&["hook", "claude"]);
        for name in names {
            command.env_remove(name);
        }
        command
    };
    run_hook(without(&["HOME", "SAFEPOINT_HOME", "USER"]), event.as_bytes());
    std::fs::create_dir(sandbox.path("gone")).unwrap();
    let script = format!("rmdir {0} && exec \"$0\" hook claude", sandbox.path("gone").display());
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_safepoint")).current_dir(sandbox.path("gone"));
    command.env("SAFEPOINT_HOME", sandbox.path("home")).env("HOME", sandbox.path("user"));
    let gone = json!({ "cwd": sandbox.path("project/deleted/below"), "prompt": "go on" });
    run_hook(command, input(&sandbox, SESSION, "UserPromptSubmit", &gone).as_bytes());
    let turns = sandbox.json(&["list", "--turns", "--json"]);
    assert_eq!(turns["data"]["turns"][0]["label"], "go on", "the folder above counts: {turns}");
    // An agent that never writes, and never closes its end.
    let mut command = sandbox.command(&["hook", "claude"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _open = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"{}"[..]));
}

#[test]
fn a_path_outside_of_the_workspace_is_reported_once() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "write" }));
    assert_eq!(
        claude(&sandbox, "PreToolUse", &write_call(&sandbox.path("project/src/../new.txt"))),
        json!({})
    );
    let told = claude(&sandbox, "PreToolUse", &write_call(&sandbox.path("elsewhere.txt")));
    assert!(told["systemMessage"].as_str().unwrap().contains("outside of the workspace"), "{told}");
    assert_eq!(claude(&sandbox, "PreToolUse", &write_call(&sandbox.path("project/../more.txt"))), json!({}));
}

#[test]
fn a_worktree_that_an_agent_makes_is_a_workspace_of_its_own() {
    let sandbox = Sandbox::with_checkpoint();
    let tree = sandbox.path("project/.claude/worktrees/blue");
    std::fs::create_dir_all(tree.join("src")).unwrap();
    std::fs::write(tree.join(".git"), "gitdir: ../../../.git/worktrees/blue\n").unwrap();
    std::fs::write(tree.join("src/a"), "old").unwrap();
    let of_tree = json!({ "cwd": tree.join("src"), "prompt": "in the worktree" });
    claude(&sandbox, "UserPromptSubmit", &of_tree);
    assert_eq!(sandbox.json(&["list", "--turns", "--json"])["data"]["turns"], json!([]));
    let tree = tree.to_str().unwrap().to_owned();
    let turns = sandbox.json(&["-C", &tree, "list", "--turns", "--json"]);
    assert_eq!(turns["data"]["turns"][0]["label"], "in the worktree", "{turns}");
}

#[test]
fn the_preview_and_the_undo_of_a_turn_name_the_other_agent() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("both.txt", "old\n");
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "the first part" }));
    claude(&sandbox, "PreToolUse", &write_call(&sandbox.path("project/mine.txt")));
    sandbox.write("mine.txt", "claude\n");
    codex(&sandbox, "UserPromptSubmit", &json!({ "prompt": "the second part", "turn_id": "t1" }));
    let patch = "*** Begin Patch\n*** Add File: theirs.txt\n+x\n*** Update File: both.txt\n*** End Patch\n";
    let patch = json!({ "tool_name": "apply_patch", "tool_use_id": "p", "tool_input": { "command": patch } });
    codex(&sandbox, "PreToolUse", &patch);
    sandbox.write("theirs.txt", "codex\n");
    claude(&sandbox, "PreToolUse", &write_call(&sandbox.path("project/both.txt")));
    sandbox.write("both.txt", "claude\n");
    sandbox.write("both.txt", "codex\n");
    claude(&sandbox, "Stop", &json!({}));
    codex(&sandbox, "Stop", &json!({}));
    assert_snapshot!(sandbox.run(&["rollback", "--before-turn", "1", "--dry-run"]), @r#"
    Would roll back to 01KG9YWXN82J59EP1NVRE9ENPE "before turn 1: the first part", taken 5 minutes ago
      1 file restored, 2 files removed; a dry run: nothing was changed
        ~ both.txt  restored
        - mine.txt  removed
        - theirs.txt  removed
    This would also undo work of other sessions:
        turn 2 (codex): the second part: theirs.txt, both.txt
    Only turn 1: safepoint undo --turn 1
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["undo", "--turn", "1"]), @r#"
    Rolled back the chosen paths to 01KG9YWXN82J59EP1NVRE9ENPE "before turn 1: the first part", taken 6 minutes ago
      0 files restored, 1 file removed, read back and verified, in N ms
        - mine.txt  removed
    Undo it with: safepoint undo
    Left as they are, because another turn changed them or they changed after turn 1:
        both.txt (turn 2, codex)
    Take them, too: safepoint undo --turn 1 --all
    claude is told at its next prompt.
    To shorten its conversation, too: type /rewind, choose the prompt, then "Restore conversation".
    To open the conversation again: claude --resume 57858edd-f386-4b85-b6ba-76f742d12643 --fork-session
    --- exit 0
    "#);
    let read = ["both.txt", "theirs.txt"].map(|name| sandbox.read(name));
    assert_eq!(read, ["codex\n", "codex\n"]);
    assert!(!sandbox.path("project/mine.txt").exists());
    let answer = sandbox.json(&["undo", "--turn", "1", "--all", "--json"]);
    assert_eq!(answer["data"]["left_by_turn"], json!([]), "{answer}");
    assert_eq!((sandbox.read("both.txt"), sandbox.read("theirs.txt")), ("old\n".into(), "codex\n".into()));
}

#[test]
fn the_note_names_the_undone_turn_and_the_steps_that_no_longer_hold() {
    let sandbox = Sandbox::with_checkpoint();
    let todo = |status: &str| {
        let todos = json!([{ "content": "Fix the tests", "status": status, "activeForm": "Fixing" },
            { "content": "Write docs", "status": "pending", "activeForm": "Writing" }]);
        let call = json!({ "tool_name": "TodoWrite", "tool_use_id": status, "tool_input": { "todos": todos },
            "tool_response": { "newTodos": todos } });
        claude(&sandbox, "PostToolUse", &call)
    };
    let note = |prompt: &str| {
        let answer = claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": prompt }));
        answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default().to_owned()
    };
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "make the tests pass" }));
    todo("in_progress");
    claude(&sandbox, "PreToolUse", &call("1"));
    sandbox.write("notes.txt", "one\n");
    todo("completed");
    claude(&sandbox, "Stop", &json!({}));
    turn(&sandbox, "and the docs", "docs.txt", "two\n");
    sandbox.run(&["undo", "--turn", "2"]);
    let told = note("go on");
    assert!(told.contains("Undone: turn 2 \"and the docs\".") && !told.contains("turn 1"), "{told}");
    assert!(told.contains("\"docs.txt\"") && !told.contains("Plan steps"), "{told}");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    let told = note("and on");
    assert!(told.contains("Plan steps that no longer hold: \"Fix the tests\"."), "{told}");
    assert!(told.contains("turn 1 \"make the tests pass\""), "{told}");
}

#[test]
fn hooks_inside_of_a_run_join_its_session() {
    let sandbox = Sandbox::with_checkpoint();
    let hook = |event: &str, more: &Value| {
        let mut command = sandbox.command(&["hook", "claude"]);
        command.env("SAFEPOINT_SESSION_ID", OTHER);
        run_hook(command, input(&sandbox, SESSION, event, more).as_bytes())
    };
    hook("UserPromptSubmit", &json!({ "prompt": "inside" }));
    hook("PreToolUse", &call("1"));
    sandbox.write("notes.txt", "one\n");
    hook("Stop", &json!({}));
    let listed = sandbox.json(&["list", "--turns", "--session-id", OTHER, "--json"]);
    assert_eq!(listed["data"]["turns"][0]["label"], "inside", "{listed}");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    let answer = hook("UserPromptSubmit", &json!({ "prompt": "go on" }));
    assert!(answer["hookSpecificOutput"]["additionalContext"].is_string(), "{answer}");
}

#[test]
fn work_that_goes_on_after_a_turn_is_named() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "in the background" }));
    claude(&sandbox, "PreToolUse", &call("1"));
    let tasks =
        json!([{ "id": "b1", "type": "subagent", "description": "index the docs", "status": "running" }]);
    claude(&sandbox, "Stop", &json!({ "background_tasks": tasks }));
    let turn = &sandbox.json(&["list", "--turns", "--json"])["data"]["turns"][0];
    assert_eq!(
        (&turn["subagents"], &turn["tools"]),
        (&json!(["index the docs"]), &json!(["Bash"])),
        "{turn}"
    );
}

#[test]
fn slow_concurrent_and_repeated_events_of_a_turn_do_no_harm() {
    let sandbox = Sandbox::with_checkpoint();
    claude(&sandbox, "UserPromptSubmit", &json!({ "prompt": "all at once" }));
    let event = |id: usize| input(&sandbox, SESSION, "PreToolUse", &call(&format!("{}", id / 2)));
    let hooks: Vec<(Command, String)> =
        (0..8).map(|id| (sandbox.command(&["hook", "claude"]), event(id))).collect();
    std::thread::scope(|scope| {
        for (command, text) in hooks {
            scope.spawn(move || run_hook(command, text.as_bytes()));
        }
    });
    sandbox.write("notes.txt", "one\n");
    let mut command = sandbox.command(&["hook", "claude"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stop = input(&sandbox, SESSION, "Stop", &json!({}));
    let mut pipe = child.stdin.take().unwrap();
    for piece in stop.as_bytes().chunks(40) {
        pipe.write_all(piece).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(pipe);
    assert_eq!(child.wait_with_output().unwrap().stdout, b"{}");
    // Ends again, and a call that arrives after the end.
    claude(&sandbox, "Stop", &json!({}));
    let turn = &sandbox.json(&["list", "--turns", "--json"])["data"]["turns"][0];
    assert_eq!((&turn["commands"], &turn["files"]["modified"]), (&json!(4), &json!(1)), "{turn}");
    sandbox.run(&["rollback", "--before-turn", "1"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn numbers_of_turns_are_never_used_again() {
    let sandbox = Sandbox::with_checkpoint();
    for number in ["1", "2", "3"] {
        turn(&sandbox, &format!("prompt {number}"), "notes.txt", number);
    }
    let keep = ["--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s"];
    let pruned = sandbox.run(&[&["prune"][..], &keep].concat());
    assert!(pruned.ends_with("--- exit 0\n"), "{pruned}");
    let gone = sandbox.run(&["rollback", "--turn", "1"]);
    assert!(gone.contains("turn 1") && !gone.ends_with("--- exit 0\n"), "{gone}");
    sandbox.run(&["gc"]);
    turn(&sandbox, "prompt 4", "notes.txt", "4");
    sandbox.run(&["rollback", "--before-turn", "4"]);
    turn(&sandbox, "prompt 5", "notes.txt", "5");
    let turns = sandbox.json(&["list", "--turns", "--json"]);
    let turns = turns["data"]["turns"].as_array().unwrap();
    let told: Vec<_> = turns.iter().map(|turn| json!([turn["turn"], turn["label"]])).collect();
    let numbered = |number: u64| json!([number, format!("prompt {number}")]);
    assert_eq!(told, [5, 4, 3, 2, 1].map(numbered));
}

/// Reports a todo list as an agent does: pairs of a text and a status.
pub(crate) fn todos(sandbox: &Sandbox, agent: &str, list: &[(&str, &str)]) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let id = CALLS.fetch_add(1, Ordering::Relaxed).to_string();
    let todos: Value =
        list.iter().map(|(text, status)| json!({ "content": text, "status": status })).collect();
    if agent == "opencode" {
        let properties = json!({ "sessionID": "ses_e1e3fbd9affeL9XYcSFb3uYxBh", "todos": todos });
        let event = json!({ "hook": "event", "directory": sandbox.path("project"),
            "input": { "type": "todo.updated", "properties": properties } });
        hook(sandbox, &["opencode"], event.to_string().as_bytes());
    } else {
        let call = json!({ "tool_name": "TodoWrite", "tool_use_id": id,
            "tool_input": { "todos": todos }, "tool_response": { "newTodos": todos } });
        claude(sandbox, "PostToolUse", &call);
    }
}

/// Steps of the newest plan: path, state and the reason why it was left out.
pub(crate) fn steps(sandbox: &Sandbox) -> Value {
    let plans = sandbox.json(&["plan", "list", "--json"]);
    let id = plans["data"]["plans"][0]["id"].as_str().unwrap().to_owned();
    let shown = sandbox.json(&["plan", "show", &id, "--json"]);
    let steps = shown["data"]["plan"]["steps"].as_array().unwrap();
    steps.iter().map(|step| json!([step["path"], step["state"], step["skipped"]])).collect()
}

#[test]
fn steps_that_an_agent_cancels_or_removes_are_left_out_and_stop_no_later_step() {
    for agent in ["claude", "opencode"] {
        let sandbox = Sandbox::with_checkpoint();
        todos(&sandbox, agent, &[]);
        assert_eq!(sandbox.json(&["plan", "list", "--json"])["data"]["plans"], json!([]), "{agent}");
        todos(&sandbox, agent, &[("one", "in_progress"), ("two", "pending"), ("three", "pending")]);
        let by = |verb: &str| format!("{verb} by {agent}");
        // The running step is cancelled, the next one waits.
        todos(&sandbox, agent, &[("one", "cancelled"), ("two", "blocked"), ("three", "pending")]);
        let pending =
            json!([["one", "done", by("cancelled")], ["two", "pending", null], ["three", "pending", null]]);
        assert_eq!(steps(&sandbox), pending, "{agent}");
        // One is removed, and one added by hand stays.
        let plan = sandbox.json(&["plan", "list", "--json"])["data"]["plans"][0]["id"].clone();
        let plan = plan.as_str().unwrap();
        let added = sandbox.run(&["plan", "step", "add", plan, "mine"]);
        assert!(added.ends_with("--- exit 0\n"), "{added}");
        todos(&sandbox, agent, &[("one", "cancelled"), ("three", "in_progress")]);
        let running = json!([
            ["one", "done", by("cancelled")],
            ["two", "done", by("removed")],
            ["three", "running", null],
            ["mine", "pending", null]
        ]);
        assert_eq!(steps(&sandbox), running, "{agent}");
        todos(&sandbox, agent, &[]);
        let left = steps(&sandbox);
        assert_eq!((&left[2], &left[3]), (&json!(["three", "done", by("removed")]), &running[3]), "{agent}");
    }
}

#[test]
fn the_list_of_a_subagent_removes_no_step() {
    let sandbox = Sandbox::with_checkpoint();
    todos(&sandbox, "claude", &[("one", "pending")]);
    let theirs = json!([{ "content": "theirs", "status": "pending" }]);
    let call = json!({ "tool_name": "TodoWrite", "tool_use_id": "s", "agent_id": "a1", "agent_type": "general",
        "tool_input": { "todos": theirs }, "tool_response": { "newTodos": theirs } });
    claude(&sandbox, "PostToolUse", &call);
    todos(&sandbox, "claude", &[("one", "in_progress")]);
    let both = json!([["one", "running", null], ["theirs", "pending", null]]);
    assert_eq!(steps(&sandbox), both);
}
