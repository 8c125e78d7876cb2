//! Pager: on a terminal only, chosen by the user, and never a program of the workspace.

use crate::sandbox::Sandbox;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Writes a program that says its name, and shows what it is given.
fn program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Project with checkpoints, and the pagers `less` and `mine` in the folder `bin`.
fn with_pagers() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    program(&sandbox.path("bin/less"), "echo \"<less $LESS>\"; cat; echo '</less>'");
    program(&sandbox.path("bin/mine"), "echo \"<mine $*>\"; cat; echo '</mine>'");
    sandbox
}

/// Command with a terminal that can show a pager.
fn able(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command(args);
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    command.env("TERM", "xterm").env("PATH", path);
    command
}

#[test]
fn long_answers_go_through_less_on_a_terminal() {
    let sandbox = with_pagers();
    sandbox.wreck();
    sandbox.run(&["plan", "new", "--title", "By hand", "--id", "hand"]);
    for args in [
        &["list"][..],
        &["log"],
        &["list", "--graph"],
        &["show", "@"],
        &["diff"],
        &["history"],
        &["plan", "log", "hand"],
    ] {
        let seen = sandbox.terminal(able(&sandbox, args));
        assert!(seen.starts_with("<less FRX>\n") && seen.ends_with("</less>\n"), "{args:?}: {seen}");
        let plain = sandbox.terminal(able(&sandbox, &[args, &["--no-pager"]].concat()));
        assert!(!plain.contains("less") && !plain.is_empty(), "{args:?}: {plain}");
        let output = able(&sandbox, args).output().unwrap();
        assert!(!sandbox.told(&output).contains("<less"), "{args:?}: standard output is no terminal");
        let json = sandbox.terminal(able(&sandbox, &[args, &["--json"]].concat()));
        assert!(json.starts_with('{'), "{args:?}: {json}");
    }
    for args in [&["status"][..], &["create"], &["summary"], &["version"]] {
        let seen = sandbox.terminal(able(&sandbox, args));
        assert!(!seen.contains("less"), "{args:?}: {seen}");
    }
}

#[test]
fn the_user_chooses_the_pager() {
    let sandbox = with_pagers();
    let seen = |variables: &[(&str, &str)]| {
        let mut command = able(&sandbox, &["list"]);
        command.envs(variables.iter().copied());
        sandbox.terminal(command)
    };
    assert!(seen(&[("PAGER", "mine -a b")]).starts_with("<mine -a b>\n"));
    assert!(seen(&[("PAGER", "less"), ("SAFEPOINT_PAGER", "mine")]).starts_with("<mine >\n"));
    assert!(seen(&[("LESS", "-S")]).starts_with("<less -S>\n"), "the user's own options stay");
    for (name, value) in [
        ("PAGER", "cat"),
        ("PAGER", ""),
        ("SAFEPOINT_PAGER", ""),
        ("SAFEPOINT_PAGER", "no-such-program"),
        ("TERM", "dumb"),
    ] {
        let plain = seen(&[(name, value)]);
        assert!(plain.contains("first") && !plain.contains('<'), "{name}={value}: {plain}");
    }
}

#[test]
fn a_program_of_the_workspace_is_never_the_pager() {
    let sandbox = with_pagers();
    let trap = format!("touch {}; cat", sandbox.path("sprung").display());
    for name in ["bin/less", "bin/man", "src/less", "less"] {
        program(&sandbox.path("project").join(name), &trap);
    }
    fs::create_dir(sandbox.path("linked")).unwrap();
    symlink(sandbox.path("project/bin/less"), sandbox.path("linked/less")).unwrap();
    symlink(sandbox.path("project/bin"), sandbox.path("alias")).unwrap();
    let project = sandbox.path("project");
    let folder = |name: &str| sandbox.path(name).to_str().unwrap().to_owned();
    for path in [
        "bin".to_owned(),
        ".".to_owned(),
        String::new(),
        folder("project/bin"),
        folder("linked"),
        folder("alias"),
    ] {
        for (place, args) in
            [("", &["list"][..]), ("src", &["list"]), ("src", &["list", "--all"]), ("src", &["man", "list"])]
        {
            let mut command = able(&sandbox, args);
            command.env("PATH", format!("{path}:")).current_dir(project.join(place));
            let seen = sandbox.terminal(command);
            assert!(!sandbox.path("sprung").exists(), "PATH={path} in {place:?}: {seen}");
            assert!(seen.contains("first") || seen.contains("List checkpoints"), "{seen}");
        }
    }
    for pager in ["./less", "bin/less", project.join("bin/less").to_str().unwrap()] {
        let mut command = able(&sandbox, &["list"]);
        command.env("SAFEPOINT_PAGER", pager);
        let seen = sandbox.terminal(command);
        assert!(seen.contains("first") && !sandbox.path("sprung").exists(), "{pager}: {seen}");
    }
    // The same path is fine where it is not in the workspace.
    let mut command = able(&sandbox, &["list"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", folder("project/bin") + ":" + &folder("bin")));
    assert!(sandbox.terminal(command).starts_with("<less FRX>\n"));
}

#[test]
fn a_pager_that_ends_early_is_no_failure_and_messages_come_after_it() {
    let sandbox = with_pagers();
    sandbox.write("large", "a line of text\n".repeat(100_000));
    program(&sandbox.path("bin/less"), "head -n 1; echo '<end>'");
    let on_terminal = |words: &str| {
        let like = able(&sandbox, &["version"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{} {words}; echo exit $?", env!("CARGO_BIN_EXE_safepoint"))]);
        command.env_clear().current_dir(sandbox.path("project"));
        like.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap());
        });
        sandbox.terminal(command)
    };
    let seen = on_terminal("diff");
    assert!(seen.ends_with("<end>\nexit 0\n") && !seen.contains("error"), "{seen}");
    // A warning waits until the screen is free again.
    let catalog = ["catalog.db", "catalog.db-wal"].map(|name| sandbox.path("home").join(name));
    let older = catalog.each_ref().map(|file| fs::read(file).unwrap());
    sandbox.run(&["create", "-m", "second"]);
    catalog.iter().zip(older).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    fs::remove_file(sandbox.path("home/catalog.db-shm")).unwrap();
    let seen = on_terminal("list");
    let (end, warning) = (seen.find("<end>").unwrap(), seen.find("warning: the catalog").unwrap());
    assert!(warning > end && seen.ends_with("exit 0\n"), "{seen}");
    let seen = on_terminal("show nothing");
    assert!(seen.contains("\nerror:") && seen.ends_with("exit 10\n"), "{seen}");
}
