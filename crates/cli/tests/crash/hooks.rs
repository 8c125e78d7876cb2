//! SIGKILL at every state-changing system call of a hook. The agent goes on, and the next hooks cover it.

use safepoint_testkit::{End, Program, TreeImage, copy_tree, kill_at};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const SESSION: &str = "57858edd-f386-4b85-b6ba-76f742d12643";

/// Project and home of an agent, the same at every point.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let desk = Self { folder: folder.unwrap() };
        fs::create_dir_all(desk.path("project/.git")).unwrap();
        fs::write(desk.path("project/notes"), "old").unwrap();
        fs::create_dir(desk.path("user")).unwrap();
        desk.hook("SessionStart", json!({}));
        desk.hook("UserPromptSubmit", json!({ "prompt": "first" }));
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, line: &str) -> Program {
        let env = [("SAFEPOINT_HOME", "home"), ("HOME", "user")];
        let line = line.replace("safepoint", env!("CARGO_BIN_EXE_safepoint"));
        Program {
            exe: PathBuf::from("/bin/sh"),
            args: ["-c".into(), line.into()].into(),
            env: env.iter().map(|(name, folder)| (name.into(), self.path(folder).into())).collect(),
            cwd: self.path("project"),
        }
    }

    /// The command line of a hook with this event.
    fn line(&self, event: &str, more: Value) -> String {
        let mut input =
            json!({ "session_id": SESSION, "cwd": self.path("project"), "hook_event_name": event });
        let Value::Object(more) = more else { panic!("{more} is no object") };
        input.as_object_mut().unwrap().extend(more);
        fs::write(self.path("event"), input.to_string()).unwrap();
        "exec safepoint hook claude < ../event > ../answer".to_owned()
    }

    /// Answer of the last hook.
    fn answer(&self) -> String {
        fs::read_to_string(self.path("answer")).unwrap_or_default()
    }

    /// Turns, newest first.
    fn turns(&self) -> Vec<Value> {
        self.run("safepoint list --turns --json > ../turns");
        let listed: Value = serde_json::from_slice(&fs::read(self.path("turns")).unwrap()).unwrap();
        listed["data"]["turns"].as_array().unwrap().clone()
    }

    fn assert_image(&self, wanted: &TreeImage, what: &str) {
        let difference = wanted.difference(&self.image());
        let difference: Vec<_> = difference.iter().filter(|line| !line.contains("mtime")).collect();
        assert!(difference.is_empty(), "{what}: {difference:#?}");
    }

    fn hook(&self, event: &str, more: Value) {
        let end = kill_at(&self.program(&self.line(event, more)), u64::MAX).unwrap();
        assert!(end.is_success(), "{event}: {end:?}");
    }

    fn run(&self, line: &str) {
        let end = kill_at(&self.program(line), u64::MAX).unwrap();
        assert!(end.is_success(), "{line}: {end:?}");
    }

    fn image(&self) -> TreeImage {
        TreeImage::read(&self.path("project"), &[".safepoint"]).unwrap()
    }

    fn lay(&self) {
        for folder in ["project", "home"] {
            fs::remove_dir_all(self.path(folder)).unwrap();
            copy_tree(&self.path(&format!("{folder}.kept")), &self.path(folder)).unwrap();
        }
    }
}

fn call(id: &str) -> Value {
    json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "make" } })
}

/// Kills the hook of one event everywhere, and goes on as an agent does. `settle` is what the agent does right after the event.
fn check(event: &str, more: &Value, every: usize, ready: impl Fn(&Desk), settle: impl Fn(&Desk, &str)) {
    let desk = Desk::new();
    ready(&desk);
    for folder in ["project", "home"] {
        copy_tree(&desk.path(folder), &desk.path(&format!("{folder}.kept"))).unwrap();
    }
    let mut points = 0;
    // Neighbours are similar. SAFEPOINT_PROOF=full tries each.
    for point in (1..).step_by(if crate::is_full() { 1 } else { every }) {
        desk.lay();
        let _ = fs::remove_file(desk.path("answer"));
        let end = kill_at(&desk.program(&desk.line(event, more.clone())), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "{end:?}");
            break;
        }
        points += 1;
        settle(&desk, &format!("{end:?}"));
        desk.hook("UserPromptSubmit", json!({ "prompt": "second" }));
        let before = desk.image();
        desk.hook("PreToolUse", call("later"));
        fs::write(desk.path("project/notes"), "new").unwrap();
        fs::write(desk.path("project/more"), "more").unwrap();
        let after = desk.image();
        desk.hook("PostToolUse", call("later"));
        desk.hook("Stop", json!({}));
        desk.run("safepoint validate --deep -q");
        let turns = desk.turns();
        let last = turns.iter().find(|turn| turn["label"] == "second").unwrap();
        assert_eq!(last["uncovered"], json!([]), "{end:?}: {turns:#?}");
        for (option, wanted) in [("--before-turn", &before), ("--turn", &after)] {
            desk.run(&format!("safepoint rollback -q {option} {}", last["turn"]));
            desk.assert_image(wanted, &format!("{end:?}, {option}"));
        }
    }
    eprintln!("kill -9: hook {event}: {points} points, every later turn exact");
    assert!(points > 4, "{points} points");
}

