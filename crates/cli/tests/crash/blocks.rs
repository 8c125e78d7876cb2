//! Power cuts on real disks: the binary works on ext4, xfs and btrfs, and each disk request is recorded.
//! After a cut at any of them the kernel mounts the rest, the binary recovers, and the law must hold.
//!
//! Run as root, with `cargo test -p safepoint-cli --test crash blocks -- --ignored --nocapture`. Elsewhere it
//! reports what is missing.

use crate::is_full;
use crate::scene::{Act, Scene};
use crate::upkeep::Yard;
use safepoint::{CheckpointManager, Filter, RoleFilter};
use safepoint_testkit::blocks::{
    Cut, Event, Filesystem, Media, Mounts, Recorder, cuts, in_own_namespace, missing,
};
use safepoint_testkit::{Action, Program, TreeImage, drive};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Cuts in the command and in one recovery, for each recording.
const STATES: usize = 36;
const STATES_IN_RECOVERY: usize = 8;
/// Recorded recoveries for each recording of a command.
const RECOVERIES: usize = 2;
/// Minimum number of states for each file system.
const STATES_MIN: u64 = 1000;

/// Command whose disk loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Scene(Act),
    Gc,
    Prune,
    Purge,
    Repair,
}

const VERBS: [Verb; 9] = [
    Verb::Scene(Act::Create),
    Verb::Scene(Act::Rollback),
    Verb::Scene(Act::RollbackMany),
    Verb::Scene(Act::Undo),
    Verb::Scene(Act::Migrate),
    Verb::Gc,
    Verb::Prune,
    Verb::Purge,
    Verb::Repair,
];

/// Location of the home, and other writers of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Workspace and home on one disk.
    One,
    /// Workspace and home on one disk, with background writeback.
    OneRestless,
    /// Home on a separate disk.
    Two,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::One => "one disk",
            Place::OneRestless => "one disk, syncs in the background",
            Place::Two => "two disks",
        })
    }
}

/// Handling of the binary's syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    Done,
    /// Syncs report success and do nothing.
    Skipped,
}

/// Setup of the command, and the law.
enum Case {
    Scene(Box<Scene>),
    Yard { yard: Yard, verb: Verb, before: Vec<TreeImage>, listed: usize },
}

impl Case {
    fn build(verb: Verb, folder: &Path) -> Case {
        if let Verb::Scene(act) = verb {
            return Case::Scene(Box::new(Scene::at(folder, act, "")));
        }
        let yard = Yard::at(folder);
        if verb == Verb::Repair {
            // Gives repair work to do: without the index, no pack is known.
            for name in ["index.db", "index.db-wal", "index.db-shm"] {
                let _ = fs::remove_file(yard.path("home/store").join(name));
            }
        }
        let before = ["old", "busy"].map(|name| yard.image(name)).to_vec();
        let listed = listed(&yard);
        Case::Yard { yard, verb, before, listed }
    }

    fn verb(&self) -> Program {
        match self {
            Case::Scene(scene) => scene.verb(),
            Case::Yard { yard, verb, .. } => yard.program(match verb {
                Verb::Gc => &["gc"],
                Verb::Prune => &["prune", "--keep-last", "1", "--keep-within", "0s"],
                Verb::Purge => &["purge", "--yes", "secret"],
                _ => &["repair"],
            }),
        }
    }

    fn recovery(&self) -> Program {
        match self {
            Case::Scene(scene) => scene.recovery(),
            Case::Yard { yard, .. } => yard.program(&["recover"]),
        }
    }

