//! Runs the test command: `[checks] test` of the user's own configuration, never of the workspace's.
//!
//! In: a line for the shell, a folder, a time limit. Out: its exit and the last bytes that it printed.

use crate::signals;
use safepoint::{Exit, Job, Stop, TestCommand, run_job};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of bytes at the end of the output that are kept.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Result of the test command.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) exit: Exit,
    /// End of the output, of both streams.
    pub(crate) tail: Vec<u8>,
    pub(crate) took: Duration,
}

impl Tested {
    /// Reason for which the tests count as failed, if they do.
    pub(crate) fn complaint(&self, command: &TestCommand) -> Option<String> {
        let line = &command.line;
        match self.exit {
            Exit::Status(0) | Exit::Stopped => None,
            Exit::Status(127) => {
                Some(format!("the tests fail: `{line}` ended with status 127 (is there such a program?)"))
            }
            Exit::Status(code) => Some(format!("the tests fail: `{line}` ended with status {code}")),
            Exit::Signal(signal) => Some(format!("the tests fail: `{line}` was killed by signal {signal}")),
            Exit::TimedOut => Some(format!(
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
    let job = Job {
        line: &command.line,
        directory: folder,
        variables: &[],
        deadline: started.checked_add(command.timeout.into()),
        open_files: signals::files_at_start(),
        through: &[],
    };
    let mut tail = VecDeque::new();
    let exit = run_job(&job, &|| if stop() { Stop::Soon } else { Stop::No }, &mut |printed| {
        tail.extend(printed);
        let surplus = tail.len().saturating_sub(KEPT_BYTES_MAX);
        tail.drain(..surplus);
    })?;
    Ok(Tested { exit, tail: tail.into(), took: started.elapsed() })
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
        assert_eq!((passed.exit, complaint, passed.tail), (Exit::Status(0), None, b"/\n".to_vec()));
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
        assert_eq!(tested.exit, Exit::TimedOut);
        assert!(complaint.unwrap().ends_with("took longer than 1 second and was ended"));
        gone(&tested.tail);
    }

    #[test]
    fn what_is_left_in_the_background_ends_with_the_tests() {
        let (tested, _) = tested("sleep 1000 & echo $!; echo $$", 60, &never);
        assert_eq!(tested.exit, Exit::Status(0));
        assert!(tested.took < Duration::from_secs(30));
        gone(&tested.tail);
    }

    #[test]
    fn a_wish_to_stop_ends_the_tests() {
        let begun = Instant::now();
        let stop = || begun.elapsed() > Duration::from_millis(300);
        let (tested, complaint) = tested("sleep 1000 & echo $!; echo $$; wait", 600, &stop);
        assert_eq!((tested.exit, complaint), (Exit::Stopped, None));
        gone(&tested.tail);
    }
}
