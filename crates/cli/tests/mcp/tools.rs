//! Tools: the same answers and failures as the command line, with tokens for what destroys.

use crate::client::World;
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_rollback_needs_the_token_of_its_preview_and_can_be_undone() {
    let world = World::new();
    world.write("a.txt", "good\n");
    let mut client = world.client();
    let made = client.done("checkpoint", json!({ "label": "good" }));
    world.write("a.txt", "bad\n");
    world.write("new.txt", "new\n");
    let preview = client.done("preview", json!({ "to": "good" }));
    assert_eq!(preview["rollback"]["dry_run"], true);
    assert_eq!(world.read("a.txt"), "bad\n");
    let done = client.done("rollback", json!({ "token": preview["token"] }));
    assert_eq!(done["read_again"], json!(["a.txt"]));
    assert_eq!(done["steps_taken_back"], json!([]));
    assert_eq!((&done["rollback"]["to"], &done["exit_code"]), (&made["checkpoint"]["id"], &json!(0)));
    assert_eq!(world.read("a.txt"), "good\n");
    assert!(!world.path("project/new.txt").exists());
    let again = client.fails("rollback", json!({ "token": preview["token"] }));
    assert_eq!(again, ("stale_preview".to_owned(), 12));
    client.done("undo", json!({}));
    assert_eq!(world.read("a.txt"), "bad\n");
    client.done("undo", json!({ "redo": true }));
    assert_eq!(world.read("a.txt"), "good\n");
    // The same objects as those of the command line, and the client is on record.
    let history = world.cli(&["history"]);
    assert_eq!(history["data"]["history"][0]["actor"], "dev via tester");
    world.cli(&["undo"]);
    let ours = client.done("preview", json!({ "to": "good" }))["rollback"].clone();
    let theirs = world.cli(&["rollback", "good", "--dry-run"])["data"]["rollback"].clone();
    assert_eq!(ours, theirs);
}

#[test]
fn a_token_is_stale_once_a_file_changed() {
    let world = World::new();
    world.write("a.txt", "good\n");
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "good" }));
    world.write("a.txt", "bad\n");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    world.write("a.txt", "else\n");
    let result = client.tool("rollback", json!({ "token": token }));
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "stale_preview", "{result}");
    assert!(error["hints"][0].as_str().unwrap().contains("Call `preview` again"), "{error}");
    // The token is gone even if the old content comes back.
    world.write("a.txt", "bad\n");
    assert_eq!(client.fails("rollback", json!({ "token": token })).0, "stale_preview");
    assert_eq!(world.read("a.txt"), "bad\n");
    // A checkpoint changes no file.
    let token = client.done("preview", json!({ "to": "good" }))["token"].clone();
    client.done("checkpoint", json!({ "label": "bad" }));
    client.done("rollback", json!({ "token": token }));
    assert_eq!(world.read("a.txt"), "good\n");
}

#[test]
fn a_token_of_another_process_or_action_allows_nothing() {
    let world = World::new();
    world.write("a.txt", "1");
    let (mut one, mut other) = (world.client(), world.client());
    one.done("checkpoint", json!({ "label": "1" }));
    world.write("a.txt", "2");
    let token = one.done("preview", json!({ "to": "@" }))["token"].clone();
    assert_eq!(other.fails("rollback", json!({ "token": token })).0, "stale_preview");
    one.done("rollback", json!({ "token": token }));
    world.write("a.txt", "3");
    let token = one.tool("undo", json!({}))["structuredContent"]["token"].clone();
    assert_eq!(one.fails("rollback", json!({ "token": token })).0, "stale_preview");
    assert_eq!(one.fails("undo", json!({ "token": token, "redo": true })).0, "nothing_to_redo");
    assert_eq!(world.read("a.txt"), "3");
}

