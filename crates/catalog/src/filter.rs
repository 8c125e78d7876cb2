//! Filters: checkpoints, newest first, or their sums.

use crate::fields::{Fields, integer};
use crate::{Catalog, CatalogError, Transaction, checkpoints, query};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use safepoint_model::checkpoint::{Checkpoint, Kind, Reason, Role, Scope};
use safepoint_model::{CheckpointId, WorkspaceId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// Filter for checkpoints; an absent field matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Workspace.
    pub workspace: Option<WorkspaceId>,
    /// Plan.
    pub plan_id: Option<String>,
    /// Session.
    pub session_id: Option<String>,
    /// Kind.
    pub kind: Option<Kind>,
    /// Reason.
    pub reason: Option<Reason>,
    /// Scope.
    pub scope: Option<Scope>,
    /// Role.
    pub role: RoleFilter,
    /// Maximum number, newest first. Sums include all.
    pub limit: Option<u64>,
}

/// Filter for checkpoints that Safepoint makes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoleFilter {
    /// Only requested ones, without a role.
    #[default]
    Asked,
    /// All.
    Any,
    /// Only those with this role.
    Only(Role),
    /// All but those of this role.
    Except(Role),
}

/// Sums over checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Number of checkpoints.
    pub total_checkpoints: u64,
    /// Number of checkpoints by kind.
    pub checkpoints_by_kind: BTreeMap<Kind, u64>,
    /// Number of checkpoints by reason.
    pub checkpoints_by_reason: BTreeMap<Reason, u64>,
    /// Number of checkpoints that a rollback restored.
    pub checkpoints_used_for_rollback: u64,
    /// Number of those that Safepoint made beside these, such as before a rollback.
    pub safety_checkpoints: u64,
    /// Newest checkpoint.
    pub latest_checkpoint: Option<Box<Checkpoint>>,
}

impl Summary {
    /// Returns the sums over these checkpoints, newest first. Checkpoints that Safepoint made for itself are counted separately.
    pub fn of(checkpoints: &[Checkpoint]) -> Self {
        let asked: Vec<&Checkpoint> = checkpoints.iter().filter(|it| it.role.is_none()).collect();
        let mut summary = Self {
            total_checkpoints: asked.len() as u64,
            checkpoints_by_kind: BTreeMap::new(),
            checkpoints_by_reason: BTreeMap::new(),
            checkpoints_used_for_rollback: 0,
            safety_checkpoints: (checkpoints.len() - asked.len()) as u64,
            latest_checkpoint: asked.first().map(|newest| Box::new((*newest).clone())),
        };
        for checkpoint in asked {
            *summary.checkpoints_by_kind.entry(checkpoint.kind).or_default() += 1;
            *summary.checkpoints_by_reason.entry(checkpoint.reason).or_default() += 1;
            summary.checkpoints_used_for_rollback += u64::from(checkpoint.rollback_used);
        }
        summary
    }
}

/// Condition of every filter, as constant text. A null parameter matches everything.
macro_rules! filtered {
    ($head:literal, $tail:literal) => {
        concat!(
            $head,
            " FROM checkpoints
              WHERE (?1 IS NULL OR workspace_id = ?1) AND (?2 IS NULL OR plan_id = ?2)
                AND (?3 IS NULL OR session_id = ?3) AND (?4 IS NULL OR kind = ?4) AND (?5 IS NULL OR reason = ?5)
                AND (?6 IS NULL OR scope = ?6)
                AND CASE ?7 WHEN '' THEN role IS NULL WHEN '*' THEN TRUE
                    ELSE CASE substr(?7, 1, 1) WHEN '-' THEN role IS NULL OR '-' || role <> ?7 ELSE role = ?7 END END ",
            $tail
        )
    };
}

impl Filter {
    /// Returns the values of the seven parameters.
    fn values(&self) -> Vec<Value> {
        let maybe = |text: Option<String>| text.map_or(Value::Null, Value::Text);
        let role = match self.role {
            RoleFilter::Asked => String::new(),
            RoleFilter::Any => "*".to_owned(),
            RoleFilter::Only(role) => role.to_string(),
            RoleFilter::Except(role) => format!("-{role}"),
        };
        vec![
            maybe(self.workspace.map(|id| id.to_string())),
            maybe(self.plan_id.clone()),
            maybe(self.session_id.clone()),
            maybe(self.kind.map(|word| word.to_string())),
            maybe(self.reason.map(|word| word.to_string())),
            maybe(self.scope.map(|word| word.to_string())),
            Value::Text(role),
        ]
    }

