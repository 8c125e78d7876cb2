//! `install`, `uninstall`, and `doctor` for coding agents.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const SETTINGS: &str = "{\n    // mine\n    \"theme\": \"dark\"\n}\n";

/// Puts a program on the PATH of commands; returns the folder.
fn program(sandbox: &Sandbox, name: &str, script: &str) -> PathBuf {
    let folder = sandbox.path("bin");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Runs a command with a PATH.
fn run(sandbox: &Sandbox, path: &PathBuf, args: &[&str]) -> String {
    sandbox.told(&sandbox.command(args).env("PATH", path).output().unwrap())
}

fn settings(sandbox: &Sandbox) -> PathBuf {
    let path = sandbox.path("user/.claude/settings.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, SETTINGS).unwrap();
    path
}

#[test]
fn install_and_uninstall_restore_the_file() {
    let sandbox = Sandbox::new();
    let path = settings(&sandbox);
    assert_snapshot!(sandbox.run(&["install", "claude"]), @r"
    claude (user)
      modified   $T/user/.claude/settings.json
      created    $T/user/.claude.json
    --- exit 0
    ");
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(
            "{\n    // mine\n    \"theme\": \"dark\",\n    \"hooks\": {\n        \"SessionStart\""
        ),
        "{text}"
    );
    assert!(text.contains("/safepoint' hook claude) || out='{}'; printf %s"), "{text}");
    assert_snapshot!(sandbox.run(&["install", "claude"]), @r"
    claude (user)
      unchanged  $T/user/.claude/settings.json
      unchanged  $T/user/.claude.json
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["uninstall", "claude"]), @r"
    claude (user)
      modified   $T/user/.claude/settings.json
      removed    $T/user/.claude.json
    --- exit 0
    ");
    assert_eq!(fs::read_to_string(&path).unwrap(), SETTINGS);
    assert!(!sandbox.path("user/.claude.json").exists());
}

#[test]
fn a_dry_run_shows_the_difference_and_writes_nothing() {
    let sandbox = Sandbox::new();
    let path = settings(&sandbox);
    let told = sandbox.run(&["install", "claude", "--dry-run"]);
    assert!(told.contains("+++ $T/user/.claude/settings.json\n@@ -1,4 +1,"), "{told}");
    assert!(
        told.contains("-    \"theme\": \"dark\"\n+    \"theme\": \"dark\",\n+    \"hooks\": {\n"),
        "{told}"
    );
    assert!(told.contains("--- /dev/null\n+++ $T/user/.claude.json\n"), "{told}");
    assert_eq!(fs::read_to_string(&path).unwrap(), SETTINGS);
    assert!(!sandbox.path("home").exists() && !sandbox.path("user/.claude.json").exists());
}

#[test]
fn a_project_is_covered_from_its_top_without_a_path_of_this_machine() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("project/.git")).unwrap();
    fs::create_dir_all(sandbox.path("project/deep/er")).unwrap();
    assert!(sandbox.run(&["-C", "deep/er", "install", "all", "--project"]).ends_with("--- exit 0\n"));
    for file in [
        ".claude/settings.json",
        ".mcp.json",
        ".codex/hooks.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".github/hooks/safepoint.json",
        ".github/mcp.json",
        ".opencode/plugins/safepoint.js",
        "opencode.json",
        ".cursor/hooks.json",
        ".cursor/mcp.json",
    ] {
        let text = sandbox.read(file);
        assert!(text.contains("safepoint") && !text.contains("/target/"), "{file}: {text}");
    }
    assert!(sandbox.run(&["uninstall", "all", "--project"]).ends_with("--- exit 0\n"));
    let mut left: Vec<_> =
        fs::read_dir(sandbox.path("project")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".git", "deep"]);
}

#[test]
fn an_invalid_file_leaves_every_file_as_it_is() {
    let sandbox = Sandbox::new();
    let path = settings(&sandbox);
    fs::create_dir_all(sandbox.path("user/.cursor")).unwrap();
    fs::write(sandbox.path("user/.cursor/hooks.json"), "{\"hooks\": 5}").unwrap();
    assert_snapshot!(sandbox.run(&["install", "claude", "cursor"]), @r#"
    --- stderr
    error: cannot install: cannot edit $T/user/.cursor/hooks.json: "hooks" has an unexpected type
    Nothing was changed.
    hint: Correct $T/user/.cursor/hooks.json, then: safepoint install claude cursor
    --- exit 1
    "#);
    assert_eq!(fs::read_to_string(&path).unwrap(), SETTINGS);
    assert!(!sandbox.path("user/.claude.json").exists());
}

#[test]
fn without_a_name_agents_are_found_and_the_user_is_asked() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["install"]), @r"
    --- stderr
    error: cannot install: no coding agent is found
    Nothing was changed.
    hint: Name one: safepoint install claude
    --- exit 2
    ");
    let bin = program(&sandbox, "codex", "exit 1");
    settings(&sandbox);
    assert_snapshot!(run(&sandbox, &bin, &["install"]), @r"
    --- stderr
    error: cannot install: no agent is named; found: claude, codex
    Nothing was changed.
    hint: safepoint install claude codex
    --- exit 2
    ");
    let mut command = sandbox.command(&["install"]);
    command.env("PATH", &bin);
    let told = sandbox.typed(command, "y\n");
    assert!(told.contains("Install for claude, codex? [y/N]") && told.contains("codex (user)"), "{told}");
    assert!(run(&sandbox, &bin, &["uninstall"]).contains("hint: safepoint uninstall claude codex"));
    assert!(run(&sandbox, &bin, &["uninstall", "--yes"]).ends_with("--- exit 0\n"));
    assert!(run(&sandbox, &bin, &["install", "--detect"]).contains("codex (user)"));
    assert!(sandbox.run(&["install", "clod"]).contains("\"clod\" is not an agent"));
    let output = sandbox.command(&["-C", "../user", "install", "claude", "--project"]).output().unwrap();
    assert!(sandbox.told(&output).contains("the home directory is not a project"));
}

