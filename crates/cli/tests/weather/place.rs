//! Environment of a test: a project, a home and the program; and the required form of its output.

use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Prints that a test was skipped.
pub(crate) fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Name from bytes.
pub(crate) fn name(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns incompressible bytes, the same for the same seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

pub(crate) struct Place {
    base: PathBuf,
    program: PathBuf,
    user: Option<u32>,
    _folder: Option<TempDir>,
}

impl Place {
    /// Empty project.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { _folder: Some(folder), ..Self::on(&PathBuf::new()) }.settled()
    }

    /// Creates an empty project on a mounted file system.
    pub(crate) fn at(base: &Path) -> Self {
        Self::on(base).settled()
    }

    /// Creates an empty project for an ordinary user.
    pub(crate) fn ordinary() -> Self {
        let mut place = Self::new();
        place.program = place.path("safepoint");
        // Copied by another process: a program started by another thread would inherit the open file, and a
        // file open for writing cannot be run (ETXTBSY).
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_safepoint")).arg(&place.program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&place.base, fs::Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            place.user = Some(NOBODY);
            for path in [place.base.clone(), place.project(), place.path("user")] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        place
    }

    fn on(base: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_safepoint").into();
        Self { base: base.to_owned(), program, user: None, _folder: None }
    }

    fn settled(mut self) -> Self {
        if let Some(folder) = &self._folder {
            self.base = folder.path().canonicalize().unwrap();
        }
        for name in ["project", "user"] {
            fs::create_dir_all(self.path(name)).unwrap();
        }
        self
    }

    /// Returns true if the program runs as an ordinary user.
    pub(crate) fn is_ordinary(&self) -> bool {
        self.user.is_some()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.base.join(below)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.project().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    /// Reads everything in the project; no leftovers of Safepoint may be there either.
    pub(crate) fn image(&self) -> TreeImage {
        TreeImage::read(&self.project(), &[]).unwrap()
    }

    /// Command in the project.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().current_dir(self.project());
        command.env("HOME", self.path("user")).env("USER", "tester").env("NO_COLOR", "1");
        command.env("SAFEPOINT_HOME", self.path("home"));
        if let Some(file) = std::env::var_os("LLVM_PROFILE_FILE") {
            // An ordinary user cannot write there; those counters are lost.
            let nowhere = self.user.map(|_| "/dev/null".into());
            command.env("LLVM_PROFILE_FILE", nowhere.unwrap_or(file));
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> Answer {
        let json = OsStr::new("--json");
        let args: Vec<&OsStr> = std::iter::once(json).chain(args.iter().map(AsRef::as_ref)).collect();
        Answer::of(&args, &self.command(&args).output().unwrap())
    }

    /// Runs a shell script as the program's user.
    pub(crate) fn shell(&self, script: &str) {
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", script]).current_dir(self.project());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Creates a checkpoint.
    #[track_caller]
    pub(crate) fn create(&self) -> String {
        let data = self.run(&["create", "--kind", "manual"]).succeeds();
        data["checkpoint"]["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn rollback(&self, to: &str) -> Value {
        self.run(&["rollback", to]).succeeds()
    }

    /// Checks a refusal: this exit code and error code, with a hint and without changes.
    #[track_caller]
    pub(crate) fn refuses(&self, args: &[impl AsRef<OsStr>], exit: i32, code: &str) -> Answer {
        let before = self.image();
        let answer = self.run(args);
        answer.fails(exit, code);
        assert_same(&self.image(), &before);
        answer
    }

    /// Rolls back, undoes and rolls back again, and compares each state.
    #[track_caller]
    pub(crate) fn goes_to_and_fro(&self, id: &str, then: &TreeImage) {
        let now = self.image();
        self.rollback(id);
        assert_same(&self.image(), then);
        self.run(&["undo", "--yes"]).succeeds();
        assert_same(&self.image(), &now);
        self.run(&["redo", "--yes"]).succeeds();
        assert_same(&self.image(), then);
    }

    /// Checks every byte of every checkpoint.
    #[track_caller]
    pub(crate) fn is_whole(&self) {
        let data = self.run(&["validate", "--deep"]).succeeds();
        assert_eq!(data["is_valid"], true, "{data:#}");
    }

    /// Returns the labels of requested checkpoints, newest first.
    #[track_caller]
    pub(crate) fn labels(&self) -> Vec<String> {
        let data = self.run(&["list", "-n", "1000"]).succeeds();
        let taken = data["checkpoints"].as_array().unwrap().iter().filter(|it| it["role"].is_null());
        taken.map(|it| it["label"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[track_caller]
pub(crate) fn assert_same(now: &TreeImage, expected: &TreeImage) {
    let difference = expected.difference(now);
    assert!(difference.is_empty(), "unexpected state: {difference:#?}");
}

/// Output of the program, and its end.
pub(crate) struct Answer {
    pub(crate) what: String,
    /// Exit code as in a shell: 128 plus the signal that ended it.
    pub(crate) exit: i32,
    pub(crate) json: Value,
    pub(crate) errors: String,
}

impl Answer {
    pub(crate) fn of(args: &[impl AsRef<OsStr>], output: &Output) -> Self {
        let what = args.iter().map(|arg| format!("{:?} ", arg.as_ref())).collect();
        let exit = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
        let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        Self { what, exit, json, errors: String::from_utf8_lossy(&output.stderr).into_owned() }
    }

    pub(crate) fn data(&self) -> &Value {
        &self.json["data"]
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Value {
        assert_eq!(self.exit, 0, "{}\n{}\n{:#}", self.what, self.errors, self.json);
        self.json["data"].clone()
    }

    /// Returns the error code after checking the form of the error: the attempt, the reason, a hint.
    #[track_caller]
    pub(crate) fn is_a_clear_error(&self) -> &str {
        let Self { what, errors, json, .. } = self;
        assert!(errors.contains("error: cannot "), "missing attempt: {what}\n{errors}\n{json:#}");
        let error = &json["error"];
        assert!(
            error["message"].as_str().is_some_and(|it| !it.is_empty()),
            "missing reason: {what}\n{json:#}"
        );
        let hints = error["hints"].as_array().unwrap();
        let useful = |hint: &Value| hint.as_str().is_some_and(|hint| !hint.is_empty());
        assert!(!hints.is_empty() && hints.iter().all(useful), "missing hint: {what}\n{json:#}");
        assert_eq!((&json["status"], &json["exit_code"]), (&"error".into(), &self.exit.into()), "{what}");
        error["code"].as_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn fails(&self, exit: i32, code: &str) {
        assert_eq!(self.exit, exit, "{}\n{}\n{:#}", self.what, self.errors, self.json);
        assert_eq!(self.is_a_clear_error(), code, "{}\n{}", self.what, self.errors);
    }
}
