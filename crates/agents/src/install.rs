//! Installs hooks and the MCP server in the settings files of agents, and removes them again.
//!
//! A change is first a value that can be shown, then applied. Everything else in a file stays, byte for byte. Files that do not parse are
//! refused before any file changes. The file before a change is kept in Safepoint's home, so that `uninstall` restores it exactly; if it
//! was edited since, only the entries of Safepoint go.

mod entries;
mod error;
mod file;
mod json;
mod node;
mod print;
mod record;
mod splice;
mod toml;
pub mod trust;

#[cfg(test)]
mod tests;

pub use error::InstallError;
pub use print::{agents_md, claude_plugin};

use crate::CodingAgent;
use entries::{Content, Target};
use record::Record;
use splice::Grown;
use std::path::{Path, PathBuf};

/// Scope of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstallScope {
    /// All projects of the user.
    User,
    /// One project, for everyone who has it.
    Project,
}

impl InstallScope {
    /// Name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// Folders that decide where settings are.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Home directory of the user.
    pub user: PathBuf,
    /// The project.
    pub project: PathBuf,
    /// Safepoint's home, for records.
    pub keep: PathBuf,
    /// Absolute path of the program `safepoint`.
    pub program: PathBuf,
    /// `CLAUDE_CONFIG_DIR`.
    pub claude: Option<PathBuf>,
    /// `CODEX_HOME`.
    pub codex: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub config: Option<PathBuf>,
}

impl Folders {
    /// Folder with an agent's settings.
    #[must_use]
    pub fn of(&self, agent: CodingAgent, place: InstallScope) -> PathBuf {
        let named =
            |folder: &Option<PathBuf>, name: &str| folder.clone().unwrap_or_else(|| self.user.join(name));
        match (place, agent) {
            (InstallScope::User, CodingAgent::Claude) => named(&self.claude, ".claude"),
            (InstallScope::User, CodingAgent::Codex) => named(&self.codex, ".codex"),
            (InstallScope::User, CodingAgent::Gemini) => self.user.join(".gemini"),
            (InstallScope::User, CodingAgent::Copilot) => self.user.join(".copilot"),
            (InstallScope::User, CodingAgent::Opencode) => named(&self.config, ".config").join("opencode"),
            (InstallScope::User, CodingAgent::Cursor) => self.user.join(".cursor"),
            (InstallScope::Project, CodingAgent::Copilot) => self.project.join(".github"),
            (InstallScope::Project, other) => self.project.join(format!(".{other}")),
        }
    }

    /// Claude's file of MCP servers and trusted folders.
    #[must_use]
    pub fn claude_json(&self) -> PathBuf {
        self.claude.as_ref().unwrap_or(&self.user).join(".claude.json")
    }

    fn within(&self, place: InstallScope) -> Option<&Path> {
        (place == InstallScope::Project).then_some(self.project.as_path())
    }
}

/// State of an agent's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// No entry of Safepoint.
    No,
    /// Entries are missing or differ from those that `install` writes.
    Partly,
    /// Every entry.
    Yes,
}

/// Change of one file, not yet applied.
#[derive(Debug)]
pub struct FileEdit {
    /// The file, without links.
    pub path: PathBuf,
    /// Content before, or `None` if missing.
    pub before: Option<String>,
    /// Content after, or `None` to delete the file.
    pub after: Option<String>,
    next: Next,
}

/// Record to write with a change.
#[derive(Debug)]
enum Next {
    /// The record stays.
    Stay,
    Save(Box<Record>),
    /// The record goes, and these folders if they are empty.
    Forget(Vec<PathBuf>),
}

