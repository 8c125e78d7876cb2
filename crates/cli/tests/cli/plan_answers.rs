//! JSON output of the plan commands.

use crate::plan::{failed, planned};
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::{Value, json};

#[test]
fn the_answers_to_a_program() {
    let (sandbox, _) = failed();
    assert_snapshot!(sandbox.json_text(&["plan", "show", "limits", "--json"]), @r#"
    {
      "command": "plan show",
      "data": {
        "plan": {
          "checkpoints": {
            "every": null,
            "every_steps": null,
            "on": [
              "before_step",
              "after_subplan",
              "on_error"
            ]
          },
          "context": {
            "database": "postgres"
          },
          "created_at": "2026-01-31T12:00:02.000000Z",
          "decisions": [
            {
              "alternatives": [],
              "choice": "postgres",
              "depends_on": [],
              "id": "01KG9YYQ9053R1T2RMWKDG33ZD",
              "made_at": "2026-01-31T12:03:01.000000Z",
              "parent": null,
              "question": "Where are the counters?",
              "rationale": "It is there.",
              "step": "migrate"
            },
            {
              "alternatives": [
                "fixed"
              ],
              "choice": "sliding",
              "depends_on": [],
              "id": "01KG9Z47206DPBTS55V6PYZR00",
              "made_at": "2026-01-31T12:06:01.000000Z",
              "parent": "01KG9YYQ9053R1T2RMWKDG33ZD",
              "question": "Which window?",
              "rationale": null,
              "step": null
            }
          ],
          "id": "limits",
          "outputs": {},
          "sandbox": {
            "kind": "in-place",
            "path": "$T/project",
            "state": "ready"
          },
          "state": "failed",
          "step_index": 1,
          "steps": [
            {
              "attempts": 1,
              "env": null,
              "error": null,
              "finished_at": "2026-01-31T12:02:00.000000Z",
              "id": "migrate",
              "idempotent": null,
              "log": null,
              "on_interrupt": "ask",
              "output": {
                "tables": 1
              },
              "parallel": null,
              "path": "migrate",
              "phase": null,
              "retries": null,
              "risky": null,
              "run": null,
              "skipped": null,
              "started_at": "2026-01-31T12:01:03.000000Z",
              "state": "done",
              "steps": [],
              "timeout": null,
              "title": "A table for the counters",
              "undo": null,
              "verify": null
            },
            {
              "attempts": 1,
              "env": null,
              "error": null,
              "finished_at": "2026-01-31T12:07:00.000000Z",
              "id": "api",
              "idempotent": null,
              "log": null,
              "on_interrupt": "ask",
              "output": null,
              "parallel": null,
              "path": "api",
              "phase": null,
              "retries": null,
              "risky": null,
              "run": null,
              "skipped": null,
              "started_at": "2026-01-31T12:05:03.000000Z",
              "state": "failed",
              "steps": [
                {
                  "attempts": 1,
                  "env": null,
                  "error": "2 tests fail",
                  "finished_at": "2026-01-31T12:07:00.000000Z",
                  "id": "handlers",
                  "idempotent": null,
                  "log": null,
                  "on_interrupt": "ask",
                  "output": null,
                  "parallel": null,
                  "path": "api/handlers",
                  "phase": null,
                  "retries": null,
                  "risky": null,
                  "run": null,
                  "skipped": null,
                  "started_at": "2026-01-31T12:05:03.000000Z",
                  "state": "failed",
                  "steps": [],
                  "timeout": null,
                  "title": null,
                  "undo": null,
                  "verify": null
                },
                {
                  "attempts": 0,
                  "env": null,
                  "error": null,
                  "finished_at": null,
                  "id": "docs",
                  "idempotent": null,
                  "log": null,
                  "on_interrupt": "ask",
                  "output": null,
                  "parallel": null,
                  "path": "api/docs",
                  "phase": null,
                  "retries": null,
                  "risky": null,
                  "run": null,
                  "skipped": null,
                  "started_at": null,
                  "state": "pending",
                  "steps": [],
                  "timeout": null,
                  "title": null,
                  "undo": null,
                  "verify": null
                }
              ],
              "timeout": null,
              "title": null,
              "undo": null,
              "verify": null
            },
            {
              "attempts": 0,
              "env": null,
              "error": null,
              "finished_at": null,
              "id": "ship",
              "idempotent": null,
              "log": null,
              "on_interrupt": "ask",
              "output": null,
              "parallel": null,
              "path": "ship",
              "phase": null,
              "retries": null,
              "risky": null,
              "run": null,
              "skipped": null,
              "started_at": null,
              "state": "pending",
              "steps": [],
              "timeout": null,
              "title": null,
              "undo": null,
              "verify": null
            }
          ],
          "title": "Add rate limiting",
          "updated_at": "2026-01-31T12:07:00.000000Z",
          "version": 7,
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:08:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "list", "--json"]), @r#"
    {
      "command": "plan list",
      "data": {
        "plans": [
          {
            "created_at": "2026-01-31T12:00:02.000000Z",
            "id": "limits",
            "state": "failed",
            "title": "Add rate limiting",
            "updated_at": "2026-01-31T12:07:00.000000Z",
            "workspace_id": "01KG9YS7G0000E485875XHVKDF"
          }
        ]
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:09:00.000000Z"
      },
      "version": 1
    }
    "#);
    let rolled = sandbox.json(&["plan", "rollback", "limits", "before api/handlers", "--json"]);
    let steps = ["api/handlers"];
    let back = json!({"decisions_superseded": 1, "subplans_invalidated": 1, "steps_taken_back": steps, "state": "running"});
    assert_eq!(rolled["data"]["rollback"]["plan"], back);
    let plan = &rolled["data"]["plan"];
    assert_eq!((&plan["state"], &plan["step_index"]), (&json!("running"), &json!(1)));
    let undone = sandbox.json(&["undo", "--json"]);
    assert_eq!(undone["data"]["rollback"]["plan"]["state"], "failed");
    let redone = sandbox.json(&["redo", "--json"]);
    assert_eq!(redone["data"]["rollback"]["plan"]["decisions_superseded"], 1);
    let path = sandbox.json(&["rollback", "api/handlers failed", "--path", "main.rs", "--json"]);
    assert_eq!(path["data"]["rollback"]["plan"], Value::Null);
    let files = sandbox.json(&["rollback", "api/handlers failed", "--part", "files", "--dry-run", "--json"]);
    assert_eq!(files["data"]["rollback"]["strategy"], "selective");
    assert_eq!(files["data"]["rollback"]["plan"], Value::Null);
    let plain = sandbox.json(&["rollback", "api/handlers failed", "--dry-run", "--json"]);
    assert_eq!(plain["data"]["rollback"]["plan"]["state"], "failed");
    assert_snapshot!(sandbox.json_text(&["plan", "show", "nothing", "--json"]), @r#"
    {
      "command": "plan show",
      "data": null,
      "error": {
        "causes": [],
        "code": "no_plan",
        "hints": [
          "`safepoint plan list` shows the plans."
        ],
        "kind": "not_found",
        "message": "there is no plan \"nothing\""
      },
      "exit_code": 10,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:16:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "step", "start", "limits", "ship", "--json"]), @r#"
    {
      "command": "plan step start",
      "data": null,
      "error": {
        "causes": [],
        "code": "plan_rule",
        "hints": [
          "`safepoint plan show limits` shows where it is."
        ],
        "kind": "conflict",
        "message": "step ship cannot start before api is done"
      },
      "exit_code": 12,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:17:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["plan", "step", "finish", "limits", "--json"]), @r#"
    {
      "command": "plan step finish",
      "data": null,
      "error": {
        "causes": [],
        "code": "usage",
        "hints": [
          "`safepoint help` lists the commands, and each has `--help`."
        ],
        "kind": "usage",
        "message": "the following required arguments were not provided:\n  <STEP>"
      },
      "exit_code": 2,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:18:00.000000Z"
      },
      "version": 1
    }
    "#);
}

/// Returns the output with plans and checkpoints by name.
fn brief(sandbox: &Sandbox, line: &str) -> String {
    fn named(value: &mut Value) {
        match value {
            Value::Object(fields) if fields.contains_key("step_index") => {
                *value = match fields.get("label") {
                    Some(label) => json!(format!("checkpoint {} at step {}", label, fields["step_index"])),
                    None => json!(format!("plan {} {}", fields["id"], fields["state"])),
                };
            }
            Value::Object(fields) if fields.contains_key("milestones") => {
                *value = json!(format!("state of plan {} {}", fields["id"], fields["state"]));
            }
            Value::Object(fields) => fields.values_mut().for_each(named),
            Value::Array(items) => items.iter_mut().for_each(named),
            _ => {}
        }
    }
    let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
    let mut answer = sandbox.json(&args);
    let error = answer["error"]["code"].as_str().unwrap_or("done").to_owned();
    named(&mut answer["data"]);
    let exit = &answer["exit_code"];
    format!("{}: exit {exit}, {error}, {}\n", answer["command"].as_str().unwrap(), answer["data"])
}

#[test]
fn every_subcommand_answers_programs() {
    let sandbox = planned();
    let mut told = String::new();
    for line in [
        "plan new --title Other --id other",
        "plan step start limits migrate",
        "plan step finish limits migrate --output 1",
        "plan decide limits --question a --choice b --step migrate",
        "plan context set limits key [1]",
        "plan context get limits key",
        "plan context unset limits key",
        "plan output set limits key true",
        "plan step add limits more --below api",
        "plan checkpoint create limits -m good",
        "plan decide limits --question c --choice d",
        "plan step start limits api/handlers",
        "plan step fail limits api/handlers --error no",
        "plan checkpoint list limits",
        "plan checkpoint show limits good",
        "plan rollback limits",
        "plan rollback limits good --dry-run",
        "plan tree limits",
        "plan log limits",
        "plan checkpoint delete limits @ --yes",
        "plan step start limits api/handlers",
        "plan pause limits",
        "plan cancel other",
    ] {
        told.push_str(&brief(&sandbox, line));
    }
    assert_snapshot!(told, @r#"
    plan new: exit 0, done, {"plan":"plan \"other\" \"draft\""}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before migrate\" at step 0"],"plan":"plan \"limits\" \"running\"","step":"migrate"}
    plan step finish: exit 0, done, {"checkpoints":[],"plan":"plan \"limits\" \"running\"","step":"migrate"}
    plan decide: exit 0, done, {"decision":{"alternatives":[],"choice":"b","depends_on":[],"id":"01KG9Z0HW054A6WWZ3EBH372PA","made_at":"2026-01-31T12:04:01.000000Z","parent":null,"question":"a","rationale":null,"step":"migrate"},"plan":"plan \"limits\" \"running\""}
    plan context set: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\"","value":[1]}
    plan context get: exit 0, done, {"key":"key","value":[1]}
    plan context unset: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\""}
    plan output set: exit 0, done, {"key":"key","plan":"plan \"limits\" \"running\"","value":true}
    plan step add: exit 0, done, {"plan":"plan \"limits\" \"running\"","step":"api/more"}
    plan checkpoint create: exit 0, done, {"checkpoint":"checkpoint \"good\" at step 1","pruned":[],"tests_passing":null}
    plan decide: exit 0, done, {"decision":{"alternatives":[],"choice":"d","depends_on":[],"id":"01KG9ZDC10QDPN1XB4FMHR0C4X","made_at":"2026-01-31T12:11:01.000000Z","parent":null,"question":"c","rationale":null,"step":null},"plan":"plan \"limits\" \"running\""}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before api/handlers\" at step 1"],"plan":"plan \"limits\" \"running\"","step":"api/handlers"}
    plan step fail: exit 0, done, {"checkpoints":["checkpoint \"api/handlers failed\" at step 1"],"plan":"plan \"limits\" \"failed\"","step":"api/handlers"}
    plan checkpoint list: exit 0, done, {"checkpoints":["checkpoint \"api/handlers failed\" at step 1","checkpoint \"before api/handlers\" at step 1","checkpoint \"good\" at step 1","checkpoint \"before migrate\" at step 0"]}
    plan checkpoint show: exit 0, done, {"checkpoint":"checkpoint \"good\" at step 1","state":"state of plan \"limits\" \"running\""}
    plan rollback: exit 0, done, {"check_changed_files":null,"checkpoints":["checkpoint \"api/handlers failed\" at step 1","checkpoint \"before api/handlers\" at step 1","checkpoint \"good\" at step 1","checkpoint \"before migrate\" at step 0"],"checks":null,"current":null,"left_out":null,"plan":"plan \"limits\" \"failed\"","rollback":null,"tried_in":null}
    plan rollback: exit 0, done, {"check_changed_files":null,"checkpoints":null,"checks":null,"current":null,"left_out":null,"plan":"plan \"limits\" \"failed\"","rollback":{"agents":[],"answers":null,"blocked":[],"changed_meanwhile":[],"changed_paths":[],"dry_run":true,"effects_not_undone":[{"code":"no_undo_command","plan":"limits","step":"api/handlers","why":"it has no undo command"}],"from":"01KG9ZH268G78W9JHQPZWAV2QZ","git":null,"id":null,"left_alone":[],"memory":[],"parts":[],"paths":[],"plan":{"decisions_superseded":1,"state":"running","steps_taken_back":["api/handlers"],"subplans_invalidated":1},"plans":null,"plans_left":[],"removed_files_count":0,"rescued":[],"restored_files_count":0,"safety_checkpoint":null,"session":null,"sessions":null,"strategy":"immediate","threads":[],"to":"01KG9ZBHE00NWGH1RJQT55GBYA","together":null,"undone":[],"verb":"rollback","verified":false,"waiting":[]},"tried_in":null}
    plan tree: exit 0, done, {"decisions":[{"alternatives":[],"choice":"b","depends_on":[],"depth":0,"id":"01KG9Z0HW054A6WWZ3EBH372PA","made_at":"2026-01-31T12:04:01.000000Z","parent":null,"question":"a","rationale":null,"step":"migrate","superseded_by":null},{"alternatives":[],"choice":"d","depends_on":[],"depth":0,"id":"01KG9ZDC10QDPN1XB4FMHR0C4X","made_at":"2026-01-31T12:11:01.000000Z","parent":null,"question":"c","rationale":null,"step":null,"superseded_by":null}],"plan":"plan \"limits\" \"failed\""}
    plan log: exit 0, done, {"log":[{"at":"2026-01-31T12:02:01.000000Z","checkpoint":"checkpoint \"before migrate\" at step 0","kind":"checkpoint","note":null,"version":0},{"at":"2026-01-31T12:10:01.000000Z","checkpoint":"checkpoint \"good\" at step 1","kind":"checkpoint","note":null,"version":7},{"at":"2026-01-31T12:12:01.000000Z","checkpoint":"checkpoint \"before api/handlers\" at step 1","kind":"checkpoint","note":null,"version":8},{"at":"2026-01-31T12:13:00.000000Z","checkpoint":null,"kind":"error","note":{"error":"no","log":null,"step":"api/handlers"},"version":10},{"at":"2026-01-31T12:13:02.000000Z","checkpoint":"checkpoint \"api/handlers failed\" at step 1","kind":"checkpoint","note":null,"version":10}],"printed":null,"step":null}
    plan checkpoint delete: exit 0, done, {"deleted":["checkpoint \"api/handlers failed\" at step 1"]}
    plan step start: exit 0, done, {"checkpoints":["checkpoint \"before api/handlers\" at step 1"],"plan":"plan \"limits\" \"running\"","step":"api/handlers"}
    plan pause: exit 0, done, {"plan":"plan \"limits\" \"paused\""}
    plan cancel: exit 0, done, {"plan":"plan \"other\" \"cancelled\""}
    "#);
}

