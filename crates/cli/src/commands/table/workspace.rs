//! Rows of the commands about workspaces.

use super::Effect::{Changes, Reads};
use super::{Row, row};
use crate::args::workspace::WorkspaceCommand;

impl WorkspaceCommand {
    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            WorkspaceCommand::List => row("workspace list", Reads, "list workspaces"),
            WorkspaceCommand::Move(args) => {
                row("workspace move", Changes, format!("move workspace {:?}", args.old))
            }
            WorkspaceCommand::Forget(args) => {
                row("workspace forget", Changes, format!("forget workspace {:?}", args.folder))
            }
        }
    }
}
