//! `doctor`: checks of everything that Safepoint relies on.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Status of a check by its name.
fn status<'a>(value: &'a Value, name: &str) -> &'a str {
    let checks = value["data"]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()["status"].as_str().unwrap()
}

#[test]
fn everything_is_in_order() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["doctor"]), @"
    ok       home              $T/home and all in it (N files and folders) are yours alone
    ok       store             it opens: 10 objects, SIZE in 1 pack
    ok       catalog           every page, reference and row is in order
    ok       history           2 events in an unbroken chain
    ok       workspace         $T/project is registered and there
    ok       own_folder        nothing stands where rollbacks prepare files (.safepoint)
    ok       exchange          two files are exchanged in one step
    ok       no_replace        a move replaces nothing that is there
    ok       leases            the kernel tells who has your files open
    ok       case              names that differ only in case are two names
    ok       repository        no git repository is missing
    ok       attempts          attempts are overlays at the project's own path
    ok       workspace_space   SIZE free on the disk of $T/project
    ok       unfinished        nothing was left half done
    ok       configuration     every setting is understood
    ok       other_workspaces  there are no others
    ok       sqlite            version N, built in
    ok       home_space        SIZE free on the disk of $T/home
    ok       open_files        up to N at once
    Everything is in order.
    --- exit 0
    ");
    assert_snapshot!(sandbox.json_text(&["doctor", "--json"]), @r#"
    {
      "command": "doctor",
      "data": {
        "agents": [],
        "checks": [
          {
            "hint": null,
            "message": "$T/home and all in it (N files and folders) are yours alone",
            "name": "home",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "it opens: 10 objects, SIZE in 1 pack",
            "name": "store",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "every page, reference and row is in order",
            "name": "catalog",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "2 events in an unbroken chain",
            "name": "history",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "$T/project is registered and there",
            "name": "workspace",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "nothing stands where rollbacks prepare files (.safepoint)",
            "name": "own_folder",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "two files are exchanged in one step",
            "name": "exchange",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "a move replaces nothing that is there",
            "name": "no_replace",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "the kernel tells who has your files open",
            "name": "leases",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "names that differ only in case are two names",
            "name": "case",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "no git repository is missing",
            "name": "repository",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "attempts are overlays at the project's own path",
            "name": "attempts",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "SIZE free on the disk of $T/project",
            "name": "workspace_space",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "nothing was left half done",
            "name": "unfinished",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "every setting is understood",
            "name": "configuration",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "there are no others",
            "name": "other_workspaces",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "version N, built in",
            "name": "sqlite",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "SIZE free on the disk of $T/home",
            "name": "home_space",
            "status": "ok"
          },
          {
            "hint": null,
            "message": "up to N at once",
            "name": "open_files",
            "status": "ok"
          }
        ]
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:02:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    Everything is in order.
    --- exit 0
    ");
}

#[test]
fn before_the_first_checkpoint_there_is_little_to_look_at() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["doctor"]), @"
    warning  home        $T/home does not exist yet
                         hint: `safepoint create` in a project makes it.
    ok       sqlite      version N, built in
    ok       home_space  SIZE free on the disk of $T
    ok       open_files  up to N at once
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
    assert!(!sandbox.path("home").exists(), "doctor creates nothing");
    sandbox.run(&["init"]);
    let mut command = sandbox.command(&["doctor", "-q"]);
    let output = command.current_dir(sandbox.path("user")).output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    warning  workspace         no workspace is registered at or above $T/user
                               hint: `safepoint create` in a project registers it.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
}

#[test]
fn a_home_that_others_can_read_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    let open = |path: &str, mode: u32| {
        fs::set_permissions(sandbox.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    open("home/catalog.db", 0o644);
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    warning  home              1 thing in $T/home is readable by others if they get there, such as $T/home/catalog.db
                               hint: Close them with `chmod -R go= $T/home`.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
    open("home", 0o755);
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  home              others could look into $T/home, where everything that you checkpointed is
                               hint: Opening it has closed it. Change what was secret in your projects, if others use this machine.
    1 problem, 0 warnings.
    --- exit 3
    ");
    assert_eq!(status(&sandbox.json(&["doctor", "--json"]), "home"), "ok", "every command makes it private");
}

#[test]
fn a_copy_that_a_plan_works_in_is_not_part_of_the_home() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("plan.toml", "title = 'T'\nid = 'work'\nsandbox = { kind = 'copy' }\n[[step]]\nid = 'a'\n");
    sandbox.run(&["plan", "new", "plan.toml"]);
    sandbox.run(&["plan", "step", "start", "work", "a"]);
    assert!(sandbox.path("home/sandboxes/work/project/run.sh").exists());
    assert_eq!(status(&sandbox.json(&["doctor", "--json"]), "home"), "ok");
}

