//! Captured and excluded paths; excluded paths are never changed.

use crate::bench::{Bench, assert_same, open};
use safepoint::model::coverage::Why;
use safepoint::model::rollback::Action;
use safepoint::{CreateOptions, RollbackOptions, Settings, Silent};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

fn skipped(bench: &Bench) -> Vec<(String, Why)> {
    let created = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
    created.coverage.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.why)).collect()
}

#[test]
fn whatever_is_left_out_is_listed_with_the_reason() {
    let bench = Bench::new();
    bench.write(".git/config", "x");
    bench.write("sub/.git/config", "x");
    bench.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    bench.write("target/out", "x");
    bench.write("not-a-cache/CACHEDIR.TAG", "something else");
    bench.write(".safepointignore", "*.log\n/build/\n!keep.log\n");
    bench.write("deep/x.log", "x");
    bench.write("deep/keep.log", "x");
    bench.write("build/x", "x");
    bench.write("deep/.safepointignore", "secret\n");
    bench.write("deep/secret", "x");
    let _socket = UnixListener::bind(bench.path("socket")).unwrap();
    assert_eq!(
        skipped(&bench),
        [
            (".git".to_owned(), Why::Git),
            ("build".to_owned(), Why::Ignored),
            ("deep/secret".to_owned(), Why::Ignored),
            ("deep/x.log".to_owned(), Why::Ignored),
            ("socket".to_owned(), Why::SpecialFile),
            ("sub/.git".to_owned(), Why::Git),
            ("target".to_owned(), Why::CacheDirectory),
        ]
    );
}

#[test]
fn what_was_never_captured_survives_every_rollback() {
    let bench = Bench::new();
    bench.write("a", "1");
    let empty = bench.create();
    bench.write("sub/.git/config", "precious");
    bench.write("sub/file", "x");
    bench.write(".git/HEAD", "ref");
    let _socket = UnixListener::bind(bench.path("sub/socket")).unwrap();
    let restored = bench.rollback(empty.id);
    assert_eq!(bench.read("sub/.git/config"), "precious");
    assert_eq!(bench.read(".git/HEAD"), "ref");
    assert!(bench.path("sub/socket").exists());
    assert!(!bench.path("sub/file").exists());
    let kept: Vec<String> = restored
        .outline()
        .paths
        .iter()
        .filter(|it| it.action == Action::Kept)
        .map(|it| it.path.to_string())
        .collect();
    assert_eq!(kept, ["sub"]);
    bench.undo();
    assert_eq!(bench.read("sub/file"), "x");
}

#[test]
fn rules_that_changed_since_neither_hide_nor_delete() {
    let bench = Bench::new();
    bench.write(".safepointignore", "secrets/\n");
    bench.write("secrets/key", "k");
    bench.write("build/x", "1");
    let then = bench.create();
    let image = bench.image();
    // Now the build folder is excluded and the secrets are not.
    bench.write(".safepointignore", "build/\n");
    bench.write("build/x", "2");
    bench.write("build/y", "new, and excluded all its life");
    bench.create();
    bench.rollback(then.id);
    assert_eq!(bench.read("build/x"), "1", "captured files are restored, even if excluded");
    assert_eq!(bench.read("secrets/key"), "k", "an uncaptured file is not deleted");
    assert_eq!(bench.read("build/y"), "new, and excluded all its life");
    fs::remove_file(bench.path("build/y")).unwrap();
    assert_same(&bench.image(), &image);
}

