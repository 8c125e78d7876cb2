//! A project, a server for it, and requests on raw sockets.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Project, home and user directory.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["project", "user"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("project").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("project").join(name)).unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin");
        // Else a program that counts its lines writes the counters into its folder.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        command.env("SAFEPOINT_HOME", self.path("home")).env("HOME", self.path("user")).env("USER", "dev");
        command.current_dir(self.path("project"));
        command
    }

    /// Runs a command of the command line; returns its data.
    pub(crate) fn cli(&self, args: &[&str]) -> Value {
        let output = self.command(&[&["--json"], args].concat()).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["data"].clone()
    }

    /// Takes a checkpoint, and returns its id.
    pub(crate) fn checkpoint(&self, label: &str) -> String {
        text(&self.cli(&["create", "-m", label])["checkpoint"]["id"])
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, head, body: bytes.get(at + 4..).unwrap_or_default().to_vec() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) token: String,
    pub(crate) key: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test may have killed it.
        let is_over = self.child.try_wait().is_ok_and(|status| status.is_some());
        let status = stopped(&mut self.child);
        assert!(is_over || std::thread::panicking() || status == Some(0), "the server ended with {status:?}");
    }
}

/// Asks a server to stop, and returns its exit status. A server that does not end within a minute is killed.
pub(crate) fn stopped(child: &mut Child) -> Option<i32> {
    use rustix::process::{Pid, Signal, kill_process};
    if let Ok(Some(status)) = child.try_wait() {
        return status.code();
    }
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(60) {
        if let Ok(Some(status)) = child.try_wait() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

impl Server {
    /// Starts a server, without a key.
    pub(crate) fn start_locked(world: &World, args: &[&str]) -> Self {
        let mut command = world.command(&[&["ui", "--no-open", "--json"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = text(&told["data"]["url"]);
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        Self { child, address: address.to_owned(), token: token.to_owned(), key: String::new() }
    }

    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let mut server = Self::start_locked(world, args);
        let answer = server.trade();
        assert_eq!(answer.status, 201, "{answer:?}");
        server.key = text(&answer.json()["key"]);
        server
    }

    pub(crate) fn trade(&self) -> Answer {
        self.ask("POST", "/api/v1/session", &[], Some(&json!({ "token": self.token })))
    }

    /// Sends a request. Host and key are added unless given; an empty value leaves one out.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(self.request(method, path, headers, body).as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::parse(&answer)
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> String {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        let bearer = format!("Bearer {}", self.key);
        let own = [("Host", self.address.as_str()), ("Authorization", bearer.as_str())];
        let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let own = own.iter().filter(|(name, _)| !is_given(name));
        for (name, value) in own.chain(headers).filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{head}\r\n{body}")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", &format!("/api/v1{path}"), &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", &format!("/api/v1{path}"), &[], Some(body))
    }

    /// Waits for the end of a job.
    pub(crate) fn wait(&self, job: &Value) -> Value {
        let path = format!("/jobs/{}", text(&job["id"]));
        for _ in 0..600 {
            let job = self.get(&path).json();
            if job["state"] != "running" {
                return job;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{path} does not end");
    }
}
