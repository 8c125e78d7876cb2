//! LAYOUTS: a checkpoint as a folder that others can read, and such a folder read back. `docs/layouts.md` is the reference.
//!
//! Export: objects become files, and what files cannot say stands in `files.json` and `metadata.json`. The folder is there whole and durable,
//! or not at all. Import: the folder is hostile input; what is stored are the very bytes whose hash was compared, and one transaction makes a
//! checkpoint of it.

mod bounded;
mod error;
mod export;
mod fit;
mod git;
mod holes;
mod import;
mod naming;
mod plan;
mod reading;
mod rows;
mod take;
mod thread;
mod whole;

pub use error::LayoutError;
pub use export::{Exported, Layout, OutsideMemory};
pub(crate) use fit::quoted;
pub use import::{ImportOptions, Imported};
pub use reading::check_layout;

use safepoint_model::RelPath;
use safepoint_model::agent::AgentPathKind;
use safepoint_model::checkpoint::{PartKind, Scope};

/// The version that is written and read today.
const FORMAT: u32 = 1;
/// The name of the layout, as the command line has it.
const LAYOUT: &str = "tree";

const METADATA: &str = "metadata.json";
/// Document of owners, modes, times and attributes.
const ENTRIES: &str = "files.json";
const FILES: &str = "files";
const TASKS: &str = "task_tool_state";
const MEMORY: &str = "agent_memory";
const AGENTS: &str = "agent_configurations";
const WORKFLOWS: &str = "active_workflows";

/// More entries are neither written nor read.
const ENTRIES_MAX: usize = 2_000_000;
/// Deeper nesting is not read; captures leave it out, too.
const DEPTH_MAX: usize = 4_000;
/// The two lists, which grow with the number of files, are not longer than this.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Every other document, and what a step printed, is not longer than this.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
/// Maximum depth of copied files in an agent's folder.
const COPY_DEPTH_MAX: usize = 100;
/// Maximum total size of all files: a sparse file can claim any length.
const CONTENT_BYTES_MAX: u64 = 1 << 40;

/// A path that is made of names of ours.
fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap_or_default()
}

/// The document about the whole.
fn state_name(scope: Scope) -> String {
    format!("{scope}_state.json")
}

/// The folders that are there whatever the checkpoint holds.
fn folders(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Project | Scope::Workflow => &[TASKS, MEMORY],
        Scope::Agent => &[AGENTS, MEMORY],
        Scope::Framework => &[AGENTS, MEMORY, WORKFLOWS],
    }
}

/// Folder for copies of agent files.
fn folder_of_copies(kind: AgentPathKind) -> &'static str {
    match kind {
        AgentPathKind::Config => AGENTS,
        AgentPathKind::Memory => MEMORY,
    }
}

/// Folder for a part's document.
fn folder_of(scope: Scope, kind: PartKind) -> &'static str {
    match (scope, kind) {
        (_, PartKind::Files) => FILES,
        (Scope::Agent | Scope::Framework, PartKind::Agent) => AGENTS,
        (Scope::Framework, _) => WORKFLOWS,
        (Scope::Agent, _) | (Scope::Project | Scope::Workflow, PartKind::Agent) => MEMORY,
        (Scope::Project | Scope::Workflow, _) => TASKS,
    }
}

/// Returns a document's path with another ending.
fn beside(document: &RelPath, ending: &str) -> RelPath {
    let bytes = document.as_bytes();
    let stem = bytes.strip_suffix(b".json").unwrap_or(bytes);
    RelPath::new([stem, ending.as_bytes()].concat()).unwrap_or_default()
}

/// Returns the folder of the plan's step logs, next to the plan.
fn logs_of(plan: &RelPath) -> RelPath {
    beside(plan, ".logs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_folder_that_its_layout_has() {
        for scope in Scope::ALL {
            for kind in PartKind::ALL {
                let folder = folder_of(*scope, *kind);
                assert!(folder == FILES || folders(*scope).contains(&folder), "{scope} {kind}");
            }
        }
        assert_eq!(logs_of(&path("task_tool_state/a.json")), path("task_tool_state/a.logs"));
    }
}
