//! Untrusted text in every output: names, labels, titles, requests, keys, configuration, arguments. None of
//! it acts on a terminal, reorders a line or hides in it, on either stream, as text or JSON.

use crate::sandbox::{Sandbox, name};
use safepoint_model::text::is_unsafe;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

/// One of each kind: C0, an escape sequence, DEL, C1, bidirectional controls and isolates, marks, zero width,
/// separators, a tag.
const HOSTILE: &str = "h\u{1}\u{8}\u{1b}]0;title\u{7}\u{1b}[2J\r\u{7f}\u{85}\u{9b}31m\u{202e}\u{2066}\u{200e}\u{200f}\u{61c}\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}\u{2028}\u{2029}\u{e0041}\nerror: done";

/// Returns the same as a file name, with raw C1 bytes.
fn hostile_name() -> OsString {
    OsString::from_vec([HOSTILE.as_bytes(), b"\x9b2J\xff"].concat())
}

/// Checks that output has no control characters and no forged line.
fn check_harmless(what: &str, bytes: &[u8]) {
    assert!(std::str::from_utf8(bytes).is_ok(), "{what}: {}", bytes.escape_ascii());
    let text = std::str::from_utf8(bytes).unwrap();
    let odd: Vec<char> = text.chars().filter(|letter| *letter != '\n' && is_unsafe(*letter)).collect();
    assert!(odd.is_empty(), "{what}: {odd:?} in {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("error: done")), "{what}: a line was forged: {text}");
}

struct Hostile {
    sandbox: Sandbox,
    commands: usize,
    succeeded: usize,
}

impl Hostile {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let project = sandbox.path("project");
        fs::write(project.join(hostile_name()), "one\n").unwrap();
        fs::create_dir(project.join(format!("folder {HOSTILE}"))).unwrap();
        fs::write(project.join(format!("folder {HOSTILE}")).join("file"), "one\n").unwrap();
        symlink(hostile_name(), project.join("link")).unwrap();
        Self { sandbox, commands: 0, succeeded: 0 }
    }

    /// Runs a command as text, as JSON, quietly and on a terminal, in that order.
    fn run(&mut self, args: &[&OsStr]) {
        let forms: [&[&str]; 3] = [&[], &["--json"], &["-q"]];
        for (at, form) in forms.iter().enumerate() {
            let words: Vec<&OsStr> = form.iter().map(OsStr::new).chain(args.iter().copied()).collect();
            let output = self.sandbox.output(&words);
            let what = format!("{form:?} {args:?}");
            // With -q, a program gets the export folder byte for byte.
            if !(form == &["-q"] && args[0] == "export") {
                check_harmless(&what, &output.stdout);
            }
            check_harmless(&what, &output.stderr);
            self.commands += 1;
            self.succeeded += usize::from(at == 0 && output.status.success());
        }
        let seen = self.sandbox.terminal(self.sandbox.command(args));
        assert!(!seen.contains("^["), "{args:?} on a terminal: {seen}");
        check_harmless(&format!("{args:?} on a terminal"), seen.as_bytes());
    }

    fn words(&mut self, args: &[&str]) {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        self.run(&args);
    }
}

