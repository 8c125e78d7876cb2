//! Runs a shell command in its own process group: steps, checks and undo commands of plans, the commands of `--verify` and `--until`,
//! and the test command of the user.
//!
//! In: the command, its directory, variables and deadline, and a callback that asks for a stop. Out: its exit and its output. However it
//! ends, the whole process group ends with it. `parts/databases.rs`, and `run` on the command line, start other programs.

#![allow(clippy::disallowed_methods, reason = "this module starts the commands of plans and of rollbacks")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use safepoint_model::id::RunId;
use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit of the walk up to the first process.
const ANCESTORS_MAX: usize = 4096;
/// Time that a command gets to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Interval at which a request to stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of the output that are kept from its beginning and from its end.
const LOG_HEAD_BYTES: usize = 1 << 20;
const LOG_TAIL_BYTES: usize = 3 << 20;

/// Sets the limit of open files and becomes the shell that runs the line.
const WITH_LIMIT: &str = "ulimit -S -n \"$0\" 2>/dev/null; exec /bin/sh -c \"$1\"";

/// The variable by which every process of a run is known, also after its runner died.
pub(crate) const RUN_VARIABLE: &str = "SAFEPOINT_RUN_ID";

/// A shell command for [`run_job`](crate::run_job).
pub struct Job<'a> {
    /// Line for `/bin/sh -c`.
    pub line: &'a str,
    /// Current directory of the command.
    pub directory: &'a Path,
    /// Variables to add to the environment.
    pub variables: &'a [(OsString, OsString)],
    /// Time after which the command is ended and counts as failed.
    pub deadline: Option<Instant>,
    /// Limit of open files, or `None` for the limit of this process.
    pub open_files: Option<u64>,
    /// Program, with its arguments, that becomes the shell whose words follow. Without any, the shell is started directly.
    pub through: &'a [OsString],
}

/// Request of the caller to end a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The command goes on.
    No,
    /// SIGTERM now, SIGKILL after a grace period.
    Soon,
    /// SIGKILL now.
    Now,
}

/// End of a shell command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It was ended at its deadline.
    TimedOut,
    /// It was ended because the caller asked for a stop.
    Stopped,
}

impl Exit {
    /// Returns true if the command exited with status 0.
    pub fn is_good(self) -> bool {
        self == Exit::Status(0)
    }
}

/// Printed output, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Log {
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: u64,
}

impl Log {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(LOG_HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Cut when it is twice as long, so that it is not moved each time.
        if self.tail.len() > 2 * LOG_TAIL_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.tail.len().saturating_sub(LOG_TAIL_BYTES);
        self.left_out += over as u64;
        self.tail.drain(..over);
    }

