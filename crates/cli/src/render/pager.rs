//! Pager: long answers on a terminal go through a program such as `less`.
//!
//! Programs are found through `PATH` alone. Folders there that are relative or in the workspace do not count: whatever works in the
//! workspace could put a program there.

#![allow(clippy::disallowed_methods, reason = "this is the one place that starts the user's pager")]

use crate::context::{self, Surroundings};
use crate::signals::{self, Deferred};
use rustix::fs::{Access, access};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};

/// Pager of this process, not yet started.
pub(crate) struct Choice {
    programs: Programs,
}

/// Folders in which programs are looked up.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// Folder whose programs are not run, where no workspace is registered.
    project: Option<PathBuf>,
    /// The registered workspace, once it is known.
    workspace: Arc<OnceLock<PathBuf>>,
}

impl Programs {
    pub(crate) fn new(surroundings: &Surroundings) -> Self {
        Self { project: project(surroundings), workspace: Arc::clone(&surroundings.workspace_root) }
    }

    /// Absolute folders of `PATH` outside of the workspace.
    fn folders(&self) -> Vec<PathBuf> {
        let path = context::search_path();
        let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
        folders.filter_map(|folder| folder.canonicalize().ok()).filter(|folder| self.trusts(folder)).collect()
    }

    fn trusts(&self, path: &Path) -> bool {
        let untrusted = self.workspace.get().or(self.project.as_ref());
        !untrusted.is_some_and(|folder| path.starts_with(folder))
    }

    /// Returns a command for a program, which finds other programs in the same folders.
    pub(crate) fn command(&self, program: &str) -> Option<Command> {
        let folders = self.folders();
        let places: Vec<PathBuf> = match program.contains('/') {
            true => vec![PathBuf::from(program)],
            false => folders.iter().map(|folder| folder.join(program)).collect(),
        };
        let found = places.into_iter().filter(|place| place.is_absolute()).find(|place| {
            let target = place.canonicalize();
            target.is_ok_and(|target| target.is_file() && self.trusts(&target))
                && access(place, Access::EXEC_OK).is_ok()
        })?;
        let mut command = Command::new(found);
        command.env("PATH", env::join_paths(folders).unwrap_or_default());
        Some(command)
    }
}

/// The folder that `create` would register: the git top level, else the directory. None where that is `/` or holds the home directory.
fn project(surroundings: &Surroundings) -> Option<PathBuf> {
    let directory = surroundings.directory.as_path();
    let top = directory.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
    let holds_home = |folder: &Path| match &surroundings.user_home {
        Some(home) => home.starts_with(folder),
        None => folder == Path::new("/"),
    };
    [top, Some(directory)].into_iter().flatten().find(|folder| !holds_home(folder)).map(Path::to_owned)
}

impl Choice {
    /// Returns the user's pager; none where there is none, or the terminal cannot show it.
    pub(crate) fn new(programs: Programs) -> Option<Self> {
        let words = context::pager();
        let wanted = !words.trim().is_empty() && words.trim() != "cat";
        (wanted && context::can_move_the_cursor()).then_some(Self { programs })
    }

    /// Starts it. None where it is not found or does not start.
    pub(crate) fn start(self) -> Option<(Pager, ChildStdin)> {
        let words = context::pager();
        let mut words = words.split_whitespace();
        let mut command = self.programs.command(words.next()?)?;
        command.args(words).stdin(Stdio::piped());
        if context::lacks_less_options() {
            // Ends if all fits on the screen, shows colours, leaves the screen as it is.
            command.env("LESS", "FRX");
        }
        // Ctrl-C is for the pager. This process ends once the pager has.
        signals::listen_for_another();
        let mut deferred = Deferred::begin().ok()?;
        let mut child = signals::with_limit_as_given(|| command.spawn()).ok()?;
        // Without it, signals to this process alone wait until the pager ends.
        let _ = deferred.to(&child);
        let input = child.stdin.take()?;
        Some((Pager { child, _deferred: deferred }, input))
    }
}

/// Running pager.
pub(crate) struct Pager {
    child: Child,
    _deferred: Deferred,
}

impl Pager {
    /// Waits until the user has read all. Its input is closed before.
    pub(crate) fn wait(mut self) {
        // Its exit status is of no interest: the answer is the same.
        let _ = self.child.wait();
    }
}

/// Pager of `man`: the user's for Safepoint, or none on request.
pub(crate) fn for_man(is_wanted: bool) -> Option<OsString> {
    if is_wanted { context::own_pager() } else { Some(OsStr::new("cat").to_owned()) }
}
