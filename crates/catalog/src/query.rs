//! Runs constant SQL with bound values.
//!
//! SQL is `&'static str` here, so that untrusted text cannot become part of it.

use crate::CatalogError;
use rusqlite::{Connection, Params, Row};
use std::fmt::Display;

/// Returns every row, converted to a value.
pub(crate) fn all<T>(
    connection: &Connection,
    what: impl Display,
    sql: &'static str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, CatalogError>,
) -> Result<Vec<T>, CatalogError> {
    let failed = |error| CatalogError::read(&what, error);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params).map_err(failed)?;
    let mut values = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        values.push(read(row)?);
    }
    Ok(values)
}

/// Returns the first row, if any.
pub(crate) fn first<T>(
    connection: &Connection,
    what: impl Display,
    sql: &'static str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, CatalogError>,
) -> Result<Option<T>, CatalogError> {
    let failed = |error| CatalogError::read(&what, error);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params).map_err(failed)?;
    rows.next().map_err(failed)?.map(read).transpose()
}

/// Changes rows and returns their number.
pub(crate) fn run(
    connection: &Connection,
    what: impl Display,
    sql: &'static str,
    params: impl Params,
) -> Result<usize, CatalogError> {
    let mut statement = connection.prepare_cached(sql).map_err(|error| CatalogError::write(&what, error))?;
    statement.execute(params).map_err(|error| CatalogError::write(&what, error))
}
