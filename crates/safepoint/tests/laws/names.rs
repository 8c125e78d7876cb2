//! Hard links, and the parents of a chosen path.

use crate::bench::{Bench, assert_same};
use safepoint_testkit::TreeImage;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

fn mode_of(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_mode_put_back_leaves_the_files_other_names_alone() {
    let bench = Bench::new();
    bench.write("a", "shared");
    set_mode(&bench.path("a"), 0o644);
    let then = bench.create();
    fs::hard_link(bench.path("a"), bench.path("b")).unwrap();
    let outside = bench.root().parent().unwrap().join("outside");
    fs::hard_link(bench.path("a"), &outside).unwrap();
    set_mode(&bench.path("a"), 0o755);

    // Only `a` is restored: `b` and the name outside the workspace keep their mode.
    bench.restore_paths(then.id, &["a"]);
    assert_eq!(mode_of(&bench.path("a")), 0o644);
    assert_eq!(mode_of(&bench.path("b")), 0o755);
    assert_eq!(mode_of(&outside), 0o755);
    bench.undo();
    assert_eq!(mode_of(&bench.path("a")), 0o755);

    // Everything is restored: the removed files equal the capture, so none is taken for an edit.
    let restored = bench.rollback(then.id);
    assert!(restored.record().rescued.is_empty(), "{restored:?}");
    assert!(!bench.path("b").exists());
    assert_eq!(mode_of(&outside), 0o755);
}

#[test]
fn undo_takes_away_the_folders_that_a_chosen_path_needed() {
    let bench = Bench::new();
    bench.write("deep/down/file", "content");
    bench.write("other", "stays");
    let then = bench.create();
    fs::remove_dir_all(bench.path("deep")).unwrap();
    let before = bench.image();
    bench.restore_paths(then.id, &["deep/down/file"]);
    assert_eq!(bench.read("deep/down/file"), "content");
    bench.undo();
    assert_same(&bench.image(), &before);
    bench.redo();
    assert_eq!(bench.read("deep/down/file"), "content");

    // A new file stays, with its folder.
    bench.write("deep/down/later", "mine");
    bench.undo();
    assert_eq!(bench.read("deep/down/later"), "mine");
    assert!(!bench.path("deep/down/file").exists());
}

#[test]
fn undo_of_a_path_that_is_gone_again_is_no_failure() {
    let bench = Bench::new();
    bench.write("deep/file", "content");
    let then = bench.create();
    fs::remove_dir_all(bench.path("deep")).unwrap();
    let before: TreeImage = bench.image();
    bench.restore_paths(then.id, &["deep/file"]);
    fs::remove_file(bench.path("deep/file")).unwrap();
    bench.undo();
    assert_same(&bench.image(), &before);
}

#[test]
fn a_file_keeps_its_group_where_the_folder_hands_its_own_on() {
    let bench = Bench::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root gives files to other groups");
        return;
    }
    let group = |path: &str, id: u32| std::os::unix::fs::chown(bench.path(path), None, Some(id)).unwrap();
    fs::create_dir(bench.path("folder")).unwrap();
    for folder in ["", "folder"] {
        group(folder, 4242);
        set_mode(&bench.path(folder), 0o2775);
    }
    for name in ["a", "folder/b"] {
        bench.write(name, "then");
        group(name, 0);
    }
    bench.write("folder/c", "of the folder's group");
    let (then, image) = (bench.create(), bench.image());
    fs::remove_dir_all(bench.path("folder")).unwrap();
    bench.write("a", "now");
    bench.rollback(then.id);
    assert_same(&bench.image(), &image);
    let group_of = |path: &str| std::os::unix::fs::MetadataExt::gid(&fs::metadata(bench.path(path)).unwrap());
    assert_eq!(["a", "folder/b", "folder/c", "folder"].map(group_of), [0, 0, 4242, 4242]);
}
