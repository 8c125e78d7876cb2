//! Rows of the argument table about attempts.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Access of an attempt's command to the rest of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OutsideArg {
    /// As without an attempt.
    #[default]
    Real,
    /// Read-only, with a private `/tmp`.
    ReadOnly,
}

/// Options of each command that runs something in an attempt.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RoomArgs {
    /// Access to the file system outside of the project.
    #[arg(long, value_name = "ACCESS", default_value = "real", hide_default_value = true)]
    pub(crate) outside: OutsideArg,
    /// Folder that stays writable with --outside read-only; repeatable.
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<PathBuf>,
}

/// Options of try.
#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// Name of the attempt; with several, the beginning of their names.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run the command COUNT times at once, each in its own attempt.
    #[arg(long, value_name = "COUNT", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) attempts: u8,
    /// Shell command that checks the result; it runs in the attempt.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// Choose the attempt with the highest value of this metric.
    #[arg(long, value_name = "METRIC")]
    pub(crate) best: Option<String>,
    /// With --best, choose the lowest value.
    #[arg(long, requires = "best")]
    pub(crate) lowest: bool,
    /// End the others once one passes.
    #[arg(long)]
    pub(crate) until_pass: bool,
    /// Keep the result if it passes; of several the best.
    #[arg(long, conflicts_with_all = ["discard", "later"])]
    pub(crate) keep: bool,
    /// Drop every attempt afterwards; the results stay as checkpoints.
    #[arg(long, conflicts_with = "later")]
    pub(crate) discard: bool,
    /// Decide later [default without a terminal].
    #[arg(long)]
    pub(crate) later: bool,
    /// Work in a copy at another path, without a namespace.
    #[arg(long)]
    pub(crate) copy: bool,
    #[command(flatten)]
    pub(crate) room: RoomArgs,
    /// Command and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Commands about attempts.
#[derive(Debug, Subcommand)]
pub(crate) enum AttemptCommand {
    /// Start an attempt, which runs nothing yet.
    #[command(
        after_help = "Examples:\n  safepoint attempt start refactor\n  safepoint attempt exec refactor -- bash"
    )]
    Start(StartArgs),
    /// Run a command in an attempt.
    #[command(
        override_usage = "safepoint attempt exec [OPTIONS] <NAME> -- <CMD>...",
        after_help = "Its exit status is passed on. Another command in the same attempt joins it.\n\nExamples:\n  safepoint attempt exec refactor -- bash\n  safepoint attempt exec refactor -- make test"
    )]
    Exec(ExecArgs),
    /// List the attempts of the project, oldest first.
    #[command(after_help = "Examples:\n  safepoint attempt list\n  safepoint attempt list --all --json")]
    List(ListAttemptsArgs),
    /// Show one attempt, with what runs in it.
    #[command(after_help = "Examples:\n  safepoint attempt show refactor")]
    Show(AttemptArgs),
    /// Compare an attempt with its start, or with another attempt.
    #[command(
        after_help = "Examples:\n  safepoint attempt diff try-1\n  safepoint attempt diff try-1 try-2 --stat"
    )]
    Diff(DiffAttemptsArgs),
    /// Compare the open attempts in one table: status, tests, metrics, changes.
    #[command(
        after_help = "Examples:\n  safepoint attempt compare\n  safepoint attempt compare --best accuracy"
    )]
    Compare(CompareArgs),
    /// Take the result of an attempt over into the project, and close the others.
    #[command(
        after_help = "Changes of the project since the start are merged where they do not touch the same paths, and line by line\nin text files where that is clean. Else nothing changes. `safepoint undo` brings the project back.\n\nExamples:\n  safepoint attempt keep try-2\n  safepoint attempt keep try-2 --others open\n  safepoint attempt keep try-2 --dry-run"
    )]
    Keep(KeepArgs),
    /// Close an attempt; its last state stays as a checkpoint.
    #[command(
        after_help = "Processes in it are ended. A room whose .git has commits of its own stays, also after a keep,\nuntil --delete-commits is given.\n\nExamples:\n  safepoint attempt drop try-1 try-3\n  safepoint attempt drop try-2 --delete-commits"
    )]
    Drop(DropArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// Name or number of the attempt.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Name of the new attempt [default: try- and its number].
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Work in a copy at another path, without a namespace.
    #[arg(long)]
    pub(crate) copy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name or number of the attempt.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) room: RoomArgs,
    /// Command and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ListAttemptsArgs {
    /// Also show attempts that were kept or dropped.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffAttemptsArgs {
    /// Attempt; alone, it is compared with its start.
    #[arg(value_name = "A")]
    pub(crate) old: String,
    /// Other attempt.
    #[arg(value_name = "B")]
    pub(crate) new: Option<String>,
    /// Show line counts only.
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) stat: bool,
    /// Show changed names only.
    #[arg(long)]
    pub(crate) name_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Mark the attempt with the highest value of this metric.
    #[arg(long, value_name = "METRIC")]
    pub(crate) best: Option<String>,
    /// With --best, mark the lowest value.
    #[arg(long, requires = "best")]
    pub(crate) lowest: bool,
}

/// Handling of the other attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OthersArg {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on.
    Open,
}

#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// Name or number of the attempt.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Handling of the other open attempts [default: drop].
    #[arg(long, value_name = "WHAT", default_value = "drop", hide_default_value = true)]
    pub(crate) others: OthersArg,
    /// Show the changes, and make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    /// Names or numbers of attempts.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Also delete commits that only the .git of the attempt has.
    #[arg(long)]
    pub(crate) delete_commits: bool,
}

/// Options of metric.
#[derive(Debug, Args)]
pub(crate) struct MetricArgs {
    /// Names, each with its number.
    #[arg(value_name = "NAME=NUMBER", required = true)]
    pub(crate) metrics: Vec<String>,
}
