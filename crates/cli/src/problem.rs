//! Failure for the caller: of the library, or of the command line itself.

use crate::render::terminal::moment;
use safepoint::model::ModelError;
use safepoint::{ConfigFile, Error, Failure, FailureKind, NamedCandidate};
use safepoint_agents::install::InstallError;
use std::path::Path;

/// Error codes unknown to the library. `docs/errors.md` explains them, too.
pub(crate) const OWN_CODES: &[(&str, FailureKind)] = &[
    ("usage", FailureKind::Usage),
    ("not_available", FailureKind::Usage),
    ("outside_workspace", FailureKind::Usage),
    ("command_not_found", FailureKind::NotFound),
    ("command_not_started", FailureKind::Failed),
    ("no_key", FailureKind::NotFound),
    ("step_failed", FailureKind::Failed),
    ("cancelled", FailureKind::Failed),
    ("unreadable", FailureKind::Failed),
    ("output", FailureKind::Failed),
    ("not_written", FailureKind::Failed),
    ("exists", FailureKind::Conflict),
    ("not_confirmed", FailureKind::Conflict),
    ("temporary_folder", FailureKind::Failed),
    ("interrupted", FailureKind::Interrupted),
    ("declined", FailureKind::Failed),
    ("not_served", FailureKind::Failed),
    // Of the crate `safepoint-mcp`.
    ("stale_preview", FailureKind::Conflict),
    ("busy", FailureKind::Busy),
    // Of the Python package.
    ("unfinished_transaction", FailureKind::Conflict),
    ("settings_invalid", FailureKind::Failed),
    ("settings_refused", FailureKind::Conflict),
    ("internal", FailureKind::Internal),
];

/// Subject of a failure that has hints of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The folder has no checkpoint, so there is nothing to roll back to.
    NoCheckpointYet,
    /// A configuration file is wrong.
    Configuration(ConfigFile),
}

/// Failure, and its effect.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) failure: Failure,
    /// True to print "Nothing was changed."
    pub(crate) nothing_changed: bool,
    /// Attempted action for "cannot ...", if it differs from that of the command.
    pub(crate) attempt: Option<&'static str>,
    pub(crate) topic: Option<Topic>,
}

impl Problem {
    fn own(code: &'static str, kind: FailureKind, message: String, hints: Vec<String>) -> Self {
        debug_assert!(OWN_CODES.contains(&(code, kind)), "{code} is not in the table");
        let failure = Failure { code, kind, message, causes: Vec::new(), hints };
        Self { failure, nothing_changed: true, attempt: None, topic: None }
    }

    /// Invalid arguments.
    pub(crate) fn usage(message: impl Into<String>, hint: &str) -> Self {
        Self::own("usage", FailureKind::Usage, message.into(), vec![hint.to_owned()])
    }

    /// Planned but missing feature.
    pub(crate) fn not_available(what: &str, hint: &str) -> Self {
        let message = format!("{what} is not available yet");
        Self::own("not_available", FailureKind::Usage, message, vec![hint.to_owned()])
    }

    /// Path outside the workspace.
    pub(crate) fn outside(given: &Path, root: &Path) -> Self {
        let message = format!("{given:?} is outside the workspace {}", root.display());
        let hint = "Paths are relative to the current directory, or to the one named with -C.".to_owned();
        Self::own("outside_workspace", FailureKind::Usage, message, vec![hint])
    }

    /// Path that neither side of a comparison has.
    pub(crate) fn no_such_path(given: &Path, sides: &str, hints: Vec<String>) -> Self {
        let message = format!("{given:?} is in neither {sides}");
        let failure =
            Failure { code: "no_path", kind: FailureKind::NotFound, message, causes: Vec::new(), hints };
        Self { failure, nothing_changed: true, attempt: None, topic: None }
    }

    /// The result could not be written; the operation may still be done.
    pub(crate) fn output(cause: &std::io::Error) -> Self {
        let message = "cannot write the output".to_owned();
        let hint =
            "What was asked for may be done: `safepoint status` and `safepoint list` show it.".to_owned();
        let mut problem = Self::own("output", FailureKind::Failed, message, vec![hint]);
        problem.failure.causes.push(cause.to_string());
        problem.nothing_changed = false;
        problem
    }

