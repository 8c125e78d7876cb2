//! Hostile layouts: every import fails with a clear error and changes nothing.

use crate::bench::{Bench, assert_same, scratch};
use crate::layouts::{export, import, read_json};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::{CreateOptions, Depth, Failure, FailureKind, Filter, RoleFilter, Silent};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Layout to corrupt, and the workspace that imports it.
struct Scene {
    bench: Bench,
    out: tempfile::TempDir,
    original: Checkpoint,
}

impl Scene {
    fn new() -> Self {
        let (bench, out) = (Bench::new(), scratch());
        bench.write("file", "content");
        bench.write("sub/other", "more");
        bench.write(".git/config", "left out");
        symlink("file", bench.path("link")).unwrap();
        let step = StepSpec { run: Some("true".to_owned()), ..StepSpec::new("one") };
        let spec = PlanSpec { id: Some("work".to_owned()), steps: vec![step], ..PlanSpec::new("Work") };
        bench.manager.plans().create(&bench.workspace, &spec).unwrap();
        let options = CreateOptions::default();
        let original = bench.manager.plans().checkpoint("work", &options, &Silent).unwrap().checkpoint;
        Self { bench, out, original }
    }

    /// Exports a valid layout.
    fn fresh(&self) -> PathBuf {
        export(&self.bench, &self.original, self.out.path())
    }

    fn records(&self) -> (Vec<Checkpoint>, usize) {
        let all = Filter { role: RoleFilter::Any, ..Filter::default() };
        (
            self.bench.manager.checkpoints().list(&all).unwrap(),
            self.bench.manager.workspaces().list().unwrap().len(),
        )
    }

    /// Checks that this corruption is refused and nothing changed.
    #[track_caller]
    fn refuses(&self, code: &str, words: &str, spoil: impl FnOnce(&Path)) {
        let path = self.fresh();
        spoil(&path);
        self.refuses_folder(code, words, &path);
    }

    #[track_caller]
    fn refuses_folder(&self, code: &str, words: &str, path: &Path) {
        let (records, image) = (self.records(), self.bench.image());
        let error = match import(&self.bench, path) {
            Ok(imported) => panic!("{words:?}: it was imported: {imported:#?}"),
            Err(error) => error,
        };
        let failure = Failure::from(&error);
        let told = format!("{} {}", failure.message, failure.causes.join(" "));
        assert_eq!(failure.code, code, "{told}");
        assert!(told.contains(words), "{told:?} lacks {words:?}");
        assert!(!failure.hints.is_empty());
        assert_eq!(self.records(), records);
        assert_same(&self.bench.image(), &image);
    }

    /// Checks a corruption with valid hashes, which an attacker can compute.
    #[track_caller]
    fn refuses_sealed(&self, words: &str, spoil: impl FnOnce(&Path)) {
        self.refuses("bad_layout", words, |path| {
            spoil(path);
            seal(path);
        });
    }

    /// Checks a change in one of the documents.
    #[track_caller]
    fn refuses_edited(&self, file: &str, words: &str, edit: impl FnOnce(&mut Value)) {
        self.refuses_sealed(words, |path| edit_json(&path.join(file), edit));
    }

    /// Checks a change in the metadata.
    #[track_caller]
    fn refuses_metadata(&self, words: &str, edit: impl FnOnce(&mut Value)) {
        self.refuses("bad_layout", words, |path| edit_json(&path.join("metadata.json"), edit));
    }
}

pub(crate) fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = read_json(path);
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Recomputes the hashes of a layout.
pub(crate) fn seal(layout: &Path) {
    fn walk(layout: &Path, dir: &Path, rows: &mut Vec<(Vec<u8>, Value)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(layout, &entry.path(), rows);
            } else if kind.is_file() && entry.path() != layout.join("metadata.json") {
                let bytes = fs::read(entry.path()).unwrap();
                let path = entry.path().strip_prefix(layout).unwrap().as_os_str().as_bytes().to_vec();
                let hash = blake3::hash(&bytes).to_hex().to_string();
                let text = String::from_utf8(path.clone()).unwrap();
                rows.push((path, json!({ "path": text, "size": bytes.len(), "blake3": hash })));
            }
        }
    }
    let mut rows = Vec::new();
    walk(layout, layout, &mut rows);
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    edit_json(&layout.join("metadata.json"), |metadata| metadata["hashes"] = json!(rows));
}

