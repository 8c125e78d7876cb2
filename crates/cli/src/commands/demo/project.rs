//! Project of the demo: creates it, wrecks it, and reads it without Safepoint.

#![allow(clippy::disallowed_methods, reason = "the demo makes and breaks a temporary folder of its own")]

use crate::problem::Problem;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Every path with its mode and content: the target of a link, nothing for a directory.
pub(super) type Picture = BTreeMap<PathBuf, (u32, Vec<u8>)>;

pub(super) fn temporary_folder() -> Result<TempDir, Problem> {
    let made = tempfile::Builder::new().prefix("safepoint-demo-").tempdir();
    made.map_err(|source| Problem::temporary_folder(&std::env::temp_dir(), &source))
}

pub(super) struct Project {
    root: PathBuf,
}

impl Project {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn make(&self) -> Result<(), Problem> {
        self.try_make().map_err(|source| Problem::temporary_folder(&self.root, &source))
    }

    fn try_make(&self) -> io::Result<()> {
        for folder in ["src/api", "src/web", "docs", "scripts", "build", ".git"] {
            fs::create_dir_all(self.root.join(folder))?;
        }
        for (folder, count) in [("src", 4), ("src/api", 12), ("src/web", 9), ("docs", 5)] {
            for number in 1..=count {
                let text = format!("// {folder}, file {number}\n").repeat(10 * number);
                fs::write(self.root.join(folder).join(format!("part_{number:02}.rs")), text)?;
            }
        }
        fs::write(self.root.join("README.md"), "# The shop\n\nSells things.\n")?;
        fs::write(self.root.join("shop.toml"), "[payments]\nenabled = true\nretries = 3\n")?;
        fs::write(self.root.join("logo.bin"), (0..=255u8).cycle().take(20_000).collect::<Vec<_>>())?;
        fs::write(self.root.join(".safepointignore"), "build/\n")?;
        fs::write(self.root.join("build/output.o"), "made by the compiler\n")?;
        fs::write(self.root.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        let script = self.root.join("scripts/deploy.sh");
        fs::write(&script, "#!/bin/sh\necho deployed\n")?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        symlink("docs/part_01.rs", self.root.join("start-here"))
    }

    pub(super) fn wreck(&self) -> Result<(), Problem> {
        self.try_wreck().map_err(|source| Problem::temporary_folder(&self.root, &source))
    }

    fn try_wreck(&self) -> io::Result<()> {
        fs::remove_dir_all(self.root.join("src"))?;
        fs::write(self.root.join("shop.toml"), "[payments]\nenabled = false\n")?;
        fs::set_permissions(self.root.join("scripts/deploy.sh"), Permissions::from_mode(0o644))?;
        fs::remove_file(self.root.join("start-here"))?;
        fs::write(self.root.join("start-here"), "no longer a link\n")?;
        for number in 1..=3 {
            fs::write(self.root.join(format!("tmp_{number}.log")), "junk\n".repeat(100))?;
        }
        Ok(())
    }

    /// Writes the file that a step of the plan needs.
    pub(super) fn fix(&self) -> Result<(), Problem> {
        let rules = self.root.join("src/discount/rules.rs");
        fs::write(rules, "// at most half the price\n")
            .map_err(|source| Problem::temporary_folder(&self.root, &source))
    }

    /// Reads the project anew, without the paths that checkpoints leave out.
    pub(super) fn picture(&self) -> Result<Picture, Problem> {
        let mut picture = Picture::new();
        look(&self.root, &self.root, &mut picture)
            .map_err(|source| Problem::temporary_folder(&self.root, &source))?;
        Ok(picture)
    }
}

fn look(root: &Path, folder: &Path, picture: &mut Picture) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
        if ["build", ".git", ".safepoint"].iter().any(|left_out| below == Path::new(left_out)) {
            continue;
        }
        let facts = path.symlink_metadata()?;
        let content = if facts.is_symlink() {
            fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
        } else if facts.is_dir() {
            look(root, &path, picture)?;
            Vec::new()
        } else {
            fs::read(&path)?
        };
        picture.insert(below, (facts.permissions().mode(), content));
    }
    Ok(())
}
