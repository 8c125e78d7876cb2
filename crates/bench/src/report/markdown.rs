//! Tables for `docs/benchmarks.md`.

use super::table::Table;
use super::write_text;
use crate::failure::Result;
use std::path::Path;

/// Writes lines and tables.
pub(crate) fn write(path: &Path, lines: &[String], tables: &[Table]) -> Result<()> {
    let mut parts: Vec<String> = vec![lines.join("  \n") + "\n"];
    parts.extend(tables.iter().map(Table::markdown));
    write_text(path, &parts.join("\n"))
}
