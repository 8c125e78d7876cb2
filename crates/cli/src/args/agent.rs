//! The part of the table that is about agents.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Commands about agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent, or add paths to it; only these paths are captured.
    #[command(
        after_help = "Examples:\n  safepoint agent register claude --config ~/.claude/settings.json --memory ~/.claude/projects\n  safepoint agent register codex --config ~/.codex --workspace ."
    )]
    Register(RegisterArgs),
    /// List registered agents.
    #[command(after_help = "Examples:\n  safepoint agent list\n  safepoint agent list --json")]
    List,
    /// Show the paths and settings of an agent.
    #[command(after_help = "Examples:\n  safepoint agent show claude")]
    Show(NameArgs),
    /// Set a key of an agent; null removes it.
    #[command(
        after_help = "Examples:\n  safepoint agent set claude model '\"large\"'\n  safepoint agent set claude model null"
    )]
    Set(SetArgs),
    /// Remove an agent; its files and checkpoints stay.
    #[command(after_help = "Examples:\n  safepoint agent remove codex")]
    Remove(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Agent.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// Name of the agent.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// File or folder with its configuration; repeatable.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Vec<PathBuf>,
    /// File or folder with its memory; repeatable.
    #[arg(long, value_name = "PATH")]
    pub(crate) memory: Vec<PathBuf>,
    /// Bind it to this workspace, whose checkpoints then capture it.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Agent.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Key.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Value.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: String,
}
