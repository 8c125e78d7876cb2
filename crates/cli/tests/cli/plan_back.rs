//! Checkpoints of a plan, its rollback with its files, pause and cancellation.

use crate::plan::{failed, planned};
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};
use std::fs;

#[test]
fn checkpoints_of_a_plan() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "list", "limits"]), @"
    There are no checkpoints of this plan yet. Take one: safepoint plan checkpoint create limits
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits"]), @"
    There is nothing to roll back to yet. Take one: safepoint plan checkpoint create limits
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good", "--pin"]), @r#"
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD "good"
      2 files and folders, 217 B; SIZE new in the store, N ms
      the first of this workspace
    --- exit 0
    "#);
    sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good"]);
    sandbox.run(&["create", "-m", "files alone"]);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "list", "limits"]), @"
    CHECKPOINT                  WHEN           KIND    DONE  STATE     LABEL
    01KG9Z0HW054A6WWZ3EBH372PA  1 minute ago   manual     0  2351be18  good
    01KG9YYQ9053R1T2RMWKDG33ZD  2 minutes ago  manual     0  2351be18  good (pinned)
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "good"]), @r#"
    --- stderr
    error: cannot show checkpoint "good": "good" names several checkpoints
    hint: Choose one of them by its id:
    hint: 01KG9Z0HW054A6WWZ3EBH372PA  # 2026-01-31 12:04:01Z "good"
    hint: 01KG9YYQ9053R1T2RMWKDG33ZD  # 2026-01-31 12:03:01Z "good"
    --- exit 2
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "@~1"]), @"
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD
      label     good
      created   2026-01-31 12:03:01Z, 4 minutes ago
      kind      manual, reason manual
      scope     workflow
      plan      limits, 0 steps done
      holds     2 files and folders, 217 B
      changed   +2 ~0 -0
      stored    SIZE new in the store
      pinned    yes: it is never pruned
      uuid      019c13ef-5d20-28f0-1d0b-14e4db018fed
      integrity <hash>
    The plan was ready
      [ ] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "@~2"]), @r#"
    --- stderr
    error: cannot show checkpoint "@~2": no checkpoint is called "@~2"
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "show", "limits", "files alone"]), @r#"
    --- stderr
    error: cannot show checkpoint "files alone": checkpoint 01KG9Z2CF08QE660SV1JHRKGTT is not one of plan limits
    hint: `safepoint plan checkpoint list limits` shows the checkpoints of the plan.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "files alone"]), @r#"
    --- stderr
    error: cannot roll plan "limits" back to checkpoint "files alone": checkpoint 01KG9Z2CF08QE660SV1JHRKGTT is not one of plan limits
    Nothing was changed.
    hint: `safepoint plan checkpoint list limits` shows the checkpoints of the plan.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "delete", "limits", "@"]), @"
    --- stderr
    error: cannot delete: cannot ask for confirmation: no terminal
    Nothing was changed.
    hint: Confirm with --yes.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "delete", "limits", "@~1", "@~1", "--yes"]), @"
    Deleted 1 checkpoint:
      01KG9YYQ9053R1T2RMWKDG33ZD  9 minutes ago  good (pinned)
    Free the space that only they took: safepoint gc
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "checkpoint", "create", "nothing"]), @r#"
    --- stderr
    error: cannot take a checkpoint of plan "nothing": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["list", "--plan", "limits"]), @"
    CHECKPOINT                  WHEN            KIND    CHANGED   STORED  LABEL
    01KG9Z0HW054A6WWZ3EBH372PA  10 minutes ago  manual  +0 ~0 -0  SIZE  good
    --- exit 0
    ");
}

