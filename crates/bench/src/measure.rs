//! Runs a program and tells how long it took and how much memory: in comes a command as a value, out come figures.
//!
//! A small process stands between this program and the one that is measured. The kernel counts the memory of whoever
//! calls execve(2) towards the peak of the program that takes its place, so a large parent would be measured too;
//! and of several children it tells only the largest.

use crate::failure::{Failure, Result, Tried};
use rustix::fd::AsFd;
use safepoint_testkit::memory::peak_bytes_of_children;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// This very program, also when its file was built anew meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A command to run.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
}

/// What a command took.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From its start to its end.
    pub(crate) seconds: f64,
    /// The most memory that it, or any program that it started, had resident.
    pub(crate) peak_bytes: u64,
}

impl Took {
    /// One after the other.
    pub(crate) fn then(self, next: Took) -> Took {
        Took { seconds: self.seconds + next.seconds, peak_bytes: self.peak_bytes.max(next.peak_bytes) }
    }
}

/// What the process in between has to say.
#[derive(Serialize, Deserialize)]
struct Answer {
    took: Took,
    /// Nothing after a signal.
    status: Option<i32>,
}

impl Cmd {
    /// A command of this program, in this folder.
    pub(crate) fn new(program: &Path, dir: &Path) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), dir: dir.into() }
    }

    /// With more arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// With a variable in its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// The command as one would type it, without its environment.
    pub(crate) fn shown(&self) -> String {
        let program = self.program.file_name().unwrap_or(self.program.as_os_str());
        let words = std::iter::once(program).chain(self.args.iter().map(OsString::as_os_str));
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }

    /// The program, its arguments, environment and folder, for who runs it in another way.
    pub(crate) fn traced(&self) -> safepoint_testkit::Program {
        let (exe, args) = (self.program.clone(), self.args.clone());
        safepoint_testkit::Program { exe, args, env: self.env.clone(), cwd: self.dir.clone() }
    }

    /// Runs it and measures it.
    ///
    /// # Errors
    /// When it cannot be started, or ends in failure; what it said last is told.
    pub(crate) fn measure(&self) -> Result<Took> {
        let mut command = Command::new(OWN_PROGRAM);
        command.arg("measured").arg("--").arg(&self.program).args(&self.args);
        let output = self.dressed(&mut command).output().tried(|| format!("running {}", self.shown()))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        let answer: Answer = serde_json::from_slice(&output.stdout)
            .map_err(|_| Failure::new(format!("running {}: {}", self.shown(), complaint.trim())))?;
        match answer.status {
            Some(0) => Ok(answer.took),
            status => Err(self.failed(&format!("exit {status:?}"), &complaint)),
        }
    }

    /// Runs it, and gives what it wrote to standard output.
    ///
    /// # Errors
    /// When it cannot be started, or ends in failure.
    pub(crate) fn output(&self) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        let output = self.dressed(&mut command).output().tried(|| format!("running {}", self.shown()))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(self.failed(&output.status.to_string(), &complaint));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn dressed<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(&self.dir).envs(self.env.iter().cloned()).stdin(Stdio::null())
    }

    fn failed(&self, how: &str, complaint: &str) -> Failure {
        let last: Vec<&str> = complaint.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Failure::new(format!(
            "running {} in {}: {how}: {}",
            self.shown(),
            self.dir.display(),
            last.join(" / ")
        ))
    }
}

/// The process in between: runs the command, and says on standard output what it took.
pub(crate) fn run_measured(command: &[OsString]) -> Result<ExitCode> {
    let (program, args) = command.split_first().ok_or_else(|| Failure::new("measured: no command"))?;
    let mut child = Command::new(program);
    child.args(args).stdout(Stdio::null());
    let began = Instant::now();
    let status = child.status().tried(|| format!("starting {}", program.to_string_lossy()))?;
    let seconds = began.elapsed().as_secs_f64();
    let peak_bytes = peak_bytes_of_children().tried(|| "asking for the memory of children".into())?;
    let answer = Answer { took: Took { seconds, peak_bytes }, status: status.code() };
    println!("{}", serde_json::to_string(&answer).tried(|| "writing the answer".into())?);
    Ok(ExitCode::SUCCESS)
}

/// Runs these one after the other and adds up what they took.
pub(crate) fn measure_all(commands: &[Cmd]) -> Result<Took> {
    commands.iter().try_fold(Took::default(), |all, command| Ok(all.then(command.measure()?)))
}

/// Writes everything that waits to be written on the file system of `dir`, so that it is not counted to what comes next.
pub(crate) fn settle(dir: &Path) -> Result<()> {
    let open = File::open(dir).tried(|| format!("opening {}", dir.display()))?;
    rustix::fs::syncfs(open.as_fd()).tried(|| format!("syncing the file system of {}", dir.display()))
}
