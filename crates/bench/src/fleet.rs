//! Fleet: many lines that publish to one real PostgreSQL, played by one process without files.
//!
//! Requests are those of the product (`safepoint-remote`); uploads wait for a set time, and stay in memory. Each line is
//! due once in an interval, whatever the others do. Reported: pushes per second, and what they cost the server.

mod lines;
mod server;

use crate::args::Fleet;
use crate::failure::{Failure, Result, Tried};
use crate::machine::Machine;
use crate::numbers::{bytes, seconds};
use lines::{Field, Played};
use safepoint_remote::{MemberGrant, PostgresRecords, RemoteEnvironment, RemoteRecords, RemoteRight};
use safepoint_testkit::servers::{PgBouncer, Postgres};
use serde_json::json;
use server::Cost;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the database, and of the project.
const NAME: &str = "fleet";
/// Role of the lines: connections that are reserved for others stay free for the measurement.
const ROLE: &str = "line";
/// Connections of the pooler to the server.
const POOL: u32 = 20;
/// Descriptors of a line with a connection: a runtime and a socket.
const DESCRIPTORS: u64 = 6;

/// Runs `fleet`.
pub(crate) fn run(args: &Fleet) -> Result<ExitCode> {
    println!("{}", Machine::this(Path::new("/var/tmp"))?.words());
    raise_limit(args)?;
    let settings = ["fsync=on", "shared_buffers=256MB", "max_wal_size=4GB"];
    let postgres = Postgres::start(&settings).tried(|| "starting PostgreSQL".into())?;
    let postgres =
        postgres.ok_or_else(|| Failure::new("PostgreSQL is not installed; run: .ci/fleet --install"))?;
    postgres.sql("postgres", &format!("CREATE DATABASE {NAME}")).tried(|| "creating a database".into())?;
    let pooler = pooler(args, &postgres)?;
    let url = match &pooler {
        Some(pooler) => format!("postgres://postgres@127.0.0.1:{}/{NAME}", pooler.port),
        None => postgres.url(ROLE, NAME),
    };
    initialize(&postgres)?;
    let field = Field::new(args, &url)?;
    println!("{} lines, each due every {} s; {}", args.lines, args.every, way(args));
    let begun = field.begin_lines();
    println!("lines begun: {}", begun.words());
    let before = server::Measure::of(&postgres, NAME)?;
    let ended = AtomicBool::new(false);
    let (played, peaks) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| server::watch(&postgres, NAME, &ended));
        let played = field.play(Duration::from_secs(args.seconds));
        ended.store(true, Ordering::Relaxed);
        (played, watching.join())
    });
    let peaks = peaks.map_err(|_| Failure::new("watching the server failed"))?;
    let cost = before.until_now(&postgres, NAME)?;
    let rows = rows(args, (&begun, &played), &cost, &peaks);
    println!("\n| figure | value |\n|---|---|");
    for (name, value) in &rows {
        println!("| {name} | {value} |");
    }
    if let Some(path) = &args.json {
        let text = json!({ "lines": args.lines, "way": way(args), "begun": begun, "played": played, "cost": cost,
            "peaks": peaks });
        fs::write(path, text.to_string()).tried(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn way(args: &Fleet) -> String {
    let connections = match args.held {
        true => "a connection for each line".to_owned(),
        false => format!("{} connections", args.workers),
    };
    let through =
        if args.pooler { format!(" to PgBouncer with {POOL} to the server") } else { String::new() };
    format!("{connections}{through}, {} pushes at once, uploads of {} ms", args.workers, args.latency_ms)
}

fn pooler(args: &Fleet, postgres: &Postgres) -> Result<Option<PgBouncer>> {
    if !args.pooler {
        return Ok(None);
    }
    let clients = u32::try_from(args.lines).unwrap_or(u32::MAX).saturating_add(100);
    let started = PgBouncer::start_with(postgres, POOL, clients).tried(|| "starting PgBouncer".into())?;
    started.map(Some).ok_or_else(|| Failure::new("PgBouncer is not installed; run: .ci/fleet --install"))
}

/// Creates the tables, the project, and the role of the lines.
fn initialize(postgres: &Postgres) -> Result<()> {
    let url = postgres.url("postgres", NAME);
    postgres.sql(NAME, &format!("CREATE ROLE {ROLE} LOGIN")).tried(|| "creating a role".into())?;
    let act = || {
        let records = PostgresRecords::open(&url.parse()?, NAME.parse()?, &RemoteEnvironment::default())?;
        records.migrate()?;
        records.create_project()?;
        let rights = vec![RemoteRight::Read, RemoteRight::Publish];
        records.set_member(&MemberGrant { role: ROLE.to_owned(), rights, line: None })
    };
    act().tried(|| "creating the tables".into())
}

/// Raises the limit of open files where each line has a connection.
fn raise_limit(args: &Fleet) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if !args.held {
        return Ok(());
    }
    let needed = args.lines * DESCRIPTORS + 1000;
    let maximum = getrlimit(Resource::Nofile).maximum;
    if maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Failure::new(format!("{} lines need {needed} open files", args.lines)));
    }
    let limit = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, limit).tried(|| "raising the limit of open files".into())
}

/// Names the first failure; without one, the rate may have been too high.
fn broke_first(begun: &Played, played: &Played) -> String {
    let slow =
        (played.late > 0).then(|| "nothing failed; pushes fell behind the rate that was wanted".to_owned());
    begun.first.clone().or_else(|| played.first.clone()).or(slow).unwrap_or_else(|| "nothing".to_owned())
}

fn rows(
    args: &Fleet,
    (begun, played): (&Played, &Played),
    cost: &Cost,
    peaks: &server::Peaks,
) -> Vec<(&'static str, String)> {
    let pushes = played.pushes.max(1);
    let per = |value: u64| value / pushes;
    let wanted = args.lines as f64 / args.every as f64;
    vec![
        ("pushes", format!("{} in {:.0} s", played.pushes, played.seconds)),
        ("pushes per second", format!("{:.0} of {wanted:.0} wanted", played.rate())),
        ("time of a push, median", seconds(played.median)),
        ("time of a push, 99 %", seconds(played.worst_percent)),
        ("late by more than an interval", format!("{} pushes", played.late)),
        ("CPU of the server per push", seconds(cost.cpu_seconds / pushes as f64)),
        ("CPU of the server", format!("{:.0} % of one core", 100.0 * cost.cpu_seconds / played.seconds)),
        ("log (WAL) per push", bytes(per(cost.wal_bytes))),
        ("tables and indexes per push", bytes(per(cost.table_bytes))),
        ("sessions waiting for a lock, maximum", peaks.waiting.to_string()),
        ("sessions of the server, maximum", peaks.sessions.to_string()),
        ("failures", played.failures()),
        ("broke first", broke_first(begun, played)),
    ]
}
