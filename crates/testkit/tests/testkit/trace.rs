//! Tests of counting, killing and failing.

use std::fs;
use std::time::{Duration, Instant};

use safepoint_testkit::{Action, End, Fail, calls, drive, fail_at, kill_at};

use crate::common::{clear, names, sh, threads};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

#[test]
fn counting_is_deterministic_and_names_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let p = sh(dir.path(), "echo a>1; mv 1 2; echo out; echo b>3; echo no >/dev/null; rm 2 3");
    let (first, end) = calls(&p).unwrap();
    let End::Exited { code: 0, stdout, .. } = end else { panic!("{end:?}") };
    assert_eq!(stdout, b"out\n");
    let (second, _) = calls(&p).unwrap();
    assert_eq!(first, second);
    let shown: Vec<_> = first.iter().map(|c| c.name).collect();
    let expected = ["openat", "write", "renameat2", "openat", "write", "unlinkat", "unlinkat"];
    assert_eq!(shown, expected, "{first:?}");
    assert!(first[2].detail.contains(r#""1" -> "2""#), "{}", first[2]);
    assert_eq!(first.iter().map(|c| c.index).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_kill_leaves_a_prefix() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("w");
    fs::create_dir(&dir).unwrap();
    let p = sh(&dir, "echo a>1; mv 1 2; echo b>3");
    let mut seen = Vec::new();
    for k in 1.. {
        clear(&dir);
        let end = kill_at(&p, k).unwrap();
        let files: Vec<_> = names(&dir)
            .into_iter()
            .map(|n| format!("{n}={}", fs::read_to_string(dir.join(&n)).unwrap().trim()))
            .collect();
        seen.push(files.join(" "));
        match end {
            End::Killed { at } => assert_eq!(at.index, k),
            End::Exited { code, .. } => {
                assert_eq!(code, 0);
                break;
            }
            End::Signaled(s) => panic!("signal {s}"),
        }
    }
    assert_eq!(seen, ["", "1=", "1=a", "2=a", "2=a 3=", "2=a 3=b"]);
}

#[test]
fn a_fault_is_seen_by_the_program_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let p = sh(dir.path(), "/bin/echo a >1 || echo failed; echo b >2 || echo failed");
    let End::Exited { code, stdout, stderr } = fail_at(&p, 2, ENOSPC, Fail::Once).unwrap() else {
        panic!("did not exit")
    };
    assert_eq!((code, stdout.as_slice()), (0, &b"failed\n"[..]));
    assert!(String::from_utf8_lossy(&stderr).contains("No space left"), "{stderr:?}");
    assert_eq!(fs::read(dir.path().join("1")).unwrap(), b"");
    assert_eq!(fs::read(dir.path().join("2")).unwrap(), b"b\n");
}

#[test]
fn a_fault_forever_hits_all_that_follow() {
    let dir = tempfile::tempdir().unwrap();
    let p = sh(dir.path(), "echo a >1; mv 1 2; mkdir d; echo b >3; true");
    let end = fail_at(&p, 3, EIO, Fail::Forever).unwrap();
    assert!(end.is_success(), "{end:?}");
    assert_eq!(names(dir.path()), ["1"]);
}

#[test]
fn a_full_disk_still_unlinks() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "x").unwrap();
    let p = sh(dir.path(), "echo a >1; rm old; true");
    let full = |name: &str| {
        if name == "unlinkat" { Action::Go } else { Action::Fail(ENOSPC) }
    };
    drive(&p, |call| full(call.name)).unwrap();
    assert!(names(dir.path()).is_empty());
}

#[test]
fn threads_are_followed_and_killed_together() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("w");
    fs::create_dir(&dir).unwrap();
    let p = threads(&dir, 4);
    let (all, end) = calls(&p).unwrap();
    assert!(end.is_success(), "{end:?}");
    // Per thread: an open, three writes, two syncs, a rename.
    assert_eq!(all.len(), 4 * 7, "{all:?}");
    assert_eq!(names(&dir), ["f0", "f1", "f2", "f3"]);
    for k in [1, 5, 9, 14, 21, 28] {
        clear(&dir);
        let end = kill_at(&p, k).unwrap();
        assert!(matches!(&end, End::Killed { at } if at.index == k), "{end:?}");
        for name in names(&dir).iter().filter(|n| !n.ends_with(".part")) {
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap().lines().count(), 3);
        }
    }
}

#[test]
fn children_die_with_their_parent() {
    let dir = tempfile::tempdir().unwrap();
    let p = sh(dir.path(), "(sleep 5; echo late >late) & sleep 0.1; echo a >1; wait");
    let start = Instant::now();
    let end = kill_at(&p, 1).unwrap();
    assert!(matches!(end, End::Killed { .. }));
    assert!(start.elapsed() < Duration::from_secs(4));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut p = sh(dir.path(), "true");
    p.exe = dir.path().join("none");
    assert!(calls(&p).is_err());
}
#[test]
fn signals_and_exit_codes_come_through() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(calls(&sh(dir.path(), "kill -TERM $$")).unwrap().1, End::Signaled(15));
    let end = calls(&sh(dir.path(), "exit 7")).unwrap().1;
    assert!(matches!(end, End::Exited { code: 7, .. }), "{end:?}");
}
