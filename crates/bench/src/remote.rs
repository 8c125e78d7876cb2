//! Remote: first push, push of ten edits, and clone, beside restic, rustic and git on the same machine in one run.
//!
//! Safepoint and restic talk to the same SeaweedFS, Safepoint also to a PostgreSQL; git pushes to a bare repository in a folder.
//! A proxy counts the requests of one round that is not timed. Each figure is of whole processes.

use crate::args::Remote as Args;
use crate::edits::{append, choose};
use crate::failure::{Failure, Result, Tried};
use crate::generate::make_files;
use crate::image::Image;
use crate::machine::Machine;
use crate::measure::{Cmd, measure_all, settle};
use crate::numbers::{Series, bytes, seconds};
use crate::tools::own_safepoint;
use safepoint_testkit::copy_tree;
use safepoint_testkit::proxy::{Proxy, Upstream};
use safepoint_testkit::servers::{ACCESS_KEY, BUCKET, Postgres, S3Server, SECRET_KEY, program};
use serde::Serialize;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::TempDir;

/// Files of the generated tree.
const FILES: u64 = 2_000;
/// Edited files of a push.
const EDITS: usize = 10;

/// Servers, and the folders of all ways.
struct Ground {
    folder: TempDir,
    postgres: Postgres,
    s3: S3Server,
    /// Before PostgreSQL and before the object store; they count.
    proxies: [Proxy; 2],
}

/// Way to bring a tree to another machine and back.
struct Way {
    name: &'static str,
    program: PathBuf,
    /// True while requests are counted.
    counted: bool,
}

/// Figures of one way.
#[derive(Debug, Default, Serialize)]
struct Figures {
    name: &'static str,
    /// Local part of the first push: checkpoint or commit. restic has none.
    first_local: f64,
    first: f64,
    edits_local: Series,
    edits: Series,
    clone: f64,
    /// Requests of a push of ten edits, by kind.
    requests: Vec<String>,
}

