//! Environment of this process, as data: the library never reads variables.
//!
//! In: variables and the user's home folder, from the program. Out: values for the credential chains. Values
//! are never shown: `Debug` prints the names alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables that the credential chains of servers read; others are dropped.
const PREFIXES: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "PG", "SSL_CERT_", "CLOUDSDK_"];
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"];

/// Variables for the credential chains, and the user's home folder.
#[derive(Clone, Default)]
pub struct RemoteEnvironment {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
}

impl RemoteEnvironment {
    /// Creates an environment from all variables of a process, such as `std::env::vars_os()`.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>, home: Option<PathBuf>) -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let wanted = |(name, value): &(String, String)| {
            let known =
                PROXIES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            known && !value.is_empty()
        };
        Self { variables: variables.into_iter().filter_map(text).filter(wanted).collect(), home }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the path in a variable, or else this path below the user's home folder.
    pub(crate) fn file(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        match self.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => self.home.as_deref().map(|home: &Path| home.join(below_home)),
        }
    }
}

impl fmt::Debug for RemoteEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.variables.keys()).finish()
    }
}

/// Text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown() {
        let variables = [("AWS_SECRET_ACCESS_KEY", "hunter2"), ("EDITOR", "vi")];
        let environment =
            RemoteEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())), None);
        let shown = format!("{environment:?} {:?}", Secret("hunter2".to_owned()));
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(environment.get("EDITOR"), None, "only variables of credential chains are kept");
    }
}
