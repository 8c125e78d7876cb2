//! Unusual names.

use crate::place::{Place, assert_same, name};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Captures, edits and restores files and folders of these names, all and one by one, and reads them from the
/// checkpoint.
fn comes_back(names: &[&[u8]]) {
    let place = Place::new();
    for bytes in names {
        let folder = [b"in ", *bytes].concat();
        let folder = if bytes.len() > 200 { bytes.to_vec() } else { folder };
        place.write(Path::new("folders").join(name(&folder)).join(name(bytes)), bytes);
        place.write(name(bytes), bytes);
    }
    let id = place.create();
    let then = place.image();
    for bytes in names {
        place.write(name(bytes), "changed");
    }
    fs::remove_dir_all(place.file("folders")).unwrap();
    for bytes in names {
        let args: Vec<OsString> =
            vec!["cat".into(), id.clone().into(), "--".into(), OsStr::from_bytes(bytes).into()];
        let output = place.command(&args).output().unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.code()), (*bytes, Some(0)), "{:?}", name(bytes));
        let mut path = OsString::from("--path=");
        path.push(name(bytes));
        place.run(&["rollback".into(), id.clone().into(), path]).succeeds();
        assert_eq!(fs::read(place.file(name(bytes))).unwrap(), *bytes);
        place.run(&["undo", "--yes"]).succeeds();
        assert_eq!(fs::read(place.file(name(bytes))).unwrap(), b"changed");
    }
    place.goes_to_and_fro(&id, &then);
    // Text output has no terminal control characters.
    for args in [&["show", "@", "--files"][..], &["diff", "@"], &["status"], &["list"]] {
        let output = place.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let told = [output.stdout, output.stderr].concat();
        assert!(!told.contains(&0x1b) && !told.contains(&b'\r') && std::str::from_utf8(&told).is_ok());
    }
    place.is_whole();
}

#[test]
fn names_that_are_not_utf8() {
    comes_back(&[b"caf\xe9", b"\xff", b"\x80\x81\x82", b"ok\xc3"]);
}

#[test]
fn names_of_255_bytes() {
    comes_back(&[&[b'x'; 255], "é".repeat(127).as_bytes(), &[0xff; 255]]);
}

#[test]
fn names_with_newlines_and_other_control_characters() {
    comes_back(&[
        b"new\nline",
        b"\n",
        b"carriage\rreturn",
        b"esc\x1b[31m",
        b"tab\t",
        b"\x7f\x01",
        b" ",
        b"a\\b",
    ]);
}

#[test]
fn names_like_options() {
    comes_back(&[b"-dash", b"--", b"--json", b"--path=x", b"-", b"@", b"@~1", b"~", b"*", b"$(id)"]);
}

#[test]
fn names_that_differ_only_in_case() {
    comes_back(&[b"Read me", b"read me", b"README", b"readme", b"straSSe", "straße".as_bytes()]);
}

#[test]
fn names_that_differ_only_in_unicode_form() {
    // Names that look the same: composed, decomposed, and as a dedicated character.
    comes_back(&[
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        "\u{212b}".as_bytes(),
        "\u{c5}".as_bytes(),
        "A\u{30a}".as_bytes(),
    ]);
}

fn descend(from: &OwnedFd, name: &str) -> OwnedFd {
    openat(from, name, OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn put(dir: &OwnedFd, text: &str) {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
    let fd = openat(dir, "leaf", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&fd, text.as_bytes()).unwrap();
}

fn leaf(dir: &OwnedFd) -> Vec<u8> {
    let fd = openat(dir, "leaf", OFlags::RDONLY, Mode::empty()).unwrap();
    let mut text = [0; 8];
    let length = rustix::io::read(&fd, &mut text).unwrap();
    text[..length].to_vec()
}

#[test]
fn paths_deeper_than_path_max() {
    const LEVELS: usize = 60;
    let name = "d".repeat(100);
    let place = Place::new();
    place.write("beside", "1");
    let root = rustix::fs::open(place.project(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    let bottom = || (0..LEVELS).fold(root.try_clone().unwrap(), |here, _| descend(&here, &name));
    let mut here = root.try_clone().unwrap();
    for _ in 0..LEVELS {
        mkdirat(&here, name.as_str(), Mode::RWXU).unwrap();
        here = descend(&here, &name);
    }
    put(&here, "old");
    let id = place.create();
    // One deeply nested file changes.
    put(&here, "new!");
    place.rollback(&id);
    assert_eq!(leaf(&bottom()), b"old");
    place.run(&["undo", "--yes"]).succeeds();
    assert_eq!(leaf(&bottom()), b"new!");
    // Everything is removed and restored.
    rustix::fs::renameat(&root, name.as_str(), rustix::fs::CWD, place.path("aside")).unwrap();
    let bare = place.image();
    place.rollback(&id);
    assert_eq!(leaf(&bottom()), b"old");
    place.run(&["undo", "--yes"]).succeeds();
    assert_same(&place.image(), &bare);
    place.is_whole();
}
