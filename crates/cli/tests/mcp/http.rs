//! HTTP on raw sockets: only programs of this machine with the token get an answer.

use crate::client::{World, stopped};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

struct Server {
    child: Child,
    address: String,
    token: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let status = stopped(&mut self.child);
        assert!(std::thread::panicking() || status == Some(0), "the server ended with {status:?}");
    }
}

impl Server {
    fn start(world: &World) -> Self {
        let mut command = world.command(&["mcp", "--http", "--json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["data"]["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address, token: told["data"]["token"].as_str().unwrap().to_owned() }
    }

    /// Sends raw bytes; returns the status and the rest.
    fn send(&self, head: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses early may close before the end of the body.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (status, answer)
    }

    fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
        let body = body.to_string();
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            body.len()
        );
        let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !is_given("Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if !is_given("Authorization") {
            head.push_str(&format!("Authorization: Bearer {}\r\n", self.token));
        }
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        self.send(&format!("{head}\r\n"), body.as_bytes())
    }
}

fn greeting() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
        },
    })
}

#[test]
fn a_missing_or_wrong_token_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    assert_eq!(server.post(&[], &greeting()).0, 200);
    let longer = format!("Bearer {}0", server.token);
    let shorter = format!("Bearer {}", &server.token[1..]);
    let other = format!("Bearer {}", "0".repeat(64));
    let basic = format!("Basic {}", server.token);
    for wrong in ["", "Bearer", "Bearer ", &longer, &shorter, &other, &basic, &server.token] {
        let (status, answer) = server.post(&[("Authorization", wrong)], &greeting());
        assert_eq!(status, 401, "{wrong:?}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer") && !answer.contains("serverInfo"));
    }
    let none = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    assert_eq!(server.send(&none, b"").0, 401);
    assert_eq!(server.send(&none.replace("GET", "OPTIONS"), b"").0, 401);
    assert_eq!(server.send(&none.replace("GET", "DELETE"), b"").0, 401);
    let path = none
        .replace("/mcp ", "/other ")
        .replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {}\r\n\r\n", server.token));
    assert_eq!(server.send(&path, b"").0, 404);
}

#[test]
fn a_rebound_name_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let port = server.address.rsplit(':').next().unwrap();
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0",
        "169.254.1.1",
    ] {
        let (status, answer) = server.post(&[("Host", host)], &greeting());
        assert_eq!(status, 403, "{host}: {answer}");
    }
    for host in [&server.address, &format!("localhost:{port}")] {
        assert_eq!(server.post(&[("Host", host)], &greeting()).0, 200, "{host}");
    }
    let authority = format!(
        "POST http://evil.example/mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
        server.token
    );
    assert_eq!(server.send(&authority, b"").0, 403);
}

#[test]
fn requests_of_other_sites_are_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let other_port = "http://127.0.0.1:1";
    for origin in [
        "http://evil.example",
        "https://evil.example",
        "null",
        other_port,
        "http://localhost",
        "file://",
        "chrome-extension://x",
        "x",
    ] {
        let (status, answer) = server.post(&[("Origin", origin)], &greeting());
        assert_eq!(status, 403, "{origin}: {answer}");
        assert!(!answer.to_lowercase().contains("access-control-allow"), "{answer}");
    }
    assert_eq!(server.post(&[("Origin", &format!("http://{}", server.address))], &greeting()).0, 200);
    // A page cannot ask for permission either.
    let preflight = format!(
        "OPTIONS /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n",
        server.address
    );
    let (status, answer) = server.send(&preflight, b"");
    assert_eq!(status, 401);
    assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
}

#[test]
fn a_body_or_header_that_is_too_large_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let mut large = greeting();
    large["params"]["clientInfo"]["name"] = json!("x".repeat(2 << 20));
    assert_eq!(server.post(&[], &large).0, 413);
    let chunked = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address, server.token
    );
    let mut body = Vec::new();
    for _ in 0..40 {
        body.extend_from_slice(b"10000\r\n");
        body.extend_from_slice(&vec![b' '; 0x10000]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(server.send(&chunked, &body).0, 413);
    let long = "x".repeat(1 << 20);
    assert_ne!(server.post(&[("X-Long", &long)], &greeting()).0, 200);
    assert_eq!(server.post(&[], &greeting()).0, 200, "it is still there");
}

#[test]
fn a_session_over_http_takes_a_checkpoint() {
    let world = World::new();
    world.write("a.txt", "1");
    let server = Server::start(&world);
    let (_, answer) = server.post(&[], &greeting());
    let session = answer
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let session = session.unwrap();
    let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(&headers, &ready).0, 202);
    let params = json!({ "name": "checkpoint", "arguments": { "label": "over http" } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let (status, answer) = server.post(&headers, &call);
    assert!(status == 200 && answer.contains("over http"), "{answer}");
    assert_eq!(world.cli(&["list"])["data"]["checkpoints"][0]["label"], "over http");
}

#[test]
fn only_loopback_addresses_and_long_tokens_are_served() {
    let world = World::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let told = world.cli(&["mcp", "--http", address]);
        assert_eq!((&told["error"]["code"], &told["exit_code"]), (&json!("usage"), &json!(2)), "{told}");
    }
    let weak =
        world.command(&["mcp", "--http", "--json"]).env("SAFEPOINT_MCP_TOKEN", "1234").output().unwrap();
    assert_eq!(weak.status.code(), Some(2));
    let server = Server::start(&world);
    let taken = world.cli(&["mcp", "--http", &server.address]);
    assert_eq!(taken["error"]["code"], "not_served", "{taken}");
}
