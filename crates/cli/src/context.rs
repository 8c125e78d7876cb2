//! Process context: directory, home, user, clock. The only reader of the environment.

#![allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]

use crate::args::Global;
use crate::problem::Problem;
use crate::render::terminal::{for_shell, printable_bytes};
use crate::signals;
use jiff::tz::TimeZone;
use safepoint::model::id::SessionId;
use safepoint::model::{RelPath, Timestamp};
use safepoint::remote::RemoteEnvironment;
use safepoint::{
    Access, BulkLimits, Capabilities, CatalogStanding, CheckpointManager, Defaults, Environment, Error,
    HomeOwner, Progress, Rebuilt, Settings, SystemEnvironment, Workspace,
};
use safepoint_agents::install::Folders;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Directory, home and user of this process.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// Absolute directory that commands apply to; links are resolved if it exists.
    pub(crate) directory: PathBuf,
    /// Safepoint's home.
    pub(crate) home: PathBuf,
    /// The user's home directory.
    pub(crate) user_home: Option<PathBuf>,
    /// Default session.
    pub(crate) session_id: Option<String>,
    /// User, unless a tool asks.
    pub(crate) user: String,
    /// Access to the home.
    pub(crate) access: Access,
    /// Owners whose home may be written.
    pub(crate) home_owner: HomeOwner,
    /// Program that asks, unless the environment names an agent.
    pub(crate) caller: Option<String>,
    /// State of the catalog when the home was opened.
    pub(crate) standing: Arc<Mutex<CatalogStanding>>,
    /// Looks up the registered workspace when the home is opened: a pager is not run from there.
    pub(crate) notes_workspace: bool,
    /// Folder of the registered workspace, once it was looked up.
    pub(crate) workspace_root: Arc<OnceLock<PathBuf>>,
}

impl Surroundings {
    /// Reads the context. `typed` are the global options, `access` is the command's access to the home.
    pub(crate) fn read(typed: &Global, access: Access) -> Result<Self, Problem> {
        let directory = typed.directory.as_deref();
        let started_in = started_in()?;
        let defaults = defaults();
        if typed.allow_other_owner && typed.home.is_none() && variable("SAFEPOINT_HOME").is_none() {
            return Err(Problem::usage(
                "--allow-other-owner is for a home that is named",
                "Name it: --home DIR, or SAFEPOINT_HOME=DIR in the environment.",
            ));
        }
        let home = match typed.home.clone().or(defaults.home) {
            Some(home) => started_in.join(home),
            None => {
                return Err(Problem::usage(
                    "cannot determine the Safepoint home directory: HOME is not set",
                    "Name a folder with --home or SAFEPOINT_HOME.",
                ));
            }
        };
        let directory = directory.map_or(started_in.clone(), |directory| started_in.join(directory));
        let directory = directory.canonicalize().unwrap_or_else(|_| lexical(&directory));
        Ok(Self {
            directory,
            home,
            user_home: defaults.user_home.and_then(|path| path.canonicalize().ok()),
            session_id: defaults.session,
            user: defaults.user,
            access,
            home_owner: if typed.allow_other_owner { HomeOwner::Anybody } else { HomeOwner::User },
            caller: None,
            standing: Arc::default(),
            notes_workspace: false,
            workspace_root: Arc::default(),
        })
    }

    /// Returns a warning if the store does not know the catalog.
    pub(crate) fn catalog_warning(&self) -> Option<String> {
        let what = match *self.standing.lock().unwrap_or_else(PoisonError::into_inner) {
            CatalogStanding::Known => return None,
            CatalogStanding::New => "a new one",
            CatalogStanding::Older => "an older copy",
        };
        Some(format!(
            "the catalog in {} is {what}: the store holds checkpoints that it does not list, and nothing is deleted. `safepoint repair` brings them back",
            self.home.display()
        ))
    }

