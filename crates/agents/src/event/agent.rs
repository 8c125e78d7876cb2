//! Coding agents, and recognition of the agent that calls a hook.
//!
//! Some agents load the settings file of another agent, so the agent named in the installed command is not
//! always the one that runs it. The answer must fit the one that runs it.

use super::json::HookInput;
use std::fmt;
use std::str::FromStr;

/// A coding agent with hooks that Safepoint understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodingAgent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Copilot CLI.
    Copilot,
    /// opencode.
    Opencode,
    /// Cursor.
    Cursor,
}

impl CodingAgent {
    /// All agents, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Opencode, Self::Cursor];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
        }
    }

    /// Returns the environment variable that names the project, if the agent sets one.
    fn project_variable(self) -> Option<&'static str> {
        match self {
            Self::Claude => Some("CLAUDE_PROJECT_DIR"),
            Self::Gemini => Some("GEMINI_PROJECT_DIR"),
            Self::Copilot => Some("COPILOT_PROJECT_DIR"),
            Self::Cursor => Some("CURSOR_PROJECT_DIR"),
            Self::Codex | Self::Opencode => None,
        }
    }
}

impl fmt::Display for CodingAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CodingAgent {
    type Err = UnknownAgent;

    fn from_str(name: &str) -> Result<Self, UnknownAgent> {
        Self::ALL.into_iter().find(|agent| agent.name() == name).ok_or(UnknownAgent)
    }
}

/// Name that is not the name of a coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent; known are claude, codex, gemini, copilot, opencode and cursor")]
pub struct UnknownAgent;

/// Agent that runs the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The agent.
    pub agent: CodingAgent,
    /// Folder that its project variable names.
    pub project: Option<String>,
}

impl Caller {
    /// Recognizes the caller from the agent on the command line, the environment and the input.
    ///
    /// Only the file of Claude Code is loaded by other agents. `CLAUDE_PROJECT_DIR` decides nothing: others
    /// set it too. A variable alone decides nothing either if the input has the shape of another agent,
    /// because a program started by an agent inherits its variables.
    pub fn recognise(
        argument: CodingAgent,
        variable: impl Fn(&str) -> Option<String>,
        input: &HookInput,
    ) -> Self {
        let agent = caller(argument, &variable, input);
        let project = agent.project_variable().and_then(&variable).filter(|path| !path.is_empty());
        Self { agent, project }
    }
}

fn caller(
    argument: CodingAgent,
    variable: &impl Fn(&str) -> Option<String>,
    input: &HookInput,
) -> CodingAgent {
    let Ok(fields) = input.fields() else { return argument };
    if fields.has("cursor_version") {
        return CodingAgent::Cursor;
    }
    if argument != CodingAgent::Claude {
        return argument;
    }
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let session = fields.text(&["session_id"]);
    if session.is_none() && fields.has("sessionId") {
        return CodingAgent::Copilot;
    }
    if session.is_some() && variable("GEMINI_SESSION_ID").as_deref() == session {
        return CodingAgent::Gemini;
    }
    if fields.has("turn_id") && !fields.has("prompt_id") {
        return CodingAgent::Codex;
    }
    let of_claude = is_set("CLAUDECODE") && (fields.has("prompt_id") || fields.has("transcript_path"));
    if is_set("COPILOT_CLI") && !of_claude {
        return CodingAgent::Copilot;
    }
    CodingAgent::Claude
}
