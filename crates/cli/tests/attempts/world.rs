//! A project, a home, a user, and the program.

use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Ids of `nobody`.
const NOBODY: u32 = 65_534;

/// User who runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Own,
    Nobody,
}

impl User {
    /// Returns true if this test can act as the user.
    pub(crate) fn is_possible(self) -> bool {
        self == User::Own || rustix::process::geteuid().is_root()
    }
}

/// Means of sharing files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    Best,
    Copy,
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) user: User,
    pub(crate) program: PathBuf,
    /// Safepoint's home.
    pub(crate) home: PathBuf,
    _temporary: TempDir,
}

impl World {
    pub(crate) fn new(user: User) -> Self {
        Self::with(None, user)
    }

    /// In a folder that exists, such as a mount point.
    pub(crate) fn at(folder: &Path, user: User) -> Self {
        Self::with(Some(folder), user)
    }

    fn with(folder: Option<&Path>, user: User) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let own = temporary.path().canonicalize().unwrap();
        let place = folder.map_or_else(|| own.clone(), |folder| folder.canonicalize().unwrap());
        for folder in [&own, &place] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // The folder of the build may be closed to other users. The program may be larger than a small file system.
        let (built, program) = (env!("CARGO_BIN_EXE_safepoint"), own.join("safepoint"));
        if fs::hard_link(built, &program).is_err() {
            fs::copy(built, &program).unwrap();
        }
        let folder = place.join("world");
        let home = folder.join("home");
        let world = Self { folder, user, program, home, _temporary: temporary };
        fs::create_dir(&world.folder).unwrap();
        world.own(&world.folder);
        fs::create_dir(world.project()).unwrap();
        world.own(&world.project());
        world
    }

    /// Gives an entry to the user.
    pub(crate) fn own(&self, path: &Path) {
        if self.user == User::Nobody {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.join("project")
    }

    /// A command as the user, in the project.
    pub(crate) fn program(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = match self.user {
            User::Own => Command::new(program),
            User::Nobody => {
                let mut command = Command::new("setpriv");
                let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
                command.args(ids).arg("--clear-groups").arg(program);
                command
            }
        };
        command.args(args).current_dir(self.project()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", &self.folder).env("SAFEPOINT_HOME", &self.home);
        // Else a program that counts its lines writes the counters into the project.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        command
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(&self.program, args)
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The answer as JSON, whatever the exit status.
    pub(crate) fn answer(&self, args: &[&str]) -> Value {
        let output = self.output(&[&["--json"], args].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The data of a command that must succeed.
    pub(crate) fn run(&self, args: &[&str]) -> Value {
        let answer = self.answer(args);
        assert_eq!(answer["status"], "ok", "{args:?}: {answer:#}");
        answer["data"].clone()
    }

    /// Runs a shell line as the user, outside of any attempt.
    pub(crate) fn shell(&self, line: &str, folder: &Path) {
        let status = self.program(Path::new("/bin/sh"), &["-c", line]).current_dir(folder).status().unwrap();
        assert!(status.success(), "{line}");
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        if let Some(above) = path.parent().filter(|above| !above.exists()) {
            fs::create_dir_all(above).unwrap();
            self.own(above);
        }
        fs::write(&path, text).unwrap();
        self.own(&path);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project().join(name)).unwrap()
    }

    pub(crate) fn image(&self, folder: &Path) -> TreeImage {
        TreeImage::read(folder, &[".safepoint"]).unwrap()
    }

    /// Folders of rooms in the home.
    pub(crate) fn rooms(&self) -> usize {
        fs::read_dir(self.home.join("attempts")).map_or(0, Iterator::count)
    }

    /// Starts an attempt.
    pub(crate) fn start(&self, name: &str, means: Means) -> Value {
        let mut args = vec!["attempt", "start", name];
        args.extend((means == Means::Copy).then_some("--copy"));
        self.run(&args)["attempt"].clone()
    }

    /// The folder in which a command of the attempt finds the project.
    pub(crate) fn place(&self, attempt: &Value) -> PathBuf {
        match attempt["kind"].as_str().unwrap() {
            "overlay" => self.project(),
            _ => Path::new(attempt["room"].as_str().unwrap()).join("tree/project"),
        }
    }

    /// Returns true if this machine gives the user an overlay.
    pub(crate) fn has_overlay(&self) -> bool {
        let attempt = self.start("probe", Means::Best);
        self.run(&["attempt", "drop", "probe"]);
        attempt["kind"] == "overlay"
    }
}

/// Numbers that depend on a seed alone (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
