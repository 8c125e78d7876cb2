//! Completion: candidates for each argument, in real shells.

use crate::sandbox::Sandbox;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

const SESSION: &str = "7d9f3c1e-5b1a-4c0e-9f3a-0c1d2e3f4a5b";

/// Project with two checkpoints, a plan, a session and an agent.
fn furnished() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "more\n");
    sandbox.run(&["create", "-m", "tests pass"]);
    sandbox.run(&["plan", "new", "--title", "Rate limits", "--id", "limits"]);
    sandbox.run(&["session", "create", "Add limits", "--session-id", SESSION]);
    let memory = sandbox.path("memory");
    fs::create_dir(&memory).unwrap();
    sandbox.run(&["agent", "register", "claude", "--memory", memory.to_str().unwrap()]);
    sandbox
}

/// The candidates after these words, the last of which is unfinished.
fn candidates(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let output = sandbox.output(&[&["__complete", "--"], words].concat());
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{words:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn candidates_fit_the_argument() {
    let sandbox = furnished();
    let first = "01KG9YS9\tfirst, ";
    let begins = |words: &[&str], wanted: &[&str]| {
        let found = candidates(&sandbox, words);
        for wanted in wanted {
            assert!(found.iter().any(|one| one.starts_with(wanted)), "{words:?}: {wanted} not in {found:#?}");
        }
        found
    };
    for words in [
        &["show", ""][..],
        &["rollback", ""],
        &["diff", ""],
        &["diff", "@", ""],
        &["restore", ""],
        &["delete", "01KG9YV2", ""],
        &["pin", ""],
        &["cat", ""],
        &["export", ""],
        &["validate", ""],
        &["show", "--checkpoint-id", ""],
        &["rollback", "--dry-run", "01kg9ys"],
        &["-q", "checkpoint", "show", ""],
    ] {
        begins(words, &[first]);
    }
    assert_eq!(begins(&["show", "fi"], &["first\t01KG9YS9, "]).len(), 1);
    assert!(begins(&["rollback", "@", ""], &[":files"]).iter().any(|one| one == ":files"));
    assert_eq!(candidates(&sandbox, &["diff", "--", ""]), [":files"]);
    assert_eq!(candidates(&sandbox, &["undo", ""]), [":files"]);
    assert_eq!(candidates(&sandbox, &["rollback", "@", "--path", ""]), [":files"]);
    begins(&["plan", "show", ""], &["limits\tRate limits, "]);
    begins(&["list", "--plan", "li"], &["limits\t"]);
    begins(&["list", "--plan=li"], &["--plan=limits\t"]);
    begins(&["list", "--plan", "=", "li"], &["limits\t"]);
    begins(&["session", "get", ""], &[SESSION]);
    begins(&["create", "--session-id", "7d"], &[SESSION]);
    begins(&["agent", "show", ""], &["claude"]);
    begins(&["create", "--kind", ""], &["manual", "automatic"]);
    begins(&["create", "--color", "a"], &["auto", "always"]);
    begins(&["roll"], &["rollback\t"]);
    begins(&["plan", "checkpoint", ""], &["create\t", "list\t"]);
    begins(&["rollback", "--d"], &["--dry-run\t"]);
    begins(&["man", "roll"], &["rollback\t"]);
    // Free text, and values that are nowhere on record.
    for words in [&["create", "-m", ""][..], &["run", "--rollback-on-fail", "-m", ""], &["list", "-n", ""]] {
        assert_eq!(candidates(&sandbox, words), Vec::<String>::new(), "{words:?}");
    }
    // Another folder and another home.
    let elsewhere = sandbox.path("user");
    let project = sandbox.path("project");
    let mut command = sandbox.command(&["__complete", "--", "-C", project.to_str().unwrap(), "show", ""]);
    let output = command.current_dir(&elsewhere).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(first), "{output:?}");
}

#[test]
fn completion_never_fails_and_never_makes_a_home() {
    let sandbox = Sandbox::new();
    for words in
        [&["show", ""][..], &[], &[""], &["--"], &["-"], &["--home"], &["--home", ""], &["é=", "\u{1b}["]]
    {
        candidates(&sandbox, words);
    }
    assert!(!sandbox.path("home").exists());
    let sandbox = furnished();
    fs::write(sandbox.path("home/catalog.db"), "no database").unwrap();
    assert_eq!(candidates(&sandbox, &["plan", "show", ""]), Vec::<String>::new());
    let none = sandbox.command(&["__complete", "--", "show", ""]).env_remove("HOME").output().unwrap();
    assert!(none.status.success() && none.stderr.is_empty());
    // A label cannot act on the terminal.
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "-m", "a\u{1b}[2Jb"]);
    let found = candidates(&sandbox, &["show", ""]).concat();
    assert!(found.contains("a\\u{1b}[2Jb") && !found.contains('\u{1b}'), "{found}");
}

