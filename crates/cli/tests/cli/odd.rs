//! Names and contents that are not text.

use crate::sandbox::{Sandbox, name};
use insta::assert_snapshot;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::{fs, os::unix::fs::symlink};

const NAMES: [&[u8]; 4] = [b"new\nline", b"esc\x1b[31m", b"caf\xe9", b"-dash"];

fn odd() -> Sandbox {
    let sandbox = Sandbox::new();
    for bytes in NAMES {
        fs::write(sandbox.path("project").join(name(bytes)), bytes).unwrap();
    }
    symlink(name(b"to\xff\x1b"), sandbox.path("project/link")).unwrap();
    sandbox.run(&["create", "-m", "a\u{1b}[31m label"]);
    sandbox
}

#[test]
fn odd_names_print_safely() {
    let sandbox = odd();
    assert_snapshot!(sandbox.run(&["show", "@", "--files"]), @r"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
      label     a\u{1b}[31m label
      created   2026-01-31 12:00:03Z, 57 seconds ago
      kind      manual, reason manual
      scope     project
      holds     5 files and folders, 25 B
      changed   +5 ~0 -0
      stored    SIZE new in the store
      uuid      019c13ec-a5d0-65f4-06c4-5d188009454f
      integrity <hash>

    -0644       5 B  -dash
    -0644       4 B  caf\xe9
    -0644       8 B  esc\u{1b}[31m
    l0777            link -> to\xff\u{1b}
    -0644       8 B  new\nline
    --- exit 0
    ");
    for bytes in NAMES {
        fs::write(sandbox.path("project").join(name(bytes)), "changed\n").unwrap();
    }
    assert_snapshot!(sandbox.run(&["diff"]), @r#"
    diff --git a/-dash b/-dash
    --- a/-dash
    +++ b/-dash
    @@ -1 +1 @@
    --dash
    \ No newline at end of file
    +changed
    diff --git "a/caf\351" "b/caf\351"
    Binary files "a/caf\351" and "b/caf\351" differ
    diff --git "a/esc\033[31m" "b/esc\033[31m"
    --- "a/esc\033[31m"
    +++ "b/esc\033[31m"
    @@ -1 +1 @@
    -esc[31m
    \ No newline at end of file
    +changed
    diff --git "a/new\nline" "b/new\nline"
    --- "a/new\nline"
    +++ "b/new\nline"
    @@ -1,2 +1 @@
    -new
    -line
    \ No newline at end of file
    +changed
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    4 changes since 01KG9YS9EGCQT0DH2X3200JHAF "a\u{1b}[31m label", 2 minutes ago, not in a checkpoint:
        ~ -dash
        ~ caf\xe9
        ~ esc\u{1b}[31m
        ~ new\nline
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "a\u{1b}[31m label", taken 3 minutes ago
      4 files restored, 0 files removed, read back and verified, in N ms
        ~ -dash  restored
        ~ caf\xe9  restored
        ~ esc\u{1b}[31m  restored
        ~ new\nline  restored
    Undo it with: safepoint undo
    --- exit 0
    "#);
}

#[test]
fn cat_gives_exact_bytes_whatever_the_name() {
    let sandbox = odd();
    for bytes in NAMES {
        let args: Vec<OsString> =
            vec!["cat".into(), "@".into(), "--".into(), OsString::from_vec(bytes.to_vec())];
        let output = sandbox.output(&args);
        assert_eq!((output.stdout.as_slice(), output.status.code()), (bytes, Some(0)));
    }
    let all: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    sandbox.write("all", &all);
    sandbox.run(&["create"]);
    assert_eq!(sandbox.output(&["cat", "@", "all"]).stdout, all);
}

#[test]
fn json_gives_names_that_are_not_text_as_bytes() {
    let sandbox = odd();
    let shown = sandbox.json(&["show", "@", "--files", "--json"]);
    let entries = shown["data"]["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["path"]["bytes"] == "Y2Fm6Q=="), "{entries:?}");
    assert!(entries.iter().any(|entry| entry["path"] == "new\nline"));
    assert!(entries.iter().any(|entry| entry["target"]["bytes"] == "dG//Gw=="));
    let args: Vec<OsString> =
        vec!["cat".into(), "@".into(), "--json".into(), "--".into(), OsString::from_vec(b"caf\xe9".to_vec())];
    assert_eq!(sandbox.json(&args)["data"]["content"]["bytes"], "Y2Fm6Q==");
}

#[test]
fn an_odd_path_can_be_rolled_back_alone() {
    let sandbox = odd();
    let path = sandbox.path("project").join(name(b"caf\xe9"));
    fs::write(&path, "changed").unwrap();
    fs::write(sandbox.path("project/-dash"), "changed").unwrap();
    let args: Vec<OsString> =
        vec!["rollback".into(), "@".into(), "--path".into(), OsString::from_vec(b"caf\xe9".to_vec())];
    assert_eq!(sandbox.output(&args).status.code(), Some(0));
    assert_eq!((fs::read(path).unwrap(), sandbox.read("-dash")), (b"caf\xe9".to_vec(), "changed".to_owned()));
}
