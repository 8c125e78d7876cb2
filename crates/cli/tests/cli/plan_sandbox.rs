//! Plans in a sandbox, undo commands, and the transfer of a result.

use crate::plan_run::{data, planned};
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const COPY: &str = "[sandbox]
    kind = 'copy'
    [[step]]
    id = 'edit'
    run = 'echo new > made; echo edited >> notes.txt'
    [[step]]
    id = 'more'
    run = 'echo more >> made'";

/// Folder of the plan.
fn place(sandbox: &Sandbox) -> PathBuf {
    let plan = data(sandbox, &["plan", "show", "work"])["plan"].clone();
    PathBuf::from(plan["sandbox"]["path"].as_str().unwrap())
}

fn state(sandbox: &Sandbox) -> Value {
    data(sandbox, &["plan", "show", "work"])["plan"]["sandbox"]["state"].clone()
}

#[test]
fn a_copy_is_made_worked_in_and_taken_over() {
    let sandbox = planned(COPY);
    assert_eq!(state(&sandbox), "none");
    assert_snapshot!(sandbox.run(&["plan", "show", "work"]), @r#"
    Plan work "Some work" is ready, 0 of 2 steps done
      [ ] edit
      [ ] more
      next      edit
      works in  a copy, which is made when its first step begins
      changed   2026-01-31 12:00:02Z, 1 minute ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "step", "start", "work", "edit"]), @r#"
    Step edit started
      checkpoint 01KG9YYZ309W3J567B8B5VXZDR "before edit"
      work in $T/home/sandboxes/work/project, a copy that was made now
    --- exit 0
    "#);
    assert_eq!(state(&sandbox), "ready");
    let folder = place(&sandbox);
    fs::write(folder.join("made"), "by hand\n").unwrap();
    sandbox.run(&["plan", "step", "finish", "work", "edit"]);
    sandbox.run(&["plan", "resume", "work"]);
    assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "by hand\nmore\n");
    assert!(!sandbox.path("project/made").exists());
    assert_snapshot!(sandbox.run(&["plan", "show", "work"]), @r#"
    Plan work "Some work" is done, 2 of 2 steps done
      [x] edit
      [x] more
      works in  $T/home/sandboxes/work/project, a copy of the project
      changed   2026-01-31 12:07:09Z, 51 seconds ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "apply", "work"]), @r#"
    Applied the result of the plan, 01KG9Z9PV0BBBTXBTJZTZ70R34 "result of plan work", taken just now
      1 file written, 0 files removed, read back and verified, in N ms
        + made  new
    Undo it with: safepoint undo
    Applied plan work: its result stays, and it is not rolled back any more.
    The copy that it worked in was removed.
    --- exit 0
    "#);
    assert_eq!(sandbox.read("made"), "by hand\nmore\n");
    assert!(!folder.exists());
    assert_eq!(state(&sandbox), "applied");
    assert_snapshot!(sandbox.run(&["undo"]), @"
    Undid the last rollback: the chosen paths are as just before it
      0 files restored, 1 file removed, read back and verified, in N ms
        - made  removed
    Do it again with: safepoint redo
    --- exit 0
    ");
    assert!(!sandbox.path("project/made").exists());
}

