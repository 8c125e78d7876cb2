//! `list`: checkpoints, newest first, as a table.

mod picture;
mod turns;

use crate::args::ListArgs;
use crate::commands::Context;
use crate::commands::create::changed;
use crate::commands::naming::{LABEL_LETTERS_MIN, Naming};
use crate::commands::rows;
use crate::context::{Surroundings, session_id};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, printable, shortened, size};
use picture::Picture;
use safepoint::model::checkpoint::{Checkpoint, Kind, Role, Scope};
use safepoint::model::{CheckpointId, WorkspaceId};
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};
use serde_json::{Value, json};
use std::collections::HashMap;

/// So many are shown to people who do not say how many.
const SHOWN: u64 = 100;

pub(crate) fn run(context: &Context, args: &ListArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    if args.turns {
        return turns::list(context, &manager, args);
    }
    // Checkpoints of agents and of everything belong to no workspace.
    let of_none = matches!(args.scope, Some(Scope::Framework | Scope::Agent));
    let workspace = match args.all || of_none {
        true => None,
        false => Some(context.surroundings.workspace(&manager)?),
    };
    // Programs get all of them, and a picture needs them.
    let folds = !(args.all_roles || args.graph || context.out.is_json());
    let filter = Filter {
        workspace: workspace.as_ref().map(|workspace| workspace.id).filter(|_| args.plan.is_none()),
        plan_id: args.plan.clone(),
        session_id: args.session_id.as_deref().map(session_id).transpose()?,
        kind: args.kind,
        scope: args.scope,
        role: if folds { RoleFilter::Except(Role::Safety) } else { RoleFilter::Any },
        limit: args.limit.or((!context.out.is_json()).then_some(SHOWN)),
        ..Filter::default()
    };
    let mut checkpoints = manager.checkpoints().list(&filter)?;
    let hidden =
        if folds { unfold_position(&manager, &filter, workspace.as_ref(), &mut checkpoints)? } else { 0 };
    if checkpoints.is_empty() && hidden == 0 {
        known(&manager, args.plan.as_deref(), filter.session_id.as_deref())?;
        let plain = Filter { workspace: filter.workspace, role: filter.role, ..Filter::default() };
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
    if hidden > 0 {
        let count = counted(hidden, "safety checkpoint is", "safety checkpoints are");
        context.out.remark(format!("{count} not shown: safepoint list --all-roles"));
    }
    if args.limit.is_none() && checkpoints.len() as u64 >= SHOWN && !context.out.is_json() {
        let total = manager.checkpoints().summary(&filter)?.total_checkpoints;
        if let Some(more) = total.checked_sub(SHOWN).filter(|more| *more > 0) {
            context.out.remark(format!("{more} more: safepoint list -n {total}"));
        }
    }
    Ok(Reply::done(data))
}

/// Puts the position among the rows where it is a safety checkpoint that was left out. Returns how many others were.
fn unfold_position(
    manager: &CheckpointManager,
    filter: &Filter,
    workspace: Option<&Workspace>,
    rows: &mut Vec<Checkpoint>,
) -> Result<u64, Problem> {
    let safety = Filter { role: RoleFilter::Only(Role::Safety), limit: None, ..filter.clone() };
    let ids = manager.checkpoints().list_ids(&safety)?;
    let head = workspace.and_then(|workspace| workspace.head).filter(|head| ids.contains(head));
    if let Some(head) = head {
        let position = manager.checkpoints().get(head)?;
        let at = rows.iter().take_while(|row| row.created_at > position.created_at).count();
        rows.insert(at, position);
    }
    Ok(ids.len() as u64 - u64::from(head.is_some()))
}

/// Leaves safety checkpoints out, except for the position.
pub(crate) fn folded(mut checkpoints: Vec<Checkpoint>, head: Option<CheckpointId>) -> Vec<Checkpoint> {
    checkpoints.retain(|it| it.role != Some(Role::Safety) || Some(it.id) == head);
    checkpoints
}

/// Refuses a plan or a session that is on no record. Asked where no checkpoint names it.
pub(crate) fn known(
    manager: &CheckpointManager,
    plan: Option<&str>,
    session: Option<&str>,
) -> Result<(), Problem> {
    if let Some(plan) = plan {
        manager.plans().get(plan)?;
    }
    if let Some(session) = session {
        manager.sessions().known(session.parse()?)?;
    }
    Ok(())
}

/// Draws the checkpoints, and gives the rollbacks between them.
fn graph(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoints: &[Checkpoint],
) -> Result<Value, Problem> {
    let rollbacks = manager.rollbacks(workspace)?;
    Picture {
        out: &context.out,
        checkpoints,
        rollbacks: &rollbacks,
        head: workspace.head,
        id_letters: Naming::new(&context.out, manager, Some(workspace))?.letters,
    }
    .print();
    Ok(rollbacks.iter().map(json::rollback_record).collect())
}

/// Prints checkpoints as a table; of all workspaces where none is given. On a terminal the rows have numbers, which name them later.
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
        None => manager.workspaces().list()?.into_iter().map(|found| (found.id, found.name)).collect(),
    };
    let naming = Naming::among(&context.out, manager, workspace, checkpoints)?;
    let look =
        Look { out: &context.out, names, head: workspace.and_then(|workspace| workspace.head), naming };
    let rows: Vec<Row> = checkpoints.iter().map(|checkpoint| look.row(checkpoint)).collect();
    Table { out: &context.out, naming, rows }.print();
    if context.out.terminal {
        let shown: Vec<CheckpointId> = checkpoints.iter().map(|checkpoint| checkpoint.id).collect();
        rows::remember(manager.home(), &shown);
    }
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

/// Context of a row.
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
        let number = self.number_letters();
        // On a narrow terminal labels say more than figures do.
        let least = margin + number + id + when + kind + 6 + LABEL_LETTERS_MIN;
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
            "{:margin$}{:number$}{:id$}  {:when$}  {:kind$}  {}LABEL",
            "",
            "",
            "CHECKPOINT",
            "WHEN",
            "KIND",
            figures("CHANGED", "CHANGED".len(), "STORED")
        );
        self.out.remark(self.out.colours.dim(&title));
        let label_max = self.naming.left_after(title.len() - "LABEL".len()).max(LABEL_LETTERS_MIN);
        for (at, row) in (1..).zip(&self.rows) {
            let label = shortened(&row.label, label_max);
            let id_text = &row.id[..id_letters];
            let line = format!(
                "{:margin$}{}{}{}  {:when$}  {}  {}{}",
                if row.here && margin > 0 { "*" } else { "" },
                self.number(at, number),
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
            self.out.remark(self.out.colours.dim("* @here: the position of the workspace"));
        }
    }

    /// People see where the workspace is, if that is listed.
    fn margin(&self) -> usize {
        if self.out.terminal && self.rows.iter().any(|row| row.here) { 2 } else { 0 }
    }

    /// Letters of the column with the numbers of the rows.
    fn number_letters(&self) -> usize {
        if self.out.terminal { format!(":{}  ", self.rows.len()).len() } else { 0 }
    }

    fn number(&self, row: usize, letters: usize) -> String {
        match letters.checked_sub(2) {
            Some(left) => self.out.colours.dim(format!("{:>left$}  ", format!(":{row}"))),
            None => String::new(),
        }
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
