//! SIGKILL at every state-changing system call of commands that talk to a remote, sends to its servers included. The
//! next command completes, and the records hold each push once.
//!
//! The remote is a real PostgreSQL and a folder. Each point has a project of its own, so nothing is restarted.

use safepoint::remote::{ExistingPacks, LiveLease, Remote, RemoteEnvironment, RemotePolicy, UpkeepOptions};
use safepoint::{
    CheckpointManager, CreateOptions, Depth, NewRemote, PushOptions, RollbackOptions, Silent, Workspace,
};
use safepoint_testkit::servers::Postgres;
use safepoint_testkit::{End, Program, TreeImage, copy_tree, kill_at_or_send};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const DATABASE: &str = "killed";

/// PostgreSQL server of all tests of this file, with the tables in it.
fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let postgres = Postgres::start(&["fsync=off", "shared_buffers=32MB"]).unwrap()?;
        postgres.sql("postgres", &format!("CREATE DATABASE {DATABASE} TEMPLATE template0")).unwrap();
        Some(postgres)
    });
    if server.is_none() {
        eprintln!("LEFT OUT: tests with PostgreSQL, which is not installed; run: .ci/fleet --install");
    }
    server.as_ref()
}

/// Two machines and a project of the remote.
struct Fleet {
    folder: tempfile::TempDir,
    postgres: &'static Postgres,
    project: String,
    /// Files of every checkpoint.
    images: BTreeMap<String, TreeImage>,
}

/// Machine with its home open.
struct Desk {
    manager: CheckpointManager,
    remote: Remote,
}

impl Desk {
    fn push(&self, workspace: &Workspace) {
        self.manager
            .remotes()
            .push(("team", &self.remote), workspace, &PushOptions::new("test"), &Silent)
            .unwrap();
    }

    fn workspace(&self, folder: &Path) -> Workspace {
        self.manager.workspaces().around(folder).unwrap().unwrap()
    }
}

fn image(folder: &Path) -> TreeImage {
    TreeImage::read(folder, &[".git", ".safepoint"]).unwrap()
}

fn assert_same(wanted: &TreeImage, folder: &Path, what: &str) {
    assert_eq!(wanted.difference(&image(folder)), Vec::<String>::new(), "{what}");
}

