//! Asking before something is gone for good. Without a terminal nothing is ever asked: then only `--yes` will do.

use crate::cli::Context;
use crate::problem::Problem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use safepoint::Progress;
use std::io::{self, IsTerminal, Write};

/// How often to look whether somebody would rather stop.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Goes on only if the user says so. The question is one that can be answered with yes.
pub(crate) fn ask(context: &Context, question: &str) -> Result<(), Problem> {
    if context.yes {
        return Ok(());
    }
    if context.out.is_json() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Problem::usage(
            "this cannot be taken back, and there is no terminal to ask on",
            "If you mean it, say so with --yes.",
        ));
    }
    let mut errors = io::stderr();
    // Whoever cannot see the question will not say yes.
    let _ = write!(errors, "{question} [y/N] ").and_then(|()| errors.flush());
    match answer(context) {
        Ok(line) if ["y", "yes"].contains(&line.trim().to_lowercase().as_str()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Err(Problem::interrupted("Run it again when you like."))
        }
        // Whoever cannot be heard has not said yes.
        Ok(_) | Err(_) => Err(Problem::declined()),
    }
}

/// One line from the terminal. A wish to stop is heard while we wait for it.
fn answer(context: &Context) -> io::Result<String> {
    let stdin = io::stdin();
    loop {
        if context.progress.interrupted() {
            let _ = writeln!(io::stderr());
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut wanted, Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    Ok(line)
}