#[test]
fn lists_of_a_plan_fold_safety_checkpoints_away() {
    let (sandbox, _) = failed();
    assert!(sandbox.run(&["plan", "rollback", "limits", "before api/handlers"]).ends_with("--- exit 0\n"));
    for args in [&["plan", "checkpoint", "list", "limits"][..], &["plan", "rollback", "limits"]] {
        let told = sandbox.run(args);
        assert!(!told.contains("(safety)") && told.contains("before migrate"), "{told}");
        let hidden = "1 safety checkpoint is not shown: safepoint list --plan limits --all-roles\n";
        assert!(told.contains(hidden), "{told}");
        let answer = sandbox.json(&[args, &["--json"]].concat());
        assert_eq!(answer["data"]["checkpoints"].as_array().unwrap().len(), 4, "{answer:#}");
    }
    assert!(sandbox.run(&["list", "--plan", "limits", "--all-roles"]).contains("(safety)"));
}

#[test]
fn there_and_back() {
    let (sandbox, _) = failed();
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is failed, 1 of 4 steps done
      [x] migrate  A table for the counters
      [!] api  failed
          [!] handlers  failed: 2 tests fail
          [ ] docs
      [ ] ship
      next      api/handlers
      decisions 2; `safepoint plan tree limits` shows them
      knows     database = "postgres"
      works in  $T/project
      changed   2026-01-31 12:07:00Z, 1 minute ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits"]), @"
    CHECKPOINT                  WHEN           KIND       DONE  STATE     LABEL
    01KG9Z62M8VWA67JZ1WHCK43EQ  1 minute ago   emergency     1  a338ff8f  api/handlers failed
    01KG9Z2CF08QE660SV1JHRKGTT  3 minutes ago  workflow      1  c7f9d69e  before api/handlers
    01KG9YV2300QJS22HDXJ4G4Q61  7 minutes ago  workflow      0  2351be18  before migrate
    Choose one, as in: safepoint plan rollback limits @ --dry-run
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "before api/handlers", "--dry-run"]), @r#"
    Would roll back to 01KG9Z2CF08QE660SV1JHRKGTT "before api/handlers", taken 4 minutes ago
      2 files restored, 0 files removed; a dry run: nothing was changed
      plan limits would be running again; 1 decision superseded; 1 subplan invalidated; step undone: api/handlers
      no undo command: side effects outside the workspace would not be undone: api/handlers
        ~ main.rs  restored
        + table.sql  created
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "before api/handlers"]), @r#"
    Rolled back to 01KG9Z2CF08QE660SV1JHRKGTT "before api/handlers", taken 5 minutes ago
      2 files restored, 0 files removed, read back and verified, in N ms
      plan limits is running again; 1 decision superseded; 1 subplan invalidated; step undone: api/handlers
      no undo command: side effects outside the workspace were not undone: api/handlers
        ~ main.rs  restored
        + table.sql  created
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "show", "limits"]), @r#"
    Plan limits "Add rate limiting" is running, 1 of 4 steps done
      [x] migrate  A table for the counters
      [ ] api
          [ ] handlers
          [ ] docs
      [ ] ship
      next      api/handlers
      decisions 1; `safepoint plan tree limits` shows them
      knows     database = "postgres"
      works in  $T/project
      changed   2026-01-31 12:11:04Z, 56 seconds ago
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["undo"]), @"
    Undid the last rollback: everything is as just before it
      1 file restored, 1 file removed, read back and verified, in N ms
      plan limits is failed again
        ~ main.rs  restored
        - table.sql  removed
    Do it again with: safepoint redo
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["redo"]), @"
    Redid the rollback that was undone: everything is as after it
      2 files restored, 0 files removed, read back and verified, in N ms
      plan limits is running again; 1 decision superseded; 1 subplan invalidated; step undone: api/handlers
      no undo command: side effects outside the workspace were not undone: api/handlers
        ~ main.rs  restored
        + table.sql  created
    Undo it with: safepoint undo
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "@"]), @r#"
    Rolled back to 01KG9Z62M8VWA67JZ1WHCK43EQ "api/handlers failed", taken 7 minutes ago
      1 file restored, 1 file removed, read back and verified, in N ms
      plan limits is failed again
        ~ main.rs  restored
        - table.sql  removed
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "nothing", "@"]), @r#"
    --- stderr
    error: cannot roll plan "nothing" back to checkpoint "@": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn where_only_the_plan_differs_it_is_rolled_back_all_the_same() {
    let sandbox = planned();
    sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", "good"]);
    sandbox.run(&["plan", "context", "set", "limits", "key", "1"]);
    assert_snapshot!(sandbox.run(&["plan", "rollback", "limits", "good"]), @r#"
    Rolled back to 01KG9YV2300QJS22HDXJ4G4Q61 "good", taken 1 minute ago
      0 files restored, 0 files removed, read back and verified, in N ms
      plan limits is ready again
    Undo it with: safepoint undo
    --- exit 0
    "#);
    let knows = || sandbox.json(&["plan", "show", "limits", "--json"])["data"]["plan"]["context"].clone();
    assert_eq!(knows(), json!({}));
    sandbox.run(&["undo"]);
    assert_eq!(knows(), json!({"key": 1}));
}

#[test]
fn pause_and_cancel() {
    let sandbox = planned();
    assert_snapshot!(sandbox.run(&["plan", "pause", "limits"]), @r#"
    --- stderr
    error: cannot pause plan "limits": the plan is ready and cannot become paused
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    assert_snapshot!(sandbox.run(&["plan", "pause", "limits"]), @"
    Paused plan limits: it goes on with its next step.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "cancel", "limits"]), @"
    Cancelled plan limits: a rollback to one of its checkpoints brings it back.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["plan", "cancel", "limits"]), @r#"
    --- stderr
    error: cannot cancel plan "limits": the plan is cancelled and cannot change
    Nothing was changed.
    hint: `safepoint plan show limits` shows where it is.
    --- exit 12
    "#);
    assert_snapshot!(sandbox.run(&["plan", "apply", "nothing"]), @r#"
    --- stderr
    error: cannot apply plan "nothing": there is no plan "nothing"
    Nothing was changed.
    hint: `safepoint plan list` shows the plans.
    --- exit 10
    "#);
}

#[test]
fn a_step_stays_as_it_is_when_the_checkpoint_after_it_fails() {
    let sandbox = planned();
    sandbox.run(&["plan", "step", "start", "limits", "migrate"]);
    sandbox.write(".safepoint.toml", "odd = 1\n");
    assert_snapshot!(sandbox.run(&["plan", "step", "fail", "limits", "migrate"]), @r#"
    --- stderr
    error: cannot note that step "migrate" failed: unknown key `odd` in .safepoint.toml line 1: known there are label, retention, capture
    hint: Fix the line that the message names, and try again.
    hint: Step migrate is failed all the same: only the checkpoint after it was not taken.
    hint: The file: $T/project/.safepoint.toml
    --- exit 1
    "#);
    assert_snapshot!(sandbox.run(&["plan", "step", "start", "limits", "migrate"]), @r#"
    --- stderr
    error: cannot start step "migrate": unknown key `odd` in .safepoint.toml line 1: known there are label, retention, capture
    Nothing was changed.
    hint: Fix the line that the message names, and try again.
    hint: The file: $T/project/.safepoint.toml
    --- exit 1
    "#);
    let shown = sandbox.json(&["plan", "show", "limits", "--json"]);
    assert_eq!(shown["data"]["plan"]["steps"][0]["state"], "failed");
}

/// A plan with a subplan, driven to a failure; each command is a separate process.
#[test]
fn the_whole_story() {
    let sandbox = planned();
    let ok = |args: &[&str]| {
        let answer = sandbox.json(&[args, &["--json"]].concat());
        assert_eq!(answer["status"], "ok", "{answer:#}");
        answer["data"].clone()
    };
    ok(&["plan", "step", "start", "limits", "migrate"]);
    sandbox.write("table.sql", "CREATE TABLE counters;\n");
    ok(&["plan", "step", "finish", "limits", "migrate"]);
    let made = ok(&["plan", "decide", "limits", "--question", "Where?", "--choice", "postgres"]);
    let first = made["decision"]["id"].as_str().unwrap().to_owned();
    let started = ok(&["plan", "step", "start", "limits", "api/handlers"]);
    let taken = &started["checkpoints"][0];
    assert_eq!((&taken["label"], &taken["step_index"]), (&json!("before api/handlers"), &json!(1)));
    let then = ok(&["plan", "checkpoint", "show", "limits", "before api/handlers"])["state"].clone();
    assert_eq!(then["decisions"][0]["id"], json!(first));

    ok(&["plan", "decide", "limits", "--question", "How?", "--choice", "sliding", "--parent", &first]);
    sandbox.write("handlers.rs", "fn limit() {}\n");
    ok(&["plan", "step", "finish", "limits", "api/handlers", "--output", "{\"files\": 1}"]);
    ok(&["plan", "step", "start", "limits", "api/docs"]);
    sandbox.write("main.rs", "garbage");
    fs::remove_file(sandbox.path("project/table.sql")).unwrap();
    let failed = ok(&["plan", "step", "fail", "limits", "api/docs", "--error", "all is broken"]);
    assert_eq!(failed["plan"]["state"], "failed");
    let broken = failed["checkpoints"][0]["state_hash"].clone();

    let listed = ok(&["plan", "checkpoint", "list", "limits"]);
    let labels: Vec<&Value> =
        listed["checkpoints"].as_array().unwrap().iter().map(|it| &it["label"]).collect();
    assert_eq!(labels, ["api/docs failed", "before api/docs", "before api/handlers", "before migrate"]);
    let rolled = ok(&["plan", "rollback", "limits", "before api/handlers"]);
    let steps = ["api/docs", "api/handlers"];
    let back = json!({"decisions_superseded": 1, "subplans_invalidated": 1, "steps_taken_back": steps, "state": "running"});
    assert_eq!(rolled["rollback"]["plan"], back);
    let again = ok(&["plan", "checkpoint", "create", "limits", "-m", "again"]);
    assert_eq!(again["checkpoint"]["state_hash"], taken["state_hash"], "equal states have equal hashes");
    assert_eq!(again["checkpoint"]["files"]["modified"], 0);
    assert_eq!(ok(&["plan", "checkpoint", "show", "limits", "again"])["state"], then);
    assert_eq!(ok(&["diff", "before api/handlers"])["changes"], json!([]));
    assert_eq!(sandbox.read("main.rs"), "fn main() {}\n");
    assert_eq!(sandbox.read("table.sql"), "CREATE TABLE counters;\n");
    assert!(!sandbox.path("project/handlers.rs").exists());

    ok(&["undo"]);
    assert_eq!(sandbox.read("main.rs"), "garbage");
    assert_eq!(sandbox.read("handlers.rs"), "fn limit() {}\n");
    let undone = ok(&["plan", "checkpoint", "create", "limits", "-m", "undone"]);
    assert_eq!(undone["checkpoint"]["state_hash"], broken);
    ok(&["redo"]);
    for step in ["api/handlers", "api/docs", "ship"] {
        ok(&["plan", "step", "start", "limits", step]);
        ok(&["plan", "step", "finish", "limits", step]);
    }
    assert_eq!(ok(&["plan", "apply", "limits"])["plan"]["state"], "applied");
    let refused = sandbox.json(&["plan", "rollback", "limits", "before ship", "--json"]);
    assert_eq!((&refused["exit_code"], &refused["error"]["code"]), (&json!(12), &json!("plan_applied")));
    assert_eq!(ok(&["validate", "--deep"])["is_valid"], true);
}

#[test]
fn a_plan_that_is_paused_can_still_be_finished() {
    let sandbox = Sandbox::new();
    sandbox.run(&["plan", "new", "--title", "One", "--id", "one"]);
    sandbox.run(&["plan", "step", "add", "one", "only"]);
    sandbox.run(&["plan", "step", "start", "one", "only"]);
    sandbox.run(&["plan", "pause", "one"]);
    assert_snapshot!(sandbox.run(&["plan", "step", "finish", "one", "only"]), @"
    Step only done
      every step of the plan is done
    --- exit 0
    ");
}

#[test]
fn a_plan_goes_back_by_every_strategy() {
    let steps = "[[step]]\nid = 'a'\nphase = 'implement'\nrun = 'echo a > file'\n[[step]]\nid = 'b'\nrun = 'echo b > file'\n\
                 [[step]]\nid = 'c'\nrun = 'echo c > file'";
    let sandbox = crate::plan_run::planned(steps);
    let data = |args: &[&str]| crate::plan_run::data(&sandbox, args);
    data(&["plan", "run", "work"]);
    sandbox.run(&["create", "-m", "not of the plan"]);
    let rollback = |more: &[&str]| data(&[&["plan", "rollback", "work"], more].concat());
    let staged = rollback(&["before c", "--verify", "grep b file", "--yes"]);
    assert_eq!((&staged["checks"][0]["passed"], &staged["plan"]["step_index"]), (&json!(true), &json!(2)));
    assert_eq!(sandbox.read("file"), "b\n");
    sandbox.run(&["undo"]);
    let until = rollback(&["--until", "grep a file"]);
    assert_eq!(
        (&until["plan"]["step_index"], &until["rollback"]["strategy"]),
        (&json!(1), &json!("progressive"))
    );
    assert_eq!(sandbox.read("file"), "a\n");
    sandbox.run(&["undo"]);
    let files = rollback(&["before c", "--part", "files"]);
    assert_eq!((&files["plan"]["state"], sandbox.read("file").as_str()), (&json!("done"), "b\n"));
    for wrong in
        [&["@", "--strategy", "progressive"][..], &["@", "--strategy", "selective"], &["@", "--part", "git"]]
    {
        assert_eq!(
            sandbox.output(&[&["plan", "rollback", "work"], wrong].concat()).status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_checkpoint_of_a_plan_has_its_fields() {
    let steps = "[[step]]\nid = 'a'\nphase = 'implement'\nrun = 'echo a > file'\n[[step]]\nid = 'b'";
    let sandbox = crate::plan_run::planned(steps);
    let data = |args: &[&str]| crate::plan_run::data(&sandbox, args);
    data(&["plan", "run", "work"]);
    let decision = data(&["plan", "decide", "work", "--question", "q", "--choice", "c"])["plan"]["decisions"]
        [0]["id"]
        .clone();
    let made = data(&["plan", "checkpoint", "create", "work"])["checkpoint"].clone();
    assert_eq!((&made["decision_id"], &made["phase"]), (&decision, &json!("implement")));
    let progress = &made["progress"];
    assert_eq!(
        json!([progress["tasks_completed"], progress["decisions_made"], progress["files_created"]]),
        json!([1, 1, 1])
    );
    let state = &data(&["show", "@"])["checkpoint"]["state_snapshot"];
    assert_eq!((state, &state["decisions"][0]["id"]), (&made["state_snapshot"], &decision));
    // Lists leave it out, and no answer gives a hash in its place.
    assert!(data(&["list"])["checkpoints"][0]["state_snapshot"].is_null());
    assert!(data(&["list"])["checkpoints"][0]["state_hash"].is_string());
    assert!(data(&["plan", "checkpoint", "list", "work"])["checkpoints"][0]["state_snapshot"].is_null());
    let created = data(&["create", "--scope", "workflow", "--plan", "work"]);
    assert_eq!(created["checkpoint"]["state_snapshot"]["decisions"][0]["id"], decision);
}
