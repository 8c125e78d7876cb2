//! An open home. It belongs to the process that opened it; a forked child opens another one.

use crate::call::{self, Signals};
use crate::failure::Refusal;
use crate::verbs;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use safepoint::{CheckpointManager, Settings, SystemEnvironment};
use safepoint_model::id::SessionId;
use serde::Deserialize;
use serde_json::Value;
use std::mem;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::time::Duration;

/// An open home. Thread-safe.
#[pyclass(frozen, module = "safepoint._native", name = "Home")]
pub(crate) struct Home {
    process: u32,
    /// Only the destructor takes it.
    manager: Option<Arc<CheckpointManager>>,
}

/// Settings of the process that opens a home.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    user_home: Option<PathBuf>,
    actor: String,
    session_id: Option<String>,
    lock_wait_ms: u64,
    helper: Vec<String>,
    room_helper: Vec<String>,
}

/// Result of a call: true and the result, or false and the failure, both as JSON.
type Answer<'py> = (bool, Bound<'py, PyBytes>);

#[pymethods]
impl Home {
    /// Opens a home. Returns it, or the failure.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, settings: &[u8]) -> PyResult<(Option<Py<Self>>, Py<PyBytes>)> {
        let settings = settings.to_vec();
        let opened = call::run(py, Signals::Ignored, move |_| {
            let wanted: Wanted = serde_json::from_slice(&settings)?;
            let settings = Settings {
                refused_roots: wanted.user_home.into_iter().collect(),
                // An id in its stored form; any other text as it is.
                session_id: wanted.session_id.map(|id| id.parse::<SessionId>().map_or(id, |id| id.to_uuid())),
                lock_wait: Duration::from_millis(wanted.lock_wait_ms),
                database_helper: wanted.helper.into_iter().map(Into::into).collect(),
                room_helper: wanted.room_helper.into_iter().map(Into::into).collect(),
                ..Settings::default()
            };
            let environment = Box::new(SystemEnvironment { actor: wanted.actor });
            Ok(Arc::new(CheckpointManager::open_with(&path, settings, environment)?))
        })?;
        Ok(match opened {
            Ok(manager) => {
                let home = Self { process: process::id(), manager: Some(manager) };
                (Some(Py::new(py, home)?), PyBytes::new(py, b"null").unbind())
            }
            Err(refusal) => (None, text(py, &refusal.into_json()).unbind()),
        })
    }

    /// Calls a verb without the GIL.
    #[pyo3(signature = (verb, arguments, interruptible))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        verb: &str,
        arguments: &[u8],
        interruptible: bool,
    ) -> PyResult<Answer<'py>> {
        let signals = if interruptible { Signals::Noticed } else { Signals::Ignored };
        let Some((_, verb)) = verbs::TABLE.iter().find(|(name, _)| *name == verb) else {
            let refusal = Refusal::internal(format!("no verb is named {verb:?}"));
            return Ok((false, text(py, &refusal.into_json())));
        };
        let Some(manager) = self.manager.clone().filter(|_| self.process == process::id()) else {
            let refusal = Refusal::internal("the home was opened by another process");
            return Ok((false, text(py, &refusal.into_json())));
        };
        let arguments = arguments.to_vec();
        let done = call::run(py, signals, move |progress| {
            let arguments: Value = serde_json::from_slice(&arguments)?;
            let done = verb(&manager, arguments, progress)?;
            Ok(serde_json::to_vec(&done)?)
        })?;
        Ok(match done {
            Ok(bytes) => (true, PyBytes::new(py, &bytes)),
            Err(refusal) => (false, text(py, &refusal.into_json())),
        })
    }
}

fn text<'py>(py: Python<'py>, value: &Value) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value.to_string().as_bytes())
}

impl Drop for Home {
    fn drop(&mut self) {
        // In a forked child, locks of the manager may be held by threads that exist only in the parent.
        if self.process == process::id() {
            drop(self.manager.take());
        } else {
            mem::forget(self.manager.take());
        }
    }
}
