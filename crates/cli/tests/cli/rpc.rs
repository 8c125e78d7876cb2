//! `safepoint rpc`: frames in, frames out; hostile ones are errors and never end in a panic.

use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

fn frame(text: &[u8], bytes: &[u8]) -> Vec<u8> {
    let lengths = [(text.len() + bytes.len() + 4) as u32, text.len() as u32].map(u32::to_be_bytes);
    [lengths.concat().as_slice(), text, bytes].concat()
}

fn request(id: u64, method: &str, params: &Value, bytes: &[u8]) -> Vec<u8> {
    let text = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
    frame(text.as_bytes(), bytes)
}

fn hello() -> Vec<u8> {
    request(1, "initialize", &json!({ "protocol": 1, "client": "test" }), b"")
}

/// Sends the input and returns each answer with its attached bytes.
fn talk(sandbox: &Sandbox, input: &[Vec<u8>]) -> Vec<(Value, Vec<u8>)> {
    talk_to(sandbox.command(&["rpc"]), input)
}

fn talk_to(mut command: Command, input: &[Vec<u8>]) -> Vec<(Value, Vec<u8>)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.concat());
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    writer.join().unwrap();
    let done = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && !told.contains("panicked"), "{:?}: {told}", done.status);
    let mut answers = Vec::new();
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (whole, text) = (number(0), number(4));
        let answer = serde_json::from_slice(&rest[8..8 + text]).unwrap();
        answers.push((answer, rest[8 + text..4 + whole].to_vec()));
        rest = &rest[4 + whole..];
    }
    answers
}

#[test]
fn a_client_saves_and_reads_a_state() {
    let sandbox = Sandbox::new();
    let state = json!({ "id": "s1", "metadata": { "step": 1 }, "channels": { "messages": "1", "empty": "1" },
        "values": { "messages": { "encoding": "raw", "bytes": [2, 4] }, "empty": null },
        "body": { "encoding": "json", "bytes": [0, 2] } });
    let answers = talk(
        &sandbox,
        &[
            hello(),
            request(2, "threads.put", &json!({ "thread": "t", "state": state }), b"{}\x00\xff\n!"),
            request(3, "threads.get", &json!({ "thread": "t" }), b""),
            request(4, "threads.list", &json!({ "metadata": { "step": 2 } }), b""),
            request(5, "command", &json!({ "args": ["version"] }), b""),
            request(6, "command", &json!({ "args": ["run", "--", "true"] }), b""),
            request(7, "threads.rollback", &json!({ "workspace": "x", "thread": "t", "id": "s1" }), b""),
        ],
    );
    let result = |at: usize| &answers[at].0["result"];
    assert_eq!(result(0)["protocol"], 1);
    let (found, bytes) = (result(2), &answers[2].1);
    let at = |value: &Value| {
        let place = |at: usize| value["bytes"][at].as_u64().unwrap() as usize;
        bytes[place(0)..place(0) + place(1)].to_vec()
    };
    assert_eq!(at(&found["channels"]["messages"]["value"]), b"\x00\xff\n!");
    assert_eq!((at(&found["body"]), &found["is_head"]), (b"{}".to_vec(), &json!(true)));
    assert_eq!(found["channels"]["empty"]["value"], Value::Null);
    assert_eq!(result(3)["states"], json!([]));
    assert_eq!(result(4)["exit_code"], 0);
    assert_eq!(answers[5].0["error"]["data"]["kind"], "usage");
    assert_eq!(answers[6].0["error"]["code"], -32000);
}

#[test]
fn torn_and_unknown_frames_are_errors_and_the_next_frame_is_read() {
    let sandbox = Sandbox::new();
    let codes = |input: &[Vec<u8>]| -> Vec<i64> {
        let answers = talk(&sandbox, input).into_iter();
        answers.map(|(answer, _)| answer["error"]["code"].as_i64().unwrap_or_default()).collect()
    };
    let ping = || request(9, "ping", &Value::Null, b"");
    for (bad, code) in [
        (frame(b"nonsense", b""), -32700),
        (frame(b"\xff\xfe", b""), -32700),
        (frame("[".repeat(50_000).as_bytes(), b""), -32700),
        (frame(b"[]", b""), -32600),
        (frame(b"{\"jsonrpc\":\"2.0\",\"id\":1}", b""), -32600),
        (vec![0, 0, 0, 6, 0, 0, 0, 9, 1, 2], -32600),
        (request(2, "unknown", &Value::Null, b""), -32601),
        (request(2, "threads.get", &json!([]), b""), -32000),
        (request(2, "threads.get", &json!({ "thread": "a\u{0}b" }), b""), -32000),
    ] {
        assert_eq!(codes(&[hello(), bad.clone(), ping()]), [0, code, 0], "{bad:?}");
    }
    let whole = hello();
    for len in [1, 7, 8, whole.len() - 1] {
        assert_eq!(codes(&[whole[..len].to_vec()]), [-32700], "{len}");
    }
    assert_eq!(codes(&[ping()]), [-32001]);
    assert_eq!(
        codes(&[request(1, "initialize", &json!({ "protocol": 2, "client": "x" }), b""), ping()]),
        [-32001]
    );
    assert_eq!(codes(&[]), Vec::<i64>::new());
}