    /// Records the current state of the catalog.
    pub(crate) fn note_standing(&self, manager: &CheckpointManager) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = manager.upkeep().catalog_standing();
    }

    /// Opens the home for repair.
    pub(crate) fn open_for_repair(
        &self,
        progress: &dyn Progress,
    ) -> Result<(CheckpointManager, Rebuilt), Problem> {
        let environment = environment(self.user.clone());
        Ok(CheckpointManager::open_for_repair(&self.home, self.settings(), environment, progress)?)
    }

    /// Opens the home for an emergency checkpoint despite a damaged catalog.
    pub(crate) fn open_beside_catalog(&self) -> Result<CheckpointManager, Problem> {
        let environment = environment(self.user.clone());
        Ok(CheckpointManager::open_beside_catalog(&self.home, self.settings(), environment)?)
    }

    /// Opens the home. `tool` makes the request, if given.
    pub(crate) fn open(&self, tool: Option<&str>) -> Result<CheckpointManager, Problem> {
        Ok(self.try_open(tool)?)
    }

    /// Opens the home and returns the library's error.
    pub(crate) fn try_open(&self, tool: Option<&str>) -> Result<CheckpointManager, Error> {
        let agent = tool.map(str::to_owned).or_else(|| defaults().agent).or_else(|| self.caller.clone());
        let actor = match agent {
            Some(agent) => format!("{} via {agent}", self.user),
            None => self.user.clone(),
        };
        let manager = CheckpointManager::open_with(&self.home, self.settings(), environment(actor))?;
        self.note_standing(&manager);
        if self.notes_workspace
            && let Ok(Some(workspace)) = manager.workspaces().around(&self.directory)
        {
            // The first answer counts.
            let _ = self.workspace_root.set(workspace.root_path().to_owned());
        }
        Ok(manager)
    }

    /// Opens the home for a hook, which waits no longer than this for others.
    pub(crate) fn open_for_hook(&self, agent: &str, lock_wait: Duration) -> Result<CheckpointManager, Error> {
        let settings = Settings { lock_wait, session_id: None, ..self.settings() };
        let actor = format!("{} via {agent}", self.user);
        CheckpointManager::open_with(&self.home, settings, environment(actor))
    }

    fn settings(&self) -> Settings {
        Settings {
            refused_roots: self.user_home.iter().cloned().collect(),
            capabilities: capabilities_left(),
            lock_wait: lock_wait().unwrap_or(Settings::default().lock_wait),
            // Session commands report an invalid id; a rollback does not fail for it.
            session_id: self.session_id.as_deref().and_then(|id| session_id(id).ok()),
            open_files: signals::files_at_start(),
            database_helper: crate::commands::database::helper(),
            room_helper: crate::commands::attempt::helper(),
            publish_helper: self.publish_helper(),
            access: self.access,
            home_owner: self.home_owner,
            ..Settings::default()
        }
    }

    /// Command line that publishes the workspace in its directory, but for the time to wait first.
    fn publish_helper(&self) -> Vec<OsString> {
        let Ok(program) = env::current_exe() else { return Vec::new() };
        let words = ["--quiet", "sync", "--after"].map(OsString::from);
        let home = [OsString::from("--home"), self.home.clone().into_os_string()];
        [program.into_os_string()].into_iter().chain(home).chain(words).collect()
    }

    /// Returns the id of a new session.
    pub(crate) fn new_session(&self) -> String {
        SessionId::from_bits(environment(self.user.clone()).new_id()).to_uuid()
    }

    /// Variables for the credentials of remotes.
    pub(crate) fn remote_environment(&self) -> RemoteEnvironment {
        RemoteEnvironment::new(env::vars_os(), self.user_home.clone())
    }

    /// Name of this user and machine, for other people.
    pub(crate) fn holder(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match host.trim() {
            "" => self.user.clone(),
            host => format!("{}@{host}", self.user),
        }
    }

    /// Current time of records.
    pub(crate) fn now() -> Timestamp {
        fixed_now().unwrap_or_else(|| SystemEnvironment::default().now())
    }

    /// Returns the registered workspace of the directory. Finds a missing folder by its path.
    pub(crate) fn workspace(&self, manager: &CheckpointManager) -> Result<Workspace, Problem> {
        self.workspace_if_any(manager)?.ok_or_else(|| self.explain_nowhere(manager))
    }

    /// Returns the error for an unregistered workspace. A store without records indicates a lost catalog.
    fn explain_nowhere(&self, manager: &CheckpointManager) -> Problem {
        let problem = Problem::from(Error::NoWorkspace { path: self.directory.clone() });
        if let Some((folder, old)) = self.moved(manager) {
            let [old, new] = [old.root_path(), folder].map(|path| for_shell(&path.to_string_lossy()));
            let mut problem = problem;
            // A checkpoint would register the folder as a new one.
            problem.failure.hints.clear();
            problem.topic = None;
            return problem.hint(format!(
                "This folder seems to be {old}, moved. Continue with its checkpoints: safepoint workspace move {old} {new}"
            ));
        }
        let nothing_on_record = manager.workspaces().list().is_ok_and(|workspaces| workspaces.is_empty());
        if !(nothing_on_record && manager.upkeep().usage().is_ok_and(|usage| usage.packs > 0)) {
            return problem;
        }
        // The files may well be in the store, and a checkpoint now would capture what is left of them.
        let mut problem = problem;
        problem.failure.hints.clear();
        problem.topic = None;
        problem.hint(format!(
            "The store in {} holds checkpoints, but nothing is on record there: if its catalog.db was lost, `safepoint repair` rebuilds it.",
            self.home.display()
        ))
    }

    /// Returns the folder at or above the directory that was moved here, with its workspace.
    fn moved(&self, manager: &CheckpointManager) -> Option<(&Path, Workspace)> {
        let mut above = self.directory.ancestors().take_while(|folder| folder.parent().is_some());
        above.find_map(|folder| Some((folder, manager.workspaces().moved_from(folder).ok().flatten()?)))
    }

    /// Workspace, or `None` if unregistered.
    pub(crate) fn workspace_if_any(&self, manager: &CheckpointManager) -> Result<Option<Workspace>, Problem> {
        if self.directory.is_dir() {
            return Ok(manager.workspaces().around(&self.directory)?);
        }
        let registered = manager.workspaces().list()?;
        let above = self.directory.ancestors();
        Ok(above
            .filter_map(|above| registered.iter().find(|workspace| workspace.root_path() == above))
            .next()
            .cloned())
    }

    /// Adds hints if the workspace folder is missing: its checkpoints still exist.
    pub(crate) fn explain_gone(&self, workspace: &Workspace, problem: Problem) -> Problem {
        let root = workspace.root_path();
        if problem.failure.code != "workspace_gone" || root.exists() {
            return problem;
        }
        let folder = for_shell(&root.to_string_lossy());
        problem
            .hint(format!("If it was moved, go there and run: safepoint workspace move {folder} ."))
            .hint(format!(
                "If it was deleted, its checkpoints are safe in {}: mkdir -p {folder} && safepoint -C {folder} rollback @",
                self.home.display()
            ))
    }

    /// Converts a typed path to an absolute one.
    pub(crate) fn absolute(&self, given: &Path) -> PathBuf {
        lexical(&self.directory.join(given))
    }

    /// Converts a typed path to one inside the workspace.
    pub(crate) fn path_in(&self, workspace: &Workspace, given: &OsStr) -> Result<RelPath, Problem> {
        let given = Path::new(given);
        let whole = lexical(&self.directory.join(given));
        match in_room(&whole).strip_prefix(workspace.root_path()) {
            Ok(below) => Ok(RelPath::new(below.as_os_str().as_bytes())?),
            Err(_) => Err(Problem::outside(given, workspace.root_path())),
        }
    }

    /// Shows a path of the workspace as it is typed here: relative to the directory.
    pub(crate) fn typed_path(&self, workspace: &Workspace, path: &RelPath) -> String {
        let directory = in_room(&self.directory);
        let here = directory.strip_prefix(workspace.root_path()).unwrap_or(Path::new(""));
        let mut here = here.as_os_str().as_bytes().split(|byte| *byte == b'/').peekable();
        let mut names = path.names().peekable();
        while names.peek().is_some() && names.peek() == here.peek() {
            names.next();
            here.next();
        }
        let up = here.filter(|name| !name.is_empty()).map(|_| "..".to_owned());
        let shown: Vec<String> = up.chain(names.map(printable_bytes)).collect();
        if shown.is_empty() { ".".to_owned() } else { shown.join("/") }
    }

    /// Returns the context for a given session, if any.
    pub(crate) fn of_session(&self, given: Option<&str>) -> Result<Self, Problem> {
        let session_id = given.map(session_id).transpose()?.or_else(|| self.session_id.clone());
        Ok(Self { session_id, ..self.clone() })
    }

    /// Returns the given session or that of the environment, as a UUID.
    pub(crate) fn session(&self, given: Option<&str>) -> Result<Option<String>, Problem> {
        match given.or(self.session_id.as_deref()) {
            Some(id) => Ok(Some(session_id(id)?)),
            None => Ok(None),
        }
    }
}

