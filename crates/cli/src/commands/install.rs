//! `install` and `uninstall`: hooks and the MCP server in the settings of coding agents.
//!
//! All changes are planned before the first is written: a file that does not parse leaves every file as it is.

use crate::args::install::{InstallArgs, PlaceArgs, Printed, UninstallArgs};
use crate::commands::Context;
use crate::context::{agent_folders, on_path};
use crate::problem::Problem;
use crate::render::consent::{ask, can_ask};
use crate::render::output::Reply;
use crate::render::patch::unified;
use crate::render::terminal::printable;
use safepoint_agents::CodingAgent;
use safepoint_agents::install::{
    self, FileEdit, Folders, InstallError, InstallScope, Installed, agents_md, claude_plugin, plan_install,
    plan_uninstall,
};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Install,
    Uninstall,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Uninstall => "uninstall",
        }
    }

    fn plan(
        self,
        folders: &Folders,
        place: InstallScope,
        agent: CodingAgent,
    ) -> Result<Vec<FileEdit>, InstallError> {
        match self {
            Self::Install => plan_install(folders, place, agent),
            Self::Uninstall => plan_uninstall(folders, place, agent),
        }
    }
}

/// Work to do.
struct Job {
    verb: Verb,
    folders: Folders,
    place: InstallScope,
    dry_run: bool,
}

impl Job {
    fn new(context: &Context, verb: Verb, place: &PlaceArgs, dry_run: bool) -> Result<Self, Problem> {
        let folders = folders(context)?;
        let place = if place.project { InstallScope::Project } else { InstallScope::User };
        if place == InstallScope::Project && folders.project == folders.user {
            return Err(Problem::usage(
                "the home directory is not a project",
                "For all projects: safepoint install all --user",
            ));
        }
        Ok(Self { verb, folders, place, dry_run })
    }

    /// Command line for these agents.
    fn again(&self, agents: &[CodingAgent]) -> String {
        let names: Vec<&str> = agents.iter().map(|agent| agent.name()).collect();
        let project = if self.place == InstallScope::Project { " --project" } else { "" };
        format!("safepoint {} {}{project}", self.verb.name(), names.join(" "))
    }
}

/// Returns the folders of agents' settings.
pub(super) fn folders(context: &Context) -> Result<Folders, Problem> {
    agent_folders(&context.surroundings).ok_or_else(|| {
        Problem::usage("cannot find the settings of agents: HOME is not set", "Set it: export HOME=~")
    })
}

/// Reads names of agents; `all` is each of them.
pub(super) fn named(names: &[String]) -> Result<Vec<CodingAgent>, Problem> {
    let mut agents = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => agents.extend(CodingAgent::ALL),
            name => agents.push(name.parse().map_err(|error| {
                Problem::usage(
                    format!("{name:?} is not an agent: {error}"),
                    "All of them: safepoint install all",
                )
            })?),
        }
    }
    agents.sort_unstable();
    agents.dedup();
    Ok(agents)
}

/// Names of an agent's program.
pub(super) fn programs(agent: CodingAgent) -> &'static [&'static str] {
    match agent {
        CodingAgent::Cursor => &["cursor-agent", "cursor"],
        CodingAgent::Claude => &["claude"],
        CodingAgent::Codex => &["codex"],
        CodingAgent::Gemini => &["gemini"],
        CodingAgent::Copilot => &["copilot"],
        CodingAgent::Opencode => &["opencode"],
    }
}

/// Returns true if an agent is on this machine: its program, or its folder.
fn is_found(folders: &Folders, agent: CodingAgent) -> bool {
    programs(agent).iter().any(|name| on_path(name).is_some())
        || folders.of(agent, InstallScope::User).is_dir()
}

pub(crate) fn install(context: &Context, args: &InstallArgs) -> Result<Reply, Problem> {
    if let Some(what) = args.print {
        return print(context, what, &args.agents);
    }
    let job = Job::new(context, Verb::Install, &args.place, args.dry_run)?;
    let found = |agent: &CodingAgent| is_found(&job.folders, *agent);
    let agents = match named(&args.agents)? {
        agents if !agents.is_empty() => agents,
        _ => {
            let found: Vec<CodingAgent> = CodingAgent::ALL.into_iter().filter(found).collect();
            if !args.detect {
                choose(context, &job, &found, "found")?;
            } else if found.is_empty() {
                context.out.note("no coding agent was found on this machine");
            }
            found
        }
    };
    run(context, &job, &agents)
}

pub(crate) fn uninstall(context: &Context, args: &UninstallArgs) -> Result<Reply, Problem> {
    let job = Job::new(context, Verb::Uninstall, &args.place, args.dry_run)?;
    let covered = |agent: &CodingAgent| {
        install::installed(&job.folders, job.place, *agent).is_ok_and(|state| state != Installed::No)
    };
    let agents = match named(&args.agents)? {
        agents if !agents.is_empty() => agents,
        _ => {
            let covered: Vec<CodingAgent> = CodingAgent::ALL.into_iter().filter(covered).collect();
            choose(context, &job, &covered, "installed")?;
            covered
        }
    };
    run(context, &job, &agents)
}

