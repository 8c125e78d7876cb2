//! `safepoint._native`: the library for Python. Verbs take and return JSON; `python/safepoint` gives them types.
//!
//! In: the name of a verb and its arguments. Out: its result, or a failure of the one failure table, as data. A call runs on a thread of
//! its own, which never takes the GIL; the calling thread waits without the GIL and looks for Ctrl-C.
//!
//! After a fork the child never touches what the parent opened, because its locks may be held by threads that the child does not have.

mod call;
mod defaults;
mod failure;
mod forking;
mod home;
mod logs;
mod shapes;
mod verbs;

#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::defaults::defaults;
    #[pymodule_export]
    use super::forking::{after_fork, before_fork};
    #[pymodule_export]
    use super::home::Home;
    #[pymodule_export]
    use super::logs::{drain_logs, set_log_level};
    use super::verbs;
    use pyo3::prelude::*;

    /// Names of the verbs.
    #[pyfunction]
    fn verb_names() -> Vec<&'static str> {
        verbs::names()
    }

    /// Version of the library.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
