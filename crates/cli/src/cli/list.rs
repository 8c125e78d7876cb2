//! `list`: checkpoints, newest first, as a table.

use crate::cli::Context;
use crate::cli::args::ListArgs;
use crate::cli::create::changed;
use crate::cli::history::History;
use crate::cli::output::{Printer, Reply};
use crate::cli::terminal::{ago, printable, shortened, size, width};
use crate::context::{Surroundings, session_id};
use crate::json;
use crate::problem::Problem;
use safepoint::model::checkpoint::{Checkpoint, Kind};
use safepoint::model::{CheckpointId, WorkspaceId};
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(crate) fn run(context: &Context, args: &ListArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = if args.all { None } else { Some(context.surroundings.workspace(&manager)?) };
    let filter = Filter {
        workspace: workspace.as_ref().map(|workspace| workspace.id),
        plan_id: args.plan.clone(),
        session_id: args.session_id.as_deref().map(session_id).transpose()?,
        kind: args.kind,
        scope: args.scope,
        role: RoleFilter::Any,
        limit: args.limit,
        ..Filter::default()
    };
    let checkpoints = manager.list(&filter)?;
    if checkpoints.is_empty() {
        let chosen =
            Filter { workspace: filter.workspace, role: RoleFilter::Any, ..Filter::default() } != filter;
        context.out.remark(if chosen {
            "No checkpoint fits what you asked for."
        } else {
            "There are no checkpoints yet. Take one: safepoint create -m \"a label\""
        });
    }
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    let head = workspace.as_ref().and_then(|workspace| workspace.head);
    let mut data = json!({ "checkpoints": list, "head": head });
    match &workspace {
        Some(workspace) if args.graph => {
            data["rollbacks"] = graph(context, &manager, workspace, &checkpoints)?;
        }
        _ => table(context, &manager, workspace.as_ref(), &checkpoints)?,
    }
    Ok(Reply::done(data))
}

/// Draws the checkpoints, and gives the rollbacks between them.
fn graph(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoints: &[Checkpoint],
) -> Result<Value, Problem> {
    let rollbacks = manager.rollbacks(workspace)?;
    History {
        out: &context.out,
        checkpoints,
        rollbacks: &rollbacks,
        head: workspace.head,
        id_letters: unique_letters(manager, Some(workspace))?,
    }
    .print();
    Ok(rollbacks.iter().map(json::rollback_record).collect())
}

/// Prints checkpoints as a table; of all workspaces where none is given.
pub(crate) fn table(
    context: &Context,
    manager: &CheckpointManager,
    workspace: Option<&Workspace>,
    checkpoints: &[Checkpoint],
) -> Result<(), Problem> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    let names: HashMap<_, _> = match workspace {
        Some(_) => HashMap::new(),
        None => manager.workspaces()?.into_iter().map(|found| (found.id, found.name)).collect(),
    };
    let letters = unique_letters(manager, workspace)?;
    let look =
        Look { out: &context.out, names, head: workspace.and_then(|workspace| workspace.head), letters };
    let rows: Vec<Row> = checkpoints.iter().map(|checkpoint| look.row(checkpoint)).collect();
    // Programs get ids whole: what is unique today may not be tomorrow.
    let id_letters = if context.out.terminal { letters } else { ID_LETTERS };
    Table { out: &context.out, id_letters, rows }.print();
    Ok(())
}

/// How many letters tell all ids apart; never fewer than 8, so that new ones seldom change it.
fn unique_letters(manager: &CheckpointManager, workspace: Option<&Workspace>) -> Result<usize, Problem> {
    let filter = Filter {
        workspace: workspace.map(|workspace| workspace.id),
        role: RoleFilter::Any,
        ..Filter::default()
    };
    let mut ids: Vec<String> = manager.list(&filter)?.iter().map(|found| found.id.to_string()).collect();
    ids.sort_unstable();
    let same = |pair: &[String]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    Ok(ids.windows(2).map(|pair| same(pair) + 1).max().unwrap_or(0).max(8))
}

const ID_LETTERS: usize = 26;

struct Row {
    id: String,
    when: String,
    kind: String,
    kind_colour: Kind,
    own: bool,
    here: bool,
    changed: String,
    changed_letters: usize,
    size: String,
    label: String,
}

/// What a row is made with.
struct Look<'a> {
    out: &'a Printer,
    /// Names of workspaces, where there are several.
    names: HashMap<WorkspaceId, String>,
    head: Option<CheckpointId>,
    /// How many letters of an id are enough.
    letters: usize,
}

