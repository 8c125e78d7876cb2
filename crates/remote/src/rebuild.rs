//! Rebuild: restores lost records from the push documents in the packs.
//!
//! In: a listing of the object store. Out: rows, under a new incarnation that fences every earlier writer. A
//! push counts if all packs of its list are present. Of several uploads with one sequence number, one stays in
//! its line, and each other one gets a line of its own, so that nothing acknowledged is lost.

use crate::RemoteError;
use crate::document::{PackInfo, PushDocument};
use crate::name::{Digest, PackName};
use crate::records::RestoredPush;
use crate::remote::{PackSource, Remote, Scratch};
use safepoint_model::{CheckpointId, LineId, Progress};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const BATCH: usize = 200;

/// Reader of the last document of a pack: the format belongs to the store.
pub type ReadDocument<'a> = &'a dyn Fn(&dyn PackSource) -> Result<PackEnd, RemoteError>;

/// End of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackEnd {
    /// Number of objects.
    pub objects: u64,
    /// Last object, if it is a document.
    pub document: Option<Vec<u8>>,
}

/// Result of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// New incarnation.
    pub incarnation: u64,
    /// Packs that were read.
    pub packs: u64,
    /// Restored checkpoints.
    pub restored: u64,
    /// Pushes without all their packs: deleted before, or never published.
    pub incomplete: u64,
    /// Lines with restored pushes, among them new ones for uploads of another history.
    pub lines: u64,
    /// Packs that could not be read, with the reason.
    pub unreadable: Vec<(PackName, String)>,
}

/// Push found in a pack.
struct Candidate {
    document: PushDocument,
    chain: Digest,
    last: PackInfo,
}

impl Remote {
    /// Rebuilds the records. Existing rows stay; what upkeep deleted may return while its packs exist.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses. The rebuild may be repeated.
    pub fn rebuild(
        &self,
        read: ReadDocument<'_>,
        scratch: Scratch<'_>,
        progress: &dyn Progress,
    ) -> Result<RebuildReport, RemoteError> {
        let mut report = RebuildReport::default();
        let listed = self.bytes.list(&format!("{}/", self.project))?;
        let present: HashMap<PackName, u64> =
            listed.iter().filter_map(|object| Some((object.name.parse().ok()?, object.bytes))).collect();
        let last = present.keys().map(|name| name.token >> 32).max().unwrap_or(0);
        report.incarnation = self.records.begin_rebuild(last + 1)?;
        let mut found: BTreeMap<LineId, Vec<Candidate>> = BTreeMap::new();
        for (name, bytes) in &present {
            if progress.interrupted() {
                return Err(RemoteError::Interrupted);
            }
            report.packs += 1;
            let pack = PackInfo { name: name.clone(), bytes: *bytes, objects: 0 };
            match self.candidate(&pack, read, scratch) {
                Ok(Some(candidate)) => found.entry(name.line).or_default().push(candidate),
                // An earlier pack of a push with several.
                Ok(None) => {}
                Err(RemoteError::Unreachable { what, source }) => {
                    return Err(RemoteError::Unreachable { what, source });
                }
                Err(error) => report.unreadable.push((name.clone(), error.to_string())),
            }
            progress.advance(1, *bytes);
        }
        let mut pushes = Vec::new();
        let heads: HashMap<LineId, Head> = self
            .records
            .lines(None, None)?
            .into_iter()
            .map(|line| (line.line, (line.seq, line.head)))
            .collect();
        for (line, candidates) in found {
            for (candidate, split) in arrange(candidates, heads.get(&line).copied()) {
                if !is_present(&candidate, &present) {
                    report.incomplete += 1;
                    continue;
                }
                pushes.push(self.restored(candidate, split)?);
            }
        }
        // A purge replaces rows of other lines.
        pushes.sort_by_key(|push| !push.replaced.is_empty());
        self.insert(&pushes, &mut report)?;
        Ok(report)
    }

    /// Inserts rows. From a push on whose place has a row of another history, the rest of the line goes to a
    /// line of its own.
    fn insert(&self, pushes: &[RestoredPush], report: &mut RebuildReport) -> Result<(), RemoteError> {
        let mut moved: HashMap<LineId, (LineId, Vec<RestoredPush>)> = HashMap::new();
        let mut lines = BTreeSet::new();
        for batch in pushes.chunks(BATCH) {
            let restored = self.records.restore(report.incarnation, batch)?;
            report.restored += restored.checkpoints;
            for (line, seq) in restored.conflicts {
                if let Some(push) = batch.iter().find(|push| push.line == line && push.seq == seq) {
                    let split = split_line(push.line, push.chain);
                    moved.entry(line).or_insert_with(|| (split, Vec::new())).1.push(push.clone());
                }
            }
            lines.extend(batch.iter().map(|push| push.line));
        }
        for (split, pushes) in moved.into_values() {
            let pushes: Vec<_> =
                pushes.into_iter().map(|push| RestoredPush { line: split, ..push }).collect();
            report.restored += self.records.restore(report.incarnation, &pushes)?.checkpoints;
            lines.insert(split);
        }
        report.lines = lines.len() as u64;
        Ok(())
    }

