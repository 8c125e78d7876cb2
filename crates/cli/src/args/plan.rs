//! The part of the table that is about plans.

use super::{UndoCommandArgs, words};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use safepoint::model::Span;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::rollback::Strategy;
use std::path::PathBuf;

const HOW_TO_NAME: &str = "A checkpoint is named by its id, the first 4 or more letters of it, its label, \
    @ (the newest of the plan) or @~2 (two before the newest).";

/// Parser for a part of a plan.
fn plan_part() -> impl TypedValueParser<Value = PartKind> {
    PossibleValuesParser::new(["plan", "files"]).try_map(|word| word.parse::<PartKind>())
}

/// Commands about plans.
#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Record a plan from a file, or an empty one with a title.
    #[command(
        after_help = "The file is TOML or JSON; docs/plan-files.md lists every key.\n\nExamples:\n  safepoint plan new plan.toml\n  safepoint plan new --title \"Add rate limiting\" --id limits\n  agent --plan | safepoint plan new -\n  safepoint plan new plan.toml --milestones before_risky,on_error --every 10m"
    )]
    New(NewArgs),
    /// List the plans of this workspace, newest first.
    #[command(after_help = "Examples:\n  safepoint plan list\n  safepoint plan list --all --json")]
    List(PlanListArgs),
    /// Show the state, steps, context and outputs of a plan.
    #[command(after_help = "Examples:\n  safepoint plan show limits\n  safepoint plan show limits --json")]
    Show(PlanArgs),
    /// Draw the steps and the decisions of a plan as trees.
    #[command(
        after_help = "Examples:\n  safepoint plan tree limits\n  safepoint plan tree limits --show-superseded    also what rollbacks took back"
    )]
    Tree(TreeArgs),
    /// Show the events of a plan, oldest first, or the last output of a step.
    #[command(
        after_help = "Examples:\n  safepoint plan log limits\n  safepoint plan log limits api/handlers    what that step printed"
    )]
    Log(LogArgs),
    /// Run a plan to its end or until a step fails.
    #[command(
        after_help = "A step without a command waits for `safepoint plan step finish`.\nCtrl-C stops the run and keeps what there is as a checkpoint; a second one stops it at once.\nEnds with 0 when the plan is done, paused or waits, with 1 when a step failed, with 130 when it was stopped.\n\nExamples:\n  safepoint plan run limits\n  safepoint plan run limits --until api    stop once this step or subplan is done"
    )]
    Run(RunArgs),
    /// Resume a plan that stopped; finished steps are not repeated.
    #[command(
        after_help = "A step that was under way when its run was stopped or died is interrupted: its progress is unknown.\nOn a terminal it asks; --interrupted and `on_interrupted` in the plan file answer beforehand. Without a terminal the step's\n`verify` decides (done if it passes, run again if it fails), and a step with `idempotent = true` runs again.\n\nExamples:\n  safepoint plan resume limits\n  safepoint plan resume limits --interrupted rerun"
    )]
    Resume(ResumeArgs),
    /// Take a plan over from another machine: its lease, and a clone to go on in.
    #[command(
        after_help = "The earlier holder is fenced: its runner ends its commands, and its later pushes go to a line of their own.\nWhile its lease is live (60 s after its last renewal), the takeover ends with 11; --force fences it at once, and the\ncommands of its runner may go on for up to 45 s.\n\nExamples:\n  safepoint plan takeover limits --remote team ~/shop\n  safepoint -C ~/shop plan resume limits"
    )]
    Takeover(TakeoverArgs),
    /// Report that a step started, finished or failed; or add one.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint plan step start limits api/handlers\n  safepoint plan step finish limits api/handlers --output '{\"files\": 3}'"
    )]
    Step(StepCommand),
    /// Record a decision.
    #[command(
        after_help = "With -q, the id of the decision is all that is printed.\n\nExamples:\n  safepoint plan decide limits --question \"Which store?\" --choice redis --alternative memory --why \"It is there.\"\n  safepoint plan decide limits --question \"Which client?\" --choice fred --parent 01KG9YS9EGCQT0DH2X3200JHAF"
    )]
    Decide(DecideArgs),
    /// Set, get or unset a context key of a plan.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint plan context set limits database '\"postgres\"'\n  safepoint plan context get limits database"
    )]
    Context(ContextCommand),
    /// Set an output of a plan.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint plan output set limits url '\"http://localhost:8080\"'"
    )]
    Output(OutputCommand),
    /// Take, list, show and delete checkpoints of a plan.
    #[command(
        subcommand,
        after_help = "Examples:\n  safepoint plan checkpoint create limits -m \"tests pass\"\n  safepoint plan checkpoint list limits"
    )]
    Checkpoint(CheckpointCommand),
    /// Roll back a plan and its files to a checkpoint, both or neither.
    #[command(after_help = format!("{HOW_TO_NAME}\nThe current state is kept first, so that `safepoint undo` brings it back, plan and files.\nUndo commands of steps that are undone run before anything changes, newest first.\n\nExamples:\n  safepoint plan rollback limits                choose where to go; without a terminal, list it\n  safepoint plan rollback limits @ --dry-run    show what would happen\n  safepoint plan rollback limits \"before api/handlers\""))]
    Rollback(PlanRollbackArgs),
    /// Correct a failed plan: revert, or add, retry, skip or edit a step.
    #[command(after_help = "\
