//! The coding agents that Safepoint knows, by name.

use std::fmt;
use std::str::FromStr;

/// Coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// GitHub Copilot CLI.
    Copilot,
    /// opencode.
    Opencode,
    /// Cursor.
    Cursor,
}

impl Agent {
    /// All agents.
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Opencode, Self::Cursor];

    /// Name on the command line and in records.
    #[must_use]
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
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Agent {
    type Err = UnknownAgent;

    fn from_str(name: &str) -> Result<Self, UnknownAgent> {
        Self::ALL.into_iter().find(|agent| agent.name() == name).ok_or(UnknownAgent)
    }
}

/// Name that is not an agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent; the agents are claude, codex, gemini, copilot, opencode and cursor")]
pub struct UnknownAgent;
