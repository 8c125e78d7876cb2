//! SIGKILL at every state-changing system call of `install` and `uninstall`.

use safepoint_testkit::{End, Program, TreeImage, copy_tree, kill_at};
use std::fs;
use std::path::PathBuf;

const SETTINGS: &str = "{\n  // mine\n  \"theme\": \"dark\"\n}\n";
const AGENTS: [&str; 2] = ["claude", "codex"];

/// User's home and Safepoint's home, the same at every point.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["user/.claude", "project"] {
            fs::create_dir_all(desk.path(name)).unwrap();
        }
        fs::write(desk.path("user/.claude/settings.json"), SETTINGS).unwrap();
        desk.done(&["workspace", "list"]);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, args: &[&str]) -> Program {
        let env = [("SAFEPOINT_HOME", "home"), ("HOME", "user")];
        Program {
            exe: PathBuf::from(env!("CARGO_BIN_EXE_safepoint")),
            args: args.iter().map(Into::into).collect(),
            env: env.iter().map(|(name, folder)| (name.into(), self.path(folder).into())).collect(),
            cwd: self.path("project"),
        }
    }

    /// Runs a command to its end.
    fn done(&self, args: &[&str]) {
        let end = kill_at(&self.program(args), u64::MAX).unwrap();
        assert!(end.is_success(), "{args:?}: {end:?}");
    }

    fn verb(&self, verb: &str) {
        self.done(&[&[verb][..], &AGENTS].concat());
    }

    fn user(&self) -> TreeImage {
        TreeImage::read(&self.path("user"), &[]).unwrap()
    }

    fn keep(&self, name: &str) {
        for folder in ["user", "home"] {
            let _ = fs::remove_dir_all(self.path(&format!("{folder}.{name}")));
            copy_tree(&self.path(folder), &self.path(&format!("{folder}.{name}"))).unwrap();
        }
    }

    fn lay(&self, name: &str) {
        for folder in ["user", "home"] {
            fs::remove_dir_all(self.path(folder)).unwrap();
            copy_tree(&self.path(&format!("{folder}.{name}")), &self.path(folder)).unwrap();
        }
    }

    fn is(&self, wanted: &TreeImage, when: &End) {
        let difference = wanted.difference(&self.user());
        assert!(without_times(&difference).is_empty(), "{when:?}: {difference:#?}");
    }
}

/// Differences other than of times.
fn without_times(difference: &[String]) -> Vec<&String> {
    difference.iter().filter(|line| !line.contains("mtime")).collect()
}

/// Kills a verb everywhere. Settings files are then old or new, and either verb leads to its whole state.
fn check(verb: &str) {
    let desk = Desk::new();
    let old = desk.user();
    desk.keep("old");
    desk.verb("install");
    let new = desk.user();
    desk.keep("new");
    let start = if verb == "install" { "old" } else { "new" };
    let settings = |name: &str| fs::read(desk.path(name).join(".claude/settings.json")).unwrap();
    let mut points = 0;
    for point in 1.. {
        desk.lay(start);
        let end = kill_at(&desk.program(&[&[verb][..], &AGENTS].concat()), point).unwrap();
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "{end:?}");
            break;
        }
        points += 1;
        let found = settings("user");
        assert!(found == settings("user.old") || found == settings("user.new"), "{end:?}");
        desk.keep("killed");
        desk.verb("uninstall");
        desk.is(&old, &end);
        assert_eq!(fs::read_dir(desk.path("home/agents")).map_or(0, Iterator::count), 0, "{end:?}");
        desk.lay("killed");
        desk.verb("install");
        desk.is(&new, &end);
    }
    eprintln!("kill -9: {verb}: {points} points, 0 mixtures");
    assert!(points > 10, "{points} points");
}

#[test]
fn install_killed_anywhere_is_undone_or_repeated_exactly() {
    check("install");
}

#[test]
fn uninstall_killed_anywhere_is_undone_or_repeated_exactly() {
    check("uninstall");
}