    /// All that is kept; where something is not, it says so.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.cut();
        if self.left_out > 0 {
            self.head.extend_from_slice(format!("\n[{} bytes left out]\n", self.left_out).as_bytes());
        }
        self.head.append(&mut self.tail);
        self.head
    }

    /// The last lines, for people.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let end = if self.tail.is_empty() { &self.head } else { &self.tail };
        let text = String::from_utf8_lossy(&end[end.len().saturating_sub(4096)..]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

/// Runs a shell command to its end, with standard input closed and in its own process group. Polls `stop` and passes everything that is
/// printed to `output`.
///
/// # Errors
/// When the command cannot be started or waited for.
pub fn run(job: &Job<'_>, stop: &dyn Fn() -> Stop, output: &mut dyn FnMut(&[u8])) -> io::Result<Exit> {
    let (reader, writer) = io::pipe()?;
    let mut command = match job.through.split_first() {
        Some((program, first)) => {
            let mut command = Command::new(program);
            command.args(first).arg("/bin/sh");
            command
        }
        None => Command::new("/bin/sh"),
    };
    match job.open_files {
        // Before the line runs: it must not see another limit than the one that it keeps.
        Some(files) => {
            command.args(["-c", WITH_LIMIT, &files.to_string(), job.line]);
        }
        None => {
            command.args(["-c", job.line]);
        }
    }
    command
        .current_dir(job.directory)
        .envs(job.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let child = command.spawn()?;
    // It holds the writing end of the pipe.
    drop(command);
    let pid = Pid::from_child(&child);
    // A failure to watch it must not leave it running.
    let watched = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from);
    let handle = match watched {
        Ok(handle) => handle,
        Err(error) => {
            let _ = kill_process_group(pid, Signal::KILL);
            return Err(error);
        }
    };
    Watch { child, pid, handle, pipe: Some(reader) }.until_the_end(job.deadline, stop, output)
}

/// A command that is under way.
struct Watch {
    child: Child,
    pid: Pid,
    handle: OwnedFd,
    pipe: Option<PipeReader>,
}

/// State of a polled command.
#[derive(PartialEq, Eq)]
enum Look {
    Running,
    Ended,
}

impl Watch {
    fn until_the_end(
        mut self,
        deadline: Option<Instant>,
        stop: &dyn Fn() -> Stop,
        output: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Exit> {
        let mut ending: Option<(Exit, Instant)> = None;
        while self.look(TICK, output)? == Look::Running {
            let now = Instant::now();
            let wish = match (stop(), &ending) {
                (Stop::Now, _) => Some((Exit::Stopped, Signal::KILL)),
                (_, Some((exit, since))) if now.duration_since(*since) > GRACE => Some((*exit, Signal::KILL)),
                (_, Some(_)) => None,
                (Stop::Soon, None) => Some((Exit::Stopped, Signal::TERM)),
                (Stop::No, None) if deadline.is_some_and(|deadline| now >= deadline) => {
                    Some((Exit::TimedOut, Signal::TERM))
                }
                (Stop::No, None) => None,
            };
            if let Some((exit, signal)) = wish {
                let _ = kill_process_group(self.pid, signal);
                let since = ending.map_or(now, |(_, since)| since);
                ending = Some((ending.map_or(exit, |(first, _)| first), since));
            }
        }
        // The first process has ended and is not waited for yet, so its number, which is the group's, cannot be another's.
        self.end_the_rest(output)?;
        let status = self.child.wait()?;
        Ok(ending.map_or_else(|| Exit::from(status), |(exit, _)| exit))
    }

    /// Waits briefly, and passes printed output on.
    fn look(&mut self, wait: Duration, output: &mut dyn FnMut(&[u8])) -> io::Result<Look> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(wait.as_nanos()).unwrap_or(50_000_000) };
        let mut watched = vec![PollFd::new(&self.handle, PollFlags::IN)];
        watched.extend(self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |at: usize| watched.get(at).is_some_and(|it| !it.revents().is_empty());
        let (ended, printed) = (happened(0), happened(1));
        if printed {
            self.read_once(output)?;
        }
        Ok(if ended && !printed { Look::Ended } else { Look::Running })
    }

    fn read_once(&mut self, output: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut bytes = [0u8; 16 * 1024];
        match pipe.read(&mut bytes) {
            Ok(0) => self.pipe = None,
            Ok(count) => output(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Ends the processes left in the command's group, and reads the remaining output. A process outside the group may hold the pipe
    /// open, so the wait is limited.
    fn end_the_rest(&mut self, output: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let _ = kill_process_group(self.pid, Signal::TERM);
        let since = Instant::now();
        while self.pipe.is_some() && since.elapsed() < GRACE / 4 {
            let Some(pipe) = &self.pipe else { break };
            let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut watched = [PollFd::new(pipe, PollFlags::IN)];
            if poll(&mut watched, Some(&timeout)).is_ok_and(|ready| ready > 0) {
                self.read_once(output)?;
            }
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        Ok(())
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }
    }
}

/// Ends every process of a run whose runner died. Says how many there were.
///
/// They are known by the variable that all of them inherited. Each is held by a handle before it is looked at, so that none which took
/// its number later is killed.
pub(crate) fn end_leftovers(run: RunId) -> usize {
    let since = Instant::now();
    let (mut met, mut signal) = (Vec::new(), Signal::TERM);
    loop {
        let left = leftovers(run);
        if left.is_empty() || since.elapsed() > 3 * GRACE {
            return met.len();
        }
        for (pid, handle) in left {
            if !met.contains(&pid) {
                met.push(pid);
            }
            let _ = pidfd_send_signal(handle.as_fd(), signal);
        }
        if since.elapsed() > GRACE {
            signal = Signal::KILL;
        }
        sleep(TICK);
    }
}

/// Returns true if `pid` is an ancestor of this process.
pub(crate) fn descends_from(pid: u32) -> bool {
    // The name of a program may hold brackets and spaces: what counts comes behind the last bracket.
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let mut next = parent(std::process::id());
    // A cycle cannot be, and is not waited for either.
    for _ in 0..ANCESTORS_MAX {
        match next {
            Some(above) if above == pid => return true,
            Some(above) if above > 1 => next = parent(above),
            _ => return false,
        }
    }
    false
}

fn leftovers(run: RunId) -> Vec<(i32, OwnedFd)> {
    let wanted = format!("{RUN_VARIABLE}={run}");
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Some(pid) = Pid::from_raw(number) else { continue };
        let own = |path: &Path| {
            fs::read(path.join("environ"))
                .is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|it| it == wanted.as_bytes()))
        };
        // This process may itself be one that a step started.
        if pid != rustix::process::getpid()
            && own(&process.path())
            && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && own(&process.path())
        {
            found.push((number, handle));
        }
    }
    found
}

/// A variable for a command, as bytes.
pub(crate) fn variable(name: &str, value: impl AsRef<std::ffi::OsStr>) -> (OsString, OsString) {
    (OsString::from(name), OsString::from(std::ffi::OsStr::from_bytes(value.as_ref().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job<'a>(line: &'a str, directory: &'a Path) -> Job<'a> {
        Job { line, directory, variables: &[], deadline: None, open_files: None, through: &[] }
    }

    fn run_line(line: &str) -> (Exit, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::default();
        let exit = run(&job(line, folder.path()), &|| Stop::No, &mut |bytes: &[u8]| log.push(bytes)).unwrap();
        (exit, String::from_utf8(log.into_bytes()).unwrap())
    }

    #[test]
    fn what_is_printed_and_how_it_ended_is_known() {
        assert_eq!(run_line("echo out; echo err >&2; exit 3"), (Exit::Status(3), "out\nerr\n".to_owned()));
        assert_eq!(run_line("kill -9 $$"), (Exit::Signal(9), String::new()));
        assert_eq!(run_line("cat"), (Exit::Status(0), String::new()), "there is nothing to read");
        assert!(run_line("true").0.is_good() && !run_line("false").0.is_good());
        let (exit, text) = run_line("seq 1 200000");
        assert_eq!((exit, text.lines().count()), (Exit::Status(0), 200_000));
    }

    #[test]
    fn a_program_that_is_not_there_is_a_failure_of_the_command() {
        let (exit, text) = run_line("no-such-program-here");
        assert_eq!(exit, Exit::Status(127));
        assert!(text.contains("not found"), "{text}");
        let gone = job("true", Path::new("/no/such/folder"));
        assert!(run(&gone, &|| Stop::No, &mut |_| ()).is_err());
    }

    #[test]
    fn after_its_time_the_whole_group_ends_also_what_does_not_want_to() {
        let folder = tempfile::tempdir().unwrap();
        let line = "trap '' TERM; (sleep 60; touch late) & echo $! > pid; sleep 60";
        let mut late = job(line, folder.path());
        late.deadline = Some(Instant::now() + Duration::from_millis(300));
        let since = Instant::now();
        assert_eq!(run(&late, &|| Stop::No, &mut |_| ()).unwrap(), Exit::TimedOut);
        assert!(since.elapsed() < Duration::from_secs(20));
        let pid: i32 = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }

    #[test]
    fn who_stops_it_stops_it_gently_or_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let line = "trap 'echo bye; exit 0' TERM; sleep 60 & wait";
        let mut log = Log::default();
        let since = Instant::now();
        let soon = || if since.elapsed() > Duration::from_millis(300) { Stop::Soon } else { Stop::No };
        let exit = run(&job(line, folder.path()), &soon, &mut |bytes: &[u8]| log.push(bytes)).unwrap();
        assert_eq!((exit, log.last_lines(1).as_str()), (Exit::Stopped, "bye"));
        let exit = run(&job("trap '' TERM; sleep 60", folder.path()), &|| Stop::Now, &mut |_| ()).unwrap();
        assert_eq!(exit, Exit::Stopped);
    }

    #[test]
    fn what_stays_in_the_group_ends_with_the_command_and_nobody_waits_for_what_left_it() {
        let since = Instant::now();
        let (exit, text) = run_line("sleep 60 & setsid sleep 3 & echo done");
        assert_eq!((exit, text.as_str()), (Exit::Status(0), "done\n"));
        assert!(since.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end() {
        let mut log = Log::default();
        for number in 0..1_000_000 {
            log.push(format!("line {number}\n").as_bytes());
        }
        assert_eq!(log.last_lines(2), "line 999998\nline 999999");
        let bytes = log.into_bytes();
        assert!(bytes.len() < LOG_HEAD_BYTES + LOG_TAIL_BYTES + 100);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("line 0\n") && text.ends_with("line 999999\n"));
        assert!(text.contains(" bytes left out]\n"));
        assert_eq!(Log::default().last_lines(3), "");
    }

    #[test]
    fn what_a_dead_run_left_is_found_by_its_variable_and_ended() {
        let run = RunId::from_bits(u128::from(std::process::id()));
        let mut kept = Command::new("sleep").arg("60").spawn().unwrap();
        let mut left: Vec<Child> = (0..2)
            .map(|_| Command::new("sleep").arg("60").env(RUN_VARIABLE, run.to_string()).spawn().unwrap())
            .collect();
        // They are children of this test, which must reap them.
        let reaper = std::thread::spawn(move || left.iter_mut().for_each(|child| drop(child.wait())));
        let since = Instant::now();
        while leftovers(run).len() < 2 && since.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(5));
        }
        assert_eq!(end_leftovers(run), 2);
        reaper.join().unwrap();
        assert_eq!(end_leftovers(run), 0);
        assert!(kept.try_wait().unwrap().is_none(), "another's process was left alone");
        kept.kill().unwrap();
        kept.wait().unwrap();
    }

    #[test]
    fn a_limit_of_open_files_is_the_commands_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::default();
        let few = Job { open_files: Some(77), ..job("ulimit -n; exit 3", folder.path()) };
        let exit = run(&few, &|| Stop::No, &mut |bytes: &[u8]| log.push(bytes)).unwrap();
        assert_eq!((exit, log.last_lines(1).as_str()), (Exit::Status(3), "77"));
    }
}
