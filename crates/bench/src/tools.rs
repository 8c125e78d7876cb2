//! Compared tools: each defines its commands to take and restore a checkpoint.
//!
//! Input: the place of a tool. Output: commands as values. A tool also names its data folders, so that they
//! can be measured and removed. Each tool has a separate home, so that no user setting applies.

mod borg;
mod git;
mod jj;
mod restic;
mod rustic;
pub(crate) mod safepoint;

use crate::failure::{Failure, Result, Tried};
use crate::ground;
use crate::measure::Cmd;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Place of one tool.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Program.
    pub(crate) program: PathBuf,
    /// Tree to capture.
    pub(crate) tree: PathBuf,
    /// Folder for a repository outside the tree.
    pub(crate) store: PathBuf,
    /// Home, configuration and caches.
    pub(crate) home: PathBuf,
}

impl Place {
    /// Creates a place in `ground`.
    pub(crate) fn new(program: &Path, ground: &Path, name: &str) -> Self {
        let at = |what: &str| ground.join(format!("{name}-{what}"));
        Self { program: program.into(), tree: at("tree"), store: at("store"), home: at("home") }
    }

    /// Returns a command of the tool, in its tree, isolated from the user's settings.
    pub(crate) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Cmd {
        Cmd::new(&self.program, &self.tree)
            .args(args)
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", self.home.join("config"))
            .env("XDG_CACHE_HOME", self.home.join("cache"))
            .env("XDG_DATA_HOME", self.home.join("data"))
            .env("LC_ALL", "C.UTF-8")
    }

    /// Removes all data of the tool and initializes it again.
    pub(crate) fn renew(&self, tool: &dyn Tool) -> Result<()> {
        for folder in tool.kept_in(self).iter().chain([&self.store, &self.home]) {
            ground::remove(folder)?;
        }
        for folder in [&self.store, &self.home] {
            fs::create_dir_all(folder).tried(|| format!("making {}", folder.display()))?;
        }
        tool.prepare(self)
    }
}

/// Tool to compare.
pub(crate) trait Tool {
    /// Name of the tool and its program.
    fn name(&self) -> &'static str;

    /// Arguments that print the version.
    fn version_args(&self) -> &'static [&'static str] {
        &["--version"]
    }

    /// Prepares the first checkpoint; not measured.
    ///
    /// # Errors
    /// Fails if the tool fails.
    fn prepare(&self, place: &Place) -> Result<()>;

    /// Returns the commands that take checkpoint `number`.
    fn checkpoint(&self, place: &Place, number: u64) -> Vec<Cmd>;

    /// Returns the commands that restore the last checkpoint, `number`.
    fn back(&self, place: &Place, number: u64) -> Vec<Cmd>;

    /// Returns the folders with the tool's data.
    fn kept_in(&self, place: &Place) -> Vec<PathBuf>;

    /// Returns the missing features, for the table.
    fn lacks(&self) -> &'static str;
}

/// Returns all tools, in the order of the tables.
pub(crate) fn all() -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(safepoint::Safepoint),
        Box::new(git::Git),
        Box::new(jj::Jj),
        Box::new(restic::Restic),
        Box::new(rustic::Rustic),
        Box::new(borg::Borg),
    ]
}

/// Installed tool.
pub(crate) struct Found {
    /// Tool.
    pub(crate) tool: Box<dyn Tool>,
    /// Program.
    pub(crate) program: PathBuf,
    /// Version that it prints.
    pub(crate) version: String,
}

/// Tools to find.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// Names; all installed tools if empty.
    pub(crate) names: &'a [String],
    /// Programs that are not on the path.
    pub(crate) programs: &'a [(String, PathBuf)],
}

/// Returns the installed tools. Fails if a named tool is missing.
pub(crate) fn find(wanted: &Wanted<'_>) -> Result<Vec<Found>> {
    let known: Vec<&str> = all().iter().map(|tool| tool.name()).collect();
    let asked = wanted.names.iter().chain(wanted.programs.iter().map(|(name, _)| name));
    for name in asked {
        if !known.contains(&name.as_str()) {
            return Err(Failure::new(format!("unknown tool {name}; known tools: {}", known.join(", "))));
        }
    }
    let mut found = Vec::new();
    for tool in all() {
        let name = tool.name();
        let is_named = wanted.names.iter().any(|wanted| wanted == name);
        if !wanted.names.is_empty() && !is_named {
            continue;
        }
        let given = wanted.programs.iter().find(|(given, _)| given == name).map(|(_, path)| path.clone());
        let program = match given {
            Some(path) => Some(path.canonicalize().tried(|| format!("finding {}", path.display()))?),
            None if name == safepoint::NAME => Some(own_safepoint()?),
            None => on_path(name),
        };
        match program {
            Some(program) => {
                let version = version(&program, tool.version_args())?;
                found.push(Found { tool, program, version });
            }
            None if is_named => return Err(Failure::new(format!("{name} is not installed"))),
            None => eprintln!("{name} is not installed: skipped"),
        }
    }
    Ok(found)
}

fn version(program: &Path, args: &[&str]) -> Result<String> {
    let said = Cmd::new(program, Path::new("/")).args(args).output()?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

/// Returns the program of this name on the path.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// Returns the `safepoint` next to this program; builds it with cargo if missing.
pub(crate) fn own_safepoint() -> Result<PathBuf> {
    let own = std::env::current_exe().tried(|| "finding the path of this program".into())?;
    let beside = own.with_file_name(safepoint::NAME);
    if !beside.is_file() {
        build_safepoint(&own)?;
    }
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Failure::new(format!("cargo did not build {}; use --safepoint PATH", beside.display()))),
    }
}

fn build_safepoint(own: &Path) -> Result<()> {
    let profile = own.parent().ok_or_else(|| Failure::new("this program has no parent folder"))?;
    let target = profile.parent().ok_or_else(|| Failure::new("this program is not in a target folder"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "safepoint-cli", "--target-dir"]).arg(target);
    command.args((profile.file_name() == Some(OsStr::new("release"))).then_some("--release"));
    eprintln!("building safepoint in {}", target.display());
    let status = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .tried(|| "running cargo to build safepoint; use --safepoint PATH".into())?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("cargo could not build safepoint: {status}"))),
    }
}
