//! Full disks.

use crate::place::{Answer, Place, assert_same, noise, skip};
use safepoint_testkit::TreeImage;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Small separate file system, mounted until drop.
pub(crate) struct Mount {
    folder: TempDir,
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

impl Mount {
    /// Mounts a tmpfs, or `None` without permission.
    pub(crate) fn memory(size: &str) -> Option<Self> {
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(mount.path()).unwrap();
        let options = format!("size={size},mode=755");
        succeeds("mount", &["-t", "tmpfs", "-o", &options, "none", mount.path().to_str()?]).then_some(mount)
    }

    /// Mounts an ext4 image.
    pub(crate) fn ext4(bytes: u64) -> Option<Self> {
        Self::of("ext4", bytes)
    }

    /// Mounts an image of this type. Returns `None` without the program to create it.
    pub(crate) fn of(kind: &str, bytes: u64) -> Option<Self> {
        let options: &[&str] = if kind == "ext4" { &["-q", "-m", "0"] } else { &["-q"] };
        Self::looped(kind, bytes, options)
    }

    /// Mounts a small copy-on-write file system: even an overwritten page needs space.
    pub(crate) fn small_btrfs(bytes: u64) -> Option<Self> {
        Self::looped("btrfs", bytes, &["-q", "--mixed"])
    }

    fn looped(kind: &str, bytes: u64, options: &[&str]) -> Option<Self> {
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(mount.path()).unwrap();
        let image = mount.folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let image = image.to_str()?;
        let made = succeeds(&format!("mkfs.{kind}"), &[options, &[image]].concat())
            && succeeds("mount", &["-o", "loop", image, mount.path().to_str()?]);
        made.then_some(mount)
    }

    /// Mounts an overlay over an empty folder, as in containers.
    pub(crate) fn overlay() -> Option<Self> {
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        let folder = |name: &str| mount.folder.path().join(name).to_str().unwrap().to_owned();
        ["mounted", "lower", "upper", "work"].iter().for_each(|name| fs::create_dir(folder(name)).unwrap());
        let (lower, upper, work) = (folder("lower"), folder("upper"), folder("work"));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        succeeds("mount", &["-t", "overlay", "overlay", "-o", &options, &folder("mounted")]).then_some(mount)
    }

