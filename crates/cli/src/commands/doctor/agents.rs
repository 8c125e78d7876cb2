//! Coding agents: found, installed, trusted, last seen, and the fix for each problem.

#![allow(
    clippy::disallowed_methods,
    reason = "agents are asked for their version, and Codex for the trust in hooks"
)]

use super::Health;
use crate::commands::Context;
use crate::commands::install::{folders, programs};
use crate::context::{on_path, own_program};
use crate::render::output::Printer;
use crate::render::terminal::{for_shell, printable};
use safepoint::model::Timestamp;
use safepoint_agents::CodingAgent;
use safepoint_agents::install::trust::{self, Trust};
use safepoint_agents::install::{Folders, InstallError, InstallScope, Installed, installed};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for the version of an agent.
const VERSION_WAIT: Duration = Duration::from_secs(10);
/// Time limit for Codex's answer.
const TRUST_WAIT: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(20);
const VERSION_BYTES_MAX: u64 = 4096;
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// State of an agent.
#[derive(Debug, Serialize)]
pub(super) struct AgentCheck {
    agent: &'static str,
    pub(super) status: Health,
    program: Option<String>,
    version: Option<String>,
    user: &'static str,
    project: &'static str,
    trust: &'static str,
    last_seen: Option<Timestamp>,
    problems: Vec<Fault>,
}

/// Problem, and the command that fixes it.
#[derive(Debug, Serialize)]
struct Fault {
    message: String,
    fix: String,
}

