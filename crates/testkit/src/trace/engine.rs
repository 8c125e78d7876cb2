//! ptrace loop: runs a program with a [`Watch`] that decides at every state-changing call, and returns its
//! end.
//!
//! Each run has a separate thread, because ptrace binds a tracee to its tracing thread, and waiting for the
//! children of that thread alone ignores other children of the test process. A shell starts the program and
//! waits on its stdin until it is traced: no `pre_exec`, no stop signals. Calls of the shell are not counted;
//! counting begins at the exec.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::arch::Regs;
use super::decode::decode;
use super::sys::Sys;
use super::tracee::Tracee;
use super::{Action, Call, End, Program, Watch};

/// Reports readiness (its own exec must be over before tracing, or it would count as the program's), then
/// waits for the end of its stdin.
const GATE: &str = r#"echo; read -r SAFEPOINT_TESTKIT_GATE; exec "$@" </dev/null"#;

/// Runs to the end, to the kill, or to the time limit.
pub(crate) fn run(p: &Program, watch: &mut dyn Watch, limit: Duration) -> io::Result<End> {
    let live = Live::default();
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|s| {
        s.spawn(|| {
            // The sender is dropped when the tracer ends in any way.
            let over = over;
            if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                live.late.store(true, Ordering::SeqCst);
                live.kill();
            }
        });
        let tracer = s.spawn(|| {
            let _done = done;
            trace(p, watch, &live)
        });
        match tracer.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Threads of the program and its children that are not reaped yet.
#[derive(Default)]
struct Live {
    tids: Mutex<BTreeSet<i32>>,
    late: AtomicBool,
    dying: AtomicBool,
}

impl Live {
    fn tids(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.tids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends SIGKILL to all, and to every later thread.
    fn kill(&self) {
        self.dying.store(true, Ordering::SeqCst);
        for tid in self.tids().iter() {
            // A thread that is already gone is fine.
            let _ = kill(Pid::from_raw(*tid), Signal::SIGKILL);
        }
    }

    fn add(&self, tid: Pid) {
        if self.tids().insert(tid.as_raw()) && self.dying.load(Ordering::SeqCst) {
            let _ = kill(tid, Signal::SIGKILL);
        }
    }
}

fn trace(p: &Program, watch: &mut dyn Watch, live: &Live) -> io::Result<End> {
    let mut child = start(p)?;
    let root = Pid::from_raw(child.id().cast_signed());
    live.add(root);
    let ready = child.stdout.as_mut().map_or(Ok(()), |out| out.read_exact(&mut [0]));
    if let Err(e) = ready.and_then(|()| Ok(ptrace::seize(root, options())?)) {
        live.kill();
        child.wait()?;
        return Err(e);
    }
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    drop(child.stdin.take());

    let mut tracer = Tracer {
        watch,
        live,
        root,
        started: false,
        count: 0,
        current: None,
        waiting: VecDeque::new(),
        killed_at: None,
        last: None,
    };
    let outcome = tracer.follow();
    if outcome.is_err() {
        live.kill();
        tracer.reap();
    }
    let (killed_at, last, started) = (tracer.killed_at.take(), tracer.last, tracer.started);
    let (stdout, stderr) = (joined(stdout)?, joined(stderr)?);
    outcome?;
    if live.late.load(Ordering::SeqCst) {
        let why = "the program exceeded the time limit";
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    if !started {
        let said = String::from_utf8_lossy(&stderr);
        return Err(io::Error::other(format!("cannot start {:?}: {said}", p.exe)));
    }
    match (killed_at, last) {
        (Some(at), _) => Ok(End::Killed { at }),
        (None, Some(WaitStatus::Exited(_, code))) => Ok(End::Exited { code, stdout, stderr }),
        (None, Some(WaitStatus::Signaled(_, signal, _))) => Ok(End::Signaled(signal as i32)),
        (None, other) => Err(io::Error::other(format!("the end of the program is unknown: {other:?}"))),
    }
}

fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL
}

fn start(p: &Program) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", GATE, "sh"])
        .arg(&p.exe)
        .args(&p.args)
        .env_clear()
        .envs(p.env.iter().map(|(k, v)| (k, v)))
        .current_dir(&p.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

type Collected = thread::JoinHandle<io::Result<Vec<u8>>>;

/// Reads a pipe to its end on another thread; a full pipe would block the tracer.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Collected {
    thread::spawn(move || {
        let mut data = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut data)?;
        }
        Ok(data)
    })
}

fn joined(reader: Collected) -> io::Result<Vec<u8>> {
    reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader of the output panicked")))
}

/// Call in progress.
struct Current {
    tid: Pid,
    call: Call,
    sys: Sys,
    fail: Option<i32>,
}

struct Tracer<'a> {
    watch: &'a mut dyn Watch,
    live: &'a Live,
    root: Pid,
    started: bool,
    count: u64,
    current: Option<Current>,
    /// Threads stopped at their entry until the current call is over.
    waiting: VecDeque<Pid>,
    killed_at: Option<Call>,
    last: Option<WaitStatus>,
}

/// A thread may be killed at any time; its end is reported separately.
fn unless_gone(result: nix::Result<()>) -> nix::Result<()> {
    match result {
        Err(Errno::ESRCH) => Ok(()),
        other => other,
    }
}

