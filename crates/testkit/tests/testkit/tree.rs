//! Tests of trees as values.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use safepoint_testkit::{TreeImage, copy_tree};

#[test]
fn a_copy_is_equal_and_each_difference_is_told() {
    let top = tempfile::tempdir().unwrap();
    let (a, b) = (top.path().join("a"), top.path().join("b"));
    fs::create_dir_all(a.join("d/.git")).unwrap();
    fs::write(a.join("f"), "content").unwrap();
    fs::write(a.join("d/.git/x"), "skipped").unwrap();
    symlink("f", a.join("l")).unwrap();
    nix::unistd::mkfifo(&a.join("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A whiteout, as an overlay makes it; each user may.
    nix::sys::stat::mknod(&a.join("w"), nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::empty(), 0)
        .unwrap();
    let attributes = xattr::set(a.join("f"), "user.k", b"v").is_ok();
    fs::set_permissions(a.join("f"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(a.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    copy_tree(&a, &b).unwrap();

    let read = |dir| TreeImage::read(dir, &[".git"]).unwrap();
    let first = read(&a);
    assert_eq!(first, read(&b));
    assert_eq!(first.digest(), read(&b).digest());
    assert_eq!(first.0.len(), 6);
    assert_eq!(TreeImage::read(&a, &[]).unwrap().0.len(), 8);

    fs::write(b.join("f"), "CONTENT").unwrap();
    fs::remove_file(b.join("l")).unwrap();
    symlink("g", b.join("l")).unwrap();
    fs::remove_file(b.join("p")).unwrap();
    fs::write(b.join("new"), "").unwrap();
    let lines = first.difference(&read(&b));
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert_ne!(first.digest(), read(&b).digest());

    if attributes {
        copy_tree(&a, &top.path().join("c")).unwrap();
        xattr::set(top.path().join("c/f"), "user.k", b"w").unwrap();
        assert_eq!(first.difference(&read(&top.path().join("c"))).len(), 1);
    }
}
