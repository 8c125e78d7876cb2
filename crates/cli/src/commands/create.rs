//! `create`: takes a checkpoint; where no workspace is registered yet, registers one and says so.

mod first;

use crate::args::CreateArgs;
use crate::commands::lost;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::consent::{ask, can_ask};
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, for_shell, printable, size};
use crate::render::warning;
use crate::{commands::Context, commands::recover, commands::remote, commands::validate, render::exit};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::{Checkpoint, Counters, PartKind, Scope};
use safepoint::model::coverage::{Coverage, Skipped};
use safepoint::{
    CheckpointManager, CreateOptions, Created, Durability, Error, GitCommit, IfUnchanged, Subject, Workspace,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that a configured remote gets to have a checkpoint.
const REMOTE_WAIT: Duration = Duration::from_secs(30);

pub(crate) fn run(context: &Context, args: &CreateArgs) -> Result<Reply, Problem> {
    let mut options = options(context, args)?;
    match (args.scope, &args.agent, &args.plan) {
        (Scope::Project, None, None) => {}
        (scope @ (Scope::Framework | Scope::Agent), ..) if args.git => {
            return Err(Problem::not_available(
                &format!("--git with scope {scope}"),
                "Take a checkpoint of the project with --git beside it.",
            ));
        }
        (Scope::Framework, None, None) | (Scope::Agent, Some(_), None) if args.wait_remote.is_some() => {
            return Err(Problem::not_available(
                &format!("--wait-remote with scope {}", args.scope),
                "Checkpoints of several folders are not published.",
            ));
        }
        (Scope::Framework, None, None) => return of_many(context, &Subject::Framework, &options),
        (Scope::Agent, Some(name), None) => {
            return of_many(context, &Subject::Agent(name.clone()), &options);
        }
        (Scope::Workflow, None, Some(plan)) => return of_plan(context, (plan, args), &options),
        _ => {
            return Err(Problem::usage(
                format!("--scope {} does not say of what", args.scope),
                "Scope agent goes with --agent NAME, workflow with --plan ID, project and framework with neither.",
            ));
        }
    }
    let manager = context.surroundings.open(args.source_tool.as_deref())?;
    let wait = wait_for_remote(&manager, args)?;
    let workspace = workspace(context, &manager)?;
    if workspace.head.is_none() {
        first::offer(context, &manager, &workspace)?;
    }
    let passing = test(context, &manager, &workspace, &mut options)?;
    let created = manager
        .create(&workspace, &options, &context.progress)
        .map_err(|error| context.failed(&manager, &workspace, error.into()))?;
    let mut reply = answer(&context.out, &created, Some(&workspace));
    lost::report(&context.out, &manager, &workspace);
    reply.data["tests_passing"] = json!(passing);
    publish(context, &manager, (&workspace, &created), wait, &mut reply);
    Ok(reply)
}

/// Time to wait for a remote: as typed, else by the configuration. A remote must be configured for the former.
fn wait_for_remote(manager: &CheckpointManager, args: &CreateArgs) -> Result<Option<Duration>, Problem> {
    if let Some(wait) = args.wait_remote {
        if manager.remotes().list()?.is_empty() {
            return Err(Error::NoRemote { name: None }.into());
        }
        return Ok(Some(Duration::from_micros(wait.micros())));
    }
    let is_asked = manager.config(None)?.remote.durability == Durability::Remote;
    Ok(is_asked.then_some(REMOTE_WAIT))
}

/// Publishes a checkpoint, if that is waited for.
fn publish(
    context: &Context,
    manager: &CheckpointManager,
    (workspace, created): (&Workspace, &Created),
    wait: Option<Duration>,
    reply: &mut Reply,
) {
    let Some(wait) = wait else { return };
    let (places, is_there) = remote::arrive(context, manager, workspace, created.checkpoint.id, wait);
    for at in &places {
        context.out.remark(format!("Published on line {}, push {}.", at.line, at.seq));
    }
    reply.data["published"] = places.iter().map(remote::place).collect();
    if !is_there {
        reply.exit = exit::IN_PART;
    }
}

/// Runs the tests before the checkpoint, where the configuration asks for it. The result is kept with the checkpoint: the command
/// counts as one test, and a failure is a warning.
pub(crate) fn test(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    options: &mut CreateOptions,
) -> Result<Option<bool>, Problem> {
    let config = manager.config(None)?;
    if !config.test_before_create {
        return Ok(None);
    }
    let Some(test) = config.test else {
        let file = for_shell(&manager.home().join("config.toml").to_string_lossy());
        context.out.warn_as(
            "no_test_command",
            format!("the tests were not run: before_create needs a command, such as test = \"make test\", below [checks] in {file}"),
        );
        return Ok(None);
    };
    let validate::Tests { passing, complaint, .. } = validate::tested(context, workspace, &test)?;
    let progress = &mut options.progress;
    if let (Some(passing), (0, 0)) = (passing, (progress.tests_passing, progress.tests_failing)) {
        (progress.tests_passing, progress.tests_failing) = (u64::from(passing), u64::from(!passing));
    }
    options.warnings.extend(complaint);
    Ok(passing)
}

/// A checkpoint of an agent, or of everything.
fn of_many(context: &Context, subject: &Subject, options: &CreateOptions) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(options.source_tool.as_deref())?;
    let created = manager.create(subject, options, &context.progress)?;
    Ok(answer(&context.out, &created, None))
}

