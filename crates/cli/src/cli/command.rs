//! What is known about a command before it runs: its name, what it tries, whether it changes anything, how it stops.

mod agent;
mod plan;
mod session;

use crate::cli::args::{Command, ListArgs, OutputForm};
use crate::cli::output::Stage;
use crate::signals::Stopping;
use safepoint::Access;

impl Command {
    /// The name as it stands in the contract.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Init(_) => "init",
            Command::Create(_) => "create",
            Command::List(_) => "list",
            Command::Show(_) => "show",
            Command::Cat(_) => "cat",
            Command::Diff(_) => "diff",
            Command::Rollback(_) => "rollback",
            Command::Run(_) => "run",
            Command::Plan(command) => command.name(),
            Command::Session(command) => command.name(),
            Command::Agent(command) => command.name(),
            Command::Emergency(_) => "emergency",
            Command::Undo(_) => "undo",
            Command::Redo(_) => "redo",
            Command::Delete(_) => "delete",
            Command::Pin(_) => "pin",
            Command::Unpin(_) => "unpin",
            Command::Prune(_) => "prune",
            Command::Gc(_) => "gc",
            Command::Usage => "usage",
            Command::Purge(_) => "purge",
            Command::Repair => "repair",
            Command::Export(_) => "export",
            Command::Import(_) => "import",
            Command::Validate(_) => "validate",
            Command::Summary(_) => "summary",
            Command::Status => "status",
            Command::Recover(_) => "recover",
            Command::Doctor => "doctor",
            Command::Demo(_) => "demo",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
            Command::Version => "version",
        }
    }

    /// What it tries, for the sentence "cannot ...".
    pub(crate) fn attempt(&self) -> String {
        let on = |verb: &str, which: Option<&str>| format!("{verb} {:?}", which.unwrap_or("@"));
        match self {
            Command::Init(_) => "register the folder".to_owned(),
            Command::Create(_) => "take a checkpoint".to_owned(),
            Command::List(_) => "list checkpoints".to_owned(),
            Command::Show(args) => match args.which.given() {
                Some(id) => on("show checkpoint", Some(id)),
                None => "show a checkpoint".to_owned(),
            },
            Command::Cat(args) => format!("write out {:?}", args.path),
            Command::Diff(args) => on("compare with checkpoint", args.old.as_deref()),
            Command::Rollback(args) => match args.which.given() {
                Some(id) => on("roll back to checkpoint", Some(id)),
                None => "roll back".to_owned(),
            },
            Command::Run(_) => "run the command".to_owned(),
            Command::Plan(command) => command.attempt(),
            Command::Session(command) => command.attempt(),
            Command::Agent(command) => command.attempt(),
            Command::Emergency(_) => "take an emergency checkpoint".to_owned(),
            Command::Undo(_) => "undo".to_owned(),
            Command::Redo(_) => "redo".to_owned(),
            Command::Delete(_) => "delete".to_owned(),
            Command::Pin(args) => on("pin checkpoint", Some(&args.id)),
            Command::Unpin(args) => on("unpin checkpoint", Some(&args.id)),
            Command::Prune(_) => "prune".to_owned(),
            Command::Gc(_) => "free space".to_owned(),
            Command::Usage => "tell where the space is".to_owned(),
            Command::Purge(_) => "purge".to_owned(),
            Command::Repair => "repair".to_owned(),
            Command::Export(args) => on("export checkpoint", Some(&args.id)),
            Command::Import(args) => format!("import {:?}", args.folder),
            Command::Validate(args) => match &args.id {
                Some(id) => on("validate checkpoint", Some(id)),
                None => "validate the store".to_owned(),
            },
            Command::Summary(_) => "count checkpoints".to_owned(),
            Command::Status => "tell the status".to_owned(),
            Command::Recover(_) => "recover".to_owned(),
            Command::Doctor => "look everything over".to_owned(),
            Command::Demo(_) => "show the demo".to_owned(),
            Command::Completions(_) => "print completions".to_owned(),
            Command::Man(_) => "write the man pages".to_owned(),
            Command::Version => "print the version".to_owned(),
        }
    }

    /// What it does in the home: what only looks works in one that cannot be written, too.
    pub(crate) fn access(&self) -> Access {
        let looks = match self {
            Command::Plan(command) => !command.changes_things(),
            Command::Agent(command) => !command.changes_things(),
            Command::Session(command) => !command.changes_things(),
            Command::Rollback(args) => args.to.is_some(),
            Command::List(_)
            | Command::Show(_)
            | Command::Cat(_)
            | Command::Diff(_)
            | Command::Usage
            | Command::Export(_)
            | Command::Validate(_)
            | Command::Summary(_)
            | Command::Status
            | Command::Doctor => true,
            _ => false,
        };
        if looks { Access::Read } else { Access::Write }
    }

    /// Whether it changes anything: then a failure says that nothing was changed.
    pub(crate) fn changes_things(&self) -> bool {
        match self {
            Command::Plan(command) => return command.changes_things(),
            Command::Agent(command) => return command.changes_things(),
            Command::Session(command) => return command.changes_things(),
            // Elsewhere, and nothing that is there.
            Command::Rollback(args) if args.to.is_some() => return false,
            _ => {}
        }
        matches!(
            self,
            Command::Init(_)
                | Command::Create(_)
                | Command::Emergency(_)
                | Command::Rollback(_)
                | Command::Run(_)
                | Command::Undo(_)
                | Command::Redo(_)
                | Command::Recover(_)
                | Command::Delete(_)
                | Command::Pin(_)
                | Command::Unpin(_)
                | Command::Prune(_)
                | Command::Purge(_)
                | Command::Export(_)
                | Command::Import(_)
        )
    }

    /// Whether the answer is to be JSON because the command itself says so.
    pub(crate) fn asks_for_json(&self) -> bool {
        matches!(self, Command::List(ListArgs { output: Some(OutputForm::Json), .. }))
    }

    /// Whose standard output is.
    pub(crate) fn stage(&self) -> Stage {
        if matches!(self, Command::Run(_)) { Stage::Lent } else { Stage::Ours }
    }

    /// What only looks may end at any moment; what changes things ends where nothing is half done.
    pub(crate) fn stopping(&self) -> Stopping {
        match self {
            Command::Plan(command) => command.stopping(),
            Command::Session(command) => command.stopping(),
            Command::List(_)
            | Command::Show(_)
            | Command::Cat(_)
            | Command::Validate(_)
            | Command::Summary(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Version => Stopping::AtOnce,
            _ => Stopping::WhenSafe,
        }
    }
}
