//! Table of the commands: one row each, with the facts that are needed before the command runs.

mod agent;
mod attempt;
mod plan;
mod remote;
mod session;
mod workspace;

use crate::args::attempt::AttemptCommand;
use crate::args::plan::PlanCommand;
use crate::args::{Command, ListArgs, McpArgs, OutputForm, RollbackArgs};
use crate::render::output::Stage;
use crate::signals::Stopping;
use Effect::{Changes, Exports, Prints, Reads, Searches, Tends};
use safepoint::Access;

/// Commands by task, as the help and the reference show them.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Take checkpoints", &["create", "run", "emergency", "init"]),
    ("Look", &["status", "list", "show", "cat", "diff", "history", "summary", "ui"]),
    ("Roll back", &["rollback", "undo", "redo"]),
    ("Attempts", &["try", "attempt", "metric"]),
    ("Plans and sessions", &["plan", "session"]),
    ("Agents", &["install", "uninstall", "hook", "mcp", "agent"]),
    ("Retention and disk space", &["pin", "unpin", "delete", "prune", "gc", "usage", "purge"]),
    ("Check and repair", &["validate", "repair", "recover", "doctor"]),
    ("Folders and copies", &["workspace", "export", "import"]),
    ("Other machines", &["remote", "push", "sync", "pull", "fetch", "clone"]),
    ("Help", &["demo", "completions", "man", "version"]),
];

/// Facts about a command.
pub(crate) struct Row {
    /// Name in the JSON contract.
    pub(crate) name: &'static str,
    /// Verb phrase for the sentence "cannot ...".
    pub(crate) attempt: String,
    effect: Effect,
}

/// Effect of a command on the home and on files. It decides how the home is opened, how Ctrl-C ends the command, and whether a
/// failure reports that nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Reads the home, and may end at any moment.
    Reads,
    /// Reads the home; temporary files are removed before it ends.
    Searches,
    /// Prints text that is built in.
    Prints,
    /// Writes files outside of the home, which it only reads.
    Exports,
    /// Maintains the home; no user data changes.
    Tends,
    /// Changes checkpoints, plans or files.
    Changes,
    /// Changes them after it has read standard input, which may never end.
    ReadsInput,
}

fn row(name: &'static str, effect: Effect, attempt: impl Into<String>) -> Row {
    Row { name, attempt: attempt.into(), effect }
}

/// Phrase for a command that names a checkpoint, or not.
fn on(verb: &str, otherwise: &str, checkpoint: Option<&str>) -> String {
    checkpoint.map_or_else(|| otherwise.to_owned(), |id| format!("{verb} checkpoint {id:?}"))
}

fn rollback(args: &RollbackArgs) -> String {
    on("roll back to", "roll back", args.typed().as_deref())
}

impl Row {
    /// Access to the home. A command that only reads also works on a read-only home.
    pub(crate) fn access(&self) -> Access {
        match self.effect {
            Reads | Searches | Exports => Access::Read,
            Prints | Tends | Changes | Effect::ReadsInput => Access::Write,
        }
    }

    /// Returns true if a failure must report that nothing was changed.
    pub(crate) fn changes_things(&self) -> bool {
        matches!(self.effect, Exports | Changes | Effect::ReadsInput)
    }

    /// Reaction to a signal.
    pub(crate) fn stopping(&self) -> Stopping {
        match self.effect {
            Reads | Prints | Effect::ReadsInput => Stopping::AtOnce,
            Searches | Exports | Tends | Changes => Stopping::WhenSafe,
        }
    }
}

