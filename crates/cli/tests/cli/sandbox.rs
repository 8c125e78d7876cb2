//! Isolated environment for the program: its own home, project, clock and ids.

use regex_lite::Regex;
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct Sandbox {
    folder: TempDir,
    runs: Cell<u32>,
    /// Width of terminals.
    pub(crate) columns: Cell<u16>,
}

impl Sandbox {
    /// Empty project.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Self { folder, runs: Cell::new(0), columns: Cell::new(80) };
        for name in ["project", "user"] {
            fs::create_dir(sandbox.path(name)).unwrap();
        }
        sandbox
    }

    /// Creates a project with files of every type, and its checkpoint "first".
    pub(crate) fn with_checkpoint() -> Self {
        let sandbox = Self::new();
        fs::create_dir_all(sandbox.path("project/src")).unwrap();
        fs::create_dir_all(sandbox.path("project/.git")).unwrap();
        fs::create_dir_all(sandbox.path("project/empty")).unwrap();
        sandbox.write("src/main.rs", "fn main() {\n    println!(\"one\");\n}\n");
        sandbox.write("notes.txt", "good\n");
        sandbox.write("run.sh", "#!/bin/sh\n");
        fs::set_permissions(sandbox.path("project/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("notes.txt", sandbox.path("project/link")).unwrap();
        assert_eq!(sandbox.output(&["create", "-m", "first"]).status.code(), Some(0));
        sandbox
    }

    /// Damages the project in every way.
    pub(crate) fn wreck(&self) {
        self.write("notes.txt", "bad\n");
        self.write("junk.log", "junk\n");
        fs::remove_file(self.path("project/src/main.rs")).unwrap();
    }

    /// The same, whatever is there already.
    pub(crate) fn wreck_all(&self) {
        self.write("src/main.rs", "");
        self.wreck();
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
        fs::read_to_string(self.path("project").join(name)).unwrap()
    }

    /// Command in the project, one minute after the last run.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let run = self.runs.get();
        self.runs.set(run + 1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path("user"))
            .env("USER", "tester")
            .env("NO_COLOR", "1")
            .env("TZ", "UTC")
            .env("SAFEPOINT_HOME", self.path("home"))
            .env("SAFEPOINT_TEST_NOW", format!("2026-01-31T{:02}:{:02}:00Z", 12 + run / 60, run % 60))
            .env("SAFEPOINT_TEST_SEED", run.to_string())
            .current_dir(self.path("project"));
        // A coverage file must not land in the project.
        if let Some(file) = std::env::var_os("LLVM_PROFILE_FILE") {
            command.env("LLVM_PROFILE_FILE", file);
        }
        command
    }

    pub(crate) fn output(&self, args: &[impl AsRef<OsStr>]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Returns the complete output of a run as text, without varying parts.
    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> String {
        self.told(&self.output(args))
    }

    pub(crate) fn told(&self, output: &Output) -> String {
        let mut told = self.steady(&String::from_utf8_lossy(&output.stdout));
        let errors = self.steady(&String::from_utf8_lossy(&output.stderr));
        if !errors.is_empty() {
            told.push_str("--- stderr\n");
            told.push_str(&errors);
        }
        told.push_str(&format!("--- exit {}\n", output.status.code().unwrap()));
        told
    }

    /// Returns the output on a terminal, of 80 columns by default; escapes are shown as `^[`.
    pub(crate) fn terminal(&self, command: Command) -> String {
        self.watched(command, &Person::Watches)
    }

    /// Output on a terminal with typed input.
    pub(crate) fn typed(&self, command: Command, text: &'static str) -> String {
        self.watched(command, &Person::Types(text))
    }

    /// Output on a terminal, with an interrupt once this text appears.
    pub(crate) fn interrupted(&self, command: Command, sign: &'static str) -> String {
        self.watched(command, &Person::StopsAt(sign))
    }

    fn watched(&self, mut command: Command, person: &Person) -> String {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap();
        let far = fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 40, ws_col: self.columns.get(), ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&far, size).unwrap();
        command.stdin(match person {
            Person::Watches => Stdio::null(),
            Person::Types(_) | Person::StopsAt(_) => Stdio::from(far.try_clone().unwrap()),
        });
        if let Person::Types(text) = person {
            rustix::io::write(&near, text.as_bytes()).unwrap();
        }
        command.stdout(far.try_clone().unwrap()).stderr(far);
        let mut child = command.spawn().unwrap();
        drop(command);
        let (mut seen, mut near, mut piece) = (Vec::new(), fs::File::from(near), [0; 4096]);
        // Reading fails once the last writer is gone.
        while let Ok(count @ 1..) = near.read(&mut piece) {
            seen.extend_from_slice(&piece[..count]);
            if matches!(person, Person::StopsAt(sign) if String::from_utf8_lossy(&seen).ends_with(&format!("{sign} ")))
            {
                rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            }
        }
        assert!(child.wait().unwrap().code().is_some());
        self.steady(&String::from_utf8_lossy(&seen).replace("\r\n", "\n").replace('\u{1b}', "^["))
    }

    /// JSON value on standard output.
    pub(crate) fn json(&self, args: &[impl AsRef<OsStr>]) -> Value {
        let output = self.output(args);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["exit_code"], output.status.code().unwrap(), "{value}");
        value
    }

    /// Returns the JSON as text without varying parts.
    pub(crate) fn json_text(&self, args: &[impl AsRef<OsStr>]) -> String {
        self.steady(&format!("{:#}", self.json(args)))
    }

    /// Replaces parts that depend on the machine or the time.
    fn steady(&self, text: &str) -> String {
        let mut text = text.replace(self.folder.path().to_str().unwrap(), "$T");
        for (pattern, shown) in [
            (r" *\d+(\.\d+)? ms", " N ms"),
            (r"by process \d+", "by process PID"),
            (r"(in|after) \d+\.\d s\b", "$1 N s"),
            (r#""duration_ms": ?\d+(\.\d+)?"#, "\"duration_ms\": N"),
            (r"\b[0-9a-f]{64}\b", "<hash>"),
            (r#""(size_bytes|pack_bytes)": \d+"#, "\"$1\": N"),
            (r"\d+(\.\d+)? k?B new in the store", "SIZE new in the store"),
            (r"\d+(\.\d+)? [kM]?B for all", "SIZE for all"),
            (r"(\+\d+ ~\d+ -\d+) +\d+(\.\d+)? k?B", "$1  SIZE"),
            (r"\d+(\.\d+)? k?B in the store", "SIZE in the store"),
            (r"objects?, \d+(\.\d+)? k?B\)", "objects, SIZE)"),
            (r"\d+(\.\d+)? [kMGTP]?B free", "SIZE free"),
            (r"objects, \d+(\.\d+)? k?B in", "objects, SIZE in"),
            (r"Freed \d+(\.\d+)? k?B", "Freed SIZE"),
            (r#""(freed_bytes|dead_bytes)": \d+"#, "\"$1\": N"),
            (r"up to \d+ at once", "up to N at once"),
            (r"version \d+\.\d+\.\d+, built in", "version N, built in"),
            (r"\(\d+ files and folders\) are yours", "(N files and folders) are yours"),
            (r#""checked": \{\s*"bytes": \d+"#, "\"checked\": { \"bytes\": N"),
            (r#""store": \{\s*"bytes": \d+"#, "\"store\": { \"bytes\": N"),
        ] {
            text = Regex::new(pattern).unwrap().replace_all(&text, shown).into_owned();
        }
        text
    }
}

/// Action of a user at a terminal.
enum Person {
    Watches,
    Types(&'static str),
    StopsAt(&'static str),
}

/// Name from bytes.
pub(crate) fn name(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
