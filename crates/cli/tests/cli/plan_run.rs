//! `plan run` and `plan resume`: steps as commands, stopped and resumed.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Project with a plan of these steps.
pub(crate) fn planned(steps: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", "good\n");
    sandbox.write("plan.toml", format!("title = 'Some work'\nid = 'work'\n{steps}"));
    assert_eq!(sandbox.output(&["plan", "new", "plan.toml"]).status.code(), Some(0));
    sandbox
}

/// Data of a successful command.
pub(crate) fn data(sandbox: &Sandbox, args: &[&str]) -> Value {
    let answer = sandbox.json(&[args, &["--json"]].concat());
    assert_eq!(answer["status"], "ok", "{answer:#}");
    answer["data"].clone()
}

pub(crate) fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a command and waits until its step creates this file.
pub(crate) fn begun(sandbox: &Sandbox, args: &[&str], sign: &str) -> Child {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let mut command = sandbox.command(args);
    // A run's leftovers are found by its id, which must be unique among concurrent tests.
    let (tests, begun) = (u64::from(std::process::id()), BEGUN.fetch_add(1, Ordering::Relaxed));
    command.env("SAFEPOINT_TEST_SEED", (tests << 32 | u64::from(begun)).to_string());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&sandbox.path("project").join(sign));
    child
}

pub(crate) fn send(signal: &str, id: u32) {
    assert!(Command::new("kill").args(["-s", signal, &id.to_string()]).status().unwrap().success());
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns true if a process with this id runs.
fn lives(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", id.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

const SUBPLAN: &str = "
    [[step]]
    id = 'one'
    title = 'The first'
    run = 'echo out; echo err >&2; echo 1 > one'
    verify = 'echo looks good; test -e one'
    [[step]]
    id = 'sub'
    [[step.step]]
    id = 'two'
    run = 'printf \"no end of line\"; echo 2 > two'
";

#[test]
fn a_run_is_told_line_by_line() {
    let sandbox = planned(SUBPLAN);
    assert_snapshot!(sandbox.run(&["plan", "run", "work"]), @r#"
        checkpoint 01KG9YV41GXHKZH4X2XVXK4NAY "before one"
    [>] one  The first
        out
        err
    [>] one  verify  The first
        looks good
    [x] one  done in N ms
        checkpoint 01KG9YVBVGS45Q3ETMV38G3DDS "before sub/two"
    [>] sub/two
        no end of line
    [x] sub/two  done in N ms
    [x] sub  done in N ms
        checkpoint 01KG9YVKNG0A0E16FCDKBKCF55 "after subplan sub"
    Plan work "Some work" is done, 2 of 2 steps done
    Take its result over with: safepoint plan apply work
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "run", "work"]), @r#"
    --- stderr
    error: cannot run plan "work": plan work is done
    Nothing was changed.
    hint: It has begun: safepoint plan resume work
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "resume", "work"]), @r#"
    Plan work "Some work" is done, 2 of 2 steps done
    Take its result over with: safepoint plan apply work
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "log", "work", "one"]), @"
    out
    err
    looks good
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "log", "work", "sub"]), @"
    --- stderr
    Step sub printed nothing, or was not run by Safepoint.
    --- exit 0
    ");
    let printed = data(&sandbox, &["plan", "log", "work", "sub/two"]);
    assert_eq!(printed, json!({ "log": null, "step": "sub/two", "printed": "no end of line" }));
    assert_eq!(sandbox.json(&["plan", "log", "work", "nine", "--json"])["error"]["code"], "no_step");
    assert_snapshot!(sandbox.run(&["plan", "apply", "work"]), @"
    Applied plan work: its result stays, and it is not rolled back any more.
    --- exit 0
    ");
    assert_eq!(data(&sandbox, &["plan", "show", "work"])["plan"]["sandbox"]["state"], "applied");
}