impl Command {
    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            Command::Init(_) => row("init", Changes, "register the folder"),
            Command::Create(_) => row("create", Changes, "take a checkpoint"),
            Command::List(_) => row("list", Reads, "list checkpoints"),
            Command::Show(args) => row("show", Reads, on("show", "show a checkpoint", args.which.given())),
            Command::Cat(args) => row("cat", Reads, format!("write out {:?}", args.path)),
            Command::Diff(args) => {
                row("diff", Searches, on("compare with", "compare with the position", args.old.as_deref()))
            }
            // Writes to a folder that did not exist before.
            Command::Rollback(args) if args.to.is_some() => row("rollback", Searches, rollback(args)),
            Command::Rollback(args) => row("rollback", Changes, rollback(args)),
            Command::Run(_) => row("run", Changes, "run the command"),
            Command::Try(_) => row("try", Changes, "run the command in an attempt"),
            Command::Attempt(command) => command.row(),
            Command::Metric(_) => row("metric", Changes, "note metrics"),
            Command::Plan(command) => command.row(),
            Command::Session(command) => command.row(),
            Command::Agent(command) => command.row(),
            Command::Install(_) => row("install", Changes, "install"),
            Command::Uninstall(_) => row("uninstall", Changes, "uninstall"),
            Command::Workspace(command) => command.row(),
            Command::Remote(command) => command.row(),
            Command::Push(_) => row("push", Tends, "publish"),
            Command::Sync(_) => row("sync", Tends, "publish"),
            Command::Fetch(args) => row("fetch", Changes, format!("fetch {:?}", args.what)),
            Command::Pull(_) => row("pull", Changes, "pull"),
            Command::Clone(args) => row("clone", Changes, format!("clone {:?}", args.what.what)),
            Command::Emergency(_) => row("emergency", Changes, "take an emergency checkpoint"),
            Command::Undo(_) => row("undo", Changes, "undo"),
            Command::Redo(_) => row("redo", Changes, "redo"),
            Command::Delete(_) => row("delete", Changes, "delete"),
            Command::Pin(args) => row("pin", Changes, on("pin", "pin", args.id.as_deref())),
            Command::Unpin(args) => row("unpin", Changes, on("unpin", "unpin", args.id.as_deref())),
            Command::Prune(_) => row("prune", Changes, "prune"),
            Command::Gc(_) => row("gc", Tends, "free space"),
            Command::Usage => row("usage", Searches, "show disk usage"),
            Command::Purge(_) => row("purge", Changes, "purge"),
            Command::Repair => row("repair", Tends, "repair"),
            Command::Export(args) => row("export", Exports, format!("export checkpoint {:?}", args.id)),
            Command::Import(args) => row("import", Changes, format!("import {:?}", args.folder)),
            Command::Validate(args) => {
                row("validate", Reads, on("validate", "validate the store", args.id.as_deref()))
            }
            Command::Summary(_) => row("summary", Reads, "count checkpoints"),
            Command::History(_) => row("history", Reads, "show the history"),
            Command::Hook(_) => row("hook", Effect::ReadsInput, "answer the agent"),
            Command::Status => row("status", Searches, "show the status"),
            Command::Recover(_) => row("recover", Changes, "recover"),
            Command::Doctor(_) => row("doctor", Searches, "check this machine"),
            Command::Demo(_) => row("demo", Tends, "show the demo"),
            Command::Completions(_) => row("completions", Prints, "print completions"),
            Command::Man(_) => row("man", Prints, "show man pages"),
            Command::Mcp(_) => row("mcp", Changes, "serve the Model Context Protocol"),
            Command::Rpc => row("rpc", Changes, "serve a client library"),
            Command::Ui(_) => row("ui", Changes, "show the page"),
            Command::Version => row("version", Prints, "print the version"),
            Command::Checkpoint(_) => row("checkpoint", Reads, "understand the command line"),
        }
    }

    /// Placeholders of hints, each with the name that was typed for it.
    pub(crate) fn placeholders(&self) -> [(&'static str, Option<String>); 2] {
        let plan = match self {
            Command::Plan(command) => command.plan().map(str::to_owned),
            _ => None,
        };
        let id = match self {
            Command::Session(command) => command.session().map(str::to_owned),
            Command::Rollback(args) => Some(args.typed().unwrap_or_else(|| "@".to_owned())),
            Command::Undo(_) => Some("@".to_owned()),
            _ => None,
        };
        [("PLAN", plan), ("ID", id)]
    }

    /// Returns true if the user wants files back.
    pub(crate) fn goes_back(&self) -> bool {
        matches!(self, Command::Rollback(_) | Command::Undo(_) | Command::Redo(_) | Command::Cat(_))
    }

    /// Returns true if an option of the command itself selects JSON.
    pub(crate) fn asks_for_json(&self) -> bool {
        matches!(self, Command::List(ListArgs { output: Some(OutputForm::Json), .. }))
    }

    /// Returns true if the answer may be longer than a screen and is only read.
    pub(crate) fn pages(&self) -> bool {
        matches!(
            self,
            Command::List(_)
                | Command::Show(_)
                | Command::Diff(_)
                | Command::History(_)
                | Command::Man(_)
                | Command::Plan(PlanCommand::Log(_))
                | Command::Attempt(AttemptCommand::Diff(_))
        )
    }

    /// Owner of standard output.
    pub(crate) fn stage(&self) -> Stage {
        let lends =
            matches!(self, Command::Run(_) | Command::Try(_) | Command::Attempt(AttemptCommand::Exec(_)));
        if lends || self.speaks_a_protocol() { Stage::Lent } else { Stage::Ours }
    }

    /// Returns true if standard output carries messages of a protocol and nothing else.
    pub(crate) fn speaks_a_protocol(&self) -> bool {
        matches!(self, Command::Mcp(McpArgs { http: None, .. }) | Command::Rpc)
    }
}
