//! `hook`: one event of a coding agent in, one JSON object out.
//!
//! It never blocks an agent by accident: whatever fails, the exit status is 0 and the answer is valid for that agent.

mod plan;

use crate::args::Global;
use crate::context::{Surroundings, variable};
use plan::Reported;
use safepoint::model::RelPath;
use safepoint::model::checkpoint::{Kind, Reason};
use safepoint::model::rollback::Rollback;
use safepoint::model::session::SessionStatus;
use safepoint::model::turn::Turn;
use safepoint::{Access, CheckpointManager, CreateOptions, Error, IfUnchanged, NewTurn, Progress, Workspace};
use safepoint_agents::{
    Caller, CodingAgent, EMPTY_ANSWER, HookEvent, HookInput, INPUT_BYTES_MAX, Moment, Reply, RiskPattern,
    RollbackNote, ToolCall, ToolEffect, one_line, risk,
};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Prompts are cut here.
const PROMPT_LETTERS_MAX: usize = 80;

/// Answers an event. `words` are the arguments after `hook`.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let answer = catch_unwind(AssertUnwindSafe(|| answer(words))).unwrap_or_default();
    let answer = answer.unwrap_or_else(|| EMPTY_ANSWER.to_owned());
    let _ = io::stdout().lock().write_all(answer.as_bytes());
    ExitCode::SUCCESS
}

fn answer(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let agent: CodingAgent = words.next()?.parse().ok()?;
    let mut bytes = Vec::new();
    // One byte more, so that the reader knows that it was too much.
    io::stdin().lock().take(INPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    let input = HookInput::parse(&bytes);
    let caller =
        Caller::recognise(agent, |name| Some(variable(name)?.to_string_lossy().into_owned()), &input);
    let event = HookEvent::read(&caller, words.next(), &input).ok()?;
    Some(event.answer(&act(&event)))
}

/// Does what the event asks for. A failure becomes a message, where it is new.
fn act(event: &HookEvent) -> Reply {
    let reports = event.plan.is_some() || !event.decisions.is_empty();
    if matches!(event.moment, Moment::AfterTool { .. } | Moment::Compaction | Moment::Other) && !reports {
        return Reply::default();
    }
    if let Moment::BeforeTool(call) = &event.moment
        && !is_changing(call)
    {
        return Reply::default();
    }
    let message = |text: String| Reply { message: Some(format!("Safepoint: {text}")), context: None };
    let Some(session) = event.session.as_ref().map(|session| session.id.to_uuid()) else {
        return Reply::default();
    };
    let hook = match Hook::open(event, session) {
        Ok(Some(hook)) => hook,
        Ok(None) if matches!(event.moment, Moment::SessionStart { .. }) => {
            return message("this folder is not covered. Cover it: safepoint init".to_owned());
        }
        Ok(None) => return Reply::default(),
        // Said once per session; no turn can be recorded here.
        Err(error) if matches!(event.moment, Moment::SessionStart { .. }) => {
            return message(format!("this session is not covered: {error}"));
        }
        Err(_) => return Reply::default(),
    };
    match hook.act() {
        Ok(reply) => reply,
        Err(error) => {
            let why = one_line(&error.to_string(), 200);
            let first =
                hook.manager.turns().not_covered(&hook.workspace, &hook.turn(), &why).unwrap_or(false);
            if first { message(format!("this turn is not covered: {why}")) } else { Reply::default() }
        }
    }
}

fn is_changing(call: &ToolCall) -> bool {
    call.effect == ToolEffect::Maybe
}

/// An event in its workspace.
struct Hook<'e> {
    event: &'e HookEvent,
    session: String,
    manager: CheckpointManager,
    workspace: Workspace,
    budget: Budget,
}

impl<'e> Hook<'e> {
    /// Opens the home and finds the workspace of the event. None if the event belongs to no folder that can be covered.
    fn open(event: &'e HookEvent, session: String) -> Result<Option<Self>, Box<dyn std::error::Error>> {
        let budget = Budget::of(&event.moment);
        // The folder of the process may be gone. That of the event counts.
        std::env::set_current_dir("/")?;
        let surroundings = Surroundings::read(&Global::default(), Access::Write)
            .map_err(|problem| problem.failure.message)?;
        let manager = surroundings.open_for_hook(event.agent.name(), budget.length)?;
        let Some(workspace) = workspace(&manager, event)? else { return Ok(None) };
        Ok(Some(Self { event, session, manager, workspace, budget }))
    }

