//! Use by an ordinary user: read-only folders, folders of another user.
//!
//! As root, the tests start the binary as the user nobody; other users are ordinary already.

use safepoint_testkit::TreeImage;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NOBODY: u32 = 65_534;

struct User {
    folder: tempfile::TempDir,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl User {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Copied by another process: a program started by another thread would inherit the open file, and a
        // file open for writing cannot be run (ETXTBSY).
        let program = folder.path().join("safepoint");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_safepoint")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let user = Self { folder };
        fs::create_dir(user.project()).unwrap();
        for path in [user.folder.path().to_owned(), user.project()] {
            if is_root() {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        user
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn run(&self, program: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.project()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.folder.path());
        command.env("SAFEPOINT_HOME", self.folder.path().join("home"));
        if std::env::var_os("LLVM_PROFILE_FILE").is_some() {
            // The user nobody can write there; collected at the end.
            command.env("LLVM_PROFILE_FILE", self.folder.path().join("nobody-%p.profraw"));
        }
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    }

    fn shell(&self, script: &str) {
        let output = self.run("/bin/sh".as_ref(), &["-ec", script]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn safepoint(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(&self.folder.path().join("safepoint"), args);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap(), said)
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) {
        let (code, said) = self.safepoint(args);
        assert_eq!(code, 0, "{said}");
    }

    fn image(&self) -> TreeImage {
        TreeImage::read(&self.project(), &[]).unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let Some(asked) = std::env::var_os("LLVM_PROFILE_FILE").map(PathBuf::from) else { return };
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "profraw") {
                let _ = fs::copy(entry.path(), asked.with_file_name(entry.file_name()));
            }
        }
    }
}

#[test]
fn folders_that_forbid_writing_are_rolled_back_exactly() {
    let user = User::new();
    user.shell(
        "mkdir -p ro/deep gone/deep swap; echo 1 > ro/f; echo 1 > ro/deep/g; echo 1 > gone/deep/h; echo 1 > gone/i
         echo 1 > secret; chmod 000 secret; chmod 444 ro/f; chmod 555 ro/deep ro gone/deep gone swap",
    );
    user.shell("chmod 400 secret");
    user.succeeds(&["create", "--kind", "manual"]);
    let then = user.image();
    user.shell(
        "chmod -R u+w .; rm ro/f; echo 2 > ro/deep/g; echo 2 > ro/new; rm -r gone; rmdir swap; echo 2 > swap
         mkdir made; echo 2 > made/x; chmod 555 made ro ro/deep",
    );
    let now = user.image();
    user.succeeds(&["rollback", "@"]);
    assert!(user.image().difference(&then).is_empty(), "{:#?}", user.image().difference(&then));
    user.succeeds(&["undo", "--yes"]);
    assert!(user.image().difference(&now).is_empty(), "{:#?}", user.image().difference(&now));
    user.succeeds(&["redo", "--yes"]);
    assert!(user.image().difference(&then).is_empty());
    // New content is staged in the workspace's folder, so it must be writable.
    user.shell("echo 3 > new; chmod 555 .");
    let (code, said) = user.safepoint(&["rollback", "@"]);
    assert_eq!(code, 12, "{said}");
    assert!(said.contains("is not writable"), "{said}");
    user.shell("chmod -R u+rwx .");
}

#[test]
fn what_may_not_be_read_is_said_and_what_stands_there_is_left_alone() {
    let user = User::new();
    user.shell("echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/x");
    user.succeeds(&["create", "--kind", "manual"]);
    user.shell("echo 2 > b; chmod 000 a d");
    let before = user.image_as_root();
    let (code, said) = user.safepoint(&["create", "--kind", "manual"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("could not be read"), "{said}");
    let (code, said) = user.safepoint(&["rollback", "@~1"]);
    assert_eq!(code, 12, "{said}");
    assert!(said.contains("In the way: a"), "{said}");
    assert_eq!(user.image_as_root(), before);
    user.shell("chmod 755 d; chmod 644 a");
    user.succeeds(&["rollback", "@~1"]);
}

impl User {
    /// Returns names and modes, which need no read access.
    fn image_as_root(&self) -> Vec<(PathBuf, u32)> {
        let mut found: Vec<_> = fs::read_dir(self.project())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.path(), entry.metadata().unwrap().permissions().mode()))
            .collect();
        found.sort();
        found
    }
}

#[test]
fn what_was_displaced_and_may_not_be_read_stays_until_it_may() {
    let user = User::new();
    user.shell("echo 1 > a");
    user.succeeds(&["create", "--kind", "manual"]);
    user.shell("mkdir d; echo 2 > d/held; echo 2 > a");
    // While the shell has both open, they wait in the stage, where chmod removes the owner's access.
    user.shell(
        "exec 3>> d/held 4>> a; ../safepoint rollback @ --yes || [ $? = 3 ]; echo more >&3; echo more >&4
         for slot in .safepoint/apply-*/*; do if [ -d $slot ]; then chmod 300 $slot; else chmod 000 $slot; fi; done",
    );
    let (code, said) = user.safepoint(&["recover"]);
    assert!(said.contains("it is not readable"), "{code} {said}");
    assert!(user.project().join(".safepoint").exists());
    user.shell("chmod 600 .safepoint/apply-*/[0-9]");
    user.succeeds(&["recover"]);
    assert!(!user.project().join(".safepoint").exists());
    let (_, kept) = user.safepoint(&["list", "--all"]);
    assert!(kept.contains("rescued"), "{kept}");
}

#[test]
fn a_folder_of_somebody_else_is_not_touched() {
    if !is_root() {
        // Only root can create a folder of another user.
        return;
    }
    let user = User::new();
    let foreign = user.project().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("x"), "1").unwrap();
    user.succeeds(&["create", "--kind", "manual"]);
    fs::write(foreign.join("x"), "2").unwrap();
    let before = user.image();
    let (code, said) = user.safepoint(&["rollback", "@"]);
    assert_eq!(code, 12, "{said}");
    assert!(said.contains("is not writable"), "{said}");
    assert_eq!(user.image(), before);
    user.shell("echo 2 > mine");
    user.succeeds(&["rollback", "@", "--path", "mine"]);
}

