//! Lines: their states in memory, and the workers that push for them.

use super::NAME;
use crate::args::Fleet;
use crate::failure::{Result, Tried};
use safepoint_model::progress::Silent;
use safepoint_model::{CheckpointId, LineId, ObjectId, ObjectKind, Progress, WorkspaceId};
use safepoint_remote::{
    ConditionalPut, LineState, ListPlan, ListedObject, PostgresRecords, PushDocument, PushedCheckpoint,
    RecordsUrl, Remote, RemoteBytes, RemoteEnvironment, RemoteError,
};
use serde::Serialize;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fs::File;
use std::io::{Seek, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Object store in memory: lengths of the uploads, each after a set time.
#[derive(Clone)]
struct MemoryBytes {
    latency: Duration,
    stored: Arc<Mutex<HashMap<String, u64>>>,
}

/// End of a push.
type Push = std::result::Result<(), RemoteError>;

impl RemoteBytes for MemoryBytes {
    fn put(
        &self,
        name: &str,
        _: &File,
        bytes: u64,
        _: &dyn Progress,
    ) -> std::result::Result<(), RemoteError> {
        std::thread::sleep(self.latency);
        lock(&self.stored).insert(name.to_owned(), bytes);
        Ok(())
    }

    fn get(&self, name: &str, _: Range<u64>) -> std::result::Result<Vec<u8>, RemoteError> {
        Err(RemoteError::NoPack { pack: name.to_owned() })
    }

    fn download(
        &self,
        name: &str,
        _: &mut dyn Write,
        _: &dyn Progress,
    ) -> std::result::Result<u64, RemoteError> {
        Err(RemoteError::NoPack { pack: name.to_owned() })
    }

    fn list(&self, prefix: &str) -> std::result::Result<Vec<ListedObject>, RemoteError> {
        let stored = lock(&self.stored);
        let found = stored.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(found.map(|(name, bytes)| ListedObject { name: name.clone(), bytes: *bytes }).collect())
    }

    fn delete(&self, names: &[String]) -> std::result::Result<(), RemoteError> {
        lock(&self.stored).retain(|name, _| !names.contains(name));
        Ok(())
    }

    fn probe(&self) -> std::result::Result<ConditionalPut, RemoteError> {
        Ok(ConditionalPut::Unsupported)
    }
}

/// One line.
struct Line {
    id: LineId,
    state: Option<LineState>,
    /// Its own connection.
    remote: Option<Remote>,
}

/// All lines, and the order in which they are due.
pub(super) struct Field {
    url: RecordsUrl,
    bytes: MemoryBytes,
    workers: u64,
    every: Duration,
    lines: Vec<Mutex<Line>>,
}

/// Result of a run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Played {
    /// Accepted pushes, or begun lines.
    pub(super) pushes: u64,
    pub(super) seconds: f64,
    pub(super) median: f64,
    /// Time that one push in a hundred exceeds.
    pub(super) worst_percent: f64,
    /// Pushes that began more than an interval after they were due.
    pub(super) late: u64,
    failed: BTreeMap<String, u64>,
    /// First failure, and when it was.
    pub(super) first: Option<String>,
}

impl Played {
    pub(super) fn rate(&self) -> f64 {
        self.pushes as f64 / self.seconds
    }

    pub(super) fn failures(&self) -> String {
        let each = self.failed.iter().map(|(why, count)| format!("{count}: {why}"));
        let all: Vec<String> = each.collect();
        if all.is_empty() { "0".to_owned() } else { all.join("; ") }
    }

    pub(super) fn words(&self) -> String {
        format!("{} in {:.1} s; failures: {}", self.pushes, self.seconds, self.failures())
    }
}

/// Notes of the workers.
#[derive(Default)]
struct Notes {
    took: Vec<f64>,
    late: u64,
    failed: BTreeMap<String, u64>,
    first: Option<String>,
}

impl Notes {
    fn failed(&mut self, error: &RemoteError, at: Duration) {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            why = format!("{why}: {inner}");
            source = inner.source();
        }
        self.first.get_or_insert_with(|| format!("after {:.1} s: {why}", at.as_secs_f64()));
        *self.failed.entry(why).or_default() += 1;
    }

    fn played(mut self, seconds: f64) -> Played {
        self.took.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let last = self.took.len().saturating_sub(1);
            self.took.get((last as f64 * part) as usize).copied().unwrap_or_default()
        };
        Played {
            pushes: self.took.len() as u64,
            seconds,
            median: at(0.5),
            worst_percent: at(0.99),
            late: self.late,
            failed: self.failed,
            first: self.first,
        }
    }
}

impl Field {
    pub(super) fn new(args: &Fleet, url: &str) -> Result<Self> {
        let url: RecordsUrl = url.parse().tried(|| format!("using {url}"))?;
        let latency = Duration::from_millis(args.latency_ms);
        let mut field = Self {
            url,
            bytes: MemoryBytes { latency, stored: Arc::default() },
            workers: args.workers,
            every: Duration::from_secs(args.every),
            lines: Vec::new(),
        };
        for number in 0..args.lines {
            let remote =
                if args.held { Some(field.remote().tried(|| "opening a remote".into())?) } else { None };
            let id = LineId::from_bits(u128::from(number) + 1);
            field.lines.push(Mutex::new(Line { id, state: None, remote }));
        }
        Ok(field)
    }

    fn remote(&self) -> std::result::Result<Remote, RemoteError> {
        let project: safepoint_remote::ProjectName = NAME.parse()?;
        let mut records = PostgresRecords::open(&self.url, project.clone(), &RemoteEnvironment::default())?;
        records.limit(Duration::from_secs(10));
        Ok(Remote::from_parts(project, Box::new(records), Box::new(self.bytes.clone()), None))
    }

