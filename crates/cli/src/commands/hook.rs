//! `hook`: one event of a coding agent in, one JSON object out.
//!
//! It never blocks an agent by accident: whatever fails, the exit status is 0 and the answer is valid for that agent.

mod budget;
mod notes;
mod place;
mod plan;
mod words;

pub(crate) use words::Called;

use crate::args::Global;
use crate::context::{Surroundings, joined_session, variable};
use budget::{Awaited, Budget, Stage};
use place::Found;
use plan::Reported;
use safepoint::model::RollbackId;
use safepoint::model::checkpoint::{Kind, Reason};
use safepoint::{
    Access, ChangingCall, CheckpointManager, Config, CreateOptions, Error, IfUnchanged, MissingTurn, NewTurn,
    SeenSession, SessionMoment, Workspace,
};
use safepoint_agents::{
    AgentSession, BackgroundTask, Caller, CodingAgent, EMPTY_ANSWER, HookEvent, HookInput, INPUT_BYTES_MAX,
    Moment, Reply, RiskPattern, ToolCall, ToolEffect, one_line, risk,
};
use serde_json::Value;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Prompts are cut here.
const PROMPT_LETTERS_MAX: usize = 80;
/// Stack of the thread that does the work: the default of the main thread.
const STACK_BYTES: usize = 8 << 20;

/// Work to do once the agent has the answer.
type Afterwards = Box<dyn FnOnce()>;

/// Answers an event.
pub(crate) fn main(called: Called) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let (sender, stages) = channel();
    let (wrote, written) = channel::<()>();
    let work = move || {
        // After a panic nothing more is sent: the answer for work that hangs counts.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let (answer, afterwards) = answer(&called, &sender).unwrap_or_default();
            let _ = sender.send(Stage::Answered(answer.unwrap_or_else(|| EMPTY_ANSWER.to_owned())));
            // What was told is on record only if the agent could read it: a note is rather told twice than never.
            if let Some(afterwards) = afterwards.filter(|_| written.recv().is_ok()) {
                afterwards();
            }
        }));
    };
    let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    let answered = started.ok().map_or(Awaited::Nothing, |_| budget::awaited(&stages));
    let text = match &answered {
        Awaited::InTime(text) | Awaited::Late(text) => text,
        Awaited::Nothing => EMPTY_ANSWER,
    };
    let mut output = io::stdout().lock();
    let is_written = output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_ok();
    if is_written && matches!(answered, Awaited::InTime(_)) && wrote.send(()).is_ok() {
        budget::finish(&stages);
    }
    ExitCode::SUCCESS
}