/// A shell with the program in its PATH; none where the shell is not installed.
fn shell(sandbox: &Sandbox, shell: &str, script: &str) -> Option<Output> {
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_safepoint"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.parent().unwrap().display());
    let like = sandbox.command(&["version"]);
    let mut command = Command::new(shell);
    command.args(["-c", script]).env_clear().current_dir(sandbox.path("project"));
    like.get_envs().for_each(|(name, value)| {
        command.env(name, value.unwrap());
    });
    match command.env("PATH", path).output() {
        Ok(output) => Some(output),
        Err(_) => {
            // Past the capture of the test harness: a completion that was not tried is no success.
            let _ = writeln!(
                std::io::stderr(),
                "\n== SKIPPED: completion in {shell} is NOT tested, because {shell} is not installed (apt-get install {shell})"
            );
            None
        }
    }
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_checkpoints_plans_and_paths() {
    let sandbox = furnished();
    sandbox.write("a file", "");
    let complete = |words: &str, count: usize| {
        let script = format!(
            "source <(safepoint completions bash)\nCOMP_WORDS=(safepoint {words}) COMP_CWORD={count} COMP_TYPE=9\n\
             _safepoint\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        lines(&shell(&sandbox, "bash", &script).unwrap())
    };
    let found = complete("show ''", 2);
    assert!(found.iter().any(|one| one.starts_with("01KG9YS9  (first, ")), "{found:#?}");
    assert_eq!(complete("show 01KG9YS", 2), ["01KG9YS9"]);
    assert_eq!(complete("plan run lim", 3), ["limits"]);
    assert_eq!(complete("diff -- 'a f'", 3), ["a file"]);
    let found = complete("rollback ''", 2);
    assert!(
        found.iter().any(|one| one == "01KG9YS9") && found.iter().any(|one| one == "notes.txt"),
        "{found:#?}"
    );
    assert_eq!(complete("rollb", 1), ["rollback"]);
    assert_eq!(complete("session get 7d", 3), [SESSION]);
}

#[test]
fn zsh_offers_checkpoints_and_plans() {
    let sandbox = furnished();
    // Without a terminal the functions of the completion system are told instead of shown.
    let script = "_describe() { shift; [[ $1 == value ]] && shift; print -l -- ${(P)1} }\n\
         compadd() { print -l -- ${(P)2} }\n_files() { print files }\ncompdef() { }\n\
         source =(safepoint completions zsh)\n\
         complete() { words=(safepoint \"$@\"); CURRENT=${#words}; _safepoint }\n\
         complete show ''; complete plan run lim; complete diff -- ''; complete rollb";
    let Some(output) = shell(&sandbox, "zsh", script) else { return };
    let found = lines(&output);
    for wanted in ["01KG9YS9:first, ", "limits:Rate limits, ", "files", "rollback:"] {
        assert!(found.iter().any(|one| one.starts_with(wanted)), "{wanted} not in {found:#?}");
    }
}

#[test]
fn fish_offers_checkpoints_and_plans() {
    let sandbox = furnished();
    let script = "safepoint completions fish | source\ncomplete -C 'safepoint show '\n\
         complete -C 'safepoint plan run lim'\ncomplete -C 'safepoint diff -- no'\ncomplete -C 'safepoint rollb'";
    let Some(output) = shell(&sandbox, "fish", script) else { return };
    let found = lines(&output);
    for wanted in ["01KG9YS9\tfirst, ", "limits\tRate limits, ", "notes.txt", "rollback\t"] {
        assert!(found.iter().any(|one| one.starts_with(wanted)), "{wanted} not in {found:#?}");
    }
    sandbox.run(&["create", "-m", "second"]);
    let Some(output) = shell(&sandbox, "fish", script) else { return };
    let found = lines(&output);
    let at = |label: &str| found.iter().position(|one| one.contains(&format!("\t{label}, ")));
    assert!(at("second").unwrap() < at("first").unwrap(), "newest first: {found:#?}");
}
