//! Upkeep: delete, pin, prune, gc, purge, repair.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use regex_lite::Regex;
use rustix::process::{Pid, Signal};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn delete_wants_a_yes() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "second\n");
    sandbox.run(&["create", "-m", "second"]);
    assert_snapshot!(sandbox.run(&["delete", "first"]), @"
    --- stderr
    error: cannot delete: cannot ask for confirmation: no terminal
    Nothing was changed.
    hint: Confirm with --yes.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["delete", "first", "nothing", "--yes"]), @r#"
    --- stderr
    error: cannot delete: no checkpoint is called "nothing"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_eq!(sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len(), 2);
    assert_snapshot!(sandbox.run(&["delete", "first", "@~1", "--yes", "--keep-tag"]), @"
    Deleted 1 checkpoint:
      01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago  first
    Free the space that only they took: safepoint gc
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list"]), @"
    CHECKPOINT                  WHEN           KIND    CHANGED   STORED  LABEL
    01KG9YV2300QJS22HDXJ4G4Q61  4 minutes ago  manual  +0 ~1 -0  SIZE  second
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["delete", "first", "--yes"]), @r#"
    --- stderr
    error: cannot delete: no checkpoint is called "first"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
}

#[test]
fn on_a_terminal_delete_asks() {
    let sandbox = Sandbox::with_checkpoint();
    let left = || sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len();
    assert_snapshot!(sandbox.typed(sandbox.command(&["delete", "first"]), "n\n"), @"
    n
      01KG9YS9EGCQT0DH2X3200JHAF  57 seconds ago  first
    Delete 1 checkpoint? This cannot be undone. [y/N] error: cannot delete: not confirmed
    Nothing was changed.
    hint: Answer y to go on, or give --yes.
    ");
    assert_eq!(left(), 1);
    assert_snapshot!(sandbox.typed(sandbox.command(&["delete", "first"]), "y\n"), @"
    y
      01KG9YS9EGCQT0DH2X3200JHAF  2 minutes ago  first
    Delete 1 checkpoint? This cannot be undone. [y/N] Deleted 1 checkpoint:
      01KG9YS9EGCQT0DH2X3200JHAF  2 minutes ago  first
    Free the space that only they took: safepoint gc
    ");
    assert_eq!(left(), 0);
}

#[test]
fn a_question_can_be_left() {
    let sandbox = Sandbox::with_checkpoint();
    // The paths of the test have any length.
    sandbox.columns.set(200);
    let seen = sandbox.interrupted(sandbox.command(&["purge", "notes.txt"]), "[y/N]");
    assert_snapshot!(seen, @r#"
    Take "notes.txt" out of every checkpoint of $T/project? This cannot be undone. [y/N] 
    error: cannot purge: interrupted
    Nothing was changed.
    hint: Run it again when you like.
    "#);
    assert_eq!(sandbox.run(&["cat", "first", "notes.txt"]), "good\n--- exit 0\n");
}

#[test]
fn a_pin_is_on_record() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["pin", "first"]), @r#"
    Pinned 01KG9YS9EGCQT0DH2X3200JHAF "first": it is never pruned.
    --- exit 0
    "#);
    assert_eq!(sandbox.json(&["show", "@", "--json"])["data"]["checkpoint"]["pinned"], true);
    assert_snapshot!(sandbox.run(&["unpin", "first"]), @r#"
    Unpinned 01KG9YS9EGCQT0DH2X3200JHAF "first": it may be pruned when it is old.
    --- exit 0
    "#);
    assert_eq!(sandbox.json(&["pin", "@", "--json"])["data"]["checkpoint"]["pinned"], true);
    assert_snapshot!(sandbox.run(&["pin", "nothing"]), @r#"
    --- stderr
    error: cannot pin checkpoint "nothing": no checkpoint is called "nothing"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
}

#[test]
fn prune_gives_the_reason_for_each() {
    let sandbox = Sandbox::with_checkpoint();
    for label in ["second", "third", "fourth"] {
        sandbox.write("notes.txt", label);
        sandbox.run(&["create", "-m", label]);
    }
    sandbox.run(&["pin", "first"]);
    let flags = ["--keep-last", "2", "--keep-within", "0s", "--thin-daily-for", "0s"];
    assert_snapshot!(sandbox.run(&["prune", "--dry-run"]), @r#"
      keep  01KG9YYQ9053R1T2RMWKDG33ZD  1 minute ago    base of the current state  "fourth"
      keep  01KG9YWWP02J59EP1NVRE9ENPE  2 minutes ago   one of the last 100  "third"
      keep  01KG9YV2300QJS22HDXJ4G4Q61  3 minutes ago   one of the last 100  "second"
      keep  01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago   pinned  "first"
    Nothing to prune: 4 checkpoints kept.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&[&["prune", "--dry-run"][..], &flags].concat()), @r#"
      keep  01KG9YYQ9053R1T2RMWKDG33ZD  2 minutes ago   base of the current state  "fourth"
      keep  01KG9YWWP02J59EP1NVRE9ENPE  3 minutes ago   one of the last 2  "third"
      drop  01KG9YV2300QJS22HDXJ4G4Q61  4 minutes ago   not one of the last 2  "second"
      keep  01KG9YS9EGCQT0DH2X3200JHAF  5 minutes ago   pinned  "first"
    1 would go, 3 would stay; a dry run: nothing was changed.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.json_text(&[&["prune", "--dry-run", "--json"][..], &flags].concat()), @r#"
    {
      "command": "prune",
      "data": {
        "checkpoints": [
          {
            "created_at": "2026-01-31T12:03:01.000000Z",
            "id": "01KG9YYQ9053R1T2RMWKDG33ZD",
            "label": "fourth",
            "policy": "retention",
            "reason": "base of the current state",
            "role": null,
            "scope": "project",
            "verdict": "keep"
          },
          {
            "created_at": "2026-01-31T12:02:01.000000Z",
            "id": "01KG9YWWP02J59EP1NVRE9ENPE",
            "label": "third",
            "policy": "retention",
            "reason": "one of the last 2",
            "role": null,
            "scope": "project",
            "verdict": "keep"
          },
          {
            "created_at": "2026-01-31T12:01:01.000000Z",
            "id": "01KG9YV2300QJS22HDXJ4G4Q61",
            "label": "second",
            "policy": "retention",
            "reason": "not one of the last 2",
            "role": null,
            "scope": "project",
            "verdict": "drop"
          },
          {
            "created_at": "2026-01-31T12:00:03.000000Z",
            "id": "01KG9YS9EGCQT0DH2X3200JHAF",
            "label": "first",
            "policy": "retention",
            "reason": "pinned",
            "role": null,
            "scope": "project",
            "verdict": "keep"
          }
        ],
        "dropped": 1,
        "dry_run": true,
        "policy": {
          "keep_last": 2,
          "keep_within": "0s",
          "thin_daily_for": "0s"
        },
        "together": []
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:07:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.run(&[&["prune"][..], &flags].concat()), @r#"
      drop  01KG9YV2300QJS22HDXJ4G4Q61  6 minutes ago   not one of the last 2  "second"
    Pruned 1 checkpoint, kept 3.
    Free the space that only they took: safepoint gc
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&[&["prune", "-q"][..], &flags].concat()), @"
    Nothing to prune: 3 checkpoints kept.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["prune", "--keep-within", "soon"]), @r#"
    --- stderr
    error: invalid value 'soon' for '--keep-within <TIME>': "soon" is not a duration: it does not begin with a whole number; expected a value such as 30s, 90m, 36h, 7d or 2w

    For more information, try '--help'.
    --- exit 2
    "#);
}

#[test]
fn what_a_checkpoint_pruned_is_said() {
    let sandbox = Sandbox::with_checkpoint();
    fs::write(
        sandbox.path("home/config.toml"),
        "[retention]\nkeep_last = 1\nkeep_within = \"0s\"\nthin_daily_for = \"0s\"\n",
    )
    .unwrap();
    assert_snapshot!(sandbox.run(&["create", "-m", "second"]), @r#"
    Checkpoint 01KG9YV2300QJS22HDXJ4G4Q61 "second"
      6 files and folders, 50 B; SIZE new in the store, N ms
      nothing changed since the last one
      left out:
        .git  git's own folder
    --- stderr
    1 old checkpoint pruned; `safepoint prune --dry-run` gives the reasons for those that stay.
    --- exit 0
    "#);
    assert_eq!(
        sandbox.json(&["create", "-m", "third", "--json"])["data"]["pruned"].as_array().unwrap().len(),
        1
    );
    assert_snapshot!(sandbox.run(&["run", "--", "true"]), @r#"
    --- stderr
    Checkpoint 01KG9YYQ9053R1T2RMWKDG33ZD "before true"
    1 old checkpoint pruned; `safepoint prune --dry-run` gives the reasons for those that stay.
    --- exit 0
    "#);
}

#[test]
fn gc_frees_what_was_deleted() {
    let sandbox = Sandbox::with_checkpoint();
    // Random enough to be incompressible.
    let mut state = 1u64;
    let large: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(200_000)
    .collect();
    sandbox.write("large", &large);
    sandbox.run(&["create", "-m", "with large"]);
    fs::remove_file(sandbox.path("project/large")).unwrap();
    sandbox.run(&["create", "-m", "without"]);
    let before = sandbox.json(&["usage", "--json"])["data"].clone();
    let frees = |data: &serde_json::Value| data["checkpoints"][1]["frees_bytes"].as_u64().unwrap();
    assert!(frees(&before) > 100_000, "{before:#}");
    sandbox.run(&["delete", "with large", "--yes"]);
    let freed =
        sandbox.json(&["gc", "--thorough", "--json"])["data"]["collected"]["freed_bytes"].as_u64().unwrap();
    assert!(freed > 100_000);
    assert_snapshot!(sandbox.run(&["gc"]), @"
    Nothing to free.
    --- exit 0
    ");
    assert_snapshot!(sandbox.json_text(&["gc", "--json"]), @r#"
    {
      "command": "gc",
      "data": {
        "collected": {
          "dead_bytes": N,
          "freed_bytes": N,
          "objects": 0,
          "outcome": "done",
          "packs": 0,
          "packs_left": 0
        }
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:07:00.000000Z"
      },
      "version": 1
    }
    "#);
    assert_snapshot!(sandbox.run(&["validate", "--deep", "-q"]), @"
    Valid: every byte is as it was written (2 checkpoints, 11 objects, SIZE)
    Ready: a checkpoint of project would hold 6 files and folders, 50 B.
    --- exit 0
    ");
}

#[test]
fn usage_shows_where_the_space_is() {
    let sandbox = Sandbox::with_checkpoint();
    let told = sandbox.run(&["usage"]);
    assert_snapshot!(Regex::new(r" *\d+(\.\d+)? [kMG]?B ").unwrap().replace_all(&told, "SIZE "), @"
    SIZE of at mostSIZE on the disk
    SIZE  in packs: the content of all checkpoints
    SIZE    needed by several checkpoints
    SIZE    needed by none; `safepoint gc --thorough` frees it
    SIZE  beside the packs: records, the index, caches
    What deleting all checkpoints of a workspace would free:
    SIZE  $T/project  1 checkpoint
    What deleting one checkpoint would free, the largest first:
    SIZE  01KG9YS9EGCQT0DH2X3200JHAF  57 seconds ago  first
    --- exit 0
    ");
}

#[test]
fn purge_takes_a_secret_out_of_everything() {
    let sandbox = Sandbox::with_checkpoint();
    let canary = "canary-6f1c2b";
    sandbox.write(".env", canary);
    sandbox.run(&["create", "-m", "with a secret"]);
    let in_store = || {
        let packs = fs::read_dir(sandbox.path("home/store/packs")).unwrap();
        let holds = |bytes: Vec<u8>| bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
        packs.into_iter().any(|pack| holds(fs::read(pack.unwrap().path()).unwrap()))
    };
    assert!(in_store(), "small files are stored literally");
    assert_snapshot!(sandbox.run(&["purge", ".env"]), @"
    --- stderr
    error: cannot purge: cannot ask for confirmation: no terminal
    Nothing was changed.
    hint: Confirm with --yes.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["purge", ".env", "--yes"]), @r#"
    Took ".env" out of 1 checkpoint.
    Freed SIZE: 6 objects that no checkpoint needed.
    The workspace is not changed. Keep it out of the next checkpoint with .safepointignore.
    --- exit 0
    "#);
    assert!(!in_store());
    assert_eq!(sandbox.read(".env"), canary, "the workspace is unchanged");
    assert_snapshot!(sandbox.run(&["cat", "with a secret", ".env"]), @r#"
    --- stderr
    error: cannot write out ".env": .env is not in checkpoint 01KG9YV2300QJS22HDXJ4G4Q61
    hint: `safepoint show 01KG9YV2300QJS22HDXJ4G4Q61 --files` lists what is in it.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["purge", ".env", "--yes"]), @r#"
    --- stderr
    error: cannot purge: no checkpoint of this workspace holds ".env"
    Nothing was changed.
    hint: `safepoint show @ --files` lists what is in a checkpoint.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.json_text(&["purge", "run.sh", "--yes", "--json"]), @r#"
    {
      "command": "purge",
      "data": {
        "checkpoints": [
          "01KG9YV2300QJS22HDXJ4G4Q61",
          "01KG9YS9EGCQT0DH2X3200JHAF"
        ],
        "collected": {
          "dead_bytes": N,
          "freed_bytes": N,
          "objects": 11,
          "outcome": "done",
          "packs": 1,
          "packs_left": 0
        },
        "paths": [
          "run.sh"
        ],
        "remotes": []
      },
      "exit_code": 0,
      "messages": [],
      "status": "ok",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:06:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn repair_takes_what_the_workspace_still_has_and_names_what_is_lost() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["repair"]), @"
    Subject: 1 checkpoint, and all can be restored.
    --- exit 0
    ");
    let pack = fs::read_dir(sandbox.path("home/store/packs")).unwrap().next().unwrap().unwrap().path();
    let damage = |content: &[u8]| {
        let mut bytes = fs::read(&pack).unwrap();
        let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
        bytes[at] ^= 1;
        fs::write(&pack, bytes).unwrap();
    };
    damage(b"good\n");
    let told = sandbox.run(&["repair"]);
    assert!(told.contains("stored anew") && told.ends_with("--- exit 0\n"), "{told}");
    assert!(sandbox.run(&["validate", "--deep"]).ends_with("--- exit 0\n"));
    assert_eq!(sandbox.run(&["cat", "first", "notes.txt"]), "good\n--- exit 0\n");
}

#[test]
fn what_nobody_has_any_more_is_lost_and_said() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    let pack = fs::read_dir(sandbox.path("home/store/packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(5).position(|window| window == b"good\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let told = sandbox.run(&["repair"]);
    assert!(told.contains("notes.txt") && told.ends_with("--- exit 13\n"), "{told}");
    let answer = sandbox.json(&["repair", "--json"]);
    assert_eq!((&answer["error"]["code"], &answer["data"]["is_whole"]), (&"damaged".into(), &false.into()));
}

/// Returns incompressible bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Opens a file of the store, to lock it like another Safepoint.
fn lock_file(sandbox: &Sandbox, name: &str) -> fs::File {
    let path = sandbox.path("home/store").join(name);
    fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Changes a stored byte of this content.
fn damage(sandbox: &Sandbox, content: &[u8]) {
    for pack in fs::read_dir(sandbox.path("home/store/packs")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
            bytes[at + content.len() / 2] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn only_one_frees_space_at_a_time() {
    let sandbox = Sandbox::with_checkpoint();
    let other = lock_file(&sandbox, "collect");
    other.lock().unwrap();
    assert_snapshot!(sandbox.run(&["gc"]), @"
    --- stderr
    error: cannot free space: another Safepoint is freeing space
    hint: Wait until it has finished, then try again.
    --- exit 11
    ");
    assert_snapshot!(sandbox.run(&["purge", "run.sh", "--yes"]), @r#"
    Took "run.sh" out of 1 checkpoint.
    Nothing to free.
    The workspace is not changed. Keep it out of the next checkpoint with .safepointignore.
    --- stderr
    warning: not everything could be freed: other processes used the store, or you asked to stop. Run `safepoint gc` again
    warning: no checkpoint leads to them any more, but bytes may still be in the store: run `safepoint gc --thorough`, and before it `safepoint repair` where something is damaged
    --- exit 3
    "#);
    drop(other);
    assert_eq!(sandbox.json(&["gc", "--thorough", "--json"])["data"]["collected"]["outcome"], "done");
    assert_eq!(sandbox.json(&["usage", "--json"])["data"]["dead_bytes"], 0);
}

#[test]
fn gc_that_waits_for_somebody_can_be_stopped() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["delete", "first", "--yes"]);
    let user = lock_file(&sandbox, "using-0");
    user.lock_shared().unwrap();
    let mut command = sandbox.command(&["gc"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // gc writes the epoch before it waits.
    while !sandbox.path("home/store/epoch").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_snapshot!(sandbox.told(&child.wait_with_output().unwrap()), @"
    Nothing to free.
    --- stderr
    warning: not everything could be freed: other processes used the store, or you asked to stop. Run `safepoint gc` again
    --- exit 3
    ");
    drop(user);
    assert_eq!(sandbox.json(&["gc", "--json"])["data"]["collected"]["packs"], 1, "the lock was released");
}

#[test]
fn gc_says_what_it_leaves() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("large", noise(1, 900_000));
    sandbox.run(&["create", "-m", "large"]);
    sandbox.write("small", noise(2, 150_000));
    sandbox.run(&["create", "-m", "small"]);
    fs::remove_file(sandbox.path("project/small")).unwrap();
    sandbox.run(&["create", "-m", "last"]);
    sandbox.run(&["delete", "small", "--yes"]);
    assert_snapshot!(sandbox.run(&["gc"]), @"
    Nothing to free.
    152 kB more is too thinly spread to be worth the work; --thorough frees it too.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["gc", "-q"]), @"
    Nothing to free.
    --- exit 0
    ");
    damage(&sandbox, &noise(1, 900_000)[1000..1100]);
    assert_snapshot!(sandbox.run(&["gc", "--thorough"]), @"
    Nothing to free.
    --- stderr
    warning: 1 pack was left as before: another process writes to them, or they are damaged
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["purge", "run.sh", "--yes"]), @r#"
    Took "run.sh" out of 3 checkpoints.
    Nothing to free.
    The workspace is not changed. Keep it out of the next checkpoint with .safepointignore.
    --- stderr
    warning: 1 pack was left as before: another process writes to them, or they are damaged
    warning: no checkpoint leads to them any more, but bytes may still be in the store: run `safepoint gc --thorough`, and before it `safepoint repair` where something is damaged
    --- exit 3
    "#);
}

#[test]
fn a_whole_workspace_is_not_purged() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["purge", ".", "--yes"]), @"
    --- stderr
    error: cannot purge: a whole workspace cannot be purged, only what is in it
    Nothing was changed.
    hint: Name files or folders in it. `safepoint delete` deletes whole checkpoints.
    --- exit 2
    ");
    assert_snapshot!(sandbox.run(&["purge", "src", "run.sh", "--yes"]), @r#"
    Took "src", "run.sh" out of 1 checkpoint.
    Freed SIZE: 10 objects that no checkpoint needed.
    The workspace is not changed. Keep it out of the next checkpoint with .safepointignore.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["show", "first", "--files"]), @"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
      label     first
      created   2026-01-31 12:00:03Z, 2 minutes ago
      kind      manual, reason manual
      scope     project
      holds     3 files and folders, 5 B
      changed   +6 ~0 -0
      stored    SIZE new in the store
      uuid      019c13ec-a5d0-65f4-06c4-5d188009454f
      integrity <hash>
      left out:
        .git  git's own folder
        run.sh  purged
        src  purged

    d0755            empty/
    l0777            link -> notes.txt
    -0644       5 B  notes.txt
    --- exit 0
    ");
}

#[test]
fn repair_says_which_workspace_it_could_not_look_at() {
    let sandbox = Sandbox::with_checkpoint();
    damage(&sandbox, b"good\n");
    fs::rename(sandbox.path("project"), sandbox.path("elsewhere")).unwrap();
    let mut command = sandbox.command(&["repair"]);
    assert_snapshot!(sandbox.told(&command.current_dir(sandbox.path("elsewhere")).output().unwrap()), @"
    1 object could not be read.
    1 pack with damage put aside in $T/home/store/quarantine.
    It counts towards the cap; delete it when it is no longer needed.
    Lost: 1 thing is beyond repair:
        checkpoint 01KG9YS9EGCQT0DH2X3200JHAF: notes.txt: object <hash>: it is missing
    0 checkpoints can be restored whole.
    --- stderr
    warning: not looked at for what is missing: $T/project: cannot open the workspace $T/project
    --- exit 13
    ");
    fs::rename(sandbox.path("elsewhere"), sandbox.path("project")).unwrap();
    assert_snapshot!(sandbox.run(&["repair"]), @"
    1 object was stored anew from workspaces that still have the content.
    Subject: 1 checkpoint, and all can be restored.
    --- exit 0
    ");
}

#[test]
fn usage_marks_what_is_pinned_and_what_is_damaged() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["pin", "first"]);
    sandbox.write("a-name-that-is-nowhere-else", "more\n");
    sandbox.run(&["create", "-m", "second"]);
    damage(&sandbox, b"a-name-that-is-nowhere-else");
    let told = sandbox.run(&["usage"]);
    let told = Regex::new(r" *\d+(\.\d+)? [kMG]?B ").unwrap().replace_all(&told, "SIZE ").into_owned();
    assert_snapshot!(told, @"
    SIZE of at mostSIZE on the disk
    SIZE  in packs: the content of all checkpoints
    SIZE    needed by several checkpoints
    SIZE    needed by none; `safepoint gc --thorough` frees it
    SIZE  beside the packs: records, the index, caches
    What deleting all checkpoints of a workspace would free:
    SIZE  $T/project  2 checkpoints
    What deleting one checkpoint would free, the largest first:
    SIZE  01KG9YS9EGCQT0DH2X3200JHAF  2 minutes ago   first (pinned)
    SIZE  01KG9YWWP02J59EP1NVRE9ENPE  59 seconds ago  damaged  second
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["gc"]), @"
    --- stderr
    error: cannot free space: nothing can be freed while checkpoint 01KG9YWWP02J59EP1NVRE9ENPE is damaged: what it needs is not known
      because: object <hash> is damaged: its bytes do not have its hash
    hint: `safepoint repair` repairs what can be repaired; a checkpoint that stays damaged can be deleted.
    --- exit 13
    ");
    assert_snapshot!(sandbox.run(&["delete", "first", "second", "--yes"]), @"
    Deleted 2 checkpoints:
      01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago  first (pinned)
      01KG9YWWP02J59EP1NVRE9ENPE  2 minutes ago  second
    Free the space that only they took: safepoint gc
    --- exit 0
    ");
}

#[test]
fn prune_also_judges_what_is_of_several_folders_by_its_own_policy() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(
        "../home/config.toml",
        "[retention_framework]\nkeep_last = 1\nkeep_within = '0s'\nthin_daily_for = '0s'\n",
    );
    sandbox.write("../agent/memory/notes.md", "remember");
    sandbox.run(&["agent", "register", "claude", "--memory", "../agent/memory"]);
    sandbox.run(&["create", "--scope", "agent", "--agent", "claude", "-m", "agent"]);
    // The first is pinned, or the second would let it be pruned.
    sandbox.run(&["create", "--scope", "framework", "-m", "all 1", "--pin"]);
    let second = sandbox.json(&["create", "--scope", "framework", "-m", "all 2", "--pin", "--json"]);
    sandbox.run(&["create", "--scope", "framework", "-m", "all 3"]);
    sandbox.run(&["unpin", second["data"]["checkpoint"]["id"].as_str().unwrap()]);
    assert_snapshot!(sandbox.run(&["prune", "--dry-run"]), @r#"
      keep  01KG9YS9EGCQT0DH2X3200JHAF  6 minutes ago   the newest  "first"
    of several folders:
      keep  01KG9Z2GC0Q52K07H7HYN02QE5  1 minute ago    base of the current state  "all 3"  (scope framework, [retention_framework])
      drop  01KG9Z0NS0Z2F6A0ST32HQHJNS  2 minutes ago   not one of the last 1  "all 2"  (scope framework, [retention_framework])
      keep  01KG9YYV60S77KET4DNQ5BF6CP  3 minutes ago   pinned  "all 1"  (scope framework, [retention_framework])
      keep  01KG9YWYMG3S19GYXWQZEQWMSF  4 minutes ago   the newest  "agent"  (scope agent, [retention])
    1 would go, 4 would stay; a dry run: nothing was changed.
    --- exit 0
    "#);
    let rows = |answer: &serde_json::Value| -> Vec<String> {
        let rows = answer["data"]["together"].as_array().unwrap();
        rows.iter()
            .map(|row| {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                [text("label"), text("scope"), text("policy"), text("verdict"), text("reason")].join(" | ")
            })
            .collect()
    };
    // Options apply to the current workspace.
    let flags =
        ["prune", "--dry-run", "--json", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s"];
    let answer = sandbox.json(&flags);
    assert_eq!(
        rows(&answer),
        [
            "all 3 | framework | retention_framework | keep | base of the current state",
            "all 2 | framework | retention_framework | drop | not one of the last 1",
            "all 1 | framework | retention_framework | keep | pinned",
            "agent | agent | retention | keep | the newest",
        ]
    );
    assert_eq!(answer["data"]["dropped"], 1);
    assert_snapshot!(sandbox.run(&["prune"]), @r#"
    of several folders:
      drop  01KG9Z0NS0Z2F6A0ST32HQHJNS  4 minutes ago   not one of the last 1  "all 2"  (scope framework, [retention_framework])
    Pruned 1 checkpoint, kept 4.
    Free the space that only they took: safepoint gc
    --- exit 0
    "#);
    assert_eq!(rows(&sandbox.json(&["prune", "--dry-run", "--json"])).len(), 3);
}

#[test]
fn a_lost_catalog_is_reported_by_every_command_until_repair() {
    let sandbox = Sandbox::with_checkpoint();
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(sandbox.path(&format!("home/catalog.db{suffix}")));
    }
    for command in ["create", "list", "status", "usage"] {
        let said = sandbox.run(&[command]);
        assert!(said.contains("is a new one") && said.contains("safepoint repair"), "{command}: {said}");
    }
    assert_eq!(sandbox.json(&["status", "--json"])["data"]["catalog"], "new");
    let said = sandbox.run(&["doctor"]);
    assert!(said.contains("problem  records"), "{said}");
    for command in [&["gc", "--json"][..], &["purge", "run.sh", "--yes", "--json"]] {
        let refused = sandbox.json(command);
        assert_eq!((&refused["exit_code"], &refused["error"]["code"]), (&12.into(), &"other_catalog".into()));
    }
    let repaired = sandbox.json(&["repair", "--json"]);
    assert_eq!(repaired["data"]["catalog"]["found"], "new");
    assert_eq!(repaired["data"]["catalog"]["restored"].as_array().unwrap().len(), 1);
    let said = sandbox.run(&["list"]);
    assert!(said.contains("first") && !said.contains("warning"), "{said}");
    assert_eq!(sandbox.json(&["gc", "--json"])["exit_code"], 0);
}

#[test]
fn gc_deletes_what_a_new_catalog_does_not_list_only_when_told_to() {
    let sandbox = Sandbox::with_checkpoint();
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(sandbox.path(&format!("home/catalog.db{suffix}")));
    }
    sandbox.run(&["create", "-m", "second"]);
    assert_eq!(sandbox.json(&["gc", "--accept-catalog", "--json"])["exit_code"], 0);
    assert!(!sandbox.run(&["list"]).contains("warning"));
    assert_eq!(sandbox.json(&["repair", "--json"])["data"]["catalog"]["restored"], serde_json::json!([]));
}

#[test]
fn an_emergency_checkpoint_on_a_damaged_catalog_is_listed_after_repair() {
    let sandbox = Sandbox::with_checkpoint();
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(sandbox.path(&format!("home/catalog.db{suffix}")));
    }
    fs::write(sandbox.path("home/catalog.db"), "not a database".repeat(999)).unwrap();
    sandbox.write("last", "words");
    assert_eq!(sandbox.json(&["create", "--json"])["error"]["code"], "catalog_damaged");
    let said = sandbox.run(&["emergency", "-m", "fire"]);
    assert!(said.contains("the catalog is damaged") && said.contains("--- exit 0"), "{said}");
    let repaired = sandbox.json(&["repair", "--json"]);
    assert_eq!(
        (&repaired["exit_code"], &repaired["data"]["catalog"]["found"]),
        (&0.into(), &"damaged".into())
    );
    let said = sandbox.run(&["list"]);
    assert!(said.contains("fire") && said.contains("first"), "{said}");
}

#[test]
fn every_command_prints_the_recovery_before_it() {
    let commands: [&[&str]; 8] = [
        &["purge", "notes.txt", "--yes"],
        &["purge", "missing", "--yes"],
        &["repair"],
        &["validate"],
        &["rollback", "@", "--verify", "true", "--yes"],
        &["rollback", "--until", "true"],
        &["undo", "--yes"],
        &["diff"],
    ];
    for command in commands {
        let sandbox = Sandbox::with_checkpoint();
        sandbox.write("notes.txt", "bad\n");
        sandbox.run(&["rollback", "@"]);
        sandbox.write("notes.txt", "worse\n");
        let done = sandbox.json(&["rollback", "@", "--json"]);
        let id = done["data"]["rollback"]["id"].as_str().unwrap().to_owned();
        let reopen = || {
            let sql = rusqlite::Connection::open(sandbox.path("home/catalog.db")).unwrap();
            let sentence = "UPDATE rollbacks SET state = 'applying' WHERE id = ?1";
            assert_eq!(sql.execute(sentence, [&id]).unwrap(), 1);
        };
        reopen();
        let told = sandbox.json(&[command, &["--json"]].concat());
        assert_eq!(told["recovered"]["undone"], serde_json::json!([id]), "{command:?}: {told}");
        let again = sandbox.json(&["status", "--json"]);
        assert!(again.get("recovered").is_none(), "{again}");
        reopen();
        let told = sandbox.run(command);
        assert_eq!(told.matches("was cut short").count(), 1, "{command:?}: {told}");
    }
}
