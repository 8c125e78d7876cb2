//! Second half of the tour: a plan in a sandbox, a step that fails, its rollback, and a successful end.

use super::Story;
use super::project::{Picture, Project};
use crate::problem::Problem;
use crate::render::terminal::counted;
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::id::DecisionId;
use safepoint::model::plan::run::RunOutcome;
use safepoint::model::plan::spec::StepSpec;
use safepoint::{
    CreateOptions, Error, Merge, NewDecision, PlanFile, Plans, Progress, RollbackOptions, RunObserver,
    RunOptions, RunReport, Silent, Workspace,
};

const PLAN: &str = r#"
title = "Sell at a discount"
id = "discount"

[sandbox]
kind = "copy"

[[step]]
id = "settings"
run = "echo 'discount = 10' >> shop.toml"

[[step]]
id = "api"

[[step.step]]
id = "handlers"
run = "mkdir src/discount && echo '// takes the discount off' > src/discount/handlers.rs"

[[step.step]]
id = "check"
run = "test -e src/discount/rules.rs || { rm -r src/api docs; echo junk > shop.toml; echo 'there are no rules'; exit 1; }"

[[step]]
id = "ship"
run = "echo 'Everything is cheaper now.' > NEWS.md"
"#;

/// Step that fails.
const BAD: &str = "api/check";

/// Discards run events: the tour reports afterwards.
struct Unseen;

impl RunObserver for Unseen {}