/// Tells what was made, to people and to programs.
fn answer(out: &Printer, created: &Created, workspace: Option<&Workspace>) -> Reply {
    recover::tell(out, &created.recovered);
    tell(out, created);
    let data = json!({
        "checkpoint": json::checkpoint_with_coverage(&created.checkpoint, &created.coverage),
        "workspace": workspace.map(json::workspace),
        "pruned": created.pruned,
        "unchanged": created.unchanged,
        "tests_passing": null,
        "published": [],
    });
    let whole = is_whole(&created.coverage) && created.not_in_git.is_empty();
    Reply { data, exit: if whole { exit::DONE } else { exit::IN_PART }, failure: None }
}

/// A checkpoint of a plan and of the files that it works on.
fn of_plan(
    context: &Context,
    (plan, args): (&str, &CreateArgs),
    options: &CreateOptions,
) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(options.source_tool.as_deref())?;
    let wait = wait_for_remote(&manager, args)?;
    let place = manager.plans().workspace(&manager.plans().get(plan)?)?;
    let mut options = options.clone();
    let passing = test(context, &manager, &place, &mut options)?;
    let created = manager.plans().checkpoint(plan, &options, &context.progress)?;
    let workspace = manager.plans().workspace(&manager.plans().get(plan)?)?;
    let mut reply = answer(&context.out, &created, Some(&workspace));
    let fields = reply.data["checkpoint"].take();
    reply.data["checkpoint"] = json::with_state(fields, &manager, &created.checkpoint);
    reply.data["tests_passing"] = json!(passing);
    publish(context, &manager, (&workspace, &created), wait, &mut reply);
    Ok(reply)
}

fn options(context: &Context, args: &CreateArgs) -> Result<CreateOptions, Problem> {
    let mut progress = Counters::default();
    for counter in &args.counters {
        let parsed = counter.split_once('=').and_then(|(name, count)| Some((name, count.parse().ok()?)));
        let Some((name, count)) = parsed else {
            return Err(Problem::usage(
                format!("{counter:?} is not a counter"),
                "Write the name, an equals sign and a number, as in tests_passing=42.",
            ));
        };
        progress.set(name, count)?;
    }
    let defaults = CreateOptions::default();
    Ok(CreateOptions {
        label: args.label().map(str::to_owned),
        kind: args.kind.unwrap_or(defaults.kind),
        reason: args.reason.unwrap_or(defaults.reason),
        phase: args.phase,
        plan_id: None,
        session_id: context.surroundings.session(args.session_id.as_deref())?,
        source_tool: args.source_tool.clone(),
        pinned: args.pin,
        progress,
        git: match (args.git, args.commit_on_branch) {
            // Only a session that is named on the command line: the environment changes no meaning.
            (false, _) if args.session_id.is_some() && args.scope == Scope::Project => GitCommit::Session,
            (false, _) => GitCommit::No,
            (true, false) => GitCommit::Tag,
            (true, true) => GitCommit::Branch,
        },
        // Without the option, only a plain checkpoint of a workspace adds nothing.
        unchanged: match args.if_changed || (args.is_plain() && args.scope == Scope::Project) {
            true => IfUnchanged::Reused,
            false => IfUnchanged::Added,
        },
        ..defaults
    })
}

