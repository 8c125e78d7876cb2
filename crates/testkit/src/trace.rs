//! Runs a [`Program`] under ptrace: reports its state-changing system calls and its [`End`]; at any call it
//! can be killed or given a false result.
//!
//! A call is state-changing if it can alter the content of a disk (data, names, attributes) or its durability
//! (the syncs). Writes to pipes and terminals do not count; those to sockets only for [`kill_at_or_send`]. The calls of all threads and children
//! are counted together and run one at a time: when the k-th begins, the k-1 before it are over.

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

/// Time limit: a longer run is killed and is an error.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Program to run. It sees only the environment `env` (the shell that starts it may add `PWD`, and some
/// shells `SHLVL` and `_`), and an empty stdin.
#[derive(Debug, Clone)]
pub struct Program {
    /// Absolute path.
    pub exe: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
}

/// State-changing system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Number from 1, over all threads and children.
    pub index: u64,
    pub name: &'static str,
    /// Arguments that distinguish it, such as `"a" -> "b", EXCHANGE`.
    pub detail: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}({})", self.index, self.name, self.detail)
    }
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Exited.
    Exited { code: i32, stdout: Vec<u8>, stderr: Vec<u8> },
    /// Killed by the tracer before this call took effect.
    Killed { at: Call },
    /// Ended by another signal.
    Signaled(i32),
}

impl End {
    /// Returns true for exit code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, End::Exited { code: 0, .. })
    }
}

/// Duration of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    Once,
    Forever,
}

/// Action at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Run it.
    Go,
    /// Skip it and return this errno.
    Fail(i32),
    /// Skip it and send SIGKILL to the program and its children.
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

/// Kills at the entry of the `k`-th state-changing call (from 1). With fewer calls the program ends normally,
/// which ends the loop over `k`.
pub fn kill_at(p: &Program, k: u64) -> io::Result<End> {
    drive(p, |call| if call.index == k { Action::Kill } else { Action::Go })
}

/// Kills as [`kill_at`] does; calls that send to a socket are counted, too: they change a server.
pub fn kill_at_or_send(p: &Program, k: u64) -> io::Result<End> {
    watch(p, &mut Sends(Decide(move |call: &Call| if call.index == k { Action::Kill } else { Action::Go })))
}

/// Makes the `k`-th state-changing call fail with `errno`, and with [`Fail::Forever`] all later ones.
pub fn fail_at(p: &Program, k: u64, errno: i32, how: Fail) -> io::Result<End> {
    drive(p, |call| match how {
        Fail::Once if call.index == k => Action::Fail(errno),
        Fail::Forever if call.index >= k => Action::Fail(errno),
        _ => Action::Go,
    })
}

/// Calls `decide` at every state-changing call: the general form, for faults that hit only some calls (a full
/// disk allows unlink).
pub fn drive(p: &Program, decide: impl FnMut(&Call) -> Action + Send) -> io::Result<End> {
    watch(p, &mut Decide(decide))
}

/// Observer of a running program; called on the tracer's thread, while the traced thread is stopped.
pub(crate) trait Watch: Send {
    /// Called before the call.
    fn entry(&mut self, tracee: Tracee, call: &Call, sys: &Sys) -> io::Result<Action>;
    /// Returns true if calls that send to a socket are counted.
    fn counts_sends(&self) -> bool {
        false
    }

    /// Called after it, with its result (negative: an errno).
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

/// Watch to which calls that send are shown, too.
struct Sends<W>(W);

impl<W: Watch> Watch for Sends<W> {
    fn entry(&mut self, tracee: Tracee, call: &Call, sys: &Sys) -> io::Result<Action> {
        self.0.entry(tracee, call, sys)
    }

    fn exit(&mut self, tracee: Tracee, call: &Call, sys: &Sys, result: i64) -> io::Result<()> {
        self.0.exit(tracee, call, sys, result)
    }

    fn counts_sends(&self) -> bool {
        true
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn watch(p: &Program, watch: &mut dyn Watch) -> io::Result<End> {
    engine::run(p, watch, TIME_LIMIT)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn watch(_: &Program, _: &mut dyn Watch) -> io::Result<End> {
    let why = "tracing supports only x86_64";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
