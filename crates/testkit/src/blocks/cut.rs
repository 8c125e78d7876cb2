//! States that a power cut may leave.

use super::media::blocks;
use super::{Event, Media};
use crate::disk::Dice;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Power cut: its position, and the pending requests that survived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Number of requests that reached the disks before it.
    pub done: usize,
    /// Pending requests that survived, with their surviving blocks.
    kept: Vec<(usize, Kept)>,
    /// Description of the choice.
    pub how: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Subject,
    Torn(Vec<usize>),
}

impl Cut {
    /// Returns the content of the disks after the cut.
    pub fn media(&self, start: &[Media], events: &[Event]) -> Vec<Media> {
        let mut media = start.to_vec();
        let durable = durable_until(events, self.done);
        for (number, event) in events[..self.done].iter().enumerate() {
            if durable.get(event.disk()).is_some_and(|until| number < *until) {
                media[event.disk()].apply(event);
            }
        }
        for (number, kept) in &self.kept {
            let event = &events[*number];
            let disk = &mut media[event.disk()];
            match kept {
                Kept::Subject => disk.apply(event),
                Kept::Torn(blocks) => blocks.iter().for_each(|block| disk.apply_block(event, *block)),
            }
        }
        media
    }

    /// Returns a digest of the state: of two cuts with the same state and the same requirements, one is
    /// enough.
    fn digest(&self, events: &[Event], acknowledged: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        let durable = durable_until(events, self.done);
        let survived = |number: &usize| {
            let event: &Event = &events[*number];
            !event.is_flush() && durable.get(event.disk()).is_some_and(|until| number < until)
        };
        let mut applied: Vec<(usize, Vec<usize>)> =
            (0..self.done).filter(survived).map(|number| (number, Vec::new())).collect();
        applied.extend(self.kept.iter().map(|(number, kept)| match kept {
            Kept::Subject => (*number, Vec::new()),
            Kept::Torn(blocks) => (*number, blocks.clone()),
        }));
        applied.sort_unstable();
        (applied, self.done >= acknowledged).hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns, for each disk, the number of requests up to its last flush.
fn durable_until(events: &[Event], done: usize) -> Vec<usize> {
    let disks = events.iter().map(Event::disk).max().map_or(0, |last| last + 1);
    let flush = |disk| events[..done].iter().rposition(|event| event.is_flush() && event.disk() == disk);
    (0..disks).map(|disk| flush(disk).map_or(0, |at| at + 1)).collect()
}

/// Returns at most `count` cuts after any request. All pending requests survived, or none; each single one
/// was lost or kept; those of one disk survived; and random subsets with torn requests. Equal states appear
/// once, except after the program ended (from request `acknowledged` on), because more is required there. A
/// seeded choice applies if there are too many.
pub fn cuts(events: &[Event], acknowledged: usize, count: usize, seed: u64) -> Vec<Cut> {
    let mut dice = Dice::new(seed);
    let mut seen = HashSet::new();
    let (mut points, mut variants) = (Vec::new(), Vec::new());
    for done in 0..=events.len() {
        let mut all = at(events, done, &mut dice).into_iter();
        points.extend(all.next().filter(|cut| seen.insert(cut.digest(events, acknowledged))));
        variants.extend(all.filter(|cut| seen.insert(cut.digest(events, acknowledged))));
    }
    let mut chosen = shuffled(points, &mut dice);
    // A share of the variants is always tried: flushes matter there.
    let variants = shuffled(variants, &mut dice);
    chosen.truncate(count.saturating_sub(variants.len().min(count / 2)));
    let room = count - chosen.len();
    chosen.extend(variants.into_iter().take(room));
    chosen.sort_by_key(|cut| cut.done);
    chosen
}

fn shuffled<T>(mut all: Vec<T>, dice: &mut Dice) -> Vec<T> {
    for at in (1..all.len()).rev() {
        all.swap(at, dice.below(at as u64 + 1) as usize);
    }
    all
}

/// Returns the cuts after `done` requests; the first keeps everything.
fn at(events: &[Event], done: usize, dice: &mut Dice) -> Vec<Cut> {
    let durable = durable_until(events, done);
    let is_pending =
        |number: &usize| !events[*number].is_flush() && *number >= durable[events[*number].disk()];
    let pending: Vec<usize> = (0..done).filter(is_pending).collect();
    let cut = |how: String, kept: Vec<(usize, Kept)>| Cut { done, kept, how };
    let those = |how: String, keep: &dyn Fn(usize) -> bool| {
        cut(how, pending.iter().filter(|it| keep(**it)).map(|it| (*it, Kept::Subject)).collect())
    };
    let mut all = vec![those(format!("all {} pending kept", pending.len()), &|_| true)];
    all.push(those(format!("all {} pending lost", pending.len()), &|_| false));
    for one in &pending {
        all.push(those(format!("request {one} lost"), &|it| it != *one));
        all.push(those(format!("only request {one} kept"), &|it| it == *one));
    }
    for disk in 0..durable.len() {
        all.push(those(format!("only disk {disk} kept"), &|it| events[it].disk() == disk));
    }
    for round in 0..2 {
        let kept = pending.iter().filter_map(|it| torn(&events[*it], dice).map(|kept| (*it, kept))).collect();
        all.push(cut(format!("random {round}"), kept));
    }
    all
}

/// Chooses the surviving part of a request at random.
fn torn(event: &Event, dice: &mut Dice) -> Option<Kept> {
    let count = match event {
        Event::Write { offset, bytes, .. } => blocks(*offset, bytes.len() as u64).count(),
        // A discard is not torn: it can be as large as the disk.
        _ => 1,
    };
    match dice.below(3) {
        0 => None,
        1 => Some(Kept::Subject),
        _ if count == 1 => Some(Kept::Subject),
        _ => Some(Kept::Torn((0..count).filter(|_| dice.below(2) == 0).collect())),
    }
}
