//! Rows of the commands about agents.

use super::Effect::{Changes, Searches};
use super::{Row, row};
use crate::args::agent::AgentCommand;

impl AgentCommand {
    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            AgentCommand::Register(args) => {
                row("agent register", Changes, format!("register agent {:?}", args.name))
            }
            AgentCommand::List => row("agent list", Searches, "list agents"),
            AgentCommand::Show(args) => row("agent show", Searches, format!("show agent {:?}", args.name)),
            AgentCommand::Set(args) => {
                row("agent set", Changes, format!("set {:?} of agent {:?}", args.key, args.name))
            }
            AgentCommand::Remove(args) => {
                row("agent remove", Changes, format!("remove agent {:?}", args.name))
            }
        }
    }
}
