//! State of a workspace: obstacles to a checkpoint, entries it would lack, and the test result.
//!
//! Errors are conditions that prevent a checkpoint. Everything else is a warning, including failing tests.

use crate::checks;
use crate::commands::create::is_lack;
use crate::commands::{Context, lost, recover};
use crate::problem::Problem;
use crate::render::output::Printer;
use crate::render::terminal::{counted, printable, size};
use crate::render::warning::{self, in_one_line};
use crate::signals;
use safepoint::{
    CheckpointManager, Exit, Failure, FailureKind, GitStatus, Progress, Survey, TestCommand, Warning,
    Workspace,
};
use std::time::Duration;

/// Number of last output lines of failing tests to print.
const LINES_MAX: usize = 20;

/// State of a workspace.
#[derive(Default)]
pub(super) struct State {
    failures: Vec<Failure>,
    pub(super) warnings: Vec<String>,
    /// Warnings that were printed already.
    noted: Vec<String>,
    pub(super) tests_passing: Option<bool>,
    /// Status of its repository, if readable.
    pub(super) git: Option<GitStatus>,
}

impl State {
    /// Lines of errors.
    pub(super) fn errors(&self) -> impl Iterator<Item = String> + '_ {
        self.failures.iter().map(in_one_line)
    }

    /// Returns the first failure, which fails the command.
    pub(super) fn into_failure(self) -> Option<Failure> {
        self.failures.into_iter().next()
    }
}

/// Looks, and says what is found.
pub(super) fn look(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
) -> Result<State, Problem> {
    let mut state = State::default();
    let survey = survey(context, manager, workspace, &mut state)?;
    look_at_git(context, manager, workspace, &mut state)?;
    tell(&context.out, workspace, survey.as_ref(), &state);
    state.warnings.append(&mut state.noted);
    // The test command is the user's, so the workspace's file does not matter, even if invalid.
    match manager.config(None).map(|config| config.test) {
        Ok(Some(test)) if workspace.root_path().is_dir() => {
            run_tests(context, workspace, &test, &mut state)?;
        }
        Ok(None) => context.out.remark("Tests: not known, because no test command is configured."),
        _ => context.out.line("Tests: not run."),
    }
    Ok(state)
}

/// Contents of a checkpoint if created now, or `None` if unknown.
fn survey(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    state: &mut State,
) -> Result<Option<Survey>, Problem> {
    let mut survey = || -> Result<Survey, Problem> {
        let gone = |error: safepoint::Error| context.surroundings.explain_gone(workspace, error.into());
        let config = manager.config(Some(workspace)).map_err(gone)?;
        state.warnings.extend(config.warnings);
        let survey = manager.survey(workspace, &context.progress);
        recover::tell(&context.out, &manager.take_recovered());
        survey.map_err(gone)
    };
    let survey = match survey() {
        Ok(survey) => survey,
        Err(problem) if problem.failure.kind == FailureKind::Interrupted => return Err(problem),
        // A lock is no error of the state.
        Err(problem) if problem.failure.kind == FailureKind::Busy => {
            state.warnings.push(format!("not looked at: {}", in_one_line(&problem.failure)));
            return Ok(None);
        }
        Err(problem) => {
            state.failures.push(problem.failure);
            return Ok(None);
        }
    };
    let lacks = survey.coverage.skipped.iter().filter(|skipped| is_lack(skipped));
    state.warnings.extend(
        lacks.map(|skipped| format!("{} would not be in a checkpoint: {}", skipped.path, skipped.why)),
    );
    state.warnings.extend(survey.coverage.unsettled.iter().map(|path| {
        format!("{path} changes all the while: a checkpoint of it may be a mixture of two moments")
    }));
    state.warnings.extend(survey.warnings.iter().cloned());
    Ok(Some(survey))
}

/// Checks the repository. An unreadable one does not prevent a checkpoint.
fn look_at_git(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    state: &mut State,
) -> Result<(), Problem> {
    if !workspace.root_path().is_dir() {
        return Ok(());
    }
    if let Some(lost) = lost::report(&context.out, manager, workspace) {
        state.noted.extend(warning::texts(&[Warning::RepositoryMissing(lost)]));
    }
    match manager.git_status(workspace, &context.progress).map_err(Problem::from) {
        Ok(git) => state.git = git,
        Err(problem) if problem.failure.kind == FailureKind::Interrupted => return Err(problem),
        Err(problem) => state.warnings.push(format!("git: {}", in_one_line(&problem.failure))),
    }
    Ok(())
}

