//! The part of the table that is about agents.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent, or add paths to one. Only these paths are ever captured or put back.
    #[command(
        after_help = "Examples:\n  safepoint agent register claude --config ~/.claude/settings.json --memory ~/.claude/projects\n  safepoint agent register codex --config ~/.codex --workspace ."
    )]
    Register(RegisterArgs),
    /// List the agents that are registered.
    #[command(after_help = "Examples:\n  safepoint agent list\n  safepoint agent list --json")]
    List,
    /// Show an agent: its paths and what was set.
    #[command(after_help = "Examples:\n  safepoint agent show claude")]
    Show(NameArgs),
    /// Set what an agent has under a key; null takes it away.
    #[command(
        after_help = "Examples:\n  safepoint agent set claude model '\"large\"'\n  safepoint agent set claude model null"
    )]
    Set(SetArgs),
    /// Take an agent off the list. Its files and its checkpoints stay.
    #[command(after_help = "Examples:\n  safepoint agent remove codex")]
    Remove(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The agent.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// What it is called.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A file or folder with its configuration. Can be given again.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Vec<PathBuf>,
    /// A file or folder with its memory. Can be given again.
    #[arg(long, value_name = "PATH")]
    pub(crate) memory: Vec<PathBuf>,
    /// Bind it to the workspace in this folder: checkpoints of the workspace hold it.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The agent.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The value.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: String,
}
