//! `run`: another program under protection, with its own output, terminal and exit status.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WRECK: &str = "echo out; echo err >&2; rm -r src; echo bad > notes.txt; touch junk; exit 7";

#[test]
fn a_command_that_goes_well_has_standard_output_to_itself() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["run", "--", "sh", "-c", "echo out; echo err >&2"]), @r#"
    out
    --- stderr
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before sh -c echo out; echo err >&2"
    err
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["run", "-q", "-m", "mine", "cat", "notes.txt"]), @"
    good
    --- exit 0
    ");
    assert_eq!(sandbox.json(&["list", "-n", "1", "--json"])["data"]["checkpoints"][0]["label"], "mine");
}

#[test]
fn a_command_that_fails_passes_its_status_on_and_says_the_way_back() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["run", "--", "sh", "-c", WRECK]), @r#"
    out
    --- stderr
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before sh -c echo out; echo err >&2; rm -r src; echo bad > notes.t…"
    err
    The command failed with status 7. Go back to before it with: safepoint rollback 01KG9YV2300QJS22HDXJ4G4Q61
    --- exit 7
    "#);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    sandbox.run(&["rollback", "@"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
}

#[test]
fn with_rollback_on_fail_a_failure_leaves_no_trace_and_can_be_undone() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["run", "--rollback-on-fail", "--", "sh", "-c", WRECK]), @r#"
    out
    --- stderr
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before sh -c echo out; echo err >&2; rm -r src; echo bad > notes.t…"
    err
    The command failed with status 7.
    Rolled back to 01KG9YV2300QJS22HDXJ4G4Q61 "before sh -c echo out; echo err >&2; rm -r src; echo bad > notes.t…", taken just now
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk  removed
        ~ notes.txt  restored
        + src/ and 1 below it  created
    Undo it with: safepoint undo
    --- exit 7
    "#);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert!(sandbox.path("project/src/main.rs").exists() && !sandbox.path("project/junk").exists());
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("notes.txt"), "bad\n");
    assert_snapshot!(sandbox.run(&["run", "--rollback-on-fail", "--", "true"]), @r#"
    --- stderr
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD "before true"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["run", "--rollback-on-fail", "--", "false"]), @r#"
    --- stderr
    Checkpoint 01KG9Z0HW054A6WWZ3EBH372PA "before false"
    The command failed with status 1.
    Nothing differs from 01KG9Z0HW054A6WWZ3EBH372PA "before false", taken just now.
    --- exit 1
    "#);
}