/// Replaces a file or folder.
fn replace(path: &Path, make: impl FnOnce(&Path)) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    make(path);
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn row<'v>(list: &'v mut Value, path: &str) -> &'v mut Value {
    list.as_array_mut().unwrap().iter_mut().find(|row| row["path"] == path).unwrap()
}

#[test]
fn the_scene_itself_is_sound() {
    let scene = Scene::new();
    let path = scene.fresh();
    seal(&path);
    assert_eq!(import(&scene.bench, &path).unwrap().checkpoint.integrity, scene.original.integrity);
}

#[test]
fn what_is_no_layout_is_said_to_be_none() {
    let scene = Scene::new();
    let path = scene.fresh();
    let empty = scratch();
    scene.refuses_folder("no_layout", "has no metadata.json", empty.path());
    scene.refuses_folder("no_layout", "has no metadata.json", path.parent().unwrap());
    scene.refuses_folder("no_layout", "cannot open", &empty.path().join("missing"));
    scene.refuses_folder("no_layout", "cannot open", &path.join("metadata.json"));
    assert!(safepoint::check_layout(&path).is_ok() && safepoint::check_layout(empty.path()).is_err());
    let failure = Failure::from(&import(&scene.bench, empty.path()).unwrap_err());
    assert_eq!(failure.kind, FailureKind::NotFound);
}

#[test]
fn other_versions_are_refused() {
    let scene = Scene::new();
    for version in [json!(0), json!(2), json!(u64::MAX)] {
        scene.refuses("newer_format", "version", |path| {
            edit_json(&path.join("metadata.json"), |metadata| metadata["format"] = version);
        });
    }
    for version in [json!(-1), json!("1"), json!(1.5), json!(null), json!([1])] {
        scene.refuses_metadata("metadata.json: it cannot be understood", |metadata| {
            metadata["format"] = version;
        });
    }
    scene.refuses_metadata("the layout \"zip\" is not known", |metadata| metadata["layout"] = json!("zip"));
    scene.refuses_edited("files.json", "files.json: it is of another version", |list| {
        list["format"] = json!(2);
    });
}

#[test]
fn no_path_leads_out() {
    let scene = Scene::new();
    for climbing in ["../../../etc/passwd", "/etc/passwd", "files/../../x", "a\0b", "files//file", "files/."]
    {
        scene.refuses_metadata("metadata.json: it cannot be understood", |metadata| {
            metadata["hashes"][0]["path"] = json!(climbing);
        });
        scene.refuses_edited("files.json", "files.json: it cannot be understood", |list| {
            list["entries"][1]["path"] = json!(climbing);
        });
        scene.refuses_metadata("metadata.json: it cannot be understood", |metadata| {
            metadata["contents"][0]["path"] = json!(climbing);
        });
        scene.refuses_edited(
            "workflow_state.json",
            "workflow_state.json: it cannot be understood",
            |state| {
                state["files"][0]["coverage"]["skipped"][0]["path"] = json!(climbing);
            },
        );
    }
    let bytes = json!({ "bytes": "Li4vLi4veA==" });
    scene.refuses_edited("files.json", "files.json: it cannot be understood", |list| {
        list["entries"][1]["path"] = bytes;
    });
    // The layout cannot choose the path of a part.
    for elsewhere in ["task_tool_state", "files/sub", "metadata.json"] {
        let path = scene.fresh();
        edit_json(&path.join("workflow_state.json"), |state| state["files"][0]["path"] = json!(elsewhere));
        seal(&path);
        edit_json(&path.join("metadata.json"), |metadata| metadata["contents"][0]["path"] = json!(elsewhere));
        scene.refuses_folder("bad_layout", "the files of one workspace are in `files`", &path);
    }
    for elsewhere in ["metadata.json", "files/file", "task_tool_state", "files", "nothing"] {
        scene.refuses_metadata("", |metadata| metadata["contents"][1]["path"] = json!(elsewhere));
    }
}

