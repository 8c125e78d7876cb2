//! Remotes: reachable, clocks, conditional uploads, rights, and the version of the schema.

use super::Check;
use crate::commands::{Context, remote};
use crate::context::Surroundings;
use safepoint::remote::{ConditionalPut, RecordsStatus, Remote, RemoteError, RemoteRight, records_schema};
use safepoint::{CheckpointManager, Error, StoredRemote};
use std::time::Duration;

const NAME: &str = "remote";
/// Limit of one request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Difference of clocks that people notice in lists.
const CLOCK_MICROS_MAX: u64 = 5_000_000;
/// Attempt of a refused upload; another refusal is about the deletion that follows.
const UPLOAD: &str = "check the object store";

pub(super) fn checks(context: &Context, manager: &CheckpointManager) -> Vec<Check> {
    match manager.remotes().list() {
        Ok(remotes) => remotes.iter().flat_map(|stored| of_one(context, manager, stored)).collect(),
        Err(error) => vec![Check::failed(NAME, &error)],
    }
}

fn of_one(context: &Context, manager: &CheckpointManager, stored: &StoredRemote) -> Vec<Check> {
    let name = &stored.name;
    let opened = remote::open_patiently(context, manager, stored, PATIENCE);
    let remote = match opened {
        Ok(remote) => remote,
        Err(problem) => {
            let hint = problem.failure.hints.join(" ");
            return vec![Check::problem(NAME, format!("{name}: {}", problem.failure.message), hint)];
        }
    };
    let asked = Surroundings::now();
    let mut checks = match remote.status() {
        Ok(status) => {
            let answered = Surroundings::now();
            vec![
                schema(name, &status),
                clock(name, &status, (asked.micros(), answered.micros())),
                rights(name, &status),
            ]
        }
        Err(error) => vec![failed(name, "records", error)],
    };
    checks.push(bytes(name, &remote));
    checks
}

fn failed(name: &str, half: &str, error: RemoteError) -> Check {
    let mut check = Check::failed(NAME, &Error::from(error));
    check.message = format!("{name}, {half}: {}", check.message);
    check
}

fn schema(name: &str, status: &RecordsStatus) -> Check {
    let (server, here) = (status.schema, records_schema());
    let told = format!("{name}: PostgreSQL {} answers, schema {server}", status.server);
    match server.cmp(&here) {
        std::cmp::Ordering::Less => Check::warning(
            NAME,
            format!("{told}; this program knows {here}"),
            format!("Its owner updates it: safepoint remote migrate {name}"),
        ),
        std::cmp::Ordering::Equal => Check::ok(NAME, told),
        std::cmp::Ordering::Greater => Check::ok(NAME, format!("{told}, newer than this program's {here}")),
    }
}

/// Compares the clocks; the answer was given between the two times of this machine.
fn clock(name: &str, status: &RecordsStatus, (asked, answered): (i64, i64)) -> Check {
    let there = status.now.micros();
    let off = there.saturating_sub(there.clamp(asked, answered.max(asked))).unsigned_abs();
    let seconds = off / 1_000_000;
    match off > CLOCK_MICROS_MAX {
        false => Check::ok(NAME, format!("{name}: the clocks agree")),
        true => Check::warning(
            NAME,
            format!(
                "{name}: the clocks differ by {seconds} s; leases do not depend on it, times in lists do"
            ),
            "Synchronize the clocks, for instance with NTP.",
        ),
    }
}

fn rights(name: &str, status: &RecordsStatus) -> Check {
    let has = |right: RemoteRight| status.rights.contains(&right);
    let words: Vec<&str> = status.rights.iter().map(|right| right.as_str()).collect();
    let told = format!("{name}: this role may {}", words.join(", "));
    let rights_of_owner = "The owner of the remote grants rights.";
    match (has(RemoteRight::Publish), has(RemoteRight::Upkeep)) {
        (false, _) => {
            Check::warning(NAME, format!("{told}; it may not publish: a push is refused"), rights_of_owner)
        }
        (true, false) => Check::ok(NAME, format!("{told}; upkeep and purges need another role")),
        (true, true) => Check::ok(NAME, told),
    }
}

fn bytes(name: &str, remote: &Remote) -> Check {
    let told = |what: &str| format!("{name}: the object store is readable and writable, {what}");
    match remote.bytes().probe() {
        Ok(ConditionalPut::Obeyed) => Check::ok(NAME, told("and obeys conditional uploads")),
        Ok(ConditionalPut::Ignored) => {
            Check::ok(NAME, told("and ignores conditional uploads; nothing relies on them"))
        }
        Ok(ConditionalPut::Unsupported) => {
            Check::ok(NAME, told("and knows no conditional uploads; nothing relies on them"))
        }
        Err(RemoteError::Denied { attempt, .. }) if attempt != UPLOAD => {
            Check::ok(NAME, told("but these keys may not delete; upkeep and purges need others"))
        }
        Err(error) => failed(name, "bytes", error),
    }
}
