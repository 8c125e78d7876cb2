//! The part of the table that is about sessions.

use super::{count, words};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use safepoint::model::session::SessionStatus;
use std::path::PathBuf;

/// Commands about sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Record a session with its request.
    #[command(
        after_help = "With -q, the id is all that is printed.\n\nExamples:\n  safepoint session create \"Add rate limiting\"\n  export SAFEPOINT_SESSION_ID=$(safepoint session create -q \"Add rate limiting\")\n  safepoint session create \"Add rate limiting\" --session-id 7d9f3c1e-5b1a-4c62-9f0e-2a6f1c3b4d5e"
    )]
    Create(CreateArgs),
    /// Show the status and counts of a session.
    #[command(
        after_help = "Examples:\n  safepoint session get 7d9f3c1e-5b1a-4c62-9f0e-2a6f1c3b4d5e\n  safepoint session get $SAFEPOINT_SESSION_ID --json"
    )]
    Get(OneArgs),
    /// List sessions, newest first.
    #[command(
        after_help = "Examples:\n  safepoint session list\n  safepoint session list --status paused -n 5"
    )]
    List(ListArgs),
    /// Change the request, configuration, git context or counts of a session.
    #[command(
        after_help = "Fields: request=TEXT, configuration=JSON, configuration.KEY=JSON, git_context=JSON,\ntasks_completed=NUMBER, tasks_failed=NUMBER, decisions_made=NUMBER (in all, or +1 for one more).\n\nExamples:\n  safepoint session update ID request=\"Add rate limiting per user\"\n  safepoint session update ID configuration.limits.rate=100 configuration.model='\"large\"'\n  safepoint session update ID git_context='{\"branch\": \"main\"}'"
    )]
    Update(UpdateArgs),
    /// Change the status of a session.
    #[command(after_help = "\
It goes forward: initializing, planning, generating_tasks, implementing, validating, generating_report, completed.
From validating it may go back to implementing. Until it is over it may fail, or pause and go on where it paused.

Examples:
  safepoint session transition ID planning
  safepoint session transition ID paused")]
    Transition(TransitionArgs),
    /// Delete a session; its checkpoints stay.
    #[command(
        after_help = "It asks first; without a terminal it wants --yes.\n\nExamples:\n  safepoint session delete 7d9f3c1e-5b1a-4c62-9f0e-2a6f1c3b4d5e --yes"
    )]
    Delete(OneArgs),
    /// Export the log of a session as JSON.
    #[command(
        after_help = "Examples:\n  safepoint session export ID\n  safepoint session export ID log.json\n  safepoint session export ID log.json --force    over an older one"
    )]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Request of the user.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) request: String,
    /// Id, a UUID or a ULID [default: generated].
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Configuration as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) configuration: Option<String>,
    /// Git context as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) git_context: Option<String>,
}

/// Id of one session.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only sessions of this status.
    #[arg(long, value_parser = words!(SessionStatus))]
    pub(crate) status: Option<SessionStatus>,
    /// Show at most COUNT sessions.
    #[arg(short = 'n', value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    pub(crate) session: OneArgs,
    /// Fields to set; all or none are changed.
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) changes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TransitionArgs {
    #[command(flatten)]
    pub(crate) session: OneArgs,
    /// New status.
    #[arg(value_name = "STATUS", value_parser = words!(SessionStatus))]
    pub(crate) status: SessionStatus,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) session: OneArgs,
    /// File to write [default: standard output].
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "file")]
    pub(crate) force: bool,
}
