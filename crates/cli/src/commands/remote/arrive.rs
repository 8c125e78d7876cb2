//! `create --wait-remote`: waits until a remote has the checkpoint, and no longer than asked. The checkpoint is here in any case.

use super::{open_patiently, targets};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::terminal::printable;
use safepoint::model::CheckpointId;
use safepoint::model::progress::Activity;
use safepoint::{CheckpointManager, Progress, PublishedAt, PushOptions, StoredRemote, Workspace};
use std::time::{Duration, Instant};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Interrupts work at a deadline.
struct Deadline<'p> {
    progress: &'p dyn Progress,
    until: Instant,
}

impl Deadline<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Progress for Deadline<'_> {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        self.progress.begin(activity, total);
    }

    fn expect(&self, bytes: u64) {
        self.progress.expect(bytes);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.progress.advance(entries, bytes);
    }

    fn end(&self) {
        self.progress.end();
    }

    fn interrupted(&self) -> bool {
        self.left().is_zero() || self.progress.interrupted()
    }
}

/// Publishes a checkpoint, and waits for it. Returns its places; a remote that lacks it is a warning.
pub(crate) fn arrive(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoint: CheckpointId,
    limit: Duration,
) -> (Vec<PublishedAt>, bool) {
    let until = Instant::now() + limit;
    let deadline = Deadline { progress: &context.progress, until };
    let late = |name: &str, why: &str| {
        let text = format!("kept here, not yet there: remote {name} lacks it: {}", printable(why));
        context.out.warn_as("not_yet_published", text);
    };
    let remotes = match targets(manager, workspace, None) {
        Ok(remotes) => remotes,
        Err(problem) => {
            context.out.warn_as("not_yet_published", format!("kept here only: {}", problem.failure.message));
            return (Vec::new(), false);
        }
    };
    let (mut places, mut is_there) = (Vec::new(), true);
    for stored in &remotes {
        match arrive_at(context, manager, (workspace, checkpoint), stored, &deadline) {
            Ok(place) => places.push(place),
            Err(why) => {
                late(&stored.name, &why);
                is_there = false;
            }
        }
    }
    (places, is_there)
}

/// Publishes a checkpoint to one remote; or returns why it is not there.
fn arrive_at(
    context: &Context,
    manager: &CheckpointManager,
    (workspace, checkpoint): (&Workspace, CheckpointId),
    stored: &StoredRemote,
    deadline: &Deadline<'_>,
) -> Result<PublishedAt, String> {
    let told = |problem: Problem| problem.failure.message;
    let mut why = "the time is over".to_owned();
    loop {
        let place = manager.remotes().place_of(&stored.name, checkpoint);
        if let Some(place) = place.map_err(|error| error.to_string())? {
            return Ok(place);
        }
        if deadline.left().is_zero() {
            return Err(why);
        }
        let remote = open_patiently(context, manager, stored, deadline.left()).map_err(told)?;
        let how = PushOptions::new(context.surroundings.holder());
        match manager.remotes().push((&stored.name, &remote), workspace, &how, deadline) {
            // A checkpoint of another folder is never there.
            Ok(_) if manager.remotes().place_of(&stored.name, checkpoint).is_ok_and(|it| it.is_none()) => {
                return Err("it is of a kind that is not published".to_owned());
            }
            Ok(_) => {}
            Err(_) if deadline.left().is_zero() => return Err(why),
            Err(error) => {
                let problem = Problem::from(error);
                let is_worth_it =
                    matches!(problem.failure.code, "unreachable" | "remote_busy" | "packs_gone");
                why = told(problem);
                if !is_worth_it {
                    return Err(why);
                }
                std::thread::sleep(PAUSE.min(deadline.left()));
            }
        }
    }
}
