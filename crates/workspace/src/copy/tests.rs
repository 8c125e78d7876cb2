use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use safepoint_model::progress::Silent;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const NOBODY: u32 = 65_534;
/// Set for a test that runs in a separate process.
const ALONE: &str = "SAFEPOINT_TEST_ALONE";

/// Workspace with a place beside it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.from("")).unwrap();
        place
    }

    fn from(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.path().join("from").join(below)
    }

    fn to(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.path().join("to").join(below)
    }

    fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.from(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn copy(&self, progress: &dyn Progress) -> Result<Copied, WorkspaceError> {
        copy_tree(&Root::open(&self.from("")).unwrap(), &self.0.path().join("to"), &[], progress)
    }

    /// Returns true if the destination exists.
    fn is_left(&self) -> bool {
        fs::symlink_metadata(self.0.path().join("to")).is_ok()
    }
}

/// Everything that a copy keeps of an entry.
#[derive(Debug, PartialEq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    content: Vec<u8>,
    xattrs: Vec<Xattr>,
}

fn image(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut image = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let (mut content, mut xattrs) = (Vec::new(), Vec::new());
        if facts.is_symlink() {
            content = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
        } else {
            let file: OwnedFd = File::open(&path).unwrap().into();
            xattrs = linux::read_meta(&file, &linux::facts_of(&file).unwrap()).unwrap().meta.xattrs;
            if facts.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                content = fs::read(&path).unwrap();
            }
        }
        let seen = Seen {
            mode: facts.mode(),
            owner: (facts.uid(), facts.gid()),
            mtime: (facts.mtime(), facts.mtime_nsec()),
            content,
            xattrs,
        };
        image.insert(path.strip_prefix(top).unwrap().to_owned(), seen);
    }
    image
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn age(path: &Path, mtime_ns: i64) {
    linux::set_times_to(File::open(path).unwrap(), mtime_ns).unwrap();
}