    /// Mounts a read-only view of a folder.
    pub(crate) fn read_only_view(folder: &Path) -> Option<Self> {
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(mount.path()).unwrap();
        let (from, to) = (folder.to_str()?, mount.path());
        let bound = succeeds("mount", &["--bind", from, to.to_str()?])
            && succeeds("mount", &["-o", "remount,bind,ro", to.to_str()?]);
        bound.then_some(mount)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    pub(crate) fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        assert!(succeeds("mount", &["-o", &options, self.path().to_str().unwrap()]));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: an exiting program may still use it.
        succeeds("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

/// Fills the disk except for this much.
pub(crate) fn fill(path: &Path, spare: u64) {
    let mut file = fs::File::create(path).unwrap();
    let mut length = 0;
    for bytes in [1 << 16, 1 << 12, 1 << 9] {
        while file.write_all(&vec![1; bytes]).is_ok() {
            length += bytes as u64;
        }
        file.set_len(length).unwrap();
        use std::io::Seek;
        file.seek(std::io::SeekFrom::Start(length)).unwrap();
    }
    let _ = file.sync_all();
    // With delayed allocation, the last bytes may be missing.
    let on_disk = fs::metadata(path).unwrap().len();
    file.set_len(on_disk.saturating_sub(spare)).unwrap();
    let _ = file.sync_all();
}

/// Gives the disk back what [`fill`] took. A process that another test is just starting may hold the file open for a moment,
/// so that deleting it alone would not free its space.
pub(crate) fn drain(path: &Path) {
    if let Ok(file) = fs::OpenOptions::new().write(true).open(path) {
        file.set_len(0).unwrap();
        fs::remove_file(path).unwrap();
    }
}

fn edit(place: &Place, round: u64) {
    for number in 0..12 {
        place.write(format!("changes/{number}"), noise(round * 100 + number, 6_000));
    }
    place.write("large", noise(round, 400_000));
    place.write(format!("new/{round}/file"), noise(round + 7, 3_000));
    if round % 2 == 1 {
        let _ = fs::remove_dir_all(place.file("new"));
    }
}

#[track_caller]
fn is_done_or_full(answer: &Answer) -> bool {
    if answer.exit == 0 {
        return true;
    }
    let code = answer.is_a_clear_error();
    assert_eq!(answer.exit, 1, "{} {}\n{:#}", answer.what, answer.errors, answer.json);
    // Unfinished: the files are back, but no page of the catalog was left to record it. The next command does.
    let codes = ["disk_full", "rollback_failed", "unfinished"];
    assert!(codes.contains(&code), "{}\n{:#}", answer.errors, answer.json);
    let error = answer.json["error"].to_string();
    assert!(error.contains("full") || error.contains("free"), "the full disk is reported: {error}");
    false
}

/// Lifts the cap, a tenth of the disk, so that the disk is full before it.
pub(crate) fn lift_the_cap(home: &Path) {
    fs::write(home.join("config.toml"), "[store]\ncap = \"1TiB\"\n").unwrap();
}

fn at_every_level(disk: &str, mount: &Mount, levels: &[u64]) {
    let place = Place::at(&mount.path());
    let filler = mount.path().join("filler");
    edit(&place, 0);
    let first = place.create();
    lift_the_cap(&place.path("home"));
    let then = place.image();
    let (mut counts, mut taken) = ([0; 4], 1);
    for (round, spare) in levels.iter().enumerate() {
        edit(&place, round as u64 + 1);
        let now = place.image();
        fill(&filler, *spare);
        // There if it says so, else not; either way no file is different.
        let answer = place.run(&["create", "--kind", "manual"]);
        let created = is_done_or_full(&answer);
        assert_same(&place.image(), &now);
        taken += usize::from(created);
        assert_eq!(place.labels().len(), taken, "{spare} spare: {}\n{:#}", answer.errors, answer.json);
        let rolled_back = is_done_or_full(&place.run(&["rollback", &first]));
        // Leftovers may still be in Safepoint's folder, for the next command.
        let found = TreeImage::read(&place.project(), &[".safepoint"]).unwrap();
        assert_same(&found, if rolled_back { &then } else { &now });
        counts[usize::from(!created)] += 1;
        counts[2 + usize::from(!rolled_back)] += 1;
        // With space again, everything works.
        drain(&filler);
        place.run(&["recover"]).succeeds();
        assert_same(&place.image(), if rolled_back { &then } else { &now });
        place.is_whole();
    }
    let [created, no_create, rolled_back, no_rollback] = counts;
    eprintln!(
        "{disk}: create done {created} times and refused {no_create} times, rollback {rolled_back} and {no_rollback}"
    );
    assert!(no_create > 0 && no_rollback > 0, "the disk was never full");
    assert!(created > 0 && rolled_back > 0, "the disk was always full");
    edit(&place, 1_000);
    let last = place.create();
    let now = place.image();
    place.goes_to_and_fro(&first, &then);
    place.goes_to_and_fro(&last, &now);
    place.is_whole();
}

#[test]
fn a_disk_in_memory_that_is_full_at_any_moment() {
    let Some(mount) = Mount::memory("48m") else {
        return skip("a_disk_in_memory_that_is_full_at_any_moment", "it takes the right to mount");
    };
    let fine = (0..24).map(|step| step * 4096);
    let coarse = (1..24).map(|step| step * 64 * 1024);
    let levels: Vec<u64> = fine.chain(coarse).collect();
    at_every_level("tmpfs", &mount, &levels);
}

#[test]
fn a_real_disk_that_is_full_at_any_moment() {
    let Some(mount) = Mount::ext4(64 << 20) else {
        return skip("a_real_disk_that_is_full_at_any_moment", "it takes mkfs.ext4 and the right to mount");
    };
    let levels: Vec<u64> = (0..16).map(|step| step * 80 * 1024).collect();
    at_every_level("ext4", &mount, &levels);
}

/// Project and home on separate disks; either may be full.
#[test]
fn a_home_on_a_full_disk_of_its_own() {
    let Some(mount) = Mount::memory("12m") else {
        return skip("a_home_on_a_full_disk_of_its_own", "it takes the right to mount");
    };
    let place = Place::new();
    let home = mount.path().join("home");
    let run = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        Answer::of(&args, &place.command(&args).env("SAFEPOINT_HOME", &home).output().unwrap())
    };
    // No space even for a home.
    let filler = mount.path().join("filler");
    place.write("file", "1");
    fill(&filler, 0);
    let answer = run(&["create", "--kind", "manual"]);
    assert_eq!(answer.exit, 1, "{}", answer.errors);
    answer.is_a_clear_error();
    drain(&filler);
    let first =
        run(&["create", "--kind", "manual"]).succeeds()["checkpoint"]["id"].as_str().unwrap().to_owned();
    lift_the_cap(&home);
    let then = place.image();
    for round in 0..12 {
        place.write("file", noise(round, 200_000));
        let now = place.image();
        fill(&filler, round * 24 * 1024);
        is_done_or_full(&run(&["create", "--kind", "manual"]));
        assert_same(&place.image(), &now);
        let done = is_done_or_full(&run(&["rollback", &first]));
        let found = TreeImage::read(&place.project(), &[".safepoint"]).unwrap();
        assert_same(&found, if done { &then } else { &now });
        drain(&filler);
        run(&["recover"]).succeeds();
        assert_eq!(run(&["validate", "--deep"]).succeeds()["is_valid"], true);
    }
}

/// Disk usage counts, not the length.
#[test]
fn a_sparse_file_that_is_longer_than_the_disk() {
    let Some(mount) = Mount::memory("12m") else {
        return skip("a_sparse_file_that_is_longer_than_the_disk", "it takes the right to mount");
    };
    let place = Place::at(&mount.path());
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        Answer::of(&args, &place.command(&args).env("SAFEPOINT_HOME", home.path()).output().unwrap())
    };
    place.write("image", noise(1, 10_000));
    fs::File::options().write(true).open(place.file("image")).unwrap().set_len(64 << 20).unwrap();
    run(&["create", "--kind", "manual"]).succeeds();
    let then = place.image();
    fs::remove_file(place.file("image")).unwrap();
    let now = place.image();
    run(&["rollback", "@"]).succeeds();
    assert_same(&place.image(), &then);
    run(&["undo", "--yes"]).succeeds();
    assert_same(&place.image(), &now);
    // A file that is really too large is refused before any write, with the space it needs.
    place.write("too much", noise(2, 5 << 20));
    run(&["create", "--kind", "manual"]).succeeds();
    fs::remove_file(place.file("too much")).unwrap();
    fill(&mount.path().join("filler"), 2 << 20);
    let now = place.image();
    let answer = run(&["rollback", "@"]);
    answer.fails(1, "disk_full");
    assert!(answer.errors.contains("are needed and"), "{}", answer.errors);
    assert_same(&place.image(), &now);
}
