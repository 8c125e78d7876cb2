//! Rows of the argument table about remotes.

use clap::{Args, Subcommand};
use safepoint::model::Span;
use std::path::PathBuf;

/// Commands about remotes.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Add a remote: records in PostgreSQL, bytes in an object store or a folder.
    #[command(after_help = "\
It shows what would leave this machine, and asks; without a terminal it needs --yes. Nothing is sent.
Passwords and keys are never stored: PostgreSQL reads ~/.pgpass and PGPASSWORD, S3 reads AWS_ACCESS_KEY_ID and
~/.aws/credentials.

Examples:
  safepoint remote add team --records postgres://db.example.org/safepoint --bytes s3://bucket/safepoint --project shop
  safepoint remote add disk --records 'postgres:///safepoint?host=/run/postgresql' --bytes file:///mnt/packs --project shop")]
    Add(RemoteAddArgs),
    /// List the remotes of this home.
    #[command(after_help = "Examples:\n  safepoint remote list\n  safepoint remote list --json")]
    List,
    /// Forget a remote; what was published stays there.
    #[command(after_help = "Examples:\n  safepoint remote remove team")]
    Remove(RemoteNameArgs),
    /// Show what is published, by whom, and what is still to be published.
    #[command(after_help = "Examples:\n  safepoint remote status\n  safepoint remote status team --json")]
    Status(RemoteArgs),
    /// Create or update the tables of a remote; for its owner.
    #[command(
        after_help = "It may be repeated. Connect directly, not through a pooler.\n\nExamples:\n  safepoint remote init team\n  safepoint remote init team --print > roles.sql    SQL for the administrator of the database"
    )]
    Init(RemoteInitArgs),
    /// Update the tables of a remote; for its owner.
    #[command(
        after_help = "Connect directly, not through a pooler.\n\nExamples:\n  safepoint remote migrate team"
    )]
    Migrate(RemoteNameArgs),
    /// Delete old checkpoints and unused packs of a remote, and read one checkpoint whole; for its owner.
    #[command(
        after_help = "Run it regularly, such as by cron. Unused packs are deleted after 7 days. Ends with 3 if the checkpoint that it\nread is damaged.\n\nExamples:\n  safepoint remote upkeep team"
    )]
    Upkeep(RemoteNameArgs),
    /// Restore lost records of a remote from its packs; for its owner.
    #[command(
        after_help = "Use it after the database was restored from an older backup. It asks first; without a terminal it wants --yes.\nDeleted checkpoints whose packs still exist may return.\n\nExamples:\n  safepoint remote rebuild team"
    )]
    Rebuild(RemoteNameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RemoteAddArgs {
    /// Name of the remote.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Address of the records: postgres://[USER@]HOST[:PORT]/DATABASE.
    #[arg(long, value_name = "URL")]
    pub(crate) records: String,
    /// Address of the bytes: s3://, gs://, az:// or file:///FOLDER.
    #[arg(long, value_name = "URL")]
    pub(crate) bytes: String,
    /// Project on the remote: the unit of access and deduplication.
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: String,
    /// Encrypt with the age identity in this file; all machines of the project share it.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
}

/// Remote that must be named.
#[derive(Debug, Args)]
pub(crate) struct RemoteNameArgs {
    /// Remote.
    #[arg(value_name = "REMOTE")]
    pub(crate) name: String,
}

/// Remote that need not be named if it is the only one.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// Remote [default: the only one].
    #[arg(value_name = "REMOTE")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Bring the newest of this line [default: of all but this machine's].
    #[arg(long, value_name = "LINE")]
    pub(crate) line: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Publish memory of agents outside of the workspace, too.
    #[arg(long)]
    pub(crate) with_memory: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Publish memory of agents outside of the workspace, too.
    #[arg(long)]
    pub(crate) with_memory: bool,
    /// Go on publishing new checkpoints until interrupted.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Wait so long, publish until nothing is left, and end; one process per workspace. A checkpoint starts it.
    #[arg(long, value_name = "TIME", hide = true, conflicts_with = "follow")]
    pub(crate) after: Option<Span>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteInitArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteNameArgs,
    /// Only print the SQL that creates the owner of the tables.
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Remote.
    #[arg(value_name = "REMOTE")]
    pub(crate) remote: String,
    /// Workspace by name or id, and checkpoint by id or label [default: the newest].
    #[arg(value_name = "WORKSPACE[@CHECKPOINT]")]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    #[command(flatten)]
    pub(crate) what: FetchArgs,
    /// Folder that is empty or does not exist yet.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
