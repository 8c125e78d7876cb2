//! Coding agents: their hook events and answers, their settings files, and the risk of a shell command.
//!
//! A hook reads one event, acts on it and writes one answer. Reading and answering are pure: no files, no
//! clock, no processes.
//!
//! ```
//! use safepoint_agents::{Caller, CodingAgent, HookEvent, HookInput, Moment, Reply};
//!
//! let input = HookInput::parse(br#"{"session_id": "57858edd-f386-4b85-b6ba-76f742d12643",
//!     "cwd": "/home/dev/shop", "hook_event_name": "UserPromptSubmit", "prompt": "make the tests pass"}"#);
//! let caller = Caller::recognise(CodingAgent::Claude, |_| None, &input);
//! let event = HookEvent::read(&caller, None, &input)?;
//! assert!(matches!(&event.moment, Moment::Prompt { opens_turn: true, .. }));
//!
//! let reply = Reply { context: Some("Files were rolled back.".to_owned()), ..Reply::default() };
//! assert_eq!(
//!     event.answer(&reply),
//!     r#"{"hookSpecificOutput":{"additionalContext":"Files were rolled back.","hookEventName":"UserPromptSubmit"}}"#
//! );
//! assert_eq!(event.answer(&Reply::default()), "{}");
//!
//! let risk = safepoint_agents::risk("sudo rm -rf build", &[]).unwrap();
//! assert_eq!(risk.label, "before sudo rm -rf build");
//! # Ok::<(), safepoint_agents::EventError>(())
//! ```

pub mod install;

mod answer;
mod conversation;
mod event;
mod note;
mod risk;

pub use answer::{EMPTY_ANSWER, Reply};
pub use conversation::ConversationBack;
pub use event::{
    AgentSession, BackgroundTask, Caller, CodingAgent, EventError, EventKey, HookEvent, HookInput,
    INPUT_BYTES_MAX, Moment, PlanExtent, PlanReport, ReportedDecision, ReportedStatus, ReportedStep,
    Subagent, ToolCall, ToolEffect, UnknownAgent,
};
pub use note::{CONTEXT_LETTERS_MAX, RollbackNote, one_line};
pub use risk::{Risk, RiskKind, RiskPattern, RiskPatternError, risk};
