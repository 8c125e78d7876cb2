//! `sync`: publishes what remotes lack, and tries again with growing pauses; with `--follow` until it is interrupted.

use super::publish::{options, place};
use super::{NAMED, open_patiently, targets};
use crate::args::remote::SyncArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable, size};
use safepoint::{CheckpointManager, Progress, Pushed, StoredRemote, Workspace};
use serde_json::json;
use std::time::{Duration, Instant};

/// Pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time after which a sync that nobody follows gives up.
const TRIED_FOR: Duration = Duration::from_secs(60);
/// The same for one that a checkpoint started.
const TRIED_UNASKED_FOR: Duration = Duration::from_secs(600);
/// Interval of looks at the catalog.
const LOOK: Duration = Duration::from_secs(5);
/// Interval at which a stop is noticed.
const TICK: Duration = Duration::from_millis(100);
/// Limit of one request to the records.
const PATIENCE: Duration = Duration::from_secs(30);

/// State of one remote.
struct Target {
    stored: StoredRemote,
    pushed: Pushed,
    attempts: u64,
    failed: Option<Problem>,
    pause: Duration,
    next: Instant,
}

impl Target {
    fn new(stored: StoredRemote) -> Self {
        let (pushed, pause, next) = (Pushed::default(), PAUSE_MIN, Instant::now());
        Self { stored, pushed, attempts: 0, failed: None, pause, next }
    }
}

/// One call of `sync`.
struct Syncing<'s> {
    context: &'s Context,
    manager: &'s CheckpointManager,
    workspace: &'s Workspace,
    with_memory: bool,
    targets: Vec<Target>,
}

pub(crate) fn sync(context: &Context, args: &SyncArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let every = manager.config(None)?.remote.every;
    let every = every.map_or(LOOK, |every| Duration::from_micros(every.micros()));
    let remotes = targets(&manager, &workspace, args.remote.name.as_deref())?;
    let targets = remotes.into_iter().map(Target::new).collect();
    let (manager, workspace, with_memory) = (&manager, &workspace, args.with_memory);
    let mut syncing = Syncing { context, manager, workspace, with_memory, targets };
    match args.after {
        Some(after) => syncing.unasked(Duration::from_micros(after.micros()))?,
        None if args.follow => syncing.follow(every)?,
        None => syncing.empty(TRIED_FOR)?,
    }
    syncing.reply(args.follow)
}

