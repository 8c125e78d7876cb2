//! The protocol on standard input and output: its end, cancelling, progress, subscriptions, prompts.

use crate::client::{Client, World};
use serde_json::{Value, json};

#[test]
fn standard_output_carries_messages_alone_and_the_end_of_input_ends_the_server() {
    let world = World::new();
    world.write("a.txt", "1");
    for args in [&["mcp"][..], &["mcp", "--json"], &["--yes", "mcp", "-q"]] {
        let mut client = Client::start(world.command(args));
        let greeting = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
        });
        assert_eq!(client.request("initialize", greeting)["result"]["serverInfo"]["name"], "safepoint");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client.done("checkpoint", json!({ "label": "x" }));
        client.fails("preview", json!({ "to": "none" }));
        let (rest, _, code) = client.close();
        assert_eq!((rest.as_str(), code), ("", Some(0)), "{args:?}");
    }
    let silent = Client::start(world.command(&["mcp"]));
    assert_eq!(silent.close().2, Some(0));
}

#[test]
fn broken_messages_do_no_harm() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client();
    for line in [&b"{"[..], b"[]", b"null", b"\xff\xfe", b"{\"jsonrpc\":\"2.0\"}", &vec![b'x'; 5 << 20]] {
        client.send_raw(line);
    }
    client.send_raw(format!("[{}", "[".repeat(100_000)).as_bytes());
    client.done("checkpoint", json!({ "label": "still here" }));
}

#[test]
fn a_client_of_2026_needs_no_handshake() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = Client::start(world.command(&["mcp"]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.request("server/discover", json!({ "_meta": meta }));
    assert!(
        found["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")),
        "{found}"
    );
    let call = json!({ "name": "checkpoint", "arguments": { "label": "x" }, "_meta": meta });
    let made = client.request("tools/call", call);
    assert_eq!(made["result"]["structuredContent"]["checkpoint"]["source_tool"], "modern", "{made}");
    assert_eq!(made["result"]["resultType"], "complete");
}

#[test]
fn progress_grows_and_only_on_request() {
    let world = World::new();
    for number in 0..50 {
        world.write(&format!("{number}"), "x");
    }
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "x" }));
    assert!(client.notes.is_empty(), "{:?}", client.notes);
    world.write("0", "y");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    let call =
        json!({ "name": "rollback", "arguments": { "token": token }, "_meta": { "progressToken": "p" } });
    client.request("tools/call", call);
    let numbers: Vec<f64> =
        client.notes.iter().map(|note| note["params"]["progress"].as_f64().unwrap()).collect();
    assert!(numbers.len() > 3 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn a_cancelled_call_changes_nothing_and_the_next_one_works() {
    let world = World::new();
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "zero" }));
    for number in 0..3000 {
        world.write(&format!("{}/{number}", number % 50), format!("{number}").repeat(50));
    }
    let call = |id: &str, label: &str| {
        let params = json!({ "name": "checkpoint", "arguments": { "label": label }, "_meta": { "progressToken": id } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    // The second waits for the first, and is cancelled while it waits.
    client.send(&call("one", "one"));
    client.send(&call("two", "two"));
    for id in ["two", "one"] {
        let params = json!({ "requestId": id, "reason": "test" });
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    }
    let list = client.done("checkpoints", json!({}));
    assert!(list["total"].as_u64().is_none_or(|total| total <= 2), "{list}");
    client.done("checkpoint", json!({ "label": "three" }));
    let labels = client.done("checkpoints", json!({}))["checkpoints"].to_string();
    assert!(labels.contains("three") && !labels.contains("two"), "{labels}");
}

#[test]
fn subscribers_hear_of_changes_by_other_processes() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client();
    client.done("checkpoint", json!({ "label": "x" }));
    let uri = json!({ "uri": "safepoint://timeline" });
    assert!(client.request("resources/subscribe", uri.clone())["result"].is_object());
    let file = json!({ "uri": "safepoint://checkpoint/@/file/a.txt" });
    assert!(client.request("resources/subscribe", file)["error"].is_object());
    // The first look sets the state that later ones are compared with.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    world.write("a.txt", "2");
    world.cli(&["create", "-m", "by another process"]);
    let note = client.receive();
    assert_eq!(note["method"], "notifications/resources/updated", "{note}");
    assert_eq!(note["params"]["uri"], "safepoint://timeline");
    let timeline = client.request("resources/read", uri.clone());
    assert!(timeline.to_string().contains("by another process"));
    assert!(client.request("resources/unsubscribe", uri)["result"].is_object());
}

#[test]
fn prompts_and_templates_are_listed() {
    let world = World::new();
    let mut client = world.client();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let prompts = client.request("prompts/list", json!({}));
    assert_eq!(names(&prompts["result"]["prompts"]), ["what_changed", "undo_last_step", "checkpoint_now"]);
    let prompt = client.request("prompts/get", json!({ "name": "undo_last_step" }));
    assert!(prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("`preview`"));
    assert_eq!(client.request("prompts/get", json!({ "name": "none" }))["error"]["code"], -32602);
    let templates = client.request("resources/templates/list", json!({}));
    assert_eq!(names(&templates["result"]["resourceTemplates"]), ["plan-by-id", "file-version"]);
    let missing = client.request("resources/read", json!({ "uri": "safepoint://nothing" }));
    assert_eq!(missing["error"]["code"], -32002);
}

#[test]
fn the_workspace_comes_from_the_command_line() {
    let world = World::new();
    world.write("sub/a.txt", "1");
    let elsewhere = world.path("user/elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    world.cli(&["create", "-m", "x"]);
    let mut command = world.command(&["mcp", "--workspace"]);
    command.arg(world.path("project/sub")).current_dir(&elsewhere);
    let mut client = Client::start(command);
    let greeting = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    client.request("initialize", greeting);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    // Paths are relative to the top of the workspace, wherever the server was started.
    assert_eq!(client.done("file_at", json!({ "checkpoint": "@", "path": "sub/a.txt" }))["text"], "1");
}

#[test]
fn a_signal_ends_the_server() {
    let world = World::new();
    let mut client = world.client();
    let pid = rustix::process::Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(client.wait(), Some(0));
}
