//! Confirmation by the user, for clients that can ask.

use crate::client::{Client, World};
use serde_json::{Value, json};

#[test]
fn a_client_that_elicits_asks_the_user_before_a_rollback_and_an_undo() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client_that_elicits();
    client.done("checkpoint", json!({ "label": "x" }));
    world.write("a.txt", "2");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    assert!(client.questions.is_empty());
    client.answer = "decline";
    assert_eq!(client.fails("rollback", json!({ "token": token })), ("declined".to_owned(), 1));
    assert_eq!(world.read("a.txt"), "2");
    // A refused token is gone.
    client.answer = "accept";
    assert_eq!(client.fails("rollback", json!({ "token": token })).0, "stale_preview");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    client.done("rollback", json!({ "token": token }));
    assert_eq!(world.read("a.txt"), "1");
    let message = client.questions[1]["params"]["message"].as_str().unwrap();
    assert!(message.contains("restores 1 files and removes 0"), "{message}");
    client.answer = "cancel";
    assert_eq!(client.fails("undo", json!({})).0, "declined");
    assert_eq!(world.read("a.txt"), "1");
    client.answer = "accept";
    client.done("undo", json!({}));
    assert_eq!(world.read("a.txt"), "2");
}

#[test]
fn files_that_change_while_the_user_thinks_are_spared() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = world.client_that_elicits();
    client.done("checkpoint", json!({ "label": "x" }));
    world.write("a.txt", "2");
    let token = client.done("preview", json!({ "to": "@" }))["token"].clone();
    let file = world.path("project/a.txt");
    client.before_answer = Some(Box::new(move || std::fs::write(&file, "3").unwrap()));
    assert_eq!(client.fails("rollback", json!({ "token": token })).0, "stale_preview");
    assert_eq!(world.read("a.txt"), "3");
}

fn modern(elicits: bool) -> Value {
    let capabilities = if elicits { json!({ "elicitation": {} }) } else { json!({}) };
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

fn call(client: &mut Client, name: &str, arguments: Value, extra: Value) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments, "_meta": modern(true) });
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    client.request("tools/call", params)["result"].clone()
}

#[test]
fn since_2026_the_question_is_a_result_and_its_state_is_sealed() {
    let world = World::new();
    world.write("a.txt", "1");
    let mut client = Client::start(world.command(&["mcp"]));
    client.request("server/discover", json!({ "_meta": modern(true) }));
    call(&mut client, "checkpoint", json!({ "label": "x" }), json!({}));
    world.write("a.txt", "2");
    let preview = |client: &mut Client| {
        call(client, "preview", json!({ "to": "@" }), json!({}))["structuredContent"]["token"].clone()
    };
    let accept = json!({ "confirm": { "action": "accept", "content": {} } });
    let token = preview(&mut client);
    let asked = call(&mut client, "rollback", json!({ "token": token }), json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["confirm"]["method"], "elicitation/create");
    assert_eq!(world.read("a.txt"), "2");
    let state = asked["requestState"].as_str().unwrap().to_owned();
    // An answer without the state only leads to the question again.
    let again = call(&mut client, "rollback", json!({ "token": token }), json!({ "inputResponses": accept }));
    assert_eq!(again["resultType"], "input_required");
    // The state of one question answers no other.
    let other = preview(&mut client);
    let forged = json!({ "inputResponses": accept, "requestState": state });
    let refused = call(&mut client, "rollback", json!({ "token": other }), forged);
    assert_eq!(refused["structuredContent"]["error"]["code"], "stale_preview", "{refused}");
    let tampered = json!({ "inputResponses": accept, "requestState": format!("{state}x") });
    let token = preview(&mut client);
    let refused = call(&mut client, "rollback", json!({ "token": token }), tampered);
    assert_eq!(refused["structuredContent"]["error"]["code"], "stale_preview");
    assert_eq!(world.read("a.txt"), "2");
    // With the right state the answer counts, once.
    let token = preview(&mut client);
    let asked = call(&mut client, "rollback", json!({ "token": token }), json!({}));
    let answered = json!({ "inputResponses": accept, "requestState": asked["requestState"] });
    let done = call(&mut client, "rollback", json!({ "token": token }), answered.clone());
    assert_eq!(done["structuredContent"]["rollback"]["verified"], true, "{done}");
    assert_eq!(world.read("a.txt"), "1");
    let replayed = call(&mut client, "rollback", json!({ "token": token }), answered);
    assert_eq!(replayed["structuredContent"]["error"]["code"], "stale_preview");
}