impl Syncing<'_> {
    /// Started by a checkpoint: one process per workspace, which ends when nothing is left.
    fn unasked(&mut self, every: Duration) -> Result<(), Problem> {
        let began = Instant::now();
        while began.elapsed() < TRIED_UNASKED_FOR {
            let Some(publisher) = self.manager.remotes().publisher(self.workspace)? else { return Ok(()) };
            self.sleep(every);
            let emptied = self.empty(TRIED_UNASKED_FOR);
            // What was committed before the release is seen after it.
            drop(publisher);
            emptied?;
            if self.is_stopped() || self.targets.iter().any(|it| it.failed.is_some()) || self.is_empty()? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn follow(&mut self, every: Duration) -> Result<(), Problem> {
        self.context.out.remark(format!(
            "Publishing new checkpoints to {} until Ctrl-C.",
            self.targets.iter().map(|it| it.stored.name.as_str()).collect::<Vec<_>>().join(", ")
        ));
        while !self.is_stopped() {
            self.round()?;
            self.sleep(every.min(LOOK));
        }
        Ok(())
    }

    /// Publishes until no remote lacks anything, or for this time.
    fn empty(&mut self, limit: Duration) -> Result<(), Problem> {
        let began = Instant::now();
        loop {
            self.round()?;
            if self.is_stopped() || self.is_empty()? {
                return Ok(());
            }
            let is_worth_it = |target: &Target| {
                target.failed.as_ref().is_none_or(|problem| is_passing(problem) && began.elapsed() < limit)
            };
            if !self.targets.iter().any(is_worth_it) {
                return Ok(());
            }
            let next = self.targets.iter().map(|target| target.next).min();
            self.sleep(next.map_or(TICK, |next| next.saturating_duration_since(Instant::now()).max(TICK)));
        }
    }

    /// One attempt at each remote that lacks a checkpoint and is due.
    fn round(&mut self) -> Result<(), Problem> {
        let (context, manager) = (self.context, self.manager);
        let how = options(context, self.with_memory);
        for target in &mut self.targets {
            if Instant::now() < target.next || !lacks(manager, self.workspace, target)? {
                continue;
            }
            let name = target.stored.name.as_str();
            target.attempts += 1;
            let remote = open_patiently(context, manager, &target.stored, PATIENCE)?;
            let result = manager.remotes().push((name, &remote), self.workspace, &how, &context.progress);
            match result {
                Ok(pushed) => {
                    tell(context, name, &pushed);
                    join(&mut target.pushed, pushed);
                    (target.failed, target.pause) = (None, PAUSE_MIN);
                }
                Err(error) => {
                    let problem = Problem::from(error);
                    if is_passing(&problem) && !context.out.quiet {
                        let seconds = target.pause.as_secs_f32();
                        let why = printable(&problem.failure.message);
                        context.out.note(format!("{name}: {why}; trying again in {seconds} s"));
                    }
                    target.failed = Some(problem);
                    target.next = Instant::now() + target.pause;
                    target.pause = (target.pause * 2).min(PAUSE_MAX);
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> Result<bool, Problem> {
        for target in &self.targets {
            if lacks(self.manager, self.workspace, target)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_stopped(&self) -> bool {
        self.context.progress.interrupted()
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_stopped() {
            std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn reply(self, follow: bool) -> Result<Reply, Problem> {
        let targets = self.targets.iter();
        let data: Vec<_> = targets
            .map(|Target { stored, pushed, attempts, failed, .. }| {
                json!({
                    "remote": stored.name,
                    "published": pushed.published.iter().map(place).collect::<Vec<_>>(),
                    "packs": pushed.packs,
                    "bytes": pushed.bytes,
                    "fenced": pushed.fenced,
                    "excluded": pushed.excluded,
                    "attempts": attempts,
                    "error": failed.as_ref().map(|problem| &problem.failure.message),
                })
            })
            .collect();
        let is_interrupted = self.is_stopped();
        let failed = self.targets.into_iter().find_map(|target| target.failed);
        match failed {
            // It was stopped on purpose.
            Some(_) | None if follow && is_interrupted => {}
            Some(problem) => return Err(problem),
            None if data.iter().all(|it| it["attempts"] == 0) => {
                self.context.out.line("Everything is published.");
            }
            None => {}
        }
        Ok(Reply::done(json!({ "synced": data })))
    }
}

/// True if a later attempt may succeed although nothing changed here.
fn is_passing(problem: &Problem) -> bool {
    const PASSING: [&str; 5] = ["unreachable", "remote_busy", "packs_gone", "remote_full", "over_quota"];
    PASSING.contains(&problem.failure.code)
}

/// True if a push has something to do. A purge that this role may not carry out is left to another one.
fn lacks(manager: &CheckpointManager, workspace: &Workspace, target: &Target) -> Result<bool, Problem> {
    let name = &target.stored.name;
    Ok(match target.pushed.purge_refused {
        true => manager.remotes().standing(name, workspace)?.unpublished > 0,
        false => manager.remotes().is_behind(name, workspace)?,
    })
}

fn join(all: &mut Pushed, more: Pushed) {
    all.published.extend(more.published);
    all.packs += more.packs;
    all.bytes += more.bytes;
    all.fenced = more.fenced.or(all.fenced);
    all.excluded.extend(more.excluded);
    all.purge_refused = all.purge_refused || more.purge_refused;
    (all.purged, all.purged_packs) = (all.purged + more.purged, all.purged_packs + more.purged_packs);
}

/// Tells what was published.
pub(crate) fn tell(context: &Context, name: &str, pushed: &Pushed) {
    let out = &context.out;
    if let Some(line) = pushed.fenced {
        out.warn_as(
            "fenced",
            format!("another writer took over line {line}; the checkpoints are on a new line"),
        );
    }
    if pushed.purge_refused {
        out.warn_as(
            "purge_pending",
            format!("a purge is on record, and this role may not carry it out on {name}: its owner runs it"),
        );
    }
    if pushed.purged > 0 {
        let checkpoints = counted(pushed.purged, "checkpoint", "checkpoints");
        let packs = counted(pushed.purged_packs, "old pack", "old packs");
        out.line(format!("Purged {checkpoints} on {name}, and deleted {packs}."));
    }
    match pushed.published.len() as u64 {
        0 if pushed.purged > 0 => {}
        0 => out.line(format!("Everything is published to {name}.")),
        count => {
            let checkpoints = counted(count, "checkpoint", "checkpoints");
            let packs = counted(pushed.packs, "pack", "packs");
            out.line(format!("Published {checkpoints} to {name}: {packs}, {}.", size(pushed.bytes)));
        }
    }
    if !pushed.excluded.is_empty() {
        let mut named: Vec<String> =
            pushed.excluded.iter().take(NAMED).map(|path| printable(&path.to_string())).collect();
        if pushed.excluded.len() > NAMED {
            named.push(format!("and {} more", pushed.excluded.len() - NAMED));
        }
        out.note(format!("Excluded, and not published: {}", named.join(", ")));
    }
}
