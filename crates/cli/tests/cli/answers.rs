//! Plain text output.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use regex_lite::Regex;
use std::fs;

#[test]
fn init_shows_what_a_checkpoint_will_hold() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "12345");
    sandbox.write(".safepointignore", "*.log\n");
    sandbox.write("x.log", "");
    fs::create_dir(sandbox.path("project/.git")).unwrap();
    assert_snapshot!(sandbox.run(&["init"]), @r#"
    Registered $T/project as a workspace.
    A checkpoint of it holds 2 files and folders, 11 B.
      left out:
        .git  git's own folder
        x.log  excluded by .safepointignore or the configuration
    Leave more out with a file .safepointignore, written like a .gitignore.
    Take the first one: safepoint create -m "a label"
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["init"]), @r#"
    $T/project is registered already.
    A checkpoint of it holds 2 files and folders, 11 B.
      left out:
        .git  git's own folder
        x.log  excluded by .safepointignore or the configuration
    Leave more out with a file .safepointignore, written like a .gitignore.
    Take the first one: safepoint create -m "a label"
    --- exit 0
    "#);
    sandbox.write("sub/b", "");
    assert_snapshot!(sandbox.run(&["init", "sub", "-q"]), @"
    Registered $T/project/sub as a workspace.
    A checkpoint of it holds 1 file or folder, 0 B.
    --- exit 0
    ");
}

#[test]
fn create_registers_the_nearest_git_folder_and_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("src/deep/a.txt", "1");
    fs::create_dir(sandbox.path("project/.git")).unwrap();
    let mut command = sandbox.command(&["create", "-m", "first"]);
    let output = command.current_dir(sandbox.path("project/src/deep")).output().unwrap();
    assert_snapshot!(sandbox.told(&output), @r#"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF "first"
      3 files and folders, 1 B; SIZE new in the store, N ms
      the first of this workspace
      left out:
        .git  git's own folder
    --- stderr
    Registered $T/project as a workspace.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["create"]), @r#"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF "first"
      nothing changed since it was taken: no checkpoint was added
    --- exit 0
    "#);
    sandbox.write("b", "");
    assert_snapshot!(sandbox.run(&["create", "-q"]), @"
    01KG9YWWP02J59EP1NVRE9ENPE
    --- exit 0
    ");
}

#[test]
fn every_flag_of_create_is_on_record() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let told = sandbox.run(&[
        "create",
        "--description",
        "with all",
        "--kind",
        "workflow",
        "--checkpoint-type",
        "phase_complete",
        "--phase",
        "implement",
        "--scope",
        "project",
        "--session-id",
        "0193277C-8f00-1234-5678-9abcdef01122",
        "--source-tool",
        "agent-x",
        "--pin",
        "--counter",
        "tests_passing=42",
        "--counter",
        "files_created=7",
        "-q",
    ]);
    assert_snapshot!(told, @"
    01KG9YS9EGCQT0DH2X3200JHAF
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["show", "with all", "--files"]), @"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
      label     with all
      created   2026-01-31 12:00:03Z, 57 seconds ago
      kind      workflow, reason phase_complete, phase implement
      scope     project
      session   0193277c-8f00-1234-5678-9abcdef01122
      tool      agent-x
      progress  files_created 7, tests_passing 42
      holds     1 file or folder, 1 B
      changed   +1 ~0 -0
      stored    SIZE new in the store
      pinned    yes: it is never pruned
      uuid      019c13ec-a5d0-65f4-06c4-5d188009454f
      integrity <hash>

    -0644       1 B  a
    --- exit 0
    ");
}

#[test]
fn the_session_of_the_environment_is_the_default() {
    let sandbox = Sandbox::new();
    let session = "01932b7c-8f00-1234-5678-9abcdef01122";
    let mut command = sandbox.command(&["create", "--json"]);
    let output = command.env("SAFEPOINT_SESSION_ID", session).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["data"]["checkpoint"]["session_id"], session);
}

