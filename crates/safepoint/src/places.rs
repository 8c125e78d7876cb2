//! Folders of a checkpoint, and the selected contents.

use crate::agents::agent_path;
use crate::checkpoint::create::Subject;
use crate::manager::Held;
use crate::parts::files::FilesPart;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::agent::{AgentRecord, WorkspaceKind};
use safepoint_model::plan::run::SandboxState;
use safepoint_model::{RelPath, WorkspaceId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folder and its selected contents.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) workspace: Workspace,
    /// Names to include, or everything if `None`.
    pub(crate) only: Option<Vec<OsString>>,
    /// Paths inside this folder that are separate places.
    pub(crate) leave: Vec<RelPath>,
}

/// The folders of a checkpoint: the workspace that it is of, then the others in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) all: Vec<Place>,
    /// Folders that do not exist.
    pub(crate) missing: Vec<PathBuf>,
}

/// Selected contents of a folder, before it is known as a workspace.
#[derive(Debug, Default)]
struct Wanted {
    project: Option<Workspace>,
    names: Option<Vec<OsString>>,
    whole: bool,
}

impl CheckpointManager {
    /// Returns the folders of a subject.
    pub(crate) fn places(&self, subject: &Subject, agents: &[AgentRecord]) -> Result<Places, Error> {
        let mut wanted: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
        if let Subject::Workspace(id) = subject {
            let workspace = self.workspaces().get(*id)?;
            // A folder that is gone is told when it is opened.
            if agents.is_empty() || !workspace.root_path().is_dir() {
                let place = Place { workspace, only: None, leave: Vec::new() };
                return Ok(Places { all: vec![place], missing: Vec::new() });
            }
            let entry = wanted.entry(workspace.root_path().to_owned()).or_default();
            (entry.project, entry.whole) = (Some(workspace), true);
        }
        if *subject == Subject::Framework {
            for workspace in self.live_workspaces()? {
                let entry = wanted.entry(workspace.root_path().to_owned()).or_default();
                (entry.project, entry.whole) = (Some(workspace), true);
            }
            let own = wanted.entry(self.home().to_owned()).or_default();
            own.names.get_or_insert_default().push(OsString::from(crate::ConfigFile::Home.name()));
        }
        for path in agents.iter().flat_map(|record| &record.agent.paths).map(agent_path) {
            // A path in an included workspace is covered by that workspace.
            let inside = |root: &PathBuf| path.starts_with(root);
            if wanted.iter().any(|(root, wanted)| wanted.project.is_some() && inside(root)) {
                continue;
            }
            match (path.is_dir(), path.parent(), path.file_name()) {
                (true, ..) => wanted.entry(path).or_default().whole = true,
                (false, Some(above), Some(name)) => {
                    let names = wanted.entry(above.to_owned()).or_default().names.get_or_insert_default();
                    if !names.iter().any(|known| known == name) {
                        names.push(name.to_owned());
                    }
                }
                _ => {}
            }
        }
        let mut places = self.as_places(wanted)?;
        if let Subject::Workspace(id) = subject {
            // The workspace itself is the first, then the memory of its agents.
            places.all.sort_by_key(|place| (place.workspace.id != *id, place.workspace.id));
        }
        Ok(places)
    }

    fn as_places(&self, wanted: BTreeMap<PathBuf, Wanted>) -> Result<Places, Error> {
        let roots: Vec<PathBuf> = wanted.keys().cloned().collect();
        let mut places = Places::default();
        for (root, wanted) in wanted {
            if !root.is_dir() {
                places.missing.push(root);
                continue;
            }
            let workspace = match wanted.project {
                Some(project) => project,
                None => self.register_as(&root, WorkspaceKind::Agent)?,
            };
            let only = if wanted.whole { None } else { wanted.names };
            places.all.push(Place { workspace, only, leave: inner(&root, &roots) });
        }
        places.all.sort_by_key(|place| place.workspace.id);
        Ok(places)
    }

