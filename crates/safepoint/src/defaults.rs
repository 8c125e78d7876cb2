//! Rules of all faces for what a user did not say: home, session and actor, from the variables of the process.
//!
//! The library reads no environment. A face passes a lookup, which gives `None` for a variable that is missing.

use safepoint_model::id::SessionId;
use std::ffi::OsString;
use std::path::PathBuf;

/// Variables that name an agent by being set.
const AGENTS: [(&str, &str); 5] = [
    ("CLAUDECODE", "claude"),
    ("GEMINI_CLI", "gemini"),
    ("CODEX_SANDBOX", "codex"),
    ("OPENCODE", "opencode"),
    ("CURSOR_AGENT", "cursor"),
];

/// Home, session, user and agent of a process whose caller named none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Home: `SAFEPOINT_HOME`, else `safepoint` in the data directory. `None` if no variable tells.
    pub home: Option<PathBuf>,
    /// The user's home directory.
    pub user_home: Option<PathBuf>,
    /// Session, as given.
    pub session: Option<String>,
    /// User: `USER`, else `LOGNAME`, else the name of the process's user.
    pub user: String,
    /// Agent that runs the process.
    pub agent: Option<String>,
}

impl Defaults {
    /// Derives them from variables. An empty variable counts as missing.
    pub fn from_variables(lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let user_home = variable("HOME").map(PathBuf::from);
        let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let data = data.or_else(|| user_home.as_ref().map(|home| home.join(".local/share")));
        let named = variable("SAFEPOINT_HOME").map(PathBuf::from);
        let found = || AGENTS.iter().find(|(name, _)| variable(name).is_some());
        Self {
            home: named.or_else(|| data.map(|data| data.join("safepoint"))),
            user_home,
            session: text("SAFEPOINT_SESSION_ID"),
            user: text("USER").or_else(|| text("LOGNAME")).unwrap_or_else(user_of_process),
            agent: text("SAFEPOINT_AGENT").or_else(|| found().map(|(_, agent)| (*agent).to_owned())),
        }
    }

    /// Session in its stored form, a UUID; `None` if it is missing or not an id.
    pub fn session_id(&self) -> Option<String> {
        let id = self.session.as_deref()?.parse::<SessionId>().ok()?;
        Some(id.to_uuid())
    }

    /// Actor for records: the user, and the tool or agent that asks for it.
    pub fn actor(&self, tool: Option<&str>) -> String {
        match tool.or(self.agent.as_deref()) {
            Some(agent) => format!("{} via {agent}", self.user),
            None => self.user.clone(),
        }
    }
}

/// Name of the user of this process. Services and containers often have no USER.
fn user_of_process() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    let named = users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
        (number == uid).then(|| String::from_utf8_lossy(name).into_owned())
    });
    named.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Defaults {
        Defaults::from_variables(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_home_is_named_or_in_the_data_directory() {
        let home = |variables: &[(&str, &str)]| of(variables).home;
        assert_eq!(home(&[]), None);
        assert_eq!(home(&[("HOME", "/u")]), Some("/u/.local/share/safepoint".into()));
        assert_eq!(home(&[("HOME", "/u"), ("XDG_DATA_HOME", "/d")]), Some("/d/safepoint".into()));
        assert_eq!(home(&[("HOME", "/u"), ("XDG_DATA_HOME", "d")]), Some("/u/.local/share/safepoint".into()));
        assert_eq!(home(&[("HOME", "/u"), ("SAFEPOINT_HOME", "/s")]), Some("/s".into()));
        assert_eq!(home(&[("HOME", "/u"), ("SAFEPOINT_HOME", "")]), Some("/u/.local/share/safepoint".into()));
    }

    #[test]
    fn the_actor_is_the_user_and_the_tool_or_agent() {
        assert_eq!(of(&[]).actor(None), user_of_process());
        let defaults = of(&[("USER", "you"), ("CLAUDECODE", "1")]);
        assert_eq!(defaults.actor(None), "you via claude");
        assert_eq!(defaults.actor(Some("node")), "you via node");
        assert_eq!(of(&[("LOGNAME", "you"), ("SAFEPOINT_AGENT", "mine")]).actor(None), "you via mine");
    }

    #[test]
    fn a_session_that_is_no_id_is_none() {
        assert_eq!(of(&[("SAFEPOINT_SESSION_ID", "nonsense")]).session_id(), None);
        let id = "01932b7c-8f00-1234-5678-9abcdef01122";
        assert_eq!(of(&[("SAFEPOINT_SESSION_ID", id)]).session_id().as_deref(), Some(id));
    }
}
