//! Entries that are not plain separate files.

use crate::place::{Place, assert_same, is_root, noise, skip};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_where_a_file_was_and_the_reverse() {
    let place = Place::new();
    place.write("file", "1");
    place.write("dir/deep/file", "1");
    place.write("dir/other", "1");
    fs::create_dir(place.file("empty")).unwrap();
    let id = place.create();
    let then = place.image();
    fs::remove_file(place.file("file")).unwrap();
    fs::remove_dir_all(place.file("dir")).unwrap();
    fs::remove_dir(place.file("empty")).unwrap();
    place.write("file/is/a/directory", "2");
    place.write("dir", "a file");
    place.write("empty", "a file");
    place.goes_to_and_fro(&id, &then);
    place.is_whole();
}

#[test]
fn files_without_read_permission() {
    let place = Place::ordinary();
    place.shell("echo 1 > secret; echo 1 > file; mkdir shut; echo 1 > shut/file");
    let first = place.create();
    place.shell("echo 2 > file; chmod 000 secret shut");
    if !is_root() && fs::read(place.file("secret")).is_ok() {
        return skip("files_without_read_permission", "this user may read everything");
    }
    let answer = place.run(&["create", "--kind", "manual"]);
    assert_eq!(answer.exit, 3, "{}", answer.errors);
    let skipped = answer.data()["checkpoint"]["coverage"]["skipped"].to_string();
    assert!(skipped.contains("secret") && skipped.contains("shut"), "{skipped}");
    // An unreadable file cannot be captured, so it is not displaced.
    let refused = place.run(&["rollback", &first]);
    refused.fails(12, "obstructed");
    let mode = |name: &str| fs::symlink_metadata(place.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((place.read("file").as_str(), mode("secret"), mode("shut")), ("2\n", 0, 0));
    // The rest can still be chosen.
    place.run(&["rollback", &first, "--path", "file"]).succeeds();
    assert_eq!(place.read("file"), "1\n");
    place.shell("chmod 644 secret; chmod 755 shut");
    place.rollback(&first);
    place.is_whole();
}

#[test]
fn hard_links() {
    let place = Place::new();
    place.write("a", "1");
    fs::hard_link(place.file("a"), place.file("b")).unwrap();
    fs::hard_link(place.file("a"), place.path("outside")).unwrap();
    let id = place.create();
    let then = place.image();
    // Written through one name, visible under all three.
    fs::write(place.file("b"), "2").unwrap();
    set_mode(&place.file("a"), 0o600);
    place.goes_to_and_fro(&id, &then);
    let outside = place.path("outside");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "2", "a name outside the workspace stays");
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o600);
    // Hard links across the old and the new state, in both directions.
    fs::remove_file(place.file("b")).unwrap();
    fs::hard_link(place.file("a"), place.file("c")).unwrap();
    place.goes_to_and_fro(&id, &then);
    place.is_whole();
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn sparse_files() {
    let place = Place::new();
    let make = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = fs::File::create(place.file(name)).unwrap();
        file.set_len(size).unwrap();
        for (at, bytes) in data {
            file.write_all_at(&noise(*at + 1, *bytes), *at).unwrap();
        }
        file.sync_all().unwrap();
        blocks(&place.file(name))
    };
    let before = [
        ("only a hole", make("only a hole", 48 << 20, &[])),
        ("data first", make("data first", 16 << 20, &[(0, 4096)])),
        ("data last", make("data last", 16 << 20, &[((16 << 20) - 4096, 4096)])),
        ("data between", make("data between", 24 << 20, &[(7 << 20, 100_000), (20 << 20, 4096)])),
        (
            "a hole at the end of odd length",
            make("a hole at the end of odd length", (9 << 20) + 77, &[(5, 10)]),
        ),
        (
            "islands",
            make(
                "islands",
                16 << 20,
                &(0..64).map(|number| (number * (256 << 10), 4096)).collect::<Vec<_>>(),
            ),
        ),
        ("small", make("small", 200_000, &[(0, 10)])),
    ];
    let id = place.create();
    let then = place.image();
    for (name, _) in before {
        fs::remove_file(place.file(name)).unwrap();
    }
    place.rollback(&id);
    assert_same(&place.image(), &then);
    for (name, were) in before {
        let are = blocks(&place.file(name));
        // Rounding may cost a block at each end of each data range.
        eprintln!("{name}: {were} bytes on disk before, {are} after");
        assert!(are <= were + (64 << 10), "{name}: {were} bytes on disk before, {are} after");
    }
}