    /// Begins every line.
    pub(super) fn begin_lines(&self) -> Played {
        let began = Instant::now();
        let notes = self.work(
            &|own, next| {
                let number = next.pop(began)?;
                let mut line = lock(&self.lines[number]);
                let workspace = WorkspaceId::from_bits(number as u128 + 1);
                let Line { id, state, remote } = &mut *line;
                let begun = remote.as_ref().unwrap_or(own).begin_line(*id, workspace, None, "simulated");
                Some(begun.map(|begun| *state = Some(begun)))
            },
            &Schedule::new(self.lines.len(), Duration::ZERO, None),
        );
        notes.played(began.elapsed().as_secs_f64())
    }

    /// Lets every line push once in each interval, for so long.
    pub(super) fn play(&self, time: Duration) -> Played {
        let began = Instant::now();
        let schedule = Schedule::new(self.lines.len(), self.every, Some(began + time));
        let notes = self.work(
            &|own, next| {
                // Some could not begin.
                let mut line = loop {
                    let line = lock(&self.lines[next.pop(began)?]);
                    if line.state.is_some() {
                        break line;
                    }
                };
                let Line { state, remote, .. } = &mut *line;
                let base = state.as_mut()?;
                let pushed = push(remote.as_ref().unwrap_or(own), base);
                Some(pushed.map(|pushed| *base = pushed))
            },
            &schedule,
        );
        notes.played(began.elapsed().as_secs_f64())
    }

    fn work(&self, one: &(dyn Fn(&Remote, &Schedule) -> Option<Push> + Sync), schedule: &Schedule) -> Notes {
        let (notes, began) = (Mutex::new(Notes::default()), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..self.workers {
                scope.spawn(|| {
                    let own = match self.remote() {
                        Ok(own) => own,
                        Err(error) => return lock(&notes).failed(&error, began.elapsed()),
                    };
                    loop {
                        let at = Instant::now();
                        let Some(done) = one(&own, schedule) else { return };
                        let waited = lock(&schedule.waited).remove(&std::thread::current().id());
                        let took = at.elapsed().saturating_sub(waited.unwrap_or_default());
                        let mut notes = lock(&notes);
                        match done {
                            Ok(()) => notes.took.push(took.as_secs_f64()),
                            Err(error) => notes.failed(&error, began.elapsed()),
                        }
                    }
                });
            }
        });
        let mut notes = notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        notes.late = *lock(&schedule.late);
        notes
    }
}

/// Lines by the time at which they are due.
struct Schedule {
    due: Mutex<BinaryHeap<Reverse<(Duration, usize)>>>,
    every: Duration,
    end: Option<Instant>,
    late: Mutex<u64>,
    /// Time that a worker waited for a line to be due.
    waited: Mutex<HashMap<std::thread::ThreadId, Duration>>,
}

impl Schedule {
    /// Spreads the lines over an interval. Without an end each line is due once.
    fn new(lines: usize, every: Duration, end: Option<Instant>) -> Self {
        let at = |number: usize| every.mul_f64(number as f64 / lines as f64);
        let due = (0..lines).map(|number| Reverse((at(number), number))).collect();
        let (late, waited) = (Mutex::default(), Mutex::default());
        Self { due: Mutex::new(due), every, end, late, waited }
    }

    /// Waits for the next line that is due. `None` at the end.
    fn pop(&self, began: Instant) -> Option<usize> {
        let Reverse((due, number)) = {
            let mut all = lock(&self.due);
            let next = all.pop()?;
            if self.end.is_some() {
                all.push(Reverse((next.0.0 + self.every, next.0.1)));
            }
            next
        };
        let at = began + due;
        if self.end.is_some_and(|end| at >= end || Instant::now() >= end) {
            return None;
        }
        let wait = at.saturating_duration_since(Instant::now());
        std::thread::sleep(wait);
        lock(&self.waited).insert(std::thread::current().id(), wait);
        if self.end.is_some() && at.elapsed() > self.every {
            *lock(&self.late) += 1;
        }
        Some(number)
    }
}

/// Builds and sends a push of one checkpoint, as a small change makes it.
fn push(remote: &Remote, base: &LineState) -> std::result::Result<LineState, RemoteError> {
    let local = |source| RemoteError::Local { path: "memory".into(), source };
    let mut document = PushDocument::new(base);
    document.kept = match ListPlan::of(&base.packs, None) {
        ListPlan::Append => base.packs.clone(),
        ListPlan::Compact(kept) => kept,
        ListPlan::Whole => Vec::new(),
    };
    document.whole = document.kept.is_empty();
    let id = CheckpointId::from_bits(u128::from(document.seq) << 64 | base.line.bits());
    let content = format!("{}: {}", base.line, document.seq).repeat(40);
    let record = ObjectId::of(ObjectKind::Document, content.as_bytes());
    let fields = json!({
        "workspace": "simulated", "created_at": "2026-11-19T21:00:00.000000Z", "label": null, "kind": "automatic",
        "reason": "step", "scope": "workspace", "plan_id": null, "session_id": null,
        "files": { "count": 1200, "bytes": 8_000_000 }, "holder": "agent@sandbox",
    });
    document.checkpoints.push(PushedCheckpoint { id, record, pinned: false, fields });
    let memory = |name: &str| -> std::result::Result<File, RemoteError> {
        let created = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        created.map(File::from).map_err(|error| local(error.into()))
    };
    let mut plain = memory("plain")?;
    plain.write_all(content.as_bytes()).and_then(|()| plain.rewind()).map_err(local)?;
    let mut out = memory("pack")?;
    let pack = remote.finish_pack(&document, &mut plain, 6, (&mut out, Path::new("memory")))?;
    let push = remote.prepare(document, pack)?;
    remote.push(&push, &[&out], &Silent)
}