    fn act(&self) -> Result<Reply, Error> {
        let turns = self.manager.turns();
        let ended = matches!(self.event.moment, Moment::SessionEnd { .. });
        let key = self.event.key.as_ref().map(|key| hex(key.as_bytes()));
        let agent = self.event.agent.name();
        if !turns.saw(&self.workspace, &self.session, agent, key.as_deref(), ended)? {
            return Ok(Reply::default());
        }
        // A list that cannot be taken over does not stop the checkpoint.
        let _ = Reported {
            manager: &self.manager,
            workspace: &self.workspace,
            agent,
            session: &self.session,
            progress: &self.budget,
        }
        .take(self.event.plan.as_ref(), &self.event.decisions);
        match &self.event.moment {
            Moment::SessionStart { .. } => self.take("session start".to_owned())?,
            Moment::Prompt { opens_turn, .. } => {
                if *opens_turn {
                    turns.begin(&self.workspace, &self.turn(), &self.budget)?;
                }
                return self.notes();
            }
            Moment::BeforeTool(call) => {
                let risky = call.command.as_deref().and_then(|command| risk(command, &self.risky()));
                let label = risky.map(|risk| risk.label);
                turns.cover(&self.workspace, &self.turn(), label.as_deref(), &self.budget)?;
            }
            Moment::TurnEnd { .. } => drop(turns.end(&self.workspace, &self.session, &self.budget)?),
            Moment::SubagentStart | Moment::SubagentEnd => {
                let kind = self.event.subagent.as_ref().and_then(|subagent| subagent.kind.as_deref());
                let name = one_line(kind.unwrap_or("without a name"), PROMPT_LETTERS_MAX);
                let is_start = self.event.moment == Moment::SubagentStart;
                self.take(format!("{} subagent {name}", if is_start { "before" } else { "after" }))?;
            }
            Moment::SessionEnd { .. } => {
                turns.end(&self.workspace, &self.session, &self.budget)?;
                if let Ok(id) = self.session.parse() {
                    // A session that is over or unknown stays as it is.
                    let _ = self.manager.sessions().transition(id, SessionStatus::Paused);
                }
            }
            Moment::AfterTool { .. } | Moment::Compaction | Moment::Other => {}
        }
        Ok(Reply::default())
    }

    /// Patterns of the user. An invalid one is ignored.
    fn risky(&self) -> Vec<RiskPattern> {
        let config = self.manager.config(Some(&self.workspace));
        let texts = config.map(|config| config.risky).unwrap_or_default();
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// A checkpoint of its own, if files changed.
    fn take(&self, label: String) -> Result<(), Error> {
        let options = CreateOptions {
            label: Some(label),
            kind: Kind::Automatic,
            reason: Reason::SafeState,
            session_id: Some(self.session.clone()),
            source_tool: Some(self.event.agent.name().to_owned()),
            unchanged: IfUnchanged::ReusedOfAnySession,
            ..CreateOptions::default()
        };
        self.manager.create(&self.workspace, &options, &self.budget).map(|_| ())
    }

    fn turn(&self) -> NewTurn {
        let prompt = match &self.event.moment {
            Moment::Prompt { text, .. } => one_line(text, PROMPT_LETTERS_MAX),
            _ => String::new(),
        };
        NewTurn {
            agent: self.event.agent.name().to_owned(),
            session_id: self.session.clone(),
            key: self.event.turn.clone(),
            prompt,
            model: self.event.model.clone(),
            permission_mode: self.event.permission_mode.clone(),
        }
    }

    /// Notes about rollbacks that this session was not told about yet.
    fn notes(&self) -> Result<Reply, Error> {
        if !self.event.reaches_model() {
            return Ok(Reply::default());
        }
        let rollbacks = self.manager.turns().take_notes(&self.workspace, &self.session)?;
        let Some(last) = rollbacks.iter().max_by_key(|rollback| rollback.id) else {
            return Ok(Reply::default());
        };
        let mut files: Vec<RelPath> = Vec::new();
        for rollback in &rollbacks {
            files.extend(self.manager.changed_paths(rollback)?.into_iter().map(|changed| changed.path));
        }
        files.sort();
        files.dedup();
        let target = self.manager.checkpoints().get(last.to).ok().and_then(|checkpoint| checkpoint.label);
        let turns = self.undone(&rollbacks)?.into_iter().map(|turn| (turn.number, turn.prompt)).collect();
        let note = RollbackNote { target: target.unwrap_or_default(), turns, steps: Vec::new(), files };
        Ok(Reply { message: None, context: Some(note.text()) })
    }

    /// Turns whose work the rollbacks undid: those that ended after the oldest target.
    fn undone(&self, rollbacks: &[Rollback]) -> Result<Vec<Turn>, Error> {
        let Some(oldest) = rollbacks.iter().map(|rollback| rollback.to).min() else { return Ok(Vec::new()) };
        let mut turns = self.manager.turns().list(&self.workspace, Some(50))?;
        turns.retain(|turn| turn.after.is_some_and(|after| after > oldest) && turn.changes != Some([0; 3]));
        turns.reverse();
        Ok(turns)
    }
}

/// The innermost registered workspace around the agent's folder; else the repository, or the project that the agent names.
fn workspace(manager: &CheckpointManager, event: &HookEvent) -> Result<Option<Workspace>, Error> {
    let cwd = event.cwd.as_deref().map(Path::new).filter(|path| path.is_absolute());
    if let Some(cwd) = cwd
        && let Some(found) = manager.workspaces().around(cwd)?
    {
        return Ok(Some(found));
    }
    let project = event.project.as_deref().map(PathBuf::from).filter(|path| path.is_absolute());
    let repository = cwd.and_then(|cwd| cwd.ancestors().find(|folder| folder.join(".git").exists()));
    match repository.map(Path::to_owned).or(project) {
        Some(folder) => manager.workspaces().register(&folder).map(Some),
        None => Ok(None),
    }
}

/// Time that an event may take. After it, work stops where nothing has changed yet.
struct Budget {
    began: Instant,
    length: Duration,
}

impl Budget {
    fn of(moment: &Moment) -> Self {
        let seconds = match moment {
            Moment::SessionStart { .. } => 20,
            Moment::TurnEnd { .. } | Moment::Prompt { .. } => 5,
            _ => 2,
        };
        Self { began: Instant::now(), length: Duration::from_secs(seconds) }
    }
}

impl Progress for Budget {
    fn interrupted(&self) -> bool {
        self.began.elapsed() > self.length
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
