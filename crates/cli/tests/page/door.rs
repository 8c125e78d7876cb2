//! The door: only the page with the key gets an answer.

use crate::contract::routes;
use crate::server::{Server, World, text};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

#[test]
fn every_route_without_a_key_is_refused() {
    let world = World::new();
    let server = Server::start(&world, &[]);
    let routes = routes();
    assert!(routes.len() > 35, "{routes:?}");
    for (method, path) in routes.iter().filter(|(_, path)| path != "/session") {
        let path = format!("/api/v1{path}");
        for wrong in ["", "Bearer", "Bearer x", &server.key, &format!("Basic {}", server.key)] {
            let answer = server.ask(method, &path, &[("Authorization", wrong)], Some(&json!({})));
            assert_eq!(answer.status, 401, "{method} {path} {wrong:?}");
            assert_eq!(answer.json()["code"], "unauthorized");
        }
    }
    for path in ["/api/v1/nothing", "/api/v2/workspace", "/api/", "/api/v1/session"] {
        assert_eq!(server.ask("GET", path, &[("Authorization", "")], None).status, 401, "{path}");
    }
}

#[test]
fn a_second_use_of_the_token_ends_the_key() {
    let world = World::new();
    world.checkpoint("first");
    let server = Server::start(&world, &[]);
    assert_eq!(server.get("/workspace").status, 200);
    assert_eq!(server.ask("POST", "/api/v1/session", &[], Some(&json!({ "token": "x" }))).status, 401);
    assert_eq!(server.get("/workspace").status, 200, "a guess ends nothing");
    assert_eq!(server.trade().status, 401);
    assert_eq!(server.get("/workspace").status, 401, "both ended");
    assert_eq!(server.trade().status, 401);
}

#[test]
fn rebound_names_and_other_pages_are_refused() {
    let world = World::new();
    world.checkpoint("first");
    let server = Server::start(&world, &[]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let ask = |path: &str, headers: &[(&str, &str)]| server.ask("GET", path, headers, None).status;
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1.evil.example".to_owned(),
        "localhost.evil.example".to_owned(),
        "0.0.0.0".to_owned(),
    ] {
        for path in ["/api/v1/workspace", "/"] {
            assert_eq!(ask(path, &[("Host", &host)]), 403, "{host} {path}");
        }
    }
    // A forwarded port differs from ours, and is that of the page.
    assert_eq!(ask("/api/v1/workspace", &[("Host", "localhost:9")]), 200);
    let own = format!("http://{}", server.address);
    assert_eq!(ask("/api/v1/workspace", &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]), 200);
    for origin in ["http://evil.example", "null", "https://localhost", "http://127.0.0.1:1"] {
        assert_eq!(ask("/api/v1/workspace", &[("Origin", origin)]), 403, "{origin}");
    }
    for site in ["cross-site", "same-site", "none"] {
        assert_eq!(ask("/api/v1/workspace", &[("Sec-Fetch-Site", site)]), 403, "{site}");
    }
    let preflight = server.ask("OPTIONS", "/api/v1/rollbacks", &[("Origin", "http://evil.example")], None);
    assert_eq!(preflight.status, 403);
    assert!(!preflight.head.contains("access-control"), "{preflight:?}");
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_sets_no_cookie() {
    let world = World::new();
    let server = Server::start_locked(&world, &[]);
    let page = server.ask("GET", "/", &[("Authorization", "")], None);
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"]
    {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    for name in ["x-content-type-options", "referrer-policy", "x-frame-options", "cross-origin-opener-policy"]
    {
        assert!(page.header(name).is_some(), "{name}");
    }
    assert!(!page.head.contains("set-cookie"));
    assert!(!String::from_utf8_lossy(&page.body).contains(&server.token));
    for path in ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "/..%2fCargo.toml", "//etc/passwd", "/page/", "/x"] {
        assert_eq!(server.ask("GET", path, &[], None).status, 404, "{path}");
    }
    assert_eq!(server.ask("POST", "/", &[], None).status, 405);
}

