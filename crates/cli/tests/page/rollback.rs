//! Rollbacks over HTTP: what was shown happens, or nothing.

use crate::server::{Server, World, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn preview(server: &Server, wish: &Value) -> String {
    let shown = server.post("/previews", wish);
    assert_eq!(shown.status, 201, "{shown:?}");
    text(&shown.json()["preview"])
}

#[test]
fn a_preview_is_confirmed_once_and_can_be_undone() {
    let world = World::new();
    world.write("a.txt", "old\n");
    let id = world.checkpoint("old");
    world.write("a.txt", "new\n");
    world.write("b.txt", "b\n");
    let server = Server::start(&world, &[]);
    let shown = server.post("/previews", &json!({ "verb": "rollback", "to": id })).json();
    assert_eq!(shown["overwritten"], json!(["a.txt", "b.txt"]), "{shown}");
    assert_eq!(world.read("a.txt"), "new\n", "a preview changes nothing");
    let bound = json!({ "preview": shown["preview"] });
    let done = server.post("/rollbacks", &bound);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(world.read("a.txt"), "old\n");
    let again = server.post("/rollbacks", &bound);
    assert_eq!((again.status, &again.json()["code"]), (412, &json!("stale_preview")));
    let undone = server.post("/undo", &json!({ "rollback": done.json()["rollback"]["id"] }));
    assert_eq!(undone.status, 200, "{undone:?}");
    assert_eq!((world.read("a.txt"), world.read("b.txt")), ("new\n".to_owned(), "b\n".to_owned()));
}

#[test]
fn a_stale_preview_changes_nothing() {
    let world = World::new();
    world.write("a.txt", "old\n");
    let id = world.checkpoint("old");
    world.write("a.txt", "new\n");
    let server = Server::start(&world, &[]);
    let wish = json!({ "verb": "rollback", "to": id });
    // An agent writes, another window rolls back, the command line takes a checkpoint and rolls back.
    let changes: [&dyn Fn(); 3] = [
        &|| world.write("a.txt", "newer\n"),
        &|| {
            let other = preview(&server, &wish);
            assert_eq!(server.post("/rollbacks", &json!({ "preview": other })).status, 200);
        },
        &|| {
            world.write("c.txt", "c\n");
            world.checkpoint("c");
        },
    ];
    for change in changes {
        let stale = preview(&server, &wish);
        change();
        let before = world.cli(&["status"])["changes"].clone();
        let refused = server.post("/rollbacks", &json!({ "preview": stale }));
        assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("stale_preview")), "{refused:?}");
        assert_eq!(world.cli(&["status"])["changes"], before);
    }
    let fresh = preview(&server, &wish);
    assert_eq!(server.post("/rollbacks", &json!({ "preview": fresh })).status, 200);
    assert_eq!(world.read("a.txt"), "old\n");
    // A preview is bound to its verb.
    let undo = preview(&server, &json!({ "verb": "undo" }));
    assert_eq!(server.post("/rollbacks", &json!({ "preview": undo })).status, 400);
    assert_eq!(server.post("/undo", &json!({ "preview": undo })).status, 200);
}

#[test]
fn paths_that_are_left_stay_and_a_turn_takes_them_too() {
    let world = World::new();
    for name in ["a.txt", "d/b.txt", "d/c.txt"] {
        world.write(name, "old\n");
    }
    let id = world.checkpoint("old");
    for name in ["a.txt", "d/b.txt", "d/c.txt"] {
        world.write(name, "new\n");
    }
    let server = Server::start(&world, &[]);
    let wish = json!({ "verb": "rollback", "to": id, "leave": ["d/b.txt"], "parts": ["files"] });
    let shown = server.post("/previews", &wish).json();
    let paths: Vec<&Value> =
        shown["rollback"]["changed_paths"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(paths, ["a.txt", "d/c.txt"], "{shown}");
    assert_eq!(server.post("/rollbacks", &json!({ "preview": shown["preview"] })).status, 200);
    assert_eq!((world.read("a.txt"), world.read("d/b.txt")), ("old\n".to_owned(), "new\n".to_owned()));
    // Where a verb does not take them, nothing is bound.
    for (verb, field) in [("undo", "leave"), ("redo", "paths"), ("turn", "paths")] {
        let wish = json!({ "verb": verb, "turn": 1, field: ["a.txt"] });
        assert_eq!(server.post("/previews", &wish).status, 400, "{verb} {field}");
    }
}

#[test]
fn an_interrupted_rollback_is_reported_by_the_server_that_recovers_it() {
    let world = World::new();
    let write = |content: &str| (0..2000).for_each(|at| world.write(&format!("d/f{at}"), content));
    write("old\n");
    let id = world.checkpoint("old");
    write("new\n");
    let server = Server::start(&world, &[]);
    let told = || server.get("/workspace").json()["recovered"].clone();
    assert_eq!(told(), json!({ "undone": 0, "settled": 0 }));
    let mut child = world.command(&["rollback", &id, "--yes", "--quiet"]).spawn().unwrap();
    let is_applying = || server.get("/rollbacks").json()["rollbacks"][0]["state"] == "applying";
    while child.try_wait().unwrap().is_none() && !is_applying() {}
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_applying(), "2000 files take longer than one request");
    assert_eq!(server.post("/previews", &json!({ "verb": "rollback", "to": id })).status, 201);
    assert_eq!(told(), json!({ "undone": 1, "settled": 0 }));
    assert_eq!(world.read("d/f1999"), "new\n");
}

