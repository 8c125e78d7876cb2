//! `list --turns`: the turns of agents, newest first.

use crate::args::ListArgs;
use crate::commands::Context;
use crate::context::{Surroundings, session_id};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{ago, counted, printable, shortened};
use safepoint::CheckpointManager;
use safepoint::model::turn::Turn;
use serde_json::{Value, json};

/// Turns shown where no count is given.
const SHOWN: u64 = 100;
/// Prompts are cut here.
const PROMPT_LETTERS_MAX: usize = 40;

pub(super) fn list(
    context: &Context,
    manager: &CheckpointManager,
    args: &ListArgs,
) -> Result<Reply, Problem> {
    let workspace = context.surroundings.workspace(manager)?;
    let limit = args.limit.or((!context.out.is_json()).then_some(SHOWN));
    let turns = match args.session_id.as_deref().map(session_id).transpose()? {
        Some(session) => manager.turns().list_of(&workspace, &session, limit)?,
        None => manager.turns().list(&workspace, limit)?,
    };
    if turns.is_empty() {
        context.out.remark("No turn of an agent is on record. Cover one: safepoint install");
    }
    turns.iter().for_each(|turn| context.out.line(line(turn)));
    let list: Value = turns.iter().map(entry).collect();
    Ok(Reply::done(json!({ "checkpoints": [], "head": workspace.head, "turns": list })))
}

pub(crate) fn entry(turn: &Turn) -> Value {
    let files = turn.changes.map(
        |[added, modified, removed]| json!({ "added": added, "modified": modified, "removed": removed }),
    );
    json!({
        "turn": turn.number,
        "session_id": turn.session_id,
        "agent": turn.agent,
        "label": turn.prompt,
        "started": turn.opened_at,
        "ended": turn.closed_at,
        "before": turn.before,
        "after": turn.after,
        "files": files,
        "uncovered": turn.not_covered.iter().collect::<Vec<_>>(),
        "commands": turn.commands,
        "key": turn.key,
        "model": turn.model,
        "permission_mode": turn.permission_mode,
        "tools": turn.tools,
        "subagents": turn.subagents,
    })
}

fn line(turn: &Turn) -> String {
    let prompt = match turn.prompt.is_empty() {
        true => "(no prompt)".to_owned(),
        false => shortened(&printable(&turn.prompt), PROMPT_LETTERS_MAX),
    };
    let changes = match (turn.changes, &turn.not_covered) {
        (Some([added, modified, removed]), None) => format!("+{added} ~{modified} -{removed}"),
        (Some([added, modified, removed]), Some(_)) => {
            format!("+{added} ~{modified} -{removed}, partly not covered")
        }
        (None, Some(_)) => "not covered".to_owned(),
        (None, None) => "open".to_owned(),
    };
    let commands = counted(turn.commands, "command", "commands");
    let when = ago(Surroundings::now(), turn.opened_at);
    format!("turn {}: {prompt}, {changes}, {commands}, {}, {when}", turn.number, printable(&turn.agent))
}
