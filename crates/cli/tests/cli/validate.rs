//! `validate` without an id: the state of the current workspace, and its tests.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Project with a checkpoint, and a test command in the home's configuration.
fn with_tests(line: &str) -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    configure(&sandbox, line);
    sandbox
}

fn configure(sandbox: &Sandbox, line: &str) {
    fs::write(sandbox.path("home/config.toml"), format!("[checks]\ntest = '''{line}'''\n")).unwrap();
}

#[test]
fn validate_says_whether_the_tests_pass() {
    let sandbox = with_tests("cat src/main.rs");
    assert_snapshot!(sandbox.run(&["validate"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    Tests pass: `cat src/main.rs`, N ms
    Read every byte, too, with --deep.
    --- exit 0
    ");
    assert_eq!(sandbox.json(&["validate", "--json"])["data"]["tests_passing"], json!(true));
}

#[test]
fn failing_tests_are_a_warning_with_their_last_lines() {
    let sandbox = with_tests("seq 1 30; printf 'two\\twords\\033[31m\\n' >&2; exit 3");
    assert_snapshot!(sandbox.run(&["validate", "-q"]), @r#"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    Tests fail.
    --- stderr
    warning: the tests fail: `seq 1 30; printf 'two\twords\033[31m\n' >&2; exit 3` ended with status 3
        12
        13
        14
        15
        16
        17
        18
        19
        20
        21
        22
        23
        24
        25
        26
        27
        28
        29
        30
        two    words\u{1b}[31m
    --- exit 0
    "#);
    let output = sandbox.output(&["validate", "--json"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("    30\n    two    words"));
    assert_snapshot!(sandbox.json_text(&["validate", "--json"]), @r#"
    {
      "command": "validate",
      "data": {
        "checked": { "bytes": N,
          "checkpoints": 1,
          "objects": 10
        },
        "damaged": [],
        "errors": [],
        "git_status": null,
        "has_uncommitted_changes": null,
        "is_valid": true,
        "restorable": [
          "01KG9YS9EGCQT0DH2X3200JHAF"
        ],
        "tests_passing": false,
        "unfinished_bytes": 0,
        "warnings": [
          "the tests fail: `seq 1 30; printf 'two\\twords\\033[31m\\n' >&2; exit 3` ended with status 3"
        ]
      },
      "exit_code": 0,
      "messages": [
        {
          "code": null,
          "level": "warning",
          "text": "the tests fail: `seq 1 30; printf 'two\\twords\\033[31m\\n' >&2; exit 3` ended with status 3"
        }
      ],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:03:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn tests_run_at_the_root_of_the_workspace() {
    let sandbox = with_tests("test -f notes.txt");
    let output = sandbox.command(&["validate", "--json"]).current_dir(sandbox.path("project/src")).output();
    assert!(String::from_utf8_lossy(&output.unwrap().stdout).contains("\"tests_passing\":true"));
}

#[test]
fn tests_that_take_too_long_count_as_failed() {
    let sandbox = Sandbox::with_checkpoint();
    fs::write(sandbox.path("home/config.toml"), "[checks]\ntest = 'sleep 1000'\ntest_timeout = '1s'\n")
        .unwrap();
    assert_snapshot!(sandbox.run(&["validate", "-q"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    Tests fail.
    --- stderr
    warning: the tests fail: `sleep 1000` took longer than 1 second and was ended
    --- exit 0
    ");
}

#[test]
fn no_tests_are_run_for_one_checkpoint_or_outside_of_a_workspace() {
    let sandbox = with_tests("touch ran");
    assert_eq!(sandbox.json(&["validate", "first", "--json"])["data"]["tests_passing"], json!(null));
    let output = sandbox.command(&["validate", "--json"]).current_dir(sandbox.path("user")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"tests_passing\":null"));
    assert!(!sandbox.path("project/ran").exists() && !sandbox.path("user/ran").exists());
}

#[test]
fn a_workspace_cannot_name_a_test_command() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepoint.toml", "[checks]\ntest = 'touch ran'\n");
    assert_snapshot!(sandbox.run(&["validate"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Not ready: a checkpoint of project would be refused:
        `checks` in .safepoint.toml line 1 is refused: commands and limits are taken from config.toml in Safepoint's home alone, because whatever works in the workspace can write this file
        hint: Take it out of there; if you want it, put it into config.toml in Safepoint's home.
    Tests: not known, because no test command is configured.
    Read every byte, too, with --deep.
    --- exit 1
    ");
    assert!(!sandbox.path("project/ran").exists());
    // The user's command still runs: that file cannot change it.
    configure(&sandbox, "touch mine");
    let answer = sandbox.json(&["validate", "--json"]);
    assert_eq!(
        (&answer["data"]["is_valid"], &answer["data"]["tests_passing"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        (&answer["error"]["code"], &answer["data"]["damaged"]),
        (&json!("bad_configuration"), &json!([]))
    );
    assert!(sandbox.path("project/mine").exists() && !sandbox.path("project/ran").exists());
}

#[test]
fn what_a_checkpoint_would_lack_is_a_warning() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepointignore", "[z-a]\n");
    sandbox.write(".safepoint.toml", "[retention]\nkeep_last = 3\n");
    assert_snapshot!(sandbox.run(&["validate", "-q"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 8 files and folders, 82 B.
    --- stderr
    warning: retention.keep_last = 3 in .safepoint.toml would keep less than your own configuration: 100 holds
    warning: ./.safepointignore: error parsing glob '[z-a]': invalid range; 'z' > 'a'
    --- exit 0
    ");
    let data = sandbox.json(&["validate", "--json"])["data"].clone();
    assert_eq!((&data["is_valid"], data["warnings"].as_array().unwrap().len()), (&json!(true), 2));
}

#[test]
fn what_would_refuse_a_checkpoint_is_an_error() {
    let sandbox = with_tests("true");
    fs::write(sandbox.path("home/config.toml"), "[check]\ntest = 'true'\n").unwrap();
    assert_snapshot!(sandbox.run(&["validate"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Not ready: a checkpoint of project would be refused:
        unknown key `check` in config.toml line 1: did you mean `checks`?
        hint: Fix the line that the message names, and try again.
    Tests: not run.
    Read every byte, too, with --deep.
    --- exit 1
    ");
    fs::remove_file(sandbox.path("home/config.toml")).unwrap();
    configure(&sandbox, "touch ran");
    let project = sandbox.path("project");
    fs::remove_dir_all(&project).unwrap();
    let gone = |more: &[&str]| {
        let args = [&["-C", project.to_str().unwrap(), "validate"], more].concat();
        let output = sandbox.command(&args).current_dir(sandbox.path("user")).output().unwrap();
        sandbox.told(&output)
    };
    assert_snapshot!(gone(&[]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Not ready: a checkpoint of project would be refused:
        cannot open the workspace $T/project: No such file or directory (os error 2)
        hint: Is the folder still there, and may you read it?
        hint: If it was moved, go there and run: safepoint workspace move $T/project .
        hint: If it was deleted, its checkpoints are safe in $T/home: mkdir -p $T/project && safepoint -C $T/project rollback @
    Tests: not run.
    Read every byte, too, with --deep.
    --- exit 10
    ");
    let answer = gone(&["--json"]);
    for part in ["\"is_valid\":false", "\"tests_passing\":null", "\"code\":\"workspace_gone\""] {
        assert!(answer.contains(part), "{answer}");
    }
}

#[test]
fn a_busy_workspace_is_not_an_error_of_its_state() {
    let sandbox = with_tests("true");
    let folder = fs::File::open(sandbox.path("project")).unwrap();
    folder.lock().unwrap();
    let output = sandbox.command(&["validate"]).env("SAFEPOINT_TEST_LOCK_WAIT_MS", "50").output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Tests pass: `true`, N ms
    Read every byte, too, with --deep.
    --- stderr
    warning: not looked at: another Safepoint process is using $T/project
    --- exit 0
    ");
}

#[test]
fn a_wish_to_stop_ends_the_tests_too() {
    for signal in ["INT", "TERM", "HUP"] {
        let sandbox = with_tests("echo $$ > pid; mkfifo pipe; echo go > pipe; sleep 1000");
        let mut child =
            sandbox.command(&["validate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pipe = sandbox.path("project/pipe");
        while !pipe.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut line = String::new();
        BufReader::new(fs::File::open(pipe).unwrap()).read_line(&mut line).unwrap();
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        let pid = sandbox.read("pid");
        assert!(!fs::exists(format!("/proc/{}", pid.trim())).unwrap(), "the tests still run");
    }
}

#[test]
fn the_tail_that_a_killed_writer_left_is_unfinished_and_not_damage() {
    let sandbox = Sandbox::with_checkpoint();
    let packs: Vec<_> =
        fs::read_dir(sandbox.path("home/store/packs")).unwrap().map(|pack| pack.unwrap().path()).collect();
    let mut bytes = fs::read(&packs[0]).unwrap();
    let whole = bytes.len();
    bytes.extend_from_within(16..whole - 1);
    fs::write(&packs[0], &bytes).unwrap();
    let answer = sandbox.json(&["validate", "--deep", "--json"]);
    assert_eq!((&answer["exit_code"], &answer["data"]["is_valid"]), (&json!(0), &json!(true)));
    assert_eq!(answer["data"]["unfinished_bytes"], json!(whole - 17));
    let said = sandbox.run(&["validate"]);
    assert!(said.contains("Unfinished: ") && said.contains("--- exit 0"), "{said}");
    sandbox.write("more", "content");
    sandbox.run(&["create", "-m", "next"]);
    assert_eq!(sandbox.json(&["validate", "--json"])["data"]["unfinished_bytes"], json!(0));
}

#[test]
fn an_unregistered_folder_is_not_called_valid() {
    let sandbox = Sandbox::with_checkpoint();
    let answer = sandbox.json(&["-C", "..", "validate", "--json"]);
    assert_eq!(
        (&answer["data"]["is_valid"], answer["exit_code"].as_i64()),
        (&serde_json::json!(false), Some(10))
    );
    assert_eq!(answer["error"]["code"], "no_workspace");
    let told = sandbox.run(&["-C", "..", "validate"]);
    assert!(!told.contains("Valid:") && told.contains("Store: everything is there"), "{told}");
}

#[test]
fn the_tests_run_before_a_checkpoint_where_that_is_configured() {
    let sandbox = Sandbox::with_checkpoint();
    let create = |test: &str| {
        let config = format!("[checks]\ntest = '{test}'\nbefore_create = true\n");
        std::fs::write(sandbox.path("home/config.toml"), config).unwrap();
        sandbox.write("notes.txt", test);
        sandbox.json(&["create", "--json"])
    };
    let good = create("true");
    let progress = |answer: &serde_json::Value| answer["data"]["checkpoint"]["progress"].clone();
    assert_eq!(
        (&good["data"]["tests_passing"], &progress(&good)["tests_passing"]),
        (&serde_json::json!(true), &serde_json::json!(1))
    );
    let bad = create("exit 3");
    assert_eq!(
        (&bad["exit_code"], &bad["data"]["tests_passing"]),
        (&serde_json::json!(0), &serde_json::json!(false))
    );
    let kept = sandbox.json(&["show", "@", "--json"])["data"]["checkpoint"].clone();
    assert_eq!(kept["progress"]["tests_failing"], 1);
    assert!(
        kept["warnings"].to_string().contains("the tests fail: `exit 3` ended with status 3"),
        "{kept:#}"
    );
}

#[test]
fn the_tests_run_before_a_checkpoint_of_a_plan_too_and_a_missing_command_is_a_warning() {
    let sandbox = crate::plan_run::planned("[[step]]\nid = 'one'\nrun = 'true'\n");
    let configure = |text: &str| std::fs::write(sandbox.path("home/config.toml"), text).unwrap();
    configure("[checks]\ntest = 'exit 3'\nbefore_create = true\n");
    for args in
        [&["create", "--scope", "workflow", "--plan", "work"][..], &["plan", "checkpoint", "create", "work"]]
    {
        let data = sandbox.json(&[args, &["--json"]].concat())["data"].clone();
        assert_eq!(data["tests_passing"], serde_json::json!(false), "{args:?}: {data:#}");
        let kept = &data["checkpoint"];
        assert_eq!(kept["progress"]["tests_failing"], 1, "{args:?}");
        assert!(kept["warnings"].to_string().contains("ended with status 3"), "{args:?}: {kept:#}");
    }
    configure("[checks]\nbefore_create = true\n");
    for args in [&["create", "-m", "x"][..], &["plan", "checkpoint", "create", "work"]] {
        let told = sandbox.run(args);
        assert!(told.contains("the tests were not run: before_create needs a command"), "{told}");
        assert!(told.contains("$T/home/config.toml") && told.ends_with("--- exit 0\n"), "{told}");
    }
}
