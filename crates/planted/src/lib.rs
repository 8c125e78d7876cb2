//! Planted bugs: places where the product can do the wrong thing on purpose, to check that a test notices.
//!
//! `planted!("skip-stage-sync")` is true only in a debug build whose environment has
//! `SAFEPOINT_PLANTED=skip-stage-sync`. In a release build it is the constant `false`: the program contains
//! neither the branch nor the name of the bug. The table of all bugs, with the test that notices each, is
//! `crates/cli/tests/teeth/main.rs`.

use std::sync::OnceLock;

/// Variable that names the bug.
pub const VARIABLE: &str = if cfg!(debug_assertions) { "SAFEPOINT_PLANTED" } else { "" };

/// Returns true if this bug is planted.
#[macro_export]
macro_rules! planted {
    ($bug:literal) => {
        cfg!(debug_assertions) && $crate::is($bug)
    };
}

/// Returns true if `bug` is the planted one. Use [`planted!`], which leaves no trace in a release build.
#[doc(hidden)]
pub fn is(bug: &str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    #[allow(
        clippy::disallowed_methods,
        reason = "a bug is planted by the test that starts the process, in every crate at once"
    )]
    let planted = PLANTED.get_or_init(|| match VARIABLE {
        "" => None,
        name => std::env::var(name).ok(),
    });
    planted.as_deref() == Some(bug)
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_planted_unless_asked_for() {
        assert!(!planted!("none"));
        assert!(!super::is("none"));
    }

    /// The macro is the only entry, and `cfg!(debug_assertions)` comes first in it: a release build evaluates
    /// nothing.
    #[test]
    fn a_release_build_holds_no_planted_bug() {
        let text = include_str!("lib.rs");
        let body = text.split("($bug:literal) => {").nth(1).unwrap().trim_start();
        assert!(body.starts_with("cfg!(debug_assertions) && $crate::is($bug)"), "{body}");
    }
}
