//! Texts of `install --print`: a plugin folder for Claude Code, and lines for `AGENTS.md`.

use super::entries::{events, group};
use super::node::{Node, Style};
use super::{Folders, InstallScope};
use crate::CodingAgent;

const SLASH_COMMAND: &str = include_str!("slash-command.md");

/// Lines for `AGENTS.md`: they tell an agent how to undo its steps.
#[must_use]
pub fn agents_md() -> &'static str {
    include_str!("agents-md.md")
}

/// Files of a plugin for Claude Code, each with its path in the plugin's folder.
#[must_use]
pub fn claude_plugin(folders: &Folders, version: &str) -> Vec<(&'static str, String)> {
    let style = Style { unit: "  ".to_owned(), newline: "\n" };
    let manifest = Node::map([
        ("name", Node::text("safepoint")),
        ("version", Node::text(version)),
        ("description", Node::text("Checkpoints of every turn, and exact rollback")),
    ]);
    let hooks = events(CodingAgent::Claude).iter().map(|event| {
        let group = group(folders, InstallScope::Project, CodingAgent::Claude, event);
        ((*event).to_owned(), Node::List(vec![group]))
    });
    let hooks = Node::map([("hooks", Node::Map(hooks.collect()))]);
    let server =
        Node::map([("command", Node::text("safepoint")), ("args", Node::List(vec![Node::text("mcp")]))]);
    let servers = Node::map([("mcpServers", Node::map([("safepoint", server)]))]);
    let text = |node: &Node| node.pretty(&style, "") + "\n";
    vec![
        (".claude-plugin/plugin.json", text(&manifest)),
        ("hooks/hooks.json", text(&hooks)),
        (".mcp.json", text(&servers)),
        ("commands/safepoint.md", SLASH_COMMAND.to_owned()),
    ]
}