fn mark(path: &Path, value: &[u8]) {
    rustix::fs::setxattr(path, "user.mark", value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn left_out(copied: &Copied) -> Vec<(String, Why)> {
    copied.left_out.iter().map(|skipped| (skipped.path.to_string(), skipped.why)).collect()
}

/// Calls a function at each check for an interrupt and returns its answer.
struct Asked<F>(F);

impl<F: Fn() -> bool + Sync> Progress for Asked<F> {
    fn interrupted(&self) -> bool {
        (self.0)()
    }
}

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs a test again in a separate process.
#[track_caller]
fn run_alone(command: &mut Command, test: &str) {
    let test = format!("copy::tests::{test}");
    let output = command.args(["--exact", &test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Runs a test again as an unprivileged user.
#[track_caller]
fn run_as_nobody(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let (program, counters) = (folder.path().join("tests"), folder.path().join("counters"));
    fs::create_dir(&counters).unwrap();
    std::os::unix::fs::chown(&counters, Some(NOBODY), Some(NOBODY)).unwrap();
    // A separate process copies it: an executable open for writing cannot be run (ETXTBSY), and child
    // processes inherit the handle.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command.env("LLVM_PROFILE_FILE", counters.join("nobody-%p.profraw"));
    run_alone(&mut command, test);
    // Copies the counters to a folder that this user may not write.
    if let Some(asked) = std::env::var_os("LLVM_PROFILE_FILE").map(PathBuf::from) {
        for entry in fs::read_dir(counters).unwrap().flatten() {
            fs::copy(entry.path(), asked.with_file_name(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_copy_is_the_same_in_everything() {
    let place = Place::new();
    place.write("a", "content");
    place.write("empty", "");
    place.write("bin/run", "#!/bin/sh\n");
    set_mode(&place.from("bin/run"), 0o6755);
    place.write("bin/secret", "x");
    set_mode(&place.from("bin/secret"), 0o400);
    place.write(".git/objects/1", "git's own");
    place.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    place.write(".safepointignore", "ignored");
    place.write("ignored", "x");
    place.write("deeper/.safepoint/kept", "of another workspace");
    place.write(OsStr::from_bytes(b"odd \xff\n name/\xfe"), "odd");
    fs::create_dir(place.from("no entries")).unwrap();
    symlink("a", place.from("link")).unwrap();
    symlink("/nowhere", place.from("dangling")).unwrap();
    symlink("..", place.from("bin/up")).unwrap();
    mark(&place.from("a"), b"of a file");
    mark(&place.from("bin"), b"of a folder");
    mark(&place.from(""), b"of all");
    if linux::is_root() {
        for name in ["a", "link", "no entries"] {
            std::os::unix::fs::lchown(place.from(name), Some(1234), Some(5678)).unwrap();
        }
    }
    age(&place.from("a"), 1_000_000_000_123_456_789);
    age(&place.from(".git"), -1_500_000_000);
    let above: OwnedFd = File::open(place.from("")).unwrap().into();
    linux::set_link_times_to(&above, b"link", 7_000_000_001).unwrap();
    set_mode(&place.from("no entries"), 0o1777);
    set_mode(&place.from("bin"), 0o500);
    age(&place.from("bin"), 5);
    set_mode(&place.from(""), 0o750);
    age(&place.from(""), 42);

    let copied = place.copy(&Silent).unwrap();

    assert_eq!(image(&place.to("")), image(&place.from("")));
    assert_eq!(left_out(&copied), []);
    assert_eq!(copied.files, 10);
    assert_eq!(copied.bytes, 7 + 10 + 1 + 9 + 43 + 7 + 1 + 20 + 3);
    assert!(copied.shared <= copied.files);
    // The copy is independent.
    fs::write(place.to("a"), "other").unwrap();
    assert_eq!(fs::read_to_string(place.from("a")).unwrap(), "content");
    remove_tree(&place.to("")).unwrap();
    remove_tree(&place.from("")).unwrap();
}

#[test]
fn several_names_of_a_file_become_several_files() {
    let place = Place::new();
    place.write("one", "1");
    fs::hard_link(place.from("one"), place.from("two")).unwrap();
    assert_eq!(place.copy(&Silent).unwrap().files, 2);
    fs::write(place.to("one"), "other").unwrap();
    assert_eq!(fs::read_to_string(place.to("two")).unwrap(), "1");
}

#[test]
fn a_link_that_leads_outside_is_copied_and_not_followed() {
    let place = Place::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x"), "outside").unwrap();
    symlink(outside.path(), place.from("out")).unwrap();
    // Safepoint's own folder is no exception.
    symlink(outside.path(), place.from(OWN_FOLDER)).unwrap();
    let copied = place.copy(&Silent).unwrap();
    assert_eq!((copied.files, left_out(&copied)), (0, vec![]));
    for name in ["out", OWN_FOLDER] {
        assert_eq!(fs::read_link(place.to(name)).unwrap(), outside.path());
    }
    remove_tree(&place.to("")).unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("x")).unwrap(), "outside");
}

#[test]
fn what_is_no_file_and_what_is_our_own_is_left_out_and_told() {
    let place = Place::new();
    place.write("d/file", "x");
    place.write(Path::new(OWN_FOLDER).join("stage"), "x");
    let above = File::open(place.from("d")).unwrap();
    rustix::fs::mknodat(&above, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.from("d/socket")).unwrap();
    let copied = place.copy(&Silent).unwrap();
    assert_eq!(
        left_out(&copied),
        [
            (OWN_FOLDER.to_owned(), Why::OwnFolder),
            ("d/fifo".to_owned(), Why::SpecialFile),
            ("d/socket".to_owned(), Why::SpecialFile),
        ]
    );
    assert_eq!(image(&place.to("")).len(), 3);
}

#[test]
fn what_may_not_be_read_is_left_out_and_told() {
    if linux::is_root() {
        return run_as_nobody("what_may_not_be_read_is_left_out_and_told");
    }
    let place = Place::new();
    for name in ["file", "locked/x", "no way in/x", "open/x"] {
        place.write(name, "x");
    }
    for (name, mode) in [("file", 0), ("locked", 0), ("no way in", 0o400), ("open", 0o500)] {
        set_mode(&place.from(name), mode);
    }
    symlink("open", place.from("link")).unwrap();
    let copied = place.copy(&Silent).unwrap();
    let unreadable = ["file", "locked", "no way in/x"].map(|name| (name.to_owned(), Why::Unreadable));
    assert_eq!(left_out(&copied), unreadable);
    assert_eq!(copied.files, 1);
    assert_eq!(fs::read_to_string(place.to("open/x")).unwrap(), "x");
    assert_eq!(fs::metadata(place.to("no way in")).unwrap().mode() & 0o777, 0o400);
    // Deleting in this folder requires changing its mode first.
    fs::remove_file(place.to("open/x")).unwrap_err();
    remove_tree(&place.to("")).unwrap();
    assert!(!place.is_left());
    remove_tree(&place.from("")).unwrap();
}

#[test]
fn what_is_mounted_is_neither_copied_nor_deleted() {
    const TEST: &str = "what_is_mounted_is_neither_copied_nor_deleted";
    if !is_alone() {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--map-root-user", "--"]);
        let program = std::env::current_exe().unwrap();
        match Command::new("unshare").args(["--mount", "--map-root-user", "true"]).status() {
            Ok(status) if status.success() => run_alone(unshare.arg(program), TEST),
            _ => eprintln!("SKIPPED {TEST}: cannot mount here"),
        }
        return;
    }
    let shell = |script: &str, at: &Path| {
        assert!(Command::new("sh").args(["-ec", script]).current_dir(at).status().unwrap().success());
    };
    let place = Place::new();
    place.write("a", "x");
    let mounts = [
        (
            "mkdir d; mount -t tmpfs none d; echo 1 > d/x; chmod 500 d",
            "d/x",
            "test $(stat -c %a d) = 500; umount d",
        ),
        ("echo 1 > x; touch f; mount --bind x f", "f", "umount f"),
    ];
    mounts.iter().for_each(|(mount, ..)| shell(mount, &place.from("")));
    let copied = place.copy(&Silent).unwrap();
    assert_eq!(left_out(&copied), ["d", "f"].map(|name| (name.to_owned(), Why::MountPoint)));
    let paths: Vec<_> = image(&place.to("")).into_keys().collect();
    assert_eq!(paths, ["", "a", "x"].map(PathBuf::from));
    for (mount, inside, unmount) in mounts {
        shell(mount, &place.to(""));
        let error = remove_tree(&place.to("")).unwrap_err();
        let WorkspaceError::RemoveCopy { path, source } = error else { panic!("{error}") };
        assert_eq!((path, source.to_string().as_str()), (place.to(""), "a file system is mounted in it"));
        assert_eq!(fs::read_to_string(place.to(inside)).unwrap(), "1\n");
        shell(unmount, &place.to(""));
    }
    remove_tree(&place.to("")).unwrap();
    assert!(!place.is_left());
    shell("umount f d", &place.from(""));
}

#[test]
fn a_copy_inside_of_the_workspace_does_not_hold_itself() {
    let place = Place::new();
    place.write("a", "x");
    place.write("home/b", "y");
    place.write("home/store/packs", "z");
    let root = Root::open(&place.from("")).unwrap();
    let copied =
        copy_tree(&root, &place.from("home/copy"), &[RelPath::new("home/store").unwrap()], &Silent).unwrap();
    let own = |path: &str| (path.to_owned(), Why::OwnFolder);
    assert_eq!(left_out(&copied), [own("home/copy"), own("home/store")]);
    let paths: Vec<_> = image(&place.from("home/copy")).into_keys().collect();
    assert_eq!(paths, ["", "a", "home", "home/b"].map(PathBuf::from));
}

#[test]
fn a_copy_never_goes_where_something_is() {
    let place = Place::new();
    place.write("a", "x");
    fs::create_dir(place.to("")).unwrap();
    fs::write(place.to("kept"), "x").unwrap();
    let root = Root::open(&place.from("")).unwrap();
    for to in [place.to(""), place.to("missing/x"), place.to("kept/x"), PathBuf::from("/"), place.to("..")] {
        let error = copy_tree(&root, &to, &[], &Silent).unwrap_err();
        assert!(matches!(&error, WorkspaceError::MakeCopy { path, .. } if *path == to), "{error}");
    }
    assert_eq!(image(&place.to("")).len(), 2);
}

#[test]
fn a_workspace_that_went_away_is_a_failure_and_leaves_nothing() {
    let place = Place::new();
    let root = Root::open(&place.from("")).unwrap();
    fs::remove_dir(place.from("")).unwrap();
    let error = copy_tree(&root, &place.to(""), &[], &Silent).unwrap_err();
    assert!(matches!(error, WorkspaceError::Read { .. }), "{error}");
    assert!(!place.is_left());
}

#[test]
fn an_interrupted_copy_leaves_nothing() {
    let place = Place::new();
    for name in 0..100 {
        place.write(format!("{}/{name}", name % 7), "x");
    }
    set_mode(&place.from("3"), 0o500);
    for asked_max in [0, 1, 50, 100] {
        let asked = AtomicU64::new(0);
        let stop = Asked(|| asked.fetch_add(1, Ordering::Relaxed) >= asked_max);
        let error = place.copy(&stop).unwrap_err();
        assert!(matches!(error, WorkspaceError::Interrupted), "{error}");
        assert!(!place.is_left());
    }
    assert_eq!(place.copy(&Asked(|| false)).unwrap().files, 100);
}

#[test]
fn a_large_file_can_be_interrupted_and_is_copied_whole() {
    let place = Place::new();
    let content: Vec<u8> = (0..2 * STRETCH_BYTES + 5).map(|at| (at % 251) as u8).collect();
    place.write("large", &content);
    let asked = AtomicU64::new(0);
    let copied = place.copy(&Asked(|| asked.fetch_add(1, Ordering::Relaxed) > 100)).unwrap();
    assert_eq!(copied.bytes, content.len() as u64);
    assert!(fs::read(place.to("large")).unwrap() == content);
    if copied.shared == 0 {
        // Once for the entry, and once for each stretch.
        assert_eq!(asked.into_inner(), 4);
        remove_tree(&place.to("")).unwrap();
        let asked = AtomicU64::new(0);
        let error = place.copy(&Asked(|| asked.fetch_add(1, Ordering::Relaxed) == 2)).unwrap_err();
        assert!(matches!(error, WorkspaceError::Interrupted), "{error}");
        assert!(!place.is_left());
    }
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    for (name, islands) in [("tail", vec![0, 1 << 30]), ("ends", vec![3 << 30]), ("none", vec![])] {
        let mut file = File::create(place.from(name)).unwrap();
        for at in islands {
            file.seek(SeekFrom::Start(at)).unwrap();
            io::Write::write_all(&mut file, b"land").unwrap();
        }
        if name != "ends" {
            file.set_len(2 << 30).unwrap();
        }
    }
    let bytes = place.copy(&Silent).unwrap().bytes;
    assert_eq!(bytes, (7 << 30) + 4);
    for name in ["tail", "ends", "none"] {
        let (from, to) = (fs::metadata(place.from(name)).unwrap(), fs::metadata(place.to(name)).unwrap());
        assert_eq!(from.len(), to.len(), "{name}");
        assert!(to.blocks() <= from.blocks() + 64, "{name}: {} of {}", to.blocks(), from.blocks());
    }
    for (name, at) in [("tail", 0), ("tail", 1 << 30), ("ends", 3 << 30)] {
        let mut land = [0; 4];
        let mut file = File::open(place.to(name)).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut land).unwrap();
        assert_eq!(&land, b"land", "{name}");
    }
}

#[test]
fn what_cannot_be_written_is_a_failure_and_leaves_nothing() {
    for name in ["file", "folder", "link"] {
        let place = Place::new();
        place.write("file", "x");
        fs::create_dir(place.from("folder")).unwrap();
        symlink("x", place.from("link")).unwrap();
        // Another process creates the name first.
        let error = place
            .copy(&Asked(|| {
                let _ = File::create_new(place.to(name));
                false
            }))
            .unwrap_err();
        assert!(
            matches!(&error, WorkspaceError::Copy { path, .. } if path.as_bytes() == name.as_bytes()),
            "{error}"
        );
        assert!(!place.is_left());
    }
}

#[test]
fn what_goes_away_meanwhile_is_not_there() {
    let place = Place::new();
    for name in 0..20 {
        place.write(format!("{name}"), "x");
    }
    place.write("stays", "x");
    let rest = Asked(|| {
        for name in 0..20 {
            let _ = fs::remove_file(place.from(format!("{name}")));
        }
        false
    });
    let copied = place.copy(&rest).unwrap();
    assert_eq!((copied.files, left_out(&copied)), (1, vec![]));
}

#[test]
fn a_full_disk_is_known_as_one() {
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    assert!(WorkspaceError::Copy { path: RelPath::root(), source: full() }.is_full());
    assert!(WorkspaceError::MakeCopy { path: PathBuf::new(), source: full() }.is_full());
    assert!(
        !WorkspaceError::MakeCopy { path: PathBuf::new(), source: io::ErrorKind::Other.into() }.is_full()
    );
}

/// Makes nested folders and returns the innermost.
fn nest(top: &Path, levels: usize) -> OwnedFd {
    let mut here: OwnedFd = File::open(top).unwrap().into();
    for _ in 0..levels {
        linux::make_dir(&here, b"d").unwrap();
        here = linux::open_dir(&here, b"d").unwrap();
    }
    here
}

#[test]
fn a_deep_workspace_is_copied_whole_and_deleted() {
    const TEST: &str = "a_deep_workspace_is_copied_whole_and_deleted";
    if !is_alone() {
        return run_alone(&mut Command::new(std::env::current_exe().unwrap()), TEST);
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Two handles for each level.
    let levels = limit.maximum.map_or(DEPTH_MAX, |most| DEPTH_MAX.min(most as usize / 2 - 50));
    let place = Place::new();
    let end = nest(&place.from(""), levels);
    linux::create_file(&end, b"end").unwrap();
    let copied = place.copy(&Silent).unwrap();
    assert_eq!((copied.files, left_out(&copied)), (1, vec![]));
    remove_tree(&place.to("")).unwrap();
    remove_tree(&place.from("")).unwrap();
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 0);
}

#[test]
fn what_is_nested_too_deeply_is_left_out_and_told() {
    let place = Place::new();
    place.write("1/2/3/x", "x");
    place.write("1/2/y", "y");
    let root = Root::open(&place.from("")).unwrap();
    let copied = copy_levels(&root, &place.to(""), Selection { own: &[], only: None }, 2, &Silent).unwrap();
    assert_eq!(left_out(&copied), [("1/2/3".to_owned(), Why::TooDeep)]);
    assert_eq!(fs::read_to_string(place.to("1/2/y")).unwrap(), "y");
}

#[test]
fn too_few_handles_are_a_failure_and_nothing_is_left_out() {
    const TEST: &str = "too_few_handles_are_a_failure_and_nothing_is_left_out";
    if !is_alone() {
        return run_alone(&mut Command::new(std::env::current_exe().unwrap()), TEST);
    }
    let place = Place::new();
    nest(&place.from(""), 100);
    let limit = getrlimit(Resource::Nofile);
    // Each level takes two handles: one limit stops the original, the other the copy.
    let sides = [150, 151].map(|current| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }).unwrap();
        let error = place.copy(&Silent).unwrap_err();
        assert!(!place.is_left());
        matches!(error, WorkspaceError::Read { .. })
    });
    assert_ne!(sides[0], sides[1]);
}

#[test]
fn only_a_folder_is_deleted_and_a_missing_one_is_no_failure() {
    let place = Place::new();
    place.write("file", "x");
    place.write("folder/x", "x");
    symlink("folder", place.from("link")).unwrap();
    for missing in ["missing", "missing/x"] {
        remove_tree(&place.from(missing)).unwrap();
    }
    for name in ["file", "link", "file/x"] {
        let error = remove_tree(&place.from(name)).unwrap_err();
        assert!(matches!(error, WorkspaceError::RemoveCopy { .. }), "{error}");
    }
    assert_eq!(image(&place.from("")).len(), 5);
    remove_tree(&place.from("folder")).unwrap();
    assert_eq!(image(&place.from("")).len(), 3);
}
