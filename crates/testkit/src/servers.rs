//! Real servers for tests: PostgreSQL, SeaweedFS, and rclone as an S3 server that ignores conditions.
//!
//! Each runs in a temporary folder and ends with the process of the test. A server whose program is not
//! installed is `None`; `.ci/fleet` installs all of them. Programs are searched in the folder
//! `SAFEPOINT_FLEET_BIN`, in `target/fleet/bin` of the repository, and in `PATH`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Access key of the S3 servers.
pub const ACCESS_KEY: &str = "testkey";
/// Secret key of the S3 servers.
pub const SECRET_KEY: &str = "hunter2-of-tests";
/// Bucket of the S3 servers.
pub const BUCKET: &str = "fleet";

const START_LIMIT: Duration = Duration::from_secs(90);

/// Returns the path of a program, if it is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let mut folders: Vec<PathBuf> =
        std::env::var_os("SAFEPOINT_FLEET_BIN").map(PathBuf::from).into_iter().collect();
    folders.push(repository.join("target/fleet/bin"));
    // Debian keeps the programs of the server outside of PATH. First, as there may be links to some of them.
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders.extend(std::env::split_paths(&std::env::var_os("PATH")?));
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Running server; it is killed when dropped, and when this process ends.
pub struct Server {
    child: Option<Child>,
    /// Folder with the data and the log.
    pub folder: PathBuf,
    signal: &'static str,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill(self.signal);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    /// Starts a program from a thread that never ends: the kernel kills the child with its parent thread.
    fn start(mut command: Command, folder: PathBuf, signal: &'static str) -> io::Result<Self> {
        let log = fs::File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let (send, receive) = mpsc::channel();
        std::thread::Builder::new().name("server".to_owned()).spawn(move || {
            let _ = send.send(command.spawn());
            loop {
                std::thread::park();
            }
        })?;
        let child = receive.recv().map_err(io::Error::other)??;
        Ok(Self { child: Some(child), folder, signal })
    }

