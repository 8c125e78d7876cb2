//! Agents, checkpoints of everything, and rollbacks that run a check first.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;

fn data(sandbox: &Sandbox, args: &[&str]) -> Value {
    let answer = sandbox.json(&[args, &["--json"]].concat());
    assert_eq!(answer["status"], "ok", "{answer:#}");
    answer["data"].clone()
}

/// Two projects and an agent.
fn world() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("../other/file", "other");
    sandbox.write("../agent/settings.json", "{}");
    sandbox.write("../agent/sibling", "not the agent's");
    sandbox.write("../agent/memory/notes.md", "remember");
    sandbox.run(&["-C", "../other", "init"]);
    sandbox
}

#[test]
fn an_agent_is_bound_to_a_folder_and_to_another_one() {
    let sandbox = world();
    let register = ["agent", "register", "claude", "--memory", "../agent/memory", "--workspace", "."];
    assert_snapshot!(sandbox.run(&register), @r"
    Agent claude
      memory $T/agent/memory
      bound to $T/project
    Take a checkpoint of it with: safepoint create --scope agent --agent claude
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["agent", "list"]), @r"
    claude  1 path, bound to $T/project, changed 58 seconds ago
    --- exit 0
    ");
    // A folder that is not registered yet is registered; one that is missing registers nothing.
    fs::create_dir(sandbox.path("third")).unwrap();
    sandbox.run(&["agent", "register", "claude", "--workspace", "../third"]);
    let shown = data(&sandbox, &["agent", "show", "claude"]);
    assert_eq!(shown["agent"]["workspace"], sandbox.path("third").to_str().unwrap());
    let status = data(&sandbox, &["-C", "../third", "status"]);
    assert_eq!(status["workspace"]["id"], shown["agent"]["workspace_id"]);
    let missing = sandbox.run(&["agent", "register", "new", "--workspace", "../missing"]);
    assert!(missing.contains("error: cannot register agent \"new\""), "{missing}");
    assert!(sandbox.run(&["agent", "show", "new"]).ends_with("--- exit 10\n"));
}

#[test]
fn a_folder_goes_back_with_the_memory_of_its_agents() {
    let sandbox = world();
    sandbox.run(&["agent", "register", "claude", "--memory", "../agent/memory", "--workspace", "."]);
    let told = sandbox.run(&["create", "-m", "with"]);
    assert!(told.contains("  agents: claude\n"), "{told}");
    let told = sandbox.run(&["show", "with"]);
    assert!(
        told.contains("  folder    $T/agent/memory  1 file or folder, 8 B\n  agent     claude\n"),
        "{told}"
    );
    assert!(sandbox.run(&["status"]).contains("  agents: claude\n"));
    assert_eq!(data(&sandbox, &["status"])["agents"][0], "claude");
    sandbox.write("../agent/memory/notes.md", "forgotten");
    let told = sandbox.run(&["rollback", "with"]);
    assert!(told.contains("  $T/agent/memory  1 restored, 0 removed\n  agents restored: claude\n"), "{told}");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
    sandbox.run(&["undo"]);
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "forgotten");
    // It was captured elsewhere since, and is taken by name.
    sandbox.write("../agent/memory/notes.md", "learned elsewhere");
    sandbox.run(&["create", "--scope", "agent", "--agent", "claude"]);
    let told = sandbox.run(&["rollback", "with"]);
    let left = "warning: $T/agent/memory was changed outside of this workspace (checkpoint ";
    assert!(told.contains(left) && told.ends_with("--- exit 0\n"), "{told}");
    let done = data(&sandbox, &["rollback", "with", "--dry-run"]);
    assert_eq!(done["rollback"]["left_alone"][0]["reason"], "changed_elsewhere");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "learned elsewhere");
    let done = data(&sandbox, &["rollback", "with", "--part", "agent"]);
    assert_eq!(done["rollback"]["memory"][0]["restored_files_count"], 1);
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
}

