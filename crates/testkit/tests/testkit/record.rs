//! Tests of recordings: without losses, the model equals the real folder.

use std::fs;
use std::path::{Path, PathBuf};

use safepoint_testkit::{Crash, Disk, Op, Program, Recording, TreeImage, record};

use crate::common::{helper, sh, threads};

/// Runs `program`, replays it, and compares the model with the real folder.
fn faithful(dir: &Path, program: &Program) -> Recording {
    let roots = [dir.to_path_buf()];
    let mut disk = Disk::load(&roots).unwrap();
    let recording = record(program, &roots).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    let truth = TreeImage::read(dir, &[]).unwrap();
    recording.ops.iter().for_each(|op| disk.apply(op));
    disk.crash(&Crash::KeepAll).lay_out().unwrap();
    let replayed = TreeImage::read(dir, &[]).unwrap();
    assert_eq!(truth.difference(&replayed), Vec::<String>::new(), "{:#?}", recording.ops);
    recording
}

#[test]
fn a_shell_script_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("old/deep")).unwrap();
    fs::write(dir.path().join("old/deep/file"), "was there").unwrap();
    fs::write(dir.path().join("old/cut"), "long enough").unwrap();
    faithful(
        dir.path(),
        &sh(
            dir.path(),
            "umask 027; mkdir -p a/b/c; echo 1 >a/b/c/1; cp -a old copy; mv a old/moved; \
             ln -s nowhere link; ln old/cut hard; echo x >>old/cut; truncate -s 3 hard; \
             cd old; echo up >../up; chmod 4711 ../up; mv deep/file ../file; rmdir deep; \
             rm -r moved/b; touch -d 2001-01-01 moved; dd if=/dev/zero of=z bs=5000 count=3 \
             conv=fsync status=none; dd if=../file of=z bs=1 seek=100 conv=notrunc status=none",
        ),
    );
}

#[test]
fn seldom_calls_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let recording = faithful(dir.path(), &helper("odd", dir.path()));
    let synced = dir.path().canonicalize().unwrap().join("synced");
    let sync = |op: &Op| matches!(op, Op::Fdatasync { path, .. } if *path == synced);
    assert!(recording.ops.iter().any(sync), "O_DSYNC was not seen");
    assert_eq!(fs::read(dir.path().join("hard")).unwrap(), b"BEfore and after\0\0\0\0beyond!");
    assert_eq!(fs::read(dir.path().join("named")).unwrap(), b"had no name");
}

#[test]
fn threads_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let recording = faithful(dir.path(), &threads(dir.path(), 6));
    let syncs = recording.ops.iter().filter(|op| op.is_sync()).count();
    assert_eq!(syncs, 12);
    let no_syncs = recording.without(Op::is_sync);
    assert_eq!(no_syncs.ops.len(), recording.ops.len() - 12);
    assert!(recording.without_sync(11).is_some() && recording.without_sync(12).is_none());
}

#[test]
fn several_roots_and_the_outside() {
    let top = tempfile::tempdir().unwrap();
    let roots: Vec<PathBuf> = ["home", "work"].iter().map(|n| top.path().join(n)).collect();
    roots.iter().for_each(|r| fs::create_dir(r).unwrap());
    let script = "echo a >home/a; mv home/a work/b; echo out >out; mv out work/in; \
                  echo shm >work/db-shm; rm work/db-shm; echo c >work/c; mv work/c away";
    let mut disk = Disk::load(&roots).unwrap();
    let recording = record(&sh(top.path(), script), &roots).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    recording.ops.iter().for_each(|op| disk.apply(op));
    let image = disk.crash(&Crash::KeepAll);
    let top = top.path().canonicalize().unwrap();
    assert_eq!(image.file(&top.join("work/b")), Some(&b"a\n"[..]));
    assert_eq!(image.file(&top.join("work/in")), Some(&b"out\n"[..]));
    assert_eq!(image.paths().count(), 4, "{:?}", image.paths().collect::<Vec<_>>());
    let shm = |op: &Op| format!("{op:?}").contains("-shm");
    assert!(!recording.ops.iter().any(shm), "{:?}", recording.ops);
}
