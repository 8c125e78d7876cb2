//! Spans and events for people who look for a problem. Without an installed tracer, each costs one load.
//!
//! The library calls [`span`] and [`event`]; a program installs a [`Tracer`] that has a clock and an output.

use std::sync::OnceLock;

/// Importance of a span or event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLevel {
    /// Failures.
    Error,
    /// Unusual conditions.
    Warn,
    /// Commands.
    Info,
    /// Parts and flushes.
    Debug,
    /// Everything.
    Trace,
}

/// Areas of spans and events.
pub const TARGETS: [&str; 6] = ["catalog", "part", "remote", "store", "verb", "workspace"];

/// Receiver of spans and events.
pub trait Tracer: Send + Sync {
    /// Returns true if this target is recorded at this level.
    fn wants(&self, target: &str, level: TraceLevel) -> bool;
    /// Records an event.
    fn event(&self, target: &str, level: TraceLevel, text: &str);
    /// Records the start of a span, and returns its number.
    fn enter(&self, target: &str, level: TraceLevel, text: &str) -> u64;
    /// Records the end of a span.
    fn leave(&self, target: &str, level: TraceLevel, span: u64);
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Installs the tracer of this process. The first one stays.
pub fn install(tracer: Box<dyn Tracer>) {
    let _ = TRACER.set(tracer);
}

fn tracer(target: &str, level: TraceLevel) -> Option<&'static dyn Tracer> {
    let tracer = TRACER.get()?;
    tracer.wants(target, level).then_some(&**tracer)
}

/// Records an event, if wanted.
pub fn event(target: &'static str, level: TraceLevel, text: impl FnOnce() -> String) {
    if let Some(tracer) = tracer(target, level) {
        tracer.event(target, level, &text());
    }
}

/// Starts a span, if wanted. It ends when the value is dropped.
#[must_use]
pub fn span(target: &'static str, level: TraceLevel, text: impl FnOnce() -> String) -> Traced {
    debug_assert!(TARGETS.contains(&target), "{target}");
    Traced(tracer(target, level).map(|tracer| (tracer, target, level, tracer.enter(target, level, &text()))))
}

/// Running span.
pub struct Traced(Option<(&'static dyn Tracer, &'static str, TraceLevel, u64)>);

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some((tracer, target, level, span)) = self.0.take() {
            tracer.leave(target, level, span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Tracer for Lines {
        fn wants(&self, target: &str, level: TraceLevel) -> bool {
            target == "store" && level <= TraceLevel::Debug
        }

        fn event(&self, target: &str, _: TraceLevel, text: &str) {
            self.0.lock().unwrap().push(format!("{target}: {text}"));
        }

        fn enter(&self, _: &str, _: TraceLevel, text: &str) -> u64 {
            self.0.lock().unwrap().push(format!("enter {text}"));
            7
        }

        fn leave(&self, _: &str, _: TraceLevel, span: u64) {
            self.0.lock().unwrap().push(format!("leave {span}"));
        }
    }

    #[test]
    fn only_wanted_spans_are_recorded_and_their_text_built() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        drop(span("store", TraceLevel::Debug, || unreachable!("no tracer is installed")));
        install(Box::new(Lines(Arc::clone(&lines))));
        install(Box::new(Lines(Arc::default())));
        let outer = span("store", TraceLevel::Debug, || "flush".to_owned());
        event("store", TraceLevel::Info, || "one".to_owned());
        event("store", TraceLevel::Trace, || unreachable!("not wanted"));
        drop(span("part", TraceLevel::Error, || unreachable!("not wanted")));
        drop(outer);
        assert_eq!(*lines.lock().unwrap(), ["enter flush", "store: one", "leave 7"]);
    }
}