#[test]
fn a_plan_that_was_applied_refuses_everything_with_strict_alone() {
    let sandbox = world();
    sandbox.write("work.toml", "title = 'Work'\nid = 'work'\n[[step]]\nid = 'one'\n");
    sandbox.run(&["plan", "new", "work.toml"]);
    let all = data(&sandbox, &["create", "--scope", "framework"]);
    let id = all["checkpoint"]["id"].as_str().unwrap();
    sandbox.run(&["plan", "step", "start", "work", "one"]);
    sandbox.run(&["plan", "step", "finish", "work", "one"]);
    sandbox.run(&["plan", "apply", "work"]);
    sandbox.write("notes.txt", "late");
    fs::remove_dir_all(sandbox.path("other")).unwrap();
    let told = sandbox.run(&["rollback", id, "--strict"]);
    assert!(told.ends_with("--- exit 12\n"), "{told}");
    assert_eq!(sandbox.read("notes.txt"), "late");
    let told = sandbox.run(&["rollback", id]);
    assert!(told.contains("warning: plan work was applied and stays as it is\n"), "{told}");
    assert!(told.ends_with("--- exit 0\n"), "{told}");
    assert_eq!(
        (sandbox.read("notes.txt").as_str(), sandbox.read("../other/file").as_str()),
        ("good\n", "other")
    );
}

#[test]
fn agents_are_registered_shown_set_and_removed() {
    let sandbox = world();
    assert_snapshot!(sandbox.run(&["agent", "list"]), @r"
    No agent is registered. Register one: safepoint agent register NAME --config PATH --memory PATH
    --- exit 0
    ");
    let register =
        ["agent", "register", "claude", "--config", "../agent/settings.json", "--memory", "../agent/memory"];
    assert_snapshot!(sandbox.run(&register), @r"
    Agent claude
      config $T/agent/settings.json
      memory $T/agent/memory
    Take a checkpoint of it with: safepoint create --scope agent --agent claude
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["agent", "set", "claude", "model", "\"large\""]), @r#"
    model = "large"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["agent", "show", "claude"]), @r#"
    Agent claude
      config $T/agent/settings.json
      memory $T/agent/memory
      model = "large"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["agent", "list"]), @r"
    claude  2 paths, changed 2 minutes ago
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["agent", "set", "claude", "model", "large"]), @r#"
    --- stderr
    error: cannot set "model" of agent "claude": the value is not JSON: expected value at line 1 column 1
    Nothing was changed.
    hint: Texts stand in double quotes inside of those of the shell, as in '"large"'; null takes the key away.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["agent", "register", "Not A Name"]), @r#"
    --- stderr
    error: cannot register agent "Not A Name": invalid agent name: "Not A Name" must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit
    Nothing was changed.
    hint: Correct the value, then try again.
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["agent", "remove", "claude"]), @r"
    Agent claude is not registered any more; its files and checkpoints stay.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["agent", "show", "claude"]), @r#"
    --- stderr
    error: cannot show agent "claude": there is no agent "claude"
    hint: `safepoint agent list` shows the agents that are registered.
    --- exit 10
    "#);
}