#[test]
fn programs_get_the_answer_alone_and_the_quiet_get_nothing() {
    let sandbox = planned(SUBPLAN);
    let output = sandbox.output(&["plan", "run", "work", "--json"]);
    let value = json_of(&output);
    assert_eq!((&value["status"], output.status.code()), (&json!("ok"), Some(0)));
    let run = &value["data"]["run"];
    assert_eq!(run["checkpoints"].as_array().unwrap().len(), 3);
    let mut told = run.clone();
    told["checkpoints"] = json!([]);
    assert_eq!(
        told,
        json!({
            "outcome": "done", "step": null, "error": null, "done": ["one", "sub/two"], "checkpoints": [],
            "interrupted": [], "ended_processes": 0, "warnings": [],
        })
    );
    assert_eq!(value["data"]["plan"]["state"], "done");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "out\nerr\nlooks good\nno end of line");
    let sandbox = planned(SUBPLAN);
    assert_eq!(sandbox.run(&["plan", "run", "work", "-q"]), "--- exit 0\n");
}

#[test]
fn what_a_step_prints_stays_as_it_is_where_nobody_looks() {
    let sandbox = planned("[[step]]\nid = 'a'\nrun = 'printf \"\\033[2J\\377\\r\\n\"'");
    let output = sandbox.output(&["plan", "run", "work"]);
    let wanted = b"    \x1b[2J\xff\r\n";
    let seen = output.stdout.windows(wanted.len()).any(|bytes| bytes == wanted);
    assert!(seen, "{:?}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(sandbox.output(&["plan", "log", "work", "a"]).stdout, b"\x1b[2J\xff\r\n");
    let printed = data(&sandbox, &["plan", "log", "work", "a"])["printed"].clone();
    assert_eq!(printed, json!({ "bytes": "G1sySv8NCg==" }));
}

#[test]
fn steps_side_by_side_say_who_speaks() {
    let meet = |own: &str, other: &str| {
        format!("touch {own}; while [ ! -e {other} ]; do sleep 0.01; done; echo I am {own}; sleep 0.2")
    };
    let sandbox = planned(&format!(
        "[[step]]\nid = 'both'\nparallel = 2
         [[step.step]]\nid = 'a'\nrun = '{}'
         [[step.step]]\nid = 'b'\nrun = '{}'",
        meet("a", "b"),
        meet("b", "a")
    ));
    let told = sandbox.run(&["plan", "run", "work"]);
    assert!(told.contains("    both/a: I am a\n") && told.contains("    both/b: I am b\n"), "{told}");
    assert!(told.contains("[x] both  done in "), "{told}");
}

#[test]
fn a_failure_says_which_step_and_the_ways_on() {
    let steps = "[[step]]\nid = 'one'\nrun = 'true'
        [[step]]\nid = 'two'\nrun = 'echo it broke; test -e good'\nretries = 1
        [[step]]\nid = 'three'\nrun = 'echo three > three'";
    let sandbox = planned(steps);
    assert_snapshot!(sandbox.run(&["plan", "run", "work"]), @r#"
        checkpoint 01KG9YV41GXHKZH4X2XVXK4NAY "before one"
    [>] one
    [x] one  done in N ms
        checkpoint 01KG9YVBVGS45Q3ETMV38G3DDS "before two"
    [>] two
        it broke
    [!] two  attempt 1 failed: exit status 1: it broke
    [>] two
        it broke
    [!] two  failed after N ms: exit status 1: it broke
        checkpoint 01KG9YVNM00A0E16FCDKBKCF55 "two failed"
    Plan work "Some work" is failed, 1 of 3 steps done
    --- stderr
    error: cannot finish plan "work": step two failed: exit status 1: it broke
    hint: Fix what is wrong in $T/project and resume: safepoint plan resume work
    hint: Or roll back to before the first error: safepoint plan correct work --mode revert
    hint: Or to any checkpoint: safepoint plan rollback work
    --- exit 1
    "#);
    let output = sandbox.output(&["plan", "resume", "work", "--json"]);
    let value = json_of(&output);
    assert_eq!((&value["status"], output.status.code()), (&json!("error"), Some(1)));
    assert_eq!((&value["error"]["code"], &value["error"]["kind"]), (&json!("step_failed"), &json!("failed")));
    assert_eq!(value["error"]["message"], "step two failed: exit status 1: it broke");
    let hints = value["error"]["hints"].to_string();
    for way in ["plan resume work", "plan correct work --mode revert", "plan rollback work"] {
        assert!(hints.contains(way), "{hints}");
    }
    let run = &value["data"]["run"];
    assert_eq!((&run["outcome"], &run["step"]), (&json!("failed"), &json!("two")));
    assert_eq!(run["error"], "exit status 1: it broke");
    assert_eq!(value["data"]["plan"]["steps"][1]["state"], "failed");
    assert_snapshot!(sandbox.run(&["plan", "log", "work"]), @r#"
    2026-01-31 12:01:01Z  run by process PID
    2026-01-31 12:01:03Z  checkpoint 01KG9YV41GXHKZH4X2XVXK4NAY "before one"
    2026-01-31 12:01:11Z  checkpoint 01KG9YVBVGS45Q3ETMV38G3DDS "before two"
    2026-01-31 12:01:16Z  attempt 1 of step two failed: exit status 1: it broke
    2026-01-31 12:01:19Z  step two failed: exit status 1: it broke
    2026-01-31 12:01:21Z  checkpoint 01KG9YVNM00A0E16FCDKBKCF55 "two failed"
    2026-01-31 12:01:23Z  the run ended: failed
    2026-01-31 12:02:01Z  run by process PID
    2026-01-31 12:02:03Z  checkpoint 01KG9YWYMG3S19GYXWQZEQWMSF "before two"
    2026-01-31 12:02:08Z  attempt 1 of step two failed: exit status 1: it broke
    2026-01-31 12:02:11Z  step two failed: exit status 1: it broke
    2026-01-31 12:02:13Z  checkpoint 01KG9YX8D0YSJ4ZH26PMZHFYS9 "two failed"
    2026-01-31 12:02:15Z  the run ended: failed
    --- exit 0
    "#);
    sandbox.write("good", "");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["run"]["done"], json!(["two", "three"]));
}

#[test]
fn a_run_goes_so_far_and_waits_for_whom_it_needs() {
    let sandbox = planned(
        "[[step]]\nid = 'one'\nrun = 'true'\n[[step]]\nid = 'think'\n[[step]]\nid = 'last'\nrun = 'true'",
    );
    assert_snapshot!(sandbox.run(&["plan", "run", "work", "--until", "nine"]), @r#"
    --- stderr
    error: cannot run plan "work": the plan has no step "nine"
    Nothing was changed.
    hint: `safepoint plan show work` shows its steps.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "run", "work", "--until", "one"]), @r#"
        checkpoint 01KG9YWYMG3S19GYXWQZEQWMSF "before one"
    [>] one
    [x] one  done in N ms
    Plan work "Some work" is paused, 1 of 3 steps done
    It goes on with step think: safepoint plan resume work
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "resume", "work"]), @r#"
    Plan work "Some work" is paused, 1 of 3 steps done
    It waits for step think: say `safepoint plan step start work think`, do it, say `safepoint plan step finish work think`, then `safepoint plan resume work`.
    --- exit 0
    "#);
    sandbox.run(&["plan", "step", "start", "work", "think"]);
    let waits = data(&sandbox, &["plan", "resume", "work"]);
    assert_eq!((&waits["run"]["outcome"], &waits["run"]["step"]), (&json!("waiting"), &json!("think")));
    sandbox.run(&["plan", "step", "finish", "work", "think"]);
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["run"]["outcome"], "done");
}