fn next_status() -> nix::Result<WaitStatus> {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    loop {
        match waitpid(Pid::from_raw(-1), Some(flags)) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

impl Tracer<'_> {
    fn follow(&mut self) -> io::Result<()> {
        loop {
            match next_status() {
                Ok(status) => self.on(status)?,
                Err(Errno::ECHILD) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for the end of all threads after an error killed them.
    fn reap(&mut self) {
        loop {
            match next_status() {
                Ok(WaitStatus::PtraceEvent(tid, ..) | WaitStatus::Stopped(tid, _)) => {
                    self.live.add(tid);
                    let _ = ptrace::cont(tid, None);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn on(&mut self, status: WaitStatus) -> io::Result<()> {
        match status {
            WaitStatus::PtraceSyscall(tid) => self.at_syscall(tid),
            WaitStatus::PtraceEvent(tid, _, event) => {
                self.live.add(tid);
                if event == libc::PTRACE_EVENT_EXEC {
                    // An exec ends the other threads and takes the id of the first without notice.
                    self.started = true;
                    self.forget(tid)?;
                }
                Ok(unless_gone(ptrace::syscall(tid, None))?)
            }
            WaitStatus::Stopped(tid, signal) => {
                self.live.add(tid);
                Ok(unless_gone(ptrace::syscall(tid, signal))?)
            }
            WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, _, _) => {
                self.live.tids().remove(&tid.as_raw());
                if tid == self.root {
                    self.last = Some(status);
                }
                self.forget(tid)
            }
            _ => Ok(()),
        }
    }

    /// Drops the call of a thread that will not reach its exit.
    fn forget(&mut self, tid: Pid) -> io::Result<()> {
        self.waiting.retain(|t| *t != tid);
        if self.current.as_ref().is_some_and(|c| c.tid == tid) {
            self.current = None;
            self.next_waiting()?;
        }
        Ok(())
    }

    fn at_syscall(&mut self, tid: Pid) -> io::Result<()> {
        let info = match ptrace::syscall_info(tid) {
            Err(Errno::ESRCH) => return Ok(()),
            other => other?,
        };
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            return self.at_entry(tid);
        }
        if self.current.as_ref().is_none_or(|c| c.tid != tid) {
            return Ok(unless_gone(ptrace::syscall(tid, None))?);
        }
        match self.current.take() {
            Some(current) => self.at_exit(current),
            None => Ok(()),
        }
    }

    fn at_entry(&mut self, tid: Pid) -> io::Result<()> {
        let regs = match Regs::read(tid) {
            Err(Errno::ESRCH) => return Ok(()),
            other => other?,
        };
        let Some((name, sys)) = decode(Tracee(tid), regs.number(), regs.args(), self.watch.counts_sends())
        else {
            return Ok(unless_gone(ptrace::syscall(tid, None))?);
        };
        if self.current.is_some() {
            self.waiting.push_back(tid);
            return Ok(());
        }
        if self.live.dying.load(Ordering::SeqCst) {
            return Ok(unless_gone(regs.skip(tid))?);
        }
        self.count += 1;
        let detail = sys.detail(Tracee(tid));
        let call = Call { index: self.count, name, detail };
        let fail = match self.watch.entry(Tracee(tid), &call, &sys)? {
            Action::Go => None,
            Action::Fail(errno) => Some(errno),
            Action::Kill => {
                unless_gone(regs.skip(tid))?;
                self.killed_at = Some(call);
                self.live.kill();
                return Ok(());
            }
        };
        if fail.is_some() {
            unless_gone(regs.skip(tid))?;
        }
        self.current = Some(Current { tid, call, sys, fail });
        Ok(unless_gone(ptrace::syscall(tid, None))?)
    }

    fn at_exit(&mut self, current: Current) -> io::Result<()> {
        let Current { tid, call, sys, fail } = current;
        match Regs::read(tid) {
            Err(Errno::ESRCH) => {}
            Err(e) => return Err(e.into()),
            Ok(regs) => match fail {
                Some(errno) => unless_gone(regs.answer(tid, -i64::from(errno)))?,
                None => self.watch.exit(Tracee(tid), &call, &sys, regs.result())?,
            },
        }
        unless_gone(ptrace::syscall(tid, None))?;
        self.next_waiting()
    }

    fn next_waiting(&mut self) -> io::Result<()> {
        while self.current.is_none() {
            let Some(tid) = self.waiting.pop_front() else {
                break;
            };
            self.at_entry(tid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the time limit, which callers cannot set.

    use super::*;

    struct Idle;

    impl Watch for Idle {
        fn entry(&mut self, _: Tracee, _: &Call, _: &Sys) -> io::Result<Action> {
            Ok(Action::Go)
        }

        fn exit(&mut self, _: Tracee, _: &Call, _: &Sys, _: i64) -> io::Result<()> {
            Err(io::Error::other("seen"))
        }
    }

    fn sh(script: &str) -> Program {
        Program {
            exe: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/".into(),
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let start = std::time::Instant::now();
        let p = sh("sleep 30 & sleep 30; wait");
        let end = run(&p, &mut Idle, Duration::from_millis(300));
        assert_eq!(end.map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn an_error_of_the_watcher_ends_the_program() {
        let start = std::time::Instant::now();
        let p = sh("sync / & sleep 30");
        let end = run(&p, &mut Idle, Duration::from_secs(30));
        assert_eq!(end.map_err(|e| e.to_string()), Err("seen".to_owned()));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
