//! Names that people guess: of commands, and of checkpoints.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;
use std::process::Command;

fn ids(value: &Value) -> Vec<String> {
    let all = value["data"]["checkpoints"].as_array().unwrap();
    all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn commands_answer_to_the_names_that_people_guess() {
    let sandbox = Sandbox::with_checkpoint();
    for (words, command) in [
        (&["save", "-m", "second"][..], "create"),
        (&["log"], "list"),
        (&["ls"], "list"),
        (&["restore", "@"], "rollback"),
        (&["rewind", "@"], "rollback"),
        (&["rm", "second", "--yes"], "delete"),
        (&["checkpoint", "create", "-m", "third"], "create"),
        (&["checkpoint", "list"], "list"),
        (&["checkpoint", "show", "third"], "show"),
        (&["checkpoint", "delete", "third", "--yes"], "delete"),
    ] {
        let value = sandbox.json(&[words, &["--json"]].concat());
        assert_eq!((&value["command"], &value["status"]), (&command.into(), &"ok".into()), "{value}");
    }
    assert!(sandbox.run(&["--help"]).contains("[alias: save]"), "{}", sandbox.run(&["--help"]));
}

#[test]
fn a_label_may_be_the_argument_and_may_begin_with_a_hyphen() {
    let sandbox = Sandbox::with_checkpoint();
    let label = |args: &[&str]| sandbox.json(args)["data"]["checkpoint"]["label"].clone();
    assert_eq!(label(&["create", "before the refactoring", "--json"]), "before the refactoring");
    assert_eq!(label(&["create", "-m", "-v flag added", "--json"]), "-v flag added");
    assert_eq!(label(&["create", "--json", "--", "--pin"]), "--pin");
    assert_eq!(label(&["show", "--checkpoint-id", "-v flag added", "--json"]), "-v flag added");
    assert_eq!(sandbox.output(&["create", "one", "-m", "two"]).status.code(), Some(2));
    assert_eq!(label(&["emergency", "-m", "-x went wild", "--json"]), "-x went wild");
    sandbox.write("plan.toml", "title = 'x'\nid = 'x'\n");
    sandbox.run(&["plan", "new", "plan.toml"]);
    assert_eq!(label(&["plan", "checkpoint", "create", "x", "-m", "-x", "--json"]), "-x");
    let folder = sandbox.json(&["export", "first", "../exports", "--json"])["data"]["folder"].clone();
    let folder = folder.as_str().map(str::to_owned).unwrap_or_else(|| {
        let all = std::fs::read_dir(sandbox.path("exports/project")).unwrap();
        all.map(|entry| entry.unwrap().path().display().to_string()).next().unwrap()
    });
    assert_eq!(label(&["import", &folder, "-m", "-z", "--json"]), "-z");
    // The tip names the whole word, and can be pasted.
    let told = sandbox.run(&["create", "-wip: parser"]);
    assert!(told.contains("to pass '-wip: parser' as a value, use: -- '-wip: parser'"), "{told}");
    assert_eq!(label(&["create", "--json", "--", "-wip: parser"]), "-wip: parser");
}

#[test]
fn a_time_names_the_newest_checkpoint_at_or_before_it() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "-m", "second"]);
    sandbox.write("notes.txt", "more\n");
    sandbox.run(&["create", "-m", "third"]);
    let named = |time: &str, now: &str| {
        let mut command = sandbox.command(&["show", time, "--json"]);
        command.env("SAFEPOINT_TEST_NOW", now).env("TZ", "UTC");
        let value: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let label = value["data"]["checkpoint"]["label"].as_str().map(str::to_owned);
        label.ok_or_else(|| value["error"]["code"].as_str().unwrap().to_owned())
    };
    let (day, later) = ("2026-01-31T12:30:00Z", "2026-02-01T09:00:00Z");
    // They were taken at 12:00:03, 12:01:01 and 12:02:01.
    for (time, now, wanted) in [
        ("12:01", day, Ok("first")),
        ("12:01:01", day, Ok("second")),
        ("28 minutes ago", day, Ok("second")),
        ("1 minute ago", day, Ok("third")),
        ("29m ago", day, Ok("first")),
        ("an hour ago", day, Err("no_checkpoint")),
        ("yesterday", later, Ok("third")),
        ("yesterday 12:01:30", later, Ok("second")),
        ("12:01:30", later, Err("no_checkpoint")),
        ("2026-01-31", later, Ok("third")),
        ("2026-01-31 12:01:30", later, Ok("second")),
        ("2026-01-31T12:01:30Z", later, Ok("second")),
        ("2026-01-31T13:01:30+01:00", later, Ok("second")),
        ("yesterday", day, Err("no_checkpoint")),
        ("25:00", day, Err("no_checkpoint")),
        ("99999999999999999999 days ago", day, Err("no_checkpoint")),
        ("9999999999999 weeks ago", day, Err("no_checkpoint")),
    ] {
        // A time of day that is still to come is the one of the day before.
        let wanted = match (time, now) {
            ("12:01:30", "2026-02-01T09:00:00Z") => Ok("second"),
            _ => wanted,
        };
        let found = named(time, now);
        assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{time} at {now}");
    }
    // The time of day is the local one.
    let mut abroad = sandbox.command(&["show", "13:01:30", "--json"]);
    abroad.env("SAFEPOINT_TEST_NOW", day).env("TZ", "CET-1");
    let value: Value = serde_json::from_slice(&abroad.output().unwrap().stdout).unwrap();
    assert_eq!(value["data"]["checkpoint"]["label"], "second", "{value}");
    // A label comes first.
    sandbox.run(&["create", "-m", "yesterday"]);
    assert_eq!(named("yesterday", later), Ok("yesterday".to_owned()));
}

