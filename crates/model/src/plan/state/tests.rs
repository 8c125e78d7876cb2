use super::*;
use crate::checkpoint::Phase;
use crate::plan::spec::Milestone;
use proptest::prelude::*;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn step(id: &str, steps: Vec<StepSpec>) -> StepSpec {
    StepSpec { steps, ..StepSpec::new(id) }
}

/// `one`, then `api` with `a` and with `deep` that contains `b` and `c`, then `last`.
fn plan() -> Plan {
    let deep = step("deep", vec![step("b", vec![]), step("c", vec![])]);
    let api = step("api", vec![step("a", vec![]), deep]);
    let spec =
        PlanSpec { steps: vec![step("one", vec![]), api, step("last", vec![])], ..PlanSpec::new("Work") };
    Plan::new("work".to_owned(), &spec)
}

fn id(name: &str) -> DecisionId {
    DecisionId::from_bits(name.bytes().fold(0, |bits, byte| bits << 8 | u128::from(byte)))
}

fn decision(name: &str, parent: Option<&str>) -> Decision {
    Decision {
        id: id(name),
        question: "which?".to_owned(),
        choice: "this".to_owned(),
        alternatives: vec!["that".to_owned()],
        rationale: None,
        parent: parent.map(id),
        depends_on: Vec::new(),
        step: None,
        made_at: at(0),
    }
}

fn run(plan: &mut Plan, path: &str, second: i64) -> Vec<Happening> {
    let mut happened = plan.start(path, at(second)).unwrap();
    happened.extend(plan.finish(path, Some(json!(second)), at(second + 1)).unwrap());
    happened
}

#[test]
fn a_plan_goes_through_its_steps_in_order() {
    let mut plan = plan();
    assert_eq!((plan.state, plan.next()), (PlanState::Ready, vec!["one"]));
    run(&mut plan, "one", 1);
    assert_eq!(plan.next(), ["api/a"]);
    let path = |path: &str| path.to_owned();
    assert_eq!(
        run(&mut plan, "api/a", 3),
        [
            Happening::SubplanStarts { path: path("api") },
            Happening::StepStarts { path: path("api/a"), risky: false },
            Happening::StepDone { path: path("api/a") },
        ]
    );
    run(&mut plan, "api/deep/b", 5);
    assert_eq!(
        run(&mut plan, "api/deep/c", 7)[1..],
        [
            Happening::StepDone { path: path("api/deep/c") },
            Happening::SubplanDone { path: path("api/deep") },
            Happening::SubplanDone { path: path("api") },
        ]
    );
    assert_eq!((plan.state, plan.step_index()), (PlanState::Running, 4));
    assert_eq!(run(&mut plan, "last", 9).last(), Some(&Happening::PlanDone));
    assert_eq!((plan.state, plan.step_index()), (PlanState::Done, 5));
    plan.go(PlanState::Applied).unwrap();
    assert_eq!(plan.start("one", at(11)), Err(PlanRule::Over(PlanState::Applied)));
    assert_eq!(plan.decide(decision("d", None)), Err(PlanRule::Over(PlanState::Applied)));
    assert_eq!(plan.append(None, &step("more", vec![])), Err(PlanRule::Over(PlanState::Applied)));
    assert_eq!(plan.go(PlanState::Cancelled), Err(PlanRule::Over(PlanState::Applied)));
}

