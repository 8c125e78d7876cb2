//! `show`: prints one checkpoint, with its files on request.

use crate::args::ShowArgs;
use crate::commands::Context;
use crate::commands::create::{changed, commit, is_lack, kept_folder, left_out, tags};
use crate::commands::pick;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, moment, printable, printable_bytes, size};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::{Checkpoint, PartKind};
use safepoint::model::tree::Node;
use safepoint::{HeldFolder, ListedEntry};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &ShowArgs) -> Result<Reply, Problem> {
    let missing = || Problem::usage("no checkpoint is named", "Name one, as in `safepoint show @`.");
    if args.which.given().is_none() && !pick::can_pick(context) {
        return Err(missing());
    }
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let session = args.which.session_id.as_deref();
    let checkpoint = match args.which.given() {
        Some(given) => context.checkpoint(&manager, workspace.as_ref(), given, session)?,
        None => context.choose(&manager, workspace.as_ref(), missing())?,
    };
    let folders = manager.checkpoints().folders_of(&checkpoint)?;
    let mut coverage = manager.checkpoints().coverage(&checkpoint)?;
    if checkpoint.workspace_id.is_none() {
        // Skipped files beside an agent's files are irrelevant.
        coverage.skipped.retain(is_lack);
    }
    let session = manager.checkpoints().session_of(&checkpoint)?;
    facts(out, &checkpoint);
    each_part(out, &checkpoint, &folders);
    if let Some(session) = &session {
        let name = out.colours.dim(format!("{:<9}", "keeps"));
        out.line(format!("  {name} the record of its session, {}", session.status));
    }
    left_out(out, &coverage, &RelPath::to_string);
    kept_folder(out, &checkpoint);
    for path in &coverage.unsettled {
        out.line(format!("  {} {path} changed all the while it was read", out.colours.yellow("unsettled:")));
    }
    let fields = json::checkpoint_with_coverage(&checkpoint, &coverage);
    let mut data = json!({ "checkpoint": json::with_state(fields, &manager, &checkpoint) });
    if checkpoint.workspace_id.is_none() || !folders.is_empty() {
        data["folders"] = folders.iter().map(json::folder).collect::<Value>();
    }
    if args.files && checkpoint.workspace_id.is_some() {
        let entries = manager.checkpoints().entries(&checkpoint)?;
        out.line("");
        entries.iter().for_each(|listed| out.line(entry_line(listed)));
        data["entries"] = entries.iter().map(json::entry).collect::<Value>();
    }
    if args.files {
        for (at, folder) in folders.iter().enumerate() {
            let entries = manager.checkpoints().entries(&folder.alone(&checkpoint))?;
            out.line("");
            out.line(out.colours.bold(place(folder)));
            entries.iter().for_each(|listed| out.line(entry_line(listed)));
            data["folders"][at]["entries"] = entries.iter().map(json::entry).collect::<Value>();
        }
    }
    Ok(Reply::done(data))
}

fn place(folder: &HeldFolder) -> String {
    match &folder.root {
        Some(root) => printable(root),
        None => format!("a folder that is not on record any more, {}", printable(&folder.key)),
    }
}

/// The folders, plans and agents of a checkpoint: of one of a workspace the memory of its agents.
fn each_part(out: &Printer, checkpoint: &Checkpoint, folders: &[HeldFolder]) {
    for folder in folders {
        let held = counted(folder.count, "file or folder", "files and folders");
        out.line(format!(
            "  {} {}  {}",
            out.colours.dim(format!("{:<9}", "folder")),
            place(folder),
            out.colours.dim(format!("{held}, {}", size(folder.bytes)))
        ));
    }
    let told = |kind| match kind {
        PartKind::Plan => checkpoint.workspace_id.is_none(),
        kind => kind == PartKind::Agent,
    };
    for part in checkpoint.parts.iter().filter(|part| told(part.kind)) {
        let kind = out.colours.dim(format!("{:<9}", part.kind.as_str()));
        out.line(format!("  {kind} {}", printable(&part.key)));
    }
}

pub(crate) fn facts(out: &Printer, checkpoint: &Checkpoint) {
    let fact = |name: &str, text: String| {
        out.line(format!("  {} {text}", out.colours.dim(format!("{name:<9}"))));
    };
    out.line(format!("Checkpoint {}", out.colours.bold(checkpoint.id)));
    for (name, text) in lines(out, checkpoint) {
        if let Some(text) = text {
            fact(name, text);
        }
    }
    for warning in &checkpoint.warnings {
        fact("warning", out.colours.yellow(printable(warning)));
    }
}