impl Fleet {
    /// The first machine has two checkpoints, and knows no remote.
    fn new() -> Option<Self> {
        let postgres = postgres()?;
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let mut fleet =
            Self { folder: folder.unwrap(), postgres, project: String::new(), images: BTreeMap::new() };
        for name in ["project/src", "user"] {
            fs::create_dir_all(fleet.path(name)).unwrap();
        }
        let manager = CheckpointManager::open(&fleet.path("home")).unwrap();
        let workspace = manager.workspaces().register(&fleet.path("project")).unwrap();
        for round in 0..2 {
            fleet.work(&manager, &workspace, round);
        }
        drop(manager);
        for name in ["home", "project"] {
            copy_tree(&fleet.path(name), &fleet.path(&format!("{name}.before"))).unwrap();
        }
        Some(fleet)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn clear(&self, name: &str) {
        if self.path(name).exists() {
            fs::remove_dir_all(self.path(name)).unwrap();
        }
    }

    /// Changes the files, and takes a checkpoint.
    fn work(&mut self, manager: &CheckpointManager, workspace: &Workspace, round: u64) {
        let project = self.path("project");
        fs::write(project.join("notes"), format!("round {round}\n")).unwrap();
        fs::write(project.join(format!("src/{round}")), vec![round as u8; 3000]).unwrap();
        let _ = fs::remove_file(project.join(format!("src/{}", round.wrapping_sub(2))));
        let options = CreateOptions { label: Some(format!("round {round}")), ..CreateOptions::default() };
        let made = manager.create(workspace, &options, &Silent).unwrap();
        self.images.insert(made.checkpoint.id.to_string(), image(&project));
    }

    fn copy(&self, from: &str, to: &str) {
        self.clear(to);
        copy_tree(&self.path(from), &self.path(to)).unwrap();
    }

    /// Lays the first machine out again, with a new project of the remote.
    fn lay(&mut self) -> Desk {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        self.project = format!("p{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.copy("home.before", "home");
        self.copy("project.before", "project");
        self.clear("bytes");
        let desk = self.join("home");
        let manager = &desk.manager;
        let options = manager.remotes().options(&manager.remotes().get(None).unwrap(), None).unwrap();
        // Migrations of several tests at once would wait for each other.
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        Remote::init(&options, &RemoteEnvironment::default(), ExistingPacks::Refused).unwrap();
        desk
    }

    /// Opens a home, and adds the remote to it.
    fn join(&self, home: &str) -> Desk {
        let manager = CheckpointManager::open(&self.path(home)).unwrap();
        let new = NewRemote {
            name: "team".to_owned(),
            records: self.postgres.url("postgres", DATABASE).parse().unwrap(),
            bytes: format!("file://{}", self.path("bytes").display()).parse().unwrap(),
            project: self.project.parse().unwrap(),
            identity: None,
        };
        manager.remotes().add(&new).unwrap();
        drop(manager);
        self.open(home)
    }

    fn open(&self, home: &str) -> Desk {
        let manager = CheckpointManager::open(&self.path(home)).unwrap();
        let options = manager.remotes().options(&manager.remotes().get(None).unwrap(), None).unwrap();
        let remote = manager.remotes().open(&options, &RemoteEnvironment::default()).unwrap();
        Desk { manager, remote }
    }

    fn environment(&self, home: &str) -> Vec<(OsString, OsString)> {
        vec![
            ("SAFEPOINT_HOME".into(), self.path(home).into()),
            ("HOME".into(), self.path("user").into()),
            ("USER".into(), "tester".into()),
            ("RAYON_NUM_THREADS".into(), "1".into()),
            ("LLVM_PROFILE_FILE".into(), "/dev/null".into()),
        ]
    }

    fn program(&self, home: &str, folder: &str, args: &[&str]) -> Program {
        let exe = PathBuf::from(env!("CARGO_BIN_EXE_safepoint"));
        let args = args.iter().map(OsString::from).collect();
        Program { exe, args, env: self.environment(home), cwd: self.path(folder) }
    }

    fn output(&self, home: &str, folder: &str, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
        command.args(args).env_clear().envs(self.environment(home)).current_dir(self.path(folder));
        command.output().unwrap()
    }

    fn must(&self, home: &str, folder: &str, args: &[&str], after: &End) {
        let output = self.output(home, folder, args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?} after {after:?}: {told}");
    }

    fn sql(&self, sql: &str) -> String {
        let project = format!("(SELECT id FROM projects WHERE name = '{}')", self.project);
        let sql = format!("SET search_path = safepoint; {}", sql.replace("$P", &project));
        self.postgres.sql(DATABASE, &sql).unwrap()
    }

    /// Each push is accepted once, its packs are there, and every published checkpoint clones equal to its source.
    fn published_law(&self, expected: usize, after: &End) {
        let told = self.sql(
            "SELECT count(*), count(DISTINCT id) FROM checkpoints WHERE project = $P;
             SELECT count(*) FROM (SELECT 1 FROM packs WHERE project = $P GROUP BY regexp_replace(name, '-[0-9a-f]+[.]pack$', '')
                HAVING count(*) > 1) twice;
             SELECT count(*) FROM lines l WHERE project = $P
                AND seq <> (SELECT count(DISTINCT c.seq) FROM checkpoints c WHERE c.line = l.id);
             SELECT name FROM packs WHERE project = $P AND state = 'live'",
        );
        let mut lines = told.lines();
        let counted = [lines.next(), lines.next(), lines.next()];
        let all = format!("{expected}|{expected}");
        assert_eq!(counted, [Some(all.as_str()), Some("0"), Some("0")], "after {after:?}");
        for name in lines {
            assert!(self.path("bytes").join(name).is_file(), "{name} is missing after {after:?}");
        }
        self.clones_law(after);
    }

    /// The newest checkpoint alone is left, and clones equal to its source.
    fn published_law_after_upkeep(&self, after: &End) {
        let rows = self.sql("SELECT count(*), max(seq) FROM checkpoints WHERE project = $P");
        assert_eq!(rows, "1|3", "after {after:?}");
        self.clones_law(after);
    }

    fn clones_law(&self, after: &End) {
        self.clear("checker");
        let desk = self.join("checker/home");
        let all = desk.manager.remotes().published(&desk.remote, None).unwrap();
        for (number, listed) in all.iter().enumerate() {
            let found = desk.remote.checkpoint(listed.id).unwrap();
            let to = self.path(&format!("checker/clone{number}"));
            // A home has a workspace once.
            let home = format!("checker/home{number}");
            let other = self.join(&home);
            other.manager.remotes().clone_to(("team", &other.remote), &found, &to, &Silent).unwrap();
            let wanted = &self.images[&found.id.to_string()];
            assert_same(wanted, &to, &format!("the clone of {} after {after:?}", found.id));
        }
    }

    fn outbox_is_empty(&self) -> bool {
        let mut folders = vec![self.path("home/outbox")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => folders.push(entry.path()),
                    false => return false,
                }
            }
        }
        true
    }
}

