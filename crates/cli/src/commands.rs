//! The face for terminals and scripts: reads the command line, runs one verb, prints its answer, chooses the exit code.

mod advice;
mod agent;
pub(crate) mod attempt;
mod cat;
mod complete;
mod completions;
mod create;
pub(crate) mod database;
mod delete;
mod demo;
mod diff;
mod doctor;
mod emergency;
mod export;
mod gc;
mod history;
mod hook;
mod import;
mod init;
mod install;
mod list;
mod lost;
mod man;
mod mcp;
mod naming;
mod pick;
mod pin;
mod plan;
mod position;
mod prune;
mod purge;
mod recover;
mod remote;
mod repair;
mod rollback;
mod rows;
mod rpc;
mod run;
mod session;
mod show;
mod status;
mod summary;
pub(crate) mod table;
mod ui;
mod undo;
mod usage;
mod validate;
mod version;
mod when;
mod workspace;

use crate::args::{Arguments, Command, Global};
use crate::context::{self, Surroundings};
use crate::problem::{Problem, Topic};
use crate::render::json;
use crate::render::output::{Printer, Reply, Stage};
use crate::render::pager::Programs;
use crate::render::terminal::{Bars, for_shell, printable};
use crate::{log, signals};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::text::is_unsafe;
use safepoint::model::trace::{self, TraceLevel};
use safepoint::{CheckpointManager, Error, Filter, Page, Pinned, Progress, RoleFilter, Workspace};
use std::ffi::OsString;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Newest checkpoints that a user can choose among.
const PICKED_MAX: u64 = 2000;

/// Context of every command.
pub(crate) struct Context {
    pub(crate) surroundings: Surroundings,
    pub(crate) out: Printer,
    pub(crate) progress: Bars,
    /// Skips confirmation prompts.
    pub(crate) yes: bool,
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    // First of all: the command of an attempt gets the limits and signals of its parent.
    if let [_, option, words @ ..] = typed.as_slice()
        && option == attempt::ENTER
    {
        return attempt::enter(words);
    }
    signals::raise_open_files_limit();
    signals::survive_file_limit();
    if let [_, option, from, to] = typed.as_slice()
        && option == database::COPY
    {
        return database::copy(from, to);
    }
    if let Some(called) = hook::Called::read(&typed) {
        return hook::main(called);
    }
    if let [_, command, dashes, words @ ..] = typed.as_slice()
        && command == complete::COMPLETE
        && dashes == "--"
    {
        return complete::complete(words);
    }
    match crate::args::parse(&typed) {
        Ok(arguments) => ExitCode::from(run(arguments)),
        Err(error) => ExitCode::from(refuse(&typed, &printable_error(with_whole_word(error, &typed)))),
    }
}

fn run(arguments: Arguments) -> u8 {
    let Arguments { global, command } = arguments;
    if global.utc {
        context::use_utc();
    }
    let json = (global.json || command.asks_for_json()) && !command.speaks_a_protocol();
    let out = Printer::new(&global, json, command.stage());
    let row = command.row();
    for warning in log::start(&context::Logging::read()) {
        out.warn(printable(&warning));
    }
    let _span = trace::span("verb", TraceLevel::Info, || row.name.to_owned());
    let stop = signals::listen(row.stopping());
    let progress = Bars::new(out.is_watched() && !global.no_progress, stop);
    let (out, result) = match Surroundings::read(&global, row.access()) {
        Ok(mut surroundings) => {
            surroundings.notes_workspace = command.pages();
            if command.pages() && !global.no_pager {
                out.page_with(Programs::new(&surroundings));
            }
            let context = Context { surroundings, out, progress, yes: global.yes };
            let result = guarded(|| dispatch(&context, &command));
            let result = result.map_err(|problem| {
                advice::with_file(problem, &context.surroundings.home, &context.surroundings.directory)
            });
            // Work that was cut short leaves its bar.
            context.progress.end();
            if let Some(warning) = context.surroundings.catalog_warning() {
                context.out.warn(printable(&warning));
            }
            (context.out, result)
        }
        Err(problem) => (out, Err(problem)),
    };
    let result = result.map_err(|problem| advice::fitting(&command, problem)).map(|mut reply| {
        json::complete(row.name, &mut reply.data);
        reply
    });
    let result =
        result.map_err(|problem| if row.changes_things() { problem } else { problem.silent_about_change() });
    out.finish(row.name, &row.attempt, &result)
}

