//! Plans as records of the model. Only changed rows are written.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::state::{Decision, Plan, PlanState, Step};
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Plan with its catalog fields.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// Plan.
    pub plan: Plan,
    /// Workspace.
    pub workspace_id: WorkspaceId,
    /// Version; grows with every change.
    pub version: u64,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Plan in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Id.
    pub id: String,
    /// Workspace.
    pub workspace_id: WorkspaceId,
    /// Title.
    pub title: String,
    /// State.
    pub state: PlanState,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Event of a plan that is not part of its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanNote {
    /// Number.
    pub number: u64,
    /// Kind.
    pub kind: PlanNoteKind,
    /// Version of the plan at that time.
    pub version: u64,
    /// Time.
    pub at: Timestamp,
    /// Details.
    pub body: Value,
}

/// Checkpoint of a plan, with the fields needed to choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanCheckpoint {
    /// Id of the checkpoint.
    pub checkpoint: CheckpointId,
    /// Version of the plan in it.
    pub version: u64,
    /// True if the plan was healthy.
    pub healthy: bool,
}

/// Context or output value of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Named {
    key: String,
    value: Value,
}

const KINDS: [&str; 4] = ["step", "decision", "context", "output"];

/// Returns the rows of a plan, by kind and in order.
fn rows_of(plan: &Plan) -> Result<[Vec<String>; 4], CatalogError> {
    fn all<T: Serialize>(
        what: &'static str,
        items: impl Iterator<Item = T>,
    ) -> Result<Vec<String>, CatalogError> {
        items.map(|item| json(what, &item)).collect()
    }
    let named = |(key, value): (&String, &Value)| Named { key: key.clone(), value: value.clone() };
    Ok([
        all("step", plan.steps.iter())?,
        all("decision", plan.decisions.iter())?,
        all("context", plan.context.iter().map(named))?,
        all("output", plan.outputs.iter().map(named))?,
    ])
}

/// Returns the part of a plan without separate rows.
fn head_of(plan: &Plan) -> Result<String, CatalogError> {
    json("head", &plan.head())
}

impl Catalog {
    /// Returns the plan with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan(&self, id: &str) -> Result<Option<PlanRecord>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns every plan, or those of a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plans(&self, workspace: Option<WorkspaceId>) -> Result<Vec<PlanSummary>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM plans WHERE ?1 IS NULL OR workspace_id = ?1 ORDER BY seq DESC";
            let workspace = workspace.map(|id| id.to_string());
            query::all(connection, "the plans", sql, [workspace], |row| {
                let fields = Fields::with_id(row, "plans");
                Ok(PlanSummary {
                    id: fields.get("id")?,
                    workspace_id: fields.parse("workspace_id")?,
                    title: fields.get("title")?,
                    state: fields.parse("state")?,
                    created_at: fields.time("created_at")?,
                    updated_at: fields.time("updated_at")?,
                })
            })
        })
    }

    /// Returns the notes on a plan, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan_notes(&self, id: &str) -> Result<Vec<PlanNote>, CatalogError> {
        self.read(|connection| notes(connection, id))
    }

    /// Returns the checkpoints of a plan, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan_checkpoints(&self, id: &str) -> Result<Vec<PlanCheckpoint>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT checkpoint_id AS id, version, healthy FROM plan_checkpoints
                       JOIN checkpoints ON checkpoints.id = checkpoint_id
                       WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1) ORDER BY checkpoints.seq DESC";
            query::all(connection, format_args!("the checkpoints of plan {id}"), sql, [id], |row| {
                let fields = Fields::with_id(row, "plan_checkpoints");
                Ok(PlanCheckpoint {
                    checkpoint: fields.parse("id")?,
                    version: fields.number("version")?,
                    healthy: fields.flag("healthy")?,
                })
            })
        })
    }
}

