//! Times: local for people, UTC for programs.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;

/// Output of a command in a time zone.
fn in_zone(sandbox: &Sandbox, zone: &str, args: &[&str]) -> String {
    sandbox.told(&sandbox.command(args).env("TZ", zone).output().unwrap())
}

#[test]
fn texts_show_local_time_and_utc_on_request() {
    let sandbox = Sandbox::with_checkpoint();
    let created = |zone: &str, args: &[&str]| {
        let told = in_zone(&sandbox, zone, args);
        let line = told.lines().find_map(|line| line.strip_prefix("  created   ")).map(str::to_owned);
        line.unwrap_or(told).split(", ").next().unwrap().to_owned()
    };
    for (zone, args, wanted) in [
        ("CET-1", &["show", "@"][..], "2026-01-31 13:00:03+01:00"),
        ("<+0545>-5:45", &["show", "@"], "2026-01-31 17:45:03+05:45"),
        ("<-10>10", &["show", "@"], "2026-01-31 02:00:03-10:00"),
        ("UTC", &["show", "@"], "2026-01-31 12:00:03Z"),
        ("Nowhere/Else", &["show", "@"], "2026-01-31 12:00:03Z"),
        ("CET-1", &["--utc", "show", "@"], "2026-01-31 12:00:03Z"),
        ("CET-1", &["show", "@", "--utc"], "2026-01-31 12:00:03Z"),
    ] {
        assert_eq!(created(zone, args), wanted, "{zone} {args:?}");
    }
    // A shown time names what was taken by then.
    sandbox.write("notes.txt", "more\n");
    sandbox.run(&["create", "-m", "second"]);
    let shown = in_zone(&sandbox, "CET-1", &["show", "2026-01-31 13:00:03+01:00"]);
    assert!(shown.contains("label     first"), "{shown}");
    let shown = in_zone(&sandbox, "CET-1", &["show", "--utc", "2026-01-31 12:00:04"]);
    assert!(shown.contains("label     first"), "{shown}");
}

#[test]
fn dates_of_old_checkpoints_and_the_history_are_local() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    assert_snapshot!(in_zone(&sandbox, "<+13>-13", &["history"]), @"
    WHEN                       WHAT      BY      FROM                        TO                          RESULT
    2026-02-01 01:01:01+13:00  rollback  tester  01KG9YS9EGCQT0DH2X3200JHAF  01KG9YS9EGCQT0DH2X3200JHAF  done
    --- exit 0
    ");
    assert_snapshot!(in_zone(&sandbox, "<+13>-13", &["history", "--utc"]), @"
    WHEN                  WHAT      BY      FROM                        TO                          RESULT
    2026-01-31 12:01:01Z  rollback  tester  01KG9YS9EGCQT0DH2X3200JHAF  01KG9YS9EGCQT0DH2X3200JHAF  done
    --- exit 0
    ");
    let mut later = sandbox.command(&["list"]);
    let told = sandbox.told(
        &later.env("SAFEPOINT_TEST_NOW", "2026-06-01T00:00:00Z").env("TZ", "<+13>-13").output().unwrap(),
    );
    assert!(told.contains("2026-02-01"), "{told}");
}

#[test]
fn candidates_of_an_ambiguous_name_have_local_times() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "-m", "first"]);
    let told = in_zone(&sandbox, "CET-1", &["show", "first"]);
    assert!(told.contains("# 2026-01-31 13:00:03+01:00 \"first\""), "{told}");
    let told = in_zone(&sandbox, "CET-1", &["show", "first", "--utc"]);
    assert!(told.contains("# 2026-01-31 12:00:03Z \"first\""), "{told}");
}

#[test]
fn json_has_utc_wherever_it_is_asked_for() {
    let sandbox = Sandbox::with_checkpoint();
    let output = sandbox.command(&["show", "@", "--json"]).env("TZ", "CET-1").output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["data"]["checkpoint"]["created_at"], "2026-01-31T12:00:03.000000Z", "{value}");
    assert!(value["timing"]["started"].as_str().unwrap().ends_with('Z'), "{value}");
}