#[test]
fn paths_lead_nowhere_outside() {
    let world = World::new();
    world.write("a.txt", "a\n");
    std::fs::write(world.path("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", world.path("project").join("out")).unwrap();
    let id = world.checkpoint("first");
    let server = Server::start(&world, &[]);
    for path in
        ["..%2fsecret", "%2fetc%2fpasswd", "a.txt%2f..%2f..%2fsecret", ".%2fa.txt", "a%00", "..", "out%2fx"]
    {
        for state in [id.as_str(), "present"] {
            for route in ["file", "raw"] {
                let answer = server.get(&format!("/{route}?checkpoint={state}&path={path}"));
                assert!(matches!(answer.status, 400 | 404 | 500), "{route} {state} {path}: {answer:?}");
                assert!(!String::from_utf8_lossy(&answer.body).contains("root:"), "{answer:?}");
            }
        }
    }
    // The link itself is shown as one; what it leads to is not.
    let link = server.get(&format!("/file?checkpoint={id}&path=out")).json();
    assert_eq!((&link["kind"], &link["lines"][0]["text"]), (&json!("link"), &json!("../secret")));
    let present = server.get("/file?checkpoint=present&path=out");
    assert!(present.status != 200, "{present:?}");
}

#[test]
fn pictures_that_can_hold_scripts_are_never_documents() {
    let world = World::new();
    let svg = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
    world.write("a.svg", svg);
    world.write("a.html", "<script>alert(1)</script>");
    world.write("a.png", b"\x89PNG\r\n\x1a\nrest");
    let id = world.checkpoint("first");
    let server = Server::start(&world, &[]);
    for name in ["a.svg", "a.html"] {
        let raw = server.get(&format!("/raw?checkpoint={id}&path={name}"));
        assert_eq!(raw.header("content-type"), Some("application/octet-stream"), "{raw:?}");
        assert_eq!(raw.header("content-disposition"), Some("attachment"));
        assert_eq!(raw.header("x-content-type-options"), Some("nosniff"));
        assert!(raw.header("content-security-policy").unwrap().contains("sandbox"));
        assert_eq!(raw.header("cache-control"), Some("no-store"));
        assert_eq!(server.get(&format!("/file?checkpoint={id}&path={name}")).json()["kind"], "text");
    }
    let png = server.get(&format!("/raw?checkpoint={id}&path=a.png"));
    assert_eq!(png.header("content-type"), Some("image/png"));
}

#[test]
fn hostile_names_travel_as_they_are() {
    let world = World::new();
    use std::os::unix::ffi::OsStrExt;
    let names: [&[u8]; 5] =
        [b"<img src=x onerror=alert(1)>", b"a\nb", b"a+b c%20", b"odd \xff", "\u{202e}txt.exe".as_bytes()];
    for name in names {
        std::fs::write(world.path("project").join(std::ffi::OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let id = world.checkpoint("first");
    let server = Server::start(&world, &[]);
    let tree = server.get(&format!("/tree?checkpoint={id}")).json();
    assert_eq!(tree["total"], 5, "{tree}");
    for name in names {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        let file = server.get(&format!("/file?checkpoint={id}&path={encoded}"));
        assert_eq!(file.json()["lines"][0]["text"], "x", "{name:?} {file:?}");
        assert_eq!(file.header("content-type"), Some("application/json"));
    }
}

#[test]
fn a_read_only_server_writes_nothing() {
    let world = World::new();
    world.write("a.txt", "a\n");
    let id = world.checkpoint("first");
    world.write("a.txt", "b\n");
    world.checkpoint("second");
    let listing = |world: &World| {
        let mut found = Vec::new();
        let mut left = vec![world.path("home"), world.path("project")];
        while let Some(folder) = left.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let facts = entry.metadata().unwrap();
                // A reader's share of SQLite's log is no content.
                let is_shared = entry.file_name().to_string_lossy().ends_with("-shm");
                if facts.is_dir() {
                    left.push(entry.path());
                } else if !is_shared {
                    found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
                }
            }
        }
        found.sort();
        found
    };
    let server = Server::start(&world, &["--read-only"]);
    let before = listing(&world);
    for (method, path) in routes() {
        if method != "GET" && path != "/session" && !path.starts_with("/jobs") {
            let path = path.replace("{id}", &id).replace("{plan}", "x");
            let body = match path.as_str() {
                "/searches" => json!({ "text": "a" }),
                "/deletions" => json!({ "checkpoints": [id], "dry_run": false }),
                "/previews" => json!({ "verb": "rollback", "to": id }),
                "/undo" => json!({ "rollback": id }),
                path if path.ends_with("correct") => json!({ "mode": "in_place" }),
                path if path.ends_with("rollback")
                    || path.ends_with("keep")
                    || path == "/redo"
                    || path == "/rollbacks" =>
                {
                    json!({ "preview": "x" })
                }
                _ => json!({}),
            };
            let answer = server.ask(&method, &format!("/api/v1{path}"), &[], Some(&body));
            let expected: &[u16] = match path.as_str() {
                "/searches" => &[202],
                // A preview that cannot be made cannot be confirmed.
                path if body["preview"] == "x" => {
                    let _ = path;
                    &[412]
                }
                _ => &[403],
            };
            assert!(expected.contains(&answer.status), "{method} {path}: {answer:?}");
        }
    }
    for path in
        ["/status/present", &format!("/diff?from={id}&to=present"), "/file?checkpoint=present&path=a.txt"]
    {
        let answer = server.get(path);
        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("read_only")), "{path}");
    }
    for path in
        ["/workspace", "/checkpoints", "/strip", "/history?path=a.txt", &format!("/tree?checkpoint={id}")]
    {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(listing(&world), before);
}

#[test]
fn commands_of_the_page_run_only_if_allowed() {
    let world = World::new();
    world.write("a.txt", "good\n");
    world.checkpoint("good");
    world.write("a.txt", "bad\n");
    world.checkpoint("bad");
    let wish = json!({ "command": "grep -q good a.txt", "search": "stepwise" });
    let refused = Server::start(&world, &[]).post("/find-good", &wish);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("no_commands")));
    let server = Server::start(&world, &["--allow-commands"]);
    let begun = server.post("/find-good", &wish);
    assert_eq!(begun.status, 202, "{begun:?}");
    let done = server.wait(&begun.json());
    assert_eq!(done["state"], "done", "{done}");
    let good = text(&done["result"]["checkpoint"]);
    let found = server.get(&format!("/checkpoints/{good}")).json();
    assert_eq!(found["row"]["checkpoint"]["label"], "good");
    assert_eq!(world.read("a.txt"), "bad\n", "the workspace was only read");
}