#[test]
fn list_and_summary_count_everything() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["create", "-m", "a bad one", "--kind", "emergency", "--reason", "error_recovery"]);
    sandbox.run(&["rollback", "first"]);
    assert_snapshot!(sandbox.run(&["list"]), @"
    CHECKPOINT                  WHEN           KIND       CHANGED   STORED  LABEL
    01KG9YV2300QJS22HDXJ4G4Q61  1 minute ago   emergency  +1 ~1 -1  SIZE  a bad one
    01KG9YS9EGCQT0DH2X3200JHAF  2 minutes ago  manual     +6 ~0 -0  SIZE  first
    1 safety checkpoint is not shown: safepoint list --all-roles
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list", "-n", "1", "--kind", "manual"]), @"
    CHECKPOINT                  WHEN           KIND    CHANGED   STORED  LABEL
    01KG9YS9EGCQT0DH2X3200JHAF  3 minutes ago  manual  +6 ~0 -0  SIZE  first
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list", "--all", "--scope", "project", "-q"]), @"
    01KG9YV2300QJS22HDXJ4G4Q61  3 minutes ago  emergency  +1 ~1 -1  SIZE  [project] a bad one
    01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago  manual     +6 ~0 -0  SIZE  [project] first
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list", "--plan", "none"]), @r#"
    --- stderr
    error: cannot list checkpoints: there is no plan "none"
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["summary"]), @"
    2 checkpoints
      kind    manual                    1
      kind    emergency                 1
      reason  error_recovery            1
      reason  manual                    1
      used for rollback                 1
      made by Safepoint, beside these   1
      latest  01KG9YV2300QJS22HDXJ4G4Q61, 5 minutes ago  a bad one
    --- exit 0
    ");
    for session in ["list", "summary"] {
        let args = [session, "--session-id", "0193a6b4-8000-7000-8000-000000000009"];
        assert_eq!(sandbox.output(&args).status.code(), Some(10), "{session}: unknown sessions are errors");
    }
    assert_eq!(sandbox.output(&["summary", "--plan", "none"]).status.code(), Some(10));
}

#[test]
fn checkpoints_of_everything_are_listed_without_all() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "--scope", "framework", "-m", "everything"]);
    let listed = sandbox.json(&["list", "--scope", "framework", "--json"]);
    assert_eq!(listed["data"]["checkpoints"][0]["label"], "everything");
    assert_eq!(listed["data"]["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn show_tells_everything_about_one() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    assert_snapshot!(sandbox.run(&["show", "@", "--files"]), @"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
      label     first
      created   2026-01-31 12:00:03Z, 1 minute ago
      kind      manual, reason manual
      scope     project
      holds     6 files and folders, 50 B
      changed   +6 ~0 -0
      stored    SIZE new in the store
      used      rolled back to 1 time
      uuid      019c13ec-a5d0-65f4-06c4-5d188009454f
      integrity <hash>
      left out:
        .git  git's own folder

    d0755            empty/
    l0777            link -> notes.txt
    -0644       5 B  notes.txt
    -0755      10 B  run.sh
    d0755            src/
    -0644      35 B  src/main.rs
    --- exit 0
    ");
    assert_eq!(sandbox.run(&["cat", "@", "notes.txt"]), "good\n--- exit 0\n");
    assert_eq!(sandbox.run(&["cat", "@", "link"]), "notes.txt--- exit 0\n");
}

#[test]
fn status_answers_whether_one_is_covered() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    Covered: everything is in 01KG9YS9EGCQT0DH2X3200JHAF "first", 57 seconds ago.
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    --- exit 0
    "#);
    sandbox.wreck();
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    3 changes since 01KG9YS9EGCQT0DH2X3200JHAF "first", 1 minute ago, not in a checkpoint:
        + junk.log
        ~ notes.txt
        - src/main.rs
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    let other = Sandbox::new();
    other.write("a", "1");
    other.run(&["init"]);
    assert_snapshot!(other.run(&["status"]), @"
    Not covered: no checkpoint yet; `safepoint create` takes one.
      workspace: project in $T/project
      store: 0 checkpoints here; SIZE for all workspaces in $T/home
    --- exit 0
    ");
}

#[test]
fn validate_says_what_was_checked() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["validate"]), @"
    Valid: everything is there (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    Tests: not known, because no test command is configured.
    Read every byte, too, with --deep.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["verify", "--deep", "-q"]), @"
    Valid: every byte is as it was written (1 checkpoint, 10 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["validate", "first"]), @"
    Valid: everything is there (1 checkpoint, 9 objects, SIZE)
    Read every byte, too, with --deep.
    --- exit 0
    ");
}

#[test]
fn recover_with_nothing_to_do_says_so() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["recover"]), @"
    Nothing was left to recover.
    --- exit 0
    ");
}