#[test]
fn what_may_not_begin_says_what_comes_first() {
    let mut plan = plan();
    let early =
        |first: &str, path: &str| PlanRule::TooEarly { path: path.to_owned(), first: first.to_owned() };
    assert_eq!(plan.start("last", at(1)), Err(early("one", "last")));
    assert_eq!(plan.start("api/deep/b", at(1)), Err(early("one", "api/deep/b")));
    assert_eq!(plan.start("api", at(1)), Err(PlanRule::Subplan { path: "api".to_owned() }));
    let wrong = plan.start("b", at(1)).unwrap_err();
    assert_eq!(wrong.to_string(), "the plan has no step \"b\"; did you mean \"api/deep/b\"?");
    assert_eq!(plan.start("x", at(1)).unwrap_err().to_string(), "the plan has no step \"x\"");
    let not_running = plan.finish("one", None, at(1)).unwrap_err();
    assert_eq!(not_running.to_string(), "step one is pending and cannot become done");
    run(&mut plan, "one", 1);
    assert_eq!(
        plan.start("one", at(3)).unwrap_err().to_string(),
        "step one is done and cannot become running"
    );
    assert_eq!(plan.start("api/deep/b", at(3)), Err(early("api/a", "api/deep/b")));
    assert_eq!(plan.fail("api", "x", at(3)), Err(PlanRule::Subplan { path: "api".to_owned() }));
}

#[test]
fn a_failure_is_that_of_everything_around_it_and_can_be_tried_again() {
    let mut plan = plan();
    run(&mut plan, "one", 1);
    plan.start("api/a", at(3)).unwrap();
    let happened = plan.fail("api/a", "it broke", at(4)).unwrap();
    assert_eq!(happened, [Happening::StepFailed { path: "api/a".to_owned() }]);
    assert_eq!((plan.state, plan.is_healthy()), (PlanState::Failed, false));
    let api = plan.find("api").unwrap();
    assert_eq!(plan.steps[api].state, StepState::Failed);
    run(&mut plan, "api/a", 5);
    assert_eq!((plan.state, plan.is_healthy()), (PlanState::Running, true));
    let a = &plan.steps[plan.find("api/a").unwrap()];
    assert_eq!((a.attempts, a.error.clone(), a.output.clone()), (2, None, Some(json!(5))));
}

#[test]
fn what_was_under_way_when_the_process_died_is_interrupted() {
    let mut plan = plan();
    run(&mut plan, "one", 1);
    plan.start("api/a", at(3)).unwrap();
    assert_eq!(plan.interrupt(at(4)), Vec::<String>::new(), "it runs outside the runner and may continue");
    let a = plan.find("api/a").unwrap();
    plan.steps[a].spec.run = Some("true".to_owned());
    assert_eq!(plan.interrupt(at(4)), ["api/a"]);
    assert_eq!((plan.state, plan.is_healthy()), (PlanState::Paused, false));
    assert_eq!(plan.state_of("api"), Some(StepState::Interrupted));
    assert_eq!(plan.interrupt(at(5)), Vec::<String>::new());
    let mut known = plan.clone();
    known.finish("api/a", None, at(6)).unwrap();
    assert!(known.is_healthy(), "it is known to be done");
    assert_eq!((known.state, known.state_of("api")), (PlanState::Paused, Some(StepState::Running)));
    let mut bad = plan.clone();
    bad.fail("api/a", "it was not done", at(6)).unwrap();
    assert_eq!((bad.state, bad.state_of("api")), (PlanState::Failed, Some(StepState::Failed)));
    run(&mut plan, "api/a", 6);
    assert!(plan.is_healthy());
    assert_eq!(plan.interrupt(at(7)), Vec::<String>::new(), "no step was running");
    assert_eq!(plan.state, PlanState::Paused);
}

#[test]
fn steps_side_by_side_are_as_many_as_may() {
    let many = StepSpec {
        parallel: Some(2),
        ..step("many", (0..4).map(|n| step(&format!("s{n}"), vec![])).collect())
    };
    let spec = PlanSpec { steps: vec![many, step("after", vec![])], ..PlanSpec::new("Side by side") };
    let mut plan = Plan::new("p".to_owned(), &spec);
    plan.start("many/s2", at(1)).unwrap();
    assert_eq!(plan.next(), ["many/s0", "many/s1", "many/s3"]);
    plan.start("many/s0", at(1)).unwrap();
    assert!(plan.next().is_empty());
    let full = plan.start("many/s1", at(1)).unwrap_err();
    assert_eq!(full, PlanRule::TooMany { path: "many/s1".to_owned(), running: 2, allowed: 2 });
    assert!(matches!(plan.start("after", at(1)), Err(PlanRule::TooEarly { .. })));
    plan.finish("many/s2", None, at(2)).unwrap();
    plan.start("many/s1", at(2)).unwrap();
}

