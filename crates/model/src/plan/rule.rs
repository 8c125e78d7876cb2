//! Rules that refuse a change of a plan.

use super::state::{PlanState, StepState};
use crate::id::DecisionId;

/// Violated rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRule {
    /// The state of the plan does not allow this.
    #[error("the plan is {from} and cannot become {to}")]
    Transition {
        /// Current state.
        from: PlanState,
        /// Requested state.
        to: PlanState,
    },
    /// The plan is final.
    #[error("the plan is {0} and cannot change")]
    Over(PlanState),
    /// The plan has unfinished steps.
    #[error("the plan cannot be done while step {path} is {state}")]
    Open {
        /// Path of the step.
        path: String,
        /// Current state.
        state: StepState,
    },
    /// The step is unknown.
    #[error("the plan has no step {path:?}{}", nearest.as_ref().map_or_else(String::new, |near| format!("; did you mean {near:?}?")))]
    NoStep {
        /// Requested step.
        path: String,
        /// Most similar path.
        nearest: Option<String>,
    },
    /// The state of the step does not allow this.
    #[error("step {path} is {from} and cannot become {to}")]
    StepTransition {
        /// Path of the step.
        path: String,
        /// Current state.
        from: StepState,
        /// Requested state.
        to: StepState,
    },
    /// Another step must be done first.
    #[error("step {path} cannot start before {first} is done")]
    TooEarly {
        /// Path of the step.
        path: String,
        /// Step that must be done first.
        first: String,
    },
    /// The maximum number of parallel steps is running.
    #[error("step {path} cannot start: {running} of {allowed} parallel steps are running")]
    TooMany {
        /// Path of the step.
        path: String,
        /// Number of running steps.
        running: usize,
        /// Maximum number of running steps.
        allowed: usize,
    },
    /// A subplan starts and ends with its steps.
    #[error("step {path} is a subplan: it starts and ends with its steps")]
    Subplan {
        /// Path of the step.
        path: String,
    },
    /// The decision is unknown.
    #[error("the plan has no decision {id}")]
    NoDecision {
        /// Requested decision.
        id: String,
    },
    /// The id of the decision is taken.
    #[error("the plan already has decision {id}")]
    DecisionTaken {
        /// Id of the decision.
        id: DecisionId,
    },
    /// The path of the step is taken.
    #[error("the plan already has step {path}")]
    StepTaken {
        /// Path of the step.
        path: String,
    },
}
