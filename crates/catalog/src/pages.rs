//! Pages of checkpoints in commit order, with their places.

use crate::fields::{Fields, integer};
use crate::{Catalog, CatalogError, checkpoints, query};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use std::collections::HashMap;

/// Part of the timeline of a workspace, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Only checkpoints before this place.
    pub before: Option<u64>,
    /// Only checkpoints at this place or after it.
    pub from: Option<u64>,
    /// Only checkpoints of this session.
    pub session_id: Option<String>,
    /// Only checkpoints that this agent or tool took.
    pub source_tool: Option<String>,
    /// Only checkpoints of this plan.
    pub plan_id: Option<String>,
    /// Checkpoints that Safepoint makes for itself.
    pub own: OwnCheckpoints,
    /// Rows to skip.
    pub skip: u64,
    /// Maximum number of rows.
    pub limit: u64,
}

/// Selection of checkpoints that Safepoint makes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnCheckpoints {
    /// Listed with the others.
    #[default]
    Listed,
    /// Left out.
    LeftOut,
}

/// Checkpoint with its place in commit order.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Place; grows with each commit, and has gaps.
    pub seq: u64,
    /// Checkpoint.
    pub checkpoint: Checkpoint,
}

/// Consecutive checkpoints, summed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// First place.
    pub first: u64,
    /// Last place.
    pub last: u64,
    /// Earliest time.
    pub from: Timestamp,
    /// Latest time.
    pub to: Timestamp,
    /// Number of checkpoints.
    pub checkpoints: u64,
    /// Number of paths added, modified and removed.
    pub changed: u64,
}

/// Turn that begins or ends at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAt {
    /// Number in the workspace.
    pub number: u64,
    /// Agent.
    pub agent: String,
    /// True if the checkpoint is the state at its end.
    pub ends: bool,
}

impl Page {
    /// First page of a workspace.
    pub fn first(workspace: WorkspaceId, limit: u64) -> Self {
        let (before, from, session_id, source_tool, plan_id) = (None, None, None, None, None);
        let own = OwnCheckpoints::default();
        Self { workspace, before, from, session_id, source_tool, plan_id, own, skip: 0, limit }
    }

    /// Returns the values of the seven parameters of the condition.
    fn values(&self) -> Result<Vec<Value>, CatalogError> {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
        let place = |place: Option<u64>, otherwise| place.map_or(Ok(otherwise), |at| integer("seq", at));
        Ok(vec![
            Value::Text(self.workspace.to_string()),
            Value::Integer(place(self.before, i64::MAX)?),
            Value::Integer(place(self.from, 0)?),
            text(&self.session_id),
            text(&self.source_tool),
            text(&self.plan_id),
            Value::Integer(i64::from(self.own == OwnCheckpoints::LeftOut)),
        ])
    }
}

/// Condition of every page, as constant text.
macro_rules! paged {
    ($head:literal, $tail:literal) => {
        concat!(
            $head,
            " FROM checkpoints INDEXED BY checkpoints_page
              WHERE workspace_id = ?1 AND seq < ?2 AND seq >= ?3 AND (?4 IS NULL OR session_id = ?4)
                AND (?5 IS NULL OR source_tool = ?5) AND (?6 IS NULL OR plan_id = ?6)
                AND (?7 = 0 OR role IS NULL) ",
            $tail
        )
    };
}

