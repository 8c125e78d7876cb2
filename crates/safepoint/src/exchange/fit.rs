//! What of an imported checkpoint of several folders is of here. A part that is not keeps its content under a key that nothing here has, so
//! that it is shown, validated and exported like any other, and never put back.

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

/// No id and no name of an agent or a plan has a colon in it.
const ELSEWHERE: &str = "elsewhere:";

/// The key of a part that is of another place.
pub(super) fn elsewhere_key(key: &str) -> String {
    format!("{ELSEWHERE}{key}")
}

/// Whether a key says so.
pub(super) fn is_elsewhere(key: &str) -> bool {
    key.starts_with(ELSEWHERE)
}

/// The key that a part had in its own place.
pub(super) fn plain_key(key: &str) -> &str {
    key.strip_prefix(ELSEWHERE).unwrap_or(key)
}

/// Where a folder was.
pub(super) fn root_of(place: &Elsewhere) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(place.root.as_bytes()))
}

/// A folder of a layout: what it says, and what is in it.
pub(super) struct Folder<'a> {
    pub(super) id: WorkspaceId,
    /// What the layout tells of it.
    pub(super) place: Option<&'a Elsewhere>,
    pub(super) tree: ObjectId,
}

impl CheckpointManager {
    /// Why an agent of a layout is none here. An import brings no paths: with them a rollback would write where nobody meant it to.
    pub(super) fn unfit_agent(&self, then: &Agent) -> Result<Option<String>, Error> {
        let name = &then.name;
        let Some(now) = self.catalog.agent(name)? else {
            return Ok(Some(format!("agent {name} is not registered here")));
        };
        let set = |agent: &Agent| agent.paths.iter().cloned().collect::<BTreeSet<_>>();
        let same = set(&now.agent) == set(then);
        Ok((!same).then(|| format!("agent {name} has other paths here, and an import brings none")))
    }

    /// The workspace here that a folder of a layout is; else why there is none. `agents` are those that fit.
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
            // Settings name commands. Nobody knows the id of a home but whoever has been there.
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

    /// A folder of agents is one here if these agents have it here, and holds nothing but theirs.
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
        // A project would lose all that is not the agent's.
        let at = self.catalog.workspace_at(root.as_os_str().as_bytes())?;
        if at.is_some_and(|at| at.kind == WorkspaceKind::Project) {
            return Ok(Err(format!("folder {shown} is a project here")));
        }
        match std::fs::canonicalize(root) {
            Ok(real) if real == root && root.is_dir() => {
                Ok(Ok(self.register_as(root, WorkspaceKind::Agent)?))
            }
            _ => Ok(Err(format!("folder {shown} is not there"))),
        }
    }

    /// A checkpoint without what cannot go back here and need not; an error where something has to and cannot.
    ///
    /// # Errors
    /// When a part that is wanted is of another place.
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

    /// With what a part goes back, what it is, and how it is registered. Nothing is said of what need not go back.
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
            // Nothing of these goes back unless it is asked for by name.
            PartKind::Session | PartKind::Git | PartKind::GitFolder | PartKind::Outside(_) => {
                (part.kind, String::new(), None)
            }
        })
    }
}

/// A path as a shell reads it back.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Whether the top of a tree has no other names than these.
fn holds_only(
    source: &dyn ObjectSource,
    tree: ObjectId,
    names: &BTreeSet<Vec<u8>>,
) -> Result<bool, ObjectError> {
    Ok(Tree::load(source, tree)?.entries().iter().all(|entry| names.contains(&entry.name)))
}

/// Whether a folder has something where another of the folders is: both would be put back, one over the other.
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
