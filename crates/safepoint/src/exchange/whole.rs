//! IMPORT of a multi-folder checkpoint: of an agent, or of everything. A rollback to it writes in many
//! folders, so each part must match a local folder, agent or plan. Other parts are kept, but never restored.

use super::fit::{Folder, elsewhere_key, overlaps};
use super::import::{Imported, check_coverage, coverage_of, disarmed, rows_of};
use super::reading::{DOCUMENT, Reading};
use super::rows::{ContentRow, State};
use super::take::{self, Taken};
use super::{AGENTS, FILES, LayoutError, git, path, plan, state_name};
use crate::parts::files::keep_document;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::agent::Agent;
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord, Scope};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::{Elsewhere, FilesDocument, PlaceKind};
use safepoint_model::tree::Node;
use safepoint_model::{ObjectSource, Progress, RelPath, WorkspaceId, document};
use safepoint_store::Writer;
use std::collections::BTreeMap;

/// Imported folder of the layout.
struct Read {
    row: ContentRow,
    id: WorkspaceId,
    place: Option<Elsewhere>,
    coverage: Coverage,
    taken: Taken,
}

/// Parts without a local match, as messages.
#[derive(Default)]
struct Unfit {
    /// Parts without which a rollback is refused.
    needed: Vec<String>,
    /// Optional parts.
    left: Vec<String>,
}

impl Unfit {
    fn told(self) -> Vec<String> {
        let next = "it cannot be gone back to as it is: register what is missing, and import it again";
        let next = (!self.needed.is_empty()).then(|| next.to_owned());
        self.left.into_iter().chain(self.needed).chain(next).collect()
    }
}