#[test]
fn names_and_labels_from_outside_never_act_on_a_terminal() {
    let mut hostile = Hostile::new();
    let odd = hostile_name();
    hostile.words(&["create", "-m", HOSTILE, "--source-tool", HOSTILE]);
    for path in [odd.as_os_str(), name(b"new\x9b").as_os_str()] {
        fs::write(hostile.sandbox.path("project").join(path), "two\n").unwrap();
    }
    for args in [
        &["list"][..],
        &["list", "--graph"],
        &["list", "--all"],
        &["show", "@", "--files"],
        &["status"],
        &["diff"],
        &["diff", "--stat"],
        &["diff", "--name-only"],
        &["usage"],
        &["summary"],
        &["validate"],
        &["validate", "@"],
        &["doctor"],
        &["rollback"],
        &["rollback", "@", "--dry-run"],
        &["prune", "--dry-run"],
        &["pin", "@"],
        &["unpin", "@"],
        &["init"],
        &["recover"],
        &["gc"],
        &["repair"],
        &["export", "@", "../out"],
        &["emergency", "-m", HOSTILE],
        &["run", "-m", HOSTILE, "--", "true"],
        &["rollback", "@~3"],
        &["undo", "--dry-run"],
        &["undo"],
        &["redo"],
    ] {
        hostile.words(args);
    }
    let some = hostile.succeeded;
    assert!(some >= 28, "only {some} of these succeeded");
    let at = OsStr::new("@");
    for verb in ["cat", "purge", "export", "import"] {
        hostile.run(
            &[OsStr::new(verb), at, &odd]
                .iter()
                .filter(|word| verb != "import" || **word != at)
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    hostile.run(&["rollback".as_ref(), at, "--path".as_ref(), &odd]);
    hostile.words(&["delete", "@", "--yes"]);
    // Folders with such names: the workspace and the home.
    let folder = hostile.sandbox.path("project").join(&odd).with_file_name(format!("work {HOSTILE}"));
    fs::create_dir(&folder).unwrap();
    for args in
        [&["init"][..], &["create"], &["status"], &["doctor"], &["usage"], &["undo"], &["list", "--all"]]
    {
        let args: Vec<&OsStr> =
            [OsStr::new("-C"), folder.as_os_str()].into_iter().chain(args.iter().map(OsStr::new)).collect();
        hostile.run(&args);
        let home = [OsStr::new("--home"), folder.as_os_str()];
        hostile.run(&home.into_iter().chain(args.iter().copied()).collect::<Vec<_>>());
    }
}

#[test]
fn plans_sessions_and_agents_from_outside_never_act_on_a_terminal() {
    let mut hostile = Hostile::new();
    let quoted = serde_json::Value::from(HOSTILE).to_string();
    let plan = serde_json::json!({
        "title": HOSTILE,
        "id": "odd",
        "context": { HOSTILE: HOSTILE },
        "step": [
            { "id": "print", "title": HOSTILE, "run": "printf 'plain\\n'" },
            { "id": "fail", "title": HOSTILE, "run": "echo no >&2; exit 3" },
        ],
    });
    hostile.sandbox.write("../plan.json", plan.to_string());
    hostile.words(&["plan", "new", "../plan.json"]);
    for args in [
        &["plan", "list"][..],
        &["plan", "show", "odd"],
        &["plan", "tree", "odd"],
        &["plan", "run", "odd"],
        &["plan", "log", "odd"],
        &["plan", "log", "odd", "print"],
        &["plan", "log", "odd", HOSTILE],
        &["plan", "context", "set", "odd", HOSTILE, &quoted],
        &["plan", "context", "get", "odd", HOSTILE],
        &["plan", "context", "get", "odd", "missing\u{202e}"],
        &["plan", "decide", "odd", "--question", HOSTILE, "--choice", HOSTILE, "--why", HOSTILE],
        &["plan", "step", "add", "odd", "more", "--title", HOSTILE],
        &["plan", "step", "start", "odd", HOSTILE],
        &["plan", "step", "fail", "odd", "fail", "--error", HOSTILE],
        &["plan", "checkpoint", "create", "odd", "-m", HOSTILE],
        &["plan", "checkpoint", "list", "odd"],
        &["plan", "checkpoint", "show", "odd", "@"],
        &["plan", "rollback", "odd", "@", "--dry-run"],
        &["plan", "correct", "odd", "--mode", "replan", "--guidance", HOSTILE],
        &["plan", "new", "--title", HOSTILE, "--id", HOSTILE],
        &["plan", "show", HOSTILE],
        &["plan", "new", HOSTILE],
        &["plan", "context", "unset", "odd", HOSTILE],
        &["plan", "cancel", "odd", "--yes"],
        &["session", "create", HOSTILE, "--configuration", &format!("{{{quoted}: {quoted}}}")],
        &["session", "list"],
        &["session", "create", HOSTILE, "--session-id", HOSTILE],
        &["session", "get", HOSTILE],
        &["session", "update", HOSTILE, HOSTILE],
        &["agent", "register", "odd", "--config", HOSTILE],
        &["agent", "register", HOSTILE, "--memory", HOSTILE],
        &["agent", "set", "odd", HOSTILE, &quoted],
        &["agent", "list"],
        &["agent", "show", "odd"],
        &["agent", "show", HOSTILE],
        &["agent", "remove", HOSTILE, "--yes"],
        &["create", "--scope", "framework", "-m", HOSTILE],
        &["show", "@"],
    ] {
        hostile.words(args);
    }
    let sessions = hostile.sandbox.json(&["session", "list", "--json"]);
    let session = sessions["data"]["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    hostile.words(&["session", "get", &session]);
    hostile.words(&["session", "export", &session]);
    hostile.words(&["session", "delete", &session, "--yes"]);
    let some = hostile.succeeded;
    assert!(some >= 22, "only {some} of these succeeded");
}

#[test]
fn errors_about_text_from_outside_never_act_on_a_terminal() {
    let mut hostile = Hostile::new();
    hostile.words(&["create"]);
    let option = format!("--{HOSTILE}");
    let kind = format!("--kind={HOSTILE}");
    let check = format!("false '{HOSTILE}'");
    for args in [
        &["show", HOSTILE][..],
        &["show", "--session-id", HOSTILE],
        &["cat", "@", HOSTILE],
        &["diff", HOSTILE],
        &["rollback", HOSTILE],
        &["delete", HOSTILE, "--yes"],
        &["pin", HOSTILE],
        &["export", HOSTILE, HOSTILE],
        &["import", HOSTILE],
        &["run", "--", HOSTILE],
        &["rollback", "--until", &check],
        &["purge", "../outside\u{202e}", "--yes"],
        &["-C", HOSTILE, "status"],
        &["create", "--counter", HOSTILE],
        &["create", "--plan", HOSTILE],
        &["create", "--scope", "agent", "--agent", HOSTILE],
        // Parts of the command line itself.
        &[HOSTILE],
        &["list", &option],
        &["list", &kind],
        &["list", "-n", HOSTILE],
        &["list", "--older-than", HOSTILE],
        &["completions", HOSTILE],
    ] {
        hostile.words(args);
    }
    let quoted = serde_json::Value::from(HOSTILE)
        .to_string()
        .replace("\\u001b", "\\u001B")
        .replace("\u{7f}", "\\u007F");
    for text in [
        format!("label = {quoted}"),
        format!("[capture]\n{quoted} = 1"),
        format!("[capture]\ngit = {quoted}"),
        format!("# {HOSTILE}"),
        format!("label = 1 {HOSTILE}"),
    ] {
        fs::write(hostile.sandbox.path("project/.safepoint.toml"), &text).unwrap();
        hostile.words(&["create"]);
        hostile.words(&["doctor"]);
        hostile.words(&["emergency"]);
    }
    fs::remove_file(hostile.sandbox.path("project/.safepoint.toml")).unwrap();
    // A branch may have nearly any name.
    let git = hostile.sandbox.path("project/.git");
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("refs/heads")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/odd\u{202e}\u{200b}\u{9b}\n").unwrap();
    for args in
        [&["create"][..], &["validate"], &["show", "@"], &["doctor"], &["rollback", "@", "--hard-reset"]]
    {
        hostile.words(args);
    }
    fs::write(
        git.join("config"),
        format!("[core]\n\trepositoryformatversion = 9{HOSTILE}\n[extensions]\n\tx = {HOSTILE}\n"),
    )
    .unwrap();
    hostile.words(&["create"]);
    hostile.words(&["validate"]);
}

#[test]
fn a_file_is_written_as_it_is_to_a_program_and_harmless_to_a_terminal() {
    let sandbox = Sandbox::new();
    let bytes = [HOSTILE.as_bytes(), "\ttab caf\u{e9}\n".as_bytes(), b"\x9b2J\xff"].concat();
    sandbox.write("file", &bytes);
    sandbox.run(&["create"]);
    assert_eq!(sandbox.output(&["cat", "@", "file"]).stdout, bytes, "a program gets the raw bytes");
    let seen = sandbox.terminal(sandbox.command(&["cat", "@", "file"]));
    check_harmless("cat", seen.replace(['\t'], "").replace("\nerror: done", "").as_bytes());
    assert!(seen.contains("caf\u{e9}\n") && seen.ends_with("\\x9b2J\\xff"), "{seen}");
}
