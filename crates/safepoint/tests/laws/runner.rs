//! Plan runs: steps as commands, stopped and resumed.

use crate::bench::{Bench, open};
use safepoint::model::checkpoint::Kind;
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::run::RunOutcome;
use safepoint::model::plan::state::{Plan, PlanState, StepState};
use safepoint::{
    CreateOptions, DryRun, Error, Failure, FailureKind, Interrupted, PlanFile, PlanRecord, RollbackOptions,
    RunEvent, RunObserver, RunOptions, RunReport, Settings, Silent, Stop, Thoroughness, Warning, Wish,
};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Discards events.
pub(crate) struct Unseen;

impl RunObserver for Unseen {}

/// Records events, and stops on request.
#[derive(Default)]
struct Watcher {
    seen: Mutex<Vec<String>>,
    stop: AtomicBool,
    /// Output at which to stop.
    stop_at: Option<&'static str>,
}

impl RunObserver for Watcher {
    fn happened(&self, event: &RunEvent<'_>) {
        let line = match event {
            RunEvent::Plan(_) => return,
            RunEvent::Dead(_) => "dead".to_owned(),
            RunEvent::StepBegins(path) => format!("begin {path}"),
            RunEvent::Verifies(path) => format!("verify {path}"),
            RunEvent::Printed(path, bytes) => {
                let text = String::from_utf8_lossy(bytes);
                if self.stop_at.is_some_and(|word| text.contains(word)) {
                    self.stop.store(true, Ordering::SeqCst);
                }
                format!("{path}: {}", text.trim_end())
            }
            RunEvent::TriesAgain { step, attempt, error } => format!("again {step} {attempt} {error}"),
            RunEvent::Done(path) => format!("done {path}"),
            RunEvent::Failed(path, error) => format!("failed {path} {error}"),
            RunEvent::Checkpoint(created) => {
                format!("checkpoint {}", created.checkpoint.label.as_deref().unwrap_or_default())
            }
        };
        self.seen.lock().unwrap().push(line);
    }

    fn stop(&self) -> Stop {
        if self.stop.load(Ordering::SeqCst) { Stop::Soon } else { Stop::No }
    }
}

/// Records a plan from TOML.
pub(crate) fn plan(bench: &Bench, text: &str) -> PlanRecord {
    let file = PlanFile::parse(format!("title = 'Work'\nid = 'work'\n{text}").as_bytes(), None).unwrap();
    bench.manager.plans().create(&bench.workspace, &file.spec).unwrap()
}

pub(crate) fn run(bench: &Bench) -> RunReport {
    bench.manager.plans().run("work", &RunOptions::default(), &Unseen, &Silent).unwrap()
}

pub(crate) fn resume(bench: &Bench) -> RunReport {
    bench.manager.plans().resume("work", &RunOptions::default(), &Unseen, &Silent).unwrap()
}

fn states(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| format!("{} {}", step.path, step.state)).collect()
}

fn now(bench: &Bench) -> Plan {
    bench.manager.plans().get("work").unwrap().plan
}

fn wait_for(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(30), "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn steps_run_in_order_where_they_belong_and_know_what_they_are_part_of() {
    let settings = Settings { session_id: Some("a-session".to_owned()), ..Settings::default() };
    let bench = Bench::with(settings);
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'echo $SAFEPOINT_PLAN_ID $SAFEPOINT_STEP_ID $SAFEPOINT_SESSION_ID; pwd > where'
         [[step]]
         id = 'sub'
         env = { COLOUR = 'red', SIZE = 'small' }
         [[step.step]]
         id = 'two'
         env = { SIZE = 'large' }
         run = 'echo $COLOUR $SIZE; echo oops >&2; [ $SAFEPOINT_SANDBOX = $PWD ] && [ -d $SAFEPOINT_HOME ]'",
    );
    let watcher = Watcher::default();
    let report = bench.manager.plans().run("work", &RunOptions::default(), &watcher, &Silent).unwrap();
    assert_eq!((report.outcome, report.record.plan.state), (RunOutcome::Done, PlanState::Done));
    assert_eq!(report.done, ["one", "sub/two"]);
    assert_eq!(bench.read("where").trim_end(), bench.root().canonicalize().unwrap().to_str().unwrap());
    let printed =
        |path| String::from_utf8(bench.manager.plans().printed_by(&now(&bench), path).unwrap().unwrap());
    assert_eq!(printed("one").unwrap(), "work one a-session\n");
    assert_eq!(printed("sub/two").unwrap(), "red large\noops\n");
    assert!(bench.manager.plans().printed_by(&now(&bench), "nowhere").is_err());
    let seen = watcher.seen.into_inner().unwrap();
    let first: Vec<&str> = seen.iter().map(String::as_str).take(4).collect();
    assert_eq!(first, ["checkpoint before one", "begin one", "one: work one a-session", "done one"]);
    assert_eq!(seen.last().unwrap(), "checkpoint after subplan sub");
    assert_eq!(report.checkpoints.len(), 3);
    let taken = bench.manager.checkpoints().get(report.checkpoints[0]).unwrap();
    assert_eq!((taken.kind, taken.session_id.as_deref()), (Kind::Workflow, Some("a-session")));
    // Output is kept as long as the plan, and no longer.
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert_eq!(printed("sub/two").unwrap(), "red large\noops\n");
}