#[test]
fn undo_and_redo_spare_files_that_changed_since_unless_the_token_allows_it() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client();
    assert_eq!(client.fails("undo", json!({})).0, "no_workspace");
    client.done("checkpoint", json!({ "label": "1" }));
    assert_eq!(client.fails("undo", json!({})), ("nothing_to_undo".to_owned(), 10));
    world.write("a.txt", "2");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    client.done("rollback", json!({ "token": token }));
    for (redo, after) in [(false, "2"), (true, "later")] {
        world.write("a.txt", "later");
        let result = client.tool("undo", json!({ "redo": redo }));
        let content = &result["structuredContent"];
        assert_eq!(
            (&content["error"]["code"], &content["exit_code"]),
            (&json!("changed_since_rollback"), &json!(12))
        );
        assert_eq!(world.read("a.txt"), "later");
        world.write("a.txt", "later still");
        let token = json!({ "redo": redo, "token": content["token"] });
        assert_eq!(client.fails("undo", token).0, "stale_preview");
        let token = client.tool("undo", json!({ "redo": redo }))["structuredContent"]["token"].clone();
        client.done("undo", json!({ "redo": redo, "token": token }));
        assert_eq!(world.read("a.txt") == after, !redo, "{}", world.read("a.txt"));
    }
}

#[test]
fn lists_are_paged_and_a_cursor_ends_with_its_list() {
    let world = World::new();
    world.write("first", "");
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "first" }));
    for number in 0..120 {
        world.write(&format!("many/{number:03}"), "x\n".repeat(400));
    }
    let page = client.done("changes", json!({}));
    assert_eq!(page["changes"].as_array().unwrap().len(), 100);
    // The folder itself is a change, too.
    assert_eq!((&page["total"], &page["counts"]["added"]), (&json!(121), &json!(121)));
    assert_eq!(page["patch_cut"], true);
    assert!(page["patch"].as_str().unwrap().len() <= 32 << 10);
    let cursor = page["next_cursor"].clone();
    let rest = client.done("changes", json!({ "cursor": cursor }));
    assert_eq!((rest["changes"].as_array().unwrap().len(), &rest["next_cursor"]), (21, &Value::Null));
    let few = client.done("changes", json!({ "paths": ["many/007"] }));
    assert_eq!(few["changes"], json!([{ "path": "many/007", "change": "added" }]));
    world.write("one more", "");
    assert_eq!(client.fails("changes", json!({ "cursor": cursor })).0, "bad_input");
    let status = client.done("status", json!({}));
    assert_eq!((status["changes"].as_array().unwrap().len(), &status["changes_total"]), (100, &json!(122)));
    for number in 0..60 {
        client.done("checkpoint", json!({ "label": format!("number {number}") }));
    }
    let page = client.done("checkpoints", json!({}));
    assert_eq!((page["checkpoints"].as_array().unwrap().len(), &page["total"]), (50, &json!(61)));
    let rest = client.done("checkpoints", json!({ "cursor": page["next_cursor"] }));
    assert_eq!(rest["checkpoints"][10]["label"], "first");
}

#[test]
fn a_file_is_shown_up_to_a_limit_and_whole_as_a_resource() {
    let world = World::new();
    world.write("long.txt", "\u{e9}".repeat(10_000));
    world.write("binary", [0, 159, 146, 150]);
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "x" }));
    fs::remove_file(world.path("project/long.txt")).unwrap();
    let file = client.done("file_at", json!({ "checkpoint": "@", "path": "long.txt" }));
    assert_eq!((&file["size"], &file["cut"]), (&json!(20_000), &json!(true)));
    assert_eq!(file["text"].as_str().unwrap().len(), 8192);
    let whole = client.request("resources/read", json!({ "uri": file["uri"] }));
    assert_eq!(whole["result"]["contents"][0]["text"].as_str().unwrap().len(), 20_000);
    let binary = client.done("file_at", json!({ "checkpoint": "@", "path": "binary" }));
    assert_eq!(binary["base64"], "AJ+Slg==");
    let blob = client.request("resources/read", json!({ "uri": binary["uri"] }));
    assert_eq!(blob["result"]["contents"][0]["blob"], "AJ+Slg==");
    assert_eq!(
        client.fails("file_at", json!({ "checkpoint": "@", "path": "none" })),
        ("no_path".to_owned(), 10)
    );
    assert_eq!(client.fails("file_at", json!({ "checkpoint": "none", "path": "none" })).0, "no_checkpoint");
}