#[test]
fn no_link_is_followed() {
    let scene = Scene::new();
    let outside = scratch();
    for name in ["metadata.json", "files.json", "workflow_state.json", "task_tool_state/work.json"] {
        let moved = outside.path().join(name.replace('/', "-"));
        scene.refuses("bad_layout", &format!("{name}: it is to be a file and is a link"), |path| {
            fs::copy(path.join(name), &moved).unwrap();
            replace(&path.join(name), |at| symlink(&moved, at).unwrap());
        });
    }
    for name in ["files", "task_tool_state", "agent_memory"] {
        scene.refuses("bad_layout", "is a link", |path| {
            let moved = outside.path().join(name);
            fs::rename(path.join(name), &moved).unwrap();
            symlink(&moved, path.join(name)).unwrap();
        });
    }
    scene.refuses("bad_layout", "files: it is to be a folder and is a link", |path| {
        replace(&path.join("files"), |at| symlink("/etc", at).unwrap());
    });
    scene.refuses("bad_layout", "files/file: it is another thing than files.json says", |path| {
        replace(&path.join("files/file"), |at| symlink("/etc/passwd", at).unwrap());
    });
    scene.refuses("bad_layout", "files/sub: it is another thing", |path| {
        replace(&path.join("files/sub"), |at| symlink("/etc", at).unwrap());
    });
    scene.refuses("bad_layout", "files/link: it leads elsewhere", |path| {
        replace(&path.join("files/link"), |at| symlink("/etc/passwd", at).unwrap());
    });
    scene.refuses("bad_layout", "agent_memory/more: it is to be a file and is a link", |path| {
        symlink("/etc/passwd", path.join("agent_memory/more")).unwrap();
    });
}

#[test]
fn nothing_but_files_and_folders_is_opened() {
    let scene = Scene::new();
    for name in [
        "metadata.json",
        "files.json",
        "workflow_state.json",
        "files",
        "files/file",
        "task_tool_state/work.json",
    ] {
        scene.refuses("bad_layout", "a FIFO, a socket or a device", |path| replace(&path.join(name), fifo));
        scene.refuses("bad_layout", "a FIFO, a socket or a device", |path| {
            replace(&path.join(name), |at| drop(std::os::unix::net::UnixListener::bind(at).unwrap()));
        });
    }
    for name in ["metadata.json", "files.json"] {
        let words = format!("{name}: it is to be a file and is a folder");
        scene.refuses("bad_layout", &words, |path| {
            replace(&path.join(name), |at| fs::create_dir(at).unwrap());
        });
    }
    scene.refuses("bad_layout", "files: it is to be a folder and is a file", |path| {
        replace(&path.join("files"), |at| fs::write(at, "").unwrap());
    });
    scene.refuses("bad_layout", "agent_memory/pipe: it is to be a file", |path| {
        fifo(&path.join("agent_memory/pipe"));
    });
    scene.refuses("bad_layout", "files/pipe: it is a FIFO", |path| fifo(&path.join("files/pipe")));
}

#[test]
fn what_is_not_as_promised_is_named() {
    let scene = Scene::new();
    for name in
        ["files/file", "files/sub/other", "files.json", "workflow_state.json", "task_tool_state/work.json"]
    {
        let words = format!("{name}: its bytes are not those");
        scene.refuses("bad_layout", &words, |path| {
            let mut bytes = fs::read(path.join(name)).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path.join(name), bytes).unwrap();
        });
        scene.refuses("bad_layout", &words, |path| {
            let mut bytes = fs::read(path.join(name)).unwrap();
            bytes.push(b' ');
            fs::write(path.join(name), bytes).unwrap();
        });
        scene.refuses("bad_layout", &words, |path| fs::write(path.join(name), "").unwrap());
        scene.refuses("bad_layout", name, |path| fs::remove_file(path.join(name)).unwrap());
        scene.refuses_metadata(&format!("{name}: metadata.json does not list it"), |metadata| {
            metadata["hashes"].as_array_mut().unwrap().retain(|row| row["path"] != name);
        });
    }
    scene.refuses("bad_layout", "files/sub", |path| fs::remove_dir_all(path.join("files/sub")).unwrap());
    scene.refuses("bad_layout", "files/link: files.json lists it, but it is missing", |path| {
        fs::remove_file(path.join("files/link")).unwrap();
    });
    scene.refuses("bad_layout", "files", |path| fs::remove_dir_all(path.join("files")).unwrap());
    scene.refuses_metadata("nothing: metadata.json lists it, but it is missing", |metadata| {
        let row = json!({ "path": "nothing", "size": 1, "blake3": "0".repeat(64) });
        let rows = metadata["hashes"].as_array_mut().unwrap();
        let at = rows.iter().position(|row| row["path"].as_str().unwrap() > "nothing").unwrap();
        rows.insert(at, row);
    });
}

