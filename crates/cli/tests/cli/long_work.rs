//! Long work: the question before a large first checkpoint, and progress on terminals.

use crate::sandbox::Sandbox;
use std::fs;
use std::process::Command;

/// Project with many small files in folders that tools can make again.
fn bulky() -> Sandbox {
    let sandbox = Sandbox::new();
    for number in 0..30 {
        sandbox.write(&format!("web/node_modules/m{number}/index.js"), "x");
        sandbox.write(&format!("build/o{number}"), "x");
    }
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox
}

/// The first checkpoint of a folder that counts as large.
fn create(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command(&[&["create"], args].concat());
    command.env("SAFEPOINT_TEST_BULK_ENTRIES", "50");
    command
}

fn captured(sandbox: &Sandbox) -> u64 {
    sandbox.json(&["list", "--json"])["data"]["checkpoints"][0]["files"]["count"].as_u64().unwrap()
}

#[test]
fn the_first_checkpoint_of_a_large_folder_offers_to_leave_folders_out() {
    let sandbox = bulky();
    let seen = sandbox.typed(create(&sandbox, &[]), "3\n1\n");
    assert!(seen.contains("the first checkpoint reads 94 files and folders"), "{seen}");
    assert!(
        seen.contains("1  node_modules/ (61 entries") && seen.contains("2  build/ (31 entries"),
        "{seen}"
    );
    assert!(seen.contains("Type numbers from the list"), "{seen}");
    assert_eq!(sandbox.read(".safepointignore"), "node_modules/\n");
    // The folder `web`, the folder `build` with 30 files, and two files at the top.
    assert_eq!(captured(&sandbox), 34);
    sandbox.write("main.rs", "fn main() { }\n");
    let seen = sandbox.typed(create(&sandbox, &[]), "");
    assert!(!seen.contains("first checkpoint"), "only the first one asks: {seen}");
}

#[test]
fn chosen_folders_are_appended_to_the_rules_of_the_workspace() {
    let sandbox = bulky();
    sandbox.write(".safepointignore", "*.log");
    let seen = sandbox.typed(create(&sandbox, &[]), "all\n");
    assert!(seen.contains("Added to .safepointignore: node_modules/, build/."), "{seen}");
    assert_eq!(sandbox.read(".safepointignore"), "*.log\nnode_modules/\nbuild/\n");
}

#[test]
fn a_refused_offer_captures_everything() {
    let sandbox = bulky();
    sandbox.typed(create(&sandbox, &[]), "\n");
    assert!(!sandbox.path("project/.safepointignore").exists());
    assert_eq!(captured(&sandbox), 94);
}

#[test]
fn without_a_terminal_a_large_first_checkpoint_warns_and_goes_on() {
    let sandbox = bulky();
    let output = create(&sandbox, &["--json"]).output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["data"]["checkpoint"]["files"]["count"], 94);
    let warned = answer["messages"].to_string();
    assert!(warned.contains("the first checkpoint reads 94 files and folders"), "{warned}");
    assert!(warned.contains("list them in .safepointignore: node_modules/ (61 entries"), "{warned}");
    assert!(!sandbox.path("project/.safepointignore").exists());
}

#[test]
fn a_link_in_the_place_of_the_rules_is_not_written_through() {
    let sandbox = bulky();
    fs::write(sandbox.path("outside"), "mine\n").unwrap();
    std::os::unix::fs::symlink(sandbox.path("outside"), sandbox.path("project/.safepointignore")).unwrap();
    let seen = sandbox.typed(create(&sandbox, &[]), "1\n");
    assert!(seen.contains("cannot replace .safepointignore"), "{seen}");
    assert_eq!(fs::read_to_string(sandbox.path("outside")).unwrap(), "mine\n");
}

#[test]
fn the_log_goes_to_standard_error_or_a_file_and_never_into_json() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let logged = |filter: &str, file: Option<&str>| {
        let mut command = sandbox.command(&["create", "--json", "--kind", "manual"]);
        command.env("SAFEPOINT_LOG", filter);
        file.map(|file| command.env("SAFEPOINT_LOG_FILE", sandbox.path(file)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{filter}");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (String::from_utf8(output.stderr).unwrap(), answer["messages"].to_string())
    };
    let (told, _) = logged("debug", None);
    for line in ["INFO  verb: create [", "DEBUG part: capture files ", "DEBUG store: flush pack ", " took "] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let (told, _) = logged("info", None);
    assert!(told.contains("verb: create") && !told.contains("DEBUG"), "{told}");
    let (told, _) = logged("store=debug", Some("log"));
    assert_eq!(told, "");
    sandbox.write("a", "2");
    logged("store=debug", Some("log"));
    let log = fs::read_to_string(sandbox.path("log")).unwrap();
    assert!(log.contains("store: flush pack") && !log.contains("verb:"), "{log}");
    let (told, messages) = logged("nonsense", None);
    assert!(!told.contains("verb:") && messages.contains("is not a level"), "{told} {messages}");
    let (_, messages) = logged("debug", Some("no/such/folder"));
    assert!(messages.contains("cannot write the log to"), "{messages}");
}