fn dispatch(context: &Context, command: &Command) -> Result<Reply, Problem> {
    match command {
        Command::Init(args) => init::run(context, args),
        Command::Create(args) => create::run(context, args),
        Command::List(args) => list::run(context, args),
        Command::Show(args) => show::run(context, args),
        Command::Cat(args) => cat::run(context, args),
        Command::Diff(args) => diff::run(context, args),
        Command::Rollback(args) => rollback::run(context, args),
        Command::Run(args) => run::run(context, args),
        Command::Try(args) => attempt::try_command(context, args),
        Command::Attempt(command) => attempt::run(context, command),
        Command::Metric(args) => attempt::metric(context, args),
        Command::Plan(command) => plan::run(context, command),
        Command::Session(command) => session::run(context, command),
        Command::Agent(command) => agent::run(context, command),
        Command::Install(args) => install::install(context, args),
        Command::Uninstall(args) => install::uninstall(context, args),
        Command::Workspace(command) => workspace::run(context, command),
        Command::Remote(command) => remote::run(context, command),
        Command::Push(args) => remote::push(context, args),
        Command::Sync(args) => remote::sync(context, args),
        Command::Fetch(args) => remote::fetch(context, args),
        Command::Pull(args) => remote::pull(context, args),
        Command::Clone(args) => remote::clone(context, args),
        Command::Emergency(args) => emergency::run(context, args),
        Command::Undo(args) => undo::undo(context, args),
        Command::Redo(args) => undo::redo(context, args),
        Command::Delete(args) => delete::run(context, args),
        Command::Pin(args) => pin::run(context, args, Pinned::Yes),
        Command::Unpin(args) => pin::run(context, args, Pinned::No),
        Command::Prune(args) => prune::run(context, args),
        Command::Gc(args) => gc::run(context, args),
        Command::Usage => usage::run(context),
        Command::Purge(args) => purge::run(context, args),
        Command::Repair => repair::run(context),
        Command::Export(args) => export::run(context, args),
        Command::Import(args) => import::run(context, args),
        Command::Validate(args) => validate::run(context, args),
        Command::Summary(args) => summary::run(context, args),
        Command::History(args) => history::run(context, args),
        Command::Status => status::run(context),
        Command::Hook(_) => Err(Problem::internal("hooks are answered before".to_owned())),
        Command::Recover(args) => recover::run(context, args),
        Command::Doctor(args) => doctor::run(context, args),
        Command::Demo(args) => demo::run(context, args),
        Command::Completions(args) => completions::run(context, args),
        Command::Man(args) => man::run(context, args),
        Command::Ui(args) => ui::run(context, args),
        Command::Mcp(args) => mcp::run(context, args),
        Command::Rpc => rpc::run(context),
        Command::Version => version::run(context),
        Command::Checkpoint(_) => Err(Problem::internal("a longer spelling was not replaced".to_owned())),
    }
}

/// Runs a verb; a panic in it becomes a failure like others, with its own exit code.
fn guarded(verb: impl FnOnce() -> Result<Reply, Problem>) -> Result<Reply, Problem> {
    static WHAT: Mutex<String> = Mutex::new(String::new());
    let what = || WHAT.lock().unwrap_or_else(PoisonError::into_inner);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| *what() = panic.to_string()));
    let result = catch_unwind(AssertUnwindSafe(verb));
    std::panic::set_hook(usual);
    result.unwrap_or_else(|_| Err(Problem::internal(what().clone())))
}

/// Answers a command line that cannot be understood, or a wish for help.
fn refuse(typed: &[OsString], error: &clap::Error) -> u8 {
    let before_paths = || typed.iter().skip(1).take_while(|word| *word != "--");
    if !error.use_stderr() || !before_paths().any(|word| word == "--json") {
        complain(error);
        return u8::try_from(error.exit_code()).unwrap_or(2);
    }
    let command = named_command(before_paths());
    let text = error.to_string();
    let mut paragraphs = text.strip_prefix("error: ").unwrap_or(&text).split("\n\n").map(str::trim);
    let mut problem = Problem::usage(
        paragraphs.next().unwrap_or_default(),
        "`safepoint help` lists the commands, and each has `--help`.",
    );
    for tip in paragraphs.filter_map(|paragraph| paragraph.strip_prefix("tip: ")) {
        problem = problem.hint(tip);
    }
    let out = Printer::new(&Global { json: true, ..Global::default() }, true, Stage::Ours);
    let attempt = "understand the command line";
    out.finish(&command, attempt, &Err(problem.silent_about_change()))
}

