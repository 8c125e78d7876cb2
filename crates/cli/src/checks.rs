//! Runs the command that tells whether the tests pass: `[checks] test` of the user's own configuration, never of the workspace's.
//!
//! Comes in: a line for the shell, a folder, a time limit. Goes out: how it ended, and the last lines that it printed. The command has a
//! process group of its own; when it has ended, or has taken too long, or somebody asks to stop, the whole group is ended.

#![allow(clippy::disallowed_methods, reason = "this module starts the test command")]

use crate::signals::with_limit_as_given;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use safepoint::TestCommand;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of what the command prints, so many bytes are kept: the last ones.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// How long a command may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// How long to wait for the last lines when something outside of the group still has the pipe.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often to look whether somebody asked to stop.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How the tests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(ExitStatus),
    TookTooLong,
    Interrupted,
}

/// What came of the tests.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) verdict: Verdict,
    /// The end of what the command printed, on whichever of its two outputs.
    pub(crate) tail: Vec<u8>,
    pub(crate) took: Duration,
}

impl Tested {
    /// Why they do not pass, in words.
    pub(crate) fn complaint(&self, command: &TestCommand) -> Option<String> {
        let line = &command.line;
        match self.verdict {
            Verdict::Passed | Verdict::Interrupted => None,
            Verdict::Failed(status) => Some(match (status.code(), status.signal()) {
                (Some(127), _) => {
                    format!("the tests fail: `{line}` ended with status 127 (is there such a program?)")
                }
                (Some(code), _) => format!("the tests fail: `{line}` ended with status {code}"),
                (None, signal) => {
                    format!("the tests fail: `{line}` was killed by signal {}", signal.unwrap_or(0))
                }
            }),
            Verdict::TookTooLong => Some(format!(
                "the tests fail: `{line}` took longer than {} and was ended",
                command.timeout.in_words()
            )),
        }
    }
}

/// Runs the command to its end.
///
/// # Errors
/// When it cannot be started or waited for.
pub(crate) fn run(command: &TestCommand, folder: &Path, stop: &dyn Fn() -> bool) -> io::Result<Tested> {
    let started = Instant::now();
    let (output, input) = io::pipe()?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(&command.line).current_dir(folder).process_group(0);
    shell.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let child = with_limit_as_given(|| shell.spawn())?;
    // Until we give up our own ends of the pipe, its reader sees no end.
    drop(shell);
    let (tail, at_end) = keep_tail(output);
    let verdict = wait(child, command.timeout.into(), stop)?;
    // What left the group may still hold the pipe; what it prints is not waited for.
    let _ = at_end.recv_timeout(PATIENCE);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
    Ok(Tested { verdict, tail, took: started.elapsed() })
}

/// Reads all that is printed, so that nobody has to wait for a reader, and keeps the end of it.
fn keep_tail(mut output: impl Read + Send + 'static) -> (Arc<Mutex<VecDeque<u8>>>, Receiver<()>) {
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let (done, at_end) = channel();
    let kept = Arc::clone(&tail);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut piece) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&piece[..count]);
            let surplus = kept.len().saturating_sub(KEPT_BYTES_MAX);
            kept.drain(..surplus);
        }
        let _ = done.send(());
    });
    (tail, at_end)
}