    fn candidate(
        &self,
        pack: &PackInfo,
        read: ReadDocument<'_>,
        scratch: Scratch<'_>,
    ) -> Result<Option<Candidate>, RemoteError> {
        let source = self.open_pack(pack, scratch)?;
        let end = read(&*source)?;
        let Some(bytes) = end.document else { return Ok(None) };
        let Some(document) = PushDocument::read(&bytes) else { return Ok(None) };
        let name = &pack.name;
        if (document.line, document.token, document.seq) != (name.line, name.token, name.seq)
            || document.project != self.project
        {
            return Err(RemoteError::damaged(format!("the pack {name}"), "its document has another name"));
        }
        let chain = document.chain(&bytes, self.seal.as_ref());
        let last = PackInfo { objects: end.objects, ..pack.clone() };
        Ok(Some(Candidate { document, chain, last }))
    }

    fn restored(&self, candidate: Candidate, split: Option<LineId>) -> Result<RestoredPush, RemoteError> {
        let Candidate { document, chain, last } = candidate;
        let (checkpoints, replaced) = self.rows(&document)?;
        let packs = document.kept.iter().chain(&document.earlier).cloned().chain([last]).collect();
        Ok(RestoredPush {
            line: split.unwrap_or(document.line),
            workspace: document.workspace,
            plan: document.plan,
            token: document.token,
            seq: document.seq,
            chain,
            packs,
            whole: document.whole,
            checkpoints,
            replaced,
        })
    }
}

fn is_present(candidate: &Candidate, present: &HashMap<PackName, u64>) -> bool {
    let document = &candidate.document;
    document.kept.iter().chain(&document.earlier).all(|pack| present.get(&pack.name) == Some(&pack.bytes))
}

/// Sequence number and newest checkpoint of a line in the records.
type Head = (u64, Option<CheckpointId>);

/// Orders the uploads of one line, oldest first, and names another line for those of another history.
///
/// The history that the records have stays in the line; else the one with the highest token, and then the
/// highest sequence number. A push whose sequence number it does not have is an earlier part of it, from which
/// later ones were deleted. All others may have been acknowledged, too: by a database that was restored from
/// an older copy afterwards.
fn arrange(candidates: Vec<Candidate>, head: Option<Head>) -> Vec<(Candidate, Option<LineId>)> {
    let by_chain: HashMap<Digest, usize> =
        candidates.iter().enumerate().map(|(at, candidate)| (candidate.chain, at)).collect();
    let path_of = |tip: usize| {
        let mut path = Vec::new();
        let mut next = Some(tip);
        while let Some(at) = next.filter(|at| !path.contains(at)) {
            path.push(at);
            next = by_chain.get(&candidates[at].document.before).copied();
        }
        path
    };
    let is_head = |at: &usize| {
        let document = &candidates[*at].document;
        head == Some((document.seq, document.checkpoints.last().map(|checkpoint| checkpoint.id)))
    };
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_cached_key(|at| {
        let Candidate { document, chain, .. } = &candidates[*at];
        let is_recorded = path_of(*at).iter().any(is_head);
        std::cmp::Reverse((is_recorded, document.token, document.seq, *chain))
    });
    let mut lines: Vec<Option<Option<LineId>>> = vec![None; candidates.len()];
    let mut occupied = BTreeSet::new();
    for tip in order {
        let path: Vec<usize> = path_of(tip).into_iter().take_while(|at| lines[*at].is_none()).collect();
        let is_other = path.iter().any(|at| occupied.contains(&candidates[*at].document.seq));
        let first = path.last().map(|at| &candidates[*at]);
        let split = first.filter(|_| is_other).map(|first| split_line(first.document.line, first.chain));
        for at in path {
            lines[at] = Some(split);
            if split.is_none() {
                occupied.insert(candidates[at].document.seq);
            }
        }
    }
    let mut arranged: Vec<_> =
        candidates.into_iter().zip(lines).map(|(candidate, line)| (candidate, line.flatten())).collect();
    arranged.sort_by_key(|(candidate, _)| candidate.document.seq);
    arranged
}

/// Returns the id of the line for another history. A repeated rebuild chooses it again.
fn split_line(line: LineId, chain: Digest) -> LineId {
    let hash = blake3::hash(format!("split {line} {chain}").as_bytes());
    let mut bits = [0; 16];
    bits.copy_from_slice(&hash.as_bytes()[..16]);
    // The time of the line that it comes from, and other random bits.
    let time = line.bits() >> 80 << 80;
    LineId::from_bits(time | (u128::from_le_bytes(bits) >> 48))
}
