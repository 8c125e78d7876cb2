//! Remotes: two homes as two machines, a real PostgreSQL, and a folder for the bytes. Without PostgreSQL a line on standard
//! error names what was left out.

use crate::sandbox::Sandbox;
use crate::schemas::Judge;
use safepoint_testkit::TreeImage;
use safepoint_testkit::servers::{ACCESS_KEY, Postgres, S3Server, SECRET_KEY};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

const SECRET: &str = "hunter2-planted";

/// PostgreSQL server of all tests of this file.
pub(crate) fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Postgres::start(&["fsync=off", "shared_buffers=32MB"]).unwrap());
    if server.is_none() {
        eprintln!("LEFT OUT: tests with PostgreSQL, which is not installed; run: .ci/fleet --install");
    }
    server.as_ref()
}

pub(crate) fn database(postgres: &Postgres) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let name = format!("c{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    postgres.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0")).unwrap();
    name
}

/// Two machines with homes of their own, and a remote.
pub(crate) struct Fleet {
    pub(crate) here: Sandbox,
    pub(crate) there: Sandbox,
    pub(crate) postgres: &'static Postgres,
    pub(crate) database: String,
}

impl Fleet {
    /// The first machine has a checkpoint; both know the remote `team`.
    pub(crate) fn new() -> Option<Self> {
        let postgres = postgres()?;
        let database = database(postgres);
        let fleet = Self { here: Sandbox::with_checkpoint(), there: Sandbox::new(), postgres, database };
        for sandbox in [&fleet.here, &fleet.there] {
            fleet.add(sandbox, "postgres");
        }
        fleet.run(&fleet.here, &["remote", "init", "team"]);
        Some(fleet)
    }

    pub(crate) fn bytes(&self) -> PathBuf {
        self.here.path("bytes")
    }

    pub(crate) fn add(&self, sandbox: &Sandbox, role: &str) {
        let (records, bytes) = (self.records(role), format!("file://{}", self.bytes().display()));
        let args =
            ["remote", "add", "team", "--records", &records, "--bytes", &bytes, "--project", "shop", "--yes"];
        assert!(self.output(sandbox, &args).status.success());
    }

    pub(crate) fn records(&self, role: &str) -> String {
        self.postgres.url(role, &self.database)
    }

    pub(crate) fn output(&self, sandbox: &Sandbox, args: &[&str]) -> Output {
        self.command(sandbox, args).output().unwrap()
    }

    /// Ids and times as on real machines: both would else choose the same ones.
    pub(crate) fn command(&self, sandbox: &Sandbox, args: &[&str]) -> Command {
        let mut command = sandbox.command(args);
        command.env_remove("SAFEPOINT_TEST_NOW").env_remove("SAFEPOINT_TEST_SEED");
        command.env("SAFEPOINT_TEST_REMOTE_MS", "4000");
        command
    }

    pub(crate) fn run(&self, sandbox: &Sandbox, args: &[&str]) -> String {
        let output = self.output(sandbox, args);
        let told = sandbox.told(&output);
        assert!(output.status.success(), "{args:?}: {told}");
        told
    }

