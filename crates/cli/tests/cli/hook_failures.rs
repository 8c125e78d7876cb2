//! `hook` where Safepoint fails: every agent gets its answer, and the call goes on unless the user chose otherwise.

use crate::hooks::run_hook;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const AGENTS: [&str; 6] = ["claude", "codex", "gemini", "copilot", "opencode", "cursor"];

/// Moment of a hook.
#[derive(Clone, Copy)]
enum At {
    Start,
    Prompt,
    Tool,
}

/// Arguments and input of a hook in the words of this agent; its tool is a shell command.
fn event(agent: &str, at: At, project: &Path, id: &str) -> (Vec<String>, Vec<u8>) {
    let session = "57858edd-f386-4b85-b6ba-76f742d12643";
    let (child, make) = ("ses_e1e3fbd9affeL9XYcSFb3uYxBh", json!({ "command": "make" }));
    let names = match agent {
        "claude" | "codex" => ["SessionStart", "UserPromptSubmit", "PreToolUse"],
        "gemini" => ["SessionStart", "BeforeAgent", "BeforeTool"],
        "copilot" => ["sessionStart", "userPromptSubmitted", "preToolUse"],
        "opencode" => ["event", "chat.message", "tool.execute.before"],
        _ => ["sessionStart", "beforeSubmitPrompt", "preToolUse"],
    };
    let name = names[at as usize];
    let mut input = match agent {
        "copilot" => json!({ "sessionId": session, "cwd": project, "timestamp": id, "prompt": id,
            "toolName": "bash", "toolArgs": make.to_string() }),
        "opencode" => json!({ "hook": name, "directory": project, "worktree": project,
            "input": { "type": "session.created", "tool": "bash", "sessionID": child, "callID": id },
            "output": { "args": make, "parts": [{ "type": "text", "text": id }] } }),
        "cursor" => {
            json!({ "conversation_id": session, "cursor_version": "3.0", "workspace_roots": [project] })
        }
        _ => json!({ "session_id": session }),
    };
    if !matches!(agent, "copilot" | "opencode") {
        let more = json!({ "cwd": project, "hook_event_name": name, "timestamp": id, "prompt": id,
            "tool_name": if agent == "gemini" { "run_shell_command" } else { "Bash" }, "tool_use_id": id,
            "tool_input": make });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    let named = (agent == "copilot").then(|| name.to_owned());
    let words = ["hook".to_owned(), agent.to_owned()].into_iter().chain(named).collect();
    (words, input.to_string().into_bytes())
}

/// Answer to a hook. `id` tells one event from another.
fn answer_at(sandbox: &Sandbox, agent: &str, at: At, id: &str, variable: Option<(&str, &str)>) -> Value {
    let (words, input) = event(agent, at, &sandbox.path("project"), id);
    let mut command = sandbox.command(&words);
    command.envs(variable);
    run_hook(command, &input)
}

/// Answer to the hook before a tool.
fn answer(sandbox: &Sandbox, agent: &str, id: &str, variable: Option<(&str, &str)>) -> Value {
    answer_at(sandbox, agent, At::Tool, id, variable)
}

/// Asserts that the answer reports missing coverage where the agent has a place for it, and holds nothing else.
fn assert_told(agent: &str, at: At, answer: &Value) {
    let key = match (agent, at) {
        ("claude" | "codex" | "gemini", _) => "systemMessage",
        ("cursor", At::Prompt) => "user_message",
        ("copilot", At::Prompt) => "additionalContext",
        ("opencode", _) => "message",
        _ => return assert_eq!(answer, &json!({}), "{agent}"),
    };
    assert!(answer[key].as_str().unwrap_or_default().contains("not covered"), "{agent}: {answer}");
    assert_eq!(answer.as_object().unwrap().len(), 1, "{agent}: {answer}");
}

/// Asserts that the answer denies the call in the words of the agent, and holds nothing else.
fn assert_denied(agent: &str, answer: &Value) {
    let specific = &answer["hookSpecificOutput"];
    let reason = match agent {
        "claude" | "codex" => &specific["permissionDecisionReason"],
        "gemini" => &answer["reason"],
        "copilot" => &answer["permissionDecisionReason"],
        "opencode" => &answer["deny"],
        _ => &answer["user_message"],
    };
    assert!(reason.as_str().unwrap_or_default().contains("fail_closed"), "{agent}: {answer}");
    let whole = match agent {
        "claude" | "codex" => json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse",
            "permissionDecision": "deny", "permissionDecisionReason": reason } }),
        "gemini" => json!({ "decision": "deny", "reason": reason }),
        "copilot" => json!({ "permissionDecision": "deny", "permissionDecisionReason": reason }),
        "opencode" => json!({ "deny": reason }),
        _ => json!({ "permission": "deny", "user_message": reason }),
    };
    assert_eq!(answer, &whole, "{agent}");
}

