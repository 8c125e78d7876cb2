//! A project, and a client that speaks to a server process on pipes.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
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

    /// Runs a command of the command line; returns its JSON.
    pub(crate) fn cli(&self, args: &[&str]) -> Value {
        let output = self.command(&[args, &["--json"]].concat()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a hook of an agent with this event.
    pub(crate) fn hook(&self, agent: &str, event: &Value) {
        let mut child =
            self.command(&["hook", agent]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    pub(crate) fn client(&self) -> Client {
        let mut client = Client::start(self.command(&["mcp"]));
        client.greet(json!({}));
        client
    }

    pub(crate) fn client_that_elicits(&self) -> Client {
        let mut client = Client::start(self.command(&["mcp"]));
        client.greet(json!({ "elicitation": {} }));
        client
    }
}

pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// Notifications that came before the last response.
    pub(crate) notes: Vec<Value>,
    /// Answers to questions of the server: accept, decline or cancel.
    pub(crate) answer: &'static str,
    /// Questions of the server.
    pub(crate) questions: Vec<Value>,
    /// Runs before each answer.
    pub(crate) before_answer: Option<Box<dyn FnMut()>>,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (notes, questions) = (Vec::new(), Vec::new());
        Self { child, input, output, next: 0, notes, answer: "accept", questions, before_answer: None }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_raw(message.to_string().as_bytes());
    }

    pub(crate) fn send_raw(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// Next message; every line is one JSON value.
    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn greet(&mut self, capabilities: Value) {
        let result = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": capabilities,
                "clientInfo": { "name": "tester", "version": "1" },
            }),
        );
        assert_eq!(result["result"]["protocolVersion"], "2025-06-18", "{result}");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Sends a request and returns its response.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.notes.clear();
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["method"] == "elicitation/create" {
                if let Some(before) = &mut self.before_answer {
                    before();
                }
                let answer = json!({ "action": self.answer, "content": {} });
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer }));
                self.questions.push(message);
            } else if message["method"].is_string() {
                self.notes.push(message);
            } else if message["id"] == id {
                return message;
            }
        }
    }

    /// Calls a tool; returns its whole result.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let response = self.request("tools/call", json!({ "name": name, "arguments": arguments }));
        assert!(response["result"].is_object(), "{response}");
        response["result"].clone()
    }

    /// Structured content of a call that succeeds.
    pub(crate) fn done(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// Code and exit code of a call that fails.
    pub(crate) fn fails(&mut self, name: &str, arguments: Value) -> (String, u64) {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], true, "{result}");
        let content = &result["structuredContent"];
        assert!(!content["error"]["hints"].as_array().unwrap().is_empty(), "{content}");
        (content["error"]["code"].as_str().unwrap().to_owned(), content["exit_code"].as_u64().unwrap())
    }

    /// Closes the input; returns the rest of the output, standard error and the exit code.
    pub(crate) fn close(mut self) -> (String, String, Option<i32>) {
        drop(self.input.take());
        let (mut rest, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (rest, errors, self.child.wait().unwrap().code())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A test may have ended it.
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
