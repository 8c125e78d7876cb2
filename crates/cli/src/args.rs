//! The one table of commands and flags. Help, completions and parsing all come from it.

pub(crate) mod agent;
pub(crate) mod attempt;
pub(crate) mod help;
pub(crate) mod install;
pub(crate) mod layout;
pub(crate) mod plan;
#[cfg(test)]
mod reference;
pub(crate) mod remote;
pub(crate) mod session;
pub(crate) mod workspace;

use clap::builder::{OsStringValueParser, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use safepoint::FailedUndo;
use safepoint::model::Span;
use safepoint::model::checkpoint::{Kind, PartKind, Phase, Reason, Scope};
use safepoint::model::rollback::Strategy;
use std::any::TypeId;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Parser for a word type of the model, with its values in the help.
macro_rules! words {
    ($type:ty) => {
        PossibleValuesParser::new(<$type>::ALL.iter().map(|word| word.as_str()))
            .try_map(|word| word.parse::<$type>())
    };
}

pub(crate) use words;

/// Parser for a part. A repository is one part to users, whether its state or its folder was captured.
fn chosen_part() -> impl TypedValueParser<Value = PartKind> {
    let words = PartKind::ALL.iter().filter(|kind| **kind != PartKind::GitFolder);
    PossibleValuesParser::new(words.map(|word| word.as_str())).try_map(|word| word.parse::<PartKind>())
}

/// Parser for a whole number.
fn count(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 20")
}

const HOW_TO_NAME: &str = "A checkpoint is named by its id, the first 4 or more letters of it, its label, \
    a time such as \"10 minutes ago\" or 14:30, or :3 (row 3 of the last `list` on this terminal).\n\
    @ is the newest checkpoint; @here is the position, which the workspace was last captured as or rolled back to \
    (* in `list`); @~2 is two before the newest.";

/// Checkpoints and rollback for the work of AI agents: exact, all or nothing, and crash-safe.
#[derive(Debug, Parser)]
#[command(
    name = "safepoint",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  safepoint create -m \"before refactoring\"   take a checkpoint of this project
  safepoint status                           show changes since then
  safepoint rollback @                       roll back to the newest checkpoint
  safepoint undo                             undo the rollback
  safepoint demo                             see it in a temporary folder"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Values that may be empty: free text and JSON, a label (an empty one is none), a key (its own rule says why not), a command's own words.
const MAY_BE_EMPTY: [&str; 9] =
    ["TEXT", "JSON", "TITLE", "LABEL", "KEY", "KEY=VALUE", "NAME=NUMBER", "CMD", "MILESTONES"];

/// Reads a command line. Whatever names something, such as a path or an id, is not empty: an empty path would mean the whole workspace, and
/// is what a script passes whose variable is not set.
pub(crate) fn parse(typed: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut table = help::grouped(nothing_unnamed(Arguments::command()));
    let mut matches = table.try_get_matches_from_mut(typed)?;
    let read = Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut table))?;
    Ok(Arguments { command: read.command.plain(), ..read })
}

fn nothing_unnamed(command: clap::Command) -> clap::Command {
    command.mut_args(not_empty).mut_subcommands(nothing_unnamed)
}

fn not_empty(arg: Arg) -> Arg {
    let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    // What names a checkpoint or a session has a rule of its own, which says more.
    let has_rule = arg.is_positional() && matches!(name, "ID" | "A" | "B");
    if !arg.get_action().takes_values() || has_rule || MAY_BE_EMPTY.contains(&name) {
        return arg;
    }
    let kind = arg.get_value_parser().type_id();
    if kind == TypeId::of::<OsString>() {
        arg.value_parser(OsStringValueParser::new().try_map(|path| match path.is_empty() {
            true => Err("a path cannot be empty; `.` is this folder"),
            false => Ok(path),
        }))
    } else if kind == TypeId::of::<String>() {
        arg.value_parser(StringValueParser::new().try_map(|name| match name.is_empty() {
            true => Err("it cannot be empty"),
            false => Ok(name),
        }))
    } else {
        arg
    }
}