#[test]
fn a_plan_is_driven_by_steps_and_decisions_and_its_rollback_names_the_steps() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "start" }));
    assert_eq!(client.done("plan", json!({}))["plan"], Value::Null);
    assert_eq!(client.fails("step", json!({ "id": "a", "action": "start" })).0, "usage");
    world.cli(&["plan", "new", "--title", "Limits", "--id", "limits"]);
    client.done("step", json!({ "id": "build", "action": "add", "title": "Build it" }));
    client.done("step", json!({ "id": "build", "action": "start" }));
    let made =
        client.done("decide", json!({ "question": "Which?", "choice": "this", "alternatives": ["that"] }));
    assert_eq!(made["decision"]["choice"], "this");
    let before = world.cli(&["plan", "checkpoint", "create", "limits"])["data"]["checkpoint"]["id"].clone();
    world.write("a.txt", "2");
    client.done("step", json!({ "id": "build", "action": "finish", "output": { "files": 1 } }));
    let plan = client.done("plan", json!({}));
    assert_eq!(plan["plan"]["steps"][0]["state"], "done");
    assert_eq!(client.fails("plan", json!({ "id": "none" })), ("no_plan".to_owned(), 10));
    let token = client.done("preview", json!({ "to": before }))["token"].clone();
    let done = client.done("rollback", json!({ "token": token }));
    assert_eq!(done["steps_taken_back"], json!(["build"]), "{done}");
    assert_eq!(world.read("a.txt"), "1");
    let wrong = json!({ "id": "build", "action": "start", "error": "x" });
    assert_eq!(client.fails("step", wrong), ("bad_input".to_owned(), 2));
}

#[test]
fn every_result_fits_the_output_schema_of_its_tool() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client();
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let schemas: Vec<(String, jsonschema::Validator)> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
            (tool["name"].as_str().unwrap().to_owned(), schema)
        })
        .collect();
    assert_eq!(schemas.len(), 15);
    let mut fits = |name: &str, arguments: Value| {
        let result = client.tool(name, arguments);
        let (_, schema) = schemas.iter().find(|(tool, _)| tool == name).unwrap();
        let content = result["structuredContent"].clone();
        let wrong: Vec<String> = schema.iter_errors(&content).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?} in {content}");
        // Clients without structured content read the same from the text.
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), content);
        content
    };
    for (name, _) in &schemas {
        fits(name, json!({}));
    }
    fits("checkpoint", json!({ "label": "x" }));
    world.write("a.txt", "2");
    world.cli(&["plan", "new", "--title", "Limits", "--id", "limits"]);
    for name in ["status", "checkpoints", "changes", "plan"] {
        fits(name, json!({}));
    }
    fits("file_at", json!({ "checkpoint": "@", "path": "a.txt" }));
    let token = fits("preview", json!({ "to": "@" }))["token"].clone();
    fits("rollback", json!({ "token": token }));
    world.write("a.txt", "3");
    let token = fits("undo", json!({}))["token"].clone();
    fits("undo", json!({ "token": token }));
    world.cli(&["attempt", "start", "empty", "--copy"]);
    fits("attempts", json!({}));
    let token = fits("preview_keep", json!({ "attempt": "empty" }))["token"].clone();
    fits("keep", json!({ "token": token }));
    world.cli(&["attempt", "start", "one", "--copy"]);
    fits("drop", json!({ "attempt": "one" }));
    fits("step", json!({ "id": "s", "action": "add" }));
    fits("step", json!({ "id": "s", "action": "start" }));
    fits("decide", json!({ "question": "q", "choice": "c" }));
}