    /// Returns the seven values and the limit.
    fn values_with_limit(&self) -> Result<Vec<Value>, CatalogError> {
        let mut values = self.values();
        // SQLite treats a negative limit as no limit.
        let limit = self.limit.map_or(Ok(-1), |limit| integer("limit", limit))?;
        values.push(Value::Integer(limit));
        Ok(values)
    }
}

impl Catalog {
    /// Returns the matching checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoints(&self, filter: &Filter) -> Result<Vec<Checkpoint>, CatalogError> {
        self.read(|connection| list(connection, filter))
    }

    /// Returns the ids of the matching checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint_ids(&self, filter: &Filter) -> Result<Vec<CheckpointId>, CatalogError> {
        let sql = filtered!("SELECT id", "ORDER BY seq DESC LIMIT ?8");
        let values = filter.values_with_limit()?;
        self.read(|connection| {
            query::all(connection, "checkpoints", sql, params_from_iter(values), |row| {
                Fields::with_id(row, "checkpoints").parse("id")
            })
        })
    }

    /// Returns the sums over the matching checkpoints.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn summary(&self, filter: &Filter) -> Result<Summary, CatalogError> {
        self.read(|connection| summary(connection, filter))
    }
}

impl Transaction<'_> {
    /// Returns the matching checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoints(&self, filter: &Filter) -> Result<Vec<Checkpoint>, CatalogError> {
        list(self.connection, filter)
    }
}

pub(crate) fn list(connection: &Connection, filter: &Filter) -> Result<Vec<Checkpoint>, CatalogError> {
    let sql = filtered!("SELECT *", "ORDER BY seq DESC LIMIT ?8");
    let values = filter.values_with_limit()?;
    query::all(connection, "checkpoints", sql, params_from_iter(values), |row| {
        checkpoints::read(connection, row)
    })
}

fn summary(connection: &Connection, filter: &Filter) -> Result<Summary, CatalogError> {
    let totals = query::first(
        connection,
        "the sums over checkpoints",
        filtered!("SELECT count(*) AS total, coalesce(sum(rollback_used), 0) AS used", ""),
        params_from_iter(filter.values()),
        |row| {
            let fields = Fields::new(row, "checkpoints", "(sum)");
            Ok((fields.number("total")?, fields.number("used")?))
        },
    )?;
    let (total_checkpoints, checkpoints_used_for_rollback) = totals.unwrap_or_default();
    let by_kind = filtered!("SELECT kind AS word, count(*) AS total", "GROUP BY kind");
    let by_reason = filtered!("SELECT reason AS word, count(*) AS total", "GROUP BY reason");
    let newest = Filter { limit: Some(1), ..filter.clone() };
    let made_by = |role| {
        let sql = filtered!("SELECT count(*) AS total", "");
        let values = Filter { role, ..filter.clone() }.values();
        let read = |row: &Row<'_>| Fields::new(row, "checkpoints", "(sum)").number("total");
        query::first(connection, "the sums over checkpoints", sql, params_from_iter(values), read)
    };
    let all = made_by(RoleFilter::Any)?.unwrap_or(0);
    let asked = made_by(RoleFilter::Asked)?.unwrap_or(0);
    Ok(Summary {
        total_checkpoints,
        checkpoints_by_kind: counts(connection, by_kind, filter)?,
        checkpoints_by_reason: counts(connection, by_reason, filter)?,
        checkpoints_used_for_rollback,
        safety_checkpoints: all.saturating_sub(asked),
        latest_checkpoint: list(connection, &newest)?.pop().map(Box::new),
    })
}

fn counts<T: FromStr<Err: Display> + Ord>(
    connection: &Connection,
    sql: &'static str,
    filter: &Filter,
) -> Result<BTreeMap<T, u64>, CatalogError> {
    let read = |row: &Row<'_>| {
        let fields = Fields::new(row, "checkpoints", "(sum)");
        Ok((fields.parse("word")?, fields.number("total")?))
    };
    let rows =
        query::all(connection, "the sums over checkpoints", sql, params_from_iter(filter.values()), read)?;
    Ok(rows.into_iter().collect())
}