/// Use of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Print the result as JSON on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only the result.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Work in this directory.
    #[arg(short = 'C', global = true, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Home directory of Safepoint [default: $SAFEPOINT_HOME or the XDG data directory].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Allow a home that another user owns, such as a container volume; needs --home.
    #[arg(long, global = true)]
    pub(crate) allow_other_owner: bool,
    /// Show no progress bars.
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// Print long answers without a pager [default: $SAFEPOINT_PAGER, $PAGER, or less].
    #[arg(long, global = true)]
    pub(crate) no_pager: bool,
    /// Use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: ColorWhen,
    /// Skip confirmation prompts.
    #[arg(long, global = true)]
    pub(crate) yes: bool,
    /// Show and read times in UTC [default: local time].
    #[arg(long, global = true)]
    pub(crate) utc: bool,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Register a folder and show what a checkpoint of it contains.
    #[command(after_help = "Examples:\n  safepoint init\n  safepoint init ~/projects/shop")]
    Init(InitArgs),
    /// Take a checkpoint.
    #[command(
        visible_alias = "save",
        after_help = "\
Where nothing changed and no field is given, nothing is added: the answer is the checkpoint at the position.

Examples:
  safepoint create \"before the refactoring\"
  safepoint create -m \"tests pass\"
  safepoint create --reason pre_risky_operation --counter tests_passing=42 --pin
  safepoint create --git -m \"tests pass\"    a git commit and a tag, too
  id=$(safepoint create -q)        with -q, only the id is printed"
    )]
    Create(CreateArgs),
    /// List checkpoints, newest first.
    #[command(
        visible_aliases = ["log", "ls"],
        after_help = "Examples:\n  safepoint list\n  safepoint list -n 5 --kind manual\n  safepoint list --graph          the history as a picture, with every rollback\n  safepoint list --all --json"
    )]
    List(ListArgs),
    /// Show one checkpoint.
    #[command(visible_alias = "get", after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint show @\n  safepoint show \"tests pass\" --files"))]
    Show(ShowArgs),
    /// Print a file from a checkpoint.
    #[command(after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint cat @ src/main.rs\n  safepoint cat @~3 notes.txt > notes.old"))]
    Cat(CatArgs),
    /// Compare a checkpoint with another one or with the current state.
    #[command(after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint diff                  show changes since the position\n  safepoint diff @~1 @ --stat\n  safepoint diff @ -- src docs    only these paths"))]
    Diff(DiffArgs),
    /// Restore the workspace, or chosen paths, from a checkpoint.
    #[command(visible_aliases = ["restore", "rewind"], after_help = format!("{HOW_TO_NAME}\nAn argument that names no checkpoint is a path; after -- everything is. Paths alone go back to @.\nThe current state is kept first, so that `safepoint undo` brings it back.\n--session-id with --checkpoint-id moves git and keeps the files; with --hard-reset, the files too.\n\nExamples:\n  safepoint rollback                       choose on a terminal, else list\n  safepoint rollback src/main.rs           one file, from the newest checkpoint\n  safepoint rollback \"10 minutes ago\"\n  safepoint rollback @ --dry-run           show what would happen\n  safepoint rollback @ --path src          only this path\n  safepoint rollback @ --to ../then        build it in another folder\n  safepoint rollback @ --hard-reset        a commit: branch, index and files\n  safepoint rollback @ --verify \"make test\"       try it beside the workspace first\n  safepoint rollback --until \"make test\"          back to the newest that passes\n  safepoint rollback --until \"make test\" --bisect --dry-run   only show it"))]
    Rollback(RollbackArgs),
    /// Take a checkpoint, then run a command; roll back if it fails, on request.
    #[command(
        override_usage = "safepoint run [OPTIONS] -- <CMD>...",
        after_help = "The command has your terminal, and its exit status is passed on. What Safepoint itself says goes to standard error.\n\nExamples:\n  safepoint run -- make migrate\n  safepoint run --rollback-on-fail -- ./upgrade.sh --all\n  safepoint run --watch -- agent           a checkpoint of every state that it leaves\n  safepoint run -m \"before the agent\" -- agent --task tasks.md"
    )]
    Run(RunArgs),
    /// Run a command in an attempt; outside of the project everything is real.
    #[command(
        name = "try",
        override_usage = "safepoint try [OPTIONS] -- <CMD>...",
        after_help = "The project is unchanged until you keep the result. An attempt is no security boundary.\nThe command sees the project at its own path. `sudo` does not work inside, unless you are root. A program that\ncannot copy where the kernel refuses to rename a folder (EXDEV) needs --copy.\n\nExamples:\n  safepoint try -- claude -p \"make the tests pass\"\n  safepoint try --attempts 3 --verify \"cargo test -q\" --keep -- ./agent.sh\n  safepoint try --attempts 5 --best accuracy --keep -- python train.py\n  safepoint try --outside read-only -- ./script.sh"
    )]
    Try(attempt::TryArgs),
    /// Work in attempts; outside of the project everything is real.
    #[command(
        subcommand,
        after_help = "An attempt is no security boundary.\n\nExamples:\n  safepoint attempt start refactor\n  safepoint attempt exec refactor -- bash\n  safepoint attempt compare\n  safepoint attempt keep refactor"
    )]
    Attempt(attempt::AttemptCommand),
    /// Report numbers of the work, such as accuracy=0.93; the next checkpoint holds them.
    #[command(
        after_help = "In an attempt they belong to the attempt.\n\nExamples:\n  safepoint metric accuracy=0.93 loss=0.1"
    )]
    Metric(attempt::MetricArgs),
    /// Run plans; roll back files and plan state together.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint plan new plan.toml\n  safepoint plan run limits\n  safepoint plan rollback limits @    the plan and its files, both or neither"
    )]
    Plan(plan::PlanCommand),
    /// Track a request, its status and its checkpoints.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint session create \"Add rate limiting\"\n  safepoint session transition ID planning\n  safepoint session export ID log.json"
    )]
    Session(session::SessionCommand),
    /// Register agents, whose configuration and memory are captured.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint agent register claude --config ~/.claude/settings.json --memory ~/.claude/projects\n  safepoint create --scope agent --agent claude"
    )]
    Agent(agent::AgentCommand),
    /// Cover coding agents: a checkpoint for every turn, by hooks and an MCP server.
    #[command(
        after_help = "Settings files keep everything else in them. `safepoint uninstall` restores them byte for byte.\nWithout a name it finds the agents on this machine, and asks.\n\nExamples:\n  safepoint install                        find agents, and ask\n  safepoint install claude codex\n  safepoint install all --project          for everyone who has this project\n  safepoint install claude --dry-run       show the changes\n  safepoint install --print agents-md >> AGENTS.md\n  safepoint install --print claude-plugin ~/safepoint-plugin"
    )]
    Install(install::InstallArgs),
    /// Remove hooks and MCP server from the settings of coding agents.
    #[command(
        after_help = "A file that did not change since is restored byte for byte. From another, only the entries of Safepoint go.\n\nExamples:\n  safepoint uninstall claude\n  safepoint uninstall all --project\n  safepoint uninstall codex --dry-run"
    )]
    Uninstall(install::UninstallArgs),
    /// List, move and forget registered folders.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint workspace list\n  safepoint workspace move ~/old ~/new\n  safepoint workspace forget ~/finished"
    )]
    Workspace(workspace::WorkspaceCommand),
    /// Add, list, remove and check remotes, where checkpoints are published.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint remote add team --records postgres://db.example.org/safepoint --bytes s3://bucket/safepoint --project shop\n  safepoint remote status team"
    )]
    Remote(remote::RemoteCommand),
    /// Publish the checkpoints of this workspace that a remote lacks.
    #[command(
        after_help = "It goes on where an earlier push stopped. Safety checkpoints are not published.\n\nExamples:\n  safepoint push\n  safepoint push team --json"
    )]
    Push(remote::PushArgs),
    /// Publish what remotes lack, and try again until they have it.
    #[command(
        after_help = "Many checkpoints are one push. A remote that does not answer is tried again with growing pauses, for a minute; with\n--follow until Ctrl-C. Without a name: the only remote, or every one that this workspace was published to.\nWith `every = \"5s\"` below [remote] in config.toml, checkpoints start it.\n\nExamples:\n  safepoint sync\n  safepoint sync team --follow"
    )]
    Sync(remote::SyncArgs),
    /// Bring a published checkpoint into this home; files do not change.
    #[command(
        after_help = "This home must have the workspace. Then: safepoint rollback ID\n\nExamples:\n  safepoint fetch team shop\n  safepoint fetch team shop@01KG9YS9"
    )]
    Fetch(remote::FetchArgs),
    /// Bring the newest checkpoint of other machines here; files do not change.
    #[command(
        after_help = "Then: safepoint rollback ID\n\nExamples:\n  safepoint pull\n  safepoint pull team --line 01KG9YS9EGCQT0DH2X3200JHAF"
    )]
    Pull(remote::PullArgs),
    /// Build a published checkpoint in a new folder, with its plan and session.
    #[command(
        after_help = "This home must not have the workspace yet.\n\nExamples:\n  safepoint clone team shop ~/projects/shop\n  safepoint clone team shop@01KG9YS9 ../shop"
    )]
    Clone(remote::CloneArgs),
    /// Take a checkpoint despite errors, and report what it misses.
    #[command(
        after_help = "Invalid settings are ignored, and nothing is pruned afterwards.\n\nExamples:\n  safepoint emergency\n  safepoint emergency -m \"the agent went wild\""
    )]
    Emergency(EmergencyArgs),
    /// Undo the last rollback; repeat to undo earlier ones.
    #[command(
        after_help = "Where files changed since the last rollback, it shows them and asks; without a terminal it needs --yes.\n\nExamples:\n  safepoint undo --dry-run\n  safepoint undo\n  safepoint undo src/main.rs    this path alone"
    )]
    Undo(UndoArgs),
    /// Redo the rollback that was undone last.
    #[command(
        after_help = "Where files changed since the undo, it shows them and asks; without a terminal it needs --yes.\n\nExamples:\n  safepoint redo --dry-run\n  safepoint redo"
    )]
    Redo(AgainArgs),
    /// Delete checkpoints.
    #[command(visible_alias = "rm", after_help = format!("{HOW_TO_NAME}\nIt asks first; without a terminal it wants --yes.\n\nExamples:\n  safepoint delete @~3\n  safepoint delete 01KG9YS9 01KG9YV2 --yes"))]
    Delete(DeleteArgs),
    /// Protect a checkpoint from pruning.
    #[command(after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint pin \"tests pass\""))]
    Pin(OneArgs),
    /// Allow pruning of a checkpoint again.
    #[command(after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint unpin \"tests pass\""))]
    Unpin(OneArgs),
    /// Delete checkpoints by the retention policy, as each `create` does.
    #[command(
        after_help = "Pinned ones, the newest, where the workspace is, and what an undo or unfinished work needs always stay.\n\nExamples:\n  safepoint prune --dry-run                            which would go, and why\n  safepoint prune --keep-last 20 --keep-within 2d --thin-daily-for 14d"
    )]
    Prune(PruneArgs),
    /// Collect garbage: free the space of deleted checkpoints.
    #[command(after_help = "Examples:\n  safepoint gc\n  safepoint gc --thorough")]
    Gc(GcArgs),
    /// Show disk usage by workspace and by checkpoint.
    #[command(after_help = "Examples:\n  safepoint usage\n  safepoint usage --json")]
    Usage,
    /// Remove a path from every checkpoint, such as a secret or a huge file.
    #[command(
        after_help = "The workspace itself is not touched. It asks first; without a terminal it wants --yes.\n\nExamples:\n  safepoint purge .env\n  safepoint purge data/dump.sql secrets --yes"
    )]
    Purge(PurgeArgs),
    /// Repair damage as far as possible, and report what is lost.
    #[command(after_help = "Examples:\n  safepoint repair\n  safepoint repair --json")]
    Repair,
    /// Export a checkpoint as a folder of plain files.
    #[command(after_help = format!("{HOW_TO_NAME}\nNothing that is there is overwritten: the folder gets a name of its own, which is printed.\n\nExamples:\n  safepoint export @ ~/exports\n  folder=$(safepoint export -q \"tests pass\" /tmp)    with -q, the folder is all that is printed"))]
    Export(layout::ExportArgs),
    /// Import a folder that `export` wrote.
    #[command(
        after_help = "Every byte is compared with its hash, and nothing in the folder is trusted or run. The workspace itself is not touched.\n\nExamples:\n  safepoint import ~/exports/project/shop_20260131_120000\n  safepoint import shop_20260131_120000 -m \"from the other machine\""
    )]
    Import(layout::ImportArgs),
    /// Verify checkpoints, store and workspace.
    #[command(
        visible_alias = "verify",
        after_help = "Without an ID it also tells whether the workspace is ready for a checkpoint, and whether its tests pass:\nthe command is `[checks] test` in config.toml of Safepoint's home.\n\nExamples:\n  safepoint validate           is everything there?\n  safepoint validate --deep    read every byte\n  safepoint validate @"
    )]
    Validate(ValidateArgs),
    /// Count checkpoints, by kind and by reason.
    #[command(after_help = "Examples:\n  safepoint summary\n  safepoint summary --json")]
    Summary(SummaryArgs),
    /// Show rollbacks, undos, redos and corrections, newest first.
    #[command(after_help = "Examples:\n  safepoint history\n  safepoint history -n 5 --json")]
    History(HistoryArgs),
    /// Show changes since the position, and what is not captured.
    #[command(after_help = "Examples:\n  safepoint status\n  safepoint -C ~/projects/shop status")]
    Status,
    /// Finish or undo work that a crash interrupted; other commands do so first.
    #[command(
        after_help = "Ends with 3 while displaced files wait for the programs that have, or may have, them open.\n\nExamples:\n  safepoint recover\n  safepoint recover --release    store what waits as a checkpoint, ask, then delete it"
    )]
    Recover(RecoverArgs),
    /// Answer an event of a coding agent; `safepoint install` puts this into its settings.
    #[command(after_help = "\
