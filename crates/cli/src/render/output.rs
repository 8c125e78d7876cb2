//! The only printer. Data goes to standard output, everything else to standard error; with `--json`, standard
//! output is exactly one JSON value.
//!
//! All output is sanitized here: a line keeps only our own colours, JSON has its unsafe characters escaped,
//! and raw bytes go only to a standard output that is no terminal.

#![allow(clippy::print_stderr, reason = "this is the one place that prints")]

use crate::args::{ColorWhen, Global};
use crate::context::{Surroundings, colours_off};
use crate::problem::Problem;
use crate::render::exit;
use crate::render::json;
use crate::render::pager::{Choice, Pager, Programs};
use crate::render::terminal::{
    Colours, content, harmless, json_text, one_line, printable, printable_bytes, screen, width,
};
use crate::render::wrap::wrapped;
use safepoint::model::Timestamp;
use safepoint::{Failure, Recovery};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Result of a command.
pub(crate) struct Reply {
    /// JSON data.
    pub(crate) data: Value,
    /// Exit code.
    pub(crate) exit: u8,
    /// Finding that makes the command fail despite a result.
    pub(crate) failure: Option<Failure>,
}

impl Reply {
    /// Returns a success.
    pub(crate) fn done(data: Value) -> Self {
        Self { data, exit: exit::DONE, failure: None }
    }

    /// Returns the result of a rollback. It is partial if paths were blocked or displaced files are pending.
    pub(crate) fn rolled_back(data: Value) -> Self {
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let is_whole = |it: &Value| is_empty(&it["blocked"]) && is_empty(&it["waiting"]);
        let rollback = &data["rollback"];
        let places = rollback["together"].as_array().map(Vec::as_slice).unwrap_or_default();
        let whole = is_whole(rollback) && places.iter().all(is_whole);
        Self { exit: if whole { exit::DONE } else { exit::IN_PART }, ..Self::done(data) }
    }
}

/// JSON envelope of every result.
#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    command: &'a str,
    status: &'static str,
    exit_code: u8,
    data: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<Value>,
    messages: Vec<Value>,
    timing: Value,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// Text on standard error: standard output belongs to another program.
    Aside,
    Json,
}

/// Owner of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Safepoint, for its result.
    Ours,
    /// The program that Safepoint runs.
    Lent,
}

/// Side of a line in a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Old,
    New,
}

/// Standard output or the pager in front of it, with its write error.
struct Out {
    writer: BufWriter<Box<dyn Write + Send>>,
    failure: Option<io::Error>,
    /// Pager to start with the first line.
    choice: Option<Choice>,
    pager: Option<Pager>,
    /// Lines for standard error, which would disturb the pager.
    after: Vec<String>,
}

impl Out {
    fn plain() -> Self {
        let writer = BufWriter::new(Box::new(io::stdout()) as Box<dyn Write + Send>);
        Self { writer, failure: None, choice: None, pager: None, after: Vec::new() }
    }