/// Tries every `every`-th point, or each with SAFEPOINT_PROOF=full. `point` kills there, checks, and returns the end.
fn everywhere(what: &str, every: usize, mut point: impl FnMut(u64) -> End) {
    let mut points = 0;
    for number in (1..).step_by(if crate::is_full() { 1 } else { every }) {
        let end = point(number);
        if !matches!(end, End::Killed { .. }) {
            assert!(end.is_success(), "{end:?}");
            break;
        }
        points += 1;
    }
    eprintln!("kill -9: {what}: {points} points");
    assert!(points > 3, "{points}");
}

/// Kills a push, and lets the next one complete it.
fn push_killed(what: &str, every: usize, ready: impl Fn(&mut Fleet) -> usize) {
    let Some(mut fleet) = Fleet::new() else { return };
    everywhere(what, every, |point| {
        let expected = ready(&mut fleet);
        let end = kill_at_or_send(&fleet.program("home", "project", &["push"]), point).unwrap();
        // What this machine believes to be published is published.
        let desk = fleet.open("home");
        let workspace = desk.workspace(&fleet.path("project"));
        let standing = desk.manager.remotes().standing("team", &workspace).unwrap();
        let told = fleet.sql("SELECT id FROM checkpoints WHERE project = $P");
        for published in &standing.published {
            assert!(told.contains(&published.checkpoint.to_string()), "{published:?} after {end:?}");
        }
        if matches!(end, End::Killed { .. }) {
            fleet.must("home", "project", &["push"], &end);
        }
        let standing = desk.manager.remotes().standing("team", &workspace).unwrap();
        assert_eq!((standing.unpublished, standing.pending), (0, false), "after {end:?}");
        assert!(fleet.outbox_is_empty(), "after {end:?}");
        fleet.published_law(expected, &end);
        end
    });
}

#[test]
fn a_first_push_killed_anywhere_is_completed_by_the_next() {
    push_killed("the first push", 9, |fleet| {
        fleet.lay();
        2
    });
}

#[test]
fn a_push_killed_anywhere_is_completed_by_the_next() {
    push_killed("push", 9, |fleet| {
        let desk = fleet.lay();
        let workspace = desk.workspace(&fleet.path("project"));
        desk.push(&workspace);
        for round in 2..4 {
            fleet.work(&desk.manager, &workspace, round);
        }
        4
    });
}

#[test]
fn a_push_of_a_fenced_machine_killed_anywhere_is_completed_on_a_new_line() {
    push_killed("push to a line that a copy of the machine went on with", 11, |fleet| {
        let desk = fleet.lay();
        let project = fleet.path("project");
        desk.push(&desk.workspace(&project));
        drop(desk);
        fleet.copy("home", "copy");
        let copy = fleet.open("copy");
        let workspace = copy.workspace(&project);
        fleet.work(&copy.manager, &workspace, 2);
        copy.push(&workspace);
        let desk = fleet.open("home");
        let workspace = desk.workspace(&project);
        fleet.work(&desk.manager, &workspace, 3);
        4
    });
}

