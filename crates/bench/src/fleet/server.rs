//! Server: CPU time, log, size of tables, and waiting sessions of a PostgreSQL.

use crate::failure::{Result, Tried};
use safepoint_testkit::servers::Postgres;
use serde::Serialize;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Counters at one moment.
pub(super) struct Measure {
    cpu_seconds: f64,
    wal_bytes: u64,
    table_bytes: u64,
}

/// Difference of two moments.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) cpu_seconds: f64,
    pub(super) wal_bytes: u64,
    pub(super) table_bytes: u64,
}

const COUNTERS: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
    (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'safepoint' AND c.relkind = 'r')";

impl Measure {
    pub(super) fn of(postgres: &Postgres, database: &str) -> Result<Self> {
        let told = postgres.sql(database, COUNTERS).tried(|| "reading the counters of the server".into())?;
        let mut numbers = told.trim().split('|').filter_map(|text| text.parse().ok());
        let (wal_bytes, table_bytes) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok(Self { cpu_seconds: cpu_of(postgres.server.pid().unwrap_or(0)), wal_bytes, table_bytes })
    }

    pub(super) fn until_now(&self, postgres: &Postgres, database: &str) -> Result<Cost> {
        let now = Self::of(postgres, database)?;
        Ok(Cost {
            cpu_seconds: now.cpu_seconds - self.cpu_seconds,
            wal_bytes: now.wal_bytes.saturating_sub(self.wal_bytes),
            table_bytes: now.table_bytes.saturating_sub(self.table_bytes),
        })
    }
}

/// CPU time of a process, of its children, and of those that ended.
fn cpu_of(root: u32) -> f64 {
    // proc(5): after the name in parentheses come the state, the parent, and as 12th to 15th utime, stime, cutime, cstime.
    let fields = |pid: &str| -> Option<Vec<u64>> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = text.rsplit_once(')')?;
        Some(rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect())
    };
    let own = fields(&root.to_string()).map_or(0, |of| of.iter().skip(10).take(4).sum::<u64>());
    let mut ticks = own;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some(of) = fields(&name).filter(|of| of.first() == Some(&u64::from(root))) {
            ticks += of.iter().skip(10).take(2).sum::<u64>();
        }
    }
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Largest numbers of sessions that were seen.
#[derive(Debug, Serialize)]
pub(super) struct Peaks {
    pub(super) sessions: u64,
    pub(super) waiting: u64,
}

const SESSIONS: &str =
    "SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// Looks at the sessions every half second until the run has ended.
pub(super) fn watch(postgres: &Postgres, database: &str, ended: &AtomicBool) -> Peaks {
    let mut peaks = Peaks { sessions: 0, waiting: 0 };
    while !ended.load(Ordering::Relaxed) {
        let told = postgres.sql(database, SESSIONS).unwrap_or_default();
        let mut numbers = told.trim().split('|').filter_map(|text| text.parse().ok());
        peaks.sessions = peaks.sessions.max(numbers.next().unwrap_or(0));
        peaks.waiting = peaks.waiting.max(numbers.next().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(500));
    }
    peaks
}
