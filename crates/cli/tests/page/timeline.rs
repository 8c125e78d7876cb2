//! Pages of the timeline, and events as they happen.

use crate::server::{Server, World, text};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn pages_give_every_checkpoint_once_newest_first() {
    let world = World::new();
    for at in 0..7 {
        world.write("a.txt", format!("{at}\n"));
        world.checkpoint(&format!("c{at}"));
    }
    let server = Server::start(&world, &[]);
    let (mut labels, mut before) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/checkpoints?limit=3{before}")).json();
        assert_eq!(page["total"], 7);
        labels.extend(
            page["checkpoints"].as_array().unwrap().iter().map(|row| row["checkpoint"]["label"].clone()),
        );
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(json!(labels), json!(["c6", "c5", "c4", "c3", "c2", "c1", "c0"]));
    let jumped = server.get("/checkpoints?limit=2&skip=4").json();
    assert_eq!(jumped["checkpoints"][0]["checkpoint"]["label"], "c2");
    let strip = server.get("/strip?buckets=2").json();
    let sum: u64 =
        strip["buckets"].as_array().unwrap().iter().map(|it| it["checkpoints"].as_u64().unwrap()).sum();
    assert_eq!((strip["buckets"].as_array().unwrap().len(), sum), (2, 7), "{strip}");
}

#[test]
fn pages_of_one_agent_or_one_session_hold_all_of_it_and_nothing_else() {
    let world = World::new();
    world.write("a.txt", "a\n");
    world.checkpoint("by hand");
    let [one, two] = ["57858edd-f386-4b85-b6ba-76f742d12643", "9a1d2f10-77c4-4c57-9d0e-3b1f9d4f6e21"];
    let turn = |agent: &str, session: &str, prompt: &str| {
        let hook = |event: &str| {
            let input = json!({ "session_id": session, "cwd": world.path("project"), "hook_event_name": event,
                "prompt": prompt, "tool_name": "Bash", "tool_use_id": prompt, "tool_input": { "command": "make" } });
            let mut command = world.command(&["hook", agent]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        };
        hook("UserPromptSubmit");
        hook("PreToolUse");
        world.write("a.txt", prompt);
        hook("Stop");
    };
    for at in 0..3 {
        turn("claude", one, &format!("claude {at}"));
        turn("codex", two, &format!("codex {at}"));
    }
    let server = Server::start(&world, &[]);
    let labels = |query: &str| {
        let (mut labels, mut before) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/checkpoints?limit=2&{query}{before}")).json();
            assert_eq!(page["total"], 3, "{query}");
            for row in page["checkpoints"].as_array().unwrap() {
                labels.push(text(&row["checkpoint"]["label"]));
            }
            match page["next"].as_u64() {
                Some(next) => before = format!("&before={next}"),
                None => return labels,
            }
        }
    };
    let claude = ["claude 2", "claude 1", "claude 0"];
    assert_eq!(labels("agent=claude"), claude);
    assert_eq!(labels(&format!("session={one}")), claude);
    assert_eq!(labels(&format!("agent=codex&session={two}")), ["codex 2", "codex 1", "codex 0"]);
    assert_eq!(server.get(&format!("/checkpoints?agent=claude&session={two}")).json()["total"], 0);
    turn("claude", one, "claude 3");
    assert_eq!(server.get("/checkpoints?agent=claude").json()["total"], 4);
}

#[test]
fn events_come_as_they_happen_and_go_on_after_the_last_one() {
    let world = World::new();
    world.write("a.txt", "a\n");
    world.checkpoint("first");
    let server = Server::start(&world, &[]);
    let last = server.get("/workspace").json()["event"].as_u64().unwrap();
    let listen = |path: &str, headers: &[(&str, &str)]| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(server.request("GET", path, headers, None).as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let mut live = listen("/api/v1/events", &[]);
    let mut line = String::new();
    while !line.starts_with(": open") {
        line.clear();
        live.read_line(&mut line).unwrap();
    }
    world.write("a.txt", "b\n");
    let began = Instant::now();
    let id = world.checkpoint("second");
    let event = next_event(&mut live, "checkpoint.created");
    assert_eq!((&event["subject"], &event["seq"].as_u64().map(|seq| seq > last)), (&json!(id), &Some(true)));
    assert!(began.elapsed() < Duration::from_secs(20));
    let mut again = listen("/api/v1/events", &[("Last-Event-ID", "0")]);
    assert_eq!(next_event(&mut again, "checkpoint.created")["payload"]["label"], "first");
}

fn next_event(stream: &mut impl BufRead, kind: &str) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if line.trim_end() == format!("event: {kind}") {
            line.clear();
            stream.read_line(&mut line).unwrap();
            return serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
        }
    }
}