impl FileEdit {
    /// Returns true if the file stays as it is.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

/// Plans the installation of an agent. Nothing is written.
///
/// # Errors
///
/// If a file cannot be read, does not parse, or must not be touched.
pub fn plan_install(
    folders: &Folders,
    place: InstallScope,
    agent: CodingAgent,
) -> Result<Vec<FileEdit>, InstallError> {
    let targets = entries::targets(folders, place, agent);
    targets.iter().map(|target| install_one(folders, place, target)).collect()
}

/// Plans the removal of an agent's entries. Nothing is written.
///
/// # Errors
///
/// If a file cannot be read, does not parse, or must not be touched.
pub fn plan_uninstall(
    folders: &Folders,
    place: InstallScope,
    agent: CodingAgent,
) -> Result<Vec<FileEdit>, InstallError> {
    let targets = entries::targets(folders, place, agent);
    targets.iter().map(|target| uninstall_one(folders, place, target)).collect()
}

/// Applies a change. The record is durable before the file changes.
///
/// # Errors
///
/// If a file cannot be written, or another program changed it since the change was planned.
pub fn apply(folders: &Folders, change: &FileEdit) -> Result<(), InstallError> {
    file::sweep(&change.path);
    if let Next::Save(record) = &change.next {
        record.save(&folders.keep)?;
    }
    match (&change.before, &change.after) {
        (before, after) if before == after => {}
        (before, Some(after)) => file::write(&change.path, before.as_deref(), after)?,
        (Some(before), None) => file::remove(&change.path, before)?,
        (None, None) => {}
    }
    if let Next::Forget(made) = &change.next {
        file::remove_empty(made);
        Record::forget(&folders.keep, &change.path)?;
    }
    Ok(())
}

/// Returns the state of an agent's settings.
///
/// # Errors
///
/// If a file cannot be read or does not parse.
pub fn installed(
    folders: &Folders,
    place: InstallScope,
    agent: CodingAgent,
) -> Result<Installed, InstallError> {
    let (mut whole, mut parts, mut count) = (0, 0, 0);
    for target in entries::targets(folders, place, agent) {
        count += 1;
        let Some(text) = file::read(&target.path, folders.within(place))?.text else { continue };
        let failed = |reason| InstallError::Unexpected { path: target.path.clone(), reason };
        if is_whole(&target, &text).map_err(failed)? {
            whole += 1;
        } else if stripped(&target, &text, None).map_err(failed)? != Some(text) {
            parts += 1;
        }
    }
    Ok(match (whole, parts) {
        (0, 0) => Installed::No,
        (whole, _) if whole == count => Installed::Yes,
        _ => Installed::Partly,
    })
}

fn is_whole(target: &Target, text: &str) -> Result<bool, String> {
    match &target.content {
        Content::Json(_, entries) => json::has_all(text, entries, entries::is_ours),
        Content::Toml(program) => self::toml::has(text, program),
        Content::Plugin(plugin) => Ok(text == plugin),
    }
}

/// Text without our entries, or `None` for a file that holds nothing else.
fn stripped(target: &Target, text: &str, made: Option<&[json::Made]>) -> Result<Option<String>, String> {
    match &target.content {
        Content::Json(_, entries) => json::remove(text, entries, entries::is_ours, made).map(Some),
        Content::Toml(_) => self::toml::remove(text).map(Some),
        Content::Plugin(_) => Ok(if entries::is_our_plugin(text) { None } else { Some(text.to_owned()) }),
    }
}

fn invalid(target: &Target, text: &str, reason: String) -> InstallError {
    let path = target.path.clone();
    let parses = match &target.content {
        Content::Json(..) => json::read(text).is_ok(),
        Content::Toml(_) | Content::Plugin(_) => true,
    };
    if parses { InstallError::Unexpected { path, reason } } else { InstallError::Invalid { path, reason } }
}

/// Content of a new file without our entries.
fn blank(target: &Target) -> &'static str {
    match &target.content {
        Content::Json(new, _) => new,
        Content::Toml(_) | Content::Plugin(_) => "",
    }
}

fn install_one(folders: &Folders, place: InstallScope, target: &Target) -> Result<FileEdit, InstallError> {
    let found = file::read(&target.path, folders.within(place))?;
    let record = Record::load(&folders.keep, &found.path)?;
    let current = found.text.clone().unwrap_or_default();
    let failed = |reason| invalid(target, &current, reason);
    // An empty file is like a missing one, and is restored as empty.
    let is_blank = current.trim().is_empty();
    if !is_blank && is_whole(target, &current).map_err(failed)? {
        let (path, before) = (found.path, found.text);
        return Ok(FileEdit { path, after: before.clone(), before, next: Next::Stay });
    }
    file::writable(&found.path)?;
    let base = match (&found.text, &record) {
        (None, _) => None,
        (Some(text), Some(record)) if *text == record.installed => record.original.clone(),
        (Some(text), record) => before_ours(target, text, record.as_ref()).map_err(failed)?,
    };
    let mut folders_made = file::missing_folders(&found.path);
    if let Some(record) = &record {
        folders_made.splice(0..0, record.folders.iter().filter(|folder| folder.exists()).cloned());
    }
    let mut next = grown(target, &current, base.as_deref(), is_blank).map_err(failed)?;
    next.path.clone_from(&found.path);
    next.original = base;
    next.folders = folders_made;
    let after = Some(next.installed.clone());
    Ok(FileEdit { path: found.path, before: found.text, after, next: Next::Save(Box::new(next)) })
}

