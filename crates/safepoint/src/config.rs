//! Configuration: what is kept, how much, what is left out, and which command tests the work.
//!
//! Comes in: the text of two files. `config.toml` in Safepoint's home belongs to the user. `.safepoint.toml` at a workspace's root can
//! be written by whatever works there, so it holds data only, and it can ask for nothing that loses a checkpoint: no command, no
//! limit, and no retention below the home's. Goes out: one [`Effective`] configuration, with warnings.
//!
//! Nothing here reads a file: `home.rs` and the workspace's root do. A key that nobody knows is an error, because a misspelled one
//! that is passed over in silence protects nobody.

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

/// A longer file is not one of settings.
pub(crate) const CONFIG_BYTES_MAX: u64 = 64 * 1024;

/// How long the test command may take where nothing is said.
const TEST_TIMEOUT: Span = Span::from_seconds(600);

/// What both files say, before the one is held against the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The user's own.
    pub home: HomeConfig,
    /// The workspace's.
    pub workspace: WorkspaceConfig,
}

/// What `config.toml` in Safepoint's home says. Nothing where it is silent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HomeConfig {
    /// `[retention]`.
    pub retention: RetentionConfig,
    /// `[retention_framework]`, `[retention_agent]` and `[retention_workflow]`.
    pub retention_of: BTreeMap<Scope, RetentionConfig>,
    /// `[store] cap`: the store does not grow past this.
    pub cap_bytes: Option<u64>,
    /// `[capture] excludes`: patterns to leave out, in gitignore's syntax.
    pub excludes: Vec<String>,
    /// `[capture] git`: how much of a repository checkpoints note.
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
}

/// What `.safepoint.toml` in a workspace says. Nothing where it is silent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceConfig {
    /// `[retention]`.
    pub retention: RetentionConfig,
    /// `[capture] excludes`: patterns to leave out, in gitignore's syntax.
    pub excludes: Vec<String>,
    /// `[capture] git`: how much of a repository checkpoints note.
    pub git: Option<GitCapture>,
    /// `label`: what checkpoints are called that nobody gave a name.
    pub label: Option<String>,
}

/// A retention policy of which not everything has to be said.
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
    /// The policy, with another one's values where nothing is said.
    fn or(self, other: Policy) -> Policy {
        Policy {
            keep_last: self.keep_last.unwrap_or(other.keep_last),
            keep_within: self.keep_within.unwrap_or(other.keep_within),
            thin_daily_for: self.thin_daily_for.unwrap_or(other.thin_daily_for),
        }
    }
}

/// The command that tells whether the tests pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCommand {
    /// A line for the shell.
    pub line: String,
    /// It counts as failed when it takes longer.
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

/// What holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effective {
    /// What is kept.
    pub retention: Policy,
    /// What is kept of what is not a checkpoint of a project, where that is said.
    pub retention_of: BTreeMap<Scope, Policy>,
    /// The store does not grow past this. Nothing where it is not configured: then the default rule holds.
    pub cap_bytes: Option<u64>,
    /// Patterns to leave out of captures; the last one that fits wins.
    pub excludes: Vec<String>,
    /// How much of a repository checkpoints note.
    pub git: GitCapture,
    /// Whether checkpoints of sessions become commits, too.
    pub session_commits: SessionCommits,
    /// When plans take checkpoints that do not say so themselves.
    pub milestones: Milestones,
    /// What checkpoints are called that nobody gave a name.
    pub label: Option<String>,
    /// How to find out whether the tests pass.
    pub test: Option<TestCommand>,
    /// Whether the tests run before each checkpoint that is asked for.
    pub test_before_create: bool,
    /// What was asked for and does not hold, in words.
    pub warnings: Vec<String>,
    /// Why the workspace's file does not count: it cannot be used, and the way back stays open all the same.
    pub passed_over: Option<String>,
}

/// What to do about a workspace's file that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Refuse.
    Refused,
    /// Do without it, and say so. For whatever only looks or leads back: otherwise one wrong line, which anything in the workspace can write, would
    /// take rollback away. Without its excludes a capture holds more, never less.
    PassedOver,
}

impl Config {
    /// Reads the text of `config.toml`.
    ///
    /// # Errors
    /// When it is not TOML, or a key or a value is not one.
    pub fn parse_home(text: &str) -> Result<HomeConfig, ConfigError> {
        reading::home(text)
    }

    /// Reads the text of `.safepoint.toml`.
    ///
    /// # Errors
    /// When it is not TOML, a key or a value is not one, or a key belongs into the user's own file.
    pub fn parse_workspace(text: &str) -> Result<WorkspaceConfig, ConfigError> {
        reading::workspace(text)
    }

    /// Holds the two against each other.
    pub fn effective(&self) -> Effective {
        let Config { home, workspace } = self;
        let floor = home.retention.or(Policy::DEFAULT);
        Effective {
            retention: workspace.retention.or(floor).or_more(floor),
            retention_of: home.retention_of.iter().map(|(scope, it)| (*scope, it.or(floor))).collect(),
            cap_bytes: home.cap_bytes,
            // The last match wins, so what the user leaves out stays out.
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
            warnings: raised(workspace.retention, floor),
            passed_over: None,
        }
    }
}

/// What a workspace asked to keep less of than the user does.
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

/// What both places hold, and what the manager was told itself, made into one.
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
            let passed_over = Some(format!("{} is passed over: {error}", ConfigFile::Workspace));
            Ok(Effective { passed_over, ..config.effective() })
        }
    }
}

/// The text of a file; empty where there is none.
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
