//! Recovery data for parts of a rollback that are not files. Written with the intent.

use crate::fields::Fields;
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::params;
use safepoint_model::RollbackId;
use safepoint_model::checkpoint::PartKind;

/// Recovery data of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartNote {
    /// Kind of the part.
    pub kind: PartKind,
    /// Key of the part.
    pub key: String,
    /// Name of the program that it belongs to.
    pub program: String,
    /// Data that only the program understands.
    pub note: Vec<u8>,
}

impl Catalog {
    /// Returns the recovery data of a rollback's parts, in order of preparation.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn part_notes(&self, id: RollbackId) -> Result<Vec<PartNote>, CatalogError> {
        self.read(|connection| {
            let what = format_args!("the parts of rollback {id}");
            let sql = "SELECT * FROM rollback_parts WHERE rollback_id = ?1 ORDER BY position";
            query::all(connection, what, sql, [id.to_string()], |row| {
                let fields = Fields::new(row, "rollback_parts", id);
                Ok(PartNote {
                    kind: fields.parse("kind")?,
                    key: fields.get("key")?,
                    program: fields.get("program")?,
                    note: fields.get("note")?,
                })
            })
        })
    }
}

impl Transaction<'_> {
    /// Inserts the recovery data of a rollback's parts. The rollback must exist.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn insert_part_notes(&self, id: RollbackId, notes: &[PartNote]) -> Result<(), CatalogError> {
        for (position, one) in (0i64..).zip(notes) {
            query::run(
                self.connection,
                format_args!("a part of rollback {id}"),
                "INSERT INTO rollback_parts (rollback_id, position, kind, key, program, note)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![id.to_string(), position, one.kind.as_str(), one.key, one.program, one.note],
            )?;
        }
        Ok(())
    }
}