impl CheckpointManager {
    /// Imports a checkpoint of an agent or of everything.
    pub(super) fn import_several(
        &self,
        mut reading: Reading,
        mut checkpoint: Checkpoint,
        writer: Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Imported, Error> {
        let scope = reading.metadata.scope;
        checkpoint.scope = scope;
        let about = path(&state_name(scope));
        let state: State = reading.document(&about, DOCUMENT)?;
        reading.check_copies(&state.agents.0)?;
        let agents = take_agents(&mut reading, scope)?;
        let read = take_folders(&mut reading, &state, &about, &writer, progress)?;
        let mut repositories = Vec::new();
        for row in rows_of(&reading, PartKind::Git) {
            repositories.push(git::take(&mut reading, &row, row.key.clone(), &writer)?);
        }
        let mut plans = Vec::new();
        for row in rows_of(&reading, PartKind::Plan) {
            plans.push(plan::take(&mut reading, &row, &writer)?);
        }
        // The layout is valid from here on, so registrations are justified.
        let original = reading.close(progress)?;
        let mut unfit = Unfit::default();
        let fitting = self.keep_agents(agents, &mut checkpoint, &mut unfit, &writer)?;
        let here = self.keep_folders(&read, &fitting, &mut checkpoint, &mut unfit, &writer)?;
        for part in repositories {
            let key = here.get(&part.key).map(|workspace| workspace.id.to_string());
            let key = key.unwrap_or_else(|| elsewhere_key(&part.key));
            checkpoint.parts.push(PartRecord { key, ..part });
        }
        let ids: Vec<WorkspaceId> = here.values().map(|workspace| workspace.id).collect();
        for (plan, document) in plans {
            let key = match self.fitting_plan(&ids, &plan)? {
                Ok(_) => plan.id,
                Err(why) => {
                    unfit.needed.push(why);
                    elsewhere_key(&plan.id)
                }
            };
            checkpoint.parts.push(PartRecord { kind: PartKind::Plan, key, document });
        }
        let mut coverage = Coverage::default();
        for folder in &read {
            checkpoint.files.count += folder.taken.count;
            checkpoint.files.bytes += folder.taken.bytes;
            coverage.skipped.extend(folder.coverage.skipped.iter().cloned());
            coverage.unsettled.extend(folder.coverage.unsettled.iter().cloned());
        }
        checkpoint.warnings.extend(disarmed(read.iter().map(|folder| folder.taken.disarmed).sum()));
        let imported = self.keep_import(original, checkpoint, coverage, writer)?;
        Ok(Imported { missing: unfit.told(), ..imported })
    }

    /// Adds agents as parts. Returns those that match local agents.
    fn keep_agents(
        &self,
        agents: Vec<Agent>,
        checkpoint: &mut Checkpoint,
        unfit: &mut Unfit,
        writer: &Writer<'_>,
    ) -> Result<Vec<Agent>, Error> {
        let mut fitting = Vec::new();
        for agent in agents {
            let document = document::store(writer, &agent)?;
            let why = self.unfit_agent(&agent)?;
            let key = if why.is_some() { elsewhere_key(&agent.name) } else { agent.name.clone() };
            checkpoint.parts.push(PartRecord { kind: PartKind::Agent, key, document });
            match why {
                Some(why) => unfit.needed.push(why),
                None => fitting.push(agent),
            }
        }
        Ok(fitting)
    }

    /// Adds folders as parts. Returns the matching workspaces by their keys in the layout.
    fn keep_folders(
        &self,
        read: &[Read],
        agents: &[Agent],
        checkpoint: &mut Checkpoint,
        unfit: &mut Unfit,
        writer: &Writer<'_>,
    ) -> Result<BTreeMap<String, Workspace>, Error> {
        let mut found: Vec<Result<Workspace, String>> = Vec::new();
        for folder in read {
            let Node::Directory(tree) = folder.taken.root.node else { continue };
            let wanted = Folder { id: folder.id, place: folder.place.as_ref(), tree };
            found.push(self.fitting_folder(&wanted, agents, writer)?);
        }
        for at in 0..found.len() {
            let Some(why) = in_the_way(&found, read, at, writer)? else { continue };
            found[at] = Err(why);
        }
        let mut here = BTreeMap::new();
        for (folder, found) in read.iter().zip(found) {
            let Taken { root, count, bytes, .. } = &folder.taken;
            let mut document = keep_document(writer, root, &folder.coverage, *count, *bytes)?;
            let key = match found {
                Ok(workspace) => {
                    let key = workspace.id.to_string();
                    here.insert(folder.row.key.clone(), workspace);
                    key
                }
                Err(why) => {
                    match folder.place.as_ref().map(|place| place.kind) {
                        Some(PlaceKind::Home) => unfit.left.push(why),
                        _ => unfit.needed.push(why),
                    }
                    let kept = FilesDocument::load(writer, document)?;
                    let elsewhere = folder.place.clone();
                    document = document::store(writer, &FilesDocument { elsewhere, ..kept })?;
                    elsewhere_key(&folder.row.key)
                }
            };
            checkpoint.parts.push(PartRecord { kind: PartKind::Files, key, document });
        }
        Ok(here)
    }
}

/// Returns why a folder cannot use its matching workspace, if so: another folder uses it or lies inside.
fn in_the_way(
    found: &[Result<Workspace, String>],
    read: &[Read],
    at: usize,
    source: &dyn ObjectSource,
) -> Result<Option<String>, Error> {
    let (Ok(workspace), Node::Directory(tree)) = (&found[at], &read[at].taken.root.node) else {
        return Ok(None);
    };
    for (number, other) in found.iter().enumerate() {
        let Ok(other) = other else { continue };
        if number != at && overlaps(source, (workspace, *tree), other)? {
            let (one, two) = (workspace.root_path().display(), other.root_path().display());
            return Ok(Some(format!("its folder {one} holds what lies in another of its folders, {two}")));
        }
    }
    Ok(None)
}

/// Imports the agents of a layout.
fn take_agents(reading: &mut Reading, scope: Scope) -> Result<Vec<Agent>, Error> {
    let mut agents = Vec::new();
    for row in rows_of(reading, PartKind::Agent) {
        let bad = |why: &str| LayoutError::bad(&row.path, why);
        if scope == Scope::Agent && !agents.is_empty() {
            return Err(bad("a checkpoint of an agent is one of one agent").into());
        }
        if !row.path.is_within(&path(AGENTS)) {
            return Err(bad("the document of an agent is in `agent_configurations`").into());
        }
        let agent: Agent = reading.document(&row.path, DOCUMENT)?;
        let named = Agent::new(&row.key).is_ok() && agent.name == row.key;
        if agent.format != Agent::FORMAT || !named {
            return Err(bad("it is not the agent that metadata.json lists").into());
        }
        // An agent with the file system root or a duplicate path cannot be registered.
        let mut paths: Vec<_> = agent.paths.iter().collect();
        paths.sort();
        if paths.windows(2).any(|two| two[0] == two[1]) || paths.iter().any(|path| path.path.is_root()) {
            return Err(bad("its paths are not those of an agent").into());
        }
        agents.push(agent);
    }
    Ok(agents)
}

/// Imports the folders of a layout: all of `files`.
fn take_folders(
    reading: &mut Reading,
    state: &State,
    about: &RelPath,
    writer: &Writer<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Read>, Error> {
    let rows = rows_of(reading, PartKind::Files);
    check_places(reading, &rows)?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let roots: Vec<RelPath> = rows.iter().map(|row| row.path.clone()).collect();
    let taken = take::take(reading, &roots, writer, progress)?;
    let mut states: BTreeMap<&str, _> =
        state.files.0.iter().map(|state| (state.key.as_str(), state)).collect();
    let mut read = Vec::new();
    for (row, taken) in rows.into_iter().zip(taken) {
        let told = coverage_of(states.remove(row.key.as_str()).cloned(), &row, about)?;
        check_coverage(writer, &taken, &told.coverage, about)?;
        let id = row.key.parse();
        let id = id.map_err(|_| LayoutError::bad(&row.path, "its key is no id of a workspace"))?;
        let place = told.workspace.map(|workspace| workspace.place(about)).transpose()?;
        read.push(Read { row, id, place, coverage: told.coverage, taken });
    }
    Ok(read)
}

/// Checks that `files` is one folder, or contains exactly one per workspace.
fn check_places(reading: &Reading, rows: &[ContentRow]) -> Result<(), LayoutError> {
    let files = path(FILES);
    match rows {
        [] => Ok(()),
        [row] if row.path == files => Ok(()),
        rows => {
            let mut names = Vec::new();
            for row in rows {
                match row.path.split_last() {
                    Some((above, name)) if above == files => names.push(name.to_vec()),
                    _ => {
                        return Err(LayoutError::bad(
                            &row.path,
                            "each folder is in one of its own in `files`",
                        ));
                    }
                }
            }
            names.sort();
            match reading.names(&files, names.len())? == names {
                true => Ok(()),
                false => {
                    Err(LayoutError::bad(&files, "there are other folders in it than metadata.json lists"))
                }
            }
        }
    }
}