impl Look<'_> {
    fn row(&self, checkpoint: &Checkpoint) -> Row {
        let totals = &checkpoint.files;
        Row {
            id: checkpoint.id.to_string(),
            when: ago(Surroundings::now(), checkpoint.created_at),
            kind: checkpoint.role.map_or_else(|| checkpoint.kind.to_string(), |role| format!("({role})")),
            kind_colour: checkpoint.kind,
            own: checkpoint.role.is_some(),
            here: self.head == Some(checkpoint.id),
            changed: changed(self.out, checkpoint),
            changed_letters: format!("+{} ~{} -{}", totals.added, totals.modified, totals.removed).len(),
            size: size(checkpoint.size_bytes),
            label: self.label(checkpoint),
        }
    }

    fn label(&self, checkpoint: &Checkpoint) -> String {
        let mut label = checkpoint.label.as_deref().map(printable).unwrap_or_default();
        if checkpoint.role.is_some() {
            label = self.with_short_ids(&label);
        }
        if checkpoint.pinned {
            label = format!("{label} (pinned)").trim_start().to_owned();
        }
        match checkpoint.workspace_id.and_then(|id| self.names.get(&id)) {
            Some(name) => format!("[{}] {label}", printable(name)),
            None => label,
        }
    }

    /// Safepoint's own labels name checkpoints by their whole ids; a few letters are enough for people.
    fn with_short_ids(&self, label: &str) -> String {
        let short = |word: &str| match word.parse::<CheckpointId>() {
            Ok(id) if word.len() == ID_LETTERS => id.to_string().chars().take(self.letters).collect(),
            _ => word.to_owned(),
        };
        label.split(' ').map(short).collect::<Vec<String>>().join(" ")
    }
}

struct Table<'a> {
    out: &'a Printer,
    id_letters: usize,
    rows: Vec<Row>,
}

impl Table<'_> {
    fn print(&self) {
        let widest = |column: &dyn Fn(&Row) -> usize, title: &str| {
            self.rows.iter().map(column).max().unwrap_or(0).max(title.len())
        };
        let id = self.id_letters.max("CHECKPOINT".len());
        let when = widest(&|row| row.when.len(), "WHEN");
        let kind = widest(&|row| row.kind.len(), "KIND");
        let changed = widest(&|row| row.changed_letters, "CHANGED");
        let stored = widest(&|row| row.size.len(), "STORED");
        let margin = self.margin();
        let before_label = margin + id + when + kind + changed + stored + 10;
        let label_max =
            if self.out.terminal { width().saturating_sub(before_label).max(12) } else { usize::MAX };
        let title = format!(
            "{:margin$}{:id$}  {:when$}  {:kind$}  {:changed$}  {:>stored$}  LABEL",
            "", "CHECKPOINT", "WHEN", "KIND", "CHANGED", "STORED"
        );
        self.out.remark(self.out.colours.dim(title));
        for row in &self.rows {
            let label = shortened(&row.label, label_max);
            let id_text = &row.id[..self.id_letters.min(row.id.len())];
            let pad = " ".repeat(changed - row.changed_letters);
            let line = format!(
                "{:margin$}{}{}  {:when$}  {}  {}{pad}  {:>stored$}  {}",
                if row.here && margin > 0 { "*" } else { "" },
                self.id(row, id_text),
                " ".repeat(id - id_text.len()),
                row.when,
                self.kind(row, kind),
                row.changed,
                row.size,
                if row.own { self.out.colours.dim(label) } else { label },
            );
            self.out.line(line.trim_end());
        }
        if margin > 0 {
            self.out.remark(self.out.colours.dim("* is where the workspace is now"));
        }
    }

    /// People see where the workspace is, if that is listed.
    fn margin(&self) -> usize {
        if self.out.terminal && self.rows.iter().any(|row| row.here) { 2 } else { 0 }
    }

    fn id(&self, row: &Row, text: &str) -> String {
        if row.own { self.out.colours.dim(text) } else { self.out.colours.bold(text) }
    }

    fn kind(&self, row: &Row, letters: usize) -> String {
        let (colours, text) = (self.out.colours, format!("{:letters$}", row.kind));
        match row.kind_colour {
            _ if row.own => colours.dim(text),
            Kind::Manual => colours.green(text),
            Kind::Automatic => colours.blue(text),
            Kind::Workflow => colours.cyan(text),
            Kind::Emergency => colours.red(text),
        }
    }
}
