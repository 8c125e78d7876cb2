//! Rows of the commands about sessions.

use super::Effect::{Changes, Reads, Searches};
use super::{Row, row};
use crate::args::session::SessionCommand;

impl SessionCommand {
    /// Id of the session, as typed.
    pub(super) fn session(&self) -> Option<&str> {
        match self {
            SessionCommand::Create(_) | SessionCommand::List(_) => None,
            SessionCommand::Get(args) | SessionCommand::Delete(args) => Some(&args.id),
            SessionCommand::Update(args) => Some(&args.session.id),
            SessionCommand::Transition(args) => Some(&args.session.id),
            SessionCommand::Export(args) => Some(&args.session.id),
        }
    }

    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            SessionCommand::Create(_) => row("session create", Changes, "record the session"),
            SessionCommand::Get(args) => row("session get", Reads, format!("show session {:?}", args.id)),
            SessionCommand::List(_) => row("session list", Reads, "list sessions"),
            SessionCommand::Update(args) => {
                row("session update", Changes, format!("change session {:?}", args.session.id))
            }
            SessionCommand::Transition(args) => row(
                "session transition",
                Changes,
                format!("make session {:?} {}", args.session.id, args.status),
            ),
            SessionCommand::Delete(args) => {
                row("session delete", Changes, format!("delete session {:?}", args.id))
            }
            SessionCommand::Export(args) => {
                row("session export", Searches, format!("export session {:?}", args.session.id))
            }
        }
    }
}
