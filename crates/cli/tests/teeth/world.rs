//! Home and project to test a law in, and the program.

use safepoint_testkit::Program;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) struct World {
    folder: tempfile::TempDir,
}

/// Planted bug for every program that is started.
pub(crate) fn planted() -> Option<(OsString, OsString)> {
    let bug = std::env::var_os(safepoint_planted::VARIABLE)?;
    Some((safepoint_planted::VARIABLE.into(), bug))
}

impl World {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("project").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path("project").join(name)).unwrap_or_default()).into_owned()
    }

    pub(crate) fn program(&self, args: &[&str]) -> Program {
        let mut env: Vec<(OsString, OsString)> = vec![
            ("SAFEPOINT_HOME".into(), self.path("home").into()),
            ("HOME".into(), self.folder.path().into()),
            ("RAYON_NUM_THREADS".into(), "1".into()),
            ("SAFEPOINT_TEST_LOCK_WAIT_MS".into(), "50".into()),
            ("LLVM_PROFILE_FILE".into(), "/dev/null".into()),
        ];
        env.extend(planted());
        let exe = PathBuf::from(env!("CARGO_BIN_EXE_safepoint"));
        Program { exe, args: args.iter().map(OsString::from).collect(), env, cwd: self.path("project") }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let Program { exe, args, env, cwd } = self.program(args);
        let mut command = Command::new(exe);
        command.args(args).env_clear().envs(env).current_dir(cwd);
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        self.output(args).status.code().unwrap()
    }

    /// Returns the JSON output of a command, even of a failed one.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.output(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Creates a checkpoint.
    pub(crate) fn create(&self) -> String {
        self.run(&["create", "-q", "--kind", "manual"]).trim().to_owned()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.code(&["validate", "@", "--deep"]) == 0
    }

    /// Checks every checkpoint.
    pub(crate) fn check_whole(&self) {
        for checkpoint in self.json(&["list", "--all"])["data"]["checkpoints"].as_array().unwrap() {
            let id = checkpoint["id"].as_str().unwrap();
            let output = self.output(&["validate", id, "--deep"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

/// Returns incompressible bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
