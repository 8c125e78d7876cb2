//! Matching of an imported multi-folder checkpoint with this machine. A part without a match keeps its
//! content under a key that no local part has. It is shown, validated and exported as usual, but never
//! restored.

use crate::agents::agent_path;
use crate::rollback::RollbackOptions;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::agent::{Agent, AgentPathKind, WorkspaceKind};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::files::{Elsewhere, FilesDocument, PlaceKind};
use safepoint_model::tree::Tree;
use safepoint_model::{ObjectError, ObjectId, ObjectSource, RelPath, WorkspaceId, change};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Key prefix. No id and no agent or plan name contains a colon.
const ELSEWHERE: &str = "elsewhere:";

/// Key of a part from another machine.
pub(super) fn elsewhere_key(key: &str) -> String {
    format!("{ELSEWHERE}{key}")
}

/// Returns true for such a key.
pub(super) fn is_elsewhere(key: &str) -> bool {
    key.starts_with(ELSEWHERE)
}

/// Key that a part had on its own machine.
pub(super) fn plain_key(key: &str) -> &str {
    key.strip_prefix(ELSEWHERE).unwrap_or(key)
}

/// Original path of a folder.
pub(super) fn root_of(place: &Elsewhere) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(place.root.as_bytes()))
}

/// Folder of a layout, with its description and tree.
pub(super) struct Folder<'a> {
    pub(super) id: WorkspaceId,
    /// Description in the layout.
    pub(super) place: Option<&'a Elsewhere>,
    pub(super) tree: ObjectId,
}

impl CheckpointManager {
    /// Returns why an agent of a layout does not match, if so. An import adds no agent paths: they would let
    /// a rollback write anywhere.
    pub(super) fn unfit_agent(&self, then: &Agent) -> Result<Option<String>, Error> {
        let name = &then.name;
        let Some(now) = self.catalog.agent(name)? else {
            return Ok(Some(format!("agent {name} is not registered here")));
        };
        let set = |agent: &Agent| agent.paths.iter().cloned().collect::<BTreeSet<_>>();
        let same = set(&now.agent) == set(then);
        Ok((!same).then(|| format!("agent {name} has other paths here, and an import brings none")))
    }

    /// Local workspace of a layout's folder, or why none matches. `agents` are the matching ones.
    pub(super) fn fitting_folder(
        &self,
        folder: &Folder<'_>,
        agents: &[Agent],
        source: &dyn ObjectSource,
    ) -> Result<Result<Workspace, String>, Error> {
        let known = self.catalog.workspace(folder.id)?.filter(|known| known.removed_at.is_none());
        let Some(place) = folder.place else {
            let project = known.filter(|known| known.kind == WorkspaceKind::Project);
            return Ok(project.ok_or_else(|| format!("its folder {} is not on record", folder.id)));
        };
        let root = root_of(place);
        let shown = root.display();
        match place.kind {
            PlaceKind::Project => {
                let here = match known {
                    Some(known) => Some(known),
                    None => self.catalog.workspace_at(root.as_os_str().as_bytes())?,
                };
                let here = here.filter(|here| here.kind == WorkspaceKind::Project);
                Ok(here.ok_or_else(|| format!("folder {shown} is not registered here")))
            }
            // Settings name commands. Only a layout made from this home knows its id.
            PlaceKind::Home => {
                let own = known.filter(|known| known.root_path() == self.home());
                let own = own.filter(|known| known.kind == WorkspaceKind::Agent);
                let names = [crate::ConfigFile::Home.name().as_bytes().to_vec()].into();
                match own {
                    Some(own) if holds_only(source, folder.tree, &names)? => Ok(Ok(own)),
                    _ => Ok(Err(format!("Safepoint's settings in {shown} stay where they are"))),
                }
            }
            PlaceKind::Agent => self.agents_folder(&root, folder, agents, source),
        }
    }

    /// Matches a folder of agents if matching agents own it here and it contains only their files.
    fn agents_folder(
        &self,
        root: &Path,
        folder: &Folder<'_>,
        agents: &[Agent],
        source: &dyn ObjectSource,
    ) -> Result<Result<Workspace, String>, Error> {
        let shown = root.display();
        let paths: Vec<PathBuf> = agents.iter().flat_map(|agent| &agent.paths).map(agent_path).collect();
        let whole = paths.iter().any(|path| path == root);
        let names: BTreeSet<Vec<u8>> = paths
            .iter()
            .filter(|path| path.parent() == Some(root))
            .filter_map(|path| path.file_name().map(|name| name.as_bytes().to_vec()))
            .collect();
        if !whole && names.is_empty() {
            return Ok(Err(format!("no agent that is registered here has the folder {shown}")));
        }
        if !whole && !holds_only(source, folder.tree, &names)? {
            return Ok(Err(format!("folder {shown} holds more than what is registered of its agents")));
        }
        // A project would lose every file that is not the agent's.
        let at = self.catalog.workspace_at(root.as_os_str().as_bytes())?;
        if at.is_some_and(|at| at.kind == WorkspaceKind::Project) {
            return Ok(Err(format!("folder {shown} is a project here")));
        }
        match std::fs::canonicalize(root) {
            Ok(real) if real == root && root.is_dir() => {
                Ok(Ok(self.register_as(root, WorkspaceKind::Agent)?))
            }
            _ => Ok(Err(format!("folder {shown} is missing"))),
        }
    }

