//! Events of a plan, and the milestones among them.

use super::spec::{Milestone, Milestones};
use crate::checkpoint::Phase;

/// Event, for milestones and for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A step is about to start.
    StepStarts {
        /// Path of the step.
        path: String,
        /// True if the step is marked as risky.
        risky: bool,
    },
    /// A step is done.
    StepDone {
        /// Path of the step.
        path: String,
    },
    /// A step failed.
    StepFailed {
        /// Path of the step.
        path: String,
    },
    /// The first step of a subplan is about to start.
    SubplanStarts {
        /// Step that contains it.
        path: String,
    },
    /// The last step of a subplan is done.
    SubplanDone {
        /// Step that contains it.
        path: String,
    },
    /// The last step of a phase is done.
    PhaseDone {
        /// Finished phase.
        phase: Phase,
    },
    /// Every step is done.
    PlanDone,
}

impl Happening {
    /// Returns the corresponding milestone, if any.
    pub fn milestone(&self) -> Option<Milestone> {
        match self {
            Happening::StepStarts { .. } => Some(Milestone::BeforeStep),
            Happening::StepDone { .. } => Some(Milestone::AfterStep),
            Happening::StepFailed { .. } => Some(Milestone::OnError),
            Happening::SubplanStarts { .. } => Some(Milestone::BeforeSubplan),
            Happening::SubplanDone { .. } => Some(Milestone::AfterSubplan),
            Happening::PhaseDone { .. } => Some(Milestone::PhaseComplete),
            Happening::PlanDone => None,
        }
    }

    /// Returns true if a checkpoint is due: before a start, after an end.
    pub fn is_due(&self, milestones: &Milestones) -> bool {
        let asked = |milestone| milestones.on.contains(&milestone);
        self.milestone().is_some_and(asked)
            || (matches!(self, Happening::StepStarts { risky: true, .. }) && asked(Milestone::BeforeRisky))
    }

    /// Returns true if the checkpoint precedes the event.
    pub fn is_before(&self) -> bool {
        matches!(self, Happening::StepStarts { .. } | Happening::SubplanStarts { .. })
    }
}
