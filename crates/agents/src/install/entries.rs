//! Entries of each agent: files, events, commands, timeouts and the MCP server.

use super::json::Entry;
use super::node::Node;
use super::{Folders, InstallScope};
use crate::CodingAgent;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Timeout of a hook.
const TIMEOUT_SECONDS: u64 = 30;
/// Timeout of Codex's hooks for the end of a session and for an interrupt; Codex allows no more.
const SHORT_SECONDS: u64 = 3;
/// Tools that change nothing.
const CHANGING: &str = "^(?!(Read|Grep|Glob)$)";
/// End of every hook command: it identifies the commands of Safepoint.
const TAIL: &str = ") || out='{}'; printf %s \"$out\"";
/// First line of every plugin of Safepoint.
const PLUGIN_MARK: &str = "// Written by `safepoint install`. `safepoint uninstall opencode` removes it.";

/// File to edit.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

/// Content of ours in a file.
#[derive(Debug)]
pub(super) enum Content {
    /// Entries in a JSON file. The text is that of a new file without them.
    Json(&'static str, Vec<Entry>),
    /// The MCP server in Codex's `config.toml`, with its program.
    Toml(String),
    /// A file of ours.
    Plugin(String),
}

/// Returns the program as hooks and MCP servers name it: with its path, or as found on the PATH of each user of the project.
fn program(folders: &Folders, place: InstallScope) -> String {
    match place {
        InstallScope::User => folders.program.to_string_lossy().into_owned(),
        InstallScope::Project => "safepoint".to_owned(),
    }
}

/// Quotes a word for the shell.
fn shell_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Command of a hook. It prints one JSON object and ends with 0, even if Safepoint dies.
pub(super) fn command(
    folders: &Folders,
    place: InstallScope,
    agent: CodingAgent,
    event: Option<&str>,
) -> String {
    let event = event.map(|event| format!(" {event}")).unwrap_or_default();
    match place {
        InstallScope::User => {
            let program = shell_word(&folders.program.to_string_lossy());
            format!("out=$({program} hook {agent}{event}{TAIL}")
        }
        InstallScope::Project => {
            // Cursor denies a call whose hook prints no JSON. It also runs the hooks in Claude's file.
            let absent = "{ printf '{}'; exit 0; }";
            format!("command -v safepoint >/dev/null || {absent}; out=$(safepoint hook {agent}{event}{TAIL}")
        }
    }
}

fn is_command(text: &str) -> bool {
    text.contains("safepoint") && text.contains(" hook ") && text.ends_with(TAIL)
}

/// Returns true for a hook, a group of hooks or a server that `install` made.
pub(super) fn is_ours(value: &Value) -> bool {
    if let Some(hooks) = value.get("hooks").and_then(Value::as_array) {
        return !hooks.is_empty() && hooks.iter().all(is_ours);
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    if text("bash").or(text("command")).is_some_and(is_command) {
        return true;
    }
    let is_program = |text: &str| text.rsplit('/').next().is_some_and(|name| name.starts_with("safepoint"));
    let words = |key: &str| -> Vec<&str> {
        value.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    match words("command").as_slice() {
        [program, "mcp"] => is_program(program),
        _ => text("command").is_some_and(is_program) && words("args") == ["mcp"],
    }
}

/// Returns true for a plugin that `install` made.
pub(super) fn is_our_plugin(text: &str) -> bool {
    text.starts_with(PLUGIN_MARK)
}

/// Events of an agent, in the order of its file.
pub(super) fn events(agent: CodingAgent) -> &'static [&'static str] {
    match agent {
        CodingAgent::Claude => &[
            "SessionStart",
            "SessionEnd",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "Stop",
            "StopFailure",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
        ],
        CodingAgent::Codex => &[
            "SessionStart",
            "SessionEnd",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
            "Interrupt",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
        ],
        // PreCompress is absent: Gemini fires it before every request.
        CodingAgent::Gemini => {
            &["SessionStart", "SessionEnd", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"]
        }
        CodingAgent::Copilot => &[
            "sessionStart",
            "sessionEnd",
            "userPromptSubmitted",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "agentStop",
            "subagentStart",
            "subagentStop",
            "preCompact",
        ],
        CodingAgent::Cursor => &[
            "sessionStart",
            "sessionEnd",
            "beforeSubmitPrompt",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "stop",
            "subagentStart",
            "subagentStop",
            "preCompact",
        ],
        CodingAgent::Opencode => &[],
    }
}

/// Group of hooks for an event, as an element of the event's list.
pub(super) fn group(folders: &Folders, place: InstallScope, agent: CodingAgent, event: &'static str) -> Node {
    let named = (agent == CodingAgent::Copilot).then_some(event);
    let command = Node::text(command(folders, place, agent, named));
    let seconds = match (agent, event) {
        (CodingAgent::Codex, "SessionEnd" | "Interrupt") => SHORT_SECONDS,
        _ => TIMEOUT_SECONDS,
    };
    let kind = ("type", Node::text("command"));
    match agent {
        CodingAgent::Copilot => Node::map([kind, ("bash", command), ("timeoutSec", Node::Number(seconds))]),
        CodingAgent::Cursor => Node::map([("command", command), ("timeout", Node::Number(seconds))]),
        _ => {
            let timeout = if agent == CodingAgent::Gemini { seconds * 1000 } else { seconds };
            let hooks =
                Node::List(vec![Node::map([kind, ("command", command), ("timeout", Node::Number(timeout))])]);
            match (agent, event) {
                (CodingAgent::Claude, "PreToolUse" | "PostToolUse" | "PostToolUseFailure") => {
                    Node::map([("matcher", Node::text(CHANGING)), ("hooks", hooks)])
                }
                _ => Node::map([("hooks", hooks)]),
            }
        }
    }
}

fn hooks(folders: &Folders, place: InstallScope, agent: CodingAgent) -> Vec<Entry> {
    let entry = |event: &&'static str| Entry {
        path: vec!["hooks", *event],
        key: None,
        value: group(folders, place, agent, event),
    };
    events(agent).iter().map(entry).collect()
}

fn server(folders: &Folders, place: InstallScope, agent: CodingAgent) -> Entry {
    let program = Node::text(program(folders, place));
    let args = ("args", Node::List(vec![Node::text("mcp")]));
    let value = match agent {
        CodingAgent::Claude => Node::map([("type", Node::text("stdio")), ("command", program), args]),
        CodingAgent::Copilot => Node::map([
            ("type", Node::text("local")),
            ("command", program),
            args,
            ("tools", Node::List(vec![Node::text("*")])),
        ]),
        CodingAgent::Opencode => Node::map([
            ("type", Node::text("local")),
            ("command", Node::List(vec![program, Node::text("mcp")])),
            ("enabled", Node::True),
        ]),
        _ => Node::map([("command", program), args]),
    };
    let path = if agent == CodingAgent::Opencode { "mcp" } else { "mcpServers" };
    Entry { path: vec![path], key: Some("safepoint"), value }
}

const EMPTY: &str = "{}\n";
const VERSIONED: &str = "{\n  \"version\": 1\n}\n";
const OPENCODE: &str = "{\n  \"$schema\": \"https://opencode.ai/config.json\"\n}\n";

/// Files of an agent, with what `install` adds to them.
pub(super) fn targets(folders: &Folders, place: InstallScope, agent: CodingAgent) -> Vec<Target> {
    let base = folders.of(agent, place);
    let hooks = || hooks(folders, place, agent);
    let server = || vec![server(folders, place, agent)];
    let json = |path: PathBuf, new: &'static str, entries: Vec<Entry>| Target {
        path,
        content: Content::Json(new, entries),
    };
    let project = place == InstallScope::Project;
    match agent {
        CodingAgent::Claude => {
            let servers = if project { folders.project.join(".mcp.json") } else { folders.claude_json() };
            vec![json(base.join("settings.json"), EMPTY, hooks()), json(servers, EMPTY, server())]
        }
        CodingAgent::Codex => vec![
            json(base.join("hooks.json"), EMPTY, hooks()),
            Target { path: base.join("config.toml"), content: Content::Toml(program(folders, place)) },
        ],
        CodingAgent::Gemini => {
            let entries = hooks().into_iter().chain(server()).collect();
            vec![json(base.join("settings.json"), EMPTY, entries)]
        }
        CodingAgent::Copilot => {
            let servers = if project { "mcp.json" } else { "mcp-config.json" };
            vec![
                json(base.join("hooks/safepoint.json"), VERSIONED, hooks()),
                json(base.join(servers), EMPTY, server()),
            ]
        }
        CodingAgent::Opencode => vec![
            Target {
                path: base.join("plugins/safepoint.js"),
                content: Content::Plugin(plugin(&program(folders, place))),
            },
            json(opencode_settings(folders, &base, place), OPENCODE, server()),
        ],
        CodingAgent::Cursor => vec![
            json(base.join("hooks.json"), VERSIONED, hooks()),
            json(base.join("mcp.json"), EMPTY, server()),
        ],
    }
}

/// The settings file that opencode itself would edit.
fn opencode_settings(folders: &Folders, base: &Path, place: InstallScope) -> PathBuf {
    let candidates = match place {
        InstallScope::User => {
            ["opencode.jsonc", "opencode.json", "config.json"].map(|name| base.join(name)).to_vec()
        }
        InstallScope::Project => {
            let root = &folders.project;
            let names = ["opencode.json", "opencode.jsonc"];
            names.iter().map(|name| root.join(name)).chain(names.iter().map(|name| base.join(name))).collect()
        }
    };
    let new = match place {
        InstallScope::User => base.join("opencode.json"),
        InstallScope::Project => folders.project.join("opencode.json"),
    };
    candidates.into_iter().find(|path| path.exists()).unwrap_or(new)
}

/// Plugin for opencode.
fn plugin(program: &str) -> String {
    let program = super::node::quoted(program);
    format!("{PLUGIN_MARK}\n{}", include_str!("plugin.js").replace("\"safepoint\"", &program))
}
