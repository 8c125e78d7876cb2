//! `list`: checkpoints, newest first, as a table.

use crate::args::ListArgs;
use crate::commands::Context;
use crate::commands::create::changed;
use crate::commands::history::History;
use crate::commands::naming::{LABEL_LETTERS_MIN, Naming};
use crate::context::{Surroundings, session_id};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, printable, shortened, size};
use safepoint::model::checkpoint::{Checkpoint, Kind};
use safepoint::model::{CheckpointId, WorkspaceId};
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};
use serde_json::{Value, json};
use std::collections::HashMap;

/// So many are shown to people who do not say how many.
const SHOWN: u64 = 100;

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
        limit: args.limit.or((!context.out.is_json()).then_some(SHOWN)),
        ..Filter::default()
    };
    let checkpoints = manager.list(&filter)?;
    if checkpoints.is_empty() {
        let plain = Filter { workspace: filter.workspace, role: RoleFilter::Any, ..Filter::default() };
        let chosen = Filter { limit: args.limit, ..filter.clone() } != plain;
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
    if args.limit.is_none() && checkpoints.len() as u64 == SHOWN && !context.out.is_json() {
        let total = manager.summary(&filter)?.total_checkpoints;
        if let Some(more) = total.checked_sub(SHOWN).filter(|more| *more > 0) {
            context.out.remark(format!("{more} more: safepoint list -n {total}"));
        }
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
        id_letters: Naming::new(&context.out, manager, Some(workspace))?.letters,
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
    let naming = Naming::new(&context.out, manager, workspace)?;
    let look =
        Look { out: &context.out, names, head: workspace.and_then(|workspace| workspace.head), naming };
    let rows: Vec<Row> = checkpoints.iter().map(|checkpoint| look.row(checkpoint)).collect();
    Table { out: &context.out, naming, rows }.print();
    Ok(())
}

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
    naming: Naming,
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
        let label = self.naming.label(checkpoint);
        match checkpoint.workspace_id.and_then(|id| self.names.get(&id)) {
            Some(name) => format!("[{}] {label}", printable(name)),
            None => label,
        }
    }
}

struct Table<'a> {
    out: &'a Printer,
    naming: Naming,
    rows: Vec<Row>,
}

impl Table<'_> {
    fn print(&self) {
        let widest = |column: &dyn Fn(&Row) -> usize, title: &str| {
            self.rows.iter().map(column).max().unwrap_or(0).max(title.len())
        };
        let id_letters = self.naming.id_letters();
        let id = id_letters.max("CHECKPOINT".len());
        let when = widest(&|row| row.when.len(), "WHEN");
        let kind = widest(&|row| row.kind.len(), "KIND");
        let changed = widest(&|row| row.changed_letters, "CHANGED");
        let stored = widest(&|row| row.size.len(), "STORED");
        let margin = self.margin();
        // On a narrow terminal labels say more than figures do.
        let least = margin + id + when + kind + 6 + LABEL_LETTERS_MIN;
        let with_changed = self.naming.left_after(least) >= changed + 2;
        let with_stored = self.naming.left_after(least + changed + 2) >= stored + 2;
        let figures = |row_changed: &str, letters: usize, row_stored: &str| {
            let mut text = String::new();
            if with_changed {
                text.push_str(&format!("{row_changed}{}  ", " ".repeat(changed - letters)));
            }
            if with_stored {
                text.push_str(&format!("{row_stored:>stored$}  "));
            }
            text
        };
        let title = format!(
            "{:margin$}{:id$}  {:when$}  {:kind$}  {}LABEL",
            "",
            "CHECKPOINT",
            "WHEN",
            "KIND",
            figures("CHANGED", "CHANGED".len(), "STORED")
        );
        self.out.remark(self.out.colours.dim(&title));
        let label_max = self.naming.left_after(title.len() - "LABEL".len()).max(LABEL_LETTERS_MIN);
        for row in &self.rows {
            let label = shortened(&row.label, label_max);
            let id_text = &row.id[..id_letters];
            let line = format!(
                "{:margin$}{}{}  {:when$}  {}  {}{}",
                if row.here && margin > 0 { "*" } else { "" },
                self.id(row, id_text),
                " ".repeat(id - id_text.len()),
                row.when,
                self.kind(row, kind),
                figures(&row.changed, row.changed_letters, &row.size),
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
