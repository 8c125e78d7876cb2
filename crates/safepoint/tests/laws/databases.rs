//! SQLite databases with concurrent writers. The writers are separate processes (this binary), because locks
//! belong to processes.

#![allow(clippy::print_stdout, reason = "programs answer each other on standard output")]

use crate::bench::{Bench, noise, scratch, unwatched};
use rusqlite::Connection;
use safepoint::model::RelPath;
use safepoint::model::Span;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::coverage::{Coverage, Why};
use safepoint::model::progress::Activity;
use safepoint::model::retention::Policy;
use safepoint::model::tree::Node;
use safepoint::{CreateOptions, Created, Filter, RollbackOptions, Search, Settings, Silent, TryIn, Until};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "SAFEPOINT_TEST_WRITER";

/// Process with an open database that runs commands or writes all the time.
struct Writer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// File with the last row that it committed.
    noted: PathBuf,
}

impl Writer {
    fn start(database: &Path, noted: &Path, role: &str) -> Self {
        fs::write(noted, [0; 8]).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["databases::the_other_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("SAFEPOINT_TEST_DATABASE", database)
            .env("SAFEPOINT_TEST_NOTED", noted)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(answers.read_line(&mut line).unwrap() > 0, "the other process ended");
        }
        Self { child, orders, answers, noted: noted.to_owned() }
    }

    fn committed(&self) -> u64 {
        let mut last = [0; 8];
        File::open(&self.noted).unwrap().read_exact_at(&mut last, 0).unwrap();
        u64::from_le_bytes(last)
    }