    /// Checks the law; `must_be_new` follows a success. Returns true if it is done.
    fn law(&self, must_be_new: bool) -> Result<bool, String> {
        match self {
            Case::Scene(scene) => scene.law(must_be_new),
            Case::Yard { yard, verb, before, listed: listed_before } => {
                let now = ["old", "busy"].map(|name| yard.image(name));
                if now.as_slice() != before {
                    return Err("upkeep changed a workspace".to_owned());
                }
                let listed = listed(yard);
                let is_new = match verb {
                    Verb::Prune => listed < *listed_before,
                    Verb::Purge => is_purged(yard),
                    _ => must_be_new,
                };
                if listed < *listed_before && *verb != Verb::Prune {
                    return Err(format!("{listed} checkpoints are listed, {listed_before} were"));
                }
                if must_be_new && !is_new {
                    return Err(format!("{verb:?} had reported success, and it is not done"));
                }
                yard.law(None);
                Ok(is_new)
            }
        }
    }
}

fn listed(yard: &Yard) -> usize {
    let manager = CheckpointManager::open(&yard.path("home")).unwrap();
    manager.checkpoints().list(&Filter { role: RoleFilter::Asked, ..Filter::default() }).unwrap().len()
}

/// Returns true if the newest checkpoint of the workspace has lost the path.
fn is_purged(yard: &Yard) -> bool {
    let shown = run(&yard.program(&["cat", "@", "secret"]));
    shown.is_err()
}

