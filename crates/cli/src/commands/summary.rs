//! `summary`: how many checkpoints there are, of which kind and for which reason.

use crate::args::SummaryArgs;
use crate::commands::Context;
use crate::context::{Surroundings, session_id};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{ago, counted, printable};
use safepoint::{Filter, RoleFilter};
use serde_json::json;

pub(crate) fn run(context: &Context, args: &SummaryArgs) -> Result<Reply, Problem> {
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let filter = Filter {
        workspace: Some(workspace.id),
        plan_id: args.plan.clone(),
        session_id: args.session_id.as_deref().map(session_id).transpose()?,
        role: RoleFilter::Any,
        ..Filter::default()
    };
    let summary = manager.summary(&filter)?;
    out.line(counted(summary.total_checkpoints, "checkpoint", "checkpoints"));
    let kinds = summary.checkpoints_by_kind.iter().map(|(word, count)| (word.as_str(), count));
    let reasons = summary.checkpoints_by_reason.iter().map(|(word, count)| (word.as_str(), count));
    kinds.for_each(|(word, count)| out.line(format!("  kind    {word:<20} {count:>6}")));
    reasons.for_each(|(word, count)| out.line(format!("  reason  {word:<20} {count:>6}")));
    out.line(format!("  used for rollback            {:>6}", summary.checkpoints_used_for_rollback));
    if let Some(latest) = &summary.latest_checkpoint {
        let label = latest.label.as_deref().map(printable).unwrap_or_default();
        let age = ago(Surroundings::now(), latest.created_at);
        out.line(format!("  latest  {}, {age}  {label}", latest.id).trim_end());
    }
    Ok(Reply::done(json!({ "summary": json::summary(&summary) })))
}
