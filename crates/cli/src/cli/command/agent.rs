//! The same for the commands about agents.

use crate::cli::args::agent::AgentCommand;

impl AgentCommand {
    /// The name as it stands in the contract.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            AgentCommand::Register(_) => "agent register",
            AgentCommand::List => "agent list",
            AgentCommand::Show(_) => "agent show",
            AgentCommand::Set(_) => "agent set",
            AgentCommand::Remove(_) => "agent remove",
        }
    }

    /// What it tries, for the sentence "cannot ...".
    pub(crate) fn attempt(&self) -> String {
        match self {
            AgentCommand::Register(args) => format!("register agent {:?}", args.name),
            AgentCommand::List => "list agents".to_owned(),
            AgentCommand::Show(args) => format!("show agent {:?}", args.name),
            AgentCommand::Set(args) => format!("set {:?} of agent {:?}", args.key, args.name),
            AgentCommand::Remove(args) => format!("remove agent {:?}", args.name),
        }
    }

    /// Whether it changes anything.
    pub(crate) fn changes_things(&self) -> bool {
        !matches!(self, AgentCommand::List | AgentCommand::Show(_))
    }
}