#[test]
fn every_subcommand_fails_for_programs() {
    let sandbox = planned();
    let mut told = String::new();
    for line in [
        "plan new plan.toml",
        "plan show none",
        "plan tree none",
        "plan log none",
        "plan step start limits none",
        "plan step finish limits migrate",
        "plan step fail limits migrate",
        "plan step add limits migrate",
        "plan decide limits --question a --choice b --parent none",
        "plan context set limits key {",
        "plan context get limits key",
        "plan context unset limits key",
        "plan output set limits key {",
        "plan checkpoint create none",
        "plan checkpoint list none",
        "plan checkpoint show limits @",
        "plan checkpoint delete limits @",
        "plan rollback limits none",
        "plan pause limits",
        "plan cancel none",
        "plan apply limits",
    ] {
        told.push_str(&brief(&sandbox, line));
    }
    assert_snapshot!(told, @"
    plan new: exit 12, taken, null
    plan show: exit 10, no_plan, null
    plan tree: exit 10, no_plan, null
    plan log: exit 10, no_plan, null
    plan step start: exit 10, no_step, null
    plan step finish: exit 12, plan_rule, null
    plan step fail: exit 12, plan_rule, null
    plan step add: exit 12, plan_rule, null
    plan decide: exit 10, no_decision, null
    plan context set: exit 2, usage, null
    plan context get: exit 10, no_key, null
    plan context unset: exit 10, no_key, null
    plan output set: exit 2, usage, null
    plan checkpoint create: exit 10, no_plan, null
    plan checkpoint list: exit 10, no_plan, null
    plan checkpoint show: exit 10, no_checkpoint, null
    plan checkpoint delete: exit 10, no_checkpoint, null
    plan rollback: exit 10, no_checkpoint, null
    plan pause: exit 12, plan_rule, null
    plan cancel: exit 10, no_plan, null
    plan apply: exit 12, plan_rule, null
    ");
}