#[test]
fn what_nobody_promised_is_refused() {
    let scene = Scene::new();
    for name in ["extra", "Metadata.json", "FILES", "project_state.json", ".git", "files.json.bak"] {
        scene.refuses_sealed(&format!("{name}: it is not part of a layout"), |path| {
            fs::write(path.join(name), "x").unwrap();
        });
    }
    scene.refuses_sealed("it is not part of a layout", |path| fs::create_dir(path.join("empty")).unwrap());
    scene.refuses_sealed("more is in it than is listed", |path| {
        (0..20).for_each(|number| fs::write(path.join(format!("{number}")), "").unwrap());
    });
    scene.refuses("bad_layout", "task_tool_state/x: metadata.json does not list it", |path| {
        fs::write(path.join("task_tool_state/x"), "x").unwrap();
    });
    scene.refuses_sealed("files", |path| fs::write(path.join("files/extra"), "x").unwrap());
    scene.refuses_sealed("files", |path| fs::create_dir(path.join("files/extra")).unwrap());
    scene.refuses_sealed("is nested too deeply", |path| {
        fs::create_dir_all(path.join("task_tool_state/a/b/c/d/e")).unwrap();
    });
    scene.refuses_sealed("is nested too deeply", |path| {
        fs::create_dir_all(path.join("agent_memory").join("a/".repeat(104))).unwrap();
    });
    scene.refuses_sealed("agent_memory/more.json: it belongs to no agent", |path| {
        fs::write(path.join("agent_memory/more.json"), "{}").unwrap();
    });
    // A promised extra document in the right folder is compared and then ignored.
    let path = scene.fresh();
    fs::write(path.join("task_tool_state/more.json"), "not even JSON").unwrap();
    seal(&path);
    assert_eq!(import(&scene.bench, &path).unwrap().checkpoint.integrity, scene.original.integrity);
}

/// Adds a correctly listed folder with a file to a layout.
fn smuggle(layout: &Path, folder: &str) {
    fs::create_dir(layout.join("files").join(folder)).unwrap();
    fs::write(layout.join("files").join(folder).join("config"), "evil").unwrap();
    edit_json(&layout.join("files.json"), |list| {
        let rows = list["entries"].as_array_mut().unwrap();
        let at = |path: String, what: &str| json!({ "path": path, "type": what, "mode": "0755", "uid": 0, "gid": 0, "mtime_ns": 1 });
        rows.push(at(format!("files/{folder}"), "directory"));
        rows.push(at(format!("files/{folder}/config"), "file"));
        rows.sort_by_key(|row| row["path"].as_str().unwrap().as_bytes().to_vec());
    });
    edit_json(&layout.join("workflow_state.json"), |state| {
        state["files"][0]["coverage"]["skipped"] = json!([]);
    });
    seal(layout);
}

#[test]
fn what_no_capture_holds_does_not_come_in() {
    let scene = Scene::new();
    for folder in [".git", ".GIT", ".Git"] {
        scene.refuses("bad_layout", "git's own folder is never part", |path| smuggle(path, folder));
    }
    for folder in [".safepoint", ".Safepoint"] {
        scene.refuses("bad_layout", "Safepoint's own folder is never part", |path| smuggle(path, folder));
    }
    let path = scene.fresh();
    smuggle(&path, "harmless");
    assert_eq!(import(&scene.bench, &path).unwrap().checkpoint.files.count, scene.original.files.count + 2);
}

