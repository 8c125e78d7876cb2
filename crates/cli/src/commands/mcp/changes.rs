//! Changes for a model: a page of paths, counts of all, and a patch within a limit. Also the fingerprint of the
//! workspace, which is made of its changes.

use super::{Ground, digest};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::patch::Patch;
use safepoint::model::RelPath;
use safepoint::{Against, Comparison};
use safepoint_mcp::Page;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

impl Ground<'_> {
    pub(super) fn changes(
        &self,
        (from, to): (Option<&str>, Option<&str>),
        paths: &[String],
        page: Page,
        patch_bytes_max: usize,
    ) -> Result<Reply, Problem> {
        let path = |path: &String| self.context.surroundings.path_in(&self.workspace, OsStr::new(path));
        let paths: Vec<RelPath> = paths.iter().map(path).collect::<Result<_, _>>()?;
        // The position, as in `status`.
        let position = if self.workspace.head.is_some() { "@here" } else { "@" };
        let old = self.checkpoint(from.unwrap_or(position))?;
        let new = to.map(|to| self.checkpoint(to)).transpose()?;
        let new_id = new.as_ref().map(|new| new.id);
        let against = new.map_or(Against::Present, |new| Against::Checkpoint(Box::new(new)));
        let progress = &self.context.progress;
        let compared = self.manager.diff(&self.workspace, &old, &against, progress);
        let mut comparison =
            compared.map_err(|error| self.context.failed(&self.manager, &self.workspace, error.into()))?;
        let is_chosen = |path: &RelPath| paths.is_empty() || paths.iter().any(|above| path.is_within(above));
        comparison.changes.retain(|change| is_chosen(&change.path));
        let all = json::changes(&comparison.changes);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for change in &comparison.changes {
            *counts.entry(change.kind.to_string()).or_default() += 1;
        }
        let total = comparison.changes.len();
        comparison.changes = comparison.changes.drain(..).skip(page.skip).take(page.rows_max).collect();
        let (patch, cut) = patch(&comparison, patch_bytes_max)?;
        Ok(Reply::done(json!({
            "from": old.id,
            "to": new_id,
            "total": total,
            "counts": counts,
            "changes": comparison.changes.iter().map(row).collect::<Value>(),
            "patch": patch,
            "patch_cut": cut,
            "digest": digest(&all),
        })))
    }

    /// Fingerprint of the workspace: a checkpoint, and all changes since.
    pub(super) fn tree(&self, base: Option<&str>) -> Result<Reply, Problem> {
        let base = match (base, self.workspace.head) {
            (Some(base), _) => self.checkpoint(base)?,
            (None, Some(head)) => self.manager.checkpoints().get(head)?,
            (None, None) => self.checkpoint("@")?,
        };
        let progress = &self.context.progress;
        let compared = self.manager.diff(&self.workspace, &base, &Against::Present, progress);
        let comparison =
            compared.map_err(|error| self.context.failed(&self.manager, &self.workspace, error.into()))?;
        let tree = digest(&json!([base.id, json::changes(&comparison.changes)]));
        Ok(Reply::done(json!({ "base": base.id, "tree": tree, "changed": comparison.changes.len() })))
    }
}

/// Changed path without its hashes.
fn row(change: &safepoint::model::change::Change) -> Value {
    json!({ "path": change.path, "change": change.kind })
}

/// Unified diff, and true if it is longer.
fn patch(comparison: &Comparison<'_>, bytes_max: usize) -> Result<(String, bool), Problem> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let out = Printer::to(Box::new(Bounded { kept: Arc::clone(&kept), bytes_max }));
    Patch { comparison, out: &out }.print()?;
    out.flush();
    let bytes = kept.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), out.is_closed()))
}

/// Writer that fails beyond its limit.
struct Bounded {
    kept: Arc<Mutex<Vec<u8>>>,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.bytes_max.saturating_sub(kept.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let part = &bytes[..bytes.len().min(room)];
        kept.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
