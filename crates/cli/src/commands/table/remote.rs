//! Rows of the commands about remotes.

use super::Effect::{Changes, Reads, Tends};
use super::{Row, row};
use crate::args::remote::RemoteCommand;

impl RemoteCommand {
    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            RemoteCommand::Add(args) => row("remote add", Changes, format!("add remote {:?}", args.name)),
            RemoteCommand::List => row("remote list", Reads, "list remotes"),
            RemoteCommand::Remove(args) => {
                row("remote remove", Changes, format!("remove remote {:?}", args.name))
            }
            RemoteCommand::Status(_) => row("remote status", Reads, "show the status of the remote"),
            RemoteCommand::Init(args) => {
                row("remote init", Tends, format!("set up remote {:?}", args.remote.name))
            }
            RemoteCommand::Migrate(args) => {
                row("remote migrate", Tends, format!("update remote {:?}", args.name))
            }
            RemoteCommand::Upkeep(args) => {
                row("remote upkeep", Tends, format!("tend remote {:?}", args.name))
            }
            RemoteCommand::Rebuild(args) => {
                row("remote rebuild", Tends, format!("rebuild remote {:?}", args.name))
            }
        }
    }
}
