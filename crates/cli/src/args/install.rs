//! Rows of the argument table about the settings of coding agents.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Agents: claude, codex, gemini, copilot, opencode, cursor, or all.
    #[arg(value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// Install for every agent found on this machine.
    #[arg(long, conflicts_with_all = ["agents", "print"])]
    pub(crate) detect: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Show the changes, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write a plugin folder for Claude Code to a new folder, or print lines for AGENTS.md.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["dry_run", "user", "project"])]
    pub(crate) print: Option<Printed>,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Agents: claude, codex, gemini, copilot, opencode, cursor, or all.
    #[arg(value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Show the changes, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Scope of the settings.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Settings of the user, for all projects [default].
    #[arg(long, conflicts_with = "project")]
    pub(crate) user: bool,
    /// Settings of this project, for everyone who has it.
    #[arg(long)]
    pub(crate) project: bool,
}

/// Text to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Printed {
    /// Plugin folder with hooks, MCP server and a /safepoint command.
    ClaudePlugin,
    /// Lines about checkpoints for AGENTS.md.
    AgentsMd,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check only these agents: claude, codex, gemini, copilot, opencode, cursor, or all.
    #[arg(value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
}
