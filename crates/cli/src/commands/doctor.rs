//! `doctor`: checks everything that Safepoint relies on, and suggests a fix for each problem.
//!
//! It changes nothing, with one exception common to all commands: a home open to other users is made private.
//! So the home is checked before it is opened.

mod agents;
mod home;
mod place;
mod remotes;

use crate::args::install::DoctorArgs;
use crate::commands::install;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{Colours, counted, printable, size};
use crate::{commands::Context, render::exit};
use rustix::process::{Resource, getrlimit};
use safepoint::{CatalogStanding, CheckpointManager, Error, Failure, FailureKind};
use safepoint_agents::CodingAgent;
use serde::Serialize;
use serde_json::json;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Ok,
    Warning,
    Problem,
}

/// Check with its result.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Health,
    message: String,
    hint: Option<String>,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Health::Ok, message: message.into(), hint: None }
    }

    fn warning(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, status: Health::Warning, message: message.into(), hint: Some(hint.into()) }
    }

    fn problem(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, status: Health::Problem, message: message.into(), hint: Some(hint.into()) }
    }

    /// Converts an error to a failed check.
    fn failed(name: &'static str, error: &Error) -> Self {
        let Failure { message, causes, hints, .. } = Failure::from(error);
        let message = std::iter::once(message).chain(causes).collect::<Vec<_>>().join(": ");
        Self {
            name,
            status: Health::Problem,
            message,
            hint: Some(hints.join(" ")).filter(|hint| !hint.is_empty()),
        }
    }
}

/// Minimum limit of open files for a deep tree.
const OPEN_FILES_MIN: u64 = 1024;

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<Reply, Problem> {
    let named = install::named(&args.agents)?;
    let checks = if named.is_empty() { machine(context) } else { Vec::new() };
    let has_home = context.surroundings.home.is_dir();
    let manager = if has_home { context.surroundings.open(None).ok() } else { None };
    let last_seen = |agent: CodingAgent| manager.as_ref()?.turns().last_seen(agent.name()).ok()?;
    let agents = agents::checks(context, &named, last_seen);
    tell(&context.out, &checks);
    agents::tell(&context.out, &agents);
    let statuses = checks.iter().map(|check| check.status);
    let statuses: Vec<Health> = statuses.chain(agents.iter().map(|agent| agent.status)).collect();
    context.out.line(verdict(&statuses));
    let exit = if checks.iter().any(|check| check.status == Health::Problem) {
        exit::IN_PART
    } else if agents.iter().any(|agent| agent.status == Health::Problem) {
        exit::code(FailureKind::Failed)
    } else {
        exit::DONE
    };
    Ok(Reply { data: json!({ "checks": checks, "agents": agents }), exit, failure: None })
}

/// Checks of everything but agents.
fn machine(context: &Context) -> Vec<Check> {
    let surroundings = &context.surroundings;
    let mut checks = vec![home::private(&surroundings.home)];
    // Opening would create a missing home.
    if surroundings.home.is_dir() {
        match surroundings.try_open(None) {
            Ok(manager) => {
                checks.extend(records(&manager));
                checks.extend(place::checks(surroundings, &manager));
                checks.extend(remotes::checks(context, &manager));
            }
            Err(error) => checks.extend(not_opened(&error)),
        }
    }
    checks.push(sqlite());
    checks.push(home::space(&surroundings.home));
    checks.push(open_files());
    checks
}

/// Failed check. The home, the store and the catalog are opened in this order.
fn not_opened(error: &Error) -> Vec<Check> {
    match error {
        Error::Home { .. } => vec![Check::failed("home", error)],
        Error::Catalog(_) => vec![Check::ok("store", "it opens"), Check::failed("catalog", error)],
        _ => vec![Check::failed("store", error)],
    }
}

