//! `SAFEPOINT_LOG`: spans and events of this process, on standard error or appended to a file.
//!
//! In: a filter such as `debug` or `info,store=trace`. Out: one line for the start and one for the end of each span.
//! A filter that makes no sense is a warning, and nothing fails because of a log.

use crate::context::{Logging, now_text};
use crate::render::terminal::printable;
use safepoint::model::trace::{self, TARGETS, TraceLevel, Tracer};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Starts logging as the environment asks. Returns warnings.
pub(crate) fn start(logging: &Logging) -> Vec<String> {
    let Some(text) = &logging.filter else { return Vec::new() };
    let (filter, mut warnings) = Filter::read(text);
    let file = match &logging.file {
        None => None,
        Some(path) => match OpenOptions::new().append(true).create(true).mode(0o600).open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                warnings.push(format!("cannot write the log to {}: {error}", path.display()));
                return warnings;
            }
        },
    };
    if !filter.is_off() {
        let running = Mutex::default();
        trace::install(Box::new(Log {
            filter,
            file: file.map(Mutex::new),
            next: AtomicU64::new(1),
            running,
        }));
    }
    warnings
}

/// Levels by target.
#[derive(Debug, Default, PartialEq)]
struct Filter {
    general: Option<TraceLevel>,
    targets: HashMap<String, Option<TraceLevel>>,
}

impl Filter {
    /// Reads a comma-separated list of levels, each for all targets or with `TARGET=` for one. Returns what was not understood.
    fn read(text: &str) -> (Self, Vec<String>) {
        let (mut filter, mut warnings) = (Self::default(), Vec::new());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (target, level) = match word.split_once('=') {
                Some((target, level)) => (Some(target.trim()), level.trim()),
                None => (None, word),
            };
            let Some(level) = level_of(level) else {
                warnings.push(format!(
                    "SAFEPOINT_LOG: {level:?} is not a level (off, error, warn, info, debug, trace)"
                ));
                continue;
            };
            match target {
                None | Some("safepoint") => filter.general = level,
                Some(target) if TARGETS.contains(&target) => {
                    filter.targets.insert(target.to_owned(), level);
                }
                Some(target) => {
                    warnings.push(format!("SAFEPOINT_LOG: {target:?} is not one of {}", TARGETS.join(", ")));
                }
            }
        }
        (filter, warnings)
    }

    fn is_off(&self) -> bool {
        self.general.is_none() && self.targets.values().all(Option::is_none)
    }

    fn level(&self, target: &str) -> Option<TraceLevel> {
        self.targets.get(target).copied().unwrap_or(self.general)
    }
}

/// Returns the level of a word; `None` inside means off.
fn level_of(word: &str) -> Option<Option<TraceLevel>> {
    Some(match word.to_lowercase().as_str() {
        "off" => None,
        "error" => Some(TraceLevel::Error),
        "warn" => Some(TraceLevel::Warn),
        "info" => Some(TraceLevel::Info),
        "debug" => Some(TraceLevel::Debug),
        "trace" => Some(TraceLevel::Trace),
        _ => return None,
    })
}

struct Log {
    filter: Filter,
    /// Standard error if `None`.
    file: Option<Mutex<File>>,
    next: AtomicU64,
    /// Start and text of running spans.
    running: Mutex<HashMap<u64, (Instant, String)>>,
}

impl Log {
    /// Writes one line. A log that cannot be written is not worth a failure.
    fn line(&self, target: &str, level: TraceLevel, text: &str) {
        let level = format!("{level:?}").to_uppercase();
        let line = format!("{} {level:5} {target}: {}\n", now_text(), printable(text));
        let _ = match &self.file {
            Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
}

impl Tracer for Log {
    fn wants(&self, target: &str, level: TraceLevel) -> bool {
        self.filter.level(target).is_some_and(|wanted| level <= wanted)
    }

    fn event(&self, target: &str, level: TraceLevel, text: &str) {
        self.line(target, level, text);
    }

    fn enter(&self, target: &str, level: TraceLevel, text: &str) -> u64 {
        let span = self.next.fetch_add(1, Ordering::Relaxed);
        self.line(target, level, &format!("{text} [{span}]"));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(span, (Instant::now(), text.to_owned()));
        span
    }

    fn leave(&self, target: &str, level: TraceLevel, span: u64) {
        let ended = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&span);
        if let Some((started, text)) = ended {
            let millis = started.elapsed().as_secs_f64() * 1_000.0;
            self.line(target, level, &format!("{text} [{span}] took {millis:.1} ms"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_for_all_and_for_each() {
        let (filter, warnings) = Filter::read(" info, store=trace,part=off ");
        assert!(warnings.is_empty() && !filter.is_off());
        assert_eq!(filter.level("verb"), Some(TraceLevel::Info));
        assert_eq!(filter.level("store"), Some(TraceLevel::Trace));
        assert_eq!(filter.level("part"), None);
        assert!(Filter::read("off").0.is_off());
    }

    #[test]
    fn what_makes_no_sense_is_a_warning_and_the_rest_counts() {
        let (filter, warnings) = Filter::read("loud,nowhere=debug,store=debug");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert_eq!(filter.level("store"), Some(TraceLevel::Debug));
    }
}
