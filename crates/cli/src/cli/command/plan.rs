//! The same for the commands about plans.

use crate::cli::args::plan::{
    CheckpointCommand, ContextCommand, LogArgs, OutputCommand, PlanCommand, StepCommand,
};
use crate::signals::Stopping;

impl PlanCommand {
    /// The name as it stands in the contract.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            PlanCommand::New(_) => "plan new",
            PlanCommand::List(_) => "plan list",
            PlanCommand::Show(_) => "plan show",
            PlanCommand::Tree(_) => "plan tree",
            PlanCommand::Log(_) => "plan log",
            PlanCommand::Run(_) => "plan run",
            PlanCommand::Resume(_) => "plan resume",
            PlanCommand::Step(StepCommand::Start(_)) => "plan step start",
            PlanCommand::Step(StepCommand::Finish(_)) => "plan step finish",
            PlanCommand::Step(StepCommand::Fail(_)) => "plan step fail",
            PlanCommand::Step(StepCommand::Add(_)) => "plan step add",
            PlanCommand::Decide(_) => "plan decide",
            PlanCommand::Context(ContextCommand::Set(_)) => "plan context set",
            PlanCommand::Context(ContextCommand::Get(_)) => "plan context get",
            PlanCommand::Context(ContextCommand::Unset(_)) => "plan context unset",
            PlanCommand::Output(OutputCommand::Set(_)) => "plan output set",
            PlanCommand::Checkpoint(CheckpointCommand::Create(_)) => "plan checkpoint create",
            PlanCommand::Checkpoint(CheckpointCommand::List(_)) => "plan checkpoint list",
            PlanCommand::Checkpoint(CheckpointCommand::Show(_)) => "plan checkpoint show",
            PlanCommand::Checkpoint(CheckpointCommand::Delete(_)) => "plan checkpoint delete",
            PlanCommand::Rollback(_) => "plan rollback",
            PlanCommand::Correct(_) => "plan correct",
            PlanCommand::Pause(_) => "plan pause",
            PlanCommand::Cancel(_) => "plan cancel",
            PlanCommand::Apply(_) => "plan apply",
        }
    }

    /// What it tries, for the sentence "cannot ...".
    pub(crate) fn attempt(&self) -> String {
        match self {
            PlanCommand::New(_) => "record the plan".to_owned(),
            PlanCommand::List(_) => "list plans".to_owned(),
            PlanCommand::Show(args) => format!("show plan {:?}", args.plan),
            PlanCommand::Tree(args) => format!("show plan {:?}", args.plan.plan),
            PlanCommand::Log(LogArgs { plan, step: None }) => {
                format!("tell what happened to plan {:?}", plan.plan)
            }
            PlanCommand::Log(LogArgs { step: Some(step), .. }) => format!("tell what step {step:?} printed"),
            PlanCommand::Run(args) => format!("run plan {:?}", args.plan.plan),
            PlanCommand::Resume(args) => format!("go on with plan {:?}", args.run.plan.plan),
            PlanCommand::Step(StepCommand::Start(args)) => format!("start step {:?}", args.step),
            PlanCommand::Step(StepCommand::Finish(args)) => format!("finish step {:?}", args.step.step),
            PlanCommand::Step(StepCommand::Fail(args)) => {
                format!("note that step {:?} failed", args.step.step)
            }
            PlanCommand::Step(StepCommand::Add(args)) => format!("add step {:?}", args.step),
            PlanCommand::Decide(_) => "record the decision".to_owned(),
            PlanCommand::Context(ContextCommand::Set(args)) => format!("set {:?}", args.key.key),
            PlanCommand::Context(ContextCommand::Get(args)) => format!("get {:?}", args.key),
            PlanCommand::Context(ContextCommand::Unset(args)) => format!("forget {:?}", args.key),
            PlanCommand::Output(OutputCommand::Set(args)) => format!("set output {:?}", args.key.key),
            PlanCommand::Checkpoint(CheckpointCommand::Create(args)) => {
                format!("take a checkpoint of plan {:?}", args.plan.plan)
            }
            PlanCommand::Checkpoint(CheckpointCommand::List(args)) => {
                format!("list the checkpoints of plan {:?}", args.plan)
            }
            PlanCommand::Checkpoint(CheckpointCommand::Show(args)) => {
                format!("show checkpoint {:?}", args.checkpoint)
            }
            PlanCommand::Checkpoint(CheckpointCommand::Delete(_)) => "delete".to_owned(),
            PlanCommand::Correct(args) => format!("correct plan {:?}", args.plan.plan),
            PlanCommand::Rollback(args) => match &args.checkpoint {
                Some(checkpoint) => {
                    format!("roll plan {:?} back to checkpoint {checkpoint:?}", args.plan.plan)
                }
                None => format!("roll plan {:?} back", args.plan.plan),
            },
            PlanCommand::Pause(args) => format!("pause plan {:?}", args.plan),
            PlanCommand::Cancel(args) => format!("cancel plan {:?}", args.plan),
            PlanCommand::Apply(args) => format!("apply plan {:?}", args.plan.plan),
        }
    }

    /// Whether it changes anything: then a failure says that nothing was changed.
    pub(crate) fn changes_things(&self) -> bool {
        !matches!(
            self,
            PlanCommand::List(_)
                | PlanCommand::Show(_)
                | PlanCommand::Tree(_)
                | PlanCommand::Log(_)
                | PlanCommand::Context(ContextCommand::Get(_))
                | PlanCommand::Checkpoint(CheckpointCommand::List(_) | CheckpointCommand::Show(_))
        )
    }

    /// What only looks may end at any moment, and so may what still waits for its input.
    pub(crate) fn stopping(&self) -> Stopping {
        match self {
            PlanCommand::New(_) => Stopping::AtOnce,
            looks if !looks.changes_things() => Stopping::AtOnce,
            _ => Stopping::WhenSafe,
        }
    }
}