The last clean checkpoint is the newest whole one from before the first unresolved error.
With --decision: back to before that decision; what depends on it is superseded, the rest stays.

Examples:
  safepoint plan correct limits --mode revert --dry-run
  safepoint plan correct limits --mode revert --guidance \"mind the lock\"
  safepoint plan correct limits --mode append --step \"Fix the lock\" --run \"make fix\"
  safepoint plan correct limits --mode retry --run \"make migrate FORCE=1\"
  safepoint plan correct limits --mode skip --reason \"done by hand\"")]
    Correct(CorrectArgs),
    /// Pause a running plan.
    #[command(after_help = "Examples:\n  safepoint plan pause limits")]
    Pause(PlanArgs),
    /// Cancel a plan.
    #[command(after_help = "Examples:\n  safepoint plan cancel limits")]
    Cancel(PlanArgs),
    /// Apply the result of a finished plan to the project; this ends the plan.
    #[command(
        after_help = "Applies all changes that the plan made in its copy, or none; `safepoint undo` undoes it.\n\nExamples:\n  safepoint plan apply limits\n  safepoint plan apply limits --merge    also if the project changed since"
    )]
    Apply(ApplyArgs),
}

/// Events of a step.
#[derive(Debug, Subcommand)]
pub(crate) enum StepCommand {
    /// Report that a step starts; takes checkpoints that are due before it.
    #[command(after_help = "Examples:\n  safepoint plan step start limits api/handlers")]
    Start(StepArgs),
    /// Report that a step finished; takes checkpoints that are due after it.
    #[command(
        after_help = "Examples:\n  safepoint plan step finish limits migrate\n  safepoint plan step finish limits migrate --output '{\"tables\": 3}'"
    )]
    Finish(FinishArgs),
    /// Report that a step failed, with the reason.
    #[command(after_help = "Examples:\n  safepoint plan step fail limits migrate --error \"2 tests fail\"")]
    Fail(FailArgs),
    /// Add a step after the existing ones.
    #[command(
        after_help = "Examples:\n  safepoint plan step add limits ship --title \"Ship it\"\n  safepoint plan step add limits docs --below api --run \"make docs\""
    )]
    Add(AddArgs),
}

/// Context of a plan.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Set a context key.
    #[command(
        after_help = "Examples:\n  safepoint plan context set limits rate 100\n  safepoint plan context set limits database '\"postgres\"'"
    )]
    Set(ValueArgs),
    /// Print a context key.
    #[command(after_help = "Examples:\n  safepoint plan context get limits rate")]
    Get(KeyArgs),
    /// Unset a context key.
    #[command(after_help = "Examples:\n  safepoint plan context unset limits rate")]
    Unset(KeyArgs),
}