/// Returns all fields with their names.
fn lines(out: &Printer, checkpoint: &Checkpoint) -> Vec<(&'static str, Option<String>)> {
    let text = |text: &Option<String>| text.as_deref().map(printable);
    let made = checkpoint.created_at;
    let role = checkpoint.role.map(|role| format!(" ({role})")).unwrap_or_default();
    let phase = checkpoint.phase.map(|phase| format!(", phase {phase}")).unwrap_or_default();
    let files = &checkpoint.files;
    let held = counted(files.count, "file or folder", "files and folders");
    let used = checkpoint.rollback_count;
    vec![
        ("label", text(&checkpoint.label)),
        ("created", Some(format!("{}, {}", moment(made), ago(Surroundings::now(), made)))),
        ("kind", Some(format!("{}{role}, reason {}{phase}", checkpoint.kind, checkpoint.reason))),
        ("scope", Some(checkpoint.scope.to_string())),
        ("plan", plan(checkpoint)),
        ("session", text(&checkpoint.session_id)),
        ("tool", text(&checkpoint.source_tool)),
        ("progress", counters(checkpoint)),
        ("parts", parts(checkpoint)),
        ("holds", Some(format!("{held}, {}", size(files.bytes)))),
        ("changed", Some(changed(out, checkpoint))),
        ("stored", Some(format!("{} new in the store", size(checkpoint.size_bytes)))),
        ("commit", commit(checkpoint)),
        ("tag", tags(checkpoint)),
        ("parent", checkpoint.parent.map(|parent| parent.to_string())),
        ("pinned", checkpoint.pinned.then(|| "yes: it is never pruned".to_owned())),
        ("used", (used > 0).then(|| format!("rolled back to {}", counted(used, "time", "times")))),
        ("uuid", Some(checkpoint.id.to_uuid())),
        ("integrity", Some(checkpoint.integrity.to_string())),
    ]
}

/// Summarizes the parts of a multi-folder checkpoint.
pub(crate) fn parts(checkpoint: &Checkpoint) -> Option<String> {
    let count = |kind| checkpoint.parts.iter().filter(|part| part.kind == kind).count() as u64;
    checkpoint.workspace_id.is_none().then(|| {
        format!(
            "{}, {}, {}",
            counted(count(PartKind::Files), "folder", "folders"),
            counted(count(PartKind::Plan), "plan", "plans"),
            counted(count(PartKind::Agent), "agent", "agents")
        )
    })
}

/// Returns its plan and the plan's progress.
fn plan(checkpoint: &Checkpoint) -> Option<String> {
    let steps = counted(checkpoint.step_index?, "step", "steps");
    Some(format!("{}, {steps} done", printable(checkpoint.plan_id.as_deref()?)))
}

/// Counters that are set.
fn counters(checkpoint: &Checkpoint) -> Option<String> {
    let Value::Object(counters) = json::value(checkpoint.progress) else { return None };
    let set: Vec<String> = counters
        .into_iter()
        .filter(|(name, count)| count.as_u64() != Some(0) && !is_shown(checkpoint, name, count))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    (!set.is_empty()).then(|| set.join(", "))
}

/// True if the line about changed files shows the counter, too.
fn is_shown(checkpoint: &Checkpoint, name: &str, count: &Value) -> bool {
    match name {
        "files_created" => count.as_u64() == Some(checkpoint.files.added),
        "files_modified" => count.as_u64() == Some(checkpoint.files.modified),
        _ => false,
    }
}

/// One entry, as `ls -l` has it.
fn entry_line(listed: &ListedEntry) -> String {
    let ListedEntry { path, entry } = listed;
    let mode = entry.meta.mode;
    match &entry.node {
        Node::File(content) => format!("-{mode:04o} {:>9}  {path}", size(content.size)),
        Node::Directory(_) => format!("d{mode:04o} {:>9}  {path}/", ""),
        Node::Symlink(target) => {
            let target = printable_bytes(target);
            format!("l{mode:04o} {:>9}  {path} -> {target}", "")
        }
    }
}
