//! Rows of the commands about attempts.

use super::Effect::{Changes, Reads, Searches};
use super::{Row, row};
use crate::args::attempt::AttemptCommand;

impl AttemptCommand {
    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            AttemptCommand::Start(_) => row("attempt start", Changes, "start an attempt"),
            AttemptCommand::Exec(args) => {
                row("attempt exec", Changes, format!("run a command in attempt {:?}", args.name))
            }
            AttemptCommand::List(_) => row("attempt list", Searches, "list attempts"),
            AttemptCommand::Show(args) => row("attempt show", Reads, format!("show attempt {:?}", args.name)),
            AttemptCommand::Diff(args) => {
                row("attempt diff", Searches, format!("compare attempt {:?}", args.old))
            }
            AttemptCommand::Compare(_) => row("attempt compare", Searches, "compare attempts"),
            AttemptCommand::Keep(args) => {
                row("attempt keep", Changes, format!("keep attempt {:?}", args.name))
            }
            AttemptCommand::Drop(_) => row("attempt drop", Changes, "drop attempts"),
        }
    }
}