    /// Unknown key of a plan.
    pub(crate) fn no_key(plan: &str, key: &str) -> Self {
        let message = format!("plan {plan} knows nothing under {key:?}");
        let hint = "`safepoint plan show PLAN` shows what it knows.".to_owned();
        Self::own("no_key", FailureKind::NotFound, message, vec![hint])
    }

    /// Failed step of a plan; `place` is its folder.
    pub(crate) fn step_failed(plan: &str, step: &str, error: &str, place: &str) -> Self {
        let hints = vec![
            format!("Fix what is wrong in {place} and resume: safepoint plan resume {plan}"),
            format!("Or roll back to before the first error: safepoint plan correct {plan} --mode revert"),
            format!("Or to any checkpoint: safepoint plan rollback {plan}"),
        ];
        let message = format!("step {step} failed: {error}");
        Self::own("step_failed", FailureKind::Failed, message, hints).silent_about_change()
    }

    /// Plan cancelled during its run.
    pub(crate) fn cancelled(plan: &str) -> Self {
        let hint =
            format!("A rollback to one of its checkpoints brings it back: safepoint plan rollback {plan}");
        let message = "it was cancelled during the run".to_owned();
        Self::own("cancelled", FailureKind::Failed, message, vec![hint]).silent_about_change()
    }

    /// Stopped run of a plan.
    pub(crate) fn run_stopped(plan: &str, step: Option<&str>) -> Self {
        let (message, hint) = match step {
            Some(step) => (
                format!("it was stopped during step {step}"),
                format!(
                    "Look at what {step} did, then go on with: safepoint plan resume {plan} --interrupted rerun|done|fail"
                ),
            ),
            None => ("it was stopped".to_owned(), format!("Go on with: safepoint plan resume {plan}")),
        };
        Self::own("interrupted", FailureKind::Interrupted, message, vec![hint]).silent_about_change()
    }

    /// Unreadable file.
    pub(crate) fn unreadable(path: &Path, cause: &std::io::Error) -> Self {
        let message = format!("cannot read {}", path.display());
        let hint = "Name a file that you may read, or - for standard input.".to_owned();
        let mut problem = Self::own("unreadable", FailureKind::Failed, message, vec![hint]);
        problem.failure.causes.push(cause.to_string());
        problem
    }

    /// File that cannot be written.
    pub(crate) fn not_written(path: &Path, cause: &std::io::Error) -> Self {
        let message = format!("cannot write {}", path.display());
        let hint = "Name a folder that you may write.".to_owned();
        let mut problem = Self::own("not_written", FailureKind::Failed, message, vec![hint]);
        problem.failure.causes.push(cause.to_string());
        problem
    }

    /// Server that cannot be started.
    pub(crate) fn not_served(message: String, cause: Option<String>) -> Self {
        let hint = "Choose a free port: safepoint mcp --http 127.0.0.1:0".to_owned();
        let mut problem = Self::own("not_served", FailureKind::Failed, message, vec![hint]);
        problem.failure.causes.extend(cause);
        problem
    }

    /// Output file that exists already.
    pub(crate) fn exists(path: &Path) -> Self {
        let message = format!("{} is there already", path.display());
        let hint = "Name another file, or replace this one with --force.".to_owned();
        Self::own("exists", FailureKind::Conflict, message, vec![hint])
    }

    /// Unusable temporary folder of the demo.
    pub(crate) fn temporary_folder(path: &Path, cause: &std::io::Error) -> Self {
        let message = format!("cannot use the temporary folder {}", path.display());
        let hint = "Name a folder that you may write with TMPDIR.".to_owned();
        let mut problem = Self::own("temporary_folder", FailureKind::Failed, message, vec![hint]);
        problem.failure.causes.push(cause.to_string());
        problem
    }

    /// Question that could not be asked.
    pub(crate) fn not_confirmed(message: &str) -> Self {
        Self::own(
            "not_confirmed",
            FailureKind::Conflict,
            message.to_owned(),
            vec!["Confirm with --yes.".to_owned()],
        )
    }

    /// Prompt that was not confirmed.
    pub(crate) fn declined() -> Self {
        let hint = "Answer y to go on, or give --yes.".to_owned();
        Self::own("declined", FailureKind::Failed, "not confirmed".to_owned(), vec![hint])
    }