#[test]
fn everything_goes_back_together_from_any_of_its_folders() {
    let sandbox = world();
    sandbox.run(&["agent", "register", "claude", "--memory", "../agent/memory"]);
    assert_snapshot!(sandbox.run(&["create", "--scope", "framework", "-m", "all is well"]), @r#"
    Checkpoint 01KG9YYV60S77KET4DNQ5BF6CP "all is well" of scope framework
      4 folders, 0 plans, 1 agent
      8 files and folders, 63 B; SIZE new in the store, N ms
    --- exit 0
    "#);
    let id = data(&sandbox, &["list", "--scope", "framework", "--all"])["checkpoints"][0]["id"].clone();
    let id = id.as_str().unwrap();
    sandbox.wreck();
    sandbox.write("../other/file", "wrecked");
    sandbox.write("../agent/memory/notes.md", "forgotten");
    assert_snapshot!(sandbox.run(&["rollback", id, "--dry-run"]), @"
    Would roll back 4 folders to 01KG9YYV60S77KET4DNQ5BF6CP (rollback)
      $T/project  2 restored, 1 removed
      $T/other  1 restored, 0 removed
      $T/agent/memory  1 restored, 0 removed
      $T/home  0 restored, 0 removed
      agents restored: claude
      a dry run: nothing was changed
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["rollback", id]), @"
    Rolled back 4 folders to 01KG9YYV60S77KET4DNQ5BF6CP (rollback)
      $T/project  2 restored, 1 removed
      $T/other  1 restored, 0 removed
      $T/agent/memory  1 restored, 0 removed
      $T/home  0 restored, 0 removed
      agents restored: claude
      read back and verified, in N ms
    Undo all of it with: safepoint undo
    --- exit 0
    ");
    assert_eq!(sandbox.read("../other/file"), "other");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
    // The undo covers all folders, from any of them.
    assert_snapshot!(sandbox.run(&["-C", "../other", "undo"]), @"
    Rolled back 4 folders to 01KG9Z4FV8DVZ1ZPJQNYJ4YVV1 (undo)
      $T/project  2 restored, 1 removed
      $T/other  1 restored, 0 removed
      $T/agent/memory  1 restored, 0 removed
      $T/home  0 restored, 0 removed
      agents restored: claude
      read back and verified, in N ms
    Do it again with: safepoint redo
    --- exit 0
    ");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "forgotten");
    assert_eq!(sandbox.read("../other/file"), "wrecked");
    assert_snapshot!(sandbox.run(&["rollback", id, "--part", "agent", "-q"]), @r"
    --- exit 0
    ");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
    assert_eq!(sandbox.read("../other/file"), "wrecked");
}

#[test]
fn everything_is_tried_first_or_goes_back_step_by_step() {
    let sandbox = world();
    for at in 0..3 {
        sandbox.write("../other/file", format!("version {at}"));
        data(&sandbox, &["create", "--scope", "framework", "-m", &format!("all {at}")]);
    }
    sandbox.write("../other/file", "wrecked");
    let shown = sandbox.run(&["rollback", "all 0", "--verify", "ls $SAFEPOINT_TARGET", "--dry-run"]);
    assert_snapshot!(shown, @"
    Would roll back 3 folders to 01KG9YWYMG3S19GYXWQZEQWMSF (rollback)
      $T/project  0 restored, 0 removed
      $T/other  1 restored, 0 removed
      $T/home  0 restored, 0 removed
      a dry run: nothing was changed
    --- stderr
    home
    other
    project
    --- exit 0
    ");
    let failing = sandbox.run(&["rollback", "all 0", "--verify", "false", "--yes"]);
    assert_snapshot!(failing, @r"
    --- stderr
    error: cannot roll back: the check does not pass in checkpoint 01KG9YWYMG3S19GYXWQZEQWMSF: exit status 1
    Nothing was changed.
    hint: Choose another checkpoint, or let it be found: safepoint rollback --until false
    --- exit 1
    ");
    assert_eq!(sandbox.read("../other/file"), "wrecked");
    let done = data(&sandbox, &["rollback", "all 0", "--verify", "true", "--yes"]);
    assert_eq!(done["checks"][0]["passed"], true);
    assert_eq!(sandbox.read("../other/file"), "version 0");
    let until = ["-C", "../other", "rollback", "all 2", "--until", "grep -q 'version [01]' file"];
    assert_snapshot!(sandbox.run(&until), @"
      01KG9Z0KTGP0RDQVRSZJ77Q12Z  fails (exit status 1)
      01KG9YYS7GN64SSTZ8MV851Q81  passes
    Rolled back 3 folders to 01KG9YYS7GN64SSTZ8MV851Q81 (rollback)
      $T/project  0 restored, 0 removed
      $T/other  1 restored, 0 removed
      $T/home  0 restored, 0 removed
      read back and verified, in N ms
    Undo all of it with: safepoint undo
    --- exit 0
    ");
    assert_eq!(sandbox.read("../other/file"), "version 1");
    let none = sandbox.output(&["rollback", "all 2", "--until", "false", "--bisect"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(sandbox.read("../other/file"), "version 1");
}

#[test]
fn what_was_taken_together_can_be_looked_into() {
    let sandbox = world();
    sandbox.run(&["agent", "register", "claude", "--memory", "../agent/memory"]);
    data(&sandbox, &["create", "--scope", "framework", "-m", "all"]);
    sandbox.write("../other/file", "changed");
    assert_snapshot!(sandbox.run(&["show", "all", "--files"]), @r"
    Checkpoint 01KG9YYV60S77KET4DNQ5BF6CP
      label     all
      created   2026-01-31 12:03:05Z, 55 seconds ago
      kind      manual, reason manual
      scope     framework
      parts     4 folders, 0 plans, 1 agent
      holds     8 files and folders, 63 B
      changed   +2 ~0 -0
      stored    SIZE new in the store
      uuid      019c13ef-6cc0-c9cf-3768-8dadcab79996
      integrity <hash>
      folder    $T/project  6 files and folders, 50 B
      folder    $T/other  1 file or folder, 5 B
      folder    $T/agent/memory  1 file or folder, 8 B
      folder    $T/home  0 files and folders, 0 B
      agent     claude

    $T/project
    d0755            empty/
    l0777            link -> notes.txt
    -0644       5 B  notes.txt
    -0755      10 B  run.sh
    d0755            src/
    -0644      35 B  src/main.rs

    $T/other
    -0644       5 B  file

    $T/agent/memory
    -0644       8 B  notes.md

    $T/home
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["-C", "../other", "cat", "all", "file"]), @r"
    other--- exit 0
    ");
    assert_snapshot!(sandbox.run(&["-C", "../other", "diff", "all"]), @r"
    diff --git a/file b/file
    --- a/file
    +++ b/file
    @@ -1 +1 @@
    -other
    \ No newline at end of file
    +changed
    \ No newline at end of file
    --- exit 0
    ");
    let shown = data(&sandbox, &["show", "all", "--files"]);
    assert_eq!(shown["folders"].as_array().unwrap().len(), 4);
    assert_eq!(shown["folders"][1]["entries"].as_array().unwrap().len(), 1, "{shown:#}");
}

#[test]
fn a_staged_rollback_shows_asks_and_does_it() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let good = sandbox.run(&["rollback", "@", "--verify", "test -e src/main.rs && echo looks good", "--yes"]);
    assert_snapshot!(good, @r#"
    Would roll back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      2 files restored, 1 file removed; a dry run: nothing was changed
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "first", taken 57 seconds ago
      2 files restored, 1 file removed, read back and verified, in N ms
        - junk.log  removed
        ~ notes.txt  restored
        + src/main.rs  created
    Undo it with: safepoint undo
    --- stderr
    looks good
    --- exit 0
    "#);
    assert!(sandbox.path("project/src/main.rs").exists());
    sandbox.run(&["undo"]);
    let bad = sandbox.run(&["rollback", "@", "--verify", "echo no good; exit 4", "--yes"]);
    assert_snapshot!(bad, @r"
    --- stderr
    no good
    error: cannot roll back: the check does not pass in checkpoint 01KG9YS9EGCQT0DH2X3200JHAF: exit status 4: no good
    Nothing was changed.
    hint: Choose another checkpoint, or let it be found: safepoint rollback --until 'echo no good; exit 4'
    --- exit 1
    ");
    assert!(!sandbox.path("project/src/main.rs").exists());
    // On a terminal it asks.
    let typed = |answer: &'static str| {
        sandbox.typed(sandbox.command(&["rollback", "@", "--strategy", "staged"]), answer)
    };
    assert!(typed("n\n").contains("Roll back to this? [y/N]"));
    assert!(!sandbox.path("project/src/main.rs").exists());
    assert!(typed("y\n").contains("Rolled back to"));
    assert!(sandbox.path("project/src/main.rs").exists());
}

#[test]
fn an_emergency_is_taken_whatever_is_wrong() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".safepoint.toml", "nonsense");
    assert_eq!(sandbox.output(&["create"]).status.code(), Some(1));
    assert_snapshot!(sandbox.run(&["emergency", "-m", "the agent went wild"]), @r#"
    Checkpoint 01KG9YWWP02J59EP1NVRE9ENPE "the agent went wild"
      7 files and folders, 58 B; SIZE new in the store, N ms
      since the last one: +1 ~0 -0
      left out:
        .git  git's own folder
    --- stderr
    warning: .safepoint.toml is ignored: .safepoint.toml line 1 is not TOML: key with no value, expected `=`
    --- exit 0
    "#);
    let newest = data(&sandbox, &["show", "@"])["checkpoint"].clone();
    assert_eq!(
        (newest["kind"].as_str(), newest["reason"].as_str()),
        (Some("emergency"), Some("error_recovery"))
    );
    let _ = fs::remove_file(sandbox.path("project/.safepoint.toml"));
}

#[test]
fn an_agent_goes_back_and_forth_from_a_directory_where_no_workspace_is() {
    let sandbox = world();
    sandbox.write("../nowhere/x", "");
    let at = |args: &[&str]| data(&sandbox, &[&["-C", "../nowhere"], args].concat());
    sandbox.run(&["agent", "register", "claude", "--memory", "../agent/memory"]);
    let created = at(&["create", "--scope", "agent", "--agent", "claude"]);
    let id = created["checkpoint"]["id"].as_str().unwrap();
    let notes = sandbox.path("agent/memory/notes.md");
    fs::write(&notes, "forgotten").unwrap();
    at(&["rollback", id]);
    assert_eq!(fs::read_to_string(&notes).unwrap(), "remember");
    let undone = at(&["undo"]);
    assert_eq!(
        (fs::read_to_string(&notes).unwrap().as_str(), &undone["rollback"]["verb"]),
        ("forgotten", &"undo".into())
    );
    at(&["redo"]);
    assert_eq!(fs::read_to_string(&notes).unwrap(), "remember");
}
