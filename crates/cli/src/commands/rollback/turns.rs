//! The work of agents that a rollback undoes, and the way back of their conversations.

use crate::args::RollbackArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, printable, shortened};
use safepoint::model::RelPath;
use safepoint::model::turn::Turn;
use safepoint::{CheckpointManager, DryRun, RolledBack, TurnSide, TurnWork, Workspace};
use safepoint_agents::CodingAgent;
use serde_json::{Value, json};

/// Paths of one turn that are named.
const PATHS_NAMED: usize = 6;
/// Turns that are named.
const TURNS_NAMED: usize = 10;
/// Sessions whose way back is printed.
const SESSIONS_NAMED: usize = 3;
const PROMPT_LETTERS_MAX: usize = 40;

/// A turn that the arguments of a rollback name.
pub(super) struct NamedTurn {
    turn: Turn,
    others: Vec<TurnWork>,
}

impl NamedTurn {
    /// Reads the turn, and the work of other agents that the rollback undoes; none if no turn is named.
    pub(super) fn read(
        context: &Context,
        manager: &CheckpointManager,
        workspace: &Workspace,
        args: &RollbackArgs,
        paths: &[RelPath],
    ) -> Result<Option<Self>, Problem> {
        let Some((number, side)) = named(args) else { return Ok(None) };
        let turn = manager.turns().get(workspace, number)?;
        let mut others = manager.turns().work_of_others(workspace, number, side, &context.progress)?;
        if !paths.is_empty() {
            let is_chosen =
                |path: &RelPath| paths.iter().any(|chosen| path.is_within(chosen) || chosen.is_within(path));
            others.iter_mut().for_each(|work| work.paths.retain(is_chosen));
            others.retain(|work| !work.paths.is_empty());
        }
        Ok(Some(Self { turn, others }))
    }

    /// Adds the work of other agents, and missing coverage, to a report.
    pub(super) fn tell(
        &self,
        context: &Context,
        manager: &CheckpointManager,
        dry_run: DryRun,
        reply: &mut Reply,
    ) {
        let out = &context.out;
        if let Some(why) = &self.turn.not_covered {
            out.remark(format!(
                "Turn {} is partly not covered: {}. Its checkpoints may hold a part of its work.",
                self.turn.number,
                printable(why)
            ));
        }
        if !self.others.is_empty() {
            let would = if dry_run == DryRun::Yes { "would also undo" } else { "also undid" };
            out.remark(format!("This {would} work of other sessions:"));
            list(out, &self.others);
            out.remark(format!("Only turn {}: safepoint undo --turn {}", self.turn.number, self.turn.number));
        }
        if dry_run == DryRun::No {
            tell_conversation(out, manager, &self.turn);
        }
        reply.data["other_turns"] = self.others.iter().map(shape).collect();
    }
}

/// Tells of the agents' work that a rollback undid or would undo, where no turn was named. Returns it for programs; null if there
/// is none.
pub(super) fn tell_undone(
    context: &Context,
    manager: &CheckpointManager,
    done: &RolledBack,
    dry_run: DryRun,
) -> Value {
    let out = &context.out;
    let mut works = Vec::new();
    for folder in &done.folders {
        // The rollback is done, even if this cannot be read.
        let undone = manager
            .workspaces()
            .get(folder.record.workspace_id)
            .and_then(|workspace| manager.turns().undone_by(&workspace, done, &context.progress));
        works.extend(undone.unwrap_or_default());
    }
    if works.is_empty() {
        return Value::Null;
    }
    let would = if dry_run == DryRun::Yes { "would undo" } else { "undid" };
    out.remark(format!("This {would} work of agents:"));
    list(out, &works);
    if dry_run == DryRun::No {
        let mut told: Vec<&str> = Vec::new();
        for TurnWork { turn, .. } in &works {
            if told.len() < SESSIONS_NAMED && !told.contains(&turn.session_id.as_str()) {
                told.push(&turn.session_id);
                tell_conversation(out, manager, turn);
            }
        }
    }
    // Turns are counted in each workspace.
    if done.is_together() { Value::Null } else { works.iter().map(shape).collect() }
}

/// The turn that the arguments name.
pub(super) fn named(args: &RollbackArgs) -> Option<(u64, TurnSide)> {
    let after = args.turn.map(|number| (number, TurnSide::After));
    after.or(args.before_turn.map(|number| (number, TurnSide::Before)))
}

fn list(out: &Printer, works: &[TurnWork]) {
    works.iter().take(TURNS_NAMED).for_each(|work| out.remark(format!("    {}", line(work))));
    if works.len() > TURNS_NAMED {
        let more = (works.len() - TURNS_NAMED) as u64;
        out.remark(format!("    and {} more", counted(more, "turn", "turns")));
    }
}

fn line(work: &TurnWork) -> String {
    let mut paths: Vec<String> =
        work.paths.iter().take(PATHS_NAMED).map(|path| printable(&path.to_string())).collect();
    if work.paths.len() > PATHS_NAMED {
        paths.push(format!("and {} more", work.paths.len() - PATHS_NAMED));
    }
    let prompt = match work.turn.prompt.is_empty() {
        true => String::new(),
        false => format!(": {}", shortened(&printable(&work.turn.prompt), PROMPT_LETTERS_MAX)),
    };
    format!("turn {} ({}){prompt}: {}", work.turn.number, printable(&work.turn.agent), paths.join(", "))
}

fn shape(work: &TurnWork) -> Value {
    json!({ "turn": work.turn.number, "agent": work.turn.agent, "paths": work.paths })
}

/// Prints the way back of the conversation in the agent's own words: files and conversation are separate.
pub(crate) fn tell_conversation(out: &Printer, manager: &CheckpointManager, turn: &Turn) {
    out.remark(format!("{} is told at its next prompt.", printable(&turn.agent)));
    let Ok(agent) = turn.agent.parse::<CodingAgent>() else { return };
    let known = manager.turns().known_of(&turn.session_id).ok().flatten();
    // The agent's own id, where it is no UUID.
    let original = known.as_ref().and_then(|known| known.get("agent_session")?.as_str());
    let way = agent.conversation_back(original.unwrap_or(&turn.session_id));
    if let Some(typed) = way.typed {
        out.remark(format!("To shorten its conversation, too: {typed}."));
    }
    if let Some(command) = way.command {
        out.remark(format!("To open the conversation again: {command}"));
    }
}
