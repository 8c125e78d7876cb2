//! Table of tools: names, texts, schemas and hints.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// Effect of a tool on the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Adds,
    Destroys,
}

struct Row {
    name: &'static str,
    title: &'static str,
    text: &'static str,
    effect: Effect,
    input: Value,
    output: Value,
}

/// All tools.
pub(crate) fn list() -> Vec<Tool> {
    reading().into_iter().chain([comparing()]).chain(writing()).chain(attempting()).map(tool).collect()
}

fn tool(row: Row) -> Tool {
    let hints = ToolAnnotations::with_title(row.title)
        .read_only(row.effect == Effect::Reads)
        .destructive(row.effect == Effect::Destroys)
        .idempotent(row.effect == Effect::Reads)
        .open_world(false);
    Tool::new(row.name, row.text, object(row.input))
        .with_title(row.title)
        .with_annotations(hints)
        .with_raw_output_schema(object(output(row.output)))
}

fn object(value: Value) -> Arc<JsonObject> {
    Arc::new(match value {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    })
}

/// Schema of arguments.
fn input(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Schema of a result: that of the tool, or a failure.
fn output(properties: Value) -> Value {
    let mut all = json!({
        "exit_code": { "type": "integer", "description": "Exit code of the same command on the command line" },
        "error": {
            "type": "object",
            "description": "Failure, as in docs/errors.md",
            "properties": {
                "code": { "type": "string" },
                "kind": { "type": "string" },
                "message": { "type": "string" },
                "causes": { "type": "array", "items": { "type": "string" } },
                "hints": { "type": "array", "items": { "type": "string" } }
            },
            "required": ["code", "kind", "message", "causes", "hints"]
        },
        "messages": { "type": "array", "items": { "type": "object" } }
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut all, properties) {
        all.extend(own);
    }
    json!({ "type": "object", "properties": all, "required": ["exit_code"] })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn rows(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "object" }, "description": description })
}

