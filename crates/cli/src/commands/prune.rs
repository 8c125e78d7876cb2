//! `prune`: applies retention on request, with the reason for each checkpoint.

use crate::args::PruneArgs;
use crate::commands::Context;
use crate::commands::naming::Naming;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted};
use crate::render::warning;
use safepoint::model::retention::Policy;
use safepoint::{DryRun, Judged};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &PruneArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let mut policies = manager.upkeep().policies(Some(&workspace))?;
    let usual = policies.general;
    let policy = Policy {
        keep_last: args.keep_last.unwrap_or(usual.keep_last),
        keep_within: args.keep_within.unwrap_or(usual.keep_within),
        thin_daily_for: args.thin_daily_for.unwrap_or(usual.thin_daily_for),
    };
    let dry_run = if args.dry_run { DryRun::Yes } else { DryRun::No };
    // Options apply to all scopes.
    if policy != usual {
        policies = policy.into();
    }
    let judged = manager.upkeep().prune(&workspace, &policies, dry_run)?;
    // Options apply to this workspace. Multi-folder checkpoints belong to none, and keep the configured
    // policy.
    let together = manager.upkeep().prune(None, &manager.upkeep().policies(None)?, dry_run)?;
    let naming = Naming::new(&context.out, &manager, Some(&workspace).filter(|_| together.is_empty()))?;
    tell(&context.out, naming, &judged, &together, dry_run);
    judged.iter().chain(&together).filter_map(|judged| judged.warning.as_ref()).for_each(|left| {
        warning::warn(&context.out, std::slice::from_ref(left));
    });
    let verdicts = |judged: &[Judged]| -> Vec<Value> { judged.iter().map(verdict).collect() };
    let dropped = judged.iter().chain(&together).filter(|judged| !judged.verdict.is_keep()).count();
    Ok(Reply::done(json!({
        "dry_run": args.dry_run,
        "policy": {
            "keep_last": policy.keep_last,
            "keep_within": policy.keep_within,
            "thin_daily_for": policy.thin_daily_for,
        },
        "dropped": dropped,
        "checkpoints": verdicts(&judged),
        "together": verdicts(&together),
    })))
}

fn verdict(judged: &Judged) -> Value {
    let checkpoint = &judged.checkpoint;
    json!({
        "id": checkpoint.id,
        "label": checkpoint.label,
        "created_at": checkpoint.created_at,
        "role": checkpoint.role,
        "scope": checkpoint.scope,
        "policy": policy_name(judged),
        "verdict": if judged.verdict.is_keep() { "keep" } else { "drop" },
        "reason": judged.verdict.to_string(),
    })
}

/// Returns the configuration table of the policy.
fn policy_name(judged: &Judged) -> String {
    judged.policy_of.map_or_else(|| "retention".to_owned(), |scope| format!("retention_{scope}"))
}

/// Prints each reason in a dry run, otherwise only the pruned checkpoints.
fn tell(out: &Printer, naming: Naming, judged: &[Judged], together: &[Judged], dry_run: DryRun) {
    let all = judged.len() + together.len();
    let dropped = judged.iter().chain(together).filter(|judged| !judged.verdict.is_keep()).count() as u64;
    let kept = all as u64 - dropped;
    let dry = dry_run == DryRun::Yes;
    let told = |judged: &&Judged| dry || !judged.verdict.is_keep();
    for judged in judged.iter().filter(told) {
        out.remark(line(out, naming, judged));
    }
    let mut together = together.iter().filter(told).peekable();
    if together.peek().is_some() {
        out.remark("of several folders:");
    }
    for judged in together {
        let (scope, policy) = (judged.checkpoint.scope, policy_name(judged));
        out.remark(format!("{}  (scope {scope}, [{policy}])", line(out, naming, judged)));
    }
    let all = counted(kept, "checkpoint", "checkpoints");
    out.line(match (dropped, dry) {
        (0, _) => format!("Nothing to prune: {all} kept."),
        (_, true) => format!("{dropped} would go, {kept} would stay; a dry run: nothing was changed."),
        (_, false) => format!("Pruned {}, kept {kept}.", counted(dropped, "checkpoint", "checkpoints")),
    });
    if dropped > 0 && !dry {
        out.remark("Free the space that only they took: safepoint gc");
    }
}

fn line(out: &Printer, naming: Naming, judged: &Judged) -> String {
    let checkpoint = &judged.checkpoint;
    let (word, keep) = if judged.verdict.is_keep() { ("keep", true) } else { ("drop", false) };
    let age = ago(Surroundings::now(), checkpoint.created_at);
    let (id, reason) = (naming.id(checkpoint.id), naming.said(&judged.verdict.to_string()));
    let before = format!("  {word}  {id}  {age:<14}  {reason}  ").len();
    let name = Some(naming.name(checkpoint)).filter(|name| !name.is_empty());
    let name = name.map(|name| naming.fitted(&format!("\"{name}\""), before)).unwrap_or_default();
    let word = if keep { out.colours.green(word) } else { out.colours.red(word) };
    let line = format!("  {word}  {id}  {age:<14}  {}  {name}", out.colours.dim(reason));
    line.trim_end().to_owned()
}
