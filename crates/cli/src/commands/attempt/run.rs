//! Runs commands in attempts: one with the user's terminal, or several at once with their output line by line.

use crate::args::attempt::{OutsideArg, RoomArgs};
use crate::commands::Context;
use crate::commands::run::{Ended, wait_for};
use crate::problem::Problem;
use crate::render::output::Printer;
use crate::render::terminal::{printable, printable_bytes};
use crate::signals::with_limit_as_given;
use rustix::process::{Pid, Signal, kill_process_group};
use safepoint::model::attempt::{Attempt, AttemptRun};
use safepoint::{
    AttemptFinished, CheckpointManager, Outside, Progress, RoomEntry, RoomProcess, Workspace, enter_room,
    test_counts,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The option that enters a room, followed by the words of a [`RoomEntry`].
pub(crate) const ENTER: &str = "--enter-attempt";
/// Interval at which a request to stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Time that a command gets to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// Time to read the rest of the output of a command that ended.
const REST: Duration = Duration::from_millis(500);
/// Bytes of the output of a check that are searched for test results.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Command line of the process that enters; empty if this program's path is unknown.
pub(crate) fn helper() -> Vec<OsString> {
    match std::env::current_exe() {
        Ok(program) => vec![program.into_os_string(), ENTER.into()],
        Err(_) => Vec::new(),
    }
}

/// Enters a room and becomes the command. This process has one thread, as the kernel demands.
pub(crate) fn enter(words: &[OsString]) -> ExitCode {
    match RoomEntry::from_words(words) {
        Some(entry) => ExitCode::from(enter_room(&entry)),
        None => ExitCode::from(2),
    }
}

/// A command that ended.
pub(super) struct Ran {
    pub(super) record: AttemptRun,
    pub(super) status: u8,
    /// True if it was asked to stop while it ran.
    pub(super) is_stopped: bool,
}

fn outside(context: &Context, args: &RoomArgs) -> Outside {
    match args.outside {
        OutsideArg::Real => Outside::Real,
        OutsideArg::ReadOnly => {
            let mut writable: Vec<PathBuf> =
                args.writable.iter().map(|path| context.surroundings.absolute(path)).collect();
            // The commands of Safepoint work inside.
            writable.push(context.surroundings.home.clone());
            Outside::ReadOnly(writable)
        }
    }
}

/// Returns the command of an attempt, ready to be started.
pub(super) fn prepared(
    context: &Context,
    manager: &CheckpointManager,
    (project, attempt): (&Workspace, &Attempt),
    (words, room): (&[OsString], &RoomArgs),
) -> Result<Command, Problem> {
    let directory = &context.surroundings.directory;
    Ok(manager.attempts().command(project, attempt, words, (directory, outside(context, room)))?)
}

fn spoken(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn milliseconds(since: Instant) -> Option<u64> {
    u64::try_from(since.elapsed().as_millis()).ok()
}

/// Runs a command with the user's terminal.
pub(super) fn alone(
    context: &Context,
    manager: &CheckpointManager,
    (project, attempt): (&Workspace, &Attempt),
    (words, room): (&[OsString], &RoomArgs),
) -> Result<Ran, Problem> {
    let command = prepared(context, manager, (project, attempt), (words, room))?;
    let since = Instant::now();
    let ended = wait_for(context, command, Child::wait);
    let ended = entered(manager, (project, attempt), words, ended)?;
    let record = AttemptRun {
        command: spoken(words),
        exit_status: Some(i32::from(ended.status)),
        milliseconds: milliseconds(since),
        ..AttemptRun::default()
    };
    Ok(Ran { record, status: ended.status, is_stopped: ended.is_stopped })
}

/// Returns the end of a command, or why it never began.
fn entered(
    manager: &CheckpointManager,
    (project, attempt): (&Workspace, &Attempt),
    words: &[OsString],
    ended: io::Result<Ended>,
) -> Result<Ended, Problem> {
    let program = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    let ended = ended.map_err(|error| Problem::command(program, &error))?;
    match manager.attempts().refused(project, attempt) {
        Some(error) => Err(Problem::from(error)),
        None => Ok(ended),
    }
}

/// Output of one attempt: a line, without its end.
pub(super) struct Said {
    name: String,
    line: Vec<u8>,
}

/// Request to end commands that run side by side.
#[derive(Default)]
pub(super) struct StopOthers(AtomicBool);

impl StopOthers {
    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs a command without a terminal, and passes its lines on. Returns its status and its output.
pub(super) fn beside(
    context: &Context,
    manager: &CheckpointManager,
    (project, attempt): (&Workspace, &Attempt),
    (words, room): (&[OsString], &RoomArgs),
    (say, stop): (&Sender<Said>, &StopOthers),
) -> Result<(Ran, Vec<u8>), Problem> {
    let mut command = prepared(context, manager, (project, attempt), (words, room))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let since = Instant::now();
    let mut child = with_limit_as_given(|| command.spawn()).map_err(|error| {
        Problem::command(words.first().map_or(OsStr::new(""), OsString::as_os_str), &error)
    })?;
    let (lines, heard) = channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let lines = lines.clone();
        // Not waited for: a daemon may hold the pipe for ever.
        std::thread::spawn(move || pass_on(pipe, &lines));
    }
    drop(lines);
    let mut output = Vec::new();
    let status =
        watch(context, &mut child, stop, &mut |wait| hear(&heard, wait, &attempt.name, say, &mut output));
    let status =
        status.map_err(|error| Problem::internal(format!("cannot wait for the command: {error}")))?;
    let ended = entered(manager, (project, attempt), words, Ok(Ended::new(status)))?;
    let record = AttemptRun {
        command: spoken(words),
        exit_status: Some(i32::from(ended.status)),
        milliseconds: milliseconds(since),
        ..AttemptRun::default()
    };
    Ok((Ran { record, status: ended.status, is_stopped: ended.is_stopped }, output))
}

/// Passes the lines of a pipe on.
fn pass_on(pipe: Box<dyn Read + Send>, lines: &Sender<Vec<u8>>) {
    let mut reader = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if lines.send(line).is_err() => return,
            Ok(_) => {}
        }
    }
}