/// The workspace around; where there is none, it is registered now.
pub(crate) fn workspace(context: &Context, manager: &CheckpointManager) -> Result<Workspace, Problem> {
    match context.surroundings.workspace_if_any(manager)? {
        Some(workspace) => Ok(workspace),
        None => register(context, manager),
    }
}

fn register(context: &Context, manager: &CheckpointManager) -> Result<Workspace, Problem> {
    let folder = project_folder(&context.surroundings);
    // A folder that cannot be opened is refused below.
    if let Ok(Some(old)) = manager.workspaces().moved_from(&folder) {
        let from = printable(&old.root_path().to_string_lossy());
        let question = format!("This folder was {from}. Continue with its checkpoints?");
        if can_ask(context) && ask(context, &question).is_ok() {
            return Ok(manager.workspaces().move_to(&old, &folder)?);
        }
        let [old, new] = [old.root_path(), &folder].map(|path| for_shell(&path.to_string_lossy()));
        // The checkpoint that follows belongs to the new folder, so that it has to be forgotten first.
        context.out.warn_as(
            "folder_moved",
            format!(
                "this folder seems to be {from}, moved; to continue with its checkpoints: \
                safepoint workspace forget {new} && safepoint workspace move {old} {new}"
            ),
        );
    }
    let workspace = manager.workspaces().register(&folder)?;
    context.out.note(format!("Registered {} as a workspace.", workspace.root_path().display()));
    Ok(workspace)
}

/// The nearest folder upwards with a `.git` in it, else the directory itself. A home directory under git is not one project.
fn project_folder(surroundings: &Surroundings) -> PathBuf {
    let start = &surroundings.directory;
    let refused =
        |folder: &Path| folder == Path::new("/") || Some(folder) == surroundings.user_home.as_deref();
    let mut above = start.ancestors().take_while(|folder| !refused(folder));
    above.find(|folder| folder.join(".git").symlink_metadata().is_ok()).unwrap_or(start).to_owned()
}

/// Returns true if the capture is complete and consistent.
pub(crate) fn is_whole(coverage: &Coverage) -> bool {
    coverage.unsettled.is_empty() && !coverage.skipped.iter().any(is_lack)
}

/// Left out against our will.
pub(crate) fn is_lack(skipped: &Skipped) -> bool {
    skipped.why.is_lack()
}

pub(crate) fn tell(out: &Printer, created: &Created) {
    let checkpoint = &created.checkpoint;
    if out.quiet {
        out.line(checkpoint.id);
    } else if created.unchanged {
        tell_unchanged(out, created);
    } else {
        let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
        let name = format!("{}{}", out.colours.bold(checkpoint.id), label.unwrap_or_default());
        match checkpoint.workspace_id {
            Some(_) => out.line(format!("Checkpoint {name}")),
            None => {
                out.line(format!("Checkpoint {name} of scope {}", checkpoint.scope));
                out.line(format!("  {}", held_together(checkpoint)));
            }
        }
        let held = counted(checkpoint.files.count, "file or folder", "files and folders");
        let stored = format!("{} new in the store, {} ms", size(checkpoint.size_bytes), out.worked_ms());
        out.line(format!("  {held}, {}; {stored}", size(checkpoint.files.bytes)));
        if checkpoint.workspace_id.is_some() {
            out.line(format!("  {}", since_parent(out, checkpoint)));
        }
        if let Some(commit) = commit(checkpoint) {
            out.line(format!("  commit {commit}"));
        }
        if let Some(tags) = tags(checkpoint) {
            out.line(format!("  tag {tags}"));
        }
        let agents = agents(checkpoint);
        if checkpoint.workspace_id.is_some() && !agents.is_empty() {
            out.line(format!("  agents: {}", printable(&agents.join(", "))));
        }
        if checkpoint.workspace_id.is_some() {
            left_out(out, &created.coverage, &RelPath::to_string);
            kept_folder(out, checkpoint);
        }
    }
    tell_upkeep(out, created);
}

/// The agents that a checkpoint holds.
pub(crate) fn agents(checkpoint: &Checkpoint) -> Vec<&str> {
    let agents = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Agent);
    agents.map(|part| part.key.as_str()).collect()
}