fn names(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

/// Paths that are not UTF-8 are objects.
fn paths(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": ["string", "object"] }, "description": description })
}

const CHECKPOINT: &str =
    "Checkpoint: id, start of an id, label, @ (newest), @~N, or a time such as \"10 minutes ago\"";
const CURSOR: &str = "Value of next_cursor in the previous result";

fn reading() -> Vec<Row> {
    let read =
        |name, title, text, input, output| Row { name, title, text, effect: Effect::Reads, input, output };
    vec![
        read(
            "status",
            "Coverage of the workspace",
            "Shows the changes since the newest checkpoint, and whether everything is covered.",
            input(&json!({}), &[]),
            json!({
                "workspace": { "type": "object" },
                "verdict": { "enum": ["covered", "partly", "changed", "never"] },
                "covered": { "type": "boolean" },
                "changes": rows("Changes, at most 100"),
                "changes_total": count("All changes, if there are more"),
                "checkpoints": count("Number of checkpoints"),
            }),
        ),
        read(
            "checkpoints",
            "List of checkpoints",
            "Lists the checkpoints of the workspace, newest first, 50 at a time.",
            input(&json!({ "cursor": text(CURSOR) }), &[]),
            json!({
                "checkpoints": rows("Checkpoints"),
                "total": count("Number of checkpoints"),
                "next_cursor": text("Cursor of the next page; missing on the last one"),
            }),
        ),
        read(
            "changes",
            "Changes between two states",
            "Compares a checkpoint with another one or with the current state. Returns 100 paths at a time and a \
             unified diff of at most 32 KiB.",
            input(
                &json!({
                    "from": text("Older checkpoint [default: the position of the workspace]"),
                    "to": text("Newer checkpoint [default: the current state]"),
                    "paths": names("Only these paths, relative to the top of the workspace"),
                    "cursor": text(CURSOR),
                }),
                &[],
            ),
            json!({
                "from": text("Id of the older checkpoint"),
                "to": { "type": ["string", "null"], "description": "Id of the newer checkpoint; null: current state" },
                "changes": rows("Changed paths"),
                "counts": { "type": "object", "description": "Number of paths by kind of change" },
                "patch": text("Unified diff of these paths"),
                "patch_cut": { "type": "boolean", "description": "True if the diff is longer" },
                "next_cursor": text("Cursor of the next page; missing on the last one"),
            }),
        ),
        read(
            "file_at",
            "File in a checkpoint",
            "Returns the first 8 KiB of a file as it was in a checkpoint; `uri` is the resource with all of it.",
            input(
                &json!({ "checkpoint": text(CHECKPOINT), "path": text("Path, relative to the top of the workspace") }),
                &["checkpoint", "path"],
            ),
            json!({
                "checkpoint": text("Id of the checkpoint"),
                "size": count("Size in bytes"),
                "text": text("Content, if it is UTF-8"),
                "base64": text("Content, if it is not"),
                "cut": { "type": "boolean", "description": "True if the file is longer" },
                "uri": text("Resource with the whole file"),
            }),
        ),
        read(
            "plan",
            "Plan of the workspace",
            "Shows the active plan, or a named one, with its steps and decisions, and lists all plans.",
            input(&json!({ "id": text("Plan [default: the active plan]") }), &[]),
            json!({
                "plan": { "type": ["object", "null"] },
                "plans": rows("All plans of the workspace"),
            }),
        ),
        read(
            "preview",
            "Preview of a rollback",
            "Shows the effect of a rollback and returns the single-use token that `rollback` needs. The token expires \
             after 10 minutes, and when a file changes.",
            input(
                &json!({ "to": text(CHECKPOINT), "paths": names("Only these paths [default: everything]") }),
                &["to"],
            ),
            rollback_output(
                json!({ "token": text("Token for `rollback`"), "expires_in_seconds": count("Lifetime") }),
            ),
        ),
    ]
}

fn comparing() -> Row {
    Row {
        name: "attempts",
        title: "Open attempts",
        text: "Compares the open attempts: places to work in whose changes stay apart from the workspace until one is kept.",
        effect: Effect::Reads,
        input: input(&json!({}), &[]),
        output: json!({
            "attempts": rows("Attempts with status, tests, metrics, changes and lines"),
            "best": { "type": ["string", "null"] },
        }),
    }
}

fn attempt() -> Value {
    text("Name or number of the attempt")
}

fn attempting() -> Vec<Row> {
    let kept = |extra: Value| {
        let mut all = rollback_output(json!({
            "rollback": { "type": ["object", "null"], "description": "Changes; null if the attempt changed nothing" },
            "attempt": { "type": "object" },
            "merged": paths("Text files of which the lines of both sides are taken"),
            "changed_in_project": paths("Paths that changed in the workspace since the start, and stay"),
            "dropped": names("Other attempts that are dropped"),
            "ended": rows("Processes that were ended"),
        }));
        if let (Value::Object(all), Value::Object(extra)) = (&mut all, extra) {
            all.extend(extra);
        }
        all
    };
    vec![
        Row {
            name: "preview_keep",
            title: "Preview of keeping an attempt",
            text: "Captures an attempt, shows what keeping its result would change, and returns the single-use token that \
                   `keep` needs.",
            effect: Effect::Adds,
            input: input(
                &json!({
                    "attempt": attempt(),
                    "others": { "enum": ["drop", "open"], "description": "Other open attempts [default: drop]" },
                }),
                &["attempt"],
            ),
            output: kept(
                json!({ "token": text("Token for `keep`"), "expires_in_seconds": count("Lifetime") }),
            ),
        },
        Row {
            name: "keep",
            title: "Keep an attempt",
            text: "Takes the result of an attempt over into the workspace as previewed. `undo` takes it back.",
            effect: Effect::Destroys,
            input: input(&json!({ "token": text("Token of `preview_keep`") }), &["token"]),
            output: kept(json!({})),
        },
        Row {
            name: "drop",
            title: "Drop an attempt",
            text: "Ends what runs in an attempt and closes it. Its last state stays as a checkpoint.",
            effect: Effect::Destroys,
            input: input(&json!({ "attempt": attempt() }), &["attempt"]),
            output: json!({ "attempts": rows("The attempt") }),
        },
    ]
}

fn rollback_output(extra: Value) -> Value {
    let mut all = json!({
        "rollback": { "type": "object", "description": "The same object as `safepoint rollback --json`" },
        "read_again": paths("Files whose content changed: read them before the next edit"),
        "read_again_total": count("All of them, if there are more than 100"),
        "steps_taken_back": names("Steps of the plan that are no longer done"),
    });
    if let (Value::Object(all), Value::Object(extra)) = (&mut all, extra) {
        all.extend(extra);
    }
    all
}

fn writing() -> Vec<Row> {
    let plan = || text("Plan [default: the active plan]");
    vec![
        Row {
            name: "checkpoint",
            title: "Take a checkpoint",
            text: "Takes a checkpoint of the workspace. Use it before a risky change and when a state works.",
            effect: Effect::Adds,
            input: input(&json!({ "label": text("Label that names the state") }), &["label"]),
            output: json!({
                "checkpoint": { "type": "object" },
                "unchanged": { "type": "boolean", "description": "True if nothing changed since the last one" },
            }),
        },
        Row {
            name: "step",
            title: "Change a step of the plan",
            text: "Starts, finishes, fails or adds a step of a plan. Starting and finishing can take checkpoints.",
            effect: Effect::Adds,
            input: input(
                &json!({
                    "id": text("Step, such as api/handlers"),
                    "action": { "enum": ["start", "finish", "fail", "add"] },
                    "plan": plan(),
                    "output": { "description": "Result of the step, with action finish" },
                    "error": text("Reason, with action fail"),
                    "title": text("Title, with action add"),
                }),
                &["id", "action"],
            ),
            output: json!({
                "plan": { "type": "object" },
                "step": text("Step"),
                "checkpoints": rows("Checkpoints that were taken"),
            }),
        },
        Row {
            name: "decide",
            title: "Record a decision",
            text: "Records a decision of the plan, so that it can be reviewed and reverted later.",
            effect: Effect::Adds,
            input: input(
                &json!({
                    "question": text("Question"),
                    "choice": text("Choice"),
                    "why": text("Reason"),
                    "alternatives": names("Other choices"),
                    "plan": plan(),
                    "step": text("Step that the decision belongs to"),
                }),
                &["question", "choice"],
            ),
            output: json!({ "plan": { "type": "object" }, "decision": { "type": ["object", "null"] } }),
        },
        Row {
            name: "rollback",
            title: "Roll back",
            text: "Rolls the workspace back as previewed. The current state is kept, so that `undo` restores it.",
            effect: Effect::Destroys,
            input: input(&json!({ "token": text("Token of `preview`") }), &["token"]),
            output: rollback_output(json!({})),
        },
        Row {
            name: "undo",
            title: "Undo or redo a rollback",
            text: "Undoes the last rollback, or redoes the last undo. If files changed since, it fails with a \
                   conflict that lists them and carries a token; the call with this token replaces them.",
            effect: Effect::Destroys,
            input: input(
                &json!({
                    "redo": { "type": "boolean", "description": "Redo the last undo [default: false]" },
                    "token": text("Token of the conflict, to replace files that changed since"),
                }),
                &[],
            ),
            output: rollback_output(
                json!({ "token": text("Token that allows the call despite the conflict") }),
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_schemas_and_hints() {
        let tools = list();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(
            names,
            [
                "status",
                "checkpoints",
                "changes",
                "file_at",
                "plan",
                "preview",
                "attempts",
                "checkpoint",
                "step",
                "decide",
                "rollback",
                "undo",
                "preview_keep",
                "keep",
                "drop"
            ]
        );
        for tool in &tools {
            let hints = tool.annotations.as_ref().unwrap();
            let destroys = matches!(tool.name.as_ref(), "rollback" | "undo" | "keep" | "drop");
            assert_eq!(hints.destructive_hint, Some(destroys));
            assert_eq!(tool.output_schema.as_ref().unwrap()["type"], "object");
            assert_eq!(tool.input_schema["additionalProperties"], false);
        }
        assert_eq!(
            tools
                .iter()
                .filter(|tool| tool.annotations.as_ref().unwrap().read_only_hint == Some(true))
                .count(),
            7
        );
    }
}
