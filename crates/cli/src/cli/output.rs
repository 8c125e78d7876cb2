//! The one printer. Data goes to standard output, everything else to standard error; with `--json` standard output is one
//! JSON value and nothing else.

#![allow(clippy::print_stderr, reason = "this is the one place that prints")]

use crate::cli::args::{ColorWhen, Global};
use crate::cli::exit;
use crate::cli::terminal::{Colours, harmless, printable, printable_bytes};
use crate::context::{Surroundings, colours_off};
use crate::json;
use crate::problem::Problem;
use safepoint::Failure;
use safepoint::model::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a verb gives back.
pub(crate) struct Reply {
    /// For programs.
    pub(crate) data: Value,
    /// How the process ends.
    pub(crate) exit: u8,
    /// A finding that makes the whole a failure although there is a result.
    pub(crate) failure: Option<Failure>,
}

impl Reply {
    /// Everything went well.
    pub(crate) fn done(data: Value) -> Self {
        Self { data, exit: exit::DONE, failure: None }
    }
}

/// Every answer to a program.
#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    command: &'a str,
    status: &'static str,
    exit_code: u8,
    data: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
    messages: Vec<Value>,
    timing: Value,
}

/// What the output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// Text on standard error: standard output belongs to another program.
    Aside,
    Json,
}

/// Whose standard output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Safepoint's own, for its answer.
    Ours,
    /// A program's that Safepoint runs.
    Lent,
}

/// Standard output, and why it can be written no more.
struct Out {
    writer: BufWriter<Stdout>,
    failure: Option<io::Error>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes everything that this process has to say, from whichever thread.
pub(crate) struct Printer {
    form: Form,
    pub(crate) quiet: bool,
    /// Colours on standard output.
    pub(crate) colours: Colours,
    error_colours: Colours,
    /// Whether standard output is a terminal, and so a person.
    pub(crate) terminal: bool,
    out: Mutex<Out>,
    messages: Mutex<Vec<Value>>,
    started: Timestamp,
    clock: Instant,
}

impl Printer {
    pub(crate) fn new(global: &Global, json: bool, stage: Stage) -> Self {
        let terminal = match stage {
            Stage::Ours => io::stdout().is_terminal(),
            Stage::Lent => io::stderr().is_terminal(),
        };
        let colours = |terminal: bool| match global.color {
            // Escape sequences have no place inside JSON.
            _ if json => Colours { on: false },
            ColorWhen::Always => Colours { on: true },
            ColorWhen::Never => Colours { on: false },
            ColorWhen::Auto => Colours { on: terminal && !colours_off() },
        };
        Self {
            form: match stage {
                _ if json => Form::Json,
                Stage::Ours => Form::Text,
                Stage::Lent => Form::Aside,
            },
            quiet: global.quiet,
            colours: colours(terminal),
            error_colours: colours(io::stderr().is_terminal()),
            terminal: terminal && !json,
            out: Mutex::new(Out { writer: BufWriter::new(io::stdout()), failure: None }),
            messages: Mutex::default(),
            started: Surroundings::now(),
            clock: Instant::now(),
        }
    }

    /// Whether a program reads the answer.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Whether a progress bar makes sense.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_json() && !self.quiet && io::stderr().is_terminal()
    }

    /// How long it took so far.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One line of the answer, for people.
    pub(crate) fn line(&self, text: impl Display) {
        match self.form {
            Form::Text => self.write(|out| writeln!(out, "{text}")),
            Form::Aside => self.complain(&text.to_string()),
            Form::Json => {}
        }
    }

