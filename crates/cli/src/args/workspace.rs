//! Rows of the argument table about workspaces.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Commands about registered folders.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List the registered folders.
    #[command(after_help = "Examples:\n  safepoint workspace list\n  safepoint workspace list --json")]
    List,
    /// Record that a folder was moved; its checkpoints follow it.
    #[command(after_help = "Examples:\n  mv ~/old ~/new && safepoint workspace move ~/old ~/new")]
    Move(MoveArgs),
    /// Take a folder off the list; its files and checkpoints stay.
    #[command(after_help = "Examples:\n  safepoint workspace forget ~/finished")]
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// Folder as it is registered.
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// Folder as it is now.
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// Folder as it is registered.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