#[test]
fn doctor_reports_agents_with_the_fix() {
    let sandbox = Sandbox::with_checkpoint();
    let bin = program(&sandbox, "claude", "echo '2.1.325 (Claude Code)'");
    assert_snapshot!(run(&sandbox, &bin, &["doctor", "claude"]), @r"
    warning  claude    2.1.325 (Claude Code); installed: user no, project no; trust unknown; never seen
                       fix: safepoint install claude
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
    run(&sandbox, &bin, &["install", "claude"]);
    assert_snapshot!(run(&sandbox, &bin, &["doctor", "claude"]), @r"
    ok       claude    2.1.325 (Claude Code); installed: user yes, project no; trust unknown; never seen
    Everything is in order.
    --- exit 0
    ");
    let path = sandbox.path("user/.claude/settings.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"Stop\"", "\"Stopped\"", 1)).unwrap();
    assert_snapshot!(run(&sandbox, &bin, &["doctor", "claude"]), @r"
    problem  claude    2.1.325 (Claude Code); installed: user partly, project no; trust unknown; never seen
                       entries in the user settings are missing or outdated
                       fix: safepoint install claude
    1 problem, 0 warnings.
    --- exit 1
    ");
    run(&sandbox, &bin, &["install", "claude"]);
    assert!(run(&sandbox, &bin, &["doctor", "claude"]).ends_with("--- exit 0\n"));
}

#[test]
fn the_fix_for_an_invalid_settings_file_is_not_a_command_that_refuses_it() {
    let sandbox = Sandbox::new();
    let bin = program(&sandbox, "claude", "echo '2.1.325 (Claude Code)'");
    let path = settings(&sandbox);
    fs::write(&path, "{ \"hooks\": [").unwrap();
    let told = run(&sandbox, &bin, &["doctor", "claude"]);
    let fix = told.lines().find_map(|line| line.split("fix: ").nth(1)).unwrap();
    assert_eq!(
        fix, "${EDITOR:-vi} $T/user/.claude/settings.json    (correct it, then: safepoint install claude)",
        "{told}"
    );
    // What the fix says is enough.
    fs::write(&path, "{}").unwrap();
    assert!(run(&sandbox, &bin, &["install", "claude"]).ends_with("--- exit 0\n"));
    assert!(run(&sandbox, &bin, &["doctor", "claude"]).ends_with("--- exit 0\n"));
}

#[test]
fn doctor_reports_a_folder_in_which_gemini_runs_no_hooks_of_the_user() {
    let sandbox = Sandbox::new();
    let bin = program(&sandbox, "gemini", "echo 0.61.0");
    run(&sandbox, &bin, &["install", "gemini"]);
    assert!(run(&sandbox, &bin, &["doctor", "gemini"]).ends_with("--- exit 0\n"));
    let rules = serde_json::json!({ sandbox.path("project").to_str().unwrap(): "DO_NOT_TRUST" });
    fs::write(sandbox.path("user/.gemini/trustedFolders.json"), rules.to_string()).unwrap();
    let told = run(&sandbox, &bin, &["doctor", "gemini"]);
    assert!(told.contains("the folder $T/project is not trusted: no hooks run in it"), "{told}");
    assert!(told.contains("fix: cd $T/project && gemini    (then type /permissions and trust"), "{told}");
    assert!(told.ends_with("--- exit 1\n"), "{told}");
}

/// Answers like `codex app-server`, with the trust of a file.
const APP_SERVER: &str = r#"
[ "$1" = --version ] && { echo codex-cli 0.166.0; exit; }
read -r a; read -r b; read -r c
echo '{"id":1,"result":{}}'
echo 'not JSON'
printf '{"id":2,"result":{"data":[{"hooks":[{"command":"out=$(safepoint hook codex) || out='"'{}'"'; printf %%s \\"$out\\"","enabled":true,"trustStatus":"%s"}]}]}}\n' "$(read -r t < "$HOME/trust"; echo "$t")"
while read -r line; do :; done
"#;

#[test]
fn doctor_asks_codex_for_the_trust_in_hooks() {
    let sandbox = Sandbox::new();
    let bin = program(&sandbox, "codex", APP_SERVER);
    run(&sandbox, &bin, &["install", "codex"]);
    let trust = |word: &str| {
        fs::write(sandbox.path("user/trust"), format!("{word}\n")).unwrap();
        let output = sandbox.command(&["doctor", "codex", "--json"]).env("PATH", &bin).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["data"]["agents"][0]["trust"].as_str().unwrap().to_owned(), output.status.code())
    };
    assert_eq!(trust("trusted"), ("trusted".to_owned(), Some(0)));
    assert_eq!(trust("untrusted"), ("untrusted".to_owned(), Some(1)));
    assert_eq!(trust("modified"), ("untrusted".to_owned(), Some(1)));
    // A program that ends at once or says nothing of use is unknown, and no failure.
    program(&sandbox, "codex", "exit 1");
    assert_eq!(trust(""), ("unknown".to_owned(), Some(0)));
}

#[test]
fn print_writes_a_plugin_folder_and_a_snippet() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["install", "--print", "agents-md"]).starts_with("## Checkpoints\n"));
    let told = sandbox.run(&["install", "--print", "claude-plugin", "../plugin"]);
    assert!(told.contains("claude --plugin-dir $T/plugin\n--- exit 0"), "{told}");
    for name in [".claude-plugin/plugin.json", "hooks/hooks.json", ".mcp.json", "commands/safepoint.md"] {
        assert!(sandbox.path("plugin").join(name).is_file(), "{name}");
    }
    assert!(sandbox.run(&["install", "--print", "claude-plugin", "../plugin"]).ends_with("--- exit 1\n"));
    assert!(sandbox.run(&["install", "--print", "claude-plugin"]).ends_with("--- exit 2\n"));
    assert!(sandbox.run(&["install", "--print", "agents-md", "x"]).ends_with("--- exit 2\n"));
}