impl Transaction<'_> {
    /// Returns the plan with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan(&self, id: &str) -> Result<Option<PlanRecord>, CatalogError> {
        get(self.connection, id)
    }

    /// Returns the notes on a plan, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan_notes(&self, id: &str) -> Result<Vec<PlanNote>, CatalogError> {
        notes(self.connection, id)
    }

    /// Inserts a plan.
    ///
    /// # Errors
    /// When the id is taken, the workspace is unknown, or the rows cannot be written.
    pub fn insert_plan(
        &self,
        plan: &Plan,
        workspace: WorkspaceId,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        if self.workspace(workspace)?.is_none() {
            return Err(CatalogError::missing("workspace", workspace));
        }
        if self.plan(&plan.id)?.is_some() {
            return Err(CatalogError::Taken { what: "plan", id: plan.id.clone() });
        }
        query::run(
            self.connection,
            format_args!("plan {}", plan.id),
            "INSERT INTO plans (id, workspace_id, title, state, version, created_at, updated_at, head)
             VALUES (?1, ?2, ?3, ?4, 0, ?5, ?5, ?6)",
            params![
                plan.id,
                workspace.to_string(),
                plan.title,
                plan.state.as_str(),
                at.micros(),
                head_of(plan)?
            ],
        )?;
        self.write_items(plan)?;
        let payload = json!({ "workspace_id": workspace, "title": plan.title });
        self.append_event(at, "plan.created", &plan.id, &payload)
    }

    /// Replaces a plan. `what` names the change, for the history. Returns the new version.
    ///
    /// # Errors
    /// When the plan is not found, or the rows cannot be written.
    pub fn save_plan(&self, plan: &Plan, what: &str, at: Timestamp) -> Result<u64, CatalogError> {
        let sql = "UPDATE plans SET title = ?2, state = ?3, version = version + 1, updated_at = ?4, head = ?5
                   WHERE id = ?1";
        let params = params![plan.id, plan.title, plan.state.as_str(), at.micros(), head_of(plan)?];
        if query::run(self.connection, format_args!("plan {}", plan.id), sql, params)? == 0 {
            return Err(CatalogError::missing("plan", &plan.id));
        }
        self.write_items(plan)?;
        self.append_event(at, "plan.changed", &plan.id, &json!({ "what": what, "state": plan.state }))?;
        self.plan_version(&plan.id)
    }

    /// Returns the version of a plan.
    ///
    /// # Errors
    /// When the plan is not found, or the catalog cannot be read.
    pub fn plan_version(&self, id: &str) -> Result<u64, CatalogError> {
        let sql = "SELECT id, version FROM plans WHERE id = ?1";
        query::first(self.connection, format_args!("plan {id}"), sql, [id], |row| {
            Fields::with_id(row, "plans").number("version")
        })?
        .ok_or_else(|| CatalogError::missing("plan", id))
    }

    /// Returns the version of the plan in a checkpoint.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan_checkpoint_version(&self, id: CheckpointId) -> Result<Option<u64>, CatalogError> {
        let sql = "SELECT checkpoint_id AS id, version FROM plan_checkpoints WHERE checkpoint_id = ?1";
        query::first(self.connection, format_args!("checkpoint {id}"), sql, [id.to_string()], |row| {
            Fields::with_id(row, "plan_checkpoints").number("version")
        })
    }

    /// Writes the changed rows.
    fn write_items(&self, plan: &Plan) -> Result<(), CatalogError> {
        let what = format_args!("plan {}", plan.id);
        let known = items(self.connection, &plan.id)?;
        for ((kind, new), old) in KINDS.into_iter().zip(rows_of(plan)?).zip(known) {
            for (position, body) in
                (0i64..).zip(&new).filter(|(at, body)| old.get(*at as usize) != Some(*body))
            {
                let sql = "INSERT OR REPLACE INTO plan_items (plan_seq, kind, position, body)
                           VALUES ((SELECT seq FROM plans WHERE id = ?1), ?2, ?3, ?4)";
                query::run(self.connection, what, sql, params![plan.id, kind, position, body])?;
            }
            if old.len() > new.len() {
                let sql = "DELETE FROM plan_items WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1)
                           AND kind = ?2 AND position >= ?3";
                let from = integer("position", new.len() as u64)?;
                query::run(self.connection, what, sql, params![plan.id, kind, from])?;
            }
        }
        Ok(())
    }

    /// Adds a note on an event of a plan that is not part of its state.
    ///
    /// # Errors
    /// When the plan is not found, or the row cannot be written.
    pub fn note_plan(
        &self,
        id: &str,
        kind: PlanNoteKind,
        body: &Value,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let version = integer("version", self.plan_version(id)?)?;
        let sql = "INSERT INTO plan_notes (plan_seq, number, kind, version, at, body)
                   SELECT seq, (SELECT coalesce(max(number) + 1, 0) FROM plan_notes WHERE plan_seq = seq), ?2, ?3, ?4, ?5
                   FROM plans WHERE id = ?1";
        let params = params![id, kind.as_str(), version, at.micros(), json("body", body)?];
        query::run(self.connection, format_args!("a note on plan {id}"), sql, params)?;
        self.append_event(at, &format!("plan.{kind}"), id, body)
    }

    /// Records the plan version of a checkpoint. The checkpoint must exist.
    ///
    /// # Errors
    /// When the plan or the checkpoint is not found, or the row cannot be written.
    pub fn link_plan_checkpoint(&self, id: &str, link: &PlanCheckpoint) -> Result<(), CatalogError> {
        let sql = "INSERT INTO plan_checkpoints (checkpoint_id, plan_seq, version, healthy)
                   SELECT ?2, seq, ?3, ?4 FROM plans WHERE id = ?1";
        let version = integer("version", link.version)?;
        let params = params![id, link.checkpoint.to_string(), version, link.healthy];
        match query::run(self.connection, format_args!("a checkpoint of plan {id}"), sql, params)? {
            0 => Err(CatalogError::missing("plan", id)),
            _ => Ok(()),
        }
    }
}