#[test]
fn lists_that_contradict_themselves_are_refused() {
    let scene = Scene::new();
    let twice = |list: &mut Value| {
        let rows = list.as_array_mut().unwrap();
        rows.insert(0, rows[0].clone());
    };
    let backwards = |list: &mut Value| list.as_array_mut().unwrap().reverse();
    let words = "comes twice or is not in its place";
    scene.refuses_metadata(words, |metadata| twice(&mut metadata["hashes"]));
    scene.refuses_metadata(words, |metadata| backwards(&mut metadata["hashes"]));
    scene.refuses_edited("files.json", words, |list| twice(&mut list["entries"]));
    scene.refuses_edited("files.json", words, |list| backwards(&mut list["entries"]));
    scene.refuses_metadata("comes twice", |metadata| twice(&mut metadata["contents"]));
    scene.refuses("not_importable", "2 workspaces", |path| {
        edit_json(&path.join("metadata.json"), |metadata| {
            twice(&mut metadata["contents"]);
            metadata["contents"][0]["key"] = json!("another");
        });
    });
    for key in [String::new(), "elsewhere:work".to_owned(), "k".repeat(5_000)] {
        scene.refuses_metadata("the key of a part of kind plan is none", |metadata| {
            metadata["contents"][1]["key"] = json!(key);
        });
    }
    for (file, key) in [("metadata.json", "format"), ("metadata.json", "hashes"), ("files.json", "entries")] {
        scene.refuses("bad_layout", "duplicate field", |path| {
            let text = fs::read_to_string(path.join(file)).unwrap();
            let value = read_json(&path.join(file))[key].to_string();
            let text = text.replacen('{', &format!("{{ \"{key}\": {value}, "), 1);
            fs::write(path.join(file), text).unwrap();
            if file != "metadata.json" {
                seal(path);
            }
        });
    }
    scene.refuses_edited("files.json", "files/file: it is another thing", |list| {
        row(&mut list["entries"], "files/file")["type"] = json!("directory");
    });
    scene.refuses_edited("files.json", "files/sub: it is another thing", |list| {
        row(&mut list["entries"], "files/sub")["type"] = json!("file");
    });
    scene.refuses_edited("files.json", "files/link: it leads elsewhere", |list| {
        row(&mut list["entries"], "files/link")["target"] = json!("/etc/passwd");
    });
    scene.refuses_edited("files.json", "files/link: a link has a target", |list| {
        row(&mut list["entries"], "files/link").as_object_mut().unwrap().remove("target");
    });
    scene.refuses_edited("files.json", "files/file: a link has a target", |list| {
        row(&mut list["entries"], "files/file")["target"] = json!("x");
    });
    for left_out in ["", "file", "sub"] {
        scene.refuses_edited("workflow_state.json", "is said to be left out, and is there", |state| {
            state["files"][0]["coverage"]["skipped"] = json!([{ "path": left_out, "why": "ignored" }]);
        });
    }
    scene.refuses_edited("workflow_state.json", "does not say what was left out", |state| {
        state["files"] = json!([]);
    });
}

#[test]
fn attributes_that_no_file_has_are_refused() {
    let scene = Scene::new();
    let file = |words: &str, key: &str, value: Value| {
        scene
            .refuses_edited("files.json", words, |list| row(&mut list["entries"], "files/file")[key] = value);
    };
    for mode in ["77777", "10000", "abc", "-1", "", "0x1ff"] {
        file("", "mode", json!(mode));
    }
    for number in [json!(-1), json!(1u64 << 32), json!("0"), json!(1.5)] {
        file("files.json: it cannot be understood", "uid", number.clone());
        file("files.json: it cannot be understood", "gid", number);
    }
    file("files/file: it has no mtime_ns", "mtime_ns", json!(null));
    file("files.json: it cannot be understood", "type", json!("socket"));
    file("files.json: it cannot be understood", "more", json!(1));
    let xattr = |name: &str, value: &str| json!({ "name": name, "value": value });
    for xattrs in [
        json!([xattr("security.capability", "x")]),
        json!([xattr("system.posix_acl_access", "x")]),
        json!([xattr("system.posix_acl_default", "x")]),
        json!([xattr("trusted.x", "x")]),
        json!([xattr("user.a\0", "x")]),
        json!([xattr("user.b", ""), xattr("user.a", "")]),
        json!([xattr("user.a", ""), xattr("user.a", "")]),
        json!([xattr(&format!("user.{}", "a".repeat(300)), "")]),
        json!([xattr("user.a", &"x".repeat(70_000))]),
    ] {
        file("files", "xattrs", xattrs);
    }
    // The root has no parent directory that would check it.
    scene.refuses_edited("files.json", "files: ", |list| {
        row(&mut list["entries"], "files")["xattrs"] = json!([xattr("security.x", "")]);
    });
}