Reads the event as JSON from standard input, takes a checkpoint where one is due, and answers with one JSON object.
Always ends with 0, so that it never stops an agent by accident.

Examples:
  safepoint hook claude < event.json
  safepoint hook copilot preToolUse < event.json")]
    Hook(HookArgs),
    /// Check this machine, and show how to fix problems.
    #[command(
        after_help = "Ends with 0 when nothing is wrong (warnings may be), with 3 when something is, with 1 when an agent is not covered as installed.\n\nExamples:\n  safepoint doctor\n  safepoint doctor claude codex    only these agents\n  safepoint doctor --json"
    )]
    Doctor(install::DoctorArgs),
    /// Show a disaster and its rollback in a temporary folder.
    #[command(
        after_help = "Examples:\n  safepoint demo\n  safepoint demo --keep    leave the folder for you to look at"
    )]
    Demo(DemoArgs),
    /// Print a completion script for your shell.
    #[command(
        after_help = "For bash, zsh and fish it offers checkpoints, plans, sessions, agents and paths, too.\n\nExamples:\n  safepoint completions bash > ~/.local/share/bash-completion/completions/safepoint\n  safepoint completions zsh > ~/.zfunc/_safepoint\n  safepoint completions fish > ~/.config/fish/completions/safepoint.fish"
    )]
    Completions(CompletionsArgs),
    /// Show the man page of a command, or write all pages into a folder.
    #[command(
        after_help = "Examples:\n  safepoint man rollback\n  safepoint man plan run\n  safepoint man ~/.local/share/man/man1    then: man safepoint-rollback"
    )]
    Man(ManArgs),
    /// Serve checkpoints and rollback to an agent (Model Context Protocol).
    #[command(
        after_help = "Serves standard input and output until the input ends. --http serves clients on this machine that send the token.\nThe workspace is the one around the current directory; an agent cannot choose another.\n\nExamples:\n  safepoint mcp\n  safepoint mcp --workspace ~/projects/shop\n  safepoint mcp --http 127.0.0.1:7077"
    )]
    Mcp(McpArgs),
    /// Serve client libraries, such as that for Node, on standard input and output.
    #[command(hide = true, after_help = "The protocol is in docs/rpc.md.\n\nExamples:\n  safepoint rpc")]
    Rpc,
    /// Show the timeline, differences, plans and rollbacks in a browser.
    #[command(
        after_help = "Serves the workspace around the current directory on this machine alone, until Ctrl-C. The printed address\nworks once, for 60 seconds. With --read-only nothing is written, so the current state cannot be shown.\n\nExamples:\n  safepoint ui\n  safepoint ui --no-open --port 7078\n  safepoint ui --read-only"
    )]
    Ui(UiArgs),
    /// Print the version.
    #[command(after_help = "Examples:\n  safepoint version --json")]
    Version,
    /// Create, list, show or delete checkpoints: the same as the commands of these names.
    #[command(subcommand, hide = true)]
    Checkpoint(CheckpointCommand),
}

