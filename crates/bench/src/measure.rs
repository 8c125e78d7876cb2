//! Runs a command and measures its time and memory.
//!
//! A small process starts the measured program. The kernel counts the memory of the process that calls
//! execve(2) towards the peak of the new program, so a large parent would be measured too; and of several
//! children it reports only the largest.

use crate::failure::{Failure, Result, Tried};
use rustix::fd::AsFd;
use safepoint_testkit::memory::peak_bytes_of_children;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// This program, even if its file was rebuilt.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Command to run.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
}

/// Cost of a command.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Took {
    /// Wall time.
    pub(crate) seconds: f64,
    /// Peak resident memory of the program or any program that it started.
    pub(crate) peak_bytes: u64,
}

impl Took {
    /// Adds the cost of the next command.
    pub(crate) fn then(self, next: Took) -> Took {
        Took { seconds: self.seconds + next.seconds, peak_bytes: self.peak_bytes.max(next.peak_bytes) }
    }
}

/// Answer of the intermediate process.
#[derive(Serialize, Deserialize)]
struct Answer {
    took: Took,
    /// Exit status; `None` after a signal.
    status: Option<i32>,
}

impl Cmd {
    /// Creates a command in this folder.
    pub(crate) fn new(program: &Path, dir: &Path) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), dir: dir.into() }
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Returns the command line, without the environment.
    pub(crate) fn shown(&self) -> String {
        let program = self.program.file_name().unwrap_or(self.program.as_os_str());
        let words = std::iter::once(program).chain(self.args.iter().map(OsString::as_os_str));
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }

    /// Returns program, arguments, environment and folder for the tracer.
    pub(crate) fn traced(&self) -> safepoint_testkit::Program {
        let (exe, args) = (self.program.clone(), self.args.clone());
        safepoint_testkit::Program { exe, args, env: self.env.clone(), cwd: self.dir.clone() }
    }

    /// Runs and measures the command.
    ///
    /// # Errors
    /// Fails if the command cannot be started or fails; the error contains its last output.
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

    /// Runs the command and returns its standard output.
    ///
    /// # Errors
    /// Fails if the command cannot be started or fails.
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

/// Intermediate process: runs the command and prints its cost.
pub(crate) fn run_measured(command: &[OsString]) -> Result<ExitCode> {
    let (program, args) = command.split_first().ok_or_else(|| Failure::new("measured: no command"))?;
    let mut child = Command::new(program);
    child.args(args).stdout(Stdio::null());
    let began = Instant::now();
    let status = child.status().tried(|| format!("starting {}", program.to_string_lossy()))?;
    let seconds = began.elapsed().as_secs_f64();
    let peak_bytes = peak_bytes_of_children().tried(|| "reading the memory of children".into())?;
    let answer = Answer { took: Took { seconds, peak_bytes }, status: status.code() };
    println!("{}", serde_json::to_string(&answer).tried(|| "writing the answer".into())?);
    Ok(ExitCode::SUCCESS)
}

/// Runs the commands in order and adds up their cost.
pub(crate) fn measure_all(commands: &[Cmd]) -> Result<Took> {
    commands.iter().try_fold(Took::default(), |all, command| Ok(all.then(command.measure()?)))
}

/// Writes back all dirty data of the file system of `dir`, so that the next measurement does not include it.
pub(crate) fn settle(dir: &Path) -> Result<()> {
    let open = File::open(dir).tried(|| format!("opening {}", dir.display()))?;
    rustix::fs::syncfs(open.as_fd()).tried(|| format!("syncing the file system of {}", dir.display()))
}