    pub(crate) fn json(&self, sandbox: &Sandbox, args: &[&str]) -> Value {
        let output = self.output(sandbox, &[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Clones on the second machine and compares the trees.
    fn clones_equal(&self) -> Value {
        let answer = self.json(&self.there, &["clone", "team", "project", "../clone"]);
        assert_eq!(answer["status"], "ok", "{answer:#}");
        let skip = [".git", ".safepoint"];
        let image = |path: &Path| TreeImage::read(path, &skip).unwrap();
        let (wanted, found) = (image(&self.here.path("project")), image(&self.there.path("clone")));
        assert_eq!(wanted.difference(&found), Vec::<String>::new());
        answer
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database);
        let _ = self.postgres.sql("postgres", &sql);
    }
}

/// Returns the files below a folder that contain this text.
fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file()
            && fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn what_one_machine_pushes_another_clones_exactly() {
    let Some(fleet) = Fleet::new() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    let pushed = fleet.json(here, &["push"]);
    assert_eq!(pushed["data"]["published"].as_array().unwrap().len(), 1, "{pushed:#}");
    here.write("notes.txt", "better\n");
    here.write("large", (0..300_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    fleet.run(here, &["create", "-m", "second"]);
    fleet.run(here, &["create", "-m", "third"]);
    let pushed = fleet.json(here, &["push", "team"]);
    let published = pushed["data"]["published"].as_array().unwrap();
    assert_eq!((published.len(), &published[0]["seq"], &pushed["data"]["packs"]), (2, &2.into(), &1.into()));
    assert!(fleet.run(here, &["push"]).starts_with("Everything is published to team."));
    let answer = fleet.clones_equal();
    assert_eq!(answer["data"]["fetched"]["checkpoint"]["label"], "third");
    let status = fleet.json(there, &["-C", "../clone", "status"]);
    assert_eq!(status["data"]["changes"], Value::Array(Vec::new()), "{status:#}");
    let answer = fleet.json(there, &["-C", "../clone", "validate", "--deep"]);
    assert_eq!(answer["data"]["is_valid"], true, "{answer:#}");
    // Work goes on there, on a line of its own, and comes back.
    fs::write(there.path("clone/notes.txt"), "best\n").unwrap();
    fleet.run(there, &["-C", "../clone", "create", "-m", "fourth"]);
    let pushed = fleet.json(there, &["-C", "../clone", "push"]);
    assert_eq!(pushed["data"]["published"].as_array().unwrap().len(), 1, "{pushed:#}");
    assert_ne!(pushed["data"]["published"][0]["line"], published[0]["line"]);
    fleet.run(here, &["fetch", "team", "project@fourth"]);
    fleet.run(here, &["rollback", "fourth"]);
    assert_eq!(here.read("notes.txt"), "best\n");
    let listed = fleet.json(here, &["list", "--remote", "team"]);
    let labels: Vec<_> =
        listed["data"]["published"].as_array().unwrap().iter().map(|it| &it["fields"]["label"]).collect();
    assert_eq!(labels, ["fourth", "third", "second", "first"]);
    let told = fleet.run(here, &["fetch", "team", "project@second"]);
    assert!(told.contains("is already here"), "{told}");
}

#[test]
fn a_plan_and_its_session_arrive_and_the_plan_goes_on() {
    let Some(fleet) = Fleet::new() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    let session = fleet.run(here, &["session", "create", "Add limits", "-q"]);
    let session = session.lines().next().unwrap().to_owned();
    here.write("plan.toml", "title = 'Limits'\nid = 'limits'\n[[step]]\nid = 'one'\nrun = 'echo 1 > one'\n[[step]]\nid = 'two'\nrun = 'echo 2 > two'\n");
    fleet.run(here, &["plan", "new", "plan.toml"]);
    let mut run = fleet.command(here, &["plan", "run", "limits", "--until", "one"]);
    assert!(run.env("SAFEPOINT_SESSION_ID", &session).output().unwrap().status.success());
    let mut create = fleet.command(here, &["plan", "checkpoint", "create", "limits", "-m", "after one"]);
    assert!(create.env("SAFEPOINT_SESSION_ID", &session).output().unwrap().status.success());
    fleet.run(here, &["push"]);
    let answer = fleet.clones_equal();
    assert_eq!(answer["data"]["clone"]["plans"][0], "limits", "{answer:#}");
    assert_eq!(answer["data"]["clone"]["sessions"][0], *session, "{answer:#}");
    let plan = |sandbox: &Sandbox, at: &str| {
        let answer = fleet.json(sandbox, &["-C", at, "plan", "show", "limits"]);
        answer["data"]["plan"]["steps"].clone()
    };
    assert_eq!(plan(here, ".")[0]["state"], plan(there, "../clone")[0]["state"]);
    fleet.run(there, &["session", "get", &session]);
    fleet.run(there, &["-C", "../clone", "plan", "resume", "limits"]);
    assert_eq!(fs::read_to_string(there.path("clone/two")).unwrap(), "2\n");
}

#[test]
fn failures_of_a_remote_are_named_and_nothing_is_lost() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    let failed = |args: &[&str]| {
        let answer = fleet.json(here, args);
        (answer["error"]["code"].as_str().unwrap_or("none").to_owned(), answer["exit_code"].as_u64().unwrap())
    };
    let again = |records: &str, bytes: &str| {
        fleet.run(here, &["remote", "remove", "team"]);
        fleet.run(
            here,
            &["remote", "add", "team", "--records", records, "--bytes", bytes, "--project", "shop", "--yes"],
        );
    };
    let (records, bytes) = (fleet.records("postgres"), format!("file://{}", fleet.bytes().display()));
    // A role that is no member.
    fleet.postgres.sql("postgres", &format!("CREATE ROLE r{} LOGIN", fleet.database)).unwrap();
    again(&fleet.records(&format!("r{}", fleet.database)), &bytes);
    let (code, exit) = failed(&["push"]);
    assert!(
        (code == "remote_denied" && exit == 1) || (code == "remote_not_initialized" && exit == 12),
        "{code}"
    );
    // A role that does not exist, a server that does not, a database without tables.
    again(&fleet.records("nobody-here"), &bytes);
    assert_eq!(failed(&["push"]), ("remote_denied".to_owned(), 1));
    again("postgres:///x?user=x&host=/nonexistent", &bytes);
    assert_eq!(failed(&["push"]), ("unreachable".to_owned(), 1));
    again(&fleet.postgres.url("postgres", "postgres"), &bytes);
    assert_eq!(failed(&["push"]), ("remote_not_initialized".to_owned(), 12));
    // A file is in the way of the folder.
    fs::write(here.path("blocked"), "").unwrap();
    again(&records, &format!("file://{}", here.path("blocked").join("bytes").display()));
    let (code, exit) = failed(&["push"]);
    assert_eq!(exit, 1, "{code}");
    assert_eq!(failed(&["push", "other"]), ("no_remote".to_owned(), 10));
    again(&records, &bytes);
    fleet.run(here, &["push"]);
    assert_eq!(failed(&["clone", "team", "nothing", "../x"]), ("not_published".to_owned(), 10));
    assert_eq!(failed(&["clone", "team", "project", "../x"]), ("workspace_here".to_owned(), 12));
    fs::create_dir(fleet.there.path("full")).unwrap();
    fs::write(fleet.there.path("full/file"), "").unwrap();
    let answer = fleet.json(&fleet.there, &["clone", "team", "project", "../full"]);
    assert_eq!((&answer["error"]["code"], &answer["exit_code"]), (&"not_empty".into(), &12.into()));
    assert_eq!(fleet.json(&fleet.there, &["list"])["error"]["code"], "no_workspace");
    fleet.clones_equal();
}

#[test]
fn damage_of_a_pack_is_noticed_and_nothing_is_registered() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.run(&fleet.here, &["push"]);
    let packs = files_below(&fleet.bytes());
    let pack = packs.iter().find(|path| path.extension().is_some_and(|end| end == "pack")).unwrap();
    let whole = fs::read(pack).unwrap();
    fs::set_permissions(pack, fs::Permissions::from_mode(0o600)).unwrap();
    for at in [100, whole.len() / 2, whole.len() - 10] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(pack, &bytes).unwrap();
        let answer = fleet.json(&fleet.there, &["clone", "team", "project", "../clone"]);
        assert_eq!(
            (&answer["error"]["code"], &answer["exit_code"]),
            (&"remote_damaged".into(), &13.into()),
            "{answer:#}"
        );
        assert!(!fleet.there.path("clone").exists());
        let listed = fleet.json(&fleet.there, &["workspace", "list"]);
        assert_eq!(listed["data"]["workspaces"], Value::Array(Vec::new()));
    }
    fs::write(pack, &whole).unwrap();
    fleet.clones_equal();
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn a_push_that_is_killed_anywhere_is_completed_by_the_next() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    let began = Instant::now();
    fleet.run(here, &["push"]);
    let (whole, mut expected) = (began.elapsed(), 1);
    for round in 0..24u32 {
        here.write("notes.txt", format!("round {round}\n"));
        here.write(&format!("data/{round}"), vec![round as u8; 200_000]);
        fleet.run(here, &["create", "-m", &format!("round {round}")]);
        expected += 1;
        let mut child =
            fleet.command(here, &["push"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * round / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 3 == 0 {
            fleet.run(here, &["push"]);
        }
    }
    fleet.run(here, &["push"]);
    let status = fleet.json(here, &["remote", "status"]);
    assert_eq!(status["data"]["standing"]["published"], expected, "{status:#}");
    assert_eq!(
        (&status["data"]["standing"]["unpublished"], &status["data"]["standing"]["pending"]),
        (&0.into(), &false.into())
    );
    // Each checkpoint once, all on one line.
    let rows = fleet
        .postgres
        .sql(&fleet.database, "SELECT count(*), count(DISTINCT id) FROM safepoint.checkpoints")
        .unwrap();
    assert_eq!(rows, format!("{expected}|{expected}"));
    assert!(!here.path("home/outbox").exists() || files_below(&here.path("home/outbox")).is_empty());
    fleet.clones_equal();
}

#[test]
fn a_copied_machine_publishes_to_a_line_of_its_own() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    fleet.run(here, &["push"]);
    // The home is copied as with a snapshot of a virtual machine.
    let copy = here.path("copy-of-home");
    safepoint_testkit::copy_tree(&here.path("home"), &copy).unwrap();
    here.write("notes.txt", "one\n");
    fleet.run(here, &["create", "-m", "one"]);
    fleet.run(here, &["push"]);
    here.write("notes.txt", "other\n");
    let copy = copy.to_str().unwrap();
    fleet.run(here, &["--home", copy, "create", "-m", "other"]);
    let pushed = fleet.json(here, &["--home", copy, "push"]);
    assert_eq!(pushed["status"], "ok", "{pushed:#}");
    assert!(pushed["data"]["fenced"].is_string(), "{pushed:#}");
    let answer = fleet.json(&fleet.there, &["clone", "team", "project@one", "../one"]);
    assert_eq!(answer["status"], "ok", "{answer:#}");
    assert_eq!(fs::read_to_string(fleet.there.path("one/notes.txt")).unwrap(), "one\n");
}

#[test]
fn several_pushes_at_once_publish_each_checkpoint_once() {
    let Some(fleet) = Fleet::new() else { return };
    for number in 0..5 {
        fleet.here.write("notes.txt", format!("{number}\n"));
        fleet.run(&fleet.here, &["create", "-m", &format!("number {number}")]);
    }
    let start = |_| {
        let mut command = fleet.command(&fleet.here, &["push", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(start).collect();
    let published = |child: std::process::Child| -> usize {
        let output = child.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["status"], "ok", "{answer:#}");
        answer["data"]["published"].as_array().unwrap().len()
    };
    assert_eq!(children.into_iter().map(published).sum::<usize>(), 6);
    fleet.clones_equal();
}

#[test]
fn a_full_disk_of_the_remote_is_named_and_the_push_goes_on_later() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    fs::create_dir(fleet.bytes()).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(fleet.bytes()).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("LEFT OUT: a full disk, as no file system can be mounted here");
        return;
    }
    let mut noise = vec![0; 400_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    here.write("large", noise);
    fleet.run(here, &["create", "-m", "large"]);
    let answer = fleet.json(here, &["push"]);
    Command::new("mount").args(["-o", "remount,size=64m"]).arg(fleet.bytes()).status().unwrap();
    let again = fleet.json(here, &["push"]);
    let cloned = fleet.json(&fleet.there, &["clone", "team", "project", "../clone"]);
    Command::new("umount").arg("-l").arg(fleet.bytes()).status().unwrap();
    assert_eq!(
        (&answer["error"]["code"], &answer["exit_code"]),
        (&"remote_full".into(), &1.into()),
        "{answer:#}"
    );
    assert_eq!(again["data"]["published"].as_array().map(Vec::len), Some(2), "{again:#}");
    assert_eq!(cloned["status"], "ok", "{cloned:#}");
}

#[test]
fn a_bucket_holds_the_bytes_and_its_keys_are_nowhere() {
    let Some(postgres) = postgres() else { return };
    let Some(server) = S3Server::seaweed().unwrap() else {
        eprintln!("LEFT OUT: tests with SeaweedFS, which is not installed; run: .ci/fleet --install");
        return;
    };
    let fleet = Fleet {
        here: Sandbox::with_checkpoint(),
        there: Sandbox::new(),
        postgres,
        database: database(postgres),
    };
    let (records, bytes) = (fleet.records("postgres"), server.url("cli"));
    let add =
        ["remote", "add", "team", "--records", &records, "--bytes", &bytes, "--project", "shop", "--yes"];
    let ask = |sandbox: &Sandbox, key: &str, args: &[&str]| -> Value {
        let mut command = fleet.command(sandbox, &[args, &["--json"]].concat());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", key);
        let output = command.output().unwrap();
        assert!(!sandbox.told(&output).contains(SECRET_KEY));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for sandbox in [&fleet.here, &fleet.there] {
        ask(sandbox, SECRET_KEY, &add);
    }
    ask(&fleet.here, SECRET_KEY, &["remote", "init", "team"]);
    let answer = ask(&fleet.here, "wrong", &["push"]);
    assert_eq!(
        (&answer["error"]["code"], &answer["exit_code"]),
        (&"remote_denied".into(), &1.into()),
        "{answer:#}"
    );
    let answer = ask(&fleet.here, SECRET_KEY, &["push"]);
    assert_eq!(answer["data"]["published"].as_array().map(Vec::len), Some(1), "{answer:#}");
    let answer = ask(&fleet.there, SECRET_KEY, &["clone", "team", "project", "../clone"]);
    assert_eq!(answer["status"], "ok", "{answer:#}");
    assert_eq!(fs::read_to_string(fleet.there.path("clone/notes.txt")).unwrap(), "good\n");
    for sandbox in [&fleet.here, &fleet.there] {
        assert_eq!(holding(&sandbox.path("home"), SECRET_KEY), Vec::<PathBuf>::new());
    }
}

#[test]
fn records_of_an_older_copy_are_rebuilt_from_the_packs() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    fleet.run(here, &["push"]);
    let backup = fleet.postgres.dump(&fleet.database).unwrap();
    here.write("notes.txt", "second\n");
    fleet.run(here, &["create", "-m", "second"]);
    fleet.run(here, &["push"]);
    let database = &fleet.database;
    fleet.postgres.sql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)")).unwrap();
    fleet.postgres.sql("postgres", &format!("CREATE DATABASE {database} TEMPLATE template0")).unwrap();
    fleet.postgres.sql(database, &backup).unwrap();
    here.write("notes.txt", "third\n");
    fleet.run(here, &["create", "-m", "third"]);
    let answer = fleet.json(here, &["push"]);
    assert_eq!((&answer["error"]["code"], &answer["exit_code"]), (&"remote_behind".into(), &13.into()));
    let answer = fleet.json(here, &["remote", "rebuild", "team"]);
    assert_eq!(answer["exit_code"], 2, "it asks: {answer:#}");
    let answer = fleet.json(here, &["remote", "rebuild", "team", "--yes"]);
    // The third was uploaded before its push was refused: its pack has a record, too.
    let told = (&answer["data"]["restored"], &answer["data"]["incarnation"]);
    assert_eq!(told, (&2.into(), &2.into()), "{answer:#}");
    let pushed = fleet.json(here, &["push"]);
    assert_eq!(
        (pushed["status"].as_str(), &pushed["data"]["fenced"]),
        (Some("ok"), &Value::Null),
        "{pushed:#}"
    );
    let status = fleet.json(here, &["remote", "status"]);
    assert_eq!(status["data"]["lines"][0]["seq"], 3, "{status:#}");
    let answer = fleet.json(here, &["remote", "upkeep", "team"]);
    assert_eq!(
        (&answer["exit_code"], &answer["data"]["checked"]["damage"]),
        (&0.into(), &Value::Null),
        "{answer:#}"
    );
    fleet.clones_equal();
}

#[test]
fn an_encrypted_remote_is_read_with_its_identity_alone() {
    let Some(postgres) = postgres() else { return };
    let fleet = Fleet {
        here: Sandbox::with_checkpoint(),
        there: Sandbox::new(),
        postgres,
        database: database(postgres),
    };
    let key = fleet.here.path("key");
    let seal = safepoint::remote::NewSeal::generate();
    fs::write(&key, seal.secret_text()).unwrap();
    let (records, bytes) = (fleet.records("postgres"), format!("file://{}", fleet.bytes().display()));
    let plain =
        ["remote", "add", "team", "--records", &records, "--bytes", &bytes, "--project", "shop", "--yes"];
    let sealed = [&plain[..], &["--identity", key.to_str().unwrap()]].concat();
    fleet.run(&fleet.here, &sealed);
    fleet.run(&fleet.here, &["remote", "init", "team"]);
    fleet.here.write("notes.txt", SECRET);
    fleet.run(&fleet.here, &["create", "-m", SECRET]);
    fleet.run(&fleet.here, &["push"]);
    assert_eq!(holding(&fleet.bytes(), SECRET), Vec::<PathBuf>::new());
    assert!(!fleet.postgres.dump(&fleet.database).unwrap().contains(SECRET));
    fleet.run(&fleet.there, &plain);
    let answer = fleet.json(&fleet.there, &["clone", "team", "project", "../clone"]);
    assert_eq!(answer["status"], "error", "{answer:#}");
    fleet.run(&fleet.there, &["remote", "remove", "team"]);
    fleet.run(&fleet.there, &sealed);
    fleet.clones_equal();
}

#[test]
fn a_secret_of_the_user_is_nowhere() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    let log = here.path("log");
    let told = |args: &[&str]| {
        let mut command = fleet.command(here, args);
        command
            .env("PGPASSWORD", SECRET)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_ACCESS_KEY_ID", SECRET);
        command.env("SAFEPOINT_LOG", "trace").env("SAFEPOINT_LOG_FILE", &log);
        let output = command.output().unwrap();
        let text = here.told(&output);
        assert!(!text.contains(SECRET), "{text}");
        (output.status.code().unwrap(), text)
    };
    let bytes = format!("file://{}", fleet.bytes().display());
    let with_password = format!("postgres://me:{SECRET}@host/db");
    for (records, bytes) in [
        (with_password.as_str(), bytes.as_str()),
        (&format!("postgres://me@host/db?password={SECRET}"), &bytes),
        (&fleet.records("postgres"), &format!("s3://key:{SECRET}@bucket/p")),
        (&fleet.records("postgres"), &format!("s3://bucket/p?secret_access_key={SECRET}")),
    ] {
        let args =
            ["remote", "add", "other", "--records", records, "--bytes", bytes, "--project", "shop", "--yes"];
        assert_eq!(told(&args).0, 2);
    }
    assert_eq!(told(&["push"]).0, 0);
    assert_eq!(told(&["remote", "status"]).0, 0);
    told(&[
        "remote",
        "add",
        "away",
        "--records",
        "postgres://me@127.0.0.1:1/db",
        "--bytes",
        "s3://bucket/p?endpoint=http://127.0.0.1:1&region=x",
        "--project",
        "shop",
        "--yes",
    ]);
    assert_eq!(told(&["push", "away"]).0, 1);
    assert_eq!(told(&["remote", "init", "away"]).0, 1);
    assert_eq!(holding(&here.path("home"), SECRET), Vec::<PathBuf>::new());
    assert_eq!(holding(&fleet.bytes(), SECRET), Vec::<PathBuf>::new());
    assert!(!log.exists() || !fs::read_to_string(&log).unwrap().contains(SECRET));
    assert!(!fleet.postgres.dump(&fleet.database).unwrap().contains(SECRET));
}

#[test]
fn adding_a_remote_shows_what_would_leave_and_asks() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write(".env", "KEY=1");
    sandbox.write(".gitignore", ".env\n");
    sandbox.run(&["create"]);
    let args = [
        "remote",
        "add",
        "team",
        "--records",
        "postgres://db/x",
        "--bytes",
        "s3://bucket/p",
        "--project",
        "shop",
    ];
    let told = sandbox.run(&args);
    assert!(told.contains("Names that usually hold secrets: .env"), "{told}");
    assert!(told.contains("Confirm with --yes") && told.ends_with("--- exit 12\n"), "{told}");
    assert!(sandbox.run(&["remote", "list"]).contains("No remote is configured"));
    let told = sandbox.typed(sandbox.command(&args), "n\n");
    assert!(told.contains("Add remote team? [y/N]") && told.contains("not confirmed"), "{told}");
    let told = sandbox.typed(sandbox.command(&args), "y\n");
    assert!(told.contains("Added team"), "{told}");
    let told = sandbox.run(&[&args[..], &["--yes"]].concat());
    assert!(told.ends_with("--- exit 12\n"), "the name is taken: {told}");
    assert!(sandbox.run(&["remote", "init", "team", "--print"]).contains("CREATE ROLE"));
    assert!(sandbox.run(&["remote", "remove", "team"]).starts_with("Removed team."));
}

#[test]
fn answers_of_commands_with_a_server_fit_their_schemas() {
    let Some(fleet) = Fleet::new() else { return };
    let mut judge = Judge::new();
    for args in [
        &["remote", "init", "team"][..],
        &["remote", "status"],
        &["push"],
        &["push"],
        &["remote", "status", "team"],
        &["fetch", "team", "project"],
        &["remote", "list"],
        &["list", "--remote", "team"],
        &["list", "--remote", "team", "--all", "-n", "1"],
        &["remote", "migrate", "team"],
        &["remote", "upkeep", "team"],
        &["remote", "rebuild", "team", "--yes"],
    ] {
        judge.see(&fleet.json(&fleet.here, args));
    }
    for args in [
        &["remote", "status"][..],
        &["clone", "team", "project", "../clone"],
        &["-C", "../clone", "remote", "status"],
        &["remote", "remove", "team"],
    ] {
        judge.see(&fleet.json(&fleet.there, args));
    }
    for command in crate::schemas::WITH_SERVERS {
        assert!(judge.well.contains(command), "{command} failed: {:?}", judge.failed);
    }
}
