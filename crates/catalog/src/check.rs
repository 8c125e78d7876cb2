//! Check of the whole catalog: returns a list of problems, empty if it is intact.

use crate::filter::{Filter, RoleFilter};
use crate::{Catalog, CatalogError, ThreadRows, events, query};
use rusqlite::{Connection, Row};
use std::collections::HashSet;

impl Catalog {
    /// Checks the file, the references between rows, the history, and that every row can be parsed.
    ///
    /// # Errors
    /// When the catalog cannot be read for a reason other than damage.
    pub fn check(&self) -> Result<Vec<String>, CatalogError> {
        let mut problems = Vec::new();
        for check in [pages, references, history, integrity] {
            collect(&mut problems, self.read(check))?;
        }
        let every_checkpoint = Filter { role: RoleFilter::Any, ..Filter::default() };
        collect(&mut problems, self.checkpoints(&every_checkpoint).map(|_| Vec::new()))?;
        collect(&mut problems, self.sessions(None, None).map(|_| Vec::new()))?;
        collect(&mut problems, self.read(threads))?;
        match self.workspaces() {
            Ok(workspaces) => {
                for workspace in workspaces {
                    collect(&mut problems, self.rollbacks(workspace.id).map(|_| Vec::new()))?;
                }
            }
            Err(error) => collect(&mut problems, Err(error))?,
        }
        Ok(problems)
    }
}

impl Catalog {
    /// Returns true if the file itself is damaged, regardless of the rows.
    ///
    /// # Errors
    /// When the catalog cannot be read for a reason other than damage.
    pub fn has_damaged_pages(&self) -> Result<bool, CatalogError> {
        let mut problems = Vec::new();
        collect(&mut problems, self.read(pages))?;
        Ok(!problems.is_empty())
    }
}

/// Damage is a finding; any other error stops the check.
fn collect(problems: &mut Vec<String>, found: Result<Vec<String>, CatalogError>) -> Result<(), CatalogError> {
    match found {
        Ok(found) => problems.extend(found),
        Err(error) if error.is_damaged() => problems.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns the first column as text, whatever bytes it contains.
fn line(row: &Row<'_>) -> Result<String, CatalogError> {
    let value = row.get_ref(0).map_err(|error| CatalogError::read("a finding", error))?;
    Ok(value.as_bytes_or_null().ok().flatten().map(String::from_utf8_lossy).unwrap_or_default().into_owned())
}

fn pages(connection: &Connection) -> Result<Vec<String>, CatalogError> {
    let mut found = query::all(connection, "the pages", "PRAGMA integrity_check", (), line)?;
    found.retain(|line| line != "ok");
    Ok(found)
}

fn references(connection: &Connection) -> Result<Vec<String>, CatalogError> {
    let sql =
        "SELECT \"table\" || ' points at a row that is not in ' || \"parent\" FROM pragma_foreign_key_check";
    query::all(connection, "the references", sql, (), line)
}

/// Reads every row of threads: the first damaged one is reported.
fn threads(connection: &Connection) -> Result<Vec<String>, CatalogError> {
    let rows = ThreadRows { connection };
    let mut values: HashSet<u64> = HashSet::new();
    for seq in rows.value_numbers()? {
        rows.value(seq)?;
        values.insert(seq);
    }
    rows.each_piece(&mut |_| ())?;
    let mut problems = Vec::new();
    for thread in rows.all_threads()? {
        let states = rows.states(thread.seq)?;
        for (namespace, state) in rows.written_states(thread.seq)? {
            rows.writes(thread.seq, &namespace, &state)?;
        }
        for state in states {
            let named = state.channels.values().filter_map(|(_, value)| *value);
            problems.extend(named.filter(|value| !values.contains(value)).map(|value| {
                format!("state {} of thread {} lacks its value {value}", state.id, state.thread.id)
            }));
        }
    }
    Ok(problems)
}

fn history(connection: &Connection) -> Result<Vec<String>, CatalogError> {
    let broken = events::verify(connection)?.broken;
    Ok(broken.map(|event| format!("event {}: {}", event.seq, event.why)).into_iter().collect())
}

/// The history records the content of each checkpoint when it was created or last purged; a row that differs
/// was edited.
fn integrity(connection: &Connection) -> Result<Vec<String>, CatalogError> {
    let sql = "SELECT id FROM checkpoints WHERE (id, lower(hex(integrity))) NOT IN (
                   SELECT subject, coalesce(CASE WHEN json_valid(payload) THEN payload ->> 'integrity' END, '')
                   FROM events WHERE seq IN (
                       SELECT max(seq) FROM events WHERE kind IN ('checkpoint.created', 'checkpoint.purged')
                       GROUP BY subject))";
    query::all(connection, "the integrity of checkpoints", sql, (), |row| {
        line(row).map(|id| format!("checkpoint {id} differs from the history"))
    })
}
