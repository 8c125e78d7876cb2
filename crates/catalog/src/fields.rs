//! Conversion between values of the model and columns of a row.
//!
//! Stored data is untrusted: each value is parsed by the model, and a failure is reported with its table, row
//! and column.

use crate::CatalogError;
use rusqlite::Row;
use rusqlite::types::FromSql;
use safepoint_model::{ObjectId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::str::FromStr;

/// Row being read.
pub(crate) struct Fields<'r> {
    row: &'r Row<'r>,
    table: &'static str,
    id: String,
}

impl<'r> Fields<'r> {
    /// Wraps a row of this table, reported as `id`.
    pub(crate) fn new(row: &'r Row<'r>, table: &'static str, id: impl Display) -> Self {
        Self { row, table, id: id.to_string() }
    }

    /// Wraps a row of this table that has an `id` column.
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

    /// Parses a word or an id.
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
        self.number_maybe(column)?.ok_or_else(|| self.damaged(column, "the number is missing"))
    }

    pub(crate) fn number_maybe(&self, column: &str) -> Result<Option<u64>, CatalogError> {
        let number = self.get::<Option<i64>>(column)?;
        number
            .map(|number| u64::try_from(number).map_err(|_| self.damaged(column, "the number is negative")))
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
        self.time_maybe(column)?.ok_or_else(|| self.damaged(column, "the time is missing"))
    }

    pub(crate) fn time_maybe(&self, column: &str) -> Result<Option<Timestamp>, CatalogError> {
        let Some(micros) = self.get::<Option<i64>>(column)? else { return Ok(None) };
        let time = Timestamp::from_micros(micros);
        // The model clamps times to the calendar; such a time was never written here.
        if time.micros() != micros {
            return Err(self.damaged(column, "the time is beyond the calendar"));
        }
        Ok(Some(time))
    }
}

/// Converts a count to SQLite's 63 bits.
pub(crate) fn integer(what: &str, number: u64) -> Result<i64, CatalogError> {
    i64::try_from(number).map_err(|_| CatalogError::Value {
        what: what.to_owned(),
        why: format!("{number} is too large for the catalog"),
    })
}

/// Returns a value as JSON text.
pub(crate) fn json(what: &str, value: &impl Serialize) -> Result<String, CatalogError> {
    serde_json::to_string(value)
        .map_err(|error| CatalogError::Value { what: what.to_owned(), why: error.to_string() })
}
