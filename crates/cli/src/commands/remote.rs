//! `remote`, `push`, `fetch` and `clone`: checkpoints that outlive this machine.

mod arrive;
mod bring;
mod care;
mod lease;
mod publish;
mod sync;

pub(crate) use arrive::arrive;
pub(crate) use bring::{clone, fetch, pull, takeover};
pub(crate) use lease::leases;
pub(crate) use publish::{place, published, purge, push};
pub(crate) use sync::{sync, tell};

use crate::args::remote::{RemoteAddArgs, RemoteCommand, RemoteInitArgs};
use crate::commands::Context;
use crate::context;
use crate::problem::Problem;
use crate::render::consent;
use crate::render::json::{self, value};
use crate::render::output::Reply;
use crate::render::terminal::{counted, moment, printable, size};
use safepoint::remote::{
    ConditionalPut, ExistingPacks, Remote, RemoteCheckpoint, RemoteError, RemoteLine, RemoteOptions,
    roles_sql,
};
use safepoint::{CheckpointManager, Error, Leaving, LineStanding, NewRemote, StoredRemote, Workspace};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Paths that are named in a list.
const NAMED: usize = 8;

pub(crate) fn run(context: &Context, command: &RemoteCommand) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    match command {
        RemoteCommand::Add(args) => add(context, &manager, args),
        RemoteCommand::List => list(context, &manager),
        RemoteCommand::Remove(args) => {
            let stored = manager.remotes().get(Some(&args.name))?;
            manager.remotes().remove(&args.name)?;
            context.out.line(format!("Removed {}. What was published stays there.", args.name));
            Ok(Reply::done(json!({ "remote": shape(&stored) })))
        }
        RemoteCommand::Status(args) => status(context, &manager, args.name.as_deref()),
        RemoteCommand::Init(args) => init(context, &manager, args),
        RemoteCommand::Migrate(args) => care::migrate(context, &manager, &args.name),
        RemoteCommand::Upkeep(args) => care::upkeep(context, &manager, &args.name),
        RemoteCommand::Rebuild(args) => care::rebuild(context, &manager, &args.name),
    }
}

/// A remote by name, or the only one, opened.
fn open(
    context: &Context,
    manager: &CheckpointManager,
    name: Option<&str>,
) -> Result<(StoredRemote, Remote), Problem> {
    let stored = manager.remotes().get(name)?;
    let options = options(manager, &stored)?;
    let remote = manager.remotes().open(&options, &context.surroundings.remote_environment())?;
    Ok((stored, remote))
}

/// A remote whose requests to the records take no longer than this.
pub(crate) fn open_patiently(
    context: &Context,
    manager: &CheckpointManager,
    stored: &StoredRemote,
    limit: Duration,
) -> Result<Remote, Problem> {
    let mut options = options(manager, stored)?;
    options.patience = options.patience.min(limit);
    Ok(manager.remotes().open(&options, &context.surroundings.remote_environment())?)
}

/// The remote that was named; else the only one; else those that the workspace was published to.
fn targets(
    manager: &CheckpointManager,
    workspace: &Workspace,
    name: Option<&str>,
) -> Result<Vec<StoredRemote>, Problem> {
    match manager.remotes().get(name) {
        Err(error @ Error::SeveralRemotes { .. }) => {
            let mut found = Vec::new();
            for stored in manager.remotes().list()? {
                if manager.remotes().standing(&stored.name, workspace)?.line.is_some() {
                    found.push(stored);
                }
            }
            if found.is_empty() { Err(error.into()) } else { Ok(found) }
        }
        found => Ok(vec![found?]),
    }
}

fn options(manager: &CheckpointManager, stored: &StoredRemote) -> Result<RemoteOptions, Problem> {
    let identity = stored.identity.as_deref().map(identity).transpose()?;
    let mut options = manager.remotes().options(stored, identity.as_deref())?;
    if let Some(patience) = context::remote_patience() {
        options.patience = patience;
    }
    Ok(options)
}

fn identity(path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path).map_err(|error| Problem::unreadable(path, &error))
}

fn add(context: &Context, manager: &CheckpointManager, args: &RemoteAddArgs) -> Result<Reply, Problem> {
    let (records, bytes) = (args.records.parse(), args.bytes.parse());
    let project = args.project.parse();
    let refused = |error: RemoteError| Problem::from(Error::from(error));
    let new = NewRemote {
        name: args.name.clone(),
        records: records.map_err(refused)?,
        bytes: bytes.map_err(refused)?,
        project: project.map_err(refused)?,
        identity: args.identity.as_ref().map(|path| context.surroundings.absolute(path)),
    };
    if let Some(path) = &new.identity {
        safepoint::remote::Seal::read(&identity(path)?, &[]).map_err(refused)?;
    }
    let workspace = context.surroundings.workspace_if_any(manager)?;
    let leaving = workspace.as_ref().map(|workspace| manager.remotes().leaving(workspace)).transpose()?;
    let root = workspace.as_ref().map(|workspace| workspace.root_path().to_string_lossy().into_owned());
    let about = told(&args.name, root.as_deref(), leaving.as_ref());
    if !context.yes && !consent::can_ask(context) {
        about.iter().for_each(|line| context.out.note(line));
        return Err(Problem::not_confirmed("cannot ask for confirmation: no terminal"));
    }
    if context.yes {
        about.iter().for_each(|line| context.out.note(line));
    }
    consent::ask_about(context, &about, &format!("Add remote {}?", args.name))?;
    let stored = manager.remotes().add(&new)?;
    context.out.line(format!("Added {}. Nothing was sent.", context.out.colours.bold(&stored.name)));
    context.out.remark(format!("Its owner sets it up once: safepoint remote init {}", stored.name));
    context.out.remark(format!("Publish this workspace: safepoint push {}", stored.name));
    Ok(Reply::done(json!({ "remote": shape(&stored), "leaving": leaving.as_ref().map(leaving_shape) })))
}

