//! `plan decide`, `plan context` and `plan output`: what was decided, what the plan knows, what it gives.

use super::{Opened, decision_id, fits, json_value};
use crate::args::plan::{ContextCommand, DecideArgs, KeyArgs, OutputCommand, ValueArgs};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::NewDecision;
use serde_json::{Value, json};

pub(crate) fn decide(context: &Context, args: &DecideArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    let new = NewDecision {
        question: args.question.clone(),
        choice: args.choice.clone(),
        alternatives: args.alternatives.clone(),
        rationale: args.why.clone(),
        parent: args.parent.as_deref().map(decision_id).transpose()?,
        depends_on: args.depends_on.iter().map(|given| decision_id(given)).collect::<Result<_, _>>()?,
        step: args.step.clone(),
    };
    let (record, id) = opened.manager.plans().decide(&args.plan.plan, new)?;
    opened.record = record;
    let out = &context.out;
    if out.quiet {
        out.line(id);
    } else {
        let (question, choice) = (printable(&args.question), printable(&args.choice));
        out.line(format!("Decision {}: {question} {choice}", out.colours.bold(id)));
    }
    let decision = opened.record.plan.decisions.iter().find(|made| made.id == id);
    Ok(Reply::done(json!({ "plan": opened.json(), "decision": decision })))
}

pub(crate) fn context(context: &Context, command: &ContextCommand) -> Result<Reply, Problem> {
    match command {
        ContextCommand::Set(args) => {
            let value = checked(args)?;
            let mut opened = Opened::new(context, &args.key.plan.plan)?;
            opened.record = opened.manager.plans().set_context(
                &opened.record.plan.id,
                &args.key.key,
                Some(value.clone()),
            )?;
            Ok(set(context, &opened, &args.key.key, &value))
        }
        ContextCommand::Get(args) => get(context, args),
        ContextCommand::Unset(args) => {
            let mut opened = Opened::new(context, &args.plan.plan)?;
            known(&opened, &args.key)?;
            opened.record = opened.manager.plans().set_context(&opened.record.plan.id, &args.key, None)?;
            context.out.remark(format!("Forgot {}", printable(&args.key)));
            Ok(Reply::done(json!({ "plan": opened.json(), "key": args.key })))
        }
    }
}

pub(crate) fn output(context: &Context, command: &OutputCommand) -> Result<Reply, Problem> {
    let OutputCommand::Set(args) = command;
    let value = checked(args)?;
    let mut opened = Opened::new(context, &args.key.plan.plan)?;
    opened.record =
        opened.manager.plans().set_output(&opened.record.plan.id, &args.key.key, value.clone())?;
    Ok(set(context, &opened, &args.key.key, &value))
}

fn checked(args: &ValueArgs) -> Result<Value, Problem> {
    let value = json_value("the value", &args.value)?;
    fits(&args.key.key, &value)?;
    Ok(value)
}

fn set(context: &Context, opened: &Opened, key: &str, value: &Value) -> Reply {
    context.out.remark(format!("{} = {}", printable(key), printable(&value.to_string())));
    Reply::done(json!({ "plan": opened.json(), "key": key, "value": value }))
}

fn get(context: &Context, args: &KeyArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    let value = known(&opened, &args.key)?;
    context.out.line(json::value(value));
    Ok(Reply::done(json!({ "key": args.key, "value": value })))
}

fn known<'o>(opened: &'o Opened, key: &str) -> Result<&'o Value, Problem> {
    let plan = &opened.record.plan;
    plan.context.get(key).ok_or_else(|| Problem::no_key(&plan.id, key))
}
