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
        "exec safepoint hook claude < ../event".to_owned()
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

/// Kills the hook of one event everywhere, and goes on as an agent does.
fn check(event: &str, more: &Value, ready: impl Fn(&Desk)) {
    let desk = Desk::new();
    ready(&desk);
    for folder in ["project", "home"] {
        copy_tree(&desk.path(folder), &desk.path(&format!("{folder}.kept"))).unwrap();
    }
    let mut points = 0;
    // Neighbours are similar. SAFEPOINT_PROOF=full tries each.
    for point in (1..).step_by(if crate::is_full() { 1 } else { 3 }) {
        desk.lay();
        let end = kill_at(&desk.program(&desk.line(event, more.clone())), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "{end:?}");
            break;
        }
        points += 1;
        desk.hook("UserPromptSubmit", json!({ "prompt": "second" }));
        let before = desk.image();
        desk.hook("PreToolUse", call("later"));
        fs::write(desk.path("project/notes"), "new").unwrap();
        fs::write(desk.path("project/more"), "more").unwrap();
        let after = desk.image();
        desk.hook("Stop", json!({}));
        desk.run("safepoint validate --deep -q");
        for (option, wanted) in [("--before-turn", &before), ("--turn", &after)] {
            desk.run(&format!("safepoint rollback -q {option} 2 || exec safepoint rollback -q {option} 1"));
            let difference = wanted.difference(&desk.image());
            let difference: Vec<_> = difference.iter().filter(|line| !line.contains("mtime")).collect();
            assert!(difference.is_empty(), "{end:?}, {option}: {difference:#?}");
        }
    }
    eprintln!("kill -9: hook {event}: {points} points, every later turn exact");
    assert!(points > 10, "{points} points");
}

#[test]
fn a_hook_killed_before_a_tool_leaves_the_next_turn_covered() {
    check("PreToolUse", &call("first"), |_| ());
}

#[test]
fn a_hook_killed_at_the_end_of_a_turn_leaves_the_next_turn_covered() {
    check("Stop", &json!({}), |desk| {
        desk.hook("PreToolUse", call("first"));
        fs::write(desk.path("project/notes"), "one").unwrap();
    });
}