#[test]
fn steps_know_what_they_are_part_of_and_record_it() {
    let session = "01890a5d-ac96-774b-bcce-b302099a8057";
    let decide = "env -u SAFEPOINT_TEST_NOW $BIN plan decide $SAFEPOINT_PLAN_ID --step $SAFEPOINT_STEP_ID --question Which --choice this";
    let sandbox =
        planned(&format!("[[step]]\nid = 'one'\nrun = 'echo $SAFEPOINT_SESSION_ID; ulimit -Sn; {decide}'"));
    let script = format!("ulimit -Sn 200; exec {} plan run work", env!("CARGO_BIN_EXE_safepoint"));
    let mut run = sandbox.command(&["--version"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(sandbox.path("project")).env_clear();
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", "/usr/bin:/bin").env("BIN", env!("CARGO_BIN_EXE_safepoint"));
    shell.env("SAFEPOINT_SESSION_ID", session);
    let told = sandbox.told(&shell.output().unwrap());
    assert!(told.contains(&format!("    {session}\n    200\n    Decision ")), "{told}");
    run.output().unwrap();
    let plan = data(&sandbox, &["plan", "show", "work"])["plan"].clone();
    assert_eq!((&plan["decisions"][0]["step"], &plan["state"]), (&json!("one"), &json!("done")));
    let taken = data(&sandbox, &["list", "--session-id", session]);
    assert_eq!(taken["checkpoints"][0]["label"], "before one");
}

#[test]
fn a_session_that_is_none_is_refused_only_where_it_is_written_down() {
    let sandbox = planned("[[step]]\nid = 'one'\nrun = 'true'");
    for (args, code) in [
        (&["plan", "checkpoint", "create", "work"][..], 2),
        (&["create"], 2),
        (&["plan", "show", "work"], 0),
        (&["plan", "run", "work"], 0),
    ] {
        let output = sandbox.command(args).env("SAFEPOINT_SESSION_ID", "nonsense").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", sandbox.told(&output));
    }
}

const SLEEPER: &str = "[[step]]
    id = 'long'
    run = 'echo $$ > pid; echo begun; touch begun; sleep 60 & wait'
    [[step]]
    id = 'next'
    run = 'echo next > next'";

#[test]
fn who_stops_a_run_gets_a_checkpoint_and_nothing_is_left_behind() {
    for signal in ["TERM", "INT", "HUP"] {
        let sandbox = planned(SLEEPER);
        let child = begun(&sandbox, &["plan", "run", "work", "--json"], "begun");
        send(signal, child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}: {}", sandbox.told(&output));
        let value = json_of(&output);
        assert_eq!((&value["status"], &value["error"]["code"]), (&json!("error"), &json!("interrupted")));
        let run = &value["data"]["run"];
        assert_eq!(
            (&run["outcome"], &run["step"]),
            (&json!("interrupted"), &json!("long")),
            "{signal}: {value}"
        );
        assert_eq!(run["interrupted"], json!(["long"]));
        assert_eq!(value["data"]["plan"]["state"], "paused");
        let newest = data(&sandbox, &["plan", "checkpoint", "list", "work"])["checkpoints"][0].clone();
        assert_eq!((&newest["kind"], &newest["label"]), (&json!("emergency"), &json!("stopped during long")));
        assert!(!lives(&sandbox.read("pid")), "the step ended with its run");
        assert!(!sandbox.path("project/next").exists());
    }
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_a_step_that_will_not_end() {
    let stubborn = "[[step]]\nid = 'long'
        run = 'trap : INT TERM; while :; do echo x >> beats; touch begun; sleep 0.05; done'";
    let sandbox = planned(stubborn);
    let child = begun(&sandbox, &["plan", "run", "work"], "begun");
    let beats = || sandbox.read("beats").lines().count();
    send("INT", child.id());
    let before = beats();
    std::thread::sleep(Duration::from_millis(300));
    send("INT", child.id());
    let told = sandbox.told(&child.wait_with_output().unwrap());
    // A process has two seconds to end after the request.
    assert!(beats() - before < 30, "the stop was delayed: {told}");
    assert!(told.contains("[?] long  stopped after ") && told.ends_with("--- exit 130\n"), "{told}");
    assert!(told.contains("checkpoint ") && told.contains("\"stopped during long\""), "{told}");
    assert!(told.contains("plan resume work --interrupted rerun|done|fail"), "{told}");
}

#[test]
fn a_run_that_was_killed_leaves_nothing_running_and_nobody_guesses() {
    let sandbox = planned(SLEEPER);
    let mut child = begun(&sandbox, &["plan", "run", "work"], "begun");
    let pid = sandbox.read("pid");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lives(&pid), "its step still runs");
    let output = sandbox.output(&["plan", "resume", "work", "--json"]);
    assert!(!lives(&pid), "the step was ended");
    let value = json_of(&output);
    assert_eq!(output.status.code(), Some(12));
    assert_eq!((&value["error"]["code"], &value["data"]), (&json!("step_interrupted"), &Value::Null));
    let message = value["messages"][0]["text"].as_str().unwrap();
    assert!(message.starts_with("The process that ran the plan died during step long; "), "{message}");
    assert!(message.contains("left behind"), "{message}");
    assert_snapshot!(sandbox.run(&["plan", "resume", "work"]), @r#"
    --- stderr
    error: cannot go on with plan "work": step long was interrupted; its progress is unknown
    Nothing was changed.
    hint: `verify`, `idempotent` or `on_interrupted` in the plan file answers beforehand.
    hint: Run it again: safepoint plan resume work --interrupted rerun
    hint: Or count it as done: safepoint plan resume work --interrupted done
    hint: Or count it as failed: safepoint plan resume work --interrupted fail
    --- exit 12
    "#);
    fs::remove_file(sandbox.path("project/begun")).unwrap();
    let child = begun(&sandbox, &["plan", "resume", "work", "--interrupted", "rerun"], "begun");
    send("TERM", child.id());
    child.wait_with_output().unwrap();
    let went = data(&sandbox, &["plan", "resume", "work", "--interrupted", "done"]);
    assert_eq!(went["run"]["done"], json!(["long", "next"]));
    let log = sandbox.run(&["plan", "log", "work"]);
    for line in ["that run had died", "the run ended: interrupted", "the run ended: done"] {
        assert!(log.contains(line), "{log}");
    }
}

#[test]
fn without_a_terminal_the_check_of_an_interrupted_step_decides() {
    let killed = |more: &str| {
        let sandbox = planned(&format!(
            "[[step]]\nid = 'long'\nrun = 'echo run >> runs; touch begun; [ $(wc -l < runs) = 2 ] || sleep 60'\n{more}"
        ));
        let mut child = begun(&sandbox, &["plan", "run", "work"], "begun");
        child.kill().unwrap();
        child.wait().unwrap();
        sandbox
    };
    let sandbox = killed("verify = 'true'");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("runs"), "run\n", "a check that passes counts it as done");
    let sandbox = killed("verify = 'true'");
    let told = sandbox.run(&["plan", "show", "work"]);
    assert!(told.contains("its process died; go on with: safepoint plan resume work"), "{told}");
    let told = sandbox.run(&["plan", "resume", "work"]);
    assert!(told.contains("[x] long  done") && !told.contains("stopped after"), "{told}");
    let sandbox = killed("verify = '[ $(wc -l < runs) = 2 ]'");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("runs"), "run\nrun\n", "a check that fails runs it again");
    let sandbox = killed("idempotent = true");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["plan"]["state"], "done");
    assert_eq!(sandbox.read("runs"), "run\nrun\n");
}

