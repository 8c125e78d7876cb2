//! Attempts over HTTP: seen beside each other, kept as it was shown, or dropped.

use crate::server::{Server, World, text};
use serde_json::{Value, json};

/// A project with two open attempts that changed it in different ways.
fn two_attempts(world: &World) {
    world.write("a.txt", "old\n");
    world.write("b.txt", "b\n");
    world.checkpoint("old");
    for (name, line) in [("one", "echo one > a.txt"), ("two", "echo two > a.txt; rm b.txt; echo c > c.txt")] {
        let ran = world.cli(&["try", "--name", name, "--later", "--", "/bin/sh", "-c", line]);
        assert_eq!(ran["attempts"][0]["exit_status"], 0, "{ran}");
    }
}

fn keep(server: &Server, name: &str) -> Value {
    let shown = server.post("/previews", &json!({ "verb": "keep", "attempt": name }));
    assert_eq!(shown.status, 201, "{shown:?}");
    shown.json()
}

#[test]
fn attempts_are_compared_and_one_is_kept_as_it_was_shown() {
    let world = World::new();
    two_attempts(&world);
    let server = Server::start(&world, &[]);
    assert_eq!(server.get("/workspace").json()["attempts"], 2);
    let listed = server.get("/attempts").json();
    let of = |name: &str| -> Value {
        let all = listed["attempts"].as_array().unwrap();
        all.iter().find(|attempt| attempt["name"] == name).unwrap().clone()
    };
    let (one, two) = (text(&of("one")["result"]), text(&of("two")["result"]));
    // Each against its start, and both against each other.
    let from = text(&of("two")["base"]);
    let own = server.get(&format!("/diff?from={from}&to={two}")).json();
    assert_eq!(own["total"], 3, "{own}");
    let between = server.get(&format!("/diff?from={one}&to={two}")).json();
    assert_eq!(between["total"], 3, "{between}");
    let file = server.get(&format!("/diff/file?from={one}&to={two}&path=a.txt")).json();
    assert_eq!((&file["added"], &file["removed"]), (&json!(1), &json!(1)), "{file}");
    let seen = server.get(&format!("/checkpoints/{two}")).json();
    assert_eq!(seen["attempt"], "two", "{seen}");
    // A checkpoint of an attempt is looked at, and never rolled back to here.
    let refused = server.post("/previews", &json!({ "verb": "rollback", "to": two }));
    assert_ne!(refused.status, 201, "{refused:?}");

    world.write("mine.txt", "mine\n");
    let shown = keep(&server, "two");
    assert_eq!(shown["attempt"]["changed_in_project"], json!(["mine.txt"]), "{shown}");
    assert_eq!(world.read("a.txt"), "old\n", "a preview changes nothing");
    let bound = json!({ "preview": shown["preview"] });
    assert_eq!(server.post("/attempts/one/keep", &bound).status, 400, "a preview is bound to its attempt");
    let done = server.post("/attempts/two/keep", &bound);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(
        (world.read("a.txt"), world.read("c.txt"), world.read("mine.txt")),
        ("two\n".to_owned(), "c\n".to_owned(), "mine\n".to_owned())
    );
    assert!(!world.path("project/b.txt").exists());
    assert_eq!(server.get("/workspace").json()["attempts"], 1, "the other stays open");
    let undone = server.post("/undo", &json!({ "rollback": done.json()["rollback"]["id"] }));
    assert_eq!(undone.status, 200, "{undone:?}");
    assert_eq!((world.read("a.txt"), world.read("b.txt")), ("old\n".to_owned(), "b\n".to_owned()));
}

#[test]
fn a_keep_that_was_shown_otherwise_changes_nothing() {
    let world = World::new();
    two_attempts(&world);
    let server = Server::start(&world, &[]);
    // The project changes, then the attempt.
    let stale = keep(&server, "one");
    world.write("mine.txt", "mine\n");
    let refused = server.post("/attempts/one/keep", &json!({ "preview": stale["preview"] }));
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("stale_preview")), "{refused:?}");
    let stale = keep(&server, "one");
    world.cli(&["attempt", "exec", "one", "--", "/bin/sh", "-c", "echo more > more.txt"]);
    let refused = server.post("/attempts/one/keep", &json!({ "preview": stale["preview"] }));
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("stale_preview")), "{refused:?}");
    assert_eq!(world.read("a.txt"), "old\n");
    assert_eq!(server.get("/workspace").json()["attempts"], 2);
    // Both sides changed one line in different ways.
    world.write("a.txt", "mine\n");
    let refused = server.post("/previews", &json!({ "verb": "keep", "attempt": "one" }));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("attempt_conflict")), "{refused:?}");
}

#[test]
fn attempts_are_dropped_and_a_reader_drops_none() {
    let world = World::new();
    two_attempts(&world);
    world.cli(&["attempt", "start", "idle"]);
    let reader = Server::start(&world, &["--read-only"]);
    assert_eq!(reader.get("/attempts").json()["attempts"].as_array().unwrap().len(), 3);
    assert_eq!(reader.post("/attempts/one/drop", &json!({})).status, 403);
    let server = Server::start(&world, &[]);
    // There is nothing to keep in it.
    assert_eq!(server.post("/previews", &json!({ "verb": "keep", "attempt": "idle" })).status, 400);
    for name in ["one", "idle"] {
        let dropped = server.post(&format!("/attempts/{name}/drop"), &json!({}));
        assert_eq!(dropped.status, 200, "{dropped:?}");
        assert_eq!(dropped.json()["attempts"][0]["state"], "dropped");
    }
    assert_eq!(server.post("/attempts/one/drop", &json!({})).status, 409);
    assert_eq!(server.post("/attempts/nobody/drop", &json!({})).status, 404);
    for wish in [json!({ "verb": "keep" }), json!({ "verb": "keep", "attempt": "two", "paths": ["a.txt"] })] {
        assert_eq!(server.post("/previews", &wish).status, 400);
    }
    let missing = server.post("/previews", &json!({ "verb": "keep", "attempt": "nobody" }));
    assert_eq!(missing.status, 404, "{missing:?}");
}