/// The same refusal, with a tip that names the whole word: of `-wip` the parser knows only `-w`.
fn with_whole_word(mut error: clap::Error, typed: &[OsString]) -> clap::Error {
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) if error.kind() == ErrorKind::UnknownArgument => given.clone(),
        _ => return error,
    };
    let words = typed.iter().skip(1).map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    let is_short = given.len() == 2 && given != "--";
    let whole = words.filter(|word| is_short && word.starts_with(&given) && word.len() > 2).last();
    if let (Some(whole), Some(ContextValue::StyledStrs(tips))) = (whole, error.get(ContextKind::Suggested)) {
        let as_value = format!("to pass '{}' as a value", printable(&given));
        let word = for_shell(&whole);
        let tips = tips.iter().map(|tip| match tip.to_string().starts_with(&as_value) {
            true => format!("to pass '{}' as a value, use: -- {word}", printable(&whole)).into(),
            false => tip.clone(),
        });
        let tips = ContextValue::StyledStrs(tips.collect());
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The same refusal, with what was typed made harmless.
fn printable_error(mut error: clap::Error) -> clap::Error {
    let harmless = |value: &ContextValue| match value {
        ContextValue::String(text) => Some(ContextValue::String(printable(text))),
        ContextValue::Strings(texts) => {
            Some(ContextValue::Strings(texts.iter().map(|text| printable(text)).collect()))
        }
        _ => None,
    };
    let context: Vec<(ContextKind, ContextValue)> =
        error.context().filter_map(|(kind, value)| Some((kind, harmless(value)?))).collect();
    for (kind, value) in context {
        error.insert(kind, value);
    }
    error
}

/// Prints help, or a refusal on standard error. Ignores write errors.
fn complain(error: &clap::Error) {
    let text = error.render().to_string();
    // A suggestion repeats what was typed, too.
    if error.use_stderr() && text.lines().any(|line| line.contains(is_unsafe)) {
        let lines = text.lines().map(|line| printable(line) + "\n");
        let _ = std::io::stderr().write_all(lines.collect::<String>().as_bytes());
    } else {
        let _ = error.print();
    }
}

/// The command that the words name, with the groups that it is in; as much of it as was understood.
fn named_command<'w>(words: impl Iterator<Item = &'w OsString>) -> String {
    let mut at = &Arguments::command();
    let mut names: Vec<&str> = Vec::new();
    for word in words {
        if let Some(found) = at.find_subcommand(word) {
            names.push(found.get_name());
            at = found;
        }
    }
    names.join(" ")
}

impl Context {
    /// The checkpoint that the user chooses on a terminal, where none was typed. Without a terminal, `missing` says what to type.
    pub(crate) fn choose(
        &self,
        manager: &CheckpointManager,
        workspace: Option<&Workspace>,
        missing: Problem,
    ) -> Result<Checkpoint, Problem> {
        if !pick::can_pick(self) {
            return Err(missing);
        }
        let workspace = workspace.ok_or(missing)?;
        let page = manager.checkpoints().page(&Page::first(workspace.id, PICKED_MAX))?;
        let checkpoints = page.into_iter().map(|placed| placed.checkpoint).collect();
        let checkpoints = list::folded(checkpoints, workspace.head);
        pick::pick(self, manager, Some(workspace), &checkpoints)?.ok_or_else(Problem::nothing_chosen)
    }

    /// Explains why a verb failed, after what recovery did before that.
    pub(crate) fn failed(
        &self,
        manager: &CheckpointManager,
        workspace: &Workspace,
        problem: Problem,
    ) -> Problem {
        recover::tell(&self.out, &manager.take_recovered());
        self.surroundings.explain_gone(workspace, problem)
    }

    /// The checkpoint that was named, of this workspace or, by its id, of any.
    pub(crate) fn checkpoint(
        &self,
        manager: &CheckpointManager,
        workspace: Option<&Workspace>,
        given: &str,
        session: Option<&str>,
    ) -> Result<Checkpoint, Problem> {
        if workspace.is_none() && given.starts_with('@') {
            self.surroundings.workspace(manager)?;
        }
        let checkpoint = match manager.checkpoints().find(workspace, given) {
            Err(error @ Error::NoCheckpoint { .. }) => rows::named(manager, given)?
                .map_or_else(|| when::named(manager, workspace, given, error), Ok)
                .map_err(|problem| without_any(manager, workspace, problem))?,
            found => found?,
        };
        let session = session.map(context::session_id).transpose()?;
        if session.is_some() && session != checkpoint.session_id {
            let problem = Problem::from(Error::NoCheckpoint { reference: given.to_owned() });
            return Err(problem.hint("There is one of this name, in another session or in none."));
        }
        Ok(checkpoint)
    }
}

/// The problem of a name that fits nothing, in a workspace that has no checkpoint at all.
fn without_any(manager: &CheckpointManager, workspace: Option<&Workspace>, problem: Problem) -> Problem {
    let Some(workspace) = workspace.filter(|_| problem.failure.code == "no_checkpoint") else {
        return problem;
    };
    let filter =
        Filter { workspace: Some(workspace.id), role: RoleFilter::Any, limit: Some(1), ..Filter::default() };
    if manager.checkpoints().list_ids(&filter).is_ok_and(|ids| !ids.is_empty()) {
        return problem;
    }
    let mut problem = problem;
    problem.failure.message =
        format!("{}, and {} has no checkpoint yet", problem.failure.message, workspace.root_path().display());
    problem.failure.hints = vec!["Take one: safepoint create".to_owned()];
    problem.topic = Some(Topic::NoCheckpointYet);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_own_exit_code() {
        let Err(problem) = guarded(|| panic!("the sky fell")) else { panic!("it went well") };
        assert!(problem.failure.message.contains("the sky fell"), "{}", problem.failure.message);
        assert!(problem.failure.hints[0].contains("the next command finishes or undoes it"));
        assert_eq!((crate::render::exit::code(problem.failure.kind), problem.nothing_changed), (70, false));
        assert!(guarded(|| Ok(Reply::done(serde_json::Value::Null))).is_ok());
    }
}
