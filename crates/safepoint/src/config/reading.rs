//! Conversion of TOML to settings. Keys are checked in line order, so that each error can name its line.

use super::error::{ConfigError, ConfigFile};
use super::{Durability, HomeConfig, RetentionConfig, WorkspaceConfig, bytes};
use crate::parts::git::GitCapture;
use crate::spelling::{nearest, printable};
use safepoint_model::Span;
use safepoint_model::checkpoint::Scope;
use safepoint_model::plan::spec::Milestone;
use safepoint_workspace::check_patterns;
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Known key, and the keys below it if it is a table.
pub(super) type Known = (&'static str, &'static [&'static str]);

const RETENTION_KEYS: &[&str] = &["keep_last", "keep_within", "thin_daily_for"];
const RETENTION: Known = ("retention", RETENTION_KEYS);
/// Retention tables of other scopes.
const RETENTION_OF: [(Known, Scope); 3] = [
    (("retention_framework", RETENTION_KEYS), Scope::Framework),
    (("retention_agent", RETENTION_KEYS), Scope::Agent),
    (("retention_workflow", RETENTION_KEYS), Scope::Workflow),
];
const CAPTURE: Known = ("capture", &["excludes", "git"]);
const STORE: Known = ("store", &["cap"]);
const SESSIONS: Known = ("sessions", &["commit"]);
const PLANS: Known = ("plans", &["milestones", "every", "every_steps"]);
const CHECKS: Known = ("checks", &["test", "test_timeout", "before_create"]);
const AGENTS: Known = ("agents", &["risky", "fail_closed"]);
const REMOTE: Known = ("remote", &["every", "durability", "exclude"]);

/// Every key of `config.toml`.
pub(super) const IN_HOME: &[Known] = &[
    RETENTION,
    RETENTION_OF[0].0,
    RETENTION_OF[1].0,
    RETENTION_OF[2].0,
    STORE,
    CAPTURE,
    SESSIONS,
    PLANS,
    CHECKS,
    AGENTS,
    REMOTE,
];
/// Every key of `.safepoint.toml`.
pub(super) const IN_WORKSPACE: &[Known] = &[("label", &[]), RETENTION, CAPTURE];

/// Keys that would name a command or a limit in a workspace. They are unknown anyway; the error explains why
/// they are refused.
const HOME_ONLY: &[&str] = &[
    "sessions",
    "plans",
    "agents",
    "remote",
    "checks",
    "test",
    "test_timeout",
    "before_create",
    "store",
    "cap",
    "command",
    "commands",
    "run",
    "exec",
    "hook",
    "hooks",
];

/// Maximum length of a label.
const LABEL_CHARS_MAX: usize = 200;

/// Reads `config.toml`.
pub(super) fn home(text: &str) -> Result<HomeConfig, ConfigError> {
    let file = File { which: ConfigFile::Home, text, known: IN_HOME };
    let mut config = HomeConfig::default();
    for key in file.keys()? {
        match key.path.as_str() {
            "store.cap" => config.cap_bytes = Some(key.bytes()?),
            "capture.excludes" => config.excludes = key.patterns()?,
            "capture.git" => config.git = Some(key.git()?),
            "sessions.commit" => config.session_commit = Some(key.truth()?),
            "plans.milestones" => config.milestones = Some(key.milestones()?),
            "plans.every" => config.every = Some(key.some_time()?),
            "plans.every_steps" => config.every_steps = Some(key.some_number()?),
            "agents.risky" => config.risky = key.texts("a list of texts, such as [\"acme wipe\"]")?.0,
            "agents.fail_closed" => config.fail_closed = Some(key.truth()?),
            "remote.every" => config.remote.every = Some(key.some_time()?),
            "remote.durability" => config.remote.durability = key.durability()?,
            "remote.exclude" => config.remote.exclude = key.patterns()?,
            "checks.test" => config.test = Some(key.command()?),
            "checks.before_create" => config.test_before_create = Some(key.truth()?),
            "checks.test_timeout" => config.test_timeout = Some(key.some_time()?),
            path => {
                let section = path.split('.').next().unwrap_or(path);
                let scope =
                    RETENTION_OF.iter().find(|((name, _), _)| *name == section).map(|(_, scope)| *scope);
                match scope {
                    Some(scope) => key.retention(config.retention_of.entry(scope).or_default())?,
                    None => key.retention(&mut config.retention)?,
                }
            }
        }
    }
    Ok(config)
}

/// Reads `.safepoint.toml`.
pub(super) fn workspace(text: &str) -> Result<WorkspaceConfig, ConfigError> {
    let file = File { which: ConfigFile::Workspace, text, known: IN_WORKSPACE };
    let mut config = WorkspaceConfig::default();
    for key in file.keys()? {
        match key.path.as_str() {
            "label" => config.label = Some(key.label()?),
            "capture.excludes" => config.excludes = key.patterns()?,
            "capture.git" => config.git = Some(key.git()?),
            _ => key.retention(&mut config.retention)?,
        }
    }
    Ok(config)
}

struct File<'t> {
    which: ConfigFile,
    text: &'t str,
    known: &'static [Known],
}

/// Known key with its value.
struct Key<'f, 't> {
    file: &'f File<'t>,
    /// Key, prefixed with its table.
    path: String,
    value: Spanned<DeValue<'t>>,
}

impl<'t> File<'t> {
    /// Returns all keys with values, including those of tables, in line order.
    fn keys(&self) -> Result<Vec<Key<'_, 't>>, ConfigError> {
        let table = DeTable::parse(self.text).map_err(|error| ConfigError::Syntax {
            file: self.which,
            line: self.line(error.span().map_or(0, |span| span.start)),
            why: printable(error.message()),
        })?;
        let mut keys = Vec::new();
        for (name, value) in in_order(table.into_inner()) {
            let Some((section, below)) = self.known.iter().find(|(known, _)| known == name.get_ref()) else {
                return Err(self.unknown(None, &name));
            };
            if below.is_empty() {
                keys.push(Key { file: self, path: (*section).to_owned(), value });
                continue;
            }
            let line = self.line(value.span().start);
            let DeValue::Table(table) = value.into_inner() else {
                let key = (*section).to_owned();
                let (found, expected) = ("no table", "a table");
                return Err(ConfigError::WrongType { file: self.which, line, key, found, expected });
            };
            for (name, value) in in_order(table) {
                if !below.contains(&name.get_ref().as_ref()) {
                    return Err(self.unknown(Some((section, below)), &name));
                }
                keys.push(Key { file: self, path: format!("{section}.{}", name.get_ref()), value });
            }
        }
        Ok(keys)
    }

    /// Returns the line of an offset, counted from one.
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn unknown(
        &self,
        section: Option<(&'static str, &'static [&'static str])>,
        name: &Spanned<std::borrow::Cow<'_, str>>,
    ) -> ConfigError {
        let (file, line) = (self.which, self.line(name.span().start));
        let short = printable(name.get_ref());
        let key = section.map_or_else(|| short.clone(), |(section, _)| format!("{section}.{short}"));
        if file == ConfigFile::Workspace && HOME_ONLY.contains(&name.get_ref().as_ref()) {
            return ConfigError::HomeOnly { file, line, key };
        }
        let known: Vec<&str> = match section {
            Some((_, below)) => below.to_vec(),
            None => self.known.iter().map(|(known, _)| *known).collect(),
        };
        let nearest = self.elsewhere(&short).or_else(|| nearest(&short, &known).map(str::to_owned));
        ConfigError::UnknownKey { file, line, key, nearest, known: known.join(", ") }
    }

    /// Returns the full name of a correctly spelled key in the wrong table.
    fn elsewhere(&self, name: &str) -> Option<String> {
        self.known.iter().find_map(|(section, below)| match below {
            [] => (*section == name).then(|| name.to_owned()),
            below => below.contains(&name).then(|| format!("{section}.{name}")),
        })
    }
}

/// Entries of a table in file order.
fn in_order<K, V>(table: toml::map::Map<Spanned<K>, V>) -> Vec<(Spanned<K>, V)>
where
    toml::map::Map<Spanned<K>, V>: IntoIterator<Item = (Spanned<K>, V)>,
{
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// Name of a value's type.
fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl Key<'_, '_> {
    fn wrong_type(&self, value: &Spanned<DeValue<'_>>, expected: &'static str) -> ConfigError {
        ConfigError::WrongType {
            file: self.file.which,
            line: self.file.line(value.span().start),
            key: self.path.clone(),
            found: type_of(value.get_ref()),
            expected,
        }
    }

    fn wrong_value(&self, why: impl Into<String>) -> ConfigError {
        self.wrong_value_at(self.value.span().start, why)
    }

    fn wrong_value_at(&self, offset: usize, why: impl Into<String>) -> ConfigError {
        ConfigError::WrongValue {
            file: self.file.which,
            line: self.file.line(offset),
            key: self.path.clone(),
            why: why.into(),
        }
    }

    fn retention(&self, retention: &mut RetentionConfig) -> Result<(), ConfigError> {
        match self.path.rsplit('.').next() {
            Some("keep_last") => retention.keep_last = Some(self.number()?),
            Some("keep_within") => retention.keep_within = Some(self.time()?),
            _ => retention.thin_daily_for = Some(self.time()?),
        }
        Ok(())
    }

    fn git(&self) -> Result<GitCapture, ConfigError> {
        match self.text("\"none\", \"state\" or \"full\"")? {
            "none" => Ok(GitCapture::None),
            "state" => Ok(GitCapture::State),
            "full" => Ok(GitCapture::Full),
            _ => Err(self.wrong_value("it is \"none\", \"state\" or \"full\"")),
        }
    }

    fn durability(&self) -> Result<Durability, ConfigError> {
        match self.text("\"local\" or \"remote\"")? {
            "local" => Ok(Durability::Local),
            "remote" => Ok(Durability::Remote),
            _ => Err(self.wrong_value("it is \"local\" or \"remote\"")),
        }
    }

    fn text(&self, expected: &'static str) -> Result<&str, ConfigError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type(&self.value, expected)),
        }
    }

    fn truth(&self) -> Result<bool, ConfigError> {
        match self.value.get_ref() {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => Err(self.wrong_type(&self.value, "true or false")),
        }
    }

    fn number(&self) -> Result<u64, ConfigError> {
        match self.value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| self.wrong_value("a number from 0 to 18446744073709551615 is expected")),
            _ => Err(self.wrong_type(&self.value, "a whole number")),
        }
    }

    fn some_number(&self) -> Result<u64, ConfigError> {
        match self.number()? {
            0 => Err(self.wrong_value("it is at least 1")),
            number => Ok(number),
        }
    }

    fn milestones(&self) -> Result<BTreeSet<Milestone>, ConfigError> {
        let expected = "a list of moments, such as [\"before_step\"]";
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.wrong_type(&self.value, expected));
        };
        let mut found = BTreeSet::new();
        for item in items {
            let DeValue::String(word) = item.get_ref() else { return Err(self.wrong_type(item, expected)) };
            let refuse = |error: safepoint_model::ModelError| {
                self.wrong_value_at(item.span().start, error.to_string())
            };
            // The error quotes the word, which may have any length.
            found.insert(printable(word).parse::<Milestone>().map_err(refuse)?);
        }
        Ok(found)
    }

    fn time(&self) -> Result<Span, ConfigError> {
        let text = self.text("a length of time such as \"7d\"")?;
        printable(text)
            .parse()
            .map_err(|error: safepoint_model::ModelError| self.wrong_value(error.to_string()))
    }

    fn some_time(&self) -> Result<Span, ConfigError> {
        match self.time()? {
            Span::ZERO => Err(self.wrong_value("some time must be left for it")),
            span => Ok(span),
        }
    }

    fn bytes(&self) -> Result<u64, ConfigError> {
        let bytes = match self.value.get_ref() {
            DeValue::Integer(_) => self.number()?,
            _ => {
                let text = self.text("a number of bytes, or a text such as \"10GiB\"")?;
                let refuse =
                    |why| self.wrong_value(format!("\"{}\" is no number of bytes: {why}", printable(text)));
                bytes::parse(text).map_err(refuse)?
            }
        };
        if bytes == 0 { Err(self.wrong_value("nothing at all could be kept")) } else { Ok(bytes) }
    }

    fn command(&self) -> Result<String, ConfigError> {
        match self.text("a command as a text, such as \"cargo test\"")? {
            text if text.trim().is_empty() => Err(self.wrong_value("the command is empty")),
            text if text.contains('\0') => Err(self.wrong_value("a command holds no NUL")),
            text => Ok(text.to_owned()),
        }
    }

    fn label(&self) -> Result<String, ConfigError> {
        match self.text("a text")? {
            text if text.trim().is_empty() => Err(self.wrong_value("the label is empty")),
            text if text.chars().any(char::is_control) => {
                Err(self.wrong_value("a label is one line without control characters"))
            }
            text if text.chars().nth(LABEL_CHARS_MAX).is_some() => {
                Err(self.wrong_value(format!("a label has at most {LABEL_CHARS_MAX} characters")))
            }
            text => Ok(text.to_owned()),
        }
    }

    /// Returns a list of texts, and where each is.
    fn texts(&self, expected: &'static str) -> Result<(Vec<String>, Vec<usize>), ConfigError> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.wrong_type(&self.value, expected));
        };
        let (mut texts, mut places) = (Vec::new(), Vec::new());
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => texts.push(text.clone().into_owned()),
                _ => return Err(self.wrong_type(item, expected)),
            }
            places.push(item.span().start);
        }
        Ok((texts, places))
    }

    fn patterns(&self) -> Result<Vec<String>, ConfigError> {
        let (patterns, places) = self.texts("a list of texts, such as [\"*.log\"]")?;
        if let Err(error) = check_patterns(&patterns) {
            let is_wrong = |pattern: &String| check_patterns(std::slice::from_ref(pattern)).is_err();
            let culprit = places.iter().zip(&patterns).find(|(_, pattern)| is_wrong(pattern));
            return Err(match culprit {
                Some((place, pattern)) => {
                    let why = format!("\"{}\" is no pattern as in a .gitignore", printable(pattern));
                    self.wrong_value_at(*place, why)
                }
                None => self.wrong_value(printable(&error.to_string())),
            });
        }
        Ok(patterns)
    }
}