#[test]
fn an_undo_that_would_replace_later_changes_is_a_conflict_unless_it_is_forced() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    sandbox.write("notes.txt", "new work\n");
    let command = |id: u64, args: &[&str]| request(id, "command", &json!({ "args": args }), b"");
    let answers = talk(&sandbox, &[hello(), command(2, &["undo"]), command(3, &["undo", "notes.txt"])]);
    for (answer, _) in &answers[1..] {
        let error = &answer["error"]["data"];
        let found = (&error["kind"], &error["code"]);
        assert_eq!(found, (&json!("conflict"), &json!("changed_since_rollback")), "{answer:#}");
    }
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
    let answers = talk(&sandbox, &[hello(), command(2, &["undo", "--yes"])]);
    assert_eq!(answers[1].0["result"]["exit_code"], 0, "{:#}", answers[1].0);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    // The new work is in the safety checkpoint.
    talk(&sandbox, &[hello(), command(2, &["redo"])]);
    assert_eq!(sandbox.read("notes.txt"), "new work\n");
}

/// Saves of one process, numbered.
const SAVES: u64 = 200;

#[test]
fn eight_processes_that_save_at_once_lose_nothing_and_are_never_locked_out() {
    let sandbox = Sandbox::new();
    let save = |process: u64, number: u64| {
        let body = format!("{process} {number} ").repeat(1 + (number as usize % 5) * 300);
        let state = json!({ "id": format!("s{number:03}"), "channels": { "messages": number.to_string() },
            "parent": (number > 0).then(|| format!("s{:03}", number - 1)),
            "values": { "messages": { "encoding": "raw", "bytes": [2, body.len()] } },
            "body": { "encoding": "json", "bytes": [0, 2] } });
        // All save to one thread, each in a namespace of its own, and to a thread of its own.
        let (thread, namespace) = match number % 2 {
            0 => ("shared".to_owned(), process.to_string()),
            _ => (format!("own-{process}"), String::new()),
        };
        let mut state = state;
        state["namespace"] = json!(namespace);
        let params = json!({ "thread": thread, "state": state });
        request(number + 2, "threads.put", &params, &[b"{}", body.as_bytes()].concat())
    };
    std::thread::scope(|scope| {
        for process in 0..8 {
            let (command, save) = (sandbox.command(&["rpc"]), &save);
            scope.spawn(move || {
                let mut input = vec![hello()];
                input.extend((0..SAVES).map(|number| save(process, number)));
                let answers = talk_to(command, &input);
                assert_eq!(answers.len() as u64, SAVES + 1);
                for (answer, _) in answers {
                    assert!(answer["error"].is_null(), "process {process}: {answer}");
                }
            });
        }
    });
    let read = |params: Value| {
        let answers = talk(&sandbox, &[hello(), request(2, "threads.list", &params, b"")]);
        answers[1].0["result"]["states"].as_array().unwrap().clone()
    };
    for process in 0..8u64 {
        let own = read(json!({ "thread": format!("own-{process}") }));
        let shared = read(json!({ "thread": "shared", "namespace": process.to_string() }));
        assert_eq!((own.len() as u64, shared.len() as u64), (SAVES / 2, SAVES / 2), "process {process}");
        let newest = |states: &[Value]| (states[0]["id"].clone(), states[0]["is_head"].clone());
        assert_eq!(newest(&own), (json!("s199"), json!(true)));
        assert_eq!(newest(&shared), (json!("s198"), json!(true)));
    }
    sandbox.run(&["validate", "--deep"]);
}

/// A server that runs.
fn started(sandbox: &Sandbox) -> std::process::Child {
    let mut command = sandbox.command(&["rpc"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn answer_of(child: &mut std::process::Child) -> Value {
    let output = child.stdout.as_mut().unwrap();
    let mut lengths = [0; 8];
    output.read_exact(&mut lengths).unwrap();
    let number = |at: usize| u32::from_be_bytes(lengths[at..at + 4].try_into().unwrap()) as usize;
    let mut rest = vec![0; number(0) - 4];
    output.read_exact(&mut rest).unwrap();
    serde_json::from_slice(&rest[..number(4)]).unwrap()
}

#[test]
fn a_signal_ends_the_server_between_two_calls_with_status_0() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::with_checkpoint();
    let create = |id: u64| request(id, "command", &json!({ "args": ["create", "-m", "again"] }), b"");
    let checkpoints = || sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len();
    // While it waits for a request, and inside of one.
    for begun in [&b""[..], &b"\x00\x00"[..], &hello()[..20]] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let mut child = started(&sandbox);
            child.stdin.as_mut().unwrap().write_all(&hello()).unwrap();
            assert_eq!(answer_of(&mut child)["result"]["protocol"], 1);
            child.stdin.as_mut().unwrap().write_all(begun).unwrap();
            kill_process(Pid::from_child(&child), signal).unwrap();
            // Its input stays open: waiting would close it.
            let _input = child.stdin.take();
            let status = child.wait().unwrap();
            assert_eq!(status.code(), Some(0), "{signal:?} after {} bytes", begun.len());
        }
    }
    // Requests that wait are not begun.
    let mut child = started(&sandbox);
    child.stdin.as_mut().unwrap().write_all(&hello()).unwrap();
    answer_of(&mut child);
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    child.stdin.as_mut().unwrap().write_all(&[create(2), create(3)].concat()).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let _input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]));
    assert_eq!(checkpoints(), 1);
    // A call is answered and done, or not begun.
    for pause in [0, 5, 20, 80] {
        let sandbox = Sandbox::with_checkpoint();
        let mut child = started(&sandbox);
        child.stdin.as_mut().unwrap().write_all(&hello()).unwrap();
        answer_of(&mut child);
        child.stdin.as_mut().unwrap().write_all(&create(2)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(pause));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let _input = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let list = sandbox.json(&["list", "--json"]);
        let done = list["data"]["checkpoints"].as_array().unwrap().len() - 1;
        assert_eq!(usize::from(!output.stdout.is_empty()), done, "after {pause} ms");
    }
}
