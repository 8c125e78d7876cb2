//! Unknown, ambiguous and invalid references.

use crate::place::Place;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

fn place() -> (Place, String) {
    let place = Place::new();
    place.write("file", "1");
    let id = place.create();
    place.write("file", "2");
    (place, id)
}

#[test]
fn unknown_ids() {
    let (place, id) = place();
    let mut other = id.clone();
    let last = if other.pop() == Some('0') { '1' } else { '0' };
    other.push(last);
    for unknown in [other.as_str(), "nothing", "0000", "@~7", "00000000-0000-4000-8000-000000000000"] {
        for args in [
            &["rollback", unknown][..],
            &["rollback", unknown, "--path", "file"],
            &["rollback", unknown, "--dry-run"],
            &["show", unknown],
            &["cat", unknown, "file"],
            &["diff", unknown],
            &["validate", unknown],
        ] {
            place.refuses(args, 10, "no_checkpoint");
        }
    }
    assert_eq!(place.labels().len(), 1);
}

#[test]
fn malformed_ids() {
    let (place, _) = place();
    for malformed in ["", "@~", "@~x", "@~-1", "@~ 1", "@~99999999999999999999999"] {
        // An empty argument could be a path, too.
        place.refuses(&["rollback", malformed], 2, if malformed.is_empty() { "usage" } else { "bad_input" });
        place.refuses(&["show", malformed], 2, "bad_input");
    }
    // An invalid id may still be a label, so these are only unknown.
    let long = "x".repeat(100_000);
    for odd in ["a\nb", "\u{1b}[31mred", "%s%n", "' OR 1=1 --", "@@", "é", long.as_str()] {
        let answer = place.refuses(&["rollback", odd], 10, "no_checkpoint");
        assert!(!answer.errors.contains('\u{1b}'), "{}", answer.errors);
    }
    // With a slash it is meant as a path.
    place.refuses(&["rollback", "../../etc/passwd"], 2, "outside_workspace");
    let no_text = OsString::from_vec(b"\xff\xfe".to_vec());
    place.refuses(&["rollback".into(), no_text], 10, "no_checkpoint");
    place.refuses(&["create", "--session-id", "../x"], 2, "bad_input");
    place.refuses(&["create", "--counter", "tests=1"], 2, "bad_input");
}

#[test]
fn ambiguous_ids() {
    let (place, first) = place();
    for _ in 0..2 {
        place.run(&["create", "-m", "twice"]).succeeds();
    }
    for several in ["twice", &first[..4]] {
        let answer = place.refuses(&["rollback", several], 2, "ambiguous");
        let hints = answer.json["error"]["hints"].to_string();
        let listed = place.run(&["list"]).succeeds();
        let newest = listed["checkpoints"][0]["id"].as_str().unwrap();
        assert!(hints.contains(newest), "the candidates are listed: {hints}");
    }
}
