//! The tools that are compared: each says which commands make a checkpoint and which bring it back.
//!
//! In: where a tool works. Out: commands as values. What a tool keeps, and where, is its own business; it says which folders
//! hold it, so that they can be weighed and removed. Each tool has a home of its own, so that no setting of the user's counts.

mod borg;
mod git;
mod jj;
mod restic;
mod rustic;
mod safepoint;

use crate::failure::{Failure, Result, Tried};
use crate::ground;
use crate::measure::Cmd;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where one tool works.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The program.
    pub(crate) program: PathBuf,
    /// The tree that it keeps.
    pub(crate) tree: PathBuf,
    /// Where a tool that has a repository elsewhere has it.
    pub(crate) store: PathBuf,
    /// Home, configuration and caches.
    pub(crate) home: PathBuf,
}

impl Place {
    /// A place in `ground`.
    pub(crate) fn new(program: &Path, ground: &Path, name: &str) -> Self {
        let at = |what: &str| ground.join(format!("{name}-{what}"));
        Self { program: program.into(), tree: at("tree"), store: at("store"), home: at("home") }
    }

    /// A command of the tool, in its tree, that sees no setting from outside.
    pub(crate) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Cmd {
        Cmd::new(&self.program, &self.tree)
            .args(args)
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", self.home.join("config"))
            .env("XDG_CACHE_HOME", self.home.join("cache"))
            .env("XDG_DATA_HOME", self.home.join("data"))
            .env("LC_ALL", "C.UTF-8")
    }

    /// Removes everything that the tool keeps and lets it begin anew.
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

/// One of the tools.
pub(crate) trait Tool {
    /// Its name, and the program's.
    fn name(&self) -> &'static str;

    /// What asks for the version.
    fn version_args(&self) -> &'static [&'static str] {
        &["--version"]
    }

    /// Makes what has to be there before the first checkpoint; not measured.
    ///
    /// # Errors
    /// When the tool fails.
    fn prepare(&self, place: &Place) -> Result<()>;

    /// What keeps the tree as it is, as checkpoint number `number`.
    fn checkpoint(&self, place: &Place, number: u64) -> Vec<Cmd>;

    /// What makes the tree equal to the last checkpoint, which has this number.
    fn back(&self, place: &Place, number: u64) -> Vec<Cmd>;

    /// The folders that hold what it keeps.
    fn kept_in(&self, place: &Place) -> Vec<PathBuf>;

    /// What it does not do, for the table.
    fn lacks(&self) -> &'static str;
}

/// All that there are, in the order of the tables.
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

/// A tool that is there.
pub(crate) struct Found {
    /// The tool.
    pub(crate) tool: Box<dyn Tool>,
    /// Its program.
    pub(crate) program: PathBuf,
    /// What it says of itself.
    pub(crate) version: String,
}

/// Where to look for tools.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// These alone; all that are there when it is empty.
    pub(crate) names: &'a [String],
    /// Where programs are that are not on the path.
    pub(crate) programs: &'a [(String, PathBuf)],
}

/// The tools that are there. One that was asked for by name must be.
pub(crate) fn find(wanted: &Wanted<'_>) -> Result<Vec<Found>> {
    let known: Vec<&str> = all().iter().map(|tool| tool.name()).collect();
    let asked = wanted.names.iter().chain(wanted.programs.iter().map(|(name, _)| name));
    for name in asked {
        if !known.contains(&name.as_str()) {
            return Err(Failure::new(format!("unknown tool {name}; there are {}", known.join(", "))));
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
            None => eprintln!("{name} is not installed: left out"),
        }
    }
    Ok(found)
}

fn version(program: &Path, args: &[&str]) -> Result<String> {
    let said = Cmd::new(program, Path::new("/")).args(args).output()?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The `safepoint` beside this program; built by cargo where there is none.
pub(crate) fn own_safepoint() -> Result<PathBuf> {
    let own = std::env::current_exe().tried(|| "finding this program's own file".into())?;
    let beside = own.with_file_name(safepoint::NAME);
    if !beside.is_file() {
        build_safepoint(&own)?;
    }
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Failure::new(format!("cargo did not make {}; use --safepoint PATH", beside.display()))),
    }
}

fn build_safepoint(own: &Path) -> Result<()> {
    let profile = own.parent().ok_or_else(|| Failure::new("this program lies in no folder"))?;
    let target = profile.parent().ok_or_else(|| Failure::new("this program lies in no target folder"))?;
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