/// Content without our entries.
fn before_ours(target: &Target, text: &str, record: Option<&Record>) -> Result<Option<String>, String> {
    if let (Content::Plugin(_), false) = (&target.content, entries::is_our_plugin(text)) {
        return Err("it is not a file of Safepoint".to_owned());
    }
    if text.trim().is_empty() {
        return Ok(Some(text.to_owned()));
    }
    let exact = record.filter(|record| !record.inserted.is_empty()).and_then(|record| {
        let shrunk = splice::shrink(&record.installed, &record.inserted, text)?;
        // Nothing of ours may be left, and nothing else may be gone.
        let clean = stripped(target, &shrunk, Some(&record.made)).ok()??;
        let same = same_value(target, &shrunk, stripped(target, text, Some(&record.made)).ok()?.as_deref()?);
        (clean == shrunk && same).then_some(shrunk)
    });
    match exact {
        Some(text) => Ok(Some(text)),
        None => stripped(target, text, record.map(|record| record.made.as_slice())),
    }
}

fn same_value(target: &Target, one: &str, other: &str) -> bool {
    match &target.content {
        Content::Json(..) => json::read(one).ok() == json::read(other).ok(),
        Content::Toml(_) | Content::Plugin(_) => one.split_whitespace().eq(other.split_whitespace()),
    }
}

/// Adds our entries to the base; if ours would move there, to the current text.
fn grown(target: &Target, current: &str, base: Option<&str>, is_blank: bool) -> Result<Record, String> {
    let start = base.filter(|base| !base.trim().is_empty()).unwrap_or_else(|| blank(target));
    let add = |text: &str| -> Result<(Grown, Vec<json::Made>), String> {
        let mut grown = Grown::new(text.to_owned());
        let made = match &target.content {
            Content::Json(_, entries) => json::add(&mut grown, entries, entries::is_ours)?,
            Content::Toml(program) => self::toml::add(&mut grown, program).map(|()| Vec::new())?,
            Content::Plugin(plugin) => {
                grown.text.clone_from(plugin);
                Vec::new()
            }
        };
        Ok((grown, made))
    };
    let (fresh, made) = add(start)?;
    let mut record = Record::new(Path::new(""), None, fresh.text);
    record.made = made;
    // The ranges are those of the original only if it is what they were inserted into.
    record.inserted = if base == Some(start) { fresh.inserted } else { Vec::new() };
    if !is_blank && base.is_some_and(|base| base != current) && !matches!(target.content, Content::Plugin(_))
    {
        let (in_place, _) = add(current)?;
        if in_place.text != record.installed {
            // Entries of others follow ours: these stay where they are, so that no position of another entry changes.
            record.installed = in_place.text;
            record.inserted = Vec::new();
        }
    }
    Ok(record)
}

fn uninstall_one(folders: &Folders, place: InstallScope, target: &Target) -> Result<FileEdit, InstallError> {
    let found = file::read(&target.path, folders.within(place))?;
    let record = Record::load(&folders.keep, &found.path)?;
    let made = record.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
    let after = match (&found.text, &record) {
        (None, _) => None,
        (Some(text), Some(record)) if *text == record.installed => record.original.clone(),
        (Some(text), Some(record)) if record.original.as_ref() == Some(text) => Some(text.clone()),
        (Some(text), None)
            if matches!(target.content, Content::Plugin(_)) && !entries::is_our_plugin(text) =>
        {
            Some(text.clone())
        }
        (Some(text), record) => {
            let failed = |reason| invalid(target, text, reason);
            let left = before_ours(target, text, record.as_ref()).map_err(failed)?;
            let was_new = record.as_ref().is_some_and(|record| record.original.is_none());
            left.filter(|left| !(was_new && same_value(target, left, blank(target))))
        }
    };
    if after != found.text {
        file::writable(&found.path)?;
    }
    Ok(FileEdit { path: found.path, before: found.text, after, next: Next::Forget(made) })
}
