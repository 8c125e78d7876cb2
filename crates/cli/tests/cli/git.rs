//! Checkpoints and git. The real `git` checks the results; without it, these tests print a message and end.

mod session;
mod whole;

use crate::sandbox::{Sandbox, name};
use insta::assert_snapshot;
use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Sandbox whose project is a repository with one commit.
struct Repository {
    sandbox: Sandbox,
}

fn git_is_there() -> bool {
    let there = Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIPPED: there is no git");
    }
    there
}

impl Repository {
    fn new() -> Option<Self> {
        Self::with(&["init", "-q", "-b", "main"])
    }

    fn with(init: &[&str]) -> Option<Self> {
        if !git_is_there() {
            return None;
        }
        let repository = Self { sandbox: Sandbox::new() };
        repository.git(init);
        repository.sandbox.write("a", "1\n");
        repository.sandbox.write("tool.sh", "#!/bin/sh\n");
        repository.mode("tool.sh", 0o755);
        symlink("a", repository.path("link")).unwrap();
        repository.sandbox.write(".gitignore", "*.log\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "one"]);
        Some(repository)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.sandbox.path("project").join(below)
    }

    fn mode(&self, below: &str, mode: u32) {
        fs::set_permissions(self.path(below), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn try_git_in(&self, folder: &Path, args: &[impl AsRef<OsStr>]) -> Output {
        Command::new("git")
            .args(args)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.sandbox.path("user"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_EDITOR", "true")])
            .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@b")])
            .envs([("GIT_AUTHOR_DATE", "1700000000 +0000"), ("GIT_COMMITTER_DATE", "1700000000 +0000")])
            .output()
            .unwrap()
    }

    fn git_in(&self, folder: &Path, args: &[impl AsRef<OsStr>]) -> String {
        let output = self.try_git_in(folder, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn git(&self, args: &[impl AsRef<OsStr>]) -> String {
        self.git_in(&self.path(""), args)
    }

    /// Checks the repository with `git fsck`.
    fn is_sound(&self) {
        self.git(&["fsck", "--full", "--strict"]);
    }

    /// Returns everything that must not move: HEAD, index, branches.
    fn place(&self) -> (Vec<u8>, Option<Vec<u8>>, String) {
        let read = |name: &str| fs::read(self.path(".git").join(name));
        let refs =
            self.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/remotes"]);
        (read("HEAD").unwrap(), read("index").ok(), refs)
    }

    /// Creates a commit checkpoint; returns its record.
    fn create(&self, more: &[&str]) -> Value {
        let args = [&["create", "--git", "--json"], more].concat();
        let answer = self.sandbox.json(&args);
        assert_eq!(answer["exit_code"], 0, "{answer:#}");
        answer["data"]["checkpoint"].clone()
    }

    fn listed(&self, commit: &str) -> Vec<String> {
        let all = self.git(&["ls-tree", "-r", commit]);
        all.lines().map(|line| format!("{} {}", &line[..6], line.split_once('\t').unwrap().1)).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn assert_same(now: &TreeImage, then: &TreeImage) {
    let differences = now.difference(then);
    assert!(differences.is_empty(), "{differences:?}");
}

fn exit(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_checkpoint_is_a_commit_and_branch_index_and_head_stay() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    sandbox.write("new/untracked", "u\n");
    sandbox.write("noise.log", "n\n");
    repository.mode("a", 0o755);
    repository.git(&["add", "a"]);
    let before = repository.place();
    let status = repository.git(&["status", "--porcelain"]);
    let checkpoint = repository.create(&["-m", "second state"]);
    assert_eq!(repository.place(), before);
    assert_eq!(repository.git(&["status", "--porcelain"]), status);
    repository.is_sound();
    let (sha, tag) = (text(&checkpoint["commit_sha"]), text(&checkpoint["tags"][0]));
    assert_eq!(tag, format!("checkpoint-{}", text(&checkpoint["id"])));
    assert_eq!(repository.git(&["rev-parse", &format!("refs/tags/{tag}")]), sha);
    assert_eq!(checkpoint["commit_message"], "second state");
    assert_eq!(repository.git(&["cat-file", "-t", sha]), "commit");
    assert_eq!(repository.git(&["rev-parse", &format!("{sha}^")]), repository.git(&["rev-parse", "HEAD"]));
    assert_eq!(
        repository.git(&["log", "-1", "--format=%an <%ae>|%cn <%ce>|%s", sha]),
        "Safepoint <safepoint@localhost>|Safepoint <safepoint@localhost>|second state"
    );
    assert_eq!(
        repository.listed(sha),
        ["100644 .gitignore", "100755 a", "120000 link", "100644 new/untracked", "100755 tool.sh"]
    );
    assert_eq!(repository.git(&["cat-file", "-p", &format!("{sha}:new/untracked")]), "u");
    let clone = sandbox.path("clone");
    repository.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    repository.git_in(&clone, &["checkout", "-q", tag]);
    assert_eq!(fs::read_to_string(clone.join("link")).unwrap(), "2\n");
    assert!(fs::metadata(clone.join("tool.sh")).unwrap().permissions().mode() & 0o100 != 0);
}

#[test]
fn what_people_see() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    assert_snapshot!(sandbox.run(&["create", "--git", "-m", "second state"]), @r#"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF "second state"
      4 files and folders, 18 B; SIZE new in the store, N ms
      the first of this workspace
      commit 23c8493ab39d631d825fc93f67d2d008460d66df
      tag checkpoint-01KG9YS9EGCQT0DH2X3200JHAF
      left out:
        .git  git's own folder
    --- stderr
    Registered $T/project as a workspace.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["show", "@"]), @r#"
    Checkpoint 01KG9YS9EGCQT0DH2X3200JHAF
      label     second state
      created   2026-01-31 12:00:03Z, 57 seconds ago
      kind      manual, reason manual
      scope     project
      holds     4 files and folders, 18 B
      changed   +4 ~0 -0
      stored    SIZE new in the store
      commit    23c8493ab39d631d825fc93f67d2d008460d66df
      tag       checkpoint-01KG9YS9EGCQT0DH2X3200JHAF
      uuid      019c13ec-a5d0-65f4-06c4-5d188009454f
      integrity <hash>
      left out:
        .git  git's own folder
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["validate"]), @r#"
    Valid: everything is there (1 checkpoint, 11 objects, SIZE)
    Ready: a checkpoint of project would hold 4 files and folders, 18 B.
    Git: on main at fd479daa84; uncommitted: 0 staged, 1 modified, 0 untracked.
    Tests: not known, because no test command is configured.
    Read every byte, too, with --deep.
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "@", "--hard-reset"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "second state", taken 2 minutes ago
      0 files restored, 0 files removed, read back and verified, in N ms
      git: branch main, from fd479daa84 to 23c8493ab3, with index and files
      uncommitted changes (1 modified) are in the safety checkpoint 01KG9YYT6RN64SSTZ8MV851Q81
    Undo it with: safepoint undo
    --- exit 0
    "#);
    repository.git(&["commit", "-q", "--allow-empty", "-m", "another"]);
    sandbox.write("a", "3\n");
    assert_snapshot!(sandbox.run(&["rollback", "@"]), @r#"
    Rolled back to 01KG9YS9EGCQT0DH2X3200JHAF "second state", taken 3 minutes ago
      1 file restored, 0 files removed, read back and verified, in N ms
        ~ a  restored
    Undo it with: safepoint undo
    --- stderr
    warning: git is left as it is: HEAD was main at fd479daa84 when the checkpoint was taken, and is main at 769e29c85c now
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["rollback", "@", "--part", "git"]), @r#"
    Rolled back git to 01KG9YS9EGCQT0DH2X3200JHAF "second state", taken 4 minutes ago
      git: branch main, from 769e29c85c to fd479daa84, with the index; the files stay as they are
    Undo it with: safepoint undo
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["delete", "second state", "--yes"]), @r#"
    Deleted 1 checkpoint:
      01KG9YS9EGCQT0DH2X3200JHAF  5 minutes ago  second state
    Free the space that only they took: safepoint gc
    --- exit 0
    "#);
}

#[test]
fn the_branch_and_the_index_move_where_that_is_asked_for() {
    let Some(repository) = Repository::new() else { return };
    repository.sandbox.write("a", "2\n");
    repository.sandbox.write("untracked", "u\n");
    let checkpoint = repository.create(&["--commit-on-branch"]);
    assert_eq!(repository.git(&["rev-parse", "refs/heads/main"]), text(&checkpoint["commit_sha"]));
    assert_eq!(repository.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    assert!(repository.git(&["reflog", "-1"]).contains("safepoint: checkpoint"));
    repository.is_sound();
    // Without a branch, it creates a commit and a tag, and reports that.
    repository.git(&["checkout", "-q", "--detach"]);
    let answer = repository.sandbox.json(&["create", "--git", "--commit-on-branch", "--json"]);
    assert_eq!(answer["exit_code"], 3);
    assert!(
        answer["messages"].to_string().contains("the branch was not moved: HEAD is detached"),
        "{answer:#}"
    );
    assert!(answer["data"]["checkpoint"]["commit_sha"].is_string());
    let output = repository.sandbox.output(&["create", "--commit-on-branch"]);
    assert_eq!(exit(&output), 2, "--git is required");
}

#[test]
fn nothing_that_a_repository_configures_runs() {
    let Some(repository) = Repository::new() else { return };
    let trap = repository.sandbox.path("trap");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\nexit 1\n", trap.display());
    let program = repository.sandbox.path("trap.sh");
    fs::write(&program, &script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in [
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-checkout",
        "post-index-change",
        "post-rewrite",
        "pre-auto-gc",
    ] {
        fs::copy(&program, repository.path(".git/hooks").join(hook)).unwrap();
    }
    let command = program.to_str().unwrap();
    let included = repository.sandbox.path("included");
    fs::write(&included, "[user]\n\tname = Somebody Else\n").unwrap();
    let mut config = fs::read_to_string(repository.path(".git/config")).unwrap();
    config.push_str(&format!(
        "[filter \"trap\"]\n\tclean = {command}\n\tsmudge = {command}\n\tprocess = {command}\n\trequired = true\n\
         [commit]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n[gpg]\n\tprogram = {command}\n\
         [core]\n\tfsmonitor = {command}\n\teditor = {command}\n\tautocrlf = true\n\tpager = {command}\n\
         [include]\n\tpath = {}\n[user]\n\temail = who@example.com\n",
        included.display()
    ));
    fs::write(repository.path(".git/config"), config).unwrap();
    repository.sandbox.write(".gitattributes", "* filter=trap text\n");
    repository.sandbox.write("crlf", "one\r\ntwo\r\n");
    let checkpoint = repository.create(&["--commit-on-branch"]);
    let sha = text(&checkpoint["commit_sha"]);
    let output = repository.sandbox.output(&["rollback", "@", "--hard-reset", "--discard-uncommitted"]);
    assert_eq!(exit(&output), 0, "{output:?}");
    repository.sandbox.output(&["validate"]);
    assert!(!trap.exists(), "{}", fs::read_to_string(&trap).unwrap_or_default());
    let raw = repository.git(&["-c", "core.fsmonitor=false", "cat-file", "commit", sha]);
    assert!(!raw.contains("gpgsig"), "{raw}");
    assert!(raw.contains("author Safepoint <who@example.com>"), "{raw}");
    let blob = repository.try_git_in(&repository.path(""), &["cat-file", "blob", &format!("{sha}:crlf")]);
    assert_eq!(blob.stdout, b"one\r\ntwo\r\n");
}

#[test]
fn odd_names_and_large_files_are_there_byte_for_byte() {
    let Some(repository) = Repository::new() else { return };
    let large: Vec<u8> =
        (0..5_000_000u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    repository.sandbox.write("large", &large);
    let odd: [&[u8]; 5] = [b"caf\xe9", b"new\nline", b"-dash", b" space ", b"\xff\xfe"];
    for odd in odd {
        fs::write(repository.path("").join(name(odd)), odd).unwrap();
    }
    repository.sandbox.write("a.b/x", "sorts before a/");
    fs::create_dir(repository.path(".GIT")).unwrap();
    fs::write(repository.path(".GIT/config"), "[core]").unwrap();
    let answer = repository.sandbox.json(&["create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 3, "a path that git refuses is reported");
    assert!(answer["messages"].to_string().contains("not in the commit: .GIT"), "{answer:#}");
    repository.is_sound();
    let sha = text(&answer["data"]["checkpoint"]["commit_sha"]);
    let blob = repository.try_git_in(&repository.path(""), &["cat-file", "blob", &format!("{sha}:large")]);
    assert!(blob.stdout == large);
    let listed =
        repository.try_git_in(&repository.path(""), &["ls-tree", "-r", "-z", "--name-only", sha]).stdout;
    for odd in odd {
        assert!(listed.split(|byte| *byte == 0).any(|found| found == odd), "{}", odd.escape_ascii());
    }
}

#[test]
fn before_the_first_commit() {
    if !git_is_there() {
        return;
    }
    let repository = Repository { sandbox: Sandbox::new() };
    repository.git(&["init", "-q", "-b", "trunk"]);
    repository.sandbox.write("a", "1\n");
    let checkpoint = repository.create(&[]);
    let sha = text(&checkpoint["commit_sha"]).to_owned();
    assert_eq!(repository.git(&["log", "--format=%P", &sha]), "", "it has no parent");
    assert!(!repository.path(".git/refs/heads/trunk").exists() && !repository.path(".git/index").exists());
    repository.is_sound();
    let validated = repository.sandbox.json(&["validate", "--json"]);
    assert_eq!(validated["data"]["git_status"]["state"], "unborn");
    assert_eq!(validated["data"]["has_uncommitted_changes"], true);
    let back = ["rollback", "@", "--hard-reset", "--discard-uncommitted"];
    assert_eq!(exit(&repository.sandbox.output(&back)), 0);
    assert_eq!(repository.git(&["rev-parse", "trunk"]), sha);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    assert_eq!(exit(&repository.sandbox.output(&["undo"])), 0);
    assert!(!repository.path(".git/refs/heads/trunk").exists() && !repository.path(".git/index").exists());
    assert_eq!(repository.git(&["status", "--porcelain"]), "?? a");
    repository.create(&["--commit-on-branch"]);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_detached_head_moves_alone() {
    let Some(repository) = Repository::new() else { return };
    let first = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["checkout", "-q", "--detach"]);
    repository.sandbox.write("a", "2\n");
    let checkpoint = repository.create(&[]);
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), first);
    assert_eq!(repository.sandbox.json(&["validate", "--json"])["data"]["git_status"]["state"], "detached");
    let back = ["rollback", "@", "--hard-reset", "--discard-uncommitted"];
    assert_eq!(exit(&repository.sandbox.output(&back)), 0);
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), text(&checkpoint["commit_sha"]));
    assert_eq!(repository.git(&["rev-parse", "main"]), first);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_repository_with_long_names() {
    let Some(repository) = Repository::with(&["init", "-q", "-b", "main", "--object-format=sha256"]) else {
        return;
    };
    repository.sandbox.write("a", "2\n");
    let before = repository.place();
    let checkpoint = repository.create(&[]);
    assert_eq!(repository.place(), before);
    repository.is_sound();
    let sha = text(&checkpoint["commit_sha"]);
    assert_eq!((sha.len(), repository.git(&["cat-file", "-p", &format!("{sha}:a")])), (64, "2".to_owned()));
    let back = ["rollback", "@", "--hard-reset", "--discard-uncommitted"];
    assert_eq!(exit(&repository.sandbox.output(&back)), 0);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), sha);
}

#[test]
fn a_worktree_shares_tags_and_keeps_its_own_branch() {
    let Some(repository) = Repository::new() else { return };
    let (sandbox, tree) = (&repository.sandbox, repository.sandbox.path("tree"));
    repository.git(&["worktree", "add", "-q", "-b", "side", tree.to_str().unwrap()]);
    fs::write(tree.join("a"), "side\n").unwrap();
    let before = repository.place();
    let folder = tree.to_str().unwrap();
    let answer = sandbox.json(&["-C", folder, "create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    let sha = text(&answer["data"]["checkpoint"]["commit_sha"]);
    assert_eq!(repository.place(), before);
    assert_eq!(repository.git(&["cat-file", "-p", &format!("{sha}:a")]), "side");
    assert!(!repository.listed(sha).iter().any(|path| path.ends_with(" .git")));
    let back = ["-C", folder, "rollback", "@", "--hard-reset", "--discard-uncommitted"];
    assert_eq!(exit(&sandbox.output(&back)), 0);
    assert_eq!(repository.git_in(&tree, &["rev-parse", "side"]), sha);
    assert_eq!(repository.git_in(&tree, &["status", "--porcelain"]), "");
    let (head, _, refs) = repository.place();
    assert_eq!((head, refs.lines().next()), (before.0, before.2.lines().next()), "main did not move");
    // The main worktree has the branch now: a rollback in the other one does not take it.
    repository.git_in(&tree, &["checkout", "-q", "--detach"]);
    repository.git(&["checkout", "-q", "side"]);
    let output = sandbox.output(&["-C", folder, "rollback", "@", "--part", "git", "--discard-uncommitted"]);
    assert_eq!(exit(&output), 12, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("side is checked out in another worktree"));
    repository.is_sound();
}

#[test]
fn a_submodule_stays_a_submodule() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let other = sandbox.path("other");
    fs::create_dir(&other).unwrap();
    repository.git_in(&other, &["init", "-q", "-b", "main"]);
    fs::write(other.join("inner"), "1\n").unwrap();
    repository.git_in(&other, &["add", "-A"]);
    repository.git_in(&other, &["commit", "-q", "-m", "inner"]);
    let allow =
        ["-c", "protocol.file.allow=always", "submodule", "add", "-q", other.to_str().unwrap(), "sub"];
    repository.git(&allow);
    repository.git(&["commit", "-q", "-m", "with a submodule"]);
    sandbox.write("a", "2\n");
    let sha = text(&repository.create(&[])["commit_sha"]).to_owned();
    assert!(repository.listed(&sha).contains(&"160000 sub".to_owned()));
    // The commit records the submodule's HEAD.
    sandbox.write("sub/inner", "2\n");
    repository.git_in(&repository.path("sub"), &["commit", "-q", "-a", "-m", "on"]);
    let at = repository.git_in(&repository.path("sub"), &["rev-parse", "HEAD"]);
    let sha = text(&repository.create(&[])["commit_sha"]).to_owned();
    assert_eq!(repository.git(&["rev-parse", &format!("{sha}:sub")]), at);
    repository.is_sound();
    // In the submodule itself everything works as usual.
    sandbox.write("sub/inner", "3\n");
    let folder = repository.path("sub");
    sandbox.output(&["init", folder.to_str().unwrap()]);
    let answer = sandbox.json(&["-C", folder.to_str().unwrap(), "create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    let sha = text(&answer["data"]["checkpoint"]["commit_sha"]);
    assert_eq!(repository.git_in(&folder, &["cat-file", "-p", &format!("{sha}:inner")]), "3");
}

#[test]
fn in_the_middle_of_a_merge_or_a_rebase_branches_stay() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    repository.git(&["checkout", "-q", "-b", "side"]);
    sandbox.write("a", "side\n");
    repository.git(&["commit", "-q", "-a", "-m", "side"]);
    repository.git(&["checkout", "-q", "main"]);
    sandbox.write("a", "main\n");
    repository.git(&["commit", "-q", "-a", "-m", "main"]);
    for (begin, operation, end) in [
        (&["merge", "side"][..], "merge", &["merge", "--abort"][..]),
        (&["rebase", "side"], "rebase", &["rebase", "--abort"]),
        (&["cherry-pick", "side"], "cherry-pick", &["cherry-pick", "--abort"]),
    ] {
        assert!(!repository.try_git_in(&repository.path(""), begin).status.success());
        let before = repository.place();
        let checkpoint = repository.create(&[]);
        assert_eq!(repository.place(), before, "{operation}");
        let status = sandbox.json(&["validate", "--json"]);
        assert_eq!(status["data"]["git_status"]["operation"], operation);
        let shown = repository.git(&["cat-file", "-p", &format!("{}:a", text(&checkpoint["commit_sha"]))]);
        assert!(shown.contains("<<<<<<<"), "{shown}");
        for args in [
            &["rollback", "@", "--hard-reset", "--discard-uncommitted"][..],
            &["rollback", "@", "--part", "git", "--discard-uncommitted"],
        ] {
            let output = sandbox.output(args);
            assert_eq!(exit(&output), 12);
            assert!(
                String::from_utf8_lossy(&output.stderr).contains(&format!("a {operation} is in progress"))
            );
        }
        let answer = sandbox.json(&["create", "--git", "--commit-on-branch", "--json"]);
        assert_eq!(answer["exit_code"], 3);
        assert_eq!(repository.place(), before, "{operation}");
        repository.git(end);
    }
    repository.is_sound();
}

#[test]
fn a_commit_that_cannot_be_made_loses_no_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let outside = sandbox.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(repository.path(".git/refs/tags")).unwrap();
    symlink(&outside, repository.path(".git/refs/tags")).unwrap();
    let answer = sandbox.json(&["create", "--git", "--json", "-m", "kept"]);
    assert_eq!((&answer["status"], &answer["exit_code"]), (&"ok".into(), &3.into()));
    assert!(answer["messages"].to_string().contains("the checkpoint is kept, but no commit was made of it"));
    assert!(answer["data"]["checkpoint"]["commit_sha"].is_null());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(exit(&sandbox.output(&["show", "kept"])), 0);
    fs::remove_file(repository.path(".git/refs/tags")).unwrap();
    // Damage is only reported.
    fs::write(repository.path(".git/index"), "DIRC nonsense").unwrap();
    let answer = sandbox.json(&["create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 3);
    assert!(answer["messages"].to_string().contains("is damaged"), "{answer:#}");
    fs::write(repository.path(".git/HEAD"), "\u{0}\u{1}").unwrap();
    let answer = sandbox.json(&["create", "--json"]);
    assert_eq!(answer["exit_code"], 0);
    assert!(answer["messages"].to_string().contains("the state of git is not noted"), "{answer:#}");
    assert_eq!(exit(&sandbox.output(&["validate"])), 0);
    // Also outside a repository.
    let folder = sandbox.path("elsewhere");
    fs::create_dir(&folder).unwrap();
    let answer = sandbox.json(&["-C", folder.to_str().unwrap(), "create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 3);
    assert!(answer["messages"].to_string().contains("is not in a git repository"));
}

#[test]
fn deleting_takes_the_tag_along_unless_told_not_to() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let tags = || repository.git(&["tag"]);
    let first = repository.create(&[]);
    repository.git(&["pack-refs", "--all"]);
    assert_eq!(exit(&sandbox.output(&["delete", text(&first["id"]), "--yes"])), 0);
    assert_eq!(tags(), "");
    let second = repository.create(&[]);
    assert_eq!(exit(&sandbox.output(&["delete", text(&second["id"]), "--yes", "--keep-tag"])), 0);
    assert_eq!(tags(), text(&second["tags"][0]));
    let third = repository.create(&[]);
    repository.git(&["tag", "-f", text(&third["tags"][0]), "main"]);
    let output = sandbox.output(&["delete", text(&third["id"]), "--yes"]);
    assert_eq!(exit(&output), 3, "a moved tag stays");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is left in the repository"));
    assert_eq!(tags().lines().count(), 2);
    repository.is_sound();
}

#[test]
fn the_form_for_programs_moves_branch_and_index_and_the_files_only_when_hard() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let session = "0190f3a0-0000-7000-8000-000000000001";
    let first = repository.git(&["rev-parse", "HEAD"]);
    sandbox.write("a", "2\n");
    let checkpoint = repository.create(&["--session-id", session, "--commit-on-branch"]);
    let (id, sha) = (text(&checkpoint["id"]).to_owned(), text(&checkpoint["commit_sha"]).to_owned());
    sandbox.write("a", "3\n");
    repository.git(&["commit", "-q", "-a", "-m", "three"]);
    let three = repository.git(&["rev-parse", "HEAD"]);
    let form = ["rollback", "--session-id", session, "--checkpoint-id", &id, "--json"];
    let answer = sandbox.json(&form);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    let git = &answer["data"]["rollback"]["git"];
    assert_eq!((text(&git["from"]), text(&git["to"]), &git["files"]), (&*three, &*sha, &false.into()));
    assert_eq!(repository.git(&["rev-parse", "main"]), sha);
    assert_eq!(
        (sandbox.read("a"), repository.git(&["status", "--porcelain"])),
        ("3\n".into(), " M a".into())
    );
    // The undo moves git alone, too: what was written since stays.
    sandbox.write("since", "x\n");
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!(
        (repository.git(&["rev-parse", "main"]), sandbox.read("since")),
        (three.clone(), "x\n".into())
    );
    fs::remove_file(repository.path("since")).unwrap();
    let hard = [&form[..], &["--hard-reset"]].concat();
    let answer = sandbox.json(&hard);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert_eq!(
        (sandbox.read("a"), repository.git(&["status", "--porcelain"])),
        ("2\n".into(), String::new())
    );
    assert_eq!(repository.git(&["log", "--format=%H"]), format!("{sha}\n{first}"));
    // After a new commit, the undo restores the files and leaves git unchanged.
    repository.git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    let mine = repository.git(&["rev-parse", "HEAD"]);
    let output = sandbox.output(&["undo"]);
    assert_eq!((exit(&output), sandbox.read("a")), (0, "3\n".into()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("git was moved since"), "{output:?}");
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), mine);
    repository.is_sound();
}

#[test]
fn only_a_rollback_of_the_whole_workspace_reports_that_git_stays() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let id = text(&repository.create(&[])["id"]).to_owned();
    sandbox.write("a", "2\n");
    repository.git(&["commit", "-q", "-a", "-m", "two"]);
    let reports = |args: &[&str]| {
        let output = sandbox.output(args);
        assert_eq!(exit(&output), 0, "{output:?}");
        String::from_utf8_lossy(&output.stderr).contains("git is left as it is")
    };
    assert!(!reports(&["rollback", &id, "--path", "a"]));
    assert!(!reports(&["undo"]));
    assert!(reports(&["rollback", &id]));
    assert!(!reports(&["undo"]));
}

#[test]
fn branch_head_and_index_go_back_by_name() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let first = repository.git(&["rev-parse", "HEAD"]);
    sandbox.write("staged", "s\n");
    repository.git(&["add", "staged"]);
    let index = fs::read(repository.path(".git/index")).unwrap();
    assert_eq!(exit(&sandbox.output(&["create", "-m", "noted"])), 0);
    repository.git(&["commit", "-q", "-m", "two"]);
    repository.git(&["checkout", "-q", "-b", "side"]);
    assert_eq!(exit(&sandbox.output(&["rollback", "noted", "--part", "git"])), 0);
    assert_eq!(repository.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(repository.git(&["rev-parse", "main"]), first);
    assert_eq!(fs::read(repository.path(".git/index")).unwrap(), index);
    assert_eq!(repository.git(&["status", "--porcelain"]), "A  staged");
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!(repository.git(&["symbolic-ref", "HEAD"]), "refs/heads/side");
    assert_eq!(repository.git(&["rev-parse", "main"]), repository.git(&["rev-parse", "side"]));
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    for args in [
        &["rollback", "@", "--hard-reset", "--path", "a"][..],
        &["rollback", "@", "--mixed", "--path", "a"],
        &["rollback", "@", "--mixed", "--hard-reset"],
    ] {
        assert_eq!(exit(&sandbox.output(args)), 2, "{args:?}");
    }
    // The commit that HEAD was at is noted with each checkpoint.
    assert_eq!(exit(&sandbox.output(&["rollback", "noted", "--hard-reset"])), 0);
    assert_eq!(repository.git(&["rev-parse", "side"]), first);
    assert_eq!(repository.git(&["status", "--porcelain"]), "?? staged");
    repository.is_sound();
}

#[test]
fn git_goes_back_with_other_parts_and_with_paths() {
    for capture in ["state", "full"] {
        let Some(repository) = Repository::new() else { return };
        let sandbox = &repository.sandbox;
        sandbox.run(&["init"]);
        fs::write(sandbox.path("home/config.toml"), format!("[capture]\ngit = \"{capture}\"\n")).unwrap();
        sandbox.write("b", "1\n");
        assert_eq!(exit(&sandbox.output(&["create", "-m", "noted"])), 0);
        let state = || {
            let files = ["a", "b", "new"].map(|name| fs::read(repository.path(name)).ok());
            (repository.place(), files)
        };
        let then = state();
        sandbox.write("a", "later\n");
        repository.git(&["commit", "-q", "-a", "-m", "two"]);
        sandbox.write("b", "later\n");
        sandbox.write("new", "new\n");
        let later = state();
        let all =
            ["rollback", "noted", "--part", "files", "--part", "git", "--discard-uncommitted", "--json"];
        let back = sandbox.json(&all);
        assert_eq!(back["exit_code"], 0, "{back:#}");
        let git = &back["data"]["rollback"]["git"];
        assert_eq!((&git["files"], &git["folder"]), (&Value::Bool(true), &Value::Bool(capture == "full")));
        assert!(state() == then, "{capture}");
        repository.is_sound();
        for (verb, expected) in [("undo", &later), ("redo", &then), ("undo", &later)] {
            assert_eq!(exit(&sandbox.output(&[verb])), 0);
            assert!(state() == *expected, "{capture} {verb}");
        }
        let path = ["rollback", "noted", "--part", "git", "--path", "a", "--discard-uncommitted"];
        assert_eq!(exit(&sandbox.output(&path)), 0);
        let now = state();
        assert!(now.0 == then.0 && now.1[0] == then.1[0] && now.1[1..] == later.1[1..], "{capture}");
        assert_eq!(exit(&sandbox.output(&["undo"])), 0);
        assert!(state() == later, "{capture}");
        repository.is_sound();
    }
}

#[test]
fn what_means_nothing_for_git_is_refused_and_not_passed_over() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    repository.create(&[]);
    sandbox.write("a", "2\n");
    let before = repository.place();
    for (args, code) in [
        (&["create", "--scope", "framework", "--git"][..], 2),
        (&["rollback", "--until", "true", "--hard-reset"], 2),
        (&["rollback", "--until", "true", "--mixed"], 2),
    ] {
        assert_eq!(exit(&sandbox.output(args)), code, "{args:?}");
    }
    let all = sandbox.json(&["create", "--scope", "framework", "--json"]);
    let id = text(&all["data"]["checkpoint"]["id"]);
    assert_eq!(exit(&sandbox.output(&["rollback", id, "--hard-reset"])), 12);
    assert_eq!((repository.place(), sandbox.read("a")), (before, "2\n".to_owned()));
}

#[test]
fn a_part_of_a_repository_is_committed_and_never_moved() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("part/x", "1\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "part"]);
    sandbox.write("part/x", "2\n");
    sandbox.write("a", "not looked at\n");
    let folder = repository.path("part");
    let folder = folder.to_str().unwrap();
    sandbox.output(&["init", folder]);
    let answer = sandbox.json(&["-C", folder, "create", "--git", "--json"]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    let sha = text(&answer["data"]["checkpoint"]["commit_sha"]);
    assert_eq!(repository.git(&["diff-tree", "-r", "--name-only", "HEAD", sha]), "part/x");
    let output = sandbox.output(&["-C", folder, "rollback", "@", "--hard-reset", "--discard-uncommitted"]);
    assert_eq!(exit(&output), 12);
    assert!(String::from_utf8_lossy(&output.stderr).contains("only a part of the repository"));
}

#[test]
fn states_of_git_are_validated_and_collected_as_everything_is() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    for at in 0..4 {
        sandbox.write("a", format!("{at}\n"));
        repository.git(&["commit", "-q", "-a", "-m", "x", "--allow-empty"]);
        repository.create(&["-m", &format!("c{at}")]);
    }
    let back = ["rollback", "c1", "--hard-reset"];
    assert_eq!(exit(&sandbox.output(&back)), 0);
    assert_eq!(exit(&sandbox.output(&["delete", "c0", "c3", "--yes"])), 0);
    assert_eq!(exit(&sandbox.output(&["gc", "--thorough"])), 0);
    assert_eq!(exit(&sandbox.output(&["validate", "--deep"])), 0);
    assert_eq!(exit(&sandbox.output(&["purge", "tool.sh", "--yes"])), 0);
    assert_eq!(exit(&sandbox.output(&["validate", "--deep"])), 0);
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!(exit(&sandbox.output(&["rollback", "c2", "--part", "git", "--discard-uncommitted"])), 0);
    repository.is_sound();
    // Git state is not recorded if the configuration disables it.
    let noted = |sandbox: &Sandbox| {
        let answer = sandbox.json(&["create", "--json"]);
        let parts = answer["data"]["checkpoint"]["parts"].as_array().unwrap().clone();
        parts.iter().any(|part| part["kind"] == "git")
    };
    assert!(noted(sandbox));
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"none\"\n").unwrap();
    assert!(!noted(sandbox));
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"much\"\n").unwrap();
    let output = sandbox.output(&["create"]);
    assert_eq!(exit(&output), 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"none\", \"state\" or \"full\""));
}

#[test]
fn the_state_of_git_is_in_an_export_and_comes_back_by_an_import() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    repository.git(&["tag", "v1"]);
    sandbox.write("a", "staged\n");
    repository.git(&["add", "a"]);
    sandbox.run(&["create", "-m", "staged"]);
    let then = repository.place();
    let exported = sandbox.json(&["export", "staged", "../out", "--json"]);
    let folder = PathBuf::from(text(&exported["data"]["export"]["path"]));
    let tasks = folder.join("task_tool_state");
    let names: Vec<String> = fs::read_dir(&tasks)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let named = |end: &str| tasks.join(names.iter().find(|name| name.ends_with(end)).unwrap());
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(Some(fs::read(named(".index")).unwrap()), then.1);
    let refs = fs::read_to_string(named(".refs.json")).unwrap();
    assert!(refs.contains("refs/heads/main") && refs.contains("refs/tags/v1"), "{refs}");
    // The index is committed, and the import has its old state.
    repository.git(&["commit", "-q", "-m", "two"]);
    let path = folder.to_str().unwrap();
    let imported = sandbox.json(&["import", path, "-m", "again", "--json"]);
    assert_eq!(imported["data"]["checkpoint"]["warnings"], serde_json::json!([]), "{imported:#}");
    let shown = |id: &str| sandbox.json(&["show", id, "--json"])["data"]["checkpoint"]["integrity"].clone();
    assert_eq!(shown("again"), shown("staged"));
    assert_ne!(repository.place(), then);
    let back = sandbox.json(&["rollback", "again", "--part", "git", "--discard-uncommitted", "--json"]);
    assert_eq!(back["exit_code"], 0, "{back:#}");
    assert_eq!(repository.place(), then);
    repository.is_sound();
    // A second export is equal.
    let exported = sandbox.json(&["export", "again", "../out", "--json"]);
    let second = PathBuf::from(text(&exported["data"]["export"]["path"])).join("task_tool_state");
    for name in &names {
        assert_eq!(fs::read(tasks.join(name)).unwrap(), fs::read(second.join(name)).unwrap(), "{name}");
    }
    let json = names.iter().find(|name| !name.ends_with(".refs.json") && name.ends_with(".json")).unwrap();
    // An invalid git state is refused.
    let refuses = |words: &str, name: &Path, edit: &dyn Fn(&mut Value)| {
        let kept = (fs::read(name).unwrap(), fs::read(folder.join("metadata.json")).unwrap());
        let mut value: Value = serde_json::from_slice(&kept.0).unwrap();
        edit(&mut value);
        fs::write(name, value.to_string()).unwrap();
        reseal(&folder, name);
        let told = sandbox.run(&["import", path]);
        assert!(told.contains(words) && told.contains("--- exit 13"), "{words}: {told}");
        fs::write(name, kept.0).unwrap();
        fs::write(folder.join("metadata.json"), kept.1).unwrap();
    };
    let document = tasks.join(json);
    let set = |key: &'static str, value: Value| move |document: &mut Value| document[key] = value.clone();
    let nowhere = "HEAD is nowhere that it can be";
    refuses(nowhere, &document, &set("head", serde_json::json!({ "ref": "refs/tags/v1" })));
    refuses(nowhere, &document, &set("head", serde_json::json!({ "ref": "refs/heads/a..b" })));
    refuses(nowhere, &document, &set("head", serde_json::json!({ "ref": "refs/heads/a.lock" })));
    refuses(nowhere, &document, &set("head", serde_json::json!({ "id": "ab".repeat(20) })));
    refuses(nowhere, &document, &set("operation", serde_json::json!("x".repeat(100))));
    refuses("its commit has no name", &document, &set("commit", serde_json::json!("xyz")));
    refuses("in a way that git does not", &document, &set("object_format", serde_json::json!("md5")));
    refuses("as it is known today", &document, &set("format", serde_json::json!(2)));
    refuses("cannot be understood", &document, &set("commit", serde_json::json!(7)));
    let refs = named(".refs.json");
    refuses("is no ref", &refs, &|refs| refs[0][0] = serde_json::json!("config"));
    refuses("is no ref", &refs, &|refs| refs[0][1] = serde_json::json!({ "id": "short" }));
    refuses("is no ref", &refs, &|refs| refs[0][1] = serde_json::json!({ "ref": "HEAD" }));
    refuses("it is not the list of refs that was noted", &refs, &|refs| *refs = serde_json::json!([]));
    let index = named(".index");
    fs::write(&index, "#!/bin/sh\nnot an index, and long enough for one\n").unwrap();
    reseal(&folder, &index);
    let told = sandbox.run(&["import", path]);
    assert!(told.contains("it is no index of git"), "{told}");
    fs::remove_file(&index).unwrap();
    let told = sandbox.run(&["import", path]);
    assert!(told.contains("it is missing"), "{told}");
}

/// Updates the hash of a file in a layout.
fn reseal(layout: &Path, file: &Path) {
    let bytes = fs::read(file).unwrap();
    let mut metadata: Value =
        serde_json::from_slice(&fs::read(layout.join("metadata.json")).unwrap()).unwrap();
    let name = file.strip_prefix(layout).unwrap().to_str().unwrap();
    for row in metadata["hashes"].as_array_mut().unwrap() {
        if row["path"] == name {
            row["size"] = bytes.len().into();
            row["blake3"] = blake3::hash(&bytes).to_hex().as_str().into();
        }
    }
    fs::write(layout.join("metadata.json"), metadata.to_string()).unwrap();
}

#[test]
fn a_repository_that_vanished_is_reported_with_the_way_back() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let status = || String::from_utf8_lossy(&sandbox.output(&["status"]).stderr).into_owned();
    sandbox.output(&["create", "-m", "state"]);
    assert!(!status().contains("repository is missing"));
    fs::rename(repository.path(".git"), sandbox.path("aside")).unwrap();
    assert!(status().contains("restore its state (branch main at "), "{}", status());
    assert!(status().contains("if it was removed on purpose, put git = \"none\""), "{}", status());
    let state = sandbox.json(&["show", "state", "--json"])["data"]["checkpoint"]["id"].clone();
    let created = || String::from_utf8_lossy(&sandbox.output(&["create", "-m", "more"]).stderr).into_owned();
    for _ in 0..2 {
        assert!(created().contains("git repository is missing"), "a checkpoint does not hide it");
    }
    let answer = sandbox.json(&["status", "--json"]);
    let lost = &answer["data"]["lost_repository"];
    assert_eq!((&lost["checkpoint"], &lost["whole"], text(&lost["branch"])), (&state, &Value::Null, "main"));
    assert!(answer["messages"].to_string().contains("repository_missing"), "{answer:#}");
    assert!(sandbox.run(&["validate"]).contains("git repository is missing"));
    let validated = sandbox.json(&["validate", "--json"]);
    assert!(validated["data"]["warnings"].to_string().contains("git repository is missing"), "{validated:#}");
    assert!(sandbox.run(&["doctor"]).contains("the git repository is missing"));
    let told = sandbox.run(&["rollback", "state", "--hard-reset"]);
    assert!(
        !told.contains("git init") && told.contains("To get the repository back, clone it again"),
        "{told}"
    );
    assert!(told.ends_with("--- exit 12\n"), "{told}");
    // It may be gone on purpose.
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"none\"\n").unwrap();
    assert!(!status().contains("repository is missing"));
    fs::remove_file(sandbox.path("home/config.toml")).unwrap();
    fs::rename(sandbox.path("aside"), repository.path(".git")).unwrap();
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
    sandbox.output(&["create", "-m", "whole"]);
    fs::remove_dir_all(repository.path(".git")).unwrap();
    sandbox.output(&["create", "-m", "without"]);
    let told = status();
    let (_, command) = told.split_once("restore it with: safepoint ").unwrap_or_else(|| panic!("{told}"));
    let words: Vec<&str> = command.lines().next().unwrap().split(' ').collect();
    assert_eq!(exit(&sandbox.output(&words)), 0);
    assert!(repository.path(".git/HEAD").exists() && !status().contains("repository is missing"));
}
