//! Keeps edits that were found displaced: as a checkpoint of their own, under the paths they had.

use crate::parts::files::keep_document;
use crate::rollback::carry::Settling;
use crate::{CheckpointManager, Error, Warning};
use safepoint_model::checkpoint::{Kind, Manifest, PartKind, PartRecord, Reason, Role, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::rollback::{Rescued, Rollback};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, RelPath, document};
use safepoint_store::Writer;
use safepoint_workspace::Finding;
use std::collections::BTreeMap;

impl CheckpointManager {
    /// Puts what was rescued on record. When this returns it is durable, and its other copy may be deleted.
    pub(crate) fn keep_rescued(
        &self,
        record: &Rollback,
        findings: Vec<Finding>,
        writer: Writer<'_>,
        settling: &mut Settling,
    ) -> Result<(), Error> {
        let mut rescued = Vec::new();
        for finding in findings {
            match finding {
                Finding::Rescued { path, entry, why } => rescued.push((path, entry, why)),
                Finding::Busy { path } => settling.waiting.push(path),
                Finding::Stuck { path, why } => {
                    settling.warnings.push(Warning::DisplacedStuck { path, why });
                }
            }
        }
        if rescued.is_empty() {
            return Ok(());
        }
        let rescued = apart(rescued)?;
        let workspace = self.workspaces().get(record.workspace_id)?;
        let entries = rescued.iter().map(|(path, entry, _)| (path.clone(), entry.clone())).collect();
        let tree = tree_of(&writer, entries)?;
        let root = Entry { name: Vec::new(), meta: plain_directory(), node: Node::Directory(tree) };
        let size = |entry: &Entry| if let Node::File(content) = entry.node { content.size } else { 0 };
        let (count, bytes) = (rescued.len() as u64, rescued.iter().map(|(_, entry, _)| size(entry)).sum());
        let files = keep_document(&writer, &root, &Coverage::default(), count, bytes)?;
        let part = PartRecord { kind: PartKind::Files, key: workspace.id.to_string(), document: files };
        let manifest = Manifest::new(vec![part]);
        let mut checkpoint = self.blank(Some(workspace.id));
        checkpoint.integrity = document::store(&writer, &manifest)?;
        checkpoint.parts = manifest.parts;
        checkpoint.label = Some(format!("rescued from rollback {}", record.id));
        checkpoint.kind = Kind::Emergency;
        checkpoint.reason = Reason::ErrorRecovery;
        checkpoint.role = Some(Role::Rescue);
        checkpoint.parent = record.safety_checkpoint;
        checkpoint.files = Totals { count, bytes, added: count, ..Totals::default() };
        let stored = self.finish_with_record(writer, &mut checkpoint, &[])?;
        let at = checkpoint.created_at;
        settling.rescued = rescued
            .into_iter()
            .map(|(path, _, why)| Rescued { path, checkpoint: checkpoint.id, why })
            .collect();
        self.catalog.write::<(), Error>(|transaction| {
            transaction.insert_checkpoint(&checkpoint)?;
            stored.note(transaction)?;
            Ok(transaction.add_rescued(record.id, &settling.rescued, at)?)
        })?;
        Ok(())
    }
}

/// Something that was rescued: where it was, what it is, and what was noticed.
type Edit = (RelPath, Entry, String);

/// Gives every edit a path of its own: two may have stood at one path, one after the other, and both are kept.
fn apart(edits: Vec<Edit>) -> Result<Vec<Edit>, Error> {
    let mut apart: Vec<Edit> = Vec::with_capacity(edits.len());
    for (path, mut entry, why) in edits {
        let is_taken = |path: &RelPath, taken: &[Edit]| {
            taken.iter().any(|(other, _, _)| path.is_within(other) || other.is_within(path))
        };
        let mut free = path.clone();
        let mut number = 1;
        while is_taken(&free, &apart) {
            free = aside(&path, number)?;
            number += 1;
        }
        if let Some((_, name)) = free.split_last() {
            entry.name = name.to_vec();
        }
        apart.push((free, entry, why));
    }
    Ok(apart)
}

/// The same path below another first name, which keeps within what a name may be.
fn aside(path: &RelPath, number: u32) -> Result<RelPath, Error> {
    let mut names: Vec<Vec<u8>> = path.names().map(<[u8]>::to_vec).collect();
    if let Some(first) = names.first_mut() {
        first.truncate(200);
        first.extend_from_slice(format!(".rescued-{number}").as_bytes());
    }
    Ok(RelPath::new(names.join(&b'/'))?)
}

fn plain_directory() -> Meta {
    Meta { mode: 0o755, ..Meta::default() }
}

/// A tree with these entries at these paths, and plain directories above them.
fn tree_of(sink: &dyn ObjectSink, entries: Vec<(RelPath, Entry)>) -> Result<ObjectId, Error> {
    let mut here: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    let mut below: BTreeMap<Vec<u8>, Vec<(RelPath, Entry)>> = BTreeMap::new();
    for (path, entry) in entries {
        let mut names = path.names();
        let Some(first) = names.next() else { continue };
        let rest: Vec<&[u8]> = names.collect();
        if rest.is_empty() {
            here.insert(first.to_vec(), entry);
        } else {
            let rest = RelPath::new(rest.join(&b'/')).map_err(Error::Model)?;
            below.entry(first.to_vec()).or_default().push((rest, entry));
        }
    }
    for (name, entries) in below {
        let tree = tree_of(sink, entries)?;
        here.insert(name.clone(), Entry { name, meta: plain_directory(), node: Node::Directory(tree) });
    }
    let tree =
        Tree::new(here.into_values().collect()).map_err(|error| ObjectError::Store(Box::new(error)))?;
    Ok(sink.put(ObjectKind::Tree, &tree.encode())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::content::Content;

    #[test]
    fn two_edits_of_one_path_are_both_kept() {
        let edit = |path: &str, text: &str| {
            let path = RelPath::new(path).unwrap();
            let name = path.split_last().unwrap().1.to_vec();
            let node = Node::File(Content::whole(text.as_bytes()));
            (path, Entry { name, meta: plain_directory(), node }, String::new())
        };
        let edits =
            vec![edit("d/a", "1"), edit("d/a", "2"), edit("d", "3"), edit("d/a/b", "4"), edit("x", "5")];
        let apart = apart(edits).unwrap();
        let paths: Vec<String> = apart.iter().map(|(path, _, _)| path.to_string()).collect();
        assert_eq!(paths, ["d/a", "d.rescued-1/a", "d.rescued-2", "d.rescued-3/a/b", "x"]);
    }
}