fn fail_closed(sandbox: &Sandbox) {
    fs::write(sandbox.path("home/config.toml"), "[agents]\nfail_closed = true\n").unwrap();
}

#[test]
fn with_fail_closed_every_agent_denies_a_call_that_cannot_be_covered() {
    for agent in AGENTS {
        let sandbox = Sandbox::with_checkpoint();
        fail_closed(&sandbox);
        sandbox.write("notes.txt", agent);
        assert_denied(agent, &answer(&sandbox, agent, "late", Some(("SAFEPOINT_TEST_HOOK_MS", "0"))));
        assert_eq!(answer(&sandbox, agent, "fine", None), json!({}), "{agent}: a covered call goes on");
    }
}

#[test]
fn a_panic_is_answered_reported_once_and_denies_only_with_fail_closed() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: a panic in a hook: it can be caused in a debug build only");
    }
    let panic = Some(("SAFEPOINT_TEST_HOOK_PANIC", "1"));
    for agent in AGENTS {
        let sandbox = Sandbox::with_checkpoint();
        sandbox.write("notes.txt", agent);
        assert_told(agent, At::Tool, &answer(&sandbox, agent, "1", panic));
        assert_eq!(answer(&sandbox, agent, "2", panic), json!({}), "{agent}: reported once");
        let turn = &sandbox.json(&["list", "--turns", "--json"])["data"]["turns"][0];
        assert_eq!(turn["uncovered"], json!(["an internal error"]), "{agent}: {turn}");
        fail_closed(&sandbox);
        assert_denied(agent, &answer(&sandbox, agent, "3", panic));
        assert_eq!(answer(&sandbox, agent, "4", None), json!({}), "{agent}: the next call is covered");
        let listed = sandbox.json(&["list", "--json"]);
        assert_eq!(listed["data"]["checkpoints"].as_array().unwrap().len(), 2, "{agent}: {listed}");
    }
}

/// Small home on a file system of its own, mounted until drop.
struct SmallHome<'s>(&'s Sandbox);

impl<'s> SmallHome<'s> {
    fn mount(sandbox: &'s Sandbox) -> Option<Self> {
        fs::create_dir(sandbox.path("home")).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(sandbox.path("home")).output().ok()?;
        mounted.status.success().then_some(Self(sandbox))
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.path("home/filler")).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }
}

impl Drop for SmallHome<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path("home")).status();
    }
}

#[test]
fn a_full_disk_is_answered_and_denies_only_with_fail_closed() {
    for agent in AGENTS {
        let sandbox = Sandbox::new();
        let Some(home) = SmallHome::mount(&sandbox) else {
            return eprintln!("skipped: a hook on a full disk: it takes the right to mount");
        };
        sandbox.write("notes.txt", "good\n");
        let made = sandbox.run(&["create", "-m", "first"]);
        assert!(made.ends_with("--- exit 0\n"), "{made}");
        home.fill();
        sandbox.write("large.bin", (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        for at in [At::Start, At::Prompt] {
            assert_told(agent, at, &answer_at(&sandbox, agent, at, "go on", None));
        }
        assert_eq!(answer(&sandbox, agent, "1", None), json!({}), "{agent}: the call goes on");
        fs::remove_file(sandbox.path("home/filler")).unwrap();
        fail_closed(&sandbox);
        home.fill();
        assert_denied(agent, &answer(&sandbox, agent, "2", None));
        fs::remove_file(sandbox.path("home/filler")).unwrap();
        assert_eq!(answer(&sandbox, agent, "3", None), json!({}), "{agent}: space is back");
        let status = sandbox.json(&["status", "--json"]);
        assert_eq!(status["data"]["verdict"], "covered", "{agent}: {status}");
    }
}