impl Command {
    /// Returns the command behind a longer spelling.
    fn plain(self) -> Self {
        match self {
            Command::Checkpoint(CheckpointCommand::Create(args)) => Command::Create(args),
            Command::Checkpoint(CheckpointCommand::List(args)) => Command::List(args),
            Command::Checkpoint(CheckpointCommand::Show(args)) => Command::Show(args),
            Command::Checkpoint(CheckpointCommand::Delete(args)) => Command::Delete(args),
            other => other,
        }
    }
}

/// Longer spellings of `create`, `list`, `show` and `delete`.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Take a checkpoint.
    Create(CreateArgs),
    /// List checkpoints, newest first.
    List(ListArgs),
    /// Show one checkpoint.
    Show(ShowArgs),
    /// Delete checkpoints.
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder to register [default: the current directory].
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Accept even `/` or the home directory.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Label to record.
    #[arg(value_name = "LABEL", conflicts_with = "label")]
    text: Option<String>,
    /// Label to record; it may begin with a hyphen.
    #[arg(
        short = 'm',
        long = "label",
        visible_alias = "description",
        value_name = "LABEL",
        allow_hyphen_values = true
    )]
    label: Option<String>,
    /// Add no checkpoint if nothing changed, despite other options.
    #[arg(long)]
    pub(crate) if_changed: bool,
    /// Kind to record [default: manual].
    #[arg(long, value_parser = words!(Kind))]
    pub(crate) kind: Option<Kind>,
    /// Reason to record [default: manual].
    #[arg(long, visible_alias = "checkpoint-type", value_parser = words!(Reason))]
    pub(crate) reason: Option<Reason>,
    /// Phase of the work to record.
    #[arg(long, value_parser = words!(Phase))]
    pub(crate) phase: Option<Phase>,
    /// Scope: this workspace, one agent, one plan with its files, or everything.
    #[arg(long, value_parser = words!(Scope), default_value = "project")]
    pub(crate) scope: Scope,
    /// Agent to capture, with --scope agent.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Plan to capture, with --scope workflow.
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
    /// Session to record [default: $SAFEPOINT_SESSION_ID].
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Name of the calling tool to record.
    #[arg(long, value_name = "NAME")]
    pub(crate) source_tool: Option<String>,
    /// Protect it from pruning.
    #[arg(long)]
    pub(crate) pin: bool,
    /// Also make a git commit with the tag checkpoint-ID; branch, index and HEAD stay.
    #[arg(long)]
    pub(crate) git: bool,
    /// With --git: also move the branch and the index to that commit.
    #[arg(long, requires = "git")]
    pub(crate) commit_on_branch: bool,
    /// Publish it and wait for the remote [default: 30s]; else exit 3.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s")]
    pub(crate) wait_remote: Option<Span>,
    /// Counter to record, such as tests_passing=42; repeatable.
    #[arg(long = "counter", value_name = "NAME=NUMBER")]
    pub(crate) counters: Vec<String>,
}