#[test]
fn an_attempt_is_kept_only_as_it_was_previewed() {
    let world = World::new();
    world.write("a.txt", "1\n");
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "1" }));
    for name in ["one", "two"] {
        world.cli(&["attempt", "start", name, "--copy"]);
    }
    let edit = |line: &str| {
        let status = world.command(&["attempt", "exec", "one", "--", "sh", "-c", line]).status().unwrap();
        assert!(status.success(), "{line}");
    };
    edit("echo 2 > a.txt");
    let attempts = client.done("attempts", json!({}))["attempts"].clone();
    assert_eq!(attempts[0]["lines"], json!({ "added": 1, "removed": 1 }), "{attempts:#}");
    assert_eq!(attempts.as_array().unwrap().len(), 2);
    let preview = client.done("preview_keep", json!({ "attempt": "one" }));
    assert_eq!((&preview["rollback"]["dry_run"], &preview["dropped"]), (&json!(true), &json!(["two"])));
    // Neither another state of the attempt nor one of the project was previewed.
    edit("echo 3 > a.txt");
    assert_eq!(client.fails("keep", json!({ "token": preview["token"] })).0, "stale_preview");
    let token = client.done("preview_keep", json!({ "attempt": "one" }))["token"].clone();
    world.write("b.txt", "b\n");
    assert_eq!(client.fails("keep", json!({ "token": token })).0, "stale_preview");
    assert_eq!(world.read("a.txt"), "1\n");
    let token = client.done("preview_keep", json!({ "attempt": "one" }))["token"].clone();
    assert_eq!(client.fails("rollback", json!({ "token": token })).0, "stale_preview");
    let kept = client.done("keep", json!({ "token": token }));
    assert_eq!((&kept["read_again"], &kept["dropped"]), (&json!(["a.txt"]), &json!(["two"])));
    assert_eq!((world.read("a.txt").as_str(), world.read("b.txt").as_str()), ("3\n", "b\n"));
    client.done("undo", json!({}));
    assert_eq!(world.read("a.txt"), "1\n");
    world.cli(&["attempt", "start", "three", "--copy"]);
    client.done("drop", json!({ "attempt": "three" }));
    assert_eq!(client.done("attempts", json!({}))["attempts"], json!([]));
    assert_eq!(client.fails("drop", json!({ "attempt": "none" })), ("no_attempt".to_owned(), 10));
}

#[test]
fn a_checkpoint_belongs_to_the_session_that_the_client_names() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let session = "01a1e1bc-20f5-7ac3-b5e4-7c15412652a3";
    let mut client = world.client();
    let mut checkpoint = |label: &str, meta: Value| {
        world.write("a.txt", label);
        let arguments = json!({ "label": label });
        let request = json!({ "name": "checkpoint", "arguments": arguments, "_meta": meta });
        let result = client.request("tools/call", request)["result"].clone();
        result["structuredContent"]["checkpoint"]["session_id"].clone()
    };
    let turn = json!({ "session_id": session, "turn_id": "t1" });
    assert_eq!(checkpoint("codex", json!({ "x-codex-turn-metadata": turn })), session);
    assert_eq!(checkpoint("codex, as a text", json!({ "x-codex-turn-metadata": turn.to_string() })), session);
    assert_eq!(
        checkpoint("no session", json!({ "x-codex-turn-metadata": { "session_id": "../x" } })),
        Value::Null
    );
    assert_eq!(checkpoint("unknown call", json!({ "claudecode/toolUseId": "toolu_1" })), Value::Null);
    // Claude Code names the call, which its hook covered before.
    let event = json!({ "session_id": session, "cwd": world.path("project"), "hook_event_name": "PreToolUse",
        "tool_name": "mcp__safepoint__checkpoint", "tool_use_id": "toolu_2", "tool_input": {} });
    world.hook("claude", &event);
    assert_eq!(checkpoint("claude", json!({ "claudecode/toolUseId": "toolu_2" })), session);
}
