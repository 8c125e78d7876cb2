//! `agent`: who is registered, with configuration and memory that checkpoints keep.

use crate::args::agent::{AgentCommand, RegisterArgs, SetArgs};
use crate::commands::Context;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, printable};
use safepoint::model::agent::{AgentPathKind, AgentRecord};
use safepoint::{CheckpointManager, Workspace, agent_path};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(crate) fn run(context: &Context, command: &AgentCommand) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    match command {
        AgentCommand::Register(args) => register(context, &manager, args),
        AgentCommand::List => list(context, &manager),
        AgentCommand::Show(args) => {
            let record = manager.agents().get(&args.name)?;
            tell(&context.out, &manager, &record);
            Ok(Reply::done(json!({ "agent": shape(&manager, &record) })))
        }
        AgentCommand::Set(args) => set(context, &manager, args),
        AgentCommand::Remove(args) => {
            let record = manager.agents().get(&args.name)?;
            manager.agents().remove(&args.name)?;
            let name = context.out.colours.bold(&args.name);
            context
                .out
                .remark(format!("Agent {name} is not registered any more; its files and checkpoints stay."));
            Ok(Reply::done(json!({ "agent": shape(&manager, &record) })))
        }
    }
}

fn register(context: &Context, manager: &CheckpointManager, args: &RegisterArgs) -> Result<Reply, Problem> {
    let whole = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().map(|path| context.surroundings.absolute(path)).collect()
    };
    let (config, memory) = (whole(&args.config), whole(&args.memory));
    let record = match &args.workspace {
        Some(folder) => {
            let folder = context.surroundings.absolute(folder);
            manager.agents().register_at(&args.name, &config, &memory, &folder)?
        }
        None => manager.agents().register(&args.name, &config, &memory)?,
    };
    tell(&context.out, manager, &record);
    for path in record.agent.paths.iter().map(agent_path).filter(|path| !path.exists()) {
        context.out.warn(format!("{} does not exist yet", printable(&path.to_string_lossy())));
    }
    context.out.remark(format!(
        "Take a checkpoint of it with: safepoint create --scope agent --agent {}",
        args.name
    ));
    Ok(Reply::done(json!({ "agent": shape(manager, &record) })))
}

fn list(context: &Context, manager: &CheckpointManager) -> Result<Reply, Problem> {
    let agents = manager.agents().list()?;
    let out = &context.out;
    if agents.is_empty() {
        out.remark(
            "No agent is registered. Register one: safepoint agent register NAME --config PATH --memory PATH",
        );
    }
    let widest = agents.iter().map(|record| record.agent.name.len()).max().unwrap_or(0);
    for record in &agents {
        let name = out.colours.bold(format!("{:widest$}", record.agent.name));
        let paths = counted(record.agent.paths.len() as u64, "path", "paths");
        let bound = folder_of(manager, record).map(|folder| format!(", bound to {}", shown(&folder)));
        let changed = ago(Surroundings::now(), record.updated_at);
        out.line(format!("{name}  {paths}{}, changed {changed}", bound.unwrap_or_default()));
    }
    let agents: Vec<Value> = agents.iter().map(|record| shape(manager, record)).collect();
    Ok(Reply::done(json!({ "agents": agents })))
}

fn set(context: &Context, manager: &CheckpointManager, args: &SetArgs) -> Result<Reply, Problem> {
    let value: Value = serde_json::from_str(&args.value).map_err(|error| {
        Problem::usage(
            format!("the value is not JSON: {error}"),
            "Texts stand in double quotes inside of those of the shell, as in '\"large\"'; null takes the key away.",
        )
    })?;
    let record = manager.agents().set(&args.name, &args.key, value)?;
    let now = record.agent.settings.get(&args.key).map_or_else(|| "nothing".to_owned(), Value::to_string);
    context.out.remark(format!("{} = {}", printable(&args.key), printable(&now)));
    Ok(Reply::done(json!({ "agent": shape(manager, &record) })))
}

/// The folder that an agent is bound to. That it cannot be read hides nothing else.
fn folder_of(manager: &CheckpointManager, record: &AgentRecord) -> Option<Workspace> {
    manager.workspaces().get(record.workspace_id?).ok()
}

fn shown(workspace: &Workspace) -> String {
    printable(&workspace.root_path().to_string_lossy())
}

fn tell(out: &Printer, manager: &CheckpointManager, record: &AgentRecord) {
    let agent = &record.agent;
    out.line(format!("Agent {}", out.colours.bold(&agent.name)));
    for path in &agent.paths {
        let kind = out.colours.dim(format!("{:<6}", path.kind.as_str()));
        out.line(format!("  {kind} {}", printable(&agent_path(path).to_string_lossy())));
    }
    if let Some(folder) = folder_of(manager, record) {
        out.line(format!("  {} {}", out.colours.dim("bound to"), shown(&folder)));
    }
    for (key, value) in &agent.settings {
        out.line(format!("  {} = {}", printable(key), printable(&value.to_string())));
    }
}

fn shape(manager: &CheckpointManager, record: &AgentRecord) -> Value {
    let paths = |kind: AgentPathKind| -> Vec<Value> {
        let of_kind = record.agent.paths.iter().filter(|path| path.kind == kind);
        of_kind.map(|path| json::bytes(agent_path(path).as_os_str().as_bytes())).collect()
    };
    json!({
        "name": record.agent.name,
        "config": paths(AgentPathKind::Config),
        "memory": paths(AgentPathKind::Memory),
        "settings": record.agent.settings,
        "workspace_id": record.workspace_id,
        "workspace": folder_of(manager, record).map(|folder| json::bytes(&folder.root)),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    })
}
