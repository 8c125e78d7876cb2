//! Other ways to try edits without the project.

use super::{Task, Way, lasts};
use crate::failure::{Failure, Result, Tried};
use crate::ground::{copy_tree, remove};
use crate::image::Image;
use crate::measure::Cmd;
use crate::tools::on_path;
use safepoint_testkit::blocks::{Filesystem, Mounts};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Shell command in a folder, without the user's settings of git.
fn shell(line: &str, folder: &Path) -> Cmd {
    let command = Cmd::new(Path::new("/bin/sh"), folder).args(["-ec", line]);
    let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    ["AUTHOR", "COMMITTER"].iter().fold(command, |command, who| {
        command.env(&format!("GIT_{who}_NAME"), "bench").env(&format!("GIT_{who}_EMAIL"), "bench@example.org")
    })
}

/// `git worktree add`, and a copy of the ignored files.
pub(super) struct Worktree {
    project: PathBuf,
    tree: PathBuf,
    ignored: PathBuf,
}

impl Worktree {
    /// Makes a repository of the tree in which one folder is ignored.
    pub(super) fn make(ground: &Path, tree: &Path, ignored: &Path) -> Result<Box<dyn Way>> {
        if on_path("git").is_none() {
            return Err(Failure::new("git is not installed"));
        }
        let project = ground.join("git-project");
        copy_tree(tree, &project)?;
        let line = format!(
            "git init -q; git config gc.auto 0; git config feature.manyFiles true; git config core.untrackedCache true
             echo /{}/ > .git/info/exclude; git add -A; git commit -q -m base; git tag base",
            ignored.display()
        );
        shell(&line, &project).output()?;
        Ok(Box::new(Self { project, tree: ground.join("git-worktree"), ignored: ignored.to_owned() }))
    }
}

impl Way for Worktree {
    fn name(&self) -> &'static str {
        "git worktree and cp"
    }

    fn lacks(&self) -> &'static str {
        "another path; ignored files are no part of the result; flushes nothing"
    }

    fn project(&self) -> &Path {
        &self.project
    }

    fn run(&mut self, task: &Task) -> Result<(f64, Option<f64>)> {
        let (tree, ignored) = (self.tree.display(), self.ignored.display());
        let line = format!(
            "git worktree add -q --detach {tree} HEAD; cp -a {ignored} {tree}/{ignored}; cd {tree}; exec {}",
            task.words()?.join(" ")
        );
        let (start, end) = task.run(&shell(&line, &self.project), None)?;
        let result = lasts(&shell("git add -A; git commit -q -m result", &self.tree))?;
        Ok((start, Some(end + result)))
    }

    fn keep(&mut self, _: &Task) -> Result<Option<f64>> {
        let line = format!("git merge -q --ff-only $(git -C {} rev-parse HEAD)", self.tree.display());
        lasts(&shell(&line, &self.project)).map(Some)
    }

    fn back(&mut self, _: &Task) -> Result<()> {
        let line = format!("git reset -q --hard base; git worktree remove --force {}", self.tree.display());
        shell(&line, &self.project).output().map(drop)
    }
}

/// `cp -a --reflink=always` on a new XFS in a file.
pub(super) struct Reflink {
    project: PathBuf,
    copy: PathBuf,
    /// Unmounts at the end, before the mount point is deleted.
    _mounts: Mounts,
    _place: TempDir,
}

impl Reflink {
    /// Mounts an XFS and copies the tree into it.
    pub(super) fn make(ground: &Path, tree: &Path, image: &Image) -> Result<Box<dyn Way>> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new("mounting an XFS needs root"));
        }
        let disk = ground.join("xfs.img");
        let failed = || format!("making an XFS in {}", disk.display());
        // Blocks, inodes and the log beside the content.
        let bytes = (1 << 30) + 2 * image.bytes() + 16_384 * image.files().len() as u64;
        File::create(&disk).and_then(|file| file.set_len(bytes)).tried(failed)?;
        let made = Command::new("mkfs.xfs").arg("-q").arg(&disk).status().tried(failed)?;
        if !made.success() {
            return Err(Failure::new(format!("{}: {made}", failed())));
        }
        // `try` can lay no overlay over a folder with mounts in it, such as the one above the working folder.
        let place = tempfile::Builder::new().prefix("safepoint-bench-").tempdir_in("/mnt").tried(failed)?;
        let point = place.path().to_owned();
        let mounts =
            Mounts::mount(Filesystem::Xfs, std::slice::from_ref(&disk), std::slice::from_ref(&point))
                .tried(failed)?;
        let (project, copy) = (point.join("project"), point.join("copy"));
        copy_tree(tree, &project)?;
        Ok(Box::new(Self { project, copy, _mounts: mounts, _place: place }))
    }
}