fn records(manager: &CheckpointManager) -> Vec<Check> {
    let store = match manager.upkeep().usage() {
        Ok(usage) => Check::ok(
            "store",
            format!(
                "it opens: {}, {} in {}",
                counted(usage.objects, "object", "objects"),
                size(usage.pack_bytes),
                counted(usage.packs, "pack", "packs")
            ),
        ),
        Err(error) => Check::failed("store", &error),
    };
    [store, catalog(manager)].into_iter().chain(standing(manager)).chain([history(manager)]).collect()
}

const DEEPER: &str = "`safepoint validate --deep` shows which checkpoints are still whole. Keep a copy of the home before you go on.";

fn catalog(manager: &CheckpointManager) -> Check {
    match manager.upkeep().check_catalog() {
        Ok(wrong) => match wrong.first() {
            None => Check::ok("catalog", "every page, reference and row is in order"),
            Some(first) => Check::problem(
                "catalog",
                format!(
                    "{}, the first: {first}",
                    counted(wrong.len() as u64, "thing is wrong", "things are wrong")
                ),
                DEEPER,
            ),
        },
        Err(error) => Check::failed("catalog", &error),
    }
}

/// Returns a problem if store and catalog do not match.
fn standing(manager: &CheckpointManager) -> Option<Check> {
    let what = match manager.upkeep().catalog_standing() {
        CatalogStanding::Known => return None,
        CatalogStanding::New => "the catalog is a new one",
        CatalogStanding::Older => "the catalog is an older copy",
    };
    Some(Check::problem(
        "records",
        format!("{what}, and the store holds checkpoints that it does not list; nothing is deleted"),
        "`safepoint repair` brings them back.",
    ))
}

fn history(manager: &CheckpointManager) -> Check {
    match manager.upkeep().check_history() {
        Ok(found) => match found.broken {
            None => Check::ok(
                "history",
                format!("{} in an unbroken chain", counted(found.whole, "event", "events")),
            ),
            Some(event) => Check::problem(
                "history",
                format!("the chain is broken at event {}: {}", event.seq, event.why),
                "Another program changed the catalog. `safepoint validate --deep` shows what can be trusted.",
            ),
        },
        Err(error) => Check::failed("history", &error),
    }
}

fn sqlite() -> Check {
    Check::ok("sqlite", format!("version {}, built in", safepoint::sqlite_version()))
}

fn open_files() -> Check {
    match getrlimit(Resource::Nofile).current {
        Some(files) if files < OPEN_FILES_MIN => Check::warning(
            "open_files",
            format!("this process may open only {files} files at once; a deep tree needs more"),
            "Raise the limit, for instance with `ulimit -n 4096`.",
        ),
        Some(files) => Check::ok("open_files", format!("up to {files} at once")),
        None => Check::ok("open_files", "as many as needed"),
    }
}

fn tell(out: &Printer, checks: &[Check]) {
    let colours = out.colours;
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        if out.quiet && check.status == Health::Ok {
            continue;
        }
        let status = painted(colours, check.status);
        out.line(format!("{status}  {:widest$}  {}", check.name, printable(&check.message)));
        if let Some(hint) = &check.hint {
            out.prose(format!("{:pad$}{} {}", "", colours.cyan("hint:"), printable(hint), pad = widest + 11));
        }
    }
}

fn painted(colours: Colours, health: Health) -> String {
    match health {
        Health::Ok => colours.green("ok     "),
        Health::Warning => colours.yellow("warning"),
        Health::Problem => colours.red("problem"),
    }
}

fn verdict(found: &[Health]) -> String {
    let count = |health: Health| found.iter().filter(|other| **other == health).count() as u64;
    match (count(Health::Problem), count(Health::Warning)) {
        (0, 0) => "Everything is in order.".to_owned(),
        (0, warnings) => format!("Nothing is wrong; {}.", counted(warnings, "warning", "warnings")),
        (problems, warnings) => format!(
            "{}, {}.",
            counted(problems, "problem", "problems"),
            counted(warnings, "warning", "warnings")
        ),
    }
}