/// Returns the stored rows, by kind and in order.
fn items(connection: &Connection, id: &str) -> Result<[Vec<String>; 4], CatalogError> {
    let mut found: [Vec<String>; 4] = Default::default();
    let sql = "SELECT kind, body FROM plan_items WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1)
               ORDER BY kind, position";
    query::all(connection, format_args!("plan {id}"), sql, [id], |row| {
        let fields = Fields::new(row, "plan_items", id);
        let kind: String = fields.get("kind")?;
        let at = KINDS.iter().position(|known| *known == kind);
        let at = at.ok_or_else(|| fields.damaged("kind", format_args!("{kind:?} is unknown")))?;
        found[at].push(fields.get("body")?);
        Ok(())
    })?;
    Ok(found)
}

fn get(connection: &Connection, id: &str) -> Result<Option<PlanRecord>, CatalogError> {
    let what = format_args!("plan {id}");
    let sql = "SELECT * FROM plans WHERE id = ?1";
    let Some(mut record) = query::first(connection, what, sql, [id], read)? else { return Ok(None) };
    let damaged = |error: serde_json::Error| CatalogError::Damaged {
        table: "plan_items",
        id: id.to_owned(),
        why: error.to_string(),
    };
    let [steps, decisions, context, outputs] = items(connection, id)?;
    let named = |rows: &[String]| -> Result<_, serde_json::Error> {
        rows.iter()
            .map(|row| serde_json::from_str::<Named>(row).map(|Named { key, value }| (key, value)))
            .collect()
    };
    let plan = &mut record.plan;
    plan.steps = steps
        .iter()
        .map(|row| serde_json::from_str::<Step>(row))
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    plan.decisions = decisions
        .iter()
        .map(|row| serde_json::from_str::<Decision>(row))
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    plan.context = named(&context).map_err(damaged)?;
    plan.outputs = named(&outputs).map_err(damaged)?;
    Ok(Some(record))
}

fn read(row: &Row<'_>) -> Result<PlanRecord, CatalogError> {
    let fields = Fields::with_id(row, "plans");
    Ok(PlanRecord {
        plan: fields.json("head")?,
        workspace_id: fields.parse("workspace_id")?,
        version: fields.number("version")?,
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
    })
}

fn notes(connection: &Connection, id: &str) -> Result<Vec<PlanNote>, CatalogError> {
    let sql =
        "SELECT * FROM plan_notes WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1) ORDER BY number";
    query::all(connection, format_args!("the notes on plan {id}"), sql, [id], |row| {
        let fields = Fields::new(row, "plan_notes", id);
        Ok(PlanNote {
            number: fields.number("number")?,
            kind: fields.parse("kind")?,
            version: fields.number("version")?,
            at: fields.time("at")?,
            body: fields.json("body")?,
        })
    })
}