#[test]
fn a_step_that_failed_is_the_next_one_and_what_is_done_never_runs_twice() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'echo one >> log'
         [[step]]
         id = 'two'
         run = 'echo two >> log; echo it broke; exit 3'
         [[step]]
         id = 'three'
         run = 'echo three >> log'",
    );
    let report = run(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("two")));
    assert_eq!(report.error.as_deref(), Some("exit status 3: it broke"));
    assert_eq!(now(&bench).state, PlanState::Failed);
    let last = bench.manager.checkpoints().get(*report.checkpoints.last().unwrap()).unwrap();
    assert_eq!((last.kind, last.label.as_deref()), (Kind::Emergency, Some("two failed")));
    let error = bench
        .manager
        .plans()
        .notes("work")
        .unwrap()
        .into_iter()
        .find(|note| note.kind == PlanNoteKind::Error);
    assert_eq!(error.unwrap().body["error"], "exit status 3: it broke");
    let again = bench.manager.plans().run("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert_eq!(again.to_string(), "plan work is failed");
    assert_eq!(Failure::from(&again).hints, ["It has begun: safepoint plan resume work"]);
    // Fixed externally: it counts as done, and the rest follows.
    bench.manager.plans().start_step("work", "two", &Silent).unwrap();
    bench.manager.plans().finish_step("work", "two", None, &Silent).unwrap();
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    assert_eq!(bench.read("log"), "one\ntwo\nthree\n");
    let report = resume(&bench);
    assert_eq!((report.outcome, report.done.len()), (RunOutcome::Done, 0), "nothing left to do");
    bench.manager.plans().apply("work", safepoint::Merge::Refused, &Silent).unwrap();
    let over = bench.manager.plans().resume("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert!(matches!(over, Error::Plan(_)), "{over}");
}

#[test]
fn a_step_is_tried_as_often_as_it_may_be_and_each_try_is_on_record() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'flaky'
         run = 'echo x >> tries; echo try $(wc -l < tries); [ $(wc -l < tries) = 3 ]'
         retries = 2
         [[step]]
         id = 'never'
         run = 'echo y >> tries; false'
         retries = 1",
    );
    let watcher = Watcher::default();
    let report = bench.manager.plans().run("work", &RunOptions::default(), &watcher, &Silent).unwrap();
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("never")));
    assert_eq!(bench.read("tries"), "x\nx\nx\ny\ny\n");
    let plan = now(&bench);
    assert_eq!((plan.steps[0].attempts, plan.steps[1].attempts), (3, 2));
    let notes = bench.manager.plans().notes("work").unwrap();
    let tries: Vec<_> =
        notes.iter().filter(|note| note.kind == PlanNoteKind::Attempt).map(|note| &note.body).collect();
    assert_eq!(tries.len(), 3);
    assert_eq!(tries[1]["error"], "exit status 1: try 2");
    let seen = watcher.seen.into_inner().unwrap();
    assert!(seen.contains(&"again flaky 1 exit status 1: try 1".to_owned()), "{seen:?}");
}

