//! World of a test: a database and a place for bytes of its own, on servers that all tests share.

use safepoint_remote::{
    PostgresRecords, ProjectName, RecordsUrl, Remote, RemoteEnvironment, RemoteOptions, Seal,
};
use safepoint_testkit::servers::{ACCESS_KEY, Postgres, S3Server, SECRET_KEY};
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

const TEMPLATE: &str = "safepoint_template";
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Prints what is left out, once, where the test runner does not capture it.
pub(crate) fn left_out(what: &'static str) {
    static SAID: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    if SAID.lock().unwrap().get_or_insert_default().insert(what) {
        let line =
            format!("\nLEFT OUT: tests with {what}, which is not installed; run: .ci/fleet --install\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

pub(crate) fn environment() -> RemoteEnvironment {
    let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
    RemoteEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())), None)
}

/// PostgreSQL server of all tests.
pub(crate) fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let postgres = Postgres::start(&["fsync=off", "shared_buffers=32MB"]).unwrap()?;
        postgres.sql("postgres", &format!("CREATE DATABASE {TEMPLATE}")).unwrap();
        let url = postgres.url("postgres", TEMPLATE).parse().unwrap();
        let records =
            PostgresRecords::open(&url, "shop".parse().unwrap(), &RemoteEnvironment::default()).unwrap();
        assert_eq!(records.migrate().unwrap(), 3);
        records.create_project().unwrap();
        Some(postgres)
    });
    if server.is_none() {
        left_out("PostgreSQL");
    }
    server.as_ref()
}

pub(crate) fn seaweed() -> Option<&'static S3Server> {
    static SERVER: OnceLock<Option<S3Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| S3Server::seaweed().unwrap()).as_ref();
    if server.is_none() {
        left_out("SeaweedFS");
    }
    server
}

pub(crate) fn rclone() -> Option<&'static S3Server> {
    static SERVER: OnceLock<Option<S3Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| S3Server::rclone().unwrap()).as_ref();
    if server.is_none() {
        left_out("rclone");
    }
    server
}

/// Kind of the place for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Folder,
    Seaweed,
    Rclone,
}

impl Place {
    pub(crate) const ALL: [Place; 3] = [Place::Folder, Place::Seaweed, Place::Rclone];
}

pub(crate) struct World {
    pub(crate) postgres: &'static Postgres,
    pub(crate) database: String,
    pub(crate) project: String,
    pub(crate) bytes: String,
    pub(crate) seal: Option<Seal>,
    _folder: TempDir,
    /// Patience with the records, in seconds.
    pub(crate) patience: u64,
}

/// Returns the name of something of one test.
pub(crate) fn unique() -> String {
    format!("t{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Creates an initialized database, or an empty one.
pub(crate) fn database(postgres: &Postgres, template: Option<&str>) -> String {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let name = unique();
    let template = template.unwrap_or("template0");
    postgres.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}")).unwrap();
    name
}

impl World {
    pub(crate) fn new(place: Place) -> Option<Self> {
        let postgres = postgres()?;
        let folder = crate::machine::folder();
        let bytes = match place {
            Place::Folder => format!("file://{}/bytes", folder.path().display()),
            Place::Seaweed => seaweed()?.url(&unique()),
            Place::Rclone => rclone()?.url(&unique()),
        };
        let database = database(postgres, Some(TEMPLATE));
        let project = "shop".to_owned();
        Some(Self { postgres, database, project, bytes, seal: None, _folder: folder, patience: 20 })
    }

    pub(crate) fn project(&self) -> ProjectName {
        self.project.parse().unwrap()
    }

    pub(crate) fn records_url(&self) -> RecordsUrl {
        self.postgres.url("postgres", &self.database).parse().unwrap()
    }

    pub(crate) fn remote(&self) -> Remote {
        self.remote_as(&self.records_url())
    }

    pub(crate) fn remote_as(&self, records: &RecordsUrl) -> Remote {
        let mut options = RemoteOptions::new(self.project(), records.clone(), self.bytes.parse().unwrap());
        options.seal = self.seal.clone();
        options.patience = std::time::Duration::from_secs(self.patience);
        Remote::open(&options, &environment()).unwrap()
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.postgres.sql(&self.database, sql).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ =
            self.postgres.sql("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database));
    }
}