fn wait(mut child: Child, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<Verdict> {
    let group = Pid::from_child(&child);
    let ended = wait_until(&child, Instant::now() + patience, stop);
    if !matches!(ended, Ok(Waited::Ended)) {
        // It may want to clear up; what does not listen is killed below.
        let _ = kill_process_group(group, Signal::TERM);
        let _ = wait_until(&child, Instant::now() + GRACE, &|| false);
    }
    // The child is not reaped yet, so the number still is its group's and nobody else's.
    let _ = kill_process_group(group, Signal::KILL);
    let status = child.wait()?;
    Ok(match ended? {
        Waited::Ended if status.success() => Verdict::Passed,
        Waited::Ended => Verdict::Failed(status),
        Waited::TimeIsUp => Verdict::TookTooLong,
        Waited::Stopped => Verdict::Interrupted,
    })
}

enum Waited {
    Ended,
    TimeIsUp,
    Stopped,
}

/// Waits without reaping.
fn wait_until(child: &Child, deadline: Instant, stop: &dyn Fn() -> bool) -> io::Result<Waited> {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let mut handles = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut handles, Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(Waited::Ended),
            Err(error) => return Err(error.into()),
        }
        if stop() {
            return Ok(Waited::Stopped);
        }
        if Instant::now() >= deadline {
            return Ok(Waited::TimeIsUp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint::model::Span;

    fn tested(line: &str, seconds: u64, stop: &dyn Fn() -> bool) -> (Tested, Option<String>) {
        let command = TestCommand { line: line.to_owned(), timeout: Span::from_seconds(seconds) };
        let tested = run(&command, Path::new("/"), stop).unwrap();
        let complaint = tested.complaint(&command);
        (tested, complaint)
    }

    fn never() -> bool {
        false
    }

    #[test]
    fn the_exit_status_decides() {
        let (passed, complaint) = tested("pwd; exit 0", 60, &never);
        assert_eq!((passed.verdict, complaint, passed.tail), (Verdict::Passed, None, b"/\n".to_vec()));
        let (failed, complaint) = tested("echo no >&2; exit 3", 60, &never);
        assert_eq!(failed.tail, b"no\n");
        assert_eq!(complaint.unwrap(), "the tests fail: `echo no >&2; exit 3` ended with status 3");
        let (_, complaint) = tested("kill -9 $$", 60, &never);
        assert_eq!(complaint.unwrap(), "the tests fail: `kill -9 $$` was killed by signal 9");
        let (_, complaint) = tested("no-such-program", 60, &never);
        assert!(complaint.unwrap().ends_with("status 127 (is there such a program?)"));
    }

    #[test]
    fn only_the_end_of_a_long_output_is_kept() {
        let (tested, _) = tested("yes | head -n 100000; echo end", 60, &never);
        assert_eq!((tested.tail.len(), &tested.tail[KEPT_BYTES_MAX - 4..]), (KEPT_BYTES_MAX, &b"end\n"[..]));
    }

    /// A process that runs or could run: one that waits to be reaped does not.
    fn lives(number: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{number}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
    }

    /// The numbers that a command printed, each of a process that was there and is gone.
    fn gone(tail: &[u8]) {
        let text = String::from_utf8_lossy(tail).into_owned();
        let numbers: Vec<&str> = text.lines().collect();
        assert_eq!(numbers.len(), 2, "{text}");
        let until = Instant::now() + Duration::from_secs(20);
        while numbers.iter().any(|number| lives(number)) {
            assert!(Instant::now() < until, "{text} still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_takes_too_long_is_ended_with_all_that_it_started() {
        let (tested, complaint) =
            tested("trap '' TERM; sleep 1000 & echo $!; echo $$; wait; wait", 1, &never);
        assert_eq!(tested.verdict, Verdict::TookTooLong);
        assert!(complaint.unwrap().ends_with("took longer than 1 second and was ended"));
        gone(&tested.tail);
    }

    #[test]
    fn what_is_left_in_the_background_ends_with_the_tests() {
        let (tested, _) = tested("sleep 1000 & echo $!; echo $$", 60, &never);
        assert_eq!(tested.verdict, Verdict::Passed);
        assert!(tested.took < Duration::from_secs(30));
        gone(&tested.tail);
    }

    #[test]
    fn a_wish_to_stop_ends_the_tests() {
        let begun = Instant::now();
        let stop = || begun.elapsed() > Duration::from_millis(300);
        let (tested, complaint) = tested("sleep 1000 & echo $!; echo $$; wait", 600, &stop);
        assert_eq!((tested.verdict, complaint), (Verdict::Interrupted, None));
        gone(&tested.tail);
    }
}