#[test]
fn a_check_decides_whether_a_step_or_a_subplan_went_well() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'echo one >> log'
         verify = 'grep -q one log'
         [[step]]
         id = 'sub'
         verify = 'echo looking; test -e good'
         [[step.step]]
         id = 'two'
         run = 'echo two >> log'
         [[step]]
         id = 'three'
         run = 'echo three >> log'
         verify = 'echo nothing is good; false'",
    );
    let report = run(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("sub")));
    assert_eq!(report.error.as_deref(), Some("verify: exit status 1: looking"));
    assert_eq!(states(&now(&bench)), ["one done", "sub failed", "sub/two done", "three pending"]);
    bench.write("good", "");
    let report = resume(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("three")));
    assert_eq!(report.error.as_deref(), Some("verify: exit status 1: nothing is good"));
    assert_eq!(bench.read("log"), "one\ntwo\nthree\n", "only the check of the subplan ran again");
}

#[test]
fn what_takes_too_long_is_ended_by_its_own_limit_or_by_that_of_its_subplan() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'sub'
         timeout = '1s'
         [[step.step]]
         id = 'slow'
         run = 'sleep 60'
         timeout = '1m'
         [[step]]
         id = 'own'
         run = 'sleep 60'
         timeout = '1s'",
    );
    let since = Instant::now();
    assert_eq!(run(&bench).error.as_deref(), Some("it took longer than 1s for sub"));
    bench.manager.plans().start_step("work", "sub/slow", &Silent).unwrap();
    bench.manager.plans().finish_step("work", "sub/slow", None, &Silent).unwrap();
    assert_eq!(resume(&bench).error.as_deref(), Some("it took longer than 1s"));
    assert!(since.elapsed() < Duration::from_secs(30));
}

#[test]
fn steps_side_by_side_run_at_the_same_time_and_a_failure_lets_the_others_end() {
    let bench = Bench::new();
    let meet = |own: &str, other: &str| {
        format!(
            "touch {own}; i=0; while [ ! -e {other} ]; do sleep 0.01; i=$((i+1)); [ $i -lt 2000 ] || exit 9; done"
        )
    };
    let (a, b) = (meet("a", "b"), meet("b", "a"));
    plan(
        &bench,
        &format!(
            "[[step]]
             id = 'both'
             parallel = 2
             [[step.step]]
             id = 'a'
             run = '{a}'
             [[step.step]]
             id = 'b'
             run = '{b}'
             [[step]]
             id = 'mixed'
             parallel = 3
             [[step.step]]
             id = 'bad'
             run = 'exit 1'
             [[step.step]]
             id = 'slow'
             run = 'sleep 0.5; touch slow'
             [[step]]
             id = 'after'
             run = 'touch after'"
        ),
    );
    let report = run(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("mixed/bad")));
    let plan = now(&bench);
    assert_eq!(
        states(&plan),
        [
            "both done",
            "both/a done",
            "both/b done",
            "mixed failed",
            "mixed/bad failed",
            "mixed/slow done",
            "after pending"
        ]
    );
    assert!(bench.path("slow").exists() && !bench.path("after").exists());
}

#[test]
fn a_step_without_a_command_waits_for_somebody_outside() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'true'
         [[step]]
         id = 'think'
         [[step]]
         id = 'three'
         run = 'echo three >> log'",
    );
    let report = run(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Waiting, Some("think")));
    assert_eq!(now(&bench).state, PlanState::Paused);
    bench.manager.plans().start_step("work", "think", &Silent).unwrap();
    let report = resume(&bench);
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Waiting, Some("think")));
    assert_eq!(states(&now(&bench))[1], "think running", "it continues externally");
    bench.manager.plans().finish_step("work", "think", None, &Silent).unwrap();
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    assert_eq!(bench.read("log"), "three\n");
}

