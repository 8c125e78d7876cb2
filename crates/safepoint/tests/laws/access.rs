//! ACLs and capabilities: captured, restored and removed; never more access than before if they cannot be
//! kept.

use crate::bench::{Bench, open};
use rustix::fs::XattrFlags;
use safepoint::model::change::ChangeKind;
use safepoint::{CreateOptions, Depth, RollbackOptions, Settings, Silent, Warning};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const CAPABILITY: &str = "security.capability";
const NO_ID: u32 = u32::MAX;

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn remove(path: &Path, name: &str) {
    rustix::fs::removexattr(path, name).unwrap();
}

/// ACL that `setfacl -m u:1234:USER,m::MASK` gives a file whose group has `group`.
fn acl(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let entries =
        [(1, owner, NO_ID), (2, user, 1234), (4, group, NO_ID), (0x10, mask, NO_ID), (0x20, other, NO_ID)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend_from_slice(&u16::to_le_bytes(tag));
        value.extend_from_slice(&u16::to_le_bytes(perm));
        value.extend_from_slice(&u32::to_le_bytes(id));
    }
    value
}

/// Returns `cap_net_bind_service=ep`.
fn capability() -> Vec<u8> {
    let mut value = vec![0; 20];
    (value[0], value[3], value[5]) = (1, 2, 4);
    value
}

/// Returns true if the file system keeps ACLs; else prints so.
fn has_acls(bench: &Bench) -> bool {
    let probe = bench.path("probe");
    fs::write(&probe, "").unwrap();
    let can = set(&probe, ACCESS, &acl(6, 6, 4, 6, 0));
    fs::remove_file(&probe).unwrap();
    if !can {
        eprintln!("skipped: the file system of the tests keeps no ACLs");
    }
    can
}

/// Mode and three attributes.
type Seen = (u32, [Option<Vec<u8>>; 3]);

/// Mode and attributes of every entry.
fn image(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut image = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let attributes = [ACCESS, DEFAULT, CAPABILITY].map(|name| get(&path, name));
        if facts.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        image.insert(path, (facts.mode() & 0o7777, attributes));
    }
    image
}

/// Waits until the stat cache trusts new files.
fn let_time_pass() {
    std::thread::sleep(Duration::from_millis(70));
}

fn changes(bench: &Bench) -> Vec<(ChangeKind, String)> {
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    status.changes.iter().map(|change| (change.kind, change.path.to_string())).collect()
}

