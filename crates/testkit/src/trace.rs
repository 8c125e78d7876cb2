//! Running a program under ptrace: in comes a [`Program`], out come its
//! state-changing system calls and its [`End`]; at any of the calls it can be
//! killed or be lied to.
//!
//! A call counts as state-changing if it can alter what a disk holds (data,
//! names, attributes) or how durable that is (the syncs). Writes to pipes,
//! terminals and sockets do not count. The calls of all threads and children
//! are counted together, and are let through one at a time: when the k-th
//! begins, the k-1 before it are over.

#[cfg(target_arch = "x86_64")]
mod arch;
#[cfg(target_arch = "x86_64")]
mod decode;
#[cfg(target_arch = "x86_64")]
mod engine;
pub(crate) mod sys;
pub(crate) mod tracee;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sys::Sys;
use tracee::Tracee;

/// A run that takes longer is killed and is an error.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What to run. It sees no environment but `env` (the shell that starts it
/// may add `PWD`, and some shells `SHLVL` and `_`), and an empty stdin.
#[derive(Debug, Clone)]
pub struct Program {
    /// An absolute path.
    pub exe: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
}

/// One state-changing system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// From 1, over all threads and children.
    pub index: u64,
    pub name: &'static str,
    /// The arguments that tell it from others, e.g. `"a" -> "b", EXCHANGE`.
    pub detail: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}({})", self.index, self.name, self.detail)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited { code: i32, stdout: Vec<u8>, stderr: Vec<u8> },
    /// By us, before this call took effect.
    Killed { at: Call },
    /// By a signal that was not ours.
    Signaled(i32),
}

impl End {
    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        matches!(self, End::Exited { code: 0, .. })
    }
}

/// Whether a fault goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    Once,
    Forever,
}

/// What is to happen at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It takes place.
    Go,
    /// It does not take place, and the program sees this errno.
    Fail(i32),
    /// It does not take place: the program and its children get SIGKILL.
    Kill,
}

/// Runs to the end and lists the state-changing calls in order.
pub fn calls(p: &Program) -> io::Result<(Vec<Call>, End)> {
    let mut seen = Vec::new();
    let end = drive(p, |call| {
        seen.push(call.clone());
        Action::Go
    })?;
    Ok((seen, end))
}

/// Kills at the entry of the `k`-th state-changing call (from 1). If there are
/// fewer, the program ends by itself: the loop over `k` is over.
pub fn kill_at(p: &Program, k: u64) -> io::Result<End> {
    drive(p, |call| if call.index == k { Action::Kill } else { Action::Go })
}

/// Lets the `k`-th state-changing call fail with `errno`, and with
/// [`Fail::Forever`] all that follow it.
pub fn fail_at(p: &Program, k: u64, errno: i32, how: Fail) -> io::Result<End> {
    drive(p, |call| match how {
        Fail::Once if call.index == k => Action::Fail(errno),
        Fail::Forever if call.index >= k => Action::Fail(errno),
        _ => Action::Go,
    })
}

/// Asks `decide` at every state-changing call: the general form, for faults
/// that hit only some calls (a full disk lets unlink through).
pub fn drive(p: &Program, decide: impl FnMut(&Call) -> Action + Send) -> io::Result<End> {
    watch(p, &mut Decide(decide))
}

/// Who looks on while a program runs; called on the tracer's thread, while
/// the thread in question is stopped.
pub(crate) trait Watch: Send {
    /// Before the call.
    fn entry(&mut self, tracee: Tracee, call: &Call, sys: &Sys) -> io::Result<Action>;
    /// After it, with its result (negative: an errno).
    fn exit(&mut self, tracee: Tracee, call: &Call, sys: &Sys, result: i64) -> io::Result<()>;
}

struct Decide<F>(F);

impl<F: FnMut(&Call) -> Action + Send> Watch for Decide<F> {
    fn entry(&mut self, _: Tracee, call: &Call, _: &Sys) -> io::Result<Action> {
        Ok((self.0)(call))
    }

    fn exit(&mut self, _: Tracee, _: &Call, _: &Sys, _: i64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn watch(p: &Program, watch: &mut dyn Watch) -> io::Result<End> {
    engine::run(p, watch, TIME_LIMIT)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn watch(_: &Program, _: &mut dyn Watch) -> io::Result<End> {
    let why = "tracing is written for x86_64 only";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
