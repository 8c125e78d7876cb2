//! Shared programs and folders of the tests.

use std::path::Path;

use safepoint_testkit::Program;

/// Returns a shell script to run in `dir`.
pub fn sh(dir: &Path, script: &str) -> Program {
    Program {
        exe: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("LC_ALL".into(), "C".into())],
        cwd: dir.to_path_buf(),
    }
}

/// Returns the helper with several threads, on `dir`.
pub fn threads(dir: &Path, count: usize) -> Program {
    Program {
        exe: env!("CARGO_BIN_EXE_testkit-helper").into(),
        args: vec!["threads".into(), dir.into(), count.to_string().into()],
        env: Vec::new(),
        cwd: dir.to_path_buf(),
    }
}

/// Returns the sorted names in a folder.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Empties a folder.
pub fn clear(dir: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
}

/// Returns the helper with a command for `dir`.
pub fn helper(word: &str, dir: &Path) -> Program {
    Program {
        exe: env!("CARGO_BIN_EXE_testkit-helper").into(),
        args: vec![word.into(), dir.into()],
        env: Vec::new(),
        cwd: dir.to_path_buf(),
    }
}
