use super::*;
use crate::document;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

fn plan(steps: Vec<StepSpec>) -> PlanSpec {
    PlanSpec { steps, ..PlanSpec::new("t") }
}

fn with_steps(id: &str, steps: Vec<StepSpec>) -> StepSpec {
    StepSpec { steps, ..StepSpec::new(id) }
}

fn problems(plan: &PlanSpec) -> Vec<String> {
    plan.check().err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn every_word_reads_back_and_json_uses_the_same() {
    fn words<T>(all: &[T])
    where
        T: FromStr<Err = ModelError> + fmt::Display + PartialEq + fmt::Debug + Serialize,
    {
        for word in all {
            assert_eq!(&word.to_string().parse::<T>().unwrap(), word);
            assert_eq!(serde_json::to_value(word).unwrap(), word.to_string());
        }
        assert!("nonsense".parse::<T>().unwrap_err().to_string().contains("expected one of"));
    }
    words(SandboxKind::ALL);
    words(Milestone::ALL);
    words(OnInterrupt::ALL);
    assert_eq!(SandboxKind::default().as_str(), "in-place");
    assert_eq!(OnInterrupt::default(), OnInterrupt::Ask);
}

#[test]
fn what_is_not_said_has_its_default() {
    let spec: PlanSpec = serde_json::from_value(json!({"title": "t", "steps": [{"id": "a"}]})).unwrap();
    assert_eq!(spec, plan(vec![StepSpec::new("a")]));
    let on: Vec<&str> = spec.checkpoints.on.iter().map(|milestone| milestone.as_str()).collect();
    assert_eq!(on, ["before_step", "after_subplan", "on_error"]);
    assert!(spec.checkpoints.has(Milestone::OnError) && !spec.checkpoints.has(Milestone::AfterStep));
    let json = serde_json::to_value(&spec).unwrap();
    let expected = json!({
        "title": "t",
        "sandbox": {"kind": "in-place"},
        "checkpoints": {"on": ["before_step", "after_subplan", "on_error"]},
        "steps": [{"id": "a", "on_interrupt": "ask"}],
    });
    assert_eq!(json, expected);
}

#[test]
fn an_empty_list_turns_milestones_off() {
    let none: Milestones = serde_json::from_value(json!({"on": []})).unwrap();
    assert_eq!(none, Milestones::none());
    assert_eq!(serde_json::to_value(&none).unwrap(), json!({"on": []}));
    assert!(serde_json::from_value::<Milestones>(json!({"on": ["sometimes"]})).is_err());
}

#[test]
fn what_nobody_knows_is_refused() {
    for json in [
        json!({"title": "t", "odd": 1}),
        json!({"title": "t", "sandbox": {"odd": 1}}),
        json!({"title": "t", "checkpoints": {"odd": 1}}),
        json!({"title": "t", "steps": [{"id": "a", "odd": 1}]}),
        json!({}),
        json!({"title": "t", "steps": [{}]}),
    ] {
        assert!(serde_json::from_value::<PlanSpec>(json.clone()).is_err(), "{json}");
    }
}

#[test]
fn names_are_slugs() {
    let longest = "a".repeat(64);
    for good in ["a", "0", "api", "a.b_c-d", longest.as_str()] {
        assert!(is_slug(good), "{good}");
    }
    let longer = "a".repeat(65);
    for bad in ["", "-a", ".", "_a", "A", "a b", "a/b", "ä", "a\n", longer.as_str()] {
        assert!(!is_slug(bad), "{bad:?}");
    }
    for (name, good) in [
        ("A", true),
        ("_", true),
        ("a1", true),
        ("1a", false),
        ("", false),
        ("a-b", false),
        ("SAFEPOINT_X", false),
    ] {
        assert_eq!(is_env_name(name), good, "{name}");
    }
}

#[test]
fn each_rule_has_its_problem() {
    let step = |change: &dyn Fn(&mut StepSpec)| {
        let mut step = StepSpec::new("s");
        change(&mut step);
        problems(&plan(vec![step]))
    };
    let of_plan = |change: &dyn Fn(&mut PlanSpec)| {
        let mut spec = plan(vec![]);
        change(&mut spec);
        problems(&spec)
    };
    let slug = format!("`id`: {SLUG}");
    let zero = Some(Span::ZERO);
    let deep = |levels| (0..levels).fold(json!(1), |value, _| json!([value]));
    assert_eq!(of_plan(&|_| ()), [""; 0]);
    assert_eq!(of_plan(&|plan| plan.title = " ".into()), ["`title`: the title is empty"]);
    assert_eq!(of_plan(&|plan| plan.title = "a\0".into()), ["`title`: text must not contain NUL"]);
    assert_eq!(of_plan(&|plan| plan.id = Some("A".into())), [slug]);
    assert_eq!(of_plan(&|plan| plan.checkpoints.every = zero), ["`checkpoints.every`: must be at least 1s"]);
    assert_eq!(
        of_plan(&|plan| plan.checkpoints.every_steps = Some(0)),
        ["`checkpoints.every_steps`: must be at least 1"]
    );
    assert_eq!(
        of_plan(&|plan| drop(plan.context.insert("a\0".into(), json!(1)))),
        ["`context.a\\0`: a key must not be empty or contain NUL"]
    );
    assert_eq!(of_plan(&|plan| drop(plan.context.insert("a".into(), deep(32)))), [""; 0]);
    assert_eq!(
        of_plan(&|plan| drop(plan.context.insert("a".into(), json!({"b": deep(32)})))),
        ["`context.a`: values may nest at most 32 levels deep"]
    );
    assert_eq!(step(&|_| ()), [""; 0], "a step that is done outside the runner");
    assert_eq!(step(&|step| step.id = "S".into()), [format!("`id` in step `#1`: {SLUG}")]);
    assert_eq!(step(&|step| step.title = Some(String::new())), ["`title` in step `s`: the title is empty"]);
    assert_eq!(step(&|step| step.run = Some("\n".into())), ["`run` in step `s`: the command is empty"]);
    assert_eq!(
        step(&|step| step.verify = Some("\0".into())),
        ["`verify` in step `s`: text must not contain NUL"]
    );
    assert_eq!(step(&|step| step.undo = Some(String::new())), ["`undo` in step `s`: the command is empty"]);
    assert_eq!(step(&|step| step.timeout = zero), ["`timeout` in step `s`: must be at least 1s"]);
    assert_eq!(
        step(&|step| step.parallel = Some(2)),
        ["`parallel` in step `s`: only a step that contains steps can run them in parallel"]
    );
    let below = || vec![StepSpec::new("b")];
    assert_eq!(
        step(&|step| (step.parallel, step.steps) = (Some(0), below())),
        ["`parallel` in step `s`: must be at least 1"]
    );
    assert_eq!(
        step(&|step| (step.run, step.steps) = (Some("x".into()), below())),
        ["`run` in step `s`: a step runs a command or contains steps, not both"]
    );
    assert_eq!(
        step(&|step| (step.verify, step.undo, step.steps) = (Some("x".into()), Some("x".into()), below())),
        [""; 0]
    );
    assert_eq!(
        step(&|step| step.env = [("SAFEPOINT_X".into(), "1".into()), ("a b".into(), "\0".into())].into()),
        [
            "`env.SAFEPOINT_X` in step `s`: variables that begin with SAFEPOINT_ are reserved",
            "`env.a b` in step `s`: a variable name has letters, digits and `_`, and does not begin with a digit",
            "`env.a b` in step `s`: text must not contain NUL",
        ]
    );
}

#[test]
fn a_name_is_taken_among_siblings_only() {
    let handlers = || with_steps("handlers", vec![StepSpec::new("api")]);
    assert_eq!(
        problems(&plan(vec![with_steps("api", vec![handlers()]), StepSpec::new("handlers")])),
        [""; 0]
    );
    let twice =
        plan(vec![StepSpec::new("a"), with_steps("api", vec![handlers(), StepSpec::new("x"), handlers()])]);
    let found = twice.check().unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].at.as_slice(), found[0].first.as_deref()),
        ([1, 2].as_slice(), Some([1, 0].as_slice()))
    );
    assert_eq!(found[0].to_string(), "`id` in step `api/handlers`: a sibling step has the same name");
}