    /// Sends a signal, such as `KILL`, and waits for the end.
    pub fn kill(&mut self, signal: &str) {
        if let Some(mut child) = self.child.take() {
            let _ = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }

    /// Id of the process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns what the server wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn wait_until(&mut self, ready: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let began = Instant::now();
        while !ready() {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || began.elapsed() > START_LIMIT {
                return Err(io::Error::other(format!("the server did not start:\n{}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn temporary(name: &str) -> io::Result<PathBuf> {
    let root = std::env::temp_dir();
    remove_left(&root);
    for number in 0.. {
        let folder = root.join(format!("safepoint-{name}-{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no free name"))
}

/// Removes folders of processes that were killed.
fn remove_left(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = ["postgres", "pgbouncer", "weed", "rclone"]
            .iter()
            .any(|kind| name.starts_with(&format!("safepoint-{kind}-")));
        let pid = name.rsplit('-').nth(1).and_then(|pid| pid.parse::<u32>().ok());
        if let Some(pid) = pid.filter(|_| is_ours)
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns a free port whose neighbour 10,000 above is free, too: SeaweedFS derives it.
fn free_port() -> io::Result<u16> {
    for _ in 0..200 {
        let mut random = [0; 2];
        fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let port = 20_000 + u16::from_le_bytes(random) % 10_000;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10_000) {
            return Ok(port);
        }
    }
    Err(io::Error::other("no free port"))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// PostgreSQL server on a Unix socket; the superuser is `postgres`, and every local role may log in.
pub struct Postgres {
    /// Process.
    pub server: Server,
    /// Port, which is part of the name of the socket.
    pub port: u16,
    bin: PathBuf,
    data: PathBuf,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a server with these settings, such as `fsync=on`.
    ///
    /// # Errors
    /// When the installed program does not start.
    pub fn start(settings: &[&str]) -> io::Result<Option<Self>> {
        let (Some(postgres), Some(setpriv)) = (program("postgres"), program("setpriv")) else {
            return Ok(None);
        };
        let bin = postgres.parent().unwrap_or(Path::new("/")).to_owned();
        let folder = temporary("postgres")?;
        let data = folder.join("data");
        fs::create_dir(&data)?;
        if is_root() {
            let ids = user_ids("postgres")?;
            for path in [&folder, &data] {
                chown(path, Some(ids.0), Some(ids.1))?;
            }
        }
        let mut init = as_postgres(&setpriv, &bin.join("initdb"));
        init.args([
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ])
        .arg(&data);
        let output = init.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = Server { child: None, folder, signal: "INT" };
        let mut postgres = Self { server, port: 5432, bin, data, settings };
        postgres.restart()?;
        Ok(Some(postgres))
    }

    /// Starts the server again, after [`Server::kill`].
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match self.restart_once() {
                // The children of a killed server end a moment later, and hold its shared memory until then.
                Err(error)
                    if error.to_string().contains("is still in use") && began.elapsed() < START_LIMIT =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                ended => return ended,
            }
        }
    }

    fn restart_once(&mut self) -> io::Result<()> {
        let Some(setpriv) = program("setpriv") else { return Err(io::Error::other("setpriv is missing")) };
        let mut command = as_postgres(&setpriv, &self.bin.join("postgres"));
        let socket = &self.server.folder;
        command.arg("-D").arg(&self.data).args(["-c", "listen_addresses=", "-c", "max_connections=200"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", socket.display()));
        command.arg("-c").arg(format!("port={}", self.port));
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let folder = self.server.folder.clone();
        let started = Server::start(command, folder.clone(), "INT")?;
        // The old value must not remove the folder.
        self.server.child = None;
        let old = std::mem::replace(&mut self.server, started);
        std::mem::forget(old);
        let path = folder.join(format!(".s.PGSQL.{}", self.port));
        let (bin, port) = (self.bin.clone(), self.port);
        self.server.wait_until(&mut || {
            path.exists()
                && Command::new(bin.join("pg_isready"))
                    .args(["--quiet", "--host"])
                    .arg(&folder)
                    .args(["--port", &port.to_string()])
                    .status()
                    .is_ok_and(|status| status.success())
        })
    }

    /// Folder with the socket.
    pub fn socket(&self) -> &Path {
        &self.server.folder
    }

    /// Address of a database for a role.
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres:///{database}?user={role}&host={}&port={}", self.socket().display(), self.port)
    }

    /// Runs SQL as superuser, and returns the unaligned output.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut command = Command::new(self.bin.join("psql"));
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-h",
        ]);
        command.arg(self.socket()).args(["-p", &self.port.to_string(), "-d", database, "-f", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(sql.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// Writes a backup of a database to a file, or restores it into an empty database.
    ///
    /// # Errors
    /// When the program fails.
    pub fn dump(&self, database: &str) -> io::Result<String> {
        let mut command = Command::new(self.bin.join("pg_dump"));
        command.args(["-U", "postgres", "-h"]).arg(self.socket()).args([
            "-p",
            &self.port.to_string(),
            database,
        ]);
        let output = command.output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}

fn user_ids(name: &str) -> io::Result<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd")?;
    let fields =
        text.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name);
    let ids = fields.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    ids.ok_or_else(|| io::Error::other(format!("the user {name} is missing")))
}

/// Returns a command that does not run as root: PostgreSQL refuses to.
fn as_postgres(setpriv: &Path, program: &Path) -> Command {
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "INT"]);
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg("--").arg(program).current_dir("/");
    command
}

/// Pooler in transaction mode, with one connection to the server for all clients of a database.
pub struct PgBouncer {
    /// Process.
    pub server: Server,
    /// Port on 127.0.0.1.
    pub port: u16,
}

impl PgBouncer {
    /// Starts a pooler before a server.
    ///
    /// # Errors
    /// When the installed program does not start.
    pub fn start(postgres: &Postgres) -> io::Result<Option<Self>> {
        Self::start_with(postgres, 1, 100)
    }

    /// Starts a pooler with so many connections to the server, for so many clients.
    ///
    /// # Errors
    /// When the installed program does not start.
    pub fn start_with(postgres: &Postgres, pool: u32, clients: u32) -> io::Result<Option<Self>> {
        let setpriv = program("setpriv");
        let pooler = program("pgbouncer")
            .or_else(|| Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|path| path.is_file()));
        let (Some(pooler), Some(setpriv)) = (pooler, setpriv) else { return Ok(None) };
        let folder = temporary("pgbouncer")?;
        let port = free_port()?;
        // Every client is the superuser of the tests.
        let settings = format!(
            "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {pool}\nmax_client_conn = {clients}\n",
            postgres.socket().display(),
            postgres.port,
        );
        let path = folder.join("pgbouncer.ini");
        fs::write(&path, settings)?;
        if is_root() {
            let ids = user_ids("postgres")?;
            for path in [&folder, &path] {
                chown(path, Some(ids.0), Some(ids.1))?;
            }
        }
        let mut command = as_postgres(&setpriv, &pooler);
        command.arg("--quiet").arg(&path);
        let mut server = Server::start(command, folder, "INT")?;
        server.wait_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Some(Self { server, port }))
    }
}

/// Server with the interface of S3 and one bucket.
pub struct S3Server {
    /// Process.
    pub server: Server,
    /// Name for messages.
    pub name: &'static str,
    /// Port on 127.0.0.1.
    pub port: u16,
}

impl S3Server {
    /// Address of a prefix in the bucket; `port` is that of the server, or of a proxy before it.
    pub fn url_at(port: u16, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    }

    /// Address of a prefix in the bucket.
    pub fn url(&self, prefix: &str) -> String {
        Self::url_at(self.port, prefix)
    }

    /// Starts SeaweedFS, which obeys conditions.
    ///
    /// # Errors
    /// When the installed program does not start.
    pub fn seaweed() -> io::Result<Option<Self>> {
        let (Some(weed), Some(setpriv)) = (program("weed"), program("setpriv")) else { return Ok(None) };
        let folder = temporary("weed")?;
        let identity = format!(
            r#"{{"identities":[{{"name":"test","credentials":[{{"accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
        );
        fs::write(folder.join("s3.json"), identity)?;
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?, free_port()?, free_port()?];
        let [master, volume, filer, s3, iceberg, lance] = ports;
        let mut command = Command::new(setpriv);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(weed)
            .arg("server")
            .current_dir(&folder)
            .env("GOMAXPROCS", "2");
        command.args([
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-volume.max=100",
            "-master.volumeSizeLimitMB=64",
            "-filer=true",
            "-s3=true",
        ]);
        for (name, port) in [
            ("master.port", master),
            ("volume.port", volume),
            ("filer.port", filer),
            ("s3.port", s3),
            ("s3.port.iceberg", iceberg),
            ("s3.port.lance", lance),
        ] {
            command.arg(format!("-{name}={port}"));
        }
        for (name, file) in [
            ("dir", "."),
            ("s3.config", "s3.json"),
            ("s3.localSocket", "s3.sock"),
            ("filer.localSocket", "filer.sock"),
        ] {
            command.arg(format!("-{name}={}", folder.join(file).display()));
        }
        let mut server = Server::start(command, folder, "KILL")?;
        server.wait_until(&mut || request(s3, "GET", "/").is_ok())?;
        // A folder of the filer below /buckets is a bucket.
        server.wait_until(&mut || {
            request(filer, "POST", &format!("/buckets/{BUCKET}/")).is_ok_and(|status| status < 300)
        })?;
        server.wait_until(&mut || {
            request(s3, "GET", &format!("/{BUCKET}")).is_ok_and(|status| status == 403)
        })?;
        Ok(Some(Self { server, name: "SeaweedFS", port: s3 }))
    }

    /// Starts rclone, which ignores conditions.
    ///
    /// # Errors
    /// When the installed program does not start.
    pub fn rclone() -> io::Result<Option<Self>> {
        let (Some(rclone), Some(setpriv)) = (program("rclone"), program("setpriv")) else { return Ok(None) };
        let folder = temporary("rclone")?;
        let data = folder.join("data");
        fs::create_dir_all(data.join(BUCKET))?;
        let port = free_port()?;
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(rclone).args(["serve", "s3", "--auth-key"]);
        command
            .arg(format!("{ACCESS_KEY},{SECRET_KEY}"))
            .arg("--addr")
            .arg(format!("127.0.0.1:{port}"))
            .arg(&data);
        command.args(["--config", "/dev/null", "--vfs-cache-mode", "off"]).env("GOMAXPROCS", "2");
        let mut server = Server::start(command, folder, "KILL")?;
        server.wait_until(&mut || request(port, "GET", "/").is_ok())?;
        Ok(Some(Self { server, name: "rclone", port }))
    }
}

/// Sends a plain request, and returns the status.
fn request(port: u16, method: &str, path: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    String::from_utf8_lossy(&answer[9..]).parse().map_err(io::Error::other)
}
