//! Steps of a rollback's intent: written completely before the first runs, and all that recovery needs.

use crate::fields::{Fields, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, params};
use safepoint_model::RollbackId;
use safepoint_model::rollback::SwapStep;

impl Catalog {
    /// Returns the steps of a rollback, in order.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn steps(&self, id: RollbackId) -> Result<Vec<SwapStep>, CatalogError> {
        self.read(|connection| list(connection, id))
    }
}

impl Transaction<'_> {
    /// Returns the steps of a rollback, in order.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn steps(&self, id: RollbackId) -> Result<Vec<SwapStep>, CatalogError> {
        list(self.connection, id)
    }
}

/// Inserts the steps of the rollback with this row number.
pub(crate) fn insert(
    connection: &Connection,
    id: RollbackId,
    seq: i64,
    steps: &[SwapStep],
) -> Result<(), CatalogError> {
    let failed = |error| CatalogError::write(format_args!("the steps of rollback {id}"), error);
    let sql = "INSERT INTO rollback_steps (rollback_seq, position, step) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    for (position, step) in (0i64..).zip(steps) {
        statement.execute(params![seq, position, json("a step", step)?]).map_err(failed)?;
    }
    Ok(())
}

fn list(connection: &Connection, id: RollbackId) -> Result<Vec<SwapStep>, CatalogError> {
    let sql = "SELECT step FROM rollback_steps WHERE rollback_seq = (SELECT seq FROM rollbacks WHERE id = ?1)
               ORDER BY position";
    query::all(connection, format_args!("the steps of rollback {id}"), sql, [id.to_string()], |row| {
        Fields::new(row, "rollback_steps", id).json("step")
    })
}