#[test]
fn a_hook_killed_before_a_tool_leaves_its_turn_exact_or_marked_and_the_next_one_covered() {
    check(
        "PreToolUse",
        &call("first"),
        3,
        |_| (),
        |desk, end| {
            let before = desk.image();
            fs::write(desk.path("project/notes"), "first").unwrap();
            desk.hook("PostToolUse", call("first"));
            desk.hook("PreToolUse", call("second"));
            fs::write(desk.path("project/second"), "second").unwrap();
            desk.hook("PostToolUse", call("second"));
            desk.hook("Stop", json!({}));
            let turn = desk.turns().pop().unwrap();
            desk.run("safepoint rollback -q --before-turn 1");
            let is_exact = before.difference(&desk.image()).iter().all(|line| line.contains("mtime"));
            assert!(is_exact || turn["uncovered"] != json!([]), "{end}: silently wrong: {turn:#}");
            assert!(is_exact, "{end}: the state before is that of the last checkpoint");
        },
    );
}

#[test]
fn a_hook_killed_at_the_end_of_a_turn_leaves_the_next_turn_covered() {
    let ready = |desk: &Desk| {
        desk.hook("PreToolUse", call("first"));
        fs::write(desk.path("project/notes"), "one").unwrap();
    };
    check("Stop", &json!({}), 3, ready, |desk, end| {
        // The prompt closes the turn.
        desk.hook("UserPromptSubmit", json!({ "prompt": "between" }));
        let turns = desk.turns();
        assert!(
            turns.iter().all(|turn| turn["ended"].is_string() || turn["label"] == "between"),
            "{end}: {turns:#?}"
        );
        desk.run("safepoint rollback -q --before-turn 1");
        assert_eq!(fs::read(desk.path("project/notes")).unwrap(), b"old", "{end}");
    });
}

#[test]
fn a_prompt_whose_hook_is_killed_is_covered_by_the_next_and_its_note_is_not_lost() {
    let ready = |desk: &Desk| {
        desk.hook("PreToolUse", call("first"));
        fs::write(desk.path("project/notes"), "one").unwrap();
        desk.hook("Stop", json!({}));
        desk.run("safepoint rollback -q --before-turn 1");
    };
    check("UserPromptSubmit", &json!({ "prompt": "killed" }), 7, ready, |desk, end| {
        let killed = desk.answer();
        desk.hook("UserPromptSubmit", json!({ "prompt": "again" }));
        let told =
            [killed, desk.answer()].iter().filter(|text| text.contains("Safepoint rolled back")).count();
        assert!(told > 0, "{end}: the note is lost");
    });
}

#[test]
fn the_note_about_a_killed_rollback_is_told_once_if_the_rollback_is_done_and_else_never() {
    let desk = Desk::new();
    desk.hook("PreToolUse", call("first"));
    fs::write(desk.path("project/notes"), "one").unwrap();
    desk.hook("Stop", json!({}));
    for folder in ["project", "home"] {
        copy_tree(&desk.path(folder), &desk.path(&format!("{folder}.kept"))).unwrap();
    }
    let rollback = desk.program("exec safepoint rollback -q --before-turn 1");
    let is_told = |prompt: &str| {
        desk.hook("UserPromptSubmit", json!({ "prompt": prompt }));
        desk.answer().contains("Safepoint rolled back")
    };
    let (mut undone, mut done) = (0, 0);
    for point in (1..).step_by(if crate::is_full() { 1 } else { 3 }) {
        desk.lay();
        let end = kill_at(&rollback, point).unwrap();
        let told = is_told("next");
        // Recovers what the kill left.
        desk.run("safepoint status -q || true");
        let is_back = fs::read(desk.path("project/notes")).unwrap() == b"old";
        assert_eq!(told, is_back, "{end:?}: the note differs from what happened");
        assert!(!is_told("again"), "{end:?}: told twice");
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success() && is_back, "{end:?}");
            break;
        }
        *(if is_back { &mut done } else { &mut undone }) += 1;
    }
    eprintln!("kill -9: rollback: {undone} points before its commit, {done} after it, each note true");
    assert!(undone > 4 && done > 0, "{undone} and {done} points");
}

#[test]
fn hooks_killed_at_the_start_and_the_end_of_a_session_and_in_a_todo_list_do_no_harm() {
    let source = json!({ "source": "resume" });
    check(
        "SessionStart",
        &source,
        9,
        |desk| fs::write(desk.path("project/notes"), "by hand").unwrap(),
        |_, _| (),
    );
    check("SessionEnd", &json!({}), 9, |desk| desk.hook("PreToolUse", call("first")), |_, _| ());
    let list = |first: &str| {
        let todos = json!([{ "content": "one", "status": first }, { "content": "two", "status": "pending" }]);
        json!({ "tool_name": "TodoWrite", "tool_use_id": first, "tool_input": { "todos": todos },
            "tool_response": { "newTodos": todos } })
    };
    check(
        "PostToolUse",
        &list("in_progress"),
        31,
        |_| (),
        |desk, end| {
            desk.hook("PostToolUse", list("completed"));
            desk.run("safepoint plan list --json > ../plans");
            let plans: Value = serde_json::from_slice(&fs::read(desk.path("plans")).unwrap()).unwrap();
            assert_eq!(plans["data"]["plans"].as_array().unwrap().len(), 1, "{end}: {plans:#}");
        },
    );
}
