//! What parts of a rollback need to be put back after a crash, for parts that are not files. Written with the intent.

use crate::fields::Fields;
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::params;
use safepoint_model::RollbackId;
use safepoint_model::checkpoint::PartKind;

/// What one part of a rollback needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartNote {
    /// Its kind.
    pub kind: PartKind,
    /// Which one of its kind.
    pub key: String,
    /// The program that it belongs to, as people know it.
    pub program: String,
    /// What only the program understands.
    pub note: Vec<u8>,
}

impl Catalog {
    /// What the parts of a rollback need, in the order in which they were prepared.
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
    /// Notes what the parts of a rollback need. The rollback must be on record.
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
