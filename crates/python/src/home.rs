//! An open home. It belongs to the process that opened it; a forked child opens another one.

use crate::call::{self, Interrupt, Signals};
use crate::failure::Refusal;
use crate::verbs::{self, Beside, Verb, WideVerb};
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

/// Result of a call: true and the result, or false and the failure, both as JSON; and the values beside the result.
type Answer<'py> = (bool, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

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

    /// Calls a verb without the GIL. Values of threads come and go beside the JSON, which has their positions.
    #[pyo3(signature = (verb, arguments, interruptible, beside))]
    #[allow(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
    fn call<'py>(
        &self,
        py: Python<'py>,
        verb: &str,
        arguments: &[u8],
        interruptible: bool,
        beside: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Answer<'py>> {
        let refused = |refusal: Refusal| Ok((false, text(py, &refusal.into_json()), Vec::new()));
        let signals = if interruptible { Signals::Noticed } else { Signals::Ignored };
        let Some(act) = Act::named(verb) else {
            return refused(Refusal::internal(format!("no verb is named {verb:?}")));
        };
        let Some(manager) = self.manager.clone().filter(|_| self.process == process::id()) else {
            return refused(Refusal::internal("the home was opened by another process"));
        };
        let arguments: Value = match serde_json::from_slice(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return refused(error.into()),
        };
        let mut beside: Beside = beside.iter().map(|value| value.as_bytes().to_vec()).collect();
        let is_short = verbs::is_short(verb, &arguments);
        let work = move |progress: &Interrupt| {
            let done = act.call(&manager, arguments, &mut beside, progress)?;
            Ok((serde_json::to_vec(&done)?, beside))
        };
        let done = match is_short {
            true => call::run_here(py, work),
            false => call::run(py, signals, work)?,
        };
        Ok(match done {
            Ok((json, beside)) => {
                let beside = beside.iter().map(|value| PyBytes::new(py, value)).collect();
                (true, PyBytes::new(py, &json), beside)
            }
            Err(refusal) => return refused(refusal),
        })
    }
}

/// A verb, found by its name.
#[derive(Clone, Copy)]
enum Act {
    Plain(Verb),
    Wide(WideVerb),
}

impl Act {
    fn named(name: &str) -> Option<Self> {
        let wide = verbs::WIDE.iter().find(|(own, _)| *own == name).map(|(_, verb)| Self::Wide(*verb));
        wide.or_else(|| verbs::TABLE.iter().find(|(own, _)| *own == name).map(|(_, verb)| Self::Plain(*verb)))
    }

    /// Calls it. Leaves the values beside the result; no verb has values on both sides.
    fn call(
        self,
        manager: &CheckpointManager,
        arguments: Value,
        beside: &mut Beside,
        progress: &Interrupt,
    ) -> Result<Value, Refusal> {
        let taken = beside.len();
        let done = match self {
            Self::Plain(verb) => verb(manager, arguments, progress),
            Self::Wide(verb) => verb(manager, arguments, beside, progress),
        };
        beside.drain(..taken);
        done
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