#[test]
fn a_run_goes_so_far_and_no_further() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'echo one >> log'
         [[step]]
         id = 'two'
         run = 'echo two >> log'",
    );
    let until = |step: &str| RunOptions { until: Some(step.to_owned()), ..RunOptions::default() };
    let nowhere = bench.manager.plans().run("work", &until("nine"), &Unseen, &Silent).unwrap_err();
    assert_eq!(Failure::from(&nowhere).kind, FailureKind::NotFound);
    assert_eq!(now(&bench).state, PlanState::Ready);
    let early = bench.manager.plans().resume("work", &until("one"), &Unseen, &Silent).unwrap_err();
    assert_eq!(Failure::from(&early).hints, ["It has not begun: safepoint plan run work"]);
    let report = bench.manager.plans().run("work", &until("one"), &Unseen, &Silent).unwrap();
    assert_eq!((report.outcome, now(&bench).state), (RunOutcome::Paused, PlanState::Paused));
    assert_eq!(bench.read("log"), "one\n");
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    let empty = safepoint::model::plan::spec::PlanSpec {
        id: Some("empty".to_owned()),
        ..safepoint::model::plan::spec::PlanSpec::new("Nothing yet")
    };
    bench.manager.plans().create(&bench.workspace, &empty).unwrap();
    let error = bench.manager.plans().run("empty", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert!(Failure::from(&error).hints[0].contains("step add"), "{error}");
}

#[test]
fn who_stops_a_run_gets_a_checkpoint_and_says_later_what_becomes_of_the_step() {
    let bench = Bench::new();
    let text = "[[step]]
         id = 'long'
         run = 'echo begun >> log; echo begun; sleep 60'
         [[step]]
         id = 'next'
         run = 'echo next >> log'";
    plan(&bench, text);
    let watcher = Watcher { stop_at: Some("begun"), ..Watcher::default() };
    let report = bench.manager.plans().run("work", &RunOptions::default(), &watcher, &Silent).unwrap();
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Interrupted, Some("long")));
    assert_eq!(now(&bench).state, PlanState::Paused);
    let last = bench.manager.checkpoints().get(*report.checkpoints.last().unwrap()).unwrap();
    assert_eq!((last.kind, last.label.as_deref()), (Kind::Emergency, Some("stopped during long")));
    let printed = bench.manager.plans().printed_by(&now(&bench), "long").unwrap();
    assert_eq!(printed.as_deref(), Some(&b"begun\n"[..]));
    let error = bench.manager.plans().resume("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert!(matches!(&error, Error::StepInterrupted { steps, .. } if steps == &["long"]), "{error}");
    assert_eq!(Failure::from(&error).kind, FailureKind::Conflict);
    assert_eq!(states(&now(&bench)), ["long interrupted", "next pending"], "nothing continued");
    let said = |said| RunOptions { interrupted: Some(said), ..RunOptions::default() };
    let report = bench.manager.plans().resume("work", &said(Interrupted::Fail), &Unseen, &Silent).unwrap();
    assert_eq!((report.outcome, report.step.as_deref()), (RunOutcome::Failed, Some("long")));
    bench.manager.plans().rollback("work", last.id, &RollbackOptions::default(), &Silent).unwrap();
    let report = bench.manager.plans().resume("work", &said(Interrupted::Done), &Unseen, &Silent).unwrap();
    assert_eq!((report.outcome, report.done), (RunOutcome::Done, vec!["long".to_owned(), "next".to_owned()]));
    assert_eq!(bench.read("log"), "begun\nnext\n");
}

#[test]
fn a_step_says_beforehand_what_becomes_of_it_when_it_is_interrupted() {
    for (word, outcome) in [("rerun", RunOutcome::Done), ("fail", RunOutcome::Failed)] {
        let bench = Bench::new();
        plan(
            &bench,
            &format!(
                "[[step]]
                 id = 'long'
                 on_interrupted = '{word}'
                 run = 'echo begun >> log; echo begun; [ $(wc -l < log) = 2 ] || sleep 60'"
            ),
        );
        let watcher = Watcher { stop_at: Some("begun"), ..Watcher::default() };
        bench.manager.plans().run("work", &RunOptions::default(), &watcher, &Silent).unwrap();
        assert_eq!(resume(&bench).outcome, outcome, "{word}");
    }
    // The plan has a choice for steps that name none.
    let bench = Bench::new();
    let steps = "[[step]]\nid = 'long'\nrun = 'echo begun; sleep 60'\n[[step]]\nid = 'next'\nrun = 'echo next >> log'";
    plan(&bench, &format!("on_interrupted = 'done'\n{steps}"));
    let watcher = Watcher { stop_at: Some("begun"), ..Watcher::default() };
    bench.manager.plans().run("work", &RunOptions::default(), &watcher, &Silent).unwrap();
    let report = resume(&bench);
    assert_eq!((report.outcome, report.done), (RunOutcome::Done, vec!["long".to_owned(), "next".to_owned()]));
}

