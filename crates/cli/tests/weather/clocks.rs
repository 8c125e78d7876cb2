//! Jumping clock.

use crate::place::{Answer, Place, assert_same};
use serde_json::Value;

/// Runs a command at this time.
fn at(place: &Place, when: &str, args: &[&str]) -> Value {
    let args = [&["--json"], args].concat();
    let mut command = place.command(&args);
    let output = command.env("SAFEPOINT_TEST_NOW", when).env("SAFEPOINT_TEST_SEED", when.len().to_string());
    Answer::of(&args, &output.output().unwrap()).succeeds()
}

#[test]
fn a_clock_that_jumps_backwards() {
    let place = Place::new();
    let days =
        ["2026-06-03T10:00:00Z", "2026-06-01T10:00:00Z", "2031-01-01T00:00:00Z", "1999-12-31T23:59:59Z"];
    let mut images = Vec::new();
    for (number, day) in days.iter().enumerate() {
        place.write("file", format!("state {number}"));
        place.write(format!("only in {number}"), "");
        at(&place, day, &["create", "-m", &format!("state {number}")]);
        images.push(place.image());
    }
    // Checkpoints are in commit order, whatever the clock.
    let labels = ["state 3", "state 2", "state 1", "state 0"];
    assert_eq!(place.labels(), labels);
    for (back, label) in labels.iter().enumerate() {
        let shown = at(&place, days[1], &["show", &format!("@~{back}")]);
        assert_eq!(shown["checkpoint"]["label"], *label);
    }
    // Rollbacks at ever earlier times; undo follows the order of execution.
    at(&place, "2026-01-03T00:00:00Z", &["rollback", "state 0"]);
    at(&place, "2026-01-02T00:00:00Z", &["rollback", "state 1"]);
    at(&place, "2026-01-01T00:00:00Z", &["rollback", "state 2"]);
    assert_same(&place.image(), &images[2]);
    for (day, number) in
        [("1998-01-01T00:00:00Z", 1), ("2035-01-01T00:00:00Z", 0), ("1997-01-01T00:00:00Z", 3)]
    {
        at(&place, day, &["undo", "--yes"]);
        assert_same(&place.image(), &images[number]);
    }
    for (day, number) in
        [("1996-01-01T00:00:00Z", 0), ("1995-01-01T00:00:00Z", 1), ("1994-01-01T00:00:00Z", 2)]
    {
        at(&place, day, &["redo"]);
        assert_same(&place.image(), &images[number]);
    }
    let status = at(&place, "1990-01-01T00:00:00Z", &["status"]);
    assert_eq!(status["changes"].as_array().map(Vec::len), Some(0), "{status:#}");
    // In text, too, a checkpoint of the future is no reason to fail.
    for args in [&["list"][..], &["status"], &["show", "@"], &["rollback", "@", "--dry-run"]] {
        let mut command = place.command(args);
        let output = command.env("SAFEPOINT_TEST_NOW", "1990-01-01T00:00:00Z").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    place.is_whole();
}

#[test]
fn files_from_the_future_and_from_before_time() {
    use std::time::{Duration, SystemTime};
    let place = Place::new();
    let times = [
        ("future", SystemTime::now() + Duration::from_secs(10 * 365 * 86_400)),
        ("epoch", SystemTime::UNIX_EPOCH),
        ("before", SystemTime::UNIX_EPOCH - Duration::from_secs(86_400)),
    ];
    let date = |name: &str, time| {
        std::fs::File::options().write(true).open(place.file(name)).unwrap().set_modified(time).unwrap();
    };
    for (name, time) in times {
        place.write(name, "1");
        date(name, time);
    }
    let id = place.create();
    let then = place.image();
    // Same length and same times: only the content differs.
    for (name, time) in times {
        place.write(name, "2");
        date(name, time);
    }
    place.goes_to_and_fro(&id, &then);
}