#[test]
fn rights_are_not_lent_on_somebodys_word() {
    let scene = Scene::new();
    for mode in ["4755", "2755", "6755"] {
        let path = scene.fresh();
        edit_json(&path.join("files.json"), |list| {
            row(&mut list["entries"], "files/file")["mode"] = json!(mode);
        });
        seal(&path);
        let imported = import(&scene.bench, &path).unwrap().checkpoint;
        let entries = scene.bench.manager.checkpoints().entries(&imported).unwrap();
        let entry = entries.iter().find(|listed| listed.path.as_bytes() == b"file").unwrap();
        assert_eq!(entry.entry.meta.mode, 0o755);
        assert!(imported.warnings[0].contains("rights of their owner"), "{:?}", imported.warnings);
    }
    // A file that already has the bits keeps them.
    scene.bench.write("tool", "#!/bin/sh\n");
    fs::set_permissions(scene.bench.path("tool"), Permissions::from_mode(0o4755)).unwrap();
    let then = scene.bench.create();
    let imported = import(&scene.bench, &export(&scene.bench, &then, scene.out.path())).unwrap().checkpoint;
    assert_eq!((imported.integrity, imported.warnings.len()), (then.integrity, 0));
}

#[test]
fn texts_that_are_cut_or_nested_or_endless_are_refused() {
    let scene = Scene::new();
    let whole = fs::read(scene.fresh().join("metadata.json")).unwrap();
    for at in (0..whole.len() - 3).step_by(whole.len() / 60 + 1) {
        scene.refuses("bad_layout", "metadata.json: it cannot be understood", |path| {
            fs::write(path.join("metadata.json"), &whole[..at]).unwrap();
        });
    }
    for name in ["files.json", "workflow_state.json", "task_tool_state/work.json"] {
        for part in 0..12 {
            scene.refuses_sealed(&format!("{name}: it cannot be understood"), |path| {
                let text = fs::read(path.join(name)).unwrap();
                fs::write(path.join(name), &text[..text.len() * part / 12]).unwrap();
            });
        }
    }
    let deep = |open: &str, close: &str| format!("{}0{}", open.repeat(1_000_000), close.repeat(1_000_000));
    for bomb in [deep("[", "]"), deep("{\"a\":", "}"), "[".repeat(3_000_000)] {
        for name in ["files.json", "workflow_state.json", "task_tool_state/work.json"] {
            scene
                .refuses_sealed("it cannot be understood", |path| fs::write(path.join(name), &bomb).unwrap());
        }
        scene.refuses("bad_layout", "metadata.json: it cannot be understood", |path| {
            fs::write(path.join("metadata.json"), &bomb).unwrap();
        });
        scene.refuses("bad_layout", "metadata.json: it cannot be understood", |path| {
            let text = fs::read_to_string(path.join("metadata.json")).unwrap();
            fs::write(
                path.join("metadata.json"),
                text.replacen("\"label\": null", &format!("\"label\": {bomb}"), 1),
            )
            .unwrap();
        });
        scene.refuses_sealed("work.json: it cannot be understood", |path| {
            let file = path.join("task_tool_state/work.json");
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, text.replacen("\"context\": {}", &format!("\"context\": {{\"a\": {bomb}}}"), 1))
                .unwrap();
        });
    }
    scene
        .refuses_metadata("longer than 4,096 bytes", |metadata| metadata["label"] = json!("x".repeat(5_000)));
    scene.refuses_metadata("longer than 4,096 bytes", |metadata| {
        metadata["warnings"] = json!(["x".repeat(5_000)]);
    });
    scene.refuses_metadata("more than 1000 items", |metadata| metadata["warnings"] = json!(vec![""; 1_001]));
    // Too long, and only a hole.
    for name in ["metadata.json", "files.json", "workflow_state.json", "task_tool_state/work.json"] {
        scene.refuses("bad_layout", &format!("{name}: it is longer than"), |path| {
            let file = fs::File::options().write(true).open(path.join(name)).unwrap();
            file.set_len(300 << 20).unwrap();
        });
    }
}

#[test]
fn words_ids_and_hashes_that_are_none_are_refused() {
    let scene = Scene::new();
    for (key, value) in [
        ("kind", json!("odd")),
        ("kind", json!("\u{1b}[2J")),
        ("reason", json!(7)),
        ("scope", json!("galaxy")),
        ("phase", json!("x")),
        ("role", json!("king")),
        ("id", json!("../../x")),
        ("created_at", json!("yesterday")),
        ("progress", json!({ "tests_passing": -1 })),
        ("progress", json!({ "more": 1 })),
        ("warnings", json!("text")),
        ("contents", json!([{ "kind": "files", "key": 1, "path": "files" }])),
        ("contents", json!({})),
        ("hashes", json!(null)),
    ] {
        scene.refuses_metadata("metadata.json: it cannot be understood", |metadata| metadata[key] = value);
    }
    for hash in [json!("xyz"), json!("0".repeat(63)), json!("g".repeat(64)), json!("")] {
        scene.refuses_metadata("is not one", |metadata| metadata["hashes"][0]["blake3"] = hash);
    }
    scene.refuses_metadata("its bytes are not those", |metadata| {
        metadata["hashes"][0]["blake3"] = json!("0".repeat(64));
    });
    scene.refuses("not_importable", "0 workspaces", |path| {
        edit_json(&path.join("metadata.json"), |metadata| metadata["contents"] = json!([]));
    });
    // Another scope has another document.
    scene.refuses_metadata("project_state.json: metadata.json does not list it", |metadata| {
        metadata["scope"] = json!("project");
    });
}