#[test]
fn the_answer_of_apply() {
    let sandbox = planned(COPY);
    sandbox.run(&["plan", "run", "work"]);
    let folder = place(&sandbox);
    fs::create_dir_all(folder.join(".git/refs/heads")).unwrap();
    fs::write(folder.join(".git/refs/heads/main"), "abc\n").unwrap();
    let applied = data(&sandbox, &["plan", "apply", "work"]);
    assert_eq!(
        (&applied["plan"]["state"], &applied["rollback"]["verb"]),
        (&json!("applied"), &json!("apply"))
    );
    assert_eq!(applied["rollback"]["to"], applied["result"]);
    assert_eq!(applied["kept"]["path"], folder.to_str().unwrap());
    assert_eq!(applied["kept"]["why"], "its .git has what that of the project has not");
    let refused = sandbox.json(&["plan", "rollback", "work", "before edit", "--json"]);
    assert_eq!((&refused["exit_code"], &refused["error"]["code"]), (&json!(12), &json!("plan_applied")));

    let sandbox = planned("[sandbox]\nkind = 'copy'\n[[step]]\nid = 'look'\nrun = 'cat notes.txt'");
    sandbox.run(&["plan", "run", "work"]);
    assert_snapshot!(sandbox.run(&["plan", "apply", "work"]), @"
    The plan changed nothing in its copy: the project stays as it is.
    Applied plan work: its result stays, and it is not rolled back any more.
    The copy that it worked in was removed.
    --- exit 0
    ");
}

#[test]
fn a_project_that_changed_is_told_and_merged() {
    let sandbox = planned(COPY);
    sandbox.run(&["plan", "run", "work"]);
    sandbox.write("other", "theirs\n");
    assert_snapshot!(sandbox.run(&["plan", "apply", "work"]), @r#"
    --- stderr
    error: cannot apply plan "work": the project changed since the sandbox of plan work was made: other
    Nothing was changed.
    hint: Take over what does not conflict with: safepoint plan apply work --merge
    --- exit 12
    "#);
    sandbox.write("notes.txt", "theirs\n");
    assert_snapshot!(sandbox.run(&["plan", "apply", "work", "--merge"]), @r#"
    --- stderr
    error: cannot apply plan "work": the project and the sandbox of plan work both changed: notes.txt
    Nothing was changed.
    hint: Make both the same at these paths, in the project or in the sandbox, then try again.
    --- exit 12
    "#);
    sandbox.write("notes.txt", "good\n");
    let merged = data(&sandbox, &["plan", "apply", "work", "--merge"]);
    assert_eq!(merged["kept"], Value::Null);
    assert_eq!(
        (sandbox.read("other"), sandbox.read("made")),
        ("theirs\n".to_owned(), "new\nmore\n".to_owned())
    );
}

#[test]
fn a_rollback_happens_where_the_plan_works() {
    let sandbox = planned(COPY);
    sandbox.run(&["plan", "run", "work"]);
    let folder = place(&sandbox);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "list", "work"]), @"
    CHECKPOINT                  WHEN          KIND      DONE  STATE     LABEL
    01KG9YVKNGCYB6EXEWEW0NCKV1  1 minute ago  workflow     1  2cf5bf88  before more
    01KG9YVBVGGNTMJ5RRVRTQWFD8  1 minute ago  workflow     0  d1a32adf  before edit
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "work", "@~1"]), @r#"
    Rolled back to 01KG9YVBVGGNTMJ5RRVRTQWFD8 "before edit", taken 2 minutes ago
      1 file restored, 1 file removed, read back and verified, in N ms
      plan work is running again; steps undone: more, edit
      no undo command: side effects outside the workspace were not undone: more, edit
        - made  removed
        ~ notes.txt  restored
    Undo it with: safepoint -C $T/home/sandboxes/work/project undo
    --- exit 0
    "#);
    assert!(!folder.join("made").exists());
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    let undo = sandbox.run(&["-C", folder.to_str().unwrap(), "undo"]);
    assert!(undo.contains("Do it again with: safepoint redo\n"), "{undo}");
    assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "new\nmore\n");
    let prefix = data(&sandbox, &["plan", "checkpoint", "list", "work"])["checkpoints"][1]["id"].clone();
    let shown = sandbox.output(&["plan", "checkpoint", "show", "work", &prefix.as_str().unwrap()[..12]]);
    assert_eq!(shown.status.code(), Some(0), "{}", sandbox.told(&shown));
}

#[test]
fn a_copy_that_is_gone_is_made_again_only_when_asked_for() {
    let sandbox = planned(COPY);
    sandbox.run(&["plan", "run", "work"]);
    let folder = place(&sandbox);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(state(&sandbox), "missing");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "work", "@"]), @r#"
    --- stderr
    error: cannot roll plan "work" back to checkpoint "@": the sandbox of plan work is missing: $T/home/sandboxes/work/project
    Nothing was changed.
    hint: Make it again from its newest checkpoint: safepoint plan rollback work @ --recreate-sandbox
    hint: `safepoint plan checkpoint list work` shows the checkpoints.
    --- exit 12
    "#);
    for args in [
        &["plan", "correct", "work", "--mode", "revert"][..],
        &["plan", "apply", "work"],
        &["plan", "checkpoint", "create", "work"],
    ] {
        assert_eq!(
            sandbox.json(&[args, &["--json"]].concat())["error"]["code"],
            "sandbox_missing",
            "{args:?}"
        );
    }
    let told = sandbox.run(&["plan", "show", "work"]);
    assert!(
        told.contains("a sandbox that is missing; a rollback with --recreate-sandbox creates it again"),
        "{told}"
    );
    let back = sandbox.output(&["plan", "rollback", "work", "@", "--recreate-sandbox"]);
    assert_eq!(back.status.code(), Some(0), "{}", sandbox.told(&back));
    assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "new\n");
    assert_eq!(data(&sandbox, &["plan", "resume", "work"])["run"]["done"], json!(["more"]));
}

