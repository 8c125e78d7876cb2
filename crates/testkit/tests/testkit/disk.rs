//! Tests of power cuts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use safepoint_testkit::{Crash, Disk, Op, Program, TreeImage, crash_states, every_cut, record};

use crate::common::{helper, names, sh};

/// Returns the disk after a program ran in `dir`.
fn after(dir: &Path, program: &Program) -> Disk {
    let roots = [dir.to_path_buf()];
    let mut disk = Disk::load(&roots).unwrap();
    let recording = record(program, &roots).unwrap();
    assert!(recording.end.is_success(), "{:?}", recording.end);
    recording.ops.iter().for_each(|op| disk.apply(op));
    disk
}

/// Returns the files after `how`, as `name=content`.
fn left(disk: &Disk, how: Crash, dir: &Path) -> String {
    disk.crash(&how).lay_out().unwrap();
    let show =
        |n: &String| format!("{n}={}", fs::read_to_string(dir.join(n)).unwrap().trim_end_matches('\n'));
    names(dir).iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn unsynced_is_forgotten_and_synced_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "echo x >f"));
    assert_eq!(disk.pending(), 2);
    assert_eq!(left(&disk, Crash::KeepAll, dir.path()), "f=x");
    assert_eq!(left(&disk, Crash::LoseAll, dir.path()), "");
    // The name without the data: an empty file.
    assert_eq!(left(&disk, Crash::LoseOne(1), dir.path()), "f=");

    let disk = after(dir.path(), &sh(dir.path(), "echo x >f; sync f; sync ."));
    assert_eq!(disk.pending(), 0);
    assert_eq!(left(&disk, Crash::LoseAll, dir.path()), "f=x");
}

#[test]
fn a_file_sync_does_not_keep_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let program = sh(dir.path(), "echo x >f; sync f");
    let roots = [dir.path().to_path_buf()];
    let start = Disk::load(&roots).unwrap();
    let recording = record(&program, &roots).unwrap();
    for (strict, expected) in [(true, ""), (false, "f=x")] {
        let mut disk = start.clone();
        disk.strict_names = strict;
        recording.ops.iter().for_each(|op| disk.apply(op));
        assert_eq!(left(&disk, Crash::LoseAll, dir.path()), expected);
    }
}

#[test]
fn a_folder_sync_does_not_keep_the_data() {
    for script in ["echo x >f; sync .", "echo x >f; sync -d ."] {
        let dir = tempfile::tempdir().unwrap();
        let disk = after(dir.path(), &sh(dir.path(), script));
        assert_eq!(left(&disk, Crash::LoseAll, dir.path()), "f=", "{script}");
    }
}

#[test]
fn a_data_sync_does_not_keep_the_mode() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "echo x >f; chmod 600 f; sync -d f"));
    assert_eq!(disk.pending(), 1);
}

#[test]
fn syncing_the_file_system_keeps_all() {
    let dir = tempfile::tempdir().unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "mkdir d; echo x >d/f; mv d/f f; sync -f ."));
    assert_eq!(disk.pending(), 0);
}

#[test]
fn a_rename_is_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "old").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "echo new >t; sync t; mv t f"));
    let states: BTreeSet<String> =
        crash_states(&disk, 50, 1).iter().map(|(how, _)| left(&disk, *how, dir.path())).collect();
    let expected = ["f=old", "f=old t=new", "f=new"].map(String::from);
    assert_eq!(states, BTreeSet::from(expected));
}

#[test]
fn a_rename_without_a_sync_may_leave_an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "old").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "echo new >t; mv t f"));
    let states: BTreeSet<String> =
        crash_states(&disk, 0, 1).iter().map(|(how, _)| left(&disk, *how, dir.path())).collect();
    assert!(states.contains("f="), "{states:?}");
}

#[test]
fn an_exchange_is_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("who"), name).unwrap();
    }
    let roots = [dir.path().to_path_buf()];
    let old = TreeImage::read(dir.path(), &[]).unwrap();
    let start = Disk::load(&roots).unwrap();
    let recording = record(&helper("exchange", dir.path()), &roots).unwrap();
    let new = TreeImage::read(dir.path(), &[]).unwrap();
    assert!(matches!(recording.ops[..], [Op::Exchange { .. }, Op::Fsync { .. }]));
    let mut seen = BTreeSet::new();
    every_cut(&start, &recording, 5, 0, |cut| {
        cut.image.lay_out()?;
        let now = TreeImage::read(dir.path(), &[])?;
        assert!(now == old || now == new, "{cut:?}");
        assert!(!cut.last || now == new, "{cut:?}");
        seen.insert(now.digest());
        Ok(())
    })
    .unwrap();
    assert_eq!(seen.len(), 2);
}