type Verb = fn(&Plans<'_>, &str, &RunOptions, &dyn RunObserver, &dyn Progress) -> Result<RunReport, Error>;

impl Story<'_> {
    /// Runs it; returns true if each comparison succeeds.
    pub(super) fn tell_plan(&self, workspace: &Workspace) -> Result<bool, Problem> {
        let project = self.project.picture()?;
        let copy = self.run_so_far(workspace)?;
        let before = copy.picture()?;
        let to = self.goes_wrong()?;
        let same = self.goes_back(&copy, &before, &to)?;
        let made = self.comes_to_its_end(&copy)?;
        let untouched =
            self.compare("Is the project as it was all the while?", &project, "before the plan")?;
        self.begin();
        let applied = self.manager.plans().apply("discount", Merge::Refused, &Silent)?;
        let written = applied.restored.map_or(0, |restored| restored.outline().restored);
        self.step(
            "safepoint plan apply discount",
            &[format!(
                "{} into the project, all or nothing; the sandbox is deleted",
                counted(written, "file", "files")
            )],
        );
        let landed =
            self.compare("Is the result in the project, every byte of it?", &made, "the plan made them")?;
        Ok(same && untouched && landed)
    }

    /// Starts the plan in a copy of the project.
    fn run_so_far(&self, workspace: &Workspace) -> Result<Project, Problem> {
        self.begin();
        let file = PlanFile::parse(PLAN.as_bytes(), None).map_err(Error::from)?;
        self.manager.plans().create(workspace, &file.spec)?;
        self.step(
            "safepoint plan new discount.toml",
            &["4 steps, two of them in the subplan api; it works in a copy of the project".to_owned()],
        );
        self.drive(
            "run",
            |plans, id, options, watch, progress| plans.run(id, options, watch, progress),
            Some("settings"),
            RunOutcome::Paused,
        )?;
        let first = self.decide("Where is the discount kept?", "in shop.toml", None)?;
        self.decide("Who takes it off?", "the handlers", Some(first))?;
        self.drive(
            "resume",
            |plans, id, options, watch, progress| plans.resume(id, options, watch, progress),
            Some("api/handlers"),
            RunOutcome::Paused,
        )?;
        let place = self.manager.plans().workspace(&self.manager.plans().get("discount")?)?;
        Ok(Project::new(place.root_path()))
    }

    /// Runs the step that fails. Returns the checkpoint before it.
    fn goes_wrong(&self) -> Result<Checkpoint, Problem> {
        self.drive(
            "resume",
            |plans, id, options, watch, progress| plans.resume(id, options, watch, progress),
            None,
            RunOutcome::Failed,
        )?;
        self.decide("What about the check?", "leave it out", None)?;
        self.begin();
        let taken: Vec<CheckpointId> =
            self.manager.plans().checkpoints("discount")?.iter().map(|taken| taken.checkpoint).collect();
        let mut lines = Vec::new();
        let mut before = None;
        for id in taken {
            let checkpoint = self.manager.checkpoints().get(id)?;
            let label = checkpoint.label.clone().unwrap_or_default();
            lines.push(format!("{}  {label}", checkpoint.id));
            if label == format!("before {BAD}") {
                before = Some(checkpoint);
            }
        }
        self.step("safepoint plan checkpoint list discount", &lines);
        before.ok_or_else(|| Problem::internal(format!("the demo has no checkpoint before {BAD}")))
    }

    /// Rolls back plan and files.
    fn goes_back(&self, copy: &Project, before: &Picture, to: &Checkpoint) -> Result<bool, Problem> {
        self.begin();
        let options = RollbackOptions::default();
        let back = self.manager.plans().rollback("discount", to.id, &options, &Silent)?;
        let decisions = back.plans.first().map_or(0, |(_, back)| back.decisions.len());
        self.step(
            &format!("safepoint plan rollback discount \"before {BAD}\""),
            &[format!(
                "{} restored, {} superseded: both or neither",
                counted(back.outline().restored, "file", "files"),
                counted(decisions as u64, "decision", "decisions")
            )],
        );
        let files = self.compare_with(copy, "Is the copy as before that step?", before, "before it")?;
        self.begin();
        let again = self.manager.plans().checkpoint("discount", &CreateOptions::default(), &Silent)?;
        let plan = again.checkpoint.state_hash == to.state_hash && to.state_hash.is_some();
        let hash: String = to.state_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let hash: String = hash.chars().take(16).collect();
        let answer = match plan {
            true => self.out.colours.green(format!("yes: its state has the hash {hash}... again")),
            false => self.out.colours.red("no"),
        };
        self.step("And the plan?", &[answer]);
        Ok(files && plan)
    }

    /// Fixes the cause, adds a step, and runs the rest. Returns the result of the plan.
    fn comes_to_its_end(&self, copy: &Project) -> Result<Picture, Problem> {
        self.begin();
        copy.fix()?;
        let step = StepSpec {
            title: Some("Tell the readers".to_owned()),
            run: Some("echo 'See NEWS.md.' >> README.md".to_owned()),
            ..StepSpec::new("tell-the-readers")
        };
        self.manager.plans().append_step("discount", None, &step)?;
        self.step(
            "safepoint plan step add discount tell-the-readers ...",
            &["the rules are written by hand, and a step is added: tell-the-readers".to_owned()],
        );
        self.drive(
            "resume",
            |plans, id, options, watch, progress| plans.resume(id, options, watch, progress),
            None,
            RunOutcome::Done,
        )?;
        copy.picture()
    }

    /// Runs the plan to its expected outcome.
    fn drive(&self, name: &str, verb: Verb, until: Option<&str>, wanted: RunOutcome) -> Result<(), Problem> {
        self.begin();
        let options = RunOptions { until: until.map(str::to_owned), ..RunOptions::default() };
        let report = verb(&self.manager.plans(), "discount", &options, &Unseen, &Silent)?;
        if report.outcome != wanted {
            return Err(Problem::internal(format!("the demo's plan ended as {}", report.outcome)));
        }
        let mut lines: Vec<String> = report.done.iter().map(|step| format!("[x] {step}")).collect();
        if report.outcome == RunOutcome::Failed {
            let error = report.error.unwrap_or_default();
            lines.push(
                self.out.colours.red(format!("[!] {} failed: {error}", report.step.unwrap_or_default())),
            );
        }
        let taken = counted(report.checkpoints.len() as u64, "checkpoint", "checkpoints");
        lines.push(format!("{taken} taken during the run; the plan is {}", report.record.plan.state));
        let until = until.map(|until| format!(" --until {until}")).unwrap_or_default();
        self.step(&format!("safepoint plan {name} discount{until}"), &lines);
        Ok(())
    }

    fn decide(
        &self,
        question: &str,
        choice: &str,
        parent: Option<DecisionId>,
    ) -> Result<DecisionId, Problem> {
        self.begin();
        let (question, choice) = (question.to_owned(), choice.to_owned());
        let line = format!("{question} {choice}");
        let new = NewDecision { question, choice, parent, ..NewDecision::default() };
        let (_, id) = self.manager.plans().decide("discount", new)?;
        self.step("safepoint plan decide discount ...", &[line]);
        Ok(id)
    }
}