    /// Puts the pager in front, if one is chosen and starts.
    fn begin(&mut self) {
        if let Some((pager, input)) = self.choice.take().and_then(Choice::start) {
            self.writer = BufWriter::new(Box::new(input));
            self.pager = Some(pager);
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes all output of this process, from any thread.
pub(crate) struct Printer {
    form: Form,
    pub(crate) quiet: bool,
    /// Colours on standard output.
    pub(crate) colours: Colours,
    error_colours: Colours,
    /// True if standard output is a terminal.
    pub(crate) terminal: bool,
    out: Mutex<Out>,
    messages: Mutex<Vec<Value>>,
    /// Crash recovery that was reported.
    recovered: Mutex<Recovery>,
    started: Timestamp,
    clock: Instant,
    waited_ms: AtomicU64,
}

impl Printer {
    pub(crate) fn new(global: &Global, json: bool, stage: Stage) -> Self {
        let terminal = match stage {
            Stage::Ours => io::stdout().is_terminal(),
            Stage::Lent => io::stderr().is_terminal(),
        };
        let colours = |terminal: bool| match global.color {
            // JSON must not contain escape sequences.
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
            out: Mutex::new(Out::plain()),
            messages: Mutex::default(),
            recovered: Mutex::default(),
            started: Surroundings::now(),
            clock: Instant::now(),
            waited_ms: AtomicU64::new(0),
        }
    }

    /// Returns a printer for text that goes to `writer`, without colours.
    pub(crate) fn to(writer: Box<dyn Write + Send>) -> Self {
        let global = Global { color: ColorWhen::Never, ..Global::default() };
        let out = Mutex::new(Out { writer: BufWriter::new(writer), ..Out::plain() });
        Self { form: Form::Text, terminal: false, out, ..Self::new(&global, false, Stage::Ours) }
    }

    /// Keeps the result of a recovery for the JSON result. Returns what was not kept before.
    pub(crate) fn recovered(&self, recovery: &Recovery) -> Recovery {
        let mut known = held(&self.recovered);
        let new = recovery.without(&known);
        known.join(new.clone());
        new
    }

    /// Removes and returns the messages.
    pub(crate) fn take_messages(&self) -> Vec<Value> {
        std::mem::take(&mut *held(&self.messages))
    }

    /// Prints a first result of a command that goes on: as JSON, or these lines.
    pub(crate) fn announce(&self, command: &str, data: &Value, lines: &[String]) {
        if self.is_json() {
            self.envelope(command, exit::DONE, &Ok(Reply::done(data.clone())));
        }
        lines.iter().for_each(|line| self.line(line));
        self.flush();
    }

    /// Returns true if the result is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Returns true if a progress bar is useful.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_json() && !self.quiet && io::stderr().is_terminal()
    }

    /// Time elapsed.
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Time that Safepoint worked, without waits for the user or another program.
    pub(crate) fn worked_ms(&self) -> u64 {
        self.elapsed_ms().saturating_sub(self.waited_ms.load(Ordering::Relaxed))
    }

    /// Does what waits for the user or another program.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let before = self.elapsed_ms();
        let done = wait();
        self.waited_ms.fetch_add(self.elapsed_ms().saturating_sub(before), Ordering::Relaxed);
        done
    }

    /// Prints one line of text.
    pub(crate) fn line(&self, text: impl Display) {
        match self.form {
            Form::Text => {
                let text = text.to_string();
                self.write(|out| writeln!(out, "{}", one_line(&text, self.colours)));
            }
            Form::Aside => self.complain(&text.to_string()),
            Form::Json => {}
        }
    }

    /// Prints a sentence, broken at words on a terminal.
    pub(crate) fn prose(&self, text: impl Display) {
        match self.terminal && self.form == Form::Text {
            true => wrapped(&text.to_string(), width()).iter().for_each(|line| self.line(line)),
            false => self.line(text),
        }
    }

    /// Prints a sentence unless `--quiet` is set.
    pub(crate) fn remark(&self, text: impl Display) {
        if !self.quiet {
            self.prose(text);
        }
    }

    /// Returns true if the output is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.failed().is_some()
    }

    /// Write error, if any.
    fn failed(&self) -> Option<ErrorKind> {
        held(&self.out).failure.as_ref().map(io::Error::kind)
    }

    fn write(&self, write: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>) {
        let mut out = held(&self.out);
        out.begin();
        if out.failure.is_none() {
            out.failure = write(&mut out.writer).err();
        }
    }

    /// Flushes the output.
    pub(crate) fn flush(&self) {
        let mut out = held(&self.out);
        if out.failure.is_none() {
            out.failure = out.writer.flush().err();
        }
    }

    /// Shows the answer through a pager, if it is text on a terminal.
    pub(crate) fn page_with(&self, programs: Programs) {
        if self.terminal && self.form == Form::Text {
            held(&self.out).choice = Choice::new(programs);
        }
    }

    /// Returns true if a pager may show the answer.
    pub(crate) fn is_paged(&self) -> bool {
        held(&self.out).choice.is_some()
    }

    /// Waits until the user has read the answer, then prints what waited for that.
    fn end_paging(&self) {
        let (pager, after) = {
            let mut out = held(&self.out);
            let Some(pager) = out.pager.take() else { return };
            // The pager sees the end of its input.
            out.writer = BufWriter::new(Box::new(io::stdout()));
            (pager, std::mem::take(&mut out.after))
        };
        pager.wait();
        after.iter().for_each(|line| self.complain(line));
    }

