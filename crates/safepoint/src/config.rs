//! Configuration: retention, the size cap, excludes and the test command.
//!
//! Input: the text of two files. `config.toml` in Safepoint's home belongs to the user. `.safepoint.toml` at
//! the root of a workspace can be written by any process that works there. It therefore holds only data, and
//! cannot cause the loss of a checkpoint: no command, no limit, no retention below that of the home. Output:
//! one [`Effective`] configuration, with warnings.
//!
//! This module reads no files; `home.rs` and the workspace root do. An unknown key is an error, because a
//! misspelled key that is silently ignored protects nothing.

mod bytes;
mod error;
mod reading;

pub use error::{ConfigError, ConfigFile};

use crate::parts::git::GitCapture;
use safepoint_model::Span;
use safepoint_model::checkpoint::Scope;
use safepoint_model::plan::spec::{Milestone, Milestones};
use safepoint_model::retention::Policy;
use safepoint_workspace::SmallFile;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of a configuration file.
pub(crate) const CONFIG_BYTES_MAX: u64 = 64 * 1024;

/// Default timeout of the test command.
const TEST_TIMEOUT: Span = Span::from_seconds(600);

/// Contents of both files, before they are merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// User's part.
    pub home: HomeConfig,
    /// Workspace's part.
    pub workspace: WorkspaceConfig,
}

/// Contents of `config.toml` in Safepoint's home. Missing keys are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HomeConfig {
    /// `[retention]`.
    pub retention: RetentionConfig,
    /// `[retention_framework]`, `[retention_agent]` and `[retention_workflow]`.
    pub retention_of: BTreeMap<Scope, RetentionConfig>,
    /// `[store] cap`: maximum size of the store.
    pub cap_bytes: Option<u64>,
    /// `[capture] excludes`: patterns to leave out, in gitignore syntax.
    pub excludes: Vec<String>,
    /// `[capture] git`: the git state that checkpoints record.
    pub git: Option<GitCapture>,
    /// `[sessions] commit`: whether checkpoints of sessions become commits, too.
    pub session_commit: Option<bool>,
    /// `[plans] milestones`: when plans take checkpoints.
    pub milestones: Option<BTreeSet<Milestone>>,
    /// `[plans] every`: also whenever this much time has passed.
    pub every: Option<Span>,
    /// `[plans] every_steps`: also after so many steps.
    pub every_steps: Option<u64>,
    /// `[checks] test`: a line for the shell whose success means that the tests pass.
    pub test: Option<String>,
    /// `[checks] test_timeout`.
    pub test_timeout: Option<Span>,
    /// `[checks] before_create`: whether the tests run before each checkpoint that is asked for.
    pub test_before_create: Option<bool>,
    /// `[remote]`.
    pub remote: RemoteConfig,
    /// `[agents] risky`: patterns of shell commands before which a checkpoint is taken.
    pub risky: Vec<String>,
    /// `[agents] fail_closed`: true if a call of an agent that cannot be covered is denied.
    pub fail_closed: Option<bool>,
}

/// Contents of `.safepoint.toml` in a workspace. Missing keys are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceConfig {
    /// `[retention]`.
    pub retention: RetentionConfig,
    /// `[capture] excludes`: patterns to leave out, in gitignore syntax.
    pub excludes: Vec<String>,
    /// `[capture] git`: the git state that checkpoints record.
    pub git: Option<GitCapture>,
    /// `label`: name of checkpoints created without a name.
    pub label: Option<String>,
}

/// Publishing to remotes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RemoteConfig {
    /// `every`: checkpoints are published without being asked, at most once in this time; only of workspaces that were pushed once.
    pub every: Option<Span>,
    /// `durability`.
    pub durability: Durability,
    /// `exclude`: patterns of paths that published checkpoints lack, in gitignore syntax.
    pub exclude: Vec<String>,
}

impl RemoteConfig {
    /// Returns true if checkpoints are published without being asked.
    pub(crate) fn publishes(&self) -> bool {
        self.every.is_some() || self.durability == Durability::Remote
    }
}

/// Place in which a checkpoint must be before `create` succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// This machine.
    #[default]
    Local,
    /// A remote, too.
    Remote,
}

/// Retention policy with optional values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionConfig {
    /// `keep_last`.
    pub keep_last: Option<u64>,
    /// `keep_within`.
    pub keep_within: Option<Span>,
    /// `thin_daily_for`.
    pub thin_daily_for: Option<Span>,
}

impl RetentionConfig {
    /// Returns the policy, with missing values from `other`.
    fn or(self, other: Policy) -> Policy {
        Policy {
            keep_last: self.keep_last.unwrap_or(other.keep_last),
            keep_within: self.keep_within.unwrap_or(other.keep_within),
            thin_daily_for: self.thin_daily_for.unwrap_or(other.thin_daily_for),
        }
    }
}

/// Command that tests the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCommand {
    /// Shell command line.
    pub line: String,
    /// Timeout, after which the test counts as failed.
    pub timeout: Span,
}