    /// Waits for another commit.
    fn wait_for_more(&self) {
        let before = self.committed();
        for _ in 0..20_000 {
            if self.committed() > before {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the other process stopped committing");
    }

    /// Runs SQL in the other process.
    fn run(&mut self, sql: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{sql}").unwrap();
        let mut answer = String::new();
        assert!(self.answers.read_line(&mut answer).unwrap() > 0, "the other process ended");
        answer.trim().to_owned()
    }

    /// Lets it close the database and exit.
    fn end(mut self) {
        drop(self.orders.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    /// Kills it: the database stays as it is.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(path: &Path, mode: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection.execute_batch(&format!("PRAGMA journal_mode = {mode}; PRAGMA synchronous = OFF")).unwrap();
    connection
}

#[test]
#[ignore = "what other tests start"]
fn the_other_process() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let role = role.into_string().unwrap();
    let path = PathBuf::from(std::env::var_os("SAFEPOINT_TEST_DATABASE").unwrap());
    let noted = File::options().write(true).open(std::env::var_os("SAFEPOINT_TEST_NOTED").unwrap()).unwrap();
    let (what, mode) = role.split_once(' ').unwrap();
    match what {
        "obey" => obey(&path, mode),
        what => write_for_ever(&path, mode, what == "fast", &noted),
    }
}

fn obey(path: &Path, mode: &str) {
    let connection = open(path, mode);
    println!("\nready");
    for line in std::io::stdin().lines() {
        let answer = match line.unwrap().as_str() {
            "abort" => std::process::abort(),
            sql => match connection.execute_batch(sql) {
                Ok(()) => "done".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        println!("{answer}");
    }
}

/// Commits one row in each of two tables per transaction, and occasionally rarer changes.
fn write_for_ever(path: &Path, mode: &str, fast: bool, noted: &File) {
    let mut connection = open(path, mode);
    connection
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS a (id INTEGER PRIMARY KEY, text BLOB);
             CREATE TABLE IF NOT EXISTS b (id INTEGER PRIMARY KEY, text BLOB);
             CREATE INDEX IF NOT EXISTS texts ON a (text);
             CREATE TABLE IF NOT EXISTS big (text BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
             INSERT INTO big SELECT randomblob(100000) FROM n",
        )
        .unwrap();
    let next: u64 =
        connection.query_row("SELECT coalesce(max(id), 0) + 1 FROM a", [], |row| row.get(0)).unwrap();
    println!("\nready");
    for number in next.. {
        let transaction = connection.transaction().unwrap();
        for table in ["a", "b"] {
            let sql = format!("INSERT INTO {table} VALUES (?1, randomblob(?2))");
            transaction.execute(&sql, (number, 50 + number % 3000)).unwrap();
        }
        if number.is_multiple_of(7) {
            transaction
                .execute("UPDATE big SET text = randomblob(100000) WHERE rowid % 30 = ?1", [number % 30])
                .unwrap();
        }
        if number > 3000 {
            transaction.execute("DELETE FROM a WHERE id = ?1", [number - 3000]).unwrap();
            transaction.execute("DELETE FROM b WHERE id = ?1", [number - 3000]).unwrap();
        }
        transaction.commit().unwrap();
        noted.write_all_at(&number.to_le_bytes(), 0).unwrap();
        match number % 211 {
            50 if mode == "wal" => drop(connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")),
            100 if mode == "wal" => drop(connection.execute_batch("PRAGMA wal_checkpoint(RESTART)")),
            150 => drop(connection.execute_batch("VACUUM")),
            // The last connection to close deletes the log.
            200 => {
                drop(connection);
                connection = open(path, mode);
            }
            _ => {}
        }
        if !fast {
            std::thread::sleep(Duration::from_millis(number % 13));
        }
    }
}

fn take(bench: &Bench) -> Created {
    bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap()
}

/// Writes the files of a checkpoint into a folder.
fn restore_elsewhere(bench: &Bench, checkpoint: &Checkpoint, to: &Path) {
    for listed in bench.manager.checkpoints().entries(checkpoint).unwrap() {
        if let Node::File(_) = listed.entry.node {
            let mut bytes = Vec::new();
            bench.manager.checkpoints().cat(checkpoint, &listed.path, &mut bytes).unwrap();
            fs::write(to.join(listed.path.to_string()), bytes).unwrap();
        }
    }
}

fn number(connection: &Connection, sql: &str) -> u64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn integrity(connection: &Connection) -> String {
    connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap_or_else(|error| error.to_string())
}

/// Error of a database that should hold all rows up to this one, if any.
fn what_is_wrong(path: &Path, committed: u64) -> Option<String> {
    let connection = Connection::open(path).unwrap();
    let integrity = integrity(&connection);
    if integrity != "ok" {
        return Some(integrity);
    }
    let (a, b) = (number(&connection, "SELECT max(id) FROM a"), number(&connection, "SELECT max(id) FROM b"));
    let rows = number(&connection, "SELECT count(*) FROM a") == number(&connection, "SELECT count(*) FROM b");
    let whole = number(&connection, "SELECT max(id) - min(id) + 1 - count(*) FROM a") == 0;
    (a < committed || a != b || !rows || !whole)
        .then(|| format!("{a} and {b} of {committed}, {rows} {whole}"))
}

fn paths(paths: &[RelPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

fn left_out(coverage: &Coverage) -> Vec<(String, Why)> {
    coverage.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.why)).collect()
}

fn is_full() -> bool {
    std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full")
}

#[test]
fn a_database_that_a_program_writes_to_is_captured_whole() {
    let rounds = if is_full() { 125 } else { 8 };
    let (mut captures, mut unsettled) = (0, Vec::new());
    for mode in ["wal", "delete", "truncate", "persist"] {
        for speed in ["fast", "slow"] {
            let policy = Policy { keep_last: 1, keep_within: Span::ZERO, thin_daily_for: Span::ZERO };
            let bench = Bench::with(Settings { retention: Some(policy), ..with_helper() });
            let noted = scratch();
            let writer =
                Writer::start(&bench.path("data"), &noted.path().join("noted"), &format!("{speed} {mode}"));
            for round in 0..rounds {
                writer.wait_for_more();
                let committed = writer.committed();
                let created = take(&bench);
                let elsewhere = scratch();
                restore_elsewhere(&bench, &created.checkpoint, elsewhere.path());
                captures += 1;
                if !created.coverage.unsettled.is_empty() {
                    unsettled.extend(created.checkpoint.warnings);
                    continue;
                }
                let wrong = what_is_wrong(&elsewhere.path().join("data"), committed);
                assert_eq!(wrong, None, "{mode}, {speed}, round {round}: {:?}", created.coverage);
            }
        }
    }
    eprintln!("{captures} captures of databases, none damaged, reported as unsettled: {unsettled:?}");
    // On a busy machine a lock may time out. The full proof needs an idle one.
    let unsettled_max = if is_full() { 0 } else { captures / 2 };
    assert!(unsettled.len() <= unsettled_max, "{unsettled:?}");
}

#[test]
fn what_sqlite_keeps_beside_an_open_database_is_left_out_and_listed() {
    let bench = Bench::new();
    let noted = scratch();
    let mut writer = Writer::start(&bench.path("odd name"), &noted.path().join("noted"), "obey wal");
    assert_eq!(writer.run("CREATE TABLE t (x); INSERT INTO t VALUES (1)"), "done");
    let created = take(&bench);
    assert_eq!(left_out(&created.coverage), [("odd name-shm".to_owned(), Why::DatabaseSidecar)]);
    let names: Vec<_> = bench
        .manager
        .checkpoints()
        .entries(&created.checkpoint)
        .unwrap()
        .iter()
        .map(|it| it.path.to_string())
        .collect();
    assert_eq!(names, ["odd name", "odd name-wal"]);
    assert!(created.checkpoint.warnings.is_empty(), "{:?}", created.checkpoint.warnings);
    writer.end();
    let created = take(&bench);
    assert_eq!(left_out(&created.coverage), []);

    let mut writer = Writer::start(&bench.path("odd name"), &noted.path().join("noted"), "obey delete");
    assert_eq!(writer.run("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)"), "done");
    let created = take(&bench);
    assert_eq!(left_out(&created.coverage), [("odd name-journal".to_owned(), Why::DatabaseSidecar)]);
    assert_eq!(created.coverage.unsettled, []);
}

#[test]
fn files_that_only_have_such_names_are_ordinary_files() {
    let bench = Bench::new();
    for name in ["notes", "notes-wal", "notes-journal", "notes-shm", "alone-wal", "empty", "empty-journal"] {
        bench.write(name, if name.starts_with("empty") { "" } else { name });
    }
    let created = take(&bench);
    assert_eq!((left_out(&created.coverage), created.checkpoint.files.count), (Vec::new(), 7));
    let before = bench.image();
    bench.write("notes-journal", "changed");
    bench.write("alone-shm", "new");
    fs::remove_file(bench.path("notes-wal")).unwrap();
    bench.rollback(created.checkpoint.id);
    crate::bench::assert_same(&bench.image(), &before);
}

#[test]
fn a_rule_for_the_log_alone_does_not_tear_a_database_and_one_for_the_database_takes_the_log_with_it() {
    let bench = Bench::new();
    let noted = scratch();
    bench.write(".safepointignore", "*.db-wal\n*.left");
    let mut kept = Writer::start(&bench.path("kept.db"), &noted.path().join("1"), "obey wal");
    let mut left = Writer::start(&bench.path("out.left"), &noted.path().join("2"), "obey wal");
    for writer in [&mut kept, &mut left] {
        assert_eq!(writer.run("CREATE TABLE t (x); INSERT INTO t VALUES (1)"), "done");
    }
    let created = take(&bench);
    let names: Vec<_> = bench
        .manager
        .checkpoints()
        .entries(&created.checkpoint)
        .unwrap()
        .iter()
        .map(|it| it.path.to_string())
        .collect();
    assert_eq!(names, [".safepointignore", "kept.db", "kept.db-wal"]);
    let ignored = ["out.left", "out.left-shm", "out.left-wal"].map(|name| (name.to_owned(), Why::Ignored));
    let mut expected = vec![("kept.db-shm".to_owned(), Why::DatabaseSidecar)];
    expected.extend(ignored);
    assert_eq!(left_out(&created.coverage), expected);
}

#[test]
fn a_database_that_cannot_be_locked_is_unsettled() {
    let bench = Bench::new();
    let noted = scratch();
    for (name, mode) in [("a", "wal"), ("b", "delete")] {
        let mut writer = Writer::start(&bench.path(name), &noted.path().join(name), &format!("obey {mode}"));
        let exclusive = "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE t (x); INSERT INTO t VALUES (1)";
        assert_eq!(writer.run(exclusive), "done");
        let created = take(&bench);
        assert!(paths(&created.coverage.unsettled).contains(&name.to_owned()), "{:?}", created.coverage);
        assert!(!created.checkpoint.warnings.is_empty());
        writer.end();
        assert_eq!(take(&bench).coverage.unsettled, []);
    }
}

#[test]
fn a_journal_whose_writer_died_is_captured_with_its_database() {
    let bench = Bench::new();
    let noted = scratch();
    let path = bench.path("data");
    let mut writer = Writer::start(&path, &noted.path().join("noted"), "obey delete");
    assert_eq!(
        writer.run("CREATE TABLE a (id INTEGER PRIMARY KEY, text BLOB); CREATE TABLE b (id, text)"),
        "done"
    );
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO a SELECT i, randomblob(200) FROM n; INSERT INTO b SELECT * FROM a";
    assert_eq!(writer.run(&rows.replace('\n', " ")), "done");
    // With so little memory, SQLite writes into the database before the transaction ends.
    let torn = "PRAGMA cache_size = 5; BEGIN; UPDATE a SET text = randomblob(200); UPDATE b SET text = 'x'";
    assert_eq!(writer.run(torn), "done");
    drop(writer);
    assert!(bench.path("data-journal").exists());
    let created = take(&bench);
    assert_eq!((left_out(&created.coverage), created.coverage.unsettled.len()), (Vec::new(), 0));
    let elsewhere = scratch();
    restore_elsewhere(&bench, &created.checkpoint, elsewhere.path());
    let torn_rows = |path: &Path| {
        let sql = "SELECT count(*) FROM a JOIN b USING (id) WHERE a.text IS NOT b.text";
        number(&Connection::open(path).unwrap(), sql)
    };
    fs::copy(&path, elsewhere.path().join("alone")).unwrap();
    assert_ne!(torn_rows(&elsewhere.path().join("alone")), 0, "without its journal it is torn");
    assert_eq!(torn_rows(&elsewhere.path().join("data")), 0);
    assert_eq!(what_is_wrong(&elsewhere.path().join("data"), 2000), None);

    // A program plays the journal back; the rollback restores both files, and the undo neither.
    assert_eq!(what_is_wrong(&path, 2000), None);
    assert!(!bench.path("data-journal").exists());
    bench.rollback(created.checkpoint.id);
    assert!(bench.path("data-journal").exists());
    assert_eq!((what_is_wrong(&path, 2000), torn_rows(&path)), (None, 0));
    bench.rollback(created.checkpoint.id);
    bench.undo();
    assert!(!bench.path("data-journal").exists());
    assert_eq!(what_is_wrong(&path, 2000), None);
}

/// Starts a process whose rows are only in the database's log.
fn with_rows(bench: &Bench, noted: &Path, rows: u64) -> Writer {
    let mut writer = Writer::start(&bench.path("data"), noted, "obey wal");
    let tables = "PRAGMA wal_autocheckpoint = 0; CREATE TABLE a (id INTEGER PRIMARY KEY, text); CREATE TABLE b (id, text)";
    assert_eq!(writer.run(tables), "done");
    add_rows(&mut writer, rows);
    writer
}

fn add_rows(writer: &mut Writer, rows: u64) {
    for _ in 0..rows {
        let row = "BEGIN; INSERT INTO a (text) VALUES (randomblob(500));
            INSERT INTO b SELECT * FROM a WHERE id = last_insert_rowid(); COMMIT";
        assert_eq!(writer.run(&row.replace('\n', " ")), "done");
    }
}

#[test]
fn no_file_beside_a_replaced_database_is_of_another_moment() {
    // Log, index and journal of later states, left by a killed program.
    for last in ["log", "moved", "journal", "nothing"] {
        let bench = Bench::new();
        let noted = scratch();
        let noted = noted.path().join("noted");
        let mut writer = with_rows(&bench, &noted, 10);
        let then = take(&bench).checkpoint;
        add_rows(&mut writer, 10);
        match last {
            "log" => {}
            "moved" => {
                assert_eq!(writer.run("PRAGMA wal_checkpoint(TRUNCATE)"), "done");
                add_rows(&mut writer, 5);
            }
            "journal" => {
                assert_eq!(writer.run("PRAGMA journal_mode = DELETE"), "done");
                let torn = "PRAGMA cache_size = 2; BEGIN; UPDATE a SET text = randomblob(9000); UPDATE b SET text = 'x'";
                assert_eq!(writer.run(torn), "done");
            }
            _ => writer.run("PRAGMA journal_mode = DELETE").clear(),
        }
        drop(writer);
        let later = bench.image();
        bench.rollback(then.id);
        assert!(!bench.path("data-shm").exists() && !bench.path("data-journal").exists(), "{last}");
        assert_eq!(what_is_wrong(&bench.path("data"), 10), None, "{last}");
        let rows = number(&Connection::open(bench.path("data")).unwrap(), "SELECT count(*) FROM a");
        assert_eq!(rows, 10, "{last}");
        bench.undo();
        crate::bench::assert_same(&bench.image(), &later);
        assert_eq!(what_is_wrong(&bench.path("data"), 20), None, "{last}");
    }
}

#[test]
fn a_database_is_rolled_back_with_its_log_also_where_only_one_of_them_is_named() {
    for named in ["data", "data-wal"] {
        let bench = Bench::new();
        let noted = scratch();
        let mut writer = with_rows(&bench, &noted.path().join("noted"), 10);
        let then = take(&bench).checkpoint;
        assert_eq!(writer.run("PRAGMA wal_checkpoint(TRUNCATE)"), "done");
        add_rows(&mut writer, 10);
        drop(writer);
        bench.write("other", "stays");
        bench.restore_paths(then.id, &[named]);
        assert_eq!(bench.read("other"), "stays");
        assert_eq!(what_is_wrong(&bench.path("data"), 10), None, "{named}");
        let rows = number(&Connection::open(bench.path("data")).unwrap(), "SELECT count(*) FROM a");
        assert_eq!(rows, 10, "{named}");
    }
}

#[test]
fn a_rollback_under_an_open_connection_waits_and_loses_nothing() {
    for mode in ["wal", "delete"] {
        let bench = Bench::new();
        let noted = scratch();
        let mut writer =
            Writer::start(&bench.path("data"), &noted.path().join("noted"), &format!("obey {mode}"));
        assert_eq!(writer.run("CREATE TABLE t (x); INSERT INTO t VALUES (1)"), "done");
        let then = take(&bench).checkpoint;
        assert_eq!(writer.run("INSERT INTO t VALUES (2)"), "done");
        // The writer is idle with the database open.
        let restored =
            bench.manager.rollback(&bench.workspace, then.id, &RollbackOptions::default(), &Silent).unwrap();
        assert!(paths(&restored.waiting).contains(&"data".to_owned()), "{mode}: {:?}", restored.waiting);
        // Later commits of the writer into its open database do not appear in the restored one.
        let answer = writer.run("INSERT INTO t VALUES (3); PRAGMA wal_checkpoint(TRUNCATE)");
        // With a journal, SQLite notices the replaced file; with a log, it continues in the old one.
        assert_eq!(answer == "done", mode == "wal", "{answer}");
        {
            let connection = Connection::open(bench.path("data")).unwrap();
            assert_eq!(
                (integrity(&connection), number(&connection, "SELECT max(x) FROM t")),
                ("ok".to_owned(), 1)
            );
        }
        writer.end();
        let rescued = bench.settle().rescued;
        assert_eq!(rescued.is_empty(), mode == "delete", "{mode}: {rescued:?}");
    }
}

#[test]
fn a_rollback_that_changes_nothing_of_a_database_leaves_its_files_alone() {
    let bench = Bench::new();
    let noted = scratch();
    bench.write("text", "then");
    let mut writer = Writer::start(&bench.path("data"), &noted.path().join("noted"), "obey wal");
    assert_eq!(writer.run("CREATE TABLE t (x); PRAGMA wal_checkpoint(TRUNCATE)"), "done");
    writer.end();
    let then = take(&bench).checkpoint;
    // Open again, with an empty log, an index, and no writes.
    let mut writer = Writer::start(&bench.path("data"), &noted.path().join("noted"), "obey wal");
    assert_eq!(writer.run("SELECT 1 FROM t"), "done");
    assert!(bench.path("data-shm").exists());
    bench.write("text", "now");
    let restored = bench.rollback(then.id);
    assert_eq!((bench.read("text"), restored.waiting.len()), ("then".to_owned(), 0));
    assert!(bench.path("data-shm").exists());
    assert_eq!(writer.run("INSERT INTO t VALUES (1)"), "done");
    writer.end();
    let connection = Connection::open(bench.path("data")).unwrap();
    assert_eq!((integrity(&connection), number(&connection, "SELECT count(*) FROM t")), ("ok".to_owned(), 1));
}

#[test]
#[ignore = "what other tests start"]
fn the_program_that_copies() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let [.., from, to] = arguments.as_slice() else { panic!("two paths") };
    if to.as_encoded_bytes().ends_with(b"/copy") {
        safepoint::back_up_database(Path::new(from), Path::new(to)).unwrap();
    }
}

/// Returns settings that copy databases with this binary. Its test runner takes other arguments as filters.
fn with_helper() -> Settings {
    let program = std::env::current_exe().unwrap().into_os_string();
    let arguments = ["--ignored", "--exact", "databases::the_program_that_copies"].map(OsString::from);
    Settings { database_helper: std::iter::once(program).chain(arguments).collect(), ..Settings::default() }
}

#[test]
fn a_database_that_takes_too_long_is_copied_by_sqlite() {
    for mode in ["wal", "delete"] {
        let bench = Bench::with(Settings { database_hold: Duration::ZERO, ..with_helper() });
        let noted = scratch();
        let writer = Writer::start(&bench.path("data"), &noted.path().join("noted"), &format!("slow {mode}"));
        writer.wait_for_more();
        let committed = writer.committed();
        let created = take(&bench);
        assert_eq!(created.coverage.unsettled, [], "{mode}");
        let elsewhere = scratch();
        restore_elsewhere(&bench, &created.checkpoint, elsewhere.path());
        assert!(!elsewhere.path().join("data-wal").exists(), "the copy includes the log");
        assert_eq!(what_is_wrong(&elsewhere.path().join("data"), committed), None, "{mode}");
        let log = ("data-wal".to_owned(), Why::DatabaseSidecar);
        assert_eq!(left_out(&created.coverage).contains(&log), mode == "wal");
        assert!(fs::read_dir(bench.home().join("scratch")).unwrap().next().is_none(), "leftovers");
        // Rolls back although a later log exists; the capture before that is exact.
        writer.wait_for_more();
        drop(writer);
        let later = bench.image();
        bench.rollback(created.checkpoint.id);
        assert_eq!(what_is_wrong(&bench.path("data"), committed), None, "{mode}");
        let connection = Connection::open(bench.path("data")).unwrap();
        let now: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(now, mode);
        drop(connection);
        bench.undo();
        crate::bench::assert_same(&bench.image(), &later);
    }
}

#[test]
fn a_database_that_takes_too_long_and_that_no_program_copies_is_unsettled() {
    let bench = Bench::with(Settings { database_hold: Duration::ZERO, ..Settings::default() });
    let noted = scratch();
    let mut writer = with_rows(&bench, &noted.path().join("noted"), 3);
    assert_eq!(paths(&take(&bench).coverage.unsettled), ["data", "data-wal"]);
    assert_eq!(writer.run("SELECT 1"), "done");
}

#[test]
fn a_large_database_is_copied_while_it_is_open_and_read_in_place_while_it_is_not() {
    let bench = Bench::new();
    let noted = scratch();
    {
        let connection = open(&bench.path("data"), "wal");
        connection.execute_batch("CREATE TABLE blobs (text BLOB)").unwrap();
        for seed in 0..20 {
            connection.execute("INSERT INTO blobs VALUES (?1)", [noise(seed, 1 << 20)]).unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(100));
    let created = take(&bench);
    assert_eq!((left_out(&created.coverage), created.coverage.unsettled.len()), (Vec::new(), 0));
    let writer = Writer::start(&bench.path("data"), &noted.path().join("noted"), "slow wal");
    writer.wait_for_more();
    let committed = writer.committed();
    let created = take(&bench);
    // A machine too busy to copy it in time reports it.
    if created.coverage.unsettled.is_empty() {
        let elsewhere = scratch();
        restore_elsewhere(&bench, &created.checkpoint, elsewhere.path());
        assert_eq!(what_is_wrong(&elsewhere.path().join("data"), committed), None);
    }
}

#[test]
fn a_log_that_was_moved_into_its_database_is_not_captured_with_the_old_one() {
    let bench = Bench::new();
    let noted = scratch();
    let mut writer = with_rows(&bench, &noted.path().join("noted"), 5);
    add_rows(&mut writer, 1);
    drop(writer);
    std::thread::sleep(Duration::from_millis(100));
    let first = take(&bench).checkpoint;
    std::thread::sleep(Duration::from_millis(100));
    let again = take(&bench);
    assert_eq!(again.checkpoint.files.modified + again.checkpoint.files.added, 0);
    assert_eq!(left_out(&again.coverage), [("data-shm".to_owned(), Why::DatabaseSidecar)]);
    // The next program plays the log back into the database and deletes it.
    assert_eq!(what_is_wrong(&bench.path("data"), 6), None);
    assert!(!bench.path("data-wal").exists());
    let moved = take(&bench).checkpoint;
    for (checkpoint, log) in [(&first, true), (&moved, false)] {
        let elsewhere = scratch();
        restore_elsewhere(&bench, checkpoint, elsewhere.path());
        assert_eq!(elsewhere.path().join("data-wal").exists(), log);
        assert_eq!(what_is_wrong(&elsewhere.path().join("data"), 6), None);
    }
}

/// Creates a file when a rollback starts to stage: after the planning.
#[derive(Debug)]
struct MakesFile(PathBuf);

impl safepoint::Progress for MakesFile {
    fn begin(&self, activity: Activity, _: Option<u64>) {
        if activity == Activity::Staging {
            fs::write(&self.0, "a log that came up").unwrap();
        }
    }

    fn advance(&self, _: u64, _: u64) {}

    fn end(&self) {}
}

#[test]
fn a_log_that_a_program_makes_during_the_rollback_is_displaced_and_kept() {
    let bench = Bench::new();
    for text in ["one", "two"] {
        drop(fs::remove_file(bench.path("data")));
        open(&bench.path("data"), "delete").execute_batch(&format!("CREATE TABLE {text} (x)")).unwrap();
        if text == "one" {
            bench.create();
        }
    }
    let then = bench.manager.checkpoints().list(&Filter::default()).unwrap()[0].id;
    let progress = MakesFile(bench.path("data-wal"));
    let restored =
        bench.manager.rollback(&bench.workspace, then, &RollbackOptions::default(), &progress).unwrap();
    assert!(!bench.path("data-wal").exists());
    assert_eq!(restored.record().rescued.len() + bench.settle().rescued.len(), 1, "{restored:?}");
    let connection = Connection::open(bench.path("data")).unwrap();
    assert_eq!(
        (integrity(&connection), number(&connection, "SELECT count(*) FROM one")),
        ("ok".to_owned(), 0)
    );
}

#[test]
fn a_copy_in_which_candidates_are_tried_holds_live_databases_whole() {
    for mode in ["wal", "delete"] {
        let (bench, outside) = (Bench::new(), scratch());
        bench.write(".safepointignore", "data.db*\n");
        bench.create();
        let database = bench.path("data.db");
        let writer = Writer::start(&database, &outside.path().join("noted"), &format!("fast {mode}"));
        for round in 0..8 {
            writer.wait_for_more();
            let (committed, seen) = (writer.committed(), outside.path().join(format!("seen{round}")));
            fs::create_dir(&seen).unwrap();
            let until = Until {
                // The index of another process is not valid here.
                command: format!("rm -f data.db-shm; cp data.db* {}", seen.display()),
                from: None,
                search: Search::Stepwise,
                place: TryIn::Copy,
                plan: None,
            };
            let options = RollbackOptions::default();
            let found = unwatched(|watch| {
                bench.manager.rollback_until(&bench.workspace, &until, &options, watch, &Silent).unwrap()
            });
            assert!(found.current.unwrap().is_passed());
            assert_eq!(what_is_wrong(&seen.join("data.db"), committed), None, "{mode} {round}");
        }
    }
}
