//! FIFOs, devices and virtual files in place of a file or folder: no command hangs.

use crate::place::{Answer, Place, assert_same, is_root, skip};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Seconds after which a command counts as hanging.
const PATIENCE: &str = "40";
/// Exit code of `timeout` after a kill.
const HANGS: i32 = 137;

fn place() -> (Place, String) {
    let place = Place::new();
    place.write("file", "1");
    let id = place.create();
    place.write("file", "2");
    (place, id)
}

fn make_fifo(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs a command with this timeout.
#[track_caller]
fn ends(place: &Place, args: &[&str]) -> Answer {
    let args = [&["--json"], args].concat();
    let plain = place.command(&args);
    let mut command = Command::new("timeout");
    command
        .args(["-s", "KILL", PATIENCE])
        .arg(plain.get_program())
        .args(&args)
        .env_clear()
        .current_dir(place.project());
    command.env("PATH", "/usr/bin:/bin");
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.process_group(0);
    let answer = Answer::of(&args, &command.output().unwrap());
    assert_ne!(answer.exit, HANGS, "hangs: {args:?}");
    assert!(answer.exit < 128, "killed by a signal: {args:?} {}", answer.errors);
    answer
}

#[test]
fn a_fifo_in_the_place_of_a_file_of_the_home_is_an_error() {
    for (name, code) in [
        ("store/format", "store"),
        ("store/index.db", "store"),
        ("store/index.db-wal", "store"),
        ("store/index.db-shm", "store"),
        ("store/epoch", "store"),
        ("store/collect", "store"),
        ("store/using-0", "store"),
        ("catalog.db", "catalog"),
        ("catalog.db-wal", "catalog"),
        ("catalog.db-shm", "catalog"),
        ("catalog.db-journal", "catalog"),
        ("config.toml", "bad_configuration"),
        ("store", "store"),
        ("store/packs", "store"),
    ] {
        let (place, id) = place();
        let path = place.path("home").join(name);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        make_fifo(&path);
        let now = place.image();
        for args in [
            &["create", "--kind", "manual"][..],
            &["status"],
            &["rollback", &id],
            &["validate"],
            &["doctor"],
            &["gc"],
        ] {
            let answer = ends(&place, args);
            eprintln!("{name} is a FIFO, {args:?}: exit {} {}", answer.exit, answer.errors);
            if args[0] == "create" {
                assert_eq!(answer.is_a_clear_error(), code, "{name}");
                assert_same(&place.image(), &now);
            }
        }
    }
}

/// A FIFO in place of a pack or cache is ignored.
#[test]
fn a_fifo_among_packs_caches_and_locks_does_not_hang() {
    let (place, id) = place();
    let cache = place.path("home/cache");
    for entry in fs::read_dir(&cache).unwrap() {
        make_fifo(&entry.unwrap().path());
    }
    make_fifo(&place.path("home/store/packs/01KG9YS9V3Q8N0T4B5C6D7E8F9.pack"));
    for args in [
        &["create", "--kind", "manual"][..],
        &["status"],
        &["rollback", &id],
        &["validate", "--deep"],
        &["gc"],
        &["usage"],
    ] {
        assert_eq!(ends(&place, args).exit, 0, "{args:?}");
    }
}

#[test]
fn what_is_no_folder_of_a_disk_is_no_home() {
    let (place, _) = place();
    make_fifo(&place.path("fifo"));
    let fifo = place.path("fifo");
    let before = fs::metadata("/proc").unwrap().permissions();
    for home in ["/proc", "/proc/self", "/proc/self/fd", "/sys", "/dev/null", fifo.to_str().unwrap()] {
        let answer = ends(&place, &["--home", home, "create"]);
        assert_eq!((answer.exit, answer.is_a_clear_error()), (1, "home"), "{home} {}", answer.errors);
        ends(&place, &["--home", home, "status"]);
        ends(&place, &["--home", home, "doctor"]);
    }
    assert_eq!(fs::metadata("/proc").unwrap().permissions(), before);
}

#[test]
fn what_the_kernel_makes_up_is_no_workspace_and_no_place_of_an_agent() {
    let (place, _) = place();
    for folder in ["/proc", "/proc/self", "/sys"] {
        for args in [&["init", folder][..], &["init", "--force", folder], &["-C", folder, "create"]] {
            let answer = ends(&place, args);
            assert_eq!((answer.exit, answer.is_a_clear_error()), (12, "refused_root"), "{args:?}");
        }
        let answer = ends(&place, &["agent", "register", "it", "--memory", folder]);
        assert_eq!((answer.exit, answer.is_a_clear_error()), (12, "refused_root"), "{folder}");
    }
    ends(&place, &["agent", "register", "it", "--config", "/proc/self/environ"]).fails(12, "refused_root");
}

#[test]
fn a_fifo_in_the_place_of_an_agent_does_not_hang() {
    let (place, _) = place();
    let folder = place.path("agent");
    fs::create_dir_all(folder.join("memory")).unwrap();
    fs::write(folder.join("memory/notes"), "x").unwrap();
    make_fifo(&folder.join("config.json"));
    make_fifo(&folder.join("memory/pipe"));
    let (config, memory) = (folder.join("config.json"), folder.join("memory"));
    let register = [
        "agent",
        "register",
        "it",
        "--config",
        config.to_str().unwrap(),
        "--memory",
        memory.to_str().unwrap(),
    ];
    ends(&place, &register).succeeds();
    for args in [&["create", "--scope", "agent", "--agent", "it"][..], &["create", "--scope", "framework"]] {
        let answer = ends(&place, args);
        assert!([0, 3].contains(&answer.exit), "{args:?} {}", answer.errors);
    }
    ends(&place, &["rollback", "@"]);
    // A path that is now a device.
    if !is_root() {
        return skip("a_fifo_in_the_place_of_an_agent_does_not_hang: a device", "only root can make one");
    }
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mknod").arg(&config).args(["c", "1", "5"]).status().unwrap().success());
    let answer = ends(&place, &["create", "--scope", "agent", "--agent", "it"]);
    assert!([0, 3].contains(&answer.exit), "{}", answer.errors);
}

#[test]
fn a_fifo_in_the_place_of_a_file_that_a_workspace_is_ruled_by_does_not_hang() {
    for name in [
        ".safepoint.toml",
        ".safepointignore",
        "sub/.safepointignore",
        "sub/CACHEDIR.TAG",
        ".git",
        ".safepoint",
    ] {
        let (place, id) = place();
        make_fifo(&place.file(name));
        for args in
            [&["create", "--kind", "manual"][..], &["status"], &["validate"], &["doctor"], &["rollback", &id]]
        {
            let answer = ends(&place, args);
            eprintln!("{name} is a FIFO, {args:?}: exit {} {}", answer.exit, answer.errors);
        }
    }
}

#[test]
fn a_fifo_inside_a_repository_does_not_hang() {
    let git = |place: &Place, args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(place.project()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", place.path("user")).env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "t"), ("EMAIL", "t@t")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.output().is_ok_and(|output| output.status.success())
    };
    for name in [
        "HEAD",
        "config",
        "index",
        "packed-refs",
        "refs/heads/x",
        "objects/info/alternates",
        "objects/pack/pack-0123456789012345678901234567890123456789.idx",
        "objects/pack/pack-0123456789012345678901234567890123456789.pack",
        "objects/info/commit-graph",
        "commondir",
        "info/exclude",
    ] {
        let (place, _) = place();
        if !(git(&place, &["init", "-q"])
            && git(&place, &["add", "."])
            && git(&place, &["commit", "-qm", "x"]))
        {
            return skip("a_fifo_inside_a_repository_does_not_hang", "it takes git");
        }
        make_fifo(&place.file(".git").join(name));
        for args in [
            &["create", "--kind", "manual"][..],
            &["create", "--git"],
            &["status"],
            &["validate"],
            &["rollback", "@", "--hard-reset"],
        ] {
            let answer = ends(&place, args);
            eprintln!(".git/{name} is a FIFO, {args:?}: exit {} {}", answer.exit, answer.errors);
        }
    }
}

/// The shell's `<(...)` is a FIFO, which is read to its end.
#[test]
fn a_plan_from_a_fifo_is_read() {
    let (place, _) = place();
    make_fifo(&place.path("plan"));
    let fifo = place.path("plan");
    let text = "title = 'x'\n[[step]]\nid = 'one'\nrun = 'true'\n";
    let writer = Command::new("sh")
        .args(["-c", "sleep 0.2; printf '%s' \"$2\" > \"$1\"", "sh", fifo.to_str().unwrap(), text])
        .spawn()
        .unwrap();
    let answer = ends(&place, &["plan", "new", fifo.to_str().unwrap()]);
    writer.wait_with_output().unwrap();
    answer.succeeds();
}