/// A checkpoint that holds the current state already.
fn tell_unchanged(out: &Printer, created: &Created) {
    let checkpoint = &created.checkpoint;
    let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
    out.line(format!("Checkpoint {}{}", out.colours.bold(checkpoint.id), label.unwrap_or_default()));
    out.line("  nothing changed since it was taken: no checkpoint was added");
}

/// Contents of a multi-folder checkpoint.
fn held_together(checkpoint: &Checkpoint) -> String {
    let count = |kind: PartKind| checkpoint.count(kind) as u64;
    format!(
        "{}, {}, {}",
        counted(count(PartKind::Files), "folder", "folders"),
        counted(count(PartKind::Plan), "plan", "plans"),
        counted(count(PartKind::Agent), "agent", "agents")
    )
}

/// Prints a checkpoint's warnings and the results of its upkeep.
pub(crate) fn tell_upkeep(out: &Printer, created: &Created) {
    created.checkpoint.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    warning::warn(out, &created.not_in_git);
    warning::warn(out, &created.warnings);
    if !created.pruned.is_empty() {
        let count = counted(created.pruned.len() as u64, "old checkpoint", "old checkpoints");
        out.note(format!(
            "{count} pruned; `safepoint prune --dry-run` gives the reasons for those that stay."
        ));
    }
}

/// The commit that it also is.
pub(crate) fn commit(checkpoint: &Checkpoint) -> Option<String> {
    checkpoint.commit_sha.as_deref().map(printable)
}

/// Tags of the commit.
pub(crate) fn tags(checkpoint: &Checkpoint) -> Option<String> {
    let tags: Vec<String> = checkpoint.tags.iter().map(|tag| printable(tag)).collect();
    (checkpoint.commit_sha.is_some() && !tags.is_empty()).then(|| tags.join(", "))
}

/// Changes since the previous checkpoint.
fn since_parent(out: &Printer, checkpoint: &Checkpoint) -> String {
    let totals = &checkpoint.files;
    match (checkpoint.parent, totals.added + totals.modified + totals.removed) {
        (None, _) => "the first of this workspace".to_owned(),
        (Some(_), 0) => "nothing changed since the last one".to_owned(),
        (Some(_), _) => format!("since the last one: {}", changed(out, checkpoint)),
    }
}

/// `+added ~modified -removed`, in colour.
pub(crate) fn changed(out: &Printer, checkpoint: &Checkpoint) -> String {
    let (totals, colours) = (&checkpoint.files, out.colours);
    let part = |sign: char, count: u64, paint: &dyn Fn(String) -> String| {
        let text = format!("{sign}{count}");
        if count == 0 { colours.dim(text) } else { paint(text) }
    };
    [
        part('+', totals.added, &|text| colours.green(text)),
        part('~', totals.modified, &|text| colours.yellow(text)),
        part('-', totals.removed, &|text| colours.red(text)),
    ]
    .join(" ")
}

/// Maximum lines shown of a list.
pub(crate) const SHOWN_MAX: usize = 12;

/// That the repository is kept after all, where it is.
pub(crate) fn kept_folder(out: &Printer, checkpoint: &Checkpoint) {
    if checkpoint.parts.iter().any(|part| part.kind == PartKind::GitFolder) {
        let id = checkpoint.id;
        out.prose(format!(
            "  git's own folder is kept, too; restore it with: safepoint rollback {id} --part git"
        ));
    }
}

/// Prints skipped paths and the reasons.
pub(crate) fn left_out(out: &Printer, coverage: &Coverage, typed: &dyn Fn(&RelPath) -> String) {
    if coverage.skipped.is_empty() {
        return;
    }
    out.line("  left out:");
    for Skipped { path, why } in coverage.skipped.iter().take(SHOWN_MAX) {
        out.line(format!("    {}  {}", typed(path), out.colours.dim(why)));
    }
    more(out, coverage.skipped.len());
}

/// Says how much of a list is not shown.
pub(crate) fn more(out: &Printer, all: usize) {
    if all > SHOWN_MAX {
        out.line(out.colours.dim(format!("    and {} more; --json shows all", all - SHOWN_MAX)));
    }
}