/// Outputs of a plan.
#[derive(Debug, Subcommand)]
pub(crate) enum OutputCommand {
    /// Set an output key.
    #[command(after_help = "Examples:\n  safepoint plan output set limits url '\"http://localhost:8080\"'")]
    Set(ValueArgs),
}

/// Checkpoints of a plan.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Take a checkpoint of the plan and its files.
    #[command(
        after_help = "Examples:\n  safepoint plan checkpoint create limits -m \"tests pass\"\n  safepoint plan checkpoint create limits --pin"
    )]
    Create(CheckpointCreateArgs),
    /// List the checkpoints of the plan, newest first.
    #[command(after_help = "Examples:\n  safepoint plan checkpoint list limits")]
    List(PlanArgs),
    /// Show a checkpoint and the plan state in it.
    #[command(after_help = format!("{HOW_TO_NAME}\n\nExamples:\n  safepoint plan checkpoint show limits @\n  safepoint plan checkpoint show limits @ --json    with the whole state"))]
    Show(CheckpointShowArgs),
    /// Delete checkpoints of the plan.
    #[command(after_help = format!("{HOW_TO_NAME}\nIt asks first; without a terminal it wants --yes.\n\nExamples:\n  safepoint plan checkpoint delete limits @~3 --yes"))]
    Delete(CheckpointDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TakeoverArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Folder that is empty or does not exist yet.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Remote that the plan is published on.
    #[arg(long, value_name = "REMOTE")]
    pub(crate) remote: String,
    /// Fence a live holder.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Plan file; - reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Title [default: from the file].
    #[arg(long, value_name = "TITLE", required_unless_present = "file", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) title: Option<String>,
    /// Id [default: from the file, or generated].
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Take checkpoints at these comma-separated moments; an empty text turns them off.
    #[arg(long, value_name = "MILESTONES")]
    pub(crate) milestones: Option<String>,
    /// Also take a checkpoint whenever this much time has passed, such as 10m.
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<Span>,
    /// Also take a checkpoint after this many steps.
    #[arg(long, value_name = "COUNT")]
    pub(crate) every_steps: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanListArgs {
    /// Include all workspaces.
    #[arg(long)]
    pub(crate) all: bool,
}

/// One plan.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Plan.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Step whose output to print, such as api/handlers.
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Stop after this step or subplan.
    #[arg(long, value_name = "STEP")]
    pub(crate) until: Option<String>,
}

/// Treatment of an interrupted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhenInterrupted {
    /// Run it again.
    Rerun,
    /// Count it as done.
    Done,
    /// Count it as failed.
    Fail,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Treatment of interrupted steps.
    #[arg(long, value_name = "WHAT")]
    pub(crate) interrupted: Option<WhenInterrupted>,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Keep changes of the project to paths that the plan did not change.
    #[arg(long)]
    pub(crate) merge: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Include decisions that a rollback superseded.
    #[arg(long)]
    pub(crate) show_superseded: bool,
}

/// One step of a plan.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Path of the step, such as api/handlers.
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
}

#[derive(Debug, Args)]
pub(crate) struct FinishArgs {
    #[command(flatten)]
    pub(crate) step: StepArgs,
    /// Output of the step.
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) output: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    pub(crate) step: StepArgs,
    /// Reason.
    #[arg(long, value_name = "TEXT", default_value = "no reason was given")]
    pub(crate) error: String,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Name of the step, unique among its siblings.
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// Title.
    #[arg(long, value_name = "TITLE")]
    pub(crate) title: Option<String>,
    /// Command of the step.
    #[arg(long, value_name = "CMD")]
    pub(crate) run: Option<String>,
    /// Parent step [default: none; the step comes last in the plan].
    #[arg(long, value_name = "STEP")]
    pub(crate) below: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Question.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) question: String,
    /// Choice.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) choice: String,
    /// Reason.
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Alternative; repeatable.
    #[arg(long = "alternative", value_name = "TEXT")]
    pub(crate) alternatives: Vec<String>,
    /// Decision that led to this one.
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Decision that this one depends on; repeatable.
    #[arg(long, value_name = "ID")]
    pub(crate) depends_on: Vec<String>,
    /// Step during which it is made.
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Key.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    /// Value.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: String,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointCreateArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Label to record; it may begin with a hyphen.
    #[arg(short = 'm', long = "label", value_name = "LABEL", allow_hyphen_values = true)]
    pub(crate) label: Option<String>,
    /// Protect it from pruning.
    #[arg(long)]
    pub(crate) pin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointShowArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Checkpoint.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointDeleteArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Checkpoints.
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) checkpoints: Vec<String>,
}

