//! `summary`: how many checkpoints there are, of which kind and for which reason.

use crate::args::SummaryArgs;
use crate::commands::{Context, list};
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
        workspace: Some(workspace.id).filter(|_| args.plan.is_none()),
        plan_id: args.plan.clone(),
        session_id: args.session_id.as_deref().map(session_id).transpose()?,
        role: RoleFilter::Asked,
        ..Filter::default()
    };
    let summary = manager.checkpoints().summary(&filter)?;
    if summary.total_checkpoints == 0 {
        list::known(&manager, args.plan.as_deref(), filter.session_id.as_deref())?;
    }
    out.line(counted(summary.total_checkpoints, "checkpoint", "checkpoints"));
    let kinds = summary.checkpoints_by_kind.iter().map(|(word, count)| (word.as_str(), count));
    let reasons = summary.checkpoints_by_reason.iter().map(|(word, count)| (word.as_str(), count));
    kinds.for_each(|(word, count)| out.line(format!("  kind    {word:<20} {count:>6}")));
    reasons.for_each(|(word, count)| out.line(format!("  reason  {word:<20} {count:>6}")));
    out.line(format!("  used for rollback            {:>6}", summary.checkpoints_used_for_rollback));
    if summary.safety_checkpoints > 0 {
        out.line(format!("  made by Safepoint, beside these  {:>2}", summary.safety_checkpoints));
    }
    if let Some(latest) = &summary.latest_checkpoint {
        let label = latest.label.as_deref().map(printable).unwrap_or_default();
        let age = ago(Surroundings::now(), latest.created_at);
        out.line(format!("  latest  {}, {age}  {label}", latest.id).trim_end());
    }
    Ok(Reply::done(json!({ "summary": json::summary(&summary) })))
}