/// Runs `remote`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let work = args.work.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let safepoint = args.safepoint.clone().map_or_else(own_safepoint, Ok)?;
    let ground = Ground::start(&work)?;
    let tree = ground.path("tree");
    match &args.tree {
        Some(from) => copy_tree(from, &tree).tried(|| format!("copying {}", from.display()))?,
        None => make_files(FILES, &tree, 1).map(drop)?,
    }
    let image = Image::read(&tree)?;
    let files = image.files();
    println!("{}", Machine::this(&work)?.words());
    println!("{} files, {}\n", files.len(), bytes(image.bytes()));
    let mut all = Vec::new();
    for name in ["safepoint", "restic", "rustic", "git"] {
        let given = args.programs.iter().find(|(tool, _)| tool == name).map(|(_, path)| path.clone());
        let found =
            if name == "safepoint" { Some(safepoint.clone()) } else { given.or_else(|| program(name)) };
        let Some(program) = found else {
            println!("{name} is not installed");
            continue;
        };
        all.push(Way { name, program, counted: false }.measure(&ground, &files, args.repeat)?);
    }
    let away = create_with_the_remote_away(&ground, &safepoint, args.repeat)?;
    print(&all, &away);
    if let Some(path) = &args.json {
        let text = json!({ "ways": all, "create": away }).to_string();
        fs::write(path, text).tried(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Ground {
    fn start(work: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("safepoint-bench-remote-").tempdir_in(work);
        let folder = folder.tried(|| format!("creating a folder in {}", work.display()))?;
        let missing = |what: &str| Failure::new(format!("{what} is not installed; run: .ci/fleet --install"));
        let postgres = Postgres::start(&["fsync=on"]).tried(|| "starting PostgreSQL".into())?;
        let postgres = postgres.ok_or_else(|| missing("PostgreSQL"))?;
        let s3 = S3Server::seaweed().tried(|| "starting SeaweedFS".into())?;
        let s3 = s3.ok_or_else(|| missing("SeaweedFS"))?;
        let socket = postgres.socket().join(format!(".s.PGSQL.{}", postgres.port));
        let start = |upstream| Proxy::start(upstream).tried(|| "starting a proxy".into());
        let proxies = [start(Upstream::Postgres(socket))?, start(Upstream::Http(s3.port))?];
        Ok(Self { folder, postgres, s3, proxies })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the requests since the last call: what they do, and how many there were.
    fn requests(&self) -> Vec<String> {
        let seen = self.proxies.iter().flat_map(Proxy::take_seen);
        seen.map(|request| request.verb).collect()
    }
}

impl Way {
    fn folder(&self, ground: &Ground, name: &str) -> PathBuf {
        ground.path(&format!("{}-{name}", self.name))
    }

    fn command(&self, ground: &Ground, place: &str, args: &[&str]) -> Cmd {
        let home = self.folder(ground, if place == "tree" { "home" } else { "home2" });
        let (s3, _) = self.ports(ground);
        let repository = match self.name {
            "rustic" => "opendal:s3".to_owned(),
            _ => format!("s3:http://127.0.0.1:{s3}/{BUCKET}/{}", self.name),
        };
        Cmd::new(&self.program, &self.folder(ground, place))
            .args(args)
            .env("HOME", &home)
            .env("SAFEPOINT_HOME", home.join("safepoint"))
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("RESTIC_REPOSITORY", repository)
            .env("RESTIC_PASSWORD", "bench")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
    }

    /// Ports of the object store and of PostgreSQL.
    fn ports(&self, ground: &Ground) -> (u16, u16) {
        let [sql, http] = &ground.proxies;
        (if self.counted { http.port } else { ground.s3.port }, sql.port)
    }

    /// Tells Safepoint about the remote, with or without the proxies.
    fn add(&self, ground: &Ground, place: &str) -> Result<()> {
        let (s3, sql) = self.ports(ground);
        let records = match self.counted {
            true => format!("postgres://postgres@127.0.0.1:{sql}/postgres"),
            false => ground.postgres.url("postgres", "postgres"),
        };
        let url = S3Server::url_at(s3, "safepoint");
        let _ = self.command(ground, place, &["remote", "remove", "team"]).output();
        let args =
            ["remote", "add", "team", "--records", &records, "--bytes", &url, "--project", "shop", "--yes"];
        self.command(ground, place, &args).output().map(drop)
    }

    fn prepare(&self, ground: &Ground) -> Result<()> {
        for name in ["home", "home2", "clone-at"] {
            let folder = self.folder(ground, name);
            fs::create_dir_all(&folder).tried(|| format!("creating {}", folder.display()))?;
        }
        let tree = self.folder(ground, "tree");
        copy_tree(&ground.path("tree"), &tree).tried(|| format!("copying to {}", tree.display()))?;
        match self.name {
            "safepoint" => {
                self.add(ground, "tree")?;
                self.add(ground, "clone-at")?;
                self.command(ground, "tree", &["remote", "init", "team"]).output().map(drop)
            }
            "git" => {
                let bare = self.folder(ground, "bare");
                for args in [
                    &["init", "-q", "--bare", &bare.to_string_lossy()][..],
                    &["init", "-q"],
                    &["config", "user.name", "bench"],
                    &["config", "user.email", "bench@localhost"],
                    &["remote", "add", "team", &bare.to_string_lossy()],
                ] {
                    self.command(ground, "tree", args).output()?;
                }
                Ok(())
            }
            _ => self.command(ground, "tree", &["init", "-q"]).output().map(drop),
        }
    }

    /// Commands that record the tree on this machine.
    fn local(&self, ground: &Ground) -> Vec<Cmd> {
        let command = |args: &[&str]| self.command(ground, "tree", args);
        match self.name {
            "safepoint" => vec![command(&["create", "-q", "--yes"])],
            "git" => vec![command(&["add", "-A", "--force"]), command(&["commit", "-q", "-m", "bench"])],
            _ => Vec::new(),
        }
    }

    fn push(&self, ground: &Ground) -> Cmd {
        let args: &[&str] = match self.name {
            "safepoint" => &["push", "-q", "team"],
            "git" => &["push", "-q", "team", "HEAD"],
            _ => &["backup", "-q", "."],
        };
        self.command(ground, "tree", args)
    }

    fn clone(&self, ground: &Ground) -> Cmd {
        let to = self.folder(ground, "clone-at").join("clone").to_string_lossy().into_owned();
        let from = self.folder(ground, "tree");
        let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bare = self.folder(ground, "bare").to_string_lossy().into_owned();
        let args: Vec<&str> = match self.name {
            "safepoint" => vec!["clone", "-q", "team", &name, &to],
            "git" => vec!["clone", "-q", &bare, &to],
            "rustic" => vec!["restore", "latest", &to],
            _ => vec!["restore", "latest", "-q", "--target", &to],
        };
        self.command(ground, "clone-at", &args)
    }

    fn measure(mut self, ground: &Ground, files: &[PathBuf], repeat: u32) -> Result<Figures> {
        self.prepare(ground)?;
        let tree = self.folder(ground, "tree");
        let mut figures = Figures { name: self.name, ..Figures::default() };
        settle(ground.folder.path())?;
        figures.first_local = measure_all(&self.local(ground))?.seconds;
        settle(ground.folder.path())?;
        figures.first = self.push(ground).measure()?.seconds;
        for round in 0..u64::from(repeat) + 1 {
            append(&tree, &choose(files, EDITS, round), round)?;
            settle(ground.folder.path())?;
            figures.edits_local.push(measure_all(&self.local(ground))?.seconds);
            figures.edits.push(self.push(ground).measure()?.seconds);
        }
        // One more round, which is counted and not timed.
        append(&tree, &choose(files, EDITS, 99), 99)?;
        measure_all(&self.local(ground))?;
        self.counted = true;
        if self.name == "safepoint" {
            // The addresses are those of the proxies now; the position of the line is kept with the name of the remote.
            figures.requests = count_safepoint(&self, ground)?;
        } else if self.name != "git" {
            ground.requests();
            self.push(ground).output()?;
            figures.requests = ground.requests();
        }
        self.counted = false;
        settle(ground.folder.path())?;
        figures.clone = self.clone(ground).measure()?.seconds;
        self.compare(ground, &tree)?;
        Ok(figures)
    }

    fn compare(&self, ground: &Ground, tree: &Path) -> Result<()> {
        let clone = self.folder(ground, "clone-at").join("clone");
        // rustic and restic restore below the path that they were given.
        let (wanted, found) = (Image::read(tree)?, Image::read(&clone)?);
        if self.name != "git" && wanted.files().len() != found.files().len() {
            return Err(Failure::new(format!(
                "the clone by {} has {} files of {}",
                self.name,
                found.files().len(),
                wanted.files().len()
            )));
        }
        Ok(())
    }
}

/// Counts the requests of a push through the proxies. A second home is behind them from its first push on.
fn count_safepoint(way: &Way, ground: &Ground) -> Result<Vec<String>> {
    let tree = way.folder(ground, "counted-tree");
    copy_tree(&ground.path("tree"), &tree).tried(|| format!("copying to {}", tree.display()))?;
    let run = |args: &[&str]| way.command(ground, "counted-tree", args).output().map(drop);
    // Its home is that of the clone, which has no workspace yet.
    way.add(ground, "counted-tree")?;
    run(&["create", "-q", "--yes"])?;
    run(&["push", "-q", "team"])?;
    let files = Image::read(&tree)?.files();
    append(&tree, &choose(&files, EDITS, 7), 7)?;
    run(&["create", "-q", "--yes"])?;
    ground.requests();
    run(&["push", "-q", "team"])?;
    let requests = ground.requests();
    let direct = Way { name: way.name, program: way.program.clone(), counted: false };
    direct.add(ground, "clone-at")?;
    Ok(requests)
}

/// Times `create` without a remote, and with one whose servers are away, by turns.
fn create_with_the_remote_away(ground: &Ground, safepoint: &Path, repeat: u32) -> Result<[Series; 2]> {
    let tree = ground.path("away-tree");
    copy_tree(&ground.path("tree"), &tree).tried(|| format!("copying to {}", tree.display()))?;
    let command = |home: &str, args: &[&str]| {
        Cmd::new(safepoint, &tree)
            .args(args)
            .env("HOME", ground.path(home))
            .env("SAFEPOINT_HOME", ground.path(home))
    };
    for home in ["away-without", "away-with"] {
        command(home, &["create", "-q", "--yes"]).output()?;
    }
    let (records, url) = ("postgres://me@127.0.0.1:1/db", S3Server::url_at(1, "x"));
    let args = ["remote", "add", "team", "--records", records, "--bytes", &url, "--project", "shop", "--yes"];
    command("away-with", &args).output()?;
    let files = Image::read(&tree)?.files();
    let mut series = [Series::default(), Series::default()];
    for round in 0..u64::from(repeat) * 4 {
        append(&tree, &choose(&files, EDITS, round), round)?;
        settle(ground.folder.path())?;
        for (home, series) in ["away-without", "away-with"].iter().zip(&mut series) {
            series.push(command(home, &["create", "-q"]).measure()?.seconds);
        }
    }
    Ok(series)
}

fn print(all: &[Figures], [without, with]: &[Series; 2]) {
    let median = |series: &Series| seconds(series.median().unwrap_or(0.0));
    println!("| way | first push | push of ten edits | requests of it | clone |\n|---|---|---|---|---|");
    for Figures { name, first_local, first, edits_local, edits, clone, requests } in all {
        let both = |local: &str, push: &str| match *first_local > 0.0 {
            true => format!("{local} + {push}"),
            false => push.to_owned(),
        };
        let mut kinds: Vec<&String> = requests.iter().collect();
        kinds.dedup();
        let count = match requests.len() {
            0 => "-".to_owned(),
            count => {
                format!("{count} ({})", kinds.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", "))
            }
        };
        let first = both(&seconds(*first_local), &seconds(*first));
        let edits = both(&median(edits_local), &median(edits));
        println!("| {name} | {first} | {edits} | {count} | {} |", seconds(*clone));
    }
    println!("\n| `create` after ten edits | median | minimum |\n|---|---|---|");
    for (name, series) in [("no remote", without), ("a remote whose servers are away", with)] {
        let least = series.spread().map_or(0.0, |(least, _)| least);
        println!("| {name} | {} | {} |", median(series), seconds(least));
    }
}
