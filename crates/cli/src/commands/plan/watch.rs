//! Watches a run and reports it: as a live view on a terminal, else line by line. Passes on stop requests.

mod cut;
mod lines;
mod live;

use crate::commands::Context;
use crate::context::can_move_the_cursor;
use crate::render::terminal::{Bars, counted, printable};
use crate::signals::Presses;
use lines::Lines;
use live::Live;
use safepoint::{Activity, DeadRun, Progress, RunEvent, RunObserver, Stop};
use std::sync::atomic::{AtomicBool, Ordering};

/// Observer of a run.
pub(super) struct Watch<'a> {
    teller: Teller<'a>,
    bars: &'a Bars,
    presses: Presses,
    ran: AtomicBool,
}

/// Form of output.
enum Teller<'a> {
    Lines(Lines<'a>),
    Live(Live),
}

impl<'a> Watch<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let out = &context.out;
        let looks = context.progress.is_watched() && out.terminal && can_move_the_cursor();
        let teller = match looks {
            true => Teller::Live(Live::new(out.colours)),
            false => Teller::Lines(Lines::new(out)),
        };
        Self { teller, bars: &context.progress, presses: Presses::listen(), ran: AtomicBool::new(false) }
    }

    /// Returns true if any command ran.
    pub(super) fn ran(&self) -> bool {
        self.ran.load(Ordering::SeqCst)
    }

    /// Prints all pending output before a prompt.
    pub(super) fn settle(&self) {
        if let Teller::Live(live) = &self.teller {
            live.settle();
        }
    }

    /// The run is over. Gives the steps as they are now, where they were in view.
    pub(super) fn finish(&self) -> Vec<String> {
        match &self.teller {
            Teller::Lines(lines) => {
                lines.finish();
                Vec::new()
            }
            Teller::Live(live) => live.finish(),
        }
    }
}
/// Describes the remains of a dead run.
pub(super) fn about(dead: &DeadRun) -> String {
    let steps: Vec<String> = dead.interrupted.iter().map(|step| printable(step)).collect();
    let mut text = match steps.as_slice() {
        [] => "The process that ran the plan died between two steps".to_owned(),
        [only] => format!("The process that ran the plan died during step {only}"),
        several => format!("The process that ran the plan died during steps {}", several.join(", ")),
    };
    if dead.ended_processes > 0 {
        let count = counted(dead.ended_processes as u64, "process", "processes");
        text.push_str(&format!("; {count} that it had left behind ended now"));
    }
    text
}

impl RunObserver for Watch<'_> {
    fn happened(&self, event: &RunEvent<'_>) {
        if matches!(event, RunEvent::StepBegins(_) | RunEvent::Verifies(_)) {
            self.ran.store(true, Ordering::SeqCst);
        }
        match &self.teller {
            Teller::Lines(lines) => lines.happened(event),
            Teller::Live(live) => live.happened(event),
        }
    }

    fn stop(&self) -> Stop {
        match self.presses.count() {
            2.. => Stop::Now,
            1 => Stop::Soon,
            0 if self.bars.interrupted() => Stop::Soon,
            0 => Stop::No,
        }
    }
}

/// Work that the run does itself is part of the view, too.
impl Progress for Watch<'_> {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        match &self.teller {
            Teller::Lines(_) => self.bars.begin(activity, total),
            Teller::Live(live) => live.works(Some(activity)),
        }
    }

    fn expect(&self, bytes: u64) {
        if let Teller::Lines(_) = &self.teller {
            self.bars.expect(bytes);
        }
    }

    fn advance(&self, entries: u64, bytes: u64) {
        match &self.teller {
            Teller::Lines(_) => self.bars.advance(entries, bytes),
            Teller::Live(live) => live.advance(entries),
        }
    }

    fn end(&self) {
        match &self.teller {
            Teller::Lines(_) => self.bars.end(),
            Teller::Live(live) => live.works(None),
        }
    }

    fn interrupted(&self) -> bool {
        self.bars.interrupted()
    }
}