/// Asks for consent to agents that were not named.
fn choose(context: &Context, job: &Job, agents: &[CodingAgent], state: &str) -> Result<(), Problem> {
    let names: Vec<&str> = agents.iter().map(|agent| agent.name()).collect();
    if agents.is_empty() {
        let hint = format!("Name one: safepoint {} claude", job.verb.name());
        return Err(Problem::usage(format!("no coding agent is {state}"), &hint));
    }
    if !context.yes && !can_ask(context) {
        let message = format!("no agent is named; {state}: {}", names.join(", "));
        return Err(Problem::usage(message, &job.again(agents)));
    }
    let verb = if job.verb == Verb::Install { "Install for" } else { "Uninstall from" };
    ask(context, &format!("{verb} {}?", names.join(", ")))
}

fn run(context: &Context, job: &Job, agents: &[CodingAgent]) -> Result<Reply, Problem> {
    let again = job.again(agents);
    let mut plans = Vec::new();
    for agent in agents {
        let changes = job.verb.plan(&job.folders, job.place, *agent);
        plans.push((*agent, changes.map_err(|error| Problem::settings(&error, &again))?));
    }
    if !job.dry_run {
        // The home must be private before it holds copies of settings.
        context.surroundings.open(None)?;
        for (_, changes) in &plans {
            for change in changes {
                install::apply(&job.folders, change)
                    .map_err(|error| Problem::settings(&error, &again).silent_about_change())?;
            }
        }
    }
    let shown: Vec<Value> =
        plans.iter().map(|(agent, changes)| tell(context, job, *agent, changes)).collect();
    if !job.dry_run && job.verb == Verb::Install && agents.contains(&CodingAgent::Codex) {
        context.out.remark("Codex skips hooks until you trust them: start codex, then type /hooks");
    }
    Ok(Reply::done(json!({
        "place": job.place.name(),
        "dry_run": job.dry_run,
        "agents": shown,
        "printed": null,
    })))
}

fn kind(change: &FileEdit) -> &'static str {
    match (&change.before, &change.after) {
        (before, after) if before == after => "unchanged",
        (None, _) => "created",
        (_, None) => "removed",
        _ => "modified",
    }
}

/// Prints the changes of an agent's files; returns them for programs.
fn tell(context: &Context, job: &Job, agent: CodingAgent, changes: &[FileEdit]) -> Value {
    let out = &context.out;
    out.line(format!("{} ({})", out.colours.bold(agent), job.place.name()));
    for change in changes {
        out.line(format!("  {:9}  {}", kind(change), printable(&change.path.display().to_string())));
    }
    if job.dry_run {
        for change in changes.iter().filter(|change| !change.is_nothing()) {
            let path = printable(&change.path.display().to_string());
            let side =
                |text: &Option<String>| if text.is_some() { path.clone() } else { "/dev/null".to_owned() };
            let (before, after) = (change.before.as_deref(), change.after.as_deref());
            let sides = (side(&change.before), side(&change.after));
            unified(out, (&sides.0, &sides.1), before.unwrap_or_default(), after.unwrap_or_default());
        }
    }
    let files: Vec<Value> = changes
        .iter()
        .map(|change| json!({ "path": change.path.to_string_lossy(), "change": kind(change) }))
        .collect();
    json!({ "agent": agent.name(), "files": files })
}

fn print(context: &Context, what: Printed, words: &[String]) -> Result<Reply, Problem> {
    let (name, files, text) = match (what, words) {
        (Printed::AgentsMd, []) => {
            if !context.out.is_json() {
                // A failure is reported at the end.
                let _ = context.out.bytes().write_all(agents_md().as_bytes());
            }
            ("agents-md", Vec::new(), Some(agents_md()))
        }
        (Printed::ClaudePlugin, [folder]) => {
            let folder = context.surroundings.absolute(Path::new(folder));
            ("claude-plugin", write_plugin(context, &folder)?, None)
        }
        (Printed::AgentsMd, _) => {
            let hint = "safepoint install --print agents-md >> AGENTS.md";
            return Err(Problem::usage("agents-md takes no argument", hint));
        }
        (Printed::ClaudePlugin, _) => {
            let hint = "safepoint install --print claude-plugin ./safepoint-plugin";
            return Err(Problem::usage("claude-plugin needs one new folder", hint));
        }
    };
    Ok(Reply::done(json!({
        "place": null,
        "dry_run": false,
        "agents": [],
        "printed": { "what": name, "files": files, "text": text },
    })))
}

/// Writes the plugin into a new or empty folder.
#[allow(clippy::disallowed_methods, reason = "the plugin goes into the folder that the user names")]
fn write_plugin(context: &Context, folder: &Path) -> Result<Vec<String>, Problem> {
    let failed = |error: &std::io::Error| Problem::not_written(folder, error);
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(failed(&std::io::ErrorKind::DirectoryNotEmpty.into()));
    }
    let mut written = Vec::new();
    for (name, text) in claude_plugin(&folders(context)?, env!("CARGO_PKG_VERSION")) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(|error| failed(&error))?;
        std::fs::write(&path, text).map_err(|error| failed(&error))?;
        let path = path.to_string_lossy().into_owned();
        context.out.remark(printable(&path));
        written.push(path);
    }
    context.out.remark(format!("Try it: claude --plugin-dir {}", printable(&folder.display().to_string())));
    Ok(written)
}
