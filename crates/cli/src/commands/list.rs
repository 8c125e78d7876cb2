//! `list`: checkpoints, newest first, as a table.

mod picture;
pub(crate) mod turns;

use crate::args::ListArgs;
use crate::commands::Context;
use crate::commands::create::changed;
use crate::commands::naming::{LABEL_LETTERS_MIN, Naming};
use crate::commands::position::PartialRollback;
use crate::commands::{remote, rows};
use crate::context::{Surroundings, session_id};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, briefly_ago, columns, counted, printable, shortened, size};
use picture::Picture;
use safepoint::model::checkpoint::{Checkpoint, Kind, Role, Scope};
use safepoint::model::{CheckpointId, RelPath, WorkspaceId};
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
    if let Some(name) = &args.remote {
        return remote::published(context, &manager, (name, args));
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
    let partial = workspace.and_then(|workspace| {
        let partial = PartialRollback::last(manager, workspace)?;
        let typed = |path: &RelPath| context.surroundings.typed_path(workspace, path);
        Some(format!(
            "the state before the last {}, which {}",
            partial.verb(),
            partial.restored(naming, &typed)
        ))
    });
    Table { out: &context.out, naming, rows, partial }.print();
    if context.out.terminal {
        let shown: Vec<CheckpointId> = checkpoints.iter().map(|checkpoint| checkpoint.id).collect();
        rows::remember(manager.home(), &shown);
    }
    Ok(())
}

struct Row {
    id: String,
    when: String,
    brief: String,
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
            brief: briefly_ago(Surroundings::now(), checkpoint.created_at),
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
    /// Sentence about a partial rollback that led to the position.
    partial: Option<String>,
}

/// Widths of the columns of a table; `None` for one that is left out on a narrow terminal.
struct Widths {
    id: usize,
    when: usize,
    brief: bool,
    kind: Option<usize>,
    changed: Option<usize>,
    stored: Option<usize>,
}

impl Widths {
    /// Columns in front of the label, with the spaces between them.
    fn total(&self) -> usize {
        let optional = [self.kind, self.changed, self.stored].into_iter().flatten();
        self.id + self.when + 4 + optional.map(|width| width + 2).sum::<usize>()
    }
}

impl Table<'_> {
    /// Widths that leave room for labels: figures go as soon as a label would be cut; the kind, then long ages, where little is left of it.
    fn widths(&self, before: usize) -> Widths {
        let widest = |column: &dyn Fn(&Row) -> usize, title: &str| {
            self.rows.iter().map(column).max().unwrap_or(0).max(title.len())
        };
        let mut widths = Widths {
            id: self.naming.id_letters().max("CHECKPOINT".len()),
            when: widest(&|row| row.when.len(), "WHEN"),
            brief: false,
            kind: Some(widest(&|row| row.kind.len(), "KIND")),
            changed: Some(widest(&|row| row.changed_letters, "CHANGED")),
            stored: Some(widest(&|row| row.size.len(), "STORED")),
        };
        let left = |widths: &Widths| self.naming.left_after(before + widths.total());
        let longest = self.rows.iter().map(|row| columns(&row.label)).max().unwrap_or(0);
        let whole = |widths: &Widths| left(widths) >= longest.max(LABEL_LETTERS_MIN);
        let fits = |widths: &Widths| left(widths) >= LABEL_LETTERS_MIN;
        if !whole(&widths) {
            widths.stored = None;
        }
        if !whole(&widths) {
            widths.changed = None;
        }
        if !fits(&widths) {
            widths.kind = None;
        }
        if !fits(&widths) {
            widths.brief = true;
            widths.when = widest(&|row| row.brief.len(), "WHEN");
        }
        widths
    }

    fn print(&self) {
        let (margin, number) = (self.margin(), self.number_letters());
        let widths = self.widths(margin + number);
        let Widths { id, when, .. } = widths;
        let column = |width: Option<usize>, text: &str, letters: usize| {
            width.map(|width| format!("{text}{}  ", " ".repeat(width - letters))).unwrap_or_default()
        };
        let stored = |text: &str| widths.stored.map(|width| format!("{text:>width$}  ")).unwrap_or_default();
        let title = format!(
            "{:margin$}{:number$}{:id$}  {:when$}  {}{}{}LABEL",
            "",
            "",
            "CHECKPOINT",
            "WHEN",
            column(widths.kind, "KIND", "KIND".len()),
            column(widths.changed, "CHANGED", "CHANGED".len()),
            stored("STORED"),
        );
        self.out.remark(self.out.colours.dim(&title));
        let label_max = self.naming.left_after(title.len() - "LABEL".len());
        for (at, row) in (1..).zip(&self.rows) {
            let label = shortened(&row.label, label_max);
            let id_text = &row.id[..self.naming.id_letters()];
            let line = format!(
                "{:margin$}{}{}{}  {:when$}  {}{}{}{}",
                if row.here && margin > 0 { "*" } else { "" },
                self.number(at, number),
                self.id(row, id_text),
                " ".repeat(id - id_text.len()),
                if widths.brief { &row.brief } else { &row.when },
                column(widths.kind, &self.kind(row), row.kind.len()),
                column(widths.changed, &row.changed, row.changed_letters),
                stored(&row.size),
                if row.own { self.out.colours.dim(label) } else { label },
            );
            self.out.line(line.trim_end());
        }
        if margin > 0 {
            let what = self.partial.as_deref().unwrap_or("the position of the workspace");
            self.out.prose(self.out.colours.dim(format!("* @here: {what}")));
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

    fn kind(&self, row: &Row) -> String {
        let (colours, text) = (self.out.colours, &row.kind);
        match row.kind_colour {
            _ if row.own => colours.dim(text),
            Kind::Manual => colours.green(text),
            Kind::Automatic => colours.blue(text),
            Kind::Workflow => colours.cyan(text),
            Kind::Emergency => colours.red(text),
        }
    }
}