/// Commits of the checkpoints of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionCommits {
    /// Each checkpoint of a session becomes a commit in a repository.
    #[default]
    On,
    /// None does.
    Off,
}

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effective {
    /// Retention policy.
    pub retention: Policy,
    /// Retention policies of other scopes, if configured.
    pub retention_of: BTreeMap<Scope, Policy>,
    /// Maximum size of the store; `None` selects the default rule.
    pub cap_bytes: Option<u64>,
    /// Patterns to leave out of captures; the last match wins.
    pub excludes: Vec<String>,
    /// Git state that checkpoints record.
    pub git: GitCapture,
    /// Policy for commits of session checkpoints.
    pub session_commits: SessionCommits,
    /// When plans take checkpoints that do not say so themselves.
    pub milestones: Milestones,
    /// Label of checkpoints without a name.
    pub label: Option<String>,
    /// Test command.
    pub test: Option<TestCommand>,
    /// True if the tests run before each requested checkpoint.
    pub test_before_create: bool,
    /// Publishing to remotes.
    pub remote: RemoteConfig,
    /// Patterns of shell commands of agents before which a checkpoint is taken.
    pub risky: Vec<String>,
    /// Settings that have no effect, in words.
    pub warnings: Vec<String>,
    /// Reason to ignore the workspace's file: it is invalid, but rollback must stay possible.
    pub passed_over: Option<String>,
}

/// Treatment of an invalid workspace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Fails.
    Refused,
    /// Ignores it with a warning. For commands that only read or roll back: otherwise one wrong line,
    /// which any process in the workspace can write, would block rollback. Without its excludes, a capture
    /// holds more, never less.
    PassedOver,
}

impl Config {
    /// Reads the text of `config.toml`.
    ///
    /// # Errors
    /// Fails if the text is not TOML, or a key or value is invalid.
    pub fn parse_home(text: &str) -> Result<HomeConfig, ConfigError> {
        reading::home(text)
    }

    /// Reads the text of `.safepoint.toml`.
    ///
    /// # Errors
    /// Fails if the text is not TOML, a key or value is invalid, or a key is allowed only in the home.
    pub fn parse_workspace(text: &str) -> Result<WorkspaceConfig, ConfigError> {
        reading::workspace(text)
    }

    /// Merges both configurations.
    pub fn effective(&self) -> Effective {
        let Config { home, workspace } = self;
        let floor = home.retention.or(Policy::DEFAULT);
        Effective {
            retention: workspace.retention.or(floor).or_more(floor),
            retention_of: home.retention_of.iter().map(|(scope, it)| (*scope, it.or(floor))).collect(),
            cap_bytes: home.cap_bytes,
            // The last match wins, so the user's excludes take precedence.
            excludes: workspace.excludes.iter().chain(&home.excludes).cloned().collect(),
            git: home.git.or(workspace.git).unwrap_or_default(),
            session_commits: match home.session_commit {
                Some(false) => SessionCommits::Off,
                _ => SessionCommits::On,
            },
            milestones: Milestones {
                on: home.milestones.clone().unwrap_or_else(|| Milestones::default().on),
                every: home.every,
                every_steps: home.every_steps,
            },
            label: workspace.label.clone(),
            test: home
                .test
                .clone()
                .map(|line| TestCommand { line, timeout: home.test_timeout.unwrap_or(TEST_TIMEOUT) }),
            test_before_create: home.test_before_create.unwrap_or(false),
            remote: home.remote.clone(),
            risky: home.risky.clone(),
            warnings: raised(workspace.retention, floor),
            passed_over: None,
        }
    }
}

/// Returns a warning for each retention value below the user's.
fn raised(asked: RetentionConfig, floor: Policy) -> Vec<String> {
    fn lower<T: PartialOrd + ToString>(key: &str, asked: Option<T>, floor: &T) -> Option<String> {
        let asked = asked.filter(|asked| asked < floor)?;
        let (asked, floor) = (asked.to_string(), floor.to_string());
        Some(format!(
            "retention.{key} = {asked} in {} would keep less than your own configuration: {floor} holds",
            ConfigFile::Workspace
        ))
    }
    [
        lower("keep_last", asked.keep_last, &floor.keep_last),
        lower("keep_within", asked.keep_within, &floor.keep_within),
        lower("thin_daily_for", asked.thin_daily_for, &floor.thin_daily_for),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Merges the files of the home and the workspace with the manager's settings.
pub(crate) fn load(
    home: SmallFile,
    workspace: Result<SmallFile, ConfigError>,
    settings_excludes: &[String],
    broken: Broken,
) -> Result<Effective, ConfigError> {
    let text = text_of(home, ConfigFile::Home)?;
    let mut config = Config { home: Config::parse_home(&text)?, ..Config::default() };
    config.home.excludes.extend_from_slice(settings_excludes);
    let read = workspace
        .and_then(|file| text_of(file, ConfigFile::Workspace))
        .and_then(|text| Config::parse_workspace(&text));
    match (read, broken) {
        (Ok(workspace), _) => {
            config.workspace = workspace;
            Ok(config.effective())
        }
        (Err(error), Broken::Refused) => Err(error),
        (Err(error), Broken::PassedOver) => {
            let passed_over = Some(format!("{} is ignored: {error}", ConfigFile::Workspace));
            Ok(Effective { passed_over, ..config.effective() })
        }
    }
}

/// Text of a file, or an empty text if it is missing.
fn text_of(file: SmallFile, which: ConfigFile) -> Result<String, ConfigError> {
    match file {
        SmallFile::Missing => Ok(String::new()),
        SmallFile::NotAFile => Err(ConfigError::NotAFile { file: which }),
        SmallFile::TooLong => Err(ConfigError::TooLong { file: which, bytes_max: CONFIG_BYTES_MAX }),
        SmallFile::Bytes(bytes) => String::from_utf8(bytes).map_err(|_| ConfigError::NotUtf8 { file: which }),
    }
}

#[cfg(test)]
mod tests;