/// Runs an agent once in the project, against a scripted model.
fn run_agent(sandbox: &Sandbox, agent: &str, [lab, packages]: &[PathBuf; 2]) -> Value {
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("python3")
        .arg(lab.join("lab.py"))
        .args(["run", agent, "--limit", "110", "--scenario"])
        .arg(lab.join("scenarios/edits.json"))
        .args([PathBuf::from("--dir"), packages.clone()])
        .args([PathBuf::from("--project"), sandbox.path("project")])
        .args([PathBuf::from("--home"), sandbox.path("user")])
        .args(["--env", &format!("PATH={path}")])
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&output.stdout).ok();
    assert!(answer.is_some(), "{agent}: {output:?}");
    answer.unwrap()
}

/// `SAFEPOINT_LAB_AGENTS` is the folder in which `lab.py install` put the agents; `.ci/agents` sets it.
#[test]
#[ignore = "needs the real agents: .ci/agents"]
fn real_agents_run_with_our_settings_and_uninstall_removes_them() {
    let Some(packages) = std::env::var_os("SAFEPOINT_LAB_AGENTS").map(PathBuf::from) else {
        panic!("SAFEPOINT_LAB_AGENTS is not set");
    };
    let lab = [Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/agents-lab"), packages];
    for agent in ["claude", "codex", "gemini", "copilot", "opencode"] {
        for scope in ["--user", "--project"] {
            let sandbox = Sandbox::new();
            fs::create_dir_all(sandbox.path("project/.git")).unwrap();
            let real = sandbox.command(&["version"]).get_program().to_owned();
            // On PATH the program is a link while it installs, then a script that counts its calls.
            let bin = program(&sandbox, "safepoint", "");
            fs::remove_file(bin.join("safepoint")).unwrap();
            symlink(&real, bin.join("safepoint")).unwrap();
            let told = run(&sandbox, &bin, &["install", agent, scope]);
            assert!(told.ends_with("--- exit 0\n"), "{told}");
            fs::remove_file(bin.join("safepoint")).unwrap();
            let log = sandbox.path("calls");
            program(
                &sandbox,
                "safepoint",
                &format!("echo \"$1\" >> {}; exec {} \"$@\"", log.display(), real.display()),
            );
            let answer = run_agent(&sandbox, agent, &lab);
            assert_eq!(
                (&answer["exit"], &answer["turns_left"]["main"]),
                (&0.into(), &0.into()),
                "{agent}: {answer}"
            );
            let calls = fs::read_to_string(&log).unwrap();
            let count = |word: &str| calls.lines().filter(|line| *line == word).count();
            assert!(count("hook") >= 8 && count("mcp") >= 1, "{agent} {scope}: {calls}");
            assert!(run(&sandbox, &bin, &["uninstall", agent, scope]).ends_with("--- exit 0\n"));
            let state = sandbox.json(&["doctor", agent, "--json"]);
            let state = &state["data"]["agents"][0];
            assert_eq!((&state["user"], &state["project"]), (&"no".into(), &"no".into()), "{state}");
        }
    }
}