#[test]
fn a_plan_that_is_run_is_not_run_twice_nor_changed_under_its_runner() {
    let bench = Bench::with(Settings { lock_wait: Duration::from_millis(50), ..Settings::default() });
    plan(&bench, "[[step]]\nid = 'long'\nrun = 'touch begun; while [ ! -e go ]; do sleep 0.01; done'");
    let checkpoint =
        bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
    let others = open(&bench.home(), Settings { lock_wait: Duration::ZERO, ..Settings::default() });
    std::thread::scope(|threads| {
        let runner = threads.spawn(|| run(&bench));
        wait_for(|| bench.path("begun").exists());
        let busy = others.plans().resume("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
        assert!(matches!(busy, Error::PlanRunning { wish: Wish::Run, .. }), "{busy}");
        assert_eq!(busy.to_string(), format!("plan work is being run by process {}", std::process::id()));
        assert_eq!(Failure::from(&busy).kind, FailureKind::Busy);
        for dry_run in [DryRun::Yes, DryRun::No] {
            let options = RollbackOptions { dry_run, ..RollbackOptions::default() };
            let live = others.plans().rollback("work", checkpoint, &options, &Silent).unwrap_err();
            assert!(matches!(live, Error::PlanRunning { wish: Wish::Change, .. }), "{live}");
            assert_eq!(Failure::from(&live).kind, FailureKind::Conflict);
        }
        for refused in [
            others.plans().finish_step("work", "long", None, &Silent).map(drop),
            others.plans().fail_step("work", "long", "no", &Silent).map(drop),
            others.plans().start_step("work", "long", &Silent).map(drop),
            others.plans().apply("work", safepoint::Merge::Refused, &Silent).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::PlanRunning { .. })), "{refused:?}");
        }
        // Changes by the step itself are accepted.
        others.plans().set_output("work", "url", serde_json::json!("x")).unwrap();
        bench.write("go", "");
        assert_eq!(runner.join().unwrap().outcome, RunOutcome::Done);
    });
    assert_eq!(now(&bench).outputs["url"], "x");
    others.plans().rollback("work", checkpoint, &RollbackOptions::default(), &Silent).unwrap();
}

#[test]
fn a_pause_lets_the_step_end_and_a_cancel_ends_it() {
    for (state, outcome) in
        [(PlanState::Paused, RunOutcome::Paused), (PlanState::Cancelled, RunOutcome::Cancelled)]
    {
        let bench = Bench::new();
        plan(
            &bench,
            "[[step]]
             id = 'long'
             run = 'touch begun; while [ ! -e go ]; do sleep 0.01; done; touch ended'
             [[step]]
             id = 'next'
             run = 'touch next'",
        );
        let others = open(&bench.home(), Settings::default());
        let report = std::thread::scope(|threads| {
            let runner = threads.spawn(|| run(&bench));
            wait_for(|| bench.path("begun").exists());
            others.plans().change("work", "test", |plan| plan.go(state)).unwrap();
            if state == PlanState::Paused {
                std::thread::sleep(Duration::from_millis(700));
                bench.write("go", "");
            }
            runner.join().unwrap()
        });
        assert_eq!((report.outcome, now(&bench).state), (outcome, state));
        assert_eq!(bench.path("ended").exists(), state == PlanState::Paused);
        assert!(!bench.path("next").exists());
        if state == PlanState::Paused {
            assert_eq!(resume(&bench).outcome, RunOutcome::Done);
        }
    }
}

#[test]
fn a_long_step_has_checkpoints_on_its_way() {
    let bench = Bench::new();
    plan(&bench, "[checkpoints]\non = []\nevery = '1s'\n[[step]]\nid = 'long'\nrun = 'sleep 2.6'");
    let report = run(&bench);
    let labels: Vec<_> = report
        .checkpoints
        .iter()
        .map(|id| bench.manager.checkpoints().get(*id).unwrap().label.unwrap_or_default())
        .collect();
    assert!(labels.iter().filter(|label| *label == "during the run").count() >= 1, "{labels:?}");
    assert!(labels.len() <= 4, "{labels:?}");
}

