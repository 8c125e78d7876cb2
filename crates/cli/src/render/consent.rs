//! Asking before something is gone for good. Without a terminal nothing is ever asked: then only `--yes` will do.

use crate::commands::Context;
use crate::problem::Problem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IsTerminal, Write};

/// Polling interval for stop requests.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// True if the user can be asked.
pub(crate) fn can_ask(context: &Context) -> bool {
    !context.out.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Goes on only if the user says so. The question is one that can be answered with yes.
pub(crate) fn ask(context: &Context, question: &str) -> Result<(), Problem> {
    ask_about(context, &[], question)
}

/// The same, with lines above the question.
pub(crate) fn ask_about(context: &Context, about: &[String], question: &str) -> Result<(), Problem> {
    if context.yes {
        return Ok(());
    }
    if !can_ask(context) {
        return Err(Problem::usage("cannot ask for confirmation: no terminal", "Confirm with --yes."));
    }
    match typed(context, about, &format!("{question} [y/N]"))?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Problem::declined()),
    }
}

/// Returns the user's input, trimmed. Without input, it is empty.
pub(crate) fn line(context: &Context, question: &str) -> Result<String, Problem> {
    typed(context, &[], question)
}

fn typed(context: &Context, about: &[String], question: &str) -> Result<String, Problem> {
    context.out.ask(about, question);
    match context.out.waiting(|| answer(context)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Err(Problem::interrupted("Run it again when you like."))
        }
        answer => Ok(answer.unwrap_or_default().trim().to_owned()),
    }
}

/// One line from the terminal. A wish to stop is heard while we wait for it.
fn answer(context: &Context) -> io::Result<String> {
    let stdin = io::stdin();
    loop {
        if context.progress.was_asked_to_stop() {
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