/// Checks agents: the named ones, else those that are found or installed. `last_seen` returns the time of an agent's last event.
pub(super) fn checks(
    context: &Context,
    named: &[CodingAgent],
    last_seen: impl Fn(CodingAgent) -> Option<Timestamp>,
) -> Vec<AgentCheck> {
    let Ok(folders) = folders(context) else { return Vec::new() };
    let wanted: Vec<CodingAgent> = if named.is_empty() { CodingAgent::ALL.to_vec() } else { named.to_vec() };
    let mut checks: Vec<(bool, AgentCheck)> = thread::scope(|scope| {
        let folders = &folders;
        let running: Vec<_> = wanted.iter().map(|agent| scope.spawn(|| check(folders, *agent))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    checks.retain(|(shown, _)| *shown || !named.is_empty());
    let with_time = |(_, check): (bool, AgentCheck)| AgentCheck {
        last_seen: check.agent.parse().ok().and_then(&last_seen),
        ..check
    };
    checks.into_iter().map(with_time).collect()
}

/// Checks an agent. Returns also true if it is on this machine or installed.
fn check(folders: &Folders, agent: CodingAgent) -> (bool, AgentCheck) {
    let program = programs(agent).iter().find_map(|name| on_path(name));
    let mut problems = Vec::new();
    let states =
        [InstallScope::User, InstallScope::Project].map(|place| state(folders, place, agent, &mut problems));
    let trust = trusted(folders, agent, program.as_deref(), states);
    if states[1] != "no" && on_path("safepoint").is_none() {
        problems.push(absent());
    }
    let covered = states.iter().any(|state| *state != "no");
    // Gemini switches off all hooks in a folder that is not trusted, also those of the user.
    let needs_trust = match agent {
        CodingAgent::Codex => true,
        CodingAgent::Gemini => covered,
        _ => states[1] != "no",
    };
    if trust == Trust::Untrusted && needs_trust {
        problems.push(untrusted(folders, agent));
    }
    let found = program.is_some() || folders.of(agent, InstallScope::User).is_dir();
    let status = match (problems.is_empty(), covered || !found) {
        (false, _) => Health::Problem,
        (true, true) => Health::Ok,
        (true, false) => Health::Warning,
    };
    let check = AgentCheck {
        agent: agent.name(),
        status,
        version: program.as_deref().and_then(version),
        program: program.map(|path| path.to_string_lossy().into_owned()),
        user: states[0],
        project: states[1],
        trust: match trust {
            Trust::Trusted => "trusted",
            Trust::Untrusted => "untrusted",
            Trust::Unknown => "unknown",
        },
        last_seen: None,
        problems,
    };
    (found || covered, check)
}

fn state(
    folders: &Folders,
    place: InstallScope,
    agent: CodingAgent,
    problems: &mut Vec<Fault>,
) -> &'static str {
    let project = if place == InstallScope::Project { " --project" } else { "" };
    let fix = format!("safepoint install {agent}{project}");
    match installed(folders, place, agent) {
        Ok(Installed::No) => "no",
        Ok(Installed::Yes) => "yes",
        Ok(Installed::Partly) => {
            let message = format!("entries in the {} settings are missing or outdated", place.name());
            problems.push(Fault { message, fix });
            "partly"
        }
        Err(error) => {
            problems.push(Fault { message: error.to_string(), fix: correction(&error, &fix) });
            "invalid"
        }
    }
}

/// Fix for a settings file that `install` refuses, too: first the file, then the installation.
fn correction(error: &InstallError, again: &str) -> String {
    let path = for_shell(&error.path().to_string_lossy());
    match error {
        InstallError::Invalid { .. } | InstallError::Unexpected { .. } => {
            format!("${{EDITOR:-vi}} {path}    (correct it, then: {again})")
        }
        InstallError::Busy { .. } => again.to_owned(),
        _ => format!("ls -ld {path}    (make it readable and writable, then: {again})"),
    }
}

fn trusted(folders: &Folders, agent: CodingAgent, program: Option<&Path>, states: [&str; 2]) -> Trust {
    match (agent, program) {
        (CodingAgent::Codex, Some(program)) if states != ["no", "no"] => {
            codex_trust(program, &folders.project)
                .map_or(Trust::Unknown, |answer| trust::codex_hooks(&answer))
        }
        _ => trust::of_folder(folders, agent),
    }
}

/// Hooks of a project call the program by its name.
fn absent() -> Fault {
    let program = own_program();
    let folder = program.parent().unwrap_or(Path::new("/usr/local/bin")).display();
    Fault {
        message: "hooks of the project do nothing: `safepoint` is not on PATH".to_owned(),
        fix: format!("export PATH=\"{folder}:$PATH\"    (also in the profile of your shell)"),
    }
}

fn untrusted(folders: &Folders, agent: CodingAgent) -> Fault {
    if agent == CodingAgent::Codex {
        let message = "Codex skips the hooks: the folder or the hooks are not trusted".to_owned();
        let fix = "codex    (then trust the folder, type /hooks and trust them)".to_owned();
        return Fault { message, fix };
    }
    let project = folders.project.display();
    let message = match agent {
        CodingAgent::Gemini => format!("the folder {project} is not trusted: no hooks run in it"),
        _ => format!("the folder {project} is not trusted: its hooks do not run"),
    };
    // Gemini asks only once.
    let how = match agent {
        CodingAgent::Gemini => "then type /permissions and trust the folder",
        _ => "then trust the folder",
    };
    let fix = format!("cd {} && {agent}    ({how})", for_shell(&folders.project.to_string_lossy()));
    Fault { message, fix }
}

/// First line that a program prints for `--version`.
fn version(program: &Path) -> Option<String> {
    let child = Command::new(program)
        .arg("--version")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = Running(child.ok()?);
    let deadline = Instant::now() + VERSION_WAIT;
    while child.0.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(POLL_EVERY);
    }
    let mut text = Vec::new();
    child.0.stdout.take()?.take(VERSION_BYTES_MAX).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(|line| printable(&shortened(line)))
}

fn shortened(line: &str) -> String {
    line.chars().take(80).collect()
}

/// Process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answer of `codex app-server` to `hooks/list`.
fn codex_trust(program: &Path, project: &PathBuf) -> Option<Value> {
    let child = Command::new(program)
        .arg("app-server")
        .current_dir(project)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = Running(child.ok()?);
    let client = json!({ "name": "safepoint", "version": env!("CARGO_PKG_VERSION") });
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "clientInfo": client } }),
        json!({ "jsonrpc": "2.0", "method": "initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "hooks/list", "params": { "cwds": [project] } }),
    ];
    let mut input = child.0.stdin.take()?;
    for request in requests {
        writeln!(input, "{request}").ok()?;
    }
    let output = child.0.stdout.take()?.take(ANSWER_BYTES_MAX);
    let (send, receive) = mpsc::channel();
    // The thread ends with the process.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let answer: Option<Value> = serde_json::from_str(&line).ok();
            if answer.as_ref().is_some_and(|answer| answer.get("id") == Some(&json!(2))) {
                let _ = send.send(answer);
                return;
            }
        }
    });
    receive.recv_timeout(TRUST_WAIT).ok().flatten()
}

/// Prints the agents.
pub(super) fn tell(out: &Printer, checks: &[AgentCheck]) {
    let colours = out.colours;
    for check in checks {
        if out.quiet && check.status == Health::Ok {
            continue;
        }
        let mut facts = vec![match (&check.version, &check.program) {
            (Some(version), _) => version.clone(),
            (None, Some(program)) => program.clone(),
            (None, None) => "program not on PATH".to_owned(),
        }];
        facts.push(format!("installed: user {}, project {}", check.user, check.project));
        facts.push(format!("trust {}", check.trust));
        facts.push(check.last_seen.map_or("never seen".to_owned(), |time| format!("last seen {time}")));
        let status = super::painted(colours, check.status);
        out.line(format!("{status}  {:8}  {}", check.agent, printable(&facts.join("; "))));
        let hint = |text: &str| out.line(format!("{:19}{} {}", "", colours.cyan("fix:"), printable(text)));
        for fault in &check.problems {
            out.line(format!("{:19}{}", "", printable(&fault.message)));
            hint(&fault.fix);
        }
        if check.status == Health::Warning {
            hint(&format!("safepoint install {}", check.agent));
        }
    }
}