/// Mode of a correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CorrectMode {
    /// Roll back.
    Revert,
    /// Add a step, before the failed one.
    Append,
    /// Give the failed step another command.
    Retry,
    /// Skip the failed step.
    Skip,
    /// Change the failed step.
    Edit,
}

#[derive(Debug, Args)]
pub(crate) struct CorrectArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Roll back; add a step; or retry, skip or edit the failed one.
    #[arg(long)]
    pub(crate) mode: CorrectMode,
    /// Roll back to before this decision.
    #[arg(long, value_name = "ID")]
    pub(crate) decision: Option<String>,
    /// Guidance for the next attempt, kept as a decision.
    #[arg(long, value_name = "TEXT")]
    pub(crate) guidance: Option<String>,
    /// Title of the new step, or another title with --mode edit.
    #[arg(long, value_name = "TITLE")]
    pub(crate) step: Option<String>,
    /// Command of the new step, or another command for the failed one.
    #[arg(long, value_name = "CMD")]
    pub(crate) run: Option<String>,
    /// Check of the step.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// Undo command of the step.
    #[arg(long, value_name = "CMD")]
    pub(crate) undo: Option<String>,
    /// Add the step before this one [default: the failed one].
    #[arg(long, value_name = "STEP", conflicts_with = "after")]
    pub(crate) before: Option<String>,
    /// Add the step after this one.
    #[arg(long, value_name = "STEP")]
    pub(crate) after: Option<String>,
    /// Retry, skip or edit this step [default: the failed one].
    #[arg(long, value_name = "STEP")]
    pub(crate) at: Option<String>,
    /// Reason to skip the step.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Show the effects without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) undo_commands: UndoCommandArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanRollbackArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Checkpoint.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: Option<String>,
    /// Show the effects without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Restore modification times [default: now, so that build tools notice].
    #[arg(long)]
    pub(crate) keep_times: bool,
    #[command(flatten)]
    pub(crate) undo_commands: UndoCommandArgs,
    /// Create the sandbox of the plan again if it is missing.
    #[arg(long)]
    pub(crate) recreate_sandbox: bool,
    /// Strategy; --part implies selective, --verify staged, --until progressive.
    #[arg(long, value_parser = words!(Strategy))]
    pub(crate) strategy: Option<Strategy>,
    /// Only this part: plan or files; repeatable.
    #[arg(long = "part", value_name = "PART", value_parser = plan_part(), hide_possible_values = true)]
    pub(crate) parts: Vec<PartKind>,
    /// Build the target beside the files, run CMD there, show the changes, and ask.
    #[arg(long, value_name = "CMD", conflicts_with = "until")]
    pub(crate) verify: Option<String>,
    /// Roll back to the plan's newest checkpoint where CMD passes, tried apart.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["parts", "recreate_sandbox"])]
    pub(crate) until: Option<String>,
    /// With --until: binary search; checkpoints older than a good one are good.
    #[arg(long, requires = "until")]
    pub(crate) bisect: bool,
    /// With --until: try in the folder of the plan itself.
    #[arg(long, requires = "until", conflicts_with = "dry_run")]
    pub(crate) in_place: bool,
    /// With --until: try in a copy at another path, not in an overlay.
    #[arg(long, requires = "until", conflicts_with = "in_place")]
    pub(crate) copy: bool,
}