#[test]
fn a_copy_that_is_made_again_has_its_git_folder() {
    let sandbox = planned(COPY);
    for (name, text) in
        [("HEAD", "ref: refs/heads/main\n"), ("config", ""), ("objects/x", ""), ("refs/x", "")]
    {
        sandbox.write(&format!(".git/{name}"), text);
    }
    sandbox.run(&["plan", "run", "work", "--until", "edit"]);
    sandbox.run(&["plan", "checkpoint", "create", "work"]);
    let folder = place(&sandbox);
    fs::remove_dir_all(&folder).unwrap();
    let dry = ["plan", "rollback", "work", "@", "--recreate-sandbox", "--dry-run"];
    assert_eq!(sandbox.output(&dry).status.code(), Some(0));
    assert!(!folder.exists(), "a dry run leaves nothing");
    let back = sandbox.output(&["plan", "rollback", "work", "@", "--recreate-sandbox"]);
    assert_eq!(back.status.code(), Some(0), "{}", sandbox.told(&back));
    assert_eq!(fs::read_to_string(folder.join(".git/HEAD")).unwrap(), "ref: refs/heads/main\n");
}

/// Steps that do something outside of the files, in a file beside the project.
fn with_effects(undo: &str) -> Sandbox {
    planned(&format!(
        "[[step]]\nid = 'create'\nrun = 'echo create >> ../outside; echo 1 > file'\nundo = '{undo}'
         [[step]]\nid = 'fill'\nrun = 'echo fill >> ../outside; echo 2 > file'\nundo = 'echo undo fill >> ../outside'
         [[step]]\nid = 'quiet'\nrun = 'true'"
    ))
}

