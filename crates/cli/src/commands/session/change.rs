//! Changes by `session update`, as typed.

use crate::problem::Problem;
use safepoint::model::session::{CountChange, SessionChange};
use serde_json::{Map, Value};

const WHAT_CAN_BE_SET: &str = "What can be set: request=TEXT, configuration=JSON, configuration.KEY=JSON, git_context=JSON, tasks_completed=NUMBER, tasks_failed=NUMBER, decisions_made=NUMBER.";

/// One `KEY=VALUE`.
pub(crate) fn read(text: &str) -> Result<SessionChange, Problem> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Problem::usage(format!("{text:?} is not KEY=VALUE"), WHAT_CAN_BE_SET));
    };
    match key {
        "request" => Ok(SessionChange::Request(value.to_owned())),
        "configuration" => match object(key, value)? {
            Some(whole) => Ok(SessionChange::Configuration(whole)),
            None => Err(no_object(key)),
        },
        "git_context" => object(key, value).map(SessionChange::GitContext),
        "tasks_completed" | "tasks_failed" | "decisions_made" => {
            Ok(SessionChange::Count { name: key.to_owned(), change: count(key, value)? })
        }
        "status" => Err(Problem::usage(
            "the status is not set, it goes from one to the next",
            "Use `safepoint session transition ID STATUS`.",
        )),
        _ => match key.strip_prefix("configuration.") {
            Some(path) if path.split('.').all(|name| !name.is_empty()) => {
                let path = path.split('.').map(str::to_owned).collect();
                Ok(SessionChange::ConfigurationKey { path, value: parsed(key, value)? })
            }
            Some(_) => Err(Problem::usage(format!("{key:?} has an empty name in it"), WHAT_CAN_BE_SET)),
            None => Err(Problem::usage(format!("{key:?} cannot be set"), WHAT_CAN_BE_SET)),
        },
    }
}

/// A count in all, or with a plus sign so many more.
fn count(key: &str, value: &str) -> Result<CountChange, Problem> {
    let digits = value.strip_prefix('+').unwrap_or(value);
    let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    match number {
        Some(more) if value.starts_with('+') => Ok(CountChange::More(more)),
        Some(total) => Ok(CountChange::Total(total)),
        None => Err(Problem::usage(
            format!("{key} is not a number: {value:?}"),
            "Write the number in all, or how many more, as in tasks_completed=+1.",
        )),
    }
}

/// An object, or nothing for `null`.
pub(crate) fn object(what: &str, text: &str) -> Result<Option<Map<String, Value>>, Problem> {
    match parsed(what, text)? {
        Value::Object(object) => Ok(Some(object)),
        Value::Null => Ok(None),
        _ => Err(no_object(what)),
    }
}

fn no_object(what: &str) -> Problem {
    Problem::usage(format!("{what} is no object"), "Objects are written as in '{\"branch\": \"main\"}'.")
}

fn parsed(what: &str, text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        Problem::usage(
            format!("{what} is not JSON: {error}"),
            "Texts stand in double quotes inside of those of the shell, as in '\"done\"'.",
        )
    })
}