#[test]
fn a_file_system_that_can_do_less_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    let mut command = sandbox.command(&["doctor", "-q"]);
    let output = command.env("SAFEPOINT_TEST_WITHOUT", "exchange,noreplace,leases").output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    warning  exchange          this file system cannot exchange two files atomically: a file is briefly missing during a rollback; recovery after a crash is not affected
                               hint: A rollback goes another way. ext4, xfs, btrfs and tmpfs can do it.
    warning  no_replace        this file system cannot rename without replacing: a file that another program creates at the moment of a rollback could be replaced
                               hint: A rollback goes another way. ext4, xfs, btrfs and tmpfs can do it.
    warning  leases            this file system does not report open files: a file that a rollback replaced is kept until no program can write to it
                               hint: A rollback goes another way. ext4, xfs, btrfs and tmpfs can do it.
    Nothing is wrong; 3 warnings.
    --- exit 0
    ");
}

#[test]
fn folders_that_are_gone_are_told() {
    let sandbox = Sandbox::with_checkpoint();
    fs::create_dir(sandbox.path("other")).unwrap();
    sandbox.run(&["-C", "../other", "create"]);
    fs::remove_dir(sandbox.path("other")).unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    warning  other_workspaces  1 of 1 other workspace gone: $T/other
                               hint: Was a folder deleted or moved? Its checkpoints are safe: make it again and roll back, if you want it.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["-C", "../other", "doctor", "-q"]), @"
    problem  workspace         $T/other is gone
                               hint: Its checkpoints are safe. Make the folder again (mkdir $T/other) and roll back.
    1 problem, 0 warnings.
    --- exit 3
    ");
}

#[test]
fn a_busy_workspace_is_no_problem() {
    let sandbox = Sandbox::with_checkpoint();
    let folder = fs::File::open(sandbox.path("project")).unwrap();
    folder.lock().unwrap();
    let mut command = sandbox.command(&["doctor", "-q"]);
    let output = command.env("SAFEPOINT_TEST_LOCK_WAIT_MS", "20").output().unwrap();
    assert_snapshot!(sandbox.told(&output), @"
    warning  file_system       another Safepoint process is using $T/project
                               hint: Ask again when it has finished.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
}

#[test]
fn what_still_waits_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let junk = fs::OpenOptions::new().append(true).open(sandbox.path("project/junk.log")).unwrap();
    sandbox.run(&["rollback", "@"]);
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    warning  unfinished        rollback 01KG9YV2300QJS22HDXJ4G4Q61 is done; files that it displaced still wait to be looked at
                               hint: `safepoint recover` looks at them; a program that has one open has to close it first.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
    drop(junk);
    // A program started by another test may hold the file until its exec, so this retries.
    let told = (0..100).map(|_| sandbox.run(&["recover"])).find(|told| !told.contains("may be open"));
    assert!(told.is_some());
    assert_eq!(status(&sandbox.json(&["doctor", "--json"]), "unfinished"), "ok");
}

#[test]
fn settings_that_cannot_be_used_are_a_problem() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepoint.toml", "[retension]\n");
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  configuration     unknown key `retension` in .safepoint.toml line 1: did you mean `retention`?
                               hint: Fix the line that the message names, and try again.
    1 problem, 0 warnings.
    --- exit 3
    ");
}

#[test]
fn damage_is_a_problem() {
    let sandbox = Sandbox::with_checkpoint();
    let format = sandbox.path("home/store/format");
    let whole = fs::read(&format).unwrap();
    fs::write(&format, "something else").unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  store       cannot read the format of the store: $T/home/store/format is invalid
                         hint: Name another home with --home, or put the right file back.
    1 problem, 0 warnings.
    --- exit 3
    ");
    fs::write(&format, whole).unwrap();
    for log in ["home/catalog.db-wal", "home/catalog.db-shm"] {
        fs::remove_file(sandbox.path(log)).ok();
    }
    fs::write(sandbox.path("home/catalog.db"), "not a database, but long enough to look like one".repeat(99))
        .unwrap();
    let told = sandbox.run(&["doctor"]);
    assert!(
        told.contains("ok       store")
            && told.contains("problem  catalog")
            && told.ends_with("--- exit 3\n"),
        "{told}"
    );
}