    /// Returns a checkpoint without the optional parts from other machines.
    ///
    /// # Errors
    /// Fails if a requested part is from another machine.
    pub(crate) fn only_of_here(
        &self,
        checkpoint: &Checkpoint,
        options: &RollbackOptions,
    ) -> Result<Checkpoint, Error> {
        let mut here = checkpoint.clone();
        let away: Vec<PartRecord> = here.parts.extract_if(.., |part| is_elsewhere(&part.key)).collect();
        let (mut what, mut commands) = (Vec::new(), Vec::new());
        for part in away {
            let (kind, told, command) = self.told_of(&part)?;
            if told.is_empty() || !options.wants(kind) {
                continue;
            }
            what.push(told);
            commands.extend(command);
        }
        match what.is_empty() {
            true => Ok(here),
            false => Err(Error::Elsewhere { checkpoint: checkpoint.id, what, commands }),
        }
    }

    /// Returns a part's kind, description and registration command. The description of an optional part is
    /// empty.
    fn told_of(&self, part: &PartRecord) -> Result<(PartKind, String, Option<String>), Error> {
        let key = plain_key(&part.key);
        let _using = self.store.using()?;
        Ok(match part.kind {
            PartKind::Files => match FilesDocument::load(&self.store, part.document)?.elsewhere {
                Some(Elsewhere { kind: PlaceKind::Home, .. }) => (PartKind::Files, String::new(), None),
                Some(place) if place.kind == PlaceKind::Agent => {
                    (PartKind::Agent, format!("an agent's folder {}", root_of(&place).display()), None)
                }
                Some(place) => {
                    let root = quoted(&root_of(&place));
                    let command = format!("safepoint init {root}");
                    (PartKind::Files, format!("folder {}", root_of(&place).display()), Some(command))
                }
                None => (PartKind::Files, format!("folder {key}"), None),
            },
            PartKind::Agent => {
                let agent = Agent::load(&self.store, part.document)?;
                let mut command = format!("safepoint agent register {}", agent.name);
                for path in &agent.paths {
                    let flag = match path.kind {
                        AgentPathKind::Config => "--config",
                        AgentPathKind::Memory => "--memory",
                    };
                    command.push_str(&format!(" {flag} {}", quoted(&agent_path(path))));
                }
                (PartKind::Agent, format!("agent {key}"), Some(command))
            }
            PartKind::Plan => (PartKind::Plan, format!("plan {key}"), None),
            // Restored only if requested by name.
            PartKind::Session
            | PartKind::Thread
            | PartKind::Git
            | PartKind::GitFolder
            | PartKind::Outside(_) => (part.kind, String::new(), None),
        })
    }
}

/// Quotes a path for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Returns true if the root of a tree has only these names.
fn holds_only(
    source: &dyn ObjectSource,
    tree: ObjectId,
    names: &BTreeSet<Vec<u8>>,
) -> Result<bool, ObjectError> {
    Ok(Tree::load(source, tree)?.entries().iter().all(|entry| names.contains(&entry.name)))
}

/// Returns true if a folder has an entry at the path of another folder: a rollback would restore one over the
/// other.
pub(super) fn overlaps(
    source: &dyn ObjectSource,
    (outer, tree): (&Workspace, ObjectId),
    inner: &Workspace,
) -> Result<bool, ObjectError> {
    let Ok(below) = inner.root_path().strip_prefix(outer.root_path()) else { return Ok(false) };
    let below = RelPath::new(below.as_os_str().as_bytes()).unwrap_or_default();
    Ok(below.is_root() || change::find(source, tree, &below)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_place_is_known_and_reads_back() {
        assert!(is_elsewhere(&elsewhere_key("work")) && !is_elsewhere("work"));
        assert_eq!((plain_key(&elsewhere_key("work")), plain_key("work")), ("work", "work"));
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        for (path, expected) in [
            ("/srv/a-b.c", "/srv/a-b.c"),
            ("/a b", "'/a b'"),
            ("/it's; rm", "'/it'\\''s; rm'"),
            ("/$x", "'/$x'"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
