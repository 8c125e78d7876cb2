//! Files of other users, whose writers the kernel does not report to everyone.
//!
//! Needs root: files are given to another user, and the program runs as a third user, or as root without
//! capabilities.

use crate::disks::Mount;
use crate::place::{Answer, Place, is_root, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Owner of the files.
const OWNER: u32 = 1001;

/// User that runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Neither root nor the owner.
    Another,
    /// Root without leases.
    WithoutLease,
    /// Root without leases and without setuid.
    WithoutLeaseAndSetuid,
}

const EVERYONE: [Who; 3] = [Who::Another, Who::WithoutLease, Who::WithoutLeaseAndSetuid];

struct Scene {
    who: Who,
    place: Place,
}

impl Scene {
    fn new(who: Who) -> Self {
        Self { who, place: if who == Who::Another { Place::ordinary() } else { Place::new() } }
    }

    /// Creates the scene on a mounted file system.
    fn at(who: Who, base: &Path) -> Self {
        let place = Place::at(base);
        if who == Who::Another {
            for path in [base.to_owned(), place.project(), place.path("user")] {
                chown(path, Some(65_534), Some(65_534)).unwrap();
            }
        }
        Self { who, place }
    }

    /// Writes a file of another user.
    fn write(&self, name: &str, content: &str) -> PathBuf {
        self.place.write(name, content);
        let path = self.place.file(name);
        if self.who == Who::Another {
            chown(path.parent().unwrap(), Some(65_534), Some(65_534)).unwrap();
        }
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// Command as the selected user.
    fn command(&self, args: &[&str]) -> Command {
        let plain = self.place.command(args);
        let caps = match self.who {
            Who::Another if self.place.is_ordinary() => return plain,
            Who::Another => vec!["--reuid=65534", "--regid=65534", "--clear-groups"],
            Who::WithoutLease => vec!["--bounding-set=-lease", "--inh-caps=-lease"],
            Who::WithoutLeaseAndSetuid => vec!["--bounding-set=-lease,-setuid", "--inh-caps=-lease,-setuid"],
        };
        let mut command = Command::new("setpriv");
        command.args(caps).arg(plain.get_program()).args(plain.get_args());
        command.env_clear().envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env("PATH", "/usr/bin:/bin").current_dir(self.place.project());
        command
    }

    fn run(&self, args: &[&str]) -> Answer {
        let args: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
        Answer::of(&args, &self.command(&args).output().unwrap())
    }

    #[track_caller]
    fn create(&self) -> (String, Vec<String>) {
        let answer = self.run(&["create", "--kind", "manual"]);
        let data = answer.succeeds();
        let warnings = data["checkpoint"]["warnings"].as_array().unwrap();
        let warnings = warnings.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        (data["checkpoint"]["id"].as_str().unwrap().to_owned(), warnings)
    }

    /// A file in a checkpoint.
    fn cat(&self, id: &str, name: &str) -> String {
        String::from_utf8(self.command(&["cat", id, name]).output().unwrap().stdout).unwrap()
    }

    /// Returns every version of a file in the tree or in a checkpoint.
    fn everything(&self, name: &str) -> String {
        let mut all = fs::read_to_string(self.place.file(name)).unwrap_or_default();
        let data = self.run(&["list", "-n", "1000"]).succeeds();
        for checkpoint in data["checkpoints"].as_array().unwrap() {
            all.push_str(&self.cat(checkpoint["id"].as_str().unwrap(), name));
        }
        all
    }

    /// Returns the kept displaced files.
    fn displaced(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for stage in fs::read_dir(self.place.file(".safepoint")).into_iter().flatten() {
            let stage = stage.unwrap().path();
            let slots = fs::read_dir(&stage).into_iter().flatten().map(|slot| slot.unwrap().path());
            found.extend(
                slots.filter(|slot| !slot.file_name().unwrap().to_string_lossy().starts_with("boot-")),
            );
        }
        found
    }
}

fn may_test(test: &str) -> bool {
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if !is_root() || !has_setpriv {
        skip(test, "takes root and setpriv");
    }
    is_root() && has_setpriv
}

fn waiting(answer: &Answer, group: &str) -> Vec<String> {
    let paths = answer.data()[group]["waiting"].as_array().unwrap();
    paths.iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_displaced_file_of_another_user_that_is_open_loses_no_line() {
    if !may_test("a_displaced_file_of_another_user_that_is_open_loses_no_line") {
        return;
    }
    for who in EVERYONE {
        let scene = Scene::new(who);
        let log = scene.write("log", "line 1\n");
        let mut writer = File::options().append(true).open(&log).unwrap();
        let (id, _) = scene.create();
        writeln!(writer, "line 2").unwrap();
        let answer = scene.run(&["rollback", &id]);
        assert_eq!(answer.exit, 3, "{who:?}: {}\n{:#}", answer.errors, answer.json);
        assert_eq!(waiting(&answer, "rollback"), ["log"], "{who:?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "line 1\n", "{who:?}");
        // These writes were acknowledged.
        writeln!(writer, "line 3").unwrap();
        let answer = scene.run(&["recover"]);
        assert_eq!((answer.exit, waiting(&answer, "recovery")), (3, vec!["log".to_owned()]), "{who:?}");
        writeln!(writer, "line 4").unwrap();
        drop(writer);
        let answer = scene.run(&["recover"]);
        if who == Who::WithoutLease {
            assert_eq!(
                (answer.exit, waiting(&answer, "recovery").len()),
                (0, 0),
                "{who:?}: {:#}",
                answer.json
            );
        } else if answer.exit == 3 {
            // Another process may have it open: it stays pending.
            assert_eq!(waiting(&answer, "recovery"), ["log"], "{who:?}");
            assert_eq!(
                fs::read_to_string(&scene.displaced()[0]).unwrap(),
                "line 1\nline 2\nline 3\nline 4\n"
            );
            let answer = scene.run(&["--yes", "recover", "--release"]);
            assert_eq!(answer.exit, 0, "{who:?}: {}\n{:#}", answer.errors, answer.json);
            assert_eq!(answer.data()["recovery"]["released"], serde_json::json!(["log"]), "{who:?}");
        }
        let all = scene.everything("log");
        for line in 1..=4 {
            assert!(all.contains(&format!("line {line}\n")), "{who:?}: line {line} is lost: {all}");
        }
        assert!(!scene.place.file(".safepoint").exists(), "{who:?}");
    }
}

#[test]
fn a_displaced_file_waits_where_its_writers_cannot_be_ruled_out() {
    if !may_test("a_displaced_file_waits_where_its_writers_cannot_be_ruled_out") {
        return;
    }
    let scene = Scene::new(Who::Another);
    scene.write("dir/theirs", "1");
    scene.place.write("own", "1");
    let (id, _) = scene.create();
    scene.write("dir/theirs", "2");
    let answer = scene.run(&["rollback", &id]);
    assert_eq!((answer.exit, waiting(&answer, "rollback")), (3, vec!["dir/theirs".to_owned()]));
    assert!(answer.errors.contains("may be open"), "{}", answer.errors);
    // It has nothing to do with the next rollback, which displaces what is the user's own by now.
    let answer = scene.run(&["undo", "--yes"]);
    assert_eq!((answer.exit, scene.place.read("dir/theirs").as_str()), (0, "2"), "{}", answer.errors);
    assert_eq!(scene.displaced().len(), 1);
    // Nothing is deleted without consent.
    let refused = scene.run(&["recover", "--release"]);
    refused.fails(2, "usage");
    assert!(refused.errors.contains("--yes"), "{}", refused.errors);
    assert_eq!(scene.displaced().len(), 1);
    let released = scene.run(&["--yes", "recover", "--release"]);
    assert_eq!(released.exit, 0, "{}\n{:#}", released.errors, released.json);
    let recovery = &released.data()["recovery"];
    let [rescued] = recovery["rescued"].as_array().unwrap().as_slice() else { panic!("{recovery:#}") };
    assert_eq!(scene.cat(rescued["checkpoint_or_object"].as_str().unwrap(), "dir/theirs"), "2");
    assert_eq!(recovery["released"], serde_json::json!(["dir/theirs"]));
    assert!(!scene.place.file(".safepoint").exists());
    let again = scene.run(&["--yes", "recover", "--release"]);
    assert_eq!((again.exit, &again.data()["recovery"]["released"]), (0, &Value::Array(Vec::new())));
}

#[test]
fn a_new_boot_ends_the_waiting() {
    if !may_test("a_new_boot_ends_the_waiting") {
        return;
    }
    let scene = Scene::new(Who::Another);
    let theirs = scene.write("theirs", "1");
    let (id, _) = scene.create();
    fs::write(&theirs, "2").unwrap();
    assert_eq!(scene.run(&["rollback", &id]).exit, 3);
    let displaced = scene.displaced().pop().unwrap();
    let stage = displaced.parent().unwrap();
    let records = || -> Vec<PathBuf> {
        let names = fs::read_dir(stage).unwrap().map(|name| name.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("boot-")).collect()
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    assert_eq!(records().len(), 1);
    let record = records().pop().unwrap();
    assert!(record.to_string_lossy().contains(&boot), "{record:?}");
    assert_eq!(scene.run(&["recover"]).exit, 3, "the boot is the same");
    // A last write of a program before the power cut.
    fs::write(&displaced, "2 and more").unwrap();
    let earlier = "0".repeat(31) + "1";
    let sum = blake3::hash(earlier.as_bytes()).to_hex();
    fs::rename(&record, stage.join(format!("boot-{earlier}-{}", &sum[..16]))).unwrap();
    let answer = scene.run(&["recover"]);
    assert_eq!((answer.exit, waiting(&answer, "recovery").len()), (0, 0), "{}", answer.errors);
    let rescued = answer.data()["recovery"]["rescued"][0]["checkpoint_or_object"].as_str();
    let rescued = rescued.unwrap_or_else(|| panic!("{:#}", answer.json)).to_owned();
    assert_eq!(scene.cat(&rescued, "theirs"), "2 and more");
    assert!(!scene.place.file(".safepoint").exists());
}

/// Mapping of another user's file, visible only to the kernel.
struct Mapped {
    area: memmap2::MmapMut,
}

impl Mapped {
    #[allow(unsafe_code, reason = "a mapping is what is to be tested; nobody shortens the file")]
    fn new(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        // SAFETY: the file is as long as the mapping while the test runs.
        Self { area: unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap() }
    }

    fn store(&mut self, letter: u8) {
        self.area[0] = letter;
    }
}

/// File systems to try; `None` if one cannot be mounted here.
fn mounts() -> Vec<(&'static str, Option<Mount>)> {
    vec![
        ("tmpfs", Mount::memory("64m")),
        ("ext4", Mount::of("ext4", 64 << 20)),
        ("xfs", Mount::of("xfs", 320 << 20)),
        ("btrfs", Mount::of("btrfs", 128 << 20)),
    ]
}

#[test]
fn a_store_through_a_mapping_of_another_users_file_is_captured() {
    let test = "a_store_through_a_mapping_of_another_users_file_is_captured";
    if !may_test(test) {
        return;
    }
    let mut scenes = Vec::new();
    for who in EVERYONE {
        for (kind, mount) in mounts() {
            let Some(mount) = mount else {
                skip(test, &format!("{kind} cannot be mounted here"));
                continue;
            };
            let scene = Scene::at(who, &mount.path());
            let path = scene.write("mapped", &"-".repeat(4096));
            scene.write("still", "still");
            let mut mapped = Mapped::new(&path);
            mapped.store(b'a');
            scenes.push((who, kind, scene, mapped, mount));
        }
    }
    // Waits until times are old enough to be trusted, but less than the kernel's writeback.
    std::thread::sleep(Duration::from_secs(3));
    for (who, kind, scene, mapped, _mount) in &mut scenes {
        for letter in [b'b', b'c'] {
            let (_, warnings) = scene.create();
            mapped.store(letter);
            let (id, _) = scene.create();
            let text = scene.cat(&id, "mapped");
            assert_eq!(text.as_bytes()[0], letter, "{who:?} on {kind}: the store is not in the checkpoint");
            // If nothing reveals changes, the file is read each time, and that is reported.
            let told = warnings.iter().any(|text| text.contains("reads them again"));
            assert_eq!(
                told,
                *who != Who::WithoutLease && *kind == "tmpfs",
                "{who:?} on {kind}: {warnings:?}"
            );
        }
    }
    assert!(scenes.len() > 3, "too few file systems");
}

#[test]
fn a_displaced_file_that_is_mapped_on_an_overlay_waits() {
    let test = "a_displaced_file_that_is_mapped_on_an_overlay_waits";
    let Some(mount) = Mount::overlay() else { return skip(test, "an overlay cannot be mounted here") };
    let place = Place::at(&mount.path());
    place.write("mapped", "-".repeat(4096));
    place.write("other", "1");
    let id = place.create();
    let mut mapped = Mapped::new(&place.file("mapped"));
    mapped.store(b'a');
    let answer = place.run(&["rollback", &id]);
    assert_eq!(
        (answer.exit, waiting(&answer, "rollback")),
        (3, vec!["mapped".to_owned()]),
        "{}",
        answer.errors
    );
    mapped.store(b'b');
    drop(mapped);
    let data = place.run(&["recover"]).succeeds();
    let rescued = data["recovery"]["rescued"][0]["checkpoint_or_object"].as_str().unwrap();
    let text = place.command(&["cat", rescued, "mapped"]).output().unwrap().stdout;
    assert_eq!(text.first(), Some(&b'b'));
}