/// Takes lines for a while. Returns false once no more can come.
fn hear(
    heard: &Receiver<Vec<u8>>,
    wait: Duration,
    name: &str,
    say: &Sender<Said>,
    output: &mut Vec<u8>,
) -> bool {
    match heard.recv_timeout(wait) {
        Ok(line) => {
            if output.len() < OUTPUT_BYTES_MAX {
                output.extend_from_slice(&line);
            }
            let end = line.iter().rposition(|byte| *byte != b'\n' && *byte != b'\r').map_or(0, |at| at + 1);
            let _ = say.send(Said { name: name.to_owned(), line: line[..end].to_vec() });
            true
        }
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(wait);
            false
        }
    }
}

/// Waits for a command, and ends its process group on request.
fn watch(
    context: &Context,
    child: &mut Child,
    stop: &StopOthers,
    hear: &mut dyn FnMut(Duration) -> bool,
) -> io::Result<std::process::ExitStatus> {
    let group = Pid::from_child(child);
    let mut asked: Option<Instant> = None;
    loop {
        hear(TICK);
        if let Some(status) = child.try_wait()? {
            let until = Instant::now() + REST;
            while Instant::now() < until && hear(TICK / 5) {}
            return Ok(status);
        }
        match asked {
            None if stop.is_asked() || context.progress.interrupted() => {
                let _ = kill_process_group(group, Signal::TERM);
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => {
                let _ = kill_process_group(group, Signal::KILL);
            }
            _ => {}
        }
    }
}

/// Prints the lines of several attempts until all are done.
pub(super) fn print_lines(out: &Printer, said: &Receiver<Said>) {
    for Said { name, line } in said {
        out.aside_line(&format!("{} | {}", out.colours.dim(printable(&name)), printable_bytes(&line)));
    }
}

/// Runs the check of an attempt. Its output is searched for test results.
pub(super) fn verify(
    context: &Context,
    manager: &CheckpointManager,
    place: (&Workspace, &Attempt),
    (line, room): (&str, &RoomArgs),
    (say, stop): (&Sender<Said>, &StopOthers),
    record: &mut AttemptRun,
) -> Result<(), Problem> {
    let words: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), OsStr::from_bytes(line.as_bytes()).into()];
    let (ran, output) = beside(context, manager, place, (&words, room), (say, stop))?;
    record.verified = Some(ran.status == 0);
    record.tests = test_counts(&String::from_utf8_lossy(&output));
    Ok(())
}

/// Captures the state of an attempt after its command.
pub(super) fn finish(
    context: &Context,
    manager: &CheckpointManager,
    (project, attempt): (&Workspace, &Attempt),
    record: &AttemptRun,
) -> Result<AttemptFinished, Problem> {
    // A signal was about the command.
    context.progress.ignore_stop();
    manager
        .attempts()
        .finish(project, attempt, record, &context.progress)
        .map_err(|error| context.failed(manager, project, error.into()))
}

/// Names the processes that outlived a command.
pub(super) fn tell_processes(out: &Printer, processes: &[RoomProcess], name: &str) {
    if !processes.is_empty() {
        let names: Vec<String> = processes
            .iter()
            .map(|process| format!("{} ({})", printable(&process.name), process.pid))
            .collect();
        out.note(format!(
            "Still running in the attempt: {}. They are ended when it is kept or dropped: safepoint attempt drop {name}",
            names.join(", ")
        ));
    }
}