/// Returns the path in the room of an attempt, if this process is in one: its workspace is there, and the project's path shows the same.
fn in_room(path: &Path) -> PathBuf {
    static ROOMS: OnceLock<Vec<safepoint::RoomMount>> = OnceLock::new();
    let rooms = ROOMS.get_or_init(safepoint::room_mounts);
    let found =
        rooms.iter().rev().find_map(|room| Some(room.tree.join(path.strip_prefix(&room.project).ok()?)));
    // A path that ends at the project has no separator behind it.
    found.map_or_else(|| path.to_owned(), |path| path.components().collect())
}

/// Returns the folders of the agents' settings. Without HOME there are none.
pub(crate) fn agent_folders(surroundings: &Surroundings) -> Option<Folders> {
    let directory = &surroundings.directory;
    let project = directory.ancestors().find(|above| above.join(".git").exists()).unwrap_or(directory);
    Some(Folders {
        user: surroundings.user_home.clone()?,
        project: project.to_owned(),
        keep: surroundings.home.clone(),
        program: own_program(),
        claude: variable("CLAUDE_CONFIG_DIR").map(PathBuf::from),
        codex: variable("CODEX_HOME").map(PathBuf::from),
        config: variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()),
    })
}

/// Path of this program: as found on PATH, which stays valid when a package manager replaces the file behind a link.
pub(crate) fn own_program() -> PathBuf {
    let own = env::current_exe().unwrap_or_else(|_| PathBuf::from("safepoint"));
    let real = |path: &Path| path.canonicalize().ok();
    on_path("safepoint").filter(|found| real(found) == real(&own)).unwrap_or(own)
}