fn answer(called: &Called, stages: &Sender<Stage>) -> Option<(Option<String>, Option<Afterwards>)> {
    let mut words = called.words.iter().filter_map(|word| word.to_str());
    let agent: CodingAgent = words.next()?.parse().ok()?;
    let mut bytes = Vec::new();
    // One byte more, so that the reader knows that it was too much.
    io::stdin().lock().take(INPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    let input = HookInput::parse(&bytes);
    let caller =
        Caller::recognise(agent, |name| Some(variable(name)?.to_string_lossy().into_owned()), &input);
    let event = HookEvent::read(&caller, words.next(), &input).ok()?;
    if !is_work(&event) {
        return Some((Some(event.answer(&Reply::default())), None));
    }
    let budget = Budget::of(&event.moment);
    let event = Rc::new(event);
    let late = event.answer(&uncovered(&event, &called.global, "no answer in time"));
    let _ = stages.send(Stage::Began(budget.length, late));
    let (reply, afterwards) = act(&event, &called.global, budget);
    Some((Some(event.answer(&reply)), afterwards))
}

/// Returns true if the event asks for something.
fn is_work(event: &HookEvent) -> bool {
    let reports = event.plan.is_some() || !event.decisions.is_empty();
    match &event.moment {
        Moment::BeforeTool(call) => call.effect == ToolEffect::Maybe,
        Moment::AfterTool { call, .. } => reports || call.effect == ToolEffect::Maybe,
        Moment::Other => reports,
        _ => true,
    }
}

/// Returns true if the result of a shell command names the files that it changed.
fn names_more(call: &ToolCall) -> bool {
    call.command.is_some() && !call.paths.is_empty()
}

/// Does what the event asks for. A failure becomes a message, where it is new.
fn act(event: &Rc<HookEvent>, global: &Global, budget: Budget) -> (Reply, Option<Afterwards>) {
    let is_start = matches!(event.moment, Moment::SessionStart { .. } | Moment::Prompt { .. });
    let hook = match Hook::open(event, global, budget) {
        Ok(Opened::Covered(hook)) => Rc::new(*hook),
        // Reported once, with the first event that has a place for it: a folder in each session, the home directory in one.
        Ok(Opened::Nowhere(manager, session)) => {
            let (of, text) = match &session {
                Some(session) => (session.as_str(), "this folder is not covered. Cover it: safepoint init"),
                None => {
                    ("home", "the home directory is not covered. Start the agent in the folder of a project")
                }
            };
            let is_new = is_start
                && event.reaches_person()
                && manager.turns().is_news(of, "not covered").unwrap_or(true);
            return (if is_new { message(text) } else { Reply::default() }, None);
        }
        // No turn can be recorded: reported once for each prompt.
        Err(error) => {
            let reply = uncovered(event, global, &error.to_string());
            return (Reply { message: reply.message.filter(|_| is_start), ..reply }, None);
        }
    };
    let why = match catch_unwind(AssertUnwindSafe(|| hook.act())) {
        Ok(Ok(reply)) => {
            let told = hook.told.take();
            let afterwards = (!told.is_empty()).then(|| {
                let hook = Rc::clone(&hook);
                let told: Afterwards =
                    Box::new(move || drop(hook.manager.turns().told(&hook.session, &told)));
                told
            });
            return (reply, afterwards);
        }
        Ok(Err(error)) => one_line(&error.to_string(), 200),
        Err(_) => "an internal error".to_owned(),
    };
    // A call without a turn opens one: it may change files. A failure that cannot be recorded, as on a full disk, is reported once
    // for each prompt.
    let missing = match event.moment {
        Moment::BeforeTool(_) => MissingTurn::Opened,
        _ => MissingTurn::Ignored,
    };
    let recorded = hook.manager.turns().not_covered(&hook.workspace, &hook.turn(), missing, &why);
    let first = recorded.unwrap_or(is_start);
    let reply = uncovered(event, global, &why);
    (Reply { message: reply.message.filter(|_| first), ..reply }, None)
}

fn message(text: &str) -> Reply {
    Reply { message: Some(format!("Safepoint: {text}")), ..Reply::default() }
}

/// Reply for an event that failed. With `fail_closed`, a call that may change files is denied.
fn uncovered(event: &HookEvent, global: &Global, why: &str) -> Reply {
    let is_denied = matches!(event.moment, Moment::BeforeTool(_)) && is_fail_closed(global);
    let why = one_line(why, 200);
    let deny = is_denied.then(|| format!("Safepoint: no checkpoint was taken: {why}; fail_closed is set"));
    Reply { deny, ..message(&format!("this turn is not covered: {why}")) }
}

/// Returns true if the user chose that calls without a checkpoint are denied. A broken configuration counts by its line: the choice is
/// for the case that something is broken.
fn is_fail_closed(global: &Global) -> bool {
    let Ok(surroundings) = Surroundings::read(global, Access::Read) else { return false };
    let Ok(text) = std::fs::read_to_string(surroundings.home.join("config.toml")) else { return false };
    let is_line = |line: &str| line.replace(' ', "").starts_with("fail_closed=true");
    match Config::parse_home(&text) {
        Ok(config) => config.fail_closed == Some(true),
        Err(_) => text.lines().any(is_line),
    }
}

/// Result of opening the home for an event.
enum Opened {
    /// The event belongs to a workspace.
    Covered(Box<Hook>),
    /// The event belongs to no folder that can be covered. With the id of its session; none in the home directory.
    Nowhere(Box<CheckpointManager>, Option<String>),
}

/// An event in its workspace.
struct Hook {
    event: Rc<HookEvent>,
    /// Session of the agent.
    session: String,
    /// Session of the turns: that of a surrounding `run`, else that of the agent.
    joined: String,
    manager: CheckpointManager,
    workspace: Workspace,
    budget: Budget,
    /// Rollbacks that the answer tells of.
    told: Cell<Vec<RollbackId>>,
}

impl Hook {
    /// Opens the home and finds the workspace of the event.
    fn open(
        event: &Rc<HookEvent>,
        global: &Global,
        budget: Budget,
    ) -> Result<Opened, Box<dyn std::error::Error>> {
        // The folder of the process may be gone. That of the event counts.
        std::env::set_current_dir("/")?;
        let surroundings =
            Surroundings::read(global, Access::Write).map_err(|problem| problem.failure.message)?;
        let manager = surroundings.open_for_hook(event.agent.name(), budget.length)?;
        // An agent that names no session has one for each folder.
        let session = match &event.session {
            Some(session) => session.id.to_uuid(),
            None => {
                let folder = event.cwd.as_deref().unwrap_or_default();
                AgentSession::new(event.agent, &format!("without an id in {folder}")).id.to_uuid()
            }
        };
        let workspace = match place::workspace(&manager, event, surroundings.user_home.as_deref())? {
            Found::In(workspace) => *workspace,
            Found::Home => return Ok(Opened::Nowhere(Box::new(manager), None)),
            Found::Nowhere => return Ok(Opened::Nowhere(Box::new(manager), Some(session))),
        };
        let joined = joined_session().unwrap_or_else(|| session.clone());
        let (event, told) = (Rc::clone(event), Cell::default());
        Ok(Opened::Covered(Box::new(Self { event, session, joined, manager, workspace, budget, told })))
    }

    fn act(&self) -> Result<Reply, Error> {
        let turns = self.manager.turns();
        let reports = self.event.plan.is_some() || !self.event.decisions.is_empty();
        // The end of a call is only looked at, unless it reports something.
        if (reports || !matches!(self.event.moment, Moment::AfterTool { .. })) && !self.is_new()? {
            return Ok(Reply::default());
        }
        // A list that cannot be taken over does not stop the checkpoint.
        let _ = Reported {
            manager: &self.manager,
            workspace: &self.workspace,
            agent: self.event.agent.name(),
            session: &self.joined,
            subagent: self.event.subagent.as_ref(),
            progress: &self.budget,
        }
        .take(self.event.plan.as_ref(), &self.event.decisions);
        match &self.event.moment {
            Moment::SessionStart { .. } => {
                self.record_session(SessionMoment::Starts);
                self.take("session start".to_owned())?;
            }
            Moment::Prompt { opens_turn, .. } => return self.prompt(*opens_turn),
            Moment::BeforeTool(call) => return self.before(call),
            Moment::AfterTool { call, .. } => return self.after(call),
            Moment::TurnEnd { background, .. } => {
                for task in background {
                    let subagent = Some(named(task));
                    turns.learn(&self.workspace, &self.joined, &ChangingCall { subagent, ..self.call() })?;
                }
                let key = self.event.turn.as_deref();
                turns.end(&self.workspace, &self.joined, key, &self.budget)?;
            }
            Moment::Compaction => self.take("before compaction".to_owned())?,
            Moment::SubagentStart | Moment::SubagentEnd => {
                let name = self.subagent().unwrap_or_else(|| "without a name".to_owned());
                let is_start = self.event.moment == Moment::SubagentStart;
                turns.learn(&self.workspace, &self.joined, &self.call())?;
                self.take(format!("{} subagent {name}", if is_start { "before" } else { "after" }))?;
            }
            Moment::SessionEnd { .. } => {
                turns.end(&self.workspace, &self.joined, None, &self.budget)?;
                self.record_session(SessionMoment::Ends);
            }
            Moment::Other => {}
        }
        Ok(Reply::default())
    }

    /// Records the event. Returns false if it came before.
    fn is_new(&self) -> Result<bool, Error> {
        let ended = matches!(self.event.moment, Moment::SessionEnd { .. });
        let key = self.event.key.as_ref().map(|key| hex(key.as_bytes()));
        let agent = self.event.agent.name();
        self.manager.turns().saw(&self.workspace, &self.session, agent, key.as_deref(), ended)
    }

    /// Opens a turn, delivers notes, and reports a turn before it that is not covered.
    fn prompt(&self, opens_turn: bool) -> Result<Reply, Error> {
        let turns = self.manager.turns();
        let mut uncovered = None;
        if opens_turn {
            let begun = turns.begin(&self.workspace, &self.turn(), &self.budget)?;
            self.record_session(SessionMoment::Works);
            uncovered = match begun.earlier {
                Some(error) => Some(error.to_string()),
                // Copilot shows nothing at other events.
                None if self.event.agent == CodingAgent::Copilot => {
                    self.uncovered_before(begun.turn.number)?
                }
                None => None,
            };
        } else if self.event.subagent.is_none() {
            turns.go_on(&self.workspace, &self.turn())?;
        }
        let told = |why: String| message(&format!("the turn before is not covered: {}", one_line(&why, 200)));
        Ok(Reply { context: self.note()?, ..uncovered.map(told).unwrap_or_default() })
    }

    /// Reason why the turn before this one is not covered.
    fn uncovered_before(&self, number: u64) -> Result<Option<String>, Error> {
        let last = self.manager.turns().list_of(&self.workspace, &self.joined, Some(2))?;
        let fact = |number: u64| format!("turn {number}");
        let found = last.into_iter().find(|turn| turn.number < number && turn.not_covered.is_some());
        let Some(turn) = found else { return Ok(None) };
        let is_new = self.manager.turns().is_news(&self.joined, &fact(turn.number))?;
        Ok(turn.not_covered.filter(|_| is_new))
    }

    /// Puts the session on record. An event does not fail for it.
    fn record_session(&self, moment: SessionMoment) {
        let request = match &self.event.moment {
            Moment::Prompt { text, .. } => Some(one_line(text, PROMPT_LETTERS_MAX)),
            _ => None,
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let original = self.event.session.as_ref().map(|session| session.original.clone());
        let mut facts = vec![
            ("agent", Some(self.event.agent.name().into())),
            ("model", text(&self.event.model)),
            ("permission_mode", text(&self.event.permission_mode)),
            ("agent_session", original.filter(|original| *original != self.session).map(Value::from)),
            ("run", (self.joined != self.session).then(|| self.joined.as_str().into())),
        ];
        if let Moment::SessionStart { source } = &self.event.moment {
            facts.push(("folder", text(&self.event.cwd)));
            facts.push(("started", text(source)));
            facts.push(("forked_from", self.forked_from()));
        }
        let (id, agent) = (self.session.clone(), self.event.agent.name().to_owned());
        let seen = SeenSession { id, agent, request, facts };
        let turns = self.manager.turns();
        let _ = turns.record_session(&seen, moment);
        if self.joined != self.session && moment == SessionMoment::Works {
            let run = SeenSession { id: self.joined.clone(), facts: Vec::new(), ..seen };
            let _ = turns.record_session(&run, SessionMoment::Starts);
        }
    }

    /// Session that this one was forked from: the event names it.
    fn forked_from(&self) -> Option<Value> {
        let original = self.event.forked_from.as_ref()?;
        Some(AgentSession::new(self.event.agent, original).id.to_uuid().into())
    }

    /// Records the paths that a command named only in its result, and a call that no checkpoint covers.
    fn after(&self, call: &ToolCall) -> Result<Reply, Error> {
        let turns = self.manager.turns();
        if names_more(call) {
            let (paths, _) = place::divided(&self.workspace, &self.event, &call.paths);
            turns.learn(&self.workspace, &self.joined, &ChangingCall { paths, ..self.call() })?;
        }
        if call.effect == ToolEffect::Nothing {
            return Ok(Reply::default());
        }
        let done = ChangingCall { id: call.id.clone(), ..self.call() };
        let is_missed = turns.returned(&self.workspace, &self.joined, &done)?;
        let text = "this turn is not covered: the hook of a call did not finish";
        Ok(if is_missed { message(text) } else { Reply::default() })
    }

    /// Covers a call that may change files, and reports paths that no checkpoint of this workspace holds.
    fn before(&self, call: &ToolCall) -> Result<Reply, Error> {
        let turns = self.manager.turns();
        let risky = call.command.as_deref().and_then(|command| risk(command, &self.risky()));
        let (paths, outside) = place::divided(&self.workspace, &self.event, &call.paths);
        let (id, tool) = (call.id.clone(), one_line(&call.tool, PROMPT_LETTERS_MAX));
        let call = ChangingCall { id, tool, risk: risky.map(|risk| risk.label), paths, ..self.call() };
        turns.cover(&self.workspace, &self.turn(), &call, &self.budget)?;
        let Some(path) = outside.first() else { return Ok(Reply::default()) };
        let why = format!("outside of the workspace: {}", one_line(path, 150));
        let first = turns.not_covered(&self.workspace, &self.turn(), MissingTurn::Opened, &why)?;
        Ok(if first { message(&format!("not covered, {why}")) } else { Reply::default() })
    }

    /// Facts that every call has.
    fn call(&self) -> ChangingCall {
        ChangingCall { subagent: self.subagent(), ..ChangingCall::default() }
    }

    fn subagent(&self) -> Option<String> {
        let subagent = self.event.subagent.as_ref()?;
        let name = subagent.kind.as_deref().or(subagent.id.as_deref())?;
        Some(one_line(name, PROMPT_LETTERS_MAX))
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
            session_id: Some(self.joined.clone()),
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
            session_id: self.joined.clone(),
            key: self.event.turn.clone(),
            prompt,
            model: self.event.model.clone(),
            permission_mode: self.event.permission_mode.clone(),
        }
    }

    /// Note about the rollbacks that this session was not told about yet.
    fn note(&self) -> Result<Option<String>, Error> {
        if !self.event.reaches_model() {
            return Ok(None);
        }
        let rollbacks = self.manager.turns().untold(&self.workspace, &self.session)?;
        let note = notes::note(&self.manager, &self.workspace, &rollbacks, &self.budget)?;
        self.told.set(rollbacks.into_iter().map(|rollback| rollback.id).collect());
        Ok(note)
    }
}

/// Name of a task that goes on after a turn.
fn named(task: &BackgroundTask) -> String {
    let name = task.description.as_deref().or(task.kind.as_deref()).or(task.id.as_deref());
    one_line(name.unwrap_or("without a name"), PROMPT_LETTERS_MAX)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
