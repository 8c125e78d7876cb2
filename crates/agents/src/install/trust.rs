//! Trust of folders and hooks, as far as the files of an agent tell.

use super::{Folders, file, json};
use crate::CodingAgent;
use serde_json::Value;
use std::path::Path;

/// Trust in a project's hooks, or in Codex's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Hooks run.
    Trusted,
    /// Hooks are skipped until the user trusts them.
    Untrusted,
    /// Not recorded in a readable file.
    Unknown,
}

/// Returns the trust in the project's folder. Codex trusts single hooks: see [`codex_hooks`].
#[must_use]
pub fn of_folder(folders: &Folders, agent: CodingAgent) -> Trust {
    let read = |path: &Path| file::read(path, None).ok()?.text.and_then(|text| json::read(&text).ok());
    let found = match agent {
        CodingAgent::Claude => read(&folders.claude_json()).and_then(|file| claude(&file, &folders.project)),
        CodingAgent::Gemini => read(&folders.user.join(".gemini/trustedFolders.json"))
            .and_then(|file| gemini(&file, &folders.project)),
        CodingAgent::Copilot => ["settings.json", "config.json"]
            .iter()
            .find_map(|name| copilot(&read(&folders.user.join(".copilot").join(name))?, &folders.project)),
        CodingAgent::Codex | CodingAgent::Opencode | CodingAgent::Cursor => None,
    };
    match found {
        Some(true) => Trust::Trusted,
        Some(false) => Trust::Untrusted,
        None => Trust::Unknown,
    }
}

/// A folder or one above it is trusted.
fn claude(file: &Value, project: &Path) -> Option<bool> {
    let projects = file.get("projects")?.as_object()?;
    let accepted = |above: &Path| projects.get(above.to_str()?)?.get("hasTrustDialogAccepted")?.as_bool();
    Some(project.ancestors().any(|above| accepted(above) == Some(true)))
}

/// The rule of the longest path counts.
fn gemini(file: &Value, project: &Path) -> Option<bool> {
    let rules = file.as_object()?.iter().filter_map(|(path, level)| {
        let (path, level) = (Path::new(path), level.as_str()?);
        let path = if level == "TRUST_PARENT" { path.parent().unwrap_or(path) } else { path };
        project.starts_with(path).then_some((path.as_os_str().len(), level != "DO_NOT_TRUST"))
    });
    rules.max_by_key(|(length, _)| *length).map(|(_, trusted)| trusted)
}

fn copilot(file: &Value, project: &Path) -> Option<bool> {
    let listed = file.get("trustedFolders").or_else(|| file.get("trusted_folders"))?.as_array()?;
    Some(listed.iter().filter_map(Value::as_str).any(|folder| project.starts_with(folder)))
}

/// Returns the trust in Safepoint's hooks from Codex's answer to `hooks/list`. Hooks of a project that Codex does not trust are missing
/// in the answer.
#[must_use]
pub fn codex_hooks(answer: &Value) -> Trust {
    let Some(listed) = answer.pointer("/result/data").and_then(Value::as_array) else {
        return Trust::Unknown;
    };
    let hooks = listed.iter().filter_map(|folder| folder.get("hooks")?.as_array()).flatten();
    let mut ours = hooks.filter(|hook| super::entries::is_ours(hook)).peekable();
    if ours.peek().is_none() {
        return Trust::Untrusted;
    }
    let runs = |hook: &Value| {
        hook.get("trustStatus").and_then(Value::as_str) != Some("untrusted")
            && hook.get("trustStatus").and_then(Value::as_str) != Some("modified")
            && hook.get("enabled").and_then(Value::as_bool) != Some(false)
    };
    if ours.all(runs) { Trust::Trusted } else { Trust::Untrusted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn trust_is_read_from_each_agents_file() {
        let project = Path::new("/home/dev/shop");
        let of = |path: &str| json!({ "projects": { path: { "hasTrustDialogAccepted": true } } });
        assert_eq!(claude(&of("/home/dev/shop"), project), Some(true));
        assert_eq!(claude(&of("/home/dev"), project), Some(true));
        assert_eq!(claude(&of("/home/dev/sho"), project), Some(false));
        assert_eq!(claude(&json!({}), project), None);
        let rules = json!({ "/home/dev": "TRUST_FOLDER", "/home/dev/shop": "DO_NOT_TRUST" });
        assert_eq!(gemini(&rules, project), Some(false));
        assert_eq!(gemini(&json!({ "/home/dev/other": "TRUST_PARENT" }), project), Some(true));
        assert_eq!(gemini(&json!({ "/srv": "TRUST_FOLDER" }), project), None);
        assert_eq!(copilot(&json!({ "trustedFolders": ["/home/dev"] }), project), Some(true));
        assert_eq!(copilot(&json!({ "trusted_folders": ["/srv"] }), project), Some(false));
    }

    #[test]
    fn one_untrusted_hook_of_codex_is_reported() {
        let hook = |status: &str| {
            json!({ "command": "out=$('/bin/safepoint' hook codex) || out='{}'; printf %s \"$out\"",
                "enabled": true, "trustStatus": status })
        };
        let answer = |hooks: Value| json!({ "result": { "data": [{ "hooks": hooks }] } });
        assert_eq!(codex_hooks(&answer(json!([hook("trusted"), hook("managed")]))), Trust::Trusted);
        assert_eq!(codex_hooks(&answer(json!([hook("trusted"), hook("untrusted")]))), Trust::Untrusted);
        // Codex leaves out the hooks of a project that it does not trust.
        assert_eq!(codex_hooks(&answer(json!([]))), Trust::Untrusted);
        assert_eq!(codex_hooks(&answer(json!([{ "command": "other" }]))), Trust::Untrusted);
        assert_eq!(codex_hooks(&json!(5)), Trust::Unknown);
    }
}
