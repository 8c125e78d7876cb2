//! Differences in unified format.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn changed() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("src/main.rs", "fn main() {\n    println!(\"two\");\n}");
    sandbox.write("new/file.txt", "a\nb\n");
    sandbox.write("binary", b"a\0b");
    sandbox.write("latin", b"caf\xe9\n");
    sandbox.write("large", vec![b'x'; 1024 * 1024 + 1]);
    fs::remove_file(sandbox.path("project/notes.txt")).unwrap();
    fs::remove_dir(sandbox.path("project/empty")).unwrap();
    fs::create_dir(sandbox.path("project/hollow")).unwrap();
    fs::remove_file(sandbox.path("project/link")).unwrap();
    sandbox.write("link", "now a file\n");
    fs::set_permissions(sandbox.path("project/run.sh"), fs::Permissions::from_mode(0o600)).unwrap();
    sandbox
}

#[test]
fn a_diff_shows_every_sort_of_change() {
    let sandbox = changed();
    assert_snapshot!(sandbox.run(&["diff"]), @r#"
    diff --git a/binary b/binary
    new file mode 100644
    Binary files /dev/null and b/binary differ
    empty directory removed: empty
    empty directory added: hollow
    diff --git a/large b/large
    new file mode 100644
    Files /dev/null and b/large differ (too large to show)
    diff --git a/latin b/latin
    new file mode 100644
    Binary files /dev/null and b/latin differ
    diff --git a/link b/link
    deleted file mode 120000
    --- a/link
    +++ /dev/null
    @@ -1 +0,0 @@
    -notes.txt
    \ No newline at end of file
    diff --git a/link b/link
    new file mode 100644
    --- /dev/null
    +++ b/link
    @@ -0,0 +1 @@
    +now a file
    diff --git a/new/file.txt b/new/file.txt
    new file mode 100644
    --- /dev/null
    +++ b/new/file.txt
    @@ -0,0 +1,2 @@
    +a
    +b
    diff --git a/notes.txt b/notes.txt
    deleted file mode 100644
    --- a/notes.txt
    +++ /dev/null
    @@ -1 +0,0 @@
    -good
    diff --git a/run.sh b/run.sh
    old mode 100755
    new mode 100600
    diff --git a/src/main.rs b/src/main.rs
    --- a/src/main.rs
    +++ b/src/main.rs
    @@ -1,3 +1,3 @@
     fn main() {
    -    println!("one");
    -}
    +    println!("two");
    +}
    \ No newline at end of file
    --- exit 0
    "#);
}

#[test]
fn stat_and_names_are_short() {
    let sandbox = changed();
    assert_snapshot!(sandbox.run(&["diff", "--stat"]), @"
     binary       | binary
     large        | too large to count
     latin        | binary
     link         | 2 +-
     new/file.txt | 2 ++
     notes.txt    | 1 -
     run.sh       | mode
     src/main.rs  | 4 ++--
     8 files changed, 5 lines added, 4 removed
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["diff", "--name-only"]), @"
    binary
    empty
    hollow
    large
    latin
    link
    new
    new/file.txt
    notes.txt
    run.sh
    src/main.rs
    --- exit 0
    ");
}

#[test]
fn paths_choose_and_two_checkpoints_compare() {
    let sandbox = changed();
    sandbox.run(&["create", "-m", "second"]);
    assert_snapshot!(sandbox.run(&["diff", "first", "second", "--name-only", "--", "src/", "./new/../run.sh"]), @"
    run.sh
    src/main.rs
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["diff", "second", "first", "--", "src"]), @r#"
    diff --git a/src/main.rs b/src/main.rs
    --- a/src/main.rs
    +++ b/src/main.rs
    @@ -1,3 +1,3 @@
     fn main() {
    -    println!("two");
    -}
    \ No newline at end of file
    +    println!("one");
    +}
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["diff"]), @"--- exit 0");
    assert_snapshot!(sandbox.run(&["diff", "--stat"]), @"--- exit 0");
}

#[test]
fn paths_are_relative_to_where_one_is() {
    let sandbox = changed();
    let mut command = sandbox.command(&["diff", "--name-only", "--", "main.rs"]);
    let output = command.current_dir(sandbox.path("project/src")).output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    src/main.rs
    --- exit 0
    ");
}

#[test]
fn many_lines_have_a_short_bar() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "line\n".repeat(300));
    assert_snapshot!(sandbox.run(&["diff", "--stat"]), @"
     notes.txt | 301 ++++++++++++++++++++++++++++++++++++++++-
     1 file changed, 300 lines added, 1 removed
    --- exit 0
    ");
}

#[test]
fn colours_come_when_asked_for() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "bad\n");
    let output = sandbox.command(&["--color", "always", "diff"]).env_remove("NO_COLOR").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\u{1b}[32m+bad\u{1b}[0m") && text.contains("\u{1b}[31m-good\u{1b}[0m"),
        "{text:?}"
    );
    let plain = sandbox.output(&["--color", "never", "diff"]).stdout;
    assert!(!plain.contains(&0x1b));
}

#[test]
fn folders_and_quoted_names_are_shown_as_git_does() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("a \"quoted\"\t\\name", "x\n");
    fs::set_permissions(sandbox.path("project/src"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(sandbox.path("project/run.sh")).unwrap();
    sandbox.write("run.sh/inside", "x\n");
    assert_snapshot!(sandbox.run(&["diff"]), @r#"
    diff --git "a/a \"quoted\"\t\\name" "b/a \"quoted\"\t\\name"
    new file mode 100644
    --- /dev/null
    +++ "b/a \"quoted\"\t\\name"
    @@ -0,0 +1 @@
    +x
    diff --git a/run.sh b/run.sh
    deleted file mode 100755
    --- a/run.sh
    +++ /dev/null
    @@ -1 +0,0 @@
    -#!/bin/sh
    diff --git a/run.sh/inside b/run.sh/inside
    new file mode 100644
    --- /dev/null
    +++ b/run.sh/inside
    @@ -0,0 +1 @@
    +x
    diff --git a/src b/src
    old mode 040755
    new mode 040700
    --- exit 0
    "#);
}