impl CreateArgs {
    /// Arguments of a plain checkpoint with a label, by a tool.
    pub(crate) fn labelled(label: impl Into<Option<String>>, tool: Option<String>) -> Self {
        Self {
            text: None,
            label: label.into(),
            if_changed: false,
            kind: None,
            reason: None,
            phase: None,
            scope: Scope::Project,
            agent: None,
            plan: None,
            session_id: None,
            source_tool: tool,
            pin: false,
            git: false,
            commit_on_branch: false,
            wait_remote: None,
            counters: Vec::new(),
        }
    }

    /// Returns the label, if it is not empty.
    pub(crate) fn label(&self) -> Option<&str> {
        self.label.as_deref().or(self.text.as_deref()).filter(|label| !label.is_empty())
    }

    /// Returns true if nothing was given that a record of its own is needed for.
    pub(crate) fn is_plain(&self) -> bool {
        self.label().is_none()
            && !self.pin
            && !self.git
            && self.session_id.is_none()
            && self.phase.is_none()
            && self.reason.is_none()
            && self.kind.is_none()
            && self.counters.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct EmergencyArgs {
    /// Text to record as the label; it may begin with a hyphen.
    #[arg(short = 'm', long = "message", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,
}

/// Format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// Text.
    Pretty,
    /// JSON, as with --json.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show at most COUNT checkpoints [default: 100, or all with --json].
    #[arg(short = 'n', value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Only checkpoints of this plan.
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
    /// Only checkpoints of this session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Only checkpoints of this kind.
    #[arg(long, value_parser = words!(Kind))]
    pub(crate) kind: Option<Kind>,
    /// Only checkpoints of this scope.
    #[arg(long, value_parser = words!(Scope))]
    pub(crate) scope: Option<Scope>,
    /// Include all workspaces.
    #[arg(long)]
    pub(crate) all: bool,
    /// Include the safety checkpoints that rollbacks take.
    #[arg(long)]
    pub(crate) all_roles: bool,
    /// Show the turns of agents: one prompt each.
    #[arg(long, conflicts_with_all = ["plan", "kind", "scope", "all", "all_roles", "graph"])]
    pub(crate) turns: bool,
    /// Draw the history: branches, rollbacks, undo and redo.
    #[arg(long, conflicts_with = "all")]
    pub(crate) graph: bool,
    /// Show what is published on a remote, in the order of publication.
    #[arg(long, value_name = "REMOTE", conflicts_with_all = ["plan", "session_id", "kind", "scope", "all_roles", "graph", "turns"])]
    pub(crate) remote: Option<String>,
    /// Output format.
    #[arg(long, value_name = "FORM")]
    pub(crate) output: Option<OutputForm>,
}

/// Name of a checkpoint.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Checkpoint.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Checkpoint, for scripts; it may begin with a hyphen.
    #[arg(long, value_name = "ID", conflicts_with = "id", allow_hyphen_values = true)]
    pub(crate) checkpoint_id: Option<String>,
    /// Fail if the checkpoint belongs to another session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
}

