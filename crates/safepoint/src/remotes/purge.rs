//! PURGE: published checkpoints of a workspace are replaced by ones without purged paths, and the packs that held the content are deleted.
//!
//! In: purges on record, each with its paths. A push publishes nothing new then: it replaces every row of the workspace, so that no row
//! lists an old pack. Only then the old packs are deleted, without grace. The names of these packs are on record with the push: killed
//! anywhere, the next push goes on. Rows of others that appear during the run are replaced in another round.

use super::all_of;
use super::gather::{Base, gather};
use super::publishable::{Outgoing, Publishable};
use super::push::{Pending, Pushing};
use super::take::value;
use crate::Error;
use crate::upkeep::Thoroughness;
use safepoint_catalog::StoredLine;
use safepoint_model::{ObjectError, RelPath};
use safepoint_remote::{
    LineState, PackName, PushDocument, PushedCheckpoint, Reached, RemoteCheckpoint, RemoteError,
    ReplacedCheckpoint,
};
use serde_json::json;
use std::collections::BTreeSet;

/// Rounds of one push, for rows that others publish during the run.
const ROUNDS_MAX: u32 = 5;

/// Purges of a workspace, with their numbers.
type Purges = [(i64, Vec<RelPath>)];

impl Pushing<'_> {
    pub(super) fn purges(&self) -> Result<Vec<(i64, Vec<RelPath>)>, Error> {
        if self.pushed.purge_refused {
            return Ok(Vec::new());
        }
        let (name, workspace) = self.key();
        Ok(self.manager.catalog.remote_purges(name, workspace)?)
    }

    /// Takes a push back that was not published; one that was is put on record.
    pub(super) fn withdraw(&mut self, line: &StoredLine, pending: &Pending) -> Result<(), Error> {
        match self.without_files(pending) {
            Ok(state) => return self.commit(pending, &state),
            Err(Error::Remote(RemoteError::Gone { .. })) => {}
            Err(other) => return Err(other),
        }
        // Uploads of it may hold the content, too.
        let names: Vec<PackName> = pending.push.new.iter().map(|pack| pack.name.clone()).collect();
        match self.remote.purge_packs(&names) {
            Err(RemoteError::Denied { .. }) => self.pushed.purge_refused = true,
            other => other?,
        }
        self.set(&StoredLine { pending: None, base: None, ..line.clone() })
    }

    /// Builds the push that replaces every published checkpoint of the workspace.
    pub(super) fn prepare_purge(
        &mut self,
        line: &StoredLine,
        state: &LineState,
        purges: &Purges,
    ) -> Result<(), Error> {
        let numbers: Vec<i64> = purges.iter().map(|(number, _)| *number).collect();
        let rows = self.rows(purges)?;
        if rows.is_empty() {
            return self
                .manager
                .catalog
                .write::<(), Error>(|transaction| Ok(transaction.end_remote_purges(&numbers)?));
        }
        let _using = self.manager.store.using()?;
        self.manager.settle_chunks()?;
        let outgoing = Outgoing::new(&self.manager.store, &self.exclude);
        let (mut found, mut replaced) = (Reached::default(), Vec::new());
        for row in rows {
            if self.progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
            let checkpoint = self.manager.checkpoints().get(row.id)?;
            let published = self.manager.publishable(&checkpoint, &outgoing, self.options.memory)?;
            gather(&outgoing, &published, &Base::default(), &|_| false, &mut found)?;
            replaced.push((row, published));
        }
        let mut document = PushDocument::new(state);
        let mut out = self.write_objects(&mut document, found.into_objects(), &outgoing)?;
        for (order, (row, published)) in (0u64..).zip(&replaced) {
            let record = self.write_record(&mut out, &published.checkpoint, order)?;
            let checkpoint =
                PushedCheckpoint { id: row.id, record, pinned: row.pinned, fields: fields(row, published) };
            document.replaced.push(ReplacedCheckpoint { line: row.line, seq: row.seq, n: row.n, checkpoint });
        }
        let push = self.close(document, out)?;
        let listed = replaced.iter().flat_map(|(row, _)| &row.packs).map(|pack| pack.name.clone());
        let purged: BTreeSet<PackName> = listed.chain(self.still_listed.iter().cloned()).collect();
        let own = replaced.iter().filter(|(row, _)| row.line == state.line);
        let newest = own.max_by_key(|(row, _)| (row.seq, row.n));
        let base = newest.map(|(_, published)| (published.checkpoint.id, published.checkpoint.integrity));
        let pending = Pending {
            push,
            checkpoints: base.into_iter().collect(),
            excluded: BTreeSet::new(),
            purged: purged.into_iter().collect(),
            purges: numbers,
        };
        self.set(&StoredLine { pending: Some(value(&pending)?), ..line.clone() })
    }

    /// Returns every published checkpoint of the workspace with its packs. Those that are not here are fetched, and purged here.
    fn rows(&self, purges: &Purges) -> Result<Vec<RemoteCheckpoint>, Error> {
        let paths: BTreeSet<&RelPath> = purges.iter().flat_map(|(_, paths)| paths).collect();
        let paths: Vec<RelPath> = paths.into_iter().cloned().collect();
        let mut rows = Vec::new();
        for mut row in all_of(self.remote, Some(self.workspace.id))? {
            row.packs = self.remote.checkpoint(row.id)?.packs;
            rows.push(row);
        }
        for row in &rows {
            self.manager.remotes().fetch((self.name, self.remote), row, self.progress)?;
        }
        match self.manager.take_out(self.workspace, &paths, self.progress) {
            Ok(_) => self.manager.upkeep().collect(Thoroughness::Everything, self.progress).map(drop)?,
            // Here all of it is purged already.
            Err(Error::NoPurge { .. }) => {}
            Err(other) => return Err(other),
        }
        Ok(rows)
    }

    /// Deletes the packs that held purged content. If a row of another machine lists one by now, the purge stays on record, and
    /// another round replaces that row, too.
    pub(super) fn delete_purged(&mut self, mut pending: Pending) -> Result<Pending, Error> {
        if pending.purged.is_empty() {
            return Ok(pending);
        }
        match self.remote.purge_packs(&pending.purged) {
            Ok(()) => {
                self.pushed.purged += pending.push.document.replaced.len() as u64;
                self.pushed.purged_packs += pending.purged.len() as u64;
            }
            Err(RemoteError::StillListed { .. }) if self.rounds < ROUNDS_MAX => {
                self.rounds += 1;
                self.still_listed.append(&mut pending.purged);
                pending.purges.clear();
            }
            Err(other) => return Err(other.into()),
        }
        Ok(pending)
    }

    /// The role may not replace rows: the purge stays on record, and this push goes on without it.
    pub(super) fn give_up_purge(&mut self, line: &StoredLine) -> Result<(), Error> {
        self.pushed.purge_refused = true;
        self.set(&StoredLine { pending: None, base: None, ..line.clone() })
    }
}

/// Fields of a replaced row: as they were, but for the counts.
fn fields(row: &RemoteCheckpoint, published: &Publishable) -> serde_json::Value {
    let mut fields = row.fields.clone();
    let files = &published.checkpoint.files;
    fields["files"] = json!({ "count": files.count, "bytes": files.bytes });
    fields
}
