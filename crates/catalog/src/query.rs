//! Running constant SQL with bound values: in come a statement and its values, out come rows or a count.
//!
//! SQL is `&'static str` here, so text from outside cannot become part of it.

use crate::CatalogError;
use rusqlite::{Connection, Params, Row};
use std::fmt::Display;

/// Every row, each made into a value.
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

/// The first row, if there is one.
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

/// Changes rows and says how many.
pub(crate) fn run(
    connection: &Connection,
    what: impl Display,
    sql: &'static str,
    params: impl Params,
) -> Result<usize, CatalogError> {
    let mut statement = connection.prepare_cached(sql).map_err(|error| CatalogError::write(&what, error))?;
    statement.execute(params).map_err(|error| CatalogError::write(&what, error))
}