#[test]
fn steps_are_neither_too_deep_nor_too_many() {
    let deep = |levels: usize| (1..levels).fold(StepSpec::new("s"), |step, _| with_steps("s", vec![step]));
    let deepest = plan(vec![deep(STEP_DEPTH_MAX)]);
    assert_eq!(problems(&deepest), [""; 0]);
    // At the maximum depth it is still parsable JSON, also inside a response.
    let answer = document::encode(&json!({"data": {"plan": {"state": deepest}}})).unwrap();
    document::decode::<Value>(&answer).unwrap();
    for levels in [STEP_DEPTH_MAX + 1, 500] {
        let found = plan(vec![deep(levels)]).check().unwrap_err();
        assert_eq!((found.len(), found[0].at.len()), (1, STEP_DEPTH_MAX));
        assert_eq!(found[0].why, "steps may nest at most 48 levels deep");
    }
    let many = |count: usize| plan((0..count).map(|at| StepSpec::new(at.to_string())).collect());
    assert_eq!(problems(&many(STEPS_MAX)), [""; 0]);
    assert_eq!(
        problems(&many(STEPS_MAX + 2)),
        ["`steps` in step `100000`: a plan may have at most 100000 steps"]
    );
}

#[test]
fn a_plan_that_breaks_every_rule_is_not_judged_for_ever() {
    let bad = plan((0..50_000).map(|_| StepSpec::new("S")).collect());
    assert_eq!(bad.check().unwrap_err().len(), PROBLEMS_MAX);
}

