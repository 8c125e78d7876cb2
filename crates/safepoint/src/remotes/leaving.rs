//! LEAVING: what a remote would get of a workspace, shown before it is added.

use crate::Error;
use crate::handles::Remotes;
use safepoint_catalog::{Filter, RoleFilter, Workspace};
use safepoint_model::checkpoint::{Manifest, PartKind};
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::Node;
use safepoint_model::{RelPath, change, document};
use std::collections::BTreeSet;

/// Names that usually hold secrets: whole names, and beginnings or ends with a `*`.
const SECRET_NAMES: [&str; 20] = [
    ".env",
    ".env.*",
    "*.env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.keystore",
    "credentials",
    "credentials.json",
    "secrets.*",
    "*.tfstate",
];

/// Content of a workspace that its checkpoints would publish.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaving {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Files and links of the newest one.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Paths of the newest one whose names usually hold secrets.
    pub secrets: Vec<RelPath>,
    /// Sessions, with the requests of users.
    pub sessions: u64,
    /// Plans.
    pub plans: u64,
    /// Threads of conversations.
    pub threads: u64,
    /// Turns of agents, with the prompts of users.
    pub turns: u64,
    /// Names of agents, with their settings.
    pub agents: Vec<String>,
    /// True if the folder of the repository is captured whole.
    pub git_folder: bool,
}

impl Remotes<'_> {
    /// Returns what the checkpoints of a workspace would publish.
    ///
    /// # Errors
    /// When store or catalog cannot be read.
    pub fn leaving(&self, workspace: &Workspace) -> Result<Leaving, Error> {
        let manager = self.manager;
        let filter = Filter { workspace: Some(workspace.id), role: RoleFilter::Asked, ..Filter::default() };
        let all = manager.catalog.checkpoints(&filter)?;
        let mut leaving = Leaving { checkpoints: all.len() as u64, ..Leaving::default() };
        let keys = |kind: PartKind| -> BTreeSet<&str> {
            let parts = all.iter().flat_map(|checkpoint| &checkpoint.parts);
            parts.filter(|part| part.kind == kind).map(|part| part.key.as_str()).collect()
        };
        leaving.sessions = keys(PartKind::Session).len() as u64;
        leaving.plans = keys(PartKind::Plan).len() as u64;
        leaving.threads = keys(PartKind::Thread).len() as u64;
        leaving.agents = keys(PartKind::Agent).into_iter().map(str::to_owned).collect();
        leaving.git_folder = !keys(PartKind::GitFolder).is_empty();
        leaving.turns = manager.catalog.turns(workspace.id, None, None)?.len() as u64;
        let Some(newest) = all.first() else { return Ok(leaving) };
        let manifest: Manifest = document::load(&manager.store, newest.integrity)?;
        let own = workspace.id.to_string();
        let files = manifest.parts.iter().find(|part| part.kind == PartKind::Files && part.key == own);
        let Some(files) = files else { return Ok(leaving) };
        let Some(tree) = FilesDocument::load(&manager.store, files.document)?.tree() else {
            return Ok(leaving);
        };
        change::walk::<Error>(&manager.store, &RelPath::root(), tree, &mut |path, entry| {
            match &entry.node {
                Node::Directory(_) => return Ok(()),
                Node::File(content) => leaving.bytes += content.size,
                Node::Symlink(_) => {}
            }
            leaving.files += 1;
            if usually_secret(&entry.name) {
                leaving.secrets.push(path.clone());
            }
            Ok(())
        })?;
        Ok(leaving)
    }
}

fn usually_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_lowercase();
    SECRET_NAMES.iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(beginning)) => name.starts_with(beginning),
        (None, None) => name == *pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_usually_hold_secrets_are_found() {
        for name in [".env", ".env.local", "prod.env", "ID_RSA", "server.pem", "credentials"] {
            assert!(usually_secret(name.as_bytes()), "{name}");
        }
        for name in ["environment.md", "env", "keyboard.rs", "main.rs"] {
            assert!(!usually_secret(name.as_bytes()), "{name}");
        }
    }
}