impl Way for Reflink {
    fn name(&self) -> &'static str {
        "cp -a --reflink=always, XFS"
    }

    fn lacks(&self) -> &'static str {
        "another path; no result, no command to keep it; flushes nothing"
    }

    fn project(&self) -> &Path {
        &self.project
    }

    fn run(&mut self, task: &Task) -> Result<(f64, Option<f64>)> {
        let (project, copy) = (self.project.display(), self.copy.display());
        let line =
            format!("cp -a --reflink=always {project} {copy}; cd {copy}; exec {}", task.words()?.join(" "));
        Ok((task.run(&shell(&line, Path::new("/")), None)?.0, None))
    }

    fn keep(&mut self, _: &Task) -> Result<Option<f64>> {
        Ok(None)
    }

    fn result(&self) -> Option<&Path> {
        Some(&self.copy)
    }

    fn back(&mut self, _: &Task) -> Result<()> {
        remove(&self.copy)
    }
}

/// `try`, a shell script that lays an overlay over each folder of the root.
pub(super) struct Try {
    program: PathBuf,
    name: String,
    tree: PathBuf,
    project: PathBuf,
    sandbox: PathBuf,
}

impl Try {
    /// Copies the tree.
    pub(super) fn make(program: Option<&Path>, ground: &Path, tree: &Path) -> Result<Box<dyn Way>> {
        let program = program.map(Path::to_owned).or_else(|| on_path("try"));
        let program = program.ok_or_else(|| Failure::new("it is not installed; --try PATH names it"))?;
        let said = shell(&format!("{} -v 2>&1", program.display()), Path::new("/")).output()?;
        let Some(version) = said.trim().split_once("version ").map(|(_, version)| version.to_owned()) else {
            return Err(Failure::new(format!("{} is another program: {}", program.display(), said.trim())));
        };
        let project = ground.join("try-project");
        copy_tree(tree, &project)?;
        let (name, tree) = (format!("try {version}"), tree.to_owned());
        Ok(Box::new(Self { program, name, tree, project, sandbox: ground.join("try-sandbox") }))
    }

    fn command(&self, words: &str) -> Cmd {
        shell(&format!("{} {words}", self.program.display()), &self.project)
    }
}

impl Way for Try {
    fn name(&self) -> &str {
        &self.name
    }

    fn lacks(&self) -> &'static str {
        "keeps in place, file by file: a crash leaves a mixture; checks nothing, flushes nothing"
    }

    fn project(&self) -> &Path {
        &self.project
    }

    fn run(&mut self, task: &Task) -> Result<(f64, Option<f64>)> {
        remove(&self.sandbox)?;
        fs::create_dir(&self.sandbox).tried(|| format!("making {}", self.sandbox.display()))?;
        let sandbox = self.sandbox.display();
        let command = self.command(&format!("-N {sandbox} -- {}", task.words()?.join(" ")));
        let upper = self.sandbox.join("upperdir").join(task.marks.strip_prefix("/").unwrap_or(&task.marks));
        let (start, end) = task.run(&command, Some(&upper))?;
        let listed = lasts(&self.command(&format!("summary {sandbox}")))?;
        Ok((start, Some(end + listed)))
    }

    fn keep(&mut self, _: &Task) -> Result<Option<f64>> {
        // Nothing but the project.
        let (sandbox, project) = (self.sandbox.display(), self.project.display());
        lasts(&self.command(&format!("-y -I {project}/ commit {sandbox}"))).map(Some)
    }

    fn back(&mut self, task: &Task) -> Result<()> {
        for file in &task.files {
            let (from, to) = (self.tree.join(file), self.project.join(file));
            // Written in place, as the file has kept its mode.
            let bytes = fs::read(&from).tried(|| format!("reading {}", from.display()))?;
            fs::write(&to, bytes).tried(|| format!("writing {}", to.display()))?;
        }
        remove(&self.sandbox)
    }
}
