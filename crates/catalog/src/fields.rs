//! Between the values of the model and the columns of a row.
//!
//! What is read was on a disk and may be anything: each value goes through the model's own parser, and what does
//! not parse is reported with its table, row and column.

use crate::CatalogError;
use rusqlite::Row;
use rusqlite::types::FromSql;
use safepoint_model::{ObjectId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::str::FromStr;

/// A row that is being read.
pub(crate) struct Fields<'r> {
    row: &'r Row<'r>,
    table: &'static str,
    id: String,
}

impl<'r> Fields<'r> {
    /// The row of this table, known to people by `id`.
    pub(crate) fn new(row: &'r Row<'r>, table: &'static str, id: impl Display) -> Self {
        Self { row, table, id: id.to_string() }
    }

    /// The row of this table that carries its own id.
    pub(crate) fn with_id(row: &'r Row<'r>, table: &'static str) -> Self {
        let id = row.get("id").unwrap_or_else(|_| "(unreadable id)".to_owned());
        Self { row, table, id }
    }

    pub(crate) fn damaged(&self, column: &str, why: impl Display) -> CatalogError {
        CatalogError::Damaged { table: self.table, id: self.id.clone(), why: format!("{column}: {why}") }
    }

    pub(crate) fn get<T: FromSql>(&self, column: &str) -> Result<T, CatalogError> {
        self.row.get(column).map_err(|error| self.damaged(column, error))
    }

    /// A word or an id.
    pub(crate) fn parse<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T, CatalogError> {
        self.parse_text(column, &self.get::<String>(column)?)
    }

    pub(crate) fn parse_maybe<T: FromStr<Err: Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, CatalogError> {
        self.get::<Option<String>>(column)?.map(|text| self.parse_text(column, &text)).transpose()
    }

    fn parse_text<T: FromStr<Err: Display>>(&self, column: &str, text: &str) -> Result<T, CatalogError> {
        text.parse().map_err(|error| self.damaged(column, error))
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, CatalogError> {
        let text = self.row.get_ref(column).map_err(|error| self.damaged(column, error))?;
        let text = text.as_str().map_err(|error| self.damaged(column, error))?;
        serde_json::from_str(text).map_err(|error| self.damaged(column, error))
    }

    pub(crate) fn number(&self, column: &str) -> Result<u64, CatalogError> {
        self.number_maybe(column)?.ok_or_else(|| self.damaged(column, "there is no number"))
    }

    pub(crate) fn number_maybe(&self, column: &str) -> Result<Option<u64>, CatalogError> {
        let number = self.get::<Option<i64>>(column)?;
        number
            .map(|number| u64::try_from(number).map_err(|_| self.damaged(column, "the number is below zero")))
            .transpose()
    }

    pub(crate) fn flag(&self, column: &str) -> Result<bool, CatalogError> {
        match self.get::<i64>(column)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damaged(column, format_args!("{other} is neither 0 nor 1"))),
        }
    }

    pub(crate) fn hash(&self, column: &str) -> Result<ObjectId, CatalogError> {
        self.get(column).map(ObjectId::from_bytes)
    }

    pub(crate) fn hash_maybe(&self, column: &str) -> Result<Option<ObjectId>, CatalogError> {
        Ok(self.get::<Option<[u8; 32]>>(column)?.map(ObjectId::from_bytes))
    }

    pub(crate) fn time(&self, column: &str) -> Result<Timestamp, CatalogError> {
        self.time_maybe(column)?.ok_or_else(|| self.damaged(column, "there is no time"))
    }

    pub(crate) fn time_maybe(&self, column: &str) -> Result<Option<Timestamp>, CatalogError> {
        let Some(micros) = self.get::<Option<i64>>(column)? else { return Ok(None) };
        let time = Timestamp::from_micros(micros);
        // The model moves what no calendar shows to the nearest moment; such a time was never written here.
        if time.micros() != micros {
            return Err(self.damaged(column, "the time is beyond the calendar"));
        }
        Ok(Some(time))
    }
}

/// A count as SQLite holds it: 63 bits.
pub(crate) fn integer(what: &str, number: u64) -> Result<i64, CatalogError> {
    i64::try_from(number).map_err(|_| CatalogError::Value {
        what: what.to_owned(),
        why: format!("{number} is more than the catalog can count"),
    })
}

/// A value as JSON text.
pub(crate) fn json(what: &str, value: &impl Serialize) -> Result<String, CatalogError> {
    serde_json::to_string(value)
        .map_err(|error| CatalogError::Value { what: what.to_owned(), why: error.to_string() })
}
