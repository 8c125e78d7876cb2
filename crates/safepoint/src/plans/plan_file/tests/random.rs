//! Random plans survive both formats.

use super::*;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..10).prop_map(|chars| {
        let text: String = chars.into_iter().filter(|char| *char != '\0').collect();
        format!("x{text}")
    })
}

fn span() -> impl Strategy<Value = Option<Span>> {
    option::of((1..10_000_000u64).prop_map(Span::from_seconds))
}

/// Values without null: TOML has none.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(text(), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn step() -> impl Strategy<Value = StepSpec> {
    let commands = (option::of(text()), option::of(text()), option::of(text()), option::of(text()));
    let rest =
        (any::<bool>(), span(), any::<u32>(), select(OnInterrupt::ALL), option::of(select(Phase::ALL)));
    let env = btree_map("[A-Z_][A-Z0-9_]{0,6}", text(), 0..3);
    let leaf = (commands, rest, env).prop_map(|((title, run, verify, undo), rest, env)| {
        let (risky, timeout, retries, on_interrupt, phase) = rest;
        let step = StepSpec { title, run, verify, undo, risky, timeout, retries, ..StepSpec::default() };
        StepSpec { on_interrupt, phase, env, ..step }
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
    let milestones = (btree_set(select(Milestone::ALL), 0..5), span(), option::of(1..u64::MAX))
        .prop_map(|(on, every, every_steps)| Milestones { on, every, every_steps });
    let id = option::of("[a-z0-9][a-z0-9._-]{0,8}");
    let context = btree_map(text(), value(), 0..4);
    (text(), id, select(SandboxKind::ALL), milestones, vec(step(), 0..4), context).prop_map(
        |(title, id, sandbox, checkpoints, mut steps, context)| {
            name_them(&mut steps);
            PlanSpec { title, id, sandbox, checkpoints, steps, context }
        },
    )
}

/// Formats a string as TOML.
fn quoted(text: &str) -> String {
    let escape = |char: char| match char {
        '"' | '\\' => format!("\\{char}"),
        char if char.is_control() => format!("\\U{:08x}", u32::from(char)),
        char => char.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Formats a value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| format!("{} = {}", quoted(key), inline(value));
            format!("{{ {} }}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Formats a plan as TOML, with its steps under headers.
fn to_toml(spec: &PlanSpec) -> String {
    let Value::Object(mut plan) = serde_json::to_value(spec).unwrap() else { panic!("not an object") };
    let steps = plan.remove("steps");
    let mut text: String = plan.iter().map(|(key, value)| format!("{key} = {}\n", inline(value))).collect();
    write_steps(&mut text, "step", steps.as_ref());
    text
}

fn write_steps(text: &mut String, path: &str, steps: Option<&Value>) {
    for step in steps.and_then(Value::as_array).into_iter().flatten() {
        writeln!(text, "[[{path}]]").unwrap();
        let step = step.as_object().unwrap();
        for (key, value) in step.iter().filter(|(key, _)| *key != "steps") {
            writeln!(text, "{key} = {}", inline(value)).unwrap();
        }
        write_steps(text, &format!("{path}.step"), step.get("steps"));
    }
}

proptest! {
    #[test]
    fn a_plan_survives_both_notations(spec in spec()) {
        let toml = to_toml(&spec);
        prop_assert_eq!(parse(&toml), Ok(spec.clone()), "{}", toml);
        let pretty = serde_json::to_string_pretty(&spec).unwrap();
        prop_assert_eq!(parse(&pretty), Ok(spec.clone()));
        let canonical = document::encode(&spec).unwrap();
        prop_assert_eq!(PlanFile::parse(&canonical, Some(PlanFormat::Json)).unwrap().spec, spec);
    }

    #[test]
    fn any_text_is_a_plan_or_an_error(text in ".{0,80}", json in any::<bool>()) {
        let format = if json { PlanFormat::Json } else { PlanFormat::Toml };
        let _ = PlanFile::parse(text.as_bytes(), Some(format));
    }

    /// The walk agrees with `serde_json`, even for cut or changed text.
    #[test]
    fn a_changed_byte_is_a_plan_or_an_error(at in 0..1000usize, byte in any::<u8>(), cut in any::<bool>()) {
        for text in examples().into_values() {
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            let parsed = PlanFile::parse(&bytes, None);
            let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { continue };
            if let Ok(node) = json::parse(std::str::from_utf8(&bytes).unwrap()) {
                prop_assert_eq!(node.to_json().unwrap(), value);
            }
            if let Ok(file) = parsed {
                prop_assert_eq!(file.spec.check(), Ok(()));
            }
        }
    }
}