/// Returns the program of a name on PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = variable("PATH")?;
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(runs)
}

/// Converts a session id to its stored form, a UUID.
pub(crate) fn session_id(given: &str) -> Result<String, Problem> {
    Ok(given.parse::<SessionId>()?.to_uuid())
}

/// Settings from the variables of this process, by the rules of all faces.
fn defaults() -> Defaults {
    Defaults::from_variables(&|name| env::var_os(name))
}

/// Token for HTTP clients of the MCP server.
pub(crate) fn mcp_token() -> Option<String> {
    variable("SAFEPOINT_MCP_TOKEN").map(|token| token.to_string_lossy().into_owned())
}

pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the current directory. For a deleted one, uses the shell's name.
fn started_in() -> Result<PathBuf, Problem> {
    env::current_dir()
        .or_else(|_| variable("PWD").map(PathBuf::from).filter(|path| path.is_absolute()).ok_or(()))
        .map_err(|()| {
            Problem::usage(
                "the current directory is gone",
                "Go to a folder that exists, or name one with -C.",
            )
        })
}

/// Removes `.` and `..` from an absolute path, lexically: a typed path may name a deleted file.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

/// Returns true if colours are unwanted or unsupported.
pub(crate) fn colours_off() -> bool {
    variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb")
}

/// Returns true if the terminal supports cursor movement.
pub(crate) fn can_move_the_cursor() -> bool {
    variable("TERM").is_some_and(|term| term != "dumb")
}

/// Returns true if the locale supports Unicode. The first set variable decides (locale(7)).
pub(crate) fn speaks_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
    let locale = locale.to_string_lossy().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The user's pager, with its options.
pub(crate) fn pager() -> String {
    let words = own_pager().or_else(|| env::var_os("PAGER"));
    words.map_or_else(|| "less".to_owned(), |words| words.to_string_lossy().into_owned())
}

/// The user's pager for Safepoint alone.
pub(crate) fn own_pager() -> Option<OsString> {
    env::var_os("SAFEPOINT_PAGER")
}

/// Returns true if the user has set no options of `less`.
pub(crate) fn lacks_less_options() -> bool {
    env::var_os("LESS").is_none()
}

/// Folders in which programs are found.
pub(crate) fn search_path() -> OsString {
    variable("PATH").unwrap_or_default()
}

/// Test hook: a file system with fewer features.
fn capabilities_left() -> Capabilities {
    let mut left = Capabilities::default();
    let without = variable("SAFEPOINT_TEST_WITHOUT").unwrap_or_default();
    for word in without.to_string_lossy().split(',') {
        match word {
            "exchange" => left.exchange = false,
            "noreplace" => left.no_replace = false,
            "leases" => left.leases = false,
            _ => {}
        }
    }
    left
}

