//! Small project with a history, recreated for every point, and the law that must always hold.

use safepoint::model::CheckpointId;
use safepoint::model::attempt::AttemptState;
use safepoint::model::id::SessionId;
use safepoint::model::plan::spec::{Milestones, PlanSpec, SandboxKind, StepSpec};
use safepoint::model::plan::state::{Plan, PlanState};
use safepoint::model::rollback::{RollbackState, Verb};
use safepoint::model::session::SessionStatus;
use safepoint::model::thread::ThreadValue;
use safepoint::{
    CheckpointManager, CreateOptions, Depth, Filter, GitCommit, GitReset, NewDecision, NewSession, NewState,
    RoleFilter, RollbackOptions, Sharing, Silent, StartAttempt, Subject, Workspace,
};
use safepoint_testkit::{End, Program, TreeImage, copy_tree, kill_at};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Command under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Create,
    Rollback,
    /// Rollback of so many files that the whole file system is synced at once.
    RollbackMany,
    Undo,
    /// Rollback of a plan and its files.
    RollbackPlan,
    /// Correction of a plan.
    CorrectPlan,
    /// Transfer of the result of a plan in a sandbox.
    ApplyPlan,
    /// Transfer of the result of an attempt.
    KeepAttempt,
    /// Rollback of two workspaces, an agent and a plan, as one.
    RollbackTogether,
    /// Of a workspace and the memory of an agent that is bound to it.
    RollbackBound,
    /// Rollback of a conversation and its files.
    RollbackThread,
    /// Save of a state of a conversation with its files, by a client library.
    SaveState,
    /// With branch and index of the repository around.
    HardReset,
    /// Rollback of the whole git folder, and nothing else.
    RollbackRepository,
    /// Of all of the repository's folder, with the files.
    RollbackWithRepository,
    /// To the newest checkpoint that passes a check, tried in a copy.
    Search,
    /// The same search in an overlay.
    SearchInOverlay,
    /// The same search in the workspace itself.
    SearchInPlace,
    /// Checkpoint in a home whose catalog an older version wrote.
    Migrate,
}

impl Act {
    fn is_of_plan(self) -> bool {
        matches!(self, Act::RollbackPlan | Act::CorrectPlan | Act::RollbackTogether)
    }

    /// Folders to recreate for every point.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Act::RollbackTogether | Act::RollbackBound => &["home", "project", "second", "agent"],
            _ => &["home", "project"],
        }
    }
}

/// Session status in both states.
const SESSION: [SessionStatus; 2] = [SessionStatus::Planning, SessionStatus::Initializing];
/// Other folders of a multi-folder rollback.
const OTHERS: [&str; 2] = ["second", "agent"];

/// Thread, and its states before and after the work.
const THREAD: &str = "conversation";
const STATES: [&str; 2] = ["s1", "s2"];

/// State with a value that is cut into pieces.
fn state(number: usize) -> NewState {
    let messages = vec![ThreadValue::new("text", "a message ".repeat(500 * (number + 1)).into_bytes())];
    NewState {
        id: STATES[number].to_owned(),
        parent: (number > 0).then(|| STATES[0].to_owned()),
        body: ThreadValue::new("text", "{}"),
        channels: [("messages".to_owned(), number.to_string())].into(),
        values: messages.into_iter().map(|value| ("messages".to_owned(), Some(value))).collect(),
        ..NewState::default()
    }
}

