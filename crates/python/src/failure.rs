//! Failures as JSON: those of the library's table, and wrong arguments.

use safepoint::{Error, Failure, FailureKind};
use safepoint_model::ModelError;
use serde_json::Value;

/// Failure on its way to Python.
#[derive(Debug)]
pub(crate) struct Refusal(Failure);

impl Refusal {
    /// Arguments that no verb understands.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::own("usage", FailureKind::Usage, message.into())
    }

    /// A defect of Safepoint.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::own("internal", FailureKind::Internal, message.into())
    }

    fn own(code: &'static str, kind: FailureKind, message: String) -> Self {
        Self(Failure { code, kind, message, causes: Vec::new(), hints: Vec::new() })
    }

    pub(crate) fn into_json(self) -> Value {
        serde_json::to_value(self.0).unwrap_or(Value::Null)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(Failure::from(&error))
    }
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        Error::from(error).into()
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::usage(format!("invalid argument: {error}"))
    }
}
