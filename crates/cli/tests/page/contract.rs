//! Every answer against the published OpenAPI document.

use crate::server::{Answer, Server, World, text};
use jsonschema::Registry;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../../docs/schemas/web-api.openapi.json");
const TYPES: &str = include_str!("../../../../docs/schemas/types.json");

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// Methods and paths of the document.
pub(crate) fn routes() -> Vec<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        })
        .collect()
}

fn complaints(schema: &Value, value: &Value) -> Vec<String> {
    let id = "https://raw.githubusercontent.com/safepoint/safepoint/main/docs/schemas/web-check.json";
    let types: Value = serde_json::from_str(TYPES).unwrap();
    let whole = json!({ "$id": id, "components": document()["components"], "allOf": [schema] });
    let registry = Registry::new().add(text(&types["$id"]), types).unwrap().prepare().unwrap();
    let options = jsonschema::options().with_registry(&registry).offline();
    let validator = options.should_validate_formats(true).build(&whole).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Holds an answer against the document. `route` is the path of the document.
pub(crate) fn check(method: &str, route: &str, answer: &Answer) {
    let document = document();
    let operation = &document["paths"][route][method.to_lowercase()];
    let mut response = operation["responses"][answer.status.to_string()].clone();
    if let Some(name) = response["$ref"].as_str() {
        response = document.pointer(name.strip_prefix('#').unwrap()).unwrap().clone();
    }
    assert!(!response.is_null(), "{method} {route} does not describe {answer:?}");
    let media = answer.header("content-type").unwrap_or("");
    let schema = &response["content"][media]["schema"];
    assert!(!schema.is_null() || answer.status == 304, "{method} {route} does not describe {media}");
    if media.ends_with("json") {
        let wrong = complaints(schema, &answer.json());
        assert!(wrong.is_empty(), "{method} {route}: {wrong:#?}\n{:#}", answer.json());
    }
}

#[test]
fn the_examples_fit_their_schemas() {
    let document = document();
    let mut count = 0;
    for (method, route) in routes() {
        let operation = &document["paths"][&route][method.to_lowercase()];
        let responses = operation["responses"].as_object().unwrap().values();
        for content in responses.map(|response| &response["content"]["application/json"]) {
            // The data of `usage` and `status` have schemas of their own.
            if content["schema"].is_null() {
                continue;
            }
            let wrong = complaints(&content["schema"], &content["example"]);
            assert!(wrong.is_empty(), "{method} {route}: {wrong:#?}");
            count += 1;
        }
        let body = &operation["requestBody"]["content"]["application/json"];
        if !body.is_null() {
            let wrong = complaints(&body["schema"], &body["example"]);
            assert!(wrong.is_empty(), "{method} {route}: {wrong:#?}");
        }
    }
    assert!(count > 30, "{count}");
}

/// A project with files, checkpoints, a plan that failed, and a session.
fn scene(world: &World) -> (String, String) {
    world.write("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
    world.write("a.png", b"\x89PNG\r\n\x1a\nrest");
    world.cli(&["session", "create", "add limits"]);
    let first = world.checkpoint("first");
    world.write("src/main.rs", "fn main() {\n    println!(\"bye\");\n}\n");
    std::fs::rename(world.path("project").join("a.png"), world.path("project").join("b.png")).unwrap();
    let second = world.checkpoint("second");
    std::fs::write(
        world.path("plan.toml"),
        "title = \"Limits\"\n[[step]]\nid = \"build\"\nrun = \"echo built; echo x > out.txt\"\n\
         [[step]]\nid = \"test\"\nrun = \"echo 2 of 12 fail; exit 1\"\n",
    )
    .unwrap();
    world.cli(&["plan", "new", "../plan.toml", "--id", "limits"]);
    world.cli(&["plan", "run", "limits"]);
    (first, second)
}

#[test]
fn every_answer_is_as_the_document_says() {
    let world = World::new();
    let (first, second) = scene(&world);
    let server = Server::start(&world, &["--allow-commands"]);
    let mut seen = BTreeSet::new();
    let mut get = |route: &str, path: &str, status: u16| {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        check("GET", route, &answer);
        seen.insert(("GET".to_owned(), route.to_owned()));
        answer
    };
    get("/workspace", "/workspace", 200);
    get("/checkpoints", "/checkpoints?limit=1", 200);
    get("/checkpoints", "/checkpoints?role=asked&plan=limits", 200);
    get("/checkpoints", "/checkpoints?limit=0", 400);
    get("/checkpoints/{id}", &format!("/checkpoints/{first}"), 200);
    get("/checkpoints/{id}", "/checkpoints/x", 404);
    get("/rollbacks", "/rollbacks", 200);
    get("/strip", "/strip?buckets=3", 200);
    get("/tree", &format!("/tree?checkpoint={first}&path=src"), 200);
    get("/tree", &format!("/tree?checkpoint={first}&path=nowhere"), 404);
    let file = get("/file", &format!("/file?checkpoint={first}&path=src/main.rs"), 200).json();
    assert_eq!((&file["kind"], &file["highlighted"]), (&json!("text"), &json!(true)), "{file}");
    get("/file", &format!("/file?checkpoint={first}&path=a.png"), 200);
    get("/file", "/file?checkpoint=present&path=src/main.rs", 200);
    get("/file", &format!("/file?checkpoint={first}&path=b.png"), 404);
    let diff = get("/diff", &format!("/diff?from={first}&to={second}"), 200).json();
    let kinds: Vec<&Value> = diff["changes"].as_array().unwrap().iter().map(|row| &row["change"]).collect();
    assert!(kinds.contains(&&json!("renamed")) && kinds.contains(&&json!("modified")), "{diff}");
    get("/diff", &format!("/diff?from=parent&to={first}"), 200);
    get("/diff", &format!("/diff?from={first}&to=present"), 200);
    let rows =
        get("/diff/file", &format!("/diff/file?from={first}&to={second}&path=src/main.rs"), 200).json();
    assert_eq!((&rows["added"], &rows["removed"]), (&json!(1), &json!(1)), "{rows}");
    get("/diff/file", &format!("/diff/file?from={second}&to=present&path=src/main.rs"), 200);
    get("/diff/file", &format!("/diff/file?from=parent&to={first}&path=a.png"), 200);
    let history = get("/history", "/history?path=src/main.rs", 200).json();
    let changes: Vec<String> =
        history["versions"].as_array().unwrap().iter().map(|version| text(&version["change"])).collect();
    assert_eq!(changes, ["modified", "present"], "{history}");
    get("/history", "/history?path=src", 200);
    let line = get("/line", "/line?path=src/main.rs&text=hello", 200).json();
    assert_eq!((&line["found"]["checkpoint"], &line["found"]["line"]), (&json!(first), &json!(2)), "{line}");
    get("/line", "/line?path=src/main.rs&text=never", 200);
    get("/plans", "/plans", 200);
    let plan = get("/plans/{plan}", "/plans/limits", 200).json();
    assert_eq!(plan["plan"]["state"], "failed", "{plan}");
    get("/plans/{plan}", "/plans/x", 404);
    let output = get("/plans/{plan}/output", "/plans/limits/output?step=test", 200).json();
    assert_eq!(output["text"], "2 of 12 fail\n");
    get("/sessions", "/sessions", 200);
    get("/turns", "/turns", 200);
    get("/agents", "/agents", 200);
    for name in ["x", "y"] {
        let line = format!("echo {name} > src/{name}.txt");
        world.cli(&["try", "--name", name, "--later", "--", "/bin/sh", "-c", &line]);
    }
    get("/attempts", "/attempts", 200);
    get("/usage", "/usage", 200);
    get("/status/present", "/status/present", 200);
    get("/jobs/{id}", "/jobs/x", 404);
    get("/raw", &format!("/raw?checkpoint={first}&path=b.png"), 404);
    let mark = server.get("/strip").header("etag").unwrap().to_owned();
    let again = || server.ask("GET", "/api/v1/strip", &[("If-None-Match", &mark)], None).status;
    assert_eq!(again(), 304);
    world.checkpoint("another");
    assert_eq!(again(), 200);
    seen.extend(posts(&server, &first, &second));
    let streams = ["/events", "/jobs/{id}/events", "/session"].map(str::to_owned);
    let missing: Vec<_> =
        routes().into_iter().filter(|route| !seen.contains(route) && !streams.contains(&route.1)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn posts(server: &Server, first: &str, second: &str) -> BTreeSet<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut post = |route: &str, path: &str, body: Value, status: u16| {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        check("POST", route, &answer);
        seen.insert(("POST".to_owned(), route.to_owned()));
        answer.json()
    };
    post("/checkpoints", "/checkpoints", json!({ "label": "from the page" }), 201);
    post("/checkpoints/{id}/pin", &format!("/checkpoints/{first}/pin"), json!({}), 200);
    post("/checkpoints/{id}/unpin", &format!("/checkpoints/{first}/unpin"), json!({}), 200);
    let job = post("/searches", "/searches", json!({ "text": "PRINTLN", "case": "ignore" }), 202);
    let job = server.wait(&job);
    assert_eq!((&job["state"], &job["items"]), (&json!("done"), &json!(2)), "{job}");
    check("GET", "/jobs/{id}", &server.get(&format!("/jobs/{}", text(&job["id"]))));
    let gone = server.ask("DELETE", &format!("/api/v1/jobs/{}", text(&job["id"])), &[], None);
    check("DELETE", "/jobs/{id}", &gone);
    let job = post("/find-good", "/find-good", json!({ "command": "grep -q hello src/main.rs" }), 202);
    assert_eq!(server.wait(&job)["result"]["checkpoint"], first);
    let job = post("/plans/{plan}/resume", "/plans/limits/resume", json!({}), 202);
    assert_eq!(server.wait(&job)["result"]["outcome"], "failed");
    post(
        "/plans/{plan}/correct",
        "/plans/limits/correct",
        json!({ "mode": "in_place", "guidance": "x" }),
        200,
    );
    let wish = json!({ "verb": "correct", "plan": "limits", "guidance": "fewer tests" });
    let shown = post("/previews", "/previews", wish, 201);
    let bound = json!({ "mode": "revert", "preview": shown["preview"] });
    let corrected = post("/plans/{plan}/correct", "/plans/limits/correct", bound, 200);
    assert!(corrected["rollback"]["safety_checkpoint"].is_string(), "{corrected}");
    post("/plans/{plan}/correct", "/plans/limits/correct", json!({ "mode": "revert" }), 400);
    let plan = json!({ "verb": "plan", "plan": "limits" });
    let shown = post("/previews", "/previews", plan, 201);
    let shown = json!({ "preview": shown["preview"] });
    post("/plans/{plan}/rollback", "/plans/limits/rollback", shown, 200);
    let wish = json!({ "verb": "rollback", "to": first, "paths": ["src"] });
    let shown = post("/previews", "/previews", wish, 201);
    let bound = json!({ "preview": shown["preview"] });
    let done = post("/rollbacks", "/rollbacks", bound.clone(), 200);
    post("/rollbacks", "/rollbacks", bound, 412);
    post("/undo", "/undo", json!({ "rollback": done["rollback"]["id"] }), 200);
    let shown = post("/previews", "/previews", json!({ "verb": "redo" }), 201);
    post("/redo", "/redo", json!({ "preview": shown["preview"] }), 200);
    let shown = post("/previews", "/previews", json!({ "verb": "keep", "attempt": "x" }), 201);
    let bound = json!({ "preview": shown["preview"] });
    let kept = post("/attempts/{name}/keep", "/attempts/x/keep", bound.clone(), 200);
    assert_eq!(kept["attempt"]["state"], "kept", "{kept}");
    post("/attempts/{name}/keep", "/attempts/x/keep", bound, 412);
    post("/attempts/{name}/drop", "/attempts/y/drop", json!({}), 200);
    post("/attempts/{name}/drop", "/attempts/y/drop", json!({}), 409);
    post("/previews", "/previews", json!({ "verb": "turn", "turn": 99 }), 404);
    post("/previews", "/previews", json!({ "verb": "what" }), 400);
    let shown = post("/deletions", "/deletions", json!({ "checkpoints": [second], "dry_run": true }), 200);
    assert!(shown["frees_bytes"].as_u64().is_some());
    post("/deletions", "/deletions", json!({ "checkpoints": [second], "dry_run": false }), 200);
    seen.insert(("GET".to_owned(), "/jobs/{id}".to_owned()));
    seen.insert(("DELETE".to_owned(), "/jobs/{id}".to_owned()));
    seen
}