    /// The same, left out with `--quiet`.
    pub(crate) fn remark(&self, text: impl Display) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// Whether nobody reads the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.failed().is_some()
    }

    /// How writing failed, if it did.
    fn failed(&self) -> Option<ErrorKind> {
        held(&self.out).failure.as_ref().map(io::Error::kind)
    }

    fn write(&self, write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        let mut out = held(&self.out);
        if out.failure.is_none() {
            out.failure = write(&mut out.writer).err();
        }
    }

    /// What was written so far is seen now.
    pub(crate) fn flush(&self) {
        self.write(BufWriter::flush);
    }

    /// Standard output for bytes as they are.
    pub(crate) fn bytes(&self) -> impl Write + '_ {
        Bytes { printer: self }
    }

    /// A line as another program printed it.
    pub(crate) fn raw_line(&self, line: &[u8]) {
        if self.form == Form::Text {
            self.write(|out| out.write_all(line).and_then(|()| out.write_all(b"\n")));
        }
    }

    /// What another program prints while standard output belongs to our answer. That nobody reads it is no reason to fail.
    pub(crate) fn aside(&self, bytes: &[u8]) {
        if self.quiet {
            return;
        }
        let mut errors = io::stderr().lock();
        let _ = match errors.is_terminal() {
            false => errors.write_all(bytes),
            true => bytes
                .split_inclusive(|byte| *byte == b'\n')
                .try_for_each(|line| writeln!(errors, "{}", harmless(line, self.error_colours))),
        };
    }

    /// Something to know.
    pub(crate) fn note(&self, text: impl Display) {
        self.message("info", &text.to_string());
        if !self.quiet {
            self.flush();
            self.complain(&text.to_string());
        }
    }

    /// Something to heed.
    pub(crate) fn warn(&self, text: impl Display) {
        let text = text.to_string();
        self.message("warning", &text);
        self.flush();
        self.complain(&format!("{} {text}", self.error_colours.yellow("warning:")));
    }

    /// A line that another program printed, for people alone.
    pub(crate) fn quote(&self, line: &[u8]) {
        let words: Vec<String> = line.split(|byte| *byte == b'\t').map(printable_bytes).collect();
        self.complain(&format!("    {}", self.error_colours.dim(words.join("    "))));
    }

    fn message(&self, level: &str, text: &str) {
        held(&self.messages).push(json!({ "level": level, "text": text }));
    }

    /// A line on standard error. That nobody reads it is no reason to fail.
    fn complain(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Ends the answer; gives the exit code.
    pub(crate) fn finish(&self, command: &str, attempt: &str, result: &Result<Reply, Problem>) -> u8 {
        let code = match result {
            Ok(reply) => reply.exit,
            // Whoever read the answer had enough; that is not a failure.
            Err(_) if self.failed() == Some(ErrorKind::BrokenPipe) => return exit::DONE,
            Err(problem) => exit::of(&problem.failure),
        };
        if self.form == Form::Json {
            self.envelope(command, code, result);
        }
        self.flush();
        if let Err(problem) = result {
            self.tell(problem.attempt.unwrap_or(attempt), problem);
        }
        let failure = held(&self.out).failure.take();
        match failure {
            None => code,
            Some(error) if error.kind() == ErrorKind::BrokenPipe => code,
            Some(error) => {
                let problem = Problem::output(&error);
                self.tell(attempt, &problem);
                exit::code(problem.failure.kind)
            }
        }
    }

    fn envelope(&self, command: &str, code: u8, result: &Result<Reply, Problem>) {
        let (data, error) = match result {
            Ok(reply) => (&reply.data, reply.failure.as_ref()),
            Err(problem) => (&Value::Null, Some(&problem.failure)),
        };
        let envelope = Envelope {
            version: json::VERSION,
            command,
            status: if error.is_some() { "error" } else { "ok" },
            exit_code: code,
            data,
            error,
            messages: std::mem::take(&mut *held(&self.messages)),
            timing: json!({ "started": self.started, "duration_ms": self.elapsed_ms() }),
        };
        let pretty = io::stdout().is_terminal();
        self.write(|out| {
            if pretty {
                serde_json::to_writer_pretty(&mut *out, &envelope)?;
            } else {
                serde_json::to_writer(&mut *out, &envelope)?;
            }
            out.write_all(b"\n")
        });
    }

    /// A failure, for people.
    pub(crate) fn tell(&self, attempt: &str, problem: &Problem) {
        let Failure { message, causes, hints, .. } = &problem.failure;
        let colours = self.error_colours;
        self.complain(&format!("{} cannot {attempt}: {}", colours.red("error:"), printable(message)));
        for cause in causes {
            self.complain(&format!("  because: {}", printable(cause)));
        }
        if problem.nothing_changed {
            self.complain("Nothing was changed.");
        }
        for hint in hints {
            self.complain(&format!("{} {}", colours.cyan("hint:"), printable(hint)));
        }
    }
}

struct Bytes<'p> {
    printer: &'p Printer,
}

impl Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.printer.write(|out| out.write_all(bytes));
        match self.printer.failed() {
            Some(kind) => Err(kind.into()),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.printer.flush();
        Ok(())
    }
}
