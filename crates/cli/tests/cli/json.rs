//! Complete JSON formats that programs rely on.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

#[test]
fn create() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "1");
    assert_snapshot!(sandbox.json_text(&["create", "-m", "first", "--json"]), @r#"
    {
      "command": "create",
      "data": {
        "checkpoint": {
          "commit_message": null,
          "commit_sha": null,
          "coverage": {
            "skipped": [],
            "unsettled": []
          },
          "created_at": "2026-01-31T12:00:03.000000Z",
          "decision_id": null,
          "files": {
            "added": 1,
            "bytes": 1,
            "count": 1,
            "modified": 0,
            "removed": 0
          },
          "id": "01KG9YS9EGCQT0DH2X3200JHAF",
          "integrity": "<hash>",
          "kind": "manual",
          "label": "first",
          "metrics": {},
          "parent": null,
          "parts": [
            {
              "document": "<hash>",
              "key": "01KG9YS7G0000E485875XHVKDF",
              "kind": "files"
            }
          ],
          "phase": null,
          "pinned": false,
          "plan_id": null,
          "progress": {
            "decisions_made": 0,
            "files_created": 1,
            "files_modified": 0,
            "tasks_completed": 0,
            "tests_failing": 0,
            "tests_passing": 0
          },
          "reason": "manual",
          "role": null,
          "rollback_count": 0,
          "rollback_used": false,
          "sandbox_ref": null,
          "scope": "project",
          "session_id": null,
          "size_bytes": N,
          "source_tool": null,
          "state_hash": null,
          "state_snapshot": null,
          "step_index": null,
          "tags": [],
          "uuid": "019c13ec-a5d0-65f4-06c4-5d188009454f",
          "warnings": [],
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        },
        "pruned": [],
        "published": [],
        "tests_passing": null,
        "unchanged": false,
        "workspace": {
          "created_at": "2026-01-31T12:00:01.000000Z",
          "head": null,
          "id": "01KG9YS7G0000E485875XHVKDF",
          "name": "project",
          "root": "$T/project"
        }
      },
      "exit_code": 0,
      "messages": [
        {
          "code": null,
          "level": "info",
          "text": "Registered $T/project as a workspace."
        }
      ],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:00:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn show_with_files() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.json_text(&["show", "@", "--files", "--json"]), @r#"
    {
      "command": "show",
      "data": {
        "checkpoint": {
          "commit_message": null,
          "commit_sha": null,
          "coverage": {
            "skipped": [
              {
                "path": ".git",
                "why": "git"
              }
            ],
            "unsettled": []
          },
          "created_at": "2026-01-31T12:00:03.000000Z",
          "decision_id": null,
          "files": {
            "added": 6,
            "bytes": 50,
            "count": 6,
            "modified": 0,
            "removed": 0
          },
          "id": "01KG9YS9EGCQT0DH2X3200JHAF",
          "integrity": "<hash>",
          "kind": "manual",
          "label": "first",
          "metrics": {},
          "parent": null,
          "parts": [
            {
              "document": "<hash>",
              "key": "01KG9YS7G0000E485875XHVKDF",
              "kind": "files"
            }
          ],
          "phase": null,
          "pinned": false,
          "plan_id": null,
          "progress": {
            "decisions_made": 0,
            "files_created": 6,
            "files_modified": 0,
            "tasks_completed": 0,
            "tests_failing": 0,
            "tests_passing": 0
          },
          "reason": "manual",
          "role": null,
          "rollback_count": 0,
          "rollback_used": false,
          "sandbox_ref": null,
          "scope": "project",
          "session_id": null,
          "size_bytes": N,
          "source_tool": null,
          "state_hash": null,
          "state_snapshot": null,
          "step_index": null,
          "tags": [],
          "uuid": "019c13ec-a5d0-65f4-06c4-5d188009454f",
          "warnings": [],
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        },
        "entries": [
          {
            "hash": "<hash>",
            "mode": "0755",
            "path": "empty",
            "size": null,
            "target": null,
            "type": "directory"
          },
          {
            "hash": null,
            "mode": "0777",
            "path": "link",
            "size": null,
            "target": "notes.txt",
            "type": "symlink"
          },
          {
            "hash": "<hash>",
            "mode": "0644",
            "path": "notes.txt",
            "size": 5,
            "target": null,
            "type": "file"
          },
          {
            "hash": "<hash>",
            "mode": "0755",
            "path": "run.sh",
            "size": 10,
            "target": null,
            "type": "file"
          },
          {
            "hash": "<hash>",
            "mode": "0755",
            "path": "src",
            "size": null,
            "target": null,
            "type": "directory"
          },
          {
            "hash": "<hash>",
            "mode": "0644",
            "path": "src/main.rs",
            "size": 35,
            "target": null,
            "type": "file"
          }
        ],
        "folders": null
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn rollback_and_dry_run() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    assert_snapshot!(sandbox.json_text(&["rollback", "@", "--dry-run", "--json"]), @r#"
    {
      "command": "rollback",
      "data": {
        "built": null,
        "check_changed_files": null,
        "checkpoints": null,
        "checks": null,
        "current": null,
        "left_out": null,
        "other_turns": null,
        "rollback": {
          "agents": [],
          "answers": null,
          "blocked": [],
          "changed_meanwhile": [],
          "changed_paths": [
            {
              "action": "removed",
              "path": "junk.log"
            },
            {
              "action": "restored",
              "path": "notes.txt"
            },
            {
              "action": "created",
              "path": "src/main.rs"
            }
          ],
          "dry_run": true,
          "effects_not_undone": [],
          "from": "01KG9YS9EGCQT0DH2X3200JHAF",
          "git": null,
          "id": null,
          "left_alone": [],
          "memory": [],
          "parts": [],
          "paths": [],
          "plan": null,
          "plans": null,
          "plans_left": [],
          "removed_files_count": 1,
          "rescued": [],
          "restored_files_count": 2,
          "safety_checkpoint": null,
          "session": null,
          "sessions": null,
          "strategy": "immediate",
          "threads": [],
          "to": "01KG9YS9EGCQT0DH2X3200JHAF",
          "together": null,
          "undone": [],
          "verb": "rollback",
          "verified": false,
          "waiting": []
        },
        "tried_in": null
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["rollback", "@", "--json"]), @r#"
    {
      "command": "rollback",
      "data": {
        "built": null,
        "check_changed_files": null,
        "checkpoints": null,
        "checks": null,
        "current": null,
        "left_out": null,
        "other_turns": null,
        "rollback": {
          "agents": [],
          "answers": null,
          "blocked": [],
          "changed_meanwhile": [],
          "changed_paths": [
            {
              "action": "removed",
              "path": "junk.log"
            },
            {
              "action": "restored",
              "path": "notes.txt"
            },
            {
              "action": "created",
              "path": "src/main.rs"
            }
          ],
          "dry_run": false,
          "effects_not_undone": [],
          "from": "01KG9YS9EGCQT0DH2X3200JHAF",
          "git": null,
          "id": "01KG9YWWP02J59EP1NVRE9ENPE",
          "left_alone": [],
          "memory": [],
          "parts": [],
          "paths": [],
          "plan": null,
          "plans": null,
          "plans_left": [],
          "removed_files_count": 1,
          "rescued": [],
          "restored_files_count": 2,
          "safety_checkpoint": "01KG9YWYMG3S19GYXWQZEQWMSF",
          "session": null,
          "sessions": null,
          "strategy": "immediate",
          "threads": [],
          "to": "01KG9YS9EGCQT0DH2X3200JHAF",
          "together": null,
          "undone": [],
          "verb": "rollback",
          "verified": true,
          "waiting": []
        },
        "tried_in": null
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
    let undo = sandbox.json(&["undo", "--json"]);
    assert_eq!((&undo["command"], &undo["data"]["rollback"]["verb"]), (&"undo".into(), &"undo".into()));
    let redo = sandbox.json(&["redo", "--json"]);
    assert_eq!(redo["data"]["rollback"]["answers"], undo["data"]["rollback"]["id"]);
}

#[test]
fn status_and_diff() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    assert_snapshot!(sandbox.json_text(&["status", "--json"]), @r#"
    {
      "command": "status",
      "data": {
        "after_partial_rollback": null,
        "agents": [],
        "base": {
          "commit_message": null,
          "commit_sha": null,
          "created_at": "2026-01-31T12:00:03.000000Z",
          "decision_id": null,
          "files": {
            "added": 6,
            "bytes": 50,
            "count": 6,
            "modified": 0,
            "removed": 0
          },
          "id": "01KG9YS9EGCQT0DH2X3200JHAF",
          "integrity": "<hash>",
          "kind": "manual",
          "label": "first",
          "metrics": {},
          "parent": null,
          "parts": [
            {
              "document": "<hash>",
              "key": "01KG9YS7G0000E485875XHVKDF",
              "kind": "files"
            }
          ],
          "phase": null,
          "pinned": false,
          "plan_id": null,
          "progress": {
            "decisions_made": 0,
            "files_created": 6,
            "files_modified": 0,
            "tasks_completed": 0,
            "tests_failing": 0,
            "tests_passing": 0
          },
          "reason": "manual",
          "role": null,
          "rollback_count": 0,
          "rollback_used": false,
          "sandbox_ref": null,
          "scope": "project",
          "session_id": null,
          "size_bytes": N,
          "source_tool": null,
          "state_hash": null,
          "state_snapshot": null,
          "step_index": null,
          "tags": [],
          "uuid": "019c13ec-a5d0-65f4-06c4-5d188009454f",
          "warnings": [],
          "workspace_id": "01KG9YS7G0000E485875XHVKDF"
        },
        "catalog": "known",
        "changes": [
          {
            "change": "added",
            "new": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 5,
              "target": null,
              "type": "file"
            },
            "old": null,
            "path": "junk.log"
          },
          {
            "change": "modified",
            "new": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 4,
              "target": null,
              "type": "file"
            },
            "old": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 5,
              "target": null,
              "type": "file"
            },
            "path": "notes.txt"
          },
          {
            "change": "removed",
            "new": null,
            "old": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 35,
              "target": null,
              "type": "file"
            },
            "path": "src/main.rs"
          }
        ],
        "checkpoints": 1,
        "coverage": {
          "skipped": [
            {
              "path": ".git",
              "why": "git"
            }
          ],
          "unsettled": []
        },
        "covered": false,
        "lost_repository": null,
        "recovery": {
          "foreign": [],
          "released": [],
          "rescued": [],
          "settled": [],
          "undone": [],
          "waiting": [],
          "warnings": []
        },
        "store": { "bytes": N,
          "objects": 10,
          "packs": 1
        },
        "uncovered": [],
        "verdict": "changed",
        "workspace": {
          "created_at": "2026-01-31T12:00:01.000000Z",
          "head": "01KG9YS9EGCQT0DH2X3200JHAF",
          "id": "01KG9YS7G0000E485875XHVKDF",
          "name": "project",
          "root": "$T/project"
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["diff", "--json", "--", "notes.txt"]), @r#"
    {
      "command": "diff",
      "data": {
        "changes": [
          {
            "change": "modified",
            "new": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 4,
              "target": null,
              "type": "file"
            },
            "old": {
              "hash": "<hash>",
              "mode": "0644",
              "size": 5,
              "target": null,
              "type": "file"
            },
            "path": "notes.txt"
          }
        ],
        "coverage": {
          "skipped": [
            {
              "path": ".git",
              "why": "git"
            }
          ],
          "unsettled": []
        },
        "from": "01KG9YS9EGCQT0DH2X3200JHAF",
        "to": null
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
}

#[test]
fn validate_summary_recover_init_version() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.json_text(&["validate", "--json"]), @r#"
    {
      "command": "validate",
      "data": {
        "checked": { "bytes": N,
          "checkpoints": 1,
          "objects": 10
        },
        "damaged": [],
        "errors": [],
        "git_status": null,
        "has_uncommitted_changes": null,
        "is_valid": true,
        "restorable": [
          "01KG9YS9EGCQT0DH2X3200JHAF"
        ],
        "tests_passing": null,
        "unfinished_bytes": 0,
        "warnings": []
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
    let summary = sandbox.json(&["summary", "--json"]);
    assert_eq!(summary["data"]["summary"]["latest_checkpoint"]["label"], "first");
    assert_eq!(summary["data"]["summary"]["checkpoints_by_kind"]["manual"], 1);
    assert_snapshot!(sandbox.json_text(&["recover", "--json"]), @r#"
    {
      "command": "recover",
      "data": {
        "recovery": {
          "foreign": [],
          "released": [],
          "rescued": [],
          "settled": [],
          "undone": [],
          "waiting": [],
          "warnings": []
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:03:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["init", "--json"]), @r#"
    {
      "command": "init",
      "data": {
        "coverage": {
          "skipped": [
            {
              "path": ".git",
              "why": "git"
            }
          ],
          "unsettled": []
        },
        "files": {
          "bytes": 50,
          "count": 6
        },
        "workspace": {
          "created_at": "2026-01-31T12:00:01.000000Z",
          "head": "01KG9YS9EGCQT0DH2X3200JHAF",
          "id": "01KG9YS7G0000E485875XHVKDF",
          "name": "project",
          "root": "$T/project"
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:04:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["version", "--json"]), @r#"
    {
      "command": "version",
      "data": {
        "json": 1,
        "version": "0.1.0"
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:05:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_eq!(sandbox.json(&["cat", "@", "notes.txt", "--json"])["data"]["content"], "good\n");
}

#[test]
fn failures() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.json_text(&["show", "nothing", "--json"]), @r#"
    {
      "command": "show",
      "data": null,
      "error": {
        "causes": [],
        "code": "no_checkpoint",
        "hints": [
          "`safepoint list` shows the checkpoints of this workspace."
        ],
        "kind": "not_found",
        "message": "no checkpoint is called \"nothing\""
      },
      "exit_code": 10,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["--json", "rolback"]), @r#"
    {
      "command": "",
      "data": null,
      "error": {
        "causes": [],
        "code": "usage",
        "hints": [
          "`safepoint help` lists the commands, and each has `--help`.",
          "a similar subcommand exists: 'rollback'"
        ],
        "kind": "usage",
        "message": "unrecognized subcommand 'rolback'"
      },
      "exit_code": 2,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:02:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["create", "--kind", "odd", "--json"]), @r#"
    {
      "command": "create",
      "data": null,
      "error": {
        "causes": [],
        "code": "usage",
        "hints": [
          "`safepoint help` lists the commands, and each has `--help`."
        ],
        "kind": "usage",
        "message": "invalid value 'odd' for '--kind <KIND>'\n  [possible values: automatic, manual, workflow, emergency]"
      },
      "exit_code": 2,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:03:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.run(&["--json", "rollback", "--frob"]), @r#"
    {"version":1,"command":"rollback","status":"error","exit_code":2,"data":null,"error":{"code":"usage","kind":"usage","message":"unexpected argument '--frob' found","causes":[],"hints":["`safepoint help` lists the commands, and each has `--help`.","a similar argument exists: '--before-turn'\n  tip: to pass '--frob' as a value, use '-- --frob'"]},"messages":[],"timing":{"duration_ms": N,"started":"2026-01-31T12:04:00.000000Z"}}
    --- stderr
    error: cannot understand the command line: unexpected argument '--frob' found
    hint: `safepoint help` lists the commands, and each has `--help`.
    hint: a similar argument exists: '--before-turn'\n  tip: to pass '--frob' as a value, use '-- --frob'
    --- exit 2
    "#);
}