#[test]
fn a_clone_killed_anywhere_is_repeated() {
    let Some(mut fleet) = Fleet::new() else { return };
    let desk = fleet.lay();
    desk.push(&desk.workspace(&fleet.path("project")));
    let source = image(&fleet.path("project"));
    let to = fleet.path("clone");
    let args = ["clone", "team", "project", to.to_str().unwrap()];
    everywhere("clone", 11, |point| {
        for name in ["there", "clone"] {
            fleet.clear(name);
        }
        drop(fleet.join("there"));
        let end = kill_at_or_send(&fleet.program("there", "user", &args), point).unwrap();
        let arrived = |fleet: &Fleet| fleet.open("there").manager.workspaces().list().unwrap().pop();
        if !to.exists() {
            assert!(!end.is_success());
            // The folder is built beside its name; the same command replaces or completes it.
            fleet.must("there", "user", &args, &end);
        }
        let beside = fs::read_dir(to.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = beside.filter(|name| name.as_encoded_bytes().starts_with(b".clone.")).collect();
        assert!(left.is_empty(), "after {end:?}: {left:?}");
        let there = fleet.open("there");
        let workspace = arrived(&fleet).unwrap();
        assert_same(&source, &to, &format!("after {end:?}"));
        let validation = there.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
        assert!(validation.is_valid(), "{validation:?}");
        // Work goes on, on a line of its own.
        if point % 4 == 1 {
            there.manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap();
            there.push(&workspace);
        }
        end
    });
}

#[test]
fn a_fetch_killed_anywhere_is_repeated() {
    let Some(mut fleet) = Fleet::new() else { return };
    let desk = fleet.lay();
    let workspace = desk.workspace(&fleet.path("project"));
    desk.push(&workspace);
    let there = fleet.join("there");
    let found = there.manager.remotes().find(&there.remote, "project").unwrap();
    let to = fleet.path("clone");
    there.manager.remotes().clone_to(("team", &there.remote), &found, &to, &Silent).unwrap();
    drop(there);
    for round in 2..4 {
        fleet.work(&desk.manager, &workspace, round);
    }
    desk.push(&workspace);
    let source = image(&fleet.path("project"));
    for name in ["there", "clone"] {
        fleet.copy(name, &format!("{name}.before"));
    }
    everywhere("fetch", 9, |point| {
        for name in ["there", "clone"] {
            fleet.copy(&format!("{name}.before"), name);
        }
        let args = ["fetch", "team", "project"];
        let end = kill_at_or_send(&fleet.program("there", "clone", &args), point).unwrap();
        fleet.must("there", "clone", &args, &end);
        let there = fleet.open("there");
        let validation = there.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
        assert!(validation.is_valid(), "{validation:?}");
        let workspace = there.workspace(&to);
        let newest = there.manager.remotes().find(&there.remote, "project").unwrap().id;
        there.manager.rollback(&workspace, newest, &RollbackOptions::default(), &Silent).unwrap();
        assert_same(&source, &to, &format!("after {end:?}"));
        end
    });
}

/// A project with an old row, an unlisted pack, a pack that is due, and an upload that was never published.
fn unkempt(fleet: &mut Fleet) {
    let desk = fleet.lay();
    let workspace = desk.workspace(&fleet.path("project"));
    let mut policy = RemotePolicy::default();
    (policy.keep_last, policy.hourly_days, policy.daily_days) = (1, 0, 0);
    desk.remote.records().set_policy(&policy).unwrap();
    for round in 2..4 {
        desk.push(&workspace);
        // Without its base a push sends everything, and leaves the packs before it unlisted.
        let all = desk.manager.checkpoints().list_ids(&safepoint::Filter::default()).unwrap();
        desk.manager.checkpoints().delete(&all).unwrap();
        if round == 3 {
            desk.manager.remotes().upkeep(&desk.remote, &UpkeepOptions::default(), &Silent).unwrap();
            fleet.sql(
                "UPDATE packs SET condemned_at = now() - interval '8 days' WHERE project = $P AND state = 'condemned'",
            );
        }
        fleet.work(&desk.manager, &workspace, round);
    }
    desk.push(&workspace);
    let line = desk.remote.lines(None, None).unwrap()[0].line;
    let lost = fleet.path("bytes").join(format!("{}/{line}/1/9-{}.pack", fleet.project, "ab".repeat(32)));
    fs::write(lost, "never published").unwrap();
    desk.remote.take_over(line, "test", 7, LiveLease::Broken).unwrap();
}

#[test]
fn an_upkeep_of_a_remote_killed_anywhere_is_completed_by_the_next() {
    let Some(mut fleet) = Fleet::new() else { return };
    everywhere("remote upkeep", 9, |point| {
        unkempt(&mut fleet);
        let args = ["remote", "upkeep", "team"];
        let end = kill_at_or_send(&fleet.program("home", "project", &args), point).unwrap();
        if matches!(end, End::Killed { .. }) {
            // The writer goes on before the next upkeep, or after it.
            if point % 2 == 0 {
                fleet.must("home", "project", &["push"], &end);
            }
            fleet.must("home", "project", &args, &end);
        }
        let packs = fleet.sql("SELECT state, name FROM packs WHERE project = $P ORDER BY 1, 2");
        let count = |state: &str| packs.lines().filter(|line| line.starts_with(state)).count();
        let counts = (count("live|"), count("condemned|"), count("gone|"));
        // Live: the newest. Condemned: the one before it and the lost upload. Gone: the one that was due.
        assert_eq!(counts, (1, 2, 1), "after {end:?}:\n{packs}");
        for line in packs.lines() {
            let (state, name) = line.split_once('|').unwrap();
            assert_eq!(fleet.path("bytes").join(name).exists(), state != "gone", "{name} after {end:?}");
        }
        fleet.published_law_after_upkeep(&end);
        let desk = fleet.open("home");
        let workspace = desk.workspace(&fleet.path("project"));
        fleet.work(&desk.manager, &workspace, 5);
        desk.push(&workspace);
        fleet.clones_law(&end);
        end
    });
}