/// Content that would leave the machine, for people.
fn told(name: &str, root: Option<&str>, leaving: Option<&Leaving>) -> Vec<String> {
    let mut lines = vec![format!(
        "Each `safepoint push {name}` sends every checkpoint of the workspace that it runs in."
    )];
    let (Some(root), Some(leaving)) = (root, leaving) else {
        lines.push("No workspace is registered here yet.".to_owned());
        return lines;
    };
    let checkpoints = counted(leaving.checkpoints, "checkpoint", "checkpoints");
    let files = counted(leaving.files, "file", "files");
    lines.push(format!(
        "{}: {checkpoints}; the newest has {files}, {}.",
        printable(root),
        size(leaving.bytes)
    ));
    lines.push(
        "Files that git ignores are in checkpoints, too; .safepointignore leaves paths out.".to_owned(),
    );
    if !leaving.secrets.is_empty() {
        let mut named: Vec<String> =
            leaving.secrets.iter().take(NAMED).map(|it| printable(&it.to_string())).collect();
        if leaving.secrets.len() > NAMED {
            named.push(format!("and {} more", leaving.secrets.len() - NAMED));
        }
        lines.push(format!("Names that usually hold secrets: {}", named.join(", ")));
    }
    let counts = [
        (leaving.sessions, "session with its request", "sessions with their requests"),
        (leaving.plans, "plan", "plans"),
        (leaving.threads, "thread of a conversation", "threads of conversations"),
        (leaving.turns, "turn of an agent with its prompt", "turns of agents with their prompts"),
    ];
    let mut also: Vec<String> = counts
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, several)| counted(*count, one, several))
        .collect();
    if !leaving.agents.is_empty() {
        also.push(format!("settings of agents ({})", printable(&leaving.agents.join(", "))));
    }
    if leaving.git_folder {
        also.push("the folder .git".to_owned());
    }
    if !also.is_empty() {
        lines.push(format!("Also: {}.", also.join(", ")));
    }
    lines.push("Memory of agents outside of the workspace stays on this machine.".to_owned());
    lines
}

fn list(context: &Context, manager: &CheckpointManager) -> Result<Reply, Problem> {
    let remotes = manager.remotes().list()?;
    for remote in &remotes {
        let StoredRemote { name, project, records, bytes, .. } = remote;
        let sealed = if remote.identity.is_some() { ", encrypted" } else { "" };
        context.out.line(format!("{}  project {project}{sealed}", context.out.colours.bold(name)));
        context.out.line(format!("  {}", printable(records)));
        context.out.line(format!("  {}", printable(bytes)));
    }
    if remotes.is_empty() {
        context.out.remark("No remote is configured: safepoint remote add --help");
    }
    Ok(Reply::done(json!({ "remotes": remotes.iter().map(shape).collect::<Vec<_>>() })))
}

fn init(context: &Context, manager: &CheckpointManager, args: &RemoteInitArgs) -> Result<Reply, Problem> {
    let stored = manager.remotes().get(Some(&args.remote.name))?;
    let options = options(manager, &stored)?;
    if args.print {
        let sql = roles_sql(&options.project, &context.surroundings.user, &[]);
        context.out.line(sql.trim_end());
        return Ok(Reply::done(json!({ "remote": shape(&stored), "migrations": null, "sql": sql })));
    }
    let environment = context.surroundings.remote_environment();
    let applied = Remote::init(&options, &environment, ExistingPacks::Refused).map_err(Error::from)?;
    let migrations = counted(applied as u64, "migration", "migrations");
    context.out.line(format!("{} is ready: {migrations}, project {}.", stored.name, stored.project));
    Ok(Reply::done(json!({ "remote": shape(&stored), "migrations": applied, "sql": null })))
}