impl Which {
    /// Returns the name as typed, by either option.
    pub(crate) fn given(&self) -> Option<&str> {
        self.id.as_deref().or(self.checkpoint_id.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// List every file in it.
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Checkpoint.
    pub(crate) id: String,
    /// File.
    pub(crate) path: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Old side [default: @here, the position].
    #[arg(value_name = "A")]
    pub(crate) old: Option<String>,
    /// New side [default: the current state].
    #[arg(value_name = "B")]
    pub(crate) new: Option<String>,
    /// Choose the old side from a list, on a terminal.
    #[arg(long, conflicts_with = "old")]
    pub(crate) pick: bool,
    /// Show line counts only.
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) stat: bool,
    /// Show changed names only.
    #[arg(long)]
    pub(crate) name_only: bool,
    /// Only these paths.
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RollbackArgs {
    /// Checkpoint, then paths; a first argument that names no checkpoint is a path.
    #[arg(value_name = "CHECKPOINT|PATH")]
    pub(crate) words: Vec<OsString>,
    /// Checkpoint, for scripts; it may begin with a hyphen.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) checkpoint_id: Option<String>,
    /// Fail if the checkpoint belongs to another session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// State after turn N of an agent.
    #[arg(long, value_name = "N", conflicts_with_all = ["checkpoint_id", "before_turn"])]
    pub(crate) turn: Option<u64>,
    /// State before the first change of turn N.
    #[arg(long, value_name = "N", conflicts_with = "checkpoint_id")]
    pub(crate) before_turn: Option<u64>,
    /// Checkpoint that the arguments name, once they are resolved.
    #[arg(skip)]
    pub(crate) given: Option<String>,
    /// Strategy: immediate, staged (tried first), selective, or progressive (a search).
    #[arg(long, value_parser = words!(Strategy))]
    pub(crate) strategy: Option<Strategy>,
    /// Only this path; repeatable.
    #[arg(long = "path", value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Only this part: files, plan, agent, session, thread, or git (branch, HEAD, index); repeatable.
    #[arg(long = "part", value_name = "PART", value_parser = chosen_part(), hide_possible_values = true)]
    pub(crate) parts: Vec<PartKind>,
    /// With several folders: fail if a part cannot be rolled back.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Show the effects without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Restore modification times [default: now, so that build tools notice].
    #[arg(long)]
    pub(crate) keep_times: bool,
    #[command(flatten)]
    pub(crate) undo_commands: UndoCommandArgs,
    /// Build the files in this new or empty folder; the workspace is not changed.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "strategy", "paths", "parts", "strict", "dry_run", "keep_times", "skip_failed_undo", "no_undo_commands", "verify", "until",
        "hard_reset", "mixed", "after",
    ])]
    pub(crate) to: Option<PathBuf>,
    /// Build the target beside the workspace, run CMD there, show the changes, and ask.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// Roll back to the newest checkpoint where CMD passes, tried apart.
    #[arg(long, value_name = "CMD")]
    pub(crate) until: Option<String>,
    /// With --until: binary search; checkpoints older than a good one are good.
    #[arg(long, requires = "until")]
    pub(crate) bisect: bool,
    /// With --until: try in the workspace itself.
    #[arg(long, requires = "until", conflicts_with = "dry_run")]
    pub(crate) in_place: bool,
    /// With --until: try in a copy at another path, not in an overlay.
    #[arg(long, requires = "until", conflicts_with = "in_place")]
    pub(crate) copy: bool,
    /// Set git branch, index and files; uncommitted work goes into the safety checkpoint.
    #[arg(long)]
    pub(crate) hard_reset: bool,
    /// Set git branch and index to the checkpoint; the files stay.
    #[arg(long, conflicts_with = "hard_reset")]
    pub(crate) mixed: bool,
    /// Accepted and ignored: the safety checkpoint always keeps uncommitted work.
    #[arg(long, hide = true)]
    pub(crate) discard_uncommitted: bool,
    /// Only these paths.
    #[arg(last = true, value_name = "PATH")]
    pub(crate) after: Vec<OsString>,
}

