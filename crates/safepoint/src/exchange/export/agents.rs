//! Readable copies of agents' configuration and memory: `agent_configurations/<agent>/` and
//! `agent_memory/<agent>/`. Rollback uses `files`; an import checks that both are the same.

use super::{Writing, safe};
use crate::Error;
use crate::exchange::rows::{AgentRow, CopyRow, HashRow};
use crate::exchange::{COPY_DEPTH_MAX, folder_of_copies, folders, holes, path};
use safepoint_model::agent::{Agent, AgentPathKind, AgentRecord};
use safepoint_model::checkpoint::{PartKind, Scope};
use safepoint_model::content::{Content, Form};
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{ObjectError, ObjectId, Progress, RelPath, change};
use safepoint_workspace::WorkspaceError;
use std::collections::BTreeSet;
use std::io::{self, Write};

impl Writing<'_> {
    /// Copies what belongs to agents: those that are part of the checkpoint; in a checkpoint of a project, those that are registered now, too.
    pub(super) fn agents(&mut self, progress: &dyn Progress) -> Result<(), Error> {
        let parts = self.checkpoint.parts.iter().filter(|part| part.kind == PartKind::Agent);
        let mut agents: Vec<Agent> =
            parts.map(|part| Agent::load(self.store, part.document)).collect::<Result<_, _>>()?;
        if matches!(self.checkpoint.scope, Scope::Project | Scope::Workflow) {
            for AgentRecord { agent, .. } in self.catalog.agents()? {
                if agents.iter().all(|other| other.name != agent.name) {
                    agents.push(agent);
                }
            }
        }
        let mut made: BTreeSet<RelPath> =
            folders(self.checkpoint.scope).iter().map(|name| path(name)).collect();
        for agent in agents {
            let mut row = AgentRow { name: agent.name.clone(), copies: Vec::new() };
            for wanted in &agent.paths {
                let Some((of, entry)) = self.captured(&wanted.path)? else { continue };
                let at = self.copy_name(&agent.name, wanted.kind, &wanted.path, &mut made)?;
                self.copy(&entry, &at, progress)?;
                row.copies.push(CopyRow { kind: wanted.kind, path: at, of });
            }
            if !row.copies.is_empty() {
                self.agents.push(row);
            }
        }
        Ok(())
    }

    /// Returns the layout path of a captured system path, and its entry. A link is not copied.
    fn captured(&self, wanted: &RelPath) -> Result<Option<(Option<RelPath>, Entry)>, ObjectError> {
        let mut found: Option<(&Option<RelPath>, &RelPath, ObjectId)> = None;
        for (at, root, tree) in &self.trees {
            let Some(root) = root.as_ref().filter(|root| wanted.is_within(root)) else { continue };
            // Content of a nested folder is captured there, and nowhere above it.
            if found.is_none_or(|(_, other, _)| root.as_bytes().len() > other.as_bytes().len()) {
                found = Some((at, root, *tree));
            }
        }
        let Some((at, root, tree)) = found else { return Ok(None) };
        if wanted == root {
            let entry = Entry { name: Vec::new(), meta: Default::default(), node: Node::Directory(tree) };
            return Ok(Some((at.clone(), entry)));
        }
        let rest = wanted.as_bytes()[root.as_bytes().len()..].strip_prefix(b"/");
        let below = RelPath::new(rest.unwrap_or(wanted.as_bytes())).unwrap_or_default();
        let entry = change::find(self.store, tree, &below)?;
        let entry = entry.filter(|entry| !matches!(entry.node, Node::Symlink(_)));
        let joined = |at: &RelPath| RelPath::new([at.as_bytes(), b"/", below.as_bytes()].concat());
        let at = at.as_ref().map(|at| joined(at).unwrap_or_default());
        Ok(entry.map(|entry| (at, entry)))
    }

    /// A name for a copy; the folders around it are made.
    fn copy_name(
        &mut self,
        agent: &str,
        kind: AgentPathKind,
        wanted: &RelPath,
        made: &mut BTreeSet<RelPath>,
    ) -> Result<RelPath, Error> {
        let above = path(folder_of_copies(kind));
        let folder = above.join(safe(agent).as_bytes())?;
        for folder in [above, folder.clone()] {
            if made.insert(folder.clone()) {
                self.parcel.folder(&folder)?;
            }
        }
        let name = wanted.split_last().map(|(_, name)| String::from_utf8_lossy(name).into_owned());
        Ok(self.free(&folder.to_string(), &safe(&name.unwrap_or_default()), "")?)
    }

    fn copy(&mut self, entry: &Entry, at: &RelPath, progress: &dyn Progress) -> Result<(), Error> {
        let tree = match &entry.node {
            Node::File(content) => return self.copy_file(content, at.clone()),
            Node::Directory(tree) => *tree,
            Node::Symlink(_) => return Ok(()),
        };
        self.parcel.folder(at)?;
        let store = self.store;
        change::walk::<Error>(store, &RelPath::root(), tree, &mut |below, entry| {
            if progress.interrupted() {
                return Err(WorkspaceError::Interrupted.into());
            }
            if below.names().count() > COPY_DEPTH_MAX {
                return Ok(());
            }
            let at = RelPath::new([at.as_bytes(), b"/", below.as_bytes()].concat())?;
            match &entry.node {
                Node::File(content) => self.copy_file(content, at),
                Node::Directory(_) => Ok(self.parcel.folder(&at)?),
                Node::Symlink(_) => Ok(()),
            }
        })
    }

    fn copy_file(&mut self, content: &Content, at: RelPath) -> Result<(), Error> {
        let failed = |error| match error {
            Error::Object(ObjectError::Input(source)) => {
                WorkspaceError::Copy { path: at.clone(), source }.into()
            }
            other => other,
        };
        if content.form == Form::Sparse {
            let mut file = self.parcel.open_file(&at)?;
            let row = holes::row_of(self.store, at.clone(), content, Some(&mut file)).map_err(failed)?;
            self.hashes.push(row);
            return Ok(());
        }
        let mut both = Both { file: self.parcel.open_file(&at)?, hash: blake3::Hasher::new() };
        crate::checkpoint::find::write_content(self.store, content, &mut both).map_err(failed)?;
        self.hashes.push(HashRow::of(at, content.size, &both.hash.finalize()));
        Ok(())
    }
}

/// A file and the hash of what was written to it.
struct Both {
    file: std::fs::File,
    hash: blake3::Hasher,
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