/// Returns every path of the project with its type, mode and content.
fn tree(world: &World) -> BTreeMap<PathBuf, String> {
    let top = world.path("project");
    let mut found = BTreeMap::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = std::fs::symlink_metadata(&path).unwrap();
            let content = if facts.is_symlink() {
                std::fs::read_link(&path).unwrap().to_string_lossy().into_owned()
            } else if facts.is_dir() {
                folders.push(path.clone());
                String::new()
            } else {
                std::fs::read_to_string(&path).unwrap()
            };
            let below = path.strip_prefix(&top).unwrap().to_owned();
            if !below.starts_with(".safepoint") {
                found.insert(below, format!("{:o} {content}", facts.permissions().mode()));
            }
        }
    }
    found
}

/// Two states of the project that differ in contents, names, types and modes. Returns the checkpoint of the first one.
fn old_and_new(world: &World) -> String {
    let write = |content: &str| {
        for at in 0..60 {
            world.write(&format!("d{}/f{at}.txt", at % 7), format!("{content} {at}\n"));
        }
    };
    write("old");
    world.write("gone/one.txt", "old");
    world.write("kind", "a file");
    let id = world.checkpoint("old");
    write("new");
    let project = world.path("project");
    std::fs::remove_dir_all(project.join("gone")).unwrap();
    std::fs::remove_file(project.join("kind")).unwrap();
    std::os::unix::fs::symlink("d1", project.join("kind")).unwrap();
    std::fs::set_permissions(project.join("d1/f1.txt"), PermissionsExt::from_mode(0o600)).unwrap();
    world.write("fresh/two.txt", "new");
    world.checkpoint("new");
    id
}

#[test]
fn a_server_killed_in_a_rollback_leaves_old_or_new() {
    let world = World::new();
    let id = old_and_new(&world);
    let before = tree(&world);
    let undo = || assert_eq!(world.command(&["undo", "--quiet"]).status().unwrap().code(), Some(0));
    let begun = Instant::now();
    let server = Server::start(&world, &[]);
    let bound = preview(&server, &json!({ "verb": "rollback", "to": id }));
    let asked = Instant::now();
    assert_eq!(server.post("/rollbacks", &json!({ "preview": bound })).status, 200);
    // From at once to well after the end, at random: every moment must hold.
    let mut longest = u64::try_from(asked.elapsed().as_micros()).unwrap() * 3 / 2;
    let after = tree(&world);
    assert_ne!(after, before);
    undo();
    assert_eq!(tree(&world), before);
    let mut seed = u64::try_from(begun.elapsed().as_nanos()).unwrap() | 1;
    println!("seed {seed}, up to {longest} us");
    let (mut undone, mut done) = (0, 0);
    for round in 0..40u64 {
        if round >= 16 {
            // Where one outcome alone was seen, the moments move towards the other one.
            match (undone, done) {
                (0, _) => longest = (longest / 2).max(1),
                (_, 0) => longest *= 2,
                _ => break,
            }
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut server = Server::start(&world, &[]);
        let bound = preview(&server, &json!({ "verb": "rollback", "to": id }));
        let request = server.request("POST", "/api/v1/rollbacks", &[], Some(&json!({ "preview": bound })));
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(seed % longest));
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        world.cli(&["recover"]);
        let now = tree(&world);
        if now == before {
            undone += 1;
            continue;
        }
        assert_eq!(now, after, "round {round}: neither old nor new");
        done += 1;
        undo();
        assert_eq!(tree(&world), before, "round {round}: the rollback can be undone");
    }
    println!("{undone} undone, {done} done");
    assert!(undone > 0 && done > 0, "one outcome alone is no proof: {undone} undone, {done} done");
}