#[test]
fn files_of_another_owner_come_back_to_their_owner_under_root() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let user = User::new();
    user.shell("echo 1 > f; ln -s f link; mkdir d; echo 1 > d/g");
    let binary = user.folder.path().join("safepoint");
    let as_root = |args: &[&str]| {
        let mut command = Command::new(&binary);
        let home = user.folder.path().join("root-home");
        let output =
            command.args(args).current_dir(user.project()).env("SAFEPOINT_HOME", home).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    as_root(&["create", "--kind", "manual"]);
    user.shell("rm -r f link d");
    as_root(&["rollback", "@"]);
    for name in ["f", "link", "d", "d/g"] {
        let metadata = fs::symlink_metadata(user.project().join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY), "{name}");
    }
    chown(user.project().join("f"), Some(0), Some(0)).unwrap();
    as_root(&["rollback", "@"]);
    assert_eq!(fs::metadata(user.project().join("f")).unwrap().uid(), NOBODY);
}

const ACCESS: &str = "system.posix_acl_access";
const CAPABILITY: &str = "security.capability";

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// ACL with a named user.
fn acl(permissions: [u16; 5]) -> Vec<u8> {
    let tags = [(1u16, u32::MAX), (2, 1234), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for ((tag, id), permissions) in tags.into_iter().zip(permissions) {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// Returns true if the user can get ACLs and capabilities; else prints so.
fn can_give(user: &User) -> bool {
    let probe = user.folder.path().join("probe");
    fs::write(&probe, "").unwrap();
    let value = acl([6, 4, 4, 4, 4]);
    let can =
        is_root() && rustix::fs::setxattr(&probe, ACCESS, &value, rustix::fs::XattrFlags::empty()).is_ok();
    if !can {
        eprintln!("skipped: this takes root, and a file system that keeps ACLs");
    }
    can
}

#[test]
fn without_the_right_to_set_capabilities_all_else_goes_back() {
    let user = User::new();
    if !can_give(&user) {
        return;
    }
    let mut capability = vec![0; 20];
    (capability[0], capability[3], capability[5]) = (1, 2, 4);
    let at = |name: &str| user.project().join(name);
    user.shell("echo 1 > program; echo 1 > plain; echo 1 > other");
    set(&at("program"), CAPABILITY, &capability);
    user.succeeds(&["create", "-m", "then"]);
    let told = "cannot restore the capabilities of program";
    // A write removes the capability, and only root could restore it.
    user.shell("echo 2 > program; echo 2 > other");
    set(&at("plain"), CAPABILITY, &capability);
    let (code, said) = user.safepoint(&["rollback", "then", "--yes"]);
    assert!(code == 0 && said.contains(told), "{code}: {said}");
    for name in ["program", "plain", "other"] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "1\n", "{name}");
        assert_eq!(get(&at(name), CAPABILITY), None, "{name}");
    }
    // Nothing else is left to do, and a retry reports why.
    let (code, said) = user.safepoint(&["rollback", "then", "--yes"]);
    assert!(code == 0 && said.contains(told), "{code}: {said}");
    user.succeeds(&["undo", "--yes"]);
    user.succeeds(&["validate"]);
    assert!(!user.project().join(".safepoint").exists());
}

#[test]
fn acls_go_back_in_the_hands_of_an_ordinary_user() {
    let user = User::new();
    if !can_give(&user) {
        return;
    }
    let at = |name: &str| user.project().join(name);
    user.shell("mkdir locked; echo 1 > locked/file; echo 1 > mine; echo 1 > roots");
    for (name, permissions) in [("mine", [6, 7, 4, 7, 0]), ("locked", [5, 7, 4, 5, 5])] {
        set(&at(name), ACCESS, &acl(permissions));
    }
    chown(at("roots"), Some(0), Some(0)).unwrap();
    fs::set_permissions(at("roots"), fs::Permissions::from_mode(0o644)).unwrap();
    user.succeeds(&["create", "-m", "then"]);
    let names = ["mine", "locked", "locked/file"];
    let image =
        || names.map(|name| (get(&at(name), ACCESS), fs::metadata(at(name)).unwrap().permissions().mode()));
    let before = image();
    user.shell("chmod 755 locked; echo 2 > locked/file; chmod 555 locked; echo 2 > mine; chmod 600 mine");
    let after = image();
    // A file of another user cannot be restored, and is no obstacle.
    let foreign = acl([6, 4, 4, 4, 4]);
    set(&at("roots"), ACCESS, &foreign);
    let (code, said) = user.safepoint(&["rollback", "then", "--yes"]);
    assert!(code == 0 && said.contains("cannot restore the ACL of roots"), "{code}: {said}");
    assert_eq!(image(), before);
    assert_eq!(fs::read_to_string(at("locked/file")).unwrap(), "1\n");
    assert_eq!(get(&at("roots"), ACCESS), Some(foreign));
    user.succeeds(&["undo", "--yes"]);
    assert_eq!(image(), after);
    assert_eq!(fs::read_to_string(at("locked/file")).unwrap(), "2\n");
}
