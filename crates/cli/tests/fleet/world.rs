//! World of a test: two homes as two machines, a database, and a place for bytes.

use safepoint_testkit::TreeImage;
use safepoint_testkit::servers::{ACCESS_KEY, Postgres, SECRET_KEY};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// PostgreSQL server of all tests that do not stop it.
pub(crate) fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Postgres::start(&["fsync=off", "shared_buffers=32MB"]).unwrap());
    if server.is_none() {
        eprintln!("LEFT OUT: tests with PostgreSQL, which is not installed; run: .ci/fleet --install");
    }
    server.as_ref()
}

/// Answer of a command.
pub(crate) struct Told {
    pub(crate) exit: i32,
    pub(crate) answer: Value,
}

impl Told {
    pub(crate) fn code(&self) -> &str {
        self.answer["error"]["code"].as_str().unwrap_or("none")
    }

    #[track_caller]
    pub(crate) fn assert_well(&self) {
        assert_eq!(self.exit, 0, "{:#}", self.answer);
    }

    #[track_caller]
    pub(crate) fn assert_failed(&self, code: &str, exit: i32) {
        assert_eq!((self.code(), self.exit), (code, exit), "{:#}", self.answer);
    }
}

/// Two machines, `here` and `there`.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) database: String,
    /// Limit of memory of a command in kilobytes.
    pub(crate) memory: Option<u64>,
}

impl World {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let world = Self {
            folder,
            database: format!("f{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)),
            memory: None,
        };
        for name in ["here/project/src", "there/project", "user"] {
            fs::create_dir_all(world.path(name)).unwrap();
        }
        world.write("notes.txt", "good\n");
        world.write("src/main.rs", "fn main() {}\n");
        world.run("here", &["create", "-m", "first"]).assert_well();
        world
    }

    /// World with a remote on the shared server, and bytes in a folder; the first checkpoint is published.
    pub(crate) fn published() -> Option<Self> {
        Self::published_after(|_| {})
    }

    /// The same, with more work before the push.
    pub(crate) fn published_after(work: impl FnOnce(&Self)) -> Option<Self> {
        let postgres = postgres()?;
        let world = Self::new();
        work(&world);
        world.create_database(postgres);
        let bytes = format!("file://{}", world.path("bytes").display());
        world.add(&postgres.url("postgres", &world.database), &bytes);
        world.run("here", &["remote", "init", "team"]).assert_well();
        world.run("here", &["push"]).assert_well();
        Some(world)
    }

    pub(crate) fn create_database(&self, postgres: &Postgres) {
        let sql = format!("CREATE DATABASE {} TEMPLATE template0", self.database);
        postgres.sql("postgres", &sql).unwrap();
    }

    /// Tells both machines about the remote `team`, in the place of an earlier one.
    pub(crate) fn add(&self, records: &str, bytes: &str) {
        let args =
            ["remote", "add", "team", "--records", records, "--bytes", bytes, "--project", "shop", "--yes"];
        for machine in ["here", "there"] {
            let _ = self.run(machine, &["remote", "remove", "team"]);
            self.run(machine, &args).assert_well();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path("here/project").join(name), content).unwrap();
    }

    pub(crate) fn command(&self, machine: &str, args: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        let limit = self.memory.map_or_else(|| "unlimited".to_owned(), |kilobytes| kilobytes.to_string());
        command.args(["-c", &format!("ulimit -v {limit}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_safepoint")).args(args).arg("--json").env_clear();
        command
            .env("HOME", self.path("user"))
            .env("USER", "tester")
            .env("SAFEPOINT_HOME", self.path(machine).join("home"))
            .env("SAFEPOINT_TEST_REMOTE_MS", "1500")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .current_dir(self.path(machine).join("project"));
        command
    }

    pub(crate) fn run(&self, machine: &str, args: &[&str]) -> Told {
        told(self.command(machine, args))
    }

    /// Clones on the other machine, and compares.
    pub(crate) fn assert_clones_equal(&self) {
        self.run("there", &["clone", "team", "project", "../clone"]).assert_well();
        let image = |path: &Path| TreeImage::read(path, &[".safepoint"]).unwrap();
        let (wanted, found) = (image(&self.path("here/project")), image(&self.path("there/clone")));
        assert_eq!(wanted.difference(&found), Vec::<String>::new());
    }

    /// Nothing of a refused clone is left, and nothing is registered.
    pub(crate) fn assert_nothing_arrived(&self, what: &str) {
        assert!(!self.path("there/clone").exists(), "{what}");
        let listed = self.run("there", &["workspace", "list"]);
        assert_eq!(listed.answer["data"]["workspaces"], Value::Array(Vec::new()), "{what}");
        let plans = self.run("there", &["plan", "list", "--all"]);
        assert!(plans.answer["data"]["plans"].as_array().is_none_or(Vec::is_empty), "{what}");
        assert!(!self.path("escaped").exists() && !self.path("there/escaped").exists(), "{what}");
    }
}

pub(crate) fn told(mut command: Command) -> Told {
    let output = command.output().unwrap();
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&output.stderr).into_owned()));
    Told { exit: output.status.code().unwrap_or(-1), answer }
}