#[test]
fn the_answer_as_json_is_apart_from_the_output_of_the_command() {
    let sandbox = Sandbox::with_checkpoint();
    let output = sandbox.output(&["run", "--rollback-on-fail", "--json", "--", "sh", "-c", WRECK]);
    assert_eq!(output.status.code(), Some(7));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let data = &value["data"];
    assert_eq!(
        (&value["exit_code"], &data["exit_status"], &data["signal"]),
        (&7.into(), &7.into(), &Value::Null)
    );
    assert_eq!(data["command"][2], WRECK);
    assert_eq!(data["rollback"]["to"], data["checkpoint"]["id"]);
    assert_eq!(data["rollback"]["verified"], true);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("Checkpoint "));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\nout\nerr\n"));
    let value = sandbox.json(&["run", "--json", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((&value["data"]["exit_status"], &value["data"]["signal"]), (&137.into(), &9.into()));
    assert_eq!((&value["exit_code"], &value["data"]["rollback"]), (&137.into(), &Value::Null));
}

#[test]
fn the_whole_answer() {
    let sandbox = Sandbox::with_checkpoint();
    let args = ["run", "--rollback-on-fail", "--json", "-m", "x", "--", "sh", "-c", "rm notes.txt; exit 3"];
    assert_snapshot!(sandbox.json_text(&args), @r#"
    {
      "command": "run",
      "data": {
        "checkpoint": {
          "commit_message": null,
          "commit_sha": null,
          "created_at": "2026-01-31T12:01:01.000000Z",
          "decision_id": null,
          "files": {
            "added": 0,
            "bytes": 50,
            "count": 6,
            "modified": 0,
            "removed": 0
          },
          "id": "01KG9YV2300QJS22HDXJ4G4Q61",
          "integrity": "<hash>",
          "kind": "automatic",
          "label": "x",
          "metrics": {},
          "parent": "01KG9YS9EGCQT0DH2X3200JHAF",
          "parts": [
            {
              "document": "<hash>",
              "key": "01KG9YS7G0000E485875XHVKDF",
              "kind": "files"
            }
          ],
          "phase": null,
          "pinned": false,
          "plan_id": null,
          "progress": {
            "decisions_made": 0,
            "files_created": 0,
            "files_modified": 0,
            "tasks_completed": 0,
            "tests_failing": 0,
            "tests_passing": 0
          },
          "reason": "pre_risky_operation",
          "role": null,
          "rollback_count": 0,
          "rollback_used": false,
          "sandbox_ref": null,
          "scope": "project",
          "session_id": null,
          "size_bytes": N,
          "source_tool": null,
          "state_hash": null,
          "state_snapshot": null,
          "step_index": null,
          "tags": [],
          "uuid": "019c13ed-8860-05e5-910a-2dec89025cc1",
          "warnings": [],
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        },
        "command": [
          "sh",
          "-c",
          "rm notes.txt; exit 3"
        ],
        "exit_status": 3,
        "rollback": {
          "agents": [],
          "answers": null,
          "blocked": [],
          "changed_meanwhile": [],
          "changed_paths": [
            {
              "action": "created",
              "path": "notes.txt"
            }
          ],
          "dry_run": false,
          "effects_not_undone": [],
          "from": "01KG9YV2300QJS22HDXJ4G4Q61",
          "git": null,
          "id": "01KG9YV50RXHKZH4X2XVXK4NAY",
          "left_alone": [],
          "memory": [],
          "parts": [],
          "paths": [],
          "plan": null,
          "plans": null,
          "plans_left": [],
          "removed_files_count": 0,
          "rescued": [],
          "restored_files_count": 1,
          "safety_checkpoint": "01KG9YV6Z8S45Q3ETMV38G3DDS",
          "session": null,
          "sessions": null,
          "strategy": "immediate",
          "threads": [],
          "to": "01KG9YV2300QJS22HDXJ4G4Q61",
          "together": null,
          "undone": [],
          "verb": "rollback",
          "verified": true,
          "waiting": []
        },
        "signal": null,
        "watched": []
      },
      "exit_code": 3,
      "messages": [
        {
          "code": null,
          "level": "info",
          "text": "Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 \"x\""
        },
        {
          "code": null,
          "level": "info",
          "text": "The command failed with status 3."
        }
      ],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn a_command_that_does_not_start_has_the_exit_code_of_shells() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["run", "--", "no-such-program", "-x"]), @r#"
    --- stderr
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before no-such-program -x"
    error: cannot run the command: there is no program "no-such-program"
      because: No such file or directory (os error 2)
    Nothing was changed.
    hint: Nothing was run. Is it spelled right, may you execute it, and is it in PATH?
    --- exit 127
    "#);
    assert_snapshot!(sandbox.run(&["run", "--rollback-on-fail", "--", "./notes.txt"]), @r#"
    --- stderr
    Checkpoint 01KG9YWWP02J59EP1NVRE9ENPE "before ./notes.txt"
    error: cannot run the command: the program "./notes.txt" does not start
      because: Permission denied (os error 13)
    Nothing was changed.
    hint: Nothing was run. Is it spelled right, may you execute it, and is it in PATH?
    --- exit 126
    "#);
    let value = sandbox.json(&["run", "--json", "--", "no-such-program"]);
    assert_eq!((&value["error"]["code"], &value["exit_code"]), (&"command_not_found".into(), &127.into()));
    assert_eq!(value["data"]["exit_status"], Value::Null);
    assert!(value["data"]["checkpoint"]["id"].is_string());
}

#[test]
fn without_a_checkpoint_nothing_is_run() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "--", "touch", "ran"]);
    let output = command.current_dir(sandbox.path("user")).output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    --- stderr
    error: cannot take the checkpoint: $T/user is not taken as a workspace: it is a home directory, with far more in it than one project
    Nothing was changed.
    hint: Name the project's own folder with -C, or use `safepoint init --force` if you mean it.
    hint: The command was not run: it would not have been covered.
    --- exit 12
    ");
    assert!(!sandbox.path("user/ran").exists());
    assert_snapshot!(sandbox.run(&["-C", "missing", "run", "--", "true"]), @"
    --- stderr
    error: cannot run the command: there is no directory $T/project/missing
    Nothing was changed.
    hint: Go to a folder that exists, or name one with -C.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["run"]), @"
    --- stderr
    error: the following required arguments were not provided:
      <CMD>...

    Usage: safepoint run [OPTIONS] -- <CMD>...

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn a_rollback_that_fails_after_the_command_is_told_with_the_way_on() {
    let sandbox = Sandbox::with_checkpoint();
    // An uncaptured FIFO blocks the path of a captured file.
    let script = "rm notes.txt; mkdir notes.txt; mkfifo notes.txt/pipe; exit 5";
    assert_snapshot!(sandbox.run(&["run", "--rollback-on-fail", "--", "sh", "-c", script]), @r#"
    --- stderr
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "before sh -c rm notes.txt; mkdir notes.txt; mkfifo notes.txt/pipe;…"
    The command failed with status 5.
    error: cannot roll back after the command: 1 path blocks the rollback; the first is notes.txt/pipe: a socket, FIFO or device
    hint: Move what is in the way, or choose other paths with --path.
    hint: In the way: notes.txt/pipe: a socket, FIFO or device
    hint: The command failed with status 5. Try again with: safepoint rollback 01KG9YV2300QJS22HDXJ4G4Q61
    --- exit 12
    "#);
}

#[test]
fn the_command_runs_where_it_was_asked_for_with_the_limits_we_were_given() {
    let sandbox = Sandbox::with_checkpoint();
    assert_eq!(sandbox.output(&["-C", "src", "run", "-q", "--", "ls"]).stdout, b"main.rs\n");
    let script = "ulimit -Sn 200; exec \"$0\" run -q -- sh -c 'ulimit -Sn; grep SigIgn /proc/self/status'";
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' HUP; {script}"), env!("CARGO_BIN_EXE_safepoint")]);
    shell.current_dir(sandbox.path("project")).env("SAFEPOINT_HOME", sandbox.path("home"));
    let told = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    assert!(told.starts_with("200\n"), "{told}");
    let ignored = told.lines().last().unwrap().trim_start_matches("SigIgn:").trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "hang-ups were ignored before: {told}");
}

/// Starts a script under `run` and waits until it is ready.
fn started(sandbox: &Sandbox, flags: &[&str], script: &str) -> Child {
    let args = [&["run"], flags, &["--", "sh", "-c", script]].concat();
    let child = sandbox.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&sandbox.path("project/ready"));
    child
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(signal: &str, child: &Child) {
    Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
}

#[test]
fn what_is_sent_to_us_reaches_the_command_and_we_live_to_tell() {
    let sandbox = Sandbox::with_checkpoint();
    for (signal, status) in [("TERM", 143), ("HUP", 129)] {
        let child = started(
            &sandbox,
            &["--rollback-on-fail", "--json"],
            "touch ready; echo bad > notes.txt; exec sleep 60",
        );
        send(signal, &child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", sandbox.told(&output));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["data"]["rollback"]["verified"], true);
        assert_eq!(sandbox.read("notes.txt"), "good\n");
        assert!(!sandbox.path("project/ready").exists());
    }
}

#[test]
fn a_second_signal_does_not_stop_the_rollback() {
    let sandbox = Sandbox::with_checkpoint();
    for number in 0..400 {
        sandbox.write(&format!("many/{number}"), "x");
    }
    let child = started(
        &sandbox,
        &["--rollback-on-fail", "--json"],
        "trap 'exit 9' TERM; rm -r many; touch ready; while :; do sleep 0.01; done",
    );
    for _ in 0..40 {
        send("TERM", &child);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", sandbox.told(&output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["data"]["rollback"]["verified"], true);
    assert!(sandbox.path("project/many/399").exists());
}

#[test]
fn a_command_that_catches_a_signal_ends_as_it_likes() {
    let sandbox = Sandbox::with_checkpoint();
    let child =
        started(&sandbox, &[], "trap 'echo caught; exit 4' TERM; touch ready; while :; do sleep 0.05; done");
    // A terminal would send these to the whole group; `run` alone ignores them.
    send("INT", &child);
    send("QUIT", &child);
    send("TERM", &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), &b"caught\n"[..]));
}

#[test]
fn the_command_has_the_terminal() {
    let sandbox = Sandbox::with_checkpoint();
    let seen = sandbox.terminal(sandbox.command(&[
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "test -t 1 && test -t 2 && echo both",
    ]));
    assert_eq!(seen, "both\n");
    fs::set_permissions(sandbox.path("project/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(sandbox.output(&["run", "-q", "./run.sh"]).status.code(), Some(0));
}