#[test]
fn version_is_short() {
    assert_snapshot!(Sandbox::new().run(&["version"]), @"
    safepoint 0.1.0
    --- exit 0
    ");
}

#[test]
fn the_demo_tells_its_story_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let tmp = sandbox.path("user");
    let mut command = sandbox.command(&["demo", "--full"]);
    let output = command.env("TMPDIR", &tmp).output().unwrap();
    let raw = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(raw.lines().all(|line| line.chars().count() <= 80), "{raw}");
    assert_snapshot!(sandbox.told(&output), @r#"
    All of this happens in a temporary folder. Your files are not touched.

     1  A small project N ms
        41 files and folders: code, a script, a link, a .git folder, a build folder

     2  safepoint create -m "all tests pass" N ms
        41 files and folders kept, SIZE in the store; left out: .git, build

     3  Then an agent has a bad day N ms
        rm -rf src, a wrong edit, a lost permission, junk files

     4  safepoint status N ms
        34 paths changed since "all tests pass":
          ~ scripts/deploy.sh (mode, owner or attributes)
          ~ shop.toml
          - src/ and 27 below it
          ~ start-here (another type)
          + tmp_1.log
          + tmp_2.log
          + tmp_3.log

     5  safepoint rollback @ N ms
        28 files restored, 3 removed: all or nothing, on disk, and read back

     6  Is it really the same? N ms
        yes: 41 files and folders, 47.7 kB and every mode as before the disaster

     7  safepoint undo N ms
        the rollback is undone: the state before it was kept

     8  Is the mess back, every byte of it? N ms
        yes: 16 files and folders, 24.0 kB and every mode as in the mess

     9  safepoint redo N ms
        and done again

    10  And the same once more? N ms
        yes: 41 files and folders, 47.7 kB and every mode as before the disaster

    11  safepoint plan new discount.toml N ms
        4 steps, two of them in the subplan api; it works in a copy of the project

    12  safepoint plan run discount --until settings N ms
        [x] settings
        1 checkpoint taken during the run; the plan is paused

    13  safepoint plan decide discount ... N ms
        Where is the discount kept? in shop.toml

    14  safepoint plan decide discount ... N ms
        Who takes it off? the handlers

    15  safepoint plan resume discount --until api/handlers N ms
        [x] api/handlers
        1 checkpoint taken during the run; the plan is paused

    16  safepoint plan resume discount N ms
        [!] api/check failed: exit status 1: there are no rules
        2 checkpoints taken during the run; the plan is failed

    17  safepoint plan decide discount ... N ms
        What about the check? leave it out

    18  safepoint plan checkpoint list discount N ms
        01KG9YVBVG8EGPW6CGBQ5YACEZ  api/check failed
        01KG9YV41G131M2ZQSC60XN8W3  before api/check
        01KG9YTS9R08JGRZF80S4P7ENG  before api/handlers
        01KG9YT8PGCD6DTZ01TKTM0WK9  before settings

    19  safepoint plan rollback discount "before api/check" N ms
        18 files restored, 1 decision superseded: both or neither

    20  Is the copy as before that step? N ms
        yes: 43 files and folders, 47.8 kB and every mode as before it

    21  And the plan? N ms
        yes: its state has the hash f754d291df979af4... again

    22  safepoint plan step add discount tell-the-readers ... N ms
        the rules are written by hand, and a step is added: tell-the-readers

    23  safepoint plan resume discount N ms
        [x] api/check
        [x] ship
        [x] tell-the-readers
        4 checkpoints taken during the run; the plan is done

    24  Is the project as it was all the while? N ms
        yes: 41 files and folders, 47.7 kB and every mode as before the plan

    25  safepoint plan apply discount N ms
        5 files into the project, all or nothing; the sandbox is deleted

    26  Is the result in the project, every byte of it? N ms
        yes: 45 files and folders, 47.8 kB and every mode as the plan made them

    The temporary folder was deleted.
    In your own project: safepoint create -m "before I start"
    For every turn of your coding agent: safepoint install
    --- exit 0
    "#);
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
    let output =
        sandbox.command(&["demo", "--full", "--keep", "--json"]).env("TMPDIR", &tmp).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["data"]["verified"], value["data"]["steps"].as_array().unwrap().len()),
        (&true.into(), 26)
    );
    let kept = value["data"]["folder"].as_str().unwrap();
    assert!(std::path::Path::new(kept).join("shop/src/part_01.rs").exists());
}