impl Catalog {
    /// Returns a page of checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn page(&self, page: &Page) -> Result<Vec<Placed>, CatalogError> {
        let mut values = page.values()?;
        values.push(Value::Integer(integer("limit", page.limit)?));
        values.push(Value::Integer(integer("skip", page.skip)?));
        let sql = paged!("SELECT *", "ORDER BY seq DESC LIMIT ?8 OFFSET ?9");
        self.read(|connection| {
            query::all(connection, "a page of checkpoints", sql, params_from_iter(values), |row| {
                let seq = Fields::with_id(row, "checkpoints").number("seq")?;
                Ok(Placed { seq, checkpoint: checkpoints::read(connection, row)? })
            })
        })
    }

    /// Returns the number of checkpoints that a page is a part of.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn page_total(&self, page: &Page) -> Result<u64, CatalogError> {
        let values = Page { before: None, ..page.clone() }.values()?;
        let sql = paged!("SELECT count(*) AS total", "");
        let total = self.read(|connection| {
            query::first(connection, "the number of checkpoints", sql, params_from_iter(values), |row| {
                Fields::new(row, "checkpoints", "(sum)").number("total")
            })
        })?;
        Ok(total.unwrap_or(0))
    }

    /// Returns the place of a checkpoint in commit order.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn place(&self, id: CheckpointId) -> Result<Option<u64>, CatalogError> {
        self.checkpoint_order(Some(id))
    }

    /// Returns the whole timeline in this number of buckets, oldest first, each with about as many checkpoints.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn strip(&self, workspace: WorkspaceId, buckets: u64) -> Result<Vec<Bucket>, CatalogError> {
        let sql = "SELECT min(seq) AS first, max(seq) AS last, min(created_at) AS earliest, max(created_at) AS latest,
                       count(*) AS total,
                       sum(json_extract(files, '$.added') + json_extract(files, '$.modified')
                           + json_extract(files, '$.removed')) AS changed
                   FROM (SELECT seq, created_at, files, ntile(?2) OVER (ORDER BY seq) AS bucket
                         FROM checkpoints INDEXED BY checkpoints_page WHERE workspace_id = ?1)
                   GROUP BY bucket ORDER BY bucket";
        let params = params![workspace.to_string(), integer("buckets", buckets.max(1))?];
        self.read(|connection| {
            query::all(connection, "the strip of checkpoints", sql, params, |row| {
                let fields = Fields::new(row, "checkpoints", "(sum)");
                Ok(Bucket {
                    first: fields.number("first")?,
                    last: fields.number("last")?,
                    from: fields.time("earliest")?,
                    to: fields.time("latest")?,
                    checkpoints: fields.number("total")?,
                    changed: fields.number("changed")?,
                })
            })
        })
    }

    /// Returns the newest checkpoint with passing tests and no failing one.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn newest_passing(&self, workspace: WorkspaceId) -> Result<Option<CheckpointId>, CatalogError> {
        let sql = "SELECT id FROM checkpoints INDEXED BY checkpoints_page
                   WHERE workspace_id = ?1 AND json_extract(progress, '$.tests_passing') > 0
                       AND json_extract(progress, '$.tests_failing') = 0 ORDER BY seq DESC LIMIT 1";
        self.one_id(sql, workspace)
    }

    /// Returns the newest pinned checkpoint.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn newest_pinned(&self, workspace: WorkspaceId) -> Result<Option<CheckpointId>, CatalogError> {
        let sql = "SELECT id FROM checkpoints INDEXED BY checkpoints_page
                   WHERE workspace_id = ?1 AND pinned = 1 ORDER BY seq DESC LIMIT 1";
        self.one_id(sql, workspace)
    }

    fn one_id(
        &self,
        sql: &'static str,
        workspace: WorkspaceId,
    ) -> Result<Option<CheckpointId>, CatalogError> {
        self.read(|connection| {
            query::first(connection, "checkpoints", sql, [workspace.to_string()], |row| {
                Fields::with_id(row, "checkpoints").parse("id")
            })
        })
    }

    /// Returns the turns that begin or end at these checkpoints. An end comes before a beginning.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns_at(
        &self,
        workspace: WorkspaceId,
        ids: &[CheckpointId],
    ) -> Result<HashMap<CheckpointId, TurnAt>, CatalogError> {
        let after = "SELECT after_id AS id, number, agent FROM turns
                     WHERE workspace_id = ?1 AND after_id IN (SELECT value FROM json_each(?2)) ORDER BY number DESC";
        let before = "SELECT before_id AS id, number, agent FROM turns
                      WHERE workspace_id = ?1 AND before_id IN (SELECT value FROM json_each(?2)) ORDER BY number DESC";
        let list = crate::fields::json("ids", &ids)?;
        let mut found = HashMap::new();
        for (sql, ends) in [(after, true), (before, false)] {
            let rows = self.read(|connection| {
                query::all(connection, "turns", sql, params![workspace.to_string(), list], |row| {
                    let fields = Fields::with_id(row, "turns");
                    let turn = TurnAt { number: fields.number("number")?, agent: fields.get("agent")?, ends };
                    Ok((fields.parse("id")?, turn))
                })
            })?;
            for (id, turn) in rows {
                found.entry(id).or_insert(turn);
            }
        }
        Ok(found)
    }
}
