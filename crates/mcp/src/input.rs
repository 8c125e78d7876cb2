//! Arguments of tools: read strictly and checked like hostile input.

use crate::desk::StepAction;
use safepoint::{Failure, FailureKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::{Component, Path};

/// Maximum length of a reference to a checkpoint, plan or step.
const NAME_BYTES_MAX: usize = 512;
/// Maximum length of a path (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// Maximum number of paths in a call.
const PATHS_MAX: usize = 1000;
/// Maximum length of a label, a question, a choice or an error.
const TEXT_BYTES_MAX: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoInput {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointsInput {
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesInput {
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileAtInput {
    pub(crate) checkpoint: String,
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanInput {
    pub(crate) id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewInput {
    pub(crate) to: String,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointInput {
    pub(crate) label: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ActionInput {
    Start,
    Finish,
    Fail,
    Add,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepInput {
    pub(crate) id: String,
    pub(crate) action: ActionInput,
    pub(crate) plan: Option<String>,
    pub(crate) output: Option<Value>,
    pub(crate) error: Option<String>,
    pub(crate) title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecideInput {
    pub(crate) question: String,
    pub(crate) choice: String,
    pub(crate) why: Option<String>,
    #[serde(default)]
    pub(crate) alternatives: Vec<String>,
    pub(crate) plan: Option<String>,
    pub(crate) step: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackInput {
    pub(crate) token: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndoInput {
    #[serde(default)]
    pub(crate) redo: bool,
    pub(crate) token: Option<String>,
}

/// Handling of the other attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OthersInput {
    #[default]
    Drop,
    Open,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewKeepInput {
    pub(crate) attempt: String,
    #[serde(default)]
    pub(crate) others: OthersInput,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DropInput {
    pub(crate) attempt: String,
}

/// Failure for invalid arguments.
pub(crate) fn invalid(message: impl Into<String>, hint: &str) -> Failure {
    Failure {
        code: "bad_input",
        kind: FailureKind::Usage,
        message: message.into(),
        causes: Vec::new(),
        hints: vec![hint.to_owned()],
    }
}

/// Reads the arguments of a tool.
pub(crate) fn read<T: DeserializeOwned>(arguments: Option<Map<String, Value>>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments.unwrap_or_default())).map_err(|error| {
        invalid(
            format!("the arguments are invalid: {error}"),
            "Call the tool again with arguments that fit its input schema.",
        )
    })
}

/// Checks the name of a checkpoint, plan or step.
pub(crate) fn name(what: &str, given: &str) -> Result<(), Failure> {
    let wrong = match given {
        "" => "it is empty",
        _ if given.len() > NAME_BYTES_MAX => "it is too long",
        // Rows of a list on a terminal belong to the person there.
        _ if given.starts_with(':') => "row numbers need a terminal",
        _ if given.contains('\0') => "it contains a zero byte",
        _ => return Ok(()),
    };
    Err(invalid(format!("{what} is invalid: {wrong}"), "The tool `checkpoints` lists valid ids."))
}

/// Checks paths: relative to the workspace or absolute inside of it, without `..`.
pub(crate) fn paths(given: &[String]) -> Result<(), Failure> {
    if given.len() > PATHS_MAX {
        return Err(invalid(
            format!("{} paths are too many: the maximum is {PATHS_MAX}", given.len()),
            "Name folders instead of their files.",
        ));
    }
    given.iter().try_for_each(|given| path(given))
}

/// Checks one path.
pub(crate) fn path(given: &str) -> Result<(), Failure> {
    let wrong = match given {
        "" => "it is empty",
        _ if given.len() > PATH_BYTES_MAX => "it is too long",
        _ if given.contains('\0') => "it contains a zero byte",
        _ if Path::new(given).components().any(|part| part == Component::ParentDir) => "it contains `..`",
        _ => return Ok(()),
    };
    let shown: String = given.chars().take(200).collect();
    Err(invalid(
        format!("the path {shown:?} is invalid: {wrong}"),
        "Paths are relative to the top of the workspace, such as src/main.rs.",
    ))
}

/// Checks the length of a free text.
pub(crate) fn text(what: &str, given: &str) -> Result<(), Failure> {
    match given.trim().is_empty() || given.len() > TEXT_BYTES_MAX {
        true => Err(invalid(
            format!("{what} must have 1 to {TEXT_BYTES_MAX} bytes"),
            "Describe it in one sentence.",
        )),
        false => Ok(()),
    }
}

impl StepInput {
    /// Checks the fields that belong to the action.
    pub(crate) fn action(&self) -> Result<StepAction, Failure> {
        let extra = match self.action {
            ActionInput::Start => self.output.is_some() || self.error.is_some() || self.title.is_some(),
            ActionInput::Finish => self.error.is_some() || self.title.is_some(),
            ActionInput::Fail => self.output.is_some() || self.title.is_some(),
            ActionInput::Add => self.output.is_some() || self.error.is_some(),
        };
        if extra {
            return Err(invalid(
                "a field does not belong to this action",
                "`output` belongs to finish, `error` to fail, `title` to add.",
            ));
        }
        if let Some(error) = &self.error {
            text("`error`", error)?;
        }
        Ok(match self.action {
            ActionInput::Start => StepAction::Start,
            ActionInput::Finish => StepAction::Finish(self.output.clone()),
            ActionInput::Fail => {
                StepAction::Fail(self.error.clone().unwrap_or_else(|| "no reason was given".to_owned()))
            }
            ActionInput::Add => StepAction::Add(self.title.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_leave_the_workspace_is_refused() {
        for bad in ["", "..", "../x", "a/../../x", "a/..", "a\0b", &"x".repeat(5000)] {
            assert_eq!(path(bad).unwrap_err().code, "bad_input", "{bad:?}");
        }
        for good in ["a", "a/b", "./a", "..a", "a..b/c", "/abs/olute", "--help", "-x", "\u{1b}[31m"] {
            assert!(path(good).is_ok(), "{good:?}");
        }
        assert!(paths(&vec!["a".to_owned(); 1001]).is_err());
    }

    #[test]
    fn names_of_rows_and_empty_names_are_refused() {
        for bad in ["", ":1", "a\0", &"x".repeat(600)] {
            assert!(name("`to`", bad).is_err(), "{bad:?}");
        }
        assert!(name("`to`", "@~2").is_ok() && name("`to`", "--help").is_ok());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        let arguments = serde_json::json!({ "label": "x", "workspace": "/etc" });
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let failure = read::<CheckpointInput>(Some(arguments)).unwrap_err();
        assert!(failure.message.contains("unknown field `workspace`"), "{}", failure.message);
    }
}