#[test]
fn a_row_of_the_last_list_names_a_checkpoint_on_the_same_terminal() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "-m", "second"]);
    let on_terminal = |script: &str| {
        let like = sandbox.command(&["version"]);
        let mut command = Command::new("sh");
        command.arg("-c").arg(script.replace("safepoint ", concat!(env!("CARGO_BIN_EXE_safepoint"), " ")));
        command.env_clear().current_dir(sandbox.path("project")).env("PATH", "/usr/bin:/bin");
        like.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap());
        });
        sandbox.terminal(command)
    };
    let seen = on_terminal("safepoint list; safepoint show :2; safepoint show :1 -q");
    assert!(seen.contains("label     first") && seen.contains("label     second"), "{seen}");
    let seen = on_terminal(
        "safepoint list -n 1 >/dev/null; safepoint list; safepoint create -m third; safepoint show :2",
    );
    assert!(seen.contains("label     first"), "{seen}");
    let seen = on_terminal("safepoint list -n 1; safepoint show :2; echo $?");
    assert!(seen.contains("the last list has 1 row") && seen.ends_with("\n2\n"), "{seen}");
    assert_snapshot!(sandbox.run(&["show", ":2"]), @r#"
    --- stderr
    error: cannot show checkpoint ":2": ":2" is a row of the last list, and there is no terminal
    hint: Name the checkpoint by its id: safepoint list
    --- exit 2
    "#);
}

#[test]
fn a_row_names_a_checkpoint_where_the_session_began_outside_the_container() {
    let sandbox = Sandbox::with_checkpoint();
    let like = sandbox.command(&["version"]);
    // `docker exec` is like this: the first process of the session has no number inside.
    let script = concat!("B=", env!("CARGO_BIN_EXE_safepoint"), "; $B list; $B show :1; echo $?");
    let options = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare").args(options).arg("true").status().is_ok_and(|status| status.success()) {
        println!("not tried: this machine does not let us make a container");
        return;
    }
    for options in [&options[..], &options[..4]] {
        let mut command = Command::new("unshare");
        command.args(options).args(["sh", "-c", script]);
        command.env_clear().current_dir(sandbox.path("project")).env("PATH", "/usr/bin:/bin");
        like.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap());
        });
        let seen = sandbox.terminal(command);
        assert!(seen.contains("label     first") && seen.ends_with("\n0\n"), "{seen}");
    }
}

#[test]
fn an_ambiguous_name_lists_the_candidates() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "more\n");
    sandbox.run(&["create", "-m", "first"]);
    assert_snapshot!(sandbox.run(&["show", "first"]), @r#"
    --- stderr
    error: cannot show checkpoint "first": "first" names several checkpoints
    hint: Choose one of them by its id:
    hint: 01KG9YV2300QJS22HDXJ4G4Q61  # 2026-01-31 12:01:01Z "first"
    hint: 01KG9YS9EGCQT0DH2X3200JHAF  # 2026-01-31 12:00:03Z "first"
    --- exit 2
    "#);
    let found = sandbox.json(&["list", "--json"]);
    let prefix = &ids(&found)[0][..4];
    let told = sandbox.run(&["show", prefix]);
    assert!(told.contains("01KG9YS9EGCQT0DH2X3200JHAF  # "), "{told}");
}

/// The first words of the rows of a table on a terminal, after the number of the row.
fn shown_ids(seen: &str) -> Vec<String> {
    let rows = seen.lines().filter(|line| line.contains(" ago ") || line.contains("just now"));
    rows.map(|row| row.split_whitespace().find(|word| word.starts_with("01")).unwrap().to_owned()).collect()
}

#[test]
fn a_short_id_names_the_checkpoint_beside_which_it_is_shown() {
    let sandbox = Sandbox::with_checkpoint();
    let at_once = |args: &[&str], seed: &str| {
        let mut command = sandbox.command(args);
        command.env("SAFEPOINT_TEST_NOW", "2026-01-31T12:30:00Z").env("SAFEPOINT_TEST_SEED", seed);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", sandbox.told(&output));
    };
    // Two of the same millisecond share the ten letters of the time.
    at_once(&["create", "-m", "one"], "7");
    at_once(&["create", "-m", "other"], "8");
    let seen = sandbox.terminal(sandbox.command(&["list"]));
    for (id, label) in shown_ids(&seen).iter().zip(["other", "one", "first"]) {
        assert!(id.len() > 10, "{seen}");
        assert_eq!(sandbox.json(&["show", id, "--json"])["data"]["checkpoint"]["label"], label, "{seen}");
    }
    // A plan of another workspace, seen from here.
    let elsewhere = sandbox.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    let here = sandbox.json(&["list", "--json"]);
    sandbox.run(&["delete", &ids(&here)[0], "--yes"]);
    at_once(&["-C", elsewhere, "plan", "new", "--title", "Far", "--id", "far"], "9");
    at_once(&["-C", elsewhere, "plan", "checkpoint", "create", "far", "-m", "far away"], "10");
    let seen = sandbox.terminal(sandbox.command(&["list", "--plan", "far", "-n", "1"]));
    let shown = sandbox.json(&["show", &shown_ids(&seen)[0], "--json"]);
    assert_eq!(shown["data"]["checkpoint"]["plan_id"], "far", "{seen}");
}
