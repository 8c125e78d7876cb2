//! Profiles of AWS: the files `~/.aws/credentials` and `~/.aws/config`, which `object_store` does not read.
//!
//! In: the name of a profile. Out: its keys and region. Programs that a profile names are not started.

use crate::RemoteError;
use crate::environment::{RemoteEnvironment, Secret};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Keys of a profile.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) token: Option<Secret>,
}

/// Content of a profile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    pub(crate) keys: Option<Keys>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

type Section = BTreeMap<String, String>;

fn section(path: &Path, names: [&str; 2]) -> Result<Option<Section>, RemoteError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(RemoteError::Credentials { path: path.to_owned(), why: error.kind().to_string() });
        }
    };
    let mut found = None;
    let mut is_ours = false;
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_ours = names.contains(&name.trim());
            if is_ours {
                found.get_or_insert_with(Section::new);
            }
        } else if is_ours
            // Indented lines belong to nested settings.
            && !line.starts_with([' ', '\t'])
            && let (Some(section), Some((name, value))) = (&mut found, line.split_once('='))
        {
            section.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Ok(found)
}

impl Profile {
    /// Reads a profile: the given one, else that of `AWS_PROFILE`, else `default` if it exists.
    pub(crate) fn read(given: Option<&str>, environment: &RemoteEnvironment) -> Result<Self, RemoteError> {
        let chosen = given.or_else(|| environment.get("AWS_PROFILE"));
        let name = chosen.unwrap_or("default");
        let credentials = environment.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
        let config = environment.file("AWS_CONFIG_FILE", ".aws/config");
        let (Some(credentials), Some(config)) = (credentials, config) else { return Ok(Self::default()) };
        let in_credentials = section(&credentials, [name, name])?;
        let in_config = section(&config, [name, &format!("profile {name}")])?;
        if chosen.is_some() && in_credentials.is_none() && in_config.is_none() {
            let why = format!("it has no profile `{name}`");
            return Err(RemoteError::Credentials { path: credentials, why });
        }
        let mut all = in_config.unwrap_or_default();
        all.extend(in_credentials.unwrap_or_default());
        let keys = keys(&all, name, credentials, chosen.is_some())?;
        let mut take = |name: &str| all.remove(name);
        Ok(Self { keys, region: take("region"), endpoint: take("endpoint_url") })
    }
}

/// Settings of profiles whose keys come from programs, roles or the browser.
const UNSUPPORTED: [&str; 4] = ["credential_process", "role_arn", "sso_session", "sso_start_url"];

fn keys(all: &Section, name: &str, path: PathBuf, is_chosen: bool) -> Result<Option<Keys>, RemoteError> {
    let get = |name: &str| all.get(name).filter(|value| !value.is_empty()).cloned();
    if let (Some(id), Some(secret)) = (get("aws_access_key_id"), get("aws_secret_access_key")) {
        let token = get("aws_session_token").map(Secret);
        return Ok(Some(Keys { id, secret: Secret(secret), token }));
    }
    match UNSUPPORTED.iter().find(|setting| all.contains_key(**setting)) {
        Some(setting) if is_chosen => {
            let why = format!(
                "the profile `{name}` uses `{setting}`, which is not supported; \
                 run: eval \"$(aws configure export-credentials --profile {name} --format env)\""
            );
            Err(RemoteError::Credentials { path, why })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)], given: Option<&str>) -> Result<Profile, RemoteError> {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        for (name, text) in files {
            fs::write(home.path().join(".aws").join(name), text).unwrap();
        }
        Profile::read(given, &RemoteEnvironment::new([], Some(home.path().to_owned())))
    }

    #[test]
    fn a_profile_has_its_keys_and_region() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key = hunter1\n\
             [work]\n# note\naws_access_key_id=B\naws_secret_access_key=hunter2\naws_session_token=t\n";
        let config = "[profile work]\nregion = eu-west-1\ns3 =\n  region = nested\n";
        let files = [("credentials", credentials), ("config", config)];
        let work = read(&files, Some("work")).unwrap();
        assert!(!format!("{work:?}").contains("hunter2"));
        let keys = work.keys.unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.0.as_str()), ("B", "hunter2"));
        assert_eq!((keys.token.unwrap().0, work.region.unwrap()), ("t".to_owned(), "eu-west-1".to_owned()));
        assert_eq!(read(&files, None).unwrap().keys.unwrap().id, "A");
        assert!(matches!(read(&files, Some("other")), Err(RemoteError::Credentials { .. })));
        assert!(read(&[], None).unwrap().keys.is_none());
    }

    #[test]
    fn a_profile_that_starts_programs_is_refused_with_a_way_out() {
        let config = "[profile sso]\nsso_start_url = https://x\n";
        let error = read(&[("config", config)], Some("sso")).unwrap_err();
        assert!(error.to_string().contains("export-credentials"), "{error}");
    }
}