/// Mostly holes, so that its creation is fast; Safepoint must read and write every byte.
#[test]
fn a_file_of_5_gb_in_bounded_memory() {
    const SIZE: u64 = 5 << 30;
    const MEMORY_MAX: u64 = 300 << 20;
    let place = Place::new();
    let data: Vec<(u64, u64)> = (0..6).map(|number| (number * (SIZE / 6), number)).collect();
    let make = || {
        let file = fs::File::create(place.file("large")).unwrap();
        file.set_len(SIZE).unwrap();
        for (at, seed) in &data {
            file.write_all_at(&noise(*seed, 4 << 20), *at).unwrap();
        }
    };
    make();
    let id = place.create();
    fs::remove_file(place.file("large")).unwrap();
    place.rollback(&id);
    let file = fs::File::open(place.file("large")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let mut found = vec![0; 4 << 20];
    for (at, seed) in &data {
        file.read_exact_at(&mut found, *at).unwrap();
        assert!(found == noise(*seed, 4 << 20), "at {at}");
        file.read_exact_at(&mut found, *at + (64 << 20)).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
    let peak = safepoint_testkit::memory::peak_bytes_of_children().unwrap();
    eprintln!(
        "5 GiB: at most {} MiB of memory; {} MiB on disk",
        peak >> 20,
        blocks(&place.file("large")) >> 20
    );
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}

#[test]
fn sockets_and_fifos() {
    let place = Place::new();
    place.write("file", "1");
    let socket = UnixListener::bind(place.file("socket")).unwrap();
    mknodat(CWD, place.file("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let answer = place.run(&["create", "--kind", "manual"]);
    let skipped = answer.data()["checkpoint"]["coverage"]["skipped"].to_string();
    assert!(skipped.contains("socket") && skipped.contains("fifo"), "{skipped}");
    let id = answer.succeeds()["checkpoint"]["id"].as_str().unwrap().to_owned();
    let then = place.image();
    // They stay in place, whatever changes around them.
    place.write("file", "2");
    place.write("new", "2");
    place.goes_to_and_fro(&id, &then);
    // A later one is not deleted, and one at a needed path is not displaced.
    fs::remove_file(place.file("file")).unwrap();
    mknodat(CWD, place.file("file"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let refused = place.refuses(&["rollback", &id], 12, "obstructed");
    assert!(refused.json["error"]["hints"].to_string().contains("In the way: file"), "{}", refused.errors);
    drop(socket);
    place.is_whole();
}

#[test]
fn devices() {
    let place = Place::new();
    place.write("file", "1");
    let made =
        mknodat(CWD, place.file("null"), FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 3));
    let made = made.and_then(|()| {
        mknodat(CWD, place.file("disk"), FileType::BlockDevice, Mode::RUSR, rustix::fs::makedev(7, 200))
    });
    if made.is_err() {
        return skip("devices", "it takes the right to make device files");
    }
    let answer = place.run(&["create", "--kind", "manual"]);
    let skipped = answer.data()["checkpoint"]["coverage"]["skipped"].to_string();
    assert!(skipped.contains("null") && skipped.contains("disk"), "{skipped}");
    answer.succeeds();
    let then = place.image();
    place.write("file", "2");
    place.rollback("@");
    assert_same(&place.image(), &then);
    fs::remove_file(place.file("file")).unwrap();
    mknodat(CWD, place.file("file"), FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 5))
        .unwrap();
    place.refuses(&["rollback", "@"], 12, "obstructed");
}

#[test]
fn set_uid_bits() {
    let place = Place::ordinary();
    place.shell("for f in suid sgid sticky plain; do echo 1 > $f; done; mkdir shared");
    place.shell("chmod 4755 suid; chmod 2755 sgid; chmod 1644 sticky; chmod 755 plain; chmod 2775 shared");
    let id = place.create();
    let then = place.image();
    let mode = |name: &str| fs::metadata(place.file(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("suid"), mode("sgid"), mode("shared")), (0o4755, 0o2755, 0o2775));
    // Deleted, edited (which clears the bit), and newly set: a bit that an agent sets does not survive.
    place.shell("rm suid; echo 2 > sgid; chmod 4755 plain; chmod 755 shared; echo 2 > sticky");
    place.goes_to_and_fro(&id, &then);
    assert_eq!((mode("suid"), mode("sgid"), mode("shared")), (0o4755, 0o2755, 0o2775));
    assert_eq!(mode("plain"), 0o755);
}

#[test]
fn nested_git_repositories() {
    let place = Place::new();
    place.write(".git/HEAD", "ref: refs/heads/main\n");
    place.write("file", "1");
    place.write("vendor/lib/.git/HEAD", "ref: refs/heads/main\n");
    place.write("vendor/lib/.git/objects/aa/bb", "object");
    place.write("vendor/lib/code", "1");
    let id = place.create();
    place.write("file", "2");
    place.write("vendor/lib/code", "2");
    place.write("vendor/lib/new", "2");
    // Concurrent changes of git stay.
    place.write(".git/HEAD", "ref: refs/heads/other\n");
    place.write("vendor/lib/.git/HEAD", "ref: refs/heads/other\n");
    place.write("clone/.git/HEAD", "precious\n");
    place.write("clone/code", "2");
    place.rollback(&id);
    assert_eq!((place.read("file"), place.read("vendor/lib/code")), ("1".to_owned(), "1".to_owned()));
    assert!(!place.file("vendor/lib/new").exists() && !place.file("clone/code").exists());
    for (path, text) in [
        (".git/HEAD", "ref: refs/heads/other\n"),
        ("vendor/lib/.git/HEAD", "ref: refs/heads/other\n"),
        ("vendor/lib/.git/objects/aa/bb", "object"),
        ("clone/.git/HEAD", "precious\n"),
    ] {
        assert_eq!(place.read(path), text, "{path}");
    }
    place.run(&["undo", "--yes"]).succeeds();
    assert_eq!((place.read("clone/code"), place.read("vendor/lib/new")), ("2".to_owned(), "2".to_owned()));
    // A folder with a repository is not replaced by a file.
    fs::rename(place.file("file"), place.path("aside")).unwrap();
    place.write("file/.git/HEAD", "precious\n");
    place.refuses(&["rollback", &id], 12, "obstructed");
}

#[test]
fn submodules_and_worktrees() {
    let place = Place::new();
    // There `.git` is a file that names the real one. It is captured as a file, because without it the folder
    // is no repository.
    place.write(".git/modules/lib/HEAD", "ref: refs/heads/main\n");
    place.write("lib/.git", "gitdir: ../.git/modules/lib\n");
    place.write("lib/code", "1");
    place.write(".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n");
    let id = place.create();
    let then = place.image();
    fs::remove_dir_all(place.file("lib")).unwrap();
    place.write("worktree/.git", "gitdir: /elsewhere/.git/worktrees/x\n");
    place.write("worktree/code", "2");
    place.goes_to_and_fro(&id, &then);
    assert_eq!(place.read("lib/.git"), "gitdir: ../.git/modules/lib\n");
    // A workspace that is itself a worktree.
    let place = Place::new();
    place.write(".git", "gitdir: /elsewhere/.git/worktrees/x\n");
    place.write("code", "1");
    let id = place.create();
    let then = place.image();
    place.write("code", "2");
    place.goes_to_and_fro(&id, &then);
}

#[test]
fn a_file_system_without_exchange() {
    for without in ["exchange", "noreplace", "exchange,noreplace", "exchange,noreplace,leases"] {
        let place = Place::new();
        place.write("changed", "1");
        place.write("dir/gone", "1");
        place.write("type", "a file");
        std::os::unix::fs::symlink("x", place.file("link")).unwrap();
        let id = place.create();
        let then = place.image();
        place.write("changed", "2");
        fs::remove_dir_all(place.file("dir")).unwrap();
        fs::remove_file(place.file("type")).unwrap();
        place.write("type/is/a/directory", "2");
        place.write("new", "2");
        fs::remove_file(place.file("link")).unwrap();
        let now = place.image();
        let run = |args: &[&str]| {
            let output = place.command(args).env("SAFEPOINT_TEST_WITHOUT", without).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            // Without leases, possible writers to displaced files may be undetectable.
            let waits = without.contains("leases") && told.contains("may be open");
            assert_eq!(output.status.code(), Some(if waits { 3 } else { 0 }), "{told}");
            if waits {
                place.run(&["--yes", "recover", "--release"]).succeeds();
            }
            assert!(told.contains("warning: "), "missing features are reported: {told}");
        };
        run(&["rollback", &id]);
        assert_same(&place.image(), &then);
        run(&["undo", "--yes"]);
        assert_same(&place.image(), &now);
    }
}
