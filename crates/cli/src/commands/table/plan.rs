//! Rows of the commands about plans.

use super::Effect::{Changes, Reads, ReadsInput};
use super::{Row, row};
use crate::args::plan::{
    CheckpointCommand, ContextCommand, LogArgs, OutputCommand, PlanCommand, StepCommand,
};

impl PlanCommand {
    /// Id of the plan, as typed.
    pub(super) fn plan(&self) -> Option<&str> {
        use PlanCommand as Plan;
        let args = match self {
            // The plan of a takeover is not here yet.
            Plan::New(_) | Plan::List(_) | Plan::Takeover(_) => return None,
            Plan::Show(args) | Plan::Pause(args) | Plan::Cancel(args) => args,
            Plan::Tree(args) => &args.plan,
            Plan::Log(args) => &args.plan,
            Plan::Run(args) => &args.plan,
            Plan::Resume(args) => &args.run.plan,
            Plan::Decide(args) => &args.plan,
            Plan::Rollback(args) => &args.plan,
            Plan::Correct(args) => &args.plan,
            Plan::Apply(args) => &args.plan,
            Plan::Step(StepCommand::Start(args)) => &args.plan,
            Plan::Step(StepCommand::Finish(args)) => &args.step.plan,
            Plan::Step(StepCommand::Fail(args)) => &args.step.plan,
            Plan::Step(StepCommand::Add(args)) => &args.plan,
            Plan::Context(ContextCommand::Get(args) | ContextCommand::Unset(args)) => &args.plan,
            Plan::Context(ContextCommand::Set(args)) | Plan::Output(OutputCommand::Set(args)) => {
                &args.key.plan
            }
            Plan::Checkpoint(CheckpointCommand::Create(args)) => &args.plan,
            Plan::Checkpoint(CheckpointCommand::List(args)) => args,
            Plan::Checkpoint(CheckpointCommand::Show(args)) => &args.plan,
            Plan::Checkpoint(CheckpointCommand::Delete(args)) => &args.plan,
        };
        Some(&args.plan)
    }

    /// The row of this command.
    pub(crate) fn row(&self) -> Row {
        match self {
            PlanCommand::New(_) => row("plan new", ReadsInput, "record the plan"),
            PlanCommand::List(_) => row("plan list", Reads, "list plans"),
            PlanCommand::Show(args) => row("plan show", Reads, format!("show plan {:?}", args.plan)),
            PlanCommand::Tree(args) => row("plan tree", Reads, format!("show plan {:?}", args.plan.plan)),
            PlanCommand::Log(LogArgs { plan, step: None }) => {
                row("plan log", Reads, format!("tell what happened to plan {:?}", plan.plan))
            }
            PlanCommand::Log(LogArgs { step: Some(step), .. }) => {
                row("plan log", Reads, format!("tell what step {step:?} printed"))
            }
            PlanCommand::Run(args) => row("plan run", Changes, format!("run plan {:?}", args.plan.plan)),
            PlanCommand::Resume(args) => {
                row("plan resume", Changes, format!("go on with plan {:?}", args.run.plan.plan))
            }
            PlanCommand::Takeover(args) => {
                row("plan takeover", Changes, format!("take over plan {:?}", args.plan.plan))
            }
            PlanCommand::Step(StepCommand::Start(args)) => {
                row("plan step start", Changes, format!("start step {:?}", args.step))
            }
            PlanCommand::Step(StepCommand::Finish(args)) => {
                row("plan step finish", Changes, format!("finish step {:?}", args.step.step))
            }
            PlanCommand::Step(StepCommand::Fail(args)) => {
                row("plan step fail", Changes, format!("note that step {:?} failed", args.step.step))
            }
            PlanCommand::Step(StepCommand::Add(args)) => {
                row("plan step add", Changes, format!("add step {:?}", args.step))
            }
            PlanCommand::Decide(_) => row("plan decide", Changes, "record the decision"),
            PlanCommand::Context(ContextCommand::Set(args)) => {
                row("plan context set", Changes, format!("set {:?}", args.key.key))
            }
            PlanCommand::Context(ContextCommand::Get(args)) => {
                row("plan context get", Reads, format!("get {:?}", args.key))
            }
            PlanCommand::Context(ContextCommand::Unset(args)) => {
                row("plan context unset", Changes, format!("forget {:?}", args.key))
            }
            PlanCommand::Output(OutputCommand::Set(args)) => {
                row("plan output set", Changes, format!("set output {:?}", args.key.key))
            }
            PlanCommand::Checkpoint(CheckpointCommand::Create(args)) => row(
                "plan checkpoint create",
                Changes,
                format!("take a checkpoint of plan {:?}", args.plan.plan),
            ),
            PlanCommand::Checkpoint(CheckpointCommand::List(args)) => {
                row("plan checkpoint list", Reads, format!("list the checkpoints of plan {:?}", args.plan))
            }
            PlanCommand::Checkpoint(CheckpointCommand::Show(args)) => {
                row("plan checkpoint show", Reads, format!("show checkpoint {:?}", args.checkpoint))
            }
            PlanCommand::Checkpoint(CheckpointCommand::Delete(_)) => {
                row("plan checkpoint delete", Changes, "delete")
            }
            PlanCommand::Correct(args) => {
                row("plan correct", Changes, format!("correct plan {:?}", args.plan.plan))
            }
            PlanCommand::Rollback(args) => row(
                "plan rollback",
                Changes,
                match &args.checkpoint {
                    Some(checkpoint) => {
                        format!("roll plan {:?} back to checkpoint {checkpoint:?}", args.plan.plan)
                    }
                    None => format!("roll plan {:?} back", args.plan.plan),
                },
            ),
            PlanCommand::Pause(args) => row("plan pause", Changes, format!("pause plan {:?}", args.plan)),
            PlanCommand::Cancel(args) => row("plan cancel", Changes, format!("cancel plan {:?}", args.plan)),
            PlanCommand::Apply(args) => {
                row("plan apply", Changes, format!("apply plan {:?}", args.plan.plan))
            }
        }
    }
}
