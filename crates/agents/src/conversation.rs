//! Ways back of conversations: what a person types in the agent, and the command that goes on in a copy of the conversation.
//!
//! One row for each agent. The commands are those of the programs' own help: Claude Code 2.1, Codex 0.166, opencode 1.18, Gemini CLI 0.61
//! and Copilot CLI 1.0.

use crate::CodingAgent;

/// Way back of a conversation, separate from that of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationBack {
    /// Instruction for the open conversation.
    pub typed: Option<&'static str>,
    /// Shell command that opens a copy of the conversation, or the conversation itself if the agent makes no copies.
    pub command: Option<String>,
}

const ROWS: [(CodingAgent, Option<&str>, Option<&str>); 6] = [
    (
        CodingAgent::Claude,
        Some("type /rewind, choose the prompt, then \"Restore conversation\""),
        Some("claude --resume ID --fork-session"),
    ),
    (CodingAgent::Codex, Some("press Esc twice and choose the prompt"), Some("codex fork ID")),
    (
        CodingAgent::Gemini,
        Some("type /rewind, choose the prompt, then \"Rewind conversation\""),
        Some("gemini --resume ID"),
    ),
    (CodingAgent::Copilot, None, Some("copilot --resume ID")),
    (
        CodingAgent::Opencode,
        Some("type /undo, with \"snapshot\": false in opencode.json so that it leaves the files"),
        Some("opencode --session ID --fork"),
    ),
    (CodingAgent::Cursor, None, None),
];

impl CodingAgent {
    /// Returns the way back of a conversation. `session` is its id, as the agent writes it.
    #[must_use]
    pub fn conversation_back(self, session: &str) -> ConversationBack {
        let row = ROWS.iter().find(|(agent, ..)| *agent == self);
        let (typed, command) = row.map_or((None, None), |(_, typed, command)| (*typed, *command));
        // An id is data: one with other letters is no word for a shell.
        let is_word = !session.is_empty()
            && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let command = command.filter(|_| is_word && !session.starts_with('-'));
        ConversationBack { typed, command: command.map(|command| command.replace("ID", session)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_its_own_command_and_no_hostile_id_is_in_it() {
        let command = |agent: CodingAgent, id: &str| agent.conversation_back(id).command;
        assert_eq!(
            command(CodingAgent::Claude, "57858edd-f386").as_deref(),
            Some("claude --resume 57858edd-f386 --fork-session")
        );
        assert_eq!(command(CodingAgent::Codex, "01a1").as_deref(), Some("codex fork 01a1"));
        assert_eq!(
            command(CodingAgent::Opencode, "ses_e1").as_deref(),
            Some("opencode --session ses_e1 --fork")
        );
        for agent in CodingAgent::ALL {
            for id in ["", "a; rm -rf ~", "$(x)", "-p", "a\nb"] {
                assert_eq!(command(agent, id), None, "{agent} {id:?}");
            }
        }
    }
}