#[test]
fn output_of_a_running_step_is_readable_before_its_end() {
    let world = World::new();
    world.write("a.txt", "a\n");
    world.checkpoint("first");
    let plan = "title = \"Slow\"\n[[step]]\nid = \"slow\"\nrun = \"echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended\"\n";
    std::fs::write(world.path("plan.toml"), plan).unwrap();
    world.cli(&["plan", "new", "../plan.toml", "--id", "slow"]);
    let mut run = world.command(&["plan", "run", "slow", "--quiet"]).spawn().unwrap();
    let server = Server::start(&world, &[]);
    let output = || server.get("/plans/slow/output?step=slow").json();
    let until = Instant::now() + Duration::from_secs(60);
    while output()["text"] != "begun\n" {
        assert!(Instant::now() < until, "{}", output());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!((&output()["running"], &output()["next"]), (&json!(true), &json!(6)));
    world.write("go", "");
    run.wait().unwrap();
    let rest = server.get("/plans/slow/output?step=slow&after=6").json();
    assert_eq!((&rest["text"], &rest["running"]), (&json!("ended\n"), &json!(false)));
}

#[test]
fn an_interrupt_ends_the_server() {
    let world = World::new();
    let mut server = Server::start(&world, &[]);
    let pid = server.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let until = Instant::now() + Duration::from_secs(20);
    let status = loop {
        match server.child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(Instant::now() < until, "it goes on"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}

/// Inserts copies of the only checkpoint. Figures need no files.
fn many(world: &World, count: u128) {
    let mut catalog = rusqlite::Connection::open(world.path("home/catalog.db")).unwrap();
    let columns: Vec<String> = {
        let mut statement = catalog.prepare("SELECT name FROM pragma_table_info('checkpoints')").unwrap();
        let names = statement.query_map((), |row| row.get(0)).unwrap();
        names.map(Result::unwrap).filter(|name| name != "seq" && name != "id").collect()
    };
    let columns = columns.join(", ");
    let transaction = catalog.transaction().unwrap();
    for at in 1..count {
        let id = safepoint_model::CheckpointId::from_bits(at).to_string();
        let row = format!(
            "INSERT INTO checkpoints (id, {columns}) SELECT ?1, {columns} FROM checkpoints WHERE seq = 1"
        );
        transaction.execute(&row, [&id]).unwrap();
        let parts =
            "INSERT INTO checkpoint_parts SELECT ?1, position, kind, key, document FROM checkpoint_parts
                     WHERE checkpoint_id = (SELECT id FROM checkpoints WHERE seq = 1)";
        transaction.execute(parts, [&id]).unwrap();
    }
    transaction.commit().unwrap();
}

#[test]
#[ignore = "prints figures: cargo test --release --test page -- --ignored --nocapture"]
fn pages_of_100_000_checkpoints() {
    let world = World::new();
    world.write("a.txt", "a\n");
    world.checkpoint("first");
    many(&world, 100_000);
    let middle = |work: &dyn Fn()| {
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let began = Instant::now();
                work();
                began.elapsed()
            })
            .collect();
        times.sort();
        times[4]
    };
    let list = middle(&|| drop(world.command(&["list", "-n", "200", "--json"]).output().unwrap()));
    println!("list -n 200 --json: {list:?}");
    let server = Server::start(&world, &[]);
    for path in ["/checkpoints", "/checkpoints?skip=50000", "/strip", "/workspace"] {
        assert_eq!(server.get(path).status, 200);
        let time = middle(&|| drop(server.get(path)));
        println!("{path}: {time:?}, {:.2} times the list", time.as_secs_f64() / list.as_secs_f64());
    }
}
