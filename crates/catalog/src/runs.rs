//! Runs of plans, and sandboxes of plans.

use crate::fields::Fields;
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::id::RunId;
use safepoint_model::plan::run::{Run, RunOutcome, Sandbox, SandboxState};
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

impl Catalog {
    /// Returns the last run of a plan.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_run(&self, plan: &str) -> Result<Option<Run>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM runs WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1)
                       ORDER BY seq DESC LIMIT 1";
            query::first(connection, format_args!("the runs of plan {plan}"), sql, [plan], read_run)
        })
    }

    /// Returns every run of a plan, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn runs(&self, plan: &str) -> Result<Vec<Run>, CatalogError> {
        self.read(|connection| {
            let sql =
                "SELECT * FROM runs WHERE plan_seq = (SELECT seq FROM plans WHERE id = ?1) ORDER BY seq";
            query::all(connection, format_args!("the runs of plan {plan}"), sql, [plan], read_run)
        })
    }

    /// Returns the sandbox with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn sandbox(&self, id: &str) -> Result<Option<Sandbox>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM sandboxes WHERE id = ?1";
            query::first(connection, format_args!("sandbox {id}"), sql, [id], read_sandbox)
        })
    }

    /// Returns the sandboxes of a workspace's plans, each with its plan.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn sandboxes(&self, workspace: WorkspaceId) -> Result<Vec<(String, Sandbox)>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT plans.id AS plan, sandboxes.* FROM plans JOIN sandboxes ON plan_seq = plans.seq
                       WHERE plans.workspace_id = ?1 ORDER BY plans.seq";
            let what = format_args!("the sandboxes of workspace {workspace}");
            query::all(connection, what, sql, [workspace.to_string()], |row| {
                let plan = Fields::with_id(row, "sandboxes").get("plan")?;
                Ok((plan, read_sandbox(row)?))
            })
        })
    }

    /// Returns the plan whose sandbox is this workspace, if any.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn plan_of_sandbox(&self, workspace: WorkspaceId) -> Result<Option<String>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT plans.id FROM sandboxes JOIN plans ON plans.seq = plan_seq
                       WHERE sandboxes.workspace_id = ?1";
            query::first(
                connection,
                format_args!("workspace {workspace}"),
                sql,
                [workspace.to_string()],
                |row| Fields::with_id(row, "plans").get("id"),
            )
        })
    }
}

impl Transaction<'_> {
    /// Inserts a run of a plan.
    ///
    /// # Errors
    /// When the plan is not found, or the row cannot be written.
    pub fn insert_run(&self, plan: &str, run: &Run) -> Result<(), CatalogError> {
        let sql = "INSERT INTO runs (id, plan_seq, pid, started_at)
                   SELECT ?2, seq, ?3, ?4 FROM plans WHERE id = ?1";
        let params = params![plan, run.id.to_string(), run.pid, run.started_at.micros()];
        if query::run(self.connection, format_args!("a run of plan {plan}"), sql, params)? == 0 {
            return Err(CatalogError::missing("plan", plan));
        }
        self.append_event(run.started_at, "plan.run", plan, &json!({ "run": run.id, "pid": run.pid }))
    }

    /// Records the end of a run. An earlier end is kept.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn end_run(
        &self,
        plan: &str,
        id: RunId,
        outcome: RunOutcome,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "UPDATE runs SET ended_at = ?2, outcome = ?3 WHERE id = ?1 AND ended_at IS NULL";
        let params = params![id.to_string(), at.micros(), outcome.as_str()];
        match query::run(self.connection, format_args!("run {id}"), sql, params)? {
            0 => Ok(()),
            _ => self.append_event(at, "plan.run_ended", plan, &json!({ "run": id, "outcome": outcome })),
        }
    }

    /// Inserts a sandbox. Its workspace and its base must exist.
    ///
    /// # Errors
    /// When the plan is not found, or the row cannot be written.
    pub fn insert_sandbox(&self, plan: &str, sandbox: &Sandbox) -> Result<(), CatalogError> {
        let sql = "INSERT INTO sandboxes (id, plan_seq, kind, path, state, base, created_at, workspace_id)
                   SELECT ?2, seq, ?3, ?4, ?5, ?6, ?7, ?8 FROM plans WHERE id = ?1";
        let params = params![
            plan,
            sandbox.id,
            sandbox.kind.as_str(),
            sandbox.path.as_os_str().as_bytes(),
            sandbox.state.as_str(),
            sandbox.base.to_string(),
            sandbox.created_at.micros(),
            sandbox.workspace_id.to_string(),
        ];
        if query::run(self.connection, format_args!("sandbox {}", sandbox.id), sql, params)? == 0 {
            return Err(CatalogError::missing("plan", plan));
        }
        let payload = json!({ "sandbox": sandbox.id, "path": sandbox.path.to_string_lossy() });
        self.append_event(sandbox.created_at, "plan.sandbox", plan, &payload)
    }

    /// Sets the state of a sandbox.
    ///
    /// # Errors
    /// When it is not found, or the row cannot be written.
    pub fn set_sandbox_state(&self, id: &str, state: SandboxState) -> Result<(), CatalogError> {
        let sql = "UPDATE sandboxes SET state = ?2 WHERE id = ?1";
        match query::run(self.connection, format_args!("sandbox {id}"), sql, params![id, state.as_str()])? {
            0 => Err(CatalogError::missing("sandbox", id)),
            _ => Ok(()),
        }
    }
}

/// Returns the plan whose active sandbox was created from a checkpoint: its result cannot be computed without
/// that checkpoint.
pub(crate) fn sandbox_from(
    connection: &Connection,
    checkpoint: CheckpointId,
) -> Result<Option<String>, CatalogError> {
    let sql = "SELECT plans.id FROM sandboxes JOIN plans ON plans.seq = plan_seq
               WHERE base = ?1 AND sandboxes.state = 'ready' AND plans.state NOT IN ('applied', 'cancelled')";
    let what = format_args!("the sandboxes that need checkpoint {checkpoint}");
    query::first(connection, what, sql, [checkpoint.to_string()], |row| {
        Fields::with_id(row, "plans").get("id")
    })
}

fn read_run(row: &Row<'_>) -> Result<Run, CatalogError> {
    let fields = Fields::with_id(row, "runs");
    let pid = fields.number("pid")?;
    Ok(Run {
        id: fields.parse("id")?,
        pid: u32::try_from(pid).map_err(|error| fields.damaged("pid", error))?,
        started_at: fields.time("started_at")?,
        ended_at: fields.time_maybe("ended_at")?,
        outcome: fields.parse_maybe("outcome")?,
    })
}

fn read_sandbox(row: &Row<'_>) -> Result<Sandbox, CatalogError> {
    let fields = Fields::with_id(row, "sandboxes");
    Ok(Sandbox {
        id: fields.get("id")?,
        kind: fields.parse("kind")?,
        path: PathBuf::from(OsString::from_vec(fields.get("path")?)),
        workspace_id: fields.parse("workspace_id")?,
        base: fields.parse("base")?,
        state: fields.parse("state")?,
        created_at: fields.time("created_at")?,
    })
}