/// Repository status line.
fn git_line(git: &GitStatus) -> String {
    let branch = git.branch.as_deref().map(printable).unwrap_or_default();
    let commit: String = git.commit.iter().flat_map(|sha| sha.chars().take(10)).collect();
    let place = match git.state {
        "branch" => format!("on {branch} at {commit}"),
        "unborn" => format!("on {branch}, without a commit"),
        _ => format!("detached at {commit}"),
    };
    let operation =
        git.operation.map(|operation| format!(", a {operation} is under way")).unwrap_or_default();
    let changes = &git.changes;
    let uncommitted = match changes.is_empty() {
        true => "nothing is uncommitted".to_owned(),
        false => format!(
            "uncommitted: {} staged, {} modified, {} untracked",
            changes.staged, changes.modified, changes.untracked
        ),
    };
    format!("Git: {place}{operation}; {uncommitted}.")
}

fn tell(out: &Printer, workspace: &Workspace, survey: Option<&Survey>, state: &State) {
    let name = printable(&workspace.name);
    if !state.failures.is_empty() {
        out.line(format!("{} a checkpoint of {name} would be refused:", out.colours.red("Not ready:")));
        for failure in &state.failures {
            out.line(format!("    {}", printable(&in_one_line(failure))));
            failure.hints.iter().for_each(|hint| {
                out.line(format!("    {} {}", out.colours.cyan("hint:"), printable(hint)));
            });
        }
    }
    if let Some(survey) = survey {
        let held = counted(survey.count, "file or folder", "files and folders");
        out.line(format!(
            "{} a checkpoint of {name} would hold {held}, {}.",
            out.colours.green("Ready:"),
            size(survey.bytes)
        ));
    }
    state.git.iter().for_each(|git| out.line(git_line(git)));
    state.warnings.iter().for_each(|warning| out.warn(printable(warning)));
}

fn run_tests(
    context: &Context,
    workspace: &Workspace,
    test: &TestCommand,
    state: &mut State,
) -> Result<(), Problem> {
    let out = &context.out;
    let Tests { passing, complaint, tail, took } = tested(context, workspace, test)?;
    state.tests_passing = passing;
    match complaint {
        None => {
            let took = took.as_millis();
            out.line(format!("{} `{}`, {took} ms", out.colours.green("Tests pass:"), printable(&test.line)));
        }
        Some(complaint) => {
            if passing.is_some() {
                out.line(out.colours.yellow("Tests fail."));
            }
            out.warn(printable(&complaint));
            quote(out, &tail);
            state.warnings.push(complaint);
        }
    }
    Ok(())
}

/// Result of the tests.
#[derive(Default)]
pub(crate) struct Tests {
    /// True if they pass; none if unfinished.
    pub(crate) passing: Option<bool>,
    /// Failure reason.
    pub(crate) complaint: Option<String>,
    tail: Vec<u8>,
    took: Duration,
}

/// Runs the tests.
pub(crate) fn tested(context: &Context, workspace: &Workspace, test: &TestCommand) -> Result<Tests, Problem> {
    let out = &context.out;
    if out.is_watched() {
        out.note(format!("Running the tests: {}", printable(&test.line)));
    }
    signals::listen_for_another();
    let tested = match checks::run(test, workspace.root_path(), &|| context.progress.interrupted()) {
        Ok(tested) => tested,
        Err(error) => {
            let complaint = Some(format!("the tests could not be run: {error}"));
            return Ok(Tests { complaint, ..Tests::default() });
        }
    };
    if tested.exit == Exit::Stopped {
        return Err(Problem::interrupted("The tests were ended."));
    }
    let complaint = tested.complaint(test);
    let (tail, took) = (tested.tail, tested.took);
    Ok(Tests { passing: Some(complaint.is_none()), complaint, tail, took })
}

/// The state of a folder in which no workspace is registered: a checkpoint of it does not exist.
pub(super) fn unregistered(context: &Context, manager: &CheckpointManager) -> State {
    let Err(problem) = context.surroundings.workspace(manager) else { return State::default() };
    let out = &context.out;
    out.line(format!("{} {}", out.colours.red("Not registered:"), printable(&problem.failure.message)));
    State { failures: vec![problem.failure], ..State::default() }
}

/// The last lines that the tests printed.
fn quote(out: &Printer, tail: &[u8]) {
    let lines: Vec<&[u8]> = tail.trim_ascii_end().split(|byte| *byte == b'\n').collect();
    let lines = &lines[lines.len().saturating_sub(LINES_MAX)..];
    for line in lines.iter().filter(|line| !line.is_empty()) {
        out.quote(line);
    }
}