#[test]
fn a_socket_is_for_its_owner_alone() {
    let world = World::new();
    let path = world.path("page.sock");
    let server = Server::start_locked(&world, &["--socket", path.to_str().unwrap()]);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    let body = json!({ "token": server.token });
    stream.write_all(server.request("POST", "/api/v1/session", &[], Some(&body)).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // A live socket is not taken over.
    let second =
        world.command(&["ui", "--no-open", "--json", "--socket", path.to_str().unwrap()]).output().unwrap();
    let told: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(told["error"]["code"], "not_served", "{told}");
}

#[test]
fn large_and_odd_requests_are_refused() {
    let world = World::new();
    let id = world.checkpoint("first");
    let server = Server::start(&world, &[]);
    let large = json!({ "label": "x".repeat(2 << 20) });
    assert_eq!(server.post("/checkpoints", &large).status, 413);
    for body in [json!([]), json!({ "labl": "x" }), json!({ "label": 1 }), json!("x")] {
        assert_eq!(server.post("/checkpoints", &body).status, 400, "{body}");
    }
    for path in [
        "/checkpoints?limit=0".to_owned(),
        "/checkpoints?limit=99999".to_owned(),
        "/checkpoints?limit=1&limit=2".to_owned(),
        "/checkpoints?before=18446744073709551615".to_owned(),
        "/checkpoints?what=1".to_owned(),
        format!("/tree?checkpoint={id}&path=%zz"),
        format!("/diff?from=present&to={id}"),
        "/strip?buckets=0".to_owned(),
    ] {
        assert_eq!(server.get(&path).status, 400, "{path}");
    }
    for path in
        ["/checkpoints/nothing", "/checkpoints/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/plans/nothing", "/jobs/x"]
    {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

/// A browser that notes what it was started with.
const BROWSER: &str = "#!/bin/sh\n{ echo \"$#\"; echo \"$1\"; stat -c %a \"$1\"; cat \"$1\"; } >\"$0.note.part\"\nmv \"$0.note.part\" \"$0.note\"\n";

#[test]
fn the_browser_gets_a_file_of_the_user_and_no_address() {
    let world = World::new();
    world.write("a.txt", "a");
    world.checkpoint("one");
    let opener = world.path("bin/xdg-open");
    std::fs::create_dir(world.path("bin")).unwrap();
    std::fs::write(&opener, BROWSER).unwrap();
    std::fs::set_permissions(&opener, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = world.command(&["ui", "--json"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", world.path("bin").display())).env("DISPLAY", ":0");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let note = world.path("bin/xdg-open.note");
    let begun = std::time::Instant::now();
    while !note.exists() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no browser was started");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let told = std::fs::read_to_string(&note).unwrap();
    let rows: Vec<&str> = told.lines().collect();
    let [count, file, mode, page] = rows.as_slice() else { panic!("{told}") };
    assert_eq!((*count, *mode), ("1", "600"), "{told}");
    assert!(!file.contains("token") && page.contains("#token="), "{told}");
    let ended = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    child.wait().unwrap();
    assert!(!std::path::Path::new(file).exists(), "the file ends with the server");
}