#[test]
fn undo_commands_are_told() {
    let sandbox = with_effects("echo undo create >> ../outside");
    sandbox.run(&["plan", "run", "work"]);
    let outside = || fs::read_to_string(sandbox.path("outside")).unwrap();
    assert_snapshot!(sandbox.run(&["plan", "rollback", "work", "before create", "--dry-run"]), @r#"
    Would roll back to 01KG9YV41GXHKZH4X2XVXK4NAY "before create", taken 57 seconds ago
      0 files restored, 1 file removed; a dry run: nothing was changed
      plan work would be running again; steps undone: quiet, fill, create
      undo command that would run, step fill: echo undo fill >> ../outside
      undo command that would run, step create: echo undo create >> ../outside
      no undo command: side effects outside the workspace would not be undone: quiet
        - file  removed
    --- exit 0
    "#);
    assert_eq!(outside(), "create\nfill\n");
    let back = data(&sandbox, &["rollback", "before create"])["rollback"].clone();
    assert_eq!(outside(), "create\nfill\nundo fill\nundo create\n");
    assert_eq!(
        back["undone"],
        json!([
            { "plan": "work", "step": "fill", "command": "echo undo fill >> ../outside", "ran": true },
            { "plan": "work", "step": "create", "command": "echo undo create >> ../outside", "ran": true },
        ])
    );
    let why = "it has no undo command";
    let quiet = json!([{ "plan": "work", "step": "quiet", "why": why, "code": "no_undo_command" }]);
    assert_eq!(back["effects_not_undone"], quiet);
    sandbox.run(&["undo"]);
    assert_snapshot!(sandbox.run(&["redo"]), @"
    Redid the rollback that was undone: everything is as after it
      0 files restored, 1 file removed, read back and verified, in N ms
      plan work is running again; steps undone: quiet, fill, create
      undo command that had been run before, step fill: echo undo fill >> ../outside
      undo command that had been run before, step create: echo undo create >> ../outside
      no undo command: side effects outside the workspace were not undone: quiet
        - file  removed
    Undo it with: safepoint undo
    --- exit 0
    ");
    assert_eq!(outside(), "create\nfill\nundo fill\nundo create\n", "no step ran since");
    let log = sandbox.run(&["plan", "log", "work"]);
    assert!(log.contains("undo command of step fill was run: echo undo fill"), "{log}");
}

#[test]
fn an_undo_command_that_fails_stops_a_rollback_unless_it_is_skipped() {
    for verb in [&["plan", "rollback", "work", "before create"][..], &["rollback", "before create"]] {
        let sandbox = with_effects("echo no way; exit 4");
        sandbox.run(&["plan", "run", "work"]);
        let told = sandbox.run(verb);
        assert!(
            told.contains("the undo command of step create failed: exit status 4: no way\nhint: "),
            "{told}"
        );
        assert!(told.ends_with("--- exit 1\n"), "{told}");
        assert_eq!(sandbox.read("file"), "2\n");
        let told = sandbox.run(&[verb, &["--skip-failed-undo"]].concat());
        let warning = "warning: side effects of step create outside the workspace were not undone: its undo command failed: exit status 4: no way";
        assert!(told.contains(warning) && told.ends_with("--- exit 0\n"), "{told}");
        assert!(told.contains("undo command that had been run before, step fill"), "{told}");
        assert!(!sandbox.path("project/file").exists());
        sandbox.run(&["undo"]);
        let again = sandbox.json(&["redo", "--json"]);
        assert_eq!(again["error"]["code"], "undo_failed");
        let again = data(&sandbox, &["redo", "--skip-failed-undo"]);
        assert_eq!(again["rollback"]["effects_not_undone"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_correction_takes_effects_back_too() {
    let sandbox = planned(
        "[checkpoints]\non = ['on_error']\n[[step]]\nid = 'a'\nrun = 'echo a > a'\nundo = 'exit 5'\n[[step]]\nid = 'b'\nrun = 'false'",
    );
    sandbox.run(&["plan", "checkpoint", "create", "work", "-m", "clean"]);
    sandbox.run(&["plan", "run", "work"]);
    let revert = ["plan", "correct", "work", "--mode", "revert"];
    assert_eq!(sandbox.json(&[&revert[..], &["--json"]].concat())["error"]["code"], "undo_failed");
    let done = data(&sandbox, &[&revert[..], &["--skip-failed-undo"]].concat());
    let steps: Vec<&str> = done["rollback"]["effects_not_undone"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["step"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["b", "a"]);
}

#[test]
fn on_a_terminal_a_checkpoint_is_chosen_from_a_list() {
    let sandbox = planned("[[step]]\nid = 'a'\nrun = 'echo a > a'\n[[step]]\nid = 'b'\nrun = 'echo b > b'");
    sandbox.run(&["plan", "run", "work"]);
    let rollback = |more: &[&str]| sandbox.command(&[&["plan", "rollback", "work"], more].concat());
    assert_snapshot!(sandbox.typed(rollback(&[]), "\n"), @"
         CHECKPOINT  WHEN            KIND      DONE  STATE     LABEL
      1  01KG9YVB    49 seconds ago  workflow     1  dbac5bf5  before b
      2  01KG9YV4    57 seconds ago  workflow     0  20bdc8e3  before a
    Go back to which? A number, an id, or Enter for none: Plan work stays as it is.
    ");
    assert_snapshot!(sandbox.typed(rollback(&[]), "1\nn\n"), @r#"
    1
    n
         CHECKPOINT  WHEN          KIND      DONE  STATE     LABEL
      1  01KG9YVB    1 minute ago  workflow     1  dbac5bf5  before b
      2  01KG9YV4    1 minute ago  workflow     0  20bdc8e3  before a
    Go back to which? A number, an id, or Enter for none: Would roll back to 01KG9YVBVGS45Q3ETMV38G3DDS "before b", taken 1 minute ago
      0 files restored, 1 file removed; a dry run: nothing was changed
      plan work would be running again; step undone: b
      no undo command: side effects outside the workspace would not be undone: b
        - b  removed
    Do this? [y/N] error: cannot roll plan "work" back: not confirmed
    Nothing was changed.
    hint: Answer y to go on, or give --yes.
    "#);
    assert!(sandbox.path("project/b").exists());
    let seen = sandbox.typed(rollback(&[]), "7\n");
    assert!(seen.contains("error: cannot roll plan \"work\" back"), "{seen}");
    let seen = sandbox.typed(rollback(&[]), "before b\ny\n");
    assert!(seen.contains("Would roll back") && seen.contains("Rolled back to"), "{seen}");
    assert!(!sandbox.path("project/b").exists());
    // The safety checkpoint of that rollback is not among the rows.
    let seen = sandbox.typed(rollback(&["--yes"]), "2\n");
    assert!(!seen.contains("Would roll back") && seen.contains("Rolled back to"), "{seen}");
    assert!(!sandbox.path("project/a").exists());
}