#[test]
fn unchanged_files_keep_their_inode_and_time() {
    let bench = Bench::new();
    bench.write("same", "1");
    bench.write("dir/same", "1");
    bench.write("changed", "1");
    bench.write("mode", "1");
    let checkpoint = bench.create();
    let facts = |name: &str| {
        fs::metadata(bench.path(name)).map(|it| (it.ino(), it.mtime(), it.mtime_nsec())).unwrap()
    };
    let before = [facts("same"), facts("dir/same"), facts("mode")];
    bench.write("changed", "2");
    bench.write("dir/new", "2");
    fs::set_permissions(bench.path("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    bench.rollback(checkpoint.id);
    assert_eq!([facts("same"), facts("dir/same"), facts("mode")], before);
}

#[test]
fn restored_files_are_new_to_build_tools_unless_asked() {
    let bench = Bench::new();
    bench.write("f", "1");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(bench.path("f")).unwrap().set_modified(old).unwrap();
    let checkpoint = bench.create();
    bench.write("f", "2");
    bench.rollback(checkpoint.id);
    assert!(fs::metadata(bench.path("f")).unwrap().modified().unwrap() > old);
    bench.write("f", "3");
    let options = RollbackOptions { times: safepoint::Times::Recorded, ..RollbackOptions::default() };
    bench.manager.rollback(&bench.workspace, checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(fs::metadata(bench.path("f")).unwrap().modified().unwrap(), old);
}

#[test]
fn links_are_put_back_as_links_and_never_followed() {
    let bench = Bench::new();
    let outside = crate::bench::scratch();
    fs::write(outside.path().join("canary"), "alive").unwrap();
    symlink(outside.path(), bench.path("out")).unwrap();
    symlink("loop", bench.path("loop")).unwrap();
    symlink("nowhere", bench.path("dangling")).unwrap();
    let checkpoint = bench.create();
    let image = bench.image();
    for name in ["out", "loop", "dangling"] {
        fs::remove_file(bench.path(name)).unwrap();
        bench.write(&format!("{name}/file"), "a directory now");
    }
    bench.rollback(checkpoint.id);
    assert_same(&bench.image(), &image);
    bench.undo();
    assert_eq!(bench.read("out/file"), "a directory now");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.path().join("canary")).unwrap(), "alive");
}

#[test]
fn a_home_inside_the_workspace_is_not_captured() {
    let folder = crate::bench::scratch();
    let project = folder.path().join("project");
    fs::create_dir_all(&project).unwrap();
    let manager = open(&project.join(".data/home"), Settings::default());
    let workspace = manager.workspaces().register(&project).unwrap();
    let created = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap();
    let skipped: Vec<_> = created.coverage.skipped.iter().map(|it| (it.path.to_string(), it.why)).collect();
    assert_eq!(skipped, [(".data/home".to_owned(), Why::OwnFolder)]);
    fs::write(project.join("x"), "1").unwrap();
    manager.rollback(&workspace, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    assert!(!project.join("x").exists() && project.join(".data/home/catalog.db").exists());
}

#[test]
fn configured_excludes_hold() {
    let bench = Bench::with(Settings { excludes: vec!["*.tmp".to_owned()], ..Settings::default() });
    bench.write("a.tmp", "1");
    assert_eq!(skipped(&bench), [("a.tmp".to_owned(), Why::Ignored)]);
    let bench = Bench::with(Settings { excludes: vec!["a[z-a]".to_owned()], ..Settings::default() });
    assert!(bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).is_err());
}

#[test]
fn a_nonsense_rule_is_told_with_the_checkpoint() {
    let bench = Bench::new();
    bench.write(".safepointignore", "a[z-a]\n*.log\n");
    bench.write("x.log", "1");
    let checkpoint = bench.create();
    assert_eq!(checkpoint.warnings.len(), 1, "{:?}", checkpoint.warnings);
    // A directory is not a rule file.
    fs::remove_file(bench.path(".safepointignore")).unwrap();
    fs::create_dir(bench.path(".safepointignore")).unwrap();
    let checkpoint = bench.create();
    assert_eq!(checkpoint.warnings.len(), 1, "{:?}", checkpoint.warnings);
}

#[test]
fn deep_nesting_beyond_path_max_comes_back() {
    let bench = Bench::new();
    let levels = 60;
    let name = "d".repeat(100);
    let mut here =
        rustix::fs::open(bench.root(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    let descend = |from: &std::os::fd::OwnedFd| {
        rustix::fs::openat(from, name.as_str(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap()
    };
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, name.as_str(), rustix::fs::Mode::RWXU).unwrap();
        here = descend(&here);
    }
    let write = |dir: &std::os::fd::OwnedFd, text: &str| {
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC;
        let fd =
            rustix::fs::openat(dir, "leaf", flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        rustix::io::write(&fd, text.as_bytes()).unwrap();
    };
    write(&here, "old");
    let checkpoint = bench.create();
    assert_eq!(checkpoint.files.count, levels + 1);
    write(&here, "new!");
    let restored = bench.rollback(checkpoint.id);
    assert_eq!(restored.outline().restored, 1);
    let fd =
        rustix::fs::openat(&here, "leaf", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mut text = [0u8; 8];
    let length = rustix::io::read(&fd, &mut text).unwrap();
    assert_eq!(&text[..length], b"old");
    // Everything is removed and restored.
    let empty = {
        let other = Bench::new();
        other.create();
        other
    };
    drop(empty);
    bench.undo();
}

#[test]
fn a_large_sparse_file_takes_little_room_and_stays_sparse() {
    let bench = Bench::new();
    let file = fs::File::create(bench.path("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    let checkpoint = bench.create();
    assert!(checkpoint.size_bytes < 100_000, "{}", checkpoint.size_bytes);
    fs::remove_file(bench.path("sparse")).unwrap();
    bench.rollback(checkpoint.id);
    let metadata = fs::metadata(bench.path("sparse")).unwrap();
    assert_eq!(metadata.len(), 64 << 20);
    assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
}

#[test]
fn one_byte_in_a_large_file_costs_little() {
    let bench = Bench::new();
    let mut state = 1u64;
    let mut content: Vec<u8> = (0..32 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    bench.write("large", &content);
    bench.create();
    content[16 << 20] ^= 1;
    bench.write("large", &content);
    let second = bench.create();
    assert!(second.size_bytes < 2 << 20, "{}", second.size_bytes);
}