/// Runs a program to its end; fails unless it reports success.
fn run(program: &Program) -> Result<(), String> {
    let mut command = Command::new(&program.exe);
    command.args(&program.args).env_clear().envs(program.env.iter().cloned()).current_dir(&program.cwd);
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{:?} ended with {}: {}",
            program.args,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Background writeback of the kernel, at random times.
struct Background(Child);

impl Background {
    fn start(folder: &Path) -> Background {
        let script = "while :; do sync -f .; done";
        Background(Command::new("sh").args(["-c", script]).current_dir(folder).spawn().unwrap())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Disk requests while a program ran.
struct Recording {
    start: Vec<Media>,
    events: Vec<Event>,
    /// Number of requests when the program reported success.
    acknowledged: usize,
}

/// Disks with a file system, mounted in a folder.
struct Machine {
    filesystem: Filesystem,
    place: Place,
    folder: tempfile::TempDir,
}

impl Machine {
    fn new(filesystem: Filesystem, place: Place) -> Machine {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        for name in ["mounted", "fuse"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Machine { filesystem, place, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn images(&self) -> Vec<PathBuf> {
        let count = if self.place == Place::Two { 2 } else { 1 };
        (0..count).map(|disk| self.path(&format!("disk{disk}"))).collect()
    }

    /// Mounts the disks, the second within the first.
    fn mount(&self, images: &[PathBuf]) -> Mounts {
        let places = [self.path("mounted"), self.path("mounted/home")];
        Mounts::mount(self.filesystem, images, &places).unwrap()
    }

    /// Builds the disks and the setup.
    fn build(&self, verb: Verb) -> (Case, Vec<Media>) {
        let images = self.images();
        for image in &images {
            self.filesystem.make(image).unwrap();
        }
        let first = self.mount(&images[..1]);
        let home = self.path("mounted/home");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        first.unmount().unwrap();
        let mounts = self.mount(&images);
        let _ = fs::remove_dir(home.join("lost+found"));
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        let case = Case::build(verb, &self.path("mounted"));
        mounts.unmount().unwrap();
        let media = Media::load_all(&images).unwrap();
        (case, media)
    }

    fn record(&self, start: &[Media], program: &Program, syncs: Syncs) -> Recording {
        let recorder = Recorder::start(&self.path("fuse"), start.to_vec()).unwrap();
        let mounts = self.mount(&recorder.images());
        let background = (self.place == Place::OneRestless).then(|| Background::start(&self.path("mounted")));
        match syncs {
            Syncs::Done => run(program).unwrap_or_else(|error| panic!("{error}")),
            Syncs::Skipped => {
                // Error number 0: the call reports success.
                let skip = |call: &safepoint_testkit::Call| match call.name.contains("sync") {
                    true => Action::Fail(0),
                    false => Action::Go,
                };
                let end = drive(program, skip).unwrap();
                assert!(end.is_success(), "{end:?}");
            }
        }
        let acknowledged = recorder.position();
        drop(background);
        mounts.unmount().unwrap();
        Recording { start: start.to_vec(), events: recorder.finish().unwrap(), acknowledged }
    }

    /// Mounts the state after a cut, recovers with the binary and checks the law.
    fn check(&self, case: &Case, left: &[Media], must_be_new: bool) -> Result<bool, String> {
        let images = self.images();
        for (media, image) in left.iter().zip(&images) {
            media.lay_out(image).unwrap();
        }
        let mounts = self.mount(&images);
        let outcome = run(&case.recovery()).and_then(|()| {
            let law = catch_unwind(AssertUnwindSafe(|| case.law(must_be_new)));
            law.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Err(text
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                    .unwrap_or_default())
            })
        });
        mounts.unmount().unwrap();
        outcome
    }
}

/// Number of tries, and violations of the law.
#[derive(Default)]
struct Tried {
    states: u64,
    in_recovery: u64,
    old: u64,
    new: u64,
    requests: usize,
    flushes: usize,
    broken: Vec<String>,
}

impl Tried {
    fn count(&mut self, outcome: Result<bool, String>, about: impl FnOnce() -> String) {
        match outcome {
            Ok(true) => self.new += 1,
            Ok(false) => self.old += 1,
            Err(broken) => self.broken.push(format!("{}: {broken}", about())),
        }
    }

    fn add(&mut self, other: Tried) {
        self.states += other.states;
        self.in_recovery += other.in_recovery;
        self.old += other.old;
        self.new += other.new;
        self.requests += other.requests;
        self.flushes += other.flushes;
        self.broken.extend(other.broken);
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tried { states, in_recovery, old, new, requests, flushes, broken } = self;
        write!(
            f,
            "{requests} requests, {flushes} flushes; {states} states, {in_recovery} of them in a recovery: \
             {old} old, {new} new, {} broken",
            broken.len()
        )
    }
}

fn spread<T>(all: &[T], count: usize) -> impl Iterator<Item = &T> {
    (1..=count).filter_map(move |it| all.get(all.len() * it / (count + 1)))
}

/// Cuts the power everywhere in the command, and in some of the following recoveries.
fn cut_everywhere(machine: &Machine, verb: Verb, syncs: Syncs) -> Tried {
    let share = if is_full() { 10 } else { 1 };
    let (case, start) = machine.build(verb);
    let recording = machine.record(&start, &case.verb(), syncs);
    let Recording { start, events, acknowledged } = &recording;
    let mut tried = Tried { requests: events.len(), ..Tried::default() };
    tried.flushes = events.iter().filter(|event| event.is_flush()).count();
    let about = |cut: &Cut| {
        format!(
            "{} on {} ({}), after {} of {} requests, acknowledged at {acknowledged}, {}",
            format_args!("{verb:?}"),
            machine.filesystem.name(),
            machine.place,
            cut.done,
            events.len(),
            cut.how
        )
    };
    let mut before = Vec::new();
    for cut in cuts(events, *acknowledged, STATES * share, 7) {
        let outcome = machine.check(&case, &cut.media(start, events), cut.done >= *acknowledged);
        tried.states += 1;
        if let Ok(is_new) = outcome
            && cut.done < *acknowledged
            && syncs == Syncs::Done
        {
            before.push((cut.clone(), is_new));
        }
        tried.count(outcome, || about(&cut));
    }
    for (cut, is_new) in spread(&before, RECOVERIES * share) {
        let again = machine.record(&cut.media(start, events), &case.recovery(), syncs);
        for second in cuts(&again.events, again.acknowledged, STATES_IN_RECOVERY * share, 11) {
            let left = second.media(&again.start, &again.events);
            // The outcome of the first cut stands, wherever the second one happens.
            let outcome = machine.check(&case, &left, *is_new).and_then(|now| match now == *is_new {
                true => Ok(now),
                false => Err("the recovery of an unfinished verb finished it".to_owned()),
            });
            tried.states += 1;
            tried.in_recovery += 1;
            tried.count(outcome, || {
                format!(
                    "{}; then in the recovery, after {} requests, {}",
                    about(cut),
                    second.done,
                    second.how
                )
            });
        }
    }
    tried
}

/// Returns true if the test can run here; reports why not.
fn is_ready(filesystem: Filesystem, test: &str) -> bool {
    if let Some(why) = missing(filesystem) {
        eprintln!("SKIPPED: {test}: {why}");
        return false;
    }
    in_own_namespace(&format!("blocks::{test}")).unwrap()
}

fn check(filesystem: Filesystem, test: &str) {
    if !is_ready(filesystem, test) {
        return;
    }
    let mut all = Tried::default();
    for verb in VERBS {
        for place in [Place::One, Place::OneRestless, Place::Two] {
            let machine = Machine::new(filesystem, place);
            let tried = cut_everywhere(&machine, verb, Syncs::Done);
            eprintln!("blocks: {}: {verb:?}, {place}: {tried}", filesystem.name());
            all.add(tried);
        }
    }
    eprintln!("blocks: {}: all: {all}", filesystem.name());
    let first: Vec<_> = all.broken.iter().take(10).collect();
    assert!(all.broken.is_empty(), "{} states broke the law: {first:#?}", all.broken.len());
    assert!(all.states >= STATES_MIN && all.old > 0 && all.new > 0 && all.in_recovery > 0);
}

#[test]
#[ignore = "takes minutes, and root"]
fn power_cuts_on_ext4_leave_old_or_new() {
    check(Filesystem::Ext4, "power_cuts_on_ext4_leave_old_or_new");
}

#[test]
#[ignore = "takes minutes, and root"]
fn power_cuts_on_xfs_leave_old_or_new() {
    check(Filesystem::Xfs, "power_cuts_on_xfs_leave_old_or_new");
}

#[test]
#[ignore = "takes minutes, and root"]
fn power_cuts_on_btrfs_leave_old_or_new() {
    check(Filesystem::Btrfs, "power_cuts_on_btrfs_leave_old_or_new");
}

/// Control: a binary whose syncs do nothing must be caught, or the cuts would prove nothing.
fn check_without_syncs(filesystem: Filesystem, test: &str) {
    if !is_ready(filesystem, test) {
        return;
    }
    let mut all = Tried::default();
    for verb in [Act::Create, Act::Rollback, Act::RollbackMany, Act::Undo].map(Verb::Scene) {
        for place in [Place::One, Place::OneRestless, Place::Two] {
            let machine = Machine::new(filesystem, place);
            let tried = cut_everywhere(&machine, verb, Syncs::Skipped);
            let caught = tried.broken.len();
            eprintln!("blocks: {} without syncs: {verb:?}, {place}: {tried}", filesystem.name());
            // Background syncs can replace those that the binary skipped.
            let is_caught = caught > 0 || place == Place::OneRestless;
            assert!(is_caught, "{verb:?} on {} without syncs was not caught", filesystem.name());
            all.add(tried);
        }
    }
    eprintln!(
        "blocks: {} without syncs: {} of {} states caught",
        filesystem.name(),
        all.broken.len(),
        all.states
    );
}

#[test]
#[ignore = "takes minutes, and root"]
fn skipped_syncs_are_caught_on_ext4() {
    check_without_syncs(Filesystem::Ext4, "skipped_syncs_are_caught_on_ext4");
}

#[test]
#[ignore = "takes minutes, and root"]
fn skipped_syncs_are_caught_on_xfs() {
    check_without_syncs(Filesystem::Xfs, "skipped_syncs_are_caught_on_xfs");
}

#[test]
#[ignore = "takes minutes, and root"]
fn skipped_syncs_are_caught_on_btrfs() {
    check_without_syncs(Filesystem::Btrfs, "skipped_syncs_are_caught_on_btrfs");
}