#[test]
fn a_home_that_is_no_folder_is_a_problem() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("home"), "a file").unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  home        $T/home cannot be looked at: not a directory
                         hint: Name a folder that you may write with --home or SAFEPOINT_HOME.
    1 problem, 0 warnings.
    --- exit 3
    ");
}

#[test]
fn too_few_open_files_are_told() {
    let sandbox = Sandbox::with_checkpoint();
    let program = sandbox.command(&["doctor"]).get_program().to_owned();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -n 512; exec \"$0\" doctor -q"]).arg(program);
    shell
        .current_dir(sandbox.path("project"))
        .env("HOME", sandbox.path("user"))
        .env("PATH", "/nowhere")
        .env("SAFEPOINT_HOME", sandbox.path("home"))
        .env("NO_COLOR", "1");
    assert_snapshot!(sandbox.told(&shell.output().unwrap()), @"
    warning  open_files        this process may open only 512 files at once; a deep tree needs more
                               hint: Raise the limit, for instance with `ulimit -n 4096`.
    Nothing is wrong; 1 warning.
    --- exit 0
    ");
}

#[test]
fn a_catalog_that_was_tampered_with_is_told_with_the_place() {
    let sandbox = Sandbox::with_checkpoint();
    let catalog = rusqlite::Connection::open(sandbox.path("home/catalog.db")).unwrap();
    catalog.execute("UPDATE checkpoints SET kind = 'nonsense'", []).unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @r#"
    problem  catalog           1 thing is wrong, the first: the catalog is damaged: checkpoints 01KG9YS9EGCQT0DH2X3200JHAF: kind: "nonsense" is not a kind: expected one of automatic, manual, workflow, emergency
                               hint: `safepoint validate --deep` shows which checkpoints are still whole. Keep a copy of the home before you go on.
    1 problem, 0 warnings.
    --- exit 3
    "#);
    catalog.execute("UPDATE checkpoints SET kind = 'manual'", []).unwrap();
    catalog.execute("UPDATE events SET payload = '{}' WHERE seq = 2", []).unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  catalog           2 things are wrong, the first: event 2: its content was changed
                               hint: `safepoint validate --deep` shows which checkpoints are still whole. Keep a copy of the home before you go on.
    problem  history           the chain is broken at event 2: its content was changed
                               hint: Another program changed the catalog. `safepoint validate --deep` shows what can be trusted.
    2 problems, 0 warnings.
    --- exit 3
    ");
}

#[test]
fn a_rollback_that_was_cut_short_is_a_problem_and_seen_in_the_graph() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "first"]);
    let catalog = rusqlite::Connection::open(sandbox.path("home/catalog.db")).unwrap();
    // States after a kill during the rollback and during its undo.
    catalog.execute("UPDATE rollbacks SET state = 'applying'", []).unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  unfinished        rollback 01KG9YV2300QJS22HDXJ4G4Q61 was cut short, or is still at work
                               hint: `safepoint recover` restores the state before it; the next command would do so too.
    1 problem, 0 warnings.
    --- exit 3
    ");
    assert_snapshot!(sandbox.run(&["list", "--graph"]), @"
    .  01KG9YV4  1 minute ago   rollback -> 01KG9YS9 first (unfinished)
    *  01KG9YS9  2 minutes ago  first
    * is where the workspace is now
    --- exit 0
    ");
    catalog.execute("UPDATE rollbacks SET state = 'aborted'", []).unwrap();
    assert_snapshot!(sandbox.run(&["list", "--graph"]), @"
    .  01KG9YV4  2 minutes ago  rollback -> 01KG9YS9 first (failed; everything was restored)
    *  01KG9YS9  3 minutes ago  first
    * is where the workspace is now
    --- exit 0
    ");
}

#[test]
fn what_others_own_in_the_home_is_a_problem() {
    // Only root can change owners.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sandbox = Sandbox::with_checkpoint();
    std::os::unix::fs::lchown(sandbox.path("home/store/format"), Some(65_534), None).unwrap();
    assert_snapshot!(sandbox.run(&["doctor", "-q"]), @"
    problem  home        1 thing in $T/home is not yours, such as $T/home/store/format
                         hint: Take them over with `chown -R` if they should be, or name another home with --home. $T/home may hold another user's checkpoints.
    problem  store       cannot open the store $T/home/store: $T/home/store/format belongs to user 65534
                         hint: Fix the cause, then try again. If Safepoint's home is not yours, name another one with --home or SAFEPOINT_HOME.
    2 problems, 0 warnings.
    --- exit 3
    ");
}