impl RollbackArgs {
    /// Returns the checkpoint as typed, if known.
    pub(crate) fn typed(&self) -> Option<String> {
        let given = self.given.as_ref().or(self.checkpoint_id.as_ref()).cloned();
        given.or_else(|| self.words.first().map(|word| word.to_string_lossy().into_owned()))
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// If CMD fails, roll back; `safepoint undo` restores what it left.
    #[arg(long)]
    pub(crate) rollback_on_fail: bool,
    /// Also take a checkpoint after changes, when no file changed for 2 seconds, and at exit.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Label of the checkpoint, also with a hyphen first [default: "before" and the command].
    #[arg(short = 'm', long = "label", value_name = "LABEL", allow_hyphen_values = true)]
    pub(crate) label: Option<String>,
    /// Command and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of hook.
#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// Agent: claude, codex, gemini, copilot, opencode or cursor.
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// Name of the event, for agents whose events do not name themselves.
    #[arg(value_name = "EVENT")]
    pub(crate) event: Option<String>,
}

/// Options of ui.
#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Port on 127.0.0.1; 0 selects a free one [default: the same for each start in this folder].
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Serve a Unix socket that only you can open, for forwarding.
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    pub(crate) socket: Option<PathBuf>,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Write nothing: no checkpoints, no rollbacks, no crash recovery.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let the page name commands to run, such as a check.
    #[arg(long)]
    pub(crate) allow_commands: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Serve HTTP on this loopback address; port 0 selects a free port [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    pub(crate) http: Option<SocketAddr>,
    /// Workspace to serve [default: the one around the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

/// Options of undo.
#[derive(Debug, Default, Args)]
pub(crate) struct UndoArgs {
    /// Only the paths that turn N of an agent changed; those that changed since stay.
    #[arg(long, value_name = "N", conflicts_with = "paths")]
    pub(crate) turn: Option<u64>,
    /// With --turn: also the paths that changed since.
    #[arg(long, requires = "turn")]
    pub(crate) all: bool,
    /// Only these paths.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}

/// Options of undo and redo.
#[derive(Debug, Default, Args)]
pub(crate) struct AgainArgs {
    /// Show the effects without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Restore modification times.
    #[arg(long)]
    pub(crate) keep_times: bool,
    #[command(flatten)]
    pub(crate) undo_commands: UndoCommandArgs,
}

/// Treatment of the undo commands of a plan's steps.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct UndoCommandArgs {
    /// Continue if an undo command of a plan's step fails, and report it.
    #[arg(long)]
    skip_failed_undo: bool,
    /// Run no undo command of a plan's steps, and report each.
    #[arg(long, conflicts_with = "skip_failed_undo")]
    no_undo_commands: bool,
}

impl UndoCommandArgs {
    pub(crate) fn chosen(&self) -> FailedUndo {
        match (self.skip_failed_undo, self.no_undo_commands) {
            (_, true) => FailedUndo::NoneRuns,
            (true, false) => FailedUndo::IsSkipped,
            (false, false) => FailedUndo::Stops,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Checkpoints.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Checkpoint, for scripts: a whole id with --session-id needs no confirmation.
    #[arg(long, value_name = "ID", conflicts_with = "ids")]
    pub(crate) checkpoint_id: Option<String>,
    /// Fail if the checkpoint belongs to another session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Keep their git tags.
    #[arg(long)]
    pub(crate) keep_tag: bool,
}

/// Name of one checkpoint.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Checkpoint.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Show which would be deleted and why, without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the last COUNT checkpoints [default: as configured, else 100].
    #[arg(long, value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    pub(crate) keep_last: Option<u64>,
    /// Keep checkpoints younger than this, such as 36h [default: as configured, else 7d].
    #[arg(long, value_name = "TIME")]
    pub(crate) keep_within: Option<Span>,
    /// Keep one checkpoint a day up to this age [default: as configured, else 30d].
    #[arg(long, value_name = "TIME")]
    pub(crate) thin_daily_for: Option<Span>,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Reclaim all dead space, also in packs with little of it.
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Delete objects that a new or older catalog does not list.
    #[arg(long)]
    pub(crate) accept_catalog: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// Store displaced files that other programs may have open, then delete them.
    #[arg(long)]
    pub(crate) release: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Paths, with everything below them.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Checkpoint [default: all of them, the store, and the workspace].
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Read every byte.
    #[arg(long)]
    pub(crate) deep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// Only checkpoints of this session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Only checkpoints of this plan.
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Show at most COUNT entries [default: 100, or all with --json].
    #[arg(short = 'n', value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Show every step, also redo and a plan.
    #[arg(long)]
    pub(crate) full: bool,
    /// Keep the folder.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Command whose page to show, or a folder to write all pages into (created if missing).
    #[arg(value_name = "COMMAND|DIR")]
    pub(crate) what: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell.
    pub(crate) shell: clap_complete::Shell,
}