fn status(context: &Context, manager: &CheckpointManager, name: Option<&str>) -> Result<Reply, Problem> {
    let (stored, remote) = open(context, manager, name)?;
    let out = &context.out;
    let records = remote.status().map_err(Error::from)?;
    let probed = remote.bytes().probe();
    let workspace = context.surroundings.workspace_if_any(manager)?;
    let standing = workspace
        .as_ref()
        .map(|workspace| manager.remotes().standing(&stored.name, workspace))
        .transpose()?;
    let lines = remote.lines(None, None).map_err(Error::from)?;
    let heads = manager.remotes().heads(&remote)?;
    out.line(format!("{}: project {}", out.colours.bold(&stored.name), stored.project));
    let standby = if records.synchronous_standby { ", a standby confirms commits" } else { "" };
    out.line(format!("  records: PostgreSQL {}{standby}", printable(&records.server)));
    match &probed {
        Ok(_) => out.line("  bytes: reachable and writable"),
        Err(error) => out.warn_as("remote_bytes", printable(&error.to_string())),
    }
    if !records.durable {
        out.warn_as("remote_not_durable", "the database does not flush commits (fsync, full_page_writes)");
    }
    if records.over_quota {
        out.warn_as("over_quota", "the project is over its quota: nothing is published");
    }
    if let Some(standing) = &standing {
        tell_standing(context, &stored.name, standing);
    }
    for head in &heads {
        let line = lines.iter().find(|line| line.line == head.line);
        out.line(format!("  {}", told_head(head, line)));
    }
    Ok(Reply::done(json!({
        "remote": shape(&stored),
        "records": {
            "server": records.server,
            "schema": records.schema,
            "incarnation": records.incarnation,
            "now": records.now,
            "rights": records.rights,
            "over_quota": records.over_quota,
            "synchronous_standby": records.synchronous_standby,
            "durable": records.durable,
        },
        "bytes": {
            "reachable": probed.is_ok(),
            "conditional_put": probed.as_ref().ok().copied().map(conditional),
            "error": probed.as_ref().err().map(ToString::to_string),
        },
        "workspace": workspace.as_ref().map(json::workspace),
        "standing": standing.as_ref().map(standing_shape),
        "lines": heads.iter().map(|head| {
            head_shape(head, lines.iter().find(|line| line.line == head.line))
        }).collect::<Vec<_>>(),
    })))
}

fn tell_standing(context: &Context, name: &str, standing: &LineStanding) {
    let published = counted(standing.published.len() as u64, "checkpoint", "checkpoints");
    context
        .out
        .line(format!("  this workspace: {published} published, {} to be published", standing.unpublished));
    if !standing.purges.is_empty() {
        let paths = counted(standing.purges.len() as u64, "path", "paths");
        context.out.warn_as(
            "purge_pending",
            format!("a purge of {paths} is to be delivered: safepoint push {name}"),
        );
    }
    if standing.unpublished > 0 {
        context.out.remark(format!("Publish: safepoint push {name}"));
    }
}

fn text<'c>(checkpoint: &'c RemoteCheckpoint, name: &str) -> &'c str {
    checkpoint.fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A published checkpoint in one line.
fn told_head(head: &RemoteCheckpoint, line: Option<&RemoteLine>) -> String {
    let label = text(head, "label");
    let label = if label.is_empty() { String::new() } else { format!(" \"{}\"", printable(label)) };
    let holder = line.and_then(|line| line.holder.as_deref()).unwrap_or("an unnamed holder");
    let when = moment(head.published_at);
    format!(
        "{}@{}{label}, {when}, line {} of {}",
        printable(text(head, "workspace")),
        head.id,
        head.line,
        printable(holder)
    )
}

fn conditional(put: ConditionalPut) -> &'static str {
    match put {
        ConditionalPut::Obeyed => "obeyed",
        ConditionalPut::Ignored => "ignored",
        ConditionalPut::Unsupported => "unsupported",
    }
}

/// Shape of a remote.
fn shape(remote: &StoredRemote) -> Value {
    json!({
        "name": remote.name,
        "project": remote.project,
        "records": remote.records,
        "bytes": remote.bytes,
        "encrypted": remote.identity.is_some(),
        "identity": remote.identity.as_ref().map(|path| json::bytes(path.as_os_str().as_bytes())),
        "added_at": remote.added_at,
    })
}

fn leaving_shape(leaving: &Leaving) -> Value {
    json!({
        "checkpoints": leaving.checkpoints,
        "files": leaving.files,
        "bytes": leaving.bytes,
        "secrets": leaving.secrets,
        "sessions": leaving.sessions,
        "plans": leaving.plans,
        "threads": leaving.threads,
        "turns": leaving.turns,
        "agents": leaving.agents,
        "git_folder": leaving.git_folder,
    })
}

fn standing_shape(standing: &LineStanding) -> Value {
    json!({
        "line": standing.line,
        "seq": standing.seq,
        "published": standing.published.len(),
        "unpublished": standing.unpublished,
        "pending": standing.pending,
        "purges": standing.purges,
    })
}

/// Shape of the newest checkpoint of a line.
fn head_shape(head: &RemoteCheckpoint, line: Option<&RemoteLine>) -> Value {
    json!({
        "line": head.line,
        "seq": head.seq,
        "checkpoint": head.id,
        "workspace": head.workspace,
        "plan": head.plan,
        "published_at": head.published_at,
        "holder": line.and_then(|line| line.holder.clone()),
        "live": line.is_some_and(|line| line.live),
        "fields": value(&head.fields),
    })
}
