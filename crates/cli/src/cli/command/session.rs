//! The same for the commands about sessions.

use crate::cli::args::session::SessionCommand;
use crate::signals::Stopping;

impl SessionCommand {
    /// The name as it stands in the contract.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            SessionCommand::Create(_) => "session create",
            SessionCommand::Get(_) => "session get",
            SessionCommand::List(_) => "session list",
            SessionCommand::Update(_) => "session update",
            SessionCommand::Transition(_) => "session transition",
            SessionCommand::Delete(_) => "session delete",
            SessionCommand::Export(_) => "session export",
        }
    }

    /// What it tries, for the sentence "cannot ...".
    pub(crate) fn attempt(&self) -> String {
        match self {
            SessionCommand::Create(_) => "record the session".to_owned(),
            SessionCommand::Get(args) => format!("show session {:?}", args.id),
            SessionCommand::List(_) => "list sessions".to_owned(),
            SessionCommand::Update(args) => format!("change session {:?}", args.session.id),
            SessionCommand::Transition(args) => format!("make session {:?} {}", args.session.id, args.status),
            SessionCommand::Delete(args) => format!("delete session {:?}", args.id),
            SessionCommand::Export(args) => format!("export session {:?}", args.session.id),
        }
    }

    /// Whether it changes anything: then a failure says that nothing was changed.
    pub(crate) fn changes_things(&self) -> bool {
        !matches!(self, SessionCommand::Get(_) | SessionCommand::List(_) | SessionCommand::Export(_))
    }

    /// What only looks may end at any moment. A file that is half written is taken away first.
    pub(crate) fn stopping(&self) -> Stopping {
        match self {
            SessionCommand::Get(_) | SessionCommand::List(_) => Stopping::AtOnce,
            _ => Stopping::WhenSafe,
        }
    }
}