fn word<T: Copy + fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(|chars| {
        let text: String = chars.into_iter().filter(|char| *char != '\0').collect();
        format!("x{text}")
    })
}

fn span() -> impl Strategy<Value = Option<Span>> {
    option::of((1..10_000_000u64).prop_map(Span::from_seconds))
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn step() -> impl Strategy<Value = StepSpec> {
    let commands = (option::of(text()), option::of(text()), option::of(text()), option::of(text()));
    let rest = (any::<bool>(), span(), any::<u32>(), word(OnInterrupt::ALL), option::of(word(Phase::ALL)));
    let env = btree_map("[A-Z_][A-Z0-9_]{0,6}", text(), 0..3);
    let leaf = (commands, rest, env).prop_map(|((title, run, verify, undo), rest, env)| {
        let (risky, timeout, retries, on_interrupt, phase) = rest;
        let id = String::new();
        let (parallel, steps) = (None, Vec::new());
        StepSpec {
            id,
            title,
            run,
            verify,
            undo,
            risky,
            timeout,
            retries,
            on_interrupt,
            idempotent: risky,
            phase,
            parallel,
            env,
            steps,
        }
    });
    leaf.prop_recursive(4, 12, 4, |inner| {
        (inner.clone(), vec(inner, 1..4), option::of(1..9u32)).prop_map(|(mut step, steps, parallel)| {
            (step.run, step.steps, step.parallel) = (None, steps, parallel);
            step
        })
    })
}

fn name_them(steps: &mut [StepSpec]) {
    for (index, step) in steps.iter_mut().enumerate() {
        step.id = format!("s.{index}");
        name_them(&mut step.steps);
    }
}

fn spec() -> impl Strategy<Value = PlanSpec> {
    let milestones = (btree_set(word(Milestone::ALL), 0..5), span(), option::of(1..u64::MAX))
        .prop_map(|(on, every, every_steps)| Milestones { on, every, every_steps });
    let id = option::of("[a-z0-9][a-z0-9._-]{0,8}");
    let context = btree_map(text(), json_value(), 0..4);
    (text(), id, word(SandboxKind::ALL), milestones, vec(step(), 0..4), context).prop_map(
        |(title, id, sandbox, checkpoints, mut steps, context)| {
            name_them(&mut steps);
            PlanSpec { title, id, sandbox, checkpoints, steps, context }
        },
    )
}

proptest! {
    #[test]
    fn a_plan_reads_back_from_its_canonical_bytes(spec in spec()) {
        prop_assert_eq!(spec.check(), Ok(()));
        let bytes = document::encode(&spec).unwrap();
        let back: PlanSpec = document::decode(&bytes).unwrap();
        prop_assert_eq!(document::encode(&back).unwrap(), bytes);
        prop_assert_eq!(back, spec);
    }
}