/// Careful program: every sync is needed.
const CAREFUL: &str = "echo new >t; sync t; mv t f; sync .";

fn holds(dir: &Path, dropped: Option<usize>) -> bool {
    fs::write(dir.join("f"), "old\n").unwrap();
    let roots = [dir.to_path_buf()];
    let start = Disk::load(&roots).unwrap();
    let mut recording = record(&sh(dir, CAREFUL), &roots).unwrap();
    if let Some(n) = dropped {
        recording = recording.without_sync(n).unwrap();
    }
    let mut held = true;
    let tried = every_cut(&start, &recording, 10, 0, |cut| {
        cut.image.lay_out()?;
        let now = fs::read_to_string(dir.join("f"))?;
        held &= if cut.last { now == "new\n" } else { now == "new\n" || now == "old\n" };
        Ok(())
    });
    assert!(tried.unwrap() >= 4);
    held
}

#[test]
fn a_missing_sync_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    assert!(holds(dir.path(), None));
    assert!(!holds(dir.path(), Some(0)));
    assert!(!holds(dir.path(), Some(1)));
}

#[test]
fn what_is_in_a_new_folder_needs_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "mkdir d; echo x >d/f; sync d/f; sync d"));
    // The sync of d commits the name in it, and with it the folder.
    assert_eq!(disk.pending(), 0);
    let script = "mkdir e; echo x >e/f; rm e/f; rmdir e; echo y >e";
    let disk = after(dir.path(), &sh(dir.path(), script));
    // Every subset can be laid out.
    for (how, image) in crash_states(&disk, 200, 3) {
        image.lay_out().unwrap_or_else(|e| panic!("{how:?}: {e}"));
    }
}

#[test]
fn folders_never_end_up_inside_themselves() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/sub")).unwrap();
    fs::write(dir.path().join("a/sub/keep"), "k").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "mv a/sub sub; mv a sub/a; mv sub/keep sub/a"));
    for (how, image) in crash_states(&disk, 200, 3) {
        let kept = image.paths().filter(|p| p.ends_with("keep")).count();
        assert_eq!(kept, 1, "{how:?}");
    }
}

#[test]
fn writes_are_torn_at_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().canonicalize().unwrap().join("f");
    fs::write(&file, [b'o'; 2048]).unwrap();
    let script = "head -c 2048 /dev/zero | tr '\\0' n | dd of=f bs=2048 conv=notrunc iflag=fullblock";
    let disk = after(dir.path(), &sh(dir.path(), script));
    let mut torn = 0;
    for seed in 0..100 {
        let image = disk.crash(&Crash::Random(seed));
        let data = image.file(&file).unwrap();
        assert_eq!(data.len(), 2048);
        for block in data.chunks(512) {
            assert!(block.iter().all(|b| *b == block[0]));
        }
        torn += usize::from(data.contains(&b'o') && data.contains(&b'n'));
        assert_eq!(image.digest(), disk.crash(&Crash::Random(seed)).digest());
    }
    assert!(torn > 0);
}

#[test]
fn modes_wait_for_a_sync() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "x").unwrap();
    for (script, expected) in [("chmod 600 f", 0o644), ("chmod 600 f; sync f", 0o600)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let disk = after(dir.path(), &sh(dir.path(), script));
        disk.crash(&Crash::LoseAll).lay_out().unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, expected);
    }
}

#[test]
fn a_folder_is_not_removed_before_it_was_emptied() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/keep"), "k").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "mv d/keep keep; rmdir d"));
    for (how, image) in crash_states(&disk, 20, 3) {
        let kept = image.paths().filter(|p| p.ends_with("keep")).count();
        assert_eq!(kept, 1, "{how:?}");
    }
}

#[test]
fn a_new_file_is_not_taken_for_one_that_had_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().canonicalize().unwrap().join("f");
    fs::write(&file, "old").unwrap();
    let disk = after(dir.path(), &sh(dir.path(), "rm f; echo new >g; echo newer >g"));
    for (how, image) in crash_states(&disk, 20, 3) {
        assert!(matches!(image.file(&file), None | Some(b"old")), "{how:?}");
    }
}
