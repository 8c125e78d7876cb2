//! `run --watch`: checkpoints of every quiet state, and a terminal that is the program's alone.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::process::Command;

/// Runs a shell line under watch, with a shorter quiet time.
fn watch(sandbox: &Sandbox, options: &[&str], line: &str) -> Command {
    let args = [&["run", "--watch"], options, &["--", "sh", "-c", line]].concat();
    let mut command = sandbox.command(&args);
    command.env("SAFEPOINT_TEST_QUIET_MS", "200").env("PATH", "/usr/bin:/bin");
    command
}

/// Labels, kinds and sessions of the checkpoints, oldest first.
fn made(sandbox: &Sandbox) -> Vec<(String, String, Value)> {
    let answer = sandbox.json(&["list", "--json"]);
    let all = answer["data"]["checkpoints"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter().rev().map(|one| (text(&one["label"]), text(&one["kind"]), one["session_id"].clone())).collect()
}

#[test]
fn every_quiet_state_becomes_a_checkpoint_and_the_exit_code_is_the_commands() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let line = "echo 1 > a; sleep 1.5; mkdir new; echo 2 > new/b; sleep 1.5; \
                echo $SAFEPOINT_SESSION_ID > ../session; echo 3 > a; exit 3";
    let output = watch(&sandbox, &[], line).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let session = std::fs::read_to_string(sandbox.path("session")).unwrap();
    let made = made(&sandbox);
    let labels: Vec<&str> = made.iter().map(|(label, ..)| label.split(' ').next().unwrap()).collect();
    assert_eq!(labels, ["before", "during", "during", "after"], "{made:?}");
    for (label, kind, of) in &made {
        assert!(label.contains("sh -c echo 1"), "{label}");
        assert_eq!((kind.as_str(), of.as_str()), ("automatic", Some(session.trim())));
    }
    assert_eq!(sandbox.output(&["rollback", "@~2"]).status.code(), Some(0));
    assert_eq!((sandbox.read("a").as_str(), sandbox.path("project/new").exists()), ("1\n", false));
}

#[test]
fn nothing_is_added_where_nothing_changed() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let output = watch(&sandbox, &["--json"], "sleep 1; cat a").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["data"]["watched"], serde_json::json!([]));
    assert_eq!(made(&sandbox).len(), 1, "only the one before");
}

#[test]
fn a_session_of_the_environment_is_passed_on() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let id = "7d9f3c1e-5b1a-4c0e-9f3a-0c1d2e3f4a5b";
    let mut command = watch(&sandbox, &[], "echo $SAFEPOINT_SESSION_ID > a");
    assert_eq!(command.env("SAFEPOINT_SESSION_ID", id).status().unwrap().code(), Some(0));
    assert_eq!(sandbox.read("a").trim(), id);
    assert!(made(&sandbox).iter().all(|(.., session)| session.as_str() == Some(id)));
}

#[test]
fn a_failed_command_is_rolled_back_and_its_last_state_kept() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let output = watch(&sandbox, &["--rollback-on-fail"], "echo 1 > a; exit 4").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(sandbox.read("a"), "0");
    let labels: Vec<String> = made(&sandbox).into_iter().map(|(label, ..)| label).collect();
    assert!(labels[0].starts_with("before sh") && labels[1].starts_with("after sh"), "{labels:?}");
}

/// A full-screen program has the terminal, and sees nothing of the checkpoints that are taken.
#[test]
fn the_terminal_is_the_commands_while_it_runs() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let line = "stty size; test -t 0 -a -t 1 -a -t 2 && printf '<'; echo 1 > a; sleep 1; printf '>'; read b; echo \"$b\"";
    let seen = sandbox.typed(watch(&sandbox, &[], line), "typed\n");
    assert!(seen.contains("40 80\n<>typed\n"), "{seen}");
    assert!(seen.contains("1 checkpoint taken during and after the command"), "{seen}");
}
