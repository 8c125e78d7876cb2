//! BUILD: the files of a checkpoint in a folder of their own, elsewhere. The home is only read, so that this works where it cannot be
//! written.

use crate::checkpoint::create::files_part;
use crate::parts::files::snapshot;
use crate::{CheckpointManager, Error};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::tree::Node;
use safepoint_model::{Progress, RelPath, WorkspaceId, change};
use safepoint_workspace::{Snapshot, WorkspaceError, build_tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Build result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Built {
    /// The folders: one for each workspace of which the checkpoint holds files.
    pub folders: Vec<PathBuf>,
    /// Files and links.
    pub files: u64,
    /// Bytes in files.
    pub bytes: u64,
}

impl CheckpointManager {
    /// Builds the files of a checkpoint in a folder that is empty or does not exist yet. Where it holds several folders, each gets one
    /// in it, named like its workspace. Everything is read back and compared; a folder that cannot be built is left empty or missing.
    ///
    /// # Errors
    /// When something is in the folder, it cannot be written, the checkpoint holds no files, or something of it is missing or damaged.
    pub fn build(&self, checkpoint: &Checkpoint, to: &Path, progress: &dyn Progress) -> Result<Built, Error> {
        let _using = self.store.using()?;
        let parts: Vec<&PartRecord> = match files_part(checkpoint) {
            Some(own) => vec![own],
            None => checkpoint.parts.iter().filter(|part| part.kind == PartKind::Files).collect(),
        };
        if std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::NotEmpty { path: to.to_owned() });
        }
        let mut built = Built { folders: Vec::new(), files: 0, bytes: 0 };
        match parts.as_slice() {
            [] => return Err(Error::NoFiles { checkpoint: checkpoint.id }),
            [only] => self.build_one(only, to, &mut built, progress)?,
            several => {
                let mut names = BTreeSet::new();
                for part in several {
                    let folder = to.join(self.free_name(part, &mut names)?);
                    self.build_one(part, &folder, &mut built, progress)?;
                }
            }
        }
        Ok(built)
    }

    /// A name for one of several folders.
    fn free_name(&self, part: &PartRecord, names: &mut BTreeSet<String>) -> Result<String, Error> {
        let workspace = match part.key.parse::<WorkspaceId>() {
            Ok(id) => self.catalog.workspace(id)?,
            Err(_) => None,
        };
        let is_plain = |name: &String| !["", ".", ".."].contains(&name.as_str()) && !name.contains('/');
        let key = part.key.replace('/', "_");
        let name = workspace.map(|workspace| workspace.name).filter(is_plain).unwrap_or_else(|| key.clone());
        Ok(if names.insert(name.clone()) { name } else { format!("{name}-{key}") })
    }

    fn build_one(
        &self,
        part: &PartRecord,
        to: &Path,
        built: &mut Built,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let Snapshot { root, .. } = snapshot(&self.store, part.document)?;
        build_tree(&self.store.measurer(), &root, to, progress).map_err(|source| match source {
            source @ WorkspaceError::Verify { .. } => source.into(),
            source => Error::Export { path: to.to_owned(), source },
        })?;
        if let Node::Directory(tree) = root.node {
            change::walk::<Error>(&self.store, &RelPath::root(), tree, &mut |_, entry| {
                built.files += u64::from(!matches!(entry.node, Node::Directory(_)));
                if let Node::File(content) = &entry.node {
                    built.bytes += content.size;
                }
                Ok(())
            })?;
        }
        built.folders.push(to.to_owned());
        Ok(())
    }
}
