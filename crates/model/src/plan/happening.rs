//! What happens to a plan, and which of it is a milestone.

use super::spec::{Milestone, Milestones};
use crate::checkpoint::Phase;

/// What happened, for milestones and for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A step is about to begin.
    StepStarts {
        /// Which.
        path: String,
        /// It is marked as risky.
        risky: bool,
    },
    /// A step is done.
    StepDone {
        /// Which.
        path: String,
    },
    /// A step failed.
    StepFailed {
        /// Which.
        path: String,
    },
    /// The first step of a subplan is about to begin.
    SubplanStarts {
        /// The step that holds it.
        path: String,
    },
    /// The last step of a subplan is done.
    SubplanDone {
        /// The step that holds it.
        path: String,
    },
    /// The last step of a phase is done.
    PhaseDone {
        /// Which.
        phase: Phase,
    },
    /// Every step is done.
    PlanDone,
}

impl Happening {
    /// The milestone that this is, if it is one.
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

    /// Whether a checkpoint is due: before what begins, after what ended.
    pub fn is_due(&self, milestones: &Milestones) -> bool {
        let asked = |milestone| milestones.on.contains(&milestone);
        self.milestone().is_some_and(asked)
            || (matches!(self, Happening::StepStarts { risky: true, .. }) && asked(Milestone::BeforeRisky))
    }

    /// Whether the checkpoint comes before it.
    pub fn is_before(&self) -> bool {
        matches!(self, Happening::StepStarts { .. } | Happening::SubplanStarts { .. })
    }
}