#[test]
fn what_the_dead_run_left_is_told_with_a_resume_that_goes_on() {
    let sandbox = planned(SLEEPER);
    let mut child = begun(&sandbox, &["plan", "run", "work"], "begun");
    child.kill().unwrap();
    child.wait().unwrap();
    let failed = sandbox.json(&["plan", "resume", "work", "--interrupted", "fail", "--json"]);
    assert_eq!((&failed["exit_code"], &failed["error"]["code"]), (&json!(1), &json!("step_failed")));
    let run = &failed["data"]["run"];
    assert_eq!((&run["step"], &run["interrupted"]), (&json!("long"), &json!(["long"])));
    assert!(run["ended_processes"].as_u64().unwrap() >= 1, "{run}");
    assert_eq!(run["error"], "it was interrupted");
}

#[test]
fn on_a_terminal_it_asks_what_becomes_of_an_interrupted_step() {
    let sandbox = planned(SLEEPER);
    let child = begun(&sandbox, &["plan", "run", "work"], "begun");
    send("TERM", child.id());
    child.wait_with_output().unwrap();
    let resume = || sandbox.command(&["plan", "resume", "work", "--no-progress"]);
    assert_snapshot!(sandbox.typed(resume(), "\n"), @r#"

    Step long was interrupted; its progress is unknown. Run it again (r), count it
        as done (d), count it as failed (f), or leave it (Enter)? error: cannot go on with plan "work": step long was interrupted; its progress is
        unknown
    Nothing was changed.
    hint: `verify`, `idempotent` or `on_interrupted` in the plan file answers
        beforehand.
    hint: Run it again: safepoint plan resume work --interrupted rerun
    hint: Or count it as done: safepoint plan resume work --interrupted done
    hint: Or count it as failed: safepoint plan resume work --interrupted fail
    "#);
    assert_snapshot!(sandbox.typed(resume(), "d\n"), @r#"
    d
    Step long was interrupted; its progress is unknown. Run it again (r), count it
        as done (d), count it as failed (f), or leave it (Enter)? [x] long  done
        checkpoint 01KG9YYV60N64SSTZ8MV851Q81 "before next"
    [>] next
    [x] next  done in N ms
    Plan work "Some work" is done, 2 of 2 steps done
    Take its result over with: safepoint plan apply work
    "#);
}

#[test]
fn one_plan_has_one_runner_and_nobody_changes_it_meanwhile() {
    let steps = "[[step]]\nid = 'long'\nrun = 'touch begun; while [ ! -e go ]; do sleep 0.02; done'
        [[step]]\nid = 'next'\nrun = 'touch next'";
    let sandbox = planned(steps);
    sandbox.run(&["plan", "checkpoint", "create", "work", "-m", "first"]);
    let runner = begun(&sandbox, &["plan", "run", "work"], "begun");
    let impatient = |args: &[&str]| {
        let output = sandbox.command(args).env("SAFEPOINT_TEST_LOCK_WAIT_MS", "100").output().unwrap();
        sandbox.told(&output)
    };
    assert_snapshot!(impatient(&["plan", "run", "work"]), @r#"
    --- stderr
    error: cannot run plan "work": plan work is being run by process PID
    Nothing was changed.
    hint: Wait until it has ended, or end it with Ctrl-C or `safepoint plan pause work`.
    --- exit 11
    "#);
    assert_snapshot!(impatient(&["plan", "rollback", "work", "first"]), @r#"
    --- stderr
    error: cannot roll plan "work" back to checkpoint "first": plan work is being run by process PID
    Nothing was changed.
    hint: End the run first: Ctrl-C where it runs, or `safepoint plan pause work` and wait for its step.
    --- exit 12
    "#);
    for args in [
        &["plan", "correct", "work", "--mode", "revert"][..],
        &["plan", "apply", "work"],
        &["plan", "step", "finish", "work", "long"],
    ] {
        let told = impatient(args);
        assert!(told.ends_with("--- exit 12\n"), "{told}");
    }
    assert_snapshot!(impatient(&["plan", "pause", "work"]), @"
    Paused plan work: its run stops once the step that is under way has ended.
    --- exit 0
    ");
    std::thread::sleep(Duration::from_millis(700));
    sandbox.write("go", "");
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", sandbox.told(&output));
    assert!(!sandbox.path("project/next").exists());
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["run"]["done"], json!(["next"]));
}

#[test]
fn a_plan_that_is_cancelled_under_its_runner_ends() {
    let sandbox = planned("[[step]]\nid = 'long'\nrun = 'touch begun; sleep 60'");
    let runner = begun(&sandbox, &["plan", "run", "work", "--json"], "begun");
    assert_snapshot!(sandbox.run(&["plan", "cancel", "work"]), @"
    Cancelled plan work: its run ends now. A rollback to one of its checkpoints brings it back.
    --- exit 0
    ");
    let output = runner.wait_with_output().unwrap();
    let value = json_of(&output);
    assert_eq!((output.status.code(), &value["error"]["code"]), (Some(1), &json!("cancelled")));
    assert_eq!(value["data"]["run"]["outcome"], "cancelled");
}

#[test]
fn a_run_that_cannot_go_on_says_that_what_is_done_stays() {
    let sandbox = planned(
        "[[step]]\nid = 'a'\nrun = 'echo nonsense > .safepoint.toml'\n[[step]]\nid = 'b'\nrun = 'true'",
    );
    let told = sandbox.run(&["plan", "run", "work"]);
    assert!(!told.contains("Nothing was changed"), "{told}");
    assert!(told.contains("What is done stays done. Go on with: safepoint plan resume work"), "{told}");
    fs::remove_file(sandbox.path("project/.safepoint.toml")).unwrap();
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["run"]["done"], json!(["b"]));
}

#[test]
fn a_step_may_roll_its_files_back_and_the_plan_goes_on_and_knows() {
    let program = env!("CARGO_BIN_EXE_safepoint");
    let sandbox = planned(&format!(
        "[[step]]
         id = 'risky'
         run = '{program} run --rollback-on-fail -- sh -c \"echo junk > junk; echo bad > notes.txt; false\" || true'
         [[step]]
         id = 'more'
         run = 'grep -q good notes.txt && test ! -e junk && echo made > made'"
    ));
    let report = data(&sandbox, &["plan", "run", "work"]);
    assert_eq!(report["plan"]["state"], "done", "{report:#}");
    assert_eq!((sandbox.read("made").as_str(), sandbox.read("notes.txt").as_str()), ("made\n", "good\n"));
    let log = sandbox.run(&["plan", "log", "work"]);
    assert!(log.contains("a step rolled the files back to checkpoint"), "{log}");
    // The plan itself did it, so nothing is reported.
    let shown = sandbox.run(&["plan", "show", "work"]);
    assert!(!shown.contains("were rolled back"), "{shown}");
}

#[test]
fn a_step_that_asks_for_a_plan_is_refused_and_no_file_changes() {
    let program = env!("CARGO_BIN_EXE_safepoint");
    let asked = [
        "rollback mark --part plan",
        "rollback mark --part files --part plan",
        "rollback mark --part plan --dry-run",
        "plan rollback other of-other",
    ];
    let ask = |(at, words): (usize, &&str)| {
        format!("SAFEPOINT_TEST_SEED=9{at} {program} {words} 2>> ../told; echo $? >> ../codes; ")
    };
    let asked: String = asked.iter().enumerate().map(ask).collect();
    let sandbox =
        planned(&format!("[[step]]\nid = 'one'\nrun = 'echo new > new; {asked} test -e new && touch ran'"));
    sandbox.write("other.toml", "title = 'Other'\nid = 'other'\n[[step]]\nid = 'a'");
    data(&sandbox, &["plan", "new", "other.toml"]);
    data(&sandbox, &["plan", "checkpoint", "create", "other", "-m", "of-other"]);
    data(&sandbox, &["create", "-m", "mark"]);
    let report = data(&sandbox, &["plan", "run", "work"]);
    let told = fs::read_to_string(sandbox.path("told")).unwrap();
    assert_eq!(report["plan"]["state"], "done", "{told}");
    assert_eq!(fs::read_to_string(sandbox.path("codes")).unwrap(), "12\n".repeat(4), "{told}");
    assert_eq!(told.matches("plan work is being run by process").count(), 4, "{told}");
    let log = sandbox.run(&["plan", "log", "work"]);
    assert!(!log.contains("rolled the files back"), "{log}");
}

#[test]
fn files_that_went_back_without_their_plan_are_told_before_anything_is_done_with_it() {
    let sandbox = planned("[[step]]\nid = 'one'\nrun = 'echo made > made'");
    let before = data(&sandbox, &["create"])["checkpoint"]["id"].as_str().unwrap().to_owned();
    data(&sandbox, &["plan", "run", "work"]);
    let answer = data(&sandbox, &["rollback", &before, "--part", "files"]);
    assert_eq!(answer["rollback"]["plans_left"], json!(["work"]));
    let said = "the files of plan work were rolled back to";
    for args in [&["plan", "show", "work"][..], &["plan", "apply", "work"]] {
        assert!(sandbox.run(args).contains(said), "{args:?}");
    }
}