#[test]
fn completions_know_the_commands() {
    let sandbox = Sandbox::new();
    let script = String::from_utf8(sandbox.output(&["completions", "elvish"]).stdout).unwrap();
    assert!(script.contains("rollback") && script.contains("--keep-times"));
    let script = String::from_utf8(sandbox.output(&["completions", "bash"]).stdout).unwrap();
    assert!(script.contains("safepoint __complete"));
    assert_eq!(sandbox.json(&["completions", "fish", "--json"])["status"], "ok");
}

#[test]
fn rules_that_cannot_be_understood_are_told_and_kept_with_the_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.write(".safepointignore", "{a\n");
    assert_snapshot!(sandbox.run(&["init", "-q"]), @"
    Registered $T/project as a workspace.
    A checkpoint of it holds 1 file or folder, 3 B.
    --- stderr
    warning: ./.safepointignore: error parsing glob '{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["create", "-q"]), @"
    01KG9YV2300QJS22HDXJ4G4Q61
    --- stderr
    warning: ./.safepointignore: error parsing glob '{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["show", "@"]), @"
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61
      created   2026-01-31 12:01:01Z, 59 seconds ago
      kind      manual, reason manual
      scope     project
      holds     1 file or folder, 3 B
      changed   +1 ~0 -0
      stored    SIZE new in the store
      uuid      019c13ed-8860-05e5-910a-2dec89025cc1
      integrity <hash>
      warning   ./.safepointignore: error parsing glob '{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    --- exit 0
    ");
}

#[test]
fn the_demo_shows_five_steps_on_one_screen() {
    let sandbox = Sandbox::new();
    let told = sandbox.told(&sandbox.command(&["demo"]).env("TMPDIR", sandbox.path("")).output().unwrap());
    let steps = told.lines().filter(|line| line.trim_end().ends_with(" ms")).count();
    let lines = told.lines().filter(|line| !line.starts_with("---")).count();
    // The command line above and the prompt below it fit 24 lines, too.
    assert!(steps == 5 && lines <= 22 && told.lines().all(|line| line.chars().count() <= 80), "{told}");
    assert!(told.contains("yes: 41 files and folders"), "{told}");
    // The copy in README.md is the same, but for the times and the size.
    let readme = include_str!("../../../../README.md");
    let mut blocks = readme.split("```text\n").map(|rest| rest.split("```").next().unwrap());
    let copy = blocks.find(|block| block.contains("safepoint rollback @")).unwrap();
    let plain = |text: &str| {
        let text = Regex::new(r" *\d+\.\d ms").unwrap().replace_all(text, " N ms").into_owned();
        Regex::new(r"\d+\.\d kB in the store").unwrap().replace_all(&text, "SIZE in the store").into_owned()
    };
    assert_eq!(plain(copy).trim(), plain(told.split("---").next().unwrap()).trim());
}

#[test]
fn a_demo_without_a_temporary_folder_says_so() {
    let sandbox = Sandbox::new();
    let output = sandbox.command(&["demo"]).env("TMPDIR", sandbox.path("missing")).output().unwrap();
    let told = sandbox.told(&output);
    assert!(told.contains("cannot use the temporary folder $T/missing") && told.contains("TMPDIR"), "{told}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_was_left_out_then_and_would_be_taken_now_is_not_covered() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["purge", "notes.txt", "--yes"]);
    assert_snapshot!(sandbox.run(&["status"]), @r#"
    Partly covered: everything but 1 path is in 01KG9YS9EGCQT0DH2X3200JHAF "first", 1 minute ago.
      not in it, and in the next one:
        notes.txt  purged
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 1 checkpoint here; SIZE for all workspaces in $T/home
    Take a checkpoint now: safepoint create -m "a label"
    --- exit 0
    "#);
    let data = sandbox.json(&["status", "--json"])["data"].clone();
    assert_eq!((&data["covered"], &data["verdict"]), (&false.into(), &"partly".into()));
    assert_eq!(data["uncovered"], serde_json::json!([{ "path": "notes.txt", "why": "purged" }]));
    sandbox.run(&["create"]);
    assert_eq!(sandbox.json(&["status", "--json"])["data"]["verdict"], "covered");
}