#[test]
fn numbers_are_not_believed() {
    let scene = Scene::new();
    let path = scene.fresh();
    edit_json(&path.join("workflow_state.json"), |state| {
        state["files"][0]["count"] = json!(u64::MAX);
        state["files"][0]["bytes"] = json!(u64::MAX);
    });
    seal(&path);
    edit_json(&path.join("metadata.json"), |metadata| {
        metadata["files"] = json!({ "count": u64::MAX, "bytes": u64::MAX });
        metadata["size_bytes"] = json!(u64::MAX);
        metadata["rollback_count"] = json!(u64::MAX);
        metadata["pinned"] = json!(true);
        metadata["tags"] = json!(["v1.0"]);
        metadata["commit_sha"] = json!("0000");
    });
    let imported = import(&scene.bench, &path).unwrap().checkpoint;
    let original = &scene.original;
    assert_eq!((imported.files.count, imported.files.bytes), (original.files.count, original.files.bytes));
    assert_eq!((imported.rollback_count, imported.pinned, imported.tags.len()), (0, false, 0));
    assert_eq!(imported.commit_sha, None);
    scene.refuses_metadata("more than 1 TiB", |metadata| {
        row(&mut metadata["hashes"], "files/file")["size"] = json!(u64::MAX);
    });
    scene.refuses_metadata("files/file: its bytes are not those", |metadata| {
        row(&mut metadata["hashes"], "files/file")["size"] = json!(1u64 << 39);
    });
}

#[test]
fn a_plan_that_is_not_the_one_that_is_listed() {
    let scene = Scene::new();
    let file = "task_tool_state/work.json";
    let words = "work.json: it is not the plan that metadata.json lists";
    scene.refuses_edited(file, words, |plan| plan["id"] = json!("other"));
    scene.refuses_edited(file, words, |plan| plan["format"] = json!(2));
    scene.refuses_edited(file, "work.json: it cannot be understood", |plan| plan["state"] = json!("odd"));
    scene.refuses_edited(file, "work.logs", |plan| plan["steps"][0]["log"] = json!("0".repeat(64)));
    scene.refuses_sealed("it is not what the step printed", |path| {
        fs::create_dir(path.join("task_tool_state/work.logs")).unwrap();
        fs::write(path.join(format!("task_tool_state/work.logs/{}.txt", "0".repeat(64))), "forged").unwrap();
        edit_json(&path.join(file), |plan| plan["steps"][0]["log"] = json!("0".repeat(64)));
    });
}

#[test]
fn what_changes_while_it_is_read_never_comes_in_half() {
    let scene = Scene::new();
    scene.bench.write("large", vec![b'a'; 3_000_000]);
    let then = scene.bench.create();
    let path = export(&scene.bench, &then, scene.out.path());
    let stop = AtomicBool::new(false);
    // Checked after the writer has ended: a failing test must not wait for it.
    let results: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::unix::fs::FileExt;
            let file = fs::File::options().write(true).open(path.join("files/large")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                for letter in [b'b', b'a'] {
                    file.write_all_at(&[letter; 100], 2_900_000).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            }
        });
        let results = (0..40).map(|_| import(&scene.bench, &path)).collect();
        stop.store(true, Ordering::Relaxed);
        results
    });
    let (mut done, mut refused) = (0, 0);
    for result in results {
        match result {
            Ok(imported) => {
                assert_eq!(imported.checkpoint.integrity, then.integrity);
                done += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("files/large: its bytes are not those"), "{error}");
                refused += 1;
            }
        }
    }
    eprintln!("a file that changes while it is read: imported {done} times, refused {refused} times");
    assert!(done + refused == 40 && refused > 0);
    let validation = scene.bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}
