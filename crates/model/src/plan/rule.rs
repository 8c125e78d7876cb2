//! Why something may not happen to a plan.

use super::state::{PlanState, StepState};

/// Why something may not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRule {
    /// The plan is in a state in which this cannot happen.
    #[error("the plan is {from} and cannot become {to}")]
    Transition {
        /// Where it is.
        from: PlanState,
        /// Where it was to go.
        to: PlanState,
    },
    /// Nothing changes any more.
    #[error("the plan is {0}: nothing changes any more")]
    Over(PlanState),
    /// The plan is done when its steps are.
    #[error("the plan is not done as long as step {path} is {state}")]
    Open {
        /// Which.
        path: String,
        /// Where it is.
        state: StepState,
    },
    /// There is no such step.
    #[error("the plan has no step {path:?}{}", nearest.as_ref().map_or_else(String::new, |near| format!("; did you mean {near:?}?")))]
    NoStep {
        /// What was asked for.
        path: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// The step is in a state in which this cannot happen.
    #[error("step {path} is {from} and cannot become {to}")]
    StepTransition {
        /// Which.
        path: String,
        /// Where it is.
        from: StepState,
        /// Where it was to go.
        to: StepState,
    },
    /// Something else has to come first.
    #[error("step {path} cannot begin before {first} is done")]
    TooEarly {
        /// Which.
        path: String,
        /// What comes first.
        first: String,
    },
    /// As many run side by side as may.
    #[error("step {path} cannot begin while {running} of {allowed} steps beside it run")]
    TooMany {
        /// Which.
        path: String,
        /// How many run.
        running: usize,
        /// How many may.
        allowed: usize,
    },
    /// A step with steps below it begins and ends with them.
    #[error("step {path} has steps of its own, and begins and ends with them")]
    Subplan {
        /// Which.
        path: String,
    },
    /// There is no such decision.
    #[error("the plan has no decision {id}")]
    NoDecision {
        /// What was asked for.
        id: String,
    },
    /// A decision of this id is there already.
    #[error("the plan has a decision {id} already")]
    DecisionTaken {
        /// Which.
        id: String,
    },
    /// A step of this path is there already.
    #[error("the plan has a step {path} already")]
    StepTaken {
        /// Which.
        path: String,
    },
}