#[test]
fn acls_and_capabilities_go_back_forth_and_back_again() {
    let bench = Bench::new();
    if !has_acls(&bench) {
        return;
    }
    for name in ["replaced", "deleted", "stripped", "given", "other", "folder/in", "one-name", "program"] {
        bench.write(name, name);
    }
    fs::hard_link(bench.path("one-name"), bench.path("other-name")).unwrap();
    for name in ["replaced", "deleted", "stripped", "other", "one-name"] {
        assert!(set(&bench.path(name), ACCESS, &acl(6, 7, 4, 7, 0)));
    }
    fs::set_permissions(bench.path("other"), fs::Permissions::from_mode(0o4750)).unwrap();
    assert!(set(&bench.path("folder"), ACCESS, &acl(7, 7, 5, 5, 5)));
    assert!(set(&bench.path("folder"), DEFAULT, &acl(7, 6, 5, 7, 0)));
    let has_capability = set(&bench.path("program"), CAPABILITY, &capability());
    if !has_capability {
        eprintln!("skipped in part: this user may not give capabilities");
    }
    let_time_pass();
    let then = bench.create();
    let before = image(&bench.root());
    assert_eq!(changes(&bench), []);

    bench.write("replaced", "something else");
    remove(&bench.path("replaced"), ACCESS);
    fs::remove_file(bench.path("deleted")).unwrap();
    remove(&bench.path("stripped"), ACCESS);
    fs::set_permissions(bench.path("stripped"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(set(&bench.path("given"), ACCESS, &acl(6, 6, 6, 6, 6)));
    assert!(set(&bench.path("other"), ACCESS, &acl(7, 1, 1, 1, 1)));
    assert!(set(&bench.path("one-name"), ACCESS, &acl(6, 1, 0, 1, 0)));
    remove(&bench.path("folder"), DEFAULT);
    fs::write(bench.path("program"), "another").unwrap();
    let_time_pass();
    let after = image(&bench.root());
    let told = changes(&bench);
    for (kind, name) in [
        (ChangeKind::Modified, "replaced"),
        (ChangeKind::Removed, "deleted"),
        (ChangeKind::Mode, "stripped"),
        (ChangeKind::Mode, "given"),
        (ChangeKind::Mode, "other"),
        (ChangeKind::Mode, "folder"),
        (ChangeKind::Mode, "one-name"),
        (ChangeKind::Modified, "program"),
    ] {
        assert!(told.contains(&(kind, name.to_owned())), "{name}: {told:?}");
    }

    let restored = bench.rollback(then.id);
    assert!(
        restored.verified && restored.warnings.is_empty() && restored.folders[0].changed_meanwhile.is_empty(),
        "{restored:?}"
    );
    assert_eq!(image(&bench.root()), before);
    assert_eq!(changes(&bench), []);
    bench.undo();
    assert_eq!(image(&bench.root()), after);
    bench.redo();
    assert_eq!(image(&bench.root()), before);
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    // Also in another folder.
    let to = bench.home().join("elsewhere");
    bench.manager.write_files(&then, bench.workspace.id, &to, &Silent).unwrap();
    let there: Vec<_> = image(&to).into_values().collect();
    assert_eq!(there, before.into_values().collect::<Vec<_>>());
}

#[test]
fn an_acl_alone_is_a_change_and_goes_with_a_rollback() {
    let bench = Bench::new();
    if !has_acls(&bench) {
        return;
    }
    bench.write("file", "1");
    bench.write("folder/file", "1");
    let_time_pass();
    let then = bench.create();
    let before = image(&bench.root());
    // The visible mode is unchanged: only the ACL differs.
    let mode = fs::metadata(bench.path("file")).unwrap().mode() as u16 & 7;
    assert_eq!(mode, 4);
    assert!(set(&bench.path("file"), ACCESS, &acl(6, 4, 0, 4, 4)));
    assert!(set(&bench.path("folder"), DEFAULT, &acl(7, 4, 0, 4, 4)));
    let after = image(&bench.root());
    let told = [(ChangeKind::Mode, "file".to_owned()), (ChangeKind::Mode, "folder".to_owned())];
    assert_eq!(changes(&bench), told);
    let restored = bench.rollback(then.id);
    assert_eq!(restored.outline().paths.len(), 2);
    assert_eq!(image(&bench.root()), before);
    bench.undo();
    assert_eq!(image(&bench.root()), after);
    bench.restore_paths(then.id, &["folder"]);
    assert_eq!(get(&bench.path("folder"), DEFAULT), None);
    assert!(get(&bench.path("file"), ACCESS).is_some());
}

#[test]
fn what_is_put_back_inherits_nothing() {
    let bench = Bench::new();
    if !has_acls(&bench) {
        return;
    }
    for name in ["file", "folder/file", "kept/file"] {
        bench.write(name, "1");
    }
    let_time_pass();
    let then = bench.create();
    let before = image(&bench.root());
    // From here on, every new entry in the workspace gets an ACL.
    for folder in ["", "kept"] {
        assert!(set(&bench.path(folder), DEFAULT, &acl(7, 7, 7, 7, 7)));
    }
    bench.write("file", "2");
    fs::remove_dir_all(bench.path("folder")).unwrap();
    fs::remove_file(bench.path("kept/file")).unwrap();
    fs::create_dir(bench.path("new")).unwrap();
    assert!(get(&bench.path("new"), ACCESS).is_some(), "it inherits the ACL");
    let middle = bench.create();
    let between = image(&bench.root());
    bench.rollback(then.id);
    assert_eq!(image(&bench.root()), before);
    bench.rollback(middle.id);
    assert_eq!(image(&bench.root()), between);
    bench.restore_paths(then.id, &["folder", "kept/file"]);
    for name in ["folder", "folder/file", "kept/file"] {
        assert_eq!(image(&bench.root())[&bench.path(name)], before[&bench.path(name)], "{name}");
    }
}

/// File system without ACLs, mounted until drop.
struct Plain(PathBuf);

impl Plain {
    fn over(path: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount").args(["-t", "ramfs", "none"]).arg(path).status();
        match mounted {
            Ok(status) if status.success() => {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
                Some(Self(path.to_owned()))
            }
            _ => {
                eprintln!("skipped: only root can mount a file system that keeps no ACLs");
                None
            }
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn where_no_acl_can_be_kept_the_group_gets_no_more_than_it_had() {
    let bench = Bench::new();
    if !has_acls(&bench) {
        return;
    }
    bench.write("shared", "1");
    bench.write("folder/file", "1");
    assert!(set(&bench.path("shared"), ACCESS, &acl(6, 7, 4, 7, 0)));
    assert!(set(&bench.path("folder"), ACCESS, &acl(7, 7, 1, 7, 0)));
    assert!(set(&bench.path("folder"), DEFAULT, &acl(7, 7, 7, 7, 7)));
    assert_eq!(fs::metadata(bench.path("shared")).unwrap().mode() & 0o777, 0o670);
    let then = bench.create();
    let Some(_plain) = Plain::over(&bench.root()) else { return };
    let manager = open(&bench.home(), Settings::default());
    let restored = manager.rollback(&bench.workspace, then.id, &RollbackOptions::default(), &Silent).unwrap();
    assert!(restored.verified);
    let told =
        restored.warnings.iter().filter(|warning| matches!(warning, Warning::AccessNotRestored(_))).count();
    assert_eq!(told, 1, "{:?}", restored.warnings);
    assert_eq!(bench.read("shared"), "1");
    assert_eq!(fs::metadata(bench.path("shared")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(bench.path("folder")).unwrap().mode() & 0o777, 0o710);
    // A repetition changes nothing.
    let again = manager.rollback(&bench.workspace, then.id, &RollbackOptions::default(), &Silent).unwrap();
    assert!(again.outline().paths.is_empty(), "{:?}", again.outline());
    // A mode alone is restored, too.
    fs::set_permissions(bench.path("shared"), fs::Permissions::from_mode(0o666)).unwrap();
    manager.rollback(&bench.workspace, then.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(fs::metadata(bench.path("shared")).unwrap().mode() & 0o777, 0o640);
    manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
}

#[test]
fn a_checkpoint_from_before_acls_were_captured_leaves_them_alone() {
    let bench = Bench::new();
    if !has_acls(&bench) {
        return;
    }
    for name in ["edited", "same", "folder/file"] {
        bench.write(name, "1");
    }
    // A version without ACL support kept the mask as the group's rights.
    let with_acl = ["edited", "same", "folder"];
    for name in with_acl {
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o670)).unwrap();
    }
    let then = bench.create();
    fs::remove_file(bench.home().join("cache/access")).unwrap();
    for name in with_acl {
        assert!(set(&bench.path(name), ACCESS, &acl(6, 7, 4, 7, 0)));
    }
    assert!(set(&bench.root(), DEFAULT, &acl(7, 7, 4, 7, 0)));
    bench.write("edited", "2");
    let middle = bench.create();
    let before = image(&bench.root());
    bench.rollback(then.id);
    assert_eq!(bench.read("edited"), "1");
    assert_eq!(image(&bench.root()), before, "no user gained access");
    // A mode of that time goes into the mask.
    fs::set_permissions(bench.path("same"), fs::Permissions::from_mode(0o640)).unwrap();
    bench.rollback(then.id);
    assert_eq!(image(&bench.root()), before);
    bench.write("edited", "3");
    bench.rollback(middle.id);
    assert_eq!((bench.read("edited"), image(&bench.root())), ("2".to_owned(), before));
}