/// Frames of a client library that saves the second state with its files.
fn frames(workspace: &Workspace) -> Vec<u8> {
    let state = state(1);
    let value = state.values["messages"].clone().unwrap();
    let bytes = [value.bytes.as_slice(), &state.body.bytes].concat();
    let put = json!({ "jsonrpc": "2.0", "id": 2, "method": "threads.put", "params": {
        "workspace": workspace.id, "thread": THREAD, "capture": { "label": "second" },
        "state": { "id": state.id, "parent": state.parent, "channels": state.channels,
            "values": { "messages": { "encoding": "text", "bytes": [0, value.bytes.len()] } },
            "body": { "encoding": "text", "bytes": [value.bytes.len(), 2] } } } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocol": 1, "client": "crash" } });
    let frame = |message: &Value, bytes: &[u8]| {
        let text = message.to_string().into_bytes();
        let lengths = [(text.len() + bytes.len() + 4) as u32, text.len() as u32].map(u32::to_be_bytes);
        [lengths.concat().as_slice(), &text, bytes].concat()
    };
    [frame(&hello, b""), frame(&put, &bytes)].concat()
}

/// Check that passes only in the first state.
const CHECK: &str = "test -d empty";

/// Project and home, the same at every point.
pub(crate) struct Scene {
    folder: PathBuf,
    /// Deletes a temporary folder on drop.
    _temporary: Option<tempfile::TempDir>,
    pub(crate) act: Act,
    /// Capabilities that the binary must not use.
    without: &'static str,
    /// True to measure coverage in the binary, too, if enabled.
    pub(crate) profiled: bool,
    old: TreeImage,
    new: TreeImage,
    /// Both states of the others.
    others: Vec<[TreeImage; 2]>,
    /// Plan in both states, if involved.
    plans: Option<[Plan; 2]>,
    /// Session, if involved.
    session: Option<SessionId>,
    /// Target of a rollback.
    target: CheckpointId,
    /// Checkpoints, and records of finished rollbacks, before the command.
    checkpoints: usize,
    rollbacks: usize,
}

/// Returns the coverage file of an instrumented binary: one of few shared files, or none. The default would
/// be in the workspace.
fn profile(wanted: bool) -> Option<(OsString, OsString)> {
    let asked = PathBuf::from(std::env::var_os("LLVM_PROFILE_FILE")?);
    let file = if wanted { asked.with_file_name("crash-%4m.profraw") } else { "/dev/null".into() };
    Some(("LLVM_PROFILE_FILE".into(), file.into()))
}

fn put(root: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
    fs::write(root.join(name), content).unwrap();
}

/// Creates the state of the first checkpoint.
fn first_state(root: &Path) {
    put(root, "src/main.rs", "fn main() {}\n");
    put(root, "src/lib/deep.rs", "// deep\n".repeat(40));
    put(root, "run.sh", "#!/bin/sh\n");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/main.rs", root.join("link")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    put(root, "thing", "a file");
}

/// Makes changes of an agent: an edit, a deletion, a new folder, a mode, another type, another target.
fn second_state(root: &Path) {
    put(root, "src/main.rs", "fn main() { panic!() }\n");
    fs::remove_dir_all(root.join("src/lib")).unwrap();
    put(root, "junk/a/b", "junk");
    put(root, "junk/c", "junk");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("elsewhere", root.join("link")).unwrap();
    fs::remove_file(root.join("thing")).unwrap();
    put(root, "thing/inside", "a folder now");
    fs::remove_dir(root.join("empty")).unwrap();
    put(root, "new.txt", "new");
}

fn many_files(root: &Path, act: Act, text: &str) {
    for number in (0..20).filter(|_| act == Act::RollbackMany) {
        put(root, &format!("many/f{number}"), text.repeat(number));
    }
}

const PLAN: &str = "work";

fn step(id: &str, steps: Vec<StepSpec>) -> StepSpec {
    StepSpec { steps, ..StepSpec::new(id) }
}

/// Creates a plan with one step done and one decision made.
fn begin_plan(manager: &CheckpointManager, workspace: &Workspace) -> String {
    let steps = vec![step("one", vec![]), step("two", vec![step("a", vec![]), step("b", vec![])])];
    let checkpoints = Milestones::none();
    let spec = PlanSpec { id: Some(PLAN.to_owned()), steps, checkpoints, ..PlanSpec::new("Work") };
    manager.plans().create(workspace, &spec).unwrap();
    manager.plans().start_step(PLAN, "one", &Silent).unwrap();
    manager.plans().finish_step(PLAN, "one", None, &Silent).unwrap();
    decide(manager, "before");
    PLAN.to_owned()
}

/// Runs a plan that makes the second state in a copy. Returns the plan before and after.
fn work_in_copy(manager: &CheckpointManager, workspace: &Workspace) -> [Plan; 2] {
    let (steps, checkpoints) = (vec![step("one", vec![])], Milestones::none());
    let sandbox = SandboxKind::Copy;
    let spec = PlanSpec { id: Some(PLAN.to_owned()), steps, checkpoints, sandbox, ..PlanSpec::new("Work") };
    manager.plans().create(workspace, &spec).unwrap();
    let begun = manager.plans().start_step(PLAN, "one", &Silent).unwrap().record;
    second_state(manager.plans().workspace(&begun).unwrap().root_path());
    let done = manager.plans().finish_step(PLAN, "one", None, &Silent).unwrap().record.plan;
    let mut applied = done.clone();
    applied.go(PlanState::Applied).unwrap();
    [done, applied]
}

/// Name of the attempt.
const ATTEMPT: &str = "one";

/// Works in an attempt, and returns its folder: without a program that enters namespaces it is a copy.
fn work_in_attempt(manager: &CheckpointManager, workspace: &Workspace) -> PathBuf {
    let options = StartAttempt { name: Some(ATTEMPT.to_owned()), sharing: Sharing::Copy };
    let attempt = manager.attempts().start(workspace, &options, &Silent).unwrap().attempt;
    let place = manager.workspaces().get(attempt.place_id).unwrap();
    second_state(place.root_path());
    place.root_path().to_owned()
}

/// Continues the plan: a decision, a started subplan, a failure.
fn go_on_with_plan(manager: &CheckpointManager, id: &str) {
    decide(manager, "since");
    manager.plans().start_step(id, "two/a", &Silent).unwrap();
    manager.plans().fail_step(id, "two/a", "it broke", &Silent).unwrap();
}

fn decide(manager: &CheckpointManager, question: &str) {
    let (question, choice) = (question.to_owned(), "yes".to_owned());
    manager.plans().decide(PLAN, NewDecision { question, choice, ..NewDecision::default() }).unwrap();
}

/// Damages a repository maliciously.
fn break_repository(project: &Path) {
    let git = project.join(".git");
    fs::remove_dir_all(git.join("objects")).unwrap();
    fs::remove_dir_all(git.join("refs")).unwrap();
    put(&git, "HEAD", "nonsense\n");
    put(&git, "objects", "a file now");
    put(&git, "more/junk", "junk");
}

/// Creates a repository like `git init`.
fn make_repository(root: &Path) {
    for folder in [".git/objects/info", ".git/objects/pack", ".git/refs/heads", ".git/refs/tags"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    put(root, ".git/HEAD", "ref: refs/heads/main\n");
    put(root, ".git/config", "[core]\n\trepositoryformatversion = 0\n");
}

/// Finds the final state by running the command, and restores everything.
fn hard_reset(home: &Path, project: &Path, to: CheckpointId) -> TreeImage {
    let (home_kept, project_kept) = (home.with_extension("kept"), project.with_extension("kept"));
    copy_tree(home, &home_kept).unwrap();
    copy_tree(project, &project_kept).unwrap();
    let manager = CheckpointManager::open(home).unwrap();
    let workspace = manager.workspaces().around(project).unwrap().unwrap();
    let options = RollbackOptions { git: GitReset::Hard, ..RollbackOptions::default() };
    let restored = manager.rollback(&workspace, to, &options, &Silent).unwrap();
    let moved = restored.folders[0].git.clone().unwrap();
    assert!(moved.from != moved.to && moved.files, "{moved:?}");
    drop(manager);
    let there = image(project);
    for (folder, kept) in [(home, home_kept), (project, project_kept)] {
        fs::remove_dir_all(folder).unwrap();
        fs::rename(kept, folder).unwrap();
    }
    there
}

/// Oldest schema that can hold these scenes.
const OLD_SCHEMA: u32 = 1;

/// Converts the catalog to an older schema with its rows; no migration changes the meaning of a column.
fn downgrade(home: &Path) {
    let (now, then) = (home.join("catalog.db"), home.join("older.db"));
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../catalog/migrations");
    let number = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name[1..name.find("__").unwrap()].parse::<u32>().unwrap()
    };
    let mut files: Vec<PathBuf> =
        fs::read_dir(migrations).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_by_key(|path| number(path));
    let connection = rusqlite::Connection::open(&then).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    for file in files.iter().filter(|path| number(path) <= OLD_SCHEMA) {
        connection.execute_batch(&fs::read_to_string(file).unwrap()).unwrap();
    }
    connection.execute("ATTACH ?1 AS now", [now.to_str().unwrap()]).unwrap();
    // The list of applied migrations.
    let (history,): (String,) = connection
        .query_row("SELECT sql FROM now.sqlite_schema WHERE name = 'refinery_schema_history'", (), |row| {
            Ok((row.get(0)?,))
        })
        .unwrap();
    connection.execute_batch(&history).unwrap();
    let names = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for table in
        names("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    {
        let columns = names(&format!("SELECT name FROM pragma_table_info('{table}', 'main')")).join(", ");
        connection.execute_batch(&format!("DELETE FROM main.{table}; INSERT INTO main.{table} ({columns}) SELECT {columns} FROM now.{table}")).unwrap();
    }
    connection.execute("DELETE FROM main.refinery_schema_history WHERE version > ?1", [OLD_SCHEMA]).unwrap();
    drop(connection);
    // An older version did not mark the catalog in the store, and had no pending documents.
    for name in ["catalog.db-wal", "catalog.db-shm", "store/catalog", "store/later"] {
        let _ = fs::remove_file(home.join(name));
    }
    fs::rename(then, now).unwrap();
}

impl Scene {
    pub(crate) fn new(act: Act) -> Self {
        Self::without(act, "")
    }

    pub(crate) fn without(act: Act, without: &'static str) -> Self {
        let memory = Path::new("/dev/shm");
        let temporary =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut scene = Self::at(temporary.path(), act, without);
        scene._temporary = Some(temporary);
        scene.keep("before");
        scene
    }

    /// Scene in this folder, which may be a mount point.
    #[allow(clippy::too_many_lines, reason = "the state before each act, in the order in which it is made")]
    pub(crate) fn at(folder: &Path, act: Act, without: &'static str) -> Self {
        let (home, project) = (folder.join("home"), folder.join("project"));
        fs::create_dir(&project).unwrap();
        let manager = CheckpointManager::open(&home).unwrap();
        let workspace = manager.workspaces().register(&project).unwrap();
        first_state(&project);
        many_files(&project, act, "1");
        let plan_id = act.is_of_plan().then(|| begin_plan(&manager, &workspace));
        let mut options = CreateOptions { plan_id: plan_id.clone(), ..CreateOptions::default() };
        let session = (act == Act::RollbackPlan).then(|| {
            let new = NewSession { request: "Work".to_owned(), ..NewSession::default() };
            let session = manager.sessions().create(new).unwrap().id;
            options.session_id = Some(session.to_uuid());
            session
        });
        if act == Act::HardReset {
            make_repository(&project);
            options.git = GitCommit::Tag;
            options.label = Some("first".to_owned());
        }
        if matches!(act, Act::RollbackRepository | Act::RollbackWithRepository) {
            make_repository(&project);
            fs::write(home.join("config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
        }
        let mut others = Vec::new();
        let first = match act {
            Act::RollbackBound => {
                put(folder, "second/file", "second");
                put(folder, "agent/memory", "remember");
                put(folder, "agent/sibling", "somebody else's");
                manager
                    .agents()
                    .register_at("claude", &[], &[folder.join("agent/memory")], &project)
                    .unwrap();
                manager.agents().set("claude", "model", "then".into()).unwrap();
                others = OTHERS.map(|name| image(&folder.join(name))).to_vec();
                manager.create(&workspace, &options, &Silent).unwrap().checkpoint.id
            }
            Act::RollbackTogether => {
                put(folder, "second/file", "second");
                put(folder, "agent/memory", "remember");
                put(folder, "agent/sibling", "somebody else's");
                manager.workspaces().register(&folder.join("second")).unwrap();
                manager.agents().register("claude", &[], &[folder.join("agent/memory")]).unwrap();
                manager.agents().set("claude", "model", "then".into()).unwrap();
                others = OTHERS.map(|name| image(&folder.join(name))).to_vec();
                let options = CreateOptions { label: Some("all".to_owned()), ..CreateOptions::default() };
                manager.create(&Subject::Framework, &options, &Silent).unwrap().checkpoint.id
            }
            Act::RollbackThread | Act::SaveState => {
                let threads = manager.threads().of(workspace.id);
                threads.put_with_files(THREAD, state(0), &options, &Silent).unwrap().checkpoint.id
            }
            _ => manager.create(&workspace, &options, &Silent).unwrap().checkpoint.id,
        };
        let first_image = image(&project);
        if let Some(session) = session {
            manager.sessions().transition(session, SESSION[0]).unwrap();
        }
        let taken_over = (act == Act::ApplyPlan).then(|| work_in_copy(&manager, &workspace));
        let plans = plan_id.map(|id| {
            let then = manager.plans().get(&id).unwrap().plan;
            go_on_with_plan(&manager, &id);
            [manager.plans().get(&id).unwrap().plan, then]
        });
        let plans = plans.or(taken_over);
        let second_image = match act {
            Act::KeepAttempt => image(&work_in_attempt(&manager, &workspace)),
            Act::ApplyPlan => {
                let record = manager.plans().get(PLAN).unwrap();
                image(manager.plans().workspace(&record).unwrap().root_path())
            }
            Act::RollbackRepository => {
                break_repository(&project);
                image(&project)
            }
            Act::RollbackWithRepository => {
                second_state(&project);
                break_repository(&project);
                image(&project)
            }
            _ => {
                second_state(&project);
                many_files(&project, act, "2");
                image(&project)
            }
        };
        if act == Act::RollbackTogether {
            put(folder, "second/file", "broken");
            put(folder, "second/new", "new");
            put(folder, "agent/memory", "forgotten");
            manager.agents().set("claude", "model", "now".into()).unwrap();
        }
        if act == Act::RollbackBound {
            put(folder, "agent/memory", "forgotten");
            manager.agents().set("claude", "model", "now".into()).unwrap();
        }
        if act == Act::RollbackThread {
            manager.threads().of(workspace.id).put(THREAD, state(1)).unwrap();
        }
        fs::write(folder.join("frames"), frames(&workspace)).unwrap();
        let others =
            others.into_iter().zip(OTHERS).map(|(then, name)| [image(&folder.join(name)), then]).collect();
        if act == Act::HardReset {
            let options = CreateOptions { git: GitCommit::Branch, ..CreateOptions::default() };
            let created = manager.create(&workspace, &options, &Silent).unwrap();
            assert!(created.not_in_git.is_empty(), "{:?}", created.not_in_git);
        }
        if act == Act::Undo {
            manager.rollback(&workspace, first, &RollbackOptions::default(), &Silent).unwrap();
        }
        let (old, new) = match act {
            Act::Create | Act::Migrate | Act::SaveState => (second_image.clone(), second_image),
            Act::Undo | Act::ApplyPlan | Act::KeepAttempt => (first_image, second_image),
            Act::HardReset => (image(&project), first_image),
            _ => (second_image, first_image),
        };
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        let checkpoints = manager.checkpoints().list(&filter).unwrap().len();
        let rollbacks = manager.rollbacks(&workspace).unwrap().len();
        drop(manager);
        let new = if act == Act::HardReset { hard_reset(&home, &project, first) } else { new };
        if act == Act::Migrate {
            downgrade(&home);
        }
        Self {
            folder: folder.to_owned(),
            _temporary: None,
            act,
            without,
            profiled: false,
            old,
            new,
            others,
            plans,
            session,
            target: first,
            checkpoints,
            rollbacks,
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.join("project")
    }

    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        self.act.folders().iter().map(|name| self.folder.join(name)).collect()
    }

    /// Restores the state before the command.
    pub(crate) fn reset(&self) {
        self.lay("before");
    }

    /// Saves the current state under a name.
    pub(crate) fn keep(&self, name: &str) {
        for folder in self.act.folders() {
            let kept = self.folder.join(format!("{folder}.{name}"));
            let _ = fs::remove_dir_all(&kept);
            copy_tree(&self.folder.join(folder), &kept).unwrap();
        }
    }

    pub(crate) fn lay(&self, name: &str) {
        for folder in self.act.folders() {
            let here = self.folder.join(folder);
            fs::remove_dir_all(&here).unwrap();
            copy_tree(&self.folder.join(format!("{folder}.{name}")), &here).unwrap();
        }
    }

    fn command(&self, args: &[&str]) -> Program {
        let mut env: Vec<(OsString, OsString)> = vec![
            ("SAFEPOINT_HOME".into(), self.home().into()),
            ("HOME".into(), self.folder.clone().into()),
            // One thread: the calls have the same order in every run.
            ("RAYON_NUM_THREADS".into(), "1".into()),
        ];
        if !self.without.is_empty() {
            env.push(("SAFEPOINT_TEST_WITHOUT".into(), self.without.into()));
        }
        env.extend(profile(self.profiled));
        // A planted bug applies to the program, too.
        let planted = std::env::var_os("SAFEPOINT_PLANTED");
        env.extend(planted.map(|bug| (OsString::from("SAFEPOINT_PLANTED"), bug)));
        let exe = PathBuf::from(env!("CARGO_BIN_EXE_safepoint"));
        let args = args.iter().map(OsString::from).collect();
        Program { exe, args, env, cwd: self.project() }
    }

    pub(crate) fn verb(&self) -> Program {
        match self.act {
            Act::Create | Act::Migrate => self.command(&["create", "-m", "second"]),
            Act::SaveState => self.save(),
            Act::Rollback
            | Act::RollbackMany
            | Act::RollbackPlan
            | Act::RollbackThread
            | Act::RollbackBound => self.command(&["rollback", "@"]),
            Act::RollbackTogether => self.command(&["rollback", &self.target.to_string()]),
            Act::CorrectPlan => self.command(&["plan", "correct", PLAN, "--mode", "revert"]),
            Act::ApplyPlan => self.command(&["plan", "apply", PLAN]),
            Act::KeepAttempt => self.command(&["attempt", "keep", ATTEMPT]),
            Act::HardReset => self.command(&["rollback", "first", "--hard-reset", "--discard-uncommitted"]),
            Act::RollbackRepository => self.command(&["rollback", "@", "--part", "git"]),
            Act::RollbackWithRepository => {
                self.command(&["rollback", "@", "--part", "files", "--part", "git", "--discard-uncommitted"])
            }
            Act::Undo => self.command(&["undo", "--yes"]),
            Act::Search => self.command(&["rollback", "--until", CHECK, "--copy"]),
            Act::SearchInOverlay => self.command(&["rollback", "--until", CHECK]),
            Act::SearchInPlace => self.command(&["rollback", "--until", CHECK, "--in-place"]),
        }
    }

    /// Returns true if the command reported success. A client library looks at the answer, not at the exit status.
    pub(crate) fn reported_success(&self, code: i32) -> bool {
        let answers = || fs::read(self.folder.join("answers")).unwrap();
        let done = |text: &[u8]| text.windows(8).any(|window| window == b"\"result\"");
        // The answer to the first message has a result, too.
        let of_save = |text: &[u8]| {
            let at = text.windows(6).rposition(|window| window == b"\"id\":2");
            at.is_some() && done(text) && !text.windows(7).any(|window| window == b"\"error\"")
        };
        code == 0 && (self.act != Act::SaveState || of_save(&answers()))
    }

    /// A client library's process, with the frames as its input.
    fn save(&self) -> Program {
        let program = self.command(&[]);
        let line = "exec \"$0\" rpc < ../frames > ../answers";
        let args = ["-c".into(), line.into(), program.exe.clone().into()].into();
        Program { exe: PathBuf::from("/bin/sh"), args, ..program }
    }

    pub(crate) fn recovery(&self) -> Program {
        self.command(&["recover"])
    }

    pub(crate) fn open(&self) -> (CheckpointManager, Workspace) {
        let manager = CheckpointManager::open(&self.home()).unwrap();
        let workspace = manager.workspaces().around(&self.project()).unwrap().unwrap();
        (manager, workspace)
    }

    /// Returns true if this machine tries the candidates of a search in an overlay.
    pub(crate) fn has_overlay(&self) -> bool {
        let search = self.command(&["rollback", "--until", CHECK, "--dry-run", "--json"]);
        let End::Exited { stdout, .. } = kill_at(&search, u64::MAX).unwrap() else { panic!("it was killed") };
        let answer: Value = serde_json::from_slice(&stdout).unwrap();
        answer["data"]["tried_in"] == "overlay"
    }

    /// Law: of a search in an overlay no room, no mount, no process and no record of a candidate is left.
    fn law_of_overlay(&self, manager: &CheckpointManager, workspace: &Workspace) -> Result<(), String> {
        let rooms = fs::read_dir(self.home().join("attempts")).map_or(0, Iterator::count);
        if rooms != 0 {
            return Err(format!("{rooms} rooms are left"));
        }
        let folder = self.folder.display().to_string();
        let is_of_room = |line: &str| line.contains("safepoint-attempt:") && line.contains(&folder);
        for process in fs::read_dir("/proc").unwrap().flatten() {
            // A process that has just ended has no mounts.
            let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
            if let Some(line) = mounts.lines().find(|line| is_of_room(line)) {
                return Err(format!("{} has a mount of the room: {line}", process.path().display()));
            }
        }
        let records = manager.rollbacks(workspace).map_err(|error| error.to_string())?;
        let tried = records[self.rollbacks..].iter().filter(|record| record.state != RollbackState::Refused);
        match tried.count() {
            0 | 1 => Ok(()),
            count => Err(format!("{count} rollbacks are on record")),
        }
    }

    /// Law: an attempt is kept and without a room if the files are new, else open with its room.
    fn law_of_attempt(
        &self,
        manager: &CheckpointManager,
        workspace: &Workspace,
        is_new: bool,
    ) -> Result<(), String> {
        let found = manager.attempts().find(workspace, ATTEMPT);
        let state = found.map_err(|error| format!("{error}: {error:?}"))?.state;
        let expected = if is_new { AttemptState::Kept } else { AttemptState::Open };
        if state != expected {
            return Err(format!("the files say {expected}, and the attempt is {state}"));
        }
        let rooms = fs::read_dir(self.home().join("attempts")).map_or(0, Iterator::count);
        if rooms != usize::from(!is_new) {
            return Err(format!("the attempt is {state}, and has {rooms} rooms"));
        }
        Ok(())
    }

    /// Law: exactly old or exactly new, files and database together, and every checkpoint intact.
    /// With `must_be_new` only the new state is valid: the command had reported success. Returns the
    /// violation.
    pub(crate) fn law(&self, must_be_new: bool) -> Result<bool, String> {
        let failed = |error: safepoint::Error| format!("{error}: {error:?}");
        let manager = CheckpointManager::open(&self.home()).map_err(failed)?;
        let workspace = manager
            .workspaces()
            .around(&self.project())
            .map_err(failed)?
            .ok_or("the workspace is not on record")?;
        if manager.upkeep().catalog_standing() != safepoint::CatalogStanding::Known {
            return Err(format!(
                "the store does not know its catalog: {:?}",
                manager.upkeep().catalog_standing()
            ));
        }
        let mut recovery = manager.recover(&workspace, &Silent).map_err(failed)?;
        // A program started by another test may hold a file until its exec, so this retries.
        for _ in 0..100 {
            if recovery.waiting.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            recovery = manager.recover(&workspace, &Silent).map_err(failed)?;
        }
        if !recovery.rescued.is_empty() || !recovery.warnings.is_empty() {
            return Err(format!("nobody edited anything: {recovery:?}"));
        }
        let now = image(&self.project());
        let is_new = self.is_new(&manager, &workspace).map_err(failed)?;
        let expected = if is_new { &self.new } else { &self.old };
        let difference = now.difference(expected);
        if !difference.is_empty() {
            return Err(format!(
                "the database says {}, and the tree differs: {difference:#?}",
                if is_new { "new" } else { "old" }
            ));
        }
        for ([old, new], name) in self.others.iter().zip(OTHERS) {
            let difference = image(&self.folder.join(name)).difference(if is_new { new } else { old });
            if !difference.is_empty() {
                return Err(format!("{name} is not {}: {difference:#?}", if is_new { "new" } else { "old" }));
            }
        }
        if !self.others.is_empty() {
            let model = manager.agents().get("claude").map_err(failed)?.agent.settings["model"].clone();
            if model != if is_new { "then" } else { "now" } {
                return Err(format!("the agent is not as the files are: {model}"));
            }
        }
        if let Some(plans) = &self.plans
            && manager.plans().get(PLAN).map_err(failed)?.plan != plans[usize::from(is_new)]
        {
            return Err(format!("the files are {}, and the plan is not", if is_new { "new" } else { "old" }));
        }
        if let Some(session) = self.session {
            let status = manager.sessions().get(session).map_err(failed)?.status;
            if status != SESSION[usize::from(is_new)] {
                return Err(format!("the session is not as the files are: {status}"));
            }
        }
        if matches!(self.act, Act::RollbackThread | Act::SaveState) {
            let head = manager.threads().of(workspace.id).get(THREAD, "", None).map_err(failed)?;
            let head = head.ok_or("the thread has no head")?;
            let expected = usize::from(is_new == (self.act == Act::SaveState));
            if head.id != STATES[expected] {
                return Err(format!(
                    "the files are {}, and the head is {}",
                    if is_new { "new" } else { "old" },
                    head.id
                ));
            }
            if head.channels["messages"].value != state(expected).values["messages"] {
                return Err("the conversation has other values".to_owned());
            }
            if head.files_pruned {
                return Err("the state names a checkpoint that is not there".to_owned());
            }
        }
        if self.act == Act::KeepAttempt {
            self.law_of_attempt(&manager, &workspace, is_new)?;
        }
        if self.act == Act::SearchInOverlay {
            self.law_of_overlay(&manager, &workspace)?;
        }
        if must_be_new && !is_new {
            return Err("it had said that it was done, and it is not".to_owned());
        }
        if self.project().join(".safepoint").exists() {
            return Err("something is left in .safepoint".to_owned());
        }
        if fs::read_dir(self.home().join("scratch")).is_ok_and(|left| left.count() > 0) {
            return Err("a copy is left in the home".to_owned());
        }
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        for checkpoint in manager.checkpoints().list(&filter).map_err(failed)? {
            let validation =
                manager.upkeep().validate(Some(&checkpoint), Depth::Deep, &Silent).map_err(failed)?;
            if !validation.is_valid() {
                return Err(format!("checkpoint {} is not whole: {:?}", checkpoint.id, validation.damaged));
            }
        }
        Ok(is_new)
    }

    /// Returns true if the database records the new state.
    fn is_new(&self, manager: &CheckpointManager, workspace: &Workspace) -> Result<bool, safepoint::Error> {
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        if matches!(self.act, Act::Create | Act::Migrate | Act::SaveState) {
            return Ok(manager.checkpoints().list(&filter)?.len() > self.checkpoints);
        }
        let verb = match self.act {
            Act::Undo => Verb::Undo,
            Act::ApplyPlan | Act::KeepAttempt => Verb::Apply,
            _ => Verb::Rollback,
        };
        let rollbacks = manager.rollbacks(workspace)?;
        Ok(rollbacks[self.rollbacks..].iter().any(|record| {
            record.verb == verb && matches!(record.state, RollbackState::Done | RollbackState::Settled)
        }))
    }

    /// Checks that the command works now, and every checkpoint is reachable.
    pub(crate) fn goes_on(&self) {
        let (manager, workspace) = self.open();
        let filter = Filter { role: RoleFilter::Any, workspace: Some(workspace.id), ..Filter::default() };
        let now = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
        let image_now = image(&self.project());
        for checkpoint in manager.checkpoints().list(&filter).unwrap() {
            manager.rollback(&workspace, checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
        }
        if self.act == Act::RollbackTogether {
            manager.rollback(None, self.target, &RollbackOptions::default(), &Silent).unwrap();
        }
        manager.rollback(&workspace, now, &RollbackOptions::default(), &Silent).unwrap();
        assert!(image(&self.project()).difference(&image_now).is_empty());
    }
}

fn image(project: &Path) -> TreeImage {
    TreeImage::read(project, &[".safepoint"]).unwrap()
}