/// Test hook: a shorter lock timeout.
fn lock_wait() -> Option<Duration> {
    let millis = variable("SAFEPOINT_TEST_LOCK_WAIT_MS")?.to_string_lossy().parse().ok()?;
    Some(Duration::from_millis(millis))
}

static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Makes people's times UTC for this process, in place of local ones.
pub(crate) fn use_utc() {
    // The first choice counts.
    let _ = ZONE.set(TimeZone::UTC);
}

/// The zone in which people type and read times: `TZ`, else that of the system, else UTC.
pub(crate) fn time_zone() -> TimeZone {
    ZONE.get_or_init(TimeZone::system).clone()
}

/// Returns the time without changes after which `run --watch` takes a checkpoint. Test hook: a shorter one.
pub(crate) fn quiet_time() -> Duration {
    let millis = variable("SAFEPOINT_TEST_QUIET_MS").and_then(|text| text.to_str()?.parse().ok());
    Duration::from_millis(millis.unwrap_or(2_000))
}

/// Test hook: the time that requests to a remote may take.
pub(crate) fn remote_patience() -> Option<Duration> {
    let millis = variable("SAFEPOINT_TEST_REMOTE_MS")?.to_string_lossy().parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Test hook: the age of the last answered renewal at which a runner ends its commands.
pub(crate) fn lease_time() -> Option<Duration> {
    let millis = variable("SAFEPOINT_TEST_LEASE_MS")?.to_string_lossy().parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Test hook: the time that every hook may take.
pub(crate) fn hook_time() -> Option<Duration> {
    let millis = variable("SAFEPOINT_TEST_HOOK_MS")?.to_string_lossy().parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Test hook of debug builds: the work of a hook panics.
pub(crate) fn panic_in_hook() {
    if cfg!(debug_assertions) && variable("SAFEPOINT_TEST_HOOK_PANIC").is_some() {
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Returns the session of the surrounding `run`, if there is one. An invalid id counts as none.
pub(crate) fn joined_session() -> Option<String> {
    session_id(variable("SAFEPOINT_SESSION_ID")?.to_str()?).ok()
}

/// Settings of the log.
pub(crate) struct Logging {
    /// `SAFEPOINT_LOG`.
    pub(crate) filter: Option<String>,
    /// `SAFEPOINT_LOG_FILE`.
    pub(crate) file: Option<PathBuf>,
}

impl Logging {
    pub(crate) fn read() -> Self {
        let filter = variable("SAFEPOINT_LOG").map(|text| text.to_string_lossy().into_owned());
        Self { filter, file: variable("SAFEPOINT_LOG_FILE").map(PathBuf::from) }
    }
}

/// Current time of lines in the log.
pub(crate) fn now_text() -> String {
    Surroundings::now().to_string()
}

/// Returns the size from which the first checkpoint is worth a question. Test hook: a smaller number of entries.
pub(crate) fn bulk_limits() -> BulkLimits {
    let entries = variable("SAFEPOINT_TEST_BULK_ENTRIES").and_then(|text| text.to_str()?.parse().ok());
    let usual = BulkLimits::default();
    BulkLimits { entries: entries.unwrap_or(usual.entries), ..usual }
}

fn fixed_now() -> Option<Timestamp> {
    variable("SAFEPOINT_TEST_NOW").and_then(|text| text.to_string_lossy().parse().ok())
}

fn environment(actor: String) -> Box<dyn Environment> {
    let Some(now) = fixed_now() else { return Box::new(SystemEnvironment { actor }) };
    let seed = variable("SAFEPOINT_TEST_SEED").and_then(|text| text.to_string_lossy().parse().ok());
    Box::new(FixedEnvironment {
        micros: AtomicI64::new(now.micros()),
        seed: AtomicU64::new(seed.unwrap_or(0)),
        actor,
    })
}

/// Test hook: a clock that advances by a second per call, and reproducible ids.
#[derive(Debug)]
struct FixedEnvironment {
    micros: AtomicI64,
    seed: AtomicU64,
    actor: String,
}

impl Environment for FixedEnvironment {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.fetch_add(1_000_000, Ordering::Relaxed))
    }

    fn random_bits(&self) -> u128 {
        // Two steps of SplitMix64.
        let next = || {
            let mut z = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(z ^ (z >> 31))
        };
        next() << 64 | next()
    }

    fn actor(&self) -> String {
        self.actor.clone()
    }
}