    /// Returns the workspaces in use: projects and the sandboxes of open plans.
    fn live_workspaces(&self) -> Result<Vec<Workspace>, Error> {
        let mut live = Vec::new();
        let mut all = self.workspaces().list()?;
        for workspace in self.catalog.workspaces()? {
            if workspace.kind == WorkspaceKind::Attempt && self.room_of_plan(&workspace)?.is_some() {
                all.push(workspace);
            }
        }
        for workspace in all {
            let used = match self.catalog.plan_of_sandbox(workspace.id)? {
                None => true,
                Some(plan) => {
                    let record = self.plans().get(&plan)?;
                    let ready = |sandbox: &safepoint_model::plan::run::Sandbox| {
                        sandbox.state == SandboxState::Ready && sandbox.workspace_id == workspace.id
                    };
                    !record.plan.state.is_over() && self.plans().sandbox(&record)?.as_ref().is_some_and(ready)
                }
            };
            if used {
                live.push(workspace);
            }
        }
        Ok(live)
    }

    /// Place of one workspace of a checkpoint, as its agents declare it.
    pub(crate) fn place_for(
        &self,
        id: WorkspaceId,
        agents: &[AgentRecord],
        all: &[PathBuf],
    ) -> Result<Place, Error> {
        let workspace = self.workspaces().get(id)?;
        let root = workspace.root_path().to_owned();
        let leave = inner(&root, all);
        if workspace.kind != WorkspaceKind::Agent {
            return Ok(Place { workspace, only: None, leave });
        }
        Ok(self.place_of_agents(workspace, agents, all))
    }

    /// Paths of a folder that belong to these agents.
    pub(crate) fn place_of_agents(
        &self,
        workspace: Workspace,
        agents: &[AgentRecord],
        all: &[PathBuf],
    ) -> Place {
        let root = workspace.root_path().to_owned();
        let leave = inner(&root, all);
        let mut names = Vec::new();
        let mut whole = false;
        for path in agents.iter().flat_map(|record| &record.agent.paths).map(agent_path) {
            whole |= path == root;
            if path.parent() == Some(root.as_path()) {
                names.extend(path.file_name().map(ToOwned::to_owned));
            }
        }
        if root == self.home() {
            names.push(OsString::from(crate::ConfigFile::Home.name()));
        }
        Place { workspace, only: (!whole).then_some(names), leave }
    }
}

/// Other roots below this one, as relative paths.
fn inner(root: &Path, roots: &[PathBuf]) -> Vec<RelPath> {
    let below = roots.iter().filter(|other| other.as_path() != root);
    below
        .filter_map(|other| other.strip_prefix(root).ok())
        .filter_map(|below| RelPath::new(below.as_os_str().as_bytes()).ok())
        .collect()
}

impl Place {
    /// Returns its files as a part.
    pub(crate) fn part<'m>(
        &'m self,
        manager: &'m CheckpointManager,
        held: &'m Held,
        excludes: Vec<String>,
    ) -> FilesPart<'m> {
        let mut part = FilesPart::new(manager, &held.root, &self.workspace, self.patterns(excludes));
        part.leave.clone_from(&self.leave);
        part
    }

    fn patterns(&self, mut excludes: Vec<String>) -> Vec<String> {
        if let Some(only) = &self.only {
            excludes.push("/*".to_owned());
            excludes.extend(
                only.iter().filter_map(|name| name.to_str()).map(|name| format!("!/{}", escaped(name))),
            );
        }
        excludes
    }
}

/// Pattern that matches only this name.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|letter| {
            let special = matches!(letter, '*' | '?' | '[' | ']' | '\\' | '!' | '#' | ' ');
            special.then_some('\\').into_iter().chain([letter])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_odd_letters_means_itself() {
        assert_eq!(escaped("settings.json"), "settings.json");
        assert_eq!(escaped("a*b [c]!"), "a\\*b\\ \\[c\\]\\!");
    }

    #[test]
    fn what_lies_in_a_folder_is_known_by_its_path_there() {
        let roots: Vec<PathBuf> = ["/a", "/a/b", "/ab", "/a/c/d"].iter().map(PathBuf::from).collect();
        let found: Vec<String> = inner(Path::new("/a"), &roots).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["b", "c/d"]);
        assert!(inner(Path::new("/ab"), &roots).is_empty());
    }
}