#[test]
fn when_safepoint_itself_fails_the_steps_end_and_the_plan_can_go_on_later() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'one'
         run = 'echo nonsense > .safepoint.toml'
         [[step]]
         id = 'two'
         run = 'echo two >> log'",
    );
    let error = bench.manager.plans().run("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert_eq!(states(&now(&bench)), ["one done", "two pending"]);
    assert_eq!(now(&bench).state, PlanState::Paused);
    fs::remove_file(bench.path(".safepoint.toml")).unwrap();
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    assert_eq!(now(&bench).steps[0].state, StepState::Done);
    assert_eq!(bench.read("log"), "two\n");
}

#[test]
fn when_the_disk_runs_low_a_run_takes_an_emergency_checkpoint_once() {
    let bench = Bench::with(Settings { low_disk_bytes: u64::MAX, ..Settings::default() });
    plan(&bench, "[[step]]\nid = 'long'\nrun = 'sleep 1.6'");
    let report = run(&bench);
    let labels: Vec<_> = report
        .checkpoints
        .iter()
        .map(|id| bench.manager.checkpoints().get(*id).unwrap())
        .filter(|checkpoint| checkpoint.kind == Kind::Emergency)
        .collect();
    assert_eq!(labels.len(), 1);
    assert_eq!(labels[0].label.as_deref(), Some("low disk space"));
    assert_eq!(report.warnings, [Warning::LowDiskSpace]);
}

#[test]
fn when_the_program_itself_breaks_what_there_is_is_kept() {
    struct Breaks;
    impl RunObserver for Breaks {
        fn happened(&self, event: &RunEvent<'_>) {
            assert!(!matches!(event, RunEvent::Done("one")), "a defect");
        }
    }
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]\nid = 'one'\nrun = 'echo one >> log'\n[[step]]\nid = 'two'\nrun = 'echo two >> log'",
    );
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        bench.manager.plans().run("work", &RunOptions::default(), &Breaks, &Silent)
    }));
    assert!(broken.is_err());
    let newest = bench.manager.plans().checkpoints("work").unwrap()[0].checkpoint;
    assert_eq!(bench.manager.checkpoints().get(newest).unwrap().kind, Kind::Emergency);
    assert_eq!(states(&now(&bench)), ["one done", "two pending"]);
    assert_eq!(resume(&bench).outcome, RunOutcome::Done);
    assert_eq!(bench.read("log"), "one\ntwo\n");
}

#[test]
fn an_emergency_puts_up_with_what_would_refuse_another_checkpoint() {
    let bench = Bench::new();
    bench.write("file", "x");
    bench.write(".safepoint.toml", "nonsense");
    assert!(bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).is_err());
    let options = CreateOptions::emergency("now");
    let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap().checkpoint;
    assert_eq!((created.kind, created.files.count), (Kind::Emergency, 2));
    assert!(!created.warnings.is_empty(), "the ignored file is reported");
}

#[test]
fn what_was_under_way_in_the_state_that_one_went_back_to_is_not_under_way_now() {
    let bench = Bench::new();
    plan(
        &bench,
        "[[step]]
         id = 'both'
         parallel = 2
         [[step.step]]
         id = 'a'
         run = 'sleep 0.6; echo a >> log'
         [[step.step]]
         id = 'b'
         run = 'sleep 0.6; echo b >> log'",
    );
    let report = run(&bench);
    let before_b = report
        .checkpoints
        .iter()
        .find(|id| bench.manager.checkpoints().get(**id).unwrap().label.as_deref() == Some("before both/b"));
    bench.manager.plans().rollback("work", *before_b.unwrap(), &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(states(&now(&bench)), ["both running", "both/a running", "both/b pending"]);
    let error = bench.manager.plans().resume("work", &RunOptions::default(), &Unseen, &Silent).unwrap_err();
    assert!(matches!(&error, Error::StepInterrupted { steps, .. } if steps == &["both/a"]), "{error}");
    let again = RunOptions { interrupted: Some(Interrupted::Rerun), ..RunOptions::default() };
    let report = bench.manager.plans().resume("work", &again, &Unseen, &Silent).unwrap();
    assert_eq!(report.outcome, RunOutcome::Done);
    let mut lines: Vec<String> = bench.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["a", "b"]);
}