#[test]
fn decisions_form_a_tree_and_what_depends_on_one_is_found() {
    let mut plan = plan();
    plan.decide(decision("a", None)).unwrap();
    plan.decide(decision("b", Some("a"))).unwrap();
    plan.decide(decision("other", None)).unwrap();
    plan.decide(Decision { depends_on: vec![id("b")], ..decision("c", Some("other")) }).unwrap();
    assert_eq!(plan.depending_on(id("a")).unwrap(), ["a", "b", "c"].map(id));
    assert_eq!(plan.depending_on(id("other")).unwrap(), ["other", "c"].map(id));
    let unknown = Err(PlanRule::NoDecision { id: id("x").to_string() });
    assert_eq!(plan.depending_on(id("x")).map(drop), unknown);
    assert_eq!(plan.decide(decision("a", None)), Err(PlanRule::DecisionTaken { id: id("a") }));
    assert_eq!(plan.decide(decision("d", Some("x"))), unknown);
    let nowhere = Decision { step: Some("nowhere".to_owned()), ..decision("d", None) };
    assert!(matches!(plan.decide(nowhere), Err(PlanRule::NoStep { .. })));
}

#[test]
fn an_appended_step_opens_what_was_done() {
    let mut plan = plan();
    for (second, path) in (1..).step_by(2).zip(["one", "api/a", "api/deep/b", "api/deep/c", "last"]) {
        run(&mut plan, path, second);
    }
    assert_eq!(plan.append(Some("api/deep"), &step("d", vec![])).unwrap(), "api/deep/d");
    assert_eq!((plan.state, plan.next()), (PlanState::Paused, vec!["api/deep/d"]));
    assert_eq!(plan.append(None, &step("end", vec![step("x", vec![])])).unwrap(), "end");
    assert_eq!(plan.append(None, &step("end", vec![])), Err(PlanRule::StepTaken { path: "end".to_owned() }));
    assert!(matches!(plan.append(Some("nowhere"), &step("x", vec![])), Err(PlanRule::NoStep { .. })));
    run(&mut plan, "api/deep/d", 20);
    run(&mut plan, "end/x", 22);
    assert_eq!(plan.state, PlanState::Done);
    let mut empty = Plan::new("e".to_owned(), &PlanSpec::new("Nothing yet"));
    assert_eq!((empty.state, empty.next().len()), (PlanState::Draft, 0));
    assert_eq!(
        empty.go(PlanState::Running),
        Err(PlanRule::Transition { from: PlanState::Draft, to: PlanState::Running })
    );
    empty.append(None, &step("s", vec![])).unwrap();
    assert_eq!(empty.state, PlanState::Ready);
}

#[test]
fn going_back_takes_back_what_came_since_newest_first() {
    let mut plan = plan();
    run(&mut plan, "one", 1);
    plan.decide(decision("before", None)).unwrap();
    let then = plan.clone();
    assert_eq!(plan.taken_back_by(&then), TakenBack::default());
    run(&mut plan, "api/a", 3);
    plan.decide(decision("since", Some("before"))).unwrap();
    plan.start("api/deep/b", at(5)).unwrap();
    plan.fail("api/deep/b", "no", at(6)).unwrap();
    let back = plan.taken_back_by(&then);
    assert_eq!(back.decisions, [id("since")]);
    assert_eq!(back.subplans, ["api", "api/deep"]);
    assert_eq!(back.steps, ["api/deep/b", "api/a"]);
}