    /// Returns standard output for bytes: raw for a program, sanitized on a terminal.
    pub(crate) fn bytes(&self) -> impl Write + '_ {
        Bytes { printer: self, open: Vec::new() }
    }

    /// Prints a line of another program after a prefix: raw for a program, sanitized except for colours on a
    /// terminal.
    pub(crate) fn quoted_line(&self, before: &str, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let before = one_line(before, self.colours);
        let shown = if self.terminal { harmless(line, self.colours).into_bytes() } else { line.to_vec() };
        match self.form {
            Form::Text => self.write(|out| {
                [before.as_bytes(), &shown, b"\n"].iter().try_for_each(|piece| out.write_all(piece))
            }),
            Form::Aside => self.aside(&[before.as_bytes(), line, b"\n"].concat()),
            Form::Json => {}
        }
    }

    /// Prints a line of a file in a patch. A program gets the raw bytes, so that the patch can be applied; on
    /// a terminal, unsafe characters other than tabs are escaped.
    pub(crate) fn content_line(&self, side: Side, line: &str) {
        let shown = if self.terminal { content(line.as_bytes()) } else { line.to_owned() };
        let text = match side {
            Side::Both => format!(" {shown}"),
            Side::Old => self.colours.red(format!("-{shown}")),
            Side::New => self.colours.green(format!("+{shown}")),
        };
        if self.form == Form::Text {
            self.write(|out| writeln!(out, "{text}"));
        }
    }

    /// Prints output of another program on standard error. Ignores write errors.
    pub(crate) fn aside(&self, bytes: &[u8]) {
        if self.quiet {
            return;
        }
        let mut errors = io::stderr().lock();
        let _ = match errors.is_terminal() {
            false => errors.write_all(bytes),
            true => bytes.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| {
                let end = if line.ends_with(b"\n") { "\n" } else { "" };
                write!(errors, "{}{end}", harmless(line, self.error_colours))
            }),
        };
    }

    /// Prints an information.
    pub(crate) fn note(&self, text: impl Display) {
        self.message("info", &text.to_string());
        if !self.quiet {
            self.flush();
            self.complain(&text.to_string());
        }
    }

    /// Prints a line of a program that runs beside others. It is no message of Safepoint.
    pub(crate) fn aside_line(&self, text: &str) {
        self.flush();
        self.complain(text);
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: impl Display) {
        self.heed(None, &text.to_string());
    }

    /// The same, with a code for programs.
    pub(crate) fn warn_as(&self, code: &str, text: impl Display) {
        self.heed(Some(code), &text.to_string());
    }

    fn heed(&self, code: Option<&str>, text: &str) {
        held(&self.messages).push(json!({ "level": "warning", "text": text, "code": code }));
        self.flush();
        self.complain(&format!("{} {text}", self.error_colours.yellow("warning:")));
    }

    /// Prints a line of another program as text only.
    pub(crate) fn quote(&self, line: &[u8]) {
        let words: Vec<String> = line.split(|byte| *byte == b'\t').map(printable_bytes).collect();
        self.complain(&format!("    {}", self.error_colours.dim(words.join("    "))));
    }

    fn message(&self, level: &str, text: &str) {
        held(&self.messages).push(json!({ "level": level, "text": text, "code": null }));
    }

    /// Prints a line on standard error. Ignores write errors.
    fn complain(&self, text: &str) {
        let mut out = held(&self.out);
        if out.pager.is_some() {
            out.after.push(text.to_owned());
            return;
        }
        let text = one_line(text, self.error_colours);
        let mut errors = io::stderr();
        // A list stands below its sentence, and its lines are names.
        let lines = match errors.is_terminal() && !text.starts_with("    ") {
            true => wrapped(&text, screen().columns),
            false => vec![text.into_owned()],
        };
        for line in lines {
            let _ = writeln!(errors, "{line}");
        }
    }

    /// Prints a question on standard error, below its context. Without a reader there is no answer.
    pub(crate) fn ask(&self, about: &[String], question: &str) {
        self.flush();
        about.iter().for_each(|line| self.complain(line));
        let mut errors = io::stderr();
        // The answer begins behind a space.
        let columns = if errors.is_terminal() { screen().columns.saturating_sub(2) } else { usize::MAX };
        let question = wrapped(&one_line(question, self.error_colours), columns).join("\n");
        let _ = write!(errors, "{question} ").and_then(|()| errors.flush());
    }

    /// Finishes; returns the exit code.
    pub(crate) fn finish(&self, command: &str, attempt: &str, result: &Result<Reply, Problem>) -> u8 {
        let code = match result {
            Ok(reply) => reply.exit,
            // The reader closed the pipe, which is no failure.
            Err(_) if self.failed() == Some(ErrorKind::BrokenPipe) => {
                self.end_paging();
                return exit::DONE;
            }
            Err(problem) => exit::of(&problem.failure),
        };
        if self.form == Form::Json {
            self.envelope(command, code, result);
        }
        self.flush();
        self.end_paging();
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
            recovered: Some(&*held(&self.recovered)).filter(|it| !it.is_empty()).map(json::recovery),
            messages: self.take_messages(),
            timing: json!({ "started": self.started, "duration_ms": self.elapsed_ms() }),
        };
        let pretty = io::stdout().is_terminal();
        self.write(|out| {
            let text = match pretty {
                true => serde_json::to_string_pretty(&envelope)?,
                false => serde_json::to_string(&envelope)?,
            };
            out.write_all(json_text(&text).as_bytes()).and_then(|()| out.write_all(b"\n"))
        });
    }

    /// Prints a failure as text.
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
    /// Start of an incomplete character.
    open: Vec<u8>,
}

impl Bytes<'_> {
    /// Writes for a terminal. A character split over two pieces is shown once complete.
    fn show(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        let end = self.open.utf8_chunks().last().map(|chunk| chunk.invalid()).unwrap_or_default();
        let cut = std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
        let whole = self.open.len() - if cut { end.len() } else { 0 };
        let shown = content(&self.open[..whole]);
        self.open.drain(..whole);
        self.printer.write(|out| out.write_all(shown.as_bytes()));
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        let shown = content(&self.open);
        self.printer.write(|out| out.write_all(shown.as_bytes()));
    }
}

impl Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.printer.terminal {
            self.show(bytes);
        } else {
            self.printer.write(|out| out.write_all(bytes));
        }
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
