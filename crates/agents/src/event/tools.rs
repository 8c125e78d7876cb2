//! Tools of the agents: effect on files, shell text, and the paths that a call names.

use super::json::{self, Fields, TEXT_BYTES_MAX, cut, whole};
use super::{CodingAgent, ToolCall, ToolEffect};
use serde_json::{Map, Value};

const TOOL_BYTES_MAX: usize = 256;
const PATHS_MAX: usize = 1_000;

/// Tools that change no file. A tool that is not listed may change files.
const READERS: [(CodingAgent, &[&str]); 6] = [
    (
        CodingAgent::Claude,
        &[
            "AskUserQuestion",
            "BashOutput",
            "EnterPlanMode",
            "ExitPlanMode",
            "Glob",
            "Grep",
            "LS",
            "ListMcpResources",
            "NotebookRead",
            "Read",
            "ReadMcpResource",
            "TaskCreate",
            "TaskGet",
            "TaskList",
            "TaskOutput",
            "TaskUpdate",
            "TodoRead",
            "TodoWrite",
            "ToolSearch",
            "WebFetch",
            "WebSearch",
        ],
    ),
    (
        CodingAgent::Codex,
        &[
            "create_goal",
            "get_goal",
            "grep_files",
            "list_dir",
            "list_mcp_resource_templates",
            "list_mcp_resources",
            "multi_agent_v1wait_agent",
            "read_file",
            "read_mcp_resource",
            "request_user_input",
            "update_goal",
            "update_plan",
            "view_image",
            "wait_agent",
            "web_search",
        ],
    ),
    (
        CodingAgent::Gemini,
        &[
            "ask_user",
            "complete_task",
            "enter_plan_mode",
            "exit_plan_mode",
            "get_internal_docs",
            "glob",
            "google_web_search",
            "grep_search",
            "list_directory",
            "read_file",
            "read_many_files",
            "search_file_content",
            "web_fetch",
            "write_todos",
        ],
    ),
    (
        CodingAgent::Copilot,
        &[
            "ask_user",
            "fetch_copilot_cli_documentation",
            "glob",
            "grep",
            "list_agents",
            "list_bash",
            "read_agent",
            "read_bash",
            "report_intent",
            "sql",
            "update_todo",
            "view",
            "web_fetch",
            "web_search",
        ],
    ),
    (
        CodingAgent::Opencode,
        &[
            "codesearch",
            "glob",
            "grep",
            "invalid",
            "list",
            "lsp",
            "question",
            "read",
            "todoread",
            "todowrite",
            "webfetch",
            "websearch",
        ],
    ),
    (
        CodingAgent::Cursor,
        &["Glob", "Grep", "LS", "Read", "ReadLints", "SemanticSearch", "TodoWrite", "WebFetch", "WebSearch"],
    ),
];

/// Tools that run shell text.
const SHELLS: [&str; 9] = [
    "Bash",
    "Shell",
    "bash",
    "exec_command",
    "local_shell",
    "run_shell_command",
    "run_terminal_cmd",
    "shell",
    "shell_command",
];

/// Tools whose text is a patch.
const PATCHERS: [&str; 3] = ["ApplyPatch", "apply_patch", "patch"];

/// Returns the call of an event.
pub(super) fn call(agent: CodingAgent, fields: Fields<'_>) -> ToolCall {
    let tool = tool(fields);
    let readers = READERS.iter().find(|(of, _)| *of == agent).map_or(&[][..], |(_, names)| names);
    let effect = if readers.contains(&tool) { ToolEffect::Nothing } else { ToolEffect::Maybe };
    let input = input(fields);
    let command = match SHELLS.contains(&tool) || fields.has("command") {
        true => Fields(&input).get(&["command", "cmd"]).or(fields.get(&["command"])).and_then(shell_text),
        false => None,
    };
    let paths = match effect {
        ToolEffect::Nothing => Vec::new(),
        ToolEffect::Maybe => paths(tool, Fields(&input), fields),
    };
    let id = fields.name(&["tool_use_id", "toolUseId", "toolCallId", "tool_call_id"]);
    ToolCall { tool: cut(tool, TOOL_BYTES_MAX).to_owned(), id, effect, command, paths }
}

/// Returns the tool of an event.
pub(super) fn tool(fields: Fields<'_>) -> &str {
    let unnamed = if fields.has("command") { "Shell" } else { "" };
    fields.text(&["tool_name", "toolName"]).unwrap_or(unnamed)
}

/// Returns the arguments of a call. Some agents write them as JSON in a text.
pub(super) fn input(fields: Fields<'_>) -> Map<String, Value> {
    match fields.get(&["tool_input", "toolArgs", "toolInput", "arguments"]) {
        Some(Value::Object(map)) => map.clone(),
        Some(Value::String(text)) => json::object(text.as_bytes()).unwrap_or_default(),
        _ => Map::new(),
    }
}

/// Returns true if the result of a call is a failure.
pub(super) fn reports_failure(fields: Fields<'_>) -> bool {
    let Some(response) = fields.get(&["tool_response", "toolResult", "tool_output"]) else { return false };
    let Some(response) = response.as_object().map(Fields) else { return false };
    let kind = response.text(&["resultType"]);
    response.has("error") || kind.is_some_and(|kind| kind != "success")
}

/// Returns shell text, also from a list of words such as `["bash", "-lc", "ls"]`.
fn shell_text(command: &Value) -> Option<String> {
    match command {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let quoted = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            Some(cut(&quoted, TEXT_BYTES_MAX).to_owned())
        }
        _ => None,
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the paths that a call names, each once.
fn paths(tool: &str, input: Fields<'_>, fields: Fields<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let named = ["file_path", "filePath", "path", "notebook_path", "target_file", "file"];
    named.iter().for_each(|name| found.extend(input.text(&[name]).and_then(whole)));
    for list in ["paths", "file_paths", "files", "edits"] {
        for entry in input.get(&[list]).and_then(Value::as_array).into_iter().flatten() {
            let path = entry.as_str().or_else(|| Fields(entry.as_object()?).text(&named));
            found.extend(path.and_then(whole));
        }
    }
    if PATCHERS.contains(&tool) {
        let patch = input.text(&["command", "input", "patch", "patchText"]).unwrap_or_default();
        found.extend(patched(patch));
    }
    let response = fields.inner("tool_response");
    let changed = response.and_then(|response| response.inner("bashEditDiff")?.get(&["changedFiles"]));
    found.extend(
        changed.and_then(Value::as_array).into_iter().flatten().filter_map(|path| whole(path.as_str()?)),
    );
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found.truncate(PATHS_MAX);
    found
}

/// Returns the paths in the headers of a patch.
fn patched(patch: &str) -> impl Iterator<Item = String> {
    let headers = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    patch.lines().filter_map(move |line| {
        let path = headers.iter().find_map(|header| line.strip_prefix(header))?;
        whole(path.trim())
    })
}
