//! Hook events of the coding agents, read into one neutral type.
//!
//! In come the bytes that an agent writes to a hook, out comes a [`HookEvent`] or an [`EventError`]; no bytes
//! cause a panic. Texts stay data: they are bounded here and escaped where they are shown. An id or a path is
//! whole or absent, never cut.

mod agent;
mod json;
mod opencode;
mod plan;
mod read;
mod session;
mod sql;
mod tools;

pub use agent::{Caller, CodingAgent, UnknownAgent};
pub use json::{HookInput, INPUT_BYTES_MAX};
pub use plan::{PlanExtent, PlanReport, ReportedDecision, ReportedStatus, ReportedStep};
pub use session::{AgentSession, EventKey};

use crate::answer::{self, Reply};

/// Event of an agent at which a hook ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEvent {
    /// Agent that ran the hook.
    pub agent: CodingAgent,
    /// Name of the event, as the agent spells it.
    pub name: String,
    /// Session, if the event names one. For an event of a subagent: the session that started it, if named.
    pub session: Option<AgentSession>,
    /// Id, as the agent writes it, of the session that this one was forked from, if the event names it.
    pub forked_from: Option<String>,
    /// Id of the turn (`prompt_id`, `turn_id` or `generation_id`). A subagent can have its own.
    pub turn: Option<String>,
    /// Current folder of the agent.
    pub cwd: Option<String>,
    /// Folder of the project, from the agent's variable or the event.
    pub project: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Permission mode, in the agent's words.
    pub permission_mode: Option<String>,
    /// Subagent that the event is about.
    pub subagent: Option<Subagent>,
    /// Moment of the work.
    pub moment: Moment,
    /// Plan or todo list that the event reports.
    pub plan: Option<PlanReport>,
    /// Decisions of the user that the event shows.
    pub decisions: Vec<ReportedDecision>,
    /// Key by which a second delivery of the same event is detected.
    ///
    /// Prompts and calls of tools have one. Other events have none, because equal events can be two events: a
    /// turn can end twice in the same words, and a subagent can be resumed. Handling those twice must do no
    /// harm.
    pub key: Option<EventKey>,
}

/// Moment of an agent's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// A session starts or is resumed.
    SessionStart {
        /// Reason, in the agent's words: `startup`, `resume`, `clear`, `compact`, `new`.
        source: Option<String>,
    },
    /// A session ends.
    SessionEnd {
        /// Reason, in the agent's words.
        reason: Option<String>,
    },
    /// A prompt arrives.
    Prompt {
        /// Text of the prompt.
        text: String,
        /// False for notifications of the agent to itself, and for prompts to subagents.
        opens_turn: bool,
    },
    /// A tool is about to run.
    BeforeTool(ToolCall),
    /// A tool has run.
    AfterTool {
        /// The call.
        call: ToolCall,
        /// True if the agent reports a failure. An agent can report success for a command that failed.
        failed: bool,
    },
    /// A turn ends.
    TurnEnd {
        /// Tasks that go on and can still change files.
        background: Vec<BackgroundTask>,
        /// True if the user or an error interrupted the turn.
        interrupted: bool,
    },
    /// A subagent starts.
    SubagentStart,
    /// A subagent ends.
    SubagentEnd,
    /// The conversation is about to be compacted.
    Compaction,
    /// Any other event.
    Other,
}

impl Moment {
    /// Returns the word for the moment, as recorded.
    pub fn word(&self) -> &'static str {
        match self {
            Self::SessionStart { .. } => "session_start",
            Self::SessionEnd { .. } => "session_end",
            Self::Prompt { .. } => "prompt",
            Self::BeforeTool(_) => "before_tool",
            Self::AfterTool { .. } => "after_tool",
            Self::TurnEnd { .. } => "turn_end",
            Self::SubagentStart => "subagent_start",
            Self::SubagentEnd => "subagent_end",
            Self::Compaction => "compaction",
            Self::Other => "other",
        }
    }
}

/// Call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Name of the tool, in the agent's words.
    pub tool: String,
    /// Id of the call.
    pub id: Option<String>,
    /// Effect on files.
    pub effect: ToolEffect,
    /// Shell text that the tool runs. Possibly cut; [`crate::risk()`] treats a cut text as risky.
    pub command: Option<String>,
    /// Paths that the call names as its targets, absolute or relative to the current folder.
    pub paths: Vec<String>,
}

/// Effect of a tool on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEffect {
    /// The tool is known to change no file.
    Nothing,
    /// The tool may change files.
    Maybe,
}

/// Subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    /// Id, if the agent gives one.
    pub id: Option<String>,
    /// Kind, in the agent's words.
    pub kind: Option<String>,
    /// Session of its own. Later events can name this session alone, without its parent.
    pub session: Option<AgentSession>,
}

/// Task that runs on after a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundTask {
    /// Id.
    pub id: Option<String>,
    /// Kind, in the agent's words.
    pub kind: Option<String>,
    /// Description.
    pub description: Option<String>,
}

/// Reason why an input is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The input exceeds [`INPUT_BYTES_MAX`].
    #[error("cannot read the event: more than 64 MB")]
    TooLarge,
    /// The input is not JSON.
    #[error("cannot read the event: invalid JSON at line {line}, column {column}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The input is JSON, but not an object.
    #[error("cannot read the event: not a JSON object")]
    NotAnObject,
    /// Neither the input nor the command line names the event.
    #[error("cannot read the event: its name is missing")]
    Unnamed,
}

impl HookEvent {
    /// Reads an event. `name` is the name on the command line, for agents whose events do not name themselves.
    ///
    /// # Errors
    /// When the input is not a JSON object, is too large, or no name is known.
    pub fn read(caller: &Caller, name: Option<&str>, input: &HookInput) -> Result<Self, EventError> {
        read::event(caller, name, input)
    }

    /// Returns true if the answer can carry a text for the model: at a prompt to the main agent.
    pub fn reaches_model(&self) -> bool {
        answer::reaches_model(self)
    }

    /// Returns true if the answer can carry a message for the person.
    pub fn reaches_person(&self) -> bool {
        answer::reaches_person(self)
    }

    /// Returns the answer to the agent: one JSON object that fits its schema for this event.
    pub fn answer(&self, reply: &Reply) -> String {
        answer::answer(self, reply)
    }
}