#[test]
fn milestones_come_due_when_they_are_asked_for() {
    let only = |milestone| Milestones { on: [milestone].into(), every: None, every_steps: None };
    let starts = |risky| Happening::StepStarts { path: "s".to_owned(), risky };
    let path = || "s".to_owned();
    for (happening, milestone, before) in [
        (starts(false), Milestone::BeforeStep, true),
        (starts(true), Milestone::BeforeRisky, true),
        (Happening::StepDone { path: path() }, Milestone::AfterStep, false),
        (Happening::StepFailed { path: path() }, Milestone::OnError, false),
        (Happening::SubplanStarts { path: path() }, Milestone::BeforeSubplan, true),
        (Happening::SubplanDone { path: path() }, Milestone::AfterSubplan, false),
        (Happening::PhaseDone { phase: Phase::Plan }, Milestone::PhaseComplete, false),
    ] {
        assert!(happening.is_due(&only(milestone)), "{happening:?}");
        assert!(!happening.is_due(&Milestones::none()), "{happening:?}");
        assert_eq!(happening.is_before(), before);
    }
    assert!(!starts(false).is_due(&only(Milestone::BeforeRisky)));
    assert!(!Happening::PlanDone.is_due(&Milestones::default()));
}

#[test]
fn a_subplan_with_a_check_is_done_when_the_check_says_so() {
    let mut plan = plan();
    let api = plan.find("api").unwrap();
    plan.steps[api].spec.verify = Some("make test".to_owned());
    for (second, path) in [(1, "one"), (3, "api/a"), (5, "api/deep/b")] {
        run(&mut plan, path, second);
    }
    assert_eq!(plan.to_verify(), Vec::<&str>::new());
    assert!(plan.verified("api", at(6)).is_err() && plan.refuted("api", "no", at(6)).is_err());
    plan.start("api/deep/c", at(7)).unwrap();
    let happened = plan.finish_unverified("api/deep/c", None, at(8)).unwrap();
    assert_eq!(happened.last(), Some(&Happening::SubplanDone { path: "api/deep".to_owned() }));
    assert_eq!((plan.to_verify(), plan.next()), (vec!["api"], vec![]));
    let failed = plan.refuted("api", "a test failed", at(9)).unwrap();
    assert_eq!(failed, [Happening::StepFailed { path: "api".to_owned() }]);
    assert_eq!((plan.state, plan.is_healthy(), plan.to_verify()), (PlanState::Failed, false, vec!["api"]));
    let happened = plan.verified("api", at(10)).unwrap();
    assert_eq!(happened, [Happening::SubplanDone { path: "api".to_owned() }]);
    assert_eq!((plan.next(), plan.to_verify()), (vec!["last"], vec![]));
    assert!(plan.verified("api", at(11)).is_err(), "a second verification is refused");
}

#[test]
fn a_check_at_the_very_end_ends_the_plan_also_after_it_failed() {
    let only = StepSpec { verify: Some("true".to_owned()), ..step("all", vec![step("a", vec![])]) };
    let mut plan = Plan::new("p".to_owned(), &PlanSpec { steps: vec![only], ..PlanSpec::new("Checked") });
    plan.start("all/a", at(1)).unwrap();
    plan.finish_unverified("all/a", None, at(2)).unwrap();
    plan.refuted("all", "no", at(3)).unwrap();
    assert_eq!(plan.verified("all", at(4)).unwrap().last(), Some(&Happening::PlanDone));
    assert_eq!((plan.state, plan.is_healthy()), (PlanState::Done, true));
}

#[test]
fn a_step_is_tried_again_only_while_it_is_under_way() {
    let mut plan = plan();
    assert!(plan.retry("one").is_err());
    plan.start("one", at(1)).unwrap();
    plan.retry("one").unwrap();
    assert_eq!(plan.steps[0].attempts, 2);
    plan.finish("one", None, at(2)).unwrap();
    assert!(plan.retry("one").is_err() && plan.retry("nowhere").is_err());
}