    /// The user was offered a choice and took none.
    pub(crate) fn nothing_chosen() -> Self {
        let hint = "Name the checkpoint by its id: safepoint list".to_owned();
        Self::own("declined", FailureKind::Failed, "no checkpoint was chosen".to_owned(), vec![hint])
    }

    /// Another process does the same now.
    pub(crate) fn busy(message: &str) -> Self {
        let hint = "Wait until it has finished, then try again.".to_owned();
        Self::own("busy", FailureKind::Busy, message.to_owned(), vec![hint])
    }

    /// Interrupt between two steps.
    pub(crate) fn interrupted(hint: &str) -> Self {
        Self::own("interrupted", FailureKind::Interrupted, "interrupted".to_owned(), vec![hint.to_owned()])
    }

    /// Program that cannot be started. The exit codes follow the shell.
    pub(crate) fn command(program: &std::ffi::OsStr, cause: &std::io::Error) -> Self {
        let hint = "Nothing was run. Is it spelled right, may you execute it, and is it in PATH?".to_owned();
        let (code, kind, message) = match cause.kind() {
            std::io::ErrorKind::NotFound => {
                ("command_not_found", FailureKind::NotFound, format!("there is no program {program:?}"))
            }
            _ => (
                "command_not_started",
                FailureKind::Failed,
                format!("the program {program:?} does not start"),
            ),
        };
        let mut problem = Self::own(code, kind, message, vec![hint]);
        problem.failure.causes.push(cause.to_string());
        problem
    }

    /// Bug in Safepoint.
    pub(crate) fn internal(message: String) -> Self {
        let hints = vec![
            "This is a defect of Safepoint. Whatever was half done, the next command finishes or undoes it."
                .to_owned(),
            "Please report it, with the command that you typed.".to_owned(),
        ];
        Self { nothing_changed: false, ..Self::own("internal", FailureKind::Internal, message, hints) }
    }

    /// Settings file of an agent that cannot be edited. `again` is the command to repeat.
    pub(crate) fn settings(error: &InstallError, again: &str) -> Self {
        use std::error::Error as _;
        let (code, kind) = match error {
            InstallError::Invalid { .. } | InstallError::Unexpected { .. } => {
                ("settings_invalid", FailureKind::Failed)
            }
            InstallError::Refused { .. } => ("settings_refused", FailureKind::Conflict),
            InstallError::Read { .. } => ("unreadable", FailureKind::Failed),
            InstallError::Write { .. } => ("not_written", FailureKind::Failed),
            InstallError::Busy { .. } => ("busy", FailureKind::Busy),
        };
        let hint = format!("Correct {}, then: {again}", error.path().display());
        let hint = if kind == FailureKind::Busy { format!("Try again: {again}") } else { hint };
        let mut problem = Self::own(code, kind, error.to_string(), vec![hint]);
        problem.failure.causes.extend(error.source().map(ToString::to_string));
        problem
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.failure.hints.push(hint.into());
        self
    }
}

impl Problem {
    /// Names the step that failed.
    #[must_use]
    pub(crate) fn while_trying_to(self, attempt: &'static str) -> Self {
        Self { attempt: Some(attempt), ..self }
    }

    /// Omits "Nothing was changed."
    #[must_use]
    pub(crate) fn silent_about_change(self) -> Self {
        Self { nothing_changed: false, ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let nothing_changed = !matches!(error, Error::Unfinished { .. } | Error::UndoFailed { .. });
        let mut failure = Failure::from(&error);
        if let Error::Ambiguous { candidates, .. } = &error {
            // The library has no time zone.
            failure.hints.truncate(1);
            failure.hints.extend(candidates.iter().map(candidate));
        }
        let topic = match &error {
            Error::NoWorkspace { .. } => Some(Topic::NoCheckpointYet),
            Error::Config(error) => Some(Topic::Configuration(error.file())),
            _ => None,
        };
        Self { failure, nothing_changed, attempt: None, topic }
    }
}

/// A line that can be pasted: the id, and a comment for the shell.
fn candidate(candidate: &NamedCandidate) -> String {
    let label = candidate.label.as_ref().map(|label| format!(" \"{label}\"")).unwrap_or_default();
    format!("{}  # {}{label}", candidate.id, moment(candidate.created_at))
}

impl From<ModelError> for Problem {
    fn from(error: ModelError) -> Self {
        Error::from(error).into()
    }
}
