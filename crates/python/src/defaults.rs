//! Rules of all faces for what a caller did not say.
//!
//! The variables come from Python: reading them here would race with `os.environ`, which changes them.

use pyo3::pyfunction;
use safepoint::Defaults;
use std::collections::HashMap;
use std::ffi::OsString;

/// Home, the user's home directory, session in its stored form, actor.
type Found = (Option<OsString>, Option<OsString>, Option<String>, String);

/// Derives home, session and actor from variables.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
pub(crate) fn defaults(variables: HashMap<String, OsString>) -> Found {
    let found = Defaults::from_variables(&|name| variables.get(name).cloned());
    let (session, actor) = (found.session_id(), found.actor(None));
    (found.home.map(Into::into), found.user_home.map(Into::into), session, actor)
}