#[test]
fn a_phase_ends_with_its_last_step() {
    let of = |id: &str, phase| StepSpec { phase: Some(phase), ..step(id, vec![]) };
    let steps = vec![of("a", Phase::Implement), of("b", Phase::Implement), of("c", Phase::Validate)];
    let mut plan = Plan::new("p".to_owned(), &PlanSpec { steps, ..PlanSpec::new("Phases") });
    assert!(!run(&mut plan, "a", 1).contains(&Happening::PhaseDone { phase: Phase::Implement }));
    assert!(run(&mut plan, "b", 3).contains(&Happening::PhaseDone { phase: Phase::Implement }));
}

/// Operation on a plan.
#[derive(Debug, Clone)]
enum Deed {
    Start(usize),
    Finish(usize),
    Fail(usize),
    Interrupt,
    Refute(usize),
    Verify(usize),
    Append(usize),
    Go(PlanState),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (0usize..12).prop_map(Deed::Start),
        6 => (0usize..12).prop_map(Deed::Finish),
        1 => (0usize..12).prop_map(Deed::Fail),
        1 => Just(Deed::Interrupt),
        1 => (0usize..12).prop_map(Deed::Refute),
        2 => (0usize..12).prop_map(Deed::Verify),
        1 => (0usize..4).prop_map(Deed::Append),
        1 => prop::sample::select(PlanState::ALL.to_vec()).prop_map(Deed::Go),
    ]
}

proptest! {
    /// For any order: refused operations change nothing, and each parent agrees with its steps.
    #[test]
    fn no_order_of_deeds_breaks_a_plan(deeds in prop::collection::vec(deed(), 0..80), parallel in 1u32..4) {
        let wide = StepSpec { parallel: Some(parallel), ..step("wide", (0..4).map(|n| step(&format!("w{n}"), vec![])).collect()) };
        let mut plan = plan();
        plan.append(None, &wide).unwrap();
        let api = plan.find("api").unwrap();
        plan.steps[api].spec.verify = Some("true".to_owned());
        let a = plan.find("api/a").unwrap();
        plan.steps[a].spec.run = Some("true".to_owned());
        for (second, deed) in (1..).zip(deeds) {
            let before = plan.clone();
            let path = |n: usize| before.steps[n % before.steps.len()].path.clone();
            let ok = match deed {
                Deed::Start(n) => plan.start(&path(n), at(second)).is_ok(),
                Deed::Finish(n) => plan.finish_unverified(&path(n), None, at(second)).is_ok(),
                Deed::Refute(n) => plan.refuted(&path(n), "no", at(second)).is_ok(),
                Deed::Verify(n) => plan.verified(&path(n), at(second)).is_ok(),
                Deed::Fail(n) => plan.fail(&path(n), "no", at(second)).is_ok(),
                Deed::Interrupt => { plan.interrupt(at(second)); true }
                Deed::Append(n) => plan.append(None, &step(&format!("x{n}"), vec![])).is_ok(),
                Deed::Go(state) => plan.go(state).is_ok(),
            };
            if !ok {
                prop_assert_eq!(&plan, &before);
            }
            for (number, step) in plan.steps.iter().enumerate() {
                let below: Vec<&Step> = plan.steps.iter().filter(|it| it.parent() == Some(&step.path)).collect();
                if !below.is_empty() {
                    prop_assert!(plan.has_below(number));
                    let all_done = below.iter().all(|it| it.state == StepState::Done);
                    prop_assert!(step.state != StepState::Done || all_done, "{}", step.path);
                    let allowed = step.spec.parallel.unwrap_or(1) as usize;
                    prop_assert!(below.iter().filter(|it| it.state == StepState::Running).count() <= allowed);
                }
            }
            prop_assert!(plan.state != PlanState::Done || plan.steps.iter().all(|it| it.state == StepState::Done));
            let text = crate::document::encode(&plan).unwrap();
            prop_assert_eq!(&crate::document::decode::<Plan>(&text).unwrap(), &plan);
        }
    }
}
