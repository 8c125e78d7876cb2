//! Rows of threads: states, heads, writes, and the values that they name.
//!
//! Saves append no event: a conversation saves many times a second. Deletions do. A value is written before the
//! row that names it, in the same transaction.

mod edit;
mod rows;

pub use edit::{ExistingWrites, ThreadEdit};
pub use rows::{StateQuery, StateRow, ThreadRow, ThreadRows, ValueRow, WriteRow};

use crate::{Catalog, CatalogError, Transaction};

impl Catalog {
    /// Runs reads of threads on one snapshot. Does not wait for a writer.
    ///
    /// # Errors
    /// The error of `work`, and when the catalog cannot be read.
    pub fn read_threads<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&ThreadRows<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.read_with(|connection| work(&ThreadRows { connection }))
    }
}

impl Transaction<'_> {
    /// Returns the rows of threads in this transaction.
    pub fn threads(&self) -> ThreadRows<'_> {
        ThreadRows { connection: self.connection }
    }

    /// Returns the changes of threads in this transaction.
    pub fn edit_threads(&self) -> ThreadEdit<'_> {
        ThreadEdit { transaction: self, connection: self.connection }
    }
}
